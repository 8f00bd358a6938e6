"""Answers to the exercises of chapter 19, as people write them."""

import math
import statistics

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812


# -- moves: right ------------------------------------------------------------
def one_entry_at_a_time(model, ids, vocab_size):
    n = ids.shape[1]
    out = torch.zeros(n, n, dtype=torch.bool)
    before = model(ids)
    for j in range(n):
        step = torch.zeros_like(ids)
        step[:, j] = 1
        after = model((ids + step) % vocab_size)
        for i in range(n):
            gap = (after[:, i] - before[:, i]).abs().max().item()
            out[i, j] = gap > 1e-6
    return out


def row_by_row(model, ids, vocab_size):
    # Every row is changed while the others stay; all are looked at.
    found = None
    before = model(ids)
    for b in range(len(ids)):
        columns = []
        for j in range(ids.size(1)):
            other = ids.clone()
            other[b, j] = (other[b, j] + 1) % vocab_size
            columns.append(~torch.isclose(model(other), before, 0, 1e-6))
        grid = torch.stack(columns).any(-1).any(1).T
        found = grid if found is None else found | grid
    return found


def with_numpy(model, ids, vocab_size):
    a, grid = model(ids).numpy(), []
    for j in range(ids.size(1)):
        b = ids.numpy().copy()
        b[:, j] = (b[:, j] + 1) % vocab_size
        change = np.abs(model(torch.from_numpy(b)).numpy() - a)
        grid.append(change.max(axis=(0, 2)) > 1e-6)
    return torch.from_numpy(np.array(grid).T.copy())


# -- moves: wrong ------------------------------------------------------------
def probing(model, ids, vocab_size, moved, restore=True, turn=True):
    old, columns = model(ids), []
    other = ids.clone()
    for j in range(ids.size(1)):
        other[:, j] = (ids[:, j] + 1) % vocab_size
        columns.append(moved(model(other), old))
        if restore:
            other[:, j] = ids[:, j]
    grid = torch.stack(columns)
    return grid.T if turn else grid


def largest(new, old):
    return ((new - old).abs() > 1e-6).any(-1).any(0)


def stays_changed(model, ids, vocab_size):
    return probing(model, ids, vocab_size, largest, restore=False)


def signed(model, ids, vocab_size):
    return probing(
        model,
        ids,
        vocab_size,
        lambda new, old: ((new.sum(-1) - old.sum(-1)).abs() > 1e-6).any(0),
    )


def exact(model, ids, vocab_size):
    return probing(
        model,
        ids,
        vocab_size,
        lambda new, old: ~(new == old).all(-1).all(0),
    )


def row_0(model, ids, vocab_size):
    return probing(
        model, ids, vocab_size, lambda new, old: largest(new[:1], old[:1])
    )


def transposed(model, ids, vocab_size):
    return probing(model, ids, vocab_size, largest, turn=False)


# -- moves: other mistakes ---------------------------------------------------
def own_position_only(model, ids, vocab_size):
    return torch.eye(ids.size(1), dtype=torch.bool)


def what_a_mask_should_be(model, ids, vocab_size):
    n = ids.size(1)
    return torch.ones(n, n, dtype=torch.bool).tril()


def all_rows_must_move(model, ids, vocab_size):
    before, columns = model(ids), []
    for j in range(ids.size(1)):
        other = ids.clone()
        other[:, j] = (other[:, j] + 1) % vocab_size
        gap = (model(other) - before).abs().max(-1).values
        columns.append((gap > 1e-6).sum(0) == len(ids))
    return torch.stack(columns, 1)


# -- asked: right ------------------------------------------------------------
def with_a_dictionary(loss, vocab_size, length):
    ids = torch.stack([torch.randperm(vocab_size)[:length] for _ in range(3)])
    hot = 30.0 * torch.eye(vocab_size, dtype=torch.float64)[ids]
    none = torch.zeros(3, 2, vocab_size, dtype=torch.float64)
    wide = torch.cat((none, hot, none), 1)
    for k in (-1, 0, 1, 2):
        if loss(wide[:, 2 + k : 2 + k + length], ids) < 1:
            return k
    return "none"


