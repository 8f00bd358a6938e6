"""Diagnosis: the known mistakes that give exactly these outcomes.

A reference with one mistake in it, or two, or those of a program that is
handed out to be fixed, is a *mutant*.  If a learner's function agrees with a
mutant on every case, in what it returns, what it raises and what it does to
its arguments, then on these inputs it is that mutant.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import combinations
from typing import Any

from coursekit_classroom.check.call import (
    SAID,
    Outcome,
    kind,
    message_of,
    state,
)
from coursekit_classroom.check.compare import (
    EXACT,
    difference,
    different,
    in_form_of,
    is_value,
)
from coursekit_classroom.check.core import (
    IN_PLACE,
    NONE,
    Case,
    Exercise,
    Switches,
    draw,
    expected,
    source_of,
)
from coursekit_classroom.check.edits import EditError


@cache
def mutants(exercise: Exercise) -> Sequence[Switches]:
    """Every bug alone, every two that go together, and what is planted."""
    bugs = exercise.bugs
    switches = [frozenset((name,)) for name in bugs]
    switches += [
        frozenset(both)
        for both in combinations([n for n in bugs if not bugs[n].alone], 2)
        if go_together(exercise, *both)
    ]
    planted = frozenset(exercise.planted)
    return switches + [planted] * (len(planted) > 2)


def go_together(exercise: Exercise, *names: str) -> bool:
    """True if mistakes can be made together in one program."""
    places = [exercise.bugs[name].at or name for name in names]
    if len(set(places)) < len(places):
        return False
    try:
        for size in range(len(exercise.variants) + 1):
            for variants in combinations(exercise.variants, size):
                source_of(exercise, frozenset((*variants, *names)))
    except EditError:
        return False
    return True


class References:
    """Outcomes of a reference and its mutants on cases, each computed once.

    Args:
        exercise: whose reference it is.
        cases: on which inputs.
        seed: of the random numbers that the reference is given.
    """

    def __init__(
        self, exercise: Exercise, cases: Sequence[Case], seed: int
    ) -> None:
        self.exercise, self.cases, self.seed = exercise, cases, seed
        self._outcomes: dict[tuple[int, Switches], Outcome] = {}
        self._traces: dict[tuple[int, Switches], Trace] = {}

    def outcome(self, number: int, on: Switches = NONE) -> Outcome:
        """Outcome of the reference with these mistakes on a case."""
        key = number, on
        if key not in self._outcomes:
            case = self.cases[number]
            self._outcomes[key] = expected(self.exercise, case, self.seed, on)
        return self._outcomes[key]

    def trace(self, number: int, on: Switches) -> "Trace":
        """The comparable parts of that outcome."""
        key = number, on
        if key not in self._traces:
            case, outcome = self.cases[number], self.outcome(number, on)
            self._traces[key] = trace(self.exercise, case, outcome)
        return self._traces[key]


@lru_cache(maxsize=8)
def drawn(exercise: Exercise, seed: int) -> References:
    """An exercise's references on the cases of a seed.

    A learner who tries again, and a class on the same page, waits for them
    once. The cases are not those that the learner's function is given.
    """
    return References(exercise, draw(exercise, seed), seed)


def explanations(
    references: References,
    cases: Sequence[Case],
    outcomes: Sequence[Outcome],
    on: Switches,
    order: Sequence[int],
) -> list[Switches]:
    """The sets of bugs that explain all outcomes, the smallest first.

    A pair that does what one of its two does alone explains nothing more,
    and is left out.  So is any pair where every answer is a yes or no, a
    whole number or a word: there are more pairs than such answers.

    If nothing explains all of it, the way on which a function came to its
    results does not count. If nothing explains these either, one that changes
    an argument which has to stay as it was is compared in what it returns: it
    may be right but for that, or make another mistake besides.

    Args:
        references: of the exercise, on the same cases.
        cases: what the learner's function was given.
        outcomes: what it came to, one for each case.
        on: the variant that was asked for.
        order: of the cases; the first that differs rules a mutant out.
    """
    exercise = references.exercise
    rights = [references.outcome(n, on) for n in range(len(cases))]
    outcomes = [
        replace(got, value=in_form_of(right.value, got.value))
        for got, right in zip(outcomes, rights, strict=True)
    ]
    traces = [(n, trace(exercise, cases[n], outcomes[n])) for n in order]
    candidates = mutants(exercise)
    if all(isinstance(r.value, (bool, int, *EXACT)) for r in rights):
        candidates = [mutant for mutant in candidates if len(mutant) == 1]
    causes = explaining(references, traces, candidates, on)
    if not causes:  # another way, and a mistake on it
        traces = [(n, replace(one, other_way=False)) for n, one in traces]
        causes = explaining(references, traces, candidates, on)
    if causes or not any(
        different(got, right, exercise.keeps_models)
        for got, right in zip(outcomes, rights, strict=True)
    ):
        return causes
    loose = [
        (n, replace(one, arguments={})) for n, one in traces if not one.raised
    ]
    if len(loose) < len(traces):
        return []
    if exercise.judge is None:  # it may be right but for that
        candidates = [NONE, *candidates]
    return [
        mutant | {IN_PLACE}
        for mutant in explaining(references, loose, candidates, on)
    ]


def explaining(
    references: References,
    traces: Sequence[tuple[int, "Trace"]],
    candidates: Sequence[Switches],
    on: Switches,
) -> list[Switches]:
    """Those of some mutants that leave these traces, the smallest first."""
    explanations: list[Switches] = []
    for mutant in candidates:
        if any(one <= mutant for one in explanations):
            continue
        if all(
            same(
                references.exercise,
                got,
                references.trace(number, on | mutant),
            )
            for number, got in traces
        ):
            explanations.append(mutant)
    return explanations


@dataclass(frozen=True)
class Trace:
    """The comparable parts of an outcome."""

    raised: str = ""
    """The class of what was raised."""

    message: str = ""
    """The first line of its message."""

    value: Any = None
    """The exercise's view of what was returned."""

    arguments: Mapping[str, Any] = field(default_factory=dict)
    """The arguments after the call, by name."""

    malformed: bool = False
    """True if the answer has no form that can be compared."""

    other_way: bool = False
    """True if it was not computed in the way that is asked for."""


