"""Exercises of chapter 4: attention."""

from collections.abc import Mapping

import torch
from torch import Tensor

from coursekit_classroom.catalogue.masks import quarters
from coursekit_classroom.check.core import (
    Bug,
    Case,
    Exercise,
    Variant,
    generator,
    randn,
)
from coursekit_classroom.check.families import (
    MASK_AFTER,
    MASK_FINITE,
    MASK_ZERO,
    NAIVE,
    NO_SCALE,
    ONE_MAXIMUM,
    OVER_QUERIES,
    REST_DROPPED,
    WEIGHTS_STORED,
)
from coursekit_classroom.check.forbid import ATTENTION, AUTOGRAD

Gradients = tuple[Tensor, Tensor, Tensor, Tensor]


def draw(g: torch.Generator, *shapes: tuple[int, ...]) -> tuple[Tensor, ...]:
    """One random tensor a shape, in double precision."""
    return tuple(randn(g, *shape) for shape in shapes)


# -- implement: attention ----------------------------------------------------
def attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None
) -> Tensor:
    """Each query's average of the values, weighted by how its keys fit.

    `softmax(q kᵀ / √Dh) v`: `q` is `(..., T, Dh)`, `k` `(..., S, Dh)`, `v`
    `(..., S, Dv)`, the result `(..., T, Dv)`. There may be any number of axes
    in front, or none; `T ≠ S` and `Dv ≠ Dh` are allowed. The weights of one
    query, over its `S` keys, sum to 1.
    `mask` is boolean and broadcasts to `(..., T, S)`. True means: may look. A
    hidden key has weight 0, as if it were not there; each query may look at
    one key at least. Without a mask all keys are seen. Scores of many
    thousands give finite results, too.
    """
    scores = q @ k.mT / q.size(-1) ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(dim=-1) @ v


_ATTEND_BUGS = {
    "no_scale": NO_SCALE.by(" / q.size(-1) ** 0.5", ""),
    "by_dk": Bug(
        "/ q.size(-1) ** 0.5",
        "/ q.size(-1)",
        says="the scores divided by D_h instead of √D_h",
        why="The standard deviation of a score is √D_h, not D_h: divided by "
        "D_h, all weights start nearly equal.",
        read="04_attention#att-predict-scale",
    ),
    "over_queries": OVER_QUERIES.by(
        "scores.softmax(dim=-1)",
        "scores.softmax(dim=-2)",
    ),
    "axis_1": Bug(
        "scores.softmax(dim=-1)",
        "scores.softmax(dim=1)",
        says="softmax along axis 1, whatever the number of axes",
        why="With a batch and heads, axis 1 is the heads: they would compete "
        "with one another. The keys are the last axis, dim=-1.",
        read="04_attention#att-code",
    ),
    "naive": NAIVE.by(
        "scores.softmax(dim=-1)",
        "(scores.exp() / scores.exp().sum(dim=-1, keepdim=True))",
    ),
    "mask_inverted": Bug(
        "~mask,",
        "mask,",
        says="a mask in which True hides",
        why="Here True means: may look. nn.MultiheadAttention has it the "
        "other way round, F.scaled_dot_product_attention as we do.",
        read="05_masks#ch-masks",
    ),
    "mask_ignored": Bug(
        "    if mask is not None:\n"
        '        scores = scores.masked_fill(~mask, float("-inf"))\n',
        "",
        says="no mask at all",
        why="Where the mask is False, the weight must be 0.",
        read="05_masks#ch-masks",
    ),
    "mask_zero": MASK_ZERO.by(
        'scores.masked_fill(~mask, float("-inf"))',
        "scores * mask",
    ),
    "mask_after": MASK_AFTER.by(
        "    if mask is not None:\n"
        '        scores = scores.masked_fill(~mask, float("-inf"))\n',
        "",
        "return ",
        "weights = ",
        " @ v",
        "\n    if mask is not None:\n        weights = weights * mask\n"
        "    return weights @ v",
    ),
    "front_axes": Bug(
        "k.mT",
        "k.transpose(0, 1)",
        says="a transpose of the first two axes instead of the last two",
        why="Without a batch these are the same. With one, take "
        "k.transpose(-2, -1), or k.mT: the axes are counted from the end.",
        read="04_attention#att-by-hand",
        alone=True,
    ),
    "mask_finite": MASK_FINITE.by('float("-inf")', "-1e4"),
    "hidden_maximum": Bug(
        "    if mask is not None:\n"
        '        scores = scores.masked_fill(~mask, float("-inf"))\n'
        "    return scores.softmax(dim=-1) @ v",
        "    top = scores.amax(dim=-1, keepdim=True)\n"
        "    weights = (scores - top).exp()\n"
        "    if mask is not None:\n"
        "        weights = weights * mask\n"
        "    return weights / weights.sum(dim=-1, keepdim=True) @ v",
        says="a maximum that is taken over hidden keys too",
        why="If a hidden score is far above the others, every exp that "
        "counts underflows, and 0/0 is NaN. Fill hidden scores with −∞ "
        "before you take the maximum.",
        read="05_masks#ch-masks",
        alone=True,
    ),
    "by_keys": Bug(
        "/ q.size(-1) ** 0.5",
        "/ k.size(-2) ** 0.5",
        says="the scores divided by the root of the number of keys",
        why="A score is a sum of D_h products, however many keys there are: "
        "the root of D_h.",
        read="04_attention#att-predict-scale",
        alone=True,
    ),
}


