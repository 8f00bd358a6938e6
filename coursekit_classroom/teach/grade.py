"""``coursekit grade``: a folder of submissions in, a grade sheet out.

Every student gets a row for every exercise, whatever they handed in.  The
same key and submissions give the same sheet, byte for byte.
"""

import argparse
import csv
import hashlib
import importlib
import io
import json
import math
import os
import re
import sys
import tempfile
import unicodedata
from collections import Counter
from collections.abc import (
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, TextIO

from coursekit.files import parse_json
from coursekit.progress import Bar
from coursekit_classroom.check import core
from coursekit_classroom.notebooks.cells import read_marked
from coursekit_classroom.teach import (
    feedback,
    overrides,
    read,
    steps,
    summary,
)
from coursekit_classroom.teach.deadline import Deadline
from coursekit_classroom.teach.judge import (
    STUMBLED,
    Task,
    prove,
    right_given,
)
from coursekit_classroom.teach.key import Key
from coursekit_classroom.teach.overrides import (
    extension,
    overridden,
    read_overrides,
)
from coursekit_classroom.teach.programs import entered, mutant
from coursekit_classroom.teach.read import (
    bare_names,
    differ,
    hash_of,
)
from coursekit_classroom.teach.records import (
    STATUSES,
    Graded,
    Result,
    graded,
)
from coursekit_classroom.teach.roster import (
    printable,
    read_roster,
    recognize,
)
from coursekit_classroom.teach.sandbox import Isolation, Limits, best
from coursekit_classroom.teach.worker import Worker

COLUMNS = (
    *("student", "exercise", "points", "max_points", "status", "diagnosis"),
    *("used_library", "notebook_sha256", "isolation", "key_id", "version"),
    *("notebook", "days_late", "late_penalty", "automatic"),
)
TIMES = ("student", "seconds", "cpu_seconds", "memory_bytes")
NO_STUDENTS = (".", "_")  # what a folder's name begins with that is none
NOTEBOOK = ".ipynb"
FILES_OF_A_STEP = (NOTEBOOK, ".py")  # the learner's file as it is, too
TWIN = "-u"  # in the id of a name that looks like another's
LONGEST = 200  # bytes of an id: files that are named by it have endings too
Fields = Mapping[str, Any]
DRAWS = 20  # of hidden cases, until they are as hard as was promised
ELSEWHERE = "(made with another key or --name)"
NEAR = 0.001  # of two rejection rates
LATEST = datetime(9999, 1, 1, tzinfo=UTC).timestamp()  # a file may say more
PACKED = (".zip", ".7z", ".rar", ".tar", ".gz", ".tgz", ".bz2", ".xz")
FORMULA = re.compile(r"(^|;)(?=\s*[=+\-@'＝＋－＠])")  # ; separates, too
STRANGER = (
    "Nobody of this name is on the roster, so there is no program that was "
    "given out to fix. Is the file's name the id?"
)
NAMES = {
    "moodle": r"^(.+?)_(?P<number>\d+)_assignsubmission_",
    "canvas": r"^(.+?)(?P<late>_LATE)?_(?P<number>\d+)_\d+_",
}
"""Where the names that an LMS gives to files name the student.

Moodle puts the participant's number behind the name, Canvas the user's id,
and before it a mark if the submission came after Canvas's own due date:
https://docs.moodle.org/en/Assignment_activity, "Download all submissions", and
https://community.canvaslms.com/t5/Instructor-Guide/How-do-I-download-all-student-submissions-for-an-assignment/ta-p/695
"""


# -- the command -------------------------------------------------------------
def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``coursekit grade``."""
    parser.add_argument(
        "submissions",
        metavar="DIR",
        help="holds <id>.ipynb, or <id>/*.ipynb, for each student",
    )
    parser.add_argument(
        "--key", required=True, metavar="FILE", help="the instructor's key"
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
        help="which of the key's assignments [default: the one that most "
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
    with overlay(args.overlay):
        pages = Path(args.feedback) if args.feedback else None
        files, key = Files(Path(args.out), pages), Key.load(args.key)
        name = args.assignment or handed_in_for(key, Path(args.submissions))
        plan = choose(key, name)
        endings = FILES_OF_A_STEP if "step" in plan else (NOTEBOOK,)
        roster = class_of(plan, args.roster)
        batch = Batch(
            key,
            collect(Path(args.submissions), args, args.names, roster, endings),
            files,
            name,
            Isolation(args.isolation) if args.isolation else best(),
            Limits(cpu_s=args.cpu, wall_s=max(Limits.wall_s, 4 * args.cpu)),
            roster=roster,
            names=args.names,
            folder=Path(args.submissions),
        )
        files.try_out()
        done, whole = batch.grade(args.fresh)
        if not whole:
            print(
                f"\ninterrupted: {len(done)} of {len(batch.students)} "
                "students are graded. The same command goes on from here.",
                file=sys.stderr,
            )
            return 130
        batch.write(done, args.book)
    for line in last_words(done, batch):
        print(line)
    for line in ignored(Path(args.submissions), endings):
        print(f"ignored   {line}")
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


def class_of(plan: Fields, file: str | None) -> dict[str, Any]:
    """Who is in the class: whom the key knows, and whom a file names.

    Args:
        plan: the assignment.
        file: a roster; it knows the numbers of those whom the key knows.
    """
    known = dict(plan.get("students") or {})
    for one in read_roster(file).members if file else ():
        known[one.id] = known.get(one.id, {}) | one.entry()
    return known


def naming(text: str) -> re.Pattern[str]:
    """What ``--names`` says: a pattern whose first group is a student.

    Raises:
        argparse.ArgumentTypeError: if it is no such pattern.
    """
    try:
        pattern = re.compile(NAMES.get(text, text))
    except re.error as error:
        raise argparse.ArgumentTypeError(
            f"names are moodle, canvas or a regular expression: got {text!r} "
            f"({error})."
        ) from error
    if not pattern.groups:
        raise argparse.ArgumentTypeError(
            "the first group of a regular expression names the student: got "
            f"{text!r}, which has none. Put parentheses around that part."
        )
    return pattern


def collect(
    folder: Path,
    args: argparse.Namespace,
    names: re.Pattern[str] | None = None,
    roster: Fields | None = None,
    endings: Collection[str] = (NOTEBOOK,),
) -> dict[str, list[Path]]:
    """The notebooks of each student.

    Args:
        folder: what was handed in.
        args: the command line.
        names: its first group is the student in the name of a file or folder;
            by default, and where it does not match, the whole name is. Its
            group ``number``, if it has one, is the LMS's own for them.
        roster: students by id, perhaps with such a ``number``.
        endings: of the files that are handed in.

    Raises:
        ValueError: if there are none, or results would lie among them.
    """
    if not folder.is_dir():
        raise ValueError(
            f"submissions are a folder: got {folder}, which is none."
        )
    if args.feedback:
        feedback_folder = Path(args.feedback).resolve()
        if feedback_folder.is_relative_to(folder.resolve()):
            raise ValueError(
                "feedback may not lie among the submissions: got "
                f"{args.feedback}. Give a folder next to {folder}."
            )
    found: dict[tuple[str, str], list[Path]] = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith(NO_STUDENTS):
            continue
        if path.is_dir() and not path.is_symlink():
            inside = sorted(
                p
                for p in path.iterdir()
                if p.suffix.lower() in endings
                and not p.name.startswith(NO_STUDENTS)
            )
            found.setdefault(said_in(path.name, names), []).extend(inside)
        elif path.suffix.lower() in endings:
            found.setdefault(said_in(path.stem, names), []).append(path)
    if not found:
        raise ValueError(
            "submissions are <id>.ipynb or <id>/*.ipynb: got none of either "
            f"in {folder}. {' '.join(ignored(folder, endings)[:5])}"
        )
    return apart(by_student(found, roster or {}))


def said_in(name: str, names: re.Pattern[str] | None) -> tuple[str, str]:
    """The student whom the name of a file or a folder names, and a number.

    The number is the LMS's own for them; empty if it writes none.
    """
    match = names.search(name) if names else None
    if not match or not match[1]:
        return name, ""
    return match[1], match.groupdict().get("number") or ""


def by_student(
    found: Mapping[tuple[str, str], list[Path]], roster: Fields
) -> dict[str, list[Path]]:
    """The notebooks by name; by id where the roster knows the number.

    Of several people with one name, each has their number behind it.
    """
    known = {f["number"]: id for id, f in roster.items() if f.get("number")}
    people = Counter(name for name, number in found if number not in known)
    students: dict[str, list[Path]] = {}
    for (name, number), paths in found.items():
        apart = f"{name}_{number}" if people[name] > 1 and number else name
        students.setdefault(known.get(number, apart), []).extend(paths)
    return students


def apart(found: Mapping[str, list[Path]]) -> dict[str, list[Path]]:
    """The notebooks by id.

    Two names that look alike, since only one is composed (é as one sign, or
    as two), stay two students: the composed one has the id as it is.
    """
    ids: dict[str, list[Path]] = {}
    for name in sorted(found, key=lambda n: (n != composed(n), n)):
        id = student_id(name)
        digits = hashlib.sha256(os.fsencode(name)).hexdigest()[:8]
        while id in ids:  # again, if somebody is called as a twin would be
            id = f"{id[:LONGEST]}{TWIN}{digits}"
            digits = hashlib.sha256(digits.encode()).hexdigest()[:8]
        ids[id] = found[name]
    return ids


def composed(name: str) -> str:
    """A name with each accent in one sign with its letter."""
    return unicodedata.normalize("NFC", name)


def student_id(name: str) -> str:
    """A name that files may have, as it can stand in sheets and on pages.

    What cannot be printed becomes ``_``, and what is too long for a file of
    ours is cut; a few digits then keep it apart from others.
    """
    whole = composed(name)
    plain = "".join(c if c.isprintable() else "_" for c in whole)
    short = plain.encode()[:LONGEST].decode(errors="ignore")
    if short == whole:
        return short
    return f"{short}-{hashlib.sha256(os.fsencode(name)).hexdigest()[:8]}"


def ignored(folder: Path, endings: Collection[str] = (NOTEBOOK,)) -> list[str]:
    """What lies among the submissions and is none: what it is, what to do."""
    lines = list[str]()
    for path in sorted(folder.iterdir()):
        whole = path.is_dir() and not path.is_symlink()
        for inner in sorted(path.iterdir()) if whole else [path]:
            is_answer = inner.suffix.lower() in endings
            taken = is_answer and not (
                inner.name.startswith(NO_STUDENTS)
                or path.name.startswith(NO_STUDENTS)
            )
            hidden = inner.name.startswith(".")
            if not taken and (is_answer or not hidden):
                name = inner.relative_to(folder).as_posix()
                lines.append(f"{student_id(name)}: {advice(inner, whole)}.")
    return lines


def advice(path: Path, inside: bool) -> str:
    """What something is that is no submission, and what to do with it.

    Args:
        path: a file or a folder.
        inside: whether it lies in a student's folder.
    """
    name = path.name.lower()
    names = (path.parent.name, path.name) if inside else (path.name,)
    if any(n.startswith(NO_STUDENTS) for n in names):
        return "a name that begins with . or _ is passed over; rename it"
    if path.is_dir():
        return "a folder in a student's; move the notebook out of it"
    if name.endswith(PACKED):
        where = "here" if inside else f"into a folder {student_id(path.stem)}"
        return f"an archive; unpack it {where}"
    if NOTEBOOK in name or name.endswith(".json"):
        return f"perhaps a notebook; rename it so that it ends in {NOTEBOOK}"
    if name.endswith(".py"):
        return "a program; ask for the notebook"
    return "no notebook; ask for the notebook if it is an answer"


# -- what to examine ---------------------------------------------------------
def choose(key: Key, name: str | None) -> Fields:
    """The assignment to grade.

    Raises:
        ValueError: if there is none, or it is not clear which.
    """
    known = key.assignments
    if not known:
        raise ValueError(
            "a key needs an assignment to grade: got a key without one. "
            "Make the notebooks with `coursekit assign --key`."
        )
    if name is None and len(known) > 1:
        raise ValueError(
            f"the key holds {len(known)} assignments, and most notebooks are "
            "marked for none of them: say which with --assignment, one of "
            f"{', '.join(known)}."
        )
    if name is not None and name not in known:
        raise ValueError(
            f"--assignment is one of the key's: got {name!r}. It has "
            f"{', '.join(known)}."
        )
    return known[name] if name is not None else next(iter(known.values()))


def handed_in_for(key: Key, folder: Path) -> str | None:
    """The assignment that most of the marked notebooks were given out for.

    None if no mark says so, or the key holds no more than one.
    """
    if len(key.assignments) < 2 or not folder.is_dir():
        return None
    names = {key.mark(name): name for name in key.assignments}
    counted = Counter[str]()
    for path in sorted([*folder.glob("*"), *folder.glob("*/*")]):
        if path.suffix.lower() == NOTEBOOK and not path.is_symlink():
            with suppress(Exception):
                counted[read_marked(path)[1]] += 1
    counted.pop("", None)
    if not counted:
        return None
    mark, n = counted.most_common(1)[0]
    return names.get(mark) if 2 * n > counted.total() else None


def answered(paths: Sequence[Path]) -> list[tuple[str, str]]:
    """The exercises that a student's notebooks name, as far as these can be
    read: each with the mark of the assignment that it was given out for."""
    plain = [p for p in paths if p.is_file() and not p.is_symlink()]
    found = list[tuple[str, str]]()
    for path in [] if read.too_many(plain) else plain:
        with suppress(Exception):  # a damaged one: its rows say so
            cells, mark = read_marked(path)
            found += [(mark, cell.exercise) for cell in cells if cell.exercise]
    return found


def task_of(key: Key, fields: Fields) -> Task:
    """An exercise of an assignment, the same for all students."""
    return Task(
        fields["id"],
        fields["function"],
        float(fields["points"]),
        core.find(fields["id"]),
        key.seed("grade", fields["id"]),
        key.seed("secret", fields["id"]),
        frozenset(fields.get("variants", ())),
        fields.get("stub", ""),
    )


def to_fix(key: Key, student: str, debug: Fields) -> list[Task]:
    """The program that one student has to fix, and the test for it."""
    own = mutant(entered({"debug": debug}), debug["function"])
    fix = Task(
        debug["exercise"],
        debug["function"],
        float(debug["points"]),
        core.find(debug["exercise"]),
        0,
        key.seed("secret", debug["exercise"], student),
        frozenset(debug["variants"]),
        debug["stub"],
        frozenset(debug["bugs"]),
        questions=True,
        setup=(own.prelude,),
    )
    drawn = dict[float, Task]()
    for number in range(DRAWS):  # as many cases reject it as was promised
        seed = key.seed("grade", fix.id, student, number)
        task = replace(fix, seed=seed)
        drawn.setdefault(abs(rejection_rate(task) - debug["share"]), task)
        if min(drawn) < NEAR:
            break
    fix, test = drawn[min(drawn)], debug["test"]
    return [
        fix,
        replace(
            fix,
            id=test["id"],
            function=test["function"],
            points=float(test["points"]),
            stub="",
            tells=True,
            questions=False,
        ),
    ]


def rejection_rate(task: Task) -> float:
    """The fraction of hidden cases that reject it; infinite if none does."""
    right = right_given(task)
    return right.count(False) / len(right) or math.inf


def debug_ids(debug: Fields) -> list[str]:
    """The ids of a program to fix and of its test."""
    return [debug["exercise"], debug["test"]["id"]]


# -- the batch ---------------------------------------------------------------
@dataclass(frozen=True)
class Files:
    """Where results go."""

    sheet: Path
    feedback: Path | None

    @property
    def timing(self) -> Path:
        """Seconds and memory."""
        return beside(self.sheet, "timing.csv")

    @property
    def overrides(self) -> Path:
        """The instructor's own decisions, which are read alone."""
        return beside(self.sheet, "overrides.csv")

    def refuse_edits(self) -> None:
        """Refuse to write over a sheet that is not as ``grade`` left it.

        Raises:
            ValueError: if it was changed, or is another file.
        """
        if self.sheet.exists() and hash_of([self.sheet]) not in self.left():
            raise ValueError(
                "a sheet is written over only as `grade` left it: got "
                f"{self.sheet}, which was changed since, or is another file. "
                f"Put points, comments and extensions into {self.overrides} "
                f"(columns {', '.join(overrides.COLUMNS)}), which `grade` "
                f"reads and never writes, and move {self.sheet.name} away."
            )

    def left(self) -> list[str]:
        """The hashes of the sheets that ``grade`` has written."""
        pattern = re.compile(r'{"sheet": "(\w+)"}')
        return [m[1] for m in map(pattern.fullmatch, self.lines()) if m]

    def lines(self) -> list[str]:
        """What earlier runs have noted."""
        try:
            return self.progress.read_text("utf8").splitlines()
        except (OSError, UnicodeDecodeError):
            return []

    def summary(self, ending: str) -> Path:
        """The summary, or its picture."""
        return beside(self.sheet, f"summary{ending}")

    def try_out(self) -> None:
        """Fail before hours of grading, not after.

        Raises:
            ValueError: if something cannot be written.
        """
        for path in (self.sheet, self.timing, self.progress):
            if path.is_dir():
                raise ValueError(f"a sheet is a file: got {path}, a folder.")
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=path.parent):
                    pass
            except OSError as error:
                raise ValueError(
                    f"results must be written somewhere: got {path}, where "
                    f"nothing can be ({error.strerror}). Choose another "
                    "place for --out."
                ) from error
        self.refuse_edits()

    def keep_apart(self, students: Iterable[str]) -> None:
        """Refuse places where one file would be written over another.

        Raises:
            ValueError: if a student's page has the name of another file, on a
                file system to which upper and lower case are the same.
        """
        ours = {
            *(self.sheet, self.timing, self.progress),
            *map(self.summary, (".svg", ".md", ".html")),
        }
        taken = {str(path.resolve()).lower() for path in ours}
        for student in students:
            pages = [with_ending(self.viva / student, ".md")]
            if self.feedback is not None:
                base = self.feedback / student
                pages += [with_ending(base, e) for e in (".md", ".html")]
            for page in pages:
                name = str(page.resolve()).lower()
                if name in taken:
                    raise ValueError(
                        "each result is a file of its own: got --feedback "
                        f"{self.feedback}, in which the page of {student}, "
                        f"{page.name}, would be written over another. Give "
                        "--feedback a folder of its own."
                    )
                taken.add(name)

    @property
    def progress(self) -> Path:
        """Who is graded already."""
        return self.sheet.with_name(self.sheet.name + ".progress")

    @property
    def viva(self) -> Path:
        """Questions, apart from what students get."""
        beside = self.feedback or self.sheet
        return beside.parent / "viva"


