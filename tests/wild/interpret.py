"""Answers to chapter 16, written from its page alone."""

import torch
from torch.nn import functional as F

from tests.wild import right, wrong

# interpret/lens


@right("interpret/lens", "a generator over heights and places, by hand")
def height_by_height(streams, scale, shift, table, eps):
    def spoken(vector):
        off = vector - vector.sum() / len(vector)
        spread = (off @ off / len(off) + eps).sqrt()
        return table @ (off / spread * scale + shift)

    return torch.stack(
        [
            torch.stack([spoken(vector) for vector in stream])
            for stream in streams
        ]
    )


@right("interpret/lens", "the norm folded into the table")
def folded_into_table(streams, scale, shift, table, eps):
    var, mean = torch.var_mean(streams, -1, correction=0, keepdim=True)
    plain = (streams - mean) * (var + eps).rsqrt()
    return torch.einsum("ltd,vd->ltv", plain, table * scale) + table @ shift


@wrong("interpret/lens", "the last norm is left out", classic=True)
def norm_left_out(streams, scale, shift, table, eps):
    return streams @ table.T


@wrong("interpret/lens", "RMSNorm: the mean is not subtracted", classic=True)
def rms_lens(streams, scale, shift, table, eps):
    size = streams.square().mean(-1, keepdim=True)
    return (streams / (size + eps).sqrt() * scale + shift) @ table.T


@wrong(
    "interpret/lens",
    "only the topmost stream goes through the norm",
    classic=True,
)
def norm_on_top_only(streams, scale, shift, table, eps):
    top = F.layer_norm(streams[-1:], scale.shape, scale, shift, eps)
    return torch.cat([streams[:-1], top]) @ table.T


@wrong("interpret/lens", "standard deviation with D - 1", classic=True)
def unbiased(streams, scale, shift, table, eps):
    x = streams - streams.mean(-1, keepdim=True)
    x = x / (streams.var(-1, keepdim=True) + eps).sqrt()
    return (x * scale + shift) @ table.T


@wrong("interpret/lens", "probabilities, not logits", classic=False)
def probabilities(streams, scale, shift, table, eps):
    x = F.layer_norm(streams, scale.shape, scale, shift, eps)
    return (x @ table.T).softmax(-1)


# interpret/induction


@right("interpret/induction", "a dict of last places, one pass")
def dict_of_places(weights, ids):
    last, found = {}, []
    for t, token in enumerate(ids.tolist()):
        if token in last:
            found.append(weights[:, t, last[token] + 1])
        last[token] = t
    if not found:
        return weights.new_zeros(len(weights))
    return torch.stack(found, -1).mean(-1)


@right("interpret/induction", "a mask of all pairs and one einsum")
def mask_of_pairs(weights, ids):
    T = len(ids)
    at = torch.arange(T)
    same = (ids[:, None] == ids) & (at < at[:, None])
    last = torch.where(same, at, -1).amax(1)
    asks = (last >= 0).to(weights.dtype)
    where = F.one_hot(last + 1, T + 1)[:, :T].to(weights.dtype)
    where = where * asks[:, None]
    return torch.einsum("hts,ts->h", weights, where) / asks.sum().clamp(min=1)


def _induction(weights, ids, ahead=1, first=False, over_all=False):
    ids, found = ids.tolist(), []
    for t in range(len(ids)):
        earlier = [s for s in range(t) if ids[s] == ids[t]]
        if earlier:
            s = earlier[0] if first else earlier[-1]
            found.append(weights[:, t, s + ahead])
    total = torch.stack(found).sum(0)
    return total / (len(ids) if over_all else len(found))


@wrong(
    "interpret/induction",
    "the last appearance itself, not the place behind it",
    classic=True,
)
def not_behind(weights, ids):
    return _induction(weights, ids, ahead=0)


@wrong(
    "interpret/induction",
    "the first appearance, not the last one",
    classic=True,
)
def behind_the_first(weights, ids):
    return _induction(weights, ids, first=True)


@wrong(
    "interpret/induction", "divided by the number of all queries", classic=True
)
def over_all_queries(weights, ids):
    return _induction(weights, ids, over_all=True)


@wrong(
    "interpret/induction", "the place before the last appearance", classic=True
)
def before_it(weights, ids):
    return _induction(weights, ids, ahead=-1)


@wrong(
    "interpret/induction",
    "rows and columns are exchanged: keys ask",
    classic=True,
)
def keys_ask(weights, ids):
    return _induction(weights.mT, ids)


@wrong(
    "interpret/induction", "one number, the mean over the heads", classic=False
)
def mean_of_all_heads(weights, ids):
    return dict_of_places(weights, ids).mean()


# interpret/silenced


