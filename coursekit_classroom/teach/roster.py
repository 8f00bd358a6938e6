"""Who is in the class, as a file of the instructor's own or an LMS says it.

What Canvas exports (Gradebook, Export): ``Student``, "Last, First", ``ID``,
``SIS User ID``, ``SIS Login ID``, ``Section``, then a column for each
assignment; before the students come a row "Points Possible" and perhaps one
on manual posting, after them there may be "Student, Test".
https://community.canvaslms.com/t5/Instructor-Guide/How-do-I-import-grades-in-the-Gradebook/ta-p/807

What Moodle exports: a grading worksheet of one assignment (``Identifier``,
"Participant 12345", ``Full name``, ``Email address``, ``Status``, ``Grade``,
``Maximum Grade``, ...), or the participants or grades of a course (``First
name``, ``Last name``, ``ID number``, ``Email address``, ...).
https://docs.moodle.org/en/Assignment_settings, "Offline grading worksheet",
and https://docs.moodle.org/en/Grade_export
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coursekit_classroom.teach.tables import Table, read_table

RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")
IDS = {  # the columns that can be an id, the best first
    "": ["id"],
    "canvas": ["sis login id", "sis user id", "id"],
    "moodle": ["username", "id number", "email address", "identifier"],
}
NO_STUDENT = ("points possible", "student, test", "test student")
"""What stands in Canvas's first column where no student does."""


@dataclass(frozen=True)
class Member:
    """One student of the class."""

    id: str
    """As a file can be called, see :func:`safe_name`."""

    name: str
    number: str = ""
    """Which the LMS writes into the names of the files that it gives out."""

    cells: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Their line of the file, by the names of the columns."""

    def entry(self) -> dict[str, Any]:
        """What the secret keeps of them."""
        number = {"number": self.number} if self.number else {}
        return {"name": self.name} | number


@dataclass(frozen=True)
class Roster:
    """A class."""

    system: str
    """Whose export it is: "canvas", "moodle" or none."""

    columns: Sequence[str]
    members: Sequence[Member]
    """In the file's order."""

    def names(self) -> dict[str, str]:
        """The name of each student, by id."""
        return {one.id: one.name for one in self.members}


def read_roster(path: Path | str) -> Roster:
    """A class, from a CSV file with ``id`` and ``name``, or an LMS's export.

    Raises:
        ValueError: if it is no such file, or an id stands twice.
    """
    path = Path(path)
    table = read_table(path, "the roster")
    columns = table.columns
    system = system_of([name.casefold() for name in columns])
    if system is None:
        raise ValueError(
            "a roster has the columns id and name, or is an export of Canvas "
            f"or Moodle: got {', '.join(columns)!r} in {path.name}. Put "
            "`id,name` into its first line."
        )
    found = members(table, system, path.name)
    return Roster(system, columns, found)


def system_of(columns: Sequence[str]) -> str | None:
    """Whose export has such columns; "" for our own, None for nobody's."""
    there = set(columns)
    if columns.count("id") == columns.count("name") == 1:
        return ""
    if {"id", "section"} < there and there & {"student", "lastname"}:
        return "canvas"
    if "identifier" in there:
        return "moodle"
    if "first name" in there and there & {"email address", "id number"}:
        return "moodle"
    return None


def members(table: Table, system: str, file: str) -> list[Member]:
    """The students of a file's lines.

    Raises:
        ValueError: if there are none, or two have one id.
    """
    lines = [
        (line, named)
        for (line, named), (_, row) in zip(
            table.named(), table.rows, strict=True
        )
        if system != "canvas"
        or (row[0] and row[0].casefold() not in NO_STUDENT)
    ]
    lower = [{n.casefold(): c for n, c in row.items()} for _, row in lines]
    column = id_column(lower, system)
    found, seen = list[Member](), dict[str, int]()
    for (line, cells), row in zip(lines, lower, strict=True):
        given = row.get(column, "")
        id = safe_name(given)
        if not id:
            raise ValueError(
                "every student has an id with a letter or a digit: got "
                f"{given!r} in line {line} of {file}."
            )
        if id.casefold() in seen:
            raise ValueError(
                f"an id belongs to one student: got {given!r} in line {line} "
                f"of {file}, as a file the same as in line "
                f"{seen[id.casefold()]}."
            )
        seen[id.casefold()] = line
        name, number = printable(full_name(row)) or id, ""
        if system == "canvas":
            number = row["id"]
        elif system == "moodle":
            number = "".join(re.findall(r"\d+$", row.get("identifier", "")))
        found.append(Member(id, name, number, cells))
    if not found:
        raise ValueError(f"a roster has students: got none in {file}.")
    return found


def id_column(rows: Sequence[Mapping[str, str]], system: str) -> str:
    """The column that tells everybody from everybody else."""
    *others, last = IDS[system]
    for column in others:
        values = {row.get(column, "").casefold() for row in rows} - {""}
        if len(values) == len(rows) > 0:
            return column
    return last


def full_name(row: Mapping[str, str]) -> str:
    """First name first, as people write it."""
    if "student" in row:
        last, _, first = row["student"].partition(", ")
        return f"{first} {last}"
    for column in ("name", "full name"):
        if column in row:
            return row[column]
    first = row.get("first name") or row.get("firstname", "")
    columns = ("last name", "surname", "lastname")
    return f"{first} {next((row[c] for c in columns if c in row), '')}"


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


def printable(text: str) -> str:
    """A name without what a terminal or a notebook could take amiss."""
    return " ".join(
        "".join(c if c.isprintable() else " " for c in text).split()
    )
