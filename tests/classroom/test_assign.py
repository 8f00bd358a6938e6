"""From chapters and a roster to notebooks, exports and the key."""

import builtins
import inspect
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import zipfile
from argparse import Namespace
from collections import Counter
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

import forked
import nbformat
import pytest
import torch

import coursekit
from coursekit_classroom.check import core
from coursekit_classroom.check.checker import verdict
from coursekit_classroom.check.core import NONE
from coursekit_classroom.notebooks import plain
from coursekit_classroom.notebooks.checkfile import check_file
from coursekit_classroom.notebooks.convert import converter
from coursekit_classroom.notebooks.declared import declared
from coursekit_classroom.notebooks.install import install_cell
from coursekit_classroom.notebooks.program import parse
from coursekit_classroom.teach import (
    assign,
    exports,
    handout,
    programs,
    sandbox,
)
from coursekit_classroom.teach.read import read_submission
from coursekit_classroom.teach.roster import read_roster, safe_name
from coursekit_classroom.teach.secret import Secret
from coursekit_classroom.teach.standalone import (
    NotStandaloneError,
    standalone,
)
from tests.submissions.corpus import RIGHT, RIGHT_MENDED

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    page
    for page in ROOT.glob("book/**/[0-9][0-9]_*.md")
    if ":exercise:" in page.read_text("utf8")  # one with a stub
)
CHAPTER = ROOT / "book" / "04_attention.md"
IDS = ["attention/attend", "attention/mended", "attention/blocks"]


def run(tmp_path, *pages, **options):
    """Run the command; what it returns is the folder."""
    known = {
        "pages": [str(page) for page in pages],
        "step": None,
        "secret": str(tmp_path / "assignment-secret.txt"),
        "out": str(tmp_path / "dist"),
        "roster": None,
        "only": None,
        "assess": None,
        "points": None,
        "due": None,
        "late": None,
        "late_cap": None,
        "late_days": None,
        "name": None,
        "overlay": None,
        "format": None,
        "visibility": "after_due_date",
        "tag": "",
    }
    assert assign.run(Namespace(**known | options)) == 0
    return tmp_path / "dist"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """An assignment of chapter 4, one exercise of it assessed."""
    folder = tmp_path_factory.mktemp("assign")
    run(folder, CHAPTER, assess=["attention/attend"])
    return folder


@pytest.fixture(scope="module")
def key():
    return Secret("5e" * 32)


def cells(path):
    return nbformat.read(path, as_version=4).cells


# -- the student's notebook --------------------------------------------------
def test_students_get_texts_stubs_and_checks(made):
    path = made / "dist/student/04_attention.ipynb"
    nbformat.validate(nbformat.read(path, as_version=4))
    said = declared(path)
    ours = declared(CHAPTER)
    assert [(d.id, d.function, d.points, d.title) for d in said] == [
        (d.id, d.function, d.points, d.title) for d in ours
    ]
    text = path.read_text("utf8")
    for there in ("Hint 1", "6 points", "about 20 minutes", "suspicious"):
        assert there in text
    for key_word in ("Solution", "masked_fill(~visible", 'outputs": [{'):
        assert key_word not in text
    checks = [c.source for c in cells(path) if ".check(" in c.source]
    assert len(checks) == len(ours)
    assert checks[0].endswith("attend_yourself, variants=['true_hides'])")
    assert "variants" not in "".join(checks[1:])
    assert "may *not* look" in text
    assert {r.status for r in check_file(path)} == {"not attempted"}


