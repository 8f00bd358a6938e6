"""The cells of a chapter (.md) or of a notebook (.ipynb).

A notebook is plain JSON, so reading it takes no library, and one that is
damaged can be read as far as it goes.
"""

import io
import json
import re
import zipfile
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

LARGEST = 64 << 20  # bytes: plots make notebooks large, nothing makes more
ZIP = b"PK"  # what such a file begins with
LONGEST = 1000  # characters of a sentence about a file
CELLS = 5000  # of a notebook: ours have fewer than a hundred
INSTALL = "In a checkout: pip install '.[notebook]'"


class NotebookError(ValueError):
    """A file that is no notebook, in one sentence."""

    def __init__(self, text: str) -> None:
        super().__init__(text[:LONGEST])  # it may quote the file


OTHER_FILES = {
    r"\A\s*\Z": "is empty. Save the notebook again and hand in that file",
    r"\A\s*<(?i:!doctype|html|\?xml)": "is a web page. Download the notebook "
    "itself: File, Download, Notebook (.ipynb)",
    r"\A%PDF-": "is a PDF. Hand in the notebook that it was printed from",
    r"(?m)^<{7} ": "has git's conflict marks (<<<<<<<). Keep one "
    "of the two versions between them, delete the marks and save it again",
}
"""Signs of a file that is called .ipynb and is something else: what it is."""
OWN_FILE = re.compile(r"\A%%writefile my_transformer\.py *(?=\n)")
"""A cell that writes the learner's own file is read as that file."""


@dataclass(frozen=True)
class Cell:
    """A cell of a chapter or a notebook, without its outputs."""

    kind: str
    """"code", "markdown" or "raw"."""

    source: str
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def exercise(self) -> str:
        """The id of the exercise that this cell answers, or nothing."""
        found = self.metadata.get("exercise")
        if isinstance(found, str) and len(found) <= 100:
            return found if found.isprintable() else ""
        return ""

    @property
    def tags(self) -> set[str]:
        """Such as ``remove-cell``."""
        found = self.metadata.get("tags")
        known = found if isinstance(found, list) else []
        return {tag for tag in known if isinstance(tag, str)}


def read_cells(path: Path | str) -> list[Cell]:
    """The cells of a chapter (.md), a notebook (.ipynb, .zip) or a .py file.

    Raises:
        NotebookError: if it is none of them, or cannot be read.
    """
    return read_marked(path)[0]


def read_marked(path: Path | str) -> tuple[list[Cell], str]:
    """The same, and the mark of the assignment that it was given out for.

    The mark is empty where there is none.

    Raises:
        NotebookError: as :func:`read_cells`.
    """
    path = Path(path)
    if path.suffix == ".md":
        return myst_cells(text_of(path), path.name), ""
    if path.suffix == ".py":
        cell = {"cell_type": "code", "source": text_of(path)}
        return [cell_of(cell)], ""
    data = load(path)
    cells = data.get("cells")
    if not isinstance(cells, list):
        raise NotebookError(
            f"{path.name} has no list of cells: got a notebook of format "
            f"{data.get('nbformat')!r}. Open it in Jupyter and save it."
        )
    if len(cells) > CELLS:
        raise NotebookError(
            f"a notebook has at most {CELLS:,} cells: got {len(cells):,} in "
            f"{path.name}. Hand in the cells that answer."
        )
    found = [cell_of(cell) for cell in cells if isinstance(cell, dict)]
    return found, mark_of(data)


def with_mark(mark: str) -> dict[str, Any]:
    """A notebook's metadata that says for which assignment it is."""
    return {"coursekit": {"assignment": mark}} if mark else {}


def mark_of(data: Mapping[str, Any]) -> str:
    """What :func:`with_mark` has said, or nothing."""
    found: Any = data
    for name in ("metadata", "coursekit", "assignment"):
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, str) else ""


def load(path: Path) -> dict[str, Any]:
    """The JSON of a notebook."""
    text = text_of(path)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = str(error).partition("\n")[0][:100]
        other = next(
            (
                what
                for sign, what in OTHER_FILES.items()
                if re.search(sign, text)
            ),
            f"is damaged, or only a part of it arrived ({reason}). Hand it in "
            "again: saved or downloaded once more, or an earlier version",
        )
        raise NotebookError(f"{path.name} is no notebook: it {other}.") from (
            error
        )
    if not isinstance(data, dict):
        raise NotebookError(f"{path.name} is no notebook, but other JSON.")
    return data


def text_of(path: Path) -> str:
    """The text of a file that is not too large to be read."""
    try:
        if path.stat().st_size > LARGEST:
            raise NotebookError(
                f"{path.name} has more than {LARGEST >> 20} MB. Clear its "
                "outputs and save it again."
            )
        data = path.read_bytes()
        return decode(unpacked(data, path.name) if data[:2] == ZIP else data)
    except TimeoutError:  # the grader's clock, not the file's fault
        raise
    except OSError as error:
        raise NotebookError(
            f"{path} cannot be read: {error.strerror}."
        ) from error


def unpacked(data: bytes, name: str) -> bytes:
    """The notebook that a zip holds.

    Raises:
        NotebookError: if it holds none or several, or cannot be read.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            found = [
                one
                for one in archive.namelist()
                if one.lower().endswith(".ipynb")
                and not one.rpartition("/")[2].startswith((".", "_"))
            ]
            if len(found) == 1:
                with archive.open(found[0]) as file:
                    return file.read(LARGEST)
    except Exception as error:  # zipfile raises anything
        raise NotebookError(
            f"{name} is a zip that cannot be read ({error}). Hand in the "
            "notebook itself."
        ) from error
    raise NotebookError(
        f"a zip holds one notebook: got {len(found)} in {name}. Hand in the "
        "notebook itself."
    )


def decode(data: bytes) -> str:
    """Text, in whatever encoding an editor has left it."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def cell_of(cell: Mapping[str, Any]) -> Cell:
    """A cell of a notebook's JSON, however it is damaged."""
    source, metadata = cell.get("source", ""), cell.get("metadata")
    if isinstance(source, list):
        source = "".join(part for part in source if isinstance(part, str))
    text = source if isinstance(source, str) else ""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = OWN_FILE.sub("", text)
    known = metadata if isinstance(metadata, dict) else {}
    # An answer stays code if its cell was turned into text by mistake.
    kind = "code" if "exercise" in known else str(cell.get("cell_type"))
    text = text.encode("utf8", "replace").decode("utf8")  # half a surrogate
    return Cell(kind, text, known)


def myst_cells(text: str, name: str = "the text") -> list[Cell]:
    """The cells of a chapter's text."""
    try:
        cells = parsed(text)
    except ModuleNotFoundError as error:
        raise NotebookError(
            f"a chapter in Markdown is read by jupytext, which is missing: "
            f"got {name}. {INSTALL}, or give its .ipynb."
        ) from error
    except Exception as error:
        raise NotebookError(
            f"{name} is no chapter: jupytext cannot read it ({error})."
        ) from error
    return [
        Cell(c.cell_type, c.source, dict(deepcopy(c.metadata))) for c in cells
    ]


@lru_cache(maxsize=64)  # an assignment reads a page once for each reader
def parsed(text: str) -> list[Any]:
    """The cells of a chapter's text, as jupytext has them."""
    import jupytext  # type: ignore[import-untyped]

    cells: list[Any] = jupytext.reads(text, fmt="md:myst").cells
    return cells
