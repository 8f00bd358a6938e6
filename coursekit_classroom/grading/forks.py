"""Sandboxes that start at once: forks of one process that has loaded torch.

Importing torch takes a sandbox longer than most submissions take.  So one
process, the server, imports it once, and each sandbox is a fork of it.  The
server runs nothing of a stranger's and knows no secret; a fork joins the name
spaces that bubblewrap has made, shuts itself in as any other sandbox does,
and only then reads what it is asked.

Loaded in the server alone (child.py): nothing but the standard library.
"""

import contextlib
import fcntl
import gc
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any

SPACES = ("mnt", "pid", "net", "ipc", "uts", "cgroup")
SET_NS = {"x86_64": 308, "aarch64": 268}  # the system call
GET_USERNS = 0xB701  # ioctl: the user name space that owns another one
REQUEST = 1 << 20  # bytes of a request
PASSED = 6  # descriptors that come with it, at most

Step = Callable[[], None]
Call = Callable[..., int]


def serve(
    requests: int, begin: Callable[[Any], None], tie: Step, call: Call
) -> None:
    """Start a sandbox for each request, until nobody asks anymore.

    A request is the settings of a sandbox as JSON, and descriptors: its
    stdin, stdout and stderr, one for :func:`watch` to report on, and under
    bubblewrap the two that :func:`enter` reads.

    Args:
        requests: a descriptor: a socket that keeps messages apart.
        begin: all that a sandbox does, given its settings.
        tie: has the kernel end this process when its parent ends.
        call: makes a system call.
    """
    if len(os.listdir("/proc/self/task")) > 1:
        raise RuntimeError("a fork would lack this process's other threads")
    gc.collect()
    gc.freeze()  # no collection in a fork copies what is shared
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for watch
    listener = socket.socket(fileno=requests)
    while True:
        text, passed, _, _ = socket.recv_fds(listener, REQUEST, PASSED)
        if not text:
            os._exit(0)
        if os.fork() == 0:
            listener.close()  # whoever has it could ask for sandboxes
            watch(json.loads(text), passed, begin, tie, call)
        for descriptor in passed:
            os.close(descriptor)


def watch(
    settings: dict[str, Any],
    passed: list[int],
    begin: Callable[[Any], None],
    tie: Step,
    call: Call,
) -> None:
    """Fork a sandbox and report its process number, then how it ended.

    Its number stays taken until the grader closes the channel, so that a
    signal never reaches another process.
    """
    stdin, stdout, stderr, report, *held = passed
    try:
        for number, descriptor in enumerate((stdin, stdout, stderr)):
            os.dup2(descriptor, number)
            os.close(descriptor)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        tie()
        if held:
            enter(call, *held)
        child = os.fork()
        if child == 0:
            os.close(report)
            renew(settings)
            begin(settings)
            os._exit(0)
        os.write(report, b"%d\n" % child)
        for number in range(3):  # they end when the sandbox does
            os.close(number)
        ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        if ended is not None:
            exited = ended.si_code == os.CLD_EXITED
            code = ended.si_status if exited else -ended.si_status
            os.write(report, b"%d\n" % code)
            os.read(report, 1)
            os.waitpid(child, 0)
    except BaseException:
        with contextlib.suppress(OSError):
            traceback.print_exc()
    os._exit(1)


def enter(call: Call, info: int, ready: int) -> None:
    """Join the name spaces of a bubblewrap that is running.

    Its innermost user name space comes last: in there nobody may join
    another, or do anything else with those above.

    Args:
        call: makes a system call.
        info: where it writes the number of its process, in JSON.
        ready: where what it runs writes a byte.
    """
    with open(info) as file:
        number = json.load(file)["child-pid"]
    if not os.read(ready, 1):
        raise OSError("bubblewrap has ended")
    os.close(ready)
    place = f"/proc/{number}/ns"
    spaces = [os.open(f"{place}/{name}", os.O_RDONLY) for name in SPACES]
    owner = fcntl.ioctl(spaces[0], GET_USERNS)
    inner = os.open(f"{place}/user", os.O_RDONLY)
    within = [] if os.path.sameopenfile(owner, inner) else [inner]
    for space in (owner, *spaces, *within):
        if call(SET_NS[os.uname().machine], space, 0) != 0:
            raise OSError("a name space cannot be joined")
        os.close(space)


def renew(settings: dict[str, Any]) -> None:
    """Share nothing with other forks that a new process would have anew.

    Python's ``random`` sees to itself; torch begins every process with the
    same seed.
    """
    os.environ.clear()
    os.environ.update(settings["environment"])
    os.chdir(os.environ["HOME"])
    sys.modules["numpy"].random.seed()
