"""What an edition must not have is in none of its bytes.

Marks are planted in everything that is not for everybody; every byte that is
released is searched for them, also inside zips and notebooks.
"""

import argparse
import base64
import io
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from argparse import Namespace
from pathlib import Path

import forked
import pytest
import yaml
from forked import kernels

from coursekit.classroom.check import core
from coursekit.classroom.grading import assign, editions
from coursekit.classroom.grading.editions import edit, stage, without_answers
from coursekit.classroom.grading.sources import SourceError, for_students

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.xdist_group("editions")

FRONT = """---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

"""
# One mark for each kind of thing that may not get out.
SOLUTION = "MARK-practice-solution"
HIDDEN_CELL = "MARK_hidden_answer_cell"
BLOCK = "MARK-instructor-block"
OVERLAY_TEXT = "MARK-overlay-text"
OVERLAY_SOLUTION = "MARK-overlay-solution"
OVERLAY_RUBRIC = "MARK-overlay-rubric"
HIDDEN_CASE = "MARK-hidden-case"
REFERENCE = "MARK_reference"
BUILD = "jupyter-book"
SECRET = "c0ffee" * 10 + "abcd"

PAGE = f"""{FRONT}(ch-tiny)=
# Tiny

```{{code-cell}} ipython3
import torch

import coursekit
from coursekit.classroom.glue import glue

torch.set_num_threads(1)
```

Text.

% begin instructor
**Say this:** {BLOCK}
% end instructor

## Exercises

````{{exercise}} ★ Implement: attention
:label: tiny-attend

Write it; {{glue:text}}`kept` is a number.

```{{dropdown}} Hint
Four lines.
```
````

```{{code-cell}} ipython3
:exercise: attention/attend
:points: 6

def mine(q, k, v, mask=None):
    ...
```

```{{code-cell}} ipython3
coursekit.check("attention/attend", mine)
```

```{{code-cell}} ipython3
:tags: [remove-cell]

glue("kept", 7)
```

```{{code-cell}} ipython3
:tags: [remove-cell]

{HIDDEN_CELL} = 1
```

````{{solution}} tiny-attend
:class: dropdown

{SOLUTION}

```python
def mine(q, k, v, mask=None):
    return v
```
````
"""
OVERLAY_PAGE = f"""{FRONT}## More

````{{exercise}} ★ Implement: twice
:label: tiny-twice

{OVERLAY_TEXT}
````

```{{code-cell}} ipython3
:exercise: secret/twice
:points: 3
:kind: assessed

def twice(x):
    ...
```

```{{code-cell}} ipython3
coursekit.check("secret/twice", twice)
```

% begin instructor
{OVERLAY_RUBRIC}
% end instructor

````{{solution}} tiny-twice
{OVERLAY_SOLUTION}
````
"""
OVERLAY_MODULE = f"""
import torch
from coursekit.classroom.check.core import Case, Exercise, generator

def twice(x):
    {REFERENCE} = 2 * x
    return {REFERENCE}

def cases(seed):
    x = torch.randn(3, generator=generator(seed))
    return [Case((x,), name="{HIDDEN_CASE}")]

EXERCISES = {{"twice": Exercise(twice, cases)}}
"""
FROM_OVERLAY = (
    *(OVERLAY_SOLUTION, OVERLAY_RUBRIC, HIDDEN_CASE, REFERENCE, SECRET),
    BLOCK,
)


# -- searching ---------------------------------------------------------------
def contents(path):
    """``(name, bytes)`` of a file or folder, and of what zips hold."""
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            yield from unpacked(str(file), file.read_bytes())


def unpacked(name, data):
    """A file, and the files within it if it is a zip."""
    yield name, data
    if data[:2] == b"PK":
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            for inner in file.namelist():
                yield from unpacked(f"{name}:{inner}", file.read(inner))


def forms(mark):
    """How a mark may be written."""
    plain = mark.encode()
    return (
        plain,
        plain.replace(b"_", b"\\_"),
        mark.encode("utf-16-le"),
        base64.b64encode(plain)[:-4],
        plain[::-1],
    )


