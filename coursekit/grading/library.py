"""Which forbidden functions a submission names.

Read off the source; nothing is run.  Whoever wants to hide a call can: this
column is for a look, and takes no points.
"""

import ast
import importlib
import inspect
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from coursekit.exercises.forbid import locate
from coursekit.grading.program import parse

ROOTS = ("torch", "numpy", "coursekit")  # where names are followed


def used(cells: Sequence[str], forbid: Sequence[str]) -> list[str]:
    """Those of the forbidden names that some cells use, in order.

    Args:
        cells: what an answer is made of.
        forbid: full names, such as ``torch.nn.LayerNorm``.
    """
    trees = [tree for cell in cells if (tree := read(cell)) is not None]
    names = Names(trees)
    paths = {path for tree in trees for path in names.paths(tree)}
    return [f for f in forbid if any(names.means(p, f) for p in paths)]


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
        self.stars: list[str] = []
        nodes = [node for tree in trees for node in ast.walk(tree)]
        for node in nodes:
            self.note_import(node)
        for _ in range(2):  # an alias of an alias
            for node in nodes:
                self.note_alias(node)

    def note_import(self, node: ast.AST) -> None:
        """``import torch.nn as n``, ``from torch.nn import LayerNorm``."""
        if isinstance(node, ast.Import):
            for a in node.names:
                first = a.name.partition(".")[0]
                self.known[a.asname or first] = a.name if a.asname else first
        elif isinstance(node, ast.ImportFrom) and node.module:
            for a in node.names:
                if a.name == "*":
                    self.stars.append(node.module)
                else:
                    path = f"{node.module}.{a.name}"
                    self.known[a.asname or a.name] = path

    def note_alias(self, node: ast.AST) -> None:
        """``sdpa = F.scaled_dot_product_attention``."""
        if not isinstance(node, (ast.Assign, ast.NamedExpr)):
            return
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target]
        )
        path = self.path(node.value)
        for target in targets:
            if isinstance(target, ast.Name) and path and path[0] != ".":
                self.known.setdefault(target.id, path)

    def path(self, node: ast.AST) -> str:
        """A dotted name; it begins with a dot if its owner is not known."""
        if isinstance(node, ast.Name):
            if node.id in self.known:
                return self.known[node.id]
            for module in self.stars:
                if thing(f"{module}.{node.id}") is not None:
                    return f"{module}.{node.id}"
            return ""
        if isinstance(node, ast.Attribute):
            return f"{self.path(node.value)}.{node.attr}"
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
                return f"{self.path(node.args[0])}.{text}"
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

    def means(self, path: str, name: str) -> bool:
        """Whether a path of the program leads to what a full name means."""
        if path == name:
            return True
        owner, last, forbidden = locate(name)
        if path.startswith(".") or not path.startswith(ROOTS):
            # A method of who knows what: the name has to do.
            return path.endswith(f".{last}") and isinstance(owner, type)
        return thing(path) is forbidden


def thing(path: str) -> Any:
    """What a dotted name stands for in modules that are loaded, or None."""
    parts = path.split(".")
    if parts[0] not in ROOTS:
        return None
    for n in range(len(parts), 0, -1):
        module = ".".join(parts[:n])
        if n == 1:
            importlib.import_module(module)
        found: Any = sys.modules.get(module)
        if found is not None:
            for part in parts[n:]:
                found = inspect.getattr_static(found, part, None)
            return found
    return None
