"""The engine of the exercises: cases in, a report out.

An exercise is a reference, which is plain and right, and ``cases(seed)``,
which draws the inputs.  :func:`check` calls the learner's function and the
reference on copies of the same inputs, with the same random numbers
(``call.py``), compares what comes back (``compare.py``), and reports on the
first case that is not right (``report.py``).
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import torch

from coursekit.exercises.call import (
    Function,
    Outcome,
    call,
    explain,
    randomness,
    unwritten,
)
from coursekit.exercises.compare import describe, difference, is_value
from coursekit.exercises.report import Counterexample, Report

TOOLS = {"core", "call", "compare", "report"}  # the rest are chapters

Judge = Callable[[Any, "Case"], str | None]


@dataclass(frozen=True)
class Case:
    """One call: ``function(*args, **kwargs)``."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    """Says to the learner what this case tries: "two sentences"."""


@dataclass(frozen=True)
class Exercise:
    """What is right, and on which inputs to look."""

    reference: Function
    """Right, short, and called just as the learner's function is.

    It also sets the contract for arguments: what it leaves as it was, the
    learner's function has to leave as well.
    """

    cases: Callable[[int], Sequence[Case]]
    """``cases(seed)``: the same for the same seed, others for another."""

    rtol: float = 1e-6
    """How far a number may be off, relative to the right one."""

    atol: float = 1e-9
    """How far any number may be off."""

    judge: Judge | None = None
    """Replaces the comparison where many answers are right.

    ``judge(value, case)`` is None if the value is right, else one sentence
    that says what is wrong with it.
    """


def generator(seed: int) -> torch.Generator:
    """A source of random numbers for drawing cases."""
    return torch.Generator().manual_seed(seed)


def check(id: str, function: Any, seed: int = 0) -> Report:
    """Try a learner's function on the cases of an exercise.

    Args:
        id: ``"chapter/name"``, such as ``"attention/attend"``.
        function: the learner's; it gets copies of the arguments.
        seed: draws the numbers of the cases.

    Returns:
        a report that prints itself.  Nothing the function raises comes
        through, except an interrupt from the keyboard.

    Raises:
        ValueError: if there is no such exercise, or ``function`` is none.
    """
    exercise = find(id)
    if function is None or function is Ellipsis:
        return Report(id, "not attempted", "Nothing is written yet.")
    if not callable(function):
        raise ValueError(
            f"check takes the function itself: got {describe(function)}. "
            "Give its name, without calling it."
        )
    cases = draw(exercise, seed)
    found: list[tuple[int, Outcome, str]] = []
    for number, case in enumerate(cases):
        got, expected = outcomes(exercise, function, case, seed)
        is_first = number == 0 and expected.value is not None
        if is_first and (hint := unwritten(function, got)):
            return Report(id, "not attempted", hint)
        if problem := verdict(exercise, case, got, expected):
            found.append((number, got, problem))
    if not found:
        n = "the one case" if len(cases) == 1 else f"all {len(cases)} cases"
        return Report(id, "passed", f"Right on {n}.")
    return failure(id, exercise, cases, found)


def find(id: str) -> Exercise:
    """The exercise of that id.

    Raises:
        ValueError: if there is none; it names those that are near.
    """
    chapter, _, name = str(id).partition("/")
    if chapter in chapters() and name in exercises(chapter):
        return exercises(chapter)[name]
    known = [f"{c}/{n}" for c in chapters() for n in exercises(c)]
    near = get_close_matches(str(id), known, 7, 0.5)
    raise ValueError(
        f"an exercise's id is chapter/name: got {id!r}, and there is no such "
        + (f"exercise. Near it: {', '.join(near)}." if near else "chapter. ")
        + (f"There are {', '.join(chapters())}." if not near else "")
    )


def chapters() -> list[str]:
    """Names of the chapters that have exercises to check."""
    here = importlib.import_module("coursekit.exercises").__path__
    return sorted({m.name for m in pkgutil.iter_modules(here)} - TOOLS)


def exercises(chapter: str) -> Mapping[str, Exercise]:
    """A chapter's exercises by name."""
    module = importlib.import_module(f"coursekit.exercises.{chapter}")
    found: Mapping[str, Exercise] = module.EXERCISES
    return found


def draw(exercise: Exercise, seed: int) -> Sequence[Case]:
    """An exercise's cases, even if a module starts itself at random."""
    with randomness(seed):
        return exercise.cases(seed)


def bind(exercise: Exercise, case: Case) -> inspect.BoundArguments:
    """A case's arguments, by the names that the reference gives them."""
    signature = inspect.signature(exercise.reference)
    return signature.bind(*case.args, **case.kwargs)


def outcomes(
    exercise: Exercise, function: Function, case: Case, seed: int
) -> tuple[Outcome, Outcome]:
    """What a function, and the reference, come to on a case."""
    arguments = bind(exercise, case)
    expected = call(exercise.reference, arguments, seed)
    if expected.error is not None:
        raise expected.error  # the author's mistake, not the learner's
    return call(function, arguments, seed), expected


def verdict(
    exercise: Exercise, case: Case, got: Outcome, expected: Outcome
) -> str | None:
    """None if an outcome is right, else what is wrong with it."""
    if got.error is not None:
        return f"It raised {explain(got.error)}"
    problem = judged(exercise, case, got.value, expected.value)
    if problem:
        return problem
    for name, right in expected.arguments.items():
        now = got.arguments[name]
        if is_value(right) and difference(
            now, right, 0.0, 0.0, equal_nan=True
        ):
            return (
                f"The result is right, but the argument {name} is not what "
                "it should be after the call. Was it changed in place?"
            )
    return None


def judged(
    exercise: Exercise, case: Case, got: Any, expected: Any
) -> str | None:
    """None if a value is right, else what is wrong with it."""
    try:
        if exercise.judge is None:
            return difference(got, expected, exercise.rtol, exercise.atol)
        with randomness(0):
            return exercise.judge(got, case)
    except Exception as error:  # not of a form that can be judged
        if not is_value(expected) and exercise.judge is None:
            raise  # nothing to compare with: the author's mistake
        return (
            f"Expected something like {describe(expected)}, got "
            f"{describe(got)} ({explain(error).splitlines()[0]})."
        )


def failure(
    id: str,
    exercise: Exercise,
    cases: Sequence[Case],
    found: Sequence[tuple[int, Outcome, str]],
) -> Report:
    """Report on the first case that is not right."""
    number, got, problem = found[0]
    case, n = cases[number], len(cases)
    called = [
        f"{name} {describe(value)}".replace(" a tensor ", " ")
        for name, value in bind(exercise, case).arguments.items()
    ]
    lines = [f"Case {number + 1} of {n}" + f": {case.name}." * bool(case.name)]
    if called:
        lines.append(f"Called with {', '.join(called)}.")
    lines.append(problem)
    if len(found) < n:
        lines.append(f"Right on {n - len(found)} of {n} cases.")
    status = "wrong" if got.error is None else "error"
    example = Counterexample(case.name, case.args, case.kwargs)
    return Report(id, status, "\n".join(lines), example)
