"""Answers to chapter 13, written from its page alone."""

import functools

import torch
from torch.nn import functional as F

from tests.wild import right, wrong

# encoder/encode


@right("encoder/encode", "reduce over the blocks, a look-up by one-hot rows")
def reduced(ids, pad_id, table, places, blocks):
    S = ids.shape[1]
    one_hot = F.one_hot(ids, table.shape[0]).to(table.dtype)
    start = torch.einsum("bsv,vd->bsd", one_hot, table) + places[None, :S]
    mask = torch.logical_not(ids.eq(pad_id)).view(len(ids), 1, 1, S)
    return functools.reduce(lambda x, block: block(x, mask), blocks, start)


@right("encoder/encode", "nested loops over sentences and places")
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


@wrong(
    "encoder/encode", "the mask speaks of queries: (B, 1, S, 1)", classic=True
)
def mask_of_queries(ids, pad_id, table, places, blocks):
    x = table[ids] + places[: ids.size(1)]
    mask = (ids != pad_id)[:, None, :, None]
    for block in blocks:
        x = block(x, mask)
    return x


@wrong(
    "encoder/encode", "a causal mask came along from the decoder", classic=True
)
def causal_too(ids, pad_id, table, places, blocks):
    S = ids.size(1)
    x = table[ids] + places[:S]
    mask = (ids != pad_id)[:, None, None]
    mask = mask & torch.ones(S, S, dtype=torch.bool).tril()
    for block in blocks:
        x = block(x, mask)
    return x


@wrong("encoder/encode", "True where the padding is", classic=True)
def true_at_padding(ids, pad_id, table, places, blocks):
    x = table[ids] + places[: ids.size(1)]
    for block in blocks:
        x = block(x, (ids == pad_id)[:, None, None, :])
    return x


@wrong(
    "encoder/encode", "only the first block is given the mask", classic=True
)
def first_block_only(ids, pad_id, table, places, blocks):
    x = table[ids] + places[: ids.size(1)]
    mask = (ids != pad_id)[:, None, None, :]
    for i, block in enumerate(blocks):
        x = block(x, mask if i == 0 else torch.ones_like(mask))
    return x


@wrong(
    "encoder/encode",
    "every block reads the embeddings, not what the block before it made",
    classic=False,
)
def not_stacked(ids, pad_id, table, places, blocks):
    x = table[ids] + places[: ids.size(1)]
    mask = (ids != pad_id)[:, None, None, :]
    y = x
    for block in blocks:
        y = block(x, mask)
    return y


@wrong(
    "encoder/encode",
    "embeddings are multiplied by the root of the "
    "width, which nobody asked for",
    classic=True,
)
def multiplied_by_root(ids, pad_id, table, places, blocks):
    x = table[ids] * table.size(1) ** 0.5 + places[: ids.size(1)]
    mask = (ids != pad_id)[:, None, None, :]
    for block in blocks:
        x = block(x, mask)
    return x


# encoder/corrupt


@right("encoder/corrupt", "token by token, in lists")
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


@right(
    "encoder/corrupt",
    "what stands there is picked from a stack of three by a number",
)
def picked_from_three(ids, special, first, second, random_ids, mask_id):
    chosen = (first < 0.15) & ~special
    which = (second >= 0.8).long() + (second >= 0.9).long()
    three = torch.stack([torch.full_like(ids, mask_id), random_ids, ids])
    new = three.gather(0, which[None])[0]
    return torch.where(chosen, new, ids), torch.where(chosen, ids, -100)


@wrong(
    "encoder/corrupt",
    "below 0.9 without at least 0.8: random tokens overwrite all masks",
    classic=True,
)
def masks_overwritten(ids, special, first, second, random_ids, mask_id):
    chosen = (first < 0.15) & ~special
    inputs = torch.where(chosen & (second < 0.8), mask_id, ids)
    inputs = torch.where(chosen & (second < 0.9), random_ids, inputs)
    return inputs, torch.where(chosen, ids, -100)


