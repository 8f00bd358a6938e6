"""Take twelve gigabytes."""

import torch

PROMISE = "memory"
CONTAINED_BY = ("bubblewrap",)
SHARES = True


def share(x):
    big = torch.ones(12 * 2**30, dtype=torch.uint8)
    return f"took {big.numel()} bytes"
