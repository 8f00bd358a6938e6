"""Who is in the class, and which wrong program each of them gets.

A program is a *mutant*: a reference with one or two classic mistakes, and
perhaps another convention.  All that are given out are equally hard: the
fraction of the cases that reject one lies within 10 points of the median.
"""

import csv
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from coursekit.classroom.check import core
from coursekit.classroom.check.checker import verdict
from coursekit.classroom.check.core import NONE, Exercise, Switches
from coursekit.classroom.check.diagnose import mutants
from coursekit.classroom.grading.cells import decode
from coursekit.classroom.grading.key import Key
from coursekit.classroom.grading.notebooks import COPY
from coursekit.classroom.grading.standalone import (
    NotStandaloneError,
    Standalone,
    standalone,
)

NEAR = 0.10  # of the median
FIX, TEST = 6, 4  # points for the program, and for the test
RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")


# -- the class ---------------------------------------------------------------
def read_roster(path: Path | str) -> dict[str, str]:
    """A class, from a CSV file with the columns ``id`` and ``name``.

    Comma, semicolon and tab separate; Excel's byte order mark is no letter.

    Returns:
        the name by the id, in the file's order; the id as a file can be
        called (see :func:`safe_name`).

    Raises:
        ValueError: if it is no such file, or an id stands twice.
    """
    path = Path(path)
    try:
        text = decode(path.read_bytes())
    except OSError as error:
        raise ValueError(
            f"the roster {path} cannot be read: {error.strerror}."
        ) from error
    if "\0" in text:
        raise ValueError(
            f"a roster is a CSV file: got {path.name}, which is no text. In "
            "Excel, save it as CSV."
        )
    lines = text.splitlines()
    head = next((line for line in lines if line.strip()), "")
    separator = max(",;\t", key=head.count)
    rows = csv.reader(lines, delimiter=separator)
    table = [(rows.line_num, [c.strip() for c in row]) for row in rows]
    table = [(number, row) for number, row in table if any(row)]
    if not table:
        raise ValueError(f"a roster has students: {path.name} is empty.")
    columns = [name.casefold() for name in table[0][1]]
    for name in ("id", "name"):
        if columns.count(name) != 1:
            raise ValueError(
                f"a roster has the columns id and name: got "
                f"{', '.join(table[0][1])} in {path.name}. Put `id,name` "
                "into its first line."
            )
    return students(table[1:], columns, path.name)


def students(
    table: Iterable[tuple[int, Sequence[str]]],
    columns: Sequence[str],
    file: str,
) -> dict[str, str]:
    """The names by the ids."""
    found: dict[str, str] = {}
    lines: dict[str, int] = {}
    for line, row in table:
        fields = dict(zip(columns, row, strict=False))
        given = fields.get("id", "")
        id = safe_name(given)
        if not id:
            raise ValueError(
                "every student has an id with a letter or a digit: got "
                f"{given!r} in line {line} of {file}."
            )
        if id.casefold() in lines:
            raise ValueError(
                f"an id belongs to one student: got {given!r} in line {line} "
                f"of {file}, as a file the same as in line "
                f"{lines[id.casefold()]}."
            )
        lines[id.casefold()] = line
        found[id] = printable(fields.get("name", "")) or id
    if not found:
        raise ValueError(f"a roster has students: got none in {file}.")
    return found


def safe_name(id: str) -> str:
    """An id as a file can be called on every system.

    Letters, digits and ``-_.@+`` stay; others become ``_``.  It begins with a
    letter or a digit, since files that begin with a dot are hidden.  Letters
    are composed (é is one), as not every system keeps them.
    """
    composed = unicodedata.normalize("NFC", id.strip())
    name = re.sub(r"[^\w.@+-]", "_", composed)
    name = name.lstrip("._-+@").rstrip(".")[:100]
    return f"id_{name}" if RESERVED.fullmatch(name) else name


def recognize(
    name: str, students: Mapping[str, Mapping[str, Any]], others: Iterable[str]
) -> str:
    """The id of the student whom a file or folder names.

    An id counts without regard to case.  So does a full name, in which the
    last name may come first, and a number that a browser or an LMS has put
    behind either: ``BOB``, ``bob (1)``, ``Ana Right`` and ``rightana`` name
    students.

    Args:
        name: what the file or folder says.
        students: the roster; each has a ``name``.
        others: who else has handed in.

    Returns:
        the id; for nobody on the roster the name itself, or the way in which
        one of the others spells it.
    """
    if name in students:
        return name
    copy = COPY.search(name)
    plain = (name[: copy.start()] if copy else name) or name
    by_id = {id.casefold(): id for id in students}
    full = dict[str, list[str]]()
    for id, fields in students.items():
        for spelling in spellings(fields.get("name", "")):
            full.setdefault(spelling, []).append(id)
    for said in (name, plain):
        for id in (said, safe_name(said)):
            if found := by_id.get(id.casefold()):
                return found
    for said in (name, plain):
        if len(named := full.get(letters(said), [])) == 1:
            return named[0]
    own = name if copy and copy[1] else plain  # -1 may be part of an id
    return next((o for o in others if o.casefold() == own.casefold()), own)


