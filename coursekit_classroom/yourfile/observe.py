"""Observe a learner's modules, in the process that holds them.

Contracts call these functions through ``File.observe``: they need weights,
gradients, hooks or an optimizer, and return numbers and tensors.  Nothing
here knows what is right, and it imports torch alone: to grade a step, this
file is sent as text into the sandbox in which a student's file runs, and
called from outside by :func:`serve`, so that the verdict is made elsewhere.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

FIT_STEPS = 200


# -- weights -----------------------------------------------------------------
def is_module(value: object) -> bool:
    """True if a value is a module."""
    return isinstance(value, nn.Module)


def weights(module: nn.Module) -> dict[str, Tensor]:
    """Copy the parameters of a module."""
    return {name: p.detach().clone() for name, p in module.named_parameters()}


@torch.no_grad()
def load(module: nn.Module, values: dict[str, Tensor]) -> None:
    """Set those parameters of a module that are named."""
    for name, p in module.named_parameters():
        if name in values:
            p.copy_(values[name])


@torch.no_grad()
def roughen(module: nn.Module) -> None:
    """Add noise to the parameters, so that none of them is 0 or 1."""
    module.eval()
    for p in module.parameters():
        p.add_(torch.randn_like(p), alpha=0.3)


# -- gradients ---------------------------------------------------------------
def gradient(
    function: Callable[..., Any], x: Tensor, *more: Any
) -> tuple[Any, Tensor | None]:
    """A function's value, and the gradient of its sum with respect to x."""
    x = x.clone().requires_grad_()
    value = function(x, *more)
    if not isinstance(value, Tensor) or not value.requires_grad:
        return value, None
    [slope] = torch.autograd.grad(value.sum(), x, allow_unused=True)
    return value.detach(), slope


def slopes(layer: Callable[[Tensor], Tensor], points: Tensor) -> Tensor:
    """The Jacobian of a layer that acts on each position alone.

    The gradients of the sum over all positions are the slopes at each.

    Args:
        layer: (1, N, D) in and out.
        points: (1, N, D).

    Returns:
        (D, 1, N, D), the output's features first.
    """
    return torch.autograd.functional.jacobian(
        lambda x: layer(x).sum((0, 1)), points
    )


def unused(model: nn.Module, ids: Tensor) -> list[str]:
    """The names of the parameters on which the logits do not depend."""
    model(ids).square().sum().backward()
    return [
        name
        for name, p in model.named_parameters()
        if p.grad is None or not p.grad.any()
    ]


def batch_gradient(
    model: nn.Module, ids: Tensor, targets: Tensor, factor: float
) -> tuple[Tensor, Tensor]:
    """The logits of a batch, scaled, and the gradient of their loss."""
    logits = factor * model(ids)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    return logits.detach(), torch.cat([slope.flatten() for slope in gradients])


# -- training ----------------------------------------------------------------
def fit(
    model: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    inputs: Tensor,
    targets: Tensor,
    rate: float,
    bound: float,
) -> tuple[int, float, Tensor]:
    """Train on one batch until the loss is below a bound, or FIT_STEPS long.

    Returns:
        The number of steps, the last loss, and the logits that it is of.
    """
    optimizer = torch.optim.Adam(model.parameters(), rate)
    n_steps = 0
    while True:
        n_steps += 1
        logits = model(inputs.clone())
        value = loss(logits, targets.clone())
        with torch.no_grad():  # a loss of theirs may fall without the model
            true = nn.functional.cross_entropy(
                logits.flatten(0, 1), targets.flatten()
            )
        highest = max(value.item(), true.item())
        if highest < bound or n_steps == FIT_STEPS:
            return n_steps, value.item(), logits.detach()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()


def update(
    make: Callable[..., Any],
    model: nn.Module,
    rate: float,
    gradients: dict[str, Tensor],
) -> tuple[str, list[str]]:
    """Make an optimizer, and have it take one step with given gradients.

    Returns:
        What was made, empty if it is an optimizer; and the names of the
        parameters that it holds.
    """
    made = make(model)
    if not isinstance(made, torch.optim.Optimizer):
        return repr(made)[:60], []
    optimized = {id(p) for group in made.param_groups for p in group["params"]}
    for group in made.param_groups:
        group["lr"] = rate
    for name, p in model.named_parameters():
        p.grad = gradients[name].clone()
    made.step()
    return "", [
        name for name, p in model.named_parameters() if id(p) in optimized
    ]


