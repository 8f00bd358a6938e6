"""Figures of the loss: what pushes a logit, and what a nat is spread over."""

from collections.abc import Mapping, Sequence
from functools import partial

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from coursekit_classroom.figures.shapes import arrow, decimal, sheet, write
from coursekit_classroom.figures.style import (
    COLORS,
    GROUND,
    ROLES,
    Number,
    new_figure,
)

LOSS = ROLES["loss"]
P, Y, PUSH = 43.0, 59.3, 88.0  # where bars begin, and what is between them
SCALE = 11.5  # how long a bar of 1 is
HEADS = ("logit z", "$e^z$", "p = $e^z$ ÷ sum", "target y", "push y − p")
COLUMNS = (14.0, 25.7, P, Y, 74.4)  # a heading begins where its numbers do


def logit_pushes(words: Sequence[str], logits: Tensor, target: int) -> Axes:
    """Draw logits, their softmax, the loss, and the push on each logit.

    Args:
        words: names of the V tokens.
        logits: (V,) what the model gave.
        target: index of the token that came.

    Returns:
        The axes; row i stands at height −i; probabilities p are bars from
        x = 43, pushes y − p are bars to both sides of x = 88, on one scale.
    """
    powers, p = logits.exp(), logits.softmax(0)
    push = -p
    push[target] += 1
    n, gray = len(words), COLORS["gray"]
    ax = new_figure(0.37 * n + 1.5)[1][0]
    sheet(ax, (0, 100), (-n - 1.5, 2.0))
    band = Rectangle((0, -target - 0.44), 100, 0.88, linewidth=0)
    band.set(facecolor=COLORS[LOSS], alpha=0.12)
    ax.add_patch(band)
    write = partial(ax.text, va="center", ha="center")
    for x, head in zip(COLUMNS, HEADS, strict=True):
        write(x, 0.8, head)
    arrow(ax, (COLUMNS[0], 1.32), (COLUMNS[2] + 4, 1.32), "-")
    write(COLUMNS[1], 1.72, "softmax")
    ax.vlines(PUSH, 0.45, 0.5 - n, COLORS["black"], linewidth=0.8)
    for i, word in enumerate(words):
        came = "bold" if i == target else "normal"
        write(1.5, -i, word, ha="left", weight=came)
        write(Y, -i, f"{i == target:d}", weight=came, size=11)
        _bar(ax, P, -i, p[i].item(), "blue")
        _bar(ax, PUSH, -i, push[i].item(), LOSS)
    write(1.5, -n, "sum", ha="left", color=gray)
    for x, total in ((P - 5.5, "1"), (Y, "1"), (PUSH - 16.5, "0")):
        write(x, -n, total, size=11, color=gray)
    write(COLUMNS[1], -n, f"{powers.sum():.3f}", size=11, color=gray)
    _numbers(ax, COLUMNS[0], logits, 2)
    _numbers(ax, COLUMNS[1], powers, 3)
    _numbers(ax, P - 5.5, p, 3)
    _numbers(ax, PUSH - 16.5, push, 3, "+")
    formula = f"−ln {p[target]:.3g} = {-p[target].log():.2f}"
    loss = f"cross-entropy loss = −ln p({words[target]}) = {formula}"
    write(50, -n - 1.05, loss, weight="bold", color=COLORS[LOSS])
    return ax


def _numbers(
    ax: Axes, x: Number, values: Tensor, digits: int, sign: str = ""
) -> None:
    """A column of numbers; what is rounded to zero has no sign."""
    for i, value in enumerate(values.tolist()):
        text = f"{value:{sign}.{digits}f}"
        if not text.strip("+-0."):
            text = text.strip("+-")
        text = text.replace("-", "−")
        write(ax, x, -i, text, size=11)


def _bar(ax: Axes, x: Number, y: Number, wide: float, color: str) -> None:
    """A bar that begins at x, as wide as its number says."""
    box = Rectangle((min(x, x + SCALE * wide), y - 0.32), SCALE * abs(wide),
                    0.64, linewidth=0)  # fmt: skip
    box.set(facecolor=COLORS[color], alpha=0.55)
    ax.add_patch(box)


