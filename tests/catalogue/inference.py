"""Answers to the exercises of chapter 21, written without the references."""

import math

import numpy as np
import torch


# -- rounded: right ----------------------------------------------------------
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


def with_numpy(weights, bits, group_size):
    w = weights.numpy().reshape(len(weights), -1, group_size)
    s = np.abs(w).max(-1) / (2 ** (bits - 1) - 1)
    n = np.rint(w / s[..., None]).reshape(weights.shape)
    return torch.from_numpy(n), torch.from_numpy(s)


def with_unfold(weights, bits, group_size):
    parts = weights.unfold(1, group_size, group_size)
    low, high = parts.aminmax(dim=-1)
    steps = torch.maximum(-low, high) / (2 ** (bits - 1) - 1)
    each = steps.repeat_interleave(group_size, 1)
    return (weights / each).round().to(torch.int8), steps


# -- rounded: wrong ----------------------------------------------------------
def by_step(weights, steps, group_size, turn=torch.round):
    return turn(weights / steps.repeat_interleave(group_size, 1)), steps


def largest(weights, group_size):
    return weights.abs().unfold(1, group_size, group_size).amax(-1)


def down_the_columns(weights, bits, group_size):
    n, k = weights.shape
    flat = torch.cat(list(weights.unbind(1)))
    whole, steps = with_numpy(flat.view(-1, group_size), bits, group_size)
    return whole.view(n, k), steps.view(n, k // group_size)


def signed(weights, bits, group_size):
    top = weights.unfold(1, group_size, group_size).amax(-1)
    return by_step(weights, top / (2 ** (bits - 1) - 1), group_size)


def row(weights, bits, group_size):
    top = weights.abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
    steps = top.expand(-1, weights.size(1) // group_size)
    return by_step(weights, steps, group_size)


def matrix(weights, bits, group_size):
    top = weights.abs().max() / (2 ** (bits - 1) - 1)
    steps = top.expand(len(weights), weights.size(1) // group_size)
    return by_step(weights, steps, group_size)


def one_more(weights, bits, group_size):
    steps = largest(weights, group_size) / (1 << (bits - 1))
    return by_step(weights, steps, group_size)


def no_sign(weights, bits, group_size):
    steps = largest(weights, group_size) / ((1 << bits) - 1)
    return by_step(weights, steps, group_size)


def cut_off(weights, bits, group_size):
    steps = largest(weights, group_size) / (2 ** (bits - 1) - 1)
    return by_step(weights, steps, group_size, torch.fix)


def keeps_axis(weights, bits, group_size):
    whole, steps = with_loops(weights, bits, group_size)
    return whole, steps.unsqueeze(2)


# -- rounded: mistakes that the catalogue does not have ----------------------
def by_the_mean(weights, bits, group_size):
    top = weights.abs().unfold(1, group_size, group_size).mean(-1)
    return by_step(weights, top / (2 ** (bits - 1) - 1), group_size)


def inverse_steps(weights, bits, group_size):
    whole, steps = with_numpy(weights, bits, group_size)
    return whole, 1 / steps


def weights_back(weights, bits, group_size):
    whole, steps = with_numpy(weights, bits, group_size)
    return whole * steps.repeat_interleave(group_size, 1), steps


# -- restored: right ---------------------------------------------------------
def byte_by_byte(packed, steps):
    rows = []
    for bytes_, scale in zip(packed.tolist(), steps, strict=True):
        numbers = [n - 8 for b in bytes_ for n in (b & 15, b >> 4)]
        size = len(numbers) // len(scale)
        rows.append(
            torch.stack([scale[i // size] * n for i, n in enumerate(numbers)])
        )
    return torch.stack(rows)


def filled_in(packed, steps):
    whole = torch.empty(len(packed), 2 * packed.size(1), dtype=steps.dtype)
    packed = packed.int()
    whole[:, 0::2] = packed.remainder(16) - 8
    whole[:, 1::2] = packed.div(16, rounding_mode="floor") - 8
    parts = whole.unflatten(1, (steps.size(1), -1)) * steps.unsqueeze(-1)
    return parts.flatten(1)


def by_shifts(packed, steps):
    shifts = torch.tensor([0, 4])
    whole = (packed[..., None] >> shifts & 15).flatten(1) - 8
    size = whole.size(1) // steps.size(1)
    return whole * steps[:, torch.arange(whole.size(1)) // size]


# -- restored: wrong ---------------------------------------------------------
def numbers(packed, low=True):
    packed = packed.long()
    two = [packed & 15, packed >> 4]
    if not low:
        two.reverse()
    return torch.stack(two, -1).flatten(-2)


def scaled(whole, steps):
    parts = whole.unflatten(1, (steps.size(1), -1)) * steps.unsqueeze(-1)
    return parts.flatten(1)


def upper_first(packed, steps):
    return scaled(numbers(packed, low=False) - 8, steps)


def halves(packed, steps):
    return scaled(torch.hstack([packed & 15, packed >> 4]).int() - 8, steps)


def two_complement(packed, steps):
    whole = numbers(packed)
    whole[whole >= 8] -= 16
    return scaled(whole, steps)


def seven(packed, steps):
    return scaled(numbers(packed) - 7, steps)


def not_shifted(packed, steps):
    return scaled(numbers(packed), steps)


def taking_turns(packed, steps):
    whole = numbers(packed) - 8
    return whole * steps[:, torch.arange(whole.size(1)) % steps.size(1)]


def true_division(packed, steps):
    whole = numbers(packed).to(steps.dtype)
    whole[:, 1::2] = packed * 0.0625
    return scaled(whole - 8, steps)


# -- restored: mistakes that the catalogue does not have ---------------------
def whole_numbers(packed, steps):
    return (numbers(packed) - 8).to(steps.dtype)


def first_step(packed, steps):
    return (numbers(packed) - 8) * steps[:, :1]


def shifted_after(packed, steps):
    return scaled(numbers(packed), steps) - 8


# -- verified: right ---------------------------------------------------------
def missing(p, q):
    left = torch.relu(p - q)
    return left / left.sum()


def one_by_one(drafted, p, q, uniform):
    n = 0
    u = uniform.tolist()
    while n < len(drafted) and u[n] * q[n, drafted[n]] < p[n, drafted[n]]:
        n += 1
    return n, p[n] if n == len(drafted) else missing(p[n], q[n])


def all_at_once(drafted, p, q, uniform):
    rows, ids = torch.arange(len(drafted)), torch.tensor(drafted)
    keep = uniform < p[rows, ids] / q[rows, ids]
    n = int(keep.long().cumprod(0).sum())
    padded = torch.cat([q, torch.zeros_like(q[:1])])
    return n, missing(p[n], padded[n])


def from_the_back(drafted, p, q, uniform):
    result = len(drafted), p[-1]
    for n in reversed(range(len(drafted))):
        if uniform[n] >= p[n, drafted[n]] / q[n, drafted[n]]:
            result = n, missing(p[n], q[n])
    return result


# -- verified: wrong ---------------------------------------------------------
def walked(drafted, p, q, uniform, accept=None, left=missing, last=-1):
    for n, token in enumerate(drafted):
        u, a, b = (x.item() for x in (uniform[n], p[n, token], q[n, token]))
        if not (u < a / b if accept is None else accept(u, a, b)):
            return n, left(p[n], q[n])
    return len(drafted), p[last]


def ratio_turned(drafted, p, q, uniform):
    return walked(drafted, p, q, uniform, lambda u, a, b: u < b / a)


def likely_enough(drafted, p, q, uniform):
    return walked(drafted, p, q, uniform, lambda u, a, b: a >= b)


def p_alone(drafted, p, q, uniform):
    return walked(drafted, p, q, uniform, lambda u, a, b: u < a)


def from_p(drafted, p, q, uniform):
    return walked(drafted, p, q, uniform, left=lambda a, b: a)


def turned(drafted, p, q, uniform):
    return walked(drafted, p, q, uniform, left=lambda a, b: missing(b, a))


def not_divided(drafted, p, q, uniform):
    return walked(drafted, p, q, uniform, left=lambda a, b: (a - b).relu())


def row_before(drafted, p, q, uniform):
    return walked(drafted, p, q, uniform, last=-2)


def counts_rejected(drafted, p, q, uniform):
    n, following = one_by_one(drafted, p, q, uniform)
    return min(n + 1, len(drafted)), following


# -- verified: mistakes that the catalogue does not have ---------------------
def absolute(drafted, p, q, uniform):
    return walked(
        drafted,
        *(p, q, uniform),
        left=lambda a, b: (a - b).abs() / (a - b).abs().sum(),
    )


def likeliest_left(drafted, p, q, uniform):
    return walked(
        drafted,
        *(p, q, uniform),
        left=lambda a, b: torch.eye(len(a), dtype=a.dtype)[(b - a).argmin()],
    )


def rejected_above(drafted, p, q, uniform):
    return walked(drafted, p, q, uniform, lambda u, a, b: u >= min(a / b, 1))


# -- gain: right -------------------------------------------------------------
def by_differences(p, q, n_draft, cost):
    # Σ min(p, q) = 1 − Σ |p − q| / 2
    alpha = 1 - float((p - q).abs().sum(1).mean()) / 2
    if math.isclose(alpha, 1):
        tokens = n_draft + 1
    else:
        tokens = (1 - alpha ** (n_draft + 1)) / (1 - alpha)
    return alpha, float(tokens), tokens / (1 + cost * n_draft)


def by_horner(p, q, n_draft, cost):
    alpha = torch.where(p < q, p, q).sum().item() / len(p)
    tokens = 1.0
    for _ in range(n_draft):
        tokens = 1 + alpha * tokens
    return alpha, tokens, tokens / (n_draft * cost + 1)


def by_counts(p, q, n_draft, cost):
    alpha = float(np.minimum(p.numpy(), q.numpy()).sum(-1).mean())
    chances = [alpha**n * (1 - alpha) for n in range(n_draft)]
    chances.append(alpha**n_draft)
    tokens = sum((n + 1) * c for n, c in enumerate(chances))
    return alpha, tokens, tokens / (1 + n_draft * cost)


# -- gain: wrong -------------------------------------------------------------
def overlap(p, q):
    return float(1 - (p - q).relu().sum(-1).mean())


def summary_of(alpha, tokens, n_draft, cost):
    return alpha, float(tokens), float(tokens / (1 + n_draft * cost))


def geometric(alpha, n):
    return sum(alpha**i for i in range(n))


def product(p, q, n_draft, cost):
    alpha = torch.einsum("tv,tv->t", p, q).mean().item()
    return summary_of(alpha, geometric(alpha, n_draft + 1), n_draft, cost)


def agreeing(p, q, n_draft, cost):
    same = p.max(1).indices == q.max(1).indices
    alpha = same.sum().item() / len(p)
    return summary_of(alpha, geometric(alpha, n_draft + 1), n_draft, cost)


def no_stop(p, q, n_draft, cost):
    alpha = overlap(p, q)
    return summary_of(alpha, n_draft * alpha + 1, n_draft, cost)


def power(p, q, n_draft, cost):
    alpha = overlap(p, q)
    return summary_of(alpha, geometric(alpha, n_draft), n_draft, cost)


def accepted_alone(p, q, n_draft, cost):
    alpha = overlap(p, q)
    return summary_of(alpha, geometric(alpha, n_draft + 1) - 1, n_draft, cost)


def undefined(p, q, n_draft, cost):
    alpha = overlap(p, q)
    top, bottom = 1 - alpha ** (n_draft + 1), 1 - alpha
    tokens = top / bottom if bottom else math.nan
    return summary_of(alpha, tokens, n_draft, cost)


def one_draft(p, q, n_draft, cost):
    alpha = overlap(p, q)
    tokens = geometric(alpha, n_draft + 1)
    return alpha, tokens, tokens / (1 + cost)


def free_target(p, q, n_draft, cost):
    alpha = overlap(p, q)
    tokens = geometric(alpha, n_draft + 1)
    return alpha, tokens, tokens / (cost * n_draft)


def unweighted(p, q, n_draft, cost):
    alpha = torch.where(p < q, p / q, torch.ones_like(p)).mean().item()
    return summary_of(alpha, geometric(alpha, n_draft + 1), n_draft, cost)


# -- gain: mistakes that the catalogue does not have -------------------------
def of_maxima(p, q, n_draft, cost):
    alpha = float(torch.maximum(p, q).sum(-1).mean()) - 1
    return summary_of(alpha, geometric(alpha, n_draft + 1), n_draft, cost)


def summed(p, q, n_draft, cost):
    alpha = float(torch.minimum(p, q).sum())
    return summary_of(alpha, geometric(alpha, n_draft + 1), n_draft, cost)


def slowed(p, q, n_draft, cost):
    alpha, tokens, faster = by_horner(p, q, n_draft, cost)
    return alpha, tokens, 1 / faster


# -- checked: right ----------------------------------------------------------
def proposed(draft, text, n):
    for _ in range(n):
        text = torch.cat([text, draft(text)[-1:].argmax(-1)])
    return text


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


# -- checked: wrong ----------------------------------------------------------
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


def row_late(target, draft, ids, n_new, n_draft):
    def settle(drafted, best, have):
        own = best[have:]
        n = in_common(drafted, own)
        return drafted[:n] + own[n : n + 1]

    return rounds(target, draft, ids, n_new, n_draft, settle)


def all_agreeing(target, draft, ids, n_new, n_draft):
    def settle(drafted, best, have):
        own = best[have - 1 :]
        n = sum(a == b for a, b in zip(drafted, own[:-1], strict=True))
        return drafted[:n] + own[n : n + 1]

    return rounds(target, draft, ids, n_new, n_draft, settle)


def keeps_rejected(target, draft, ids, n_new, n_draft):
    def settle(drafted, best, have):
        own = best[have - 1 :]
        n = in_common(drafted, own)
        return [*drafted, own[-1]][: n + 1]

    return rounds(target, draft, ids, n_new, n_draft, settle)


def no_last(target, draft, ids, n_new, n_draft):
    def settle(drafted, best, have):
        own = best[have - 1 : -1]
        return own[: in_common(drafted, own) + 1]

    return rounds(target, draft, ids, n_new, n_draft, settle)


def not_cut(target, draft, ids, n_new, n_draft):
    def settle(drafted, best, have):
        own = best[have - 1 :]
        return own[: in_common(drafted, own) + 1]

    return rounds(target, draft, ids, n_new, n_draft, settle, cut=False)


def last_row(target, draft, ids, n_new, n_draft):
    def settle(drafted, best, have):
        return drafted[: in_common(drafted, best[have - 1 :])] + best[-1:]

    return rounds(target, draft, ids, n_new, n_draft, settle)


def row_behind(target, draft, ids, n_new, n_draft):
    def settle(drafted, best, have):
        n = in_common(drafted, best[have - 1 :])
        return drafted[:n] + (best[have + n :] or best[-1:])[:1]

    return rounds(target, draft, ids, n_new, n_draft, settle)


def prompt_counted(target, draft, ids, n_new, n_draft):
    text, runs = with_cumprod(target, draft, ids, n_new, n_draft)
    return text[: -len(ids)], runs


def new_alone(target, draft, ids, n_new, n_draft):
    text, runs = with_cumprod(target, draft, ids, n_new, n_draft)
    return text[len(ids) :], runs


# -- checked: mistakes that the catalogue does not have ----------------------
def of_the_draft(target, draft, ids, n_new, n_draft):
    return proposed(draft, ids, n_new), 0


def a_run_each(target, draft, ids, n_new, n_draft):
    return proposed(target, ids, n_new), n_new


def backward(target, draft, ids, n_new, n_draft):
    text, runs = with_cumprod(target, draft, ids, n_new, n_draft)
    return text.flip(0), runs


def over_all(p, q, n_draft, cost):
    alpha = (p + q - (p - q).abs()).mean().item() / 2
    tokens = sum(alpha**n for n in range(n_draft + 1))
    return alpha, tokens, tokens / (1 + n_draft * cost)


def halved_steps(weights, bits, group_size):
    groups = weights.reshape(len(weights), -1, group_size)
    steps = groups.abs().amax(-1) / (2 ** (bits - 1) - 1) / 2
    return (groups / steps[..., None]).round().flatten(1), steps


def everything_left(drafted, p, q, uniform):
    for n, token in enumerate(drafted):
        if uniform[n] >= p[n, token] / q[n, token]:
            left = p[n].clone()
            left[token] = 0
            return n, left / left.sum()
    return len(drafted), p[len(drafted)]


RIGHT = {
    "rounded": [with_loops, with_numpy, with_unfold],
    "restored": [byte_by_byte, filled_in, by_shifts],
    "verified": [one_by_one, all_at_once, from_the_back],
    "gain": [by_differences, by_horner, by_counts],
    "checked": [plain, with_cumprod, in_lists],
}
WRONG = {
    "rounded": {
        "down_the_columns": down_the_columns,
        "signed": signed,
        "row": row,
        "matrix": matrix,
        "one_more": one_more,
        "no_sign": no_sign,
        "cut_off": cut_off,
        "keeps_axis": keeps_axis,
        "restored_again": weights_back,
    },
    "restored": {
        "upper_first": upper_first,
        "halves": halves,
        "two_complement": two_complement,
        "seven": seven,
        "not_shifted": not_shifted,
        "taking_turns": taking_turns,
        "true_division": true_division,
    },
    "verified": {
        "ratio_turned": ratio_turned,
        "likely_enough": likely_enough,
        "p_alone": p_alone,
        "from_p": from_p,
        "turned": turned,
        "not_divided": not_divided,
        "counts_rejected": counts_rejected,
        "row_before": row_before,
        "absolute": absolute,
    },
    "gain": {
        "product": product,
        "largest": agreeing,
        "unweighted": unweighted,
        "no_stop": no_stop,
        "power": power,
        "accepted_alone": accepted_alone,
        "undefined": undefined,
        "one_draft": one_draft,
        "free_target": free_target,
        "over_all": over_all,
    },
    "checked": {
        "row_late": row_late,
        "all_agreeing": all_agreeing,
        "keeps_rejected": keeps_rejected,
        "no_extra": no_last,
        "not_cut": not_cut,
        "last_row": last_row,
        "row_behind": row_behind,
        "prompt_counted": prompt_counted,
        "new_alone": new_alone,
    },
}
OUTSIDE = {
    "rounded": [by_the_mean, inverse_steps, halved_steps],
    "restored": [whole_numbers, first_step, shifted_after],
    "verified": [likeliest_left, rejected_above, everything_left],
    "gain": [of_maxima, summed, slowed],
    "checked": [of_the_draft, a_run_each, backward],
}
