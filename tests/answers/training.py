"""Answers to the exercises of chapter 11."""

import math
import re

import torch
from torch import nn
from torch.nn import functional as F

from tests.answers import right, wrong

# -- rates -------------------------------------------------------------------


@right("training/rates")
def rates_by_cases(n, peak, total, warmup, floor):
    def rate(step):
        if step <= warmup:
            return peak * step / warmup
        if step >= total:
            return floor
        turn = math.pi * (step - warmup) / (total - warmup)
        return (peak + floor) / 2 + (peak - floor) / 2 * math.cos(turn)

    return list(map(rate, range(1, n + 1)))


@right("training/rates")
def squared_cosine(n, peak, total, warmup, floor):
    def each():
        for step in range(1, n + 1):
            if step >= total:
                yield floor
            elif step < warmup:
                yield peak * step / warmup
            else:
                angle = math.pi / 2 * (step - warmup) / (total - warmup)
                yield floor + (peak - floor) * math.cos(angle) ** 2

    return list(each())


@right("training/rates")
def rates_by_tensors(n, peak, total, warmup, floor):
    t = torch.arange(1, n + 1, dtype=torch.float64)
    share = ((t - warmup) / max(total - warmup, 1)).clamp(0, 1)
    down = floor + (peak - floor) * (1 + torch.cos(math.pi * share)) / 2
    up = peak * t / max(warmup, 1)
    return torch.where(t < warmup, up, down).tolist()


@right("training/rates")
def one_by_one(n, peak, total, warmup, floor):
    def rate(step):
        if step > total:
            return floor
        if step <= warmup:
            return step * peak / warmup
        angle = math.pi * (step - warmup) / (total - warmup)
        return (peak + floor) / 2 + (peak - floor) / 2 * math.cos(angle)

    return [rate(step) for step in range(1, n + 1)]


@right("training/rates")
def in_one_go(n, peak, total, warmup, floor):
    step = torch.arange(1, n + 1, dtype=torch.float64)
    way = ((step - warmup) / (total - warmup)).clamp(0, 1)
    fall = floor + (peak - floor) * (0.5 * math.pi * way).cos() ** 2
    rise = peak * step / max(warmup, 1)
    return torch.where(step <= warmup, rise, fall).tolist()


@right("training/rates")
def piece_by_piece(n, peak, total, warmup, floor):
    up = [peak * (i + 1) / warmup for i in range(warmup)]
    long = total - warmup
    down = [
        floor + (peak - floor) * 0.5 * (1 + math.cos(math.pi * i / long))
        for i in range(1, long + 1)
    ]
    return (up + down + [floor] * n)[:n]


@wrong("training/rates", "from_zero")
def rates_from_zero(n, peak, total, warmup, floor):
    out = []
    for step in range(n):
        if step < warmup:
            out.append(peak * step / warmup)
        else:
            done = min((step - warmup) / (total - warmup), 1)
            half = (1 + math.cos(math.pi * done)) / 2
            out.append(floor + (peak - floor) * half)
    return out


@wrong("training/rates", "rises_again")
def rates_rise_again(n, peak, total, warmup, floor):
    out = []
    for step in range(1, n + 1):
        if step < warmup:
            out.append(peak * step / warmup)
        else:
            done = (step - warmup) / (total - warmup)
            half = (1 + math.cos(math.pi * done)) / 2
            out.append(floor + (peak - floor) * half)
    return out


@wrong("training/rates", "floor_share")
def floor_as_a_share(n, peak, total, warmup, floor):
    def rate(step):
        if step < warmup:
            return peak * step / warmup
        share = min((step - warmup) / (total - warmup), 1)
        wave = (1 + math.cos(math.pi * share)) / 2
        return peak * (floor + (1 - floor) * wave)

    return [rate(step) for step in range(1, n + 1)]


@wrong("training/rates", "peak_missed")
def cosine_from_the_start(n, peak, total, warmup, floor):
    def rate(step):
        if step < warmup:
            return peak * step / warmup
        wave = (1 + math.cos(math.pi * min(step / total, 1))) / 2
        return floor + (peak - floor) * wave

    return [rate(step) for step in range(1, n + 1)]


