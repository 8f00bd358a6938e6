"""Figures of tensors on their way, and of what consists of what."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Polygon, Rectangle

from coursekit_classroom.figures.shapes import box, sheet, write
from coursekit_classroom.figures.style import (
    COLORS,
    ROLES,
    WIDTH,
    Number,
    new_figure,
    solid_arrow,
)

# In inches, as all lengths here: the sides that depend on no other, and what
# lies between two tensors.
T, S, ONE = 0.46, 0.6, 0.2
GAP, BESIDE, APART, SHEET = 0.38, 0.32, 0.09, 0.05
GRAY = COLORS["gray"]


@dataclass
class Drawn:
    """A tensor at its place: its parts, side by side, and their corner."""

    name: str
    role: str
    shape: list[str]
    parts: int
    part: float
    height: float
    gap: float
    sheets: int
    left: float = 0.0
    top: float = 0.0

    @property
    def right(self) -> float:
        parts = self.parts * self.part
        return self.left + parts + (self.parts - 1) * self.gap

    @property
    def edge(self) -> float:
        """Right edge of the last sheet."""
        return self.right + (self.sheets - 1) * SHEET

    @property
    def bottom(self) -> float:
        return self.top + self.height

    @property
    def middle(self) -> float:
        return (self.left + self.right) / 2

    def middles(self, parts: int) -> list[float]:
        """Centers of its parts, also where it is drawn in one piece."""
        if parts != self.parts:
            each = (self.right - self.left) / parts
            return [self.left + (i + 0.5) * each for i in range(parts)]
        each = self.part + self.gap
        return [self.left + self.part / 2 + i * each for i in range(parts)]

    @property
    def inside(self) -> bool:
        """True if its name fits inside; otherwise it is drawn at the right."""
        fits = 0.1 * len(self.name) < self.part
        return fits and (self.parts == 1 or len(self.name) == 1)

    def near(self, x: float) -> float:
        """The place on its upper side that is nearest to x."""
        return min(max(x, self.left + 0.1), self.right - 0.1)


Point = tuple[float, float]
Step = tuple[list[Drawn], list[Drawn], str]


def shape_flow(
    rows: Sequence[Mapping[str, str]],
    steps: Mapping[str, str],
    heads: int = 4,
    d_model: Number = 0.8,
    stacked: bool = False,
) -> Axes:
    """Draw tensors as rectangles, and the operations between them.

    Dh is drawn as D / H and Dff as 4 D; V is broken off.  Where H stands
    before the positions, the heads lie apart.  B is written, not drawn.  From
    a stream and one more tensor to a stream, a step is a sum.

    Args:
        rows: from top to bottom; each has names of tensors, and of each its
            role and its shape, such as ``"query B H T Dh"``.
        steps: what leads where, ``"q, k → weights"``, and the operation.
        heads: how many are drawn.
        d_model: how wide D is, in inches.
        stacked: whether heads lie behind one another.

    Returns:
        The axes; lengths are in inches.

    Raises:
        ValueError: if a step names no tensor.
    """
    placed = [
        [_tensor(*item, heads, d_model, stacked) for item in row.items()]
        for row in rows
    ]
    named = {tensor.name: tensor for row in placed for tensor in row}
    arrows: list[Step] = []
    for step, operation in steps.items():
        before, after = (side.split(", ") for side in step.split(" → "))
        if unknown := [name for name in before + after if name not in named]:
            raise ValueError(
                f"a step leads from tensors to tensors: got {unknown[0]!r} "
                f"in {step!r}, and the tensors are {', '.join(named)}."
            )
        first = [named[name] for name in before]
        last = [named[name] for name in after]
        arrows.append((first, last, operation))
    bottom = _place(placed, arrows)
    column = 0.2 + max(
        tensor.edge + 0.09 * len(tensor.name) * (not tensor.inside)
        for tensor in named.values()
    )
    ax = new_figure(bottom + 0.1)[1][0]
    sheet(ax, (-0.18, WIDTH - 0.18), (bottom + 0.05, -0.05))
    streams = [first[0] for first, last, _ in arrows if _adds(first, last)]
    for first, last, operation in arrows:
        if _adds(first, last):
            right = _sum(ax, first[0], first[1], last[0])
        else:
            right = _lead(ax, first, last, streams)
        turn = last[0].top - GAP / 2
        ax.text(right + 0.12, turn, operation, va="center", size=11)
    for row in placed:
        for tensor in row:
            _draw(ax, tensor)
        shapes = [f"({', '.join(tensor.shape)})" for tensor in row]
        text = "\n".join(dict.fromkeys(shapes))
        if len(row) > 1 and "\n" not in text:
            text = f"each {text}"
        middle = row[0].top + row[0].height / 2
        ax.text(column, middle, text, va="center", size=11)
    return ax


def _tensor(
    name: str, words: str, heads: int, d_model: Number, stacked: bool
) -> Drawn:
    """A tensor that has no place yet, from its role and shape."""
    role, *shape = words.split()
    sides = {
        "T": T,
        "S": S,
        "D": d_model,
        "Dh": d_model / heads,
        "Dff": 4 * d_model,
        "V": 4.9 * d_model,
    }
    axes = [axis for axis in shape if axis != "B"]
    gap = APART if axes[0] == "H" else 0
    height, *width = (sides[axis] for axis in axes if axis != "H")
    parts = heads if "H" in axes else 1
    parts, sheets = (1, parts) if stacked else (parts, 1)
    part = width[0] if width else ONE
    return Drawn(name, role, shape, parts, part, height, gap, sheets)


def _adds(first: Sequence[Drawn], last: Sequence[Drawn]) -> bool:
    """True if a stream continues and something is added to it."""
    return len(first) == 2 and first[0].role == last[0].role == "stream"


def _place(rows: Sequence[Sequence[Drawn]], arrows: Sequence[Step]) -> float:
    """Give each tensor its place, a branch to the right of its stream."""
    rank = {t.name: i for i, row in enumerate(rows) for t in row}
    beside = {
        i: first[0]
        for first, last, _ in arrows
        if _adds(first, last)
        for i in range(rank[first[0].name] + 1, rank[last[0].name])
    }
    top = 0.0
    for i, row in enumerate(rows):
        start = beside[i].middle + BESIDE if i in beside else 0.0
        if i in beside and len(row) == 1:
            before = next(f for f, last, _ in arrows if row[0] in last)
            middle = sum(tensor.middle for tensor in before) / len(before)
            start = max(start, middle - (row[0].right - row[0].left) / 2)
        for tensor in row:
            tensor.left, tensor.top = start, top
            start = tensor.edge + BESIDE + 0.4 * (tensor.sheets > 1)
        top += max(tensor.height for tensor in row) + GAP
    return top - GAP


def _draw(ax: Axes, tensor: Drawn) -> None:
    """A tensor, with its name and the names of its sides."""
    height, *width = (a for a in tensor.shape if a not in ("B", "H"))
    middle, name = tensor.top + tensor.height / 2, tensor.name
    inside = tensor.inside
    look: dict[str, Any] = {"va": "center", "size": 11}
    for i in range(tensor.sheets - 1, 0, -1):
        x, y = tensor.left + i * SHEET, tensor.top - i * SHEET
        sheet = (x, y), tensor.part, tensor.height
        ax.add_patch(Rectangle(*sheet, facecolor="white"))
        box(ax, *sheet[0], *sheet[1:], tensor.role, 0.15)
        if i == tensor.sheets - 1:
            ax.text(x + tensor.part + 0.04, y + 0.06, "H", **look)
    for x in tensor.middles(tensor.parts):
        corner = x - tensor.part / 2, tensor.top
        sheet = corner, tensor.part, tensor.height
        ax.add_patch(Rectangle(*sheet, facecolor="white"))
        box(ax, *corner, *sheet[1:], tensor.role)
        if width:
            y = middle + 0.11 * inside
            _side(ax, x, y, tensor.part, width[0])
        if inside:
            y = middle - 0.1
            ax.text(x, y, name, ha="center", weight="bold", **look)
    if not inside:
        ax.text(tensor.edge + 0.1, middle, name, weight="bold", **look)
    ax.text(tensor.left - 0.05, middle, height, ha="right", **look)
    if width == ["V"]:
        x, low, high = tensor.right - 0.5, tensor.bottom + 0.04, tensor.top
        torn = [(x, low), (x + 0.12, high - 0.04)]
        torn += [(a + 0.08, b) for a, b in reversed(torn)]
        ax.add_patch(Polygon(torn, facecolor="white", edgecolor="none"))
        for (x, low), (end, high) in (torn[:2], torn[2:]):
            _line(ax, [x, end], [low, high])


def _side(ax: Axes, x: float, y: float, width: float, name: str) -> None:
    """Label a side with its size, between two arrows if they fit."""
    write(ax, x, y, name, size=11)
    inner, outer = 0.04 + 0.05 * len(name), width / 2 - 0.02
    for sign in (-1, 1) if outer - inner > 0.09 else ():
        start, end = (x + sign * inner, y), (x + sign * outer, y)
        solid_arrow(ax, start, end, GRAY, 0.6)


def _line(ax: Axes, x: Sequence[float], y: Sequence[float]) -> None:
    ax.plot(x, y, color=GRAY, linewidth=1.2, linestyle="-", zorder=1)


def _sum(ax: Axes, stream: Drawn, branch: Drawn, result: Drawn) -> float:
    """A stream goes on; a branch comes back to it."""
    x, color = stream.middle, COLORS[ROLES["stream"]]
    turn = result.top - GAP / 2
    solid_arrow(ax, (x, stream.bottom), (x, result.top), color, 2.5)
    ends = branch.middles(branch.parts)
    for end in ends:
        _line(ax, [end, end, x], [branch.bottom, turn, turn])
    ring = {"boxstyle": "circle,pad=0.1", "facecolor": "white"}
    ring |= {"edgecolor": color}
    write(ax, x, turn, "+", size=12, bbox=ring)
    return ends[-1]


def _lead(
    ax: Axes,
    first: Sequence[Drawn],
    last: Sequence[Drawn],
    streams: Sequence[Drawn],
) -> float:
    """From all of some tensors to all others; how far right it goes."""
    right = 0.0
    for one, other in product(first, last):
        low, turn = other.top, other.top - GAP / 2
        parts = max(one.parts, other.parts)
        near = turn - one.bottom < GAP and one not in streams
        if near and parts > 1 and one.left == other.left:
            starts, ends = one.middles(parts), other.middles(parts)
            for start, end in zip(starts, ends, strict=True):
                solid_arrow(ax, (start, one.bottom), (end, low), GRAY, 1.2)
        else:
            starts = one.middles(one.parts) if near else [one.right - 0.1]
            ends = [other.near(one.middle if near else starts[0])]
            if other.parts > 1:
                ends = other.middles(other.parts)
            for start in starts if starts != ends else ():
                _line(ax, [start, start, ends[0]], [one.bottom, turn, turn])
            for end in ends:
                _line(ax, [ends[0], end], [turn, turn])
                high = turn if starts != ends else one.bottom
                solid_arrow(ax, (end, high), (end, low), GRAY, 1.2)
        right = max(right, *starts, *ends)
    return right


# A box is its name, or a list of its name and the boxes in it.
Boxes = str | Sequence["Boxes"]
ROOM, LINE = 0.08, 0.18


def nested(boxes: Boxes) -> Axes:
    """Draw what contains what, as boxes in boxes.

    Args:
        boxes: a list of a name and what is in it, each a name or again such
            a list.  Below one another in the first box, beside one another
            in the next, and so on in turn.  A role may stand before a name:
            ``"ffn: FeedForward"``.

    Returns:
        The axes; lengths are in inches.
    """
    width, height = WIDTH - 0.1, _size(boxes, True)[1]
    ax = new_figure(height + 0.1)[1][0]
    sheet(ax, (-0.05, WIDTH - 0.05), (height + 0.05, -0.05))
    _nest(ax, boxes, True, (0, 0), (width, height))
    return ax


def _opened(boxes: Boxes) -> tuple[str, str, Sequence[Boxes]]:
    """Role, name and what is inside."""
    title, *inner = [boxes] if isinstance(boxes, str) else boxes
    role, _, name = str(title).rpartition(": ")
    return role or "token", name, inner


def _size(boxes: Boxes, down: bool) -> Point:
    """Width and height that a box needs."""
    _, name, inner = _opened(boxes)
    lines = name.split("\n")
    width = 0.078 * max(map(len, lines)) + 0.16
    height = LINE * len(lines) + 0.15
    if not inner:
        return width, height
    sizes = zip(*(_size(part, not down) for part in inner), strict=True)
    widths, heights = map(list, sizes)
    if down:
        height += sum(heights) + ROOM * len(inner)
        return max(width, max(widths) + 2 * ROOM), height
    height += max(heights) + ROOM
    return max(width, sum(widths) + ROOM * (len(inner) + 1)), height


def _nest(
    ax: Axes, boxes: Boxes, down: bool, corner: Point, size: Point
) -> None:
    """A box of a size, and those that are in it, which fill it."""
    role, name, inner = _opened(boxes)
    (x, y), (width, height) = corner, size
    box(ax, x, y, width, height, role, 0 if inner else 0.25)
    head = LINE * (name.count("\n") + 1) + 0.15 if inner else height
    weight = "bold" if inner else "normal"
    look: dict[str, Any] = {"ha": "center", "va": "center", "size": 11}
    ax.text(x + width / 2, y + head / 2, name, weight=weight, **look)
    x, y = x + ROOM, y + head
    needed = sum(_size(part, not down)[0] + ROOM for part in inner) + ROOM
    for part in inner:
        wide, high = _size(part, not down)
        if down:
            _nest(ax, part, not down, (x, y), (width - 2 * ROOM, high))
            y += high + ROOM
        else:
            wide += (width - needed) / len(inner)
            _nest(ax, part, not down, (x, y), (wide, height - head - ROOM))
            x += wide + ROOM
