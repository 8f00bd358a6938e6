"""Dates: an encoder-decoder that learns to write every date one way.

The model that chapter 14 trains for a few seconds, here to the end, over
several seeds: how many dates of days that it has never seen come out right,
fed with the right answer and left alone; what happens after a first mistake;
what each head of the attention to the source looks at; and the same model
with its target not shifted.
"""

import re
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from coursekit.config import TrainConfig, TransformerConfig
from coursekit.data import Batch, Pairs, pad_pairs
from coursekit.generation import generate
from coursekit.interpret import watch
from coursekit.seq2seq import Transformer
from coursekit.steppers import Seq2SeqStepper
from coursekit.tokenizer import CharTokenizer
from coursekit.training import Progress, train
from coursekit.translate import SPECIALS, Translator, special_ids
from coursekit_classroom.dates import date_pairs
from results.record import options, record, summary

N_PAIRS, N_HELD_OUT, MAX_TOKENS = 20_000, 500, 800
LENGTH = 11  # target tokens of a date, the end included
SHOWN = "the 5th of March, 1987", "1987-03-05"
OTHER = "the 5th of April, 1987"  # as long, with one other digit
Ids = tuple[list[int], list[int]]


class Dates:
    """The task: pairs to learn, and days that no learned pair has."""

    def __init__(self) -> None:
        learned = date_pairs(N_PAIRS, seed=0)
        days = {day for _, day in learned}
        others = date_pairs(2 * N_HELD_OUT, seed=1)
        self.held_out = [p for p in others if p[1] not in days][:N_HELD_OUT]
        text = "".join(a + b for a, b in learned)
        self.tokenizer = CharTokenizer.train(text, SPECIALS)
        self.ids = special_ids(self.tokenizer)
        self.learned = [self.encode(p) for p in learned]
        self.asked = [self.encode(p) for p in self.held_out]
        self.questions = pad_pairs(self.asked, *self.ids)

    def encode(self, pair: tuple[str, str]) -> Ids:
        """Both sides as ids; the source gets its end."""
        human, iso = (self.tokenizer.encode(text) for text in pair)
        return [*human, self.ids[2]], iso

    def model(self, seed: int) -> Transformer:
        """A fresh model."""
        torch.manual_seed(seed)
        size = self.tokenizer.vocab_size
        return Transformer(
            TransformerConfig(
                vocab_size=size,
                pad_id=self.ids[0],
                d_model=64,
                n_heads=4,
                d_ff=128,
                max_len=40,
                norm_first=True,
                final_norm=True,
                dropout=0.0,
            )
        )

    def batches(self, seed: int) -> Callable[[int], list[Batch]]:
        """The batch of each step."""
        pairs = Pairs(self.learned, MAX_TOKENS, *self.ids, seed)
        return lambda step: [pairs.batch(step)]

    @torch.no_grad()
    def fed(self, model: nn.Module) -> Tensor:
        """Which target tokens are right, given the right ones before them."""
        model.eval()
        logits = model(**self.questions.inputs)
        return logits.argmax(-1) == self.questions.targets

    def free(self, model: Transformer) -> Tensor:
        """Which target tokens are right when the model reads its own."""
        _, bos, eos = self.ids
        sources = [source for source, _ in self.asked]
        stepper = Seq2SeqStepper(model, [bos])
        rows = generate(stepper, sources, LENGTH, stop_ids=[eos])
        written = torch.full((len(rows), LENGTH), -1)
        for row, ids in zip(written, rows, strict=True):
            ids = [*ids, eos][:LENGTH]
            row[: len(ids)] = torch.tensor(ids)
        return written == self.questions.targets


def budget(seed: int, steps: int) -> TrainConfig:
    """Settings of the training."""
    return TrainConfig(
        steps=steps,
        learning_rate=3e-3,
        warmup_steps=50,
        weight_decay=0.0,
        seed=seed,
    )


def share(right: Tensor) -> float:
    """Dates of which every token is right."""
    return round(right.all(dim=1).float().mean().item(), 4)


