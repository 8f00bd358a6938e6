"""Answers to the exercises of chapter 0."""

import math
from collections import Counter

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from coursekit.loss import cross_entropy
from tests.answers import right, wrong

# -- surprise ----------------------------------------------------------------


@right("first_model/surprise")
def surprise_in_plain_python(logits, target):
    z = [float(entry) for entry in logits]
    top = max(z)
    total = 0.0
    for entry in z:
        total += math.exp(entry - top)
    answer = math.log(total) + top - z[int(target)]
    return torch.tensor(answer, dtype=logits.dtype)


@right("first_model/surprise")
def surprise_by_gaps(logits, target):
    gaps = logits.double() - logits[target].double()
    widest = gaps.max()
    return (widest + (gaps - widest).exp().sum().log()).to(logits.dtype)


@right("first_model/surprise")
def surprise_in_plain_floats(logits, target):
    values = logits.tolist()
    above = [value - values[target] for value in values]
    top = max(above)
    return top + math.log(math.fsum(math.exp(a - top) for a in above))


@right("first_model/surprise")
def against_the_target(logits, target):
    # ln(1 + Σ e^(z_j − z_y)), with the overflow taken out by hand.
    gap = logits - logits[target]
    top = gap.max()
    return top + (gap - top).exp().sum().log()


@right("first_model/surprise")
def one_by_one(logits, target):
    total = -math.inf
    for z in logits.tolist():
        high, low = max(total, z), min(total, z)
        total = high + math.log1p(math.exp(low - high))
    return total - logits[target].item()


@right("first_model/surprise")
def with_logaddexp(logits, target):
    return np.logaddexp.reduce(logits.numpy()) - float(logits[target])


@right("first_model/surprise")
def put_back(logits, target):
    top = max(logits)
    return (
        top
        + torch.log(sum(torch.exp(z - top) for z in logits))
        - logits[target]
    )


@wrong("first_model/surprise", "naive")
def surprise_without_shift(logits, target):
    return logits.exp().sum().log() - logits[target]


@wrong("first_model/surprise", "via_softmax")
def surprise_by_probability(logits, target):
    e = (logits - logits.max()).exp()
    p = e / e.sum()
    return -p[target].log()


@wrong("first_model/surprise", "bits")
def surprise_in_bits(logits, target):
    top = logits.max()
    nats = (logits - top).exp().sum().log() + top - logits[target]
    return nats / math.log(2)


@wrong("first_model/surprise", "sign")
def surprise_negative(logits, target):
    shifted = logits - logits.max()
    return shifted[target] - shifted.exp().sum().log()


@wrong("first_model/surprise", "target_left")
def surprise_maximum_lost(logits, target):
    top = logits.max()
    return (logits - top).exp().sum().log() - logits[target]


@wrong("first_model/surprise")
def farthest_from_zero(logits, target):
    z = logits - logits.abs().max()
    return z.exp().sum().log() - z[target]


@wrong("first_model/surprise")
def smallest_subtracted(logits, target):
    z = logits - logits.min()
    return z.exp().sum().log() - z[target]


# A tiny number inside the log.
@wrong("first_model/surprise")
def surprise_with_an_epsilon(logits, target):
    e = (logits - logits.max()).exp()
    return -torch.log(e[target] / e.sum() + 1e-9)


# -- shift -------------------------------------------------------------------


@right("first_model/shift")
def shift_by_lists(inputs, targets):
    rows = list(zip(inputs.tolist(), targets.tolist()))

    def fits(s):
        compared = 0
        for given, wanted in rows:
            for t, token in enumerate(wanted):
                if 0 <= t + s < len(given):
                    compared += 1
                    if given[t + s] != token:
                        return False
        return compared > 0

    found = [s for s in range(-3, 4) if fits(s)]
    return found[0] if found else None


@right("first_model/shift")
def shift_by_positions(inputs, targets):
    here = torch.arange(inputs.shape[1])
    for s in (1, 0, -1, 2, -2, 3, -3):
        t = here[(here + s >= 0) & (here + s < inputs.shape[1])]
        if len(t) and (targets[:, t] == inputs[:, t + s]).all():
            return s
    return None