@right("interpret/silenced", "torch.where over the numbers of the heads")
def where_it_is_that_head(heads, reference, head):
    mean = torch.einsum("nhsd->hd", reference)
    mean = mean / (reference.size(0) * reference.size(2))
    number = torch.arange(heads.size(1))[None, :, None, None]
    return torch.where(number == head, mean[None, :, None], heads)


@right("interpret/silenced", "unbound heads, stacked again")
def unbound(heads, reference, head):
    each = list(heads.unbind(1))
    said = reference.select(1, head).flatten(0, 1).mean(0)
    each[head] = said.expand_as(each[head])
    return torch.stack(each, dim=1)


@wrong("interpret/silenced", "heads itself is changed", classic=True)
def changes_heads(heads, reference, head):
    heads[:, head] = reference[:, head].mean((0, 1))
    return heads


@wrong(
    "interpret/silenced",
    "the mean of heads, not of the reference",
    classic=True,
)
def own_mean(heads, reference, head):
    out = heads.clone()
    out[:, head] = heads[:, head].mean((0, 1))
    return out


@wrong("interpret/silenced", "zero instead of the mean", classic=True)
def says_zero(heads, reference, head):
    out = heads.clone()
    out[:, head] = 0
    return out


@wrong(
    "interpret/silenced",
    "one number for all, the mean over the head's dimensions too",
    classic=True,
)
def one_number(heads, reference, head):
    out = heads.clone()
    out[:, head] = reference[:, head].mean()
    return out


@wrong(
    "interpret/silenced",
    "a text of the batch is silenced, not a head",
    classic=True,
)
def silences_a_text(heads, reference, head):
    out = heads.clone()
    out[head] = reference[head].mean((0, 1))
    return out


@wrong("interpret/silenced", "all heads say their mean", classic=False)
def all_silent(heads, reference, head):
    mean = reference.mean((0, 2))
    return mean[None, :, None].expand_as(heads).clone()


# interpret/sharpest


@right("interpret/sharpest", "loops, and a plain list of shares")
def loops_over_heads(weights):
    _, B, H, T, _ = weights.shape
    best = []
    for block in weights:
        shares = []
        for h in range(H):
            looks = [
                block[b, h, t, t - 1] for b in range(B) for t in range(1, T)
            ]
            shares.append(torch.stack(looks).mean())
        best.append(max(shares))
    return torch.stack(best)


@right("interpret/sharpest", "an eye moved by one, multiplied and summed")
def moved_eye(weights):
    B, T = weights.size(1), weights.size(-1)
    eye = torch.diag(torch.ones(T - 1, dtype=weights.dtype), -1)
    shares = torch.einsum("lbhts,ts->lh", weights, eye)
    return shares.amax(-1) / (B * (T - 1))


@wrong(
    "interpret/sharpest",
    "the past is right, but heads are still averaged",
    classic=True,
)
def heads_still_averaged(weights):
    return weights.mean(2).diagonal(-1, -2, -1).mean((1, 2))


@wrong(
    "interpret/sharpest",
    "the best head, but above the diagonal, in the future",
    classic=True,
)
def still_the_future(weights):
    return weights.diagonal(1, -2, -1).mean((1, 3)).amax(1)


@wrong(
    "interpret/sharpest",
    "the best head of each text, and then the mean over texts",
    classic=True,
)
def best_of_each_text(weights):
    return weights.diagonal(-1, -2, -1).mean(-1).amax(2).mean(1)


@wrong(
    "interpret/sharpest",
    "the mean runs over the first query too, which has no key before it",
    classic=True,
)
def first_query_too(weights):
    looks = weights.diagonal(-1, -2, -1).sum(-1) / weights.size(-1)
    return looks.mean(1).amax(-1)


@wrong("interpret/sharpest", "which head it is, not its share", classic=False)
def number_of_the_head(weights):
    return weights.diagonal(-1, -2, -1).mean((1, 3)).argmax(1)


# interpret/traced


@right("interpret/traced", "recursion up the blocks, one run at a time")
def recursive_runs(blocks, clean, corrupt, readout, height, place):
    def run(x, left):
        return run(left[0](x), left[1:]) if left else x

    def measured(x):
        return (x[-1] * readout).sum()

    below, above = list(blocks[:height]), list(blocks[height:])
    theirs, mine = run(clean, below), run(corrupt, below)
    rows = [theirs[i] if i == place else mine[i] for i in range(len(mine))]
    new = measured(run(torch.stack(rows), above))
    low = measured(run(mine, above))
    return (new - low) / (measured(run(theirs, above)) - low)


def _traced(blocks, clean, corrupt, readout, height, place, patch):
    x, y, patched = clean, corrupt, corrupt.clone()
    for i in range(len(blocks) + 1):
        if i == height:
            patched = patch(x, patched)
        if i < len(blocks):
            x, y, patched = (blocks[i](v) for v in (x, y, patched))
    return [v[-1] @ readout for v in (x, y, patched)]


