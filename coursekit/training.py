"""One loop that trains every model of this package.

A training step is: gradients of the mean loss over all tokens of the step,
cut to a length, applied by AdamW at the rate of the schedule.  All that is
random in a step depends on (seed, number of the step) alone, so a run that
was stopped goes on, from its checkpoint, as if nothing had happened.
"""

import hashlib
import math
import os
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from coursekit.checks import TrainingDiverged, not_finite, require
from coursekit.config import TrainConfig
from coursekit.data import Batch
from coursekit.devices import device_of, evaluating, pick_precision
from coursekit.loss import Loss, token_loss
from coursekit.optim import make_optimizer, make_schedule
from coursekit.progress import Bar


@dataclass(frozen=True)
class ProcessGroup:
    """The processes that train one model: one, unless more are passed in.

    Each computes on its shard of every batch.  What a model of several
    processes does with its gradients is take their mean; all else that the
    loop has to know of the others is in ``sum``.

    Chapter: 11, training.
    """

    rank: int = 0
    """The number of this process, from 0; each has a dropout of its own."""
    size: int = 1
    """How many there are."""
    sum: Callable[[float], float] = float
    """Adds a number up over all processes; each calls it, and gets the sum."""


SINGLE_PROCESS = ProcessGroup()


@dataclass(frozen=True)
class Progress:
    """State of training that callbacks receive after each update."""

    step: int
    """Updates done so far."""
    steps: int
    """Updates the run will have."""
    loss: float
    """Mean nats a token of this step's batch, before the update."""
    learning_rate: float
    """The rate of this update."""
    grad_norm: float
    """Length of the gradient before clipping."""
    tokens: int
    """Targets seen since the run began."""
    tokens_per_second: float = 0.0
    """Since the loop began, without evaluations and callbacks."""
    validation_loss: float | None = None
    """Mean nats a token of the whole validation split, if it is due."""
    is_best: bool = False
    """True if that is the lowest so far."""
    is_last: bool = False
    """True if the loop ends here: all steps done, time up, or a callback
    before this one has ended it."""


@dataclass
class TrainState:
    """State of a run besides its weights: optimizer, step, best loss."""

    optimizer: torch.optim.Optimizer
    """With the means that it keeps of each weight's gradient."""
    step: int = 0
    """Updates done so far."""
    tokens: int = 0
    """Targets seen so far."""
    best: float | None = None
    """Lowest validation loss, in nats a token."""
    losses: list[float] = field(default_factory=list)
    """The loss of each step."""
    history: list[dict[str, Any]] = field(default_factory=list)
    """One record for each evaluation."""


Callback = Callable[[Progress], bool | None]


def new_state(model: nn.Module, config: TrainConfig) -> TrainState:
    """The state of a run that has not begun."""
    return TrainState(make_optimizer(model, config))


