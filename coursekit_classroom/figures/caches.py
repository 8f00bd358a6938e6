"""Figures of a cache: what it keeps, what it saves; and of a beam search."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from coursekit_classroom.figures.shapes import sheet, write
from coursekit_classroom.figures.style import COLORS, ROLES, Number, new_figure


def key_changes(
    tokens: Sequence[str], rows: Mapping[str, Sequence[Number | None]]
) -> Axes:
    """Draw by how much the key of each token has changed.

    Args:
        tokens: T names.
        rows: a label, and T changes; ``None`` where the key is new.

    Returns:
        The axes; row i stands at height −i, token j at x = j.
    """
    ax = new_figure(0.5 * len(rows) + 0.75)[1][0]
    sheet(ax, (-2.3, len(tokens) - 0.4), (0.4 - len(rows), 1.2))
    for j, token in enumerate(tokens):
        write(ax, j, 0.65, token, size=11)
    for i, (label, changes) in enumerate(rows.items()):
        ax.text(-0.65, -i, label, ha="right", va="center")
        for j, change in enumerate(changes):
            box = Rectangle((j - 0.46, -i - 0.4), 0.92, 0.8)
            alpha = 0.15 if change is not None and change < 1e-9 else 0.6
            box.set(facecolor=COLORS[ROLES["key"]], alpha=alpha)
            ax.add_patch(box)
            text = "new" if change is None else f"{change:.2f}"
            text = "0" if change is not None and change < 1e-9 else text
            write(ax, j, -i, text, size=11)
    return ax


def cache_steps(lengths: Sequence[int]) -> list[Axes]:
    """Draw what is computed for texts that grow, without and with a cache.

    Args:
        lengths: of the text at each step.

    Returns:
        The axes, those without a cache first; a row is a query, a column a
        key, and the two strips below are keys and values.
    """
    longest = max(lengths)
    ratios = (longest + 2.7, 3.7)
    figure, axes = new_figure(4.2, len(lengths), 2, height_ratios=ratios)
    for number, ax in enumerate(axes):
        n, cached = lengths[number % len(lengths)], number >= len(lengths)
        cells: list[tuple[int, Number, str]]
        cells = [(j, i, "weight") for i in range(n) for j in range(i + 1)]
        cells += [
            (j, n + 0.4 + row, role)
            for row, role in enumerate(("key", "value"))
            for j in range(n)
        ]
        top = n - 1 if cached else 0  # the only row of weights
        for j, y, role in cells:
            is_cached = cached and (
                y < n - 1 if role == "weight" else j < n - 1
            )
            color = COLORS[ROLES[role]]
            box = Rectangle((j, y - top), 0.86, 0.86, edgecolor=color)
            box.set(facecolor="none" if is_cached else color, alpha=0.75)
            if not (is_cached and role == "weight"):
                ax.add_patch(box)
        ax.set(xlim=(-0.2, longest + 0.1), ylim=(ratios[cached] - 0.2, -0.2))
        ax.set(aspect="equal")
        ax.set_xticks([])
        names = ["weights", "keys", "values"]
        if number % len(lengths):
            names = [""] * 3
        heights = [(top + n) / 2 - 0.07, n + 0.83, n + 1.83]
        ax.set_yticks([y - top for y in heights], names)
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        if not cached:
            ax.set_title(f"{n} tokens")
    gray = COLORS["gray"]
    figure.legend(
        handles=[
            Patch(facecolor=gray, edgecolor=gray, label="computed now"),
            Patch(facecolor="none", edgecolor=gray, label="from the cache"),
        ],
        loc="outside lower center",
        ncols=2,
    )
    axes[0].set_ylabel("without a cache")
    axes[len(lengths)].set_ylabel("with a cache")
    return axes


def times_less(
    sizes: Sequence[int],
    counted: Sequence[Number],
    measured: Sequence[Mapping[str, Number]],
) -> Axes:
    """Draw how many times less a cache needs, in FLOPs and in seconds.

    Args:
        sizes: tokens in each text.
        counted: FLOPs without a cache by FLOPs with one.
        measured: for each text the ``median``, ``lowest`` and ``highest``
            of seconds without by seconds with a cache.

    Returns:
        The axes, logarithmic both ways.
    """
    ax = new_figure(3.3)[1][0]
    middle = [run["median"] for run in measured]
    ends = [
        [abs(run[end] - run["median"]) for run in measured]
        for end in ("lowest", "highest")
    ]
    gray, blue = COLORS["gray"], COLORS["blue"]
    ax.plot(sizes, counted, "s--", color=gray)
    ax.errorbar(sizes, middle, ends, fmt="o-", color=blue, capsize=4)
    for name, heights in (("FLOPs", counted), ("seconds", middle)):
        ax.annotate(
            f"{name}: {heights[-1]:.0f} times",
            (sizes[-1], heights[-1]),
            (-12, 6),
            textcoords="offset points",
            ha="right",
        )
    ax.axhline(1, color=COLORS["black"], linewidth=0.8, linestyle="-")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(sizes, [f"{n:,}" for n in sizes])
    ax.set_yticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
    ax.set_xlabel("tokens generated")
    ax.set_title("times less with a cache")
    return ax


def beam_tree(tree: Mapping[str, Mapping[str, Number]], root: str) -> Axes:
    """Draw the texts of two steps as a tree, thicker where more probable.

    Args:
        tree: for ``""`` and for each first word, the words that may follow
            with their probabilities.
        root: what to write at the root.

    Returns:
        The axes; the root at x = 0, words at 3, second words at 6.
    """
    leaves = [(one, two) for one in tree[""] for two in tree[one]]
    places: dict[tuple[str, ...], tuple[Number, Number]] = {
        leaf: (6, -float(i)) for i, leaf in enumerate(leaves)
    }
    for one in tree[""]:
        heights = [places[one, two][1] for two in tree[one]]
        places[one,] = (3, sum(heights) / len(heights))
    places[()] = (0, sum(places[one,][1] for one in tree[""]) / len(tree[""]))
    ax = new_figure(0.55 * len(leaves) + 0.3)[1][0]
    sheet(ax, (-0.7, 6.9), (0.5 - len(leaves), 0.5))
    for text, (x, y) in places.items():
        name = text[-1] if text else root
        ax.text(x + 0.08, y, name, ha="left" if text else "right", va="center")
        if text:
            left, low = places[text[:-1]]
            left += 0.75 if len(text) > 1 else 0.2
            p = tree["" if len(text) == 1 else text[0]][name]
            ax.plot(
                [left, x - 0.1],
                [low, y],
                color=COLORS["blue"],
                linewidth=1 + 6 * p,
                linestyle="-",
                alpha=0.5,
            )
            ax.text(
                0.35 * left + 0.65 * x,
                0.35 * low + 0.65 * y + 0.08,
                f"{p:g}",
                ha="center",
                va="bottom",
            )
    return ax


def padded_prompts(lengths: Sequence[int]) -> Axes:
    """Draw the positions of a batch of prompts, padded on the left.

    Args:
        lengths: tokens of each prompt.

    Returns:
        The axes; row i stands at height −i, column j at x = j.
    """
    longest = max(lengths)
    ax = new_figure(0.46 * len(lengths) + 0.1)[1][0]
    sheet(ax, (-2.2, longest - 0.4), (0.45 - len(lengths), 0.5))
    for i, length in enumerate(lengths):
        ax.text(-0.7, -i, f"prompt {i + 1}", ha="right", va="center")
        for j in range(longest):
            position = j - (longest - length)
            box = Rectangle((j - 0.46, -i - 0.4), 0.92, 0.8)
            if position < 0:
                box.set(fill=False, edgecolor=COLORS["gray"], linestyle=":")
            else:
                box.set(facecolor=COLORS["gray"], alpha=0.25)
                write(ax, j, -i, str(position))
            ax.add_patch(box)
    return ax


def kept_vectors(tokens: Sequence[str], n_blocks: int) -> Axes:
    """Draw what a cache keeps: a key and a value per token and block.

    Args:
        tokens: T names.
        n_blocks: rows, the first block at the bottom.

    Returns:
        The axes; token j stands at x = j, block b at height b.
    """
    ax = new_figure(0.6 * n_blocks + 0.6)[1][0]
    for b in range(n_blocks):
        ax.text(-0.65, b, f"block {b + 1}", ha="right", va="center")
        for j in range(len(tokens)):
            for y, role, name in ((0.2, "key", "K"), (-0.2, "value", "V")):
                box = Rectangle((j - 0.44, b + y - 0.18), 0.88, 0.36)
                box.set(facecolor=COLORS[ROLES[role]], alpha=0.4)
                ax.add_patch(box)
                write(ax, j, b + y, name, size=11)
    for j, token in enumerate(tokens):
        write(ax, j, -0.75, token)
    sheet(ax, (-1.7, len(tokens) - 0.4), (-1.05, n_blocks - 0.5))
    return ax
