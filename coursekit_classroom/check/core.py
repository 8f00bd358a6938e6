"""Exercises: their definition, and where they are found.

An exercise is a reference, which is right, and ``cases(seed)``, which draws
the inputs.  ``checker.py`` calls the learner's function and the reference on
copies of the same inputs, with the same random numbers (``call.py``),
compares what comes back (``compare.py``), finds the classic mistake that
would have given the same (``diagnose.py``), and reports (``report.py``).

A ``Bug`` is a mistake: edits of the reference's source, and what they mean.
The edited source is a *mutant* (``edits.py``).
"""

import importlib
import importlib.util
import inspect
import pkgutil
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import torch

from coursekit_classroom.check.call import Function, Outcome, call, randomness
from coursekit_classroom.check.edits import (
    NONE,
    Edits,
    Switches,
    compiled,
    edited,
    written,
)

CATALOGUE = "coursekit_classroom.catalogue"
OVERLAYS: list[Path] = []
"""Folders with modules of exercises that are not public."""

Judge = Callable[[Any, "Case"], str | None]


@dataclass(frozen=True)
class Case:
    """One call: ``function(*args, **kwargs)``."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    """Says to the learner what this case tries: "two sentences"."""


@dataclass(frozen=True, init=False)
class Bug:
    """A classic mistake: an edit of a reference, and what it means.

    ``Bug(old, new, says=…, why=…, read=…)``: the text ``old`` occurs exactly
    once in the source, and ``new`` in its place is the mistake.  Further edits
    follow: ``Bug(old, new, old, new, says=…)``.  Two mistakes whose edits do
    not fit together are never made together.
    """

    says: str
    """Ends the sentence "It behaves exactly like: …", or "It looks like: …"
    where each answer is a yes or no, or the exercise has a view that shows a
    part of a value alone."""

    why: str
    """Explanation as a tutor would give it, in a sentence or two."""

    read: str
    """Section of the book that explains it: ``"04_attention#att-scale"``."""

    at: str
    """Two mistakes with the same ``at`` exclude one another, even if their
    edits fit together."""

    alone: bool = field(repr=False)
    """True if it is never made together with another: it crashes, or turns
    the result into something in which no other mistake can be seen."""

    edits: Edits = field(repr=False)
    """Old text, new text, old text, new text, …"""

    otherwise: Sequence[Edits] = field(repr=False)
    """Edits in their stead, where another mistake or a variant has changed
    what they replace: the first that fit are made."""

    def __init__(
        self,
        *texts: str,
        says: str,
        why: str = "",
        read: str = "",
        at: str = "",
        alone: bool = False,
        edits: Edits = (),
        otherwise: Sequence[Edits] = (),
    ) -> None:
        options = says, why, read, at, alone, texts or edits, otherwise
        for one, value in zip(fields(self), options, strict=True):
            object.__setattr__(self, one.name, value)

    def by(self, *edits: str, **particulars: Any) -> "Bug":
        """The same mistake, made by edits of another reference.

        What is particular to it there, such as ``says``, is said instead.
        """
        return replace(self, edits=edits, **particulars)


@dataclass(frozen=True, init=False)
class Variant:
    """Something else that may be asked for, as edits of the reference.

    ``Variant(old, new, asks=…)``; it is made before any mistake.
    """

    asks: str
    edits: Edits

    texts: Mapping[str, Mapping[str, Any]] = field(hash=False)
    """Messages of mistakes here, by name, where the book's own words would
    contradict the variant: ``{"naive": {"says": …, "why": …}}``."""

    def __init__(
        self,
        *edits: str,
        asks: str,
        texts: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    ) -> None:
        object.__setattr__(self, "asks", asks)
        object.__setattr__(self, "edits", edits)
        object.__setattr__(self, "texts", texts)


BOOK, IN_PLACE = "book", "in_place"
EVERYWHERE = {
    IN_PLACE: Bug(
        says="a function that changes an argument of its caller's in place",
        why="After the call the caller still has that tensor, list or model, "
        "and now it holds something else. Work on a copy: x = x.clone(), "
        "x = x + 1 instead of x += 1.",
        read="about/checks#checks-in-place",
    ),
}
"""Mistakes that every exercise knows: they need no edit."""
Alike = tuple[AbstractSet[str], AbstractSet[str], str]


@dataclass(frozen=True, eq=False)  # one is found again by what it is
class Exercise:
    """An exercise: its reference, its cases and its known mistakes."""

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

    words: Sequence[str] = ()
    """The texts to choose from, if an answer is one of several."""

    bugs: Mapping[str, Bug] = field(default_factory=dict)
    """The classic mistakes, by name."""

    planted: AbstractSet[str] = NONE
    """The bugs of the program that is handed out to be fixed, if it has
    more than two: a learner who changed nothing is told so."""

    alike: Sequence[Alike] = ()
    """Sets of bugs that nothing can tell apart, and the reason."""

    variants: Mapping[str, Variant] = field(default_factory=dict)
    """Variants that may be asked for, by name."""

    forbid: Sequence[str] = ()
    """Functions that would do the learner's work: ``torch.nn.LayerNorm``."""

    view: Callable[[Any, Case], Any] | None = None
    """With a judge: what of a value is compared with the mistakes' values.

    None compares the values themselves.
    """

    manner: Callable[[Mapping[str, int], Case], str | None] | None = None
    """Checks that the result was computed in the way that is asked for.

    ``manner(used, case)`` is None if it is, else one sentence that says what
    is wrong with it; ``used`` has the size of the largest result of each
    operation of PyTorch: ``{"aten.mm": 35}``.
    """

    keeps_models: bool = False
    """True if a model that is an argument must also stay as it was."""

    local: str = ""
    """Why it is checked on the page alone, and not in a sandbox."""


