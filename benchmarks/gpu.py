"""The same contests on a GPU, where there is one; elsewhere they say so.

No machine that this was written on had one: what needs it is untried.  Its
path through the harness is tried on the CPU (tests/library/test_gpu.py).
"""

from dataclasses import replace
from functools import partial
from typing import Any

import torch

from benchmarks import generating, training
from benchmarks.clock import peak
from benchmarks.contest import Missing, Settings, Workload

DEVICE = "cuda"


def on_gpu(settings: Settings) -> Settings:
    """The settings, with the GPU as device; or :class:`Missing`."""
    if not torch.cuda.is_available():
        raise Missing("no GPU here")
    return replace(settings, device=DEVICE)


def steps(
    settings: Settings, size: str, compiled: bool = False
) -> dict[str, Any]:
    """Race training steps in bfloat16; each row gets its MFU.

    That is the share of the fastest matrix product of the same run which
    the model's counted FLOPs reach.  PyTorch picks the attention kernel:
    in bfloat16, causal and without a mask, flash attention.
    """
    there = on_gpu(settings)
    contest = training.compiled_steps if compiled else training.steps
    found = contest(there, f"GPU {size}", "bf16")
    found["peak"] = peak(there.device, settings.rounds)
    for row in found["rows"].values():
        flops = row["flops_per_token"] * row["speed"]
        row["mfu"] = flops / 1e9 / found["peak"]
    return found


def writing(
    settings: Settings, batch: int, compiled: bool = False
) -> dict[str, Any]:
    """Race to write, with everybody's own cache, in float32."""
    there = on_gpu(settings)
    return generating.writing(there, "S", batch, compiled=compiled)


def _steps(size: str, compiled: bool) -> Workload:
    run = partial(steps, size=size, compiled=compiled)
    name = f"GPU train {size} bf16" + " compiled" * compiled
    quick = size == "S" and not compiled
    return Workload(name, "tokens/s", run, quick=quick)


WORKLOADS = [
    *(_steps(size, how) for size in "SM" for how in (False, True)),
    *(
        Workload(
            f"GPU {name}, batch {batch}", "tokens/s", partial(run, batch=batch)
        )
        for batch in (1, 16)
        for name, run in (
            ("generate S", writing),
            ("generate S compiled", partial(writing, compiled=True)),
        )
    ),
]