def leaks(path, marks):
    """``(mark, file)`` for each mark that is anywhere below a path."""
    return [
        (mark, name)
        for name, data in contents(path)
        for mark in marks
        if any(form in data for form in forms(mark))
    ]


def test_the_search_finds_what_is_planted(tmp_path):
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a/b.txt", "x" * 99 + SOLUTION)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr("inner.zip", inner.getvalue())
    found = leaks(tmp_path, [SOLUTION, BLOCK])
    assert [(mark, name.split(":")[-1]) for mark, name in found] == [
        (SOLUTION, "a/b.txt")
    ]
    (tmp_path / "b.json").write_text(json.dumps({"x": [BLOCK]}))
    assert leaks(tmp_path / "b.json", [BLOCK])


# -- a book of one page ------------------------------------------------------
@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A checkout with a small page; the overlay and the key lie in it."""
    root = tmp_path_factory.mktemp("checkout")
    for name in ("sphinx_ext", "book/_static", "coursekit", "vendor"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).symlink_to(ROOT / name)
    for name in ("references.bib", "_config.yml", "pyproject.toml"):
        shutil.copy(ROOT / name, root)
    for name in ("LICENSE", "README.md"):
        shutil.copy(ROOT / name, root)
    toc = {
        "format": "jb-book",
        "root": "book/index",
        "chapters": [{"file": "book/tiny"}],
    }
    files = {
        "_toc.yml": yaml.safe_dump(toc),
        "book/index.md": "# Front\n",
        "book/tiny.md": PAGE,
        "private/tiny.md": OVERLAY_PAGE,
        "private/secret.py": OVERLAY_MODULE,
        "key.txt": json.dumps(
            {"version": 1, "secret": SECRET, "assignments": {}}
        ),
    }
    for name, text in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text, "utf8")
    return root


@pytest.fixture(scope="module")
def built(checkout):
    """``built(edition)``: the folder with html/ and notebooks/.

    What a build starts is a fork of a process that has imported it.
    """
    made = {}

    def start(command, cwd, env):
        program, *words = command[1:]
        if program == "-c":  # all of Jupyter Book
            program, *words = Path(sys.executable).with_name(BUILD), *words[1:]
        done = forked.run(cwd / program, *words, cwd=cwd, env=env)
        assert done.returncode == 0, done.stdout
        return done

    def built(edition):
        if edition not in made:
            made[edition] = checkout / "out" / edition
            options = {"edition": edition, "pages": [], "overlay": "private"}
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(checkout)
                patch.setattr(editions, "subprocess", Namespace(run=start))
                editions.run(Namespace(**options, out=str(made[edition])))
        return made[edition]

    with kernels.ready():  # for these tests alone
        yield built


def released(folder):
    """What of a build is given away."""
    assert (folder / "html" / "book" / "tiny.html").is_file()
    assert (folder / "html" / "_sources" / "book" / "tiny.md").is_file()
    assert (folder / "notebooks" / "book" / "tiny.ipynb").is_file()
    return [folder / "html", folder / "notebooks"]


def test_the_students_book_has_no_solution(built):
    marks = [*FROM_OVERLAY, OVERLAY_TEXT, SOLUTION, HIDDEN_CELL]
    for folder in released(built("student")):
        assert leaks(folder, marks) == []
        assert leaks(folder, ["Four lines."])  # the rest is there


def test_the_public_book_has_nothing_private(built):
    for folder in released(built("public")):
        assert leaks(folder, [*FROM_OVERLAY, OVERLAY_TEXT]) == []
    # Practice solutions are public; so are the page's hidden cells.
    html = built("public") / "html"
    assert {m for m, _ in leaks(html, [SOLUTION, HIDDEN_CELL])} == {
        SOLUTION,
        HIDDEN_CELL,
    }


def test_the_instructors_book_has_all_of_it(built):
    """The negative control: the search would find a leak."""
    html = built("instructor") / "html"
    marks = [OVERLAY_TEXT, OVERLAY_SOLUTION, OVERLAY_RUBRIC, BLOCK, SOLUTION]
    assert {mark for mark, _ in leaks(html, marks)} == set(marks)
    assert leaks(html, [SECRET]) == []  # a key is no part of any book
    page = (html / "book" / "tiny.html").read_text("utf8")
    assert "secret/twice" in page  # its check ran, with the overlay
    assert "not attempted" in page


def test_what_students_are_given_holds_nothing(checkout, tmp_path):
    class_ = tmp_path / "class.csv"
    class_.write_text("id,name\nada,Ada\nbob,Bob\n")
    parser = argparse.ArgumentParser()
    assign.add_options(parser)
    said = {
        "key": checkout / "key.txt",
        "out": tmp_path / "dist",
        "roster": class_,
        "assess": "all",
        "overlay": checkout / "private",
    }
    words = [word for n, v in said.items() for word in (f"--{n}", str(v))]
    page = str(checkout / "book" / "tiny.md")
    assert assign.run(parser.parse_args([page, *words])) == 0
    dist = tmp_path / "dist"
    marks = [*FROM_OVERLAY, SOLUTION, HIDDEN_CELL]
    for folder in ("student", "students"):
        assert (dist / folder).is_dir()
        assert leaks(dist / folder, marks) == []
    assert leaks(dist / "student", [OVERLAY_TEXT])  # what is asked is there
    # The negative controls: these are the instructor's.
    for name, mark in (
        ("instructor", OVERLAY_SOLUTION),
        ("instructor", OVERLAY_RUBRIC),
        ("instructor", REFERENCE),
        ("nbgrader", REFERENCE),
        ("gradescope.zip", SECRET),
        ("gradescope.zip", HIDDEN_CASE),
    ):
        assert leaks(dist / name, [mark]), (name, mark)
    assert core.OVERLAYS == []


def test_the_wheel_holds_nothing_private(checkout, tmp_path):
    """An overlay and a key that lie in a checkout are not packed."""
    source = tmp_path / "checkout"
    source.mkdir()
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("book", "coursekit", "results"):
        shutil.copytree(ROOT / name, source / name, ignore=ignore)
    files = ("pyproject.toml", "README.md", "LICENSE", ".gitignore")
    for name in (*files, "_config.yml", "references.bib"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, source)
    shutil.copytree(checkout / "private", source / "private")
    shutil.copy(checkout / "key.txt", source)
    for target in ("wheel", "sdist"):
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", target],
            cwd=source,
            check=True,
            capture_output=True,
        )
    [wheel] = (source / "dist").glob("*.whl")
    marks = [*FROM_OVERLAY, OVERLAY_TEXT, SOLUTION]
    assert leaks(wheel, marks) == []
    assert leaks(wheel, ["Exercises of chapter 4"])  # control: it was opened
    names = zipfile.ZipFile(wheel).namelist()
    assert not [n for n in names if "private" in n or "key.txt" in n]
    assert "coursekit/py.typed" in names  # type checkers read our annotations
    [packed] = (source / "dist").glob("*.tar.gz")
    shutil.unpack_archive(packed, source / "unpacked")
    assert leaks(source / "unpacked", marks) == []


def test_a_copy_takes_no_key_and_no_overlay(checkout, tmp_path):
    """Not even into the folder that is built from."""
    for edition in ("public", "student"):
        copy = stage(checkout, tmp_path / edition, edition)
        assert leaks(copy / "book", FROM_OVERLAY) == []
        assert not (copy / "key.txt").exists()
        assert not (copy / "private").exists()


# -- pages -------------------------------------------------------------------
def test_public_pages_have_no_instructors_part():
    """What is private does not belong into a public repository."""
    for path in ROOT.glob("book/**/*.md"):
        text = path.read_text("utf8")
        assert edit(text, "public", path.name) == text, path


@pytest.mark.parametrize(
    "page",
    [
        page
        for page in sorted(ROOT.glob("book/**/[0-9][0-9]_*.md"))
        if "{exercise}" in page.read_text("utf8")
    ],
    ids=lambda p: p.stem,
)
def test_students_get_every_chapter_without_solutions(page):
    text = page.read_text("utf8")
    theirs = edit(text, "student", page.name)
    assert "{solution" not in theirs
    # What is to be predicted has no solution.
    predicted = len(re.findall(r"\{exercise\} ★+ Predict", text))
    unsolved = text.count("{exercise}") - text.count("{solution}")
    assert text.count("{solution}") > 0
    assert unsolved <= predicted
    count = theirs.count("{exercise}")
    assert count == text.count("{exercise}")
    lines = text.split("\n")
    assert all(line in lines for line in theirs.split("\n"))


NESTED = """\
# A

