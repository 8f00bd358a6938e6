"""Ask for a name, whose letters could carry anything out."""

import socket

import torch

PROMISE = "network"
CONTAINED_BY = ("bubblewrap", "landlock")
SHARES = True


def share(x):
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.connect(("192.0.2.1", 53))  # a route is enough: nothing is sent
        return "there is a route to a name server"
    except OSError:
        pass
    try:
        return str(socket.getaddrinfo("example.org", 80))
    except OSError:
        return torch.zeros_like(x)
