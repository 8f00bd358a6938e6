"""Which cells of a notebook answer an exercise, and what they need.

An answer is found by its cell's metadata or, where that is lost, by the
function's name.  Nothing is run here.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from coursekit_classroom.notebooks.cells import Cell
from coursekit_classroom.notebooks.declared import ID
from coursekit_classroom.notebooks.program import (
    Program,
    defines,
    needed,
    parse,
)

CHECKED = re.compile(rf"""\bcheck\(\s*["']({ID.pattern})["']""")


@runtime_checkable
class Wanted(Protocol):
    """What is looked for in a submission; :class:`Declared` is one."""

    @property
    def id(self) -> str: ...
    @property
    def function(self) -> str: ...


@dataclass(frozen=True)
class Answer:
    """A student's answer to one exercise."""

    id: str
    source: str
    """What of its cell the function is made of; the lines keep their places.

    All of the cell, if it is not Python.
    """

    function: str
    """What it defines: the name that was asked for, unless ``renamed``."""

    problem: str = ""
    """Empty, or one of:

    - ``missing``: there is no such cell, or it defines nothing.
    - ``syntax``: the cell is not Python, and no other cell has the function.
    - ``duplicate``: several cells answer; the last that is written counts.
    - ``elsewhere``: its own cell holds the stub, and another one answers.
    - ``files``: several files do; the newest that is written counts.
    - ``renamed``: the function of the cell has another name.
    """

    helpers: tuple[str, ...] = ()
    """What it needs of the other cells of its notebook, in their order."""

    file: str = ""
    """The name of the notebook that it was taken from; empty if missing."""

    cell: int = 0
    """Which of its cells it is, counted from 1; 0 if missing."""


class Notebook:
    """A notebook's code: what is Python, and what is not."""

    def __init__(
        self,
        cells: Sequence[Cell],
        path: Path,
        mark: str = "",
        setup: Sequence[str] = (),
    ) -> None:
        self.cells, self.path, self.mark = cells, path, mark
        self.name = path.name
        # What was given out comes first, in case its cells were deleted.
        self.programs: dict[int, Program] = {
            number: parse(source)
            for number, source in enumerate(setup, -len(setup))
        }
        self.broken: set[int] = set()
        for number, cell in enumerate(cells):
            if cell.kind != "code":
                continue
            try:
                self.programs[number] = parse(cell.source)
            except SyntaxError:
                self.broken.add(number)

    def mentions(self, text: str) -> bool:
        """Whether any cell has that text, or that id."""
        return any(text in c.source or text == c.exercise for c in self.cells)

    @property
    def is_program(self) -> bool:
        """Whether it is a ``.py`` file, which has no marks."""
        return self.path.suffix.lower() == ".py"

    def exercises(self, wanted: Iterable[Wanted]) -> set[str]:
        """The ids that its code cells are marked with, or check.

        Where all of that is lost, those whose function it defines.
        """
        code = [cell for cell in self.cells if cell.kind == "code"]
        found = {cell.exercise for cell in code if cell.exercise}
        for cell in code:
            found.update(CHECKED.findall(cell.source))
        return found or {
            want.id for want in wanted if self.defining(want.function)
        }

    def defining(self, name: str) -> list[int]:
        """The numbers of its own cells that define a name."""
        return [
            number
            for number, program in self.programs.items()
            if number >= 0 and defines(program, name)
        ]

    def is_attempt(self, wanted: Iterable[Wanted]) -> bool:
        """Whether anything is written for one of some exercises."""
        for want in wanted:
            cells = {
                number
                for number, cell in enumerate(self.cells)
                if cell.kind == "code" and cell.exercise == want.id
            }
            for number in cells | set(self.defining(want.function)):
                if number in self.broken or is_written(self, number, want):
                    return True
        return False


@dataclass(frozen=True)
class Place:
    """Where an answer stands."""

    file: Notebook
    cell: int
    function: str
    """What it defines there; empty if the cell is broken or defines none."""

    problem: str = ""
    """``duplicate`` or ``files`` if other cells answer as well."""


def place(files: Sequence[Notebook], want: Wanted) -> Place | None:
    """The cell that answers an exercise: the last one that is written.

    Its own cell comes before others that define the function; these count
    where its own holds nothing but the stub.
    """
    marked = [
        (file, number)
        for file in files
        for number, cell in enumerate(file.cells)
        if cell.exercise == want.id and cell.kind == "code"
    ]
    found = [at for at in marked if function_at(*at, want)]
    named = [at for at in by_name(files, want) if at not in marked]
    exact = [at for at in found if function_at(*at, want) == want.function]
    plain = [at for at in named if at[0].is_program]
    both = sorted([*exact, *plain], key=lambda a: (files.index(a[0]), a[1]))
    if both:  # a variable of that name is none, nor what another file defines
        named = [
            (file, cell)
            for file, cell in named
            if want.function in file.programs[cell].functions
            and file in {known for known, _ in both}
        ]
    for candidates in (both, named, found):
        written = [at for at in candidates if is_written(*at, want)]
        if written:
            file, cell = written[-1]
            beside = [other is file for other, _ in candidates]
            problem = "elsewhere" if both and candidates is named else ""
            if len(beside) > 1:
                problem = "duplicate" if beside.count(True) > 1 else "files"
            return Place(file, cell, function_at(file, cell, want), problem)
    broken = [at for at in marked if at[1] in at[0].broken]
    name = re.escape(want.function)
    pattern = re.compile(rf"^[ \t]*(?:def[ \t]+{name}\b|{name}[ \t]*=)", re.M)
    broken += [
        (file, number)
        for file in files
        for number in sorted(file.broken)
        if pattern.search(file.cells[number].source)
        and file.cells[number].exercise in ("", want.id)
    ]
    blank = both or named or found
    if broken or not blank:
        last = (broken or marked)[-1:]
        return Place(*last[0], "") if last else None
    return Place(*blank[-1], function_at(*blank[-1], want))


def function_at(file: Notebook, cell: int, want: Wanted) -> str:
    """What a cell defines for an exercise, or nothing."""
    if cell not in file.programs:
        return ""
    program = file.programs[cell]
    if defines(program, want.function):
        return want.function
    return program.functions[-1] if program.functions else ""


def by_name(
    files: Sequence[Notebook], want: Wanted
) -> list[tuple[Notebook, int]]:
    """Cells that define the function, and belong to no other exercise.

    Chapters share names, such as ``mended``: of several notebooks those
    count that mention the exercise.
    """
    found = [
        (file, number)
        for file in files
        for number in file.defining(want.function)
        if file.cells[number].exercise in ("", want.id)
    ]
    if len(files) == 1:
        return found
    known = [at for at in found if at[0].is_program or at[0].mentions(want.id)]
    return known or found


def is_written(file: Notebook, cell: int, want: Wanted) -> bool:
    """Whether a cell has more than the stub that was given out."""
    program = file.programs[cell]
    stub = getattr(want, "stub", "")
    return not program.stub and program.source.split() != stub.split()


def answers(
    files: Sequence[Notebook], wanted: Sequence[Wanted]
) -> dict[str, Answer]:
    """The answers to some exercises, cut out of their notebooks, by id."""
    places = {want.id: place(files, want) for want in wanted}
    return {want.id: answer(want, places[want.id], places) for want in wanted}


def answer(
    want: Wanted,
    at: Place | None,
    places: Mapping[str, Place | None],
) -> Answer:
    """A student's answer, cut out of its notebook."""
    if at is None:
        return Answer(want.id, "", want.function, "missing")
    file, cell = at.file, at.cell
    source = file.cells[cell].source
    if cell in file.broken:
        return Answer(want.id, source, want.function, "syntax", file=file.name)
    if not at.function:
        return Answer(want.id, source, want.function, "missing")
    home = {
        p.function: p.cell for p in places.values() if p and p.file is file
    }
    home[at.function] = cell
    found = needed(file.programs, [at.function], home)
    own = found.pop(cell)
    problem = at.problem
    if at.function != want.function:
        problem = "renamed"
    return Answer(
        want.id,
        file.programs[cell].keep(own),
        at.function,
        problem,
        tuple(
            file.programs[number].keep(chosen).strip("\n")
            for number, chosen in found.items()
        ),
        file.name,
        cell + 1,
    )
