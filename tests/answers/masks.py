"""Answers to the exercises of chapter 5."""

import math

import torch
from torch.nn import functional as F

from tests.answers import right, wrong

# -- is_causal ---------------------------------------------------------------


@right("masks/is_causal")
def causal_one_batch_each(model, vocab_size, length):
    for _ in range(3):
        ids = torch.randint(vocab_size, (1, length))
        for t in range(1, length):
            batch = ids.repeat(vocab_size, 1)
            batch[:, t] = torch.arange(vocab_size)
            before = model(batch)[:, :t]
            if not torch.allclose(
                before, before[:1].expand_as(before), atol=1e-5
            ):
                return False
    return True


@right("masks/is_causal")
@torch.no_grad()
def is_causal_one_by_one(model, vocab_size, length):
    g = torch.Generator().manual_seed(0)
    for _ in range(3):
        ids = torch.randint(vocab_size, (1, length), generator=g)
        before = model(ids.clone())[0].clone()
        for t in range(1, length):
            for token in range(vocab_size):
                other = ids.clone()
                other[0, t] = token
                after = model(other)[0]
                change = (after[:t] - before[:t]).abs().max().item()
                if not change < 1e-6:
                    return False
    return True


@right("masks/is_causal")
@torch.no_grad()
def is_causal_by_spread(model, vocab_size, length):
    torch.manual_seed(1)
    leaks = []
    for _ in range(4):
        text = torch.randint(vocab_size, (length,))
        for t in range(length - 1, 0, -1):
            batch = text.repeat(vocab_size, 1)
            batch[:, t] = torch.arange(vocab_size)
            early = model(batch)[:, :t]
            spread = early.amax(0) - early.amin(0)
            leaks.append(bool((spread > 1e-5).any()))
    return not any(leaks)


@right("masks/is_causal")
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


@right("masks/is_causal")
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


@right("masks/is_causal")
def by_suffix(model, vocab_size, length):
    start = torch.zeros(vocab_size, length, dtype=torch.long)
    for t in range(length - 1):
        later = start.clone()
        later[:, t + 1 :] = torch.arange(vocab_size)[:, None]
        rows = model(later)[:, : t + 1]
        if (rows - rows[:1]).abs().max().item() > 1e-4:
            return False
    return True


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


@wrong("masks/is_causal", "own_row")
def own_row(model, vocab_size, length):
    return nothing_moves(
        model, vocab_size, length, range(1, length), lambda t: range(t + 1)
    )


@wrong("masks/is_causal", "exact")
def to_the_bit(model, vocab_size, length):
    return nothing_moves(
        model,
        vocab_size,
        length,
        range(1, length),
        lambda t: range(t),
        lambda a, b: bool((a == b).all()),
    )


@wrong("masks/is_causal")
def always(model, vocab_size, length):
    return model(torch.zeros(1, length, dtype=torch.long)).dim() == 3


@wrong("masks/is_causal")
def neighbor(model, vocab_size, length):
    return nothing_moves(
        model, vocab_size, length, range(1, length), lambda t: [t - 1]
    )


@wrong("masks/is_causal", "last_token")
def last_token(model, vocab_size, length):
    return nothing_moves(
        model, vocab_size, length, [length - 1], lambda t: range(t)
    )


@wrong("masks/is_causal")
def last_pair(model, vocab_size, length):
    return nothing_moves(
        model, vocab_size, length, [length - 1], lambda t: [-2]
    )


@wrong("masks/is_causal")
def spared_last(model, vocab_size, length):
    return nothing_moves(
        model, vocab_size, length, range(1, length - 1), lambda t: range(t)
    )


@wrong("masks/is_causal")
def the_past_matters(model, vocab_size, length):
    # That the first token reaches the last row is another question.
    ids = torch.zeros(1, length, dtype=torch.long)
    other = ids.clone()
    other[0, 0] = 1
    return not torch.allclose(model(ids)[:, -1], model(other)[:, -1])


