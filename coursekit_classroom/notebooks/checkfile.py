"""Check all answers of a chapter or a notebook from the shell."""

import argparse
import ast
import contextlib
import linecache
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coursekit_classroom.check import check
from coursekit_classroom.check.call import explain
from coursekit_classroom.check.report import Report
from coursekit_classroom.neighbors import check_names
from coursekit_classroom.notebooks.answers import Notebook, place
from coursekit_classroom.notebooks.cells import Cell, NotebookError, read_cells
from coursekit_classroom.notebooks.program import (
    call_name,
    defines,
    needed,
    parse,
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``coursekit check``."""
    parser.add_argument(
        "file",
        metavar="FILE",
        help="a chapter (.md), or its notebook (.ipynb), with your answers",
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="ID",
        help="check this exercise alone: attention/attend (may be repeated)",
    )


def run(args: argparse.Namespace) -> int:
    """Check the answers in a chapter or a notebook.

    Your own code runs here, in this process, as it would in Jupyter: of the
    file, the answers and what they need (imports, helpers), and no more. So
    check only what you would run yourself.

    Exit codes: 0 if all that you have attempted is right, 1 if something is
    not, 2 if the file or an option is wrong.
    """
    counts = dict.fromkeys(("passed", "wrong", "error", "not attempted"), 0)
    for report in check_file(args.file, args.only or ()):
        print(report, end="\n\n", flush=True)
        counts[report.status] += 1
    said = [f"{n} {status}" for status, n in counts.items() if n]
    print(", ".join(said))
    return int(bool(counts["wrong"] + counts["error"]))


@dataclass(frozen=True)
class Task:
    """An answer to be checked: what is given to ``check``."""

    id: str
    function: str
    """Its name, or what else stands in the check."""

    variants: tuple[str, ...] = ()
    """The conventions that are asked for."""


def check_file(path: str | Path, only: Sequence[str] = ()) -> Iterator[Report]:
    """Check the exercises of a file in its order; its code runs here.

    Args:
        path: a chapter (.md) or a notebook (.ipynb).
        only: ids of exercises; all if there are none.

    Raises:
        NotebookError: if the file cannot be read, or it has no such exercise.
        ValueError: if it imports a file that has a module's name.
    """
    path = Path(path)
    book = Notebook(read_cells(path), Path(path))
    tasks = chosen(find_tasks(book, path), only, path)
    programs = [program.source for program in book.programs.values()]
    check_names(path.parent, *programs)
    with at_home(path):
        space, problems = run_cells(book, path.name, tasks)
        for task in tasks:
            yield check_task(task, space, problems)


def find_tasks(book: Notebook, path: Path) -> list[Task]:
    """What a file asks, by the cells that are marked and by its checks.

    A marked cell says which function counts.  Where none is marked, the last
    check of an exercise does, but for those that are the page's own tests.
    """
    found: dict[str, Task] = {}
    marked: dict[str, int] = {}
    for number, cell in enumerate(book.cells):
        if cell.exercise:
            marked[cell.exercise] = number
            found.setdefault(cell.exercise, Task(cell.exercise, ""))
        if number in book.programs and "remove-cell" not in cell.tags:
            for task in checks(book.programs[number].source):
                found[task.id] = task
    for id, number in marked.items():
        name = found[id].function
        if number in book.programs and not defines(
            book.programs[number], name
        ):
            name = "".join(book.programs[number].functions[-1:]) or name
        if number in book.broken and not name:
            said = re.search(r"\bdef +(\w+)", book.cells[number].source)
            name = said[1] if said else "answer"
        found[id] = Task(id, name, variants_of(found[id], book.cells[number]))
    if not found:
        raise NotebookError(
            f"{path} has no exercises that can be checked: no stub cell with "
            "`exercise` in its metadata, and no call of coursekit.check."
        )
    return list(found.values())


def checks(source: str) -> Iterator[Task]:
    """The calls of ``check`` in a cell, in its order."""
    for node in ast.walk(ast.parse(source)):
        if call_name(node) != "check" or not isinstance(node, ast.Call):
            continue
        values = [*node.args, *(k.value for k in node.keywords)]
        if len(values) < 2 or not isinstance(values[0], ast.Constant):
            continue
        if isinstance(name := values[0].value, str):
            said = {k.arg: k.value for k in node.keywords}
            yield Task(name, ast.unparse(values[1]), strings(said))


def strings(keywords: Mapping[str | None, ast.expr]) -> tuple[str, ...]:
    """What ``variants=["…"]`` of a check says."""
    with contextlib.suppress(KeyError, ValueError):
        said = ast.literal_eval(keywords["variants"])
        if isinstance(said, (list, tuple, set)):
            return tuple(sorted(map(str, said)))
    return ()


def variants_of(task: Task, cell: Cell) -> tuple[str, ...]:
    """The conventions of an answer, by its check or else by its own cell."""
    said = cell.metadata.get("variants", ())
    if task.variants or not isinstance(said, (list, tuple)):
        return task.variants
    return tuple(sorted(map(str, said)))


def chosen(tasks: list[Task], only: Sequence[str], path: Path) -> list[Task]:
    """Those that were asked for."""
    for name in only:
        if not any(name in (t.id, t.id.partition("/")[2]) for t in tasks):
            known = ", ".join(t.id for t in tasks)
            raise NotebookError(
                f"--only takes an exercise of the file: got {name}, and "
                f"{path.name} has {known}."
            )
    return [
        t
        for t in tasks
        if not only or {t.id, t.id.partition("/")[2]} & set(only)
    ]


@contextlib.contextmanager
def at_home(path: Path) -> Iterator[None]:
    """Where Jupyter would run it: in its folder, which it can import."""
    os.environ.setdefault("MPLBACKEND", "Agg")  # no windows
    folder = str(path.resolve().parent)
    with contextlib.chdir(folder):
        sys.path.append(folder)  # last: what is imported for it is not there
        try:
            yield
        finally:
            with contextlib.suppress(ValueError):
                sys.path.remove(folder)


def run_cells(
    book: Notebook, name: str, tasks: Sequence[Task]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Run what some answers need.

    Returns:
        the names that it has defined; and for each name that it has not,
        because its cell raised or is no Python, the reason.
    """
    places = {task.function: place([book], task) for task in tasks}
    problems = {
        function: not_python(book, at.cell)
        for function, at in places.items()
        if at is not None and at.cell in book.broken
    }
    home = {f: at.cell for f, at in places.items() if at is not None}
    asked = {n for task in tasks for n in names_in(task.function)}
    space: dict[str, Any] = {"__name__": "__main__"}
    for cell, kept in needed(book.programs, asked, home).items():
        program = book.programs[cell]
        source, where = program.keep(kept), f"cell {cell + 1} of {name}"
        lines = [line + "\n" for line in source.split("\n")]
        linecache.cache[where] = (len(source), None, lines, where)
        try:
            exec(compile(source, where, "exec"), space)
        except (Exception, SystemExit) as error:
            text = f"Cell {cell + 1} raised {explain(error)}"
            lost = {n for at in kept for n in program.statements[at].sets}
            problems |= {name: text for name in lost if name not in space}
    return space, problems


def not_python(book: Notebook, cell: int) -> str:
    """What is wrong with a cell that cannot be run."""
    try:
        parse(book.cells[cell].source)
    except SyntaxError as error:
        line = f" in its line {error.lineno}" if error.lineno else ""
        return f"Cell {cell + 1} is not Python{line}: {error.msg}."
    return ""


def names_in(expression: str) -> set[str]:
    """The names that an expression reads."""
    nodes = ast.walk(ast.parse(expression))
    return {node.id for node in nodes if isinstance(node, ast.Name)}


def check_task(
    task: Task, space: dict[str, Any], problems: dict[str, str]
) -> Report:
    """Check one answer."""
    if task.id.endswith(":test"):
        text = "A test of your own is tried when it is graded."
        return Report(task.id, "not attempted", text)
    if task.id.startswith("yourfile/"):
        text = "Your own file is checked by `coursekit step`."
        return Report(task.id, "not attempted", text)
    if not task.function:
        return Report(task.id, "not attempted", "Its cell defines nothing.")
    for name in sorted(names_in(task.function)):
        if name in problems:
            return Report(task.id, "error", problems[name])
    try:
        function = eval(task.function, space)
    except Exception as error:
        text = f"There is no {task.function}: {explain(error)}"
        return Report(task.id, "not attempted", text)
    try:
        return check(task.id, function, variants=task.variants)
    except ValueError as error:  # no such exercise, or no function
        return Report(task.id, "error", str(error))