def test_what_is_given_out_says_for_which_assignment(made):
    """By a mark that another key, and another name, does not give."""
    key, name = Secret.load(made / "assignment-secret.txt"), "04_attention"
    for path in (
        f"student/{name}",
        f"nbgrader/source/{name}/{name}",
        f"otter/{name}/{name}",
    ):
        found = nbformat.read(made / f"dist/{path}.ipynb", as_version=4)
        assert found.metadata["coursekit"] == {"assignment": key.mark(name)}
        kinds = {
            c.metadata["exercise"]: c.metadata.get("kind")
            for c in found.cells
            if "exercise" in c.metadata
        }
        assessed = {id for id, kind in kinds.items() if kind == "assessed"}
        assert assessed == {"attention/attend"} < set(kinds)
    marks = {key.mark(name), key.mark("other"), Secret("5e" * 32).mark(name)}
    assert len(marks) == 3
    assert all(re.fullmatch("[0-9a-f]{12}", mark) for mark in marks)
    assert not any(mark in key.digits for mark in marks)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_every_chapter_makes_a_notebook_that_runs(page):
    """Plain Markdown, no solution, and no name that nobody defines."""
    read = handout.read_handout(page)
    made = handout.student_notebook(read)
    text = "\n".join(c.source for c in made.cells if c.cell_type != "code")
    code = re.compile(r"^( *)(`{3,}).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
    assert plain.LEFT.findall(code.sub("", text)) == []
    assert "Solution:" not in text
    programs = [parse(c.source) for c in made.cells if c.cell_type == "code"]
    parts = [part for program in programs for part in program.statements]
    known = set(dir(builtins)) | {n for part in parts for n in part.sets}
    assert {n for part in parts for n in part.reads} - known == set()
    stubs = sum("..." in program.source for program in programs)
    assert stubs >= len(read.items) >= 1


def test_a_setup_takes_what_is_needed_and_no_more(made):
    setup = cells(made / "dist/student/04_attention.ipynb")[3:5]
    assert setup[0].source.split() == [
        "import",
        "torch",
        "import",
        "coursekit",
    ]
    assert setup[1].source.startswith("def draw(")  # the text speaks of it


def test_a_source_without_a_bibliography_is_named_by_its_key(tmp_path):
    """Such as in a copy of one page, which a course has of its own."""
    page = tmp_path / "warmup.md"
    cited = "See {cite:t}`ba2016layer` {cite:p}`ba2016layer,su2021roformer`."
    page.write_text(PAGE.replace("Double it.", cited))
    cells = handout.myst_cells(page.read_text(), page.name)
    found = converter(page, cells).convert(cited)
    assert found == "See Ba (2016) (Ba, 2016; Su, 2021)."


URLS = '[project.urls]\nRepository = "https://e/x"\n'


def test_every_notebook_installs_the_terms_package(tmp_path, monkeypatch):
    """Before anything else is run; the tag of the term, if there is one."""
    (tmp_path / "_config.yml").touch()
    (tmp_path / "pyproject.toml").write_text(URLS)
    page = tmp_path / "book" / "04_attention.md"
    page.parent.mkdir()
    page.write_text(CHAPTER.read_text("utf8"), "utf8")
    class_ = tmp_path / "class.csv"
    class_.write_text("id,name\nada,Ada\n")
    for tag, at in (("", ""), ("fall-2026", "@fall-2026")):
        out = run(tmp_path, page, roster=str(class_), tag=tag)
        made = sorted(out.rglob("*.ipynb"))
        assert len(made) == 5  # student, instructor, nbgrader, otter, debug
        for path in made:
            code = [c for c in cells(path) if c.cell_type == "code"]
            assert code[0].source == install_cell("https://e/x", tag)
            assert f'"--no-deps", "git+https://e/x{at}")' in code[0].source
            assert code[0].metadata == {}  # it is no exercise
            assert "find_spec" not in "".join(c.source for c in code[1:])
    with pytest.raises(ValueError, match="a tag is what `git tag` lists"):
        run(tmp_path, page, tag='x")#')
    (tmp_path / "_config.yml").unlink()
    monkeypatch.chdir(tmp_path)
    out = run(tmp_path, page)  # the control: nobody knows an address
    first = cells(out / "student/04_attention.ipynb")[1]
    assert first.source == install_cell("")
    assert "git+" not in first.source


# -- the instructor's --------------------------------------------------------
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_the_instructors_answers_are_right(page, key):
    """What the grader expects passes the checks, variants included."""
    first = handout.read_handout(page)
    ids = [item.declared.id for item in first.items]
    variants = {id: assign.draw_variants(id, key) for id in ids}
    full = handout.read_handout(page, None, variants, instructor=True)
    assert all(item.solution for item in full.items)
    for item in full.items:
        one, exercise = item.declared, item.exercise
        try:
            source = standalone(exercise, item.variants, one.function)
        except NotStandaloneError:
            assert "# No solution" in handout.solution_of(item)
            continue
        assert re.search(r"\bon\b", str(source)) is None, one.id
        space = {}
        exec(str(source), space)
        function = space[one.function]
        report = coursekit.check(one.id, function, variants=item.variants)
        assert report, report


def test_the_instructor_gets_solutions_and_variants(made):
    path = made / "dist/instructor/04_attention.ipynb"
    text = path.read_text("utf8")
    assert "Solution: ★ Implement: attention" in text
    assert "Variants of `attention/attend`: true_hides." in text
    assert {d.id for d in declared(path)} == {d.id for d in declared(CHAPTER)}
    key = Secret.load(made / "assignment-secret.txt")
    assert key.id in text
    assert key.digits not in text


# -- the key -----------------------------------------------------------------
def test_the_key_knows_what_was_asked(made):
    key = Secret.load(made / "assignment-secret.txt")
    plan = key.assignments["04_attention"]
    assert plan["page"] == "04_attention"
    fields = plan["exercises"]
    assert [f["id"] for f in fields] == [d.id for d in declared(CHAPTER)]
    assert fields[0] == {
        "id": "attention/attend",
        "function": "attend_yourself",
        "points": 6,
        "kind": "assessed",
        "variants": ["true_hides"],
        "stub": "def attend_yourself(q, k, v, mask=None):\n    ...",
    }
    assert {f["kind"] for f in fields[1:]} == {"practice"}
    assert (
        stat.S_IMODE((made / "assignment-secret.txt").stat().st_mode) == 0o600
    )


def test_the_same_key_gives_the_same_files(made, tmp_path, capsys):
    shutil.copy(made / "assignment-secret.txt", tmp_path)
    run(tmp_path, CHAPTER, assess=["attention/attend"])
    for path in sorted((made / "dist").rglob("*")):
        if path.is_file():
            again = tmp_path / "dist" / path.relative_to(made / "dist")
            assert path.read_bytes() == again.read_bytes(), path
    said = capsys.readouterr().out
    assert "6 of 22 points, by a variant: attention/attend (true_h" in said
    assert "keep it" in said


def test_what_the_book_answers_is_said_with_its_points(tmp_path, capsys):
    run(tmp_path, CHAPTER, assess=["all"], points=["attention/mended=9"])
    said = " ".join(capsys.readouterr().out.split())
    others = ", ".join([d.id for d in declared(CHAPTER)][1:])
    assert (
        "assessed 6 of 27 points, by a variant: attention/attend (true_hides) "
        "public 21 of 27 points, earned by the book's own solutions: "
        f"{others} secret"
    ) in said


def test_errors_are_said(tmp_path):
    with pytest.raises(ValueError, match="got none"):
        run(tmp_path)
    with pytest.raises(ValueError, match="got nothing"):
        run(tmp_path, "nothing.md")
    with pytest.raises(ValueError, match="got no/such"):
        run(tmp_path, CHAPTER, assess=["no/such"])
    assert not (tmp_path / "assignment-secret.txt").exists()
    with pytest.raises(ValueError, match="not for students"):
        run(
            tmp_path,
            CHAPTER,
            secret=str(tmp_path / "dist/student/assignment-secret.txt"),
        )
    page = tmp_path / "page.md"
    page.write_text("# Page\n")
    with pytest.raises(ValueError, match="an assignment has exercises"):
        run(tmp_path, page)
    with pytest.raises(ValueError, match=r"chapter's \.md"):
        run(tmp_path, ROOT / "LICENSE")
    with pytest.raises(ValueError, match="overlay"):
        run(tmp_path, CHAPTER, overlay=str(tmp_path / "nowhere"))
    (tmp_path / "assignment-secret.txt").write_text("nonsense")
    with pytest.raises(ValueError, match="is no secret"):
        run(tmp_path, CHAPTER)


def test_an_assessed_exercise_may_be_of_any_page(tmp_path):
    other = ROOT / "book/05_masks.md"
    run(tmp_path, CHAPTER, other, assess=["masks/is_causal"])
    found = Secret.load(tmp_path / "assignment-secret.txt").assignments
    kinds = {
        e["id"]: e["kind"] for a in found.values() for e in a["exercises"]
    }
    assert [id for id, kind in kinds.items() if kind == "assessed"] == [
        "masks/is_causal"
    ]


def test_everybody_on_the_roster_is_in_each_assignment(tmp_path):
    class_ = tmp_path / "class.csv"
    class_.write_text("id,name\nada,Ada\nbob,Bob\n")
    run(tmp_path, CHAPTER, roster=str(class_))
    found = Secret.load(tmp_path / "assignment-secret.txt").assignments
    for name in (CHAPTER.stem, "debug"):
        assert set(found[name]["students"]) == {"ada", "bob"}
    assert "debug" not in found[CHAPTER.stem]["students"]["ada"]


# -- what an instructor chooses ----------------------------------------------
def test_some_exercises_for_other_points_until_a_day(tmp_path, capsys):
    chosen = ["attention/mended", "attention/attend"]
    out = run(
        tmp_path,
        CHAPTER,
        only=chosen,
        points=["attention/mended=7.5", "attention/attend=3"],
        due="2026-10-05T18:00+02:00",
        late=10.0,
        late_cap=50.0,
        late_days=2,
        name="homework-2",
    )
    plan = Secret.load(tmp_path / "assignment-secret.txt").assignments[
        "homework-2"
    ]
    assert plan["page"] == "04_attention"
    assert {e["id"]: e["points"] for e in plan["exercises"]} == {
        "attention/attend": 3,
        "attention/mended": 7.5,
    }
    said = (
        "Due on Monday, October 5, 2026, at 18:00 (UTC+02:00). Each day after "
        "it costs 10 % of the points, at most 50 %; the first 2 days cost "
        "nothing."
    )
    assert f"due        {said}\n" in capsys.readouterr().out
    for path in (
        "student/homework-2.ipynb",
        "instructor/homework-2.ipynb",
        "nbgrader/source/homework-2/homework-2.ipynb",
    ):
        assert said in "".join(c.source for c in cells(out / path))
        assert {d.id: d.points for d in declared(out / path)} == {
            "attention/attend": 3,
            "attention/mended": 7.5,
        }
    text = (out / "student/homework-2.ipynb").read_text("utf8")
    assert "7.5 points" in text
    assert "attend_in_blocks" not in text  # the control: what is not chosen
    other = ROOT / "book/05_masks.md"
    run(tmp_path, CHAPTER, other, only=["masks/is_causal"])
    assert set(
        Secret.load(tmp_path / "assignment-secret.txt").assignments
    ) == {
        "homework-2",
        other.stem,
    }


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"only": ["attention/attend"]}, r"attend \(6 points\), and it has"),
        ({"points": ["attention/mended=20"]}, r"mended \(20 points\)"),
        ({"assess": ["attention/attend"]}, r"\(6 points, true_hides\)"),
        ({"due": None, "late": None}, "Give --due 2026-10-05T18:00"),
        ({"late": 20.0}, "stays, .* has --late 10 --late-cap 100"),
        ({"late_cap": 50.0}, "has --late 10 --late-cap 100"),
    ],
)
def test_what_is_given_out_stays_as_it_is(tmp_path, options, said):
    """The control: the same again, until a later date."""
    terms = {
        "due": "2026-10-05T18:00+02:00",
        "late": 10.0,
        "format": ["otter"],
    }
    run(tmp_path, CHAPTER, **terms)
    files = [
        tmp_path / "assignment-secret.txt",
        tmp_path / "dist/student/04_attention.ipynb",
    ]
    before = [file.read_bytes() for file in files]
    with pytest.raises(ValueError, match=said):
        run(tmp_path, CHAPTER, **terms | options)
    assert [file.read_bytes() for file in files] == before
    run(tmp_path, CHAPTER, **terms | {"due": "2026-10-06T18:00+02:00"})
    run(tmp_path, CHAPTER, **{**terms, **options, "name": "other"})


