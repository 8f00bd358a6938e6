"""Answers to the exercises of chapter 15, as people write them."""

import math

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812


# -- rope: right -------------------------------------------------------------
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


# -- rope: wrong -------------------------------------------------------------
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


def ignored(x, positions, base):
    rows = torch.arange(x.size(2))
    return turned(x, rows, base ** (-2 * half(x) / x.size(-1)))


def backwards(x, positions, base):
    return turned(x, positions, base ** (-2 * half(x) / x.size(-1)), -1)


def mixed(x, positions, base):
    size = x.size(-1)
    speeds = [base ** (-2 * (j // 2) / size) for j in range(size)]
    speeds = torch.tensor(speeds, dtype=torch.float64)
    angles = positions[..., None] * speeds
    angles = angles if positions.dim() == 1 else angles[:, None]
    m = size // 2
    other = torch.cat((-x[..., m:], x[..., :m]), -1)
    return angles.cos() * x + angles.sin() * other


def other_pairs(x, positions, base):
    size = x.size(-1)
    order = torch.arange(size).view(2, -1).mT.flatten()  # 0, 3, 1, 4, 2, 5
    speeds = base ** (-2 * half(x) / size)
    y = torch.empty_like(x)
    y[..., order] = turned(x[..., order], positions, speeds)
    return y


def not_put_back(x, positions, base):
    y = by_complex_numbers(x, positions, base)
    order = [*range(0, x.size(-1), 2), *range(1, x.size(-1), 2)]
    return y[..., order]


# -- rope: mistakes that the catalogue does not have -------------------------
def whole_turns(x, positions, base):
    speeds = base ** (-2 * half(x) / x.size(-1))
    return turned(x, positions, 2 * math.pi * speeds)


def slow_first(x, positions, base):
    speeds = base ** (-2 * half(x) / x.size(-1))
    return turned(x, positions, speeds.flip(0))


def shrunk(x, positions, base):
    return by_complex_numbers(x, positions, base) / x.size(-1) ** 0.5


# -- converted: right --------------------------------------------------------
def by_rows(w, n_heads):
    size = w.size(0) // n_heads
    new = torch.empty_like(w)
    for h in range(n_heads):
        for i in range(size // 2):
            new[h * size + 2 * i] = w[h * size + i]
            new[h * size + 2 * i + 1] = w[h * size + i + size // 2]
    return new


def by_index(w, n_heads):
    order = torch.arange(len(w)).view(n_heads, 2, -1).mT.reshape(-1)
    return w[order]


def by_slices(w, n_heads):
    heads = []
    for head in w.chunk(n_heads):
        first, second = head.chunk(2)
        heads.append(torch.stack((first, second), 1).reshape(head.shape))
    return torch.cat(heads)


# -- converted: wrong --------------------------------------------------------
def across_heads(w, n_heads):
    return by_slices(w, 1)


def inverse(w, n_heads):
    heads = [torch.cat((h[::2], h[1::2])) for h in w.chunk(n_heads)]
    return torch.cat(heads)


def columns(w, n_heads):
    return by_rows(w.T.contiguous(), n_heads).T


# -- converted: mistakes that the catalogue does not have --------------------
def halves_exchanged(w, n_heads):
    return w.unflatten(0, (n_heads, 2, -1)).flip(1).flatten(0, 2)


def as_it_was(w, n_heads):
    return w.clone()


def sign_lost(w, n_heads):
    new = by_rows(w, n_heads)
    new[1::2] *= -1
    return new


# -- window: right -----------------------------------------------------------
def by_loops(size, n_queries, n_keys):
    rows = []
    for i in range(n_keys - n_queries, n_keys):
        rows.append([i - size < j <= i for j in range(n_keys)])
    return torch.tensor(rows)


def by_triangles(size, n_queries, n_keys):
    ones = torch.ones(n_keys, n_keys, dtype=torch.bool)
    return (ones.tril() & ones.triu(1 - size))[-n_queries:]


def by_two_triangles(size, n_queries, n_keys):
    ones = torch.ones(n_queries, n_keys)
    d = n_keys - n_queries
    return (ones.tril(d) - ones.tril(d - size)) == 1


# -- window: wrong -----------------------------------------------------------
def inverted(size, n_queries, n_keys):
    ones = torch.ones(n_queries, n_keys, dtype=torch.bool)
    ahead = ones.triu(n_keys - n_queries + 1)
    return ahead | ones.tril(n_keys - n_queries - size)


def one_more(size, n_queries, n_keys):
    return by_triangles(size + 1, n_queries, n_keys)


def top_left(size, n_queries, n_keys):
    return by_triangles(size, n_keys, n_keys)[:n_queries]


def both_sides(size, n_queries, n_keys):
    at = torch.arange(n_keys)
    return ((at[:, None] - at).abs() < size)[n_keys - n_queries :]


def future(size, n_queries, n_keys):
    ones = torch.ones(n_queries, n_keys, dtype=torch.bool)
    return ones.triu(n_keys - n_queries - size + 1)


# -- window: mistakes that the catalogue does not have -----------------------
def one_less(size, n_queries, n_keys):
    return by_triangles(size - 1, n_queries, n_keys)


def in_blocks(size, n_queries, n_keys):
    at = torch.arange(n_keys)
    same = at[:, None] // size == at // size
    return (same & (at <= at[:, None]))[-n_queries:]


def itself_hidden(size, n_queries, n_keys):
    mask = by_triangles(size + 1, n_queries, n_keys)
    return mask & ~by_triangles(1, n_queries, n_keys)


def upside_down(size, n_queries, n_keys):
    return by_loops(size, n_queries, n_keys).flip(0)


# -- gated: right ------------------------------------------------------------
def with_einsum(x, w_gate, w_in, w_out):
    gate = torch.einsum("td,df->tf", x, w_gate)
    inner = torch.einsum("td,df->tf", x, w_in)
    return torch.einsum("tf,fd->td", gate * gate.sigmoid() * inner, w_out)


def with_exp(x, w_gate, w_in, w_out):
    z = x @ w_gate
    return (z / (1 + (-z).exp()) * (x @ w_in)) @ w_out


def in_one_product(x, w_gate, w_in, w_out):
    gate, inner = (x @ torch.cat((w_gate, w_in), 1)).chunk(2, dim=1)
    return F.linear(F.silu(gate) * inner, w_out.T)


# -- gated: wrong ------------------------------------------------------------
def sigmoid(x, w_gate, w_in, w_out):
    return F.glu(torch.cat((x @ w_in, x @ w_gate), -1), -1) @ w_out


def gelu(x, w_gate, w_in, w_out):
    z = x @ w_gate
    return (z * 0.5 * (1 + torch.erf(z / 2**0.5)) * (x @ w_in)) @ w_out


def swapped(x, w_gate, w_in, w_out):
    return with_exp(x, w_in, w_gate, w_out)


def added(x, w_gate, w_in, w_out):
    return (x @ w_in) @ w_out + F.silu(x @ w_gate) @ w_out


def of_the_product(x, w_gate, w_in, w_out):
    return F.silu((x @ w_gate) * (x @ w_in)) @ w_out


# -- gated: mistakes that the catalogue does not have ------------------------
def relu_gate(x, w_gate, w_in, w_out):
    return ((x @ w_gate).relu() * (x @ w_in)) @ w_out


def no_inner(x, w_gate, w_in, w_out):
    return F.silu(x @ w_gate) @ w_out


def scaled(x, w_gate, w_in, w_out):
    return with_exp(x, w_gate, w_in, w_out) / w_out.size(0) ** 0.5


# -- mixture: right ----------------------------------------------------------
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


def all_asked(x, router, experts, n_active):
    # Everybody answers; most answers count nothing.
    logits = x @ router
    least = logits.topk(n_active, -1).values[:, -1:]
    weights = logits.masked_fill(logits < least, -torch.inf).softmax(-1)
    answers = torch.stack([expert(x) for expert in experts], -1)
    return (answers * weights[:, None]).sum(-1)


def renormalized(x, router, experts, n_active):
    p = torch.softmax(x @ router, 1)
    top, ids = torch.topk(p, n_active, dim=1)
    top = top / top.sum(1, keepdim=True)
    answers = torch.stack([expert(x) for expert in experts], 1)
    picked = answers[torch.arange(len(x))[:, None], ids]
    return (picked * top[..., None]).sum(1)


# -- mixture: wrong ----------------------------------------------------------
def combined(x, experts, weights):
    """Each expert's answer times its column of weights, 0 if not asked."""
    return sum(weights[:, [e]] * expert(x) for e, expert in enumerate(experts))


def asked(logits, n_active):
    ranks = logits.argsort(-1, descending=True).argsort(-1)
    return ranks < n_active


def of_all(x, router, experts, n_active):
    logits = x @ router
    weights = logits.softmax(-1) * asked(logits, n_active)
    return combined(x, experts, weights)


def even(x, router, experts, n_active):
    return combined(x, experts, asked(x @ router, n_active) / n_active)


# -- mixture: mistakes that the catalogue does not have ----------------------
def everybody(x, router, experts, n_active):
    return combined(x, experts, (x @ router).softmax(-1))


def best_alone(x, router, experts, n_active):
    return token_by_token(x, router, experts, 1)


def the_worst(x, router, experts, n_active):
    return token_by_token(x, -router, experts, n_active)


def in_order(x, router, experts, n_active):
    # The best weight goes to the expert with the lowest number.
    top, ids = (x @ router).topk(n_active, -1)
    ids = ids.sort(-1).values
    weights = torch.zeros(len(x), len(experts), dtype=x.dtype)
    return combined(x, experts, weights.scatter(1, ids, top.softmax(-1)))


# -- mended: right -----------------------------------------------------------
def heads_of(x, w, n):
    return [x @ part for part in w.chunk(n, dim=1)]


def head_by_head(x, w_q, w_k, w_v, n_heads, n_kv_heads, rotate):
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


# -- mended: wrong -----------------------------------------------------------
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


def values_too(x, w_q, w_k, w_v, h, g, rotate):
    turn = tools(x, rotate)
    q, k, v = heads_of(x, w_q, h), heads_of(x, w_k, g), heads_of(x, w_v, g)
    return attend(turn(q), turn(k), turn(v), lambda i: i // (h // g))


def tiled(x, w_q, w_k, w_v, h, g, rotate):
    turn = tools(x, rotate)
    q, k, v = heads_of(x, w_q, h), heads_of(x, w_k, g), heads_of(x, w_v, g)
    return attend(turn(q), turn(k), v, lambda i: i % g)


def queries_alone(x, w_q, w_k, w_v, h, g, rotate):
    turn = tools(x, rotate)
    q, k, v = heads_of(x, w_q, h), heads_of(x, w_k, g), heads_of(x, w_v, g)
    return attend(turn(q), k, v, lambda i: i // (h // g))


# -- mended: mistakes that the catalogue does not have -----------------------
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


def no_root(x, w_q, w_k, w_v, h, g, rotate):
    root = (w_q.size(1) // h) ** 0.5
    return head_by_head(x, w_q * root, w_k, w_v, h, g, rotate)


def first_group(x, w_q, w_k, w_v, h, g, rotate):
    turn = tools(x, rotate)
    q, k, v = heads_of(x, w_q, h), heads_of(x, w_k, g), heads_of(x, w_v, g)
    return attend(turn(q), turn(k), v, lambda i: 0)


def unturned(x, w_q, w_k, w_v, h, g, rotate):
    def leave(x, positions):
        return x

    return head_by_head(x, w_q, w_k, w_v, h, g, leave)


def first_weight(x, router, experts, n_active):
    rows = []
    for vector in x:
        best = (vector @ router).topk(n_active)
        share = best.values.softmax(0)[0]
        said = [experts[e](vector[None])[0] for e in best.indices.tolist()]
        rows.append(share * torch.stack(said).sum(0))
    return torch.stack(rows)


def values_tiled(x, w_q, w_k, w_v, n_heads, n_kv_heads, rotate):
    t, n = len(x), n_heads // n_kv_heads
    places = torch.arange(t)

    def split(w, parts):
        return (x @ w).reshape(t, parts, -1).permute(1, 0, 2)

    q, k = (
        rotate(split(w_q, n_heads), places),
        rotate(split(w_k, n_kv_heads), places),
    )
    v = split(w_v, n_kv_heads)
    k, v = (
        k[[h // n for h in range(n_heads)]],
        v[[h % n_kv_heads for h in range(n_heads)]],
    )
    scores = q @ k.mT / q.size(-1) ** 0.5
    later = torch.ones(t, t, dtype=torch.bool).triu(1)
    y = scores.masked_fill(later, float("-inf")).softmax(-1) @ v
    return torch.cat(list(y), 1)


def not_transposed(x, w_q, w_k, w_v, n_heads, n_kv_heads, rotate):
    t, n = len(x), n_heads // n_kv_heads
    places = torch.arange(t)

    def split(w, parts):
        return (x @ w).reshape(t, parts, -1).permute(1, 0, 2)

    q, k = (
        rotate(split(w_q, n_heads), places),
        rotate(split(w_k, n_kv_heads), places),
    )
    v = split(w_v, n_kv_heads)
    k, v = (
        k[[h // n for h in range(n_heads)]],
        v[[h // n for h in range(n_heads)]],
    )
    scores = q @ k.mT / q.size(-1) ** 0.5
    later = torch.ones(t, t, dtype=torch.bool).triu(1)
    y = scores.masked_fill(later, float("-inf")).softmax(-1) @ v
    return y.reshape(t, -1)


def always_two(x, router, experts, n_active):
    best = (x @ router).topk(2)
    shares = best.values.softmax(-1)
    said = torch.stack([expert(x) for expert in experts], 1)
    picked = said.gather(1, best.indices[..., None].expand(-1, -1, x.size(1)))
    return (shares[..., None] * picked).sum(1)


def halved(x, positions, base):
    n = x.size(-1)
    speeds = base ** (-torch.arange(n // 2, dtype=x.dtype) / n)
    angles = positions[..., None] * speeds
    angles = angles if positions.dim() == 1 else angles.unsqueeze(1)
    z = torch.complex(x[..., ::2], x[..., 1::2]) * torch.exp(1j * angles)
    return torch.view_as_real(z).flatten(-2)


def counts_from_one(x, positions, base):
    return by_matrices(x, positions + 1, base)


def no_head_axis(x, positions, base):
    i = torch.arange(x.size(-1) // 2, dtype=x.dtype)
    angles = positions[..., None] * base ** (-2 * i / x.size(-1))
    cos, sin = torch.cos(angles), torch.sin(angles)
    one, two = x[..., ::2], x[..., 1::2]
    both = one * cos - two * sin, two * cos + one * sin
    return torch.stack(both, -1).flatten(-2)


def over_tokens(x, router, experts, n_active):
    best, who = (x @ router).topk(n_active)
    share = torch.exp(best) / torch.exp(best).sum(0, keepdim=True)
    rows = []
    for row, chosen, weights in zip(x, who, share, strict=True):
        parts = [
            w * experts[e](row[None])[0]
            for e, w in zip(chosen.tolist(), weights, strict=True)
        ]
        rows.append(sum(parts))
    return torch.stack(rows)


def overwritten(x, router, experts, n_active):
    best, who = (x @ router).topk(n_active)
    share = best.softmax(-1)
    out = torch.zeros_like(x)
    for i in range(len(x)):
        last = int(who[i].max())
        w = share[i, who[i] == last]
        out[i] = w * experts[last](x[i : i + 1])[0]
    return out


RIGHT = {
    "rope": [by_complex_numbers, pair_by_pair, by_matrices],
    "converted": [by_rows, by_index, by_slices],
    "window": [by_loops, by_triangles, by_two_triangles],
    "gated": [with_einsum, with_exp, in_one_product],
    "mixture": [token_by_token, all_asked, renormalized],
    "mended": [head_by_head, with_gqa, group_by_group],
}
WRONG = {
    "rope": {
        "ignored": ignored,
        "backwards": backwards,
        "mixed": mixed,
        "other_pairs": other_pairs,
        "not_put_back": not_put_back,
        "halved": halved,
        "counts_from_one": counts_from_one,
        "no_head_axis": no_head_axis,
    },
    "converted": {
        "across_heads": across_heads,
        "inverse": inverse,
        "columns": columns,
    },
    "window": {
        "inverted": inverted,
        "one_more": one_more,
        "top_left": top_left,
        "both_sides": both_sides,
        "future": future,
    },
    "gated": {
        "sigmoid": sigmoid,
        "gelu": gelu,
        "swapped": swapped,
        "added": added,
        "of_the_product": of_the_product,
    },
    "mixture": {
        "of_all": of_all,
        "even": even,
        "first_weight": first_weight,
        "always_two": always_two,
        "over_tokens": over_tokens,
        "overwritten": overwritten,
    },
    "mended": {
        "values_too": values_too,
        "tiled": tiled,
        "queries_alone": queries_alone,
        "values_tiled": values_tiled,
        "not_transposed": not_transposed,
        "mask_finite": mask_finite,
    },
}
OUTSIDE = {
    "rope": [whole_turns, slow_first, shrunk],
    "converted": [halves_exchanged, as_it_was, sign_lost],
    "window": [one_less, in_blocks, itself_hidden, upside_down],
    "gated": [relu_gate, no_inner, scaled],
    "mixture": [everybody, best_alone, the_worst, in_order],
    "mended": [no_root, first_group, unturned],
}