def train(  # noqa: PLR0913 (a page shows each as an argument)
    model: nn.Module,
    batches: Callable[[int], Iterable[Batch]],
    config: TrainConfig,
    validation: Iterable[Batch] | None = None,
    callbacks: Sequence[Callback] = (),
    state: TrainState | None = None,
    progress: bool | None = None,
    seconds: float | None = None,
    group: ProcessGroup = SINGLE_PROCESS,
    loss: Loss | None = None,
) -> TrainState:
    """Train a model, from the beginning or from where a state stands.

    Chance (dropout) is seeded again at each step; afterward the caller's
    random numbers, on the CPU and on the model's device, are as before.

    Args:
        model: maps ``**batch.inputs`` to logits (B, T, V); on its device.
            It is left in training mode.
        batches: from the number of a step, from 0, to its micro-batches; a
            pure function, so that a resumed run sees the same data.
        config: how to train.
        validation: batches that cover the validation split; looked at every
            ``eval_every`` updates and after the last. All of them are moved
            to the device at the beginning, and stay there.
        callbacks: called in order after each update; one that returns
            True ends the run, and those behind it see ``is_last``.
        state: of a run to go on with; by default a new one.
        progress: show a progress bar; by default where stderr is a terminal.
        seconds: wall time after which no step begins; the last one done
            is then treated as the last of the run.
        group: of which this process is one; model and batches are then its
            shard, and its callbacks end the run as the others' do.
        loss: in training and evaluation, in place of
            :func:`coursekit.loss.token_loss`; the *sum* over the targets of
            a batch, see :data:`coursekit.loss.Loss`.

    Returns:
        The state after the last update.

    Raises:
        TrainingDiverged: if loss or gradient is not finite; the weights
            are then those before the step.
        ValueError: if a step has no target, there is nothing to train, the
            state is of another model, or the loss can't be smoothed or
            chunked as ``config`` says.

    Chapter: 11, training.
    """
    state = new_state(model, config) if state is None else state
    device = device_of(model)
    precision = pick_precision(config.precision, device)
    training_loss, eval_loss = _losses(config, loss, group)
    held_out = [batch.to(device) for batch in validation or ()]
    look = partial(evaluate, model, held_out, precision, group, eval_loss)
    forward = _compiled(model) if config.compile else model
    model.train()
    gradients = partial(
        add_gradients,
        forward,
        loss=training_loss,
        precision=precision,
        group=group,
    )
    clock = Clock(seconds)
    with (
        forked_rng(device),
        TrainingBar(
            total=config.steps,
            initial=state.step,
            # None: tqdm itself looks whether stderr is a terminal.
            disable=None if progress is None else not progress,
            unit="step",
            dynamic_ncols=True,
        ) as bar,
    ):
        while state.step < config.steps:
            clock.start()
            seed_step(config.seed, state.step, group.rank)
            n_before = state.tokens
            report = _update(
                gradients, list(batches(state.step)), config, state, group
            )
            speed = clock.stop(state.tokens - n_before)
            is_late = group.sum(clock.is_over()) > 0
            is_last = state.step == config.steps or is_late
            report = replace(report, tokens_per_second=speed, is_last=is_last)
            if held_out and (is_last or state.step % config.eval_every == 0):
                report = _evaluated(report, look(), state)
            bar.show(report.loss, report.validation_loss, speed)
            for callback in callbacks:
                if callback(report) and not report.is_last:
                    report = replace(report, is_last=True)
                    if held_out and report.validation_loss is None:
                        report = _evaluated(report, look(), state)
            if report.is_last:
                break
    return state


def _compiled(model: nn.Module) -> nn.Module:
    """The model compiled, if there is a compiler."""
    compiler = os.environ.get("CXX") or "g++"
    on_cpu = device_of(model).type == "cpu"
    if on_cpu and not any(map(shutil.which, (compiler, "clang++", "cl"))):
        raise ValueError(
            "compile needs a C++ compiler on the CPU: got none. Install "
            "g++, or train without compile (--no-compile, also to resume)."
        )
    compiled: Any = torch.compile(model)
    return compiled


def _losses(
    config: TrainConfig, loss: Loss | None, group: ProcessGroup
) -> tuple[Loss, Loss]:
    """The losses of training and of evaluation, which isn't smoothed."""
    if config.loss_chunk_size and group.size > 1:
        raise ValueError(
            "loss_chunk_size is for a single process, since gradients of "
            f"chunks are shared too early: got a group of {group.size}. Set "
            "loss_chunk_size=0."
        )
    if loss is not None:
        require(
            not (config.label_smoothing or config.loss_chunk_size),
            "label_smoothing and loss_chunk_size are of the usual loss",
            f"{config.label_smoothing} and {config.loss_chunk_size}, and loss",
            "Leave them at 0, and let the loss smooth and chunk by itself.",
        )
        return loss, loss
    plain = partial(token_loss, chunk_size=config.loss_chunk_size)
    return partial(plain, label_smoothing=config.label_smoothing), plain


