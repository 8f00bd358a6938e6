"""A reference as a program for a notebook, without its module."""

import ast
import builtins
import inspect
import sys
import textwrap
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

import torch

from coursekit_classroom.check.core import (
    NONE,
    Exercise,
    Switches,
    source_of,
)
from coursekit_classroom.notebooks.program import parse

CATALOGUE = (
    *("coursekit_classroom.catalogue.", "coursekit_classroom.check."),
    "overlay_",
)


class NotStandaloneError(ValueError):
    """A reference that cannot be taken out of its module."""


@dataclass(frozen=True)
class Standalone:
    """A program in two parts."""

    prelude: str
    """Imports, constants and helpers; may be empty."""

    function: str
    """The function, without annotations."""

    def __str__(self) -> str:
        """All of it."""
        gap = "\n\n\n" if self.prelude else ""
        return self.prelude + gap + self.function


def standalone(
    exercise: Exercise, on: Switches = NONE, name: str = ""
) -> Standalone:
    """A reference as if it had been written with these mistakes.

    Args:
        exercise: one of the catalogue or an overlay.
        on: names of its mistakes and variants.
        name: what to call the function.

    Raises:
        NotStandaloneError: if it uses what cannot be written down.
    """
    reference = inspect.unwrap(exercise.reference)
    if not isinstance(reference, FunctionType):
        raise NotStandaloneError(f"{reference!r} is no plain function")
    try:
        source = source_of(exercise, on, name)
    except (OSError, TypeError, SyntaxError, ValueError) as error:
        raise NotStandaloneError(str(error)) from error
    source = unannotated(source)
    imports, rest = collect(source, reference.__globals__, {reference}, [])
    prelude = "\n".join(sorted(set(imports)))
    return Standalone("\n\n\n".join([prelude, *rest]).strip(), source)


def collect(
    source: str,
    space: dict[str, Any],
    seen: set[Any],
    rest: list[str],
) -> tuple[list[str], list[str]]:
    """The imports that a source needs, and the definitions, inner ones first.

    ``seen`` are functions that stand somewhere already.
    """
    imports = list[str]()
    program = parse(source)
    own = {n for part in program.statements for n in part.sets}
    reads = {n for part in program.statements for n in part.reads}
    for name in sorted(reads - own - set(dir(builtins))):
        if name not in space:
            raise NotStandaloneError(f"{name} is nowhere defined")
        value = inspect.unwrap(space[name])
        if isinstance(value, ModuleType):
            imports.append(import_of(value.__name__, name))
        elif isinstance(value, (FunctionType, type)) and (
            value.__module__.startswith(CATALOGUE)
        ):
            if value in seen:
                continue
            seen.add(value)
            if value.__name__ != name:
                raise NotStandaloneError(f"{name} has another name at home")
            inner = unannotated(textwrap.dedent(inspect.getsource(value)))
            home = vars(sys.modules[value.__module__])
            imports += collect(inner, home, seen, rest)[0]
            rest.append(inner)
        elif callable(value) and hasattr(value, "__name__"):
            imports.append(f"from {home_of(value, name)} import {name}")
        else:
            if isinstance(value, torch.dtype):
                imports.append("import torch")
            line = f"{name} = {literal(value, name)}"
            rest += [line] if line not in rest else []
    return imports, rest


def import_of(module: str, name: str) -> str:
    """The line that imports a module under a name."""
    parent, _, last = module.rpartition(".")
    if parent and last == name:
        return f"from {parent} import {name}"
    if parent and name == module.split(".")[0]:
        return f"import {module}"
    return f"import {module}" + f" as {name}" * (name != module)


def home_of(value: Any, name: str) -> str:
    """The module from which something can be imported by a name."""
    for module in (getattr(value, "__module__", None), "torch"):
        try:
            found = __import__(module or "", fromlist=[name])
        except (ImportError, ValueError):
            continue
        there: Any = getattr(found, name, None)
        if inspect.unwrap(there) is value and module:
            return module
    raise NotStandaloneError(f"{name} comes from nowhere known")


def literal(value: Any, name: str) -> str:
    """A constant as it is written."""
    text = repr(value)
    if isinstance(value, torch.dtype):
        return text
    try:
        if ast.literal_eval(text) == value:
            return text
    except (ValueError, SyntaxError):
        pass
    raise NotStandaloneError(f"{name} is no constant that can be written")


def unannotated(source: str) -> str:
    """A source without annotations and comments."""
    tree = Unannotate().visit(ast.parse(source))
    return ast.unparse(ast.fix_missing_locations(tree))


class Unannotate(ast.NodeTransformer):
    """Drops what says types."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        """An argument's."""
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """A result's."""
        node.returns = None
        self.generic_visit(node)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        """A variable's."""
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        new = ast.Assign([node.target], node.value)
        return ast.copy_location(new, node)
