"""Announce a message of an exabyte, and send no more of it."""

import gc
import os
import struct
import time

PROMISE = "ends"
CONTAINED_BY = ("bubblewrap", "landlock", "none")


def channel():
    """The grader's own object, found in the heap."""
    for thing in gc.get_objects():
        if type(thing).__name__ == "Channel":
            return thing
    return None


def share(x):
    parent = channel()
    head = struct.pack("<IQ", 2**32 - 1, 2**60)
    os.write(parent.answers, head)
    time.sleep(1000)
