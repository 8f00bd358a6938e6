"""A task with the student's own file: a bug, a prediction, a run, a viva.

``coursekit kit task FILE --student ID`` names one small change of a line that
the student wrote, drawn from the teacher's seed and the student's id.  The
student predicts what it does to the loss; the prediction's hash is shown to
the teacher before the run.  The run measures both files, and ends in three
questions about these numbers.  The change is one of those that the viva of
the grader asks about (:func:`~coursekit.classroom.grading.viva.changes`), or
one that fits a model (:func:`more`), the prediction that of the capstone.
"""

import argparse
import ast
import copy
import hashlib
import json
import math
import random
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from coursekit.classroom.grading.records import Question
from coursekit.classroom.grading.viva import Change, changes, others
from coursekit.classroom.yourfile import FILE, PARTS, STEPS, TODO, run_child
from coursekit.classroom.yourfile.capstone import (
    Prediction,
    existing,
    predicted,
    sibling,
)

__all__ = ["drawn", "options", "predict", "questions", "run"]

SECONDS = 30.0
TRIAL = 600.0  # after which the trial of a file's changes is given up
VOCABULARY = 66  # characters of the book's text
OPPOSITE = {"mean": "sum", "sum": "mean", "max": "min", "min": "max"}
OPPOSITE |= {"tril": "triu", "amax": "amin", "log_softmax": "softmax"}
OPPOSITE |= {"ones": "zeros", "zeros_": "ones_"}
NEGATED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotIn: ast.In,
}
OTHER_END = {":-1": "1:", "1:": ":-1"}  # what a shift by one confuses
# Methods whose result has the shape of their tensor.
ELEMENTS = {"abs", "clone", "exp", "log", "log_softmax", "sqrt", "tril"}
RUBRIC = """\
Each question: 0 no reason, or a reason that the numbers contradict; 1 names
the line's shapes or values; 2 says also what would refute the reason. Two
minutes for all three, without the file in sight."""


def drawn(file: str | Path, student: str, seed: int = 0) -> Change:
    """The change of a student's file, the same whenever it is asked for.

    It is the first of the student's order with which the file still trains:
    of one that ends in an error there is no loss to predict.

    Args:
        file: the student's file, at the end of some chapter's step.
        student: an id.
        seed: the teacher's.

    Raises:
        ValueError: if the file cannot be read, has no line to change, or
            trains with no change.
    """
    left = tuple(ordered(file, student, seed))
    while left:
        place, trains = _tried(left)
        if trains:
            return left[place]
        left = left[place + 1 :]  # what ends the process, or the last
    raise ValueError(
        f"a task needs a file that trains: got {existing(file)}, which does "
        "so with no change. Run coursekit step first."
    )


def ordered(file: str | Path, student: str, seed: int = 0) -> list[Change]:
    """Every change of a file, in the order that is drawn for a student.

    Args:
        file: as :func:`drawn` takes it.
        student: an id.
        seed: the teacher's.

    Raises:
        ValueError: if the file cannot be read, or has no line to change.
    """
    found = options(file)
    return random.Random(f"{seed} {student}").sample(found, len(found))


@cache  # a command asks more than once
def _tried(changes: tuple[Change, ...]) -> tuple[int, bool]:
    """The place of the first that trains; or of the last tried, and False."""
    with tempfile.TemporaryDirectory() as folder:
        sources = Path(folder, "changes.json")
        sources.write_text(json.dumps([c.source for c in changes]), "utf-8")
        found = run_child("trial_child", [sources], TRIAL)[2]
    place, trains = found or (len(changes), False)
    return place, trains


def options(file: str | Path) -> list[Change]:
    """Every change that students with this file may get.

    Args:
        file: as :func:`drawn` takes it.

    Raises:
        ValueError: as :func:`ordered` does.
    """
    path = existing(file)
    source = path.read_text("utf-8")
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise ValueError(
            f"a task needs a file that runs: got {path}, {error}. Run "
            "coursekit step first."
        ) from None
    if TODO in source:
        line = source[: source.index(TODO)].count("\n") + 1
        raise ValueError(
            f"a task comes after the chapter's step: got {path}, where line "
            f"{line} is still to be written. Run coursekit step first."
        )
    written = _written(tree)

    def kinds(node: ast.AST) -> Iterator[ast.AST]:
        line = getattr(node, "lineno", 0)
        if any(first <= line <= last for first, last in written):
            yield from others(node)
            yield from more(node)

    found = {change.source: change for change in changes(source, "", kinds)}
    if not found:
        raise ValueError(
            f"a task changes a line of the chapter's step: got {path}, where "
            "none can be changed. Write the step first."
        )
    return list(found.values())


