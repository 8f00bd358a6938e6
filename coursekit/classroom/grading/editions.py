"""``coursekit book``: the book for everybody, for a class, for its teacher.

Jupyter Book copies the sources of all pages to the site, and what is only
hidden can be read there.  So each edition is built from a copy of the
checkout in which what it must not have is not there.
"""

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from coursekit.classroom.grading.cells import myst_cells
from coursekit.classroom.grading.handout import refuse_answers
from coursekit.classroom.grading.program import Program, parse
from coursekit.classroom.grading.sources import (
    FENCE,
    Fenced,
    fenced,
    for_instructors,
    for_students,
)

EDITIONS = ("public", "student", "instructor")
# What a build reads, and nothing else: a key or an overlay that lies in the
# checkout stays where it is.
FOLDERS = ("book", "coursekit", "results", "sphinx_ext", "vendor")
FILES = (
    *("_config.yml", "_toc.yml", "pyproject.toml", "references.bib"),
    "requirements.txt",
)
ALWAYS = ("book/about/bibliography", "book/about/glossary")
NOT_COPIED = shutil.ignore_patterns("__pycache__", ".*", "_build")
HIDES = re.compile(r"\b(remove-(cell|input|output)|hide-(cell|input))\b")
OPTION = re.compile(r":[\w-]+:")
CODE = {"", "code", "code-block", "literalinclude"}  # shown as it stands
SOLUTION = "solution"
MAIN = "from jupyter_book.cli.main import main; main()"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``coursekit book``."""
    parser.add_argument(
        "pages",
        nargs="*",
        metavar="PAGE",
        help="only these, such as book/04_attention [default: all]",
    )
    parser.add_argument(
        "--edition",
        required=True,
        choices=EDITIONS,
        help="public: as it is online; student: without any solution; "
        "instructor: everything, and your overlay",
    )
    parser.add_argument(
        "--overlay",
        metavar="DIR",
        help="your folder with exercises and pages that are not public",
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="where html/ and notebooks/ go [default: _build/EDITION]",
    )


def run(args: argparse.Namespace) -> int:
    """Build an edition of the book, in a checkout of it.

    Public and student editions are made from sources in which nothing is
    left that they must not have: solutions, the instructor's blocks, the
    overlay.
    """
    root = checkout(Path.cwd())
    folder = Path(args.overlay).resolve() if args.overlay else None
    if folder is not None and not folder.is_dir():
        raise ValueError(
            f"an overlay is a folder with pages and modules of exercises: "
            f"got {args.overlay}."
        )
    if folder is not None and args.edition != "instructor":
        print(
            f"note: the {args.edition} edition takes nothing from an overlay",
            file=sys.stderr,
        )
        folder = None
    if importlib.util.find_spec("jupyter_book") is None:
        raise ValueError(
            "a book is built by jupyter-book, which is missing. "
            "In a checkout: pip install '.[book]', or make env."
        )
    out = Path(args.out) if args.out else root / "_build" / args.edition
    pages = [page_name(root, page) for page in args.pages]
    source = stage(root, out / "source", args.edition, folder, pages)
    code = build(source, folder, strict=not pages)
    for made, name in (("html", "html"), ("readers", "notebooks")):
        shutil.rmtree(out / name, ignore_errors=True)
        if (source / "_build" / made).is_dir():
            shutil.copytree(source / "_build" / made, out / name)
    if code == 0:
        print(f"open {out / 'html' / 'index.html'}")
    return int(code != 0)


def checkout(start: Path) -> Path:
    """The checkout that a folder lies in."""
    for folder in (start, *start.parents):
        if all((folder / name).is_file() for name in FILES[:2]):
            return folder
    raise ValueError(
        f"the book is built in a checkout of its repository: got {start}, "
        "which is in none. Clone it and run this there."
    )


def page_name(root: Path, page: str) -> str:
    """A page as _toc.yml names it."""
    for name in (page, f"book/{page}"):
        path = Path(root, name).with_suffix(".md")
        if path.is_file() and path.resolve().is_relative_to(root):
            return path.resolve().relative_to(root).with_suffix("").as_posix()
    raise ValueError(
        f"a page is a file of the book: got {page}, which does not exist. "
        "Try book/04_attention."
    )


# -- the copy ----------------------------------------------------------------
def stage(
    root: Path,
    target: Path,
    edition: str,
    overlay: Path | None = None,
    pages: Sequence[str] = (),
) -> Path:
    """Copy a checkout, each page as an edition has it.

    Args:
        root: the checkout.
        target: where the copy goes; what is there is removed.
        edition: one of ``EDITIONS``.
        overlay: pages that the instructor's edition gets.
        pages: which pages; all if there are none.

    Raises:
        SourceError: if an instructor's block is not closed.
    """
    if target.exists() and not (target / ".edition").is_file():
        raise ValueError(
            f"an edition is made in a folder of its own: got {target}, which "
            "has other files. Choose another --out."
        )
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    (target / ".edition").write_text(edition)
    for name in FOLDERS:
        if (root / name).is_dir():
            shutil.copytree(root / name, target / name, ignore=NOT_COPIED)
    for name in FILES:
        if (root / name).is_file():
            shutil.copy(root / name, target / name)
    keep_what_ran(root, target)
    more = overlay if edition == "instructor" else None
    added = write_pages(target, edition, more)
    write_contents(target, pages, added)
    return target


def keep_what_ran(root: Path, target: Path) -> None:
    """Take along the chapters' outputs: they need not run again."""
    for name in (".jupyter_cache", ".inputs"):
        old, new = root / "_build" / name, target / "_build" / name
        new.parent.mkdir(exist_ok=True)
        if old.is_dir():
            shutil.copytree(old, new)
        elif old.is_file():
            shutil.copy(old, new)


