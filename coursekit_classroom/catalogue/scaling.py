"""Exercises of chapter 18: scaling."""

from collections.abc import Sequence

import torch
from torch import Tensor

from coursekit_classroom.catalogue.attention import (
    weights_are_stored,
)
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
    MASK_FINITE,
    NAIVE,
    NO_SCALE,
    REST_DROPPED,
    WEIGHTS_STORED,
)

float64 = torch.float64
ATTENTION = [
    "torch.nn.functional.scaled_dot_product_attention",
    "coursekit.attention.attend",
    "coursekit.attention.fast_attend",
    "coursekit.attention.attention_weights",
    "coursekit.scaling.block_attend",
]
COUNTS = [
    "coursekit.scaling.meta_model",
    "coursekit.scaling.count_parameters",
    "coursekit.scaling.forward_flops",
    "torch.utils.flop_counter.FlopCounterMode",
]


def pick(g: torch.Generator, *choices: int) -> int:
    """One of several whole numbers."""
    return choices[int(torch.randint(len(choices), (1,), generator=g))]


# -- implement: count the parameters -----------------------------------------
def parameters(
    vocab_size: int,
    max_len: int,
    d_model: int,
    n_heads: int,
    d_ff: int,
    n_layers: int,
    bias: bool,
    tied: bool,
) -> int:
    """The number of parameters of a GPT, a whole number.

    It has a table of `vocab_size` token vectors and one of `max_len` position
    vectors, of width `d_model`; `n_layers` blocks; a LayerNorm after the last;
    and a head, a matrix from `d_model` to `vocab_size` without a bias, which
    is the token table itself if `tied`.
    A block has two LayerNorms; the four matrices of attention, each `d_model`
    by `d_model` for its `n_heads` heads together; and two matrices, from
    `d_model` to `d_ff` and back.
    If `bias` is true, each matrix of a block and each LayerNorm has a bias; a
    LayerNorm has a scale in any case.
    """
    norm = d_model * (1 + bias)
    attention = 4 * d_model * d_model
    network = 2 * d_model * d_ff
    biases = bias * (5 * d_model + d_ff)
    blocks = n_layers * (attention + network + biases + 2 * norm)
    tables = (vocab_size + max_len) * d_model
    head = 0 if tied else vocab_size * d_model
    return tables + blocks + norm + head


_PARAMETERS_BUGS = {
    "each_head": Bug(
        "4 * d_model * d_model",
        "4 * d_model * d_model * n_heads",
        says="a full set of matrices for each head",
        why="The heads share the width: each has d_model / n_heads columns, "
        "so that all of them together are one d_model by d_model matrix.",
        read="further/06_multihead#mha-counts",
    ),
    "no_biases": Bug(
        " + biases",
        "",
        says="matrices without their biases",
        why="Each matrix of a block has one, as long as its output is wide.",
        read="09_decoder#dec-count",
    ),
    "no_final_norm": Bug(
        "blocks + norm",
        "blocks",
        says="no LayerNorm after the last block",
        why="A pre-norm model normalizes once more before its head.",
        read="09_decoder#dec-count",
    ),
    "no_positions": Bug(
        "(vocab_size + max_len)",
        "vocab_size",
        says="no table of positions",
        why="Learned positions are max_len vectors of d_model numbers.",
        read="09_decoder#dec-count",
    ),
    "never_tied": Bug(
        "0 if tied else vocab_size",
        "vocab_size",
        says="a head that is always counted, tied or not",
        why="Tied means: the same numbers. They are stored, and trained, "
        "once.",
        read="18_scaling#scale-weights",
    ),
    "short_bias": Bug(
        "d_ff)",
        "d_model)",
        says="a network both of whose biases are as long as the width",
        why="A bias has as many numbers as come out of its matrix: d_ff "
        "after the first, d_model after the second.",
        read="further/06_multihead#mha-counts",
        alone=True,
    ),
    "norms_unbiased": Bug(
        "d_model * (1 + bias)",
        "d_model",
        says="LayerNorms without their biases",
        why="With bias, a LayerNorm has a scale and a bias: 2 · d_model "
        "numbers.",
        read="09_decoder#dec-count",
        alone=True,
    ),
}


