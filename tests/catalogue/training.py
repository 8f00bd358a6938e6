"""Answers to the exercises of chapter 11, as people write them."""

import math

import torch
from torch.nn import functional as F  # noqa: N812


# -- rates: right ------------------------------------------------------------
def one_by_one(n, peak, total, warmup, floor):
    def rate(step):
        if step > total:
            return floor
        if step <= warmup:
            return step * peak / warmup
        angle = math.pi * (step - warmup) / (total - warmup)
        return (peak + floor) / 2 + (peak - floor) / 2 * math.cos(angle)

    return [rate(step) for step in range(1, n + 1)]


def in_one_go(n, peak, total, warmup, floor):
    step = torch.arange(1, n + 1, dtype=torch.float64)
    way = ((step - warmup) / (total - warmup)).clamp(0, 1)
    fall = floor + (peak - floor) * (0.5 * math.pi * way).cos() ** 2
    rise = peak * step / max(warmup, 1)
    return torch.where(step <= warmup, rise, fall).tolist()


def piece_by_piece(n, peak, total, warmup, floor):
    up = [peak * (i + 1) / warmup for i in range(warmup)]
    long = total - warmup
    down = [
        floor + (peak - floor) * 0.5 * (1 + math.cos(math.pi * i / long))
        for i in range(1, long + 1)
    ]
    return (up + down + [floor] * n)[:n]


# -- rates: wrong ------------------------------------------------------------
def fall(way, peak, floor):
    return floor + 0.5 * (peak - floor) * (1 + math.cos(way * math.pi))


def from_zero(n, peak, total, warmup, floor):
    found = []
    for step in range(n):
        if step < warmup:
            found.append(peak * step / warmup)
        else:
            way = min(1, (step - warmup) / (total - warmup))
            found.append(fall(way, peak, floor))
    return found


def whole_way(n, peak, total, warmup, floor):
    found = []
    for step in range(1, n + 1):
        if step <= warmup:
            found.append(peak * step / warmup)
        else:
            found.append(fall(min(1, step / total), peak, floor))
    return found


def rises_again(n, peak, total, warmup, floor):
    found = []
    for step in range(1, n + 1):
        if step <= warmup:
            found.append(peak * step / warmup)
        else:
            way = (step - warmup) / (total - warmup)
            found.append(fall(way, peak, floor))
    return found


def floor_cuts(n, peak, total, warmup, floor):
    plain = one_by_one(n, peak, total, warmup, 0.0)
    return [
        rate if step < warmup else max(floor, rate)
        for step, rate in enumerate(plain)
    ]


# -- rates: mistakes that the catalogue does not have ------------------------
def whole_wave(n, peak, total, warmup, floor):
    found = one_by_one(n, peak, total, warmup, floor)
    for i in range(warmup, total):
        way = (i + 1 - warmup) / (total - warmup)
        found[i] = fall(2 * way, peak, floor)
    return found


def warm_up_of_one(n, peak, total, warmup, floor):
    return one_by_one(n, peak, total, max(warmup, 1), floor)


def not_warmed_up(n, peak, total, warmup, floor):
    rise = peak if warmup == 0 else None
    found = one_by_one(n, peak, total, warmup, floor)
    return [rise or peak if i < warmup else x for i, x in enumerate(found)]


def degrees(n, peak, total, warmup, floor):
    found = one_by_one(n, peak, total, warmup, floor)
    for i in range(warmup, n):
        way = min(1, (i + 1 - warmup) / (total - warmup))
        found[i] = floor + (peak - floor) * (1 + math.cos(180 * way)) / 2
    return found


# -- update: right -----------------------------------------------------------
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


def decay_first(w, g, m, v, step, rate, decay):
    # As PyTorch does it: shrink, then step.
    m = torch.lerp(m, g, 0.1)
    v = (0.99 * v).addcmul(g, g, value=0.01)
    w = w * (1 - rate * decay)
    root = v.sqrt() / math.sqrt(1 - 0.99**step)
    return w - rate / (1 - 0.9**step) * m / (root + 1e-8), m, v


def in_place_on_copies(w, g, m, v, step, rate, decay):
    w, m, v = w.clone(), m.clone(), v.clone()
    m.mul_(0.9).add_(g, alpha=1 - 0.9)
    v.mul_(0.99).addcmul_(g, g, value=1 - 0.99)
    long = (v / (1 - 0.99**step)).sqrt_().add_(1e-8)
    w.sub_(rate * decay * w)
    w.addcdiv_(m / (1 - 0.9**step), long, value=-rate)
    return w, m, v


