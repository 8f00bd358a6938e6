"""Answers to chapter 18, written from its page alone."""

import math

import numpy as np
import torch

from tests.wild import right, wrong

# scaling/parameters


@right("scaling/parameters", "shapes are listed, then multiplied out")
def listed_shapes(
    vocab_size, max_len, d_model, n_heads, d_ff, n_layers, bias, tied
):
    def matrix(n_in, n_out):
        return [(n_in, n_out)] + ([(n_out,)] if bias else [])

    norm = [(d_model,)] * (2 if bias else 1)
    block = norm + 4 * matrix(d_model, d_model)
    block += norm + matrix(d_model, d_ff) + matrix(d_ff, d_model)
    shapes = [(vocab_size, d_model), (max_len, d_model), *norm]
    shapes += n_layers * block
    shapes += [] if tied else [(d_model, vocab_size)]
    return sum(map(math.prod, shapes))


@right("scaling/parameters", "one polynomial")
def one_polynomial(
    vocab_size, max_len, d_model, n_heads, d_ff, n_layers, bias, tied
):
    D, F, L, b = d_model, d_ff, n_layers, int(bool(bias))
    return D * (vocab_size * (2 - bool(tied)) + max_len + 1 + b) + L * (
        D * (4 * D + 2 * F + 2) + b * (7 * D + F)
    )


def _parameters(
    vocab_size,
    max_len,
    d_model,
    n_heads,
    d_ff,
    n_layers,
    bias,
    tied,
    *,
    last_norm=True,
    head_bias=False,
    positions=True,
    norm_bias=True,
    network_bias=True,
):
    D = d_model
    norm = 2 * D if bias and norm_bias else D
    block = 2 * norm + 4 * D * D + 2 * D * d_ff
    if bias:
        block += 4 * D + (d_ff + D if network_bias else 2 * D)
    total = vocab_size * D + n_layers * block
    total += max_len * D * positions + norm * last_norm
    if not tied:
        total += vocab_size * D
    return total + (vocab_size if head_bias and bias else 0)


@wrong("scaling/parameters", "the last norm is forgotten", classic=True)
def no_last_norm(*sizes, **named):
    return _parameters(*sizes, **named, last_norm=False)


@wrong("scaling/parameters", "the head has a bias", classic=True)
def head_with_bias(*sizes, **named):
    return _parameters(*sizes, **named, head_bias=True)


@wrong("scaling/parameters", "positions are not counted", classic=True)
def positions_not_counted(*sizes, **named):
    return _parameters(*sizes, **named, positions=False)


@wrong(
    "scaling/parameters", "norms have no bias, even with bias", classic=True
)
def norms_without_bias(*sizes, **named):
    return _parameters(*sizes, **named, norm_bias=False)


@wrong(
    "scaling/parameters",
    "both biases of the network are as long as the width",
    classic=True,
)
def short_network_bias(*sizes, **named):
    return _parameters(*sizes, **named, network_bias=False)


@wrong(
    "scaling/parameters",
    "the attention's matrices are counted once for each head",
    classic=True,
)
def once_for_each_head(
    vocab_size, max_len, d_model, n_heads, d_ff, n_layers, bias, tied
):
    usual = _parameters(
        vocab_size, max_len, d_model, n_heads, d_ff, n_layers, bias, tied
    )
    return usual + n_layers * 4 * d_model**2 * (n_heads - 1)


@wrong("scaling/parameters", "a shared head is counted as well", classic=False)
def table_twice(
    vocab_size, max_len, d_model, n_heads, d_ff, n_layers, bias, tied
):
    return _parameters(
        vocab_size, max_len, d_model, n_heads, d_ff, n_layers, bias, False
    )


# scaling/flops


@right("scaling/flops", "a list of products, each (rows, inner, columns)")
def list_of_products(
    vocab_size, d_model, n_heads, n_kv_heads, d_ff, n_layers, length
):
    size = d_model // n_heads
    block = [
        (length, d_model, n_heads * size),
        (length, d_model, n_kv_heads * size),
        (length, d_model, n_kv_heads * size),
        *[(length, size, length), (length, length, size)] * n_heads,
        (length, n_heads * size, d_model),
        (length, d_model, d_ff),
        (length, d_ff, d_model),
    ]
    products = n_layers * block + [(length, d_model, vocab_size)]
    return sum(2 * a * b * c for a, b, c in products)


