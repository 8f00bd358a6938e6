"""A translator in half an hour: German to English on two cores.

All that happens counts: the vocabulary, the cutting of the text, the training.
The recipe is a small sister of the shipped one, for one direction and without
BPE-dropout, which does not pay in so short a time (see results/worth.py).
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from coursekit.config import TrainConfig
from coursekit.translate import Translator
from results.record import options, record
from results.translating import (
    TEST,
    bleu,
    count,
    learn,
    learn_vocabulary,
    make_model,
)

PAIR = ("de", "en")
MAX_TOKENS = 2500


def train_one(
    seed: int,
    steps: int,
    folder: Path,
    bpe_dropout: float = 0.0,
    **changes: Any,
) -> tuple[Translator, dict[str, Any]]:
    """Train one translator; ``changes`` are fields of its configuration."""
    tokenizer = learn_vocabulary(4000)
    fields = {"n_encoder_layers": 2, "n_decoder_layers": 2, "dropout": 0.2}
    model = make_model(tokenizer, seed, **(fields | changes))
    data = {
        "directions": [PAIR],
        "max_tokens": MAX_TOKENS,
        "bpe_dropout": bpe_dropout,
    }
    budget = TrainConfig(
        steps=steps,
        learning_rate=4e-3,
        warmup_steps=min(600, steps // 4),
        min_lr_ratio=0.0,
        weight_decay=0.01,
        beta2=0.98,
        label_smoothing=0.1,
        precision="auto",
        seed=seed,
    )
    spent = learn(model, tokenizer, data, budget, folder)
    return Translator(model, tokenizer), spent | {"parameters": count(model)}


parser = options(__doc__, seed=0, steps=4500, threads=2)


def main() -> None:
    """Train, stop the watch, and count BLEU on validation and test."""
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    began = time.perf_counter()
    with (
        record("half_hour", [args.seed]) as metrics,
        tempfile.TemporaryDirectory() as folder,
    ):
        translator, spent = train_one(args.seed, args.steps, Path(folder))
        minutes = (time.perf_counter() - began) / 60
        metrics |= spent | {"minutes": round(minutes, 1)}
        for part in ("val", TEST):
            metrics[part] = bleu(translator, PAIR, part)


if __name__ == "__main__":
    main()
