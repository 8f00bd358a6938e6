"""What a sandbox gives up of its own accord, before it runs a stranger.

Limits of the system (``resource``); on Linux system calls too, through
libseccomp, which knows them by name.  Where bubblewrap cannot run, as in a
container without the right to make name spaces, Landlock closes the file
system, and the system calls close the network.  None of it can be taken back.

The sandbox loads this file alone: nothing but the standard library.
"""

import contextlib
import ctypes
import ctypes.util
import os
import struct
import sys
from collections.abc import Iterable
from typing import Any

# What no exercise needs: programs, processes and looking into others; name
# spaces; sockets; memory that no limit counts; and what Landlock does not
# see: a file's mode, owner, times and attributes.
DENIED = (
    *("fork", "vfork", "execve", "execveat", "ptrace", "process_vm_readv"),
    *("process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp"),
    *("unshare", "setns", "mount", "umount2", "pivot_root", "chroot"),
    *("add_key", "request_key", "keyctl", "bpf", "perf_event_open"),
    *("userfaultfd", "io_uring_setup", "memfd_create", "memfd_secret"),
    *("shmget", "msgget", "semget", "mq_open", "socket", "socketpair"),
    *("connect", "bind", "chmod", "fchmod", "fchmodat", "fchmodat2", "chown"),
    *("fchown", "lchown", "fchownat", "utime", "utimes", "futimesat"),
    *("utimensat", "truncate", "setxattr", "lsetxattr", "fsetxattr"),
    *("removexattr", "lremovexattr", "fremovexattr", "setpriority"),
    *("sched_setaffinity", "sched_setscheduler", "sched_setparam"),
    *("sched_setattr", "ioprio_set", "migrate_pages", "move_pages"),
)
OWN = ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
ALLOW, ERROR = 0x7FFF0000, 0x00050000
NOT_EQUAL, EQUAL, MASKED = 1, 4, 7  # how libseccomp compares an argument
THREAD = 0x10000  # clone's flag
OWNERS = (8, 10, 15)  # fcntl's F_SETOWN, F_SETSIG, F_SETOWN_EX
NO_NEW_PRIVS, PDEATHSIG = 38, 1  # prctl
# Landlock's system calls, the same on every machine, and its rights.
CREATE, ADD, RESTRICT = 444, 445, 446
READ, WRITE, FILE = 0b1100, 0b10, 0b111 | 1 << 14 | 1 << 15
RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}  # how many there are, by version


class Argument(ctypes.Structure):
    """A condition on a system call's argument (``scmp_arg_cmp``)."""

    _fields_ = [
        ("number", ctypes.c_uint),
        ("test", ctypes.c_int),
        ("value", ctypes.c_uint64),
        ("other", ctypes.c_uint64),
    ]


def limit(limits: dict[str, int]) -> None:
    """Set what limits the system knows, by their names in ``resource``."""
    with contextlib.suppress(ImportError):  # Windows
        import resource

        for name, value in limits.items():
            kind = getattr(resource, name, None)
            if kind is not None:
                with contextlib.suppress(OSError, ValueError):  # macOS
                    resource.setrlimit(kind, (value, value))


def die_with_parent() -> None:
    """Have the kernel end this process when its parent ends (Linux)."""
    if sys.platform == "linux":
        prctl(PDEATHSIG, 9)


def library() -> Any:
    """The libseccomp of this system, or None."""
    name = ctypes.util.find_library("seccomp") or "libseccomp.so.2"
    try:
        found = ctypes.CDLL(name)
    except OSError:
        return None
    found.seccomp_init.restype = ctypes.c_void_p
    return found


def filter_calls(library: Any) -> None:
    """Answer the denied system calls with an error (seccomp).

    An error, not death: a learner who starts a program reads an ordinary
    PermissionError.
    """
    context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(ALLOW)))

    def deny(name: str, *arguments: Argument, code: int = 1) -> None:
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number != -1:  # a call that this library knows
            given = (Argument * len(arguments))(*arguments)
            library.seccomp_rule_add_array(
                *(context, ctypes.c_uint32(ERROR | code), number),
                *(len(arguments), given),
            )

    for name in DENIED:
        deny(name)
    # clone3 hides what it is asked in memory; without it libc uses clone.
    deny("clone3", code=38)
    deny("clone", Argument(0, MASKED, THREAD, 0))
    for name in OWN:
        deny(name, Argument(0, NOT_EQUAL, os.getpid(), 0))
    deny("prlimit64", Argument(0, NOT_EQUAL, 0, 0))
    for command in OWNERS:
        deny("fcntl", Argument(1, EQUAL, command, 0))
    if library.seccomp_load(context):
        raise OSError("the system refuses a filter of system calls")


def landlock_version() -> int:
    """Which Landlock the kernel has; 0 for none."""
    return max(0, call(CREATE, None, 0, 1)) if sys.platform == "linux" else 0


def lock_files(readable: Iterable[str], writable: str) -> None:
    """Allow to read some files and folders, to write one, and nothing else."""
    version = landlock_version()
    every = (1 << RIGHTS.get(version, 16)) - 1
    rules = struct.pack("<QQQ", every, 0b11, 0b11)  # TCP; sockets and signals
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = call(CREATE, rules, size, 0)
    devices = ("/dev/null", "/dev/zero", "/dev/urandom")
    rights = dict.fromkeys(readable, READ) | {writable: every & ~1}
    for path, right in (rights | dict.fromkeys(devices, READ | WRITE)).items():
        with contextlib.suppress(OSError):  # what is not there
            opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
            kept = every if os.path.isdir(path) else every & FILE
            rule = struct.pack("<Qi", right & kept, opened)
            call(ADD, ruleset, 1, rule, 0)
            os.close(opened)
    prctl(NO_NEW_PRIVS, 1)
    # Root's powers go as well, where root grades.
    header = struct.pack("<Ii", 0x20080522, 0)
    powers = ctypes.CDLL(None).capset(header, struct.pack("<6I", *[0] * 6))
    if powers or ruleset < 0 or call(RESTRICT, ruleset, 0):
        raise OSError("the system refuses Landlock")


def prctl(option: int, value: int) -> None:
    """Set something about this process."""
    ctypes.CDLL(None).prctl(*map(ctypes.c_ulong, (option, value, 0, 0, 0)))


def call(number: int, *arguments: Any) -> int:
    """Make a system call: its result, or -1."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    passed = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result: int = libc.syscall(ctypes.c_long(number), *passed)
    return result
