"""Use up the CPU time of one sandbox after another."""

PROMISE = "ends"
CONTAINED_BY = ("bubblewrap", "landlock", "none")
EXERCISE = "masks/is_causal"


def is_causal(*args):
    while True:
        pass
