"""Answers to chapter 0, written from its page alone."""

# ruff: noqa: B905, N806

import math

import torch
from torch import nn

from tests.wild import right, wrong

# first_model/surprise


@right("first_model/surprise", "a plain Python loop over floats")
def surprise_in_plain_python(logits, target):
    z = [float(entry) for entry in logits]
    top = max(z)
    total = 0.0
    for entry in z:
        total += math.exp(entry - top)
    answer = math.log(total) + top - z[int(target)]
    return torch.tensor(answer, dtype=logits.dtype)


@right("first_model/surprise", "works with the gaps to the target's logit")
def surprise_by_gaps(logits, target):
    gaps = logits.double() - logits[target].double()
    widest = gaps.max()
    return (widest + (gaps - widest).exp().sum().log()).to(logits.dtype)


@wrong("first_model/surprise", "exp overflows at large logits", classic=True)
def surprise_without_shift(logits, target):
    return logits.exp().sum().log() - logits[target]


@wrong(
    "first_model/surprise",
    "the logarithm is taken of a probability that has underflowed to 0",
    classic=True,
)
def surprise_by_probability(logits, target):
    e = (logits - logits.max()).exp()
    p = e / e.sum()
    return -p[target].log()


@wrong("first_model/surprise", "in bits instead of nats", classic=True)
def surprise_in_bits(logits, target):
    top = logits.max()
    nats = (logits - top).exp().sum().log() + top - logits[target]
    return nats / math.log(2)


@wrong("first_model/surprise", "ln p without the minus sign", classic=True)
def surprise_negative(logits, target):
    shifted = logits - logits.max()
    return shifted[target] - shifted.exp().sum().log()


@wrong(
    "first_model/surprise",
    "the subtracted maximum is not added back to the logarithm",
    classic=True,
)
def surprise_maximum_lost(logits, target):
    top = logits.max()
    return (logits - top).exp().sum().log() - logits[target]


@wrong(
    "first_model/surprise",
    "large logits are cut off at plus and minus 80",
    classic=False,
)
def surprise_clamped(logits, target):
    z = logits.clamp(-80, 80)
    return z.exp().sum().log() - z[target]


# first_model/evaluate


@right("first_model/evaluate", "collects the loss of every character")
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


@right("first_model/evaluate", "a running mean that is moved by each batch")
@torch.no_grad()
def evaluate_running_mean(model, ids, batch):
    mean, seen = 0.0, 0
    questions, answers = ids[:-1].split(batch), ids[1:].split(batch)
    for x, y in zip(questions, answers):
        seen += len(y)
        loss = nn.functional.cross_entropy(model(x), y).item()
        mean += (loss - mean) * len(y) / seen
    return mean


@wrong(
    "first_model/evaluate",
    "weights with the inputs' length and divides by all characters, one "
    "more than there are answers",
    classic=True,
)
def evaluate_one_too_many(model, ids, batch):
    total = 0.0
    for start in range(0, len(ids) - 1, batch):
        x = ids[start : start + batch]
        y = ids[start + 1 : start + 1 + batch]
        with torch.no_grad():
            loss = nn.functional.cross_entropy(model(x[: len(y)]), y)
        total += loss.item() * len(x)
    return total / len(ids)


@wrong("first_model/evaluate", "drops the last, short batch", classic=True)
def evaluate_drops_the_rest(model, ids, batch):
    means = []
    for start in range(0, len(ids) - batch, batch):
        x = ids[start : start + batch]
        y = ids[start + 1 : start + 1 + batch]
        with torch.no_grad():
            loss = nn.functional.cross_entropy(model(x), y)
        means.append(loss.item())
    return sum(means) / len(means)


@wrong(
    "first_model/evaluate",
    "each batch, the short one too, counts as a full one",
    classic=True,
)
def evaluate_full_weight(model, ids, batch):
    total = 0.0
    for start in range(0, len(ids) - 1, batch):
        x = ids[start : start + batch]
        y = ids[start + 1 : start + 1 + batch]
        with torch.no_grad():
            loss = nn.functional.cross_entropy(model(x[: len(y)]), y)
        total += loss.item() * batch
    return total / (len(ids) - 1)


@wrong(
    "first_model/evaluate",
    "the question at each border between two batches is never asked",
    classic=True,
)
def evaluate_skips_borders(model, ids, batch):
    total, n = 0.0, 0
    for chunk in ids.split(batch):
        if len(chunk) < 2:
            continue
        x, y = chunk[:-1], chunk[1:]
        with torch.no_grad():
            loss = nn.functional.cross_entropy(model(x), y, reduction="sum")
        total += loss.item()
        n += len(y)
    return total / max(n, 1)


