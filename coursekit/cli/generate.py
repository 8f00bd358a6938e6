"""``coursekit generate``: text from a trained model."""

import argparse
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Annotated

import torch

from coursekit.cli.common import Common, add_run, text_model
from coursekit.cli.options import add_fields
from coursekit.cli.output import report
from coursekit.config import TrainConfig
from coursekit.decoder import GPT
from coursekit.generation import beam_search, check_beams, stream
from coursekit.packed import pack
from coursekit.sampling import sampler
from coursekit.steppers import GPTStepper
from coursekit.tokenizer import Tokenizer


@dataclass
class Text:
    """Options for the prompt and the length of the text."""

    prompt: Annotated[str | None, "TEXT"] = None
    """what the text begins with [default: a new line, or the first token
    that the model knows]"""
    max_new_tokens: int = 300
    """tokens to write"""


@dataclass
class Choice:
    """Options of sampling."""

    temperature: Annotated[float | None, "T"] = None
    """below 1 bolder in what is likely, above 1 wilder; 0 always takes the
    likeliest [default: 0.8]"""
    top_k: Annotated[int | None, "K"] = None
    """draw from the K likeliest"""
    top_p: Annotated[float | None, "P"] = None
    """draw from the fewest that have P of the probability"""
    beam: int | None = None
    """do not draw: search the likeliest text, N at a time"""
    seed: int = 0
    """another seed, another text"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``coursekit generate``."""
    add_run(parser)
    add_fields(parser, Text)
    group = parser.add_argument_group("the choice of each token")
    add_fields(group, Choice)
    add_fields(parser, Common)


def run(args: argparse.Namespace) -> int:
    """Write a text, and print it as it comes."""
    model, tokenizer = text_model(args)
    if args.prompt is None:
        tokens = (tokenizer.decode([i]) for i in tokenizer.ordinary_ids)
        usual = filter(tokenizer.can_encode, chain("\n", tokens))
        args.prompt = next(usual)
    if not args.prompt:
        raise ValueError(
            "a prompt must have at least one character: got ''. Leave "
            "--prompt out for the usual one."
        )
    prompt = tokenizer.encode(args.prompt)
    stops = list(tokenizer.special_tokens.values())
    began = time.perf_counter()
    choose = sample if args.beam is None else search
    chosen = choose(args, model, prompt, stops)
    show([args.prompt], args)
    pieces = show(decoded(chosen, tokenizer), args)
    show(["\n"], args)
    if args.json:
        fields = {
            "prompt": args.prompt,
            "text": "".join(pieces),
            "tokens": len(pieces) - 1,  # the last is what was left
            "seconds": round(time.perf_counter() - began, 3),
        }
        report(fields, as_json=True)
    return 0


def sample(
    args: argparse.Namespace, model: GPT, prompt: list[int], stops: list[int]
) -> Iterable[int]:
    """Draw token by token."""
    temperature = 0.8 if args.temperature is None else args.temperature
    TrainConfig(seed=args.seed)  # refuses what is no seed
    generator = torch.Generator().manual_seed(args.seed)
    draw = sampler(temperature, args.top_k, args.top_p, generator)
    stepper = GPTStepper(pack(model))
    steps = stream(stepper, [prompt], args.max_new_tokens, draw, stops)
    return (token for (token,) in steps if token is not None)


def search(
    args: argparse.Namespace, model: GPT, prompt: list[int], stops: list[int]
) -> Iterable[int]:
    """Search the likeliest text."""
    for name in ("temperature", "top_k", "top_p"):
        if getattr(args, name) is not None:
            raise ValueError(
                "beam search does not draw, so it knows no temperature, "
                f"top-k or top-p: got {name}={getattr(args, name)} with "
                f"beam={args.beam}. Leave one of them out."
            )
    check_beams(args.beam)
    stepper = GPTStepper(pack(model, args.beam))
    hypotheses = beam_search(
        stepper, [prompt], args.beam, args.max_new_tokens, stops
    )
    return hypotheses[0][0].tokens


def decoded(tokens: Iterable[int], tokenizer: Tokenizer) -> Iterator[str]:
    """Yield the text that each token completes, and the rest at the end."""
    decoder = tokenizer.stream()
    yield from map(decoder.push, tokens)
    yield decoder.finish()


def show(pieces: Iterable[str], args: argparse.Namespace) -> list[str]:
    """Print each piece as it comes, unless JSON is wanted; return all."""
    text = []
    for piece in pieces:
        text.append(piece)
        if not args.json:
            print(piece, end="", flush=True)
    return text
