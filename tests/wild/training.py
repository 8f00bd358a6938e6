"""Answers to chapter 11, written from its page alone."""

import math
import re

import torch
from torch import nn
from torch.nn import functional as F

from tests.wild import right, wrong

# training/rates


@right("training/rates", "a squared cosine of half the angle, in a generator")
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


@right("training/rates", "tensors, and tolist at the end")
def rates_by_tensors(n, peak, total, warmup, floor):
    t = torch.arange(1, n + 1, dtype=torch.float64)
    share = ((t - warmup) / max(total - warmup, 1)).clamp(0, 1)
    down = floor + (peak - floor) * (1 + torch.cos(math.pi * share)) / 2
    up = peak * t / max(warmup, 1)
    return torch.where(t < warmup, up, down).tolist()


@wrong("training/rates", "counts updates from 0", classic=True)
def from_zero(n, peak, total, warmup, floor):
    out = []
    for step in range(n):
        if step < warmup:
            out.append(peak * step / warmup)
        else:
            share = min(1.0, (step - warmup) / (total - warmup))
            wave = (1 + math.cos(math.pi * share)) / 2
            out.append(floor + (peak - floor) * wave)
    return out


@wrong(
    "training/rates",
    "the share is not kept at 1, so the cosine rises "
    "again after the last update",
    classic=True,
)
def rises_again(n, peak, total, warmup, floor):
    out = []
    for step in range(1, n + 1):
        if step < warmup:
            out.append(peak * step / warmup)
            continue
        share = (step - warmup) / (total - warmup)
        wave = 0.5 * (1 + math.cos(math.pi * share))
        out.append(floor + (peak - floor) * wave)
    return out


@wrong(
    "training/rates", "floor is taken for a share of the peak", classic=True
)
def floor_as_a_share(n, peak, total, warmup, floor):
    def rate(step):
        if step < warmup:
            return peak * step / warmup
        share = min((step - warmup) / (total - warmup), 1)
        wave = (1 + math.cos(math.pi * share)) / 2
        return peak * (floor + (1 - floor) * wave)

    return [rate(step) for step in range(1, n + 1)]


@wrong(
    "training/rates",
    "the cosine begins at update 0, not at the end of the warm-up",
    classic=True,
)
def cosine_from_the_start(n, peak, total, warmup, floor):
    def rate(step):
        if step < warmup:
            return peak * step / warmup
        wave = (1 + math.cos(math.pi * min(step / total, 1))) / 2
        return floor + (peak - floor) * wave

    return [rate(step) for step in range(1, n + 1)]


@wrong(
    "training/rates",
    "the cosine goes to 0 and is cut off at floor, instead of ending there",
    classic=True,
)
def cut_off_at_floor(n, peak, total, warmup, floor):
    def rate(step):
        if step < warmup:
            return peak * step / warmup
        share = min((step - warmup) / (total - warmup), 1)
        return max(floor, peak * (1 + math.cos(math.pi * share)) / 2)

    return [rate(step) for step in range(1, n + 1)]


@wrong("training/rates", "divides by a warm-up of 0", classic=False)
def divides_by_no_warmup(n, peak, total, warmup, floor):
    out = []
    for step in range(1, n + 1):
        up = min(step / warmup, 1)
        share = min(max(step - warmup, 0) / (total - warmup), 1)
        wave = (1 + math.cos(math.pi * share)) / 2
        out.append(peak * up if up < 1 else floor + (peak - floor) * wave)
    return out


# training/update


@right("training/update", "lerp, and the corrections folded into the rate")
def folded_update(w, g, m, v, step, rate, decay):
    m = torch.lerp(m, g, 0.1)
    v = torch.lerp(v, g.square(), 0.01)
    root = v.sqrt().div(math.sqrt(1 - 0.99**step)).add(1e-8)
    shrunk = w * (1 - rate * decay)
    return shrunk - rate / (1 - 0.9**step) * m / root, m, v


@right("training/update", "number by number, in lists")
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


@wrong("training/update", "the corrected m and v are returned", classic=True)
def returns_corrected(w, g, m, v, step, rate, decay):
    m = (0.9 * m + 0.1 * g) / (1 - 0.9**step)
    v = (0.99 * v + 0.01 * g**2) / (1 - 0.99**step)
    return w - rate * (m / (v.sqrt() + 1e-8) + decay * w), m, v


