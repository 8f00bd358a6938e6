"""Pictures in one visual language; the only module that needs matplotlib.

Colors are Okabe and Ito's, which stay apart for color-blind readers; no
figure says anything by color alone.  A figure is 6.4 inches wide, so that its
text is readable on a phone.
"""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

__all__ = ["COLORS", "heatmap", "new_figure", "use_style"]

COLORS = {
    "blue": "#0072B2",
    "orange": "#D55E00",
    "green": "#009E73",
    "purple": "#AA4499",
    "yellow": "#E69F00",
    "sky": "#56B4E9",
    "gray": "#6B6B6B",
    "black": "#1A1A1A",
}
WIDTH = 6.4


def use_style() -> None:
    """Set the book's look for every figure that follows."""
    plt.rcParams.update(
        {
            "figure.facecolor": "white",
            "figure.dpi": 100,
            "savefig.dpi": 200,
            "savefig.bbox": "tight",
            "font.size": 12,
            "axes.titlesize": 12,
            "axes.titlelocation": "left",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.prop_cycle": plt.cycler(
                color=[
                    COLORS[c]
                    for c in ("blue", "orange", "green", "purple", "gray")
                ],
                linestyle=["-", "--", "-.", ":", (0, (5, 1))],
            ),
            "lines.linewidth": 2.2,
            "legend.frameon": False,
        }
    )


def new_figure(
    height: float = 3.2, columns: int = 1
) -> tuple[Figure, list[Axes]]:
    """An empty figure of the book's width.

    Args:
        height: in inches.
        columns: panels side by side.

    Returns:
        The figure and its axes, left to right.
    """
    use_style()
    figure, axes = plt.subplots(
        1,
        columns,
        figsize=(WIDTH, height),
        layout="constrained",
        squeeze=False,
    )
    return figure, list(axes[0])


def heatmap(
    values: Tensor | np.ndarray,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    title: str = "",
    ax: Axes | None = None,
    numbers: bool | None = None,
    limits: tuple[float, float] | None = None,
) -> Axes:
    """Draw a matrix: queries are rows, keys are columns.

    Args:
        values: (T, S) numbers.
        rows: T labels (queries).
        columns: S labels (keys).
        title: above the picture.
        ax: where to draw; a new figure by default.
        numbers: write each number in its cell; by default if T·S ≤ 80.
        limits: of the color scale; 0 to 1 for weights by default, symmetric
            if there are negative numbers.

    Returns:
        The axes.
    """
    grid = np.asarray(
        values.detach() if isinstance(values, Tensor) else values
    )
    if ax is None:
        ax = new_figure(height=0.55 * grid.shape[0] + 1.4)[1][0]
    signed = bool((grid < 0).any())
    if limits is None:
        top = float(np.abs(grid).max()) or 1.0
        limits = (-top, top) if signed else (0.0, max(1.0, top))
    cmap = "RdBu_r" if signed else "Blues"
    ax.imshow(grid, cmap=cmap, vmin=limits[0], vmax=limits[1], aspect="auto")
    ax.set_title(title)
    ax.set_xticks(range(grid.shape[1]), _labels(columns, grid.shape[1]))
    ax.set_yticks(range(grid.shape[0]), _labels(rows, grid.shape[0]))
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    if numbers if numbers is not None else grid.size <= 80:
        scale = max(abs(limits[0]), abs(limits[1]))
        for (i, j), value in np.ndenumerate(grid):
            dark = abs(value) > 0.6 * scale
            ax.text(
                j,
                i,
                f"{value:.2f}",
                ha="center",
                va="center",
                color="white" if dark else COLORS["black"],
            )
    return ax


def _labels(labels: Sequence[str] | None, n: int) -> list[str]:
    return [str(i) for i in range(n)] if labels is None else list(labels)
