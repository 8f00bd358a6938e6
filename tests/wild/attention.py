"""Answers to chapter 4, written from its page alone."""

# ruff: noqa: B905

import math

import torch

from tests.wild import right, wrong

# attention/attend


@right("attention/attend", "einsum, and a softmax written by hand")
def attend_einsum(q, k, v, mask=None):
    scores = torch.einsum("...td,...sd->...ts", q, k) * q.shape[-1] ** -0.5
    if mask is not None:
        scores = torch.where(mask, scores, -math.inf)
    e = torch.exp(scores - scores.amax(dim=-1, keepdim=True))
    return torch.einsum("...ts,...sv->...tv", e / e.sum(-1, keepdim=True), v)


@right("attention/attend", "one query after the other, without matmul")
def attend_row_by_row(q, k, v, mask=None):
    n_queries, n_keys = q.size(-2), k.size(-2)
    if mask is not None:
        mask = mask.expand(*q.shape[:-2], n_queries, n_keys)
    rows = []
    for t in range(n_queries):
        row = (q[..., t, None, :] * k).sum(-1) / math.sqrt(q.size(-1))
        if mask is not None:
            row = row.masked_fill(mask[..., t, :].logical_not(), -math.inf)
        weights = row.softmax(-1)
        rows.append((weights[..., None] * v).sum(-2))
    return torch.stack(rows, dim=-2)


@right("attention/attend", "double precision inside, and back at the end")
def attend_in_double(q, k, v, mask=None):
    kind = v.dtype
    q, k, v = q.double(), k.double(), v.double()
    scores = (q / q.size(-1) ** 0.25) @ (k / k.size(-1) ** 0.25).mT
    if mask is None:
        mask = torch.ones_like(scores, dtype=torch.bool)
    hidden = torch.zeros_like(scores).masked_fill(~mask, float("-inf"))
    return ((scores + hidden).softmax(-1) @ v).to(kind)


@wrong(
    "attention/attend",
    "no division by the square root of the size",
    classic=True,
)
def attend_no_scale(q, k, v, mask=None):
    scores = q @ k.mT
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1) @ v


@wrong(
    "attention/attend",
    "divides by the size of a query, not by its square root",
    classic=True,
)
def attend_no_root(q, k, v, mask=None):
    scores = q @ k.mT / q.size(-1)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1) @ v


@wrong(
    "attention/attend",
    "divides by the root of the number of keys",
    classic=True,
)
def attend_scale_of_keys(q, k, v, mask=None):
    scores = q @ k.mT / math.sqrt(k.size(-2))
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1) @ v


@wrong(
    "attention/attend",
    "divides by the root of the values' size",
    classic=True,
)
def attend_scale_of_values(q, k, v, mask=None):
    scores = q @ k.mT / math.sqrt(v.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1) @ v


@wrong(
    "attention/attend",
    "the softmax runs over the queries",
    classic=True,
)
def attend_over_queries(q, k, v, mask=None):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e30)
    return scores.softmax(-2) @ v


@wrong("attention/attend", "True is taken for hide", classic=True)
def attend_mask_inverted(q, k, v, mask=None):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(mask, float("-inf"))
    return scores.softmax(-1) @ v


@wrong(
    "attention/attend",
    "sets weights to zero after the softmax, and the rows no longer sum to 1",
    classic=True,
)
def attend_mask_after(q, k, v, mask=None):
    weights = (q @ k.mT / math.sqrt(q.size(-1))).softmax(-1)
    if mask is not None:
        weights = weights * mask
    return weights @ v


@wrong(
    "attention/attend",
    "multiplies scores by the mask: hidden keys get the score 0",
    classic=True,
)
def attend_times_mask(q, k, v, mask=None):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores * mask
    return scores.softmax(-1) @ v


@wrong(
    "attention/attend",
    "masked_fill returns a new tensor, which is dropped",
    classic=True,
)
def attend_mask_dropped(q, k, v, mask=None):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    if mask is not None:
        scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1) @ v


@wrong(
    "attention/attend",
    "swaps axes 0 and 1, which is right without a batch only",
    classic=True,
)
def attend_wrong_transpose(q, k, v, mask=None):
    scores = q @ k.transpose(0, 1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1) @ v


@wrong(
    "attention/attend",
    "crashes if there is no mask: ~None raises",
    classic=False,
)
def attend_needs_a_mask(q, k, v, mask=None):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v


@wrong(
    "attention/attend",
    "hidden scores are only lowered by 5, so hidden keys keep some weight",
    classic=False,
)
def attend_weak_mask(q, k, v, mask=None):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores - 5.0 * (~mask)
    return scores.softmax(-1) @ v


