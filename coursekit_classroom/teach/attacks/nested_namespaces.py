"""Become root in a name space of its own, and mount something."""

import ctypes
import os

import torch

PROMISE = "outside"
CONTAINED_BY = ("bubblewrap", "landlock")
SHARES = True


def share(x):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x10000000) == 0:  # CLONE_NEWUSER
        return "a user name space of its own"
    if libc.unshare(0x00020000) == 0:  # CLONE_NEWNS
        return "a mount name space of its own"
    if libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) == 0:
        return "a mount"
    try:
        os.setuid(0)
        if os.getuid() == 0 and HOST["uid"] != 0:
            return "root"
    except OSError:
        pass
    return torch.zeros_like(x)
