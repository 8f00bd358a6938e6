"""Leave message queues and semaphores, which belong to no process."""

import ctypes
import sys

import torch

PROMISE = "outside"
CONTAINED_BY = ("bubblewrap", "landlock")
SHARES = True


def share(x):
    if sys.platform != "linux":
        return torch.zeros_like(x)
    libc = ctypes.CDLL(None, use_errno=True)
    queue, semaphores = libc.msgget(0, 0o600), libc.semget(0, 1, 0o600)
    if queue >= 0:
        libc.msgctl(queue, 0, None)  # it is given back
    if semaphores >= 0:
        libc.semctl(semaphores, 0, 0)
    got = [n for n, id in (("queue", queue), ("set", semaphores)) if id >= 0]
    return ", ".join(got) or torch.zeros_like(x)
