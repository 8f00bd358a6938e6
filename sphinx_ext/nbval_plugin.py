"""A plugin for nbval: a notebook that never ran gets its outputs.

nbval runs a notebook's cells and compares what they give with what is there.
Where nothing is there yet, this plugin writes it, unless a cell fails: that is
how `notebooks.py` runs the chapters.  The longest chapters begin, and their
kernels are forks of one process (`kernels.py`).
"""

import contextlib
import json
import os
import sys
from pathlib import Path
from uuid import uuid4

import kernels
import nbformat
import nbval.kernel
import nbval.plugin
import pytest
from jupyter_client.manager import KernelManager
from nbval.kernel import RunningKernel
from traitlets import default

SECONDS = Path(__file__).parent.parent / "results" / "chapters.json"
OUTPUTS = ("stream", "display_data", "execute_result", "error")


class FileManager(KernelManager):
    """Reaches its kernel by files; two workers may guess the same port."""

    @default("transport")
    def _by_files(self):
        return "ipc"

    @default("ip")
    def _files(self):
        return str(Path(os.environ["JUPYTER_PATH"], uuid4().hex))


if sys.platform == "linux":
    nbval.kernel.KernelManager = FileManager


class Kernel(RunningKernel):
    """A kernel that keeps the outputs of a cell, in their order."""

    asked = None  # the request to run the cell

    def execute_cell_input(self, cell_input, allow_stdin=None):
        """Run a cell.

        IPython looks in the history for the ``;`` that hides a value.
        """
        self.outputs, self.count = [], None
        self.asked = self.kc.execute(
            cell_input,
            store_history=True,
            allow_stdin=allow_stdin,
            stop_on_error=False,
        )
        return self.asked

    def get_message(self, stream, timeout=None):
        """Wait for a message; keep it if it is an output of the cell."""
        message = super().get_message(stream, timeout)
        if message["msg_type"] == "kernel_info_reply":
            self.language_info = message["content"]["language_info"]
        if message["parent_header"].get("msg_id") == self.asked:
            if message["msg_type"] == "execute_input":
                self.count = message["content"]["execution_count"]
            if message["msg_type"] in OUTPUTS:
                self.outputs.append(nbformat.v4.output_from_msg(message))
        return message


nbval.plugin.RunningKernel = Kernel


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Keep the outputs of a cell that never ran."""
    yield  # raises if the cell fails
    if item.cell.execution_count is None:
        kernel = item.parent.kernel
        item.cell.outputs = kernel.outputs
        item.cell.execution_count = kernel.count


def pytest_runtest_teardown(item, nextitem):
    """Write a notebook after its last cell, if it never ran before."""
    notebook = item.parent
    if nextitem and nextitem.parent is notebook:
        return
    cells = [c for c in notebook.nb.cells if c.cell_type == "code"]
    failed = any(c.source and c.execution_count is None for c in cells)
    before = nbformat.read(notebook.path, as_version=4)
    if not failed and not any(c.get("execution_count") for c in before.cells):
        notebook.nb.metadata.language_info = notebook.kernel.language_info
        nbformat.write(notebook.nb, notebook.path)


def key(path):
    """``further/04_attention``: a chapter and its further page differ."""
    return path.with_suffix("").parts[-2:]


def pytest_collection_modifyitems(items):
    """Sort by the time that a chapter took when it was last measured."""
    pages = {}
    if SECONDS.is_file():
        pages = json.loads(SECONDS.read_text("utf8"))["metrics"]["pages"]
    seconds = {key(Path(page)): p["seconds"] for page, p in pages.items()}
    items.sort(key=lambda item: -seconds.get(key(item.path), 0))


def pytest_configure(config):
    """Let all workers start their kernels from one server."""
    # nbval compares no PNG, so none is encoded, unless the book asks for it.
    os.environ.setdefault("COURSEKIT_FIGURES", "none")
    if not hasattr(config, "workerinput"):
        stack = contextlib.ExitStack()
        stack.enter_context(kernels.ready())
        config.add_cleanup(stack.close)