def test_another_date_costs_the_same(tmp_path):
    """In the secret and in the notebooks, also for a step and programs."""
    roster = tmp_path / "roster.csv"
    roster.write_text("id,name\nada,Ada\n")
    all_ = {"step": [0], "roster": str(roster), "format": ["otter"]}
    late = {"late": 10.0, "late_cap": 50.0, "late_days": 2}
    run(tmp_path, CHAPTER, due="2026-10-05T18:00Z", **late, **all_)
    out = run(tmp_path, CHAPTER, due="2026-10-07T18:00Z", **all_)
    known = Secret.load(tmp_path / "assignment-secret.txt").assignments
    assert set(known) == {"04_attention", "step_00", "debug"}
    for plan in known.values():
        assert plan["deadline"]["due"].startswith("2026-10-07")
        costs = [plan["deadline"][n] for n in ("percent", "cap", "free")]
        assert costs == [10, 50, 2]
    for name in ("student/04_attention", "student/step_00", "students/ada"):
        text = "".join(c.source for c in cells(out / f"{name}.ipynb"))
        assert "October 7, 2026" in text
        assert "costs 10 % of the points, at most 50 %; the first" in text


def test_git_passes_over_what_is_private(tmp_path, capsys):
    """The control: what is not; and lines of one's own stay."""
    private = ["assignment-secret.txt", "submissions/a.ipynb", "grades.csv"]
    private += ["dist/gradescope.zip", "feedback/a.md", "overrides.csv"]
    git = shutil.which("git")
    if git is None:
        pytest.skip("git is missing here")
    subprocess.run([git, "init", "-q", tmp_path], check=True)
    file = tmp_path / ".gitignore"
    for mine in ("", "mine", "mine\ndist\n"):
        file.unlink(missing_ok=True)
        if mine:
            file.write_text(mine)
        for again in (False, True):
            run(tmp_path, step=[0], format=["otter"])
            said = "git        passes over" in capsys.readouterr().out
            assert said is not again
        asked = [git, "-C", tmp_path, "check-ignore", *private, "notes"]
        said = subprocess.run(asked, capture_output=True, text=True).stdout
        assert said.split() == private
        assert file.read_text().startswith(mine)
        assert file.read_text().count("/dist/") == ("dist" not in mine)


def test_the_repository_passes_over_what_is_private():
    known = (ROOT / ".gitignore").read_text("utf8").split()
    names = {line.strip("/") for line in known}
    assert {n.strip("/") for n in assign.PRIVATE} <= names


def test_a_step_given_out_stays_as_it_is(tmp_path):
    terms = {"step": [0], "format": ["otter"]}
    run(tmp_path, **terms)
    with pytest.raises(ValueError, match="got step_00 with 7 points"):
        run(tmp_path, **terms, points=["yourfile/step_00=7"])


SOLVED = """\
def attend_yourself(q, k, v, mask=None):
    return (q @ k.mT).softmax(-1) @ v"""
