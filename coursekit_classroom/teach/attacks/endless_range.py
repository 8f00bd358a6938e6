"""Have the grader's own C++ count to 2**53, where no signal is handled."""

PROMISE = "ends"
CONTAINED_BY = ("bubblewrap", "landlock", "none")
EXERCISE = "masks/is_causal"


def is_causal(model, vocab_size, length):
    return model(range(2**53))
