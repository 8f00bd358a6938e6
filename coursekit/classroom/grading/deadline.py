"""When an assignment is due, and what being late costs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Any

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Deadline:
    """A due date, and what is taken off for each day after it."""

    due: datetime
    """With its time zone."""

    percent: float = 0
    """Of the points, for each day that has begun."""

    cap: float = 100
    """Percent, at most."""

    free: int = 0
    """Days for which nothing is taken off."""

    def __post_init__(self) -> None:
        """Refuse what is no percentage, and days that are negative."""
        for option, value in (("", self.percent), ("-cap", self.cap)):
            if not 0 <= value <= 100:
                raise ValueError(
                    f"--late{option} is a percentage, 0 to 100: got {value:g}."
                )
        if self.free < 0:
            raise ValueError(
                f"--late-days is a number of days: got {self.free}."
            )

    def days_late(self, handed_in: datetime) -> int:
        """How many days after the due date have begun; 0 if it is in time."""
        return max(0, math.ceil((handed_in - self.due) / DAY))

    def penalty(self, days: int) -> float:
        """The fraction of the points that so many days cost."""
        return min(self.percent * max(0, days - self.free), self.cap) / 100

    def in_words(self) -> str:
        """As students read it."""
        zone = f"UTC{self.due:%z}"
        text = (
            f"Due on {self.due:%A}, {self.due:%B} {self.due.day}, "
            f"{self.due.year}, at {self.due:%H:%M} ({zone[:6]}:{zone[6:]})."
        )
        if not self.percent:
            return text
        text += f" Each day after it costs {self.percent:g} % of the points"
        if self.cap < 100:
            text += f", at most {self.cap:g} %"
        if self.free:
            days = f"{self.free} days" if self.free > 1 else "day"
            text += f"; the first {days} cost{'s' * (self.free == 1)} nothing"
        return f"{text}."

    def plain(self) -> dict[str, Any]:
        """As the key keeps it."""
        return {
            "due": self.due.isoformat(),
            "percent": self.percent,
            "cap": self.cap,
            "free": self.free,
        }

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "Deadline":
        """Out of what :meth:`plain` gave."""
        due = read_due(fields["due"])
        return cls(due, *(fields[n] for n in ("percent", "cap", "free")))


def read_due(text: str) -> datetime:
    """A due date as ``--due`` takes it.

    Without a time it is the end of that day; without a zone, it is meant in
    this computer's.

    Raises:
        ValueError: if it is no date.
    """
    try:
        due = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(
            "--due is a date, 2026-10-05, or a date and a time, "
            f"2026-10-05T18:00 or 2026-10-05T18:00+02:00: got {text!r}."
        ) from error
    if len(text) <= len("2026-10-05"):
        due = datetime.combine(due, time(23, 59, 59))
    return due if due.tzinfo else due.astimezone()
