"""Figures of masks: what is hidden, before and after the softmax."""

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from coursekit_classroom.figures.shapes import (
    arrow,
    decimal,
    rectangle,
    sheet,
    token_grid,
    write,
)
from coursekit_classroom.figures.style import COLORS, ROLES, Number, new_figure


def mask_effect(
    scores: Tensor, mask: Tensor | None, tokens: Sequence[str], row: int
) -> list[Axes]:
    """Draw scores, and beside them the weights that a softmax makes of them.

    Args:
        scores: (T, T), queries are rows.
        mask: (T, T) booleans, True = may attend; a hidden score is −∞.
        tokens: T names.
        row: of the query that the text speaks of; it is outlined.

    Returns:
        The two axes.
    """
    axes = new_figure(0.5 * len(tokens) + 0.85, columns=2)[1]
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    panels = [("scores", scores), ("weights", scores.softmax(-1))]
    for ax, (title, grid) in zip(axes, panels, strict=True):
        for i, numbers in enumerate(grid.tolist()):
            for j, number in enumerate(numbers):
                share = number if title == "weights" else 0.0
                hidden = mask is not None and not mask[i, j]
                _cell(ax, j, i, number, share, hidden)
        token_grid(ax, title, tokens)
        rectangle(
            ax,
            -0.5,
            row - 0.5,
            len(tokens),
            1,
            fill=False,
            edgecolor=COLORS["orange"],
            linewidth=2.5,
        )
    axes[0].set_ylabel("query (row)")
    axes[1].annotate(
        "softmax →",
        (-0.16, 1.14),
        xycoords="axes fraction",
        ha="center",
        va="bottom",
    )
    return axes


def _cell(
    ax: Axes, x: int, y: int, number: Number, share: Number, hidden: bool
) -> None:
    """One number in its box: shaded by its share, hatched if hidden."""
    text = "−∞" if number == -math.inf else decimal(number)
    if share:
        rectangle(
            ax,
            x - 0.46,
            y - 0.46,
            0.92,
            0.92,
            facecolor=COLORS[ROLES["weight"]],
            alpha=0.6 * share,
            edgecolor="none",
        )
    rectangle(
        ax,
        x - 0.46,
        y - 0.46,
        0.92,
        0.92,
        fill=False,
        edgecolor=COLORS["gray"],
        linestyle=":" if hidden else "-",
        linewidth=1,
    )
    write(
        ax,
        x,
        y,
        text.replace("-", "−"),
        color=COLORS["gray" if hidden else "black"],
    )


def causal_rows(tokens: Sequence[str]) -> list[Axes]:
    """Draw who sees what, without a mask and with the causal one.

    Args:
        tokens: T names.

    Returns:
        The two axes; query i stands at height −i, key j at x = j.  A box is
        filled where the query sees the key, and its own has a thick line.
    """
    size = len(tokens)
    axes = new_figure(0.42 * size + 1.0, columns=2, width_ratios=(1.32, 1))[1]
    for ax, causal in zip(axes, (False, True), strict=True):
        for i, query in enumerate(tokens):
            for j, token in enumerate(tokens):
                visible = j <= i or not causal
                _box(ax, j, -i, token, "sky" if visible else None)
                if not visible:
                    ax.texts[-1].set_color(COLORS["gray"])
            own = Rectangle((i - 0.46, -i - 0.36), 0.92, 0.72, fill=False)
            own.set(edgecolor=COLORS[ROLES["query"]], linewidth=2.5)
            ax.add_patch(own)
            if not causal:
                write(
                    ax,
                    -1.5,
                    -i,
                    query,
                    weight="bold",
                    color=COLORS[ROLES["query"]],
                )
                arrow(ax, (-1.0, -i), (-0.5, -i), "-")  # fmt: skip
        if not causal:
            ax.text(-1.5, 0.62, "query", ha="center", va="bottom")
        title = "causal mask" if causal else "no mask"
        middle = (size - 1) / 2
        ax.text(middle, 1.3, title, ha="center", va="bottom", weight="bold")
        ax.text(middle, 0.62, "keys", ha="center", va="bottom")
        left = -0.55 if causal else -1.95
        ax.set(xlim=(left, size - 0.45), ylim=(-size + 0.05, 1.85))
        note = "later: hidden" if causal else "sees everything"
        ax.text(middle, -size + 0.52, note, ha="center", va="top", size=11)
        ax.axis("off")
    return axes


