"""Read the grader's memory: /proc, ptrace, process_vm_readv."""

import ctypes
import os

import torch

PROMISE = "secret"
CONTAINED_BY = ("bubblewrap", "landlock")
SHARES = True


def share(x):
    libc = ctypes.CDLL(None, use_errno=True)
    for pid in {HOST["pid"], os.getppid()} - {1}:  # 1: the sandbox's own
        for name in ("mem", "maps", "environ", "cmdline"):
            try:
                with open(f"/proc/{pid}/{name}", "rb") as file:
                    return f"opened {file.name}"
            except OSError:
                pass
    if libc.ptrace(16, os.getppid(), 0, 0) == 0:  # attach
        return "attached to its parent"
    word, there = ctypes.c_long(), ctypes.c_void_p(id(x))
    ours = (ctypes.c_void_p * 2)(ctypes.addressof(word), 8)
    theirs = (ctypes.c_void_p * 2)(there.value, 8)
    if libc.process_vm_readv(HOST["pid"], ours, 1, theirs, 1, 0) > 0:
        return "read the grader's memory"
    return torch.zeros_like(x)
