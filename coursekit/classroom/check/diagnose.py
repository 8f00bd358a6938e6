"""Which classic mistakes give just these answers?

A reference with one switch on, or two, or those of a program that is handed
out to be fixed, is a *mutant*.  If a learner's function agrees with a mutant
on every case, in what it returns, what it raises and what it does to its
arguments, then on these inputs it is that mutant.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from coursekit.classroom.check.call import Outcome, kind
from coursekit.classroom.check.compare import difference, is_value
from coursekit.classroom.check.core import (
    NONE,
    Case,
    Exercise,
    Switches,
    expected,
)


def mutants(exercise: Exercise) -> list[Switches]:
    """Every bug alone, every compatible two, and what is planted."""
    bugs = exercise.bugs
    place = {name: bug.at or name for name, bug in bugs.items()}
    pairs = [
        frozenset((a, b))
        for a, b in combinations(bugs, 2)
        if place[a] != place[b]
    ]
    found = [frozenset((name,)) for name in bugs] + pairs
    planted = frozenset(exercise.planted)
    return found + [planted] * (len(planted) > 2)


def explanations(
    exercise: Exercise,
    cases: Sequence[Case],
    outcomes: Sequence[Outcome],
    seed: int,
    on: Switches = NONE,
) -> list[Switches]:
    """The sets of bugs that explain all outcomes, the smallest first.

    A pair that does what one of its two does alone explains nothing more,
    and is left out.

    Args:
        exercise, cases, outcomes, seed, on: as in ``checker.examine``.
    """
    traces = [
        trace(exercise, case, got)
        for case, got in zip(cases, outcomes, strict=True)
    ]
    found: list[Switches] = []
    for mutant in mutants(exercise):
        if any(one <= mutant for one in found):
            continue
        if all(
            same(
                exercise,
                got,
                trace(
                    exercise,
                    case,
                    expected(exercise, case, seed, on | mutant),
                ),
            )
            for case, got in zip(cases, traces, strict=True)
        ):
            found.append(mutant)
    return found


@dataclass(frozen=True)
class Trace:
    """What can be compared of an outcome."""

    raised: str = ""
    """The name of what was raised."""

    value: Any = None
    """The exercise's view of what was returned."""

    arguments: Mapping[str, Any] = field(default_factory=dict)
    """The arguments after the call, by name."""

    malformed: bool = False
    """Whether the answer is not of a form that can be compared."""


def trace(exercise: Exercise, case: Case, outcome: Outcome) -> Trace:
    """What can be compared of a case's outcome."""
    if outcome.error:
        return Trace(raised=kind(outcome.error))
    value = outcome.value
    if exercise.view is not None:
        try:
            value = exercise.view(value, case)
        except Exception:
            return Trace(malformed=True)
    return Trace(value=value, arguments=outcome.arguments)


def same(exercise: Exercise, a: Trace, b: Trace) -> bool:
    """Whether two outcomes of one case cannot be told apart."""
    if a.malformed or b.malformed:
        return False
    if a.raised or b.raised:
        return a.raised == b.raised
    try:
        if not alike(exercise, a.value, b.value):
            return False
    except Exception:  # an answer that is not of the right form
        return False
    return all(
        alike(exercise, a.arguments[name], value)
        for name, value in b.arguments.items()
        if is_value(value)
    )


def alike(exercise: Exercise, a: Any, b: Any) -> bool:
    """Whether two values are the same within the exercise's tolerance."""
    gap = difference(a, b, exercise.rtol, exercise.atol, equal_nan=True)
    return gap is None
