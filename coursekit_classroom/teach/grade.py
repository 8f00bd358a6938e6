"""``coursekit grade``: a folder of submissions in, a grade sheet out.

Every student gets a row for every exercise, whatever they handed in.  The
same secret and submissions give the same sheet, byte for byte.

A submission's way: :mod:`.collect` finds its files, :mod:`.plan` says what is
asked, a process of :mod:`.worker` reads it (:mod:`.read`), runs it in a
:mod:`.sandbox` and judges it (:mod:`.judge`), and :mod:`.write` writes.
"""

import argparse
import hashlib
import importlib
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from coursekit.progress import Bar
from coursekit_classroom.check import core
from coursekit_classroom.teach.collect import (
    Collected,
    collect,
    naming,
    recognize,
)
from coursekit_classroom.teach.judge import prove
from coursekit_classroom.teach.key import SECRET_FILE, Key
from coursekit_classroom.teach.overrides import (
    extension,
    overridden,
    read_overrides,
)
from coursekit_classroom.teach.plan import Plan, elsewhere, plan
from coursekit_classroom.teach.read import hash_of
from coursekit_classroom.teach.records import Graded, Result
from coursekit_classroom.teach.sandbox import Isolation, Limits, best
from coursekit_classroom.teach.worker import Worker
from coursekit_classroom.teach.write import (
    Files,
    last_words,
    out_of_cell,
    write_all,
)

LATEST = datetime(9999, 1, 1, tzinfo=UTC).timestamp()  # a file may say more
STRANGER = (
    "Nobody of this name is on the roster, so there is no program that was "
    "given out to fix. Is the file's name the id?"
)


