"""Exercises of chapter 18: scaling."""

from collections.abc import Sequence

import torch
from torch import Tensor

from coursekit.classroom.check.core import (
    NONE,
    Bug,
    Case,
    Exercise,
    Switches,
    generator,
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


def draw(g: torch.Generator, *shape: int) -> Tensor:
    """A random tensor in double precision."""
    return torch.randn(shape, generator=g, dtype=float64)


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
    *,
    on: Switches = NONE,
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
    attention = 4 * d_model * d_model
    if "each_head" in on:
        attention = attention * n_heads
    if "four_wide" in on:
        d_ff = 4 * d_model
    matrices = 3 if "gated" in on else 2
    network = matrices * d_model * d_ff
    norm = d_model
    if bias:
        if "no_biases" not in on:
            attention = attention + 4 * d_model
            inner = d_model if "short_bias" in on else d_ff
            network = network + (matrices - 1) * inner + d_model
        norm = 2 * d_model
    norms = n_layers if "one_norm" in on else 2 * n_layers
    if "no_final_norm" not in on:
        norms = norms + 1
    total = n_layers * (attention + network) + norms * norm
    total = total + vocab_size * d_model
    if "no_positions" not in on:
        total = total + max_len * d_model
    if "always_tied" in on:
        head = 0
    elif "never_tied" in on or not tied:
        head = vocab_size * d_model
    else:
        head = 0
    return total + head


_PARAMETERS_BUGS = {
    "each_head": Bug(
        "a full set of matrices for each head",
        "The heads share the width: each has d_model / n_heads columns, so "
        "that all of them together are one d_model by d_model matrix.",
        read="06_multihead#mha-counts",
        at="attention",
    ),
    "four_wide": Bug(
        "a network that is four times as wide as the model, whatever d_ff is",
        "12 D² a block is a rule of thumb for d_ff = 4 D. Count with d_ff.",
        read="18_scaling#scale-weights",
        at="network",
    ),
    "no_biases": Bug(
        "matrices without their biases",
        "Each of the six matrices of a block has one, as long as its output "
        "is wide.",
        read="09_decoder#dec-count",
        at="biases",
    ),
    "one_norm": Bug(
        "one LayerNorm in a block instead of two",
        "One stands before attention, one before the network.",
        read="09_decoder#dec-count",
        at="norms",
    ),
    "no_final_norm": Bug(
        "no LayerNorm after the last block",
        "A pre-norm model normalizes once more before its head.",
        read="09_decoder#dec-count",
        at="final norm",
    ),
    "no_positions": Bug(
        "no table of positions",
        "Learned positions are max_len vectors of d_model numbers.",
        read="09_decoder#dec-count",
        at="positions",
    ),
    "always_tied": Bug(
        "a head that is never counted",
        "Only a tied head is the token table itself. Else it is a matrix "
        "of its own.",
        read="18_scaling#scale-weights",
        at="head",
    ),
    "never_tied": Bug(
        "a head that is always counted, tied or not",
        "Tied means: the same numbers. They are stored, and trained, once.",
        read="18_scaling#scale-weights",
        at="head",
    ),
    "short_bias": Bug(
        "a network both of whose biases are as long as the width",
        "A bias has as many numbers as come out of its matrix: d_ff after "
        "the first, d_model after the second.",
        read="06_multihead#mha-counts",
        alone=True,
    ),
}


def _parameters_cases(seed: int) -> list[Case]:
    g = generator(seed)
    v, p = pick(g, 101, 103, 107), pick(g, 29, 31)
    return [
        Case((v, p, 12, 3, 41, 5, True, True), name="a small one, tied"),
        Case((v, p, 20, 5, 61, 7, False, False), name="no biases, not tied"),
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
    *,
    on: Switches = NONE,
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
    if "no_sharing" in on:
        columns = 4 * d_model
    if "no_table" in on:
        mixing = 0
    elif "one_of_two" in on:
        mixing = length * length * d_model
    elif "one_row" in on:
        mixing = 2 * length * d_model
    elif "wide_heads" in on:
        mixing = 2 * length * length * d_model * n_heads
    else:
        mixing = 2 * length * length * d_model
    block = length * d_model * (columns + 2 * d_ff) + mixing
    ends = length * d_model * vocab_size
    if "no_head" in on:
        ends = 0
    elif "look_up" in on:
        ends = 2 * ends
    each = 1 if "multiplications" in on else 2
    if "training" in on:
        each = 3 * each
    return each * (n_layers * block + ends)


_FLOPS_BUGS = {
    "no_sharing": Bug(
        "keys and values for every query head",
        "Where heads share keys and values, their matrices are narrower: "
        "n_kv_heads heads.",
        read="06_multihead#mha-counts",
        at="projections",
    ),
    "no_table": Bug(
        "two FLOPs a weight and nothing else",
        "Scores and mixing have no weights, but they have products: one for "
        "each pair of positions.",
        read="18_scaling#scale-flops",
        at="scores",
    ),
    "one_of_two": Bug(
        "scores counted, and the mixing of values left out",
        "The table is used twice: made of queries and keys, then multiplied "
        "by the values.",
        read="18_scaling#scale-flops",
        at="scores",
    ),
    "one_row": Bug(
        "scores of a single query",
        "Every position has a query, so there are T · T of them.",
        read="18_scaling#scale-flops",
        at="scores",
    ),
    "wide_heads": Bug(
        "scores over the whole width in each head",
        "A head compares d_model / n_heads numbers. All heads together "
        "compare d_model.",
        read="18_scaling#scale-flops",
        at="scores",
    ),
    "no_head": Bug(
        "no head",
        "The last matrix is as wide as the vocabulary, and applied at every "
        "position.",
        read="18_scaling#scale-flops",
        at="ends",
    ),
    "look_up": Bug(
        "the look-up of token vectors counted as a product",
        "Only in formulas does a one-hot vector meet the table. The machine "
        "copies a row.",
        read="18_scaling#scale-flops",
        at="ends",
    ),
    "multiplications": Bug(
        "multiplications counted instead of FLOPs",
        "Each product is added to a sum: two operations.",
        read="18_scaling#scale-flops",
        at="two",
    ),
}


def _flops_cases(seed: int) -> list[Case]:
    g = generator(seed)
    v, t = pick(g, 101, 103, 107), pick(g, 29, 37)
    return [Case((v, 24, 6, 2, 97, 5, t), name="two heads of six for keys")]


# -- implement: attention in blocks ------------------------------------------
def tiled(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor,
    size: int,
    *,
    on: Switches = NONE,
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
    root = 1.0 if "no_scale" in on else q.size(-1) ** 0.5
    lowest = torch.finfo(q.dtype).min
    top = q.new_full((len(q), 1), 0.0 if "from_zero" in on else lowest)
    total = torch.zeros_like(top)
    mixed = q.new_zeros(len(q), v.size(-1))
    end = len(k)
    if "rest_dropped" in on:
        end = max(end // size * size, size)
    if "from_infinity" in on:
        top = torch.full_like(top, float("-inf"))
    for start in range(0, end, size):
        part = slice(start, start + size)
        scores = q @ k[part].T / root
        seen = (
            mask[:, : len(k[part])] if "first_columns" in on else mask[:, part]
        )
        hidden = -1e9 if "finite" in on else float("-inf")
        scores = scores.masked_fill(~seen, hidden)
        new = torch.maximum(top, scores.amax(dim=1, keepdim=True))
        if "own_maximum" in on:
            new = scores.amax(dim=1, keepdim=True).clamp(min=lowest)
        shrink, weights = (top - new).exp(), (scores - new).exp()
        if "never_shrunk" in on:
            shrink = torch.ones_like(shrink)
        if "own_maximum" in on or "sum_not_shrunk" in on:
            total = total + weights.sum(dim=1, keepdim=True)
        else:
            total = total * shrink + weights.sum(dim=1, keepdim=True)
        if "own_maximum" in on or "mixture_not_shrunk" in on:
            mixed = mixed + weights @ v[part]
        else:
            mixed = mixed * shrink + weights @ v[part]
        top = new
    if "nan_rows" in on:
        out = mixed / total
    else:
        out = mixed / total.where(total > 0, 1.0)
    log_sum = top if "maximum_only" in on else top + total.log()
    return out, log_sum[:, 0]


_TILED_BUGS = {
    "no_scale": Bug(
        "scores without the division by √Dh",
        "Divide by the root of the size of a query.",
        read="04_attention#att-predict-scale",
        at="scale",
    ),
    "from_zero": Bug(
        "a maximum that starts at 0",
        "If all scores are far below 0, every exponential is 0. Start at the "
        "lowest number there is.",
        read="18_scaling#scale-online",
        at="maximum",
    ),
    "own_maximum": Bug(
        "each block measured against its own maximum, and simply added",
        "Numbers with different yardsticks cannot be added. Bring the old "
        "ones to the new maximum first.",
        read="18_scaling#scale-online",
        at="maximum",
    ),
    "sum_not_shrunk": Bug(
        "a sum that is not scaled down when a larger score turns up",
        "Sum and mixture are measured against the same maximum: both get the "
        "factor exp(old − new).",
        read="18_scaling#scale-online",
        at="maximum",
    ),
    "mixture_not_shrunk": Bug(
        "a mixture that is not scaled down when a larger score turns up",
        "Sum and mixture are measured against the same maximum: both get the "
        "factor exp(old − new).",
        read="18_scaling#scale-online",
        at="maximum",
    ),
    "first_columns": Bug(
        "the first columns of the mask used for every block",
        "Block by block, the mask's columns go along with the keys: "
        "mask[:, start : start + size].",
        read="18_scaling#scale-code",
        at="columns",
    ),
    "finite": Bug(
        "hidden scores of −10⁹ instead of −∞",
        "A query that may see nothing then sees all keys alike. And against "
        "real scores that are lower still, the hidden ones win.",
        read="05_masks#mask-wrong",
        at="hidden",
    ),
    "nan_rows": Bug(
        "0 divided by 0 for a query that may see nothing",
        "Its sum is 0, and so is its mixture. Divide by 1 instead.",
        read="18_scaling#scale-code",
        at="hidden",
    ),
    "maximum_only": Bug(
        "the largest score returned as the logarithm of the sum",
        "The sum was measured against it: its logarithm is the maximum plus "
        "the logarithm of the sum so far.",
        read="18_scaling#scale-online",
        at="logarithm",
    ),
    "never_shrunk": Bug(
        "sums and mixture that are never brought to the new largest score",
        "All that was summed stands relative to the old maximum: multiply "
        "it by exp(old − new) before adding.",
        read="04_attention#att-predict-scale",
        alone=True,
    ),
    "rest_dropped": Bug(
        "a last block that is left out if it is not full",
        "There may be fewer keys in the last block, and they count like all "
        "others.",
        read="04_attention#att-predict-scale",
        alone=True,
    ),
    "from_infinity": Bug(
        "a largest score that starts at −∞, which makes NaN where a query's "
        "first block is hidden",
        "−∞ − (−∞) is NaN. Start at the smallest finite number, or replace "
        "an infinite maximum by 0.",
        read="04_attention#att-predict-scale",
        alone=True,
    ),
}


def _tiled_cases(seed: int) -> list[Case]:
    g = generator(seed)
    q, k, v = draw(g, 5, 11), draw(g, 7, 11), draw(g, 7, 3)
    mask = torch.rand(5, 7, generator=g) > 0.3
    mask[0] = True
    empty = mask.clone()
    empty[2] = False
    low = -50 * q.abs(), 50 * k.abs(), v
    return [
        Case((q, k, v, mask | True, 3), name="seven keys, three at a time"),
        Case((2 * q, 2 * k, v, mask, 2), name="a mask"),
        Case((q, k, v, empty, 4), name="a query that may see nothing"),
        Case((*low, mask | True, 2), name="scores far below 0"),
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
    *,
    on: Switches = NONE,
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
    if "mean_coupled" in on:
        in_all = in_all / out.size(1)
    for i in range(0, len(q), size):
        rows = slice(i, i + size)
        for j in range(0, len(k), size):
            cols = slice(j, j + size)
            scores = q[rows] @ k[cols].T / root
            if "softmax_of_block" in on:
                weights = scores.softmax(dim=1)
            elif "not_normalized" in on:
                top = scores.amax(dim=1, keepdim=True)
                weights = (scores - top).exp()
            else:
                weights = (scores - log_sum[rows, None]).exp()
            d_weights = d_out[rows] @ v[cols].T
            if "not_coupled" in on:
                coupling = torch.zeros_like(in_all[rows])
            elif "coupled_in_block" in on:
                coupling = (weights * d_weights).sum(dim=1, keepdim=True)
            else:
                coupling = in_all[rows]
            d_scores = weights * (d_weights - coupling)
            if "no_root" not in on:
                d_scores = d_scores / root
            if "overwritten" in on:
                dk[cols] = d_scores.T @ q[rows]
                dv[cols] = weights.T @ d_out[rows]
            elif "values_overwritten" in on:
                dk[cols] += d_scores.T @ q[rows]
                dv[cols] = weights.T @ d_out[rows]
            elif "keys_overwritten" in on:
                dk[cols] = d_scores.T @ q[rows]
                dv[cols] += weights.T @ d_out[rows]
            else:
                dk[cols] += d_scores.T @ q[rows]
                dv[cols] += weights.T @ d_out[rows]
            if "last_keys" in on:
                dq[rows] = d_scores @ k[cols]
            else:
                dq[rows] += d_scores @ k[cols]
    return dq, dk, dv


_RECOMPUTED_BUGS = {
    "softmax_of_block": Bug(
        "a softmax over the keys of a block alone",
        "The weights of a row sum to 1 over all keys. Take the sum that the "
        "forward pass kept: exp(scores − log_sum).",
        read="18_scaling#scale-backward",
        at="weights",
    ),
    "not_normalized": Bug(
        "exponentials that are not divided by the sum of their row",
        "exp(scores − log_sum) does both at once: it subtracts the maximum "
        "and divides by the sum.",
        read="18_scaling#scale-backward",
        at="weights",
    ),
    "not_coupled": Bug(
        "a softmax whose weights do not depend on one another",
        "Raise one weight and the others fall. Subtract the row's mean "
        "gradient, which is the sum of d_out · out.",
        read="further/04_attention#att-backward",
        at="coupling",
    ),
    "coupled_in_block": Bug(
        "the coupling term summed over the keys of a block alone",
        "It runs over all keys of the row. Σ d_out · out gives it without "
        "the table, before the first block.",
        read="18_scaling#scale-backward",
        at="coupling",
    ),
    "no_root": Bug(
        "gradients without the division by √Dh",
        "The scores were divided, so their gradient is, too: for queries "
        "and for keys.",
        read="further/04_attention#att-backward",
        at="root",
    ),
    "overwritten": Bug(
        "gradients of keys and values that the next block of queries "
        "overwrites",
        "Every query that sees a key adds to its gradient: += and not =.",
        read="18_scaling#scale-backward",
        at="keys",
    ),
    "last_keys": Bug(
        "gradients of queries that the next block of keys overwrites",
        "A query's gradient is a sum over all keys: += and not =.",
        read="18_scaling#scale-backward",
        at="queries",
    ),
    "mean_coupled": Bug(
        "a mean over the numbers of a row where their sum belongs",
        "The sum over the keys of weight times its gradient is the dot "
        "product of d_out and out: a sum.",
        read="18_scaling#scale-backward",
        alone=True,
    ),
    "values_overwritten": Bug(
        "values' gradients that each block of queries overwrites",
        "Every query that sees a value pulls at it: add, dv[cols] += …",
        read="18_scaling#scale-backward",
        alone=True,
    ),
    "keys_overwritten": Bug(
        "keys' gradients that each block of queries overwrites",
        "Every query that sees a key pulls at it: add, dk[cols] += …",
        read="18_scaling#scale-backward",
        alone=True,
    ),
}


def _recomputed_cases(seed: int) -> list[Case]:
    g = generator(seed)
    cases = []
    for size, name in ((7, "one block"), (3, "blocks of three")):
        q, k, v = draw(g, 5, 11), draw(g, 7, 11), draw(g, 7, 3)
        scores = q @ k.T / 11**0.5
        out, log_sum = scores.softmax(dim=1) @ v, scores.logsumexp(dim=1)
        given = q, k, v, out, log_sum, draw(g, 5, 3), size
        cases.append(Case(given, name=name))
    return cases


# -- debug: the bent line ----------------------------------------------------
Run = tuple[int, int, float, float, float]


def law(
    runs: Sequence[Run],
    exponents: Sequence[float],
    target: int,
    *,
    on: Switches = NONE,
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
    if "unfinished" in on:
        counted = list(runs)
    else:
        counted = [run for run in runs if run[3] == 1.0]
    if "one_rate" in on:
        smallest = min(counted, key=lambda run: (run[0], run[4]))
        counted = [run for run in counted if run[2] == smallest[2]]
    points: dict[int, list[float]] = {}
    for blocks, table, _, _, loss in counted:
        size = blocks + table if "with_table" in on else blocks
        points.setdefault(size, []).append(loss)
    if "mean" in on:
        losses = [sum(found) / len(found) for found in points.values()]
    else:
        losses = [min(found) for found in points.values()]
    n = torch.tensor([float(size) for size in points], dtype=float64)
    y = torch.tensor(losses, dtype=float64)
    best = float("inf"), 0.0, 0.0, 0.0
    for a in exponents:
        powers = n**-a
        if "no_floor" in on:
            e = 0.0
            slope = float((powers * y).sum() / (powers * powers).sum())
        else:
            off = powers - powers.mean()
            slope = float((off * y).sum() / (off * off).sum())
            e = float(y.mean() - slope * powers.mean())
        error = float(((y - e - slope * powers) ** 2).sum())
        if error < best[0]:
            best = error, a, e, slope
    _, a, e, slope = best
    return a, e, e + slope * target**-a


_LAW_BUGS = {
    "unfinished": Bug(
        "runs that are still in the middle of their schedule",
        "A look at half the schedule is not the end of a run of half the "
        "length: the rate has not come down yet.",
        read="18_scaling#scale-wrong",
        at="runs",
    ),
    "with_table": Bug(
        "sizes that include the token table",
        "In small models most parameters are the table, which computes "
        "nothing. Count the blocks, and say so.",
        read="18_scaling#scale-wrong",
        at="size",
    ),
    "one_rate": Bug(
        "one learning rate for all sizes, the best one of the smallest",
        "Wide models want a lower rate. With one rate for all, the large "
        "ones are badly trained, and the line is curved.",
        read="18_scaling#scale-wrong",
        at="runs",
    ),
    "mean": Bug(
        "the mean over a size's runs instead of the best of them",
        "Runs at bad rates say nothing of what a size can do.",
        read="18_scaling#scale-wrong",
        at="runs",
    ),
    "no_floor": Bug(
        "a law without its constant E",
        "Some loss is left however large the model. Without E the law "
        "falls to 0, and promises too much.",
        read="18_scaling#scale-wrong",
        at="floor",
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
            "gated": "The network is gated: it has a second matrix from "
            "d_model to d_ff, with a bias if the others have one.",
        },
        forbid=COUNTS,
    ),
    "flops": Exercise(
        flops,
        _flops_cases,
        bugs=_FLOPS_BUGS,
        variants={
            "training": "Count a training step, forward and backward: "
            "backward, each product has two more.",
        },
        forbid=COUNTS,
    ),
    "tiled": Exercise(
        tiled,
        _tiled_cases,
        bugs=_TILED_BUGS,
        alike=[
            (
                {"from_zero"},
                {"from_zero", "finite"},
                "against a maximum of at least 0, e to the −10⁹ is 0 too",
            )
        ],
        forbid=ATTENTION,
    ),
    "recomputed": Exercise(
        recomputed,
        _recomputed_cases,
        bugs=_RECOMPUTED_BUGS,
        forbid=[*ATTENTION, "torch.autograd.grad"],
    ),
    "law": Exercise(law, _law_cases, bugs=_LAW_BUGS),
}
