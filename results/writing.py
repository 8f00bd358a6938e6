"""Training of the shipped writers: two small GPTs, of captions and plays.

They are for the live figures and for looking inside.  Texts are cut into
byte-pair tokens and learned with dropout in random windows; the mean of the
last states is rounded to int8, measured and shipped.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from coursekit.config import GPTConfig, TrainConfig
from coursekit.data import (
    random_windows,
    sequential_windows,
)
from coursekit.decoder import GPT
from coursekit.saved_models import save_model
from coursekit.tokenizer import BPETokenizer
from coursekit.training import Progress, evaluate, train
from coursekit.weights import (
    average_weights,
    own_weights,
    put_weights,
    round_weights,
)
from results.record import ROOT, record

MODELS = ROOT / "coursekit" / "assets" / "models"
KEPT, OF = 8, 50  # states that are averaged, of 50 along the run


@dataclass(frozen=True)
class Recipe:
    """Data and settings of one writer."""

    texts: Callable[[], tuple[str, str]]
    vocabulary: int
    model: dict[str, Any]
    steps: int
    batch: int = 48
    context: int = 128
    learning_rate: float = 3e-3


def make_writer(
    recipe: Recipe, seed: int, report: bool = False
) -> tuple[GPT, BPETokenizer, dict[str, Any]]:
    """Train one, round it, and measure it on the text that was held out."""
    learned, held_out = recipe.texts()
    tokenizer = BPETokenizer.train(learned, recipe.vocabulary)
    ids, held_out_ids = (
        torch.tensor(tokenizer.encode(text)) for text in (learned, held_out)
    )
    fields: dict[str, Any] = {"max_len": 256, "positions": "rope"}
    fields |= recipe.model
    torch.manual_seed(seed)
    model = GPT(
        GPTConfig(
            vocab_size=tokenizer.vocab_size,
            **fields,
        )
    )
    windows = list(sequential_windows(held_out_ids, 128, recipe.context))
    budget = TrainConfig(
        steps=recipe.steps,
        learning_rate=recipe.learning_rate,
        min_lr_ratio=0.02,
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
        progress=False,
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


def ship(name: str, recipe: Recipe, args: argparse.Namespace) -> None:
    """Train one and write it where ``coursekit.load`` looks."""
    torch.set_num_threads(args.threads)
    folder = MODELS / name
    with record(name, [args.seed], [folder / "model.safetensors"]) as metrics:
        model, tokenizer, found = make_writer(recipe, args.seed, report=True)
        metrics |= found
        save_model(folder, model, tokenizer, int8=True)
