"""Exercises of chapter 4: attention."""

import torch
from torch import Tensor

from coursekit.exercises.core import Case, Exercise, generator

Gradients = tuple[Tensor, Tensor, Tensor, Tensor]


def draw(g: torch.Generator, *shapes: tuple[int, ...]) -> tuple[Tensor, ...]:
    """One random tensor a shape, in double precision."""
    return tuple(
        torch.randn(shape, generator=g, dtype=torch.float64)
        for shape in shapes
    )


# -- implement: attention ----------------------------------------------------
def attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None
) -> Tensor:
    """Each query's average of the values, weighted by how its keys fit."""
    scores = q @ k.mT / q.size(-1) ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(dim=-1) @ v


def _attend_cases(seed: int) -> list[Case]:
    g = generator(seed)
    batch = draw(g, (2, 3, 5, 11), (2, 3, 7, 11), (2, 3, 7, 13))
    one = draw(g, (5, 11), (7, 11), (7, 13))
    mask = torch.rand(2, 1, 5, 7, generator=g) > 0.5
    visible = torch.randint(7, (2, 1, 5, 1), generator=g)
    mask.scatter_(-1, visible, True)  # nobody is left with nothing
    mask.scatter_(-1, (visible + 1) % 7, False)  # everybody misses a key
    return [
        Case(one, name="one sentence, five queries and seven keys"),
        Case(batch, name="two sentences, three heads"),
        Case((*batch, mask), name="with a mask"),
        Case(tuple(50 * x for x in one), name="50 times as large"),
    ]


# -- debug: the test passed --------------------------------------------------
def mended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention with a softmax of its own, for any sizes."""
    scores = q @ k.mT / q.size(-1) ** 0.5
    scores = scores - scores.amax(dim=-1, keepdim=True)
    weights = scores.exp() / scores.exp().sum(dim=-1, keepdim=True)
    return weights @ v


def _mended_cases(seed: int) -> list[Case]:
    g = generator(seed)
    one = draw(g, (5, 11), (7, 11), (7, 13))
    two = draw(g, (2, 5, 11), (2, 7, 11), (2, 7, 13))
    return [
        Case(one, name="sizes that are all different"),
        Case(two, name="two sentences"),
        Case(tuple(50 * x for x in one), name="50 times as large"),
    ]


# -- implement: a learned temperature ----------------------------------------
def temperature_backward(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, tau: Tensor
) -> Gradients:
    """Gradients of ``softmax(tau q kᵀ) v`` by q, k, v and tau."""
    fit = q @ k.mT
    a = (tau * fit).softmax(dim=-1)
    da = dy @ v.mT
    dz = a * (da - (a * da).sum(dim=-1, keepdim=True))
    return tau * dz @ k, tau * dz.mT @ q, a.mT @ dy, (dz * fit).sum()


def _temperature_cases(seed: int) -> list[Case]:
    g = generator(seed)
    one = draw(g, (5, 13), (5, 11), (7, 11), (7, 13))
    two = draw(g, (2, 5, 13), (2, 5, 11), (2, 7, 11), (2, 7, 13))
    low, high = 0.2 + 0.3 * torch.rand(2, generator=g, dtype=torch.float64)
    return [
        Case((*one, low), name="one sentence"),
        Case((*two, high), name="two sentences at once"),
    ]


# -- measure: how many keys? -------------------------------------------------
def stuck_share(scores: Tensor) -> Tensor:
    """Share of the rows whose softmax has a derivative below 0.01."""
    p = scores.softmax(dim=-1)
    jacobian = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    size = jacobian.square().sum(dim=(1, 2)).sqrt()
    return (size < 0.01).double().mean()


def _stuck_cases(seed: int) -> list[Case]:
    g = generator(seed)
    (few,), (many,) = draw(g, (211, 5)), draw(g, (307, 23))
    return [
        Case((8 * few,), name="211 rows of 5 keys"),
        Case((8 * many,), name="307 rows of 23 keys"),
        Case((100 + 4 * few,), name="scores around 100"),
    ]


# -- implement: never store the weights --------------------------------------
def attend_in_blocks(
    q: Tensor, k: Tensor, v: Tensor, block: int = 4
) -> Tensor:
    """Attention that looks at ``block`` keys at a time."""
    top = q.new_full((*q.shape[:-1], 1), float("-inf"))
    total = torch.zeros_like(top)
    mixed = q.new_zeros(*q.shape[:-1], v.size(-1))
    for start in range(0, k.size(-2), block):
        part = slice(start, start + block)
        scores = q @ k[..., part, :].mT / q.size(-1) ** 0.5
        new = torch.maximum(top, scores.amax(dim=-1, keepdim=True))
        shrink, weights = (top - new).exp(), (scores - new).exp()
        total = total * shrink + weights.sum(dim=-1, keepdim=True)
        mixed = mixed * shrink + weights @ v[..., part, :]
        top = new
    return mixed / total


def _blocks_cases(seed: int) -> list[Case]:
    g = generator(seed)
    one = draw(g, (5, 11), (7, 11), (7, 13))
    two = draw(g, (2, 3, 11), (2, 7, 11), (2, 7, 13))
    q, k, v = one
    return [
        Case(one, name="seven keys: the last block is not full"),
        Case((*two, 1), name="two sentences, blocks of one key"),
        Case((50 * q, 50 * k, v, 3), name="large scores"),
        Case((-50 * q.abs(), 50 * k.abs(), v, 3), name="all scores negative"),
    ]


# -- open: a loud key that does nothing --------------------------------------
Loud = tuple[Tensor, Tensor, Tensor, int]


def loud_but_idle() -> Loud:
    """Queries, keys, values, and the key that gets much and does little."""
    q, k, v = torch.randn(1, 8), torch.randn(5, 8), torch.randn(5, 8)
    k[0] = 3 * q[0]
    v[0] = attend(q, k[1:], v[1:])[0]
    return q, k, v, 0


def _judge_loud(answer: Loud, case: Case) -> str | None:
    q, k, v, j = answer
    if not 0 <= j < len(k):
        return f"There are {len(k)} keys, numbered from 0: got key {j}."
    others = torch.arange(len(k)) != j
    weight = (q @ k.mT / q.size(-1) ** 0.5).softmax(dim=-1)[0, j].item()
    full, without = attend(q, k, v), attend(q, k[others], v[others])
    change = ((full - without).norm() / full.norm()).item()
    if not weight > 0.5:
        return f"The key has weight {weight:.2f}, not more than half."
    if not v[j].norm() >= 0.1:
        return "The value of the key is zero, or nearly."
    if not v[others].std(dim=0).max() >= 0.1:
        return "The other values are all alike."
    if not change < 0.01:
        return f"Hiding the key changes the output by {change:.0%}."
    return None


EXERCISES = {
    "attend": Exercise(attend, _attend_cases),
    "mended": Exercise(mended, _mended_cases),
    "temperature": Exercise(temperature_backward, _temperature_cases),
    "stuck_share": Exercise(stuck_share, _stuck_cases),
    "blocks": Exercise(attend_in_blocks, _blocks_cases),
    "loud": Exercise(loud_but_idle, lambda seed: [Case()], judge=_judge_loud),
}
