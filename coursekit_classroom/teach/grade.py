"""``coursekit grade``: a folder of submissions in, a grade sheet out.

Every student gets a row for every exercise, whatever they handed in.  The
same secret and submissions give the same sheet, byte for byte.

A submission's way: :mod:`.unpack` opens what an LMS has packed, and
:mod:`.collect` finds its files.  :mod:`.plan` says what is asked, a process
of :mod:`.worker` reads it (:mod:`.read`), runs it in a :mod:`.sandbox` and
judges it (:mod:`.judge`), and :mod:`.write` writes.
"""

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from coursekit.progress import Bar
from coursekit_classroom.teach.collect import (
    Collected,
    collect,
    naming,
    recognize,
    student_id,
)
from coursekit_classroom.teach.judge import prove
from coursekit_classroom.teach.overrides import (
    decided,
    read_overrides,
)
from coursekit_classroom.teach.plan import Plan, elsewhere, overlay, plan
from coursekit_classroom.teach.read import hash_of, is_plain
from coursekit_classroom.teach.records import Graded
from coursekit_classroom.teach.resume import code_hash, stamp, version
from coursekit_classroom.teach.sandbox import Isolation, Limits, best
from coursekit_classroom.teach.secret import SECRET_FILE, Secret
from coursekit_classroom.teach.unpack import places
from coursekit_classroom.teach.worker import Worker
from coursekit_classroom.teach.write import (
    Files,
    last_words,
    out_of_cell,
    write_all,
)

NO_NOTEBOOK = "No notebook was handed in, but {}. Hand in the .ipynb itself."


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
    folder, secret = Path(args.submissions), Secret.load(args.secret)
    pages = Path(args.feedback) if args.feedback else None
    isolation = Isolation(args.isolation) if args.isolation else best()
    limits = Limits(cpu_s=args.cpu, wall_s=max(Limits.wall_s, 4 * args.cpu))
    with overlay(args.overlay), tempfile.TemporaryDirectory() as scratch:
        there = places(folder, args.names, Path(scratch))
        asked = plan(secret, there, args.assignment, args.roster)
        collected = collect(there, args.names, asked.class_, asked.endings)
        for path in sorted({*folder.iterdir()} - {*there}):
            name = student_id(path.name)
            print(f"opened    {name}: it holds what several handed in")
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
        write_all(done, files, secret.id, batch.version, args.book)
    for line in last_words(
        done, files, collected, asked, batch.elsewhere, isolation
    ):
        print(line)
    return 0


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
        self.version, self.code = version(), code_hash()

    def grade(self, fresh: bool = False) -> tuple[list[Graded], bool]:
        """Grade everybody who is not graded yet.

        Returns:
            who is graded, and whether that is everybody: an interrupt from
            the keyboard ends it early.
        """
        progress, worker, done = self.files.progress, self.worker, []
        progress.path.parent.mkdir(parents=True, exist_ok=True)
        if fresh:
            progress.forget()
        known = progress.graded()
        same = [self.plan.secret.id, self.version, self.code]
        same += [str(worker.isolation), repr(worker.limits)]
        students = self.collected.students.items()
        try:
            with worker, Bar(students, unit="student", disable=None) as bar:
                for student, paths in bar:
                    tasks = self.tasks[student]
                    sha256 = hash_of([p for p in paths if is_plain(p)])
                    mark = stamp(student, paths, sha256, tasks, same)
                    found = known.get(mark)
                    if found is None:
                        found = worker.grade(student, paths, tasks, sha256)
                        plain = found.plain()
                        progress.note({"stamp": mark, "graded": plain})
                    rows = [*found.results, *self.plan.stranger(student)]
                    name = self.plan.class_.get(student, {}).get("name", "")
                    if others := self.collected.instead.get(student):
                        said = NO_NOTEBOOK.format(", ".join(others))
                        rows = [replace(r, message=said) for r in rows]
                    done.append(
                        decided(
                            replace(found, results=rows, name=name),
                            paths,
                            self.plan.deadline,
                            self.collected.late,
                            self.overrides,
                        )
                    )
        except KeyboardInterrupt:
            return done, False
        return done, True
