"""How fast can it be learned?  A known recipe, and a faster one beside it.

nanoGPT's recipe for a CPU is trained as it is.  Then a faster one: until it
is as good, and for as long as the recipe took.  What each of its changes
gives is measured apart: added alone to the recipe, and taken alone from the
faster one, each over its own number of steps.  Everything runs in turn, seed
by seed, so that a slow minute hits all of it.

    make results NAME=speedrun
    python -m results.speedrun --text my.txt

The first records the result; the second runs the race alone on another text,
and only prints it. The text of the first is not in the repository:
COURSEKIT_DATA names its folder, or it is fetched.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from coursekit.config import GPTConfig, TrainConfig
from coursekit.data import (
    Batch,
    load_text,
    random_windows,
    sequential_windows,
    train_val_split,
)
from coursekit.decoder import GPT
from coursekit.devices import pick_precision
from coursekit.tokenizer import CharTokenizer
from coursekit.training import evaluate, train
from coursekit_classroom.glue import summary

TEXT = "tinyshakespeare"
STEPS, SHORT_STEPS = 2000, 320
"""Of the recipe, and of the faster one where it is as good."""
MARGIN = 0.95
"""The share of the recipe's time for which the long run is planned."""
SEEDS = 3
UNIT = "nats per character, whole validation split"

MODEL: dict[str, Any] = {
    "max_len": 64,
    "d_model": 128,
    "n_heads": 4,
    "n_layers": 4,
    "dropout": 0.0,
    "positions": "learned",
    "norm": "layernorm",
    "activation": "gelu",
    "tie_embeddings": True,
    "init_std": 0.02,
}
TRAINING: dict[str, Any] = {
    "batch_size": 12,
    "context": 64,
    "optimizer": "adamw",
    "learning_rate": 1e-3,
    "schedule": "cosine",
    "warmup_steps": 100,
    "min_lr_ratio": 0.1,
    "weight_decay": 0.1,
    "beta2": 0.99,
    "max_grad_norm": 1.0,
    "precision": "float32",
}