:::{admonition} Box
```{solution} a
SECRET
```
kept 1
:::

````{exercise} E
kept 2
```{solution} b
SECRET
```
````

```{solution-start} c
```
SECRET

```{code-cell} python
SECRET
```

```{solution-end}
```

````text
```{solution} an example of how to write one, kept 3
```
````

```{solution} never closed
SECRET
"""


def test_solutions_at_any_depth():
    text = without_answers(NESTED)
    assert "SECRET" not in text
    assert all(f"kept {n}" in text for n in (1, 2, 3))


CELLS = """\
```{code-cell} python
:tags: [remove-cell]

before = 1
```

```{exercise} E
Quotes {glue:text}`n-7:.2f`.
```

```{code-cell} python
---
tags: [remove-cell]
---
glue(f"n-{x}", 1)
```

```{code-cell} python
:tags: [hide-input]

def helper(): return 1
```

```{code-cell} python
helper()
```

```{code-cell} python
:tags: [remove-cell]

SECRET = glue("other", 1)
```
"""


def test_hidden_cells_stay_only_where_they_are_needed():
    text = without_answers(CELLS)
    assert "SECRET" not in text
    for kept in ("before", 'glue(f"n-{x}"', "def helper", "\nhelper()"):
        assert kept in text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("% begin instructor\na", "lines? 1 of p, and no `% end"),
        ("a\n% end instructor", "line 2 of p, and none is open"),
        ("% begin instructor\n% begin instructor", "lines 1 and 2 of p"),
        ("%begin instructor\nx\n%end instructor", "got `%begin instructor`"),
        ("% Begin Instructors\n", "got `% Begin Instructors`"),
    ],
)
def test_a_block_that_is_not_closed_is_an_error(text, said):
    """Else a typing mistake would give away what follows."""
    with pytest.raises(SourceError, match=said):
        for_students(text, "p")
    assert for_students("a\n % begin instructor\nb\n% end instructor\nc") == (
        "a\nc"
    )


