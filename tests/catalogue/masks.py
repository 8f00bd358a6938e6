"""Answers to the exercises of chapter 5, as people write them."""

import math

import torch
from torch.nn import functional as F  # noqa: N812

inf = float("inf")


# -- is_causal: right --------------------------------------------------------
def one_by_one(model, vocab_size, length):
    ids = torch.randint(vocab_size, (1, length))
    before = model(ids)
    for t in range(1, length):
        for token in range(vocab_size):
            other = ids.clone()
            other[:, t] = token
            if not torch.allclose(before[:, :t], model(other)[:, :t]):
                return False
    return True


def by_prefix(model, vocab_size, length):
    # A row of a causal model is the answer to its prefix alone.
    ids = torch.randint(vocab_size, (vocab_size, length))
    for t in range(1, length):
        text = ids.clone()
        text[:, t] = torch.arange(vocab_size)
        gap = (model(text)[:, :t] - model(text[:, :t])).abs().max()
        if gap > 1e-6:
            return False
    return True


def by_suffix(model, vocab_size, length):
    start = torch.zeros(vocab_size, length, dtype=torch.long)
    for t in range(length - 1):
        later = start.clone()
        later[:, t + 1 :] = torch.arange(vocab_size)[:, None]
        rows = model(later)[:, : t + 1]
        if (rows - rows[:1]).abs().max().item() > 1e-4:
            return False
    return True


# -- is_causal: wrong --------------------------------------------------------
def nothing_moves(model, vocab_size, length, changed, rows, close=None):
    ids = torch.full((1, length), 2)
    before = model(ids)
    moved = []
    for t in changed:
        for token in range(vocab_size):
            other = ids.clone()
            other[0, t] = token
            a, b = before[0, rows(t)], model(other)[0, rows(t)]
            moved.append(close(a, b) if close else (a - b).abs().max() < 1e-6)
    return all(moved)


def last_token(model, vocab_size, length):
    return nothing_moves(
        model, vocab_size, length, [length - 1], lambda t: range(t)
    )


def last_pair(model, vocab_size, length):
    return nothing_moves(
        model, vocab_size, length, [length - 1], lambda t: [-2]
    )


def spared_last(model, vocab_size, length):
    return nothing_moves(
        model, vocab_size, length, range(1, length - 1), lambda t: range(t)
    )


def one_change(model, vocab_size, length):
    ids = torch.zeros(1, length, dtype=torch.long)
    before = model(ids)
    for t in range(1, length):
        other = ids.clone()
        other[:, t] = 3
        if not torch.allclose(before[:, :t], model(other)[:, :t]):
            return False
    return True


def one_change_but_last(model, vocab_size, length):
    ids = torch.zeros(1, length, dtype=torch.long)
    before = model(ids)
    tries = [(t, 3) for t in range(1, length)]
    for t, token in tries + [(length - 1, n) for n in range(vocab_size)]:
        other = ids.clone()
        other[:, t] = token
        if not torch.allclose(before[:, :t], model(other)[:, :t]):
            return False
    return True


def neighbor(model, vocab_size, length):
    return nothing_moves(
        model, vocab_size, length, range(1, length), lambda t: [t - 1]
    )


def own_row(model, vocab_size, length):
    return nothing_moves(
        model, vocab_size, length, range(1, length), lambda t: range(t + 1)
    )


def to_the_bit(model, vocab_size, length):
    return nothing_moves(
        model,
        vocab_size,
        length,
        range(1, length),
        lambda t: range(t),
        lambda a, b: bool((a == b).all()),
    )


def two_digits(model, vocab_size, length):
    return nothing_moves(
        model,
        vocab_size,
        length,
        range(1, length),
        lambda t: range(t),
        lambda a, b: (a - b).abs().max().item() < 0.1,
    )


# -- is_causal: mistakes that the catalogue does not have --------------------
def always(model, vocab_size, length):
    return model(torch.zeros(1, length, dtype=torch.long)).dim() == 3