def write_pages(target: Path, edition: str, overlay: Path | None) -> list[str]:
    """Filter the pages of a copy; return the names of new ones."""
    more = sorted(overlay.glob("*.md")) if overlay is not None else []
    extra = {path.stem: path for path in more}
    for path in sorted((target / "book").rglob("*.md")):
        text = path.read_text("utf8")
        new = edit(text, edition, path.name)
        if edition == "student":
            refuse_answers(myst_cells(new, path.name), path)
        if path.parent.name == "book" and path.stem in extra:
            added = extra.pop(path.stem)
            page = for_instructors(added.read_text("utf8"), added.name)
            new = f"{new.rstrip()}\n\n{without_front(page)}"
        if new != text:
            path.write_text(new, "utf8")
    for name, path in extra.items():
        page = for_instructors(path.read_text("utf8"), path.name)
        (target / "book" / f"{name}.md").write_text(page, "utf8")
    return sorted(extra)


def write_contents(
    target: Path, pages: Sequence[str], added: Sequence[str]
) -> None:
    """Adapt _toc.yml to the pages that are asked for, and to new ones."""
    if not pages and not added:
        return
    import yaml  # type: ignore[import-untyped]

    path = target / "_toc.yml"
    contents = yaml.safe_load(path.read_text("utf8"))
    if pages:
        wanted = [*dict.fromkeys(pages), *ALWAYS]
        known = [p for p in wanted if (target / f"{p}.md").is_file()]
        contents = {
            "format": contents["format"],
            "root": contents["root"],
            "chapters": [{"file": p} for p in known if p != contents["root"]],
        }
    if added:
        new = [{"file": f"book/{name}"} for name in added]
        if "parts" in contents:
            part = {"caption": "For instructors", "chapters": new}
            contents["parts"].append(part)
        else:
            contents.setdefault("chapters", []).extend(new)
    path.write_text(yaml.safe_dump(contents, sort_keys=False), "utf8")


def build(source: Path, overlay: Path | None, strict: bool) -> int:
    """Run the chapters that have changed, then Jupyter Book."""
    environment = os.environ | {
        "PYTHONPATH": str(source),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "COURSEKIT_OVERLAY": str(overlay or ""),
    }
    scripts = Path(sys.executable).parent
    environment["PATH"] = f"{scripts}{os.pathsep}{environment['PATH']}"
    for command in (
        ["sphinx_ext/notebooks.py"],
        ["-c", MAIN, "build", ".", "--keep-going", "-n"]
        + ["-W"] * strict,  # with some pages missing, links to them are dead
    ):
        done = subprocess.run(
            [sys.executable, *command], cwd=source, env=environment
        )
        if done.returncode:
            return done.returncode
    return 0


# -- a page ------------------------------------------------------------------
def edit(text: str, edition: str, page: str = "the page") -> str:
    """A page as an edition has it."""
    if edition == "instructor":
        return for_instructors(text, page)
    text = for_students(text, page)
    return without_answers(text) if edition == "student" else text


