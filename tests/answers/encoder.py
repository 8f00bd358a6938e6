"""Answers to the exercises of chapter 13."""

import functools
import math

import torch
from torch.nn import functional as F

from tests.answers import right, wrong

# -- encode ------------------------------------------------------------------


@right("encoder/encode")
def reduced(ids, pad_id, table, places, blocks):
    S = ids.shape[1]
    one_hot = F.one_hot(ids, table.shape[0]).to(table.dtype)
    start = torch.einsum("bsv,vd->bsd", one_hot, table) + places[None, :S]
    mask = torch.logical_not(ids.eq(pad_id)).view(len(ids), 1, 1, S)
    return functools.reduce(lambda x, block: block(x, mask), blocks, start)


@right("encoder/encode")
def nested_loops(ids, pad_id, table, places, blocks):
    rows, seen = [], []
    for sentence in ids.tolist():
        vectors = []
        for place, token in enumerate(sentence):
            vectors.append(table[token] + places[place])
        rows.append(torch.stack(vectors))
        seen.append([[[token != pad_id for token in sentence]]])
    x, mask = torch.stack(rows), torch.tensor(seen)
    for block in blocks:
        x = block(x, mask)
    return x


@right("encoder/encode")
def encode_subtracts(ids, pad_id, table, places, blocks):
    mask = (ids - pad_id).bool().reshape(len(ids), 1, 1, -1)
    x = torch.stack([table[row] + places[: len(row)] for row in ids])
    for block in blocks:
        x = block(x, mask)
    return x


def vectors(ids, table, places):
    return F.embedding(ids, table) + places[torch.arange(ids.shape[1])]


def run(x, blocks, mask):
    for block in blocks:
        x = block(x, mask)
    return x


@right("encoder/encode")
def square_mask(ids, pad_id, table, places, blocks):
    batch, size = ids.shape
    mask = torch.empty(batch, 1, size, size, dtype=torch.bool)
    for b in range(batch):
        for s in range(size):
            mask[b, 0, :, s] = ids[b, s].item() != pad_id
    return run(vectors(ids, table, places), blocks, mask)


@right("encoder/encode")
def recursive(ids, pad_id, table, places, blocks):
    seen = ~torch.eq(ids, pad_id).unsqueeze(1).unsqueeze(1)

    def climb(x, rest):
        return climb(rest[0](x, seen), rest[1:]) if rest else x

    return climb(vectors(ids, table, places), list(blocks))


@right("encoder/encode")
def with_one_hot(ids, pad_id, table, places, blocks):
    x = F.one_hot(ids, len(table)).to(table.dtype) @ table
    x = x + places.narrow(0, 0, ids.size(1)).expand_as(x)
    keep = (ids < pad_id) | (ids > pad_id)
    return run(x, blocks, keep.reshape(len(ids), 1, 1, -1))


@wrong("encoder/encode", "query_axis")
def query_axis(ids, pad_id, table, places, blocks):
    mask = (ids != pad_id).unsqueeze(1).unsqueeze(3)
    return run(vectors(ids, table, places), blocks, mask)


@wrong("encoder/encode", "causal")
def causal(ids, pad_id, table, places, blocks):
    at = torch.arange(ids.size(1))
    mask = (ids != pad_id)[:, None, None] & (at[None, :] <= at[:, None])
    return run(vectors(ids, table, places), blocks, mask)


@wrong("encoder/encode", "inverted")
def true_at_padding(ids, pad_id, table, places, blocks):
    x = table[ids] + places[: ids.size(1)]
    for block in blocks:
        x = block(x, (ids == pad_id)[:, None, None, :])
    return x


@wrong("encoder/encode", "first_block_only")
def first_block_only(ids, pad_id, table, places, blocks):
    x = table[ids] + places[: ids.size(1)]
    mask = (ids != pad_id)[:, None, None, :]
    for i, block in enumerate(blocks):
        x = block(x, mask if i == 0 else torch.ones_like(mask))
    return x


@wrong("encoder/encode", "same_input")
def not_stacked(ids, pad_id, table, places, blocks):
    x = table[ids] + places[: ids.size(1)]
    mask = (ids != pad_id)[:, None, None, :]
    y = x
    for block in blocks:
        y = block(x, mask)
    return y


@wrong("encoder/encode", "times_root")
def scaled(ids, pad_id, table, places, blocks):
    x = vectors(ids, table * table.size(1) ** 0.5, places)
    return run(x, blocks, (ids != pad_id)[:, None, None])


@wrong("encoder/encode", "no_positions")
def no_positions(ids, pad_id, table, places, blocks):
    return run(table[ids], blocks, (ids != pad_id)[:, None, None])


