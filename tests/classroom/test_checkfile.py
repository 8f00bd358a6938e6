"""``coursekit check FILE``: all answers of a file, and only what they need."""

import json
import os
import re
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from coursekit_classroom.check.report import Report
from coursekit_classroom.notebooks import checkfile
from coursekit_classroom.notebooks.cells import NotebookError
from coursekit_classroom.notebooks.checkfile import check_file
from coursekit_classroom.notebooks.declared import declared

ROOT = Path(__file__).resolve().parents[2]
CHAPTER = ROOT / "book" / "04_attention.md"
RIGHT = """\
def attend_yourself(q, k, v, mask=None):
    scores = half(q @ k.mT) * 2 / q.size(-1) ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1) @ v
"""


@pytest.fixture
def book(tmp_path):
    """``book(*cells)``: a notebook; a cell is a source, or (id, source)."""

    def book(*cells, name="mine.ipynb"):
        made = []
        for cell in cells:
            cell = cell if isinstance(cell, tuple) else (None, cell)
            id, source, *more = cell
            metadata = {"exercise": id} if id else {}
            metadata |= {"variants": more} if more else {}
            made.append(
                {"cell_type": "code", "source": source, "metadata": metadata}
            )
        path = tmp_path / name
        path.write_text(json.dumps({"cells": made, "nbformat": 4}))
        return path

    return book


def statuses(path, *only):
    return {r.id: r.status for r in check_file(path, only)}


def test_a_chapter_as_it_stands_is_not_attempted(capsys):
    assert checkfile.run(Namespace(file=str(CHAPTER), only=None)) == 0
    text = capsys.readouterr().out
    assert text.endswith("4 not attempted\n")
    ids = [d.id for d in declared(CHAPTER)]
    assert re.findall(r"^– ([\w/]+): not attempted$", text, re.M) == ids


def test_answers_in_a_chapter(tmp_path, capsys):
    """Helpers and imports run; the chapter's experiments don't."""
    text = CHAPTER.read_text("utf8")
    stub = "def attend_yourself(q, k, v, mask=None):\n    ...\n"
    helper = "def half(x):\n    return x / 2\n\n\n"
    wrong = "def attend_in_blocks(q, k, v, block=4):\n"
    assert text.count(stub) == text.count(wrong + "    ...") == 1
    text = text.replace(stub, helper + RIGHT)
    path = tmp_path / "04_attention.md"
    path.write_text(text, "utf8")
    assert checkfile.run(Namespace(file=str(path), only=None)) == 0
    assert "1 passed, 3 not attempted" in capsys.readouterr().out
    text = text.replace(
        wrong + "    ...", wrong + "    return (q @ k.mT).softmax(-1) @ v"
    )
    path.write_text(text, "utf8")
    assert checkfile.run(Namespace(file=str(path), only=None)) == 1
    said = capsys.readouterr().out
    assert "1 passed, 1 wrong, 2 not attempted" in said
    assert "behaves exactly like: the scores without 1/√D_h" in said
    assert checkfile.run(Namespace(file=str(path), only=["attend"])) == 0
    assert capsys.readouterr().out.endswith("1 passed\n")


def test_only_what_an_answer_needs_is_run(book, monkeypatch):
    path = book(
        "import torch\nimport no_such_module",
        "ran = []\ntorch.no_such_name\nraise SystemExit",
        "def half(x):\n    return x / 2",
        "assert False\nprint(1 / 0)",
        ("attention/attend", RIGHT + "attend_yourself(1, 2, 3)"),
        "import coursekit\ncoursekit.check('attention/attend', 1 / 0)",
    )
    assert statuses(path) == {"attention/attend": "passed"}


def test_a_check_says_what_counts_where_no_cell_is_marked(book):
    path = book(
        "import coursekit",
        "def half(x):\n    return x / 2",
        RIGHT + "\n\ncoursekit.check('attention/attend', attend_yourself)",
        "def f(q, k, v):\n    ...",
        "coursekit.check(id='attention/mended', function=lambda *x: f(*x))",
    )
    assert statuses(path) == {
        "attention/attend": "passed",
        "attention/mended": "not attempted",
    }


def test_the_convention_that_was_asked_for_counts(book):
    """The check says it, or the cell that was given out."""
    id, half = "attention/attend", "def half(x):\n    return x / 2"
    hides = RIGHT.replace("~mask", "mask")
    check = (
        f"coursekit.check({id!r}, attend_yourself, variants=['true_hides'])"
    )
    for cells in ([(id, hides), check], [(id, hides, "true_hides")]):
        assert statuses(book(half, *cells)) == {id: "passed"}
    for cells in ([(id, RIGHT), check], [(id, RIGHT, "true_hides")]):
        assert statuses(book(half, *cells)) == {id: "wrong"}
    assert statuses(book(half, (id, RIGHT, "no_such"))) == {id: "error"}


