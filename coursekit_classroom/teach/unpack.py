"""What an LMS has packed for download, as if it lay there unpacked."""

import os
import re
import shutil
import time
import zipfile
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from coursekit_classroom.notebooks.cells import LARGEST
from coursekit_classroom.teach.collect import GRADESCOPE, NAMES, NO_STUDENTS
from coursekit_classroom.teach.read import FILES, TOTAL, is_plain

EXPORT = re.compile(r"assignment_\d+_export")  # how Gradescope names one


def places(
    folder: Path, names: re.Pattern[str] | None, scratch: Path | None
) -> list[Path]:
    """What lies in a folder of submissions, and in a class's zip or folder.

    What has a student's name is theirs, whatever is in it.  A zip is a
    class's if names that an LMS gives are in it, or if it is all there is and
    holds several things.  A folder is one if it is Gradescope's, or if
    ``names`` finds students in the names of folders in it.

    Args:
        folder: what was handed in.
        names: see :func:`.collect.naming`.
        scratch: an empty folder to unpack zips into; None: they stay.

    Raises:
        ValueError: if the folder is none, or a zip cannot be unpacked.
    """
    if not folder.is_dir():
        raise ValueError(
            f"submissions are a folder: got {folder}, which is none."
        )
    student = names or re.compile(NAMES["moodle"])
    there, found = sorted(folder.iterdir()), list[Path]()
    alone = sum(not p.name.startswith(NO_STUDENTS) for p in there) == 1
    for path in there:
        inside = [] if student.search(path.name) else contents(path)
        listed = any(map(student.search, (n for p in inside for n in p[:2])))
        exported = any(EXPORT.match(p[0]) for p in inside)
        several = alone and len({p[0] for p in inside}) > 1
        if path.is_dir():
            if EXPORT.match(path.name) and (path / GRADESCOPE).is_file():
                found += sorted(path.iterdir())
            else:
                is_class = names and listed
                found += places(path, names, None) if is_class else [path]
        elif scratch and (listed or exported or several):
            found += places(unpack(path, scratch / path.name), student, None)
        else:
            found.append(path)
    return found


def contents(path: Path) -> list[Sequence[str]]:
    """The parts of the names in a zip, and the folders of a folder."""
    found = list[Sequence[str]]()
    if path.is_symlink() or path.name.startswith(NO_STUDENTS):
        return found
    if path.is_dir():
        found = [(inner.name,) for inner in path.iterdir() if inner.is_dir()]
    elif path.suffix.lower() == ".zip" and is_plain(path):
        with suppress(Exception), zipfile.ZipFile(path) as archive:
            found = [parts(info.filename) for info in archive.infolist()]
    return [p for p in found if p and not p[0].startswith(NO_STUDENTS)]


def parts(name: str) -> list[str]:
    """The folders and the file of a name in a zip; none lead out of it."""
    return [
        re.sub(r'[<>:"|?*]', "_", part) if os.name == "nt" else part
        for part in re.split(r"[/\\]", name)
        if part.strip(". ")
    ]


def unpack(path: Path, to: Path) -> Path:
    """Unpack a class's zip, each file with its time.

    No student takes more than :func:`.read.too_many` allows: what is beyond
    that has its size and no content, and reading refuses it.  What is damaged
    stays as far as it goes.

    Raises:
        ValueError: if there is no place for it.
    """
    sizes, number = Counter[str](), Counter[str]()
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                inside = parts(info.filename)
                if info.is_dir() or not inside:
                    continue
                sizes[inside[0]] += info.file_size
                number[inside[0]] += 1
                target = to.joinpath(*inside)
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("wb") as file:
                    if sizes[inside[0]] > TOTAL or number[inside[0]] > FILES:
                        file.truncate(min(info.file_size, LARGEST + 1))
                        continue
                    with suppress(Exception), archive.open(info) as packed:
                        shutil.copyfileobj(packed, file)
                with suppress(ValueError, OverflowError):
                    at = time.mktime((*info.date_time, 0, 0, -1))
                    os.utime(target, (at, at))
    except OSError as error:
        raise ValueError(
            f"{path.name} holds what several students handed in, and cannot "
            f"be unpacked ({error.strerror}). Unpack it yourself and take it "
            "away."
        ) from error
    return to