def _parameters_cases(seed: int) -> list[Case]:
    g = generator(seed)
    v, p = pick(g, 101, 103, 107), pick(g, 29, 31)
    return [
        Case((v, p, 12, 3, 41, 5, True, True), name="a small one, tied"),
        Case((v, p, 20, 5, 61, 7, False, False), name="no biases, not tied"),
        Case((v, p, 14, 2, 43, 3, True, False), name="biases, not tied"),
    ]


# -- implement: count the FLOPs ----------------------------------------------
def flops(
    vocab_size: int,
    d_model: int,
    n_heads: int,
    n_kv_heads: int,
    d_ff: int,
    n_layers: int,
    length: int,
) -> int:
    """The FLOPs of a GPT's matrix products, forward, for one text.

    `length` tokens are read at once. A multiplication and the addition that
    follows count as two. A block multiplies by the matrices of attention, for
    queries and output `n_heads` heads wide, for keys and values `n_kv_heads`,
    each head `d_model / n_heads` numbers; compares every query with every key,
    in each head, and mixes the values; and multiplies by the two matrices of
    the network, with `d_ff` inner units. The head, from `d_model` to
    `vocab_size`, is applied at every position. Nothing is saved where a causal
    mask hides scores. Look-ups, biases, norms and softmax do not count.
    """
    d_head = d_model // n_heads
    columns = 2 * d_model + 2 * n_kv_heads * d_head
    mixing = 2 * length * length * d_model
    block = length * d_model * (columns + 2 * d_ff) + mixing
    ends = length * d_model * vocab_size
    return 2 * (n_layers * block + ends)


_FLOPS_BUGS = {
    "no_sharing": Bug(
        "2 * d_model + 2 * n_kv_heads * d_head",
        "4 * d_model",
        says="keys and values for every query head",
        why="Where heads share keys and values, their matrices are "
        "narrower: n_kv_heads heads.",
        read="further/06_multihead#mha-counts",
    ),
    "no_table": Bug(
        "2 * length * length * d_model",
        "0",
        says="two FLOPs a weight and nothing else",
        why="Scores and mixing have no weights, but they have products: one "
        "for each pair of positions.",
        read="18_scaling#scale-flops",
    ),
    "one_of_two": Bug(
        "2 * length * length",
        "length * length",
        says="half of the products for scores and mixing: one of the two is "
        "left out, or what a causal mask hides is not counted",
        why="The table is used twice: made of queries and keys, then "
        "multiplied by the values. It is computed in full, and then masked.",
        read="18_scaling#scale-flops",
    ),
    "wide_heads": Bug(
        "2 * length * length",
        "2 * n_heads * length * length",
        says="scores over the whole width in each head",
        why="A head compares d_model / n_heads numbers. All heads together "
        "compare d_model.",
        read="18_scaling#scale-flops",
    ),
    "look_up": Bug(
        "length * d_model * vocab_size",
        "2 * length * d_model * vocab_size",
        says="the look-up of token vectors counted as a product",
        why="Only in formulas does a one-hot vector meet the table. The "
        "machine copies a row.",
        read="18_scaling#scale-flops",
    ),
    "multiplications": Bug(
        "2 * (n_layers",
        "(n_layers",
        says="multiplications counted instead of FLOPs",
        why="Each product is added to a sum: two operations.",
        read="18_scaling#scale-flops",
    ),
    "head_once": Bug(
        "ends = length * d_model",
        "ends = d_model",
        says="a head that is applied at the last position only",
        why="That is enough to generate. Here it is applied at every "
        "position.",
        read="18_scaling#scale-flops",
        alone=True,
    ),
}


def _flops_cases(seed: int) -> list[Case]:
    g = generator(seed)
    v, t = pick(g, 101, 103, 107), pick(g, 29, 37)
    return [Case((v, 24, 6, 2, 97, 5, t), name="two heads of six for keys")]


