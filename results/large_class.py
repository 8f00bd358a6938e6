"""A class of 500 hands in chapter 5: what grading costs.

Each student answers the chapter's exercise with a yes or a no, fixes a
program of their own and writes a test for it.  The answers are made up:
right ones in several styles, classic mistakes, code that raises, and a few
loops that never end.  ``coursekit grade`` runs in a terminal, so that what
its progress bar shows is kept too.
"""

import argparse
import csv
import json
import os
import pty
import random
import re
import statistics
import subprocess
import sys
import tempfile
import termios
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import nbformat
import torch

from coursekit_classroom.check.core import NONE, find
from coursekit_classroom.check.diagnose import mutants
from coursekit_classroom.grading.standalone import standalone
from results.grading import answer
from results.record import ROOT, record

PAGES = ["book/05_masks.md", "book/further/05_masks.md"]
CHAPTER, DEBUG = "book-05_masks", "debug"
YES_OR_NO = "masks/is_causal"
TO_FIX = ["masks/visible", "masks/columns"]
KEY = "5" * 64  # the same class each time
CORES = 2
CGROUP = Path("/sys/fs/cgroup/cpuacct")  # counts all that a process starts

# Right answers to the yes/no exercise, in styles of their own.
RIGHT = [
    """
def NAME(model, vocab_size, length):
    ids = torch.zeros(1, length, dtype=torch.long)
    before = model(ids)
    for t in range(1, length):
        for token in range(vocab_size):
            other = ids.clone()
            other[:, t] = token
            if not torch.allclose(before[:, :t], model(other)[:, :t]):
                return False
    return True
""",
    """
def NAME(model, vocab_size, length):
    ids = torch.randint(vocab_size, (vocab_size, length))
    for t in range(1, length):
        text = ids.clone()
        text[:, t] = torch.arange(vocab_size)
        gap = model(text)[:, :t] - model(text[:, :t])
        if gap.abs().max() > 1e-6:
            return False
    return True
""",
    """
def NAME(model, vocab_size, length):
    start = torch.zeros(vocab_size, length, dtype=torch.long)
    def leaks(t):
        later = start.clone()
        later[:, t + 1:] = torch.arange(vocab_size)[:, None]
        rows = model(later)[:, :t + 1]
        return (rows - rows[:1]).abs().max().item() > 1e-4
    return not any(leaks(t) for t in range(length - 1))
""",
]
CRASHES = ["[][0]", "torch.ones(2, 3) @ torch.ones(2, 3)", "undefined"]
LOOPS = ["while True:\n        pass", "import time; time.sleep(10 ** 6)"]
ENDLESS = cycle(LOOPS)
# What a student's test tries; the right function stands above it as `own`.
INPUTS = {
    "masks/visible": (
        "(torch.tensor([[4, 0, 4], [0, 1, 2]]), 4), "
        "(torch.tensor([[0, 0, 3, 1]]), 0), (torch.tensor([[5, 2]]), 5)"
    ),
    "masks/columns": (
        "tuple(torch.randn(n, 3, dtype=torch.double) for n in (5, 7, 7)), "
        "tuple(torch.randn(n, 3, dtype=torch.double) for n in (4, 4, 4))"
    ),
}
TEST = """
def NAME(f):
    def same(a, b):
        if isinstance(a, tuple):
            return all(map(same, a, b))
        return a.shape == b.shape and torch.allclose(a + 0.0, b + 0.0)
    try:
        return all(same(f(*x), own(*x)) for x in [INPUTS])
    except Exception:
        return False
"""


