"""Common wrong answers of a chapter, and what to say to each.

They are the mistakes that the catalogue knows: the lines as somebody would
have written them, and the words in which ``check`` says why that is wrong and
where the book explains it.  Nothing is written here a second time.
"""

import argparse
import difflib

from coursekit_classroom.check import core
from coursekit_classroom.check.core import NONE, Bug, Exercise
from coursekit_classroom.check.report import title

__all__ = ["wrong"]


def wrong(chapter: str) -> str:
    """The wrong answers of a chapter's exercises, as Markdown.

    Args:
        chapter: its name, as in an exercise's id: ``attention``.

    Returns:
        Each mistake with the lines that make it, right (``-``) and wrong
        (``+``), what they do, what to say, and where to read.

    Raises:
        ValueError: if no chapter has this name.
    """
    if chapter not in (known := core.chapters()):
        raise ValueError(
            "a chapter has the name that its exercises' ids begin with: got "
            f"{chapter!r}. There are {', '.join(known)}."
        )
    lines = [f"# {chapter}: common wrong answers"]
    for name, exercise in core.exercises(chapter).items():
        lines += ["", f"## `{chapter}/{name}`"]
        for mistake, bug in exercise.bugs.items():
            lines += ["", *said(exercise, mistake, bug)]
    return "\n".join(lines) + "\n"


def said(exercise: Exercise, mistake: str, bug: Bug) -> list[str]:
    """One mistake: its lines, what it does, why it is wrong."""
    right, other = (
        core.source_of(exercise, on).splitlines()
        for on in (NONE, frozenset({mistake}))
    )
    changed = [
        line
        for line in difflib.unified_diff(right, other, n=0, lineterm="")
        if line[:2] not in ("--", "++", "@@")
    ]
    return [
        f"**{bug.says}**",
        "",
        "```diff",
        *changed,
        "```",
        "",
        f"{bug.why} (`{bug.read}`, {title(bug.read)})",
    ]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Common wrong answers of a chapter, and what to say to each."""
    parser.add_argument("chapter", metavar="CHAPTER", help="such as attention")


def main(args: argparse.Namespace) -> int:
    """Print them."""
    print(wrong(args.chapter), end="")
    return 0
