"""What grading writes: the sheet, feedback, a summary, and what it prints."""

import csv
import hashlib
import io
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coursekit_classroom.teach import feedback, summary
from coursekit_classroom.teach.collect import Collected, student_id
from coursekit_classroom.teach.judge import STUMBLED
from coursekit_classroom.teach.overrides import COLUMNS as OWN_COLUMNS
from coursekit_classroom.teach.plan import Elsewhere, Plan
from coursekit_classroom.teach.read import hash_of
from coursekit_classroom.teach.records import STATUSES, Graded
from coursekit_classroom.teach.resume import Progress
from coursekit_classroom.teach.roster import printable
from coursekit_classroom.teach.sandbox import Isolation
from coursekit_classroom.teach.tables import count

COLUMNS = (
    *("student", "exercise", "points", "max_points", "status", "diagnosis"),
    *("used_library", "notebook_sha256", "isolation", "secret_id", "version"),
    *("notebook", "days_late", "late_penalty", "automatic", "name"),
)
TIMES = ("student", "seconds", "cpu_seconds", "memory_bytes")
FORMULA = re.compile(r"(^|;)(?=\s*[=+\-@'＝＋－＠])")  # ; separates, too


# -- files -------------------------------------------------------------------
@dataclass(frozen=True)
class Files:
    """Where results go."""

    sheet: Path
    feedback: Path | None
    folders: Mapping[str, str] = field(default_factory=dict)
    """Of students whose pages lie in a folder, and what it is called."""

    def pages(self, student: str) -> list[Path]:
        """A student's feedback, as Markdown and as HTML; [] if nobody asks."""
        if self.feedback is None:
            return []
        base = self.feedback / student
        if folder := self.folders.get(student):
            base = self.feedback / folder / "feedback"
        return [with_ending(base, ".md"), with_ending(base, ".html")]

    def beside(self, name: str) -> Path:
        """A file that belongs to the sheet.

        That of ``grades.csv`` has a plain name; others begin with the
        sheet's, so that two sheets may lie in one folder.
        """
        first = "" if self.sheet.stem == "grades" else f"{self.sheet.stem}-"
        return self.sheet.with_name(first + name)

    @property
    def timing(self) -> Path:
        """Seconds and memory."""
        return self.beside("timing.csv")

    @property
    def overrides(self) -> Path:
        """The instructor's own decisions, which are only read."""
        return self.beside("overrides.csv")

    @property
    def progress(self) -> Progress:
        """Who is graded already, and which sheets were written."""
        return Progress(with_ending(self.sheet, ".progress"))

    def try_out(self, students: Iterable[str], submissions: Path) -> None:
        """Fail before hours of grading, not after.

        Raises:
            ValueError: if something cannot be written, or one file would be
                written over another, on a file system to which upper and
                lower case are the same.
        """
        if self.feedback and self.feedback.resolve().is_relative_to(
            submissions.resolve()
        ):
            raise ValueError(
                "feedback may not lie among the submissions: got "
                f"{self.feedback}. Give a folder next to {submissions}."
            )
        for path in (self.sheet, self.timing, self.progress.path):
            if path.is_dir():
                raise ValueError(f"a sheet is a file: got {path}, a folder.")
        names = ("summary.md", "summary.html")
        ours = (
            self.sheet,
            self.timing,
            self.progress.path,
            *map(self.beside, names),
        )
        taken = {str(path.resolve()).lower() for path in ours}
        for student in students:
            for page in self.pages(student):
                name = str(page.resolve()).lower()
                if name in taken:
                    raise ValueError(
                        "each result is a file of its own: got --feedback "
                        f"{self.feedback}, in which the page of {student}, "
                        f"{page.name}, would be written over another. Give "
                        "--feedback a folder of its own."
                    )
                taken.add(name)
        try:
            self.sheet.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.sheet.parent):
                pass
        except OSError as error:
            raise ValueError(
                f"results must be written somewhere: got {self.sheet}, where "
                f"nothing can be ({error.strerror}). Choose another place "
                "for --out."
            ) from error
        self.refuse_edits()

    def refuse_edits(self) -> None:
        """Refuse to write over a sheet that is not as ``grade`` left it.

        Raises:
            ValueError: if it was changed, or is another file.
        """
        written = [said.get("sheet") for said in self.progress.noted()]
        if self.sheet.exists() and hash_of([self.sheet]) not in written:
            raise ValueError(
                "a sheet is written over only as `grade` left it: got "
                f"{self.sheet}, which was changed since, or is another file. "
                f"Put points, comments and extensions into {self.overrides} "
                f"(columns {', '.join(OWN_COLUMNS)}), which `grade` "
                f"reads and never writes, and move {self.sheet.name} away."
            )


def with_ending(base: Path, ending: str) -> Path:
    """A file's name; ids may have dots."""
    return base.with_name(base.name + ending)