BARE = "def attend_yourself(q, k, v, mask=None):\n    ..."
NEW_CELL = "```\n\n```{code-cell} ipython3\n"


@pytest.mark.parametrize(
    "typed",
    [
        SOLVED,
        BARE.replace("...", "q @ k.mT  # or so\n    ..."),
        f"{BARE}\n\n# return (q @ k.mT).softmax(-1) @ v",
        f"{BARE}\n\ndef helper(q, k):\n    return (q @ k.mT).softmax(-1)",
        f"import torch\n\n{BARE}",
        f"{BARE}\n{NEW_CELL}{SOLVED}",
        "answer = 1",
    ],
    ids=["answer", "part", "comment", "helper", "import", "new cell", "none"],
)
def test_no_answer_is_given_out(tmp_path, typed):
    """What somebody has typed into a page, in Jupyter, say."""
    text = CHAPTER.read_text("utf8")
    page = tmp_path / CHAPTER.name
    for new in (BARE, typed):  # the control: the stub alone
        assert text.count(f"\n{BARE}\n") == 1
        page.write_text(text.replace(f"\n{BARE}\n", f"\n{new}\n"), "utf8")
        with (
            pytest.raises(ValueError, match=r"attention/attend|a stub defines")
            if new is typed
            else nullcontext()
        ):
            handout.read_handout(page)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"only": ["no/such"]}, "--only takes .* got no/such"),
        ({"points": ["no/such=3"]}, "--points takes .* got no/such"),
        ({"points": ["attention/attend=0"]}, "got 'attention/attend=0'"),
        ({"points": ["attention/attend"]}, "got 'attention/attend'"),
        ({"due": "tomorrow"}, "got 'tomorrow'"),
        ({"late": 10.0}, "without --due"),
        ({"due": "2026-10-05", "late": 101.0}, "--late is .* got 101"),
        ({"due": "2026-10-05", "late_cap": -1.0}, "--late-cap is .* got -1"),
        ({"due": "2026-10-05", "late_days": -1}, "got -1"),
        ({"name": "a/b"}, r"letters, digits .* got 'a/b'\. Write 'a_b'"),
    ],
)
def test_a_choice_that_cannot_be_is_refused(tmp_path, options, said):
    with pytest.raises(ValueError, match=said):
        run(tmp_path, CHAPTER, **options)
    assert not (tmp_path / "assignment-secret.txt").exists()


def test_two_pages_of_one_name_are_two_assignments(tmp_path):
    further = ROOT / "book/further/04_attention.md"
    out = run(tmp_path, CHAPTER, further)
    names = {"book-04_attention", "further-04_attention"}
    assert (
        set(Secret.load(tmp_path / "assignment-secret.txt").assignments)
        == names
    )
    assert {p.stem for p in (out / "student").iterdir()} == names


def test_two_exercises_of_one_text_are_chosen_together():
    page = ROOT / "book/further/14_seq2seq.md"
    items = handout.read_handout(page).items
    [(first, second)] = [(a, b) for a, b in pairwise(items) if not b.cells]
    for one in (first, second):
        with pytest.raises(ValueError, match="have one text"):
            handout.read_handout(page, only=[one.declared.id])


def test_what_a_syllabus_assigns_is_graded():
    """Each exercise it names exists; those to hand in can be graded."""
    text = (ROOT / "book/about/teaching.md").read_text("utf8")
    part = text.split("(teaching-syllabi)=")[1].split("\n(teaching-")[0]
    rows = [
        line.strip("|").split("|")
        for line in part.splitlines()
        if line.startswith("| ") and "/" in line.split("{doc}")[-1]
    ]
    named = re.compile(r"`(\w+/\w+)`")
    every = [id for row in rows for id in named.findall("|".join(row))]
    assert len(every) >= 10
    assert all(core.find(id) for id in every)
    last = [id for row in rows for id in named.findall(row[-1])]
    assert len(last) >= 3
    assert [id for id in last if core.find(id).local] == []
    assert core.find("decoder/build").local  # the control: that one is not


# -- an overlay --------------------------------------------------------------
MODULE = """
from coursekit_classroom.check.core import Case, Exercise
def twice(x):
    return 2 * x
EXERCISES = {"twice": Exercise(twice, lambda seed: [Case((seed % 7,))])}
"""
PAGE = """---
kernelspec:
  display_name: Python 3
  name: python3
---

# Warm-up

````{exercise} ★ Implement: twice
:label: twice

Double it.
````

```{code-cell} ipython3
:exercise: warmup/twice
:kind: assessed

def twice(x):
    ...
```

```{code-cell} ipython3
coursekit.check("warmup/twice", twice)
```

```{solution} twice
2 * x
```
"""


