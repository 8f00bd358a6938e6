"""Figures of the residual stream and of a norm, with numbers in them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import Circle, FancyBboxPatch, Polygon, Rectangle
from torch import Tensor

from coursekit_classroom.figures.shapes import decimal, write
from coursekit_classroom.figures.style import (
    COLORS,
    ROLES,
    Number,
    new_figure,
    solid_arrow,
)

STREAM, INK = COLORS[ROLES["stream"]], COLORS["black"]
NORM = COLORS[ROLES["norm"]]
CELL, HEIGHT = 1.4, 0.8  # of one number of a vector
RIGHT = 4.6  # where the parts stand; the stream is at 0


class Part(NamedTuple):
    """A part of a block: reads the stream and adds to it."""

    name: str
    added: Tensor | None = None
    """(D,) what it adds; without it only an arrow is drawn."""

    reads: Tensor | None = None
    """(D,) what it reads behind a norm; without it there is no norm."""


def row(
    ax: Axes, numbers: Tensor, x: Number, y: Number, color: str, after: int = 2
) -> None:
    """A vector as boxes with their numbers, its middle at (x, y)."""
    left = x - CELL * len(numbers) / 2
    digits = 0 if bool((numbers == numbers.round()).all()) else after
    for i, value in enumerate(numbers.tolist()):
        corner = (left + i * CELL, y - HEIGHT / 2)
        box = Rectangle(corner, CELL - 0.06, HEIGHT, linewidth=0, zorder=2)
        box.set(facecolor=color, alpha=0.3)
        ax.add_patch(box)
        at, text = left + (i + 0.5) * CELL - 0.03, decimal(value, digits)
        write(ax, at, y, text, size=11, zorder=3)


def sum_so_far(ax: Axes, x: Tensor | str, y: Number, name: str) -> None:
    """The stream's own vector, or its formula, on the stream."""
    wide = CELL * (len(x) if isinstance(x, Tensor) else 4)
    ground = Rectangle((-wide / 2, y - HEIGHT / 2), wide - 0.06, HEIGHT)
    ground.set(facecolor="white", linewidth=0, zorder=1.5)
    ax.add_patch(ground)
    if isinstance(x, Tensor):
        row(ax, x, 0, y, STREAM)
    else:
        tint = Rectangle(ground.get_xy(), wide - 0.06, HEIGHT, linewidth=0)
        tint.set(facecolor=STREAM, alpha=0.3, zorder=2)
        ax.add_patch(tint)
        write(ax, 0, y, x, size=11, zorder=3)
    ax.text(-wide / 2 - 0.25, y, name, ha="right", va="center", size=11)


def box(
    ax: Axes, x: Number, y: Number, text: str, is_norm: bool = False
) -> None:
    """A named part, its middle at (x, y); a norm is tinted."""
    frame = FancyBboxPatch((x - 1.7, y - 0.34), 3.4, 0.68)
    frame.set(boxstyle="round,pad=0.1", facecolor="none", linewidth=1.8)
    frame.set_edgecolor(NORM if is_norm else INK)
    if is_norm:
        frame.set_facecolor(NORM + "22")
    ax.add_patch(frame)
    write(ax, x, y, text, size=11)


def line(
    ax: Axes, *points: tuple[Number, Number], width: Number = 1.6
) -> None:
    """A line through points; a thick one is the stream."""
    x, y = zip(*points, strict=True)
    color = STREAM if width > 3 else INK
    ax.plot(x, y, color=color, linewidth=width, linestyle="-", zorder=1,
            solid_capstyle="butt", solid_joinstyle="miter")  # fmt: skip


def plus(ax: Axes, y: Number, before: Number) -> None:
    """A sum on the stream, which comes up from ``before``."""
    line(ax, (0, before), (0, y - 0.42), width=5)
    ring = Circle((0, y), 0.42, fill=False, edgecolor=INK, linewidth=1.6)
    ax.add_patch(ring)
    write(ax, 0, y, "+", size=14, weight="bold")