@wrong("training/rates", "floor_cuts")
def cut_off_at_floor(n, peak, total, warmup, floor):
    def rate(step):
        if step < warmup:
            return peak * step / warmup
        share = min((step - warmup) / (total - warmup), 1)
        return max(floor, peak * (1 + math.cos(math.pi * share)) / 2)

    return [rate(step) for step in range(1, n + 1)]


def fall(way, peak, floor):
    return floor + 0.5 * (peak - floor) * (1 + math.cos(way * math.pi))


@wrong("training/rates", "whole_way")
def whole_way(n, peak, total, warmup, floor):
    found = []
    for step in range(1, n + 1):
        if step <= warmup:
            found.append(peak * step / warmup)
        else:
            found.append(fall(min(1, step / total), peak, floor))
    return found


@wrong("training/rates")
def divides_by_no_warmup(n, peak, total, warmup, floor):
    out = []
    for step in range(1, n + 1):
        up = min(step / warmup, 1)
        share = min(max(step - warmup, 0) / (total - warmup), 1)
        wave = (1 + math.cos(math.pi * share)) / 2
        out.append(peak * up if up < 1 else floor + (peak - floor) * wave)
    return out


@wrong("training/rates")
def warm_up_of_one(n, peak, total, warmup, floor):
    return one_by_one(n, peak, total, max(warmup, 1), floor)


@wrong("training/rates")
def not_warmed_up(n, peak, total, warmup, floor):
    rise = peak if warmup == 0 else None
    found = one_by_one(n, peak, total, warmup, floor)
    return [rise or peak if i < warmup else x for i, x in enumerate(found)]


# -- update ------------------------------------------------------------------


@right("training/update")
def update_by_lerp(w, g, m, v, step, rate, decay):
    m = torch.lerp(m, g, 0.1)
    v = torch.lerp(v, g.square(), 0.01)
    root = (v / -math.expm1(step * math.log(0.99))).sqrt() + 1e-8
    shrunk = w.mul(1 - rate * decay)
    return shrunk.addcdiv(m / (1 - 0.9**step), root, value=-rate), m, v


@right("training/update")
def folded_update(w, g, m, v, step, rate, decay):
    m = torch.lerp(m, g, 0.1)
    v = torch.lerp(v, g.square(), 0.01)
    root = v.sqrt().div(math.sqrt(1 - 0.99**step)).add(1e-8)
    shrunk = w * (1 - rate * decay)
    return shrunk - rate / (1 - 0.9**step) * m / root, m, v


@right("training/update")
def in_lists(w, g, m, v, step, rate, decay):
    out = [[], [], []]
    numbers = (x.flatten().tolist() for x in (w, g, m, v))
    for a, b, c, d in zip(*numbers, strict=True):
        c = 0.9 * c + 0.1 * b
        d = 0.99 * d + 0.01 * b * b
        up = c / (1 - 0.9**step)
        down = (d / (1 - 0.99**step)) ** 0.5 + 1e-8
        for column, x in zip(
            out, (a - rate * (up / down + decay * a), c, d), strict=True
        ):
            column.append(x)
    return tuple(torch.tensor(x, dtype=w.dtype).reshape(w.shape) for x in out)


@right("training/update")
def number_by_number(w, g, m, v, step, rate, decay):
    new = [torch.empty_like(w) for _ in range(3)]
    for at in torch.cartesian_prod(*map(torch.arange, w.shape)).tolist():
        i = tuple(at)
        a = 0.9 * m[i] + 0.1 * g[i]
        b = 0.99 * v[i] + 0.01 * g[i] * g[i]
        a_hat, b_hat = a / (1 - 0.9**step), b / (1 - 0.99**step)
        moved = a_hat / (math.sqrt(b_hat) + 1e-8) + decay * w[i]
        new[0][i], new[1][i], new[2][i] = w[i] - rate * moved, a, b
    return tuple(new)


@right("training/update")
def decay_first(w, g, m, v, step, rate, decay):
    # As PyTorch does it: shrink, then step.
    m = torch.lerp(m, g, 0.1)
    v = (0.99 * v).addcmul(g, g, value=0.01)
    w = w * (1 - rate * decay)
    root = v.sqrt() / math.sqrt(1 - 0.99**step)
    return w - rate / (1 - 0.9**step) * m / (root + 1e-8), m, v