def _attend_cases(seed: int) -> list[Case]:
    g = generator(seed)
    batch = draw(g, (2, 3, 5, 11), (2, 3, 7, 11), (2, 3, 7, 13))
    one = draw(g, (5, 11), (7, 11), (7, 13))
    mask = torch.rand(2, 1, 5, 7, generator=g) > 0.5
    visible = torch.randint(7, (2, 1, 5, 1), generator=g)
    mask.scatter_(-1, visible, True)  # nobody is left with nothing
    mask.scatter_(-1, (visible + 1) % 7, False)  # everybody misses a key
    # One more term in each sum: all scores are lower by the same 12,000, but
    # those of key 0 by 800 less. Some queries see it, the others key 1; if
    # True hides, it is the other way round.
    low_q, low_k = map(quarters, draw(g, (2, 3, 5, 16), (2, 3, 7, 16)))
    low_q[..., -1], low_k[..., -1], low_k[..., 0, -1] = -200.0, 240.0, 224.0
    half = mask[0, 0].clone()  # one for both sentences and all heads
    half[..., 0] = torch.arange(5) > 1
    half[..., 1] = ~half[..., 0]
    low = low_q, low_k, batch[-1], half
    return [
        Case(one, name="one sentence, five queries and seven keys"),
        Case(batch, name="two sentences, three heads"),
        Case((*batch, mask), name="with a mask"),
        Case(tuple(50 * x for x in one), name="50 times as large"),
        Case(low, name="large negative scores with a mask"),
    ]