# -- the command -------------------------------------------------------------
def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``coursekit grade``."""
    parser.add_argument(
        "submissions",
        metavar="DIR",
        help="holds <id>.ipynb, or <id>/*.ipynb, for each student",
    )
    parser.add_argument(
        "--secret",
        default=SECRET_FILE,
        metavar="FILE",
        help=f"what `assign` has written [default: {SECRET_FILE}]",
    )
    parser.add_argument(
        "--out",
        required=True,
        metavar="CSV",
        help="the grade sheet; points of your own, comments and extensions "
        "are read from overrides.csv next to it",
    )
    parser.add_argument(
        "--names",
        type=naming,
        metavar="moodle|canvas|REGEX",
        help="how an LMS named the files of DIR; the first group of a "
        "regular expression is the student's id or name",
    )
    parser.add_argument(
        "--roster",
        metavar="CSV",
        help="columns id,name, or as Canvas or Moodle exports it: who has a "
        "row, besides those that `assign --roster` knew",
    )
    parser.add_argument(
        "--feedback",
        metavar="DIR",
        help="a page of Markdown and of HTML for each student",
    )
    parser.add_argument(
        "--assignment",
        metavar="NAME",
        help="which of the secret's assignments [default: the one that most "
        "notebooks were made for]",
    )
    parser.add_argument(
        "--overlay",
        metavar="DIR",
        help="folder with exercises that are not public",
    )
    parser.add_argument(
        "--book",
        default="",
        metavar="URL",
        help="where the book's pages are, for links in the feedback",
    )
    parser.add_argument(
        "--cpu",
        type=float,
        default=Limits.cpu_s,
        metavar="S",
        help="CPU seconds that an answer to one exercise may take; 4 times as "
        f"many on the clock, at least {Limits.wall_s:g} "
        f"[default: {Limits.cpu_s:g}]",
    )
    parser.add_argument(
        "--isolation",
        choices=[str(i) for i in Isolation],
        help="how submissions are shut in [default: the best there is]; "
        "none promises nothing about scores",
    )
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="grade everybody again, also who was graded in an earlier run",
    )


def run(args: argparse.Namespace) -> int:
    """Grade a folder of submissions: a sheet, feedback, a summary."""
    if not 0 < args.cpu < 1e6:
        raise ValueError(
            f"--cpu is a number of seconds above 0: got {args.cpu}."
        )
    folder, key = Path(args.submissions), Key.load(args.secret)
    pages = Path(args.feedback) if args.feedback else None
    isolation = Isolation(args.isolation) if args.isolation else best()
    limits = Limits(cpu_s=args.cpu, wall_s=max(Limits.wall_s, 4 * args.cpu))
    with overlay(args.overlay):
        asked = plan(key, folder, args.assignment, args.roster)
        collected = collect(folder, args.names, asked.class_, asked.endings)
        files = Files(Path(args.out), pages, collected.folders)
        batch = Batch(asked, collected, files, Worker(isolation, limits))
        files.try_out(collected.students, folder)
        done, whole = batch.grade(args.fresh)
        if not whole:
            print(
                f"\ninterrupted: {len(done)} of {len(collected.students)} "
                "students are graded. The same command goes on from here.",
                file=sys.stderr,
            )
            return 130
        write_all(done, files, key.id, batch.version, args.book)
    for line in last_words(
        done, files, collected, asked, batch.elsewhere, isolation
    ):
        print(line)
    return 0


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


# -- the class ---------------------------------------------------------------
class Batch:
    """All students of an assignment."""

    def __init__(
        self, plan: Plan, collected: Collected, files: Files, worker: Worker
    ) -> None:
        """Prepare everything; whatever the instructor got wrong raises here.

        Args:
            plan: what is asked.
            collected: what was handed in.
            files: where results go.
            worker: examines the students.
        """
        self.plan, self.collected = plan, collected
        self.files, self.worker = files, worker
        students = collected.students
        self.tasks = {student: plan.tasks_of(student) for student in students}
        every = [task for tasks in self.tasks.values() for task in tasks]
        if not every:
            raise ValueError(
                "an assignment has exercises: got one without any. Make the "
                "notebooks with `coursekit assign`."
            )
        self.overrides = read_overrides(
            files.overrides,
            lambda text: recognize(out_of_cell(text), plan.class_, students),
            lambda id: {t.id: t.points for t in self.tasks.get(id, ())},
        )
        self.elsewhere = elsewhere(plan.mark, students, self.tasks)
        for task in {repr(task.plain()): task for task in every}.values():
            prove(task)
        self.version = version()
        self.code = code_hash()

    def grade(self, fresh: bool = False) -> tuple[list[Graded], bool]:
        """Grade everybody who is not graded yet.

        Returns:
            who is graded, and whether that is everybody: an interrupt from
            the keyboard ends it early.
        """
        if fresh:
            self.files.forget()
        known, done = self.files.graded(), list[Graded]()
        self.files.progress.parent.mkdir(parents=True, exist_ok=True)
        students = self.collected.students.items()
        try:
            with self.worker, Bar(students, unit="student", disable=None) as b:
                for student, paths in b:
                    stamp, sha256 = self.stamp(student, paths)
                    found = known.get(stamp)
                    if found is None:
                        found = self.examine(student, paths, sha256)
                        plain = found.plain()
                        self.files.note({"stamp": stamp, "graded": plain})
                    found = self.dated(found, paths)
                    done.append(overridden(self.overrides, found))
        except KeyboardInterrupt:
            return done, False
        return done, True

    def examine(
        self, student: str, paths: Sequence[Path], sha256: str
    ) -> Graded:
        """Grade one student."""
        tasks = self.tasks[student]
        found = self.worker.grade(student, paths, tasks, sha256)
        points = self.plan.debug_points
        if not points or student in self.plan.class_:
            return found
        row = Result(
            "debug",
            "",
            float(points),
            "not attempted",
            message=STRANGER,
            isolation=str(self.worker.isolation),
        )
        return replace(found, results=[*found.results, row])

    def stamp(self, student: str, paths: Sequence[Path]) -> tuple[str, str]:
        """What the marks of a student depend on, and the notebooks' hash."""
        plain = [p for p in paths if p.is_file() and not p.is_symlink()]
        sha256 = hash_of(plain)
        depends = [
            *(student, [p.name for p in paths], sha256),
            *(self.plan.key.id, self.version, self.code),
            *(str(self.worker.isolation), repr(self.worker.limits)),
            [task.plain() for task in self.tasks[student]],
        ]
        text = json.dumps(depends, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest(), sha256

    def dated(self, student: Graded, paths: Sequence[Path]) -> Graded:
        """The same with what being late has cost, exercise by exercise.

        The date is that of the file which the answer was taken from.
        """
        if self.plan.deadline is None:
            return student
        days = {p.name: self.days_late(p) for p in paths if p.is_file()}
        results = list[Result]()
        for r in student.results:
            n = days.get(r.notebook, 0)
            n -= extension(self.overrides, student.student, r.exercise)
            if n > 0:
                off = self.plan.deadline.penalty(n)
                r = replace(r, days_late=n, penalty=off)
            results.append(r)
        return replace(student, results=results)

    def days_late(self, path: Path) -> int:
        """How late a file was handed in.

        Where an LMS marks what is late, it knows whether, and the file's
        time tells how much.
        """
        assert self.plan.deadline is not None
        time = min(max(path.stat().st_mtime, 0.0), LATEST)
        days = self.plan.deadline.days_late(datetime.fromtimestamp(time, UTC))
        marked = self.collected.late.get(path)
        if marked is None:
            return days
        return max(days, 1) if marked else 0


def version() -> str:
    """The version of the installed package."""
    try:
        return metadata.version("executable-transformer")
    except metadata.PackageNotFoundError:
        return "not installed"


def code_hash() -> str:
    """Of all that decides about marks: exercises, grading, overlays."""
    digest = hashlib.sha256()
    folders = [*core.OVERLAYS]
    for name in (
        *("check", "catalogue", "notebooks", "teach"),
        *("yourfile", "yourfile.contracts"),
    ):
        module = importlib.import_module(f"coursekit_classroom.{name}")
        folders += map(Path, module.__path__)
    for folder in folders:
        for path in sorted(folder.glob("*.py")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
