"""A page of the book, in a checkout or alone, and its plain Markdown."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from coursekit_classroom.notebooks import plain
from coursekit_classroom.notebooks.cells import Cell, NotebookError
from coursekit_classroom.notebooks.readers import library, pages_of


def read_text(path: Path) -> str:
    """The text of a page."""
    if path.suffix != ".md":
        raise NotebookError(
            f"an assignment is made from a chapter's .md: got {path}."
        )
    try:
        return path.read_text("utf8")
    except (OSError, UnicodeDecodeError) as error:
        raise NotebookError(f"{path} cannot be read: {error}.") from error


def converter(path: Path, cells: Sequence[Cell]) -> plain.Page:
    """What turns a page's text into plain Markdown.

    In a checkout it knows the titles of the other pages, and the numbers
    that a page quotes if the book was built.
    """
    import yaml  # type: ignore[import-untyped]

    root = root_of(path)
    settings = root / "_config.yml"
    config: dict[str, Any] = {}
    if settings.is_file():
        config = yaml.safe_load(settings.read_text("utf8")) or {}
    name = path.resolve().relative_to(root).with_suffix("").as_posix()
    notebooks = dict(pages_of(root))
    notebooks[name] = as_notebook(cells)
    ran = root / "_build" / "notebooks" / f"{name}.ipynb"
    done = library().read(ran, 4) if ran.is_file() else notebooks[name]
    return plain.Page(plain.Pages(root, config, notebooks), name, done)


def root_of(path: Path) -> Path:
    """The checkout that a page is in; where there is none, its folder."""
    above = path.resolve().parents
    return next((p for p in above if (p / "_config.yml").is_file()), above[0])


def as_notebook(cells: Iterable[Cell]) -> Any:
    """The cells as nbformat has them, to be looked at alone."""
    made = [
        {"cell_type": c.kind, "source": c.source, "metadata": dict(c.metadata)}
        for c in cells
    ]
    return library().from_dict({"cells": made})
