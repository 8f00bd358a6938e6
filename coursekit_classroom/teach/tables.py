"""Tables as an instructor, an LMS or a spreadsheet has saved them.

Comma, semicolon and tab separate; a byte order mark, UTF-16 and blank lines
are no trouble, nor is a decimal comma.
"""

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from coursekit_classroom.notebooks.cells import decode


@dataclass(frozen=True)
class Table:
    """The lines of a table that are not blank."""

    columns: Sequence[str]
    rows: Sequence[tuple[int, Sequence[str]]]
    """The number of each line in the file, and its cells."""

    def named(self) -> Iterator[tuple[int, Mapping[str, str]]]:
        """The same with each line's cells by the names of the columns."""
        for line, row in self.rows:
            cells = [*row, *[""] * len(self.columns)]
            yield line, dict(zip(self.columns, cells, strict=False))


def read_table(path: Path, what: str) -> Table:
    """Read a table, its columns without the blanks around them.

    Args:
        path: a CSV file.
        what: it is, for messages: ``"the roster"``.

    Raises:
        ValueError: if it cannot be read, or is empty.
    """
    try:
        text = decode(path.read_bytes())
    except OSError as error:
        raise ValueError(
            f"{what} {path} cannot be read: {error.strerror}."
        ) from error
    if "\0" in text:
        raise ValueError(
            f"{what} is a CSV file: got {path.name}, which is no text. In "
            "Excel, save it as CSV."
        )
    head = next((line for line in text.splitlines() if line.strip()), "")
    separator = max(",;\t", key=head.count)
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    rows = [(lines.line_num, [c.strip() for c in row]) for row in lines]
    rows = [(number, row) for number, row in rows if any(row)]
    if not rows:
        raise ValueError(f"{what} has lines: {path.name} is empty.")
    return Table(rows[0][1], rows[1:])


def count(n: int, noun: str) -> str:
    """A number of things in words."""
    return f"{n} {noun}{'s' * (n != 1)}"


def number_in(text: str) -> float:
    """The number of a cell, in which a comma may be the decimal point.

    Raises:
        ValueError: if it is none, or not finite.
    """
    number = float(text.replace(",", "."))
    if not math.isfinite(number):
        raise ValueError(f"a cell holds a number: got {text!r}.")
    return number
