"""Options and loading of models that several commands share."""

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from coursekit.cli.output import FULL
from coursekit.decoder import GPT
from coursekit.devices import pick_device
from coursekit.files import locked
from coursekit.saved_models import Loaded, check_folder, load
from coursekit.weights import SaveError, saving


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


@contextmanager
def run_folder(out: str) -> Iterator[None]:
    """Keep the folder that --out names for this process; make it if missing.

    Raises:
        ValueError: there can be no such folder, or another process has it.
        SaveError: there is no room.
    """
    folder = check_folder(out)
    with ExitStack() as stack:
        try:
            with saving(folder):
                stack.enter_context(locked(folder))
        except SaveError as error:
            reason = error.__cause__
            if isinstance(reason, OSError) and reason.errno not in FULL:
                raise ValueError(
                    "--out must name a folder that can be made: got "
                    f"{folder} ({reason.strerror}). Choose another."
                ) from error
            raise
        yield


def check_empty(out: str) -> None:
    """Refuse a folder that has files.

    Raises:
        ValueError: if there are any.
    """
    if any(Path(out).iterdir()):
        raise ValueError(
            f"a new run needs an empty folder: got {out}, which has files. "
            "Choose another --out, or add --resume to go on with a run of "
            "coursekit train."
        )


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