@dataclass(frozen=True)
class Entry:
    """A way to train: what it changes in the recipe."""

    model: dict[str, Any] = field(default_factory=dict)
    """Fields of :class:`~coursekit.config.GPTConfig`."""
    training: dict[str, Any] = field(default_factory=dict)
    """Fields of :class:`~coursekit.config.TrainConfig`."""

    def with_(
        self,
        model: dict[str, Any] | None = None,
        training: dict[str, Any] | None = None,
    ) -> "Entry":
        """The same with other changes on top."""
        return Entry(
            self.model | (model or {}), self.training | (training or {})
        )

    def configs(
        self, vocab_size: int, steps: int, seed: int
    ) -> tuple[GPTConfig, TrainConfig]:
        """Model and training of so many of the recipe's batches."""
        fields = TRAINING | self.training
        # As much text, and as much of it to warm up: with a batch twice as
        # large, half the steps.
        usual, size = TRAINING["batch_size"], fields["batch_size"]
        steps = max(1, steps * usual // size)
        fields["warmup_steps"] = fields["warmup_steps"] * usual // size
        fields["precision"] = pick_precision(
            fields["precision"], torch.device("cpu")
        )
        return (
            GPTConfig(vocab_size=vocab_size, **(MODEL | self.model)),
            TrainConfig(steps=steps, seed=seed, **fields),
        )


RECIPE = Entry()
FAST = Entry(
    {"positions": "rope", "init_std": 0.044},
    {
        "optimizer": "muon",
        "learning_rate": 1e-2,
        "warmup_steps": 30,
        "min_lr_ratio": 0.0,
        "precision": "auto",
    },
)
SWIGLU = {"activation": "swiglu", "d_ff": 340}  # no more weights than 4 D
TWICE = {"batch_size": 24}

ALONE = {
    "rate 0.003": RECIPE.with_(training={"learning_rate": 3e-3}),
    "rate 0.01": RECIPE.with_(training={"learning_rate": 1e-2}),
    "Muon": RECIPE.with_(training={"optimizer": "muon"}),
    "RoPE": RECIPE.with_({"positions": "rope"}),
    "RMSNorm": RECIPE.with_({"norm": "rmsnorm"}),
    "SwiGLU": RECIPE.with_(SWIGLU),
    "batch 24, half the steps": RECIPE.with_(training=TWICE),
    "weights 0.044": RECIPE.with_({"init_std": 0.044}),
    "warm-up 30": RECIPE.with_(training={"warmup_steps": 30}),
    "fall to 0": RECIPE.with_(training={"min_lr_ratio": 0.0}),
    "bfloat16": RECIPE.with_(training={"precision": "bfloat16"}),
}
"""The recipe with one change."""
WITHIN = {
    "rate 0.001": FAST.with_(training={"learning_rate": 1e-3}),
    "AdamW": FAST.with_(training={"optimizer": "adamw"}),
    "AdamW, rate 0.003": FAST.with_(
        training={"optimizer": "adamw", "learning_rate": 3e-3}
    ),
    "learned positions": FAST.with_({"positions": "learned"}),
    "RMSNorm": FAST.with_({"norm": "rmsnorm"}),
    "SwiGLU": FAST.with_(SWIGLU),
    "batch 24, half the steps": FAST.with_(training=TWICE),
    "weights 0.02": FAST.with_({"init_std": 0.02}),
    "warm-up 100": FAST.with_(training={"warmup_steps": 100}),
    "fall to a tenth": FAST.with_(training={"min_lr_ratio": 0.1}),
    "float32": FAST.with_(training={"precision": "float32"}),
}
"""The faster one with one change: back to the recipe's, or another."""


# -- one training ------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Corpus:
    """A text as all entries see it."""

    vocab_size: int
    """Number of its characters."""
    learned: Tensor
    """Ids (N,) to learn from: the first nine tenths."""
    held_out: list[Batch]
    """The whole of the last tenth."""


@dataclass(frozen=True)
class Run:
    """Cost and result of a training."""

    steps: int
    """Updates."""
    seconds: float
    """Wall time of the training, in which nothing is evaluated."""
    loss: float
    """Nats a character of the whole validation split, in float32."""
    parameters: int
    """Numbers that the model has learned."""


def read_corpus(name: str | Path = TEXT) -> Corpus:
    """Read a text, character by character.

    Args:
        name: as :func:`coursekit.data.load_text` takes it.

    Returns:
        The text, split.
    """
    text = load_text(name)
    tokenizer = CharTokenizer.train(text)
    learned, held_out = train_val_split(
        torch.tensor(tokenizer.encode(text)), 0.1
    )
    windows = sequential_windows(held_out, 128, TRAINING["context"])
    return Corpus(tokenizer.vocab_size, learned, list(windows))


def learn(entry: Entry, corpus: Corpus, steps: int, seed: int) -> Run:
    """Train once, by the package's own loop, and evaluate at the end.

    Args:
        entry: how.
        corpus: on what.
        steps: how long, in batches of the recipe's size.
        seed: of weights and batches.

    Returns:
        What it took and gave.
    """
    shape, config = entry.configs(corpus.vocab_size, steps, seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = GPT(shape)

    def batches(step: int) -> list[Batch]:
        size, context = config.batch_size, config.context
        return [random_windows(corpus.learned, size, context, seed, step)]

    began = time.perf_counter()
    train(model, batches, config, progress=False)
    seconds = time.perf_counter() - began
    return Run(
        config.steps,
        seconds,
        evaluate(model, corpus.held_out),
        sum(p.numel() for p in model.parameters()),
    )


def total(runs: Sequence[Run]) -> dict[str, Any]:
    """Steps, seconds, loss and size of the same entry with each seed."""
    return {
        "steps": summary([run.steps for run in runs]),
        "seconds": summary([round(run.seconds, 2) for run in runs]),
        "loss": summary([round(run.loss, 4) for run in runs]),
        "parameters": runs[0].parameters,
    }


# -- the race ----------------------------------------------------------------

Say = Callable[[str], object]


def race(
    corpus: Corpus,
    seeds: Sequence[int],
    say: Say = print,
) -> dict[str, Any]:
    """The recipe; the faster one until it is as good, and as long.

    Args:
        corpus: on what.
        seeds: one round each.
        say: is told of each run.

    Returns:
        Of ``recipe``, ``short`` and ``long`` what they took and gave; the
        ``goal``, which is the recipe's mean loss; the short one's ``share``
        of the recipe's time, the same of the long one, and whether the goal
        was ``reached`` by all seeds.
    """
    runs: dict[str, list[Run]] = {"recipe": [], "short": [], "long": []}
    for seed in seeds:
        recipe = learn(RECIPE, corpus, STEPS, seed)
        short = learn(FAST, corpus, SHORT_STEPS, seed)
        # The schedule has to end in time, so the time is planned in steps.
        fit = MARGIN * recipe.seconds * short.steps / short.seconds
        long = learn(FAST, corpus, max(1, int(fit)), seed)
        for name, run in zip(runs, (recipe, short, long), strict=True):
            runs[name].append(run)
            say(f"{seed} {name}: {run}")
    recipe_seconds = [run.seconds for run in runs["recipe"]]

    def share(name: str) -> dict[str, Any]:
        pairs = zip(runs[name], recipe_seconds, strict=True)
        return summary([round(run.seconds / all_, 3) for run, all_ in pairs])

    entries = {name: total(repeats) for name, repeats in runs.items()}
    goal = entries["recipe"]["loss"]["mean"]
    return {
        "entries": entries,
        "goal": goal,
        "share": share("short"),
        "long_share": share("long"),
        "reached": all(run.loss <= goal for run in runs["short"]),
    }


def trials(
    start: Entry,
    changes: dict[str, Entry],
    corpus: Corpus,
    seeds: Sequence[int],
    steps: int,
    say: Say = print,
) -> dict[str, Any]:
    """Gain of each change alone, over the same amount of text.

    Args:
        start: the control.
        changes: by name.
        corpus: on what.
        seeds: one round each.
        steps: of the control; a larger batch has fewer.
        say: is told of each run.

    Returns:
        The ``steps``, the ``control`` and the ``changes``, each with its
        name, what it took and gave, the ``change`` of the loss seed by seed
        (below 0 is better) and its ``time``, a multiple of the control's.
    """
    runs: dict[str, list[Run]] = {name: [] for name in ("", *changes)}
    for seed in seeds:
        for name, entry in (("", start), *changes.items()):
            run = learn(entry, corpus, steps, seed)
            runs[name].append(run)
            say(f"{seed} {name or 'control'}: {run}")
    control = runs.pop("")

    def differences(repeats: list[Run]) -> dict[str, Any]:
        pairs = list(zip(repeats, control, strict=True))
        losses = [round(run.loss - old.loss, 4) for run, old in pairs]
        times = [round(run.seconds / old.seconds, 3) for run, old in pairs]
        return {"change": summary(losses), "time": summary(times)}

    return {
        "steps": steps,
        "control": total(control),
        "changes": [
            {"name": name} | total(repeats) | differences(repeats)
            for name, repeats in runs.items()
        ],
    }


# -- tables ------------------------------------------------------------------


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that reads well as text and as Markdown."""
    widths = [
        max(map(len, column)) for column in zip(head, *rows, strict=True)
    ]
    bars = ["-" * widths[0], *("-" * (w - 1) + ":" for w in widths[1:])]
    padded = [
        [line[0].ljust(widths[0])]
        + [x.rjust(w) for x, w in zip(line[1:], widths[1:], strict=True)]
        for line in (head, bars, *rows)
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in padded)


def spread(numbers: dict[str, Any], form: str) -> str:
    """Mean and interval, in a format."""
    mean, interval = numbers["mean"], numbers["interval"]
    return f"{mean:{form}} ± {interval:{form.strip('+')}}"


def race_table(result: dict[str, Any]) -> str:
    """The three runs of :func:`race`, as a table.

    Args:
        result: what it returned.

    Returns:
        Markdown; the intervals are of 95 %.
    """
    rows = [
        [
            name,
            f"{entry['steps']['mean']:,.0f}",
            spread(entry["seconds"], ".1f"),
            spread(entry["loss"], ".3f"),
            f"{entry['parameters']:,}",
        ]
        for name, entry in result["entries"].items()
    ]
    head = ["run", "steps", "seconds", "validation loss", "parameters"]
    return table(head, rows)


def trials_table(result: dict[str, Any], control: str) -> str:
    """The changes of :func:`trials`, as a table, the best first.

    Args:
        result: what it returned.
        control: what to call its control.

    Returns:
        Markdown; the intervals are of 95 %, the times medians.
    """
    first = result["control"]
    rows = [[control, spread(first["loss"], ".3f"), "", "1.00"]]
    rows += [
        [
            change["name"],
            spread(change["loss"], ".3f"),
            spread(change["change"], "+.3f"),
            # A minute of other work on the machine moves a mean.
            f"{statistics.median(change['time']['values']):.2f}",
        ]
        for change in sorted(
            result["changes"], key=lambda change: change["change"]["mean"]
        )
    ]
    return table(["one change", "loss", "change", "time"], rows)


def settings_table() -> str:
    """The recipe beside the fast one, as a table.

    Returns:
        Markdown, with a row for each field of the recipe.
    """
    rows = [
        [f"`{name}`", f"{value}", "" if fast == value else f"{fast}"]
        for (name, value), fast in zip(
            (MODEL | TRAINING).items(),
            (MODEL | FAST.model | TRAINING | FAST.training).values(),
            strict=True,
        )
    ]
    return table(["setting", "the recipe", "the fast one"], rows)


def figures(result: dict[str, Any]) -> dict[str, str]:
    """Numbers of the result that texts quote, by name.

    Args:
        result: what :func:`race` returned, with both :func:`trials` under
            ``alone`` and ``within``.

    Returns:
        Numbers as they are printed.
    """
    entries = result["entries"]
    numbers = {
        "goal": f"{result['goal']:.3f}",
        "share": f"{result['share']['mean']:.2f}",
        "seconds": f"{entries['short']['seconds']['mean']:.1f}",
        "long": f"{entries['long']['loss']['mean']:.3f}",
    }
    for kind in ("alone", "within"):
        for change in result[kind]["changes"]:
            name = f"{kind} {change['name']}"
            numbers[name] = spread(change["change"], "+.3f")
    return numbers


def verdict(result: dict[str, Any]) -> str:
    """Sentence on whether the goal was reached, and when.

    Args:
        result: what :func:`race` returned.

    Returns:
        A sentence.
    """
    short, goal = result["entries"]["short"], f"{result['goal']:.3f}"
    if not result["reached"]:
        worst = max(short["loss"]["values"])
        return f"{goal} not reached: the short run's worst seed has {worst}"
    return (
        f"{goal} reached after {short['seconds']['mean']:.1f} s, "
        f"{result['share']['mean']:.2f} of the recipe's time"
    )


# -- the result ---------------------------------------------------------------


def measure(say: Say) -> dict[str, Any]:
    """The race, and each change apart, on the recipe's text."""
    corpus = read_corpus(TEXT)
    for entry in (RECIPE, FAST):
        learn(entry, corpus, 2, 0)  # what is compiled or loaded once
    found = {"unit": UNIT, "threads": torch.get_num_threads()}
    found |= race(corpus, range(SEEDS), say=say)
    for name, start, changes, steps in (
        ("alone", RECIPE, ALONE, STEPS),
        ("within", FAST, WITHIN, SHORT_STEPS),
    ):
        found[name] = trials(start, changes, corpus, range(SEEDS), steps, say)
    return found | {"page": for_the_page(found)}


def for_the_page(found: dict[str, Any]) -> dict[str, Any]:
    """Numbers and tables as ``book/about/speedrun.md`` shows them."""
    return {
        "short_steps": SHORT_STEPS,
        "steps": STEPS,
        "figures": figures(found),
        "settings": settings_table(),
        "race": race_table(found),
        "alone": trials_table(found["alone"], "the recipe"),
        "within": trials_table(found["within"], "the fast one"),
    }


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--text", help="race on this UTF-8 file, unrecorded")


def main() -> None:
    """Run it, with two threads: that is what the recipe's time is of."""
    from results.record import record

    text = parser.parse_args().text
    torch.set_num_threads(2)
    say = partial(print, flush=True)
    if text is not None:
        found = race(read_corpus(text), range(SEEDS), say=say)
        print(race_table(found), verdict(found), sep="\n\n")
        return
    with record("speedrun", range(SEEDS)) as metrics:
        metrics |= measure(say)
    print(race_table(metrics), verdict(metrics), sep="\n\n")


if __name__ == "__main__":
    main()
