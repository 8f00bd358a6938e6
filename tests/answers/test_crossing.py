"""Answers through the grader's sandbox: values cross, and mean the same there.

One child runs the texts of ``tests/answers/<chapter>.py``, one after the
other, in whatever isolation this machine has.
"""

import importlib
import inspect

import pytest
from patience import PATIENCE

from coursekit_classroom.check import core
from coursekit_classroom.check.call import Outcome, Raised, call
from coursekit_classroom.check.checker import examine
from coursekit_classroom.check.diagnose import drawn, same, trace
from coursekit_classroom.teach.sandbox import Limits, Sandbox
from tests.answers import answers

SEED = 2  # test_answers.py asks at home, with other cases
PATIENT = Limits(cpu_s=PATIENCE, wall_s=PATIENCE, asks=10**6)
IMPORT = "from tests.answers import right, wrong\n"
IN_THE_CHILD = """
GIVEN = {}

def right(id, *mistakes):
    return lambda f: GIVEN.setdefault(id, []).append(f) or f

wrong = right

def refuses(*args, **kwargs):
    raise ValueError("this is not done")
"""


def refuses(*args, **kwargs):
    raise ValueError("this is not done")


def sent(id):
    """Some answers by their names in the child: right, wrong, an error."""
    given = answers(id)
    for wanted in True, False:
        n = [answer.right for answer in given].index(wanted)
        yield f"GIVEN[{id!r}][{n}]", given[n].function
    yield "refuses", refuses


@pytest.fixture(scope="module")
def box():
    """A sandbox: each text runs in an empty namespace."""
    with Sandbox(limits=PATIENT) as box:
        yield box


def fill(box, chapter):
    """Let a sandbox run a chapter's answers."""
    module = importlib.import_module(f"tests.answers.{chapter}")
    text = inspect.getsource(module)
    assert IMPORT in text
    assert box.run([text.replace(IMPORT, IN_THE_CHILD)]) == {}


def differing(box, id, word, function):
    """Names of the cases on which an answer comes to something else there."""
    exercise = core.find(id)
    given = SEED, exercise.manner is not None
    for case in core.draw(exercise, SEED):
        bound = core.bind(exercise, case)
        both = box.call(word, bound, *given), call(function, bound, *given)
        if not same(exercise, *(trace(exercise, case, one) for one in both)):
            yield case.name


@pytest.mark.parametrize("chapter", core.chapters())
def test_an_answer_comes_to_the_same_from_afar(box, chapter):
    fill(box, chapter)
    found = {
        (name, word): list(differing(box, f"{chapter}/{name}", word, answer))
        for name, exercise in core.exercises(chapter).items()
        if exercise.bugs and not exercise.local
        for word, answer in sent(f"{chapter}/{name}")
    }
    assert not any(found.values()), found


def test_another_answer_from_afar_is_found(box):
    """The control: the child is asked for another one than is called here."""
    id = "attention/attend"
    fill(box, "attention")
    (right, _), (_, wrong), (error, _) = sent(id)
    for word in right, error:
        assert list(differing(box, id, word, wrong)), word


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
