"""``coursekit generate``: text from a trained model."""

import argparse
import json
import time
from typing import Any

import torch

from coursekit.cache import CachedStepper
from coursekit.cli.common import add_common, add_run, text_model
from coursekit.decoder import GPT
from coursekit.fast import for_generation as pack
from coursekit.generation import beam_search, stream
from coursekit.sampling import sampler
from coursekit.train_config import TrainConfig
from coursekit.vocabulary import Tokenizer


def add_options(parser: argparse.ArgumentParser) -> None:
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
    add_choice(parser)
    add_common(parser)


def add_choice(parser: argparse.ArgumentParser) -> None:
    """Options of how each token is chosen."""
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


def run(args: argparse.Namespace) -> int:
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
    hypotheses = beam_search(
        stepper, [prompt], args.beam, args.max_new_tokens, stops
    )
    best = hypotheses[0][0].tokens
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
