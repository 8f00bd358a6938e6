"""Exercises of chapter 0: the first model."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from coursekit.exercises.core import Case, Exercise, generator
from coursekit.loss import cross_entropy


# -- implement: surprise by hand ---------------------------------------------
def surprise(logits: Tensor, target: int) -> Tensor:
    """Nats of surprise at the target."""
    z = logits - logits.max()
    return z.exp().sum().log() - z[target]


def _surprise_cases(seed: int) -> list[Case]:
    g = generator(seed)
    logits = torch.randn(7, generator=g, dtype=torch.float64)
    best, worst = int(logits.argmax()), int(logits.argmin())
    return [
        Case((logits, worst), name="seven logits, an unlikely target"),
        Case((logits + 10_000, best), name="logits near 10,000"),
        Case((logits - 10_000, best), name="logits near −10,000"),
        Case((10_000 * logits, worst), name="logits thousands apart"),
    ]


# -- implement: a detective for loaders --------------------------------------
def find_shift(inputs: Tensor, targets: Tensor) -> int | None:
    """The s in −3 … 3 with ``targets[b, t] == inputs[b, t + s]``."""
    length = inputs.size(1)
    for s in range(-3, 4):
        early, late = max(s, 0), max(-s, 0)
        seen = inputs[:, early : length - late]
        if torch.equal(seen, targets[:, late : length - early]):
            return s
    return None


def _shift_cases(seed: int) -> list[Case]:
    g = generator(seed)
    text = torch.randint(66, (5, 29), generator=g)
    inputs = text[:, 3:26]
    row = int(torch.randint(5, (), generator=g))
    place = int(torch.randint(19, (), generator=g))

    def shifted(s: int) -> Tensor:
        return text[:, 3 + s : 26 + s]

    off = shifted(1).clone()
    off[row, place] = (off[row, place] + 1) % 66
    return [
        *(
            Case((inputs, shifted(s)), name=f"targets shifted by {s}")
            for s in (1, 0, -1, 2, -2, 3, -3)
        ),
        Case((inputs, shifted(1).roll(1, 0)), name="targets of other rows"),
        Case((inputs, off), name="one target of 115 is off"),
    ]


# -- debug: split last -------------------------------------------------------
Starts = tuple[Tensor, Tensor]


def deal(n_text: int, length: int) -> Starts:
    """Starts of the training windows, and of the validation windows."""
    border = int(0.9 * n_text)
    learned = torch.randperm(border - length)
    return learned, border + torch.randperm(n_text - border - length)


def _judge_deal(starts: Starts, case: Case) -> str | None:
    n_text, length = case.args
    reach = torch.arange(length + 1)  # the inputs, and the last target
    covers = []
    for name, start in zip(("training", "validation"), starts, strict=True):
        places = start[:, None] + reach
        if places.min() < 0 or places.max() >= n_text:
            return f"A {name} window reaches beyond the text."
        if len(start.unique()) < len(start):
            return f"A {name} window is dealt twice."
        covered = torch.zeros(n_text, dtype=torch.bool)
        covered[places] = True
        covers.append(covered)
    learned, held_out = covers
    both = (learned & held_out).sum() / held_out.sum()
    if both > 0:
        return (
            f"{both.item():.0%} of the validation text lies in training "
            "windows too."
        )
    share = held_out.sum().item() / n_text
    if not 0.08 < share < 0.12:
        return f"Validation gets {share:.0%} of the text, not a tenth."
    if not learned.sum().item() / n_text > 0.88:
        return (
            f"Training gets {learned.sum().item() / n_text:.0%} of the text."
        )
    return None


def _deal_cases(seed: int) -> list[Case]:
    n = int(torch.randint(9_000, 11_000, (), generator=generator(seed)))
    return [
        Case((n, 61), name="windows of 61 characters"),
        Case((n // 2, 7), name="windows of 7 characters"),
    ]


# -- debug: the mean of means ------------------------------------------------
def evaluate(
    model: Callable[[Tensor], Tensor], ids: Tensor, batch: int
) -> float:
    """Mean loss over a text, whatever the batch."""
    total = 0.0
    for start in range(0, len(ids) - 1, batch):
        part = ids[start : start + batch + 1]
        with torch.no_grad():
            nats = cross_entropy(model(part[:-1]), part[1:], reduction="sum")
        total += nats.item()
    return total / (len(ids) - 1)


def _evaluate_cases(seed: int) -> list[Case]:
    g = generator(seed)
    table = nn.Embedding(17, 17, dtype=torch.float64)
    with torch.no_grad():
        table.weight.copy_(3 * torch.randn(17, 17, generator=g))
    ids = torch.randint(17, (102,), generator=g)
    return [
        Case((table, ids, 25), name="a last batch of one character"),
        Case((table, ids[:80], 23), name="a last batch of ten characters"),
        Case((table, ids[:53], 1000), name="a batch longer than the text"),
    ]


EXERCISES = {
    "surprise": Exercise(surprise, _surprise_cases),
    "shift": Exercise(find_shift, _shift_cases),
    "deal": Exercise(deal, _deal_cases, judge=_judge_deal),
    "evaluate": Exercise(evaluate, _evaluate_cases),
}
