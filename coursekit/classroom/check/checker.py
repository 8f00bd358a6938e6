"""Try a function on the cases of an exercise: outcomes in, a report out."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from coursekit.classroom.check.call import (
    Outcome,
    call,
    explain,
    randomness,
    unwritten,
)
from coursekit.classroom.check.compare import describe, difference, is_value
from coursekit.classroom.check.core import (
    NONE,
    Case,
    Exercise,
    Switches,
    bind,
    draw,
    find,
)
from coursekit.classroom.check.diagnose import (
    References,
    drawn,
    explanations,
)
from coursekit.classroom.check.forbid import LESSON, forbidden
from coursekit.classroom.check.report import Counterexample, Report

PLAIN = (
    "This is right for the exercise as the book has it. Here something else "
    "was asked: read the text of the exercise again."
)


def check(
    id: str, function: Any, seed: int = 0, variants: Iterable[str] = ()
) -> Report:
    """Try a learner's function on the cases of an exercise.

    Args:
        id: ``"chapter/name"``, such as ``"attention/attend"``.
        function: the learner's; it gets copies of the arguments.
        seed: draws the numbers of the cases.
        variants: names of conventions that an assignment asks for instead.

    Returns:
        a report that prints itself and says right, or what is wrong, and
        if it is a classic mistake, which.  Nothing the function raises comes
        through, except an interrupt from the keyboard.

    Raises:
        ValueError: if there is no such exercise or variant, or ``function``
            is none.
    """
    exercise, on = find(id), frozenset(variants)
    if not on <= set(exercise.variants):
        raise ValueError(
            f"a variant is one of the exercise's: got {sorted(on)} for {id}, "
            f"which has {sorted(exercise.variants) or 'none'}."
        )
    if function is None or function is Ellipsis:
        return Report(id, "not attempted", "Nothing is written yet.")
    if not callable(function):
        raise ValueError(
            f"check takes the function itself: got {describe(function)}. "
            "Give its name, without calling it."
        )
    cases = draw(exercise, seed)
    names = (*exercise.forbid, *LESSON)
    with forbidden(names, function) as allowed:
        outcomes = [call(allowed, bind(exercise, c), seed) for c in cases]
    # None may be right, or wrong, here and there: look for any value.
    first = next((o for o in outcomes if o.value is not None), outcomes[0])
    hint = unwritten(function, first)
    references = drawn(exercise, seed)
    if hint and references.outcome(0, on).value is not None:
        return Report(id, "not attempted", hint)
    return examine(id, references, cases, outcomes, on)


def examine(
    id: str,
    references: References,
    cases: Sequence[Case],
    outcomes: Sequence[Outcome],
    on: Switches = NONE,
) -> Report:
    """Report on what a function came to, wherever it ran.

    Args:
        id: the exercise's.
        references: what would have been right, on the same cases.
        cases: what the function was given.
        outcomes: one for each case.
        on: the variant that was asked for.
    """
    exercise, n = references.exercise, len(cases)
    problems = [
        verdict(exercise, case, got, references.outcome(number, on))
        for number, (case, got) in enumerate(zip(cases, outcomes, strict=True))
    ]
    if not any(problems):
        text = f"Right on {'the one case' if n == 1 else f'all {n} cases'}."
        return Report(id, "passed", text, right=n, total=n)
    # What is wrong rules most mistakes out at once.
    telling = sorted(range(n), key=lambda i: problems[i] is None)
    named = explanations(references, cases, outcomes, on, telling)
    found = failure(id, exercise, cases, outcomes, problems, named)
    if on and not named and is_plain(references, cases, outcomes):
        return replace(found, hint=PLAIN)
    return found


def is_plain(
    references: References,
    cases: Sequence[Case],
    outcomes: Sequence[Outcome],
) -> bool:
    """Whether the exercise was solved, but not the variant asked for."""
    return not any(
        verdict(references.exercise, case, got, references.outcome(number))
        for number, (case, got) in enumerate(zip(cases, outcomes, strict=True))
    )


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
    outcomes: Sequence[Outcome],
    problems: Sequence[str | None],
    named: Sequence[Switches],
) -> Report:
    """Report on the first case that is not right, and on the cause."""
    number = next(i for i, problem in enumerate(problems) if problem)
    case, n, right = cases[number], len(cases), problems.count(None)
    called = [
        f"{name} {describe(value)}".replace(" a tensor ", " ")
        for name, value in bind(exercise, case).arguments.items()
    ]
    lines = [f"Case {number + 1} of {n}" + f": {case.name}." * bool(case.name)]
    if called:
        lines.append(f"Called with {', '.join(called)}.")
    lines.append(problems[number] or "")
    if right:
        lines.append(f"Right on {right} of {n} cases.")
    return Report(
        id,
        "error" if outcomes[number].error else "wrong",
        "\n".join(lines),
        Counterexample(case.name, case.args, case.kwargs),
        right=right,
        total=n,
        diagnosis=named[0] if named else NONE,
        mistakes=[[exercise.bugs[b] for b in sorted(on)] for on in named],
        sought=bool(exercise.bugs),
        partly_seen=exercise.view is not None,
    )
