"""Held-out dates that the book's translator gets exactly right.

The band of the second capstone: the file that `coursekit start --at 14`
begins, complete, trained as `coursekit capstone` trains a learner's.
"""

from types import ModuleType

import torch

from coursekit_classroom.yourfile import check_translator, translator_file
from coursekit_classroom.yourfile.contracts.base import File
from results.record import options, record, summary

parser = options(__doc__, seeds=[*range(10)], steps=check_translator.STEPS)


def main() -> None:
    """Train the file with every seed."""
    args = parser.parse_args()
    torch.set_num_threads(1)
    module = ModuleType("translator_of_the_book")
    exec(translator_file.text(), module.__dict__)
    file = File(translator_file.CHAPTER, module.__dict__["parts"])
    with record("capstone_dates", args.seeds) as metrics:
        dates = check_translator.Dates()
        metrics["held_out"] = len(dates.asked)
        metrics["steps"] = args.steps
        metrics["accuracy"] = summary(
            [
                check_translator.accuracy(file, dates, seed, args.steps)
                for seed in args.seeds
            ]
        )
        print(metrics["accuracy"])


if __name__ == "__main__":
    main()
