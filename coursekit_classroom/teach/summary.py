"""What a whole class can and cannot do yet: for the instructor, in a page."""

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import mean, median

from coursekit_classroom.teach import pages
from coursekit_classroom.teach.pages import Block
from coursekit_classroom.teach.records import STATUSES, Graded, Result
from coursekit_classroom.teach.tables import count

UNNAMED = "wrong in a way that the catalogue does not know"
NOT_RECOGNIZED = "Wrong; cause not recognized."  # as a report says it


def markdown(class_: Sequence[Graded], title: str) -> str:
    """The summary as Markdown, under a title."""
    return pages.markdown(blocks(class_, title))


def html(class_: Sequence[Graded], title: str) -> str:
    """The same as a page that needs no other file."""
    return pages.html(list(blocks(class_, title)))


def blocks(class_: Sequence[Graded], title: str) -> Iterator[Block]:
    """The summary, exercise by exercise in the order of the first student."""
    yield "title", title
    yield "text", sizes(class_)
    exercises = dict[str, list[tuple[str, Result]]]()
    for s in class_:
        for r in s.results:
            rows = exercises.setdefault(r.exercise, [])
            rows.append((s.name or s.student, r))
    for exercise, rows in exercises.items():
        yield from about(exercise, rows)


def about(
    exercise: str, rows: Sequence[tuple[str, Result]]
) -> Iterator[Block]:
    """What became of an exercise, and who is stuck where."""
    results = [r for _, r in rows]
    most = max(r.max_points for r in results)
    average = f"{mean(r.points for r in results):.2f} of {most:g} points"
    yield "heading", f"{exercise}: {average} on average"
    table, mistakes = list[tuple[str, ...]](), dict[str, list[str]]()
    for status, words in STATUSES.items():
        who = [name for name, r in rows if r.status == status]
        if who:
            names = "" if status == "ok" else ", ".join(who)
            table.append((words, str(len(who)), names))
    yield "table", [("result", "students", "who"), *table]
    for name, r in rows:
        for says in (*r.says, *[UNNAMED] * (NOT_RECOGNIZED in r.cause)):
            mistakes.setdefault(says, []).append(name)
    if mistakes:
        yield "text", "Mistakes:"
        ranked = sorted(mistakes.items(), key=lambda m: (-len(m[1]), m[0]))
        yield (
            "list",
            [
                f"{len(who)} of {len(rows)}: {says} ({', '.join(who)})"
                for says, who in ranked
            ],
        )
    tried = Counter(name for r in results for name, _ in r.cases)
    right = Counter(name for r in results for name, ok in r.cases if ok)
    if tried:
        yield "text", "Cases, and how many students are right:"
        yield "list", [f"{c}: {right[c]} of {n}" for c, n in tried.items()]


def sizes(class_: Sequence[Graded]) -> str:
    """How many students, and their points."""
    if not class_:
        return "No student."
    points = [s.points for s in class_]
    return (
        f"{count(len(class_), 'student')}; of "
        f"{max(s.max_points for s in class_):g} points the median is "
        f"{median(points):g}, the lowest {min(points):g}, the highest "
        f"{max(points):g}."
    )
