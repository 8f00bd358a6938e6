"""Training steps: everybody's model in the harness's own step."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.clock import precision
from benchmarks.contest import (
    Entry,
    Missing,
    Model,
    Settings,
    Shape,
    Target,
    Task,
    Workload,
    compete,
)
from coursekit.config import TrainConfig
from coursekit.data import Batch
from coursekit.training import new_state, train

SHAPES = {
    "S": Shape(6, 384, 6, 256, 65, 8),
    "C": Shape(4, 128, 4, 64, 65, 12),
    "M": Shape(12, 768, 12, 256, 50257, 1),  # GPT-2 small
    "base": Shape(6, 512, 8, 64, 8000, 8, dropout=0.1, max_len=512),
    "C, 128 positions": Shape(4, 128, 4, 128, 65, 6),
    "C, dropout 0.1": Shape(4, 128, 4, 64, 65, 12, dropout=0.1),
    # The same models with more rows: a GPU would wait for work.
    "GPU S": Shape(6, 384, 6, 256, 65, 64),
    "GPU M": Shape(12, 768, 12, 1024, 50257, 8),
}
RATE = 3e-4


def sample(shape: Shape, n: int) -> tuple[Tensor, ...]:
    """Some (B, T) batches of ids, frequent and rare ones as in a text."""
    made = torch.Generator().manual_seed(0)
    chance = 1 / torch.arange(1.0, shape.vocab_size + 1)
    size = shape.batch, shape.context
    return tuple(
        torch.multinomial(
            chance, math.prod(size), replacement=True, generator=made
        ).view(size)
        for _ in range(n)
    )


class Trainee:
    """A model in training: one call is one step.

    Args:
        model: the contestant.
        batch: inputs and, last, targets; the same for all, in each step.
        how: one of the clock's precisions.
        compiled: compile the module first.
        device: where the model is.
    """

    def __init__(
        self,
        model: Model,
        batch: tuple[Tensor, ...],
        how: str,
        compiled: bool,
        device: str = "cpu",
    ) -> None:
        self.model, self.how, self.device = model, how, device
        self.batch = tuple(part.to(device) for part in batch)
        self.module = torch.compile(model.module) if compiled else model.module
        self.losses: list[Tensor] = []
        self.optimizer = torch.optim.AdamW(
            model.module.parameters(), lr=RATE, weight_decay=0.1, fused=True
        )

    def loss(self, *batch: Tensor) -> Tensor:
        """Nats a token, in the precision that was asked for."""
        with precision(self.how, self.device):
            return self.model.loss(self.module, *batch)

    def __call__(self) -> None:
        """Forward, backward, update."""
        loss = self.loss(*self.batch)
        with precision(self.how.replace("bf16", "fp32"), self.device):
            loss.backward()
        self.losses.append(loss.detach())
        self.optimizer.step()
        self.optimizer.zero_grad()

    def check(self, n_ours: int, vocab_size: int) -> list[str]:
        """Faults, if less than a training step on the whole batch was done."""
        wrong = []
        first, last = self.losses[0].item(), self.losses[-1].item()
        # Logits of variance 1, as a tied table gives them, cost half a nat.
        if abs(first - math.log(vocab_size)) > 0.75:
            wrong.append(f"begins at {first:.2f} nats, not near ln V")
        if not last < first - 0.02:
            wrong.append(f"its loss does not fall: {first:.3f}, {last:.3f}")
        n = count(self.model.module)
        if abs(n / n_ours - 1) > 0.05 and not self.model.note:
            wrong.append(f"has {n:,} parameters, not {n_ours:,}")
        if still := self._untrained():
            wrong.append(f"no gradient reaches {still[0]}")
        if self._overlooked():
            wrong.append("its loss does not see every row")
        return wrong

    def _untrained(self) -> list[str]:
        self.loss(*self.batch).backward()
        named = list(self.model.module.named_parameters())
        still = [n for n, p in named if p.requires_grad and p.grad is None]
        self.optimizer.zero_grad()
        return still

    def _overlooked(self) -> bool:
        """True if a wrong first or last target goes unnoticed."""
        self.model.module.eval()
        *inputs, targets = self.batch
        losses = []
        with torch.no_grad():
            for row, column in ((None, None), (0, 0), (-1, -1)):
                changed = targets.clone()
                if row is not None:
                    changed[row, column] += 1 - 2 * (changed[row, column] > 0)
                losses.append(self.loss(*inputs, changed).item())
        self.model.module.train()
        return losses[0] in losses[1:]


def count(module: nn.Module) -> int:
    """Parameters that are trained, a shared one once."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def flops_per_token(n_parameters: int, shape: Shape) -> int:
    """FLOPs of a training step per token: ``6 N + 12 L D T``."""
    attention = 12 * shape.n_layers * shape.d_model * shape.context
    return 6 * n_parameters + attention


