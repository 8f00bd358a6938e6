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
    shape = [2**30, 2**30]
    said = {"dtype": "F64", "shape": shape, "data_offsets": [0, 8]}
    header = json.dumps({"0": said}).encode()
    body = struct.pack("<Q", len(header)) + header + bytes(8)
    tensor = {"tensor": [0, "plain", False, shape, [1, 1]]}
    text = json.dumps({"dict": [["value", tensor]]}).encode()
    os.write(parent.answers, struct.pack("<IQ", len(text), len(body)))
    os.write(parent.answers, text + body)
