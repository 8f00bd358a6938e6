"""A figure of lists of blocks: which object does each entry name?"""

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from coursekit_classroom.figures.shapes import arrow, write
from coursekit_classroom.figures.style import COLORS, ROLES, new_figure

LISTS = {
    "three blocks": ((0, 1, 2), True),
    "the same block": ((1, 1, 1), True),
    "a plain list": ((0, 1, 2), False),
}


def block_lists() -> list[Axes]:
    """Draw a stack of three blocks, and two that only look like one.

    Returns:
        The three axes. Entry i of a list stands at height i, and an arrow
        leads to its block; the frame of a block that PyTorch does not find
        is dotted.
    """
    color = COLORS[ROLES["weight"]]
    axes = new_figure(height=1.9, columns=len(LISTS))[1]
    for ax, (title, (blocks, entries)) in zip(
        axes, LISTS.items(), strict=True
    ):
        for entry, block in enumerate(blocks):
            write(ax, 0, entry, f"[{entry}]")
            arrow(ax, (0.35, entry), (1, block), "-")
        for block in sorted(set(blocks)):
            box = Rectangle(
                (1.05, block - 0.36),
                1.6,
                0.72,
                fill=False,
                edgecolor=color,
                linestyle="-" if entries else ":",
            )
            ax.add_patch(box)
            write(ax, 1.85, block, "Block")
        ax.set(xlim=(-0.4, 2.8), ylim=(2.5, -0.5))
        ax.set_title(title)
        ax.axis("off")
    return axes
