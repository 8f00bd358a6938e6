"""The command line: ``coursekit``, or ``python -m coursekit``.

Each command is a function that adds its options and a function that runs.
The options of a model and of a training are the fields of their
configurations; the help of an option is the string under the field.
"""

import argparse
import ast
import dataclasses
import errno
import hashlib
import importlib
import inspect
import io
import json
import math
import os
import platform
import signal
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import metadata
from itertools import islice, pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, BinaryIO, NoReturn, get_args

import torch
from torch import nn
from tqdm import tqdm

import coursekit
from coursekit import distributed, speedrun
from coursekit.cache import CachedStepper
from coursekit.checkpoint import (
    Loaded,
    SaveError,
    Saver,
    build_model,
    check_vocabulary,
    create_run,
    load_checkpoint,
    read_config,
    read_tensors,
)
from coursekit.classroom import yourfile
from coursekit.config import CHOICES, Config, GPTConfig
from coursekit.data import (
    Batch,
    load_text,
    random_windows,
    sequential_windows,
    split,
)
from coursekit.decoder import GPT
from coursekit.devices import pick_device, pick_precision
from coursekit.fast import for_generation as pack
from coursekit.generation import beam_search, sampler, stream
from coursekit.loss import perplexity
from coursekit.tokenizer import (
    BPETokenizer,
    CharTokenizer,
    Tokenizer,
    load_tokenizer,
)
from coursekit.train_config import (
    RENAMED,
    TRAIN_CHOICES,
    TrainConfig,
    make_optimizer,
)
from coursekit.training import (
    SINGLE_PROCESS,
    ProcessGroup,
    Progress,
    TrainingDiverged,
    TrainState,
    evaluate,
    start,
    train,
)
from coursekit.translate import Translator

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
FULL = (errno.ENOSPC, errno.EDQUOT)  # no fault of the folder's
EVAL_TOKENS = 8192  # in a batch of an evaluation
STOPPED = (
    *(TrainingDiverged, SaveError, distributed.ProcessLost),
    torch.OutOfMemoryError,
)
LINES = 256  # that are read before they are translated

INTRO = """\
A transformer to train, to question and to take apart.

In the order in which you will want them:

  coursekit train       learn to write from a text
  coursekit generate    write
  coursekit eval        how surprised is the model by text it has not seen?
  coursekit translate   into another language, line by line
  coursekit info        what a model is made of; what this machine can do
  coursekit speedrun    how fast can it be learned? beside a known recipe

For the transformer that you build yourself, chapter by chapter:

  coursekit start       begin my_transformer.py, at any chapter
  coursekit step        check it so far, train it, generate from it

For the exercises of the book, and for those who teach with it:

  coursekit check       check all answers in a chapter or notebook
  coursekit assign      make an assignment: notebooks for students, a key
  coursekit grade       a folder of submissions in, a grade sheet out
  coursekit doctor      what can grading be trusted with on this machine?
  coursekit book        build the book with solutions, or without
  coursekit freeze      keep what a term's exercises are; what has changed?

Each explains itself: coursekit train --help
"""
EXAMPLES = """\
examples:
  coursekit train --out runs/first --minutes 2
  coursekit generate runs/first --prompt "ROMEO:" --temperature 0.7
  coursekit train my.txt --out runs/mine --tokenizer bpe --n-layers 6

exit codes: 0 done; 1 training stopped (loss not finite, disk full), a line
could not be translated, or the output could not be written; 2 wrong option or
input, said in one line; 130 stopped by Ctrl-C, checkpoint kept
"""


# -- options -----------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        """Exit with 2 and one line."""
        hint = f"(see {self.prog} --help)"
        self.exit(2, f"coursekit: error: {message} {hint}\n")


