"""A process that examines is ended if it must be, and the next goes on."""

import contextlib
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from patience import PATIENCE, alive, comes

from coursekit_classroom.check import core
from coursekit_classroom.grading import doctor, frames, processes, worker
from coursekit_classroom.grading.examiner import (
    TOO_SLOW,
    Examiner,
    Lost,
    StartError,
    Task,
    grade_student,
)
from coursekit_classroom.grading.isolation import Isolation, Limits, best
from coursekit_classroom.grading.key import Key
from coursekit_classroom.grading.records import Result
from coursekit_classroom.grading.served import guarded
from coursekit_classroom.grading.worker import Worker

ROOT = Path(__file__).resolve().parents[2]
ENDLESS = "torch.as_tensor(range(2**53))"  # in C++, for years


# -- work for a worker, over there -------------------------------------------
class Odd(Examiner):
    """Does what its task's number says."""

    def read(self, paths, tasks):
        self.paths = paths
        return ("unreadable", "odd") if not paths else None

    def examine(self, number):
        if number == 1:
            with guarded(0.3):
                eval(ENDLESS)
        if number == 2:
            time.sleep(10**6)
        if number == 3:
            os._exit(3)
        if number == 4:
            raise StartError("no room")
        return Result("a/b", "f", 1.0, "ok", message=str(self.paths))


@contextlib.contextmanager
def odd(isolation, limits, overlays):
    yield Odd(lambda alone: None)


@contextlib.contextmanager
def unbounded(isolation, limits, overlays):
    """The grader's, but any range may come in."""
    frames.RANGE = 1 << 60
    with worker.examiner(isolation, limits, overlays) as found:
        yield found


# -- the process -------------------------------------------------------------
@pytest.fixture
def odd_worker():
    with Worker(Isolation.NONE, Limits(), seconds=PATIENCE, work=odd) as found:
        found.read([Path("ada.ipynb")], [])
        yield found


def lost(found, number):
    with pytest.raises(Lost) as caught:
        found.examine(number)
    return caught.value.status, caught.value.text


@pytest.mark.skipif(os.name == "nt", reason="there are no such timers")
def test_the_kernel_ends_what_no_handler_can(odd_worker):
    assert lost(odd_worker, 1) == ("timeout", TOO_SLOW)
    # The next one has read the same notebooks again.
    assert odd_worker.examine(0).message == "[PosixPath('ada.ipynb')]"


def test_a_worker_that_does_not_answer_is_killed(odd_worker):
    odd_worker.seconds = 1.0
    status, text = lost(odd_worker, 2)
    assert (status, text) == ("timeout", "It took more than 1 s on the clock.")
    assert odd_worker.finish() == (0.0, 0, 0.0)  # nobody is there to say more


def test_a_worker_that_dies_is_said_and_a_sandbox_that_does_not_start(
    odd_worker,
):
    with pytest.raises(StartError, match="no room"):
        odd_worker.examine(4)
    status, text = lost(odd_worker, 3)
    assert status == "protocol"
    assert text.endswith("the process that examined it ended (3).")


def interrupted(seen):
    """Wait for an answer that never comes, until Ctrl-C."""
    with Worker(Isolation.NONE, Limits(), seconds=PATIENCE, work=odd) as found:
        found.read([Path("ada.ipynb")], [])
        seen += [found, found._process, Path(found._folder)]
        assert seen[-1].is_dir()
        signals = os.getpid(), signal.SIGINT
        threading.Timer(1.0, os.kill, signals).start()
        found.examine(2)


def test_ctrl_c_ends_the_wait_and_the_worker():
    # A shell starts what runs in the background with this signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    seen = []
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted(seen)
    finally:
        signal.signal(signal.SIGINT, before)
    found, process, folder = seen
    assert found._process is None
    assert process.exitcode == -signal.SIGKILL
    assert not folder.exists()


def test_ctrl_c_while_a_worker_starts_is_ctrl_c(monkeypatch):
    """The process that is being made is none yet; nothing else is raised."""

    def ctrl_c(process):
        raise KeyboardInterrupt

    start = multiprocessing.get_context(worker.START).Process
    monkeypatch.setattr(start, "start", ctrl_c)
    alone = Worker(Isolation.NONE, Limits(), work=odd)
    with pytest.raises(KeyboardInterrupt), alone as found:
        found.read([Path("ada.ipynb")], [])
    assert found._process is None
    assert not Path(found._folder).exists()