def _update(
    gradients: Callable[[Sequence[Batch]], tuple[Tensor, int]],
    micro_batches: Sequence[Batch],
    config: TrainConfig,
    state: TrainState,
    group: ProcessGroup,
) -> Progress:
    """One update of the weights, noted in the state."""
    optimizer = state.optimizer
    weights = [p for g in optimizer.param_groups for p in g["params"]]
    optimizer.zero_grad(set_to_none=True)
    own, n_targets = gradients(micro_batches)
    if all(weight.grad is None for weight in weights):
        raise ValueError(
            "the state must be of this model: got an optimizer whose weights "
            "the loss does not depend on. Use new_state(model, config), or "
            "the state that trained it."
        )
    length = nn.utils.clip_grad_norm_(
        weights, config.max_grad_norm or math.inf
    )
    # Here the CPU waits for the device; also in add_gradients, which counts
    # the targets, if the batches lie there.
    norm, nats = length.item(), group.sum(own.item())
    if not (math.isfinite(nats) and math.isfinite(norm)):
        raise TrainingDiverged(
            "loss and gradient must be finite numbers: got loss "
            f"{nats} and gradient length {norm} at step {state.step + 1}. "
            "The weights are those before that step. Lower the learning rate "
            f"({config.learning_rate:.3g}), warm up longer, or clip harder."
        )
    state.step += 1
    rate = make_schedule(config)(state.step)
    for param_group in optimizer.param_groups:
        param_group["lr"] = rate
    optimizer.step()
    state.tokens += n_targets
    state.losses.append(nats)
    return Progress(
        state.step, config.steps, nats, rate, norm, tokens=state.tokens
    )


def add_gradients(
    forward: nn.Module,
    micro_batches: Sequence[Batch],
    loss: Loss = token_loss,
    precision: str = "float32",
    group: ProcessGroup = SINGLE_PROCESS,
) -> tuple[Float[Tensor, ""], int]:
    """Add up the gradients of the mean loss over *all* targets of a step.

    ``Σ over micro-batches of Σ nats / n``, n the targets of all of them:
    the gradient of one big batch.  The mean of the micro-batches' means
    would be another, as soon as they differ in how many targets count.

    Args:
        forward: the model, or its compiled form.
        micro_batches: at least one.
        loss: gives the sum over a batch.
        precision: ``"float32"`` or ``"bfloat16"`` (autocast).
        group: of which this process is one.

    Returns:
        The mean loss, in nats a target, and how many targets there were;
        in a group the targets of all, and this process's part of the loss.

    Raises:
        ValueError: if no target counts, or the loss cannot be chunked.

    Chapter: 11, training.
    """
    own = sum(batch.n_targets for batch in micro_batches)
    n_targets = int(group.sum(own))
    if n_targets == 0:
        raise ValueError(
            "a step needs at least one target that counts: got "
            f"{len(micro_batches)} micro-batches with none. Is everything "
            "padding (target -100)?"
        )
    device = device_of(forward)
    losses = []
    for batch in micro_batches:
        batch = batch.to(device)
        with autocast(device, precision):
            nats = loss(forward, batch.inputs, batch.targets)
        mean = nats / n_targets
        # The mean of the processes' gradients is to be the sum of these.
        (mean * group.size).backward()
        losses.append(mean.detach())  # the graph behind it is freed
    return torch.stack(losses).sum(), n_targets


def evaluate(
    model: nn.Module,
    batches: Iterable[Batch],
    precision: str = "float32",
    group: ProcessGroup = SINGLE_PROCESS,
    loss: Loss = token_loss,
) -> float:
    """Mean loss over all targets of all batches, with dropout off.

    ``Σ nats / Σ targets``: how the targets are distributed to batches does
    not change it.

    Args:
        model: left in the mode (training or evaluation) it came in.
        batches: usually :func:`coursekit.data.sequential_windows`.
        precision: ``"float32"`` or ``"bfloat16"`` (autocast).
        group: of which this process is one; the batches are its shard.
        loss: gives the sum over a batch.

    Returns:
        Nats a target, of all processes.

    Raises:
        ValueError: if no target counts, or the loss cannot be chunked.
        TrainingDiverged: if the loss or a weight is not finite.

    Chapter: 11, training.
    """
    device = device_of(model)
    sums, own = [], 0
    with evaluating(model.modules()):
        for batch in batches:
            own += batch.n_targets
            batch = batch.to(device)
            with autocast(device, precision):
                sums.append(loss(model, batch.inputs, batch.targets))
    n_targets = int(group.sum(own))
    if n_targets == 0:
        raise ValueError(
            "an evaluation needs at least one target that counts: got "
            f"{len(sums)} batches with none. Pass the batches as a list: an "
            "iterator that was used up gives nothing."
        )
    total = math.fsum(nats.item() for nats in sums)
    if not_finite(dict(model.named_parameters())):
        total = math.nan  # which attention can hide, see fast_attend
    mean = group.sum(total) / n_targets
    if not math.isfinite(mean):
        raise TrainingDiverged(
            f"the evaluation's loss must be a finite number: got {mean}. "
            "The weights are spoiled; go back to the last checkpoint and "
            "lower the learning rate."
        )
    return mean


