"""Answers to the exercises of chapter 16."""

import torch
from torch.nn import functional as F

from tests.answers import right, wrong

# -- lens --------------------------------------------------------------------


@right("interpret/lens")
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


@right("interpret/lens")
def folded_into_table(streams, scale, shift, table, eps):
    var, mean = torch.var_mean(streams, -1, correction=0, keepdim=True)
    plain = (streams - mean) * (var + eps).rsqrt()
    return torch.einsum("ltd,vd->ltv", plain, table * scale) + table @ shift


@right("interpret/lens")
def by_torch(streams, scale, shift, table, eps):
    return F.layer_norm(streams, scale.shape, scale, shift, eps) @ table.mT


@right("interpret/lens")
def vector_by_vector(streams, scale, shift, table, eps):
    out = streams.new_empty(*streams.shape[:2], len(table))
    for height, rows in enumerate(streams):
        for t, row in enumerate(rows):
            centered = row - row.sum() / len(row)
            length = (centered.square().sum() / len(row) + eps) ** 0.5
            out[height, t] = torch.mv(table, centered / length * scale + shift)
    return out


@right("interpret/lens")
def folded(streams, scale, shift, table, eps):
    centered = streams - streams.mean(dim=2, keepdim=True)
    size = torch.rsqrt(centered.pow(2).mean(dim=2, keepdim=True) + eps)
    wide = table * scale
    return torch.einsum("ltd,vd->ltv", centered * size, wide) + table @ shift


@wrong("interpret/lens", "no_norm")
def norm_left_out(streams, scale, shift, table, eps):
    return streams @ table.T


@wrong("interpret/lens", "top_only")
def norm_on_top_only(streams, scale, shift, table, eps):
    top = F.layer_norm(streams[-1:], scale.shape, scale, shift, eps)
    return torch.cat([streams[:-1], top]) @ table.T


@wrong("interpret/lens", "unbiased")
def unbiased(streams, scale, shift, table, eps):
    x = streams - streams.mean(-1, keepdim=True)
    x = x / (streams.var(-1, keepdim=True) + eps).sqrt()
    return (x * scale + shift) @ table.T


@wrong("interpret/lens", "chances")
def probabilities(streams, scale, shift, table, eps):
    x = F.layer_norm(streams, scale.shape, scale, shift, eps)
    return (x @ table.T).softmax(-1)


@wrong("interpret/lens", "over_places")
def over_places(streams, scale, shift, table, eps):
    x = F.layer_norm(streams.mT, (streams.size(1),), eps=eps).mT
    return (scale * x + shift) @ table.T


# RMSNorm: the mean is not subtracted.
@wrong("interpret/lens")
def rms_lens(streams, scale, shift, table, eps):
    size = streams.square().mean(-1, keepdim=True)
    return (streams / (size + eps).sqrt() * scale + shift) @ table.T


@wrong("interpret/lens")
def only_shifted(streams, scale, shift, table, eps):
    return (F.layer_norm(streams, scale.shape, scale, None, eps)) @ table.T


@wrong("interpret/lens")
def log_chances(streams, scale, shift, table, eps):
    return by_torch(streams, scale, shift, table, eps).log_softmax(-1)


# -- induction ---------------------------------------------------------------


@right("interpret/induction")
def induction_dictionary(weights, ids):
    last, total, n = {}, torch.zeros_like(weights[:, 0, 0]), 0
    for t, token in enumerate(ids.tolist()):
        if token in last:
            total = total + weights[:, t, last[token] + 1]
            n += 1
        last[token] = t
    return total / n


@right("interpret/induction")
def dict_of_places(weights, ids):
    last, found = {}, []
    for t, token in enumerate(ids.tolist()):
        if token in last:
            found.append(weights[:, t, last[token] + 1])
        last[token] = t
    if not found:
        return weights.new_zeros(len(weights))
    return torch.stack(found, -1).mean(-1)


