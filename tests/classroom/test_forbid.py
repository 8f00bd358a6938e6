"""What would do the learner's work raises while it is checked."""

import importlib
import math
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.functional import relu as imported

import coursekit
from coursekit import minimal as aliased
from coursekit_classroom import lesson
from coursekit_classroom.check import core
from coursekit_classroom.check.checker import check
from coursekit_classroom.check.core import Case, Exercise
from coursekit_classroom.check.forbid import (
    LESSON,
    ForbiddenError,
    forbidden,
    locate,
)


def by_module(x):
    return F.relu(x)


def by_name(x):
    return imported(x)


def by_method(x):
    return x.relu()


def by_class(x):
    return nn.ReLU()(x)


def by_hand(x):
    return x * (x > 0)


NAMES = (
    "torch.nn.functional.relu",
    "torch.Tensor.relu",
    "torch.nn.ReLU",
)
X = torch.tensor([-1.0, 2.0])


@pytest.mark.parametrize("cheat", [by_module, by_name, by_method, by_class])
def test_a_forbidden_call_raises_and_everything_is_put_back(cheat):
    assert torch.equal(cheat(X), by_hand(X))
    with (
        forbidden(NAMES) as allowed,
        pytest.raises(ForbiddenError, match="asks you to write it yourself"),
    ):
        allowed(cheat)(X)
    assert torch.equal(cheat(X), by_hand(X))
    with forbidden(NAMES) as allowed:
        assert torch.equal(allowed(by_hand)(X), by_hand(X))


def test_the_forbidden_function_itself():
    with (
        forbidden(NAMES) as allowed,
        pytest.raises(ForbiddenError),
    ):
        allowed(F.relu)(X)


def test_a_class_refuses_its_class_methods_too():
    def cheat():
        return coursekit.CharTokenizer.train("abc").chars

    assert cheat() == "abc"
    with (
        forbidden(["coursekit.CharTokenizer"]) as allowed,
        pytest.raises(ForbiddenError, match=r"without coursekit\.Char"),
    ):
        allowed(cheat)()
    assert cheat() == "abc"


def test_a_check_says_it(monkeypatch):
    exercise = Exercise(by_hand, lambda seed: [Case((X,))], forbid=NAMES)
    monkeypatch.setattr(core, "chapters", lambda: ["planted"])
    monkeypatch.setattr(core, "exercises", lambda chapter: {"it": exercise})
    report = check("planted/it", by_module)
    assert report.status == "error"
    assert "without torch.nn.functional.relu" in str(report)
    assert str(report).endswith("return F.relu(x)")  # the learner's line
    assert check("planted/it", by_hand)
    # It stays forbidden when it is hidden in the module's own copy.
    assert not check("planted/it", by_name)


def test_what_raises_within_is_put_back_too():
    with pytest.raises(KeyError), forbidden(NAMES):
        raise KeyError
    assert torch.equal(F.relu(X), by_hand(X))


@pytest.mark.parametrize("name", ["relu", "torch.nn.functional.rilu", "no.x"])
def test_a_name_that_does_not_exist(name):
    with pytest.raises(ValueError, match="does not exist"):
        locate(name)


def test_every_forbidden_name_exists():
    found = 0
    for chapter in core.chapters():
        for exercise in core.exercises(chapter).values():
            for name in exercise.forbid:
                locate(name)
                found += 1
    assert found > 10
    assert coursekit.attend.__module__ == "coursekit.attention"


# -- the lesson --------------------------------------------------------------
def lesson_parts():
    """``(full name, thing)`` of all functions and classes of the lesson."""
    for module in LESSON:
        for name, thing in vars(importlib.import_module(module)).items():
            if getattr(thing, "__module__", None) == module:
                yield f"{module}.{name}", thing


PARTS = dict(lesson_parts())
LOADED = lesson.load(12)
RENAMED = LOADED.attention


