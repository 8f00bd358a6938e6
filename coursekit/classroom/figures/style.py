"""The look of all figures: colors, sizes, and how they are encoded.

Colors are Okabe and Ito's, which stay apart for color-blind readers; no
figure says anything by color alone.  A figure is 5.4 inches wide, so that its
text is readable on a phone.
"""

import re
import warnings
from html import escape
from importlib import import_module
from io import BytesIO, StringIO
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

__all__ = [
    "COLORS",
    "ROLES",
    "WIDTH",
    "Number",
    "mosaic",
    "new_figure",
    "png",
    "svg",
    "use_style",
]

COLORS = {
    "blue": "#0072B2",
    "orange": "#D55E00",
    "green": "#009E73",
    "purple": "#AA4499",
    "yellow": "#E69F00",
    "sky": "#56B4E9",
    "gray": "#6B6B6B",
    "black": "#1A1A1A",
}
# What a thing is has one color on all pages.
ROLES = {
    "stream": "green",
    "query": "orange",
    "key": "sky",
    "value": "yellow",
    "weight": "blue",
}
WIDTH = 5.4

Number = int | float
NOT_XML = re.compile(r"[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]")


def use_style() -> None:
    """Set the book's look for every figure that follows."""
    plt.rcParams.update(
        {
            "figure.facecolor": "white",
            # Twice the width at which the page shows it.
            "figure.dpi": 200,
            "savefig.dpi": 200,
            "font.size": 12,
            "axes.titlesize": 12,
            "axes.titlelocation": "left",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.prop_cycle": plt.cycler(
                color=[
                    COLORS[c]
                    for c in ("blue", "orange", "green", "purple", "gray")
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
        shell.display_formatter.formatters["image/png"].for_type(Figure, png)


def png(figure: Figure) -> bytes:
    """Encode a figure in 256 colors, a third of the usual size.

    Args:
        figure: what to encode.

    Returns:
        The bytes of a PNG file.
    """
    full, small = BytesIO(), BytesIO()
    figure.savefig(full, format="png", bbox_inches="tight")
    image = Image.open(full).convert("RGB")
    image.quantize(256, dither=Image.Dither.NONE).save(
        small, format="png", optimize=True
    )
    return small.getvalue()


def svg(figure: Figure, name: str, title: str, text: str) -> str:
    """Encode a figure as SVG that says in words what it shows.

    The same figure gives the same text: no chance, no date.

    Args:
        figure: what to encode.
        name: begins the ids of title and text, so that a page can hold more
            than one picture.
        title: what the picture is.
        text: what it shows, for those who do not see it.

    Returns:
        The ``<svg>`` element: a file, or a part of a page.
    """
    out = StringIO()
    # Text stays text: it can be searched, and needs no glyphs of ours.
    fixed: Any = {"svg.hashsalt": "coursekit", "svg.fonttype": "none"}
    with plt.rc_context(fixed), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")
        figure.savefig(
            out, format="svg", bbox_inches="tight", metadata={"Date": None}
        )
    drawn = out.getvalue()
    opening, _, rest = drawn[drawn.index("<svg") :].partition(">")
    ids = f'role="img" aria-labelledby="{name}-title {name}-text"'
    told = (
        f'<title id="{name}-title">{escape(title)}</title>'
        f'<desc id="{name}-text">{escape(text)}</desc>'
    )
    # Whose program drew it is nobody's business, and changes with it.
    rest = re.sub(r"\s*<metadata>.*?</metadata>", "", rest, flags=re.S)
    # A token may be a control character, which no XML may hold.
    return NOT_XML.sub("\ufffd", f"{opening} {ids}>{told}{rest}")


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
    return plt.subplot_mosaic(
        layout, figsize=(WIDTH, height), layout="constrained", **options
    )[1]