@right("training/update")
def in_place_on_copies(w, g, m, v, step, rate, decay):
    w, m, v = w.clone(), m.clone(), v.clone()
    m.mul_(0.9).add_(g, alpha=1 - 0.9)
    v.mul_(0.99).addcmul_(g, g, value=1 - 0.99)
    long = (v / (1 - 0.99**step)).sqrt_().add_(1e-8)
    w.sub_(rate * decay * w)
    w.addcdiv_(m / (1 - 0.9**step), long, value=-rate)
    return w, m, v


@wrong("training/update", "l2")
def update_decay_in_gradient(w, g, m, v, step, rate, decay):
    g = g + decay * w
    m = 0.9 * m + 0.1 * g
    v = 0.99 * v + 0.01 * g * g
    m_hat, v_hat = m / (1 - 0.9**step), v / (1 - 0.99**step)
    return w - rate * m_hat / (v_hat.sqrt() + 1e-8), m, v


@wrong("training/update", "corrected_kept")
def update_returns_corrected(w, g, m, v, step, rate, decay):
    m = (0.9 * m + 0.1 * g) / (1 - 0.9**step)
    v = (0.99 * v + 0.01 * g**2) / (1 - 0.99**step)
    return w - rate * (m / (v.sqrt() + 1e-8) + decay * w), m, v


@wrong("training/update", "eps_inside")
def epsilon_inside(w, g, m, v, step, rate, decay):
    m = 0.9 * m + 0.1 * g
    v = 0.99 * v + 0.01 * g**2
    m_hat, v_hat = m / (1 - 0.9**step), v / (1 - 0.99**step)
    change = m_hat / (v_hat + 1e-8).sqrt() + decay * w
    return w - rate * change, m, v


@wrong("training/update", "decay_whole")
def decay_without_rate(w, g, m, v, step, rate, decay):
    m = 0.9 * m + 0.1 * g
    v = 0.99 * v + 0.01 * g * g
    m_hat, v_hat = m / (1 - 0.9**step), v / (1 - 0.99**step)
    return w * (1 - decay) - rate * m_hat / (v_hat.sqrt() + 1e-8), m, v


@wrong("training/update", "no_correction")
def not_corrected(w, g, m, v, step, rate, decay):
    m = 0.9 * m + 0.1 * g
    v = 0.99 * v + 0.01 * g.pow(2)
    return w - rate * (m / (v.sqrt() + 1e-8) + decay * w), m, v


@wrong("training/update", "in_place")
def in_place(w, g, m, v, step, rate, decay):
    m.mul_(0.9).add_(g, alpha=0.1)
    v.mul_(0.99).addcmul_(g, g, value=0.01)
    root = (v / (1 - 0.99**step)).sqrt_().add_(1e-8)
    w.mul_(1 - rate * decay)
    w.addcdiv_(m, root, value=-rate / (1 - 0.9**step))
    return w, m, v


def memories(g, m, v, slow=0.99, fast=0.9):
    return m + (1 - fast) * (g - m), v + (1 - slow) * (g * g - v)


def hats(m, v, step, slow=0.99, fast=0.9):
    return m / (1 - fast**step), v / (1 - slow**step)


@wrong("training/update", "no_root")
def no_root(w, g, m, v, step, rate, decay):
    m, v = memories(g, m, v)
    a, b = hats(m, v, step)
    return w - rate * (a / (b + 1e-8) + decay * w), m, v


# The update is counted from 0, which divides by 0 in the first.
@wrong("training/update")
def counted_from_zero(w, g, m, v, step, rate, decay):
    t = step - 1
    m = 0.9 * m + 0.1 * g
    v = 0.99 * v + 0.01 * g**2
    c1 = torch.tensor(1 - 0.9**t, dtype=w.dtype)
    c2 = torch.tensor(1 - 0.99**t, dtype=w.dtype)
    change = (m / c1) / ((v / c2).sqrt() + 1e-8) + decay * w
    return w - rate * change, m, v


@wrong("training/update")
def no_memory(w, g, m, v, step, rate, decay):
    new, _, _ = decay_first(w, g, 0 * m, 0 * v, 1, rate, decay)
    return new, *memories(g, m, v)


@wrong("training/update")
def uphill(w, g, m, v, step, rate, decay):
    m, v = memories(g, m, v)
    a, b = hats(m, v, step)
    return w + rate * (a / (b.sqrt() + 1e-8) - decay * w), m, v


# -- accumulate --------------------------------------------------------------


