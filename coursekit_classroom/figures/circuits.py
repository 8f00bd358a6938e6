"""Figures of what is inside a trained model: where heads look, what counts."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from coursekit_classroom.figures.shapes import decimal, sheet, write
from coursekit_classroom.figures.style import COLORS, ROLES, Number, new_figure

BACK = {"arrowstyle": "-|>", "linewidth": 1.8}


def _box(
    ax: Axes, x: Number, y: Number, color: str, text: str, strength: Number
) -> None:
    """A box with its text, centered at (x, y)."""
    corner = (x - 0.42, y - 0.36)
    box = Rectangle(corner, 0.84, 0.72, facecolor=COLORS[color])
    box.set_alpha(0.55 * strength)
    ax.add_patch(box)
    write(ax, x, y, text)


def _look(
    ax: Axes, y: Number, query: int, key: int, color: str, bend: Number
) -> None:
    """A bent arrow from a query back to the key that it looks at."""
    arrows = {**BACK, "color": COLORS[color]}
    arrows["connectionstyle"] = f"arc3,rad={bend}"
    ax.annotate("", (key, y), (query, y), arrowprops=arrows)


def induction_path(tokens: Sequence[str], before: bool = True) -> Axes:
    """Draw how the last token finds what came after its last appearance.

    Args:
        tokens: T of them; the last one must have appeared before.
        before: draw what the previous-token head writes as well.

    Returns:
        The axes; token t stands at (t, 0).
    """
    end = len(tokens) - 1
    last = max(t for t in range(end) if tokens[t] == tokens[end])
    match = last + 1
    ax = new_figure(2.9 if before else 1.9)[1][0]
    low = -3.1 if before else -1.2
    sheet(ax, (-2.4, end + 1.5), (low, 2.1))
    for t, token in enumerate(tokens):
        _box(ax, t, 0, ROLES["token"], token, 0.6)
        bold = "bold" if t in (match, end) else "normal"
        write(ax, t, -0.75, str(t), weight=bold)
    ax.text(-0.7, -0.75, "position", ha="right", va="center", size=11)
    _look(ax, 0.45, end, match, ROLES["weight"], 0.35)
    middle = (end + match) / 2
    ax.text(
        middle, 1.6, "block 2 looks there and copies", ha="center", size=11
    )
    ax.text(end + 0.6, 0, f"→ {tokens[match]}", va="center", weight="bold")
    if not before:
        return ax
    for t in range(1, end + 1):
        _look(ax, -1.1, t, t - 1, ROLES["key"], -0.9)
        strength = 1.0 if t == match else 0.4
        _box(ax, t, -2.1, ROLES["stream"], tokens[t - 1], strength)
    for y, text in ((-1.4, "block 1 notes"), (-2.1, "“after …”")):
        ax.text(-0.7, y, text, ha="right", va="center", size=11)
    return ax


def bar_panels(
    panels: Mapping[str, Mapping[str, Number]],
    roles: Sequence[str],
    digits: int | None = 2,
) -> list[Axes]:
    """Draw the same few things by several measures, a panel for each.

    Args:
        panels: for each title, a number for each name, never negative.
        roles: a role of ``ROLES`` for each panel: what is measured.
        digits: after the point; by default two, and with None as many as a
            number has.

    Returns:
        The axes; the first name is on top.
    """
    rows = max(len(values) for values in panels.values())
    axes = new_figure(0.42 * rows + 0.6, columns=len(panels))[1]
    entries = zip(axes, panels.items(), roles, strict=True)
    for i, (ax, (title, values), role) in enumerate(entries):
        top = max(values.values())
        for y, value in enumerate(values.values()):
            bar = Rectangle((0, y - 0.33), value, 0.66)
            bar.set(facecolor=COLORS[ROLES[role]], alpha=0.55)
            ax.add_patch(bar)
            text = f"{value:g}" if digits is None else decimal(value, digits)
            ax.text(value + 0.04 * top, y, text, va="center", size=11)
        ax.set_title(title, fontsize=11)
        ax.set(xlim=(0, 1.5 * top), ylim=(rows - 0.5, -0.5), xticks=[])
        ax.set_yticks(range(rows), list(values) if i == 0 else [""] * rows)
        ax.tick_params(length=0)
        ax.spines["bottom"].set_visible(False)
    return axes


def patched_stream(
    clean: Sequence[str],
    corrupt: Sequence[str],
    depth: int,
    position: int,
    n_blocks: int,
) -> Axes:
    """Draw two runs as grids of vectors, one of them copied across.

    Args:
        clean: tokens of one run, at the left.
        corrupt: as many tokens of the other.
        depth: of the vector that is copied, 0 to ``n_blocks``.
        position: of its token.
        n_blocks: of the model.

    Returns:
        The axes; the vector of token t at depth d stands at height d.
    """
    width, ax = len(clean) + 2.4, new_figure(0.46 * n_blocks + 1.5)[1][0]
    sheet(ax, (-1.7, 2 * width - 2.4), (-1.6, n_blocks + 1.2))
    for left, tokens, title in (
        (0, clean, "clean run"),
        (width, corrupt, "corrupt run"),
    ):
        middle = left + (len(tokens) - 1) / 2
        ax.text(middle, n_blocks + 0.75, title, ha="center", size=12)
        for t, token in enumerate(tokens):
            differs = "bold" if clean[t] != corrupt[t] else "normal"
            at = left + t, -0.62
            text = ax.text(*at, token, ha="right", va="top", rotation=40)
            text.set(rotation_mode="anchor", size=10, weight=differs)
            for d in range(n_blocks + 1):
                here = (d, t) == (depth, position)
                color = ROLES["weight"] if here else ROLES["stream"]
                _box(ax, left + t, d, color, "", 1.0 if here else 0.35)
    for d in range(n_blocks + 1):
        ax.text(-0.8, d, str(d), ha="right", va="center", size=11)
    arrows = {**BACK, "color": COLORS[ROLES["weight"]]}
    end = (width + position - 0.45, depth)
    ax.annotate("", end, (position + 0.45, depth), arrowprops=arrows)
    ax.text(-1.6, n_blocks / 2, "depth", rotation=90, va="center", size=11)
    return ax


def lens_rows(tokens: Sequence[Sequence[str]], probabilities: Tensor) -> Axes:
    """Draw the most probable next tokens at each depth.

    Args:
        tokens: for each depth, from 0, the K most probable ones.
        probabilities: (L + 1, K) of them.

    Returns:
        The axes; depth d stands at height d.
    """
    depths, columns = probabilities.shape
    ax = new_figure(0.46 * depths + 0.5)[1][0]
    sheet(ax, (-1.9, columns), (-0.5, depths - 0.4))
    for d, (row, values) in enumerate(
        zip(tokens, probabilities.tolist(), strict=True)
    ):
        name = f"after block {d}" if d else "embedding"
        ax.text(-0.15, d, name, ha="right", va="center", size=11)
        for k, (token, p) in enumerate(zip(row, values, strict=True)):
            box = Rectangle((k, d - 0.4), 0.95, 0.8)
            box.set(facecolor=COLORS[ROLES["weight"]], alpha=0.6 * p + 0.03)
            ax.add_patch(box)
            percent = f"{100 * p:.0f} %" if p >= 0.005 else "< 1 %"
            text = f"{token.strip()} {percent}"
            write(ax, k + 0.475, d, text, size=11)
    return ax