@wrong("training/update", "epsilon stands under the root", classic=True)
def epsilon_inside(w, g, m, v, step, rate, decay):
    m = 0.9 * m + 0.1 * g
    v = 0.99 * v + 0.01 * g**2
    m_hat, v_hat = m / (1 - 0.9**step), v / (1 - 0.99**step)
    change = m_hat / (v_hat + 1e-8).sqrt() + decay * w
    return w - rate * change, m, v


@wrong(
    "training/update",
    "the decay is put into the gradient, as Adam has it",
    classic=True,
)
def decay_in_the_gradient(w, g, m, v, step, rate, decay):
    g = g + decay * w
    m = 0.9 * m + 0.1 * g
    v = 0.99 * v + 0.01 * g * g
    up = m / (1 - 0.9**step)
    down = (v / (1 - 0.99**step)).sqrt() + 1e-8
    return w - rate * up / down, m, v


@wrong(
    "training/update", "the decay is not multiplied by the rate", classic=True
)
def decay_without_rate(w, g, m, v, step, rate, decay):
    m = 0.9 * m + 0.1 * g
    v = 0.99 * v + 0.01 * g * g
    m_hat, v_hat = m / (1 - 0.9**step), v / (1 - 0.99**step)
    return w * (1 - decay) - rate * m_hat / (v_hat.sqrt() + 1e-8), m, v


@wrong(
    "training/update",
    "m and v are not corrected for their start at 0",
    classic=True,
)
def not_corrected(w, g, m, v, step, rate, decay):
    m = 0.9 * m + 0.1 * g
    v = 0.99 * v + 0.01 * g.pow(2)
    return w - rate * (m / (v.sqrt() + 1e-8) + decay * w), m, v


@wrong("training/update", "m, v and w are changed in place", classic=True)
def in_place(w, g, m, v, step, rate, decay):
    m.mul_(0.9).add_(g, alpha=0.1)
    v.mul_(0.99).addcmul_(g, g, value=0.01)
    root = (v / (1 - 0.99**step)).sqrt_().add_(1e-8)
    w.mul_(1 - rate * decay)
    w.addcdiv_(m, root, value=-rate / (1 - 0.9**step))
    return w, m, v


@wrong(
    "training/update",
    "the update is counted from 0, which divides by 0 in the first",
    classic=False,
)
def counted_from_zero(w, g, m, v, step, rate, decay):
    t = step - 1
    m = 0.9 * m + 0.1 * g
    v = 0.99 * v + 0.01 * g**2
    c1 = torch.tensor(1 - 0.9**t, dtype=w.dtype)
    c2 = torch.tensor(1 - 0.99**t, dtype=w.dtype)
    change = (m / c1) / ((v / c2).sqrt() + 1e-8) + decay * w
    return w - rate * change, m, v


# training/accumulate


@right("training/accumulate", "p minus y by hand, without autograd")
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


@right("training/accumulate", "all pairs joined to one big batch")
def joined(weights, micro_batches):
    xs, ys = zip(*micro_batches, strict=True)
    w = weights.detach().clone().requires_grad_(True)
    loss = F.cross_entropy(torch.cat(xs) @ w, torch.cat(ys))
    (slope,) = torch.autograd.grad(loss, [w])
    return slope


@wrong(
    "training/accumulate",
    "each pair is weighted by the length of y, padding included",
    classic=True,
)
def weighted_by_length(weights, micro_batches):
    w = weights.clone().requires_grad_()
    n = sum(len(y) for _, y in micro_batches)
    for x, y in micro_batches:
        loss = F.cross_entropy(x @ w, y, reduction="sum")
        (loss / n).backward()
    return w.grad


@wrong(
    "training/accumulate",
    "still the mean of means, but pairs without targets are skipped",
    classic=True,
)
def mean_of_the_others(weights, micro_batches):
    w = weights.clone().requires_grad_()
    some = [(x, y) for x, y in micro_batches if (y != -100).any()]
    for x, y in some:
        (F.cross_entropy(x @ w, y) / len(some)).backward()
    return w.grad


@wrong("training/accumulate", "the sum, never divided", classic=True)
def never_divided(weights, micro_batches):
    w = weights.clone().requires_grad_()
    for x, y in micro_batches:
        F.cross_entropy(x @ w, y, reduction="sum").backward()
    return w.grad