def autocast(
    device: torch.device, precision: str
) -> AbstractContextManager[Any]:
    """Compute in that precision for a while.

    Args:
        device: where the model runs.
        precision: ``float32`` or ``bfloat16``.

    Raises:
        ValueError: if it is another.
    """
    if precision not in ("float32", "bfloat16"):
        raise ValueError(
            f"precision must be float32 or bfloat16 here: got {precision!r}. "
            "pick_precision turns auto into one of them."
        )
    return torch.autocast(
        device.type, torch.bfloat16, enabled=precision == "bfloat16"
    )


def seed_step(seed: int, step: int, rank: int = 0) -> None:
    """Seed torch's random numbers for one step of one process of a run.

    Were chance drawn from one long stream, a resumed run would have to find
    its place in it, on each device.  So each step begins its own.
    """
    name = f"dropout {seed} {step}" + (f" {rank}" if rank else "")
    digest = hashlib.sha256(name.encode()).digest()
    torch.manual_seed(int.from_bytes(digest[:4], "big"))


def forked_rng(device: torch.device) -> AbstractContextManager[None]:
    """Give torch's random numbers back as they were, but for MPS's own."""
    if device.type in ("cpu", "mps"):
        return torch.random.fork_rng(devices=[])
    return torch.random.fork_rng(
        devices=[device.index or 0], device_type=device.type
    )


def _evaluated(report: Progress, nats: float, state: TrainState) -> Progress:
    """Note an evaluation in the state, and in what is reported."""
    is_best = state.best is None or nats < state.best
    state.best = nats if is_best else state.best
    state.history.append(
        {
            "step": report.step,
            "tokens": report.tokens,
            "loss": report.loss,
            "validation_loss": nats,
            "learning_rate": report.learning_rate,
        }
    )
    return replace(report, validation_loss=nats, is_best=is_best)


class Clock:
    """Tokens a second while training, and nothing else, goes on.

    Args:
        seconds: after which the time is up; None: never.
    """

    def __init__(self, seconds: float | None) -> None:
        self.spent, self.tokens, self.began = 0.0, 0, time.perf_counter()
        self.end = self.began + (math.inf if seconds is None else seconds)

    def start(self) -> None:
        """A step begins."""
        self.began = time.perf_counter()

    def stop(self, tokens: int) -> float:
        """A step of so many tokens ends; tokens a second so far."""
        self.spent += time.perf_counter() - self.began
        self.tokens += tokens
        return self.tokens / max(self.spent, 1e-9)

    def is_over(self) -> bool:
        """True if the time limit is reached."""
        return time.perf_counter() >= self.end


class TrainingBar(Bar):
    """A progress bar with the loss, the validation loss and the speed."""

    validation = ""

    def show(
        self, loss: float, validation_loss: float | None, speed: float
    ) -> None:
        """One step further.

        Args:
            loss: of the step, in nats per token.
            validation_loss: if there was an evaluation.
            speed: in tokens per second.
        """
        if self.disable:
            return
        if validation_loss is not None:
            self.validation = f"validation {validation_loss:.3f}, "
        self.set_postfix_str(
            f"loss {loss:.3f}, {self.validation}{speed:,.0f} tokens/s",
            refresh=False,
        )
        self.update()