def steps(
    settings: Settings, size: str, how: str, compiled: bool = False
) -> dict[str, Any]:
    """Race training steps of one size in one precision."""
    shape = SHAPES[size]
    kind = "pairs" if size == "base" else "gpt"
    batch = sample(shape, 3 if kind == "pairs" else 2)
    n_ours = 0

    def prepare(model: Model) -> Entry:
        nonlocal n_ours
        trainee = Trainee(model, batch, how, compiled, settings.device)
        n = count(model.module)
        n_ours = n_ours or n

        def facts() -> dict[str, Any]:
            ends = [round(trainee.losses[i].item(), 3) for i in (0, -1)]
            found: dict[str, Any] = {"parameters": n, "losses": ends}
            if kind == "gpt":
                found["flops_per_token"] = flops_per_token(n, shape)
            return found

        check = partial(trainee.check, n_ours, shape.vocab_size)
        return Entry(trainee, check, facts, model.note)

    task = Task(kind, shape)
    work = shape.batch * shape.context
    return compete(task, prepare, settings, work, apart=size == "M")


def defaults(settings: Settings) -> dict[str, Any]:
    """Race what users get without asking: our loop, others in fp32."""
    shape = SHAPES["S"]
    batch = sample(shape, 2)
    n_ours = 0

    def prepare(model: Model) -> Entry:
        nonlocal n_ours
        is_ours, n_ours = not n_ours, n_ours or count(model.module)
        trainee = Trainee(model, batch, "fp32", compiled=False)
        check = partial(trainee.check, n_ours, shape.vocab_size)
        if not is_ours:
            return Entry(trainee, check, note=model.note)
        config = TrainConfig(steps=0, warmup_steps=0, learning_rate=RATE)
        state = new_state(model.module, config)
        whole = Batch({"ids": batch[0]}, batch[1])

        def call() -> None:
            one = replace(config, steps=state.step + 1)
            train(
                model.module,
                lambda _: [whole],
                one,
                state=state,
                progress=False,
            )
            trainee.losses.append(torch.tensor(state.losses[-1]))

        return Entry(call, check)

    work = shape.batch * shape.context
    return compete(Task("gpt", shape), prepare, settings, work)


def compiled_steps(settings: Settings, size: str, how: str) -> dict[str, Any]:
    """The same steps, every model compiled first."""
    import shutil

    if not any(map(shutil.which, ("g++", "clang++"))):
        raise Missing("torch.compile needs a C++ compiler: install g++")
    return steps(settings, size, how, compiled=True)


def _row(
    size: str, how: str, ratio: float = 0.0, quick: bool = True
) -> Workload:
    targets = (Target(ratio),) if ratio else ()
    run = partial(steps, size=size, how=how)
    return Workload(f"train {size} {how}", "tokens/s", run, targets, quick)


def _compiled(size: str, how: str, ratio: float = 0.0) -> Workload:
    targets = (Target(ratio),) if ratio else ()
    run = partial(compiled_steps, size=size, how=how)
    name = f"train {size} {how} compiled"
    return Workload(name, "tokens/s", run, targets, quick=False)


WORKLOADS = [
    _row("S", "fp32", 1.05),
    _row("S", "fp32 oneDNN", quick=False),
    _row("S", "bf16", 1.25),
    Workload(
        "train S by default",
        "tokens/s",
        defaults,
        (Target(1.8, against="nanogpt"),),
    ),
    _row("C", "fp32"),
    _row("C", "bf16", 1.4),
    _row("M", "fp32", quick=False),
    _row("M", "bf16", quick=False),
    _row("base", "fp32", 1.15),
    _row("base", "bf16", 1.15),
    _compiled("S", "fp32", 1.05),
    _compiled("S", "bf16", 1.25),
    _compiled("C", "fp32"),
    _compiled("C", "bf16", 1.4),
]
