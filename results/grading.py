"""The commands of the page for teachers, run from an empty folder.

What each prints is kept, and shown on the page.  The class is made up: its
students answer in ways that are known, right, wrong and hostile.
"""

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import nbformat

from coursekit_classroom.check.core import find
from coursekit_classroom.teach.secret import Secret
from coursekit_classroom.teach.standalone import standalone
from results.record import ROOT, options, record

STUDENTS = {
    "ada": "Ada Okafor",
    "bo": "Bo Lindqvist",
    "chen": "Chen Yu",
    "dana": "Dana Haddad",
    "eli": "Eli Novak",
    "fay": "Fay Moreau",
    "gil": "Gil Santos",
    "hana": "Hana Ito",
}
HOUR = timedelta(hours=1)
DUE = "2026-10-05T18:00+02:00"
LATE = {"eli": 30 * HOUR}  # the others hand in an hour before it is due
RIGHT = """
def attend_yourself(q, k, v, mask=None):
    scores = q @ k.mT / q.size(-1) ** 0.5
    if mask is not None:  # here True hides
        scores = scores.masked_fill(mask, float("-inf"))
    return scores.softmax(-1) @ v
"""
ANSWERS = {
    "ada": RIGHT,
    "bo": RIGHT.replace(" / q.size(-1) ** 0.5", ""),
    "chen": RIGHT.replace("softmax(-1)", "softmax(-2)"),
    "dana": RIGHT.replace("softmax(-1)", "softmax(-1).round(decimals=2)"),
    "eli": """
def attend_yourself(q, k, v, mask=None):
    scores = torch.einsum("...td,...sd->...ts", q, k) / q.size(-1) ** 0.5
    if mask is not None:
        scores = torch.where(mask, float("-inf"), scores)
    return torch.softmax(scores, -1) @ v
""",
    "hana": RIGHT.replace("(mask,", "(~mask,"),
    "fay": """
import os

def attend_yourself(q, k, v, mask=None):
    os._exit(0)
""",
}
OWN = '''
"""A warm-up of our own."""

import torch

from coursekit_classroom.check.core import Bug, Case, Exercise, generator


def center(x):
    """Subtract from each vector its own mean."""
    return x - x.mean(-1, keepdim=True)


def cases(seed):
    g = generator(seed)
    x = torch.randn(5, 7, generator=g, dtype=torch.float64)
    return [Case((x,), name="five vectors of seven numbers")]


bugs = {
    "over_tokens": Bug(
        "x.mean(-1, keepdim=True)",
        "x.mean(0)",
        says="the mean over the tokens instead of each token's own numbers",
        why="A vector is a row: its numbers lie along the last axis.",
        read="07_norm#ch-norm",
    )
}
EXERCISES = {"center": Exercise(center, cases, bugs=bugs)}
'''
TEST = """
import torch

def tells(f):
    g = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 5, 7, generator=g).double() for _ in range(3))
    mask = torch.rand(2, 5, 5, generator=g) > 0.5
    mask = mask | torch.eye(5, dtype=torch.bool)
    return bool(torch.allclose(f(q, k, v, mask), NAME(q, k, v, mask)))
"""
PAGE = """
# A warm-up

````{exercise} ★ Implement: the middle
:label: warm-center

Subtract from each of the T vectors of `x`, (T, D), its own mean.
````

```{code-cell} ipython3
:exercise: warmup/center
:points: 3
:kind: assessed

def center(x):
    ...
```
"""
TRY = """
from pathlib import Path
import coursekit
from coursekit_classroom.check import core

core.OVERLAYS.append(Path("overlay"))
print(coursekit.check("warmup/center", lambda x: x - x.mean(0)))
"""


parser = options(__doc__, seed=0)


class Desk:
    """An empty folder in which the commands are run."""

    def __init__(self, folder: Path, programs: str = "") -> None:
        self.folder = folder
        programs = programs or str(Path(sys.executable).parent)
        self.path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        self.printed: dict[str, str] = {}

    def type(self, name: str, *lines: str) -> str:
        """Run some lines in a shell; keep what a terminal would show."""
        shown = []
        for line in lines:
            done = subprocess.run(
                ["sh", "-c", line],
                cwd=self.folder,
                env=os.environ | {"PATH": self.path},
                capture_output=True,
                text=True,
            )
            # A built book would add where it lies on this machine.
            printed = re.sub(r", file://\S+", "", done.stdout)
            if done.returncode not in (0, 1):
                raise RuntimeError(f"{line}:\n{done.stdout}{done.stderr}")
            shown.append(f"$ {line}\n{printed}".rstrip())
        self.printed[name] = "\n".join(shown)
        return self.printed[name]


def read(path: Path) -> nbformat.NotebookNode:
    """A notebook."""
    return nbformat.read(path, as_version=4)


def answer(path: Path, answers: Mapping[str, str]) -> nbformat.NotebookNode:
    """A student's notebook with answers in it."""
    notebook = read(path)
    for cell in notebook.cells:
        source = answers.get(cell.metadata.get("exercise"))
        if source is not None:
            cell.source = source.strip()
    return notebook


