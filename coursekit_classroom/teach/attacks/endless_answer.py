"""Answer a tensor of a trillion numbers that takes eight bytes."""

PROMISE = "ends"
CONTAINED_BY = ("bubblewrap", "landlock", "none")
SHARES = True


def share(x):
    return x.new_zeros(1).expand(10**6, 10**6)
