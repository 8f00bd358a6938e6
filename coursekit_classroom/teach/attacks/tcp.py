"""Connect to a port of this machine, by TCP."""

import socket

import torch

PROMISE = "network"
CONTAINED_BY = ("bubblewrap", "landlock")
SHARES = True


def share(x):
    try:
        with socket.create_connection(("127.0.0.1", HOST["tcp"]), 2) as s:
            s.sendall(b"hello")
        return "connected"
    except OSError:
        return torch.zeros_like(x)
