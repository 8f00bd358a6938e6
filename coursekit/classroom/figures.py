"""Pictures in one visual language; the only module that needs matplotlib.

Colors are Okabe and Ito's, which stay apart for color-blind readers; no
figure says anything by color alone.  A figure is 5.4 inches wide, so that its
text is readable on a phone.  A function that draws returns axes: end the cell
with a semicolon, or give them a name, and the notebook does not print them.
"""

import re
import warnings
from collections.abc import Mapping, Sequence
from html import escape
from importlib import import_module
from io import BytesIO, StringIO
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle
from PIL import Image
from torch import Tensor

from coursekit.attention import attention_weights

__all__ = [
    "COLORS",
    "ROLES",
    "attention_flow",
    "attention_steps",
    "bars",
    "clocks",
    "curves",
    "heatmap",
    "intervals",
    "ladder",
    "mosaic",
    "new_figure",
    "pipeline",
    "png",
    "projections",
    "svg",
    "token_cuts",
    "token_rows",
    "use_style",
    "who_sees_whom",
]

COLORS = {
    "blue": "#0072B2",
    "orange": "#D55E00",
    "green": "#009E73",
    "purple": "#AA4499",
    "yellow": "#E69F00",
    "sky": "#56B4E9",
    "gray": "#6B6B6B",
    "black": "#1A1A1A",
}
# What a thing is has one color on all pages.
ROLES = {
    "stream": "green",
    "query": "orange",
    "key": "sky",
    "value": "yellow",
    "weight": "blue",
}
WIDTH = 5.4

Number = int | float
NOT_XML = re.compile(r"[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]")


def use_style() -> None:
    """Set the book's look for every figure that follows."""
    plt.rcParams.update(
        {
            "figure.facecolor": "white",
            # Twice the width at which the page shows it.
            "figure.dpi": 200,
            "savefig.dpi": 200,
            "font.size": 12,
            "axes.titlesize": 12,
            "axes.titlelocation": "left",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.prop_cycle": plt.cycler(
                color=[
                    COLORS[c]
                    for c in ("blue", "orange", "green", "purple", "gray")
                ],
                linestyle=["-", "--", "-.", ":", (0, (5, 1))],
            ),
            "lines.linewidth": 2.2,
            "legend.frameon": False,
        }
    )
    from IPython import get_ipython

    if (shell := get_ipython()) is not None:
        # It registers its own encoder when it is first imported.
        import_module("matplotlib_inline.backend_inline")
        shell.display_formatter.formatters["image/png"].for_type(Figure, png)


def png(figure: Figure) -> bytes:
    """Encode a figure in 256 colors, a third of the usual size.

    Args:
        figure: what to encode.

    Returns:
        The bytes of a PNG file.
    """
    full, small = BytesIO(), BytesIO()
    figure.savefig(full, format="png", bbox_inches="tight")
    image = Image.open(full).convert("RGB")
    image.quantize(256, dither=Image.Dither.NONE).save(
        small, format="png", optimize=True
    )
    return small.getvalue()


def svg(figure: Figure, name: str, title: str, text: str) -> str:
    """Encode a figure as SVG that says in words what it shows.

    The same figure gives the same text: no chance, no date.

    Args:
        figure: what to encode.
        name: begins the ids of title and text, so that a page can hold more
            than one picture.
        title: what the picture is.
        text: what it shows, for those who do not see it.

    Returns:
        The ``<svg>`` element: a file, or a part of a page.
    """
    out = StringIO()
    # Text stays text: it can be searched, and needs no glyphs of ours.
    fixed: Any = {"svg.hashsalt": "coursekit", "svg.fonttype": "none"}
    with plt.rc_context(fixed), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")
        figure.savefig(
            out, format="svg", bbox_inches="tight", metadata={"Date": None}
        )
    drawn = out.getvalue()
    opening, _, rest = drawn[drawn.index("<svg") :].partition(">")
    ids = f'role="img" aria-labelledby="{name}-title {name}-text"'
    told = (
        f'<title id="{name}-title">{escape(title)}</title>'
        f'<desc id="{name}-text">{escape(text)}</desc>'
    )
    # Whose program drew it is nobody's business, and changes with it.
    rest = re.sub(r"\s*<metadata>.*?</metadata>", "", rest, flags=re.S)
    # A token may be a control character, which no XML may hold.
    return NOT_XML.sub("\ufffd", f"{opening} {ids}>{told}{rest}")


