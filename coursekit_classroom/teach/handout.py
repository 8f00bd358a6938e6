"""The notebooks of an assignment, made from a page.

Of a page an assignment takes the exercises that have a stub to fill in:
their texts in plain Markdown, what they are given, the stubs and the checks,
and of the rest of the page what these cells need.
"""

import ast
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from coursekit_classroom.check import core
from coursekit_classroom.check.core import Exercise
from coursekit_classroom.notebooks import plain
from coursekit_classroom.notebooks.cells import (
    Cell,
    NotebookError,
    myst_cells,
    with_mark,
)
from coursekit_classroom.notebooks.convert import converter, read_text
from coursekit_classroom.notebooks.declared import Declared, declared_in
from coursekit_classroom.notebooks.program import (
    Program,
    call_name,
    is_empty,
    needed,
    parse,
)
from coursekit_classroom.notebooks.readers import library
from coursekit_classroom.notebooks.sources import (
    HIDDEN,
    fenced,
    for_instructors,
    for_students,
)
from coursekit_classroom.teach.standalone import (
    NotStandaloneError,
    standalone,
)

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
HOW = """\
Write your answers where `...` stands, and keep the names of the functions. \
You may add cells; don't delete or duplicate those that are there. Only your \
functions and what they need are looked at: imports, helpers, constants. \
Hand in this file."""
SETUP = "What the exercises need. Run it first."


KEPT = ("points", "kind", "minutes", "objective")  # of a stub's metadata
SPAN = re.compile(r"`([^`\n]+)`")
NAMED = re.compile(r"^\w+$|\b\w+(?=\()")
GAPS = re.compile(r"\n{4,}")
HINT = re.compile(r"<summary>Hint[^<]*</summary>\n\n")
OF_THE_BOOK = "*For the book's own text: what is different below counts.*\n\n"


@dataclass(frozen=True)
class Item:
    """One exercise of an assignment."""

    declared: Declared
    text: str
    """What is asked, in plain Markdown."""

    cells: Sequence[Cell]
    """What is given, the stub and the check, in the page's order."""

    solution: str
    """The page's own, in plain Markdown; empty for students."""

    variants: frozenset[str] = frozenset()
    """The convention that the secret has drawn."""

    @property
    def exercise(self) -> Exercise:
        """Its entry in the catalogue."""
        return core.find(self.declared.id)

    @property
    def private(self) -> bool:
        """Whether it stands in an overlay, which students do not have."""
        return not is_public(self.declared.id)


@dataclass
class Handout:
    """A page's exercises, for students or for the instructor."""

    page: str
    title: str
    items: list[Item]
    setup: list[str] = field(default_factory=list)
    """What the items need of the rest of the page."""

    install: str = ""
    """The source of the cell that installs the package; may be empty."""

    due: str = ""
    """When it is due, and what being late costs, in words; may be empty."""

    mark: str = ""
    """Of the assignment; may be empty."""


def is_public(id: str) -> bool:
    """Whether the package itself has an exercise, and no overlay hides it."""
    known = core.find(id)
    hidden, core.OVERLAYS[:] = core.OVERLAYS[:], []
    try:
        return core.find(id) is known
    except ValueError:
        return False
    finally:
        core.OVERLAYS[:] = hidden


