"""``coursekit notebooks``: the chapters as notebooks for readers.

The book's build writes the same notebooks for download, Colab and Binder.
They hold plain Markdown, lessons as cells that run, the numbers of the
recorded run, and nothing that only the authors need.
"""

import argparse
import ast
import copy
import functools
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from coursekit_classroom.notebooks import plain
from coursekit_classroom.notebooks.cells import INSTALL, NotebookError
from coursekit_classroom.notebooks.install import (
    book_root,
    install_cell,
    published,
)
from coursekit_classroom.notebooks.program import (
    Program,
    only_imported,
    parse,
    statement,
)

__all__ = [
    "FOLDER",
    "add_options",
    "code_cells",
    "digest",
    "for_reader",
    "library",
    "pages_of",
    "run",
    "without_authors",
    "write_all",
]

FOLDER = "my_notebooks"
# Cells whose code the page folds away or leaves out.
FOLDED = {"hide-input", "hide-cell", "remove-input", "remove-cell"}
HOW = """\
*The figures appear as you run the cells: one after another with Shift+Enter. \
To run all at once shows the results of the predictions, too.*"""
AGAIN = "# From here on these are the package's own again."
# What opens a closed cell that has no such words on the page.
NEEDED = "What later cells need"
DRAWN = "How this figure is drawn"
SHOWN = "How this is shown"
# What a notebook says below the picture of a live figure.
ON_PAGE = "*Here this is a picture; on the book's page you can use it.*"
STILL = "live.still"
IN_CELL = "*Here this is a picture. To use it, run this in a new cell:*"
MAIN = 'if __name__ == "__main__":'
AUTHORS = "remove-cell"  # the tag of cells that no page shows


# -- the command -------------------------------------------------------------
def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``coursekit notebooks``."""
    parser.add_argument(
        "folder",
        nargs="?",
        default=FOLDER,
        metavar="FOLDER",
        help=f"where they go [default: {FOLDER}]",
    )


def run(args: argparse.Namespace) -> int:
    """Write the chapters as notebooks, for you to run and to write in.

    What you have typed into one is kept. If its chapter has changed since
    then, the new one is written next to it: 04_attention-2.ipynb.
    """
    folder, root = Path(args.folder), book_root()
    if root is None:
        raise ValueError(
            "the chapters come with the package: got an installation without "
            "them. Install the package again, or use a checkout."
        )
    unchanged, again = write_all(root, folder)
    print(f"The chapters are notebooks in {folder.resolve()}.")
    if unchanged:
        print(f"Kept as you left them: {', '.join(unchanged)}.")
    if again:
        print(f"Changed since you wrote in them: now {', '.join(again)}.")
    print(f"To open them: jupyter lab {folder}")
    return 0


def write_all(root: Path, folder: Path) -> tuple[list[str], list[str]]:
    """Write the notebook of every page that has code.

    Args:
        root: where the book is.
        folder: of the reader.

    Returns:
        the names of the files that are kept, since the reader wrote in
        them, and of those that are written next to one.
    """
    unchanged, again = list[str](), list[str]()
    for page, notebook in made(root):
        target = folder / f"{page.removeprefix('book/')}.ipynb"
        versions = [target, *numbered(target)]
        newest = versions[-1]
        if newest.is_file():
            there, written = look_at(newest)
            if written != there:
                unchanged.append(newest.relative_to(folder).as_posix())
            if written == notebook.metadata["coursekit"]["written"]:
                continue
            if written != there:
                newest = target.with_stem(f"{target.stem}-{len(versions) + 1}")
                again.append(newest.relative_to(folder).as_posix())
        newest.parent.mkdir(parents=True, exist_ok=True)
        library().write(notebook, newest)
    return unchanged, again


def numbered(target: Path) -> Iterator[Path]:
    """The versions of a notebook after the first, as far as there are."""
    number = 2
    while (path := target.with_stem(f"{target.stem}-{number}")).is_file():
        yield path
        number += 1


def look_at(path: Path) -> tuple[str, str]:
    """The digest of what a file says, and of what was written there."""
    try:
        data = json.loads(path.read_text("utf8"))
        return digest(data["cells"]), data["metadata"]["coursekit"]["written"]
    except (ValueError, LookupError, TypeError):
        return "", "not written by us"


def digest(cells: Iterable[Mapping[str, Any]]) -> str:
    """A hash of what the cells say; running them does not change it."""
    messages = [
        (cell["cell_type"], source)
        for cell in cells
        if (source := "".join(cell["source"]).strip())
    ]
    return hashlib.sha256(json.dumps(messages).encode()).hexdigest()


# -- the chapters ------------------------------------------------------------
def library() -> Any:
    """nbformat, which comes with jupytext."""
    try:
        import nbformat
    except ModuleNotFoundError as error:
        raise NotebookError(
            "notebooks are written by nbformat, which is missing: got no "
            f"such module. {INSTALL}."
        ) from error
    return nbformat


@functools.cache
def pages_of(root: Path) -> Mapping[str, Any]:
    """The pages of a book as notebooks, by name."""
    library()
    import jupytext  # type: ignore[import-untyped]

    return {
        path.relative_to(root).with_suffix("").as_posix(): jupytext.reads(
            path.read_text("utf8"), fmt="md:myst"
        )
        for path in sorted(root.glob("book/**/*.md"))
        if ".ipynb_checkpoints" not in path.parts  # Jupyter's copies
    }


def made(root: Path) -> Iterator[tuple[str, Any]]:
    """Each page that has code, as a reader's notebook."""
    import yaml  # type: ignore[import-untyped]

    notebooks = pages_of(root)
    config = yaml.safe_load(Path(root, "_config.yml").read_text("utf8"))
    book = plain.Pages(root, config, notebooks)
    names = [name for name, page in notebooks.items() if code_cells(page)]
    for name in names:
        ran = built(root, name, notebooks[name])
        yield name, for_reader(ran, plain.Page(book, name, ran, names))


