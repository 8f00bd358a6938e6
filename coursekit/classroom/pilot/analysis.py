"""What the answers of a pilot say.

    python -m coursekit.classroom.pilot.analysis answers.csv

The file has a row for each person and time, with the columns ``person``,
``when`` (``before`` or ``after``) and ``q1`` to ``q10``: a letter, or nothing
where no option was chosen, which counts as wrong.
"""

import argparse
import csv
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coursekit.classroom.pilot import LETTERS, items

__all__ = [
    "ENOUGH",
    "Right",
    "discrimination",
    "gain",
    "gain_interval",
    "kr20",
    "read",
    "report",
]

Right = NDArray[np.bool_]

TIMES = ("before", "after")
ENOUGH = 30  # persons for discrimination
DRAWS = 10_000


def read(
    path: Path, keys: Mapping[str, Sequence[str]] | None = None
) -> tuple[Right, Right]:
    """Read the answers and score them.

    Args:
        path: a CSV file, in UTF-8.
        keys: the right letters of each form, where people may get different
            forms; the file then has a column ``form`` behind ``when``.

    Returns:
        Before and after, each of shape (persons, items), persons in the order
        in which they first appear: was the right option chosen?

    Raises:
        ValueError: with the rule, what was received, and the remedy.
    """
    keys = keys or {"": [item.key for item in items()]}
    n_items = len(next(iter(keys.values())))
    form = [] if "" in keys else ["form"]
    wanted = ["person", "when", *form]
    wanted += [f"q{n}" for n in range(1, n_items + 1)]
    rows = _rows(path)
    if not rows or rows[0] != wanted:
        raise ValueError(
            f"the first line must be {','.join(wanted)}: got "
            f"{','.join(rows[0]) if rows else 'an empty file'!r}. Name the "
            "columns so, in this order."
        )
    found: dict[str, dict[str, list[bool]]] = {}
    for number, row in enumerate(rows[1:], 2):
        _check_row(number, row, len(wanted), n_items)
        person, when, *_ = row
        key = keys[_form(number, row, keys)]
        times = found.setdefault(person, {})
        if when in times:
            raise ValueError(
                f"a person has one row for each time: got {person!r}, {when}, "
                f"again in line {number}. Delete one of the two."
            )
        chosen = row[-n_items:]
        times[when] = [a == k for a, k in zip(chosen, key, strict=True)]
    _check_pairs(found)
    before, after = (
        np.array([times[when] for times in found.values()]) for when in TIMES
    )
    return before, after


def _form(
    number: int, row: Sequence[str], keys: Mapping[str, Sequence[str]]
) -> str:
    """The form that a row answers; raise if there is no such form."""
    form = "" if "" in keys else row[2]
    if form not in keys:
        raise ValueError(
            f"a form is one of {', '.join(keys)}: got {form!r} in line "
            f"{number}. Write which one was answered."
        )
    return form


