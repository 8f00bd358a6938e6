"""Figures of the book itself: which chapter needs which."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, PathPatch
from matplotlib.path import Path

from coursekit.classroom.figures.style import COLORS, new_figure

__all__ = ["prerequisites"]

Needs = Mapping[str, Sequence[str]]

WIDE, HIGH = 1.02, 0.62  # of a box, where rows stand 1 apart
APART = 1.14  # centers of neighbors


def _levels(needs: Needs) -> dict[str, int]:
    """How many steps each chapter is from the start, on the longest way."""

    def level(page: str) -> int:
        return 1 + max(map(level, needs[page]), default=-1)

    return {page: level(page) for page in needs}


def _centers(needs: Needs) -> dict[str, tuple[float, int]]:
    """Each chapter below the middle of those that it needs: x and level."""
    level = _levels(needs)
    center: dict[str, tuple[float, int]] = {}
    for row in range(1 + max(level.values())):
        wanted = sorted(
            (sum(center[n][0] for n in needs[page]) / len(needs[page]), page)
            if needs[page]
            else (0.0, page)
            for page in needs
            if level[page] == row
        )
        middle = sum(x for x, _ in wanted) / len(wanted)
        for i, (_, page) in enumerate(wanted):
            x = middle + APART * (i - (len(wanted) - 1) / 2)
            center[page] = x, row
    return center


def prerequisites(needs: Needs, titles: Mapping[str, str]) -> Axes:
    """Draw chapters as boxes, with an arrow to each from those it needs.

    Args:
        needs: for each chapter the ones that it builds on directly, which
            come before it.
        titles: what stands in each box; a line break is one there.

    Returns:
        The axes; a chapter that is n steps from the start stands at height n,
        and y runs downward.
    """
    center = _centers(needs)
    bottom = max(row for _, row in center.values())
    ax = new_figure(0.72 * (bottom + 1))[1][0]
    for page, below in needs.items():
        for other in below:
            _arrow(ax, center[other], center[page])
    for page, (x, row) in center.items():
        ax.add_patch(
            FancyBboxPatch(
                (x - WIDE / 2, row - HIGH / 2),
                WIDE,
                HIGH,
                boxstyle="round,pad=0,rounding_size=0.08",
                facecolor="white",
                edgecolor=COLORS["blue"],
                linewidth=1.2,
            )
        )
        ax.text(x, row, titles[page], ha="center", va="center", size=11)
    left, *_, right = sorted(x for x, _ in center.values())
    ax.set(xlim=(left - 0.54, right + 0.54), ylim=(bottom + 0.4, -0.4))
    ax.axis("off")
    return ax


def _arrow(ax: Axes, start: tuple[float, int], end: tuple[float, int]) -> None:
    """Straight down past the rows between, then to the box."""
    (x, top), (to, bottom) = start, end
    y, stop = top + HIGH / 2, bottom - HIGH / 2
    turn = bottom - 1 + HIGH / 2  # below the row before
    curve = [(x, y), (x, turn), (x, stop), (to, turn), (to, stop)]
    codes = [Path.MOVETO, Path.LINETO, *[Path.CURVE4] * 3]
    gray = COLORS["gray"]
    ax.add_patch(
        PathPatch(
            Path(curve, codes), fill=False, edgecolor=gray, linewidth=1.2
        )
    )
    ax.plot([to], [stop - 0.06], marker="v", markersize=6, color=gray)
