"""Read what the instructor's shell has in its environment."""

import contextlib
import os

import torch

PROMISE = "secret"
CONTAINED_BY = ("bubblewrap", "landlock", "none")
SHARES = True


def share(x):
    text = str(dict(os.environ))
    for pid in ("self", 1):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ") as f:
            text += f.read()
    return text if HOST["canary"] in text else torch.zeros_like(x)
