"""Answers to the exercises of chapter 21."""

import math

import numpy as np
import torch

from tests.answers import right, wrong

# -- rounded -----------------------------------------------------------------


@right("inference/rounded")
def number_by_number(weights, bits, group_size):
    top = 2 ** (bits - 1) - 1
    whole = torch.zeros(weights.shape, dtype=torch.int64)
    steps = weights.new_zeros(len(weights), weights.size(1) // group_size)
    for i, row in enumerate(weights):
        for g, group in enumerate(row.split(group_size)):
            steps[i, g] = max(abs(w) for w in group) / top
            for j, w in enumerate(group):
                n = round((w / steps[i, g]).item())
                whole[i, g * group_size + j] = n
    return whole, steps


@right("inference/rounded")
def unfolded_groups(weights, bits, group_size):
    groups = weights.unfold(1, group_size, group_size)
    low, high = groups.aminmax(dim=-1)
    steps = torch.maximum(-low, high) / ((1 << bits - 1) - 1)
    each = steps.repeat_interleave(group_size, dim=1)
    return torch.round(weights / each).to(torch.int32), steps


@right("inference/rounded")
def norms_without_end(weights, bits, group_size):
    groups = weights.reshape(-1, group_size)
    steps = groups.norm(p=float("inf"), dim=1) / (2 ** (bits - 1) - 1)
    whole = (groups / steps.unsqueeze(1)).round()
    return whole.reshape_as(weights), steps.reshape(len(weights), -1)


@right("inference/rounded")
def numpy_groups(weights, bits, group_size):
    w = weights.detach().numpy()
    whole, steps = [], []
    for begin in range(0, w.shape[1], group_size):
        part = w[:, begin : begin + group_size]
        step = np.abs(part).max(axis=1) / (2 ** (bits - 1) - 1)
        whole.append(np.rint(part / step[:, None]).astype(np.int16))
        steps.append(step)
    return (
        torch.from_numpy(np.concatenate(whole, axis=1)),
        torch.from_numpy(np.stack(steps, axis=1)),
    )


@right("inference/rounded")
def with_loops(weights, bits, group_size):
    whole, steps = torch.zeros_like(weights), []
    for i, row in enumerate(weights):
        steps.append([])
        for start in range(0, len(row), group_size):
            group = row[start : start + group_size]
            step = max(abs(x) for x in group.tolist()) / (2 ** (bits - 1) - 1)
            steps[-1].append(step)
            whole[i, start : start + group_size] = torch.round(group / step)
    return whole, torch.tensor(steps, dtype=weights.dtype)


@right("inference/rounded")
def with_numpy(weights, bits, group_size):
    w = weights.numpy().reshape(len(weights), -1, group_size)
    s = np.abs(w).max(-1) / (2 ** (bits - 1) - 1)
    n = np.rint(w / s[..., None]).reshape(weights.shape)
    return torch.from_numpy(n), torch.from_numpy(s)


@right("inference/rounded")
def with_unfold(weights, bits, group_size):
    parts = weights.unfold(1, group_size, group_size)
    low, high = parts.aminmax(dim=-1)
    steps = torch.maximum(-low, high) / (2 ** (bits - 1) - 1)
    each = steps.repeat_interleave(group_size, 1)
    return (weights / each).round().to(torch.int8), steps


@wrong("inference/rounded", "row")
def step_of_the_row(weights, bits, group_size):
    steps = weights.abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
    whole = (weights / steps).round().to(torch.int8)
    return whole, steps.repeat(1, weights.size(1) // group_size)


@wrong("inference/rounded", "signed")
def without_abs(weights, bits, group_size):
    groups = weights.reshape(len(weights), -1, group_size)
    steps = groups.amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)
    whole = (groups / steps).round().to(torch.int64)
    return whole.flatten(1), steps.squeeze(-1)


@wrong("inference/rounded", "one_more")
def one_level_more(weights, bits, group_size):
    groups = weights.reshape(len(weights), -1, group_size)
    steps = groups.abs().amax(-1, keepdim=True) / 2 ** (bits - 1)
    whole = (groups / steps).round().to(torch.int64)
    return whole.flatten(1), steps.squeeze(-1)


@wrong("inference/rounded", "no_sign")
def no_bit_for_sign(weights, bits, group_size):
    groups = weights.reshape(len(weights), -1, group_size)
    steps = groups.abs().amax(-1, keepdim=True) / (2**bits - 1)
    whole = (groups / steps).round().to(torch.int64)
    return whole.flatten(1), steps.squeeze(-1)


@wrong("inference/rounded", "cut_off")
def cut_off(weights, bits, group_size):
    groups = weights.reshape(len(weights), -1, group_size)
    steps = groups.abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)
    whole = (groups / steps).to(torch.int8)
    return whole.flatten(1), steps.squeeze(-1)


