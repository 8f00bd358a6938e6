"""What a process gives up of its own accord, before it runs a stranger.

Limits on memory, files and processes wherever the system has them; on Linux
also system calls (seccomp), and where there is no bubblewrap the file system
(Landlock).  None of it can be taken back.  Loaded inside the sandbox, alone:
nothing but the standard library.
"""

import contextlib
import ctypes
import os
import platform
import struct
import sys
from collections.abc import Iterable, Iterator
from typing import Any

NO_NEW_PRIVS, SET_SECCOMP, SET_PDEATHSIG = 38, 22, 1  # prctl
SET_NAME, SET_DUMPABLE = 15, 4
PROBE_ABI = 1  # landlock_create_ruleset's flag: only say which version
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # on every machine

# Landlock's rights: what may be done with a file, and with a folder.
READ_FILE, READ_DIR, WRITE_FILE, TRUNCATE = 1 << 2, 1 << 3, 1 << 1, 1 << 14
READ = READ_FILE | READ_DIR
FILE_RIGHTS = 0b111 | TRUNCATE | 1 << 15  # those that a plain file can have
RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}  # how many there are, by version

# System calls by machine.  Denied: starting programs and processes, looking
# into others, other name spaces, sockets, memory that no limit counts; and
# what Landlock does not see: a file's mode, owner, times and attributes, and
# how others are scheduled.  "own" may be called on the process itself only,
# "self" if it is named by 0.  "fcntl" may not say who is sent a signal.
X86_64 = {
    "arch": 0xC000003E,
    "clone": 56,
    "clone3": 435,
    "own": [62, 129, 200, 234, 297],  # kill and its kin
    "self": [302],  # prlimit64
    "fcntl": 72,
    "denied": [
        *(57, 58, 59, 322),  # fork vfork execve execveat
        *(101, 310, 311, 312, 434, 438, 424),  # ptrace, memory of others
        *(272, 308, 165, 166, 155, 161),  # unshare setns mount … chroot
        *(248, 249, 250, 321, 298, 323, 425),  # keys bpf perf … io_uring
        *(319, 447, 29),  # memfd_create memfd_secret shmget
        *(68, 64, 240),  # msgget semget mq_open: the kernel's memory
        *(41, 42, 49, 53),  # socket connect bind socketpair
        *(90, 91, 268, 452, 92, 93, 94, 260),  # chmod chown
        *(132, 235, 261, 280, 76, 469),  # utime … truncate file_setattr
        *(188, 189, 190, 463, 197, 198, 199, 466),  # setxattr removexattr
        *(141, 142, 144, 203, 314, 251),  # setpriority sched_set… ioprio_set
        *(256, 279, 440),  # migrate_pages move_pages process_madvise
    ],
}
AARCH64 = {
    "arch": 0xC00000B7,
    "clone": 220,
    "clone3": 435,
    "own": [129, 130, 131, 138, 240],
    "self": [261],
    "fcntl": 25,
    "denied": [
        *(221, 281),
        *(117, 270, 271, 272, 434, 438, 424),
        *(97, 268, 40, 39, 41, 51),
        *(217, 218, 219, 280, 241, 282, 425),
        *(279, 447, 194),
        *(186, 190, 180),
        *(198, 203, 200, 199),
        *(52, 53, 452, 54, 55),
        *(88, 45, 469),
        *(5, 6, 7, 463, 14, 15, 16, 466),
        *(140, 118, 119, 122, 274, 30),
        *(238, 239, 440),
    ],
}
OWNERS = (8, 10, 15)  # fcntl's F_SETOWN, F_SETSIG, F_SETOWN_EX
MACHINES: dict[str, dict[str, Any]] = {"x86_64": X86_64, "aarch64": AARCH64}


def machine() -> dict[str, Any] | None:
    """This machine's system calls, or None where we do not know them."""
    if sys.platform != "linux" or sys.maxsize < 2**32:
        return None
    return MACHINES.get(platform.machine())


def landlock_version() -> int:
    """Which Landlock the kernel has; 0 for none."""
    if machine() is None:
        return 0
    return max(0, syscall(CREATE_RULESET, None, 0, PROBE_ABI))


