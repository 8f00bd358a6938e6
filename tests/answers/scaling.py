"""Answers to the exercises of chapter 18."""

import math

import numpy as np
import torch
from torch import nn

import coursekit
from coursekit.config import GPTConfig
from tests.answers import right, wrong

# -- parameters --------------------------------------------------------------


@right("scaling/parameters")
def parameters_on_the_meta_device(
    vocab_size, max_len, d_model, n_heads, d_ff, n_layers, bias, tied
):
    shapes = [(vocab_size, d_model), (max_len, d_model)]
    square = [(d_model, d_model)] * 4
    network = [(d_model, d_ff), (d_ff, d_model)]
    for _ in range(n_layers):
        shapes += square + network + [(d_model,)] * 2
        if bias:
            shapes += [pair[1:] for pair in square + network]
            shapes += [(d_model,)] * 2
    shapes += [(d_model,)] * (1 + bool(bias))
    if not tied:
        shapes.append((d_model, vocab_size))
    return sum(math.prod(shape) for shape in shapes)


@right("scaling/parameters")
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


@right("scaling/parameters")
def one_polynomial(
    vocab_size, max_len, d_model, n_heads, d_ff, n_layers, bias, tied
):
    D, F, L, b = d_model, d_ff, n_layers, int(bool(bias))
    return D * (vocab_size * (2 - bool(tied)) + max_len + 1 + b) + L * (
        D * (4 * D + 2 * F + 2) + b * (7 * D + F)
    )


def layers(d, d_ff, bias, gates=1):
    yield from (nn.Linear(d, d, bias) for _ in range(4))
    yield from (nn.Linear(d, d_ff, bias) for _ in range(gates))
    yield nn.Linear(d_ff, d, bias)
    yield from (nn.LayerNorm(d, bias=bias) for _ in range(2))


@right("scaling/parameters")
def by_modules(v, p, d, h, d_ff, n, bias, tied):
    made = [nn.Embedding(v, d), nn.Embedding(p, d), nn.LayerNorm(d, bias=bias)]
    for _ in range(n):
        made += layers(d, d_ff, bias)
    if not tied:
        made.append(nn.Linear(d, v, bias=False))
    return sum(x.numel() for m in made for x in m.parameters())


@right("scaling/parameters")
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


@right("scaling/parameters")
def by_shapes(v, p, d, h, d_ff, n, bias, tied):
    block = [(d, d)] * 4 + [(d, d_ff), (d_ff, d), (d,), (d,)]
    if bias:
        block += [(d,)] * 4 + [(d_ff,), (d,)] + [(d,)] * 2
    shapes = [(v, d), (p, d), *block * n, *[(d,)] * (1 + bias)]
    shapes += [] if tied else [(v, d)]
    return sum(math.prod(shape) for shape in shapes)


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


@wrong("scaling/parameters", "norms_unbiased")
def norms_without_bias(*sizes, **named):
    return _parameters(*sizes, **named, norm_bias=False)


@wrong("scaling/parameters", "no_final_norm")
def no_last_norm(*sizes, **named):
    return _parameters(*sizes, **named, last_norm=False)


@wrong("scaling/parameters", "no_positions")
def positions_not_counted(*sizes, **named):
    return _parameters(*sizes, **named, positions=False)


@wrong("scaling/parameters", "short_bias")
def short_network_bias(*sizes, **named):
    return _parameters(*sizes, **named, network_bias=False)


@wrong("scaling/parameters", "each_head")
def each_head(v, p, d, h, d_ff, n, bias, tied):
    more = 4 * n * d * d * (h - 1)
    return by_shapes(v, p, d, h, d_ff, n, bias, tied) + more


@wrong("scaling/parameters", "never_tied")
def never_tied(v, p, d, h, d_ff, n, bias, tied):
    return by_modules(v, p, d, h, d_ff, n, bias, False)


@wrong("scaling/parameters", "no_biases")
def no_biases(v, p, d, h, d_ff, n, bias, tied):
    every = by_shapes(v, p, d, h, d_ff, n, bias, tied)
    return every - n * (5 * d + d_ff) * bias


@wrong("scaling/parameters")
def always_tied(v, p, d, h, d_ff, n, bias, tied):
    return by_modules(v, p, d, h, d_ff, n, bias, True)


