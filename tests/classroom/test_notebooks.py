"""What students hand in is read, whatever state it is in."""

import hashlib
import json
import os
import re
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import pytest
from patience import cpu_seconds

from coursekit_classroom.notebooks.cells import (
    CELLS,
    LARGEST,
    Cell,
    NotebookError,
    myst_cells,
    read_cells,
)
from coursekit_classroom.notebooks.declared import declared, declared_in
from coursekit_classroom.notebooks.program import LONGEST, parse
from coursekit_classroom.teach import judge
from coursekit_classroom.teach.read import bare_names, hash_of, read_submission

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(ROOT.glob("book/**/[0-9][0-9]_*.md"))
ATTEND = SimpleNamespace(id="attention/attend", function="attend", stub="")
BLOCKS = SimpleNamespace(id="attention/blocks", function="blocks", stub="")


def code(*lines, exercise=None, kind="code"):
    """A cell of a notebook's JSON."""
    metadata = {"exercise": exercise} if exercise else {}
    source = "\n".join(lines)
    return {"cell_type": kind, "source": source, "metadata": metadata}


@pytest.fixture
def hand_in(tmp_path):
    """``hand_in(cell, …)``: a submission of one notebook."""

    def hand_in(*cells, wanted=(ATTEND, BLOCKS), name="ada.ipynb", minor=5):
        path = tmp_path / name
        book = {"cells": cells, "nbformat": 4, "nbformat_minor": minor}
        path.write_text(json.dumps(book))
        return read_submission([path], wanted)

    return hand_in


def helpers(submission):
    """What the answers need of other cells, each part once."""
    every = (a.helpers for a in submission.answers.values())
    return list(dict.fromkeys(chain.from_iterable(every)))


def run(submission, id):
    """What an answer's function is, after all that it needs has run."""
    answer, space = submission.answers[id], {}
    for source in (*answer.helpers, answer.source):
        exec(source, space)
    return space[answer.function]


# -- what a chapter asks -----------------------------------------------------
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_a_declared_function_is_the_one_that_is_checked(page):
    """The cell after a stub checks that function under that id."""
    checks = set()
    for cell in read_cells(page):
        found = re.findall(
            r'coursekit\.check\(\s*"([\w/]+)",\s*(\w+)\)', cell.source
        )
        checks |= set(found)
    stubs = declared(page)
    bare = {id for id, _ in checks} - {one.id for one in stubs}
    assert not bare, "declare it in the metadata of its stub (:exercise:)"
    for one in stubs:
        assert one.title, one.id
        assert one.label, one.id
        assert (one.id, one.function) in checks
        assert one.minutes, one.id
        assert one.objective, one.id


def test_chapter_4_declares_its_exercises():
    found = declared(ROOT / "book" / "04_attention.md")
    assert [(d.id, d.function, d.label) for d in found] == [
        ("attention/attend", "attend_yourself", "att-implement"),
        ("attention/mended", "mended", "att-debug"),
        ("attention/stuck_share", "stuck_share", "att-measure"),
        ("attention/blocks", "attend_in_blocks", "att-blocks"),
    ]
    further = declared(ROOT / "book" / "further" / "04_attention.md")
    assert [(d.id, d.function, d.label) for d in further] == [
        ("attention/temperature", "temperature_backward", "att-temperature"),
        ("attention/loud", "loud_but_idle", "att-loud"),
    ]
    first = found[0]
    assert (first.points, first.kind, first.minutes) == (6, "practice", 20)
    assert first.title == "★ Implement: attention"
    assert first.page == "04_attention"


