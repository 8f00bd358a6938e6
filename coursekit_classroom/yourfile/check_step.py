"""``coursekit step``, in the process of the learner's file.

The contracts up to the file's chapter, its last lines, a training, a sample.
"""

import ast
import inspect
import io
import math
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from coursekit.data import load_text
from coursekit_classroom import lesson
from coursekit_classroom.yourfile import STEPS, book, calls, last_lines
from coursekit_classroom.yourfile.contracts import due
from coursekit_classroom.yourfile.contracts.base import (
    ContractError,
    File,
    Sizes,
)
from coursekit_classroom.yourfile.expected_loss import (
    columns,
    compare,
    reference,
)
from coursekit_classroom.yourfile.loading import (
    LIMIT,
    guarded,
    hold,
    load,
    module_name,
)
from coursekit_classroom.yourfile.saving import save_as_zip

CHARACTERS = 10_000  # of the text on which the last lines are run
PROMPT = "ROMEO:\n"
SIZES = Sizes(context=64, d_model=64, n_heads=4, n_blocks=4)


def verify(path: Path, file: File) -> Iterator[str]:
    """Check every contract up to the file's chapter; a line for each.

    Raises:
        ContractError: at the first that does not hold.
    """
    with guarded(path, "File: names its parts", LIMIT):
        file.require()
    yield from borrowed(path)
    names = {part: name for name, part in book(file.chapter).items()}
    for _, check, part in due(file.chapter, set(names)):
        called = ", then ".join(calls(names[part], file.chapter))
        hint = f"In chapter {file.chapter} the call is {called}."
        yield hold(path, file, check, part, hint)
    if main := main_of(path):
        title = f"Last lines: `python {path.name} text.txt` runs"
        script = lesson.part("script", file.chapter).splitlines()
        [line] = [x.strip() for x in script if "model = " in x]
        hint = f"The book's file has: {line}"
        with guarded(path, title, LIMIT, hint=hint):
            run_main(path, main, file, hint)
        yield f"✓ {title}"


