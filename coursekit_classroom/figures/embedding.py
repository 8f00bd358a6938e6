"""Figures of the way from an id to a vector, and back to a token."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from coursekit_classroom.figures.shapes import (
    name_column,
    sheet,
    short,
    strip,
    write,
)
from coursekit_classroom.figures.style import COLORS, ROLES, Number, new_figure

STREAM, OUTPUT = ROLES["stream"], ROLES["weight"]


def id_neighbors(strips: Sequence[tuple[int, Sequence[str]]]) -> Axes:
    """Draw tokens beside those whose ids come just before and after.

    Args:
        strips: the first id of each strip, and its tokens in order of their
            ids; the one in the middle is marked.

    Returns:
        The axes; strip i stands at height −i.
    """
    ax = new_figure(0.62 * len(strips) + 0.35)[1][0]
    sheet(ax, (-1.35, 3.75), (-len(strips) + 0.35, 0.6))
    for row, (first, tokens) in enumerate(strips):
        for i, token in enumerate(tokens):
            marked = i == len(tokens) // 2
            ax.text(i, -row + 0.26, str(first + i), ha="center", size=10)
            box = Rectangle(
                (i - 0.48, -row - 0.36),
                0.96,
                0.56,
                facecolor=COLORS["blue"] if marked else "none",
                alpha=0.25 if marked else 1.0,
                edgecolor=COLORS["blue"] if marked else COLORS["gray"],
            )
            ax.add_patch(box)
            write(
                ax,
                i,
                -row - 0.08,
                token.replace(" ", "␣"),
                family="monospace",
                weight="bold" if marked else "normal",
            )
        for x in (-0.9, len(tokens) - 0.1):
            write(ax, x, -row - 0.08, "…")
    return ax


def link(
    ax: Axes, start: tuple[Number, Number], end: tuple[Number, Number]
) -> None:
    """A thin line from one thing to another."""
    xs, ys = zip(start, end, strict=True)
    ax.plot(xs, ys, color=COLORS["gray"], linestyle="-", linewidth=1.3)


def lookup(ids: Sequence[int], names: Sequence[str], table: Tensor) -> Axes:
    """Draw how each token's id selects a row of the embedding matrix.

    Args:
        ids: T ids, each a row of the matrix.
        names: V tokens of the vocabulary.
        table: (V, D) the embedding matrix; rows that no id selects are
            faint.

    Returns:
        The axes; token t and its vector stand at height −t, row v of the
        matrix at height −v.
    """
    rows, size = max(len(ids), len(names)), table.size(1)
    matrix, vectors = 6.4, 8.4 + size
    ax = new_figure(0.42 * rows + 0.75)[1][0]
    sheet(ax, (-0.2, vectors + size + 0.1), (-rows + 0.4, 1.3))
    for x, text in (
        (1.0, "token, id"),
        (matrix + size / 2, "embedding matrix $E$"),
        (vectors + size / 2, "vectors $x$"),
    ):
        ax.text(x, 0.75, text, ha="center", weight="bold")
    for v, name in enumerate(names):
        used = v in ids
        label = f"{v}  {name}"
        ink = COLORS["black" if used else "gray"]
        ax.text(matrix - 0.25, -v, label, ha="right", va="center", color=ink)
        strength = 1.0 if used else 0.25
        strip(ax, table[v], matrix, -float(v), 1.0, STREAM, strength)
    for t, v in enumerate(ids):
        ax.text(0, -t, names[v], va="center", weight="bold")
        write(ax, 2.0, -t, str(v))
        strip(ax, table[v], vectors, -float(t), 1.0, STREAM)
        link(ax, (2.45, -t), (4.3, -v))
        link(ax, (matrix + size + 0.1, -v), (vectors - 0.1, -t))
    return ax


def one_hot_product(v: int, names: Sequence[str], table: Tensor) -> Axes:
    """Draw a one-hot vector times the embedding matrix.

    Args:
        v: the id, where the vector has its 1.
        names: V tokens of the vocabulary.
        table: (V, D) the embedding matrix; what is multiplied by 0 is
            faint.

    Returns:
        The axes; row i stands at height −i, the product at −V − 1.
    """
    n, size, left = len(names), table.size(1), 3.1
    middle = left + size / 2
    ax = new_figure(0.42 * n + 1.35)[1][0]
    sheet(ax, (-3.6, left + size + 3.4), (-n - 1.5, 1.35))
    name_column(ax, "one-hot", 0.5, "stream")
    name_column(ax, "$E$", middle, "stream")
    one = table.new_zeros(n)
    one[v] = 1
    for i, name in enumerate(names):
        strength = 1.0 if i == v else 0.25
        ax.text(-0.3, -i, f"{i}  {name}", ha="right", va="center")
        strip(ax, one[i : i + 1], 0.0, -float(i), 1.0, STREAM, strength)
        write(ax, (1 + left) / 2, -i, "·")
        strip(ax, table[i], left, -float(i), 1.0, STREAM, strength)
    ax.annotate(
        "",
        (middle, -n - 0.5),
        (middle, -n + 0.4),
        arrowprops={"arrowstyle": "-|>", "color": COLORS["gray"]},
    )
    strip(ax, one @ table, left, -n - 1.0, 1.0, STREAM)
    text = f"the row of {names[v]}"
    ax.text(left - 0.3, -n - 1.0, text, ha="right", va="center")
    return ax


def unembedding(
    x: Tensor, token: str, output: Tensor, names: Sequence[str]
) -> Axes:
    """Draw a vector, its product with one row per token, and the softmax.

    Args:
        x: (D,) the vector of the last token.
        token: its name.
        output: (V, D) the unembedding matrix.
        names: V tokens of the vocabulary.

    Returns:
        The axes; the row of token v stands at height −v.
    """
    logits = output @ x
    size, bar, longest = len(x), 8.6, 4.2
    ax = new_figure(0.42 * len(names) + 1.25)[1][0]
    sheet(ax, (-2.0, bar + longest + 1.6), (-len(names) + 0.4, 2.7))
    strip(ax, x, 0.0, 2.0, 1.0, STREAM)
    ax.text(-0.3, 2.0, token, ha="right", va="center", weight="bold")
    ax.text(size + 0.4, 2.0, "is compared with each row", va="center")
    for place, text in (
        (size / 2, "unembedding matrix $U$"),
        (size + 2.2, "logit"),
        (bar + longest / 2, "probability of next"),
    ):
        ax.text(place, 0.62, text, ha="center", color=COLORS["gray"])
    for v, (name, p) in enumerate(
        zip(names, logits.softmax(-1).tolist(), strict=True)
    ):
        ax.text(-0.3, -v, name, ha="right", va="center")
        strip(ax, output[v], 0.0, -float(v), 1.0, OUTPUT)
        logit = short(logits[v].item())
        write(ax, size + 2.2, -v, logit)
        ax.barh(
            -v,
            longest * p,
            left=bar,
            height=0.62,
            color=COLORS[ROLES["weight"]],
        )
        ax.text(bar + longest * p + 0.2, -v, f"{p:.2f}", va="center")
    return ax
