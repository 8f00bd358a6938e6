"""Kernels that start at once: forks of one process that has loaded torch.

    with kernels.ready():
        ...  # every kernel "python3" that is started in here is a fork

Importing torch and matplotlib takes a kernel longer than many a chapter's
cells take, and so does what PyTorch's first optimizer imports.  So one
process, the server, imports them once, and each kernel is a fork of it.  The
server computes nothing, so a fork is what a new process would be, without the
wait.

Jupyter starts this file as its kernel.  It sends its arguments, folder,
environment and standard streams to the server, passes interrupts on to the
fork, and ends when the fork or Jupyter ends; the fork ends when it is killed.
"""

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

IMPORTED = [
    *("matplotlib.pyplot", "coursekit_classroom.figures"),
    "torch._dynamo",  # the first optimizer imports it
    # Most of what a kernel imports when it starts.
    *("ipykernel.kernelapp", "ipykernel.debugger", "IPython.core.oinspect"),
    *("IPython.extensions.storemagic", "sqlite3", "psutil", "tornado.queues"),
    "tornado.platform.asyncio",
]
LIMIT = 2**20  # bytes of a request
STARTED = "COURSEKIT_KERNELS"  # there is a server, which JUPYTER_PATH names


@contextlib.contextmanager
def ready():
    """Start a server, and let Jupyter start its kernels as forks of it.

    Only on Linux; elsewhere, each kernel is a process of its own. A program
    that is started in here uses the same server.
    """
    if STARTED in os.environ:
        yield
        return
    from unittest import mock  # loads asyncio, which no client needs

    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "ipykernel_launcher"]
        if sys.platform == "linux":
            address = str(Path(folder, "socket"))
            command = [sys.executable, "-S", __file__, address]
        spec = {
            "argv": [*command, "-f", "{connection_file}"],
            "display_name": "Python 3",
            "language": "python",
        }
        path = Path(folder, "kernels", "python3", "kernel.json")
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(spec), "utf8")
        with mock.patch.dict(
            os.environ, {"JUPYTER_PATH": folder, STARTED: "1"}
        ):
            if sys.platform != "linux":
                yield
                return
            with subprocess.Popen(
                [sys.executable, __file__, address],
                stdin=subprocess.PIPE,  # it ends when this is closed
                stdout=subprocess.PIPE,
            ) as server:
                server.stdout.readline()  # it listens
                yield
                server.stdin.close()


def serve(address):
    """Fork a kernel for each request, until standard input ends."""
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"  # it would warn
    sys.path.remove(str(Path(__file__).resolve().parent))
    for name in IMPORTED:
        importlib.import_module(name)

    assert threading.active_count() == 1  # or a fork would lack the others
    connection = fork_for_requests(address)
    if connection:
        become_kernel(connection)


def fork_for_requests(address):
    """Fork for each request at a socket, until standard input ends.

    Returns the connection in the fork, and at the end None.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a fork
    gc.collect()
    gc.freeze()  # no collection in a fork looks at what is shared
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(16)
        print("ready", flush=True)
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            connection, _ = listener.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                return connection
            connection.close()
    return None


def request(address, arguments, streams, folder=None, environment=None):
    """Ask for a fork; the connection with it."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    asked = {
        "arguments": arguments,
        "folder": folder or os.getcwd(),
        "environment": environment or dict(os.environ),
    }
    socket.send_fds(connection, [json.dumps(asked).encode()], streams)
    return connection


def take(connection):
    """Take the streams, folder and environment of a request; its arguments."""
    data, streams, *_ = socket.recv_fds(connection, LIMIT, 3)
    for stream, number in zip(streams, range(3), strict=True):
        os.dup2(stream, number)
        os.close(stream)
    asked = json.loads(data)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    return asked["arguments"]


def become_kernel(connection):
    """Run the kernel that the request asks for; does not return."""
    words = take(connection)
    os.setsid()  # an interrupt from the keyboard reaches who passes it on
    connection.sendall(str(os.getpid()).encode())

    def end_with_client():
        connection.recv(1)
        os._exit(0)

    threading.Thread(target=end_with_client, daemon=True).start()

    import numpy as np
    from ipykernel import kernelapp

    np.random.seed()  # or all forks would draw the same
    code = 0
    sys.argv = ["kernel", *words]
    # Who its parent is was asked when ipykernel was loaded; and each kernel
    # would warn that it listens on this machine's ports.
    options = ["--IPKernelApp.parent_handle=1", "--IPKernelApp.log_level=40"]
    arguments = dict.fromkeys([*words, *options])
    try:
        kernelapp.launch_new_instance(argv=list(arguments))
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        os._exit(code)


def be_client(address, arguments):
    """Ask for a kernel, pass interrupts on to it, and end with it.

    Or with who started it: a session of its own outlives a closed terminal.
    """
    starter = os.pidfd_open(int(os.environ["JPY_PARENT_PID"]))
    with request(address, arguments, [0, 1, 2]) as connection:
        kernel = int(connection.recv(64))

        def pass_on(number, _):
            with contextlib.suppress(ProcessLookupError):  # it has ended
                os.kill(kernel, number)

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, pass_on)
        select.select([connection, starter], [], [])  # until one has ended


if __name__ == "__main__":
    address, *arguments = sys.argv[1:]
    if arguments:
        be_client(address, arguments)
    else:
        serve(address)
