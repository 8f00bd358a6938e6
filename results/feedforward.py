"""Chapter 8's model without its nonlinearity, and with fewer hidden units.

Both are edits of the reader's file as it is after chapter 8. Text, steps and
seeds are the ladder's, so that the losses compare with its rungs.
"""

import torch

from results.ladder import Edits, characters, climb
from results.record import options, record, summary

CHAPTER = 8
VARIANTS: dict[str, Edits] = {
    "no nonlinearity": [
        ("nn.functional.gelu(self.hidden(x))", "self.hidden(x)")
    ],
    "64 hidden units": [
        ("nn.Linear(d_model, 4 * d_model", "nn.Linear(d_model, d_model"),
        ("nn.Linear(4 * d_model, d_model", "nn.Linear(d_model, d_model"),
    ],
}

parser = options(__doc__, seeds=[0, 1, 2], steps=2000)


def main() -> None:
    """Train both variants with every seed."""
    args = parser.parse_args()
    torch.set_num_threads(1)
    corpus = characters()
    with record("feedforward", args.seeds) as metrics:
        metrics["unit"] = "nats per character, whole validation split"
        metrics["losses"] = {}
        for name, edits in VARIANTS.items():
            losses = [
                round(climb(CHAPTER, corpus, seed, args.steps, edits)[2], 4)
                for seed in args.seeds
            ]
            metrics["losses"][name] = summary(losses)
            print(f"{name:22} {losses}", flush=True)


if __name__ == "__main__":
    main()
