"""Take away what would do the learner's work, while it is being checked.

This helps those who forgot, or who copied a line.  It is no protection
against somebody who hides what he calls.
"""

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache, partial
from types import CellType, FunctionType, ModuleType
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


LESSON = (
    "coursekit.minimal",
    "coursekit.minimal_seq2seq",
    "coursekit.classroom.stages",
    "coursekit.classroom.lesson",
)
"""The book's own file: it answers most exercises, so none may call it.

A case that hands over a model of the lesson takes it from
:func:`coursekit.classroom.lesson.load`, whose modules are touched only where
the learner's function can reach them.
"""

FUNCTIONS = (type, FunctionType, type(cache(len)))


class ForbiddenError(RuntimeError):
    """What is to be written was called instead."""


@contextmanager
def forbidden(
    names: Sequence[str], function: Callable[..., Any]
) -> Iterator[Callable[..., Any]]:
    """Make some functions and classes raise :class:`ForbiddenError`.

    Args:
        names: full names, such as ``torch.nn.LayerNorm``; that of a module
            forbids every function and class that it defines.
        function: the learner's; what it imported earlier counts as well, and
            what a closure or a ``functools.partial`` holds.

    Yields:
        what to call: the function, with nothing forbidden behind it.
    """
    put_back: list[tuple[Any, str, Any]] = []
    stands: dict[int, Any] = {}
    parts = made_of(function)
    space = getattr(unwrapped(function), "__globals__", {})
    try:
        for name, owner, last, thing in things(
            names, [*parts, *space.values()]
        ):
            stands[id(thing)] = stand_in(name, thing)
            if owner is not None:
                put_back.append((owner, last, vars(owner).get(last)))
                setattr(owner, last, stands[id(thing)])
        for cell in [cell for part in parts for cell in cells(part)]:
            put_back.append((cell, "cell_contents", cell.cell_contents))
            cell.cell_contents = replaced(cell.cell_contents, stands)
        own = {k: v for k, v in space.items() if id(v) in stands}
        space.update({k: stands[id(v)] for k, v in own.items()})
        try:
            yield replaced(function, stands)
        finally:
            space.update(own)
    finally:
        for owner, last, thing in reversed(put_back):
            if thing is None and not isinstance(owner, CellType):
                delattr(owner, last)  # it was inherited
            else:
                setattr(owner, last, thing)


def made_of(function: Any) -> list[Any]:
    """A function, and what its closures and partials hold."""
    found: dict[int, Any] = {}
    to_do = [function]
    while to_do:
        thing = to_do.pop()
        if id(thing) not in found:
            found[id(thing)] = thing
            to_do += [cell.cell_contents for cell in cells(thing)]
            if isinstance(thing, partial):
                to_do += [thing.func, *thing.args, *thing.keywords.values()]
    return list(found.values())


def cells(thing: Any) -> Iterator[CellType]:
    """Where a function keeps what it has of the functions around it."""
    if isinstance(thing, FunctionType):
        for cell in thing.__closure__ or ():
            try:
                cell.cell_contents  # noqa: B018
            except ValueError:  # it is empty
                continue
            yield cell


def unwrapped(function: Any) -> Any:
    """The function that a partial calls in the end."""
    while isinstance(function, partial):
        function = function.func
    return function


def replaced(thing: Any, stands: dict[int, Any]) -> Any:
    """What stands in for a thing; of a partial, for what it holds."""
    if type(thing) is not partial:
        return stands.get(id(thing), thing)
    args = [replaced(arg, stands) for arg in thing.args]
    named = {k: replaced(v, stands) for k, v in thing.keywords.items()}
    return partial(replaced(thing.func, stands), *args, **named)


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
        if isinstance(owner, ModuleType) and not hasattr(owner, last):
            importlib.import_module(name)
        return owner, last, getattr(owner, last)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            "a forbidden function is given by its full name, such as "
            f"torch.nn.LayerNorm: got {name!r}, which does not exist."
        ) from error


def things(
    names: Sequence[str], reached: Sequence[Any]
) -> Iterator[tuple[str, Any, str, Any]]:
    """What some names forbid, each with its full name and where it stands.

    Args:
        names: of functions and classes, or of modules.
        reached: what the learner's function can call: a module's things are
            found here, too, under any name.

    Yields:
        full name, owner (None if it stands nowhere), name there, thing.
    """
    homes = [(home(value), value) for value in reached]
    for name in names:
        owner, last, thing = locate(name)
        if not isinstance(thing, ModuleType):
            yield name, owner, last, thing
            continue
        inside = [v for place, v in homes if place and lies_in(place, name)]
        for module in [thing, *inside]:
            if isinstance(module, ModuleType):
                for key, value in list(vars(module).items()):
                    if is_within(value, name):
                        yield f"{module.__name__}.{key}", module, key, value
        for value in inside:
            if not isinstance(value, ModuleType):
                full = f"{value.__module__}.{value.__qualname__}"
                yield full, None, "", value


def is_within(thing: Any, module: str) -> bool:
    """Whether a function or class is a module's, or a module is that one.

    What :func:`coursekit.classroom.lesson.load` makes lies within the lesson.
    """
    place = home(thing)
    return place is not None and lies_in(place, module)


def home(thing: Any) -> str | None:
    """The module of a function or class, or the name of a module."""
    if isinstance(thing, ModuleType):
        return thing.__name__
    return str(thing.__module__) if isinstance(thing, FUNCTIONS) else None


def lies_in(place: str, module: str) -> bool:
    """Whether a module is another one, or within it."""
    return place == module or place.startswith(f"{module}.")


class Refusing(type):
    """The type of a class that stands in for another."""

    instead_of: Any
    refuse: Callable[..., Any]

    def __getattr__(cls, attribute: str) -> Any:
        if hasattr(cls.instead_of, attribute):  # Class.train(...) is a call
            return cls.refuse
        raise AttributeError(attribute)


@lru_cache(maxsize=1024)  # a class takes longer to make than most checks
def stand_in(name: str, thing: Any) -> Any:
    """What raises when it is called; a class stays a class."""
    text = f"this exercise asks you to write it yourself, without {name}"

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise ForbiddenError(text)

    if not isinstance(thing, type):
        return refuse
    body = {"__new__": refuse, "instead_of": thing}
    return Refusing(
        thing.__name__, (), {**body, "refuse": staticmethod(refuse)}
    )