@wrong("masks/is_causal")
def means_stay(model, vocab_size, length):
    ids = torch.arange(length)[None]
    other = ids.clone()
    other[:, -1] = vocab_size - 1
    a, b = model(ids)[:, :-1].mean(), model(other)[:, :-1].mean()
    return abs(a.item() - b.item()) < 1e-3


@wrong("masks/is_causal")
def two_digits(model, vocab_size, length):
    return nothing_moves(
        model,
        vocab_size,
        length,
        range(1, length),
        lambda t: range(t),
        lambda a, b: (a - b).abs().max().item() < 0.1,
    )


@wrong("masks/is_causal")
def one_change(model, vocab_size, length):
    ids = torch.zeros(1, length, dtype=torch.long)
    before = model(ids)
    for t in range(1, length):
        other = ids.clone()
        other[:, t] = 3
        if not torch.allclose(before[:, :t], model(other)[:, :t]):
            return False
    return True


@wrong("masks/is_causal")
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


# One change at each position: misses a model that reacts to one token.
@wrong("masks/is_causal")
@torch.no_grad()
def is_causal_one_change(model, vocab_size, length):
    torch.manual_seed(0)
    ids = torch.randint(vocab_size, (1, length))
    before = model(ids)
    for t in range(1, length):
        other = ids.clone()
        other[0, t] = (ids[0, t] + 1) % vocab_size
        after = model(other)
        if not torch.allclose(before[:, :t], after[:, :t], atol=1e-6):
            return False
    return True


# Asks whether later positions see earlier tokens.
@wrong("masks/is_causal")
@torch.no_grad()
def is_causal_the_other_way(model, vocab_size, length):
    ids = torch.randint(vocab_size, (1, length))
    before = model(ids)
    for t in range(length - 1):
        for token in range(vocab_size):
            other = ids.clone()
            other[0, t] = token
            after = model(other)
            if not torch.allclose(
                before[:, t + 1 :], after[:, t + 1 :], atol=1e-6
            ):
                return False
    return True


# -- columns -----------------------------------------------------------------


@right("masks/columns")
def columns_by_turning(q, k, v):
    scores = (k @ q.mT / q.size(-1) ** 0.5).mT
    t, s = scores.shape[-2:]
    query = torch.arange(t)[:, None] + (s - t)
    scores = scores.masked_fill(torch.arange(s) > query, -math.inf)
    weights = scores.softmax(-1)
    return weights.mT, weights @ v


inf = float("inf")


@right("masks/columns")
def by_rows(q, k, v):
    fit = q @ k.mT / math.sqrt(q.shape[-1])
    t, s = fit.shape[-2:]
    see = torch.arange(s) <= torch.arange(t)[:, None] + s - t
    weights = F.softmax(torch.where(see, fit, -inf), dim=-1)
    return weights.transpose(-1, -2), weights @ v


@right("masks/columns")
def query_by_query(q, k, v):
    n, t = k.shape[-2], q.shape[-2]
    weights = q.new_zeros(*k.shape[:-1], t)
    for i in range(t):
        end = n - t + i + 1
        fit = k[..., :end, :] @ q[..., i, :, None] / q.shape[-1] ** 0.5
        weights[..., :end, i] = fit.squeeze(-1).softmax(-1)
    return weights, torch.einsum("...st,...sd->...td", weights, v)


@right("masks/columns")
def by_bias(q, k, v):
    fit = (k @ q.transpose(-2, -1)) / q.size(-1) ** 0.5
    s, t = fit.shape[-2:]
    later = torch.arange(s)[:, None] > torch.arange(s - t, s)
    fit = fit + torch.zeros(s, t, dtype=q.dtype).masked_fill(later, -1e300)
    e = (fit - fit.max(dim=-2, keepdim=True).values).exp()
    weights = e / e.sum(-2, keepdim=True)
    return weights, (v.mT @ weights).mT


@wrong("masks/columns", "main_diagonal")
def columns_main_diagonal(q, k, v):
    scores = k @ q.mT / q.size(-1) ** 0.5
    hide = torch.ones_like(scores, dtype=torch.bool).tril(-1)
    weights = scores.masked_fill(hide, float("-inf")).softmax(dim=-2)
    return weights, weights.mT @ v


