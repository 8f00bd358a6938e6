"""Answers to chapter 5, written from its page alone."""

# ruff: noqa: N812

import math

import torch
from torch.nn import functional as F

from tests.wild import right, wrong

# masks/is_causal


@right("masks/is_causal", "every token at every place, one text at a time")
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


@right("masks/is_causal", "all tokens of a place in one batch, by spread")
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


@wrong("masks/is_causal", "changes the last token only", classic=True)
@torch.no_grad()
def is_causal_last_only(model, vocab_size, length):
    ids = torch.randint(vocab_size, (1, length))
    other = ids.clone()
    other[0, -1] = (ids[0, -1] + 1) % vocab_size
    return torch.allclose(model(ids)[:, :-1], model(other)[:, :-1], atol=1e-6)


@wrong(
    "masks/is_causal",
    "compares the changed position too, which may see its own token",
    classic=True,
)
@torch.no_grad()
def is_causal_with_itself(model, vocab_size, length):
    ids = torch.randint(vocab_size, (1, length))
    before = model(ids)
    for t in range(1, length):
        for token in range(vocab_size):
            other = ids.clone()
            other[0, t] = token
            after = model(other)
            if not torch.allclose(
                before[:, : t + 1], after[:, : t + 1], atol=1e-6
            ):
                return False
    return True


@wrong(
    "masks/is_causal",
    "one change at each position: misses a model that reacts to one token",
    classic=True,
)
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


@wrong(
    "masks/is_causal",
    "asks whether later positions see earlier tokens",
    classic=False,
)
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


# masks/columns


@right("masks/columns", "one column of weights for each query")
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


@right("masks/columns", "turns everything round at the beginning")
def columns_by_turning(q, k, v):
    scores = (k @ q.mT / q.size(-1) ** 0.5).mT
    t, s = scores.shape[-2:]
    query = torch.arange(t)[:, None] + (s - t)
    scores = scores.masked_fill(torch.arange(s) > query, -math.inf)
    weights = scores.softmax(-1)
    return weights.mT, weights @ v


@wrong(
    "masks/columns",
    "hides below the main diagonal, as if there were as many keys as queries",
    classic=True,
)
def columns_main_diagonal(q, k, v):
    scores = k @ q.mT / q.size(-1) ** 0.5
    hide = torch.ones_like(scores, dtype=torch.bool).tril(-1)
    weights = scores.masked_fill(hide, float("-inf")).softmax(dim=-2)
    return weights, weights.mT @ v


@wrong(
    "masks/columns",
    "the softmax still runs along the rows, over the queries",
    classic=True,
)
def columns_axis_left(q, k, v):
    scores = k @ q.mT / q.size(-1) ** 0.5
    late = k.size(-2) - q.size(-2)
    hide = torch.ones_like(scores, dtype=torch.bool).tril(-1 - late)
    weights = scores.masked_fill(hide, -1e30).softmax(dim=-1)
    return weights, weights.mT @ v


@wrong(
    "masks/columns",
    "the last line is left: weights @ v, with keys in the rows",
    classic=True,
)
def columns_last_line_left(q, k, v):
    scores = k @ q.mT / q.size(-1) ** 0.5
    late = k.size(-2) - q.size(-2)
    hide = torch.ones_like(scores, dtype=torch.bool).tril(-1 - late)
    weights = scores.masked_fill(hide, float("-inf")).softmax(dim=-2)
    return weights, weights @ v


@wrong(
    "masks/columns",
    "returns the weights with queries as rows",
    classic=True,
)
def columns_weights_turned(q, k, v):
    weights, y = columns_by_turning(q, k, v)
    return weights.mT, y


# masks/visible


@right("masks/visible", "four loops")
def visible_in_loops(ids, pad_id):
    n_texts, length = ids.shape
    see = torch.zeros(n_texts, 1, length, length, dtype=torch.bool)
    for b, row in enumerate(ids.tolist()):
        for i in range(length):
            for j in range(i + 1):
                see[b, 0, i, j] = row[j] != pad_id
    return see


@right("masks/visible", "the keys' mask, repeated and cut to a triangle")
def visible_by_tril(ids, pad_id):
    length = ids.size(1)
    real = ids.ne(pad_id).unsqueeze(1).expand(-1, length, -1)
    return real.unsqueeze(1).clone().tril()


@wrong("masks/visible", "hides queries instead of keys", classic=True)
def visible_hides_queries(ids, pad_id):
    length = ids.size(1)
    past = torch.ones(length, length, dtype=torch.bool).tril()
    return (ids != pad_id)[:, None, :, None] & past


@wrong(
    "masks/visible",
    "rows of padding see nothing: the queries are hidden as well",
    classic=True,
)
def visible_hides_both(ids, pad_id):
    real = ids != pad_id
    both = real[:, None, :, None] & real[:, None, None, :]
    return both.tril()


@wrong("masks/visible", "padding only, without the causal part", classic=True)
def visible_ahead(ids, pad_id):
    real = (ids != pad_id)[:, None, None, :]
    return real.expand(-1, 1, ids.size(1), -1)


@wrong("masks/visible", "True where a query may not look", classic=True)
def visible_inverted(ids, pad_id):
    length = ids.size(1)
    ahead = torch.ones(length, length, dtype=torch.bool).triu(1)
    return (ids == pad_id)[:, None, None, :] | ahead


@wrong("masks/visible", "a shape without the heads' axis", classic=True)
def visible_three_axes(ids, pad_id):
    length = ids.size(1)
    past = torch.ones(length, length, dtype=torch.bool).tril()
    return (ids != pad_id)[:, None, :] & past