def _flops(
    vocab_size,
    d_model,
    n_heads,
    n_kv_heads,
    d_ff,
    n_layers,
    length,
    *,
    add=2,
    square=1.0,
    kv=None,
    heads=1,
    head_rows=None,
):
    narrow = d_model * (kv or n_kv_heads) // n_heads
    token = 2 * d_model**2 + 2 * d_model * narrow + 2 * d_model * d_ff
    pairs = int(square * 2 * length**2 * d_model * heads)
    rows = head_rows or length
    return add * (
        n_layers * (length * token + pairs) + rows * d_model * vocab_size
    )


@wrong("scaling/flops", "additions are not counted: 1 a weight", classic=True)
def one_a_weight(
    vocab_size, d_model, n_heads, n_kv_heads, d_ff, n_layers, length
):
    return _flops(
        vocab_size, d_model, n_heads, n_kv_heads, d_ff, n_layers, length, add=1
    )


@wrong(
    "scaling/flops", "the causal mask saves half of the scores", classic=True
)
def half_the_square(
    vocab_size, d_model, n_heads, n_kv_heads, d_ff, n_layers, length
):
    return _flops(
        vocab_size,
        d_model,
        n_heads,
        n_kv_heads,
        d_ff,
        n_layers,
        length,
        square=0.5,
    )


@wrong(
    "scaling/flops",
    "all heads have keys and values of their own",
    classic=True,
)
def nothing_shared(
    vocab_size, d_model, n_heads, n_kv_heads, d_ff, n_layers, length
):
    return _flops(
        vocab_size,
        d_model,
        n_heads,
        n_kv_heads,
        d_ff,
        n_layers,
        length,
        kv=n_heads,
    )


@wrong(
    "scaling/flops",
    "scores and mixing are counted d_model wide for each head",
    classic=True,
)
def wide_heads(
    vocab_size, d_model, n_heads, n_kv_heads, d_ff, n_layers, length
):
    return _flops(
        vocab_size,
        d_model,
        n_heads,
        n_kv_heads,
        d_ff,
        n_layers,
        length,
        heads=n_heads,
    )


@wrong(
    "scaling/flops",
    "the head is applied at the last position only",
    classic=True,
)
def head_once(
    vocab_size, d_model, n_heads, n_kv_heads, d_ff, n_layers, length
):
    return _flops(
        vocab_size,
        d_model,
        n_heads,
        n_kv_heads,
        d_ff,
        n_layers,
        length,
        head_rows=1,
    )


@wrong(
    "scaling/flops",
    "two a weight and token, and no scores at all",
    classic=True,
)
def weights_alone(
    vocab_size, d_model, n_heads, n_kv_heads, d_ff, n_layers, length
):
    return _flops(
        vocab_size,
        d_model,
        n_heads,
        n_kv_heads,
        d_ff,
        n_layers,
        length,
        square=0.0,
    )


# scaling/tiled


@right("scaling/tiled", "each block finished by itself, joined at the end")
def joined_at_the_end(q, k, v, mask, size):
    outs, sums = [], []
    for start in range(0, len(k), size):
        some = slice(start, start + size)
        s = (q @ k[some].T) / q.size(1) ** 0.5
        s = s.masked_fill(~mask[:, some], -torch.inf)
        top = s.amax(1, keepdim=True)
        top = torch.where(top == -torch.inf, torch.zeros_like(top), top)
        e = (s - top).exp()
        total = e.sum(1, keepdim=True)
        outs.append((e @ v[some]) / torch.where(total > 0, total, 1.0))
        sums.append((top + total.log())[:, 0])
    sums = torch.stack(sums)  # (blocks, T)
    top = sums.max(0).values
    top = top.masked_fill(top == -torch.inf, 0.0)
    shares = (sums - top).exp()
    total = shares.sum(0)
    out = torch.einsum("bt,btd->td", shares, torch.stack(outs))
    out = out / torch.where(total > 0, total, 1.0)[:, None]
    return out, top + total.log()