@right("first_model/shift")
def shift_cell_by_cell(inputs, targets):
    inputs, targets = inputs.tolist(), targets.tolist()
    for s in (0, 1, -1, 2, -2, 3, -3):
        agree = all(
            y[t] == x[t + s]
            for x, y in zip(inputs, targets, strict=True)
            for t in range(len(y))
            if 0 <= t + s < len(x)
        )
        if agree:
            return s
    return None


@right("first_model/shift")
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


@right("first_model/shift")
def padded(inputs, targets):
    # −1 stands where there is no input, and fits everything.
    wide = F.pad(inputs, (3, 3), value=-1)
    for s in (0, 1, -1, 2, -2, 3, -3):
        seen = wide[:, 3 + s : 3 + s + inputs.shape[1]]
        if ((seen == targets) | (seen == -1)).all():
            return s
    return None


@right("first_model/shift")
def in_numpy(inputs, targets):
    x, y = inputs.numpy(), targets.numpy()
    n = x.shape[1]
    fits = {s: (x[:, s:] == y[:, : n - s]).all() for s in range(4)}
    fits |= {-s: (y[:, s:] == x[:, : n - s]).all() for s in range(1, 4)}
    return next((s for s, fit in fits.items() if fit), None)


@wrong("first_model/shift", "sign")
def wrong_sign(inputs, targets):
    found = place_by_place(inputs, targets)
    return found if found is None else -found


@wrong("first_model/shift", "wraps")
def shift_rolled(inputs, targets):
    for s in range(-3, 4):
        if torch.equal(inputs.roll(-s, dims=1), targets):
            return s
    return None


@wrong("first_model/shift", "no_negative")
def shift_only_forward_slices(inputs, targets):
    T = inputs.size(1)
    for s in range(-3, 4):
        if torch.equal(inputs[:, s:], targets[:, : T - s]):
            return s
    return None


@wrong("first_model/shift", "last_missed")
def shift_never_three(inputs, targets):
    T = inputs.size(1)
    for s in range(-3, 3):
        a = inputs[:, max(s, 0) : T + min(s, 0)]
        b = targets[:, max(-s, 0) : T - max(s, 0)]
        if torch.equal(a, b):
            return s
    return None


@wrong("first_model/shift", "best_fit")
def shift_best_match(inputs, targets):
    T = inputs.size(1)
    share = {}
    for s in range(-3, 4):
        a = inputs[:, max(s, 0) : T + min(s, 0)]
        b = targets[:, max(-s, 0) : T - max(s, 0)]
        share[s] = (a == b).float().mean().item()
    return max(share, key=share.get)


@wrong("first_model/shift", "zero_lost")
def shift_zero_is_none(inputs, targets):
    T, answer = inputs.size(1), None
    for s in range(-3, 4):
        a = inputs[:, max(s, 0) : T + min(s, 0)]
        b = targets[:, max(-s, 0) : T - max(s, 0)]
        if torch.equal(a, b):
            answer = s
    return answer or None


@wrong("first_model/shift", "one_row")
def shift_first_row(inputs, targets):
    x, y = inputs[0], targets[0]
    T = len(x)
    for s in range(-3, 4):
        a = x[max(s, 0) : T + min(s, 0)]
        b = y[max(-s, 0) : T - max(s, 0)]
        if torch.equal(a, b):
            return s
    return None


@wrong("first_model/shift")
def begins_at_minus_two(inputs, targets):
    found = place_by_place(inputs, targets)
    return None if found == -3 else found


@wrong("first_model/shift")
def most_places(inputs, targets):
    n = inputs.shape[1]
    for s in range(-3, 4):
        a = inputs[:, max(0, s) : n + min(0, s)]
        b = targets[:, max(0, -s) : n - max(0, s)]
        if (a == b).float().mean() > 0.8:
            return s
    return None


@wrong("first_model/shift")
def minus_one_for_none(inputs, targets):
    found = place_by_place(inputs, targets)
    return -1 if found is None else found


@wrong("first_model/shift")
def along_the_rows(inputs, targets):
    n = inputs.shape[0]
    for s in range(-3, 4):
        a, b = (inputs[s:], targets) if s >= 0 else (inputs, targets[-s:])
        if torch.equal(a[: n - abs(s)], b[: n - abs(s)]):
            return s
    return None


# -- deal --------------------------------------------------------------------


@right("first_model/deal")
def deal_shuffled(n_text, length):
    border = n_text * 9 // 10
    training = torch.randperm(border - length)
    validation = border + torch.randperm(n_text - length - border)
    return training, validation


