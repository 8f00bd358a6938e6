"""What would do the learner's work raises while it is checked."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.functional import relu as imported

import coursekit
from coursekit.exercises import core
from coursekit.exercises.checker import check
from coursekit.exercises.core import Case, Exercise
from coursekit.exercises.forbid import ForbiddenError, forbidden, locate


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
        forbidden(NAMES, cheat) as function,
        pytest.raises(ForbiddenError, match="asks you to write it yourself"),
    ):
        function(X)
    assert torch.equal(cheat(X), by_hand(X))
    with forbidden(NAMES, by_hand) as function:
        assert torch.equal(function(X), by_hand(X))


def test_the_forbidden_function_itself():
    with (
        forbidden(NAMES, F.relu) as function,
        pytest.raises(ForbiddenError),
    ):
        function(X)


def test_a_class_refuses_its_class_methods_too():
    def cheat():
        return coursekit.CharTokenizer.train("abc").chars

    assert cheat() == "abc"
    with (
        forbidden(["coursekit.CharTokenizer"], cheat) as function,
        pytest.raises(ForbiddenError, match=r"without coursekit\.Char"),
    ):
        function()
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
    with pytest.raises(KeyError), forbidden(NAMES, by_hand):
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