def prefixes(tokens: Sequence[str], targets: Sequence[str]) -> Axes:
    """Draw one pass as T questions: what follows each prefix?

    Args:
        tokens: T names, the input.
        targets: T names, what follows each of them.

    Returns:
        The axes; the question of position i stands at height −i, key j at
        x = j, its answer at x = T + 1.
    """
    size = len(tokens)
    ax = new_figure(0.55 * size + 0.75)[1][0]
    for i, target in enumerate(targets):
        for j, token in enumerate(tokens):
            visible = j <= i
            _box(ax, j, -i, token, "sky" if visible else None)
            if not visible:
                ax.texts[-1].set_color(COLORS["gray"])
        arrow(ax, (size - 0.45, -i), (size + 0.45, -i), "-")
        _box(ax, size + 1, -i, target, ROLES["loss"])
        ax.text(-0.75, -i, tokens[i], ha="right", va="center", weight="bold")
    for x, text in (((size - 1) / 2, "what it sees"), (size + 1, "target")):
        ax.text(x, 0.55, text, ha="center", va="bottom", weight="bold")
    sheet(ax, (-1.5, size + 1.6), (0.45 - size, 1.0))
    return ax


def window_and_prefix(tokens: Sequence[str], at: int) -> Axes:
    """Draw one question twice: given a window, and given the prefix alone.

    Args:
        tokens: those of the window.
        at: the position whose next token is asked for; not the last.

    Returns:
        The axes; the window stands at height 0, the prefix at −1, token j
        at x = j. In the window, the answer is as red as the target.
    """
    size = len(tokens)
    ax = new_figure(1.5)[1][0]
    for y, (name, n_visible) in enumerate(
        (("window", size), ("prefix", at + 1))
    ):
        ax.text(-0.75, -y, name, ha="right", va="center")
        for j, token in enumerate(tokens):
            color = ROLES["loss"] if j == at + 1 else "sky"
            here = j < n_visible
            _box(ax, j, -y, token if here else "", color if here else None)
        arrow(ax, (size - 0.45, -y), (size + 0.45, -y), "-")
        _box(ax, size + 1, -y, tokens[at + 1], ROLES["loss"])
    for x, text in (
        ((size - 1) / 2, "what it is given"),
        (size + 1, "target"),
    ):
        ax.text(x, 0.55, text, ha="center", va="bottom", weight="bold")
    sheet(ax, (-1.9, size + 1.6), (-1.55, 1.0))
    return ax


def padded_batch(rows: Sequence[Sequence[str]]) -> Axes:
    """Draw sentences of one batch; padding fills up the shorter ones.

    Args:
        rows: the tokens of each sentence.

    Returns:
        The axes; row i stands at height −i, position s at x = s.
    """
    ax = new_figure(0.5 * len(rows) + 0.5)[1][0]
    size = max(map(len, rows))
    for i, tokens in enumerate(rows):
        for x in range(size):
            real = x < len(tokens)
            text = tokens[x] if real else "pad"
            _box(ax, x, -i, text, "sky" if real else None)
    sheet(ax, (-0.55, size - 0.45), (0.6 - len(rows), 0.6))
    return ax


def _box(ax: Axes, x: Number, y: Number, text: str, color: str | None) -> None:
    """A token in its box; an empty dotted one without a color."""
    corner, width, height = (x - 0.46, y - 0.36), 0.92, 0.72
    if color is not None:
        rectangle(
            ax, *corner, width, height, facecolor=COLORS[color], alpha=0.4
        )
    rectangle(
        ax,
        *corner,
        width,
        height,
        fill=False,
        edgecolor=COLORS["gray"],
        linestyle=":" if color is None else "-",
    )
    write(ax, x, y, text)


def verdicts(
    rows: Mapping[str, Sequence[bool | None]],
    columns: Sequence[str],
    ax: Axes | None = None,
) -> Axes:
    """Draw a table of tests: passed, failed, or not to be asked.

    Args:
        rows: name of what was tested, and for each test True (passed),
            False (failed) or ``None`` (cannot be asked).
        columns: names of the tests.
        ax: where to draw; a new figure by default.

    Returns:
        The axes; row i stands at height −i, test j at x = j.
    """
    if ax is None:
        ax = new_figure(0.33 * len(rows) + 0.6)[1][0]
    signs = {True: ("yes", "green"), False: ("NO", "orange"), None: ("–", "")}
    for i, (name, passed) in enumerate(rows.items()):
        ax.text(-0.6, -i, name, ha="right", va="center", family="monospace")
        for j, one in enumerate(passed):
            sign, color = signs[one]
            if color:
                rectangle(
                    ax,
                    j - 0.46,
                    -i - 0.42,
                    0.92,
                    0.84,
                    facecolor=COLORS[color],
                    alpha=0.25 if one else 0.6,
                )
            bold = "bold" if one is False else "normal"
            write(ax, j, -i, sign, weight=bold)
    for j, name in enumerate(columns):
        ax.text(j, 0.65, name, ha="center", va="bottom")
    room = 0.75 + 0.14 * max(map(len, rows))
    sheet(ax, (-room, len(columns) - 0.5), (0.4 - len(rows), 1.9))
    return ax
