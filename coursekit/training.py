"""One loop that trains every model of this package.

A training step is: gradients of the mean loss over all tokens of the step,
cut to a length, applied by AdamW at the rate of the schedule.  All that is
random in a step depends on (seed, number of the step) alone, so a run that
was stopped goes on, from its checkpoint, as if nothing had happened.
"""

import ctypes
import hashlib
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from tqdm import tqdm

from coursekit.config import TrainConfig
from coursekit.data import Batch
from coursekit.loss import (
    backward_in_pieces,
    fast_cross_entropy,
    nats_in_pieces,
)
from coursekit.optim import make_optimizer, make_schedule

__all__ = [
    "Progress",
    "Team",
    "TrainState",
    "TrainingDiverged",
    "add_gradients",
    "evaluate",
    "float32_products",
    "kept_memory",
    "pick_device",
    "pick_float32",
    "pick_precision",
    "seed_step",
    "start",
    "train",
]


FLOAT32_ROUTES = ("none", "bf16")
"""Of float32 products on a CPU: MKL's, and oneDNN's."""

# Of malloc.h: which settings of the C library's memory to change.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4
_KEPT: list[bool] = []  # whether memory is being kept


class TrainingDiverged(ValueError):  # noqa: N818 (an end, as StopIteration)
    """A loss, gradient or weight is no number any more."""


@dataclass(frozen=True)
class Team:
    """The processes that train one model: one, unless more are passed in.

    Each computes on its share of every batch.  What a model of several
    processes does with its gradients is take their mean; all else that the
    loop has to know of the others is in ``total``.

    Chapter: 11, training.
    """

    rank: int = 0
    """The number of this process, from 0; each has a dropout of its own."""
    size: int = 1
    """How many there are."""
    total: Callable[[float], float] = float
    """Adds a number up over all processes; each calls it, and gets the sum."""


ALONE = Team()


@dataclass(frozen=True)
class Progress:
    """What the loop tells its callbacks after each update."""

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
    tokens_per_second: float
    """Since the loop began, without evaluations and callbacks."""
    validation_loss: float | None = None
    """Mean nats a token of the whole validation split, if it is due."""
    is_best: bool = False
    """Whether that is the lowest so far."""
    is_last: bool = False
    """Whether the loop ends here, all steps done or time up."""


@dataclass
class TrainState:
    """What a run needs, besides its weights, to go on."""

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


def start(model: nn.Module, config: TrainConfig) -> TrainState:
    """The state of a run that has not begun."""
    return TrainState(make_optimizer(model, config))


def train(
    model: nn.Module,
    batches: Callable[[int], Sequence[Batch]],
    config: TrainConfig,
    validation: Iterable[Batch] | None = None,
    callbacks: Sequence[Callback] = (),
    state: TrainState | None = None,
    bar: bool | None = None,
    seconds: float | None = None,
    team: Team = ALONE,
) -> TrainState:
    """Train a model, from the beginning or from where a state stands.

    The caller's random numbers are untouched: chance (dropout) is seeded
    anew at each step.

    Args:
        model: maps ``**batch.inputs`` to logits (B, T, V); on its device.
            It is left in training mode.
        batches: from the number of a step, from 0, to its micro-batches; a
            pure function, so that a resumed run sees the same data.
        config: how to train.
        validation: batches that cover the validation split; looked at every
            ``eval_every`` updates and after the last.
        callbacks: called after each update; one that returns True ends
            the run.
        state: of a run to go on with; by default a new one.
        bar: show a progress bar; by default where stderr is a terminal.
        seconds: wall time after which no step begins; the last one done
            is then treated as the last of the run.
        team: of which this process is one; model and batches are then its
            share, and its callbacks end the run as the others' do.

    Returns:
        The state after the last update.

    Raises:
        TrainingDiverged: if loss or gradient is not finite; the weights
            are then those before the step.
        ValueError: if a step has no target, there is nothing to train, or
            the state is of another model.

    Chapter: 11, training.
    """
    state = start(model, config) if state is None else state
    device = _device_of(model)
    precision = pick_precision(config.precision, device)
    forward = _compiled(model) if config.compile else model
    held_out = [batch.to(device) for batch in validation or ()]
    schedule = make_schedule(config)
    model.train()
    clock = _Clock()
    end = time.perf_counter() + (math.inf if seconds is None else seconds)
    with (
        _forked_rng(device),
        kept_memory(),
        float32_products(pick_float32(device)),
        _Bar(state.step, config.steps, bar) as shown,
    ):
        while state.step < config.steps:
            clock.start()
            rate = schedule(state.step + 1)
            seed_step(config.seed, state.step, team.rank)
            micro_batches = list(batches(state.step))
            loss, norm, n_targets = _update(
                forward, micro_batches, config, state, rate, precision, team
            )
            state.step += 1
            state.tokens += n_targets
            state.losses.append(loss)
            speed = clock.stop(n_targets)
            nats, is_best = None, False
            is_late = team.total(time.perf_counter() >= end) > 0
            is_last = state.step == config.steps or is_late
            due = is_last or state.step % config.eval_every == 0
            if held_out and due:
                nats = evaluate(
                    model, held_out, precision, team, config.loss_rows
                )
                is_best = _record(state, loss, nats, rate)
            progress = Progress(
                state.step,
                config.steps,
                loss,
                rate,
                norm,
                state.tokens,
                speed,
                nats,
                is_best,
                is_last,
            )
            shown.update(progress)
            wants = [callback(progress) for callback in callbacks]
            if is_last or any(wants):
                break
    return state


