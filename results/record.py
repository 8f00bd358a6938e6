"""What every result says about itself, and how it is written."""

import hashlib
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
ROOT = HERE.parent

# Student's t for a two-sided 95 % interval, by degrees of freedom.
T95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365}


def summary(values: Sequence[float]) -> dict[str, Any]:
    """Mean and 95 % interval of a few runs, and the runs themselves."""
    mean = statistics.fmean(values)
    half = 0.0
    if len(values) > 1:
        error = statistics.stdev(values) / len(values) ** 0.5
        half = T95.get(len(values) - 1, 1.96) * error
    return {"mean": mean, "interval": half, "values": list(values)}


def sha256(path: Path) -> str:
    """The hash by which a result knows its artifacts."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def commit() -> str:
    """The commit that the code was at, marked if it had changes."""
    git = ["git", "-C", str(ROOT)]
    try:
        head = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True)
        # Models that runs have written are no code; they have their hashes.
        code = ["coursekit/*.py", "results/*.py"]
        dirty = subprocess.check_output(
            [*git, "status", "--porcelain", "--", *code], text=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.strip() + ("+changes" if dirty else "")


def machine() -> dict[str, Any]:
    """The machine, as far as the numbers depend on it."""
    return {
        "system": platform.system(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": "cuda" if torch.cuda.is_available() else "cpu",
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


@contextmanager
def record(
    name: str,
    seeds: Iterable[int],
    artifacts: Iterable[Path] = (),
    arguments: Sequence[str] | None = None,
) -> Iterator[dict[str, Any]]:
    """Time a run and write ``results/<name>.json`` when it has succeeded.

    Args:
        name: of the result; the command is ``python -m results.<name>``.
        seeds: the seeds that the run uses.
        artifacts: files that the run writes; their hashes are kept.
        arguments: of the command, if they are not to be quoted as given.

    Yields:
        The dictionary of metrics, to be filled in.
    """
    metrics: dict[str, Any] = {}
    head = commit()
    wall, cpu = time.perf_counter(), time.process_time()
    yield metrics
    if arguments is None:
        arguments = sys.argv[1:]
    out = {
        "command": shlex.join(["python", "-m", f"results.{name}", *arguments]),
        "commit": head,
        "seeds": list(seeds),
        "machine": machine(),
        "wall_seconds": round(time.perf_counter() - wall, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "metrics": metrics,
        "artifacts": {
            str(path.relative_to(ROOT)): sha256(path) for path in artifacts
        },
    }
    text = json.dumps(out, indent=1, ensure_ascii=False) + "\n"
    partial = HERE / f".{name}.json"
    partial.write_text(text, encoding="utf-8")
    partial.replace(HERE / f"{name}.json")
