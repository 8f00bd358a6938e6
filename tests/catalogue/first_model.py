"""Answers to the exercises of chapter 0, as people write them."""

import math
from collections import Counter

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812

from coursekit.loss import cross_entropy


# -- surprise: right ---------------------------------------------------------
def against_the_target(logits, target):
    # ln(1 + Σ e^(z_j − z_y)), with the overflow taken out by hand.
    gap = logits - logits[target]
    top = gap.max()
    return top + (gap - top).exp().sum().log()


def one_by_one(logits, target):
    total = -math.inf
    for z in logits.tolist():
        high, low = max(total, z), min(total, z)
        total = high + math.log1p(math.exp(low - high))
    return total - logits[target].item()


def with_logaddexp(logits, target):
    return np.logaddexp.reduce(logits.numpy()) - float(logits[target])


def put_back(logits, target):
    top = max(logits)
    return (
        top
        + torch.log(sum(torch.exp(z - top) for z in logits))
        - logits[target]
    )


# -- surprise: wrong ---------------------------------------------------------
def exp_as_it_is(logits, target):
    total = sum(torch.exp(z) for z in logits)
    return torch.log(total) - logits[target]


def target_left(logits, target):
    top = torch.max(logits)
    return torch.log(torch.sum(torch.exp(logits - top))) - logits[target]


def minus_log_p(logits, target):
    e = torch.exp(logits - logits.max())
    return -torch.log(e[target] / torch.sum(e))


def log_p(logits, target):
    shifted = logits - max(logits)
    return shifted[target] - torch.log(torch.exp(shifted).sum())


def with_an_epsilon(logits, target):
    e = torch.exp(logits - logits.max())
    return -torch.log(e[target] / e.sum() + 1e-9)


def target_not_counted(logits, target):
    z = logits - logits.max()
    others = torch.arange(len(z)) != target
    return z[others].exp().sum().log() - z[target]


def clamped(logits, target):
    z = logits.clamp(-50, 50)
    return z.exp().sum().log() - z[target]


def farthest_from_zero(logits, target):
    z = logits - logits.abs().max()
    return z.exp().sum().log() - z[target]


def smallest_subtracted(logits, target):
    z = logits - logits.min()
    return z.exp().sum().log() - z[target]


def mean_of_exps(logits, target):
    z = logits - logits.max()
    return z.exp().mean().log() - z[target]


# -- shift: right ------------------------------------------------------------
def place_by_place(inputs, targets):
    rows, length = inputs.shape
    for s in range(-3, 4):
        pairs = [
            (targets[b, t], inputs[b, t + s])
            for b in range(rows)
            for t in range(length)
            if 0 <= t + s < length
        ]
        if all(x == y for x, y in pairs):
            return s
    return None


def padded(inputs, targets):
    # −1 stands where there is no input, and fits everything.
    wide = F.pad(inputs, (3, 3), value=-1)
    for s in (0, 1, -1, 2, -2, 3, -3):
        seen = wide[:, 3 + s : 3 + s + inputs.shape[1]]
        if ((seen == targets) | (seen == -1)).all():
            return s
    return None


def in_numpy(inputs, targets):
    x, y = inputs.numpy(), targets.numpy()
    n = x.shape[1]
    fits = {s: (x[:, s:] == y[:, : n - s]).all() for s in range(4)}
    fits |= {-s: (y[:, s:] == x[:, : n - s]).all() for s in range(1, 4)}
    return next((s for s, fit in fits.items() if fit), None)


# -- shift: wrong ------------------------------------------------------------
def wrong_sign(inputs, targets):
    found = place_by_place(inputs, targets)
    return found if found is None else -found


def no_negative(inputs, targets):
    n = inputs.shape[1]
    for s in range(4):
        if torch.equal(inputs[:, s:], targets[:, : n - s]):
            return s
    return None


def range_ends_early(inputs, targets):
    n = inputs.shape[1]
    for s in range(-3, 3):
        if s < 0:
            same = inputs[:, : n + s] == targets[:, -s:]
        else:
            same = inputs[:, s:] == targets[:, : n - s]
        if same.all():
            return s
    return None


def rolled(inputs, targets):
    for s in range(-3, 4):
        if (torch.roll(targets, s, 1) == inputs).all():
            return s
    return None


def minus_zero(inputs, targets):
    for s in range(-3, 4):
        if s < 0 and torch.equal(inputs[:, :s], targets[:, -s:]):
            return s
        if s >= 0 and torch.equal(inputs[:, s:], targets[:, :-s]):
            return s
    return None


def first_row(inputs, targets):
    x, y = inputs[0].tolist(), targets[0].tolist()
    for s in range(-3, 4):
        a, b = (x[s:], y) if s >= 0 else (x, y[-s:])
        if all(i == j for i, j in zip(a, b)):  # noqa: B905
            return s
    return None


