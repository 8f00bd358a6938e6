"""Answer a list within a list within a list, a million deep."""

PROMISE = "ends"
CONTAINED_BY = ("bubblewrap", "landlock", "none")
SHARES = True


def share(x):
    inner = []
    for _ in range(1_000_000):
        inner = [inner]
    return inner