# -- update: wrong -----------------------------------------------------------
def memories(g, m, v, slow=0.99, fast=0.9):
    return m + (1 - fast) * (g - m), v + (1 - slow) * (g * g - v)


def hats(m, v, step, slow=0.99, fast=0.9):
    return m / (1 - fast**step), v / (1 - slow**step)


def l2(w, g, m, v, step, rate, decay):
    m, v = memories(g + w * decay, m, v)
    a, b = hats(m, v, step)
    return w - rate * a / (b.sqrt() + 1e-8), m, v


def decay_whole(w, g, m, v, step, rate, decay):
    m, v = memories(g, m, v)
    a, b = hats(m, v, step)
    return w * (1 - decay) - rate * a / (b.sqrt() + 1e-8), m, v


def no_correction(w, g, m, v, step, rate, decay):
    m, v = memories(g, m, v)
    return w - rate * (m / (v.sqrt() + 1e-8) + decay * w), m, v


def corrected_kept(w, g, m, v, step, rate, decay):
    m, v = hats(*memories(g, m, v), step)
    return w - rate * (m / (v.sqrt() + 1e-8) + decay * w), m, v


def no_root(w, g, m, v, step, rate, decay):
    m, v = memories(g, m, v)
    a, b = hats(m, v, step)
    return w - rate * (a / (b + 1e-8) + decay * w), m, v


def eps_inside(w, g, m, v, step, rate, decay):
    m, v = memories(g, m, v)
    a, b = hats(m, v, step)
    return w - rate * (a * (b + 1e-8).rsqrt() + decay * w), m, v


# -- update: mistakes that the catalogue does not have -----------------------
def uphill(w, g, m, v, step, rate, decay):
    m, v = memories(g, m, v)
    a, b = hats(m, v, step)
    return w + rate * (a / (b.sqrt() + 1e-8) - decay * w), m, v


def no_memory(w, g, m, v, step, rate, decay):
    new, _, _ = decay_first(w, g, 0 * m, 0 * v, 1, rate, decay)
    return new, *memories(g, m, v)


def old_mean(w, g, m, v, step, rate, decay):
    # The mean of the step before.
    a, b = hats(m, memories(g, m, v)[1], step)
    new = w - rate * (a / (b.sqrt() + 1e-8) + decay * w)
    return new, *memories(g, m, v)


def memory_of_pytorch(w, g, m, v, step, rate, decay):
    # PyTorch's default for β₂, where 0.99 is asked.
    m, v = memories(g, m, v, slow=0.999)
    a, b = hats(m, v, step, slow=0.999)
    return w - rate * (a / (b.sqrt() + 1e-8) + decay * w), m, v


# -- accumulate: right -------------------------------------------------------
def one_big_batch(weights, micro_batches):
    x = torch.cat([x for x, _ in micro_batches])
    y = torch.cat([y for _, y in micro_batches])
    w = weights.clone().requires_grad_()
    F.cross_entropy(x @ w, y).backward()
    return w.grad


def by_formula(weights, micro_batches):
    total, count = torch.zeros_like(weights), 0
    for x, y in micro_batches:
        keep = y != -100
        p = (x[keep] @ weights).softmax(-1)
        total = total + x[keep].T @ (p - F.one_hot(y[keep], p.size(1)))
        count += int(keep.sum())
    return total / count


def backward_adds_up(weights, micro_batches):
    w = weights.clone().requires_grad_()
    for x, y in micro_batches:
        F.cross_entropy(x @ w, y, reduction="sum").backward()
    return w.grad / sum(int((y >= 0).sum()) for _, y in micro_batches)


# -- accumulate: wrong -------------------------------------------------------
def parts(weights, micro_batches):
    """Each micro-batch's summed gradient, its targets and its rows."""
    for x, y in micro_batches:
        n = int((y >= 0).sum())
        mean = by_formula(weights, [(x, y)]) if n else 0 * weights
        yield mean * n, n, len(y)


def means(weights, micro_batches):
    return [g / max(n, 1) for g, n, _ in parts(weights, micro_batches)]


def mean_of_means(weights, micro_batches):
    return torch.stack(means(weights, micro_batches)).mean(0)


def not_divided(weights, micro_batches):
    return sum(means(weights, micro_batches))


def all_rows(weights, micro_batches):
    found = list(parts(weights, micro_batches))
    return sum(g for g, _, _ in found) / sum(rows for _, _, rows in found)


def last_only(weights, micro_batches):
    w = weights.clone().requires_grad_()
    count = sum(int((y >= 0).sum()) for _, y in micro_batches)
    for x, y in micro_batches:
        w.grad = None
        F.cross_entropy(x @ w, y, reduction="sum").backward()
    return w.grad / count


