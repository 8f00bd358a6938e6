"""Three questions to a student about the code that they handed in.

They are made from that code, and their answers are measured with it: which
shape a variable has, what comes out for a tiny input, what changes if a line
does.  Whoever wrote the code, or understood it, answers in a minute.  The
code itself, and what becomes of it, runs in the sandbox alone.
"""

import ast
import copy
import difflib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from inspect import BoundArguments
from typing import Any

import torch
from torch import Tensor

from coursekit.classroom.check import core
from coursekit.classroom.check.call import Outcome, explain
from coursekit.classroom.check.checker import verdict
from coursekit.classroom.check.compare import describe, difference, is_value
from coursekit.classroom.check.core import NONE, Case, Exercise, Switches
from coursekit.classroom.check.diagnose import (
    References,
    explanations,
    same,
    trace,
)
from coursekit.classroom.check.report import says
from coursekit.classroom.grading.records import Question
from coursekit.classroom.grading.served import guarded

N_QUESTIONS = 3
MUTATIONS = 6  # tried for one question
SECONDS, MEMORY = 60.0, 4 << 30  # that comparing one answer may take
DRAWS = 3  # of small numbers, to find some on which a wrong answer is wrong
SMALL = 24  # numbers of an input that a question writes out
SEEN = "coursekit_seen"  # the list that an instrumented program fills
TRACE = "coursekit_shapes"

TryOut = Callable[[str, str, Sequence[BoundArguments]], list[Outcome] | None]
"""``try_out(source, name, calls)``: run a cell after all others, then call a
function by name; None if that cannot be done anymore."""


@dataclass(frozen=True)
class Subject:
    """What was handed in for one exercise, and what it was asked for."""

    exercise: Exercise
    source: str
    """The cell."""

    function: str
    cases: Sequence[Case]
    outcomes: Sequence[Outcome]
    """What the function came to on the cases."""

    seed: int
    """Of the random numbers that the function was given."""

    on: Switches = NONE
    """The variant that was asked for."""

    given: str = ""
    """The program that was to be fixed."""

    mutant: Switches = NONE
    """The mistakes that were in it."""

    @property
    def right(self) -> bool:
        """Whether every case came out right."""
        return not any(
            verdict(
                self.exercise,
                case,
                got,
                core.expected(self.exercise, case, self.seed, self.on),
            )
            for case, got in zip(self.cases, self.outcomes, strict=True)
        )


def questions(subject: Subject, try_out: TryOut, seed: int) -> list[Question]:
    """Three questions, the same for the same submission and seed.

    Args:
        subject: what was handed in.
        try_out: runs changed code in the sandbox.
        seed: chooses among the questions that could be asked.
    """
    rng = random.Random(seed)
    found: list[Question] = []
    makers = [about_mending, about_shapes, about_tiny_input, about_a_change]
    for maker in [*makers, *general(subject)]:
        if len(found) == N_QUESTIONS:
            break
        try:
            question = maker(subject, try_out, rng)
        except Exception:  # odd code is no reason to have no questions
            question = None
        if question is not None:
            found.append(question)
    return found


# -- which line did you change? ----------------------------------------------
def about_mending(
    subject: Subject, try_out: TryOut, rng: random.Random
) -> Question | None:
    """What was changed in a given program, and who can tell."""
    if not subject.given:
        return None
    before, after = tidy(subject.given), tidy(subject.source)
    changes = [
        line
        for line in difflib.ndiff(before, after)
        if line.startswith(("- ", "+ "))
    ]
    telling = [
        case.name or f"case {number}"
        for number, (case, got) in enumerate(
            zip(subject.cases, subject.outcomes, strict=True), 1
        )
        if differ(
            subject.exercise,
            case,
            got,
            core.expected(
                subject.exercise,
                case,
                subject.seed,
                subject.on | subject.mutant,
            ),
        )
    ]
    known = core.mistakes(subject.exercise, subject.on)
    bugs = [known[name] for name in sorted(subject.mutant)]
    lines = [
        f"The given program's mistake: {says(bugs)}.",
        *(["Changed:", *changes[:20]] if changes else ["Nothing changed."]),
        "Cases that show a difference: " + ("; ".join(telling) or "none."),
    ]
    return Question(
        "Which line of the given program did you change, why, and which "
        "input shows the difference between the given program and yours?",
        "\n".join(lines),
    )


