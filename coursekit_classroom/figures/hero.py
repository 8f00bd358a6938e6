"""The still picture of the hero, in the places of the live one.

A unit of its axes is a pixel of the page: what ``live.css`` says of
sizes, this file says too, and ``course.css`` keeps its room, so that nothing
moves when the figure comes alive.  Change the three together.
"""

import warnings
from typing import Any

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, PathPatch
from matplotlib.path import Path
from torch import Tensor

from coursekit.interpret import watch
from coursekit.tokenizer import Tokenizer
from coursekit_classroom.figures.shapes import rectangle, sheet
from coursekit_classroom.figures.style import COLORS, ROLES, Number

BARS = 5
WIDTH, HEIGHT = 768, 414  # of the live figure on a desk
PIXEL = 1.5  # for a point, as sphinx_ext/pictures.py draws them
MARGIN = 0.1 * 72 * PIXEL  # that savefig leaves around a picture
LEFT, RIGHT = 15.5, 528.5  # of the stack
LINE = 34.0  # from one line of tokens to the next
FIRST = 128.0  # the top of the first line of tokens
STACK, SLAB = 216.0, 30.0  # the first block; from one to the next
LIST, ROW = 165.0, 32.0  # the first bar; from one to the next
NAMES, TRACK, MOST = 615.5, 622.0, 75.0  # where names end, bars begin
FAINT = 0.04  # a weight below it gets no arc
NAMED = 52  # half of "attention 99.8%"
# As strings.js says it: each line with its size and weight.
LEAD = (
    ("Text goes in; the probabilities of the next token come out.", 20.8,
     "bold"),
    ("In between is a whole transformer of {n} blocks. It runs in this page.",
     15.2, "normal"),
)  # fmt: skip
GRAY, INK = COLORS["gray"], COLORS["black"]
STREAM, WEIGHT = COLORS[ROLES["stream"]], COLORS[ROLES["weight"]]
Place = tuple[Number, Number]


def hero(
    model: Any, tokenizer: Tokenizer, text: str, layer: int = 0, head: int = 0
) -> Axes:
    """The tokens, where the last one looks, and what may come next."""
    ids = torch.tensor([tokenizer.encode(text)])
    weights = watch(model, ids).weights[layer, 0, head, -1]
    shares = model(ids)[0, -1].softmax(-1)
    names = [word(tokenizer, i) for i in ids[0].tolist()]
    ax = page()
    for (line, size, weight), y in zip(LEAD, (49, 77), strict=True):
        label = line.format(n=len(model.blocks))
        write(ax, LEFT, y, label, size=size, weight=weight)
    places = tokens(ax, names)
    stack(ax, len(model.blocks), layer, head, names[int(weights.argmax())])
    arcs(ax, places, weights.tolist(), STACK + layer * SLAB + 13)
    best = bars(ax, tokenizer, shares)
    write(ax, LEFT, 378, f"Of {len(shares):,} tokens, {best}.", size=15.2)
    return ax


def page() -> Axes:
    """Axes as large as the live figure, in pixels from the top."""
    width, height = WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN
    figure = plt.figure(figsize=(width / PIXEL / 72, height / PIXEL / 72))
    ax = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    sheet(ax, (MARGIN, WIDTH - MARGIN), (HEIGHT - MARGIN, MARGIN))
    rectangle(ax, MARGIN, MARGIN, width, height, alpha=0)
    return ax


def word(tokenizer: Tokenizer, i: int) -> str:
    """A token without the space before it."""
    text = tokenizer.decode([i])
    return text.strip() or text.replace(" ", "␣").replace("\n", "↵")


def write(
    ax: Axes,
    x: Number,
    y: Number,
    text: str,
    size: Number = 15.2,
    **style: Any,
) -> float:
    """Write at a pixel, in a size of pixels; return the text's width."""
    label = ax.text(
        x, y, text, size=size / PIXEL, va="center_baseline", **style
    )
    with (
        warnings.catch_warnings()
    ):  # as figures.vector.encode: a sign may lack
        warnings.filterwarnings("ignore", "Glyph .* missing")
        extent = label.get_window_extent()
    return float(extent.width / ax.figure.dpi * 72 * PIXEL)


def box(  # noqa: PLR0913 (where it is, and how it looks)
    ax: Axes, x: Number, y: Number, width: Number, height: Number, edge: str,
    fill: str = "none", line: Number = 1.0, radius: Number = 5.0,
    zorder: Number = 1.0,
) -> None:  # fmt: skip
    """A rectangle with round corners."""
    ax.add_patch(
        FancyBboxPatch(
            (x, y), width, height,
            boxstyle=f"round,pad=0,rounding_size={radius}",
            facecolor=fill, edgecolor=edge, linewidth=line / PIXEL,
            zorder=zorder,
        )
    )  # fmt: skip


def tint(color: str, share: Number) -> str:
    """A color on white."""
    parts = [int(color[i : i + 2], 16) for i in (1, 3, 5)]
    mixed = (round(255 - share * (255 - part)) for part in parts)
    return "#{:02x}{:02x}{:02x}".format(*mixed)