def _update(
    forward: Callable[..., Tensor],
    micro_batches: Sequence[Batch],
    config: TrainConfig,
    state: TrainState,
    rate: float,
    precision: str,
    team: Team,
) -> tuple[float, float, int]:
    """One update; the loss, the gradient's length, the number of targets."""
    optimizer = state.optimizer
    weights = [p for g in optimizer.param_groups for p in g["params"]]
    optimizer.zero_grad(set_to_none=True)
    part, n_targets = add_gradients(
        forward,
        micro_batches,
        config.label_smoothing,
        precision,
        team,
        config.loss_rows,
    )
    if all(weight.grad is None for weight in weights):
        raise ValueError(
            "the state must be of this model: got an optimizer whose weights "
            "the loss does not depend on. Use start(model, config), or the "
            "state that trained it."
        )
    limit = config.clip or math.inf
    length = nn.utils.clip_grad_norm_(weights, limit)
    # The one place a step where the CPU waits for the device.
    norm, loss = length.item(), team.total(part.item())
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise TrainingDiverged(
            "loss and gradient must be finite numbers: got loss "
            f"{loss} and gradient length {norm} at step {state.step + 1}. "
            "The weights are those before that step. Lower the learning rate "
            f"({config.learning_rate:.3g}), warm up longer, or clip harder."
        )
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()
    return loss, norm, n_targets


def add_gradients(
    forward: Callable[..., Tensor],
    micro_batches: Sequence[Batch],
    label_smoothing: float = 0.0,
    precision: str = "float32",
    team: Team = ALONE,
    loss_rows: int = 0,
) -> tuple[Float[Tensor, ""], int]:
    """Add up the gradients of the mean loss over *all* targets of a step.

    ``Σ over micro-batches of Σ nats / n``, n the targets of all of them:
    the gradient of one big batch.  The mean of the micro-batches' means
    would be another, as soon as they differ in how many targets count.

    Args:
        forward: the model, or its compiled form.
        micro_batches: at least one.
        label_smoothing: as in :func:`coursekit.loss.cross_entropy`.
        precision: ``"float32"`` or ``"bfloat16"`` (autocast).
        team: of which this process is one.
        loss_rows: how many rows of logits exist at a time (see
            :func:`coursekit.loss.backward_in_pieces`); 0: all.

    Returns:
        The mean loss, in nats a target, and how many targets there were;
        in a team the targets of all, and this process's part of the loss.

    Raises:
        ValueError: if no target counts, or the loss cannot be taken in
            pieces.

    Chapter: 11, training.
    """
    own = sum(batch.n_targets for batch in micro_batches)
    n_targets = int(team.total(own))
    if n_targets == 0:
        raise ValueError(
            "a step needs at least one target that counts: got "
            f"{len(micro_batches)} micro-batches with none. Is everything "
            "padding (target -100)?"
        )
    device = _device_of(forward)
    losses = []
    for batch in micro_batches:
        batch = batch.to(device)
        if loss_rows:
            hidden, head = _halves(forward, batch, precision, team)
            nats = backward_in_pieces(
                hidden,
                head,
                batch.targets,
                loss_rows,
                1 / n_targets,
                label_smoothing=label_smoothing,
            )
            losses.append(nats / n_targets)
            continue
        with _autocast(device, precision):
            logits = forward(**batch.inputs)
        nats = fast_cross_entropy(
            logits,
            batch.targets,
            label_smoothing=label_smoothing,
            reduction="sum",
        )
        loss = nats / n_targets
        # The mean of the processes' gradients is to be the sum of these.
        (loss * team.size).backward()
        losses.append(loss.detach())  # the graph behind it is freed
    return torch.stack(losses).sum(), n_targets


