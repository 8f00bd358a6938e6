"""Figures of several heads: what each finds, and how they fit together."""

from collections.abc import Mapping, Sequence

import torch
from matplotlib.axes import Axes
from torch import Tensor

from coursekit_classroom.figures.shapes import rectangle, sheet, write
from coursekit_classroom.figures.style import COLORS, ROLES, Number, new_figure

ARROW = {"arrowstyle": "-|>", "color": COLORS["gray"], "linewidth": 1.6}


def _box(  # noqa: PLR0913 (where it is, and how it looks)
    ax: Axes,
    x: Number,
    y: Number,
    width: Number,
    role: str,
    text: str = "",
    strength: Number = 1.0,
    height: Number = 1.0,
    size: Number = 11,
) -> None:
    """One box with its lower left corner at (x, y)."""
    rectangle(
        ax,
        x,
        y,
        width,
        height,
        facecolor=COLORS[ROLES[role]],
        alpha=0.55 * strength,
        edgecolor="none",
    )
    rectangle(
        ax, x, y, width, height, fill=False, edgecolor="white", linewidth=1.2
    )
    write(ax, x + width / 2, y + height / 2, text, size=size)


def _values(
    ax: Axes, x: Number, top: Number, role: str, values: Tensor, cell: Number
) -> None:
    """Write a matrix into boxes; whole numbers without decimals."""
    for i, row in enumerate(values.tolist()):
        for j, number in enumerate(row):
            digits = 0 if number == round(number) else 2
            text = f"{number:.{digits}f}".replace("-", "−")
            _box(ax, x + j * cell, top - i - 1, cell, role, text, size=10)


def mixtures(
    rows: Mapping[str, Sequence[Sequence[Mapping[str, Number]]]],
    titles: Sequence[str],
) -> Axes:
    """Draw what heads hand over, as boxes cut in proportion to the weights.

    Args:
        rows: for each sentence, one entry per column; an entry has the
            weights of its heads, each from a word to its weight.
        titles: of the columns.

    Returns:
        The axes; row i stands at height −i, column c begins at x = 11 c.
    """
    order = list(next(iter(rows.values()))[0][0])
    ax = new_figure(0.62 * len(rows) + 0.7)[1][0]
    sheet(ax, (-6.7, 11 * len(titles) - 0.9), (0.4 - len(rows), 1.4))
    for c, title in enumerate(titles):
        ax.text(11 * c + 5, 0.6, title, ha="center", va="bottom", size=11)
    for i, (sentence, columns) in enumerate(rows.items()):
        ax.text(-0.5, -i, sentence, ha="right", va="center", size=11)
        for c, heads in enumerate(columns):
            width = (10 - 0.6 * (len(heads) - 1)) / len(heads)
            for h, weights in enumerate(heads):
                x = 11 * c + h * (width + 0.6)
                for word in (w for w in order if w in weights):
                    weight = weights[word]
                    part = width * weight
                    strength = 1.0 if word == order[0] else 0.35
                    text = word if weight == 1 else f"{weight:g}\n{word}"
                    corner = x, -i - 0.4
                    _box(ax, *corner, part, "value", text, strength, 0.8, 10)
                    x += part
    return ax


def heads_added(
    x: Tensor, heads: Sequence[Tensor], names: Sequence[str]
) -> Axes:
    """Draw what heads find, side by side, and added to a vector.

    Args:
        x: (D,) the vector.
        heads: (Dv,) each; together they have D entries.
        names: of the heads.

    Returns:
        The axes; a line of the sum stands at each whole height from 0 down.
    """
    ax = new_figure(0.44 * (len(heads) + 3) + 0.25)[1][0]
    cell, bottom = 1.6, -len(heads) - 2
    sheet(ax, (-4.9, len(x) * cell + 4.2), (bottom - 0.6, 0.6))
    weights, start, lines = [], 0, []
    for name, head in zip(names, heads, strict=True):
        lines.append((name, start, head, "value"))
        start += len(head)
        weights += head.tolist()
    total = x + x.new_tensor(weights)
    lines += [
        ("side by side", 0, x.new_tensor(weights), "value"),
        ("$x$ of sat", 0, x, "stream"),
        ("their sum", 0, total, "stream"),
    ]
    for i, (name, left, numbers, role) in enumerate(lines):
        ax.text(-0.4, -i, name, ha="right", va="center")
        _values(ax, left * cell, 0.5 - i, role, numbers[None], cell)
    edge = len(x) * cell
    ax.plot([0, edge], [bottom + 0.5] * 2, color=COLORS["gray"], linewidth=1)
    side = -len(heads)
    ax.text(edge + 0.3, side, "($W_O$: identity)", va="center", size=11)
    ax.text(edge + 0.3, side - 1, "+", va="center", size=14)
    return ax


