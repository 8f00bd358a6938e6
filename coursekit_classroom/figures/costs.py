"""Figures of what a model costs and gains: FLOPs, bytes, loss by size."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes

from coursekit_classroom.figures.shapes import box, rectangle, sheet, write
from coursekit_classroom.figures.style import COLORS, Number, new_figure

BAR = 24  # how long the longest bar of a column is, of 100


class CostRow(NamedTuple):
    """A row of :func:`cost_columns`: two numbers and the note next to them."""

    name: str
    values: tuple[Number, Number]
    texts: tuple[str, str]
    color: str


def cost_columns(rows: Sequence[CostRow], titles: tuple[str, str]) -> Axes:
    """Draw two costs of several things, each column to its own scale.

    Args:
        rows: from top to bottom; the colors are names in ``COLORS``.
        titles: what the two columns count.

    Returns:
        The axes; x runs from 0 to 100, and row i stands at height −i.
    """
    ax = new_figure(0.52 * len(rows) + 0.5)[1][0]
    sheet(ax, (0, 100), (0.55 - len(rows), 1))
    for column, left in enumerate((27, 65)):
        ax.text(left, 0.75, titles[column], va="center", weight="bold")
        largest = max(row.values[column] for row in rows)
        for i, row in enumerate(rows):
            width = BAR * row.values[column] / largest
            rectangle(
                ax,
                left,
                -i - 0.02,
                width,
                0.34,
                facecolor=COLORS[row.color],
                alpha=0.6,
            )
            ax.text(left, -i - 0.24, row.texts[column], va="center", size=11)
    for i, row in enumerate(rows):
        ax.text(0, -i, row.name, va="center")
    return ax


def stacks(
    rows: Mapping[str, Sequence[Number]],
    parts: Mapping[str, str],
    xlabel: str,
    digits: int = 1,
) -> Axes:
    """Draw one bar for each row, made of parts that are told apart in words.

    Args:
        rows: for each name how much of each part there is.
        parts: the name of each part, with its color in ``COLORS``.
        xlabel: what the lengths measure, with the unit.
        digits: behind the point of the numbers in the bars.

    Returns:
        The axes; row i stands at height i, and y runs downward.
    """
    ax = new_figure(0.5 * len(rows) + 1.2)[1][0]
    hatches = ["", "//", "..", "xx"]
    whole = max(sum(row) for row in rows.values())
    for i, row in enumerate(rows.values()):
        start: Number = 0
        for part, (name, color) in enumerate(parts.items()):
            ax.barh(
                i,
                row[part],
                left=start,
                height=0.66,
                color=COLORS[color],
                alpha=0.6,
                label=name if i == 0 else None,
                hatch=hatches[part],
                edgecolor="white",
            )
            if row[part] > 0.08 * whole:
                text, middle = f"{row[part]:.{digits}f}", start + row[part] / 2
                write(ax, middle, i, text, size=11)
            start += row[part]
    ax.set_yticks(range(len(rows)), list(rows))
    ax.tick_params(axis="y", length=0)
    ax.set(ylim=(len(rows) - 0.5, -0.5), xlabel=xlabel)
    ax.figure.legend(loc="outside upper left", ncols=1, fontsize=11)
    return ax


def matrix_products(
    rows: Sequence[tuple[str, Sequence[tuple[str, int, int, str]]]],
) -> Axes:
    """Draw products of matrices, each matrix in its shape.

    Args:
        rows: for each product what it is for, and its result and two
            factors: a name, rows, columns, and a role.

    Returns:
        The axes; the matrices of a row have a common middle.
    """
    heights = [max(part[1] for part in parts) + 0.8 for _, parts in rows]
    ax = new_figure(0.3 * sum(heights))[1][0]
    y = 0.0
    for (label, parts), tall in zip(rows, heights, strict=True):
        y -= tall / 2
        ax.text(0, y, label, va="center")
        x = 4.7
        for j, (name, height, width, role) in enumerate(parts):
            box(ax, x, y - height / 2, width, height, role)
            write(ax, x + width / 2, y, name)
            x += width
            if j < 2:
                write(ax, x + 0.5, y, "=·"[j])
                x += 1
        y -= tall / 2
    sheet(ax, (0, 5.4 / 0.3), (y, 0))
    return ax


def roofline(
    peak: Number,
    bandwidth: Number,
    points: Mapping[str, Number],
) -> Axes:
    """Draw how fast a machine can compute, by arithmetic intensity.

    Args:
        peak: FLOPs that it can do in a second.
        bandwidth: bytes that its memory can deliver in a second.
        points: the FLOPs per byte of each operation.

    Returns:
        The axes, both logarithmic, with teraFLOPs per second upward.
    """
    ax = new_figure(3.5)[1][0]
    knee, right = peak / bandwidth, 4000
    ax.plot(
        [0.5, knee, right],
        [0.5 * bandwidth / 1e12, peak / 1e12, peak / 1e12],
        color=COLORS["gray"],
        linestyle="-",
    )
    for i, (name, intensity) in enumerate(points.items()):
        speed = min(peak, bandwidth * intensity) / 1e12
        ax.plot(
            [intensity],
            [speed],
            marker="osD^v"[i % 5],
            markersize=9,
            color=COLORS["blue"],
            linestyle="",
        )
        beyond = intensity > knee
        ax.annotate(
            name,
            (intensity, speed),
            (0, -13) if beyond else (11, -5),
            textcoords="offset points",
            ha="center" if beyond else "left",
            va="top" if beyond else "center",
        )
    ax.axvline(knee, color=COLORS["gray"], linewidth=1, linestyle=":")
    for x, text, side in (
        (knee / 1.15, "memory-bound", "right"),
        (knee * 1.15, "compute-bound", "left"),
    ):
        ax.text(x, 1.2 * peak / 1e12, text, ha=side, va="bottom", size=11)
    ax.set(xscale="log", yscale="log", xlim=(0.5, right), ylim=(0.8, 900))
    ax.set_yticks([1, 10, 100], ["1", "10", "100"])
    ax.set_xticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
    ax.minorticks_off()
    ax.set_xlabel("arithmetic intensity (FLOPs per byte moved)")
    ax.set_ylabel("trillion FLOPs per second")
    return ax


def loss_by_size(
    sizes: Sequence[Number],
    losses: Sequence[Sequence[Number]],
    curves: Mapping[str, tuple[Sequence[Number], Sequence[Number]]]
    | None = None,
    band: tuple[Sequence[Number], Sequence[Number], Sequence[Number]]
    | None = None,
    held_back: tuple[Number, Sequence[Number]] | None = None,
) -> Axes:
    """Draw the losses of models over their size, both axes logarithmic.

    Args:
        sizes: parameters of each model.
        losses: of each model those of its seeds.
        curves: fitted laws, the points (x, y) of each label.
        band: x, and the lower and upper end of an interval there.
        held_back: size and losses of a model that no law was fitted on.

    Returns:
        The axes.
    """
    ax = new_figure(3.5)[1][0]
    if band is not None:
        x, low, high = band
        blue = COLORS["blue"]
        ax.fill_between(x, low, high, color=blue, alpha=0.25, linewidth=0)
    for label, (x, y) in (curves or {}).items():
        ax.plot(x, y, label=label)
    points = list(zip(sizes, losses, strict=True))
    for label, marker, fill, runs in (
        ("three seeds per size", "o", COLORS["black"], points),
        ("held back", "s", "none", [held_back] if held_back else []),
    ):
        ax.plot(
            [n for n, one in runs for _ in one],
            [loss for _, one in runs for loss in one],
            marker=marker,
            linestyle="",
            color=COLORS["black"],
            markerfacecolor=fill,
            markersize=6 if marker == "o" else 9,
            label=label if runs else None,
        )
    _name_axes(ax)
    ax.legend(fontsize=11)
    return ax


def _name_axes(ax: Axes) -> None:
    """The axes of a loss by size."""
    ax.set(xscale="log", yscale="log", xlim=(1.2e3, 7e5), ylim=(1.6, 2.5))
    ticks = [1.6, 1.8, 2.0, 2.2, 2.4]
    ax.set_yticks(ticks, [str(tick) for tick in ticks])
    ax.set_xticks([1e4, 1e5], ["10,000", "100,000"])
    ax.minorticks_off()
    ax.set_xlabel("parameters in the blocks")
    ax.set_ylabel("loss (nats per character)")