def stable_rows(
    words: Sequence[str],
    rows: Sequence[tuple[str, Sequence[str], Sequence[int]]],
) -> Axes:
    """Draw steps of a computation, one row each; what has failed is red.

    Args:
        words: names of the V columns.
        rows: for each its label, its V texts, and which of them are broken.

    Returns:
        The axes; row i stands at height −i, column j at x = j.
    """
    ax = new_figure(0.42 * len(rows) + 0.5)[1][0]
    sheet(ax, (-2.6, len(words) - 0.45), (-len(rows) + 0.4, 1.1))
    for j, word in enumerate(words):
        write(ax, j, 0.8, word, weight="bold")
    for i, (label, texts, broken) in enumerate(rows):
        ax.text(-0.6, -i, label, ha="right", va="center")
        for j, text in enumerate(texts):
            bad = j in broken
            box = Rectangle((j - 0.46, -i - 0.38), 0.92, 0.76)
            box.set(
                facecolor=COLORS[LOSS if bad else "gray"],
                alpha=0.35 if bad else 0.18,
            )
            ax.add_patch(box)
            weight = "bold" if bad else "normal"
            write(ax, j, -i, text, weight=weight)
    return ax


def surprise_boxes(
    tokens: Sequence[str],
    nats: Sequence[Number],
    ticks: Mapping[Number, str],
) -> Axes:
    """Draw tokens as boxes: as wide as their text, as high as their loss.

    Args:
        tokens: the texts, in their order.
        nats: the loss of each.
        ticks: what to write at which heights.

    Returns:
        The axes; one unit to the right is one character.
    """
    ax = new_figure(3.0)[1][0]
    left, top = 0, max(nats)
    for token, height in zip(tokens, nats, strict=True):
        wide = len(token)
        box = Rectangle((left, 0), wide, height, linewidth=1)
        box.set(facecolor=COLORS[LOSS], alpha=0.45, edgecolor="white")
        ax.add_patch(box)
        for k, char in enumerate(token.replace(" ", "␣")):
            ax.text(
                left + k + 0.5,
                -0.06 * top,
                char,
                ha="center",
                va="top",
                family="monospace",
                size=10.5,
            )
        ax.text(
            left + wide / 2,
            height + 0.02 * top,
            f"{height:.1f}",
            ha="center",
            va="bottom",
            size=10,
        )
        ax.plot(
            [left + 0.25, left + wide - 0.25],
            [-0.18 * top] * 2,
            color=COLORS["gray"],
            linestyle="-",
            linewidth=2,
            clip_on=False,
        )
        left += wide
    ax.set(xlim=(0, left), ylim=(-0.2 * top, 1.16 * top))
    ax.set_xticks([])
    ax.set_yticks(list(ticks), list(ticks.values()))
    ax.spines["bottom"].set_visible(False)
    ax.set_ylabel("loss (nats)")
    return ax


def seed_dots(
    arms: Mapping[str, Sequence[Number]], xlabel: str, ax: Axes | None = None
) -> Axes:
    """Draw one row a variant: a dot for each seed, and their mean.

    Args:
        arms: measurements of each variant, one a seed.
        xlabel: what is measured.
        ax: where to draw; a new figure by default.

    Returns:
        The axes; variant i stands at height −i.
    """
    if ax is None:
        ax = new_figure(0.5 * len(arms) + 0.8)[1][0]
    for i, values in enumerate(arms.values()):
        mean = sum(values) / len(values)
        ax.plot(
            values,
            [-i] * len(values),
            marker="o",
            linestyle="",
            markersize=8,
            alpha=0.7,
            color=COLORS[LOSS],
        )
        ax.annotate(
            decimal(mean),
            (max(values), -i),
            (10, 0),
            textcoords="offset points",
            va="center",
            bbox=GROUND,
        )
        ax.axhline(-i, color=COLORS["gray"], linewidth=0.5, linestyle="-")
    ax.set_yticks([-i for i in range(len(arms))], list(arms))
    ax.set_ylim(-len(arms) + 0.4, 0.6)
    ax.tick_params(axis="y", length=0)
    ax.margins(x=0.14)
    ax.set_xlabel(xlabel)
    return ax
