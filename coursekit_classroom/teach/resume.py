"""What an interrupted run goes on from, and which sheets were written."""

import hashlib
import importlib
import json
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from coursekit.files import parse_json
from coursekit_classroom.check import core
from coursekit_classroom.teach.judge import Task
from coursekit_classroom.teach.records import Graded, graded


class Progress:
    """A file with a line of JSON for each student and each sheet."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, said: dict[str, Any]) -> None:
        """Note something on a line of its own, also after half a line."""
        with self.path.open("a", encoding="utf8") as file:
            file.write(f"\n{json.dumps(said)}\n")

    def noted(self) -> Iterator[dict[str, Any]]:
        """What earlier runs have noted, but for damaged lines."""
        try:
            text = self.path.read_text("utf8")
        except (OSError, UnicodeDecodeError):
            return
        for line in text.splitlines():
            try:
                said = parse_json(line)
            except ValueError:
                continue  # the run ended in the middle of a line
            if isinstance(said, dict):
                yield said

    def graded(self) -> dict[str, Graded]:
        """Who was graded in an earlier run, by stamp."""
        found: dict[str, Graded] = {}
        for said in self.noted():
            try:
                found[said["stamp"]] = graded(said["graded"])
            except (TypeError, KeyError):
                continue
        return found

    def forget(self) -> None:
        """Forget who was graded; what the sheet was stays known."""
        sheets = [said for said in self.noted() if "sheet" in said]
        self.path.unlink(missing_ok=True)
        for said in sheets:
            self.note(said)


def stamp(
    student: str,
    paths: Sequence[Path],
    sha256: str,
    tasks: Sequence[Task],
    others: Sequence[str],
) -> str:
    """A hash of all that the marks of a student depend on.

    Args:
        student: their id.
        paths: their notebooks.
        sha256: of the notebooks.
        tasks: what is asked.
        others: what is the same for everybody.
    """
    names = [path.name for path in paths]
    depends = [student, names, sha256, *others, [t.plain() for t in tasks]]
    text = json.dumps(depends, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


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
