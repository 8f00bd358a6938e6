"""Figures of attention, with the numbers of an example in them."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from torch import Tensor

from coursekit.attention import attention_weights
from coursekit_classroom.figures.maps import heatmap
from coursekit_classroom.figures.shapes import (
    arrow,
    box,
    hide_cells,
    name_column,
    sheet,
    short,
    strip,
    write,
)
from coursekit_classroom.figures.style import COLORS, ROLES, new_figure


def swap_meet(
    weights: Tensor, tokens: Sequence[str], wish: str, signs: Sequence[str]
) -> Axes:
    """Draw a stall for each token, and what the last one takes from each.

    Args:
        weights: (S,) of the last token, drawn as the widths of lines.
        tokens: S names.
        wish: what the last token's list says.
        signs: what each sign says.

    Returns:
        The axes; stall j has its middle at x = j.
    """
    ax = new_figure(3.3)[1][0]
    last = len(tokens) - 1
    sheet(ax, (-0.62, last + 0.62), (-2.4, 3.1))
    for j, (token, sign) in enumerate(zip(tokens, signs, strict=True)):
        write(ax, j, 2.8, token, weight="bold")
        for role, y, height, text in (
            ("query", 1.9, 0.62, wish if j == last else "…"),
            ("key", 0.75, 0.62, sign),
            ("value", -0.5, 0.5, f"“{token}”"),
        ):
            box(ax, j - 0.4, y - height / 2, 0.8, height, role)
            write(ax, j, y, text, size=11)
        ax.plot([j - 0.4, j - 0.4, j + 0.4, j + 0.4], [-1, -0.75, -0.75, -1],
                color=COLORS["gray"], linewidth=2, linestyle="-")  # fmt: skip
        arrow(ax, (last - 0.1 * (last - j), 1.55), (j, 1.1), "--")
    for y, text in ((1.9, "list"), (0.75, "sign"), (-0.5, "goods")):
        write(ax, -0.53, y, text, rotation=90, color=COLORS["gray"])
    box(ax, last - 0.55, -2.35, 1.1, 0.55, "value")
    write(ax, last, -2.08, f"what {tokens[last]} takes", size=11)
    for j, weight in enumerate(weights.tolist()):
        end = (last + 0.3 * (j - last / 2), -1.72)
        ax.plot(
            [j, end[0]],
            [-1.1, end[1]],
            color=COLORS[ROLES["value"]],
            linewidth=1 + 11 * weight,
            linestyle="-",
            solid_capstyle="round",
        )
    return ax


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
    sheet(ax, (-0.6, width + 0.1), (-size - 2.3, 1.35))
    gray = COLORS["gray"]
    name_column(ax, names[0], 0.5, "stream")
    for i, number in enumerate(x):
        strip(ax, number[None], 0.0, -float(i), cell, ROLES["stream"])
    left = 1 + gap
    for (role, matrix), name in zip(matrices.items(), names[1:], strict=True):
        middle = left + matrix.size(1) / 2
        name_column(ax, name, middle, role)
        for i, row in enumerate(matrix):
            strip(ax, row, left, -float(i), cell, ROLES[role], 0.45)
        ax.annotate(
            "",
            (middle, -size - 0.55),
            (middle, -size + 0.4),
            arrowprops={"arrowstyle": "-|>", "color": gray, "linewidth": 2},
        )
        strip(ax, x @ matrix, left, -size - 1.0, cell, ROLES[role])
        ax.text(
            middle, -size - 1.6, role, ha="center", va="top", weight="bold"
        )
        left += matrix.size(1) + gap + 0.35
    return ax


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
    sheet(ax, (0, 100), (-rows - 1.3, 2.6))
    cell = min(6.6, 19 / max(q.size(-1), v.size(-1)))
    key, value, bar, longest = 13.0, 99.0 - v.size(-1) * cell, 54.0, 17.0
    score, digits = 46.0, 2 if v.size(-1) == 2 else 1
    product = (key + q.size(-1) * cell + score - 4) / 2
    gray = COLORS["gray"]
    for x, text in (
        (key + q.size(-1) * cell / 2, "key"),
        (product, "q · k"),
        (score, f"÷ √{q.size(-1)}"),
        (bar + 13, "softmax: weight"),
        (value + v.size(-1) * cell / 2, "value"),
    ):
        ax.text(x, 0.62, text, ha="center", va="bottom", color=gray)
    strip(ax, q, key, 2.0, cell, ROLES["query"])
    ax.text(key - 1.5, 2.0, asker, ha="right", va="center", weight="bold")
    ax.text(
        key + q.size(-1) * cell + 1.5, 2.0, "asks with its query", va="center"
    )
    for j, token in enumerate(tokens):
        ax.text(key - 1.5, -j, token, ha="right", va="center")
        strip(ax, k[j], key, -float(j), cell, ROLES["key"])
        write(ax, product, -j, short(products[j].item()))
        write(ax, score, -j, f"{scores[j]:.2f}".replace("-", "−"))
        share = float(weights[j])
        ax.barh(
            -j,
            longest * share,
            left=bar,
            height=0.62,
            color=COLORS[ROLES["weight"]],
        )
        ax.text(bar + longest * share + 1, -j, f"{share:.3f}", va="center")
        write(ax, value - 2.5, -j, "×")
        strength = 0.25 + 0.75 * share
        strip(ax, v[j], value, -float(j), cell, ROLES["value"], strength)
    mixed, role = weights @ v, ROLES["value"]
    strip(ax, mixed, value, -rows - 0.6, cell, role, digits=digits)
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
        ("weighted sums\nweights · v", weights @ v, ROLES["value"]),
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
            hide_cells(ax, mask)
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
