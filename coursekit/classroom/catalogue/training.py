"""Exercises of chapter 11: training."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from coursekit.classroom.check.core import (
    NONE,
    Bug,
    Case,
    Exercise,
    Switches,
    generator,
)

float64 = torch.float64
Pair = tuple[Tensor, Tensor]


# -- implement: the learning rate --------------------------------------------
def rates(
    n: int,
    peak: float,
    total: int,
    warmup: int,
    floor: float,
    *,
    on: Switches = NONE,
) -> list[float]:
    """The learning rates of updates 1 to n, in their order.

    Updates are counted from 1. In the first `warmup` of them the rate rises in
    a line: `peak · step / warmup`, so that it is `peak` at update `warmup`.
    From there it falls along half a cosine, and is `floor` at update `total`:
    `floor + (peak − floor) · (1 + cos π p) / 2`, where p is the share of the
    way from `warmup` to `total`, from 0 to 1. After `total` it stays `floor`.
    `warmup` is a whole number from 0 to `total − 1`; if it is 0, there is no
    rise. `floor` is a rate, not a share. The result is a list of n numbers.
    """
    found = []
    for number in range(n):
        step = number if "from_zero" in on else number + 1
        if step <= warmup and warmup > 0:
            found.append(peak * step / warmup)
        else:
            if "whole_way" in on:
                way = step / total
            else:
                way = (step - warmup) / (total - warmup)
            if "rises_again" not in on:
                way = min(way, 1.0)
            if "line" in on:
                height = 1 - way
            else:
                height = (1 + math.cos(math.pi * way)) / 2
            if "no_floor" in on:
                found.append(peak * height)
            elif "floor_added" in on:
                found.append(floor + peak * height)
            elif "floor_cuts" in on:
                found.append(max(floor, peak * height))
            else:
                found.append(floor + (peak - floor) * height)
    return found


_RATES_BUGS = {
    "from_zero": Bug(
        "updates counted from 0",
        "The first update then has rate 0 and does nothing, and every later "
        "one has its neighbor's rate. Count from 1.",
        read="11_training#train-rate",
        at="count",
    ),
    "whole_way": Bug(
        "a cosine that begins at update 0, not at the end of the warm-up",
        "The way down starts where the rise ends: its share is "
        "(step − warmup) / (total − warmup). Else the rate jumps.",
        read="11_training#train-rate",
        at="way",
    ),
    "rises_again": Bug(
        "a cosine that rises again after the last update",
        "Beyond π the cosine climbs. Keep the fraction of the way at most 1.",
        read="11_training#train-rate",
        at="floor",
    ),
    "no_floor": Bug(
        "a rate that falls to 0 instead of the floor",
        "The floor is where the rate ends: only the part above it, "
        "peak − floor, takes part in the fall.",
        read="11_training#train-rate",
        at="floor",
    ),
    "floor_added": Bug(
        "the floor added on top of a fall from the peak to 0",
        "The rate then starts its fall above the peak. What falls is "
        "peak − floor.",
        read="11_training#train-rate",
        at="floor",
    ),
    "floor_cuts": Bug(
        "a fall to 0 that is cut off at the floor",
        "max(floor, …) makes the last stretch flat. The curve itself should "
        "arrive at the floor: floor + (peak − floor) · …",
        read="11_training#train-rate",
        at="floor",
    ),
}


def _rates_cases(seed: int) -> list[Case]:
    g = generator(seed)
    peak = 1e-3 * (1 + torch.rand(1, generator=g).item())
    warmup = int(torch.randint(3, 7, (), generator=g))
    total = int(torch.randint(23, 30, (), generator=g))
    return [
        Case(
            (total + 5, peak, total, warmup, peak / 10),
            name=f"{warmup} updates of warm-up, {total} in all",
        ),
        Case((13, peak, 13, 0, peak / 5), name="no warm-up"),
    ]


# -- implement: AdamW --------------------------------------------------------
def update(
    w: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    step: int,
    rate: float,
    decay: float,
    *,
    on: Switches = NONE,
) -> tuple[Tensor, Tensor, Tensor]:
    """One update by AdamW: the new weights, mean and mean square.

    `w` are weights, `g` their gradient, `m` and `v` the running mean and the
    running mean square of gradients that the update before left: four tensors
    of the same shape. `step` counts updates from 1. The memories are β₁ = 0.9
    for the mean and β₂ = 0.99 for the mean square; ε is 1e-8.
    The new m is `β₁ m + (1 − β₁) g`, the new v is `β₂ v + (1 − β₂) g²`. Both
    begin at 0, so each is divided by `1 − β^step`, with its own β, before it
    is used: m̂ and v̂. The new weights are
    `w − rate · (m̂ / (√v̂ + ε) + decay · w)`.
    The result is `(w, m, v)`, the new ones, m and v as they are *before* they
    are divided. The arguments stay as they are.
    """
    beta1, beta2, eps = 0.9, 0.99, 1e-8
    if "betas_swapped" in on:
        beta1, beta2 = beta2, beta1
    if "l2" in on:
        g = g + decay * w
    m = beta1 * m + (1 - beta1) * g
    if "no_square" in on:
        v = beta2 * v + (1 - beta2) * g.abs()
    else:
        v = beta2 * v + (1 - beta2) * g**2
    if "no_correction" in on:
        mean, square = m, v
    else:
        mean = m / (1 - beta1**step)
        square = v / (1 - beta2**step)
    if "no_root" in on:
        change = mean / (square + eps)
    elif "eps_inside" in on:
        change = mean / (square + eps) ** 0.5
    else:
        change = mean / (square**0.5 + eps)
    if "l2" in on:
        new = w - rate * change
    elif "decay_whole" in on:
        new = w - rate * change - decay * w
    elif "decay_added" in on:
        new = w - rate * (change - decay * w)
    else:
        new = w - rate * (change + decay * w)
    if "corrected_kept" in on:
        return new, mean, square
    else:
        return new, m, v


_UPDATE_BUGS = {
    "l2": Bug(
        "the decay added to the gradient (Adam with L2, not AdamW)",
        "It then goes through m and v and is divided by √v̂: weights with "
        "large gradients hardly decay. AdamW keeps it apart.",
        read="11_training#train-adamw",
        at="decay",
    ),
    "decay_whole": Bug(
        "a decay that is not multiplied by the learning rate",
        "Each update then takes away a fraction `decay` of every weight, a "
        "thousand times too much. It is rate · decay · w.",
        read="11_training#train-adamw",
        at="decay",
    ),
    "decay_added": Bug(
        "a decay with the wrong sign: weights grow",
        "Decay pulls toward 0: it is subtracted, as the gradient is.",
        read="11_training#train-adamw",
        at="decay",
    ),
    "no_correction": Bug(
        "m and v used as they are, without dividing by 1 − β^step",
        "Both begin at 0 and are too small at first, and not equally so: "
        "early steps come out up to twice as long.",
        read="11_training#train-by-hand",
        at="correction",
    ),
    "corrected_kept": Bug(
        "the divided m̂ and v̂ returned instead of m and v",
        "The next update would divide what has been divided. Keep the "
        "plain ones, and divide again each time.",
        read="11_training#train-by-hand",
        at="correction",
    ),
    "betas_swapped": Bug(
        "β₁ and β₂ in each other's place",
        "The mean forgets fast (0.9), the mean square slowly (0.99): a "
        "length is to be steadier than a direction.",
        read="11_training#train-adamw",
    ),
    "no_square": Bug(
        "a mean of |g| where g² is due",
        "v is the mean of the squares; its root has the gradient's unit.",
        read="11_training#train-adamw",
        at="divide",
    ),
    "no_root": Bug(
        "a division by v̂ instead of √v̂",
        "v̂ has the unit of a gradient squared. Only its root cancels the "
        "unit of m̂, so that a step has about the length of the rate.",
        read="11_training#train-by-hand",
        at="divide",
    ),
    "eps_inside": Bug(
        "ε under the root, √(v̂ + ε), instead of behind it",
        "√1e-8 is 1e-4: under the root ε is ten thousand times as large, "
        "and slows every weight whose gradients are small.",
        read="11_training#train-adamw",
        at="divide",
    ),
}


def _update_cases(seed: int) -> list[Case]:
    g = generator(seed)

    def draw(scale: float) -> Tensor:
        return scale * torch.randn(3, 5, generator=g, dtype=float64)

    w, gradient = draw(1.0), draw(1.0)
    for x in (w, gradient):
        x[1] *= 1e-4  # here it matters where ε stands
    zero = torch.zeros_like(w)
    old = draw(0.3), draw(1.0) ** 2
    later = int(torch.randint(5, 9, (), generator=g))
    return [
        Case((w, gradient, zero, zero, 1, 0.01, 0.1), name="the first update"),
        Case((w, gradient, *old, later, 0.03, 0.2), name=f"update {later}"),
    ]


# -- debug: gradient accumulation --------------------------------------------
def accumulate(
    weights: Tensor,
    micro_batches: Sequence[Pair],
    *,
    on: Switches = NONE,
) -> Tensor:
    """The gradient that one big batch would have, from its parts.

    `weights` is `(D, V)`. `micro_batches` is a list of pairs: inputs x,
    `(N, D)`, and targets y, `(N,)`, whole numbers from 0 to `V − 1`, or −100
    for one that does not count. N differs from pair to pair, and so does the
    number of targets that count; in some it is 0. In all together at least
    one counts. The logits of a pair are `x @ weights`, and the surprise at a
    target is −ln of its softmax.
    The result, `(D, V)`, is the gradient, by `weights`, of the mean surprise
    over all targets of all pairs that count, each with the same weight: what
    the pairs would give if they were one big batch.
    """
    w = weights.detach().requires_grad_()
    gradient = torch.zeros_like(weights)
    if "last_counts" in on:
        n_all = int((micro_batches[-1][1] != -100).sum())
    elif "all_rows" in on or "by_rows" in on:
        n_all = sum(len(y) for _, y in micro_batches)
    else:
        n_all = sum(int((y != -100).sum()) for _, y in micro_batches)
    seen = 0
    for x, y in micro_batches:
        nats = F.cross_entropy(x @ w, y, reduction="sum")
        if "mean_of_means" in on:
            own = (y != -100).sum().clamp(min=1)
            loss = nats / own / len(micro_batches)
        elif "not_divided" in on:
            loss = nats / (y != -100).sum().clamp(min=1)
        elif "others_mean" in on:
            own = (y != -100).sum().clamp(min=1)
            some = [y for _, y in micro_batches if (y != -100).any()]
            loss = nats / own / len(some)
        elif "so_far" in on:
            seen += int((y != -100).sum())
            loss = nats / max(seen, 1)
        elif "by_rows" in on:
            own = (y != -100).sum().clamp(min=1)
            loss = nats / own * len(y) / n_all
        else:
            loss = nats / n_all
        (part,) = torch.autograd.grad(loss, w)
        gradient = part if "last_only" in on else gradient + part
    return gradient


_ACCUMULATE_BUGS = {
    "mean_of_means": Bug(
        "the mean of the micro-batches' means",
        "A target in a micro-batch with few of them then weighs more than "
        "one in company. Divide sums by the number of all targets.",
        read="11_training#train-accumulate",
        at="mean",
    ),
    "not_divided": Bug(
        "the micro-batches' mean losses added up and not divided",
        "Each backward adds to what is there: the more micro-batches, the "
        "longer the gradient. Divide once, by the number of all targets.",
        read="11_training#train-accumulate",
        at="mean",
    ),
    "by_rows": Bug(
        "micro-batches weighed by their rows, padding included",
        "What weighs is a target that counts. A micro-batch with much "
        "padding has few of them.",
        read="11_training#train-accumulate",
        at="mean",
    ),
    "all_rows": Bug(
        "a sum divided by the number of all rows, padding included",
        "Padding is in neither the sum nor the number divided by: long "
        "padding would shrink the step.",
        read="10_loss#loss-formula",
        at="mean",
    ),
    "last_counts": Bug(
        "a division by the number of targets in the last micro-batch",
        "A variable that a loop has left behind. Count the targets of all "
        "micro-batches before the first backward.",
        read="11_training#train-accumulate",
        at="mean",
    ),
    "last_only": Bug(
        "the gradient of the last micro-batch alone",
        "Gradients are cleared once an update, not once a micro-batch.",
        read="11_training#train-accumulate",
        at="add",
    ),
    "others_mean": Bug(
        "the mean of the means of those micro-batches that have targets",
        "A target in a micro-batch with few of them still weighs more than "
        "one in company. Divide sums by the number of all targets.",
        read="11_training#train-accumulate",
        at="mean",
        alone=True,
    ),
    "so_far": Bug(
        "a division by the number of targets seen so far",
        "The first micro-batch then weighs too much. Count the targets of "
        "all micro-batches before the first backward.",
        read="11_training#train-accumulate",
        at="mean",
        alone=True,
    ),
}


def _accumulate_cases(seed: int) -> list[Case]:
    g = generator(seed)
    weights = torch.randn(3, 7, generator=g, dtype=float64)

    def pair(n: int, padded: int) -> Pair:
        x = torch.randn(n, 3, generator=g, dtype=float64)
        y = torch.randint(7, (n,), generator=g)
        y[n - padded :] = -100
        return x, y

    parts = [pair(11, 2), pair(5, 0), pair(7, 5)]
    empty = [pair(5, 1), pair(3, 3), pair(2, 0)]
    return [
        Case((weights, parts), name="9, 5 and 2 targets"),
        Case((weights, empty), name="4, 0 and 2 targets"),
    ]


# -- debug: a careless loop --------------------------------------------------
def learn(
    weights: Tensor,
    batches: Sequence[Pair],
    epochs: int,
    peak: float,
    limit: float,
    *,
    on: Switches = NONE,
) -> tuple[Tensor, list[float]]:
    """Train by gradient descent; the weights, and the loss of each step.

    `weights` is `(D, V)`, where training starts. `batches` is a list of pairs:
    inputs x, `(N, D)`, and targets y, `(N,)`. They are gone through in their
    order, `epochs` times; each time a batch is met is one step, so there are
    `epochs · len(batches)` steps, in all. The loss of a step is the mean of
    −ln softmax(x @ weights)[target] over the batch, *before* the step.
    A step takes the gradient of that loss alone. If it is longer than `limit`
    (the root of the sum of all its squares), it is scaled down to that length;
    if it is shorter, it stays as it is. Then `rate · gradient` is subtracted.
    The rate falls with every step, in a line: `peak · (1 − done / steps)`,
    where `done` is the number of steps done before it and `steps` the number
    of all.
    The result is the weights after the last step, and the list of the losses,
    as numbers. The argument `weights` stays as it is.
    """
    w = weights.detach().clone().requires_grad_()
    optimizer = torch.optim.SGD([w], lr=peak)
    losses: list[float] = []
    for epoch in range(epochs):
        for number, (x, y) in enumerate(batches):
            if "per_epoch" in on:
                share = epoch / epochs
            elif "starts_anew" in on:
                share = number / len(batches)
            else:
                share = len(losses) / (epochs * len(batches))
            rate = peak if "constant" in on else peak * (1 - share)
            optimizer.param_groups[0]["lr"] = rate
            loss = F.cross_entropy(x @ w, y)
            if "no_zero_grad" not in on:
                optimizer.zero_grad()
            loss.backward()
            if "by_value" in on:
                nn.utils.clip_grad_value_([w], limit)
            elif "always_scaled" in on:
                assert w.grad is not None
                w.grad *= limit / w.grad.norm()
            elif "clip_after" in on:
                optimizer.step()
                nn.utils.clip_grad_norm_([w], limit)
            else:
                nn.utils.clip_grad_norm_([w], limit)
            if "clip_after" not in on:
                optimizer.step()
            if "graphs_kept" in on:
                losses.append(loss)  # type: ignore[arg-type]
            else:
                losses.append(loss.item())
    return w.detach(), losses


_LEARN_BUGS = {
    "no_zero_grad": Bug(
        "gradients of earlier steps that were never cleared",
        "backward adds to what .grad holds. Clear it before each step, or "
        "every step goes along the sum of all gradients so far.",
        read="11_training#train-wrong",
    ),
    "clip_after": Bug(
        "a gradient that is clipped after the step",
        "By then it has been used. Clip between backward and step.",
        read="11_training#train-clip",
        at="clip",
    ),
    "by_value": Bug(
        "each number of the gradient clipped by itself",
        "That turns the gradient: long entries are cut, short ones kept. "
        "Clip the length, and the direction stays.",
        read="11_training#train-clip",
        at="clip",
    ),
    "always_scaled": Bug(
        "every gradient brought to the limit's length, short ones too",
        "The limit is the most, not the least: near a minimum steps have to "
        "become short.",
        read="11_training#train-clip",
        at="clip",
    ),
    "per_epoch": Bug(
        "a rate that falls once an epoch, not with each step",
        "The schedule counts steps. Called once an epoch, it moves in "
        "stairs, and a warm-up would last for epochs.",
        read="11_training#train-wrong",
        at="rate",
    ),
    "starts_anew": Bug(
        "a rate that falls to its end in each epoch and starts again",
        "Count the steps of all epochs, not the batches of this one.",
        read="11_training#train-wrong",
        at="rate",
    ),
    "constant": Bug(
        "a learning rate that never falls",
        "Set the rate before each step: peak · (1 − done / steps).",
        read="11_training#train-rate",
        at="rate",
    ),
    "graphs_kept": Bug(
        "losses kept as tensors, which hold their graphs",
        "Each keeps everything that was computed for it, step after step, "
        "until memory is full. Keep loss.item().",
        read="11_training#train-wrong",
        alone=True,
    ),
}


def _learn_cases(seed: int) -> list[Case]:
    g = generator(seed)
    weights = torch.randn(3, 5, generator=g, dtype=float64)

    def batches(scale: float) -> list[Pair]:
        return [
            (
                scale * torch.randn(7, 3, generator=g, dtype=float64),
                torch.randint(5, (7,), generator=g),
            )
            for _ in range(4)
        ]

    return [
        Case(
            (weights, batches(1.0), 1, 0.1, 100.0),
            name="one epoch of short gradients",
        ),
        Case((weights, batches(2.0), 3, 0.3, 0.5), name="three epochs"),
    ]


# -- implement: a plan for the weights ---------------------------------------
def plan(
    shapes: Mapping[str, tuple[int, ...]],
    n_layers: int,
    std: float,
    decay: float,
    *,
    on: Switches = NONE,
) -> dict[str, tuple[float, float, float]]:
    """How each parameter starts, and how much of it decays.

    `shapes` gives the shape of each parameter by its name, in a model of
    `n_layers` blocks. The result gives, by the same names, three numbers: the
    mean and the standard deviation of its first values, and its weight decay.
    A parameter with two axes or more starts with mean 0 and standard deviation
    `std`, and has the weight decay `decay`. Those that write to the residual
    stream, whose names end in `w_o.weight` or `w_out.weight`, start with
    `std / √(2 · n_layers)` instead: each block writes twice.
    A parameter with one axis has no weight decay and standard deviation 0. It
    starts at 0 if its name ends in `bias`, else at 1.
    """
    found = {}
    for name, shape in shapes.items():
        matrix = len(shape) >= 2
        writes = name.endswith(("w_o.weight", "w_out.weight"))
        if "only_w_o" in on:
            writes = name.endswith("w_o.weight")
        elif "in_blocks" in on:
            writes = matrix and name.startswith("blocks")
        elif "none_scaled" in on:
            writes = False
        if "layers_once" in on:
            narrow = std / n_layers**0.5
        elif "no_root" in on:
            narrow = std / (2 * n_layers)
        else:
            narrow = std / (2 * n_layers) ** 0.5
        if matrix:
            start = (0.0, narrow if writes else std)
        elif "gains_zero" in on or name.endswith("bias"):
            start = (0.0, 0.0)
        else:
            start = (1.0, 0.0)
        if "all_decay" in on:
            decays = True
        elif "by_bias" in on:
            decays = not name.endswith("bias")
        elif "by_norm" in on:
            decays = "norm" not in name
        elif "tables_free" in on:
            tables = ("embedding.weight", "positions.weight")
            decays = matrix and not name.endswith(tables)
        else:
            decays = matrix
        found[name] = (*start, decay if decays else 0.0)
    return found


_PLAN_BUGS = {
    "all_decay": Bug(
        "a weight decay on every parameter",
        "Decay pulls toward 0. For a matrix that means less influence; for "
        "the gain of a norm it means another function. Vectors are free.",
        read="11_training#train-decay",
        at="decay",
    ),
    "by_bias": Bug(
        "decay on all but the biases, so on the norms' gains too",
        "A gain's neutral value is 1, and decay pulls it to 0. What decays "
        "is told by the number of axes: two or more.",
        read="11_training#train-decay",
        at="decay",
    ),
    "by_norm": Bug(
        "decay on all that is no norm, so on the linear layers' biases too",
        "A bias is a vector. What decays is told by the number of axes: two "
        "or more.",
        read="11_training#train-decay",
        at="decay",
    ),
    "layers_once": Bug(
        "√L instead of √(2L)",
        "A block writes to the stream twice, once from attention and once "
        "from its network: 2L writers.",
        read="09_decoder#dec-code",
        at="writers",
    ),
    "no_root": Bug(
        "a division by 2L without the root",
        "The variances of independent writers add up: 2L of them are √(2L) "
        "times as long as one.",
        read="09_decoder#dec-code",
        at="writers",
    ),
    "none_scaled": Bug(
        "the same standard deviation for all matrices",
        "Then a deep stream starts longer than a shallow one. Those that "
        "write to the stream are divided by √(2L).",
        read="09_decoder#dec-code",
        at="writers",
    ),
    "in_blocks": Bug(
        "every matrix of a block scaled down, not only the two that write",
        "Queries, keys, values and the network's first layer write nothing "
        "to the stream.",
        read="09_decoder#dec-code",
        at="writers",
    ),
    "only_w_o": Bug(
        "only attention's output scaled down, the network's forgotten",
        "The network's second layer, w_out, writes to the stream too.",
        read="09_decoder#dec-code",
        at="writers",
    ),
    "gains_zero": Bug(
        "gains that start at 0, as biases do",
        "A norm with gain 0 lets nothing through, neither forward nor back. "
        "Its neutral value is 1.",
        read="07_norm#ch-norm",
        at="start",
    ),
}


def _plan_cases(seed: int) -> list[Case]:
    g = generator(seed)
    n_layers = int(torch.randint(3, 9, (), generator=g))
    std = 0.02 + 0.1 * torch.rand(1, generator=g).item()
    decay = 0.05 + 0.1 * torch.rand(1, generator=g).item()
    block: dict[str, tuple[int, ...]] = {
        "attention.w_q.weight": (8, 8),
        "attention.w_q.bias": (8,),
        "attention.w_o.weight": (8, 8),
        "attention.w_o.bias": (8,),
        "attention.temperature": (2,),
        "norm.weight": (8,),
        "norm.bias": (8,),
        "feed_forward.w_in.weight": (32, 8),
        "feed_forward.w_out.weight": (8, 32),
    }
    shapes: dict[str, tuple[int, ...]] = {
        "embedding.weight": (31, 8),
        "positions.weight": (5, 8),
    }
    shapes |= {f"blocks.0.{name}": shape for name, shape in block.items()}
    shapes |= {"final_norm.weight": (8,), "head.weight": (31, 8)}
    return [
        Case((shapes, n_layers, std, decay), name=f"{n_layers} blocks"),
    ]


EXERCISES = {
    "rates": Exercise(
        rates,
        _rates_cases,
        bugs=_RATES_BUGS,
        variants={
            "line": "Here the rate falls along a straight line from the peak "
            "to the floor, not along half a cosine."
        },
        forbid=["coursekit.optim.cosine_schedule"],
    ),
    "update": Exercise(
        update,
        _update_cases,
        bugs=_UPDATE_BUGS,
        forbid=["torch.optim.AdamW", "torch.optim.Adam"],
    ),
    "accumulate": Exercise(
        accumulate,
        _accumulate_cases,
        bugs=_ACCUMULATE_BUGS,
        alike=[
            (
                {"last_only", "not_divided"},
                {"last_only", "last_counts"},
                "of the last micro-batch both take its own mean",
            )
        ],
    ),
    "learn": Exercise(
        learn,
        _learn_cases,
        rtol=1e-4,  # PyTorch's clipping adds 1e-6 to the length
        atol=1e-6,
        bugs=_LEARN_BUGS,
        planted={"no_zero_grad", "clip_after", "per_epoch"},
    ),
    "plan": Exercise(
        plan,
        _plan_cases,
        bugs=_PLAN_BUGS,
        variants={
            "tables_free": "Here the token table and the table of positions "
            "(`embedding.weight`, `positions.weight`) have no weight decay."
        },
        forbid=["coursekit.optim.parameter_groups"],
    ),
}