def borrowed(path: Path) -> Iterator[str]:
    """A note for each name that a file imports from the book's own file."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(
            "coursekit.minimal"
        ):
            names = ", ".join(alias.name for alias in node.names)
            yield (
                f"note: line {node.lineno} imports the book's {names}. "
                "Without that line, your own is used."
            )


def main_of(path: Path) -> ast.Module | None:
    """The lines of a file that run only where it is the main program."""
    tree = ast.parse(path.read_bytes())
    tree.body = [
        node
        for node in tree.body
        if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
    ]
    return tree if tree.body else None


def run_main(path: Path, main: ast.Module, file: File, hint: str) -> None:
    """Run a file's last lines on a short text, for a step and three tokens.

    Args:
        path: of the file, which has been loaded.
        main: its last lines.
        file: what it holds.
        hint: how the book makes the model.

    Raises:
        ContractError: if another model than that of `parts` is trained.
    """
    space = vars(sys.modules[module_name(path)])

    def shorter(function: Callable[..., Any], n: int) -> Callable[..., Any]:
        signature = inspect.signature(function)
        model, _, count = list(signature.parameters)[:3]

        def called(*args: Any, **named: Any) -> Any:
            bound = signature.bind(*args, **named)
            bound.arguments[count] = n
            wanted, got = file["model"], type(bound.arguments[model])
            if inspect.isclass(wanted) and got is not wanted:
                raise ContractError(
                    "the last lines train the model that `parts` names: got "
                    f"{got.__name__} instead of {wanted.__name__}. {hint}"
                )
            return function(*bound.args, **bound.kwargs)

        return called

    short: dict[str, Any] = {"__name__": "__main__"}
    for part, n in (("train", 1), ("generate", 3)):
        names = [name for name, value in space.items() if value is file[part]]
        short |= dict.fromkeys(names, shorter(file[part], n))
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.dict(space, short),
        patch.object(sys, "argv", [str(path), f"{folder}/text.txt"]),
        redirect_stdout(io.StringIO()),
    ):
        text = load_text("shakespeare")[:CHARACTERS]
        Path(folder, "text.txt").write_text(text, "utf-8")
        try:
            exec(compile(main, str(path), "exec"), space)
        except SystemExit as end:
            if end.code:
                raise
        finally:
            torch.set_default_device("cpu")  # a file may choose another


def train(path: Path, file: File, steps: int) -> tuple[bool, float]:
    """Train the learner's model, print its loss and sample.

    Ctrl-C ends the training alone, so that a slow machine shows something.

    Args:
        path: of the learner's file.
        file: what it holds.
        steps: how many times the model is updated.

    Returns:
        Whether the loss is as expected, and the loss.

    Raises:
        ContractError: if the model fails on the real text, or hangs.
    """
    text = load_text("shakespeare")
    with guarded(path, "Tokenizer: the whole text", 3 * LIMIT):
        if file.chapter == 1:
            print("Learning tokens from the whole text.", flush=True)
        tokenizer = file.tokenizer(text)
        ids = torch.tensor(tokenizer.encode(text))
        cut, vocab_size = len(ids) * 9 // 10, int(ids.max()) + 1
        held_out = tokenizer.decode(ids[cut:].tolist())
        per_character = (len(ids) - cut) / len(held_out)

    def made() -> nn.Module:
        torch.manual_seed(0)
        return file.model(vocab_size, SIZES)

    with guarded(path, "Training: the first steps", LIMIT):
        trial = made()
        file.train(trial, ids[:cut], 3)  # the first steps are slower
        began = time.perf_counter()
        file.train(trial, ids[:cut], 10)
        seconds = steps * (time.perf_counter() - began) / 10
    print(
        f"Training for {steps:,} steps, about {seconds:.0f} seconds.\n"
        "Ctrl-C, in a notebook Interrupt, ends it and shows what was learned.",
        flush=True,
    )
    book, ended = reference(file.chapter), f"after {steps:,} steps"
    with guarded(path, "Training: the whole text", 10 * seconds + LIMIT):
        model = made()
        try:
            file.train(model, ids[:cut], steps)
        except KeyboardInterrupt:
            steps, ended = 0, "after fewer steps"
        loss = evaluate(model.eval(), ids[cut:]) * per_character
        passed, verdict = compare(loss, book.losses, steps)
        units = f"nats per character {ended}"
        if file.chapter >= 10:  # the same number, as chapter 10 writes it
            units += f", {loss / math.log(2):.3f} bits"
            units += f", a perplexity of {math.exp(loss):.2f}"
        print(f"held-out loss {loss:.3f} {units}\n{verdict}")
        print(columns(samples(file, model, tokenizer, book.before)))
        if file.chapter >= 9:  # a whole GPT
            zipped = path.with_suffix(".zip")
            sizes = (vocab_size, *SIZES)
            print(save_as_zip(zipped, model, tokenizer, sizes))
    return passed, loss


def samples(
    file: File, model: nn.Module, tokenizer: Any, before: str
) -> dict[str, str]:
    """Generate from the model, with a text to compare it with."""

    def drawn(*settings: float) -> str:
        prompt = torch.tensor([tokenizer.encode(PROMPT)])
        torch.manual_seed(0)
        ids = file["generate"](model, prompt, 200, *settings)[0].tolist()
        return str(tokenizer.decode(ids))[: len(PROMPT) + 200]

    if file.chapter >= 12:  # the same seed at two temperatures
        return {f"temperature {t}": drawn(t, 1.0) for t in (0.5, 1.2)}
    return {"before this chapter": before, "your sample": drawn()}


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


def main(file: str, at: int | None, steps: int) -> tuple[bool, float]:
    """Check, train, generate; whether all is as expected, and the loss.

    Args:
        file: the learner's.
        at: up to which chapter it is checked; None is as the file says.
        steps: how many times the model is updated.

    Raises:
        ContractError: at the first contract that does not hold.
    """
    path = Path(file).absolute()
    loaded = load(path, at)
    print(f"{path}, chapter {loaded.chapter}", flush=True)
    for line in verify(path, loaded):
        print(line, flush=True)
    passed, loss = train(path, loaded, steps)
    later = [chapter for chapter in STEPS if chapter > loaded.chapter]
    if passed and later:
        print(
            f"next: chapter {later[0]}, {', '.join(STEPS[later[0]])}. When "
            "they are there, change the end of the file:\n"
            f"{textwrap.indent(last_lines(later[0]), ' ' * 4)}\n"
            "or begin a file with the rest: coursekit start NAME.py --at "
            f"{later[0]}"
        )
    elif passed:
        print(f"next: your own text, coursekit capstone {path.name} --help")
    return passed, loss