@wrong(
    "masks/visible",
    "takes the padding to stand on the right",
    classic=False,
)
def visible_right_only(ids, pad_id):
    length = ids.size(1)
    lengths = (ids != pad_id).sum(1)
    at = torch.arange(length)
    real = at < lengths[:, None]
    return real[:, None, None, :] & (at <= at[:, None])


@wrong("masks/visible", "takes 0 for the padding, always", classic=False)
def visible_pads_with_zero(ids, pad_id):
    return (ids != 0)[:, None, None, :].repeat(1, 1, ids.size(1), 1).tril()


@wrong(
    "masks/visible",
    "no token may see itself: the diagonal is hidden too",
    classic=True,
)
def visible_without_diagonal(ids, pad_id):
    at = torch.arange(ids.size(1))
    return (ids != pad_id)[:, None, None, :] & (at < at[:, None])


# masks/empty_rows


def weights_and_gradient(scores, mask, pull, function):
    """Given on the page."""
    scores = scores.detach().requires_grad_()
    weights = function(scores, mask)
    if weights is None:
        return None
    (gradient,) = torch.autograd.grad(weights, scores, pull)
    return weights, gradient


@right("masks/empty_rows", "an empty row is opened and then multiplied by 0")
def empty_rows_opened(scores, mask, pull):
    def safe_weights(scores, mask):
        some = mask.any(-1, keepdim=True)
        see = mask | ~some
        weights = scores.masked_fill(~see, -math.inf).softmax(-1)
        return weights * some

    return weights_and_gradient(scores, mask, pull, safe_weights)


@right("masks/empty_rows", "exponentials and a sum that is never 0")
def empty_rows_by_hand(scores, mask, pull):
    def safe_weights(scores, mask):
        low = torch.finfo(scores.dtype).min
        top = scores.detach().masked_fill(~mask, low).amax(-1, keepdim=True)
        shifted = (scores - top).masked_fill(~mask, 0)
        e = shifted.exp() * mask
        total = e.sum(-1, keepdim=True)
        return e / torch.where(total > 0, total, torch.ones_like(total))

    return weights_and_gradient(scores, mask, pull, safe_weights)


@wrong(
    "masks/empty_rows",
    "nan_to_num mends the weights of an empty row, not the gradient",
    classic=True,
)
def empty_rows_nan_to_num(scores, mask, pull):
    def safe_weights(scores, mask):
        hidden = scores.masked_fill(~mask, -math.inf)
        return hidden.softmax(-1).nan_to_num(0)

    return weights_and_gradient(scores, mask, pull, safe_weights)


@wrong(
    "masks/empty_rows",
    "where() after a softmax of nothing but -inf: the gradient is NaN",
    classic=True,
)
def empty_rows_where(scores, mask, pull):
    def safe_weights(scores, mask):
        weights = scores.masked_fill(~mask, -math.inf).softmax(-1)
        return torch.where(mask, weights, torch.zeros_like(weights))

    return weights_and_gradient(scores, mask, pull, safe_weights)


@wrong(
    "masks/empty_rows",
    "fills with a finite number, and an empty row looks everywhere",
    classic=True,
)
def empty_rows_uniform(scores, mask, pull):
    def safe_weights(scores, mask):
        low = torch.finfo(scores.dtype).min
        return scores.masked_fill(~mask, low).softmax(-1)

    return weights_and_gradient(scores, mask, pull, safe_weights)


@wrong(
    "masks/empty_rows",
    "zeros after the softmax over all keys, hidden ones included",
    classic=True,
)
def empty_rows_zero_after(scores, mask, pull):
    def safe_weights(scores, mask):
        return scores.softmax(-1).masked_fill(~mask, 0)

    return weights_and_gradient(scores, mask, pull, safe_weights)


@wrong(
    "masks/empty_rows",
    "the weights are cut from the graph, so there is no gradient",
    classic=False,
)
def empty_rows_detached(scores, mask, pull):
    @torch.no_grad()
    def safe_weights(scores, mask):
        low = torch.finfo(scores.dtype).min
        weights = scores.masked_fill(~mask, low).softmax(-1)
        return weights.masked_fill(~mask, 0)

    return weights_and_gradient(scores, mask, pull, safe_weights)


# masks/true_means


@right("masks/true_means", "one sentence after the other")
def true_means_by_sentence(q, k, v, hide):
    outputs = [
        F.scaled_dot_product_attention(
            q[b], k[b], v[b], attn_mask=hide[b].logical_not()
        )
        for b in range(len(q))
    ]
    return torch.stack(outputs)


@wrong(
    "masks/true_means",
    "the sentences' masks still land on the heads",
    classic=True,
)
def true_means_no_axis(q, k, v, hide):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=~hide)


@wrong("masks/true_means", "True still means look", classic=True)
def true_means_not_inverted(q, k, v, hide):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=hide[:, None])


@wrong(
    "masks/true_means",
    "repeats the masks for the heads in the wrong order, so heads get the "
    "masks of other sentences",
    classic=True,
)
def true_means_repeated(q, k, v, hide):
    b, h, t, _ = q.shape
    see = (~hide).repeat(h, 1, 1).view(b, h, t, -1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=see)


@wrong(
    "masks/true_means",
    "subtracts booleans, which raises",
    classic=False,
)
def true_means_one_minus(q, k, v, hide):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=1 - hide[:, None])
