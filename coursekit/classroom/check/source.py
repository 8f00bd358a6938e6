"""A reference's source with its switches decided.

``if "no_scale" in on:`` is a question to which the answer is known, once it
is known which switches are on.  What remains is a program like any other.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

from coursekit.classroom.check.edits import NONE, Switches


def specialize(
    reference: Callable[..., Any], on: Switches = NONE, name: str = ""
) -> str:
    """The source of a reference as if it had been written without switches.

    Args:
        reference: a function with the keyword ``on``.
        on: the switches that are on.
        name: what to call the function instead.

    Returns:
        its source, without docstring, types and comments.
    """
    tree = ast.parse(textwrap.dedent(inspect.getsource(reference)))
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    function.name = name or function.name
    function.decorator_list = []
    arguments = function.args
    for at, argument in enumerate(arguments.kwonlyargs):
        if argument.arg == "on":
            del arguments.kwonlyargs[at], arguments.kw_defaults[at]
            break
    if ast.get_docstring(function) is not None:
        del function.body[0]
    function.returns = None
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            node.annotation = None
    Decide(on).visit(tree)
    for node in ast.walk(tree):
        for branch in ("body", "orelse"):
            drop_unreachable(getattr(node, branch, None))
    return ast.unparse(ast.fix_missing_locations(tree))


def drop_unreachable(statements: Any) -> None:
    """Leave out what follows a ``return`` or a ``raise``."""
    if not isinstance(statements, list):
        return
    for at, statement in enumerate(statements):
        if isinstance(statement, ast.Return | ast.Raise):
            del statements[at + 1 :]
            return


class Decide(ast.NodeTransformer):
    """Answers each question for a switch, and drops the other branch."""

    def __init__(self, on: Switches) -> None:
        self.on = on

    def answer(self, test: ast.expr) -> bool | None:
        """What a condition comes to, or None if it is not about switches."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self.answer(test.operand)
            return None if inner is None else not inner
        if isinstance(test, ast.BoolOp):
            parts = [self.answer(part) for part in test.values]
            stop = isinstance(test.op, ast.Or)
            if stop in parts:
                return stop
            return None if None in parts else not stop
        if not isinstance(test, ast.Compare) or len(test.ops) != 1:
            return None
        (where,) = test.comparators
        if not isinstance(where, ast.Name) or where.id != "on":
            return None
        found = ast.literal_eval(test.left) in self.on
        return found != isinstance(test.ops[0], ast.NotIn)

    def visit_If(self, node: ast.If) -> Any:
        """Keep the branch that is taken."""
        answer = self.answer(node.test)
        if answer is None:
            self.generic_visit(node)
            return node if node.body else node.orelse
        branch = node.body if answer else node.orelse
        kept = [self.visit(statement) for statement in branch]
        return [
            s
            for part in kept
            for s in (part if isinstance(part, list) else [part])
        ]

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        """Keep the value that is chosen."""
        answer = self.answer(node.test)
        if answer is None:
            return self.generic_visit(node)
        return self.visit(node.body if answer else node.orelse)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        """Of a condition only in part about switches, leave the rest."""
        open_ = [part for part in node.values if self.answer(part) is None]
        parts: list[ast.expr] = [self.visit(part) for part in open_]
        return parts[0] if len(parts) == 1 else ast.BoolOp(node.op, parts)
