"""Figures of how fast this package is, compared with others."""

from collections.abc import Mapping

from matplotlib.axes import Axes

from coursekit_classroom.figures.style import COLORS, Number, new_figure

Ratio = tuple[Number, Number, Number]

HUES = ("blue", "orange", "green", "yellow", "red", "sky", "gray")
MARKERS = "os^Dv*X"
SPAN = 0.62  # of a row's height, for all of its peers
FEW = (0.5, 0.75, 1, 1.25, 1.5, 2, 2.5, 3)
MANY = (0.25, 1, 4, 16, 64, 256, 1024)


def speed_ratios(works: Mapping[str, Mapping[str, Ratio]]) -> Axes:
    """Draw our speed over each peer's, one row for each kind of work.

    A peer keeps its color and marker in all rows; both follow the order in
    which the peers first appear.

    Args:
        works: for each kind of work, and in it for each peer, the ratio of
            speeds and the lower and upper quartile of the single rounds.

    Returns:
        The axes; row i stands at height i, y runs downward, and x is
        logarithmic.
    """
    peers = list(dict.fromkeys(p for row in works.values() for p in row))
    ax = new_figure(0.42 * len(works) + 1.6)[1][0]
    ax.axvline(1, color=COLORS["black"], linewidth=1)
    for i, row in enumerate(works.values()):
        for k, (peer, (ratio, low, high)) in enumerate(row.items()):
            y = i + SPAN * ((k + 0.5) / len(row) - 0.5)
            style = peers.index(peer)
            color = COLORS[HUES[style % len(HUES)]]
            ax.plot([low, high], [y, y], color=color, linestyle="-", alpha=0.6)
            marker = MARKERS[style % len(MARKERS)]
            ax.plot([ratio], [y], color=color, marker=marker, markersize=6)
        if i:
            ax.axhline(i - 0.5, color=COLORS["gray"], linewidth=0.5)
    for style, peer in enumerate(peers):
        ax.plot(
            [],
            [],
            color=COLORS[HUES[style % len(HUES)]],
            marker=MARKERS[style % len(MARKERS)],
            linestyle="",
            label=peer,
        )
    _scale(ax, works)
    return ax


def _scale(ax: Axes, works: Mapping[str, Mapping[str, Ratio]]) -> None:
    """The axes of :func:`speed_ratios`, the names and the legend."""
    every = [
        x for row in works.values() for three in row.values() for x in three
    ]
    left, right = min(0.8, min(every) / 1.15), max(1.25, max(every) * 1.15)
    ax.set(xscale="log", xlim=(left, right), ylim=(len(works) - 0.5, -0.5))
    ticks = [t for t in (FEW if right < 4 else MANY) if left <= t <= right]
    ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
    ax.minorticks_off()
    ax.set_yticks(range(len(works)), list(works), fontsize=11)
    ax.tick_params(axis="y", length=0)
    label = "ratio of speeds; right of 1, coursekit is faster"
    ax.set_xlabel(label, loc="right")
    ax.figure.legend(loc="outside upper left", ncols=3, fontsize=11)