# -- accumulate: mistakes that the catalogue does not have -------------------
def empty_ones_left_out(weights, micro_batches):
    kept = [(x, y) for x, y in micro_batches if (y >= 0).any()]
    return mean_of_means(weights, kept)


def first_only(weights, micro_batches):
    return by_formula(weights, micro_batches[:1])


def summed(weights, micro_batches):
    return sum(g for g, _, _ in parts(weights, micro_batches))


def padding_is_token_0(weights, micro_batches):
    return one_big_batch(weights, [(x, y.relu()) for x, y in micro_batches])


# -- learn: right ------------------------------------------------------------
def slope(w, x, y):
    """Loss and gradient of one batch, worked out."""
    p = (x @ w).softmax(-1)
    nats = -p[torch.arange(len(y)), y].log().mean().item()
    return nats, x.T @ (p - F.one_hot(y, p.size(-1))) / len(y)


def by_hand(weights, batches, epochs, peak, limit):
    w, losses, steps = weights.clone(), [], epochs * len(batches)
    for done in range(steps):
        nats, g = slope(w, *batches[done % len(batches)])
        g = g * min(1.0, limit / g.norm().item())
        w = w - peak * (1 - done / steps) * g
        losses.append(nats)
    return w, losses


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


# -- learn: wrong ------------------------------------------------------------
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


def no_zero_grad(weights, batches, epochs, peak, limit):
    held = torch.zeros_like(weights)

    def pile(g):
        nonlocal held
        held = held + g
        held = held * min(1, limit / float(held.norm()))
        return held

    return walk(weights, batches, epochs, peak, limit, shorten=pile)


def clip_after(weights, batches, epochs, peak, limit):
    return walk(weights, batches, epochs, peak, limit, shorten=lambda g: g)


def by_value(weights, batches, epochs, peak, limit):
    def cut(g):
        return g.clamp(-limit, limit)

    return walk(weights, batches, epochs, peak, limit, shorten=cut)


def always_scaled(weights, batches, epochs, peak, limit):
    def unit(g):
        return F.normalize(g.flatten(), dim=0).view_as(g) * limit

    return walk(weights, batches, epochs, peak, limit, shorten=unit)


def per_epoch(weights, batches, epochs, peak, limit):
    def stairs(epoch, i):
        return 1 - epoch / epochs

    return walk(weights, batches, epochs, peak, limit, rate=stairs)


def constant(weights, batches, epochs, peak, limit):
    def level(epoch, i):
        return 1

    return walk(weights, batches, epochs, peak, limit, rate=level)


# -- learn: mistakes that the catalogue does not have ------------------------
def column_by_column(weights, batches, epochs, peak, limit):
    def cut(g):
        return g * (limit / g.norm(dim=0)).clamp(max=1)

    return walk(weights, batches, epochs, peak, limit, shorten=cut)


def counted_from_one(weights, batches, epochs, peak, limit):
    steps = epochs * len(batches)

    def early(epoch, i):
        return 1 - (epoch * len(batches) + i + 1) / steps

    return walk(weights, batches, epochs, peak, limit, rate=early)


def one_epoch(weights, batches, epochs, peak, limit):
    return by_hand(weights, batches, 1, peak, limit)


def loss_after_the_step(weights, batches, epochs, peak, limit):
    w, _ = by_hand(weights, batches, epochs, peak, limit)
    late = [slope(w, x, y)[0] for x, y in batches]
    return w, late * epochs


# -- plan: right -------------------------------------------------------------
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


# -- plan: wrong -------------------------------------------------------------
def changed(result, names, place, value):
    """A plan with one number changed for the parameters so named."""
    out = {}
    for name, numbers in result.items():
        numbers = list(numbers)
        if names(name):
            numbers[place] = value
        out[name] = tuple(numbers)
    return out


def all_decay(shapes, n_layers, std, decay):
    good = by_axes(shapes, n_layers, std, decay)
    return changed(good, lambda name: True, 2, decay)


def by_bias(shapes, n_layers, std, decay):
    good = by_axes(shapes, n_layers, std, decay)
    return changed(good, lambda name: not name.endswith("bias"), 2, decay)


def writes(name):
    return name.endswith(("w_o.weight", "w_out.weight"))


def layers_once(shapes, n_layers, std, decay):
    good = by_axes(shapes, n_layers, std, decay)
    return changed(good, writes, 1, std / math.sqrt(n_layers))


def twice_the_layers(shapes, n_layers, std, decay):
    good = by_axes(shapes, n_layers, std, decay)
    return changed(good, writes, 1, std / n_layers / 2)


