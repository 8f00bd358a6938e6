"""Figures of what changed in decoders since GPT-2: norm, gate, RoPE."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Circle, Rectangle
from torch import Tensor

from coursekit_classroom.figures.shapes import box, decimal, sheet, write
from coursekit_classroom.figures.style import (
    COLORS,
    ROLES,
    Number,
    new_figure,
    solid_arrow,
)

INK, GRAY = COLORS["black"], COLORS["gray"]
MIDDLE: dict[str, Any] = {"ha": "center", "va": "center"}


def two_designs(
    titles: tuple[str, str], rows: Sequence[tuple[str, str, str]]
) -> Axes:
    """Draw two blocks as stacks of parts, from the bottom up.

    Args:
        titles: what stands above each stack.
        rows: a part at the left, the part at the right, and the role whose
            color both have; the right one is filled if it differs.

    Returns:
        The axes.
    """
    ax = new_figure(0.7 * len(rows) + 0.5)[1][0]
    stream = COLORS[ROLES["stream"]]
    for side, title in enumerate(titles):
        x = 5.35 * side
        ax.plot(
            [x + 0.2] * 2,
            [0, len(rows) - 0.3],
            color=stream,
            linestyle="-",
            linewidth=5,
            zorder=0,
        )
        for y, row in enumerate(rows):
            color = COLORS[ROLES[row[2]]]
            ax.plot([x + 0.2, x + 0.7], [y, y], color=INK, linestyle="-",
                    linewidth=1.4, zorder=-1)  # fmt: skip
            box = Rectangle((x + 0.7, y - 0.36), 4.2, 0.72, linewidth=1.8)
            box.set(facecolor="none", edgecolor=color)
            ax.add_patch(box)
            if side == 1 and row[0] != row[1]:
                tint = Rectangle((x + 0.7, y - 0.36), 4.2, 0.72, linewidth=0)
                tint.set(facecolor=color, alpha=0.3, zorder=0)
                ax.add_patch(tint)
            ax.text(x + 2.8, y, row[side], size=11, linespacing=1.1, **MIDDLE)
            if row[2] == "norm":  # a norm reads it for the part above
                ax.vlines(x + 2.8, y + 0.36, y + 0.64, INK, linewidth=1.4)
            elif row[2] != "token":  # this part adds to it
                ax.plot(x + 0.2, y, "o", color="white", ms=15, mec=INK)
                ax.text(x + 0.2, y, "+", size=13, weight="bold", **MIDDLE)
        top = len(rows) - 0.1
        ax.text(x + 2.8, top, title, weight="bold", **MIDDLE)
    sheet(ax, (-0.15, 10.4), (-0.45, len(rows) + 0.2))
    return ax


def norms_compared(x: Tensor) -> list[Axes]:
    """Draw a vector, its layer norm, and its RMSNorm, as bars on one scale.

    Args:
        x: (D,) the vector.

    Returns:
        The three axes.
    """
    size = x.square().mean().sqrt()
    spread = x.std(correction=0)
    panels = [
        ("x", x, x.mean()),
        ("layer norm", (x - x.mean()) / spread, torch.tensor(0.0)),
        ("RMSNorm", x / size, (x / size).mean()),
    ]
    axes = new_figure(2.3, columns=3, sharex=True)[1]
    reach = float(x.abs().max())
    for ax, (title, values, mean) in zip(axes, panels, strict=True):
        color = COLORS[ROLES["stream"]]
        ax.barh(range(len(x)), values.tolist(), 0.74, color=color, alpha=0.45)
        for i, value in enumerate(values.tolist()):
            side, end = (-0.04, "right") if value < 0 else (0.04, "left")
            at = value + side * reach
            ax.text(at, i, decimal(value), ha=end, va="center", size=11)
        ax.vlines(0, -0.5, len(x) - 0.5, INK, linewidth=1)
        ax.vlines(float(mean), -0.5, len(x) - 0.5, INK, "--", linewidth=1.4)
        below = f"mean {decimal(float(mean))}"
        write(ax, float(mean), len(x) - 0.1, below, size=11)  # fmt: skip
        ax.set(ylim=(len(x) + 0.2, -0.6), title=title, xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
    axes[0].set_xlim(-1.1 * reach, 1.5 * reach)
    return axes


def gated_units(gates: Sequence[Number], values: Sequence[Number]) -> Axes:
    """Draw hidden units of SwiGLU: a gate, a value, and their product.

    Args:
        gates: what the gate's matrix gives each unit.
        values: what the other matrix gives it.

    Returns:
        The axes; a unit is a row, from the top down.
    """
    ax = new_figure(0.55 * len(gates) + 0.75)[1][0]
    z, v = torch.tensor(gates, dtype=torch.float64), torch.tensor(values)
    opened = z * z.sigmoid()
    columns = {
        "gate: silu(z)": (opened, "weight"),
        "value": (v, "ffn"),
        "gate × value": (opened * v, "stream"),
    }
    for column, (title, (sizes, role)) in enumerate(columns.items()):
        x = 4.4 * column + 1.5
        ax.text(x + 0.6, 0.75, title, weight="bold", **MIDDLE)
        ax.vlines(x, -len(z) + 0.45, 0.4, INK, linewidth=1)
        for row, value in enumerate(sizes.tolist()):
            end_at = x + 0.7 * value
            low, wide = min(x, end_at), abs(0.7 * value)
            bar = Rectangle((low, -row - 0.27), wide, 0.54, linewidth=0)
            bar.set(facecolor=COLORS[ROLES[role]], alpha=0.5)
            ax.add_patch(bar)
            side, end = (-0.08, "right") if value < 0 else (0.08, "left")
            ax.text(end_at + side, -row, decimal(value), ha=end, va="center",
                    size=11)  # fmt: skip
    for row, gate in enumerate(gates):
        name = f"z = {gate:g}".replace("-", "−")
        ax.text(-0.2, -row, name, ha="right", va="center", size=11)
    for x, sign in ((4.15, "×"), (7.85, "=")):
        for row in range(len(gates)):
            ax.text(x, -row, sign, size=12, **MIDDLE)
    sheet(ax, (-1.6, 12.3), (-len(gates) + 0.3, 1.15))
    return ax


def turned_pairs(
    query: Sequence[Number],
    key: Sequence[Number],
    places: Sequence[tuple[int, int] | None],
    step: Number,
    titles: Sequence[str],
) -> list[Axes]:
    """Draw a query and a key of two entries as arrows that turn.

    Args:
        query, key: two entries each, to the right and upward.
        places: for each panel the positions of query and key; ``None``
            if nothing turns.
        step: radians, counterclockwise, for each position.
        titles: of the panels; the score is written below.

    Returns:
        The axes of the panels.
    """
    axes = new_figure(2.6, columns=len(places))[1]
    for ax, place, title in zip(axes, places, titles, strict=True):
        ends = []
        for vector, role, position in zip(
            (query, key), ("query", "key"), place or (0, 0), strict=True
        ):
            c, s = np.cos(position * step), np.sin(position * step)
            a, b = vector
            end = np.array([a * c - b * s, a * s + b * c])
            ends.append(end)
            tip = float(end[0]), float(end[1])
            solid_arrow(ax, (0, 0), tip, COLORS[ROLES[role]], 2.4)
            x, y = end * (1 + 0.38 / np.hypot(*end))
            ax.text(x, y, "q" if role == "query" else "k", size=12, **MIDDLE)
            ring = Circle((0, 0), float(np.hypot(a, b)), fill=False)
            ring.set(edgecolor=GRAY, linewidth=0.8, linestyle=":")
            ax.add_patch(ring)
        score = round(float(ends[0] @ ends[1]), 2) + 0.0
        shown = f"score {score:g}".replace("-", "−")
        ax.text(0, -3.25, shown, weight="bold", **MIDDLE)
        ax.set(xlim=(-2.9, 2.9), ylim=(-3.6, 2.9), aspect="equal")
        ax.set_title(title, size=11, loc="center")
        ax.axis("off")
    return axes


def head_groups(
    n_heads: int, n_shared: Sequence[int], notes: Sequence[str]
) -> Axes:
    """Draw which query heads share which head of keys and values.

    Args:
        n_heads: query heads.
        n_shared: heads of keys and values, one number per row.
        notes: what stands below each row.

    Returns:
        The axes.
    """
    ax = new_figure(1.75 * len(n_shared) + 0.1)[1][0]
    for row, (shared, note) in enumerate(zip(n_shared, notes, strict=True)):
        top = -3.3 * row
        for name, y in (("queries", top), ("keys,\nvalues", top - 1.4)):
            ax.text(-0.75, y, name, ha="right", va="center", size=11)
        group = n_heads // shared
        for head in range(n_heads):
            below = (head // group + 0.5) * group - 0.5
            ax.plot([head, below], [top - 0.32, top - 1.08], color=GRAY,
                    linestyle="-", linewidth=1.4, zorder=0)  # fmt: skip
            box = Rectangle((head - 0.32, top - 0.32), 0.64, 0.64)
            box.set(facecolor=COLORS[ROLES["query"]], linewidth=0)
            ax.add_patch(box)
        for head in range(shared):
            x = (head + 0.5) * group - 0.5
            for left, role in ((x - 0.34, "key"), (x, "value")):
                box = Rectangle((left, top - 1.72), 0.34, 0.64, linewidth=0)
                box.set(facecolor=COLORS[ROLES[role]])
                ax.add_patch(box)
        ax.text((n_heads - 1) / 2, top - 2.3, note, size=11, **MIDDLE)
    ax.set(xlim=(-2.9, n_heads - 0.4), ylim=(-3.3 * len(n_shared) + 0.6, 0.6))
    ax.set_aspect("equal")
    ax.axis("off")
    return ax


def chain_of_designs(
    parts: Sequence[str],
    designs: Mapping[str, Sequence[str]],
    roles: Sequence[str],
) -> Axes:
    """Draw models from the top down, each with the choices it is made of.

    Args:
        parts: what there is to choose, one a column.
        designs: by the name of a model, its choice of each part; filled
            where it is no longer that of the first model.
        roles: whose color each part has.

    Returns:
        The axes; model i stands at height −i, part j at x = j.
    """
    ax = new_figure(0.4 * len(designs) + 0.75)[1][0]
    first = next(iter(designs.values()))
    for j, name in enumerate(parts):
        ax.text(j, 0.6, name, ha="center", va="bottom", weight="bold", size=11)
    for i, (name, choices) in enumerate(designs.items()):
        ax.text(-0.6, -i, name, ha="right", va="center", size=11)
        for j, choice in enumerate(choices):
            full = 0.0 if choice == first[j] else 0.35
            box(ax, j - 0.47, -i - 0.41, 0.94, 0.82, roles[j], full)
            ax.text(j, -i, choice, size=11, **MIDDLE)
    sheet(ax, (-2.35, len(parts) - 0.5), (0.45 - len(designs), 1.6))
    return ax


def block_matrices(
    matrices: Sequence[tuple[str, str, int, int, str]],
) -> Axes:
    """Draw the seven matrices of a block to scale.

    Args:
        matrices: two names, rows and columns as in ``x @ W``, and role:
            attention's four, the two that lead into the hidden layer, and
            the one that leads out.

    Returns:
        The axes; one unit is one entry.
    """
    ax = new_figure(4.4)[1][0]
    gap, d_model = 40, matrices[0][2]
    x = y = right = 0
    for i, (ours, theirs, rows, columns, role) in enumerate(matrices):
        if i in (4, 5):  # a line of its own
            x, y = 0, y - rows - gap
        elif i == 6:  # next to all lines
            x, y = right, d_model - rows
        box(ax, x, y, columns, rows, role, 0.35)
        middle = x + columns / 2, y + rows / 2
        between = "\n" if 3 * columns <= rows else " "
        size = f"{rows:,}{between}×{between}{columns:,}"
        text = f"{ours}\n{theirs}\n{size}"
        ax.text(*middle, text, size=11, linespacing=1.3, **MIDDLE)
        x += columns + gap
        right = max(right, x)
    low = -2 * (d_model + gap)
    ax.set(xlim=(-10, right), ylim=(low - 10, d_model + 10), aspect="equal")
    ax.axis("off")
    return ax
