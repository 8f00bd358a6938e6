"""The best learning rate of narrow and wide models.

Two blocks, three widths, the same text and number of steps.  Usually all
weights have one rate.  The control gives each kind of weight the rate and the
first size that the maximal update parametrization gives it (yang2022tensor,
table 3), counted from the narrowest model, which is the same in both ways.
"""

from typing import Any

import torch

from coursekit.config import GPTConfig, TrainConfig
from coursekit.data import random_windows, sequential_windows, train_val_split
from coursekit.decoder import GPT
from coursekit.training import TrainState, evaluate, train
from results.record import options, record, summary
from results.replacing import corpus

CONTEXT, BATCH, WARMUP = 32, 16, 20
WIDTHS = (8, 24, 72)
EXPONENTS = range(-9, -2)  # of 2, the rates
HELD_OUT = 12_289  # characters


class ScaledAdamW(torch.optim.AdamW):
    """AdamW in which each group multiplies the rate by its factor."""

    def step(self, closure: Any = None) -> Any:
        """Update all weights."""
        for group in self.param_groups:
            group["lr"] *= group["factor"]
        return super().step(closure)


def optimizer(model: GPT, by_width: bool) -> ScaledAdamW:
    """AdamW with one rate, or with the rates and first sizes of the rule.

    Matrices that read the residual stream: their rate falls as 1 / width.
    The unembedding starts smaller, too; the embedding as in a narrow model.
    """
    factor = WIDTHS[0] / model.config.d_model if by_width else 1.0
    head, embedding = model.head, model.embedding.weight
    assert head is not None
    with torch.no_grad():
        head.weight *= factor**0.5
        embedding /= factor**0.5
    matrices = [p for p in model.blocks.parameters() if p.dim() > 1]
    reading = [*matrices, head.weight]
    known = {id(p) for p in reading}
    rest = [p for p in model.parameters() if id(p) not in known]
    groups = [
        {"params": reading, "factor": factor},
        {"params": rest, "factor": 1.0},
    ]
    return ScaledAdamW(groups, betas=(0.9, 0.95), weight_decay=0.0)


class Text:
    """The text, and one run on it."""

    def __init__(self) -> None:
        self.tokenizer, ids = corpus()
        self.learned, held_out = train_val_split(ids, 0.1)
        windows = sequential_windows(held_out[:HELD_OUT], 256, CONTEXT)
        self.held_out = list(windows)

    def run(
        self, width: int, rate: float, by_width: bool, seed: int, steps: int
    ) -> float:
        """Held-out nats per character of one model, after training."""
        torch.manual_seed(seed)
        config = GPTConfig(
            vocab_size=self.tokenizer.vocab_size,
            max_len=CONTEXT,
            d_model=width,
            n_heads=width // 8,
            n_layers=2,
            tie_embeddings=False,
        )
        model = GPT(config)
        train(
            model,
            lambda step: [
                random_windows(self.learned, BATCH, CONTEXT, seed, step)
            ],
            TrainConfig(
                steps=steps,
                learning_rate=rate,
                warmup_steps=WARMUP,
                min_lr_ratio=0.0,
                seed=seed,
            ),
            state=TrainState(optimizer(model, by_width)),
            progress=False,
        )
        return round(evaluate(model, self.held_out), 4)


parser = options(__doc__, seeds=[0, 1, 2], steps=120)


def main() -> None:
    """Train every width at every rate, in both ways."""
    args = parser.parse_args()
    torch.set_num_threads(1)
    text = Text()
    with record("width", args.seeds) as metrics:
        metrics["unit"] = "nats per held-out character"
        metrics["rates"] = [2.0**e for e in EXPONENTS]
        metrics["runs"] = []
        for by_width, width in [
            (False, WIDTHS[0]),
            *((way, w) for w in WIDTHS[1:] for way in (False, True)),
        ]:
            losses = [
                [
                    text.run(width, rate, by_width, seed, args.steps)
                    for rate in metrics["rates"]
                ]
                for seed in args.seeds
            ]
            best = [row.index(min(row)) for row in losses]
            row = {
                "width": width,
                "by width": by_width,
                "loss": [
                    summary(of_rate) for of_rate in zip(*losses, strict=True)
                ],
                "best": [metrics["rates"][i] for i in best],
            }
            metrics["runs"].append(row)
            print(row, flush=True)


if __name__ == "__main__":
    main()