def limit(file_size: int, files: int, processes: int | None) -> None:
    """Set what limits the system knows, for this process and its children.

    Args:
        file_size: bytes of any one file.
        files: how many may be open.
        processes: how many processes and threads the user may have; None
            where others of this user are counted too.
    """
    try:
        import resource
    except ImportError:  # Windows
        return
    wanted = {
        "RLIMIT_FSIZE": file_size,
        "RLIMIT_NOFILE": files,
        "RLIMIT_NPROC": processes,
        "RLIMIT_CORE": 0,
        "RLIMIT_MSGQUEUE": 0,
    }
    for name, value in wanted.items():
        kind = getattr(resource, name, None)
        if kind is not None and value is not None:
            # macOS refuses some of them
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(kind, (value, value))


def limit_more(seconds: int, memory: int) -> None:
    """Use at most so many more CPU seconds, and bytes of address space.

    More than by now: what loading torch took is not counted. Of seconds it is
    little; of addresses, where torch was built for CUDA, it is 3 GB. The
    parent counts seconds too, and sooner: this holds where it cannot look.
    """
    try:
        import resource
    except ImportError:
        return
    usage = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(usage.ru_utime + usage.ru_stime) + seconds + 1
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CPU, (soft, soft + 2))
    if sys.platform == "linux":
        with open("/proc/self/statm") as pages:
            memory += int(pages.read().split()[0]) * resource.getpagesize()
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def die_with_parent() -> None:
    """Have the kernel end this process when its parent ends (Linux)."""
    if sys.platform == "linux":
        _prctl(SET_PDEATHSIG, 9)


def show(name: str) -> None:
    """Let the grader see this process in /proc, with a name (Linux).

    Args:
        name: up to 15 bytes count.
    """
    if sys.platform == "linux":
        _prctl(SET_NAME, name.encode())
        _prctl(SET_DUMPABLE, 1)  # joining a name space takes it away