def lines(ax: Axes, names: list[str]) -> list[list[tuple[str, Number]]]:
    """The tokens with their widths, broken into lines like text."""
    broken: list[list[tuple[str, Number]]] = [[]]
    for i, name in enumerate(names):
        heavy = "bold" if i == len(names) - 1 else "normal"
        width = max(19.0, write(ax, 0, 0, name, 14.7, weight=heavy) + 10.5)
        ax.texts[-1].remove()
        if sum(w + 3 for _, w in broken[-1]) + width > RIGHT - LEFT - 4:
            broken.append([])
        broken[-1].append((name, width))
    return broken


def tokens(ax: Axes, names: list[str]) -> list[Place]:
    """Draw the tokens as boxes; return where the bottom of each is."""
    places: list[Place] = []
    broken = lines(ax, names)
    for n, line in enumerate(broken):
        x, y = LEFT + 4, FIRST + LINE * n
        for name, width in line:
            last = len(places) == len(names) - 1
            role = STREAM if last else GRAY
            box(
                ax, x, y, width, 29, role,
                tint(role, 0.14 if last else 0.09), 2.5 if last else 1.5,
            )  # fmt: skip
            write(
                ax, x + width / 2, y + 14.5, name, ha="center",
                weight="bold" if last else "normal", size=14.7,
            )  # fmt: skip
            places.append((x + width / 2, y + 29))
            x += width + 3
    return places


def stack(ax: Axes, n_blocks: int, layer: int, head: int, token: str) -> None:
    """The blocks, one above the other; what a head does stands in its own."""
    for i in range(n_blocks):
        y = STACK + i * SLAB
        main = i == layer
        label = f"block {i + 1}"
        if main:
            label += f", head {head + 1} looks at “{token}”"
        box(
            ax, LEFT, y, RIGHT - LEFT, 26, WEIGHT if main else "#c9c9c9",
            tint(WEIGHT, 0.07) if main else "none", zorder=0.7,
        )  # fmt: skip
        write(ax, LEFT + 10, y + 13, label, 12.5)


def curve(
    ax: Axes, points: list[Place], codes: list[Any], **style: Any
) -> None:
    """A line through points, or bent by them."""
    ax.add_patch(PathPatch(Path(points, codes), facecolor="none", **style))


def arcs(
    ax: Axes, places: list[Place], weights: list[float], y: Number
) -> None:
    """From each token that has weight, into the last one's stream."""
    end, floor = places[-1]
    line, cubic = [Path.MOVETO, *[Path.LINETO] * 3], [Path.MOVETO]
    cubic += [Path.CURVE4] * 3
    foot = STACK + 4 * SLAB + 6
    pipe = [(end, floor), (end, foot), (538.5, foot), (538.5, LIST - 17)]
    curve(ax, pipe, line, edgecolor=STREAM, linewidth=4 / PIXEL, zorder=0.8)
    most = max(weights[:-1])
    for (x, top), weight in list(zip(places, weights, strict=True))[:-1]:
        if weight < FAINT:
            continue
        bend = x + 0.45 * (end - x)
        curve(
            ax, [(x, top), (x, y), (bend, y), (end, y)], cubic, alpha=0.75,
            edgecolor=WEIGHT, zorder=0.9,
            linewidth=(1.5 + 12 * weight) / PIXEL,
        )  # fmt: skip
        if weight >= 0.1 and top == floor:
            ground = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
            text = "attention " * (weight == most) + percent(weight)
            x = max(x, LEFT + NAMED) if weight == most else x
            write(ax, x, top + 11, text, 12.5, weight="bold",
                  ha="center", bbox=ground)  # fmt: skip


def bars(ax: Axes, tokenizer: Tokenizer, shares: Tensor) -> str:
    """Five bars, scaled to the largest; return what the first one says."""
    best = shares.topk(BARS)
    write(ax, 550, LIST - 30, "next token", weight="bold")
    rows = list(zip(best.values.tolist(), best.indices.tolist(), strict=True))
    for n, (p, i) in enumerate(rows):
        y = LIST + n * ROW
        write(ax, NAMES, y, word(tokenizer, i), ha="right")
        length = MOST * p / rows[0][0]
        box(ax, TRACK, y - 10, length, 20, "none", WEIGHT, radius=0.01)
        write(ax, 752, y, tenths(p), ha="right")
    y = LIST + BARS * ROW
    others = f"{len(shares) - BARS:,} others"
    write(ax, 550, y, others, 13.4, color=GRAY)
    rest = others_of([p for p, _ in rows])
    write(ax, 752, y, rest, 13.4, ha="right", color=GRAY)
    return f"“{word(tokenizer, rows[0][1])}” gets {tenths(rows[0][0])}"


def percent(share: Number) -> str:
    """A share as live figures say it: only what is whole is called 100%."""
    plain = share in (0, 1) or 0.1 <= share < 0.9945
    return f"{share:.0%}" if plain else tenths(share)


def tenths(share: Number) -> str:
    """The same with one digit, for shares that are added up."""
    if 0 < share < 0.0005:
        return "<0.1%"
    return ">99.9%" if 0.9994 < share < 1 else f"{share:.1%}"


def others_of(shares: list[float]) -> str:
    """Remainder, so that the rounded percentages shown sum to 100."""
    rest = 1000 - sum(int(1000 * share + 0.5) for share in shares)
    return tenths(max(rest, 0.4) / 1000)