# -- reading -----------------------------------------------------------------
def read_handout(
    page: Path,
    overlay: Path | None = None,
    variants: Mapping[str, Iterable[str]] | None = None,
    instructor: bool = False,
    only: Collection[str] = (),
    points: Mapping[str, float] | None = None,
    assess: Collection[str] = (),
) -> Handout:
    """Read the exercises of a page.

    Args:
        page: a chapter, ``.md``.
        overlay: a folder; if it has a page of the same name, that comes
            after, and an exercise that is in both counts as it is there.
        variants: what the secret has drawn, by id.
        instructor: whether to keep the solutions, and what stands between
            ``% begin instructor`` and ``% end instructor``.
        only: ids of the exercises to take; all if there are none.
        points: what an exercise is worth, by id, where the page says other.
        assess: ids of exercises that are assessed, besides those that the
            page says are; or ``all``.

    Raises:
        NotebookError, SourceError: if the page cannot be read.
        ValueError: if an exercise is not in the catalogue.
    """
    paths, drawn = [page], variants or {}
    if overlay is not None and (more := overlay / page.name).is_file():
        paths += [more] if not more.samefile(page) else []
    found = dict[str, Item]()
    programs, titles = list[Program](), list[str]()
    for path in paths:
        text = read_text(path)
        text = (for_instructors if instructor else for_students)(
            text, path.name
        )
        cells = myst_cells(text, path.name)
        refuse_answers(cells, path)
        said = {
            one.id: replace(
                one,
                points=(points or {}).get(one.id, one.points),
                kind="assessed" if {one.id, "all"} & set(assess) else one.kind,
            )
            for one in declared_in(cells, page.stem)
        }
        talk = converter(path, cells)
        titles.append(talk.pages.titles.get(talk.name, page.stem))
        found |= read_items(cells, said, talk, drawn, instructor)
        programs += [p for p in map(try_parse, cells) if p is not None]
    if not found:
        raise NotebookError(
            f"an assignment has exercises: got {page}, where no stub cell "
            "has `exercise` in its metadata."
        )
    items = chosen(list(found.values()), only)
    for item in items:
        core.find(item.declared.id)
    return Handout(page.stem, titles[0], items, setup_of(items, programs))


def refuse_answers(cells: Iterable[Cell], page: Path) -> None:
    """Refuse a page in which somebody has answered an exercise.

    A stub is a function with a docstring and ``...``, without comments; what
    else its cell defines calls that. No other cell that readers see defines
    the function.

    Raises:
        NotebookError: if there is an answer, or a trace of one.
    """
    open_cells = [c for c in cells if c.kind == "code" and not c.tags & HIDDEN]
    stubs = {c.exercise: c for c in open_cells if c.exercise}
    names = {
        id: set(parse(cell.source).functions) for id, cell in stubs.items()
    }
    for cell in open_cells:
        own = {cell.exercise} & set(stubs)
        program = try_parse(cell)
        defined = set(program.functions) if program else set()
        for id in own or [i for i in names if names[i] & defined]:
            if own and is_stub(cell.source):
                continue
            line = cell.source.strip().split("\n")[-1].strip()
            raise NotebookError(
                "students get an exercise's stub, `def f(...):`, a docstring "
                f"and `...`: got a cell for {id} in {page} with more than "
                f"that, which ends in `{line[:60]}`. Put the stub back (`git "
                f"diff {page}` shows what has changed), and keep your answer "
                "in another file."
            )


def is_stub(source: str) -> bool:
    """Whether a cell has an empty function, and otherwise only calls it."""
    text = parse(source).source
    body = ast.parse(text).body
    empty = {getattr(n, "name", "") for n in body if is_empty(n)} - {""}
    return (
        bool(empty)
        and not any("#" in line for line in text.split("\n"))
        and all(
            is_empty(node)
            or empty & {getattr(part, "id", "") for part in ast.walk(node)}
            for node in body
        )
    )


def chosen(items: Sequence[Item], only: Collection[str]) -> list[Item]:
    """Some of a page's exercises, or all.

    Raises:
        ValueError: if of two that share one text only one is chosen.
    """
    for item, after in pairwise(items):
        id, other = item.declared.id, after.declared.id
        if only and not after.cells and (id in only) != (other in only):
            raise ValueError(
                f"{id} and {other} have one text: got one of them in --only. "
                "Name both, or neither."
            )
    return [i for i in items if not only or i.declared.id in only]


def try_parse(cell: Cell) -> Program | None:
    """A visible cell's program."""
    if cell.kind != "code" or cell.tags & HIDDEN:
        return None
    try:
        return parse(cell.source)
    except SyntaxError:
        return None


