"""A small scaling law: models from narrow to wide, and one held back.

Two blocks, always the same text, as many tokens for each; only the width
grows.  The learning rate follows a rule, 0.1 / √D, which is tried at half
and at twice its value for each model that the law is fitted on.  The widest
model is trained last: the law has to say its loss without having seen it.

A look at the middle of a schedule shows what a run that has not finished is
worth: less than a finished one of half the length.
"""

from typing import Any

import torch

from coursekit.config import GPTConfig, TrainConfig
from coursekit.data import random_windows, sequential_windows, train_val_split
from coursekit.decoder import GPT
from coursekit.training import evaluate, train
from results.record import options, record, summary
from results.replacing import corpus

CONTEXT, BATCH, WARMUP = 32, 32, 50
WIDTHS = [8, 16, 24, 32, 48, 64]
HELD_BACK = 128
MIDDLE = 32  # the width whose schedule is looked at half way


class Text:
    """The text, and one run on it."""

    def __init__(self) -> None:
        self.tokenizer, ids = corpus()
        self.learned, held_out = train_val_split(ids, 0.1)
        self.held_out = list(sequential_windows(held_out, 256, CONTEXT))

    def run(
        self, width: int, seed: int, steps: int, factor: float = 1.0
    ) -> tuple[GPT, list[tuple[int, float]]]:
        """Train one model; it, and its held-out loss half way and after."""
        torch.manual_seed(seed)
        config = GPTConfig(
            vocab_size=self.tokenizer.vocab_size,
            max_len=CONTEXT,
            d_model=width,
            n_heads=width // 8,
            n_layers=2,
        )
        budget = TrainConfig(
            steps=steps,
            learning_rate=factor * 0.1 / width**0.5,
            warmup_steps=WARMUP,
            min_lr_ratio=0.0,
            seed=seed,
        )
        model, looks = GPT(config), []

        def look(progress: Any) -> None:
            if progress.step in (steps // 2, steps):
                nats = evaluate(model, self.held_out)
                looks.append((progress.step, round(nats, 4)))

        train(
            model,
            lambda step: [
                random_windows(self.learned, BATCH, CONTEXT, seed, step)
            ],
            budget,
            callbacks=[look],
            progress=False,
        )
        return model, looks


def size(model: GPT) -> dict[str, int]:
    """The weights of the blocks, and all of them."""
    blocks = sum(p.numel() for p in model.blocks.parameters())
    return {
        "blocks": blocks,
        "parameters": sum(p.numel() for p in model.parameters()),
    }


parser = options(__doc__, seeds=[0, 1, 2], steps=800)


def main() -> None:
    """Train every size with every seed, and the held-back one last."""
    args = parser.parse_args()
    torch.set_num_threads(1)
    text = Text()
    with record("scaling", args.seeds) as metrics:
        metrics["unit"] = "nats per character, whole validation split"
        metrics["tokens"] = args.steps * BATCH * CONTEXT
        metrics["held back"] = HELD_BACK
        metrics["runs"], metrics["rates"] = [], []
        for width in [*WIDTHS, HELD_BACK]:
            losses = []
            for seed in args.seeds:
                model, looks = text.run(width, seed, args.steps)
                losses.append(looks[-1][1])
            row = {"width": width, **size(model), "loss": summary(losses)}
            metrics["runs"].append(row)
            print(row, flush=True)
        for width in WIDTHS:  # is the rule's rate a good one?
            found = {"width": width}
            for factor in (0.5, 2.0):
                _, looks = text.run(width, args.seeds[0], args.steps, factor)
                found[f"{factor:g} times"] = looks[-1][1]
            metrics["rates"].append(found)
            print(found, flush=True)
        half, whole = [], []
        for seed in args.seeds:
            _, looks = text.run(MIDDLE, seed, args.steps)
            half.append(looks[0][1])
            _, looks = text.run(MIDDLE, seed, args.steps // 2)
            whole.append(looks[-1][1])
        metrics["middle"] = {
            "width": MIDDLE,
            "half of a schedule": summary(half),
            "a schedule of half the length": summary(whole),
        }


if __name__ == "__main__":
    main()
