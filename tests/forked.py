"""Programs that start at once: forks of a process that has imported much.

Most of the time of a small book's build, or of a short command, goes to
imports.  A server imports once what such programs import, and computes
nothing; a program is a fork of it, with its own folder, environment and
streams, and ends as a new process does.  Server and requests are those of
the kernels (``sphinx_ext/kernels.py``).  Whoever asks is a client: :func:`run`
here, or a command line (:func:`client`), which passes its streams on and ends
with the program's exit code.  If it is killed, so is the program.
"""

import atexit
import contextlib
import functools
import importlib
import os
import runpy
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import types
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path.append(str(HERE.parent.parent / "sphinx_ext"))
import kernels  # noqa: E402

SPHINX = [
    *("jupyter_book.cli.main", "jupyter_book.sphinx", "jupyter_cache"),
    *("sphinx.builders.html", "sphinx.ext.autodoc", "sphinx_book_theme"),
    *("sphinx_design", "sphinxcontrib.bibtex", "myst_nb.sphinx_ext"),
    *("fontTools.subset", "matplotlib.pyplot", "torch", "nbval.plugin"),
]
COURSEKIT = [
    *("coursekit.cli.train", "coursekit.cli.generate", "torch"),
    *("coursekit.cli.translate", "coursekit_classroom.teach.grade"),
    *("coursekit_classroom.teach.assign", "coursekit_classroom.yourfile"),
    "torch._dynamo",  # the first optimizer imports it
]
# What tests import that is not ours: pytest's workers are forks as well.
LIBRARIES = (
    *("torch", "torch._dynamo", "transformers"),
    *("jupytext", "matplotlib.pyplot"),
)
# What is installed; a program brings the rest of its path along.
INSTALLED = [
    p for p in sys.path if p.startswith((sys.prefix, sys.base_prefix))
]


@functools.cache
def with_kernels():
    """One server of kernels for all that this process starts from now on."""
    stack = contextlib.ExitStack()
    stack.enter_context(kernels.ready())
    atexit.register(stack.close)


@functools.cache
def server(*modules):
    """The address of a server that has imported these."""
    shared = os.environ.get("FORKED")  # the address of one with LIBRARIES
    if shared and modules == LIBRARIES:
        return shared
    folder = tempfile.TemporaryDirectory()
    address = str(Path(folder.name, "socket"))
    start = python() if shared else [sys.executable]
    process = subprocess.Popen(
        [*start, HERE, address, *modules],
        env=os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,  # it ends when this is closed
        stdout=subprocess.PIPE,
    )

    def end():
        process.stdin.close()
        process.wait()
        folder.cleanup()

    atexit.register(end)
    process.stdout.readline()  # it listens
    return address


def run(program, *arguments, cwd, env):
    """Run a Python script; what `subprocess.run` gives, its output joined."""
    command = [str(program), *map(str, arguments)]
    if sys.platform != "linux":
        return subprocess.run(
            [sys.executable, *command],
            cwd=cwd,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf8",
        )
    with tempfile.TemporaryFile("w+", encoding="utf8") as output:
        streams = [os.open(os.devnull, os.O_RDONLY), *[output.fileno()] * 2]
        place = {"folder": str(cwd), "environment": dict(env)}
        code = ask(server(*SPHINX), command, streams, **place)
        os.close(streams[0])
        output.seek(0)
        return subprocess.CompletedProcess(command, code, output.read())


def client(*modules):
    """The words that start a program as a fork, before its own."""
    return [sys.executable, "-S", str(HERE), "ask", server(*modules)]


def python():
    """The words that start a Python which has the libraries already."""
    if sys.platform != "linux":
        return [sys.executable]
    return [*client(*LIBRARIES), "python"]


@functools.cache
def command(*modules, name="coursekit"):
    """A folder with a program of that name, which is a fork; for a PATH."""
    if sys.platform != "linux":
        return str(Path(sys.executable).parent)
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    words = shlex.join(["exec", *client(*(modules or COURSEKIT)), name])
    path = Path(folder.name, name)
    path.write_text(f'#!/bin/sh\n{words} "$@"\n')
    path.chmod(0o755)
    return folder.name


