"""How a model is trained: the settings, and what they build.

Optimizers and schedules stand here once, by name: choices, help texts and
errors follow from the two tables.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from coursekit.config import Config, Rules, setting
from coursekit.optim import (
    Muon,
    constant_schedule,
    cosine_schedule,
    muon_groups,
    noam_schedule,
    parameter_groups,
)

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {}
"""What ``TrainConfig.optimizer`` may be, and what builds it; filled below."""
SCHEDULES: dict[str, Callable[..., float]] = {}
"""What ``TrainConfig.schedule`` may be: a rate, of a step and the settings."""
FUSED = {"cpu", "cuda", "mps"}
"""Where PyTorch updates all weights in one kernel instead of one for each."""


PRECISIONS = ("float32", "bfloat16", "auto")


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Config):
    """How a model is trained; the same loop serves all models.

    Raises:
        ValueError: if a value makes no sense.

    Chapter: 11, training.
    """

    steps: int = setting(2000, least=0)
    """Number of updates of the weights."""
    batch_size: int = 32
    """Sequences in a micro-batch."""
    gradient_accumulation_steps: int = 1
    """Micro-batches whose gradients are added up for one update."""
    context: int = 64
    """Tokens in a training window."""
    optimizer: str = setting("adamw", choices=OPTIMIZERS)
    """What applies the gradient."""
    learning_rate: float = 1e-3
    """Highest learning rate; the schedule rises to it, then falls."""
    schedule: str = setting("cosine", choices=SCHEDULES)
    """Learning rate after the warm-up."""
    warmup_steps: int = setting(100, least=0)
    """Updates over which the learning rate rises from 0 to its peak."""
    min_lr_ratio: float = 0.1
    """Where cosine ends, as a fraction of the peak."""
    weight_decay: float = 0.1
    """Fraction of a matrix that each update removes, times learning rate."""
    beta1: float = setting(0.9, below=1)
    """Memory of AdamW's mean gradient."""
    beta2: float = setting(0.99, below=1)
    """Memory of AdamW's mean square; small batches want a longer one."""
    eps: float = 1e-8
    """Added to the root of AdamW's mean square, to divide by no zero."""
    max_grad_norm: float = 1.0
    """Longest gradient, all weights together; 0 does not clip."""
    label_smoothing: float = setting(0.0, below=1)
    """Fraction of the target's probability spread over all tokens."""
    precision: str = setting("float32", choices=PRECISIONS)
    """Matrix products in float32, bfloat16, or auto (what is fast here)."""
    compile: bool = False
    """Compile the model first, with torch.compile."""
    loss_chunk_size: int = setting(0, least=0)
    """Positions whose logits exist at a time, to save memory; 0: all."""
    eval_every: int = 250
    """Updates between two evaluations on the whole validation split."""
    checkpoint_every: int = 250
    """Updates between two checkpoints."""
    seed: int = setting(0, least=0, most=2**63 - 1)
    """Fixes initial weights, batches and dropout."""

    def rules(self) -> Rules:
        """What must hold between fields."""
        yield (
            self.min_lr_ratio <= 1,
            "min_lr_ratio is at most the peak, 1",
            str(self.min_lr_ratio),
            "Try 0.1.",
        )
        yield (
            not (self.compile and self.loss_chunk_size),
            "a compiled model has all its logits at once",
            f"compile=True, loss_chunk_size={self.loss_chunk_size}",
            "Leave one of the two out.",
        )


def make_schedule(config: TrainConfig) -> Callable[[int], float]:
    """The learning rate of each update, as the configuration says.

    Args:
        config: ``schedule`` and its numbers.

    Returns:
        A function from the number of the update (from 1) to its rate.

    Chapter: 11, training.
    """
    return partial(SCHEDULES[config.schedule], config=config)


def make_optimizer(
    model: nn.Module, config: TrainConfig
) -> torch.optim.Optimizer:
    """AdamW over :func:`parameter_groups`, or :class:`Muon`.

    Fused where the device can.  Muon's own products are in bfloat16 if the
    model's are.

    Args:
        model: on the device on which it will be trained.
        config: ``optimizer``, ``weight_decay``, ``beta1``, ``beta2``,
            ``eps``, ``precision``.

    Returns:
        The optimizer; :func:`coursekit.training.train` sets its rate.

    Raises:
        ValueError: if there is nothing to train, or for Muon no matrix.

    Differs from the paper: Adam, β₂ = 0.98, ε = 1e-9, without decay.
    Chapter: 11, training.
    Source: vaswani2017attention, section 5.3; kingma2015adam;
        loshchilov2019decoupled, algorithm 2.
    Test: test_optim.py::test_adamw_by_hand
    """
    return OPTIMIZERS[config.optimizer](model, config)


def _noam(step: int, config: TrainConfig) -> float:
    """Scaled so that its peak is ``config.learning_rate``."""
    warmup = max(1, config.warmup_steps)
    # The formula's d_model is 1; this takes its place.
    scale = config.learning_rate * warmup**0.5
    return scale * noam_schedule(step, 1, warmup)


def _cosine(step: int, config: TrainConfig) -> float:
    peak = config.learning_rate
    warmup, min_lr = config.warmup_steps, config.min_lr_ratio * peak
    return cosine_schedule(step, peak, config.steps, warmup, min_lr)


def _constant(step: int, config: TrainConfig) -> float:
    return constant_schedule(step, config.learning_rate, config.warmup_steps)


def _adamw(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    groups = parameter_groups(model, config.weight_decay)
    return torch.optim.AdamW(**_options(groups, config))


def _muon(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    groups = muon_groups(model, config.weight_decay)
    dtype = torch.bfloat16 if config.precision == "bfloat16" else None
    return Muon(**_options(groups, config), dtype=dtype)


def _options(
    groups: list[dict[str, Any]], config: TrainConfig
) -> dict[str, Any]:
    """What AdamW and Muon are both given."""
    groups = [group for group in groups if group["params"]]
    devices = {p.device.type for group in groups for p in group["params"]}
    return {
        "params": groups,
        "lr": config.learning_rate,
        "betas": (config.beta1, config.beta2),
        "eps": config.eps,
        "fused": devices <= FUSED,
    }


OPTIMIZERS.update(adamw=_adamw, muon=_muon)
SCHEDULES.update(cosine=_cosine, noam=_noam, constant=_constant)
