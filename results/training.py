"""Curves to compare one's own with: the default model, and what changes it.

The band is `coursekit train` as it comes, for its first steps and over three
seeds.  All else is a model small enough for many runs: AdamW against plain
descent, learning rates with and without warm-up, six curves with their causes,
number formats, one accident with and without clipping, and characters against
byte pairs.
"""

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from coursekit.attention import fast_attend
from coursekit.cli.runs import TRAIN_DEFAULTS
from coursekit.config import GPTConfig, TrainConfig
from coursekit.data import (
    Batch,
    load_text,
    random_windows,
    sequential_windows,
    train_val_split,
)
from coursekit.decoder import GPT
from coursekit.loss import cross_entropy
from coursekit.tokenizer import BPETokenizer, CharTokenizer
from coursekit.training import (
    Progress,
    TrainState,
    evaluate,
    new_state,
    train,
)
from results.record import options, record, summary

HELD_OUT = 16_000  # characters of the validation split, for the small model
EVERY = 10  # steps in a point of a curve
CONTEXT, BATCH, WARMUP = 32, 12, 40
RATES = [3e-3, 1e-2, 3e-2, 1e-1]
OPTIMIZERS = {"AdamW": [3e-3, 1e-2, 3e-2], "descent": [0.1, 0.3, 1.0]}
ACCIDENT = 100  # the step whose loss is summed, not averaged
SHAPE = {"d_model": 32, "n_heads": 2, "n_layers": 2, "max_len": CONTEXT}


class Small:
    """The small character model and its text: runs of a second or two."""

    def __init__(self, steps: int) -> None:
        text = load_text("shakespeare")
        self.tokenizer = CharTokenizer.train(text)
        ids = torch.tensor(self.tokenizer.encode(text))
        self.learned, held_out = train_val_split(ids, 0.1)
        windows = sequential_windows(held_out[:HELD_OUT], 256, CONTEXT)
        self.held_out = list(windows)
        self.steps = steps

    def model(self, seed: int, *attend: Any) -> GPT:
        """A fresh model."""
        torch.manual_seed(seed)
        size = self.tokenizer.vocab_size
        return GPT(GPTConfig(vocab_size=size, **SHAPE), *attend)

    def budget(self, seed: int, rate: float, **changes: Any) -> TrainConfig:
        """Default settings of the training."""
        return TrainConfig(
            **{"steps": self.steps, "warmup_steps": WARMUP}
            | {"learning_rate": rate, "seed": seed, "eval_every": 40}
            | changes
        )

    def batches(self, seed: int) -> Callable[[int], list[Batch]]:
        """The batch of each step."""
        return lambda step: [
            random_windows(self.learned, BATCH, CONTEXT, seed, step)
        ]

    def run(self, model: nn.Module, config: TrainConfig, **more: Any) -> Any:
        """Train, with a look at the held-out text now and then."""
        batches = more.pop("batches", self.batches(config.seed))
        return train(
            model, batches, config, self.held_out, progress=False, **more
        )


def thin(losses: Sequence[float]) -> list[float]:
    """Means of ten steps each."""
    return [
        round(statistics.fmean(losses[i : i + EVERY]), 3)
        for i in range(0, len(losses), EVERY)
    ]


# -- the band ----------------------------------------------------------------
def default_run(seed: int, steps: int) -> dict[str, Any]:
    """The first steps of `coursekit train --seed`, and a look at the end."""
    text = load_text("shakespeare")
    tokenizer = CharTokenizer.train(text)
    ids = torch.tensor(tokenizer.encode(text))
    learned, held_out = train_val_split(ids)
    config = TrainConfig(
        **TRAIN_DEFAULTS | {"seed": seed, "precision": "float32"}
    )
    torch.manual_seed(seed)
    model = GPT(
        GPTConfig(vocab_size=tokenizer.vocab_size, max_len=config.context)
    )

    def batches(step: int) -> list[Batch]:
        size, context = config.batch_size, config.context
        return [random_windows(learned, size, context, seed, step)]

    def enough(progress: Progress) -> bool:
        return progress.step == steps

    state = train(model, batches, config, callbacks=[enough], progress=False)
    windows = sequential_windows(held_out, 128, config.context)
    return {
        "seed": seed,
        "curve": thin(state.losses),
        "validation": round(evaluate(model, windows), 4),
        "parameters": sum(p.numel() for p in model.parameters()),
    }


# -- AdamW or descent --------------------------------------------------------
def descent(model: nn.Module) -> TrainState:
    """The state of a run by plain descent with momentum."""
    return TrainState(torch.optim.SGD(model.parameters(), 1.0, momentum=0.9))