def field_help(kind: type) -> dict[str, str]:
    """The string under each field of a dataclass, base classes included."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        source = textwrap.dedent(inspect.getsource(base))
        body = ast.parse(source).body[0].body  # type: ignore[attr-defined]
        for field, text in pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                name = field.target.id  # type: ignore[union-attr]
                found[name] = inspect.cleandoc(ast.literal_eval(text.value))
    return found


def add_fields(
    parser: Any,
    kind: type[Config],
    defaults: dict[str, Any],
    skip: Sequence[str] = (),
) -> None:
    """Add an option for each field of a configuration.

    An option that is not given leaves no trace in the parsed arguments, so
    that --resume can tell what was asked for.
    """
    texts = field_help(kind)
    for field in dataclasses.fields(kind):
        if field.name in skip:
            continue
        default = defaults.get(field.name, field.default)
        text = texts[field.name].replace("%", "%%")
        if "[default" not in text:
            text += f" [default: {shown(default)}]"
        flags = ["--" + n.replace("_", "-") for n in names_of(field.name)]
        options: dict[str, Any] = {"default": argparse.SUPPRESS, "help": text}
        choices = (CHOICES | TRAIN_CHOICES).get(field.name)
        if (value_type := plain_type(field.type)) is bool:
            options["action"] = argparse.BooleanOptionalAction
        elif choices:
            options["choices"] = choices
        else:
            options |= {"type": value_type, "metavar": "N"}
        parser.add_argument(*flags, dest=field.name, **options)


def names_of(field: str) -> list[str]:
    """Names of a field's option: an older one comes first."""
    return [old for old, new in RENAMED.items() if new == field] + [field]


def plain_type(kind: Any) -> Any:
    """``int`` for ``int | None``."""
    if isinstance(kind, UnionType):
        return next(k for k in get_args(kind) if k is not NoneType)
    return kind


def shown(value: Any) -> str:
    """A default as it is typed."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def given(args: argparse.Namespace, kind: type[Config]) -> dict[str, Any]:
    """The fields of a configuration that the command line names."""
    names = {field.name for field in dataclasses.fields(kind)}
    return {k: v for k, v in vars(args).items() if k in names}


# -- coursekit train ---------------------------------------------------------


def train_options(parser: argparse.ArgumentParser) -> None:
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
    model = parser.add_argument_group("the model")
    defaults = {"max_len": "the context"}
    add_fields(model, GPTConfig, defaults, skip=["vocab_size"])
    training = parser.add_argument_group("the training")
    add_fields(training, TrainConfig, TRAIN_DEFAULTS)


def run_train(args: argparse.Namespace) -> int:
    """Train a GPT on a text, from the beginning or from a checkpoint."""
    device = pick_device(args.device)
    if not (args.parallel or distributed.is_launched()):
        return run_share(args, SINGLE_PROCESS, device)
    if not args.parallel:
        raise ValueError(
            "processes must be told how they share a model: got torchrun "
            "without --parallel. Add --parallel ddp or --parallel fsdp."
        )

    with distributed.connect(device) as (group, own_device):
        return run_share(args, group, own_device)


def run_share(
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
    learned, held_out = split(text)
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
    learned, held_out = split(text)
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


@contextmanager
def until_interrupted() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C end the step that is under way, not tear it apart.

    A second Ctrl-C stops at once.
    """
    pressed = []

    def note(*_: object) -> None:
        pressed.append(True)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


