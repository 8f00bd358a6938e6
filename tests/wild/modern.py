"""Answers to chapter 15, written from its page alone."""

import cmath
import math

import torch
from torch.nn import functional as F

from tests.wild import right, wrong

# modern/rope


@right("modern/rope", "complex numbers of torch, in double precision")
def complex_pairs(x, positions, base):
    n = x.size(-1)
    pace = base ** (-torch.arange(0, n, 2, dtype=torch.float64) / n)
    angles = positions.double().unsqueeze(-1) * pace
    if positions.dim() == 2:
        angles = angles.unsqueeze(1)
    z = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())
    z = z * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(z).flatten(-2).to(x.dtype)


@right("modern/rope", "four nested loops and cmath")
def four_loops(x, positions, base):
    B, H, T, n = x.shape
    out = x.detach().clone()
    places = positions.expand(B, T).tolist()
    for b in range(B):
        for h in range(H):
            for t in range(T):
                row = x[b, h, t].tolist()
                for i in range(n // 2):
                    angle = places[b][t] * base ** (-2 * i / n)
                    z = complex(*row[2 * i : 2 * i + 2]) * cmath.rect(1, angle)
                    out[b, h, t, 2 * i] = z.real
                    out[b, h, t, 2 * i + 1] = z.imag
    return out


def _rope(x, positions, base, *, step=2, sign=1.0, shift=0, axis=True):
    n = x.size(-1)
    pace = base ** (-step * torch.arange(n // 2, dtype=x.dtype) / n)
    angles = (positions[..., None] + shift) * pace
    if positions.dim() == 2 and axis:
        angles = angles[:, None]
    cos, sin = angles.cos(), sign * angles.sin()
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


@wrong("modern/rope", "halves are pairs, not neighbors", classic=True)
def halves_are_pairs(x, positions, base):
    n = x.size(-1)
    order = torch.arange(n).view(2, -1).T.flatten()
    turned = _rope(x[..., order], positions, base)
    return turned[..., order.argsort()]


@wrong("modern/rope", "turns the other way round", classic=True)
def other_way_round(x, positions, base):
    return _rope(x, positions, base, sign=-1.0)


@wrong(
    "modern/rope", "the exponent is i / Dh instead of 2 i / Dh", classic=True
)
def half_the_exponent(x, positions, base):
    return _rope(x, positions, base, step=1)


@wrong(
    "modern/rope",
    "first numbers of all pairs come first in the result, "
    "then all second ones",
    classic=True,
)
def not_put_back(x, positions, base):
    turned = _rope(x, positions, base)
    return torch.cat([turned[..., 0::2], turned[..., 1::2]], dim=-1)


@wrong(
    "modern/rope",
    "positions of their own, (B, T), have no axis for the heads",
    classic=True,
)
def no_axis_for_heads(x, positions, base):
    return _rope(x, positions, base, axis=False)


@wrong("modern/rope", "positions are counted from 1", classic=True)
def positions_from_one(x, positions, base):
    return _rope(x, positions, base, shift=1)


@wrong(
    "modern/rope",
    "positions are ignored: row number is position",
    classic=True,
)
def row_is_position(x, positions, base):
    return _rope(x, torch.arange(x.size(2)), base)


@wrong(
    "modern/rope",
    "the first number of a pair is overwritten before the "
    "second is computed from it",
    classic=False,
)
def overwritten_too_soon(x, positions, base):
    n, out = x.size(-1), x.clone()
    pace = base ** (-2 * torch.arange(n // 2, dtype=x.dtype) / n)
    angles = positions[..., None] * pace
    if positions.dim() == 2:
        angles = angles[:, None]
    cos, sin = angles.cos(), angles.sin()
    out[..., 0::2] = out[..., 0::2] * cos - out[..., 1::2] * sin
    out[..., 1::2] = out[..., 0::2] * sin + out[..., 1::2] * cos
    return out


# modern/converted


@right("modern/converted", "a list of row numbers, head by head")
def row_numbers(w, n_heads):
    size = len(w) // n_heads
    order = []
    for head in range(n_heads):
        for i in range(size // 2):
            first = head * size + i
            order += [first, first + size // 2]
    return w[order]


@right("modern/converted", "multiplied by a matrix of zeros and ones")
def by_permutation_matrix(w, n_heads):
    rows = w.size(0)
    size = rows // n_heads
    swap = torch.zeros(rows, rows, dtype=w.dtype)
    for new in range(rows):
        head, place = divmod(new, size)
        pair, second = divmod(place, 2)
        swap[new, head * size + pair + second * (size // 2)] = 1
    return swap @ w


@wrong(
    "modern/converted", "the way back: from neighbors to halves", classic=True
)
def way_back(w, n_heads):
    heads = w.unflatten(0, (n_heads, -1, 2))
    return heads.transpose(1, 2).flatten(0, 2)


@wrong(
    "modern/converted",
    "the whole matrix is cut in two halves, not each head",
    classic=True,
)
def heads_forgotten(w, n_heads):
    return torch.stack(w.chunk(2), dim=1).flatten(0, 1)


@wrong("modern/converted", "the columns are moved, not the rows", classic=True)
def columns_moved(w, n_heads):
    order = torch.arange(w.size(1)).view(2, -1).T.flatten()
    return w[:, order]


@wrong(
    "modern/converted",
    "reshaped there and back, which moves nothing",
    classic=False,
)
def moves_nothing(w, n_heads):
    return w.unflatten(0, (n_heads, 2, -1)).reshape(w.shape)


# modern/window


@right("modern/window", "lists of comparisons")
def list_of_comparisons(size, n_queries, n_keys):
    past = n_keys - n_queries
    return torch.tensor(
        [
            [i - size < j <= i for j in range(n_keys)]
            for i in range(past, past + n_queries)
        ]
    ).reshape(n_queries, n_keys)


@right("modern/window", "a row that is rolled on, from the last query up")
def rolled_row(size, n_queries, n_keys):
    out = torch.zeros(n_queries, n_keys, dtype=torch.bool)
    stop = n_keys
    for row in reversed(range(n_queries)):
        out[row, max(stop - size, 0) : stop] = True
        stop -= 1
    return out


@wrong(
    "modern/window",
    "size keys before the query and itself: one too many",
    classic=True,
)
def one_key_too_many(size, n_queries, n_keys):
    i = torch.arange(n_keys)[-n_queries:, None]
    back = i - torch.arange(n_keys)
    return (back >= 0) & (back <= size)


@wrong(
    "modern/window",
    "queries are taken for the first positions, not for the last",
    classic=True,
)
def queries_first(size, n_queries, n_keys):
    back = torch.arange(n_queries)[:, None] - torch.arange(n_keys)
    return (back >= 0) & (back < size)


@wrong("modern/window", "looks ahead as well as back", classic=True)
def both_sides(size, n_queries, n_keys):
    i = torch.arange(n_keys - n_queries, n_keys)[:, None]
    return (i - torch.arange(n_keys)).abs() < size


@wrong("modern/window", "True where a query may not attend", classic=True)
def upside_down(size, n_queries, n_keys):
    back = torch.arange(n_keys - n_queries, n_keys)[:, None] - torch.arange(
        n_keys
    )
    return (back < 0) | (back >= size)


@wrong(
    "modern/window",
    "ones and zeros of floating point, not booleans",
    classic=False,
)
def ones_and_zeros(size, n_queries, n_keys):
    ones = torch.ones(n_queries, n_keys).tril(n_keys - n_queries)
    return ones.triu(n_keys - n_queries - size + 1)


# modern/gated


@right("modern/gated", "token by token, unit by unit")
def unit_by_unit(x, w_gate, w_in, w_out):
    rows = []
    for token in x:
        out = torch.zeros_like(w_out[0])
        for j in range(w_in.shape[1]):
            z = token @ w_gate[:, j]
            out = out + z * torch.sigmoid(z) * (token @ w_in[:, j]) * w_out[j]
        rows.append(out)
    return torch.stack(rows)


@right("modern/gated", "both matrices side by side, one product, tanh")
def side_by_side(x, w_gate, w_in, w_out):
    z, inner = (x @ torch.cat((w_gate, w_in), 1)).chunk(2, dim=-1)
    opening = z * (1 + torch.tanh(z / 2)) / 2
    return torch.einsum("tf,tf,fd->td", opening, inner, w_out)


@wrong(
    "modern/gated", "the inner numbers are bent, not the gate", classic=True
)
def inner_bent(x, w_gate, w_in, w_out):
    return ((x @ w_gate) * F.silu(x @ w_in)) @ w_out


@wrong("modern/gated", "the gate is a sigmoid, without its z", classic=True)
def plain_sigmoid(x, w_gate, w_in, w_out):
    return (torch.sigmoid(x @ w_gate) * (x @ w_in)) @ w_out


@wrong("modern/gated", "GELU instead of silu", classic=True)
def gelu_gate(x, w_gate, w_in, w_out):
    return (F.gelu(x @ w_gate) * (x @ w_in)) @ w_out


@wrong("modern/gated", "added, not multiplied", classic=True)
def added(x, w_gate, w_in, w_out):
    return (F.silu(x @ w_gate) + x @ w_in) @ w_out


@wrong("modern/gated", "the product of both is bent", classic=True)
def product_bent(x, w_gate, w_in, w_out):
    return F.silu((x @ w_gate) * (x @ w_in)) @ w_out


# modern/mixture


@right("modern/mixture", "row by row, experts asked about one row at a time")
def one_row_at_a_time(x, router, experts, n_active):
    out = []
    for row in x:
        logits = row @ router
        best = sorted(range(len(experts)), key=logits.tolist().__getitem__)
        best = best[::-1][:n_active]
        powers = [(logits[e] - logits[best[0]]).exp() for e in best]
        y = torch.zeros_like(row)
        for e, power in zip(best, powers, strict=True):
            y = y + power / sum(powers) * experts[e](row[None])[0]
        out.append(y)
    return torch.stack(out)


@right("modern/mixture", "all experts read all rows; most weights are 0")
def dense(x, router, experts, n_active):
    logits = x @ router
    least = logits.sort(-1, descending=True).values[:, n_active - 1, None]
    hidden = logits.masked_fill(logits < least, float("-inf"))
    everything = torch.stack([expert(x) for expert in experts], dim=1)
    return torch.einsum("ne,ned->nd", hidden.softmax(-1), everything)


def _mixture(x, experts, chosen, weights):
    out = torch.zeros_like(x)
    for number, expert in enumerate(experts):
        row, place = (chosen == number).nonzero(as_tuple=True)
        if len(row):
            out[row] += weights[row, place, None] * expert(x[row])
    return out


@wrong(
    "modern/mixture",
    "the softmax runs over all experts, so that the "
    "weights of the chosen do not sum to 1",
    classic=True,
)
def softmax_over_all(x, router, experts, n_active):
    p = (x @ router).softmax(-1)
    weights, chosen = p.topk(n_active, dim=-1)
    return _mixture(x, experts, chosen, weights)


@wrong("modern/mixture", "the chosen experts are averaged", classic=True)
def averaged(x, router, experts, n_active):
    _, chosen = (x @ router).topk(n_active, dim=-1)
    weights = torch.full(chosen.shape, 1 / n_active, dtype=x.dtype)
    return _mixture(x, experts, chosen, weights)


@wrong("modern/mixture", "the softmax runs over the tokens", classic=True)
def softmax_over_tokens(x, router, experts, n_active):
    values, chosen = (x @ router).topk(n_active, dim=-1)
    return _mixture(x, experts, chosen, values.softmax(0))


@wrong(
    "modern/mixture",
    "the first of a row's weights is taken for all of its experts",
    classic=True,
)
def first_weight_for_all(x, router, experts, n_active):
    values, chosen = (x @ router).topk(n_active, dim=-1)
    weights = values.softmax(-1)[:, :1].expand(chosen.shape)
    return _mixture(x, experts, chosen, weights)


@wrong(
    "modern/mixture",
    "out[row] is assigned, so that only the last expert of a row is left",
    classic=True,
)
def only_the_last(x, router, experts, n_active):
    values, chosen = (x @ router).topk(n_active, dim=-1)
    weights, out = values.softmax(-1), torch.zeros_like(x)
    for number, expert in enumerate(experts):
        row, place = (chosen == number).nonzero(as_tuple=True)
        out[row] = weights[row, place, None] * expert(x[row])
    return out


@wrong(
    "modern/mixture",
    "two experts for each row, whatever n_active is",
    classic=False,
)
def always_two(x, router, experts, n_active):
    values, chosen = (x @ router).topk(2, dim=-1)
    return _mixture(x, experts, chosen, values.softmax(-1))


# modern/mended


@right("modern/mended", "head by head, the key/value head by division")
def head_by_head(x, w_q, w_k, w_v, n_heads, n_kv_heads, rotate):
    T = len(x)
    at = torch.arange(T)
    size_k = w_k.shape[1] // n_kv_heads
    size_v = w_v.shape[1] // n_kv_heads
    heads = []
    for h in range(n_heads):
        g = h * n_kv_heads // n_heads
        q = rotate(x @ w_q[:, h * size_k : (h + 1) * size_k], at)
        k = rotate(x @ w_k[:, g * size_k : (g + 1) * size_k], at)
        v = x @ w_v[:, g * size_v : (g + 1) * size_v]
        scores = (q @ k.T) / math.sqrt(size_k)
        scores = scores + torch.full_like(scores, -math.inf).triu(1)
        heads.append(scores.softmax(1) @ v)
    return torch.cat(heads, dim=1)


@right("modern/mended", "queries in groups, keys broadcast, one einsum")
def in_groups(x, w_q, w_k, w_v, n_heads, n_kv_heads, rotate):
    T, group = len(x), n_heads // n_kv_heads
    at = torch.arange(T)
    q = (x @ w_q).reshape(T, n_kv_heads, group, -1).permute(1, 2, 0, 3)
    k = (x @ w_k).reshape(T, n_kv_heads, -1).transpose(0, 1)
    v = (x @ w_v).reshape(T, n_kv_heads, -1)
    q, k = rotate(q, at), rotate(k, at)
    scores = torch.einsum("ghtd,gsd->ghts", q, k) / q.size(-1) ** 0.5
    scores = scores.masked_fill(at[:, None] < at, -torch.inf)
    return torch.einsum("ghts,sgd->tghd", scores.softmax(-1), v).flatten(1)


def _shared(
    x, w_q, w_k, w_v, n_heads, n_kv_heads, rotate, *, spread, turned="qk"
):
    at = torch.arange(len(x))
    parts = {}
    for name, w, n in (
        ("q", w_q, n_heads),
        ("k", w_k, n_kv_heads),
        ("v", w_v, n_kv_heads),
    ):
        part = (x @ w).unflatten(-1, (n, -1)).transpose(0, 1)
        parts[name] = rotate(part, at) if name in turned else part
    n = n_heads // n_kv_heads
    heads = F.scaled_dot_product_attention(
        parts["q"][None],
        spread(parts["k"], n)[None],
        spread(parts["v"], n)[None],
        is_causal=True,
    )[0]
    return heads.transpose(0, 1).flatten(1)


def _runs(part, n):
    return part.repeat_interleave(n, dim=0)


@wrong(
    "modern/mended",
    "values are no longer turned, but key/value heads "
    "still come as 0, 1, 0, 1, …",
    classic=True,
)
def still_in_turns(x, w_q, w_k, w_v, n_heads, n_kv_heads, rotate):
    return _shared(
        x,
        w_q,
        w_k,
        w_v,
        n_heads,
        n_kv_heads,
        rotate,
        spread=lambda part, n: part.repeat(n, 1, 1),
    )


@wrong(
    "modern/mended",
    "heads are shared rightly, but values are turned",
    classic=True,
)
def values_turned(x, w_q, w_k, w_v, n_heads, n_kv_heads, rotate):
    return _shared(
        x,
        w_q,
        w_k,
        w_v,
        n_heads,
        n_kv_heads,
        rotate,
        spread=_runs,
        turned="qkv",
    )


@wrong("modern/mended", "only queries are turned, keys no more", classic=True)
def queries_alone_turned(x, w_q, w_k, w_v, n_heads, n_kv_heads, rotate):
    return _shared(
        x, w_q, w_k, w_v, n_heads, n_kv_heads, rotate, spread=_runs, turned="q"
    )


@wrong("modern/mended", "keys come in runs, values in turns", classic=True)
def values_in_turns(x, w_q, w_k, w_v, n_heads, n_kv_heads, rotate):
    spreads = iter([_runs, lambda part, n: part.repeat(n, 1, 1)])
    return _shared(
        x,
        w_q,
        w_k,
        w_v,
        n_heads,
        n_kv_heads,
        rotate,
        spread=lambda part, n: next(spreads)(part, n),
    )


@wrong(
    "modern/mended",
    "heads are merged without the transpose, which mixes places",
    classic=True,
)
def merged_without_transpose(x, w_q, w_k, w_v, n_heads, n_kv_heads, rotate):
    y = _shared(x, w_q, w_k, w_v, n_heads, n_kv_heads, rotate, spread=_runs)
    heads = y.unflatten(1, (n_heads, -1)).transpose(0, 1)
    return heads.reshape(len(x), -1)
