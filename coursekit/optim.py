"""Which weights decay, how fast they learn, and what applies the gradient.

Learning rates are pure functions of the number of the update, counted from
1: nothing has to be saved for them, and nothing can be called too seldom.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from coursekit.config import TrainConfig

__all__ = [
    "constant",
    "cosine",
    "make_optimizer",
    "make_schedule",
    "noam",
    "parameter_groups",
]

FUSED = ("cpu", "cuda", "mps")
"""Where torch updates all weights in one kernel instead of one for each."""


# -- learning rates ----------------------------------------------------------


def noam(step: int, d_model: int, warmup: int) -> float:
    """The paper's learning rate: up in a line, down as 1/√step.

    ``d_model^-0.5 · min(step^-0.5, step · warmup^-1.5)``; the peak, at
    ``step = warmup``, is ``(d_model · warmup)^-0.5``.

    Args:
        step: number of the update, from 1.
        d_model: width D.
        warmup: updates until the peak, at least 1; the paper's is 4000.

    Returns:
        The learning rate.

    Raises:
        ValueError: if step or warmup is below 1.

    Chapter: 11, training.
    Source: vaswani2017attention, equation 3.
    Test: tests/test_optim.py::test_noam_gives_the_papers_numbers
    """
    _check_step(step)
    if warmup < 1:
        raise ValueError(
            f"noam needs a warm-up of at least 1 update: got warmup={warmup}. "
            "The paper's is 4000."
        )
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def cosine(
    step: int, peak: float, total: int, warmup: int = 0, floor: float = 0.0
) -> float:
    """Up in a line, then down along half a cosine.

    ``peak · step / warmup``, then with ``p`` the share of the way down
    ``floor + (peak − floor) · (1 + cos π p) / 2``.

    Args:
        step: number of the update, from 1.
        peak: highest learning rate.
        total: number of the last update; after it the rate is ``floor``.
        warmup: updates until the peak.
        floor: learning rate at the end (a rate, not a share).

    Returns:
        The learning rate.

    Raises:
        ValueError: if step is below 1.

    Chapter: 11, training.
    Source: loshchilov2017sgdr, equation 5, without restarts.
    """
    _check_step(step)
    if step <= warmup:
        return peak * step / warmup
    way = min(1.0, (step - warmup) / max(1, total - warmup))
    return floor + (peak - floor) * (1 + math.cos(math.pi * way)) / 2


def constant(step: int, peak: float, warmup: int = 0) -> float:
    """Up in a line, then level: ``peak · min(1, step / warmup)``.

    Args:
        step: number of the update, from 1.
        peak: highest learning rate.
        warmup: updates until the peak.

    Returns:
        The learning rate.

    Raises:
        ValueError: if step is below 1.

    Chapter: 11, training.
    """
    _check_step(step)
    return peak * min(1.0, step / max(1, warmup))


def make_schedule(config: TrainConfig) -> Callable[[int], float]:
    """The learning rate of each update, as the configuration says.

    Noam's curve is scaled so that its peak is ``config.learning_rate``; with
    ``(d_model · warmup)^-0.5`` for that, it is the paper's.

    Args:
        config: ``schedule`` and its numbers.

    Returns:
        A function from the number of the update (from 1) to its rate.

    Chapter: 11, training.
    """
    peak, warmup = config.learning_rate, config.warmup_steps
    if config.schedule == "noam":
        warmup = max(1, warmup)
        scale = peak * warmup**0.5  # so d_model = 1 in the formula
        return lambda step: scale * noam(step, 1, warmup)
    if config.schedule == "cosine":
        floor = config.floor * peak
        return lambda step: cosine(step, peak, config.steps, warmup, floor)
    return lambda step: constant(step, peak, warmup)


def _check_step(step: int) -> None:
    if step < 1:
        raise ValueError(
            f"updates are counted from 1: got step={step}. A rate of 0 at "
            "the first update would waste it; add 1."
        )


# -- the optimizer -----------------------------------------------------------


def parameter_groups(
    model: nn.Module, weight_decay: float
) -> list[dict[str, Any]]:
    """Split the weights: matrices and tables decay, vectors don't.

    Decay pulls towards 0, which means "no influence" for a matrix.  For the
    scale of a norm it means something else, and a bias is too few numbers to
    overfit by.  Embedding tables decay with the matrices: a tied table *is*
    the output matrix.  What has no gradient is left out; what is shared
    (tied) comes once.

    Args:
        model: whose weights.
        weight_decay: share removed by an update, times learning rate.

    Returns:
        Two groups for the optimizer, one with decay, one without.

    Raises:
        ValueError: if there is nothing to train.

    Chapter: 11, training.
    Source: loshchilov2019decoupled; radford2018improving, section 4.1
        (decay "on all non bias or gain weights").
    """
    weights = [p for p in model.parameters() if p.requires_grad]
    if not weights:
        raise ValueError(
            "training needs at least one weight that requires a gradient: "
            f"got none in {type(model).__name__}. Unfreeze some of them."
        )
    matrices = [p for p in weights if p.dim() >= 2]
    vectors = [p for p in weights if p.dim() < 2]
    return [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]


def make_optimizer(
    model: nn.Module, config: TrainConfig
) -> torch.optim.Optimizer:
    """AdamW over :func:`parameter_groups`, fused where the device can.

    Args:
        model: on the device on which it will be trained.
        config: ``weight_decay``, ``beta1``, ``beta2``.

    Returns:
        The optimizer; :func:`coursekit.training.train` sets its rate.

    Differs from the paper: Adam, β₂ = 0.98, ε = 1e-9, without decay.
    Chapter: 11, training.
    Source: vaswani2017attention, section 5.3; kingma2015adam;
        loshchilov2019decoupled, algorithm 2.
    Test: tests/test_optim.py::test_adamw_by_hand
    """
    groups = parameter_groups(model, config.weight_decay)
    devices = {p.device.type for g in groups for p in g["params"]}
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=config.learning_rate,
        betas=(config.beta1, config.beta2),
        fused=_can_fuse(devices),
    )


def _can_fuse(devices: Iterable[str]) -> bool:
    return all(device in FUSED for device in devices)
