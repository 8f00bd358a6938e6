"""What ``coursekit step`` runs in a process of its own.

    python -m coursekit.classroom.yourfile.child FILE CHAPTER SECONDS OUTCOME

prints what it finds and writes the outcome as JSON.
"""

import importlib.util
import inspect
import json
import math
import os
import sys
import textwrap
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread, main_thread
from typing import Any

import torch
from torch import nn

from coursekit.classroom.lesson import LAST_CHAPTER
from coursekit.classroom.yourfile import STEPS, book
from coursekit.classroom.yourfile.bands import (
    LADDER_STEPS,
    Reference,
    columns,
    compare,
    references,
)
from coursekit.classroom.yourfile.contracts import due
from coursekit.classroom.yourfile.learner import (
    ContractError,
    File,
    Sizes,
)
from coursekit.data import load_text

LIMIT = 30.0  # seconds of work for one contract
PROMPT = "ROMEO:\n"
SIZES = Sizes(context=64, d_model=64, n_heads=4, n_blocks=4)


def where(
    path: Path, frames: traceback.StackSummary | None, part: object
) -> str:
    """The last line of the learner's file that was run, or a part's first."""
    for frame in reversed(frames or ()):
        if frame.filename == str(path):
            return f"{path.name}, line {frame.lineno}: `{frame.line}`"
    try:
        lines, first = inspect.getsourcelines(part)  # type: ignore[arg-type]
    except (OSError, TypeError):
        return path.name
    return f"{path.name}, line {first}: `{lines[0].strip()}`"


def failure(title: str, sentence: str, place: str) -> str:
    """What is printed where a contract does not hold."""
    indent = " " * 4
    sentence = textwrap.fill(
        sentence, 77, initial_indent=indent, subsequent_indent=indent
    )
    return f"✗ {title}\n{sentence}\n{indent}{place}"


@contextmanager
def guarded(
    path: Path, title: str, seconds: float, part: object = None
) -> Iterator[None]:
    """Turn each error of the learner's code, and a hang, into a failure."""
    thread, done = main_thread().ident or 0, Event()
    began, worked = time.monotonic(), time.process_time()

    def watch() -> None:
        while not done.wait(0.2):
            busy = time.process_time() - worked  # another program's is not
            if busy < seconds and time.monotonic() - began < 10 * seconds:
                continue
            frames = traceback.extract_stack(sys._current_frames()[thread])
            sentence = (
                f"it ends within {seconds:.0f} seconds: got no end. Look for "
                "a loop that does not stop, or for work that is done again "
                "and again."
            )
            place = where(path, frames, part)
            print(failure(title, sentence, place), flush=True)
            os._exit(1)

    Thread(target=watch, daemon=True).start()
    try:
        yield
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        place, kind = where(path, frames, part), type(error).__name__
        sentence = (
            f"it runs without an error: got {kind}: {error}. Begin at the "
            "line below."
        )
        if isinstance(error, SyntaxError):
            line = (error.text or "").strip()
            place = f"{path.name}, line {error.lineno}: `{line}`"
        elif isinstance(error, NotImplementedError):
            sentence = "its lines are still to be written."
        elif isinstance(error, ContractError):
            sentence, place = str(error), where(path, None, part)
        raise ContractError(failure(title, sentence, place)) from error
    finally:
        done.set()


def load(path: Path, at: int | None = None) -> File:
    """Run the learner's file, and see which of its names is which part.

    Raises:
        ContractError: if the file does not run, or does not say.
    """
    name = f"learner_{path.stem}"  # a file math.py is not the module math
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where `inspect` looks for its lines
    sys.path.insert(0, str(path.parent))
    with guarded(path, "File: runs from its first line to its last", LIMIT):
        spec.loader.exec_module(module)
        parts = getattr(module, "parts", None)
        chapter = getattr(module, "chapter", None) if at is None else at
        if not isinstance(parts, dict):
            raise ContractError(
                "the file ends with the dictionary `parts`, which says what "
                f"your names are: got {type(parts).__name__}. Copy it from a "
                "file that `coursekit start` writes."
            )
        if not isinstance(chapter, int) or not 0 <= chapter <= LAST_CHAPTER:
            raise ContractError(
                "`chapter` says how far the file has come, from 0 to "
                f"{LAST_CHAPTER}: got {chapter!r}. Set it, or give --at."
            )
    return File(chapter, parts)


def verify(path: Path, file: File) -> Iterator[str]:
    """Check every contract up to the file's chapter; a line for each.

    Raises:
        ContractError: at the first that does not hold.
    """
    parts = set(book(file.chapter).values())
    for _, check, part in due(file.chapter, parts):
        title = (inspect.getdoc(check) or "").rstrip(".")
        torch.manual_seed(0)
        with guarded(path, title, LIMIT, file.parts.get(part)):
            note = check(file)
        yield f"✓ {title}" + (f"\n    {note}" if note else "")


