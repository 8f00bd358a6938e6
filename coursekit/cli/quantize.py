"""``coursekit quantize``: what a model loses in fewer bits."""

import argparse
from dataclasses import dataclass

import torch

from coursekit.cli.common import Common, add_run, text_model
from coursekit.cli.evaluate import add_text, read_split
from coursekit.cli.options import add_fields
from coursekit.cli.output import report
from coursekit.cli.runs import windows_of
from coursekit.quantize import quantized_bytes, quantized_copy
from coursekit.training import evaluate
from coursekit.weights import own_weights


@dataclass
class Rounding:
    """Options of rounding the weights."""

    bits: int = 4
    """of each weight, 2 to 8"""
    group_size: int | None = None
    """neighbors that share a step, a divisor of each row [default: a row]"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``coursekit quantize``."""
    add_run(parser)
    add_fields(parser, Rounding)
    add_text(parser)
    add_fields(parser, Common)


def run(args: argparse.Namespace) -> int:
    """Round a model's weights, and measure its loss before and after."""
    model, tokenizer = text_model(args)
    rounding = args.bits, args.group_size
    rounded = quantized_copy(model, *rounding)
    name, text = read_split(args)
    windows = windows_of(
        torch.tensor(tokenizer.encode(text)), model.config.max_len
    )
    before, after = (evaluate(m, windows) for m in (model, rounded))
    fields = {
        "text": name,
        "split": args.split,
        "bits": args.bits,
        "group_size": args.group_size,
        "bytes_before": sum(w.nbytes for w in own_weights(model).values()),
        "bytes": quantized_bytes(model, *rounding),
        "loss_before": before,
        "loss": after,
        "added": after - before,
    }
    report(fields, args.json)
    return 0
