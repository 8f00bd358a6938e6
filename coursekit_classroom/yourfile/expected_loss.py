"""The losses of the book's file, with which a learner's is compared.

What no contract sees, such as a weight that begins too large, shows in the
loss.  A learner's model trains for as many steps as the book's file on the
ladder (``results/ladder.py``) and, from chapter 11 on, with the file's own
schedule (``results/minimal.py``).  Chapters 5 and 10 change no model: their
bands are those of 4 and 9.
"""

import textwrap
from itertools import zip_longest
from typing import NamedTuple

from coursekit_classroom.glue import result
from coursekit_classroom.yourfile import LADDER_STEPS

# Another initialization than the book's, or another order of the draws, may
# cost as much; the parts that the ladder adds bring more.
TOLERANCE = 0.05
WIDTH = 37  # of a column of two


class Reference(NamedTuple):
    """The book's file after the ladder's steps."""

    losses: list[float]
    """One per seed."""
    before: str
    """The sample of the file as it was before the chapter."""


def reference(chapter: int) -> Reference:
    """The losses of the book's file at a chapter."""
    metrics = result("ladder")
    rungs = [r for r in metrics["rungs"] if r["chapter"] <= chapter]
    if chapter == 1:  # the same model, on tokens of its own tokenizer
        rungs.append(metrics["tokens"])
    earlier = [r for r in rungs if r["chapter"] < chapter]
    before = (earlier or [metrics["baselines"]["uniform"]])[-1]["sample"]
    losses = rungs[-1]["loss"]["values"]
    if chapter >= 11:
        losses = result("minimal")["minimal"]["loss"]["values"]
    return Reference(losses, before)


def compare(loss: float, losses: list[float], steps: int) -> tuple[bool, str]:
    """Compare a loss with the book's; the verdict, and its text.

    It passes up to TOLERANCE above the highest of the book's seeds.  After
    another number of steps there is nothing to compare it with.
    """
    if steps != LADDER_STEPS:
        return True, (
            "  Not compared: the book's loss is the one after "
            f"{LADDER_STEPS:,} steps."
        )
    low, high = min(losses), max(losses)
    most = round(high + TOLERANCE, 3)
    band = (
        f"at most {most:.3f}; the book's file: {low:.3f} to {high:.3f}, "
        f"{len(losses)} seeds"
    )
    if round(loss, 3) <= most:
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