@wrong(
    "encoder/corrupt",
    "tokens that are kept as they are get no target",
    classic=True,
)
def kept_not_asked(ids, special, first, second, random_ids, mask_id):
    chosen = (first < 0.15) & ~special
    masked = chosen & (second < 0.8)
    other = chosen & (second >= 0.8) & (second < 0.9)
    inputs = torch.where(masked, mask_id, ids)
    inputs = torch.where(other, random_ids, inputs)
    return inputs, torch.where(masked | other, ids, -100)


@wrong(
    "encoder/corrupt",
    "inputs are the same tensor as ids, so ids are "
    "changed and targets are taken from what stands there then",
    classic=True,
)
def targets_after_the_fact(ids, special, first, second, random_ids, mask_id):
    chosen = (first < 0.15) & ~special
    inputs = ids
    inputs[chosen & (second < 0.8)] = mask_id
    other = chosen & (second >= 0.8) & (second < 0.9)
    inputs[other] = random_ids[other]
    targets = torch.full_like(ids, -100)
    targets[chosen] = ids[chosen]
    return inputs, targets


@wrong("encoder/corrupt", "special tokens are chosen as well", classic=True)
def special_too(ids, special, first, second, random_ids, mask_id):
    return picked_from_three(
        ids, torch.zeros_like(special), first, second, random_ids, mask_id
    )


@wrong("encoder/corrupt", "all chosen tokens become the mask", classic=True)
def nothing_but_masks(ids, special, first, second, random_ids, mask_id):
    chosen = (first < 0.15) & ~special
    return ids.masked_fill(chosen, mask_id), ids.masked_fill(~chosen, -100)


@wrong(
    "encoder/corrupt",
    "targets are all tokens, also where none is chosen",
    classic=True,
)
def all_asked(ids, special, first, second, random_ids, mask_id):
    inputs, _ = picked_from_three(
        ids, special, first, second, random_ids, mask_id
    )
    return inputs, ids.clone()


@wrong(
    "encoder/corrupt",
    "random tokens are drawn anew, not taken from random_ids",
    classic=False,
)
def draws_its_own(ids, special, first, second, random_ids, mask_id):
    drawn = torch.randint_like(ids, int(ids.max()) + 1)
    return picked_from_three(ids, special, first, second, drawn, mask_id)


# encoder/pooled


@right("encoder/pooled", "batched matrix product with rows of shares")
def rows_of_shares(x, real):
    shares = real.to(x.dtype)
    shares = shares / shares.sum(1, keepdim=True).clamp_min(1)
    return torch.bmm(shares[:, None], x).squeeze(1)


@right("encoder/pooled", "a loop that selects, and zeros for nothing")
def selects(x, real):
    out = []
    for sentence, keep in zip(x, real, strict=True):
        some = sentence[keep]
        out.append(some.mean(0) if len(some) else x.new_zeros(x.size(2)))
    return torch.stack(out)


@wrong(
    "encoder/pooled",
    "the mean over all positions, padding included",
    classic=True,
)
def over_all(x, real):
    return x.mean(1)


@wrong("encoder/pooled", "padding is set to 0, but counted", classic=True)
def zeroed_but_counted(x, real):
    return (x * real[..., None]).mean(dim=1)


@wrong(
    "encoder/pooled",
    "divided by the number of real tokens of the whole batch",
    classic=True,
)
def by_the_whole_batch(x, real):
    return (x * real[..., None]).sum(1) / real.sum().clamp(min=1)


@wrong(
    "encoder/pooled", "NaN for a sentence without a real token", classic=True
)
def nan_for_empty(x, real):
    return (x * real[..., None]).sum(1) / real.sum(1, keepdim=True)


@wrong(
    "encoder/pooled",
    "one more than the real tokens is divided by, against a division by 0",
    classic=False,
)
def one_too_many(x, real):
    weights = real[..., None].to(x.dtype)
    return (x * weights).sum(1) / (weights.sum(1) + 1)


# encoder/mended


@right("encoder/mended", "exponentials multiplied by the mask, einsum")
def exponentials(q, k, v, real):
    scores = torch.einsum("btd,bsd->bts", q, k) * q.size(-1) ** -0.5
    top = scores.masked_fill(~real[:, None], -torch.inf)
    top = top.amax(-1, keepdim=True)
    e = (scores - top).clamp(max=0).exp() * real[:, None].to(q.dtype)
    return torch.einsum("bts,bsd->btd", e, v) / e.sum(-1, keepdim=True)


