"""The shipped writers: one of captions, one of Shakespeare.

Two small GPTs for the live figures and for looking inside.  Texts are cut
into byte-pair tokens, trained on with dropout in random windows; the mean of
the last states is rounded to int8, measured and shipped.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from coursekit.checkpoint import (
    average_weights,
    own_weights,
    put_weights,
    round_weights,
    save_model,
)
from coursekit.config import GPTConfig, TrainConfig
from coursekit.data import (
    load_pairs,
    load_text,
    random_windows,
    sequential_windows,
    split,
)
from coursekit.decoder import GPT
from coursekit.tokenizer import BPETokenizer
from coursekit.training import Progress, evaluate, train
from results.record import ROOT, record

MODELS = ROOT / "coursekit" / "assets" / "models"
KEPT, OF = 8, 50  # states that are averaged, of 50 along the run


def captions() -> tuple[str, str]:
    """Multi30k's English sides, a line each: to learn, and held out."""
    parts = [load_pairs("multi30k", split=part) for part in ("train", "val")]
    learned, held_out = (
        "\n".join(english.strip() for _, english in part) + "\n"
        for part in parts
    )
    return learned, held_out


def shakespeare() -> tuple[str, str]:
    """The packaged plays: the first nine tenths, and the last."""
    return split(load_text("shakespeare"), 0.1)


@dataclass(frozen=True)
class Recipe:
    """What one writer learns, and how."""

    texts: Callable[[], tuple[str, str]]
    vocabulary: int
    model: dict[str, Any]
    steps: int
    batch: int = 48
    context: int = 128
    learning_rate: float = 3e-3


RECIPES = {
    "captions": Recipe(
        captions,
        vocabulary=2000,
        model={"d_model": 112, "n_layers": 4, "n_heads": 4, "dropout": 0.1},
        steps=4000,
        context=64,
    ),
    "shakespeare": Recipe(
        shakespeare,
        vocabulary=500,
        model={"d_model": 128, "n_layers": 4, "n_heads": 4, "dropout": 0.2},
        steps=4000,
    ),
}


def make_writer(
    recipe: Recipe, seed: int, report: bool = False
) -> tuple[GPT, BPETokenizer, dict[str, Any]]:
    """Train one, round it, and measure it on the text that was held out."""
    learned, held_out = recipe.texts()
    tokenizer = BPETokenizer.train(learned, recipe.vocabulary)
    ids, held_out_ids = (
        torch.tensor(tokenizer.encode(text)) for text in (learned, held_out)
    )
    torch.manual_seed(seed)
    model = GPT(
        GPTConfig(
            vocab_size=tokenizer.vocab_size,
            **({"max_len": 256, "positions": "rope"} | recipe.model),
        )
    )
    windows = list(sequential_windows(held_out_ids, 128, recipe.context))
    budget = TrainConfig(
        steps=recipe.steps,
        learning_rate=recipe.learning_rate,
        floor=0.02,
        precision="auto",
        eval_every=500,
        seed=seed,
    )
    late: list[dict[str, torch.Tensor]] = []

    def keep(progress: Progress) -> None:
        if report and progress.validation_loss is not None:
            print(progress.step, progress.loss, progress.validation_loss)
        apart = max(1, progress.steps // OF)
        left = progress.steps - progress.step
        if progress.step % apart == 0 and left < KEPT * apart:
            weights = own_weights(model)
            late.append({n: w.detach().clone() for n, w in weights.items()})

    train(
        model,
        lambda step: [
            random_windows(ids, recipe.batch, recipe.context, seed, step)
        ],
        budget,
        windows if report else None,
        callbacks=[keep],
        bar=False,
    )
    put_weights(model, average_weights(late), "the mean")
    exact = evaluate(model, windows)
    round_weights(model)
    nats = evaluate(model, windows)
    tokens = len(held_out_ids) - 1
    return (
        model,
        tokenizer,
        {
            "parameters": sum(w.numel() for w in own_weights(model).values()),
            "nats_per_token": round(nats, 4),
            "nats_per_token_before_rounding": round(exact, 4),
            "nats_per_character": round(nats * tokens / len(held_out), 4),
            "training_tokens": len(ids),
        },
    )


def parser() -> argparse.ArgumentParser:
    """The options of the command that a result names."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--threads", type=int, default=1)
    return options


def main() -> None:
    """Train both and write them where ``coursekit.load`` looks."""
    args = parser().parse_args()
    torch.set_num_threads(args.threads)
    files: list[Path] = [MODELS / n / "model.safetensors" for n in RECIPES]
    with record("writers", [args.seed], files) as metrics:
        for name, recipe in RECIPES.items():
            model, tokenizer, metrics[name] = make_writer(recipe, args.seed)
            save_model(MODELS / name, model, tokenizer, int8=True)


if __name__ == "__main__":
    main()