@wrong(
    "training/accumulate",
    "divides by the count of targets seen so far, not by that of all",
    classic=True,
)
def count_so_far(weights, micro_batches):
    w = weights.clone().requires_grad_()
    seen = 0
    for x, y in micro_batches:
        seen += int((y != -100).sum())
        loss = F.cross_entropy(x @ w, y, reduction="sum")
        (loss / max(seen, 1)).backward()
    return w.grad


@wrong(
    "training/accumulate",
    "a pair without targets brings NaN times 0",
    classic=False,
)
def nan_times_zero(weights, micro_batches):
    w = weights.clone().requires_grad_()
    counts = [(y != -100).sum() for _, y in micro_batches]
    for (x, y), n in zip(micro_batches, counts, strict=True):
        mean = F.cross_entropy(x @ w, y)
        (mean * n / sum(counts)).backward()
    return w.grad


@wrong(
    "training/accumulate",
    "the loss does not depend on the copy, so "
    "that its gradient is None or backward raises",
    classic=False,
)
def the_wrong_copy(weights, micro_batches):
    w = weights.clone().requires_grad_()
    n = sum(int((y != -100).sum()) for _, y in micro_batches)
    for x, y in micro_batches:
        loss = F.cross_entropy(x @ weights, y, reduction="sum") / n
        loss.backward()
    return w.grad


# training/learn


@right("training/learn", "no optimizer: gradients and clipping by hand")
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


@right("training/learn", "a LambdaLR and an optimizer made once")
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


@wrong("training/learn", "gradients are never cleared", classic=True)
def never_cleared(weights, batches, epochs, peak, limit):
    w = weights.clone().requires_grad_()
    optimizer = torch.optim.SGD([w], lr=peak)
    losses, done = [], 0
    for _ in range(epochs):
        for x, y in batches:
            rate = peak * (1 - done / (epochs * len(batches)))
            optimizer.param_groups[0]["lr"] = rate
            loss = F.cross_entropy(x @ w, y)
            loss.backward()
            nn.utils.clip_grad_norm_([w], limit)
            optimizer.step()
            losses.append(loss.item())
            done += 1
    return w.detach(), losses


@wrong("training/learn", "clips after the step", classic=True)
def clips_too_late(weights, batches, epochs, peak, limit):
    w = weights.clone().requires_grad_()
    optimizer = torch.optim.SGD([w], lr=peak)
    losses, done = [], 0
    for _ in range(epochs):
        for x, y in batches:
            rate = peak * (1 - done / (epochs * len(batches)))
            optimizer.param_groups[0]["lr"] = rate
            optimizer.zero_grad()
            loss = F.cross_entropy(x @ w, y)
            loss.backward()
            optimizer.step()
            nn.utils.clip_grad_norm_([w], limit)
            losses.append(loss.item())
            done += 1
    return w.detach(), losses


@wrong(
    "training/learn",
    "the rate falls with each epoch, not with each step",
    classic=True,
)
def rate_by_epochs(weights, batches, epochs, peak, limit):
    w = weights.clone().requires_grad_()
    losses = []
    for epoch in range(epochs):
        rate = peak * (1 - epoch / epochs)
        for x, y in batches:
            w.grad = None
            loss = F.cross_entropy(x @ w, y)
            loss.backward()
            nn.utils.clip_grad_norm_([w], limit)
            with torch.no_grad():
                w -= rate * w.grad
            losses.append(loss.item())
    return w.detach(), losses


@wrong(
    "training/learn",
    "steps done are counted from 1, so that the last one has rate 0",
    classic=True,
)
def counts_from_one(weights, batches, epochs, peak, limit):
    w = weights.clone().requires_grad_()
    optimizer = torch.optim.SGD([w], lr=peak)
    losses, done = [], 0
    steps = epochs * len(batches)
    for _ in range(epochs):
        for x, y in batches:
            done += 1
            optimizer.param_groups[0]["lr"] = peak * (1 - done / steps)
            optimizer.zero_grad()
            loss = F.cross_entropy(x @ w, y)
            loss.backward()
            nn.utils.clip_grad_norm_([w], limit)
            optimizer.step()
            losses.append(loss.item())
    return w.detach(), losses


@wrong(
    "training/learn",
    "every number of the gradient is clipped by itself, not the length",
    classic=True,
)
def clips_values(weights, batches, epochs, peak, limit):
    w = weights.clone().requires_grad_()
    losses, steps = [], epochs * len(batches)
    for done in range(steps):
        x, y = batches[done % len(batches)]
        w.grad = None
        loss = F.cross_entropy(x @ w, y)
        loss.backward()
        nn.utils.clip_grad_value_([w], limit)
        with torch.no_grad():
            w -= peak * (1 - done / steps) * w.grad
        losses.append(loss.item())
    return w.detach(), losses


