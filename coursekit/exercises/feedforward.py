"""Exercises of chapter 8: feed-forward."""

from collections.abc import Callable

import torch
from torch import Tensor

from coursekit.exercises.core import Case, Exercise, generator

float64 = torch.float64


def draw_network(g: torch.Generator, d: int, d_ff: int) -> tuple[Tensor, ...]:
    """w_in, b_in, w_out, b_out: random, in double precision."""
    shapes: list[tuple[int, ...]] = [(d, d_ff), (d_ff,), (d_ff, d), (d,)]
    return tuple(torch.randn(s, generator=g, dtype=float64) for s in shapes)


# -- implement: widen, bend, narrow ------------------------------------------
def feed_forward(
    x: Tensor, w_in: Tensor, b_in: Tensor, w_out: Tensor, b_out: Tensor
) -> Tensor:
    """Two layers with a ReLU between them, for each vector by itself."""
    return (x @ w_in + b_in).relu() @ w_out + b_out


def _feed_forward_cases(seed: int) -> list[Case]:
    g = generator(seed)
    wide, narrow = draw_network(g, 5, 17), draw_network(g, 7, 3)
    one = torch.randn(5, generator=g, dtype=float64)
    many = torch.randn(2, 3, 7, generator=g, dtype=float64)
    return [
        Case((one, *wide), name="one vector"),
        Case((many, *narrow), name="a batch of two, narrower inside"),
    ]


# -- implement: count the weights --------------------------------------------
def count(d_model: int, d_ff: int) -> tuple[int, int]:
    """Weights in attention and in the network, biases included."""
    attention = 4 * (d_model * d_model + d_model)
    network = d_model * d_ff + d_ff + d_ff * d_model + d_model
    return attention, network


def _count_cases(seed: int) -> list[Case]:
    g = generator(seed)
    d = int(torch.randint(11, 97, (1,), generator=g))
    return [
        Case((64, 256), name="the running model"),
        Case((d, 3 * d + 1), name="odd sizes"),
    ]


# -- implement: does it bend? ------------------------------------------------
def is_affine(function: Callable[[Tensor], Tensor], size: int) -> bool:
    """Whether sums of inputs give sums of outputs, at every scale."""
    zero = torch.zeros(size, dtype=float64)
    for scale in (0.1, 1.0, 10.0, 100.0):
        a, b = scale * torch.randn(2, 200, size, dtype=float64)
        whole = function(a + b) + function(zero)
        parts = function(a) + function(b)
        if not torch.allclose(whole, parts, rtol=1e-9, atol=1e-9):
            return False
    return True


def _is_affine_cases(seed: int) -> list[Case]:
    g = generator(seed)
    w_in, b_in, w_out, b_out = draw_network(g, 5, 7)
    far = b_in + 60  # on for all but large inputs

    def layer(x: Tensor) -> Tensor:
        return x @ w_in + b_in

    def two_layers(x: Tensor) -> Tensor:
        return (x @ w_in + b_in) @ w_out + b_out

    def network(x: Tensor) -> Tensor:
        return feed_forward(x, w_in, b_in, w_out, b_out)

    def no_bias(x: Tensor) -> Tensor:
        return (x @ w_in).relu() @ w_out

    def bends_far_away(x: Tensor) -> Tensor:
        return feed_forward(x, w_in, far, w_out, b_out)

    return [
        Case((layer, 5), name="one layer with a bias"),
        Case((two_layers, 5), name="two layers, no bend"),
        Case((network, 5), name="a network with a bend"),
        Case((no_bias, 5), name="a network without biases"),
        Case((bends_far_away, 5), name="it bends far away from 0"),
    ]


# -- debug: it can only add --------------------------------------------------
def _mended_cases(seed: int) -> list[Case]:
    g = generator(seed)
    weights = draw_network(g, 5, 17)
    one = torch.randn(1, 5, generator=g, dtype=float64)
    many = torch.randn(2, 7, 5, generator=g, dtype=float64)
    return [
        Case((one, *weights), name="one token"),
        Case((many, *weights), name="two sentences of seven tokens"),
    ]


# -- implement: the backward pass --------------------------------------------
def backward(
    dy: Tensor,
    x: Tensor,
    w_in: Tensor,
    b_in: Tensor,
    w_out: Tensor,
    b_out: Tensor,
) -> tuple[Tensor, ...]:
    """Gradients by x, w_in, b_in, w_out, b_out, from that by the output."""
    z = x @ w_in + b_in
    dz = (dy @ w_out.T) * (z > 0)
    return dz @ w_in.T, x.T @ dz, dz.sum(0), z.relu().T @ dy, dy.sum(0)


def _backward_cases(seed: int) -> list[Case]:
    g = generator(seed)
    dy, x = torch.randn(2, 3, 5, generator=g, dtype=float64)
    one_dy, one_x = torch.randn(2, 1, 7, generator=g, dtype=float64)
    return [
        Case((dy, x, *draw_network(g, 5, 13)), name="three tokens"),
        Case((one_dy, one_x, *draw_network(g, 7, 2)), name="one token"),
    ]


# -- implement: edit a fact --------------------------------------------------
def edit(
    x: Tensor,
    right: Tensor,
    w_in: Tensor,
    b_in: Tensor,
    w_out: Tensor,
    b_out: Tensor,
) -> Tensor:
    """The nearest ``w_out`` that answers ``right`` to ``x``."""
    h = (x @ w_in + b_in).relu()
    wrong = h @ w_out + b_out
    return w_out + torch.outer(h, right - wrong) / (h @ h)


def _edit_cases(seed: int) -> list[Case]:
    g = generator(seed)
    x, right = torch.randn(2, 5, generator=g, dtype=float64)
    return [
        Case((x, right, *draw_network(g, 5, 23)), name="23 inner units"),
        Case((-x, right, *draw_network(g, 5, 11)), name="11 inner units"),
    ]


EXERCISES = {
    "feed_forward": Exercise(feed_forward, _feed_forward_cases),
    "count": Exercise(count, _count_cases),
    "is_affine": Exercise(is_affine, _is_affine_cases),
    "mended": Exercise(feed_forward, _mended_cases),
    "backward": Exercise(backward, _backward_cases),
    "edit": Exercise(edit, _edit_cases),
}