def write(path: Path, text: str) -> None:
    """Write a file, all or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = with_ending(path, ".new")
    beside.write_text(text, "utf8", newline="\n")
    os.replace(beside, path)


def write_all(
    class_: Sequence[Graded],
    files: Files,
    secret_id: str,
    version: str,
    book: str = "",
) -> None:
    """Write the sheet, the times, the summary and the feedback."""
    files.refuse_edits()
    text = sheet(class_, secret_id, version)
    files.progress.note({"sheet": hashlib.sha256(text.encode()).hexdigest()})
    write(files.sheet, text)
    times = [
        (cell(s.student), f"{s.seconds:.2f}", f"{s.cpu:.2f}", s.memory)
        for s in class_
    ]
    write(files.timing, table(TIMES, times))
    title = f"Summary of {files.sheet.name}"
    write(files.beside("summary.md"), summary.markdown(class_, title))
    write(files.beside("summary.html"), summary.html(class_, title))
    for student in class_:
        for page in files.pages(student.student):
            make = (
                feedback.html if page.suffix == ".html" else feedback.markdown
            )
            write(page, make(student, book))


def sheet(class_: Sequence[Graded], secret_id: str, version: str) -> str:
    """A row for each student and exercise."""
    rows = [
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
            secret_id,
            version,
            cell(student_id(r.notebook)),
            r.days_late,
            f"{r.earned - r.automatic:.2f}",
            "" if r.by_hand is None else f"{r.automatic:.2f}",
            cell(student.name),
        )
        for student in class_
        for r in student.results
    ]
    return table(COLUMNS, rows)


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
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


# -- the terminal ------------------------------------------------------------
def last_words(
    class_: Sequence[Graded],
    files: Files,
    collected: Collected,
    plan: Plan,
    found: Elsewhere,
    isolation: Isolation,
) -> Iterator[str]:
    """What was done, and what the instructor should look at."""
    rows = [(s.student, r) for s in class_ for r in s.results]
    counts = Counter(r.status for _, r in rows)
    counted = ", ".join(f"{counts[s]} {s}" for s in STATUSES if counts[s])
    sizes = f"{count(len(class_), 'student')}, {count(len(rows), 'row')}"
    yield f"{sizes}: {counted}"
    yield f"sheet     {files.sheet}"
    if files.feedback is not None:
        yield f"feedback  {files.feedback}"
    yield f"summary   {files.beside('summary.html')}"
    yield from look_at(class_, collected, found)
    yield from unknown(collected, plan)
    if isolation is Isolation.NONE:
        yield (
            "isolation none: nothing is promised about these scores, since a "
            "submission can rewrite the sheet. Grade only people whom you "
            "trust, or install bubblewrap (`coursekit doctor`)."
        )
    elif isolation is not Isolation.BUBBLEWRAP:
        yield (
            f"isolation {isolation}: see `coursekit doctor` for what "
            "it does not promise"
        )
    for line in collected.ignored:
        yield f"ignored   {line}"


def look_at(
    class_: Sequence[Graded],
    collected: Collected,
    found: Elsewhere,
) -> Iterator[str]:
    """What the instructor should know of."""
    rows = [(s.shown, r) for s in class_ for r in s.results]
    shown = {s.student: s.shown for s in class_}
    stumbled = [
        f"{student} ({r.exercise})"
        for student, r in rows
        if r.message.startswith(STUMBLED)
    ]
    if stumbled:
        yield (
            "look at   " + ", ".join(stumbled) + ": the grader stumbled over "
            "these answers, and gave them no points. The feedback says how."
        )
    unread = {(s, r.message) for s, r in rows if r.status == "unreadable"}
    for student, why in sorted(unread):
        yield f"unread    {student}: {printable(why)}"
    if collected.twins:
        yield (
            f"note      {', '.join(collected.twins)}: a name like another's, "
            "spelled with other signs of Unicode. They are graded "
            "apart. If it is one student, give both files the same name."
        )
    if late := dict.fromkeys(student for student, r in rows if r.days_late):
        yield (
            f"late      {', '.join(late)}: by the time of "
            "the file, or as the LMS has marked it"
        )
    for student, r in rows:
        if r.look_at:
            yield f"look at   {student}: {r.exercise}: {printable(r.look_at)}"
    for names in collected.spellings.values():
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
    if unmarked := [shown[student] for student in found.unmarked]:
        yield (
            f"look at   {', '.join(unmarked)}: a notebook without the "
            "mark of an assignment, such as the book's own"
        )
    for student, ids in found.others.items():
        yield (
            f"look at   {shown[student]}: handed in {', '.join(ids)}, of "
            "another assignment"
        )


def unknown(collected: Collected, plan: Plan) -> Iterator[str]:
    """Whose names no list or pattern has found."""
    if collected.unmatched:
        yield (
            "warning   --names finds a student in no name of a file or folder "
            f"here, such as {printable(next(iter(collected.students)))}. Are "
            "they from another LMS, or in a folder of their own?"
        )
    strangers = [s for s in collected.students if s not in plan.class_]
    if plan.class_ and strangers:
        n = len(strangers)
        belong = "submissions belong" if n > 1 else "submission belongs"
        yield (
            f"warning   {n} {belong} to nobody on the roster: "
            f"{', '.join(strangers)}. If an LMS named the files, say so with "
            "--names."
        )


def alike(class_: Iterable[Graded]) -> list[list[str]]:
    """The students whose answers are the same code, by groups."""
    groups = dict[tuple[tuple[str, str], ...], list[str]]()
    for s in class_:
        code = tuple((r.exercise, r.code) for r in s.results if r.code)
        groups.setdefault(code, []).append(s.shown)
    return [names for code, names in groups.items() if code and names[1:]]
