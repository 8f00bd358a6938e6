"""Sleep, which costs no CPU time."""

import time

PROMISE = "ends"
CONTAINED_BY = ("bubblewrap", "landlock", "none")


def share(x):
    while True:
        time.sleep(1000)
