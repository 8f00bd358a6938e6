"""Which files belong to whom: a folder, an LMS's names for them, a roster."""

import argparse
import hashlib
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coursekit_classroom.teach.read import bare_names, oldest_first
from coursekit_classroom.teach.roster import safe_name

NO_STUDENTS = (".", "_")  # what a name begins with that is no student's
ENDINGS = (".ipynb", ".zip")  # a zip with one notebook in it
PACKED = (".7z", ".rar", ".tar", ".gz", ".tgz", ".bz2", ".xz")
TWIN = "-u"  # in the id of a name that looks like another's
LONGEST = 200  # bytes of an id: files that are named by it have endings too
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
GRADESCOPE = "submission_metadata.yml"  # whose each folder of an export is
LISTED = re.compile(  # in it
    r"(?m)^:?(submission_\d+):\n  :submitters:\n((?:  [- ].*\n?)+)"
)
Class = Mapping[str, Mapping[str, Any]]
"""The roster: by id a ``name``, perhaps the LMS's ``number``, a program."""


@dataclass
class Collected:
    """What was handed in."""

    students: dict[str, list[Path]] = field(default_factory=dict)
    """The files of everybody who is on the roster or has handed in, the
    oldest first, by id."""

    late: dict[Path, bool] = field(default_factory=dict)
    """Whether the LMS has marked a file as late, where it would."""

    instead: dict[str, list[str]] = field(default_factory=dict)
    """Names of what students handed in who have no file that counts."""

    unmatched: bool = False
    """Whether the pattern of names has found nobody."""

    folders: dict[str, str] = field(default_factory=dict)
    """What Moodle calls the folder of a student, whose feedback it takes from
    a folder of that name."""

    spellings: dict[str, set[str]] = field(default_factory=dict)
    """The names that were taken for one student who is on no roster."""

    twins: list[str] = field(default_factory=list)
    """Students whose name looks like another's."""

    ignored: list[str] = field(default_factory=list)
    """What lies among the submissions and is none, and what to do."""


def naming(text: str) -> re.Pattern[str]:
    """The pattern of ``--names``, whose first group is a student.

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
    there: Iterable[Path],
    names: re.Pattern[str] | None = None,
    class_: Class | None = None,
    endings: Collection[str] = ENDINGS,
) -> Collected:
    """Find the files of each student.

    Args:
        there: the files, and a folder for each student who has several, as
            :func:`.unpack.places` finds them.
        names: its first group is the student in the name of a file or folder;
            by default, and where it does not match, the whole name is. Its
            group ``number``, if it has one, is the LMS's own for them.
        class_: the roster.
        endings: of the files that are handed in.

    Raises:
        ValueError: if there are none.
    """
    class_, made = class_ or {}, Collected()
    found: dict[tuple[str, str], list[Path]] = {}
    there = list(there)
    moodle, others, matched = dict[Path, str](), set[Path](), False
    listed = {p.parent: submitters(p.parent) for p in there}
    for path, files, instead in entries(there, endings, made.ignored):
        own = path.stem if [path] in (files, instead) else path.name
        group, said = listed[path.parent].get(path.name, []), signs(own, names)
        if not said and instead == [path] and on_roster([own], class_) is None:
            continue  # a file that lies about
        matched = matched or bool(said)
        key = said.get("name") or own, said.get("number") or ""
        people = [(on_roster(ids, class_) or ids[0], "") for ids in group]
        for one in people or [key]:
            found.setdefault(one, []).extend((*files, *instead))
        if "late" in said:
            made.late |= dict.fromkeys(files, bool(said["late"]))
        if folder := said.get("folder"):
            moodle |= dict.fromkeys((*files, *instead), folder)
        others |= {*instead}
    made.unmatched = bool(names) and not matched
    if not found:
        raise ValueError(
            "submissions are <id>.ipynb or <id>/*.ipynb: got none of either "
            f"there. {' '.join(made.ignored[:5])}"
        )
    students: dict[str, list[Path]] = {id: [] for id in class_}
    by_name = apart(numbered(found, class_))
    for name, files in by_name.items():
        id = recognize(name, class_, students)
        students.setdefault(id, []).extend(files)
        if id not in class_:  # only its letters say who it is
            spelled = bare_names(name, sure=True)[-1]
            made.spellings.setdefault(id, set()).add(spelled)
    for id in sorted(students):
        given = oldest_first(students[id])
        made.students[id] = [p for p in given if p not in others]
        if given and not made.students[id]:
            made.instead[id] = [student_id(p.name) for p in given]
        for path in filter(moodle.get, given):
            made.folders[id] = moodle[path]
    made.twins = [
        id
        for id in made.students
        if TWIN in id and id.rpartition(TWIN)[0] in made.students
    ]
    return made


def signs(own: str, names: re.Pattern[str] | None) -> Mapping[str, str | None]:
    """What the name of a file or folder says of a student: their ``name``,
    and if it has them ``number``, ``late`` and Moodle's ``folder``."""
    match = names.search(own) if names else None
    if not match or not match[1]:
        return {}
    said = match.groupdict() | {"name": match[1]}
    if match.re.pattern == NAMES["moodle"]:
        said["folder"] = f"{match[0]}file_"
    return said


