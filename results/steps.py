"""Loss of the book's file after a short training: the range for `step`.

`coursekit step` trains a learner's model for a minute at most.  Where the
ladder's 2,000 steps take longer, it compares with these 300, at a higher
learning rate, at which each new part already makes a difference.
"""

import torch

from results import ladder
from results.record import options, record

STEPS = 300
RATES = {"bigram": ladder.TABLE_RATE, "depth": 5e-3}
RATE = 1e-2  # of all other rungs


parser = options(__doc__, seeds=[*range(5)])


def main() -> None:
    """Train every rung with every seed."""
    args = parser.parse_args()
    torch.set_num_threads(1)
    text = ladder.characters()
    with record("steps", args.seeds) as metrics:
        metrics["unit"] = "nats per character, whole held-out tenth"
        metrics["steps"] = STEPS
        metrics["baselines"] = ladder.without_training(text)
        metrics["rungs"] = []
        for name, _, chapter in ladder.RUNGS:
            rate = RATES.get(name, RATE)
            rung = ladder.measure(chapter, text, args.seeds, STEPS, rate=rate)
            metrics["rungs"].append({"name": name, "rate": rate, **rung})
            print(f"{name:12} {rung['loss']['values']}", flush=True)
        pairs = ladder.measure(1, ladder.tokens(), args.seeds, STEPS)
        metrics["tokens"] = {"rate": ladder.TABLE_RATE, **pairs}
        print(f"bigram on tokens {pairs['loss']['values']}", flush=True)


if __name__ == "__main__":
    main()
