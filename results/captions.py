"""The shipped writer of captions: learned from Multi30k's English sides."""

from coursekit.data import load_pairs
from results import writing
from results.record import options


def texts() -> tuple[str, str]:
    """Captions, a line each: to learn, and held out."""
    learned, held_out = (
        "\n".join(english.strip() for _, english in load_pairs(*part)) + "\n"
        for part in (
            ("multi30k", "de", "en", "train"),
            ("multi30k", "de", "en", "val"),
        )
    )
    return learned, held_out


RECIPE = writing.Recipe(
    texts,
    vocabulary=4000,
    model={"d_model": 96, "n_layers": 4, "n_heads": 4, "dropout": 0.2},
    steps=2500,
    context=64,
)


parser = options(__doc__, seed=0, threads=1)


def main() -> None:
    """Train it and write it where ``coursekit.load`` looks."""
    writing.ship("captions", RECIPE, parser.parse_args())


if __name__ == "__main__":
    main()
