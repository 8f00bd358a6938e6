"""Interleaved timing: contestants take turns, so that drift hits all alike.

A machine's speed wanders by 15 % within minutes, but little within a round.
So everybody runs in every round, the order turns about (A B C C B A), and
what is compared is one run's medians, with the spread of the rounds' ratios.
"""

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

Call = Callable[[], object]
PRECISIONS = ("fp32", "fp32 oneDNN", "bf16")


@dataclass
class Timing:
    """Timings of one contestant, in seconds per call."""

    wall: list[float] = field(default_factory=list)
    """Of each round, by the clock on the wall."""
    cpu: list[float] = field(default_factory=list)
    """Of each round, over all threads of the process."""

    def summary(self) -> dict[str, float]:
        """The medians."""
        return {
            "wall_seconds": statistics.median(self.wall),
            "cpu_seconds": statistics.median(self.cpu),
        }


def turns(names: Sequence[str], rounds: int) -> list[list[str]]:
    """Order of the contestants: forward, backward, forward, …"""
    return [list(names)[:: -1 if r % 2 else 1] for r in range(rounds)]


def race(
    calls: Mapping[str, Call],
    rounds: int,
    slot: float = 0.0,
    slow: float = float("inf"),
    known: Mapping[str, tuple[float, float]] | None = None,
) -> dict[str, Timing]:
    """Time all contestants in turn, after a warm-up.

    Args:
        calls: by name, one unit of work each; the units are equal.
        rounds: how often each has its turn.
        slot: a turn repeats the call until the fastest contestant is busy
            for these many seconds; all repeat it equally often.
        slow: a first call that takes longer is itself the measurement.
        known: wall and CPU seconds of first calls that were made already.

    Returns:
        By name, seconds for one call in each round.
    """
    timings, warm = {name: Timing() for name in calls}, {}
    for name, call in calls.items():
        first = (known or {}).get(name) or timed(call, 1)
        if first[0] > slow:
            _note(timings[name], first)
        else:
            warm[name] = timed(call, 1)[0]
    repeats = max(1, round(slot / min(warm.values(), default=1.0)))
    for order in turns(list(warm), rounds):
        for name in order:
            _note(timings[name], timed(calls[name], repeats))
    return timings


def timed(call: Call, repeats: int) -> tuple[float, float]:
    """Wall and CPU seconds of a call, of so many in a row."""
    gc.collect()
    settle()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(repeats):
        call()
    settle()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return wall / repeats, cpu / repeats


def settle() -> None:
    """Wait for a GPU, if one is in use: its work is only queued by a call."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _note(timing: Timing, seconds: tuple[float, float]) -> None:
    timing.wall.append(seconds[0])
    timing.cpu.append(seconds[1])


def compare(ours: Timing, other: Timing) -> dict[str, Any]:
    """Ratio of another's time to ours, with its interval.

    Returns:
        ``ratio`` and ``cpu_ratio`` of the medians, above 1 if we are faster;
        ``spread``, the quartiles of the rounds' own wall ratios.
    """
    theirs = other.wall
    if len(theirs) == 1:  # a slow one, measured once
        theirs = theirs * len(ours.wall)
    each = [b / a for a, b in zip(ours.wall, theirs, strict=True)]
    return {
        "ratio": statistics.median(other.wall) / statistics.median(ours.wall),
        "spread": quartiles(each),
        "cpu_ratio": statistics.median(other.cpu)
        / statistics.median(ours.cpu),
    }


def quartiles(values: Sequence[float]) -> list[float]:
    """The lower and the upper quartile; of a single value, itself twice."""
    if len(values) < 2:
        return [values[0], values[0]]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return [low, high]


# -- precision, and what the machine can do at most --------------------------


@contextmanager
def float32_products(route: str) -> Iterator[None]:
    """Multiply float32 matrices by MKL ("none") or oneDNN ("bf16")."""
    products: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = products.fp32_precision
    products.fp32_precision = route
    try:
        yield
    finally:
        products.fp32_precision = before


@contextmanager
def precision(name: str, device: str = "cpu") -> Iterator[None]:
    """Compute as everybody else does: one of :data:`PRECISIONS`.

    fp32 is torch's default (MKL on a CPU). fp32 oneDNN sends float32
    products to oneDNN, which on a CPU with AMX may round to bfloat16: see
    the error that :func:`peaks` measures. bf16 is autocast.
    """
    route = "bf16" if name == "fp32 oneDNN" else "none"
    with (
        float32_products(route),
        torch.autocast(device, torch.bfloat16, enabled=name == "bf16"),
    ):
        yield


def peaks(rounds: int, size: int = 2048) -> dict[str, dict[str, float]]:
    """The fastest matrix product, and its error, in each precision.

    Returns:
        By precision, ``gflops`` (10⁹ floating-point operations a second)
        and ``error``, relative to float64.
    """
    made = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, size, size, generator=made)
    half = a.bfloat16(), b.bfloat16()
    found: dict[str, torch.Tensor] = {}

    def product(name: str) -> Call:
        x, y = half if name == "bf16" else (a, b)

        def call() -> None:
            with precision(name if name != "bf16" else "fp32"):
                found[name] = x @ y

        return call

    timings = race({name: product(name) for name in PRECISIONS}, rounds)
    exact = a[:64].double() @ b.double()
    return {
        name: {
            "gflops": 2 * size**3 / min(timing.wall) / 1e9,
            "error": float(
                (found[name][:64].double() - exact).norm() / exact.norm()
            ),
        }
        for name, timing in timings.items()
    }


def peak(device: str, rounds: int, size: int = 8192) -> float:
    """The fastest bfloat16 matrix product of a device, in 10⁹ FLOP/s.

    It is measured, as no device reaches what its data sheet says.
    """
    made = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, size, size, generator=made).bfloat16().to(device)
    timing = race({"product": lambda: a @ b}, rounds)["product"]
    return 2 * size**3 / min(timing.wall) / 1e9
