"""An assignment for nbgrader, for Otter and for Gradescope.

nbgrader and Otter run the student's code and the tests in one process:
whoever wants can reach the tests from there. Gradescope's container runs
``coursekit grade``, which keeps the two apart.
"""

import ast
import json
import re
import sys
import textwrap
import zipfile
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from coursekit_classroom.check import core
from coursekit_classroom.notebooks.install import NEEDS
from coursekit_classroom.teach.handout import (
    Handout,
    Item,
    Writer,
    asked,
    visible,
    write,
    write_start,
)
from coursekit_classroom.teach.sandbox import COURSE, PACKAGE
from coursekit_classroom.teach.secret import Secret
from coursekit_classroom.teach.standalone import (
    NotStandaloneError,
    standalone,
)

SCHEMA = 3  # nbgrader's, of a cell's metadata
CONFIG = """\
# nbgrader reads this: run it in this folder.
#   nbgrader generate_assignment NAME
#   nbgrader autograde NAME
# with the name of a folder in source/. nbgrader runs a student's code and the
# hidden tests in one process: code that wants to can read and change them.
# `coursekit grade` keeps them apart.
from importlib.util import find_spec

try:
    found = find_spec("coursekit_classroom.check")
except ModuleNotFoundError:
    found = None
if found is None:
    raise SystemExit(
        "nbgrader runs notebooks that need coursekit: got an environment "
        "without it, in which everybody would get 0 points. Install it there, "
        "with `pip install .` in a checkout of the book."
    )
c = get_config()
c.CourseDirectory.course_id = "coursekit"
"""
DATE = (2000, 1, 1, 0, 0, 0)  # in a zip: the same input gives the same bytes


# -- nbgrader ----------------------------------------------------------------
def write_nbgrader(handout: Handout, secret: Secret, folder: Path) -> Path:
    """Write ``source/<page>/<page>.ipynb`` as nbgrader wants it.

    A cell's solution stands between its marks. A cell that students see asks
    whether the answer passes its check: without it, nbgrader's Validate would
    pass an empty notebook. It is worth nothing, so what is partly right loses
    nothing by it: points are given by a cell of hidden tests with the secret's
    numbers, by the fraction of right cases.
    """
    to, name = Writer(handout.mark), handout.page
    write_start(to, handout, "Write your answers where the code asks you to.")
    items = {item.declared.id: item for item in handout.items}
    for item in handout.items:
        to.text(asked(item))
        for cell in item.cells:
            if cell.exercise in items:
                own = items[cell.exercise]
                said = marks(own, "answer", solution=True)
                to.code(answer(own, "### "), **cell.metadata, nbgrader=said)
            else:
                to.cell(cell, visible(cell, item))
        if not item.exercise.local:
            said = marks(item, "written", grade=True, points=0)
            to.code(shown_test(item), nbgrader=said)
            points = item.declared.points
            said = marks(item, "tests", grade=True, points=points)
            to.code(hidden_tests(item, secret), nbgrader=said)
    path = folder / "source" / name / f"{name}.ipynb"
    write(to.notebook(), path)
    config = folder / "nbgrader_config.py"
    config.write_text(CONFIG, "utf8")
    return path


def marks(
    item: Item,
    what: str,
    solution: bool = False,
    grade: bool = False,
    points: int | float | None = None,
) -> dict[str, Any]:
    """nbgrader's metadata of a cell."""
    name = item.declared.id.replace("/", "-")
    said: dict[str, Any] = {
        "cell_type": "code",
        "grade": grade,
        "grade_id": f"{name}-{what}",
        "locked": grade,
        "schema_version": SCHEMA,
        "solution": solution,
        "task": False,
    }
    return said | ({"points": points} if points is not None else {})


