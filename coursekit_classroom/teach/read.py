"""What a student's files answer: of each notebook the newest version counts.

Nothing is run here.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from coursekit_classroom.notebooks.answers import (
    Answer,
    Notebook,
    Wanted,
    answers,
)
from coursekit_classroom.notebooks.cells import (
    LARGEST,
    NotebookError,
    read_marked,
)

MOST = 400_000  # characters of code in a notebook
FILES = 40  # of a student: a chapter each, and some twice
TOTAL = 4 * LARGEST  # bytes of a student's files
WORD = "(?:copy|copie|copia|cópia|kopie)"
COPY = re.compile(
    rf"^{WORD} (?:of|de|von) |(?: ?- ?|[ _]){WORD}[ _]?\(?\d*\)?$|"
    rf" \((?:\w+ )?{WORD}\)$| ?\(\d{{1,2}}\)$",
    re.I,
)
"""How Jupyter, Google Drive, a desktop and a browser name a copy."""
NUMBER = re.compile(r"(?:-| |[ _-]v)(\d{1,2})$", re.I)
"""A number behind a name, of which it may be a part: an LMS's, a version's."""
SENT = re.compile(r"(?:-| ?\()(\d{1,2})\)?$")
"""The number of a file that was handed in or downloaded again."""


@dataclass(frozen=True)
class Submission:
    """What a student has handed in."""

    answers: dict[str, Answer]
    """One for each exercise that was asked for, by id."""

    problems: tuple[str, ...] = ()
    """A sentence for each file that could not be read, or doesn't count."""


def read_submission(
    paths: Iterable[Path], wanted: Sequence[Wanted]
) -> Submission:
    """Find the answers to some exercises in one notebook or several.

    Checks, prints, asserts, magics and shell lines are left out: what is
    kept of a notebook are the definitions, imports and assignments that an
    answer depends on.  Of several versions of one notebook the newest
    counts, whatever stands in it (see :func:`latest`).

    A file that was given out for another assignment than what is wanted
    answers nothing.  Without a mark of either nobody knows.

    Raises:
        NotebookError: if none of the files can be read, or there are too
            many of them.
    """
    given = oldest_first(paths)
    if refused := too_many(given):
        raise NotebookError(refused)
    setup = next((getattr(want, "setup", ()) for want in wanted), ())
    files, problems, unread = list[Notebook](), list[str](), {}
    for path in given:
        try:
            cells, mark = read_marked(path)
            size = sum(len(c.source) for c in cells if c.kind == "code")
            if size > MOST:
                raise NotebookError(
                    f"{path.name} has {size:,} characters of code, and more "
                    f"than {MOST:,} are not read."
                )
            files.append(Notebook(cells, path, mark, setup))
        except NotebookError as error:
            unread[path] = str(error)
    if not files:
        said = " ".join(unread.values())
        raise NotebookError(said or "there is no notebook.")
    for path, said in unread.items():
        title = bare_names(path.stem)[-1]
        newer = [f for f in files if age(f.path) > age(path)]
        if any(title == bare_names(f.path.stem)[-1] for f in newer):
            said = f"{path.name} cannot be read; what came after it counts."
        problems.append(said)
    files.sort(key=lambda f: (age(f.path), f.is_attempt(wanted)))
    ours = list[Notebook]()
    marks = {getattr(want, "mark", "") for want in wanted}
    for file in files:
        if not any(differ(file.mark, mark) for mark in marks):
            ours.append(file)
        elif {want.id for want in wanted} & file.exercises(wanted):
            problems.append(
                f"{file.name} was given out for another assignment, so it "
                "doesn't count."
            )
    newest, replaced = latest(ours, wanted)
    return Submission(answers(newest, wanted), (*problems, *replaced))


def oldest_first(paths: Iterable[Path]) -> list[Path]:
    """The files of a student, a resubmission after what it replaces.

    ``04_attention-1.ipynb`` and ``04_attention (1).ipynb`` were handed in
    after ``04_attention.ipynb``.  Files with the same number are ordered by
    the time of their last change, in seconds, then a copy after what it was
    made from, and then by name.
    """
    return sorted(paths, key=lambda p: (*age(p), len(bare_names(p.stem)), p))


