"""Send a datagram to a port of this machine."""

import socket

import torch

PROMISE = "network"
CONTAINED_BY = ("bubblewrap", "landlock")
SHARES = True


def share(x):
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.sendto(b"hello", ("127.0.0.1", HOST["udp"]))
    except OSError:
        pass
    return torch.zeros_like(x)
