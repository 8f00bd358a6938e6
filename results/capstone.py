"""Loss of the book's finished file after a short training.

The band of `coursekit step` from chapter 11 on, where the file trains with a
schedule of its own, and of `coursekit capstone`.  The 2,000 steps of the
file's own script are in `results/minimal.json`.
"""

import argparse

import torch

from results import ladder
from results.record import record
from results.steps import STEPS


def parser() -> argparse.ArgumentParser:
    """The options of the command that a result names."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, nargs="+", default=[*range(10)])
    options.add_argument("--steps", type=int, default=STEPS)
    return options


def main() -> None:
    """Train the file with every seed."""
    args = parser().parse_args()
    torch.set_num_threads(1)
    with record("capstone", args.seeds) as metrics:
        text = ladder.characters()
        metrics["unit"] = "nats per character, whole held-out tenth"
        metrics["steps"] = args.steps
        metrics.update(ladder.measure(11, text, args.seeds, args.steps))
        print(metrics["loss"]["values"])


if __name__ == "__main__":
    main()
