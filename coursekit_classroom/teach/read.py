"""Chapters and notebooks: what they ask, and what somebody answered.

A chapter is a ``.md`` file or a notebook.  Its exercises are declared by the
metadata of their stub cells (``exercise``, ``points``, ``kind``, ``minutes``,
``objective``).  A submission is whatever a student hands in: an answer is
found by that metadata or, where it is lost, by the function's name.  Nothing
is run here.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from coursekit_classroom.notebooks.cells import (
    LARGEST,
    Cell,
    NotebookError,
    read_cells,
    read_marked,
)
from coursekit_classroom.notebooks.program import (
    Program,
    defines,
    needed,
    parse,
)

MOST = 400_000  # characters of code
FILES = 40  # of a student: a chapter each, and some twice
TOTAL = 4 * LARGEST  # bytes of a student's files
KINDS = ("practice", "assessed")
WORD = "(?:copy|copie|copia|cópia|kopie)"
COPY = re.compile(
    rf"^{WORD} (?:of|de|von) |(?: ?- ?|[ _]){WORD}[ _]?\(?\d*\)?$|"
    rf" \((?:\w+ )?{WORD}\)$| ?\(\d{{1,2}}\)$",
    re.I,
)
"""How Jupyter, Google Drive, a desktop and a browser name a copy."""
NUMBER = re.compile(r"(?:-| |[ _-]v)(\d{1,2})$", re.I)
"""A number behind a name, of which it may be a part: an LMS's, a version's."""
SENT = re.compile(r"(?:-| ?\()(\d{1,2})\)?$")
"""The number of a file that was handed in or downloaded again."""

ID = re.compile(r"[A-Za-z_]\w*/[A-Za-z_]\w*(?::test)?")
CHECKED = re.compile(rf"""\bcheck\(\s*["']({ID.pattern})["']""")
EXERCISE = re.compile(
    r"^(`{3,}|:{3,})\{exercise\}[ ]*(?P<title>.*)\n"
    r"(?:(?::(?!label)\S+:.*|)\n)*(?::label:[ ]*(?P<label>\S+))?"
    r"|^\*\*Exercise\.\*\*[ ]+\*\*(?P<plain>.*)\*\*[ ]*$",
    re.MULTILINE,
)


# -- what a chapter asks -----------------------------------------------------
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
    cells = small(read_cells(path), Path(path).name)
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


# -- what a student answers --------------------------------------------------
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


@dataclass(frozen=True)
class Submission:
    """What a student has handed in."""

    helpers: list[str]
    """What the answers need of other cells, in order; no answer is in it."""

    answers: dict[str, Answer]
    """One for each exercise that was asked for, by id."""

    sha256: str
    """Of the file; of the hashes of the files if there are several."""

    problems: tuple[str, ...] = ()
    """A sentence for each file that could not be read, or doesn't count."""


def read_submission(
    paths: Iterable[Path | str] | Path | str, wanted: Sequence[Wanted]
) -> Submission:
    """Find the answers to some exercises in one notebook or several.

    Checks, prints, asserts, magics and shell lines are left out: what is
    kept of a notebook are the definitions, imports and assignments that an
    answer depends on.  Of several versions of one notebook the newest
    counts, whatever stands in it (see :func:`latest`).

    A file that was given out for another assignment than what is wanted
    answers nothing.  Without a mark of either nobody knows.

    Raises:
        NotebookError: if none of the files can be read, or there are too
            many of them.
    """
    if isinstance(paths, (str, Path)):
        paths = [paths]
    given = oldest_first(map(Path, paths))
    if refused := too_many(given):
        raise NotebookError(refused)
    setup = next((getattr(want, "setup", ()) for want in wanted), ())
    files, problems = list[Notebook](), list[str]()
    for path in given:
        try:
            cells, mark = read_marked(path)
            cells = small(cells, path.name)
            files.append(Notebook(cells, path, mark, setup))
        except NotebookError as error:
            problems.append(str(error))
    if not files:
        raise NotebookError(" ".join(problems) or "there is no notebook.")
    files.sort(key=lambda f: (age(f.path), f.is_attempt(wanted)))
    files, foreign = of_assignment(files, wanted)
    problems += foreign
    files, replaced = latest(files, wanted)
    problems += replaced
    places = {want.id: place(files, want) for want in wanted}
    answers = {
        want.id: answer(want, places[want.id], places) for want in wanted
    }
    helpers = [
        text for file in files for text in file.helpers(places.values())
    ]
    return Submission(helpers, answers, hash_of(given), tuple(problems))


def oldest_first(paths: Iterable[Path]) -> list[Path]:
    """The files of a student, a resubmission after what it replaces.

    ``04_attention-1.ipynb`` and ``04_attention (1).ipynb`` were handed in
    after ``04_attention.ipynb``.  Files with the same number are ordered by
    the time of their last change, in seconds, then a copy after what it was
    made from, and then by name.
    """

    return sorted(paths, key=lambda p: (*age(p), len(bare_names(p.stem)), p))


def age(path: Path) -> tuple[int, int]:
    """The number with which a file was handed in again, and its time."""
    sent = SENT.search(path.stem)
    copied = re.search(WORD, path.stem, re.I)  # its number is no LMS's
    try:
        changed = int(path.lstat().st_mtime)
    except OSError:  # reading it says why
        changed = 0
    return int(sent[1]) if sent and not copied else 0, changed


def bare_names(stem: str, sure: bool = False) -> list[str]:
    """A file's name, then without what marks a copy, mark by mark.

    Args:
        stem: the name without its ending.
        sure: whether to leave a number that may be a part of the name.
    """
    names = [stem]
    while mark := (
        COPY.search(names[-1]) or (not sure and NUMBER.search(names[-1]))
    ):
        rest = names[-1][: mark.start()] + names[-1][mark.end() :]
        if not rest:
            break
        names.append(rest)
    return names


def of_assignment(
    files: Sequence["Notebook"], wanted: Sequence[Wanted]
) -> tuple[list["Notebook"], list[str]]:
    """The files that may answer, and a sentence for each that may not.

    Nothing is said of what has none of the exercises, such as a notebook
    of another chapter.
    """
    ids = {want.id for want in wanted}
    found, said = list[Notebook](), list[str]()
    for file in files:
        marks = [getattr(want, "mark", "") for want in wanted]
        if not any(differ(file.mark, mark) for mark in marks):
            found.append(file)
        elif ids & file.exercises(wanted):
            said.append(
                f"{file.name} was given out for another assignment, so it "
                "doesn't count."
            )
    return found, said


def differ(mark: str, other: str) -> bool:
    """Whether there are two marks, and of different assignments."""
    return bool(mark and other and mark != other)


def latest(
    files: Sequence["Notebook"], wanted: Sequence[Wanted]
) -> tuple[list["Notebook"], list[str]]:
    """Of each notebook the newest version, and a sentence for each other one.

    Two files of one kind are versions of one notebook if they share an
    exercise that is asked for.  A newer one without any exercise replaces
    that of its own name, up to the number.  A ``.py`` file and a notebook
    replace neither: a step is handed in as either.

    Args:
        files: oldest first.
        wanted: what is asked for.
    """
    ids = {want.id for want in wanted}
    found, said = list[Notebook](), list[str]()
    for number, file in enumerate(files):
        own = file.exercises(wanted)
        newest = None
        for other in files[number + 1 :]:
            theirs = other.exercises(wanted)
            again = other.title == file.title and not theirs
            if other.kind == file.kind and (own & theirs & ids or again):
                newest = other
        if newest is None:
            found.append(file)
        elif own & ids:
            said.append(why(newest, file, wanted))
    return found, said


def why(newest: "Notebook", file: "Notebook", wanted: Sequence[Wanted]) -> str:
    """Why one of two versions counts."""
    if age(newest.path) != age(file.path):
        return (
            f"{newest.name} was handed in after {file.name}, which doesn't "
            "count."
        )
    if newest.is_attempt(wanted) and not file.is_attempt(wanted):
        return (
            f"{newest.name} counts: nothing is written in {file.name}, which "
            "has the same time."
        )
    return (
        f"{newest.name} counts, and {file.name} doesn't: they have the same "
        "time, and this is the order of their names."
    )


def small(cells: list[Cell], name: str) -> list[Cell]:
    """The same cells, if reading them takes seconds at most."""
    size = sum(len(cell.source) for cell in cells if cell.kind == "code")
    if size > MOST:
        raise NotebookError(
            f"{name} has {size:,} characters of code, and more than {MOST:,} "
            "are not read."
        )
    return cells


def too_many(paths: Sequence[Path | str]) -> str:
    """Why some files are not read, before any is; nothing if they are."""
    size = sum(map(size_of, paths))
    if len(paths) <= FILES and size <= TOTAL:
        return ""
    return (
        f"a student hands in at most {FILES} notebooks and {TOTAL >> 20} MB: "
        f"got {len(paths)} and {size >> 20} MB. Hand in those that answer, "
        "without outputs."
    )


def size_of(path: Path | str) -> int:
    """Bytes to read of a file; none of one that is too large, or absent."""
    try:
        size = Path(path).stat().st_size
    except OSError:
        return 0
    return size if size <= LARGEST else 0


def hash_of(paths: Sequence[Path | str]) -> str:
    """SHA-256 of a file, as ``sha256sum`` prints it; of several, joined.

    What is too large to be read is left out: nobody's disk holds the
    terabytes that an empty file can claim to have.
    """
    each = []
    for path in [] if too_many(paths) else map(Path, paths):
        try:
            if path.stat().st_size > LARGEST:
                continue
            with path.open("rb") as file:
                each.append(hashlib.file_digest(file, "sha256").hexdigest())
        except TimeoutError:  # the grader's clock, not the file's fault
            raise
        except OSError:  # it is among the problems
            continue
    if not each:
        return ""
    if len(each) == 1:
        return each[0]
    return hashlib.sha256("\n".join(each).encode()).hexdigest()


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
    def kind(self) -> str:
        """The ending of its name."""
        return self.path.suffix.lower()

    @property
    def title(self) -> str:
        """Its name without ending, and without the number of a copy."""
        return bare_names(self.path.stem)[-1]

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

    def helpers(self, places: Iterable["Place | None"]) -> Iterator[str]:
        """What some answers need of the other cells."""
        mine = [p for p in places if p is not None and p.file is self]
        home = {p.function: p.cell for p in mine}
        own = {p.cell for p in mine}
        found = needed(self.programs, home, home)
        for cell, chosen in found.items():
            if cell not in own:
                yield self.programs[cell].keep(chosen).strip("\n")


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
    plain = [at for at in named if at[0].kind == ".py"]  # has no marks
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
    known = [
        at for at in found if at[0].kind == ".py" or at[0].mentions(want.id)
    ]
    return known or found


def is_written(file: Notebook, cell: int, want: Wanted) -> bool:
    """Whether a cell has more than the stub that was given out."""
    program = file.programs[cell]
    stub = getattr(want, "stub", "")
    return not program.stub and program.source.split() != stub.split()


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
