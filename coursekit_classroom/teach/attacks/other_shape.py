"""Answer a shape that broadcasts against the right one."""

import torch

PROMISE = "score"
CONTAINED_BY = ("bubblewrap", "landlock", "none")
SHARES = True


def share(x):
    return torch.softmax(x, -1)[None]