class Batch:
    """All students of an assignment."""

    def __init__(  # noqa: PLR0913 (what the command line may say)
        self,
        key: Key,
        paths: Mapping[str, list[Path]],
        files: Files,
        assignment: str | None = None,
        isolation: Isolation = Isolation.NONE,
        limits: Limits | None = None,
        worker: Worker | None = None,
        roster: Fields | None = None,
        names: re.Pattern[str] | None = None,
        folder: Path | None = None,
    ) -> None:
        """Plan everything; whatever the instructor got wrong raises here.

        Args:
            key: the instructor's.
            paths: the notebooks of each student.
            files: where results go.
            assignment: its name, if the key holds several.
            isolation: how submissions are shut in.
            limits: what each may use.
            worker: examines the students, if it isn't a process.
            roster: the class, if it isn't that of the assignment alone.
            names: how an LMS has named what was handed in.
            folder: where that lies; an LMS has named what is in it, and a
                student what is in a folder of theirs.
        """
        self.key, self.files = key, files
        self.isolation, self.limits = isolation, limits or Limits()
        self.worker = worker or Worker(self.isolation, self.limits)
        self.names, self.folder = names, folder
        self.plan = choose(key, assignment)
        self.roster = class_of(self.plan, None) if roster is None else roster
        late = self.plan.get("deadline")
        self.deadline = Deadline.of(late) if late else None
        handed_in: dict[str, list[Path]] = {name: [] for name in self.roster}
        self.one_student = dict[str, set[str]]()
        for name, files_of in paths.items():
            known = recognize(name, self.roster, handed_in)
            handed_in.setdefault(known, []).extend(files_of)
            if known not in self.roster:  # only its letters say who it is
                spelled = bare_names(name, sure=True)[-1]
                self.one_student.setdefault(known, set()).add(spelled)
        self.students = {
            name: read.oldest_first(handed_in[name])
            for name in sorted(handed_in)
        }
        self.common = [task_of(key, f) for f in self.plan["exercises"]]
        setup = tuple(self.plan.get("setup", ()))
        if "step" in self.plan:
            self.common.append(steps.task_of(key, self.plan["step"]))
        self.mark = key.mark(assignment or next(iter(key.assignments)))
        self.tasks = {
            student: [
                replace(task, mark=self.mark, setup=(*setup, *task.setup))
                for task in self.tasks_of(student)
            ]
            for student in self.students
        }
        if not any(self.tasks.values()):
            raise ValueError(
                "an assignment has exercises: got one without any. Make the "
                "notebooks with `coursekit assign --key`."
            )
        self.overrides = read_overrides(
            files.overrides,
            lambda text: recognize(out_of_cell(text), self.roster, handed_in),
            lambda id: {t.id: t.points for t in self.tasks.get(id, ())},
        )
        every = [task for tasks in self.tasks.values() for task in tasks]
        self.unmarked = list[str]()
        self.others = self.of_others()
        for task in {repr(task.plain()): task for task in every}.values():
            prove(task)
        files.keep_apart(self.students)
        self.version = version()
        self.code = code_hash()

    def tasks_of(self, student: str) -> list[Task]:
        """What one student is examined in."""
        debug = self.roster.get(student, {}).get("debug")
        if not debug:
            return self.common
        own = set(debug_ids(debug))
        others = [task for task in self.common if task.id not in own]
        return [*others, *to_fix(self.key, student, debug)]

    def of_others(self) -> dict[str, list[str]]:
        """Who has handed in exercises of another assignment alone, and which.

        Raises:
            ValueError: if that is everybody who has handed in any.
        """
        found, right = dict[str, list[str]](), False
        for student, paths in self.students.items():
            said = answered(paths)
            ids = sorted(
                {
                    f"{id} {ELSEWHERE}" if differ(mark, self.mark) else id
                    for mark, id in said
                }
            )
            if any(not mark for mark, _ in said):
                self.unmarked.append(student)
            asked = {task.id for task in self.tasks[student]}
            if ids and asked and not asked & set(ids):
                found[student] = ids
            right = right or (bool(ids) and student not in found)
        if found and not right:
            asked = {t.id for tasks in self.tasks.values() for t in tasks}
            handed_in = {id for ids in found.values() for id in ids}
            raise ValueError(
                "submissions answer the exercises of the assignment, here "
                f"{', '.join(sorted(asked))}: got notebooks with "
                f"{', '.join(sorted(handed_in))} alone. Which key, and which "
                "--assignment, were they made with?"
            )
        return found

    def strangers(self) -> list[str]:
        """Who has handed in and is not on the roster, if there is one."""
        return [
            s for s in self.students if self.roster and s not in self.roster
        ]

    def stranger(self, student: str) -> bool:
        """Whether there should be a program for them, and is none."""
        given = any(fields.get("debug") for fields in self.roster.values())
        return given and student not in self.roster

    # -- one after another ---------------------------------------------------
    def grade(self, fresh: bool = False) -> tuple[list[Graded], bool]:
        """Grade whoever is not graded yet.

        Returns:
            who is graded, and whether that is everybody: an interrupt from
            the keyboard ends it early.
        """
        known = {} if fresh else self.load()
        left = self.files.left() if fresh else ()
        self.files.progress.parent.mkdir(parents=True, exist_ok=True)
        done: list[Graded] = []
        try:
            with (
                self.worker,
                self.files.progress.open("w" if fresh else "a") as progress,
                Bar(
                    self.students.items(),
                    unit="student",
                    disable=None,
                ) as bar,
            ):
                for sha256 in left:
                    note_sheet(progress, sha256)
                for student, paths in bar:
                    stamp, sha256 = self.stamp(student, paths)
                    found = known.get(stamp)
                    if found is None:
                        found = self.examine(student, paths, sha256)
                        # On a line of its own, also after half a line.
                        line = {"stamp": stamp, "graded": found.plain()}
                        progress.write("\n" + json.dumps(line))
                        progress.flush()
                    found = self.dated(found, paths)
                    done.append(overridden(self.overrides, found))
        except KeyboardInterrupt:
            return done, False
        return done, True

    def dated(self, student: Graded, paths: Sequence[Path]) -> Graded:
        """The same with what being late has cost, exercise by exercise.

        The date is that of the file which the answer was taken from.
        """
        if self.deadline is None:
            return student
        days = {p.name: self.days_late(p) for p in paths if p.is_file()}
        results = list[Result]()
        for r in student.results:
            n = days.get(r.notebook, 0)
            n -= extension(self.overrides, student.student, r.exercise)
            if n > 0:
                off = self.deadline.penalty(n)
                r = replace(r, days_late=n, penalty=off)
            results.append(r)
        return replace(student, results=results)

    def days_late(self, path: Path) -> int:
        """How late a file was handed in.

        Where an LMS marks what is late, it knows whether, and the file's
        time tells how much.
        """
        assert self.deadline is not None
        time = min(max(path.stat().st_mtime, 0.0), LATEST)
        handed_in = datetime.fromtimestamp(time, UTC)
        days = self.deadline.days_late(handed_in)
        theirs = self.folder is not None and path.parent != self.folder
        named = path.parent.name if theirs else path.name
        match = self.names and self.names.search(named)
        if match and "late" in match.groupdict():
            return max(days, 1) if match["late"] else 0
        return days

    def examine(
        self,
        student: str,
        paths: Sequence[Path],
        sha256: str,
    ) -> Graded:
        """Grade one student."""
        tasks = self.tasks[student]
        found = self.worker.grade(student, paths, tasks, sha256)
        if self.stranger(student):
            points = max(
                debug["points"] + debug["test"]["points"]
                for fields in self.roster.values()
                if (debug := fields.get("debug"))
            )
            row = Result(
                "debug",
                "",
                float(points),
                "not attempted",
                message=STRANGER,
                isolation=str(self.isolation),
            )
            found = replace(found, results=[*found.results, row])
        return found

    def stamp(self, student: str, paths: Sequence[Path]) -> tuple[str, str]:
        """What the marks of a student depend on, and the notebooks' hash."""
        plain = [p for p in paths if p.is_file() and not p.is_symlink()]
        sha256 = read.hash_of(plain) if plain else ""
        depends = [
            *(student, [p.name for p in paths], sha256),
            *(self.key.id, self.version, self.code),
            *(str(self.isolation), repr(self.limits)),
            [task.plain() for task in self.tasks[student]],
        ]
        text = json.dumps(depends, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest(), sha256

    def load(self) -> dict[str, Graded]:
        """Who was graded in an earlier run, by stamp."""
        found: dict[str, Graded] = {}
        for line in self.files.lines():
            try:
                fields = parse_json(line)
                found[fields["stamp"]] = graded(fields["graded"])
            except (ValueError, TypeError, KeyError):
                continue  # the run ended in the middle of a line
        return found

    # -- files ---------------------------------------------------------------
    def write(self, class_: Sequence[Graded], book: str = "") -> None:
        """Write the sheet, the times, the summary and the feedback."""
        self.files.refuse_edits()
        text = self.sheet(class_)
        with self.files.progress.open("a") as progress:
            note_sheet(progress, hashlib.sha256(text.encode()).hexdigest())
        write(self.files.sheet, text)
        write(self.files.timing, timing(class_))
        self.write_summary(class_)
        for student in class_:
            if self.files.feedback is not None:
                base = self.files.feedback / student.student
                write(
                    with_ending(base, ".md"), feedback.markdown(student, book)
                )
                write(with_ending(base, ".html"), feedback.html(student, book))
            if student.viva:
                base = self.files.viva / student.student
                write(
                    with_ending(base, ".md"), feedback.viva_markdown(student)
                )

    def sheet(self, class_: Sequence[Graded]) -> str:
        """A row for each student and exercise."""
        return table(
            COLUMNS,
            (
                (
                    cell(student.student),
                    r.exercise,
                    f"{r.points:.2f}",
                    f"{r.max_points:g}",
                    r.status,
                    "+".join(r.diagnosis),
                    " ".join(r.used_library),
                    student.sha256,
                    r.isolation,
                    self.key.id,
                    self.version,
                    cell(student_id(r.notebook)),
                    r.days_late,
                    f"{r.earned - r.automatic:.2f}",
                    "" if r.by_hand is None else f"{r.automatic:.2f}",
                )
                for student in class_
                for r in student.results
            ),
        )

    def write_summary(self, class_: Sequence[Graded]) -> None:
        """The class on a page, with a picture if matplotlib is there."""
        place = self.files.summary
        title = f"Summary of {self.files.sheet.name}"
        picture = ""
        try:
            picture = summary.draw(class_)
            write(place(".svg"), picture)
        except ModuleNotFoundError as error:
            print(f"no plot in the summary: {error}", file=sys.stderr)
        name = place(".svg").name if picture else ""
        text = summary.markdown(class_, title, name)
        write(place(".md"), text)
        page = summary.html(class_, title, picture)
        write(place(".html"), page)


def note_sheet(progress: TextIO, sha256: str) -> None:
    """Note a sheet's hash on a line of its own, also after half a line."""
    progress.write(f"\n{json.dumps({'sheet': sha256})}\n")


def beside(sheet: Path, name: str) -> Path:
    """A file that belongs to a sheet.

    That of ``grades.csv`` has a plain name; others begin with the sheet's,
    so that two sheets may lie in one folder.
    """
    first = "" if sheet.stem == "grades" else f"{sheet.stem}-"
    return sheet.with_name(first + name)


def timing(class_: Sequence[Graded]) -> str:
    """What each student's code took; never twice the same."""
    return table(
        TIMES,
        (
            (cell(s.student), f"{s.seconds:.2f}", f"{s.cpu:.2f}", s.memory)
            for s in class_
        ),
    )


def table(head: Sequence[str], rows: Any) -> str:
    """CSV, with the same line ends on every system."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return out.getvalue()


def cell(text: str) -> str:
    """A student's id, which no spreadsheet takes for a formula."""
    return FORMULA.sub(r"\1'", text)


def out_of_cell(text: str) -> str:
    """What :func:`cell` was given."""
    return re.sub("(^|;)'", r"\1", text)


def with_ending(base: Path, ending: str) -> Path:
    """A file's name; ids may have dots."""
    return base.with_name(base.name + ending)


def write(path: Path, text: str) -> None:
    """Write a file, all or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = with_ending(path, ".new")
    beside.write_text(text, "utf8", newline="\n")
    os.replace(beside, path)


def last_words(  # noqa: C901 (a list of notes, each with its condition)
    class_: Sequence[Graded], batch: Batch
) -> Iterator[str]:
    """What was done, for the terminal."""
    statuses = Counter(r.status for s in class_ for r in s.results)
    counted = ", ".join(f"{statuses[s]} {s}" for s in STATUSES if statuses[s])
    yield f"{len(class_)} students, {statuses.total()} rows: {counted}"
    yield f"sheet     {batch.files.sheet}"
    if batch.files.feedback is not None:
        yield f"feedback  {batch.files.feedback}"
    if any(s.viva for s in class_):
        yield f"questions {batch.files.viva} (not for students)"
    yield f"summary   {batch.files.summary('.html')}"
    stumbled = [
        f"{s.student} ({r.exercise})"
        for s in class_
        for r in s.results
        if r.message.startswith(STUMBLED)
    ]
    if stumbled:
        yield (
            "look at   " + ", ".join(stumbled) + ": the grader stumbled over "
            "these answers, and gave them no points. The feedback says how."
        )
    if twins := [s for s in batch.students if TWIN in s]:
        twins = [s for s in twins if s.rpartition(TWIN)[0] in batch.students]
        if twins:
            yield (
                f"note      {', '.join(twins)}: a name like another's, "
                "spelled with other signs of Unicode. They are graded "
                "apart. If it is one student, give both files the same name."
            )
    if late := [s for s in class_ if any(r.days_late for r in s.results)]:
        yield (
            f"late      {', '.join(s.student for s in late)}: by the time of "
            "the file, or as the LMS has marked it"
        )
    for s in class_:
        for r in s.results:
            if r.look_at:
                said = printable(r.look_at)
                yield f"look at   {s.student}: {r.exercise}: {said}"
    for names in batch.one_student.values():
        if len(names) > 1:
            yield (
                f"look at   {', '.join(sorted(names))}: taken for one "
                "student, since no --roster tells them apart. If they are "
                "two, give one, or rename a file."
            )
    for group in alike(class_):
        yield (
            f"look at   {', '.join(group)}: the same code, names and layout "
            "aside, in every answer of more than three lines"
        )
    if batch.unmarked:
        yield (
            f"look at   {', '.join(batch.unmarked)}: a notebook without the "
            "mark of an assignment, such as the book's own"
        )
    for student, ids in batch.others.items():
        yield (
            f"look at   {student}: handed in {', '.join(ids)}, of another "
            "assignment"
        )
    if strangers := batch.strangers():
        n = len(strangers)
        belong = "submissions belong" if n > 1 else "submission belongs"
        yield (
            f"warning   {n} {belong} to nobody on the roster: "
            f"{', '.join(strangers)}. If an LMS named the files, say so with "
            "--names."
        )
    if batch.isolation is Isolation.NONE:
        yield (
            "isolation none: nothing is promised about these scores, since a "
            "submission can rewrite the sheet. Grade only people whom you "
            "trust, or install bubblewrap (`coursekit doctor`)."
        )
    elif batch.isolation is not Isolation.BUBBLEWRAP:
        yield (
            f"isolation {batch.isolation}: see `coursekit doctor` for what "
            "it does not promise"
        )


def alike(class_: Iterable[Graded]) -> list[list[str]]:
    """The students whose answers are the same code, by groups."""
    groups = dict[tuple[tuple[str, str], ...], list[str]]()
    for s in class_:
        code = tuple((r.exercise, r.code) for r in s.results if r.code)
        groups.setdefault(code, []).append(s.student)
    return [names for code, names in groups.items() if code and names[1:]]


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
