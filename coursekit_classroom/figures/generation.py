"""Figures of generation: how the next token is chosen."""

from collections.abc import Mapping, Sequence
from functools import partial

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from coursekit_classroom.figures.shapes import sheet, write
from coursekit_classroom.figures.style import (
    COLORS,
    ROLES,
    Number,
    new_figure,
    solid_arrow,
)

CHOSEN = COLORS["blue"]  # of probabilities, as in the figures of the loss
AHEAD = 0.3  # from the text to what may come next
CHARS = 48  # in a line of a sample


def choices_made(
    start: Sequence[str],
    steps: Sequence[Sequence[tuple[str, Number]]],
    n_tokens: int,
) -> Axes:
    """Draw greedy decoding as stairs: each row has a token more.

    Args:
        start: the tokens of the prompt.
        steps: for each row the most probable token, which is appended, with
            its probability; after it others that are shown, if any.
        n_tokens: the size of the vocabulary.

    Returns:
        The axes; step i stands at height −i, and box j of the text at x = j.
    """
    n, most = len(start), max(i + len(row) for i, row in enumerate(steps))
    ax = new_figure(0.66 * len(steps) + 0.85)[1][0]
    right = n + most + AHEAD + 1.75
    sheet(ax, (-0.08, right), (-len(steps) - 0.4, 0.95))
    gray, text = COLORS["gray"], list(start)
    best_of = "next token, in %: take the most probable"
    ax.text(0, 0.62, "text so far", va="center", color=gray)
    ax.text(n + AHEAD, 0.62, best_of, va="center", color=gray)
    for i, tokens in enumerate(steps):
        _so_far(ax, text, -i, i > 0)
        x, shares = n + i + AHEAD, [round(100 * p, 1) for _, p in tokens]
        for j, (token, _) in enumerate(tokens):
            _option(ax, x + j, -i, token, shares[j], j == 0)
        shown = len(tokens)
        rest = f"{n_tokens - shown:,} others\n{100 - sum(shares):.1f}"
        at = (x + shown + 0.12, -i)
        ax.text(*at, rest, va="center", size=10, color=gray)
        box, place = (x + 0.47, -i - 0.36), (n + i + 0.47, -i - 0.72)
        solid_arrow(ax, box, place, CHOSEN, 2)
        text.append(tokens[0][0])
    ax.text(n + 0.14, -0.51, "append", ha="right", va="center", color=CHOSEN)
    _so_far(ax, text, -len(steps), True)
    ax.text(len(text) + 0.1, -len(steps), "…", va="center")
    return ax


def _cell(
    ax: Axes,
    x: Number,
    y: Number,
    tall: Number,
    color: str,
    full: Number,
    framed: bool,
) -> None:
    """A box of one token; the chosen one has a thick frame."""
    size = (0.94, tall)
    box = Rectangle((x, y - tall / 2), *size, linewidth=0)
    box.set(facecolor=color, alpha=full)
    ax.add_patch(box)
    edge = Rectangle(box.get_xy(), *size, fill=False)
    edge.set(edgecolor=CHOSEN if framed else COLORS["gray"])
    edge.set(linewidth=2.5 if framed else 0.8)
    ax.add_patch(edge)


def _so_far(ax: Axes, tokens: Sequence[str], y: Number, grown: bool) -> None:
    """The text in boxes; what has just been appended is framed."""
    for x, token in enumerate(tokens):
        new = grown and x == len(tokens) - 1
        _cell(ax, x, y, 0.56, COLORS["gray"], 0.12, new)
        weight = "bold" if new else "normal"
        at = (x + 0.47, y)
        ax.text(*at, token, ha="center", va="center", weight=weight, size=11)


def _option(
    ax: Axes, x: Number, y: Number, token: str, percent: Number, taken: bool
) -> None:
    """A token that may come next, above its percentage; a box, if taken."""
    if taken:
        _cell(ax, x, y, 0.72, CHOSEN, 0.4, framed=True)
    color = COLORS["black" if taken else "gray"]
    write = partial(ax.text, ha="center", va="center", color=color)
    weight = "bold" if taken else "normal"
    write(x + 0.47, y + 0.16, token, weight=weight, size=11)
    write(x + 0.47, y - 0.18, f"{percent:.1f}", size=11)


def temperature_bars(
    words: Sequence[str], panels: Mapping[str, Tensor]
) -> list[Axes]:
    """Draw distributions over the same words side by side, as rows of bars.

    Args:
        words: names of the V tokens, from the top down.
        panels: title and (V,) probabilities of each.

    Returns:
        The axes, all on one scale.
    """
    axes = new_figure(0.34 * len(words) + 0.5, len(panels), sharey=True)[1]
    longest = max(float(p.max()) for p in panels.values())
    for ax, (title, p) in zip(axes, panels.items(), strict=True):
        for i, share in enumerate(p.tolist()):
            box = Rectangle((0, i - 0.38), share, 0.76)
            box.set(facecolor=CHOSEN, alpha=0.55)
            ax.add_patch(box)
            # A small one is not 0.
            text = f"{share:.3f}"
            if 0 < share < 0.0005:
                text = f"{share:.6f}".rstrip("0")
            if 0 < share < 0.0000005:
                text = "< 0.000001"
            ax.text(share + 0.04 * longest, i, text, va="center", size=11)
        room = 1.0 + 0.18 * len(panels)  # for the number behind a bar
        ax.set(xlim=(0, room * longest), ylim=(len(words) - 0.5, -0.5))
        ax.set_title(title, size=11)
        ax.set_yticks(range(len(words)), words)
        ax.tick_params(length=0)
        ax.set_xticks([])
        ax.spines["bottom"].set_visible(False)
    return axes


