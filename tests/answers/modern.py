"""Answers to the exercises of chapter 15."""

import cmath
import math

import numpy as np
import torch
from torch.nn import functional as F

from tests.answers import right, wrong

# -- rope --------------------------------------------------------------------


@right("modern/rope")
def rope_complex(x, positions, base):
    Dh = x.size(-1)
    exponent = torch.arange(0, Dh, 2, dtype=torch.float64) / Dh
    angles = positions.double().unsqueeze(-1) * base**-exponent
    if positions.ndim > 1:
        angles = angles.unsqueeze(1)
    z = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())
    z = z * torch.exp(1j * angles)
    return torch.view_as_real(z).flatten(-2).to(x.dtype)


@right("modern/rope")
def complex_pairs(x, positions, base):
    n = x.size(-1)
    pace = base ** (-torch.arange(0, n, 2, dtype=torch.float64) / n)
    angles = positions.double().unsqueeze(-1) * pace
    if positions.dim() == 2:
        angles = angles.unsqueeze(1)
    z = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())
    z = z * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(z).flatten(-2).to(x.dtype)


@right("modern/rope")
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


@right("modern/rope")
def by_complex_numbers(x, positions, base):
    size = x.size(-1)
    speeds = torch.tensor(
        [base ** (-2 * i / size) for i in range(size // 2)], dtype=x.dtype
    )
    angles = positions.to(x.dtype).unsqueeze(-1) * speeds
    if positions.ndim == 2:
        angles = angles.unsqueeze(1)
    turn = torch.polar(torch.ones_like(angles), angles)
    z = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(z * turn).flatten(-2)


@right("modern/rope")
def pair_by_pair(x, positions, base):
    y = x.clone()
    rows = positions.expand(x.size(0), -1)
    size = x.shape[-1]
    for n in range(x.size(0)):
        for t in range(x.size(2)):
            for i in range(size // 2):
                angle = rows[n, t].item() * base ** (-2 * i / size)
                c, s = math.cos(angle), math.sin(angle)
                a, b = x[n, :, t, 2 * i], x[n, :, t, 2 * i + 1]
                y[n, :, t, 2 * i] = c * a - s * b
                y[n, :, t, 2 * i + 1] = s * a + c * b
    return y


@right("modern/rope")
def by_matrices(x, positions, base):
    size = x.size(-1)
    speeds = np.repeat(base ** (-np.arange(0, size, 2) / size), 2)
    angles = positions.numpy()[..., None] * speeds
    angles = torch.from_numpy(angles)
    if positions.dim() == 2:
        angles = angles.unsqueeze(1)
    swap = torch.zeros(size, size, dtype=x.dtype)
    for i in range(0, size, 2):
        swap[i + 1, i], swap[i, i + 1] = -1, 1
    return x * angles.cos() + (x @ swap) * angles.sin()


def _rope(x, positions, base, *, step=2, sign=1.0, shift=0, axis=True):
    n = x.size(-1)
    pace = base ** (-step * torch.arange(n // 2, dtype=x.dtype) / n)
    angles = (positions[..., None] + shift) * pace
    if positions.dim() == 2 and axis:
        angles = angles[:, None]
    cos, sin = angles.cos(), sign * angles.sin()
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


@wrong("modern/rope", "other_pairs")
def halves_are_pairs(x, positions, base):
    n = x.size(-1)
    order = torch.arange(n).view(2, -1).T.flatten()
    turned = _rope(x[..., order], positions, base)
    return turned[..., order.argsort()]


@wrong("modern/rope", "backwards")
def other_way_round(x, positions, base):
    return _rope(x, positions, base, sign=-1.0)


@wrong("modern/rope", "halved")
def half_the_exponent(x, positions, base):
    return _rope(x, positions, base, step=1)


@wrong("modern/rope", "not_put_back")
def not_put_back(x, positions, base):
    turned = _rope(x, positions, base)
    return torch.cat([turned[..., 0::2], turned[..., 1::2]], dim=-1)


@wrong("modern/rope", "no_head_axis")
def no_axis_for_heads(x, positions, base):
    return _rope(x, positions, base, axis=False)


@wrong("modern/rope", "counts_from_one")
def positions_from_one(x, positions, base):
    return _rope(x, positions, base, shift=1)


@wrong("modern/rope", "ignored")
def row_is_position(x, positions, base):
    return _rope(x, torch.arange(x.size(2)), base)


@wrong("modern/rope", "mixed")
def mixed(x, positions, base):
    size = x.size(-1)
    speeds = [base ** (-2 * (j // 2) / size) for j in range(size)]
    speeds = torch.tensor(speeds, dtype=torch.float64)
    angles = positions[..., None] * speeds
    angles = angles if positions.dim() == 1 else angles[:, None]
    m = size // 2
    other = torch.cat((-x[..., m:], x[..., :m]), -1)
    return angles.cos() * x + angles.sin() * other


@wrong("modern/rope")
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


@wrong("modern/rope")
def shrunk(x, positions, base):
    return by_complex_numbers(x, positions, base) / x.size(-1) ** 0.5


def turned(x, positions, speeds, sense=1):
    """Complex numbers; the speeds may be wrong."""
    angles = sense * positions.double()[..., None] * speeds
    if positions.dim() > 1:
        angles = angles[:, None]
    z = torch.complex(x[..., ::2], x[..., 1::2]) * torch.exp(1j * angles)
    y = torch.empty_like(x)
    y[..., ::2], y[..., 1::2] = z.real, z.imag
    return y


def half(x):
    return torch.arange(x.size(-1) // 2, dtype=torch.float64)


@wrong("modern/rope")
def whole_turns(x, positions, base):
    speeds = base ** (-2 * half(x) / x.size(-1))
    return turned(x, positions, 2 * math.pi * speeds)


# -- converted ---------------------------------------------------------------


@right("modern/converted")
def row_numbers(w, n_heads):
    size = len(w) // n_heads
    order = []
    for head in range(n_heads):
        for i in range(size // 2):
            first = head * size + i
            order += [first, first + size // 2]
    return w[order]


@right("modern/converted")
def by_permutation_matrix(w, n_heads):
    rows = w.size(0)
    size = rows // n_heads
    swap = torch.zeros(rows, rows, dtype=w.dtype)
    for new in range(rows):
        head, place = divmod(new, size)
        pair, second = divmod(place, 2)
        swap[new, head * size + pair + second * (size // 2)] = 1
    return swap @ w


@right("modern/converted")
def by_rows(w, n_heads):
    size = w.size(0) // n_heads
    new = torch.empty_like(w)
    for h in range(n_heads):
        for i in range(size // 2):
            new[h * size + 2 * i] = w[h * size + i]
            new[h * size + 2 * i + 1] = w[h * size + i + size // 2]
    return new


@right("modern/converted")
def by_index(w, n_heads):
    order = torch.arange(len(w)).view(n_heads, 2, -1).mT.reshape(-1)
    return w[order]


@right("modern/converted")
def by_slices(w, n_heads):
    heads = []
    for head in w.chunk(n_heads):
        first, second = head.chunk(2)
        heads.append(torch.stack((first, second), 1).reshape(head.shape))
    return torch.cat(heads)


@wrong("modern/converted", "inverse")
def converted_way_back(w, n_heads):
    rows = w.unflatten(0, (n_heads, -1, 2)).transpose(1, 2)
    return rows.flatten(0, 2)


@wrong("modern/converted", "across_heads")
def heads_forgotten(w, n_heads):
    return torch.stack(w.chunk(2), dim=1).flatten(0, 1)


@wrong("modern/converted", "across_heads", "columns")
def columns_moved(w, n_heads):
    order = torch.arange(w.size(1)).view(2, -1).T.flatten()
    return w[:, order]


@wrong("modern/converted", "columns")
def columns(w, n_heads):
    return by_rows(w.T.contiguous(), n_heads).T


# Reshaped there and back, which moves nothing.
@wrong("modern/converted")
def moves_nothing(w, n_heads):
    return w.unflatten(0, (n_heads, 2, -1)).reshape(w.shape)


@wrong("modern/converted")
def halves_exchanged(w, n_heads):
    return w.unflatten(0, (n_heads, 2, -1)).flip(1).flatten(0, 2)


@wrong("modern/converted")
def as_it_was(w, n_heads):
    return w.clone()


# -- window ------------------------------------------------------------------


@right("modern/window")
def list_of_comparisons(size, n_queries, n_keys):
    past = n_keys - n_queries
    return torch.tensor(
        [
            [i - size < j <= i for j in range(n_keys)]
            for i in range(past, past + n_queries)
        ]
    ).reshape(n_queries, n_keys)


@right("modern/window")
def rolled_row(size, n_queries, n_keys):
    out = torch.zeros(n_queries, n_keys, dtype=torch.bool)
    stop = n_keys
    for row in reversed(range(n_queries)):
        out[row, max(stop - size, 0) : stop] = True
        stop -= 1
    return out


@right("modern/window")
def by_loops(size, n_queries, n_keys):
    rows = []
    for i in range(n_keys - n_queries, n_keys):
        rows.append([i - size < j <= i for j in range(n_keys)])
    return torch.tensor(rows)


@right("modern/window")
def by_triangles(size, n_queries, n_keys):
    ones = torch.ones(n_keys, n_keys, dtype=torch.bool)
    return (ones.tril() & ones.triu(1 - size))[-n_queries:]


@right("modern/window")
def by_two_triangles(size, n_queries, n_keys):
    ones = torch.ones(n_queries, n_keys)
    d = n_keys - n_queries
    return (ones.tril(d) - ones.tril(d - size)) == 1


@wrong("modern/window", "one_more")
def window_one_too_many(size, n_queries, n_keys):
    i = torch.arange(n_keys - n_queries, n_keys)[:, None]
    back = i - torch.arange(n_keys)
    return (back >= 0) & (back <= size)


@wrong("modern/window", "top_left")
def queries_first(size, n_queries, n_keys):
    back = torch.arange(n_queries)[:, None] - torch.arange(n_keys)
    return (back >= 0) & (back < size)


@wrong("modern/window", "both_sides")
def both_sides(size, n_queries, n_keys):
    i = torch.arange(n_keys - n_queries, n_keys)[:, None]
    return (i - torch.arange(n_keys)).abs() < size


@wrong("modern/window", "inverted")
def upside_down(size, n_queries, n_keys):
    back = torch.arange(n_keys - n_queries, n_keys)[:, None] - torch.arange(
        n_keys
    )
    return (back < 0) | (back >= size)


@wrong("modern/window", "future")
def future(size, n_queries, n_keys):
    ones = torch.ones(n_queries, n_keys, dtype=torch.bool)
    return ones.triu(n_keys - n_queries - size + 1)


# Ones and zeros of floating point, not booleans.
@wrong("modern/window")
def ones_and_zeros(size, n_queries, n_keys):
    ones = torch.ones(n_queries, n_keys).tril(n_keys - n_queries)
    return ones.triu(n_keys - n_queries - size + 1)


@wrong("modern/window")
def one_less(size, n_queries, n_keys):
    return by_triangles(size - 1, n_queries, n_keys)


@wrong("modern/window")
def window_upside_down(size, n_queries, n_keys):
    return by_loops(size, n_queries, n_keys).flip(0)


# -- gated -------------------------------------------------------------------


@right("modern/gated")
def gated_by_sigmoid(x, w_gate, w_in, w_out):
    gate, linear = torch.split(
        x @ torch.cat((w_gate, w_in), 1), w_in.size(1), dim=1
    )
    return (gate * gate.sigmoid() * linear) @ w_out


@right("modern/gated")
def unit_by_unit(x, w_gate, w_in, w_out):
    rows = []
    for token in x:
        out = torch.zeros_like(w_out[0])
        for j in range(w_in.shape[1]):
            z = token @ w_gate[:, j]
            out = out + z * torch.sigmoid(z) * (token @ w_in[:, j]) * w_out[j]
        rows.append(out)
    return torch.stack(rows)


@right("modern/gated")
def side_by_side(x, w_gate, w_in, w_out):
    z, inner = (x @ torch.cat((w_gate, w_in), 1)).chunk(2, dim=-1)
    opening = z * (1 + torch.tanh(z / 2)) / 2
    return torch.einsum("tf,tf,fd->td", opening, inner, w_out)


@right("modern/gated")
def with_einsum(x, w_gate, w_in, w_out):
    gate = torch.einsum("td,df->tf", x, w_gate)
    inner = torch.einsum("td,df->tf", x, w_in)
    return torch.einsum("tf,fd->td", gate * gate.sigmoid() * inner, w_out)


@right("modern/gated")
def with_exp(x, w_gate, w_in, w_out):
    z = x @ w_gate
    return (z / (1 + (-z).exp()) * (x @ w_in)) @ w_out


@right("modern/gated")
def in_one_product(x, w_gate, w_in, w_out):
    gate, inner = (x @ torch.cat((w_gate, w_in), 1)).chunk(2, dim=1)
    return F.linear(F.silu(gate) * inner, w_out.T)


@wrong("modern/gated", "swapped")
def gated_wrong_factor(x, w_gate, w_in, w_out):
    return (x @ w_gate * F.silu(x @ w_in)) @ w_out


@wrong("modern/gated", "sigmoid")
def gated_sigmoid(x, w_gate, w_in, w_out):
    return (torch.sigmoid(x @ w_gate) * (x @ w_in)) @ w_out


@wrong("modern/gated", "gelu")
def gelu_gate(x, w_gate, w_in, w_out):
    return (F.gelu(x @ w_gate) * (x @ w_in)) @ w_out


@wrong("modern/gated", "added")
def added(x, w_gate, w_in, w_out):
    return (F.silu(x @ w_gate) + x @ w_in) @ w_out


@wrong("modern/gated", "of_the_product")
def product_bent(x, w_gate, w_in, w_out):
    return F.silu((x @ w_gate) * (x @ w_in)) @ w_out


@wrong("modern/gated")
def relu_gate(x, w_gate, w_in, w_out):
    return ((x @ w_gate).relu() * (x @ w_in)) @ w_out


@wrong("modern/gated")
def no_inner(x, w_gate, w_in, w_out):
    return F.silu(x @ w_gate) @ w_out


@wrong("modern/gated")
def scaled(x, w_gate, w_in, w_out):
    return with_exp(x, w_gate, w_in, w_out) / w_out.size(0) ** 0.5


# -- mixture -----------------------------------------------------------------


@right("modern/mixture")
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


@right("modern/mixture")
def dense(x, router, experts, n_active):
    logits = x @ router
    least = logits.sort(-1, descending=True).values[:, n_active - 1, None]
    hidden = logits.masked_fill(logits < least, float("-inf"))
    everything = torch.stack([expert(x) for expert in experts], dim=1)
    return torch.einsum("ne,ned->nd", hidden.softmax(-1), everything)


@right("modern/mixture")
def token_by_token(x, router, experts, n_active):
    rows = []
    for row in x:
        logits = (row @ router).tolist()
        best = sorted(range(len(experts)), key=logits.__getitem__)[-n_active:]
        shares = [math.exp(logits[e]) for e in best]
        answers = [experts[e](row[None])[0] for e in best]
        pairs = zip(shares, answers, strict=True)
        rows.append(sum(s * y for s, y in pairs) / sum(shares))
    return torch.stack(rows)


@right("modern/mixture")
def all_asked(x, router, experts, n_active):
    # Everybody answers; most answers count nothing.
    logits = x @ router
    least = logits.topk(n_active, -1).values[:, -1:]
    weights = logits.masked_fill(logits < least, -torch.inf).softmax(-1)
    answers = torch.stack([expert(x) for expert in experts], -1)
    return (answers * weights[:, None]).sum(-1)


@right("modern/mixture")
def renormalized(x, router, experts, n_active):
    p = torch.softmax(x @ router, 1)
    top, ids = torch.topk(p, n_active, dim=1)
    top = top / top.sum(1, keepdim=True)
    answers = torch.stack([expert(x) for expert in experts], 1)
    picked = answers[torch.arange(len(x))[:, None], ids]
    return (picked * top[..., None]).sum(1)


def _mixture(x, experts, chosen, weights):
    out = torch.zeros_like(x)
    for number, expert in enumerate(experts):
        row, place = (chosen == number).nonzero(as_tuple=True)
        if len(row):
            out[row] += weights[row, place, None] * expert(x[row])
    return out


@wrong("modern/mixture", "of_all")
def softmax_over_all(x, router, experts, n_active):
    p = (x @ router).softmax(-1)
    weights, chosen = p.topk(n_active, dim=-1)
    return _mixture(x, experts, chosen, weights)


@wrong("modern/mixture", "even")
def averaged(x, router, experts, n_active):
    _, chosen = (x @ router).topk(n_active, dim=-1)
    weights = torch.full(chosen.shape, 1 / n_active, dtype=x.dtype)
    return _mixture(x, experts, chosen, weights)


@wrong("modern/mixture", "over_tokens")
def softmax_over_tokens(x, router, experts, n_active):
    values, chosen = (x @ router).topk(n_active, dim=-1)
    return _mixture(x, experts, chosen, values.softmax(0))


@wrong("modern/mixture", "first_weight")
def first_weight_for_all(x, router, experts, n_active):
    values, chosen = (x @ router).topk(n_active, dim=-1)
    weights = values.softmax(-1)[:, :1].expand(chosen.shape)
    return _mixture(x, experts, chosen, weights)


@wrong("modern/mixture", "overwritten")
def only_the_last(x, router, experts, n_active):
    values, chosen = (x @ router).topk(n_active, dim=-1)
    weights, out = values.softmax(-1), torch.zeros_like(x)
    for number, expert in enumerate(experts):
        row, place = (chosen == number).nonzero(as_tuple=True)
        out[row] = weights[row, place, None] * expert(x[row])
    return out


@wrong("modern/mixture", "always_two")
def always_two(x, router, experts, n_active):
    values, chosen = (x @ router).topk(2, dim=-1)
    return _mixture(x, experts, chosen, values.softmax(-1))


def combined(x, experts, weights):
    """Each expert's answer times its column of weights, 0 if not asked."""
    return sum(weights[:, [e]] * expert(x) for e, expert in enumerate(experts))


@wrong("modern/mixture")
def everybody(x, router, experts, n_active):
    return combined(x, experts, (x @ router).softmax(-1))


@wrong("modern/mixture")
def best_alone(x, router, experts, n_active):
    return token_by_token(x, router, experts, 1)


@wrong("modern/mixture")
def in_order(x, router, experts, n_active):
    # The best weight goes to the expert with the lowest number.
    top, ids = (x @ router).topk(n_active, -1)
    ids = ids.sort(-1).values
    weights = torch.zeros(len(x), len(experts), dtype=x.dtype)
    return combined(x, experts, weights.scatter(1, ids, top.softmax(-1)))


# -- mended ------------------------------------------------------------------


@right("modern/mended")
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


@right("modern/mended")
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


def heads_of(x, w, n):
    return [x @ part for part in w.chunk(n, dim=1)]


@right("modern/mended")
def mended_head_by_head(x, w_q, w_k, w_v, n_heads, n_kv_heads, rotate):
    places = torch.arange(x.size(0))
    ks = [rotate(k, places) for k in heads_of(x, w_k, n_kv_heads)]
    vs = heads_of(x, w_v, n_kv_heads)
    outputs = []
    for h, q in enumerate(heads_of(x, w_q, n_heads)):
        q, g = rotate(q, places), h * n_kv_heads // n_heads
        scores = q @ ks[g].T / math.sqrt(q.size(1))
        later = torch.ones_like(scores).triu(1) > 0
        weights = scores.masked_fill(later, -torch.inf).softmax(1)
        outputs.append(weights @ vs[g])
    return torch.cat(outputs, 1)


@right("modern/mended")
def with_gqa(x, w_q, w_k, w_v, n_heads, n_kv_heads, rotate):
    places = torch.arange(len(x))
    q = torch.stack(heads_of(x, w_q, n_heads))
    k = torch.stack(heads_of(x, w_k, n_kv_heads))
    v = torch.stack(heads_of(x, w_v, n_kv_heads))
    y = F.scaled_dot_product_attention(
        rotate(q, places)[None],
        rotate(k, places)[None],
        v[None],
        is_causal=True,
        enable_gqa=True,
    )[0]
    return torch.cat(tuple(y), dim=-1)


@right("modern/mended")
def group_by_group(x, w_q, w_k, w_v, n_heads, n_kv_heads, rotate):
    # Queries of a group become more rows of one attention.
    t, places = len(x), torch.arange(len(x))
    groups = zip(
        w_q.chunk(n_kv_heads, 1),
        w_k.chunk(n_kv_heads, 1),
        w_v.chunk(n_kv_heads, 1),
        strict=True,
    )
    outputs = []
    for wq, wk, wv in groups:
        qs = torch.stack(heads_of(x, wq, n_heads // n_kv_heads))
        k = rotate(x @ wk, places + 11)  # only distances count
        scores = rotate(qs, places + 11) @ k.T * k.size(1) ** -0.5
        hidden = ~torch.ones(t, t, dtype=torch.bool).tril()
        weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        outputs += list(weights @ (x @ wv))
    return torch.cat(outputs, dim=1)


def attend(q, k, v, group):
    """Lists of heads; `group` says whose keys a head has."""
    outputs = []
    for h, one in enumerate(q):
        key, value = k[group(h)], v[group(h)]
        scores = one @ key.T / key.size(1) ** 0.5
        later = torch.ones_like(scores).triu(1) == 1
        outputs.append(scores.masked_fill(later, -1e300).softmax(1) @ value)
    return torch.cat(outputs, 1)


def tools(x, rotate):
    places = torch.arange(len(x))
    return lambda heads, sense=1: [rotate(h, sense * places) for h in heads]


@wrong("modern/mended", "tiled")
def tiled(x, w_q, w_k, w_v, h, g, rotate):
    turn = tools(x, rotate)
    q, k, v = heads_of(x, w_q, h), heads_of(x, w_k, g), heads_of(x, w_v, g)
    return attend(turn(q), turn(k), v, lambda i: i % g)


@wrong("modern/mended", "values_too")
def values_too(x, w_q, w_k, w_v, h, g, rotate):
    turn = tools(x, rotate)
    q, k, v = heads_of(x, w_q, h), heads_of(x, w_k, g), heads_of(x, w_v, g)
    return attend(turn(q), turn(k), turn(v), lambda i: i // (h // g))


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


@wrong("modern/mended", "queries_alone")
def queries_alone_turned(x, w_q, w_k, w_v, n_heads, n_kv_heads, rotate):
    return _shared(
        x, w_q, w_k, w_v, n_heads, n_kv_heads, rotate, spread=_runs, turned="q"
    )


@wrong("modern/mended", "values_tiled")
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


@wrong("modern/mended", "not_transposed")
def merged_without_transpose(x, w_q, w_k, w_v, n_heads, n_kv_heads, rotate):
    y = _shared(x, w_q, w_k, w_v, n_heads, n_kv_heads, rotate, spread=_runs)
    heads = y.unflatten(1, (n_heads, -1)).transpose(0, 1)
    return heads.reshape(len(x), -1)


@wrong("modern/mended", "mask_finite")
def mask_finite(x, w_q, w_k, w_v, h, g, rotate):
    places, heads = torch.arange(len(x)), []
    for i in range(h):
        q, k, v = (
            heads_of(x, w, n)[i * n // h]
            for w, n in ((w_q, h), (w_k, g), (w_v, g))
        )
        scores = rotate(q, places) @ rotate(k, places).T / q.size(1) ** 0.5
        seen = places <= places[:, None]
        heads.append(torch.where(seen, scores, -1e4).softmax(-1) @ v)
    return torch.cat(heads, dim=-1)


@wrong("modern/mended")
def no_root(x, w_q, w_k, w_v, h, g, rotate):
    root = (w_q.size(1) // h) ** 0.5
    return mended_head_by_head(x, w_q * root, w_k, w_v, h, g, rotate)


@wrong("modern/mended")
def first_group(x, w_q, w_k, w_v, h, g, rotate):
    turn = tools(x, rotate)
    q, k, v = heads_of(x, w_q, h), heads_of(x, w_k, g), heads_of(x, w_v, g)
    return attend(turn(q), turn(k), v, lambda i: 0)


@wrong("modern/mended")
def unturned(x, w_q, w_k, w_v, h, g, rotate):
    def leave(x, positions):
        return x

    return mended_head_by_head(x, w_q, w_k, w_v, h, g, leave)