def test_exercises_of_an_overlay(tmp_path):
    """A page of its own, or after the chapter's; students get no check."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "warmup.py").write_text(MODULE)
    (own / "warmup.md").write_text(PAGE)
    (own / "04_attention.md").write_text(
        PAGE.replace("warmup/twice", "attention/attend")
    )
    with pytest.raises(ValueError, match="there is no such"):
        run(tmp_path, own / "warmup.md")
    dist = run(tmp_path, "warmup", overlay=str(own))
    text = (dist / "student" / "warmup.ipynb").read_text("utf8")
    assert "Double it." in text
    assert ".check(" not in text
    assert "2 * x" not in text
    assert "2 * x" in (dist / "instructor" / "warmup.ipynb").read_text("utf8")
    with zipfile.ZipFile(dist / "gradescope.zip") as file:
        assert "overlay/warmup.py" in file.namelist()
    # One that is in both counts as it is in the overlay.
    run(tmp_path, CHAPTER, overlay=str(own))
    plan = Secret.load(tmp_path / "assignment-secret.txt").assignments[
        "04_attention"
    ]
    [first] = [f for f in plan["exercises"] if f["id"] == "attention/attend"]
    assert (first["kind"], first["function"]) == ("assessed", "twice")
    assert core.OVERLAYS == []


# -- the class ---------------------------------------------------------------
@pytest.mark.parametrize(
    "data",
    [
        b"id,name\nada,Ada\nbob,Bob B.\n",
        b"\xef\xbb\xbfid,name\r\nada,Ada\r\nbob,Bob B.\r\n",
        b"id;name\nada;Ada\nbob;Bob B.\n",
        b"name\tID \nAda\tada\nBob B.\tbob\n",
        "id,name\nada,Ada\nbob,Bob B.\n".encode("utf-16"),
        b'\n"Name","x","Id"\n"Ada","1"," ada "\n,,\n"Bob B.",2,bob,9\n',
    ],
)
def test_a_roster_is_read(tmp_path, data):
    path = tmp_path / "class.csv"
    path.write_bytes(data)
    roster = read_roster(path)
    assert roster.names() == {"ada": "Ada", "bob": "Bob B."}
    assert roster.system == ""


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "class.csv is empty"),
        (b"\n , \n", "class.csv is empty"),
        (b"id,name\n", "got none in class.csv"),
        (b"number,name\n1,Ada\n", "got .number, name. in class.csv"),
        (b"id,id,name\n1,1,Ada\n", "got .id, id, name. in"),
        (b"ada,Ada\nbob,Bob\n", "got .ada, Ada. in"),
        (b"id,name\n1,Ada\n1,Bob\n", "got '1' in line 3 .* as in line 2"),
        (b"id,name\na/b,Ada\na b,Bob\n", "got 'a b' in line 3"),
        (b"id,name\nA,Ada\na,Bob\n", "got 'a' in line 3"),
        (b"id,name\n,Ada\n", "got '' in line 2"),
        (b"id,name\n../,Ada\n", "got '../' in line 2"),
        (b"PK\x03\x04\x00\x00", "In Excel, save it as CSV"),
    ],
)
def test_a_bad_roster_is_refused(tmp_path, data, said):
    path = tmp_path / "class.csv"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=said):
        read_roster(path)
    with pytest.raises(ValueError, match="No such file"):
        read_roster(tmp_path / "no.csv")


def test_ids_become_safe_names():
    assert {id: safe_name(id) for id in SAFE} == SAFE


SAFE = {
    "s123": "s123",
    "Ada.L-9_x@uni.edu": "Ada.L-9_x@uni.edu",
    "../../etc/passwd": "etc_passwd",
    ".hidden": "hidden",
    "_me": "me",
    "a/b\\c:d*e": "a_b_c_d_e",
    "Zoë √": "Zoë__",
    "Zoe\u0308": "Zoë",
    "张伟": "张伟",
    "CON": "id_CON",
    "nul.txt": "id_nul.txt",
    "a" * 300: "a" * 100,
    "x.": "x",
    " \n": "",
}


# -- everyone debugs a different program -------------------------------------
@pytest.fixture(scope="module")
def pool(key):
    found, without = programs.programs([*IDS, "attention/loud"], key)
    assert without == {"attention/loud": "it has no bugs"}
    return found


def measured(program, key):
    """The share of the cases that reject a program, run from its source."""
    exercise = core.find(program.id)
    seed = key.seed("debug", program.id)
    space = {}
    exec(str(programs.mutant(program, "theirs")), space)
    rejected = []
    for case in core.draw(exercise, seed):
        bound = core.bind(exercise, case)
        got = core.call(space["theirs"], bound, seed)
        right = core.expected(exercise, case, seed, program.variants)
        rejected.append(verdict(exercise, case, got, right) is not None)
    return sum(rejected) / len(rejected)


def test_the_programs_are_equally_hard(pool, key):
    """The source that is given out is wrong on as many cases as is said."""
    hard = programs.equally_hard(pool)
    assert len(hard) >= 20
    rates = [program.rejection_rate for program in hard]
    assert max(rates) - min(rates) <= 0.20 + 1e-9
    assert 0.40 <= min(rates) <= max(rates) <= 0.75
    for program in hard:
        share = measured(program, key)
        assert share == pytest.approx(program.rejection_rate)
    # The control: most of them are not, such as those that are always wrong.
    assert len(hard) < len(pool) / 2
    assert any(p.rejection_rate == 1 for p in pool)


def rated(*rates):
    """Programs that so many cases reject."""
    return [
        programs.Program("a/b", frozenset({str(n)}), NONE, rate)
        for n, rate in enumerate(rates)
    ]


def test_where_few_are_wrong_in_part_the_median_decides():
    many = rated(*[0.5] * 9, *[0.7] * 10, *[1.0] * 30)
    assert {p.rejection_rate for p in programs.equally_hard(many)} == {0.7}
    both = rated(*[0.5] * 9, *[0.6] * 2, *[0.7] * 8, *[1.0] * 30)
    assert len(programs.equally_hard(both)) == 19
    few = rated(*[0.5] * 9, *[1.0] * 30)
    assert {p.rejection_rate for p in programs.equally_hard(few)} == {1.0}


def unchanged(x):
    y = x
    return y


def test_no_program_is_right(pool):
    """A mistake may be none under another convention; it is left out."""
    assert all(p.rejection_rate > 0 for p in pool)
    absolute = "return y", "return y.abs()"
    bugs = {
        "one_more": core.Bug("y = x", "y = x + 1", says="one more"),
        "same": core.Bug(*absolute, says="same", otherwise=[()]),
    }
    exercise = core.Exercise(
        unchanged,
        lambda seed: [core.Case((torch.tensor([-3.0, 2.0]),))],
        bugs=bugs,
        variants={"unsigned": core.Variant(*absolute, asks="No sign.")},
    )
    found = programs.rejected("a/b", exercise, 0)
    named = {("+".join(sorted(p.bugs)), *p.variants) for p in found}
    assert named == {
        ("one_more",),
        ("same",),
        ("one_more+same",),
        ("one_more", "unsigned"),
        ("one_more+same", "unsigned"),
    }


def test_two_students_rarely_share_a_program(pool, key):
    hard = programs.equally_hard(pool)
    names = [f"s{number}" for number in range(60)]
    given = programs.distribute(names, hard, key, {})
    assert set(given) == set(names)
    used = Counter(given.values())
    fewest = len(names) // len(hard)
    assert set(used.values()) <= {fewest, fewest + 1}
    few = programs.distribute(names[: len(hard)], hard, key, {})
    assert len(set(few.values())) == len(hard)


def test_a_program_depends_on_key_and_student_alone(pool, key):
    hard = programs.equally_hard(pool)
    names = [f"s{number}" for number in range(13)]
    one = programs.distribute(names, hard, key, {})
    assert one == programs.distribute(names[::-1], hard, key, {})
    other = programs.distribute(names, hard, Secret("a7" * 32), {})
    assert sum(one[n] == other[n] for n in names) < 5
    # Who comes later takes nothing from anybody.
    more = programs.distribute([*names, "a0"], hard, key, one)
    assert {n: more[n] for n in names} == one
    assert more["a0"] not in one.values()


@pytest.fixture(scope="module")
def debug(tmp_path_factory):
    """A class of five, and one who comes later."""
    folder = tmp_path_factory.mktemp("debug")
    class_ = folder / "class.csv"
    class_.write_text("id,name\n" + "".join(f"s{i},S {i}\n" for i in range(5)))
    run(folder, CHAPTER)
    run(folder, roster=str(class_))
    return folder


def test_each_student_gets_a_notebook(debug):
    key = Secret.load(debug / "assignment-secret.txt")
    plan = key.assignments["debug"]
    assert set(plan["students"]) == {f"s{i}" for i in range(5)}
    sources = set()
    for name, fields in plan["students"].items():
        one = fields["debug"]
        path = debug / "dist/students" / f"{name}.ipynb"
        nbformat.validate(nbformat.read(path, as_version=4))
        text = path.read_text("utf8")
        assert fields["name"] in text
        assert "one of 5 in your class; somebody else may have it" in text
        assert key.mark("debug") in text
        assert ".check(" not in text  # it would name the mistake
        for bug in one["bugs"]:
            assert core.find(one["exercise"]).bugs[bug].says not in text
        assert "bugs" not in text
        first, second = declared(path)
        assert (first.id, first.function) == (one["exercise"], one["function"])
        assert first.stub == one["stub"]
        assert (second.id, second.function) == (one["test"]["id"], "tells")
        assert first.points + second.points == 10
        assert inspect.getdoc(core.find(one["exercise"]).reference) in "".join(
            c.source for c in cells(path)
        )
        assert all(f"`{n}`" in text for n in core.find(first.id).forbid)
        for variant in one["variants"]:
            asked = core.find(one["exercise"]).variants[variant]
            assert asked.asks in "".join(c.source for c in cells(path))
        got = read_submission([path], [first, second])
        assert {a.problem for a in got.answers.values()} == {""}
        space = {}
        answer = got.answers[first.id]
        for source in (*answer.helpers, answer.source):
            exec(source, space)
        assert callable(space[first.function])
        sources.add((one["exercise"], one["stub"], *one["variants"]))
    assert len(sources) == 5


def test_a_student_who_comes_later_changes_nothing(debug, tmp_path):
    shutil.copy(debug / "assignment-secret.txt", tmp_path)
    class_ = tmp_path / "class.csv"
    class_.write_text("id,name\nnew,New\ns0,Other name\ns3,S 3\n")
    run(tmp_path, roster=str(class_))
    before, after = (
        Secret.load(folder / "assignment-secret.txt").assignments["debug"][
            "students"
        ]
        for folder in (debug, tmp_path)
    )
    assert {n: after[n] for n in before} == before
    assert set(after) - set(before) == {"new"}
    stubs = [
        (f["debug"]["exercise"], f["debug"]["stub"]) for f in after.values()
    ]
    assert len(stubs) == 6


def test_without_a_program_there_is_no_assignment(tmp_path, key):
    class_ = tmp_path / "class.csv"
    class_.write_text("id,name\na,A\n")
    own = tmp_path / "own"
    own.mkdir()
    (own / "warmup.py").write_text(MODULE)
    (own / "warmup.md").write_text(PAGE)
    with pytest.raises(ValueError, match="warmup/twice: it has no bugs"):
        run(tmp_path, "warmup", overlay=str(own), roster=str(class_))


# -- a reference as a program ------------------------------------------------
def test_every_mutant_of_the_catalogue_can_be_written_down():
    """The source does what the mutant does, on a case of each exercise."""
    tried = 0
    for chapter in core.chapters():
        for name, exercise in core.exercises(chapter).items():
            if exercise.local or not exercise.bugs:
                continue
            case = core.draw(exercise, 3)[-1]
            bound = core.bind(exercise, case)
            for bug in exercise.bugs:
                on = frozenset({bug})
                space = {}
                exec(str(standalone(exercise, on, "f")), space)
                with torch.no_grad():
                    got = core.call(space["f"], bound, 3)
                right = core.expected(exercise, case, 3, on)
                assert type(got.error) is type(right.error), (name, bug)
                assert str(got.value) == str(right.value), (name, bug)
                tried += 1
    assert tried > 100


def test_what_cannot_be_written_down_is_said():
    thing = object()
    space = {"thing": thing}
    exec("def f(x):\n    return thing", space)
    with pytest.raises(NotStandaloneError):
        standalone(core.Exercise(space["f"], list))
    with pytest.raises(NotStandaloneError, match="no plain function"):
        standalone(core.Exercise(len, list))


# -- exports -----------------------------------------------------------------
def test_nbgrader_cells_are_marked(made):
    path = made / "dist/nbgrader/source/04_attention/04_attention.ipynb"
    marked = [c for c in cells(path) if "nbgrader" in c.metadata]
    solutions = [c for c in marked if c.metadata.nbgrader.solution]
    tests = [c for c in marked if c.metadata.nbgrader.grade]
    assert len(solutions) == 4
    assert len(tests) == 8  # what students see, and what they don't
    assert sum(c.metadata.nbgrader.points for c in tests) == 22
    seeds = set()
    assert [c.metadata.nbgrader.points for c in tests[::2]] == [0] * 4
    for cell in tests[::2]:
        assert cell.source.endswith("\nassert report, report")
        assert "seed" not in cell.source
    for cell in tests[1::2]:
        assert cell.source.startswith("### BEGIN HIDDEN TESTS\n")
        assert cell.source.endswith("\n### END HIDDEN TESTS")
        seeds |= set(re.findall(r"seed=(\d+)", cell.source))
    assert len(seeds) == 4
    for cell in solutions:
        assert cell.source.count("### BEGIN SOLUTION") == 1
        assert cell.source.count("### END SOLUTION") == 1


def test_nbgraders_solutions_get_all_points(made):
    """The cells as nbgrader would run them, one after another."""
    path = made / "dist/nbgrader/source/04_attention/04_attention.ipynb"
    space = {}
    for cell in cells(path):
        if cell.cell_type != "code":
            continue
        *lines, last = cell.source.split("\n")
        if last != "### END HIDDEN TESTS":
            exec(cell.source, space)
            continue
        exec("\n".join(lines[:-1]), space)
        points = eval(lines[-1], space)
        assert points == cell.metadata.nbgrader.points


OTTER = "dist/otter/04_attention/04_attention.ipynb"


def test_otter_gets_a_test_for_each_case(made):
    """The first is the page's own; the key's numbers stand in hidden ones."""
    raw = [c.source for c in cells(made / OTTER) if c.cell_type == "raw"]
    assert raw[0].startswith("# ASSIGNMENT CONFIG\n")
    assert [r for r in raw if r.startswith("# BEGIN QUESTION")] == [
        f"# BEGIN QUESTION\nname: {id.replace('/', '_')}"
        for id in (d.id for d in declared(CHAPTER))
    ]
    tests = [
        c.source for c in cells(made / OTTER) if "TEST CONFIG" in c.source
    ]
    space, points = {}, Counter()
    for text in tests:
        config, body = text.split('""" # END TEST CONFIG\n')
        said = dict(re.findall(r"^(\w+): (.*)$", config, re.MULTILINE))
        assert (said["hidden"] == "true") == ("seed=" in body)
        assert (said["hidden"] == "true") == (float(said["points"]) > 0)
        exec(body, space)
        function = re.search(r"def test_\d+\((\w+)\)", body)[1]
        points[function] += float(said["points"])
    assert points == {d.function: d.points for d in declared(CHAPTER)}
    n = len(core.draw(core.find("attention/blocks"), 0))
    assert len([t for t in tests if "(attend_in_blocks)" in t]) == n + 1


