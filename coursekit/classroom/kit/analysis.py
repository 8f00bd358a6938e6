"""What the answers to the inventory of concepts say.

``coursekit kit analyze answers.csv`` reads a file with a row for each person
and time: ``person``, ``when`` (``before`` or ``after``), ``form`` (``A`` or
``B``) and ``q1`` to ``q20``, a letter or nothing.  What is computed, and how
a file is read, is that of :mod:`coursekit.classroom.pilot.analysis`.
"""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from coursekit.classroom.kit import FORMS, inventory
from coursekit.classroom.pilot.analysis import (
    ENOUGH,
    Right,
    discrimination,
    gain,
    gain_interval,
    kr20,
    read,
)

__all__ = ["ENOUGH", "interval", "report"]

DRAWS = 2000
WARNING = (
    "The inventory is not yet validated with students: these numbers are\n"
    "about the form as much as about those who answered it."
)


def interval(
    right: Right,
    measure: Callable[[Right], float],
    draws: int = DRAWS,
    seed: int = 0,
) -> tuple[float, float]:
    """A 95 % percentile interval of a measure: persons are drawn again.

    Args:
        right: (persons, items), True where the answer was right.
        measure: gives a number for such answers.
        draws: how many samples of persons, with replacement.
        seed: of the draws.

    Returns:
        Lower and upper end; samples in which the measure is not defined are
        left out, and both ends are NaN if it never is.
    """
    generator = np.random.default_rng(seed)
    chosen = generator.integers(len(right), size=(draws, len(right)))
    values = np.array([measure(right[who]) for who in chosen])
    values = values[np.isfinite(values)]
    if not len(values):
        return float("nan"), float("nan")
    low, high = np.quantile(values, (0.025, 0.975))
    return float(low), float(high)


def _between(ends: tuple[float, float], persons: int) -> str:
    """An interval; of one person, who is drawn each time, there is none."""
    low, high = ends
    return f"({low:.2f} to {high:.2f})" if persons > 1 else ""


def report(path: Path, discriminate: bool = False) -> str:
    """All of it as plain text.

    Args:
        path: the answers.
        discriminate: whether to add how each item goes with the others.

    Raises:
        ValueError: if the file cannot be used, or there are too few people
            for what is asked.
    """
    forms = {form: inventory(form) for form in FORMS}
    keys = {form: [i.key for i in items] for form, items in forms.items()}
    before, after = read(path, keys)
    people = f"{len(before)} person{'s' * (len(before) > 1)}"
    lines = [WARNING, "", people, ""]
    lines.append("item  before  after (95 % of draws)  about")
    for n, item in enumerate(forms[FORMS[0]]):
        ends = interval(after[:, [n]], lambda right: float(right.mean()))
        lines.append(
            f"{n + 1:4}  {before[:, n].mean():6.2f}  {after[:, n].mean():5.2f}"
            f" {_between(ends, len(after)):15}  {item.about}"
        )
    gained = _between(gain_interval(before, after), len(before))
    lines += [
        "",
        f"mean score: {before.mean():.2f} before, {after.mean():.2f} after",
        f"normalized gain: {gain(before, after):.2f} {gained}".rstrip(),
    ]
    for when, right in (("before", before), ("after", after)):
        around, found = (
            _between(interval(right, kr20), len(right)),
            kr20(right),
        )
        lines.append(
            f"KR-20 {when}: {found:.2f} {around}".rstrip()
            if math.isfinite(found)
            else f"KR-20 {when}: not defined where all have the same score"
        )
    if discriminate:
        each = " ".join(f"{r:.2f}" for r in discrimination(after))
        lines.append(f"discrimination after: {each}")
    return "\n".join(lines)
