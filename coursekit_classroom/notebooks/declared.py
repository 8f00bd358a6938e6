"""The exercises that a chapter or a notebook asks.

An exercise is declared by the metadata of its stub cell: ``exercise``,
``points``, ``kind``, ``minutes``, ``objective``.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from coursekit_classroom.notebooks.cells import (
    Cell,
    NotebookError,
    read_cells,
)
from coursekit_classroom.notebooks.program import parse

KINDS = ("practice", "assessed")
ID = re.compile(r"[A-Za-z_]\w*/[A-Za-z_]\w*(?::test)?")
EXERCISE = re.compile(
    r"^(`{3,}|:{3,})\{exercise\}[ ]*(?P<title>.*)\n"
    r"(?:(?::(?!label)\S+:.*|)\n)*(?::label:[ ]*(?P<label>\S+))?"
    r"|^\*\*Exercise\.\*\*[ ]+\*\*(?P<plain>.*)\*\*[ ]*$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Declared:
    """An exercise as its stub cell declares it."""

    id: str
    """``"attention/attend"``."""

    points: int | float
    kind: str
    """"practice" or "assessed"."""

    minutes: int
    """What it takes; 0 if nobody has said."""

    objective: str
    """What one can do who has solved it."""

    function: str
    """The name that the stub defines."""

    title: str
    """Of the exercise that stands before it, with its stars."""

    label: str
    """Of the same, in the book; empty in a notebook."""

    stub: str
    """The cell's source."""

    page: str
    """``"04_attention"``."""


def declared(path: Path | str) -> list[Declared]:
    """The exercises of a chapter or a notebook, in its order.

    Raises:
        NotebookError: if it cannot be read, or a declaration is wrong.
    """
    cells = read_cells(path)
    return declared_in(cells, Path(path).stem)


def declared_in(cells: Iterable[Cell], page: str) -> list[Declared]:
    """The exercises that some cells declare."""
    found: dict[str, Declared] = {}
    title = label = ""
    for cell in cells:
        if cell.kind == "markdown":
            for block in EXERCISE.finditer(cell.source + "\n"):
                title = (block["title"] or block["plain"] or "").strip()
                label = block["label"] or ""
        elif cell.kind == "code" and "exercise" in cell.metadata:
            new = declaration(cell, page, title, label)
            if new.id in found:
                raise NotebookError(
                    f"an exercise has one stub cell: got two for {new.id} "
                    f"in {page}. Keep the metadata at one of them."
                )
            found[new.id] = new
    return list(found.values())


def declaration(cell: Cell, page: str, title: str, label: str) -> Declared:
    """What one stub cell declares."""
    said, name = cell.metadata, str(cell.metadata["exercise"])
    where = f"for {name} in {page}"
    points, minutes = said.get("points", 1), said.get("minutes", 0)
    kind = said.get("kind", "practice")
    if not ID.fullmatch(name):
        raise NotebookError(
            f"an exercise's id is chapter/name: got {name!r} in {page}."
        )
    if type(points) not in (int, float) or not 0 < points < 1000:
        raise NotebookError(
            f"points are a number above 0: got {points!r} {where}."
        )
    if type(minutes) is not int or minutes < 0:
        raise NotebookError(
            f"minutes are a whole number: got {minutes!r} {where}."
        )
    if kind not in KINDS:
        raise NotebookError(
            f"a kind is {' or '.join(KINDS)}: got {kind!r} {where}."
        )
    try:
        names = parse(cell.source).functions
    except SyntaxError as error:
        names, reason = (), f" ({error.msg})"
    else:
        reason = ""
    if not names:
        raise NotebookError(
            f"a stub defines a function: got none {where}{reason}."
        )
    objective = str(said.get("objective", ""))
    return Declared(
        name,
        points,
        kind,
        minutes,
        objective,
        names[-1],
        title,
        label,
        cell.source,
        page,
    )
