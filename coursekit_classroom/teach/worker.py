"""A process of ours that examines students, and can be killed.

What students return and ask for is computed with here: decoded, compared,
given to the functions that they may call.  In C++ such a computation may
never end, and Python cannot interrupt it.  So the grader does none of it: it
asks a worker, with a limit on the clock.  A worker that is stuck is killed,
and the next task goes to a new one.

On Linux workers are forks of a process that has loaded torch and computes
nothing, so that the next one starts at once.  What one is asked is pickled,
since that is ours; what it answers is JSON.
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
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from coursekit_classroom.check import core
from coursekit_classroom.teach import confine
from coursekit_classroom.teach.judge import (
    STUMBLED,
    TOO_MUCH,
    StartError,
    Task,
    examined,
    nothing,
)
from coursekit_classroom.teach.records import Graded, Result
from coursekit_classroom.teach.sandbox import (
    START_S,
    Isolation,
    Limits,
    Pool,
    measured,
)

FORK = "forkserver" if sys.platform == "linux" else "spawn"
JUDGE_S = 60.0  # CPU seconds of judging, beyond what an answer may take
MEMORY = 6 << 30  # bytes that judging may take, beyond what torch takes


# -- in the worker -----------------------------------------------------------
def serve(
    connection: Connection,
    folder: str,
    isolation: Isolation,
    limits: Limits,
    overlays: Sequence[Path],
) -> None:
    """Examine one student after another, until nobody asks anymore."""
    if hasattr(signal, "SIGINT"):  # Ctrl-C is for the grader
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if FORK == "forkserver":  # the server ends when nobody holds this
        os.close(forkserver._forkserver._forkserver_alive_fd)  # type: ignore[attr-defined]
    confine.die_with_parent()
    if sys.platform == "linux":
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        soft = pages * resource.getpagesize() + MEMORY
        # Not the hard limit: a sandbox, which has its own, inherits it.
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    core.OVERLAYS[:] = overlays
    tempfile.tempdir = folder  # what a killed one leaves behind is removed
    with Pool(isolation, limits) as pool, contextlib.suppress(EOFError):
        while True:
            paths, tasks, first = connection.recv()
            try:
                for answer in examined(paths, tasks, first, pool.take, limits):
                    text = json.dumps(answer, default=asdict)
                    connection.send_bytes(text.encode())
            except StartError as error:
                text = json.dumps({"start": str(error)})
                connection.send_bytes(text.encode())


# -- in the grader -----------------------------------------------------------
@contextlib.contextmanager
def nothing_from_here() -> Iterator[None]:
    """Let processes that start import nothing from the current folder.

    It may be that of the submissions, and these processes can read the secret.
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


class Lost(Exception):  # noqa: N818
    """The worker was killed, or it died."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


class Worker:
    """A process that examines students, as often started as it must be.

    Args:
        isolation: of the sandboxes.
        limits: what an answer may use.
        seconds: on the clock, for one task.
        cpu_s: CPU seconds of the process, for one task: a function of
            ours that a student's code has asked something endless takes them,
            and no clock of its sandbox runs meanwhile.
    """

    def __init__(
        self,
        isolation: Isolation,
        limits: Limits,
        seconds: float | None = None,
        cpu_s: float | None = None,
    ) -> None:
        self.isolation, self.limits = isolation, limits
        self.seconds = seconds or START_S + 2 * limits.wall_s
        self.cpu_s = cpu_s or limits.cpu_s + JUDGE_S
        self._process: multiprocessing.process.BaseProcess | None = None

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def grade(
        self,
        student: str,
        paths: Sequence[Path],
        tasks: Sequence[Task],
        sha256: str = "",
    ) -> Graded:
        """Examine one student in every task; nothing they hand in raises.

        Args:
            student: their id.
            paths: their notebooks; there may be none.
            tasks: what is asked.
            sha256: of the notebooks.

        Raises:
            StartError: if no sandbox starts.
        """
        began = time.monotonic()
        results = list[Result]()
        used: dict[str, Any] = {"cpu_s": 0.0, "wall_s": 0.0, "memory": 0}
        while len(results) < len(tasks):
            is_read = False
            try:
                self._ask(paths, tasks, len(results))
                while "used" not in (answer := self._answer()):
                    if "start" in answer:
                        raise StartError(answer["start"])
                    is_read = True
                    if "result" in answer:
                        row = Result(**answer["result"])
                        results.append(replace(row, isolation=self.isolation))
                used = answer["used"]
            except Lost as lost:
                failed = tasks[len(results) :][: 1 if is_read else None]
                said = lost.status, lost.text
                if not is_read:
                    said = "unreadable", TOO_MUCH
                results += [
                    replace(nothing(task, *said), isolation=self.isolation)
                    for task in failed
                ]
        return Graded(
            student,
            sha256,
            results,
            round(time.monotonic() - began, 2),
            round(used["cpu_s"], 2),
            used["memory"],
            round(used["wall_s"], 2),
        )

    def close(self) -> None:
        """End the process; its sandboxes end with it."""
        if self._process is None:
            return
        self._connection.close()
        self._process.kill()
        self._process.join()
        self._process = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def _ask(self, *asked: Any) -> None:
        """Have a process, and send it what to examine."""
        if self._process is None:
            context: Any = multiprocessing.get_context(FORK)
            context.set_forkserver_preload(["torch"])
            self._connection, there = context.Pipe()
            self._folder = tempfile.mkdtemp(prefix="coursekit-")
            given = self.isolation, self.limits, list(core.OVERLAYS)
            process = context.Process(
                target=serve, args=(there, self._folder, *given), daemon=True
            )
            with nothing_from_here():
                process.start()
            self._process = process
            there.close()
        with contextlib.suppress(BrokenPipeError):  # the answer says why
            self._connection.send(asked)

    def _answer(self) -> Any:
        """What it says next.

        Raises:
            Lost: if it says nothing; the process is gone then.
        """
        assert self._process is not None
        end = time.monotonic() + self.seconds
        most = f"{self.seconds:g} s on the clock"
        pid = self._process.pid or 0
        cpu_end = measured(pid)[0] + self.cpu_s
        while time.monotonic() < end:
            if measured(pid)[0] > cpu_end:
                most = f"{self.cpu_s:g} s of CPU time"
                break
            if not self._connection.poll(0.5):  # short: Ctrl-C gets its turn
                continue
            try:
                return json.loads(self._connection.recv_bytes())
            except (EOFError, ConnectionResetError):
                self._process.join(10.0)
                code = self._process.exitcode
                self.close()
                text = f"{STUMBLED}: the process that examined it ended"
                raise Lost("protocol", f"{text} ({code}).") from None
        self.close()
        raise Lost("timeout", f"It took more than {most}.")