def with_roll(loss, vocab_size, length):
    # What is rolled in at the ends is blanked.
    ids = torch.arange(length)[None] % vocab_size
    hot = 30.0 * F.one_hot(ids, vocab_size).double()
    costs = []
    for k in (-1, 0, 1, 2):
        rolled = hot.roll(-k, 1)
        if k > 0:
            rolled[:, -k:] = 0
        elif k < 0:
            rolled[:, :1] = 0
        costs.append((loss(rolled, ids).item(), k))
    cost, k = min(costs)
    return k if cost < 1 else "none"


def many_texts(loss, vocab_size, length):
    right = []
    ids = torch.stack(
        [torch.arange(b, b + length) % vocab_size for b in range(11)]
    )
    for k in range(-1, 3):
        logits = torch.zeros(11, length, vocab_size, dtype=torch.float64)
        for b in range(11):
            for t in range(length):
                if 0 <= t + k < length:
                    logits[b, t, ids[b, t + k]] = 30
        if float(loss(logits, ids)) < 1.0:
            right += [k]
    return right[0] if right else "none"


# -- asked: wrong ------------------------------------------------------------
def oracles(loss, ids, vocab_size, sure=30.0, side=1):
    n, costs = ids.size(1), {}
    for k in (-1, 0, 1, 2):
        logits = torch.zeros(*ids.shape, vocab_size, dtype=torch.float64)
        for t in range(n):
            at = t + side * k
            if 0 <= at < n:
                logits[torch.arange(len(ids)), t, ids[:, at]] = sure
        costs[k] = loss(logits, ids).item()
    return costs


def steps(vocab_size, length):
    return (3 * torch.arange(length))[None] % vocab_size


def verdict(costs):
    k = min(costs, key=costs.get)
    return k if costs[k] < 1 else "none"


def constant(loss, vocab_size, length):
    ids = torch.full((1, length), 4)
    return verdict(oracles(loss, ids, vocab_size))


def timid(loss, vocab_size, length):
    ids = steps(vocab_size, length)
    return verdict(oracles(loss, ids, vocab_size, sure=1.0))


def backwards(loss, vocab_size, length):
    ids = steps(vocab_size, length)
    return verdict(oracles(loss, ids, vocab_size, side=-1))


def lowest(loss, vocab_size, length):
    costs = oracles(loss, steps(vocab_size, length), vocab_size)
    return sorted(costs, key=costs.get)[0]


# -- asked: other mistakes ---------------------------------------------------
def always_the_next(loss, vocab_size, length):
    return 1


def counts_from_the_end(loss, vocab_size, length):
    costs = oracles(loss, steps(vocab_size, length), vocab_size)
    found = verdict(costs)
    return found if found == "none" else found + 1


def says_the_loss(loss, vocab_size, length):
    return min(oracles(loss, steps(vocab_size, length), vocab_size).values())


# -- difference: right -------------------------------------------------------
def by_statistics(right, wrong, t):
    gaps = [w - r for r, w in zip(right, wrong, strict=True)]
    spread = statistics.stdev(gaps)
    return statistics.fmean(gaps), t * spread / math.sqrt(len(gaps))


def by_numpy(right, wrong, t):
    gaps = np.subtract(wrong, right)
    return gaps.mean(), t * gaps.std(ddof=1) / np.sqrt(gaps.size)


def by_squares(right, wrong, t):
    n = len(right)
    gaps = [w - r for r, w in zip(right, wrong, strict=True)]
    mean = sum(gaps) / n
    square = sum((g - mean) ** 2 for g in gaps) / (n * (n - 1))
    return mean, t * square**0.5


# -- difference: wrong -------------------------------------------------------
def unpaired(right, wrong, t):
    mean = statistics.fmean(wrong) - statistics.fmean(right)
    both = statistics.variance(wrong) + statistics.variance(right)
    return mean, t * math.sqrt(both / len(right))


def population(right, wrong, t):
    gaps = [w - r for r, w in zip(right, wrong, strict=True)]
    return statistics.fmean(gaps), t * statistics.pstdev(gaps) / len(
        gaps
    ) ** 0.5


def no_root(right, wrong, t):
    gaps = np.array(wrong) - np.array(right)
    return float(gaps.mean()), float(t * gaps.std(ddof=1))


def normal(right, wrong, t):
    mean, half = by_squares(right, wrong, 1.0)
    return mean, 1.96 * half


# -- difference: other mistakes ----------------------------------------------
def the_range(right, wrong, t):
    gaps = [w - r for r, w in zip(right, wrong, strict=True)]
    return statistics.fmean(gaps), (max(gaps) - min(gaps)) / 2


