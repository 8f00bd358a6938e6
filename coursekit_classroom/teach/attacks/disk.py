"""Fill the disk, with one file and with many."""

import contextlib
import os

import torch

PROMISE = "disk"
CONTAINED_BY = ("bubblewrap",)
SHARES = True


def share(x):
    folders = ("/dev/shm", "/", "/child", "/dev", os.getcwd(), "/tmp")
    written = 0
    for folder in dict.fromkeys(map(os.path.realpath, folders)):
        for number in range(20):
            with contextlib.suppress(OSError):
                path = f"{folder}/fill{number}"
                with open(path, "xb", buffering=0) as file:
                    while True:
                        written += file.write(bytes(2**20))
    if written > HOST["disk"]:
        return f"wrote {written} bytes"
    return torch.zeros_like(x)