CHAPTER = """---
kernelspec:
  display_name: Python 3
  name: python3
---

# Page

````{exercise} ★ Do it
:class: wide
:label: e-do

Text.
````

```{code-cell} ipython3
:exercise: a/do
METADATA

def do(x):
    ...
```
"""


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        (":points: 0", "above 0: got 0 for a/do"),
        (":points: many", "above 0: got 'many'"),
        (":points: true", "above 0: got True"),
        (":kind: exam", "practice or assessed: got 'exam'"),
        (":minutes: 2.5", "whole number: got 2.5"),
    ],
)
def test_a_wrong_declaration_is_refused(metadata, said):
    cells = myst_cells(CHAPTER.replace("METADATA", metadata))
    with pytest.raises(NotebookError, match=re.escape(said)):
        declared_in(cells, "page")
    good = declared_in(myst_cells(CHAPTER.replace("METADATA", "")), "page")
    assert (good[0].title, good[0].label) == ("★ Do it", "e-do")


def test_an_exercise_has_one_stub():
    cells = myst_cells(CHAPTER.replace("METADATA", ""))
    with pytest.raises(NotebookError, match="got two for a/do"):
        declared_in([*cells, cells[-1]], "page")
    stubless = CHAPTER.replace("METADATA", "").replace("def do(x)", "if x")
    with pytest.raises(NotebookError, match="got none for a/do"):
        declared_in(myst_cells(stubless), "page")


def test_what_is_no_chapter_is_refused(tmp_path):
    with pytest.raises(NotebookError, match="No such file"):
        declared(tmp_path / "no.md")
    (tmp_path / "front.md").write_text("---\na: [\n---\n")
    with pytest.raises(NotebookError, match="jupytext cannot read it"):
        declared(tmp_path / "front.md")


# -- answers -----------------------------------------------------------------
def test_an_answer_comes_with_what_it_needs(hand_in):
    got = hand_in(
        code("import math", "from os import path", "slow = math.sqrt(-1)"),
        code("def half(x):", "    return x / TWO"),
        code("TWO = 2", "numbers = []", "print(1 / 0)"),
        code("numbers.append(7)", "math.nothing()"),
        code(
            "def attend(x):",
            "    slow = half(x)",
            "    return slow, numbers",
            exercise=ATTEND.id,
        ),
        code(
            "def blocks(x):",
            "    return attend(math.floor(x))[0]",
            exercise=BLOCKS.id,
        ),
    )
    assert run(got, ATTEND.id)(6) == (3, [7])
    assert run(got, BLOCKS.id)(6.5) == 3
    assert got.answers[ATTEND.id].helpers == (
        "def half(x):\n    return x / TWO",
        "TWO = 2\nnumbers = []",
        "numbers.append(7)",
    )
    assert got.problems == ()


def test_checks_prints_and_asserts_are_dropped(hand_in):
    got = hand_in(
        code("import coursekit", "coursekit.check = lambda *_: True"),
        code(
            "import coursekit",
            "def attend(x):",
            "    return x",
            "assert attend(1) == 2",
            'coursekit.check("attention/attend", attend)',
            "report = coursekit.check('attention/attend', attend)",
            "print(report)",
            exercise=ATTEND.id,
        ),
    )
    answer = got.answers[ATTEND.id]
    assert answer.source.split("\n") == ["", "def attend(x):", "    return x"]
    assert helpers(got) == []
    assert answer.problem == ""


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        (["%matplotlib inline", "def attend(x):", "    return 1"], 1),
        (["%%time", "def attend(x):", "    return 2"], 2),
        (["", "%%capture out", "def attend(x):", "    return 2"], 2),
        (["if True:", "    !pip install x", "    attend = lambda x: 3"], 3),
        (["files = !ls", "def attend(x):", "    return 4", "attend?"], 4),
        (["attend??", "?attend", "def attend(x): return 5", "!ls; ls"], 5),
        (["def attend(x):", "    return (20", "    % 7)", "%time f()"], 6),
        (["t = %timeit -o f()", "def attend(x): return 7"], 7),
    ],
)
def test_magics_are_neutralized(hand_in, lines, kept):
    got = hand_in(code(*lines, exercise=ATTEND.id))
    assert run(got, ATTEND.id)(0) == kept
    assert got.answers[ATTEND.id].problem == ""


