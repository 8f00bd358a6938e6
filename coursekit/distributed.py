"""Past one machine: one model, trained by the processes that torchrun starts.

Each process takes its rows of every batch and works through them with the
same loop as ever; PyTorch takes the mean of the gradients.  Two engines do:
DDP keeps the whole model in each process, FSDP2 a part of each weight.  What
is computed is what one process would compute with the same batches, so runs
may change between one process and many at any checkpoint::

    torchrun --nproc-per-node 2 -m coursekit train --out RUN --parallel ddp

Only dropout differs: each process draws its own.
"""

import copy
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from coursekit.checkpoint import Saver
from coursekit.config import TrainConfig
from coursekit.data import IGNORE, Batch
from coursekit.optim import make_optimizer
from coursekit.training import ProcessGroup, TrainState

LAUNCHED = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Environment variables that torchrun sets in each process."""
BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}
"""Communication backends, by the model's device."""
PATIENCE = 10.0
"""Seconds that torchrun has to end a process that has lost another."""


# -- the processes -----------------------------------------------------------


def is_launched() -> bool:
    """True if torchrun started this process.

    Chapter: 18, scaling.
    """
    return all(name in os.environ for name in LAUNCHED)


class ProcessLost(ValueError):  # noqa: N818 (an end, as StopIteration)
    """Another process of the run has ended, or all were told to."""


@contextmanager
def connect(
    device: torch.device,
) -> Iterator[tuple[ProcessGroup, torch.device]]:
    """Initialize the process group, and destroy it at the end.

    When one of them dies, a sum over all fails, and torchrun sends SIGTERM
    to those that are left; its report says which one it was.

    Args:
        device: the kind that each process computes on, cpu or cuda.

    Returns:
        A context of this group and of this process's own device.  An error
        leaves it in the first process that has one; the others exit.

    Raises:
        ValueError: if torchrun did not start this process, or PyTorch has
            nothing that connects processes on this device.
        ProcessLost: inside the context, when torchrun ends this process.

    Chapter: 18, scaling.
    Test: test_distributed.py::test_a_killed_worker_ends_the_run
    """
    _check_launch(device)
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    store, rank, size = next(dist.rendezvous("env://"))
    backend = BACKENDS[device.type]
    dist.init_process_group(backend, store=store, rank=rank, world_size=size)
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        try:
            yield ProcessGroup(rank, size, _sum_over_all), device
        except RuntimeError:
            time.sleep(PATIENCE)  # if it comes of another's end, `stop` says
            raise
    except Exception as error:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it has its say first
        if store.add("errors", 1) > 1:  # what comes later only follows
            raise SystemExit(1) from error
        raise
    signal.signal(signal.SIGTERM, before)
    dist.destroy_process_group()


def _stop(*_: object) -> None:
    """Answer SIGTERM.

    Raises:
        ProcessLost: always.
    """
    raise ProcessLost(
        "all processes of a run must live: got SIGTERM, which torchrun sends "
        "when one of them has ended, or when it is stopped itself. Its "
        "report says which one and how (exit code -9: killed, for its "
        "memory perhaps)."
    )


def _check_launch(device: torch.device) -> None:
    """Refuse what cannot become several processes.

    Raises:
        ValueError: as :func:`connect` says.
    """
    if not is_launched():
        missing = [name for name in LAUNCHED if name not in os.environ]
        raise ValueError(
            "only torchrun starts processes that can work together: got one "
            f"without {', '.join(missing)}. Start it as torchrun "
            "--nproc-per-node 2 -m coursekit train ..."
        )
    if device.type not in BACKENDS:
        raise ValueError(
            "processes can work together on cpu or cuda: got "
            f"{device.type}. Add --device cpu."
        )
    needed = {"cpu": ("gloo",), "cuda": ("gloo", "nccl")}[device.type]
    lacking = [name for name in needed if not _has_backend(name)]
    if lacking:
        raise ValueError(
            f"processes on {device.type} need {' and '.join(needed)}: got a "
            f"PyTorch without {', '.join(lacking)}. Add --device cpu, use "
            "Linux, or train in one process."
        )
    local, n_gpus = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if device.type == "cuda" and local >= n_gpus:
        raise ValueError(
            "each process needs a GPU of its own: got at least "
            f"{local + 1} processes and {n_gpus} GPUs on this machine. Lower "
            "--nproc-per-node, or add --device cpu."
        )


def _has_backend(name: str) -> bool:
    """True if this PyTorch has the backend: gloo or nccl."""
    there = dist.is_available() and getattr(dist, f"is_{name}_available")()
    return bool(there)


def _sum_over_all(number: float) -> float:
    """Add a number up over all processes, in float64; a collective."""
    summed = torch.tensor(float(number), dtype=torch.float64)
    dist.all_reduce(summed)
    return summed.item()


# -- the data ----------------------------------------------------------------


