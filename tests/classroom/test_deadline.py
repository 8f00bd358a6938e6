"""What is late, by how many days, and what that costs."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from coursekit_classroom.teach.deadline import Deadline, read_due

DUE = datetime(2026, 10, 5, 18, 0, tzinfo=timezone(timedelta(hours=2)))


@pytest.mark.parametrize(
    ("handed_in", "days"),
    [
        (datetime(2026, 10, 5, 16, 0, tzinfo=UTC), 0),  # on the minute
        (datetime(2026, 10, 5, 16, 0, 1, tzinfo=UTC), 1),
        (datetime(2026, 10, 6, 16, 0, tzinfo=UTC), 1),
        (datetime(2026, 10, 6, 16, 1, tzinfo=UTC), 2),
        (datetime(2026, 9, 1, tzinfo=UTC), 0),
    ],
)
def test_a_day_that_has_begun_counts(handed_in, days):
    assert Deadline(DUE).days_late(handed_in) == days


@pytest.mark.parametrize(
    ("due", "handed_in", "days"),
    [  # clocks go back on November 1, and forward on March 8
        ("2026-10-31T20:00", "2026-11-01T19:30-05:00", 1),
        ("2026-10-31T20:00", "2026-11-01T20:30-05:00", 2),
        ("2026-11-01T01:50", "2026-11-01T01:10-05:00", 1),  # 20 minutes
        ("2027-03-13T20:00", "2027-03-14T20:30-04:00", 2),
        ("2026-10-31", "2026-10-31T23:59:59.9-04:00", 0),
        ("2026-10-31", "2026-11-01T00:00:00-04:00", 1),
        ("2026-10-31T20:00-04:00", "2026-11-01T19:30-05:00", 2),  # control
    ],
)
def test_days_are_counted_on_the_clock(monkeypatch, due, handed_in, days):
    """Of the zone that the key keeps, wherever it is graded."""
    monkeypatch.setenv("TZ", "America/New_York")
    terms = Deadline(read_due(due)).plain()
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    at = datetime.fromisoformat(handed_in).astimezone(UTC)
    assert Deadline.of(terms).days_late(at) == days


def test_days_cost_until_the_cap_and_the_first_are_free():
    by_hand = {0: 0, 1: 0, 2: 0, 3: 0.15, 4: 0.3, 5: 0.4, 60: 0.4}
    terms = Deadline(DUE, percent=15, cap=40, free=2)
    assert {n: terms.penalty(n) for n in by_hand} == by_hand
    assert Deadline(DUE).penalty(60) == 0  # nothing was said of lateness
    assert Deadline(DUE, percent=60).penalty(2) == 1  # never below 0 points


def test_a_date_is_read_as_people_write_it():
    assert read_due("2026-10-05T18:00+02:00") == DUE
    whole = read_due("2026-10-05")
    assert (whole.hour, whole.minute, whole.second) == (23, 59, 59)
    assert whole.tzinfo is not None
    assert whole.microsecond == 999_999
    assert read_due("2026-10-05T18:00").tzinfo is not None


def test_the_key_keeps_it():
    terms = Deadline(DUE, percent=15, cap=40, free=1)
    assert Deadline.of(terms.plain()) == terms
    assert terms.in_words().endswith(
        "at most 40 %; the first day costs nothing."
    )
    assert "costs" not in Deadline(DUE).in_words()