def mistakes(exercise: Exercise, on: Switches = NONE) -> dict[str, Bug]:
    """An exercise's mistakes by name, in words that fit some variants.

    Under a variant, the book's own solution is one of them.
    """
    by_name = {**EVERYWHERE, **exercise.bugs}
    variants = [v for name, v in exercise.variants.items() if name in on]
    if variants:
        by_name[BOOK] = Bug(
            says="the book's own solution",
            why="This assignment differs. "
            + " ".join(variant.asks for variant in variants),
        )
    for variant in variants:
        for name, texts in variant.texts.items():
            by_name[name] = replace(by_name[name], **texts)
    return by_name


def generator(seed: int) -> torch.Generator:
    """A source of random numbers for drawing cases."""
    return torch.Generator().manual_seed(seed)


def randn(g: torch.Generator, *shape: int) -> torch.Tensor:
    """A tensor of normal random numbers in double precision, for cases."""
    return torch.randn(shape, generator=g, dtype=torch.float64)


def find(id: str) -> Exercise:
    """The exercise of that id.

    Raises:
        ValueError: if there is none; it names those that are near.
    """
    chapter, _, name = str(id).partition("/")
    if chapter in chapters() and name in exercises(chapter):
        return exercises(chapter)[name]
    ids = [f"{c}/{n}" for c in chapters() for n in exercises(c)]
    near = get_close_matches(str(id), ids, 7, 0.5)
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
        for name, candidate in exercises(chapter).items():
            if candidate is exercise:
                return f"{chapter}/{name}"
    raise ValueError(
        "an exercise has an id if it is in the catalogue or in an overlay: "
        f"got another, whose reference is {exercise.reference!r}."
    )


def chapters() -> list[str]:
    """Names of the chapters that have exercises to check."""
    private = {m.name for m in pkgutil.iter_modules(map(str, OVERLAYS))}
    return sorted(public() | private)


@cache  # to look takes longer than some checks
def public() -> frozenset[str]:
    """Names of the chapters that the catalogue has exercises of."""
    here = list(importlib.import_module(CATALOGUE).__path__)
    return frozenset(m.name for m in pkgutil.iter_modules(here))


