"""How long a test waits, and how it compares what two calls cost.

No test says how fast a machine is: what should be quick is compared with
something else in the same run, and what should come is waited for.
"""

import time
from pathlib import Path

# Seconds until a test gives up on what hangs; nothing here takes minutes.
PATIENCE = 600


def comes(condition):
    """Wait until a condition holds; what it returned last."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.01)
    return found


def alive(pid):
    """Whether a process has not ended (Linux)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except OSError:
        return False
    return state.split()[0] != "Z"


def cpu_seconds(work):
    """The CPU time of one call, to compare with that of another."""
    began = time.process_time()
    work()
    return time.process_time() - began
