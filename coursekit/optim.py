"""Optimizers, learning-rate schedules, and parameter groups for decay.

Learning rates are pure functions of the number of the update, counted from
1: nothing has to be saved for them, and nothing can be called too seldom.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from coursekit.checks import (
    check_integers,
    is_integer,
    is_number,
    require,
)

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""A polynomial x, x³, x⁵ that is steep at 0 and stays near 1 around it."""


FUSED = {"cpu", "cuda", "mps"}
"""Devices on which PyTorch updates all weights in one kernel."""


# -- learning rates ----------------------------------------------------------


def noam_schedule(step: int, d_model: int, warmup: int) -> float:
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
        ValueError: if a number is below 1.

    Chapter: 11, training.
    Source: vaswani2017attention, equation 3.
    Test: test_optim.py::test_noam_gives_the_papers_numbers
    """
    _check_schedule(step)
    check_integers(d_model=d_model, warmup=warmup)
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def cosine_schedule(
    step: int, peak: float, total: int, warmup: int = 0, min_lr: float = 0.0
) -> float:
    """Up in a line, then down along half a cosine.

    ``peak · step / warmup``, then with ``p`` the share of the way down
    ``min_lr + (peak − min_lr) · (1 + cos π p) / 2``.

    Args:
        step: number of the update, from 1.
        peak: highest learning rate.
        total: number of the last update; after it the rate is ``min_lr``.
        warmup: updates until the peak.
        min_lr: learning rate at the end (a rate, not a fraction).

    Returns:
        The learning rate.

    Raises:
        ValueError: if a number is out of range, or NaN.

    Chapter: 11, training.
    Source: loshchilov2017sgdr, equation 5, without restarts.
    """
    _check_schedule(step, rates=(peak, min_lr), counts=(total, warmup))
    if step <= warmup:
        return peak * step / warmup
    progress = min(1.0, (step - warmup) / max(1, total - warmup))
    return min_lr + (peak - min_lr) * (1 + math.cos(math.pi * progress)) / 2


def constant_schedule(step: int, peak: float, warmup: int = 0) -> float:
    """Up in a line, then level: ``peak · min(1, step / warmup)``.

    Args:
        step: number of the update, from 1.
        peak: highest learning rate.
        warmup: updates until the peak.

    Returns:
        The learning rate.

    Raises:
        ValueError: if a number is out of range, or NaN.

    Chapter: 11, training.
    """
    _check_schedule(step, rates=(peak,), counts=(warmup,))
    return peak * min(1.0, step / max(1, warmup))


def _check_schedule(
    step: int, rates: Iterable[float] = (), counts: Iterable[int] = ()
) -> None:
    require(
        is_number(step) and 1 <= step < math.inf,
        "updates are counted from 1",
        f"step={step}",
        "A rate of 0 at the first update would waste it; add 1.",
    )
    for rate in rates:
        require(
            is_number(rate) and 0 <= rate < math.inf,
            "a learning rate must be a finite number of at least 0",
            repr(rate),
            "Any other would spoil the weights.",
        )
    for count in counts:
        require(
            is_integer(count, 0),
            "total and warmup are numbers of updates, integers of at least 0",
            repr(count),
            "Give a whole number.",
        )


# -- the optimizer -----------------------------------------------------------


def parameter_groups(
    model: nn.Module, weight_decay: float
) -> list[dict[str, Any]]:
    """Split the weights: matrices and tables decay, vectors don't.

    Decay pulls toward 0, which means "no influence" for a matrix.  For the
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