def exercises(chapter: str) -> Mapping[str, Exercise]:
    """A chapter's exercises by name, those of overlays included."""
    exercises: dict[str, Exercise] = {}
    try:
        module = importlib.import_module(f"{CATALOGUE}.{chapter}")
        exercises |= module.EXERCISES
    except ModuleNotFoundError as error:
        if error.name != f"{CATALOGUE}.{chapter}":
            raise
    for folder in OVERLAYS:
        if (path := folder / f"{chapter}.py").exists():
            exercises |= load(path).EXERCISES
    return exercises


@cache
def load(path: Path) -> ModuleType:
    """A module of an overlay; it belongs to no package.

    Raises:
        ValueError: if it cannot be imported, or has no exercises.
    """
    name = f"overlay_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # inspect finds sources through it
    try:
        spec.loader.exec_module(module)
        values = module.EXERCISES.values()
        if not all(isinstance(one, Exercise) for one in values):
            raise TypeError("a value of EXERCISES is no Exercise")
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ValueError(
            "a module of an overlay must run without an error, and its "
            "EXERCISES be a dict from names to Exercise: got "
            f"{raised(error, str(path))}. Correct it."
        ) from error
    return module


def raised(error: BaseException, file: str) -> str:
    """Describe an error and the line of the file that raised it."""
    lines = [
        line
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_filename == file
    ]
    if isinstance(error, SyntaxError):
        lines, error = [error.lineno or 1], SyntaxError(error.msg)
    where = f"{file}, line {lines[-1]}" if lines else file
    return f"{type(error).__name__} ({where}): {error}".rstrip(".: ")


def draw(exercise: Exercise, seed: int) -> Sequence[Case]:
    """An exercise's cases, even if a module starts itself at random.

    Raises:
        ValueError: if it cannot draw them, or they are no calls of its
            reference.
    """
    try:
        with randomness(seed):
            cases = exercise.cases(seed)
        for case in cases:
            bind(exercise, case)
    except Exception as error:
        file = inspect.getfile(exercise.cases)
        raise ValueError(
            "an exercise draws from each seed a list of calls of its "
            f"reference: for {seed} got {raised(error, file)}. Correct it."
        ) from error
    return cases


signature = cache(inspect.signature)


def bind(exercise: Exercise, case: Case) -> inspect.BoundArguments:
    """A case's arguments, by the names that the reference gives them."""
    return signature(exercise.reference).bind(*case.args, **case.kwargs)


@cache
def source_of(exercise: Exercise, on: Switches, name: str = "") -> str:
    """The source of a reference with mistakes or variants, as one writes it.

    Args:
        exercise: whose reference it is.
        on: names of mistakes and variants.
        name: what to call the function instead.

    Raises:
        EditError: if two of them do not fit together.
    """
    reference = exercise.reference
    changes = [
        *((x.edits,) for n, x in exercise.variants.items() if n in on),
        *(
            (bug.edits, *bug.otherwise)
            for n, bug in exercise.bugs.items()
            if n in on
        ),
    ]
    text, own = edited(written(reference), *changes), reference.__name__
    return text.replace(f"def {own}(", f"def {name or own}(", 1)


@cache
def mutant(exercise: Exercise, on: Switches = NONE) -> Function:
    """The reference with mistakes or variants, to be called."""
    reference = exercise.reference
    if not on:
        return reference
    title = f"{reference.__name__} with {', '.join(sorted(on))}"
    return compiled(source_of(exercise, on), reference, title)


def expected(
    exercise: Exercise, case: Case, seed: int, on: Switches = NONE
) -> Outcome:
    """Outcome of the reference on a case, with mistakes or variants."""
    right = call(
        mutant(exercise, frozenset(on)),
        bind(exercise, case),
        seed,
        exercise.manner is not None,
    )
    if right.error is not None and on <= set(exercise.variants):
        # The author's mistake, not the learner's.
        file = inspect.getfile(exercise.reference)
        raise ValueError(
            "an exercise's reference must be right for each of its cases: "
            f"got {raised(right.error, file)}. Correct it."
        ) from right.error
    return right
