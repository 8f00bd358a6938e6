"""Refuse what would do the learner's work, while it is being checked.

Nothing is replaced: Python reports each call (``sys.setprofile``), and a
forbidden one raises.  So nothing has to be put back, whatever an answer
imports, keeps or raises, and other threads see nothing of it.

This helps those who forgot, or who copied a line.  It is no protection
against somebody who hides what he calls.
"""

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    MethodDescriptorType,
    ModuleType,
)
from typing import Any

Function = Callable[..., Any]

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
"""For exercises in which a gradient is derived by hand."""

ATTENTION = (
    "torch.nn.functional.scaled_dot_product_attention",
    "torch.nn.functional.multi_head_attention_forward",
    "torch.nn.MultiheadAttention",
    "coursekit.attend",
    "coursekit.fast_attend",
    "coursekit.attention.attention_weights",
)
"""For exercises in which attention is written."""


LESSON = (
    "coursekit.minimal",
    "coursekit.minimal_seq2seq",
    "coursekit_classroom.stages",
    "coursekit_classroom.lesson",
)
"""The book's own file: it answers most exercises, so none may call it.

A case that hands over a model of the lesson takes it from
:func:`coursekit_classroom.lesson.load`, whose modules are touched only where
the learner's function can reach them.
"""

CALLER = f"{__package__}.call"
"""The module that calls the learner's function."""

OURS = "coursekit", "coursekit_classroom"


class ForbiddenError(RuntimeError):
    """An answer called the function that it should implement."""


@contextmanager
def forbidden(
    names: Sequence[str],
) -> Iterator[Callable[[Function], Function]]:
    """Make calls of some functions and classes raise :class:`ForbiddenError`.

    It holds in this thread, until one of them has raised.  Under a profiler
    that Python could not resume, such as ``%prun``, nothing is forbidden.

    Args:
        names: full names, such as ``torch.nn.LayerNorm``; that of a module
            forbids every function and class that it defines.  Without names,
            all may be called, whatever is forbidden around this.

    Yields:
        what gives for the learner's function the one to call.
    """
    before, watch = sys.getprofile(), Watch(names)
    resumable = before is None or callable(before)
    if resumable:
        sys.setprofile(watch if names else None)
    try:
        yield watch.allowed
    finally:
        if resumable:
            sys.setprofile(before)


class Watch:
    """A profiler that raises where something forbidden is called.

    Args:
        names: as :func:`forbidden` has them.
    """

    def __init__(self, names: Sequence[str]) -> None:
        things = [(name, locate(name)[-1]) for name in names]
        self.modules = [n for n, t in things if isinstance(t, ModuleType)]
        self.things = [(n, t) for n, t in things if n not in self.modules]
        # By identity: to compare codes takes longer than most calls.
        self.codes: dict[int, list[tuple[str, Any]]] = {}
        self.harmless: dict[int, CodeType] = {}
        self.built_in: dict[str, list[tuple[str, Any]]] = {}
        for name, thing in self.things:
            function = entry(name, thing)
            if isinstance(function, FunctionType):
                entries = self.codes.setdefault(id(function.__code__), [])
            else:
                entries = self.built_in.setdefault(function.__name__, [])
            entries.append((name, thing))

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        """Look at one event: see ``sys.setprofile``."""
        if event == "call" and id(frame.f_code) not in self.harmless:
            name = self.named(frame)
        elif event == "c_call" and arg.__name__ in self.built_in:
            name = self.named_built_in(arg)
        else:
            return
        if name and not any(map(is_import, callers(frame))):
            refuse(name)

    def named(self, frame: FrameType) -> str | None:
        """The name of what begins to run in a frame, if it is forbidden."""
        code, place = frame.f_code, home(frame)
        for name, thing in self.codes.get(id(code), ()):
            if not isinstance(thing, type) or isinstance(
                frame.f_locals[code.co_varnames[0]], thing
            ):
                return name
        own = code.co_qualname.removesuffix(".__init__")
        if own.isidentifier() and self.has(place):
            return None if in_package(frame) else f"{place}.{own}"
        if id(code) not in self.codes:
            self.harmless[id(code)] = code
        return None

    def has(self, place: str) -> bool:
        """True if a module is forbidden."""
        return any(lies_in(place, module) for module in self.modules)

    def named_built_in(self, function: Any) -> str | None:
        """The name of a function in C, if it is forbidden."""
        for name, thing in self.built_in[function.__name__]:
            if function == thing or (
                isinstance(thing, MethodDescriptorType)
                and isinstance(function.__self__, thing.__objclass__)
            ):
                return name
        return None

    def allowed(self, function: Function) -> Function:
        """The function, or one that raises if it is forbidden itself.

        Arguments that do not fit would raise before it begins to run.
        """
        own = function
        while isinstance(own, partial):
            own = own.func
        names = [name for name, thing in self.things if thing is own]
        place = str(getattr(own, "__module__", ""))
        if self.has(place):
            names.append(f"{place}.{getattr(own, '__qualname__', '')}")
        return partial(refuse, names[0]) if names else function


def refuse(name: str, *_: Any, **__: Any) -> None:
    """Raise :class:`ForbiddenError` for something with this name."""
    raise ForbiddenError(
        f"this exercise asks you to write it yourself, without {name}"
    )


def entry(name: str, thing: Any) -> Any:
    """The function that runs when a function or class is called.

    Raises:
        ValueError: if Python does not report its calls.
    """
    called = thing
    if isinstance(thing, type):
        called = thing.__init__  # type: ignore[misc]
    function = inspect.unwrap(called)
    in_python = isinstance(function, FunctionType)
    in_c = isinstance(function, BuiltinFunctionType | MethodDescriptorType)
    if not in_python and (not in_c or name.endswith("__")):
        raise ValueError(
            "a forbidden function or class is one whose calls Python "
            f"reports, which an operator's are not: got {name}. Forbid "
            "something else."
        )
    return function


def callers(frame: FrameType) -> Iterator[FrameType]:
    """The frames that lead to one, back to the check's own."""
    before = frame.f_back
    while before is not None and home(before) != CALLER:
        yield before
        before = before.f_back


def is_import(frame: FrameType) -> bool:
    """True if a frame imports a module, whose calls are no answer."""
    return frame.f_code.co_filename == "<frozen importlib._bootstrap>"


def in_package(frame: FrameType) -> bool:
    """True if the package made the call, as a model calls its parts."""
    for place in map(home, callers(frame)):
        if not lies_in(place, "torch"):
            return place.partition(".")[0] in OURS
    return False


def home(frame: FrameType) -> str:
    """The module whose code a frame runs."""
    return str(frame.f_globals.get("__name__", ""))


def lies_in(place: str, module: str) -> bool:
    """True if a module is `module` or inside it."""
    return place == module or place.startswith(f"{module}.")


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