# -- what the heads look at --------------------------------------------------
def parts(human: str) -> dict[str, slice]:
    """Positions of year, month and day in a date."""
    (year,) = re.finditer(r"\d{4}", human)
    month = re.search(
        r"(?!(?:Mon|Sun)day)[A-Z][a-z]{2}(?![a-z]*day)\w*", human
    )
    numbers = [
        m for m in re.finditer(r"\d+", human) if m.start() != year.start()
    ]
    if month is None:  # 4.3.1987 or 3/4/1987
        day, month = numbers if "." in human else numbers[::-1]
    else:
        (day,) = numbers
    found = {"year": year, "month": month, "day": day}
    return {name: slice(*match.span()) for name, match in found.items()}


WRITES = {"year": slice(0, 4), "month": slice(5, 7), "day": slice(8, 10)}


def maps(model: Transformer, batch: Batch) -> Tensor:
    """The weights of each block's attention to the source, (L, B, H, T, S)."""
    return watch(model, **batch.inputs).cross_weights


def aligned(model: Transformer, dates: Dates) -> list[list[float]]:
    """Weight of each head on the part of the date being written."""
    found = []
    for weights in maps(model, dates.questions):
        total = torch.zeros(weights.size(1))
        for row, (human, _) in zip(weights, dates.held_out, strict=True):
            for name, place in parts(human).items():
                total += row[:, WRITES[name], place].sum(-1).mean(-1) / 3
        found.append([round(x, 3) for x in (total / len(weights)).tolist()])
    return found


def shown(model: Transformer, dates: Dates) -> list[list[float]]:
    """Cross-attention while one date is written, the mean of all heads."""
    batch = pad_pairs([dates.encode(SHOWN)], *dates.ids)
    mean = maps(model, batch).mean(dim=(0, 1, 2))
    return [[round(x, 3) for x in row] for row in mean.tolist()]


@torch.no_grad()
def swapped(model: Transformer, dates: Dates) -> dict[str, Any]:
    """Which vectors of the memory decide about the month?

    Some get the place of those of a date that differs in its month. What does
    the model then write for the month's second digit?
    """
    batch = pad_pairs([dates.encode(SHOWN)], *dates.ids)
    model.eval()
    read, other = (
        model.encode(torch.tensor([dates.encode((human, ""))[0]]))
        for human in (SHOWN[0], OTHER)
    )
    at = SHOWN[1].index("-") + 2

    def digit(places: Tensor) -> str:
        memory = torch.where(places[:, None], other, read)
        logits = model.decode(batch.inputs["tgt"], memory)[0, at]
        return dates.tokenizer.decode([int(logits.argmax())])

    each = torch.eye(read.size(1), dtype=torch.bool)
    word = each[parts(SHOWN[0])["month"]].any(dim=0)
    return {
        "each": "".join(digit(places) for places in each),
        "word": digit(word),
        "all_but_word": digit(~word),
    }


# -- the runs ----------------------------------------------------------------
def run(
    dates: Dates, seed: int, steps: int, page: int, copy_steps: int
) -> dict[str, Any]:
    """Train to the end, with looks on the way and one where the page ends."""
    model = dates.model(seed)
    found: dict[str, Any] = {"seed": seed, "untrained": aligned(model, dates)}
    looks: list[tuple[int, float]] = []
    losses: list[float] = []
    spent = 0.0

    def look(progress: Progress) -> None:
        nonlocal spent
        began = time.process_time()
        losses.append(progress.loss)
        if progress.step % 100 == 0 or progress.is_last:
            looks.append((progress.step, share(dates.free(model))))
            print(
                f"seed {seed}, step {progress.step}: {looks[-1]}", flush=True
            )
        if progress.step == page or progress.is_last:
            name = "end" if progress.is_last else str(progress.step)
            found[name] = places(dates, model)
        model.train()
        spent += time.process_time() - began

    began = time.process_time()
    train(
        model,
        dates.batches(seed),
        budget(seed, steps),
        callbacks=[look],
        progress=False,
    )
    seconds = time.process_time() - began - spent
    print(f"seed {seed}: {looks[-1]} in {seconds:.0f} s", flush=True)
    return found | {
        "training_cpu_seconds": round(seconds, 1),
        "looks": looks,
        "exact": looks[-1][1],
        "loss_early": round(losses[copy_steps - 1], 4),
        "aligned": aligned(model, dates),
        "shown": shown(model, dates),
        "swapped": swapped(model, dates),
        "wrong": wrong(model, dates),
    }


