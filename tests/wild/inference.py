"""Answers to chapter 21, written from its page alone."""

import numpy as np
import torch

from tests.wild import right, wrong

# inference/rounded


@right("inference/rounded", "number by number, with Python's own round")
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


@right("inference/rounded", "unfold cuts the groups, steps are repeated")
def unfolded_groups(weights, bits, group_size):
    groups = weights.unfold(1, group_size, group_size)
    low, high = groups.aminmax(dim=-1)
    steps = torch.maximum(-low, high) / ((1 << bits - 1) - 1)
    each = steps.repeat_interleave(group_size, dim=1)
    return torch.round(weights / each).to(torch.int32), steps


@right("inference/rounded", "norms without end, whole numbers kept as floats")
def norms_without_end(weights, bits, group_size):
    groups = weights.reshape(-1, group_size)
    steps = groups.norm(p=float("inf"), dim=1) / (2 ** (bits - 1) - 1)
    whole = (groups / steps.unsqueeze(1)).round()
    return whole.reshape_as(weights), steps.reshape(len(weights), -1)


@right("inference/rounded", "NumPy, group by group along the columns")
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


@wrong(
    "inference/rounded", "one step for the whole row, no groups", classic=True
)
def step_of_the_row(weights, bits, group_size):
    steps = weights.abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
    whole = (weights / steps).round().to(torch.int8)
    return whole, steps.repeat(1, weights.size(1) // group_size)


@wrong(
    "inference/rounded",
    "the largest number, not the largest by absolute value",
    classic=True,
)
def without_abs(weights, bits, group_size):
    groups = weights.reshape(len(weights), -1, group_size)
    steps = groups.amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)
    whole = (groups / steps).round().to(torch.int64)
    return whole.flatten(1), steps.squeeze(-1)


@wrong("inference/rounded", "levels to 2^(b-1): 8, not 7", classic=True)
def one_level_more(weights, bits, group_size):
    groups = weights.reshape(len(weights), -1, group_size)
    steps = groups.abs().amax(-1, keepdim=True) / 2 ** (bits - 1)
    whole = (groups / steps).round().to(torch.int64)
    return whole.flatten(1), steps.squeeze(-1)


@wrong(
    "inference/rounded", "levels to 2^b - 1: no bit for the sign", classic=True
)
def no_bit_for_sign(weights, bits, group_size):
    groups = weights.reshape(len(weights), -1, group_size)
    steps = groups.abs().amax(-1, keepdim=True) / (2**bits - 1)
    whole = (groups / steps).round().to(torch.int64)
    return whole.flatten(1), steps.squeeze(-1)


@wrong("inference/rounded", "cut off toward 0, not rounded", classic=True)
def cut_off(weights, bits, group_size):
    groups = weights.reshape(len(weights), -1, group_size)
    steps = groups.abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)
    whole = (groups / steps).to(torch.int8)
    return whole.flatten(1), steps.squeeze(-1)


@wrong(
    "inference/rounded",
    "a group takes every so many-th column, not neighbors",
    classic=True,
)
def no_neighbors(weights, bits, group_size):
    groups = weights.reshape(len(weights), group_size, -1)
    steps = groups.abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
    whole = (groups / steps).round().to(torch.int8)
    return whole.reshape(weights.shape), steps.squeeze(1)


@wrong(
    "inference/rounded",
    "multiplied by the step again: weights, not whole numbers",
    classic=True,
)
def multiplied_again(weights, bits, group_size):
    groups = weights.reshape(len(weights), -1, group_size)
    steps = groups.abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)
    whole = (groups / steps).round() * steps
    return whole.flatten(1), steps.squeeze(-1)


@wrong(
    "inference/rounded",
    "whole numbers are left in groups, (N, G, group_size)",
    classic=True,
)
def left_in_groups(weights, bits, group_size):
    groups = weights.reshape(len(weights), -1, group_size)
    steps = groups.abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)
    return (groups / steps).round().to(torch.int8), steps.squeeze(-1)


@wrong("inference/rounded", "the steps keep an axis, (N, G, 1)", classic=True)
def steps_keep_axis(weights, bits, group_size):
    groups = weights.reshape(len(weights), -1, group_size)
    steps = groups.abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)
    return (groups / steps).round().to(torch.int8).flatten(1), steps


