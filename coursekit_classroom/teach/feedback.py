"""What a student reads."""

from collections.abc import Iterator
from urllib.parse import urljoin

from coursekit_classroom.teach import pages
from coursekit_classroom.teach.pages import Block
from coursekit_classroom.teach.records import STATUSES, Graded, Result
from coursekit_classroom.teach.tables import count

HIDDEN = (
    "Your functions were called with inputs that are drawn for grading. They "
    "have the shapes that the notebook's own check uses, and other numbers."
)


def markdown(student: Graded, book: str = "") -> str:
    """A student's feedback as Markdown.

    Args:
        student: what grading found.
        book: address of the book's folder of pages, for links; without it
            pages are named.
    """
    return pages.markdown(blocks(student, book))


def html(student: Graded, book: str = "") -> str:
    """The same as a page that needs no other file."""
    return pages.html(list(blocks(student, book)))


def blocks(student: Graded, book: str) -> Iterator[Block]:
    """A student's feedback."""
    yield "title", f"Feedback for {student.name or student.student}"
    yield "strong", f"{student.points:g} of {student.max_points:g} points"
    rows = [
        (r.exercise, f"{r.points:g} of {r.max_points:g}", STATUSES[r.status])
        for r in student.results
    ]
    yield "table", [("exercise", "points", "result"), *rows]
    if any(r.cases for r in student.results):
        yield "text", HIDDEN
    for (exercise, points, status), r in zip(
        rows, student.results, strict=True
    ):
        yield "heading", f"{exercise}: {points} points, {status}"
        for text in sentences(r):
            yield "text", text
        if r.message:
            yield "code", r.message
        for title, address in r.links:
            to = urljoin(book.rstrip("/") + "/", address) if book else address
            yield "link", ("Read again: ", title, to, bool(book))
        if r.cases:
            yield "text", "The cases:"
            signs = {True: "✓ right:", False: "✗ not right:"}
            yield "list", [f"{signs[ok]} {name}" for name, ok in r.cases]


def sentences(r: Result) -> list[str]:
    """What there is to say before the example."""
    lines = [*r.notes, *r.cause]
    if r.days_late:
        lines.append(
            f"Handed in {count(r.days_late, 'day')} late: "
            f"{r.earned:g} points became {r.automatic:g}."
        )
    if r.by_hand is not None:
        lines.append(
            f"Your instructor gives {r.by_hand:g} points instead of "
            f"{r.automatic:g}."
        )
    if r.comment:
        lines.append(f"Your instructor says: {r.comment}")
    return lines
