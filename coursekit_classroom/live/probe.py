"""One token is changed: which positions move, in right and wrong programs."""

from typing import Any

import torch

from coursekit.probe import reach
from coursekit_classroom import figures, lesson
from coursekit_classroom.edits import EDITS
from coursekit_classroom.figures.style import COLORS, ROLES
from coursekit_classroom.glue import result

__all__ = ["PROGRAMS", "SIZES", "probe", "recorded"]

SIZES: dict[str, Any] = {
    "vocab": 26, "length": 8, "width": 32, "heads": 2, "blocks": 2,
}  # fmt: skip
"""Of the untrained models that are probed, as in js/figures/probe.js."""
PROGRAMS = {
    "right": "correct program",
    "no_mask": "no mask",
    "next_token": "mask off by one",
    "over_queries": "softmax over the queries",
    "merged_by_view": "heads joined by reshape",
    "across_batch": "attention along the batch",
    "no_scale": "scores not divided by √Dh",
    "not_shifted": "targets not shifted",
    "softmax_twice": "softmax before the loss",
    "dropout_on": "dropout left on in validation",
}
LINES = {
    "causality": "no position sees the future",
    "uses_context": "later positions use the context",
    "batch_independence": "a row alone gives its logits",
    "asks_for": "the oracle of the next token has loss 0",
    "repeats": "two evaluations agree",
    "same_in_use": "cache on = cache off",
    "trains_everything": "each parameter has a gradient",
}
"""Of the checklist, in words; two more are about the data alone."""


def recorded() -> dict[str, Any]:
    """Recorded numbers of two results for each program.

    Returns:
        ``lines`` of the checklist; for each of the ``programs`` the mean
        loss that it ``reported``, that ``in_use``, and the lines that it
        ``fails``.
    """
    zoo, caught = result("debugging")["zoo"], result("caught")["bugs"]
    programs = {"right": zoo["right"], **{b["name"]: b for b in zoo["bugs"]}}
    return {
        "lines": list(LINES),
        "programs": {
            name: {
                "reported": programs[name]["reported"]["mean"],
                "in_use": programs[name]["in_use"]["mean"],
                # Behind a colon stands the error that it raised.
                "fails": [x.split(":")[0] for x in caught.get(name, ())],
            }
            for name in PROGRAMS
        },
    }


def probe(
    _: Any, __: Any, ___: str, program: str = "right", **____: int | str
) -> Any:
    """The map of a program, and which lines of the checklist it fails."""
    name = {"next_token": "off_by_one"}.get(program, program)
    changed = lesson.load(12, EDITS.get(name, []))
    torch.manual_seed(0)
    vocab, length, width, *rest = SIZES.values()
    model = changed.GPT(vocab, length, width, *rest)
    caption = recorded()["programs"][program]
    axes = figures.new_figure(3.0, columns=2, width_ratios=(5, 6))[1]
    figures.who_sees_whom(
        reach(model, vocab, length), title=PROGRAMS[program], ax=axes[0]
    )
    axes[0].set(xlabel="changed token", ylabel="position that moves")
    axes[0].set_aspect("equal")
    axes[1].axis("off")
    axes[1].set(xlim=(0, 1), ylim=(len(LINES) + 0.5, -1.5))
    loss = f"It reports a loss of {caption['reported']:.2f}."
    axes[1].text(0, -1, loss, va="center", size=11)
    for row, (line, words) in enumerate(LINES.items()):
        fails = line in caption["fails"]
        color = COLORS[ROLES["loss"]] if fails else COLORS["black"]
        weight = "bold" if fails else "normal"
        mark = "×" if fails else "✓"
        axes[1].text(0, row, mark, va="center", color=color, weight=weight)
        axes[1].text(0.08, row, words, va="center", color=color, size=10,
                     weight=weight)  # fmt: skip
    return axes[0]