def answered(q, k, v, mask=None):
    """An honest answer, in a module that has imported the lesson."""
    scores = q @ k.mT / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(-1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    return weights @ v


def test_the_lesson_has_the_parts_that_answer_exercises():
    names = {name.partition(".")[2] for name in PARTS}
    assert {
        *("minimal.attention", "minimal.merge", "minimal.BPETokenizer"),
        *("minimal.generate", "minimal_seq2seq.Transformer", "lesson.load"),
        *("minimal_seq2seq.translate", "stages.train0", "lesson.text"),
    } <= names
    assert "stages.attention" not in names  # imported: minimal's own is there


@pytest.mark.parametrize("name", PARTS)
def test_no_part_of_the_lesson_is_an_answer(name):
    report = check("attention/attend", PARTS[name])
    assert report.status == "error", str(report)
    assert f"yourself, without {name}" in str(report)


@pytest.mark.parametrize(
    ("cheat", "named"),
    [
        (lambda *a: aliased.merge(a, 0, 0), "coursekit.minimal.merge"),
        (
            lambda *a: RENAMED(*a[:3], None),
            "coursekit_classroom.lesson.chapter_12.attention",
        ),
        (
            lambda *a: LOADED.attention(*a[:3], None),
            "coursekit_classroom.lesson.chapter_12.attention",
        ),
        (
            lambda *a: lesson.load(4).attention(*a),
            "coursekit_classroom.lesson.load",
        ),
        (LOADED.attention, "coursekit_classroom.lesson.chapter_12.attention"),
        (LOADED.GPT, "coursekit_classroom.lesson.chapter_12.GPT"),
    ],
)
def test_the_lesson_is_no_answer_by_any_name(cheat, named):
    report = check("attention/attend", cheat)
    assert report.status == "error"
    assert f"without {named}" in str(report)


def calls(function, *_):
    """A function that has another in its closure."""
    return lambda q, k, v, mask=None: function(q, k, v, mask)


def called_first(first, second, q, k, v, mask=None):
    return first(q, k, v, mask)


def recursive():
    """A closure that holds itself, and a name that is not yet set."""

    def f(*a):
        return answered(*a) if f else later

    if f is None:
        later = None
    return f


@pytest.mark.parametrize(
    "cheat",
    [
        partial(aliased.attention),
        partial(partial(aliased.attention)),
        partial(called_first, aliased.attention, answered),
        partial(lambda q, k, v, m=None, *, f: f(q, k, v, m), f=RENAMED),
        calls(aliased.attention),
        calls(calls(aliased.attention)),
        calls(partial(aliased.attention)),
        partial(calls(aliased.attention)),
        (lambda m: calls(lambda *a: m.attention(*a)))(LOADED),
        calls(RENAMED),
    ],
)
def test_the_lesson_is_no_answer_in_a_closure_or_a_partial(cheat):
    before = aliased.attention, LOADED.attention
    q, mask = torch.randn(2, 3, 5), torch.ones(3, 3, dtype=torch.bool)
    right = cheat(q, q, q, mask)
    report = check("attention/attend", cheat)
    assert report.status == "error", str(report)
    assert "without coursekit" in str(report)
    assert torch.equal(cheat(q, q, q, mask), right)  # all is as it was
    assert before == (aliased.attention, LOADED.attention)


@pytest.mark.parametrize(
    "own",
    [
        partial(answered),
        calls(answered, aliased.attention),
        partial(called_first, answered, aliased.attention),
        calls(partial(answered)),
        recursive(),
    ],
)
def test_an_answer_of_ones_own_passes_in_a_closure_or_a_partial(own):
    """Even where the lesson is at hand and isn't called."""
    report = check("attention/attend", own)
    assert report.status == "passed", str(report)


def test_an_answer_of_ones_own_passes_beside_the_lesson():
    before = LOADED.attention, aliased.attention, RENAMED
    report = check("attention/attend", answered)
    assert report.status == "passed", str(report)
    assert before == (LOADED.attention, aliased.attention, RENAMED)


def test_only_the_answer_itself_is_watched():
    """Not another thread, and not what a check within it checks."""

    def answer(q, k, v, mask=None):
        seen = torch.ones(q.size(-2), q.size(-2), dtype=torch.bool)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(RENAMED, q, q, q, seen).result()
        assert check("attention/attend", answered)
        return answered(q, k, v, mask)

    def cheat(*given):
        answer(*given)
        return RENAMED(*given[:3], None)

    report = check("attention/attend", answer)
    assert report.status == "passed", str(report)
    assert "without coursekit" in str(check("attention/attend", cheat))


def test_every_exercise_forbids_the_lesson(monkeypatch):
    class SeenError(Exception):
        pass

    def spy(names):
        raise SeenError(names)

    monkeypatch.setattr("coursekit_classroom.check.checker.forbidden", spy)
    found = 0
    for chapter in core.chapters():
        for name in core.exercises(chapter):
            with pytest.raises(SeenError) as caught:
                check(f"{chapter}/{name}", by_hand)
            assert set(LESSON) <= set(caught.value.args[0])
            found += 1
    assert found > 100


def test_a_model_of_the_lesson_runs_where_an_exercise_hands_it_over():
    torch.manual_seed(0)
    model = lesson.load(12).GPT(5, 7, 6, n_heads=2, n_blocks=1)

    def ask(model):
        return model(torch.tensor([[1, 2, 3]]))

    right = ask(model)
    with forbidden(LESSON) as allowed:
        assert torch.equal(allowed(ask)(model), right)
