"""Figures of programs that run and are wrong: losses, a probe, a checklist."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from coursekit_classroom.figures.shapes import sheet, write
from coursekit_classroom.figures.style import COLORS, ROLES, Number, new_figure


def two_losses(
    reported: Mapping[str, Sequence[Number]],
    in_use: Mapping[str, Number] | None = None,
) -> Axes:
    """Draw what programs report, and what their models do in use.

    Args:
        reported: for each program the losses of its runs, in nats.
        in_use: for each program the mean loss of its model in use.

    Returns:
        The axes; the first program is on top.
    """
    names = list(reported)
    ax = new_figure(0.42 * len(names) + (1.4 if in_use else 0.9))[1][0]
    for y, (name, values) in enumerate(reported.items()):
        mean = sum(values) / len(values)
        label = "reported" if y == 0 and in_use else ""
        if in_use:
            ends = [mean, in_use[name]]
            ax.plot(ends, [y, y], "-", color="0.6", linewidth=1, zorder=1)
            ax.plot(in_use[name], y, "D", markerfacecolor="none",
                    color=COLORS["orange"], markersize=8,
                    label="" if y else "in use")  # fmt: skip
        ax.plot(mean, y, "o", color=COLORS["blue"], markersize=6, label=label)
        low, high = min(values), max(values)
        ax.plot([low, high], [y, y], "-", color=COLORS["blue"], linewidth=2.5)
        used = in_use[name] if in_use else mean
        text = f"{mean:.2f}" + (f" → {used:.2f}" if in_use else "")
        ax.annotate(text, (max(high, used), y), (9, 0), size=11, va="center",
                    textcoords="offset points")  # fmt: skip
    ax.set_yticks(range(len(names)), names)
    most = max([*in_use.values()] if in_use else map(max, reported.values()))
    ax.set(ylim=(len(names) - 0.5, -0.5), xlim=(-0.02 * most, 1.25 * most))
    ax.set_xlabel("loss (nats per character)")
    if in_use:
        ax.legend(loc="lower right", fontsize=11)
    return ax


def _cell(
    ax: Axes, x: Number, y: Number, text: str, color: str, alpha: Number
) -> None:
    """A box with a number in it."""
    box = Rectangle((x - 0.42, y - 0.36), 0.84, 0.72, facecolor=COLORS[color])
    box.set_alpha(alpha)
    ax.add_patch(box)
    write(ax, x, y, text)


def changed_token(
    inputs: Sequence[tuple[int, int]],
    outputs: Mapping[str, Sequence[tuple[int, int]]],
) -> list[Axes]:
    """Draw what one changed token does to the outputs of models.

    Args:
        inputs: for each position the number before and after the change.
        outputs: for each model the same of its outputs.

    Returns:
        The axes, one per model; an output that moves before the changed
        token has a cross.
    """
    axes = new_figure(2.1, columns=len(outputs))[1]
    at = next(i for i, (a, b) in enumerate(inputs) if a != b)
    for ax, (name, rows) in zip(axes, outputs.items(), strict=True):
        ax.set(xlim=(-1.6, len(rows) - 0.4), ylim=(-1.9, 1.7))
        ax.set_title(name, fontsize=12)
        ax.axis("off")
        for y, label, pairs in ((0.8, "input", inputs), (-0.6, "mean", rows)):
            ax.text(-0.65, y, label, ha="right", va="center", size=11)
            for x, (before, after) in enumerate(pairs):
                moved = before != after
                leak = moved and y < 0 and x < at
                color = "orange" if leak else "blue"
                if not moved:
                    color = ROLES["token"]
                text = f"{before} → {after}" if moved else f"{before}"
                _cell(ax, x, y, text, color, 0.55 if moved else 0.25)
        for x, (before, after) in enumerate(rows):
            word = "stays" if before == after else "moves"
            word += " ×" if before != after and x < at else ""
            write(ax, x, -1.35, word, size=11)
    return axes


def column_of_map(grid: Tensor, column: int) -> list[Axes]:
    """Draw which outputs one changed token moves, and the map of all tokens.

    Args:
        grid: (T, T) booleans: does output i move with the token at j?
        column: of the token that is changed.

    Returns:
        The two axes, for that token and its outputs, and for the map, where
        its column is outlined.
    """
    size = len(grid)
    left, right = new_figure(3.5, columns=2, width_ratios=[1, 1.5])[1]
    for i, moves in enumerate(grid[:, column].tolist()):
        changed = i == column
        _cell(left, 0, i, "new" if changed else "",
              "orange" if changed else ROLES["token"],
              0.55 if changed else 0.25)  # fmt: skip
        _cell(left, 1.6, i, "moves" if moves else "stays",
              "blue" if moves else ROLES["token"],
              0.55 if moves else 0.25)  # fmt: skip
    for i, row in enumerate(grid.tolist()):
        for j, moves in enumerate(row):
            color = "blue" if moves else ROLES["token"]
            _cell(right, j, i, "", color, 0.55 if moves else 0.1)
    frame = Rectangle((column - 0.5, -0.5), 1, size, fill=False)
    frame.set(edgecolor=COLORS["orange"], linewidth=2.5)
    right.add_patch(frame)
    left.set_xticks([0, 1.6], ["token", "output"])
    right.set_xticks(range(size))
    right.set_xlabel("token that was changed")
    left.set_xlim(-0.5, 2.1)
    right.set_xlim(-0.6, size - 0.4)
    left.set_ylabel("position")
    for ax in (left, right):
        ax.set_yticks(range(size))
        ax.set_ylim(size - 0.4, -0.6)
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
    return [left, right]


def oracle_bars(programs: Mapping[str, Mapping[int, Number]]) -> list[Axes]:
    """Draw the loss that programs give to oracles.

    Args:
        programs: for each program the loss of the oracle that knows the
            token k positions on, by k.

    Returns:
        The axes, one per program.
    """
    rows = -(-len(programs) // 2)
    columns = min(2, len(programs))
    axes = new_figure(1.9 * rows + 0.2, columns=columns, rows=rows)[1]
    for ax, (name, losses) in zip(axes, programs.items(), strict=False):
        top = max(losses.values())
        for x, value in enumerate(losses.values()):
            bar = Rectangle((x - 0.38, 0), 0.76, value)
            bar.set(facecolor=COLORS[ROLES["loss"]], alpha=0.55)
            ax.add_patch(bar)
            digits = 0 if value >= 10 or value < 0.05 else 1
            text = f"{abs(value):.{digits}f}"  # not "-0"
            ax.text(x, value + 0.04 * top, text,
                    ha="center", size=10)  # fmt: skip
        ax.set_title(name, fontsize=11)
        ks = [f"{k:+d}".replace("-", "−") if k else "0" for k in losses]
        ax.set_xticks(range(len(ks)), ks)
        ax.set(xlim=(-0.6, len(ks) - 0.4), ylim=(0, 1.2 * top), yticks=[])
        ax.tick_params(length=0)
        ax.spines["left"].set_visible(False)
    for ax in axes[len(programs) :]:
        ax.axis("off")
    return axes


def checklist(groups: Mapping[str, Sequence[tuple[str, str]]]) -> Axes:
    """Draw a checklist: what to do, and what it finds.

    Args:
        groups: for each heading the checks, each with what it finds.

    Returns:
        The axes.
    """
    n_rows = sum(len(rows) + 1 for rows in groups.values())
    ax = new_figure(0.34 * n_rows + 0.2)[1][0]
    sheet(ax, (0, 10), (0.6 - n_rows, 0.6))
    y = 0
    for heading, rows in groups.items():
        ax.text(0, y, heading, va="center", weight="bold", size=11)
        ax.plot([0, 10], [y - 0.45] * 2, "-", color=COLORS["gray"], lw=0.8)
        y -= 1
        for check, finds in rows:
            box = Rectangle((0.05, y - 0.25), 0.3, 0.5, fill=False)
            box.set_edgecolor(COLORS["blue"])
            ax.add_patch(box)
            ax.text(0.55, y, check, va="center", size=10.5)
            ax.text(5.75, y, finds, va="center", size=10.5,
                    color=COLORS["gray"])  # fmt: skip
            y -= 1
    return ax


def module_gaps(gaps: Mapping[str, Sequence[Number]]) -> Axes:
    """Draw how far the outputs of two models are apart, module by module.

    Args:
        gaps: for each module of a block, in the order in which they run, its
            largest difference in each block.

    Returns:
        The axes; blocks are columns.  The first difference is outlined.
    """
    blocks = len(next(iter(gaps.values())))
    ax = new_figure(0.3 * len(gaps) + 0.5)[1][0]
    columns = [[row[b] for row in gaps.values()] for b in range(blocks)]
    flat = [gap > 0 for column in columns for gap in column]
    first = divmod(flat.index(True), len(gaps)) if any(flat) else None
    for x, column in enumerate(columns):
        for y, gap in enumerate(column):
            box = Rectangle((x - 0.46, y - 0.4), 0.92, 0.8)
            box.set(facecolor=COLORS["orange" if gap else ROLES["token"]])
            box.set_alpha(0.45 if gap else 0.2)
            ax.add_patch(box)
            text = f"{gap:.2g}" if gap else "equal"
            write(ax, x, y, text, size=11)
            if (x, y) == first:
                box = Rectangle((x - 0.46, y - 0.4), 0.92, 0.8, fill=False)
                box.set(edgecolor=COLORS["black"], linewidth=2)
                ax.add_patch(box)
    ax.set_xticks(range(blocks), [f"block {b}" for b in range(blocks)])
    ax.xaxis.tick_top()
    ax.set_yticks(range(len(gaps)), list(gaps))
    ax.set(xlim=(-0.5, blocks - 0.5), ylim=(len(gaps) - 0.5, -0.5))
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return ax


def probe_questions() -> list[Axes]:
    """Draw what four probes change, and which outputs they compare.

    Returns:
        The axes, one per probe; the inputs stand at height 0 and above, the
        outputs at −1.5.
    """
    panels = (
        ("causality", "a later token changes", 3, "===", ""),
        ("uses_context", "an earlier token changes", 0, "   ≠", ""),
        ("batch_independence", "another row joins", None, "====", "1"),
        ("repeats", "nothing changes", None, "====", ""),
    )
    axes = new_figure(3.9, columns=2, rows=2)[1]
    for ax, (name, change, at, outputs, joins) in zip(
        axes, panels, strict=True
    ):
        ax.text(-0.5, 1.95, name, weight="bold", size=11)
        ax.text(-0.5, 1.3, change, size=11)
        for x in range(4):
            if joins:
                _cell(ax, x, 0.75, "+", "orange", 0.45)
            changed = x == at
            color = "orange" if changed else ROLES["token"]
            text = "≠" if changed else ""
            _cell(ax, x, 0, text, color, 0.45 if changed else 0.2)
            output = outputs[x : x + 1].strip()
            alpha = 0.45 if output else 0.08
            _cell(ax, x, -1.5, output, ROLES["stream"], alpha)
        for y, label in ((0, "input"), (-1.5, "output")):
            ax.text(-0.65, y, label, ha="right", va="center", size=11)
        ax.annotate("", (1.5, -1.1), (1.5, -0.4),
                    arrowprops={"arrowstyle": "->",
                                "color": COLORS["gray"]})  # fmt: skip
        sheet(ax, (-2.1, 3.5), (-2, 2.4))
    return axes
