"""Answers to the exercises of chapter 13, as people write them."""

import math

import torch
from torch.nn import functional as F  # noqa: N812

inf = float("inf")


# -- encode ------------------------------------------------------------------
def vectors(ids, table, places):
    return F.embedding(ids, table) + places[torch.arange(ids.shape[1])]


def run(x, blocks, mask):
    for block in blocks:
        x = block(x, mask)
    return x


def square_mask(ids, pad_id, table, places, blocks):
    batch, size = ids.shape
    mask = torch.empty(batch, 1, size, size, dtype=torch.bool)
    for b in range(batch):
        for s in range(size):
            mask[b, 0, :, s] = ids[b, s].item() != pad_id
    return run(vectors(ids, table, places), blocks, mask)


def recursive(ids, pad_id, table, places, blocks):
    seen = ~torch.eq(ids, pad_id).unsqueeze(1).unsqueeze(1)

    def climb(x, rest):
        return climb(rest[0](x, seen), rest[1:]) if rest else x

    return climb(vectors(ids, table, places), list(blocks))


def with_one_hot(ids, pad_id, table, places, blocks):
    x = F.one_hot(ids, len(table)).to(table.dtype) @ table
    x = x + places.narrow(0, 0, ids.size(1)).expand_as(x)
    keep = (ids < pad_id) | (ids > pad_id)
    return run(x, blocks, keep.reshape(len(ids), 1, 1, -1))


def no_positions(ids, pad_id, table, places, blocks):
    return run(table[ids], blocks, (ids != pad_id)[:, None, None])


def no_padding(ids, pad_id, table, places, blocks):
    everything = torch.ones(len(ids), 1, 1, ids.size(1), dtype=torch.bool)
    return run(vectors(ids, table, places), blocks, everything)


def zero_is_padding(ids, pad_id, table, places, blocks):
    return run(vectors(ids, table, places), blocks, ids.bool()[:, None, None])


def inverted(ids, pad_id, table, places, blocks):
    return run(
        vectors(ids, table, places), blocks, (ids == pad_id)[:, None, None]
    )


def query_axis(ids, pad_id, table, places, blocks):
    mask = (ids != pad_id).unsqueeze(1).unsqueeze(3)
    return run(vectors(ids, table, places), blocks, mask)


def causal(ids, pad_id, table, places, blocks):
    at = torch.arange(ids.size(1))
    mask = (ids != pad_id)[:, None, None] & (at[None, :] <= at[:, None])
    return run(vectors(ids, table, places), blocks, mask)


def first_block_only(ids, pad_id, table, places, blocks):
    x = vectors(ids, table, places)
    x = blocks[0](x, (ids != pad_id)[:, None, None])
    everything = torch.ones(len(ids), 1, 1, ids.size(1), dtype=torch.bool)
    return run(x, blocks[1:], everything)


def scaled(ids, pad_id, table, places, blocks):
    x = vectors(ids, table * table.size(1) ** 0.5, places)
    return run(x, blocks, (ids != pad_id)[:, None, None])


def one_block(ids, pad_id, table, places, blocks):
    mask = (ids != pad_id)[:, None, None]
    return run(vectors(ids, table, places), blocks[:1], mask)


def anti_causal(ids, pad_id, table, places, blocks):
    size = ids.size(1)
    later = torch.ones(size, size, dtype=torch.bool).triu()
    mask = (ids != pad_id)[:, None, None] & later
    return run(vectors(ids, table, places), blocks, mask)


def first_sentences_mask(ids, pad_id, table, places, blocks):
    mask = (ids != pad_id)[1:2, None, None]
    return run(vectors(ids, table, places), blocks, mask)


def zero_never_seen(ids, pad_id, table, places, blocks):
    mask = ((ids != pad_id) & (ids != 0))[:, None, None]
    return run(vectors(ids, table, places), blocks, mask)


# -- corrupt -----------------------------------------------------------------
def token_by_token(ids, special, first, second, random_ids, mask_id):
    inputs, targets = ids.clone(), torch.full_like(ids, -100)
    for at in torch.cartesian_prod(*map(torch.arange, ids.shape)).tolist():
        at = tuple(at)
        if first[at] < 0.15 and not special[at]:
            targets[at] = ids[at]
            if second[at] < 0.8:
                inputs[at] = mask_id
            elif second[at] < 0.9:
                inputs[at] = random_ids[at]
    return inputs, targets


