"""Beyond the trained length: five ways to give a model positions.

The same small GPT learns the same text in windows of 32 characters, and is
then asked to predict in windows of 256.  The loss by position shows what
happens where no training position was.  The control has the sinusoidal codes
too, but learned in windows of 256, as many characters a step.
"""

import torch

from coursekit.config import GPTConfig, TrainConfig
from coursekit.data import random_windows, sequential_windows, train_val_split
from coursekit.decoder import GPT
from coursekit.loss import cross_entropy
from coursekit.training import train
from results.record import options, record, summary
from results.replacing import corpus

SHORT, LONG, TOKENS = 32, 256, 1024  # TOKENS a step

SCHEMES = {
    "sinusoidal": ("sinusoidal", SHORT),
    "learned": ("learned", SHORT),
    "rope": ("rope", SHORT),
    "none": ("none", SHORT),
    "alibi": ("alibi", SHORT),
    "sinusoidal, trained at 256": ("sinusoidal", LONG),
}
RANGES = [(16, 32), (32, 64), (64, 128), (128, 256)]
BIN = 8


def learn(
    positions: str, length: int, ids: torch.Tensor, seed: int, steps: int
) -> GPT:
    """Train one model in windows of ``length``."""
    torch.manual_seed(seed)
    model = GPT(
        GPTConfig(
            vocab_size=int(ids.max()) + 1,
            max_len=LONG,
            d_model=64,
            n_heads=4,
            n_layers=2,
            positions=positions,
            scale_embedding=True,
        )
    )
    batch_size = TOKENS // length
    train(
        model,
        lambda step: [random_windows(ids, batch_size, length, seed, step)],
        TrainConfig(
            steps=steps, learning_rate=3e-3, warmup_steps=50, seed=seed
        ),
        progress=False,
    )
    return model


def by_position(
    model: GPT, ids: torch.Tensor, mask: torch.Tensor | None = None
) -> torch.Tensor:
    """Mean loss at each of the 256 positions, over the whole split."""
    model.eval()
    nats = []
    with torch.inference_mode():
        for batch in sequential_windows(ids, 64, LONG):
            full = (batch.targets >= 0).all(1)  # the last window may lack
            logits = model(batch.inputs["ids"][full], mask=mask)
            targets = batch.targets[full]
            losses = cross_entropy(logits, targets, reduction="none")
            nats.append(losses.view(targets.shape))
    return torch.cat(nats).double().mean(0)


parser = options(__doc__, seeds=[0, 1, 2], steps=500)


def main() -> None:
    """Train every scheme with every seed, and read the loss by position."""
    args = parser.parse_args()
    torch.set_num_threads(1)
    learned, held_out = train_val_split(corpus()[1], 0.1)
    with record("lengths", args.seeds) as metrics:
        metrics["unit"] = "nats per character, whole validation split"
        metrics["trained_length"] = SHORT
        metrics["bin"] = BIN
        metrics["ranges"] = RANGES
        metrics["schemes"] = {}
        for name, (positions, length) in SCHEMES.items():
            runs = torch.stack(
                [
                    by_position(
                        learn(positions, length, learned, seed, args.steps),
                        held_out,
                    )
                    for seed in args.seeds
                ]
            )
            bins = runs.view(len(runs), -1, BIN).mean(-1)
            metrics["schemes"][name] = {
                "by_range": [
                    summary(
                        [round(n, 4) for n in runs[:, a:b].mean(1).tolist()]
                    )
                    for a, b in RANGES
                ],
                "by_bin": [
                    [round(n, 3) for n in run] for run in bins.tolist()
                ],
            }
            means = [runs[:, a:b].mean().item() for a, b in RANGES]
            print(f"{name:28} {[round(n, 3) for n in means]}", flush=True)


if __name__ == "__main__":
    main()
