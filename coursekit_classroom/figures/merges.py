"""Figures of byte-pair encoding: how merges are learned and replayed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

from matplotlib.axes import Axes

from coursekit_classroom.figures.shapes import rectangle, sheet, write
from coursekit_classroom.figures.style import COLORS, Number, new_figure

Pair = tuple[str, str]
NEW, OLD = "blue", "gray"


def joined(tokens: Sequence[str], pair: Pair) -> list[str]:
    """The tokens after one merge."""
    merged: list[str] = []
    for token in tokens:
        merged.append(token)
        if tuple(merged[-2:]) == pair:
            merged[-2:] = ["".join(pair)]
    return merged


def boxes(
    ax: Axes, tokens: Sequence[str], x: Number, y: Number, new: str
) -> Number:
    """Draw tokens as boxes, the new one filled; return where they end."""
    for token in tokens:
        here = token == new
        rectangle(
            ax,
            x + 0.05,
            y - 0.4,
            len(token) - 0.1,
            0.8,
            facecolor=COLORS[NEW] if here else "none",
            alpha=0.25 if here else 1.0,
            edgecolor=COLORS[NEW if here else OLD],
        )
        for i, char in enumerate(token):
            ax.text(
                x + i + 0.5,
                y,
                char.replace(" ", "␣"),
                ha="center",
                va="center_baseline",
                family="monospace",
                size=13,
                weight="bold" if here else "normal",
            )
        x += len(token)
    return x


def ranked(words: Sequence[tuple[Sequence[str], int]]) -> list[tuple]:
    """Pairs of neighbors with their counts, the most frequent first."""
    counts: Counter[Pair] = Counter()
    for tokens, n in words:
        for pair in pairwise(tokens):
            counts[pair] += n
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def pair_counts(ax: Axes, pairs: Sequence[tuple], y: Number) -> None:
    """Write the counts of pairs in a line, the first one underlined."""
    x = 3.6
    ax.text(0, y, "pairs", va="center", size=11)
    for i, ((left, right), n) in enumerate(pairs):
        width = 0.62 * len(left + right) + 2.1
        ax.text(
            x,
            y,
            f"{left} {right}: {n}",
            va="center",
            size=11,
            weight="normal" if i else "bold",
        )
        if not i:
            ax.plot(
                [x, x + width - 0.7],
                [y + 0.42] * 2,
                color=COLORS[NEW],
                linewidth=2,
                linestyle="-",
            )
        x += width


def learned_merges(words: Mapping[str, int], merges: Sequence[Pair]) -> Axes:
    """Draw words with their counts, at the start and after each merge.

    Args:
        words: how often each word occurs.
        merges: the pairs that are merged, in their order.

    Returns:
        The axes; a character is 1 wide, from the top down.
    """
    split = [(list(word), n) for word, n in words.items()]
    ax = new_figure(height=0.95 * (len(merges) + 1) - 0.2)[1][0]
    for step in range(len(merges) + 1):
        y, new = 3.4 * step, ""
        if step:
            pair = merges[step - 1]
            new = "".join(pair)
            split = [(joined(tokens, pair), n) for tokens, n in split]
        head = f"{step}. merge {' and '.join(merges[step - 1])}"
        ax.text(0, y, head if step else "start", va="center", weight="bold")
        x: Number = 0
        for tokens, n in split:
            x = boxes(ax, tokens, x, y + 1, new)
            ax.text(x + 0.15, y + 1, f"×{n}", va="center", size=11)
            x += 2.1
        if step < len(merges):
            pair_counts(ax, ranked(split), y + 2)
    sheet(ax, (-0.1, 21.5), (3.4 * len(merges) + 1.6, -0.6))
    return ax


def learned_vocabulary(merges: Sequence[Pair]) -> Axes:
    """Draw the ids of a vocabulary, and what each token was merged from.

    Args:
        merges: the pairs that were learned, in their order.

    Returns:
        The axes; the bytes stand at the top, merge i at height i + 1.
    """
    ax = new_figure(height=0.4 * (len(merges) + 1) + 0.1)[1][0]
    ax.text(0, 0, "0 to 255", va="center")
    ax.text(5, 0, "the bytes", va="center")
    for y, (left, right) in enumerate(merges, 1):
        ax.text(0, y, f"{255 + y}", va="center")
        new = left + right
        end = boxes(ax, [new], 5, y, new)
        write(ax, end + 0.7, y, "=")
        end = boxes(ax, [left], end + 1.4, y, "")
        write(ax, end + 0.7, y, "+")
        boxes(ax, [right], end + 1.4, y, "")
    sheet(ax, (-0.1, 19), (len(merges) + 0.6, -0.6))
    return ax


def replayed_merges(word: str, merges: Sequence[Pair]) -> Axes:
    """Draw how a word is encoded: each merge in the order of learning.

    Args:
        word: the word to encode.
        merges: the pairs that were learned, in their order.

    Returns:
        The axes; the word stands at the top, its tokens at the bottom.
    """
    tokens = list(word)
    ax = new_figure(height=0.42 * (len(merges) + 1) + 0.1)[1][0]
    boxes(ax, tokens, 4.6, 0, "")
    ax.text(0, 0, "bytes", va="center")
    for step, pair in enumerate(merges, 1):
        before, tokens = tokens, joined(tokens, pair)
        y, new = 1.15 * step, "".join(pair)
        ax.text(0, y, f"{step}. {' and '.join(pair)}", va="center")
        boxes(ax, tokens, 4.6, y, "" if tokens == before else new)
        if tokens == before:
            ax.text(5.1 + len(word), y, "no such pair is left", va="center")
    sheet(ax, (-0.1, 19), (1.15 * len(merges) + 0.6, -0.6))
    return ax