def places(dates: Dates, model: Transformer) -> dict[str, Any]:
    """Accuracy at each place, fed and free, and exact matches."""
    found: dict[str, Any] = {}
    for name, right in (
        ("fed", dates.fed(model)),
        ("free", dates.free(model)),
    ):
        each = right.float().mean(dim=0).tolist()
        found[name] = {
            "exact": share(right),
            "places": [round(x, 4) for x in each],
        }
    return found | {"after_a_mistake": after_a_mistake(dates, model)}


def after_a_mistake(dates: Dates, model: Transformer) -> dict[str, Any]:
    """How often is the character right that follows the first wrong one?

    Up to there fed and free are one run. What comes next reads the right
    character in one, and the wrong one in the other.
    """
    kinds = {"fed": dates.fed(model), "free": dates.free(model)}
    wrong = ~kinds["free"][:, :-1]
    rows = wrong.any(dim=1).nonzero()[:, 0]
    following = wrong[rows].int().argmax(dim=1) + 1
    found: dict[str, Any] = {"dates": len(rows)}
    if len(rows) > 0:
        for kind, right in kinds.items():
            hits = right[rows, following].float()
            found[kind] = round(hits.mean().item(), 4)
    return found


def wrong(model: Transformer, dates: Dates) -> list[tuple[str, str, str]]:
    """The unseen dates that it does not get right: asked, right, written."""
    texts = Translator(model, dates.tokenizer)(
        [human for human, _ in dates.held_out], n_beams=1
    )
    return [
        (human, day, text)
        for (human, day), text in zip(dates.held_out, texts, strict=True)
        if text != day
    ]


def unshifted(dates: Dates, seed: int, steps: int) -> dict[str, Any]:
    """The target fed as it is: the model has to answer what it reads."""
    _, bos, eos = dates.ids

    def spoil(batch: Batch) -> Batch:
        whole = torch.full((len(batch.targets), 1), bos)
        whole = torch.cat((whole, batch.targets), dim=1)
        return Batch(batch.inputs | {"tgt": whole}, whole)

    model, batches = dates.model(seed), dates.batches(seed)
    losses: list[float] = []
    train(
        model,
        lambda step: [spoil(batch) for batch in batches(step)],
        budget(seed, steps),
        callbacks=[lambda progress: losses.append(progress.loss)],
        progress=False,
    )
    fed = spoil(dates.questions)
    model.eval()
    with torch.no_grad():
        right = model(**fed.inputs).argmax(-1) == fed.targets
    sources = [source for source, _ in dates.asked]
    rows = generate(
        Seq2SeqStepper(model, [bos]), sources, LENGTH, stop_ids=[eos]
    )
    texts = [
        dates.tokenizer.decode([i for i in row if i not in dates.ids])
        for row in rows
    ]
    days = [day for _, day in dates.held_out]
    return {
        "seed": seed,
        "fed": share(right),
        "free": sum(map(str.__eq__, texts, days)) / len(days),
        "empty": sum(not text for text in texts) / len(texts),
        "begins_only": sum(set(row) == {bos} for row in rows) / len(rows),
        "loss": round(losses[-1], 4),
    }


parser = options(
    __doc__, seeds=[0, 1, 2], steps=2500, page=600, copy_steps=200
)


def main() -> None:
    """All of it."""
    args = parser.parse_args()
    torch.set_num_threads(1)
    with record("dates", args.seeds) as metrics:
        dates = Dates()
        metrics["model"] = dates.model(0).config.to_dict()
        metrics["training"] = budget(0, args.steps).to_dict()
        metrics["pairs"], metrics["max_tokens"] = N_PAIRS, MAX_TOKENS
        metrics["held_out"] = len(dates.held_out)
        metrics["page_steps"] = args.page
        metrics["copy_steps"] = args.copy_steps
        copies = [
            unshifted(dates, seed, args.copy_steps) for seed in args.seeds
        ]
        metrics["unshifted"] = copies
        print(copies, flush=True)
        budgets = args.steps, args.page, args.copy_steps
        runs = [run(dates, seed, *budgets) for seed in args.seeds]
        metrics["runs"] = runs
        metrics["exact"] = summary([found["exact"] for found in runs])


if __name__ == "__main__":
    main()