@right("scaling/tiled", "query by query, with floats of Python")
def query_by_query(q, k, v, mask, size):
    outs, sums = [], []
    for t, query in enumerate(q.tolist()):
        top, total, mixed = -math.inf, 0.0, [0.0] * v.shape[1]
        for start in range(0, len(k), size):
            tile = []
            for j in range(start, min(start + size, len(k))):
                if mask[t, j]:
                    key = k[j].tolist()
                    dot = sum(a * b for a, b in zip(query, key, strict=True))
                    tile.append((dot / math.sqrt(len(query)), v[j].tolist()))
            if not tile:
                continue
            new = max(top, max(score for score, _ in tile))
            shrink = math.exp(top - new)
            total *= shrink
            mixed = [x * shrink for x in mixed]
            for score, value in tile:
                weight = math.exp(score - new)
                total += weight
                mixed = [
                    x + weight * y for x, y in zip(mixed, value, strict=True)
                ]
            top = new
        outs.append([x / total for x in mixed] if total else mixed)
        sums.append(top + math.log(total) if total else -math.inf)
    return (
        torch.tensor(outs, dtype=q.dtype),
        torch.tensor(sums, dtype=q.dtype),
    )


def _tiled(
    q,
    k,
    v,
    mask,
    size,
    *,
    lowest=None,
    shrinks=True,
    shrinks_mixed=True,
    root=True,
    clamped_log=False,
    blocks=None,
    with_top=True,
):
    if lowest is None:
        lowest = torch.finfo(q.dtype).min
    top = torch.full((len(q), 1), lowest, dtype=q.dtype)
    total, mixed = torch.zeros_like(top), q.new_zeros(len(q), v.size(1))
    for block in range(blocks or math.ceil(len(k) / size)):
        cols = slice(block * size, (block + 1) * size)
        scores = q @ k[cols].T
        if root:
            scores = scores / q.size(1) ** 0.5
        scores = scores.masked_fill(~mask[:, cols], -torch.inf)
        new = torch.maximum(top, scores.amax(1, keepdim=True))
        shrink, e = (top - new).exp(), (scores - new).exp()
        if not shrinks:
            shrink = torch.ones_like(shrink)
        total = total * shrink + e.sum(1, keepdim=True)
        mixed = mixed * (shrink if shrinks_mixed else 1) + e @ v[cols]
        top = new
    if clamped_log:
        total = total.clamp(min=1)
    log_sum = total.log() + (top if with_top else 0)
    return mixed / total.clamp(min=1), log_sum[:, 0]


@wrong(
    "scaling/tiled",
    "sums and mixture are never brought to the new largest score",
    classic=True,
)
def never_rescaled(q, k, v, mask, size):
    return _tiled(q, k, v, mask, size, shrinks=False)


@wrong(
    "scaling/tiled", "the sum is rescaled, the mixture is not", classic=True
)
def mixture_not_rescaled(q, k, v, mask, size):
    return _tiled(q, k, v, mask, size, shrinks_mixed=False)


@wrong(
    "scaling/tiled",
    "the largest score begins at -inf: NaN for a query "
    "whose first block is hidden",
    classic=True,
)
def begins_at_minus_infinity(q, k, v, mask, size):
    return _tiled(q, k, v, mask, size, lowest=-torch.inf)


@wrong(
    "scaling/tiled",
    "the largest score begins at 0, so that very low scores vanish",
    classic=True,
)
def begins_at_zero(q, k, v, mask, size):
    return _tiled(q, k, v, mask, size, lowest=0.0)


@wrong(
    "scaling/tiled",
    "scores are not divided by the root of the size",
    classic=True,
)
def tiled_not_divided(q, k, v, mask, size):
    return _tiled(q, k, v, mask, size, root=False)


@wrong(
    "scaling/tiled",
    "the sum is clamped before its logarithm: a query "
    "that sees nothing gets the lowest number, not -inf",
    classic=True,
)
def clamped_before_the_log(q, k, v, mask, size):
    return _tiled(q, k, v, mask, size, clamped_log=True)