def differ(exercise: Exercise, case: Case, a: Outcome, b: Outcome) -> bool:
    """Whether two outcomes of a case can be told apart."""
    one, other = (trace(exercise, case, outcome) for outcome in (a, b))
    return not same(exercise, one, other)


def tidy(source: str) -> list[str]:
    """A program's lines, as far as they mean anything."""
    try:
        return ast.unparse(ast.parse(source)).splitlines()
    except SyntaxError:
        return source.splitlines()


# -- which shape has it? -----------------------------------------------------
def about_shapes(
    subject: Subject, try_out: TryOut, rng: random.Random
) -> Question | None:
    """The shape of a variable in the middle of the function."""
    source, places = traced(subject.source, subject.function)
    with_tensors = [
        (case, tensors)
        for case in subject.cases
        if (tensors := shapes_of(core.bind(subject.exercise, case)))
    ]
    if not places or not with_tensors:
        return None
    case, called = rng.choice(with_tensors)
    bound = core.bind(subject.exercise, case)
    outcomes = try_out(source, TRACE, [bound])
    if outcomes is None or outcomes[0].error is not None:
        return None
    seen: dict[int, list[tuple[int, ...]]] = {}
    for place, shape in outcomes[0].value:
        seen.setdefault(int(place), []).append(tuple(map(int, shape)))
    inputs = {tuple(t.shape) for t in tensors_of(bound).values()}
    fit = [p for p in sorted(seen) if len(seen[p][0]) > 0]
    new = [p for p in fit if seen[p][0] not in inputs]
    if not fit:
        return None
    place = rng.choice(new or fit)
    name, line, text = places[place]
    again = len(set(seen[place])) > 1
    return Question(
        f"In line {line} of your cell, `{text}`: which shape has `{name}`"
        f"{', the first time,' if again else ''} when {subject.function} is "
        f"called with {called}?",
        f"{seen[place][0]}",
    )


def tensors_of(bound: BoundArguments) -> dict[str, Tensor]:
    """The arguments that are tensors with axes."""
    return {
        name: value
        for name, value in bound.arguments.items()
        if isinstance(value, Tensor) and value.dim()
    }


def shapes_of(bound: BoundArguments) -> str:
    """``q (5, 11), k (7, 11)``; nothing if no argument is a tensor."""
    return all_of(bound) if tensors_of(bound) else ""


def all_of(bound: BoundArguments) -> str:
    """Every argument in a few words."""
    return ", ".join(
        f"{name} {describe(value)}".replace(" a tensor ", " ")
        for name, value in bound.arguments.items()
    )


def traced(
    source: str, function: str
) -> tuple[str, list[tuple[str, int, str]]]:
    """A cell whose function notes the shape of each variable it sets.

    Returns:
        the cell, with a function TRACE that returns ``[place, shape]`` of
        each; and of each place the variable, the line and its text.
    """
    tree = ast.parse(source)
    own = defined(tree, function)
    if own is None:
        return "", []
    places: list[tuple[str, int, str]] = []
    note = Notes(places, source.splitlines())
    own.body = [s for part in own.body for s in note.statement(part)]
    wrapper = (
        f"{SEEN} = []\n"
        f"def {TRACE}(*args, **kwargs):\n"
        f"    {SEEN}.clear()\n"
        f"    {function}(*args, **kwargs)\n"
        f"    return {SEEN}[:100]\n"
    )
    tree.body += ast.parse(wrapper).body
    return ast.unparse(ast.fix_missing_locations(tree)), places


def defined(tree: ast.Module, function: str) -> ast.FunctionDef | None:
    """The last definition of that name at the top of a cell."""
    found = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == function
    ]
    return found[-1] if found else None