def most_places(inputs, targets):
    n = inputs.shape[1]
    for s in range(-3, 4):
        a = inputs[:, max(0, s) : n + min(0, s)]
        b = targets[:, max(0, -s) : n - max(0, s)]
        if (a == b).float().mean() > 0.8:
            return s
    return None


def along_the_rows(inputs, targets):
    n = inputs.shape[0]
    for s in range(-3, 4):
        a, b = (inputs[s:], targets) if s >= 0 else (inputs, targets[-s:])
        if torch.equal(a[: n - abs(s)], b[: n - abs(s)]):
            return s
    return None


def begins_at_minus_two(inputs, targets):
    found = place_by_place(inputs, targets)
    return None if found == -3 else found


def minus_one_for_none(inputs, targets):
    found = place_by_place(inputs, targets)
    return -1 if found is None else found


def best_fit(inputs, targets):
    n = inputs.shape[1]
    fits = {}
    for s in range(-3, 4):
        a = inputs[:, max(0, s) : n + min(0, s)]
        b = targets[:, max(0, -s) : n - max(0, s)]
        fits[s] = (a == b).float().mean().item()
    return max(fits, key=fits.get)


# -- deal: right -------------------------------------------------------------
def border_in_the_middle(n_text, length):
    held_out = n_text // 10
    border = n_text - held_out
    training = torch.arange(0, border - length)
    validation = torch.arange(border, n_text - length)
    return training, validation


def side_by_side(n_text, length):
    # Windows that don't overlap: fewer, and each character once.
    border = math.ceil(0.9 * n_text)
    learned = np.arange(0, border - length, length)
    held_out = np.arange(border, n_text - length, length)
    np.random.shuffle(learned)
    return torch.from_numpy(learned), torch.from_numpy(held_out)


def one_by_one_dealt(n_text, length):
    border = n_text * 9 // 10
    learned, held_out = [], []
    for start in range(n_text):
        last = start + length
        if last < border:
            learned.append(start)
        elif start >= border and last < n_text:
            held_out.append(start)
    return torch.tensor(learned), torch.tensor(held_out)


# -- deal: wrong -------------------------------------------------------------
def windows_dealt(n_text, length):
    starts = torch.arange(n_text - length)[torch.randperm(n_text - length)]
    n = len(starts) * 9 // 10
    return starts[:n], starts[n:]


def starts_cut(n_text, length):
    border = int(0.9 * n_text)
    return torch.randperm(border), border + torch.randperm(
        n_text - border - length
    )


def target_forgotten(n_text, length):
    border = n_text - n_text // 10
    return (
        torch.arange(border - length + 1),
        torch.arange(border, n_text - length),
    )


def from_zero(n_text, length):
    border = int(0.9 * n_text)
    return (
        torch.randperm(border - length),
        torch.randperm(n_text - border - length),
    )


def beyond(n_text, length):
    border = int(0.9 * n_text)
    return (
        torch.arange(0, border - length),
        torch.arange(border, n_text - length + 1),
    )


def windows_of_64(n_text, length):
    border = int(0.9 * n_text)
    return (
        torch.randperm(border - 64),
        border + torch.randperm(n_text - border - 64),
    )


def first_tenth(n_text, length):
    border = n_text // 10
    return (
        torch.arange(border, n_text - length),
        torch.arange(border - length),
    )


def drawn_again(n_text, length):
    border = int(0.9 * n_text)
    return (
        torch.randint(0, border - length, (border,)),
        torch.randint(border, n_text - length, (n_text - border,)),
    )


def a_fifth(n_text, length):
    border = int(0.8 * n_text)
    return (
        torch.arange(border - length),
        torch.arange(border, n_text - length),
    )


# -- evaluate: right ---------------------------------------------------------
def all_at_once(model, ids, batch):
    with torch.no_grad():
        return F.cross_entropy(model(ids[:-1]), ids[1:]).item()


def weighted(model, ids, batch):
    # Means, weighted by how many answers they are means of.
    mean, n = 0.0, 0
    for x, y in zip(ids[:-1].split(batch), ids[1:].split(batch), strict=True):
        n += len(y)
        mean += (cross_entropy(model(x), y).item() - mean) * len(y) / n
    return mean


def each_answer(model, ids, batch):
    nats = [
        cross_entropy(model(part[:-1]), part[1:], reduction="none")
        for part in (ids[i : i + batch + 1] for i in range(0, len(ids), batch))
        if len(part) > 1
    ]
    return torch.cat(nats).mean()


