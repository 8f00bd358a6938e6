"""Figures as SVG: small, the same each time, and with text that is text.

Matplotlib writes its version, the date, a name for each group and seven
digits of each number; here all that goes.  Colors stay as they are: a file
needs no style sheet, and the book's build (``sphinx_ext/pictures.py``) turns
the palette into the colors of the page.
"""

import re
import warnings
from io import StringIO
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

CELLS = "cells"
"""The name of a group of cells that touch: no line may show between them."""

SPACE = "http://www.w3.org/2000/svg"
LINK = "http://www.w3.org/1999/xlink"
# A token may be a control character, which no XML may hold.
NOT_XML = re.compile(r"[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]")
NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
REFERENCE = re.compile(r"url\(#([^)]+)\)")
# Four lines around a rectangle, which three words can say.
AROUND = re.compile(r"M(\S+) (\S+)L(\S+) \2L\3 (\S+)L\1 \4(?:L\1 \2)?z?")
# What matplotlib says although it is so anyhow.
IDLE = ("text-anchor:start", "opacity:1")


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
    opening, _, rest = encode(figure, name).partition(">")
    ids = f'role="img" aria-labelledby="{name}-title {name}-text"'
    described = NOT_XML.sub(
        "\ufffd",
        f'<title id="{name}-title">{escape(title)}</title>'
        f'<desc id="{name}-text">{escape(text)}</desc>',
    )
    return f"{opening} {ids}>{described}{rest}"


def encode(figure: Figure, name: str = "fig") -> str:
    """Encode a figure as SVG on no ground.

    Args:
        figure: what to encode.
        name: begins the ids of what is drawn more than once.

    Returns:
        The ``<svg>`` element.
    """
    out = StringIO()
    # Text stays text: it can be searched, and needs no glyphs of ours.
    fixed: Any = {"svg.hashsalt": "coursekit", "svg.fonttype": "none"}
    with plt.rc_context(fixed), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")
        figure.savefig(
            out,
            format="svg",
            bbox_inches="tight",
            transparent=True,
            metadata={"Date": None},
        )
    ElementTree.register_namespace("", SPACE)
    ElementTree.register_namespace("xlink", LINK)
    drawn = out.getvalue()
    root = ElementTree.fromstring(
        NOT_XML.sub("\ufffd", drawn[drawn.index("<svg") :])
    )
    for part in root.findall(f"{{{SPACE}}}metadata"):
        root.remove(part)
    # A rule for all elements of a page, were it inside of one.
    for part in root.findall(f"{{{SPACE}}}defs"):
        if part.find(f"{{{SPACE}}}style") is not None:
            root.remove(part)
    root.set(
        "style",
        "stroke-linejoin:round;stroke-linecap:butt;font-family:sans-serif",
    )
    names = rename(root, name)
    for element in root.iter():
        tidy(element, names)
    thin(root)
    return ElementTree.tostring(root, encoding="unicode")


def rename(root: Element, name: str) -> dict[str, str]:
    """A short new id for each that something refers to."""
    used: dict[str, str] = {}
    for element in root.iter():
        links = [element.get(f"{{{LINK}}}href", "#")[1:]]
        for value in (element.get("style", ""), element.get("clip-path", "")):
            links += REFERENCE.findall(value)
        for old in links:
            if old and not old.startswith("ata:"):
                used.setdefault(old, f"{name}-{len(used)}")
    return used


def shorter(match: re.Match[str], digits: int = 2) -> str:
    """A number with two digits behind the point, a small one with four."""
    number = float(match[0])
    number = round(number, digits if abs(number) >= 0.1 else 4)
    return f"{number:.4f}".rstrip("0").rstrip(".") if number else "0"


def tidy(element: Element, names: dict[str, str]) -> None:
    """Say each attribute of an element as briefly as it can be said."""
    if not element.tag.endswith(("text", "tspan")):
        element.text = None
    elif re.search(r"^ |  | $", element.text or ""):
        # A page would take the indentation of code away.
        element.set("style", element.get("style", "") + ";white-space:pre")
    element.tail = None
    for key, value in list(element.attrib.items()):
        if key == "id":
            del element.attrib["id"]
            if value in names:
                element.set("id", names[value])
            elif value == CELLS:
                element.set("shape-rendering", "crispEdges")
        elif key.endswith("href"):
            if value.startswith("#"):
                element.set(key, f"#{names[value[1:]]}")
            else:  # an image, whose lines are broken
                element.set(key, re.sub(r"\s", "", value))
        else:
            value = REFERENCE.sub(lambda m: f"url(#{names[m[1]]})", value)
            element.set(key, brief(key, value))
            if not element.get(key):
                del element.attrib[key]


def brief(key: str, value: str) -> str:
    """The value of an attribute, without what goes without saying."""
    if key == "style":
        parts = [p.strip() for p in value.split(";") if p.strip()]
        parts = [re.sub(r"\s*([:,])\s*", r"\1", p) for p in parts]
        parts = [family(p) for p in parts]
        value = ";".join(p for p in parts if p and p not in IDLE)
    if key == "transform":
        value = re.sub(r"rotate\(-?0(\.0*)? [^)]*\)", "", value).strip()
        if "scale" in value or "matrix" in value:
            return NUMBER.sub(lambda m: shorter(m, 4), value)
    value = NUMBER.sub(shorter, value)
    if key == "d":
        value = re.sub(r"\s*([A-Za-z])\s*", r"\1", " ".join(value.split()))
        if around := AROUND.fullmatch(value):
            value = "M{} {}H{}V{}H{}z".format(*around.groups(), around[1])
    return value


def family(part: str) -> str:
    """CSS font property reduced to a generic family."""
    if not part.startswith("font"):
        return part
    before, _, fonts = part.partition("'")
    if not fonts:
        return part
    kind = "monospace" if "Mono" in fonts.split(",")[0] else ""
    if part.startswith("font-family"):
        return f"font-family:{kind}" if kind else ""
    return f"{before}{kind or 'sans-serif'}"


def is_unseen(element: Element) -> bool:
    """True if a path paints nothing."""
    return element.tag.endswith("path") and element.get("style") in (
        "fill:none",
        "fill:none;stroke:none",
    )


def thin(parent: Element) -> None:
    """Take out what paints nothing, and groups that say nothing."""
    elements: list[Element] = []
    for child in parent:
        thin(child)
        group = child.tag.endswith("}g")
        if is_unseen(child) or (group and not len(child)):
            continue
        if group and not child.attrib:
            elements += list(child)
        else:
            elements.append(child)
    parent[:] = elements
