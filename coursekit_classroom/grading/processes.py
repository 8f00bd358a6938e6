"""The process of a sandbox: a fork that starts at once, or a new Python.

On Linux one server for this process loads torch and forks every isolated
sandbox (forks.py).  Elsewhere, without isolation, and where a fork cannot
join bubblewrap's name spaces, a sandbox is a process of its own, which loads
torch by itself.
"""

import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import IO, Any, Protocol

from coursekit_classroom.grading import confine
from coursekit_classroom.grading.isolation import (
    BINARY,
    FILES,
    HERE,
    Isolation,
    Limits,
    command,
    environment,
    holder,
    library_paths,
    python,
    settings,
)

GONE = -9  # the code of a process of which nobody could say how it ended


class Process(Protocol):
    """What a sandbox asks of its process."""

    stdin: IO[bytes]
    stdout: IO[bytes]
    stderr: IO[bytes]

    def pids(self) -> list[int]:
        """All that belongs to it (Linux; else the first alone)."""

    def wait(self, seconds: float) -> int | None:
        """Its exit code; None if it has not ended by then."""

    def kill(self) -> None:
        """End everything in it; may be repeated."""


def start(isolation: Isolation, limits: Limits, folder: str) -> Process:
    """Start a sandbox in a folder of its own."""
    forked = isolation is Isolation.LANDLOCK and confine.machine()
    if forked or (isolation is Isolation.BUBBLEWRAP and can_join()):
        return Fork(server(), isolation, limits, folder)
    return Own(isolation, limits, folder)


def name(folder: str) -> str:
    """By which the processes of the sandbox in a folder are known."""
    return f"box-{Path(folder).name[-8:]}"


def survivors(folder: str) -> list[int]:
    """Processes that outlived a sandbox (Linux: elsewhere they are not seen).

    Those that bubblewrap or Python has started have the folder on their
    command line, forks the name.
    """
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (place / "cmdline").read_bytes()  # empty once it has ended
            shown = (place / "comm").read_text().strip()
            if line and (folder.encode() in line or shown == name(folder)):
                found.append(int(place.name))
    return found