def parser() -> argparse.ArgumentParser:
    """The options of the command that a result names."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--students", type=int, default=500)
    options.add_argument("--seed", type=int, default=0, help="of the answers")
    return options


# -- what they hand in -------------------------------------------------------
def wrong(id: str, variants: frozenset[str], name: str, g: Any) -> str:
    """A reference with one or two classic mistakes."""
    bugs = g.choice(list(mutants(find(id))))
    return standalone(find(id), variants | bugs, name).function


def head(name: str, parameters: str, body: str) -> str:
    """A function of one line."""
    return f"def {name}({parameters}):\n    {body}"


def kinds(n: int, g: random.Random) -> list[str]:
    """Kind of answer each student gives: 2 of 500 never end."""
    parts = {"right": 0.45, "crash": 0.08, "blank": 0.02, "hang": 0.004}
    found = [
        kind for kind, part in parts.items() for _ in range(int(n * part))
    ]
    found += ["wrong"] * (n - len(found))
    g.shuffle(found)
    return found


def function(
    kind: str,
    id: str,
    name: str,
    right: str,
    g: random.Random,
    variants: frozenset[str] = NONE,
) -> str | None:
    """An answer of some kind; None leaves the cell as it was given out."""
    if kind == "blank":
        return None
    if kind == "wrong":
        return wrong(id, variants, name, g)
    if kind in ("crash", "hang"):
        body = g.choice(CRASHES) if kind == "crash" else next(ENDLESS)
        return head(name, "*args, **kwargs", body)
    return right


def tests(kind: str, debug: dict[str, Any]) -> str | None:
    """A student's test of the program that they were given."""
    name, id = debug["test"]["function"], debug["exercise"]
    if kind == "blank":
        return None
    if kind == "crash":
        return head(name, "f", "return f()")
    if kind in ("wrong", "hang"):  # one loop costs enough
        return head(name, "f", "return True")
    own = standalone(find(id), frozenset(debug["variants"]), "own").function
    return own + TEST.replace("NAME", name).replace("INPUTS", INPUTS[id])


def hand_in(here: Path, n: int, seed: int) -> dict[str, dict[str, int]]:
    """Write everybody's two notebooks."""
    g = random.Random(seed)
    given = json.loads((here / "key.txt").read_text())["assignments"]
    [fields] = given[CHAPTER]["exercises"]
    blank = here / "dist" / "student" / f"{CHAPTER}.ipynb"
    students = sorted(given[DEBUG]["students"].items())
    drawn = {part: kinds(n, g) for part in ("yes/no", "program", "test")}
    for folder in (CHAPTER, DEBUG):
        (here / folder).mkdir()
    for (id, known), first, second, third in zip(
        students, *drawn.values(), strict=True
    ):
        name = fields["function"]
        right = g.choice(RIGHT).replace("NAME", name)
        found = function(first, YES_OR_NO, name, right, g)
        if found:
            found = f"import torch\n\n\n{found.strip()}"
        written = answer(blank, {YES_OR_NO: found})
        nbformat.write(written, here / CHAPTER / f"{id}.ipynb")
        debug = known["debug"]
        name, variants = debug["function"], frozenset(debug["variants"])
        own = debug["exercise"]
        right = standalone(find(own), variants, name).function
        found = function(second, own, name, right, g, variants)
        answers = {own: found, debug["test"]["id"]: tests(third, debug)}
        written = answer(here / "dist" / "students" / f"{id}.ipynb", answers)
        nbformat.write(written, here / DEBUG / f"{id}.ipynb")
    return {part: dict(Counter(sorted(of))) for part, of in drawn.items()}


# -- how it is graded --------------------------------------------------------
@contextmanager
def counted() -> Iterator[Callable[[], float]]:
    """CPU seconds of this process and all that it starts, sandboxes too.

    Their processes have parents in other name spaces, so the kernel does not
    add their times to ours: that takes a control group.
    """
    group = CGROUP / f"large-class-{os.getpid()}"
    try:
        group.mkdir()
        (group / "tasks").write_text(str(os.getpid()))
    except OSError as error:
        raise SystemExit(
            f"CPU time is counted by a control group: got {error}. Run it as "
            f"root where {CGROUP} is mounted."
        ) from error
    try:
        yield lambda: int((group / "cpuacct.usage").read_text()) / 1e9
    finally:
        (CGROUP / "tasks").write_text(str(os.getpid()))
        with suppress(OSError):  # where a process has not ended yet
            group.rmdir()


