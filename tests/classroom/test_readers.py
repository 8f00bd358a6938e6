"""Readers' notebooks: plain, nothing given away, and the reader's own."""

import ast
import builtins
import copy
import itertools
import json
import re
import subprocess
from pathlib import Path

import nbformat
import pytest

from coursekit_classroom.live import widget
from coursekit_classroom.notebooks import plain, readers
from coursekit_classroom.notebooks.cells import myst_cells
from coursekit_classroom.notebooks.program import parse

ROOT = Path(__file__).resolve().parents[2]
# Pages that have code, found without a run.
PAGES = [
    path.relative_to(ROOT / "book").with_suffix("").as_posix()
    for path in sorted(ROOT.glob("book/**/*.md"))
    if "\nkernelspec:" in path.read_text("utf8")
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What `coursekit notebooks` writes where no chapter was ever run."""
    folder = tmp_path_factory.mktemp("reader") / "notebooks"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "built", lambda root, name, notebook: notebook)
        assert readers.write_all(ROOT, folder) == ([], [])
    return folder


# -- every chapter -----------------------------------------------------------
CODE = re.compile(r"^( *)(`{3,}).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
CLOSED = re.compile(r"<details.*?</details>", re.DOTALL)


def solutions(source):
    """The code of each solution."""
    for token in plain.blocks_in(source):
        said = plain.Directive.of(token)
        if said and said.name == "solution":
            yield from re.findall(r"```python\n(.*?)```", said.body, re.S)


def faults(notebook, source):
    """What a reader should not see, by name."""
    text = "\n\n".join(
        c.source for c in notebook.cells if c.cell_type == "markdown"
    )
    code = readers.code_cells(notebook)
    seen = CLOSED.sub("", text) + "\n".join(c.source for c in code)
    hidden = [c for c in code if readers.AUTHORS in c.metadata.get("tags", [])]
    found = {
        "MyST": plain.LEFT.search(CODE.sub("", text)),
        "a directive's fence": re.search(r"^ *[`~:]{3,}\{", text, re.M),
        "an option": re.search(r"^ *:(correct|chapter):", text, re.M),
        "a solution": any(lines in seen for lines in solutions(source)),
        "an author's check": any(
            isinstance(node, ast.Assert) or ast.unparse(node)[:5] == "glue("
            for cell in hidden
            for node in ast.parse(cell.source).body
        ),
        "a result": any(
            c.outputs for c in code if "predict" in c.metadata.get("tags", [])
        ),
    }
    return sorted(name for name, wrong in found.items() if wrong)


@pytest.mark.parametrize("page", PAGES)
def test_a_notebook_is_plain_and_gives_nothing_away(folder, page):
    notebook = nbformat.read(folder / f"{page}.ipynb", as_version=4)
    source = (ROOT / "book" / f"{page}.md").read_text("utf8")
    assert faults(notebook, source) == []
    written = notebook.metadata["coursekit"]["written"]
    assert written == readers.digest(notebook.cells)


def undefined(cells):
    """The names that code reads and no cell before has defined."""
    known, missing = set(dir(builtins)), set()
    for cell in cells:
        for part in parse(cell.source).statements:
            missing |= part.now - known - part.sets
            known |= part.sets
    return missing - {"get_ipython"}


@pytest.mark.parametrize("page", PAGES)
def test_no_cell_lacks_what_an_authors_cell_defined(folder, page):
    notebook = nbformat.read(folder / f"{page}.ipynb", as_version=4)
    assert undefined(readers.code_cells(notebook)) == set()


def test_a_cell_that_lacks_a_name_is_found(folder):
    notebook = nbformat.read(folder / "04_attention.ipynb", as_version=4)
    cells = readers.code_cells(notebook)
    [needed] = [c for c in cells if "\nq, k, v = X" in c.source]
    cells.remove(needed)
    assert undefined(cells) == {"q", "k", "v"}


def test_what_a_reader_should_not_see_is_found():
    """The page itself, as Jupyter opened it once, with a result."""
    source = (ROOT / "book/04_attention.md").read_text("utf8")
    raw = readers.pages_of(ROOT)["book/04_attention"]
    shown = nbformat.from_dict(json.loads(json.dumps(raw)))
    for cell in readers.code_cells(shown):
        cell.outputs = [nbformat.v4.new_output("stream", text="seen")]
    assert len(faults(shown, source)) == 6


def test_there_is_a_notebook_of_every_page_with_code(folder):
    written = sorted(folder.rglob("*.ipynb"))
    names = [p.relative_to(folder).with_suffix("").as_posix() for p in written]
    assert sorted(names) == sorted(PAGES)


def test_a_closed_cell_begins_with_what_opens_it_on_the_page(folder):
    notebook = nbformat.read(folder / "04_attention.ipynb", as_version=4)
    closed = [
        cell.source.partition("\n")[0]
        for cell in readers.code_cells(notebook)
        if cell.metadata.get("jupyter") == {"source_hidden": True}
    ]
    assert closed[1] == "# The set-up of this page"
    assert closed.count("# How this figure is drawn") > 3


def test_every_closed_cell_says_what_it_holds(folder):
    """Its first line is all that is seen of it."""
    for path in folder.rglob("*.ipynb"):
        for cell in readers.code_cells(nbformat.read(path, as_version=4)):
            if "jupyter" in cell.metadata:
                assert cell.source.startswith("# "), cell.source


def test_what_a_file_does_when_it_is_run_is_shown_and_not_run(folder):
    """In a notebook it would take Jupyter's arguments for its own."""
    main, shown = 'if __name__ == "__main__":', set()
    for path in folder.rglob("*.ipynb"):
        for cell in nbformat.read(path, as_version=4).cells:
            if main in cell.source:
                assert cell.cell_type == "markdown", path
                shown.add(path.stem)
    assert "12_generation" in shown


def test_links_between_pages_lead_from_notebook_to_notebook(folder):
    found = []
    for path in folder.rglob("*.ipynb"):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "markdown":
                found += [
                    (path, target)
                    for target in re.findall(
                        r"\[[^]]+\]\(([\w./-]{2,})\)", cell.source
                    )
                ]
    lost = [(p, t) for p, t in found if not (p.parent / t).is_file()]
    assert lost == []
    assert (folder / "index.ipynb", "04_attention.ipynb") in found
    further = folder / "further/09_decoder.ipynb"
    assert (further, "../09_decoder.ipynb") in found


def test_a_live_figure_says_how_it_is_used_in_a_notebook(folder):
    """Where its caption asks to type and to choose, there is a picture."""
    shown = set()
    for path in folder.rglob("*.ipynb"):
        cells = nbformat.read(path, as_version=4).cells
        for cell, after in itertools.pairwise(cells):
            if f"{readers.STILL}(" not in cell.source:
                continue
            if code := re.search(r"`(live\.show\(.*\))`", after.source):
                call = ast.parse(code[1], mode="eval").body
                shown.add(ast.literal_eval(call.args[2]))
            else:
                assert readers.ON_PAGE in after.source
    assert shown == set(widget.KINDS)


def test_what_a_lesson_redefines_is_the_packages_own_again(folder):
    """Chapter 9's exercises need the package's `GPT`, not the file's."""
    notebook = nbformat.read(folder / "09_decoder.ipynb", as_version=4)
    sources = [cell.source for cell in readers.code_cells(notebook)]
    at = next(n for n, s in enumerate(sources) if "class GPT(nn" in s)
    assert sources[at + 1].startswith(readers.AGAIN)
    assert "from coursekit import GPT" in sources[at + 1].split("\n")


def test_what_is_left_of_an_authors_cell_has_no_outputs():
    pages, name = readers.pages_of(ROOT), "book/09_decoder"
    notebook = copy.deepcopy(pages[name])
    for cell in readers.code_cells(notebook):
        cell.outputs = [nbformat.v4.new_output("stream", text="printed")]
    page = plain.Page(plain.Pages(ROOT, {}, pages), name, notebook)
    cells = readers.code_cells(readers.for_reader(notebook, page))
    left = [c for c in cells if c.source.startswith(f"# {readers.NEEDED}")]
    assert left
    assert not any(cell.outputs for cell in left)
    assert any(cell.outputs for cell in cells)  # those of other cells stay


def test_the_numbers_that_pages_quote_are_recorded():
    """All of them, and no other: each is found without a run."""
    book = plain.Pages(ROOT, {}, readers.pages_of(ROOT))
    quoted = {}
    for name, notebook in readers.pages_of(ROOT).items():
        page = plain.Page(book, name, notebook)
        if readers.code_cells(notebook):
            readers.for_reader(notebook, page)
        if page.quoted:
            quoted[name] = page.quoted
    assert quoted == book.numbers
    assert "…" not in {text for page in quoted.values() for text in page}


@pytest.mark.parametrize(
    ("cells", "left"),
    [
        (["a = 1\nassert a\nb = 2", "b"], "b = 2"),
        (["a = 1\nb = a + 1\nassert b", "print(b)"], "a = 1\nb = a + 1"),
        (['a = 1\nassert a\nglue("a", a)', "a = 2\na"], ""),
        (["for a in range(3):\n    assert a", "for a in b:\n    a"], ""),
        (["a = []\na.append(1)\nassert a", "a"], "a = []\na.append(1)"),
        (["a = 1\nassert a", "a += 1"], "a = 1"),
        (["a = 1\nassert a", "def f():\n    return a\nf()"], "a = 1"),
        (["a = 1\nassert a", "if b:\n    a = 2\na"], "a = 1"),
        (["import torch\ntorch.manual_seed(0)\nassert b", "b"], None),
    ],
)
def test_of_an_authors_cell_stays_what_a_later_one_needs(cells, left):
    new = nbformat.v4.new_code_cell
    hidden = new(cells[0], metadata={"tags": [readers.AUTHORS]})
    kept = readers.without_authors([hidden, *map(new, cells[1:])])
    found = "\n\n".join(c.source for c in kept[: 1 - len(cells)])
    assert found == (left if left is not None else cells[0][:-9])


# -- the reader's own --------------------------------------------------------
PAGE = """---
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

# Page

{0}

```{{code-cell}} ipython3
a = 1
```
"""


def type_into(path, text):
    """Change the last cell of a notebook, and run it, as Jupyter does."""
    data = json.loads(path.read_text("utf8"))
    data["cells"][-1]["source"] = text.splitlines(keepends=True)
    data["cells"][-1]["outputs"] = [
        {"output_type": "stream", "name": "stdout", "text": "1\n"}
    ]
    path.write_text(json.dumps(data), "utf8")
    return path.read_bytes()


def test_what_was_typed_is_kept(tmp_path):
    """And a changed chapter lies next to it, however often it changes."""
    root, folder = tmp_path / "checkout", tmp_path / "mine"
    (root / "book").mkdir(parents=True)
    (root / "_config.yml").write_text("{}")

    def start(text):
        (root / "book/04_tiny.md").write_text(PAGE.format(text))
        readers.pages_of.cache_clear()
        return readers.write_all(root, folder)

    first, second = folder / "04_tiny.ipynb", folder / "04_tiny-2.ipynb"
    assert start("One.") == ([], [])
    assert start("Two.") == ([], [])  # nothing was typed: it is replaced
    assert "Two." in first.read_text("utf8")
    ran = type_into(first, "a = 1")
    assert start("Two.") == ([], [])
    assert first.read_bytes() == ran  # its outputs stay
    mine = type_into(first, "a = 2")
    assert start("Two.") == (["04_tiny.ipynb"], [])
    assert start("Three.") == (["04_tiny.ipynb"], ["04_tiny-2.ipynb"])
    assert start("Four.") == ([], [])
    assert "Four." in second.read_text("utf8")
    type_into(second, "a = 3")
    assert start("Five.") == (["04_tiny-2.ipynb"], ["04_tiny-3.ipynb"])
    assert first.read_bytes() == mine
    (folder / "04_tiny-3.ipynb").write_text("no notebook")
    assert start("Five.") == (["04_tiny-3.ipynb"], ["04_tiny-4.ipynb"])
    readers.pages_of.cache_clear()


def test_make_lab_serves_the_readers_folder_which_git_ignores():
    """Whatever Jupyter saves there, no file of the book can change."""
    lines = (ROOT / "Makefile").read_text("utf8").partition("\nlab: ")[2]
    recipe = lines.partition("\n\n")[0]
    assert "root_dir=my_notebooks " in recipe
    assert readers.FOLDER == "my_notebooks"
    ignored = subprocess.run(
        ["git", "check-ignore", "-q", "my_notebooks/04_attention.ipynb"],
        cwd=ROOT,
    )
    assert ignored.returncode == 0


def test_both_readers_of_chapters_see_the_same_cells():
    """Those of the grader and of the command."""
    for name, notebook in readers.pages_of(ROOT).items():
        cells = myst_cells((ROOT / f"{name}.md").read_text("utf8"))
        assert [c.source for c in cells] == [c.source for c in notebook.cells]
