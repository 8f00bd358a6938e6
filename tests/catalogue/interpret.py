"""Answers to the exercises of chapter 16, as people write them."""

import torch
from torch.nn import functional as F  # noqa: N812


# -- lens --------------------------------------------------------------------
def by_torch(streams, scale, shift, table, eps):
    return F.layer_norm(streams, scale.shape, scale, shift, eps) @ table.mT


def vector_by_vector(streams, scale, shift, table, eps):
    out = streams.new_empty(*streams.shape[:2], len(table))
    for height, rows in enumerate(streams):
        for t, row in enumerate(rows):
            centered = row - row.sum() / len(row)
            length = (centered.square().sum() / len(row) + eps) ** 0.5
            out[height, t] = torch.mv(table, centered / length * scale + shift)
    return out


def folded(streams, scale, shift, table, eps):
    centered = streams - streams.mean(dim=2, keepdim=True)
    size = torch.rsqrt(centered.pow(2).mean(dim=2, keepdim=True) + eps)
    wide = table * scale
    return torch.einsum("ltd,vd->ltv", centered * size, wide) + table @ shift


def no_norm(streams, scale, shift, table, eps):
    return torch.einsum("ltd,vd->ltv", streams, table)


def over_places(streams, scale, shift, table, eps):
    x = F.layer_norm(streams.mT, (streams.size(1),), eps=eps).mT
    return (scale * x + shift) @ table.T


def unbiased(streams, scale, shift, table, eps):
    x = streams - streams.mean(-1, keepdim=True)
    x = x / torch.sqrt(streams.var(-1, keepdim=True) + eps)
    return F.linear(x * scale + shift, table)


def chances(streams, scale, shift, table, eps):
    return torch.softmax(by_torch(streams, scale, shift, table, eps), dim=2)


def only_shifted(streams, scale, shift, table, eps):
    return (F.layer_norm(streams, scale.shape, scale, None, eps)) @ table.T


def root_mean_square(streams, scale, shift, table, eps):
    x = F.rms_norm(streams, scale.shape, scale, eps)
    return (x + shift) @ table.T


def log_chances(streams, scale, shift, table, eps):
    return by_torch(streams, scale, shift, table, eps).log_softmax(-1)


# -- induction ---------------------------------------------------------------
def followers(ids):
    """(query, key) pairs, by a dictionary of the last places."""
    last = {}
    for t, token in enumerate(ids.tolist()):
        if token in last:
            yield t, last[token] + 1
        last[token] = t


def with_a_dictionary(weights, ids):
    rows, keys = zip(*followers(ids), strict=True)
    return weights[:, list(rows), list(keys)].mean(dim=1)


def with_a_table(weights, ids):
    n = len(ids)
    same = (ids[:, None] == ids) & torch.ones(n, n).tril(-1).bool()
    place = torch.where(same, torch.arange(n), -1).max(dim=1).values
    counts = place >= 0
    wanted = F.one_hot((place + 1).clamp(max=n - 1), n) * counts[:, None]
    return (weights * wanted).sum((1, 2)) / counts.sum()


def backward_search(weights, ids):
    found = []
    for t in range(1, len(ids)):
        for s in reversed(range(t)):
            if torch.equal(ids[s], ids[t]):
                found.append(weights[:, t, s + 1])
                break
    return torch.stack(found, dim=0).mean(dim=0)


def at_the_match(weights, ids):
    pairs = torch.tensor([(t, s - 1) for t, s in followers(ids)])
    return weights[:, pairs[:, 0], pairs[:, 1]].mean(-1)


def first_time(weights, ids):
    tokens, found = ids.tolist(), []
    for t, token in enumerate(tokens):
        s = tokens.index(token)
        if s < t:
            found.append(weights[:, t, s + 1])
    return sum(found) / len(found)


def all_queries(weights, ids):
    total = sum(weights[:, t, s] for t, s in followers(ids))
    return total / ids.numel()


def transposed(weights, ids):
    return torch.stack([weights[:, s, t] for t, s in followers(ids)]).mean(0)


def mean_of_heads(weights, ids):
    return with_a_dictionary(weights, ids).mean()


def one_before(weights, ids):
    pairs = [(t, s - 2) for t, s in followers(ids) if s >= 2]
    return torch.stack([weights[:, t, s] for t, s in pairs]).mean(0)


def largest(weights, ids):
    return torch.stack([weights[:, t, s] for t, s in followers(ids)]).amax(0)


# -- silenced ----------------------------------------------------------------
def with_where(heads, reference, head):
    mean = reference.flatten(2, 2).mean(dim=(0, 2))[head]
    chosen = torch.arange(heads.size(1)) == head
    return torch.where(chosen[:, None, None], mean, heads)


def in_pieces(heads, reference, head):
    n, _, s, size = reference.shape
    said = reference.select(1, head).reshape(n * s, size).sum(0) / (n * s)
    middle = said.expand(heads.size(0), 1, heads.size(2), size)
    return torch.cat([heads[:, :head], middle, heads[:, head + 1 :]], dim=1)