SLEEPS = """
from tests.classroom.test_worker import *
if __name__ == "__main__":
    with Worker(Isolation.NONE, Limits(), seconds=PATIENCE, work=odd) as found:
        found.read([Path("ada.ipynb")], [])
        print(found._process.pid, flush=True)
        found.examine(2)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="seen in /proc")
def test_a_worker_ends_with_the_grader_even_if_it_is_busy(tmp_path):
    path = tmp_path / "grader.py"
    path.write_text(SLEEPS)
    with subprocess.Popen(
        [sys.executable, path],
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT}/tests"},
        stdout=subprocess.PIPE,
    ) as process:
        worker = int(process.stdout.readline())
        process.kill()
    assert comes(lambda: not alive(worker)), "it goes on"


def test_a_task_travels_by_the_id_of_its_exercise():
    task = Task("a", "f", 1.0, core.find("masks/is_causal"), 5, 7)
    again = pickle.loads(pickle.dumps(task))
    assert again == task
    assert again.exercise is task.exercise
    stranger = replace(task, exercise=replace(task.exercise, rtol=1.0))
    with pytest.raises(ValueError, match="has an id if it is in"):
        pickle.dumps(stranger)


def test_overlays_are_there_as_well(monkeypatch, tmp_path):
    monkeypatch.setattr(core, "OVERLAYS", [])
    with worker.examiner(Isolation.NONE, Limits(), [tmp_path]) as found:
        assert [tmp_path] == core.OVERLAYS
        assert found.read([], []) == (
            "not attempted",
            "No notebook was handed in.",
        )


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


@pytest.mark.skipif(os.name == "nt", reason="there are no such timers")
def test_one_submission_does_not_hold_up_the_others(tmp_path):
    """A range too long for C++ to end with, and nothing refuses it."""
    id = "masks/is_causal"
    tasks = [Task(id, "is_causal", 8.0, core.find(id), 5, 7)]
    endless = doctor.read_attack(doctor.FOLDER / "endless_range.py").source
    with Worker(best(), Limits(cpu_s=2.0), work=unbounded) as found:
        rows = []
        for source in (endless, RIGHT_CAUSAL):
            path = tmp_path / "notebook.ipynb"
            path.write_text(doctor.notebook(source, id), "utf8")
            graded = grade_student("ada", [path], tasks, found, "", "")
            rows += graded.results
    assert [row.status for row in rows] == ["timeout", "ok"]
    assert rows[0].message == TOO_SLOW
    assert [row.points for row in rows] == [0, 8]


def test_without_a_worker_no_signal_ends_it():
    """The control: a guard by signals alone, and Ctrl-C, come too late."""
    code = (
        "import torch\n"
        "from coursekit_classroom.grading.served import guarded\n"
        "print('begins', flush=True)\n"
        f"with guarded(0.2): {ENDLESS}\n"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"begins\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(3)
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.kill()


def test_the_endless_expression_is_a_right_one():
    """So what keeps it from ending is its length alone."""
    assert torch.equal(eval(ENDLESS.replace("2**53", "3")), torch.arange(3))


def submissions(folder, source):
    """A folder with one notebook, and a key; the words that grade it."""
    (folder / "submissions").mkdir()
    id = "masks/is_causal"
    text = doctor.notebook(source, id)
    (folder / "submissions" / "eve.ipynb").write_text(text, "utf8")
    made = Key.create(folder / "key.txt")
    exercise = {"id": id, "function": "is_causal", "points": 8}
    made.assignments = {"a": {"exercises": [exercise]}}
    made.save()
    words = ["grade", str(folder / "submissions")]
    words += ["--key", str(folder / "key.txt")]
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
        found.read([], [])
    assert not marks.exists()


SLEEPER = """
import ctypes, time
def is_causal(*args):
    ctypes.CDLL(None).prctl(15, b"asleep")  # PR_SET_NAME
    time.sleep(10**6)
"""


def asleep(grader):
    """Whether a submission sleeps, below a process."""
    for pid in processes.descendants(grader):
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
