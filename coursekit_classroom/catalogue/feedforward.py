"""Exercises of chapter 8: feed-forward."""

from collections.abc import Callable

import torch
from torch import Tensor

from coursekit_classroom.check.core import (
    Bug,
    Case,
    Exercise,
    Variant,
    generator,
    randn,
)
from coursekit_classroom.check.families import EXACT
from coursekit_classroom.check.forbid import AUTOGRAD

float64 = torch.float64
LEAKY = Variant(
    "torch.relu",
    "lambda z: torch.maximum(z, z / 10)",
    asks="Here the nonlinearity lets a tenth of what is negative "
    "through: f(z) is z where z is positive, and z / 10 elsewhere.",
)


def draw_network(g: torch.Generator, d: int, d_ff: int) -> tuple[Tensor, ...]:
    """w_in, b_in, w_out, b_out: random, in double precision."""
    shapes: list[tuple[int, ...]] = [(d, d_ff), (d_ff,), (d_ff, d), (d,)]
    return tuple(randn(g, *s) for s in shapes)


# -- implement: widen, bend, narrow ------------------------------------------
def feed_forward(
    x: Tensor, w_in: Tensor, b_in: Tensor, w_out: Tensor, b_out: Tensor
) -> Tensor:
    """Two layers with a bend between them, for each vector by itself.

    `f(x w_in + b_in) w_out + b_out`, and nothing else: no residual, no norm.
    The bend `f` is ReLU, for each number by itself: `f(z)` is z where z is
    positive, and 0 elsewhere.
    `x` is `(..., D)` with any number of axes in front, or none; `w_in` is
    `(D, Dff)`, `b_in` `(Dff,)`, `w_out` `(Dff, D)`, `b_out` `(D,)`. `Dff` may
    be above or below `D`. The result has the shape of `x`, and may be
    negative.
    """
    f = torch.relu
    h = f(x @ w_in + b_in)
    y = h @ w_out + b_out
    return y


_NO_BEND = Bug(
    says="two layers with no nonlinearity between them",
    why="Two matrices in a row are one matrix: without a nonlinearity "
    "the width buys nothing. Apply it after the first layer.",
    read="further/08_feedforward#ff-predict-xor",
    at="bend",
)
_FEED_FORWARD_BUGS = {
    "no_bend": _NO_BEND.by("f(x @ w_in + b_in)", "x @ w_in + b_in"),
    "late_bend": Bug(
        "f(x @ w_in + b_in)",
        "x @ w_in + b_in",
        "y = h @ w_out + b_out",
        "y = f(h @ w_out + b_out)",
        says="the nonlinearity after the second layer, not between the two",
        why="Two linear layers in a row are one. The nonlinearity sits in the "
        "middle.",
        read="further/08_feedforward#ff-wrong",
        at="bend",
    ),
    "early_bend": Bug(
        "f(x @ w_in + b_in)",
        "f(x @ w_in) + b_in",
        says="a nonlinearity before the bias is added: f(x W_in) + b_in",
        why="The bias says from where on a unit fires, so it belongs "
        "inside: f(x W_in + b_in).",
        read="08_feedforward#ff-formula",
    ),
    "gelu": Bug(
        "f(x @ w_in + b_in)",
        "torch.nn.functional.gelu(x @ w_in + b_in)",
        says="GELU as the nonlinearity",
        why="GELU is a smooth relative that most models since use. What is "
        "asked for has a corner at 0.",
        read="08_feedforward#ff-formula",
    ),
    "end_bend": Bug(
        "y = h @ w_out + b_out",
        "y = f(h @ w_out + b_out)",
        says="a nonlinearity after the second layer as well",
        why="The output is added to the stream and must be as free to lower "
        "a number as to raise it. One nonlinearity, in the middle.",
        read="further/08_feedforward#ff-wrong",
        at="bend",
    ),
}


def _feed_forward_cases(seed: int) -> list[Case]:
    g = generator(seed)
    wide, narrow = draw_network(g, 5, 17), draw_network(g, 7, 3)
    one = randn(g, 5)
    many = randn(g, 2, 3, 7)
    return [
        Case((one, *wide), name="one vector"),
        Case((many, *narrow), name="a batch of two, narrower inside"),
    ]