def spellings(name: str) -> set[str]:
    """The letters of a full name, with any number of its words put last."""
    words = [letters(word) for word in name.split()]
    turned = {"".join(words[n:] + words[:n]) for n in range(len(words))}
    return turned - {""}


def letters(text: str) -> str:
    """Letters and digits alone: no case, accents, blanks or punctuation."""
    apart = unicodedata.normalize("NFKD", text.casefold())
    return "".join(c for c in apart if c.isalnum())


def printable(text: str) -> str:
    """A name without what a terminal or a notebook could take amiss."""
    return " ".join(
        "".join(c if c.isprintable() else " " for c in text).split()
    )


# -- the programs ------------------------------------------------------------
@dataclass(frozen=True)
class Program:
    """A wrong program that a student can be given."""

    id: str
    """Of the exercise."""

    bugs: Switches
    variants: Switches
    """The convention that is asked for."""

    rejection_rate: float
    """The fraction of the cases that reject it."""


def programs(
    ids: Sequence[str], key: Key
) -> tuple[list[Program], dict[str, str]]:
    """Every wrong program that some exercises have.

    Returns:
        the programs; and the exercises that have none, with the reason.
    """
    found, without = list[Program](), dict[str, str]()
    for id in ids:
        exercise = core.find(id)
        reason = exercise.local or ("" if exercise.bugs else "it has no bugs")
        if not reason:
            try:
                standalone(exercise.reference)
            except NotStandaloneError as error:
                reason = str(error)
        if reason:
            without[id] = reason
            continue
        found += rejected(id, exercise, key.seed("debug", id))
    return found, without


def rejected(id: str, exercise: Exercise, seed: int) -> list[Program]:
    """An exercise's mutants under each convention, and how many cases say no.

    A mistake that is none under a convention is left out.
    """
    found = list[Program]()
    cases = core.draw(exercise, seed)
    for on in (NONE, *(frozenset((v,)) for v in exercise.variants)):
        rights = [core.expected(exercise, c, seed, on) for c in cases]
        for bugs in mutants(exercise):
            said = [
                verdict(
                    exercise,
                    case,
                    core.expected(exercise, case, seed, on | bugs),
                    right,
                )
                for case, right in zip(cases, rights, strict=True)
            ]
            rate = sum(text is not None for text in said) / len(said)
            if rate:
                found.append(Program(id, bugs, on, rate))
    return found


def equally_hard(pool: Sequence[Program]) -> list[Program]:
    """Those that about as many cases reject as the median one."""
    middle = median(program.rejection_rate for program in pool)
    return [p for p in pool if abs(p.rejection_rate - middle) <= NEAR + 1e-9]


def distribute(
    names: Iterable[str],
    pool: Sequence[Program],
    key: Key,
    known: Mapping[str, Program],
) -> dict[str, Program]:
    """A program for each student; who has one keeps it.

    Each student has an order of their own of all programs, drawn from the
    key, and gets the first of those that fewest others have.
    """
    given = {n: known[n] for n in names if n in known}
    used = Counter((p.id, p.bugs, p.variants) for p in given.values())
    for name in sorted(set(names) - set(given)):
        order = list(pool)
        random.Random(key.seed("debug", "student", name)).shuffle(order)
        one = min(order, key=lambda p: used[p.id, p.bugs, p.variants])
        used[one.id, one.bugs, one.variants] += 1
        given[name] = one
    return given


# -- the key file ------------------------------------------------------------
def entry(program: Program, function: str, name: str) -> dict[str, Any]:
    """What the key keeps of a student's program.

    The answer's cell is marked with ``exercise``, that of the test with
    ``exercise:test``.
    """
    source = mutant(program, function)
    return {
        "name": name,
        "debug": {
            "exercise": program.id,
            "function": function,
            "points": FIX,
            "bugs": sorted(program.bugs),
            "variants": sorted(program.variants),
            "share": round(program.rejection_rate, 4),
            "stub": source.function,
            "test": {
                "id": f"{program.id}:test",
                "function": "tells",
                "points": TEST,
            },
        },
    }


def entered(fields: Mapping[str, Any]) -> Program:
    """The program that an entry of the key names."""
    debug = fields["debug"]
    return Program(
        debug["exercise"],
        frozenset(debug["bugs"]),
        frozenset(debug["variants"]),
        debug["share"],
    )


def mutant(program: Program, function: str) -> Standalone:
    """The source that a student gets."""
    exercise = core.find(program.id)
    on = program.variants | program.bugs
    return standalone(exercise.reference, on, function)