@right("interpret/induction")
def mask_of_pairs(weights, ids):
    T = len(ids)
    at = torch.arange(T)
    same = (ids[:, None] == ids) & (at < at[:, None])
    last = torch.where(same, at, -1).amax(1)
    asks = (last >= 0).to(weights.dtype)
    where = F.one_hot(last + 1, T + 1)[:, :T].to(weights.dtype)
    where = where * asks[:, None]
    return torch.einsum("hts,ts->h", weights, where) / asks.sum().clamp(min=1)


def followers(ids):
    """(query, key) pairs, by a dictionary of the last places."""
    last = {}
    for t, token in enumerate(ids.tolist()):
        if token in last:
            yield t, last[token] + 1
        last[token] = t


@right("interpret/induction")
def with_a_dictionary(weights, ids):
    rows, keys = zip(*followers(ids), strict=True)
    return weights[:, list(rows), list(keys)].mean(dim=1)


@right("interpret/induction")
def with_a_table(weights, ids):
    n = len(ids)
    same = (ids[:, None] == ids) & torch.ones(n, n).tril(-1).bool()
    place = torch.where(same, torch.arange(n), -1).max(dim=1).values
    counts = place >= 0
    wanted = F.one_hot((place + 1).clamp(max=n - 1), n) * counts[:, None]
    return (weights * wanted).sum((1, 2)) / counts.sum()


@right("interpret/induction")
def backward_search(weights, ids):
    found = []
    for t in range(1, len(ids)):
        for s in reversed(range(t)):
            if torch.equal(ids[s], ids[t]):
                found.append(weights[:, t, s + 1])
                break
    return torch.stack(found, dim=0).mean(dim=0)


def _induction(weights, ids, ahead=1, first=False, over_all=False):
    ids, found = ids.tolist(), []
    for t in range(len(ids)):
        earlier = [s for s in range(t) if ids[s] == ids[t]]
        if earlier:
            s = earlier[0] if first else earlier[-1]
            found.append(weights[:, t, s + ahead])
    total = torch.stack(found).sum(0)
    return total / (len(ids) if over_all else len(found))


@wrong("interpret/induction", "at_the_match")
def not_behind(weights, ids):
    return _induction(weights, ids, ahead=0)


@wrong("interpret/induction", "first_time")
def behind_the_first(weights, ids):
    return _induction(weights, ids, first=True)


@wrong("interpret/induction", "all_queries")
def over_all_queries(weights, ids):
    return _induction(weights, ids, over_all=True)


@wrong("interpret/induction", "one_before")
def before_it(weights, ids):
    return _induction(weights, ids, ahead=-1)


@wrong("interpret/induction", "transposed")
def keys_ask(weights, ids):
    return _induction(weights.mT, ids)


# One number, the mean over the heads.
@wrong("interpret/induction")
def mean_of_all_heads(weights, ids):
    return dict_of_places(weights, ids).mean()


@wrong("interpret/induction")
def largest(weights, ids):
    return torch.stack([weights[:, t, s] for t, s in followers(ids)]).amax(0)


@wrong("interpret/induction")
def one_before(weights, ids):
    pairs = [(t, s - 2) for t, s in followers(ids) if s >= 2]
    return torch.stack([weights[:, t, s] for t, s in pairs]).mean(0)


# -- silenced ----------------------------------------------------------------


@right("interpret/silenced")
def where_it_is_that_head(heads, reference, head):
    mean = torch.einsum("nhsd->hd", reference)
    mean = mean / (reference.size(0) * reference.size(2))
    number = torch.arange(heads.size(1))[None, :, None, None]
    return torch.where(number == head, mean[None, :, None], heads)


@right("interpret/silenced")
def unbound(heads, reference, head):
    each = list(heads.unbind(1))
    said = reference.select(1, head).flatten(0, 1).mean(0)
    each[head] = said.expand_as(each[head])
    return torch.stack(each, dim=1)


@right("interpret/silenced")
def with_where(heads, reference, head):
    mean = reference.flatten(2, 2).mean(dim=(0, 2))[head]
    chosen = torch.arange(heads.size(1)) == head
    return torch.where(chosen[:, None, None], mean, heads)


@right("interpret/silenced")
def in_pieces(heads, reference, head):
    n, _, s, size = reference.shape
    said = reference.select(1, head).reshape(n * s, size).sum(0) / (n * s)
    middle = said.expand(heads.size(0), 1, heads.size(2), size)
    return torch.cat([heads[:, :head], middle, heads[:, head + 1 :]], dim=1)


