"""``coursekit sheet``: a grade sheet as a gradebook takes it.

Canvas (Gradebook, Import) wants the columns of its own export: ``Student``,
``ID``, perhaps ``SIS User ID`` and ``SIS Login ID``, ``Section``, then the
assignment, and a row "Points Possible" before the students.  A student is
found by ``ID``, else by the SIS ids, else by name; an assignment by the
number in parentheses behind its title, else by the title; what is new is
created.  As its importer reads them:
https://github.com/instructure/canvas-lms/blob/master/lib/gradebook_importer.rb

Moodle takes an assignment's grading worksheet back, in which ``Identifier``,
``Grade`` and ``Last modified (grade)`` have to stand; it passes over a grade
above the maximum.
https://github.com/moodle/moodle/blob/main/mod/assign/feedback/offline/importgradeslib.php
Its gradebook (Import, CSV file) takes any columns, and asks which of them
names the student: https://docs.moodle.org/en/Grade_import
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from coursekit_classroom.teach.collect import recognize, spellings
from coursekit_classroom.teach.roster import (
    Member,
    Roster,
    read_roster,
)
from coursekit_classroom.teach.tables import count, number_in, read_table
from coursekit_classroom.teach.write import cell, out_of_cell, table, write

FORMATS = ("wide", "canvas", "moodle")
CANVAS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")


# -- the command -------------------------------------------------------------
def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``coursekit sheet``."""
    parser.add_argument(
        "grades", metavar="CSV", help="what `coursekit grade` has written"
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="wide",
        help="wide: a line for each student, a column for each exercise; "
        "canvas, moodle: to be imported there [default: wide]",
    )
    parser.add_argument(
        "--roster",
        metavar="CSV",
        help="columns id,name, or as Canvas or Moodle exports it; for Moodle "
        "best the assignment's grading worksheet, which is filled in",
    )
    parser.add_argument(
        "--title",
        metavar="TEXT",
        help="of the assignment in the gradebook, in Canvas with its number: "
        "'Homework 2 (1234)' [default: the sheet's name]",
    )
    parser.add_argument(
        "--out-of",
        type=float,
        metavar="N",
        help="the points that it has there [default: as many as here]",
    )
    parser.add_argument(
        "--out",
        metavar="CSV",
        help="where to write it [default: the sheet's name with the format]",
    )


def run(args: argparse.Namespace) -> int:
    """Make of a grade sheet one that a gradebook imports."""
    source = Path(args.grades)
    grades = read_grades(source)
    roster = read_roster(args.roster) if args.roster else None
    if roster is None and args.format != "wide":
        raise ValueError(
            f"{args.format} knows a student by its own ids: got no --roster. "
            "Export the class there, and name the file."
        )
    if args.out_of is not None and not args.out_of > 0:
        raise ValueError(
            f"--out-of is a number of points above 0: got {args.out_of:g}."
        )
    scale = args.out_of / grades.most if args.out_of else 1
    people, strangers = who_is_who(grades, roster)
    made = Sheet(grades, people, args.title or source.stem, scale)
    make = {"wide": made.wide, "canvas": made.canvas, "moodle": made.moodle}
    head, *rows = make[args.format](roster or Roster("", (), ()))
    out = Path(
        args.out or source.with_name(f"{source.stem}-{args.format}.csv")
    )
    for read in (source, Path(args.roster or source)):
        if out.resolve() == read.resolve():
            raise ValueError(
                f"a table that is read is not written over: got {out}. Give "
                "--out another name."
            )
    write(out, table(head, rows))
    print(f"{count(len(people), 'student')}, of {made.most} points: {out}")
    if strangers:
        n = len(strangers)
        belong = "submissions belong" if n > 1 else "submission belongs"
        print(
            f"warning   {n} {belong} to nobody on the roster: "
            f"{', '.join(strangers)}. They are left out."
        )
    if absent := [one.name for one, row in people if row is None]:
        print(
            f"warning   on the roster, and without a row in {source.name}: "
            f"{', '.join(absent)}. Their grade is left empty."
        )
    return 0


# -- reading -----------------------------------------------------------------
@dataclass(frozen=True)
class Grades:
    """What ``coursekit grade`` has found."""

    exercises: Mapping[str, float]
    """What each is worth, in the sheet's order."""

    students: Mapping[str, Mapping[str, float]]
    """The points of each student, by exercise."""

    days_late: Mapping[str, int]
    names: Mapping[str, str]
    """Of the students who were on a roster."""

    most: float
    """The points that a student can get: all have as many."""


