"""A process that examines is killed if it must be, and the next goes on."""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from patience import PATIENCE, alive, comes

from coursekit_classroom.check import core
from coursekit_classroom.teach import doctor, sandbox, worker
from coursekit_classroom.teach.judge import (
    STUMBLED,
    TOO_MUCH,
    StartError,
    Task,
)
from coursekit_classroom.teach.sandbox import Isolation, Limits, best
from coursekit_classroom.teach.secret import Secret
from coursekit_classroom.teach.worker import Worker

ROOT = Path(__file__).resolve().parents[2]
ID = "masks/is_causal"
TASK = Task(ID, "is_causal", 8.0, core.find(ID), 5, 7)


# -- a worker that is stuck, or dies -----------------------------------------
def odd(paths, tasks, first, take, limits):
    """Does what the first task's seed says, in place of `examined`."""
    if tasks[0].seed != 1:
        yield {"read": True}
    for number in range(first, len(tasks)):
        if tasks[number].seed == 2:
            time.sleep(10**6)
        while tasks[number].seed == 5:
            pass
        if tasks[number].seed == 3:
            os._exit(3)
        if tasks[number].seed == 4:
            raise StartError("no room")
        if tasks[number].seed == 1:
            time.sleep(10**6)
        yield {
            "result": worker.nothing(tasks[number], "ok", "fine"),
        }
    yield {"used": sandbox.Usage(1.5, 2.5, 7)}


def odd_serve(*given):
    """What a worker runs here: the same, with odd tasks."""
    worker.examined = odd
    worker.serve(*given)


@pytest.fixture
def odd_worker(monkeypatch):
    context = worker.multiprocessing.get_context(worker.FORK)
    made = context.Process

    def process(target, args, daemon):
        return made(target=odd_serve, args=args, daemon=daemon)

    monkeypatch.setattr(context, "Process", process, raising=False)
    with Worker(Isolation.NONE, Limits(), seconds=PATIENCE) as found:
        yield found


def rows(found, *seeds):
    """The statuses and messages of tasks that do what their seeds say."""
    tasks = [replace(TASK, seed=seed) for seed in seeds]
    graded = found.grade("ada", [Path("ada.ipynb")], tasks)
    return [(row.status, row.message) for row in graded.results]


FINE = "ok", "fine"


def test_a_worker_that_does_not_answer_is_killed(odd_worker):
    assert rows(odd_worker, 0) == [FINE]
    odd_worker.seconds = 1.0
    late = "timeout", "It took more than 1 s on the clock."
    assert rows(odd_worker, 0, 2) == [FINE, late]
    odd_worker.seconds = PATIENCE  # the next one has torch to load
    assert rows(odd_worker, 0) == [FINE]


@pytest.mark.skipif(sys.platform != "linux", reason="seen in /proc")
def test_a_worker_that_computes_without_end_is_killed(odd_worker):
    """The clock alone would wait as long as a sandbox may take to start."""
    assert rows(odd_worker, 0) == [FINE]
    odd_worker.cpu_s = 0.5
    late = "timeout", "It took more than 0.5 s of CPU time."
    assert rows(odd_worker, 0, 5) == [FINE, late]
    limits = Limits()
    usual = Worker(Isolation.NONE, limits)
    assert usual.cpu_s < limits.wall_s
    assert usual.seconds <= 3 * limits.wall_s


def test_a_worker_that_dies_costs_one_task(odd_worker):
    text = f"{STUMBLED}: the process that examined it ended (3)."
    assert rows(odd_worker, 0, 3, 0) == [FINE, ("protocol", text), FINE]


def test_what_cannot_be_read_in_time_is_unreadable(odd_worker):
    assert rows(odd_worker, 0) == [FINE]
    odd_worker.seconds = 1.0
    assert rows(odd_worker, 1, 0) == [("unreadable", TOO_MUCH)] * 2


def test_a_sandbox_that_does_not_start_ends_the_batch(odd_worker):
    with pytest.raises(StartError, match="no room"):
        rows(odd_worker, 4)


