"""Call sys.exit, in a cell and in the function."""

import sys

PROMISE = "ends"
CONTAINED_BY = ("bubblewrap", "landlock", "none")
SHARES = True


def share(x):
    sys.exit(0)


sys.exit("done")
