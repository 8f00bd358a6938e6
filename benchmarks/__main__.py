"""Run the benchmark: ``python -m benchmarks``, or ``make bench``.

Writes results/bench.json; of a part of the workloads only if told to.
"""

import argparse
import contextlib
import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from benchmarks import (
    generating,
    gpu,
    growing,
    switches,
    table,
    tokenizing,
    training,
)
from benchmarks.clock import peaks
from benchmarks.contest import (
    CHECKOUTS,
    Missing,
    Settings,
    Workload,
    judge,
)
from results.record import HERE, commit, record

WORKLOADS: list[Workload] = [
    *training.WORKLOADS,
    *generating.WORKLOADS,
    *tokenizing.WORKLOADS,
    *growing.WORKLOADS,
    *switches.WORKLOADS,
    *gpu.WORKLOADS,
]


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__
    )
    add = options.add_argument
    add("--quick", action="store_true", help="under 5 minutes on 2 cores")
    add("--only", metavar="TEXT", help="the workloads with this in their name")
    add(
        "--update",
        action="store_true",
        help="with --only: put these rows into the last result",
    )
    add("--list", action="store_true", help="list the workloads")
    add(
        "--table",
        action="store_true",
        help="run nothing: lay out the tables of the last result again",
    )
    add(
        "--peer",
        action="append",
        default=[],
        metavar="NAME=DIR",
        help=f"a checkout of one of {', '.join(CHECKOUTS)}",
    )
    add(
        "--contestant",
        action="append",
        default=[],
        metavar="MODULE:MAKE",
        help="one more: a function from a Task to a Model, or None",
    )
    add("--rounds", type=int, help="turns of each contestant")
    add("--threads", type=int, default=2)
    return options


def settings_of(args: argparse.Namespace) -> Settings:
    """The settings that the command line gives."""
    folders = {}
    for pair in args.peer:
        name, _, folder = pair.partition("=")
        if name not in CHECKOUTS or not folder:
            raise SystemExit(
                f"--peer takes NAME=DIR with a name of {[*CHECKOUTS]}: got "
                f"{pair!r}"
            )
        folders[name] = Path(folder).resolve()
    rounds = args.rounds or (3 if args.quick else 8)
    slot = 0.2 if args.quick else 1.0
    return Settings(args.quick, rounds, slot, folders, args.contestant)


def chosen(args: argparse.Namespace) -> list[Workload]:
    """The workloads to run."""
    return [
        work
        for work in WORKLOADS
        if (args.only or "") in work.name and (work.quick or not args.quick)
    ]


def play(work: Workload, settings: Settings) -> dict[str, Any]:
    """Run one workload, and hold it against its targets."""
    try:
        outcome = work.run(settings)
    except Missing as reason:
        return {"unit": work.unit, "failed": f"skipped: {reason}"}
    return {"unit": work.unit, "verdicts": verdicts(work, outcome), **outcome}


def verdicts(work: Workload, outcome: dict[str, Any]) -> list[dict[str, Any]]:
    """Hold an outcome against the targets of its workload."""
    found = []
    for target in work.targets:
        value, verdict = judge(outcome, target)
        found.append(
            {"target": asdict(target), "value": value, "verdict": verdict}
        )
    return found


def run(args: argparse.Namespace, metrics: dict[str, Any]) -> None:
    """Fill in the metrics, printing each row as it comes."""
    settings = settings_of(args)
    metrics |= {
        "quick": args.quick,
        "threads": args.threads,
        "load": os.getloadavg()[0],
        "peaks": peaks(settings.rounds),
        "workloads": {},
    }
    print(table.HEAD, flush=True)
    for work in chosen(args):
        began = time.perf_counter()
        found = play(work, settings)
        found["spent_seconds"] = round(time.perf_counter() - began, 1)
        metrics["workloads"][work.name] = found
        print(table.line(work.name, found), flush=True)


def revise(rows: dict[str, Any], peaks: dict[str, Any]) -> None:
    """Replace rows of the last result, and write its tables again.

    Each keeps what it was held against: the peaks of its own run.  Rows of
    workloads that are no more are dropped.
    """
    path = HERE / "bench.json"
    last = json.loads(path.read_text("utf8"))
    own = {"commit": commit(), "peaks": peaks}
    known = last["metrics"]["workloads"]
    known |= {name: row | own for name, row in rows.items()}
    there = [work for work in WORKLOADS if work.name in known]
    for work in there:
        if "failed" not in known[work.name]:
            known[work.name]["verdicts"] = verdicts(work, known[work.name])
    last["metrics"]["workloads"] = {w.name: known[w.name] for w in there}
    last["metrics"]["table"] = table.markdown(last["metrics"])
    text = json.dumps(last, indent=1, ensure_ascii=False) + "\n"
    path.write_text(text, "utf8")


def recorded(argv: Sequence[str]) -> list[str]:
    """The arguments as a result may quote them: no folder of this machine."""
    peer = re.compile(rf"\b({'|'.join(CHECKOUTS)})=.*")
    return [peer.sub(r"\1=DIR", word) for word in argv]


def main(argv: Sequence[str] | None = None) -> None:
    """Run what was asked for; write the result if that is everything."""
    import sys

    words = sys.argv[1:] if argv is None else list(argv)
    args = parser().parse_args(words)
    if args.list:
        for work in WORKLOADS:
            print(work.name, "" if work.quick else "(not in --quick)")
        return
    if args.update and (args.quick or not args.only):
        raise SystemExit(
            "--update puts single rows, of full length, into the last result: "
            f"got {'--quick' if args.quick else 'no --only'}. Say which rows, "
            "or leave it out: a whole run is written anyway."
        )
    if args.table:
        revise({}, {})
        return
    torch.set_num_threads(args.threads)
    if args.only:
        metrics: dict[str, Any] = {}
        run(args, metrics)
        print("\n" + table.markdown(metrics))
        if args.update:
            revise(metrics["workloads"], metrics["peaks"])
        return
    with record("bench", [0], arguments=recorded(words)) as metrics:
        run(args, metrics)
        metrics["table"] = table.markdown(metrics)
    print("\n" + metrics["table"])


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