# -- debug: the test passed --------------------------------------------------
def mended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention without a mask: each query's weighted average of the values.

    `softmax(q kᵀ / √Dh) v`: `q` is `(..., T, Dh)`, `k` `(..., S, Dh)`, `v`
    `(..., S, Dv)`, the result `(..., T, Dv)`. The weights of one query, over
    its `S` keys, sum to 1.
    It is right for any sizes, all equal or all different, and for any number
    of axes in front, or none. Scores of many thousands give finite results,
    too.
    """
    scores = q @ k.mT / q.size(-1) ** 0.5
    scores = scores - scores.max(dim=-1, keepdim=True).values
    weights = scores.exp() / scores.exp().sum(dim=-1, keepdim=True)
    return weights @ v


_MENDED_BUGS = {
    "first_size": Bug(
        "q.size(-1)",
        "q.size(0)",
        says="the scale taken from q.size(0)",
        why="The first axis is the number of tokens, or the batch. The size "
        "of a head is the last one: q.size(-1).",
        read="04_attention#att-formula",
    ),
    "axis_1": Bug(
        "sum(dim=-1, keepdim=True)",
        "sum(dim=-1).unsqueeze(1)",
        says="the sums spread along axis 1, whatever the number of axes",
        why="With a batch, axis 1 is the queries' own. keepdim=True leaves "
        "the sums where they belong.",
        read="04_attention#att-code",
    ),
    "naive": NAIVE.by(
        "    scores = scores - scores.max(dim=-1, keepdim=True).values\n",
        "",
    ),
    "one_maximum": ONE_MAXIMUM.by(
        "max(dim=-1, keepdim=True).values",
        "max()",
        alone=True,
    ),
}


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
    """Gradients of attention with a factor `tau` by q, k, v and tau.

    The forward pass is `y = softmax(tau q kᵀ) v`, with `tau` (one number, a
    tensor without axes) where `1/√Dh` usually stands. `q` is `(..., T, Dh)`,
    `k` `(..., S, Dh)`, `v` `(..., S, Dv)` and `y` `(..., T, Dv)`; there may be
    axes in front, such as a batch. The softmax runs over the keys.
    `dy` has the shape of `y` and is the gradient of the loss by it. Returned
    are four gradients of that loss, `(dq, dk, dv, dtau)`, each of the shape of
    what it belongs to. `dtau` is one number for the whole batch.
    """
    fit = q @ k.mT
    a = (tau * fit).softmax(-1)
    da = dy @ v.mT
    dz = a * (da - (a * da).sum(-1, keepdim=True))
    return tau * dz @ k, tau * dz.mT @ q, a.mT @ dy, (dz * fit).sum()


_TEMPERATURE_BUGS = {
    "elementwise": Bug(
        "a * (da - (a * da).sum(-1, keepdim=True))",
        "a * (1 - a) * da",
        says="a softmax differentiated entry by entry, a · (1 − a)",
        why="A weight depends on all scores of its row: subtract the row's "
        "sum of a · da. The rows of dZ then sum to 0.",
        read="further/04_attention#att-backward",
    ),
    "axis_1": Bug(
        "sum(-1",
        "sum(1",
        says="the sum of a · da along axis 1, whatever the number of axes",
        why="With a batch, axis 1 is the queries. A row of weights lies "
        "along the last axis, dim=-1.",
        read="further/04_attention#att-backward",
    ),
    "no_tau": Bug(
        "tau * dz @ k, tau * dz.mT @ q",
        "dz @ k, dz.mT @ q",
        says="dQ and dK without the factor τ",
        why="The score is τ · q · k: by q it changes with τ · k.",
        read="further/04_attention#att-temperature",
    ),
    "tau_twice": Bug(
        "(dz * fit).sum()",
        "tau * (dz * fit).sum()",
        says="dτ with a factor τ too many",
        why="The score is τ times the fit: its derivative by τ is the fit.",
        read="further/04_attention#att-temperature",
    ),
}


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
    p = scores.softmax(-1)
    jacobian = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    return (jacobian.flatten(1).norm(dim=1) < 0.01).double().mean()


_STUCK_BUGS = {
    "no_softmax": Bug(
        "scores.softmax(-1)",
        "scores",
        says="the derivative's formula with scores in place of weights",
        why="p stands for the weights: first softmax over each row, then "
        "the formula.",
        read="04_attention#att-measure",
        alone=True,
    ),
    "over_rows": Bug(
        "softmax(-1)",
        "softmax(0)",
        says="a softmax down the columns",
        why="Each row is a query of its own, so its weights sum to 1: the "
        "last axis.",
        read="04_attention#att-measure",
        alone=True,
    ),
    "no_root": Bug(
        "norm(dim=1)",
        "square().sum(dim=1)",
        says="the sum of the squares, without the root",
        why="The length of a matrix is the root of the sum of its squares. "
        "0.01 is a bound on the length.",
        read="04_attention#att-measure",
    ),
    "largest": Bug(
        "norm(dim=1)",
        "abs().amax(dim=1)",
        says="the largest entry of the derivative as its size",
        why="The length of a matrix is the root of the sum of its squares: "
        "all entries count.",
        read="04_attention#att-measure",
        alone=True,
    ),
    "diagonal": Bug(
        "torch.diag_embed(p) - p[:, :, None] * p[:, None, :]",
        "p * (1 - p)",
        says="the diagonal of the derivative alone, p(1 − p)",
        why="A score moves the other weights, too: entries off the "
        "diagonal are −p_i p_j.",
        read="04_attention#att-measure",
    ),
    "counted": Bug(
        "mean()",
        "sum()",
        says="the number of saturated rows, not their fraction",
        why="Divide by the number of rows: take the mean.",
        read="04_attention#att-measure",
    ),
    "naive": NAIVE.by(
        "scores.softmax(-1)",
        "scores.exp() / scores.exp().sum(dim=-1, keepdim=True)",
    ),
}


def _stuck_cases(seed: int) -> list[Case]:
    g = generator(seed)
    (few,), (many,) = draw(g, (211, 5)), draw(g, (307, 23))
    # Two small weights e: the sum of the squares is 10 e², near 0.01².
    small = (0.003 + torch.arange(11, dtype=torch.float64) / 20_000)[:, None]
    near = torch.cat([1 - 2 * small, small, small], dim=1)
    near = near[torch.randperm(11, generator=g)].log()
    return [
        Case((8 * few,), name="211 rows of 5 keys"),
        Case((1000 + 8 * many,), name="23 keys, scores around 1,000"),
        Case((near,), name="eleven rows near the bound"),
    ]


# -- implement: never store the weights --------------------------------------
def attend_in_blocks(
    q: Tensor, k: Tensor, v: Tensor, block: int = 4
) -> Tensor:
    """Attention that looks at `block` keys at a time.

    The result is that of `softmax(q kᵀ / √Dh) v` over all keys, whatever
    `block` is, 1 included: `q` is `(..., T, Dh)`, `k` `(..., S, Dh)`, `v`
    `(..., S, Dv)`, the result `(..., T, Dv)`. There may be axes in front, such
    as a batch.
    Every key counts. `S` need not be a multiple of `block`: the last block may
    be smaller. Scores of many thousands give finite, right results, too, also
    if all are far below 0.
    """
    top = q.new_full((*q.shape[:-1], 1), float("-inf"))
    total = torch.zeros_like(top)
    mixed = q.new_zeros(*q.shape[:-1], v.size(-1))
    for start in range(0, k.size(-2), block):
        keys = k[..., start : start + block, :]
        scores = q @ keys.mT / q.size(-1) ** 0.5
        new = torch.maximum(top, scores.amax(-1, keepdim=True))
        shrink, part = (top - new).exp(), (scores - new).exp()
        total = total * shrink + part.sum(-1, keepdim=True)
        mixed = mixed * shrink + part @ v[..., start : start + block, :]
        top = new
    return mixed / total


_BLOCKS_BUGS = {
    "stored": WEIGHTS_STORED.by(
        "    for start in", "    block = k.size(-2)\n    for start in"
    ),
    "no_scale": NO_SCALE.by(" / q.size(-1) ** 0.5", ""),
    "rest_dropped": REST_DROPPED.by(
        "k.size(-2), block",
        "k.size(-2) // block * block, block",
    ),
    "naive": Bug(
        "(top - new).exp(), (scores - new).exp()",
        "1.0, scores.exp()",
        says="exp of the scores as they are, without a maximum",
        why="exp(1000) is infinite. Carry the largest score so far, and "
        "subtract it before exp.",
        read="04_attention#att-blocks",
        at="maximum",
    ),
    "no_shrink": Bug(
        "(top - new).exp()",
        "1.0",
        says="sums that are not scaled down when a larger score turns up",
        why="Numerator and denominator were measured against the old "
        "maximum: multiply both by exp(old − new).",
        read="04_attention#att-blocks",
        at="maximum",
    ),
    "top_zero": Bug(
        'float("-inf")',
        "0.0",
        says="a maximum that starts at 0 instead of −∞",
        why="If all scores are far below 0, every exp is 0, and 0 over 0 is "
        "NaN.",
        read="04_attention#att-blocks",
        at="maximum",
    ),
    "turned": Bug(
        "(top - new).exp()",
        "(new - top).exp() if start else 1.0",
        says="sums corrected by exp(new − old), the wrong way round",
        why="A larger maximum makes the old sums smaller: multiply by "
        "exp(old − new), which is at most 1.",
        read="04_attention#att-blocks",
        alone=True,
    ),
    "total_only": Bug(
        "mixed * shrink",
        "mixed",
        says="a sum that is scaled down, and a mixture that is not",
        why="Numerator and denominator are measured against the same "
        "maximum: scale both.",
        read="04_attention#att-blocks",
        alone=True,
    ),
}


_WEIGHTS = ("mm", "bmm", "addmm", "baddbmm", "exp", "exp_", "_softmax")
"""Operations whose results, in a plain attention, are all the weights."""


def weights_are_stored(used: Mapping[str, int], case: Case) -> str | None:
    """What is wrong with a way on which all scores or weights are stored.

    Only a case with far more weights than other numbers shows it.
    """
    q, k, v = case.args[:3]
    weights = q.numel() // q.size(-1) * k.size(-2)
    most = max(used.get(f"aten.{name}", 0) for name in _WEIGHTS)
    if 2 * most < weights or weights < 4 * (q.numel() + k.numel() + v.numel()):
        return None
    return (
        f"The result is right, but on the way there is a tensor of {most:,} "
        f"numbers, and all the weights together are {weights:,}. Never hold "
        "more of them than belong to one block."
    )


def _blocks_cases(seed: int) -> list[Case]:
    g = generator(seed)
    long = draw(g, (60, 3), (90, 3), (90, 3))
    one = draw(g, (5, 11), (7, 11), (7, 13))
    two = draw(g, (2, 3, 11), (2, 7, 11), (2, 7, 13))
    q, k, v = one
    return [
        Case(one, name="seven keys: the last block is not full"),
        Case((*two, 1), name="two sentences, blocks of one key"),
        Case((50 * q, 50 * k, v, 3), name="large scores"),
        Case((-50 * q.abs(), 50 * k.abs(), v, 3), name="all scores negative"),
        Case((*long, 8), name="5,400 weights, in blocks of eight keys"),
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
    "attend": Exercise(
        attend,
        _attend_cases,
        bugs=_ATTEND_BUGS,
        alike=[
            (
                {"axis_1"},
                {"axis_1", "mask_inverted"},
                "a key hidden from all heads is 0/0, and NaN spreads",
            ),
        ],
        variants={
            "true_hides": Variant(
                "scores = q @",
                "if mask is not None:\n        mask = ~mask\n    scores = q @",
                asks="Here True in the mask means: may *not* look.",
                texts={
                    "mask_inverted": {
                        "says": "a mask in which True shows, as in the book",
                        "why": "The assignment has it the other way round: "
                        "where the mask is True, the weight must be 0.",
                    },
                    "mask_ignored": {
                        "why": "Where the mask is True, the weight must be 0.",
                    },
                },
            ),
        },
        forbid=ATTENTION,
    ),
    "mended": Exercise(
        mended,
        _mended_cases,
        bugs=_MENDED_BUGS,
        planted={"first_size", "axis_1", "naive"},
        forbid=ATTENTION,
    ),
    "temperature": Exercise(
        temperature_backward,
        _temperature_cases,
        bugs=_TEMPERATURE_BUGS,
        forbid=AUTOGRAD,
    ),
    "stuck_share": Exercise(
        stuck_share,
        _stuck_cases,
        bugs=_STUCK_BUGS,
    ),
    "blocks": Exercise(
        attend_in_blocks,
        _blocks_cases,
        bugs=_BLOCKS_BUGS,
        manner=weights_are_stored,
        forbid=ATTENTION,
    ),
    "loud": Exercise(loud_but_idle, lambda seed: [Case()], judge=_judge_loud),
}