def _halves(
    model: Any, batch: Batch, precision: str, team: Team
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """What the head reads, and the head: the two halves of a model's call.

    Raises:
        ValueError: if the model cannot be taken apart.
    """
    # Of the type: a wrapper (DDP, torch.compile) passes its model's methods
    # on, but they would run without what the wrapper does.
    whole = type(model)
    if not (hasattr(whole, "hidden") and hasattr(whole, "logits")):
        raise ValueError(
            "loss_rows needs a model with the methods hidden and logits: got "
            f"{whole.__name__}. Set loss_rows=0, and do not compile or wrap "
            "the model."
        )
    if team.size > 1:
        raise ValueError(
            "loss_rows is for a single process, since gradients of pieces "
            f"are shared too early: got a team of {team.size}. Set "
            "loss_rows=0."
        )
    device = _device_of(model)

    def head(rows: Tensor) -> Tensor:
        with _autocast(device, precision):
            return model.logits(rows)

    with _autocast(device, precision):
        return model.hidden(**batch.inputs), head


def evaluate(
    model: nn.Module,
    batches: Iterable[Batch],
    precision: str = "float32",
    team: Team = ALONE,
    loss_rows: int = 0,
) -> float:
    """Mean loss over all targets of all batches, with dropout off.

    ``Σ nats / Σ targets``: how the targets are dealt out to batches does not
    change it.

    Args:
        model: left in the mode (training or evaluation) it came in.
        batches: usually :func:`coursekit.data.sequential_windows`.
        precision: ``"float32"`` or ``"bfloat16"`` (autocast).
        team: of which this process is one; the batches are its share.
        loss_rows: how many rows of logits exist at a time; 0: all.

    Returns:
        Nats a target, of all processes.

    Raises:
        ValueError: if no target counts, or the loss cannot be taken in
            pieces.
        TrainingDiverged: if the loss is not finite.

    Chapter: 11, training.
    """
    device = _device_of(model)
    modes = [(module, module.training) for module in model.modules()]
    sums, own = [], 0
    model.eval()
    try:
        # inference_mode would spoil what FSDP2 gathers, for the next step.
        with torch.no_grad():
            for batch in batches:
                own += batch.n_targets
                batch = batch.to(device)
                if loss_rows:
                    halves = _halves(model, batch, precision, team)
                    nats = nats_in_pieces(*halves, batch.targets, loss_rows)
                    sums.append(nats)
                    continue
                with _autocast(device, precision):
                    logits = model(**batch.inputs)
                nats = fast_cross_entropy(
                    logits, batch.targets, reduction="sum"
                )
                sums.append(nats)
    finally:
        for module, mode in modes:
            module.training = mode
    n_targets = int(team.total(own))
    if n_targets == 0:
        raise ValueError(
            "an evaluation needs at least one target that counts: got "
            f"{len(sums)} batches with none. Pass the batches as a list: an "
            "iterator that was used up gives nothing."
        )
    mean = team.total(math.fsum(nats.item() for nats in sums)) / n_targets
    if not math.isfinite(mean):
        raise TrainingDiverged(
            f"the evaluation's loss must be a finite number: got {mean}. "
            "The weights are spoiled; go back to the last checkpoint and "
            "lower the learning rate."
        )
    return mean


def seed_step(seed: int, step: int, rank: int = 0) -> None:
    """Seed torch's random numbers for one step of one process of a run.

    Were chance drawn from one long stream, a resumed run would have to find
    its place in it, on each device.  So each step begins its own.
    """
    name = f"dropout {seed} {step}" + (f" {rank}" if rank else "")
    digest = hashlib.sha256(name.encode()).digest()
    torch.manual_seed(int.from_bytes(digest[:4], "big"))


# -- the machine -------------------------------------------------------------


def pick_device(name: str = "auto") -> torch.device:
    """The device of that name, or the fastest there is.

    Args:
        name: ``auto``, ``cpu``, ``cuda`` or ``mps``.

    Returns:
        The device.

    Raises:
        ValueError: if there is no such device, here or anywhere.

    Chapter: 11, training.
    """
    there = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    here = [device for device, found in there.items() if found]
    if name == "auto":
        return torch.device(here[0])
    if name not in here:
        raise ValueError(
            f"the device must be auto or one that this machine has: got "
            f"{name!r}. Choose one of auto, {', '.join(here)}."
        )
    return torch.device(name)


def pick_precision(name: str, device: torch.device) -> str:
    """Resolve ``auto``: bfloat16 where the hardware multiplies in it.

    Elsewhere it would be emulated, and slower than float32.

    Args:
        name: ``float32``, ``bfloat16`` or ``auto``.
        device: where the model will run.

    Returns:
        ``float32`` or ``bfloat16``.

    Chapter: 11, training.
    """
    if name != "auto":
        return name
    fast = False
    if device.type == "cuda":
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    elif device.type == "cpu":
        names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
        checks = [getattr(torch.cpu, name, None) for name in names]
        fast = any(check() for check in checks if check is not None)
    return "bfloat16" if fast else "float32"


@cache
def _faster_exact_route(threads: int) -> str:
    """Time and check both libraries on one product, once a process.

    By turns, so that a slow moment of the machine hits both.
    """
    made = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 512, 512, generator=made)
    gold = a.double() @ b.double()
    error, seconds = {}, dict.fromkeys(FLOAT32_ROUTES, math.inf)
    for _ in range(12):
        for route in FLOAT32_ROUTES:
            with float32_products(route):
                begun = time.perf_counter()
                product = a @ b
                took = time.perf_counter() - begun
            seconds[route] = min(seconds[route], took)
            error[route] = (product.double() - gold).norm() / gold.norm()
    is_exact = error["bf16"] < 4 * error["none"]
    return (
        "bf16"
        if is_exact and seconds["bf16"] < 0.7 * seconds["none"]
        else "none"
    )


