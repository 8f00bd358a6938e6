"""Random cases: ours against others' code, damaged files, kills, commands.

A target draws one case from a random generator and raises if what comes out
is wrong.  The seed of a case is all that there is to know about it, so a
failure is repeated by one command, which the report prints.

Cases run in forks of this process, many to a fork: one that crashes the
interpreter or never ends is a failure like any other, and the next case runs
in a new fork.
"""

import json
import math
import os
import random
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from tests.patience import PATIENCE

MEMORY = 6 << 30  # bytes beyond those of this process
FORKED = PATIENCE / 3  # seconds that a program of a case may take

TARGETS: dict[str, Callable[[random.Random], None]] = {}


def target(function):
    """Enter a function of a random generator under its name."""
    TARGETS[function.__name__] = function
    return function


def draw(name: str, seed: int) -> None:
    """Run one case here."""
    TARGETS[name](random.Random(f"{name} {seed}"))


def run(
    name: str, seeds: Iterable[int], seconds: float = math.inf
) -> Iterator[tuple[int, str]]:
    """Run cases in forks: each seed, and what was wrong, or nothing.

    Args:
        name: of the target.
        seeds: of the cases, in order.
        seconds: after which no case but the first begins.
    """
    end, left = time.monotonic() + seconds, iter(seeds)
    while True:
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            work(name, left, end, writer)
        os.close(writer)
        at = problem = None
        try:
            for seed, problem in said(reader):
                if problem is None:
                    at = next(left)  # as the fork has done
                else:
                    at = None
                    yield seed, problem
        except TimeoutError as error:
            problem = str(error)
        finally:
            os.close(reader)
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if at is None:
            return  # nothing is left, or no time
        yield at, problem or f"ended the interpreter: exit code {code}"
        if time.monotonic() > end:
            return


def said(reader: int) -> Iterator[tuple[int, str | None]]:
    """What a fork says of its cases.

    Raises:
        TimeoutError: if it says nothing for too long.
    """
    held = b""
    while select.select([reader], [], [], PATIENCE)[0]:
        if not (data := os.read(reader, 1 << 16)):
            return
        *lines, held = (held + data).split(b"\n")
        yield from map(json.loads, lines)
    raise TimeoutError(f"took longer than {PATIENCE} s")


def work(name: str, seeds: Iterator[int], end: float, writer: int) -> NoReturn:
    """Run cases, and say of each when it begins and how it ended."""
    try:
        os.setpgid(0, 0)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        while (seed := next(seeds, None)) is not None:
            tell(writer, seed, None)
            try:
                draw(name, seed)
                problem = ""
            except BaseException:
                problem = traceback.format_exc()
            tell(writer, seed, problem)
            if time.monotonic() > end:
                break
    finally:
        os._exit(0)


def tell(writer: int, *words: object) -> None:
    """Write a line, all of it."""
    left = json.dumps(words).encode() + b"\n"
    while left:
        left = left[os.write(writer, left) :]


# -- what targets share ------------------------------------------------------
@contextmanager
def folder() -> Iterator[Path]:
    """An empty folder."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        yield Path(name)


def forked(
    function: Callable[[], int],
    signal_after: tuple[float, int] | None = None,
) -> tuple[int, str, str]:
    """Call a function in a process of its own.

    Args:
        function: gives the exit code.
        signal_after: seconds, and a signal that it gets then.

    Returns:
        The exit code, below 0 for a signal; stdout and stderr.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if not child:
            become(function, out.fileno(), err.fileno())
        begin, code, due = time.monotonic(), None, signal_after
        while code is None:
            time.sleep(0.002)
            done, status = os.waitpid(child, os.WNOHANG)
            past = time.monotonic() - begin
            if done:
                code = os.waitstatus_to_exitcode(status)
            elif due and past > due[0]:
                os.kill(child, due[1])
                due = None
            elif past > FORKED:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                raise AssertionError(f"took longer than {FORKED} s")
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
        return code, *texts


def become(function, out, err):
    """Be a program: its output, and its exit code, or a traceback."""
    code = 70
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, file in ((0, os.open(os.devnull, 0)), (1, out), (2, err)):
            os.dup2(file, number)
        sys.stdin, sys.stdout, sys.stderr = (
            open(n, mode, encoding="utf8", closefd=False)  # noqa: SIM115
            for n, mode in ((0, "r"), (1, "w"), (2, "w"))
        )
        try:
            code = function()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code or 0)


# The targets enter themselves.
from tests.fuzz import commands, damage, kills, oracles  # noqa: E402

__all__ = ["TARGETS", "commands", "damage", "draw", "kills", "oracles", "run"]
