"""Answers to the exercises, and what a check has to say of each.

Half of them are by readers who saw only the pages, not the references, the
mistakes or the checks. A file has the name of its chapter in the catalogue::

    @right("attention/attend")
    @wrong("attention/attend", "no_scale")  # a mistake of the catalogue
    @wrong("attention/attend")  # another one: rejected, and not named
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    """An answer, and how it was marked before any check ran."""

    id: str
    """The exercise's: ``"attention/attend"``."""

    function: Callable
    right: bool
    mistakes: frozenset[str] = frozenset()
    """Those that a check has to name."""

    def __str__(self):
        return f"{self.id}: {self.function.__name__}"


ANSWERS: list[Answer] = []


def right(id):
    """Mark a right answer."""
    return marked(id, True)


def wrong(id, *mistakes):
    """Mark a wrong answer, and say which mistakes a check has to name."""
    return marked(id, False, frozenset(mistakes))


def marked(*mark):
    """A decorator that adds a function to the answers."""

    def add(function):
        id, *how = mark
        ANSWERS.append(Answer(id, function, *how))
        return function

    return add


def answers(id):
    """The answers to an exercise, in the order of its chapter's file."""
    importlib.import_module(f"tests.answers.{id.partition('/')[0]}")
    return [answer for answer in ANSWERS if answer.id == id]
