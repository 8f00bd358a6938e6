"""Figures of several heads: what each finds, and how they fit together."""

from collections.abc import Mapping, Sequence

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


def _grid(
    ax: Axes, x: Number, top: Number, role: str, marks: str, rows: int = 3
) -> None:
    """Rows of boxes; a mark, such as a head's number, for each column."""
    for i in range(rows):
        for j, mark in enumerate(marks):
            _box(ax, x + j, top - i - 1, 1, role, mark, size=10)


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
        for j, number in enumerate(numbers.tolist()):
            digits = 0 if number == round(number) else 2
            text = f"{number:.{digits}f}".replace("-", "−")
            at = (left + j) * cell
            _box(ax, at, -i - 0.38, cell, role, text, 1.0, 0.76)
    edge = len(x) * cell
    ax.plot([0, edge], [bottom + 0.5] * 2, color=COLORS["gray"], linewidth=1)
    side = -len(heads)
    ax.text(edge + 0.3, side, "($W_O$: identity)", va="center", size=11)
    ax.text(edge + 0.3, side - 1, "+", va="center", size=14)
    return ax


def split_and_merge(weights: Sequence[Tensor]) -> Axes:
    """Draw the way through two heads: cut the columns, attend, join, mix.

    Args:
        weights: (3, 3) attention weights of the two heads.

    Returns:
        The axes; head 1 is above height 0, head 2 below it.
    """
    ax = new_figure(3.0)[1][0]
    sheet(ax, (-0.4, 35.6), (-9.6, 6.9))
    roles = ("query", "key", "value")
    for role, top in zip(roles, (5.9, 1.5, -2.9), strict=True):
        _grid(ax, 0, top, role, "1122")
    for n, (top, matrix) in enumerate(zip((4.4, -1.6), weights, strict=True)):
        mark, middle = str(n + 1), top - 1.5
        ax.annotate("", (6.4, middle), (4.4, 0), arrowprops=ARROW)
        for i, role in enumerate(roles):
            _grid(ax, 6.7 + 2.5 * i, top, role, 2 * mark)
        ax.annotate("", (15.8, middle), (14.0, middle), arrowprops=ARROW)
        for row, column in matrix.nonzero().tolist():
            strength = 0.1 + 1.6 * float(matrix[row, column])
            corner = 16.1 + column, top - row - 1
            _box(ax, *corner, 1, "weight", "", strength)
        ax.annotate("", (21.1, middle), (19.4, middle), arrowprops=ARROW)
        _grid(ax, 21.4, top, "value", 2 * mark)
        ax.annotate("", (25.5, 0), (23.7, middle), arrowprops=ARROW)
        ax.text(17.6, top + 0.3, f"head {mark}", ha="center", size=11)
    _grid(ax, 25.8, 1.5, "value", "1122")
    ax.annotate("", (31.3, 0), (30.0, 0), arrowprops=ARROW)
    _grid(ax, 31.6, 1.5, "stream", "    ")
    for x, text in (
        (2, "q, k, v\n(T, D)"),
        (10.2, "split\n(H, T, Dh)"),
        (17.6, "weights\n(H, T, T)"),
        (22.4, "found\n"),
        (27.4, "merge\n(T, D)"),
        (33.4, "mix by $W_O$\n(T, D)"),
    ):
        ax.text(x, -6.6, text, ha="center", va="top", size=10)
    return ax


def sum_over_heads() -> Axes:
    """Draw [head 1, head 2] times W_O as a sum with a block of W_O each.

    Returns:
        The axes.
    """
    ax = new_figure(1.5)[1][0]
    sheet(ax, (-1.2, 30.2), (-3.4, 2.3))
    _grid(ax, 0, 0.5, "value", "1122", 1)
    _grid(ax, 5.6, 2, "stream", "1111", 2)
    _grid(ax, 5.6, 0, "stream", "2222", 2)
    for left, mark in ((12, "1"), (22, "2")):
        _grid(ax, left, 0.5, "value", 2 * mark, 1)
        _grid(ax, left + 3.6, 1, "stream", 4 * mark, 2)
    signs = {4.8: "·", 10.8: "=", 14.8: "·", 20.8: "+", 24.8: "·"}
    for x, text in signs.items():
        write(ax, x, 0, text, size=15)
    for x, text in (
        (2, "side by side"),
        (7.6, "$W_O$"),
        (15.4, "head 1 · $W_O^1$"),
        (25.4, "head 2 · $W_O^2$"),
    ):
        ax.text(x, -2.4, text, ha="center", va="top", size=11)
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