def keys_by_queries(q, k, v, hide, dim=-2):
    fit = torch.einsum("...sd,...td->...st", k, q) / math.sqrt(k.size(-1))
    weights = F.softmax(torch.where(hide, -inf, fit), dim=dim)
    return weights, torch.einsum("...st,...sd->...td", weights, v)


def grid(q, k):
    t, s = q.shape[-2], k.shape[-2]
    return torch.arange(s)[:, None], torch.arange(t), s - t


@wrong("masks/columns", "over_queries")
def over_queries(q, k, v):
    j, i, earlier = grid(q, k)
    return keys_by_queries(q, k, v, j > i + earlier, dim=-1)


@wrong("masks/columns", "no_transpose")
def columns_last_line_left(q, k, v):
    scores = k @ q.mT / q.size(-1) ** 0.5
    late = k.size(-2) - q.size(-2)
    hide = torch.ones_like(scores, dtype=torch.bool).tril(-1 - late)
    weights = scores.masked_fill(hide, float("-inf")).softmax(dim=-2)
    return weights, weights @ v


@wrong("masks/columns", "queries_as_rows")
def columns_weights_turned(q, k, v):
    weights, y = columns_by_turning(q, k, v)
    return weights.mT, y


@wrong("masks/columns", "upper_right")
def upper_right(q, k, v):
    j, i, _ = grid(q, k)
    return keys_by_queries(q, k, v, j < i)


@wrong("masks/columns", "not_itself")
def columns_not_itself(q, k, v):
    t, s = q.size(-2), k.size(-2)
    i, j = torch.arange(t), torch.arange(s)[:, None]
    scores = k @ q.mT / math.sqrt(q.size(-1))
    weights = scores.where(j < i + s - t, -math.inf).softmax(-2)
    return weights, weights.mT @ v


@wrong("masks/columns", "sees_next")
def columns_sees_next(q, k, v):
    t, s = q.size(-2), k.size(-2)
    i, j = torch.arange(t), torch.arange(s)[:, None]
    scores = k @ q.mT / math.sqrt(q.size(-1))
    weights = scores.where(j <= i + s - t + 1, -math.inf).softmax(-2)
    return weights, weights.mT @ v


@wrong("masks/columns", "mask_finite")
def columns_mask_finite(q, k, v):
    t, s = q.size(-2), k.size(-2)
    later = torch.arange(s)[:, None] > torch.arange(s - t, s)
    scores = k @ q.mT / math.sqrt(q.size(-1))
    weights = torch.where(later, -100.0, scores).softmax(-2)
    return weights, weights.mT @ v


@wrong("masks/columns")
def first_axis(q, k, v):
    j, i, earlier = grid(q, k)
    return keys_by_queries(q, k, v, j > i + earlier, dim=0)


@wrong("masks/columns")
def columns_query_by_query(q, k, v):
    n_queries, n_keys = q.size(0), k.size(0)
    columns, rows = [], []
    for i in range(n_queries):
        seen = i + n_keys - n_queries + 1
        weights = (k[:seen] @ q[i] / math.sqrt(q.size(1))).softmax(0)
        rows.append(weights @ v[:seen])
        hidden = weights.new_zeros(n_keys - seen)
        columns.append(torch.cat((weights, hidden)))
    return torch.stack(columns, dim=1), torch.stack(rows)


@wrong("masks/columns")
def columns_no_root(q, k, v):
    return columns_sees_next(q * 2, k, v)


# -- visible -----------------------------------------------------------------


@right("masks/visible")
def visible_in_loops(ids, pad_id):
    n_texts, length = ids.shape
    see = torch.zeros(n_texts, 1, length, length, dtype=torch.bool)
    for b, row in enumerate(ids.tolist()):
        for i in range(length):
            for j in range(i + 1):
                see[b, 0, i, j] = row[j] != pad_id
    return see


@right("masks/visible")
def visible_by_tril(ids, pad_id):
    length = ids.size(1)
    real = ids.ne(pad_id).unsqueeze(1).expand(-1, length, -1)
    return real.unsqueeze(1).clone().tril()