@wrong(
    "training/learn",
    "short gradients are stretched to the limit, too",
    classic=True,
)
def always_that_long(weights, batches, epochs, peak, limit):
    w = weights.clone().requires_grad_()
    losses, steps = [], epochs * len(batches)
    for done in range(steps):
        x, y = batches[done % len(batches)]
        loss = F.cross_entropy(x @ w, y)
        (g,) = torch.autograd.grad(loss, w)
        g = g / g.norm() * limit
        with torch.no_grad():
            w -= peak * (1 - done / steps) * g
        losses.append(loss.item())
    return w.detach(), losses


@wrong(
    "training/learn",
    "losses are tensors that hold their graphs, not numbers",
    classic=True,
)
def keeps_the_graphs(weights, batches, epochs, peak, limit):
    w = weights.clone().requires_grad_()
    optimizer = torch.optim.SGD([w], lr=peak)
    losses, done = [], 0
    for _ in range(epochs):
        for x, y in batches:
            rate = peak * (1 - done / (epochs * len(batches)))
            optimizer.param_groups[0]["lr"] = rate
            optimizer.zero_grad()
            losses.append(F.cross_entropy(x @ w, y))
            losses[-1].backward()
            nn.utils.clip_grad_norm_([w], limit)
            optimizer.step()
            done += 1
    return w.detach(), losses


@wrong(
    "training/learn",
    "gradients are cleared between backward and step, "
    "so that nothing is learned",
    classic=False,
)
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


# training/plan


@right("training/plan", "a class that looks names up by regular expressions")
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


@right("training/plan", "one conditional expression in a comprehension")
def one_expression(shapes, n_layers, std, decay):
    writers = ("w_o.weight", "w_out.weight")
    return {
        k: (int(not k.endswith("bias")), 0, 0)
        if len(s) == 1
        else (0, std / (math.sqrt(2 * n_layers) ** k.endswith(writers)), decay)
        for k, s in shapes.items()
    }


@wrong(
    "training/plan",
    "divides by the root of the number of blocks, not "
    "of the two writers in each",
    classic=True,
)
def one_writer_a_block(shapes, n_layers, std, decay):
    out = {}
    for name, shape in shapes.items():
        if len(shape) == 1:
            out[name] = (0 if name.endswith("bias") else 1, 0, 0)
        elif name.endswith(("w_o.weight", "w_out.weight")):
            out[name] = (0, std / math.sqrt(n_layers), decay)
        else:
            out[name] = (0, std, decay)
    return out


@wrong(
    "training/plan",
    "divides by the number of writers, without the root",
    classic=True,
)
def without_the_root(shapes, n_layers, std, decay):
    out = {}
    for name, shape in shapes.items():
        if len(shape) == 1:
            out[name] = (0 if name.endswith("bias") else 1, 0, 0)
        elif name.endswith(("w_o.weight", "w_out.weight")):
            out[name] = (0, std / (2 * n_layers), decay)
        else:
            out[name] = (0, std, decay)
    return out


@wrong(
    "training/plan",
    "vectors are drawn with a spread and decay like matrices",
    classic=True,
)
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


@wrong("training/plan", "scales of the norms begin at 0", classic=True)
def scales_at_zero(shapes, n_layers, std, decay):
    root = math.sqrt(2 * n_layers)
    out = {}
    for name, shape in shapes.items():
        if len(shape) < 2:
            out[name] = (0.0, 0.0, 0.0)
        else:
            writes = name.endswith(("w_o.weight", "w_out.weight"))
            out[name] = (0.0, std / root if writes else std, decay)
    return out


@wrong(
    "training/plan",
    "only the attention's output is scaled, the network's is forgotten",
    classic=True,
)
def network_forgotten(shapes, n_layers, std, decay):
    out = {}
    for name, shape in shapes.items():
        if len(shape) < 2:
            out[name] = (float(not name.endswith("bias")), 0.0, 0.0)
        elif name.endswith("w_o.weight"):
            out[name] = (0.0, std / (2 * n_layers) ** 0.5, decay)
        else:
            out[name] = (0.0, std, decay)
    return out


@wrong("training/plan", "a list of triples, without the names", classic=False)
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
