"""Primitives of figures: rows of boxes, arrows, hatched cells."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from coursekit_classroom.figures.style import COLORS, ROLES, Number

__all__ = [
    "arrow",
    "as_array",
    "box",
    "decimal",
    "hide_cells",
    "name_column",
    "names_or_numbers",
    "rectangle",
    "sheet",
    "short",
    "strip",
    "token_grid",
    "write",
]


def as_array(values: Tensor | np.ndarray) -> np.ndarray:
    return np.asarray(
        values.detach() if isinstance(values, Tensor) else values
    )


def names_or_numbers(labels: Sequence[str] | None, n: int) -> list[str]:
    return [str(i) for i in range(n)] if labels is None else list(labels)


def decimal(number: Number, digits: int = 2, sign: str = "-") -> str:
    """With digits behind the point, a true minus, and none before a zero."""
    text = f"{number:{sign}z,.{digits}f}"
    return text.replace("-", "−").replace("nan", "NaN")


def short(number: Number, digits: int = 1) -> str:
    """A whole number without a point, others with a few digits behind it."""
    digits = 0 if number == round(number) else digits
    return f"{number:.{digits}f}".replace("-", "−")


def write(ax: Axes, x: Number, y: Number, text: str, **look: Any) -> None:
    """Write a text whose middle is at a point."""
    ax.text(x, y, text, ha="center", va="center", **look)


def rectangle(
    ax: Axes, x: Number, y: Number, width: Number, height: Number, **look: Any
) -> None:
    """Add a rectangle; its first corner is at a point."""
    ax.add_patch(Rectangle((x, y), width, height, **look))


def sheet(
    ax: Axes, xlim: tuple[Number, Number], ylim: tuple[Number, Number]
) -> None:
    """Make axes an empty sheet to draw on, with these limits."""
    ax.set(xlim=xlim, ylim=ylim)
    ax.axis("off")


def name_column(ax: Axes, name: str, x: Number, role: str) -> None:
    """Write a column's name above it, over a bar in its color."""
    ax.text(x, 0.6, name, ha="center", va="bottom", weight="bold")
    ax.plot(
        [x - 0.45, x + 0.45],
        [0.5, 0.5],
        color=COLORS[ROLES[role]],
        linestyle="-",
        linewidth=3,
    )


def strip(
    ax: Axes,
    numbers: Tensor,
    x: Number,
    y: Number,
    cell: float,
    color: str,
    strength: Number = 1.0,
    digits: int = 1,
) -> None:
    """A vector as a row of boxes with its numbers in them."""
    for i, number in enumerate(numbers.tolist()):
        corner = (x + i * cell, y - 0.36)
        rectangle(
            ax,
            *corner,
            cell,
            0.72,
            facecolor=COLORS[color],
            alpha=0.55 * strength,
            edgecolor="none",
        )
        rectangle(ax, *corner, cell, 0.72, fill=False, edgecolor="white")
        text = short(number, digits)
        write(
            ax, x + (i + 0.5) * cell, y, text, size=10 if "." in text else 12
        )


def arrow(
    ax: Axes,
    start: tuple[Number, Number],
    end: tuple[Number, Number],
    line: str,
) -> None:
    dotted = line == ":"
    ax.annotate(
        "",
        end,
        start,
        arrowprops={
            # An open head would be dotted, too, and hardly to be seen.
            "arrowstyle": "-|>,head_width=.18" if dotted else "->",
            "linestyle": (0, (1.5, 2)) if dotted else line,
            "capstyle": "butt",  # round ones would close the gaps
            "color": COLORS["gray"],
        },
    )


def hide_cells(ax: Axes, mask: Tensor | None) -> None:
    """Hatch the cells of a heatmap that no query may look at."""
    if mask is None:
        return
    for i, j in (~mask).nonzero().tolist():
        rectangle(
            ax,
            j - 0.5,
            i - 0.5,
            1,
            1,
            facecolor="white",
            edgecolor=COLORS["gray"],
            hatch="///",
            linewidth=0,
        )
        for text in ax.texts:
            if text.get_position() == (j, i):
                text.set_visible(False)


def box(
    ax: Axes,
    x: Number,
    y: Number,
    width: Number,
    height: Number,
    role: str,
    full: Number = 0.3,
) -> None:
    """A rectangle in the color of a role, with a line around it."""
    color = COLORS[ROLES[role]]
    rectangle(
        ax, x, y, width, height, facecolor=color, alpha=full, linewidth=0
    )
    rectangle(ax, x, y, width, height, fill=False, edgecolor=color)


def token_grid(ax: Axes, title: str, tokens: Sequence[str]) -> None:
    """Names on two sides of a grid, and nothing else around it."""
    size = len(tokens)
    ax.set(xlim=(-0.55, size - 0.45), ylim=(size - 0.45, -0.55))
    ax.set_title(title, loc="center", weight="bold")
    ax.set_xticks(range(size), tokens)
    ax.set_yticks(range(size), tokens)
    ax.xaxis.tick_top()
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
