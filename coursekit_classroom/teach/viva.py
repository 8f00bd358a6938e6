"""Three questions to a student about the code that they handed in.

They are read off that code and off what it came to when it was graded.
A student who wrote the code, or understood it, answers in a minute.
"""

import ast
import difflib
import hashlib
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from inspect import BoundArguments
from typing import TYPE_CHECKING

from coursekit_classroom.check import core
from coursekit_classroom.check.call import Outcome
from coursekit_classroom.check.compare import describe
from coursekit_classroom.check.diagnose import same, trace
from coursekit_classroom.check.report import says
from coursekit_classroom.teach.key import derived
from coursekit_classroom.teach.records import Question

if TYPE_CHECKING:  # it imports this
    from coursekit_classroom.teach.judge import Task

N_QUESTIONS = 3


def questions(
    task: "Task", source: str, outcomes: Sequence[Outcome]
) -> list[Question]:
    """Questions about an answer, the same for the same answer and task.

    Args:
        task: what was asked.
        source: the answer's cell.
        outcomes: what the function came to on the cases.
    """
    digest = hashlib.sha256(source.encode()).hexdigest()
    rng = random.Random(derived(task.secret, f"questions {digest}"))
    found = list[Question]()
    with suppress(Exception):  # odd code is no reason to have none
        if task.mutant:
            found.append(about_fixing(task, source, outcomes))
    with suppress(Exception):
        found += about_a_line(source, rng)
    with suppress(Exception):
        found.append(about_a_case(task, outcomes, rng))
    return [*found, about_testing(task)][:N_QUESTIONS]


def about_fixing(
    task: "Task", source: str, outcomes: Sequence[Outcome]
) -> Question:
    """What was changed in a given program, and which input shows it."""
    before, after = tidy(task.stub), tidy(source)
    changes = [
        line
        for line in difflib.ndiff(before, after)
        if line.startswith(("- ", "+ "))
    ]
    exercise, telling = task.exercise, list[str]()
    each = zip(task.cases, task.outcomes(task.mutant), outcomes, strict=True)
    for number, (case, was, got) in enumerate(each, 1):
        if not same(exercise, *(trace(exercise, case, o) for o in (was, got))):
            telling.append(case.name or f"case {number}")
    known = core.mistakes(exercise, task.on)
    bugs = [known[name] for name in sorted(task.mutant)]
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


def tidy(source: str) -> list[str]:
    """A program's lines, as far as they mean anything."""
    try:
        return ast.unparse(ast.parse(source)).splitlines()
    except SyntaxError:
        return source.splitlines()


def about_a_line(source: str, rng: random.Random) -> Iterator[Question]:
    """What one line is for."""
    lines = [
        (number, line.strip())
        for number, line in enumerate(source.splitlines(), 1)
        if len(line.strip()) > 8 and not line.strip().startswith(("#", "def"))
    ]
    for number, line in rng.sample(lines, min(1, len(lines))):
        yield Question(
            f"What does line {number} of your cell do, and what would go "
            f"wrong without it? `{line}`",
            "Not measured. They should name its shapes or values, and one "
            "input that needs the line.",
        )


def about_a_case(
    task: "Task", outcomes: Sequence[Outcome], rng: random.Random
) -> Question:
    """Why a case came out as it did."""
    number = rng.randrange(len(outcomes))
    case, problem = task.cases[number], task.problems(outcomes)[number]
    called = in_words(core.bind(task.exercise, case)) or "no argument"
    return Question(
        f"Your function is called with {called} ({case.name or 'case 1'}). "
        "Is what it returns right? How do you know?",
        "It is right." if problem is None else problem,
    )


def in_words(bound: BoundArguments) -> str:
    """Every argument in a few words, such as ``q (5, 11), k (7, 11)``."""
    return ", ".join(
        f"{name} {describe(value)}".replace(" a tensor ", " ")
        for name, value in bound.arguments.items()
    )


def about_testing(task: "Task") -> Question:
    """How they would convince somebody."""
    names = "; ".join(case.name for case in task.cases if case.name)
    return Question(
        "Which input would you try first to convince somebody that your "
        "function is right, and what must come out?",
        f"Not measured. What the grader tries: {names or 'one call'}.",
    )
