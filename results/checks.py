"""Every mistake of each exercise against every case.

    python -m results.checks            # writes results/checks.json
    python -m results.checks --list     # shows it: x where a case rejects

``tests/answers/test_answers.py`` plays the mistakes again and compares.
"""

from itertools import combinations

import torch

from coursekit_classroom.check import core
from coursekit_classroom.check.checker import verdict
from coursekit_classroom.check.diagnose import mutants, same, trace
from coursekit_classroom.glue import result
from results.record import options, record

SEED = 0  # of the cases: what a reader gets who names no other


parser = options(__doc__)
parser.add_argument("--list", action="store_true")


def matrix(exercise):
    """Play every mistake of an exercise, and every two that go together."""
    cases = core.draw(exercise, SEED)
    rights = [core.expected(exercise, case, SEED) for case in cases]
    played = {
        on: [core.expected(exercise, case, SEED, on) for case in cases]
        for on in mutants(exercise)
        if len(on) <= 2
    }
    rows = {
        on: "".join(
            "x" if verdict(exercise, *seen) is not None else "."
            for seen in zip(cases, found, rights, strict=True)
        )
        for on, found in played.items()
    }
    traces = [
        [trace(exercise, *seen) for seen in zip(cases, found, strict=True)]
        for found in played.values()
    ]
    return {
        "cases": [case.name or "the only case" for case in cases],
        "bugs": {
            bug.says: rows[frozenset((name,))]
            for name, bug in exercise.bugs.items()
        },
        "n_pairs": len(rows) - len(exercise.bugs),
        "n_rejected": sum("x" in row for row in rows.values()),
        # How many two of these some case tells apart.
        "n_apart": sum(
            not all(same(exercise, *both) for both in zip(a, b, strict=True))
            for a, b in combinations(traces, 2)
        ),
        # How many two nothing can tell apart, for a known reason.
        "n_alike": len(exercise.alike),
    }


def main():
    """Play the mistakes of every exercise that has some."""
    if parser.parse_args().list:
        for id, found in result("checks").items():
            print(id)
            for number, case in enumerate(found["cases"], 1):
                print(f"  input {number}: {case}")
            for says, row in found["bugs"].items():
                print(f"  {row}  {says}")
        return
    torch.set_num_threads(1)
    with record("checks", [SEED]) as metrics:
        for chapter in core.chapters():
            for name, exercise in core.exercises(chapter).items():
                if exercise.bugs:
                    metrics[f"{chapter}/{name}"] = matrix(exercise)


if __name__ == "__main__":
    main()