@wrong(
    "inference/rounded",
    "the step spans from the least to the greatest, around no 0",
    classic=False,
)
def from_least_to_greatest(weights, bits, group_size):
    groups = weights.reshape(len(weights), -1, group_size)
    low, high = groups.aminmax(dim=-1, keepdim=True)
    steps = (high - low) / (2**bits - 1)
    whole = ((groups - low) / steps).round().to(torch.int64)
    return whole.flatten(1), steps.squeeze(-1)


@wrong("inference/rounded", "uint8 has no place for a sign", classic=False)
def unsigned_bytes(weights, bits, group_size):
    groups = weights.reshape(len(weights), -1, group_size)
    steps = groups.abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)
    whole = (groups / steps).round().to(torch.int64) % 256
    return whole.to(torch.uint8).flatten(1), steps.squeeze(-1)


# inference/restored


@right("inference/restored", "every other column of an empty matrix, in place")
def every_other_column(packed, steps):
    n_rows, half = packed.shape
    out = steps.new_empty(n_rows, 2 * half)
    out[:, 0::2] = (packed & 0b1111).to(steps.dtype) - 8
    out[:, 1::2] = (packed >> 4).to(steps.dtype) - 8
    out.view(n_rows, steps.size(1), -1).mul_(steps[:, :, None])
    return out


