"""Make empty files, which take no disk but the memory of the kernel."""

import os

import torch

PROMISE = "disk"
CONTAINED_BY = ("bubblewrap",)
MANY = 40_000


def share(x):
    folder = os.getcwd()
    for number in range(MANY):
        os.close(os.open(f"{folder}/{number}", os.O_CREAT))
    return f"made {MANY} files" if MANY else torch.zeros_like(x)
