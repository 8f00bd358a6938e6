"""A figure of the stream at all positions and depths."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from coursekit_classroom.figures.shapes import arrow, box, sheet
from coursekit_classroom.figures.style import new_figure


def vectors_read(tokens: Sequence[str], depths: Sequence[str]) -> Axes:
    """Draw the stream as a grid of vectors, and the one that is read.

    Args:
        tokens: T of them.
        depths: names of the rows, from the bottom up.

    Returns:
        The axes; the vector of token t at depth d has its middle at (t, d).
    """
    top, end = len(depths) - 1, len(tokens) - 1
    ax = new_figure(0.5 * len(depths) + 1.1)[1][0]
    for d, name in enumerate(depths):
        ax.text(-0.75, d, name, ha="right", va="center", size=11)
        for t in range(len(tokens)):
            read = (t, d) == (end, top)
            box(ax, t - 0.4, d - 0.22, 0.8, 0.44, "stream", 0.7 * read)
            if d:
                arrow(ax, (t, d - 0.75), (t, d - 0.25), "-")
    arrow(ax, (end, top + 0.25), (end, top + 0.7), "-")
    ax.text(end, top + 0.75, "next token", ha="center", va="bottom")
    for t, token in enumerate(tokens):
        label = ax.text(t + 0.15, -0.45, token, ha="right", va="top")
        label.set(rotation=35, rotation_mode="anchor")
    sheet(ax, (-3.1, len(tokens) - 0.2), (-1.5, top + 1.2))
    return ax
