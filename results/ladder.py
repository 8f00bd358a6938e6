"""The ladder: what runs after each chapter, and how well it predicts.

The book's file after chapters 0 to 9 (:mod:`coursekit_classroom.lesson`),
trained on Shakespeare's characters: one part more on each rung, and the same
context, batch, steps and optimizer, over three seeds. The number is the loss
on the whole held-out tenth, in nats per character."""

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from coursekit.data import load_text
from coursekit.saved_models import save_model
from coursekit.tokenizer import CharTokenizer
from coursekit_classroom import lesson
from coursekit_classroom.yourfile.saving import to_library
from results.record import options, record, summary
from results.writing import MODELS

CONTEXT, WIDTH, HEADS, BLOCKS, BATCH = 64, 64, 4, 4, 32
TABLE_RATE = 0.03  # of chapter 0's table, which 1e-3 leaves half trained
BPE_VOCABULARY = 512
PROMPT = "ROMEO:\n"

RUNGS = [  # name, label, chapter
    ("bigram", "bigram", 0),
    ("embedding", "+ embedding", 2),
    ("positions", "+ positions", 3),
    ("attention", "+ attention, one head", 4),
    ("heads", "+ four heads", 6),
    ("norm", "+ norm", 7),
    ("feedforward", "+ feed-forward", 8),
    ("depth", "+ depth: four blocks", 9),
]
# Single changes of one rung, as edits of its file: name, chapter, edits.
Edits = list[tuple[str, str]]
ADD_POSITIONS = "        x = x + self.positions(torch.arange(ids.size(1)))\n"
LOOK = "self.value = nn.Linear(d_model, d_model, bias=False)\n"
MIXED = LOOK + (
    "        self.output = nn.Linear(d_model, d_model, bias=False)\n"
)
ATTEND = "attention(self.query(x), self.key(x), self.value(x), mask)"
CONTROLS: list[tuple[str, int, Edits]] = [
    ("attention without positions", 4, [(ADD_POSITIONS, "")]),
    (
        "attention replaces x",
        4,
        [("x = x + self.attend(x, mask)", "x = self.attend(x, mask)")],
    ),
    (
        "one head with an output matrix",
        4,
        [(LOOK, MIXED), (ATTEND, f"self.output({ATTEND})")],
    ),
]


class Corpus:
    """Shakespeare in the ids of a tokenizer; the last tenth is held out."""

    def __init__(self, tokenizer: Any, text: str) -> None:
        self.tokenizer = tokenizer
        ids = torch.tensor(tokenizer.encode(text))
        cut = len(ids) * 9 // 10
        self.learned, self.held_out = ids[:cut], ids[cut:]
        held_out = tokenizer.decode(self.held_out.tolist())
        self.tokens_per_character = len(self.held_out) / len(held_out)


def build(file: ModuleType, vocab_size: int, chapter: int) -> torch.nn.Module:
    """The model of a chapter's file, with the ladder's sizes."""
    model: torch.nn.Module
    if chapter < 2:
        model = file.Model(vocab_size, CONTEXT)
    elif chapter < 9:
        model = file.Model(vocab_size, CONTEXT, WIDTH)
    else:
        model = file.GPT(vocab_size, CONTEXT, WIDTH, HEADS, BLOCKS)
    return model


def climb(
    chapter: int,
    corpus: Corpus,
    seed: int,
    steps: int,
    edits: Sequence[tuple[str, str]] = (),
    rate: float | None = None,
) -> tuple[ModuleType, torch.nn.Module, float]:
    """Train one rung with one seed; its file, its model and its loss.

    Below chapter 11, training is PyTorch's AdamW with a constant learning
    rate, 1e-3 unless another is given, and nothing else; from there on the
    file has a schedule of its own, and no rate is given.
    """
    file = lesson.load(chapter, edits)
    torch.manual_seed(seed)
    model = build(file, len(corpus.tokenizer.vocabulary), chapter)
    rates = [rate or (TABLE_RATE if chapter < 2 else 1e-3)]
    given = rates if chapter < 11 else []
    file.train(model, corpus.learned, steps, *given, BATCH)
    loss = file.evaluate(model, corpus.held_out)
    return file, model, loss * corpus.tokens_per_character


