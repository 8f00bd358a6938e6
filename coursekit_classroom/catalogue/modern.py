"""Exercises of chapter 15: modern."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from coursekit_classroom.catalogue.masks import quarters
from coursekit_classroom.check.core import (
    Bug,
    Case,
    Exercise,
    Variant,
    generator,
    randn,
)
from coursekit_classroom.check.families import INVERTED, MASK_FINITE

float64 = torch.float64
Rotate = Callable[[Tensor, Tensor], Tensor]
Network = Callable[[Tensor], Tensor]


# -- implement: rotary positions ---------------------------------------------
def rope(x: Tensor, positions: Tensor, base: float) -> Tensor:
    """Turn queries or keys by their positions.

    `x` is `(B, H, T, Dh)` with Dh even; `positions` are whole numbers, `(T,)`
    for all rows alike, or `(B, T)`, one row a text. Neighbors are pairs: pair
    i, from 0, is coordinates 2i and 2i + 1. At position t it turns by
    `t * base ** (-2 * i / Dh)` radians: `(a, b)` becomes
    `(a cos − b sin, a sin + b cos)`, at the same places.
    The result has the shape of `x`.
    """
    size = x.size(-1)
    speeds = base ** (-torch.arange(0, size, 2, dtype=x.dtype) / size)
    angles = positions[..., None] * speeds
    if angles.dim() == 3:
        angles = angles[:, None]
    cos, sin = angles.cos(), angles.sin()
    a, b = x[..., 0::2], x[..., 1::2]
    turned = (a * cos - b * sin, a * sin + b * cos)
    return torch.stack(turned, dim=-1).flatten(-2)


_ROPE_BUGS = {
    "ignored": Bug(
        "positions[..., None]",
        "torch.arange(x.size(-2))[:, None]",
        says="positions 0, 1, 2, … whatever positions are given",
        why="Rows are turned by the positions that you are given. With a "
        "cache, the only row stands at the end of a text.",
        read="further/15_modern#mod-wrong",
    ),
    "backwards": Bug(
        "angles.sin()",
        "-angles.sin()",
        says="a rotation the other way round",
        why="(a, b) → (a cos − b sin, a sin + b cos): the minus is in the "
        "first. Scores would be the same, loaded weights would not fit.",
        read="15_modern#mod-formula",
    ),
    "mixed": Bug(
        "a, b = x[..., 0::2], x[..., 1::2]\n"
        "    turned = (a * cos - b * sin, a * sin + b * cos)\n"
        "    return torch.stack(turned, dim=-1).flatten(-2)",
        "cos = cos.repeat_interleave(2, dim=-1)\n"
        "    sin = sin.repeat_interleave(2, dim=-1)\n"
        "    a, b = x.chunk(2, dim=-1)\n"
        "    return x * cos + torch.cat((-b, a), dim=-1) * sin",
        says="two pairings in one: angles for neighbors, but i joined with "
        "i + Dh/2",
        why="Then a pair's two halves turn by different angles, and scores "
        "depend on more than the distance.",
        read="15_modern#mod-pairs",
        otherwise=[
            (
                "turned = (a * cos - b * sin, a * sin + b * cos)\n"
                "    return torch.cat(turned, dim=-1)",
                "cos = cos.repeat_interleave(2, dim=-1)\n"
                "    sin = sin.repeat_interleave(2, dim=-1)\n"
                "    return x * cos + torch.cat((-b, a), dim=-1) * sin",
            )
        ],
    ),
    "other_pairs": Bug(
        "x[..., 0::2], x[..., 1::2]",
        "x.chunk(2, dim=-1)",
        "torch.stack(turned, dim=-1).flatten(-2)",
        "torch.cat(turned, dim=-1)",
        says="the other pairing, halves for neighbors or neighbors for halves",
        why="It works as long as nobody else's weights are loaded. The "
        "exercise says which numbers make a pair.",
        read="15_modern#mod-pairs",
        at="pairs",
        otherwise=[
            (
                "x.chunk(2, dim=-1)",
                "x[..., 0::2], x[..., 1::2]",
                "torch.cat(turned, dim=-1)",
                "torch.stack(turned, dim=-1).flatten(-2)",
            )
        ],
    ),
    "not_put_back": Bug(
        "torch.stack(turned, dim=-1).flatten(-2)",
        "torch.cat(turned, dim=-1)",
        says="turned pairs that are not put back where they came from",
        why="All the first numbers, then all the second ones, is another "
        "order. In q and k alike it cancels; against other code it does not.",
        read="15_modern#mod-pairs",
        at="pairs",
        otherwise=[
            (
                "torch.cat(turned, dim=-1)",
                "torch.stack(turned, dim=-1).flatten(-2)",
            )
        ],
    ),
    "halved": Bug(
        "/ size)",
        "/ size / 2)",
        says="an exponent half as large, the number of the pair over Dh",
        why="There are Dh/2 pairs, so their numbers over Dh only reach 1/2: "
        "take 2 i / Dh.",
        read="15_modern#mod-formula",
        alone=True,
    ),
    "counts_from_one": Bug(
        "positions[..., None]",
        "(positions[..., None] + 1)",
        says="positions counted from 1",
        why="Scores stay, but the numbers that come out do not. Turn by the "
        "position that is given.",
        read="further/15_modern#mod-wrong",
        alone=True,
    ),
    "no_head_axis": Bug(
        "    if angles.dim() == 3:\n        angles = angles[:, None]\n",
        "",
        says="positions (B, T) without an axis for the heads",
        why="Angles are then (B, T, Dh/2), and x has its heads before T. Put "
        "an axis of size 1 there.",
        read="further/15_modern#mod-wrong",
        alone=True,
    ),
}


def _rope_cases(seed: int) -> list[Case]:
    g = generator(seed)
    places = torch.randperm(97, generator=g)[:6].view(2, 3)
    return [
        Case(
            (randn(g, 2, 3, 5, 6), 3 + places.flatten()[:5], 100.0),
            name="a text whose positions are given",
        ),
        Case(
            (randn(g, 2, 2, 3, 4), places, 10000.0),
            name="two texts, each with positions of its own",
        ),
    ]


# -- implement: another file's pairs -----------------------------------------
def converted(w: Tensor, n_heads: int) -> Tensor:
    """Weights from a file whose pairs are halves, for code of neighbors.

    `w` is `(H · Dh, D)`, the matrix of queries or of keys: a head's Dh rows,
    then the next head's. In the file's program, pair i of a head is made of
    its rows i and i + Dh/2. The result is a matrix of the same shape whose
    pair i is made of rows 2i and 2i + 1 of the head; pairs and heads keep
    their order, and of each pair the first stays the first.
    """
    apart = w.unflatten(0, (n_heads, 2, -1))
    return apart.transpose(1, 2).flatten(0, 2)


_CONVERTED_BUGS = {
    "across_heads": Bug(
        "(n_heads,",
        "(1,",
        says="pairs taken across all heads, as if they were one",
        why="Each head has pairs of its own: cut into heads first, then "
        "into halves.",
        read="15_modern#mod-pairs",
    ),
    "inverse": Bug(
        "2, -1",
        "-1, 2",
        says="the conversion in the other direction, from neighbors to halves",
        why="Row 2i of the new matrix is row i of the old one: first the "
        "halves (2, Dh/2), then exchange the two axes.",
        read="15_modern#mod-pairs",
        at="axes",
    ),
    "columns": Bug(
        "w.unflatten",
        "w.mT.unflatten",
        "return apart.transpose(1, 2).flatten(0, 2)",
        "return apart.transpose(1, 2).flatten(0, 2).mT",
        says="columns moved instead of rows",
        why="A row of the matrix makes a coordinate of the query. Columns "
        "belong to the stream, which stays as it is.",
        read="15_modern#mod-pairs",
        at="axes",
    ),
}


def _converted_cases(seed: int) -> list[Case]:
    g = generator(seed)
    return [Case((randn(g, 18, 12), 3), name="three heads of six")]


# -- implement: a window -----------------------------------------------------
def window(size: int, n_queries: int, n_keys: int) -> Tensor:
    """Who may look at whom, if nobody looks far: `(T, S)` booleans.

    True where a query (row) may attend to a key (column). The queries are the
    last T = `n_queries` of S = `n_keys` positions. A query sees `size` keys:
    its own, and the `size` − 1 just before it; fewer where the text begins.
    """
    position = torch.arange(n_queries)[:, None] + n_keys - n_queries
    back = position - torch.arange(n_keys)
    near = (back >= 0) & (back < size)
    return near


_WINDOW_BUGS = {
    "inverted": INVERTED.by(
        "return near",
        "return ~near",
        says="a mask with the opposite meaning",
        read="further/05_masks#mask-wrong",
        otherwise=[("return ~near", "return near")],
    ),
    "one_more": Bug(
        "back < size",
        "back <= size",
        says="a window that is one key too wide",
        why="A query sees itself and size − 1 others: distance < size, not ≤.",
        read="further/15_modern#mod-window",
    ),
    "top_left": Bug(
        " + n_keys - n_queries",
        "",
        says="queries that are counted from the first key",
        why="They are the *last* T of S positions: query i stands at i + (S "
        "− T).",
        read="further/05_masks#mask-wrong",
    ),
    "both_sides": Bug(
        "back >= 0",
        "back > -size",
        says="a window that looks ahead as far as back",
        why="A decoder's window ends at the query's own position.",
        read="further/15_modern#mod-window",
    ),
    "future": Bug(
        "(back >= 0) & ",
        "",
        says="a window that hides what is far back, and nothing ahead",
        why="The window is *one* border; the causal mask is the other.",
        read="further/15_modern#mod-window",
    ),
}


def _window_cases(seed: int) -> list[Case]:
    size = 2 + seed % 2
    return [
        Case((size, 7, 7), name="a whole text"),
        Case((size + 1, 3, 11), name="three new tokens, eight old keys"),
    ]


# -- implement: a gated network ----------------------------------------------
def gated(x: Tensor, w_gate: Tensor, w_in: Tensor, w_out: Tensor) -> Tensor:
    """SwiGLU: `(silu(x W_gate) · x W_in) W_out`, number by number.

    `x` is `(T, D)`, `w_gate` and `w_in` are `(D, Dff)`, `w_out` is `(Dff, D)`;
    rows are multiplied from the left. silu(z) = z · sigmoid(z). The result is
    `(T, D)`.
    """
    gate, inner = x @ w_gate, x @ w_in
    gate = F.silu(gate)
    return (gate * inner) @ w_out


_GATED_BUGS = {
    "sigmoid": Bug(
        "F.silu(gate)",
        "gate.sigmoid()",
        says="a sigmoid on the gate: GLU, not SwiGLU",
        why="silu(z) is z · sigmoid(z); the z is missing.",
        read="15_modern#mod-swiglu",
    ),
    "gelu": Bug(
        "F.silu(gate)",
        "F.gelu(gate)",
        says="GELU on the gate: GEGLU, not SwiGLU",
        why="Its neighbor in the same paper, nearly as good, and another "
        "function.",
        read="15_modern#mod-swiglu",
    ),
    "swapped": Bug(
        "gate = F.silu(gate)",
        "inner = F.silu(inner)",
        says="silu on x W_in, and the gate left straight",
        why="Trained from scratch it is the same network with two names "
        "exchanged. With loaded weights it is another one.",
        read="15_modern#mod-swiglu",
    ),
    "of_the_product": Bug(
        "    gate = F.silu(gate)\n",
        "",
        "(gate * inner)",
        "F.silu(gate * inner)",
        says="silu on the product, not on the gate",
        why="The gate passes through silu before it multiplies.",
        read="15_modern#mod-swiglu",
        at="silu",
    ),
    "added": Bug(
        "gate * inner",
        "gate + inner",
        says="gate and inner numbers added instead of multiplied",
        why="A gate multiplies: near 0 it shuts the unit, whatever the unit "
        "says.",
        read="15_modern#mod-swiglu",
    ),
}


def _gated_cases(seed: int) -> list[Case]:
    g = generator(seed)
    arguments = randn(g, 3, 5), randn(g, 5, 7), randn(g, 5, 7), randn(g, 7, 5)
    return [Case(arguments, name="three tokens")]


# -- implement: a mixture of experts -----------------------------------------
def mixture(
    x: Tensor, router: Tensor, experts: Sequence[Network], n_active: int
) -> Tensor:
    """Send each token to the few networks that its router likes best.

    `x` is `(N, D)`, a row a token; `router` is `(D, E)`, and `x @ router` the
    logits, one for each of the E `experts`, functions from `(n, D)` to
    `(n, D)` with n at least 1. Each token goes to the `n_active` experts of
    its highest logits; the softmax of *these* logits are their weights. The
    result is `(N, D)`: for each token the weighted sum of its experts'
    answers. No two logits of a token are equal.
    """
    logits = x @ router
    chosen = logits.topk(n_active, dim=-1).indices
    scores = logits.gather(-1, chosen)
    weights = scores.softmax(dim=-1)
    out = torch.zeros_like(x)
    for number, expert in enumerate(experts):
        row, place = (chosen == number).nonzero(as_tuple=True)
        if len(row):
            out[row] += weights[row, place, None] * expert(x[row])
    return out


_MIXTURE_BUGS = {
    "of_all": Bug(
        "scores.softmax(dim=-1)",
        "logits.softmax(dim=-1).gather(-1, chosen)",
        says="weights from the softmax over all experts, which don't sum to 1",
        why="The experts that were not asked keep their part. Softmax over "
        "the chosen logits alone. (Some models do it your way.)",
        read="further/15_modern#mod-experts",
    ),
    "even": Bug(
        "scores.softmax(dim=-1)",
        "torch.full_like(scores, 1 / n_active)",
        says="chosen experts that all count the same",
        why="Then the router gets no gradient, and never learns: its logits "
        "only decide who is asked.",
        read="further/15_modern#mod-experts",
    ),
    "first_weight": Bug(
        "scores.softmax(dim=-1)",
        "scores.softmax(dim=-1)[:, :1].expand_as(scores)",
        says="the first of a row's weights taken for all of its experts",
        why="Each chosen expert has a weight of its own: take the one at "
        "its place in the row.",
        read="further/15_modern#mod-experts",
        alone=True,
    ),
    "always_two": Bug(
        "topk(n_active",
        "topk(2",
        says="two experts for each token, whatever n_active is",
        why="How many answer is an argument: topk(n_active).",
        read="further/15_modern#mod-experts",
        alone=True,
    ),
    "over_tokens": Bug(
        "scores.softmax(dim=-1)",
        "scores.softmax(dim=0)",
        says="weights that sum to 1 over the tokens, not over a token's "
        "experts",
        why="Each token divides itself among its experts: the last axis.",
        read="further/15_modern#mod-experts",
        alone=True,
    ),
    "overwritten": Bug(
        "out[row] +=",
        "out[row] =",
        says="an expert's result that overwrites that of the expert before",
        why="A token has several experts: add their weighted results.",
        read="further/15_modern#mod-experts",
        alone=True,
    ),
}


def _network(g: torch.Generator, size: int) -> Network:
    a, b = randn(g, size, 7), randn(g, 7, size)
    return lambda x: (x @ a).relu().square() @ b


def _mixture_cases(seed: int) -> list[Case]:
    g = generator(seed)
    experts = [_network(g, 5) for _ in range(4)]
    x, router = randn(g, 11, 5), randn(g, 5, 4)
    return [
        Case((x, router, experts, 2), name="eleven tokens, two of four"),
        Case((x, router, experts, 3), name="three of four experts"),
    ]


# -- debug: three heads share ------------------------------------------------
def mended(
    x: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    n_heads: int,
    n_kv_heads: int,
    rotate: Rotate,
) -> Tensor:
    """Causal attention with shared keys and values, and rotary positions.

    `x` is `(T, D)`. `w_q`, `(D, H · Dh)`, makes the queries of H = `n_heads`
    heads, side by side; `w_k` and `w_v`, `(D, G · Dh)`, make keys and values
    of G = `n_kv_heads` heads. Heads 0 to H/G − 1 share the first key/value
    head, the next H/G the second, and so on. `rotate(x, positions)` turns
    `(..., T, Dh)` vectors by their positions, counted from 0; it takes any
    even size. Queries and keys are turned, head by head. Scores are divided by
    `√Dh`. The result is `(T, H · Dh)`: the heads' outputs side by side.
    """
    places = torch.arange(len(x))
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    q = q.unflatten(-1, (n_heads, -1)).transpose(0, 1)
    k = k.unflatten(-1, (n_kv_heads, -1)).transpose(0, 1)
    v = v.unflatten(-1, (n_kv_heads, -1)).transpose(0, 1)
    q, k = rotate(q, places), rotate(k, places)
    shared = n_heads // n_kv_heads
    k = k.repeat_interleave(shared, dim=0)
    v = v.repeat_interleave(shared, dim=0)
    heads = F.scaled_dot_product_attention(
        q[None], k[None], v[None], is_causal=True
    )[0]
    return heads.transpose(0, 1).flatten(1)


_MENDED_BUGS = {
    "values_too": Bug(
        "shared = n_heads",
        "v = rotate(v, places)\n    shared = n_heads",
        says="values that are turned as well",
        why="Position belongs into the scores. Turned values mix it into "
        "the content: what a head says depends on where it was said.",
        read="15_modern#mod-rope",
    ),
    "tiled": Bug(
        "k = k.repeat_interleave(shared, dim=0)\n"
        "    v = v.repeat_interleave(shared, dim=0)",
        "k, v = k.repeat(shared, 1, 1), v.repeat(shared, 1, 1)",
        says="key/value heads laid out 0, 1, 0, 1, … instead of 0, 0, 1, 1, …",
        why="Neighbors share: repeat_interleave, not repeat. Trained from "
        "scratch both work; loaded weights fit only one.",
        read="15_modern#mod-groups",
    ),
    "queries_alone": Bug(
        "q, k = rotate(q, places), rotate(k, places)",
        "q = rotate(q, places)",
        says="queries that are turned, and keys that are not",
        why="Scores then depend on where the query stands, and not on how "
        "far away the key is.",
        read="15_modern#mod-rope",
        at="turn",
    ),
    "values_tiled": Bug(
        "v = v.repeat_interleave(shared, dim=0)",
        "v = v.repeat(shared, 1, 1)",
        says="keys distributed in runs, and values in turns",
        why="A head's keys and values belong together: repeat_interleave "
        "for both.",
        read="15_modern#mod-rope",
        alone=True,
    ),
    "not_transposed": Bug(
        "heads.transpose(0, 1).flatten(1)",
        "heads.reshape(len(x), -1)",
        says="heads merged without the transpose, which mixes positions",
        why="(H, T, Dh) becomes (T, H, Dh) first, then (T, H · Dh).",
        read="15_modern#mod-rope",
        alone=True,
    ),
    "mask_finite": MASK_FINITE.by(
        "heads = F.scaled_dot_product_attention(\n"
        "        q[None], k[None], v[None], is_causal=True\n"
        "    )[0]",
        "later = torch.ones(len(x), len(x)).triu(1).bool()\n"
        "    scores = q @ k.mT / q.size(-1) ** 0.5\n"
        "    heads = scores.masked_fill(later, -1e4).softmax(dim=-1) @ v",
    ),
}


def _turner(base: float, first: float = 1.0) -> Rotate:
    """Rotary positions; neighbors are pairs."""

    def rotate(x: Tensor, positions: Tensor) -> Tensor:
        size = x.size(-1)
        speeds = base ** (-torch.arange(0, size, 2, dtype=x.dtype) / size)
        angles = positions[:, None] * (first * speeds)
        a, b = x[..., 0::2], x[..., 1::2]
        cos, sin = angles.cos(), angles.sin()
        pairs = torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1)
        return pairs.flatten(-2)

    return rotate


def _mended_cases(seed: int) -> list[Case]:
    g = generator(seed)
    x, maps = randn(g, 5, 10), [randn(g, 10, n) for n in (24, 8, 8)]
    low_x, low_q, low_k = map(quarters, (x, maps[0], maps[1]))
    # One more term in each sum: all scores are lower by the same 12,000.
    low_x[:, -1] = 1.0
    for w, corner in (low_q, -155.0), (low_k, 155.0):
        w[-1], w[:, 3::4], w[-1, 3::4] = 0.0, 0.0, corner
    turn = _turner(
        1e30, math.pi / 2
    )  # nothing is rounded, the last pair stays
    return [
        Case((x, *maps, 6, 2, _turner(50.0)), name="six heads share two"),
        Case(
            (low_x, low_q, low_k, maps[2], 6, 2, turn),
            name="large negative scores",
        ),
    ]


EXERCISES = {
    "rope": Exercise(
        rope,
        _rope_cases,
        bugs=_ROPE_BUGS,
        variants={
            "halves": Variant(
                "x[..., 0::2], x[..., 1::2]",
                "x.chunk(2, dim=-1)",
                "torch.stack(turned, dim=-1).flatten(-2)",
                "torch.cat(turned, dim=-1)",
                asks="Here pair i is made of coordinates i and i + "
                "Dh/2, as in most published files.",
                texts={
                    "not_put_back": {
                        "why": "The two numbers of a pair side by side is "
                        "another order: the second stands Dh/2 behind the "
                        "first. In q and k alike it cancels; against other "
                        "code it does not.",
                    },
                },
            ),
        },
        forbid=(
            "coursekit.positions.rotate_pairs",
            "coursekit.rotate_pairs",
            "coursekit.positions.Rotary",
        ),
    ),
    "converted": Exercise(
        converted,
        _converted_cases,
        bugs=_CONVERTED_BUGS,
    ),
    "window": Exercise(
        window,
        _window_cases,
        bugs=_WINDOW_BUGS,
        variants={
            "true_hides": Variant(
                "return near",
                "return ~near",
                asks="Here True in the mask means: may *not* look.",
            ),
        },
        forbid=("coursekit.masks.window_mask", "coursekit.window_mask"),
    ),
    "gated": Exercise(
        gated,
        _gated_cases,
        bugs=_GATED_BUGS,
        forbid=("coursekit.feedforward.SwiGLU", "coursekit.SwiGLU"),
    ),
    "mixture": Exercise(
        mixture,
        _mixture_cases,
        bugs=_MIXTURE_BUGS,
        forbid=(
            "coursekit.experts.Experts",
            "coursekit.Experts",
            "coursekit.experts.route",
        ),
    ),
    "mended": Exercise(
        mended,
        _mended_cases,
        bugs=_MENDED_BUGS,
    ),
}