def branch(ax: Axes, part: Part, low: Number) -> float:
    """A part that leaves the stream at a height; where it comes back."""
    line(ax, (0, low), (RIGHT, low), (RIGHT, low + 0.2))
    solid_arrow(ax, (RIGHT, low + 0.1), (RIGHT, low + 0.46))
    top = low + 0.9
    if part.reads is not None:
        box(ax, RIGHT, top, "layer norm, LN", is_norm=True)
        solid_arrow(ax, (RIGHT, top + 0.44), (RIGHT, top + 0.9))
        # As many digits as one gets from an x of two.
        row(ax, part.reads, RIGHT, top + 1.3, STREAM, after=1)
        solid_arrow(ax, (RIGHT, top + 1.7), (RIGHT, top + 2.12))
        top += 2.56
    box(ax, RIGHT, top, part.name)
    high = top + 1.3
    if part.added is None:
        line(ax, (RIGHT, top + 0.44), (RIGHT, high), (1.0, high))
        solid_arrow(ax, (1.1, high), (0.42, high))
    else:
        solid_arrow(ax, (RIGHT, top + 0.44), (RIGHT, high - 0.42))
        row(ax, part.added, RIGHT, high, INK)
        edge = RIGHT - CELL * len(part.added) / 2
        solid_arrow(ax, (edge, high), (0.42, high))
    return high


def residual_stream(
    start: Tensor, parts: Sequence[Part], names: Sequence[str]
) -> Axes:
    """Draw the stream of one token from the bottom up, with its vectors.

    Args:
        start: (D,) the vector below all parts.
        parts: in their order; as long as they say what they add, the sum
            stands on the stream, then its formula does.
        names: of the vector at the bottom and of each sum; if one is left,
            it is the formula on top.

    Returns:
        The axes; the stream runs upward at x = 0.
    """
    tall = 0.2 + sum(3.95 if p.reads is None else 6.51 for p in parts)
    ax = new_figure(0.4 * tall + 0.5)[1][0]
    ax.set(xlim=(-5.9, 7.5), ylim=(-0.5, tall))
    ax.set_aspect("equal")
    ax.axis("off")
    x, y, titles = start, 0.0, iter(names)
    below = y + HEIGHT / 2
    sum_so_far(ax, x, y, next(titles))
    for part in parts:
        high = branch(ax, part, y + 0.75)
        plus(ax, high, below)
        below = high + 0.42
        if part.added is not None:
            x, y = x + part.added, high + 1.0
            sum_so_far(ax, x, y, next(titles))
            below = y + HEIGHT / 2
            line(ax, (0, high + 0.42), (0, y - HEIGHT / 2), width=5)
        else:
            y = high + 1.0
            if formula := next(titles, ""):
                line(ax, (0, below), (0, y - HEIGHT / 2), width=5)
                below = y + HEIGHT / 2
                sum_so_far(ax, formula, y, "")
    line(ax, (0, below), (0, below + 0.6), width=5)
    head = [(-0.24, below + 0.58), (0.24, below + 0.58), (0, below + 1)]
    ax.add_patch(Polygon(head, facecolor=STREAM, linewidth=0))
    ax.set_ylim(-0.5, max(tall, below + 1.1))  # the last vector, in full
    return ax


