"""Figures of chapter 20: targets, low-rank updates, what was forgotten."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from coursekit_classroom.figures.shapes import rectangle, sheet, short, write
from coursekit_classroom.figures.style import COLORS, ROLES, Number, new_figure


def _cell(
    ax: Axes, x: Number, y: Number, text: str, wide: Number, color: str
) -> None:
    """A box with a word or a number in it."""
    rectangle(
        ax,
        x,
        y - 0.36,
        wide,
        0.72,
        facecolor=COLORS[color],
        alpha=0.35,
        edgecolor=COLORS["gray"],
    )
    write(ax, x + wide / 2, y, text, size=11)


def counted_targets(tokens: Sequence[str], n_prompt: int) -> Axes:
    """Draw a row of tokens in lines, each with the target below it.

    Args:
        tokens: prompt and answer.
        n_prompt: how many belong to the prompt.

    Returns:
        The axes; a line of tokens is one apart from its targets.
    """
    targets = [
        token if i >= n_prompt else None for i, token in enumerate(tokens)
    ]
    return read_and_targets(tokens[:-1], targets[1:])


def read_and_targets(
    inputs: Sequence[str], targets: Sequence[str | None], per_line: int = 9
) -> Axes:
    """Draw what a model reads, with the target of each position below it.

    Args:
        inputs: T tokens.
        targets: T tokens; ``None`` where the loss asks for nothing.
        per_line: tokens in a line.

    Returns:
        The axes; a line of tokens is one apart from its targets.
    """
    pairs = list(zip(inputs, targets, strict=True))
    lines = [pairs[i : i + per_line] for i in range(0, len(pairs), per_line)]
    ax = new_figure(1.15 * len(lines) + 0.2)[1][0]
    for row, line in enumerate(lines):
        y = -2.6 * row
        ax.text(-0.15, y, "reads", ha="right", va="center", size=11)
        ax.text(-0.15, y - 0.9, "target", ha="right", va="center", size=11)
        for i, (token, target) in enumerate(line):
            _cell(ax, i, y, token, 0.96, ROLES["token"])
            if target is not None:
                _cell(ax, i, y - 0.9, target, 0.96, ROLES["loss"])
            else:
                write(ax, i + 0.48, y - 0.9, "−")
    bottom = -2.6 * (len(lines) - 1) - 1.4
    sheet(ax, (-1.1, per_line), (bottom, 0.5))
    return ax


def _matrix(
    ax: Axes, numbers: Tensor, x: Number, name: str, color: str
) -> None:
    """A matrix as boxes, around height 0, with its name above."""
    rows, columns = numbers.shape
    top = (rows - 1) / 2 * 0.8
    for i in range(rows):
        for j in range(columns):
            text = short(numbers[i, j].item())
            _cell(ax, x + 0.9 * j, top - 0.8 * i, text, 0.86, color)
    write(ax, x + 0.45 * columns, 1.5, name, size=12)


def low_rank_update(weight: Tensor, a: Tensor, b: Tensor) -> Axes:
    """Draw W + B A = W′ with all numbers.

    Args:
        weight: (3, I).
        a: (r, I).
        b: (3, r).

    Returns:
        The axes; a cell is 0.9 wide.
    """
    ax = new_figure(2.3)[1][0]
    x = 0.0
    parts = (
        (weight, "W", "frozen", "gray", "+"),
        (b, "B", "trainable", ROLES["weight"], "·"),
        (a, "A", "trainable", ROLES["weight"], "="),
        (weight + b @ a, "W + B A", "", "gray", ""),
    )
    for numbers, name, state, color, sign in parts:
        _matrix(ax, numbers, x, name, color)
        middle = x + 0.45 * numbers.size(1)
        write(ax, middle, -1.5, state, size=11)
        x += 0.9 * numbers.size(1)
        write(ax, x + 0.35, 0, sign, size=15)
        x += 0.75
    ax.set(xlim=(-0.2, x - 0.5), ylim=(-1.8, 1.9), aspect="equal")
    ax.axis("off")
    return ax


def forgotten(
    ways: Mapping[str, tuple[Sequence[Number], Sequence[Number]]],
    before: Number,
) -> Sequence[Axes]:
    """Draw what ways of tuning learn, and what the old texts cost then.

    Args:
        ways: for each, right answers and losses on old texts, of all seeds;
            the answers are fractions.
        before: the loss on old texts of the model as it was.

    Returns:
        Two axes, the first way on top.
    """
    axes = new_figure(0.42 * len(ways) + 1.0, columns=2)[1]
    for ax, part, color in zip(axes, (0, 1), ("blue", "orange"), strict=True):
        for y, values in enumerate(ways.values()):
            seeds = [100 * v if part == 0 else v for v in values[part]]
            mean = sum(seeds) / len(seeds)
            marker = "o" if part == 0 else "D"
            ax.plot(mean, y, marker, color=COLORS[color], markersize=7)
            ends = [min(seeds), max(seeds)]
            ax.plot(ends, [y, y], "-", color=COLORS[color], linewidth=2.5)
            text = f"{mean:.0f} %" if part == 0 else f"{mean:.2f}"
            ax.annotate(text, (max(seeds), y), (9, 0), size=11, va="center",
                        textcoords="offset points")  # fmt: skip
        ax.set_ylim(len(ways) - 0.5, -0.5)
    axes[0].set_yticks(range(len(ways)), list(ways))
    axes[0].set(xlabel="right answers (%)", xlim=(0, 100))
    axes[1].set_yticks([])
    highest = max(max(losses) for _, losses in ways.values())
    axes[1].axvline(before, color=COLORS["gray"], linestyle="--")
    axes[1].set(xlabel="loss on old texts (nats)", xlim=(0, 1.3 * highest))
    return axes


def batches_compared(
    batches: Mapping[str, Sequence[Number]],
) -> list[Axes]:
    """Draw which part of each row of a batch counts in the loss.

    Args:
        batches: for each title, from 0 to 1, where the targets of each row
            begin.

    Returns:
        One axes per batch; row i stands at height −i.
    """
    tall = max(map(len, batches.values()))
    axes = new_figure(0.1 * tall + 0.75, columns=len(batches))[1]
    for ax, (title, rows) in zip(axes, batches.items(), strict=True):
        for i, start in enumerate(rows):
            read = Rectangle((0, -i - 0.4), 1, 0.8, linewidth=0)
            read.set(facecolor=COLORS[ROLES["token"]], alpha=0.25)
            counts = Rectangle((start, -i - 0.4), 1 - start, 0.8, linewidth=0)
            counts.set(facecolor=COLORS[ROLES["loss"]], alpha=0.7)
            for part in (read, counts):
                ax.add_patch(part)
        ax.set(xlim=(-0.02, 1.02), ylim=(0.6 - tall, 1.0))
        ax.set_title(title, size=11)
        ax.axis("off")
    return axes


def updates_to_scale(
    matrices: Sequence[tuple[str, tuple[int, int], tuple[int, int]]],
    rank: int,
) -> Axes:
    """Draw matrices with their low-rank updates, everything to scale.

    Args:
        matrices: name, rows and columns, and the left upper corner of each.
        rank: of the updates.

    Returns:
        The axes, in entries of a matrix; B stands left of its matrix, and A
        above it.
    """
    ax = new_figure(4.3)[1][0]
    right = bottom = 0
    for name, (rows, columns), (x, y) in matrices:
        frozen = Rectangle((x, y), columns, rows, linewidth=0.8)
        frozen.set(facecolor=COLORS["gray"], alpha=0.25)
        b = Rectangle((x - 2 * rank, y), rank, rows, linewidth=0)
        a = Rectangle((x, y - 2 * rank), columns, rank, linewidth=0)
        for part in (a, b):
            part.set_facecolor(COLORS[ROLES["weight"]])
        for part in (frozen, a, b):
            ax.add_patch(part)
        text = f"{name}\n{rows} × {columns}"
        write(ax, x + columns / 2, y + rows / 2, text, size=11)  # fmt: skip
        right, bottom = max(right, x + columns), max(bottom, y + rows)
    note = f"to scale, rank {rank}\n$A$ above its matrix\n$B$ to its left"
    ax.text(0, bottom, note, va="bottom", size=11)
    edge = 3 * rank
    ax.set(xlim=(-edge, right + 2), ylim=(bottom + 2, -edge), aspect="equal")
    ax.axis("off")
    return ax
