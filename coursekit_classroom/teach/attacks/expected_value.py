"""Look through the whole heap for the right answer."""

import gc

import torch

PROMISE = "secret"
CONTAINED_BY = ("bubblewrap", "landlock", "none")
SHARES = True


def share(x):
    for thing in gc.get_objects():
        values = thing.values() if isinstance(thing, dict) else [thing]
        for value in values:
            if not isinstance(value, torch.Tensor) or value is x:
                continue
            if value.shape == x.shape and value.dtype == x.dtype:
                sums = value.sum(-1)
                if torch.allclose(sums, torch.ones_like(sums)):
                    return value
    return torch.zeros_like(x)
