"""Figures of word order: a bag of vectors, sums, clock hands, look-backs."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Circle
from torch import Tensor

from coursekit_classroom.figures.shapes import (
    arrow,
    as_array,
    rectangle,
    sheet,
    short,
    strip,
    write,
)
from coursekit_classroom.figures.style import COLORS, ROLES, Number, new_figure

POSITION = ROLES["token"]


def bag_of_vectors(
    left: Sequence[str],
    right: Sequence[str],
    vectors: Mapping[str, Sequence[Number]],
) -> Axes:
    """Draw two orders of the same words, and the one bag that both fill.

    Args:
        left: words of one sentence, read downward.
        right: the same words in another order.
        vectors: D numbers each, by word; they stand in the bag in this order.

    Returns:
        The axes; row i of each column stands at height −i.
    """
    rows, size = len(vectors), len(next(iter(vectors.values())))
    ax = new_figure(0.5 * rows + 1.0)[1][0]
    sheet(ax, (0, 100), (-rows - 0.1, 1.3))
    cell, first = 6.0, 50 - 3.0 * size
    place = {word: -i for i, word in enumerate(vectors)}
    sides = ((left, 9, 17, first - 2), (right, 91, 83, 101 - first))
    for words, x, start, end in sides:
        ax.text(x, 0.85, "read downward", ha="center", color=COLORS["gray"])
        for i, word in enumerate(words):
            write(ax, x, -i, word, weight="bold")
            arrow(ax, (start, -i), (end, place[word]), "-")
    ax.text(50, 0.85, "bag of vectors", ha="center", color=COLORS["gray"])
    frame = (first - 1.2, -rows + 0.4)
    rectangle(
        ax,
        *frame,
        size * cell + 2.4,
        rows + 0.2,
        fill=False,
        edgecolor=COLORS["gray"],
        linewidth=1.5,
    )
    for word, vector in vectors.items():
        row = torch.tensor(vector)
        strip(ax, row, first, place[word], cell, ROLES["stream"])
    return ax


def added_positions(
    words: Sequence[str], embedding: Tensor, positions: Tensor
) -> Axes:
    """Draw embedding + positions = x, a row for each token.

    Args:
        words: T tokens, read downward.
        embedding: (T, D) the row of the embedding matrix of each token.
        positions: (T, D) rows 0 to T − 1 of the position matrix.

    Returns:
        The axes; token t stands at height −t.
    """
    size = embedding.size(1)
    ax = new_figure(0.42 * len(words) + 0.65)[1][0]
    cell, gap = 1.0, 1.2
    blocks = (
        ("embedding", embedding, ROLES["stream"], 0.5),
        ("position", positions, POSITION, 0.8),
        ("x", embedding + positions, ROLES["stream"], 1.0),
    )
    left = 1.5
    for (title, matrix, color, strength), sign in zip(
        blocks, "+= ", strict=True
    ):
        middle = left + size * cell / 2
        ax.text(middle, 0.75, title, ha="center", color=COLORS["gray"])
        for t, row in enumerate(matrix):
            strip(ax, row, left, -float(t), cell, color, strength)
            after = left + size * cell + gap / 2
            write(ax, after, -t, sign, size=14)
        left += size * cell + gap
    for t, word in enumerate(words):
        ax.text(1.25, -t, word, ha="right", va="center", weight="bold")
    sheet(ax, (-0.1, left - gap + 0.1), (-len(words) + 0.4, 1.3))
    return ax


def _dial(ax: Axes, x: Number, y: Number, angle: float, color: str) -> None:
    """One clock with a hand that starts upright and turns clockwise."""
    radius = 0.38
    ring = Circle((x, y), radius, fill=False, edgecolor=COLORS["gray"])
    ax.add_patch(ring)
    tip = x + radius * np.sin(angle), y + radius * np.cos(angle)
    ax.plot(
        [x, tip[0]],
        [y, tip[1]],
        color=COLORS[color],
        linestyle="-",
        solid_capstyle="round",
    )


def turned_back(position: int, n_positions: int) -> Axes:
    """Draw how a position finds the one before it with one clock hand.

    The hand turns by 1 radian per position.

    Args:
        position: who looks back.
        n_positions: clocks to compare with.

    Returns:
        The axes; the clock of position t has its center at (t, 0).
    """
    ax = new_figure(3.0)[1][0]
    middle = (n_positions - 1) / 2
    query, key = ROLES["query"], ROLES["key"]
    _dial(ax, middle - 1.1, 1.75, position, "gray")
    _dial(ax, middle + 1.1, 1.75, position - 1, query)
    arrow(ax, (middle - 0.55, 1.75), (middle + 0.55, 1.75), "-")
    for x, text in (
        (middle - 1.1, f"position {position}"),
        (middle + 1.1, "what it looks for"),
    ):
        ax.text(x, 2.25, text, ha="center", va="bottom")
    ax.text(middle, 1.95, "one step back", ha="center", size=10)
    ax.text(-0.75, -0.98, "product", ha="right", va="center")
    ax.text(-0.75, -0.62, "position", ha="right", va="center")
    for t in range(n_positions):
        matches = t == position - 1
        _dial(ax, t, 0.0, t, key)
        product = np.cos(position - 1 - t)
        text = f"{product:.2f}".replace("-", "−")
        weight = "bold" if matches else "normal"
        write(ax, t, -0.62, str(t), weight=weight)
        write(ax, t, -0.98, text, weight=weight)
        if matches:
            arrow(ax, (middle + 1.1, 1.3), (t, 0.45), "-")
            best = Circle(
                (t, 0), 0.46, fill=False, edgecolor=COLORS[query], linewidth=2
            )
            ax.add_patch(best)
    ax.set(xlim=(-2.0, n_positions - 0.4), ylim=(-1.2, 2.6), aspect="equal")
    ax.axis("off")
    return ax


def read_map(
    found: Tensor,
    tokens: Sequence[str],
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Mark for each position which position it reads.

    Args:
        found: (T,) whole numbers: position t reads ``found[t]``.
        tokens: T names; what each position has read stands at the right.
        title: above the picture.
        ax: where to draw; a new figure by default.

    Returns:
        The axes; row t, column s is the unit square around (s, t).
    """
    if ax is None:
        ax = new_figure(3.0)[1][0]
    size, gray = len(tokens), COLORS["gray"]
    whole = (-0.5, -0.5)
    rectangle(ax, *whole, size, size, fill=False, edgecolor=gray)
    ax.plot([-0.5, size - 0.5], [-0.5, size - 0.5], ":", color=gray, lw=1)
    for t, s in enumerate(found.tolist()):
        rectangle(
            ax, s - 0.5, t - 0.5, 1, 1, facecolor=COLORS[ROLES["weight"]]
        )
        ax.text(
            size - 0.2,
            t,
            tokens[s],
            ha="left",
            va="center",
            family="monospace",
        )
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_ticks(range(size), list(tokens), family="monospace")
    ax.set_title(title, loc="left")
    ax.set(xlim=(-0.6, size + 0.7), ylim=(size - 0.4, -0.6), aspect="equal")
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    return ax


def position_rows(grids: Mapping[str, Tensor | np.ndarray]) -> list[Axes]:
    """Draw which row of the position matrix each token of a batch got.

    Args:
        grids: (B, T) whole numbers each, by title.

    Returns:
        The axes, one for each grid.
    """
    arrays = {title: as_array(grid) for title, grid in grids.items()}
    top = max(grid.max() for grid in arrays.values())
    rows = max(len(grid) for grid in arrays.values())
    axes = new_figure(0.4 * rows + 0.75, columns=len(arrays))[1]
    for ax, (title, grid) in zip(axes, arrays.items(), strict=True):
        for (b, t), row in np.ndenumerate(grid):
            rectangle(
                ax,
                t - 0.46,
                b - 0.46,
                0.92,
                0.92,
                facecolor=COLORS[POSITION],
                alpha=0.08 + 0.5 * row / top,
            )
            write(ax, t, b, short(row.item()))
        ax.set_title(title, loc="left")
        sheet(ax, (-0.6, grid.shape[1] - 0.4), (len(grid) - 0.4, -0.6))
    return axes
