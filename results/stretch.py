"""RoPE beyond the trained length, mended without any training.

The models of :mod:`results.lengths` that have RoPE: trained in windows of 32
characters, then read windows of 256 in different ways.
"""

import torch

from coursekit.data import train_val_split
from coursekit.decoder import GPT
from coursekit.masks import window_mask
from coursekit.positions import Rotary
from results.lengths import BIN, LONG, RANGES, SHORT, by_position, learn
from results.record import options, record, summary
from results.replacing import corpus

FACTOR = LONG // SHORT
WAYS = ["as it is", "window", "squeezed", "slower base"]


def squeezed(model: GPT, factor: float) -> None:
    """Divide all positions, so that the last becomes one that was trained."""
    size, layout = model.config.head_size, model.config.position_layout
    rotary = Rotary(LONG, size, layout)
    angles = torch.atan2(rotary.sin, rotary.cos)  # of one step: row 1
    steps = torch.arange(LONG)[:, None] / factor
    rotary.cos, rotary.sin = (
        (steps * angles[1]).cos(),
        (steps * angles[1]).sin(),
    )
    model.positions = rotary


def slower(model: GPT, factor: float) -> None:
    """A larger base: slow pairs are squeezed, fast ones hardly at all."""
    size, layout = model.config.head_size, model.config.position_layout
    base = 10000.0 * factor ** (size / (size - 2))
    model.positions = Rotary(LONG, size, layout, base)


def read(model: GPT, ids: torch.Tensor, way: str) -> torch.Tensor:
    """Loss at each position, read in one of these ways."""
    usual, mask = model.positions, None
    if way == "window":
        mask = window_mask(SHORT, LONG)
    elif way == "squeezed":
        squeezed(model, FACTOR)
    elif way == "slower base":
        slower(model, FACTOR)
    nats = by_position(model, ids, mask)
    model.positions = usual
    return nats


parser = options(__doc__, seeds=[0, 1, 2], steps=500)


def main() -> None:
    """Train with every seed, and read in every way."""
    args = parser.parse_args()
    torch.set_num_threads(1)
    learned, held_out = train_val_split(corpus()[1], 0.1)
    with record("stretch", args.seeds) as metrics:
        metrics["unit"] = "nats per character, whole validation split"
        metrics["trained_length"], metrics["factor"] = SHORT, FACTOR
        metrics["bin"], metrics["ranges"] = BIN, RANGES
        runs = []
        for seed in args.seeds:
            model = learn("rope", SHORT, learned, seed, args.steps)
            found = [read(model, held_out, way) for way in WAYS]
            runs.append(torch.stack(found))
        metrics["ways"] = {}
        for way, nats in zip(WAYS, torch.stack(runs, 1), strict=True):
            metrics["ways"][way] = {
                "by_range": [
                    summary(
                        [round(n, 4) for n in nats[:, a:b].mean(1).tolist()]
                    )
                    for a, b in RANGES
                ],
                "by_bin": [
                    [round(n, 3) for n in run]
                    for run in nats.view(len(nats), -1, BIN).mean(-1).tolist()
                ],
            }
            means = [nats[:, a:b].mean().item() for a, b in RANGES]
            print(f"{way:16} {[round(n, 3) for n in means]}", flush=True)


if __name__ == "__main__":
    main()