def more(node: ast.AST) -> Iterator[ast.AST]:
    """Changes of a model's lines that the viva of a function does not make.

    A call, an operand, a sign or an option is left out, a factor, what a
    module gives or a bound is doubled or halved, a count is of ones, a slice
    takes the other end, items come in reverse, two arguments change places,
    a projection gets a bias, and what has an opposite becomes that.
    """
    if isinstance(node, ast.BinOp):
        yield from _operands(node)
    elif isinstance(node, ast.Call):
        yield from _calls(node)
    elif isinstance(node, ast.UnaryOp) and isinstance(
        node.op, (ast.USub, ast.Not)
    ):
        if not isinstance(node.operand, ast.Constant):
            yield node.operand
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        if new := NEGATED.get(type(node.ops[0])):
            yield ast.Compare(node.left, [new()], node.comparators)
        if isinstance(node.ops[0], ast.Lt) and isinstance(
            bound := node.comparators[0], ast.Name
        ):
            half = ast.BinOp(bound, ast.FloorDiv(), ast.Constant(2))
            yield ast.Compare(node.left, node.ops, [half])
    elif isinstance(node, ast.Attribute) and node.attr in OPPOSITE:
        yield ast.Attribute(node.value, OPPOSITE[node.attr], node.ctx)
    elif isinstance(node, ast.Name) and node.id in OPPOSITE:
        yield ast.Name(OPPOSITE[node.id], node.ctx)
    elif isinstance(node, ast.AugAssign):
        if isinstance(node.op, ast.Div):
            yield ast.AugAssign(node.target, ast.Mult(), node.value)
        elif isinstance(node.op, ast.Add):
            yield ast.Assign([node.target], node.value, lineno=node.lineno)
            yield ast.AugAssign(node.target, node.op, ast.Constant(1))
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        if not ast.unparse(node).startswith(("super()", "self.")):
            yield ast.Pass()
    elif isinstance(node, ast.Slice):
        if (found := ast.unparse(node)) in OTHER_END:
            index = ast.parse(f"a[{OTHER_END[found]}]", mode="eval").body
            yield index.slice  # type: ignore[attr-defined]
    elif isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load):
        kinds = {type(part) for part in node.elts}
        if len(node.elts) == 2 and not kinds & {ast.Constant, ast.Slice}:
            yield ast.Tuple(node.elts[::-1], node.ctx)
    elif isinstance(node, ast.Constant) and node.value is False:
        yield ast.Constant(True)


def _operands(node: ast.BinOp) -> Iterator[ast.AST]:
    """What is left of a sum, a quotient or a factor."""
    if isinstance(node.op, (ast.Add, ast.Sub, ast.Div, ast.Mod)):
        yield node.left
    if isinstance(node.op, ast.Add):
        yield node.right
    for side in ("left", "right"):
        value = getattr(getattr(node, side), "value", None)
        if isinstance(value, (int, float)):
            halves = [value / 2] if isinstance(value, float) else []
            for other in (2 * value, *halves):
                new = copy.copy(node)
                setattr(new, side, ast.Constant(other))
                yield new


def _calls(node: ast.Call) -> Iterator[ast.AST]:
    """A module, a method or an option is left out, two arguments swap, ..."""
    if ast.unparse(node.func).startswith("self.") and len(node.args) == 1:
        yield node.args[0]
        for op in (ast.Mult(), ast.Div()):
            yield ast.BinOp(copy.copy(node), op, ast.Constant(2))
    elif ast.unparse(node).endswith(".items()"):
        yield ast.Call(ast.Name("reversed"), [copy.copy(node)], [])
    elif isinstance(node.func, ast.Attribute) and node.func.attr in ELEMENTS:
        of = node.func.value  # x in x.exp(), but torch in torch.exp(x)
        library = ast.unparse(of) in ("math", "torch", "F")
        yield node.args[0] if library and node.args else of
    names = {arg.id for arg in node.args if isinstance(arg, ast.Name)}
    if len(node.args) == len(names) == 2:
        yield ast.Call(node.func, node.args[::-1], node.keywords)
    for option in node.keywords:
        if not isinstance(option.value, ast.Constant):
            kept = [other for other in node.keywords if other is not option]
            yield ast.Call(node.func, node.args, kept)