def answer(item: Item, mark: str) -> str:
    """The stub with the solution between the marks of nbgrader or Otter."""
    one = item.declared
    try:
        found = standalone(item.exercise, item.variants, "solution")
    except NotStandaloneError as error:
        body = [f"# No solution in one piece: {error}.", "..."]
    else:
        body = str(found).split("\n")
        body.append(f"return solution({', '.join(arguments(one.stub))})")
    lines = [f"{mark}BEGIN SOLUTION", *body, f"{mark}END SOLUTION"]
    inner = textwrap.indent("\n".join(lines), "    ")
    return f"{head(one.stub)}\n{inner}"


def head(stub: str) -> str:
    """A stub up to its body, its docstring included."""
    node = function_in(stub)
    last = node.body[0].lineno - 1
    if ast.get_docstring(node) is not None:
        last = node.body[0].end_lineno or last
    return "\n".join(stub.split("\n")[:last])


def function_in(stub: str) -> ast.FunctionDef:
    """The last function of a stub."""
    found = [n for n in ast.parse(stub).body if isinstance(n, ast.FunctionDef)]
    return found[-1]


def arguments(stub: str) -> list[str]:
    """How a stub's function hands on what it gets."""
    said = function_in(stub).args
    names = [a.arg for a in said.posonlyargs + said.args]
    names += [f"*{said.vararg.arg}"] if said.vararg else []
    names += [f"{a.arg}={a.arg}" for a in said.kwonlyargs]
    return names + ([f"**{said.kwarg.arg}"] if said.kwarg else [])


def shown_test(item: Item) -> str:
    """Lines that fail as long as the answer doesn't pass its check.

    Students don't have the check of an overlay's exercise; for these they
    fail as long as nothing is written.
    """
    one = item.declared
    if not item.private:
        return f"{report(item)}\nassert report, report"
    return (
        "import inspect\n\n"
        f"written = inspect.getsource({one.function})\n"
        'assert "NotImplementedError" not in written, "nothing is written"'
    )


def hidden_tests(item: Item, secret: Secret) -> str:
    """A cell whose value is the number of points."""
    lines = [
        "### BEGIN HIDDEN TESTS",
        *reach(item),
        report(item, secret),
        'print(*report.cause(), sep="\\n")',  # no number of a hidden case
        f"{item.declared.points} * report.right / max(report.total, 1)",
        "### END HIDDEN TESTS",
    ]
    return "\n".join(lines)


def reach(item: Item) -> list[str]:
    """Lines after which a program finds the exercises of the overlays."""
    if not item.private:
        return []
    folders = [str(folder.resolve()) for folder in core.OVERLAYS]
    return [
        "from pathlib import Path",
        "from coursekit_classroom.check import core",
        f"core.OVERLAYS[:] = map(Path, {folders})",
    ]


def report(item: Item, secret: Secret | None = None) -> str:
    """Lines that check an answer, on the secret's numbers or the page's."""
    one = item.declared
    asks = [f'"{one.id}", {one.function}']
    if secret is not None:
        asks.append(f"seed={secret.seed('grade', one.id)}")
    if item.variants:
        asks.append(f"variants={sorted(item.variants)}")
    return f"import coursekit\nreport = coursekit.check({', '.join(asks)})"


# -- Otter -------------------------------------------------------------------
OTTER = """\
# ASSIGNMENT CONFIG
# Run in this folder:  otter assign NAME.ipynb dist
# Otter runs a student's code and the hidden tests in one process: code that
# wants to can read and change them. `coursekit grade` keeps them apart.
name: NAME
init_cell: true
check_all_cell: true
export_cell:
  pdf: false
tests:
  ok_format: false
"""
TEST = '''\
""" # BEGIN TEST CONFIG
points: {points}
hidden: {hidden}
""" # END TEST CONFIG
def test_{number}({function}):
{body}'''