def test_a_cell_of_another_language_is_nothing(hand_in):
    got = hand_in(
        code("%%bash", "def attend", exercise=ATTEND.id),
        code("%%writefile blocks.py", "def blocks(): return 1"),
    )
    assert {a.problem for a in got.answers.values()} == {"missing"}


def test_missing_renamed_and_unmarked(hand_in):
    got = hand_in(
        code("def other(x):", "    return 1"),
        code("def mine(x):", "    return 2", exercise=ATTEND.id),
    )
    assert got.answers[BLOCKS.id].problem == "missing"
    assert got.answers[BLOCKS.id].source == ""
    assert got.answers[BLOCKS.id].function == "blocks"
    assert got.answers[ATTEND.id].problem == "renamed"
    assert run(got, ATTEND.id)(0) == 2
    got = hand_in(code("def attend(x):", "    return 3"))  # the id is lost
    assert got.answers[ATTEND.id].problem == ""
    assert run(got, ATTEND.id)(0) == 3
    got = hand_in(code("attend = lambda x: 4"))
    assert run(got, ATTEND.id)(0) == 4
    got = hand_in(code("import os", exercise=ATTEND.id))
    assert got.answers[ATTEND.id].problem == "missing"


def test_a_split_cell_is_joined(hand_in):
    got = hand_in(
        code("def part(x):", "    return x + 1", exercise=ATTEND.id),
        code("def attend(x):", "    return part(x)"),
    )
    assert run(got, ATTEND.id)(1) == 2
    assert helpers(got) == ["def part(x):\n    return x + 1"]
    assert got.answers[ATTEND.id].problem == ""


def test_of_several_cells_the_last_written_one_counts(hand_in):
    lines = "def attend(x):", '    """Do."""', "    ..."
    stub = code(*lines, exercise=ATTEND.id)
    one = code("def attend(x):", "    return 1", exercise=ATTEND.id)
    two = code("def attend(x):", "    return 2", exercise=ATTEND.id)
    for cells, value in (
        ([one, two], 2),
        ([two, one], 1),
        ([one, two, stub], 2),
        ([stub, one], 1),
    ):
        got = hand_in(*cells)
        assert run(got, ATTEND.id)(0) == value
        answer = got.answers[ATTEND.id]
        assert answer.problem == "duplicate"
        assert cells[answer.cell - 1] == (one, two)[value - 1]
        assert helpers(got) == []
    assert run(hand_in(stub), ATTEND.id)(0) is None


def test_an_answer_counts_in_a_new_cell_too(hand_in):
    """If its own cell holds the stub alone; the control: it is written in."""
    stub = code("def attend(x):", "    ...", exercise=ATTEND.id)
    own = code("def attend(x):", "    return 1", exercise=ATTEND.id)
    new = code("def attend(x):", "    return 2")
    for cells, value, problem in (
        ([stub, new], 2, "elsewhere"),
        ([new, stub], 2, "elsewhere"),
        ([stub, code("def attend(x):", "    return 3"), new], 2, "duplicate"),
        ([own, new], 1, ""),
        ([stub], None, ""),
        ([stub, code("attend = 7")], None, ""),
    ):
        got = hand_in(*cells)
        assert run(got, ATTEND.id)(0) == value
        assert got.answers[ATTEND.id].problem == problem
    got = hand_in(stub, code("def attend(x):", "return 2"))
    assert got.answers[ATTEND.id].problem == "syntax"


@pytest.mark.parametrize("kind", ["markdown", "raw"])
def test_a_marked_cell_that_became_text_is_read(hand_in, kind):
    text = code(
        "def attend(x):", "    return 1", exercise=ATTEND.id, kind=kind
    )
    assert run(hand_in(text), ATTEND.id)(0) == 1
    del text["metadata"]["exercise"]  # the control: a text of theirs
    assert hand_in(text).answers[ATTEND.id].problem == "missing"