def norm_steps(x: Tensor) -> list[Axes]:
    """Draw layer norm of one vector as bars: as it is, shifted, scaled.

    Args:
        x: (D,) the vector.

    Returns:
        The three axes, all with one scale.
    """
    mean, size = x.mean().item(), x.var(correction=0).sqrt().item()
    low, high = decimal(mean), decimal(size)
    panels = [
        (f"mean {low}", x, 0.0),
        (f"shift: − {low}", x - mean, size),
        (f"scale: ÷ {high}", (x - mean) / size, 1.0),
    ]
    _, axes = new_figure(2.5, columns=3, sharex=True)
    reach = float(x.abs().max())
    for ax, (title, values, spread) in zip(axes, panels, strict=True):
        lengths = values.tolist()
        ax.barh(range(len(x)), lengths, 0.74, color=STREAM, alpha=0.45)
        for i, value in enumerate(values.tolist()):
            side, end = (-0.04, "right") if value < 0 else (0.04, "left")
            at, text = value + side * reach, decimal(value)
            ax.text(at, i, text, ha=end, va="center", size=11)
        if spread:
            tall = len(x) - 0.1
            band = Rectangle((-spread, -0.5), 2 * spread, tall, linewidth=0)
            band.set(facecolor=INK, alpha=0.08)
            ax.add_patch(band)
            text = f"± {decimal(spread)}" if spread != 1 else "± 1"
            ax.text(0, len(x) - 0.5, text, ha="center", va="top", size=11)
        else:
            ax.vlines(mean, -0.5, len(x) - 0.5, INK, "--", linewidth=1.2)
        ax.vlines(0, -0.5, len(x) - 0.5, INK, linewidth=1)
        ax.set(ylim=(len(x) + 0.2, -0.6), title=title, xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
    axes[0].set_xlim(-1.1 * reach, 1.5 * reach)
    return axes


def norm_places() -> list[Axes]:
    """Draw one block twice: the norm on the branch, and on the stream.

    Returns:
        The axes of pre-norm and of post-norm.
    """
    _, axes = new_figure(3.9, columns=2)
    for ax, first in zip(axes, (True, False), strict=True):
        below, y = -0.6, 0.0
        for name in ("attention", "FFN"):
            line(ax, (0, y), (RIGHT, y), (RIGHT, y + 0.5))
            top = y + 0.94
            if first:
                box(ax, RIGHT, top, "norm", is_norm=True)
                line(ax, (RIGHT, top + 0.44), (RIGHT, top + 0.76))
                top += 1.2
            box(ax, RIGHT, top, name)
            high = top + 1.1
            line(ax, (RIGHT, top + 0.44), (RIGHT, high), (0.9, high))
            solid_arrow(ax, (0.9, high), (0.42, high))
            plus(ax, high, below)
            below, y = high + 0.42, high + 1.1
            if not first:
                line(ax, (0, below), (0, below + 0.36), width=5)
                box(ax, 0, below + 0.8, "norm", is_norm=True)
                below, y = below + 1.24, below + 1.8
        line(ax, (0, below), (0, below + 0.7), width=5)
        if first:
            box(ax, 0, below + 1.14, "norm", is_norm=True)
            ax.text(2.1, below + 1.14, "once, at\nthe end", va="center")
            line(ax, (0, below + 1.58), (0, below + 2.2), width=5)
        ax.set(xlim=(-2.1, 6.6), ylim=(-0.8, 10.6), aspect="equal")
        ax.set_title("pre-norm" if first else "post-norm")
        ax.axis("off")
    return axes


def collapse(
    gradients: Mapping[str, Sequence[float]],
    alike: Mapping[str, Sequence[Sequence[float]]],
    title: str,
) -> list[Axes]:
    """Draw which gradients of a stack vanish, and how alike tokens become.

    Args:
        gradients: of a matrix in each block, by its name; queries and keys
            have lines, the others are one band.
        alike: by a name, one or more lines with a number for each block.
        title: above the gradients.

    Returns:
        The axes of the gradients and of the likeness.
    """
    top, low = new_figure(4.9, rows=2, sharex=True)[1]
    rest = dict(gradients)
    blocks = range(1, len(rest["query"]) + 1)
    for name, look in (("query", "-"), ("key", ":")):
        ink = COLORS[ROLES[name]]
        top.plot(blocks, rest.pop(name), look, color=ink)
    columns = list(zip(*rest.values(), strict=True))
    ends = [min(c) for c in columns], [max(c) for c in columns]
    top.fill_between(blocks, *ends, color=COLORS["gray"], linewidth=1)
    side: dict[str, Any] = {"ha": "right", "va": "top"}
    names = dict.fromkeys(name.split(",")[0] for name in rest)
    top.text(blocks[-1], 0.1 * columns[-1][0], ", ".join(names), **side)
    end = 1e3 * gradients["query"][-1]
    top.text(blocks[-1], end, "query, key", ha="right")
    top.set(yscale="log", ylim=(1e-17, 1e4), title=title)
    top.set_yticks([1, 1e-5, 1e-10, 1e-15])
    looks = iter(("-", "--", "-.", ":"))
    for name, lines in alike.items():
        for line in lines:
            low.plot(blocks, line, next(looks), color=STREAM)
        end = lines[0][-1]
        above = 0.5 < end < 0.9
        side["va"] = "bottom" if above else "top"
        low.text(blocks[-1], end + (0.02 if above else -0.07), name, **side)
    low.set(title="cosine between two tokens", ylim=(0, 1.06))
    low.set(xlabel="block", xticks=(1, 8, 16, 24), yticks=(0, 0.5, 1))
    return [top, low]
