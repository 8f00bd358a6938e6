"""Stop this process, so that every sandbox waits for its end."""

import os
import signal

PROMISE = "ends"
CONTAINED_BY = ("bubblewrap", "landlock", "none")
EXERCISE = "masks/is_causal"


def is_causal(*args):
    os.kill(os.getpid(), signal.SIGSTOP)