def test_what_was_given_out_is_there_where_its_cells_are_deleted(hand_in):
    """The control: a cell of the student's own comes after it."""
    setup = "import math\nN = 1", "def attend(x):\n    return -1"
    want = SimpleNamespace(**vars(ATTEND), setup=setup)
    own = code("def attend(x):", "    return math.inf * N", exercise=ATTEND.id)
    assert run(hand_in(own, wanted=[want]), ATTEND.id)(0) == float("inf")
    got = hand_in(code("N = -1"), own, wanted=[want])
    assert run(got, ATTEND.id)(0) == -float("inf")
    got = hand_in(wanted=[want])  # what is given out is no answer
    assert got.answers[ATTEND.id].problem == "missing"


def test_a_broken_cell_harms_no_other(hand_in):
    got = hand_in(
        code("import math", "x = = 1"),
        code("def attend(x):", "return x", exercise=ATTEND.id),
        code("def blocks(x):", "    return x", exercise=BLOCKS.id),
        code("a\0b"),
        code("(" * 5000),
        code("-" * 90_000 + "1"),
        code("x" * (LONGEST + 1)),
    )
    assert run(got, BLOCKS.id)(1) == 1
    answer = got.answers[ATTEND.id]
    assert (answer.problem, answer.source) == (
        "syntax",
        "def attend(x):\nreturn x",
    )
    # Another cell that defines it is better than a broken one.
    got = hand_in(
        code("def attend(x):", "return x", exercise=ATTEND.id),
        code("def attend(x):", "    return 5"),
    )
    assert run(got, ATTEND.id)(1) == 5
    got = hand_in(code("def attend(x):", "return x"))
    assert got.answers[ATTEND.id].problem == "syntax"


def test_an_answer_may_not_stand_in_anothers_cell(hand_in):
    """A cell that is marked for one exercise does not answer another."""
    got = hand_in(code("def attend(x): return 1", exercise="positions/codes"))
    assert got.answers[ATTEND.id].problem == "missing"


# -- files -------------------------------------------------------------------
@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"cells": [', "it is damaged"),
        (b"\n", "it is empty. Save"),
        (b"<!DOCTYPE html>\n<html>", "it is a web page. Download"),
        (b'{\n<<<<<<< HEAD\n "a": 1\n=======\n', "conflict marks"),
        (b"PK\x03\x04\x14", "is a zip that cannot be read"),
        (b"\x00\x01\xff", "it is damaged"),
        (b"[" * 100_000, "it is damaged"),
        (b"[1, 2]", "is no notebook, but other JSON"),
        (b'{"nbformat": 3, "worksheets": []}', "got a notebook of format 3"),
        (b'{"cells": {}}', "has no list of cells"),
        (b"%PDF-1.4", "it is a PDF. Hand in"),
    ],
)
def test_what_is_no_notebook_is_said_in_one_sentence(tmp_path, data, said):
    path = tmp_path / "ada.ipynb"
    path.write_bytes(data)
    with pytest.raises(NotebookError, match=re.escape(said)) as caught:
        read_submission([path], [ATTEND])
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_missing_and_huge_files(tmp_path):
    with pytest.raises(NotebookError, match="No such file"):
        read_submission([tmp_path / "no.ipynb"], [ATTEND])
    with pytest.raises(NotebookError, match="there is no notebook"):
        read_submission([], [ATTEND])
    with pytest.raises(NotebookError, match="cannot be read"):
        read_submission([tmp_path], [ATTEND])
    huge = tmp_path / "huge.ipynb"
    with huge.open("wb") as file:
        file.truncate(LARGEST + 1)
    with pytest.raises(NotebookError, match="more than 64 MB"):
        read_submission([huge], [ATTEND])