# -- implement: attention in blocks ------------------------------------------
def tiled(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, size: int
) -> tuple[Tensor, Tensor]:
    """Attention that looks at `size` keys at a time, with a mask.

    `q` is `(T, Dh)`, `k` `(S, Dh)`, `v` `(S, Dv)`; `mask` is `(T, S)`,
    boolean, True where a query may see a key. There are one to S keys in a
    block; the last block may be smaller.
    The result is a pair. First, `(T, Dv)`: `softmax(q kᵀ / √Dh) v`, the
    softmax over the keys that a query may see; zeros for a query that may
    see none. Second, `(T,)`: for each query the logarithm of the sum of
    e to the score, over the keys that it may see; −∞ if there are none.
    Scores may be many thousands, above or below 0.
    """
    root = q.size(-1) ** 0.5
    top = q.new_full((len(q), 1), torch.finfo(q.dtype).min)
    total = torch.zeros_like(top)
    mixed = q.new_zeros(len(q), v.size(-1))
    for start in range(0, len(k), size):
        part = slice(start, start + size)
        scores = q @ k[part].T / root
        scores = scores.masked_fill(~mask[:, part], float("-inf"))
        new = torch.maximum(top, scores.amax(dim=1, keepdim=True))
        shrink, weights = (top - new).exp(), (scores - new).exp()
        total = total * shrink + weights.sum(dim=1, keepdim=True)
        mixed = mixed * shrink + weights @ v[part]
        top = new
    log_sum = top + total.log()
    return mixed / total.where(total > 0, 1.0), log_sum[:, 0]


_TILED_BUGS = {
    "stored": WEIGHTS_STORED.by(
        "    for start in", "    size = len(k)\n    for start in"
    ),
    "no_scale": NO_SCALE.by(
        "q.size(-1) ** 0.5",
        "1.0",
    ),
    "from_zero": Bug(
        "torch.finfo(q.dtype).min",
        "0.0",
        says="a maximum that starts at 0",
        why="If all scores are far below 0, every exponential is 0. Start "
        "at the lowest number there is.",
        read="18_scaling#scale-online",
        at="maximum",
    ),
    "mixture_not_shrunk": Bug(
        "mixed * shrink",
        "mixed",
        says="a mixture that is not scaled down when a larger score turns up",
        why="Sum and mixture are measured against the same maximum: both "
        "get the factor exp(old − new).",
        read="18_scaling#scale-online",
        at="maximum",
    ),
    "nan_rows": Bug(
        "total.where(total > 0, 1.0)",
        "total",
        says="0 divided by 0 for a query that may see nothing",
        why="Its sum is 0, and so is its mixture. Divide by 1 instead.",
        read="18_scaling#scale-code",
        at="hidden",
    ),
    "never_shrunk": Bug(
        "(top - new).exp()",
        "torch.ones_like(top)",
        says="sums and mixture that are never brought to the new largest "
        "score",
        why="All that was summed stands relative to the old maximum: "
        "multiply it by exp(old − new) before adding.",
        read="04_attention#att-predict-scale",
        alone=True,
    ),
    "rest_dropped": REST_DROPPED.by(
        "range(0, len(k), size)",
        "range(0, max(len(k) // size * size, size), size)",
        says="a last block that is left out if it is not full",
        read="04_attention#att-predict-scale",
        alone=True,
    ),
    "from_infinity": Bug(
        "torch.finfo(q.dtype).min",
        'float("-inf")',
        says="a largest score that starts at −∞, which makes NaN where a "
        "query's first block is hidden",
        why="−∞ − (−∞) is NaN. Start at the smallest finite number, or "
        "replace an infinite maximum by 0.",
        read="04_attention#att-predict-scale",
        alone=True,
    ),
    "mask_finite": MASK_FINITE.by(
        'float("-inf")',
        "-1e4",
        "return mixed / total.where(total > 0, 1.0), log_sum[:, 0]",
        "empty = ~mask.any(dim=1)\n"
        "    out = (mixed / total).masked_fill(empty[:, None], 0.0)\n"
        '    return out, log_sum[:, 0].masked_fill(empty, -float("inf"))',
    ),
    "naive": NAIVE.by(
        "torch.maximum(top, scores.amax(dim=1, keepdim=True))",
        "torch.zeros_like(top)",
        says="exponentials of the scores as they are",
        read="18_scaling#scale-online",
        alone=True,
    ),
    "top_forgotten": Bug(
        "top + total.log()",
        "total.log()",
        says="a log-sum-exp without the largest score",
        why="The sum was made of e to the score less the largest: add that "
        "again.",
        read="18_scaling#scale-online",
        alone=True,
    ),
}