class Reporter:
    """A callback that prints a line for each evaluation.

    The training goes on if the output is lost, as with ``| head -1`` or on
    a full disk: what counts is the run's folder.
    """

    exit_code = 0
    """1 if a line could not be written, though its reader had not gone."""

    def __init__(self, as_json: bool, silent: bool = False) -> None:
        self.as_json = as_json
        self.silent = silent or sys.stdout is None  # None: `train >&-`

    def write(self, line: str) -> None:
        """Print a line, above a progress bar if there is one."""
        try:
            tqdm.write(line, file=sys.stdout)
            sys.stdout.flush()
        except OSError as error:
            discard_output()
            self.exit_code = int(not isinstance(error, BrokenPipeError))
            with suppress(OSError):  # it may be the same pipe
                print(
                    "coursekit: note: the output is lost "
                    f"({error.strerror}); the training goes on without it",
                    file=sys.stderr,
                )

    def begin(
        self,
        model: nn.Module,
        device: torch.device,
        config: TrainConfig,
        learned: torch.Tensor,
        held_out: torch.Tensor,
        step: int,
    ) -> None:
        """Say what will be trained on what."""
        if self.as_json or self.silent:
            return
        n = sum(p.numel() for p in model.parameters())
        line = (
            f"{n:,} weights on {device}, {config.precision}; "
            f"{len(learned):,} tokens to learn from, "
            f"{len(held_out):,} to check with"
        )
        self.write(line + (f"; from step {step}" if step else ""))

    def __call__(self, progress: Progress) -> None:
        """Print an evaluation."""
        if progress.validation_loss is None or self.silent:
            return
        if self.as_json:
            fields = {"event": "evaluation"} | dataclasses.asdict(progress)
            self.write(json.dumps(fields))
            return
        self.write(
            f"step {progress.step:>6}   training {progress.loss:.3f}   "
            f"validation {progress.validation_loss:.4f}   "
            f"{progress.tokens_per_second:,.0f} tokens/s"
        )

    def end(self, folder: Path, step: int, best: float | None) -> None:
        """Say how it went, and what comes next."""
        if self.silent:
            return
        if self.as_json:
            fields = {"event": "end", "run": str(folder), "step": step}
            self.write(json.dumps(fields | {"best_validation_loss": best}))
            return
        loss = "none yet" if best is None else f"{best:.4f} nats a token"
        self.write(f"{step} steps; lowest validation loss: {loss}")
        self.write(f'next: coursekit generate {folder} --prompt "The "')


# -- coursekit generate ------------------------------------------------------