def age(path: Path) -> tuple[int, int]:
    """The number with which a file was handed in again, and its time."""
    sent = SENT.search(path.stem)
    copied = re.search(WORD, path.stem, re.I)  # its number is no LMS's
    try:
        changed = int(path.lstat().st_mtime)
    except OSError:  # reading it says why
        changed = 0
    return int(sent[1]) if sent and not copied else 0, changed


def bare_names(stem: str, sure: bool = False) -> list[str]:
    """A file's name, then without what marks a copy, mark by mark.

    Args:
        stem: the name without its ending.
        sure: whether to leave a number that may be a part of the name.
    """
    names = [stem]
    while mark := (
        COPY.search(names[-1]) or (not sure and NUMBER.search(names[-1]))
    ):
        rest = names[-1][: mark.start()] + names[-1][mark.end() :]
        if not rest:
            break
        names.append(rest)
    return names


def differ(mark: str, other: str) -> bool:
    """Whether there are two marks, and of different assignments."""
    return bool(mark and other and mark != other)


def latest(
    files: Sequence[Notebook], wanted: Sequence[Wanted]
) -> tuple[list[Notebook], list[str]]:
    """Of each notebook the newest version, and a sentence for each other one.

    Two files of one kind are versions of one notebook if they share an
    exercise that is asked for.  A newer one without any exercise replaces
    that of its own name, up to the number.  A ``.py`` file and a notebook
    replace neither: a step is handed in as either.

    Args:
        files: oldest first.
        wanted: what is asked for.
    """
    ids = {want.id for want in wanted}
    found, said = list[Notebook](), list[str]()
    for number, file in enumerate(files):
        own, title = file.exercises(wanted), bare_names(file.path.stem)[-1]
        newer = [
            other
            for other in files[number + 1 :]
            if other.is_program == file.is_program
            and (
                own & ids & (theirs := other.exercises(wanted))
                or (not theirs and bare_names(other.path.stem)[-1] == title)
            )
        ]
        if not newer:
            found.append(file)
        elif own & ids:
            said.append(why(newer[-1], file, wanted))
    return found, said


def why(newest: Notebook, file: Notebook, wanted: Sequence[Wanted]) -> str:
    """Why one of two versions counts."""
    if age(newest.path) != age(file.path):
        return (
            f"{newest.name} was handed in after {file.name}, which doesn't "
            "count."
        )
    if newest.is_attempt(wanted) and not file.is_attempt(wanted):
        return (
            f"{newest.name} counts: nothing is written in {file.name}, which "
            "has the same time."
        )
    return (
        f"{newest.name} counts, and {file.name} doesn't: they have the same "
        "time, and this is the order of their names."
    )


def is_plain(path: Path) -> bool:
    """Whether something is a file, and no link."""
    return path.is_file() and not path.is_symlink()


def too_many(paths: Sequence[Path]) -> str:
    """Why some files are not read, before any is; nothing if they are."""
    size = sum(map(size_of, paths))
    if len(paths) <= FILES and size <= TOTAL:
        return ""
    return (
        f"a student hands in at most {FILES} notebooks and {TOTAL >> 20} MB: "
        f"got {len(paths)} and {size >> 20} MB. Hand in those that answer, "
        "without outputs."
    )


def size_of(path: Path) -> int:
    """Bytes to read of a file; none of one that is too large, or absent."""
    try:
        size = path.stat().st_size
    except OSError:
        return 0
    return size if size <= LARGEST else 0


def hash_of(paths: Sequence[Path]) -> str:
    """SHA-256 of a file, as ``sha256sum`` prints it; of several, joined.

    What is too large to be read is left out: nobody's disk holds the
    terabytes that an empty file can claim to have.
    """
    each = []
    for path in [] if too_many(paths) else paths:
        try:
            if path.stat().st_size > LARGEST:
                continue
            with path.open("rb") as file:
                each.append(hashlib.file_digest(file, "sha256").hexdigest())
        except TimeoutError:  # the grader's clock, not the file's fault
            raise
        except OSError:  # it is among the problems
            continue
    if len(each) < 2:
        return "".join(each)
    return hashlib.sha256("\n".join(each).encode()).hexdigest()
