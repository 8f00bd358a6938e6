"""Figures of chapter 22: drawn answers, and policies with a KL penalty."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from coursekit_classroom.figures.shapes import decimal, sheet, write
from coursekit_classroom.figures.style import COLORS, ROLES, Number, new_figure


def drawn_answers(
    columns: Mapping[str, Sequence[tuple[str, Number]]],
) -> Axes:
    """Draw answers to one prompt and their rewards, as training goes on.

    Args:
        columns: by title, from left to right, G answers with what each
            earned; a long answer is cut off.

    Returns:
        The axes; answer i stands at height −i.
    """
    size = max(map(len, columns.values()))
    longest = 46 // len(columns)  # characters that fit into a box
    ax = new_figure(0.3 * size + 0.75)[1][0]
    for x, (title, drawn) in enumerate(columns.items()):
        for i, (answer, reward) in enumerate(drawn):
            box = Rectangle((x, -i - 0.4), 0.86, 0.8)
            color = COLORS["blue" if reward else ROLES["token"]]
            box.set(facecolor=color, alpha=0.5 if reward else 0.2)
            ax.add_patch(box)
            is_long = len(answer) > longest
            label = answer[: longest - 1] + "…" if is_long else answer
            weight = "bold" if reward else "normal"
            ax.text(x + 0.05, -i, label, va="center", size=11, weight=weight)
            ax.text(x + 0.81, -i, f"{reward:g}", ha="right", va="center",
                    size=11, weight=weight)  # fmt: skip
        mean = sum(reward for _, reward in drawn) / len(drawn)
        ax.text(x, 1, title, va="center", size=11, weight="bold")
        ax.text(x + 0.81, -size, f"mean {mean:.3g}", ha="right", va="center",
                size=11)  # fmt: skip
    sheet(ax, (-0.02, len(columns) - 0.1), (-size - 0.5, 1.5))
    return ax


def group_of_answers(
    answers: Sequence[str],
    rewards: Sequence[Number],
    advantages: Sequence[Number],
) -> Axes:
    """Draw answers to one prompt, what each earned, and its advantage.

    Args:
        answers: G texts.
        rewards: G numbers.
        advantages: G numbers, drawn as bars from a common 0.

    Returns:
        The axes; answer i stands at height −i.
    """
    ax = new_figure(0.42 * len(answers) + 0.7)[1][0]
    widest = max(map(abs, advantages))
    for i, row in enumerate(zip(answers, rewards, advantages, strict=True)):
        answer, reward, gain = row
        box = Rectangle((0, -i - 0.36), 3.4, 0.72)
        box.set(facecolor=COLORS[ROLES["token"]], alpha=0.35)
        ax.add_patch(box)
        ax.text(0.15, -i, answer, va="center", size=11)
        write(ax, 4.3, -i, f"{reward:g}", size=11)
        color = COLORS["blue" if gain > 0 else "orange"]
        ax.barh(-i, gain / widest * 1.6, 0.5, left=7.2, color=color)
        ax.text(9.1, -i, decimal(gain, sign="+"), va="center", size=11)
    for x, title in ((0.15, "answer"), (3.9, "reward"), (6.6, "advantage")):
        ax.text(x, 0.75, title, va="center", size=11, weight="bold")
    bottom = -len(answers) + 0.4
    ax.plot([7.2, 7.2], [bottom, 0.45], "-", color=COLORS["gray"], linewidth=1)
    sheet(ax, (-0.1, 10), (bottom, 1.1))
    return ax


def policies(
    names: Sequence[str], rows: Mapping[str, Sequence[Number]]
) -> list[Axes]:
    """Draw distributions over the same answers, one below the other.

    Args:
        names: N answers.
        rows: for each title, N probabilities; none for a question mark.

    Returns:
        The axes, from top to bottom; all heights run from 0 to 1.
    """
    axes = new_figure(1.25 * len(rows) + 0.5, 1, len(rows))[1]
    for ax, (title, values) in zip(axes, rows.items(), strict=True):
        ax.bar(range(len(values)), values, 0.75, color=COLORS["blue"])
        ax.set(ylim=(0, 1), yticks=[0, 1], xticks=[])
        ax.set_xlim(-0.6, len(names) - 0.4)
        if not values:
            write(ax, (len(names) - 1) / 2, 0.5, "?", size=20)  # fmt: skip
        ax.text(
            0.99,
            0.92,
            title,
            ha="right",
            va="top",
            size=11,
            transform=ax.transAxes,
        )
    axes[-1].set_xticks(range(len(names)), list(names))
    return list(axes)