def generate_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``coursekit generate``."""
    add_run(parser)
    parser.add_argument(
        "--prompt",
        default="\n",
        metavar="TEXT",
        help="what the text begins with [default: a new line]",
    )
    parser.add_argument(
        "--max-new-tokens",
        type=int,
        default=300,
        metavar="N",
        help="tokens to write [default: 300]",
    )
    choice = parser.add_argument_group("the choice of each token")
    choice.add_argument(
        "--temperature",
        type=float,
        metavar="T",
        help="below 1 bolder in what is likely, above 1 wilder; 0 always "
        "takes the likeliest [default: 0.8]",
    )
    choice.add_argument(
        "--top-k", type=int, metavar="K", help="draw from the K likeliest"
    )
    choice.add_argument(
        "--top-p",
        type=float,
        metavar="P",
        help="draw from the fewest that have P of the probability",
    )
    choice.add_argument(
        "--beam",
        type=int,
        metavar="N",
        help="do not draw: search the likeliest text, N at a time",
    )
    choice.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="another seed, another text [default: 0]",
    )
    add_common(parser)


def run_generate(args: argparse.Namespace) -> int:
    """Write a text, and print it as it comes."""
    model, tokenizer = text_model(args)
    if not args.prompt:
        raise ValueError(
            "a prompt must have at least one character: got ''. Leave "
            "--prompt out to begin on a new line."
        )
    prompt = tokenizer.encode(args.prompt)
    began = time.perf_counter()
    write = write_beams if args.beam is not None else write_sample
    text, n_tokens = write(args, model, tokenizer, prompt)
    if args.json:
        seconds = time.perf_counter() - began
        fields = {
            "prompt": args.prompt,
            "text": text,
            "tokens": n_tokens,
            "seconds": round(seconds, 3),
        }
        print(json.dumps(fields))
    return 0


def write_sample(
    args: argparse.Namespace, model: GPT, tokenizer: Tokenizer, prompt: Any
) -> tuple[str, int]:
    """Draw token by token, and print each as soon as it is readable."""
    show = Typewriter(args.json)
    temperature = 0.8 if args.temperature is None else args.temperature
    TrainConfig(seed=args.seed)  # refuses what is no seed
    draw = sampler(
        temperature,
        args.top_k,
        args.top_p,
        torch.Generator().manual_seed(args.seed),
    )
    stops = list(tokenizer.special_tokens.values())
    decoder, n_tokens = tokenizer.stream(), 0
    steps = stream(
        CachedStepper(pack(model)), [prompt], args.max_new_tokens, draw, stops
    )
    show(args.prompt)
    pieces = []
    for (token,) in steps:
        if token is None:
            continue
        n_tokens += 1
        pieces.append(decoder.push(token))
        show(pieces[-1])
    pieces.append(decoder.finish())
    show(pieces[-1] + "\n")
    return "".join(pieces), n_tokens


def write_beams(
    args: argparse.Namespace, model: GPT, tokenizer: Tokenizer, prompt: Any
) -> tuple[str, int]:
    """Search the likeliest text."""
    for name in ("temperature", "top_k", "top_p"):
        if getattr(args, name) is not None:
            raise ValueError(
                "beam search does not draw, so it knows no temperature, "
                f"top-k or top-p: got {name}={getattr(args, name)} with "
                f"beam={args.beam}. Leave one of them out."
            )
    stops = list(tokenizer.special_tokens.values())
    stepper = CachedStepper(pack(model, args.beam))
    found = beam_search(
        stepper, [prompt], args.beam, args.max_new_tokens, stops
    )
    best = found[0][0].tokens
    text = tokenizer.decode(best)
    Typewriter(args.json)(args.prompt + text + "\n")
    return text, len(best)


class Typewriter:
    """Prints at once, unless JSON is wanted."""

    def __init__(self, silent: bool) -> None:
        self.silent = silent

    def __call__(self, text: str) -> None:
        """Print without a new line."""
        if not self.silent:
            print(text, end="", flush=True)


# -- coursekit eval ----------------------------------------------------------


def eval_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``coursekit eval``."""
    add_run(parser)
    parser.add_argument(
        "text",
        nargs="?",
        metavar="TEXT",
        help="a UTF-8 file, or a packaged text [default: the run's]",
    )
    parser.add_argument(
        "--split",
        choices=("validation", "training", "all"),
        default="validation",
        help="the last tenth, the rest, or all of the text "
        "[default: validation]",
    )
    add_common(parser)


def run_eval(args: argparse.Namespace) -> int:
    """Measure the loss on a whole split."""
    model, tokenizer = text_model(args)
    name = recorded_text(args.run) if args.text is None else args.text
    text = load_text(name)
    if args.split != "all":
        text = split(text)[args.split == "validation"]
    ids = torch.tensor(tokenizer.encode(text))
    context = model.config.max_len
    nats = evaluate(model, windows_of(ids, context))
    # The first token is no target.
    first = ids[:1].tolist()
    bits = nats * (len(ids) - 1) / math.log(2)
    n_chars = len(text) - len(tokenizer.decode(first))
    n_bytes = len(text.encode()) - len(tokenizer.decode_bytes(first))
    fields = {
        "text": str(name),
        "split": args.split,
        "tokens": len(ids) - 1,
        "context": context,
        "loss": nats,
        "perplexity": perplexity(nats),
        # The first token may be all there is: a character of several tokens.
        "bits_per_character": bits / n_chars if n_chars else None,
        "bits_per_byte": bits / n_bytes if n_bytes else None,
    }
    report(fields, args.json)
    return 0


def recorded_text(run: str) -> str:
    """The text that a run was trained on."""
    folder = Path(run)
    fields = read_config(folder) if folder.is_dir() else {}
    return fields.get("data", {}).get("text", "shakespeare")


# -- coursekit translate -----------------------------------------------------