def pick_float32(device: torch.device) -> str:
    """Which library multiplies float32 numbers fastest, without a loss.

    On a CPU torch asks MKL.  Told that bfloat16 would do (``"bf16"``) it
    asks oneDNN, which on CPUs without units for bfloat16 matrices computes
    in full float32 all the same, on some of them twice as fast.  Where it
    really rounds, the error of one product shows it, and MKL stays.

    Args:
        device: where the model will run.

    Returns:
        A name for :func:`float32_products`: ``none`` (MKL) or ``bf16``.

    Chapter: 11, training.
    """
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return "none"
    return _faster_exact_route(torch.get_num_threads())


@contextmanager
def float32_products(route: str) -> Iterator[None]:
    """Multiply float32 matrices by one of ``FLOAT32_ROUTES``, for a while."""
    products: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = products.fp32_precision
    products.fp32_precision = route
    try:
        yield
    finally:
        products.fp32_precision = before


@contextmanager
def kept_memory() -> Iterator[None]:
    """Keep freed memory in the process for a while: the next step wants it.

    A step frees what the next one asks for again.  The C library of Linux
    gives large pieces back to the operating system, which must find and
    clear each page anew; where that is slow, the first steps can take twice
    as long.  Within this block nothing is given back; after it, all that is
    free.  A block within another changes nothing, nor does one on another
    system.

    Chapter: 11, training.
    Test: tests/test_training.py::test_memory_is_kept
    """
    is_linux = sys.platform == "linux"
    library: Any = ctypes.CDLL(None) if is_linux else None
    if not hasattr(library, "mallopt") or _KEPT:
        yield
        return
    _KEPT.append(True)
    library.mallopt(M_MMAP_MAX, 0)
    library.mallopt(M_TRIM_THRESHOLD, -1)
    try:
        yield
    finally:
        _KEPT.clear()
        library.mallopt(M_MMAP_MAX, 65_536)
        # Where the library's own rule ends up after a few large tensors.
        library.mallopt(M_MMAP_THRESHOLD, 2**25)
        library.mallopt(M_TRIM_THRESHOLD, 2**26)
        library.malloc_trim(0)


