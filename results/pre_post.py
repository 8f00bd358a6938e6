"""Pre-norm and post-norm: both curves, with and without warm-up.

Small GPTs of 2, 6 and 12 blocks on the Shakespeare text, at a learning rate
that is usual for their size and at one that is high.  Post-norm is the
paper's: no norm after the stack.  All else is equal.
"""

import itertools
import statistics

import torch

from coursekit.config import GPTConfig
from coursekit.data import random_windows, sequential_windows, train_val_split
from coursekit.decoder import GPT
from coursekit.training import evaluate, train
from results.record import options, record, summary
from results.replacing import corpus, plain_adamw

CONTEXT, BATCH, EVERY = 32, 8, 10
HELD_OUT = 20_000


def run(
    norm_first: bool,
    warmup: int,
    rate: float,
    depth: int,
    seed: int,
    steps: int,
    texts: tuple[torch.Tensor, torch.Tensor],
    vocab_size: int,
) -> tuple[list[float], float]:
    """Train once; the loss of each stretch of steps, and the last one."""
    learned, held_out = texts
    torch.manual_seed(seed)
    model = GPT(
        GPTConfig(
            vocab_size=vocab_size,
            max_len=CONTEXT,
            d_model=32,
            n_layers=depth,
            norm_first=norm_first,
            final_norm=norm_first,
        )
    )
    state = train(
        model,
        lambda step: [random_windows(learned, BATCH, CONTEXT, seed, step)],
        plain_adamw(steps, rate, seed, warmup),
    )
    curve = [
        statistics.fmean(state.losses[i : i + EVERY])
        for i in range(0, steps, EVERY)
    ]
    windows = sequential_windows(held_out, 256, CONTEXT)
    return curve, evaluate(model, windows)


def letter_frequencies(ids: torch.Tensor) -> float:
    """The loss of knowing how frequent each character is, and no more."""
    share = ids.bincount() / len(ids)
    share = share[share > 0]
    return -(share * share.log()).sum().item()


parser = options(
    __doc__,
    seeds=[0, 1, 2],
    steps=240,
    warmup=80,
    depths=[2, 6, 12],
    rates=[3e-3, 1e-2],
)


def main() -> None:
    """Every combination with every seed."""
    args = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer, ids = corpus()
    learned, held_out = train_val_split(ids, 0.1)
    cells = itertools.product(
        args.rates, args.depths, (True, False), (0, args.warmup)
    )
    with record("pre_post", args.seeds) as metrics:
        metrics["unit"] = "nats per character"
        metrics["rates"], metrics["depths"] = args.rates, args.depths
        metrics["warmup"], metrics["steps"] = args.warmup, args.steps
        metrics["every"] = EVERY
        metrics["letter_frequencies"] = round(letter_frequencies(learned), 4)
        metrics["runs"] = []
        for rate, depth, norm_first, warmup in cells:
            runs = [
                run(
                    norm_first,
                    warmup,
                    rate,
                    depth,
                    seed,
                    args.steps,
                    (learned, held_out[:HELD_OUT]),
                    tokenizer.vocab_size,
                )
                for seed in args.seeds
            ]
            nats = [round(last, 4) for _, last in runs]
            curves = zip(*(curve for curve, _ in runs), strict=True)
            found = {
                "norm": "pre" if norm_first else "post",
                "warmup": warmup > 0,
                "rate": rate,
                "depth": depth,
                "loss": summary(nats),
                "curve": [round(statistics.fmean(c), 3) for c in curves],
            }
            metrics["runs"].append(found)
            where = f"rate {rate} depth {depth} {found['norm']}-norm"
            print(f"{where} warm-up {warmup}: {nats}", flush=True)


if __name__ == "__main__":
    main()