def split_and_merge(
    q: Tensor, weights: Sequence[Tensor], found: Sequence[Tensor]
) -> Axes:
    """Draw two heads: their columns of the queries, weights, and results.

    Args:
        q: (3, D) the queries of both heads, side by side.
        weights: (3, 3) attention weights of each head.
        found: (3, D/2) what each head hands over.

    Returns:
        The axes; head 1 is above height 0, head 2 below it.
    """
    ax = new_figure(2.9)[1][0]
    sheet(ax, (-0.4, 35.4), (-6.4, 4.6))
    half, narrow, wide = q.size(1) // 2, 1.5, 2.4
    joined = 35 - 2 * half * wide
    _values(ax, 0, 1.5, "query", q, narrow)
    for n, top in enumerate((3.4, -0.6)):
        columns = q[:, n * half : (n + 1) * half]
        middle = top - 1.5
        ax.annotate("", (8.2, middle), (6.3, 0), arrowprops=ARROW)
        _values(ax, 8.4, top, "query", columns, narrow)
        ax.annotate("", (13.6, middle), (11.7, middle), arrowprops=ARROW)
        for row, column in weights[n].nonzero().tolist():
            strength = 0.1 + 1.6 * float(weights[n][row, column])
            corner = 13.8 + column, top - row - 1
            _box(ax, *corner, 1, "weight", "", strength)
        ax.annotate("", (18.8, middle), (17.0, middle), arrowprops=ARROW)
        _values(ax, 19, top, "value", found[n], wide)
        start = 19.3 + half * wide
        ax.annotate("", (joined - 0.2, 0), (start, middle), arrowprops=ARROW)
        ax.text(12.6, top + 0.2, f"head {n + 1}", ha="center", size=11)
    _values(ax, joined, 1.5, "value", torch.cat(tuple(found), 1), wide)
    for x, text in (
        (3, "queries\n(T, D)"),
        (9.9, "split\n(H, T, Dh)"),
        (15.3, "weights\n(H, T, T)"),
        (21.4, "found\n(H, T, Dh)"),
        (30.2, "merged\n(T, D)"),
    ):
        ax.text(x, -4.2, text, ha="center", va="top", size=10)
    return ax


def sum_over_heads(
    found: Sequence[Tensor],
    w_o: Tensor,
    names: Sequence[str] = ("head 1 · $W_O^1$", "head 2 · $W_O^2$"),
    matrix: str = "$W_O$",
) -> Axes:
    """Draw two vectors side by side, times a matrix, as a sum of products.

    Args:
        found: (2,) numbers of each of two vectors, such as heads' results.
        w_o: (4, 4) the matrix, such as an output projection.
        names: of the two products.
        matrix: its name.

    Returns:
        The axes.
    """
    ax = new_figure(2.5)[1][0]
    sheet(ax, (-0.6, 24), (-6.6, 2.9))
    blocks = w_o.chunk(2)
    _values(ax, 0, 0.5, "value", torch.cat(tuple(found))[None], 2)
    _values(ax, 9.4, 2, "stream", w_o, 1.2)
    write(ax, 8.7, 0, "·", size=15)
    write(ax, 15.0, 0, "=", size=15)
    for n, left in enumerate((0.0, 13.2)):
        _values(ax, left, -3.5, "value", found[n][None], 2)
        write(ax, left + 4.7, -4, "·", size=15)
        _values(ax, left + 5.4, -3, "stream", blocks[n], 1.2)
        ax.text(left + 5, -5.3, names[n], ha="center", va="top", size=11)
    write(ax, 11.7, -4, "+", size=15)
    ax.text(4, 1.1, "side by side", ha="center", size=11)
    ax.text(11.8, 2.2, matrix, ha="center", size=11)
    return ax


def remaining(runs: Mapping[str, Tensor]) -> Axes:
    """Draw what is left of a variance, as a bar per name.

    Args:
        runs: for each name, one value per seed; the line spans the seeds.

    Returns:
        The axes; the first name is on top.
    """
    ax = new_figure(0.36 * len(runs) + 0.8)[1][0]
    for i, values in enumerate(runs.values()):
        mean = float(values.mean())
        ends = [[mean - float(values.min())], [float(values.max()) - mean]]
        ax.barh(
            i,
            mean,
            0.65,
            xerr=ends,
            capsize=3,
            color=COLORS["blue"],
            ecolor=COLORS["black"],
        )
        ax.annotate(
            f"{mean:.2f}",
            (float(values.max()), i),
            (6, 0),
            textcoords="offset points",
            va="center",
        )
    ax.set_yticks(range(len(runs)), list(runs))
    ax.set(xlim=(0, 0.6), ylim=(len(runs) - 0.5, -0.5))
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("fraction of the variance left")
    return ax
