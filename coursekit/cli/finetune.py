"""``coursekit finetune``: a trained model learns to answer."""

import argparse
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch

from coursekit.checks import check_length
from coursekit.cli.common import (
    Common,
    add_run,
    check_empty,
    run_folder,
    text_model,
)
from coursekit.cli.options import add_fields
from coursekit.cli.output import report
from coursekit.config import TrainConfig
from coursekit.data import Batch, Pair
from coursekit.saved_models import save_model
from coursekit.tokenizer import Tokenizer
from coursekit.training import evaluate, train
from coursekit.tuning import (
    add_lora,
    answer_batch,
    encode_pair,
    merge_lora,
    read_pairs,
)

HELD_OUT = 10  # every tenth pair is not trained on


@dataclass
class Tuning:
    """Options of fine-tuning."""

    out: Annotated[str, "RUN"]
    """folder for the tuned model"""
    rank: int = 4
    """train updates of that rank, and merge them; 0: all parameters"""
    steps: int = 150
    """updates of the weights"""
    batch_size: int = 16
    """pairs in a batch"""
    learning_rate: float = 5e-3
    """highest learning rate; with --rank 0 try a fifth"""
    seed: int = 0
    """fixes batches and updates"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``coursekit finetune``."""
    add_run(parser)
    parser.add_argument(
        "pairs",
        metavar="PAIRS",
        help="a file: in each line a prompt, a tab and its answer",
    )
    add_fields(parser, Tuning)
    add_fields(parser, Common)


def run(args: argparse.Namespace) -> int:
    """Tune a model on prompts with their answers, and write it to a folder."""
    with run_folder(args.out):
        check_empty(args.out)
        return tune(args)


def encoded(name: str, tokenizer: Tokenizer, max_len: int) -> list[Pair]:
    """The pairs of a file as ids, or the line that can't be learned.

    Raises:
        ValueError: if a pair is too long for the model, or has a character
            that it does not know.
    """
    pairs = []
    for n, pair in enumerate(read_pairs(name), 1):
        try:
            prompt, answer = encode_pair(tokenizer, *pair)
            check_length(len(prompt) + len(answer) - 1, max_len)
        except ValueError as error:
            raise ValueError(f"line {n} of {name}: {error}") from error
        pairs.append((prompt, answer))
    return pairs


def tune(args: argparse.Namespace) -> int:
    """Tune a model, and write it to an empty folder."""
    model, tokenizer = text_model(args)
    pairs = encoded(args.pairs, tokenizer, model.config.max_len)
    held_out, learned = pairs[::HELD_OUT], pairs[:]
    del learned[::HELD_OUT]
    if not learned:
        raise ValueError(
            "tuning needs two pairs at least, one of them held out: got "
            f"{len(pairs)} in {args.pairs}. Add lines."
        )

    def batch(step: int) -> list[Batch]:
        chosen = random.Random(f"{args.seed} {step}")
        rows = chosen.choices(learned, k=args.batch_size)
        return [answer_batch(rows, 0)]

    config = TrainConfig(
        steps=args.steps,
        batch_size=args.batch_size,
        learning_rate=args.learning_rate,
        warmup_steps=args.steps // 10,
        weight_decay=0.0,
        seed=args.seed,
    )
    unseen = [answer_batch(held_out, 0)]
    before = evaluate(model, unseen)
    if args.rank:
        torch.manual_seed(args.seed)
        add_lora(model, args.rank)
    n_trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    train(model, batch, config, progress=False if args.json else None)
    fields = {
        "trained_parameters": n_trained,
        "loss_before": before,
        "loss_after": evaluate(model, unseen),
        "folder": str(Path(args.out)),
    }
    save_model(args.out, merge_lora(model), tokenizer)
    report(fields, args.json)
    return 0
