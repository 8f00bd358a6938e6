"""Whether every parameter is trained, and on the right target."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from coursekit.loss import cross_entropy
from coursekit.probe.running import Model, Report, random_ids, undisturbed

Loss = Callable[[Model, Tensor], Tensor]
"""From a model and (B, T) ids of whole texts to nats."""


@dataclass(frozen=True)
class TrainsEverything(Report):
    """What :func:`trains_everything` saw."""

    loss: float
    """Loss on random tokens, in nats."""
    uniform: float
    """ln V: the loss of a model that knows nothing."""
    n_parameters: int
    """Number of parameters; shared ones count once."""
    problems: tuple[str, ...]
    """What is wrong, one sentence each."""

    def __str__(self) -> str:
        """One sentence."""
        if self.ok:
            return (
                f"trains everything: all {self.n_parameters:,} parameters "
                f"have a gradient; the loss of {self.loss:.2f} is near "
                f"ln V = {self.uniform:.2f}"
            )
        return f"does not train everything: {'; '.join(self.problems)}"


@dataclass(frozen=True)
class AsksFor(Report):
    """What :func:`asks_for` saw."""

    offset: int | None
    """How far on the token stands that is asked for; None: no such token."""
    losses: Mapping[int, float]
    """Loss of an oracle that knows the token so far on, in nats."""

    def __str__(self) -> str:
        """One sentence."""
        if self.ok:
            return "asks for the next token: who knows it has a loss of 0"
        if self.offset is None:
            low = min(self.losses.values())
            return (
                "asks for no token near by: of all oracles, the best has a "
                f"loss of {low:.2g}"
            )
        if self.offset == 1:
            return (
                "asks for the next token, and for more: who knows it still "
                f"has a loss of {self.losses[1]:.2g}"
            )
        return f"asks for the token {self.offset:+d} places on, not +1"


def trains_everything(
    model: nn.Module,
    vocab_size: int,
    length: int = 8,
    batch: int = 4,
    seed: int = 0,
    expected: int | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> TrainsEverything:
    """Look for parameters that will not learn, and for a start too sure.

    Each parameter must get a gradient that is finite and not all zero.  The
    loss of an untrained model is near ln V; only above ln V + 5 is it wrong.

    Args:
        model, vocab_size, length, batch, seed: as in :func:`causality`.
        expected: the number of parameters by the formula, if known: layers
            in a plain list are not found.
        optimizer: must hold every parameter, if given.

    Returns:
        A report.

    Raises:
        ValueError: as :func:`causality`.

    Chapter: 19, debugging.
    """
    ids = random_ids(model, vocab_size, batch, length + 1, seed)
    with undisturbed(model, True, seed), torch.enable_grad():
        loss = cross_entropy(model(ids[:, :-1]).float(), ids[:, 1:])
        problems = _without_gradient(model, loss)
    if optimizer is not None:
        problems += _not_held(model, optimizer)
    count = sum(p.numel() for p in model.parameters())
    if expected is not None and count != expected:
        problems.append(f"{count:,} parameters instead of {expected:,}")
    value, uniform = float(loss.detach()), math.log(vocab_size)
    if not value <= uniform + 5:
        problems.append(f"loss {value:.2f} at the start, ln V {uniform:.2f}")
    return TrainsEverything(
        not problems, value, uniform, count, tuple(problems)
    )


def _without_gradient(model: nn.Module, loss: Tensor) -> list[str]:
    """What is wrong with the parameters' gradients, one sentence each."""
    named = dict(model.named_parameters())
    trained = {n: p for n, p in named.items() if p.requires_grad}
    problems = [f"{n} is frozen" for n in named.keys() - trained.keys()]
    gradients: tuple[Tensor | None, ...] = (None,) * len(trained)
    if loss.requires_grad:
        gradients = torch.autograd.grad(
            loss, list(trained.values()), allow_unused=True
        )
    for name, g in zip(trained, gradients, strict=True):
        if g is None or not g.any():
            problems.append(f"{name} gets no gradient")
        elif not g.isfinite().all():
            problems.append(f"{name} gets a gradient that is not finite")
    return problems


def _not_held(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    """Which parameters an optimizer lacks, one sentence each."""
    held = {id(p) for g in optimizer.param_groups for p in g["params"]}
    return [
        f"the optimizer does not hold {name}"
        for name, p in model.named_parameters()
        if id(p) not in held
    ]


def asks_for(
    loss: Loss, vocab_size: int, length: int = 8, batch: int = 4, seed: int = 0
) -> AsksFor:
    """Hand a program's loss models that know too much, one after the other.

    An oracle knows the token that stands k places on.  The loss of the one
    with k = 1, and of no other, must be 0.

    Args:
        loss: takes a model and whole texts, (B, T) ids; it cuts inputs and
            targets from them itself, runs the model on the inputs, which
            begin where the text begins, and returns nats.
        vocab_size, length, batch, seed: as in :func:`causality`.

    Returns:
        A report.

    Raises:
        ValueError: as :func:`causality`.

    Chapter: 19, debugging.
    """
    ids = random_ids(loss, vocab_size, batch, length, seed)
    sure = 30 * F.one_hot(ids, vocab_size).float()
    losses = {}
    for k in (-1, 0, 1, 2, 3):

        def oracle(inputs: Tensor, k: int = k) -> Tensor:
            # Where there is no token k positions on, it knows nothing.
            n = inputs.size(1)
            padded = F.pad(sure, (0, 0, max(-k, 0), max(k, 0) + n))
            return padded[:, max(k, 0) :][:, :n]

        with torch.no_grad():
            losses[k] = float(loss(oracle, ids))
    best = min(losses, key=lambda k: losses[k])
    offset = best if abs(losses[best]) < math.log(vocab_size) / 2 else None
    return AsksFor(abs(losses[1]) < 1e-3, offset, losses)
