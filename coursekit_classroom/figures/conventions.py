"""Figures of shapes and conventions: what an index takes, what a row is."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from coursekit_classroom.figures.shapes import as_array, write
from coursekit_classroom.figures.style import COLORS, ROLES, Number, new_figure

STREAM = COLORS[ROLES["stream"]]


def slices(picks: Mapping[str, Tensor | np.ndarray]) -> list[Axes]:
    """Draw which entries of a tensor an index takes, once for each index.

    Args:
        picks: for each index its (B, T, D) booleans, True where it takes.

    Returns:
        The axes; entry (b, t, d) of a panel has its corner at
        (d, t + b · (T + 0.8)), and y runs downward.
    """
    grids = [as_array(pick) for pick in picks.values()]
    size, rows, columns = grids[0].shape
    step = rows + 0.8
    axes = new_figure(0.17 * size * step + 0.7, columns=len(grids))[1]
    for ax, (name, grid) in zip(
        axes, zip(picks, grids, strict=True), strict=True
    ):
        for (b, t, d), taken in np.ndenumerate(grid):
            cell = Rectangle((d, t + b * step), 1, 1, linewidth=0.6)
            cell.set(
                facecolor=STREAM + "99" if taken else "none",
                edgecolor=COLORS["gray"],
            )
            ax.add_patch(cell)
        ax.set_title(name, loc="center", family="monospace", size=12)
        ax.set(xlim=(-0.2, columns + 0.2), ylim=(size * step - 0.6, -0.2))
        ax.set_aspect("equal")
        ax.axis("off")
    return axes


def weights_both_ways(n_tokens: int, query: int) -> list[Axes]:
    """Draw causal weights where queries are rows, and where they are columns.

    Args:
        n_tokens: T, a query and a key each.
        query: whose weights are outlined.

    Returns:
        The axes; "i ← j" stands where query i attends to key j, and what
        the mask hides is hatched.
    """
    axes = new_figure(0.55 * n_tokens + 1.4, columns=2)[1]
    names = ("queries are rows", "queries are columns")
    for ax, name in zip(axes, names, strict=True):
        rows = ax is axes[0]
        for i in range(n_tokens):
            for j in range(n_tokens):
                x, y = (j, i) if rows else (i, j)
                _weight(ax, x, y, f"{i} ← {j}" if j <= i else "")
        corner = (-0.5, query - 0.5) if rows else (query - 0.5, -0.5)
        wide = (n_tokens, 1) if rows else (1, n_tokens)
        frame = Rectangle(corner, *wide, fill=False, linewidth=2.5)
        frame.set_edgecolor(COLORS[ROLES["query"]])
        ax.add_patch(frame)
        ax.set_title(name, loc="center")
        ax.set(xlabel="key" if rows else "query")
        ax.set_ylabel("query" if rows else "key")
        ax.set_xticks(range(n_tokens))
        ax.set_yticks(range(n_tokens))
        ax.set(xlim=(-0.6, n_tokens - 0.4), ylim=(n_tokens - 0.4, -0.6))
        ax.set_aspect("equal")
        ax.spines[:].set_visible(False)
        ax.tick_params(length=0)
    return axes


def _weight(ax: Axes, x: Number, y: Number, text: str) -> None:
    """A cell with its text; hatched if it has none."""
    cell = Rectangle((x - 0.5, y - 0.5), 1, 1, linewidth=0.8)
    cell.set(edgecolor=COLORS["gray"], facecolor="white")
    if not text:
        cell.set(hatch="///")
    ax.add_patch(cell)
    if text:
        tint = Rectangle((x - 0.5, y - 0.5), 1, 1, linewidth=0)
        tint.set(facecolor=COLORS[ROLES["weight"]], alpha=0.25)
        ax.add_patch(tint)
    write(ax, x, y, text, size=11)