def read_items(
    cells: Iterable[Cell],
    said: Mapping[str, Declared],
    page: plain.Page,
    drawn: Mapping[str, Iterable[str]],
    instructor: bool,
) -> dict[str, Item]:
    """The exercises of a page that have a stub."""
    found = dict[str, Item]()
    for part in split(cells):
        stubs = [c.exercise for c in part.cells if c.exercise in said]
        if not stubs:
            continue
        given = list[Cell]()
        for cell in part.cells:
            source, metadata = cell.source, {}
            if cell.kind == "markdown":
                source = page.convert(source)
            elif one := said.get(cell.exercise):
                metadata = {n: getattr(one, n) for n in KEPT}
                metadata["exercise"] = one.id
            given.append(Cell(cell.kind, source, metadata))
        for id in stubs:
            found[id] = Item(
                said[id],
                page.convert(part.text) if id == stubs[0] else "",
                given if id == stubs[0] else (),
                page.convert(part.solution) if instructor else "",
                frozenset(drawn.get(id, ())),
            )
    return found


@dataclass
class Part:
    """One exercise block and what follows it, up to the next."""

    text: str
    cells: list[Cell] = field(default_factory=list)
    solution: str = ""

    def add(self, text: str) -> None:
        """Add what stands between the blocks."""
        if self.solution:
            self.solution += text + "\n\n"
        elif text.strip():
            self.cells.append(Cell("markdown", text))


def split(cells: Iterable[Cell]) -> list[Part]:
    """Cut a page into its exercises.

    What follows the solution of one, or stands under another heading, is no
    part of it.
    """
    parts, current = list[Part](), None
    for cell in cells:
        if cell.kind == "code":
            given = not cell.tags & (HIDDEN | {"predict"})
            if current is not None and given and not current.solution:
                current.cells.append(cell)
            continue
        lines = cell.source.split("\n")
        at = 0
        for block in [*fenced(lines), None]:
            start = block.first if block else len(lines)
            if any(line.startswith("#") for line in lines[at:start]):
                current = None
            elif current is not None:
                current.add("\n".join(lines[at:start]))
            if block is None:
                break
            text = "\n".join(lines[block.first : block.end])
            at = block.end
            if block.name == "exercise":
                current = Part(text)
                parts.append(current)
            elif block.name == "solution" and current is not None:
                current.solution += text + "\n\n"
    return parts


# -- what the cells need -----------------------------------------------------
def setup_of(items: Iterable[Item], programs: Sequence[Program]) -> list[str]:
    """What the exercises' cells take from the rest of the page."""
    own = [c.source for item in items for c in item.cells if c.kind == "code"]
    there = {name for program in programs for name in program.functions}
    spans = [s for item in items for s in SPAN.findall(item.text)]
    reads = {n for s in spans for n in NAMED.findall(s)} & there
    sets = set[str]()
    for source in own:
        for part in parse(source).statements:
            reads |= part.reads
            sets |= part.sets
    rest = {n: p for n, p in enumerate(programs) if p.source not in own}
    found = needed(rest, reads - sets, {})
    kept = [rest[n].keep(chosen).strip("\n") for n, chosen in found.items()]
    return [GAPS.sub("\n\n\n", source) for source in kept]


