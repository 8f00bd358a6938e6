"""Figures of an encoder: both directions, gaps, and what fills them."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from coursekit_classroom.figures.shapes import arrow, sheet, token_grid, write
from coursekit_classroom.figures.style import COLORS, ROLES, Number, new_figure


def _box(
    ax: Axes,
    x: Number,
    y: Number,
    text: str = "",
    role: str | None = None,
    strength: Number = 0.4,
    height: Number = 0.92,
) -> None:
    """A box around (x, y); dotted and empty without a role."""
    corner = (x - 0.46, y - height / 2)
    if role is not None:
        box = Rectangle(corner, 0.92, height, edgecolor="none")
        box.set(facecolor=COLORS[ROLES[role]], alpha=strength)
        ax.add_patch(box)
    frame = Rectangle(corner, 0.92, height, fill=False, linewidth=1)
    frame.set(edgecolor=COLORS["gray"], linestyle=":" if role is None else "-")
    ax.add_patch(frame)
    write(ax, x, y, text)


def _outline(ax: Axes, x: Number, y: Number, width: Number, role: str) -> None:
    """A thick frame, ``width`` boxes wide."""
    frame = Rectangle((x - 0.49, y - 0.49), width - 0.02, 0.98, fill=False)
    frame.set(edgecolor=COLORS[ROLES[role]], linewidth=2.5, zorder=3)
    ax.add_patch(frame)


def both_directions(
    weights: Mapping[str, Tensor], tokens: Sequence[str], row: int
) -> list[Axes]:
    """Draw weights of attention under several masks.

    Args:
        weights: title and (T, T) weights of each panel, queries are rows;
            an exact 0 is drawn as hidden.
        tokens: T names.
        row: of the query that the text speaks of; it is outlined.

    Returns:
        One axes per panel.
    """
    axes = new_figure(0.5 * len(tokens) + 0.85, columns=len(weights))[1]
    for ax, (title, grid) in zip(axes, weights.items(), strict=True):
        for i, numbers in enumerate(grid.tolist()):
            for j, number in enumerate(numbers):
                hidden = number == 0
                text = "" if hidden else f"{number:.2f}"
                role = None if hidden else "weight"
                _box(ax, j, i, text, role, 0.06 + 0.5 * number)
        token_grid(ax, title, tokens)
        _outline(ax, 0, row, len(tokens), "query")
    axes[0].set_ylabel("query (row)")
    return axes


def reach(
    grids: Mapping[str, Tensor],
    tokens: Sequence[str],
    target: int = 1,
    rows: str = "output",
) -> list[Axes]:
    """Draw which inputs each output depends on, and where its answer stands.

    Args:
        grids: title and (T, T) booleans of each panel: does output i move
            with the token at j?
        tokens: T names.
        target: how many positions to the right the answer stands; its cell
            is outlined, and crossed if it is seen.
        rows: what a row is; a query, if the grids are masks.

    Returns:
        One axes per panel.
    """
    size = len(tokens)
    axes = new_figure(0.36 * size + 0.85, columns=len(grids))[1]
    for ax, (title, grid) in zip(axes, grids.items(), strict=True):
        for i, row in enumerate(grid.tolist()):
            for j, visible in enumerate(row):
                answer = j == i + target
                text = "×" if visible and answer else ""
                _box(ax, j, i, text, "key" if visible else None)
                if answer:
                    _outline(ax, j, i, 1, "loss")
        token_grid(ax, title, tokens)
        ax.tick_params(labelsize=11)
        ax.set_aspect("equal")
    for ax in axes[1:]:
        ax.set_yticklabels([])
    axes[0].set_ylabel(f"{rows} (row)")
    return axes


def objectives(words: Sequence[str], gap: int) -> list[Axes]:
    """Draw two objectives: predict the next word, or the hidden one.

    Args:
        words: the sentence, and the word after it.
        gap: position of the hidden word.

    Returns:
        The two axes, one above the other; input i stands at (i, 0), its
        target at (i, −1.6).
    """
    axes = new_figure(4.4, rows=2)[1]
    inputs, size = list(words[:-1]), len(words) - 1
    for ax, masked in zip(axes, (False, True), strict=True):
        for x, word in enumerate(inputs):
            is_gap = masked and x == gap
            _box(
                ax,
                x,
                0,
                "[MASK]" if is_gap else word,
                None if is_gap else "token",
                0.3,
                0.72,
            )
            target = word if masked else words[x + 1]
            if is_gap or not masked:
                arrow(ax, (x, -0.4), (x, -1.2), "-")
                _box(ax, x, -1.6, target, "loss", 0.3, 0.72)
            if not masked and x + 1 < size:
                arrow(ax, (x + 0.36, -1.22), (x + 0.8, -0.4), ":")
        name = "hidden tokens" if masked else "next token"
        ax.set_title(f"Objective: the {name}", weight="bold")
        for y, text in ((0, "input"), (-1.6, "target")):
            ax.text(-0.65, y, text, ha="right", va="center")
        sheet(ax, (-1.5, size - 0.4), (-2.05, 0.45))
    return axes


def seen_at_gap(
    words: Sequence[str], gap: int, models: Mapping[str, bool]
) -> list[Axes]:
    """Draw what models see of a sentence, one word of which is hidden.

    Args:
        words: the sentence; it is drawn in two lines.
        gap: position of the hidden word.
        models: name of each model, and whether it sees what stands on the
            right of the gap.

    Returns:
        The axes, one above the other; word i of the first line stands at
        (i, 0), the second line at height −1.
    """
    axes = new_figure(1.3 * len(models), rows=len(models))[1]
    size = (len(words) + 1) // 2
    for ax, (name, right) in zip(axes, models.items(), strict=True):
        for i, word in enumerate(words):
            x, y = i % size, -(i // size)
            visible = i < gap or (right and i > gap)
            role = "key" if visible else None
            _box(ax, x, y, "?" if i == gap else word, role, height=0.76)
            if i == gap:
                _outline(ax, x, y, 1, "loss")
            elif not visible:
                ax.texts[-1].set_color(COLORS["gray"])
        ax.set_title(name, weight="bold")
        sheet(ax, (-0.55, size - 0.45), (-1.55, 0.5))
    return axes


def fillings(
    guesses: Mapping[str, Mapping[str, Mapping[str, Number]]],
) -> list[Axes]:
    """Draw with which probability models fill the gaps of sentences.

    Args:
        guesses: for each sentence, for each model, the probability of each
            word that is to be shown.

    Returns:
        The axes; each sentence is a row, and each model a column.
    """
    columns = len(next(iter(guesses.values())))
    axes = new_figure(1.4 * len(guesses), columns, len(guesses))[1]
    panels = iter(axes)
    for r, (sentence, models) in enumerate(guesses.items()):
        for c, (model, words) in enumerate(models.items()):
            color = ("blue", "orange")[c % 2]
            ax = next(panels)
            for y, p in enumerate(words.values()):
                bar = Rectangle((0, y - 0.36), p, 0.72, edgecolor="none")
                bar.set(facecolor=COLORS[color], alpha=0.5)
                ax.add_patch(bar)
                ax.text(p + 0.03, y, f"{p:.2f}", va="center")
            ax.set(xlim=(0, 1.25), ylim=(len(words) - 0.4, -0.6), xticks=[])
            names = list(words) if c == 0 else []
            ax.set_yticks(range(len(names)), names)
            ax.tick_params(length=0)
            ax.spines["bottom"].set_visible(False)
            if r == 0:
                ax.set_title(model, loc="center", weight="bold", pad=24)
            if c == 0:
                ax.annotate(
                    sentence, (0, 1.04), xycoords="axes fraction", va="bottom"
                )
    return axes


def gap_losses(
    gaps: Sequence[str],
    losses: Mapping[str, Sequence[Sequence[Number]]],
    floors: Sequence[Sequence[Number]],
) -> Axes:
    """Draw losses at several gaps, with the lowest that are possible.

    Args:
        gaps: names of the gaps.
        losses: for each of two models, for each gap, one loss per seed.
        floors: for each model, for each gap, the lowest loss possible.

    Returns:
        The axes; gap i stands at x = i.
    """
    ax = new_figure(3.6)[1][0]
    looks = ((-0.21, "blue", "77"), (0.21, "orange", "00"))
    for (name, runs), floor, (shift, color, opacity) in zip(
        losses.items(), floors, looks, strict=True
    ):
        for i, values in enumerate(runs):
            mean = sum(values) / len(values)
            ax.bar(
                i + shift,
                mean,
                0.38,
                linewidth=2,
                color=COLORS[color] + opacity,
                edgecolor=COLORS[color],
                label=name if i == 0 else None,
            )
            ax.plot(
                [i + shift] * len(values),
                values,
                marker="o",
                linestyle="",
                markersize=4,
                color=COLORS["black"],
            )
            ax.plot(
                [i + shift - 0.19, i + shift + 0.19],
                [floor[i]] * 2,
                color=COLORS["black"],
                linewidth=2.5,
                linestyle="-",
            )
    ax.set_xticks(range(len(gaps)), gaps)
    ax.tick_params(axis="x", length=0)
    ax.set_ylabel("loss at the gap (nats)")
    ax.legend(ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))
    return ax