def as_a_sum(heads, reference, head):
    out = torch.empty_like(heads)
    for h in range(heads.size(1)):
        if h == head:
            out[:, h] = reference[:, h].mean(dim=1).mean(dim=0)
        else:
            out[:, h] = heads[:, h]
    return out


def zero(heads, reference, head):
    keep = torch.ones(heads.size(1), dtype=heads.dtype)
    keep[head] = 0
    return heads * keep[:, None, None]


def own_mean(heads, reference, head):
    return as_a_sum(heads, heads, head)


def one_number(heads, reference, head):
    out = heads + 0
    out[:, head, :, :] = reference[:, head].mean().item()
    return out


def a_text(heads, reference, head):
    out = heads.clone()
    out[head] = reference.mean((0, 2))[head]
    return out


def means_of_all(heads, reference, head):
    return heads * 0 + reference.mean((0, 2))[:, None]


def taken_away(heads, reference, head):
    out = heads.clone()
    out[:, head] -= reference[:, head].mean((0, 1))
    return out


# -- sharpest ----------------------------------------------------------------
def one_after_the_other(weights):
    found = []
    for block in weights.transpose(1, 2):
        rows = torch.arange(1, weights.size(-1))
        found.append(max(w[:, rows, rows - 1].mean() for w in block))
    return torch.stack(found)


def by_a_shift(weights):
    n = weights.size(-1)
    one_back = torch.eye(n - 1, dtype=weights.dtype)
    shares = (weights[..., 1:, :-1] * one_back).sum((-1, -2)) / (n - 1)
    return shares.mean(1).max(dim=1).values


def by_einsum(weights):
    before = torch.einsum("lbhtt->lbht", weights[..., 1:, :-1])
    n = before.shape[1] * before.shape[3]
    return (before.sum(3).sum(1) / n).sort(dim=1).values[:, -1]


def averaged(weights):
    mean = weights.mean(2)
    return torch.diagonal(mean, -1, 2, 3).mean((1, 2))


def after(weights):
    above = torch.einsum("lbhtt->lbht", weights[..., :-1, 1:])
    return above.mean((1, 3)).max(1).values


def each_text_its_best(weights):
    before = torch.einsum("lbhtt->lbht", weights[..., 1:, :-1])
    return before.mean(3).max(2).values.mean(1)


def two_back(weights):
    before = torch.einsum("lbhtt->lbht", weights[..., 2:, :-2])
    return before.mean((1, 3)).max(1).values


def which_one(weights):
    before = torch.einsum("lbhtt->lbht", weights[..., 1:, :-1])
    return before.mean((1, 3)).argmax(1)


# -- traced ------------------------------------------------------------------
def climb(blocks, x):
    out = [x]
    for block in blocks:
        out.append(block(out[-1]))
    return out


def from_the_patch_on(blocks, clean, corrupt, readout, height, place):
    a, b = climb(blocks, clean), climb(blocks, corrupt)
    x = b[height].clone()
    x[place] = a[height][place]
    x = climb(blocks[height:], x)[-1]
    high, low, new = (float(y[-1] @ readout) for y in (a[-1], b[-1], x))
    return torch.tensor((new - low) / (high - low), dtype=clean.dtype)


def as_a_difference(blocks, clean, corrupt, readout, height, place):
    a, b = climb(blocks, clean), climb(blocks, corrupt)
    only = torch.zeros_like(clean)
    only[place] = (a[height] - b[height])[place]
    top = climb(blocks[height:], b[height] + only)[-1]
    gain = (top - b[-1])[-1].dot(readout)
    return gain / (a[-1] - b[-1])[-1].dot(readout)


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


def every_place(blocks, clean, corrupt, readout, height, place):
    a, b = climb(blocks, clean)[-1][-1], climb(blocks, corrupt)[-1][-1]
    x = climb(blocks[height:], climb(blocks[:height], clean)[-1])[-1][-1]
    return (x - b) @ readout / ((a - b) @ readout)


def late(blocks, clean, corrupt, readout, height, place):
    return as_a_difference(
        blocks, clean, corrupt, readout, min(height + 1, len(blocks)), place
    )


def not_divided(blocks, clean, corrupt, readout, height, place):
    a, b = climb(blocks, clean), climb(blocks, corrupt)
    x = b[height].clone()
    x[place] = a[height][place]
    return (climb(blocks[height:], x)[-1] - b[-1])[-1] @ readout


def what_is_missing(blocks, clean, corrupt, readout, height, place):
    return 1 - as_a_difference(blocks, clean, corrupt, readout, height, place)


def the_other_way(blocks, clean, corrupt, readout, height, place):
    return as_a_difference(blocks, corrupt, clean, readout, height, place)


def early(blocks, clean, corrupt, readout, height, place):
    return as_a_difference(blocks, clean, corrupt, readout, height - 1, place)


def at_the_place(blocks, clean, corrupt, readout, height, place):
    a, b = climb(blocks, clean), climb(blocks, corrupt)
    x = b[height].clone()
    x[place] = a[height][place]
    x = climb(blocks[height:], x)[-1]
    gain, whole = (x - b[-1])[place], (a[-1] - b[-1])[place]
    return gain @ readout / (whole @ readout)