def only_w_o(shapes, n_layers, std, decay):
    good = by_axes(shapes, n_layers, std, decay)
    return changed(good, lambda name: "w_out" in name, 1, std)


def gains_zero(shapes, n_layers, std, decay):
    good = by_axes(shapes, n_layers, std, decay)
    return changed(good, lambda name: True, 0, 0.0)


# -- plan: mistakes that the catalogue does not have -------------------------
def nothing_decays(shapes, n_layers, std, decay):
    good = by_axes(shapes, n_layers, std, decay)
    return changed(good, lambda name: True, 2, 0.0)


def writers_do_not_decay(shapes, n_layers, std, decay):
    good = by_axes(shapes, n_layers, std, decay)
    return changed(good, writes, 2, 0.0)


def first_layer_scaled(shapes, n_layers, std, decay):
    good = by_axes(shapes, n_layers, std, decay)
    narrow = std / math.sqrt(2 * n_layers)
    return changed(good, lambda name: "w_in.weight" in name, 1, narrow)


def so_far(weights, micro_batches):
    total, seen = torch.zeros_like(weights), 0
    for g, n, _ in parts(weights, micro_batches):
        seen += n
        total += g / max(int(seen), 1)
    return total


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


def floor_share(n, peak, total, warmup, floor):
    found = []
    for step in range(1, n + 1):
        if step <= warmup:
            share = step / warmup
        else:
            done = min(1.0, (step - warmup) / (total - warmup))
            wave = 0.5 + 0.5 * math.cos(math.pi * done)
            share = floor + (1 - floor) * wave
        found.append(peak * share)
    return found


def peak_missed(n, peak, total, warmup, floor):
    rates = []
    for step in range(1, n + 1):
        wave = (1 + math.cos(math.pi * min(step / total, 1))) / 2
        down = floor + (peak - floor) * wave
        rates.append(peak * step / warmup if step < warmup else down)
    return rates


def by_name(shapes, n_layers, std, decay):
    plan = {}
    for name in shapes:
        plan[name] = (0.0, std, decay)
        if "w_o." in name or "w_out." in name:
            plan[name] = (0.0, std * (2 * n_layers) ** -0.5, decay)
        if name.endswith("bias"):
            plan[name] = (0.0, 0.0, 0.0)
    return plan


def turned_round(weights, micro_batches):
    x, y = (torch.cat(part) for part in zip(*micro_batches, strict=True))
    w = weights.clone().requires_grad_()
    F.cross_entropy(x @ w, y).neg().backward()
    return w.grad


RIGHT = {
    "rates": [one_by_one, in_one_go, piece_by_piece],
    "update": [number_by_number, decay_first, in_place_on_copies],
    "accumulate": [one_big_batch, by_formula, backward_adds_up],
    "learn": [by_hand, with_autograd, with_scheduler],
    "plan": [by_axes, in_layers, three_tables],
}
WRONG = {
    "rates": {
        "from_zero": from_zero,
        "whole_way": whole_way,
        "rises_again": rises_again,
        "floor_cuts": floor_cuts,
        "floor_share": floor_share,
        "peak_missed": peak_missed,
    },
    "update": {
        "l2": l2,
        "decay_whole": decay_whole,
        "no_correction": no_correction,
        "corrected_kept": corrected_kept,
        "no_root": no_root,
        "eps_inside": eps_inside,
    },
    "accumulate": {
        "mean_of_means": mean_of_means,
        "not_divided": not_divided,
        "all_rows": all_rows,
        "last_only": last_only,
        "others_mean": empty_ones_left_out,
        "so_far": so_far,
        "summed": summed,
    },
    "learn": {
        "no_zero_grad": no_zero_grad,
        "clip_after": clip_after,
        "by_value": by_value,
        "always_scaled": always_scaled,
        "per_epoch": per_epoch,
        "constant": constant,
        "graphs_kept": graphs_kept,
        "ends_at_zero": counted_from_one,
    },
    "plan": {
        "all_decay": all_decay,
        "by_bias": by_bias,
        "layers_once": layers_once,
        "no_root": twice_the_layers,
        "only_w_o": only_w_o,
        "gains_zero": gains_zero,
        "by_name": by_name,
    },
}
OUTSIDE = {
    "rates": [whole_wave, warm_up_of_one, not_warmed_up, degrees],
    "update": [uphill, no_memory, old_mean, memory_of_pytorch],
    "accumulate": [first_only, padding_is_token_0, turned_round],
    "learn": [column_by_column, one_epoch, loss_after_the_step],
    "plan": [nothing_decays, writers_do_not_decay, first_layer_scaled],
}