def test_only_so_many_cells_and_files_are_read(tmp_path):
    path = tmp_path / "a.ipynb"
    for n in (CELLS, CELLS + 1):
        path.write_text('{"cells": [' + ",".join(["{}"] * n) + "]}")
        if n == CELLS:
            assert len(read_cells(path)) == n
    with pytest.raises(NotebookError, match=r"most 5,000.*5,001 in a.ipynb"):
        read_submission([path], [ATTEND])

    path.write_text('{"cells": []}')
    read_submission([path] * 40, [ATTEND])
    with pytest.raises(NotebookError, match=r"40 notebooks.*got 41 and 0 MB"):
        read_submission([path] * 41, [ATTEND])

    holes = [tmp_path / f"{n}.ipynb" for n in range(5)]
    for hole in holes:
        with hole.open("wb") as file:
            file.truncate(60 << 20)
    with pytest.raises(NotebookError, match="256 MB: got 5 and 300 MB"):
        read_submission(holes, [ATTEND])
    assert hash_of(holes) == ""


def test_of_what_is_too_large_nothing_is_hashed(tmp_path):
    """A file of 8 GB may be all hole; a terabyte, too."""
    path, good = tmp_path / "huge.ipynb", tmp_path / "good.ipynb"
    good.write_text('{"cells": []}')
    with path.open("wb") as file:
        file.truncate(LARGEST + 1)
    assert hash_of([path]) == ""
    assert hash_of([path, good]) == hash_of([good]) != ""
    got = read_submission([path, good], [ATTEND])
    assert "more than 64 MB" in got.problems[0]


def test_what_takes_too_much_memory_to_read_has_a_reason(
    tmp_path, monkeypatch
):
    """What takes too long ends with its worker: test_worker.py."""

    def large(paths, wanted):
        raise MemoryError

    path = tmp_path / "a.ipynb"
    path.write_text('{"cells": []}')
    monkeypatch.setattr(judge, "read_submission", large)
    reason = "unreadable", judge.TOO_MUCH
    assert judge.read([path], []) == (None, reason)


def test_the_graders_clock_is_not_taken_for_a_files_fault(
    tmp_path, monkeypatch
):
    """A TimeoutError is an OSError, which a file may raise as well."""

    def rings(*_):
        raise TimeoutError

    path = tmp_path / "a.ipynb"
    path.write_text('{"cells": []}')
    monkeypatch.setattr(Path, "read_bytes", rings)
    with pytest.raises(TimeoutError):
        read_submission([path], [ATTEND])
    monkeypatch.undo()
    monkeypatch.setattr(hashlib, "file_digest", rings)
    with pytest.raises(TimeoutError):
        hash_of([path])


def test_damaged_cells_are_read_as_far_as_they_go(hand_in):
    for minor in (0, 4, 5, 99):
        got = hand_in(
            7,
            None,
            {},
            {"cell_type": "code"},
            {"cell_type": "code", "source": 5, "metadata": []},
            {"cell_type": "code", "source": ["a\n", 3], "metadata": None},
            {"cell_type": ["code"], "source": "x", "metadata": {}},
            code("x = 1", exercise=["a", "b"]),
            code("y = '\ud800'"),
            {
                "cell_type": "code",
                "source": ["def attend(x):\r\n", "    return '√'\r\n"],
                "metadata": {"exercise": ATTEND.id, "tags": 3},
            },
            minor=minor,
        )
        assert run(got, ATTEND.id)(0) == "√"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "cp1252"])
def test_other_encodings(tmp_path, encoding):
    path = tmp_path / "ada.ipynb"
    book = {"cells": [code("# é", "def attend(x):", "    return 1")]}
    path.write_bytes(json.dumps(book, ensure_ascii=False).encode(encoding))
    assert run(read_submission([path], [ATTEND]), ATTEND.id)(0) == 1


def test_50_mb_of_outputs(tmp_path):
    path = tmp_path / "ada.ipynb"
    cell = code("def attend(x):", "    return 1", exercise=ATTEND.id)
    cell["outputs"] = [{"output_type": "stream", "text": "x" * 50_000_000}]
    path.write_text(json.dumps({"cells": [cell]}))
    assert run(read_submission([path], [ATTEND]), ATTEND.id)(0) == 1