@right("masks/visible")
def by_positions(ids, pad_id):
    at = torch.arange(ids.shape[1])
    later = at[None, :] > at[:, None]
    pad = torch.eq(ids, pad_id).view(ids.shape[0], 1, 1, -1)
    return ~(pad | later)


@right("masks/visible")
def cell_by_cell(ids, pad_id):
    b, n = ids.shape
    see = torch.zeros(b, 1, n, n, dtype=torch.bool)
    for row in range(b):
        for i in range(n):
            for j in range(i + 1):
                see[row, 0, i, j] = bool(ids[row, j] != pad_id)
    return see


@right("masks/visible")
def by_products(ids, pad_id):
    n = ids.size(1)
    real = (ids != pad_id).long()
    see = (
        torch.ones(n, 1).long() * real[:, None, None] * torch.ones(n, n).tril()
    )
    return see > 0.5


@wrong("masks/visible", "query_axis")
def visible_hides_queries(ids, pad_id):
    length = ids.size(1)
    past = torch.ones(length, length, dtype=torch.bool).tril()
    return (ids != pad_id)[:, None, :, None] & past


@wrong("masks/visible", "both_axes")
def visible_hides_both(ids, pad_id):
    real = ids != pad_id
    both = real[:, None, :, None] & real[:, None, None, :]
    return both.tril()


@wrong("masks/visible", "padding_only")
def visible_ahead(ids, pad_id):
    real = (ids != pad_id)[:, None, None, :]
    return real.expand(-1, 1, ids.size(1), -1)


@wrong("masks/visible", "inverted")
def visible_inverted(ids, pad_id):
    length = ids.size(1)
    ahead = torch.ones(length, length, dtype=torch.bool).triu(1)
    return (ids == pad_id)[:, None, None, :] | ahead


@wrong("masks/visible", "no_head_axis")
def visible_three_axes(ids, pad_id):
    length = ids.size(1)
    past = torch.ones(length, length, dtype=torch.bool).tril()
    return (ids != pad_id)[:, None, :] & past


@wrong("masks/visible", "on_the_right")
def visible_right_only(ids, pad_id):
    length = ids.size(1)
    lengths = (ids != pad_id).sum(1)
    at = torch.arange(length)
    real = at < lengths[:, None]
    return real[:, None, None, :] & (at <= at[:, None])


@wrong("masks/visible", "zero_is_padding")
def visible_pads_with_zero(ids, pad_id):
    return (ids != 0)[:, None, None, :].repeat(1, 1, ids.size(1), 1).tril()


@wrong("masks/visible", "not_itself")
def visible_without_diagonal(ids, pad_id):
    at = torch.arange(ids.size(1))
    return (ids != pad_id)[:, None, None, :] & (at < at[:, None])


@wrong("masks/visible", "upside_down")
def upside_down(ids, pad_id):
    at = torch.arange(ids.size(1))
    return (ids != pad_id)[:, None, None, :] * (at >= at[:, None])


@wrong("masks/visible", "either")
def either(ids, pad_id):
    at = torch.arange(ids.size(1))
    return torch.logical_or(
        (ids != pad_id)[:, None, None, :], at <= at[:, None]
    )


@wrong("masks/visible", "triangle_alone")
def triangle_alone(ids, pad_id):
    b, n = ids.shape
    return torch.ones(b, 1, n, n).tril().bool()


@wrong("masks/visible", "sees_next")
def visible_sees_next(ids, pad_id):
    b, n = ids.shape
    see = torch.zeros(b, 1, n, n, dtype=torch.bool)
    for row in range(b):
        for i in range(n):
            for j in range(min(i + 2, n)):
                see[row, 0, i, j] = bool(ids[row, j] != pad_id)
    return see


@wrong("masks/visible", "padding_inverted")
def padding_inverted(ids, pad_id):
    b, n = ids.shape
    see = torch.zeros(b, 1, n, n, dtype=torch.bool)
    for row in range(b):
        for i in range(n):
            for j in range(i + 1):
                see[row, 0, i, j] = bool(ids[row, j] == pad_id)
    return see


@wrong("masks/visible")
def nothing_seen(ids, pad_id):
    return torch.zeros_like(visible_sees_next(ids, pad_id))