def shard_batch(batch: Batch, group: ProcessGroup) -> Batch:
    """Return this process's rows of a batch: every size-th.

    All shards together have each row once.  If there are more processes
    than rows, those without one compute on the first, with no target that
    counts: all have to take part in each step.

    Args:
        batch: inputs and targets, rows first; B ≥ 1.
        group: of which this process is one.

    Returns:
        About B / size rows.  Padding is kept.

    Raises:
        ValueError: if an input has not a row for each row of targets.

    Chapter: 18, scaling.
    Test: test_distributed.py::test_each_row_has_one_process
    """
    n = len(batch.targets)
    wrong = {k: len(x) for k, x in batch.inputs.items() if len(x) != n}
    if wrong or n == 0:
        raise ValueError(
            "a batch is split by rows, so each input has one for each of "
            f"its targets: got {wrong or 'none'} and {n} rows of targets. "
            "Expand what is shared to all rows."
        )
    mine = slice(group.rank, None, group.size)
    targets = batch.targets[mine]
    if not len(targets):
        mine = slice(1)
        targets = torch.full_like(batch.targets[mine], IGNORE)
    return Batch({k: x[mine] for k, x in batch.inputs.items()}, targets)


# -- the engines -------------------------------------------------------------


def replicate(model: nn.Module) -> nn.Module:
    """Wrap a model in DDP: a copy in each process, gradients averaged.

    Args:
        model: on this process's device; stays in use, with its names.

    Returns:
        What to train in its place.

    Chapter: 18, scaling.
    Source: li2020ddp.
    Test: test_distributed.py::test_losses_are_those_of_one_process
    """
    return nn.parallel.DistributedDataParallel(model)


def shard(
    model: nn.Module,
    state: TrainState,
    config: TrainConfig,
    device: torch.device,
) -> tuple[nn.Module, TrainState]:
    """Shard a model and its optimizer by FSDP2: a part in each process.

    A block's weights are whole only while it computes.

    Args:
        model: on any device; is copied, for :func:`gather_state` to fill.
        state: of that model, fresh or loaded.
        config: how to train.
        device: this process's.

    Returns:
        What to train in their place.

    Raises:
        ValueError: if the optimizer is Muon.

    Chapter: 18, scaling.
    Source: zhao2023fsdp; rajbhandari2020zero, stage 3.
    Test: test_distributed.py::test_losses_are_those_of_one_process
    """
    if config.optimizer == "muon":
        raise ValueError(
            "fsdp leaves each process a part of a matrix, and muon needs "
            "whole ones: got optimizer='muon'. Use --parallel ddp, or "
            "--optimizer adamw."
        )
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor, distribute_tensor

    def spread(value: Tensor, like: DTensor) -> Tensor:
        if value.shape != like.shape:  # the number of the step
            return value.to(like.device, copy=True)
        # Each process has all of it, and cuts out its own part.
        return distribute_tensor(
            value, like.device_mesh, like.placements, src_data_rank=None
        )

    sharded = copy.deepcopy(model)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    stacks = [m for m in sharded.modules() if isinstance(m, nn.ModuleList)]
    for part in [block for stack in stacks for block in stack] + [sharded]:
        fully_shard(part, mesh=mesh)
    optimizer = make_optimizer(sharded, config)
    for whole, ours in _pairs(state.optimizer, optimizer):
        moments = state.optimizer.state[whole]
        optimizer.state[ours] = {
            k: spread(v, ours) for k, v in moments.items()
        }
    return sharded, replace(state, optimizer=optimizer)


def gather_state(state: TrainState, saver: Saver, group: ProcessGroup) -> None:
    """Gather sharded weights and optimizer state in the first process.

    Args:
        state: of the sharded model.
        saver: of the whole model and state, as :func:`shard` got them.
        group: each of its processes calls this.

    Chapter: 18, scaling.
    Test: test_distributed.py::test_a_run_may_change_its_processes
    """
    optimizer = saver.state.optimizer
    for whole, ours in _pairs(optimizer, state.optimizer):
        weight, moments = _full(ours.detach()), state.optimizer.state[ours]
        # In one order: what is loaded from a file comes in any.
        moments = {
            k: _full(moments[k]).to(whole.device) for k in sorted(moments)
        }
        if group.rank == 0:
            whole.data.copy_(weight)
            optimizer.state[whole] = moments
    saver.state = replace(state, optimizer=optimizer)


def _full(value: Any) -> Tensor:
    """A tensor from all its shards."""
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def _pairs(
    one: torch.optim.Optimizer, other: torch.optim.Optimizer
) -> Iterator[tuple[Any, Any]]:
    """The same weight as two optimizers know it, weight by weight."""
    for group, same in zip(one.param_groups, other.param_groups, strict=True):
        yield from zip(group["params"], same["params"], strict=True)


# -- checkpoints -------------------------------------------------------------


def check_same_step(step: int, group: ProcessGroup) -> None:
    """Refuse processes that begin from different checkpoints.

    Args:
        step: from which this process would go on.
        group: each of its processes calls this.

    Raises:
        ValueError: if not all steps are equal.

    Chapter: 18, scaling.
    """
    mean = group.sum(step) / group.size
    if group.sum(step != mean):
        raise ValueError(
            "all processes must go on from the same checkpoint: got step "
            f"{step} in rank {group.rank}, {mean:g} on average. Choose an "
            "--out that all machines see."
        )
