"""What is done within the learner's process, where their modules live.

The first half watches modules at work and reports what it has seen as plain
values; contracts call it through ``File.inside``.  The second half lets
another process do so: it keeps the learner's objects, names them by numbers,
and takes and gives tensors.  The grader sends this file into a sandbox as
text, so it imports torch alone, and nothing in it knows what is right.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

KEPT = 4  # results through which gradients can still be asked for
PLAIN = (type(None), bool, int, float, complex, str, bytes)


# -- watching modules --------------------------------------------------------
def tables(model: nn.Module) -> list[str]:
    """The names of the parameters that are embeddings."""
    return [
        f"{name}.{own}".lstrip(".")
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding)
        for own, _ in module.named_parameters()
    ]


def read_scaled(model: nn.Module, factor: float, ids: Tensor) -> Any:
    """What a model returns if its embeddings are so many times larger."""

    def scaled(module: nn.Module, given: Any, found: Tensor) -> Tensor:
        return factor * found

    with hooked(model, scaled):
        return model(ids)


def counted(
    function: Callable[..., Any], model: nn.Module, *given: Any
) -> tuple[Any, list[int]]:
    """Call a function; how many ids each embedding of a model has read."""
    read: dict[nn.Module, int] = {}

    def count(module: nn.Module, given: Any, found: Tensor) -> None:
        read[module] = read.get(module, 0) + given[0].size(-1)

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


def updated(
    make: Callable[..., Any],
    model: nn.Module,
    rate: float,
    gradients: list[Tensor],
) -> tuple[str, list[str]]:
    """Make an optimizer, and have it take one step with given gradients.

    Returns:
        What was made, empty if it is an optimizer; and the names of the
        parameters that it holds.
    """
    made = make(model)
    if not isinstance(made, torch.optim.Optimizer):
        return repr(made)[:60], []
    held = {id(p) for group in made.param_groups for p in group["params"]}
    for group in made.param_groups:
        group["lr"] = rate
    for p, gradient in zip(model.parameters(), gradients, strict=True):
        p.grad = gradient.clone()
    made.step()
    return "", [name for name, p in model.named_parameters() if id(p) in held]


def watched(
    train: Callable[..., Any], model: nn.Module, factor: float, *given: Any
) -> tuple[Any, list[dict[str, Any]]]:
    """Train a model whose logits are larger, and see each step.

    Returns:
        What training returned; and for each step the ids that were read
        last, the learning rates, and the weights and gradients before it.
    """
    read: list[Tensor] = []
    steps: list[dict[str, Any]] = []

    def see(_: nn.Module, args: Any, given: Any, logits: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            read[:] = [*args, *given.values()][:1]
        return factor * logits

    def note(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        weights = list(model.parameters())
        steps.append(
            {
                "ids": read[0].clone() if read else None,
                "rates": [group["lr"] for group in optimizer.param_groups],
                "weights": [p.detach().clone() for p in weights],
                "gradients": [
                    torch.zeros_like(p) if p.grad is None else p.grad.clone()
                    for p in weights
                ],
            }
        )

    handles = [
        model.register_forward_hook(see, with_kwargs=True),
        register_optimizer_step_pre_hook(note),
    ]
    try:
        return train(model, *given), steps
    finally:
        for handle in handles:
            handle.remove()


# -- for another process -----------------------------------------------------
class Given(nn.Module):
    """A function of the other process's, as a model."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """It is called as a model is."""
        super().__init__()
        self.function = function

    def forward(self, *given: Any) -> Any:
        """What it returns over there."""
        return self.function(*given)


LIVE: list[Any] = []
DICTS: dict[int, dict[Any, Any]] = {}
GRAPHS: dict[int, tuple[Tensor, list[Tensor]]] = {}


def names() -> list[str]:
    """The parts that the learner's file names."""
    parts = getattr(sys.modules["__main__"], "parts", None)
    return [str(name) for name in parts] if isinstance(parts, dict) else []


def run(function: Callable[..., Any], *given: Any) -> Any:
    """Call a part, or a module."""
    return function(*given)


def method(target: Any, name: str, *given: Any) -> Any:
    """Call a method of what a part has made."""
    return getattr(target, name)(*given)


def serve(
    name: str, given: list[Any], weights: dict[int, Any], grad: bool
) -> dict[str, Any]:
    """Call a function of this file.

    Args:
        name: the function's.
        given: its arguments; a dictionary with one entry ``part``, ``live``,
            ``dict`` or ``leaf`` stands for what it says.
        weights: of modules among them, by number, with whether they train.
        grad: whether gradients are wanted.

    Returns:
        The value, described; and the weights of modules that have changed.
    """
    for number, (training, values) in weights.items():
        LIVE[number].train(training)
        if values:
            load(LIVE[number], values)
    leaves: list[Tensor] = []
    args = [found(value, leaves) for value in given]
    modules = {
        value["live"]: LIVE[value["live"]]
        for value in given
        if isinstance(value, dict) and "live" in value
    }
    held = {
        number: list(module.parameters())
        for number, module in modules.items()
        if isinstance(module, nn.Module)
    }
    before = {n: [p._version for p in ps] for n, ps in held.items()}
    with torch.set_grad_enabled(grad):
        value = globals()[name](*args)
    leaves += [p for ps in held.values() for p in ps]
    return {
        "value": described(value, leaves),
        "weights": {
            number: [p.detach() for p in weights]
            for number, weights in held.items()
            if [p._version for p in weights] != before[number]
        },
    }


def load(module: nn.Module, values: list[Tensor]) -> None:
    """Give a module other weights, perhaps of another type."""
    for p, value in zip(module.parameters(), values, strict=True):
        if p.dtype != value.dtype:
            module.to(value.dtype)
        with torch.no_grad():
            p.copy_(value)


def found(value: Any, leaves: list[Tensor]) -> Any:
    """What an argument stands for."""
    if callable(value):
        return Given(value)
    if not isinstance(value, dict) or len(value) != 1:
        return value
    ((kind, name),) = value.items()
    if kind == "part":
        return sys.modules["__main__"].parts[name]
    if kind == "live":
        return LIVE[name]
    if kind == "dict":
        return DICTS.setdefault(name, {})
    leaves.append(name.requires_grad_())
    return name


def described(value: Any, leaves: list[Tensor]) -> dict[str, Any]:
    """A value that travels, or the number under which it is kept."""
    if isinstance(value, Tensor):
        says: dict[str, Any] = {"tensor": value.detach()}
        if value.requires_grad:
            says["ticket"] = max(GRAPHS, default=-1) + 1
            GRAPHS[says["ticket"]] = value, leaves
            GRAPHS.pop(says["ticket"] - KEPT, None)
        return says
    if isinstance(value, PLAIN):
        return {"plain": value}
    if isinstance(value, list | tuple | dict):
        return {"plain": value}
    LIVE.append(value)
    says = {"live": len(LIVE) - 1, "says": repr(value)[:60]}
    if isinstance(value, nn.Module):
        says["names"] = [name for name, _ in value.named_parameters()]
        says["weights"] = [p.detach() for p in value.parameters()]
        says["tables"] = tables(value)
    return says


def backward(ticket: int, gradient: Tensor) -> list[Tensor | None]:
    """Gradients of what a result was computed from."""
    value, leaves = GRAPHS[ticket]
    return list(
        torch.autograd.grad(
            value, leaves, gradient, retain_graph=True, allow_unused=True
        )
    )