def muon_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Split the weights: the blocks' matrices are Muon's, the rest AdamW's.

    An embedding table, the head and a table of positions have a row for
    each token or place; only some of the rows have a gradient in a step, so
    there is nothing to balance between them.  They stay with AdamW.

    Args:
        model: whose weights; blocks are what stands in an ``nn.ModuleList``.
        weight_decay: as in :func:`parameter_groups`.

    Returns:
        Three groups, since what decays is in two; each says under ``muon``
        which rule it follows.

    Raises:
        ValueError: if no block has a matrix to train.

    Chapter: 11, training.
    Source: jordan2024muon.
    """
    matrices, vectors = parameter_groups(model, weight_decay)
    stacks = [m for m in model.modules() if isinstance(m, nn.ModuleList)]
    inside = {id(p) for stack in stacks for p in stack.parameters()}
    hidden = [
        p for p in matrices["params"] if p.dim() == 2 and id(p) in inside
    ]
    if not hidden:
        raise ValueError(
            "muon needs matrices inside blocks (an nn.ModuleList): got none "
            f"in {type(model).__name__}. Use optimizer='adamw'."
        )
    hidden_ids = {id(p) for p in hidden}
    tables = [p for p in matrices["params"] if id(p) not in hidden_ids]
    return [
        {"params": hidden, "weight_decay": weight_decay, "muon": True},
        {"params": tables, "weight_decay": weight_decay, "muon": False},
        vectors | {"muon": False},
    ]


def orthogonalize(
    matrices: Float[Tensor, "N R C"], steps: int = 5
) -> Float[Tensor, "N R C"]:
    """Bring all singular values near 1, and turn nothing.

    With ``X = U S Vᵀ``, scaled to length 1, each step makes of it
    ``a X + (b A + c A²) X`` with ``A = X Xᵀ``, which is
    ``U (a S + b S³ + c S⁵) Vᵀ``: a polynomial works on the singular values
    alone, by products only.  It is chosen to lift small ones fast, and so
    ends between about 0.7 and 1.2 instead of at 1.

    Args:
        matrices: (N, R, C), all at once; their number format is that of
            the products.
        steps: how often the polynomial is applied.

    Returns:
        (N, R, C), the orthogonalized matrices; 0 stays 0.

    Chapter: 11, training.
    Source: jordan2024muon.
    Test: test_optim.py::test_orthogonalize_acts_on_singular_values
    """
    a, b, c = NEWTON_SCHULZ
    is_tall = matrices.size(1) > matrices.size(2)
    x = matrices.mT if is_tall else matrices  # then X Xᵀ is the small product
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        poly = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.baddbmm(x, poly, x, beta=a)
    return x.mT if is_tall else x


class Muon(torch.optim.AdamW):
    """Steps of equal length in all directions, for the blocks' matrices.

    The mean gradient of a matrix is mostly a few directions; the others are
    too small to be seen in an update, and may be worth as much.  Muon makes
    all of them equally long: ``M ← μ M + (1 − μ) G``, then with
    ``O = orthogonalize((1 − μ) G + μ M)`` (Nesterov's look ahead)

    ``W ← (1 − η λ) W − 0.2 √max(R, C) η O``.

    The last factor makes the update's numbers as large as AdamW's usually
    are, so that one rate η and one decay λ serve both.

    Args:
        params: as :func:`muon_groups` makes them; those with ``muon=True``
            hold matrices, all others are updated by AdamW.
        lr: learning rate η; training sets it before each update.
        betas: AdamW's.
        momentum: Muon's memory of the mean gradient, μ.
        dtype: of the products in :func:`orthogonalize`; by default that of
            the weights.
        fused, eps: as torch's AdamW has them.

    Raises:
        ValueError: if a group of Muon's holds what is no matrix.

    Chapter: 11, training.
    Source: jordan2024muon; liu2025muon, section 2.2 (the factor).
    Test: test_optim.py::test_muon_is_torchs
    """

    def __init__(
        self,
        params: list[dict[str, Any]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.99),
        momentum: float = 0.95,
        dtype: torch.dtype | None = None,
        fused: bool | None = None,
        eps: float = 1e-8,
    ) -> None:
        for p in [p for g in params if g["muon"] for p in g["params"]]:
            if p.dim() != 2:
                raise ValueError(
                    "muon orthogonalizes matrices, of 2 dimensions: got "
                    f"shape {tuple(p.shape)}. Put it in a group with "
                    "muon=False."
                )
        own = {"momentum": momentum, "dtype": dtype}
        super().__init__(
            [own | group for group in params], lr, betas, eps, fused=fused
        )

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update all weights that have a gradient.

        Args:
            closure: recomputes the gradients and returns the loss.

        Returns:
            What the closure returned.
        """
        with torch.enable_grad():
            loss = None if closure is None else closure()
        groups = self.param_groups
        self.param_groups = [g for g in groups if not g["muon"]]
        try:
            super().step()
        finally:
            self.param_groups = groups
        for group in groups:
            if group["muon"]:
                for weights in _by_shape(group["params"]):
                    self._update(weights, group)
        return loss

    def _update(self, weights: list[Tensor], group: dict[str, Any]) -> None:
        """One update of matrices of one shape, as one stack."""
        rate, momentum = group["lr"], group["momentum"]
        ahead = []
        for p in weights:
            state: dict[str, Tensor] = self.state[p]
            if not state:
                # The number of the step is not needed, but looked for by
                # what torch does when it loads AdamW's state.
                state["step"] = torch.zeros((), dtype=torch.float32)
                state["momentum"] = torch.zeros_like(p)
            state["step"] += 1
            grad: Any = p.grad
            mean = state["momentum"].lerp_(grad, 1 - momentum)
            ahead.append(torch.lerp(grad, mean, momentum))
        stack = torch.stack(ahead).to(group["dtype"] or weights[0].dtype)
        updates = orthogonalize(stack).to(weights[0].dtype)
        scale = 0.2 * math.sqrt(max(weights[0].shape))
        for p, update in zip(weights, updates, strict=True):
            p.mul_(1 - rate * group["weight_decay"])
            p.add_(update, alpha=-scale * rate)


def _by_shape(weights: Iterable[Tensor]) -> Iterable[list[Tensor]]:
    """Those that have a gradient: what has one shape, together."""
    shapes: dict[torch.Size, list[Tensor]] = {}
    for p in weights:
        if p.grad is not None:
            shapes.setdefault(p.shape, []).append(p)
    return shapes.values()


# -- as a configuration says --------------------------------------------------


def make_schedule(config: Any) -> Callable[[int], float]:
    """The learning rate of each update, as the configuration says.

    Args:
        config: ``schedule`` and its numbers.

    Returns:
        A function from the number of the update (from 1) to its rate.

    Chapter: 11, training.
    """
    schedule = SCHEDULES[config.schedule]
    return lambda step: schedule(step, config)


def make_optimizer(model: nn.Module, config: Any) -> torch.optim.Optimizer:
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


def _adamw(model: nn.Module, config: Any) -> torch.optim.Optimizer:
    groups = parameter_groups(model, config.weight_decay)
    return torch.optim.AdamW(**_options(groups, config))


def _muon(model: nn.Module, config: Any) -> torch.optim.Optimizer:
    groups = muon_groups(model, config.weight_decay)
    dtype = torch.bfloat16 if config.precision == "bfloat16" else None
    return Muon(**_options(groups, config), dtype=dtype)


def _options(groups: list[dict[str, Any]], config: Any) -> dict[str, Any]:
    """Options that AdamW and Muon share."""
    groups = [group for group in groups if group["params"]]
    devices = {p.device.type for group in groups for p in group["params"]}
    return {
        "params": groups,
        "lr": config.learning_rate,
        "betas": (config.beta1, config.beta2),
        "eps": config.eps,
        "fused": devices <= FUSED,
    }


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw": _adamw,
    "muon": _muon,
}
"""Builders of the optimizers that ``TrainConfig.optimizer`` names."""
SCHEDULES: dict[str, Callable[[int, Any], float]] = {
    "cosine": lambda step, c: cosine_schedule(
        step,
        c.learning_rate,
        c.steps,
        c.warmup_steps,
        c.min_lr_ratio * c.learning_rate,
    ),
    # Scaled so that its peak, (d_model · warmup)^-0.5, is the learning rate.
    "noam": lambda step, c: (
        c.learning_rate
        * max(1, c.warmup_steps) ** 0.5
        * noam_schedule(step, 1, max(1, c.warmup_steps))
    ),
    "constant": lambda step, c: constant_schedule(
        step, c.learning_rate, c.warmup_steps
    ),
}
"""Learning rates of a step and the settings, by ``TrainConfig.schedule``."""
