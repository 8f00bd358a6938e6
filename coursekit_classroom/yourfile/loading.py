"""Run a learner's file, and turn errors and hangs into a sentence."""

import importlib.util
import inspect
import os
import sys
import textwrap
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread, main_thread

import torch

from coursekit_classroom import lesson
from coursekit_classroom.check.call import marks_a_stub
from coursekit_classroom.yourfile.contracts.base import (
    ContractError,
    File,
    title,
)

LIMIT = 30.0  # seconds of work for one contract


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
    for number, line in enumerate(lines, first):  # below the decorators
        if line.lstrip().startswith(("def ", "class ")):
            return f"{path.name}, line {number}: `{line.strip()}`"
    return path.name


def failure(title: str, sentence: str, place: str) -> str:
    """Format a contract that does not hold, for printing."""
    indent = " " * 4
    lines = [
        textwrap.fill(
            line, 77, initial_indent=indent, subsequent_indent=indent
        )
        for line in sentence.splitlines()
    ]
    return "\n".join([f"✗ {title}", *lines, indent + place])


@contextmanager
def guarded(
    path: Path,
    title: str,
    seconds: float,
    part: object = None,
    hint: str = "",
) -> Iterator[None]:
    """Turn each error of the learner's code, and a hang, into a failure.

    Args:
        path: of the learner's file.
        title: what is checked.
        seconds: of work, after which it is a hang.
        part: which class or function is checked.
        hint: how the book calls it; for a call that fails as it is made.
    """
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
        if isinstance(error, TypeError | NameError) and hint:
            last = frames[-1].filename, frames[-1].name
            inside = any(frame.filename == str(path) for frame in frames)
            if not inside or last == (str(path), "<module>"):
                sentence += f" {hint}"
        if isinstance(error, SyntaxError):
            line = (error.text or "").strip()
            place = f"{path.name}, line {error.lineno}: `{line}`"
        elif marks_a_stub(error):
            sentence = "its lines are still to be written."
        elif isinstance(error, ContractError):
            sentence, place = str(error), where(path, None, part)
        raise ContractError(failure(title, sentence, place)) from error
    finally:
        done.set()


def module_name(path: Path) -> str:
    """Name a file as a module: math.py is not the module math."""
    return f"learner_{path.stem}"


def load(path: Path, at: int | None = None) -> File:
    """Run the learner's file, and see which of its names is which part.

    Raises:
        ContractError: if the file does not run, or does not say.
    """
    name = module_name(path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where `inspect` looks for its lines
    sys.path.append(str(path.parent))  # last: PyTorch imports nothing of it
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
        last = lesson.LAST_CHAPTER
        if not isinstance(chapter, int) or not 0 <= chapter <= last:
            raise ContractError(
                "`chapter` says how far the file has come, from 0 to "
                f"{last}: got {chapter!r}. Set it, or give --at."
            )
    return File(chapter, parts)


def hold(
    path: Path,
    file: File,
    contract: Callable[[File], str | None],
    part: str,
    hint: str = "",
) -> str:
    """Check a contract; the line to print if it holds.

    Args:
        path: of the learner's file.
        file: what it holds.
        contract: the check.
        part: which part is at fault if it doesn't hold.
        hint: as in :func:`guarded`.

    Raises:
        ContractError: if it doesn't hold.
    """
    torch.manual_seed(0)
    with guarded(path, title(contract), LIMIT, file.parts.get(part), hint):
        note = contract(file)
    return f"✓ {title(contract)}" + (f"\n    {note}" if note else "")
