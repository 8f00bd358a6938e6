"""Programs that start at once: forks of a process that has imported much.

Most of the time of a small book's build, or of a short command, goes to
imports.  A server imports once what such programs import, and computes
nothing; a program is a fork of it, with its own folder, environment and
streams, and ends as a new process does.  Server and requests are those of
the kernels (``sphinx_ext/kernels.py``).  Whoever asks is a client: :func:`run`
here, or a script that a shell starts (:func:`command`), which passes its
streams on and ends with the program's exit code.
"""

import atexit
import contextlib
import functools
import importlib
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path.append(str(HERE.parent.parent / "sphinx_ext"))
import kernels  # noqa: E402

SPHINX = [
    *("jupyter_book.cli.main", "jupyter_book.sphinx", "jupyter_cache"),
    *("sphinx.builders.html", "sphinx.ext.autodoc", "sphinx_book_theme"),
    *("sphinx_design", "sphinxcontrib.bibtex", "myst_nb.sphinx_ext"),
    *("fontTools.subset", "matplotlib.pyplot", "torch"),
]
COURSEKIT = [
    *("coursekit.cli.train", "coursekit.cli.generate", "torch"),
    *("coursekit.cli.translate", "coursekit.classroom.grading.grade"),
    *("coursekit.classroom.grading.assign", "coursekit.classroom.yourfile"),
    "torch._dynamo",  # the first optimizer imports it
]
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
    folder = tempfile.TemporaryDirectory()
    address = str(Path(folder.name, "socket"))
    process = subprocess.Popen(
        [sys.executable, HERE, address, *modules],
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


@functools.cache
def command():
    """A folder with `coursekit`, which starts as a fork; for a PATH."""
    if sys.platform != "linux":
        return str(Path(sys.executable).parent)
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    words = ["exec", sys.executable, "-S", HERE, "ask", server(*COURSEKIT)]
    path = Path(folder.name, "coursekit")
    path.write_text(f'#!/bin/sh\n{" ".join(map(str, words))} "$@"\n')
    path.chmod(0o755)
    return folder.name


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
        _, status = os.waitpid(program, 0)
        code = os.waitstatus_to_exitcode(status)
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
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    first = str(Path(words[0]).resolve().parent)
    sys.path[:] = [first, *filter(None, paths), *INSTALLED]
    for name in ("kernels", "sitecustomize"):  # the program has its own
        sys.modules.pop(name, None)
    with contextlib.suppress(ImportError):  # as a new Python does
        importlib.import_module("sitecustomize")
    runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    _, address, *words = sys.argv
    if address == "ask":
        address, *words = words
        os.environ["CLOSED"] = " ".join(map(str, closed()))
        sys.exit(ask(address, ["coursekit", *words], [0, 1, 2]))
    words = serve(address, words)
    if words:
        main(words)