class Own:
    """A new Python, within bubblewrap or without."""

    def __init__(
        self, isolation: Isolation, limits: Limits, folder: str
    ) -> None:
        self._popen = subprocess.Popen(
            command(isolation, limits, folder, name(folder)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=folder,
            env=environment(folder),
            start_new_session=True,
        )
        streams = self._popen.stdin, self._popen.stdout, self._popen.stderr
        self.stdin, self.stdout, self.stderr = map(_open, streams)
        self.inside = isolation is Isolation.BUBBLEWRAP

    def pids(self) -> list[int]:
        return [self._popen.pid, *descendants(self._popen.pid)]

    def wait(self, seconds: float) -> int | None:
        try:
            return self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        _end(self._popen, self.inside)


class Fork:
    """A fork of the server; under bubblewrap in the spaces of a holder."""

    def __init__(
        self,
        server: "Server",
        isolation: Isolation,
        limits: Limits,
        folder: str,
    ) -> None:
        self._holder: subprocess.Popen[bytes] | None = None
        given = settings(isolation, limits, folder, name(folder), forked=True)
        in_, self.stdin = _pipe("wb")
        out, self.stdout = _pipe("rb")
        err, self.stderr = _pipe("rb")
        self._report, report = socket.socketpair()
        passed = [in_, out, err, report.detach()]
        if isolation is Isolation.BUBBLEWRAP:
            self._holder, more = _hold(limits, folder)
            passed += more
        server.ask(given, passed)
        self._said = b""
        self._closed = False

    @property
    def _lines(self) -> list[int]:
        """Its process number, then its exit code: what is known by now."""
        self._listen(0.0)
        return [int(line) for line in self._said.split(b"\n")[:-1]]

    def _listen(self, seconds: float) -> bool:
        """Take what its watch says; whether it may say more."""
        if self._closed:
            return False
        if select.select([self._report], [], [], seconds)[0]:
            part = self._report.recv(64)
            self._said += part
            return bool(part)
        return True

    def pids(self) -> list[int]:
        first = [self._holder.pid] if self._holder else []
        first += self._lines[:1]
        return [pid for one in first for pid in (one, *descendants(one))]

    def wait(self, seconds: float) -> int | None:
        end = time.monotonic() + seconds
        while len(self._lines) < 2:
            left = end - time.monotonic()
            if not self._listen(max(0.0, left)):
                return GONE
            if left <= 0:
                return None
        return self._lines[1]

    def kill(self) -> None:
        if self._closed:
            return
        for pid in self.pids():
            if self._holder is None or pid != self._holder.pid:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        self.wait(2.0)
        self._closed = True
        self._report.close()  # only now its name spaces can end
        if self._holder:
            _end(self._holder, True)


class Server:
    """One process that has loaded torch, and forks a sandbox when asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None

    def ask(self, given: dict[str, Any], passed: list[int]) -> None:
        """Send settings, and descriptors, which are closed here."""
        text = json.dumps(given).encode()
        try:
            with self._lock:
                if self._socket is None:
                    self._start()
                assert self._socket
                try:
                    socket.send_fds(self._socket, [text], passed)
                except OSError:  # it was ended, by the system perhaps
                    self._socket.close()
                    self._start()
                    socket.send_fds(self._socket, [text], passed)
        finally:
            for descriptor in passed:
                os.close(descriptor)

    def _start(self) -> None:
        """Start it; it ends when this process closes its end, or ends."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        given = {"requests": theirs.fileno(), "paths": library_paths()}
        with theirs:
            self._popen = subprocess.Popen(
                python(HERE / FILES[0], given),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                cwd="/",
                env=environment("/"),
                start_new_session=True,
            )
        self._socket = ours


@functools.cache
def server() -> Server:
    """That of this process; it starts when it is asked for a sandbox."""
    return Server()


@functools.cache
def can_join() -> bool:
    """Whether a process may join the name spaces of a bubblewrap here."""
    if confine.machine() is None:
        return False
    code = (
        f"import sys; sys.path.insert(0, {str(HERE)!r})\n"
        "import confine, forks\n"
        "forks.enter(confine.syscall, *map(int, sys.argv[1:]))"
    )
    held, passed = _hold(Limits(), "")
    done = subprocess.run(
        [BINARY, "-S", "-s", "-P", "-B", "-c", code, *map(str, passed)],
        pass_fds=passed,
        stderr=subprocess.DEVNULL,
    )
    for descriptor in passed:
        os.close(descriptor)
    _end(held, True)
    return done.returncode == 0


def descendants(pid: int) -> list[int]:
    """Processes below one, nearest first; none where they cannot be seen."""
    found, rest = [], [pid]
    while rest:
        here = rest.pop(0)
        threads = Path(f"/proc/{here}/task")
        with contextlib.suppress(OSError):  # it may end while we look
            for thread in os.listdir(threads):
                listed = (threads / thread / "children").read_text()
                children = [int(n) for n in listed.split()]
                found += children
                rest += children
    return found


def _hold(
    limits: Limits, folder: str
) -> tuple[subprocess.Popen[bytes], list[int]]:
    """Name spaces, and what `forks.enter` reads to join them."""
    info, writes = os.pipe()
    started, starts = os.pipe()
    line = holder(limits, folder)
    line[1:1] = ["--info-fd", str(writes)]
    held = subprocess.Popen(
        line,
        stdin=subprocess.PIPE,
        stdout=starts,
        stderr=subprocess.DEVNULL,
        pass_fds=[writes],
        env=environment("/"),  # it can be read in there
        start_new_session=True,
    )
    os.close(writes)
    os.close(starts)
    return held, [info, started]


def _end(popen: subprocess.Popen[bytes], inside: bool) -> None:
    """End a process and all below it.

    Under bubblewrap the first child is the name space's init: the kernel
    ends all the others with it, and bwrap then ends by itself.
    """
    for pid in descendants(popen.pid):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    if inside:
        with contextlib.suppress(subprocess.TimeoutExpired):
            popen.wait(1)
    if hasattr(os, "killpg"):
        with contextlib.suppress(OSError):
            os.killpg(popen.pid, signal.SIGKILL)
    popen.kill()
    popen.wait()


def _open(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def _pipe(mine: str) -> tuple[int, IO[bytes]]:
    """The end of a sandbox, and ours, to read or to write."""
    reads, writes = os.pipe()
    ours, theirs = (reads, writes) if mine == "rb" else (writes, reads)
    return theirs, os.fdopen(ours, mine, buffering=0)