def the_past_matters(model, vocab_size, length):
    # That the first token reaches the last row is another question.
    ids = torch.zeros(1, length, dtype=torch.long)
    other = ids.clone()
    other[0, 0] = 1
    return not torch.allclose(model(ids)[:, -1], model(other)[:, -1])


def means_stay(model, vocab_size, length):
    ids = torch.arange(length)[None]
    other = ids.clone()
    other[:, -1] = vocab_size - 1
    a, b = model(ids)[:, :-1].mean(), model(other)[:, :-1].mean()
    return abs(a.item() - b.item()) < 1e-3


# -- columns: right ----------------------------------------------------------
def by_rows(q, k, v):
    fit = q @ k.mT / math.sqrt(q.shape[-1])
    t, s = fit.shape[-2:]
    see = torch.arange(s) <= torch.arange(t)[:, None] + s - t
    weights = F.softmax(torch.where(see, fit, -inf), dim=-1)
    return weights.transpose(-1, -2), weights @ v


def query_by_query(q, k, v):
    n, t = k.shape[-2], q.shape[-2]
    weights = q.new_zeros(*k.shape[:-1], t)
    for i in range(t):
        end = n - t + i + 1
        fit = k[..., :end, :] @ q[..., i, :, None] / q.shape[-1] ** 0.5
        weights[..., :end, i] = fit.squeeze(-1).softmax(-1)
    return weights, torch.einsum("...st,...sd->...td", weights, v)


def by_bias(q, k, v):
    fit = (k @ q.transpose(-2, -1)) / q.size(-1) ** 0.5
    s, t = fit.shape[-2:]
    later = torch.arange(s)[:, None] > torch.arange(s - t, s)
    fit = fit + torch.zeros(s, t, dtype=q.dtype).masked_fill(later, -1e300)
    e = (fit - fit.max(dim=-2, keepdim=True).values).exp()
    weights = e / e.sum(-2, keepdim=True)
    return weights, (v.mT @ weights).mT


# -- columns: wrong ----------------------------------------------------------
def keys_by_queries(q, k, v, hide, dim=-2):
    fit = torch.einsum("...sd,...td->...st", k, q) / math.sqrt(k.size(-1))
    weights = F.softmax(torch.where(hide, -inf, fit), dim=dim)
    return weights, torch.einsum("...st,...sd->...td", weights, v)


def grid(q, k):
    t, s = q.shape[-2], k.shape[-2]
    return torch.arange(s)[:, None], torch.arange(t), s - t


def upper_right(q, k, v):
    j, i, _ = grid(q, k)
    return keys_by_queries(q, k, v, j < i)


def main_diagonal(q, k, v):
    j, i, _ = grid(q, k)
    return keys_by_queries(q, k, v, j > i)


def over_queries(q, k, v):
    j, i, earlier = grid(q, k)
    return keys_by_queries(q, k, v, j > i + earlier, dim=-1)


def no_transpose(q, k, v):
    j, i, earlier = grid(q, k)
    weights, _ = keys_by_queries(q, k, v, j > i + earlier)
    return weights, torch.matmul(weights, v)


# -- columns: mistakes that the catalogue does not have ----------------------
def first_axis(q, k, v):
    j, i, earlier = grid(q, k)
    return keys_by_queries(q, k, v, j > i + earlier, dim=0)


def queries_as_rows(q, k, v):
    weights, y = by_rows(q, k, v)
    return weights.mT, y


# -- visible: right ----------------------------------------------------------
def by_positions(ids, pad_id):
    at = torch.arange(ids.shape[1])
    later = at[None, :] > at[:, None]
    pad = torch.eq(ids, pad_id).view(ids.shape[0], 1, 1, -1)
    return ~(pad | later)


def cell_by_cell(ids, pad_id):
    b, n = ids.shape
    see = torch.zeros(b, 1, n, n, dtype=torch.bool)
    for row in range(b):
        for i in range(n):
            for j in range(i + 1):
                see[row, 0, i, j] = bool(ids[row, j] != pad_id)
    return see


