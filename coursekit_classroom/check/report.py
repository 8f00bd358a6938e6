"""Reports of checks: as text, and as a box in a notebook."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from coursekit_classroom.check.core import NONE, Bug, Switches
from coursekit_classroom.notebooks.install import book_root, published

SIGN = {"passed": "✓", "wrong": "✗", "error": "✗", "not attempted": "–"}
COLOR = {"passed": "#2a9d5c", "wrong": "#d1495b", "error": "#d1495b"}
# In a chapter's source: code, whose comments look like headings; a heading;
# and one that follows a label at once.
CODE = re.compile(r"^(`{3,})(\{code-cell\}.*|\w+)\n(?s:.*?)^\1$", re.M)
HEADING = re.compile(r"^#+ (.+)$", re.M)
LABELED = re.compile(r"(?:\([\w-]+\)=\s+)+#+ (.+)")


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
    """Result of a check."""

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
    """True if classic mistakes of this exercise are known."""

    partly_seen: bool = False
    """True if little is compared with the mistakes: a part of each value, or
    a yes or no."""

    hint: str = ""
    """Another explanation of the answer, if no mistake explains it."""

    def __bool__(self) -> bool:
        """True if the check passed."""
        return self.status == "passed"

    def cause(self) -> list[str]:
        """The mistakes in sentences; empty if there are none."""
        if self.hint:
            return [self.hint]
        if not self.mistakes:
            unrecognized = self.status == "wrong" and self.sought
            return ["Wrong; cause not recognized."] if unrecognized else []
        likely, *others = self.mistakes
        verb = "looks" if self.partly_seen else "behaves exactly"
        lines = [f"It {verb} like: {says(likely)}."]
        lines += [f"Or like: {says(other)}." for other in others]
        return lines + [bug.why for bug in likely]

    def reads(self) -> list[str]:
        """Labels of the sections to read again, from the mistakes."""
        reads = [bug.read for bug in self.mistakes[0]] if self.mistakes else []
        return list(filter(None, dict.fromkeys(reads)))

    def links(self) -> list[tuple[str, str]]:
        """``(text, address)`` of what to read again, from page to page."""
        return [(title(read), address(read)) for read in self.reads()]

    def __str__(self) -> str:
        """Plain text: a headline, the cause, then the example, indented."""
        lines = [*self.cause(), *self.message.splitlines()]
        for place, heading in map(located, self.reads()):
            to = built(place) or on_site(place)
            words = in_words(place, heading)
            lines.append(f"Read again: {words}{to and f', {to}'}")
        body = "".join(f"\n  {line}" for line in lines)
        return f"{SIGN[self.status]} {self.id}: {self.status}{body}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The same in a box, for Jupyter and the book."""
        edge = COLOR.get(self.status, "#888")
        links = "".join(read_again(*located(read)) for read in self.reads())
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


def located(read: str) -> tuple[str, str]:
    """Page and section heading of a label.

    A label may have moved to a further page of its chapter. Without the
    book's files it is where it is said to be, and the heading is empty.
    """
    page, _, label = read.partition("#")
    root = book_root()
    if root is None:
        return read, ""
    book, number = root / "book", page.partition("_")[0]
    further = sorted(book.glob(f"further/{number}_*.md"))
    for file in filter(Path.is_file, [book / f"{page}.md", *further]):
        text = CODE.sub("", file.read_text("utf8"))
        target = rf"^(\({label}\)=|:(label|name): {label})$"
        if match := re.search(target, text, re.M):
            labeled = LABELED.match(text, match.start())
            above = HEADING.findall(text[: match.start()])
            heading = labeled[1] if labeled else above[-1]
            name = file.relative_to(book).with_suffix("").as_posix()
            return f"{name}#{label}", heading
    return read, ""


def in_words(place: str, heading: str) -> str:
    """The page and the section, to be found without a link."""
    return f"{title(place)}: {heading}" if heading else title(place)


def read_again(place: str, heading: str) -> str:
    """Links "Read again" as HTML for a notebook.

    The book's build finds the address on its pages in ``data-read``.
    """
    shown = escape(in_words(place, heading))
    if to := in_notebook(place, heading) or on_site(place):
        shown = f'<a href="{escape(to)}">{shown}</a>'
    to = escape(address(place))
    return f'<div data-read="{to}">Read again: {shown}</div>'


def in_notebook(place: str, heading: str) -> str:
    """A link to the section in a reader's notebook near the one that runs.

    Jupyter finds a heading only if its browser leaves its letters as they
    are in an address; other headings are found by the cell that has them.
    """
    for folder in ("", "../"):
        near = f"{folder}{place.partition('#')[0]}.ipynb"
        if heading and Path(near).is_file():
            for cell in json.loads(Path(near).read_text("utf8"))["cells"]:
                if f"# {heading}\n" in f"{''.join(cell['source'])}\n":
                    name = heading.replace(" ", "-")
                    if not re.fullmatch(r"[\w,:;?!.'()-]+", name, re.ASCII):
                        name = f"cell-id={cell['id']}"
                    return f"{near}#{name}"
    return ""


def built(place: str) -> str:
    """The address of the built page as a file; empty if it is not built."""
    page, _, label = place.partition("#")
    root = book_root()
    file = root and root / "_build" / "html" / "book" / f"{page}.html"
    return f"{file.as_uri()}#{label}" if file and file.is_file() else ""


def on_site(place: str) -> str:
    """The address of the page in the published book; empty without one."""
    root = book_root()
    site = published(root).site if root else ""
    return site and f"{site}book/{address(place)}"