def new_figure(
    height: float = 3.2, columns: int = 1, rows: int = 1, **options: Any
) -> tuple[Figure, list[Axes]]:
    """An empty figure of the book's width.

    Args:
        height: in inches.
        columns: panels side by side.
        rows: of panels.
        options: for ``plt.subplots``, such as ``width_ratios``.

    Returns:
        The figure and its axes, left to right, then top to bottom.
    """
    use_style()
    figure, axes = plt.subplots(
        rows,
        columns,
        figsize=(WIDTH, height),
        layout="constrained",
        squeeze=False,
        **options,
    )
    return figure, list(axes.flat)


def mosaic(layout: str, height: float, **options: Any) -> dict[str, Axes]:
    """An empty figure whose panels differ in size.

    Args:
        layout: a letter a panel, as in ``"ab;cc"``: two panels over one.
        height: in inches.
        options: for ``plt.subplot_mosaic``, such as ``height_ratios``.

    Returns:
        The axes by their letters.
    """
    use_style()
    return plt.subplot_mosaic(
        layout, figsize=(WIDTH, height), layout="constrained", **options
    )[1]


def heatmap(
    values: Tensor | np.ndarray,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    title: str = "",
    ax: Axes | None = None,
    numbers: bool | None = None,
    limits: tuple[float, float] | None = None,
    color: str = "Blues",
) -> Axes:
    """Draw a matrix: queries are rows, keys are columns.

    Args:
        values: (T, S) numbers.
        rows: T labels (queries).
        columns: S labels (keys).
        title: above the picture.
        ax: where to draw; a new figure by default.
        numbers: write each number in its cell; by default if T·S ≤ 80.
        limits: of the color scale; 0 to 1 for weights by default, symmetric
            if there are negative numbers.
        color: matplotlib's color map, if no number is negative.

    Returns:
        The axes.
    """
    grid = _array(values)
    if ax is None:
        ax = new_figure(height=0.55 * grid.shape[0] + 1.4)[1][0]
    signed = bool((grid < 0).any())
    if limits is None:
        top = float(np.abs(grid).max()) or 1.0
        limits = (-top, top) if signed else (0.0, max(1.0, top))
    cmap = "RdBu_r" if signed else color
    ax.imshow(grid, cmap=cmap, vmin=limits[0], vmax=limits[1], aspect="auto")
    ax.set_title(title)
    ax.set_xticks(range(grid.shape[1]), _labels(columns, grid.shape[1]))
    ax.set_yticks(range(grid.shape[0]), _labels(rows, grid.shape[0]))
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    if numbers if numbers is not None else grid.size <= 80:
        scale = max(abs(limits[0]), abs(limits[1]))
        for (i, j), value in np.ndenumerate(grid):
            dark = abs(value) > 0.6 * scale
            ax.text(
                j,
                i,
                f"{value:.2f}",
                ha="center",
                va="center",
                color="white" if dark else COLORS["black"],
            )
    return ax


def bars(
    values: Tensor | np.ndarray,
    labels: Sequence[str] | None = None,
    title: str = "",
    ax: Axes | None = None,
    color: str = "blue",
) -> Axes:
    """Draw one row of weights: a bar for each key, all scales from 0 to 1.

    Args:
        values: (S,) weights.
        labels: S names; none by default.
        title: above the picture.
        ax: where to draw; a new figure by default.
        color: a name in ``COLORS``.

    Returns:
        The axes.
    """
    heights = _array(values)
    if ax is None:
        ax = new_figure(height=2.4)[1][0]
    ax.bar(range(len(heights)), heights, width=0.8, color=COLORS[color])
    ax.set_ylim(0, 1)
    ax.set_title(title)
    ax.set_xticks(
        range(len(heights)) if labels is not None else [],
        list(labels) if labels is not None else [],
    )
    return ax