def by_products(ids, pad_id):
    n = ids.size(1)
    real = (ids != pad_id).long()
    see = (
        torch.ones(n, 1).long() * real[:, None, None] * torch.ones(n, n).tril()
    )
    return see > 0.5


# -- visible: wrong ----------------------------------------------------------
def zero_is_padding(ids, pad_id):
    real = ids.bool()[:, None, None]
    return real & torch.tril(torch.ones(ids.size(1), ids.size(1))).bool()


def on_the_right(ids, pad_id):
    lengths = (ids != pad_id).sum(-1)
    at = torch.arange(ids.size(1))
    key = at[None, None, None, :]
    return (key < lengths[:, None, None, None]) & (key <= at[:, None])


def query_axis(ids, pad_id):
    real = (ids != pad_id).unsqueeze(1).unsqueeze(-1)
    return real.logical_and(torch.ones(ids.size(1), ids.size(1)).tril())


def both_axes(ids, pad_id):
    real = (ids != pad_id).double()
    pairs = torch.einsum("bi,bj->bij", real, real)
    return (pairs.tril() > 0)[:, None]


def upside_down(ids, pad_id):
    at = torch.arange(ids.size(1))
    return (ids != pad_id)[:, None, None, :] * (at >= at[:, None])


def not_itself(ids, pad_id):
    at = torch.arange(ids.size(1))
    return (ids != pad_id)[:, None, None, :] * (at < at[:, None])


def either(ids, pad_id):
    at = torch.arange(ids.size(1))
    return torch.logical_or(
        (ids != pad_id)[:, None, None, :], at <= at[:, None]
    )


def no_head_axis(ids, pad_id):
    return by_positions(ids, pad_id).squeeze(1)


def inverted(ids, pad_id):
    n = ids.size(1)
    later = torch.ones(n, n, dtype=torch.bool).triu(1)
    return (ids == pad_id)[:, None, None, :] | later


# -- visible: mistakes that the catalogue does not have ----------------------
def triangle_alone(ids, pad_id):
    b, n = ids.shape
    return torch.ones(b, 1, n, n).tril().bool()


def only_the_last_is_padding(ids, pad_id):
    real = ids != pad_id
    real[:, :-1] = True
    return real[:, None, None] & by_positions(ids, -1)


# -- empty_rows --------------------------------------------------------------
def with_gradient(function):
    """What the page calls by that name."""

    def tested(scores, mask, pull):
        scores = scores.detach().requires_grad_()
        weights = function(scores, mask)
        (gradient,) = torch.autograd.grad(weights, scores, pull)
        return weights, gradient

    return tested


@with_gradient
def filled_and_repaired(scores, mask):
    # masked_fill sends nothing back to what it filled, nor the NaN.
    return scores.masked_fill(~mask, -inf).softmax(-1).nan_to_num(0.0)


@with_gradient
def divided_by_hand(scores, mask):
    top = scores.masked_fill(~mask, -1e300).amax(-1, keepdim=True)
    e = torch.where(mask, scores - top.detach(), -inf).exp()
    return e / e.sum(-1, keepdim=True).clamp(min=1e-300)


@with_gradient
def rows_apart(scores, mask):
    flat, see = scores.reshape(-1, scores.size(-1)), mask.reshape(-1, 7)
    rows = []
    for score, open_ in zip(flat, see, strict=True):
        row = 0 * score
        if open_.any():
            row = row.masked_scatter(open_, score[open_].softmax(0))
        rows.append(row)
    return torch.stack(rows).view_as(scores)


@with_gradient
def infinite(scores, mask):
    return F.softmax(torch.where(mask, scores, -inf), dim=-1)


@with_gradient
def repaired(scores, mask):
    bias = torch.where(mask, 0.0, -inf)
    weights = F.softmax(scores + bias, dim=-1)
    return torch.where(weights.isnan(), 0.0, weights)


