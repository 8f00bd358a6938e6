"""Writing: greedy search and beam search, with everybody's own cache."""

import statistics
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.clock import race
from benchmarks.contest import (
    Entry,
    Missing,
    Model,
    Settings,
    Target,
    Task,
    Workload,
    compete,
)
from benchmarks.training import SHAPES, count, sample

SLOW = 20.0  # seconds; a peer without a cache is measured once
PROMPT, SOURCE = 16, 32  # tokens


def check_greedy(
    model: Model, ids: Tensor, new: Tensor, n: int, is_pairs: bool = False
) -> list[str]:
    """Faults in what was written, if it is not the greedy continuation.

    Args:
        model: with ``logits``, which must not use the cache.
        ids: (B, T) prompts, or sources of an encoder-decoder.
        new: (B, n) what was written.
        n: how many tokens were asked for, for each row.
        is_pairs: what was written begins again, after the start token 0.
    """
    if tuple(new.shape) != (ids.size(0), n):
        return [f"wrote {tuple(new.shape)} tokens, not {(ids.size(0), n)}"]
    if model.logits is None:
        return []
    new = new.to(ids.device)  # ours writes into Python's lists
    model.module.eval()
    with torch.no_grad():
        if is_pairs:
            start = ids.new_zeros(ids.size(0), 1)
            known = torch.cat([start, new[:, :-1]], dim=1)
            logits = model.logits(ids, known)
        else:
            known = torch.cat([ids, new[:, :-1]], dim=1)
            logits = model.logits(known)[:, ids.size(1) - 1 :]
    model.module.train()
    # A tie may fall either way: what is chosen must be as good as the best.
    chosen = logits.gather(-1, new[..., None])[..., 0]
    worse = (logits.amax(dim=-1) - chosen > 1e-3).float().mean().item()
    return [f"{worse:.0%} of its tokens are not the likeliest"] * (worse > 0)


def writing(
    settings: Settings,
    size: str,
    batch: int,
    n_beams: int = 1,
    compiled: bool = False,
) -> dict[str, Any]:
    """Race to generate: 16 + 200 tokens, or 32 to 64 for pairs."""
    shape = SHAPES[size]
    is_pairs = size == "base"
    n = 64 if is_pairs else 50 if settings.quick else 200
    length = SOURCE if is_pairs else PROMPT
    ids = sample(shape, 1)[0].flatten()[: batch * length].view(batch, length)
    ids = ids.to(settings.device)

    def prepare(model: Model) -> Entry:
        writer = model.write_compiled if compiled else model.write
        if writer is None:
            kind = "by a compiled step" if compiled else "with a cache"
            raise Missing(f"does not generate {kind}")
        write = partial(writer, ids, n)
        if n_beams > 1:
            write = partial(write, n_beams=n_beams)
        last: list[Tensor] = []

        def call() -> None:
            with torch.no_grad():
                last[:] = [write()]

        def check() -> list[str]:
            if n_beams == 1:
                return check_greedy(model, ids, last[0], n, is_pairs)
            asked = (batch, n)
            found = tuple(last[0].shape)
            return [f"wrote {found}, not {asked}"] * (found != asked)

        def facts() -> dict[str, Any]:
            found: dict[str, Any] = {"parameters": count(model.module)}
            if model.products is not None and settings.device == "cpu":
                step = {"products": model.products(batch * n_beams)}
                alone = race(step, settings.rounds, settings.slot)["products"]
                found["products_seconds"] = n * statistics.median(alone.wall)
            return found

        return Entry(call, check, facts, model.note)

    task = Task("pairs" if is_pairs else "gpt", shape)
    return compete(task, prepare, settings, batch * n, slow=SLOW)


def _row(name: str, ratio: float, quick: bool = True, **how: Any) -> Workload:
    targets = (Target(ratio),) if ratio else ()
    run = partial(writing, **how)
    return Workload(name, "tokens/s", run, targets, quick)


WORKLOADS = [
    _row("generate S, batch 1", 1.5, size="S", batch=1),
    _row("generate S, batch 16", 1.25, size="S", batch=16),
    _row(
        "generate S, batch 1, compiled",
        1.5,
        False,
        size="S",
        batch=1,
        compiled=True,
    ),
    _row("translate, greedy, batch 1", 1.5, size="base", batch=1),
    _row("translate, beam 4, batch 1", 2.0, size="base", batch=1, n_beams=4),
    _row("translate, greedy, batch 8", 1.5, False, size="base", batch=8),
    _row(
        "translate, beam 4, batch 8",
        2.0,
        False,
        size="base",
        batch=8,
        n_beams=4,
    ),
]
