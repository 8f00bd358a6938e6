"""``coursekit assign``: from chapters to what students get, and the key."""

import argparse
import inspect
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import torch

from coursekit.classroom.check import core
from coursekit.classroom.check.report import title
from coursekit.classroom.grading.exports import (
    write_gradescope,
    write_nbgrader,
)
from coursekit.classroom.grading.grade import overlay
from coursekit.classroom.grading.handout import (
    Handout,
    Writer,
    amendments,
    instructor_notebook,
    read_handout,
    student_notebook,
    write,
)
from coursekit.classroom.grading.install import address_near, install_cell
from coursekit.classroom.grading.key import Key
from coursekit.classroom.grading.notebooks import Declared, declared
from coursekit.classroom.grading.roster import (
    Program,
    distribute,
    entered,
    entry,
    equally_hard,
    mutant,
    programs,
    read_roster,
)

DEBUG = "debug"  # the name of the assignment in which everyone fixes another


# -- the command -------------------------------------------------------------
def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``coursekit assign``."""
    parser.add_argument(
        "pages",
        nargs="*",
        metavar="PAGE",
        help="a chapter: book/04_attention.md",
    )
    parser.add_argument(
        "--key",
        default="key.txt",
        metavar="FILE",
        help="your key; made if there is none [default: key.txt]",
    )
    parser.add_argument(
        "--out",
        default="dist",
        metavar="DIR",
        help="where the notebooks go [default: dist]",
    )
    parser.add_argument(
        "--roster",
        metavar="CSV",
        help="columns id,name: each student gets another program to fix",
    )
    parser.add_argument(
        "--assess",
        action="append",
        metavar="ID",
        help="an exercise that is assessed: with a convention that the key "
        "draws, if it has any (may be repeated; `all` for all)",
    )
    parser.add_argument(
        "--overlay",
        metavar="DIR",
        help="your folder with exercises and pages that are not public",
    )
    parser.add_argument(
        "--tag",
        default="",
        help="the tag of your repository from which the notebooks install "
        "the package, where it is missing [default: the main branch]",
    )


def run(args: argparse.Namespace) -> int:
    """Make an assignment: notebooks for students and for you, and exports.

    student/ is for students. instructor/, nbgrader/ and gradescope.zip hold
    solutions or the key: keep them.
    """
    if not args.pages and not args.roster:
        raise ValueError(
            "an assignment is made from chapters or for a roster: got "
            "neither. Try `coursekit assign book/04_attention.md`."
        )
    torch.set_num_threads(1)  # the tensors are small
    out = Path(args.out)
    folder = Path(args.overlay) if args.overlay else None
    with overlay(args.overlay):
        pages = [find_page(page, folder) for page in args.pages]
        class_ = read_roster(args.roster) if args.roster else {}
        assess = assessed_ids(args.assess or (), pages, folder)
        install = first_cell(pages, args.tag)
        key = open_key(Path(args.key), out)
        several = len(pages) > 1
        for page in pages:
            for line in make(page, key, out, folder, assess, several, install):
                print(line)
            enroll(key.assignments[page.stem], class_)
        if class_:
            for line in make_debug(class_, key, out, pages, folder, install):
                print(line)
        key.save()
    print(f"key        {args.key} (keep it: from it come the hidden cases)")
    return 0


def find_page(name: str, folder: Path | None) -> Path:
    """A page's file, which may lie in the overlay."""
    places = [Path(name)]
    if folder is not None:
        places += [folder / name, folder / f"{name}.md"]
    for path in places:
        if path.is_file():
            return path
    raise ValueError(
        f"a page is a chapter's file: got {name}, which does not exist here. "
        "The chapters lie in the folder book/ of the repository: run this "
        "there, or give the path of one."
    )


def first_cell(pages: Iterable[Path], tag: str) -> str:
    """What installs the package, or says how where no address is known."""
    near = [*pages, Path.cwd() / "_config.yml"]
    return install_cell(next(filter(None, map(address_near, near)), ""), tag)


