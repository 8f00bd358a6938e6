"""Your file: the transformer that a learner builds along with the book.

Each chapter from 0 to 12 ends with a step: a few parts to be written into
``my_transformer.py``.  :func:`start` writes the file with the parts of
earlier chapters filled in, :func:`step` checks what it holds so far, trains
it and generates from it.  What a part has to do is defined in
:mod:`coursekit_classroom.yourfile.contracts`; the learner's names are the
learner's.  The file runs, and is checked, in a child process: see
:mod:`coursekit_classroom.yourfile.child`.
"""

import argparse
import ast
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Any

from coursekit_classroom import lesson
from coursekit_classroom.neighbors import check_names
from coursekit_classroom.yourfile import translator_file

FILE = "my_transformer.py"
LADDER_STEPS = 2000  # of each training, as in `results/ladder.py`
STEPS: dict[int, tuple[str, ...]] = {  # chapter: what the learner writes
    0: ("get_batch", "Model", "cross_entropy", "train", "generate"),
    1: ("merge", "BPETokenizer"),
    2: ("Model",),
    3: ("Model",),
    4: ("attention", "causal_mask", "Head", "Model"),
    5: ("causal_mask", "changed_by"),
    6: ("MultiHeadAttention", "Model"),
    7: ("LayerNorm", "Model"),
    8: ("FeedForward", "Model"),
    9: ("Block", "GPT"),
    10: ("cross_entropy",),
    11: ("learning_rate", "make_optimizer", "train"),
    12: ("MultiHeadAttention", "Block", "GPT", "sample", "generate"),
}
# Each part that is checked, by its name in the book.
PARTS = {
    "CharTokenizer": "tokenizer",
    "merge": "merge",
    "BPETokenizer": "bpe",
    "get_batch": "get_batch",
    "attention": "attention",
    "causal_mask": "mask",
    "MultiHeadAttention": "heads",
    "LayerNorm": "norm",
    "FeedForward": "feed_forward",
    "Model": "model",
    "GPT": "model",
    "changed_by": "probe",
    "cross_entropy": "loss",
    "learning_rate": "schedule",
    "make_optimizer": "optimizer",
    "train": "train",
    "evaluate": "evaluation",
    "sample": "sample",
    "generate": "generate",
}
# Which of a class's methods the checks call, besides `__init__`.
METHODS = ("forward", "encode", "decode")
# How lines begin that are none of a step's subject.
SETUP = (
    *("super()", "self.context =", "self.n_heads ="),
    *(
        "self.vocabulary =",
        "self.merges =",
        "self.words =",
        "counts =",
        "data =",
    ),
)
TODO = "raise NotImplementedError  # your lines"
LAST = """

# What `coursekit step` checks: the parts up to this chapter, and which of
# your names is which part.  Use the names that you like, here and above.
chapter = {}
parts = {{
{}
}}
"""


def text(at: int, complete: bool = False) -> str:
    """The file with which a learner begins a chapter's step.

    Args:
        at: the chapter, 0 to 12; all that earlier ones write is filled in.
        complete: whether the step's own parts are filled in too, as they
            are where a chapter has no step.

    Returns:
        Python source.

    Raises:
        ValueError: if there is no such chapter.
    """
    check_chapter(at)
    source = lesson.text(at).replace(lesson.FILE, FILE)
    for name in () if complete else STEPS.get(at, ()):
        new = lesson.part(name, at)
        if new.startswith("class") and at and name in lesson.parts(at - 1):
            old = lesson.part(name, at - 1)
            begun = f"# To be changed in chapter {at}.\n{old}"
        else:  # a function is short: it is written again
            begun = stub(new)
        source = source.replace(new, begun)
    entries = [f'    "{part}": {name},' for name, part in book(at).items()]
    return source + LAST.format(at, "\n".join(entries))


def check_chapter(at: object) -> None:
    """Refuse what is no chapter with a step.

    Raises:
        ValueError: if it is none.
    """
    if at not in range(lesson.LAST_CHAPTER + 1):
        raise ValueError(
            f"a chapter is a number from 0 to {lesson.LAST_CHAPTER}: got "
            f"{at!r}. Give the chapter that you are at with --at, in Python "
            "at=, and the name of a file as file=."
        )


