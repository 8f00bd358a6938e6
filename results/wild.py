"""Answers of readers who saw the pages alone: what the checks make of them.

    python -m results.wild            # writes results/wild.json
    python -m results.wild --list     # shows all but the fresh, one by one

The answers stand in ``tests/wild``. ``tests/wild/judged.toml`` says, as
somebody judged who saw the answer and the report, which diagnoses fit an
answer, and which answers do not count because their writer's own mark is
wrong. The first run, before any check was changed, is kept beside the last.
"""

import argparse
import hashlib
import importlib
import json
import sys
import tomllib
from collections import Counter

import torch

from coursekit_classroom.check import check
from results.record import ROOT, record

FOLDER = ROOT / "tests" / "wild"
RESULT = ROOT / "results" / "wild.json"
SEED = 0  # of the cases: what a reader gets who names no other
HALVES = ("open", "held out", "fresh")


def parser():
    """The command's options."""
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--list", action="store_true")
    return options


def judged():
    """Judgments by answer: ``fits`` and ``disputed``."""
    return tomllib.loads((FOLDER / "judged.toml").read_text("utf8"))


def answers():
    """Every answer that counts, in the order of the files."""
    sys.path.insert(0, str(ROOT))
    for path in sorted(FOLDER.glob("[a-z]*.py")):
        importlib.import_module(f"tests.wild.{path.stem}")
    written = importlib.import_module("tests.wild").ANSWERS
    disputed = judged()["disputed"]
    return [a for a in written if a.name not in disputed]


def half(answer):
    """Group of an answer; nobody looks at the last group while fixing.

    The first answers are divided in halves by a hash of their names. Those of
    ``fresh.py`` came when both of these had been looked at.
    """
    if answer.function.__module__ == "tests.wild.fresh":
        return "fresh"
    return HALVES[hashlib.sha256(answer.name.encode()).digest()[0] % 2]


def kind(answer):
    """Right, or which kind of wrong."""
    if answer.right:
        return "right"
    return "classic" if answer.classic else "odd"


def outcome(answer, fits):
    """One word for what the check made of an answer, and its report.

    ``fits`` has, for the answer's name, the diagnoses that are true of it.
    """
    report = check(answer.id, answer.function, SEED)
    if answer.right:
        return ("passed" if report else "refused"), report
    if report:
        return "accepted", report
    if not report.diagnosis:
        return "not named", report
    true = [frozenset(names) for names in fits.get(answer.name, [])]
    return ("named" if report.diagnosis in true else "misnamed"), report


def measure():
    """Counts of answers by half, kind and outcome."""
    fits, counts = judged()["fits"], {name: Counter() for name in HALVES}
    for answer in answers():
        word, _ = outcome(answer, fits)
        counts[half(answer)][f"{kind(answer)}: {word}"] += 1
    return {name: dict(sorted(c.items())) for name, c in counts.items()}


def listed():
    """A line for each answer that may be looked at."""
    fits = judged()["fits"]
    for answer in answers():
        if half(answer) != "fresh":
            word, report = outcome(answer, fits)
            named = "+".join(sorted(report.diagnosis))
            yield f"{word:9}  {kind(answer):7}  {answer.name}  {named}"
            yield f"{'':20}{answer.what}"


def main():
    """Measure, or list."""
    torch.set_num_threads(1)
    if parser().parse_args().list:
        print(*listed(), sep="\n")
        return
    with record("wild", [SEED]) as metrics:
        metrics["last"] = measure()
        metrics["first"] = dict(metrics["last"])
        metrics["disputed"] = len(judged()["disputed"])
        if RESULT.exists():
            before = json.loads(RESULT.read_text("utf8"))
            metrics["first"] |= before["metrics"]["first"]


if __name__ == "__main__":
    main()
