"""Time that a cache saves: texts of growing length with and without it.

The same model, the same tokens, one text at a time; counted in tokens and
FLOPs, measured in seconds of the processor.  The weights are random: neither
count nor time depends on them.
"""

import statistics
import time
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from coursekit.attention import Attend, attend
from coursekit.cache import cache_bytes
from coursekit.config import GPTConfig
from coursekit.decoder import GPT
from coursekit.generation import generate
from coursekit.steppers import GPTStepper
from results.record import options, record

USES_CACHE = {"without": False, "with": True}
PROMPT = [[0]]

Counts = dict[str, Any]
Run = dict[str, Any]


def make(max_len: int, **options: Attend) -> GPT:
    """A small model, always with the same weights."""
    config = GPTConfig(
        vocab_size=1000, max_len=max_len, d_model=64, n_heads=4, n_layers=4
    )
    torch.manual_seed(0)
    return GPT(config, **options).eval()


def write(kind: str, model: GPT, length: int) -> list[int]:
    """Write that many tokens, the likeliest each time."""
    return generate(
        GPTStepper(model, use_cache=USES_CACHE[kind]), PROMPT, length
    )[0]


def count(kind: str, model: GPT, length: int) -> tuple[list[int], Counts]:
    """The text; how many tokens pass through the blocks, and the FLOPs."""
    read = 0

    def note(module: torch.nn.Module, args: tuple[torch.Tensor]) -> None:
        nonlocal read
        read += args[0].size(1)

    hook = model.blocks[0].register_forward_pre_hook(note)
    with FlopCounterMode(display=False) as counter:
        text = write(kind, model, length)
    hook.remove()
    return text, {"tokens": read, "flops": counter.get_total_flops()}


def seconds(kind: str, model: GPT, length: int, rows: int = 1) -> float:
    """CPU seconds of one run, with so many texts at once."""
    stepper = GPTStepper(model, use_cache=USES_CACHE[kind])
    begin = time.process_time()
    generate(stepper, PROMPT * rows, length)
    return time.process_time() - begin


parser = options(__doc__, longest=1024, repeats=5)


def compare(length: int, repeats: int, models: tuple[GPT, GPT]) -> Run:
    """One length: both ways counted once, and timed in turns."""
    counted, timed = models
    run: Run = {"length": length}
    texts = []
    for kind in USES_CACHE:
        text, run[kind] = count(kind, counted, length)
        texts.append(text)
    assert texts[0] == texts[1]
    took: dict[str, list[float]] = {kind: [] for kind in USES_CACHE}
    for _ in range(repeats):
        for kind in USES_CACHE:
            took[kind].append(seconds(kind, timed, length))
    for kind, values in took.items():
        run[kind]["seconds"] = round(statistics.median(values), 4)
        run[kind]["values"] = [round(value, 4) for value in values]
    faster = [a / b for a, b in zip(*took.values(), strict=True)]
    run["speedup"] = {
        "median": round(statistics.median(faster), 2),
        "lowest": round(min(faster), 2),
        "highest": round(max(faster), 2),
    }
    config = timed.config
    run["bytes"] = cache_bytes(
        config.n_layers, config.kv_heads, length, config.head_size, 4
    )
    return run


def side_by_side(repeats: int, model: GPT, length: int = 128) -> list[Run]:
    """The way with a cache, for one text and for many at once."""
    sizes = (1, 4, 16)
    took: dict[int, list[float]] = {rows: [] for rows in sizes}
    for _ in range(repeats):
        for rows in sizes:
            took[rows].append(seconds("with", model, length, rows))
    return [
        {
            "rows": rows,
            "seconds": round(statistics.median(values), 4),
            "values": [round(value, 4) for value in values],
        }
        for rows, values in took.items()
    ]


def main() -> None:
    """Double the length until the longest."""
    args = parser.parse_args()
    torch.set_num_threads(1)
    # The counter sees every product of `attend`; `fast_attend` has the speed.
    models = make(args.longest, attend=attend), make(args.longest)
    for kind in USES_CACHE:
        write(kind, models[1], 16)  # the first run of all is slow
    with record("cache", [0]) as metrics:
        metrics["unit"] = "CPU seconds for a whole text, one thread"
        metrics["model"] = models[0].config.to_dict()
        metrics["parameters"] = sum(p.numel() for p in models[0].parameters())
        metrics["side by side"] = side_by_side(args.repeats, models[1])
        print(metrics["side by side"], flush=True)
        metrics["runs"] = []
        length = 16
        while length <= args.longest:
            repeats = min(args.repeats, 3) if length > 256 else args.repeats
            run = compare(length, repeats, models)
            metrics["runs"].append(run)
            print(length, run["speedup"], flush=True)
            length *= 2


if __name__ == "__main__":
    main()