def sample(file: ModuleType, model: torch.nn.Module, tokenizer: Any) -> str:
    """About 200 characters that a model generates: same prompt and seed."""
    torch.manual_seed(0)
    prompt = torch.tensor([tokenizer.encode(PROMPT)])
    ids = file.generate(model, prompt, 200)[0].tolist()
    return str(tokenizer.decode(ids))[: len(PROMPT) + 200]


def measure(
    chapter: int,
    corpus: Corpus,
    seeds: Sequence[int],
    steps: int,
    edits: Sequence[tuple[str, str]] = (),
    rate: float | None = None,
    keep: Path | None = None,
) -> dict[str, Any]:
    """Loss over seeds, parameters, and the first seed's sample.

    With ``keep``, a folder, the first seed's model is written to it.
    """
    losses: list[float] = []
    found: dict[str, Any] = {}
    for seed in seeds:
        file, model, loss = climb(chapter, corpus, seed, steps, edits, rate)
        losses.append(round(loss, 4))
        if seed == seeds[0]:
            found["sample"] = sample(file, model, corpus.tokenizer)
            n = sum(p.numel() for p in model.parameters())
            found["parameters"] = n
            if keep:
                tokens = CharTokenizer(corpus.tokenizer.vocabulary)
                save_model(keep, to_library(model), tokens, int8=True)
    return {"chapter": chapter, "loss": summary(losses), **found}


def without_training(corpus: Corpus) -> dict[str, Any]:
    """Two models that look at no character: all alike, and by frequency."""
    n = len(corpus.tokenizer.vocabulary)
    counts = torch.bincount(corpus.learned, minlength=n).double() + 1
    found = {}
    for name, p in {
        "uniform": torch.full((n,), 1 / n, dtype=torch.float64),
        "frequencies": counts / counts.sum(),
    }.items():
        torch.manual_seed(0)
        drawn = torch.multinomial(p, 200, replacement=True).tolist()
        loss = -p[corpus.held_out].log().mean().item()
        found[name] = {
            "loss": summary([round(loss, 4)]),
            "sample": PROMPT + corpus.tokenizer.decode(drawn),
        }
    return found


def characters() -> Corpus:
    """The ladder's text, a token per character."""
    text = load_text("shakespeare")
    return Corpus(lesson.load(0).CharTokenizer(text), text)


def tokens() -> Corpus:
    """The same text in tokens of byte-pair encoding."""
    text = load_text("shakespeare")
    tokenizer = lesson.load(1).BPETokenizer(text, BPE_VOCABULARY)
    return Corpus(tokenizer, text)


parser = options(__doc__, seeds=[0, 1, 2], steps=2000)


def main() -> None:
    """Climb every rung with every seed."""
    args = parser.parse_args()
    torch.set_num_threads(1)
    text = characters()
    with record("ladder", args.seeds) as metrics:
        metrics["unit"] = "nats per character, whole held-out tenth"
        metrics["prompt"] = PROMPT
        metrics["baselines"] = without_training(text)
        metrics["rungs"] = []
        for name, label, chapter in RUNGS:
            keep = MODELS / "ladder" if chapter == RUNGS[-1][2] else None
            rung = measure(chapter, text, args.seeds, args.steps, keep=keep)
            metrics["rungs"].append({"name": name, "label": label, **rung})
            print(f"{name:12} {rung['loss']['values']}", flush=True)
        metrics["controls"] = {}
        for name, chapter, edits in CONTROLS:
            rung = measure(chapter, text, args.seeds, args.steps, edits)
            metrics["controls"][name] = rung
            print(f"{name:31} {rung['loss']['values']}", flush=True)
        pairs = measure(1, tokens(), args.seeds, args.steps)
        metrics["tokens"] = {"vocabulary": BPE_VOCABULARY, **pairs}
        print(f"bigram on tokens {pairs['loss']['values']}", flush=True)


if __name__ == "__main__":
    main()
