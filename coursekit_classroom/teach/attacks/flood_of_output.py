"""Print 100 megabytes."""

import sys

import torch

PROMISE = "ends"
CONTAINED_BY = ("bubblewrap", "landlock", "none")
SHARES = True


def share(x):
    if not hasattr(sys, "flooded"):
        for _ in range(100):
            print("x" * 2**20)
        sys.flooded = True
    return torch.zeros_like(x)
