"""What grading finds, as plain data: one line of JSON a student.

The sheet, the feedback and the summary are made from these records alone, so
a run that was interrupted and goes on ends in the same files.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

STATUSES = {  # in the order in which a summary lists them
    "ok": "right",
    "wrong": "not right yet",
    "error": "it raised an error",
    "timeout": "no answer in time",
    "died": "the program ended before it answered",
    "protocol": "what it answered could not be read",
    "not attempted": "not attempted",
    "unreadable": "the notebook could not be read",
}
"""Every status of an exercise, and what a student reads."""


@dataclass(frozen=True)
class Result:
    """One exercise of one student."""

    exercise: str
    function: str
    max_points: float
    status: str
    right: int = 0
    """The part of ``total`` that points are given for."""

    total: int = 0
    """0 if nothing was tried."""

    cases: list[list[Any]] = field(default_factory=list)
    """``[name, right]`` of each case."""

    diagnosis: list[str] = field(default_factory=list)
    """Names of the classic mistakes that were made."""

    says: list[str] = field(default_factory=list)
    """The same mistakes in words."""

    cause: list[str] = field(default_factory=list)
    """Sentences on what was done wrong."""

    message: str = ""
    """The first case that is not right, with its numbers."""

    links: list[list[str]] = field(default_factory=list)
    """``[text, address]`` of what to read again."""

    notes: list[str] = field(default_factory=list)
    """What was odd about the notebook."""

    used_library: list[str] = field(default_factory=list)
    """What the exercise forbids and the code names."""

    isolation: str = ""
    """In what the code ran; empty if nothing was run."""

    notebook: str = ""
    """The name of the file that the answer was taken from; may be empty."""

    look_at: str = ""
    """What the instructor should know of it; may be empty."""

    code: str = ""
    """A hash of the code that copies share; empty if none was looked at."""

    days_late: int = 0
    penalty: float = 0.0
    """The fraction of the points that being late has cost."""

    by_hand: float | None = None
    """The points that the instructor gives instead, if they do."""

    comment: str = ""
    """The instructor's; may be empty."""

    @property
    def points(self) -> float:
        """The instructor's; else the grader's."""
        return self.automatic if self.by_hand is None else self.by_hand

    @property
    def automatic(self) -> float:
        """What the answer is worth, less what being late has cost."""
        return round(self.earned * (1 - self.penalty), 2)

    @property
    def earned(self) -> float:
        """The fraction of the cases that are right, of the points."""
        if not self.total:
            return 0.0
        return round(self.max_points * self.right / self.total, 2)


@dataclass(frozen=True)
class Graded:
    """One student."""

    student: str
    sha256: str
    """Of what was handed in; empty if nothing was."""

    results: list[Result]
    seconds: float = 0.0
    cpu: float = 0.0
    memory: int = 0
    """Bytes, at most."""

    waited: float = 0.0
    """Seconds on the clock, for what they wrote."""

    name: str = ""
    """As the roster has it, if they are on it."""

    @property
    def shown(self) -> str:
        """Who it is, for the instructor."""
        known = self.name and self.name != self.student
        return f"{self.name} ({self.student})" if known else self.student

    @property
    def points(self) -> float:
        """The sum over the exercises."""
        return round(sum((r.points for r in self.results), 0.0), 2)

    @property
    def max_points(self) -> float:
        """What there was to get."""
        return sum((r.max_points for r in self.results), 0.0)

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def graded(fields: Mapping[str, Any]) -> Graded:
    """A record out of what :meth:`Graded.plain` gave.

    Raises:
        TypeError, KeyError: if it is of another form.
    """
    results = [Result(**r) for r in fields["results"]]
    return Graded(**{**fields, "results": results})
