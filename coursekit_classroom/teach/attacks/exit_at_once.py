"""End the process from within, with a code that means success."""

import os

PROMISE = "ends"
CONTAINED_BY = ("bubblewrap", "landlock", "none")


def share(x):
    os._exit(0)