def in_terminal(command: list[str], folder: Path) -> str:
    """Run a command in a terminal: what it showed.

    Raises:
        RuntimeError: if it failed.
    """
    leader, follower = pty.openpty()
    termios.tcsetwinsize(follower, (24, 80))
    shown = b""
    with subprocess.Popen(
        command, cwd=folder, stdout=follower, stderr=follower
    ) as process:
        os.close(follower)
        with suppress(OSError):  # Linux says so at the end
            while data := os.read(leader, 65536):
                shown += data
    os.close(leader)
    text = shown.decode(errors="replace")
    if process.returncode:
        raise RuntimeError(f"{command}:\n{text[-2000:]}")
    return text


def graded(
    here: Path, assignment: str, cpu: Callable[[], float]
) -> dict[str, Any]:
    """Grade one folder; what it cost, and what was shown meanwhile."""
    load, start, before = os.getloadavg()[0], time.perf_counter(), cpu()
    sheet = f"{assignment}.csv"
    shown = in_terminal(
        [
            *(sys.executable, "-m", "coursekit", "grade", assignment),
            *("--key", "key.txt", "--assignment", assignment),
            *("--out", sheet, "--feedback", f"feedback-{assignment}"),
        ],
        here,
    )
    used = cpu() - before
    with open(here / sheet) as file:
        rows = list(csv.DictReader(file))
    with open(here / f"{assignment}-timing.csv") as file:
        theirs = [float(row["cpu_seconds"]) for row in csv.DictReader(file)]
    n = len(theirs)
    bars = [
        line
        for line in re.split(r"[\r\n]+", shown)
        if re.search(r"\d+/\d+ \[\d+:\d+<\d+:\d+", line)
    ]
    return {
        "students": n,
        "rows": dict(sorted(Counter(row["status"] for row in rows).items())),
        "cpu_seconds": round(used, 1),
        "cpu_seconds_a_submission": round(used / n, 3),
        "their_cpu_seconds": round(sum(theirs), 1),
        "their_median": round(statistics.median(theirs), 3),
        "wall_seconds": round(time.perf_counter() - start, 1),
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
        "bars": len(bars),
        "bar": re.sub("\x1b.*?[A-Za-z]", "", bars[len(bars) // 2]).strip(),
    }


def measure(here: Path, n: int, seed: int) -> dict[str, Any]:
    """Make the class, have it hand in, and grade it."""
    lines = [f"s{number:04},Student {number}" for number in range(n)]
    (here / "class.csv").write_text("\n".join(["id,name", *lines, ""]))
    fields = {"version": 1, "secret": KEY}
    (here / "key.txt").write_text(json.dumps(fields))
    subprocess.run(
        [
            *(sys.executable, "-m", "coursekit", "assign"),
            *(str(ROOT / page) for page in PAGES),
            *("--roster", "class.csv", "--key", "key.txt"),
            *("--only", YES_OR_NO, *TO_FIX),
        ],
        cwd=here,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    handed_in = hand_in(here, n, seed)
    with counted() as cpu:
        parts = [graded(here, name, cpu) for name in (CHAPTER, DEBUG)]
    total = sum(part["cpu_seconds"] for part in parts)
    return {
        "handed_in": {
            k: dict(sorted(v.items())) for k, v in handed_in.items()
        },
        "yes_or_no": parts[0],
        "everyone_debugs": parts[1],
        "cpu_seconds_a_student": round(total / n, 3),
    }


def main() -> None:
    """Grade the class, and write what it cost."""
    args = parser().parse_args()
    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))[:CORES]
        os.sched_setaffinity(0, cores)
    with (
        record("large_class", [args.seed]) as metrics,
        tempfile.TemporaryDirectory() as folder,
    ):
        metrics.update(measure(Path(folder), args.students, args.seed))
        print(json.dumps(dict(metrics), indent=1))


if __name__ == "__main__":
    main()
