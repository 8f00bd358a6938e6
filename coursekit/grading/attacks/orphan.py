"""Leave a process behind: two forks and a session of its own."""

import os
import time

import torch

PROMISE = "outside"
CONTAINED_BY = ("bubblewrap", "landlock")


def share(x):
    try:
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(60)
            os._exit(0)
    except OSError:
        pass
    return torch.zeros_like(x)
