"""Records of results: command, commit, seeds, machine, hashes."""

import argparse
import hashlib
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from coursekit_classroom.glue import summary as summary

HERE = Path(__file__).parent
ROOT = HERE.parent


def sha256(path: Path) -> str:
    """The hash by which a result knows its artifacts."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def commit() -> str:
    """The commit that the code was at, marked if it had changes."""
    git = ["git", "-C", str(ROOT)]
    try:
        head = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True)
        # Models that runs have written are no code; they have their hashes.
        code = ["coursekit*/*.py", "results/*.py", "benchmarks/*.py"]
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


def options(about: str | None, **defaults: Any) -> argparse.ArgumentParser:
    """The options of a command in this folder, each with its default.

    Args:
        about: the module's docstring, for ``--help``.
        defaults: by name; an option whose default is a list takes several
            values, each of the type of the first.
    """
    parser = argparse.ArgumentParser(description=about)
    for name, default in defaults.items():
        several = isinstance(default, list)
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=type(default[0] if several else default),
            nargs="+" if several else None,
            default=default,
        )
    return parser


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
    wall, cpu = time.perf_counter(), sum(os.times()[:4])
    yield metrics
    if arguments is None:
        arguments = sys.argv[1:]
    out = {
        "command": shlex.join(["python", "-m", f"results.{name}", *arguments]),
        "commit": head,
        "seeds": list(seeds),
        "machine": machine(),
        "wall_seconds": round(time.perf_counter() - wall, 1),
        "cpu_seconds": round(sum(os.times()[:4]) - cpu, 1),
        "metrics": metrics,
        "artifacts": {
            str(path.relative_to(ROOT)): sha256(path) for path in artifacts
        },
    }
    text = json.dumps(out, indent=1, ensure_ascii=False) + "\n"
    partial = HERE / f".{name}.json"
    partial.write_text(text, encoding="utf-8")
    partial.replace(HERE / f"{name}.json")
