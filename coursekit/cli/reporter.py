"""Progress lines while a model trains, and the handling of Ctrl-C."""

import dataclasses
import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

import torch

from coursekit.cli.output import discard_output, note
from coursekit.cli.runs import Run
from coursekit.progress import Bar
from coursekit.tokenizer import Tokenizer
from coursekit.training import Progress


@contextmanager
def until_interrupted() -> Iterator[Callable[[], bool]]:
    """On Ctrl-C, finish the current step before training stops.

    A second Ctrl-C stops at once.
    """
    pressed = []

    def press(*_: object) -> None:
        pressed.append(True)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, press)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


class Reporter:
    """A callback that prints a line for each evaluation.

    The training goes on if the output is lost, as with ``| head -1`` or on
    a full disk: what counts is the run's folder.
    """

    exit_code = 0
    """1 if a line could not be written, though its reader had not gone."""

    def __init__(self, as_json: bool, silent: bool = False) -> None:
        self.as_json = as_json
        self.silent = silent or sys.stdout is None  # None: `train >&-`

    def write(self, line: str) -> None:
        """Print a line, above a progress bar if there is one."""
        try:
            Bar.write(line, file=sys.stdout)
            sys.stdout.flush()
        except OSError as error:
            discard_output()
            self.exit_code = int(not isinstance(error, BrokenPipeError))
            try:
                reason = f"the output is lost ({error.strerror})"
                note(f"{reason}; the training goes on without it")
            except OSError:  # it is the same pipe
                discard_output(sys.stderr)

    def begin(self, run: Run, device: torch.device, step: int) -> None:
        """Say what will be trained on what."""
        if self.as_json or self.silent:
            return
        n = sum(p.numel() for p in run.model.parameters())
        line = (
            f"{n:,} weights on {device}, {run.config.precision}; "
            f"{len(run.learned):,} tokens to learn from, "
            f"{len(run.held_out):,} to check with"
        )
        self.write(line + (f"; from step {step}" if step else ""))

    def __call__(self, progress: Progress) -> None:
        """Print an evaluation."""
        if progress.validation_loss is None or self.silent:
            return
        if self.as_json:
            fields = {"event": "evaluation"} | dataclasses.asdict(progress)
            self.write(json.dumps(fields))
            return
        self.write(
            f"step {progress.step:>6}   training {progress.loss:.3f}   "
            f"validation {progress.validation_loss:.4f}   "
            f"{progress.tokens_per_second:,.0f} tokens/s"
        )

    def end(
        self, folder: Path, step: int, best: float | None, tokenizer: Tokenizer
    ) -> None:
        """Say how it went, and what comes next."""
        if self.silent:
            return
        if self.as_json:
            fields = {"event": "end", "run": str(folder), "step": step}
            self.write(json.dumps(fields | {"best_validation_loss": best}))
            return
        loss = "none yet" if best is None else f"{best:.4f} nats a token"
        self.write(f"{step} steps; lowest validation loss: {loss}")
        prompt = ' --prompt "The "' * tokenizer.can_encode("The ")
        self.write(f"next: coursekit generate {quote(str(folder))}{prompt}")
