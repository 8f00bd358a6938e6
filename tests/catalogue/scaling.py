"""Answers to the exercises of chapter 18, right and wrong."""

import math

import numpy as np
import torch
from torch import nn

import coursekit
from coursekit.config import GPTConfig


# -- parameters: right -------------------------------------------------------
def layers(d, d_ff, bias, gates=1):
    yield from (nn.Linear(d, d, bias) for _ in range(4))
    yield from (nn.Linear(d, d_ff, bias) for _ in range(gates))
    yield nn.Linear(d_ff, d, bias)
    yield from (nn.LayerNorm(d, bias=bias) for _ in range(2))


def by_modules(v, p, d, h, d_ff, n, bias, tied):
    made = [nn.Embedding(v, d), nn.Embedding(p, d), nn.LayerNorm(d, bias=bias)]
    for _ in range(n):
        made += layers(d, d_ff, bias)
    if not tied:
        made.append(nn.Linear(d, v, bias=False))
    return sum(x.numel() for m in made for x in m.parameters())


def by_the_course(v, p, d, h, d_ff, n, bias, tied):
    config = GPTConfig(
        vocab_size=v,
        max_len=p,
        d_model=d,
        n_heads=h,
        d_ff=d_ff,
        n_layers=n,
        bias=bias,
        tie_embeddings=tied,
    )
    model = coursekit.GPT(config)
    return sum(x.numel() for x in model.parameters())


def by_shapes(v, p, d, h, d_ff, n, bias, tied):
    block = [(d, d)] * 4 + [(d, d_ff), (d_ff, d), (d,), (d,)]
    if bias:
        block += [(d,)] * 4 + [(d_ff,), (d,)] + [(d,)] * 2
    shapes = [(v, d), (p, d), *block * n, *[(d,)] * (1 + bias)]
    shapes += [] if tied else [(v, d)]
    return sum(math.prod(shape) for shape in shapes)


# -- parameters: wrong -------------------------------------------------------
def each_head(v, p, d, h, d_ff, n, bias, tied):
    more = 4 * n * d * d * (h - 1)
    return by_shapes(v, p, d, h, d_ff, n, bias, tied) + more


def no_biases(v, p, d, h, d_ff, n, bias, tied):
    every = by_shapes(v, p, d, h, d_ff, n, bias, tied)
    return every - n * (5 * d + d_ff) * bias


def no_final_norm(v, p, d, h, d_ff, n, bias, tied):
    return by_shapes(v, p, d, h, d_ff, n, bias, tied) - d * (1 + bias)


def no_positions(v, p, d, h, d_ff, n, bias, tied):
    return by_modules(v, p, d, h, d_ff, n, bias, tied) - p * d


def always_tied(v, p, d, h, d_ff, n, bias, tied):
    return by_modules(v, p, d, h, d_ff, n, bias, True)


def never_tied(v, p, d, h, d_ff, n, bias, tied):
    return by_modules(v, p, d, h, d_ff, n, bias, False)


# -- parameters: mistakes that the catalogue does not have -------------------
def in_bytes(v, p, d, h, d_ff, n, bias, tied):
    return 4 * by_shapes(v, p, d, h, d_ff, n, bias, tied)


def no_output_matrix(v, p, d, h, d_ff, n, bias, tied):
    return by_shapes(v, p, d, h, d_ff, n, bias, tied) - n * d * d


def one_block(v, p, d, h, d_ff, n, bias, tied):
    return by_shapes(v, p, d, h, d_ff, 1, bias, tied)


# -- flops: right ------------------------------------------------------------
def product(rows, inner, columns):
    return rows * columns * 2 * inner


def step_by_step(v, d, h, g, d_ff, n, t):
    size = d // h
    total = 0
    for _ in range(n):
        total += product(t, d, h * size)  # queries
        total += 2 * product(t, d, g * size)  # keys, values
        for _ in range(h):
            total += product(t, size, t) + product(t, t, size)
        total += product(t, h * size, d)
        total += product(t, d, d_ff) + product(t, d_ff, d)
    return total + product(t, d, v)


