"""A run's folder: made, or read to be resumed."""

import argparse
import dataclasses
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from coursekit.cli.common import check_empty
from coursekit.cli.options import named_fields
from coursekit.cli.output import note
from coursekit.config import Config, GPTConfig, TrainConfig
from coursekit.data import (
    Batch,
    load_text,
    random_windows,
    sequential_windows,
    train_val_split,
)
from coursekit.decoder import GPT
from coursekit.devices import pick_device, pick_precision
from coursekit.optim import make_optimizer, make_schedule
from coursekit.saved_models import (
    check_vocabulary,
    create_run,
    read_config,
    read_tokenizer,
    shapes_only,
)
from coursekit.tokenizer import BPETokenizer, CharTokenizer, Tokenizer
from coursekit.training import ProcessGroup

# What the command trains unless it is told otherwise: two minutes on two
# cores, on the packaged text, character by character.
TRAIN_DEFAULTS: dict[str, Any] = {
    "steps": 2500,
    "batch_size": 12,
    "context": 64,
    "learning_rate": 3e-3,
    "precision": "auto",
    "eval_every": 500,  # a look at the whole split takes seconds
}
BPE_VOCAB_SIZE = 1000
EVAL_TOKENS = 8192  # in a batch of an evaluation


class Run(NamedTuple):
    """A model, its training state and its data."""

    model: GPT
    tokenizer: Tokenizer
    config: TrainConfig
    learned: torch.Tensor
    held_out: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class Vocabulary(Config):
    """The options of a tokenizer."""

    tokenizer: Literal["char", "bpe"] = "char"
    """characters, or byte-pair encoding"""
    vocab_size: int | None = None
    """tokens that bpe learns [default: 1000]"""


def open_run(
    args: argparse.Namespace, group: ProcessGroup, device: torch.device
) -> Run:
    """Begin or resume; the other processes read what the first wrote."""
    if group.rank == 0:
        if args.resume:
            run = resume_run(args)
        else:
            check_empty(args.out)
            run = make_run(args, device)
        group.sum(0)  # the others wait for this
    else:
        group.sum(0)
        run = read_run(Path(args.out), read_settings(Path(args.out)))
    # What this machine can do may differ from where the run began.
    compiles = getattr(args, "compile", run.config.compile)
    config = dataclasses.replace(run.config, compile=compiles)
    return run._replace(config=config)


def make_run(args: argparse.Namespace, device: torch.device) -> Run:
    """Build the model and write what the folder needs to be resumed."""
    config = TrainConfig(**(TRAIN_DEFAULTS | named_fields(args, TrainConfig)))
    if config.steps < config.warmup_steps:
        note(
            f"the run of {config.steps} steps ends in its warm-up, at "
            f"{make_schedule(config)(max(1, config.steps)):.2g} of a rate of "
            f"{config.learning_rate:.2g}; lower --warmup-steps"
        )
    precision = pick_precision(config.precision, device)
    config = dataclasses.replace(config, precision=precision)
    name = "shakespeare" if args.text is None else args.text
    text = load_text(name)
    tokenizer = make_tokenizer(
        Vocabulary(**named_fields(args, Vocabulary)), text
    )
    fields = {"max_len": config.context} | named_fields(args, GPTConfig)
    fields["vocab_size"] = tokenizer.vocab_size
    model_config = GPTConfig(**fields)
    if config.context > model_config.max_len:
        raise ValueError(
            "the context must fit the model: got "
            f"context={config.context}, max_len={model_config.max_len}. "
            "Raise --max-len or lower --context."
        )
    must_fit(model_config, device)
    run = build_run(args.out, model_config, config, tokenizer, text)
    batches_of(run.learned, config)(0)  # a text too short is refused here
    windows_of(run.held_out, config.context)
    make_optimizer(run.model, config)  # so is what it cannot train
    data = {
        "text": name_of(name),
        "sha256": hash_of(text),
        "threads": torch.get_num_threads(),
    }
    create_run(args.out, run.model, run.tokenizer, run.config, data)
    return run


def build_run(
    folder: str | Path,
    model_config: GPTConfig,
    config: TrainConfig,
    tokenizer: Tokenizer,
    text: str,
) -> Run:
    """A model with fresh weights, and the two splits of its text."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = GPT(model_config)
    check_vocabulary(model, tokenizer, folder)
    splits = train_val_split(text)
    ids = [torch.tensor(tokenizer.encode(split)) for split in splits]
    return Run(model, tokenizer, config, *ids)


def name_of(text: str) -> str:
    """Name under which a run records its text, the same from any folder."""
    path = Path(text)
    return str(path.absolute()) if path.is_file() else text


def resume_run(args: argparse.Namespace) -> Run:
    """Read a run's folder; its settings are those that count."""
    folder = Path(args.out)
    if folder.is_dir() and not (folder / "config.json").exists():
        # Killed before it had begun: nothing is lost, so begin.
        leftovers = [p for p in folder.iterdir() if p.suffix != ".part"]
        if all(p.name == "tokenizer.json" for p in leftovers):
            return make_run(args, pick_device(args.device))
    fields = read_settings(folder)
    refuse_changes(args, fields)
    run = read_run(folder, fields)
    threads = fields["data"]["threads"]
    if threads != torch.get_num_threads():
        note(
            f"the run began with {threads} threads, this has "
            f"{torch.get_num_threads()}; sums may round otherwise"
        )
    return run


