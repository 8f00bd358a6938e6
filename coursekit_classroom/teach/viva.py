"""Three questions to a student about the code that they handed in.

They are read off that code and off what it came to when it was graded.
A student who wrote the code, or understood it, answers in a minute.
"""

import ast
import difflib
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from inspect import BoundArguments

from coursekit_classroom.check import core
from coursekit_classroom.check.call import Outcome
from coursekit_classroom.check.checker import verdict
from coursekit_classroom.check.compare import describe
from coursekit_classroom.check.core import NONE, Case, Exercise, Switches
from coursekit_classroom.check.diagnose import same, trace
from coursekit_classroom.check.report import says
from coursekit_classroom.teach.records import Question

N_QUESTIONS = 3


@dataclass(frozen=True)
class Subject:
    """What was handed in for one exercise, and what it was asked for."""

    exercise: Exercise
    source: str
    """The cell."""

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


def questions(subject: Subject, seed: int) -> list[Question]:
    """Three questions, the same for the same submission and seed."""
    rng = random.Random(seed)
    found: list[Question | None] = []
    for maker in (about_fixing, about_a_line, about_a_case, about_testing):
        with suppress(Exception):  # odd code is no reason to have none
            found.append(maker(subject, rng))
    return [question for question in found if question][:N_QUESTIONS]


def about_fixing(subject: Subject, rng: random.Random) -> Question | None:
    """What was changed in a given program, and which input shows it."""
    if not subject.given:
        return None
    before, after = tidy(subject.given), tidy(subject.source)
    changes = [
        line
        for line in difflib.ndiff(before, after)
        if line.startswith(("- ", "+ "))
    ]
    exercise, telling = subject.exercise, list[str]()
    on = subject.on | subject.mutant
    pairs = zip(subject.cases, subject.outcomes, strict=True)
    for number, (case, got) in enumerate(pairs, 1):
        was = core.expected(exercise, case, subject.seed, on)
        if not same(exercise, *(trace(exercise, case, o) for o in (was, got))):
            telling.append(case.name or f"case {number}")
    known = core.mistakes(exercise, subject.on)
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


def tidy(source: str) -> list[str]:
    """A program's lines, as far as they mean anything."""
    try:
        return ast.unparse(ast.parse(source)).splitlines()
    except SyntaxError:
        return source.splitlines()


def about_a_line(subject: Subject, rng: random.Random) -> Question | None:
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


def about_a_case(subject: Subject, rng: random.Random) -> Question:
    """Why a case came out as it did."""
    number = rng.randrange(len(subject.cases))
    case = subject.cases[number]
    right = core.expected(subject.exercise, case, subject.seed, subject.on)
    got = subject.outcomes[number]
    problem = verdict(subject.exercise, case, got, right)
    called = in_words(core.bind(subject.exercise, case)) or "no argument"
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


def about_testing(subject: Subject, rng: random.Random) -> Question:
    """How they would convince somebody."""
    names = "; ".join(case.name for case in subject.cases if case.name)
    return Question(
        "Which input would you try first to convince somebody that your "
        "function is right, and what must come out?",
        f"Not measured. What the grader tries: {names or 'one call'}.",
    )
