"""What an LMS has packed for download, as if it lay there unpacked."""

import os
import re
import shutil
import time
import zipfile
import zlib
from collections import Counter
from contextlib import suppress
from pathlib import Path

from coursekit_classroom.notebooks.cells import LARGEST
from coursekit_classroom.teach.collect import GRADESCOPE, NAMES, NO_STUDENTS
from coursekit_classroom.teach.read import FILES, TOTAL, is_plain

DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError)
EXPORT = re.compile(r"assignment_\d+_export")  # how Gradescope names one


def places(
    folder: Path, names: re.Pattern[str] | None, scratch: Path | None
) -> list[Path]:
    """What lies in a folder of submissions, and in a class's zip or folder.

    What has a student's name is theirs, whatever is in it.  A zip is a
    class's if it is all there is, and holds several things or names as an LMS
    gives them; a folder if it is Gradescope's, or holds folders in
    whose names ``names`` finds students.

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
        if EXPORT.match(path.name) and (path / GRADESCOPE).is_file():
            found += sorted(path.iterdir())
        elif path.is_dir():
            found += places(path, names, None) if names and listed else [path]
        elif (
            alone  # beside others it is a student's, who can name it anything
            and scratch
            and (
                listed
                or any(EXPORT.match(p[0]) for p in inside)
                or len({p[0] for p in inside}) > 1
            )
        ):
            found += places(unpack(path, scratch / path.name), student, None)
        else:
            found.append(path)
    return found


def contents(path: Path) -> list[list[str]]:
    """The parts of the names in a zip, and the folders of a folder."""
    found = list[list[str]]()
    if path.is_dir() and not path.is_symlink():
        found = [[inner.name] for inner in path.iterdir() if inner.is_dir()]
    elif path.suffix.lower() == ".zip" and is_plain(path):
        with suppress(Exception), zipfile.ZipFile(path) as archive:
            found = [parts(name) for name in archive.namelist()]
    return [p for p in found if p and not p[0].startswith(NO_STUDENTS)]


def parts(name: str) -> list[str]:
    """The folders and the file of a name in a zip; none lead out of it."""
    if os.name == "nt":
        name = re.sub(r'[<>:"|?*]', "_", name)
    return [part for part in re.split(r"[/\\]", name) if part.strip(". ")]


def unpack(path: Path, to: Path) -> Path:
    """Unpack a class's zip, each file with its time.

    What is beyond a student's limits has its size and no content: reading
    refuses it.  What is damaged is there as far as it goes.

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
                with target.open("wb") as file, suppress(*DAMAGE):
                    if sizes[inside[0]] > TOTAL or number[inside[0]] > FILES:
                        file.truncate(min(info.file_size, LARGEST + 1))
                    else:
                        shutil.copyfileobj(archive.open(info), file)
                with suppress(ValueError, OverflowError):
                    at = time.mktime((*info.date_time, 0, 0, -1))
                    os.utime(target, (at, at))
    except OSError as error:
        raise ValueError(
            f"{path.name} holds what several students handed in, and cannot "
            f"be unpacked ({error.strerror}). Unpack it yourself."
        ) from error
    return to
