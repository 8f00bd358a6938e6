"""Loss of the book's finished file after a short training.

The band of `coursekit step` from chapter 11 on, where the file trains with a
schedule of its own, and of `coursekit capstone`.  The 2,000 steps of the
file's own script are in `results/minimal.json`.
"""

import torch

from results import ladder
from results.record import options, record
from results.steps import STEPS

parser = options(__doc__, seeds=[*range(10)], steps=STEPS)


def main() -> None:
    """Train the file with every seed."""
    args = parser.parse_args()
    torch.set_num_threads(1)
    with record("capstone", args.seeds) as metrics:
        text = ladder.characters()
        metrics["unit"] = "nats per character, whole held-out tenth"
        metrics["steps"] = args.steps
        metrics.update(ladder.measure(11, text, args.seeds, args.steps))
        print(metrics["loss"]["values"])


if __name__ == "__main__":
    main()
