"""What an exercise is, and where it is found.

An exercise is a reference, which is right, and ``cases(seed)``, which draws
the inputs.  ``checker.py`` calls the learner's function and the reference on
copies of the same inputs, with the same random numbers (``call.py``),
compares what comes back (``compare.py``), finds the classic mistake that
would have given the same (``diagnose.py``), and reports (``report.py``).

A reference has switches: ``reference(..., on={"no_scale"})`` makes the
mistake of that name.  What a switch means is said by its ``Bug``.
"""

import importlib
import importlib.util
import inspect
import os
import pkgutil
import sys
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from coursekit.classroom.check.call import Function, Outcome, call, randomness

CATALOGUE = "coursekit.classroom.catalogue"
OVERLAYS = [
    Path(folder)
    for folder in os.environ.get("COURSEKIT_OVERLAY", "").split(os.pathsep)
    if folder
]
"""Folders with modules of exercises that are not public."""

Switches = frozenset[str]
NONE: Switches = frozenset()
Judge = Callable[[Any, "Case"], str | None]


@dataclass(frozen=True)
class Case:
    """One call: ``function(*args, **kwargs)``."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    """Says to the learner what this case tries: "two sentences"."""


@dataclass(frozen=True)
class Bug:
    """A classic mistake: one switch of a reference."""

    says: str
    """Ends the sentence "It behaves exactly like: …", or "It looks like: …"
    where each answer is a yes or no, or the exercise has a view that shows a
    part of a value alone."""

    why: str
    """What a tutor would say to it, in a sentence or two."""

    read: str
    """Where the book explains it: ``"04_attention#att-scale"``."""

    at: str = ""
    """The line it sits in; two bugs in one line exclude one another."""

    alone: bool = field(default=False, repr=False)
    """Whether it is never made together with another: it crashes, or turns
    the result into something in which no other mistake can be seen."""


IN_PLACE = "in_place"
EVERYWHERE = {
    IN_PLACE: Bug(
        "a function that changes an argument of its caller's in place",
        "After the call the caller still has that tensor, list or model, and "
        "now it holds something else. Work on a copy: x = x.clone(), "
        "x = x + 1 instead of x += 1.",
        read="about/checks#checks-in-place",
    ),
}
"""Mistakes that every exercise knows: they need no switch."""
Alike = tuple[AbstractSet[str], AbstractSet[str], str]


@dataclass(frozen=True, eq=False)  # one is found again by what it is
class Exercise:
    """What is right, on which inputs to look, and how people go wrong."""

    reference: Function
    """Right, short, and called just as the learner's function is.

    It also sets the contract for arguments: what it leaves as it was, the
    learner's function has to leave as well.
    """

    cases: Callable[[int], Sequence[Case]]
    """``cases(seed)``: the same for the same seed, others for another."""

    rtol: float = 1e-6
    """How far a number may be off, relative to the right one."""

    atol: float = 1e-9
    """How far any number may be off."""

    judge: Judge | None = None
    """Replaces the comparison where many answers are right.

    ``judge(value, case)`` is None if the value is right, else one sentence
    that says what is wrong with it.
    """

    bugs: Mapping[str, Bug] = field(default_factory=dict)
    """The classic mistakes, by the name of their switch."""

    planted: AbstractSet[str] = NONE
    """The bugs of the program that is handed out to be fixed, if it has
    more than two: a learner who changed nothing is told so."""

    alike: Sequence[Alike] = ()
    """Sets of bugs that nothing can tell apart, and the reason."""

    variants: Mapping[str, str] = field(default_factory=dict)
    """Switches that ask for something else: what they ask for."""

    forbid: Sequence[str] = ()
    """What would do the learner's work, such as ``torch.nn.LayerNorm``."""

    view: Callable[[Any, Case], Any] | None = None
    """With a judge: what of a value is compared with the mistakes' values.

    None compares the values themselves.
    """

    keeps_models: bool = False
    """Whether a model that is an argument has to stay as it was, too."""

    local: str = ""
    """Why it is checked on the page alone, and not in a sandbox."""


def generator(seed: int) -> torch.Generator:
    """A source of random numbers for drawing cases."""
    return torch.Generator().manual_seed(seed)


def find(id: str) -> Exercise:
    """The exercise of that id.

    Raises:
        ValueError: if there is none; it names those that are near.
    """
    chapter, _, name = str(id).partition("/")
    if chapter in chapters() and name in exercises(chapter):
        return exercises(chapter)[name]
    known = [f"{c}/{n}" for c in chapters() for n in exercises(c)]
    near = get_close_matches(str(id), known, 7, 0.5)
    raise ValueError(
        f"an exercise's id is chapter/name: got {id!r}, and there is no such "
        + (f"exercise. Near it: {', '.join(near)}." if near else "chapter. ")
        + (f"There are {', '.join(chapters())}." if not near else "")
    )


def id_of(exercise: Exercise) -> str:
    """The id under which an exercise is found.

    Raises:
        ValueError: if it is none of the catalogue or an overlay.
    """
    for chapter in chapters():
        for name, known in exercises(chapter).items():
            if known is exercise:
                return f"{chapter}/{name}"
    raise ValueError(
        "an exercise has an id if it is in the catalogue or in an overlay: "
        f"got another, whose reference is {exercise.reference!r}."
    )


def chapters() -> list[str]:
    """Names of the chapters that have exercises to check."""
    here = list(importlib.import_module(CATALOGUE).__path__)
    public = {m.name for m in pkgutil.iter_modules(here)}
    private = {m.name for m in pkgutil.iter_modules(map(str, OVERLAYS))}
    return sorted(public | private)


def exercises(chapter: str) -> Mapping[str, Exercise]:
    """A chapter's exercises by name, those of overlays included."""
    found: dict[str, Exercise] = {}
    try:
        module = importlib.import_module(f"{CATALOGUE}.{chapter}")
        found |= module.EXERCISES
    except ModuleNotFoundError as error:
        if error.name != f"{CATALOGUE}.{chapter}":
            raise
    for folder in OVERLAYS:
        if (path := folder / f"{chapter}.py").exists():
            found |= load(path).EXERCISES
    return found


@cache
def load(path: Path) -> ModuleType:
    """A module of an overlay; it belongs to no package."""
    name = f"overlay_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # inspect finds sources through it
    spec.loader.exec_module(module)
    return module


def draw(exercise: Exercise, seed: int) -> Sequence[Case]:
    """An exercise's cases, even if a module starts itself at random."""
    with randomness(seed):
        return exercise.cases(seed)


def bind(exercise: Exercise, case: Case) -> inspect.BoundArguments:
    """A case's arguments, by the names that the reference gives them."""
    signature = inspect.signature(exercise.reference)
    return signature.bind(*case.args, **case.kwargs)


def expected(
    exercise: Exercise, case: Case, seed: int, on: Switches = NONE
) -> Outcome:
    """What the reference comes to on a case, with these switches on."""
    reference = exercise.reference
    if on:
        reference = partial(reference, on=frozenset(on))
    right = call(reference, bind(exercise, case), seed)
    if right.error is not None and on <= set(exercise.variants):
        raise right.error  # the author's mistake, not the learner's
    return right