def train(
    path: Path, file: File, seconds: float, characters: int | None = None
) -> tuple[bool, float]:
    """Train the learner's model, print its loss and sample.

    Args:
        path: of the learner's file.
        file: what it holds.
        seconds: how long it may train; one step is the least.
        characters: how much of the text is used; None is all.

    Returns:
        Whether the loss is as expected, and the loss.

    Raises:
        ContractError: if the model fails on the real text, or takes too long.
    """
    text = load_text("shakespeare")[:characters]
    with guarded(path, "Tokenizer: the whole text", 3 * LIMIT):
        if file.chapter == 1:
            print("Learning tokens from the whole text.", flush=True)
        tokenizer = file.tokenizer(text)
        ids = torch.tensor(tokenizer.encode(text))
        cut, vocab_size = len(ids) * 9 // 10, int(ids.max()) + 1
        held_out = tokenizer.decode(ids[cut:].tolist())
        per_character = (len(ids) - cut) / len(held_out)
    with guarded(path, "Training: the whole text", seconds + LIMIT):

        def made() -> nn.Module:
            torch.manual_seed(0)
            return file.model(vocab_size, SIZES)

        trial = made()
        file.train(trial, ids[:cut], 3)  # the first steps are slower
        began = time.perf_counter()
        file.train(trial, ids[:cut], 10)
        per_step = (time.perf_counter() - began) / 10
        fits = max(1, int(0.8 * seconds / per_step))
        known = references(file.chapter)
        book = next((run for run in known if run.steps <= fits), None)
        steps = book.steps if book else min(fits, LADDER_STEPS)
        print(
            f"Training for {steps:,} steps, about {steps * per_step:.0f} of "
            f"at most {seconds:.0f} seconds.",
            flush=True,
        )
        model = made()
        file.train(model, ids[:cut], steps, book.rate if book else None)
        loss = evaluate(model.eval(), ids[cut:]) * per_character
        passed, verdict = compare(loss, book)
        units = "nats per character"
        if file.chapter >= 10:  # the same number, as chapter 10 writes it
            units += f", {loss / math.log(2):.3f} bits"
            units += f", a perplexity of {math.exp(loss):.2f}"
        print(f"held-out loss {loss:.3f} {units}\n{verdict}")
        if file.chapter >= 11 and steps < LADDER_STEPS:
            print(
                "    In so short a training the warm-up takes long: the loss "
                "is above chapter 9's."
            )
        print(columns(samples(file, model, tokenizer, book or known[-1])))
    return passed, loss


def samples(
    file: File, model: nn.Module, tokenizer: Any, book: Reference
) -> dict[str, str]:
    """What the model generates, and what to compare it with."""

    def drawn(*how: float) -> str:
        prompt = torch.tensor([tokenizer.encode(PROMPT)])
        torch.manual_seed(0)
        ids = file["generate"](model, prompt, 200, *how)[0].tolist()
        return str(tokenizer.decode(ids))[: len(PROMPT) + 200]

    if file.chapter >= 12:  # the same seed at two temperatures
        return {f"temperature {t}": drawn(t, 1.0) for t in (0.5, 1.2)}
    return {"before this chapter": book.before, "your sample": drawn()}


@torch.no_grad()
def evaluate(
    model: nn.Module, ids: torch.Tensor, context: int = SIZES.context
) -> float:
    """Mean loss over a whole text, in nats per token; windows do not overlap.

    Args:
        model: (B, T) ids in, (B, T, V) logits out.
        ids: (n_tokens,), more than ``context``.
        context: T, tokens of a window.
    """
    windows = ids.unfold(0, context + 1, context)
    total = 0.0
    for batch in windows.split(64):
        logits = model(batch[:, :-1]).flatten(0, 1)
        targets = batch[:, 1:].flatten()
        total += nn.functional.cross_entropy(
            logits, targets, reduction="sum"
        ).item()
    return total / windows[:, 1:].numel()


def main(argv: list[str]) -> int:
    """Check, train, generate; 0 if all is as expected, else 1."""
    name, at, seconds, outcome = argv
    torch.set_num_threads(1)
    path = Path(name).absolute()
    try:
        file = load(path, int(at) if at else None)
        print(f"{path.name}, chapter {file.chapter}", flush=True)
        for line in verify(path, file):
            print(line, flush=True)
        passed, loss = train(path, file, float(seconds))
    except ContractError as error:
        print(error)
        return 1
    except KeyboardInterrupt:
        return 130
    Path(outcome).write_text(json.dumps(loss), "utf-8")
    later = [chapter for chapter in STEPS if chapter > file.chapter]
    if passed and later:
        print(
            f"next: chapter {later[0]}, {', '.join(STEPS[later[0]])}. Set "
            f"`chapter = {later[0]}` in your file\nwhen they are there, or "
            f"begin one with the rest: coursekit start NAME.py --at {later[0]}"
        )
    elif passed:
        print(f"next: your own text, coursekit capstone {path.name} --help")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