@wrong("scaling/parameters")
def head_bias(
    vocab_size, max_len, d_model, n_heads, d_ff, n_layers, bias, tied
):
    d, b = d_model, int(bias)
    block = 4 * (d * d + b * d) + d * d_ff + b * d_ff + d_ff * d + b * d
    block += 2 * (d + b * d)
    head = 0 if tied else (d + b) * vocab_size
    return (vocab_size + max_len) * d + n_layers * block + d + b * d + head


@wrong("scaling/parameters")
def head_with_bias(*sizes, **named):
    return _parameters(*sizes, **named, head_bias=True)


# -- flops -------------------------------------------------------------------


@right("scaling/flops")
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


def product(rows, inner, columns):
    return rows * columns * 2 * inner


@right("scaling/flops")
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


@right("scaling/flops")
def in_one_line(v, d, h, g, d_ff, n, t):
    a_block = 2 * d * d + 2 * d * d * g // h + 2 * d * d_ff + 2 * t * d
    return 2 * t * (n * a_block + d * v)


@right("scaling/flops")
def by_arrays(v, d, h, g, d_ff, n, t):
    inner = np.array([d, d, d, d, d, d_ff, t * h, d // h * h])
    wide = np.array([d, d * g // h, d * g // h, d, d_ff, d, d // h, t])
    return int(2 * t * ((inner * wide).sum() * n + d * v))


@wrong("scaling/flops", "multiplications")
def multiplications(v, d, h, g, d_ff, n, t):
    return in_one_line(v, d, h, g, d_ff, n, t) // 2


@wrong("scaling/flops", "no_sharing")
def no_sharing(v, d, h, g, d_ff, n, t):
    return in_one_line(v, d, h, h, d_ff, n, t)


@wrong("scaling/flops", "one_of_two")
def one_of_two(v, d, h, g, d_ff, n, t):
    return in_one_line(v, d, h, g, d_ff, n, t) - 2 * n * t * t * d


@wrong("scaling/flops", "wide_heads")
def wide_heads(v, d, h, g, d_ff, n, t):
    more = 4 * n * t * t * d * (h - 1)
    return in_one_line(v, d, h, g, d_ff, n, t) + more


@wrong("scaling/flops", "head_once")
def head_once(
    vocab_size, d_model, n_heads, n_kv_heads, d_ff, n_layers, length
):
    kv = d_model * n_kv_heads // n_heads
    token = 2 * d_model * (d_model + kv) + 2 * d_model * d_ff
    pairs = 2 * length**2 * d_model
    return 2 * n_layers * (length * token + pairs) + 2 * d_model * vocab_size


@wrong("scaling/flops", "no_table")
def no_table(v, d, h, g, d_ff, n, t):
    return in_one_line(v, d, h, g, d_ff, n, t) - 4 * n * t * t * d


@wrong("scaling/flops", "look_up")
def look_up(v, d, h, g, d_ff, n, t):
    return in_one_line(2 * v, d, h, g, d_ff, n, t)


@wrong("scaling/flops")
def one_token(v, d, h, g, d_ff, n, t):
    return in_one_line(v, d, h, g, d_ff, n, t) // t


@wrong("scaling/flops")
def half_the_table(v, d, h, g, d_ff, n, t):
    saved = 2 * n * t * (t - 1) * d
    return in_one_line(v, d, h, g, d_ff, n, t) - saved


@wrong("scaling/flops")
def one_layer(v, d, h, g, d_ff, n, t):
    return in_one_line(v, d, h, g, d_ff, 1, t)


# -- tiled -------------------------------------------------------------------


@right("scaling/tiled")
def tiled_query_by_query(q, k, v, mask, size):
    outputs, log_sums = [], []
    for asks, sees in zip(q, mask, strict=True):
        keys, values = k[sees], v[sees]
        log_sum = torch.tensor(-math.inf, dtype=q.dtype)
        out = torch.zeros(v.size(1), dtype=q.dtype)
        for part, mix in zip(
            keys.split(size), values.split(size), strict=True
        ):
            if not len(part):
                continue
            scores = part @ asks / asks.numel() ** 0.5
            new = torch.logaddexp(log_sum, scores.logsumexp(0))
            out = out * (log_sum - new).exp() + (scores - new).exp() @ mix
            log_sum = new
        outputs.append(out)
        log_sums.append(log_sum)
    return torch.stack(outputs), torch.stack(log_sums)


@right("scaling/tiled")
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


@right("scaling/tiled")
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


@right("scaling/tiled")
def row_by_row(q, k, v, mask, size):
    outs, sums = [], []
    for query, seen in zip(q, mask, strict=True):
        scores = k[seen] @ query / len(query) ** 0.5
        sums.append(scores.logsumexp(0))
        outs.append(scores.softmax(0) @ v[seen])
    return torch.stack(outs), torch.stack(sums)


@right("scaling/tiled")
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


@right("scaling/tiled")
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


@wrong("scaling/tiled", "never_shrunk")
def never_rescaled(q, k, v, mask, size):
    return _tiled(q, k, v, mask, size, shrinks=False)


@wrong("scaling/tiled", "mixture_not_shrunk")
def mixture_not_rescaled(q, k, v, mask, size):
    return _tiled(q, k, v, mask, size, shrinks_mixed=False)


@wrong("scaling/tiled", "from_infinity")
def begins_at_minus_infinity(q, k, v, mask, size):
    return _tiled(q, k, v, mask, size, lowest=-torch.inf)


@wrong("scaling/tiled", "from_zero")
def begins_at_zero(q, k, v, mask, size):
    return _tiled(q, k, v, mask, size, lowest=0.0)


@wrong("scaling/tiled", "no_scale")
def tiled_not_divided(q, k, v, mask, size):
    return _tiled(q, k, v, mask, size, root=False)


@wrong("scaling/tiled", "rest_dropped")
def full_blocks_only(q, k, v, mask, size):
    return _tiled(q, k, v, mask, size, blocks=max(len(k) // size, 1))


@wrong("scaling/tiled", "top_forgotten")
def without_the_top(q, k, v, mask, size):
    return _tiled(q, k, v, mask, size, with_top=False)


@wrong("scaling/tiled", "stored")
def at_once(q, k, v, mask, size):
    scores = (q @ k.T / math.sqrt(q.size(1))).masked_fill(~mask, -torch.inf)
    log_sum = scores.logsumexp(1)
    weights = scores.softmax(1).nan_to_num(0.0)
    return weights @ v, log_sum


@wrong("scaling/tiled", "nan_rows")
def nan_rows(q, k, v, mask, size):
    scores = (q @ k.T / math.sqrt(q.size(1))).masked_fill(~mask, -torch.inf)
    return scores.softmax(1) @ v, scores.logsumexp(1)


@wrong("scaling/tiled", "mask_finite")
def tiled_mask_finite(q, k, v, mask, size):
    scores = q @ k.T / math.sqrt(q.size(1))
    scores[~mask] = -10_000.0
    out, log_sum = scores.softmax(1) @ v, scores.logsumexp(1)
    for i, seen in enumerate(mask):
        if not seen.any():
            out[i], log_sum[i] = 0.0, -torch.inf
    return out, log_sum


@wrong("scaling/tiled", "naive")
def naive(q, k, v, mask, size):
    total, mixed = 0, 0
    for start in range(0, len(k), size):
        part = slice(start, start + size)
        e = (q @ k[part].T / q.size(1) ** 0.5).exp()
        e = e.where(mask[:, part], 0.0)
        total, mixed = total + e.sum(1), mixed + e @ v[part]
    return mixed / total.where(total > 0, 1.0)[:, None], total.log()


@wrong("scaling/tiled")
def first_columns(q, k, v, mask, size):
    columns = torch.arange(len(k)) % size
    return at_once(q, k, v, mask[:, columns], size)


@wrong("scaling/tiled")
def clamped_before_the_log(q, k, v, mask, size):
    return _tiled(q, k, v, mask, size, clamped_log=True)


@wrong("scaling/tiled")
def tiled_without_maximum(q, k, v, mask, size):
    total = q.new_zeros(len(q))
    mixed = q.new_zeros(len(q), v.size(1))
    for start in range(0, len(k), size):
        part = slice(start, start + size)
        scores = q @ k[part].T / q.size(1) ** 0.5
        e = scores.exp() * mask[:, part]
        total = total + e.sum(1)
        mixed = mixed + e @ v[part]
    return mixed / total.clamp(min=1e-30)[:, None], total.log()


# -- recomputed --------------------------------------------------------------


@right("scaling/recomputed")
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


@right("scaling/recomputed")
def by_autograd(q, k, v, out, log_sum, d_out, size):
    q, k, v = (x.clone().requires_grad_() for x in (q, k, v))
    y = (q @ k.T / q.size(1) ** 0.5).softmax(1) @ v
    y.backward(d_out)
    return q.grad, k.grad, v.grad


@right("scaling/recomputed")
def whole(q, k, v, out, log_sum, d_out, size):
    root = math.sqrt(q.size(1))
    p = torch.exp(q @ k.T / root - log_sum.unsqueeze(1))
    ds = p * (d_out @ v.T - (d_out * out).sum(1, keepdim=True)) / root
    return ds @ k, ds.T @ q, p.T @ d_out


@right("scaling/recomputed")
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


@wrong("scaling/recomputed", "coupled_in_block")
def mean_of_a_block(q, k, v, out, log_sum, d_out, size):
    return _recomputed(q, k, v, out, log_sum, d_out, size, whole=False)


@wrong("scaling/recomputed", "overwritten")
def still_overwritten(q, k, v, out, log_sum, d_out, size):
    return _recomputed(
        q, k, v, out, log_sum, d_out, size, adds_k=False, adds_v=False
    )


@wrong("scaling/recomputed", "values_overwritten")
def values_overwritten(q, k, v, out, log_sum, d_out, size):
    return _recomputed(q, k, v, out, log_sum, d_out, size, adds_v=False)


@wrong("scaling/recomputed", "mean_coupled")
def mean_coupled(q, k, v, out, log_sum, d_out, size):
    root = math.sqrt(q.shape[1])
    weights = (q @ k.T / root - log_sum[:, None]).exp()
    d_scores = weights * (d_out @ v.T - (d_out * out).mean(1, keepdim=True))
    return d_scores @ k / root, d_scores.T @ q / root, weights.T @ d_out


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


@wrong("scaling/recomputed", "not_coupled")
def not_coupled(q, k, v, out, log_sum, d_out, size):
    parts = table(
        *(q, k, v, out, log_sum, d_out, size),
        couple=lambda p, dp: 0.0,
    )
    return gathered(q, k, v, d_out, *parts)


@wrong("scaling/recomputed", "no_root")
def no_root(q, k, v, out, log_sum, d_out, size):
    dq, dk, dv = whole(q, k, v, out, log_sum, d_out, size)
    return dq * q.size(1) ** 0.5, dk * q.size(1) ** 0.5, dv


@wrong("scaling/recomputed")
def sign_turned(q, k, v, out, log_sum, d_out, size):
    return [-x for x in whole(q, k, v, out, log_sum, d_out, size)]


@wrong("scaling/recomputed")
def queries_and_keys_swapped(q, k, v, out, log_sum, d_out, size):
    dq, dk, dv = whole(q, k, v, out, log_sum, d_out, size)
    return dk, dq, dv


@wrong("scaling/recomputed")
def coupled_with_the_output(q, k, v, out, log_sum, d_out, size):
    return whole(q, k, v, d_out, log_sum, d_out, size)


# -- law ---------------------------------------------------------------------


@right("scaling/law")
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


@right("scaling/law")
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


@right("scaling/law")
def with_numpy(runs, exponents, target):
    return told(lowest(finished(runs)), exponents, target)


@right("scaling/law")
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


@right("scaling/law")
def by_sorting(runs, exponents, target):
    points = {}
    for run in sorted(runs, key=lambda run: -run[4]):
        if run[3] == 1:
            points[run[0]] = run[4]
    return told(points, exponents, target)


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


@wrong("scaling/law", "mean")
def still_the_mean(runs, exponents, target):
    return _law(runs, exponents, target, pick=_average)


@wrong("scaling/law", "no_floor")
def still_no_constant(runs, exponents, target):
    return _law(runs, exponents, target, floor=False)


@wrong("scaling/law", "unfinished")
def unfinished_too(runs, exponents, target):
    return _law(runs, exponents, target, finished=False)


@wrong("scaling/law", "with_table")
def table_added(runs, exponents, target):
    return _law(runs, exponents, target, size=lambda run: run[0] + run[1])


@wrong("scaling/law", "one_rate")
def one_rate(runs, exponents, target):
    done = finished(runs)
    small = min(run[0] for run in done)
    rate = min((r[4], r[2]) for r in done if r[0] == small)[1]
    return told(lowest([r for r in done if r[2] == rate]), exponents, target)


# The worst finished run of each size counts.
@wrong("scaling/law")
def worst_runs(runs, exponents, target):
    return _law(runs, exponents, target, pick=max)


@wrong("scaling/law")
def two_sizes(runs, exponents, target):
    best = lowest(finished(runs))
    kept = {n: best[n] for n in sorted(best)[-2:]}
    return told(kept, exponents, target)


@wrong("scaling/law")
def worst(runs, exponents, target):
    points = {}
    for run in finished(runs):
        points[run[0]] = max(points.get(run[0], 0), run[4])
    return told(points, exponents, target)