def optimizers(
    texts: dict[str, Any], seeds: Sequence[int], steps: int
) -> list[dict[str, Any]]:
    """The held-out loss of both at each rate, on two vocabularies."""
    found = []
    for (text, (size, ids, asked)), name in itertools.product(
        texts.items(), OPTIMIZERS
    ):
        windows = list(sequential_windows(asked, 256, CONTEXT))
        for rate in OPTIMIZERS[name]:
            nats = []
            for seed in seeds:
                torch.manual_seed(seed)
                model = GPT(GPTConfig(vocab_size=size, **SHAPE))
                config = TrainConfig(
                    steps=steps,
                    learning_rate=rate,
                    warmup_steps=WARMUP,
                    seed=seed,
                )
                train(
                    model,
                    lambda step, seed=seed, ids=ids: [
                        random_windows(ids, BATCH, CONTEXT, seed, step)
                    ],
                    config,
                    state=descent(model) if name == "descent" else None,
                    progress=False,
                )
                nats.append(round(evaluate(model, windows), 4))
            found.append(
                {
                    "text": text,
                    "optimizer": name,
                    "rate": rate,
                    "loss": summary(nats),
                }
            )
            print(f"{text} {name} {rate}: {nats}", flush=True)
    return found


# -- warm-up -----------------------------------------------------------------
def rates(small: Small, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """The held-out loss at each rate, with warm-up and without."""
    found = []
    for rate, warmup in itertools.product(RATES, (0, WARMUP)):
        nats = []
        for seed in seeds:
            config = small.budget(seed, rate, warmup_steps=warmup)
            state = small.run(small.model(seed), config)
            nats.append(round(state.history[-1]["validation_loss"], 4))
        found.append({"rate": rate, "warmup": warmup, "loss": summary(nats)})
        print(f"rate {rate} warm-up {warmup}: {nats}", flush=True)
    return found


# -- six curves --------------------------------------------------------------
def sees_all(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = False, **rest: Any
) -> Tensor:
    """Attention that has lost its causal mask."""
    return fast_attend(q, k, v, causal=False, **rest)


def mistake(small: Small, name: str, seed: int) -> tuple[nn.Module, Any]:
    """One of six runs; five have something wrong with them."""
    model = small.model(seed, *([sees_all] if name == "leak" else []))
    factor = {"slow": 0.01, "fast": 30.0}.get(name, 1.0)
    config = small.budget(seed, 1e-2 * factor)
    batches = small.batches(seed)
    if name == "same":
        first = batches(0)
        batches = lambda step: first  # noqa: E731
    if name == "twice":
        honest = model.logits
        model.logits = lambda x: honest(x).softmax(-1)  # type: ignore
    return model, small.run(model, config, batches=batches)


@torch.no_grad()
def prefix_only(model: nn.Module, small: Small) -> float:
    """The held-out loss when what follows a position does not exist."""
    batch = small.held_out[0]
    ids, targets = batch.inputs["ids"][:100], batch.targets[:100]
    model.eval()
    last = [model(ids[:, : t + 1])[:, -1] for t in range(CONTEXT)]
    return cross_entropy(torch.stack(last, 1), targets).item()


@torch.no_grad()
def teacher_forced(model: nn.Module, small: Small) -> float:
    """The same questions, with the whole window given."""
    batch = small.held_out[0]
    ids, targets = batch.inputs["ids"][:100], batch.targets[:100]
    model.eval()
    return cross_entropy(model(ids), targets).item()


def six_curves(small: Small, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Both curves of each run, and how it is when it is used."""
    found = []
    for name in ("right", "same", "slow", "fast", "twice", "leak"):
        runs = [mistake(small, name, seed) for seed in seeds]
        first: TrainState = runs[0][1]
        with_window = [teacher_forced(model, small) for model, _ in runs]
        alone = [prefix_only(model, small) for model, _ in runs]
        ends = [statistics.fmean(state.losses[-20:]) for _, state in runs]
        looks = [look["validation_loss"] for look in first.history]
        found.append(
            {
                "name": name,
                "curve": thin(first.losses),
                "steps": [look["step"] for look in first.history],
                "held_out": [round(nats, 3) for nats in looks],
                "training": summary([round(x, 4) for x in ends]),
                "given_window": summary([round(x, 4) for x in with_window]),
                "given_prefix": summary([round(x, 4) for x in alone]),
            }
        )
        print(f"{name}: {ends} {with_window} {alone}", flush=True)
    return found


# -- number formats ----------------------------------------------------------
def formats(small: Small, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """float32; products in bfloat16; weights kept in bfloat16, too."""
    found = []
    for name in ("float32", "mixed", "weights"):
        nats = []
        for seed in seeds:
            model = small.model(seed)

            @torch.no_grad()
            def shorten(_: Progress, model: nn.Module = model) -> None:
                for weight in model.parameters():
                    weight.copy_(weight.bfloat16())

            state = small.run(
                model,
                small.budget(
                    seed,
                    1e-3,
                    precision="bfloat16" if name == "mixed" else "float32",
                ),
                callbacks=[shorten] if name == "weights" else [],
            )
            nats.append(round(state.history[-1]["validation_loss"], 4))
        found.append({"name": name, "loss": summary(nats)})
        print(f"{name}: {nats}", flush=True)
    return found


# -- an accident -------------------------------------------------------------
def accident(
    small: Small, seed: int, clip: float, happens: bool
) -> tuple[list[float], list[float]]:
    """Losses and gradient lengths of a run with one step gone wrong."""
    model = small.model(seed)
    config = small.budget(seed, 3e-3, max_grad_norm=clip, warmup_steps=0)
    optimizer = new_state(model, config).optimizer
    batches, losses, norms = small.batches(seed), [], []
    for step in range(small.steps):
        (batch,) = batches(step)
        loss = cross_entropy(model(**batch.inputs), batch.targets)
        wrong = happens and step == ACCIDENT
        optimizer.zero_grad()
        (loss * batch.n_targets if wrong else loss).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), clip or math.inf)
        optimizer.step()
        losses.append(loss.item())
        norms.append(norm.item())
    return losses, norms


def clipping(small: Small, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Cost of one step with a hundredfold gradient, over time."""
    found = []
    for clip, happens in itertools.product((0.0, 1.0), (False, True)):
        runs = [accident(small, seed, clip, happens) for seed in seeds]
        curves = [thin(losses) for losses, _ in runs]
        after = [statistics.fmean(losses[-20:]) for losses, _ in runs]
        found.append(
            {
                "clip": clip,
                "accident": happens,
                "curves": curves,
                "end": summary([round(x, 4) for x in after]),
                "usual_norm": round(statistics.median(runs[0][1]), 2),
                "norm": round(runs[0][1][ACCIDENT], 1),
            }
        )
        print(f"clip {clip} accident {happens}: {after}", flush=True)
    return found


# -- characters or byte pairs ------------------------------------------------
def encoded() -> dict[str, Any]:
    """For both vocabularies: their size, the training and held-out ids."""
    learned, held_out = train_val_split(load_text("shakespeare"), 0.1)
    tokenizers = {
        "characters": CharTokenizer.train(load_text("shakespeare")),
        "byte pairs": BPETokenizer.train(learned, 1000),
    }
    return {
        name: (
            tokenizer.vocab_size,
            torch.tensor(tokenizer.encode(learned)),
            torch.tensor(tokenizer.encode(held_out[:HELD_OUT])),
        )
        for name, tokenizer in tokenizers.items()
    }


def vocabularies(
    texts: dict[str, Any], seeds: Sequence[int], steps: int
) -> list[dict[str, Any]]:
    """The same loop on two vocabularies, in nats a character.

    Byte pairs come twice: with as many tokens in a window as characters, and
    with windows shortened until they hold as much *text*.
    """
    found = []
    asked = texts["byte pairs"][2]
    short = round(64 * len(asked) / HELD_OUT)
    for text, context in (
        ("characters", 64),
        ("byte pairs", 64),
        ("byte pairs", short),
    ):
        size, ids, asked = texts[text]
        nats = []
        for seed in seeds:
            torch.manual_seed(seed)
            shape = SHAPE | {"d_model": 64, "n_heads": 4, "max_len": 64}
            model = GPT(GPTConfig(vocab_size=size, **shape))
            config = TrainConfig(
                steps=steps,
                learning_rate=5e-3,
                warmup_steps=WARMUP,
                seed=seed,
            )
            train(
                model,
                lambda step, seed=seed, ids=ids, context=context: [
                    random_windows(ids, BATCH, context, seed, step)
                ],
                config,
                progress=False,
            )
            windows = sequential_windows(asked, 64, context)
            total = evaluate(model, windows) * (len(asked) - 1)
            nats.append(round(total / HELD_OUT, 4))
        found.append(
            {
                "text": text,
                "vocab_size": size,
                "context": context,
                "tokens": len(asked),
                "characters": HELD_OUT,
                "parameters": sum(p.numel() for p in model.parameters()),
                "nats_per_character": summary(nats),
            }
        )
        print(f"{text}, {context}: {nats}", flush=True)
    return found


parser = options(__doc__, seeds=[0, 1, 2], steps=500, small_steps=200)


def main() -> None:
    """All of it."""
    args = parser.parse_args()
    torch.set_num_threads(1)
    with record("training", args.seeds) as metrics:
        metrics["unit"] = "nats per character"
        metrics["every"], metrics["steps"] = EVERY, args.steps
        metrics["small_steps"], metrics["warmup"] = args.small_steps, WARMUP
        metrics["accident"] = ACCIDENT
        small = Small(args.small_steps)
        metrics["six_curves"] = six_curves(small, args.seeds)
        metrics["rates"] = rates(small, args.seeds)
        metrics["formats"] = formats(small, args.seeds)
        metrics["clipping"] = clipping(small, args.seeds)
        texts = encoded()
        metrics["optimizers"] = optimizers(texts, args.seeds, args.small_steps)
        metrics["vocabularies"] = vocabularies(
            texts, args.seeds, args.small_steps
        )
        metrics["band"] = []
        for seed in args.seeds:
            metrics["band"].append(default_run(seed, args.steps))
            print(f"band, seed {seed}", flush=True)


if __name__ == "__main__":
    main()