# -- implement: count the weights --------------------------------------------
def count(d_model: int, d_ff: int) -> tuple[int, int]:
    """Weights of one block's attention and of its network, biases included.

    Returned are two whole numbers, `(attention, network)`. Attention has four
    layers from `d_model` to `d_model` numbers: queries, keys, values, output.
    The network has two layers, from `d_model` to `d_ff` and back to `d_model`;
    `d_ff` is any number.
    A layer from a to b numbers has a matrix of `a · b` and a bias of `b`.
    Norms are not counted.
    """
    attention = 4 * (d_model * d_model + d_model)
    into = d_model * d_ff + d_ff
    back = d_ff * d_model + d_model
    network = into + back
    return attention, network


_COUNT_BUGS = {
    "no_biases": Bug(
        "(d_model * d_model + d_model)",
        "d_model * d_model",
        "d_ff + d_ff",
        "d_ff",
        "d_ff * d_model + d_model",
        "d_ff * d_model",
        says="the matrices alone, without biases",
        why="They are asked for here: a layer from a to b numbers has b of "
        "them.",
        read="08_feedforward#ff-formula",
    ),
    "four_d": Bug(
        "into = ",
        "d_ff = 4 * d_model\n    into = ",
        says="4 · d_model inner units, whatever d_ff is",
        why="Four times as wide is a habit. The width is an argument here.",
        read="08_feedforward#ff-formula",
    ),
    "wide_biases": Bug(
        "d_ff * d_model + d_model",
        "d_ff * d_model + d_ff",
        says="d_ff biases in the second layer, where there are d_model",
        why="A bias for each number that comes out: the second layer has "
        "d_model of them.",
        read="08_feedforward#ff-formula",
        alone=True,
    ),
}


def _count_cases(seed: int) -> list[Case]:
    g = generator(seed)
    d = int(torch.randint(11, 97, (1,), generator=g))
    return [
        Case((64, 256), name="the running model"),
        Case((d, 3 * d + 1), name="odd sizes"),
    ]


# -- implement: does it bend? ------------------------------------------------
def is_affine(function: Callable[[Tensor], Tensor], size: int) -> bool:
    """Whether a function is affine, a matrix and a bias, up to rounding.

    `function` maps float64 tensors, `(..., size)` with any axes in front, to
    tensors of vectors, each vector by itself. It is a black box. The answer is
    True if it is `x A + b` for some matrix `A` and bias `b`; either may be 0,
    and numbers of 10⁸ or more may come out. Differences by rounding, a tiny
    share of the numbers, are no bend.
    The answer is False if it bends anywhere: also if it does so between rays
    on which it is straight, such as a ReLU network without biases, and if only
    vectors with entries as large as 100 reach its bend.
    """
    at_zero = function(torch.zeros(size, dtype=torch.float64))
    for scale in (0.1, 1.0, 10.0, 100.0):
        a, b = scale * torch.randn(2, 200, size, dtype=torch.float64)
        whole, parts = function(a + b) + at_zero, function(a) + function(b)
        gap = (whole - parts).abs().max()
        if gap > 1e-9 * (1 + whole.abs().max()):
            return False
    return True


_IS_AFFINE_BUGS = {
    "no_offset": Bug(
        " + at_zero",
        "",
        says="a test of g(a + b) = g(a) + g(b), without g(0)",
        why="A bias stands once on the left and twice on the right. Add "
        "g(0) on the left, and an affine map passes.",
        read="further/08_feedforward#ff-wrong",
        at="identity",
    ),
    "exact": EXACT.by(
        "1e-9 * (1 + whole.abs().max())",
        "0",
        says="a test for exact equality",
        read="08_feedforward#ff-is-affine",
        at="identity",
    ),
}


