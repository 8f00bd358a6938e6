"""What the cases of each exercise can see: every mistake against every case.

    python -m results.checks

The page on checks shows the matrices; ``tests/test_catalogue.py`` plays the
mistakes anew and compares.
"""

import argparse

import torch

from coursekit.classroom.check import core
from coursekit.classroom.check.matrix import matrix
from results.record import record

SEED = 0  # of the cases: what a reader gets who names no other


def parser():
    """The command has no options."""
    return argparse.ArgumentParser(description=__doc__.split("\n")[0])


def main():
    """Play the mistakes of every exercise that has some."""
    parser().parse_args()
    torch.set_num_threads(1)
    with record("checks", [SEED]) as metrics:
        for chapter in core.chapters():
            for name, exercise in core.exercises(chapter).items():
                if exercise.bugs:
                    id = f"{chapter}/{name}"
                    metrics[id] = matrix(id, SEED).to_dict()


if __name__ == "__main__":
    main()
