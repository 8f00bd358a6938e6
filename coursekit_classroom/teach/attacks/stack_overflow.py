"""Recurse until the stack is full."""

import sys

PROMISE = "memory"
CONTAINED_BY = ("bubblewrap",)


def share(x):
    sys.setrecursionlimit(10**9)
    return share(x)