def trace(exercise: Exercise, case: Case, outcome: Outcome) -> Trace:
    """Extract the comparable parts of a case's outcome."""
    if outcome.error:
        return Trace(
            raised=kind(outcome.error), message=message_of(outcome.error)
        )
    value = outcome.value
    if exercise.view is not None:
        try:
            value = exercise.view(value, case)
        except Exception:
            return Trace(malformed=True)
    arguments = outcome.arguments
    if exercise.keeps_models:
        arguments = {name: state(x) for name, x in arguments.items()}
    wrong_way = exercise.manner and exercise.manner(outcome.used, case)
    return Trace(value=value, arguments=arguments, other_way=bool(wrong_way))


def same(exercise: Exercise, a: Trace, b: Trace) -> bool:
    """True if two outcomes of one case cannot be told apart."""
    if a.malformed or b.malformed or a.other_way != b.other_way:
        return False
    if a.raised or b.raised:
        silent = any(x.message.startswith(SAID[:150]) for x in (a, b))
        # The sizes that do not fit change places when the operands do.
        alike_message = sorted(a.message.split()) == sorted(b.message.split())
        return a.raised == b.raised and (silent or alike_message)
    try:
        if not alike(exercise, a.value, b.value):
            return False
    except Exception:  # an answer that is not of the right form
        return False
    return all(
        alike(exercise, a.arguments[name], value)
        for name, value in b.arguments.items()
        if a.arguments and is_value(value)
    )


def alike(exercise: Exercise, a: Any, b: Any) -> bool:
    """True if two values agree within the exercise's tolerance."""
    rtol, atol = exercise.rtol, exercise.atol
    return difference(a, b, rtol, atol, equal_nan=True, brief=True) is None