def kept_mass(words: Sequence[str], p: Tensor, top_p: Number) -> Axes:
    """Draw probabilities end to end, and what top-p leaves of them.

    Args:
        words: names of the V tokens, the most probable first.
        p: (V,) their probabilities.
        top_p: the mass that has to be reached.

    Returns:
        The axes; the upper bar at height 0, what is left at −2.
    """
    ax = new_figure(2.5)[1][0]
    sheet(ax, (-0.02, 1.02), (-2.75, 1.25))
    nucleus = p * (p.cumsum(0) - p < top_p)
    for y, masses in ((0, p), (-2, nucleus / nucleus.sum())):
        left = 0.0
        for word, mass, stays in zip(
            words, masses.tolist(), nucleus.tolist(), strict=True
        ):
            box = Rectangle((left, y - 0.4), mass, 0.8, linewidth=1)
            box.set(
                facecolor=CHOSEN if stays else "none",
                edgecolor=COLORS["gray"],
                alpha=0.45 if stays else 1.0,
                hatch="" if stays else "////",
            )
            if mass:
                ax.add_patch(box)
            if stays:
                text = f"{word}  {mass:.3f}"
                write(ax, left + mass / 2, y, text)
            left += mass
    dropped = ", ".join(words[int((nucleus > 0).sum()) :])
    ax.text(1, -0.5, dropped, ha="right", va="top")
    ax.plot([top_p] * 2, [-0.45, 0.6], color=COLORS["black"], linestyle="--")
    ax.text(top_p, 0.65, f"top-p {top_p:g}", ha="center", va="bottom")
    ax.text(0, 0.65, "probabilities", va="bottom")
    ax.text(0, -1.5, "what is drawn from", va="bottom")
    return ax


def tail_curves(lines: Mapping[str, Tensor], top_p: Number, k: int) -> Axes:
    """Draw how many tokens it takes to reach a mass.

    Args:
        lines: a label, and (V,) probabilities, the largest first.
        top_p: the mass at which each curve is cut.
        k: the number of tokens at which another rule would cut.

    Returns:
        The axes; each curve ends its kept part in a dot.
    """
    ax = new_figure(3.1)[1][0]
    for (label, p), style in zip(lines.items(), ("-", ":"), strict=False):
        mass = p.cumsum(0)
        n = int((mass - p < top_p).sum())
        where = range(1, len(p) + 1)
        ax.plot(where, mass, color=CHOSEN, linestyle=style)
        ax.plot(n, mass[n - 1], "o", color=CHOSEN, markersize=9)
        ax.annotate(
            f"{label}\n{n} token" + "s" * (n > 1),
            (n, mass[n - 1]),
            (9, -8),
            textcoords="offset points",
            va="top",
        )
    gray = COLORS["gray"]
    ax.axhline(top_p, color=gray, linewidth=1.2, linestyle="--")
    ax.axvline(k, color=gray, linewidth=1.2, linestyle="--")
    ax.text(k * 1.08, 0.03, f"top-k {k}", va="bottom")
    ax.annotate(
        f"top-p\n{top_p:g}",
        (1.01, top_p),
        xycoords=("axes fraction", "data"),
        va="center",
    )
    ax.set(xscale="log", ylim=(0, 1.05), xlabel="number of tokens")
    ax.set_xticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
    ax.set_title("sum of their probabilities")
    return ax


def sampled_words(
    samples: Mapping[str, Sequence[Sequence[tuple[str, bool]]]],
) -> Axes:
    """Draw generated texts, and mark the words that don't exist.

    Args:
        samples: a label, and lines of pieces: a text, and whether it is
            a word that nobody has written.

    Returns:
        The axes; one unit to the right is one character.
    """
    wrapped = {
        label: [part for line in lines for part in _wrap(line)]
        for label, lines in samples.items()
    }
    n_lines = sum(len(lines) + 1.1 for lines in wrapped.values())
    ax = new_figure(0.29 * n_lines + 0.1)[1][0]
    sheet(ax, (0, CHARS), (-n_lines + 0.5, 0.6))
    y = 0.0
    for label, lines in wrapped.items():
        ax.text(0, y, label, va="center", weight="bold")
        for line in lines:
            y, x = y - 1, 0
            for text, invented in line:
                ax.text(
                    x,
                    y,
                    text,
                    va="center",
                    family="monospace",
                    size=13,  # as wide as the axes' unit
                    color=COLORS[ROLES["loss"] if invented else "black"],
                )
                if invented:
                    ax.plot(
                        [x, x + len(text)],
                        [y - 0.42] * 2,
                        color=COLORS[ROLES["loss"]],
                        linestyle="-",
                        linewidth=1.5,
                    )
                x += len(text)
        y -= 1.1
    return ax


def _wrap(line: Sequence[tuple[str, bool]]) -> list[list[tuple[str, bool]]]:
    """The pieces of a line, on as many lines as they need."""
    lines: list[list[tuple[str, bool]]] = [[]]
    for text, invented in line:
        if sum(len(piece) for piece, _ in lines[-1]) + len(text) > CHARS:
            lines.append([])
        if lines[-1] or text.strip():  # no line begins with a space
            lines[-1].append((text, invented))
    return lines
