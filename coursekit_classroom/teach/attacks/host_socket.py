"""Speak to a service of this machine through its socket in a file."""

import socket

import torch

PROMISE = "network"
CONTAINED_BY = ("bubblewrap", "landlock")
SHARES = True


def share(x):
    for address in (HOST["socket"], "\0" + HOST["abstract"]):
        try:
            with socket.socket(socket.AF_UNIX) as s:
                s.connect(address)
            return f"connected to {address!r}"
        except OSError:
            pass
    return torch.zeros_like(x)