def on_roster(ids: Iterable[str], class_: Class) -> str | None:
    """The first of somebody's names that the roster knows."""
    return next((i for i in ids if recognize(i, class_, ()) in class_), None)


def submitters(folder: Path) -> dict[str, list[list[str]]]:
    """Who handed in which folder of Gradescope's export, each by what it
    knows of them."""
    found = dict[str, list[list[str]]]()
    with suppress(OSError, UnicodeDecodeError):
        text = (folder / GRADESCOPE).read_text("utf8")
        for name, lines in LISTED.findall(text):
            for person in lines.split("  - ")[1:]:
                said = dict(re.findall(r":(name|sid|email): *(.+)", person))
                ids = (said.get(k, "") for k in ("email", "sid", "name"))
                known = [id for i in ids if (id := i.strip("'\" "))]
                found.setdefault(name, []).extend([known] * bool(known))
    return found


def entries(
    there: Iterable[Path], endings: Collection[str], ignored: list[str]
) -> Iterator[tuple[Path, list[Path], list[Path]]]:
    """What was handed in: a file or a folder, the files of it that count, or
    if there are none all others.  These are added to ``ignored``."""
    for path in there:
        is_folder = path.is_dir() and not path.is_symlink()
        files, others = list[Path](), list[Path]()
        hidden = path.name.startswith(NO_STUDENTS)
        for inner in sorted(path.iterdir()) if is_folder else [path]:
            is_answer = inner.suffix.lower() in endings
            if is_answer and not (
                hidden or inner.name.startswith(NO_STUDENTS)
            ):
                files.append(inner)
            elif is_answer or not inner.name.startswith((".", GRADESCOPE)):
                name = student_id(inner.relative_to(path.parent).as_posix())
                ignored.append(f"{name}: {advice(inner, is_folder)}.")
                others.append(inner)
        if not hidden and (files or is_folder or others):
            yield path, files, [] if files else others


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
    if ".ipynb" in name or name.endswith(".json"):
        return "perhaps a notebook; rename it so that it ends in .ipynb"
    if name.endswith(".py"):
        return "a program; ask for the notebook"
    return "no notebook; ask for the notebook if it is an answer"


def numbered(
    found: Mapping[tuple[str, str], list[Path]], class_: Class
) -> dict[str, list[Path]]:
    """The files by name; by id where the roster knows the LMS's number.

    Of several people with one name, each has their number behind it.
    """
    known = {f["number"]: id for id, f in class_.items() if f.get("number")}
    people = Counter(name for name, number in found if number not in known)
    students: dict[str, list[Path]] = {}
    for (name, number), paths in found.items():
        apart = f"{name}_{number}" if people[name] > 1 and number else name
        students.setdefault(known.get(number, apart), []).extend(paths)
    return students


def apart(found: Mapping[str, list[Path]]) -> dict[str, list[Path]]:
    """The files by an id that can stand in sheets and names of files.

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


def recognize(name: str, students: Class, others: Iterable[str]) -> str:
    """The id of the student whom a file or folder names.

    An id counts without regard to case.  So does a full name, in which the
    last name may come first, and what marks a copy of either: ``BOB``, ``bob
    (1)``, ``Copy of Ana Right`` and ``rightana`` name students.

    Args:
        name: what the file or folder says.
        students: the roster; each has a ``name``.
        others: who else has handed in.

    Returns:
        the id; for nobody on the roster the name itself, or the way in which
        one of the others spells it.
    """
    if name in students:
        return name
    spelled = bare_names(name)
    by_id = {id.casefold(): id for id in students}
    full = dict[str, list[str]]()
    for id, fields in students.items():
        for spelling in spellings(fields.get("name", "")):
            full.setdefault(spelling, []).append(id)
    for said in spelled:
        for id in (said, safe_name(said)):
            if found := by_id.get(id.casefold()):
                return found
    for said in spelled:
        if len(named := full.get(letters(said), [])) == 1:
            return named[0]
    own = bare_names(name, sure=True)[-1]  # -1 may be part of an id
    return next((o for o in others if o.casefold() == own.casefold()), own)


def spellings(name: str) -> set[str]:
    """The letters of a full name, with any number of its words put last."""
    words = [letters(word) for word in name.split()]
    turned = {"".join(words[n:] + words[:n]) for n in range(len(words))}
    return turned - {""}


def letters(text: str) -> str:
    """Letters and digits alone: no case, accents, blanks or punctuation."""
    apart = unicodedata.normalize("NFKD", text.casefold())
    return "".join(c for c in apart if c.isalnum())