def built(root: Path, name: str, notebook: Any) -> Any:
    """The page with its outputs, if it was built as it is now."""
    path = Path(root, "_build", "notebooks", f"{name}.ipynb")
    if not path.is_file():
        return notebook
    ran = library().read(path, 4)
    same = digest(ran.cells) == digest(notebook.cells)
    return ran if same else notebook


def code_cells(notebook: Any) -> list[Any]:
    """The cells that run."""
    return [c for c in notebook.cells if c.cell_type == "code"]


def for_reader(notebook: Any, page: plain.Page) -> Any:
    """The notebook that a reader opens in Jupyter, Colab or Binder.

    Args:
        notebook: the page's, with outputs if it was run.
        page: knows how to say in Markdown what the page says in MyST.
    """
    v4, notebook = library().v4, copy.deepcopy(notebook)
    cells = list[Any]()
    for number, cell in enumerate(without_authors(notebook.cells)):
        cell.id = f"cell-{number}"  # else random, and never reproducible
        if cell.cell_type == "markdown":
            cells += with_lessons(cell, page, cells)
            continue
        cells.append(cell)
        shown = cell.metadata.get("mystnb", {})
        figure = shown.get("figure", {})
        tags = set(cell.metadata.get("tags", []))
        cell.source = without_semicolon(cell.source)
        if tags & FOLDED:
            holds = DRAWN if figure else NEEDED if AUTHORS in tags else SHOWN
            fold(cell, shown.get("code_prompt_show", holds))
        if tags & {"predict", AUTHORS}:  # of the latter a part is left
            cell.outputs, cell.execution_count = [], None
            cell.metadata["tags"] = [*sorted(tags), "nbval-ignore-output"]
        if "caption" in figure:
            caption = page.caption(figure["caption"], "predict" in tags)
            caption = "\n\n".join([caption, *live_notes(cell.source)])
            cells.append(v4.new_markdown_cell(caption))
            cells[-1].id = f"{cell.id}-caption"
    address = published(page.pages.root)
    first = v4.new_code_cell(install_cell(address.repository, address.tag))
    fold(first)
    instructions = v4.new_markdown_cell(HOW)
    instructions.id, first.id = "how", "install"
    at = next(i for i, c in enumerate(cells) if c.cell_type == "code")
    cells[at:at] = [instructions, first]
    notebook.cells = cells
    notebook.metadata = {
        "kernelspec": notebook.metadata["kernelspec"],
        "language_info": {"name": "python"},
        "coursekit": {"written": digest(cells)},
    }
    return notebook


