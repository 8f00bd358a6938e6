"""nbgrader and Otter themselves take an assignment, and give its points.

They cost a minute of CPU time and 560 MB, so only ``make graders`` asks them,
which installs them and says where (GRADERS); CI does so once a week.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from coursekit_classroom.teach.secret import Secret

ROOT = Path(__file__).resolve().parents[2]
NAME = "04_attention"
ANSWERS = {  # here True in a mask hides; overflow in one case of four
    "attend_yourself": """\
    scores = q @ k.mT / q.size(-1) ** 0.5
    if mask is not None:
        scores = scores.masked_fill(mask, float('-inf'))
    return scores.softmax(-1) @ v""",
    "mended": """\
    a = (q @ k.mT / q.size(-1) ** 0.5).exp()
    return a / a.sum(-1, keepdim=True) @ v""",
}


@pytest.fixture(scope="module")
def call():
    """Run a program of theirs, in the environment that was made for them."""
    asked = os.environ.get("GRADERS")
    if not asked:
        pytest.skip("to ask nbgrader and Otter: make graders")
    folder = ROOT / asked
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    known = {"PATH": path, "JAXTYPING_DISABLE": "1"}

    def give(*words, at, rc=0, **more):
        done = subprocess.run(
            [folder / "bin" / words[0], *words[1:]],
            cwd=at,
            env=os.environ | known | more,
            capture_output=True,
            encoding="utf8",
        )
        assert done.returncode == rc, done.stdout + done.stderr
        return done.stdout + done.stderr

    return give


@pytest.fixture(scope="module")
def made(call, tmp_path_factory):
    folder = tmp_path_factory.mktemp("graders")
    words = ["assign", f"book/{NAME}.md", "--assess", "attention/attend"]
    words += [
        "--secret",
        folder / "assignment-secret.txt",
        "--out",
        folder / "dist",
    ]
    subprocess.run(
        [sys.executable, "-m", "coursekit", *words], cwd=ROOT, check=True
    )
    return folder / "dist"


def answered(path):
    """A student's notebook with two answers."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        for function, body in ANSWERS.items():
            if cell.source.startswith(f"def {function}("):
                cell.source = cell.source.split("\n")[0] + "\n" + body
    return notebook


def test_nbgrader_releases_validates_and_grades(made, call):
    course = made / "nbgrader"
    call("nbgrader", "generate_assignment", NAME, "--create", at=course)
    path = course / "release" / NAME / f"{NAME}.ipynb"
    text = path.read_text("utf8")
    for secret in ("HIDDEN TESTS", "BEGIN SOLUTION", "masked_fill(~vis"):
        assert secret not in text
    assert text.count("raise NotImplementedError()") == 4
    said = call("nbgrader", "validate", path.name, at=path.parent)
    assert "VALIDATION FAILED ON 4 CELL(S)" in said  # nothing is written
    target = course / "submitted" / "ada" / NAME / f"{NAME}.ipynb"
    target.parent.mkdir(parents=True)
    nbformat.write(answered(path), target)
    said = call("nbgrader", "validate", target.name, at=target.parent)
    assert "VALIDATION FAILED ON 3 CELL(S)" in said  # one is right
    call("nbgrader", "autograde", NAME, "--create", at=course)
    call("nbgrader", "export", at=course)
    sheet = (course / "grades.csv").read_text("utf8").splitlines()
    row = dict(zip(*(line.split(",") for line in sheet), strict=True))
    assert float(row["score"]) == pytest.approx(6 + 4 * 2 / 3, abs=0.01)
    assert float(row["max_score"]) == 22


def test_without_the_package_nbgrader_grades_nobody(made, call, tmp_path):
    """Another package of that name hides it, as an empty folder does."""
    (tmp_path / "coursekit").mkdir()
    (tmp_path / "coursekit" / "__init__.py").touch()
    said = call(
        *("nbgrader", "autograde", NAME),
        at=made / "nbgrader",
        rc=1,
        PYTHONPATH=str(tmp_path),
    )
    assert "an environment without it" in said


def test_otter_assigns_and_grades(made, call):
    """It plays its tests on the solutions: all of them pass."""
    here = made / "otter" / NAME
    call("otter", "assign", f"{NAME}.ipynb", "dist", at=here)
    text = (here / "dist/student" / f"{NAME}.ipynb").read_text("utf8")
    key = Secret.load(made.parent / "assignment-secret.txt")
    seed = str(key.seed("grade", "attention/attend"))
    assert seed in (here / f"{NAME}.ipynb").read_text("utf8")
    for secret in (seed, "BEGIN SOLUTION", "masked_fill(~vis"):
        assert secret not in text
    notebook = answered(here / "dist/student" / f"{NAME}.ipynb")
    nbformat.write(notebook, here / "ada.ipynb")
    [zipped] = (here / "dist" / "autograder").glob("*.zip")
    (here / "out").mkdir()
    words = ("otter", "run", "ada.ipynb", "-a", zipped, "-o", "out")
    call(*words, at=here)
    found = json.loads((here / "out/results.json").read_text())
    scores = {t["name"]: t["score"] for t in found["tests"][1:]}
    assert scores == {
        "attention_attend": 6,
        "attention_mended": pytest.approx(4 * 2 / 3, abs=0.01),
        "attention_stuck_share": 0,
        "attention_blocks": 0,
    }