def book(at: int) -> dict[str, str]:
    """The book's name for each part that is checked, and the part.

    Args:
        at: the chapter, 0 to 12.

    Returns:
        In the order of the contracts.
    """
    there = lesson.parts(at)
    return {name: part for name, part in PARTS.items() if name in there}


def calls(name: str, at: int) -> list[str]:
    """The calls that checks make of a part: ``Model(…)``, ``.forward(…)``.

    Args:
        name: the book's name for it.
        at: the chapter.
    """
    [part] = ast.parse(lesson.part(name, at)).body
    if isinstance(part, ast.FunctionDef):
        return [f"{name}({ast.unparse(part.args)})"]
    assert isinstance(part, ast.ClassDef)
    signatures = []
    for method in part.body:
        if isinstance(method, ast.FunctionDef):
            del method.args.args[0]
            given = f"({ast.unparse(method.args)})"
            if method.name == "__init__":
                signatures.append(name + given)
            elif method.name in METHODS:
                signatures.append(f".{method.name}{given}")
    return signatures


def entry(name: str, part: str, at: int) -> str:
    """The line of `parts` for a part, below what it does and takes.

    Args:
        name: the book's name for it.
        part: its key.
        at: the chapter.
    """
    [node] = ast.parse(lesson.part(name, at)).body
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
    summary = (ast.get_docstring(node) or "").partition("\n")[0]
    about = [f"# {line}" for line in (summary, *calls(name, at))]
    return "\n".join([*about, f'"{part}": {name},'])


def last_lines(at: int) -> str:
    """The changes that a chapter's step makes to the last lines of a file.

    Args:
        at: the chapter, 1 to 12; for chapter 0, :func:`start` writes them.

    Returns:
        Python source, with an ellipsis for what stays.
    """
    old, script = (lesson.part("script", k) for k in (at - 1, at))
    main, *lines = script.splitlines()
    # A comment alone is no change.
    changed = [line for line in lines if line.partition("  #")[0] not in old]
    before = {part: calls(name, at - 1) for name, part in book(at - 1).items()}
    new = [
        textwrap.indent(entry(name, part, at).partition("\n")[2], " " * 4)
        for name, part in book(at).items()
        if calls(name, at) != before.get(part)
    ]
    if changed:
        changed = [main, "    ...", *changed, ""]
    if new:
        new = ["parts = {", "    ...", *new, "}"]
    return "\n".join([*changed, f"chapter = {at}", *new])


def stub(source: str) -> str:
    """A part without its lines, but for what is not its subject.

    Signatures, docstrings and the weights' initialization stay.
    """
    lines = source.splitlines()
    for node in reversed(list(ast.walk(ast.parse(source)))):
        if not isinstance(node, ast.FunctionDef):
            continue
        wanted = [part for part in node.body if not _is_given(part)]
        if wanted:
            first, last = wanted[0], wanted[-1]
            todo = " " * first.col_offset + TODO
            lines[first.lineno - 1 : last.end_lineno] = [todo]
    return "\n".join(lines)


def _is_given(part: ast.stmt) -> bool:
    """True if a line of a part is given, not the learner's to write."""
    is_docstring = isinstance(part, ast.Expr) and isinstance(
        part.value, ast.Constant
    )
    line = ast.unparse(part)
    is_setup = line.startswith(SETUP) or line.endswith(" = []")
    initializes = isinstance(part, ast.For) and "nn.init" in line
    return is_docstring or is_setup or initializes


def located(file: str | Path | None, name: str = FILE) -> Path:
    """The path of a learner's file; there is one, from wherever it is asked.

    Args:
        file: as it was given.
        name: of the file where none was given. It is looked for in the
            current folder, in those above it, and in `my_notebooks`, where
            `make lab` works; new files go to the current folder.

    Raises:
        ValueError: if what was given is not the name of a Python file.
    """
    # Here, since no child needs it.
    from coursekit_classroom.notebooks.readers import FOLDER

    if file is not None:
        if not str(file).endswith(".py"):  # a chapter, a text, a folder
            raise ValueError(
                f"your file has a name that ends in .py: got {file}. A "
                "chapter is given with --at, in Python at=."
            )
        return Path(file).absolute()
    here = Path.cwd()
    places = [folder / name for folder in (here, *here.parents)]
    places.append(here / FOLDER / name)
    return next((path for path in places if path.exists()), places[0])