def write_otter(handout: Handout, secret: Secret, folder: Path) -> Path:
    """Write ``<page>/<page>.ipynb``, which ``otter assign`` reads.

    The first test of a question is the page's own check, which students see.
    Then there are as many hidden tests as the secret draws cases: the k-th
    passes if at least k of them are right, so that points are given by the
    fraction of right cases.

    https://otter-grader.readthedocs.io/en/latest/otter_assign/notebook_format.html
    """
    to, name = Writer(handout.mark), handout.page
    items = {item.declared.id: item for item in handout.items}
    to.raw(OTTER.replace("NAME", name))
    write_start(to, handout, "Write your answers where the code asks you to.")
    for item in handout.items:
        to.text(asked(item))
        for cell in item.cells:
            if cell.exercise in items:
                question(to, items[cell.exercise], cell.metadata, secret)
            else:
                to.cell(cell, visible(cell, item))
    return write(to.notebook(), folder / name / f"{name}.ipynb")


def question(to: Writer, item: Item, known: Any, secret: Secret) -> None:
    """Write an exercise's stub, with its solution, and its tests."""
    if item.exercise.local:
        to.code(item.declared.stub, **known)
        return
    to.raw("# BEGIN QUESTION\nname: " + item.declared.id.replace("/", "_"))
    to.raw("# BEGIN SOLUTION")
    to.code(answer(item, "# "), **known)
    to.raw("# END SOLUTION")
    to.raw("# BEGIN TESTS")
    for text in otter_tests(item, secret):
        to.code(text)
    to.raw("# END TESTS")
    to.raw("# END QUESTION")


def otter_tests(item: Item, secret: Secret) -> Iterator[str]:
    """The tests of one question: what students see, then what they don't."""
    one = item.declared
    n = len(core.draw(item.exercise, secret.seed("grade", one.id)))
    hidden = "\n".join([*reach(item), report(item, secret)])
    for number in range(n + 1):
        least = f"{hidden}\nassert report.right >= {number}, report.cause()"
        yield TEST.format(
            points=one.points / n if number else 0,
            hidden=str(number > 0).lower(),
            number=number,
            function=one.function,
            body=textwrap.indent(
                least if number else shown_test(item), "    "
            ),
        )


# -- Gradescope --------------------------------------------------------------
SETUP = """\
#!/usr/bin/env bash
# Gradescope runs this once, when it builds the container.
set -e
here=${AUTOGRADER:-/autograder}
apt-get update
# bubblewrap shuts submissions in; without it `coursekit grade` says so.
apt-get install -y python3 python3-venv bubblewrap libseccomp2 || \\
  apt-get install -y python3 python3-venv
# The image's own Python may be too old (Ubuntu 22.04 has 3.10), so uv brings
# the one for which requirements.txt was written.
python3 -m venv "$here/uv"
"$here/uv/bin/python" -m pip install "uv>=0.9"
export UV_PYTHON_INSTALL_DIR=$here/python
"$here/uv/bin/uv" venv --clear --python PYTHON "$here/venv"
"$here/uv/bin/uv" pip install --python "$here/venv/bin/python" \\
  --torch-backend cpu -r "$here/source/requirements.txt"
""".replace("PYTHON ", f"{sys.version_info[0]}.{sys.version_info[1]} ")

RUN = """\
#!/usr/bin/env bash
# Gradescope runs this for each submission.
here=${AUTOGRADER:-/autograder}
python=${PYTHON:-$here/venv/bin/python}
export PYTHONPATH=$here/source/package OMP_NUM_THREADS=1
exec "$python" "$here/source/results.py" "$here"
"""