def clocks(
    angles: Tensor | np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    ax: Axes | None = None,
) -> Axes:
    """Draw angles as clock hands that start upright and turn clockwise.

    The tip of a hand is (sin, cos) of its angle, so a pair of numbers of a
    position's code is what one dial shows.

    Args:
        angles: (R, C) in radians: a row of dials a pair, a column a position.
        rows: R labels.
        columns: C labels, written below.
        ax: where to draw; a new figure by default.

    Returns:
        The axes; the dial of (r, c) has its center at (c, -r).
    """
    grid = _array(angles)
    if ax is None:
        ax = new_figure(height=0.62 * len(grid) + 0.5)[1][0]
    radius = 0.4
    for (r, c), angle in np.ndenumerate(grid):
        ring = Circle(
            (c, -r), radius, facecolor="white", edgecolor=COLORS["gray"]
        )
        ax.add_patch(ring)
        tip = c + radius * np.sin(angle), -r + radius * np.cos(angle)
        ax.plot(
            [c, tip[0]],
            [-r, tip[1]],
            color=COLORS["blue"],
            linestyle="-",
            solid_capstyle="round",
        )
    ax.set_xticks(range(grid.shape[1]), list(columns))
    ax.set_yticks([-r for r in range(len(grid))], list(rows))
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_aspect("equal")
    return ax


def intervals(
    x: Sequence[int | float],
    samples: Tensor | np.ndarray,
    label: str = "",
    ax: Axes | None = None,
    color: str = "blue",
    style: str = "-",
) -> Axes:
    """Draw means over seeds, each with the range that the seeds cover.

    Args:
        x: N places.
        samples: (seeds, N) measurements.
        label: for the legend.
        ax: where to draw; a new figure by default.
        color: a name in ``COLORS``.
        style: of the line; two lines differ in it and in their marker.

    Returns:
        The axes.
    """
    grid = _array(samples)
    if ax is None:
        ax = new_figure()[1][0]
    # Rounding must not lift the mean of equal numbers above them.
    mean = grid.mean(axis=0).clip(grid.min(axis=0), grid.max(axis=0))
    ax.errorbar(
        x,
        mean,
        yerr=np.stack([mean - grid.min(axis=0), grid.max(axis=0) - mean]),
        label=label,
        color=COLORS[color],
        linestyle=style,
        marker="o" if style == "-" else "s",
        capsize=4,
    )
    return ax


def attention_steps(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tokens: Sequence[str],
    mask: Tensor | None = None,
) -> list[Axes]:
    """Draw scores, weights and outputs side by side, with their numbers.

    Args:
        q: (T, Dh) queries.
        k: (T, Dh) keys.
        v: (T, Dv) values.
        tokens: T names.
        mask: (T, T) booleans, True = may attend; what is hidden is hatched.

    Returns:
        The three axes.
    """
    weights = attention_weights(q, k, mask)
    scores = q @ k.mT / q.size(-1) ** 0.5
    panels = [
        ("scores\nq kᵀ / √Dh", scores, "Blues"),
        ("weights\nrow softmax", weights, "Blues"),
        ("weighted sums\nweights · v", weights @ v, "Oranges"),
    ]
    figure, axes = new_figure(
        0.55 * len(tokens) + 1.45,
        columns=3,
        width_ratios=[k.size(0), k.size(0), 0.95 * v.size(-1)],
    )
    figure.set_layout_engine("constrained", wspace=0.1)
    for ax, (title, grid, color) in zip(axes, panels, strict=True):
        top = 1.0 if grid is weights else 1.25 * float(grid.abs().max())
        first, last = ax is axes[0], ax is axes[-1]
        names = [""] * v.size(-1) if last else tokens
        rows = tokens if first else [""] * len(tokens)
        low = -top if bool((grid < 0).any()) else 0.0
        heatmap(grid, rows, names, title, ax, True, (low, top), color)
        if not last:
            ax.set_xlabel("key (column)")
            _hide(ax, mask)
        if not first:
            ax.annotate(
                "→",
                (0, 0.5),
                (-14, 0),
                xycoords="axes fraction",
                textcoords="offset points",
                ha="center",
                va="center",
                size=16,
            )
    axes[0].set_ylabel("query (row)")
    return axes


def _hide(ax: Axes, mask: Tensor | None) -> None:
    """Hatch the cells of a heatmap that no query may look at."""
    if mask is None:
        return
    for i, j in (~mask).nonzero().tolist():
        ax.add_patch(
            Rectangle(
                (j - 0.5, i - 0.5),
                1,
                1,
                facecolor="white",
                edgecolor=COLORS["gray"],
                hatch="///",
                linewidth=0,
            )
        )
        for text in ax.texts:
            if text.get_position() == (j, i):
                text.set_visible(False)


