"""Figures of windows, of experts, and of rounded weights."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from coursekit_classroom.figures.shapes import sheet, write
from coursekit_classroom.figures.style import COLORS, ROLES, new_figure

INK, GRAY = COLORS["black"], COLORS["gray"]


def window_reach(window: int, n_tokens: int, n_blocks: int) -> Axes:
    """Draw what the last position reaches through several blocks.

    Args:
        window: keys that a query sees, its own included.
        n_tokens: of the text.
        n_blocks: of the model.

    Returns:
        The axes; tokens stand at height 0, block b at height b.
    """
    ax = new_figure(0.85 * n_blocks + 0.9)[1][0]
    reached = {n_tokens - 1}
    for block in range(n_blocks, -1, -1):
        below = {
            j
            for i in reached
            for j in range(max(0, i - window + 1), i + 1)
            if block
        }
        for i in range(n_tokens):
            inside = i in reached
            color = COLORS[ROLES["weight"]] if inside else GRAY
            face = color if inside else "none"
            ax.plot(i, block, "o", color=color, ms=11, mfc=face, zorder=3)
            for j in range(max(0, i - window + 1), i + 1) if block else ():
                ax.plot(
                    [i, j],
                    [block, block - 1],
                    color=color,
                    linestyle="-",
                    linewidth=2 if inside else 0.7,
                    zorder=2 if inside else 1,
                )
        name = f"block {block}" if block else "tokens"
        ax.text(-0.7, block, name, ha="right", va="center", size=12)
        reached = below
    sheet(ax, (-2.6, n_tokens - 0.4), (-0.4, n_blocks + 0.4))
    return ax


def shares(parts: Tensor, names: Sequence[str], ax: Axes) -> Axes:
    """Draw rows of fractions as bars that are cut in proportion.

    Args:
        parts: (R, N) fractions; each row sums to 1.
        names: of the rows, from the top down.
        ax: where to draw.

    Returns:
        The axes; row r stands at height −r.
    """
    for row, fractions in enumerate(parts.tolist()):
        left = 0.0
        for part in fractions:
            box = Rectangle((left, -row - 0.35), part, 0.7, linewidth=1.2)
            box.set(facecolor="none", edgecolor=INK, zorder=2)
            ax.add_patch(box)
            tint = Rectangle((left, -row - 0.35), part, 0.7, linewidth=0)
            tint.set(facecolor=COLORS[ROLES["ffn"]], alpha=0.3)
            ax.add_patch(tint)
            if part > 0.12:
                at = left + part / 2
                text = f"{100 * part:.0f}"
                write(ax, at, -row, text, size=11)
            left += part
    ax.set_yticks([-r for r in range(len(names))], list(names))
    ax.set(xlim=(-0.01, 1.01), ylim=(-len(names) + 0.4, 0.6), xticks=[])
    ax.set_xlabel("fraction of the work (%)")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return ax


def rounded_weights(weights: Tensor, rounded: Tensor) -> Axes:
    """Draw weights as dots, and the levels to which they are rounded.

    Args:
        weights: (N,) as they were.
        rounded: (N,) the nearest level of each.

    Returns:
        The axes.
    """
    ax = new_figure(2.6)[1][0]
    levels = sorted({round(x, 6) for x in rounded.tolist()})
    low, high = levels[0], levels[-1]
    for i in range(16):
        level = low + (high - low) * i / 15
        ax.axhline(level, color=GRAY, linewidth=0.7, linestyle="-", zorder=0)
    x = range(1, len(weights) + 1)
    ends = weights.tolist(), rounded.tolist()
    ax.vlines(x, *ends, color=INK, linewidth=1.4)
    blue, orange = COLORS[ROLES["weight"]], COLORS["orange"]
    ax.plot(x, ends[0], "o", color=blue, ms=5, label="weight")
    ax.plot(x, ends[1], "s", color=orange, ms=5, mfc="none", label="stored")
    ax.set(xlabel="weights of a block", ylabel="value")
    ax.spines[:].set_visible(False)
    ax.legend(ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))
    return ax


def expert_routes(weights: Tensor, tokens: Sequence[str]) -> Axes:
    """Draw which experts each token is sent to, and with which weights.

    Args:
        weights: (N, E), 0 where a token does not go.
        tokens: N names.

    Returns:
        The axes; token n stands at height −n, expert e at x = e.
    """
    n, experts = weights.shape
    ax = new_figure(0.38 * n + 0.6)[1][0]
    for i, row in enumerate(weights.tolist()):
        ax.text(-0.65, -i, tokens[i], ha="right", va="center")
        for e, weight in enumerate(row):
            box = Rectangle((e - 0.46, -i - 0.4), 0.92, 0.8)
            if weight:
                box.set(facecolor=COLORS[ROLES["ffn"]])
                box.set_alpha(0.1 + 0.45 * weight)
                text = f"{weight:.2f}"
                write(ax, e, -i, text)
            else:
                box.set(fill=False, edgecolor=GRAY, linestyle=":")
            ax.add_patch(box)
    for e in range(experts):
        write(ax, e, 0.75, f"expert {e}", size=11)
    sheet(ax, (-1.9, experts - 0.4), (0.45 - n, 1.1))
    return ax


def paired_entries(order: Sequence[int]) -> Axes:
    """Draw a head's entries, paired by halves and as neighbors.

    Args:
        order: which entry of the first row each of the second was.

    Returns:
        The axes; entry i stands at x = i, a pair has one color and letter.
    """
    ax = new_figure(1.9)[1][0]
    half = len(order) // 2
    colors = "blue", "orange", "green", "yellow", "sky", "red"
    for y, row in ((0, range(len(order))), (-2, order)):
        for x, entry in enumerate(row):
            pair = entry % half
            box = Rectangle((x - 0.42, y - 0.36), 0.84, 0.72)
            box.set(facecolor=COLORS[colors[pair % len(colors)]], alpha=0.4)
            ax.add_patch(box)
            text = f"{entry} {chr(97 + pair)}"
            write(ax, x, y, text)
    for x, entry in enumerate(order):
        ax.plot([entry, x], [-0.4, -1.6], "-", color=GRAY, linewidth=1)
    for y, name in ((0, "halves"), (-2, "neighbors")):
        ax.text(-0.6, y, name, ha="right", va="center")
    sheet(ax, (-2.1, len(order) - 0.5), (-2.5, 0.5))
    return ax
