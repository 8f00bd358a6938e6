"""Contests: their tasks and contestants, and checks of equal work."""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.clock import Call, Timing, compare, race, timed

OURS = "coursekit"


class Missing(Exception):  # noqa: N818  (not an error)
    """A contestant cannot take part; the message says what it lacks."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a model, and of one step of its training."""

    n_layers: int
    """Blocks; of an encoder-decoder, in each of the two stacks."""
    d_model: int
    n_heads: int
    context: int
    """Tokens in a row."""
    vocab_size: int
    batch: int
    """Rows in a step."""
    dropout: float = 0.0
    max_len: int = 0
    """Longest sequence that the model takes; 0: the context."""

    @property
    def limit(self) -> int:
        """Longest sequence that the model takes."""
        return self.max_len or self.context


@dataclass(frozen=True)
class Task:
    """A task of a contest, with its settings."""

    kind: str
    """gpt, pairs, learn or encode."""
    shape: Shape | None = None
    """Of the model: kinds gpt and pairs."""
    text: str = ""
    """To learn from, or to encode."""
    size: int = 0
    """Tokens to learn, the 256 bytes included."""
    tokens: tuple[bytes, ...] = ()
    """The vocabulary to encode with, the byte string of each id."""


@dataclass
class Model:
    """A contestant of the kinds gpt and pairs.

    The training step around it, optimizer included, is the harness's own
    and the same for all.
    """

    module: nn.Module
    """In training mode, in float32."""
    loss: Callable[..., Tensor]
    """Mean nats a token; of (module, ids, targets), or of (module, src, tgt,
    targets).  It calls the module it is given: that may be compiled."""
    logits: Callable[..., Tensor] | None = None
    """(B, T) ids, or (B, S) and (B, T), to (B, T, V), without a cache; to
    check ``write``."""
    write: Callable[..., Tensor] | None = None
    """(B, T) ids and n to (B, n) new ones, greedy; with ``n_beams`` for
    pairs."""
    write_compiled: Callable[..., Tensor] | None = None
    """The same by a compiled step, where the contestant offers one."""
    products: Callable[[int], Call] | None = None
    """Of the rows of a step: the step's products with weights, alone."""
    note: str = ""
    """How it differs from the others by design, where it does."""


@dataclass
class Settings:
    """Settings from the command line."""

    quick: bool = False
    rounds: int = 6
    slot: float = 0.5
    """Least seconds of a turn."""
    folders: dict[str, Path] = field(default_factory=dict)
    """Checkouts kept outside, by the peer's name."""
    plugins: Sequence[str] = ()
    """More contestants, as package.module:make."""
    device: str = "cpu"
    """Where the models are: cpu or cuda."""


@dataclass(frozen=True)
class Target:
    """Target ratio of a workload."""

    at_least: float = 0.0
    """A ratio of speeds, ours over theirs."""
    against: str = "best"
    """The peer that counts, or the best of all."""
    at_most: float = 0.0
    """Instead of a ratio: a bound on a measured number."""
    number: str = ""
    """The name of that number."""


@dataclass(frozen=True)
class Workload:
    """One row of the table."""

    name: str
    unit: str
    run: Callable[[Settings], dict[str, Any]]
    targets: tuple[Target, ...] = ()
    quick: bool = True
    """True if the quick mode has it."""


# -- finding the contestants -------------------------------------------------

# By kind of task, a function of benchmarks/peers for each contestant.
PEERS: dict[str, dict[str, str]] = {
    "gpt": {
        OURS: "ours:gpt",
        "transformers": "gpts:transformers",
        "torch.nn": "gpts:torch_nn",
        "x-transformers": "gpts:x_transformers",
        "litgpt": "gpts:litgpt",
        "nanogpt": "gpts:nanogpt",
        "mingpt": "gpts:mingpt",
    },
    "pairs": {
        OURS: "ours:pairs",
        "transformers": "pairs:marian",
        "torch.nn": "pairs:torch_nn",
        "annotated": "pairs:annotated",
    },
    "learn": {
        OURS: "ours:learn",
        "tokenizers": "vocabularies:learn_tokenizers",
        "rustbpe": "vocabularies:learn_rustbpe",
        "sentencepiece": "vocabularies:learn_sentencepiece",
        "minbpe": "vocabularies:learn_minbpe",
    },
    "encode": {
        OURS: "ours:encode",
        "coursekit alone": "ours:encode_alone",
        "tiktoken": "vocabularies:encode_tiktoken",
        "tokenizers": "vocabularies:encode_tokenizers",
        "rustbpe": "vocabularies:encode_rustbpe",
        "minbpe": "vocabularies:encode_minbpe",
    },
}
CHECKOUTS = {  # a file that each must have
    "nanogpt": "model.py",
    "mingpt": "mingpt/model.py",
    "minbpe": "minbpe/__init__.py",
    "annotated": "the_annotated_transformer.py",
}


def need(module: str) -> Any:
    """Import a peer's module, or say that it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0].replace("_", "-")
        raise Missing(
            f"not installed (pip install {package}): {error}"
        ) from error


def checkout(settings: Settings, name: str) -> Path:
    """The file of a peer's checkout that its adapter reads."""
    if name not in settings.folders:
        raise Missing(f"no checkout (--peer {name}=DIR)")
    path = settings.folders[name] / CHECKOUTS[name]
    if not path.is_file():
        raise Missing(f"its checkout has no {CHECKOUTS[name]}")
    return path


