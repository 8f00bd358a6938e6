"""Threads without end."""

import threading
import time

import torch

PROMISE = "processes"
CONTAINED_BY = ("bubblewrap",)


def share(x):
    threading.stack_size(2**16)
    started = 0
    try:
        while started < 20 * HOST["processes"]:
            threading.Thread(target=time.sleep, args=(9,)).start()
            started += 1
    except RuntimeError:
        return torch.zeros_like(x)
    time.sleep(2)
    return f"started {started} threads"
