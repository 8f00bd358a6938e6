"""Run the chapters into the book's cache and export them as notebooks.

    python sphinx_ext/notebooks.py                       # all of them
    python sphinx_ext/notebooks.py book/04_attention     # these alone

1. If anything that a chapter computes with has changed (the package, the
   results, the lock), the cache and Sphinx's doctrees are thrown away:
   neither notices by itself, and the text would quote old numbers.
2. Every chapter that is not in the cache is run, three at a time, those that
   take longest first, and the time it took is printed; after all, the ten
   slowest cells. A chapter that fails does not hide the others.
3. Every chapter is written, with its outputs, to ``_build/notebooks``
   (nbval runs these again and compares), and as a reader should get it to
   ``_build/readers``: in plain Markdown, the answers of predictions removed,
   and a first cell that installs the package where it is missing.
"""

import ast
import copy
import functools
import hashlib
import json
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import nbformat
import yaml
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from jupyter_cache.executors.utils import single_nb_execution
from myst_nb.core.read import read_myst_markdown_notebook
from myst_parser.config.main import MdParserConfig

sys.path.insert(0, str(Path(__file__).parent))
import kernels
import plain

from coursekit.classroom.grading.install import install_cell, published

# Thousands of cells have options, which libyaml reads in a tenth of the time.
yaml.SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

WORKERS = 3  # on two cores: a kernel that starts or ends waits
SLOWEST = 10  # cells, of all chapters, that are listed with their time
INPUTS = ("coursekit", "results", "requirements.txt")
# Of these the pages quote nothing that a chapter computes.
NO_INPUT = ("results/chapters.json", "results/chapters.py")

# Cells whose code the page folds away or leaves out.
FOLDED = {"hide-input", "hide-cell", "remove-input", "remove-cell"}


@functools.cache
def config(root):
    """What _config.yml says, as a dictionary."""
    return yaml.safe_load(Path(root, "_config.yml").read_text("utf8"))


def pages(root):
    """Every page that _toc.yml names, in reading order, without suffix."""

    def walk(node):
        if isinstance(node, list):
            for child in node:
                yield from walk(child)
            return
        for key in ("root", "file"):
            if key in node:
                yield node[key]
        for key in ("parts", "chapters", "sections"):
            yield from walk(node.get(key, []))

    toc = yaml.safe_load(Path(root, "_toc.yml").read_text("utf8"))
    return list(walk(toc))


def read(root, page):
    """The page as a notebook, read the way the book's build reads it.

    The cache finds a notebook by a hash of its code cells; another reader
    could differ by a blank, and every chapter would run twice.
    """
    extensions = config(root)["parse"]["myst_enable_extensions"]
    text = Path(root, page + ".md").read_text("utf8")
    return read_myst_markdown_notebook(
        text, MdParserConfig(enable_extensions=extensions)
    )


def code_cells(notebook):
    """The cells that run."""
    return [c for c in notebook.cells if c.cell_type == "code"]


def chapters(root, only=None):
    """``(page, notebook)`` for every page that has code, or those ``only``."""
    read_in = ((page, read(root, page)) for page in only or pages(root))
    return [(page, nb) for page, nb in read_in if code_cells(nb)]


def fingerprint(root):
    """A hash of everything that the chapters compute with."""
    digest = hashlib.sha256()
    for part in INPUTS:
        path = Path(root, part)
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            name = file.relative_to(root).as_posix()
            if name in NO_INPUT or "__pycache__" in file.parts:
                continue
            if file.is_file():
                digest.update(name.encode())
                digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def invalidate(root):
    """Throw the cache away if it was made with other inputs."""
    build = Path(root, "_build")
    stamp = build / ".inputs"
    now = fingerprint(root)
    if not stamp.exists() or stamp.read_text() != now:
        for stale in (".jupyter_cache", ".doctrees"):
            shutil.rmtree(build / stale, ignore_errors=True)
        build.mkdir(exist_ok=True)
        stamp.write_text(now)


def join_streams(notebook):
    """Join what a cell printed in several messages.

    A kernel may send its output in the middle of a line, and MyST-NB would
    break the line there.
    """
    for cell in code_cells(notebook):
        joined = []
        for output in cell.outputs:
            last = joined[-1] if joined else {}
            if output.output_type == "stream" and (
                last.get("name") == output.name
            ):
                last.text += output.text
            else:
                joined.append(output)
        cell.outputs = joined


def take_times(notebook):
    """``(seconds, first line)`` of each cell that ran; forget when it did."""
    times = []
    for cell in code_cells(notebook):
        when = cell.metadata.pop("execution", {})
        ends = [when.get(f"iopub.status.{end}") for end in ("busy", "idle")]
        if all(ends):
            busy, idle = map(datetime.fromisoformat, ends)
            lines = cell.source.strip().splitlines() or [""]
            times.append(((idle - busy).total_seconds(), lines[0]))
    return times


def recorded_seconds(root):
    """What each page took when it was last measured; 0 where it was not."""
    path = Path(root, "results", "chapters.json")
    pages = {}
    if path.is_file():
        pages = json.loads(path.read_text("utf8"))["metrics"]["pages"]
    return lambda page: pages.get(page, {}).get("seconds", 0)


def missing(root, only=None):
    """``(page, notebook)`` of the chapters that the cache does not have."""
    cache = get_cache(Path(root, "_build", ".jupyter_cache"))
    for page, notebook in chapters(root, only):
        try:
            cache.match_cache_notebook(notebook)
        except KeyError:
            yield page, notebook


def ask_for_svg():
    """Let the chapters encode their figures as SVG too, for the book."""
    os.environ["COURSEKIT_FIGURES"] = "svg"


