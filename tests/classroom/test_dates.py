"""Dates that are made: each is right, and the same every time."""

import hashlib
from collections import Counter
from datetime import datetime

from coursekit_classroom.dates import DATE_FORMATS, date_pairs

PARSERS = (
    "%d %B %Y",
    "%d %b %Y",
    "the %d of %B, %Y",
    "%d of %b %Y",
    "%B %d, %Y",
    "%b %d, %Y",
    "%B the %d, %Y",
    "%A, %d %B %Y",
    "%A, %B %d, %Y",
    "%Y %B %d",
    "%Y, %b %d",
    "%d.%m.%Y",
    "%m/%d/%Y",
)


def parse(human):
    """Read a date with the standard library; at most one format fits."""
    plain = human
    for suffix in ("st", "nd", "rd", "th"):
        for digit in "0123456789":
            plain = plain.replace(digit + suffix, digit)
    found = {}
    for form in PARSERS:
        try:
            day = datetime.strptime(plain, form)
        except ValueError:
            continue
        if "%A" in form and not plain.startswith(f"{day:%A},"):
            continue
        found[day.date().isoformat()] = form
    assert len(found) == 1, (human, found)
    return next(iter(found.items()))


def test_dates_are_right():
    pairs = date_pairs(3001, seed=5)
    forms = Counter()
    for human, iso in pairs:
        found, form = parse(human)
        assert found == iso, human
        forms[form] += 1
    assert set(forms) == set(PARSERS)
    years = [int(iso[:4]) for _, iso in pairs]
    assert min(years) < 1905
    assert max(years) > 2094
    assert len({human for human, _ in pairs}) > 2900


def test_ordinals():
    text = " ".join(human for human, _ in date_pairs(3001, seed=5))
    for good in ("1st", "2nd", "3rd", "11th", "12th", "13th", "22nd", "31st"):
        assert f" {good}" in text
    for bad in ("1th", "2th", "3th", "11st", "12nd", "13rd", "21th"):
        assert f" {bad}" not in text


def test_dates_are_the_same_every_time():
    assert date_pairs(7, 3) == date_pairs(11, 3)[:7]
    assert date_pairs(7, 3) != date_pairs(7, 4)
    assert date_pairs(0, 3) == []
    digest = hashlib.sha256(str(date_pairs(101, 0)).encode()).hexdigest()
    assert digest.startswith("d5e88080")
    assert len(DATE_FORMATS) == 15
