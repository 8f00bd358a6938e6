"""Mistakes as edits: the source of a reference, with some of its text changed.

An edit is a text that occurs exactly once in the source, and the text in its
place.  What results is compiled like any other program.
"""

import ast
import inspect
import linecache
import textwrap
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

Switches = frozenset[str]
"""Names of mistakes and variants."""
NONE: Switches = frozenset()
Edits = Sequence[str]
"""Old text, new text, old text, new text, …"""


class EditError(ValueError):
    """An edit that does not fit its source."""


@cache
def written(function: Callable[..., Any]) -> str:
    """A function's source, without decorators and docstring."""
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
    (node,) = ast.parse(source).body
    assert isinstance(node, ast.FunctionDef)
    lines = source.splitlines(keepends=True)
    if ast.get_docstring(node) is not None:
        text = node.body[0]
        del lines[text.lineno - 1 : text.end_lineno]
    return "".join(lines[node.lineno - 1 :])


def edited(source: str, *changes: Sequence[Edits]) -> str:
    """A source after some changes, one after the other.

    Args:
        source: the text to start from.
        changes: each is a list of edits, and perhaps other lists, of which
            the first is made that fits: what an edit replaces may read
            differently after the change before it.

    Raises:
        EditError: if none fits.
    """
    for lists in changes:
        variants = (replaced(source, edits) for edits in lists)
        after = next((text for text in variants if text is not None), None)
        if after is None:
            raise EditError(
                "an edit replaces text that occurs exactly once: got "
                f"{lists[0][::2]} for\n{source}"
            )
        source = after
    return source


def replaced(source: str, edits: Edits) -> str | None:
    """A source after a list of edits, or None if one of them does not fit."""
    for old, new in zip(edits[::2], edits[1::2], strict=True):
        if source.count(old) != 1:
            return None
        source = source.replace(old, new)
    return source


def compiled(
    source: str, like: Callable[..., Any], title: str
) -> Callable[..., Any]:
    """The function that a source defines, among the names of another's module.

    Args:
        source: defines a function of the other's name.
        like: the other.
        title: names the source in tracebacks, which show its lines.
    """
    like, file = inspect.unwrap(like), f"<{title}>"
    space = dict(like.__globals__)
    exec(compile(source, file, "exec"), space)
    lines = source.splitlines(keepends=True)
    linecache.cache[file] = len(source), None, lines, file
    made: Callable[..., Any] = space[like.__name__]
    return made
