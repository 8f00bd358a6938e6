"""What several commands share: options, and a model by its name."""

import argparse
from dataclasses import dataclass
from typing import Annotated, Any

from coursekit.decoder import GPT
from coursekit.devices import pick_device
from coursekit.models import Loaded, load


def add_run(parser: Any) -> None:
    """The model to use."""
    parser.add_argument(
        "run", metavar="RUN", help="a run's folder, or a shipped model's name"
    )


@dataclass
class Common:
    """Options that end the list of each command."""

    device: Annotated[str, "NAME"] = "auto"
    """auto, cpu, cuda or mps"""
    json: bool = False
    """print JSON, for scripts"""


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
