"""A known recipe for a CPU, a faster one, and what each change gives.

The same functions as `coursekit speedrun --trials`. The text is not in the
repository: COURSEKIT_DATA names its folder, or it is fetched.
"""

import argparse

import torch

from coursekit import speedrun
from results.record import record


def parser() -> argparse.ArgumentParser:
    """The options of the command that a result names."""
    options = argparse.ArgumentParser(description=__doc__)
    speedrun.add_options(options)
    options.set_defaults(trials=True)
    return options


def main() -> None:
    """Run it, with two threads: that is what the recipe's time is of."""
    args = parser().parse_args()
    if args.quick:
        raise SystemExit(
            "a result needs all its steps: got --quick. Use "
            "`coursekit speedrun --quick` to try."
        )
    torch.set_num_threads(args.threads)
    with record("speedrun", range(args.seeds)) as metrics:
        metrics |= speedrun.measure(args, lambda text: print(text, flush=True))
    print(speedrun.race_table(metrics), speedrun.verdict(metrics), sep="\n\n")


if __name__ == "__main__":
    main()