def translate_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``coursekit translate``."""
    parser.add_argument(
        "run",
        metavar="MODEL",
        help="a shipped translator's name, or a model's folder",
    )
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="a UTF-8 file, a text a line [default: what is typed or piped]",
    )
    parser.add_argument(
        "--beams",
        type=int,
        default=4,
        metavar="N",
        help="search the likeliest text, N at a time; 1 takes the likeliest "
        "token at each step [default: 4]",
    )
    parser.add_argument(
        "--length-penalty",
        type=float,
        default=1.0,
        metavar="A",
        help="0 favors short texts, more favors longer ones [default: 1]",
    )
    add_common(parser)


def run_translate(args: argparse.Namespace) -> int:
    """Translate a text line by line: a line out for each line in."""
    translator = Translator.load(args.run, pick_device(args.device))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # as what comes in
    n_lines, failed = 0, False
    with open_lines(args.file) as file:
        size = 1 if file.isatty() else LINES  # who types wants an answer
        while lines := list(islice(file, size)):
            read = [
                read_line(translator, number, line)
                for number, line in enumerate(lines, n_lines + 1)
            ]
            wanted = [line for line in read if line["translation"] is None]
            wanted = [line for line in wanted if line["problem"] is None]
            texts = [line["source"] for line in wanted]
            found = translator(texts, args.beams, args.length_penalty)
            for line, text in zip(wanted, found, strict=True):
                line["translation"] = text
            show_lines(read, args.json)
            n_lines += len(read)
            failed |= any(line["problem"] for line in read)
    return 1 if failed else 0


@contextmanager
def open_lines(file: str | None) -> Iterator[BinaryIO]:
    """A file's bytes, or those of the standard input."""
    if file is None:
        yield sys.stdin.buffer
        return
    if not Path(file).exists() or Path(file).is_dir():  # a pipe is fine
        raise ValueError(
            f"the text must be a file: got {file!r}, which is none. Check "
            "the path, or leave it out and pipe the text in."
        )
    with open(file, "rb") as opened:
        yield opened


def read_line(
    translator: Translator, number: int, line: bytes
) -> dict[str, Any]:
    """A line, and what is wrong with it, which is told on stderr."""
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    text = line.decode("utf-8", "replace")
    if text.encode() != line:
        print(
            f"coursekit: note: line {number} is not UTF-8; what cannot be "
            "read became �",
            file=sys.stderr,
        )
    is_blank = not text.strip()
    problem = None if is_blank else translator.problem(text)
    if problem:
        complain(f"line {number}: {problem}", 1)
    return {
        "line": number,
        "source": text,
        "translation": "" if is_blank else None,
        "problem": problem,
    }


def show_lines(lines: Sequence[dict[str, Any]], as_json: bool) -> None:
    """Print the translations at once, a line each."""
    for line in lines:
        if as_json:
            print(json.dumps(line))
        else:
            print(" ".join((line["translation"] or "").splitlines()))
    sys.stdout.flush()


# -- coursekit info ----------------------------------------------------------


def info_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``coursekit info``."""
    parser.add_argument(
        "run",
        nargs="?",
        metavar="RUN",
        help="a run's folder or a shipped model; without it: this machine",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run_info(args: argparse.Namespace) -> int:
    """Say what a model is made of, or what this machine can do."""
    if args.run is None:
        report(about_machine(), args.json)
        return 0
    fields, texts = about_run(args.run), texts_of(args.run)
    if args.json:
        report(fields | texts, True)
        return 0
    report(fields, False)
    for text in texts.values():
        print(f"\n{text.strip()}")
    return 0


def texts_of(name: str) -> dict[str, str]:
    """A model's card and license, where its folder has them."""
    folder = coursekit.find_model(name)
    files = {"card": folder / "CARD.md", "license": folder / "LICENSE"}
    return {
        kind: path.read_text(encoding="utf-8", errors="replace")
        for kind, path in files.items()
        if path.is_file()
    }