def read_settings(folder: Path) -> dict[str, Any]:
    """Read the ``config.json`` of what can be resumed."""
    fields = read_config(folder)
    if "train" not in fields:
        raise ValueError(
            f"only a run can be resumed: got {folder}, a finished model. "
            "Start a new run with another --out."
        )
    data = fields["data"]
    kinds = {"text": str, "sha256": str, "threads": int}
    wrong = [k for k, kind in kinds.items() if type(data.get(k)) is not kind]
    if wrong:
        raise ValueError(
            "a run must know its text, sha256 and threads: got "
            f"{wrong[0]}={data.get(wrong[0])!r} in {folder / 'config.json'}. "
            "It was damaged; take a copy, or start a new run."
        )
    return fields


def read_run(folder: Path, fields: dict[str, Any]) -> Run:
    """Build what a run's settings say, and read its text."""
    data = fields["data"]
    text = load_text(data["text"])
    if hash_of(text) != data["sha256"]:
        raise ValueError(
            "a run goes on with the text it began with: got another in "
            f"{data['text']}. Restore the file, or start a new run."
        )
    return build_run(
        folder,
        GPTConfig.from_dict(fields["config"]),
        TrainConfig.from_dict(fields["train"]),
        read_tokenizer(folder, fields),
        text,
    )


def refuse_changes(args: argparse.Namespace, fields: dict[str, Any]) -> None:
    """Refuse an option that is not what the run began with."""
    named = named_fields(args, TrainConfig) | named_fields(args, GPTConfig)
    named |= named_fields(args, Vocabulary)
    # By the configurations: a run older than an option has its default.
    have = {"tokenizer": "its own"}
    have |= TrainConfig.from_dict(fields["train"]).to_dict()
    have |= GPTConfig.from_dict(fields["config"]).to_dict()
    named.pop("compile", None)
    if named.get("precision") == "auto":
        del named["precision"]
    if args.text:
        named["text"] = name_of(args.text)
        have["text"] = fields["data"]["text"]
    changed = [k for k, value in named.items() if value != have[k]]
    if changed:
        name = changed[0]
        raise ValueError(
            "--resume goes on with the run's own settings: got "
            f"{name}={named[name]}, the run has {have[name]}. Leave the "
            "option out, or start a new run with another --out."
        )


def make_tokenizer(options: Vocabulary, text: str) -> Tokenizer:
    """The tokenizer that the options ask for."""
    size = options.vocab_size
    if options.tokenizer == "bpe":
        learned, _ = train_val_split(text)
        return BPETokenizer.train(learned, size or BPE_VOCAB_SIZE)
    if size is not None:
        raise ValueError(
            "characters make up the vocabulary by themselves: got "
            f"vocab_size={size} with --tokenizer char. Leave it out, or use "
            "--tokenizer bpe."
        )
    # Of the whole text: a character that is missing can't be encoded.
    return CharTokenizer.train(text)


def must_fit(config: GPTConfig, device: torch.device) -> None:
    """Refuse a model for which this machine has no memory.

    To train on the CPU, each weight needs 16 bytes: itself, its gradient,
    and AdamW's two averages.  For another device it is only made here.

    Raises:
        ValueError: if the memory of the machine is less, where it is known.
    """
    with shapes_only():
        n = sum(p.numel() for p in GPT(config).parameters())
    needed = n * (16 if device.type == "cpu" else 4)
    try:
        has = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # Windows
        return
    if needed > has > 0:
        raise ValueError(
            "the sizes must fit into memory: got a model of "
            f"{n / 1e9:,.1f} billion weights, which needs {needed / 1e9:,.0f} "
            f"GB, and this machine has {has / 1e9:,.0f}. Lower --d-model, "
            "--n-layers or --vocab-size."
        )


def batches_of(
    ids: torch.Tensor, config: TrainConfig
) -> Callable[[int], list[Batch]]:
    """The micro-batches of each step."""
    n = config.gradient_accumulation_steps
    sizes = config.batch_size, config.context, config.seed
    return lambda step: [
        random_windows(ids, *sizes, n * step + i) for i in range(n)
    ]


def windows_of(ids: torch.Tensor, context: int) -> list[Batch]:
    """All of a split, in large batches."""
    rows = max(1, EVAL_TOKENS // context)
    return list(sequential_windows(ids, rows, context))


def hash_of(text: str) -> str:
    """SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()
