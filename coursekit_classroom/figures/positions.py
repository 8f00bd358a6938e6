"""Figures of positions: hands of clocks, and by how much they turn."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Circle, Wedge
from torch import Tensor

from coursekit_classroom.figures.shapes import as_array, write
from coursekit_classroom.figures.style import COLORS, ROLES, new_figure

POSITION = COLORS[ROLES["token"]]


def clocks(
    angles: Tensor | np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    gaps: Sequence[int] = (),
    labeled: tuple[int, int] | None = None,
) -> Axes:
    """Draw angles as clock hands that start upright and turn clockwise.

    The tip of a hand is (sin, cos) of its angle, so a pair of numbers of a
    position's code is what one dial shows.

    Args:
        angles: (R, C) in radians: a row of dials a pair, a column a position.
        rows: R labels.
        columns: C labels, written below.
        gaps: columns after which positions are left out.
        labeled: the (r, c) of a dial whose pair is written above its column.

    Returns:
        The axes; the dial of (r, c) has its center at (c, -r).
    """
    grid = as_array(angles)
    ax = new_figure(height=0.62 * len(grid) + 0.5)[1][0]
    radius = 0.4
    for (r, c), angle in np.ndenumerate(grid):
        ring = Circle(
            (c, -r), radius, fc="white", ec=COLORS["gray"], linewidth=0.8
        )
        ax.add_patch(ring)
        tip = c + radius * np.sin(angle), -r + radius * np.cos(angle)
        ax.plot(
            [c, tip[0]],
            [-r, tip[1]],
            color=POSITION,
            linestyle="-",
            solid_capstyle="round",
        )
    for c in gaps:
        _gap(ax, c, len(grid), len(columns[c + 1]) - len(columns[c]))
    if labeled:
        _spell_out(ax, *labeled, grid[labeled])
        ax.set_ylim(0.4 - len(grid), 1.1)
    ax.set_xticks(range(grid.shape[1]), list(columns))
    ax.set_yticks([-r for r in range(len(grid))], list(rows))
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_aspect("equal")
    return ax


def _gap(ax: Axes, column: int, rows: int, longer: int) -> None:
    """Mark that positions are left out behind a column."""
    gray = COLORS["gray"]
    ax.vlines(column + 0.5, 0.5 - rows, 0.5, gray, ":", linewidth=1)
    x = column + 0.5 - 0.04 * longer  # in the middle between two labels
    write(ax, x, 0.25 - rows, "…", size=10)


def _spell_out(ax: Axes, row: int, column: int, angle: float) -> None:
    """Write the pair of one dial above its column."""
    tip = f"({np.sin(angle):.2f}, {np.cos(angle):.2f})"
    ax.annotate(
        f"this hand: (sin {angle:g}, cos {angle:g}) = {tip}",
        (column, 0.4 - row),
        (column - 0.4, 0.85),
        va="center",
        arrowprops={"arrowstyle": "-", "color": COLORS["gray"]},
    )


def turns(
    steps: Sequence[tuple[int, int]],
    speeds: Tensor | np.ndarray,
    columns: Sequence[str],
) -> Axes:
    """Draw by how much clock hands turn from one position to another.

    Args:
        steps: R pairs of positions, a row of dials each.
        speeds: (C,) radians per position, one column each.
        columns: C names, written above.

    Returns:
        The axes; the dial of (r, c) has its center at (c, −1.3 r), and the
        angle between its hands stands below it, in degrees.
    """
    ax = new_figure(1.3 * len(steps) + 0.3)[1][0]
    radius, color = 0.4, COLORS["black"]
    for c, (speed, name) in enumerate(
        zip(as_array(speeds).tolist(), columns, strict=True)
    ):
        ax.text(c, 0.5, name, ha="center", va="bottom", size=11)
        for r, ends in enumerate(steps):
            y = -1.3 * r
            ring = Circle((c, y), radius, fill=False, edgecolor=COLORS["gray"])
            ax.add_patch(ring)
            # A hand begins upright and turns clockwise.
            start, end = (t * speed for t in ends)
            sides = (90 - np.degrees(angle) for angle in (end, start))
            ax.add_patch(
                Wedge((c, y), radius, *sides, facecolor=color, alpha=0.25)
            )
            for angle, ink in ((start, COLORS["gray"]), (end, color)):
                tip = c + radius * np.sin(angle), y + radius * np.cos(angle)
                ax.plot([c, tip[0]], [y, tip[1]], color=ink, linestyle="-")
            turned = f"{np.degrees(end - start):.0f}°"
            ax.text(c, y - 0.47, turned, ha="center", va="top", size=11)
    for r, (before, after) in enumerate(steps):
        text = f"{before} → {after}"
        ax.text(-0.6, -1.3 * r, text, ha="right", va="center")
    ax.set(xlim=(-1.9, len(columns) - 0.5), aspect="equal")
    ax.set_ylim(-1.3 * len(steps) + 0.5, 0.8)
    ax.axis("off")
    return ax