@right("inference/restored", "a table of all 256 bytes")
def table_of_bytes(packed, steps):
    pairs = [(byte % 16 - 8, byte // 16 - 8) for byte in range(256)]
    table = torch.tensor(pairs, dtype=steps.dtype)
    whole = table[packed.long()].flatten(1)
    each = torch.arange(whole.size(1)) * steps.size(1) // whole.size(1)
    return whole * steps[:, each]


@right("inference/restored", "Python's divmod, list by list")
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


@right("inference/restored", "shifts by (0, 4), broadcast, and an einsum")
def shifts_broadcast(packed, steps):
    shifts = torch.tensor([0, 4])
    whole = (packed.to(torch.int32)[..., None] >> shifts) & 15
    whole = (whole - 8).reshape(*steps.shape, -1)
    return torch.einsum("ngk,ng->ngk", whole.to(steps.dtype), steps).reshape(
        len(packed), -1
    )


def _times_steps(whole, steps):
    size = whole.size(1) // steps.size(1)
    return whole * steps.repeat_interleave(size, 1)


@wrong(
    "inference/restored",
    "the subtraction takes place in bytes and wraps around below 0",
    classic=True,
)
def wraps_around(packed, steps):
    both = torch.stack([packed % 16, packed // 16], -1) - 8
    return _times_steps(both.flatten(1), steps)


@wrong(
    "inference/restored",
    "the upper four bits come first",
    classic=True,
)
def upper_first(packed, steps):
    packed = packed.int()
    both = torch.stack([packed // 16, packed % 16], -1) - 8
    return _times_steps(both.flatten(1), steps)


@wrong(
    "inference/restored",
    "all lower halves, then all upper ones: no neighbors",
    classic=True,
)
def halves_apart(packed, steps):
    packed = packed.int()
    both = torch.cat([packed % 16, packed // 16], 1) - 8
    return _times_steps(both, steps)


@wrong("inference/restored", "8 is not subtracted", classic=True)
def eight_left_in(packed, steps):
    packed = packed.int()
    both = torch.stack([packed % 16, packed // 16], -1)
    return _times_steps(both.flatten(1), steps)


@wrong(
    "inference/restored",
    "read as two's complement: 8 to 15 are the negative ones",
    classic=True,
)
def twos_complement(packed, steps):
    packed = packed.int()
    both = torch.stack([packed % 16, packed // 16], -1).flatten(1)
    return _times_steps(torch.where(both > 7, both - 16, both), steps)


@wrong(
    "inference/restored", "7 is subtracted, the largest number", classic=True
)
def seven_subtracted(packed, steps):
    packed = packed.int()
    both = torch.stack([packed % 16, packed // 16], -1) - 7
    return _times_steps(both.flatten(1), steps)


@wrong(
    "inference/restored",
    "the steps take turns: repeat, not repeat_interleave",
    classic=True,
)
def steps_take_turns(packed, steps):
    packed = packed.int()
    both = torch.stack([packed % 16, packed // 16], -1).flatten(1) - 8
    return both * steps.repeat(1, both.size(1) // steps.size(1))


@wrong(
    "inference/restored", "a true division: a sixteenth stays", classic=True
)
def true_division(packed, steps):
    packed = packed.int()
    both = torch.stack([packed % 16, packed / 16], -1) - 8
    return _times_steps(both.flatten(1), steps)


@wrong("inference/restored", "8 is subtracted after the steps", classic=False)
def subtracted_too_late(packed, steps):
    packed = packed.int()
    both = torch.stack([packed % 16, packed // 16], -1)
    return _times_steps(both.flatten(1), steps) - 8


@wrong(
    "inference/restored",
    "a row's first step for all of its groups",
    classic=False,
)
def first_step_for_all(packed, steps):
    packed = packed.int()
    both = torch.stack([packed % 16, packed // 16], -1).flatten(1) - 8
    return both * steps[:, :1]


# inference/verified


@right("inference/verified", "recursion: the first token, then the others")
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


@right("inference/verified", "cumprod counts, and q gets a row of zeros")
def row_of_zeros(drafted, p, q, uniform):
    n = len(drafted)
    at = torch.as_tensor(drafted)[:, None]
    ratio = p[:n].gather(1, at) / q.gather(1, at)
    accepted = torch.as_tensor(uniform) < ratio[:, 0]
    kept = int(accepted.long().cumprod(0).sum())
    q = torch.cat([q, torch.zeros_like(p[:1])])
    missing = (p[kept] - q[kept]).clamp(min=0)
    return kept, missing / missing.sum()


@right("inference/verified", "a loop with an else, p less the smaller one")
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


def _verified(drafted, p, q, uniform, *, rejected, at_end=lambda p, q: p[-1]):
    for n, x in enumerate(drafted):
        if uniform[n] >= p[n, x] / q[n, x]:
            return n, rejected(p[n], q[n])
    return len(drafted), at_end(p, q)


@wrong(
    "inference/verified",
    "after a rejection too, the next one is drawn from p",
    classic=True,
)
def drawn_from_p(drafted, p, q, uniform):
    return _verified(drafted, p, q, uniform, rejected=lambda p, q: p)


@wrong(
    "inference/verified",
    "what is missing is not made to sum to 1",
    classic=True,
)
def sums_to_less(drafted, p, q, uniform):
    return _verified(
        drafted, p, q, uniform, rejected=lambda p, q: (p - q).clamp(min=0)
    )


@wrong(
    "inference/verified", "the absolute difference of p and q", classic=True
)
def absolute_difference(drafted, p, q, uniform):
    def rejected(p, q):
        return (p - q).abs() / (p - q).abs().sum()

    return _verified(drafted, p, q, uniform, rejected=rejected)


@wrong(
    "inference/verified",
    "max(0, q - p): what comes too often, not what is missing",
    classic=True,
)
def comes_too_often(drafted, p, q, uniform):
    def rejected(p, q):
        return (q - p).relu() / (q - p).relu().sum()

    return _verified(drafted, p, q, uniform, rejected=rejected)


@wrong(
    "inference/verified",
    "all accepted tokens are counted, also behind a rejection",
    classic=True,
)
def counted_behind_rejection(drafted, p, q, uniform):
    n = len(drafted)
    at = torch.as_tensor(drafted)[:, None]
    ratio = p[:n].gather(1, at) / q.gather(1, at)
    kept = int((torch.as_tensor(uniform) < ratio[:, 0]).sum())
    if kept == n:
        return kept, p[n]
    missing = (p[kept] - q[kept]).clamp(min=0)
    return kept, missing / missing.sum()


@wrong(
    "inference/verified",
    "if all are accepted, p of the last drafted position, not one further",
    classic=True,
)
def no_further(drafted, p, q, uniform):
    def rejected(p, q):
        return (p - q).relu() / (p - q).relu().sum()

    return _verified(
        drafted,
        p,
        q,
        uniform,
        rejected=rejected,
        at_end=lambda p, q: p[len(q) - 1],
    )


@wrong("inference/verified", "the rejected one is counted", classic=True)
def rejected_is_counted(drafted, p, q, uniform):
    for n, x in enumerate(drafted):
        if uniform[n] >= p[n, x] / q[n, x]:
            missing = (p[n] - q[n]).clamp(min=0)
            return n + 1, missing / missing.sum()
    return len(drafted), p[len(drafted)]


@wrong("inference/verified", "q / p instead of p / q", classic=True)
def upside_down(drafted, p, q, uniform):
    for n, x in enumerate(drafted):
        if uniform[n] >= q[n, x] / p[n, x]:
            missing = (p[n] - q[n]).clamp(min=0)
            return n, missing / missing.sum()
    return len(drafted), p[len(drafted)]


@wrong(
    "inference/verified",
    "accepted with probability p, q is forgotten",
    classic=True,
)
def with_probability_p(drafted, p, q, uniform):
    for n, x in enumerate(drafted):
        if uniform[n] >= p[n, x]:
            missing = (p[n] - q[n]).clamp(min=0)
            return n, missing / missing.sum()
    return len(drafted), p[len(drafted)]


@wrong(
    "inference/verified",
    "no chance: accepted if p is at least q",
    classic=False,
)
def no_chance(drafted, p, q, uniform):
    for n, x in enumerate(drafted):
        if p[n, x] < q[n, x]:
            missing = (p[n] - q[n]).clamp(min=0)
            return n, missing / missing.sum()
    return len(drafted), p[len(drafted)]


@wrong("inference/verified", "a softmax of what is missing", classic=False)
def softmax_of_missing(drafted, p, q, uniform):
    return _verified(
        drafted,
        p,
        q,
        uniform,
        rejected=lambda p, q: (p - q).clamp(min=0).softmax(-1),
    )


# inference/gain


@right("inference/gain", "half the distance of p and q, and Horner's way")
def distance_and_horner(p, q, n_draft, cost):
    rate = 1 - (p - q).abs().sum() / (2 * len(p))
    tokens = 1
    for _ in range(n_draft):
        tokens = 1 + rate * tokens
    return rate, tokens, tokens / (1 + cost * n_draft)


@right("inference/gain", "a vector of powers; three Python numbers")
def vector_of_powers(p, q, n_draft, cost):
    rate = torch.where(p < q, p, q).sum(-1).mean().item()
    powers = torch.full((n_draft + 1,), rate, dtype=torch.float64)
    powers[0] = 1
    tokens = powers.cumprod(0).sum().item()
    return rate, tokens, tokens / (n_draft * cost + 1)


@right("inference/gain", "loops, and the fraction unless they agree")
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


def _gain(rate, n_draft, cost):
    tokens = sum(rate**i for i in range(n_draft + 1))
    return rate, tokens, tokens / (n_draft * cost + 1)


@wrong(
    "inference/gain",
    "the fraction as it stands: 0 / 0 if the two agree",
    classic=True,
)
def zero_by_zero(p, q, n_draft, cost):
    rate = torch.minimum(p, q).sum(-1).mean()
    tokens = (1 - rate ** (n_draft + 1)) / (1 - rate)
    return rate, tokens, tokens / (n_draft * cost + 1)


@wrong(
    "inference/gain",
    "the mean runs over the vocabulary too, where a sum belongs",
    classic=True,
)
def mean_over_vocabulary(p, q, n_draft, cost):
    return _gain(torch.minimum(p, q).mean(), n_draft, cost)


@wrong(
    "inference/gain",
    "the mean of min(1, p / q), each token alike, not drawn from q",
    classic=True,
)
def each_token_alike(p, q, n_draft, cost):
    return _gain((p / q).clamp(max=1).mean(), n_draft, cost)


@wrong(
    "inference/gain",
    "how often two draws are the same: the sum of p q",
    classic=True,
)
def same_draws(p, q, n_draft, cost):
    return _gain((p * q).sum(-1).mean(), n_draft, cost)


@wrong(
    "inference/gain", "how often both have the same likeliest", classic=True
)
def same_likeliest(p, q, n_draft, cost):
    same = p.argmax(-1) == q.argmax(-1)
    return _gain(same.to(p.dtype).mean(), n_draft, cost)


@wrong(
    "inference/gain",
    "one power too few: the target's own token is left out",
    classic=True,
)
def one_power_too_few(p, q, n_draft, cost):
    rate = torch.minimum(p, q).sum(-1).mean()
    tokens = sum(rate**i for i in range(n_draft))
    return rate, tokens, tokens / (n_draft * cost + 1)


@wrong(
    "inference/gain",
    "one and as many as are accepted of all, behind rejections too",
    classic=True,
)
def as_if_all_counted(p, q, n_draft, cost):
    rate = torch.minimum(p, q).sum(-1).mean()
    tokens = 1 + n_draft * rate
    return rate, tokens, tokens / (n_draft * cost + 1)


@wrong("inference/gain", "the target's own run costs nothing", classic=True)
def run_for_nothing(p, q, n_draft, cost):
    rate, tokens, _ = _gain(torch.minimum(p, q).sum(-1).mean(), n_draft, cost)
    return rate, tokens, tokens / (n_draft * cost)


@wrong(
    "inference/gain", "the draft runs once, not n_draft times", classic=True
)
def draft_runs_once(p, q, n_draft, cost):
    rate, tokens, _ = _gain(torch.minimum(p, q).sum(-1).mean(), n_draft, cost)
    return rate, tokens, tokens / (cost + 1)


@wrong(
    "inference/gain",
    "the sum over all positions, not their mean",
    classic=False,
)
def sum_over_positions(p, q, n_draft, cost):
    return _gain(torch.minimum(p, q).sum(), n_draft, cost)


@wrong("inference/gain", "the larger of p and q", classic=False)
def larger_of_both(p, q, n_draft, cost):
    return _gain(torch.maximum(p, q).sum(-1).mean(), n_draft, cost)


# inference/checked


@right("inference/checked", "recursion, a round each; own begins with kept")
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


@right("inference/checked", "plain lists, and no longer drafts than needed")
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


@right("inference/checked", "a buffer with room for one round too many")
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


@wrong(
    "inference/checked",
    "the rejected token is replaced now, but the text may be too long",
    classic=True,
)
def may_be_too_long(target, draft, ids, n_new, n_draft):
    return _rounds(target, draft, ids, n_new, n_draft, _kept_and_own)


@wrong(
    "inference/checked",
    "the text is cut to its length now, but the rejected token is kept",
    classic=True,
)
def rejected_is_kept(target, draft, ids, n_new, n_draft):
    def following(drafted, own, kept):
        return torch.cat([drafted, own[-1:]])[: kept + 1]

    text, runs = _rounds(target, draft, ids, n_new, n_draft, following)
    return text[: len(ids) + n_new], runs


@wrong(
    "inference/checked",
    "the target's last token stands in the rejected one's place",
    classic=True,
)
def always_the_last(target, draft, ids, n_new, n_draft):
    def following(drafted, own, kept):
        return torch.cat([drafted[:kept], own[-1:]])

    text, runs = _rounds(target, draft, ids, n_new, n_draft, following)
    return text[: len(ids) + n_new], runs


@wrong(
    "inference/checked",
    "cut to n_new tokens in all, the prompt's included",
    classic=True,
)
def prompt_included(target, draft, ids, n_new, n_draft):
    text, runs = _rounds(target, draft, ids, n_new, n_draft, _kept_and_own)
    return text[:n_new], runs


@wrong("inference/checked", "the new tokens alone, without ids", classic=True)
def new_tokens_alone(target, draft, ids, n_new, n_draft):
    text, runs = _rounds(target, draft, ids, n_new, n_draft, _kept_and_own)
    return text[len(ids) :][:n_new], runs


@wrong(
    "inference/checked",
    "the target's token one place behind the rejected one",
    classic=True,
)
def one_place_behind(target, draft, ids, n_new, n_draft):
    def following(drafted, own, kept):
        n = min(kept + 1, len(own) - 1)
        return torch.cat([drafted[:kept], own[n : n + 1]])

    text, runs = _rounds(target, draft, ids, n_new, n_draft, following)
    return text[: len(ids) + n_new], runs


@wrong(
    "inference/checked",
    "stops before a round that could be too long: the text is too short",
    classic=True,
)
def stops_too_early(target, draft, ids, n_new, n_draft):
    text, runs = ids, 0
    while len(text) + n_draft + 1 <= len(ids) + n_new:
        more, _ = _rounds(target, draft, text, 1, n_draft, _kept_and_own)
        text, runs = more, runs + 1
    return text, runs


@wrong(
    "inference/checked",
    "all that agree is kept, also behind the first that does not",
    classic=False,
)
def also_behind(target, draft, ids, n_new, n_draft):
    def following(drafted, own, kept):
        kept = int((drafted == own[:-1]).sum())
        return _kept_and_own(drafted, own, kept)

    text, runs = _rounds(target, draft, ids, n_new, n_draft, following)
    return text[: len(ids) + n_new], runs


@wrong("inference/checked", "the draft's runs are counted too", classic=False)
def all_runs_counted(target, draft, ids, n_new, n_draft):
    text, runs = _rounds(target, draft, ids, n_new, n_draft, _kept_and_own)
    return text[: len(ids) + n_new], runs * (n_draft + 1)