@right("training/accumulate")
def without_autograd(weights, micro_batches):
    total, count = torch.zeros_like(weights), 0
    for x, y in micro_batches:
        keep = y != -100
        if not keep.any():
            continue
        x, y = x[keep], y[keep]
        slope = (x @ weights).softmax(-1)
        slope[torch.arange(len(y)), y] -= 1
        total = total + x.T @ slope
        count += len(y)
    return total / count


@right("training/accumulate")
def joined(weights, micro_batches):
    xs, ys = zip(*micro_batches, strict=True)
    w = weights.detach().clone().requires_grad_(True)
    loss = F.cross_entropy(torch.cat(xs) @ w, torch.cat(ys))
    (slope,) = torch.autograd.grad(loss, [w])
    return slope


@right("training/accumulate")
def nan_times_zero(weights, micro_batches):
    w = weights.clone().requires_grad_()
    counts = [(y != -100).sum() for _, y in micro_batches]
    for (x, y), n in zip(micro_batches, counts, strict=True):
        mean = F.cross_entropy(x @ w, y)
        (mean * n / sum(counts)).backward()
    return w.grad


@right("training/accumulate")
def one_big_batch(weights, micro_batches):
    x = torch.cat([x for x, _ in micro_batches])
    y = torch.cat([y for _, y in micro_batches])
    w = weights.clone().requires_grad_()
    F.cross_entropy(x @ w, y).backward()
    return w.grad


@right("training/accumulate")
def by_formula(weights, micro_batches):
    total, count = torch.zeros_like(weights), 0
    for x, y in micro_batches:
        keep = y != -100
        p = (x[keep] @ weights).softmax(-1)
        total = total + x[keep].T @ (p - F.one_hot(y[keep], p.size(1)))
        count += int(keep.sum())
    return total / count


@right("training/accumulate")
def backward_adds_up(weights, micro_batches):
    w = weights.clone().requires_grad_()
    for x, y in micro_batches:
        F.cross_entropy(x @ w, y, reduction="sum").backward()
    return w.grad / sum(int((y >= 0).sum()) for _, y in micro_batches)


def parts(weights, micro_batches):
    """Each micro-batch's summed gradient, its targets and its rows."""
    for x, y in micro_batches:
        n = int((y >= 0).sum())
        mean = by_formula(weights, [(x, y)]) if n else 0 * weights
        yield mean * n, n, len(y)


@wrong("training/accumulate", "all_rows")
def all_rows(weights, micro_batches):
    found = list(parts(weights, micro_batches))
    return sum(g for g, _, _ in found) / sum(rows for _, _, rows in found)


@wrong("training/accumulate", "others_mean")
def empty_ones_left_out(weights, micro_batches):
    kept = [(x, y) for x, y in micro_batches if (y >= 0).any()]
    return mean_of_means(weights, kept)


@wrong("training/accumulate", "summed")
def summed(weights, micro_batches):
    return sum(g for g, _, _ in parts(weights, micro_batches))


@wrong("training/accumulate", "so_far")
def count_so_far(weights, micro_batches):
    w = weights.clone().requires_grad_()
    seen = 0
    for x, y in micro_batches:
        seen += int((y != -100).sum())
        loss = F.cross_entropy(x @ w, y, reduction="sum")
        (loss / max(seen, 1)).backward()
    return w.grad


def means(weights, micro_batches):
    return [g / max(n, 1) for g, n, _ in parts(weights, micro_batches)]


@wrong("training/accumulate", "mean_of_means")
def mean_of_means(weights, micro_batches):
    return torch.stack(means(weights, micro_batches)).mean(0)


@wrong("training/accumulate", "not_divided")
def not_divided(weights, micro_batches):
    return sum(means(weights, micro_batches))


@wrong("training/accumulate", "last_only")
def last_only(weights, micro_batches):
    w = weights.clone().requires_grad_()
    count = sum(int((y >= 0).sum()) for _, y in micro_batches)
    for x, y in micro_batches:
        w.grad = None
        F.cross_entropy(x @ w, y, reduction="sum").backward()
    return w.grad / count


@wrong("training/accumulate")
def the_wrong_copy(weights, micro_batches):
    w = weights.clone().requires_grad_()
    n = sum(int((y != -100).sum()) for _, y in micro_batches)
    for x, y in micro_batches:
        loss = F.cross_entropy(x @ weights, y, reduction="sum") / n
        loss.backward()
    return w.grad