@with_gradient
def small(scores, mask):
    return F.softmax(torch.where(mask, scores, -1e9), dim=-1) * mask


@with_gradient
def uniform(scores, mask):
    return F.softmax(torch.where(mask, scores, -1e300), dim=-1)


@with_gradient
def hides_what_is_seen(scores, mask):
    weights = scores.masked_fill(mask, -1e300).softmax(-1)
    return weights.masked_fill(mask, 0.0)


@with_gradient
def after_the_softmax(scores, mask):
    return scores.softmax(-1) * mask


@with_gradient
def without_gradient(scores, mask):
    weights = scores.masked_fill(~mask, -inf).softmax(-1).nan_to_num(0.0)
    return weights.detach() + 0 * scores


@with_gradient
def over_the_queries(scores, mask):
    return scores.masked_fill(~mask, -1e300).softmax(-2) * mask


# -- true_means: right -------------------------------------------------------
def by_sdpa(q, k, v, hide):
    see = torch.logical_not(hide).unsqueeze(1).expand(-1, q.size(1), -1, -1)
    return F.scaled_dot_product_attention(q, k, v, see)


def by_infinity(q, k, v, hide):
    bias = torch.zeros(hide.shape, dtype=q.dtype).masked_fill(hide, -inf)
    y = F.scaled_dot_product_attention(q, k, v, bias[:, None])
    return y.nan_to_num(0.0)


def sentence_by_sentence(q, k, v, hide):
    return torch.stack(
        [
            F.scaled_dot_product_attention(q[b], k[b], v[b], ~hide[b])
            for b in range(len(q))
        ]
    )


# -- true_means: wrong -------------------------------------------------------
def true_looks(q, k, v, hide):
    see = hide.view(len(q), 1, *hide.shape[1:])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=see)


def by_head(q, k, v, hide):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=hide == 0)


def tiled(q, k, v, hide):
    # As nn.MultiheadAttention wants it: (B * H, T, S), but B and H swapped.
    b, h = q.shape[:2]
    see = torch.cat([~hide] * h).view(b, h, *hide.shape[1:])
    return F.scaled_dot_product_attention(q, k, v, see)


def added(q, k, v, hide):
    see = 1.0 - hide.double()[:, None]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=see)


def means_mask_finite(q, k, v, hide):
    hide = hide[:, None]
    scores = torch.where(hide, -100.0, q @ k.mT / math.sqrt(q.size(-1)))
    return scores.softmax(-1) * ~hide @ v


# -- true_means: mistakes that the catalogue does not have -------------------
def empty_is_nan(q, k, v, hide):
    scores = q @ k.mT / q.size(-1) ** 0.5
    return scores.masked_fill(hide[:, None], -inf).softmax(-1) @ v


def not_at_all(q, k, v, hide):
    return F.scaled_dot_product_attention(q, k, v)


def after(q, k, v, hide):
    weights = (q @ k.mT / q.size(-1) ** 0.5).softmax(-1)
    return weights.masked_fill(hide[:, None], 0) @ v


def columns_not_itself(q, k, v):
    t, s = q.size(-2), k.size(-2)
    i, j = torch.arange(t), torch.arange(s)[:, None]
    scores = k @ q.mT / math.sqrt(q.size(-1))
    weights = scores.where(j < i + s - t, -math.inf).softmax(-2)
    return weights, weights.mT @ v


def columns_sees_next(q, k, v):
    t, s = q.size(-2), k.size(-2)
    i, j = torch.arange(t), torch.arange(s)[:, None]
    scores = k @ q.mT / math.sqrt(q.size(-1))
    weights = scores.where(j <= i + s - t + 1, -math.inf).softmax(-2)
    return weights, weights.mT @ v


def columns_mask_finite(q, k, v):
    t, s = q.size(-2), k.size(-2)
    later = torch.arange(s)[:, None] > torch.arange(s - t, s)
    scores = k @ q.mT / math.sqrt(q.size(-1))
    weights = torch.where(later, -100.0, scores).softmax(-2)
    return weights, weights.mT @ v


