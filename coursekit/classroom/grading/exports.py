"""An assignment for nbgrader and for Gradescope.

nbgrader runs the student's code and the tests in one process: whoever wants
can reach the tests from there. Gradescope's container runs
``coursekit grade``, which keeps the two apart.
"""

import ast
import json
import sys
import textwrap
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from coursekit.classroom.check import core
from coursekit.classroom.grading.handout import (
    Handout,
    Item,
    Writer,
    asked,
    kept_metadata,
    visible,
    write,
    write_start,
)
from coursekit.classroom.grading.install import NEEDS
from coursekit.classroom.grading.isolation import PACKAGE
from coursekit.classroom.grading.key import Key
from coursekit.classroom.grading.standalone import (
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
c = get_config()
c.CourseDirectory.course_id = "coursekit"
"""
DATE = (2000, 1, 1, 0, 0, 0)  # in a zip: the same input gives the same bytes


# -- nbgrader ----------------------------------------------------------------
def write_nbgrader(handout: Handout, key: Key, folder: Path) -> Path:
    """Write ``source/<page>/<page>.ipynb`` as nbgrader wants it.

    A cell's solution stands between its marks, and a cell of hidden tests
    with the key's numbers gives points by the fraction of right cases.
    """
    to = Writer()
    write_start(to, handout, "Write your answers where the code asks you to.")
    for item in handout.items:
        to.text(asked(item))
        for cell in item.cells:
            if cell.exercise == item.declared.id:
                known = kept_metadata(cell)
                known["nbgrader"] = marks(item, "answer", solution=True)
                to.code(answer(item), **known)
            else:
                to.cell(cell, visible(cell, item))
        if not item.exercise.local:
            points = item.declared.points
            said = marks(item, "tests", grade=True, points=points)
            to.code(hidden_tests(item, key), nbgrader=said)
    name = handout.page
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


def answer(item: Item) -> str:
    """The stub with the solution between nbgrader's marks."""
    one = item.declared
    try:
        found = standalone(item.exercise.reference, item.variants, "solution")
    except NotStandaloneError as error:
        body = [f"# No solution in one piece: {error}.", "..."]
    else:
        body = str(found).split("\n")
        body.append(f"return solution({', '.join(arguments(one.stub))})")
    lines = ["### BEGIN SOLUTION", *body, "### END SOLUTION"]
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


def hidden_tests(item: Item, key: Key) -> str:
    """A cell whose value is the number of points."""
    one = item.declared
    lines = ["### BEGIN HIDDEN TESTS"]
    if item.private:
        folders = [str(folder.resolve()) for folder in core.OVERLAYS]
        lines += [
            "from pathlib import Path",
            "from coursekit.classroom.check import core",
            f"core.OVERLAYS[:] = map(Path, {folders})",
        ]
    asks = [f'"{one.id}", {one.function}', f"seed={key.seed('grade', one.id)}"]
    if item.variants:
        asks.append(f"variants={sorted(item.variants)}")
    lines += [
        "import coursekit",
        f"report = coursekit.check({', '.join(asks)})",
        f"print(report) if not report else None\n{one.points} * report.right "
        "/ max(report.total, 1)",
        "### END HIDDEN TESTS",
    ]
    return "\n".join(lines)


# -- Gradescope --------------------------------------------------------------
SETUP = """\
#!/usr/bin/env bash
# Gradescope runs this once, when it builds the container.
set -e
here=${AUTOGRADER:-/autograder}
apt-get update
# bubblewrap shuts submissions in; without it `coursekit grade` says so.
apt-get install -y python3 python3-venv bubblewrap || \\
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
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(sys.argv[1])
SOURCE, WORK = HERE / "source", HERE / "work"
SETTINGS = json.loads((SOURCE / "settings.json").read_text())


def student():
    """Who it is on the roster; `student` if there is none."""
    known = SETTINGS["students"]
    try:
        said = json.loads((HERE / "submission_metadata.json").read_text())
        user = (said.get("users") or [{}])[0]
    except (OSError, ValueError):
        user = {}
    names = [user.get(k) for k in ("sid", "email", "id", "name")]
    names.append(str(user.get("email")).partition("@")[0])
    for name in filter(None, names):
        for one in known:
            if one.casefold() == str(name).casefold():
                return one
    return "student"


def grade(name):
    """Run `coursekit grade` on the one submission."""
    shutil.rmtree(WORK, ignore_errors=True)
    folder = WORK / "submissions" / name
    folder.mkdir(parents=True)
    left_out = []
    for path in sorted((HERE / "submission").rglob("*.ipynb")):
        if path.is_symlink() or path.name.startswith((".", "_")):
            left_out.append(path.name)
        else:
            shutil.copy2(path, folder / path.name)  # with its time
    command = [sys.executable, "-m", "coursekit", "grade"]
    command += [WORK / "submissions", "--key", SOURCE / "key.txt"]
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
        names = ", ".join(map(ascii, left_out))
        text += f"\\nLeft out (a link, or a name with . or _ first): {names}."
    return rows, text


def results():
    """What Gradescope reads."""
    try:
        rows, text = grade(student())
    except Exception as error:
        said = f"This could not be graded: {error}"
        return {"score": 0, "output": said, "tests": []}
    tests = [
        {
            "name": row["exercise"],
            "score": float(row["points"]),
            "max_score": float(row["max_points"]),
            "status": "passed" if row["status"] == "ok" else "failed",
            "output": f"{row['status']} (isolation: {row['isolation']})",
        }
        for row in rows
    ]
    kinds = sorted({row["isolation"] for row in rows})
    return {
        "score": round(sum(t["score"] for t in tests), 2),
        "output": text,
        "output_format": "md",
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
It holds your key, from which the hidden cases come: give it to nobody else.
Students hand in their .ipynb. Each is graded by `coursekit grade`, with the
package as it is in this zip. results.json says in which isolation each ran.

A student who hands in again meets the same hidden cases, since they follow
from the key, and has read the feedback to the last try. Limit the number of
submissions, or grade once more at the end with another key.
"""


def write_gradescope(
    name: str, key: Key, path: Path, overlay: Path | None
) -> Path:
    """Write the zip that Gradescope builds its container from."""
    path.parent.mkdir(parents=True, exist_ok=True)
    plan = key.assignments[name]
    settings = {"assignment": name, "students": sorted(plan["students"])}
    content = {
        "version": 1,
        "id": key.id,
        "secret": key.secret,
        "assignments": {name: plan},
    }
    texts = {
        "README.txt": READ_ME,
        "setup.sh": SETUP,
        "run_autograder": RUN,
        "results.py": RESULTS,
        "requirements.txt": requirements(),
        "settings.json": json.dumps(settings, indent=1) + "\n",
        "key.txt": json.dumps(content, indent=1) + "\n",
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for inside, text in texts.items():
            add(file, inside, text.encode())
        for inside, source in package_files():
            add(file, f"package/coursekit/{inside}", source.read_bytes())
        for source in sorted(overlay.glob("*.py")) if overlay else []:
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


def package_files() -> Iterator[tuple[str, Path]]:
    """The files of the package that is running."""
    root = PACKAGE
    for path in sorted(root.rglob("*")):
        inside = path.relative_to(root)
        if path.is_file() and "__pycache__" not in inside.parts:
            yield inside.as_posix(), path


def requirements() -> str:
    """What the package needs, in the versions that are here."""
    lines = []
    for name in NEEDS:
        try:
            version = metadata.version(name).partition("+")[0]
            lines.append(f"{name}=={version}\n")
        except metadata.PackageNotFoundError:
            lines.append(f"{name}\n")
    return "".join(lines)
