"""Contracts of several heads, whatever their matrices are called."""

from collections.abc import Callable, Iterator
from itertools import permutations, product

import torch
from torch import Tensor

from coursekit_classroom.yourfile.contracts.base import (
    B,
    ContractError,
    File,
    T,
    check_tensor,
)
from coursekit_classroom.yourfile.contracts.layers import attended, random_mask


def matrices(
    weights: list[Tensor], d: int, n_heads: int
) -> Iterator[list[Tensor]]:
    """Four matrices (D, D) among weights, in each order that they may have.

    One may hold several, or one head's part, or be meant for x W instead of
    x Wᵀ.  Biases are left out.
    """
    whole: list[Tensor] = []
    slabs: list[Tensor] = []
    for weight in weights:
        if weight.dim() == 1:
            continue
        if weight.size(-1) == d and weight.size(0) % d == 0:
            whole += weight.split(d)
        elif weight.size(0) == d and weight.size(-1) % d == 0:
            whole += weight.T.split(d)
        elif weight.size(-1) == d:
            slabs.append(weight)
        else:
            slabs.append(weight.T)
    grouped = [whole]
    if len(slabs) == 3 * n_heads:  # by head, or by role
        by_head = [torch.cat(slabs[i::3]) for i in range(3)]
        starts = range(0, 3 * n_heads, n_heads)
        by_role = [torch.cat(slabs[i : i + n_heads]) for i in starts]
        grouped = [by_head + whole, by_role + whole]
    for four in grouped:
        if len(four) != 4 or any(w.shape != (d, d) for w in four):
            shapes = [tuple(w.shape) for w in weights]
            raise ContractError(
                "its weights are four matrices D × D, for queries, keys, "
                f"values and output, here with D = {d}: got the shapes "
                f"{shapes}. Leave other weights out."
            )
        for order in permutations(four):
            for turned in product((False, True), repeat=4):
                pairs = zip(order, turned, strict=True)
                yield [weight.T if turn else weight for weight, turn in pairs]


def many_heads(
    x: Tensor,
    memory: Tensor,
    mask: Tensor,
    weights: list[Tensor],
    heads: list[Tensor],
    *wrong: str,
) -> Tensor:
    """Each head on its features, one after the other, then the output."""
    w_q, w_k, w_v, w_out = (weight.double() for weight in weights)
    q, k, v = x @ w_q.T, memory @ w_k.T, memory @ w_v.T
    actual = torch.zeros_like(q)
    for i in heads:
        actual[..., i] = attended(
            q[..., i], k[..., i], v[..., i], mask, *wrong
        )
    return actual if "no output matrix" in wrong else actual @ w_out.T


def check_alone(
    look: Callable[..., Tensor], x: Tensor, memory: Tensor, mask: Tensor
) -> Tensor:
    """The whole result, if sequences and queries do not touch each other."""
    actual = look(x, memory, mask)
    pairs = zip(x.split(1), memory.split(1), strict=True)
    alone = [look(*pair, mask) for pair in pairs]
    queries = [look(x[:, i : i + 1], memory, mask[[i]]) for i in range(T)]
    apart = {"sequence": torch.cat(alone), "query": torch.cat(queries, 1)}
    for name, wanted in apart.items():
        if (error := (actual - wanted).abs().max().item()) > 1e-4:
            raise ContractError(
                f"each {name} gets by itself what it gets among others: got "
                f"a maximum difference of {error:.3f}. Split the last axis, "
                "D, into heads, and exchange the axes of heads and tokens, "
                "before attention and back after it."
            )
    return actual


def heads(file: File) -> None:
    """Heads: each attends with its part of D, a matrix combines them."""
    d, h = 12, 3
    layer = file.rough(file["heads"](d, h), "multi-head attention")
    weights = file.observe.weights(layer)
    biases = {name: 0 * w for name, w in weights.items() if w.dim() == 1}
    file.observe.load(layer, biases)
    orders = list(matrices(list(weights.values()), d, h))
    x, memory = torch.randn(2, T, d), torch.randn(2, B, d)
    mask = random_mask()

    def look(x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        past: list[dict[object, object]] = [{}] * (file.chapter >= 12)
        rule = "heads give each query a vector, in all"
        with torch.no_grad():
            actual = layer(x.clone(), memory.clone(), mask.clone(), *past)
        return check_tensor(actual, (*x.shape[:2], d), rule).double()

    actual = check_alone(look, x, memory, mask)

    def agrees(heads: Tensor, *wrong: str) -> bool:
        inputs = x.double(), memory.double(), mask
        each = (many_heads(*inputs, w, list(heads), *wrong) for w in orders)
        return any(torch.allclose(actual, y, atol=1e-4) for y in each)

    parts = torch.arange(d).view(h, -1)  # or every h-th number
    if agrees(parts) or agrees(torch.arange(d).view(-1, h).T):
        return
    hint = "Compare the shapes of q, k and v with (B, H, T, D / H)."
    if agrees(parts.view(1, -1)):
        hint = "It is exactly: one head of all D numbers."
    for wrong in ("no output matrix", "mask not used", "mask inverted"):
        if agrees(parts, wrong):
            hint = f"It is exactly: {wrong}."
    raise ContractError(
        f"with H = {h}, each head attends with D / H of the {d} numbers, "
        "their results stand side by side, and the output matrix combines "
        f"them: got something else, however its matrices are named. {hint}"
    )