@wrong("encoder/encode", "no_padding")
def no_padding(ids, pad_id, table, places, blocks):
    everything = torch.ones(len(ids), 1, 1, ids.size(1), dtype=torch.bool)
    return run(vectors(ids, table, places), blocks, everything)


@wrong("encoder/encode", "zero_is_padding")
def zero_is_padding(ids, pad_id, table, places, blocks):
    return run(vectors(ids, table, places), blocks, ids.bool()[:, None, None])


@wrong("encoder/encode")
def one_block(ids, pad_id, table, places, blocks):
    mask = (ids != pad_id)[:, None, None]
    return run(vectors(ids, table, places), blocks[:1], mask)


@wrong("encoder/encode")
def anti_causal(ids, pad_id, table, places, blocks):
    size = ids.size(1)
    later = torch.ones(size, size, dtype=torch.bool).triu()
    mask = (ids != pad_id)[:, None, None] & later
    return run(vectors(ids, table, places), blocks, mask)


@wrong("encoder/encode")
def zero_never_seen(ids, pad_id, table, places, blocks):
    mask = ((ids != pad_id) & (ids != 0))[:, None, None]
    return run(vectors(ids, table, places), blocks, mask)


# -- corrupt -----------------------------------------------------------------


@right("encoder/corrupt")
def token_by_token(ids, special, first, second, random_ids, mask_id):
    inputs, targets = ids.clone(), torch.full_like(ids, -100)
    for spot in torch.cartesian_prod(*map(torch.arange, ids.shape)):
        at = tuple(spot.tolist()) if ids.dim() > 1 else int(spot)
        if special[at] or first[at] >= 0.15:
            continue
        targets[at] = ids[at]
        if second[at] < 0.8:
            inputs[at] = mask_id
        elif second[at] < 0.9:
            inputs[at] = random_ids[at]
    return inputs, targets


@right("encoder/corrupt")
def picked_from_three(ids, special, first, second, random_ids, mask_id):
    chosen = (first < 0.15) & ~special
    which = (second >= 0.8).long() + (second >= 0.9).long()
    three = torch.stack([torch.full_like(ids, mask_id), random_ids, ids])
    new = three.gather(0, which[None])[0]
    return torch.where(chosen, new, ids), torch.where(chosen, ids, -100)


@right("encoder/corrupt")
def corrupt_token_by_token(ids, special, first, second, random_ids, mask_id):
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


@right("encoder/corrupt")
def by_table(ids, special, first, second, random_ids, mask_id):
    what = (second >= 0.8).long() + (second >= 0.9).long()
    options = torch.stack([torch.full_like(ids, mask_id), random_ids, ids])
    pick = options.gather(0, what[None])[0]
    chosen = torch.logical_and(first.lt(0.15), special.logical_not())
    return (
        torch.where(chosen, pick, ids),
        ids.masked_fill(~chosen, -100),
    )


@right("encoder/corrupt")
def by_arithmetic(ids, special, first, second, random_ids, mask_id):
    c = (first < 0.15).long() * (1 - special.long())
    m = c * (second < 0.8).long()
    r = c * (second < 0.9).long() - m
    inputs = ids * (1 - m - r) + mask_id * m + random_ids * r
    return [inputs, ids * c - 100 * (1 - c)]


@wrong("encoder/corrupt", "overwrites")
def masks_overwritten(ids, special, first, second, random_ids, mask_id):
    chosen = (first < 0.15) & ~special
    inputs = torch.where(chosen & (second < 0.8), mask_id, ids)
    inputs = torch.where(chosen & (second < 0.9), random_ids, inputs)
    return inputs, torch.where(chosen, ids, -100)


@wrong("encoder/corrupt", "changed_targets", "in_place")
def targets_after_the_fact(ids, special, first, second, random_ids, mask_id):
    chosen = (first < 0.15) & ~special
    inputs = ids
    inputs[chosen & (second < 0.8)] = mask_id
    other = chosen & (second >= 0.8) & (second < 0.9)
    inputs[other] = random_ids[other]
    targets = torch.full_like(ids, -100)
    targets[chosen] = ids[chosen]
    return inputs, targets


@wrong("encoder/corrupt", "special_too")
def special_too(ids, special, first, second, random_ids, mask_id):
    return picked_from_three(
        ids, torch.zeros_like(special), first, second, random_ids, mask_id
    )


@wrong("encoder/corrupt", "all_masked")
def nothing_but_masks(ids, special, first, second, random_ids, mask_id):
    chosen = (first < 0.15) & ~special
    return ids.masked_fill(chosen, mask_id), ids.masked_fill(~chosen, -100)


