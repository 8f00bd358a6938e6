"""The engine behind ``coursekit.check``: statuses, words, and no traces."""

import contextlib
import json
import math
import signal
import subprocess
import sys
import threading

import forked
import numpy as np
import pytest
import torch
from torch import nn

import coursekit
from coursekit_classroom.check import call, core, report
from coursekit_classroom.check.compare import (
    apart,
    describe,
    difference,
    in_form_of,
)
from coursekit_classroom.check.core import NONE, Bug, Case, Exercise, generator

float64 = torch.float64


def twice(x):
    return 2 * x


def twice_cases(seed):
    g = generator(seed)
    return [
        Case((torch.randn(3, 5, generator=g, dtype=float64),), name="small"),
        Case((torch.randn(2, 7, generator=g, dtype=float64),), {}, "wide"),
    ]


def one_case(*args, **kwargs):
    return lambda seed: [Case(args, kwargs, name="the only one")]


@pytest.fixture
def exercise(monkeypatch):
    """``exercise(**fields)``: what ``check("planted/it", f)`` looks at."""

    def plant(reference=twice, cases=twice_cases, **more):
        planted = {"it": Exercise(reference, cases, **more)}
        monkeypatch.setattr(core, "chapters", lambda: ["planted"])
        monkeypatch.setattr(core, "exercises", lambda chapter: planted)
        return lambda f, seed=0: coursekit.check("planted/it", f, seed)

    return plant


# -- what it says ------------------------------------------------------------
def test_right(exercise):
    report = exercise()(lambda x: x + x)
    assert report.status == "passed"
    assert str(report) == "✓ planted/it: passed\n  Right on all 2 cases."
    assert repr(report) == str(report)
    assert bool(report)


def test_wrong_says_which_case_and_where(exercise):
    def late(x):
        y = 2 * x
        if x.size(1) == 7:
            y[1, 4] = y[1, 4] + 0.5
        return y

    report = exercise()(late)
    right = 2 * twice_cases(0)[1].args[0][1, 4].item()
    assert report.status == "wrong"
    assert not report
    assert report.message.splitlines() == [
        "Case 2 of 2: wide.",
        "Called with x (2, 7).",
        f"Result at [1, 4]: expected {right:.4g}, got {right + 0.5:.4g}. "
        "1 of 14 numbers differ.",
        "Right on 1 of 2 cases.",
    ]
    (x,) = report.counterexample.args
    assert not torch.equal(late(x), twice(x))
    assert report.counterexample.case == "wide"


@pytest.mark.parametrize(
    ("f", "says"),
    [
        (lambda x: 6 * x, "each is 3 times what it should be"),
        (lambda x: -2 * x, "each is -1 times"),
        (lambda x: x + x**2, "15 of 15 numbers differ."),
        (lambda x: 2 * x.mT, "expected shape (3, 5), got (5, 3)"),
        (lambda x: 2 * x[None], "expected shape (3, 5), got (1, 3, 5)"),
        (lambda x: (2 * x).int(), "expected decimals (float64), got whole"),
        (lambda x: x > 0, "got true and false (bool)"),
        (lambda x: x / 0, "got inf"),
        (lambda x: x.clamp(min=0).log() * 0, "of 15 numbers are NaN"),
        (lambda x: (x, x), "a tensor (3, 5), got a tuple of 2"),
        (lambda x: "2x", "a tensor (3, 5), got '2x'"),
        (lambda x: lambda: x, "got <lambda>"),
        (lambda x: x.to("meta"), "got a tensor (3, 5)"),
        (lambda x: x.to_sparse(), "got a tensor (3, 5)"),
        (lambda x: (2 * x).to(torch.float16), "numbers differ"),
    ],
)
def test_wrong_in_words(exercise, f, says):
    report = exercise()(f)
    assert report.status == "wrong"
    assert says in report.message


def test_a_tiny_difference_gets_enough_digits(exercise):
    right = torch.tensor([1.0], dtype=float64)
    check = exercise(lambda: right, one_case(), rtol=1e-9)
    report = check(lambda: right + 1e-7)
    assert "expected 1, got 1.0000001." in report.message


def stub(x): ...


def stub_with_a_word(x):
    """Twice the number."""


