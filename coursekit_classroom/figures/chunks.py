"""Figures of attention in chunks: a softmax on its way, and its tiles."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from coursekit_classroom.figures.shapes import write
from coursekit_classroom.figures.style import COLORS, ROLES, Number, new_figure

WEIGHT = COLORS[ROLES["weight"]]
FRACTIONS = {1: "1", 0.5: "½", 0.25: "¼", 0.125: "⅛"}


def running_softmax(
    scores: Sequence[Number], values: Sequence[Number], size: int
) -> list[Axes]:
    """Draw a softmax to base 2 whose scores come in two chunks.

    Three panels: after the first chunk, brought to the new largest score,
    after the second chunk.

    Args:
        scores: whole numbers, one for each key.
        values: of the keys, a number each.
        size: keys in the first chunk.

    Returns:
        The axes of the panels.
    """
    first, largest = max(scores[:size]), max(scores)
    axes = new_figure(3.4, 3)[1]
    for ax, title, shown, m in (
        (axes[0], "after chunk 1", size, first),
        (axes[1], f"rescaled to {largest}", size, largest),
        (axes[2], "after chunk 2", len(scores), largest),
    ):
        powers = [2.0 ** (score - m) for score in scores[:shown]]
        total = sum(powers)
        mixed = sum(p * v for p, v in zip(powers, values, strict=False))
        come = list(zip(scores, values, strict=True))[:shown]
        for i, pair in enumerate(come):
            for y, number in zip((-0.09, -0.21), pair, strict=True):
                write(ax, i, y, f"{number}")
        for i, power in enumerate(powers):
            bar = Rectangle((i - 0.4, 0), 0.8, power, facecolor=WEIGHT)
            bar.set_alpha(0.6)
            ax.add_patch(bar)
            text = FRACTIONS.get(power, f"{power:g}")
            ax.text(i, power + 0.03, text, ha="center", va="bottom")
        ax.text(
            -0.45,
            -0.4,
            f"$m$ = {m}\n$\\ell$ = {total:g}\n$a$ = {mixed:g}",
            va="top",
            linespacing=1.4,
        )
        ax.set(xlim=(-0.6, len(scores) - 0.4), ylim=(-0.95, 1.15), title=title)
        ax.axhline(0, color=COLORS["gray"], linewidth=1, linestyle="-")
        ax.axis("off")
    for y, name in ((-0.09, "score"), (-0.21, "value")):
        axes[0].text(-0.7, y, name, ha="right", va="center")
    return axes


def tiles(n_tokens: int, size: int, now: tuple[int, int]) -> list[Axes]:
    """Draw the weights of causal attention, stored and in chunks.

    Args:
        n_tokens: queries, and keys.
        size: tokens in a chunk.
        now: which chunk of queries meets which chunk of keys.

    Returns:
        The two axes.
    """
    left, right = new_figure(3.2, 2, width_ratios=[1, 1.45])[1]
    for i in range(n_tokens):
        for j in range(n_tokens):
            color, alpha = ("blue", 0.6) if j <= i else ("gray", 0.2)
            _cell(left, i, j, 0.9, color, alpha)
    for i in range(n_tokens // size):
        for j in range(n_tokens // size):
            done = j <= i and (i, j) < now
            text = "now" if (i, j) == now else "done" if done else ""
            text = "skip" if j > i else text
            alpha = 0.6 if text == "now" else 0.0
            _cell(right, size * i, size * j, size - 0.15, "blue", alpha)
            _outline(right, size * i, size * j, size - 0.15, j > i)
            middle = (size - 0.15) / 2
            write(right, size * j + middle, size * i + middle, text, size=11)
    row = size * now[0]
    for x, width, name in (
        (n_tokens + 0.5, 0.7, "$m$"),
        (n_tokens + 2.0, 0.7, "$\\ell$"),
        (n_tokens + 3.5, 2.2, "$a$"),
    ):
        box = Rectangle((x, row), width, size - 0.15)
        box.set(facecolor=COLORS["orange"], alpha=0.6)
        right.add_patch(box)
        right.text(x + width / 2, row - 0.2, name, ha="center", va="bottom")
    for ax, title, stop in (
        (left, "all weights stored", n_tokens),
        (right, "in chunks", n_tokens + 6),
    ):
        ax.set(xlim=(-0.2, stop), ylim=(n_tokens + 0.2, -0.2), aspect="equal")
        ax.set(title=title, xticks=[], yticks=[])
        ax.set_xlabel("keys", loc="left")
        ax.set_ylabel("queries")
        ax.spines[:].set_visible(False)
    return [left, right]


def _cell(
    ax: Axes, i: Number, j: Number, width: Number, color: str, alpha: Number
) -> None:
    box = Rectangle((j, i), width, width, facecolor=COLORS[color])
    box.set_alpha(alpha)
    ax.add_patch(box)


def _outline(
    ax: Axes, i: Number, j: Number, width: Number, is_dotted: bool
) -> None:
    box = Rectangle((j, i), width, width, fill=False)
    box.set(edgecolor=COLORS["gray"], linestyle=":" if is_dotted else "-")
    ax.add_patch(box)