@wrong("masks/visible")
def first_is_seen(ids, pad_id):
    see = visible_sees_next(ids, pad_id).tril()
    see[..., 0] = True
    return see


@wrong("masks/visible")
def only_the_last_is_padding(ids, pad_id):
    real = ids != pad_id
    real[:, :-1] = True
    return real[:, None, None] & by_positions(ids, -1)


# -- empty_rows --------------------------------------------------------------


def weights_and_gradient(scores, mask, pull, function):
    """Given on the page."""
    scores = scores.detach().requires_grad_()
    weights = function(scores, mask)
    if weights is None:
        return None
    (gradient,) = torch.autograd.grad(weights, scores, pull)
    return weights, gradient


@right("masks/empty_rows")
def empty_rows_opened(scores, mask, pull):
    def safe_weights(scores, mask):
        some = mask.any(-1, keepdim=True)
        see = mask | ~some
        weights = scores.masked_fill(~see, -math.inf).softmax(-1)
        return weights * some

    return weights_and_gradient(scores, mask, pull, safe_weights)


@right("masks/empty_rows")
def empty_rows_by_hand(scores, mask, pull):
    def safe_weights(scores, mask):
        low = torch.finfo(scores.dtype).min
        top = scores.detach().masked_fill(~mask, low).amax(-1, keepdim=True)
        shifted = (scores - top).masked_fill(~mask, 0)
        e = shifted.exp() * mask
        total = e.sum(-1, keepdim=True)
        return e / torch.where(total > 0, total, torch.ones_like(total))

    return weights_and_gradient(scores, mask, pull, safe_weights)


@right("masks/empty_rows")
def empty_rows_nan_to_num(scores, mask, pull):
    def safe_weights(scores, mask):
        hidden = scores.masked_fill(~mask, -math.inf)
        return hidden.softmax(-1).nan_to_num(0)

    return weights_and_gradient(scores, mask, pull, safe_weights)


@right("masks/empty_rows")
def empty_rows_where(scores, mask, pull):
    def safe_weights(scores, mask):
        weights = scores.masked_fill(~mask, -math.inf).softmax(-1)
        return torch.where(mask, weights, torch.zeros_like(weights))

    return weights_and_gradient(scores, mask, pull, safe_weights)


def with_gradient(function):
    """What the page calls by that name."""

    def tested(scores, mask, pull):
        scores = scores.detach().requires_grad_()
        weights = function(scores, mask)
        (gradient,) = torch.autograd.grad(weights, scores, pull)
        return weights, gradient

    return tested


@right("masks/empty_rows")
@with_gradient
def filled_and_repaired(scores, mask):
    # masked_fill sends nothing back to what it filled, nor the NaN.
    return scores.masked_fill(~mask, -inf).softmax(-1).nan_to_num(0.0)


@right("masks/empty_rows")
@with_gradient
def divided_by_hand(scores, mask):
    top = scores.masked_fill(~mask, -1e300).amax(-1, keepdim=True)
    e = torch.where(mask, scores - top.detach(), -inf).exp()
    return e / e.sum(-1, keepdim=True).clamp(min=1e-300)


@right("masks/empty_rows")
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


@wrong("masks/empty_rows", "uniform")
def empty_rows_uniform(scores, mask, pull):
    def safe_weights(scores, mask):
        low = torch.finfo(scores.dtype).min
        return scores.masked_fill(~mask, low).softmax(-1)

    return weights_and_gradient(scores, mask, pull, safe_weights)


@wrong("masks/empty_rows", "zero_after")
def empty_rows_zero_after(scores, mask, pull):
    def safe_weights(scores, mask):
        return scores.softmax(-1).masked_fill(~mask, 0)

    return weights_and_gradient(scores, mask, pull, safe_weights)


@wrong("masks/empty_rows", "infinite")
@with_gradient
def infinite(scores, mask):
    return F.softmax(torch.where(mask, scores, -inf), dim=-1)