def projections(
    x: Tensor, matrices: Mapping[str, Tensor], names: Sequence[str]
) -> Axes:
    """Draw x @ W for a few matrices: each number of x beside its row.

    Args:
        x: (D,) the vector, drawn upright.
        matrices: (D, Dh) each, by the role of what they make: a key of
            ``ROLES``, such as ``"query"``.
        names: of x, then of each matrix.

    Returns:
        The axes; row i of each matrix stands at height −i, the products
        at height −D − 1.
    """
    size = len(x)
    columns = [matrix.size(1) for matrix in matrices.values()]
    ax = new_figure(0.42 * size + 1.9)[1][0]
    cell, gap = 1.0, 0.75
    width = 1 + sum(columns) + (gap + 0.35) * len(columns)
    ax.set(xlim=(-0.6, width + 0.1), ylim=(-size - 2.3, 1.35))
    ax.axis("off")
    gray = COLORS["gray"]
    _name(ax, names[0], 0.5, "stream")
    for i, number in enumerate(x):
        _strip(ax, number[None], 0.0, -float(i), cell, ROLES["stream"])
    left = 1 + gap
    for (role, matrix), name in zip(matrices.items(), names[1:], strict=True):
        middle = left + matrix.size(1) / 2
        _name(ax, name, middle, role)
        for i, row in enumerate(matrix):
            _strip(ax, row, left, -float(i), cell, ROLES[role], 0.45)
        ax.annotate(
            "",
            (middle, -size - 0.55),
            (middle, -size + 0.4),
            arrowprops={"arrowstyle": "-|>", "color": gray, "linewidth": 2},
        )
        _strip(ax, x @ matrix, left, -size - 1.0, cell, ROLES[role])
        ax.text(
            middle, -size - 1.6, role, ha="center", va="top", weight="bold"
        )
        left += matrix.size(1) + gap + 0.35
    return ax


def _name(ax: Axes, name: str, x: float, role: str) -> None:
    """What a column of boxes is, above it."""
    ax.text(x, 0.6, name, ha="center", va="bottom", weight="bold")
    ax.plot(
        [x - 0.45, x + 0.45],
        [0.5, 0.5],
        color=COLORS[ROLES[role]],
        linestyle="-",
        linewidth=3,
    )


def attention_flow(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tokens: Sequence[str],
    asker: str,
) -> Axes:
    """Draw the way of one query as a table: products, weights, the mix.

    Args:
        q: (Dh,) the query.
        k: (S, Dh) keys.
        v: (S, Dv) values.
        tokens: S names.
        asker: whose query it is.

    Returns:
        The axes; x runs from 0 to 100, and row j stands at height −j.
    """
    weights = attention_weights(q[None], k)[0]
    products = k @ q
    scores = products / q.size(-1) ** 0.5
    rows = len(tokens)
    ax = new_figure(0.42 * rows + 2.1)[1][0]
    ax.set(xlim=(0, 100), ylim=(-rows - 1.3, 2.6))
    ax.axis("off")
    cell = min(6.2, 19 / max(q.size(-1), v.size(-1)))
    key, value, bar, longest = 13.0, 99.0 - v.size(-1) * cell, 58.0, 17.0
    score = 49.0
    product = (key + q.size(-1) * cell + score - 4) / 2
    gray = COLORS["gray"]
    for x, text in (
        (key + q.size(-1) * cell / 2, "key"),
        (product, "q · k"),
        (score, "÷ √Dh"),
        (bar + longest / 2, "weight"),
        (value + v.size(-1) * cell / 2, "value"),
    ):
        ax.text(x, 0.62, text, ha="center", va="bottom", color=gray)
    _strip(ax, q, key, 2.0, cell, ROLES["query"])
    ax.text(key - 1.5, 2.0, asker, ha="right", va="center", weight="bold")
    ax.text(
        key + q.size(-1) * cell + 1.5, 2.0, "asks with its query", va="center"
    )
    for j, token in enumerate(tokens):
        ax.text(key - 1.5, -j, token, ha="right", va="center")
        _strip(ax, k[j], key, -float(j), cell, ROLES["key"])
        ax.text(
            product, -j, _short(products[j].item()), ha="center", va="center"
        )
        ax.text(
            score,
            -j,
            f"{scores[j]:.2f}".replace("-", "−"),
            ha="center",
            va="center",
        )
        share = float(weights[j])
        ax.barh(
            -j,
            longest * share,
            left=bar,
            height=0.62,
            color=COLORS[ROLES["weight"]],
        )
        ax.text(bar + longest * share + 1, -j, f"{share:.2f}", va="center")
        strength = 0.25 + 0.75 * share
        _strip(ax, v[j], value, -float(j), cell, ROLES["value"], strength)
    _strip(ax, weights @ v, value, -rows - 0.6, cell, ROLES["value"])
    ax.text(
        value - 2,
        -rows - 0.6,
        f"weighted sum: what {asker} finds",
        ha="right",
        va="center",
    )
    ax.annotate(
        "",
        (value + v.size(-1) * cell / 2, -rows - 0.15),
        (value + v.size(-1) * cell / 2, -rows + 0.5),
        arrowprops={"arrowstyle": "-|>", "color": gray, "linewidth": 2},
    )
    return ax