# -- the command -------------------------------------------------------------
def run(**options):
    known = {"edition": "public", "pages": [], "overlay": None, "out": None}
    return editions.run(Namespace(**known | options))


def test_errors_are_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="which is in none"):
        run()
    monkeypatch.chdir(ROOT)
    with pytest.raises(ValueError, match="got nothing"):
        run(overlay="nothing")
    with pytest.raises(ValueError, match="got book/99_no"):
        run(pages=["book/99_no"], out=str(tmp_path))
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match="which has other files"):
        run(out=str(tmp_path))
    assert (tmp_path / "source" / "mine.txt").exists()
    monkeypatch.setattr(editions.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ValueError, match=r"pip install .\.\[book\]"):
        run()


def test_pages_and_new_pages_in_the_contents(checkout, tmp_path):
    private = tmp_path / "private"
    private.mkdir()
    (private / "exam.md").write_text("# Exam\n")
    copy = stage(checkout, tmp_path / "a", "instructor", private)
    contents = yaml.safe_load((copy / "_toc.yml").read_text())
    assert contents["chapters"][-1] == {"file": "book/exam"}
    copy = stage(checkout, tmp_path / "b", "public", private, ["book/tiny"])
    contents = yaml.safe_load((copy / "_toc.yml").read_text())
    assert contents["chapters"] == [{"file": "book/tiny"}]
    assert not (copy / "book" / "exam.md").exists()


def test_an_overlay_can_be_named_by_the_environment(checkout):
    command = (
        "from coursekit.classroom.check import core; core.find('secret/twice')"
    )
    for folder, code in ((str(checkout / "private"), 0), ("", 1)):
        done = subprocess.run(
            [*forked.python(), "-c", command],
            env=os.environ | {"COURSEKIT_OVERLAY": folder},
            capture_output=True,
        )
        assert done.returncode == code
