"""Figures of many vectors: their matrices, their paths, their neighbors."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from coursekit_classroom.figures.shapes import sheet, write
from coursekit_classroom.figures.style import (
    COLORS,
    GROUND,
    ROLES,
    Number,
    new_figure,
)


def low_rank(vocab_size: int, d_model: int) -> Axes:
    """Draw a V × V matrix and the two narrow ones in its place, to scale.

    Args:
        vocab_size: V.
        d_model: D, below V.

    Returns:
        The axes; one unit is V.
    """
    thin = d_model / vocab_size
    ax = new_figure(2.4)[1][0]
    ax.set(xlim=(-0.3, 3.35), ylim=(-0.3, 1.2), aspect="equal")
    ax.axis("off")
    left, right = 1.75, 2.3
    for x, y, width, height, color, text in (
        (0.0, 0.0, 1.0, 1.0, "gray", f"{vocab_size**2:,}\nparameters"),
        (left, 0.0, thin, 1.0, ROLES["stream"], ""),
        (right, 1 - thin, 1.0, thin, ROLES["weight"], ""),
    ):
        box = Rectangle((x, y), width, height, color=COLORS[color], alpha=0.4)
        ax.add_patch(box)
        write(ax, x + width / 2, y + height / 2, text)
    count = f"{2 * vocab_size * d_model:,}\nparameters"
    write(ax, right + 0.5, 0.4, count)
    for x, y, text in (
        (0.5, 1.06, f"next token: {vocab_size}"),
        (0.5, -0.16, "table of logits"),
        (left + thin / 2, 1.06, f"D = {d_model}"),
        (left + thin / 2, -0.16, "$E$"),
        (right + 0.5, 1.06, f"next token: {vocab_size}"),
        (right + 0.5, 1 - thin - 0.16, r"$U^{\top}$"),
        (1.37, 0.5, "→"),
        (2.08, 1 - thin / 2, "·"),
    ):
        ax.text(x, y, text, ha="center", va="center_baseline")
    for x in (-0.1, left - 0.1):
        write(ax, x, 0.5, f"token: {vocab_size}", rotation=90)
    return ax


def look_of(i: int) -> tuple[str, str, str]:
    """Color, line and mark of one of four tokens, two in a pair."""
    color, line = (("blue", "-"), ("orange", "--"))[i // 2]
    return COLORS[color], line, "os"[i % 2]


def paths(
    trails: Mapping[str, Tensor], groups: Mapping[str, Tensor], limit: Number
) -> Axes:
    """Draw the ways of two-dimensional rows during training.

    Args:
        trails: (steps, 2) by token: an open mark where it begins, a filled
            one where it ends. Tokens come in pairs that share a color and a
            line.
        groups: (n, 2) where other rows end, by what they have in common.
        limit: the axes reach up from −limit to limit, and further to both
            sides.

    Returns:
        The axes.
    """
    ax = new_figure(3.2)[1][0]
    gray = COLORS["gray"]
    ax.axhline(0, color=gray, linewidth=0.6, linestyle="-")
    ax.axvline(0, color=gray, linewidth=0.6, linestyle="-")
    for name, ends in groups.items():
        ax.plot(*ends.T.tolist(), "x", color=gray, markersize=5)
        x, y = ends[:, 0].mean().item(), ends[:, 1].min().item()
        ax.text(x, y - 0.06 * limit, name, ha="center", va="top", size=11,
                bbox=GROUND)  # fmt: skip
    for i, (name, trail) in enumerate(trails.items()):
        ink, line, mark = look_of(i)
        ax.plot(*trail.T.tolist(), line, color=ink, linewidth=1.4)
        ax.plot(*trail[0].tolist(), mark, mfc="none", color=ink)
        ax.plot(*trail[-1].tolist(), mark, color=ink)
        above = i % 2 == 0
        ax.annotate(
            name, tuple(trail[-1].tolist()), (0, 8 if above else -8),
            textcoords="offset points", ha="center", size=11, bbox=GROUND,
            va="bottom" if above else "top",
        )  # fmt: skip
    wide = 1.6 * limit
    ax.set(xlim=(-wide, wide), ylim=(-limit, limit), xticks=[], yticks=[])
    ax.set_aspect("equal")
    ax.spines[:].set_visible(False)
    return ax


def distances(
    tables: Mapping[str, Tensor], words: Sequence[str], named: Sequence[str]
) -> Axes:
    """Draw how far all rows of a matrix are from one of them.

    Args:
        tables: (V, D) by what was done to it, a line each.
        words: V names.
        named: four of them in two pairs, which look as in ``paths``; from
            the first all distances are measured.

    Returns:
        The axes; line i stands at height −i, a row at its distance.
    """
    ax = new_figure(0.72 * len(tables) + 0.75)[1][0]
    points = [
        (table - table[words.index(named[0])]).norm(dim=-1)
        for table in tables.values()
    ]
    reach = max(float(far.max()) for far in points)
    for y, far in enumerate(points):
        at = dict(zip(words, far.tolist(), strict=True))
        others = [at[word] for word in words if word not in named]
        ax.axhline(-y, color=COLORS["gray"], linewidth=0.6, zorder=0)
        ax.plot(others, [-y] * len(others), "x", color=COLORS["gray"], ms=6)
        free = 0.0
        for word in sorted(named, key=lambda word: at[word]):
            ink, _, mark = look_of(named.index(word))
            x, place = at[word], max(at[word], free)
            ax.plot(x, -y, mark, color=ink)
            ax.plot([x, place], [0.12 - y, 0.32 - y], "-", color=ink, lw=1)
            ax.text(place, 0.36 - y, word, ha="center", size=11)
            free = place + 0.12 * reach
    ax.set_yticks([-y for y in range(len(points))], list(tables))
    ax.set(xlim=(-0.06 * reach, 1.04 * reach), ylim=(0.6 - len(points), 0.75))
    ax.set_xlabel(f"distance from {named[0]}")
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    return ax


def neighbor_lists(
    lists: Mapping[str, Sequence[Sequence[str]]], titles: Sequence[str]
) -> Axes:
    """Draw for a few tokens their nearest ones, in columns to compare.

    Args:
        lists: for each token, its neighbors in each column.
        titles: of the columns.

    Returns:
        The axes; token i stands at height −i.
    """
    ax = new_figure(0.36 * len(lists) + 0.6)[1][0]
    sheet(ax, (0, 10), (-len(lists) + 0.3, 1.5))
    columns = (1.7, 6.3)
    for x, title, color in zip(
        columns, titles, ("blue", "orange"), strict=True
    ):
        ax.text(x, 0.85, title, weight="bold", va="center")
        ax.plot(
            [x, x + 3.6],
            [0.45, 0.45],
            color=COLORS[color],
            linestyle="-" if color == "blue" else "--",
        )
    for row, (token, neighbors) in enumerate(lists.items()):
        ax.text(1.35, -row, token, ha="right", va="center", weight="bold")
        for x, near in zip(columns, neighbors, strict=True):
            ax.text(x, -row, "   ".join(near), va="center")
    return ax


def vector_rows(
    columns: Mapping[str, Mapping[str, Tensor]],
    digits: int = 2,
    role: str = "stream",
) -> list[Axes]:
    """Draw vectors as rows of numbers, panel by panel.

    Args:
        columns: by title, the vectors of each panel by their labels; the
            labels are the same in all panels.
        digits: behind the point.
        role: the color, in ``ROLES``.

    Returns:
        The axes, one per panel; row i stands at height −i.
    """
    height = len(next(iter(columns.values())))
    axes = new_figure(0.42 * height + 0.6, columns=len(columns))[1]
    for ax, (title, rows) in zip(axes, columns.items(), strict=True):
        for i, vector in enumerate(rows.values()):
            for j, value in enumerate(vector.tolist()):
                box = Rectangle((j - 0.47, -i - 0.36), 0.94, 0.72)
                box.set(facecolor=COLORS[ROLES[role]])
                box.set_alpha(min(0.1 + 0.25 * abs(value), 0.5))
                ax.add_patch(box)
                text = f"{value:.{digits}f}".replace("-", "−")
                write(ax, j, -i, text, size=11)
        ax.set_title(title, loc="center", size=11)
        ax.set(xlim=(-0.6, len(vector) - 0.4), xticks=[])
        ax.set(ylim=(0.5 - height, 0.5), yticks=[])
        ax.spines[:].set_visible(False)
    labels = list(next(iter(columns.values())))
    axes[0].set_yticks([-i for i in range(height)], labels)
    axes[0].tick_params(length=0)
    return axes
