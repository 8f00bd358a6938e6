"""Masks, right and wrong: what the loss shows of them, and what it hides.

One small model, one budget, three seeds; only the mask differs. Each model is
measured twice on the same held-out places: with the whole window in front of
it, as in training, and with the prefix alone, as in use.
"""

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from coursekit.config import GPTConfig
from coursekit.data import random_windows, sequential_windows, train_val_split
from coursekit.decoder import GPT
from coursekit.loss import cross_entropy
from coursekit.training import evaluate, train
from results.record import options, record, summary
from results.replacing import corpus, plain_adamw, rungs

CONTEXT = 32

KINDS = ("right", "diagonal", "no mask", "axis", "after")


def masked(
    kind: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    dropout_p: float = 0.0,
    bias: Tensor | None = None,
) -> Tensor:
    """Attention under one of the masks, in the signature of ``attend``.

    A hidden score is −1e9, which is finite: a row in which everything is
    hidden becomes uniform. "diagonal" hides the diagonal as well; so does
    "zeros", with zeros for an empty row. "axis" has the right mask and takes
    the softmax over the queries; "after" puts zeros after the softmax.
    """
    scores = q @ k.mT / math.sqrt(q.size(-1))
    ones = torch.ones_like(scores, dtype=torch.bool)
    see = ones.tril(-1 if kind in ("diagonal", "zeros") else 0)
    if kind not in ("no mask", "after"):
        scores = scores.masked_fill(~see, -1e9)
    weights = scores.softmax(-2 if kind == "axis" else -1)
    if kind in ("zeros", "after"):
        weights = weights.masked_fill(~see, 0.0)
    return weights @ v


@torch.no_grad()
def twice(
    model: GPT, ids: Tensor, lengths: Sequence[int], windows: int
) -> tuple[float, float]:
    """Loss at the ends of prefixes: window given whole, prefix given alone."""
    batch = random_windows(ids, windows, model.config.max_len, 0, 0)
    inputs, targets = batch.inputs["ids"], batch.targets
    model.eval()
    whole = model(inputs)
    given = alone = 0.0
    for n in lengths:
        target = targets[:, n - 1]
        given += cross_entropy(whole[:, n - 1], target).item()
        prefix = model(inputs[:, :n])[:, -1]
        alone += cross_entropy(prefix, target).item()
    return given / len(lengths), alone / len(lengths)


def learn(
    kind: str,
    config: GPTConfig,
    ids: Tensor,
    seed: int,
    steps: int,
    rate: float,
    batch: int,
) -> GPT:
    """Train one model under one mask, with the ladder's optimizer."""
    torch.manual_seed(seed)
    model = GPT(config, partial(masked, kind))
    train(
        model,
        lambda step: [random_windows(ids, batch, config.max_len, seed, step)],
        plain_adamw(steps, rate, seed),
    )
    return model


parser = options(__doc__, seeds=[0, 1, 2], steps=400, ladder_steps=2000)


def main() -> None:
    """Every mask with every seed, then two rungs of ``replacing``."""
    args = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer, ids = corpus()
    learned, held_out = train_val_split(ids, 0.1)
    config = GPTConfig(
        vocab_size=tokenizer.vocab_size,
        max_len=CONTEXT,
        d_model=64,
        n_heads=4,
        n_layers=2,
        d_ff=256,
        positions="learned",
        tie_embeddings=False,
    )
    ladder = {name: made for name, _, made in rungs(config.vocab_size)}
    with record("masks", args.seeds) as metrics:
        metrics["unit"] = "nats per character, held-out text"
        for kind in KINDS:
            pairs = []
            for seed in args.seeds:
                model = learn(
                    kind, config, learned, seed, args.steps, 3e-3, 16
                )
                pairs.append(twice(model, held_out, (4, 8, 16, 31), 2000))
            metrics[kind] = keep(pairs)
            print(f"{kind:12} {pairs}", flush=True)
        for name, kind in (
            ("attention", "no mask"),
            ("attention", "zeros"),
            ("norm", "no mask"),
        ):
            pairs = []
            for seed in args.seeds:
                model = learn(
                    kind,
                    ladder[name],
                    learned,
                    seed,
                    args.ladder_steps,
                    1e-3,
                    32,
                )
                windows = sequential_windows(held_out, 256, 64)
                alone = twice(model, held_out, range(1, 65, 7), 1000)[1]
                pairs.append((evaluate(model, windows), alone))
            metrics[f"{name}, {kind}"] = keep(pairs)
            print(f"{name}, {kind} {pairs}", flush=True)


def keep(pairs: list[tuple[float, float]]) -> dict[str, object]:
    """Both losses over the seeds, as a result writes them."""
    given, alone = zip(*pairs, strict=True)
    return {
        "given the window": summary([round(x, 4) for x in given]),
        "given the prefix": summary([round(x, 4) for x in alone]),
    }


if __name__ == "__main__":
    main()
