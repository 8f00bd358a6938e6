"""Answer a dict whose keys all fall into one slot."""

PROMISE = "ends"
CONTAINED_BY = ("bubblewrap", "landlock", "none")


def share(x):
    import gc
    import json
    import os
    import struct

    parent = next(o for o in gc.get_objects() if type(o).__name__ == "Channel")
    step = 2**61 - 1  # what Python divides by to hash an int
    keys = {"dict": [[n * step, 0] for n in range(1, 12_000)]}
    text = json.dumps({"dict": [["value", keys]]}).encode()
    data = memoryview(struct.pack("<IQ", len(text), 0) + text)
    while data:
        data = data[os.write(parent.answers, data) :]
