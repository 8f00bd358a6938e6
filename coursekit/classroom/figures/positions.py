"""Figures of positions: hands of clocks."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Circle
from torch import Tensor

from coursekit.classroom.figures.shapes import (
    as_array,
)
from coursekit.classroom.figures.style import (
    COLORS,
    new_figure,
)

__all__ = [
    "clocks",
]


def clocks(
    angles: Tensor | np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    ax: Axes | None = None,
) -> Axes:
    """Draw angles as clock hands that start upright and turn clockwise.

    The tip of a hand is (sin, cos) of its angle, so a pair of numbers of a
    position's code is what one dial shows.

    Args:
        angles: (R, C) in radians: a row of dials a pair, a column a position.
        rows: R labels.
        columns: C labels, written below.
        ax: where to draw; a new figure by default.

    Returns:
        The axes; the dial of (r, c) has its center at (c, -r).
    """
    grid = as_array(angles)
    if ax is None:
        ax = new_figure(height=0.62 * len(grid) + 0.5)[1][0]
    radius = 0.4
    for (r, c), angle in np.ndenumerate(grid):
        ring = Circle(
            (c, -r), radius, facecolor="white", edgecolor=COLORS["gray"]
        )
        ax.add_patch(ring)
        tip = c + radius * np.sin(angle), -r + radius * np.cos(angle)
        ax.plot(
            [c, tip[0]],
            [-r, tip[1]],
            color=COLORS["blue"],
            linestyle="-",
            solid_capstyle="round",
        )
    ax.set_xticks(range(grid.shape[1]), list(columns))
    ax.set_yticks([-r for r in range(len(grid))], list(rows))
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_aspect("equal")
    return ax
