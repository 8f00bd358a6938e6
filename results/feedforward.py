"""The feed-forward rung without its nonlinearity, and with less width.

The rung of :mod:`results.replacing`, where residual and norm are there
already.  Text, budget and seeds are the ladder's; only the network differs.
"""

from dataclasses import replace

import torch
from torch import nn

from coursekit.decoder import GPT
from results.record import options, record, summary
from results.replacing import climb, corpus, rungs


def straighten(model: GPT) -> None:
    """Take the activation away: two linear maps in a row remain."""
    for block in model.blocks:
        block.feed_forward.activation = nn.Identity()


VARIANTS = {  # d_ff, and what changes before training
    "no bend": (256, straighten),
    "as wide as the stream": (64, lambda model: None),
}


parser = options(__doc__, seeds=[0, 1, 2], steps=2000)


def main() -> None:
    """Train both controls with every seed."""
    args = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer, ids = corpus()
    made = {name: config for name, _, config in rungs(tokenizer.vocab_size)}
    with record("feedforward", args.seeds) as metrics:
        metrics["unit"] = "nats per character, whole validation split"
        metrics["losses"] = {}
        for name, (d_ff, change) in VARIANTS.items():
            config = replace(made["feedforward"], d_ff=d_ff)
            losses = [
                round(climb(config, ids, seed, args.steps, change)[1], 4)
                for seed in args.seeds
            ]
            metrics["losses"][name] = summary(losses)
            print(f"{name:22} {losses}", flush=True)


if __name__ == "__main__":
    main()
