"""A plugin for nbval: quick kernels, long chapters first, a last ``;`` hides.

nbval runs the cells without history, and IPython looks in the history for
the ``;``; so each figure's cell would print an object that the page does not
show.  The kernels are forks of one process (`sphinx_ext/kernels.py`).  nbval
compares no PNG, so none is encoded.
"""

import contextlib
import json
import os
import sys
from pathlib import Path

from nbval.kernel import RunningKernel

sys.path.insert(0, str(Path(__file__).parent.parent / "sphinx_ext"))
import kernels

SECONDS = Path(__file__).parent.parent / "results" / "chapters.json"


def execute_cell_input(self, cell_input, allow_stdin=None):
    """Run a cell as nbval does, and let IPython remember it."""
    return self.kc.execute(
        cell_input,
        store_history=True,
        allow_stdin=allow_stdin,
        stop_on_error=False,
    )


RunningKernel.execute_cell_input = execute_cell_input


def key(path):
    """``further/04_attention``: a chapter and its further page differ."""
    return path.with_suffix("").parts[-2:]


def pytest_collection_modifyitems(items):
    """Sort by the time that a chapter took when it was last measured."""
    pages = json.loads(SECONDS.read_text("utf8"))["metrics"]["pages"]
    seconds = {key(Path(page)): p["seconds"] for page, p in pages.items()}
    items.sort(key=lambda item: -seconds.get(key(item.path), 0))


def pytest_configure(config):
    """Let all workers start their kernels from one server."""
    os.environ["COURSEKIT_FIGURES"] = "none"
    if not hasattr(config, "workerinput"):
        stack = contextlib.ExitStack()
        stack.enter_context(kernels.ready())
        config.add_cleanup(stack.close)