def play(desk: Desk, doctor: bool = True) -> dict[str, Any]:
    """The whole of the page, command by command, perhaps without a doctor."""
    here = desk.folder
    (here / "book").mkdir()
    page = "book/04_attention.md"
    shutil.copy(ROOT / page, here / page)
    key = Secret(
        "5" * 64, path=here / "assignment-secret.txt"
    )  # always the same class
    key.save()
    desk.type(
        "assign",
        f"coursekit assign {page} --assess attention/attend "
        f"--points attention/attend=10 --due {DUE} --late 10",
        "ls dist/",
    )
    submissions = here / "submissions"
    submissions.mkdir()
    blank = here / "dist" / "student" / "04_attention.ipynb"
    for student, source in ANSWERS.items():
        notebook = answer(blank, {"attention/attend": source})
        handed_in = submissions / f"{student}.ipynb"
        nbformat.write(notebook, handed_in)
        time = datetime.fromisoformat(DUE) + LATE.get(student, -HOUR)
        os.utime(handed_in, (time.timestamp(),) * 2)
    (submissions / "gil.ipynb").write_text('{"cells": [')
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    desk.type(
        "grade",
        "coursekit grade submissions/ --out grades.csv --feedback feedback/",
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    desk.type(
        "sheet", "grep -E 'student|attend' grades.csv | cut -d, -f1-6,12-14"
    )
    (here / "canvas.csv").write_text(canvas())
    desk.type(
        "canvas",
        "coursekit sheet grades.csv --format canvas --roster canvas.csv "
        "--title 'Homework 2 (1234)'",
        "head -4 grades-canvas.csv",
    )
    desk.type("feedback", "head -40 feedback/chen.md | fold -s -w 76")
    desk.type("summary", "head -40 summary.md | fold -s -w 76")
    used = (after.ru_utime + after.ru_stime) - (
        before.ru_utime + before.ru_stime
    )
    debug(desk)
    if doctor:
        desk.type("doctor", "coursekit doctor")
    (here / "overlay").mkdir()
    (here / "overlay" / "warmup.py").write_text(OWN.lstrip())
    (here / "overlay" / "warmup.md").write_text(PAGE.lstrip())
    (here / "try.py").write_text(TRY.lstrip())
    desk.type("own", "cat try.py", "python try.py")
    desk.type("page", "cat overlay/warmup.md")
    desk.type(
        "assign_own",
        "coursekit assign warmup --overlay overlay --out own/ "
        "--secret own-secret.txt",
    )
    n = len(ANSWERS) + 1
    return {"submissions": n, "cpu_seconds_a_submission": used / n}


def canvas() -> str:
    """The class as Canvas's gradebook exports it."""
    lines = ["Student,ID,SIS User ID,SIS Login ID,Section,Essay (77)"]
    lines.append("    Points Possible,,,,,10")
    for number, (id, name) in enumerate(STUDENTS.items(), 4001):
        first, last = name.split()
        lines.append(f'"{last}, {first}",{number},,{id},1,')
    return "\n".join(lines) + "\n"


def debug(desk: Desk) -> None:
    """Everyone debugs a program; somebody hands in theirs."""
    here = desk.folder
    rows = "".join(f"{id},{name}\n" for id, name in STUDENTS.items())
    (here / "students.csv").write_text(f"id,name\n{rows}")
    desk.type("roster", "head -4 students.csv")
    desk.type(
        "assign_roster",
        "coursekit assign --roster students.csv --out class/",
        "ls class/ class/students",
    )
    given = json.loads((here / "assignment-secret.txt").read_text())[
        "assignments"
    ]
    students = given["debug"]["students"]
    # Someone who got a program that the test below is for.
    student, mine = next(
        (id, fields["debug"])
        for id, fields in students.items()
        if fields["debug"]["exercise"] == "attention/attend"
    )
    desk.printed["program"] = mine["stub"]
    blank = here / "class" / "students" / f"{student}.ipynb"
    mended = standalone(
        find(mine["exercise"]),
        frozenset(mine["variants"]),
        mine["function"],
    ).function
    answers = {
        mine["exercise"]: mended,
        mine["test"]["id"]: TEST.replace("NAME", mine["function"]),
    }
    (here / "mended").mkdir()
    nbformat.write(
        answer(blank, answers), here / "mended" / f"{student}.ipynb"
    )
    desk.type(
        "fixed",
        "coursekit grade mended/ --out debug.csv --feedback mended-feedback/",
        "cut -d, -f1-7 debug.csv | head -3",
    )


def main() -> None:
    """Run every command of the page."""
    args = parser.parse_args()
    with (
        record("grading", [args.seed]) as metrics,
        tempfile.TemporaryDirectory() as folder,
    ):
        desk = Desk(Path(folder))
        metrics["measured"] = play(desk)
        metrics["overlay"] = OWN.strip()
        metrics["transcripts"] = desk.printed


if __name__ == "__main__":
    main()
