"""The losses of the book's file, with which a learner's is compared.

What no contract sees, such as a weight that begins too large, shows in the
loss.  A learner's model trains for the ladder's steps if they fit into the
time, otherwise for the fewer of ``results/steps.py`` (from chapter 11 on,
``results/capstone.py``); where neither fits, the loss is printed and compared
with nothing.  Chapters 5 and 10 change no model: their bands are those of 4
and 9.
"""

import math
import textwrap
from itertools import zip_longest
from typing import NamedTuple

from coursekit_classroom.glue import result
from coursekit_classroom.yourfile.contracts.base import default_rate

LADDER_STEPS = 2000
# Another initialization than the book's, or another order of the draws, may
# cost as much; the parts that the ladder adds bring more.
TOLERANCE = 0.05
WIDTH = 37  # of a column of two


class Reference(NamedTuple):
    """A run of the book's file."""

    steps: int
    rate: float | None
    """None from chapter 11 on, where the file has its own schedule."""
    losses: list[float]
    """One per seed."""
    before: str
    """The sample of what stood in the file before."""


def references(chapter: int) -> list[Reference]:
    """Runs of the book's file at a chapter, the longest first.

    The ladder's, and shorter ones with a higher learning rate; from chapter
    11 on, those of the file's own schedule.
    """
    if chapter >= 11:
        long, short = references(10)
        losses = result("minimal")["minimal"]["loss"]["values"]
        long = long._replace(rate=None, losses=losses)
        finished = result("capstone")
        short = short._replace(rate=None, losses=finished["loss"]["values"])
        return [long, short]
    found = []
    for name in ("ladder", "steps"):
        metrics = result(name)
        rungs = [r for r in metrics["rungs"] if r["chapter"] <= chapter]
        if chapter == 1:  # the same model, on tokens of its own tokenizer
            rungs.append(metrics["tokens"])
        before = [r for r in rungs if r["chapter"] < chapter]
        before = before or [metrics["baselines"]["uniform"]]
        found.append(
            Reference(
                metrics.get("steps", LADDER_STEPS),
                rungs[-1].get("rate", default_rate(chapter)),
                rungs[-1]["loss"]["values"],
                before[-1]["sample"],
            )
        )
    return found


def compare(loss: float, reference: Reference | None) -> tuple[bool, str]:
    """Compare a loss with the expected one; the verdict, and its text.

    It passes up to TOLERANCE above the highest of the book's seeds.
    """
    if reference is None:
        return True, "  Not compared: the book's file has no such short run."
    low, high = min(reference.losses), max(reference.losses)
    most = round(high + TOLERANCE, 3)
    band = (
        f"at most {most:.3f}; the book's file after {reference.steps:,} "
        f"steps: {low:.3f} to {high:.3f}, {len(reference.losses)} seeds"
    )
    if round(loss, 3) <= most:
        return True, f"✓ {band}"
    return False, (
        f"✗ {band}\n    Every contract holds, so look at what they do not "
        "see: is each result\n    added to x? How do the weights begin? Is "
        "the gradient set to zero?"
    )


def more_time(steps: int, per_step: float, known: list[Reference]) -> str:
    """A line that says how to get the book's next longer run; or nothing.

    Args:
        steps: how many there were.
        per_step: how long one takes, in seconds.
        known: the book's runs, the longest first.
    """
    longer = [run.steps for run in known if run.steps > steps]
    if not longer:
        return ""
    needed = seconds_for(longer[-1], per_step)
    return (
        "    Losses after other numbers of steps do not compare. For "
        f"{longer[-1]:,} steps,\n    as the book has them: --seconds "
        f"{needed}, in Python seconds={needed}.\n"
    )


def steps_in(seconds: float, per_step: float) -> int:
    """Count the steps that keep within a time limit."""
    return max(1, int(0.8 * seconds / per_step))


def seconds_for(steps: int, per_step: float) -> int:
    """A limit in which that many steps are begun, on a slower day too."""
    return 10 * math.ceil(steps * per_step * 1.2 / 0.8 / 10)


def columns(texts: dict[str, str]) -> str:
    """Texts side by side under their titles."""
    wrap = textwrap.TextWrapper(WIDTH).wrap
    cells = [
        [title, "-" * WIDTH]
        + [row for line in text.splitlines() for row in wrap(line) or [""]]
        for title, text in texts.items()
    ]
    rows = zip_longest(*cells, fillvalue="")
    return "\n".join(
        "   ".join(f"{cell:{WIDTH}}" for cell in row).rstrip() for row in rows
    )