@wrong(
    "interpret/traced",
    "the fraction is mended, but all places are patched",
    classic=True,
)
def all_places(blocks, clean, corrupt, readout, height, place):
    high, low, new = _traced(
        blocks, clean, corrupt, readout, height, place, lambda x, patched: x
    )
    return (new - low) / (high - low)


@wrong(
    "interpret/traced",
    "one place is patched, but the share is what is "
    "missing, not what comes back",
    classic=True,
)
def what_is_missing(blocks, clean, corrupt, readout, height, place):
    def patch(x, patched):
        patched = patched.clone()
        patched[place] = x[place]
        return patched

    high, low, new = _traced(
        blocks, clean, corrupt, readout, height, place, patch
    )
    return (high - new) / (high - low)


@wrong(
    "interpret/traced",
    "patched in place, although the tensor is the corrupt run's own",
    classic=True,
)
def patched_in_place(blocks, clean, corrupt, readout, height, place):
    x, y, patched = clean, corrupt, corrupt
    for i in range(len(blocks) + 1):
        if i == height:
            patched[place] = x[place]
        if i < len(blocks):
            x, y, patched = (blocks[i](v) for v in (x, y, patched))
    high, low, new = (v[-1] @ readout for v in (x, y, patched))
    return (new - low) / (high - low)


@wrong("interpret/traced", "patched one block too high", classic=True)
def one_block_too_high(blocks, clean, corrupt, readout, height, place):
    x, y, patched = clean, corrupt, corrupt
    for i in range(len(blocks)):
        x, y, patched = (blocks[i](v) for v in (x, y, patched))
        if i == height:
            patched = patched.clone()
            patched[place] = x[place]
    high, low, new = (v[-1] @ readout for v in (x, y, patched))
    return (new - low) / (high - low)


@wrong(
    "interpret/traced",
    "every place but the one asked about is patched",
    classic=False,
)
def all_but_one(blocks, clean, corrupt, readout, height, place):
    def patch(x, patched):
        out = x.clone()
        out[place] = patched[place]
        return out

    high, low, new = _traced(
        blocks, clean, corrupt, readout, height, place, patch
    )
    return (new - low) / (high - low)


@wrong(
    "interpret/traced",
    "how far the patch moves the number, not divided by anything",
    classic=False,
)
def not_a_share(blocks, clean, corrupt, readout, height, place):
    def patch(x, patched):
        patched = patched.clone()
        patched[place] = x[place]
        return patched

    _, low, new = _traced(
        blocks, clean, corrupt, readout, height, place, patch
    )
    return new - low


# interpret/removal


@right("interpret/removal", "odds times the distance of value and output")
def odds_times_distance(weights, values):
    out = weights @ values
    apart = torch.cdist(
        out, values, compute_mode="donot_use_mm_for_euclid_dist"
    )
    return weights / (1 - weights) * apart / out.norm(dim=-1, keepdim=True)


@right("interpret/removal", "hides one key after the other, for real")
def hides_for_real(weights, values):
    result = torch.zeros_like(weights)
    for s in range(weights.size(2)):
        left = weights.clone()
        left[:, :, s] = 0
        left = left / left.sum(2, keepdim=True)
        before, after = torch.bmm(weights, values), torch.bmm(left, values)
        gap = ((after - before) ** 2).sum(2).sqrt()
        result[:, :, s] = gap / (before**2).sum(2).sqrt()
    return result


@wrong(
    "interpret/removal",
    "the other weights are not brought back to a sum of 1",
    classic=True,
)
def not_brought_back(weights, values):
    out = weights @ values
    gone = weights * values.norm(dim=-1)[:, None]
    return gone / out.norm(dim=-1, keepdim=True)


@wrong(
    "interpret/removal",
    "the length of the change is not divided by that of the output",
    classic=True,
)
def removal_not_divided(weights, values):
    out = (weights @ values)[:, :, None]
    gone = weights[..., None] * values[:, None]
    left = (out - gone) / (1 - weights)[..., None]
    return (left - out).norm(dim=-1)


@wrong(
    "interpret/removal",
    "divided by the length of what is left, not of the output",
    classic=True,
)
def by_what_is_left(weights, values):
    out = (weights @ values)[:, :, None]
    gone = weights[..., None] * values[:, None]
    left = (out - gone) / (1 - weights)[..., None]
    return (left - out).norm(dim=-1) / left.norm(dim=-1)


@wrong(
    "interpret/removal",
    "the difference of two lengths, not the length of the difference",
    classic=True,
)
def difference_of_lengths(weights, values):
    out = (weights @ values)[:, :, None]
    gone = weights[..., None] * values[:, None]
    left = (out - gone) / (1 - weights)[..., None]
    return (left.norm(dim=-1) - out.norm(dim=-1)).abs() / out.norm(dim=-1)


@wrong(
    "interpret/removal", "the weights themselves are returned", classic=False
)
def weights_themselves(weights, values):
    return weights.clone()
