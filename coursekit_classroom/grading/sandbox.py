"""A process that runs a stranger's code, and what can be asked of it.

The parent sends cells and inputs and gets values back (frames.py); what is
right never enters.  How far the process is shut in depends on the machine:
bubblewrap (name spaces: no files, no network, no other processes), else
Landlock (no files, no network), else a plain process.  Whatever it does,
the parent comes to an end: it counts the CPU time of everything in there,
and the time on the clock, and kills.
"""

import contextlib
import inspect
import os
import queue
import secrets
import select
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coursekit_classroom.check.call import Outcome, Raised
from coursekit_classroom.grading import frames, processes
from coursekit_classroom.grading.frames import Frame, FrameError
from coursekit_classroom.grading.isolation import (
    Isolation,
    Limits,
    best,
)
from coursekit_classroom.grading.served import Served

Function = Callable[..., Any]

START_S = 120.0  # on the clock, to import torch on a busy machine


class SandboxError(Exception):
    """The sandbox is of no more use: it was killed, or it died."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status
        """``timeout``, ``died`` or ``protocol``."""
        self.text = text
        """Why, in a sentence."""


@dataclass(frozen=True)
class Failed:
    """A cell that raised."""

    cell: int
    """Its number, counted from 0."""

    error: Raised


@dataclass(frozen=True)
class Usage:
    """What a sandbox has used since it was ready."""

    cpu_s: float
    wall_s: float
    memory: int
    """Bytes, at most at any one time; 0 where it cannot be known."""


class Sandbox:
    """A child process; it starts at once and loads torch while you go on.

        with Sandbox() as box:
            box.run(["def double(x): return 2 * x"])
            outcome = box.call("double", bind(exercise, case), seed)

    Start it in a thread that lives as long as the sandbox does: on Linux it
    ends with that thread.

    Args:
        isolation: the best that this machine has, unless one is given.
        limits: what the submission may use.
    """

    def __init__(
        self, isolation: Isolation | None = None, limits: Limits | None = None
    ) -> None:
        self.isolation = best() if isolation is None else isolation
        self.limits = limits or Limits()
        self._folder = tempfile.mkdtemp(prefix="coursekit-")
        self._failure: SandboxError | None = None
        self._closed = threading.Event()
        self._ready = False
        self._nonce = b""
        self._cells = 0
        self._wall = self._cpu_before = self._cpu = 0.0
        self._served = 0.0  # CPU seconds that it has cost this process
        self._allowed: tuple[float, float] | None = None
        self._memory = 0
        self._output = bytearray()
        self._inbox: queue.Queue[Frame | Exception] = queue.Queue(2)
        self._outbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._process = processes.start(
            self.isolation, self.limits, self._folder
        )
        self._threads = [
            threading.Thread(target=work, daemon=True)
            for work in (self._listen, self._collect, self._write)
        ]
        for thread in self._threads:
            thread.start()
        self._post({"op": "start"})

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(
        self, cells: str | Sequence[str], fresh: bool = False
    ) -> list[Failed]:
        """Execute cells in one namespace, each even if one before it failed.

        Args:
            cells: sources; magics and shell commands in them do nothing.
            fresh: begin with an empty namespace (the process is the same:
                for code that is known not to tamper with it).

        Returns:
            the cells that raised.

        Raises:
            SandboxError: if the child died, took too long or broke the
                protocol; then it is dead, and each later call says so again.
        """
        sources = [cells] if isinstance(cells, str) else list(cells)
        first = 0 if fresh else self._cells
        request = {"op": "run", "cells": sources}
        answer = self._exchange(request | {"first": first, "fresh": fresh})
        self._cells = first + len(sources)
        try:
            return [
                Failed(int(cell), raised(kind, text))
                for cell, kind, text in answer["value"]
            ]
        except (ArithmeticError, KeyError, TypeError, ValueError):
            raise self._fail("protocol", "an answer of another form") from None

    def call(
        self,
        function: str,
        arguments: inspect.BoundArguments,
        seed: int = 0,
        watched: bool = False,
    ) -> Outcome:
        """Call a function of the cells.

        Args:
            function: its name, or an expression that gives it.
            arguments: for it.  Functions among them stay here: the child
                gets a stand-in that asks this process.
            seed: of every source of random numbers.
            watched: whether to say what it uses of PyTorch.

        Returns:
            the value and the arguments after the call, or in ``error`` a
            ``Raised`` with the class, message and line.

        Raises:
            SandboxError: as :meth:`run`.
            FrameError: if an argument cannot be sent, such as a module.
        """
        functions: list[Function] = []
        request = {
            "op": "call",
            "function": function,
            "args": arguments.args,
            "kwargs": arguments.kwargs,
            "seed": seed,
            "watched": watched,
        }
        answer = self._exchange(request, functions)
        try:
            error = answer.get("error")
            problem = None if error is None else raised(*error)
            named: Mapping[str, Any] = {}
            if problem is None or "args" in answer:
                named = rebound(arguments, answer["args"], answer["kwargs"])
            value = None if problem else answer["value"]
            used = {} if problem else sizes(answer.get("used", {}))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise self._fail("protocol", "an answer of another form") from None
        return Outcome(value, named, problem, used)

    def look(self, function: str) -> tuple[bool, bool] | None:
        """Whether an expression can be called, and whether its body is empty.

        None if the cells define no such thing.  Raises as :meth:`run`.
        """
        answer = self._exchange({"op": "look", "function": function})
        value = answer.get("value")
        if value is None:
            return None
        if isinstance(value, list) and [type(v) for v in value] == [bool] * 2:
            return value[0], value[1]
        raise self._fail("protocol", "an answer of another form")

    def allow(self, cpu_s: float, wall_s: float) -> None:
        """What it may use from now on, if that is less than its limits.

        Args:
            cpu_s: CPU seconds; what answering it takes counts as well.
            wall_s: seconds on the clock.
        """
        self._measure()
        self._allowed = self._wall + wall_s, self._spent() + cpu_s

    @property
    def output(self) -> str:
        """What the cells printed, up to the limit."""
        return bytes(self._output).decode(errors="replace")

    @property
    def usage(self) -> Usage:
        """What it has used since it was ready."""
        self._measure()
        return Usage(max(0.0, self._spent()), self._wall, self._memory)

    @property
    def pids(self) -> list[int]:
        """The processes that belong to it (Linux; else the first alone)."""
        return self._process.pids()

    @property
    def broken(self) -> bool:
        """Whether it is closed, or failed, and can do no more."""
        return self._failure is not None

    def survivors(self) -> list[int]:
        """Processes that outlived it (Linux: elsewhere they are not seen)."""
        return processes.survivors(self._folder)

    def close(self) -> None:
        """Kill everything in it, and remove its folder."""
        self._measure()
        self._kill()

    def _exchange(
        self, request: dict[str, Any], functions: list[Function] | None = None
    ) -> dict[str, Any]:
        """Send a request, serve questions, and wait for the answer."""
        if self._failure:
            raise self._failure
        if not self._ready:
            self._wait_ready()
        if not self._inbox.empty():
            late = self._inbox.get()
            raise self._broken(late, "it spoke without being asked")
        self._post(request, functions)
        served = Served(functions or [], self.limits, self._served)
        if self._allowed:
            served.most = min(served.most, self._served + self._left()[1])
        try:
            while "ask" in (answer := self._serve(served)):
                pass
        except FrameError as error:
            raise self._fail("protocol", str(error)) from None
        except TimeoutError as error:
            raise self._fail("timeout", str(error)) from None
        finally:
            self._served = served.cpu_s
            served.tickets.clear()  # an error's trace would keep them
        return answer

    def _serve(self, served: Served) -> dict[str, Any]:
        """What comes next; if it is a question, it has been answered."""
        frame = self._wait(self._left)
        answer = served.unpack(frame)
        if not isinstance(answer, dict):
            raise FrameError("an answer of another form")
        if "ask" in answer:
            if not self._outbox.empty():  # ours would pile up
                raise FrameError("a question before it took the last answer")
            size = len(frame.header) + len(frame.body)
            self._outbox.put(served.answer(answer["ask"], size, self._nonce))
        return answer

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + START_S
        try:
            self._wait(lambda: (deadline - time.monotonic(), 1e9))
        except SandboxError as error:
            error.text = f"it did not start: {error.text} {self.output}"
            raise
        self._ready = True
        self._measure()
        self._cpu_before, self._wall = self._cpu, 0.0

    def _left(self) -> tuple[float, float]:
        """Seconds on the clock and of CPU that are left."""
        child = self._cpu - self._cpu_before
        wall, cpu = self.limits.wall_s - self._wall, self.limits.cpu_s - child
        if self._allowed:
            wall = min(wall, self._allowed[0] - self._wall)
            cpu = min(cpu, self._allowed[1] - self._spent())
        return wall, cpu

    def _spent(self) -> float:
        """CPU seconds since it was ready: its own, and for answering it."""
        return self._cpu - self._cpu_before + self._served

    def _more_than(self, limit: str) -> str:
        """What is wrong once nothing is left."""
        part = f"its part of the {limit} that a submission may take"
        return f"it took more than {part if self._allowed else limit}"

    def _wait(self, left: Callable[[], tuple[float, float]]) -> Frame:
        """The next frame, if it comes in time and bears the nonce."""
        pause = 0.01
        while True:
            began = time.monotonic()
            try:
                item = self._inbox.get(timeout=pause)
            except queue.Empty:
                item = None
            self._wall += time.monotonic() - began
            if isinstance(item, Frame) and item.nonce == self._nonce:
                return item
            if item is not None:
                raise self._broken(item, "an answer to no question")
            pause = min(0.05, 2 * pause)
            count, most = self._measure(), self.limits.processes
            if count > most + 4:  # bubblewrap's own three, and the child
                text = f"it started more than {most} processes and threads"
                raise self._fail("died", text)
            if self._made() > self.limits.made:
                text = f"it made more than {self.limits.made} files"
                raise self._fail("died", text)
            wall, cpu = left()
            if wall <= 0:
                limit = f"{self.limits.wall_s:g} s on the clock"
                raise self._fail("timeout", self._more_than(limit))
            if cpu <= 0:
                limit = f"{self.limits.cpu_s:g} s of CPU time"
                raise self._fail("timeout", self._more_than(limit))

    def _post(
        self, request: dict[str, Any], functions: list[Function] | None = None
    ) -> None:
        """Send a request under a new nonce."""
        nonce = secrets.token_bytes(frames.NONCE)
        self._outbox.put(frames.pack(request, nonce, functions))
        self._nonce = nonce

    def _broken(self, item: Frame | Exception, text: str) -> SandboxError:
        """What became of a child that did not answer as it should."""
        if isinstance(item, FrameError):
            return self._fail("protocol", str(item))
        if not isinstance(item, EOFError):
            return self._fail("protocol", text)
        code = self._process.wait(2.0)
        if code is None:
            return self._fail("protocol", "it closed its channel")
        over = getattr(signal, "SIGXCPU", None)
        if over is not None and code in (-over, 128 + over):
            limit = f"{self.limits.cpu_s:g} s of CPU time"
            return self._fail("timeout", f"it took more than {limit}")
        return self._fail("died", f"the process ended (code {code})")

    def _fail(self, status: str, text: str) -> SandboxError:
        self._kill()
        self._failure = SandboxError(status, text)
        return self._failure

    def _kill(self) -> None:
        """End every process, the threads and the folder; may be repeated."""
        self._closed.set()
        self._failure = self._failure or SandboxError("died", "it is closed")
        self._process.kill()
        self._outbox.put(b"")
        deadline = time.monotonic() + 2
        while any(t.is_alive() for t in self._threads):
            with contextlib.suppress(queue.Empty):
                self._inbox.get_nowait()
            time.sleep(0.002)
            if time.monotonic() > deadline:
                break  # an escaped process holds a pipe (no isolation)
        for stream in (
            self._process.stdin,
            self._process.stdout,
            self._process.stderr,
        ):
            stream.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _measure(self) -> int:
        """Add up what its processes have used; how many there are (Linux)."""
        if self._closed.is_set():
            return 0
        cpu, memory, count = 0.0, 0, 0
        for pid in self.pids:
            used, size, threads = measured(pid)
            cpu, memory = cpu + used, memory + size
            count += threads
        self._cpu = max(self._cpu, cpu)
        self._memory = max(self._memory, memory)
        return count

    def _made(self) -> int:
        """Files and folders in the one place where it can write; 0 where it
        cannot be seen (elsewhere than under bubblewrap)."""
        if self.isolation is not Isolation.BUBBLEWRAP or not self._ready:
            return 0  # before it is ready, it may still see our own files
        for pid in self.pids[:0:-1]:  # the child, not bubblewrap itself
            with contextlib.suppress(OSError):
                found = os.statvfs(Path("/proc", str(pid), "root", "tmp"))
                return found.f_files - found.f_ffree
        return 0

    def _listen(self) -> None:
        """Thread: frames from the child into the inbox."""
        item: Frame | Exception | None
        while True:
            try:
                item = frames.receive(self._read_answer, self.limits.answer)
                item = item or EOFError()
            except FrameError as error:
                item = error
            except MemoryError:  # at the limit of what it may cost us
                item = FrameError("an answer for which there is no memory")
            except OSError:
                item = EOFError()
            while not self._closed.is_set():
                try:
                    self._inbox.put(item, timeout=0.1)
                    break
                except queue.Full:
                    continue
            if not isinstance(item, Frame) or self._closed.is_set():
                return

    def _read_answer(self, n: int) -> bytes:
        return self._read(self._process.stdout, n)

    def _read(self, stream: Any, n: int) -> bytes:
        """Up to ``n`` bytes; none at the end, or once it is closed."""
        while not self._closed.is_set():
            if os.name == "nt" or select.select([stream], [], [], 0.2)[0]:
                return os.read(stream.fileno(), n)
        return b""

    def _collect(self) -> None:
        """Thread: keep the beginning of what is printed, drop the rest."""
        with contextlib.suppress(OSError, ValueError):
            while part := self._read(self._process.stderr, 1 << 16):
                room = self.limits.output - len(self._output)
                self._output += part[: max(0, room)]

    def _write(self) -> None:
        """Thread: frames from the outbox to the child, if it reads them."""
        stream = self._process.stdin
        if os.name != "nt":
            os.set_blocking(stream.fileno(), False)
        with contextlib.suppress(OSError, ValueError):
            while data := memoryview(self._outbox.get()):
                while data and not self._closed.is_set():
                    if (
                        os.name != "nt"
                        and not select.select([], [stream], [], 0.2)[1]
                    ):
                        continue
                    with contextlib.suppress(BlockingIOError):
                        data = data[os.write(stream.fileno(), data) :]


class Pool:
    """Sandboxes one after another; the next one starts while you use one.

    with Pool(limits=Limits(cpu_s=10)) as pool:
        for submission in submissions:
            with pool.take() as box:
                ...
    """

    def __init__(
        self, isolation: Isolation | None = None, limits: Limits | None = None
    ) -> None:
        self.isolation = best() if isolation is None else isolation
        self.limits = limits or Limits()
        self._next: Sandbox | None = Sandbox(self.isolation, self.limits)

    def take(self, last: bool = False) -> Sandbox:
        """The next sandbox; yours to close.

        Args:
            last: start no further one yet.
        """
        box = self._next or Sandbox(self.isolation, self.limits)
        self._next = None if last else Sandbox(self.isolation, self.limits)
        return box

    def close(self) -> None:
        """Kill the one that waits."""
        if self._next:
            self._next.close()
            self._next = None

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def raised(kind: Any, text: Any) -> Raised:
    """An error from the child, without anything that a terminal obeys."""
    if type(kind) is not str or type(text) is not str:
        raise TypeError("an error is a class and a text")
    lines = [
        "".join(c if c.isprintable() or c == "\t" else "�" for c in line)
        for line in text[:2000].split("\n")[:5]
    ]
    name = "".join(c for c in kind[:100] if c.isalnum() or c in "._")
    return Raised(name or "Exception", "\n".join(lines))


def sizes(used: Any) -> dict[str, int]:
    """What a child says of the operations that it watched.

    Raises:
        TypeError: if it is of another form.
    """
    if not isinstance(used, dict) or not all(
        type(name) is str and type(size) is int for name, size in used.items()
    ):
        raise TypeError(f"expected sizes by name: got {type(used)}")
    return used


def rebound(
    arguments: inspect.BoundArguments, args: Any, kwargs: Any
) -> Mapping[str, Any]:
    """Arguments that came back, by the names that they went by."""
    same = (
        isinstance(args, tuple)
        and isinstance(kwargs, dict)
        and len(args) == len(arguments.args)
        and list(kwargs) == list(arguments.kwargs)
    )
    if not same:
        raise ValueError("other arguments came back than went")
    named: Mapping[str, Any] = arguments.signature.bind(
        *args, **kwargs
    ).arguments
    return named


def measured(pid: int) -> tuple[float, int, int]:
    """A process's CPU seconds, those of its ended children too; its bytes
    at most, and its threads.  Zeros where it cannot be seen."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0, 0, 0
    fields = stat.rpartition(")")[2].split()
    ticks = sum(int(n) for n in fields[11:15])
    peak = [s.split()[1] for s in status.splitlines() if s[:5] == "VmHWM"]
    size = int(peak[0]) * 1024 if peak else 0
    return ticks / os.sysconf("SC_CLK_TCK"), size, int(fields[17])
