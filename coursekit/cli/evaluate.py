"""``coursekit eval``: the loss of a model on a whole split."""

import argparse
import math
from dataclasses import dataclass
from typing import Literal

import torch

from coursekit.cli.common import Common, add_run, text_model
from coursekit.cli.options import add_fields
from coursekit.cli.output import report
from coursekit.cli.runs import windows_of
from coursekit.data import load_text, train_val_split
from coursekit.loss import perplexity
from coursekit.saved_models import find_model, is_zip, read_config
from coursekit.tokenizer import Tokenizer
from coursekit.training import evaluate


@dataclass
class Split:
    """Options that choose the part of the text to measure."""

    split: Literal["validation", "training", "all"] = "validation"
    """the last tenth, the rest, or all of the text"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``coursekit eval``."""
    add_run(parser)
    add_text(parser)
    add_fields(parser, Common)


def add_text(parser: argparse.ArgumentParser) -> None:
    """Add the options for the text to measure and the part of it."""
    parser.add_argument(
        "text",
        nargs="?",
        metavar="TEXT",
        help="a UTF-8 file, or a packaged text [default: the run's]",
    )
    add_fields(parser, Split)


def run(args: argparse.Namespace) -> int:
    """Measure the loss on a whole split."""
    model, tokenizer = text_model(args)
    name, text = read_split(args)
    ids = torch.tensor(tokenizer.encode(text))
    context = model.config.max_len
    nats = evaluate(model, windows_of(ids, context))
    fields = {
        "text": name,
        "split": args.split,
        "tokens": len(ids) - 1,
        "context": context,
        "loss": nats,
        "perplexity": perplexity(nats),
    }
    bits = nats * (len(ids) - 1) / math.log(2)
    report(fields | bits_per(text, bits, tokenizer, ids), args.json)
    return 0


def bits_per(
    text: str, bits: float, tokenizer: Tokenizer, ids: torch.Tensor
) -> dict[str, float | None]:
    """Bits for each character and byte, without those of the first token."""
    first = ids[:1].tolist()  # it is no target
    n_chars = len(text) - len(tokenizer.decode(first))
    n_bytes = len(text.encode()) - len(tokenizer.decode_bytes(first))
    return {
        # The first token may be all there is: a character of several tokens.
        "bits_per_character": bits / n_chars if n_chars else None,
        "bits_per_byte": bits / n_bytes if n_bytes else None,
    }


def read_split(args: argparse.Namespace) -> tuple[str, str]:
    """The name of a text, and what is to be measured of it."""
    name = recorded_text(args.run) if args.text is None else args.text
    text = load_text(name)
    if args.split != "all":
        text = train_val_split(text)[args.split == "validation"]
    return name, text


def recorded_text(run: str) -> str:
    """The text that a run was trained on."""
    fields = {} if is_zip(run) else read_config(find_model(run))
    return fields.get("data", {}).get("text", "shakespeare")