def the_whole_width(right, wrong, t):
    mean, half = by_squares(right, wrong, t)
    return mean, 2 * half


def the_median(right, wrong, t):
    gaps = [w - r for r, w in zip(right, wrong, strict=True)]
    return statistics.median(gaps), by_squares(right, wrong, t)[1]


# -- mended: right -----------------------------------------------------------
def with_torch(ids, table, places, w_q, w_k, w_v, pad):
    x = F.embedding(ids, table) + places[None, : ids.shape[1]]
    y = F.scaled_dot_product_attention(
        x @ w_q, x @ w_k, x @ w_v, is_causal=True
    )
    logits = F.linear(x + y, table)
    loss = F.cross_entropy(
        logits[:, :-1].transpose(1, 2), ids[:, 1:], ignore_index=pad
    )
    return logits, loss


def token_by_token(ids, table, places, w_q, w_k, w_v, pad):
    rows, costs = [], []
    for text in ids:
        x = torch.stack([table[i] + places[t] for t, i in enumerate(text)])
        out = []
        for t in range(len(x)):
            seen = x[: t + 1]
            fit = (seen @ w_k) @ (x[t] @ w_q) / math.sqrt(x.size(1))
            out.append(x[t] + fit.softmax(0) @ (seen @ w_v))
        z = torch.stack(out) @ table.T
        rows.append(z)
        for t in range(len(x) - 1):
            if text[t + 1] != pad:
                costs.append(z[t].logsumexp(0) - z[t, text[t + 1]])
    return torch.stack(rows), torch.stack(costs).mean()


def with_einsum(ids, table, places, w_q, w_k, w_v, pad):
    n, d = ids.size(1), table.size(1)
    x = table[ids] + places[torch.arange(n)]
    q, k, v = (torch.einsum("btd,de->bte", x, w) for w in (w_q, w_k, w_v))
    s = torch.einsum("bid,bjd->bij", q, k) * d**-0.5
    e = (s - s.amax(-1, keepdim=True)).exp() * torch.ones(n, n).tril()
    x = x + torch.einsum("bij,bjd->bid", e / e.sum(-1, keepdim=True), v)
    z = torch.einsum("btd,vd->btv", x, table)
    p = z[:, :-1].softmax(-1)
    right = p.gather(2, ids[:, 1:, None]).squeeze(2)
    real = (ids[:, 1:] != pad).double()
    return z, -(right.log() * real).sum() / real.sum()


# -- mended: wrong -----------------------------------------------------------
def program(
    ids, table, places, w_q, w_k, w_v, pad,
    where=None, values=None, scale=None, ahead=0, axis=-1, shift=1,
    mean=None, hidden=-math.inf,
):  # fmt: skip
    b, n = ids.shape
    x = table[ids]
    x = x + (places[torch.arange(n)].expand_as(x) if where is None else where)
    q, k, v = x @ w_q, x @ w_k, x @ (w_v if values is None else values)
    s = q @ k.transpose(1, 2)
    s = s / (table.size(1) ** 0.5 if scale is None else scale)
    see = torch.ones(n, n, dtype=torch.bool).tril(ahead)
    w = torch.where(see, s, torch.tensor(hidden).double()).softmax(axis)
    z = (x + w @ v) @ table.mT
    nats = F.cross_entropy(
        z[:, : n - shift].flatten(0, 1),
        ids[:, shift:].flatten(),
        reduction="none",
    ).view(b, -1)
    real = ids[:, shift:] != pad
    if mean == "all":
        return z, nats.sum() / nats.numel()
    if mean == "rows":
        each = [c[r].mean() for c, r in zip(nats, real, strict=True)]
        return z, sum(each) / len(each)
    return z, nats[real].mean()


def by_batch(ids, table, places, *rest):
    rows = torch.stack([places[b].expand(ids.size(1), -1)
                        for b in range(len(ids))])  # fmt: skip
    return program(ids, table, places, *rest, where=rows)


def no_scale(*args):
    return program(*args, scale=1.0)


def sees_next(*args):
    return program(*args, ahead=1)


def mask_finite(*args):
    return program(*args, hidden=-100.0)


def over_queries(*args):
    return program(*args, axis=1)


def not_shifted(*args):
    return program(*args, shift=0)