@right("first_model/deal")
def deal_window_by_window(n_text, length):
    border = n_text * 9 // 10
    training, validation = [], []
    for start in range(n_text - length):
        last = start + length  # the last target
        if last < border:
            training.append(start)
        elif start >= border:
            validation.append(start)
    return torch.tensor(training), torch.tensor(validation)


@right("first_model/deal")
def border_in_the_middle(n_text, length):
    held_out = n_text // 10
    border = n_text - held_out
    training = torch.arange(0, border - length)
    validation = torch.arange(border, n_text - length)
    return training, validation


@right("first_model/deal")
def side_by_side(n_text, length):
    # Windows that don't overlap: fewer, and each character once.
    border = math.ceil(0.9 * n_text)
    learned = np.arange(0, border - length, length)
    held_out = np.arange(border, n_text - length, length)
    np.random.shuffle(learned)
    return torch.from_numpy(learned), torch.from_numpy(held_out)


@right("first_model/deal")
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


@wrong("first_model/deal", "starts_cut")
def deal_starts_before_the_cut(n_text, length):
    cut = int(0.9 * n_text)
    return torch.arange(cut), torch.arange(cut, n_text - length)


@wrong("first_model/deal", "target_forgotten")
def deal_forgets_the_target(n_text, length):
    cut = n_text * 9 // 10
    return torch.arange(cut - length + 1), torch.arange(cut, n_text - length)


@wrong("first_model/deal", "windows_dealt")
def windows_dealt(n_text, length):
    starts = torch.arange(n_text - length)[torch.randperm(n_text - length)]
    n = len(starts) * 9 // 10
    return starts[:n], starts[n:]


@wrong("first_model/deal", "from_zero")
def from_zero(n_text, length):
    border = int(0.9 * n_text)
    return (
        torch.randperm(border - length),
        torch.randperm(n_text - border - length),
    )


@wrong("first_model/deal", "beyond")
def beyond(n_text, length):
    border = int(0.9 * n_text)
    return (
        torch.arange(0, border - length),
        torch.arange(border, n_text - length + 1),
    )


@wrong("first_model/deal")
def windows_of_64(n_text, length):
    border = int(0.9 * n_text)
    return (
        torch.randperm(border - 64),
        border + torch.randperm(n_text - border - 64),
    )


# Validation windows run past the end of the text.
@wrong("first_model/deal")
def deal_past_the_end(n_text, length):
    cut = n_text * 9 // 10
    return torch.arange(cut - length), torch.arange(cut, n_text)


@wrong("first_model/deal")
def drawn_again(n_text, length):
    border = int(0.9 * n_text)
    return (
        torch.randint(0, border - length, (border,)),
        torch.randint(border, n_text - length, (n_text - border,)),
    )


# -- evaluate ----------------------------------------------------------------


@right("first_model/evaluate")
def evaluate_each_character(model, ids, batch):
    losses = []
    start = 0
    while start < len(ids) - 1:
        stop = min(start + batch, len(ids) - 1)
        with torch.no_grad():
            log_p = model(ids[start:stop]).log_softmax(-1)
        for row, answer in zip(log_p, ids[start + 1 : stop + 1].tolist()):
            losses.append(-row[answer].item())
        start = stop
    return math.fsum(losses) / len(losses)


@right("first_model/evaluate")
@torch.no_grad()
def evaluate_running_mean(model, ids, batch):
    mean, seen = 0.0, 0
    questions, answers = ids[:-1].split(batch), ids[1:].split(batch)
    for x, y in zip(questions, answers):
        seen += len(y)
        loss = nn.functional.cross_entropy(model(x), y).item()
        mean += (loss - mean) * len(y) / seen
    return mean


@right("first_model/evaluate")
def evaluate_by_split(model, ids, batch):
    total = 0.0
    pairs = zip(ids[:-1].split(batch), ids[1:].split(batch), strict=True)
    with torch.no_grad():
        for x, y in pairs:
            total += F.cross_entropy(model(x), y).item() * len(y)
    return total / (len(ids) - 1)


@right("first_model/evaluate")
def all_at_once(model, ids, batch):
    with torch.no_grad():
        return F.cross_entropy(model(ids[:-1]), ids[1:]).item()


