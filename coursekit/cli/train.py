"""``coursekit train``: a GPT on a text, from the beginning or resumed."""

import argparse
import math
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import torch

from coursekit import distributed
from coursekit.checkpoint import Saver, load_checkpoint
from coursekit.cli.common import Common, run_folder
from coursekit.cli.options import add_fields
from coursekit.cli.reporter import Reporter, until_interrupted
from coursekit.cli.runs import (
    TRAIN_DEFAULTS,
    Run,
    Vocabulary,
    batches_of,
    open_run,
    windows_of,
)
from coursekit.config import GPTConfig, TrainConfig
from coursekit.devices import pick_device
from coursekit.saved_models import read_config
from coursekit.training import (
    SINGLE_PROCESS,
    ProcessGroup,
    TrainState,
    new_state,
    train,
)


@dataclass
class RunOptions:
    """Options of a training run."""

    out: Annotated[str, "RUN"]
    """folder for checkpoint, settings and weights"""
    resume: bool = False
    """go on with the run in that folder, with its settings; --compile and
    --no-compile may differ"""
    minutes: Annotated[float | None, "M"] = None
    """stop after that time, with an evaluation and a checkpoint"""
    parallel: Literal["ddp", "fsdp"] | None = None
    """work in all processes that torchrun starts: torchrun --nproc-per-node
    2 -m coursekit train --parallel ddp ...; each has its rows of a batch and
    the whole model (ddp) or a part of each weight (fsdp); --resume may
    change or drop it"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``coursekit train``."""
    parser.add_argument(
        "text",
        nargs="?",
        metavar="TEXT",
        help="a UTF-8 file, or a packaged text [default: shakespeare]",
    )
    run = parser.add_argument_group("the run")
    add_fields(run, RunOptions)
    add_fields(run, Common)
    vocabulary = parser.add_argument_group("the vocabulary")
    add_fields(vocabulary, Vocabulary)
    model = parser.add_argument_group("the model")
    add_fields(model, GPTConfig, {"max_len": "the context"}, ["vocab_size"])
    training = parser.add_argument_group("the training")
    add_fields(training, TrainConfig, TRAIN_DEFAULTS)


def run(args: argparse.Namespace) -> int:
    """Train a GPT on a text, from the beginning or from a checkpoint."""
    if args.minutes is not None and not 0 < args.minutes < math.inf:
        raise ValueError(
            f"--minutes must be above 0: got {args.minutes}. Leave it out to "
            "train all steps."
        )
    device = pick_device(args.device)
    if not (args.parallel or distributed.is_launched()):
        return train_in_process(args, SINGLE_PROCESS, device)
    if not args.parallel:
        raise ValueError(
            "processes must be told how they share a model: got torchrun "
            "without --parallel. Add --parallel ddp or --parallel fsdp."
        )

    with distributed.connect(device) as (group, own_device):
        return train_in_process(args, group, own_device)


def train_in_process(
    args: argparse.Namespace, group: ProcessGroup, device: torch.device
) -> int:
    """Train in one process: the only one, or one of several."""
    folder = Path(args.out)
    if args.resume and not folder.is_dir():
        read_config(folder)  # says what is missing, before it is made
    with run_folder(args.out) if group.rank == 0 else nullcontext():
        run = open_run(args, group, device)
        if args.parallel != "fsdp":  # which has a device for each part
            run.model.to(device)
        state = new_state(run.model, run.config)
        saver = Saver(
            folder, run.model, state, run.config.checkpoint_every, group
        )
        path = folder / "checkpoint.safetensors"
        if path.exists():
            load_checkpoint(path, run.model, state)
        distributed.check_same_step(state.step, group)
        reporter = Reporter(args.json, group.rank > 0)
        is_stopped = False
        if state.step < run.config.steps:
            reporter.begin(run, device, state.step)
            state, is_stopped = train_on(
                args, run, saver, reporter, group, device
            )
        elif not path.exists():  # --steps 0: a model that has learned nothing
            saver.save()
        reporter.end(folder, state.step, state.best, run.tokenizer)
        return 130 if is_stopped else reporter.exit_code


def train_on(
    args: argparse.Namespace,
    run: Run,
    saver: Saver,
    reporter: Reporter,
    group: ProcessGroup,
    device: torch.device,
) -> tuple[TrainState, bool]:
    """Train to the end, or until Ctrl-C: the state, and whether it came."""
    config = run.config
    model, state = saver.model, saver.state
    if args.parallel == "ddp":
        model = distributed.replicate(model)
    elif args.parallel == "fsdp":
        model, state = distributed.shard(model, state, config, device)
        saver.collect = partial(distributed.gather_state, state, saver, group)
    batches = batches_of(run.learned, config)
    windows = windows_of(run.held_out, config.context)
    shard = partial(distributed.shard_batch, group=group)
    with until_interrupted() as interrupted:
        train(
            model,
            lambda step: [*map(shard, batches(step))],
            config,
            [*map(shard, windows)],
            [saver, reporter, lambda _: group.sum(interrupted()) > 0],
            state,
            progress=False if args.json or group.rank else None,
            seconds=60 * args.minutes if args.minutes else None,
            group=group,
        )
        stopped = group.sum(interrupted()) > 0 and state.step < config.steps
    if stopped:
        saver.save()
    return state, stopped
