"""What a whole class can and cannot do yet: for the instructor, in a page."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from coursekit_classroom.teach import pages
from coursekit_classroom.teach.pages import Block
from coursekit_classroom.teach.records import STATUSES, Graded, Result

UNNAMED = "wrong in a way that the catalogue does not know"
NOT_RECOGNIZED = "Wrong; cause not recognized."  # as a report says it
LOOKS = {  # of the bars; told apart by hatching as well as by color
    "ok": ("blue", ""),
    "wrong": ("orange", "//"),
    "error": ("yellow", ".."),
    "timeout": ("purple", "xx"),
    "died": ("black", ""),
    "protocol": ("gray", "++"),
    "not attempted": ("white", ""),
    "unreadable": ("sky", "--"),
}
assert list(LOOKS) == list(STATUSES)


@dataclass(frozen=True)
class Tally:
    """One exercise over the class."""

    exercise: str
    students: int
    statuses: dict[str, int]
    """How many have each status, in the order of STATUSES."""

    mistakes: list[tuple[str, int]]
    """A mistake in words, and how many made it; the most frequent first."""

    cases: list[tuple[str, int, int]]
    """A case's name, how many were right, how many tried."""

    mean: float
    """Points, over all students."""

    max_points: float


def tallies(class_: Sequence[Graded]) -> list[Tally]:
    """Count, exercise by exercise, in the order of the first student."""
    order = dict.fromkeys(r.exercise for s in class_ for r in s.results)
    return [
        tally([r for s in class_ for r in s.results if r.exercise == id])
        for id in order
    ]


def tally(results: Sequence[Result]) -> Tally:
    """Count over the results of one exercise."""
    statuses = Counter(r.status for r in results)
    mistakes: Counter[str] = Counter()
    for r in results:
        mistakes.update(r.says)
        mistakes[UNNAMED] += NOT_RECOGNIZED in r.cause
    names = dict.fromkeys(name for r in results for name, _ in r.cases)
    tried = Counter(name for r in results for name, _ in r.cases)
    right = Counter(name for r in results for name, ok in r.cases if ok)
    ranked = sorted((+mistakes).items(), key=lambda item: (-item[1], item[0]))
    return Tally(
        results[0].exercise,
        len(results),
        {s: statuses[s] for s in STATUSES if statuses[s]},
        ranked,
        [(name, right[name], tried[name]) for name in names],
        sum(r.points for r in results) / len(results),
        max(r.max_points for r in results),
    )


def markdown(class_: Sequence[Graded], title: str, plot: str = "") -> str:
    """The summary as Markdown.

    Args:
        class_: what grading found for each student.
        title: of the page.
        plot: file of the picture, if there is one.
    """
    return pages.markdown(blocks(class_, title, ("", plot) if plot else None))


def html(class_: Sequence[Graded], title: str, picture: str = "") -> str:
    """The same as a page that needs no other file.

    Args:
        class_: what grading found for each student.
        title: of the page.
        picture: SVG, put into the page.
    """
    shown = (picture, "") if picture else None
    return pages.html(list(blocks(class_, title, shown)))


def blocks(
    class_: Sequence[Graded], title: str, picture: tuple[str, str] | None
) -> Iterator[Block]:
    """The summary; a picture is SVG and the name of its file."""
    found = tallies(class_)
    yield "title", title
    yield "text", sizes(class_)
    if picture:
        yield "picture", (*picture, described(found))
    for t in found:
        mean = f"{t.mean:.2f} of {t.max_points:g} points on average"
        yield "heading", f"{t.exercise}: {mean}"
        counts = [(STATUSES[s], str(n)) for s, n in t.statuses.items()]
        yield "table", [("result", "students"), *counts]
        if t.mistakes:
            yield "text", "Mistakes:"
            yield (
                "list",
                [f"{n} of {t.students}: {says}" for says, n in t.mistakes],
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
        f"{len(class_)} students; of {of:g} points the median is "
        f"{middle:g}, the lowest {points[0]:g}, the highest {points[-1]:g}."
    )


def described(found: Sequence[Tally]) -> str:
    """What the picture shows, for those who do not see it."""
    parts = [
        f"{t.exercise}: "
        + ", ".join(f"{n} {STATUSES[s]}" for s, n in t.statuses.items())
        for t in found
    ]
    return "Students by result. " + "; ".join(parts) + "."


def draw(class_: Sequence[Graded]) -> str:
    """The results as bars, one an exercise, in SVG.

    Raises:
        ModuleNotFoundError: if matplotlib is not installed.
    """
    from coursekit_classroom import figures

    found = tallies(class_)
    used = [s for s in STATUSES if any(s in t.statuses for t in found)]
    colors = figures.COLORS | {"white": "white"}
    height = 1.2 + 0.5 * len(found) + 0.25 * len(used)
    figure, (ax,) = figures.new_figure(height)
    left = [0] * len(found)
    for status in used:
        color, hatch = LOOKS[status]
        width = [t.statuses.get(status, 0) for t in found]
        ax.barh(
            range(len(found)),
            width,
            left=left,
            color=colors[color],
            hatch=hatch,
            edgecolor="white" if hatch else colors["black"],
            linewidth=0.6,
            label=STATUSES[status],
        )
        left = [a + b for a, b in zip(left, width, strict=True)]
    ax.set_yticks(range(len(found)), [t.exercise for t in found])
    ax.invert_yaxis()
    ax.set_xlabel("students")
    ax.locator_params(axis="x", integer=True)
    figure.legend(loc="outside lower left", fontsize=9)
    said = described(found)
    drawn = figures.svg(figure, "summary", "Results by exercise", said)
    figures.plt.close(figure)
    return drawn
