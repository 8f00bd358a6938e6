"""Which promises hold on this machine: ``coursekit doctor``.

Each file in ``attacks/`` is a submission to one small exercise: a wrong
answer, and an attack that is to make up for it.  Those on the grader itself
answer an exercise of the book instead, and go through all of the grader.  The
doctor grades them and looks, from inside and from outside, whether any got
what it was after.
An attack runs only where the isolation at hand can contain it.
"""

import argparse
import ast
import contextlib
import functools
import inspect
import json
import os
import secrets
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from coursekit_classroom.check import core
from coursekit_classroom.check.call import Outcome
from coursekit_classroom.check.compare import difference
from coursekit_classroom.teach import steps
from coursekit_classroom.teach.judge import Task
from coursekit_classroom.teach.sandbox import (
    PACKAGE,
    Isolation,
    Limits,
    Pool,
    Sandbox,
    SandboxError,
    best,
    survivors,
    why_no_bubblewrap,
    why_no_landlock,
)
from coursekit_classroom.teach.secret import Secret
from coursekit_classroom.teach.standalone import standalone
from coursekit_classroom.teach.worker import Worker
from coursekit_classroom.yourfile import STEPS, text

FOLDER = Path(__file__).parent / "attacks"
LIMITS = Limits(
    cpu_s=0.6,
    wall_s=6.0,
    memory=2 << 30,
    file_size=8 << 20,
    disk=32 << 20,
    processes=32,
)
SHARED = 40.0  # CPU seconds for all the attacks that share a process
PROMISES = {
    "score": "Code changes its score only by returning right values.",
    "secret": "Reference, cases, expected values and key are out of reach.",
    "ends": "Every submission comes to an end, and the batch goes on.",
    "memory": "Memory is limited.",
    "disk": "What it writes is limited.",
    "processes": "Processes and threads are limited.",
    "network": "There is no network.",
    "outside": "Nothing is written, signaled or left behind outside.",
}
NO_PROMISES = (
    "Nothing is promised without isolation, about scores least of all: a "
    "program can rewrite the grade sheet. Grade only people whom you trust."
)
KERNEL = (
    "Not promised: that the kernel's own memory (pipes, locks, timers) is "
    "limited. What the files in the sandbox take is; no memory cgroup is used."
)
SHEET = "student,points\nada,0.00\n"
CANARY = "COURSEKIT_DOCTOR"  # an environment variable of the grader's
RIGHT = "import torch\ndef share(x):\n    return torch.softmax(x, -1)\n"
FACTS = ("PROMISE", "CONTAINED_BY", "SHARES", "EXERCISE")  # of a file
SLACK = 1.5  # times a limit, of what is found out only now and then
DRAWS = 3  # an answer that is guessed does not get full marks in all of them
HELD, BROKEN, UNTRIED = "held", "broken", "not tried, not promised"
BUSY = "the machine was too busy for a right answer: try again later"
UNPROMISED = "not promised"  # though what was tried did nothing


@dataclass(frozen=True)
class Attack:
    """One file of the corpus."""

    name: str
    says: str
    """What it tries, in a line."""

    promise: str
    contained_by: tuple[str, ...]
    """The isolations under which it may run."""

    shares: bool
    """Whether it leaves its process fit for the next one."""

    source: str

    exercise: str = ""
    """What it answers through the grader; empty: the doctor's exercise."""


@dataclass(frozen=True)
class Finding:
    """What became of an attack."""

    attack: Attack
    verdict: str
    """``held``, ``broken``, or ``not tried, not promised``."""

    note: str = ""
    """How it ended, or what it got."""


@dataclass
class Host:
    """Bait on this machine, and eyes on it, while attacks run."""

    folder: Path
    facts: dict[str, Any]
    """What the attacks are told, so that they need not guess."""

    doors: list[tuple[str, Callable[[], Any]]] = field(default_factory=list)
    """Sockets of ours: what to say of a visitor, how to let one in."""

    def visitors(self) -> list[str]:
        """Whoever has come to a socket since this was last asked."""
        found = []
        for says, take in self.doors:
            with contextlib.suppress(OSError):  # nobody is left
                while True:
                    take()
                    found.append(says)
        return found

    def traces(self, isolation: Isolation) -> list[str]:
        """What an attack has left outside; none if all is well."""
        names = {p.name for p in self.folder.iterdir()}
        new = names - {"key.json", "service.sock", "grades.csv"}
        if isolation is Isolation.NONE:  # it may write: that is no news
            new = {n for n in new if not n.startswith("started-")}
        found = [f"{n} in the grader's folder" for n in sorted(new)]
        found += self.visitors()
        if Path(self.facts["key"]).read_text() != self.facts["key text"]:
            found.append("a key that was changed")
        sheet = Path(self.facts["sheet"])
        if sheet.read_text() != SHEET:
            found.append("a grade sheet that was rewritten")
            sheet.write_text(SHEET)
        return found


