"""Figures of the feed-forward network: its hidden units, one row each."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from coursekit_classroom.figures.shapes import rectangle, sheet
from coursekit_classroom.figures.style import (
    COLORS,
    ROLES,
    Number,
    new_figure,
    solid_arrow,
)

FFN = "purple"
CELL = 8.4


def between_and_within(tokens: Sequence[str], source: int) -> Axes:
    """Draw the two parts of a block on the streams of a few tokens.

    Args:
        tokens: in their order; the last one looks back.
        source: which token it takes most from.

    Returns:
        The axes; the stream of token i stands at x = 12 i.
    """
    ax = new_figure(2.7)[1][0]
    sheet(ax, (-5, 12 * len(tokens) + 23), (-0.9, 4.2))
    last = len(tokens) - 1
    for i, token in enumerate(tokens):
        low, high = (12 * i, -0.4), (12 * i, 4.2)
        solid_arrow(ax, low, high, COLORS[ROLES["stream"]], 3)
        _say(ax, 12 * i, -0.7, token, "center", weight="bold")
        for j in range(i):
            start, end = (12 * j, 0.1), (12 * i - 0.8, 1.0)
            solid_arrow(ax, start, end, COLORS["gray"], 0.6)
        box = Rectangle((12 * i + 1.5, 2.2), 7, 0.9)
        box.set(facecolor=COLORS[FFN], alpha=0.5)
        ax.add_patch(box)
        _say(ax, 12 * i + 5, 2.65, "FFN", "center", weight="bold")
        for start, end in (
            ((12 * i, 1.7), (12 * i + 5, 2.2)),
            ((12 * i + 5, 3.1), (12 * i + 0.6, 3.6)),
        ):
            solid_arrow(ax, start, end, COLORS[FFN], 1.5)
    start, end = (12 * source, 0.1), (12 * last - 0.8, 1.0)
    solid_arrow(ax, start, end, COLORS[ROLES["weight"]], 3)
    right = 12 * last + 10
    _say(ax, right, 2.65, "computes at\neach position")
    _say(ax, right, 0.6, "attention:\nmoves between\npositions")
    return ax


def hidden_units(
    x: Tensor,
    w_1: Tensor,
    w_2: Tensor,
    stream: Tensor | None = None,
    token: str = "x",
) -> Axes:
    """Draw a feed-forward network with ReLU as a table of its units.

    Args:
        x: (D,) what the network reads: the normalized vector.
        w_1: (D, Dff) each column is what one unit looks for.
        w_2: (Dff, D) each row is what one unit adds.
        stream: (D,) the vector to which the result is added, if it is to be
            drawn.
        token: whose vectors they are.

    Returns:
        The axes; x runs from 0 to 100, and unit i stands at height −i.
    """
    left, right, products = 10.5, 66.4, x @ w_1
    hidden, rows = products.relu(), w_1.size(1)
    low = rows + (1.0 if stream is None else 3.1)
    ax = new_figure(0.36 * (low + 3.3))[1][0]
    sheet(ax, (0, 100), (-low, 3.3))
    middle = CELL * len(x) / 2
    _cells(ax, x, left, 2.4, ROLES["stream"])
    _say(ax, left - 1.5, 2.4, token, "right", weight="bold")
    _say(ax, left + 2 * middle + 2, 2.4, "normalized")
    for at, text in (
        (left + middle, "looks for\n(column of $W_1$)"),
        (55.3, "product\n→ ReLU"),
        (right + middle, "adds\n(row of $W_2$)"),
    ):
        ax.text(at, 0.6, text, ha="center", va="bottom", color=COLORS["gray"])
    for i, (product, value) in enumerate(
        zip(products.tolist(), hidden.tolist(), strict=True)
    ):
        _say(ax, left - 1.5, -i, f"unit {i + 1}", "right")
        _cells(ax, w_1[:, i], left, -i, FFN, 0.45)
        text = f"{_number(product)} → {_number(value)}"
        _say(ax, 55.3, -i, text, "center", size=11)
        strength = 0.1 + 0.9 * value / max(hidden.max().item(), 1e-9)
        _cells(ax, w_2[i], right, -i, FFN, strength)
    output, color = hidden @ w_2, ROLES["stream"]
    sums = [("sum of what the units add", output, FFN)]
    if stream is not None:
        sums.append((f"+  stream of {token}", stream, color))
        sums.append((f"=  new stream of {token}", stream + output, color))
    for down, (text, row, color) in enumerate(sums):
        y = -rows - 0.3 - 1.05 * down
        _cells(ax, row, right, y, color)
        _say(ax, right - 2, y, text, "right")
    return ax


def two_classes(
    points: Mapping[str, tuple[Number, Number]],
    circled: Sequence[str],
    title: str,
    ax: Axes,
    below: Sequence[str] = (),
) -> Axes:
    """Draw named points of two classes in the plane.

    Args:
        points: where each name stands; equal places share one label.
        circled: the names that are drawn as circles, the others as crosses.
        title: above the picture.
        ax: where to draw.
        below: names that stand below their points, not above.

    Returns:
        The axes.
    """
    places: dict[tuple[Number, Number], list[str]] = {}
    for name, place in points.items():
        places.setdefault(place, []).append(name)
    for (x, y), names in places.items():
        inside = names[0] in circled
        ax.plot(
            [x],
            [y],
            marker="o" if inside else "X",
            markersize=11,
            linestyle="",
            color=COLORS["blue" if inside else "orange"],
            zorder=3,
        )
        ax.annotate(
            ",\n".join(names),
            (x, y),
            (0, -9 if names[0] in below else 9),
            textcoords="offset points",
            ha="center",
            va="top" if names[0] in below else "bottom",
        )
    ax.set_title(title)
    return ax


def matrix_areas() -> Axes:
    """Draw the matrices of a block to scale: four squares, two rectangles.

    Returns:
        The axes; one unit is D.
    """
    ax = new_figure(3.0)[1][0]
    gray = "gray"
    for x, y, wide, high, name, color in (
        (0.0, 3.1, 1, 1, "$W_Q$", ROLES["query"]),
        (1.08, 3.1, 1, 1, "$W_K$", ROLES["key"]),
        (0.0, 2.02, 1, 1, "$W_V$", ROLES["value"]),
        (1.08, 2.02, 1, 1, "$W_O$", gray),
        (0.0, 0.1, 4, 1, "$W_1$", FFN),
        (4.25, 0.1, 1, 4, "$W_2$", FFN),
    ):
        rectangle(ax, x, y, wide, high, facecolor=COLORS[color], alpha=0.5)
        size = f"{_times(high)} × {_times(wide)}"
        _say(ax, x + wide / 2, y + high / 2, f"{name}\n{size}", "center")
    _say(ax, 2.25, 3.05, "attention:\nfour matrices,\n$4D^2$")
    _say(ax, 5.45, 2.1, "FFN:\ntwo matrices,\n$8D^2$")
    ax.set(xlim=(-0.1, 6.9), ylim=(0, 4.2), aspect="equal")
    ax.axis("off")
    return ax


def unit_memory(
    rows: Sequence[tuple[str, str, str, str]], widths: Sequence[Number]
) -> Axes:
    """Draw hidden units as a memory: what each looks for, what it adds.

    Args:
        rows: for each unit its name, the text before the position, the
            token at the position, and the tokens that it makes likelier.
        widths: where the columns begin, of 100; the second column ends
            where the third begins.

    Returns:
        The axes; unit i stands at height −i.
    """
    ax = new_figure(0.42 * len(rows) + 0.6)[1][0]
    sheet(ax, (0, 100), (-len(rows) + 0.4, 1.2))
    unit, key, value = widths
    for x, text in (
        (unit, "unit"),
        (key, "fires most at"),
        (value, "makes likelier"),
    ):
        _say(ax, x, 0.9, text, color=COLORS["gray"])
    for i, (name, before, at, raised) in enumerate(rows):
        _say(ax, unit, -i, name)
        ax.text(
            key,
            -i,
            f"{before}[{at}]",
            va="center",
            family="monospace",
            size=11,
            weight="bold",
        )
        _say(ax, value - 4, -i, "→", "center")
        ax.text(value, -i, raised, va="center", family="monospace", size=11)
    return ax


def _say(
    ax: Axes,
    x: Number,
    y: Number,
    text: str,
    align: str = "left",
    **options: Any,
) -> None:
    ax.text(x, y, text, ha=align, va="center", **options)


def _times(length: int) -> str:
    return "$D$" if length == 1 else f"${length}D$"


def _number(value: Number) -> str:
    """Two digits, but none behind a whole number."""
    digits = 0 if value == round(value) else 2
    return f"{value:.{digits}f}".replace("-", "−")


def _cells(
    ax: Axes,
    values: Tensor,
    left: Number,
    y: Number,
    color: str,
    strength: Number = 1.0,
) -> None:
    """A vector as a row of boxes, two digits in each."""
    for i, value in enumerate(values.tolist()):
        rectangle(
            ax,
            left + i * CELL,
            y - 0.4,
            0.94 * CELL,
            0.8,
            facecolor=COLORS[color],
            alpha=0.5 * strength,
        )
        _say(
            ax,
            left + (i + 0.47) * CELL,
            y,
            _number(value),
            "center",
            size=11 if value == round(value) else 10,
        )