@right("encoder/mended", "sentence by sentence, real keys cut out")
def keys_cut_out(q, k, v, real):
    out = []
    for i in range(q.shape[0]):
        keys, values = k[i, real[i]], v[i, real[i]]
        weights = (q[i] @ keys.T / q.shape[-1] ** 0.5).softmax(1)
        out.append(weights @ values)
    return torch.stack(out)


def _head(q, k, v, mask, hidden=-torch.inf):
    scores = q @ k.mT / q.size(-1) ** 0.5
    return scores.masked_fill(~mask, hidden).softmax(-1) @ v


@wrong(
    "encoder/mended",
    "keys are masked, but the triangle is still there",
    classic=True,
)
def still_causal(q, k, v, real):
    S = q.size(1)
    mask = real[:, None, :] & torch.ones(S, S, dtype=torch.bool).tril()
    return _head(q, k, v, mask, torch.finfo(q.dtype).min)


@wrong(
    "encoder/mended",
    "the triangle is gone, but the mask lies on the queries",
    classic=True,
)
def still_queries(q, k, v, real):
    mask = real[:, :, None].expand(-1, -1, k.size(1))
    return _head(q, k, v, mask, torch.finfo(q.dtype).min)


@wrong(
    "encoder/mended",
    "hidden scores become 0 instead of very low",
    classic=True,
)
def hidden_are_zero(q, k, v, real):
    return _head(q, k, v, real[:, None, :], 0.0)


@wrong(
    "encoder/mended",
    "weights of padding are set to 0 after the "
    "softmax, so that a row no longer sums to 1",
    classic=True,
)
def masked_afterwards(q, k, v, real):
    scores = q @ k.mT / q.size(-1) ** 0.5
    weights = scores.softmax(-1) * real[:, None, :]
    return weights @ v


@wrong("encoder/mended", "no mask at all: padding is read", classic=True)
def no_mask_at_all(q, k, v, real):
    return (q @ k.mT / q.size(-1) ** 0.5).softmax(-1) @ v


# encoder/gap_loss


@right("encoder/gap_loss", "-100 at all other places, sum over count")
def others_ignored(logits, ids, chosen):
    y = torch.where(chosen, ids, torch.full_like(ids, -100))
    total = F.cross_entropy(logits.mT, y, reduction="sum")
    return total / max(int(chosen.sum()), 1)


@right("encoder/gap_loss", "gap by gap, with a running total")
def gap_by_gap(logits, ids, chosen):
    total, gaps = logits.new_zeros(()), chosen.nonzero().tolist()
    for b, s in gaps:
        total = total + logits[b, s].logsumexp(0) - logits[b, s, ids[b, s]]
    return total / len(gaps) if gaps else total


@wrong(
    "encoder/gap_loss", "still shifted by one, as in a decoder", classic=True
)
def still_shifted(logits, ids, chosen):
    z, y, keep = logits[:, :-1], ids[:, 1:], chosen[:, 1:]
    if not keep.any():
        return logits.new_zeros(())
    return F.cross_entropy(z[keep], y[keep])


@wrong(
    "encoder/gap_loss",
    "not shifted, but the mean runs over all tokens",
    classic=True,
)
def over_all_tokens(logits, ids, chosen):
    return F.cross_entropy(logits.flatten(0, 1), ids.flatten())


@wrong(
    "encoder/gap_loss",
    "the gaps' sum is divided by the number of all tokens",
    classic=True,
)
def by_all_tokens(logits, ids, chosen):
    nats = F.cross_entropy(logits.mT, ids, reduction="none")
    return (nats * chosen).mean()


@wrong("encoder/gap_loss", "the mean of each sentence's mean", classic=True)
def mean_by_sentence(logits, ids, chosen):
    nats = F.cross_entropy(logits.mT, ids, reduction="none") * chosen
    some = chosen.any(1)
    if not some.any():
        return logits.new_zeros(())
    return (nats.sum(1)[some] / chosen.sum(1)[some]).mean()


@wrong("encoder/gap_loss", "NaN where nothing is asked", classic=True)
def nan_without_gaps(logits, ids, chosen):
    return F.cross_entropy(logits[chosen], ids[chosen])
