"""Alignment of the tokens of two texts."""

from collections.abc import Mapping, Sequence
from functools import partial

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from coursekit_classroom.figures.shapes import box, sheet, write
from coursekit_classroom.figures.style import COLORS, ROLES, Number, new_figure


def alignment(
    source: Sequence[str], target: Sequence[str], weights: Tensor
) -> Axes:
    """Draw two texts with a line for each weight between their tokens.

    Args:
        source: S tokens, above.
        target: T tokens, below.
        weights: (T, S); lines under a fifth are left out, and the largest
            of a target token has its number if it is 0.5 or more.

    Returns:
        The axes; the source stands at height 1, the target at 0.
    """
    ax = new_figure(2.6)[1][0]
    width = max(_width(source), _width(target))
    places = []
    for y, tokens, role in ((1.0, source, "key"), (0.0, target, "query")):
        x, middles = (width - _width(tokens)) / 2, []
        for token in tokens:
            size = len(token) + 1
            middles.append(x + size / 2)
            box(ax, x + 0.1, y - 0.14, size - 0.2, 0.28, role)
            write(ax, middles[-1], y, token)
            x += size + 0.3
        places.append(middles)
    say = partial(ax.text, va="center", color=COLORS["gray"], size=11)
    for y, name in ((1.32, "source"), (-0.32, "target")):
        say(0.1, y, name)
    say(width - 0.1, 1.32, "lines: weights from 0.2 up", ha="right")
    for i, row in enumerate(weights.tolist()):
        for j, weight in enumerate(row):
            if weight >= 0.2:
                ax.plot(
                    [places[1][i], places[0][j]],
                    [0.15, 0.85],
                    color=COLORS[ROLES["weight"]],
                    linestyle="-",
                    linewidth=1 + 6 * weight,
                    alpha=min(1.0, 0.1 + weight),
                    solid_capstyle="butt",
                    zorder=0,
                )
        if (most := max(row)) >= 0.5:
            _number(ax, most, places[1][i], places[0][row.index(most)])
    sheet(ax, (-0.2, width + 0.2), (-0.42, 1.42))
    return ax


def _number(ax: Axes, weight: float, low: Number, high: Number) -> None:
    """The weight of a line, on it, near its lower end."""
    x = low + 0.16 * (high - low)
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
    text = f"{weight:.2f}"
    write(ax, x, 0.262, text, size=10, bbox=ground)


def _width(tokens: Sequence[str]) -> Number:
    """Width of a row of boxes, in characters."""
    return sum(len(token) + 1.3 for token in tokens) - 0.3


def dependence(
    grids: Mapping[str, tuple[Tensor, Sequence[str], Sequence[str]]],
) -> list[Axes]:
    """Draw, side by side, which rows a change of each column moves.

    Args:
        grids: by a title, (T, S) booleans with T and S names.

    Returns:
        The axes, one for each grid.
    """
    ratios = [grid.size(1) for grid, _, _ in grids.values()]
    axes = new_figure(2.4, len(grids), width_ratios=ratios)[1]
    for ax, (title, (grid, rows, columns)) in zip(
        axes, grids.items(), strict=True
    ):
        for i, line in enumerate(grid.tolist()):
            for j, moved in enumerate(line):
                box(
                    ax,
                    j - 0.44,
                    i - 0.44,
                    0.88,
                    0.88,
                    "weight" if moved else "token",
                    0.6 if moved else 0.0,
                )
        ax.set(
            xlim=(-0.6, grid.size(1) - 0.4), ylim=(grid.size(0) - 0.4, -0.6)
        )
        ax.set_title(title, loc="center", weight="bold")
        ax.set_xticks(range(grid.size(1)), columns, rotation=90)
        ax.set_yticks(range(grid.size(0)), rows)
        ax.spines[:].set_visible(False)
        ax.tick_params(length=0)
        ax.set_aspect("equal", anchor="N")
    return axes


def ngram_hits(text: Sequence[str], reference: Sequence[str]) -> Axes:
    """Draw which runs of one to four words of a text a reference has.

    Args:
        text: at least four words.
        reference: the words of a human's translation.

    Returns:
        The axes; word i of the text stands at x = i.
    """
    ax = new_figure(2.7)[1][0]
    for i, word in enumerate(text):
        box(ax, i - 0.46, -0.32, 0.92, 0.64, "token")
        write(ax, i, 0, word)
    y = -0.75
    for n, name in enumerate(("words", "pairs", "triples", "quadruples"), 1):
        runs = _runs(reference, n)
        own = _runs(text, n)
        lines = min(n, len(own))
        hits = [run in runs for run in own]
        for i, hit in enumerate(hits):
            bar = Rectangle((i - 0.43, y - 0.4 * (i % n) - 0.14), n - 0.14,
                            0.28)  # fmt: skip
            bar.set(facecolor=COLORS["blue"] if hit else "none")
            bar.set(edgecolor=COLORS["blue" if hit else "gray"])
            bar.set(linestyle="-" if hit else ":")
            ax.add_patch(bar)
        middle = y - 0.2 * (lines - 1)
        ax.text(-0.7, middle, name, ha="right", va="center")
        score = f"{sum(hits)} of {len(hits)}"
        ax.text(len(text) - 0.3, middle, score, va="center")
        y -= 0.4 * lines + 0.25
    sheet(ax, (-1.9, len(text) + 0.6), (y, 0.4))
    return ax


def _runs(words: Sequence[str], n: int) -> list[tuple[str, ...]]:
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
