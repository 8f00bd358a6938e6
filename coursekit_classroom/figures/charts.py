"""Charts: bars, curves, intervals over seeds, the ladder."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from torch import Tensor

from coursekit_classroom.figures.shapes import as_array
from coursekit_classroom.figures.style import COLORS, Number, new_figure


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
) -> Axes:
    """Draw the ladder: one bar a model, shorter is better.

    Args:
        rungs: of ``results/ladder.json``: each has a ``name``, a ``label``
            and a ``loss`` with its ``mean`` and ``interval``.
        current: name of the rung to mark (filled, bold, with an arrow).
        reveal: draw the rungs above the current one too; else they are
            named, and their bars left open.
        marks: losses to compare with, drawn as labeled vertical lines.

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