def shifted_twice(*args):
    return program(*args, shift=2)


def padding_counted(*args):
    return program(*args, mean="all")


def mean_of_means(*args):
    return program(*args, mean="rows")


# -- mended: other mistakes --------------------------------------------------
def scaled_by_d(*args):
    return program(*args, scale=args[1].size(1))


def own_token_hidden(ids, table, places, w_q, w_k, w_v, pad):
    logits, _ = program(ids, table, places, w_q, w_k, w_v, pad)
    logits = logits - table[ids] @ table.T  # the path around is missing
    nats = F.cross_entropy(logits[:, :-1].mT, ids[:, 1:], ignore_index=pad)
    return logits, nats


def in_bits(*args):
    logits, nats = program(*args)
    return logits, nats / math.log(2)


def rises_only(model, ids, vocab_size):
    before = model(ids)
    columns = []
    for j in range(ids.size(1)):
        other = ids.clone()
        other[:, j] = (ids[:, j] + 1).remainder(vocab_size)
        columns.append(((model(other) - before) > 1e-6).any(-1).any(0))
    return torch.stack(columns).T


def rolled(loss, vocab_size, length):
    ids = (torch.arange(length) * 5 % vocab_size)[None]
    for k in (-1, 0, 1, 2):
        known = F.one_hot(ids.roll(-k, 1), vocab_size) * 30.0
        if loss(known, ids) < 1:
            return k
    return "none"


def no_mask(*args):
    return program(*args, ahead=99)


def real_inputs(ids, *rest):
    z, _ = program(ids, *rest)
    nats = F.cross_entropy(z[:, :-1].mT, ids[:, 1:], reduction="none")
    return z, nats[ids[:, :-1] != rest[-1]].mean()


def nothing_moves(model, ids, vocab_size):
    return torch.zeros(ids.size(1), ids.size(1), dtype=torch.bool)


def divided_by_all(ids, table, places, w_q, w_k, w_v, pad):
    logits, mean = with_torch(ids, table, places, w_q, w_k, w_v, pad)
    real = ids[:, 1:] != pad
    return logits, mean * real.double().mean()


def off_the_end(model, ids, vocab_size):
    there = model(ids)
    reach = []
    for j in range(ids.size(1)):
        other = ids.clone()
        other[:, j].add_(1)
        gap = (model(other) - there).abs().amax(dim=-1)
        reach.append((gap > 1e-6).any(dim=0))
    return torch.stack(reach, dim=1)


def in_quadrature(right, wrong, t):
    d = torch.tensor(wrong).double() - torch.tensor(right).double()
    return d.square().mean().sqrt(), t * d.std() / len(d) ** 0.5


RIGHT = {
    "moves": [one_entry_at_a_time, row_by_row, with_numpy],
    "asked": [with_a_dictionary, with_roll, many_texts],
    "difference": [by_statistics, by_numpy, by_squares],
    "mended": [with_torch, token_by_token, with_einsum],
}
WRONG = {
    "moves": {
        "stays_changed": stays_changed,
        "exact": exact,
        "row_0": row_0,
        "transposed": transposed,
        "rises_only": rises_only,
        "all_rows": all_rows_must_move,
        "off_the_end": off_the_end,
    },
    "asked": {
        "constant": constant,
        "timid": timid,
        "backwards": backwards,
        "lowest": lowest,
        "rolled": rolled,
    },
    "difference": {
        "unpaired": unpaired,
        "population": population,
        "no_root": no_root,
        "normal": normal,
        "whole_width": the_whole_width,
    },
    "mended": {
        "by_batch": by_batch,
        "no_scale": no_scale,
        "sees_next": sees_next,
        "over_queries": over_queries,
        "not_shifted": not_shifted,
        "shifted_twice": shifted_twice,
        "padding_counted": padding_counted,
        "mean_of_means": mean_of_means,
        "mask_finite": mask_finite,
        "no_mask": no_mask,
        "real_inputs": real_inputs,
        "divided_by_all": divided_by_all,
    },
}
OUTSIDE = {
    "moves": [
        nothing_moves,
        own_position_only,
        what_a_mask_should_be,
        signed,
    ],
    "asked": [always_the_next, counts_from_the_end, says_the_loss],
    "difference": [the_range, the_median, in_quadrature],
    "mended": [scaled_by_d, own_token_hidden, in_bits],
}