@wrong(
    "first_model/evaluate",
    "the sum of all losses, never divided by their number",
    classic=False,
)
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


# first_model/shift


@right("first_model/shift", "compares entry by entry in nested lists")
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


@right("first_model/shift", "picks the positions where both exist")
def shift_by_positions(inputs, targets):
    here = torch.arange(inputs.shape[1])
    for s in (1, 0, -1, 2, -2, 3, -3):
        t = here[(here + s >= 0) & (here + s < inputs.shape[1])]
        if len(t) and (targets[:, t] == inputs[:, t + s]).all():
            return s
    return None


@wrong("first_model/shift", "the sign of the shift is reversed", classic=True)
def shift_other_sign(inputs, targets):
    T = inputs.size(1)
    for s in range(-3, 4):
        a = inputs[:, max(s, 0) : T + min(s, 0)]
        b = targets[:, max(-s, 0) : T - max(s, 0)]
        if torch.equal(a, b):
            return -s
    return None


@wrong(
    "first_model/shift",
    "roll wraps around the end, so the wrapped tokens are compared too",
    classic=True,
)
def shift_rolled(inputs, targets):
    for s in range(-3, 4):
        if torch.equal(inputs.roll(-s, dims=1), targets):
            return s
    return None


@wrong(
    "first_model/shift",
    "the slices for s >= 0 are used for negative s as well, where they "
    "never match",
    classic=True,
)
def shift_only_forward_slices(inputs, targets):
    T = inputs.size(1)
    for s in range(-3, 4):
        if torch.equal(inputs[:, s:], targets[:, : T - s]):
            return s
    return None


@wrong("first_model/shift", "range stops before 3", classic=True)
def shift_never_three(inputs, targets):
    T = inputs.size(1)
    for s in range(-3, 3):
        a = inputs[:, max(s, 0) : T + min(s, 0)]
        b = targets[:, max(-s, 0) : T - max(s, 0)]
        if torch.equal(a, b):
            return s
    return None


@wrong(
    "first_model/shift",
    "returns the best match even if it isn't exact, so never None",
    classic=True,
)
def shift_best_match(inputs, targets):
    T = inputs.size(1)
    share = {}
    for s in range(-3, 4):
        a = inputs[:, max(s, 0) : T + min(s, 0)]
        b = targets[:, max(-s, 0) : T - max(s, 0)]
        share[s] = (a == b).float().mean().item()
    return max(share, key=share.get)


@wrong(
    "first_model/shift",
    "a shift of 0 is falsy and comes out as None",
    classic=False,
)
def shift_zero_is_none(inputs, targets):
    T, answer = inputs.size(1), None
    for s in range(-3, 4):
        a = inputs[:, max(s, 0) : T + min(s, 0)]
        b = targets[:, max(-s, 0) : T - max(s, 0)]
        if torch.equal(a, b):
            answer = s
    return answer or None


@wrong(
    "first_model/shift", "looks at the batch's first row only", classic=False
)
def shift_first_row(inputs, targets):
    x, y = inputs[0], targets[0]
    T = len(x)
    for s in range(-3, 4):
        a = x[max(s, 0) : T + min(s, 0)]
        b = y[max(-s, 0) : T - max(s, 0)]
        if torch.equal(a, b):
            return s
    return None


# first_model/deal


@right("first_model/deal", "two ranges, shuffled afterwards")
def deal_shuffled(n_text, length):
    border = n_text * 9 // 10
    training = torch.randperm(border - length)
    validation = border + torch.randperm(n_text - length - border)
    return training, validation


@right("first_model/deal", "decides for each window, in a loop")
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


@wrong(
    "first_model/deal",
    "splits the ordered starts, so the last training windows reach into "
    "the validation text",
    classic=True,
)
def deal_ordered_starts(n_text, length):
    starts = torch.arange(n_text - length)
    cut = int(0.9 * len(starts))
    return starts[:cut], starts[cut:]


@wrong(
    "first_model/deal",
    "forgets the last target: one training window ends on the first "
    "validation character",
    classic=True,
)
def deal_forgets_the_target(n_text, length):
    cut = n_text * 9 // 10
    return torch.arange(cut - length + 1), torch.arange(cut, n_text - length)


@wrong(
    "first_model/deal",
    "training windows may begin anywhere before the cut and run across it",
    classic=True,
)
def deal_by_start_only(n_text, length):
    cut = n_text * 9 // 10
    starts = torch.randperm(n_text - length)
    return starts[starts < cut], starts[starts >= cut]


@wrong(
    "first_model/deal",
    "validation windows run past the end of the text",
    classic=False,
)
def deal_past_the_end(n_text, length):
    cut = n_text * 9 // 10
    return torch.arange(cut - length), torch.arange(cut, n_text)