def drop_capabilities() -> None:
    """Give up root's powers: who grades as root, or has joined a space."""
    _check(_prctl(NO_NEW_PRIVS, 1), "no_new_privs")
    header = struct.pack("<Ii", 0x20080522, 0)
    nothing = struct.pack("<6I", *[0] * 6)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.capset(header, nothing) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def filter_calls() -> None:
    """Deny system calls that no exercise needs (seccomp)."""
    program = seccomp_program(machine() or {}, os.getpid())
    code = ctypes.create_string_buffer(program)
    address = ctypes.addressof(code)
    head = struct.pack("<HxxxxxxQ", len(program) // 8, address)
    if _prctl(NO_NEW_PRIVS, 1) or _prctl(SET_SECCOMP, 2, head):
        raise OSError(ctypes.get_errno(), "seccomp")


def seccomp_program(calls: dict[str, Any], pid: int) -> bytes:
    """The filter in the kernel's code: an error for what is denied.

    An error, not death: a learner who starts a program reads an ordinary
    PermissionError.
    """
    load, equal, at_least, has, leave = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, error = 0x7FFF0000, 0x00050000
    permission, missing = error | 1, error | 38
    steps: list[tuple[int, int, int, int]] = [
        (load, 0, 0, 4),  # the machine
        (equal, 1, 0, calls["arch"]),
        (leave, 0, 0, permission),
        (load, 0, 0, 0),  # the call's number
        (at_least, 0, 1, 0x40000000),  # x86's other table
        (leave, 0, 0, permission),
        # clone3 hides what it is asked in memory; without it libc uses clone
        (equal, 0, 1, calls["clone3"]),
        (leave, 0, 0, missing),
    ]
    for call in calls["denied"]:
        steps += [(equal, 0, 1, call), (leave, 0, 0, permission)]
    tests = [(calls["clone"], has, 0x10000)]  # a thread
    tests += [(call, equal, pid) for call in calls["own"]]
    tests += [(call, equal, 0) for call in calls["self"]]
    for call, test, value in tests:
        steps += [
            (equal, 0, 4, call),
            (load, 0, 0, 16),  # its first argument
            (test, 0, 1, value),
            (leave, 0, 0, allow),
            (leave, 0, 0, permission),
        ]
    steps += [
        (equal, 0, 2 + 2 * len(OWNERS), calls["fcntl"]),
        (load, 0, 0, 24),  # its second argument
    ]
    for command in OWNERS:
        steps += [(equal, 0, 1, command), (leave, 0, 0, permission)]
    steps += [(leave, 0, 0, allow)] * 2
    return b"".join(struct.pack("<HBBI", *step) for step in steps)


def lock_files(
    readable: Iterable[str], hidden: Iterable[str], writable: Iterable[str]
) -> None:
    """Allow to read some folders, to write others, and nothing else.

    Args:
        readable: folders and files; those that do not exist are passed over.
        hidden: folders in them that stay out of reach.
        writable: folders.
    """
    version = landlock_version()
    if not version:
        raise OSError("this kernel has no Landlock")
    every = (1 << RIGHTS.get(version, 16)) - 1
    rules = struct.pack(
        "<QQQ",
        every,
        0b11 if version >= 4 else 0,  # bind and connect by TCP
        0b11 if version >= 6 else 0,  # sockets without a name, signals
    )
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    rules_fd = _check(syscall(CREATE_RULESET, rules, size, 0), "create")
    for path in shown(readable, hidden):
        _allow(rules_fd, path, READ)
    for path in writable:
        _allow(rules_fd, path, every & ~1)  # nothing to execute
    for path in ("/dev/null", "/dev/zero", "/dev/urandom"):
        _allow(rules_fd, path, READ | WRITE_FILE)
    _check(_prctl(NO_NEW_PRIVS, 1), "no_new_privs")
    _check(syscall(RESTRICT_SELF, rules_fd, 0, 0), "restrict")
    os.close(rules_fd)


def linked(
    paths: Iterable[str],
    readable: Iterable[str],
    hidden: Iterable[str],
    folder: str,
) -> list[str]:
    """Folders to import from, all of which can be listed.

    Landlock lets a folder be listed with all that is in it, or not at all,
    and Python lists a folder before it imports from it.  So a folder that
    has something to hide is replaced by one with links to the rest.

    Args:
        paths: folders of modules, as in ``sys.path``.
        readable: folders and files.
        hidden: folders in them that stay out of reach.
        folder: where the links go.
    """
    away = tuple(f"{os.path.realpath(path)}/" for path in hidden)
    parts = [p for p in shown(readable, hidden) if not p.startswith(away)]
    found = []
    for number, path in enumerate(map(os.path.realpath, paths)):
        inside = {part for part in parts if part.startswith(f"{path}/")}
        if inside and path not in parts:
            links = f"{folder}/library/{number}"
            for part in sorted(inside):  # a folder before what is in it
                link = links + part.removeprefix(path)
                if not os.path.lexists(link):
                    os.makedirs(os.path.dirname(link), exist_ok=True)
                    os.symlink(part, link)
            path = links
        found.append(path)
    return found


def shown(readable: Iterable[str], hidden: Iterable[str]) -> list[str]:
    """What of some folders may be read: no part of it holds what is hidden."""
    away = {os.path.realpath(path) for path in hidden}
    real = [os.path.realpath(path) for path in readable]
    return [part for path in real for part in without(path, away)]


def without(path: str, hidden: set[str]) -> Iterator[str]:
    """The largest folders and files of a folder that leave out others."""
    real = os.path.realpath(path)  # an entry of a folder may be a link
    if real in hidden:
        return
    if not any(h.startswith(real.rstrip("/") + "/") for h in hidden):
        yield path
        return
    with os.scandir(path) as entries:
        for entry in entries:
            yield from without(entry.path, hidden)


def _allow(rules_fd: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, getattr(os, "O_PATH", 0) | os.O_CLOEXEC)
    except OSError:
        return  # what is not there need not be allowed
    try:
        version = landlock_version()
        rights &= (1 << RIGHTS.get(version, 16)) - 1
        if not os.path.isdir(path):
            rights &= FILE_RIGHTS
        rule = struct.pack("<Qi", rights, fd)
        _check(syscall(ADD_RULE, rules_fd, 1, rule, 0), f"allow {path}")
    finally:
        os.close(fd)


def _check(code: int, what: str) -> int:
    if code < 0:
        raise OSError(ctypes.get_errno(), f"Landlock: {what}")
    return code


def _prctl(option: int, value: Any, more: Any = 0) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_ulong(0)
    second, third = (
        given if isinstance(given, bytes) else ctypes.c_ulong(given)
        for given in (value, more)
    )
    code: int = libc.prctl(option, second, third, zero, zero)
    return code


def syscall(number: int, *arguments: Any) -> int:
    """Make a system call: its result, or -1."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    passed = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    code: int = libc.syscall(ctypes.c_long(number), *passed)
    return code