def assessed_ids(
    asked: Iterable[str], pages: Iterable[Path], folder: Path | None
) -> set[str]:
    """The exercises named by ``--assess``, each of which some page has."""
    known = {
        item.declared.id
        for page in pages
        for item in read_handout(page, folder).items
    }
    if unknown := set(asked) - known - {"all"}:
        raise ValueError(
            f"--assess takes exercises of the pages: got "
            f"{', '.join(sorted(unknown))}, and they have "
            f"{', '.join(sorted(known)) or 'none'}."
        )
    return set(asked)


def enroll(assignment: dict[str, Any], class_: Mapping[str, str]) -> None:
    """Have a row for everybody on the roster, whether they hand in or not."""
    for name, full in class_.items():
        assignment["students"].setdefault(name, {"name": full})


def open_key(path: Path, out: Path) -> Key:
    """The instructor's key, new if there is none yet."""
    for public in ("student", "students"):
        if path.resolve().is_relative_to((out / public).resolve()):
            raise ValueError(
                f"the key is not for students: got --key {path}, which lies "
                f"among what they get. Put it elsewhere."
            )
    if path.exists():
        return Key.load(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    return Key.create(path)


# -- the same for all --------------------------------------------------------
def make(
    page: Path,
    key: Key,
    out: Path,
    folder: Path | None,
    assess: set[str],
    several: bool,
    install: str,
) -> Iterator[str]:
    """Write everything about one chapter, and enter it into the key."""
    first = read_handout(page, folder)
    assessed = {
        item.declared.id
        for item in first.items
        if item.declared.kind == "assessed"
        or assess & {item.declared.id, "all"}
    }
    variants = {id: draw_variants(id, key) for id in sorted(assessed)}
    ours = read_handout(page, folder, variants, instructor=True)
    theirs = read_handout(page, folder, variants)
    ours.install = theirs.install = install
    name = page.stem
    before = key.assignments.get(name, {})
    key.assignments[name] = {
        "page": name,
        "exercises": [
            fields_of(item.declared, assessed, item.variants)
            for item in theirs.items
            if not item.exercise.local
        ],
        "students": before.get("students", {}),
    }
    key.save()
    path = write(student_notebook(theirs), out / "student" / f"{name}.ipynb")
    yield f"student    {path}"
    made = instructor_notebook(ours, key.id)
    path = write(made, out / "instructor" / f"{name}.ipynb")
    yield f"instructor {path}"
    path = write_nbgrader(theirs, key, out / "nbgrader")
    yield f"nbgrader   {path}"
    target = out / "gradescope" / f"{name}.zip"
    if not several:
        target = out / "gradescope.zip"
    path = write_gradescope(name, key, target, folder)
    yield f"gradescope {path} (holds the key: for Gradescope only)"
    for item in theirs.items:
        if reason := item.exercise.local:
            yield f"note: {item.declared.id} is not graded: {reason}"
    yield from notes(theirs, assessed)


def notes(handout: Handout, assessed: Iterable[str]) -> Iterator[str]:
    """What an instructor should know of the exercises that are assessed."""
    for item in handout.items:
        id = item.declared.id
        if id not in assessed:
            continue
        if item.variants:
            yield f"assessed   {id}: {', '.join(sorted(item.variants))}"
        elif not item.private:
            yield (
                f"note: {id} has no variants; the book's own solution answers "
                "it"
            )


def draw_variants(id: str, key: Key) -> list[str]:
    """A convention for an exercise: one or several of its variants."""
    names = sorted(core.find(id).variants)
    choices = [
        list(chosen)
        for size in range(1, len(names) + 1)
        for chosen in combinations(names, size)
    ]
    if not choices:
        return []
    return random.Random(key.seed("variants", id)).choice(choices)


def fields_of(
    one: Declared, assessed: Iterable[str], variants: Iterable[str]
) -> dict[str, Any]:
    """What the key keeps of an exercise."""
    return {
        "id": one.id,
        "function": one.function,
        "points": one.points,
        "kind": "assessed" if one.id in assessed else "practice",
        "variants": sorted(variants),
        "stub": one.stub,
    }


# -- everyone debugs a different program -------------------------------------
def make_debug(
    class_: Mapping[str, str],
    key: Key,
    out: Path,
    pages: Sequence[Path],
    folder: Path | None,
    install: str,
) -> Iterator[str]:
    """Give each student of a roster a program of their own to fix."""
    functions = {d.id: d.function for page in pages for d in declared(page)}
    functions |= {
        fields["id"]: fields["function"]
        for known in key.assignments.values()
        for fields in known["exercises"]
        if not pages
    }
    ids = list(functions) or every_exercise()
    before = key.assignments.get(DEBUG, {}).get("students", {})
    pool, without = programs(ids, key)
    if not pool:
        raise ValueError(
            "a program to fix is a reference with a classic mistake: got "
            f"none, since {'; '.join(f'{a}: {b}' for a, b in without.items())}"
        )
    hard = equally_hard(pool)
    known = {name: entered(fields) for name, fields in before.items()}
    given = distribute(class_, hard, key, known)
    entries = {
        name: before.get(name)
        or entry(given[name], function_of(given[name], functions), full)
        for name, full in class_.items()
    }
    key.assignments[DEBUG] = {
        "page": DEBUG,
        "exercises": [],
        "students": before | entries,
    }
    for name, fields in entries.items():
        write(
            debug_notebook(fields, install), out / "students" / f"{name}.ipynb"
        )
    different = len({(p.id, p.bugs, p.variants) for p in given.values()})
    yield (
        f"students   {out / 'students'}: {len(class_)} notebooks, {different} "
        f"different programs of {len(hard)} that are equally hard"
    )
    rates = [p.rejection_rate for p in given.values()]
    yield (
        f"           each is wrong on {min(rates):.0%} to {max(rates):.0%} "
        "of the cases"
    )
    path = write_gradescope(DEBUG, key, out / "gradescope-debug.zip", folder)
    yield f"gradescope {path} (holds the key: for Gradescope only)"


def every_exercise() -> list[str]:
    """The ids of the catalogue."""
    return [f"{c}/{n}" for c in core.chapters() for n in core.exercises(c)]


def function_of(program: Program, functions: Mapping[str, str]) -> str:
    """What a student's function is called."""
    reference = core.find(program.id).reference
    return functions.get(program.id, reference.__name__)


def debug_notebook(fields: Mapping[str, Any], install: str) -> Any:
    """A student's notebook: a program to fix, and a test to write."""
    debug, program = fields["debug"], entered(fields)
    exercise = core.find(program.id)
    function, test = debug["function"], debug["test"]
    to = Writer()
    to.text(
        f"# Fix a program\n\n{fields['name']}, this program is yours alone: "
        "others got other ones. Hand in this file under the name it has. "
        "Only the two functions count, and what they need; you may add "
        "cells."
    )
    to.code(install)
    lines = [
        f"## What `{function}` should be",
        inspect.getdoc(exercise.reference) or "",
        "None of its arguments may be changed.",
        *amendments(exercise, program.variants),
        f"The book explains it in {chapter(program.id)}.",
        "## The program",
        "There is at least one mistake in it. Fix it; write it yourself"
        + without(exercise)
        + f". *({debug['points']} points)*",
    ]
    to.text("\n\n".join(lines))
    source = mutant(program, function)
    to.code(source.prelude)
    to.code(
        debug["stub"],
        exercise=program.id,
        points=debug["points"],
        kind="assessed",
        variants=sorted(program.variants),
    )
    to.text(
        "## A test of your own\n\nWrite a test that tells a right function "
        "from the program that you were given. It is called with a function "
        f"`f`, which takes what `{function}` takes, and returns True if `f` "
        "is right and False if it is the program above, as it was. "
        f"*({test['points']} points)*"
    )
    to.code(
        f"def {test['function']}(f):\n    ...",
        exercise=test["id"],
        points=test["points"],
        kind="assessed",
    )
    to.text(
        "## Afterwards\n\nYou will be asked three questions about what you "
        "hand in: what it does with certain inputs, and why."
    )
    return to.notebook()


def chapter(id: str) -> str:
    """The chapter of an exercise, in words."""
    name = id.partition("/")[0]
    pages = [bug.read.partition("#")[0] for bug in core.find(id).bugs.values()]
    return next(
        (title(page) for page in pages if page.endswith(f"_{name}")),
        f"its chapter, {name}",
    )


def without(exercise: core.Exercise) -> str:
    """What may not be used."""
    if not exercise.forbid:
        return ""
    return f", without {', '.join(f'`{name}`' for name in exercise.forbid)}"
