"""Cost as it grows: time and memory over context and width.

Each probe runs in a process of its own, because the operating system keeps
only a process's highest memory: ``python -m benchmarks.growing 2 loss ours``.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812

from benchmarks.clock import timed
from benchmarks.contest import (
    Settings,
    Shape,
    Target,
    Task,
    Workload,
)
from benchmarks.training import (
    Trainee,
    count,
    flops_per_token,
    sample,
)

TOKENS = 2048  # of a step, at every context
LAYERS = 4
LOSS = (1024, 256, 50257)  # tokens, width, vocabulary
ROWS = 64  # of logits at a time, in our loss
LONG = 8192
# Of these probes only the memory counts.  Each large tensor is mapped by
# itself: what is freed is gone, and no hole in the heap counts as needed.
OF_MEMORY = ("forward", "loss")
MAPPED = {"MALLOC_MMAP_THRESHOLD_": "1000000"}


def peak_bytes() -> int:
    """The most memory that this process has had."""
    status = Path("/proc/self/status")
    if status.exists():
        # Linux's getrusage begins with the memory of the process's parent.
        return 1024 * int(status.read_text().split("VmHWM:")[1].split()[0])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def measure(call: Callable[[], object], times: int) -> dict[str, float]:
    """Median seconds of a call, and the memory that all add."""
    before, wall, cpu = peak_bytes(), [], []
    for _ in range(times + 1):
        seconds = timed(call, 1)
        wall.append(seconds[0])
        cpu.append(seconds[1])
    return {
        "seconds": statistics.median(wall[1:] or wall),
        "cpu_seconds": statistics.median(cpu[1:] or cpu),
        "peak_bytes": peak_bytes() - before,
    }


# -- probes, each in its own process -----------------------------------------


def make(shape: Shape) -> Any:
    """Our model of a shape."""
    from benchmarks.peers import ours

    return ours.gpt(Task("gpt", shape), Settings())


def step(context: int, d_model: int) -> dict[str, float]:
    """A training step of 2,048 tokens."""
    shape = Shape(
        LAYERS, d_model, d_model // 64, context, 65, TOKENS // context
    )
    model = make(shape)
    n = count(model.module)
    flops = flops_per_token(n, shape) * TOKENS
    trainee = Trainee(model, sample(shape, 2), "fp32", compiled=False)
    found = measure(trainee, 4)
    return found | {"flops": flops, "parameters": n}


def forward(context: int) -> dict[str, float]:
    """One text through a narrow model, without gradients."""
    shape = Shape(2, 64, 2, context, 65, 1)
    model = make(shape)
    model.module.eval()
    ids = sample(shape, 1)[0]
    with torch.inference_mode():
        return measure(lambda: model.module(ids), 1)


def loss(how: str) -> dict[str, float]:
    """The head and the loss, forward and backward, three ways.

    ``ours`` as a training step with ``loss_chunk_size`` does it; ``whole`` by
    PyTorch over all logits in float32; ``pieces`` goes forward and backward
    with 64 tokens at a time: what can be had.
    """
    n, d_model, n_tokens = LOSS
    shape = Shape(1, d_model, 4, n, n_tokens, 1)
    model = make(shape).module
    targets = sample(shape, 1)[0]
    table = model.embedding.weight
    x = torch.randn(1, n, d_model, requires_grad=True)

    def ours() -> None:
        from coursekit.loss import chunked_cross_entropy

        weights = model.parameters()
        nats = chunked_cross_entropy(x, model.logits, weights, targets, ROWS)
        (nats / n).backward()

    def whole(size: int = n) -> None:
        cut = zip(x[0].split(size), targets[0].split(size), strict=True)
        for part, y in cut:
            logits = F.linear(part, table)
            (F.cross_entropy(logits, y, reduction="sum") / n).backward()

    ways: dict[str, Callable[[], None]]
    ways = {"ours": ours, "whole": whole, "pieces": partial(whole, 64)}
    table.grad = torch.zeros_like(table)  # its gradient is there in any case
    return measure(ways[how], 1)


def child(*arguments: object) -> dict[str, float]:
    """Run a probe in a process of its own."""
    words = [str(word) for word in (torch.get_num_threads(), *arguments)]
    command = [sys.executable, "-m", "benchmarks.growing", *words]
    if arguments[0] == "import":
        code = (
            "import torch, time; t = time.perf_counter(); import coursekit; "
            "print('{\"seconds\":', time.perf_counter() - t, '}')"
        )
        command = [sys.executable, "-c", code]
    run = subprocess.run(
        command,
        cwd=Path(__file__).resolve().parent.parent,
        env=os.environ | (MAPPED if arguments[0] in OF_MEMORY else {}),
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise RuntimeError(f"{arguments} failed: {run.stderr[-500:]}")
    found: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return found


# -- workloads ---------------------------------------------------------------


def grow(
    settings: Settings, contexts: list[int], widths: list[int]
) -> dict[str, Any]:
    """Steps over context at one width, or over width at one context."""
    points = []
    for context in contexts:
        for d_model in widths:
            found = child("step", context, d_model)
            points.append(
                {"context": context, "d_model": d_model, **found}
                | {"speed": TOKENS / found["seconds"]}
                | {"gflops": found["flops"] / found["seconds"] / 1e9}
            )
    return {"points": points}


def losses(settings: Settings) -> dict[str, Any]:
    """Memory of the loss, in multiples of all its logits in float32."""
    n, _, n_tokens = LOSS
    ways = {how: child("loss", how) for how in ("ours", "whole", "pieces")}
    shares = {
        how: found["peak_bytes"] / (4 * n * n_tokens)
        for how, found in ways.items()
    }
    return {"points": ways, "numbers": shares}


def long(settings: Settings) -> dict[str, Any]:
    """Memory of a long context, in multiples of a T × T matrix of bytes."""
    found = child("forward", LONG)
    return {
        "points": found,
        "numbers": {"squares": found["peak_bytes"] / LONG**2},
    }


def importing(settings: Settings) -> dict[str, Any]:
    """Seconds that coursekit adds to importing torch."""
    times = [child("import")["seconds"] for _ in range(settings.rounds)]
    return {"numbers": {"seconds": statistics.median(times)}, "points": times}


WORKLOADS = [
    Workload(
        "import, over torch's",
        "s",
        importing,
        (Target(number="seconds", at_most=0.3),),
    ),
    Workload(
        "step over context",
        "tokens/s",
        partial(grow, contexts=[128, 256, 512, 1024, 2048], widths=[256]),
        quick=False,
    ),
    Workload(
        "step over width",
        "tokens/s",
        partial(grow, contexts=[256], widths=[128, 256, 384, 512, 768]),
        quick=False,
    ),
    Workload(
        "memory of the loss, by all logits in float32",
        "times",
        losses,
        (Target(number="ours", at_most=1.0),),
    ),
    Workload(
        "memory of 8,192 tokens, by a T × T matrix of bytes",
        "times",
        long,
        (Target(number="squares", at_most=1.0),),
    ),
]

if __name__ == "__main__":
    threads, name, *values = sys.argv[1:]
    torch.set_num_threads(int(threads))
    probes: dict[str, Callable[..., dict[str, float]]] = {
        "step": step,
        "forward": forward,
        "loss": loss,
    }
    print(
        json.dumps(
            probes[name](*[int(v) if v.isdigit() else v for v in values])
        )
    )