def without_front(text: str) -> str:
    """A page without what stands between its first two lines of dashes."""
    parts = re.split(r"^---[ ]*$\n?", text, maxsplit=2, flags=re.MULTILINE)
    return parts[2].lstrip() if len(parts) == 3 and not parts[0] else text


def without_answers(text: str) -> str:
    """A page without its solutions and the hidden cells of its exercises.

    A hidden cell stays where the page needs it: if it glues a number that
    the text still quotes, or defines what another cell uses.
    """
    lines = without_solutions(text.split("\n"))
    found = [b for b in blocks(lines) if b.name == "code-cell"]
    first = next(
        (b.first for b in fenced(lines) if b.name == "exercise"), len(lines)
    )
    hidden = [b for b in found if b.first > first and is_hidden(lines, b)]
    code = {b.first for b in hidden}
    shown = [cell_of(lines, b) for b in found if b.first not in code]
    prose = "\n".join(outside(lines, found))
    drop = set[int]()
    for block in hidden:
        cell = cell_of(lines, block)
        if not (glues(cell, prose) or defines_for(cell, shown)):
            drop.update(range(block.first, block.end))
    return "\n".join(line for n, line in enumerate(lines) if n not in drop)


def without_solutions(lines: list[str]) -> list[str]:
    """Lines without solution blocks, at whatever depth, and gated ones."""
    drop = set[int]()
    gate: int | None = None
    for block in blocks(lines):
        if block.name == f"{SOLUTION}-start":
            gate = block.first
        elif block.name == f"{SOLUTION}-end" and gate is not None:
            drop.update(range(gate, block.end))
            gate = None
        elif block.name == SOLUTION:
            drop.update(range(block.first, block.end))
    if gate is not None:
        drop.update(range(gate, len(lines)))
    return [line for n, line in enumerate(lines) if n not in drop]


def blocks(lines: list[str], start: int = 0) -> Iterator[Fenced]:
    """All directives, those within others included."""
    for block in fenced(lines):
        if block.name:
            yield Fenced(
                start + block.first,
                start + block.end,
                block.name,
                block.argument,
            )
        if block.name in CODE or block.name == "code-cell":
            continue
        last = block.end - 1
        closed = last > block.first and FENCE.match(lines[last])
        inner = lines[block.first + 1 : last if closed else block.end]
        yield from blocks(inner, start + block.first + 1)


def head_of(lines: list[str], block: Fenced) -> int:
    """How many lines of a cell are its options."""
    inner = lines[block.first + 1 : block.end - 1]
    if inner[:1] == ["---"] and "---" in inner[1:]:
        return inner.index("---", 1) + 1
    options = (n for n, x in enumerate(inner) if not OPTION.match(x))
    return next(options, len(inner))


def is_hidden(lines: list[str], block: Fenced) -> bool:
    """Whether a cell's code is not shown."""
    start = block.first + 1
    head = lines[start : start + head_of(lines, block)]
    return bool(HIDES.search("\n".join(head)))


def cell_of(lines: list[str], block: Fenced) -> Program:
    """A cell's code; nothing if it is no Python."""
    start = block.first + 1 + head_of(lines, block)
    inner = lines[start : block.end - 1]
    try:
        return parse("\n".join(inner))
    except SyntaxError:
        return parse("")


def outside(lines: list[str], cells: Sequence[Fenced]) -> list[str]:
    """The lines of a page that stand in no cell."""
    inside = {n for b in cells for n in range(b.first, b.end)}
    return [line for n, line in enumerate(lines) if n not in inside]


def glues(cell: Program, prose: str) -> bool:
    """Whether a text quotes a number that a cell glues."""
    quoted = re.findall(r"\{glue:?\w*\}`([^`:]+)", prose)
    for name in re.findall(r"glue\(\s*f?[\"']([^\"']+)", cell.source):
        pattern = ".*".join(
            re.escape(part) for part in re.split(r"\{[^}]*\}", name)
        )
        if any(re.fullmatch(pattern, one.strip()) for one in quoted):
            return True
    return False


def defines_for(cell: Program, others: Sequence[Program]) -> bool:
    """Whether other cells use what only this one defines."""
    own = {name for part in cell.statements for name in part.sets}
    parts: list[Any] = [p for other in others for p in other.statements]
    known = {name for part in parts for name in part.sets}
    return any(part.reads & (own - known) for part in parts)