def raising_stub(x):
    raise NotImplementedError


@pytest.mark.parametrize(
    "f", [stub, stub_with_a_word, raising_stub, lambda x: ..., None, ...]
)
def test_a_stub_is_not_attempted(exercise, f):
    report = exercise()(f)
    assert str(report) == (
        "– planted/it: not attempted\n  Nothing is written yet."
    )


def test_an_operation_that_pytorch_lacks_is_no_stub(exercise):
    report = exercise()(lambda x: torch.zeros(1).long().log_softmax(-1))
    assert "not implemented for 'Long'" in str(report)


def test_a_forgotten_return_is_told(exercise):
    def forgets(x):
        y = 2 * x  # noqa: F841

    report = exercise()(forgets)
    assert report.status == "not attempted"
    assert "Is there a `return`" in report.message


def test_none_may_be_right_or_wrong(exercise):
    def first_above(x, limit):
        return next((i for i, a in enumerate(x) if a > limit), None)

    def cases(seed):
        return [Case(([1, 5, 7], 4)), Case(([1, 2], 4)), Case(([9], 4))]

    check = exercise(first_above, cases)
    assert check(first_above)
    report = check(lambda x, limit: 1 if 5 in x else None)
    assert "Case 3 of 3\n" in report.message
    assert "expected 0, got None" in report.message
    check = exercise(lambda: None, one_case())
    assert check(stub_without_arguments)  # nothing is what is asked for


def stub_without_arguments(): ...


@pytest.mark.parametrize("error", [ValueError, SystemExit, RecursionError])
def test_what_it_raises_is_told_and_goes_no_further(exercise, error):
    def raises(x):
        y = x + 1
        if x.size(0) == 2:
            raise error("no good")
        return y + x - 1

    report = exercise()(raises)
    assert report.status == "error"
    assert report.message.splitlines()[2:] == [
        f"It raised {error.__name__}: no good",
        f"in line {raises.__code__.co_firstlineno + 3}: "
        'raise error("no good")',
        "Right on 1 of 2 cases.",
    ]


def test_a_wrong_signature_is_an_error(exercise):
    report = exercise()(lambda x, y: x)
    assert report.status == "error"
    assert "missing 1 required positional argument: 'y'" in report.message


def test_what_is_seen_in_part_is_said_to_look_alike(exercise):
    bugs = {"double": Bug("x, x", "x, 2 * x", says="twice", read="x#y")}

    def double(x):
        return (x, x)

    def judge(value, case):
        return None if value[1] == case.args[0] else "It is not the same."

    def cases(seed):
        return [Case((3,))]

    options = {"bugs": bugs, "judge": judge}
    said = str(exercise(double, cases, **options)(lambda x: (x, 2 * x)))
    assert "It behaves exactly like: twice." in said
    options["view"] = lambda value, case: value[1]
    said = str(exercise(double, cases, **options)(lambda x: (None, 2 * x)))
    assert "It looks like: twice." in said