def _is_affine_cases(seed: int) -> list[Case]:
    g = generator(seed)
    w_in, b_in, w_out, _ = draw_network(g, 5, 7)
    far = b_in + 60  # on for all but large inputs

    def layer(x: Tensor) -> Tensor:
        return x @ w_in + b_in

    def matrix(x: Tensor) -> Tensor:
        return x @ w_in

    # Nothing comes out of the networks at 0, as if they had no biases.
    def network(x: Tensor) -> Tensor:
        return feed_forward(x, w_in, b_in, w_out, -b_in.relu() @ w_out)

    def large(x: Tensor) -> Tensor:
        return 1e8 * x @ w_in

    def no_bias(x: Tensor) -> Tensor:
        return (x @ w_in).relu() @ w_out

    def bends_far_away(x: Tensor) -> Tensor:
        return feed_forward(x, w_in, far, w_out, -far @ w_out)

    return [
        Case((layer, 5), name="one layer with a bias"),
        Case((matrix, 5), name="a matrix without a bias"),
        Case((network, 5), name="a network with a nonlinearity"),
        Case((large, 5), name="a matrix of large numbers"),
        Case((no_bias, 5), name="a network without biases"),
        Case((bends_far_away, 5), name="its corner is far away from 0"),
    ]


# -- debug: it can only add --------------------------------------------------
def mended(
    x: Tensor, w_in: Tensor, b_in: Tensor, w_out: Tensor, b_out: Tensor
) -> Tensor:
    """A feed-forward network: two layers with one bend between them.

    `f(x w_in + b_in) w_out + b_out`, and nothing else. The bend `f` is ReLU,
    for each number by itself: `f(z)` is z where z is positive, and 0
    elsewhere.
    `x` is `(..., T, D)`, `w_in` `(D, Dff)`, `b_in` `(Dff,)`, `w_out`
    `(Dff, D)`, `b_out` `(D,)`. The result has the shape of `x`. Each token's
    result is the same alone as among others.
    """
    f = torch.relu
    z = x @ w_in + b_in
    h = f(z)
    y = h @ w_out + b_out
    return y


_MENDED_BUGS = {
    "over_positions": Bug(
        "h = f(z)",
        "z = z / z.abs().amax(dim=-2, keepdim=True)\n    h = f(z)",
        says="inner units divided by the largest of all positions (dim=-2)",
        why="Each token then depends on every other, later ones included. "
        "The network works on one token at a time.",
        read="further/08_feedforward#ff-predict-alone",
        at="scaling",
    ),
    "over_units": Bug(
        "h = f(z)",
        "z = z / z.abs().amax(dim=-1, keepdim=True)\n    h = f(z)",
        says="inner units divided by the largest of each token (dim=-1)",
        why="The tokens are apart again, but sizes are what norms are for, "
        "and the network is no norm.",
        read="08_feedforward#ff-formula",
        at="scaling",
    ),
    "late_bend": Bug(
        "f(z)",
        "z",
        "y = h @ w_out + b_out",
        "y = f(h @ w_out + b_out)",
        says="a nonlinearity at the end, and none in the middle",
        why="At the end it keeps the network from lowering numbers; and "
        "without one in the middle the two matrices are one.",
        read="further/08_feedforward#ff-wrong",
    ),
    "no_bend": _NO_BEND.by("f(z)", "z", at="bend"),
    "after_bend": Bug(
        "y = h",
        "h = h / h.abs().amax(dim=-2, keepdim=True).clamp(min=1e-9)\n"
        "    y = h",
        says="hidden numbers divided by the largest among the tokens, after "
        "the nonlinearity",
        why="Then each token's result depends on the others. Nothing stands "
        "between the nonlinearity and the second layer.",
        read="further/08_feedforward#ff-predict-alone",
        alone=True,
    ),
}


