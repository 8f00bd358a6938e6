"""``make fuzz SECONDS=600``; a case again: ``make fuzz ONLY=norm SEED=7``.

Each target gets the same time, and its turn however short the time is.  The
exit code is 1 if anything was wrong.
"""

import argparse
import random
import sys
import time
from itertools import count

from tests.fuzz import TARGETS, draw, run

LEAST, MOST = 1, 20  # seconds for one target, until it is another's turn


def options():
    """What to run."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--only", choices=TARGETS, metavar="TARGET")
    parser.add_argument("--seed", type=int, help="of one case: run it again")
    parser.add_argument("--first", type=int, help="seed of the first cases")
    return parser


def kind(problem):
    """Where it was raised, and what; of many alike one is shown."""
    lines = problem.rstrip().splitlines()
    places = [line for line in lines if line.startswith("  File ")]
    return *places[-1:], lines[-1].partition(":")[0]


def main():
    """Run until the time is over, then say what was found."""
    args = options().parse_args()
    if args.seed is not None:
        if not args.only:
            options().error("a seed is of one target's case: say --only, too")
        draw(args.only, args.seed)
        print(f"{args.only} {args.seed}: nothing is wrong")
        return 0
    first = args.first
    if first is None:
        first = random.SystemRandom().randrange(10**9)
    print(f"seeds from {first}", flush=True)
    names = [args.only] if args.only else list(TARGETS)
    seeds = {name: count(first) for name in names}
    known = set()
    spent, cases, wrong = (dict.fromkeys(names, 0) for _ in range(3))
    turn = min(MOST, args.seconds / len(names))
    end = time.monotonic() + args.seconds
    while (now := time.monotonic()) < end or not all(spent.values()):
        name = min(names, key=spent.get)
        seconds = max(LEAST, min(turn, end - now))
        for seed, problem in run(name, seeds[name], seconds):
            cases[name] += 1
            if problem:
                wrong[name] += 1
                if (name, kind(problem)) not in known:
                    known.add((name, kind(problem)))
                    print(f"\n{problem.rstrip()}")
                    print(f"make fuzz ONLY={name} SEED={seed}", flush=True)
        spent[name] += time.monotonic() - now
    print("\ntarget            cases  failures  seconds")
    for name in names:
        row = cases[name], wrong[name], spent[name]
        print("{:16} {:6,} {:9,} {:8.1f}".format(name, *row))
    print(f"seeds from {first}")
    return int(any(wrong.values()))


if __name__ == "__main__":
    sys.exit(main())