@pytest.mark.parametrize(
    ("source", "right"),
    [
        (RIGHT.replace('~mask, float("-inf")', "mask, -1e4"), 4),
        (RIGHT, 0),  # of the book: True shows
    ],
)
def test_otters_tests_give_what_is_partly_right_its_part(made, source, right):
    space, told = {}, {}
    exec(source, space)
    passed = 0.0
    for cell in cells(made / OTTER):
        if "(attend_yourself)" in cell.source and "TEST CONFIG" in cell.source:
            exec(cell.source, space)
            number = re.search(r"def (test_\d+)", cell.source)[1]
            try:
                space[number](space["attend_yourself"])
            except AssertionError as error:
                told[number] = str(error)
                continue
            passed += float(re.search(r"points: (\S+)", cell.source)[1])
    id, key = "attention/attend", Secret.load(made / "assignment-secret.txt")
    report = coursekit.check(
        id,
        space["attend_yourself"],
        seed=key.seed("grade", id),
        variants=["true_hides"],
    )
    assert report.right == right
    assert passed == pytest.approx(6 * report.right / report.total)
    told.pop("test_0", "")  # the page's own check
    assert "expected" not in "".join(told.values())  # hidden numbers stay so


def libraries():
    """A Python that has torch; test_gradescope_brings_its_own_python asks
    the usual one."""
    return forked.executable(*forked.LIBRARIES)


