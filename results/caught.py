"""Which line of the checklist catches which bug, before any training?

The programs of ``results.debugging``, untrained, and the right one.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from coursekit import probe
from coursekit.decoder import GPT
from coursekit.steppers import GPTStepper
from results.debugging import BUGS, Small
from results.record import options, record


class OneTooFar(GPTStepper):
    """Counts the positions of new tokens one too far."""

    def run(
        self, ids: Tensor, positions: Tensor | None, mask: Tensor | None
    ) -> Tensor:
        """Run the model over new tokens; logits of the last position."""
        if ids.size(1) == 1:
            positions = torch.tensor([[len(self.rows[0])]])
        return super().run(ids, positions, mask)


class Careless(GPTStepper):
    """Leaves dropout on."""

    @torch.no_grad()
    def read(self) -> Tensor:
        """Run the model over all that was written."""
        self.model.train()
        return self.model(torch.tensor(self.rows))[:, -1]


def stepper(bug: str, model: GPT) -> GPTStepper:
    """The loop by which a program writes."""
    if bug == "cache_off":
        return OneTooFar(model)
    return Careless(model) if bug == "dropout_writing" else (GPTStepper(model))


def lines(small: Small, bug: str) -> dict[str, Callable[[], bool]]:
    """The checklist: each line says whether all is well."""
    model = small.model(bug, 0)
    optimizer = small.optimizer(bug, model)
    size = small.pad + 1
    ordered = sum(p.numel() for p in small.model("", 0).parameters())
    if bug == "no_positions":  # it was ordered so
        ordered = sum(p.numel() for p in model.parameters())

    def scored(ids: Tensor) -> Tensor:
        return model.train(bug == "dropout_on")(ids)

    def fresh() -> bool:
        steps = [small.batch(bug, 0, step) for step in range(4)]
        return len({tuple(x.flatten().tolist()) for x in steps}) == 4

    def unseen() -> bool:
        seen = bytes(small.learned.tolist())
        asked = small.scored(bug).tolist()
        return not any(bytes(window) in seen for window in asked)

    ids = small.held_out[0, :12].tolist()
    return {
        "each batch is new": fresh,
        "validation is unseen": unseen,
        "asks_for": lambda: (
            probe.asks_for(lambda m, x: small.loss(bug, m, x), size).ok
        ),
        "trains_everything": lambda: (
            probe.trains_everything(
                model, size, expected=ordered, optimizer=optimizer
            ).ok
        ),
        "repeats": lambda: probe.repeats(scored, size).ok,
        "causality": lambda: probe.causality(model, size).ok,
        "uses_context": lambda: probe.uses_context(model, size).ok,
        "batch_independence": lambda: probe.batch_independence(model, size).ok,
        "same_in_use": lambda: (
            probe.same_in_use(
                stepper(bug, model),
                GPTStepper(model.eval(), use_cache=False),
                ids,
            ).ok
        ),
    }


def failing(small: Small, bug: str) -> Sequence[str]:
    """The lines that a program does not pass."""
    found = []
    for name, well in lines(small, bug).items():
        try:
            if not well():
                found.append(name)
        except Exception as error:  # a probe may meet anything
            found.append(f"{name}: {type(error).__name__}")
    return found


parser = options(__doc__)


def main() -> None:
    """All of it."""
    parser.parse_args()
    torch.set_num_threads(1)
    with record("caught", [0]) as metrics:
        small = Small(0)
        metrics["lines"] = list(lines(small, ""))
        metrics["right"] = failing(small, "")
        found: dict[str, Any] = {}
        for bug in BUGS:
            found[bug] = failing(small, bug)
            print(bug, found[bug], flush=True)
        metrics["bugs"] = found


if __name__ == "__main__":
    main()
