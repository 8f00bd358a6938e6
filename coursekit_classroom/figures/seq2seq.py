"""Figures of the encoder-decoder: two stacks, and what lies between them."""

from collections.abc import Mapping, Sequence
from functools import partial

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from coursekit_classroom.figures.shapes import box, sheet, short, write
from coursekit_classroom.figures.style import (
    COLORS,
    ROLES,
    Number,
    new_figure,
    solid_arrow,
)

_arrow = partial(solid_arrow, color=COLORS["gray"], width=1.8)

# Height, what it does, role; the parts of a block stand in a frame.
ENCODER = (
    (1.2, "token + position", "token"),
    (2.7, "self-attention", "weight"),
    (3.8, "feed-forward", "ffn"),
    (6.4, "memory", "stream"),
)
DECODER = (
    (1.2, "token + position", "token"),
    (2.7, "causal self-attention", "weight"),
    (3.8, "cross-attention", "query"),
    (4.9, "feed-forward", "ffn"),
    (6.4, "unembedding", "token"),
)


def two_stacks(
    source: Sequence[str], inputs: Sequence[str], answers: Sequence[str]
) -> Axes:
    """Draw the encoder, the decoder, and the memory between them.

    Args:
        source: what the encoder reads.
        inputs: what the decoder reads.
        answers: what it has to predict at each of them.

    Returns:
        The axes; the encoder stands at x = 0, the decoder at x = 6.
    """
    ax = new_figure(4.6)[1][0]
    for x, parts, top in ((0.0, ENCODER, 4.35), (6.0, DECODER, 5.45)):
        below = 0.25
        for y, name, role in parts:
            _arrow(ax, (x, below), (x, y - 0.36))
            box(ax, x - 1.9, y - 0.36, 3.8, 0.72, role)
            write(ax, x, y, name)
            below = y + 0.36
        frame = Rectangle((x - 2.15, 2.1), 4.3, top - 2.1, fill=False)
        frame.set(edgecolor=COLORS["gray"], linestyle="--", linewidth=1.4)
        ax.add_patch(frame)
    _arrow(ax, (6, 6.76), (6, 7.45))
    for x, y, text in (
        (0, 0, "  ".join(source)),
        (6, 0, "  ".join(inputs)),
        (6, 7.7, "  ".join(answers)),
    ):
        write(ax, x, y, text, family="monospace")
    for x, y, text in ((-2.4, 3.2, "N blocks"), (8.4, 3.8, "N blocks")):
        write(ax, x, y, text, rotation=90)
    for x, y, text in ((0, 8.5, "encoder"), (6, 8.5, "decoder")):
        write(ax, x, y, text, weight="bold")
    _keys_and_values(ax)
    sheet(ax, (-2.8, 8.8), (-0.4, 8.9))
    return ax


def one_memory(n_blocks: int) -> Axes:
    """Draw which blocks of the decoder read what of the encoder.

    Args:
        n_blocks: of each of the two.

    Returns:
        The axes; block i stands at height i, the encoder's at x = 0, the
        decoder's at x = 7.
    """
    ax = new_figure(0.6 * n_blocks + 1.5)[1][0]
    for x, side in ((0, "encoder"), (7, "decoder")):
        for i in range(1, n_blocks + 1):
            _arrow(ax, (x, i - 0.68), (x, i - 0.32))
            box(ax, x - 1.4, i - 0.32, 2.8, 0.64, "token", 0.1)
            write(ax, x, i, f"block {i}")
        write(ax, x, 0.05, side, weight="bold")
    top = n_blocks + 1
    _arrow(ax, (0, top - 0.68), (0, top - 0.32))
    box(ax, -1.4, top - 0.32, 2.8, 0.64, "stream")
    write(ax, 0, top, "memory")
    _arrow(ax, (7, top - 0.68), (7, top - 0.1))
    for role, shift in (("key", 0.1), ("value", -0.1)):
        color, turn = ROLES[role], 3.0 + 2 * shift
        ax.plot([1.4, turn, turn], [top + shift, top + shift, 1 + shift],
                "-", color=COLORS[color], linewidth=1.8)  # fmt: skip
        for i in range(1, n_blocks + 1):
            _arrow(
                ax, (turn, i + shift), (5.6, i + shift), color=COLORS[color]
            )
    write(ax, 4.4, n_blocks + 0.45, "keys, values")
    sheet(ax, (-1.6, 8.6), (-0.3, top + 0.45))
    return ax


