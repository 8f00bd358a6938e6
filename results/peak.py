"""The schedule of chapter 11 with three times its learning rate.

The finished model with the ladder's text and steps.  A peak of 1e-3 is in
`results/minimal.json`, a constant rate of 1e-3 in `results/ladder.json`.
"""

from concurrent.futures import ProcessPoolExecutor

import torch

from results import ladder
from results.record import options, record, summary

CHAPTER, PEAK = 11, 3e-3

parser = options(__doc__, seeds=[0, 1, 2], steps=2000)


def measure(seed: int, steps: int) -> float:
    """The held-out loss of one run."""
    torch.set_num_threads(1)
    edits = [("peak=1e-3", f"peak={PEAK}")]
    text = ladder.characters()
    return round(ladder.climb(CHAPTER, text, seed, steps, edits)[2], 4)


def main() -> None:
    """Train with every seed, each in its own process."""
    args = parser.parse_args()
    torch.set_num_threads(1)
    with record("peak", args.seeds) as metrics, ProcessPoolExecutor(3) as pool:
        metrics["unit"] = "nats per character, whole held-out tenth"
        metrics["peak"] = PEAK
        losses = pool.map(measure, args.seeds, [args.steps] * len(args.seeds))
        metrics["loss"] = summary([*losses])
        print(metrics["loss"])


if __name__ == "__main__":
    main()