def by_table(ids, special, first, second, random_ids, mask_id):
    what = (second >= 0.8).long() + (second >= 0.9).long()
    options = torch.stack([torch.full_like(ids, mask_id), random_ids, ids])
    pick = options.gather(0, what[None])[0]
    chosen = torch.logical_and(first.lt(0.15), special.logical_not())
    return (
        torch.where(chosen, pick, ids),
        ids.masked_fill(~chosen, -100),
    )


def by_arithmetic(ids, special, first, second, random_ids, mask_id):
    c = (first < 0.15).long() * (1 - special.long())
    m = c * (second < 0.8).long()
    r = c * (second < 0.9).long() - m
    inputs = ids * (1 - m - r) + mask_id * m + random_ids * r
    return [inputs, ids * c - 100 * (1 - c)]


def gaps(ids, chosen, second, random_ids, mask_id, low=0.8, high=0.9):
    inputs = ids.clone()
    masked = chosen & (second < low)
    swapped = chosen & (second >= low) & (second < high)
    inputs[masked] = mask_id
    inputs[swapped] = random_ids[swapped]
    return inputs, ids.masked_fill(~chosen, -100)


def special_too(ids, special, first, second, random_ids, mask_id):
    return gaps(ids, first < 0.15, second, random_ids, mask_id)


def all_masked(ids, special, first, second, random_ids, mask_id):
    chosen = (first < 0.15) & ~special
    return gaps(ids, chosen, second, random_ids, mask_id, 2, 3)


def overwrites(ids, special, first, second, random_ids, mask_id):
    chosen = (first < 0.15) & ~special
    inputs = torch.where(chosen & (second < 0.8), mask_id, ids)
    inputs = torch.where(chosen & (second < 0.9), random_ids, inputs)
    return inputs, torch.where(chosen, ids, -100)


def targets_everywhere(ids, special, first, second, random_ids, mask_id):
    chosen = (first < 0.15) & ~special
    return gaps(ids, chosen, second, random_ids, mask_id)[0], ids


def only_masked(ids, special, first, second, random_ids, mask_id):
    chosen = (first < 0.15) & ~special
    inputs, targets = gaps(ids, chosen, second, random_ids, mask_id)
    targets[inputs != mask_id] = -100
    return inputs, targets


def changed_targets(ids, special, first, second, random_ids, mask_id):
    chosen = (first < 0.15) & ~special
    inputs, targets = gaps(ids, chosen, second, random_ids, mask_id)
    return inputs, torch.where(chosen, inputs, targets)


def targets_inverted(ids, special, first, second, random_ids, mask_id):
    chosen = (first < 0.15) & ~special
    inputs, _ = gaps(ids, chosen, second, random_ids, mask_id)
    targets = ids.clone()
    targets[chosen] = -100
    return inputs, targets


def shares_turned(ids, special, first, second, random_ids, mask_id):
    chosen = (first < 0.15) & ~special
    return gaps(ids, chosen, 1 - second, random_ids, mask_id)


def ignored_is_zero(ids, special, first, second, random_ids, mask_id):
    chosen = (first < 0.15) & ~special
    inputs, targets = gaps(ids, chosen, second, random_ids, mask_id)
    return inputs, targets.clamp(min=0)


def roles_swapped(ids, special, first, second, random_ids, mask_id):
    chosen = (second < 0.15) & ~special
    return gaps(ids, chosen, first, random_ids, mask_id)


# -- pooled ------------------------------------------------------------------
def sentence_by_sentence(x, real):
    rows = [
        one[keep].mean(dim=0) if keep.any() else one.new_zeros(one.size(1))
        for one, keep in zip(x, real, strict=True)
    ]
    return torch.stack(rows)


def as_attention(x, real):
    share = real.to(x.dtype)
    share = share / share.sum(1, keepdim=True).clamp(min=1e-12)
    return torch.einsum("bs,bsd->bd", share, x)


def nan_mean(x, real):
    return x.masked_fill(~real[..., None], math.nan).nanmean(1).nan_to_num()


def first_token(x, real):
    return x.select(1, 0)


def all_counted(x, real):
    return x.mean(1)


def pool_inverted(x, real):
    return sentence_by_sentence(x, ~real)


def divided_by_all(x, real):
    return x.masked_fill(~real[..., None], 0).mean(1)


def summed(x, real):
    return torch.einsum("bs,bsd->bd", real.to(x.dtype), x)


