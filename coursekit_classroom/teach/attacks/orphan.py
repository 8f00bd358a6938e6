"""Leave a process behind: two forks and a session of its own."""

import contextlib
import os
import time

import torch

PROMISE = "outside"
CONTAINED_BY = ("bubblewrap", "landlock")


def share(x):
    with contextlib.suppress(OSError):
        first = os.fork()
        if first == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(60)
            os._exit(0)
        os.waitpid(first, 0)
    return torch.zeros_like(x)