def test_several_notebooks(tmp_path):
    """Each answer takes the helpers of its own file."""
    for name, value, want in (("a", 1, ATTEND), ("b", 2, BLOCKS)):
        cells = [
            code(f"N = {value}"),
            code(f"def {want.function}(x):", "    return N"),
        ]
        path = tmp_path / f"{name}.ipynb"
        path.write_text(json.dumps({"cells": cells}))
    (tmp_path / "c.ipynb").write_text("{")
    paths = list(tmp_path.glob("*.ipynb"))
    got = read_submission(paths, [ATTEND, BLOCKS])
    assert run(got, ATTEND.id)(0) == 1
    assert run(got, BLOCKS.id)(0) == 2
    assert len(got.problems) == 1
    assert "c.ipynb is no notebook" in got.problems[0]
    assert hash_of(paths) != hash_of(paths[:1]) != ""


COPIES = (
    *("a-1", "a (1)", "a(2)", "a-Copy1", "a-Copy12", "a-Copy1-1", "a_v2"),
    *("Copy of a", "Copy of Copy of a", "a - Copy", "a - Copy (2)", "a_copy"),
    *("a copy", "a copy 2", "a (copy)", "a (3rd copy)", "a 2", "Kopie von a"),
)


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_is_known_by_its_name(name):
    assert bare_names(name)[-1] == "a"
    for other in ("04_attention", "step_04", "photocopy", "copy"):
        assert bare_names(other) == [other]


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a")])
@pytest.mark.parametrize("name", ["{}", "{}-Copy1", "Copy of {}", "{} - Copy"])
def test_of_two_with_one_time_the_written_one_counts(
    tmp_path, name, first, second
):
    """The control: a newer one counts, whatever is in it."""
    names = {f"{first}.ipynb": 1, f"{name.format(second)}.ipynb": "..."}
    for file, value in names.items():
        lines = (
            "def attend(x):",
            f"    return {value}".replace("return ...", "..."),
        )
        cell = code(*lines, exercise=ATTEND.id)
        (tmp_path / file).write_text(json.dumps({"cells": [cell]}))
        os.utime(tmp_path / file, (7, 7))
    written, blank = names
    got = read_submission(tmp_path.iterdir(), [ATTEND])
    assert got.answers[ATTEND.id].file == written
    assert got.problems == (
        f"{written} counts: nothing is written in {blank}, which has the same "
        "time.",
    )
    os.utime(tmp_path / blank, (9, 9))
    got = read_submission(tmp_path.iterdir(), [ATTEND])
    assert got.answers[ATTEND.id].file == blank
    assert "was handed in after" in got.problems[0]


@pytest.mark.parametrize("py", ["x.py", "z.py"])
def test_a_file_and_a_notebook_replace_neither(tmp_path, py):
    """A step is handed in as either; what is written counts."""
    stub = "def attend(x):\n    ..."
    (tmp_path / py).write_text("def attend(x):\n    return 1")
    cells = [code(stub, exercise=ATTEND.id)]
    path = tmp_path / "y.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    for file in tmp_path.iterdir():
        os.utime(file, (0, 0))
    want = SimpleNamespace(**vars(ATTEND) | {"stub": stub})
    got = read_submission(tmp_path.iterdir(), [want])
    assert run(got, ATTEND.id)(0) == 1
    assert got.answers[ATTEND.id].file == py
    assert got.problems == ()
    cells[0]["source"] = "def attend(x):\n    return 2"
    path.write_text(json.dumps({"cells": cells}))
    os.utime(path, (0, 0))
    got = read_submission(tmp_path.iterdir(), [want])
    assert run(got, ATTEND.id)(0) == (1 if py == "z.py" else 2)
    assert got.answers[ATTEND.id].problem == "files"