@wrong(
    "attention/attend",
    "returns the weights, not mixed with the values",
    classic=False,
)
def attend_weights_only(q, k, v, mask=None):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1)


# attention/mended


@right("attention/mended", "softmax as exp of scores minus logsumexp")
def mended_by_logsumexp(q, k, v):
    scores = torch.einsum("...td,...sd->...ts", q, k) / q.size(-1) ** 0.5
    weights = (scores - scores.logsumexp(-1, keepdim=True)).exp()
    return torch.einsum("...ts,...sd->...td", weights, v)


@wrong("attention/mended", "still overflows for large inputs", classic=True)
def mended_still_overflows(q, k, v):
    scores = torch.einsum("...td,...sd->...ts", q, k) / q.size(-1) ** 0.5
    weights = scores.exp() / scores.exp().sum(dim=-1, keepdim=True)
    return weights @ v


@wrong(
    "attention/mended",
    "the sums still lie along axis 1, over the keys of a batch",
    classic=True,
)
def mended_still_unsqueezed(q, k, v):
    scores = torch.einsum("...td,...sd->...ts", q, k) / q.size(-1) ** 0.5
    e = (scores - scores.amax(-1, keepdim=True)).exp()
    return (e / e.sum(dim=-1).unsqueeze(1)) @ v


@wrong(
    "attention/mended",
    "still divides by the root of the first axis",
    classic=True,
)
def mended_still_first_axis(q, k, v):
    scores = torch.einsum("...td,...sd->...ts", q, k) / q.size(0) ** 0.5
    return scores.softmax(-1) @ v


@wrong(
    "attention/mended",
    "subtracts the largest score of all, so that other rows underflow to 0/0",
    classic=True,
)
def mended_global_maximum(q, k, v):
    scores = torch.einsum("...td,...sd->...ts", q, k) / q.size(-1) ** 0.5
    e = (scores - scores.max()).exp()
    return (e / e.sum(-1, keepdim=True)) @ v


# attention/stuck_share


@right("attention/stuck_share", "a closed form for the sum of squares")
def stuck_share_closed_form(scores):
    p = scores.double().softmax(-1)
    second, third = p.pow(2).sum(-1), p.pow(3).sum(-1)
    squares = second - 2 * third + second.pow(2)
    return (squares.clamp(min=0).sqrt() < 0.01).double().mean()


@right("attention/stuck_share", "row by row, with torch.diag and outer")
def stuck_share_row_by_row(scores):
    stuck = 0
    for row in scores:
        p = row.softmax(0)
        jacobian = torch.diag(p) - torch.outer(p, p)
        if (jacobian * jacobian).sum().sqrt().item() < 1 / 100:
            stuck += 1
    return torch.tensor(stuck / len(scores))


@wrong("attention/stuck_share", "the root is missing", classic=True)
def stuck_share_no_root(scores):
    p = scores.softmax(-1)
    jacobian = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    return (jacobian.square().sum((1, 2)) < 0.01).float().mean()


@wrong("attention/stuck_share", "no softmax before it", classic=True)
def stuck_share_of_scores(scores):
    jacobian = (
        torch.diag_embed(scores) - scores[:, :, None] * (scores[:, None, :])
    )
    return (jacobian.flatten(1).norm(dim=1) < 0.01).float().mean()


@wrong(
    "attention/stuck_share",
    "the softmax runs down the columns",
    classic=True,
)
def stuck_share_columns(scores):
    p = scores.softmax(0)
    jacobian = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    return (jacobian.flatten(1).norm(dim=1) < 0.01).float().mean()


@wrong(
    "attention/stuck_share",
    "the fraction of the rows that are not saturated",
    classic=False,
)
def stuck_share_of_the_others(scores):
    p = scores.softmax(-1)
    jacobian = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    return (jacobian.flatten(1).norm(dim=1) >= 0.01).float().mean()


@wrong(
    "attention/stuck_share",
    "the largest entry of J instead of its size",
    classic=False,
)
def stuck_share_largest_entry(scores):
    p = scores.softmax(-1)
    jacobian = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    return (jacobian.abs().flatten(1).amax(1) < 0.01).float().mean()


# attention/blocks


@right("attention/blocks", "halves the keys and joins the two results")
def blocks_divide_and_conquer(q, k, v, block=4):
    def part(k, v):
        n = k.size(-2)
        if n <= block:
            scores = q @ k.mT / math.sqrt(q.size(-1))
            top = scores.amax(-1, keepdim=True)
            e = (scores - top).exp()
            return top, e.sum(-1, keepdim=True), e @ v
        cut = n // 2
        m1, s1, y1 = part(k[..., :cut, :], v[..., :cut, :])
        m2, s2, y2 = part(k[..., cut:, :], v[..., cut:, :])
        m = torch.maximum(m1, m2)
        a, b = (m1 - m).exp(), (m2 - m).exp()
        return m, a * s1 + b * s2, a * y1 + b * y2

    _, total, mixture = part(k, v)
    return mixture / total


