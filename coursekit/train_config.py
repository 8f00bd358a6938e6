"""How a model is trained: the settings, and what they build.

Optimizers and schedules stand here once, by name: choices, help texts and
errors follow from the two tables.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn

from coursekit.config import Config
from coursekit.optim import (
    Muon,
    constant_schedule,
    cosine_schedule,
    muon_groups,
    noam_schedule,
    parameter_groups,
)

__all__ = [
    "OPTIMIZERS",
    "RENAMED",
    "SCHEDULES",
    "TRAIN_CHOICES",
    "TrainConfig",
    "make_optimizer",
    "make_schedule",
]

C = TypeVar("C", bound="TrainConfig")
FUSED = {"cpu", "cuda", "mps"}
"""Where PyTorch updates all weights in one kernel instead of one for each."""
RENAMED = {
    "accumulate": "gradient_accumulation_steps",
    "clip": "max_grad_norm",
    "floor": "min_lr_ratio",
    "loss_rows": "loss_chunk_size",
}
"""Fields of saved configurations, and options, that have a new name."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Config):
    """How a model is trained; the same loop serves all models.

    Raises:
        ValueError: if a value makes no sense.

    Chapter: 11, training.
    """

    steps: int = 2000
    """Number of updates of the weights."""
    batch_size: int = 32
    """Sequences in a micro-batch."""
    gradient_accumulation_steps: int = 1
    """Micro-batches whose gradients are added up for one update."""
    context: int = 64
    """Tokens in a training window."""
    optimizer: str = "adamw"
    """What applies the gradient."""
    learning_rate: float = 1e-3
    """Highest learning rate; the schedule rises to it, then falls."""
    schedule: str = "cosine"
    """Learning rate after the warm-up."""
    warmup_steps: int = 100
    """Updates over which the learning rate rises from 0 to its peak."""
    min_lr_ratio: float = 0.1
    """Where cosine ends, as a fraction of the peak."""
    weight_decay: float = 0.1
    """Fraction of a matrix that each update removes, times learning rate."""
    beta1: float = 0.9
    """Memory of AdamW's mean gradient."""
    beta2: float = 0.99
    """Memory of AdamW's mean square; small batches want a longer one."""
    max_grad_norm: float = 1.0
    """Longest gradient, all weights together; 0 does not clip."""
    label_smoothing: float = 0.0
    """Fraction of the target's probability spread over all tokens."""
    precision: str = "float32"
    """Matrix products in float32, bfloat16, or auto (what is fast here)."""
    compile: bool = False
    """Compile the model first, with torch.compile."""
    loss_chunk_size: int = 0
    """Positions whose logits exist at a time, to save memory; 0: all."""
    eval_every: int = 250
    """Updates between two evaluations on the whole validation split."""
    checkpoint_every: int = 250
    """Updates between two checkpoints."""
    seed: int = 0
    """Fixes initial weights, batches and dropout."""

    def __post_init__(self) -> None:
        for name, choices in TRAIN_CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(
                    f"{name} must be one of {', '.join(choices)}: got "
                    f"{value!r}. Choose one of these."
                )
        for names, rule, holds, remedy in RULES:
            for name in names.split():
                value = getattr(self, name)
                if not holds(value):
                    raise ValueError(f"{name} {rule}: got {value}. {remedy}")
        if self.compile and self.loss_chunk_size:
            raise ValueError(
                "a compiled model has all its logits at once: got "
                f"compile=True, loss_chunk_size={self.loss_chunk_size}. "
                "Leave one of the two out."
            )

    @classmethod
    def from_dict(cls: type[C], fields: dict[str, Any]) -> C:
        """Make a configuration from a dictionary, also of an older version.

        Raises:
            ValueError: if a field is unknown.
        """
        return super().from_dict(
            {RENAMED.get(name, name): fields[name] for name in fields}
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
            ``precision``.

    Returns:
        The optimizer; :func:`coursekit.training.train` sets its rate.

    Raises:
        ValueError: if there is nothing to train, or for Muon no matrix.

    Differs from the paper: Adam, β₂ = 0.98, ε = 1e-9, without decay.
    Chapter: 11, training.
    Source: vaswani2017attention, section 5.3; kingma2015adam;
        loshchilov2019decoupled, algorithm 2.
    Test: tests/test_optim.py::test_adamw_by_hand
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
        "fused": devices <= FUSED,
    }


OPTIMIZERS = {"adamw": _adamw, "muon": _muon}
"""What ``TrainConfig.optimizer`` may be, and what builds it."""
SCHEDULES = {"cosine": _cosine, "noam": _noam, "constant": _constant}
"""What ``TrainConfig.schedule`` may be: a rate, of a step and the settings."""
TRAIN_CHOICES: dict[str, Collection[str]] = {
    "optimizer": OPTIMIZERS.keys(),
    "schedule": SCHEDULES.keys(),
    "precision": ("float32", "bfloat16", "auto"),
}
"""What a field may be; what a table offers, as soon as it does."""


Holds = Callable[[Any], bool]


def _whole(least: int) -> tuple[str, Holds, str]:
    rule = f"must be a whole number of at least {least}"
    holds = lambda x: isinstance(x, int) and x >= least  # noqa: E731
    return rule, holds, "Give a whole number."


def _below(end: float) -> tuple[Holds, str]:
    return lambda x: 0 <= x < end, "0 turns it off."


AT_LEAST_0 = "must be a number of at least 0"
RULES: list[tuple[str, str, Holds, str]] = [
    ("batch_size gradient_accumulation_steps context", *_whole(1)),
    ("eval_every checkpoint_every", *_whole(1)),
    ("steps warmup_steps seed loss_chunk_size", *_whole(0)),
    ("seed", "must be below 2**63", lambda x: x < 2**63, "Lower it."),
    ("beta1 beta2 label_smoothing", "must lie in [0, 1)", *_below(1.0)),
    ("learning_rate weight_decay", AT_LEAST_0, *_below(math.inf)),
    ("max_grad_norm min_lr_ratio", AT_LEAST_0, *_below(math.inf)),
    ("min_lr_ratio", "is at most the peak, 1", lambda x: x <= 1, "Try 0.1."),
]
"""Names of fields, the rule, whether a value keeps it, and the remedy."""
