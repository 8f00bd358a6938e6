"""What an instructor decides by hand: a table that ``grade`` never writes.

Its columns are ``student`` and ``exercise``, as in the grade sheet, then
``points``, ``comment`` and ``extension``, in days, as far as they are needed.
A line without an exercise is about all of them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from coursekit_classroom.teach.records import Graded, Result
from coursekit_classroom.teach.tables import number_in, read_table

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
    if points is not None and not 0 <= points <= worth.get(exercise, -1):
        raise ValueError(
            "points are for one exercise, 0 to what it is worth: got "
            f"{text} for {exercise or 'all'} ({worth.get(exercise, 0):g})."
        )
    if not days.isdecimal():
        raise ValueError(f"an extension is a number of days: got {days!r}.")
    return Override(points, row.get("comment", ""), int(days))


def extension(overrides: Overrides, student: str, exercise: str) -> int:
    """How many days later something is due."""
    both = ((student, ""), (student, exercise))
    return max(overrides[k].extension if k in overrides else 0 for k in both)


def overridden(overrides: Overrides, student: Graded) -> Graded:
    """The same student with the instructor's points and comments."""

    def one(result: Result) -> Result:
        both = ((student.student, ""), (student.student, result.exercise))
        said: Sequence[Override] = [
            overrides[key] for key in both if key in overrides
        ]
        points = [o.points for o in said if o.points is not None]
        return replace(
            result,
            by_hand=points[0] if points else None,
            comment=" ".join(o.comment for o in said if o.comment),
        )

    return replace(student, results=[one(r) for r in student.results])
