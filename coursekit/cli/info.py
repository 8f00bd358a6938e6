"""``coursekit info``: what a model is made of; what this machine can do."""

import argparse
import platform
from pathlib import Path
from typing import Any

import torch
from torch import nn

from coursekit.cli import version
from coursekit.cli.output import report
from coursekit.devices import pick_device, pick_precision
from coursekit.saved_models import (
    build_model,
    find_model,
    hash_of,
    read_config,
    shapes_only,
    shipped,
)
from coursekit.tokenizer import load_tokenizer
from coursekit.weights import read_tensors


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``coursekit info``."""
    parser.add_argument(
        "run",
        nargs="?",
        metavar="RUN",
        help="a run's folder or a shipped model; without it: this machine",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Say what a model is made of, or what this machine can do."""
    if args.run is None:
        device = pick_device()
        machine = {
            "version": version(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "device": str(device),
            "precision": pick_precision("auto", device),
            "threads": torch.get_num_threads(),
            "models": shipped(),
        }
        report(machine, args.json)
        return 0
    folder = find_model(args.run)
    fields = about_run(folder)
    files = {"card": folder / "CARD.md", "license": folder / "LICENSE"}
    texts = {
        kind: path.read_text(encoding="utf-8", errors="replace")
        for kind, path in files.items()
        if path.is_file()
    }
    report(fields | texts if args.json else fields, args.json)
    if not args.json:
        for text in texts.values():
            print(f"\n{text.strip()}")
    return 0


def about_run(folder: Path) -> dict[str, Any]:
    """Settings, parts and state of a run."""
    fields = read_config(folder)
    with shapes_only():
        model = build_model(fields, folder)
    parts = {name: size(part) for name, part in model.named_children()}
    about: dict[str, Any] = {
        "model": fields["model"],
        "parameters": size(model),
        "parameters_by_part": {k: n for k, n in parts.items() if n},
        "config": fields["config"],
    }
    about |= {k: fields[k] for k in ("train", "data") if k in fields}
    return about | about_files(folder)


def size(module: nn.Module) -> int:
    """Number of parameters of a model."""
    return sum(p.numel() for p in module.parameters())


def about_files(folder: Path) -> dict[str, Any]:
    """The tokenizer, the weights and the checkpoint that are there."""
    about: dict[str, Any] = {}
    if (folder / "tokenizer.json").exists():
        tokenizer = load_tokenizer(folder / "tokenizer.json")
        about["tokenizer"] = {
            "type": tokenizer.kind,
            "vocab_size": tokenizer.vocab_size,
        }
    weights = folder / "model.safetensors"
    if weights.exists():
        about["weights"] = read_tensors(weights)[1]
        about["weights"]["sha256"] = hash_of(weights)
    checkpoint = folder / "checkpoint.safetensors"
    if checkpoint.exists():
        state = read_tensors(checkpoint)[1]
        names = ("step", "tokens", "best")
        about["checkpoint"] = {name: state.get(name) for name in names}
    return about