@wrong("encoder/corrupt", "targets_everywhere")
def all_asked(ids, special, first, second, random_ids, mask_id):
    inputs, _ = picked_from_three(
        ids, special, first, second, random_ids, mask_id
    )
    return inputs, ids.clone()


def gaps(ids, chosen, second, random_ids, mask_id, low=0.8, high=0.9):
    inputs = ids.clone()
    masked = chosen & (second < low)
    swapped = chosen & (second >= low) & (second < high)
    inputs[masked] = mask_id
    inputs[swapped] = random_ids[swapped]
    return inputs, ids.masked_fill(~chosen, -100)


@wrong("encoder/corrupt", "only_masked")
def only_masked(ids, special, first, second, random_ids, mask_id):
    chosen = (first < 0.15) & ~special
    inputs, targets = gaps(ids, chosen, second, random_ids, mask_id)
    targets[inputs != mask_id] = -100
    return inputs, targets


@wrong("encoder/corrupt", "changed_targets")
def changed_targets(ids, special, first, second, random_ids, mask_id):
    chosen = (first < 0.15) & ~special
    inputs, targets = gaps(ids, chosen, second, random_ids, mask_id)
    return inputs, torch.where(chosen, inputs, targets)


@wrong("encoder/corrupt", "targets_inverted")
def targets_inverted(ids, special, first, second, random_ids, mask_id):
    chosen = (first < 0.15) & ~special
    inputs, _ = gaps(ids, chosen, second, random_ids, mask_id)
    targets = ids.clone()
    targets[chosen] = -100
    return inputs, targets


# Random tokens are drawn again, not taken from random_ids.
@wrong("encoder/corrupt")
def draws_its_own(ids, special, first, second, random_ids, mask_id):
    drawn = torch.randint_like(ids, int(ids.max()) + 1)
    return picked_from_three(ids, special, first, second, drawn, mask_id)


# Tokens that are kept as they are get no target.
@wrong("encoder/corrupt")
def kept_not_asked(ids, special, first, second, random_ids, mask_id):
    chosen = (first < 0.15) & ~special
    masked = chosen & (second < 0.8)
    other = chosen & (second >= 0.8) & (second < 0.9)
    inputs = torch.where(masked, mask_id, ids)
    inputs = torch.where(other, random_ids, inputs)
    return inputs, torch.where(masked | other, ids, -100)


@wrong("encoder/corrupt")
def shares_turned(ids, special, first, second, random_ids, mask_id):
    chosen = (first < 0.15) & ~special
    return gaps(ids, chosen, 1 - second, random_ids, mask_id)


# -- pooled ------------------------------------------------------------------


@right("encoder/pooled")
def rows_of_shares(x, real):
    shares = real.to(x.dtype)
    shares = shares / shares.sum(1, keepdim=True).clamp_min(1)
    return torch.bmm(shares[:, None], x).squeeze(1)


@right("encoder/pooled")
def selects(x, real):
    out = []
    for sentence, keep in zip(x, real, strict=True):
        some = sentence[keep]
        out.append(some.mean(0) if len(some) else x.new_zeros(x.size(2)))
    return torch.stack(out)


@right("encoder/pooled")
def pooled_by_product(x, real):
    weights = real.to(x.dtype)
    weights = weights / weights.sum(1, keepdim=True).clamp(min=1)
    return torch.bmm(weights.unsqueeze(1), x).squeeze(1)


@right("encoder/pooled")
def sentence_by_sentence(x, real):
    rows = [
        one[keep].mean(dim=0) if keep.any() else one.new_zeros(one.size(1))
        for one, keep in zip(x, real, strict=True)
    ]
    return torch.stack(rows)


@right("encoder/pooled")
def as_attention(x, real):
    share = real.to(x.dtype)
    share = share / share.sum(1, keepdim=True).clamp(min=1e-12)
    return torch.einsum("bs,bsd->bd", share, x)


@right("encoder/pooled")
def nan_mean(x, real):
    return x.masked_fill(~real[..., None], math.nan).nanmean(1).nan_to_num()


@wrong("encoder/pooled", "all_counted")
def over_all(x, real):
    return x.mean(1)


@wrong("encoder/pooled", "divided_by_all")
def zeroed_but_counted(x, real):
    return (x * real[..., None]).mean(dim=1)


@wrong("encoder/pooled", "whole_batch")
def by_the_whole_batch(x, real):
    return (x * real[..., None]).sum(1) / real.sum().clamp(min=1)