def test_gradescope_grades_a_submission(made, debug, tmp_path):
    """The zip alone, in a container's folder, with this Python."""
    answers = {
        "attend_yourself": "    return q @ k.mT",
        "mended": "    a = (q @ k.mT / q.size(-1) ** 0.5).exp()\n"
        "    return a / a.sum(-1, keepdim=True) @ v",
    }
    notebook = nbformat.read(
        made / "dist/student/04_attention.ipynb", as_version=4
    )
    for cell in notebook.cells:
        for function, body in answers.items():
            if cell.source.startswith(f"def {function}("):
                cell.source = cell.source.split("\n")[0] + "\n" + body
    for name, zipped, handed_in, people in (
        ("a", made / "dist/gradescope.zip", notebook, None),
        (
            "b",
            debug / "dist/gradescope-debug.zip",
            nbformat.read(debug / "dist/students/s3.ipynb", as_version=4),
            {"users": [{"email": "S3@uni.edu", "name": "S 3"}]},
        ),
    ):
        here = tmp_path / name
        (here / "submission").mkdir(parents=True)
        nbformat.write(handed_in, here / "submission" / "mine.ipynb")
        link = "._[old](www.x.org)<i>.ipynb"  # a name is no Markdown
        nbformat.write(handed_in, here / "submission" / link)
        if people:
            (here / "submission_metadata.json").write_text(json.dumps(people))
        with zipfile.ZipFile(zipped) as file:
            file.extractall(here / "source")
        done = subprocess.run(
            ["bash", here / "source" / "run_autograder"],
            env=os.environ | {"AUTOGRADER": here, "PYTHON": libraries()},
            capture_output=True,
            encoding="utf8",
        )
        assert done.returncode == 0, done.stderr
        said = json.loads((here / "results/results.json").read_text())
        assert {t["visibility"] for t in said["tests"]} == {"after_due_date"}
        *found, last = said["tests"]
        tests = {t["name"]: t for t in found}
        kind = str(sandbox.best())
        assert said["extra_data"] == {"isolation": [kind]}
        assert f"isolation: {kind}" in said["output"]
        assert all(f"isolation: {kind}" in t["output"] for t in tests.values())
        assert "meets the same hidden inputs" in said["output"]
        assert "exp" not in said["output"]  # it is visible at once
        left_out = r".\_\[old\](www\.x.org)\<i\>.ipynb"
        assert left_out in last["output"]
        if name == "a":
            assert len(tests) == 4, said
            assert tests["attention/mended"]["score"] == 2.67  # 2 of 3 cases
            assert tests["attention/attend"]["score"] == 0
            assert said["score"] == 2.67
            assert tests["attention/blocks"]["output"].startswith(
                "not attempted"
            )
            assert "exp" in last["output"]  # the feedback names the mistake
        else:
            assert len(tests) == 2, said
            assert sum(t["max_score"] for t in found) == 10