@right("interpret/silenced")
def as_a_sum(heads, reference, head):
    out = torch.empty_like(heads)
    for h in range(heads.size(1)):
        if h == head:
            out[:, h] = reference[:, h].mean(dim=1).mean(dim=0)
        else:
            out[:, h] = heads[:, h]
    return out


@wrong("interpret/silenced", "in_place")
def silenced_in_place(heads, reference, head):
    heads[:, head] = reference[:, head].mean((0, 1))
    return heads


@wrong("interpret/silenced", "own_mean")
def silenced_own_mean(heads, reference, head):
    out = heads.clone()
    out[:, head] = heads[:, head].mean(dim=(0, 1))
    return out


@wrong("interpret/silenced", "zero")
def says_zero(heads, reference, head):
    out = heads.clone()
    out[:, head] = 0
    return out


@wrong("interpret/silenced", "one_number")
def one_number(heads, reference, head):
    out = heads.clone()
    out[:, head] = reference[:, head].mean()
    return out


@wrong("interpret/silenced", "a_text")
def silences_a_text(heads, reference, head):
    out = heads.clone()
    out[head] = reference[head].mean((0, 1))
    return out


# All heads say their mean.
@wrong("interpret/silenced")
def all_silent(heads, reference, head):
    mean = reference.mean((0, 2))
    return mean[None, :, None].expand_as(heads).clone()


@wrong("interpret/silenced")
def means_of_all(heads, reference, head):
    return heads * 0 + reference.mean((0, 2))[:, None]


@wrong("interpret/silenced")
def a_text(heads, reference, head):
    out = heads.clone()
    out[head] = reference.mean((0, 2))[head]
    return out


# -- sharpest ----------------------------------------------------------------


@right("interpret/sharpest")
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


@right("interpret/sharpest")
def moved_eye(weights):
    B, T = weights.size(1), weights.size(-1)
    eye = torch.diag(torch.ones(T - 1, dtype=weights.dtype), -1)
    shares = torch.einsum("lbhts,ts->lh", weights, eye)
    return shares.amax(-1) / (B * (T - 1))


@right("interpret/sharpest")
def one_after_the_other(weights):
    found = []
    for block in weights.transpose(1, 2):
        rows = torch.arange(1, weights.size(-1))
        found.append(max(w[:, rows, rows - 1].mean() for w in block))
    return torch.stack(found)


@right("interpret/sharpest")
def by_a_shift(weights):
    n = weights.size(-1)
    one_back = torch.eye(n - 1, dtype=weights.dtype)
    shares = (weights[..., 1:, :-1] * one_back).sum((-1, -2)) / (n - 1)
    return shares.mean(1).max(dim=1).values


@right("interpret/sharpest")
def by_einsum(weights):
    before = torch.einsum("lbhtt->lbht", weights[..., 1:, :-1])
    n = before.shape[1] * before.shape[3]
    return (before.sum(3).sum(1) / n).sort(dim=1).values[:, -1]


@wrong("interpret/sharpest", "averaged")
def heads_still_averaged(weights):
    return weights.mean(2).diagonal(-1, -2, -1).mean((1, 2))


@wrong("interpret/sharpest", "after")
def still_the_future(weights):
    return weights.diagonal(1, -2, -1).mean((1, 3)).amax(1)


@wrong("interpret/sharpest", "best_by_text")
def best_of_each_text(weights):
    return weights.diagonal(-1, -2, -1).mean(-1).amax(2).mean(1)


@wrong("interpret/sharpest", "first_counted")
def first_query_too(weights):
    looks = weights.diagonal(-1, -2, -1).sum(-1) / weights.size(-1)
    return looks.mean(1).amax(-1)


# Which head it is, not its share.
@wrong("interpret/sharpest")
def number_of_the_head(weights):
    return weights.diagonal(-1, -2, -1).mean((1, 3)).argmax(1)


@wrong("interpret/sharpest")
def last_query(weights):
    return weights[..., -1, -2].mean(1).amax(-1)


