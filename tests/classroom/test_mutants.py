"""Mistakes as edits of a reference: which programs they make."""

import inspect
import re
import traceback
from pathlib import Path

import pytest
import torch

from coursekit_classroom.check import core, families
from coursekit_classroom.check.checker import ELSE, check
from coursekit_classroom.check.core import Bug, Case, Exercise, Variant
from coursekit_classroom.check.diagnose import mutants
from coursekit_classroom.check.edits import EditError, edited, written


def inverse(x: float, most: float = 100.0) -> float:
    """One over x, at most `most`; x + 1 is not what is wanted."""
    y = 1 / x
    if y > most:
        y = most
    return y


def cases(seed):
    return [Case((0.001 * (seed + 1),)), Case((4.0 + seed,))]


BUGS = {
    "negative": Bug("1 / x", "-1 / x", says="−1/x", why="A sign.", read="a#b"),
    "shifted": Bug(
        "1 / x",
        "1 / (x + 1)",
        otherwise=[("-1 / x", "-1 / (x + 1)")],
        says="1/(x + 1)",
        why="No 1.",
        read="a#b",
    ),
    "no_limit": Bug(
        "    if y > most:\n        y = most\n",
        "",
        says="no limit",
        why="There is one.",
        read="a#b",
    ),
    "doubled": Bug(
        "y = 1",
        "y = 2",
        "y > most",
        "y > 2 * most",
        says="2/x",
        why="Once.",
        read="a#b",
    ),
    "no_division": Bug(
        "1 / x",
        "x",
        says="x",
        why="Divide.",
        read="a#b",
        alone=True,
    ),
}
HALF = Variant("return y", "return y / 2", asks="Here half of it is wanted.")
EXERCISE = Exercise(inverse, cases, bugs=BUGS, variants={"half": HALF})


def made(*on):
    return core.mutant(EXERCISE, frozenset(on))


@pytest.mark.parametrize(
    ("on", "x", "right"),
    [
        ((), 4.0, 0.25),
        (("negative",), 4.0, -0.25),
        (("shifted",), 4.0, 0.2),
        (("negative", "shifted"), 4.0, -0.2),
        (("no_limit",), 0.001, 1000.0),
        (("doubled",), 4.0, 0.5),
        (("half",), 4.0, 0.125),
        (("half", "negative"), 4.0, -0.125),
    ],
)
def test_a_mutant_is_the_edited_source(on, x, right):
    assert made(*on)(x) == right
    assert made(*on) is made(*on)  # made once


def test_a_source_has_no_docstring_and_takes_another_name():
    source = core.source_of(EXERCISE, frozenset({"negative"}), "mine")
    assert source == (
        "def mine(x: float, most: float = 100.0) -> float:\n"
        "    y = -1 / x\n    if y > most:\n        y = most\n    return y\n"
    )


def test_two_go_together_if_their_edits_fit():
    pairs = [set(on) for on in mutants(EXERCISE) if len(on) == 2]
    assert {"negative", "shifted"} in pairs
    assert {"shifted", "no_limit"} in pairs
    # Another text stands where the second one looks for its own.
    assert {"negative", "doubled"} not in pairs
    assert not any("no_division" in pair for pair in pairs)


def test_at_excludes_what_fits():
    same = {n: core.replace(BUGS[n], at="y") for n in ("shifted", "no_limit")}
    exercise = Exercise(inverse, cases, bugs=same)
    assert mutants(exercise) == [{"shifted"}, {"no_limit"}]


@pytest.mark.parametrize("old", ["y", "z", ""])
def test_a_text_that_occurs_twice_or_nowhere_is_no_edit(old):
    with pytest.raises(EditError, match="occurs exactly once"):
        edited(written(inverse), [(old, "w")])


def test_an_error_shows_the_mutants_own_line():
    with pytest.raises(ZeroDivisionError) as caught:
        made("negative")(0)
    frame = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (frame.filename, frame.line) == (
        "<inverse with negative>",
        "y = -1 / x",
    )
    assert "y = -1 / x" in inspect.getsource(made("negative"))


def test_a_mistake_is_named_and_a_variant_said(monkeypatch):
    monkeypatch.setattr(core, "chapters", lambda: ["planted"])
    monkeypatch.setattr(core, "exercises", lambda chapter: {"it": EXERCISE})
    assert check("planted/it", inverse)
    report = check("planted/it", lambda x: max(-1 / x, -1 / x))
    assert report.diagnosis == {"negative"}
    assert "It behaves exactly like: −1/x" in str(report)
    asked = check("planted/it", inverse, variants=["half"])
    assert (
        f"the book's own solution.\n  This assignment differs. {HALF.asks}"
        in (str(asked))
    )
    half = check("planted/it", lambda x: min(1 / x, 100) / 2)
    assert f"{ELSE} {HALF.asks}\n" in str(half)


def test_the_same_mistake_in_another_reference():
    bug = BUGS["negative"].by("a", "-a")
    assert (bug.says, bug.edits) == ("−1/x", ("a", "-a"))


def test_the_recipe_for_an_exercise_runs(tmp_path):
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text("utf8")
    names = "Bug, Case, Exercise, generator"
    overlay = tmp_path / "recipe.py"
    overlay.write_text(
        f"import torch\nfrom {core.__name__} import {names}\n"
        f"from {families.__name__} import NO_SCALE\n\n\n"
        + re.search(r"```python\n(.*?)```", text, re.DOTALL)[1],
        "utf8",
    )
    (exercise,) = core.load(overlay).EXERCISES.values()
    (case,) = exercise.cases(0)
    known = mutants(exercise)
    assert known[:2] == [{name} for name in exercise.bugs]
    assert len(known) == 3
    for axis, on in ((-1, known[0]), (-2, known[2])):
        scores = case.args[0] @ case.args[1].mT
        torch.testing.assert_close(
            core.expected(exercise, case, 0, on).value, scores.softmax(axis)
        )