# -- removal -----------------------------------------------------------------
def each_key(weights, values):
    out = weights @ values
    columns = []
    for s in range(weights.size(-1)):
        rest = weights.clone()
        rest[..., s] = 0
        new = rest / rest.sum(-1, keepdim=True) @ values
        columns.append((new - out).norm(dim=-1) / out.norm(dim=-1))
    return torch.stack(columns, dim=-1)


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


def by_odds(weights, values):
    out = torch.einsum("hts,hsd->htd", weights, values)
    away = values[:, None] - out[:, :, None]
    odds = weights / (1 - weights)
    return odds * away.norm(dim=-1) / out.norm(dim=-1)[..., None]


def just_the_weight(weights, values):
    return weights.clone()


def not_made_whole(weights, values):
    sizes = weights * values.norm(dim=-1)[:, None]
    return sizes / (weights @ values).norm(dim=-1, keepdim=True)


def not_relative(weights, values):
    out = weights @ values
    return each_key(weights, values) * out.norm(dim=-1, keepdim=True)


def weight_times_value(weights, values):
    return weights * values.norm(dim=-1)[:, None]


def squared(weights, values):
    return each_key(weights, values) ** 2


def of_the_new(weights, values):
    out = weights @ values
    new = out[:, :, None] - weights[..., None] * values[:, None]
    new = new / (1 - weights[..., None])
    return (new - out[:, :, None]).norm(dim=-1) / new.norm(dim=-1)


def top_only(streams, scale, shift, table, eps):
    found = [x @ table.T for x in streams[:-1]]
    top = F.layer_norm(streams[-1], scale.shape, scale, shift, eps)
    return torch.stack([*found, top @ table.T])


def silences_a_text(heads, reference, head):
    new = torch.clone(heads)
    new[head] = reference[head].flatten(0, 1).mean(0)
    return new


def first_query_counts(weights):
    return weights.diagonal(-1, -2, -1).sum(-1).mean(1).amax(
        -1
    ) / weights.size(-1)


def of_lengths(weights, values):
    out = (weights @ values)[:, :, None]
    new = (out - weights[..., None] * values[:, None]) / (1 - weights)[
        ..., None
    ]
    a, b = (torch.linalg.vector_norm(x, dim=-1) for x in (out, new))
    return (b - a).abs() / a


def traced_in_place(blocks, clean, corrupt, readout, height, place):
    a, b = climb(blocks, clean), climb(blocks, corrupt)
    high, low = a[-1][-1] @ readout, b[-1][-1] @ readout
    b[height][place] = a[height][place]
    new = climb(blocks[height:], b[height])[-1][-1] @ readout
    return (new - low) / (high - low)


def one_before_induction(weights, ids):
    found = []
    for t, token in enumerate(ids.tolist()):
        seen = ids[:t].tolist()
        if token in seen:
            last = t - 1 - seen[::-1].index(token)
            found.append(weights[:, t, last - 1])
    return sum(found) / len(found)


def last_query(weights):
    return weights[..., -1, -2].mean(1).amax(-1)


def weight_left(weights, values):
    return (1 - weights) * each_key(weights, values)


RIGHT = {
    "lens": [by_torch, vector_by_vector, folded],
    "induction": [with_a_dictionary, with_a_table, backward_search],
    "silenced": [with_where, in_pieces, as_a_sum],
    "sharpest": [one_after_the_other, by_a_shift, by_einsum],
    "traced": [from_the_patch_on, as_a_difference, with_a_mask],
    "removal": [each_key, by_softmax, by_odds],
}
WRONG = {
    "lens": {
        "no_norm": no_norm,
        "over_places": over_places,
        "unbiased": unbiased,
        "chances": chances,
        "top_only": top_only,
    },
    "induction": {
        "at_the_match": at_the_match,
        "first_time": first_time,
        "all_queries": all_queries,
        "transposed": transposed,
        "one_before": one_before_induction,
    },
    "silenced": {
        "zero": zero,
        "own_mean": own_mean,
        "one_number": one_number,
        "a_text": silences_a_text,
    },
    "sharpest": {
        "averaged": averaged,
        "after": after,
        "best_by_text": each_text_its_best,
        "first_counted": first_query_counts,
    },
    "traced": {
        "every_place": every_place,
        "late": late,
        "not_divided": not_divided,
        "what_is_missing": what_is_missing,
        "in_place": traced_in_place,
    },
    "removal": {
        "just_the_weight": just_the_weight,
        "not_made_whole": not_made_whole,
        "not_relative": not_relative,
        "of_lengths": of_lengths,
        "by_the_rest": of_the_new,
    },
}
OUTSIDE = {
    "lens": [only_shifted, root_mean_square, log_chances],
    "induction": [mean_of_heads, one_before, largest],
    "silenced": [a_text, means_of_all, taken_away],
    "sharpest": [two_back, which_one, last_query],
    "traced": [the_other_way, early, at_the_place],
    "removal": [weight_times_value, squared, weight_left],
}
