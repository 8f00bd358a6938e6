"""Figures of tokens, of models as boxes, and of who sees whom."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from coursekit_classroom.figures.shapes import (
    arrow,
    as_array,
    rectangle,
    sheet,
    write,
)
from coursekit_classroom.figures.style import COLORS, ROLES, new_figure

TARGET = COLORS[ROLES["loss"]]


def token_rows(
    rows: Mapping[str, Sequence[str]],
    diagonals: bool = False,
    arrows: bool = True,
) -> Axes:
    """Draw sequences of tokens as rows of boxes, one above the other.

    Args:
        rows: label and tokens of each row, all of one length; the last row
            holds the targets and is filled, the others are outlined.
        diagonals: link each box to the one a row higher and a step to the
            right, to show that it is the same token.
        arrows: lead from each box to the one below it.

    Returns:
        The axes.
    """
    n = max(len(tokens) for tokens in rows.values())
    ax = new_figure(height=0.95 * len(rows) + 0.3)[1][0]
    for r, (label, tokens) in enumerate(rows.items()):
        y, last = -1.5 * r, r == len(rows) - 1
        ax.text(-0.7, y, label, ha="right", va="center")
        for i, token in enumerate(tokens):
            write(
                ax,
                i,
                y,
                token,
                family="monospace",
                size=15,
                bbox={
                    "boxstyle": "square,pad=0.3",
                    "facecolor": TARGET + "55" if last else "white",
                    "edgecolor": TARGET if last else COLORS["gray"],
                },
            )
            if r and arrows:
                arrow(ax, (i, y + 1.05), (i, y + 0.45), "-")
            if r and diagonals and i + 1 < n:
                arrow(ax, (i + 0.3, y + 0.4), (i + 0.72, y + 1.1), ":")
    ax.set_xlim(-0.9, n - 0.4)
    ax.set_ylim(-1.5 * (len(rows) - 1) - 0.6, 0.6)
    ax.axis("off")
    return ax


def next_tokens(tokens: Sequence[str], n: int) -> Axes:
    """Draw one text n times: what is read grows, the next token is asked.

    Args:
        tokens: of the text.
        n: how many of its prefixes; fewer than it has tokens.

    Returns:
        The axes; the prefix of n tokens stands at height 1 − n, and token i
        at x = i.
    """
    ax = new_figure(0.42 * n + 0.75)[1][0]
    gray = COLORS["gray"]
    for row in range(n):
        read = Rectangle((-0.46, -row - 0.38), row + 0.92, 0.76)
        read.set(facecolor="none", edgecolor=gray, linewidth=1.4)
        tint = Rectangle(read.get_xy(), row + 0.92, 0.76, linewidth=0)
        tint.set(facecolor=gray, alpha=0.2)
        next_token = Rectangle((row + 0.54, -row - 0.38), 0.92, 0.76)
        next_token.set(
            facecolor=TARGET + "55", edgecolor=TARGET, linewidth=1.4
        )
        for box in (tint, read, next_token):
            ax.add_patch(box)
        for i, token in enumerate(tokens):
            text = ax.text(i, -row, token, ha="center", va="center", size=14)
            text.set(family="monospace")
            text.set_color(gray if i > row + 1 else COLORS["black"])
            text.set_fontweight("bold" if i == row + 1 else "normal")
    for x, name, color, weight in (
        (-0.46, "read", COLORS["black"], "normal"),
        (2.0, "next: the answer", TARGET, "bold"),
        (8.6, "not yet read", gray, "normal"),
    ):
        ax.text(x, 0.62, name, va="bottom", color=color, weight=weight)
    sheet(ax, (-0.6, len(tokens) - 0.4), (0.5 - n, 1.3))
    return ax


def token_bytes(
    characters: Sequence[str],
    sizes: Sequence[int],
    tokens: Sequence[tuple[int, bytes]],
) -> Axes:
    """Draw characters, their bytes, the tokens of these, and each alone.

    Args:
        characters: names of the characters.
        sizes: how many bytes each has.
        tokens: id and bytes of each; together, the bytes of the characters.

    Returns:
        The axes; a byte is 1 wide. The characters stand at height 3, the
        bytes at 2, the ids at 1, and each token's own text at 0.
    """
    data = b"".join(part for _, part in tokens)
    alone = [part.decode(errors="replace") for _, part in tokens]
    lengths = [len(part) for _, part in tokens]
    rows = {
        "decoded alone": (zip(alone, lengths, strict=True), None),
        "token": ([(str(i), len(part)) for i, part in tokens], "yellow"),
        "byte": ([(f"{byte:02x}", 1) for byte in data], None),
        "character": (zip(characters, sizes, strict=True), "sky"),
    }
    ax = new_figure(2.5)[1][0]
    for y, (name, (row, color)) in enumerate(rows.items()):
        ax.text(-0.2, y, name, ha="right", va="center")
        x = 0
        for text, size in row:
            corner = (x + 0.04, y - 0.32)
            patch = Rectangle(corner, size - 0.08, 0.64)
            patch.set(
                facecolor=COLORS[color] + "55" if color else "none",
                edgecolor=COLORS["gray"],
            )
            ax.add_patch(patch)
            shown = text.replace(" ", "␣")
            write(ax, x + size / 2, y, shown)
            x += size
    sheet(ax, (-2.7, len(data) + 0.1), (-0.5, len(rows) - 0.5))
    return ax


def token_cuts(rows: Mapping[str, Sequence[str]], width: int = 32) -> Axes:
    """Draw where a text is cut: each token a box, lines broken like text.

    Args:
        rows: a heading, and the tokens under it; a space is drawn as ␣.
        width: characters in a line.

    Returns:
        The axes; a character is 1 wide, a line 1 high, from the top down.
    """
    lines: list[tuple[float, str | list[str]]] = []
    y = 0.0
    for heading, tokens in rows.items():
        lines.append((y, heading))
        y += 1.0
        line: list[str] = []
        for token in tokens:
            if line and sum(map(len, line)) + len(token) > width:
                lines.append((y, line))
                y, line = y + 1.0, []
            line.append(token)
        lines.append((y, line))
        y += 1.3
    ax = new_figure(height=0.31 * y + 0.1)[1][0]
    for y, line_or_heading in lines:
        if isinstance(line_or_heading, str):
            ax.text(0, y, line_or_heading, va="center", weight="bold")
            continue
        x = 0
        for i, token in enumerate(line_or_heading):
            rectangle(
                ax,
                x + 0.06,
                y - 0.41,
                len(token) - 0.12,
                0.82,
                facecolor=COLORS["sky" if i % 2 else "yellow"] + "55",
                edgecolor=COLORS["gray"],
                linewidth=1,
            )
            for j, char in enumerate(token.replace(" ", "␣")):
                faint = COLORS["gray" if char == "␣" else "black"]
                ax.text(
                    x + j + 0.5,
                    y,
                    char,
                    ha="center",
                    va="center_baseline",
                    family="monospace",
                    size=13,
                    color=faint,
                )
            x += len(token)
    sheet(ax, (-0.1, width + 0.1), (lines[-1][0] + 0.6, -0.6))
    return ax


def pipeline(stages: Mapping[str, str], loop: str = "") -> Axes:
    """Draw a model as a column of boxes, from text in to token out.

    Args:
        stages: name of each box and a note beside it, in order.
        loop: says what the arrow from the last box to the first means; no
            arrow if empty.

    Returns:
        The axes.
    """
    ax = new_figure(height=0.55 * len(stages) + 0.2)[1][0]
    for i, (name, note) in enumerate(stages.items()):
        rectangle(
            ax,
            0,
            i - 0.32,
            2.5,
            0.64,
            facecolor="white",
            edgecolor=COLORS["blue"],
            linewidth=1.5,
        )
        write(ax, 1.25, i, name)
        ax.text(2.75, i, note, va="center")
        if i:
            arrow(ax, (1.25, i - 0.72), (1.25, i - 0.28), "-")
    if loop:
        last = len(stages) - 1
        ax.plot(
            [0, -0.35, -0.35, -0.2],
            [last, last, 0, 0],
            color=COLORS["gray"],
            linewidth=1,
        )
        arrow(ax, (-0.25, 0), (0.05, 0), "-")
        write(ax, -0.6, last / 2, loop, rotation=90)
    ax.set_xlim(-0.8 if loop else -0.1, 8)
    ax.set_ylim(len(stages) - 0.6, -0.4)
    ax.axis("off")
    return ax


def who_sees_whom(
    sees: Tensor | np.ndarray,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw which query sees which key; a look into the future is crossed.

    Args:
        sees: (T, S) booleans. The queries are the last T of S positions, so
            key j lies in the future of query i if j > i + (S − T).
        rows: T labels (queries); none by default.
        columns: S labels (keys); none by default.
        title: above the picture.
        ax: where to draw; a new figure by default.

    Returns:
        The axes.
    """
    grid = as_array(sees).astype(bool)
    n_queries, n_keys = grid.shape
    if ax is None:
        ax = new_figure(height=0.42 * n_queries + 1.2)[1][0]
    for (i, j), visible in np.ndenumerate(grid):
        future = j > i + n_keys - n_queries
        color = COLORS["orange" if future else "blue"] if visible else "white"
        rectangle(
            ax,
            j - 0.44,
            i - 0.44,
            0.88,
            0.88,
            facecolor=color,
            edgecolor=COLORS["gray"],
            linewidth=0.6,
        )
        if visible and future:
            write(ax, j, i, "×", color="white", size=13)
    ax.set(xlim=(-0.6, n_keys - 0.4), ylim=(n_queries - 0.4, -0.6))
    ax.set_title(title)
    for axis, names in ((ax.xaxis, columns), (ax.yaxis, rows)):
        names = list(names or [])
        axis.set_ticks(range(len(names)), names)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    return ax
