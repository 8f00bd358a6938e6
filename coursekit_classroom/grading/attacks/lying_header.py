"""Declare another dtype, shape and length than what is sent."""

import gc
import json
import os
import struct

PROMISE = "score"
CONTAINED_BY = ("bubblewrap", "landlock", "none")


def channel():
    """The grader's own object, found in the heap."""
    for thing in gc.get_objects():
        if type(thing).__name__ == "Channel":
            return thing
    return None


def share(x):
    parent = channel()
    tensor = ["tensor", "float64", [2**30, 2**30], [0, 0], False]
    tree = ["dict", [["value", tensor], ["args", ["tuple", []]]]]
    header = json.dumps(tree).encode()
    head = struct.pack("<4s16sIQ", b"CKF1", parent.nonce, len(header), 8)
    os.write(parent.answers, head + header + bytes(8))