def load_module(name: str, path: Path) -> Any:
    """Import a file by its path, a package by its ``__init__.py``."""
    if name not in sys.modules:
        inside = [str(path.parent)] if path.name == "__init__.py" else None
        spec = importlib.util.spec_from_file_location(
            name, path, submodule_search_locations=inside
        )
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[name]
            raise Missing(f"its checkout cannot be imported: {error}") from (
                error
            )
    return sys.modules[name]


def makers(kind: str, settings: Settings) -> dict[str, Callable[[Task], Any]]:
    """By name, what makes each contestant; the first is ours."""

    def of(path: str) -> Callable[[Task], Any]:
        def make(task: Task) -> Any:
            file, _, name = path.partition(":")
            module = importlib.import_module(f"benchmarks.peers.{file}")
            return getattr(module, name)(task, settings)

        return make

    found = {name: of(path) for name, path in PEERS[kind].items()}
    for path in settings.plugins:
        module, _, name = path.partition(":")
        found[path] = getattr(importlib.import_module(module), name)
    return found


# -- one contest -------------------------------------------------------------


@dataclass
class Entry:
    """A contestant at work."""

    call: Call
    """One unit of work."""
    check: Callable[[], list[str]]
    """After the race: how its work is less than asked, if it is."""
    facts: Callable[[], dict[str, Any]] = dict
    """Sentence of the result about it."""
    note: str = ""


def compete(
    task: Task,
    prepare: Callable[[Any], Entry],
    settings: Settings,
    work: float,
    apart: bool = False,
    slow: float = float("inf"),
) -> dict[str, Any]:
    """Run all contestants on a task in turn, and compare their times.

    Args:
        task: for each of them.
        prepare: makes a contestant ready; raises :class:`Missing` if it
            cannot do this.
        settings: of the command line.
        work: units (tokens, bytes) of one call.
        apart: race us against one peer at a time, where all together
            would not fit into memory.
        slow: as in :func:`race`.

    Returns:
        ``rows``, by name, and ``skipped``, by name the reason.
    """
    made = makers(task.kind, settings)
    peers = [name for name in made if name != OURS]
    groups = [[name] for name in peers] if apart else [peers]
    rows: dict[str, Any] = {}
    skipped: dict[str, str] = {}
    for group in groups:
        entries, first = {}, {}
        for name in [OURS, *group]:
            try:
                entry = _enter(made[name], task, prepare, settings.device)
                first[name] = timed(entry.call, 1)  # a fault shows here
                entries[name] = entry
            except Missing as reason:
                skipped[name] = str(reason)
            except Exception as error:
                if name == OURS:
                    raise
                skipped[name] = f"fails: {type(error).__name__}: {error}"
        if len(entries) < 2 and (rows or apart):
            continue
        calls = {name: entry.call for name, entry in entries.items()}
        timings = race(calls, settings.rounds, settings.slot, slow, first)
        for name, entry in entries.items():
            if name not in rows:
                rows[name] = measured(
                    entry, timings[OURS], timings[name], work
                )
    return {"rows": rows, "skipped": skipped}


def _enter(
    make: Callable[[Task], Any],
    task: Task,
    prepare: Callable[[Any], Entry],
    device: str,
) -> Entry:
    torch.manual_seed(0)
    # Only while it is made: around every call it would cost time.
    with torch.device(device):
        contestant = make(task)
    if contestant is None:
        raise Missing("does not take part in this")
    return prepare(contestant)


def measured(
    entry: Entry, ours: Timing, timing: Timing, work: float
) -> dict[str, Any]:
    row: dict[str, Any] = timing.summary()
    row |= {"speed": work / row["wall_seconds"], "rounds": len(timing.wall)}
    row |= compare(ours, timing) | entry.facts()
    if entry.note:
        row["note"] = entry.note
    if wrong := entry.check():
        row["disqualified"] = "; ".join(wrong)
    return row


def duel(timings: Mapping[str, Timing], work: float) -> dict[str, Any]:
    """Us with something and without: both do the same, nothing to check."""
    rows = {
        name: measured(Entry(print, list), timings[OURS], timing, work)
        for name, timing in timings.items()
    }
    return {"rows": rows, "skipped": {}}


def rivals(outcome: Mapping[str, Any]) -> dict[str, Any]:
    """The rows of all others that did what was asked."""
    return {
        name: row
        for name, row in outcome.get("rows", {}).items()
        if not name.startswith(OURS) and "disqualified" not in row
    }


def judge(
    outcome: Mapping[str, Any], target: Target
) -> tuple[float | None, str]:
    """Hold an outcome against a target.

    Returns:
        The ratio (or the number) that counts, and the verdict: "met",
        "short by 12 %", or why nothing can be said.
    """
    if target.number:
        value = outcome["numbers"][target.number]
        over = value / target.at_most - 1
        return value, "met" if over <= 0 else f"over by {over:.0%}"
    rows = rivals(outcome)
    if ours := outcome["rows"][OURS].get("disqualified"):
        return None, f"we are disqualified: {ours}"
    if target.against != "best":
        rows = {k: v for k, v in rows.items() if k == target.against}
    if not rows:
        if target.against == "best":
            return None, "open: no peer was measured"
        return None, f"open: {target.against} was not measured"
    ratio = min(row["ratio"] for row in rows.values())
    short = 1 - ratio / target.at_least
    digits = 0 if short > 0.01 else 1
    return ratio, "met" if short <= 0 else f"short by {short:.{digits}%}"