def _written(tree: ast.Module) -> list[tuple[int, int]]:
    """First and last lines of the parts of the file's own step.

    And those of what they use, if it is no part that has a name of its own,
    such as a block: all that is not checked by itself.
    """
    said: dict[str, Any] = {"chapter": None, "parts": {}}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            name = ast.unparse(node.targets[0])
            if name == "chapter" and isinstance(node.value, ast.Constant):
                said[name] = node.value.value
            elif name == "parts" and isinstance(node.value, ast.Dict):
                pairs = zip(node.value.keys, node.value.values, strict=True)
                said[name] = {
                    key.value: ast.unparse(value)
                    for key, value in pairs
                    if isinstance(key, ast.Constant)
                }
    labels = {PARTS[p] for p in STEPS.get(said["chapter"], ()) if p in PARTS}
    names = {said["parts"].get(label) for label in labels} - {None}
    defined = [
        node
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    ]
    used = {
        inner.id
        for node in defined
        for inner in ast.walk(node)
        if node.name in names and isinstance(inner, ast.Name)
    }
    names |= used - set(said["parts"].values())
    return [
        (node.lineno, node.end_lineno or node.lineno)
        for node in defined
        if node.name in names or not names
    ]


def predict(
    file: str | Path, student: str, expected: float, seed: int = 0
) -> str:
    """Write down before the run what the change does to the loss.

    Args:
        file: the student's file.
        student: an id.
        expected: loss with the change minus that without, in nats.
        seed: the teacher's.

    Returns:
        The prediction's SHA-256.

    Raises:
        ValueError: if the file has been run already, or as :func:`drawn`.
    """
    path, change = existing(file), drawn(file, student, seed)
    if (report := sibling(path, "task.md")).exists():
        raise ValueError(
            f"a prediction is made before the run: got {report}, which has "
            "the result. Delete it to begin again."
        )
    if not math.isfinite(expected):
        raise ValueError(
            f"a prediction is a difference in nats: got {expected}. Give a "
            "number, negative if the loss falls."
        )
    made = Prediction(
        f"line {change.line}: {change.before}",
        change.after,
        expected,
        hashlib.sha256(path.read_bytes()).hexdigest(),
        datetime.now(UTC).isoformat(timespec="seconds"),
    )
    where = sibling(path, "task.json")
    where.write_text(json.dumps(vars(made), indent=1), "utf-8")
    return made.digest


def run(
    file: str | Path, student: str, seed: int = 0, seconds: float = SECONDS
) -> str:
    """Measure the file and the changed one, and write the report.

    Args:
        file: the student's file.
        student: an id.
        seed: the teacher's.
        seconds: how long each may train.

    Returns:
        The report, which is in ``FILE.task.md`` too.

    Raises:
        ValueError: if nothing was predicted, or the file is another by now.
    """
    path, change = existing(file), drawn(file, student, seed)
    where = sibling(path, "task.json")
    if not where.exists():
        raise ValueError(
            f"a prediction comes before the run: got no {where}. Make one "
            "with --predict NATS."
        )
    made = predicted(where)
    if made.file != hashlib.sha256(path.read_bytes()).hexdigest():
        raise ValueError(
            f"the file is that of the prediction: got {path}, which has "
            "changed since. Restore it, or predict again."
        )
    with tempfile.TemporaryDirectory() as folder:
        changed = Path(folder, path.name)
        changed.write_text(change.source, "utf-8")
        plain, other = (
            run_child("task_child", [one, seconds], 600 + 3 * seconds)[2]
            or {"stopped": "it came to no end", "loss": None, "steps": 0}
            for one in (path, changed)
        )
    text = _report(path, change, made, plain, other)
    sibling(path, "task.md").write_text(text, "utf-8")
    return text


