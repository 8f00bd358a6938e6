"""Programs that start at once: forks of a process that has imported much.

Most of the time of a small book's build goes to imports.  The server of
:mod:`multiprocessing` imports once what these programs import, and computes
nothing; a program is a fork of it, with its own folder, environment and
output.
"""

import atexit
import contextlib
import functools
import importlib
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "sphinx_ext"))
import kernels

IMPORTED = [
    *("jupyter_book.cli.main", "jupyter_book.sphinx", "jupyter_cache"),
    *("sphinx.builders.html", "sphinx.ext.autodoc", "sphinx_book_theme"),
    *("sphinx_design", "sphinxcontrib.bibtex", "myst_nb.sphinx_ext"),
    *("fontTools.subset", "matplotlib.pyplot", "torch"),
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
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    with tempfile.NamedTemporaryFile("r", encoding="utf8") as output:
        process = context.Process(
            target=become, args=(command, str(cwd), dict(env), output.name)
        )
        process.start()
        process.join()
        return subprocess.CompletedProcess(
            command, process.exitcode, output.read()
        )


def become(command, folder, environment, output):
    """Be the program; its last exception or its exit is multiprocessing's."""
    descriptor = os.open(output, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    first = str(Path(command[0]).resolve().parent)
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [first, *filter(None, paths), *INSTALLED]
    sys.modules.pop("sitecustomize", None)
    with contextlib.suppress(ImportError):  # as a new Python does
        importlib.import_module("sitecustomize")
    sys.argv = command
    runpy.run_path(command[0], run_name="__main__")
