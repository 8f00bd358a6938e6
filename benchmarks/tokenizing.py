"""Byte-pair encoding: learning a vocabulary, and encoding with it."""

import os
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from benchmarks.contest import (
    OURS,
    Entry,
    Settings,
    Target,
    Task,
    Workload,
    compete,
    makers,
)
from coursekit.data import load_text

# One thread each; read by their libraries when they start.
os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

SLOW = 20.0  # seconds; minbpe takes minutes, and is measured once


@cache
def text(n_bytes: int = 0) -> str:
    """The packaged plays, or their beginning; all of it is ASCII."""
    whole = load_text().encode("ascii", "ignore").decode()
    return whole[: n_bytes or len(whole)]


def learning(settings: Settings, n_bytes: int, size: int) -> dict[str, Any]:
    """Race to learn a vocabulary."""
    task = Task("learn", text=text(n_bytes), size=size)
    lengths: list[int] = []

    def prepare(learn: Callable[[], Any]) -> Entry:
        last: list[Any] = []

        def call() -> None:
            last[:] = [learn()]

        def facts() -> dict[str, Any]:
            n = len(last[0].encode(task.text))
            lengths.append(n)
            return {
                "vocabulary": last[0].vocab_size,
                "bytes_per_token": len(task.text) / n,
            }

        def check() -> list[str]:
            found, ours = lengths[-1], lengths[0]
            wrong = []
            if last[0].vocab_size != size:
                wrong.append(f"learned {last[0].vocab_size} tokens")
            if found > 1.05 * ours:
                wrong.append(f"needs {found / ours - 1:.0%} more tokens")
            return wrong

        return Entry(call, check, facts)

    return compete(task, prepare, settings, len(task.text) / 1e6, slow=SLOW)


def vocabulary(settings: Settings, size: int) -> tuple[bytes, ...]:
    """One vocabulary for all: rustbpe's, which alone can read none."""
    try:
        made: Any = __import__("rustbpe").Tokenizer()
    except ImportError:
        task = Task("learn", text=text(), size=size)
        learned = makers("learn", settings)[OURS](task)()
        return tuple(
            learned.decode_bytes([i]) for i in range(learned.vocab_size)
        )
    from coursekit.bpe import SPLIT

    made.train_from_iterator([text()], size, pattern=SPLIT)
    ranks = sorted(made.get_mergeable_ranks(), key=lambda pair: pair[1])
    return tuple(bytes(token) for token, _ in ranks)


def encoding(settings: Settings, size: int = 8000) -> dict[str, Any]:
    """Race to encode the plays with one and the same vocabulary."""
    tokens = vocabulary(settings, size)
    task = Task("encode", text=text(), tokens=tokens)
    expected: list[list[int]] = []

    def prepare(encode: Callable[[], list[int]]) -> Entry:
        last: list[list[int]] = []

        def call() -> None:
            last[:] = [encode()]

        def check() -> list[str]:
            expected.append(last[0])
            differ = list(last[0]) != list(expected[0])
            return ["its ids are others than ours"] * differ

        def facts() -> dict[str, Any]:
            return {"tokens": len(last[0])}

        return Entry(call, check, facts)

    return compete(task, prepare, settings, len(task.text) / 1e6, slow=SLOW)


WORKLOADS = [
    Workload(
        "learn BPE, 100 kB, 1,000 tokens",
        "MB/s",
        partial(learning, n_bytes=100_000, size=1000),
        (Target(150, against="minbpe"),),
    ),
    Workload(
        "learn BPE, all plays, 1,000 tokens",
        "MB/s",
        partial(learning, n_bytes=0, size=1000),
        (Target(150, against="minbpe"),),
        quick=False,
    ),
    Workload(
        "learn BPE, all plays, 8,000 tokens",
        "MB/s",
        partial(learning, n_bytes=0, size=8000),
        quick=False,
    ),
    Workload(
        "encode, 8,000 tokens",
        "MB/s",
        encoding,
        (Target(0.9, against="tiktoken"),),
    ),
]
