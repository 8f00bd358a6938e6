"""What is not for students is in no byte that they are given.

Marks are planted in everything that is not for everybody; every byte that is
given out is searched for them, also inside zips and notebooks.
"""

import argparse
import base64
import io
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from coursekit_classroom.check import core
from coursekit_classroom.notebooks.sources import SourceError, for_students
from coursekit_classroom.teach import assign

ROOT = Path(__file__).resolve().parents[2]

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
SECRET = "c0ffee" * 10 + "abcd"

PAGE = f"""{FRONT}(ch-tiny)=
# Tiny

```{{code-cell}} ipython3
import torch

import coursekit
from coursekit_classroom.glue import glue

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
from coursekit_classroom.check.core import Case, Exercise, generator

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


# -- what is given out -------------------------------------------------------
@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A page, and an overlay and a key that lie next to it."""
    root = tmp_path_factory.mktemp("checkout")
    files = {
        "book/tiny.md": PAGE,
        "private/tiny.md": OVERLAY_PAGE,
        "private/secret.py": OVERLAY_MODULE,
        "assignment-secret.txt": json.dumps(
            {"version": 1, "secret": SECRET, "assignments": {}}
        ),
    }
    for name, text in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text, "utf8")
    return root


def test_what_students_are_given_holds_nothing(checkout, tmp_path):
    class_ = tmp_path / "class.csv"
    class_.write_text("id,name\nada,Ada\nbob,Bob\n")
    parser = argparse.ArgumentParser()
    assign.add_options(parser)
    said = {
        "secret": checkout / "assignment-secret.txt",
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
    for name in ("book", "coursekit", "coursekit_classroom", "results"):
        shutil.copytree(ROOT / name, source / name, ignore=ignore)
    files = ("pyproject.toml", "README.md", "LICENSE", ".gitignore")
    for name in (*files, "_config.yml", "references.bib"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, source)
    shutil.copytree(checkout / "private", source / "private")
    shutil.copy(checkout / "assignment-secret.txt", source)
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
    assert not [
        n for n in names if "private" in n or "assignment-secret.txt" in n
    ]
    assert "coursekit/py.typed" in names  # type checkers read our annotations
    [packed] = (source / "dist").glob("*.tar.gz")
    shutil.unpack_archive(packed, source / "unpacked")
    assert leaks(source / "unpacked", marks) == []


# -- pages -------------------------------------------------------------------
def test_public_pages_have_no_instructors_part():
    """What is private does not belong into a public repository."""
    for path in ROOT.glob("book/**/*.md"):
        text = path.read_text("utf8")
        assert for_students(text, path.name) == text, path


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
