"""Heatmaps whose opacity says the number, on a light page and a dark one."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, to_rgba
from torch import Tensor

from coursekit_classroom.figures.shapes import (
    as_array,
    decimal,
    names_or_numbers,
    write,
)
from coursekit_classroom.figures.style import COLORS, Number, new_figure
from coursekit_classroom.figures.vector import CELLS

MOST_CELLS = 32  # in a row or a column; a larger grid is painted as an image
GRID = "#D6D6D6"  # between cells that have numbers in them
# Matplotlib's names of what we have under another.
MAPS = {
    "Blues": "blue",
    "Oranges": "orange",
    "Greens": "green",
    "Purples": "purple",
    "Reds": "red",
    "Greys": "gray",
}


def heatmap(
    values: Tensor | np.ndarray,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    title: str = "",
    ax: Axes | None = None,
    numbers: bool | None = None,
    limits: tuple[Number, Number] | None = None,
    color: str = "Blues",
) -> Axes:
    """Draw a matrix: queries are rows, keys are columns.

    Up to ``MOST_CELLS`` rows and columns are cells whose opacity shows the
    number; a larger matrix is one image.

    Args:
        values: (T, S) numbers.
        rows: T labels (queries).
        columns: S labels (keys).
        title: above the picture.
        ax: where to draw; a new figure by default.
        numbers: write each number in its cell; by default if T·S ≤ 80.
        limits: of the color scale; 0 to 1 for weights by default, symmetric
            if there are negative numbers.
        color: a name in ``COLORS``, or matplotlib's color map of that name,
            if no number is negative.

    Returns:
        The axes.
    """
    grid = as_array(values)
    if ax is None:
        ax = new_figure(height=0.55 * grid.shape[0] + 1.4)[1][0]
    signed = bool((grid < 0).any())
    if limits is None:
        top = float(np.abs(grid).max()) or 1.0
        limits = (-top, top) if signed else (0.0, max(1.0, top))
    if numbers is None:
        numbers = grid.size <= 80
    signed = signed or limits[0] < 0  # so it is to be read beside others
    paint(ax, grid, scale_of(color, signed, numbers), limits, numbers)
    ax.set_title(title)
    for axis, names, n in (
        (ax.xaxis, columns, grid.shape[1]),
        (ax.yaxis, rows, grid.shape[0]),
    ):
        # The numbers of a large grid would lie on one another.
        if names is not None or n <= MOST_CELLS:
            axis.set_ticks(range(n), names_or_numbers(names, n))
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    if numbers:
        digits = 2 if (grid % 1).any() else 0
        for (i, j), value in np.ndenumerate(grid):
            text = decimal(value, digits)
            write(ax, j, i, text)
    return ax


def scale_of(color: str, signed: bool, numbers: bool) -> Colormap:
    """From nothing to a color, or from blue over nothing to red.

    It is the opacity that grows: so a map fits a light page and a dark one.
    Where numbers stand in the cells, no cell is too full to read them.
    """
    full = 0.6 if numbers else 1.0
    one = COLORS["blue" if signed else MAPS.get(color, color)]
    scale = [to_rgba(one, 0.0), to_rgba(one, full)]
    if not signed:
        return LinearSegmentedColormap.from_list(color, scale)
    other = COLORS["red"]
    return LinearSegmentedColormap.from_list(
        "signed",
        [
            (0.0, scale[1]),
            (0.5, scale[0]),
            (0.5, to_rgba(other, 0.0)),
            (1.0, to_rgba(other, full)),
        ],
    )


def paint(
    ax: Axes,
    grid: np.ndarray,
    scale: Colormap,
    limits: tuple[Number, Number],
    apart: bool,
) -> None:
    """Paint a cell for each number; of a large grid, one image."""
    rows, columns = grid.shape
    if max(rows, columns) > MOST_CELLS:
        ax.imshow(
            grid, cmap=scale, vmin=limits[0], vmax=limits[1], aspect="auto"
        )
        return
    ax.pcolormesh(
        np.arange(columns + 1) - 0.5,
        np.arange(rows + 1) - 0.5,
        grid,
        cmap=scale,
        vmin=limits[0],
        vmax=limits[1],
        edgecolors=GRID if apart else "none",
        linewidth=1.0 if apart else 0.0,
        gid=None if apart else CELLS,
        clip_on=False,
    )
    ax.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5))