@wrong("encoder/pooled", "empty_nan")
def nan_for_empty(x, real):
    return (x * real[..., None]).sum(1) / real.sum(1, keepdim=True)


@wrong("encoder/pooled", "first_token")
def first_token(x, real):
    return x.select(1, 0)


@wrong("encoder/pooled", "inverted")
def pool_inverted(x, real):
    return sentence_by_sentence(x, ~real)


@wrong("encoder/pooled", "summed")
def summed(x, real):
    return torch.einsum("bs,bsd->bd", real.to(x.dtype), x)


# One more than the real tokens is divided by, against a division by 0.
@wrong("encoder/pooled")
def one_too_many(x, real):
    weights = real[..., None].to(x.dtype)
    return (x * weights).sum(1) / (weights.sum(1) + 1)


@wrong("encoder/pooled")
def pooled_one_too_many(x, real):
    return summed(x, real) / (real.sum(1, keepdim=True) + 1)


@wrong("encoder/pooled")
def root_of_count(x, real):
    return summed(x, real) / real.sum(1, keepdim=True).clamp(min=1).sqrt()


# -- mended ------------------------------------------------------------------


@right("encoder/mended")
def exponentials(q, k, v, real):
    scores = torch.einsum("btd,bsd->bts", q, k) * q.size(-1) ** -0.5
    top = scores.masked_fill(~real[:, None], -torch.inf)
    top = top.amax(-1, keepdim=True)
    e = (scores - top).clamp(max=0).exp() * real[:, None].to(q.dtype)
    return torch.einsum("bts,bsd->btd", e, v) / e.sum(-1, keepdim=True)


@right("encoder/mended")
def keys_cut_out(q, k, v, real):
    out = []
    for i in range(q.shape[0]):
        keys, values = k[i, real[i]], v[i, real[i]]
        weights = (q[i] @ keys.T / q.shape[-1] ** 0.5).softmax(1)
        out.append(weights @ values)
    return torch.stack(out)


inf = float("inf")


@right("encoder/mended")
def minus_infinity(q, k, v, real):
    scores = torch.bmm(q, k.transpose(1, 2)) / math.sqrt(k.shape[-1])
    scores[~real[:, None].expand_as(scores)] = -inf
    return torch.bmm(torch.softmax(scores, -1), v)


@right("encoder/mended")
def only_the_real(q, k, v, real):
    rows = []
    for b, keep in enumerate(real):
        s = q[b] @ k[b, keep].T / q.size(-1) ** 0.5
        rows.append(s.softmax(-1) @ v[b, keep])
    return torch.stack(rows)


@right("encoder/mended")
def by_shares(q, k, v, real):
    scores = q @ k.mT / q.size(-1) ** 0.5
    e = (scores - scores.amax(-1, keepdim=True)).exp() * real[:, None]
    return (e / e.sum(-1, keepdim=True)) @ v


def _head(q, k, v, mask, hidden=-torch.inf):
    scores = q @ k.mT / q.size(-1) ** 0.5
    return scores.masked_fill(~mask, hidden).softmax(-1) @ v


@wrong("encoder/mended", "causal")
def still_causal(q, k, v, real):
    S = q.size(1)
    mask = real[:, None, :] & torch.ones(S, S, dtype=torch.bool).tril()
    return _head(q, k, v, mask, torch.finfo(q.dtype).min)


@wrong("encoder/mended", "query_axis")
def still_queries(q, k, v, real):
    mask = real[:, :, None].expand(-1, -1, k.size(1))
    return _head(q, k, v, mask, torch.finfo(q.dtype).min)


@wrong("encoder/mended", "zero_fill")
def hidden_are_zero(q, k, v, real):
    return _head(q, k, v, real[:, None, :], 0.0)


@wrong("encoder/mended", "hidden_after")
def masked_afterwards(q, k, v, real):
    scores = q @ k.mT / q.size(-1) ** 0.5
    weights = scores.softmax(-1) * real[:, None, :]
    return weights @ v


@wrong("encoder/mended", "no_padding")
def no_mask_at_all(q, k, v, real):
    return (q @ k.mT / q.size(-1) ** 0.5).softmax(-1) @ v


def filled(q, k, v, mask, scale=None):
    scores = torch.einsum("btd,bsd->bts", q, k)
    scores = scores * (q.size(-1) ** -0.5 if scale is None else scale)
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return torch.einsum("bts,bsd->btd", torch.softmax(scores, -1), v)


@wrong("encoder/mended", "no_scale")
def m_no_scale(q, k, v, real):
    return filled(q, k, v, real[:, None], 1.0)


@wrong("encoder/mended", "over_queries")
def m_over_queries(q, k, v, real):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~real[:, None], lowest).softmax(-2) @ v


