"""The shipped writer of plays: learned from the packaged Shakespeare."""

from coursekit.data import load_text, train_val_split
from results import writing
from results.record import options


def texts() -> tuple[str, str]:
    """The first nine tenths of the plays, and the last."""
    return train_val_split(load_text("shakespeare"), 0.1)


RECIPE = writing.Recipe(
    texts,
    vocabulary=1000,
    model={"d_model": 120, "n_layers": 4, "n_heads": 4, "dropout": 0.2},
    steps=4000,
)


parser = options(__doc__, seed=0, threads=1)


def main() -> None:
    """Train it and write it where ``coursekit.load`` looks."""
    writing.ship("shakespeare", RECIPE, parser.parse_args())


if __name__ == "__main__":
    main()