def read_attacks() -> list[Attack]:
    """The corpus, in the order of the promises."""
    found = [read_attack(path) for path in sorted(FOLDER.glob("*.py"))]
    order = list(PROMISES)
    return sorted(found, key=lambda a: order.index(a.promise))


def read_attack(path: Path) -> Attack:
    """An attack's file, read and not executed."""
    source = path.read_text("utf-8")
    tree = ast.parse(source)
    facts = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id in FACTS
    }
    return Attack(
        path.stem,
        str(ast.get_docstring(tree)),
        facts["PROMISE"],
        facts["CONTAINED_BY"],
        facts.get("SHARES", False),
        source,
        facts.get("EXERCISE", ""),
    )


@contextlib.contextmanager
def host(limits: Limits = LIMITS) -> Iterator[Host]:
    """Lay out the bait: a key, a folder, an environment, open ports."""
    canary = secrets.token_hex(8)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        key = folder / "key.json"
        Secret.create(key)
        sheet = folder / "grades.csv"
        sheet.write_text(SHEET)
        os.environ[CANARY] = canary
        stack.callback(os.environ.pop, CANARY, None)
        facts = {
            "folder": str(folder),
            "home": str(Path.home() / ".ssh"),
            "key": str(key),
            "key text": key.read_text(),
            "sheet": str(sheet),
            "package": str(PACKAGE),
            "pid": os.getpid(),
            "uid": os.getuid() if hasattr(os, "getuid") else 0,
            "canary": canary,
            "disk": limits.disk,
            "processes": limits.processes,
        }
        found = Host(folder, facts)
        for listen in (tcp, udp, named):
            stack.enter_context(listen(found))
        yield found


@contextlib.contextmanager
def tcp(found: Host) -> Iterator[None]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        found.facts["tcp"] = server.getsockname()[1]
        server.setblocking(False)
        found.doors.append(("a connection by TCP", server.accept))
        yield


@contextlib.contextmanager
def udp(found: Host) -> Iterator[None]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        found.facts["udp"] = server.getsockname()[1]
        server.setblocking(False)
        found.doors.append(("a datagram", functools.partial(server.recv, 9)))
        yield


@contextlib.contextmanager
def named(found: Host) -> Iterator[None]:
    """Sockets with the name of a file, and with one of Linux's own."""
    path = str(found.folder / "service.sock")
    abstract = f"coursekit-{found.facts['canary']}"
    found.facts |= {"socket": path, "abstract": abstract}
    names = [path, "\0" + abstract] if sys.platform == "linux" else []
    with contextlib.ExitStack() as stack:
        for name in names:
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            server.bind(name)
            server.listen()
            said = "a connection to a socket of this machine"
            server.setblocking(False)
            found.doors.append((said, server.accept))
        yield


def cases() -> list[inspect.BoundArguments]:
    """The exercise: what share each number has, by softmax over a row."""
    signature = inspect.signature(lambda x: None)
    source = torch.Generator().manual_seed(secrets.randbits(32))
    sizes = [(3, 5), (2, 7)]
    return [
        signature.bind(torch.randn(n, m, generator=source).double())
        for n, m in sizes
    ]


def attempt(
    box: Sandbox, name: str, source: str, bait: Host
) -> tuple[str, list[str]]:
    """Grade a submission in a sandbox.

    Returns:
        how it ended (``right`` if it passed), and what it got hold of.
    """
    facts = {k: v for k, v in bait.facts.items() if k != "key text"}
    started = STARTED.format(name=name)
    cells = [f"HOST = {facts!r}", started, source]
    loot: list[str] = []
    endings = []
    try:
        box.begin()
        box.run(cells)
        for case in cases():
            outcome = box.call("share", case)
            endings.append(ending(outcome, case))
            loot += taken(outcome, bait)
    except SandboxError as error:
        endings.append(str(error))
    ended = next((e for e in endings if e != "right"), "right")
    if bait.facts["canary"] in box.output:
        loot.append("a secret that it printed")
    return ended, loot