def test_gradescope_knows_when_it_was_handed_in(tmp_path):
    """And runs nothing where nothing shuts it in."""
    dist = run(
        tmp_path,
        CHAPTER,
        only=["attention/mended"],
        due="2026-10-05T12:00Z",
        late=10.0,
        visibility="visible",
    )
    with zipfile.ZipFile(dist / "gradescope.zip") as file:
        file.extractall(tmp_path / "source")
    notebook = nbformat.read(dist / "student/04_attention.ipynb", as_version=4)
    for cell in notebook.cells:
        if cell.source.startswith("def mended("):
            cell.source = RIGHT_MENDED
    (tmp_path / "submission").mkdir()
    nbformat.write(notebook, tmp_path / "submission" / "a.ipynb")
    said = {"created_at": "2026-10-07T04:00:00.5-09:00"}
    (tmp_path / "submission_metadata.json").write_text(json.dumps(said))

    def results():
        subprocess.run(
            ["bash", tmp_path / "source" / "run_autograder"],
            env=os.environ | {"AUTOGRADER": tmp_path, "PYTHON": libraries()},
            check=True,
        )
        return json.loads((tmp_path / "results/results.json").read_text())

    said = results()
    most = said["tests"][0]["max_score"]
    assert said["score"] == round(0.7 * most, 2)  # two days and an hour
    assert "3 days late" in said["tests"][-1]["output"]
    assert {t["visibility"] for t in said["tests"]} == {"visible"}
    place = "source/package/coursekit_classroom/teach/sandbox.py"
    with (tmp_path / place).open("a") as file:
        file.write("\n\ndef best():\n    return Isolation.NONE\n")
    said = results()
    assert (said["score"], said["tests"]) == (0, [])
    assert "nothing here shuts a submission in" in said["output"]


READS = r"""
import os, sys
opened = set()
def watch(event, args):
    if event == "open" and isinstance(args[0], (str, os.PathLike)):
        opened.add(os.path.realpath(args[0]))
sys.addaudithook(watch)
import coursekit
from coursekit_classroom.check import core
for chapter in core.chapters():
    for name, exercise in core.exercises(chapter).items():
        if exercise.judge:
            coursekit.check(f"{chapter}/{name}", exercise.reference)
        for case in core.draw(exercise, 3)[:1]:
            core.expected(exercise, case, 3)
print(*(path for path in opened if "/assets/" in path), sep="\n")
"""


def test_gradescopes_zip_has_what_exercises_read():
    """And no more of what is trained, drawn or recorded."""
    inside = {str(path) for _, path in exports.package_files()}
    done = subprocess.run(
        [*forked.python(), "-c", READS],
        capture_output=True,
        encoding="utf8",
        check=True,
    )
    read = set(done.stdout.split())
    assert any("models/running" in path for path in read)
    assert read <= inside
    assets = {Path(n).name for n in inside if "/assets/" in n}
    assert "glove_6b_50d_top20k.npz" not in assets
    models = {Path(n).parent.name for n in inside if "/assets/models/" in n}
    assert models == {"running"}


def test_gradescope_says_what_went_wrong(made, tmp_path):
    with zipfile.ZipFile(made / "dist/gradescope.zip") as file:
        file.extractall(tmp_path / "source")
    (tmp_path / "source" / "assignment-secret.txt").write_text("{")
    (tmp_path / "submission").mkdir()
    subprocess.run(
        ["bash", tmp_path / "source" / "run_autograder"],
        env=os.environ | {"AUTOGRADER": tmp_path, "PYTHON": libraries()},
        check=True,
    )
    said = json.loads((tmp_path / "results/results.json").read_text())
    assert said["score"] == 0
    assert "could not be graded" in said["output"]


# Stands in for apt-get, for the image's old Python, and for uv, which makes
# an environment with the Python that it is told.
STANDS_IN = """\
#!/bin/sh
echo "$(basename "$0") $*" >> "$LOG"
if [ "$1 $2" = "-m venv" ]; then
  mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; cp "$0" "$3/bin/uv"
fi
if [ "$1" = venv ]; then
  mkdir -p "$5/bin"; ln -s "$REAL" "$5/bin/python"
fi
"""


def test_gradescope_brings_its_own_python(made, tmp_path):
    """The image's has 3.10 on Ubuntu 22.04, and our versions need more."""
    here, stubs = tmp_path / "autograder", tmp_path / "stubs"
    with zipfile.ZipFile(made / "dist/gradescope.zip") as file:
        file.extractall(here / "source")
    stubs.mkdir()
    for name in ("apt-get", "python3"):
        (stubs / name).write_text(STANDS_IN)
        (stubs / name).chmod(0o755)
    log = tmp_path / "log"
    known = {"AUTOGRADER": here, "LOG": log, "REAL": sys.executable}
    path = f"{stubs}{os.pathsep}{os.environ['PATH']}"
    without = {k: v for k, v in os.environ.items() if k != "PYTHON"}
    for script in ("setup.sh", "run_autograder"):
        done = subprocess.run(
            ["bash", here / "source" / script],
            env=without | known | {"PATH": path},
            capture_output=True,
            encoding="utf8",
        )
        assert done.returncode == 0, done.stderr
    said = log.read_text().splitlines()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert said[-2:] == [
        f"uv venv --clear --python {version} {here}/venv",
        f"uv pip install --python {here}/venv/bin/python --torch-backend cpu "
        f"-r {here}/source/requirements.txt",
    ]
    # Of the image's own Python nothing is asked but to install uv.
    asked = [line for line in said if line.startswith("python")]
    assert asked == [
        f"python3 -m venv {here}/uv",
        "python -m pip install uv>=0.9",
    ]
    # The environment's Python is the one that grades.
    results = json.loads((here / "results/results.json").read_text())
    assert "tests" in results


def test_gradescopes_zip_is_for_the_instructor(made):
    path = made / "dist/gradescope.zip"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with zipfile.ZipFile(path) as file:
        names = file.namelist()
        needs = file.read("requirements.txt").decode()
        shell = file.getinfo("run_autograder").external_attr >> 16
        read_me = " ".join(file.read("README.txt").decode().split())
    assert shell & 0o111
    assert "hands in again meets the same hidden cases" in read_me
    assert "package/coursekit/__main__.py" in names
    assert not [n for n in names if "__pycache__" in n]
    pinned = [line.partition("==")[0] for line in needs.split()]
    ours = re.findall(
        r'^  "(\w+)>=.*$',
        (ROOT / "pyproject.toml").read_text().split("[project.opt")[0],
        re.MULTILINE,
    )
    assert set(ours) <= set(pinned)
    assert exports.requirements() == needs


@pytest.mark.parametrize("assessed", [False, True])
def test_a_hint_of_another_convention_says_so(assessed):
    drawn = {"attention/attend": ["true_hides"]} if assessed else {}
    found = handout.read_handout(ROOT / "book/04_attention.md", variants=drawn)
    text = {item.declared.id: handout.asked(item) for item in found.items}[
        "attention/attend"
    ]
    hints = text.count("<summary>Hint")
    assert hints > 0
    assert text.count(handout.OF_THE_BOOK) == (hints if assessed else 0)
