"""Dates as people write them, with their ISO forms."""

import datetime
import random

MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
DAYS = ("Mon", "Tues", "Wednes", "Thurs", "Fri", "Satur", "Sun")
DATE_FORMATS = (
    "{d} {month} {y}",
    "{d} {mon} {y}",
    "{d}{th} {month} {y}",
    "the {d}{th} of {month}, {y}",
    "{d}{th} of {mon} {y}",
    "{month} {d}, {y}",
    "{mon} {d}, {y}",
    "{month} {d}{th}, {y}",
    "{month} the {d}{th}, {y}",
    "{weekday}, {d} {month} {y}",
    "{weekday}, {month} {d}, {y}",
    "{y} {month} {d}",
    "{y}, {mon} {d}{th}",
    "{d}.{m}.{y}",  # with dots the day comes first,
    "{m}/{d}/{y}",  # with slashes the month
)


def date_pairs(n: int, seed: int) -> list[tuple[str, str]]:
    """Make dates as people write them, with the ISO form as the target.

    ("the 3rd of March, 1987", "1987-03-03"): a task for an encoder and
    a decoder that fits on a page, with a right answer for each input.

    Args:
        n: pairs to make, 0 or more.
        seed: the same seed gives the same pairs.

    Returns:
        (human, ISO 8601) pairs of days from 1900 to 2099.

    Chapter: 14, encoder and decoder together.
    """
    rng = random.Random(seed)
    first = datetime.date(1900, 1, 1).toordinal()
    last = datetime.date(2099, 12, 31).toordinal()
    pairs = []
    for _ in range(n):
        day = datetime.date.fromordinal(rng.randint(first, last))
        human = rng.choice(DATE_FORMATS).format(
            d=day.day,
            m=day.month,
            y=day.year,
            th=_ordinal_suffix(day.day),
            month=MONTHS[day.month - 1],
            mon=MONTHS[day.month - 1][:3],
            weekday=DAYS[day.weekday()] + "day",
        )
        pairs.append((human, day.isoformat()))
    return pairs


def _ordinal_suffix(day: int) -> str:
    """Return st, nd, rd or th: the 1st, the 11th, the 21st."""
    if day in (11, 12, 13):
        return "th"
    return {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
