"""``coursekit eval``: the loss of a model on a whole split."""

import argparse
import math
from pathlib import Path

import torch

from coursekit.cli.common import add_common, add_run, text_model
from coursekit.cli.output import report
from coursekit.cli.runs import windows_of
from coursekit.data import load_text, train_val_split
from coursekit.loss import perplexity
from coursekit.models import read_config
from coursekit.training import evaluate


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``coursekit eval``."""
    add_run(parser)
    parser.add_argument(
        "text",
        nargs="?",
        metavar="TEXT",
        help="a UTF-8 file, or a packaged text [default: the run's]",
    )
    parser.add_argument(
        "--split",
        choices=("validation", "training", "all"),
        default="validation",
        help="the last tenth, the rest, or all of the text "
        "[default: validation]",
    )
    add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Measure the loss on a whole split."""
    model, tokenizer = text_model(args)
    name = recorded_text(args.run) if args.text is None else args.text
    text = load_text(name)
    if args.split != "all":
        text = train_val_split(text)[args.split == "validation"]
    ids = torch.tensor(tokenizer.encode(text))
    context = model.config.max_len
    nats = evaluate(model, windows_of(ids, context))
    # The first token is no target.
    first = ids[:1].tolist()
    bits = nats * (len(ids) - 1) / math.log(2)
    n_chars = len(text) - len(tokenizer.decode(first))
    n_bytes = len(text.encode()) - len(tokenizer.decode_bytes(first))
    fields = {
        "text": str(name),
        "split": args.split,
        "tokens": len(ids) - 1,
        "context": context,
        "loss": nats,
        "perplexity": perplexity(nats),
        # The first token may be all there is: a character of several tokens.
        "bits_per_character": bits / n_chars if n_chars else None,
        "bits_per_byte": bits / n_bytes if n_bytes else None,
    }
    report(fields, args.json)
    return 0


def recorded_text(run: str) -> str:
    """The text that a run was trained on."""
    folder = Path(run)
    fields = read_config(folder) if folder.is_dir() else {}
    return fields.get("data", {}).get("text", "shakespeare")