def _short(number: float) -> str:
    """A whole number without a point, others with one digit behind it."""
    digits = 0 if number == round(number) else 1
    return f"{number:.{digits}f}".replace("-", "−")


def _strip(
    ax: Axes,
    numbers: Tensor,
    x: float,
    y: float,
    cell: float,
    color: str,
    strength: float = 1.0,
) -> None:
    """A vector as a row of boxes with its numbers in them."""
    for i, number in enumerate(numbers.tolist()):
        corner = (x + i * cell, y - 0.36)
        ax.add_patch(
            Rectangle(
                corner,
                cell,
                0.72,
                facecolor=COLORS[color],
                alpha=0.55 * strength,
                edgecolor="none",
            )
        )
        ax.add_patch(
            Rectangle(corner, cell, 0.72, fill=False, edgecolor="white")
        )
        text = _short(number)
        ax.text(
            x + (i + 0.5) * cell,
            y,
            text,
            ha="center",
            va="center",
            size=10 if "." in text else 12,
        )


def _array(values: Tensor | np.ndarray) -> np.ndarray:
    return np.asarray(
        values.detach() if isinstance(values, Tensor) else values
    )


def _labels(labels: Sequence[str] | None, n: int) -> list[str]:
    return [str(i) for i in range(n)] if labels is None else list(labels)