def fold(cell: Any, title: str = "") -> None:
    """Close a cell's code, in Jupyter and in Colab; its first line is seen."""
    if title:
        cell.source = f"# {title}\n{cell.source}"
    cell.metadata["jupyter"] = {"source_hidden": True}
    cell.metadata["cellView"] = "form"


def live_notes(source: str) -> Iterator[str]:
    """Notes on how to run each live figure that a cell draws."""
    from coursekit_classroom.live.widget import KINDS  # loads torch

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == STILL:
            kind = node.args.pop(0)
            if ast.literal_eval(kind) in KINDS:
                node.func = ast.parse("live.show", mode="eval").body
                node.args.append(kind)
                yield f"{IN_CELL} `{ast.unparse(node)}`"
            else:
                yield ON_PAGE


def with_lessons(
    cell: Any, page: plain.Page, before: Iterable[Any]
) -> list[Any]:
    """A Markdown cell in plain Markdown; its lessons are cells that run.

    What the cells ``before`` define is not imported a second time. What they
    have imported from the package is so again after a lesson of that name:
    the page, which does not run its lessons, goes on with it.
    """
    v4 = library().v4
    known, cells = set[str](), list[Any]()
    imported, shadowed = dict[str, str](), set[str]()
    pieces = list(plain.cut(cell.source, "lesson"))
    if any(said for _, said in pieces):
        for earlier in before:
            if earlier.cell_type == "code":
                known |= defined(earlier.source)
                imported |= from_package(earlier.source)
    for number, (text, said) in enumerate(pieces):
        text = page.convert(text)
        if text:
            cells.append(v4.new_markdown_cell(text))
            cells[-1].id = f"{cell.id}-{number}" if number else cell.id
        if said:
            source = plain.lesson_cell(*page.lesson(said), known)
            if MAIN in source:  # it would read the arguments of Jupyter
                shown = v4.new_markdown_cell(f"```python\n{source}\n```")
            else:
                shown = v4.new_code_cell(source)
                known |= defined(source)
                shadowed |= defined(source) & imported.keys()
            cells.append(shown)
            cells[-1].id = f"{cell.id}-{number}-lesson"
    if shadowed:
        lines = sorted({imported[name] for name in shadowed})
        cells.append(v4.new_code_cell("\n".join([AGAIN, *lines])))
        cells[-1].id = f"{cell.id}-again"
        fold(cells[-1])
    return cells


def from_package(source: str) -> dict[str, str]:
    """The names that a cell imports from the package, and how.

    What comes from the file of the lessons is left out: it is the same.
    """
    return {
        name.asname or name.name: f"from {node.module} import {name.name}"
        for node in ast.parse(parse(source).source).body
        if isinstance(node, ast.ImportFrom)
        and str(node.module).startswith("coursekit")
        and "minimal" not in str(node.module)
        for name in node.names
    }


@functools.cache
def defined(source: str) -> frozenset[str]:
    """The names that a cell's code defines or imports."""
    return frozenset(
        name
        for statement in parse(source).statements
        for name in statement.sets
    )