@wrong("training/accumulate")
def first_only(weights, micro_batches):
    return by_formula(weights, micro_batches[:1])


@wrong("training/accumulate")
def padding_is_token_0(weights, micro_batches):
    return one_big_batch(weights, [(x, y.relu()) for x, y in micro_batches])


# -- learn -------------------------------------------------------------------


@right("training/learn")
def by_hand(weights, batches, epochs, peak, limit):
    w, losses = weights.detach().clone(), []
    steps = epochs * len(batches)
    for done in range(steps):
        x, y = batches[done % len(batches)]
        w.requires_grad_(True)
        loss = F.cross_entropy(x @ w, y)
        (g,) = torch.autograd.grad(loss, w)
        length = g.norm().item()
        if length > limit:
            g = g * (limit / length)
        w = (w - peak * (1 - done / steps) * g).detach()
        losses.append(loss.item())
    return w, losses


@right("training/learn")
def with_a_scheduler(weights, batches, epochs, peak, limit):
    steps = len(batches) * epochs
    w = nn.Parameter(weights.clone())
    sgd = torch.optim.SGD([w], lr=peak)
    plan = torch.optim.lr_scheduler.LambdaLR(sgd, lambda n: 1 - n / steps)
    history = []
    for _ in range(epochs):
        for x, y in batches:
            sgd.zero_grad(set_to_none=True)
            loss = F.cross_entropy(x @ w, y)
            loss.backward()
            nn.utils.clip_grad_norm_(w, limit)
            sgd.step()
            plan.step()
            history.append(float(loss))
    return w.detach(), history


def slope(w, x, y):
    """Loss and gradient of one batch, worked out."""
    p = (x @ w).softmax(-1)
    nats = -p[torch.arange(len(y)), y].log().mean().item()
    return nats, x.T @ (p - F.one_hot(y, p.size(-1))) / len(y)


@right("training/learn")
def learn_by_hand(weights, batches, epochs, peak, limit):
    w, losses, steps = weights.clone(), [], epochs * len(batches)
    for done in range(steps):
        nats, g = slope(w, *batches[done % len(batches)])
        g = g * min(1.0, limit / g.norm().item())
        w = w - peak * (1 - done / steps) * g
        losses.append(nats)
    return w, losses


@right("training/learn")
def with_autograd(weights, batches, epochs, peak, limit):
    w = weights.detach().requires_grad_()
    losses, left = [], epochs * len(batches)
    steps = left
    for x, y in [pair for _ in range(epochs) for pair in batches]:
        loss = F.cross_entropy(x @ w, y)
        (g,) = torch.autograd.grad(loss, w)
        long = g.square().sum().sqrt()
        if long > limit:
            g = g / long * limit
        w = (w - peak * left / steps * g).detach().requires_grad_()
        losses.append(loss.item())
        left -= 1
    return w.detach(), losses