def counted_pairs(model, ids, batch):
    pairs = Counter(zip(ids[:-1].tolist(), ids[1:].tolist(), strict=True))
    total = sum(
        n * cross_entropy(model(torch.tensor([x])), torch.tensor([y])).item()
        for (x, y), n in pairs.items()
    )
    return total / (len(ids) - 1)


# -- evaluate: wrong ---------------------------------------------------------
def mean_of_means(model, ids, batch):
    means = []
    for start in range(0, len(ids) - 1, batch):
        x = ids[start : start + batch]
        y = ids[start + 1 : start + 1 + batch]
        with torch.no_grad():
            means.append(cross_entropy(model(x[: len(y)]), y).item())
    return sum(means) / len(means)


def all_full(model, ids, batch):
    total = 0.0
    for start in range(0, len(ids) - 1, batch):
        y = ids[start + 1 : start + 1 + batch]
        x = ids[start : start + len(y)]
        total += F.cross_entropy(model(x), y).item() * batch
    return total / (len(ids) - 1)


def all_ids(model, ids, batch):
    total = 0.0
    for x, y in zip(ids[:-1].split(batch), ids[1:].split(batch), strict=True):
        total += F.cross_entropy(model(x), y, reduction="sum").item()
    return total / len(ids)


def rest_dropped(model, ids, batch):
    total, n, start = 0.0, 0, 0
    while start + batch < len(ids):
        y = ids[start + 1 : start + batch + 1]
        total += F.cross_entropy(model(ids[start : start + batch]), y).item()
        start, n = start + batch, n + 1
    return total / n


def border_lost(model, ids, batch):
    total, n = 0.0, 0
    for part in ids.split(batch):
        if len(part) > 1:
            x, y = part[:-1], part[1:]
            total += F.cross_entropy(model(x), y, reduction="sum").item()
            n += len(y)
    return total / n


def last_batch(model, ids, batch):
    for start in range(0, len(ids) - 1, batch):
        y = ids[start + 1 : start + 1 + batch]
        nats = F.cross_entropy(model(ids[start : start + len(y)]), y)
    return nats.item()


def never_divided(model, ids, batch):
    return F.cross_entropy(model(ids[:-1]), ids[1:], reduction="sum").item()


def last_answer_lost(model, ids, batch):
    total, n = 0.0, 0
    for start in range(0, len(ids) - 2, batch):
        y = ids[start + 1 : start + 1 + batch]
        x = ids[start : start + len(y)]
        total += F.cross_entropy(model(x), y, reduction="sum").item()
        n += len(y)
    return total / n


def by_batches(model, ids, batch):
    return never_divided(model, ids, batch) / math.ceil(len(ids) / batch)


def weighed_by_inputs(model, ids, batch):
    total = 0.0
    for start in range(0, len(ids) - 1, batch):
        x, y = ids[start : start + batch], ids[start + 1 : start + batch + 1]
        nats = -model(x[: len(y)]).log_softmax(-1)[range(len(y)), y]
        total += nats.mean().item() * len(x)
    return total / len(ids)


RIGHT = {
    "surprise": [against_the_target, one_by_one, with_logaddexp, put_back],
    "shift": [place_by_place, padded, in_numpy],
    "deal": [border_in_the_middle, side_by_side, one_by_one_dealt],
    "evaluate": [all_at_once, weighted, each_answer, counted_pairs],
}
WRONG = {
    "surprise": {
        "naive": exp_as_it_is,
        "target_left": target_left,
        "via_softmax": minus_log_p,
        "sign": log_p,
    },
    "shift": {
        "sign": wrong_sign,
        "no_negative": no_negative,
        "last_missed": range_ends_early,
        "wraps": rolled,
        "zero_lost": minus_zero,
        "one_row": first_row,
        "best_fit": best_fit,
    },
    "deal": {
        "windows_dealt": windows_dealt,
        "starts_cut": starts_cut,
        "target_forgotten": target_forgotten,
        "from_zero": from_zero,
        "beyond": beyond,
    },
    "evaluate": {
        "mean_of_means": mean_of_means,
        "all_full": all_full,
        "all_ids": all_ids,
        "rest_dropped": rest_dropped,
        "border_lost": border_lost,
        "by_inputs": weighed_by_inputs,
    },
}
OUTSIDE = {
    "surprise": [
        with_an_epsilon,
        target_not_counted,
        clamped,
        farthest_from_zero,
        smallest_subtracted,
        mean_of_exps,
    ],
    "shift": [
        along_the_rows,
        begins_at_minus_two,
        minus_one_for_none,
        most_places,
    ],
    "deal": [windows_of_64, first_tenth, drawn_again, a_fifth],
    "evaluate": [last_batch, never_divided, last_answer_lost, by_batches],
}