def _rows(path: Path) -> list[list[str]]:
    """The cells of a CSV file; raise if it is none."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return list(csv.reader(file))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(
            f"the answers must be a CSV file in UTF-8: got {path.name!r}, "
            f"{error}. Save the sheet in this format."
        ) from None


def _check_row(
    number: int, row: Sequence[str], width: int, n_items: int
) -> None:
    """Raise if a row has other cells than the form allows."""
    if len(row) != width:
        raise ValueError(
            f"a row has {width} cells: got {len(row)} in line {number}. Write "
            "nothing between two commas where no option was chosen."
        )
    person, when, *_ = row
    if not person or when not in TIMES:
        raise ValueError(
            f"a row begins with a person and one of {', '.join(TIMES)}: got "
            f"{person!r} and {when!r} in line {number}. Correct the line."
        )
    for n, answer in enumerate(row[-n_items:], 1):
        if answer not in ("", *LETTERS):
            raise ValueError(
                f"an answer is one of {', '.join(LETTERS)}, or nothing: got "
                f"{answer!r} for q{n} in line {number}. Correct the cell."
            )


def _check_pairs(found: dict[str, dict[str, list[bool]]]) -> None:
    """Raise if there is nobody, or if somebody answered only once."""
    if not found:
        raise ValueError(
            "the file must have answers: got no row below the first line. "
            "Add two rows for each person."
        )
    for person, times in found.items():
        if len(times) < len(TIMES):
            raise ValueError(
                f"each person answers before and after: got only "
                f"{next(iter(times))!r} of {person!r}. Add the other row, or "
                "leave the person out and say so."
            )


def gain(before: Right, after: Right) -> float:
    """The normalized gain, (after − before) / (1 − before), of mean scores.

    Args:
        before: (persons, items), True where the answer was right.
        after: the same persons and items.

    Returns:
        How much of what could be gained was gained; NaN where all was right
        before.
    """
    first, last = float(before.mean()), float(after.mean())
    return (last - first) / (1 - first) if first < 1 else float("nan")


def gain_interval(
    before: Right, after: Right, draws: int = DRAWS, seed: int = 0
) -> tuple[float, float]:
    """A 95 % percentile interval of the gain: persons are drawn again.

    Args:
        before: (persons, items), True where the answer was right.
        after: the same persons and items.
        draws: how many samples of persons, with replacement.
        seed: of the draws.

    Returns:
        Lower and upper end; samples in which the gain is not defined are
        left out.
    """
    generator = np.random.default_rng(seed)
    chosen = generator.integers(len(before), size=(draws, len(before)))
    gains = np.array([gain(before[who], after[who]) for who in chosen])
    low, high = np.nanquantile(gains, (0.025, 0.975))
    return float(low), float(high)


def kr20(right: Right) -> float:
    """Kuder and Richardson's formula 20, k/(k − 1) · (1 − Σ pᵢ(1 − pᵢ) / σ²).

    Args:
        right: (persons, items), True where the answer was right.

    Returns:
        The reliability, with k items, the fraction pᵢ who had item i right,
        and the variance σ² of the persons' scores (divided by their number);
        NaN if all have the same score.
    """
    k, p = right.shape[1], right.mean(0)
    variance = float(right.sum(1).var())
    if variance == 0:
        return float("nan")
    return k / (k - 1) * (1 - float((p * (1 - p)).sum()) / variance)


def discrimination(right: Right) -> NDArray[np.float64]:
    """How each item goes with the rest of the form: a correlation per item.

    Args:
        right: (persons, items), True where the answer was right.

    Returns:
        The correlation of each item with the score on all others; NaN where
        one of the two does not vary.

    Raises:
        ValueError: fewer than 30 persons, where chance decides.
    """
    if len(right) < ENOUGH:
        raise ValueError(
            f"discrimination needs at least {ENOUGH} persons: got "
            f"{len(right)}. Report difficulty and gain alone."
        )
    rest = right.sum(1, keepdims=True) - right
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.array(
            [
                np.corrcoef(x, y)[0, 1]
                for x, y in zip(right.T, rest.T, strict=True)
            ]
        )


def report(before: Right, after: Right) -> str:
    """All of it as plain text."""
    lines = [f"{len(before)} persons", "", "item  before  after  about"]
    rows = zip(items(), before.mean(0), after.mean(0), strict=True)
    for n, (item, first, last) in enumerate(rows, 1):
        lines.append(f"{n:4}  {first:6.2f}  {last:5.2f}  {item.about}")
    low, high = gain_interval(before, after)
    lines += [
        "",
        f"mean score: {before.mean():.2f} before, {after.mean():.2f} after",
        f"normalized gain: {gain(before, after):.2f}"
        f" (95 % of draws of persons: {low:.2f} to {high:.2f})",
        f"KR-20: {kr20(before):.2f} before, {kr20(after):.2f} after",
    ]
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    made = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    made.add_argument("answers", type=Path, help="a CSV file of answers")
    made.add_argument(
        "--discrimination",
        action="store_true",
        help=f"of each item, after; {ENOUGH} persons or more",
    )
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what the answers say; one line and 2 if they cannot be used."""
    options = parser().parse_args(arguments)
    try:
        before, after = read(options.answers)
        text = report(before, after)
        if options.discrimination:
            each = " ".join(f"{r:.2f}" for r in discrimination(after))
            text += f"\ndiscrimination after: {each}"
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
