"""Figures of rewards: the ways to use them, and programs that give them."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from coursekit_classroom.figures.shapes import arrow, box, sheet, write
from coursekit_classroom.figures.style import COLORS, ROLES, Number, new_figure


def preference_curve(
    sigmoid: tuple[Sequence[Number], Sequence[Number]],
    points: Sequence[tuple[Number, Number]],
) -> Axes:
    """Draw how often the first of two answers is preferred.

    Args:
        sigmoid: differences of rewards, and the probabilities.
        points: those to be marked and named.

    Returns:
        The axes.
    """
    ax = new_figure(2.9)[1][0]
    ax.plot(*sigmoid, "-", color=COLORS["blue"])
    for x, y in points:
        ax.plot(x, y, "o", color=COLORS["orange"], markersize=8)
        ax.annotate(f"{y:.2f}", (x, y), (8, -12), textcoords="offset points")
    ax.set(xlabel="first reward minus second", ylim=(0, 1), yticks=[0, 0.5, 1])
    ax.set_title("p(first is preferred)", pad=10)
    return ax


def training_chains(
    chains: Mapping[str, Sequence[tuple[str, str]]],
) -> Axes:
    """Draw what is made of what, from left to right, a chain in a row.

    Args:
        chains: for each title the boxes, each with its text and its role.

    Returns:
        The axes; a chain's boxes stand one below its title.
    """
    ax = new_figure(1.25 * len(chains))[1][0]
    longest = max(map(len, chains.values()))
    for i, (title, boxes) in enumerate(chains.items()):
        y = -2.3 * i
        ax.text(0, y, title, va="center", weight="bold")
        for x, (text, role) in enumerate(boxes):
            box(ax, x, y - 1.6, 0.78, 1.15, role)
            write(ax, x + 0.39, y - 1.02, text, size=11)
            if x:
                arrow(ax, (x - 0.21, y - 1.02), (x - 0.01, y - 1.02), "-")
    sheet(ax, (-0.02, longest - 0.2), (0.5 - 2.3 * len(chains), 0.4))
    return ax


def checked_answers(
    answers: Sequence[str], programs: Mapping[str, Sequence[Number]]
) -> Axes:
    """Draw what programs give for the same answers.

    Args:
        answers: G texts.
        programs: for each name, G rewards of 0 or 1.

    Returns:
        The axes; answer i stands at height −i.
    """
    ax = new_figure(0.36 * len(answers) + 0.75)[1][0]
    for i, answer in enumerate(answers):
        row = Rectangle((0, -i - 0.36), 4.9, 0.72)
        row.set(facecolor=COLORS[ROLES["token"]], alpha=0.3)
        ax.add_patch(row)
        ax.text(0.12, -i, answer, va="center", size=11)
    for j, (name, rewards) in enumerate(programs.items()):
        x = 6.1 + 2.3 * j
        write(ax, x, 1, name, weight="bold", size=11)
        for i, reward in enumerate(rewards):
            mark = Rectangle((x - 0.95, -i - 0.36), 1.9, 0.72)
            mark.set(facecolor=COLORS["blue"], alpha=0.5 if reward else 0.0)
            ax.add_patch(mark)
            write(
                ax, x, -i, f"{reward:g}", weight="bold" if reward else "normal"
            )
    ax.text(0.12, 1, "answer", va="center", weight="bold", size=11)
    sheet(ax, (-0.1, 9.5), (0.5 - len(answers), 1.5))
    return ax