def start(
    at: int = 0, file: str | Path | None = None, force: bool = False
) -> None:
    """Begin a file of your own, with the parts of earlier chapters.

    A file that is there stays as it is, and a line says so: a notebook with
    this call can be run again.

    Args:
        at: the chapter whose step is left for you to write, 0 to 12; or 14,
            for the translator of the second capstone, `my_translator.py`.
        file: where; by default `my_transformer.py`, in the current folder
            if there is none around it.
        force: whether a file that is there may be replaced.

    Raises:
        ValueError: if there is no such chapter, or as :func:`located`.
    """
    try:
        begin(at, file, force)
    except FileExistsError as error:
        print(error)


def begin(at: int, file: str | Path | None, force: bool) -> None:
    """Write the file of :func:`start`.

    Raises:
        ValueError: as :func:`start`.
        FileExistsError: if the file is there and must not be replaced.
    """
    if at == translator_file.CHAPTER:  # a file of its own
        path = located(file, translator_file.FILE)
        source, todo = translator_file.text(stub), translator_file.WRITTEN
    else:
        path = located(file)
        source, todo = text(at), STEPS.get(at, ())
    if path.exists() and not force:
        chapter = chapter_of(path) or "?"
        raise FileExistsError(
            f"{path} is there already, at chapter {chapter}, and "
            "stays as it is. Check it with `coursekit step`, in Python "
            "coursekit.step(); or give another name; or lose what it holds "
            "with --force, in Python force=True."
        )
    path.write_text(source, encoding="utf-8")
    task = (
        f"to write: {', '.join(todo)}"
        if todo
        else "complete: nothing to write"
    )
    print(f"{path} at chapter {at}, {task}")


def chapter_of(path: Path) -> str:
    """The chapter that a file says it has come to; empty if it doesn't."""
    source = path.read_text("utf-8", errors="replace")
    match = re.search(r"^chapter *= *(\d+)", source, re.MULTILINE)
    return match[1] if match else ""


@dataclass(frozen=True, repr=False)
class Report:
    """The outcome of a step, and all that was printed."""

    passed: bool
    """True if every contract holds and the loss is as expected."""
    text: str
    loss: float | None = None
    """On the held-out tenth, in nats per character."""

    def __bool__(self) -> bool:
        """True if the step passed."""
        return self.passed

    def __repr__(self) -> str:
        """One line, since the text has been printed."""
        return "step passed" if self.passed else "step not passed yet"


def step(
    file: str | Path | None = None,
    at: int | None = None,
    steps: int = LADDER_STEPS,
) -> Report:
    """Check your file so far, train its model, generate from it.

    The file runs in a child process, so that a loop without an end or
    a crash becomes a sentence.  Ctrl-C ends the training and shows what was
    learned by then; a second one ends everything.

    Args:
        file: the file that :func:`start` began.
        at: up to which chapter; by default as the file says.
        steps: how many times the model is updated.  After another number
            than the book's the loss is printed, and compared with nothing.

    Returns:
        What was printed while it went on, and whether all is as expected.

    Raises:
        ValueError: as :func:`existing`, or if there is no such chapter, or
            no step.
    """
    path = existing(file)
    if at is not None:
        check_chapter(at)
    check_steps(steps)
    code, printed, loss = run_child(
        "step", {"file": str(path), "at": at, "steps": steps}, steps
    )
    return Report(code == 0, printed, loss)


def existing(file: str | Path | None) -> Path:
    """The path of a learner's file that is there and can be run.

    Raises:
        ValueError: if there is none, or it imports one whose name is taken,
            or as :func:`located`.
    """
    path = located(file)
    if not path.is_file():
        raise ValueError(
            f"the file to check must exist: got {path}. Begin it with "
            "`coursekit start`, in Python coursekit.start()."
        )
    check_names(path.parent, path.read_text("utf-8", errors="replace"))
    return path