def empty_nan(x, real):
    return torch.stack([a[b].mean(0) for a, b in zip(x, real, strict=True)])


def highest(x, real):
    top = x.masked_fill(~real[..., None], -inf).amax(1)
    return top.nan_to_num(neginf=0.0)


def one_too_many(x, real):
    return summed(x, real) / (real.sum(1, keepdim=True) + 1)


def root_of_count(x, real):
    return summed(x, real) / real.sum(1, keepdim=True).clamp(min=1).sqrt()


# -- mended ------------------------------------------------------------------
def filled(q, k, v, mask, scale=None):
    scores = torch.einsum("btd,bsd->bts", q, k)
    scores = scores * (q.size(-1) ** -0.5 if scale is None else scale)
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return torch.einsum("bts,bsd->btd", torch.softmax(scores, -1), v)


def minus_infinity(q, k, v, real):
    scores = torch.bmm(q, k.transpose(1, 2)) / math.sqrt(k.shape[-1])
    scores[~real[:, None].expand_as(scores)] = -inf
    return torch.bmm(torch.softmax(scores, -1), v)


def only_the_real(q, k, v, real):
    rows = []
    for b, keep in enumerate(real):
        s = q[b] @ k[b, keep].T / q.size(-1) ** 0.5
        rows.append(s.softmax(-1) @ v[b, keep])
    return torch.stack(rows)


def by_shares(q, k, v, real):
    scores = q @ k.mT / q.size(-1) ** 0.5
    e = (scores - scores.amax(-1, keepdim=True)).exp() * real[:, None]
    return (e / e.sum(-1, keepdim=True)) @ v


def m_causal(q, k, v, real):
    at = torch.arange(q.size(1))
    return filled(q, k, v, real[:, None] & (at <= at[:, None]))


def m_query_axis(q, k, v, real):
    return filled(q, k, v, real[..., None].expand(*real.shape, q.size(1)))


def m_no_padding(q, k, v, real):
    return filled(q, k, v, torch.ones_like(real)[:, None])


def m_no_scale(q, k, v, real):
    return filled(q, k, v, real[:, None], 1.0)


def m_zero_fill(q, k, v, real):
    scores = q @ k.mT / math.sqrt(q.size(-1)) * real[:, None]
    return scores.softmax(-1) @ v


def m_mask_finite(q, k, v, real):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    return torch.where(real[:, None], scores, -100.0).softmax(-1) @ v


def m_over_queries(q, k, v, real):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~real[:, None], lowest).softmax(-2) @ v


def empties_padding(q, k, v, real):
    return filled(q, k, v, real[:, None]) * real[..., None]


def divided_by_size(q, k, v, real):
    return filled(q, k, v, real[:, None], 1 / q.size(-1))


def only_later(q, k, v, real):
    at = torch.arange(q.size(1))
    return filled(q, k, v, real[:, None] & (at >= at[:, None]))


def roles(q, k, v, real):
    return filled(k, q, v, real[:, None])


# -- gap_loss ----------------------------------------------------------------
def picked(logits, ids, chosen):
    if int(chosen.sum()) == 0:
        return 0.0
    return F.cross_entropy(logits[chosen], ids[chosen])


def with_ignored(logits, ids, chosen):
    targets = torch.where(chosen, ids, -100)
    total = F.cross_entropy(logits.transpose(1, 2), targets, reduction="sum")
    return total / max(chosen.sum().item(), 1)


def zero_ignored(logits, ids, chosen):
    targets = (ids * chosen).flatten()
    if not targets.any():
        return torch.tensor(0.0)
    return F.cross_entropy(logits.flatten(0, 1), targets, ignore_index=0)


def gap_by_gap(logits, ids, chosen):
    found = []
    for b, s in chosen.nonzero().tolist():
        z = logits[b, s]
        found.append((z.logsumexp(0) - z[ids[b, s]]).item())
    return math.fsum(found) / len(found) if found else 0.0


def all_places(logits, ids, chosen):
    return F.cross_entropy(logits.flatten(0, 1), ids.flatten())


def shifted(logits, ids, chosen):
    return picked(logits[:, :-1], ids[:, 1:], chosen[:, 1:])


def gaps_over_all(logits, ids, chosen):
    targets = ids.masked_fill(~chosen, -100).flatten()
    nats = F.cross_entropy(logits.flatten(0, 1), targets, reduction="none")
    return nats.mean()


