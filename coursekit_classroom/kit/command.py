"""``coursekit kit``: an exam bank, slides, common wrong answers.

Each is a subcommand: a function that adds its options, and one that runs.
"""

import argparse
import sys
from pathlib import Path

from coursekit_classroom import kit
from coursekit_classroom.kit import export, slides, wrong
from coursekit_classroom.notebooks.declared import declared


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``coursekit kit``."""
    parts = parser.add_subparsers(
        dest="part",
        required=True,
        metavar="PART",
        prog="coursekit kit",
    )
    for name, (add, _) in PARTS.items():
        summary = (add.__doc__ or "").strip().split("\n")[0]
        add(parts.add_parser(name, help=summary, description=summary))


def run(args: argparse.Namespace) -> int:
    """Questions and slides for those who teach with the book.

    Exit codes: 0 if it is done, 2 for wrong input.
    """
    return PARTS[args.part][1](args)


def _chapters(words: str) -> list[int]:
    """Chapters that were named with commas between them."""
    try:
        return [int(word) for word in words.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"chapters are numbers with commas between them: got {words!r}. "
            "Write 4,5."
        ) from None


def exam_options(parser: argparse.ArgumentParser) -> None:
    """The exam bank, for Moodle, Canvas or paper."""
    parser.add_argument(
        "--chapters",
        type=_chapters,
        default=[],
        metavar="K,K",
        help="only these [default: all]",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="another order of the options [default: 0]",
    )
    parser.add_argument(
        "--format",
        choices=export.FORMATS,
        default=export.FORMATS[0],
        help="how to write",
    )
    parser.add_argument(
        "--key",
        action="store_true",
        help="the key instead of the questions (markdown)",
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="[default: print it]"
    )


def run_exam(args: argparse.Namespace) -> int:
    """Write or print items of the exam bank."""
    if args.format != "markdown" and args.key:
        raise ValueError(
            f"a key is written as markdown: got {args.format}, where it is "
            "part of the file. Leave --key out."
        )
    if args.format == "qti" and args.out is None:
        raise ValueError(
            "a zip is written to a file: got qti without --out. Add --out "
            "quiz.zip."
        )
    items = kit.exam(args.chapters, args.seed)
    made = export.made(args.format, items, args.key)
    if args.out is None:
        sys.stdout.write(made.decode())
        return 0
    args.out.write_bytes(made)
    print(f"{args.out}: {len(items)} items, {args.format}")
    return 0


def exercises_options(parser: argparse.ArgumentParser) -> None:
    """The exercises of chapters that have a check, one per line."""
    parser.add_argument(
        "pages", type=Path, nargs="+", metavar="PAGE", help="a chapter's .md"
    )


def run_exercises(args: argparse.Namespace) -> int:
    """Print them."""
    for page in args.pages:
        for one in declared(page):
            print(
                f"{one.id}: {one.title}, {one.minutes} minutes, "
                f"{one.points} points. {one.objective}"
            )
    return 0


PARTS = {
    "exam": (exam_options, run_exam),
    "exercises": (exercises_options, run_exercises),
    "slides": (slides.add_options, slides.main),
    "wrong": (wrong.add_options, wrong.main),
}
