"""What a check tells the learner: as text, and as a box in a notebook."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

SIGN = {"passed": "✓", "wrong": "✗", "error": "✗", "not attempted": "–"}
COLOR = {"passed": "#2a9d5c", "wrong": "#d1495b", "error": "#d1495b"}


@dataclass(frozen=True)
class Counterexample:
    """The inputs of the first case that was not right.

    Call your function with them again: ``f(*example.args)``.
    """

    case: str
    args: tuple[Any, ...] = field(repr=False)
    kwargs: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, repr=False)
class Report:
    """What a check found."""

    id: str
    status: str
    """"passed", "wrong", "error" or "not attempted"."""

    message: str
    counterexample: Counterexample | None = None

    def __bool__(self) -> bool:
        """Whether the check passed."""
        return self.status == "passed"

    def __str__(self) -> str:
        """Plain text: a headline, then the message, indented."""
        body = "".join(f"\n  {line}" for line in self.message.splitlines())
        return f"{SIGN[self.status]} {self.id}: {self.status}{body}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The same in a box, for Jupyter and the book."""
        edge = COLOR.get(self.status, "#888")
        return (
            '<div class="coursekit-report" '
            f'style="border-left: 4px solid {edge}; padding-left: 1em">'
            f"<strong>{SIGN[self.status]} {escape(self.status)}</strong> "
            f"({escape(self.id)})"
            '<div style="white-space: pre-wrap; font-family: monospace">'
            f"{escape(self.message)}</div></div>"
        )
