"""Keep what a term's exercises are, and see later which have changed.

coursekit freeze term.json             at the start of the term
coursekit freeze term.json --changed   when the package is newer
"""

import argparse
import ast
import hashlib
import inspect
import json
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from types import FunctionType
from typing import Any

from coursekit.classroom.check.core import Exercise, chapters, exercises
from coursekit.classroom.grading.shape import read_shaped

Prints = dict[str, dict[str, str]]
"""For each exercise, a hash of each of its parts."""


FORMER = {
    "coursekit.bpe": "coursekit.tokenizer",
    "coursekit.data.train_val_split": "coursekit.data.split",
    "coursekit.experts": "coursekit.feedforward",
    "coursekit.models": "coursekit.checkpoint",
    "coursekit.optim.cosine_schedule": "coursekit.optim.cosine",
    "coursekit.sampling": "coursekit.generation",
    "coursekit.scaling.meta_model": "coursekit.scaling.blueprint",
    "coursekit.steppers": "coursekit.generation",
}
"""What modules and functions were called: a name that moves is no change."""
TERM: dict[str, Any] = {"version": str, "exercises": {...: {...: str}}}
REWRITTEN: dict[str, dict[str, list[str]]] = json.loads(
    Path(__file__).with_name("rewritten.json").read_text("utf8")
)
"""Parts that were written again and do what they did: the hashes of before
and after.  Their mistakes had been switches of the reference and became edits
of it; old and new were compared on each mistake, on each two and under each
variant, with the cases of ten seeds.  Under its variant, five mistakes of
``vision/resized`` lost what it asks for, and now keep it."""
GONE = {"norm/places": ("coursekit.Residual", "coursekit.norm.Residual")}
"""What an exercise forbade until there was nothing left to forbid."""


def fingerprints() -> Prints:
    """What every exercise is today: its parts, each as a short hash.

    A comment, a docstring or a line break is no change.
    """
    return {
        f"{chapter}/{name}": parts(exercise, GONE.get(f"{chapter}/{name}", ()))
        for chapter in chapters()
        for name, exercise in exercises(chapter).items()
    }


def former(name: str) -> str:
    """The full name that a function had at the first release."""
    for new, old in FORMER.items():
        if f"{name}.".startswith(f"{new}."):
            return old + name[len(new) :]
    return name


def parts(exercise: Exercise, gone: Sequence[str] = ()) -> dict[str, str]:
    """The parts of an exercise and their hashes.

    Args:
        exercise: the exercise.
        gone: what it forbade and what no longer exists.
    """
    forbidden = [*map(former, exercise.forbid), *gone]
    texts = {
        "reference": program(exercise.reference),
        "cases": program(exercise.cases),
        "judge": program(exercise.judge) if exercise.judge else "",
        "tolerance": f"{exercise.rtol} {exercise.atol}",
        "mistakes": repr(sorted(exercise.bugs.items())) + made_by(exercise),
        "variants": repr(sorted(exercise.variants.items())),
        "forbidden": repr(sorted(forbidden)),
    }
    return {
        part: hashlib.sha256(text.encode()).hexdigest()[:12]
        for part, text in texts.items()
        if text
    }


def made_by(exercise: Exercise) -> str:
    """The edits that make an exercise's mistakes; nothing for switches."""
    edits = {n: (b.edits, *b.otherwise) for n, b in exercise.bugs.items()}
    return repr(sorted(edits.items())) if any(map(any, edits.values())) else ""


def program(function: Callable[..., Any]) -> str:
    """A function and all that it uses of its own module, without comments."""
    return "\n".join(normal(f) for f in used_by(function, {}))


def used_by(thing: Any, seen: dict[int, Any]) -> Iterator[Callable[..., Any]]:
    """A function, then the functions and classes of its module it uses."""
    if id(thing) in seen:
        return
    seen[id(thing)] = thing
    yield thing
    found = [thing] if isinstance(thing, FunctionType) else []
    if isinstance(thing, type):
        found = [f for f in vars(thing).values() if inspect.isfunction(f)]
    for function in found:
        for name in sorted(names(function.__code__)):
            other = function.__globals__.get(name)
            home = getattr(other, "__module__", None)
            if home == function.__module__ and callable(other):
                yield from used_by(other, seen)


def names(code: Any) -> set[str]:
    """The global names in a code object and those inside it."""
    inner = [c for c in code.co_consts if hasattr(c, "co_names")]
    return set(code.co_names).union(*map(names, inner))


def normal(function: Callable[..., Any]) -> str:
    """A source without comments, docstrings and line breaks."""
    source = textwrap.dedent(inspect.getsource(function))
    try:
        tree = ast.parse(source)
    except SyntaxError:  # a lambda in the middle of a call
        return " ".join(source.split())
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        if ast.get_docstring(node) is not None:
            del node.body[0]
        node.body = with_former_imports(node.body)
    return ast.dump(tree)


def with_former_imports(body: list[ast.stmt]) -> list[ast.stmt]:
    """Statements, in which imports of the package have the former names."""
    taken: dict[str, dict[str, str | None]] = {}
    rest: list[ast.stmt] = []
    for node in body:
        if not (
            isinstance(node, ast.ImportFrom)
            and (node.module or "").startswith("coursekit.")
        ):
            rest.append(node)
            continue
        for alias in node.names:
            full = former(f"{node.module}.{alias.name}")
            module, _, name = full.rpartition(".")
            other = None if alias.asname == name else alias.asname
            taken.setdefault(module, {})[name] = other
    imports: list[ast.stmt] = [
        ast.ImportFrom(
            module, [ast.alias(n, names[n]) for n in sorted(names)], 0
        )
        for module, names in sorted(taken.items())
    ]
    return imports + rest


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Sentences on what differs between two sets of fingerprints."""
    lines = [f"new: {id}" for id in new if id not in old]
    lines += [f"gone: {id}" for id in old if id not in new]
    for id in sorted(set(old) & set(new)):
        kinds = sorted(old[id].keys() | new[id].keys())
        known = REWRITTEN.get(id, {})
        differ = [
            kind
            for kind in kinds
            if (then := old[id].get(kind)) != (now := new[id].get(kind))
            and known.get(kind) != [then, now]
        ]
        if differ:
            lines.append(f"changed: {id} ({', '.join(differ)})")
    return sorted(lines)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``coursekit freeze``."""
    parser.add_argument("file", metavar="FILE", help="the term's file, JSON")
    parser.add_argument(
        "--changed",
        action="store_true",
        help="compare with the file; exit code 1 if an exercise has changed",
    )


def run(args: argparse.Namespace) -> int:
    """Write down what the exercises are, or say which have changed since."""
    path = Path(args.file)
    release = version("executable-transformer")
    if not args.changed:
        if path.exists():
            raise ValueError(
                f"a term is frozen once: {path} exists. Compare with it "
                "(--changed), or give another file."
            )
        today = fingerprints()
        term = {"version": release, "exercises": today}
        path.write_text(json.dumps(term, indent=1) + "\n", "utf8")
        print(f"{len(today)} exercises of version {release} in {path}")
        return 0
    try:
        frozen = read_shaped(path.read_bytes(), TERM, "term")
    except ValueError as error:
        raise ValueError(
            f"a term's file is written by coursekit freeze: {path} is none "
            f"({error})."
        ) from None
    old, then = frozen["exercises"], frozen["version"]
    today = fingerprints()
    lines = changes(old, today)
    print(f"since version {then}: {len(lines)} of {len(today)} exercises")
    print(*lines, sep="\n", end="\n" if lines else "", file=sys.stdout)
    return 1 if lines else 0
