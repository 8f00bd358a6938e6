"""``coursekit translate``: a line out for each line in."""

import argparse
import io
import json
import sys
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from coursekit.cli.common import Common
from coursekit.cli.options import add_fields
from coursekit.cli.output import complain, note
from coursekit.devices import pick_device
from coursekit.translate import Translator

LINES = 256  # that are read before they are translated


@dataclass
class Search:
    """Options of the search for a translation."""

    beams: int = 4
    """search the likeliest text, N at a time; 1 takes the likeliest token
    at each step"""
    length_penalty: Annotated[float, "A"] = 1.0
    """0 favors short texts, more favors longer ones"""


def add_options(parser: argparse.ArgumentParser) -> None:
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
    add_fields(parser, Search)
    add_fields(parser, Common)


def run(args: argparse.Namespace) -> int:
    """Translate a text line by line: a line out for each line in."""
    translator = Translator.load(args.run, pick_device(args.device))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # as what comes in
    failed = False
    with open_lines(args.file) as file:
        numbered = enumerate(file, 1)
        size = 1 if file.isatty() else LINES  # who types wants an answer
        while lines := list(islice(numbered, size)):
            read = [read_line(translator, *line) for line in lines]
            wanted = [line for line in read if line["translation"] is None]
            wanted = [line for line in wanted if line["problem"] is None]
            texts = [line["source"] for line in wanted]
            translations = translator(texts, args.beams, args.length_penalty)
            for line, text in zip(wanted, translations, strict=True):
                line["translation"] = text
            show_lines(read, args.json)
            failed |= any(line["problem"] for line in read)
    return 1 if failed else 0


@contextmanager
def open_lines(file: str | None) -> Iterator[BinaryIO]:
    """A file's bytes, or those of the standard input."""
    if file is None:
        if sys.stdin is None:  # `translate <&-`
            raise ValueError(
                "without a FILE the text is read from the standard input: "
                "got none, it is closed. Name a file, or pipe the text in."
            )
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
    if number == 1:
        line = line.removeprefix(BOM_UTF8)
    text = line.decode("utf-8", "replace")
    if text.encode() != line:
        note(f"line {number} is not UTF-8; what cannot be read became �")
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
