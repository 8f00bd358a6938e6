"""Which half of the rung did it: the residual path, or the norm?

The fifth rung of :mod:`results.replacing` adds both at once.  Here each is
added alone, with the ladder's text, budget and seeds, to the rung before it:
one layer, four heads, no feed-forward network.  A third case leaves the last
norm out, so that the norm stands in front of attention and nowhere else.
"""

from dataclasses import replace

import torch

from results.record import options, record, summary
from results.replacing import climb, corpus, rungs

NORM = {"norm": "layernorm", "final_norm": True}
CASES = [
    ("norm", "norm alone", NORM),
    ("residual", "residual alone", {"residual": True}),
    ("inner", "norm before attention alone", {"norm": "layernorm"}),
]


parser = options(__doc__, seeds=[0, 1, 2], steps=2000)


def main() -> None:
    """Train each case with each seed."""
    args = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer, ids = corpus()
    heads = {name: c for name, _, c in rungs(tokenizer.vocab_size)}["heads"]
    with record("residual_or_norm", args.seeds) as metrics:
        metrics["unit"] = "nats per character, whole validation split"
        for name, label, changes in CASES:
            config = replace(heads, **changes)
            losses = [
                round(climb(config, ids, seed, args.steps)[1], 4)
                for seed in args.seeds
            ]
            metrics[name] = {"label": label, "loss": summary(losses)}
            print(f"{name:10} {losses}", flush=True)


if __name__ == "__main__":
    main()
