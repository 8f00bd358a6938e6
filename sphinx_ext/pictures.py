"""Figures of notebooks as SVG in the page, in the page's colors.

A figure comes from its cell as SVG (``coursekit_classroom.figures``). As an
``<img>`` it could not know whether the page is light or dark, so its elements
are moved into the page, and each color of the palette becomes a custom
property that ``course.css`` defines for both: ``#0072b2`` turns into
``var(--fig-blue,#0072b2)``. Black is ink, white is paper, gray something in
between, and a tint a mixture with paper. What is none of these stays as it is.
"""

import os
import re
from pathlib import Path

from myst_nb.sphinx_ import HideCodeCellNode
from sphinx.transforms.post_transforms import SphinxPostTransform

from coursekit_classroom.figures.style import COLORS
from coursekit_classroom.notebooks.readers import DRAWN

# MyST-NB names what a cell has shown by its hash; no file of ours is so named.
IMAGE = re.compile(
    r'<img\b[^>]*\bsrc="[^"]*_images/(?P<name>[0-9a-f]{64}\.svg)"[^>]*>'
)
ALT = re.compile(r'\balt="([^"]*)"')
# As MyST-NB links a picture to its file, which is not needed any more.
OPENING = re.compile(r"<svg\b[^>]*>")
BOX = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')
PAINT = re.compile(r'\b(?:style|fill|stroke)="[^"]*"')
HEX = re.compile(r"#[0-9a-f]{6}\b", re.IGNORECASE)
# CSS pixels for a point: labels of 12 points are as large as the text.
SCALE = 1.5
NEAR = 12  # of 255, by which a color may miss a tint and still be meant


def parts(color):
    """Red, green and blue, 0 to 255."""
    return [int(color[i : i + 2], 16) for i in (1, 3, 5)]


def mixture(color, full):
    """Share of ``full`` on white closest to ``color``, and the error."""
    depth = [255 - part for part in full]
    wanted = [255 - part for part in color]
    share = sum(a * b for a, b in zip(depth, wanted, strict=True))
    share /= sum(part * part for part in depth)
    miss = max(abs(share * a - b) for a, b in zip(depth, wanted, strict=True))
    return share, miss


PALETTE = {
    "ink": "#000000",
    **{name: color.lower() for name, color in COLORS.items()},
}
NAMES = {
    "#ffffff": "paper",
    "#000000": "ink",
    **{color: name for name, color in PALETTE.items() if name != "black"},
    PALETTE["black"]: "ink",
}


def themed(color):
    """A color as the page's style sheet may change it."""
    color = color.lower()
    if color in NAMES:
        return f"var(--fig-{NAMES[color]},{color})"
    best = min(
        (
            (*mixture(parts(color), parts(full)), name)
            for name, full in PALETTE.items()
            if name != "black"
        ),
        key=lambda found: found[1],
    )
    share, miss, name = best
    if miss > NEAR or share > 1:
        return color
    return (
        f"color-mix(in srgb,var(--fig-{name}) {100 * share:.0f}%,"
        "var(--fig-paper))"
    )


def inlined(svg, alt, name):
    """An ``<svg>`` as a part of a page.

    Args:
        svg: as ``figures.vector.encode`` made it.
        alt: what it shows, in words, escaped.
        name: begins its ids; no other picture of the page has it.
    """
    svg = PAINT.sub(lambda m: HEX.sub(lambda c: themed(c[0]), m[0]), svg)
    svg = svg.replace(' fill="var', ' style="fill:var')
    svg = svg.replace("xlink:href=", "href=")
    for before in ('id="', "url(#", 'href="#'):
        svg = svg.replace(f"{before}fig-", f"{before}{name}-")
    width, height = map(float, BOX.search(svg).groups())
    opening = (
        f'<svg viewBox="0 0 {width:g} {height:g}" width="{SCALE * width:.0f}" '
        f'height="{SCALE * height:.0f}" aria-hidden="true">'
    )
    svg = OPENING.sub(opening, svg, count=1)
    return f'<span class="picture" role="img" aria-label="{alt}">{svg}</span>'


def put_into(body, read):
    """The page's text with its figures in it; ``read`` reads one by name."""
    count = 0

    def replace(match):
        nonlocal count
        count += 1
        alt = ALT.search(match[0])
        text = alt[1] if alt else ""
        return inlined(read(match["name"]), text, f"pic{count}")

    return IMAGE.sub(replace, body)


def inline(app, pagename, templatename, context, doctree):
    """Insert the figures into a page before it is written."""
    files = {name: source for source, name in app.builder.images.items()}

    def read(name):
        return Path(app.srcdir, files[name]).read_text("utf8")

    context["body"] = put_into(context.get("body") or "", read)


class MarkDrawing(SphinxPostTransform):
    """Mark the code that draws a figure: it opens from the caption."""

    default_priority = 200  # after MyST-NB's HideInputCells
    formats = ("html",)

    def run(self, **kwargs):
        """Give the folded code a class."""
        for code in self.document.findall(HideCodeCellNode):
            if code["prompt_show"] == DRAWN:
                code["classes"].append("drawn")


def setup(app):
    """Register with Sphinx, which may have to run a chapter itself."""
    os.environ["COURSEKIT_FIGURES"] = "svg"
    app.add_post_transform(MarkDrawing)
    app.connect("html-page-context", inline)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