def test_an_interrupt_goes_through(exercise):
    def endless(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        exercise()(endless)


# -- what it leaves as it was ------------------------------------------------
def test_an_argument_changed_in_place(exercise):
    x = torch.ones(3, 5, dtype=float64)
    check = exercise(twice, one_case(x))
    report = check(lambda x: x.mul_(2))
    assert report.status == "wrong"
    assert "The result is right, but the argument x" in report.message
    assert torch.equal(x, torch.ones(3, 5, dtype=float64))


def add(x):
    return x + 1


ADD = {
    "bugs": {"minus": Bug("+", "-", says="a minus", read="x#y")},
    "cases": one_case(torch.arange(3.0, dtype=float64)),
}


@pytest.mark.parametrize(
    ("step", "diagnosis"),
    [
        (1, {"in_place"}),
        (-1, {"minus", "in_place"}),
        (2, set()),
    ],
)
def test_a_change_in_place_is_named_beside_any_mistake(
    exercise, step, diagnosis
):
    def changes(x):
        x += step
        return x

    report = exercise(add, **ADD)(changes)
    assert report.diagnosis == diagnosis
    assert ("changes an argument" in str(report)) == bool(diagnosis)
    assert exercise(add, **ADD)(lambda x: x - 1).diagnosis == {"minus"}


def test_a_model_that_is_an_argument_stays_as_it_was(exercise):
    def whole(model):
        return model.weight.sum().item()

    def spoils(model):
        found = model.weight.sum().item()
        with torch.no_grad():
            model.weight[0] = 0
        return found

    cases = one_case(nn.Linear(2, 3))
    assert exercise(whole, cases)(spoils)
    check = exercise(whole, cases, keeps_models=True)
    assert check(whole)
    assert "argument model" in str(check(spoils))


def test_a_number_that_holds_its_graph_is_none(exercise):
    check = exercise(lambda x: [float(x.sum())], one_case(torch.ones(3)))
    assert check(lambda x: [x.sum()])
    report = check(lambda x: [x.requires_grad_().sum()])
    assert "Call .item()" in str(report)


def short(x):
    return x[:, 0]


def test_crashes_are_alike_if_their_messages_are(exercise):
    bugs = {"too_far": Bug("0", "9", says="too far", read="x#y")}
    check = exercise(short, one_case(torch.ones(2, 3)), bugs=bugs)
    assert check(lambda x: x[:, 0:10][:, 9]).diagnosis == {"too_far"}

    def other(x):
        raise IndexError("something else")

    assert check(other).diagnosis == NONE
    assert check(other).status == "error"


def yes(x):
    return x > 0


def test_of_a_yes_or_no_no_two_mistakes_are_told(exercise):
    bugs = {
        "turned": Bug("x > 0", "x <= 0", says="turned"),
        "always": Bug("x > 0", "True", says="always"),
    }

    def cases(seed):
        return [Case((x,)) for x in (1, -1)]

    check = exercise(yes, cases, bugs=bugs)
    assert check(lambda x: True).diagnosis == {"always"}
    assert check(lambda x: x < 0).diagnosis == {"turned"}
    assert check(lambda x: False).diagnosis == NONE


def test_a_crash_of_what_was_returned_shows_the_learners_line(
    exercise, tmp_path
):
    def judge(value, case):
        value(torch.ones(2))

    check = exercise(lambda: None, one_case(), judge=judge)
    source = "def answer():\n    return lambda x: x @ torch.ones(3)\n"
    file = tmp_path / "theirs.py"
    file.write_text(source)
    space = {"torch": torch}
    exec(compile(source, str(file), "exec"), space)
    text = str(check(space["answer"]))
    assert "What it returned raised RuntimeError" in text
    assert "in line 2: return lambda x: x @ torch.ones(3)" in text


# -- how long it takes -------------------------------------------------------
def endless(x):
    while True:
        x = x + 1


def stubborn(x):
    while True:
        try:
            endless(x)
        except BaseException:
            x = 0
            if next(TRIES) == 2:
                raise


TRIES = iter(range(3))


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers")
@pytest.mark.parametrize("function", [endless, stubborn])
def test_a_loop_that_never_ends_is_stopped(exercise, function):
    exercise()
    before = signal.getsignal(signal.SIGALRM)
    report = coursekit.check("planted/it", function, limit=0.1)
    assert report.status == "error"
    assert "Case 1 of 2: small.\n  It was stopped after 0.1 s." in str(report)
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


SLOW = """
import signal
while signal.getitimer(signal.ITIMER_REAL)[0] <= 0.5:  # until it has rung
    pass
whole = True
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers")
def test_an_import_is_not_cut_short(exercise, tmp_path, monkeypatch):
    (tmp_path / "imported_slowly.py").write_text(SLOW, "utf8")
    monkeypatch.syspath_prepend(tmp_path)

    def answer(x):
        import imported_slowly  # noqa: F401

        endless(x)

    exercise()
    report = coursekit.check("planted/it", answer, limit=0.5)
    assert "It was stopped after 0.5 s." in str(report)
    assert sys.modules.pop("imported_slowly").whole


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers")
def test_another_timer_goes_on():
    signal.setitimer(signal.ITIMER_REAL, 100_000, 7)
    try:
        with call.at_most(1):
            assert signal.getitimer(signal.ITIMER_REAL)[0] <= 1
        left, again = signal.getitimer(signal.ITIMER_REAL)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    assert 1 < left <= 100_000
    assert again == 7


@pytest.mark.parametrize("limit", [0, math.inf])
def test_without_a_limit_and_elsewhere_than_on_the_main_thread(
    exercise, limit
):
    check, found = exercise(), []
    assert coursekit.check("planted/it", twice, limit=limit)
    thread = threading.Thread(target=lambda: found.append(check(twice)))
    thread.start()
    thread.join()
    assert found[0]


def test_an_argument_that_holds_nan_is_not_changed(exercise):
    x = torch.tensor([1.0, math.nan], dtype=float64)
    check = exercise(lambda x: x.nansum(), one_case(x))
    report = check(lambda x: x[0])
    assert str(report).endswith("passed\n  Right on the one case.")
    assert not check(lambda x: x.nan_to_num_().sum())


def test_in_place_is_right_where_the_reference_does_it(exercise):
    def append(items, item):
        items.append(item)
        return len(items)

    check = exercise(append, one_case([1, 2], 3))
    assert check(append)
    report = check(lambda items, item: len(items) + 1)
    assert "the argument items" in report.message


def test_gradients_modules_and_functions_as_arguments(exercise):
    weight = torch.randn(3, 3, requires_grad=True)
    product = weight * 2  # has a history
    layer = nn.Linear(3, 2)

    def slope(w, p, net, f, g):
        assert w.requires_grad
        assert p.requires_grad
        assert p.is_leaf
        loss = f(net(w + p)).sum()
        return torch.autograd.grad(loss, w)[0] + torch.rand(1, generator=g)

    g = generator(3)
    check = exercise(slope, one_case(weight, product, layer, torch.tanh, g))
    assert check(slope)
    with torch.no_grad():
        assert check(slope)

    def spoils(w, p, net, f, g):
        net.register_forward_hook(lambda *_: None)
        for parameter in net.parameters():
            parameter.data.zero_()
        return w

    before = layer.weight.clone()
    assert not check(spoils)
    assert torch.equal(layer.weight, before)
    assert not layer._forward_hooks
    assert weight.grad is None


RANDOM = """
import random
import numpy as np
import torch
import coursekit
from coursekit_classroom.check import core


def noise():
    return [torch.rand(3).tolist(), random.random(), float(np.random.rand())]


def cases(seed):
    noise()  # as a module does that starts itself at random
    return [core.Case()]


core.chapters = lambda: ["planted"]
core.exercises = lambda chapter: {"it": core.Exercise(noise, cases)}
found = []
for tries in (0, 1):
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    if tries:
        assert coursekit.check("planted/it", noise)  # the same for both
    found.append(noise())
assert found[0] == found[1]
"""


def test_random_numbers_are_seeded_and_put_back():
    """In a process of its own: the shape checker here draws numbers too."""
    subprocess.run([*forked.python(), "-c", RANDOM], check=True)


ALL = """
import importlib
import math
import pkgutil
import sys

import torch

import coursekit
import coursekit_classroom
from coursekit_classroom.check import core
from coursekit_classroom.check.diagnose import mutants

torch.set_num_threads(1)
ours = "torch", "coursekit", "coursekit_classroom"
before = {
    (name, key): value
    for name, module in sys.modules.items()
    if module
    for key, value in vars(module).items()
    if callable(value) and name.partition(".")[0] in ours
}
for chapter in core.chapters():
    for name, exercise in core.exercises(chapter).items():
        id = f"{chapter}/{name}"
        torch.set_default_device("meta")  # on which nothing can be computed
        right = coursekit.check(id, exercise.reference, limit=math.inf)
        assert right, right
        assert torch.get_default_device().type == "meta"
        torch.set_default_device(None)
    # The last one of each chapter: to diagnose all would take 10 s.
    wrong = [core.mutant(exercise, on) for on in mutants(exercise)[:1]]
    for mutant in wrong or [lambda *args, **kwargs: None]:
        assert not coursekit.check(id, mutant, limit=math.inf)
for package in coursekit, coursekit_classroom:
    prefix = f"{package.__name__}."
    for found in pkgutil.walk_packages(package.__path__, prefix):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
for (name, key), value in before.items():
    assert vars(sys.modules[name])[key] is value, (name, key)

from coursekit import minimal, minimal_seq2seq
from coursekit_classroom import lesson

ids = torch.randint(7, (2, 5))
for make in (minimal.GPT, lesson.load(12).GPT, lesson.load(9).GPT):
    logits = make(7, 8, 8, n_heads=2, n_blocks=1)(ids)
    minimal.cross_entropy(logits, ids).backward()
minimal_seq2seq.Transformer(7, 8, 8, 2, 1)(ids, ids)
sizes = {"d_model": 8, "n_heads": 2, "n_layers": 1}
gpt = coursekit.GPT(coursekit.GPTConfig(vocab_size=7, **sizes))
coursekit.cross_entropy(gpt(ids), ids).backward()
stepper = coursekit.GPTStepper(gpt)
coursekit.generate(stepper, [[1, 2]], 2, coursekit.sampler(0.5, top_k=3))
coursekit.beam_search(stepper, [[1, 2]], 2, 2)
minimal.make_optimizer(gpt).step()
torch.nn.Transformer(8, 2, 1, 1, 8)(*torch.randn(2, 3, 4, 8))
"""


def test_all_checks_leave_everything_as_it_was():
    """Whatever the default device is: a check computes on the CPU."""
    subprocess.run([*forked.python(), "-c", ALL], check=True)


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt])
def test_what_an_answer_sets_and_raises_stays_in_the_check(exercise, error):
    def spoils(x):
        torch.set_default_dtype(float64)
        torch.set_default_device("meta")
        torch.set_grad_enabled(False)
        raise error

    def state():
        now = torch.get_default_dtype(), torch.get_default_device()
        return *now, torch.is_grad_enabled(), sys.getprofile()

    before, draws = state(), torch.get_rng_state()
    with contextlib.suppress(KeyboardInterrupt):
        assert not exercise(forbid=["torch.relu"])(spoils)
    assert state() == before
    assert torch.equal(torch.get_rng_state(), draws)


# -- many right answers ------------------------------------------------------
def test_an_answer_that_is_none_of_the_words_is_told_so(exercise):
    def larger(a, b):
        return "left" if a > b else "right"

    words = ["left", "right"]
    check = exercise(larger, one_case(1, 2), words=words)
    assert check(larger)
    assert "one of 'left', 'right'" in check(lambda a, b: "Right").message
    assert "one of" not in check(lambda a, b: "left").message
    assert "one of" not in check(lambda a, b: 2).message


def test_a_judge_instead_of_the_comparison(exercise):
    def judge(value, case):
        (n,) = case.args
        return None if value % n == 0 else f"{value} is no multiple of {n}."

    def cases(seed):
        return [Case((seed + 3,)), Case((seed + 5,))]

    check = exercise(lambda n: n, cases, judge=judge)
    assert check(lambda n: 7 * n, seed=4)
    report = check(lambda n: 12)
    assert report.status == "wrong"
    assert "12 is no multiple of 5." in report.message
    report = check(lambda n: [])
    assert report.status == "wrong"
    assert "Expected something like 3, got no list (TypeError" in str(report)
    assert check(stub).status == "not attempted"


# -- equal or not ------------------------------------------------------------
T = torch.tensor
SAME = [
    (3, 3),
    (3, 3.0),
    (T(3.0), 3),
    (2.0, T(2)),
    (True, T(True)),
    ([1, 2], (1, 2)),
    ((T([1.0]), {"a": "b"}), [T([1.0]), {"a": "b"}]),
    (math.inf, math.inf),
    (T([1.0]), T([1.0], dtype=float64)),
    (T([1, 2], dtype=torch.int32), T([1, 2])),
    (nn.Parameter(T([1.0])), T([1.0])),
    (T([]), T([])),
    (T([1j]), T([1j])),
    (None, None),
    (b"ab", b"ab"),
    ({1, 2}, {2, 1}),
    (0.1 + 0.2, 0.3),
]
SAME_IN_ANOTHER_FORM = [
    (np.bool_(True), True),
    (np.int64(3), 3),
    (np.float32(0.5), T(0.5)),
    (np.arange(3.0), T([0.0, 1.0, 2.0])),
    ([np.int64(1), 2], [1, 2]),
    (T([3.0]), 3.0),
    (np.array([[3.0]]), T(3.0)),
    ([1, 0.5], T([1.0, 0.5])),
    ([1, 0], T([1.0, 0.0])),
    ([T(1.0), 2.0], T([1.0, 2.0])),
    (T([1, 2]), [1, 2]),
    (np.array([[1, 2], [3, 4]]), [(1, 2), (3, 4)]),
    (T([[1.0], [2.0]]), (T([1.0]), T([2.0]))),
    ({"a": [1, 2]}, {"a": T([1, 2])}),
    ([], T([])),
    ([], torch.empty(0, dtype=torch.int64)),
]
OTHER = [
    (3, 4),
    (1, True),
    (T([1, 0]), T([True, False])),
    (T([1.0, 0.0]), T([1, 0])),
    (T([1, 0]), T([1.0, 0.0])),
    (T([1.0, 1.0]), 1.0),
    (T(1.0), T([1.0])),
    (T([[1.0], [2.0]]), [1.0, 2.0]),
    ([[1.0], [2.0]], T([1.0, 2.0])),
    ([[1.0], [2.0, 3.0]], T([[1.0], [2.0]])),
    ([True, False], T([1, 0])),
    ([1.0, 0.0], T([1, 0])),
    ([1.0], 1.0),
    ("12", T([1.0, 2.0])),
    ([10**40], T([1])),
    (math.nan, math.nan),
    (math.inf, -math.inf),
    ([1, 2], [1, 2, 3]),
    ([1, 2], [2, 1]),
    ({"a": 1}, {"b": 1}),
    ({"a": 1}, {"a": 1, "b": 1}),
    ("ab", "abc"),
    ("ab", b"ab"),
    (None, 0),
    (0, None),
    ("12", ["1", "2"]),
    (T([1j]), T([2j])),
    (1e-8, 0),
    (np.bool_(False), True),
    (np.arange(3), T([0.0, 1.0, 2.0])),
    (np.array(["a"]), T([1.0])),
]


def compared(got, expected):
    return difference(in_form_of(expected, got), expected, 1e-6, 1e-9)


@pytest.mark.parametrize(("got", "expected"), SAME + SAME_IN_ANOTHER_FORM)
def test_same(got, expected):
    assert compared(got, expected) is None
    assert compared([got], [expected]) is None


@pytest.mark.parametrize(("got", "expected"), OTHER)
def test_other(got, expected):
    assert compared(got, expected).startswith("Result")
    inner = compared({"k": got}, {"k": expected})
    assert inner.startswith("Result['k']")


def test_only_values_can_be_compared():
    with pytest.raises(TypeError, match=r"got <class 'torch\.nn"):
        difference(1, nn.Linear(1, 1), 0.0, 0.0)


def test_a_reference_that_raises_is_the_authors_mistake(exercise):
    check = exercise(lambda x: 1 / 0, one_case(1))
    with pytest.raises(ValueError, match=r"reference.*ZeroDivision") as failed:
        check(twice)
    assert type(failed.value.__cause__) is ZeroDivisionError


def test_words_for_values():
    assert describe(torch.zeros(2, 3, dtype=float64)) == "a tensor (2, 3)"
    assert describe(T([1])) == "a tensor (1,) int64"
    assert describe([1, 2.5, "a"]) == "a list of 3 (1, 2.5, 'a')"
    assert describe(list(range(99))) == "a list of 99 (0, 1, 2, …)"
    assert len(describe("x" * 999)) == 60
    assert describe(nn.Linear(1, 1)) == "Linear"
    assert apart(1.0, 1.0 + 1e-12) == ("1", "1.000000000001")


# -- ids ---------------------------------------------------------------------
@pytest.mark.parametrize(
    ("id", "near"),
    [
        ("attention/atend", "attention/attend"),
        ("atention/attend", "attention/attend"),
        ("attend", "attention/"),
        ("???", "chapter. There are attention, "),
        ("core/check", ""),
        ("", "chapter. There are attention, "),
    ],
)
def test_an_unknown_id(id, near):
    with pytest.raises(ValueError, match="chapter/name") as caught:
        coursekit.check(id, twice)
    assert repr(id) in str(caught.value)
    assert near in str(caught.value)


def test_a_result_instead_of_a_function():
    says = r"takes the function itself: got a tensor \(2,\) float32"
    with pytest.raises(ValueError, match=says):
        coursekit.check("attention/attend", torch.ones(2))


# -- in a notebook, and what the import costs --------------------------------
def test_the_box_escapes_what_it_shows(exercise):
    report = exercise()(lambda x: "<script>")
    assert "<script>" in str(report)
    assert "<script>" not in report._repr_html_()
    assert "&lt;script&gt;" in report._repr_html_()


@pytest.fixture
def wrong():
    """The report on an answer with one known mistake, and where to read."""
    read = "04_attention#att-by-hand"
    bug = Bug("", "", says="x", why="y", read=read)
    return report.Report("a/b", "wrong", "", mistakes=((bug,),))


SECTION = "Scores, weights and a weighted sum"
PLACE = f"chapter 4, attention: {SECTION}"


def test_what_to_read_again_is_named(wrong, monkeypatch, tmp_path):
    """Without a page to lead to, there is no link that leads nowhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(report, "built", lambda place: "")
    assert f"Read again: {PLACE}\n" in f"{wrong}\n"
    assert f"Read again: {PLACE}</div>" in wrong._repr_html_()
    assert "href" not in wrong._repr_html_()


def test_read_again_leads_to_the_readers_notebook(
    wrong, monkeypatch, tmp_path
):
    """From a notebook next to it, or below; an assignment has no section."""
    near = tmp_path / "04_attention.ipynb"

    def write(heading):
        cell = {"id": "cell-7", "source": ["Before.\n", f"## {heading}\n"]}
        near.write_text(json.dumps({"cells": [{"source": "a"}, cell]}))

    write(SECTION)
    (tmp_path / "further").mkdir()
    for folder, up in ((".", ""), ("further", "../")):
        monkeypatch.chdir(tmp_path / folder)
        link = f'href="{up}04_attention.ipynb#Scores,-weights-and-a-weighted-'
        assert link in wrong._repr_html_()
    # Jupyter compares a heading with the encoded address.
    write("Why √D")
    there = report.in_notebook("04_attention#a", "Why √D")
    assert there == "../04_attention.ipynb#cell-id=cell-7"
    write("Something else")
    assert "href" not in wrong._repr_html_()


def test_read_again_leads_to_the_built_page_or_the_site(
    wrong, monkeypatch, tmp_path
):
    (tmp_path / "book").mkdir()
    text = "---\na: b\n---\n\n(att-by-hand)=\n(other)=\n## By hand\n"
    (tmp_path / "book/04_attention.md").write_text(text)
    (tmp_path / "pyproject.toml").write_text(
        '[project.urls]\nDocumentation = "https://e/"\n'
    )
    monkeypatch.setattr(report, "book_root", lambda: tmp_path)
    monkeypatch.chdir(tmp_path)
    on_site = "https://e/book/04_attention.html#att-by-hand"
    assert f"attention: By hand, {on_site}" in str(wrong)
    assert f'href="{on_site}"' in wrong._repr_html_()
    page = tmp_path / "_build/html/book/04_attention.html"
    page.parent.mkdir(parents=True)
    page.touch()
    assert f"By hand, {page.as_uri()}#att-by-hand" in str(wrong)
    # A notebook's browser opens no file.
    assert f'href="{on_site}"' in wrong._repr_html_()


def test_whatever_is_to_be_read_again_is_found():
    """Each mistake names a label; it stands under a heading of the book."""
    reads = {
        bug.read
        for chapter in core.chapters()
        for exercise in core.exercises(chapter).values()
        for bug in exercise.bugs.values()
    }
    assert len(reads) > 100
    lost = [
        read
        for read in sorted(filter(None, reads))
        if not report.located(read)[1]
    ]
    assert lost == []


def test_exercises_load_when_they_are_asked_for():
    code = (
        "import sys, coursekit\n"
        "assert not [m for m in sys.modules if 'classroom' in m]\n"
        "coursekit.check\n"
        "assert 'coursekit_classroom.check.core' in sys.modules\n"
        "assert 'coursekit_classroom.catalogue.attention' not in sys.modules\n"
    )
    subprocess.run([*forked.python(), "-c", code], check=True)