def generated_steps(source: str, tokens: Sequence[str]) -> Axes:
    """Draw generation: what the decoder reads and predicts in each step.

    Args:
        source: what the encoder has read, once.
        tokens: the start token, and what is generated after it.

    Returns:
        The axes; step i stands at height −i, token j at x = j.
    """
    steps = len(tokens) - 1
    ax = new_figure(0.6 * steps + 0.6)[1][0]
    box(ax, -2.1, 0.6 - steps, 1.3, steps - 0.2, "stream")
    text = f"memory\nof\n{source}"
    write(ax, -1.45, (1 - steps) / 2, text)
    for i in range(steps):
        _arrow(ax, (-0.75, -i), (-0.5, -i), color=COLORS[ROLES["key"]])
        for j, token in enumerate(tokens[: i + 1]):
            box(ax, j - 0.45, -i - 0.34, 0.9, 0.68, "token")
            write(ax, j, -i, token)
        _arrow(ax, (i + 0.5, -i), (steps + 0.5, -i))
        box(ax, steps + 0.55, -i - 0.34, 0.9, 0.68, "loss")
        write(ax, steps + 1, -i, tokens[i + 1])
        if i + 1 < steps:  # it is read in the next step
            ax.plot([steps + 0.55, i + 1.46], [-i - 0.36, -i - 0.9], ":",
                    color=COLORS["gray"], linewidth=1.6)  # fmt: skip
    _names(ax, 0.5, (-0.5, steps, "reads"), (steps + 0.5, 1, "predicts"))
    sheet(ax, (-2.15, steps + 1.55), (0.5 - steps, 1.0))
    return ax


def _keys_and_values(ax: Axes) -> None:
    """From the memory into the cross-attention of each block."""
    for role, corner, y in (("key", 3.15, 3.95), ("value", 2.75, 3.65)):
        color = ROLES[role]
        start = 6.4 + (0.15 if role == "key" else -0.15)
        ax.plot(
            [1.9, corner, corner],
            [start, start, y],
            color=COLORS[color],
            linestyle="-",
            linewidth=1.8,
        )
        _arrow(ax, (corner, y), (4.1, y), color=COLORS[color])
    write(ax, 3.0, 7.1, "keys, values")


def attention_to_memory(
    y: Mapping[str, Tensor],
    memory: Mapping[str, Tensor],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    worked: int | None = None,
) -> Axes:
    """Draw one head of cross-attention with all of its numbers.

    Args:
        y: (D,) the decoder's vector of each of T tokens, by its name.
        memory: (D,) the memory's vector of each of S tokens, by its name.
        q: (T, Dh) queries.
        k: (S, Dh) keys.
        v: (S, Dh) values.
        worked: how many queries are worked out; all by default.

    Returns:
        The axes; row i of the memory stands at height −i, row i of the
        decoder at −S − 1.6 − i.
    """
    size, n_keys, d_head = len(next(iter(y.values()))), len(memory), len(k[0])
    at = [size + 0.9, size + d_head + 1.8]
    at.append(at[1] + max(n_keys, d_head) + 0.9)
    weights = (q @ k.T / d_head**0.5).softmax(-1)
    ax = new_figure(0.4 * (n_keys + len(y)) + 1.6)[1][0]
    _names(
        ax,
        0.55,
        (0, size, "memory $M$"),
        (at[1], d_head, "keys"),
        (at[2], d_head, "values"),
    )
    for i, (name, vector) in enumerate(memory.items()):
        ax.text(-0.25, -i, name, ha="right", va="center")
        for x, row, role in (
            (0.0, vector, "stream"),
            (at[1], k[i], "key"),
            (at[2], v[i], "value"),
        ):
            _numbers(ax, x, -i, row, role)
    low = -n_keys - 1.6
    _names(
        ax,
        low + 0.55,
        (0, size, "decoder $y$"),
        (at[0], d_head, "queries"),
        (at[1], n_keys, "weights"),
        (at[2], d_head, "sums"),
    )
    for i, (name, vector) in enumerate(y.items()):
        ax.text(-0.25, low - i, name, ha="right", va="center")
        _numbers(ax, 0.0, low - i, vector, "stream")
        if worked is not None and i >= worked:
            continue
        _numbers(ax, at[0], low - i, q[i], "query")
        _numbers(ax, at[1], low - i, weights[i], "weight", shaded=True)
        _numbers(ax, at[2], low - i, weights[i] @ v, "value")
    for x in at[1:]:
        _arrow(
            ax, (x + d_head / 2, 0.35 - n_keys), (x + d_head / 2, low + 1.25)
        )
    sheet(ax, (-2.4, at[2] + d_head + 0.1), (low - len(y) + 0.5, 1.3))
    return ax


def _names(ax: Axes, y: Number, *columns: tuple[Number, int, str]) -> None:
    """Write a name above each group of columns."""
    for x, size, name in columns:
        ax.text(x + size / 2, y, name, ha="center", va="bottom", weight="bold")


def _numbers(
    ax: Axes,
    x: Number,
    y: Number,
    row: Tensor,
    role: str,
    shaded: bool = False,
) -> None:
    """A vector as a row of boxes; weights as dark as they are large."""
    for i, number in enumerate(row.tolist()):
        full = 0.6 * number if shaded else 0.3
        box(ax, x + i, y - 0.4, 1, 0.8, role, full)
        whole = abs(number - round(number)) < 1e-6
        text = short(round(number)) if whole else f"{number:.2f}"
        write(
            ax,
            x + i + 0.5,
            y,
            text.replace("-", "−"),
            size=12 if whole else 10,
        )
