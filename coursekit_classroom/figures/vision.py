"""Figures of images as sequences: patches, and which of them count."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from coursekit_classroom.figures.shapes import sheet, strip, write
from coursekit_classroom.figures.style import COLORS, ROLES, Number, new_figure

THICK: dict[str, Any] = {"color": COLORS["black"], "linestyle": "-"}


def _picture(
    ax: Axes, image: Tensor, x: Number, y: Number, side: Number
) -> None:
    """A gray image, its bottom left corner at (x, y)."""
    box = (x, x + side, y, y + side)
    ax.imshow(image, cmap="Greys", vmin=0, vmax=1, extent=box)
    _frame(ax, x, y, side, ROLES["token"], 1)


def _frame(
    ax: Axes, x: Number, y: Number, side: Number, color: str, width: Number
) -> None:
    """The outline of a square, its bottom left corner at (x, y)."""
    box = Rectangle((x, y), side, side, fill=False)
    box.set(edgecolor=COLORS[color], linewidth=width)
    ax.add_patch(box)


def image_row(
    images: Sequence[Tensor], labels: Sequence[str] | None = None
) -> list[Axes]:
    """Draw gray images side by side.

    Args:
        images: each (Y, X), from 0, white, to 1, black.
        labels: what to write below each.

    Returns:
        The axes, one for each image.
    """
    axes = new_figure(2.1 if labels else 1.7, len(images))[1]
    for i, (ax, image) in enumerate(zip(axes, images, strict=True)):
        _picture(ax, image, 0, 0, 1)
        ax.set(xlim=(-0.02, 1.02), ylim=(-0.42 if labels else -0.02, 1.02))
        if labels:
            ax.text(0.5, -0.06, labels[i], ha="center", va="top", size=11)
        ax.axis("off")
    return axes


def patch_sequence(image: Tensor, size: int) -> Axes:
    """Draw an image, its patches, and the patches as a sequence.

    Args:
        image: (Y, X) with Y = X.
        size: height and width of a patch, in pixels.

    Returns:
        The axes. Patch i stands above number i, in the grid and in the
        sequence; number 0 is the class token.
    """
    grid, step, high, row_length = len(image) // size, 1.2, 1.55, 9
    ax = new_figure(5.4)[1][0]
    right = row_length * step - grid * step + 0.2
    bottom = (grid * high - grid) / 2
    _picture(ax, image, 0.3, bottom, grid)
    for i in range(1, grid):
        gray = COLORS["gray"]
        ax.vlines(0.3 + i, bottom, bottom + grid, color=gray, linewidth=1)
        ax.hlines(bottom + i, 0.3, 0.3 + grid, color=gray, linewidth=1)
    arrows = {"arrowstyle": "-|>", "color": COLORS["black"]}
    middle = bottom + grid / 2
    center = right + grid * step / 2 - 0.1
    for start, end in (
        ((grid + 0.6, middle), (right - 0.3, middle)),
        ((center, -0.55), (center, -1.35)),
    ):
        ax.annotate("", end, start, arrowprops=arrows)
    for i in range(grid**2 + 1):
        row, column = divmod(i, row_length)
        x, y = column * step, -2.5 - 1.7 * row
        if i:
            up, across = divmod(i - 1, grid)
            top, left = up * size, across * size
            part = image[top : top + size, left : left + size]
            cut_x, cut_y = right + across * step, (grid - 1 - up) * high
            _picture(ax, part, cut_x, cut_y, 1)
            ax.text(cut_x + 0.5, cut_y - 0.06, str(i), size=11,
                    ha="center", va="top")  # fmt: skip
            _picture(ax, part, x, y, 1)
        else:
            tint = Rectangle((x, y), 1, 1, linewidth=0, alpha=0.3)
            tint.set_facecolor(COLORS[ROLES["query"]])
            ax.add_patch(tint)
            _frame(ax, x, y, 1, ROLES["query"], 2)
            write(ax, x + 0.5, y + 0.5, "class", size=11)
        ax.text(x + 0.5, y - 0.06, str(i), size=11, ha="center", va="top")
    ax.set(
        xlim=(-0.1, row_length * step + 0.1), ylim=(-4.85, grid * high - 0.4)
    )
    ax.set_aspect("equal")
    ax.axis("off")
    return ax


def pixel_cuts(cuts: Mapping[str, Tensor]) -> list[Axes]:
    """Draw which pixels each way of cutting puts together.

    Args:
        cuts: for each title, (N, P) numbers of pixels: the N patches of a
            square image whose pixels are numbered in reading order.

    Returns:
        The axes. Thick lines go around each patch; every other one is tinted.
    """
    axes = new_figure(2.7, len(cuts))[1]
    for ax, (title, cut) in zip(axes, cuts.items(), strict=True):
        side = round(cut.numel() ** 0.5)
        owner = {p: i for i, row in enumerate(cut.tolist()) for p in row}
        tinted = {i for i in range(len(cut)) if i % 4 in (0, 3)}
        if len(cut[0].div(side, rounding_mode="floor").unique()) == 1:
            tinted = set(range(0, len(cut), 2))
        for p, i in owner.items():
            y, x = divmod(p, side)
            cell = Rectangle((x, y), 1, 1, edgecolor=COLORS["gray"])
            cell.set_facecolor(
                COLORS[ROLES["token"]] if i in tinted else "none"
            )
            cell.set(alpha=0.45, linewidth=0.5)
            ax.add_patch(cell)
            write(ax, x + 0.5, y + 0.5, str(p))
            if x == 0 or owner[p - 1] != i:
                ax.plot([x, x], [y, y + 1], **THICK)
            if y == 0 or owner[p - side] != i:
                ax.plot([x, x + 1], [y, y], **THICK)
        ax.plot([0, side, side], [side, side, 0], **THICK)
        ax.set(xlim=(-0.1, side + 0.1), ylim=(side + 0.1, -0.1))
        ax.set_aspect("equal")
        ax.set_title(title, fontsize=12)
        ax.axis("off")
    return axes


def _small(
    ax: Axes, values: Tensor, x: Number, y: Number, cell: Number, signs: bool
) -> None:
    """Four numbers as a square of 2 x 2, its top left corner at (x, y)."""
    for i, value in enumerate(values.tolist()):
        down, across = divmod(i, 2)
        corner = (x + across * cell, y - (down + 1) * cell)
        color = COLORS[ROLES["weight" if signs else "token"]]
        box = Rectangle(corner, cell, cell, edgecolor=COLORS["gray"])
        box.set_facecolor(color if value > 0 else "none")
        box.set(alpha=0.55, linewidth=1)
        ax.add_patch(box)
        text = ("+" if value > 0 else "−") if signs else f"{value:g}"
        at = corner[0] + cell / 2, corner[1] + cell / 2
        ax.text(*at, text, ha="center", va="center", size=11)


def patch_vectors(
    patches: Tensor, matrix: Tensor, names: Sequence[str]
) -> Axes:
    """Draw patches of 2 x 2 pixels times a matrix of ones and minus ones.

    Args:
        patches: (N, 4) pixels.
        matrix: (4, D); each column is drawn over the number that it gives.
        names: D of them, one for each column.

    Returns:
        The axes; patch i stands at height −1.5 i.
    """
    n, d = len(patches), matrix.size(1)
    ax = new_figure(0.75 * n + 1.6)[1][0]
    sheet(ax, (-0.2, 7.4 + 1.3 * d), (-1.5 * n + 0.6, 2.6))
    for x, text in ((0.55, "patch"), (4.0, "its pixels $p$")):
        ax.text(x, 0.8, text, ha="center", va="bottom", size=11)
    write(ax, 6.7, 1.6, "$W$", size=12)
    for j, name in enumerate(names):
        middle = 7.4 + 1.3 * (j + 0.5)
        _small(ax, matrix[:, j], middle - 0.45, 2.0, 0.45, True)
        ax.text(middle, 2.1, name, ha="center", va="bottom", size=11)
    for i, pixels in enumerate(patches):
        y = -1.5 * i
        _small(ax, pixels, 0, y + 0.55, 0.55, False)
        strip(ax, pixels, 2.0, y, 1.0, ROLES["token"])
        strip(ax, pixels @ matrix, 7.4, y, 1.3, ROLES["stream"])
        for x, text in ((1.55, "→"), (6.7, "→")):
            write(ax, x, y, text)
    return ax


def looked_at(
    images: Sequence[Tensor], looks: Mapping[str, Tensor], n: int = 4
) -> list[Axes]:
    """Frame the patches that get the highest weights.

    Args:
        images: each (Y, X) with Y = X.
        looks: for each model, (images, N) weights of the patches.
        n: how many patches to frame.

    Returns:
        The axes, a row for each model; 1 stands in the patch with the
        highest weight.
    """
    axes = new_figure(1.6 * len(looks), len(images), len(looks))[1]
    cells = [(name, i) for name in looks for i in range(len(images))]
    for ax, (name, i) in zip(axes, cells, strict=True):
        weights = looks[name][i]
        grid = round(len(weights) ** 0.5)
        _picture(ax, 0.4 * images[i], 0, 0, grid)
        best = weights.topk(n).indices.tolist()
        for rank, at in enumerate(best, 1):
            y, x = divmod(at, grid)
            y = grid - 1 - y
            _frame(ax, x + 0.06, y + 0.06, 0.88, ROLES["weight"], 2)
            text = ax.text(x + 0.5, y + 0.5, str(rank), size=12)
            text.set(ha="center", va="center", weight="bold")
            text.set_color(COLORS[ROLES["weight"]])
        ax.set(xlim=(-0.05, grid + 0.05), ylim=(-0.05, grid + 0.05))
        ax.set_xticks([]), ax.set_yticks([])
        ax.spines[:].set_visible(False)
        if i == 0:
            ax.set_ylabel(name)
    return axes
