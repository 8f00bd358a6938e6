"""Run the chapters into the book's cache and export them as notebooks.

    python sphinx_ext/notebooks.py                       # all of them
    python sphinx_ext/notebooks.py book/04_attention     # these alone

1. If anything that a chapter computes with has changed (the package, the
   results, the lock), the cache and Sphinx's doctrees are thrown away:
   neither notices by itself, and the text would quote old numbers.
2. Every chapter that is not in the cache is run by nbval (`nbval_plugin.py`),
   three at a time, those that take longest first; then the ten slowest cells
   are printed. A chapter that fails does not hide the others.
3. Every chapter is written, with its outputs, to ``_build/notebooks``
   (`make compare` runs these again and compares), and as a reader should get
   it (:mod:`coursekit_classroom.notebooks.readers`) to ``_build/readers``.
4. The numbers that the pages quote are written to ``_build/numbers.json``. A
   test compares them with ``book/numbers.json``, which lets
   ``coursekit notebooks`` quote them without a run.
"""

import functools
import hashlib
import json
import os
import re
import shutil
import sys
from pathlib import Path

import nbformat
import pytest
import yaml
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from myst_nb.core.read import read_myst_markdown_notebook
from myst_parser.config.main import MdParserConfig

from coursekit_classroom.notebooks import plain
from coursekit_classroom.notebooks.readers import code_cells, for_reader

# Thousands of cells have options, which libyaml reads in a tenth of the time.
yaml.SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

WORKERS = 3  # on two cores: a kernel that starts or ends waits
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
INPUTS = ("coursekit", "coursekit_classroom", "results", "requirements.txt")
# Of these the pages quote nothing that a chapter computes.
NO_INPUT = ("results/chapters.json", "results/chapters.py")


@functools.cache
def config(root):
    """Contents of _config.yml."""
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


def missing(root, only=None):
    """``(page, notebook)`` of the chapters that the cache does not have."""
    cache = get_cache(Path(root, "_build", ".jupyter_cache"))
    for page, notebook in chapters(root, only):
        try:
            cache.match_cache_notebook(notebook)
        except KeyError:
            yield page, notebook


def ask_for_svg():
    """Make the chapters store their figures as SVG too, for the book."""
    os.environ["COURSEKIT_FIGURES"] = "svg"


def execute(root, only=None):
    """Let nbval run what the cache does not have; the pages that failed."""
    ask_for_svg()
    invalidate(root)
    cache = get_cache(Path(root, "_build", ".jupyter_cache"))
    todo = dict(missing(root, only))
    folder = Path(root, "_build", "running")
    shutil.rmtree(folder, ignore_errors=True)
    for page, notebook in todo.items():
        number_cells(notebook)
        write(notebook, folder / f"{page}.ipynb")
    if todo:
        nbval(root, folder, workers=min(WORKERS, len(todo)))
    failed = []
    for page in todo:
        ran = nbformat.read(folder / f"{page}.ipynb", as_version=4)
        if not any(cell.execution_count for cell in code_cells(ran)):
            failed.append(page)
            continue
        join_streams(ran)
        source = str(Path(root, page + ".md").resolve())
        cache.cache_notebook_bundle(
            CacheBundleIn(ran, source), check_validity=False, overwrite=True
        )
    shutil.rmtree(folder, ignore_errors=True)
    return failed


def nbval(root, folder, workers):
    """Run every notebook of a folder, and print the slowest cells."""
    pytest.main(
        [
            *(str(folder), "--nbval", "--nbval-kernel-name=python3"),
            f"--nbval-cell-timeout={config(root)['execute']['timeout']}",
            *("-p", "nbval_plugin", "-p", "no:cacheprovider"),
            *("-c", os.devnull, f"--rootdir={root}", "--durations=10", "-q"),
            *(f"-n{workers}", "--dist=loadfile") * (workers > 1),
        ]
    )


def write(notebook, path):
    """Write a notebook."""
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)


def number_cells(notebook):
    """Name the cells by their number: else random, and never reproducible."""
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"


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
    build = Path(root, "_build")
    written = {page: read(root, page) for page in pages(root)}
    book = plain.Pages(root, config(root), written)
    numbers = dict(book.numbers)
    for kind in ("notebooks", "readers"):
        shutil.rmtree(build / kind, ignore_errors=True)
    for page in only or pages(root):
        notebook = written[page]
        if not code_cells(notebook):
            continue
        _, ran = cache.merge_match_into_notebook(notebook)
        drop_svg(ran)
        number_cells(ran)
        shown = plain.Page(book, page, ran)
        for kind, nb in (
            ("notebooks", ran),
            ("readers", for_reader(ran, shown)),
        ):
            write(nb, build / kind / f"{page}.ipynb")
        numbers[page] = shown.quoted
    kept = {page: numbers[page] for page in sorted(numbers) if numbers[page]}
    text = json.dumps(kept, indent=1, ensure_ascii=False, sort_keys=True)
    (build / "numbers.json").write_text(text + "\n", "utf8")
    if not book.hide_solutions:  # which quote numbers, too
        print(*drift(book.numbers, kept), sep="\n", end="")


def drift(recorded, found):
    """Lines that say which quoted numbers are not those of ``book/``.

    Another processor may round a number differently: two units of its last
    digit, or 5 %, are no difference.

    Args:
        recorded: what ``book/numbers.json`` holds.
        found: what the build has found.
    """
    lines = []
    for page in sorted({*recorded, *found}) if recorded else ():
        was, now = recorded.get(page, {}), found.get(page, {})
        lines += [
            f"{page}: {name} is {now.get(name)}, recorded as {was.get(name)}\n"
            for name in sorted({*was, *now})
            if not alike(was.get(name), now.get(name))
        ]
    if lines:
        lines.append("If so it should be: cp _build/numbers.json book/\n")
    return lines


def alike(one, other):
    """True if two texts agree but for rounding in their numbers."""
    if one is None or other is None:
        return False
    if NUMBER.sub("#", one) != NUMBER.sub("#", other):
        return False

    def near(a, b):
        digits = len(a.partition(".")[2])
        a, b = (float(text.replace(",", "")) for text in (a, b))
        units = 2.01 * 10**-digits if digits else 0
        return abs(a - b) <= max(units, 0.05 * abs(a))

    numbers = zip(NUMBER.findall(one), NUMBER.findall(other), strict=True)
    return all(near(*pair) for pair in numbers)


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
