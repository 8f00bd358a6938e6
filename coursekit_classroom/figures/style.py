"""The look of all figures: colors, sizes, and how they are encoded.

Colors follow Okabe and Ito's, which stay apart for color-blind readers, the
pale ones darkened; no figure says anything by color alone.  A figure is 5.4
inches wide, so that its text is readable on a phone.

A notebook shows a PNG, which every program draws the same way.  Where the
variable ``COURSEKIT_FIGURES`` is ``svg``, as it is when the book is built, a
figure is encoded as SVG too, and the book takes that; where it is ``none``, as
it is when a second run is compared with the first, a figure is not encoded.
"""

import os
from functools import cache
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from PIL import Image

from coursekit_classroom.figures.vector import encode

__all__ = [
    "COLORS",
    "GROUND",
    "ROLES",
    "WIDTH",
    "Number",
    "mosaic",
    "new_figure",
    "png",
    "solid_arrow",
    "use_style",
]

COLORS = {
    "blue": "#0072B2",
    "orange": "#D55E00",
    "green": "#008F68",
    "purple": "#AA4499",
    "yellow": "#B37A00",
    "sky": "#2493C7",
    "red": "#B2182B",
    "gray": "#6B6B6B",
    "black": "#1A1A1A",
}
"""Each at least 3:1 against white; ``course.css`` has the dark page's."""

# What a thing is has one color on all pages, in still figures and live ones.
# A position has that of a token: both stand at the start of the stream.
ROLES = {
    "token": "gray",
    "stream": "green",
    "query": "orange",
    "key": "sky",
    "value": "yellow",
    "weight": "blue",
    "ffn": "purple",
    "norm": "black",
    "loss": "red",
}
WIDTH = 5.4
# Behind a label, so that no line goes through it.
GROUND = {"facecolor": "white", "edgecolor": "none", "pad": 1}
ENCODE = "COURSEKIT_FIGURES"
FACE = Path(__file__).parents[1] / "fonts"

Number = int | float
Point = tuple[Number, Number]


@cache
def know_face() -> None:
    """Register the page's typeface for measuring labels."""
    for file in sorted(FACE.glob("*.ttf")):
        fontManager.addfont(file)


def use_style() -> None:
    """Set the book's look for every figure that follows."""
    know_face()
    plt.rcParams.update(
        {
            "figure.facecolor": "white",
            # Twice the width at which the page shows it.
            "figure.dpi": 200,
            "savefig.dpi": 200,
            # A picture's own pixels, not many more of a larger one.
            "image.interpolation": "none",
            # What the face lacks comes from the next.
            "font.family": ["Course Sans", "DejaVu Sans"],
            "font.size": 12,
            "axes.titlesize": 12,
            "axes.titlelocation": "left",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.prop_cycle": plt.cycler(
                color=[
                    COLORS[c]
                    for c in ("blue", "orange", "green", "red", "gray")
                ],
                linestyle=["-", "--", "-.", ":", (0, (5, 1))],
            ),
            "lines.linewidth": 2.2,
            "legend.frameon": False,
        }
    )
    from IPython import get_ipython

    if (shell := get_ipython()) is not None:
        # It registers its own encoder when it is first imported.
        import_module("matplotlib_inline.backend_inline")
        formatters = shell.display_formatter.formatters
        kind = os.environ.get(ENCODE)
        formatters["image/png"].for_type(
            Figure, sized_png if kind != "none" else lambda figure: None
        )
        if kind == "svg":
            formatters["image/svg+xml"].for_type(Figure, encode)


def png(figure: Figure) -> bytes:
    """Encode a figure in 256 colors, a third of the usual size.

    Args:
        figure: what to encode.

    Returns:
        The bytes of a PNG file.
    """
    full, small = BytesIO(), BytesIO()
    figure.savefig(
        full,
        format="png",
        bbox_inches="tight",
        pil_kwargs={"compress_level": 0},  # it is read again at once
    )
    image = Image.open(full).convert("RGB")
    # Twice as quick as the usual method, and its largest error is smaller.
    method, dither = Image.Quantize.MAXCOVERAGE, Image.Dither.NONE
    # Level 9 takes three times as long and saves 4 % more.
    image.quantize(256, method, dither=dither).save(
        small, format="png", compress_level=8
    )
    return small.getvalue()


def sized_png(figure: Figure) -> tuple[bytes, dict[str, int]]:
    """The same, with half its size in pixels as that at which it is shown."""
    data = png(figure)
    width, height = Image.open(BytesIO(data)).size
    return data, {"width": width // 2, "height": height // 2}


def encode_only() -> None:
    """Keep Jupyter from drawing each figure once more before it encodes it."""
    if plt.get_backend().endswith("inline"):
        plt.uninstall_repl_displayhook()


def new_figure(
    height: float = 3.2, columns: int = 1, rows: int = 1, **options: Any
) -> tuple[Figure, list[Axes]]:
    """An empty figure of the book's width.

    Args:
        height: in inches.
        columns: panels side by side.
        rows: of panels.
        options: for ``plt.subplots``, such as ``width_ratios``.

    Returns:
        The figure and its axes, left to right, then top to bottom.
    """
    use_style()
    figure, axes = plt.subplots(
        rows,
        columns,
        figsize=(WIDTH, height),
        layout="constrained",
        squeeze=False,
        **options,
    )
    encode_only()
    return figure, list(axes.flat)


def mosaic(layout: str, height: float, **options: Any) -> dict[str, Axes]:
    """An empty figure whose panels differ in size.

    Args:
        layout: a letter a panel, as in ``"ab;cc"``: two panels over one.
        height: in inches.
        options: for ``plt.subplot_mosaic``, such as ``height_ratios``.

    Returns:
        The axes by their letters.
    """
    use_style()
    axes = plt.subplot_mosaic(
        layout, figsize=(WIDTH, height), layout="constrained", **options
    )[1]
    encode_only()
    return axes


def solid_arrow(
    ax: Axes,
    start: Point,
    end: Point,
    color: str = COLORS["black"],
    width: Number = 1.6,
) -> None:
    """A straight arrow with a filled head, exactly from point to point."""
    look: dict[str, Any] = {"arrowstyle": "-|>", "color": color}
    look |= {"linewidth": width, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", end, start, arrowprops=look)