@wrong("interpret/sharpest")
def two_back(weights):
    before = torch.einsum("lbhtt->lbht", weights[..., 2:, :-2])
    return before.mean((1, 3)).max(1).values


# -- traced ------------------------------------------------------------------


@right("interpret/traced")
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


def climb(blocks, x):
    out = [x]
    for block in blocks:
        out.append(block(out[-1]))
    return out


@right("interpret/traced")
def from_the_patch_on(blocks, clean, corrupt, readout, height, place):
    a, b = climb(blocks, clean), climb(blocks, corrupt)
    x = b[height].clone()
    x[place] = a[height][place]
    x = climb(blocks[height:], x)[-1]
    high, low, new = (float(y[-1] @ readout) for y in (a[-1], b[-1], x))
    return torch.tensor((new - low) / (high - low), dtype=clean.dtype)


@right("interpret/traced")
def as_a_difference(blocks, clean, corrupt, readout, height, place):
    a, b = climb(blocks, clean), climb(blocks, corrupt)
    only = torch.zeros_like(clean)
    only[place] = (a[height] - b[height])[place]
    top = climb(blocks[height:], b[height] + only)[-1]
    gain = (top - b[-1])[-1].dot(readout)
    return gain / (a[-1] - b[-1])[-1].dot(readout)


@right("interpret/traced")
def with_a_mask(blocks, clean, corrupt, readout, height, place):
    here = (torch.arange(len(clean)) == place)[:, None]

    def run(x, other=None):
        for i in range(len(blocks) + 1):
            if other is not None and i == height:
                x = torch.where(here, other[i], x)
            x = blocks[i](x) if i < len(blocks) else x
        return (readout * x[-1]).sum()

    low = run(corrupt)
    return (run(corrupt, climb(blocks, clean)) - low) / (run(clean) - low)


def _traced(blocks, clean, corrupt, readout, height, place, patch):
    x, y, patched = clean, corrupt, corrupt.clone()
    for i in range(len(blocks) + 1):
        if i == height:
            patched = patch(x, patched)
        if i < len(blocks):
            x, y, patched = (blocks[i](v) for v in (x, y, patched))
    return [v[-1] @ readout for v in (x, y, patched)]


@wrong("interpret/traced", "every_place")
def all_places(blocks, clean, corrupt, readout, height, place):
    high, low, new = _traced(
        blocks, clean, corrupt, readout, height, place, lambda x, patched: x
    )
    return (new - low) / (high - low)


@wrong("interpret/traced", "what_is_missing")
def what_is_missing(blocks, clean, corrupt, readout, height, place):
    return 1 - as_a_difference(blocks, clean, corrupt, readout, height, place)


@wrong("interpret/traced", "late")
def late(blocks, clean, corrupt, readout, height, place):
    return as_a_difference(
        blocks, clean, corrupt, readout, min(height + 1, len(blocks)), place
    )


@wrong("interpret/traced", "not_divided")
def not_divided(blocks, clean, corrupt, readout, height, place):
    a, b = climb(blocks, clean), climb(blocks, corrupt)
    x = b[height].clone()
    x[place] = a[height][place]
    return (climb(blocks[height:], x)[-1] - b[-1])[-1] @ readout


@wrong("interpret/traced", "in_place")
def traced_in_place(blocks, clean, corrupt, readout, height, place):
    a, b = climb(blocks, clean), climb(blocks, corrupt)
    high, low = a[-1][-1] @ readout, b[-1][-1] @ readout
    b[height][place] = a[height][place]
    new = climb(blocks[height:], b[height])[-1][-1] @ readout
    return (new - low) / (high - low)


# Patched in place, although the tensor is the corrupt run's own.
@wrong("interpret/traced")
def patched_in_place(blocks, clean, corrupt, readout, height, place):
    x, y, patched = clean, corrupt, corrupt
    for i in range(len(blocks) + 1):
        if i == height:
            patched[place] = x[place]
        if i < len(blocks):
            x, y, patched = (blocks[i](v) for v in (x, y, patched))
    high, low, new = (v[-1] @ readout for v in (x, y, patched))
    return (new - low) / (high - low)