RESULTS = '''\
"""Grade what was handed in, and say it as Gradescope wants it."""

import csv
import json
import os
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path

HERE = Path(sys.argv[1])
SOURCE, WORK = HERE / "source", HERE / "work"
SETTINGS = json.loads((SOURCE / "settings.json").read_text())


def metadata():
    """What Gradescope says of the submission."""
    try:
        return json.loads((HERE / "submission_metadata.json").read_text())
    except (OSError, ValueError):
        return {}


def student(said):
    """Who it is on the roster; `student` if there is none."""
    known = SETTINGS["students"]
    user = (said.get("users") or [{}])[0]
    names = [user.get(k) for k in ("sid", "email", "id", "name")]
    names.append(str(user.get("email")).partition("@")[0])
    for name in filter(None, names):
        for one in known:
            if one.casefold() == str(name).casefold():
                return one
    return "student"


def grade(name, handed_in):
    """Run `coursekit grade` on the one submission.

    Each file gets the time at which it was handed in: `grade` takes off for
    what is late by that.
    """
    from coursekit_classroom.teach.pages import plain
    from coursekit_classroom.teach.sandbox import Isolation, best

    if best() is Isolation.NONE:
        raise RuntimeError(
            "nothing here shuts a submission in, so it was not run. That is "
            "for your instructor to fix, see `coursekit doctor`."
        )
    shutil.rmtree(WORK, ignore_errors=True)
    folder = WORK / "submissions" / name
    folder.mkdir(parents=True)
    left_out = []
    for path in sorted((HERE / "submission").rglob("*")):
        if path.suffix not in (".ipynb", ".zip"):
            continue
        if path.is_symlink() or path.name.startswith((".", "_")):
            left_out.append(path.name)
        else:
            copy = shutil.copy2(path, folder / path.name)  # with its time
            if handed_in:
                time = datetime.fromisoformat(handed_in).timestamp()
                os.utime(copy, (time, time))
    command = [sys.executable, "-P", "-m", "coursekit", "grade"]
    command += [WORK / "submissions"]
    command += ["--secret", SOURCE / "assignment-secret.txt"]
    command += ["--assignment", SETTINGS["assignment"]]
    command += ["--out", WORK / "grades.csv", "--feedback", WORK / "feedback"]
    if (SOURCE / "overlay").is_dir():
        command += ["--overlay", SOURCE / "overlay"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-2000:])
    with open(WORK / "grades.csv", newline="", encoding="utf8") as file:
        rows = [r for r in csv.DictReader(file) if r["student"] == name]
    feedback = WORK / "feedback" / f"{name}.md"
    text = feedback.read_text("utf8") if feedback.exists() else ""
    if left_out:
        names = ", ".join(map(plain, left_out))
        text += f"\\nLeft out (a link, or a name with . or _ first): {names}."
    return rows, text


def results():
    """What Gradescope reads."""
    said = metadata()
    try:
        rows, text = grade(student(said), said.get("created_at"))
    except Exception as error:
        said = f"This could not be graded: {error}"
        return {"score": 0, "output": said, "tests": []}
    shown = {"visibility": SETTINGS["visibility"]}
    tests = [
        {
            "name": row["exercise"],
            "score": float(row["points"]),
            "max_score": float(row["max_points"]),
            "status": "passed" if row["status"] == "ok" else "failed",
            "output": f"{row['status']} (isolation: {row['isolation']})",
        }
        | shown
        for row in rows
    ]
    tests.append({"name": "feedback", "output": text, "output_format": "md"})
    tests[-1] |= shown
    kinds = sorted({row["isolation"] for row in rows})
    return {
        "score": round(sum(t.get("score", 0) for t in tests), 2),
        "output": f"{len(rows)} exercises were graded (isolation: "
        f"{', '.join(kinds)}). A submission that you hand in later meets the "
        "same hidden inputs.",
        "stdout_visibility": "hidden",
        "extra_data": {"isolation": kinds},
        "tests": tests,
    }


folder = HERE / "results"
folder.mkdir(exist_ok=True)
(folder / "results.json").write_text(json.dumps(results(), indent=1))
'''

READ_ME = """\
For Gradescope: upload this zip as the autograder of a programming assignment.
It holds your secret, from which the hidden cases come: give it to nobody else.
Students hand in their .ipynb. Each is graded by `coursekit grade`, with the
package as it is in this zip, of which it holds what exercises need: no other
trained models, pictures or sounds. results.json says in which isolation each
ran; where there is none, nothing is run, and the result says so.

Scores and feedback are VISIBILITY (`coursekit assign --visibility`). What is
late by the due date of `coursekit assign` costs points; leave that to one of
both, Gradescope or the secret.

A student who hands in again meets the same hidden cases, since they follow
from the secret, and has read the feedback to the last try. Limit the number of
submissions, or grade once more at the end with another secret.
"""