# Every submission leaves a file where the isolation lets it: so a test can
# see which ones were started without any.
STARTED = """
try:
    with open(HOST["folder"] + "/started-{name}", "a"):
        pass
except OSError:
    pass
"""


def ending(outcome: Outcome, case: inspect.BoundArguments) -> str:
    """Right, wrong or raised."""
    if outcome.error is not None:
        return f"error: {outcome.error!r}"[:100]
    right = torch.softmax(case.arguments["x"], -1)
    said = difference(outcome.value, right, 1e-6, 1e-9)
    return f"wrong: {said}" if said else "right"


def taken(outcome: Outcome, bait: Host) -> list[str]:
    """What a function says it got hold of: our attacks answer in words."""
    text = outcome.value
    if isinstance(text, str):
        return [text.strip()[:100]]
    return []


def examine(
    attacks: Iterable[Attack],
    isolation: Isolation,
    limits: Limits = LIMITS,
    bait: Host | None = None,
) -> Iterator[Finding]:
    """Run attacks, those that share a process first; a finding for each."""
    todo = list(attacks)
    with contextlib.ExitStack() as stack:
        bait = bait or stack.enter_context(host(limits))
        for attack in todo:
            if isolation not in attack.contained_by:
                yield Finding(attack, UNTRIED)
        tried = [a for a in todo if isolation in a.contained_by]
        shared: Sandbox | None = None
        try:
            for attack in [a for a in tried if a.shares]:
                if shared is None or shared.failure:
                    shared = Sandbox(isolation, together(limits))
                yield finding(attack, shared, bait)
        finally:
            if shared:
                shared.close()
        graded = [a for a in tried if a.exercise]
        if graded:
            room = roomy(limits)
            with Worker(isolation, room) as worker:
                for attack in graded:
                    yield examined(attack, worker, room)
        alone = [a for a in tried if not a.shares and not a.exercise]
        if not alone:
            return
        with Pool(isolation, limits) as pool:
            for attack in alone:
                with pool.take() as box:
                    yield finding(attack, box, bait)


def together(limits: Limits) -> Limits:
    """Limits of a process that attacks share: none is to be cut short."""
    return replace(limits, cpu_s=SHARED, wall_s=20 * SHARED)


def roomy(limits: Limits) -> Limits:
    """Limits that a right answer keeps on a busy machine too."""
    return replace(limits, cpu_s=5 * limits.cpu_s, wall_s=5 * limits.wall_s)


def finding(attack: Attack, box: Sandbox, bait: Host) -> Finding:
    """Run one attack and look what came of it."""
    began = time.monotonic()
    ended, loot = attempt(box, attack.name, attack.source, bait)
    if not attack.shares:
        box.close()
        loot += [f"a process left behind: {p}" for p in survivors(box.folder)]
    took = time.monotonic() - began
    if took > worst(box.limits):
        loot.append(f"{took:.0f} seconds of the grader's")
    loot += bait.traces(box.isolation)
    if ended == "right":
        loot.append("full marks")
    if loot:
        return Finding(attack, BROKEN, "; ".join(loot))
    return Finding(attack, HELD, ended)


def examined(attack: Attack, worker: Worker, limits: Limits) -> Finding:
    """Grade an attack as a student's notebook, and a right one after it."""
    tasks, right = asked(attack.exercise)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "notebook.ipynb"
        path.write_text(notebook(attack.source, attack.exercise), "utf8")
        theirs = worker.grade("", [path], tasks)
        path.write_text(notebook(right, attack.exercise), "utf8")
        for _ in range(2):  # a busy machine may be late once
            after = worker.grade("", [path], tasks)
            if after.points == after.max_points:
                break
    late = any(row.status == "timeout" for row in after.results)
    loot = []
    if theirs.points == theirs.max_points:
        loot.append("full marks")
    elif late:  # times tell nothing of the attack
        return Finding(attack, UNTRIED, BUSY)
    if theirs.seconds > worst(limits):
        loot.append(f"{theirs.seconds:.0f} seconds of the grader's")
    if theirs.cpu > len(tasks) * (SLACK * limits.cpu_s + 0.2):
        loot.append("more than its CPU time")
    if theirs.waited > len(tasks) * SLACK * limits.wall_s:
        loot.append("more than its time on the clock")
    if after.points != after.max_points:
        loot.append("points of a right answer that was graded after it")
    if loot:
        return Finding(attack, BROKEN, "; ".join(loot))
    row = theirs.results[0]
    return Finding(attack, HELD, f"{row.status}: {row.message}")


