"""What is late, by how many days, and what that costs."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from coursekit.classroom.grading.deadline import Deadline, read_due

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
    assert read_due("2026-10-05T18:00").tzinfo is not None


def test_the_key_keeps_it():
    terms = Deadline(DUE, percent=15, cap=40, free=1)
    assert Deadline.of(terms.plain()) == terms
    assert terms.in_words().endswith(
        "at most 40 %; the first day costs nothing."
    )
    assert "costs" not in Deadline(DUE).in_words()