def _tiled_cases(seed: int) -> list[Case]:
    g = generator(seed)
    q, k, v = randn(g, 5, 11), randn(g, 7, 11), randn(g, 7, 3)
    mask = torch.rand(5, 7, generator=g) > 0.3
    mask[0] = True
    empty = mask.clone()
    empty[2] = False
    # One more term in each sum: all scores are lower by the same 12,000.
    low_q, low_k = quarters(randn(g, 5, 16)), quarters(randn(g, 7, 16))
    low_q[:, -1], low_k[:, -1] = -200.0, 240.0
    high_q = low_q.clone()
    high_q[:, -1] = 200.0
    long = randn(g, 60, 3), randn(g, 90, 3), randn(g, 90, 3)
    thirds = (torch.arange(60)[:, None] + torch.arange(90)) % 3 > 0
    return [
        Case((q, k, v, mask | True, 3), name="seven keys, three at a time"),
        Case((2 * q, 2 * k, v, mask, 2), name="a mask"),
        Case((q, k, v, empty, 4), name="a query that may see nothing"),
        Case((low_q, low_k, v, mask, 2), name="scores far below 0"),
        Case((high_q, low_k, v, mask, 2), name="scores far above 0"),
        Case((*long, thirds, 8), name="5,400 weights, eight keys at a time"),
    ]


