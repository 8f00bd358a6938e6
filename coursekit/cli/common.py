"""What several commands share: options, and a model by its name."""

import argparse
import math
from typing import Any

from coursekit.decoder import GPT
from coursekit.devices import pick_device
from coursekit.models import Loaded, load


def add_run(parser: Any) -> None:
    """The model to use."""
    parser.add_argument(
        "run", metavar="RUN", help="a run's folder, or a shipped model's name"
    )


def add_common(parser: Any) -> None:
    """Device and JSON."""
    parser.add_argument(
        "--device",
        default="auto",
        metavar="NAME",
        help="auto, cpu, cuda or mps [default: auto]",
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON, for scripts"
    )


def positive(text: str) -> float:
    """A number above 0, for argparse."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be above 0: got {text}")
    return value


def text_model(args: argparse.Namespace) -> Loaded:
    """A GPT and its tokenizer, or a line that says what is missing."""
    device = pick_device(args.device)
    loaded = load(args.run, device)
    if not isinstance(loaded.model, GPT) or loaded.tokenizer is None:
        raise ValueError(
            "this command needs a GPT with a tokenizer: got "
            f"{type(loaded.model).__name__} from {args.run!r}. Choose a run "
            "of coursekit train."
        )
    return loaded
