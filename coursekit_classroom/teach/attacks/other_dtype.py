"""Answer whole numbers, into which the right ones are rounded."""

import torch

PROMISE = "score"
CONTAINED_BY = ("bubblewrap", "landlock", "none")
SHARES = True


def share(x):
    return torch.softmax(x, -1).long()
