"""Figures of a vision transformer as a whole, and of how well models do."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from coursekit_classroom.figures.shapes import sheet, write
from coursekit_classroom.figures.style import COLORS, ROLES, Number, new_figure


def class_token_path(answer: str) -> Axes:
    """Draw a ViT: tokens, positions, blocks, and where the answer is read.

    Args:
        answer: what the class token's last vector becomes.

    Returns:
        The axes; the token at position 0 stands at (0, 0).
    """
    ax = new_figure(3.9)[1][0]
    sheet(ax, (-2.1, 6.4), (-0.6, 5.6))
    arrows = {"arrowstyle": "->", "color": COLORS["gray"]}
    for column, (token, row) in enumerate(
        (
            ("class", "0"),
            ("patch", "1"),
            ("patch", "2"),
            ("…", "…"),
            ("patch", "16"),
        )
    ):
        x = 1.4 * column
        for y, text, role in (
            (0, token, "token"),
            (0.85, row, "token"),
            (4.0, "", "stream"),
        ):
            box = Rectangle((x - 0.6, y - 0.3), 1.2, 0.6)
            first = token == "class" and y != 0.85
            color = ROLES["query"] if first else ROLES[role]
            box.set(facecolor=COLORS[color], alpha=0.5)
            ax.add_patch(box)
            write(ax, x, y, text, size=11)
        for low, high in ((1.2, 1.6), (3.2, 3.65)):
            ax.annotate("", (x, high), (x, low), arrowprops=arrows)
    box = Rectangle((-0.6, 1.65), 6.8, 1.5, fill=False, linewidth=1.5)
    box.set_edgecolor(COLORS["black"])
    ax.add_patch(box)
    write(ax, 2.8, 2.4, "blocks: every token attends to all 17", size=12)
    for y, text in (
        (0, "$c$, $p W + b$"),
        (0.85, "+ row of $P$"),
        (4.0, "17 vectors"),
    ):
        ax.text(-0.75, y, text, ha="right", va="center", size=11)
    ax.annotate("", (0, 4.95), (0, 4.35), arrowprops=arrows)
    ax.text(0.15, 4.65, "norm, $U$ and $u$", va="center", size=11)
    ax.text(-0.6, 5.25, answer, va="center", size=12, weight="bold")
    return ax


def accuracy_dots(
    arms: Mapping[str, Sequence[Number]],
    changed: Mapping[str, Sequence[Number]] | None = None,
) -> Axes:
    """Draw accuracies in percent: a dot for each seed, and their mean.

    Args:
        arms: for each variant, one number for each seed.
        changed: the same models in another test, as open diamonds.

    Returns:
        The axes; variant i stands at height −i.
    """
    ax = new_figure((0.8 if changed else 0.5) * len(arms) + 0.7)[1][0]
    low = 0.22 if changed else 0
    color = COLORS[ROLES["loss"]]
    for i, (name, first) in enumerate(arms.items()):
        rows = [(first, low - i, "o", color)]
        if changed:
            rows.append((changed[name], -i - low, "D", "none"))
        for values, y, marker, fill in rows:
            ax.plot(
                values,
                [y] * len(values),
                marker,
                markersize=7,
                markerfacecolor=fill,
                markeredgecolor=color,
                alpha=0.8,
            )
            mean = sum(values) / len(values)
            ax.annotate(
                f"{mean:.0f} %",
                (max(values), y),
                (10, 0),
                textcoords="offset points",
                va="center",
                size=11,
            )
        ax.axhline(
            -i - 0.5, color=COLORS["gray"], linewidth=0.5, linestyle="-"
        )
    ax.set_yticks([-i for i in range(len(arms))], list(arms))
    ax.tick_params(axis="y", length=0)
    ax.set(xlim=(0, 105), ylim=(0.5 - len(arms), 0.5))
    ax.set_xlabel("accuracy on 1,000 test pictures (%)")
    return ax
