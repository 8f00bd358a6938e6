"""Figures of the loss: what pushes a logit, and what a nat is spread over."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from coursekit.classroom.figures.style import (
    COLORS,
    ROLES,
    Number,
    new_figure,
)

__all__ = [
    "logit_pushes",
    "seed_dots",
    "stable_rows",
    "surprise_boxes",
]

LOSS = ROLES["loss"]


def logit_pushes(
    words: Sequence[str], logits: Tensor, target: int
) -> list[Axes]:
    """Draw logits, their softmax, and how one answer pushes each logit.

    Args:
        words: names of the V tokens.
        logits: (V,) what the model gave.
        target: index of the token that came.

    Returns:
        The axes of the logits z, the probabilities p, and the push y − p.
    """
    p = logits.softmax(0)
    push = -p
    push[target] += 1
    axes = new_figure(2.5, 3)[1]
    panels = (
        ("logit z", logits, "gray", False),
        ("probability p", p, "blue", False),
        ("push y − p", push, LOSS, True),
    )
    for ax, (title, values, color, signed) in zip(axes, panels, strict=True):
        numbers = values.tolist()
        for i, number in enumerate(numbers):
            _column(ax, i, number, COLORS[color], signed)
        # All pushes on one scale, so that two figures can be compared.
        low, high = (-1, 1) if signed else (min(0, *numbers), max(numbers))
        pad = 0.2 * (high - low)
        ax.set_ylim(low - (pad if low < 0 else 0), high + pad)
        ax.set_xlim(-0.6, len(words) - 0.4)
        ax.axhline(0, color=COLORS["black"], linewidth=0.8, linestyle="-")
        ax.set_xticks(range(len(words)), words)
        ax.get_xticklabels()[target].set_fontweight("bold")
        ax.tick_params(axis="x", length=0, labelsize=11)
        ax.set_yticks([])
        ax.spines[["left", "bottom"]].set_visible(False)
        ax.set_title(title)
    return axes


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
    ax.set(xlim=(-2.6, len(words) - 0.45), ylim=(-len(rows) + 0.4, 1.1))
    ax.axis("off")
    for j, word in enumerate(words):
        ax.text(j, 0.8, word, ha="center", va="center", weight="bold")
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
            ax.text(j, -i, text, ha="center", va="center", weight=weight)
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
            f"{mean:.2f}",
            (max(values), -i),
            (10, 0),
            textcoords="offset points",
            va="center",
        )
        ax.axhline(-i, color=COLORS["gray"], linewidth=0.5, linestyle="-")
    ax.set_yticks([-i for i in range(len(arms))], list(arms))
    ax.set_ylim(-len(arms) + 0.4, 0.6)
    ax.tick_params(axis="y", length=0)
    ax.margins(x=0.14)
    ax.set_xlabel(xlabel)
    return ax


def _column(
    ax: Axes, x: Number, height: Number, color: str, signed: bool
) -> None:
    """A bar from 0 with its number at its end, signed if it is a push."""
    low = min(0, height)
    box = Rectangle((x - 0.36, low), 0.72, abs(height))
    box.set(facecolor=color, alpha=0.55)
    ax.add_patch(box)
    text = f"{height:+.2f}" if signed else f"{height:.2f}"
    ax.annotate(
        text.replace("-", "−"),
        (x, height),
        (0, 3 if height >= 0 else -3),
        textcoords="offset points",
        ha="center",
        va="bottom" if height >= 0 else "top",
        size=10,
    )