def read_grades(path: Path) -> Grades:
    """Read a sheet.

    Raises:
        ValueError: if it is none.
    """
    table = read_table(path, "the grade sheet")
    students: dict[str, dict[str, float]] = {}
    worth: dict[str, dict[str, float]] = {}
    late: dict[str, int] = {}
    names: dict[str, str] = {}
    for line, row in table.named():
        try:
            name, id = out_of_cell(row["student"]), row["exercise"]
            students.setdefault(name, {})[id] = number_in(row["points"])
            worth.setdefault(name, {})[id] = number_in(row["max_points"])
            days = int(row.get("days_late") or 0)
            late[name] = max(late.get(name, 0), days)
            names[name] = out_of_cell(row.get("name", ""))
        except (KeyError, ValueError) as error:
            raise ValueError(
                f"{path} is no sheet of `coursekit grade`: line {line} has "
                f"the wrong {error}."
            ) from error
    if not students:
        raise ValueError(f"a grade sheet has students: {path} has none.")
    exercises = {id: n for row in worth.values() for id, n in row.items()}
    most = max(sum(row.values()) for row in worth.values())
    return Grades(exercises, students, late, names, most)


People = Sequence[tuple[Member, str | None]]
"""Each student, and what the grade sheet calls them, if it has them."""


def who_is_who(
    grades: Grades, roster: Roster | None
) -> tuple[People, list[str]]:
    """The class, each with their name in the sheet; and who is left over."""
    if roster is None:
        return [(Member(n, grades.names[n]), n) for n in grades.students], []
    known = {one.id: one.entry() for one in roster.members}
    ids = {one.id.casefold(): one.id for one in roster.members}
    # A sheet may have been made with another of somebody's ids, which may be
    # somebody else's in another column: the first counts.
    for column in ("Username", "ID number", "Email address", *CANVAS[1:4]):
        for one in roster.members:
            if value := one.cells.get(column, ""):
                ids.setdefault(value.casefold(), one.id)
    # Where it did not know the class, `grade` tells two of one name by number.
    for one in (m for m in roster.members if m.number):
        plain = one.name.encode("ascii", "ignore").decode()  # as Canvas does
        for name in (one.name, *spellings(one.name), *spellings(plain)):
            ids.setdefault(f"{name}_{one.number}".casefold(), one.id)
    named = dict[str, str]()
    for name in grades.students:
        found = ids.get(name.casefold()) or recognize(name, known, ())
        if found in known:
            named[found] = name
    people = [(one, named.get(one.id)) for one in roster.members]
    return people, sorted(set(grades.students) - set(named.values()))


# -- writing -----------------------------------------------------------------
@dataclass(frozen=True)
class Sheet:
    """A sheet to be imported."""

    grades: Grades
    people: People
    title: str
    scale: float
    """A point there is as many here."""

    @property
    def most(self) -> str:
        """The points that can be had."""
        return f"{self.grades.most * self.scale:g}"

    def total(self, name: str | None) -> str:
        """What a student has got; empty for who isn't in the sheet."""
        if name is None:
            return ""
        return f"{sum(self.grades.students[name].values()) * self.scale:.2f}"

    def wide(self, _: Roster) -> Iterator[Sequence[str]]:
        """A line for each student, after one of the points there are."""
        ids = list(self.grades.exercises)
        yield ["id", "name", *ids, "total", "days_late"]
        worth = [f"{n * self.scale:g}" for n in self.grades.exercises.values()]
        yield ["", "points possible", *worth, self.most, ""]
        for one, name in self.people:
            row = self.grades.students.get(name or "", {})
            points = [
                f"{row[id] * self.scale:.2f}" if id in row else ""
                for id in ids
            ]
            days = self.grades.days_late.get(name or "", "")
            names = [cell(one.id), cell(one.name)]
            yield [*names, *points, self.total(name), str(days)]

    def canvas(self, roster: Roster) -> Iterator[Sequence[str]]:
        """As Canvas's gradebook imports it."""
        yield [*CANVAS, self.title]
        yield ["    Points Possible", *[""] * (len(CANVAS) - 1), self.most]
        for one, name in self.people:
            cells = [one.cells.get(column, "") for column in CANVAS]
            if roster.system != "canvas":  # it is found by its login
                cells = [one.name, "", "", one.id, ""]
            elif not cells[0]:  # a gradebook with two columns for a name
                cells[0] = one.name
            yield [*cells, self.total(name)]

    def moodle(self, roster: Roster) -> Iterator[Sequence[str]]:
        """As Moodle's assignment or gradebook imports it.

        Raises:
            ValueError: if the worksheet is for other points: Moodle passes
                over what is above its maximum, and says nothing.
        """
        columns, grade = list(roster.columns), self.title
        if {"Identifier", "Grade"} <= set(columns):
            grade = "Grade"
            for one in roster.members:
                lower = {c.casefold(): t for c, t in one.cells.items()}
                text = lower.get("maximum grade", "")
                if text and number_in(text) != float(self.most):
                    raise ValueError(
                        f"the grades are of {self.most} points, and Moodle's "
                        f"worksheet says {text}: change the assignment there, "
                        f"or convert them with --out-of {number_in(text):g}."
                    )
        else:
            keep = {
                *("First name", "Last name", "Surname", "Username", "id"),
                *("ID number", "Email address", "name"),
            }
            columns = [c for c in columns if c in keep] + [grade]
        yield columns
        for one, name in self.people:
            cells = dict(one.cells)
            if name is not None:
                cells[grade] = self.total(name)
            yield [cells.get(column, "") for column in columns]