@wrong(
    "scaling/tiled",
    "the last block is left out if it is not full",
    classic=True,
)
def full_blocks_only(q, k, v, mask, size):
    return _tiled(q, k, v, mask, size, blocks=max(len(k) // size, 1))


@wrong(
    "scaling/tiled", "the log-sum-exp lacks the largest score", classic=True
)
def without_the_top(q, k, v, mask, size):
    return _tiled(q, k, v, mask, size, with_top=False)


@wrong("scaling/tiled", "the mask is ignored", classic=False)
def mask_ignored(q, k, v, mask, size):
    return _tiled(q, k, v, torch.ones_like(mask), size)


# scaling/recomputed


@right("scaling/recomputed", "keys outside, queries inside, in lists")
def keys_outside(q, k, v, out, log_sum, d_out, size):
    root = math.sqrt(q.shape[1])
    c = torch.einsum("td,td->t", d_out, out)
    n_rows = range(0, q.shape[0], size)
    dq = [torch.zeros_like(q[i : i + size]) for i in n_rows]
    dk, dv = [], []
    for j in range(0, k.shape[0], size):
        keys, values = k[j : j + size], v[j : j + size]
        own_k, own_v = torch.zeros_like(keys), torch.zeros_like(values)
        for number, i in enumerate(n_rows):
            asks, d = q[i : i + size], d_out[i : i + size]
            p = torch.exp(
                asks @ keys.mT / root - log_sum[i : i + size].unsqueeze(1)
            )
            ds = p * (d @ values.mT - c[i : i + size].unsqueeze(1)) / root
            dq[number] = dq[number] + ds @ keys
            own_k = own_k + ds.mT @ asks
            own_v = own_v + p.mT @ d
        dk.append(own_k)
        dv.append(own_v)
    return torch.cat(dq), torch.cat(dk), torch.cat(dv)


def _recomputed(
    q,
    k,
    v,
    out,
    log_sum,
    d_out,
    size,
    *,
    whole=True,
    adds_k=True,
    adds_v=True,
    in_all=None,
):
    dq, dk, dv = (torch.zeros_like(x) for x in (q, k, v))
    root = q.size(-1) ** 0.5
    if in_all is None:
        in_all = (d_out * out).sum(1, keepdim=True)
    for i in range(0, len(q), size):
        rows = slice(i, i + size)
        for j in range(0, len(k), size):
            cols = slice(j, j + size)
            scores = q[rows] @ k[cols].T / root
            weights = (scores - log_sum[rows, None]).exp()
            d_weights = d_out[rows] @ v[cols].T
            mean = (weights * d_weights).sum(1, keepdim=True)
            if whole:
                mean = in_all[rows]
            d_scores = weights * (d_weights - mean) / root
            dq[rows] += d_scores @ k[cols]
            old_k = dk[cols] if adds_k else 0
            old_v = dv[cols] if adds_v else 0
            dk[cols] = old_k + d_scores.T @ q[rows]
            dv[cols] = old_v + weights.T @ d_out[rows]
    return dq, dk, dv


@wrong(
    "scaling/recomputed",
    "keys and values add up, but the row's mean is still that of a block",
    classic=True,
)
def mean_of_a_block(q, k, v, out, log_sum, d_out, size):
    return _recomputed(q, k, v, out, log_sum, d_out, size, whole=False)


@wrong(
    "scaling/recomputed",
    "the row's mean is whole, but gradients of "
    "keys and values are still overwritten",
    classic=True,
)
def still_overwritten(q, k, v, out, log_sum, d_out, size):
    return _recomputed(
        q, k, v, out, log_sum, d_out, size, adds_k=False, adds_v=False
    )


@wrong(
    "scaling/recomputed",
    "keys add up, values are still overwritten",
    classic=True,
)
def values_overwritten(q, k, v, out, log_sum, d_out, size):
    return _recomputed(q, k, v, out, log_sum, d_out, size, adds_v=False)


@wrong(
    "scaling/recomputed",
    "the mean over a row's numbers in place of their sum",
    classic=True,
)
def mean_in_place_of_sum(q, k, v, out, log_sum, d_out, size):
    return _recomputed(
        q,
        k,
        v,
        out,
        log_sum,
        d_out,
        size,
        in_all=(d_out * out).mean(1, keepdim=True),
    )


@wrong(
    "scaling/recomputed",
    "nothing is taken away from the gradient of "
    "the weights, as if the softmax had no sum",
    classic=False,
)
def nothing_taken_away(q, k, v, out, log_sum, d_out, size):
    return _recomputed(
        q,
        k,
        v,
        out,
        log_sum,
        d_out,
        size,
        in_all=torch.zeros_like(log_sum)[:, None],
    )


# scaling/law


@right("scaling/law", "numpy's least squares, and a dict of best runs")
def by_lstsq(runs, exponents, target):
    best = {}
    for blocks, _, _, done, loss in runs:
        if done == 1.0:
            best[blocks] = min(loss, best.get(blocks, math.inf))
    n = np.array(list(best), dtype=float)
    y = np.array(list(best.values()), dtype=float)
    found = []
    for a in map(float, exponents):
        lines = np.stack([np.ones_like(n), n**-a], 1)
        (E, A), *_ = np.linalg.lstsq(lines, y, rcond=None)
        error = ((lines @ np.array([E, A]) - y) ** 2).sum()
        found.append((error, a, E, A))
    _, a, E, A = min(found)
    return a, float(E), float(E + A * target**-a)


@right("scaling/law", "covariance over variance, sums written out")
def covariance(runs, exponents, target):
    sizes = sorted({r[0] for r in runs if r[3] == 1.0})
    losses = [
        min(r[4] for r in runs if r[0] == s and r[3] == 1.0) for s in sizes
    ]
    middle = math.fsum(losses) / len(losses)

    def fitted(a):
        x = [s**-a for s in sizes]
        center = math.fsum(x) / len(x)
        above = [u - center for u in x]
        A = math.fsum(
            u * (y - middle) for u, y in zip(above, losses, strict=True)
        )
        A /= math.fsum(u * u for u in above)
        E = middle - A * center
        error = math.fsum(
            (E + A * u - y) ** 2 for u, y in zip(x, losses, strict=True)
        )
        return error, E, A

    a = min((float(a) for a in exponents), key=lambda a: fitted(a)[0])
    _, E, A = fitted(a)
    return a, E, E + A * target**-a


def _law(
    runs, exponents, target, *, pick=min, finished=True, size=None, floor=True
):
    size = size or (lambda run: run[0])
    if finished:
        runs = [run for run in runs if run[3] == 1.0]
    sizes = sorted({size(run) for run in runs})
    y = np.array([pick([r[4] for r in runs if size(r) == s]) for s in sizes])
    found = []
    for a in map(float, exponents):
        x = np.array(sizes, dtype=float) ** -a
        if floor:
            A = ((x - x.mean()) * y).sum() / ((x - x.mean()) ** 2).sum()
            E = y.mean() - A * x.mean()
        else:
            A, E = (x * y).sum() / (x * x).sum(), 0.0
        error = ((E + A * x - y) ** 2).sum()
        found.append((error, a, float(E), float(E + A * target**-a)))
    return min(found)[1:]


def _average(losses):
    return sum(losses) / len(losses)


@wrong(
    "scaling/law",
    "the law has its constant, but a size's mean over all "
    "learning rates still counts",
    classic=True,
)
def still_the_mean(runs, exponents, target):
    return _law(runs, exponents, target, pick=_average)


@wrong(
    "scaling/law",
    "the best runs count, but the law has no constant",
    classic=True,
)
def still_no_constant(runs, exponents, target):
    return _law(runs, exponents, target, floor=False)


@wrong("scaling/law", "runs that are not finished count, too", classic=True)
def unfinished_too(runs, exponents, target):
    return _law(runs, exponents, target, finished=False)


@wrong(
    "scaling/law",
    "the table's weights are added to those of the blocks",
    classic=True,
)
def table_added(runs, exponents, target):
    return _law(runs, exponents, target, size=lambda run: run[0] + run[1])


@wrong(
    "scaling/law", "the worst finished run of each size counts", classic=False
)
def worst_runs(runs, exponents, target):
    return _law(runs, exponents, target, pick=max)