def about_machine() -> dict[str, Any]:
    """Versions, device, shipped models."""
    device = pick_device()
    return {
        "version": version(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": str(device),
        "precision": pick_precision("auto", device),
        "threads": torch.get_num_threads(),
        "models": coursekit.shipped(),
    }


def about_run(name: str) -> dict[str, Any]:
    """Settings, parts and state of a run."""
    folder = coursekit.find_model(name)
    fields = read_config(folder)
    with torch.device("meta"):
        model = build_model(fields, folder)
    parts = {
        part: sum(p.numel() for p in module.parameters())
        for part, module in model.named_children()
    }
    about: dict[str, Any] = {
        "model": fields["model"],
        "parameters": sum(p.numel() for p in model.parameters()),
        "parameters_by_part": {k: n for k, n in parts.items() if n},
        "config": fields["config"],
    }
    about |= {k: fields[k] for k in ("train", "data") if k in fields}
    if (folder / "tokenizer.json").exists():
        tokenizer = load_tokenizer(folder / "tokenizer.json")
        about["tokenizer"] = {
            "type": tokenizer.kind,
            "vocab_size": tokenizer.vocab_size,
        }
    weights = folder / "model.safetensors"
    if weights.exists():
        about["weights"] = read_tensors(weights)[1] | {
            "sha256": hashlib.sha256(weights.read_bytes()).hexdigest()
        }
    checkpoint = folder / "checkpoint.safetensors"
    if checkpoint.exists():
        state = read_tensors(checkpoint)[1]
        about["checkpoint"] = {
            k: state.get(k) for k in ("step", "tokens", "best")
        }
    return about


def version() -> str:
    """The version of the installed package."""
    try:
        return metadata.version("executable-transformer")
    except metadata.PackageNotFoundError:
        return "not installed"


# -- what the commands share -------------------------------------------------


def add_run(parser: Any) -> None:
    """The model to use."""
    parser.add_argument(
        "run", metavar="RUN", help="a run's folder, or a shipped model's name"
    )


def add_common(parser: Any) -> None:
    """Device and JSON."""
    parser.add_argument(
        "--device",
        default="auto",
        metavar="NAME",
        help="auto, cpu, cuda or mps [default: auto]",
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON, for scripts"
    )


def positive(text: str) -> float:
    """A number above 0, for argparse."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be above 0: got {text}")
    return value


def text_model(args: argparse.Namespace) -> Loaded:
    """A GPT and its tokenizer, or a line that says what is missing."""
    device = pick_device(args.device)
    loaded = coursekit.load(args.run, device)
    if not isinstance(loaded.model, GPT) or loaded.tokenizer is None:
        raise ValueError(
            "this command needs a GPT with a tokenizer: got "
            f"{type(loaded.model).__name__} from {args.run!r}. Choose a run "
            "of coursekit train."
        )
    return loaded


def report(fields: dict[str, Any], as_json: bool) -> None:
    """Print a nested dictionary, for scripts or for people."""
    if as_json:
        print(json.dumps(fields))
        return
    for line in lines_of(fields):
        print(line)


def lines_of(fields: dict[str, Any], indent: str = "") -> Iterator[str]:
    """``name  value``, one a line, aligned."""
    width = max((len(name) for name in fields), default=0)
    for name, value in fields.items():
        if isinstance(value, dict):
            yield f"{indent}{name}"
            yield from lines_of(value, indent + "  ")
            continue
        if isinstance(value, float):
            value = f"{value:.4g}" if abs(value) < 0.01 else f"{value:.4f}"
        elif isinstance(value, list):
            value = ", ".join(map(str, value)) or "none"
        elif isinstance(value, int) and not isinstance(value, bool):
            value = f"{value:,}"
        yield f"{indent}{name:{width}}  {value}"


# Name: how it is called, and the module with its options and its work.
TEACHING = {
    "check": ("FILE [--only ID]", "coursekit.classroom.grading.checkfile"),
    "assign": (
        "PAGE ... | --roster CSV [options]",
        "coursekit.classroom.grading.assign",
    ),
    "grade": (
        "DIR --key FILE --out CSV [options]",
        "coursekit.classroom.grading.grade",
    ),
    "doctor": ("[options]", "coursekit.classroom.grading.doctor"),
    "book": ("--edition E [PAGE ...]", "coursekit.classroom.grading.editions"),
    "freeze": ("FILE [--changed]", "coursekit.classroom.grading.freeze"),
}
# Name: how it is called, its options, what it does; in a newcomer's order.
COMMANDS: dict[str, tuple[str, Callable[..., None], Callable[..., int]]] = {
    "train": ("[TEXT] --out RUN [options]", train_options, run_train),
    "generate": ("RUN [options]", generate_options, run_generate),
    "eval": ("RUN [TEXT] [options]", eval_options, run_eval),
    "translate": (
        "MODEL [FILE] [options]",
        translate_options,
        run_translate,
    ),
    "info": ("[RUN] [--json]", info_options, run_info),
    "speedrun": ("[options]", speedrun.add_options, speedrun.run),
    "start": (
        "[FILE] [--at K] [--force]",
        yourfile.start_options,
        yourfile.run_start,
    ),
    "step": (
        "[FILE] [--at K] [--seconds S]",
        yourfile.step_options,
        yourfile.run_step,
    ),
}


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = Parser(
        prog="coursekit",
        usage="coursekit COMMAND [options]",
        description=INTRO,
        epilog=EXAMPLES,
        formatter_class=plain,
    )
    parser.add_argument(
        "--version", action="version", version=f"coursekit {version()}"
    )
    commands = parser.add_subparsers(
        dest="command",
        required=True,
        metavar="COMMAND",
        help=argparse.SUPPRESS,
    )
    table = dict(COMMANDS)
    for name, (usage, home) in TEACHING.items():
        module = importlib.import_module(home)
        table[name] = usage, module.add_options, module.run
    for name, (usage, add_options, run) in table.items():
        command = commands.add_parser(
            name,
            prog=f"coursekit {name}",
            usage=f"coursekit {name} {usage}",
            description=(run.__doc__ or "").strip(),
        )
        add_options(command)
        command.set_defaults(function=run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the words after ``coursekit``; by default the process's own.

    Returns:
        The exit code: 0 done, 1 training stopped, a line not translated or
        not written, 2 bad input, 130 Ctrl-C.
    """
    args = make_parser().parse_args(argv)
    try:
        code = int(args.function(args))
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where a failure is caught
        return code
    except STOPPED as error:
        return complain(f"{error} {what_is_kept(args)}", 1)
    except BrokenPipeError:  # `coursekit generate ... | head` has enough
        discard_output()
        return 0
    except (ValueError, OSError) as error:
        if getattr(error, "errno", None) not in FULL:
            return complain(error, 2)
        discard_output()  # what is left of it would fail again
        rule = "there must be room for the output"
        return complain(f"{rule}: got {error}. Make room, and repeat.", 1)
    except RuntimeError as error:  # as torch says it of a CPU's memory
        if "can't allocate memory" not in str(error):
            raise
        asked = "the sizes must fit into memory"
        return complain(f"{asked}: got {error}. Lower them.", 2)
    except KeyboardInterrupt:
        return complain("interrupted", 130)


def discard_output() -> None:
    """Send all further output nowhere, since it can't be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def what_is_kept(args: argparse.Namespace) -> str:
    """What is left of a run that stopped."""
    if args.function is not run_train:
        return ""
    if Path(args.out, "checkpoint.safetensors").exists():
        return "The last checkpoint is kept; --resume goes on from it."
    return "There is no checkpoint yet; begin anew, with another --out."


def complain(error: object, code: int) -> int:
    """One line on stderr."""
    line = " ".join(str(error).split())
    print(f"coursekit: error: {line}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