SLEEPS = """
from test_worker import *
if __name__ == "__main__":
    with Worker(Isolation.NONE, Limits(), seconds=PATIENCE) as found:
        found._ask([], [], 0)
        found._answer()
        print(found._process.pid, flush=True)
        time.sleep(10**6)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="seen in /proc")
def test_a_worker_ends_with_the_grader(tmp_path):
    path = tmp_path / "grader.py"
    path.write_text(SLEEPS)
    here = ROOT, ROOT / "tests", ROOT / "tests" / "classroom"
    with subprocess.Popen(
        [sys.executable, path],
        env=os.environ | {"PYTHONPATH": ":".join(map(str, here))},
        stdout=subprocess.PIPE,
    ) as process:
        number = int(process.stdout.readline())
        process.kill()
    assert comes(lambda: not alive(number)), "it goes on"


def test_a_task_travels_by_the_id_of_its_exercise():
    task = Task("a", "f", 1.0, core.find("masks/is_causal"), 5, 7)
    again = pickle.loads(pickle.dumps(task))
    assert again == task
    assert again.exercise is task.exercise
    stranger = replace(task, exercise=replace(task.exercise, rtol=1.0))
    with pytest.raises(ValueError, match="has an id if it is in"):
        pickle.dumps(stranger)


# -- the grader --------------------------------------------------------------
RIGHT_CAUSAL = """
import torch

def is_causal(model, vocab_size, length):
    ids = torch.arange(length)[None] % vocab_size
    before = model(ids)
    for t in range(1, length):
        other = ids.repeat(vocab_size, 1)
        other[:, t] = torch.arange(vocab_size)
        after = model(other)[:, :t]
        if not torch.allclose(before[:, :t].expand_as(after), after):
            return False
    return True
"""


def submissions(folder, source):
    """A folder with one notebook, and a key; the words that grade it."""
    (folder / "submissions").mkdir()
    id = "masks/is_causal"
    text = doctor.notebook(source, id)
    (folder / "submissions" / "eve.ipynb").write_text(text, "utf8")
    made = Secret.create(folder / "assignment-secret.txt")
    exercise = {"id": id, "function": "is_causal", "points": 8}
    made.assignments = {"a": {"exercises": [exercise]}}
    made.save()
    words = ["grade", str(folder / "submissions")]
    words += ["--secret", str(folder / "assignment-secret.txt")]
    return [*words, "--out", str(folder / "out" / "grades.csv")]


# What `python -m` imports before it looks for what it is to run.
OWN = "import runpy, sys, zipfile; print(*sys.modules)"


@pytest.mark.parametrize("is_module", [False, True])
def test_nothing_is_imported_from_among_the_submissions(
    tmp_path, trapped, is_module
):
    command = submissions(tmp_path, RIGHT_CAUSAL)
    start = [str(Path(sys.executable).with_name("coursekit"))]
    if is_module:
        start = [sys.executable, "-m", "coursekit"]
    own = subprocess.check_output([sys.executable, "-c", OWN], text=True)
    spared = [*own.split(), "coursekit"] if is_module else []
    marks = trapped(tmp_path / "submissions", spared)
    here = {"cwd": tmp_path / "submissions", "check": True}
    subprocess.run([*start, *command], **here, stdout=subprocess.DEVNULL)
    assert ",ok," in (tmp_path / "out" / "grades.csv").read_text()
    assert not marks.exists()


def test_a_worker_of_a_notebook_imports_nothing_from_its_folder(
    tmp_path, monkeypatch, trapped
):
    (tmp_path / "here").mkdir()
    loaded = {name for name in sys.modules if name.isidentifier()}
    marks = trapped(tmp_path / "here", {*sys.stdlib_module_names} - loaded)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.syspath_prepend("")
    with Worker(best(), Limits()) as found:
        assert found.grade("ada", [], [TASK]).points == 0
    assert not marks.exists()


SLEEPER = """
import ctypes, time
def is_causal(*args):
    ctypes.CDLL(None).prctl(15, b"asleep")  # PR_SET_NAME
    time.sleep(10**6)
"""


def asleep(grader):
    """Whether a submission sleeps, below a process."""
    for pid in sandbox.family(grader):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text() == "asleep\n":
                return True
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="seen in /proc")
def test_ctrl_c_ends_the_command_while_a_submission_sleeps(tmp_path):
    """The whole command, and each process that it has started."""
    words = submissions(tmp_path, SLEEPER)
    command = [sys.executable, "-m", "coursekit", *words, "--cpu", "20"]
    with subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.default_int_handler
        ),
    ) as process:
        assert comes(lambda: asleep(process.pid) or process.poll())
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        assert process.wait(PATIENCE) == 130
        assert process.stderr is not None
        assert "interrupted: 0 of 1" in process.stderr.read()