@right("attention/blocks", "keeps a mean and the logarithm of the sum")
def blocks_with_logsumexp(q, k, v, block=4):
    mean, log_sum = None, None
    for k_part, v_part in zip(k.split(block, -2), v.split(block, -2)):
        scores = q @ k_part.mT / q.size(-1) ** 0.5
        new = scores.logsumexp(-1, keepdim=True)
        fresh = scores.softmax(-1) @ v_part
        if mean is None:
            mean, log_sum = fresh, new
            continue
        both = torch.logaddexp(log_sum, new)
        mean = mean * (log_sum - both).exp() + fresh * (new - both).exp()
        log_sum = both
    return mean


@wrong(
    "attention/blocks",
    "a new maximum corrects the sum, but not the mixture",
    classic=True,
)
def blocks_mixture_not_corrected(q, k, v, block=4):
    shape = (*q.shape[:-1], 1)
    top, total = q.new_full(shape, -math.inf), q.new_zeros(shape)
    mixture = q.new_zeros(*q.shape[:-1], v.size(-1))
    for start in range(0, k.size(-2), block):
        part = slice(start, start + block)
        scores = q @ k[..., part, :].mT / math.sqrt(q.size(-1))
        new = torch.maximum(top, scores.amax(-1, keepdim=True))
        e = (scores - new).exp()
        total = total * (top - new).exp() + e.sum(-1, keepdim=True)
        mixture = mixture + e @ v[..., part, :]
        top = new
    return mixture / total


@wrong(
    "attention/blocks",
    "leaves out the last chunk if it isn't full",
    classic=True,
)
def blocks_last_chunk_lost(q, k, v, block=4):
    shape = (*q.shape[:-1], 1)
    top, total = q.new_full(shape, -math.inf), q.new_zeros(shape)
    mixture = q.new_zeros(*q.shape[:-1], v.size(-1))
    for i in range(k.size(-2) // block):
        part = slice(i * block, (i + 1) * block)
        scores = q @ k[..., part, :].mT / math.sqrt(q.size(-1))
        new = torch.maximum(top, scores.amax(-1, keepdim=True))
        e, old = (scores - new).exp(), (top - new).exp()
        total = total * old + e.sum(-1, keepdim=True)
        mixture = mixture * old + e @ v[..., part, :]
        top = new
    return mixture / total


@wrong(
    "attention/blocks",
    "each chunk has a softmax of its own, and the results are averaged",
    classic=True,
)
def blocks_averaged(q, k, v, block=4):
    results = []
    for k_part, v_part in zip(k.split(block, -2), v.split(block, -2)):
        scores = q @ k_part.mT / math.sqrt(q.size(-1))
        results.append(scores.softmax(-1) @ v_part)
    return torch.stack(results).mean(0)


@wrong(
    "attention/blocks",
    "keeps no maximum, so that large scores overflow",
    classic=True,
)
def blocks_without_maximum(q, k, v, block=4):
    total, mixture = 0.0, 0.0
    for k_part, v_part in zip(k.split(block, -2), v.split(block, -2)):
        e = (q @ k_part.mT / math.sqrt(q.size(-1))).exp()
        total = total + e.sum(-1, keepdim=True)
        mixture = mixture + e @ v_part
    return mixture / total


@wrong(
    "attention/blocks",
    "corrects by the exponential of new minus old, the wrong way round",
    classic=True,
)
def blocks_wrong_correction(q, k, v, block=4):
    top = total = mixture = None
    for k_part, v_part in zip(k.split(block, -2), v.split(block, -2)):
        scores = q @ k_part.mT / math.sqrt(q.size(-1))
        here = scores.amax(-1, keepdim=True)
        new = here if top is None else torch.maximum(top, here)
        e = (scores - new).exp()
        s, y = e.sum(-1, keepdim=True), e @ v_part
        if top is None:
            total, mixture = s, y
        else:
            factor = (new - top).exp()
            total, mixture = total * factor + s, mixture * factor + y
        top = new
    return mixture / total


@wrong(
    "attention/blocks",
    "ignores block and stores all weights",
    classic=False,
)
def blocks_stores_the_weights(q, k, v, block=4):
    return (q @ k.mT / math.sqrt(q.size(-1))).softmax(-1) @ v
