"""Material for teachers: an exam bank, slides, common wrong answers.

``exam.toml`` holds the questions; :mod:`.export` writes them for Moodle,
Canvas and paper; ``coursekit kit`` is the command.
"""

import random
import tomllib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

__all__ = ["LETTERS", "Item", "Option", "arranged", "exam"]

LETTERS = "abcd"
LAST_CHAPTER = 19
WHOLE = 0.5  # how far a whole number may be from the right one
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Option:
    """An answer that may be chosen, or given as a number."""

    text: str
    says: str
    """Feedback, one sentence or two."""

    wrong: str = ""
    """The misconception that leads to it; empty for the right one."""

    value: str = ""
    """A Python expression that gives its numbers."""


@dataclass(frozen=True)
class Item:
    """A question with its answers."""

    name: str
    """Such as ``04-2``."""

    about: str
    """What it is on, in a few words."""

    read: str
    """The page and label where the book explains it."""

    ask: str
    options: tuple[Option, ...]
    number: float | None = None
    """If a number is asked for: how far from the right one is right."""

    compute: str = ""
    """Python that the options' expressions need."""

    general: str = ""
    """How somebody who has not read the chapter could answer."""

    @property
    def right(self) -> Option:
        """The right option."""
        (found,) = (o for o in self.options if not o.wrong)
        return found

    @property
    def question(self) -> str:
        """Text of a question; for a number, with its tolerance."""
        if self.number is None:
            return self.ask
        if self.number == WHOLE:
            return f"{self.ask} (A whole number.)"
        return f"{self.ask} (Right to within {self.number:.10g}.)"

    @property
    def key(self) -> str:
        """The letter of the right option, or the number."""
        if self.number is not None:
            return self.right.text
        return LETTERS[self.options.index(self.right)]


def exam(chapters: Collection[int] = (), seed: int = 0) -> list[Item]:
    """The exam bank, or the items of some of its chapters.

    Args:
        chapters: 0 to 19; all, if none is named.
        seed: of the order in which the options are shown.

    Returns:
        In the order of the chapters, as :func:`arranged` shows them.

    Raises:
        ValueError: if a chapter has no items.
    """
    if unknown := sorted({*chapters} - {*range(LAST_CHAPTER + 1)}):
        raise ValueError(
            f"a chapter is a number from 0 to {LAST_CHAPTER}: got "
            f"{unknown[0]}. Name chapters of the book."
        )
    count: dict[int, int] = {}
    found = []
    for row in tomllib.loads((HERE / "exam.toml").read_text("utf8"))["item"]:
        chapter = row.pop("chapter")
        count[chapter] = count.get(chapter, 0) + 1
        found.append(_item(f"{chapter:02}-{count[chapter]}", row))
    return [
        item
        for item in arranged(found, seed)
        if not chapters or int(item.name[:2]) in chapters
    ]


def arranged(items: Sequence[Item], seed: int = 0) -> list[Item]:
    """The items with their options in a drawn order.

    The right option stands equally often at each place. The answers that an
    item with a number expects are not shown, and stay.

    Args:
        items: with the right option first.
        seed: of the order.
    """
    rng = random.Random(seed)
    shown = [item for item in items if item.number is None]
    places = [n % len(LETTERS) for n in range(len(shown))]
    rng.shuffle(places)
    at = dict(zip((item.name for item in shown), places, strict=True))
    found = []
    for item in items:
        right, *others = item.options
        if item.number is None:
            rng.shuffle(others)
            others.insert(min(at[item.name], len(others)), right)
            item = replace(item, options=tuple(others))
        found.append(item)
    return found


def _item(name: str, row: dict[str, Any]) -> Item:
    """An item, with the right option first."""
    options = tuple(
        Option(o["text"], o["says"], o.get("wrong", ""), o.get("is", ""))
        for o in row.pop("options")
    )
    return Item(name=name, options=options, **row)
