"""Charts: heatmaps, bars, curves, intervals over seeds, the ladder."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from torch import Tensor

from coursekit.classroom.figures.shapes import (
    as_array,
    names_or_numbers,
)
from coursekit.classroom.figures.style import (
    COLORS,
    Number,
    new_figure,
)

__all__ = [
    "bars",
    "curves",
    "heatmap",
    "intervals",
    "ladder",
]


def heatmap(
    values: Tensor | np.ndarray,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    title: str = "",
    ax: Axes | None = None,
    numbers: bool | None = None,
    limits: tuple[float, float] | None = None,
    color: str = "Blues",
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
        color: matplotlib's color map, if no number is negative.

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
    cmap = "RdBu_r" if signed else color
    ax.imshow(grid, cmap=cmap, vmin=limits[0], vmax=limits[1], aspect="auto")
    ax.set_title(title)
    ax.set_xticks(
        range(grid.shape[1]), names_or_numbers(columns, grid.shape[1])
    )
    ax.set_yticks(range(grid.shape[0]), names_or_numbers(rows, grid.shape[0]))
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


def bars(
    values: Tensor | np.ndarray,
    labels: Sequence[str] | None = None,
    title: str = "",
    ax: Axes | None = None,
    color: str = "blue",
) -> Axes:
    """Draw one row of weights: a bar for each key, all scales from 0 to 1.

    Args:
        values: (S,) weights.
        labels: S names; none by default.
        title: above the picture.
        ax: where to draw; a new figure by default.
        color: a name in ``COLORS``.

    Returns:
        The axes.
    """
    heights = as_array(values)
    if ax is None:
        ax = new_figure(height=2.4)[1][0]
    ax.bar(range(len(heights)), heights, width=0.8, color=COLORS[color])
    ax.set_ylim(0, 1)
    ax.set_title(title)
    ax.set_xticks(
        range(len(heights)) if labels is not None else [],
        list(labels) if labels is not None else [],
    )
    return ax


def intervals(
    x: Sequence[int | float],
    samples: Tensor | np.ndarray,
    label: str = "",
    ax: Axes | None = None,
    color: str = "blue",
    style: str = "-",
) -> Axes:
    """Draw means over seeds, each with the range that the seeds cover.

    Args:
        x: N places.
        samples: (seeds, N) measurements.
        label: for the legend.
        ax: where to draw; a new figure by default.
        color: a name in ``COLORS``.
        style: of the line; two lines differ in it and in their marker.

    Returns:
        The axes.
    """
    grid = as_array(samples)
    if ax is None:
        ax = new_figure()[1][0]
    # Rounding must not lift the mean of equal numbers above them.
    mean = grid.mean(axis=0).clip(grid.min(axis=0), grid.max(axis=0))
    ax.errorbar(
        x,
        mean,
        yerr=np.stack([mean - grid.min(axis=0), grid.max(axis=0) - mean]),
        label=label,
        color=COLORS[color],
        linestyle=style,
        marker="o" if style == "-" else "s",
        capsize=4,
    )
    return ax


def curves(
    lines: Mapping[str, tuple[Sequence[Number], Sequence[Number]]],
    references: Mapping[str, Number] | None = None,
    xlabel: str = "training step",
    ylabel: str = "loss (nats per character)",
    ax: Axes | None = None,
) -> Axes:
    """Draw lines that are told apart by dash as well as by color.

    Args:
        lines: the points (x, y) of each label.
        references: heights of thin labeled lines to compare with.
        xlabel: what runs to the right.
        ylabel: what runs upward, with its unit.
        ax: where to draw; a new figure by default.

    Returns:
        The axes.
    """
    if ax is None:
        ax = new_figure(height=3.4)[1][0]
    for label, (x, y) in lines.items():
        ax.plot(x, y, label=label)
    references = references or {}
    for label, height in references.items():
        # Curves come down from above: the floor's label stands below it.
        below = height == min(references.values()) and len(references) > 1
        ax.axhline(height, color=COLORS["gray"], linewidth=1, linestyle="-")
        ax.annotate(
            label,
            (1, height),
            (0, -12 if below else 3),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            ha="right",
            va="top" if below else "baseline",
            color=COLORS["black"],
            size=11,
        )
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    if len(lines) > 1:
        ax.legend()
    return ax


def ladder(
    rungs: Sequence[Mapping[str, Any]],
    current: str | None = None,
    reveal: bool = False,
    marks: Mapping[str, Number] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the ladder: one bar a model, shorter is better.

    Args:
        rungs: of ``results/ladder.json``: each has a ``name``, a ``label``
            and a ``loss`` with its ``mean`` and ``interval``.
        current: name of the rung to mark (filled, bold, with an arrow).
        reveal: draw the rungs above the current one too; else they are
            named, and their bars left open.
        marks: losses to compare with, drawn as labeled vertical lines.
        ax: where to draw; a new figure by default.

    Returns:
        The axes.

    Raises:
        ValueError: if no rung is called ``current``.
    """
    names = [rung["name"] for rung in rungs]
    if current is not None and current not in names:
        raise ValueError(
            f"current must be a rung of the ladder: got {current!r}, and the "
            f"rungs are {', '.join(names)}. Use one of these names."
        )
    here = len(names) if current is None else names.index(current)
    if ax is None:
        ax = new_figure(height=0.42 * len(rungs) + 0.9)[1][0]
    top = max(rung["loss"]["mean"] for rung in rungs)
    for i, rung in enumerate(rungs):
        if i > here and not reveal:
            ax.text(0.02 * top, i, "?", va="center", color=COLORS["gray"])
            continue
        loss = rung["loss"]
        ax.barh(
            i,
            loss["mean"],
            height=0.7,
            xerr=loss["interval"],
            capsize=3,
            color=COLORS["blue"] if i == here else "white",
            edgecolor=COLORS["blue"],
            ecolor=COLORS["black"],
        )
        ax.annotate(
            f"{loss['mean']:.2f}" + ("  ◀" if i == here else ""),
            (loss["mean"] + loss["interval"], i),
            (5, 0),
            textcoords="offset points",
            va="center",
            weight="bold" if i == here else "normal",
        )
    for text, loss in (marks or {}).items():
        ax.axvline(loss, color=COLORS["orange"], linewidth=1.5, linestyle="--")
        ax.annotate(
            f"{text}, {loss:.2f}",
            (loss, 1.01),
            xycoords=("data", "axes fraction"),
            ha="center",
        )
    ax.set_yticks(range(len(rungs)), [rung["label"] for rung in rungs])
    for i, label in enumerate(ax.get_yticklabels()):
        label.set_fontweight("bold" if i == here else "normal")
    ax.set_xlim(0, 1.18 * top)
    ax.set_ylim(len(rungs) - 0.4, -0.6)  # the first rung on top
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("validation loss (nats per character)")
    return ax