def token_rows(
    rows: Mapping[str, Sequence[str]],
    diagonals: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw sequences of tokens as rows of boxes, one above the other.

    Args:
        rows: label and tokens of each row, all of one length; the last row
            is filled, the others are outlined.
        diagonals: link each box to the one a row higher and a step to the
            right, to show that it is the same token.
        ax: where to draw; a new figure by default.

    Returns:
        The axes.
    """
    n = max(len(tokens) for tokens in rows.values())
    if ax is None:
        ax = new_figure(height=0.95 * len(rows) + 0.3)[1][0]
    for r, (label, tokens) in enumerate(rows.items()):
        y, last = -1.5 * r, r == len(rows) - 1
        ax.text(-0.7, y, label, ha="right", va="center")
        for i, token in enumerate(tokens):
            ax.text(
                i,
                y,
                token,
                ha="center",
                va="center",
                family="monospace",
                size=15,
                color="white" if last else COLORS["black"],
                bbox={
                    "boxstyle": "square,pad=0.3",
                    "facecolor": COLORS["blue"] if last else "white",
                    "edgecolor": COLORS["blue"],
                },
            )
            if r:
                _arrow(ax, (i, y + 1.05), (i, y + 0.45), "-")
            if r and diagonals and i + 1 < n:
                _arrow(ax, (i + 0.3, y + 0.4), (i + 0.72, y + 1.1), ":")
    ax.set_xlim(-0.9, n - 0.4)
    ax.set_ylim(-1.5 * (len(rows) - 1) - 0.6, 0.6)
    ax.axis("off")
    return ax


def _arrow(
    ax: Axes,
    start: tuple[Number, Number],
    end: tuple[Number, Number],
    line: str,
) -> None:
    ax.annotate(
        "",
        end,
        start,
        arrowprops={
            "arrowstyle": "->",
            "linestyle": line,
            "color": COLORS["gray"],
        },
    )


def curves(
    lines: Mapping[str, tuple[Sequence[Number], Sequence[Number]]],
    references: Mapping[str, Number] | None = None,
    xlabel: str = "training step",
    ylabel: str = "loss (nats per character)",
    ax: Axes | None = None,
) -> Axes:
    """Draw lines that are told apart by dash as well as by color.

    Args:
        lines: the points (x, y) of each label.
        references: heights of thin labeled lines to compare with.
        xlabel: what runs to the right.
        ylabel: what runs upward, with its unit.
        ax: where to draw; a new figure by default.

    Returns:
        The axes.
    """
    if ax is None:
        ax = new_figure(height=3.4)[1][0]
    for label, (x, y) in lines.items():
        ax.plot(x, y, label=label)
    references = references or {}
    for label, height in references.items():
        # Curves come down from above: the floor's label stands below it.
        below = height == min(references.values()) and len(references) > 1
        ax.axhline(height, color=COLORS["gray"], linewidth=1, linestyle="-")
        ax.annotate(
            label,
            (1, height),
            (0, -12 if below else 3),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            ha="right",
            va="top" if below else "baseline",
            color=COLORS["black"],
            size=11,
        )
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    if len(lines) > 1:
        ax.legend()
    return ax


def ladder(
    rungs: Sequence[Mapping[str, Any]],
    current: str | None = None,
    reveal: bool = False,
    marks: Mapping[str, Number] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the ladder: one bar a model, shorter is better.

    Args:
        rungs: of ``results/ladder.json``: each has a ``name``, a ``label``
            and a ``loss`` with its ``mean`` and ``interval``.
        current: name of the rung to mark (filled, bold, with an arrow).
        reveal: draw the rungs above the current one too; else they are
            named, and their bars left open.
        marks: losses to compare with, drawn as labeled vertical lines.
        ax: where to draw; a new figure by default.

    Returns:
        The axes.

    Raises:
        ValueError: if no rung is called ``current``.
    """
    names = [rung["name"] for rung in rungs]
    if current is not None and current not in names:
        raise ValueError(
            f"current must be a rung of the ladder: got {current!r}, and the "
            f"rungs are {', '.join(names)}. Use one of these names."
        )
    here = len(names) if current is None else names.index(current)
    if ax is None:
        ax = new_figure(height=0.42 * len(rungs) + 0.9)[1][0]
    top = max(rung["loss"]["mean"] for rung in rungs)
    for i, rung in enumerate(rungs):
        if i > here and not reveal:
            ax.text(0.02 * top, i, "?", va="center", color=COLORS["gray"])
            continue
        loss = rung["loss"]
        ax.barh(
            i,
            loss["mean"],
            height=0.7,
            xerr=loss["interval"],
            capsize=3,
            color=COLORS["blue"] if i == here else "white",
            edgecolor=COLORS["blue"],
            ecolor=COLORS["black"],
        )
        ax.annotate(
            f"{loss['mean']:.2f}" + ("  ◀" if i == here else ""),
            (loss["mean"] + loss["interval"], i),
            (5, 0),
            textcoords="offset points",
            va="center",
            weight="bold" if i == here else "normal",
        )
    for text, loss in (marks or {}).items():
        ax.axvline(loss, color=COLORS["orange"], linewidth=1.5, linestyle="--")
        ax.annotate(
            f"{text}, {loss:.2f}",
            (loss, 1.01),
            xycoords=("data", "axes fraction"),
            ha="center",
        )
    ax.set_yticks(range(len(rungs)), [rung["label"] for rung in rungs])
    for i, label in enumerate(ax.get_yticklabels()):
        label.set_fontweight("bold" if i == here else "normal")
    ax.set_xlim(0, 1.18 * top)
    ax.set_ylim(len(rungs) - 0.4, -0.6)  # the first rung on top
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("validation loss (nats per character)")
    return ax


def pipeline(
    stages: Mapping[str, str],
    current: str | None = None,
    loop: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw a model as a column of boxes, from text in to token out.

    Args:
        stages: name of each box and a note beside it, in order.
        current: the stage to mark (filled and bold): "you are here".
        loop: says what the arrow from the last box to the first means; no
            arrow if empty.
        ax: where to draw; a new figure by default.

    Returns:
        The axes.

    Raises:
        ValueError: if no stage is called ``current``.
    """
    if current is not None and current not in stages:
        raise ValueError(
            f"current must be a stage: got {current!r}, and the stages are "
            f"{', '.join(stages)}. Use one of these names."
        )
    if ax is None:
        ax = new_figure(height=0.55 * len(stages) + 0.2)[1][0]
    for i, (name, note) in enumerate(stages.items()):
        here = name == current
        ax.add_patch(
            Rectangle(
                (0, i - 0.32),
                2.5,
                0.64,
                facecolor=COLORS["blue"] if here else "white",
                edgecolor=COLORS["blue"],
                linewidth=1.5,
            )
        )
        ax.text(
            1.25,
            i,
            name,
            ha="center",
            va="center",
            weight="bold" if here else "normal",
            color="white" if here else COLORS["black"],
        )
        ax.text(2.75, i, note, va="center")
        if i:
            _arrow(ax, (1.25, i - 0.72), (1.25, i - 0.28), "-")
    if loop:
        last = len(stages) - 1
        ax.plot(
            [0, -0.35, -0.35, -0.2],
            [last, last, 0, 0],
            color=COLORS["gray"],
            linewidth=1,
        )
        _arrow(ax, (-0.25, 0), (0.05, 0), "-")
        ax.text(-0.6, last / 2, loop, rotation=90, ha="center", va="center")
    ax.set_xlim(-0.8 if loop else -0.1, 8)
    ax.set_ylim(len(stages) - 0.6, -0.4)
    ax.axis("off")
    return ax


def who_sees_whom(
    sees: Tensor | np.ndarray,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw which query sees which key; a look into the future is crossed.

    Args:
        sees: (T, S) booleans. The queries are the last T of S positions, so
            key j lies in the future of query i if j > i + (S − T).
        rows: T labels (queries); none by default.
        columns: S labels (keys); none by default.
        title: above the picture.
        ax: where to draw; a new figure by default.

    Returns:
        The axes.
    """
    grid = _array(sees).astype(bool)
    n_queries, n_keys = grid.shape
    if ax is None:
        ax = new_figure(height=0.42 * n_queries + 1.2)[1][0]
    for (i, j), seen in np.ndenumerate(grid):
        future = j > i + n_keys - n_queries
        color = COLORS["orange" if future else "blue"] if seen else "white"
        ax.add_patch(
            Rectangle(
                (j - 0.44, i - 0.44),
                0.88,
                0.88,
                facecolor=color,
                edgecolor=COLORS["gray"],
                linewidth=0.6,
            )
        )
        if seen and future:
            ax.text(
                j, i, "×", ha="center", va="center", color="white", size=13
            )
    ax.set(xlim=(-0.6, n_keys - 0.4), ylim=(n_queries - 0.4, -0.6))
    ax.set_title(title)
    for axis, names in ((ax.xaxis, columns), (ax.yaxis, rows)):
        names = list(names or [])
        axis.set_ticks(range(len(names)), names)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    return ax


def token_cuts(
    rows: Mapping[str, Sequence[str]],
    width: int = 32,
    ax: Axes | None = None,
) -> Axes:
    """Draw where a text is cut: each token a box, lines broken like text.

    Args:
        rows: a heading, and the tokens under it; a space is drawn as ␣.
        width: characters in a line.
        ax: where to draw; a new figure by default.

    Returns:
        The axes; a character is 1 wide, a line 1 high, from the top down.
    """
    lines: list[tuple[float, str | list[str]]] = []
    y = 0.0
    for heading, tokens in rows.items():
        lines.append((y, heading))
        y += 1.0
        line: list[str] = []
        for token in tokens:
            if line and sum(map(len, line)) + len(token) > width:
                lines.append((y, line))
                y, line = y + 1.0, []
            line.append(token)
        lines.append((y, line))
        y += 1.3
    if ax is None:
        ax = new_figure(height=0.31 * y + 0.1)[1][0]
    for y, line_or_heading in lines:
        if isinstance(line_or_heading, str):
            ax.text(0, y, line_or_heading, va="center", weight="bold")
            continue
        x = 0
        for i, token in enumerate(line_or_heading):
            ax.add_patch(
                Rectangle(
                    (x + 0.06, y - 0.41),
                    len(token) - 0.12,
                    0.82,
                    facecolor=COLORS["sky" if i % 2 else "yellow"] + "55",
                    edgecolor=COLORS["gray"],
                    linewidth=1,
                )
            )
            for j, char in enumerate(token.replace(" ", "␣")):
                faint = COLORS["gray" if char == "␣" else "black"]
                ax.text(
                    x + j + 0.5,
                    y,
                    char,
                    ha="center",
                    va="center_baseline",
                    family="monospace",
                    size=13,
                    color=faint,
                )
            x += len(token)
    ax.set(xlim=(-0.1, width + 0.1), ylim=(lines[-1][0] + 0.6, -0.6))
    ax.axis("off")
    return ax
