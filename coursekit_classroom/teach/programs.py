"""Which wrong program each of a class gets.

A program is a *mutant*: a reference with one or two classic mistakes, and
perhaps another convention.  All that are given out are equally hard: the
fraction of the cases that reject one lies within 10 points of one number,
where possible between 40 and 75 %.
"""

import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from coursekit_classroom.check import core
from coursekit_classroom.check.checker import verdict
from coursekit_classroom.check.core import NONE, Exercise, Switches
from coursekit_classroom.check.diagnose import mutants
from coursekit_classroom.teach.judge import Task, right_given
from coursekit_classroom.teach.secret import Secret
from coursekit_classroom.teach.standalone import (
    NotStandaloneError,
    Standalone,
    standalone,
)

NEAR = 0.10  # of two rejection rates, for programs that are equally hard
SAME = 0.001  # of two rejection rates, for the cases of one program
DRAWS = 20  # of hidden cases, until they are as hard as was promised
BAND = (0.40, 0.75)  # of the cases: wrong, and not at first sight
ENOUGH = 10  # programs, so that neighbors rarely share one
FIX, TEST = 6, 4  # points for the program, and for the test


# -- the programs ------------------------------------------------------------
@dataclass(frozen=True)
class Program:
    """A wrong program that a student can be given."""

    id: str
    """Of the exercise."""

    bugs: Switches
    variants: Switches
    """The convention that is asked for."""

    rejection_rate: float
    """The fraction of the cases that reject it."""


def programs(
    ids: Sequence[str], secret: Secret
) -> tuple[list[Program], dict[str, str]]:
    """Every wrong program that some exercises have.

    Returns:
        the programs; and the exercises that have none, with the reason.
    """
    found, without = list[Program](), dict[str, str]()
    for id in ids:
        exercise = core.find(id)
        reason = exercise.local or ("" if exercise.bugs else "it has no bugs")
        if not reason:
            try:
                standalone(exercise)
            except NotStandaloneError as error:
                reason = str(error)
        if reason:
            without[id] = reason
            continue
        found += rejected(id, exercise, secret.seed("debug", id))
    return found, without


def rejected(id: str, exercise: Exercise, seed: int) -> list[Program]:
    """An exercise's mutants under each convention, and how many cases say no.

    A mistake that is none under a convention is left out.
    """
    found = list[Program]()
    cases = core.draw(exercise, seed)
    for on in (NONE, *(frozenset((v,)) for v in exercise.variants)):
        rights = [core.expected(exercise, c, seed, on) for c in cases]
        for bugs in mutants(exercise):
            said = [
                verdict(
                    exercise,
                    case,
                    core.expected(exercise, case, seed, on | bugs),
                    right,
                )
                for case, right in zip(cases, rights, strict=True)
            ]
            rate = sum(text is not None for text in said) / len(said)
            if rate:
                found.append(Program(id, bugs, on, rate))
    return found


def equally_hard(pool: Sequence[Program]) -> list[Program]:
    """Those that about as many cases reject as a certain one.

    A program that is wrong everywhere shows its mistake at once, one that is
    wrong here and there has to be understood.  So it is the one in the band
    that has the most near it, if these are enough to give out; otherwise it
    is the median of all.
    """
    band = [p for p in pool if BAND[0] <= p.rejection_rate <= BAND[1]]
    crowds = [near(band, one.rejection_rate) for one in band]
    found = max(crowds, key=len, default=[])
    if len(found) >= ENOUGH:
        return found
    return near(pool, median(program.rejection_rate for program in pool))


def near(pool: Sequence[Program], rate: float) -> list[Program]:
    """Those within ten points of a rate."""
    return [p for p in pool if abs(p.rejection_rate - rate) <= NEAR + 1e-9]


def distribute(
    names: Iterable[str],
    pool: Sequence[Program],
    secret: Secret,
    known: Mapping[str, Program],
) -> dict[str, Program]:
    """A program for each student; who has one keeps it.

    Each student has an order of their own of all programs, drawn from the
    secret, and gets the first of those that fewest others have.
    """
    given = {n: known[n] for n in names if n in known}
    used = Counter((p.id, p.bugs, p.variants) for p in given.values())
    for name in sorted(set(names) - set(given)):
        order = list(pool)
        random.Random(secret.seed("debug", "student", name)).shuffle(order)
        one = min(order, key=lambda p: used[p.id, p.bugs, p.variants])
        used[one.id, one.bugs, one.variants] += 1
        given[name] = one
    return given


# -- what the secret keeps ---------------------------------------------------
def entry(program: Program, function: str) -> dict[str, Any]:
    """What the secret keeps of a student's program.

    The answer's cell is marked with ``exercise``, that of the test with
    ``exercise:test``.
    """
    source = mutant(program, function)
    return {
        "debug": {
            "exercise": program.id,
            "function": function,
            "points": FIX,
            "bugs": sorted(program.bugs),
            "variants": sorted(program.variants),
            "share": round(program.rejection_rate, 4),
            "stub": source.function,
            "test": {
                "id": f"{program.id}:test",
                "function": "tells",
                "points": TEST,
            },
        },
    }


def entered(fields: Mapping[str, Any]) -> Program:
    """The program that an entry of the secret names."""
    debug = fields["debug"]
    return Program(
        debug["exercise"],
        frozenset(debug["bugs"]),
        frozenset(debug["variants"]),
        debug["share"],
    )


def mutant(program: Program, function: str) -> Standalone:
    """The source that a student gets."""
    exercise = core.find(program.id)
    on = program.variants | program.bugs
    return standalone(exercise, on, function)


# -- grading ------------------------------------------------------------------
def to_fix(
    secret: Secret, student: str, debug: Mapping[str, Any]
) -> list[Task]:
    """The program that one student has to fix, and the test for it."""
    own = mutant(entered({"debug": debug}), debug["function"])
    fix = Task(
        debug["exercise"],
        debug["function"],
        float(debug["points"]),
        core.find(debug["exercise"]),
        0,
        secret.seed("secret", debug["exercise"], student),
        frozenset(debug["variants"]),
        debug["stub"],
        frozenset(debug["bugs"]),
        setup=(own.prelude,),
    )
    drawn = dict[float, Task]()
    for number in range(DRAWS):  # as many cases reject it as was promised
        seed = secret.seed("grade", fix.id, student, number)
        task = replace(fix, seed=seed)
        drawn.setdefault(abs(rejection_rate(task) - debug["share"]), task)
        if min(drawn) < SAME:
            break
    fix, test = drawn[min(drawn)], debug["test"]
    return [
        fix,
        replace(
            fix,
            id=test["id"],
            function=test["function"],
            points=float(test["points"]),
            stub="",
            tells=True,
        ),
    ]


def rejection_rate(task: Task) -> float:
    """The fraction of hidden cases that reject it; infinite if none does."""
    right = right_given(task)
    return right.count(False) / len(right) or math.inf