def execute(root, only=None):
    """Run what the cache does not have; return the pages that failed."""
    ask_for_svg()
    invalidate(root)
    cache = get_cache(Path(root, "_build", ".jupyter_cache"))
    timeout = config(root)["execute"]["timeout"]
    seconds = recorded_seconds(root)
    todo = sorted(missing(root, only), key=lambda job: -seconds(job[0]))

    def start(page, notebook):
        return single_nb_execution(
            notebook,
            cwd=str(Path(root, page).parent.resolve()),
            timeout=timeout,
            allow_errors=False,
            record_timing=True,
        )

    def run(job):
        try:
            return start(*job)
        except RuntimeError:  # somebody took the port that it had chosen
            return start(*job)

    if not todo:
        return []
    failed, spent = [], []
    with kernels.ready(), ThreadPoolExecutor(WORKERS) as pool:
        for (page, notebook), done in zip(
            todo, pool.map(run, todo), strict=True
        ):
            # Taken out again, or each build would write other notebooks.
            spent += [(s, page, line) for s, line in take_times(notebook)]
            if done.err is not None:
                failed.append(page)
                print(f"{page}: failed\n{done.exc_string}", file=sys.stderr)
                continue
            print(f"{page}: ran in {done.time:.1f} s", flush=True)
            join_streams(notebook)
            cache.cache_notebook_bundle(
                CacheBundleIn(
                    notebook,
                    str(Path(root, page + ".md").resolve()),
                    data={"execution_seconds": done.time},
                ),
                check_validity=False,
                overwrite=True,
            )
    for seconds, page, line in sorted(spent, reverse=True)[:SLOWEST]:
        print(f"{seconds:7.1f} s  {page}: {line}", flush=True)
    return failed


@functools.cache
def defined(source):
    """The names that a cell's code defines or imports."""
    return frozenset(
        name
        for statement in plain.parse(source).statements
        for name in statement.sets
    )


def with_lessons(cell, page, before):
    """A Markdown cell in plain Markdown; its lessons are cells that run.

    What the cells ``before`` define is not imported a second time.
    """
    known, cells = set(), []
    pieces = list(plain.cut(cell.source, "lesson"))
    if any(said for _, said in pieces):
        for earlier in before:
            if earlier.cell_type == "code":
                known |= defined(earlier.source)
    for number, (text, said) in enumerate(pieces):
        text = page.convert(text)
        if text:
            cells.append(nbformat.v4.new_markdown_cell(text))
            cells[-1].id = f"{cell.id}-{number}" if number else cell.id
        if said:
            source = plain.lesson_cell(*page.lesson(said), known)
            known |= defined(source)
            cells.append(nbformat.v4.new_code_cell(source))
            cells[-1].id = f"{cell.id}-{number}-lesson"
    return cells


def without_semicolon(source):
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


def for_reader(notebook, install, page):
    """The notebook that a reader downloads or opens in Colab or Binder.

    ``install`` is the source of its first cell. ``page`` is a
    :class:`plain.Page`, which knows how to say in Markdown what the chapter
    says in MyST.
    """
    notebook = copy.deepcopy(notebook)
    cells = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cells += with_lessons(cell, page, cells)
            continue
        cells.append(cell)
        cell.source = without_semicolon(cell.source)
        tags = set(cell.metadata.get("tags", []))
        if tags & FOLDED:
            cell.metadata["jupyter"] = {"source_hidden": True}
            cell.metadata["cellView"] = "form"  # the same in Colab
        if "predict" in tags:
            cell.outputs, cell.execution_count = [], None
            cell.metadata["tags"] = [*sorted(tags), "nbval-ignore-output"]
        figure = cell.metadata.get("mystnb", {}).get("figure", {})
        if "caption" in figure:
            caption = page.caption(figure["caption"], "predict" in tags)
            cells.append(nbformat.v4.new_markdown_cell(caption))
            cells[-1].id = f"{cell.id}-caption"
    notebook.cells = cells
    first = nbformat.v4.new_code_cell(install)
    first.id = "install"
    at = next(i for i, c in enumerate(notebook.cells) if c.cell_type == "code")
    notebook.cells.insert(at, first)
    return notebook


def drop_svg(notebook):
    """Leave a notebook the PNG alone of what was encoded as both.

    Its ground is white, whatever the program's; the SVG has none, and some
    programs show it not at all.
    """
    for cell in code_cells(notebook):
        for output in cell.outputs:
            if "image/png" in output.get("data", {}):
                output.data.pop("image/svg+xml", None)


def export(root, only=None):
    """Write both kinds of notebook; ``KeyError`` if one never ran."""
    cache = get_cache(Path(root, "_build", ".jupyter_cache"))
    settings, address = config(root), published(root)
    install = install_cell(address.repository, address.tag)
    build = Path(root, "_build")
    written = {page: read(root, page) for page in pages(root)}
    book = plain.Pages(root, settings, written)
    for kind in ("notebooks", "readers"):
        shutil.rmtree(build / kind, ignore_errors=True)
    for page in only or pages(root):
        notebook = written[page]
        if not code_cells(notebook):
            continue
        _, ran = cache.merge_match_into_notebook(notebook)
        drop_svg(ran)
        for number, cell in enumerate(ran.cells):
            cell.id = f"cell-{number}"  # else random, and never reproducible
        for kind, nb in (
            ("notebooks", ran),
            ("readers", for_reader(ran, install, plain.Page(book, page, ran))),
        ):
            target = build / kind / f"{page}.ipynb"
            target.parent.mkdir(parents=True, exist_ok=True)
            nbformat.write(nb, target)


def main(*only, root="."):
    """Execute, then export; 1 if a chapter failed."""
    failed = execute(root, only)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
        return 1
    export(root, only)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