class Notes:
    """Puts a note behind each assignment to a plain name."""

    def __init__(
        self, places: list[tuple[str, int, str]], lines: Sequence[str]
    ) -> None:
        self.places = places
        self.lines = lines

    def statement(self, node: ast.stmt) -> list[ast.stmt]:
        """A statement, and the note that follows it."""
        for part in ("body", "orelse", "finalbody"):
            inner = getattr(node, part, None)
            if inner and not isinstance(
                node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
            ):
                new = [s for n in inner for s in self.statement(n)]
                setattr(node, part, new)
        name = assigned(node)
        if name is None:
            return [node]
        text = self.lines[node.lineno - 1].strip()
        self.places.append((name, node.lineno, text))
        note = (
            f"if hasattr({name}, 'shape'): {SEEN}.append("
            f"[{len(self.places) - 1}, [int(n) for n in {name}.shape]])"
        )
        return [node, *ast.parse(note).body]


def assigned(node: ast.stmt) -> str | None:
    """The name that a statement sets, if it is one name."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target: ast.expr = node.targets[0]
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign)) and node.value:
        target = node.target
    else:
        return None
    return target.id if isinstance(target, ast.Name) else None


# -- what does it return? ----------------------------------------------------
def about_tiny_input(
    subject: Subject, try_out: TryOut, rng: random.Random
) -> Question | None:
    """What comes out of numbers that fit on a napkin.

    If an answer is wrong, on numbers for which it is, if some are found.
    """
    with guarded(SECONDS, MEMORY):
        good = subject.right
    found: Question | None = None
    for case in [case for case in subject.cases for _ in range(DRAWS)]:
        bound = tiny(core.bind(subject.exercise, case), rng)
        if bound is None:
            continue
        small = Case(bound.args, bound.kwargs)
        right = core.expected(
            subject.exercise, small, subject.seed, subject.on
        )
        if not is_value(right.value) or right.value is None:
            continue
        outcomes = try_out(subject.source, subject.function, [bound])
        if outcomes is None:
            return found
        called = ", ".join(
            f"{name} = {written(value)}"
            for name, value in bound.arguments.items()
        )
        with guarded(SECONDS, MEMORY):
            problem = verdict(subject.exercise, small, outcomes[0], right)
        answer = came_to(outcomes[0])
        if problem is None:
            answer += "\nThat is right."
        else:
            answer += f"\nRight would be {written(right.value)}."
        found = Question(
            f"What does your function return for {called}? Roughly will do; "
            "say how you get there.",
            answer,
        )
        if good or problem is not None:
            return found
    return found


def tiny(bound: BoundArguments, rng: random.Random) -> BoundArguments | None:
    """The same call with small shapes and small whole numbers."""
    tensors = tensors_of(bound)
    sizes = sorted({n for t in tensors.values() for n in t.shape})
    small = {n: 1 + i for i, n in enumerate(sizes)}
    cut = {
        name: smaller(t, [small[n] for n in t.shape], rng)
        for name, t in tensors.items()
    }
    other = [v for n, v in bound.arguments.items() if n not in cut]
    plain = all(v is None or isinstance(v, (bool, float)) for v in other)
    numbers = sum(t.numel() for t in cut.values())
    if not cut or not plain or numbers > SMALL:
        return None
    values = {**bound.arguments, **cut}
    return BoundArguments(bound.signature, values)


def smaller(t: Tensor, shape: list[int], rng: random.Random) -> Tensor:
    """A tensor of the same kind with drawn small numbers."""
    n = 1
    for size in shape:
        n *= size
    if t.dtype == torch.bool:
        drawn: list[Any] = [rng.random() < 0.5 for _ in range(n)]
        drawn[:: shape[-1]] = [True] * len(drawn[:: shape[-1]])
    else:
        drawn = [rng.choice((0, 1, 1, 2)) for _ in range(n)]
    return torch.tensor(drawn, dtype=t.dtype).reshape(shape)


def came_to(outcome: Outcome) -> str:
    """What a call came to, with its numbers."""
    if outcome.error is not None:
        return f"It raises {explain(outcome.error)}"
    return f"It returns {written(outcome.value)}."


def written(value: Any) -> str:
    """A value with its numbers; a large one in words."""
    if isinstance(value, Tensor):
        if value.numel() > SMALL:
            return describe(value)
        numbers = value.detach()
        if numbers.is_floating_point():
            numbers = numbers.double()
        return str(rounded(numbers.tolist()))
    if isinstance(value, (list, tuple)) and len(value) <= SMALL:
        inner = ", ".join(written(v) for v in value)
        return f"({inner})" if isinstance(value, tuple) else f"[{inner}]"
    return describe(value)


def rounded(value: Any) -> Any:
    """Numbers in nested lists with four digits."""
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


# -- what changes if ...? ----------------------------------------------------
@dataclass(frozen=True)
class Change:
    """One small change of a program."""

    line: int
    before: str
    after: str
    source: str


def about_a_change(
    subject: Subject, try_out: TryOut, rng: random.Random
) -> Question | None:
    """What a small change does; those that do something telling first."""
    if any(isinstance(n, ast.While) for n in ast.walk(tree_of(subject))):
        return None  # a changed loop may never end
    options = list(changes(subject.source, subject.function))
    rng.shuffle(options)
    best: tuple[int, Question] | None = None
    calls = [core.bind(subject.exercise, case) for case in subject.cases]
    for change in options[:MUTATIONS]:
        outcomes = try_out(change.source, subject.function, calls)
        if outcomes is None:
            break
        with guarded(SECONDS, MEMORY):
            rank, answer = effect(subject, outcomes)
        ask = (
            f"What changes if `{change.before}` becomes `{change.after}` in "
            f"line {change.line} of your cell?"
        )
        if best is None or rank < best[0]:
            best = rank, Question(ask, answer)
        if rank == 0:
            break
    return best[1] if best else None


def tree_of(subject: Subject) -> ast.Module:
    """The cell's program."""
    return ast.parse(subject.source)