@functools.cache
def executable(*modules):
    """The path of a Python that has these modules already."""
    if sys.platform != "linux":
        return sys.executable
    return f"{command(*modules, name='python')}/python"


def closed():
    """The standard streams that are closed; in their places nothing."""
    found = []
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            found.append(number)
            os.open(os.devnull, os.O_RDWR)  # it gets the lowest number
    return found


def close(streams):
    """Close standard streams, as if this process had begun without them."""
    for number in streams:
        name = ("stdin", "stdout", "stderr")[number]
        setattr(sys, name, None)
        setattr(sys, f"__{name}__", None)
        os.close(number)


def ask(address, words, streams, **place):
    """Have a program run; its exit code."""
    with kernels.request(address, words, streams, **place) as connection:
        return int(connection.recv(64))


def serve(address, modules):
    """Import modules; give in each fork the words of what it is to be."""
    for name in modules:
        importlib.import_module(name)
    connection = kernels.fork_for_requests(address)
    if connection is None:
        return None
    with connection:
        program = os.fork()
        if not program:
            return kernels.take(connection)
        ended, ends = os.pidfd_open(program), select.poll()
        ends.register(ended, select.POLLIN)
        ends.register(connection, select.POLLRDHUP)  # whoever asked is gone
        if ended not in dict(ends.poll()):
            os.kill(program, signal.SIGKILL)
        _, status = os.waitpid(program, 0)
        code = os.waitstatus_to_exitcode(status)
        with contextlib.suppress(BrokenPipeError):  # nobody waits for it
            connection.sendall(str(code).encode())
    os._exit(0)


def main(words):
    """Be the program, as a new Python would."""
    close(map(int, os.environ.pop("CLOSED", "").split()))
    sys.argv = words
    if words[0] == "coursekit":
        sys.path.remove(str(HERE.parent))
        sys.path.remove(str(HERE.parent.parent / "sphinx_ext"))
        sys.exit(importlib.import_module("coursekit.cli").main())
    if words[0] == "python":
        return be_python(words[1:])
    begin(str(Path(words[0]).resolve().parent), INSTALLED)
    runpy.run_path(words[0], run_name="__main__")
    return None


def begin(first, installed):
    """Look for modules where a new Python does."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [first, *filter(None, paths), *installed]
    for name in ("kernels", "sitecustomize"):  # the program has its own
        sys.modules.pop(name, None)
    with contextlib.suppress(ImportError):  # as a new Python does
        importlib.import_module("sitecustomize")


def be_python(words):
    """Be `python -m module`, `python -c code` or `python script`."""
    ours = {str(HERE.parent), str(HERE.parent.parent / "sphinx_ext")}
    installed = [path for path in sys.path if path not in ours]
    safe = words[0] == "-P"  # nothing from the current folder
    if words[0] in ("-u", "-P"):
        del words[0]
    sys.stdout.reconfigure(write_through="PYTHONUNBUFFERED" in os.environ)
    how, *words = words if words[0] in ("-m", "-c") else ["", *words]
    sys.argv = words
    begin("" if how else str(Path(words[0]).resolve().parent), installed)
    del sys.path[:safe]
    if how == "-m":
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    elif how == "-c":
        module = sys.modules["__main__"] = types.ModuleType("__main__")
        sys.argv = ["-c", *words[1:]]
        exec(words[0], vars(module))
    else:
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    _, address, *words = sys.argv
    if address == "ask":
        address, *words = words
        os.environ["CLOSED"] = " ".join(map(str, closed()))
        sys.exit(ask(address, words, [0, 1, 2]))
    words = serve(address, words)
    code = 0
    try:
        if words:
            main(words)
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        code = end.code or 0
    # All that a process does when it ends, but for taking apart, object by
    # object, what it has imported: that takes 0.3 s.
    threading._shutdown()
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError):  # the other way says it
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
        os._exit(code & 255)
    sys.exit(code)
