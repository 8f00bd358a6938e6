"""What is asked of whom: an assignment of the secret, for a class."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coursekit_classroom.check import core
from coursekit_classroom.notebooks.cells import read_marked
from coursekit_classroom.teach import steps
from coursekit_classroom.teach.collect import ENDINGS
from coursekit_classroom.teach.deadline import Deadline
from coursekit_classroom.teach.judge import Task
from coursekit_classroom.teach.programs import to_fix
from coursekit_classroom.teach.read import differ, is_plain, too_many
from coursekit_classroom.teach.records import Result
from coursekit_classroom.teach.roster import read_roster
from coursekit_classroom.teach.secret import Secret

STRANGER = (
    "Nobody of this name is on the roster, so there is no program that was "
    "given out to fix. Is the file's name the id?"
)
ELSEWHERE = "(made with another secret or --name)"


@dataclass(frozen=True)
class Plan:
    """An assignment."""

    secret: Secret
    class_: Mapping[str, Mapping[str, Any]]
    """The roster, by id."""

    common: Sequence[Task]
    """The exercises that everybody has."""

    mark: str
    """In the notebooks that were given out for it."""

    setup: tuple[str, ...]
    """Cells that were given out."""

    deadline: Deadline | None
    endings: tuple[str, ...]
    """Of the files that are handed in."""

    def stranger(self, student: str) -> list[Result]:
        """A row for who is on no roster of programs to fix; else nothing."""
        given = [f["debug"] for f in self.class_.values() if f.get("debug")]
        if not given or student in self.class_:
            return []
        points = float(
            max(debug["points"] + debug["test"]["points"] for debug in given)
        )
        return [Result("debug", "", points, "not attempted", message=STRANGER)]

    def tasks_of(self, student: str) -> list[Task]:
        """What one student is examined in."""
        tasks = list(self.common)
        if debug := self.class_.get(student, {}).get("debug"):
            own = to_fix(self.secret, student, debug)
            ids = {task.id for task in own}
            tasks = [task for task in tasks if task.id not in ids] + own
        return [
            replace(task, mark=self.mark, setup=(*self.setup, *task.setup))
            for task in tasks
        ]


@contextmanager
def overlay(folder: str | None) -> Iterator[None]:
    """Have the exercises of a folder for a while."""
    if folder is None:
        yield
        return
    path = Path(folder).resolve()
    if not path.is_dir():
        raise ValueError(
            f"an overlay is a folder with modules of exercises: got {folder}."
        )
    known = path in core.OVERLAYS
    if not known:
        core.OVERLAYS.append(path)
    try:
        yield
    finally:
        if not known:
            core.OVERLAYS.remove(path)


def plan(
    secret: Secret,
    there: Sequence[Path],
    name: str | None = None,
    roster: str | None = None,
) -> Plan:
    """Read the assignment that was handed in out of the secret.

    Args:
        secret: the instructor's.
        there: what was handed in; its notebooks say which assignment it is,
            if the secret holds several.
        name: of the assignment.
        roster: a file with the class, besides those whom the secret knows.

    Raises:
        ValueError: if there is no assignment, or it is not clear which.
    """
    known = secret.assignments
    if not known:
        raise ValueError(
            "a secret has assignments to grade: got one without any. Make the "
            "notebooks with `coursekit assign`."
        )
    if name is None:
        name = next(iter(known)) if len(known) == 1 else marked(secret, there)
    if name is None:
        raise ValueError(
            f"the secret has {len(known)} assignments, and most notebooks are "
            "marked for none of them: say which with --assignment, one of "
            f"{', '.join(known)}."
        )
    if name not in known:
        raise ValueError(
            f"--assignment is one of the secret's: got {name!r}. It has "
            f"{', '.join(known)}."
        )
    fields = known[name]
    class_ = dict(fields.get("students") or {})
    for one in read_roster(roster).members if roster else ():
        class_[one.id] = class_.get(one.id, {}) | one.entry()
    common = [
        Task(
            one["id"],
            one["function"],
            float(one["points"]),
            core.find(one["id"]),
            secret.seed("grade", one["id"]),
            secret.seed("secret", one["id"]),
            frozenset(one.get("variants", ())),
            one.get("stub", ""),
        )
        for one in fields["exercises"]
    ]
    endings: tuple[str, ...] = ENDINGS
    if "step" in fields:
        common.append(steps.task_of(secret, fields["step"]))
        endings = (*ENDINGS, ".py")  # the learner's file as it is, too
    late = fields.get("deadline")
    return Plan(
        secret,
        class_,
        common,
        secret.mark(name),
        tuple(fields.get("setup", ())),
        Deadline.of(late) if late else None,
        endings,
    )


def marked(secret: Secret, there: Sequence[Path]) -> str | None:
    """The assignment that most of the marked notebooks were given out for."""
    counted = Counter[str]()
    for path in [*there, *(p for place in there for p in place.glob("*"))]:
        if path.suffix.lower() in ENDINGS and is_plain(path):
            with suppress(Exception):
                counted[read_marked(path)[1]] += 1
    counted.pop("", None)
    names = {secret.mark(name): name for name in secret.assignments}
    for mark, n in counted.most_common(1):
        return names.get(mark) if 2 * n > counted.total() else None
    return None


@dataclass(frozen=True)
class Elsewhere:
    """Whose notebooks are not what was given out."""

    others: Mapping[str, Sequence[str]]
    """Who has handed in exercises of another assignment alone, and which."""

    unmarked: Sequence[str]
    """Who has handed in one without a mark, such as the book's own."""


def elsewhere(
    mark: str,
    students: Mapping[str, Sequence[Path]],
    tasks: Mapping[str, Sequence[Task]],
) -> Elsewhere:
    """Look for notebooks that were not given out for this assignment.

    Raises:
        ValueError: if that holds for everybody who has handed in any.
    """
    others, unmarked, right = dict[str, list[str]](), list[str](), False
    for student, paths in students.items():
        said = list(answered(paths))
        ids = sorted(
            {f"{id} {ELSEWHERE}" if differ(m, mark) else id for m, id in said}
        )
        if any(not m for m, _ in said):
            unmarked.append(student)
        asked = {task.id for task in tasks[student]}
        if ids and asked and not asked & set(ids):
            others[student] = ids
        elif ids:
            right = True
    if others and not right:
        asked = {task.id for each in tasks.values() for task in each}
        handed_in = {id for ids in others.values() for id in ids}
        raise ValueError(
            "submissions answer the exercises of the assignment, here "
            f"{', '.join(sorted(asked))}: got notebooks with "
            f"{', '.join(sorted(handed_in))} alone. Which secret, and which "
            "--assignment, were they made with?"
        )
    return Elsewhere(others, unmarked)


def answered(paths: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """The exercises that a student's notebooks name, each with the mark of
    the assignment that it was given out for."""
    plain = [p for p in paths if is_plain(p)]
    for path in [] if too_many(plain) else plain:
        with suppress(Exception):  # a damaged one: its rows say so
            cells, mark = read_marked(path)
            yield from [(mark, c.exercise) for c in cells if c.exercise]