def asked(id: str) -> tuple[list[Task], str]:
    """An exercise of the book, or a step, several times; a right answer."""
    draw = functools.partial(secrets.randbits, 63)
    for chapter in STEPS:
        if id == steps.id_of(chapter):
            secret = Secret(secrets.token_hex(32))
            names = [c.check.__name__ for c in steps.of_step(chapter)]
            step = {"chapter": chapter, "points": 1, "counted": names}
            task = steps.task_of(secret, step | {"stub": ""})
            again = [replace(task, secret=draw()) for _ in range(DRAWS)]
            return list(again), text(chapter, complete=True)
    exercise = core.find(id)
    name = exercise.reference.__name__
    tasks = [
        Task(id, name, 1.0, exercise, draw(), draw()) for _ in range(DRAWS)
    ]
    return tasks, str(standalone(exercise, name=name))


def notebook(source: str, exercise: str) -> str:
    """A notebook with one answer."""
    cell: dict[str, Any] = {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {"exercise": exercise},
        "outputs": [],
        "source": source,
    }
    whole = {"cells": [cell], "metadata": {}, "nbformat": 4}
    return json.dumps(whole | {"nbformat_minor": 4})


def worst(limits: Limits) -> float:
    """Seconds on the clock that an attack may take of the grader's."""
    return 2 * limits.wall_s + 120


def control(isolation: Isolation) -> str:
    """How a right submission ends here: ``right``, or the doctor is ill."""
    with host() as bait, Sandbox(isolation, LIMITS) as box:
        return attempt(box, "control", RIGHT, bait)[0]


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``coursekit doctor``."""
    parser.add_argument(
        "--isolation",
        choices=[i.value for i in Isolation],
        help="look at this one, not at the best that this machine has; "
        "none promises nothing, about scores least of all",
    )


def run(args: argparse.Namespace) -> int:
    """Print which promises hold; 1 if one is broken, else 0."""
    isolation = Isolation(args.isolation) if args.isolation else best()
    for line in about(isolation):
        print(line)
    print("The attacks take some minutes.", file=sys.stderr, flush=True)
    ended = control(isolation)
    if ended != "right":
        print(f"A right submission does not pass here: {ended}")
        return 1
    print("A right submission passes.\n")
    found: list[Finding] = []
    for one in examine(read_attacks(), isolation):
        found.append(one)
        if sys.stderr.isatty():
            print(f"\r{len(found)} attacks", end="\r", file=sys.stderr)
    print(report(found, isolation))
    print(NO_PROMISES if isolation is Isolation.NONE else KERNEL)
    return int(any(f.verdict == BROKEN for f in found))


def about(isolation: Isolation) -> list[str]:
    """Which isolation it is, and why it is no better."""
    lines = [f"Isolation: {isolation.value}"]
    if isolation is not Isolation.BUBBLEWRAP and why_no_bubblewrap():
        lines.append(f"No bubblewrap: {why_no_bubblewrap()}")
    if isolation is Isolation.NONE and why_no_landlock():
        lines.append(f"No Landlock: {why_no_landlock()}")
    return lines


def report(
    found: Sequence[Finding],
    isolation: Isolation = Isolation.BUBBLEWRAP,
) -> str:
    """The findings by promise, in plain lines.

    Without isolation no promise is held: what an attack did not do, others
    can.
    """
    lines = []
    for promise, says in PROMISES.items():
        mine = [f for f in found if f.attack.promise == promise]
        tried = [f for f in mine if f.verdict != UNTRIED]
        broken = [f for f in tried if f.verdict == BROKEN]
        skipped = [
            f.attack.name + f" ({f.note})" * bool(f.note)
            for f in mine
            if f.verdict == UNTRIED
        ]
        # A promise of which only a part could be tried is none.
        verdict = BROKEN if broken else UNTRIED if skipped else HELD
        if isolation is Isolation.NONE and verdict == HELD:
            verdict = UNPROMISED
        count = f"{len(tried)} of {len(mine)} attacks tried."
        lines.append(f"{verdict:>7}  {says} {count}")
        lines += [
            f"         {f.verdict}: {f.attack.says} [{f.attack.name}] {f.note}"
            for f in broken
        ]
        if skipped:
            lines.append(f"         not tried: {', '.join(skipped)}")
    return "\n".join(lines)
