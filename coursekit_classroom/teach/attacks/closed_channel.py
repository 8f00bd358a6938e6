"""Close every file descriptor, and wait."""

import os
import time

PROMISE = "ends"
CONTAINED_BY = ("bubblewrap", "landlock", "none")


def share(x):
    os.closerange(0, 256)
    time.sleep(1000)
