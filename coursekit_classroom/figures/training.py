"""Figures of training: one update, the schedule, and the two losses."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from coursekit_classroom.figures.charts import intervals
from coursekit_classroom.figures.shapes import arrow, box, sheet
from coursekit_classroom.figures.style import COLORS, ROLES, Number, new_figure

GRAY, BLUE, LOSS = COLORS["gray"], COLORS["blue"], COLORS[ROLES["loss"]]
INK = COLORS["black"]
COLUMN = 1.4  # width of a column of signed bars


def update_sizes(
    rows: Mapping[str, Sequence[Number]], limits: Sequence[Number]
) -> Axes:
    """Draw what descent and AdamW subtract, next to the gradient.

    Args:
        rows: for each parameter its gradient, what descent subtracts, and
            what AdamW does.
        limits: the value that fills the bar of each column.

    Returns:
        The axes; row i stands at height −i.
    """
    names = ("gradient", "descent\nsubtracts", "AdamW\nsubtracts")
    ax = new_figure(0.55 * len(rows) + 0.85)[1][0]
    for j, (name, color) in enumerate(
        zip(names, (LOSS, GRAY, BLUE), strict=True)
    ):
        zero = COLUMN * j
        ax.text(zero, 0.5, name, ha="left", va="bottom", weight="bold")
        ax.vlines(zero, -len(rows) + 0.6, 0.4, INK, linewidth=1)
        for i, values in enumerate(rows.values()):
            _signed_bar(ax, zero, -i, values[j], 0.8 / limits[j], color)
    for i, name in enumerate(rows):
        ax.text(-0.56, -i, name, ha="right", va="center")
    sheet(ax, (-0.72, 3 * COLUMN - 0.1), (-len(rows) + 0.5, 1.25))
    return ax


def learning_rates(rates: Sequence[Number], warmup: int) -> Axes:
    """Draw a schedule: the learning rate of each step, and its parts.

    Args:
        rates: one a step.
        warmup: how many steps rise.

    Returns:
        The axes.
    """
    ax = new_figure(2.5)[1][0]
    steps, peak = len(rates), max(rates)
    ax.plot(range(steps), rates, color=BLUE, linestyle="-")
    ax.axvline(warmup, color=GRAY, linewidth=1, linestyle="--")
    notes = (
        (1.6 * warmup, 1.13 * peak, "← warm-up", "left"),
        (0.56 * steps, 0.62 * peak, "half a cosine", "left"),
        (0.99 * steps, 0.26 * peak, "a tenth", "right"),
    )
    for x, y, text, side in notes:
        ax.text(x, y, text, ha=side, va="center")
    ax.set(xlim=(0, steps), ylim=(0, 1.25 * peak))
    ax.set_yticks([0, peak], ["0", f"{peak:g}"])
    ax.set(xlabel="training step", ylabel="learning rate")
    return ax


def schedules(arms: Mapping[str, Sequence[Sequence[Number]]]) -> list[Axes]:
    """Draw schedules with several peaks, on a logarithmic axis.

    Args:
        arms: for each panel the rates of each step, one list a peak.

    Returns:
        One axes for each panel.
    """
    axes = new_figure(2.6, columns=len(arms), sharey=True)[1]
    for ax, (title, lines) in zip(axes, arms.items(), strict=True):
        for rates in lines:
            ax.plot(range(1, len(rates) + 1), rates, "-", color=BLUE)
        ax.set(title=title, xlabel="training step", yscale="log")
    peaks = [max(rates) for rates in lines]
    axes[0].set_yticks(peaks, [f"{peak:.1g}" for peak in peaks])
    axes[0].set_ylabel("learning rate")
    axes[0].minorticks_off()
    return axes


def split_text(training: int, held_out: int, first: int) -> Axes:
    """Draw a text to scale: what two runs train on, and what tests them.

    Args:
        training: characters of the training part; one run has all of them.
        held_out: characters behind them, for the test of both.
        first: characters at the beginning that the other run has.

    Returns:
        The axes; a character is 1 wide, the text stands around height 0.
    """
    ax, total = new_figure(1.7)[1][0], training + held_out
    box(ax, 0, -0.4, training, 0.8, "token", 0.2)
    box(ax, training, -0.4, held_out, 0.8, "loss")
    box(ax, 0, -0.4, first, 0.8, "weight", 1)
    ends = [0, 0, training, training]
    ax.plot(ends, [0.55, 0.75, 0.75, 0.55], "-", color=INK, linewidth=1.2)
    arrow(ax, (0.03 * total, -0.95), (first / 2, -0.45), "-")
    arrow(ax, (0.95 * total, -0.95), (training + held_out / 2, -0.45), "-")
    for x, y, text, side in (
        (training / 2, 1.1, f"run 2 trains on {training:,} characters",
         "center"),
        (training / 2, 0, "training part", "center"),
        (0.04 * total, -1.1, f"run 1 trains on the first {first:,}", "left"),
        (total, -1.1, "held out: tests both", "right"),
    ):  # fmt: skip
        ax.text(x, y, text, ha=side, va="center")
    sheet(ax, (-0.01 * total, 1.01 * total), (-1.4, 1.4))
    return ax


def train_and_validation(
    arms: Mapping[str, Mapping[str, Sequence[Sequence[Number]]]],
    at: Sequence[Number],
    blind: Number,
) -> list[Axes]:
    """Draw training and validation loss side by side for several runs.

    Args:
        arms: for each panel its ``training`` and ``validation`` losses, one
            list a seed, with a value at each point.
        at: the training steps of the points.
        blind: the loss of a blind guess.

    Returns:
        One axes for each panel.
    """
    axes = new_figure(3.2, columns=len(arms), sharey=True)[1]
    styles = {"training": (GRAY, "-"), "validation": (LOSS, "--")}
    for ax, (title, curves) in zip(axes, arms.items(), strict=True):
        for name, (color, line) in styles.items():
            for k, losses in enumerate(curves[name]):
                label = name if k == 0 else None
                ax.plot(at, losses, line, color=color, label=label)
        ax.axhline(blind, color=INK, linewidth=0.8, linestyle=":")
        ax.set(title=title, xlabel="training step", ylim=(0, 1.28 * blind))
    axes[-1].text(at[-1], 1.03 * blind, "blind guess", ha="right")
    axes[0].set_ylabel("loss (nats per character)")
    axes[-1].legend(loc="lower left")
    return axes


def rate_valleys(
    rates: Sequence[Number],
    arms: Mapping[str, Sequence[Sequence[Number]]],
) -> Axes:
    """Draw the final loss over the peak learning rate, one line an arm.

    Args:
        rates: the peaks.
        arms: of two variants the losses, for each peak those of the seeds.

    Returns:
        The axes.
    """
    ax = new_figure(3.2)[1][0]
    looks = (("blue", "-"), ("orange", "--"))
    for (label, losses), look in zip(arms.items(), looks, strict=True):
        intervals(rates, np.array(losses).T, label, ax, *look)
    ax.set_xscale("log")
    ax.set_xticks(rates, [f"{rate:g}" for rate in rates])
    ax.minorticks_off()
    ax.set(xlabel="peak learning rate", ylabel="loss (nats per character)")
    ax.legend()
    return ax


def _signed_bar(
    ax: Axes, x: Number, y: Number, value: Number, unit: Number, color: str
) -> None:
    """A bar to the right of x, or to its left, with its number."""
    width = value * unit
    box = Rectangle((min(x, x + width), y - 0.3), abs(width), 0.6)
    box.set(facecolor=color, alpha=0.5)
    ax.add_patch(box)
    text = f"{value:g}".replace("-", "−")
    at = max(x, x + width) + 0.06
    ax.text(at, y, text, ha="left", va="center")
