"""The text of a page: its exercises, its solutions, the instructor's part.

Everything that somebody must not see is cut out of the text itself, before
any tool reads it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

BEGIN, END = "% begin instructor", "% end instructor"
FENCE = re.compile(r"^ *(?P<mark>`{3,}|~{3,}|:{3,})(?P<rest>.*)$")
HIDDEN = {"remove-cell", "remove-input", "remove-output"}


class SourceError(ValueError):
    """A page that is not as it should be."""


def for_students(text: str, page: str = "the page") -> str:
    """A page without the instructor's blocks.

    Raises:
        SourceError: if a block has no end, or an end no beginning.
    """
    kept, opened = list[str](), 0
    for number, line in enumerate(text.split("\n"), 1):
        said = line.strip()
        if said == BEGIN:
            if opened:
                raise SourceError(
                    f"an instructor's block ends before the next begins: got "
                    f"`{BEGIN}` in lines {opened} and {number} of {page}."
                )
            opened = number
        elif said == END:
            if not opened:
                raise SourceError(
                    f"an instructor's block has a beginning: got `{END}` in "
                    f"line {number} of {page}, and none is open."
                )
            opened = 0
        elif re.fullmatch(r"%+\s*(begin|end)\s*instructors?\W*", said, re.I):
            raise SourceError(
                f"an instructor's block stands between `{BEGIN}` and "
                f"`{END}`: got `{said}` in line {number} of {page}."
            )
        elif not opened:
            kept.append(line)
    if opened:
        raise SourceError(
            f"an instructor's block has an end: got `{BEGIN}` in line "
            f"{opened} of {page}, and no `{END}` after it."
        )
    return "\n".join(kept)


def for_instructors(text: str, page: str = "the page") -> str:
    """A page with the instructor's blocks, without the lines around them."""
    for_students(text, page)  # the same errors
    lines = [x for x in text.split("\n") if x.strip() not in (BEGIN, END)]
    return "\n".join(lines)


@dataclass(frozen=True)
class Fenced:
    """A directive at the top of a page."""

    first: int
    """Its first line, from 0."""

    end: int
    """The line after its last."""

    name: str
    """Such as ``solution``; empty if it is no directive."""

    argument: str


def fenced(lines: list[str]) -> Iterator[Fenced]:
    """The fenced blocks of a page, without those within others.

    One that is never closed goes to the end of the page, as MyST has it.
    """
    at = 0
    while at < len(lines):
        found = FENCE.match(lines[at])
        if not found:
            at += 1
            continue
        mark = found["mark"]
        close = re.compile(rf"^ *{re.escape(mark[0])}{{{len(mark)},}} *$")
        last = next(
            (n for n in range(at + 1, len(lines)) if close.match(lines[n])),
            len(lines) - 1,
        )
        said = re.match(r"\{([\w:.-]+)\}\s*(.*)$", found["rest"])
        name, argument = said.groups() if said else ("", "")
        yield Fenced(at, last + 1, name, argument.strip())
        at = last + 1
