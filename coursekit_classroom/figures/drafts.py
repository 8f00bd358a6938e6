"""Figures of chapter 21's examples: a stored row, a draft's probability."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Polygon, Rectangle

from coursekit_classroom.figures.shapes import sheet, write
from coursekit_classroom.figures.style import COLORS, ROLES, Number, new_figure

COLUMNS, WIDE = (0.0, 1.6, 3.2), 0.66
KEPT, REJECTED, REDRAWN = COLORS[ROLES["weight"]], "red", "orange"


def kept_and_redrawn(
    tokens: Sequence[str], p: Sequence[Number], q: Sequence[Number]
) -> Axes:
    """Draw how a draft's probabilities become the target's.

    Three columns of height 1: what is drafted; what is accepted of it, with
    the rejected parts on top; and these drawn again, as what was missing.

    Args:
        tokens: V names.
        p: V probabilities of the target.
        q: V of the draft.

    Returns:
        The axes; bands join the same probability in two columns.
    """
    ax = new_figure(3.4)[1][0]
    left, middle, right = COLUMNS
    accepted_of = [min(pair) for pair in zip(p, q, strict=True)]
    drafted = accepted = out = 0.0
    rejected = redrawn = sum(accepted_of)
    rows = zip(tokens, p, q, accepted_of, strict=True)
    for name, wanted, offered, both in rows:
        over, missing = offered - both, wanted - both
        for x, y, to in ((left, drafted, accepted), (middle, accepted, out)):
            _part(ax, x, y, both)
            _band(ax, x, y, to, both)
        _part(ax, right, out, both)
        _part(ax, left, drafted + both, over, REJECTED)
        _part(ax, middle, rejected, over, REJECTED)
        _band(ax, left, drafted + both, rejected, over, REJECTED)
        _part(ax, right, out + both, missing, REDRAWN)
        _band(ax, middle, redrawn, out + both, missing, REDRAWN)
        for x, y, tall, ha in (
            (left - 0.08, drafted, offered, "right"),
            (middle + WIDE / 2, accepted, both, "center"),
            (right + WIDE + 0.08, out, wanted, "left"),
        ):
            ax.text(x, y + tall / 2, f"{name}  {tall:g}", ha=ha, va="center")
        drafted, accepted, out = (
            drafted + offered,
            accepted + both,
            out + wanted,
        )
        rejected, redrawn = rejected + over, redrawn + missing
    lost = 1 - sum(accepted_of)
    text = f"rejected\n{lost:.2g}"
    y = sum(accepted_of) + lost / 2
    note = ax.text(
        middle + WIDE / 2, y, text, ha="center", va="center", size=11
    )
    note.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1.5})
    for x, title in zip(
        COLUMNS, ("drafted: $q$", "accepted", "generated: $p$"), strict=True
    ):
        ax.text(x + WIDE / 2, 1.05, title, ha="center", weight="bold")
    sheet(ax, (-0.5, right + WIDE + 0.5), (-0.02, 1.15))
    return ax


def _part(
    ax: Axes, x: Number, y: Number, tall: Number, kind: str = ""
) -> None:
    """A piece of a column: filled, or hatched for what is drawn again."""
    if tall <= 0:
        return
    piece = Rectangle((x, y), WIDE, tall)
    if kind:
        hatch = "xx" if kind == REJECTED else "//"
        piece.set(facecolor="none", edgecolor=COLORS[kind], hatch=hatch)
    else:
        piece.set(facecolor=KEPT, alpha=0.5, edgecolor="white")
    ax.add_patch(piece)


def _band(
    ax: Axes, x: Number, y: Number, to: Number, tall: Number, kind: str = ""
) -> None:
    """The same probability in a column and in the next one."""
    start, end = x + WIDE + 0.02, x + COLUMNS[1] - 0.02
    corners = [(start, y), (end, to), (end, to + tall), (start, y + tall)]
    color = COLORS[kind] if kind else KEPT
    ax.add_patch(Polygon(corners, facecolor=color, alpha=0.15, linewidth=0))


def stored_row(weights: Sequence[Number], step: Number, most: int) -> Axes:
    """Draw weights, and the whole number of steps that is stored of each.

    Args:
        weights: N numbers.
        step: distance of two values that can be stored.
        most: the largest whole number.

    Returns:
        The axes; weight j stands around x = j, and y counts steps.
    """
    ax = new_figure(3.4)[1][0]
    for j, weight in enumerate(weights):
        n = round(weight / step)
        ticks = range(-most, most + 1)
        ax.hlines(ticks, j - 0.3, j + 0.3, color=COLORS["gray"], linewidth=0.8)
        ends = [j - 0.12, j + 0.12], [weight / step, n]
        ax.plot(*ends, "-", color=COLORS["black"], linewidth=1)
        ax.plot(j - 0.12, weight / step, "o", color=COLORS[ROLES["weight"]],
                fillstyle="none")  # fmt: skip
        ax.plot(j + 0.12, n, "s", color=COLORS["orange"])
        for y, text in (
            (most + 1.5, f"{weight:.2f}"),
            (-most - 1.6, f"{n}"),
            (-most - 3.4, f"{n * step:.1f}"),
        ):
            write(
                ax,
                j,
                y,
                text.replace("-", "−"),
                weight="bold" if text == f"{n}" else "normal",
            )
    for y, name in (
        (most + 1.5, "weight"),
        (-most - 1.6, "stored"),
        (-most - 3.4, f"times {step:g}"),
    ):
        ax.text(-0.75, y, name, ha="right", va="center", size=11)
    for n in (-most, 0, most):
        ax.text(-0.4, n, f"{n}".replace("-", "−"), ha="right", va="center",
                size=11)  # fmt: skip
    sheet(ax, (-1.5, len(weights) - 0.5), (-most - 4.2, most + 2.3))
    return ax