# -- writing -----------------------------------------------------------------
def write(notebook: Any, path: Path) -> Path:
    """Write a notebook, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    library().write(notebook, path)
    return path


class Writer:
    """Collects the cells of a notebook; the same input gives the same file."""

    def __init__(self, mark: str = "") -> None:
        self.v4, self.mark = library().v4, mark
        self.cells: list[Any] = []

    def text(self, source: str) -> None:
        """Add Markdown, unless there is none."""
        if source.strip():
            self._add(self.v4.new_markdown_cell(source.strip()))

    def code(self, source: str, **metadata: Any) -> None:
        """Add code, unless there is none."""
        if source.strip():
            self._add(self.v4.new_code_cell(source, metadata=metadata))

    def raw(self, source: str) -> None:
        """Add a cell that is neither text nor code."""
        self._add(self.v4.new_raw_cell(source))

    def cell(self, cell: Cell, source: str) -> None:
        """Add a cell of a page, with another source."""
        if cell.kind == "markdown":
            self.text(source)
        else:
            self.code(source, **cell.metadata)

    def _add(self, cell: Any) -> None:
        cell.id = f"cell-{len(self.cells)}"
        self.cells.append(cell)

    def notebook(self) -> Any:
        """The notebook."""
        metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
        metadata |= with_mark(self.mark)
        return self.v4.new_notebook(cells=self.cells, metadata=metadata)


def write_start(to: Writer, handout: Handout, how: str = HOW) -> None:
    """The title, what to do, the package, and the set-up."""
    to.text(f"# {handout.title}\n\n{how}{handout.due}")
    to.code(handout.install)
    if handout.setup:
        to.text(SETUP)
        for source in handout.setup:
            to.code(source)


def asked(item: Item) -> str:
    """The text of an exercise, with its points and conventions."""
    one, exercise = item.declared, item.exercise
    said = f"{one.points:g} point{'s' * (one.points != 1)}"
    if exercise.local:
        said = "not graded: check it here"
    if one.minutes:
        said += f"; about {one.minutes} minutes"
    text = item.text
    if item.variants:
        text = HINT.sub(rf"\g<0>{OF_THE_BOOK}", text)
    lines = [text, f"*({said})*"]
    lines += amendments(exercise, item.variants)
    return "\n\n".join(line for line in lines if line)


def amendments(exercise: Exercise, variants: Iterable[str]) -> list[str]:
    """What is different from the book's own text, in Markdown."""
    return [
        "**Different in this assignment**, whatever stands above: "
        + exercise.variants[name].asks
        for name in sorted(variants)
    ]


def student_notebook(handout: Handout) -> Any:
    """What a student gets: no solutions, no hidden cases, no outputs."""
    to = Writer(handout.mark)
    write_start(to, handout)
    for item in handout.items:
        to.text(asked(item))
        for cell in item.cells:
            to.cell(cell, visible(cell, item))
    return to.notebook()


def visible(cell: Cell, item: Item) -> str:
    """A cell as a student gets it: its check knows the convention.

    An exercise of an overlay has none, since students do not have it.
    """
    if cell.exercise or cell.kind == "markdown":
        return cell.source
    calls = [
        node
        for node in ast.walk(ast.parse(cell.source))
        if call_name(node) == "check" and isinstance(node, ast.Call)
    ]
    if not calls:
        return cell.source
    if item.private:
        return ""
    if not item.variants:
        return cell.source
    lines = cell.source.split("\n")
    for call in sorted(calls, key=lambda c: (c.lineno, c.col_offset))[::-1]:
        at = (call.end_lineno or 1) - 1
        line = lines[at].encode()
        end = (call.end_col_offset or 1) - 1
        more = f", variants={sorted(item.variants)}".encode()
        lines[at] = (line[:end] + more + line[end:]).decode()
    return "\n".join(lines)


def instructor_notebook(handout: Handout, secret_id: str) -> Any:
    """What the instructor gets: the same with every answer written."""
    to = Writer(handout.mark)
    how = (
        f"**For the instructor**, secret {secret_id}. The cells hold what the "
        "grader expects, made from the catalogue's references; below them "
        "stand the page's own solutions."
    )
    write_start(to, handout, how)
    for item in handout.items:
        to.text(asked(item))
        for cell in item.cells:
            if cell.exercise == item.declared.id:
                to.cell(cell, solution_of(item))
            else:
                to.cell(cell, visible(cell, item))
        drawn = ", ".join(sorted(item.variants)) or "none"
        to.text(f"Variants of `{item.declared.id}`: {drawn}.")
        to.text(item.solution)
    return to.notebook()


def solution_of(item: Item) -> str:
    """The reference as an answer, under the stub's name."""
    one = item.declared
    try:
        return str(standalone(item.exercise, item.variants, one.function))
    except NotStandaloneError as error:
        lines = one.stub.split("\n")
        return "\n".join([f"# No solution in one piece: {error}.", *lines])