@wrong("masks/empty_rows", "repaired")
@with_gradient
def repaired(scores, mask):
    bias = torch.where(mask, 0.0, -inf)
    weights = F.softmax(scores + bias, dim=-1)
    return torch.where(weights.isnan(), 0.0, weights)


@wrong("masks/empty_rows", "small")
@with_gradient
def small(scores, mask):
    return F.softmax(torch.where(mask, scores, -1e9), dim=-1) * mask


@wrong("masks/empty_rows", "inverted")
@with_gradient
def hides_what_is_seen(scores, mask):
    weights = scores.masked_fill(mask, -1e300).softmax(-1)
    return weights.masked_fill(mask, 0.0)


# -1e9: an empty row is uniform.
@wrong("masks/empty_rows")
def empty_rows_minus_a_billion(scores, mask):
    return scores.masked_fill(~mask, -1e9).softmax(-1)


# The weights are cut from the graph, so there is no gradient.
@wrong("masks/empty_rows")
def empty_rows_detached(scores, mask, pull):
    @torch.no_grad()
    def safe_weights(scores, mask):
        low = torch.finfo(scores.dtype).min
        weights = scores.masked_fill(~mask, low).softmax(-1)
        return weights.masked_fill(~mask, 0)

    return weights_and_gradient(scores, mask, pull, safe_weights)


@wrong("masks/empty_rows")
@with_gradient
def over_the_queries(scores, mask):
    return scores.masked_fill(~mask, -1e300).softmax(-2) * mask


# -- true_means --------------------------------------------------------------


@right("masks/true_means")
def true_means_added(q, k, v, hide):
    bias = torch.zeros(hide.shape, dtype=q.dtype)
    bias = bias.masked_fill(hide, -math.inf).unsqueeze(1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)


@right("masks/true_means")
def true_means_by_sentence(q, k, v, hide):
    outputs = [
        F.scaled_dot_product_attention(
            q[b], k[b], v[b], attn_mask=hide[b].logical_not()
        )
        for b in range(len(q))
    ]
    return torch.stack(outputs)


@right("masks/true_means")
def by_sdpa(q, k, v, hide):
    see = torch.logical_not(hide).unsqueeze(1).expand(-1, q.size(1), -1, -1)
    return F.scaled_dot_product_attention(q, k, v, see)


@right("masks/true_means")
def by_infinity(q, k, v, hide):
    bias = torch.zeros(hide.shape, dtype=q.dtype).masked_fill(hide, -inf)
    y = F.scaled_dot_product_attention(q, k, v, bias[:, None])
    return y.nan_to_num(0.0)


@right("masks/true_means")
def sentence_by_sentence(q, k, v, hide):
    return torch.stack(
        [
            F.scaled_dot_product_attention(q[b], k[b], v[b], ~hide[b])
            for b in range(len(q))
        ]
    )


@wrong("masks/true_means", "no_head_axis")
def true_means_no_axis(q, k, v, hide):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=~hide)


@wrong("masks/true_means", "inverted")
def true_means_not_inverted(q, k, v, hide):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=hide[:, None])


@wrong("masks/true_means", "tiled")
def true_means_repeated(q, k, v, hide):
    b, h, t, _ = q.shape
    see = (~hide).repeat(h, 1, 1).view(b, h, t, -1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=see)


@wrong("masks/true_means", "added")
def added(q, k, v, hide):
    see = 1.0 - hide.double()[:, None]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=see)


@wrong("masks/true_means", "mask_finite")
def means_mask_finite(q, k, v, hide):
    hide = hide[:, None]
    scores = torch.where(hide, -100.0, q @ k.mT / math.sqrt(q.size(-1)))
    return scores.softmax(-1) * ~hide @ v


@wrong("masks/true_means")
def empty_is_nan(q, k, v, hide):
    scores = q @ k.mT / q.size(-1) ** 0.5
    return scores.masked_fill(hide[:, None], -inf).softmax(-1) @ v


# Subtracts booleans, which raises.
@wrong("masks/true_means")
def true_means_one_minus(q, k, v, hide):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=1 - hide[:, None])


@wrong("masks/true_means")
def not_at_all(q, k, v, hide):
    return F.scaled_dot_product_attention(q, k, v)
