"""Figures of smaller and faster models: rounding, acceptance, drafts."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from coursekit_classroom.figures.shapes import sheet, write
from coursekit_classroom.figures.style import COLORS, ROLES, Number, new_figure

WEIGHT, GRAY = COLORS[ROLES["weight"]], COLORS["gray"]


class Rounding(NamedTuple):
    """A row of weights, and what is left of it."""

    title: str
    weights: Sequence[Number]
    rounded: Sequence[Number]
    steps: Sequence[Number]
    """Of each weight: the distance of its ticks."""


def rounding(rows: Sequence[Rounding], limit: Number) -> list[Axes]:
    """Draw weights, the values that they can take, and the nearest of these.

    Args:
        rows: one for each panel, from top to bottom.
        limit: the axis runs from −limit to limit; a weight beyond it gets its
            number instead of a dot.

    Returns:
        The axes; weight j stands at x = j, and has its ticks around it.
    """
    axes = new_figure(2.3 * len(rows), 1, len(rows))[1]
    for ax, row in zip(axes, rows, strict=True):
        entries = zip(row.weights, row.rounded, row.steps, strict=True)
        for j, (weight, nearest, step) in enumerate(entries):
            if abs(weight) > limit:
                ax.text(j, limit * 0.8, f"{weight:g} ↑", ha="center")
                continue
            count = min(int(limit / step), 40)
            ticks = [n * step for n in range(-count, count + 1)]
            ax.hlines(ticks, j - 0.3, j + 0.3, color=GRAY, linewidth=0.8)
            ax.plot(j - 0.12, weight, "o", color=WEIGHT, fillstyle="none")
            ax.plot(j + 0.12, nearest, "s", color=COLORS["orange"])
            ax.plot(
                [j - 0.12, j + 0.12],
                [weight, nearest],
                color=COLORS["black"],
                linewidth=1,
                linestyle="-",
            )
        ax.set(title=row.title, ylim=(-limit * 1.05, limit * 1.05))
        ax.set(xlim=(-0.6, len(row.weights) - 0.4))
        ax.set_xticks([])
        ax.spines["bottom"].set_visible(False)
    axes[0].plot([], [], "o", color=WEIGHT, fillstyle="none", label="weight")
    axes[0].plot([], [], "s", color=COLORS["orange"], label="rounded")
    axes[0].legend(
        ncols=2, loc="lower right", bbox_to_anchor=(1, 0.98), fontsize=11
    )
    return axes


def accepted_mass(
    tokens: Sequence[str], p: Sequence[Number], q: Sequence[Number]
) -> list[Axes]:
    """Draw what of a draft's distribution is accepted, and what is missing.

    Args:
        tokens: V names.
        p: V probabilities of the target.
        q: V of the draft.

    Returns:
        Two axes, with q cut at p, with p made of what was kept and the rest.
    """
    left, right = new_figure(2.9, 2)[1]
    for i, (wanted, offered) in enumerate(zip(p, q, strict=True)):
        both = min(wanted, offered)
        for ax, top in ((left, offered), (right, wanted)):
            ax.bar(i, both, 0.7, color=WEIGHT, alpha=0.6)
            write(ax, i, both / 2, f"{both:g}")
            if top > both:
                ax.bar(
                    i,
                    top - both,
                    0.7,
                    bottom=both,
                    facecolor="none",
                    edgecolor=COLORS["red" if ax is left else "orange"],
                    hatch="xx" if ax is left else "//",
                )
                ax.text(
                    i,
                    top + 0.02,
                    f"{top - both:.2g}",
                    ha="center",
                    va="bottom",
                )
    for ax, title in (
        (left, "draft $q$: hatched is rejected"),
        (right, "target $p$: hatched is missing"),
    ):
        ax.set(title=title, ylim=(0, max(*p, *q) + 0.12))
        ax.set_xticks(range(len(tokens)), list(tokens))
        ax.set_yticks([])
        ax.spines["left"].set_visible(False)
    return [left, right]


def drafted_rounds(
    rounds: Sequence[tuple[Sequence[str], int, str]],
) -> Axes:
    """Draw runs of speculative decoding: accepted, rejected, the target's.

    Args:
        rounds: for each run the drafted tokens, how many of them were
            accepted, and the token that the target added.

    Returns:
        The axes; run i stands at height −i.
    """
    ax = new_figure(0.62 * len(rounds) + 0.35)[1][0]
    widest = 0.0
    for i, (drafted, n_accepted, own) in enumerate(rounds):
        cells = [
            (word, n < n_accepted, False) for n, word in enumerate(drafted)
        ]
        cells.insert(n_accepted, (own, True, True))
        x = 0.0
        ax.text(-0.3, -i, f"run {i + 1}", ha="right", va="center")
        for word, is_kept, is_own in cells:
            width = 0.17 * len(word) + 0.3
            color = COLORS["orange"] if is_own else WEIGHT
            box = Rectangle((x, -i - 0.33), width, 0.66)
            box.set(facecolor=color if is_kept else "none", alpha=0.35)
            box.set(edgecolor=color if is_kept else GRAY)
            ax.add_patch(box)
            write(
                ax,
                x + width / 2,
                -i,
                word,
                size=11,
                color=COLORS["black"] if is_kept else GRAY,
                weight="bold" if is_own else "normal",
            )
            if not is_kept:
                ax.plot(
                    [x + 0.08, x + width - 0.08],
                    [-i, -i],
                    color=COLORS["red"],
                    linewidth=1.2,
                    linestyle="-",
                )
            x += width + 0.12
        widest = max(widest, x)
    sheet(ax, (-1.2, widest), (-len(rounds) + 0.4, 0.6))
    return ax


def slot_timeline(
    panels: Mapping[str, Sequence[Sequence[tuple[Number, Number]]]],
    end: Number,
) -> list[Axes]:
    """Draw which request each row of a batch serves, step by step.

    Args:
        panels: by title, for each row its requests: first step, and the step
            after the last.
        end: of the time axis.

    Returns:
        The axes; row i stands at height −i.
    """
    height = max(len(rows) for rows in panels.values())
    size = 0.25 * height * len(panels) + 1.5
    axes = new_figure(size, 1, len(panels))[1]
    for ax, (title, rows) in zip(axes, panels.items(), strict=True):
        for i, requests in enumerate(rows):
            for n, (start, stop) in enumerate(requests):
                box = Rectangle((start, -i - 0.4), stop - start - 0.3, 0.8)
                box.set(facecolor=WEIGHT, alpha=0.35 + 0.3 * (n % 2))
                ax.add_patch(box)
        ax.set(title=title, xlim=(0, end), ylim=(0.6 - height, 0.6))
        ax.set_yticks([])
        ax.spines["left"].set_visible(False)
    axes[-1].set_xlabel("steps of the model")
    return axes


def cache_pages(texts: Sequence[int], reserved: int, page: int) -> list[Axes]:
    """Draw the memory of a cache, reserved in full and cut into pages.

    Args:
        texts: positions that each text fills.
        reserved: positions of the longest possible text.
        page: positions of a page.

    Returns:
        The two axes; text i stands at height −i.
    """
    axes = new_figure(0.24 * len(texts) + 0.9, columns=2)[1]
    names = f"reserved: {reserved} each", f"pages of {page}"
    for ax, name, step in zip(axes, names, (reserved, page), strict=True):
        for i, filled in enumerate(texts):
            used = Rectangle((0, -i - 0.38), filled, 0.76)
            used.set(facecolor=WEIGHT, alpha=0.5)
            ax.add_patch(used)
            for start in range(0, filled, step):
                box = Rectangle((start, -i - 0.38), step, 0.76, fill=False)
                box.set_edgecolor(COLORS["gray"])
                ax.add_patch(box)
        ax.set(title=name, xlim=(-1, reserved + 1), yticks=[])
        ax.set(ylim=(0.6 - len(texts), 0.6), xlabel="positions")
        ax.spines["left"].set_visible(False)
    return axes