def effect(subject: Subject, outcomes: Sequence[Outcome]) -> tuple[int, str]:
    """What a changed program does, and how telling that is (0: most)."""
    references = References(subject.exercise, subject.cases, subject.seed)
    named = explanations(references, subject.cases, outcomes, subject.on)
    differs = [
        (case, before, after)
        for case, before, after in zip(
            subject.cases, subject.outcomes, outcomes, strict=True
        )
        if differ(subject.exercise, case, after, before)
    ]
    n = len(subject.cases)
    if not differs:
        return 2, f"Nothing that the {n} cases can see."
    _, before, after = differs[0]
    names = "; ".join(case.name or "the one case" for case, _, _ in differs)
    lines = [f"{len(differs)} of {n} cases come out differently: {names}."]
    if named:
        known = core.mistakes(subject.exercise, subject.on)
        bugs = [known[name] for name in sorted(named[0])]
        partly = subject.exercise.view is not None
        verb = "looks" if partly else "behaves exactly"
        lines.append(f"It then {verb} like: {says(bugs)}.")
    elif after.error is not None:
        lines.append(came_to(after))
    elif is_value(before.value) and before.error is None:
        tolerance = subject.exercise.rtol, subject.exercise.atol
        gap = difference(after.value, before.value, *tolerance, equal_nan=True)
        said = (gap or "").replace("expected", "before").replace("got", "then")
        lines.append(said)
    if after.error is not None:
        return 3, "\n".join(lines)
    return (0 if named else 1), "\n".join(lines)


def changes(
    source: str,
    function: str,
    kinds: Callable[[ast.AST], Iterator[ast.AST]] | None = None,
) -> Iterator[Change]:
    """The small changes that can be asked about, in the program's order.

    Args:
        source: a program.
        function: whose lines are changed; all, if there is none of the name.
        kinds: what could stand in the place of a node; if not given,
            :func:`others`.
    """
    tree = ast.parse(source)
    own: ast.AST | None = defined(tree, function)
    for node in list(ast.walk(own or tree)):
        line, kept = getattr(node, "lineno", 0), dict(vars(node))
        kind, found = type(node), list((kinds or others)(node))
        before = ast.unparse(node) if found else ""  # of a class it takes long
        for other in found:
            after = ast.unparse(other)
            node.__class__ = type(other)  # in the tree itself, for a moment
            vars(node).update(vars(other))
            text = ast.unparse(tree)
            node.__class__ = kind
            vars(node).clear()
            vars(node).update(kept)
            yield Change(line, before, after, text)


