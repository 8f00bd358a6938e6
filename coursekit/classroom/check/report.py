"""What a check tells the learner: as text, and as a box in a notebook."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from coursekit.classroom.check.core import NONE, Bug, Switches

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
    """The first case that is not right, with its numbers."""

    counterexample: Counterexample | None = None
    right: int = 0
    """Number of cases that are right; under a variant 0, if the book's own
    solution is right on all of these, too."""

    total: int = 0
    """Number of cases that were tried."""

    diagnosis: Switches = NONE
    """Names of the classic mistakes that were made."""

    mistakes: Sequence[Sequence[Bug]] = ()
    """The sets of mistakes that explain every answer, the smallest first."""

    sought: bool = False
    """Whether classic mistakes of this exercise are known at all."""

    partly_seen: bool = False
    """Whether little is compared with the mistakes: a part of each value, or
    a yes or no."""

    hint: str = ""
    """What else explains the answer, if no mistake does."""

    def __bool__(self) -> bool:
        """Whether the check passed."""
        return self.status == "passed"

    def cause(self) -> list[str]:
        """What was done wrong, in sentences; empty if nothing was."""
        if self.hint:
            return [self.hint]
        if not self.mistakes:
            known = self.status == "wrong" and self.sought
            return ["Wrong; cause not recognized."] if known else []
        likely, *others = self.mistakes
        verb = "looks" if self.partly_seen else "behaves exactly"
        lines = [f"It {verb} like: {says(likely)}."]
        lines += [f"Or like: {says(other)}." for other in others]
        return lines + [bug.why for bug in likely]

    def links(self) -> list[tuple[str, str]]:
        """``(text, address)`` of what to read again."""
        reads = [bug.read for bug in self.mistakes[0]] if self.mistakes else []
        unique = filter(None, dict.fromkeys(reads))
        return [(title(read), address(read)) for read in unique]

    def __str__(self) -> str:
        """Plain text: a headline, the cause, then the example, indented."""
        lines = [*self.cause(), *self.message.splitlines()]
        lines += [f"Read again: {text}, {to}" for text, to in self.links()]
        body = "".join(f"\n  {line}" for line in lines)
        return f"{SIGN[self.status]} {self.id}: {self.status}{body}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The same in a box, for Jupyter and the book."""
        edge = COLOR.get(self.status, "#888")
        links = "".join(
            f'<div>Read again: <a href="{escape(to)}">{escape(text)}</a></div>'
            for text, to in self.links()
        )
        cause = "".join(f"<div>{escape(line)}</div>" for line in self.cause())
        return (
            '<div class="coursekit-report" '
            f'style="border-left: 4px solid {edge}; padding-left: 1em">'
            f"<strong>{SIGN[self.status]} {escape(self.status)}</strong> "
            f"({escape(self.id)}){cause}"
            '<div style="white-space: pre-wrap; font-family: monospace">'
            f"{escape(self.message)}</div>{links}</div>"
        )


def says(bugs: Sequence[Bug]) -> str:
    """Mistakes in words: one, or two of them together."""
    return ", together with ".join(bug.says for bug in bugs)


def title(read: str) -> str:
    """``"04_attention#att-scale"`` in words."""
    page = read.partition("#")[0]
    folder, _, file = page.rpartition("/")
    number, _, name = file.partition("_")
    if not number.isdigit():
        return page
    more = f", {folder}" if folder else ""
    return f"chapter {int(number)}, {name.replace('_', ' ')}{more}"


def address(read: str) -> str:
    """The same as a link from one page of the book to another."""
    page, _, label = read.partition("#")
    return f"{page}.html#{label}"
