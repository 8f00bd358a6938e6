"""Take away what would do the learner's work, while it is being checked.

This helps those who forgot, or who copied a line.  It is no protection
against somebody who hides what he calls.
"""

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

AUTOGRAD = (
    "torch.Tensor.backward",
    "torch.autograd.backward",
    "torch.autograd.grad",
    "torch.autograd.functional.jacobian",
    "torch.autograd.functional.vjp",
    "torch.func.grad",
    "torch.func.jacrev",
    "torch.func.vjp",
)
"""Where a gradient is to be worked out by hand."""

ATTENTION = (
    "torch.nn.functional.scaled_dot_product_attention",
    "torch.nn.functional.multi_head_attention_forward",
    "torch.nn.MultiheadAttention",
    "coursekit.attend",
    "coursekit.fast_attend",
    "coursekit.attention.attention_weights",
)
"""Where attention is to be written."""


class ForbiddenError(RuntimeError):
    """What is to be written was called instead."""


@contextmanager
def forbidden(
    names: Sequence[str], function: Callable[..., Any]
) -> Iterator[Callable[..., Any]]:
    """Make some functions and classes raise :class:`ForbiddenError`.

    Args:
        names: full names, such as ``torch.nn.LayerNorm``.
        function: the learner's; what it imported earlier counts as well.

    Yields:
        what to call: the function, unless it is itself a forbidden one.
    """
    put_back: list[tuple[Any, str, Any]] = []
    stands: dict[int, Any] = {}
    space = getattr(function, "__globals__", {})
    try:
        for name in names:
            owner, last, thing = locate(name)
            stands[id(thing)] = stand_in(name, thing)
            put_back.append((owner, last, vars(owner).get(last)))
            setattr(owner, last, stands[id(thing)])
        own = {k: v for k, v in space.items() if id(v) in stands}
        space.update({k: stands[id(v)] for k, v in own.items()})
        try:
            yield stands.get(id(function), function)
        finally:
            space.update(own)
    finally:
        for owner, last, thing in reversed(put_back):
            if thing is None:  # it was inherited
                delattr(owner, last)
            else:
                setattr(owner, last, thing)


def locate(name: str) -> tuple[Any, str, Any]:
    """The module or class that has a thing, its name there, the thing.

    Raises:
        ValueError: if there is no such thing.
    """
    path, _, last = name.rpartition(".")
    try:
        try:
            owner: Any = importlib.import_module(path)
        except ModuleNotFoundError:  # a method: the class is in a module
            module, _, owner_name = path.rpartition(".")
            owner = getattr(importlib.import_module(module), owner_name)
        return owner, last, getattr(owner, last)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            "a forbidden function is given by its full name, such as "
            f"torch.nn.LayerNorm: got {name!r}, which does not exist."
        ) from error


def stand_in(name: str, thing: Any) -> Any:
    """What raises when it is called; a class stays a class."""
    text = f"this exercise asks you to write it yourself, without {name}"

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise ForbiddenError(text)

    class Refusing(type):
        def __getattr__(cls, attribute: str) -> Any:
            if hasattr(thing, attribute):  # Class.train(...) is a call, too
                return refuse
            raise AttributeError(attribute)

    if isinstance(thing, type):
        return Refusing(thing.__name__, (), {"__new__": refuse})
    return refuse
