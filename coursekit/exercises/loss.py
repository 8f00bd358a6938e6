"""Exercises of chapter 10: loss."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from coursekit.exercises.core import Case, Exercise, generator

float64 = torch.float64


def draw(g: torch.Generator, *shape: int) -> tuple[Tensor, Tensor]:
    """Logits of that shape, and a target for each row."""
    logits = 3 * torch.randn(*shape, generator=g, dtype=float64)
    return logits, torch.randint(shape[-1], shape[:-1], generator=g)


# -- implement: stable cross-entropy -----------------------------------------
def stable(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean surprise at the targets that count, in nats."""
    keep = targets != -100
    z, y = logits[keep], targets[keep]
    if len(y) == 0:
        return logits.sum() * 0
    z = z - z.amax(dim=-1, keepdim=True)
    right = z[torch.arange(len(y)), y]
    return (z.exp().sum(-1).log() - right).mean()


def _stable_cases(seed: int) -> list[Case]:
    g = generator(seed)
    logits, targets = draw(g, 7, 11)
    some = targets.clone()
    some[[1, 4, 5]] = -100
    large = 1e4 * logits.sign()
    return [
        Case((logits, targets), name="seven rows"),
        Case((logits, some), name="three targets that do not count"),
        Case((large, targets), name="logits of ±10,000"),
        Case((logits, torch.full((7,), -100)), name="nothing counts"),
    ]


# -- implement: the gradient -------------------------------------------------
def gradient(logits: Tensor, targets: Tensor) -> Tensor:
    """Probability minus target, over the number of targets that count."""
    keep = targets != -100
    slope = logits.softmax(-1)
    slope[torch.arange(len(targets)), targets.clamp(min=0)] -= 1
    slope[~keep] = 0
    return slope / keep.sum().clamp(min=1)


def _gradient_cases(seed: int) -> list[Case]:
    g = generator(seed)
    logits, targets = draw(g, 5, 13)
    wide, some = draw(g, 7, 103)  # -100 is an index here
    some[[0, 3]] = -100
    return [
        Case((logits, targets), name="five rows"),
        Case((wide, some), name="103 tokens, two targets do not count"),
    ]


# -- debug: it runs ----------------------------------------------------------
def mended(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean loss over a batch of sequences."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def _mended_cases(seed: int) -> list[Case]:
    g = generator(seed)
    return [
        Case(draw(g, 2, 5, 7), name="two sentences of five tokens"),
        Case(draw(g, 3, 1, 11), name="three sentences of one token"),
    ]


# -- implement: label smoothing ----------------------------------------------
def smooth(logits: Tensor, targets: Tensor, epsilon: float) -> Tensor:
    """The mean loss with a share of the target spread over all tokens."""
    log_p = logits.log_softmax(-1)
    right = log_p[torch.arange(len(targets)), targets]
    return -((1 - epsilon) * right + epsilon * log_p.mean(-1)).mean()


def _smooth_cases(seed: int) -> list[Case]:
    g = generator(seed)
    return [
        Case((*draw(g, 5, 7), 0.1), name="ε = 0.1"),
        Case((*draw(g, 3, 5), 0.3), name="ε = 0.3, five tokens"),
        Case((*draw(g, 3, 5), 0.0), name="no smoothing"),
    ]


# -- implement: one perplexity from many batches -----------------------------
def whole_perplexity(parts: Sequence[tuple[float, int]]) -> float:
    """e to the mean surprise over all targets together."""
    total = sum(nats * count for nats, count in parts)
    return math.exp(total / sum(count for _, count in parts))


def _perplexity_cases(seed: int) -> list[Case]:
    g = generator(seed)
    nats = (1 + torch.rand(3, generator=g)).tolist()
    return [
        Case(([(2.0, 5)],), name="one batch"),
        Case(
            (list(zip(nats, (64, 64, 7), strict=True)),),
            name="a short last batch",
        ),
        Case(([(1.5, 10), (0.0, 0)],), name="a batch without targets"),
    ]


# -- implement: who reads better? --------------------------------------------
def per_byte(models: Sequence[tuple[float, int]], text: str) -> list[float]:
    """Nats per byte of UTF-8, from bits a token and the number of tokens."""
    size = len(text.encode("utf-8"))
    return [bits * math.log(2) * tokens / size for bits, tokens in models]


def _per_byte_cases(seed: int) -> list[Case]:
    g = generator(seed)
    a, b = (1 + 4 * torch.rand(2, generator=g)).tolist()
    plain = "She sells sea shells."
    return [
        Case(([(a, 21), (b, 6)], plain), name="one byte a character"),
        Case(([(a, 9), (b, 5)], "naïve 🙂"), name="characters of many bytes"),
    ]


EXERCISES = {
    "stable": Exercise(stable, _stable_cases),
    "gradient": Exercise(gradient, _gradient_cases),
    "mended": Exercise(mended, _mended_cases),
    "smooth": Exercise(smooth, _smooth_cases),
    "whole_perplexity": Exercise(whole_perplexity, _perplexity_cases),
    "per_byte": Exercise(per_byte, _per_byte_cases),
}