def questions(
    change: Change,
    made: Prediction,
    plain: dict[str, Any],
    other: dict[str, Any],
) -> list[Question]:
    """Three questions about the numbers of the run.

    Args:
        change: what was changed.
        made: what was predicted.
        plain: the outcome of the student's file.
        other: the outcome of the changed one.
    """
    line = f"line {change.line}, `{change.before}` → `{change.after}`"
    stopped = other["stopped"] or "none: every contract holds"
    return [
        Question(
            f"You predicted {made.expected:+.2f} nats for {line}. Why did "
            "the loss do what it did?",
            f"{_shown(plain['loss'])} without, {_shown(other['loss'])} with "
            f"the change ({other['steps']:,} steps).",
        ),
        Question(
            f"Which check of `coursekit step` sees the change in line "
            f"{change.line} first, and on which input?",
            f"{stopped}. {other.get('reason', '')}".strip(),
        ),
        Question(
            f"Your own model has {_shown(plain['loss'])} nats per character. "
            "Among how many equally likely characters is it choosing, and "
            "how far below a blind guess is it?",
            _choices(plain["loss"]),
        ),
    ]


def _choices(loss: float | None) -> str:
    """What a loss in nats means."""
    if loss is None:
        return "It could not be trained."
    return (
        f"e^{loss:.2f} = {math.exp(loss):.1f}; a blind guess has ln "
        f"{VOCABULARY} = {math.log(VOCABULARY):.2f}, which is "
        f"{math.log(VOCABULARY) - loss:.2f} more."
    )


def _shown(loss: float | None) -> str:
    """A loss, or that there is none."""
    return "no loss" if loss is None else f"{loss:.3f}"


def _report(
    path: Path,
    change: Change,
    made: Prediction,
    plain: dict[str, Any],
    other: dict[str, Any],
) -> str:
    """What was predicted and measured, and the viva."""
    lines = [
        f"# {path.name}: one changed line",
        "",
        f"Line {change.line}: `{change.before}` became `{change.after}`.",
        "",
        "| held-out loss, nats per character | |",
        "|---|--:|",
        f"| the file ({plain['steps']:,} steps) | {_shown(plain['loss'])} |",
        f"| changed ({other['steps']:,} steps) | {_shown(other['loss'])} |",
    ]
    if None not in (plain["loss"], other["loss"]):
        difference = other["loss"] - plain["loss"]
        lines.append(f"| difference | {difference:+.3f} |")
    lines += [
        f"| **predicted** | **{made.expected:+.3f}** |",
        "",
        f"Stopped by: {other['stopped'] or 'nothing, every contract holds'}.",
        f"Predicted {made.made}, SHA-256 `{made.digest}`.",
        "",
        "## Two minutes",
        "",
    ]
    for number, question in enumerate(
        questions(change, made, plain, other), 1
    ):
        lines += [f"{number}. {question.ask}", f"   - *{question.answer}*"]
    return "\n".join([*lines, "", RUBRIC]) + "\n"


def add_options(parser: argparse.ArgumentParser) -> None:
    """One changed line of a student's own file: predict, run, explain."""
    parser.add_argument("file", nargs="?", default=FILE, help=f"[{FILE}]")
    parser.add_argument("--student", required=True, metavar="ID")
    parser.add_argument("--seed", type=int, default=0, help="the teacher's")
    parser.add_argument(
        "--predict",
        type=float,
        metavar="NATS",
        help="what the change adds to the held-out loss, before the run",
    )
    parser.add_argument("--run", action="store_true", help="measure both")
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        help="each may train so long [default: %(default).0f]",
    )


def main(args: argparse.Namespace) -> int:
    """Say the change, keep a prediction, or run."""
    if args.run:
        print(run(args.file, args.student, args.seed, args.seconds), end="")
        return 0
    change = drawn(args.file, args.student, args.seed)
    print(f"line {change.line}: {change.before}\nbecomes: {change.after}")
    if args.predict is not None:
        digest = predict(args.file, args.student, args.predict, args.seed)
        print(
            f"kept in {sibling(Path(args.file), 'task.json')}; send your "
            f"teacher its SHA-256 before the run:\n{digest}"
        )
    return 0
