"""What the book's own file reaches, beside which a learner's is shown.

What no contract sees, such as a weight that begins too large, shows in the
loss.  A learner's model trains for the ladder's steps if they fit into the
time, otherwise for the fewer of ``results/steps.py`` (from chapter 11 on,
``results/capstone.py``); where neither fits, the loss is printed and compared
with nothing.  Chapters 5 and 10 change no model: their bands are those of 4
and 9.
"""

import textwrap
from itertools import zip_longest
from typing import NamedTuple

from coursekit.classroom.glue import result
from coursekit.classroom.yourfile.learner import default_rate

LADDER_STEPS = 2000
# Another initialization than the book's, or another order of the draws, may
# cost as much; the parts that the ladder adds bring more.
TOLERANCE = 0.05
WIDTH = 37  # of a column of two


class Reference(NamedTuple):
    """What the book's own file reached in as many steps."""

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
    """Whether a loss is as expected, and what to say about it.

    The band reaches from the lowest to the highest of the book's seeds; a
    loss above it passes as far as TOLERANCE, one below it always.
    """
    if reference is None:
        return True, "  The book's file has no run of as many steps."
    low, high = min(reference.losses), max(reference.losses)
    band = f"the book's file: {low:.3f} to {high:.3f}, over "
    band += f"{len(reference.losses)} seeds"
    if loss <= high + TOLERANCE:
        return True, f"✓ {band}"
    return False, (
        f"✗ {band}\n    Every contract holds, so look at what they do not "
        "see: is each result\n    added to x? How do the weights begin? Is "
        "the gradient set to zero?"
    )


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
