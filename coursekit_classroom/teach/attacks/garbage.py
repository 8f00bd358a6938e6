"""Write noise to every open file descriptor."""

import contextlib
import os

import torch

PROMISE = "score"
CONTAINED_BY = ("bubblewrap", "landlock", "none")


def share(x):
    for fd in range(3, 64):
        with contextlib.suppress(OSError):
            os.write(fd, b"\x00\xff garbage \r\n" * 100)
    return torch.zeros_like(x)
