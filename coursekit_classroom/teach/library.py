"""Which forbidden functions a submission names.

Read off the source; nothing is run.  Whoever wants to hide a call can: this
column is for a look, and takes no points.
"""

import ast
import importlib
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from coursekit_classroom.check.forbid import locate
from coursekit_classroom.notebooks.program import parse

ROOTS = ("torch", "numpy", "coursekit")  # where names are followed
ATEN = "torch.ops.aten."  # holds functions under the names they have in C++
LONG = 200  # characters of a dotted name that is followed


def used(cells: Sequence[str], forbid: Sequence[str]) -> list[str]:
    """Those of the forbidden names that some cells use, in order.

    Args:
        cells: what an answer is made of.
        forbid: full names, such as ``torch.nn.LayerNorm``, or those of
            modules.
    """
    trees = [tree for cell in cells if (tree := read(cell)) is not None]
    names = Names(trees)
    paths = {path for tree in trees for path in names.paths(tree)}
    found = {path: thing(path) for path in paths}
    return [f for f in forbid if leads(found, f)]


def read(cell: str) -> ast.Module | None:
    """A cell's program, or None if it is not Python."""
    try:
        return ast.parse(parse(cell).source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class Names:
    """What the names of a program stand for."""

    def __init__(self, trees: Sequence[ast.Module]) -> None:
        self.known: dict[str, str] = {}
        self.stars: dict[str, str] = {}
        """What star imports bring, from modules that are loaded."""
        self.starred = set[int]()
        self.paths_of: dict[ast.AST, str] = {}
        """Of members, found already: each is asked for, and its owner."""
        nodes = [node for tree in trees for node in ast.walk(tree)]
        for node in nodes:
            self.note_import(node)
        for _ in range(2):  # an alias of an alias
            for node in nodes:
                for target, value in bindings(node):
                    self.note_alias(target, value)

    def note_import(self, node: ast.AST) -> None:
        """``import torch.nn as n``, ``from torch.nn import LayerNorm``."""
        if isinstance(node, ast.Import):
            for a in node.names:
                first = a.name.partition(".")[0]
                self.learn(a.asname or first, a.name if a.asname else first)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for a in node.names:
                if a.name == "*":
                    self.note_star(node.module)
                else:
                    self.learn(a.asname or a.name, f"{node.module}.{a.name}")

    def note_star(self, path: str) -> None:
        """``from torch.nn import *``, of each module once."""
        module = thing(path)
        if isinstance(module, ModuleType) and id(module) not in self.starred:
            self.starred.add(id(module))
            for name in dir(module):
                self.stars.setdefault(name, f"{path}.{name}")
            self.paths_of.clear()

    def note_alias(self, name: str, value: ast.AST) -> None:
        """``sdpa = F.scaled_dot_product_attention``."""
        path = self.path(value)
        if path and path[0] != "." and name not in self.known:
            self.learn(name, path)

    def learn(self, name: str, path: str) -> None:
        """From here on a name means something else."""
        self.known[name] = path
        self.paths_of.clear()

    def path(self, node: ast.AST) -> str:
        """A dotted name; it begins with a dot if its owner is not known."""
        chain = list[ast.Attribute]()  # a loop: it may be hundreds long
        while isinstance(node, ast.Attribute) and node not in self.paths_of:
            chain.append(node)
            node = node.value
        path = self.paths_of.get(node)
        path = self.first(node) if path is None else path
        for part in reversed(chain):
            path = self.paths_of[part] = member(path, part.attr)
        return path

    def first(self, node: ast.AST) -> str:
        """The dotted name of what is no member of anything."""
        if isinstance(node, ast.Name):
            return self.known.get(node.id, self.stars.get(node.id, ""))
        if isinstance(node, ast.Call) and node.args:
            called = node.func
            name = getattr(called, "id", getattr(called, "attr", ""))
            text = getattr(node.args[-1], "value", None)
            if name in ("import_module", "__import__"):
                first = getattr(node.args[0], "value", "")
                return first if isinstance(first, str) else ""
            if len(node.args) > 1:
                text = getattr(node.args[1], "value", None)
            if name == "getattr" and isinstance(text, str):
                return member(self.path(node.args[0]), text)
        return ""

    def paths(self, tree: ast.AST) -> Iterator[str]:
        """Every dotted name of a program, programs in its texts included."""
        for node in ast.walk(tree):
            if path := self.path(node):
                yield path
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", "")
                text = getattr(node.args[0], "value", "") if node.args else ""
                if name in ("exec", "eval") and isinstance(text, str):
                    inner = read(text)
                    if inner is not None:
                        for part in ast.walk(inner):
                            self.note_import(part)
                        yield from self.paths(inner)


def member(owner: str, name: str) -> str:
    """A dotted name from its two halves."""
    known = owner and owner[0] != "." and len(owner) < LONG
    return f"{owner}.{name}" if known else f".{name}"


def bindings(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """The names that a statement gives to something, and to what.

    ``f = F``, ``f: Any = F``, ``(f := F)``, ``f, g = F, 1``, and the
    defaults of ``def h(x, f=F)``.
    """
    pairs = list[tuple[ast.AST, ast.AST | None]]()
    if isinstance(node, ast.Assign):
        pairs = [(target, node.value) for target in node.targets]
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
        pairs = [(node.target, node.value)]
    elif isinstance(node, ast.arguments):
        plain, kept = [*node.posonlyargs, *node.args], node.kwonlyargs
        pairs = [*zip(plain[::-1], node.defaults[::-1], strict=False)]
        pairs += zip(kept, node.kw_defaults, strict=True)
    for target, value in pairs:
        inner: Any = [(target, value)]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            inner = zip(target.elts, value.elts, strict=False)
        for part, meant in inner:
            name = getattr(part, "id", getattr(part, "arg", None))
            if name and meant is not None:
                yield name, meant


def leads(found: Mapping[str, Any], name: str) -> bool:
    """Whether one of some paths leads to what a full name means.

    Args:
        found: the paths of a program, and what they stand for.
        name: such as ``torch.nn.LayerNorm``, or that of a module.
    """
    owner, last, forbidden = locate(name)
    if isinstance(forbidden, ModuleType):
        inside = f"{name}."
        return any(f"{path}.".startswith(inside) for path in found)
    # A method of who knows what, or a function's twin: the name has to do.
    ends, method = f".{last}", isinstance(owner, type)
    for path, meant in found.items():
        if path == name or meant is forbidden:
            return True
        strange = method and not path.startswith(ROOTS)
        if path.endswith(ends) and (strange or path.startswith(ATEN)):
            return True
    return False


def thing(path: str) -> Any:
    """What a dotted name stands for in modules that are loaded, or None."""
    root, *parts = path.split(".")
    if root not in ROOTS:
        return None
    found: Any = importlib.import_module(root)
    for part in parts:
        root += f".{part}"
        inner = inspect.getattr_static(found, part, None)
        found = sys.modules.get(root, inner)
        if found is None:
            return None
    return found