VISIBILITIES = {
    "visible": "shown at once",
    "after_due_date": "shown after Gradescope's due date",
    "after_published": "shown when you publish the grades",
}
"""When students see their results, as Gradescope names it.

https://gradescope-autograders.readthedocs.io/en/latest/specs/
"""
MODEL = re.compile(r"""\bload\(["']([\w-]+)["']\)""")
UNREAD = (
    *("coursekit/assets/glove_", "coursekit/assets/fashion_"),
    *("coursekit/assets/speech", "coursekit_classroom/fonts/"),
    *("coursekit_classroom/book/", "coursekit_classroom/results/"),
)
"""Files that no exercise reads."""


def write_gradescope(
    name: str,
    secret: Secret,
    path: Path,
    overlay: Path | None,
    visibility: str = "after_due_date",
) -> Path:
    """Write the zip that Gradescope builds its container from."""
    path.parent.mkdir(parents=True, exist_ok=True)
    plan = secret.assignments[name]
    settings = {
        "assignment": name,
        "students": sorted(plan["students"]),
        "visibility": visibility,
    }
    shown = VISIBILITIES[visibility]
    content = {
        "version": 1,
        "id": secret.id,
        "secret": secret.digits,
        "assignments": {name: plan},
    }
    texts = {
        "README.txt": READ_ME.replace("VISIBILITY", shown),
        "setup.sh": SETUP,
        "run_autograder": RUN,
        "results.py": RESULTS,
        "requirements.txt": requirements(),
        "settings.json": json.dumps(settings, indent=1) + "\n",
        "assignment-secret.txt": json.dumps(content, indent=1) + "\n",
    }
    own = sorted(overlay.glob("*.py")) if overlay else []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for inside, text in texts.items():
            add(file, inside, text.encode())
        for inside, source in package_files(own):
            add(file, f"package/{inside}", source.read_bytes())
        for source in own:
            add(file, f"overlay/{source.name}", source.read_bytes())
    path.chmod(0o600)
    return path


def add(file: zipfile.ZipFile, name: str, data: bytes) -> None:
    """Add a file to a zip, executable if it is to be run."""
    said = zipfile.ZipInfo(name, DATE)
    run = name in ("run_autograder", "setup.sh")
    said.external_attr = (0o100755 if run else 0o100644) << 16
    said.compress_type = zipfile.ZIP_DEFLATED
    file.writestr(said, data)


def package_files(own: Iterable[Path] = ()) -> Iterator[tuple[str, Path]]:
    """The files of both packages, as far as grading needs them.

    Of the trained models these are the ones that an exercise loads.

    Args:
        own: modules with further exercises.
    """
    exercises = [*(COURSE / "catalogue").glob("*.py"), *own]
    loaded = {n for p in exercises for n in MODEL.findall(p.read_text("utf8"))}
    for path in sorted([*PACKAGE.rglob("*"), *COURSE.rglob("*")]):
        inside = path.relative_to(PACKAGE.parent).as_posix()
        _, is_asset, asset = inside.partition("coursekit/assets/")
        kind, _, rest = asset.partition("/")
        unread = inside.startswith(UNREAD) or (
            is_asset
            and kind == "models"
            and rest.partition("/")[0] not in loaded
        )
        if path.is_file() and "__pycache__" not in path.parts and not unread:
            yield inside, path


def requirements() -> str:
    """What the package needs, in the versions that are here."""
    lines = []
    for name in (*NEEDS, "tzdata"):  # of which the image may have none
        try:
            version = metadata.version(name).partition("+")[0]
            lines.append(f"{name}=={version}\n")
        except metadata.PackageNotFoundError:
            lines.append(f"{name}\n")
    return "".join(lines)
