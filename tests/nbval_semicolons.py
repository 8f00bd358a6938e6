"""A plugin for nbval: a last ``;`` hides a cell's output, as everywhere else.

nbval runs the cells without history, and IPython looks in the history for
the ``;``; so each figure's cell would print an object that the page does not
show.
"""

from nbval.kernel import RunningKernel


def execute_cell_input(self, cell_input, allow_stdin=None):
    """Run a cell as nbval does, and let IPython remember it."""
    return self.kc.execute(
        cell_input,
        store_history=True,
        allow_stdin=allow_stdin,
        stop_on_error=False,
    )


RunningKernel.execute_cell_input = execute_cell_input
