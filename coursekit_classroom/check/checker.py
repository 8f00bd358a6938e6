"""Try a function on the cases of an exercise: outcomes in, a report out."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from coursekit_classroom.check.call import (
    Outcome,
    TooLong,
    at_most,
    call,
    explain,
    raised_in,
    randomness,
    unwritten,
    usual_device,
)
from coursekit_classroom.check.compare import (
    describe,
    difference,
    different,
    in_form_of,
    is_value,
)
from coursekit_classroom.check.core import (
    BOOK,
    NONE,
    Case,
    Exercise,
    Switches,
    bind,
    draw,
    find,
    mistakes,
)
from coursekit_classroom.check.diagnose import (
    References,
    drawn,
    explanations,
)
from coursekit_classroom.check.forbid import LESSON, forbidden
from coursekit_classroom.check.report import Counterexample, Report

AS_IN_THE_BOOK = (
    "The book's own solution is right on these, too, so they earn no points."
)
ELSE = "This would be right if something else had been asked:"


@usual_device()
@forbidden(())  # whatever a check forbids whose answer calls this
def check(
    id: str,
    function: Any,
    seed: int = 0,
    variants: Iterable[str] = (),
    *,
    limit: float = 30.0,
) -> Report:
    """Try a learner's function on the cases of an exercise.

    Args:
        id: ``"chapter/name"``, such as ``"attention/attend"``.
        function: the learner's; it gets copies of the arguments.
        seed: draws the numbers of the cases.
        variants: names of conventions that an assignment asks for instead.
        limit: for how many seconds the function may run, all cases together,
            before it is stopped; ∞ for no limit.  A loop is stopped on the
            main thread (a notebook's cells run there), except on Windows; a
            single operation of PyTorch always runs to its end.

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
    outcomes: list[Outcome] = []
    try:
        with randomness(seed), at_most(limit):
            for case in cases:
                bound = bind(exercise, case)
                watched = exercise.manner is not None
                with forbidden(names) as allowed:
                    outcomes.append(
                        call(allowed(function), bound, seed, watched)
                    )
    except TooLong:
        return stopped(id, cases, len(outcomes), limit)
    # None may be right, or wrong, here and there: look for any value.
    first = next((o for o in outcomes if o.value is not None), outcomes[0])
    hint = unwritten(function, first)
    references = drawn(exercise, seed)
    if hint and references.outcome(0, on).value is not None:
        return Report(id, "not attempted", hint)
    return examine(id, references, cases, outcomes, on)


def stopped(
    id: str, cases: Sequence[Case], number: int, limit: float
) -> Report:
    """Report on a function that did not come to an end."""
    case, n = cases[number], len(cases)
    text = (
        f"{headline(case, number, n)}\nIt was stopped after {limit:g} s. "
        "Is there a loop that never ends? If it is only slow, give it more "
        "time: check(…, limit=300)."
    )
    example = Counterexample(case.name, case.args, case.kwargs)
    return Report(id, "error", text, example, total=n)


@randomness(0)
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
    if on and solved(references, cases, outcomes, NONE):
        named = [frozenset((BOOK,))]
    else:
        # What is wrong rules most mistakes out at once.
        telling = sorted(range(n), key=lambda i: problems[i] is None)
        named = explanations(references, cases, outcomes, on, telling)
    result = failure(id, exercise, cases, outcomes, problems, named, on)
    if result.right and on and as_in_the_book(references, problems, on):
        message = f"{result.message} {AS_IN_THE_BOOK}"
        result = replace(result, right=0, message=message)
    if named or exercise.judge:
        return result
    for name, variant in exercise.variants.items():
        other = frozenset((name,))
        if other != on and solved(references, cases, outcomes, other):
            hint = f"{ELSE} {variant.asks}"
            return replace(result, hint=hint, diagnosis=other)
    return result


def as_in_the_book(
    references: References, problems: Sequence[str | None], on: Switches
) -> bool:
    """True if the book's solution is right on every case an answer is."""
    return not any(
        problem is None
        and verdict(
            references.exercise,
            references.cases[number],
            references.outcome(number),
            references.outcome(number, on),
        )
        for number, problem in enumerate(problems)
    )


def solved(
    references: References,
    cases: Sequence[Case],
    outcomes: Sequence[Outcome],
    on: Switches,
) -> bool:
    """True if the answer solves this variant."""
    exercise = references.exercise
    return not any(
        verdict(exercise, case, got, references.outcome(number, on))
        for number, (case, got) in enumerate(zip(cases, outcomes, strict=True))
    )


def verdict(
    exercise: Exercise, case: Case, got: Outcome, expected: Outcome
) -> str | None:
    """None if an outcome is right, else what is wrong with it."""
    if got.error is not None:
        return f"It raised {explain(got.error)}"
    problem = judged(exercise, case, got.value, expected.value)
    if problem is None and exercise.manner is not None:
        problem = exercise.manner(got.used, case)
    if problem:
        return problem
    changed = different(got, expected, exercise.keeps_models)
    if not changed:
        return None
    return (
        f"The result is right, but the argument {changed} is not what "
        "it should be after the call. Was it changed in place?"
    )


def judged(
    exercise: Exercise, case: Case, got: Any, expected: Any
) -> str | None:
    """None if a value is right, else what is wrong with it."""
    got = in_form_of(expected, got)
    if exercise.words and isinstance(got, str) and got not in exercise.words:
        words = ", ".join(map(repr, exercise.words))
        return f"Expected one of {words}, written like this: got {got!r}."
    try:
        if exercise.judge is None:
            return difference(got, expected, exercise.rtol, exercise.atol)
        with randomness(0):
            return exercise.judge(got, case)
    except Exception as error:  # not of a form that can be judged
        if not is_value(expected) and exercise.judge is None:
            raise  # nothing to compare with: the author's mistake
        if line := raised_in(error, exercise.reference):
            text = explain(error).splitlines()[0]
            return f"What it returned raised {text}\n{line}"
        return (
            f"Expected something like {describe(expected)}, got "
            f"{describe(got)} ({explain(error).splitlines()[0]})."
        )


def headline(case: Case, number: int, n: int) -> str:
    """``Case 2 of 5: a long text.``"""
    return f"Case {number + 1} of {n}" + f": {case.name}." * bool(case.name)


def failure(
    id: str,
    exercise: Exercise,
    cases: Sequence[Case],
    outcomes: Sequence[Outcome],
    problems: Sequence[str | None],
    named: Sequence[Switches],
    on: Switches,
) -> Report:
    """Report on the first case that is not right, and on the cause."""
    number = next(i for i, problem in enumerate(problems) if problem)
    case, n, right = cases[number], len(cases), problems.count(None)
    by_name = mistakes(exercise, on)
    yes_or_no = all(isinstance(o.value, bool) for o in outcomes)
    called = [
        f"{name} {describe(value)}".replace(" a tensor ", " ")
        for name, value in bind(exercise, case).arguments.items()
    ]
    lines = [headline(case, number, n)]
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
        mistakes=[[by_name[b] for b in sorted(on)] for on in named],
        sought=bool(exercise.bugs),
        partly_seen=exercise.view is not None or yes_or_no,
    )
