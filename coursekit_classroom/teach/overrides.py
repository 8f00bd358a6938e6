"""What an instructor decides by hand: a table that ``grade`` never writes.

Its columns are ``student`` and ``exercise``, as in the grade sheet, then
``points``, ``comment`` and ``extension``, in days, as far as they are needed.
A line without an exercise is about all of them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from coursekit_classroom.teach.deadline import Deadline
from coursekit_classroom.teach.records import Graded, Result
from coursekit_classroom.teach.tables import number_in, read_table

LATEST = datetime(9999, 1, 1, tzinfo=UTC).timestamp()  # a file may say more
COLUMNS = ("student", "exercise", "points", "comment", "extension")


@dataclass(frozen=True)
class Override:
    """One line of the table."""

    points: float | None
    """Instead of the grader's; nothing is taken off for being late."""

    comment: str
    """For the student."""

    extension: int
    """Days after the due date."""


Overrides = Mapping[tuple[str, str], Override]
"""By student and exercise; the exercise is empty for all of them."""


def read_overrides(
    path: Path,
    student: Callable[[str], str],
    worth: Callable[[str], Mapping[str, float]],
) -> Overrides:
    """Read the table, if there is one.

    Args:
        path: the table.
        student: the id of the student whom a cell names.
        worth: a student's exercises, and what each is worth; none if there
            is no such student.

    Raises:
        ValueError: if a line cannot be applied.
    """
    if not path.exists():
        return {}
    table = read_table(path, "the table of overrides")
    if unknown := set(table.columns) - {*COLUMNS, ""}:
        raise ValueError(
            f"{path} has the columns {', '.join(COLUMNS)}: got "
            f"{', '.join(sorted(unknown))}."
        )
    found = dict[tuple[str, str], Override]()
    for line, row in table.named():
        id, exercise = student(row.get("student", "")), row.get("exercise", "")
        if (id, exercise) in found:
            raise ValueError(
                f"{path} has one line for a student and an exercise: got "
                f"another in line {line}, for {id} and {exercise or 'all'}."
            )
        try:
            found[id, exercise] = override_of(row, exercise, worth(id))
        except ValueError as error:
            raise ValueError(f"{path}, line {line}: {error}") from error
    return found


def override_of(
    row: Mapping[str, str], exercise: str, worth: Mapping[str, float]
) -> Override:
    """What one line says.

    Raises:
        ValueError: if it says nothing that can be.
    """
    if not worth or (exercise and exercise not in worth):
        raise ValueError(
            "an override is for a student and an exercise of the sheet: got "
            f"{row.get('student')!r} and {exercise!r}. The student's "
            f"exercises are {', '.join(worth) or 'none: nobody is so called'}."
        )
    text, days = row.get("points", ""), row.get("extension", "") or "0"
    points = number_in(text) if text else None
    worth_them = ", ".join(f"{id} ({n:g})" for id, n in worth.items())
    if points is not None and not 0 <= points <= worth.get(exercise, -1):
        raise ValueError(
            "points are for one exercise, 0 to what it is worth: got "
            f"{text} for {exercise or 'none'}. They are {worth_them}."
        )
    if not days.isdecimal():
        raise ValueError(f"an extension is a number of days: got {days!r}.")
    return Override(points, row.get("comment", ""), int(days))


def decided(
    student: Graded,
    paths: Sequence[Path],
    deadline: Deadline | None,
    marked: Mapping[Path, bool],
    overrides: Overrides,
) -> Graded:
    """The same student with what lateness costs and the instructor decides.

    The date of an answer is that of the file which it was taken from.

    Args:
        student: what grading found.
        paths: their files.
        deadline: if there is one.
        marked: whether the LMS has marked a file as late, where it would.
        overrides: the instructor's table.
    """
    days = {
        path.name: days_late(path, deadline, marked.get(path))
        for path in paths
        if deadline and path.is_file()
    }
    results = list[Result]()
    for r in student.results:
        both = ((student.student, ""), (student.student, r.exercise))
        said = [overrides[key] for key in both if key in overrides]
        late = days.get(r.notebook, 0)
        late -= max((o.extension for o in said), default=0)
        if deadline and late > 0:
            off = deadline.penalty(late)
            r = replace(r, days_late=late, penalty=off)
        points = [o.points for o in said if o.points is not None]
        comment = " ".join(o.comment for o in said if o.comment)
        by_hand = points[0] if points else None
        results.append(replace(r, by_hand=by_hand, comment=comment))
    return replace(student, results=results)


def days_late(
    path: Path, deadline: Deadline, marked: bool | None = None
) -> int:
    """How late a file was handed in.

    Where an LMS marks what is late, it knows whether, and the file's time
    tells how much.
    """
    time = min(max(path.stat().st_mtime, 0.0), LATEST)
    days = deadline.days_late(datetime.fromtimestamp(time, UTC))
    if marked is None:
        return days
    return max(days, 1) if marked else 0