def columns_no_root(q, k, v):
    return columns_sees_next(q * 2, k, v)


def columns_tenth(q, k, v):
    weights, y = columns_not_itself(q, k, v)
    return weights / 10, y


def weights_halved(scores, mask, pull):
    x = scores.detach().requires_grad_()
    weights = (
        x.masked_fill(~mask, -1e300).softmax(-1).masked_fill(~mask, 0) / 2
    )
    return weights, torch.autograd.grad(weights, x, pull)[0]


def visible_sees_next(ids, pad_id):
    b, n = ids.shape
    see = torch.zeros(b, 1, n, n, dtype=torch.bool)
    for row in range(b):
        for i in range(n):
            for j in range(min(i + 2, n)):
                see[row, 0, i, j] = bool(ids[row, j] != pad_id)
    return see


def padding_inverted(ids, pad_id):
    b, n = ids.shape
    see = torch.zeros(b, 1, n, n, dtype=torch.bool)
    for row in range(b):
        for i in range(n):
            for j in range(i + 1):
                see[row, 0, i, j] = bool(ids[row, j] == pad_id)
    return see


def first_is_seen(ids, pad_id):
    see = visible_sees_next(ids, pad_id).tril()
    see[..., 0] = True
    return see


def nothing_seen(ids, pad_id):
    return torch.zeros_like(visible_sees_next(ids, pad_id))


def padding_only(ids, pad_id):
    b, t = ids.shape
    return ids.ne(pad_id).view(b, 1, 1, t).expand(b, 1, t, t)


RIGHT = {
    "is_causal": [one_by_one, by_prefix, by_suffix],
    "columns": [by_rows, query_by_query, by_bias],
    "visible": [by_positions, cell_by_cell, by_products],
    "empty_rows": [filled_and_repaired, divided_by_hand, rows_apart],
    "true_means": [by_sdpa, by_infinity, sentence_by_sentence],
}
WRONG = {
    "is_causal": {
        "last_token": last_token,
        "own_row": own_row,
        "exact": to_the_bit,
    },
    "columns": {
        "upper_right": upper_right,
        "main_diagonal": main_diagonal,
        "over_queries": over_queries,
        "no_transpose": no_transpose,
        "queries_as_rows": queries_as_rows,
        "not_itself": columns_not_itself,
        "sees_next": columns_sees_next,
        "mask_finite": columns_mask_finite,
    },
    "visible": {
        "zero_is_padding": zero_is_padding,
        "on_the_right": on_the_right,
        "query_axis": query_axis,
        "both_axes": both_axes,
        "upside_down": upside_down,
        "not_itself": not_itself,
        "either": either,
        "no_head_axis": no_head_axis,
        "inverted": inverted,
        "triangle_alone": triangle_alone,
        "sees_next": visible_sees_next,
        "padding_inverted": padding_inverted,
        "padding_only": padding_only,
    },
    "empty_rows": {
        "infinite": infinite,
        "repaired": repaired,
        "small": small,
        "uniform": uniform,
        "inverted": hides_what_is_seen,
        "zero_after": after_the_softmax,
    },
    "true_means": {
        "inverted": true_looks,
        "no_head_axis": by_head,
        "tiled": tiled,
        "added": added,
        "mask_finite": means_mask_finite,
    },
}
OUTSIDE = {
    "is_causal": [
        always,
        the_past_matters,
        means_stay,
        neighbor,
        two_digits,
        last_pair,
        spared_last,
        one_change,
        one_change_but_last,
    ],
    "columns": [
        first_axis,
        columns_tenth,
        columns_no_root,
    ],
    "visible": [nothing_seen, first_is_seen, only_the_last_is_padding],
    "empty_rows": [weights_halved, without_gradient, over_the_queries],
    "true_means": [empty_is_nan, not_at_all, after],
}