@wrong("encoder/mended", "inverted")
def mended_inverted(q, k, v, real):
    scores = torch.einsum("bid,bjd->bij", q, k) / q.size(-1) ** 0.5
    low = torch.finfo(scores.dtype).min
    return scores.masked_fill(real[:, None], low).softmax(-1) @ v


@wrong("encoder/mended", "inverted_inf")
def mended_inverted_inf(q, k, v, real):
    hidden = torch.zeros(real.shape, dtype=q.dtype)
    hidden[real] = -inf
    scores = torch.einsum("bid,bjd->bij", q, k) / math.sqrt(q.size(-1))
    return (scores + hidden[:, None]).softmax(-1) @ v


@wrong("encoder/mended", "mask_finite")
def m_mask_finite(q, k, v, real):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    return torch.where(real[:, None], scores, -100.0).softmax(-1) @ v


@wrong("encoder/mended")
def empties_padding(q, k, v, real):
    return filled(q, k, v, real[:, None]) * real[..., None]


@wrong("encoder/mended")
def divided_by_size(q, k, v, real):
    return filled(q, k, v, real[:, None], 1 / q.size(-1))


@wrong("encoder/mended")
def roles(q, k, v, real):
    return filled(k, q, v, real[:, None])


# -- gap_loss ----------------------------------------------------------------


@right("encoder/gap_loss")
def others_ignored(logits, ids, chosen):
    y = torch.where(chosen, ids, torch.full_like(ids, -100))
    total = F.cross_entropy(logits.mT, y, reduction="sum")
    return total / max(int(chosen.sum()), 1)


@right("encoder/gap_loss")
def gap_by_gap(logits, ids, chosen):
    total, gaps = logits.new_zeros(()), chosen.nonzero().tolist()
    for b, s in gaps:
        total = total + logits[b, s].logsumexp(0) - logits[b, s, ids[b, s]]
    return total / len(gaps) if gaps else total


@right("encoder/gap_loss")
def picked(logits, ids, chosen):
    if int(chosen.sum()) == 0:
        return 0.0
    return F.cross_entropy(logits[chosen], ids[chosen])


@right("encoder/gap_loss")
def with_ignored(logits, ids, chosen):
    targets = torch.where(chosen, ids, -100)
    total = F.cross_entropy(logits.transpose(1, 2), targets, reduction="sum")
    return total / max(chosen.sum().item(), 1)


@right("encoder/gap_loss")
def gap_loss_gap_by_gap(logits, ids, chosen):
    found = []
    for b, s in chosen.nonzero().tolist():
        z = logits[b, s]
        found.append((z.logsumexp(0) - z[ids[b, s]]).item())
    return math.fsum(found) / len(found) if found else 0.0


@wrong("encoder/gap_loss", "shifted")
def shifted(logits, ids, chosen):
    return picked(logits[:, :-1], ids[:, 1:], chosen[:, 1:])


@wrong("encoder/gap_loss", "all_places")
def over_all_tokens(logits, ids, chosen):
    return F.cross_entropy(logits.flatten(0, 1), ids.flatten())


@wrong("encoder/gap_loss", "all_counted")
def by_all_tokens(logits, ids, chosen):
    nats = F.cross_entropy(logits.mT, ids, reduction="none")
    return (nats * chosen).mean()


@wrong("encoder/gap_loss", "mean_of_means")
def mean_of_means(logits, ids, chosen):
    each = [picked(*row) for row in zip(logits, ids, chosen, strict=True)]
    return sum(each) / len(each)


@wrong("encoder/gap_loss", "empty_nan")
def nan_without_gaps(logits, ids, chosen):
    return F.cross_entropy(logits[chosen], ids[chosen])


@wrong("encoder/gap_loss", "zero_ignored")
def zero_ignored(logits, ids, chosen):
    targets = (ids * chosen).flatten()
    if not targets.any():
        return torch.tensor(0.0)
    return F.cross_entropy(logits.flatten(0, 1), targets, ignore_index=0)


@wrong("encoder/gap_loss", "softmax_first")
def softmax_first(logits, ids, chosen):
    return picked(torch.softmax(logits, -1), ids, chosen)


@wrong("encoder/gap_loss")
def in_bits(logits, ids, chosen):
    return picked(logits, ids, chosen) / math.log(2)


@wrong("encoder/gap_loss")
def total(logits, ids, chosen):
    return F.cross_entropy(logits[chosen], ids[chosen], reduction="sum")


@wrong("encoder/gap_loss")
def the_others(logits, ids, chosen):
    return picked(logits, ids, ~chosen)
