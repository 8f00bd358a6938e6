"""Answers to the exercises, written by readers who saw the pages alone.

Nobody who wrote one had seen a reference, a mistake of the catalogue or a
check: each says before any check ran whether it is right, in what way it is
wrong, and whether that is a classic mistake. ``tests/answers/test_wild.py``
holds the checks to it. A file has the name of its chapter in the catalogue.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    """An answer, and what its writer said of it."""

    id: str
    """The exercise's: ``"attention/attend"``."""

    function: Callable
    right: bool
    what: str
    """The mistake in plain words; of a right answer, what is odd in it."""

    classic: bool = False
    """Whether it is a mistake that many people make here."""

    @property
    def name(self):
        """The function's own, with the exercise before it."""
        return f"{self.id}: {self.function.__name__}"


ANSWERS: list[Answer] = []


def right(id, what):
    """Mark a right answer, and say what is unusual in it."""

    def mark(function):
        ANSWERS.append(Answer(id, function, True, what))
        return function

    return mark


def wrong(id, what, *, classic):
    """Mark a wrong answer, and say what is wrong."""

    def mark(function):
        ANSWERS.append(Answer(id, function, False, what, classic))
        return function

    return mark
