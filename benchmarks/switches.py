"""Worth of each of our speed-ups: the time with it and without.

Every one is a function or a method with a name, and a readable form beside
it.  Here the name is bound to the readable form, for one contestant of two.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from benchmarks.clock import Call, race
from benchmarks.contest import (
    OURS,
    Model,
    Settings,
    Task,
    Workload,
    duel,
)
from benchmarks.generating import PROMPT, SOURCE
from benchmarks.peers import ours
from benchmarks.training import SHAPES, Trainee, sample

Off = dict[str, Any]
"""By the name of a function or method, what stands in for it."""


def never(*_: object) -> bool:
    """In place of a question whether something is quicker."""
    return False


def as_it_is(model: Any, n_rows: int = 1) -> Any:
    """In place of packing."""
    return model


PRODUCTS: Off = {"coursekit.attention.is_quicker_in_products": never}
DROPOUT: Off = {
    f"coursekit.{name}.fast_dropout": F.dropout
    for name in ("dropout", "attention")
}
PACKED: Off = {"benchmarks.peers.ours.pack": as_it_is}


def under(off: Off, call: Callable[[], Any]) -> Any:
    """Call with the stand-ins in place."""
    with ExitStack() as stack:
        for name, other in off.items():
            stack.enter_context(patch(name, other))
        return call()


def worth(
    settings: Settings,
    size: str,
    off: Off,
    prepare: Callable[[Model, Sequence[Tensor]], Call],
    work: int,
) -> dict[str, Any]:
    """Race us against ourselves without a speed-up.

    Args:
        settings: of the command line.
        size: of the model, a name of ``SHAPES``.
        off: what the slower one is without.
        prepare: makes a call of a model and batches.
        work: tokens of a call.

    Returns:
        As :func:`benchmarks.contest.compete`.
    """
    shape = SHAPES[size]
    kind, make, n = "gpt", ours.gpt, 2
    if size == "base":
        kind, make, n = "pairs", ours.pairs, 3
    calls = {}
    for name, without in ((OURS, {}), ("without", off)):
        torch.manual_seed(0)
        build = partial(make, Task(kind, shape), settings)
        call = prepare(under(without, build), sample(shape, n))
        calls[name] = partial(under, without, call)
    return duel(race(calls, settings.rounds, settings.slot), work)


def step(model: Model, batches: Sequence[Tensor]) -> Call:
    """A training step in bfloat16."""
    return Trainee(model, tuple(batches), "bf16", compiled=False)


def writing(n_beams: int, model: Model, batches: Sequence[Tensor]) -> Call:
    """A text of 50 tokens."""
    length = SOURCE if n_beams > 1 else PROMPT
    ids = batches[0].flatten()[:length][None]
    beams = {"n_beams": n_beams} if n_beams > 1 else {}
    assert model.write is not None
    write = partial(model.write, ids, 50, **beams)

    def call() -> None:
        with torch.no_grad():
            write()

    return call


def _step(what: str, size: str, off: Off) -> Workload:
    work = SHAPES[size].batch * SHAPES[size].context
    run = partial(worth, size=size, off=off, prepare=step, work=work)
    name = f"worth of {what}, {size} bf16"
    return Workload(name, "tokens/s", run)


def _writing(size: str, n_beams: int) -> Workload:
    prepare = partial(writing, n_beams)
    run = partial(worth, size=size, off=PACKED, prepare=prepare, work=50)
    how = f"{size}, beam {n_beams}" if n_beams > 1 else size
    return Workload(f"worth of packed weights, {how}", "tokens/s", run)


# Two of each, at least 1.1.  In CPU time on one thread, without AMX: attention
# in products 1.36 and 1.27, but 1.04 in S and in base; dropout 1.08 to 1.13 in
# base, 1.16 in C; packed weights 1.4 and 1.2.
WORKLOADS = [
    _step("attention in products", "C", PRODUCTS),
    _step("attention in products", "C, 128 positions", PRODUCTS),
    _step("faster dropout", "base", DROPOUT),
    _step("faster dropout", "C, dropout 0.1", DROPOUT),
    _writing("S", 1),
    _writing("base", 4),
]
