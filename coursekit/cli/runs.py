"""A run's folder: made, or read to be resumed."""

import argparse
import dataclasses
import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from coursekit.cli.options import given
from coursekit.cli.output import FULL
from coursekit.config import GPTConfig
from coursekit.data import (
    Batch,
    load_text,
    random_windows,
    sequential_windows,
    train_val_split,
)
from coursekit.decoder import GPT
from coursekit.devices import pick_device, pick_precision
from coursekit.models import check_vocabulary, create_run, read_config
from coursekit.tokenizer import BPETokenizer, CharTokenizer
from coursekit.train_config import TrainConfig, make_optimizer
from coursekit.training import ProcessGroup
from coursekit.vocabulary import Tokenizer, load_tokenizer
from coursekit.weights import SaveError

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

Run = tuple[GPT, Tokenizer, TrainConfig, torch.Tensor, torch.Tensor]


def open_run(
    args: argparse.Namespace, group: ProcessGroup, device: torch.device
) -> Run:
    """Begin or resume; the other processes read what the first wrote."""
    if group.rank == 0:
        run = resume_run(args) if args.resume else new_run(args, device)
        group.sum(0)  # the others wait for this
        return run
    group.sum(0)
    return read_run(Path(args.out), read_settings(Path(args.out)))


def new_run(args: argparse.Namespace, device: torch.device) -> Run:
    """Make a run's folder, after all that could be wrong was checked."""
    folder = Path(args.out)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(
            f"a new run needs a folder of its own: got {folder}, which has "
            "files. Add --resume to go on with it, or choose another --out."
        )
    return make_run(args, device)


def make_run(args: argparse.Namespace, device: torch.device) -> Run:
    """Build the model and write what the folder needs to be resumed."""
    config = TrainConfig(**(TRAIN_DEFAULTS | given(args, TrainConfig)))
    precision = pick_precision(config.precision, device)
    config = dataclasses.replace(config, precision=precision)
    name = "shakespeare" if args.text is None else args.text
    text = load_text(name)
    learned, held_out = train_val_split(text)
    tokenizer = make_tokenizer(args, text, learned)
    fields = {"max_len": config.context} | given(args, GPTConfig)
    fields["vocab_size"] = tokenizer.vocab_size
    model_config = GPTConfig(**fields)
    if config.context > model_config.max_len:
        raise ValueError(
            "the context must fit the model: got "
            f"context={config.context}, max_len={model_config.max_len}. "
            "Raise --max-len or lower --context."
        )
    ids = torch.tensor(tokenizer.encode(learned))
    held_out_ids = torch.tensor(tokenizer.encode(held_out))
    batches_of(ids, config)(0)  # a text too short is refused here
    windows_of(held_out_ids, config.context)
    model = fresh_model(model_config, config.seed)
    make_optimizer(model, config)  # so is what it cannot train
    data = {
        "text": name_of(name),
        "sha256": hash_of(text),
        "threads": torch.get_num_threads(),
    }
    try:
        create_run(args.out, model, tokenizer, config, data)
    except SaveError as error:
        reason = error.__cause__
        if isinstance(reason, OSError) and reason.errno not in FULL:
            raise ValueError(
                "--out must name a folder that can be made: got "
                f"{args.out} ({reason.strerror}). Choose another."
            ) from error
        raise
    return model, tokenizer, config, ids, held_out_ids


def name_of(text: str) -> str:
    """How a run remembers its text, wherever it is resumed from."""
    return text if text == "shakespeare" else str(Path(text).absolute())


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
        print(
            f"coursekit: note: the run began with {threads} threads, "
            f"this has {torch.get_num_threads()}; sums may round otherwise",
            file=sys.stderr,
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
    if not {"text", "sha256", "threads"} <= data.keys():
        raise ValueError(
            "a run must know its text, sha256 and threads: got "
            f"{sorted(data)} in {folder / 'config.json'}. It was damaged; "
            "take a copy, or start a new run."
        )
    return fields


def read_run(folder: Path, fields: dict[str, Any]) -> Run:
    """Build what a run's settings say, and read its text."""
    data, config = fields["data"], TrainConfig.from_dict(fields["train"])
    text = load_text(data["text"])
    if hash_of(text) != data["sha256"]:
        raise ValueError(
            "a run goes on with the text it began with: got another in "
            f"{data['text']}. Restore the file, or start a new run."
        )
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    learned, held_out = train_val_split(text)
    model = fresh_model(GPTConfig.from_dict(fields["config"]), config.seed)
    check_vocabulary(model, tokenizer, folder)
    return (
        model,
        tokenizer,
        config,
        torch.tensor(tokenizer.encode(learned)),
        torch.tensor(tokenizer.encode(held_out)),
    )


def refuse_changes(args: argparse.Namespace, fields: dict[str, Any]) -> None:
    """Refuse an option that is not what the run began with."""
    asked = given(args, TrainConfig) | given(args, GPTConfig)
    # By the configurations: a run older than an option has its default.
    have = TrainConfig.from_dict(fields["train"]).to_dict()
    have |= GPTConfig.from_dict(fields["config"]).to_dict()
    if asked.get("precision") == "auto":
        del asked["precision"]
    if args.text:
        asked["text"] = name_of(args.text)
        have["text"] = fields["data"]["text"]
    changed = [k for k, value in asked.items() if value != have[k]]
    if changed or hasattr(args, "tokenizer"):
        name = changed[0] if changed else "tokenizer"
        raise ValueError(
            "--resume goes on with the run's own settings: got "
            f"{name}={asked.get(name, getattr(args, name, None))}, the run "
            f"has {have.get(name, 'its own')}. Leave the option out, or "
            "start a new run with another --out."
        )


def make_tokenizer(
    args: argparse.Namespace, text: str, learned: str
) -> Tokenizer:
    """The tokenizer that the options ask for."""
    kind = getattr(args, "tokenizer", "char")
    size = getattr(args, "vocab_size", None)
    if kind == "bpe":
        return BPETokenizer.train(learned, size or BPE_VOCAB_SIZE)
    if size is not None:
        raise ValueError(
            "characters make up the vocabulary by themselves: got "
            f"vocab_size={size} with --tokenizer char. Leave it out, or use "
            "--tokenizer bpe."
        )
    # Of the whole text: a character that is missing can't be encoded.
    return CharTokenizer.train(text)


def fresh_model(config: GPTConfig, seed: int) -> GPT:
    """A model whose initial weights depend on the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GPT(config)


def batches_of(
    ids: torch.Tensor, config: TrainConfig
) -> Callable[[int], list[Batch]]:
    """The micro-batches of each step."""
    n = config.gradient_accumulation_steps

    def batches(step: int) -> list[Batch]:
        size, context, seed = config.batch_size, config.context, config.seed
        return [
            random_windows(ids, size, context, seed, n * step + i)
            for i in range(n)
        ]

    return batches


def windows_of(ids: torch.Tensor, context: int) -> list[Batch]:
    """All of a split, in large batches."""
    rows = max(1, EVAL_TOKENS // context)
    return list(sequential_windows(ids, rows, context))


def hash_of(text: str) -> str:
    """SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()