def test_chapters_that_share_a_name(tmp_path):
    """Of two notebooks with `mended`, that which mentions the exercise."""
    want = SimpleNamespace(id="norm/mended", function="mended", stub="")
    for name, chapter, value in (("a", "norm", 1), ("b", "loss", 2)):
        cells = [
            code("def mended(x):", f"    return {value}"),
            code(f'coursekit.check("{chapter}/mended", mended)'),
        ]
        path = tmp_path / f"{name}.ipynb"
        path.write_text(json.dumps({"cells": cells}))
    got = read_submission(tmp_path.glob("*.ipynb"), [want])
    assert run(got, "norm/mended")(0) == 1
    assert got.answers["norm/mended"].problem == ""


def cost(hand_in, *sources):
    """What reading a notebook of these cells takes, the last an answer."""
    *first, last = sources
    cells = [*map(code, first), code(last, exercise=ATTEND.id)]
    return cpu_seconds(lambda: hand_in(*cells))


# Of 90 kB, what takes long to read, or cannot be read at all.
SLOW = [
    " " * 90_000 + "x =",
    "\n" * 90_000 + "x =",
    "a " * 45_000,
    "? " * 45_000 + "x",
    "!a\n" * 30_000,
    "x = (" + "%a\n" * 30_000,
    "f(" * 30_000,
    "a.b" * 30_000,
    "x if " * 20_000,
    "[" * 150 + "]" * 150,
    "lambda: " * 10_000 + "1",
]


def test_no_source_takes_longer_to_read_than_usual_code(hand_in):
    """Reading happens outside the sandbox."""
    usual = "def attend(x):\n    y = x + 1\n    return 2 * y\n\n" * 2000
    most = 5 * cost(hand_in, usual, usual)
    for source in SLOW:
        assert cost(hand_in, source, source) < most, source[:9]


def test_star_imports_are_not_counted_for_each_name(hand_in):
    """60 kB that took a gigabyte."""
    names = ",".join(f"v{n}" for n in range(6000))
    answer = f"def attend(): return [{names}]"
    stars, usual = "from a import *\n" * 1500, "import a\n" * 1500
    assert cost(hand_in, stars, answer) < 3 * cost(hand_in, usual, answer)
    got = hand_in(code(stars), code(answer, exercise=ATTEND.id))
    assert len(got.answers[ATTEND.id].helpers[0].split("\n")) == 1500


@pytest.mark.parametrize(
    ("name", "numbers"),
    [("x", [1, 2, 4]), ("y", [0, 2, 4]), ("z", [0, 2, 3, 4])],
)
def test_a_star_import_may_set_any_name(hand_in, name, numbers):
    """Those count after the last assignment that is sure to happen."""
    cells = [
        "from a import *",
        "x = 1",
        "from b import *",
        "if y:\n    z = 2",
        "from c import *",
    ]
    answer = code(f"def attend(): return {name}", exercise=ATTEND.id)
    got = hand_in(*map(code, cells), answer)
    assert list(got.answers[ATTEND.id].helpers) == [cells[n] for n in numbers]


def test_a_program_keeps_its_lines():
    program = parse("import os  # a\n\nx = 1; y = 2\n@f\ndef g():\n    pass\n")
    assert [(s.first, s.last) for s in program.statements] == [
        (1, 1),
        (3, 3),
        (3, 3),
        (4, 6),
    ]
    assert program.keep([1]) == "\n\nx = 1; y = 2"
    assert program.keep([3]) == "\n\n\n@f\ndef g():\n    pass"


def test_a_value_that_is_changed_in_place_is_taken_along(hand_in):
    """``x += 1`` needs the ``x`` from before."""
    done = hand_in(
        code("scale = 2"),
        code("scale += 1"),
        code("def attend(x):", "    return scale * x", exercise=ATTEND.id),
    )
    assert run(done, ATTEND.id)(5) == 15


def test_what_a_notebook_says_is_short_and_can_be_printed(tmp_path):
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps({"nbformat": "4" * 10**6}))
    with pytest.raises(NotebookError) as error:
        read_cells(path)
    assert len(str(error.value)) < 2000
    for id, known in (("a/b", "a/b"), ("a/\x1b[2J\nb", ""), ("a" * 999, "")):
        assert Cell("code", "", {"exercise": id}).exercise == known