# Every place but the one asked about is patched.
@wrong("interpret/traced")
def all_but_one(blocks, clean, corrupt, readout, height, place):
    def patch(x, patched):
        out = x.clone()
        out[place] = patched[place]
        return out

    high, low, new = _traced(
        blocks, clean, corrupt, readout, height, place, patch
    )
    return (new - low) / (high - low)


@wrong("interpret/traced")
def the_other_way(blocks, clean, corrupt, readout, height, place):
    return as_a_difference(blocks, corrupt, clean, readout, height, place)


# -- removal -----------------------------------------------------------------


@right("interpret/removal")
def removal_key_by_key(weights, values):
    out = weights @ values
    columns = []
    for s in range(weights.size(-1)):
        w = weights.clone()
        w[..., s] = 0
        w = w / w.sum(-1, keepdim=True)
        columns.append((w @ values - out).norm(dim=-1) / out.norm(dim=-1))
    return torch.stack(columns, dim=-1)


@right("interpret/removal")
def odds_times_distance(weights, values):
    out = weights @ values
    apart = torch.cdist(
        out, values, compute_mode="donot_use_mm_for_euclid_dist"
    )
    return weights / (1 - weights) * apart / out.norm(dim=-1, keepdim=True)


@right("interpret/removal")
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


@right("interpret/removal")
def each_key(weights, values):
    out = weights @ values
    columns = []
    for s in range(weights.size(-1)):
        rest = weights.clone()
        rest[..., s] = 0
        new = rest / rest.sum(-1, keepdim=True) @ values
        columns.append((new - out).norm(dim=-1) / out.norm(dim=-1))
    return torch.stack(columns, dim=-1)


@right("interpret/removal")
def by_softmax(weights, values):
    keys = weights.size(-1)
    out = weights @ values
    hidden = torch.eye(keys, dtype=torch.bool)
    scores = weights.log()[:, :, None].masked_fill(hidden, -torch.inf)
    new = scores.softmax(-1) @ values[:, None]
    return (
        torch.linalg.vector_norm(new - out[:, :, None], dim=-1)
        / (torch.linalg.vector_norm(out, dim=-1)[..., None])
    )


@right("interpret/removal")
def by_odds(weights, values):
    out = torch.einsum("hts,hsd->htd", weights, values)
    away = values[:, None] - out[:, :, None]
    odds = weights / (1 - weights)
    return odds * away.norm(dim=-1) / out.norm(dim=-1)[..., None]


@wrong("interpret/removal", "not_made_whole")
def removal_not_scaled(weights, values):
    out = weights @ values
    part = weights[..., None] * values[:, None]
    return part.norm(dim=-1) / out.norm(dim=-1)[..., None]


@wrong("interpret/removal", "not_relative")
def removal_not_divided(weights, values):
    out = (weights @ values)[:, :, None]
    gone = weights[..., None] * values[:, None]
    left = (out - gone) / (1 - weights)[..., None]
    return (left - out).norm(dim=-1)


@wrong("interpret/removal", "by_the_rest")
def by_what_is_left(weights, values):
    out = (weights @ values)[:, :, None]
    gone = weights[..., None] * values[:, None]
    left = (out - gone) / (1 - weights)[..., None]
    return (left - out).norm(dim=-1) / left.norm(dim=-1)


@wrong("interpret/removal", "of_lengths")
def difference_of_lengths(weights, values):
    out = (weights @ values)[:, :, None]
    gone = weights[..., None] * values[:, None]
    left = (out - gone) / (1 - weights)[..., None]
    return (left.norm(dim=-1) - out.norm(dim=-1)).abs() / out.norm(dim=-1)


@wrong("interpret/removal", "just_the_weight")
def weights_themselves(weights, values):
    return weights.clone()


@wrong("interpret/removal")
def weight_times_value(weights, values):
    return weights * values.norm(dim=-1)[:, None]


@wrong("interpret/removal")
def squared(weights, values):
    return each_key(weights, values) ** 2


@wrong("interpret/removal")
def weight_left(weights, values):
    return (1 - weights) * each_key(weights, values)