def _mended_cases(seed: int) -> list[Case]:
    g = generator(seed)
    w_in, b_in, w_out, b_out = draw_network(g, 5, 17)
    one = torch.rand(1, 5, generator=g, dtype=float64)
    many = randn(g, 2, 7, 5)
    positive = (w_in.abs(), b_in.abs(), w_out.abs(), b_out.abs())
    return [
        Case((one, *positive), name="one token, nothing below 0"),
        Case(
            (many, w_in, b_in, w_out, b_out),
            name="two sentences of seven tokens",
        ),
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
    """Gradients by `x`, `w_in`, `b_in`, `w_out` and `b_out`, as five tensors.

    The forward pass is `y = f(x w_in + b_in) w_out + b_out`, with the bend
    `f`: ReLU, z where z is positive, and 0 elsewhere; so its slope is 1 where
    z is positive, and 0 elsewhere. `x` and `y` are `(T, D)`, `w_in`
    `(D, Dff)`, `b_in` `(Dff,)`, `w_out` `(Dff, D)`, `b_out` `(D,)`.
    `dy`, `(T, D)`, is the gradient of the loss by `y`. Returned are five
    gradients of that loss, in the order above, each of the shape of what it
    belongs to. The rows share the weights and biases, and their pulls on these
    add up. T may be 1.
    """
    f = torch.relu
    z = x @ w_in + b_in
    h, dh = f(z), dy @ w_out.T
    dz = dh * (z > 0)
    return dz @ w_in.T, x.T @ dz, dz.sum(0), h.T @ dy, dy.sum(0)


_BACKWARD_BUGS = {
    "slope_forgotten": Bug(
        "dh * (z > 0)",
        "dh",
        says="a backward pass without the slope of the nonlinearity",
        why="What comes back through a unit is multiplied by f′(z). ReLU's "
        "slope is 1 where z > 0 and 0 elsewhere.",
        read="further/08_feedforward#ff-backward-pass",
        at="slope",
        otherwise=[("torch.where(z > 0, dh, dh / 10)", "dh")],
    ),
    "dw_out_from_z": Bug(
        "h.T @ dy",
        "z.T @ dy",
        says="dW_out made from z, before the nonlinearity",
        why="W_out is multiplied by h = f(z), so its gradient is hᵀ dy.",
        read="further/08_feedforward#ff-backward-pass",
    ),
    "averaged": Bug(
        "dz.sum(0)",
        "dz.mean(0)",
        "dy.sum(0)",
        "dy.mean(0)",
        says="the biases' gradients averaged over the rows",
        why="One bias serves all rows, and their pulls add up: sum.",
        read="further/08_feedforward#ff-backward-pass",
    ),
    "not_summed": Bug(
        "dz.sum(0)",
        "dz",
        "dy.sum(0)",
        "dy",
        says="the biases' gradients with a row for each token",
        why="A bias is added to every row, so its gradient is the sum over "
        "the rows, and has the shape of the bias.",
        read="further/08_feedforward#ff-backward-pass",
    ),
    "times_h": Bug(
        "dh * (z > 0)",
        "dh * h",
        says="the gradient multiplied by the inner units, not by the slope",
        why="The slope of ReLU is 1 where a unit is on and 0 where it is "
        "off, whatever the unit holds.",
        read="further/08_feedforward#ff-backward-pass",
        otherwise=[("torch.where(z > 0, dh, dh / 10)", "dh * h")],
        alone=True,
    ),
}


def _backward_cases(seed: int) -> list[Case]:
    g = generator(seed)
    dy, x = randn(g, 2, 3, 5)
    one_dy, one_x = randn(g, 2, 1, 7)
    return [
        Case((one_dy, one_x, *draw_network(g, 7, 11)), name="one token"),
        Case((dy, x, *draw_network(g, 5, 13)), name="three tokens"),
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
    """The nearest `w_out` with which the network answers `right` to `x`.

    The network is `f(x w_in + b_in) w_out + b_out`, with the bend `f`: ReLU, z
    where z is positive, and 0 elsewhere. `x` and `right` are `(D,)`, `w_in`
    `(D, Dff)`, `b_in` `(Dff,)`, `w_out` `(Dff, D)`, `b_out` `(D,)`.
    Returned is a new `w_out` of the same shape; the old one stays as it was.
    With it, and all else as before, the network's output for `x` is exactly
    `right`. Of all such matrices it is the nearest to the old, with the
    smallest sum of squared changes. So an input whose inner units, after the
    bend, are at right angles to those of `x` is answered as before.
    """
    f = torch.relu
    h = f(x @ w_in + b_in)
    wrong = h @ w_out + b_out
    return w_out + torch.outer(h, right - wrong) / (h @ h)


_EDIT_BUGS = {
    "length": Bug(
        "(h @ h)",
        "h.norm()",
        says="a change divided by the length of h instead of h · h",
        why="h times the change gives h · h times the row: divide by that, "
        "the square of the length, and the answer is right.",
        read="further/08_feedforward#ff-edit",
    ),
    "not_divided": Bug(
        " / (h @ h)",
        "",
        says="a change that is not divided by h · h",
        why="h times hᵀc is (h · h) c, not c: the answer overshoots unless "
        "you divide.",
        read="further/08_feedforward#ff-edit",
    ),
    "reversed": Bug(
        "right - wrong",
        "wrong - right",
        says="a change with the sign reversed: wrong − right",
        why="It moves the answer away from where it should be.",
        read="further/08_feedforward#ff-edit",
        at="change",
    ),
    "no_b_out": Bug(
        "h @ w_out + b_out",
        "h @ w_out",
        says="a wrong answer computed without b_out",
        why="What the network says now is h W_out + b_out: the bias is part "
        "of the answer.",
        read="08_feedforward#ff-formula",
        at="change",
    ),
}


def _edit_cases(seed: int) -> list[Case]:
    g = generator(seed)
    x, right = randn(g, 2, 5)
    w_in, b_in, w_out, b_out = draw_network(g, 5, 11)
    awake = (w_in, b_in.abs() - x @ w_in, w_out, b_out)
    return [
        Case((x, right, *awake), name="11 inner units, all of them on"),
        Case((x, right, *draw_network(g, 5, 23)), name="23 inner units"),
    ]


_LAYERS = (
    "torch.nn.Linear",
    "torch.nn.functional.linear",
    "coursekit.FeedForward",
    "coursekit.feedforward.FeedForward",
)

EXERCISES = {
    "feed_forward": Exercise(
        feed_forward,
        _feed_forward_cases,
        bugs=_FEED_FORWARD_BUGS,
        variants={"leaky": LEAKY},
        forbid=_LAYERS,
    ),
    "count": Exercise(
        count,
        _count_cases,
        bugs=_COUNT_BUGS,
        variants={
            "gated": Variant(
                "into + back",
                "2 * into + back",
                asks="Here the network is gated and has three layers: "
                "two from d_model to d_ff numbers, and one back. All "
                "have biases.",
                texts={
                    "wide_biases": {
                        "says": "d_ff biases in the last layer, where there "
                        "are d_model",
                        "why": "A bias for each number that comes out: the "
                        "last layer has d_model of them.",
                    },
                },
            ),
        },
    ),
    "is_affine": Exercise(
        is_affine,
        _is_affine_cases,
        bugs=_IS_AFFINE_BUGS,
        forbid=("inspect.getsource",),
    ),
    "mended": Exercise(
        mended,
        _mended_cases,
        bugs=_MENDED_BUGS,
        variants={"leaky": LEAKY},
        forbid=_LAYERS,
    ),
    "backward": Exercise(
        backward,
        _backward_cases,
        bugs=_BACKWARD_BUGS,
        variants={
            "leaky": Variant(
                *LEAKY.edits,
                "dh * (z > 0)",
                "torch.where(z > 0, dh, dh / 10)",
                asks=LEAKY.asks,
                texts={
                    "slope_forgotten": {
                        "why": "What comes back through a unit is multiplied "
                        "by f′(z): 1 where z > 0, and 1/10 elsewhere.",
                    },
                    "times_h": {
                        "why": "The slope is 1 where a unit is on and 1/10 "
                        "where it is off, whatever the unit holds.",
                    },
                },
            ),
        },
        forbid=AUTOGRAD,
    ),
    "edit": Exercise(
        edit,
        _edit_cases,
        bugs=_EDIT_BUGS,
        variants={"leaky": LEAKY},
    ),
}