def without_semicolon(source: str) -> str:
    """A cell that hides its last value without a ``;`` at its end.

    IPython looks for the ``;`` in its history, which a program that runs
    notebooks need not keep: plain nbval would find a value too many.
    """
    if not source.rstrip().endswith(";"):
        return source
    last = ast.parse(source).body[-1]
    if not isinstance(last, ast.Expr):
        return source
    lines = source.rstrip()[:-1].split("\n")
    line = lines[last.lineno - 1].encode()
    at = last.col_offset  # in bytes
    lines[last.lineno - 1] = (line[:at] + b"_ = " + line[at:]).decode()
    return "\n".join(lines)


# -- what only the authors need ----------------------------------------------
def without_authors(cells: Sequence[Any]) -> list[Any]:
    """A page's cells without those that check it and save its numbers.

    Of a cell with the tag ``remove-cell`` the statements stay that a later
    cell needs.
    """
    programs = {
        at: parse(cell.source)
        for at, cell in enumerate(cells)
        if cell.cell_type == "code"
    }
    modules = only_imported(programs.values())
    kept, live = list[Any](), set[str]()
    for at in range(len(cells) - 1, -1, -1):
        cell, program = cells[at], programs.get(at)
        if program is not None:
            body = ast.parse(program.source).body
            if AUTHORS in cell.metadata.get("tags", []):
                late = called_later(programs[n] for n in programs if n < at)
                body = still_needed(body, live, late, modules)
                if not body:
                    continue
                cell.source = lines_of(program.source, body)
            live = live_before(body, live)
        kept.append(cell)
    return kept[::-1]


def lines_of(source: str, body: Iterable[ast.stmt]) -> str:
    """Some statements as they are written, without the lines between."""
    lines = source.split("\n")
    return "\n".join(
        "\n".join(lines[part.first - 1 : part.last])
        for part in map(statement, body)
    )


def called_later(programs: Iterable[Program]) -> set[str]:
    """The names that functions of some cells read when they are called."""
    return {
        name
        for program in programs
        for part in program.statements
        for name in part.later
    }


def still_needed(
    body: Sequence[ast.stmt], live: set[str], late: set[str], modules: set[str]
) -> list[ast.stmt]:
    """The statements of an author's cell that later cells need.

    Args:
        body: the cell.
        live: names that later cells read before they set them.
        late: names that functions of earlier cells read.
        modules: names that are only imported. A call such as
            ``torch.manual_seed(0)`` is needed, whatever comes later.
    """
    chosen = list[ast.stmt]()
    for node in reversed(body):
        part = statement(node)
        passing = {name for n in ast.walk(node) for name in head_of(n)[0]}
        gives = (part.sets - passing) | (part.changes - modules)
        sets_up = isinstance(node, ast.Expr) and part.changes & modules
        if sets_up or gives & (live | late):
            chosen.append(node)
            live = live_before([node], live)
    return chosen[::-1]


def live_before(body: Sequence[ast.stmt], live: set[str]) -> set[str]:
    """The names whose values matter before some statements.

    Args:
        body: the statements.
        live: those that matter after them.
    """
    for node in reversed(body):
        if isinstance(node, (ast.For, ast.While, ast.If, ast.With)):
            bodies = [node.body, getattr(node, "orelse", [])]
            inner = [live_before(part, live) for part in bodies]
            targets, head = head_of(node)
            live = (set().union(*inner) - targets) | head
        else:
            part = statement(node)
            live = (live - part.sets if part.sure else live) | part.reads
    return live


def head_of(node: ast.AST) -> tuple[set[str], set[str]]:
    """The names that the head of a compound statement sets and reads."""
    parts = list[Any]()
    if isinstance(node, (ast.For, ast.While, ast.If)):
        parts = [getattr(node, n, None) for n in ("target", "iter", "test")]
    for item in getattr(node, "items", []):
        parts += [item.optional_vars, item.context_expr]
    names = [
        name
        for part in parts
        if part
        for name in ast.walk(part)
        if isinstance(name, ast.Name)
    ]
    stored = {n.id for n in names if isinstance(n.ctx, ast.Store)}
    return stored, {n.id for n in names} - stored
