"""Figures of training on several machines: what is cut, and who waits."""

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from coursekit_classroom.figures.shapes import write
from coursekit_classroom.figures.style import COLORS, ROLES, Number, new_figure

Area = tuple[Number, Number, Number, Number]

# A machine has a color and a hatching.
MACHINES = (("sky", "//"), ("orange", ".."))


def model_cuts() -> list[Axes]:
    """Draw four ways to divide training between two machines.

    Returns:
        The four axes, for data parallel, sharded, tensor and pipeline
        parallel.
    """
    axes = new_figure(5.4, 2, 2)[1]
    both: list[Area] = [(0, 0, 4, 4)]
    halves: dict[str, list[Area]] = {
        "tensor parallel": [(0, 0, 2, 4), (2, 0, 2, 4)],
        "pipeline parallel": [(0, 2, 4, 2), (0, 0, 4, 2)],
    }
    for ax, title, note in zip(
        axes,
        (
            "data parallel",
            "sharded (FSDP)",
            "tensor parallel",
            "pipeline parallel",
        ),
        (
            "each has the whole model\nand half of the batch",
            "each stores half of every\nmatrix, borrows the rest",
            "each computes with half\nof every matrix",
            "each has half\nof the blocks",
        ),
        strict=True,
    ):
        ax.set_title(title)
        for machine in range(2):
            left = 0 if title in halves else 5 * machine
            areas = [halves[title][machine]] if title in halves else both
            if title == "sharded (FSDP)":
                areas = [(0, y + 0.5 * machine, 4, 0.5) for y in range(4)]
            for x, y, width, height in areas:
                _area(ax, left + x, y, width, height, machine)
            if title not in halves:
                _blocks(ax, left)
        if title in halves:
            _blocks(ax, 0)
        ax.text(0, -0.3, note, va="top", size=11)
        ax.set(xlim=(-0.2, 9.4), ylim=(-1.9, 4.1), aspect="equal")
        ax.axis("off")
    return axes


def pipeline_turns(n_machines: int, n_batches: int) -> Axes:
    """Draw which micro-batch each machine works on at each turn.

    Args:
        n_machines: each has some of the blocks.
        n_batches: micro-batches, which pass one after another.

    Returns:
        The axes; machine i stands at height i, and y runs downward.
    """
    ax = new_figure(0.42 * n_machines + 0.9)[1][0]
    turns = n_machines + n_batches - 1
    for machine in range(n_machines):
        for turn in range(turns):
            batch = turn - machine
            works = 0 <= batch < n_batches
            box = Rectangle((turn + 0.04, machine - 0.44), 0.92, 0.88)
            box.set(
                facecolor=COLORS["sky"] if works else "none",
                edgecolor=COLORS["gray"],
                alpha=0.6,
                linestyle="-" if works else ":",
            )
            ax.add_patch(box)
            if works:
                text = str(batch + 1)
                write(ax, turn + 0.5, machine, text)
    ax.set(xlim=(0, turns), ylim=(n_machines - 0.4, -0.6), xlabel="turn")
    names = [f"machine {i + 1}" for i in range(n_machines)]
    ax.set_yticks(range(n_machines), names)
    ax.set_xticks([i + 0.5 for i in range(turns)])
    ax.set_xticklabels([str(i + 1) for i in range(turns)])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return ax


def _area(
    ax: Axes, x: Number, y: Number, width: Number, height: Number, machine: int
) -> None:
    """Draw the area that belongs to a machine."""
    color, hatch = MACHINES[machine]
    box = Rectangle((x, y), width, height, facecolor=COLORS[color])
    box.set(alpha=0.5, hatch=hatch, edgecolor="white", linewidth=0)
    ax.add_patch(box)


def _blocks(ax: Axes, left: Number) -> None:
    """The outlines of four blocks, one above another."""
    for y in range(4):
        box = Rectangle((left, y), 4, 1, fill=False)
        box.set(edgecolor=COLORS[ROLES["token"]], linewidth=1.2)
        ax.add_patch(box)
