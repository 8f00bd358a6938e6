"""A form of ten items for a pilot with readers, and what their answers say.

``items.toml`` has the form; :mod:`coursekit.classroom.pilot.analysis` reads a
CSV of answers.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LETTERS", "Item", "form", "items"]

LETTERS = "abcd"


@dataclass(frozen=True)
class Item:
    """One question of the form."""

    about: str
    """What it is on, in a few words."""

    ask: str
    """The question."""

    options: tuple[str, ...]
    """As many as there are ``LETTERS``, in their order."""

    key: str
    """The letter of the right option."""

    wrong: dict[str, str]
    """Letter to misconception, for all other options."""


def items() -> list[Item]:
    """The ten items, in the order of the form."""
    text = Path(__file__).with_name("items.toml").read_text("utf8")
    found = []
    for row in tomllib.loads(text)["item"]:
        options = dict(zip(LETTERS, row["options"], strict=True))
        wrong = {k: o["wrong"] for k, o in options.items() if "wrong" in o}
        (key,) = options.keys() - wrong.keys()
        texts = tuple(option["text"] for option in row["options"])
        found.append(Item(row["about"], row["ask"], texts, key, wrong))
    return found


def form(with_key: bool = False) -> str:
    """The form as Markdown.

    Args:
        with_key: mark the right option, and say which misconception leads to
            each of the others.
    """
    lines = []
    for number, item in enumerate(items(), 1):
        lines += ["", f"**{number}.** {item.ask}", ""]
        for letter, text in zip(LETTERS, item.options, strict=True):
            said = item.wrong.get(letter, "**right**")
            note = f" — {said}" if with_key else ""
            lines.append(f"- ({letter}) {text}{note}")
    return "\n".join(lines) + "\n"
