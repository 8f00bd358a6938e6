"""A process of ours that examines students, and can be killed.

What students return and ask for is computed with here: decoded, compared,
given to the functions that they may call.  In C++ such a computation may
never end, and Python cannot interrupt it.  So the grader does none of it: it
asks a worker, with a limit on the clock.  A worker that is stuck is ended by
the kernel (``served.guarded``), or killed here, and the next task goes to a
new one.

A worker is no fork of the grader: torch's threads do not survive a fork.  On
Linux it is one of a process that has loaded torch and computes nothing, so
that the next one starts at once; macOS and Windows have no fork that is safe,
and there it is a fresh Python.  What it is asked is pickled, since that is
ours; what it answers is JSON.
"""

import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, is_dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from coursekit_classroom.check import core
from coursekit_classroom.grading import confine, served
from coursekit_classroom.grading.examiner import (
    STUMBLED,
    TOO_SLOW,
    Examiner,
    Lost,
    StartError,
    Task,
)
from coursekit_classroom.grading.isolation import Isolation, Limits
from coursekit_classroom.grading.records import Question, Result
from coursekit_classroom.grading.sandbox import START_S, Pool, Sandbox

Work = Callable[
    [Isolation, Limits, Sequence[Path]], AbstractContextManager[Examiner]
]

START = "forkserver" if sys.platform == "linux" else "spawn"
PATIENCE = 5  # sandboxes that one task may start and wear out on the clock


# -- in the worker -----------------------------------------------------------
@contextlib.contextmanager
def examiner(
    isolation: Isolation, limits: Limits, overlays: Sequence[Path]
) -> Iterator[Examiner]:
    """An examiner whose next sandbox starts while one is used."""
    core.OVERLAYS[:] = overlays
    with contextlib.ExitStack() as stack:
        pool: Pool | None = None

        def take(alone: bool) -> Sandbox:
            nonlocal pool  # it starts a sandbox, which may not be needed
            pool = pool or stack.enter_context(Pool(isolation, limits))
            return pool.take(last=alone)

        found = Examiner(take)
        stack.callback(found.finish)
        yield found


def serve(connection: Connection, folder: str, work: Work, *args: Any) -> None:
    """Call an examiner's methods as asked, until nobody asks anymore."""
    if hasattr(signal, "SIGINT"):  # Ctrl-C is for the grader
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if START == "forkserver":  # the server ends when nobody holds this
        os.close(forkserver._forkserver._forkserver_alive_fd)  # type: ignore[attr-defined]
    confine.die_with_parent()
    served.EXPENDABLE = True
    tempfile.tempdir = folder  # what a killed one leaves behind is removed
    with work(*args) as found, contextlib.suppress(EOFError):
        connection.send_bytes(b"null")  # ready
        while True:
            name, *args_of = connection.recv()
            try:
                answer = {"value": getattr(found, name)(*args_of)}
            except StartError as error:
                answer = {"error": str(error)}
            text = json.dumps(answer, default=plain)
            connection.send_bytes(text.encode())