def in_one_line(v, d, h, g, d_ff, n, t):
    a_block = 2 * d * d + 2 * d * d * g // h + 2 * d * d_ff + 2 * t * d
    return 2 * t * (n * a_block + d * v)


def by_arrays(v, d, h, g, d_ff, n, t):
    inner = np.array([d, d, d, d, d, d_ff, t * h, d // h * h])
    wide = np.array([d, d * g // h, d * g // h, d, d_ff, d, d // h, t])
    return int(2 * t * ((inner * wide).sum() * n + d * v))


# -- flops: wrong ------------------------------------------------------------
def no_sharing(v, d, h, g, d_ff, n, t):
    return in_one_line(v, d, h, h, d_ff, n, t)


def no_table(v, d, h, g, d_ff, n, t):
    return in_one_line(v, d, h, g, d_ff, n, t) - 4 * n * t * t * d


def one_of_two(v, d, h, g, d_ff, n, t):
    return in_one_line(v, d, h, g, d_ff, n, t) - 2 * n * t * t * d


def wide_heads(v, d, h, g, d_ff, n, t):
    more = 4 * n * t * t * d * (h - 1)
    return in_one_line(v, d, h, g, d_ff, n, t) + more


def look_up(v, d, h, g, d_ff, n, t):
    return in_one_line(2 * v, d, h, g, d_ff, n, t)


def multiplications(v, d, h, g, d_ff, n, t):
    return in_one_line(v, d, h, g, d_ff, n, t) // 2


# -- flops: mistakes that the catalogue does not have ------------------------
def one_token(v, d, h, g, d_ff, n, t):
    return in_one_line(v, d, h, g, d_ff, n, t) // t


def half_the_table(v, d, h, g, d_ff, n, t):
    saved = 2 * n * t * (t - 1) * d
    return in_one_line(v, d, h, g, d_ff, n, t) - saved


def one_layer(v, d, h, g, d_ff, n, t):
    return in_one_line(v, d, h, g, d_ff, 1, t)


# -- tiled: right ------------------------------------------------------------
def at_once(q, k, v, mask, size):
    scores = (q @ k.T / math.sqrt(q.size(1))).masked_fill(~mask, -torch.inf)
    log_sum = scores.logsumexp(1)
    weights = scores.softmax(1).nan_to_num(0.0)
    return weights @ v, log_sum


def row_by_row(q, k, v, mask, size):
    outs, sums = [], []
    for query, seen in zip(q, mask, strict=True):
        scores = k[seen] @ query / len(query) ** 0.5
        sums.append(scores.logsumexp(0))
        outs.append(scores.softmax(0) @ v[seen])
    return torch.stack(outs), torch.stack(sums)


def by_log_sums(q, k, v, mask, size):
    # Blocks are mixed by their logarithms, without a running maximum.
    out = torch.zeros(len(q), v.size(1), dtype=q.dtype)
    so_far = torch.full((len(q),), -torch.inf, dtype=q.dtype)
    pieces = (x.split(size) for x in (k, v, mask.T))
    for keys, values, seen in zip(*pieces, strict=True):
        scores = q @ keys.T / q.size(1) ** 0.5
        scores[~seen.T] = -torch.inf
        now = torch.logaddexp(so_far, scores.logsumexp(1))
        safe = now.masked_fill(now.isinf(), 0.0)[:, None]
        out = out * (so_far[:, None] - safe).exp()
        out = out + (scores - safe).exp() @ values
        so_far = now
    return out, so_far


def by_online_softmax(q, k, v, mask, size):
    # The usual one: a running maximum, a sum and a mixture that shrink.
    top = torch.full((len(q), 1), -torch.inf, dtype=q.dtype)
    total, mixed = torch.zeros_like(top), torch.zeros(len(q), v.size(1)).to(q)
    start = 0
    for keys, values in zip(k.split(size), v.split(size), strict=True):
        seen = mask[:, start : start + len(keys)]
        scores = (q @ keys.T / q.size(1) ** 0.5).where(seen, -torch.inf)
        new = top.maximum(scores.amax(1, keepdim=True))
        safe = new.masked_fill(new.isinf(), 0.0)
        p, shrink = (scores - safe).exp(), (top - safe).exp()
        total = total * shrink + p.sum(1, keepdim=True)
        mixed, top = mixed * shrink + p @ values, new
        start += len(keys)
    return mixed / total.where(total > 0, 1.0), (top + total.log())[:, 0]


# -- tiled: wrong ------------------------------------------------------------
def walk(q, k, v, mask, size, start=-1e308, fill=-torch.inf, shrink=(1, 1)):
    """An online softmax one row at a time, with numbers that may be wrong."""
    outs, tops, sums = [], [], []
    for query, seen in zip(q, mask, strict=True):
        top, total = start, torch.zeros((), dtype=q.dtype)
        mixed = torch.zeros_like(v[0])
        for j in range(0, len(k), size):
            scores = k[j : j + size] @ query / len(query) ** 0.5
            scores = scores.where(seen[j : j + size], fill)
            new = max(top, scores.max().item())
            if shrink is None:
                new = max(scores.max().item(), start)
            factor = math.exp(top - new) if top <= new else 1.0
            weights = torch.exp(scores - new)
            first, second = shrink or (0, 0)
            total = total * factor**first + weights.sum()
            mixed = mixed * factor**second + weights @ v[j : j + size]
            top = new
        outs.append(mixed / (total if total > 0 else 1))
        tops.append(top)
        sums.append(total)
    tops = torch.tensor(tops, dtype=q.dtype)
    return torch.stack(outs), tops, torch.stack(sums)


def joined(out, top, total):
    return out, top + total.log()


def no_scale(q, k, v, mask, size):
    return at_once(q * q.size(1) ** 0.5, k, v, mask, size)


def from_zero(q, k, v, mask, size):
    return joined(*walk(q, k, v, mask, size, start=0.0))


def mixture_not_shrunk(q, k, v, mask, size):
    return joined(*walk(q, k, v, mask, size, shrink=(1, 0)))


def first_columns(q, k, v, mask, size):
    columns = torch.arange(len(k)) % size
    return at_once(q, k, v, mask[:, columns], size)


def tiled_mask_finite(q, k, v, mask, size):
    scores = q @ k.T / math.sqrt(q.size(1))
    scores[~mask] = -10_000.0
    out, log_sum = scores.softmax(1) @ v, scores.logsumexp(1)
    for i, seen in enumerate(mask):
        if not seen.any():
            out[i], log_sum[i] = 0.0, -torch.inf
    return out, log_sum


def nan_rows(q, k, v, mask, size):
    scores = (q @ k.T / math.sqrt(q.size(1))).masked_fill(~mask, -torch.inf)
    return scores.softmax(1) @ v, scores.logsumexp(1)


# -- tiled: mistakes that the catalogue does not have ------------------------
def mean_of_blocks(q, k, v, mask, size):
    parts = [
        at_once(q, *x, size)[0]
        for x in zip(
            k.split(size), v.split(size), mask.split(size, 1), strict=True
        )
    ]
    return torch.stack(parts).mean(0), at_once(q, k, v, mask, size)[1]


def upside_down(q, k, v, mask, size):
    return at_once(q, k, v, ~mask, size)


def first_block_only(q, k, v, mask, size):
    return at_once(q, k[:size], v[:size], mask[:, :size], size)


def in_bits(q, k, v, mask, size):
    out, log_sum = at_once(q, k, v, mask, size)
    return out, log_sum / math.log(2)


# -- recomputed: right -------------------------------------------------------
def by_autograd(q, k, v, out, log_sum, d_out, size):
    q, k, v = (x.clone().requires_grad_() for x in (q, k, v))
    y = (q @ k.T / q.size(1) ** 0.5).softmax(1) @ v
    y.backward(d_out)
    return q.grad, k.grad, v.grad


def whole(q, k, v, out, log_sum, d_out, size):
    root = math.sqrt(q.size(1))
    p = torch.exp(q @ k.T / root - log_sum.unsqueeze(1))
    ds = p * (d_out @ v.T - (d_out * out).sum(1, keepdim=True)) / root
    return ds @ k, ds.T @ q, p.T @ d_out


def keys_first(q, k, v, out, log_sum, d_out, size):
    # The loops the other way round, one key at a time.
    root = math.sqrt(q.size(1))
    inner = (d_out * out).sum(1)
    dq, dk, dv = torch.zeros_like(q), [], []
    for key, value in zip(k, v, strict=True):
        p = torch.exp(q @ key / root - log_sum)
        ds = p * (d_out @ value - inner) / root
        dq = dq + ds[:, None] * key
        dk.append(ds @ q)
        dv.append(p @ d_out)
    return dq, torch.stack(dk), torch.stack(dv)


# -- recomputed: wrong -------------------------------------------------------
def table(q, k, v, out, log_sum, d_out, size, weigh=None, couple=None):
    """The parts of the backward pass, as T by S tables made of blocks."""
    root = math.sqrt(q.size(1))
    scores = q @ k.T / root
    blocks = []
    for rows in torch.arange(len(q)).split(size):
        line = []
        for cols in torch.arange(len(k)).split(size):
            tile = scores[rows][:, cols]
            p = (tile - log_sum[rows, None]).exp()
            if weigh is not None:
                p = weigh(tile)
            dp = d_out[rows] @ v[cols].T
            c = (d_out[rows] * out[rows]).sum(1, keepdim=True)
            if couple is not None:
                c = couple(p, dp)
            line.append((p, p * (dp - c) / root))
        blocks.append([torch.cat(x, 1) for x in zip(*line, strict=True)])
    return [torch.cat(x) for x in zip(*blocks, strict=True)]


def gathered(q, k, v, d_out, p, ds):
    return ds @ k, ds.T @ q, p.T @ d_out


def not_coupled(q, k, v, out, log_sum, d_out, size):
    parts = table(
        *(q, k, v, out, log_sum, d_out, size),
        couple=lambda p, dp: 0.0,
    )
    return gathered(q, k, v, d_out, *parts)


def coupled_in_block(q, k, v, out, log_sum, d_out, size):
    parts = table(
        *(q, k, v, out, log_sum, d_out, size),
        couple=lambda p, dp: torch.einsum("ij,ij->i", p, dp)[:, None],
    )
    return gathered(q, k, v, d_out, *parts)


def no_root(q, k, v, out, log_sum, d_out, size):
    dq, dk, dv = whole(q, k, v, out, log_sum, d_out, size)
    return dq * q.size(1) ** 0.5, dk * q.size(1) ** 0.5, dv


def overwritten(q, k, v, out, log_sum, d_out, size):
    # What stays is what the last block of queries gives.
    dq = whole(q, k, v, out, log_sum, d_out, size)[0]
    last = (len(q) - 1) // size * size
    rest = (x[last:] for x in (out, log_sum, d_out))
    _, dk, dv = whole(q[last:], k, v, *rest, size)
    return dq, dk, dv


# -- recomputed: mistakes that the catalogue does not have -------------------
def queries_and_keys_swapped(q, k, v, out, log_sum, d_out, size):
    dq, dk, dv = whole(q, k, v, out, log_sum, d_out, size)
    return dk, dq, dv


def sign_turned(q, k, v, out, log_sum, d_out, size):
    return [-x for x in whole(q, k, v, out, log_sum, d_out, size)]


def coupled_with_the_output(q, k, v, out, log_sum, d_out, size):
    return whole(q, k, v, d_out, log_sum, d_out, size)


# -- law: right --------------------------------------------------------------
def fit(n, y, exponents, floor=True):
    """Exponent and coefficients by numpy's least squares."""
    found = []
    for a in exponents:
        columns = [np.power(n, -a)] + [np.ones_like(n)] * floor
        x = np.stack(columns, 1)
        solved = np.linalg.lstsq(x, y, rcond=None)[0]
        found.append((((x @ solved - y) ** 2).sum(), a, solved))
    _, a, solved = min(found, key=lambda f: f[0])
    return a, (solved[1] if floor else 0.0), solved[0]


def told(points, exponents, target, floor=True):
    n = np.array(sorted(points), dtype=float)
    y = np.array([points[size] for size in sorted(points)])
    a, e, slope = fit(n, y, exponents, floor)
    return a, float(e), float(e + slope * target**-a)


def lowest(runs, key=lambda run: run[0]):
    best = {}
    for run in runs:
        size = key(run)
        best[size] = min(best.get(size, math.inf), run[4])
    return best


def finished(runs):
    return [run for run in runs if run[3] >= 1]


def with_numpy(runs, exponents, target):
    return told(lowest(finished(runs)), exponents, target)


def with_torch(runs, exponents, target):
    best = lowest(finished(runs))
    n = torch.tensor([float(x) for x in best], dtype=torch.float64)
    y = torch.tensor(list(best.values()), dtype=torch.float64)
    found = []
    for a in exponents:
        x = torch.stack([torch.ones_like(n), n ** (-a)], 1)
        solved = torch.linalg.lstsq(x, y[:, None]).solution[:, 0]
        found.append(((x @ solved - y).pow(2).sum().item(), a, solved))
    _, a, (e, slope) = min(found, key=lambda f: f[0])
    return a, e.item(), (e + slope * float(target) ** (-a)).item()


def by_sorting(runs, exponents, target):
    points = {}
    for run in sorted(runs, key=lambda run: -run[4]):
        if run[3] == 1:
            points[run[0]] = run[4]
    return told(points, exponents, target)


# -- law: wrong --------------------------------------------------------------
def unfinished(runs, exponents, target):
    return told(lowest(runs), exponents, target)


def with_table(runs, exponents, target):
    best = lowest(finished(runs), lambda run: run[0] + run[1])
    return told(best, exponents, target)


def one_rate(runs, exponents, target):
    done = finished(runs)
    small = min(run[0] for run in done)
    rate = min((r[4], r[2]) for r in done if r[0] == small)[1]
    return told(lowest([r for r in done if r[2] == rate]), exponents, target)


def mean(runs, exponents, target):
    points = {}
    for run in finished(runs):
        points.setdefault(run[0], []).append(run[4])
    points = {n: float(np.mean(y)) for n, y in points.items()}
    return told(points, exponents, target)


def no_floor(runs, exponents, target):
    return told(lowest(finished(runs)), exponents, target, floor=False)


# -- law: mistakes that the catalogue does not have --------------------------
def worst(runs, exponents, target):
    points = {}
    for run in finished(runs):
        points[run[0]] = max(points.get(run[0], 0), run[4])
    return told(points, exponents, target)


def straight(runs, exponents, target):
    best = lowest(finished(runs))
    x = np.log(np.array(list(best)))
    slope, e = np.polyfit(x, np.array(list(best.values())), 1)
    return -float(slope), float(e), float(e + slope * math.log(target))


def two_sizes(runs, exponents, target):
    best = lowest(finished(runs))
    kept = {n: best[n] for n in sorted(best)[-2:]}
    return told(kept, exponents, target)


def short_bias(
    vocab_size, max_len, d_model, n_heads, d_ff, n_layers, bias, tied
):
    d = d_model
    block = 4 * d * d + 2 * d * d_ff + 2 * d + (8 * d if bias else 0)
    last = d + (d if bias else 0)
    tables = max_len * d + vocab_size * d * (1 if tied else 2)
    return n_layers * block + last + tables


def tiled_never_shrunk(q, k, v, mask, size):
    scores = (q @ k.T / math.sqrt(q.shape[1])).masked_fill(~mask, -math.inf)
    top = torch.full((len(q), 1), torch.finfo(q.dtype).min, dtype=q.dtype)
    total, mixed = torch.zeros_like(top), q.new_zeros(len(q), v.shape[1])
    blocks = zip(scores.split(size, 1), v.split(size), strict=True)
    for s, values in blocks:
        pass
        new = top.maximum(s.max(1, keepdim=True).values)
        factor, e = 1, (s - new).exp()
        total = factor * total + e.sum(1, keepdim=True)
        mixed = factor * mixed + e @ values
        top = new
    empty = total == 0
    return mixed / (total + empty), (top + total.log())[:, 0]


def tiled_rest_dropped(q, k, v, mask, size):
    scores = (q @ k.T / math.sqrt(q.shape[1])).masked_fill(~mask, -math.inf)
    top = torch.full((len(q), 1), torch.finfo(q.dtype).min, dtype=q.dtype)
    total, mixed = torch.zeros_like(top), q.new_zeros(len(q), v.shape[1])
    blocks = zip(scores.split(size, 1), v.split(size), strict=True)
    for s, values in blocks:
        if len(values) < size <= len(k):
            continue
        new = top.maximum(s.max(1, keepdim=True).values)
        factor, e = (top - new).exp(), (s - new).exp()
        total = factor * total + e.sum(1, keepdim=True)
        mixed = factor * mixed + e @ values
        top = new
    empty = total == 0
    return mixed / (total + empty), (top + total.log())[:, 0]


def tiled_from_infinity(q, k, v, mask, size):
    scores = (q @ k.T / math.sqrt(q.shape[1])).masked_fill(~mask, -math.inf)
    top = torch.full((len(q), 1), -math.inf, dtype=q.dtype)
    total, mixed = torch.zeros_like(top), q.new_zeros(len(q), v.shape[1])
    blocks = zip(scores.split(size, 1), v.split(size), strict=True)
    for s, values in blocks:
        pass
        new = top.maximum(s.max(1, keepdim=True).values)
        factor, e = (top - new).exp(), (s - new).exp()
        total = factor * total + e.sum(1, keepdim=True)
        mixed = factor * mixed + e @ values
        top = new
    empty = total == 0
    return mixed / (total + empty), (top + total.log())[:, 0]


def mean_coupled(q, k, v, out, log_sum, d_out, size):
    root = math.sqrt(q.shape[1])
    weights = (q @ k.T / root - log_sum[:, None]).exp()
    d_scores = weights * (d_out @ v.T - (d_out * out).mean(1, keepdim=True))
    return d_scores @ k / root, d_scores.T @ q / root, weights.T @ d_out


def values_overwritten(q, k, v, out, log_sum, d_out, size):
    root = math.sqrt(q.shape[1])
    weights = (q @ k.T / root - log_sum[:, None]).exp()
    d_scores = weights * (d_out @ v.T - (d_out * out).sum(1, keepdim=True))
    last = (len(q) - 1) // size * size
    of_keys, of_values = slice(0, None), slice(last, None)
    dk = d_scores[of_keys].T @ q[of_keys] / root
    return d_scores @ k / root, dk, weights[of_values].T @ d_out[of_values]


def norms_unbiased(
    vocab_size, max_len, d_model, n_heads, d_ff, n_layers, bias, tied
):
    d = d_model
    n = vocab_size * d * (2 - tied) + max_len * d + d
    n += n_layers * (4 * d * d + 2 * d * d_ff + 2 * d)
    return n + n_layers * (5 * d + d_ff) * bias


def head_bias(
    vocab_size, max_len, d_model, n_heads, d_ff, n_layers, bias, tied
):
    d, b = d_model, int(bias)
    block = 4 * (d * d + b * d) + d * d_ff + b * d_ff + d_ff * d + b * d
    block += 2 * (d + b * d)
    head = 0 if tied else (d + b) * vocab_size
    return (vocab_size + max_len) * d + n_layers * block + d + b * d + head


def head_once(
    vocab_size, d_model, n_heads, n_kv_heads, d_ff, n_layers, length
):
    kv = d_model * n_kv_heads // n_heads
    token = 2 * d_model * (d_model + kv) + 2 * d_model * d_ff
    pairs = 2 * length**2 * d_model
    return 2 * n_layers * (length * token + pairs) + 2 * d_model * vocab_size


def naive(q, k, v, mask, size):
    total, mixed = 0, 0
    for start in range(0, len(k), size):
        part = slice(start, start + size)
        e = (q @ k[part].T / q.size(1) ** 0.5).exp()
        e = e.where(mask[:, part], 0.0)
        total, mixed = total + e.sum(1), mixed + e @ v[part]
    return mixed / total.where(total > 0, 1.0)[:, None], total.log()


def top_forgotten(q, k, v, mask, size):
    out, log_sum = at_once(q, k, v, mask, size)
    scores = (q @ k.T / q.size(1) ** 0.5).masked_fill(~mask, -torch.inf)
    top = scores.amax(1)
    return out, torch.where(mask.any(1), log_sum - top, -torch.inf)


RIGHT = {
    "parameters": [by_modules, by_the_course, by_shapes],
    "flops": [step_by_step, in_one_line, by_arrays],
    "tiled": [row_by_row, by_log_sums, by_online_softmax],
    "recomputed": [by_autograd, whole, keys_first],
    "law": [with_numpy, with_torch, by_sorting],
}
WRONG = {
    "parameters": {
        "each_head": each_head,
        "no_biases": no_biases,
        "no_final_norm": no_final_norm,
        "no_positions": no_positions,
        "never_tied": never_tied,
        "short_bias": short_bias,
        "norms_unbiased": norms_unbiased,
    },
    "flops": {
        "no_sharing": no_sharing,
        "no_table": no_table,
        "one_of_two": one_of_two,
        "wide_heads": wide_heads,
        "look_up": look_up,
        "multiplications": multiplications,
        "head_once": head_once,
    },
    "tiled": {
        "stored": at_once,
        "no_scale": no_scale,
        "from_zero": from_zero,
        "mixture_not_shrunk": mixture_not_shrunk,
        "nan_rows": nan_rows,
        "never_shrunk": tiled_never_shrunk,
        "rest_dropped": tiled_rest_dropped,
        "from_infinity": tiled_from_infinity,
        "mask_finite": tiled_mask_finite,
        "naive": naive,
        "top_forgotten": top_forgotten,
    },
    "recomputed": {
        "not_coupled": not_coupled,
        "coupled_in_block": coupled_in_block,
        "no_root": no_root,
        "overwritten": overwritten,
        "mean_coupled": mean_coupled,
        "values_overwritten": values_overwritten,
    },
    "law": {
        "unfinished": unfinished,
        "with_table": with_table,
        "one_rate": one_rate,
        "mean": mean,
        "no_floor": no_floor,
    },
}
OUTSIDE = {
    "parameters": [
        in_bytes,
        no_output_matrix,
        one_block,
        head_bias,
        always_tied,
    ],
    "flops": [one_token, half_the_table, one_layer],
    "tiled": [
        mean_of_blocks,
        upside_down,
        first_block_only,
        in_bits,
        first_columns,
    ],
    "recomputed": [
        queries_and_keys_swapped,
        sign_turned,
        coupled_with_the_output,
    ],
    "law": [worst, straight, two_sizes],
}