def test_a_test_of_ones_own_is_left_to_the_grader(book):
    id = "attention/attend"
    half, test = (
        "def half(x):\n    return x / 2",
        "def tells(f):\n    return 1",
    )
    path = book(half, (id, RIGHT), (f"{id}:test", test))
    found = {r.id: r for r in check_file(path)}
    assert found[id].status == "passed"
    assert found[f"{id}:test"].status == "not attempted"
    assert "when it is graded" in found[f"{id}:test"].message


def test_problems_are_reported_where_they_matter(book):
    attend = "def attend_yourself(q, k, v, mask=None):\n    "
    path = book(
        "value = 1 / 0",
        ("attention/attend", attend + "return value"),
        ("attention/mended", "def mended(q, k, v):\nreturn q"),
        ("attention/temperature", "import os"),
        ("attention/loud", "def loud_but_idle():\n    import nothing_here"),
        ("attention/nothing", "def f():\n    return 1"),
    )
    said = {r.id: r for r in check_file(path)}
    assert {id: r.status for id, r in said.items()} == {
        "attention/attend": "error",
        "attention/mended": "error",
        "attention/temperature": "not attempted",
        "attention/loud": "error",
        "attention/nothing": "error",
    }
    assert "name 'value' is not defined" in said["attention/attend"].message
    assert "Cell 3 is not Python in its line 2" in (
        said["attention/mended"].message
    )
    assert "nothing_here" in said["attention/loud"].message
    assert "Near it" in said["attention/nothing"].message
    path = book(
        "raise_ = 1 / 0\nVALUE = 3",
        ("attention/attend", "half = VALUE / 0\n" + RIGHT),
    )
    [report] = check_file(path)
    assert report.status == "error"
    assert "Cell 2 raised ZeroDivisionError" in report.message
    assert "in line 1: half = VALUE / 0" in report.message


def test_the_line_that_raised_is_quoted(book):
    source = "\n\ndef attend_yourself(q, k, v, mask=None):\n    return 1 / 0"
    [report] = check_file(book(("attention/attend", source)))
    assert "in line 4: return 1 / 0" in report.message


def test_it_runs_in_the_files_folder(book, tmp_path):
    (tmp_path / "mine_too.py").write_text("HALF = 0.5\n")
    before = os.getcwd(), list(sys.path)
    path = book(
        "from mine_too import HALF",
        "from pathlib import Path\nhere = Path.cwd()",
        "def half(x):\n    assert (here / 'mine_too.py').exists()\n"
        "    return x * HALF",
        ("attention/attend", RIGHT),
    )
    assert statuses(path) == {"attention/attend": "passed"}
    assert (os.getcwd(), sys.path) == before


def test_a_file_that_hides_a_module_is_named(book, tmp_path):
    (tmp_path / "tokenize.py").write_text("")
    path = book("import tokenize", ("attention/attend", RIGHT))
    with pytest.raises(ValueError, match=r"tokenize\.py\. Rename it"):
        list(check_file(path))


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.ipynb", b"{", "is no notebook"),
        ("a.ipynb", b'{"cells": []}', "no exercises that can be checked"),
        ("a.md", b"# Nothing\n", "no exercises that can be checked"),
        ("a.py", b"print()", "has no exercises"),
    ],
)
def test_a_bad_file_is_an_error(tmp_path, name, data, said):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(NotebookError, match=said):
        list(check_file(tmp_path / name))


def test_options_are_checked(book):
    path = book(("attention/attend", RIGHT))
    with pytest.raises(NotebookError, match="got blocks, and mine"):
        list(check_file(path, ["blocks"]))
    with pytest.raises(NotebookError, match="No such file"):
        list(check_file("nothing.ipynb"))


def test_every_chapter_can_be_checked():
    """Nothing that a stub needs is missing, and nothing is attempted yet."""
    for page in sorted(ROOT.glob("book/**/[0-9][0-9]_*.md")):
        if ":exercise:" not in page.read_text("utf8"):
            continue  # a page in further/ need not have any
        reports = list(check_file(page))
        assert all(isinstance(r, Report) for r in reports)
        assert {r.status for r in reports} == {"not attempted"}, page