@right("training/learn")
def with_scheduler(weights, batches, epochs, peak, limit):
    w = torch.nn.Parameter(weights.clone())
    sgd = torch.optim.SGD([w], lr=peak)
    steps = epochs * len(batches)
    line = torch.optim.lr_scheduler.LambdaLR(sgd, lambda n: 1 - n / steps)
    losses = []
    for _ in range(epochs):
        for x, y in batches:
            w.grad = None
            loss = F.cross_entropy(x @ w, y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(w, limit)
            sgd.step()
            line.step()
            losses.append(loss.item())
    return w.data, losses


def walk(weights, batches, epochs, peak, limit, rate=None, shorten=None):
    """Plain descent; what is asked for may be done otherwise."""
    w, losses = weights.clone(), []
    steps = epochs * len(batches)
    for epoch in range(epochs):
        for i, (x, y) in enumerate(batches):
            nats, g = slope(w, x, y)
            g = shorten(g) if shorten else g * min(1, limit / float(g.norm()))
            share = rate(epoch, i) if rate else 1 - len(losses) / steps
            w = w - peak * share * g
            losses.append(nats)
    return w, losses


@wrong("training/learn", "no_zero_grad")
def no_zero_grad(weights, batches, epochs, peak, limit):
    held = torch.zeros_like(weights)

    def pile(g):
        nonlocal held
        held = held + g
        held = held * min(1, limit / float(held.norm()))
        return held

    return walk(weights, batches, epochs, peak, limit, shorten=pile)


@wrong("training/learn", "ends_at_zero")
def counted_from_one(weights, batches, epochs, peak, limit):
    steps = epochs * len(batches)

    def early(epoch, i):
        return 1 - (epoch * len(batches) + i + 1) / steps

    return walk(weights, batches, epochs, peak, limit, rate=early)


@wrong("training/learn", "clip_after")
def clip_after(weights, batches, epochs, peak, limit):
    return walk(weights, batches, epochs, peak, limit, shorten=lambda g: g)


@wrong("training/learn", "per_epoch")
def per_epoch(weights, batches, epochs, peak, limit):
    def stairs(epoch, i):
        return 1 - epoch / epochs

    return walk(weights, batches, epochs, peak, limit, rate=stairs)


@wrong("training/learn", "by_value")
def by_value(weights, batches, epochs, peak, limit):
    def cut(g):
        return g.clamp(-limit, limit)

    return walk(weights, batches, epochs, peak, limit, shorten=cut)


@wrong("training/learn", "always_scaled")
def always_scaled(weights, batches, epochs, peak, limit):
    def unit(g):
        return F.normalize(g.flatten(), dim=0).view_as(g) * limit

    return walk(weights, batches, epochs, peak, limit, shorten=unit)


@wrong("training/learn", "graphs_kept")
def graphs_kept(weights, batches, epochs, peak, limit):
    w, kept = weights.clone(), []
    steps = epochs * len(batches)
    for done in range(steps):
        x, y = batches[done % len(batches)]
        w = w.detach().requires_grad_()
        kept.append(F.cross_entropy(x @ w, y))
        (g,) = torch.autograd.grad(kept[-1], w)
        g = g * min(1.0, limit / float(g.norm()))
        w = w - peak * (1 - done / steps) * g
    return w.detach(), kept


@wrong("training/learn", "constant")
def constant(weights, batches, epochs, peak, limit):
    def level(epoch, i):
        return 1

    return walk(weights, batches, epochs, peak, limit, rate=level)


# Gradients are cleared between backward and step, so that nothing is learned.
@wrong("training/learn")
def cleared_too_late(weights, batches, epochs, peak, limit):
    w = weights.clone().requires_grad_()
    optimizer = torch.optim.SGD([w], lr=peak)
    losses, done = [], 0
    for _ in range(epochs):
        for x, y in batches:
            rate = peak * (1 - done / (epochs * len(batches)))
            optimizer.param_groups[0]["lr"] = rate
            loss = F.cross_entropy(x @ w, y)
            loss.backward()
            optimizer.zero_grad()
            nn.utils.clip_grad_norm_([w], limit)
            optimizer.step()
            losses.append(loss.item())
            done += 1
    return w.detach(), losses


@wrong("training/learn")
def one_epoch(weights, batches, epochs, peak, limit):
    return learn_by_hand(weights, batches, 1, peak, limit)


@wrong("training/learn")
def column_by_column(weights, batches, epochs, peak, limit):
    def cut(g):
        return g * (limit / g.norm(dim=0)).clamp(max=1)

    return walk(weights, batches, epochs, peak, limit, shorten=cut)


# -- plan --------------------------------------------------------------------


@right("training/plan")
def by_expression(shapes, n_layers, std, decay):
    class Plan:
        writer = re.compile(r"w_(o|out)\.weight$")

        def of(self, name, shape):
            if len(shape) < 2:
                return 0.0 if re.search("bias$", name) else 1.0, 0.0, 0.0
            if self.writer.search(name):
                return 0.0, std * (2 * n_layers) ** -0.5, decay
            return 0.0, std, decay

    plan = Plan()
    return {name: plan.of(name, shape) for name, shape in shapes.items()}


@right("training/plan")
def one_expression(shapes, n_layers, std, decay):
    writers = ("w_o.weight", "w_out.weight")
    return {
        k: (int(not k.endswith("bias")), 0, 0)
        if len(s) == 1
        else (0, std / (math.sqrt(2 * n_layers) ** k.endswith(writers)), decay)
        for k, s in shapes.items()
    }


@right("training/plan")
def by_axes(shapes, n_layers, std, decay):
    out = {}
    for name, shape in shapes.items():
        if len(shape) == 1:
            out[name] = (0 if name.split(".")[-1] == "bias" else 1, 0, 0)
        elif name.split(".")[-2] in ("w_o", "w_out"):
            out[name] = (0, std / math.sqrt(2 * n_layers), decay)
        else:
            out[name] = (0, std, decay)
    return out


@right("training/plan")
def in_layers(shapes, n_layers, std, decay):
    # All as if they were plain matrices; then the exceptions.
    out = dict.fromkeys(shapes, (0.0, std, decay))
    narrow = std * (2 * n_layers) ** -0.5
    for name in shapes:
        if "w_o." in name or "w_out." in name:
            out[name] = (0.0, narrow, decay)
    for name, shape in shapes.items():
        if len(shape) < 2:
            out[name] = (float(not name.endswith(".bias")), 0.0, 0.0)
    return out


@right("training/plan")
def three_tables(shapes, n_layers, std, decay):
    vectors = {name for name, shape in shapes.items() if len(shape) == 1}
    ones = {name for name in vectors if "bias" not in name}
    writers = {n for n in shapes if n.endswith(("w_o.weight", "w_out.weight"))}
    half = std / 2**0.5 / n_layers**0.5
    return {
        name: (
            1.0 * (name in ones),
            (name not in vectors) * (half if name in writers else std),
            decay * (name not in vectors),
        )
        for name in shapes
    }


def changed(result, names, place, value):
    """A plan with one number changed for the parameters so named."""
    out = {}
    for name, numbers in result.items():
        numbers = list(numbers)
        if names(name):
            numbers[place] = value
        out[name] = tuple(numbers)
    return out


@wrong("training/plan", "all_decay")
def all_decay(shapes, n_layers, std, decay):
    good = by_axes(shapes, n_layers, std, decay)
    return changed(good, lambda name: True, 2, decay)


def writes(name):
    return name.endswith(("w_o.weight", "w_out.weight"))


@wrong("training/plan", "layers_once")
def layers_once(shapes, n_layers, std, decay):
    good = by_axes(shapes, n_layers, std, decay)
    return changed(good, writes, 1, std / math.sqrt(n_layers))


@wrong("training/plan", "no_root")
def twice_the_layers(shapes, n_layers, std, decay):
    good = by_axes(shapes, n_layers, std, decay)
    return changed(good, writes, 1, std / n_layers / 2)


@wrong("training/plan", "by_name")
def all_alike(shapes, n_layers, std, decay):
    out = {}
    for name in shapes:
        if name.endswith("bias"):
            out[name] = (0, 0, 0)
        elif name.endswith(("w_o.weight", "w_out.weight")):
            out[name] = (0, std / math.sqrt(2 * n_layers), decay)
        else:
            out[name] = (0, std, decay)
    return out


@wrong("training/plan", "gains_zero")
def gains_zero(shapes, n_layers, std, decay):
    good = by_axes(shapes, n_layers, std, decay)
    return changed(good, lambda name: True, 0, 0.0)


@wrong("training/plan", "only_w_o")
def only_w_o(shapes, n_layers, std, decay):
    good = by_axes(shapes, n_layers, std, decay)
    return changed(good, lambda name: "w_out" in name, 1, std)


@wrong("training/plan", "by_bias")
def by_bias(shapes, n_layers, std, decay):
    good = by_axes(shapes, n_layers, std, decay)
    return changed(good, lambda name: not name.endswith("bias"), 2, decay)


# A list of triples, without the names.
@wrong("training/plan")
def without_names(shapes, n_layers, std, decay):
    out = []
    for name, shape in shapes.items():
        if len(shape) < 2:
            out.append((float(not name.endswith("bias")), 0.0, 0.0))
        elif name.endswith(("w_o.weight", "w_out.weight")):
            out.append((0.0, std / (2 * n_layers) ** 0.5, decay))
        else:
            out.append((0.0, std, decay))
    return out


@wrong("training/plan")
def nothing_decays(shapes, n_layers, std, decay):
    good = by_axes(shapes, n_layers, std, decay)
    return changed(good, lambda name: True, 2, 0.0)


@wrong("training/plan")
def first_layer_scaled(shapes, n_layers, std, decay):
    good = by_axes(shapes, n_layers, std, decay)
    narrow = std / math.sqrt(2 * n_layers)
    return changed(good, lambda name: "w_in.weight" in name, 1, narrow)