def watch_training(
    train: Callable[..., Any], model: nn.Module, factor: float, *given: Any
) -> tuple[Any, list[dict[str, Any]]]:
    """Train a model whose logits are scaled, and record each step.

    Returns:
        What training returned; and for each step the ids that were read
        last, the learning rates, the weights before it, and the gradient.
    """
    read: list[Tensor] = []
    steps: list[dict[str, Any]] = []

    def scale(_: nn.Module, args: Any, inputs: Any, logits: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            read[:] = [*args, *inputs.values()][:1]
        return factor * logits

    def note(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        slopes = [
            torch.zeros_like(p) if p.grad is None else p.grad
            for p in model.parameters()
        ]
        steps.append(
            {
                "ids": read[0].clone() if read else None,
                "rates": [group["lr"] for group in optimizer.param_groups],
                "weights": weights(model),
                "gradient": torch.cat([slope.flatten() for slope in slopes]),
            }
        )

    handles = [
        model.register_forward_hook(scale, with_kwargs=True),
        register_optimizer_step_pre_hook(note),
    ]
    try:
        return train(model, *given), steps
    finally:
        for handle in handles:
            handle.remove()


# -- embeddings, the cache, arguments ----------------------------------------
def tables(model: nn.Module) -> list[str]:
    """The names of the parameters that are embeddings."""
    return [
        f"{name}.{own}".lstrip(".")
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding)
        for own, _ in module.named_parameters()
    ]


def read_scaled(model: nn.Module, factor: float, ids: Tensor) -> Any:
    """Call a model with its embeddings scaled by a factor."""

    def scaled(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        return factor * output

    with hooked(model, scaled):
        return model(ids)


def count_reads(
    function: Callable[..., Any], model: nn.Module, *given: Any
) -> tuple[Any, list[int]]:
    """Call a function; how many ids each embedding of a model has read."""
    read: dict[nn.Module, int] = {}

    def count(module: nn.Module, inputs: Any, output: Tensor) -> None:
        read[module] = read.get(module, 0) + inputs[0].size(-1)

    with hooked(model, count):
        return function(model, *given), list(read.values())


@contextmanager
def hooked(model: nn.Module, hook: Callable[..., Any]) -> Iterator[None]:
    """Have a hook on each embedding for a while."""
    handles = [
        module.register_forward_hook(hook)
        for module in model.modules()
        if isinstance(module, nn.Embedding)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def read_on(model: nn.Module, pieces: Sequence[Tensor]) -> list[Any]:
    """Logits of pieces that are read one after the other, with one cache."""
    past: dict[Any, Any] = {}
    return [model(piece, past) for piece in pieces]


def probe(
    function: Callable[..., Any], model: nn.Module, ids: Tensor, at: int
) -> tuple[Any, Tensor]:
    """Call a function on a model; its value, and the ids afterwards."""
    ids = ids.clone()
    return function(model, ids, at), ids


# -- calls from another process ----------------------------------------------
PLAIN = type(None), bool, int, float, complex, str, bytes, list, tuple, dict
OBJECTS: list[Any] = []


class Given(nn.Module):
    """A function of the other process, as a model."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        """Call it in the other process."""
        return self.function(*args)


def names() -> list[str]:
    """The parts that the learner's file names."""
    parts = getattr(sys.modules["__main__"], "parts", None)
    return [str(name) for name in parts] if isinstance(parts, dict) else []


def run(function: Callable[..., Any], *args: Any) -> Any:
    """Call a part, or an object that a part has made."""
    return function(*args)


def method(target: Any, name: str, *args: Any) -> Any:
    """Call a method of an object."""
    return getattr(target, name)(*args)


def serve(name: str, given: Sequence[Any]) -> tuple[Any, ...]:
    """Call a function of this file.

    Args:
        name: the function's.
        given: its arguments; ``{"part": name}`` and ``{"object": number}``
            stand for what stays in this process.

    Returns:
        ``("value", value)``, or ``("object", number, repr)`` for an object
        that stays here.
    """
    value = globals()[name](*map(resolve, given))
    if isinstance(value, (*PLAIN, Tensor)):
        return "value", value
    OBJECTS.append(value)
    return "object", len(OBJECTS) - 1, repr(value)[:60]


def resolve(value: Any) -> Any:
    """The object that an argument stands for."""
    match value:
        case {"part": str(name)}:
            return sys.modules["__main__"].parts[name]
        case {"object": int(number)}:
            return OBJECTS[number]
    return Given(value) if callable(value) else value