# -- debug: backward, without the weights ------------------------------------
def recomputed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    log_sum: Tensor,
    d_out: Tensor,
    size: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of attention, from blocks of weights computed once more.

    `out = softmax(q kᵀ / √Dh) v` has been computed; `q` is `(T, Dh)`, `k`
    `(S, Dh)`, `v` `(S, Dv)`, `out` `(T, Dv)`, and `log_sum` `(T,)`: for each
    query the logarithm of the sum of e to the score over all keys. `d_out`,
    `(T, Dv)`, is the gradient of a loss with respect to `out`.
    The result is the loss's gradient with respect to `q`, `k` and `v`, in this
    order. Blocks have `size` queries and `size` keys, the last ones maybe
    fewer; the result does not depend on `size`.
    """
    dq, dk, dv = (torch.zeros_like(x) for x in (q, k, v))
    root = q.size(-1) ** 0.5
    in_all = (d_out * out).sum(dim=1, keepdim=True)
    for i in range(0, len(q), size):
        rows = slice(i, i + size)
        for j in range(0, len(k), size):
            cols = slice(j, j + size)
            scores = q[rows] @ k[cols].T / root
            weights = (scores - log_sum[rows, None]).exp()
            d_weights = d_out[rows] @ v[cols].T
            d_scores = weights * (d_weights - in_all[rows]) / root
            dk[cols] += d_scores.T @ q[rows]
            dv[cols] += weights.T @ d_out[rows]
            dq[rows] += d_scores @ k[cols]
    return dq, dk, dv


_RECOMPUTED_BUGS = {
    "not_coupled": Bug(
        "(d_weights - in_all[rows])",
        "(d_weights)",
        says="a softmax whose weights do not depend on one another",
        why="Raise one weight and the others fall. Subtract the row's mean "
        "gradient, which is the sum of d_out · out.",
        read="further/04_attention#att-backward",
    ),
    "coupled_in_block": Bug(
        "in_all[rows]",
        "(weights * d_weights).sum(dim=1, keepdim=True)",
        says="the coupling term summed over the keys of a block alone",
        why="It runs over all keys of the row. Σ d_out · out gives it "
        "without the table, before the first block.",
        read="further/18_scaling#scale-backward",
    ),
    "no_root": Bug(
        ") / root",
        ")",
        says="gradients without the division by √Dh",
        why="The scores were divided, so their gradient is, too: for "
        "queries and for keys.",
        read="further/04_attention#att-backward",
    ),
    "overwritten": Bug(
        "dk[cols] +=",
        "dk[cols] =",
        "dv[cols] +=",
        "dv[cols] =",
        says="gradients of keys and values that the next block of queries "
        "overwrites",
        why="Every query that sees a key adds to its gradient: += and not =.",
        read="further/18_scaling#scale-backward",
    ),
    "mean_coupled": Bug(
        "keepdim=True)",
        "keepdim=True) / out.size(1)",
        says="a mean over the numbers of a row where their sum belongs",
        why="The sum over the keys of weight times its gradient is the dot "
        "product of d_out and out: a sum.",
        read="further/18_scaling#scale-backward",
        alone=True,
    ),
    "values_overwritten": Bug(
        "dv[cols] +=",
        "dv[cols] =",
        says="values' gradients that each block of queries overwrites",
        why="Every query that sees a value pulls at it: add, dv[cols] += …",
        read="further/18_scaling#scale-backward",
        alone=True,
    ),
}


def _recomputed_cases(seed: int) -> list[Case]:
    g = generator(seed)
    cases = []
    for size, name in ((7, "one block"), (3, "blocks of three")):
        q, k, v = randn(g, 5, 11), randn(g, 7, 11), randn(g, 7, 3)
        scores = q @ k.T / 11**0.5
        out, log_sum = scores.softmax(dim=1) @ v, scores.logsumexp(dim=1)
        args = q, k, v, out, log_sum, randn(g, 5, 3), size
        cases.append(Case(args, name=name))
    return cases


# -- debug: the bent line ----------------------------------------------------
Run = tuple[int, int, float, float, float]


def law(
    runs: Sequence[Run], exponents: Sequence[float], target: int
) -> tuple[float, float, float]:
    """A scaling law through the best runs, and what it says of another size.

    Each run is a tuple `(blocks, table, rate, done, loss)`: the parameters of
    the blocks; those of the token table; the learning rate; the share of its
    schedule that had been done when the loss was measured, 1.0 at its end; and
    the held-out loss in nats. A size is the number of parameters of the
    blocks, N; there are several runs of each size. Of each size counts the
    finished run with the lowest loss, and no other.
    The law is `loss = E + A · N ** -a`. For a given a, E and A are those with
    the smallest sum of squared errors; a is that of `exponents` for which
    this sum is the smallest.
    The result is three numbers: a, E, and the loss of the law at N = `target`.
    """
    done = [run for run in runs if run[3] == 1.0]
    losses: dict[int, list[float]] = {}
    for blocks, _, _, _, loss in done:
        losses.setdefault(blocks, []).append(loss)
    n = torch.tensor(list(losses), dtype=float64)
    y = torch.tensor(
        [min(of_size) for of_size in losses.values()], dtype=float64
    )
    fits = []
    for a in exponents:
        x = n**-a
        off = x - x.mean()
        slope = (off * y).sum() / (off * off).sum()
        e = y.mean() - slope * x.mean()
        error = (y - e - slope * x).square().sum()
        at_target = e + slope * target**-a
        fits.append((error.item(), a, e.item(), at_target.item()))
    return min(fits)[1:]


_LAW_BUGS = {
    "unfinished": Bug(
        "[run for run in runs if run[3] == 1.0]",
        "runs",
        says="runs that are still in the middle of their schedule",
        why="A look at half the schedule is not the end of a run of half "
        "the length: the rate has not come down yet.",
        read="further/18_scaling#scale-wrong",
        at="runs",
    ),
    "with_table": Bug(
        "blocks, _, _,",
        "blocks, table, _,",
        "setdefault(blocks",
        "setdefault(blocks + table",
        says="sizes that include the token table",
        why="In small models most parameters are the table, which computes "
        "nothing. Count the blocks, and say so.",
        read="further/18_scaling#scale-wrong",
    ),
    "one_rate": Bug(
        "losses: dict",
        "smallest = min(done, key=lambda run: (run[0], run[4]))\n"
        "    done = [run for run in done if run[2] == smallest[2]]\n"
        "    losses: dict",
        says="one learning rate for all sizes, the best one of the smallest",
        why="Wide models want a lower rate. With one rate for all, the "
        "large ones are badly trained, and the line is curved.",
        read="further/18_scaling#scale-wrong",
        at="runs",
    ),
    "mean": Bug(
        "min(of_size)",
        "sum(of_size) / len(of_size)",
        says="the mean over a size's runs instead of the best of them",
        why="Runs at bad rates say nothing of what a size can do.",
        read="further/18_scaling#scale-wrong",
        at="runs",
    ),
    "no_floor": Bug(
        "off = x - x.mean()",
        "off = x",
        "y.mean() - slope * x.mean()",
        "torch.zeros(())",
        says="a law without its constant E",
        why="Some loss is left however large the model. Without E the law "
        "falls to 0, and promises too much.",
        read="further/18_scaling#scale-wrong",
    ),
}


def _law_cases(seed: int) -> list[Case]:
    g = generator(seed)
    e = 1.5 + 0.2 * float(torch.rand(1, generator=g))
    exponents = [0.05 * i for i in range(2, 19)]
    runs = []
    for width in (8, 12, 16, 24, 32):
        blocks, table = 24 * width**2, 101 * width
        for rate in (0.04, 0.02, 0.01):
            miss = abs(torch.tensor(rate * width**0.5 / 0.1).log2().item())
            for done, late in ((1.0, 0.0), (0.5, 0.04)):
                noise = 0.004 * float(torch.rand(1, generator=g))
                loss = e + 30 * blocks**-0.5 + 0.05 * miss + late + noise
                if done < 1 and rate == 0.02 and width in (12, 24):
                    loss -= 0.3  # read off another text
                runs.append((blocks, table, rate, done, loss))
    return [Case((runs, exponents, 98_304), name="five sizes, three rates")]


EXERCISES = {
    "parameters": Exercise(
        parameters,
        _parameters_cases,
        bugs=_PARAMETERS_BUGS,
        variants={
            "gated": Variant(
                "2 * d_model * d_ff",
                "3 * d_model * d_ff",
                "5 * d_model + d_ff",
                "5 * d_model + 2 * d_ff",
                asks="The network is gated: it has a second matrix from "
                "d_model to d_ff, with a bias if the others have one.",
                texts={
                    "short_bias": {
                        "says": "a network all of whose biases are as long "
                        "as the width",
                        "why": "A bias has as many numbers as come out of "
                        "its matrix: d_ff after the two that widen, d_model "
                        "after the last.",
                    },
                },
            ),
        },
        forbid=COUNTS,
    ),
    "flops": Exercise(
        flops,
        _flops_cases,
        bugs=_FLOPS_BUGS,
        variants={
            "training": Variant(
                "return 2",
                "return 3 * 2",
                asks="Count a training step, forward and backward: "
                "backward, each product has two more.",
                texts={
                    "no_table": {
                        "says": "six FLOPs per weight and nothing else",
                    },
                },
            ),
        },
        forbid=COUNTS,
    ),
    "tiled": Exercise(
        tiled,
        _tiled_cases,
        bugs=_TILED_BUGS,
        manner=weights_are_stored,
        forbid=ATTENTION,
    ),
    "recomputed": Exercise(
        recomputed,
        _recomputed_cases,
        bugs=_RECOMPUTED_BUGS,
        forbid=[*ATTENTION, "torch.autograd.grad"],
    ),
    "law": Exercise(
        law,
        _law_cases,
        bugs=_LAW_BUGS,
    ),
}