@wrong("inference/rounded", "restored_again")
def multiplied_again(weights, bits, group_size):
    groups = weights.reshape(len(weights), -1, group_size)
    steps = groups.abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)
    whole = (groups / steps).round() * steps
    return whole.flatten(1), steps.squeeze(-1)


@wrong("inference/rounded", "keeps_axis")
def steps_keep_axis(weights, bits, group_size):
    groups = weights.reshape(len(weights), -1, group_size)
    steps = groups.abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)
    return (groups / steps).round().to(torch.int8).flatten(1), steps


@wrong("inference/rounded", "down_the_columns")
def down_the_columns(weights, bits, group_size):
    n, k = weights.shape
    flat = torch.cat(list(weights.unbind(1)))
    whole, steps = with_numpy(flat.view(-1, group_size), bits, group_size)
    return whole.view(n, k), steps.view(n, k // group_size)


def by_step(weights, steps, group_size, turn=torch.round):
    return turn(weights / steps.repeat_interleave(group_size, 1)), steps


@wrong("inference/rounded", "matrix")
def matrix(weights, bits, group_size):
    top = weights.abs().max() / (2 ** (bits - 1) - 1)
    steps = top.expand(len(weights), weights.size(1) // group_size)
    return by_step(weights, steps, group_size)


# Whole numbers are left in groups, (N, G, group_size).
@wrong("inference/rounded")
def left_in_groups(weights, bits, group_size):
    groups = weights.reshape(len(weights), -1, group_size)
    steps = groups.abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)
    return (groups / steps).round().to(torch.int8), steps.squeeze(-1)


# The step spans from the least to the greatest, around no 0.
@wrong("inference/rounded")
def from_least_to_greatest(weights, bits, group_size):
    groups = weights.reshape(len(weights), -1, group_size)
    low, high = groups.aminmax(dim=-1, keepdim=True)
    steps = (high - low) / (2**bits - 1)
    whole = ((groups - low) / steps).round().to(torch.int64)
    return whole.flatten(1), steps.squeeze(-1)


@wrong("inference/rounded")
def by_the_mean(weights, bits, group_size):
    top = weights.abs().unfold(1, group_size, group_size).mean(-1)
    return by_step(weights, top / (2 ** (bits - 1) - 1), group_size)


# -- restored ----------------------------------------------------------------


@right("inference/restored")
def every_other_column(packed, steps):
    n_rows, half = packed.shape
    out = steps.new_empty(n_rows, 2 * half)
    out[:, 0::2] = (packed & 0b1111).to(steps.dtype) - 8
    out[:, 1::2] = (packed >> 4).to(steps.dtype) - 8
    out.view(n_rows, steps.size(1), -1).mul_(steps[:, :, None])
    return out


@right("inference/restored")
def table_of_bytes(packed, steps):
    pairs = [(byte % 16 - 8, byte // 16 - 8) for byte in range(256)]
    table = torch.tensor(pairs, dtype=steps.dtype)
    whole = table[packed.long()].flatten(1)
    each = torch.arange(whole.size(1)) * steps.size(1) // whole.size(1)
    return whole * steps[:, each]


@right("inference/restored")
def divmod_lists(packed, steps):
    rows = []
    for row, of_row in zip(packed.tolist(), steps, strict=True):
        numbers = []
        for byte in row:
            second, first = divmod(byte, 16)
            numbers += [first - 8, second - 8]
        groups = torch.tensor(numbers, dtype=steps.dtype).chunk(len(of_row))
        rows.append(torch.cat([n * s for n, s in zip(groups, of_row)]))
    return torch.stack(rows)


@right("inference/restored")
def shifts_broadcast(packed, steps):
    shifts = torch.tensor([0, 4])
    whole = (packed.to(torch.int32)[..., None] >> shifts) & 15
    whole = (whole - 8).reshape(*steps.shape, -1)
    return torch.einsum("ngk,ng->ngk", whole.to(steps.dtype), steps).reshape(
        len(packed), -1
    )


@right("inference/restored")
def byte_by_byte(packed, steps):
    rows = []
    for bytes_, scale in zip(packed.tolist(), steps, strict=True):
        numbers = [n - 8 for b in bytes_ for n in (b & 15, b >> 4)]
        size = len(numbers) // len(scale)
        rows.append(
            torch.stack([scale[i // size] * n for i, n in enumerate(numbers)])
        )
    return torch.stack(rows)


@right("inference/restored")
def filled_in(packed, steps):
    whole = torch.empty(len(packed), 2 * packed.size(1), dtype=steps.dtype)
    packed = packed.int()
    whole[:, 0::2] = packed.remainder(16) - 8
    whole[:, 1::2] = packed.div(16, rounding_mode="floor") - 8
    parts = whole.unflatten(1, (steps.size(1), -1)) * steps.unsqueeze(-1)
    return parts.flatten(1)


@right("inference/restored")
def by_shifts(packed, steps):
    shifts = torch.tensor([0, 4])
    whole = (packed[..., None] >> shifts & 15).flatten(1) - 8
    size = whole.size(1) // steps.size(1)
    return whole * steps[:, torch.arange(whole.size(1)) // size]


def _times_steps(whole, steps):
    size = whole.size(1) // steps.size(1)
    return whole * steps.repeat_interleave(size, 1)


@wrong("inference/restored", "upper_first")
def upper_first(packed, steps):
    packed = packed.int()
    both = torch.stack([packed // 16, packed % 16], -1) - 8
    return _times_steps(both.flatten(1), steps)


@wrong("inference/restored", "halves")
def halves_apart(packed, steps):
    packed = packed.int()
    both = torch.cat([packed % 16, packed // 16], 1) - 8
    return _times_steps(both, steps)


@wrong("inference/restored", "not_shifted")
def eight_left_in(packed, steps):
    packed = packed.int()
    both = torch.stack([packed % 16, packed // 16], -1)
    return _times_steps(both.flatten(1), steps)


@wrong("inference/restored", "two_complement")
def twos_complement(packed, steps):
    packed = packed.int()
    both = torch.stack([packed % 16, packed // 16], -1).flatten(1)
    return _times_steps(torch.where(both > 7, both - 16, both), steps)


@wrong("inference/restored", "seven")
def seven_subtracted(packed, steps):
    packed = packed.int()
    both = torch.stack([packed % 16, packed // 16], -1) - 7
    return _times_steps(both.flatten(1), steps)


@wrong("inference/restored", "taking_turns")
def steps_take_turns(packed, steps):
    packed = packed.int()
    both = torch.stack([packed % 16, packed // 16], -1).flatten(1) - 8
    return both * steps.repeat(1, both.size(1) // steps.size(1))


@wrong("inference/restored", "true_division")
def true_division(packed, steps):
    packed = packed.int()
    both = torch.stack([packed % 16, packed / 16], -1) - 8
    return _times_steps(both.flatten(1), steps)


# The subtraction takes place in bytes and wraps around below 0.
@wrong("inference/restored")
def wraps_around(packed, steps):
    both = torch.stack([packed % 16, packed // 16], -1) - 8
    return _times_steps(both.flatten(1), steps)


# A row's first step for all of its groups.
@wrong("inference/restored")
def first_step_for_all(packed, steps):
    packed = packed.int()
    both = torch.stack([packed % 16, packed // 16], -1).flatten(1) - 8
    return both * steps[:, :1]


def numbers(packed, low=True):
    packed = packed.long()
    two = [packed & 15, packed >> 4]
    if not low:
        two.reverse()
    return torch.stack(two, -1).flatten(-2)


@wrong("inference/restored")
def whole_numbers(packed, steps):
    return (numbers(packed) - 8).to(steps.dtype)


# -- verified ----------------------------------------------------------------


@right("inference/verified")
def recursive_verified(drafted, p, q, uniform):
    if len(drafted) == 0:
        return 0, p[0]
    x = drafted[0]
    if uniform[0] < p[0, x] / q[0, x]:
        kept, following = recursive_verified(
            drafted[1:], p[1:], q[1:], uniform[1:]
        )
        return kept + 1, following
    missing = torch.relu(p[0] - q[0])
    return 0, missing / missing.sum()


@right("inference/verified")
def row_of_zeros(drafted, p, q, uniform):
    n = len(drafted)
    at = torch.as_tensor(drafted)[:, None]
    ratio = p[:n].gather(1, at) / q.gather(1, at)
    accepted = torch.as_tensor(uniform) < ratio[:, 0]
    kept = int(accepted.long().cumprod(0).sum())
    q = torch.cat([q, torch.zeros_like(p[:1])])
    missing = (p[kept] - q[kept]).clamp(min=0)
    return kept, missing / missing.sum()


@right("inference/verified")
def loop_with_else(drafted, p, q, uniform):
    kept = 0
    for x, chance, theirs, ours in zip(drafted, uniform, q, p):
        if chance >= ours[x] / theirs[x]:
            break
        kept += 1
    else:
        return kept, p[-1]
    missing = p[kept] - torch.minimum(p[kept], q[kept])
    return kept, missing / missing.sum()


def missing(p, q):
    left = torch.relu(p - q)
    return left / left.sum()


@right("inference/verified")
def one_by_one(drafted, p, q, uniform):
    n = 0
    u = uniform.tolist()
    while n < len(drafted) and u[n] * q[n, drafted[n]] < p[n, drafted[n]]:
        n += 1
    return n, p[n] if n == len(drafted) else missing(p[n], q[n])


@right("inference/verified")
def all_at_once(drafted, p, q, uniform):
    rows, ids = torch.arange(len(drafted)), torch.tensor(drafted)
    keep = uniform < p[rows, ids] / q[rows, ids]
    n = int(keep.long().cumprod(0).sum())
    padded = torch.cat([q, torch.zeros_like(q[:1])])
    return n, missing(p[n], padded[n])


@right("inference/verified")
def from_the_back(drafted, p, q, uniform):
    result = len(drafted), p[-1]
    for n in reversed(range(len(drafted))):
        if uniform[n] >= p[n, drafted[n]] / q[n, drafted[n]]:
            result = n, missing(p[n], q[n])
    return result


def _verified(drafted, p, q, uniform, *, rejected, at_end=lambda p, q: p[-1]):
    for n, x in enumerate(drafted):
        if uniform[n] >= p[n, x] / q[n, x]:
            return n, rejected(p[n], q[n])
    return len(drafted), at_end(p, q)


@wrong("inference/verified", "from_p")
def drawn_from_p(drafted, p, q, uniform):
    return _verified(drafted, p, q, uniform, rejected=lambda p, q: p)


@wrong("inference/verified", "not_divided")
def sums_to_less(drafted, p, q, uniform):
    return _verified(
        drafted, p, q, uniform, rejected=lambda p, q: (p - q).clamp(min=0)
    )


@wrong("inference/verified", "absolute")
def absolute_difference(drafted, p, q, uniform):
    def rejected(p, q):
        return (p - q).abs() / (p - q).abs().sum()

    return _verified(drafted, p, q, uniform, rejected=rejected)


@wrong("inference/verified", "turned")
def comes_too_often(drafted, p, q, uniform):
    def rejected(p, q):
        return (q - p).relu() / (q - p).relu().sum()

    return _verified(drafted, p, q, uniform, rejected=rejected)


def walked(drafted, p, q, uniform, accept=None, left=missing, last=-1):
    for n, token in enumerate(drafted):
        u, a, b = (x.item() for x in (uniform[n], p[n, token], q[n, token]))
        if not (u < a / b if accept is None else accept(u, a, b)):
            return n, left(p[n], q[n])
    return len(drafted), p[last]


@wrong("inference/verified", "row_before")
def row_before(drafted, p, q, uniform):
    return walked(drafted, p, q, uniform, last=-2)


@wrong("inference/verified", "counts_rejected")
def counts_rejected(drafted, p, q, uniform):
    n, following = one_by_one(drafted, p, q, uniform)
    return min(n + 1, len(drafted)), following


@wrong("inference/verified", "ratio_turned")
def ratio_turned(drafted, p, q, uniform):
    return walked(drafted, p, q, uniform, lambda u, a, b: u < b / a)


@wrong("inference/verified", "p_alone")
def p_alone(drafted, p, q, uniform):
    return walked(drafted, p, q, uniform, lambda u, a, b: u < a)


@wrong("inference/verified", "likely_enough")
def likely_enough(drafted, p, q, uniform):
    return walked(drafted, p, q, uniform, lambda u, a, b: a >= b)


@wrong("inference/verified")
def softmax_of_missing(drafted, p, q, uniform):
    return _verified(
        drafted,
        p,
        q,
        uniform,
        rejected=lambda p, q: (p - q).clamp(min=0).softmax(-1),
    )


# All accepted tokens are counted, also behind a rejection.
@wrong("inference/verified")
def counted_behind_rejection(drafted, p, q, uniform):
    n = len(drafted)
    at = torch.as_tensor(drafted)[:, None]
    ratio = p[:n].gather(1, at) / q.gather(1, at)
    kept = int((torch.as_tensor(uniform) < ratio[:, 0]).sum())
    if kept == n:
        return kept, p[n]
    missing = (p[kept] - q[kept]).clamp(min=0)
    return kept, missing / missing.sum()


@wrong("inference/verified")
def rejected_above(drafted, p, q, uniform):
    return walked(drafted, p, q, uniform, lambda u, a, b: u >= min(a / b, 1))


# -- gain --------------------------------------------------------------------


@right("inference/gain")
def distance_and_horner(p, q, n_draft, cost):
    rate = 1 - (p - q).abs().sum() / (2 * len(p))
    tokens = 1
    for _ in range(n_draft):
        tokens = 1 + rate * tokens
    return rate, tokens, tokens / (1 + cost * n_draft)


@right("inference/gain")
def vector_of_powers(p, q, n_draft, cost):
    rate = torch.where(p < q, p, q).sum(-1).mean().item()
    powers = torch.full((n_draft + 1,), rate, dtype=torch.float64)
    powers[0] = 1
    tokens = powers.cumprod(0).sum().item()
    return rate, tokens, tokens / (n_draft * cost + 1)


@right("inference/gain")
def fraction_unless_agreeing(p, q, n_draft, cost):
    rates = []
    for ours, theirs in zip(p.tolist(), q.tolist(), strict=True):
        rates.append(sum(min(pair) for pair in zip(ours, theirs)))
    rate = sum(rates) / len(rates)
    if abs(1 - rate) < 1e-9:
        tokens = float(n_draft + 1)
    else:
        tokens = (1 - rate ** (n_draft + 1)) / (1 - rate)
    return rate, tokens, tokens / (n_draft * cost + 1)


@right("inference/gain")
def by_differences(p, q, n_draft, cost):
    # Σ min(p, q) = 1 − Σ |p − q| / 2
    alpha = 1 - float((p - q).abs().sum(1).mean()) / 2
    if math.isclose(alpha, 1):
        tokens = n_draft + 1
    else:
        tokens = (1 - alpha ** (n_draft + 1)) / (1 - alpha)
    return alpha, float(tokens), tokens / (1 + cost * n_draft)


@right("inference/gain")
def by_horner(p, q, n_draft, cost):
    alpha = torch.where(p < q, p, q).sum().item() / len(p)
    tokens = 1.0
    for _ in range(n_draft):
        tokens = 1 + alpha * tokens
    return alpha, tokens, tokens / (n_draft * cost + 1)


@right("inference/gain")
def by_counts(p, q, n_draft, cost):
    alpha = float(np.minimum(p.numpy(), q.numpy()).sum(-1).mean())
    chances = [alpha**n * (1 - alpha) for n in range(n_draft)]
    chances.append(alpha**n_draft)
    tokens = sum((n + 1) * c for n, c in enumerate(chances))
    return alpha, tokens, tokens / (1 + n_draft * cost)


@wrong("inference/gain", "undefined")
def zero_by_zero(p, q, n_draft, cost):
    rate = torch.minimum(p, q).sum(-1).mean()
    tokens = (1 - rate ** (n_draft + 1)) / (1 - rate)
    return rate, tokens, tokens / (n_draft * cost + 1)


def _gain(rate, n_draft, cost):
    tokens = sum(rate**i for i in range(n_draft + 1))
    return rate, tokens, tokens / (n_draft * cost + 1)


@wrong("inference/gain", "over_all")
def mean_over_vocabulary(p, q, n_draft, cost):
    return _gain(torch.minimum(p, q).mean(), n_draft, cost)


@wrong("inference/gain", "unweighted")
def each_token_alike(p, q, n_draft, cost):
    return _gain((p / q).clamp(max=1).mean(), n_draft, cost)


@wrong("inference/gain", "product")
def same_draws(p, q, n_draft, cost):
    return _gain((p * q).sum(-1).mean(), n_draft, cost)


@wrong("inference/gain", "largest")
def same_likeliest(p, q, n_draft, cost):
    same = p.argmax(-1) == q.argmax(-1)
    return _gain(same.to(p.dtype).mean(), n_draft, cost)


@wrong("inference/gain", "power")
def one_power_too_few(p, q, n_draft, cost):
    rate = torch.minimum(p, q).sum(-1).mean()
    tokens = sum(rate**i for i in range(n_draft))
    return rate, tokens, tokens / (n_draft * cost + 1)


@wrong("inference/gain", "no_stop")
def as_if_all_counted(p, q, n_draft, cost):
    rate = torch.minimum(p, q).sum(-1).mean()
    tokens = 1 + n_draft * rate
    return rate, tokens, tokens / (n_draft * cost + 1)


@wrong("inference/gain", "free_target")
def run_for_nothing(p, q, n_draft, cost):
    rate, tokens, _ = _gain(torch.minimum(p, q).sum(-1).mean(), n_draft, cost)
    return rate, tokens, tokens / (n_draft * cost)


@wrong("inference/gain", "one_draft")
def draft_runs_once(p, q, n_draft, cost):
    rate, tokens, _ = _gain(torch.minimum(p, q).sum(-1).mean(), n_draft, cost)
    return rate, tokens, tokens / (cost + 1)


def overlap(p, q):
    return float(1 - (p - q).relu().sum(-1).mean())


def summary_of(alpha, tokens, n_draft, cost):
    return alpha, float(tokens), float(tokens / (1 + n_draft * cost))


def geometric(alpha, n):
    return sum(alpha**i for i in range(n))


@wrong("inference/gain", "accepted_alone")
def accepted_alone(p, q, n_draft, cost):
    alpha = overlap(p, q)
    return summary_of(alpha, geometric(alpha, n_draft + 1) - 1, n_draft, cost)


@wrong("inference/gain")
def sum_over_positions(p, q, n_draft, cost):
    return _gain(torch.minimum(p, q).sum(), n_draft, cost)


@wrong("inference/gain")
def of_maxima(p, q, n_draft, cost):
    alpha = float(torch.maximum(p, q).sum(-1).mean()) - 1
    return summary_of(alpha, geometric(alpha, n_draft + 1), n_draft, cost)


@wrong("inference/gain")
def slowed(p, q, n_draft, cost):
    alpha, tokens, faster = by_horner(p, q, n_draft, cost)
    return alpha, tokens, 1 / faster


# -- checked -----------------------------------------------------------------


@right("inference/checked")
def recursive_rounds(target, draft, ids, n_new, n_draft):
    if n_new <= 0:
        return ids, 0
    longer = ids
    for _ in range(n_draft):
        longer = torch.cat([longer, draft(longer)[-1].argmax()[None]])
    own = target(longer)[len(ids) - 1 :].argmax(-1)
    same = own[:n_draft] == longer[len(ids) :]
    new = own[: 1 + int(same.long().cumprod(0).sum())][:n_new]
    text, runs = recursive_rounds(
        target, draft, torch.cat([ids, new]), n_new - len(new), n_draft
    )
    return text, runs + 1


@right("inference/checked")
def no_longer_than_needed(target, draft, ids, n_new, n_draft):
    def likeliest(model, tokens):
        seen = torch.tensor(tokens, dtype=ids.dtype)
        return model(seen).argmax(-1).tolist()

    text, runs = ids.tolist(), 0
    goal = len(text) + n_new
    while len(text) < goal:
        drafted = []
        while len(drafted) < min(n_draft, goal - len(text) - 1):
            drafted.append(likeliest(draft, text + drafted)[-1])
        own = likeliest(target, text + drafted)[len(text) - 1 :]
        runs += 1
        for guess, truth in zip([*drafted, None], own, strict=True):
            text.append(truth)
            if guess != truth:
                break
    return torch.tensor(text, dtype=ids.dtype), runs


@right("inference/checked")
def buffer_with_room(target, draft, ids, n_new, n_draft):
    begin, end = len(ids), len(ids) + n_new
    buffer = ids.new_zeros(end + n_draft + 1)
    buffer[:begin] = ids
    at, runs = begin, 0
    while at < end:
        for i in range(at, at + n_draft):
            buffer[i] = draft(buffer[:i])[-1].argmax()
        own = target(buffer[: at + n_draft])[at - 1 :].argmax(-1)
        runs += 1
        stop = at + n_draft
        n = 0
        while at < stop and buffer[at] == own[n]:
            at, n = at + 1, n + 1
        buffer[at] = own[n]
        at += 1
    return buffer[:end].clone(), runs


def proposed(draft, text, n):
    for _ in range(n):
        text = torch.cat([text, draft(text)[-1:].argmax(-1)])
    return text


@right("inference/checked")
def plain(target, draft, ids, n_new, n_draft):
    wanted = ids.tolist()
    for _ in range(n_new + n_draft + 1):
        wanted.append(int(target(torch.tensor(wanted))[-1].argmax()))
    have, runs = len(ids), 0
    while have < len(ids) + n_new:
        longer = proposed(draft, torch.tensor(wanted[:have]), n_draft)
        runs += 1
        n = 0
        while n < n_draft and longer[have + n] == wanted[have + n]:
            n += 1
        have += n + 1
    return torch.tensor(wanted[: len(ids) + n_new]), runs


@right("inference/checked")
def with_cumprod(target, draft, ids, n_new, n_draft):
    text, runs = ids.clone(), 0
    while text.numel() - ids.numel() < n_new:
        longer = proposed(draft, text, n_draft)
        own = target(longer)[-n_draft - 1 :].argmax(-1)
        same = longer[-n_draft:] == own[:-1]
        n = int(same.int().cumprod(0).sum())
        text = torch.cat([text, own[: n + 1]])
        runs += 1
    return text[: ids.numel() + n_new], runs


@right("inference/checked")
def in_lists(target, draft, ids, n_new, n_draft):
    text, runs = ids.tolist(), 0
    while len(text) < len(ids) + n_new:
        longer = proposed(draft, torch.tensor(text), n_draft)
        best = target(longer).argmax(-1).tolist()
        runs += 1
        for _ in range(n_draft + 1):
            text.append(best[len(text) - 1])
            if len(text) > len(longer) or text[-1] != longer[len(text) - 1]:
                break
    return torch.tensor(text[: len(ids) + n_new]), runs


def _rounds(target, draft, ids, n_new, n_draft, following):
    text, runs = ids, 0
    while len(text) < len(ids) + n_new:
        longer = text
        for _ in range(n_draft):
            longer = torch.cat([longer, draft(longer)[-1:].argmax(-1)])
        own = target(longer)[len(text) - 1 :].argmax(-1)
        runs += 1
        drafted = longer[len(text) :]
        kept = 0
        while kept < n_draft and drafted[kept] == own[kept]:
            kept += 1
        text = torch.cat([text, following(drafted, own, kept)])
    return text, runs


def _kept_and_own(drafted, own, kept):
    return torch.cat([drafted[:kept], own[kept : kept + 1]])


@wrong("inference/checked", "not_cut")
def may_be_too_long(target, draft, ids, n_new, n_draft):
    return _rounds(target, draft, ids, n_new, n_draft, _kept_and_own)


@wrong("inference/checked", "keeps_rejected")
def rejected_is_kept(target, draft, ids, n_new, n_draft):
    def following(drafted, own, kept):
        return torch.cat([drafted, own[-1:]])[: kept + 1]

    text, runs = _rounds(target, draft, ids, n_new, n_draft, following)
    return text[: len(ids) + n_new], runs


@wrong("inference/checked", "last_row")
def always_the_last(target, draft, ids, n_new, n_draft):
    def following(drafted, own, kept):
        return torch.cat([drafted[:kept], own[-1:]])

    text, runs = _rounds(target, draft, ids, n_new, n_draft, following)
    return text[: len(ids) + n_new], runs


@wrong("inference/checked", "prompt_counted")
def prompt_included(target, draft, ids, n_new, n_draft):
    text, runs = _rounds(target, draft, ids, n_new, n_draft, _kept_and_own)
    return text[:n_new], runs


@wrong("inference/checked", "new_alone")
def new_tokens_alone(target, draft, ids, n_new, n_draft):
    text, runs = _rounds(target, draft, ids, n_new, n_draft, _kept_and_own)
    return text[len(ids) :][:n_new], runs


@wrong("inference/checked", "row_behind")
def one_place_behind(target, draft, ids, n_new, n_draft):
    def following(drafted, own, kept):
        n = min(kept + 1, len(own) - 1)
        return torch.cat([drafted[:kept], own[n : n + 1]])

    text, runs = _rounds(target, draft, ids, n_new, n_draft, following)
    return text[: len(ids) + n_new], runs


@wrong("inference/checked", "all_agreeing")
def also_behind(target, draft, ids, n_new, n_draft):
    def following(drafted, own, kept):
        kept = int((drafted == own[:-1]).sum())
        return _kept_and_own(drafted, own, kept)

    text, runs = _rounds(target, draft, ids, n_new, n_draft, following)
    return text[: len(ids) + n_new], runs


def rounds(target, draft, ids, n_new, n_draft, settle, cut=True):
    """Rounds in which `settle` says what a round adds."""
    text, runs = ids.tolist(), 0
    while len(text) < len(ids) + n_new:
        longer = proposed(draft, torch.tensor(text), n_draft).tolist()
        best = target(torch.tensor(longer)).argmax(-1).tolist()
        runs += 1
        text += settle(longer[len(text) :], best, len(text))
    if cut:
        text = text[: len(ids) + n_new]
    return torch.tensor(text), runs


def in_common(drafted, own):
    n = 0
    for a, b in zip(drafted, own, strict=False):
        if a != b:
            break
        n += 1
    return n


@wrong("inference/checked", "row_late")
def row_late(target, draft, ids, n_new, n_draft):
    def settle(drafted, best, have):
        own = best[have:]
        n = in_common(drafted, own)
        return drafted[:n] + own[n : n + 1]

    return rounds(target, draft, ids, n_new, n_draft, settle)


@wrong("inference/checked", "no_extra")
def no_last(target, draft, ids, n_new, n_draft):
    def settle(drafted, best, have):
        own = best[have - 1 : -1]
        return own[: in_common(drafted, own) + 1]

    return rounds(target, draft, ids, n_new, n_draft, settle)


# The draft's runs are counted too.
@wrong("inference/checked")
def all_runs_counted(target, draft, ids, n_new, n_draft):
    text, runs = _rounds(target, draft, ids, n_new, n_draft, _kept_and_own)
    return text[: len(ids) + n_new], runs * (n_draft + 1)


# Stops before a round that could be too long: the text is too short.
@wrong("inference/checked")
def stops_too_early(target, draft, ids, n_new, n_draft):
    text, runs = ids, 0
    while len(text) + n_draft + 1 <= len(ids) + n_new:
        more, _ = _rounds(target, draft, text, 1, n_draft, _kept_and_own)
        text, runs = more, runs + 1
    return text, runs


@wrong("inference/checked")
def of_the_draft(target, draft, ids, n_new, n_draft):
    return proposed(draft, ids, n_new), 0
