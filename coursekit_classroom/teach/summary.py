"""What a whole class can and cannot do yet: for the instructor, in a page."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from coursekit_classroom.teach import pages
from coursekit_classroom.teach.pages import Block
from coursekit_classroom.teach.records import STATUSES, Graded, Result
from coursekit_classroom.teach.tables import count

UNNAMED = "wrong in a way that the catalogue does not know"
NOT_RECOGNIZED = "Wrong; cause not recognized."  # as a report says it


@dataclass(frozen=True)
class Tally:
    """One exercise over the class."""

    exercise: str
    students: int
    statuses: dict[str, list[str]]
    """Who has each status, in the order of STATUSES."""

    mistakes: list[tuple[str, list[str]]]
    """A mistake in words, and who made it; the most frequent first."""

    cases: list[tuple[str, int, int]]
    """A case's name, how many were right, how many tried."""

    mean: float
    """Points, over all students."""

    max_points: float


def tallies(class_: Sequence[Graded]) -> list[Tally]:
    """Count, exercise by exercise, in the order of the first student."""
    rows = [(s.name or s.student, r) for s in class_ for r in s.results]
    order = dict.fromkeys(r.exercise for _, r in rows)
    return [
        tally([(who, r) for who, r in rows if r.exercise == id])
        for id in order
    ]


def tally(of: Sequence[tuple[str, Result]]) -> Tally:
    """Count over the results of one exercise."""
    results = [r for _, r in of]
    statuses = {s: [n for n, r in of if r.status == s] for s in STATUSES}
    mistakes = dict[str, list[str]]()
    for who, r in of:
        unnamed = [UNNAMED] * (NOT_RECOGNIZED in r.cause)
        for says in (*r.says, *unnamed):
            mistakes.setdefault(says, []).append(who)
    names = dict.fromkeys(name for r in results for name, _ in r.cases)
    tried = Counter(name for r in results for name, _ in r.cases)
    right = Counter(name for r in results for name, ok in r.cases if ok)
    ranked = sorted(mistakes.items(), key=lambda m: (-len(m[1]), m[0]))
    return Tally(
        results[0].exercise,
        len(results),
        {s: names for s, names in statuses.items() if names},
        ranked,
        [(name, right[name], tried[name]) for name in names],
        sum(r.points for r in results) / len(results),
        max(r.max_points for r in results),
    )


def markdown(class_: Sequence[Graded], title: str) -> str:
    """The summary as Markdown, under a title."""
    return pages.markdown(blocks(class_, title))


def html(class_: Sequence[Graded], title: str) -> str:
    """The same as a page that needs no other file."""
    return pages.html(list(blocks(class_, title)))


def blocks(class_: Sequence[Graded], title: str) -> Iterator[Block]:
    """The summary."""
    yield "title", title
    yield "text", sizes(class_)
    for t in tallies(class_):
        mean = f"{t.mean:.2f} of {t.max_points:g} points on average"
        yield "heading", f"{t.exercise}: {mean}"
        counts = [
            (STATUSES[s], str(len(who)), ", ".join(who) if s != "ok" else "")
            for s, who in t.statuses.items()
        ]
        yield "table", [("result", "students", "who"), *counts]
        if t.mistakes:
            yield "text", "Mistakes:"
            yield (
                "list",
                [
                    f"{len(who)} of {t.students}: {says} ({', '.join(who)})"
                    for says, who in t.mistakes
                ],
            )
        if t.cases:
            yield "text", "Cases, and how many students are right:"
            yield (
                "list",
                [f"{name}: {ok} of {tried}" for name, ok, tried in t.cases],
            )


def sizes(class_: Sequence[Graded]) -> str:
    """How many students, and their points."""
    if not class_:
        return "No student."
    points = sorted(s.points for s in class_)
    middle = (points[(len(points) - 1) // 2] + points[len(points) // 2]) / 2
    of = max(s.max_points for s in class_)
    return (
        f"{count(len(class_), 'student')}; of {of:g} points the median is "
        f"{middle:g}, the lowest {points[0]:g}, the highest {points[-1]:g}."
    )