def mean_of_means(logits, ids, chosen):
    each = [picked(*row) for row in zip(logits, ids, chosen, strict=True)]
    return sum(each) / len(each)


def gap_empty_nan(logits, ids, chosen):
    return F.cross_entropy(logits[chosen], ids[chosen])


def softmax_first(logits, ids, chosen):
    return picked(torch.softmax(logits, -1), ids, chosen)


def in_bits(logits, ids, chosen):
    return picked(logits, ids, chosen) / math.log(2)


def total(logits, ids, chosen):
    return F.cross_entropy(logits[chosen], ids[chosen], reduction="sum")


def the_others(logits, ids, chosen):
    return picked(logits, ids, ~chosen)


def first_sentence(logits, ids, chosen):
    return picked(logits[:1], ids[:1], chosen[:1])


def encode_same_input(ids, pad_id, table, places, blocks):
    x = torch.nn.functional.embedding(ids, table)
    x = x + places[: ids.shape[1]]
    see = ids.ne(pad_id)[:, None, None]
    for f in blocks:
        y = f(x, see)
    return y


def mended_inverted(q, k, v, real):
    scores = torch.einsum("bid,bjd->bij", q, k) / q.size(-1) ** 0.5
    low = torch.finfo(scores.dtype).min
    return scores.masked_fill(real[:, None], low).softmax(-1) @ v


def mended_inverted_inf(q, k, v, real):
    hidden = torch.zeros(real.shape, dtype=q.dtype)
    hidden[real] = -inf
    scores = torch.einsum("bid,bjd->bij", q, k) / math.sqrt(q.size(-1))
    return (scores + hidden[:, None]).softmax(-1) @ v


def whole_batch(x, real):
    n = max(int(real.sum()), 1)
    return torch.einsum("bsd,bs->bd", x, real.to(x.dtype)) / n


def hidden_after(q, k, v, real):
    weights = (q @ k.mT / q.size(-1) ** 0.5).softmax(-1)
    return weights @ (v * real[:, :, None])


RIGHT = {
    "encode": [square_mask, recursive, with_one_hot],
    "corrupt": [token_by_token, by_table, by_arithmetic],
    "pooled": [sentence_by_sentence, as_attention, nan_mean],
    "mended": [minus_infinity, only_the_real, by_shares],
    "gap_loss": [picked, with_ignored, gap_by_gap],
}
WRONG = {
    "encode": {
        "no_positions": no_positions,
        "no_padding": no_padding,
        "zero_is_padding": zero_is_padding,
        "inverted": inverted,
        "query_axis": query_axis,
        "causal": causal,
        "first_block_only": first_block_only,
        "same_input": encode_same_input,
        "times_root": scaled,
    },
    "corrupt": {
        "special_too": special_too,
        "all_masked": all_masked,
        "overwrites": overwrites,
        "targets_everywhere": targets_everywhere,
        "only_masked": only_masked,
        "changed_targets": changed_targets,
        "targets_inverted": targets_inverted,
    },
    "pooled": {
        "first_token": first_token,
        "all_counted": all_counted,
        "inverted": pool_inverted,
        "divided_by_all": divided_by_all,
        "summed": summed,
        "empty_nan": empty_nan,
        "whole_batch": whole_batch,
    },
    "mended": {
        "causal": m_causal,
        "query_axis": m_query_axis,
        "no_padding": m_no_padding,
        "no_scale": m_no_scale,
        "zero_fill": m_zero_fill,
        "over_queries": m_over_queries,
        "inverted": mended_inverted,
        "inverted_inf": mended_inverted_inf,
        "mask_finite": m_mask_finite,
        "hidden_after": hidden_after,
    },
    "gap_loss": {
        "zero_ignored": zero_ignored,
        "all_places": all_places,
        "shifted": shifted,
        "all_counted": gaps_over_all,
        "mean_of_means": mean_of_means,
        "empty_nan": gap_empty_nan,
        "softmax_first": softmax_first,
    },
}
OUTSIDE = {
    "encode": [one_block, anti_causal, first_sentences_mask, zero_never_seen],
    "corrupt": [shares_turned, ignored_is_zero, roles_swapped],
    "pooled": [highest, one_too_many, root_of_count],
    "mended": [empties_padding, divided_by_size, only_later, roles],
    "gap_loss": [in_bits, total, the_others, first_sentence],
}
