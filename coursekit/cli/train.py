"""``coursekit train``: a GPT on a text, from the beginning or resumed."""

import argparse
from functools import partial
from pathlib import Path

import torch
from torch import nn

from coursekit import distributed
from coursekit.checkpoint import Saver, load_checkpoint
from coursekit.cli.common import add_common, positive
from coursekit.cli.options import add_fields
from coursekit.cli.progress import Reporter, until_interrupted
from coursekit.cli.runs import (
    BPE_VOCAB_SIZE,
    TRAIN_DEFAULTS,
    batches_of,
    open_run,
    windows_of,
)
from coursekit.config import GPTConfig
from coursekit.devices import pick_device
from coursekit.train_config import TrainConfig
from coursekit.training import (
    SINGLE_PROCESS,
    ProcessGroup,
    TrainState,
    start,
    train,
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``coursekit train``."""
    parser.add_argument(
        "text",
        nargs="?",
        metavar="TEXT",
        help="a UTF-8 file, or a packaged text [default: shakespeare]",
    )
    run = parser.add_argument_group("the run")
    run.add_argument(
        "--out",
        required=True,
        metavar="RUN",
        help="folder for checkpoint, settings and weights",
    )
    run.add_argument(
        "--resume",
        action="store_true",
        help="go on with the run in that folder, with its settings",
    )
    run.add_argument(
        "--minutes",
        type=positive,
        metavar="M",
        help="stop after that time, with an evaluation and a checkpoint",
    )
    run.add_argument(
        "--parallel",
        choices=("ddp", "fsdp"),
        help="work in all processes that torchrun starts: torchrun "
        "--nproc-per-node 2 -m coursekit train --parallel ddp ...; each "
        "has its rows of a batch and the whole model (ddp) or a part of "
        "each weight (fsdp); --resume may change or drop it",
    )
    add_common(run)
    add_vocabulary(parser)
    model = parser.add_argument_group("the model")
    defaults = {"max_len": "the context"}
    add_fields(model, GPTConfig, defaults, skip=["vocab_size"])
    add_fields(
        parser.add_argument_group("the training"), TrainConfig, TRAIN_DEFAULTS
    )


def add_vocabulary(parser: argparse.ArgumentParser) -> None:
    """Options of the tokenizer."""
    text = parser.add_argument_group("the vocabulary")
    text.add_argument(
        "--tokenizer",
        choices=("char", "bpe"),
        default=argparse.SUPPRESS,
        help="characters, or byte-pair encoding [default: char]",
    )
    text.add_argument(
        "--vocab-size",
        type=int,
        metavar="N",
        default=argparse.SUPPRESS,
        help=f"tokens that bpe learns [default: {BPE_VOCAB_SIZE}]",
    )


def run(args: argparse.Namespace) -> int:
    """Train a GPT on a text, from the beginning or from a checkpoint."""
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
    """What one process of a training does: mostly, all of it."""
    folder = Path(args.out)
    model, _, config, learned, held_out = open_run(args, group, device)
    if args.parallel != "fsdp":  # which has a device for each part
        model.to(device)
    state = start(model, config)
    path = folder / "checkpoint.safetensors"
    if path.exists():
        load_checkpoint(path, model, state)
    distributed.check_same_step(state.step, group)
    say = Reporter(args.json, group.rank > 0)
    saver = Saver(folder, model, state, config.checkpoint_every)
    if state.step >= config.steps:
        if not path.exists():  # --steps 0: a model that has learned nothing
            distributed.RankZeroSaver(saver, group).save()
        say.end(folder, state.step, state.best)
        return say.exit_code
    say.begin(model, device, config, learned, held_out, state.step)
    trained, state, saves = distribute(args, saver, config, group, device)
    batches = batches_of(learned, config)
    share = partial(distributed.shard_batch, group=group)
    with until_interrupted() as interrupted:
        train(
            trained,
            lambda step: [*map(share, batches(step))],
            config,
            [*map(share, windows_of(held_out, config.context))],
            [saves, say, lambda _: group.sum(interrupted()) > 0],
            state,
            progress=False if args.json or group.rank else None,
            seconds=60 * args.minutes if args.minutes else None,
            group=group,
        )
        stopped = group.sum(interrupted()) > 0 and state.step < config.steps
    if stopped:
        saves.save()
    say.end(folder, state.step, state.best)
    return 130 if stopped else say.exit_code


def distribute(
    args: argparse.Namespace,
    saver: Saver,
    config: TrainConfig,
    group: ProcessGroup,
    device: torch.device,
) -> tuple[nn.Module, TrainState, distributed.RankZeroSaver]:
    """What --parallel makes of a model, its state, and how they are saved."""
    model, state = saver.model, saver.state
    if args.parallel == "ddp":
        model = distributed.replicate(model)
    rank_zero = partial(distributed.RankZeroSaver, saver, group)
    if args.parallel != "fsdp":
        return model, state, rank_zero()
    model, state = distributed.shard(model, state, config, device)
    gather = partial(distributed.gather_state, state, saver, group)
    return model, state, rank_zero(gather)
