"""When an assignment is due, and what being late costs."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Deadline:
    """A due date, and what is taken off for each day after it."""

    due: datetime
    """With its time zone, on whose clock days are counted."""

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
        """How many days after the due date have begun; 0 if it is in time.

        A day ends when the clock shows the same time again, so one of them
        has 23 hours in spring, and one 25 in the fall.
        """
        late = handed_in.astimezone(UTC) - self.due.astimezone(UTC)
        if late <= timedelta():
            return 0
        clock = handed_in.astimezone(self.due.tzinfo).replace(tzinfo=None)
        days = math.ceil((clock - self.due.replace(tzinfo=None)) / DAY)
        return max(1, days)

    def penalty(self, days: int) -> float:
        """The fraction of the points that so many days cost."""
        return min(self.percent * max(0, days - self.free), self.cap) / 100

    def in_words(self) -> str:
        """As students read it."""
        zone = f"UTC{self.due:%z}"
        named = f"{self.zone}, " * bool(self.zone)
        text = (
            f"Due on {self.due:%A}, {self.due:%B} {self.due.day}, "
            f"{self.due.year}, at {self.due:%H:%M} "
            f"({named}{zone[:6]}:{zone[6:]})."
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
        """As the secret keeps it."""
        return {
            "due": self.due.isoformat(),
            "percent": self.percent,
            "cap": self.cap,
            "free": self.free,
        } | ({"zone": self.zone} if self.zone else {})

    @property
    def zone(self) -> str:
        """The name of the time zone; empty if it is an offset alone."""
        return getattr(self.due.tzinfo, "key", "")

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "Deadline":
        """Out of what :meth:`plain` gave."""
        due = read_due(fields["due"])
        if name := fields.get("zone"):
            due = due.astimezone(zone_of(name))
        return cls(due, *(fields[n] for n in ("percent", "cap", "free")))


def read_due(text: str) -> datetime:
    """A due date as ``--due`` takes it.

    Without a time it is the end of that day, its last second included;
    without an offset it is meant in this computer's time zone.

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
        due = datetime.combine(due, time.max)
    if due.tzinfo:
        return due
    name = zone_here()
    return due.replace(tzinfo=zone_of(name)) if name else due.astimezone()


def zone_here() -> str:
    """The name of this computer's time zone; empty if it does not tell."""
    place = os.environ.get("TZ") or os.path.realpath("/etc/localtime")
    name = place.lstrip(":").rpartition("zoneinfo/")[2]
    return name if name in available_timezones() else ""


def zone_of(name: str) -> ZoneInfo:
    """A time zone by its name.

    Raises:
        ValueError: if this computer does not know it.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ValueError(
            "a due date is in a time zone that this computer knows: got "
            f"{name!r}. Install the list of them: pip install tzdata."
        ) from error