def check_steps(steps: int) -> None:
    """Refuse a number of steps that is none.

    Raises:
        ValueError: if it is no whole number from 1 on.
    """
    if not isinstance(steps, int) or steps < 1:
        raise ValueError(
            f"training takes 1 step or more: got {steps!r}. The default is "
            f"{LADDER_STEPS}."
        )


def run_child(
    name: str, options: dict[str, Any], steps: int
) -> tuple[int, str, Any]:
    """Run ``main`` of a module ``check_NAME`` in a child process.

    Args:
        name: the module's, without ``check_``.
        options: its arguments.
        steps: of training, in all.  It watches its own time; one that
            cannot is killed after ten minutes and a second per step.

    Returns:
        Its exit code, what it printed, and the numbers that it found.
    """
    printed = []

    def relay(lines: Any) -> None:
        for line in lines:
            print(line, end="", flush=True)
            printed.append(line)

    with tempfile.TemporaryDirectory() as folder:
        outcome = Path(folder, "outcome.json")
        process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", f"{__name__}.child"),
                *(name, json.dumps(options), str(outcome)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            env=os.environ
            | {"OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"}
            # What it printed is to be seen, however it ends.
            | {"PYTHONUNBUFFERED": "1"},
            start_new_session=True,  # Ctrl-C reaches it once, from below
        )
        timer = Timer(600 + steps, process.kill)
        timer.start()
        try:
            try:
                relay(process.stdout)
            except KeyboardInterrupt:
                with suppress(ValueError):  # Windows sent it already
                    process.send_signal(signal.SIGINT)
                relay(process.stdout)
            process.wait()
        finally:
            timer.cancel()
            process.kill()
            process.wait()
        result = json.loads(outcome.read_text()) if outcome.exists() else None
    if process.returncode == 130:
        raise KeyboardInterrupt
    if process.returncode not in (0, 1):
        printed.append(
            "✗ your file must leave its process running: got exit code "
            f"{process.returncode}. Look for a call that ends it.\n"
        )
        print(printed[-1], end="")
    return process.returncode, "".join(printed), result


def start_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``coursekit start``."""
    add_file(parser)
    parser.add_argument(
        "--at",
        type=int,
        default=0,
        metavar="K",
        help="the chapter to begin at: what those before it write is filled "
        "in; 14 begins the translator [default: 0]",
    )
    parser.add_argument(
        "--force", action="store_true", help="replace a file that is there"
    )


def run_start(args: argparse.Namespace) -> int:
    """Begin the transformer that you build along with the book.

    It writes a file with headings, the parts of earlier chapters, and the
    signatures of those to write.
    """
    begin(args.at, args.file, args.force)
    command, name = "step", args.file or ""
    if args.at == translator_file.CHAPTER:
        command, name = "capstone", args.file or translator_file.FILE
    print(f"next: write them, then coursekit {command} {name}".rstrip())
    return 0


def step_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``coursekit step``."""
    add_file(parser)
    parser.add_argument(
        "--at",
        type=int,
        metavar="K",
        help="check the parts up to this chapter [default: as the file says]",
    )
    add_steps(parser)


def run_step(args: argparse.Namespace) -> int:
    """Check your file, train its model, generate from it.

    Stops at the first part that does not do what it should, and says why.
    Ctrl-C ends the training, and what was learned by then is shown.
    Exit codes: 0 if all is as expected, 1 if something is not yet, 2 if
    there is no such file.
    """
    return 0 if step(args.file, args.at, args.steps) else 1


def add_steps(parser: argparse.ArgumentParser) -> None:
    """How long the training is."""
    parser.add_argument(
        "--steps",
        type=int,
        default=LADDER_STEPS,
        metavar="N",
        help="train for that many steps; only after the default is the loss "
        f"compared with the book's [default: {LADDER_STEPS}]",
    )


def add_file(parser: argparse.ArgumentParser) -> None:
    """The learner's file."""
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help=f"your file [default: {FILE} in this folder, in one above it, "
        "or in my_notebooks]",
    )