@right("first_model/evaluate")
def weighted(model, ids, batch):
    # Means, weighted by how many answers they are means of.
    mean, n = 0.0, 0
    for x, y in zip(ids[:-1].split(batch), ids[1:].split(batch), strict=True):
        n += len(y)
        mean += (cross_entropy(model(x), y).item() - mean) * len(y) / n
    return mean


@right("first_model/evaluate")
def each_answer(model, ids, batch):
    nats = [
        cross_entropy(model(part[:-1]), part[1:], reduction="none")
        for part in (ids[i : i + batch + 1] for i in range(0, len(ids), batch))
        if len(part) > 1
    ]
    return torch.cat(nats).mean()


@right("first_model/evaluate")
def counted_pairs(model, ids, batch):
    pairs = Counter(zip(ids[:-1].tolist(), ids[1:].tolist(), strict=True))
    total = sum(
        n * cross_entropy(model(torch.tensor([x])), torch.tensor([y])).item()
        for (x, y), n in pairs.items()
    )
    return total / (len(ids) - 1)


@wrong("first_model/evaluate", "by_inputs")
def evaluate_one_too_many(model, ids, batch):
    total = 0.0
    for start in range(0, len(ids) - 1, batch):
        x = ids[start : start + batch]
        y = ids[start + 1 : start + 1 + batch]
        with torch.no_grad():
            loss = nn.functional.cross_entropy(model(x[: len(y)]), y)
        total += loss.item() * len(x)
    return total / len(ids)


@wrong("first_model/evaluate", "rest_dropped")
def evaluate_drops_the_last(model, ids, batch):
    losses = []
    for start in range(0, len(ids) - batch, batch):
        x = ids[start : start + batch]
        y = ids[start + 1 : start + 1 + batch]
        with torch.no_grad():
            losses.append(F.cross_entropy(model(x), y).item())
    return sum(losses) / len(losses)


@wrong("first_model/evaluate", "all_full")
def evaluate_full_weight(model, ids, batch):
    total = 0.0
    for start in range(0, len(ids) - 1, batch):
        x = ids[start : start + batch]
        y = ids[start + 1 : start + 1 + batch]
        with torch.no_grad():
            loss = nn.functional.cross_entropy(model(x[: len(y)]), y)
        total += loss.item() * batch
    return total / (len(ids) - 1)


@wrong("first_model/evaluate", "border_lost")
def border_lost(model, ids, batch):
    total, n = 0.0, 0
    for part in ids.split(batch):
        if len(part) > 1:
            x, y = part[:-1], part[1:]
            total += F.cross_entropy(model(x), y, reduction="sum").item()
            n += len(y)
    return total / n


@wrong("first_model/evaluate", "all_ids")
def all_ids(model, ids, batch):
    total = 0.0
    for x, y in zip(ids[:-1].split(batch), ids[1:].split(batch), strict=True):
        total += F.cross_entropy(model(x), y, reduction="sum").item()
    return total / len(ids)


@wrong("first_model/evaluate", "mean_of_means")
def mean_of_means(model, ids, batch):
    means = []
    for start in range(0, len(ids) - 1, batch):
        x = ids[start : start + batch]
        y = ids[start + 1 : start + 1 + batch]
        with torch.no_grad():
            means.append(cross_entropy(model(x[: len(y)]), y).item())
    return sum(means) / len(means)


@wrong("first_model/evaluate")
def last_answer_lost(model, ids, batch):
    total, n = 0.0, 0
    for start in range(0, len(ids) - 2, batch):
        y = ids[start + 1 : start + 1 + batch]
        x = ids[start : start + len(y)]
        total += F.cross_entropy(model(x), y, reduction="sum").item()
        n += len(y)
    return total / n


# The sum of all losses, never divided by their number.
@wrong("first_model/evaluate")
def evaluate_sum(model, ids, batch):
    total = 0.0
    for start in range(0, len(ids) - 1, batch):
        y = ids[start + 1 : start + 1 + batch]
        x = ids[start : start + len(y)]
        with torch.no_grad():
            total += nn.functional.cross_entropy(
                model(x), y, reduction="sum"
            ).item()
    return total


@wrong("first_model/evaluate")
def never_divided(model, ids, batch):
    return F.cross_entropy(model(ids[:-1]), ids[1:], reduction="sum").item()
