"""The catalogue through the grader: values cross, and mean the same there.

One child for a chapter runs the text of ``tests/catalogue/<chapter>.py``,
in whatever isolation this machine has, and is asked for every answer in it.
"""

import importlib
import inspect
from pathlib import Path

import pytest
from patience import PATIENCE

from coursekit_classroom.check import core
from coursekit_classroom.check.call import Outcome, Raised
from coursekit_classroom.check.checker import examine
from coursekit_classroom.check.diagnose import drawn
from coursekit_classroom.grading.isolation import Limits
from coursekit_classroom.grading.sandbox import Sandbox

ROOT = Path(__file__).resolve().parents[2]
SEED = 2  # test_catalogue.py asks the same here, with 0 and 1
PATIENT = Limits(
    cpu_s=PATIENCE, wall_s=PATIENCE, asks=10**6
)  # for a chapter's answers


def crossing(chapter):
    """``{name: exercise}`` of those with mistakes that a sandbox can take."""
    return {
        name: exercise
        for name, exercise in core.exercises(chapter).items()
        if exercise.bugs and not exercise.local
    }


def report(box, chapter, name, cases, answer):
    """What the parent says to an answer that ran in the child."""
    exercise = core.find(f"{chapter}/{name}")
    watched = exercise.manner is not None
    outcomes = [
        box.call(answer, core.bind(exercise, case), SEED, watched)
        for case in cases
    ]
    return examine(f"{chapter}/{name}", drawn(exercise, SEED), cases, outcomes)


@pytest.mark.parametrize("chapter", core.chapters())
def test_every_answer_is_judged_the_same_from_afar(chapter):
    answers = importlib.import_module(f"tests.catalogue.{chapter}")
    wrong = []
    with Sandbox(limits=PATIENT) as box:
        assert box.run(inspect.getsource(answers)) == []
        for name, exercise in crossing(chapter).items():
            given = box, chapter, name, core.draw(exercise, SEED)
            alike = {frozenset(a): frozenset(b) for a, b, _ in exercise.alike}
            for n in range(len(answers.RIGHT[name])):
                found = report(*given, f"RIGHT['{name}'][{n}]")
                wrong += [] if found else [str(found)]
            for bug in answers.WRONG[name]:
                found = report(*given, f"WRONG['{name}']['{bug}']")
                named = {frozenset({bug}), alike.get(frozenset({bug}))}
                wrong += (
                    [] if found.diagnosis in named else [f"{bug}: {found}"]
                )
            for n in range(len(answers.OUTSIDE[name])):
                found = report(*given, f"OUTSIDE['{name}'][{n}]")
                ok = not found and not found.diagnosis
                wrong += [] if ok else [str(found)]
    assert wrong == []


def test_few_exercises_stay_at_home_and_say_why():
    local = [
        (f"{chapter}/{name}", exercise.local)
        for chapter in core.chapters()
        for name, exercise in core.exercises(chapter).items()
        if exercise.local
    ]
    assert len(local) <= 8, local
    assert all(len(reason.split()) >= 4 for _, reason in local)


def test_a_wrong_value_from_afar_is_wrong():
    """The control: with other outcomes the same report says otherwise."""
    exercise = core.find("attention/attend")
    cases = core.draw(exercise, SEED)
    right = [core.expected(exercise, case, SEED) for case in cases]
    id = "attention/attend"
    assert examine(id, drawn(exercise, SEED), cases, right)
    lost = [Outcome(None, {}, Raised("ValueError", "no")), *right[1:]]
    found = examine(id, drawn(exercise, SEED), cases, lost)
    assert found.status == "error"
    assert (found.right, found.total) == (len(cases) - 1, len(cases))
    assert "ValueError: no" in str(found)


@pytest.mark.parametrize(
    ("id", "variant"),
    [
        ("attention/attend", "true_hides"),  # a classic mistake by itself
        ("norm/norms", "from_one"),
    ],
)
def test_an_answer_to_the_book_instead_of_the_variant_is_said(id, variant):
    exercise, on = core.find(id), frozenset({variant})
    cases = core.draw(exercise, SEED)
    plain = [core.expected(exercise, case, SEED) for case in cases]
    found = examine(id, drawn(exercise, SEED), cases, plain, on)
    assert (found.status, found.right) == ("wrong", 0)
    assert found.diagnosis == {core.BOOK}
    assert "the book's own solution" in str(found)