def _autocast(
    device: torch.device, precision: str
) -> AbstractContextManager[Any]:
    if precision not in ("float32", "bfloat16"):
        raise ValueError(
            f"precision must be float32 or bfloat16 here: got {precision!r}. "
            "pick_precision turns auto into one of them."
        )
    return torch.autocast(
        device.type, torch.bfloat16, enabled=precision == "bfloat16"
    )


def _device_of(model: Any) -> torch.device:
    return next(model.parameters()).device


def _compiled(model: nn.Module) -> Any:
    """The model's compiled form, which shares its weights."""
    compiler = os.environ.get("CXX") or "g++"
    on_cpu = _device_of(model).type == "cpu"
    if on_cpu and not any(map(shutil.which, (compiler, "clang++", "cl"))):
        raise ValueError(
            "compile needs a C++ compiler on the CPU: got none. Install "
            "g++, or train without compile."
        )
    return torch.compile(model)


def _forked_rng(device: torch.device) -> AbstractContextManager[None]:
    """Give torch's random numbers back as they were."""
    if device.type in ("cpu", "mps"):
        return torch.random.fork_rng(devices=[])
    return torch.random.fork_rng(
        devices=[device.index or 0], device_type=device.type
    )


# -- what is measured and shown ----------------------------------------------


def _record(state: TrainState, loss: float, nats: float, rate: float) -> bool:
    """Note an evaluation; say whether it is the best so far."""
    is_best = state.best is None or nats < state.best
    if is_best:
        state.best = nats
    state.history.append(
        {
            "step": state.step,
            "tokens": state.tokens,
            "loss": loss,
            "validation_loss": nats,
            "learning_rate": rate,
        }
    )
    return is_best


class _Clock:
    """Tokens a second while training, and nothing else, goes on."""

    def __init__(self) -> None:
        self.seconds, self.tokens, self.began = 0.0, 0, 0.0

    def start(self) -> None:
        self.began = time.perf_counter()

    def stop(self, tokens: int) -> float:
        self.seconds += time.perf_counter() - self.began
        self.tokens += tokens
        return self.tokens / max(self.seconds, 1e-9)


class _Bar:
    """A progress bar with the loss, the validation loss and the speed."""

    def __init__(self, step: int, steps: int, shown: bool | None) -> None:
        # None: tqdm itself looks whether stderr is a terminal.
        disable = None if shown is None else not shown
        self.bar = tqdm(
            total=steps,
            initial=step,
            disable=disable,
            unit="step",
            dynamic_ncols=True,
        )
        self.validation = ""

    def __enter__(self) -> "_Bar":
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def update(self, progress: Progress) -> None:
        if self.bar.disable:
            return
        if progress.validation_loss is not None:
            self.validation = f"validation {progress.validation_loss:.3f}, "
        self.bar.set_postfix_str(
            f"loss {progress.loss:.3f}, {self.validation}"
            f"{progress.tokens_per_second:,.0f} tokens/s",
            refresh=False,
        )
        self.bar.update()