def plain(value: Any) -> Any:
    """A record as JSON has it."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"a record is sent: got a {type(value).__name__}")


# -- in the grader -----------------------------------------------------------
@contextlib.contextmanager
def nothing_from_here() -> Iterator[None]:
    """Let processes that start import nothing from the current folder.

    It may be that of the submissions, and these processes can read the key.
    """
    path, environment, here = sys.path[:], dict(os.environ), Path.cwd()
    if here not in Path(__file__).parents:
        sys.path[:] = [p for p in path if Path(p).resolve() != here]
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        sys.path[:] = path
        os.environ.pop("PYTHONSAFEPATH")
        os.environ.update(environment)


class Worker:
    """An examiner in a process that can be killed, as often as it must be.

    Args:
        isolation: of the sandboxes.
        limits: what a submission may use.
        seconds: on the clock, for one request; by default enough for a task
            that wears out every sandbox it may have.
        work: gives the examiner, over there.
    """

    def __init__(
        self,
        isolation: Isolation,
        limits: Limits,
        seconds: float | None = None,
        work: Work = examiner,
    ) -> None:
        self.args = work, isolation, limits, list(core.OVERLAYS)
        worst = PATIENCE * (START_S + limits.wall_s + limits.cpu_s)
        self.seconds = worst if seconds is None else seconds
        self.student: tuple[Sequence[Path], Sequence[Task]] = (), ()
        self.lost: int | None = None  # the task with which it was killed
        self._process: multiprocessing.process.BaseProcess | None = None

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(kind is not None)

    def read(
        self, paths: Sequence[Path], tasks: Sequence[Task]
    ) -> tuple[str, str] | None:
        """As an :class:`Examiner` does; each of these may raise `Lost`."""
        self.student, self.lost = (paths, tasks), None
        self._start()
        problem = self._ask("read", paths, tasks)
        return None if problem is None else (problem[0], problem[1])

    def examine(self, number: int) -> Result:
        """As an :class:`Examiner` does."""
        self._resume()
        try:
            return Result(**self._ask("examine", number))
        except Lost:
            self.lost = number
            raise

    def questions(self, number: int) -> list[Question]:
        """As an :class:`Examiner` does."""
        self._resume()
        return [Question(**q) for q in self._ask("questions", number)]

    def finish(self) -> tuple[float, int, float]:
        """As an :class:`Examiner` does; 0 for what a killed one took."""
        if self._process is None:
            return 0.0, 0, 0.0
        try:
            cpu, memory, waited = self._ask("finish")
        except Lost:
            return 0.0, 0, 0.0
        return float(cpu), int(memory), float(waited)

    def close(self, at_once: bool = False) -> None:
        """End the process; its sandboxes end with it."""
        if self._process is None:
            return
        self._connection.close()  # it sees that nobody asks anymore
        if self._process.pid is not None:  # else its start was interrupted
            if not at_once:
                self._process.join(10.0)
            self._process.kill()
            self._process.join()
        self._process = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self) -> None:
        """Have a process."""
        if self._process is not None:
            return
        context: Any = multiprocessing.get_context(START)
        context.set_forkserver_preload(["torch"])
        self._connection, there = context.Pipe()
        self._folder = tempfile.mkdtemp(prefix="coursekit-")
        self._process = context.Process(
            target=serve, args=(there, self._folder, *self.args), daemon=True
        )
        with nothing_from_here():
            self._process.start()
        there.close()
        try:
            self._answer(START_S)
        except Lost as lost:
            raise StartError(
                f"the process that examines does not start: {lost.text}"
            ) from None

    def _resume(self) -> None:
        """Have a process that has read the student's notebooks."""
        if self._process is None:
            lost = self.lost
            self.read(*self.student)
            if lost is not None:  # what it took was theirs
                self._ask("forfeit", lost)

    def _ask(self, *request: Any) -> Any:
        """Call a method over there.

        Raises:
            StartError: as it does there.
            Lost: if there is no answer; the process is gone then.
        """
        with contextlib.suppress(BrokenPipeError):  # the answer says why
            self._connection.send(request)
        answer = self._answer(self.seconds)
        if "error" in answer:
            raise StartError(answer["error"])
        return answer["value"]

    def _answer(self, seconds: float) -> Any:
        """What it says next."""
        assert self._process is not None
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if not self._connection.poll(0.5):  # short: Ctrl-C gets its turn
                continue
            try:
                return json.loads(self._connection.recv_bytes())
            except (EOFError, ConnectionResetError):
                raise self._lost() from None
        self.close(at_once=True)
        raise Lost("timeout", f"It took more than {seconds:g} s on the clock.")

    def _lost(self) -> Lost:
        """Why a process has ended that should not have."""
        assert self._process is not None
        self._process.join(10.0)
        code = self._process.exitcode
        self.close(at_once=True)
        if code == -getattr(signal, "SIGPROF", 0) != 0:
            return Lost("timeout", TOO_SLOW)
        text = f"{STUMBLED}: the process that examined it ended ({code})."
        return Lost("protocol", text)