def others(node: ast.AST) -> Iterator[ast.AST]:
    """What could stand in the place of an expression or an argument."""
    if isinstance(node, ast.keyword) and node.arg in ("dim", "axis"):
        if (axis := whole(node.value)) in (-1, -2):
            yield ast.keyword(node.arg, ast.Constant(-3 - axis))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        for at, argument in enumerate(node.args):
            if (axis := whole(argument)) in (-1, -2) and node.func.attr in (
                *("softmax", "sum", "mean", "amax", "max", "norm"),
                *("cumsum", "var", "std", "size", "unsqueeze", "argmax"),
            ):
                new = copy.copy(node)
                new.args = list(node.args)
                new.args[at] = ast.Constant(-3 - axis)
                yield new
    elif isinstance(node, ast.BinOp):
        swap: dict[type[ast.operator], ast.operator] = {
            ast.Div: ast.Mult(),
            ast.Add: ast.Sub(),
            ast.Sub: ast.Add(),
        }
        if type(node.op) in swap:
            yield ast.BinOp(node.left, swap[type(node.op)], node.right)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        yield node.operand
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        turn: dict[type[ast.cmpop], ast.cmpop] = {
            ast.Gt: ast.GtE(),
            ast.GtE: ast.Gt(),
            ast.Lt: ast.LtE(),
            ast.LtE: ast.Lt(),
        }
        if type(node.ops[0]) in turn:
            op = turn[type(node.ops[0])]
            yield ast.Compare(node.left, [op], node.comparators)
    elif isinstance(node, ast.Constant) and node.value is True:
        yield ast.Constant(False)


def whole(node: ast.expr) -> int | None:
    """The whole number that an expression is, if it is one."""
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return None
    return value if type(value) is int else None


# -- what can be asked about any code ----------------------------------------
Maker = Callable[[Subject, TryOut, random.Random], Question | None]


def general(subject: Subject) -> list[Maker]:
    """Questions whose answers the instructor has to judge."""
    return [about_a_line, about_a_case, about_testing]


def about_a_line(
    subject: Subject, try_out: TryOut, rng: random.Random
) -> Question | None:
    """What one line is for."""
    lines = [
        (number, line.strip())
        for number, line in enumerate(subject.source.splitlines(), 1)
        if len(line.strip()) > 8 and not line.strip().startswith(("#", "def"))
    ]
    if not lines:
        return None
    number, line = rng.choice(lines)
    return Question(
        f"What does line {number} of your cell do, and what would go wrong "
        f"without it? `{line}`",
        "Not measured. They should name its shapes or values, and one input "
        "that needs the line.",
    )


def about_a_case(
    subject: Subject, try_out: TryOut, rng: random.Random
) -> Question | None:
    """Why a case came out as it did."""
    number = rng.randrange(len(subject.cases))
    case = subject.cases[number]
    right = core.expected(subject.exercise, case, subject.seed, subject.on)
    with guarded(SECONDS, MEMORY):
        got = subject.outcomes[number]
        problem = verdict(subject.exercise, case, got, right)
    called = all_of(core.bind(subject.exercise, case)) or "no argument"
    return Question(
        f"Your function is called with {called} ({case.name or 'case 1'}). "
        "Is what it returns right? How do you know?",
        "It is right." if problem is None else problem,
    )


def about_testing(
    subject: Subject, try_out: TryOut, rng: random.Random
) -> Question:
    """How they would convince somebody."""
    names = "; ".join(case.name for case in subject.cases if case.name)
    return Question(
        "Which input would you try first to convince somebody that your "
        "function is right, and what must come out?",
        f"Not measured. What the grader tries: {names or 'one call'}.",
    )
