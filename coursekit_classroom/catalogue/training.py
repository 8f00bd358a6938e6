"""Exercises of chapter 11: training."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from coursekit_classroom.check.core import (
    Bug,
    Case,
    Exercise,
    Variant,
    generator,
    randn,
)
from coursekit_classroom.check.families import MEAN_OF_MEANS

float64 = torch.float64
Pair = tuple[Tensor, Tensor]


# -- implement: the learning rate --------------------------------------------
def rates(
    n: int, peak: float, total: int, warmup: int, floor: float
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
    rates_so_far = []
    for step in range(1, n + 1):
        if step <= warmup:
            rates_so_far.append(peak * step / warmup)
        else:
            share = (step - warmup) / (total - warmup)
            share = min(share, 1.0)
            height = (1 + math.cos(math.pi * share)) / 2
            rates_so_far.append(floor + (peak - floor) * height)
    return rates_so_far


_RATES_BUGS = {
    "from_zero": Bug(
        "range(1, n + 1)",
        "range(n)",
        "step <= warmup",
        "step <= warmup > 0",
        says="updates counted from 0",
        why="The first update then has the rate 0 and is wasted, and each "
        "later one has the rate of the one before it. Count from 1.",
        read="11_training#train-rate",
    ),
    "whole_way": Bug(
        "(step - warmup) / (total - warmup)",
        "step / total",
        says="a cosine that begins at update 0, not at the end of the warm-up",
        why="The fall should start where the rise ends, or the rate jumps "
        "there. Its progress is (step − warmup) / (total − warmup).",
        read="11_training#train-rate",
    ),
    "rises_again": Bug(
        "            share = min(share, 1.0)\n",
        "",
        says="a cosine that rises again after the last update",
        why="Beyond π a cosine climbs. Keep the progress at most 1, and the "
        "rate stays at the floor.",
        read="11_training#train-rate",
        at="floor",
    ),
    "floor_cuts": Bug(
        "floor + (peak - floor) * height",
        "max(floor, peak * height)",
        says="a fall to 0 that is cut off at the floor",
        why="With max(floor, …) the last stretch is flat. The curve itself "
        "should arrive at the floor: floor + (peak − floor) · …",
        read="11_training#train-rate",
        at="floor",
    ),
    "floor_share": Bug(
        "floor + (peak - floor) * height",
        "peak * (floor + (1 - floor) * height)",
        says="the floor taken for a fraction of the peak",
        why="Here the floor is a rate, and the fall ends at it, however high "
        "the peak is.",
        read="11_training#train-rate",
        alone=True,
    ),
    "peak_missed": Bug(
        "step <= warmup",
        "step < warmup",
        "(step - warmup) / (total - warmup)",
        "step / total",
        says="a cosine that begins at update 0, so that the rate never "
        "reaches its peak",
        why="At the end of the warm-up the fall has not begun. Its progress "
        "there is 0: (step − warmup) / (total − warmup).",
        read="11_training#train-rate",
        alone=True,
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
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    mean, square = m / (1 - beta1**step), v / (1 - beta2**step)
    change = mean / (square**0.5 + eps)
    new = w - rate * (change + decay * w)
    return new, m, v


_UPDATE_BUGS = {
    "l2": Bug(
        "m = beta1",
        "g = g + decay * w\n    m = beta1",
        "(change + decay * w)",
        "change",
        says="the decay added to the gradient (Adam with L2, not AdamW)",
        why="There it goes through m and v and is divided by √v̂, so weights "
        "with large gradients decay very little. AdamW keeps it apart.",
        read="11_training#train-adamw",
    ),
    "decay_whole": Bug(
        "(change + decay * w)",
        "change - decay * w",
        says="a decay that is not multiplied by the learning rate",
        why="Each update then takes the fraction `decay` from every weight, "
        "and with a rate of 0.001 that is a thousand times too much. Subtract "
        "rate · decay · w.",
        read="11_training#train-adamw",
    ),
    "no_correction": Bug(
        "m / (1 - beta1**step), v / (1 - beta2**step)",
        "m, v",
        says="m and v used as they are, without dividing by 1 − β^step",
        why="Both begin at 0, so both are too small at first, √v more so than "
        "m. Early steps come out up to twice as long.",
        read="11_training#train-by-hand",
        at="correction",
    ),
    "corrected_kept": Bug(
        "return new, m, v",
        "return new, mean, square",
        says="the divided m̂ and v̂ returned instead of m and v",
        why="The next update would build on averages that are corrected "
        "already, and correct them again. Return the plain m and v.",
        read="11_training#train-by-hand",
        at="correction",
    ),
    "no_root": Bug(
        "(square**0.5 + eps)",
        "(square + eps)",
        says="a division by v̂ instead of √v̂",
        why="v̂ is a mean of squares. Its root has the size of a gradient, as "
        "m̂ has, and only then is a step about as long as the rate.",
        read="11_training#train-by-hand",
        at="divide",
    ),
    "eps_inside": Bug(
        "(square**0.5 + eps)",
        "(square + eps) ** 0.5",
        says="ε under the root, √(v̂ + ε), instead of behind it",
        why="√1e-8 is 1e-4. Under the root, ε acts like a number ten thousand "
        "times as large and slows every weight with small gradients.",
        read="11_training#train-adamw",
        at="divide",
    ),
}


def _update_cases(seed: int) -> list[Case]:
    g = generator(seed)

    def draw(scale: float) -> Tensor:
        return scale * randn(g, 3, 5)

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
def accumulate(weights: Tensor, micro_batches: Sequence[Pair]) -> Tensor:
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
    n_all = sum(int((y != -100).sum()) for _, y in micro_batches)
    for x, y in micro_batches:
        nats = F.cross_entropy(x @ w, y, reduction="sum")
        (part,) = torch.autograd.grad(nats / n_all, w)
        gradient = gradient + part
    return gradient


_ACCUMULATE_BUGS = {
    "mean_of_means": MEAN_OF_MEANS.by(
        "nats / n_all",
        "nats / (y != -100).sum().clamp(min=1) / len(micro_batches)",
        says="the mean of the micro-batches' means",
        read="further/11_training#train-accumulate",
        at="mean",
    ),
    "not_divided": Bug(
        "nats / n_all",
        "nats / (y != -100).sum().clamp(min=1)",
        says="the micro-batches' mean losses added up and not divided",
        why="Each backward adds to what is there, so the gradient grows with "
        "the number of micro-batches. Divide the sum of all losses once, by "
        "the number of all targets.",
        read="further/11_training#train-accumulate",
        at="mean",
    ),
    "all_rows": Bug(
        "int((y != -100).sum())",
        "len(y)",
        says="a sum divided by the number of all rows, padding included",
        why="Padding adds nothing to the sum, so it must not be counted "
        "either. Otherwise a batch with much padding takes a short step.",
        read="10_loss#loss-formula",
        at="mean",
    ),
    "last_only": Bug(
        "gradient + part",
        "part",
        says="the gradient of the last micro-batch alone",
        why="The gradients of the others were cleared. Clear once per update, "
        "before the first micro-batch.",
        read="further/11_training#train-accumulate",
    ),
    "others_mean": Bug(
        "int((y != -100).sum())",
        "bool((y != -100).any())",
        "nats / n_all",
        "nats / (y != -100).sum().clamp(min=1) / n_all",
        says="the mean of the means of those micro-batches that have targets",
        why="A target still weighs more if its micro-batch has few of them. "
        "Divide sums by the number of all targets.",
        read="further/11_training#train-accumulate",
        alone=True,
    ),
    "so_far": Bug(
        "sum(int((y != -100).sum()) for _, y in micro_batches)",
        "0",
        "nats = F",
        "n_all += int((y != -100).sum())\n        nats = F",
        "nats / n_all",
        "nats / max(n_all, 1)",
        says="a division by the number of targets seen so far",
        why="That makes the first micro-batch weigh too much. Count the "
        "targets of all micro-batches before the first backward.",
        read="further/11_training#train-accumulate",
        alone=True,
    ),
    "summed": Bug(
        "nats / n_all",
        "nats",
        says="the gradient of the sum, which is never divided",
        why="The loss of one large batch is a mean, so divide by the number "
        "of all targets.",
        read="further/11_training#train-accumulate",
        alone=True,
    ),
}


def _accumulate_cases(seed: int) -> list[Case]:
    g = generator(seed)
    weights = randn(g, 3, 7)

    def pair(n: int, padded: int) -> Pair:
        x = randn(g, n, 3)
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
    for _ in range(epochs):
        for x, y in batches:
            share = len(losses) / (epochs * len(batches))
            optimizer.param_groups[0]["lr"] = peak * (1 - share)
            loss = F.cross_entropy(x @ w, y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_([w], limit)
            optimizer.step()
            losses.append(loss.item())
    return w.detach(), losses


_LEARN_BUGS = {
    "no_zero_grad": Bug(
        "            optimizer.zero_grad()\n",
        "",
        says="gradients of earlier steps that were never cleared",
        why="backward adds to what is in .grad. Clear it before each step, or "
        "every step follows the sum of all gradients so far.",
        read="further/11_training#train-wrong",
    ),
    "clip_after": Bug(
        "nn.utils.clip_grad_norm_([w], limit)\n            optimizer.step()",
        "optimizer.step()\n            nn.utils.clip_grad_norm_([w], limit)",
        says="a gradient that is clipped after the step",
        why="By then the step has used it. Clip between backward and step.",
        read="11_training#train-clip",
        at="clip",
    ),
    "by_value": Bug(
        "clip_grad_norm_",
        "clip_grad_value_",
        says="each number of the gradient clipped by itself",
        why="That changes its direction, since large entries are cut and "
        "small ones kept. Clip the length of the whole instead.",
        read="11_training#train-clip",
        at="clip",
    ),
    "always_scaled": Bug(
        "nn.utils.clip_grad_norm_([w], limit)",
        "w.grad *= limit / w.grad.norm()",
        says="every gradient brought to the limit's length, short ones too",
        why="The limit is only an upper one. Near a minimum gradients get "
        "short, and steps have to get short with them.",
        read="11_training#train-clip",
        at="clip",
    ),
    "per_epoch": Bug(
        "len(losses) / (epochs * len(batches))",
        "len(losses) // len(batches) / epochs",
        says="a rate that falls once an epoch, not with each step",
        why="A schedule counts steps. If it is asked once per epoch, the rate "
        "falls in stairs, and a warm-up would last for epochs.",
        read="further/11_training#train-wrong",
        at="rate",
    ),
    "constant": Bug(
        "peak * (1 - share)",
        "peak",
        says="a learning rate that never falls",
        why="Set the rate before each step: peak · (1 − done / steps).",
        read="11_training#train-rate",
        at="rate",
    ),
    "graphs_kept": Bug(
        "loss.item()",
        "loss",
        says="losses kept as tensors, which hold their graphs",
        why="Each tensor keeps alive all that was computed for it, step after "
        "step, until memory is full. Keep loss.item().",
        read="further/11_training#train-wrong",
        alone=True,
    ),
    "ends_at_zero": Bug(
        "len(losses) / (epochs",
        "(len(losses) + 1) / (epochs",
        says="steps counted from 1, so that the last one has the rate 0",
        why="Before the first step none is done, so the first step has the "
        "whole rate.",
        read="further/11_training#train-wrong",
        alone=True,
    ),
}


def _learn_cases(seed: int) -> list[Case]:
    g = generator(seed)
    weights = randn(g, 3, 5)

    def batches(scale: float) -> list[Pair]:
        return [
            (
                scale * randn(g, 7, 3),
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
    narrow = std / (2 * n_layers) ** 0.5
    plan_of = {}
    for name, shape in shapes.items():
        matrix = len(shape) >= 2
        writes = name.endswith(("w_o.weight", "w_out.weight"))
        if matrix:
            mean, size = 0.0, narrow if writes else std
        else:
            mean, size = 0.0 if name.endswith("bias") else 1.0, 0.0
        plan_of[name] = mean, size, decay if matrix else 0.0
    return plan_of


_PLAN_BUGS = {
    "all_decay": Bug(
        "decay if matrix else 0.0",
        "decay",
        says="a weight decay on every parameter",
        why="Decay pulls toward 0. That lessens a matrix's influence, but a "
        "norm's gain changes nothing at 1, not at 0. Parameters with one axis "
        "do not decay.",
        read="11_training#train-decay",
        otherwise=[
            ("decay if matrix and not name.endswith(tables) else 0.0", "decay")
        ],
    ),
    "by_bias": Bug(
        "decay if matrix else 0.0",
        'decay if not name.endswith("bias") else 0.0',
        says="decay on all but the biases, so on the norms' gains too",
        why="A gain that changes nothing is 1, and decay pulls it to 0. What "
        "decays is told by the number of axes: two or more.",
        read="11_training#train-decay",
        otherwise=[
            (
                "decay if matrix and not name.endswith(tables) else 0.0",
                'decay if not name.endswith("bias") else 0.0',
            )
        ],
    ),
    "layers_once": Bug(
        "(2 * n_layers)",
        "n_layers",
        says="√L instead of √(2L)",
        why="A block adds to the stream twice, once from attention and once "
        "from its network. In L blocks that makes 2L.",
        read="09_decoder#dec-code",
        at="writers",
    ),
    "no_root": Bug(
        "(2 * n_layers) ** 0.5",
        "(2 * n_layers)",
        says="a division by 2L without the root",
        why="The variances of independent vectors add up, so the sum of 2L of "
        "them is √(2L) times as long as one.",
        read="09_decoder#dec-code",
        at="writers",
    ),
    "only_w_o": Bug(
        '("w_o.weight", "w_out.weight")',
        '"w_o.weight"',
        says="only attention's output scaled down, the network's forgotten",
        why="What the network's second matrix, w_out, makes is added to the "
        "stream, too.",
        read="09_decoder#dec-code",
        at="writers",
    ),
    "gains_zero": Bug(
        '0.0 if name.endswith("bias") else 1.0',
        "0.0",
        says="gains that start at 0, as biases do",
        why="A norm with gain 0 lets nothing through, neither forward nor "
        "backward. A gain starts at 1, where it changes nothing.",
        read="07_norm#ch-norm",
    ),
    "by_name": Bug(
        "len(shape) >= 2",
        'not name.endswith("bias")',
        says="all that is no bias taken for a matrix, the norms' gains too",
        why="Gains start at 1 and do not decay. Decide by the number of axes "
        "first, and by the name after that.",
        read="07_norm#ch-norm",
        alone=True,
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
        "attention.w_v.weight": (2, 8, 4),
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
            "line": Variant(
                "(1 + math.cos(math.pi * share)) / 2",
                "1 - share",
                asks="Here the rate falls along a straight line from "
                "the peak to the floor, not along half a cosine.",
                texts={
                    "whole_way": {
                        "says": "a fall that begins at update 0, not at the "
                        "end of the warm-up",
                    },
                    "rises_again": {
                        "says": "a line that goes on falling after the last "
                        "update",
                        "why": "Keep the progress at most 1, and the rate "
                        "stays at the floor.",
                    },
                    "peak_missed": {
                        "says": "a fall that begins at update 0, so that the "
                        "rate never reaches its peak",
                    },
                },
            ),
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
    ),
    "learn": Exercise(
        learn,
        _learn_cases,
        rtol=1e-4,
        atol=1e-6,
        bugs=_LEARN_BUGS,
        planted={"no_zero_grad", "clip_after", "per_epoch"},
    ),
    "plan": Exercise(
        plan,
        _plan_cases,
        bugs=_PLAN_BUGS,
        variants={
            "tables_free": Variant(
                "plan_of = {}",
                'tables = ("embedding.weight", "positions.weight")\n'
                "    plan_of = {}",
                "decay if matrix else 0.0",
                "decay if matrix and not name.endswith(tables) else 0.0",
                asks="Here the token table and the table of positions "
                "(`embedding.weight`, `positions.weight`) have no weight "
                "decay.",
                texts={
                    "by_bias": {
                        "why": "A gain that changes nothing is 1, and decay "
                        "pulls it to 0. Only matrices decay, except the two "
                        "tables.",
                    },
                },
            ),
        },
        forbid=["coursekit.optim.parameter_groups"],
    ),
}
