"""A child runs a stranger's code; whatever it does, the parent goes on."""

import contextlib
import functools
import inspect
import io
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy
import pytest
import torch
from patience import PATIENCE, alive, comes

from coursekit_classroom.check.call import Raised, call
from coursekit_classroom.grading import (
    confine,
    frames,
    isolation,
    processes,
)
from coursekit_classroom.grading.frames import FrameError, Opaque
from coursekit_classroom.grading.isolation import Isolation, Limits
from coursekit_classroom.grading.sandbox import Pool, Sandbox, SandboxError
from coursekit_classroom.grading.served import SAID, Served, guarded

NONCE = bytes(range(16))
CELLS = [
    "%matplotlib inline\nimport warnings\nimport random\nimport numpy\n"
    "import torch\nwarnings.warn('careful')\nprint('hello')\n!rm -rf /",
    "def double(x, y=0, *rest, **more):\n    return 2 * x + y",
    "1 / 0\n",
    "def draws(n):\n"
    "    return torch.rand(n), random.random(), numpy.random.rand()\n",
    "def fails(x):\n    y = x + 1\n    raise KeyError('no such thing')\n",
    "def changes(x, y):\n    x += 1\n    y.append(3)\n    return y\n",
    "def apply(f, many, x):\n    return [g(x) for g in [f, *many]]\n",
    "def slope(f, x):\n"
    "    x = x.clone().requires_grad_()\n"
    "    return torch.autograd.grad(f(x).sum(), x)[0]\n",
    "def empty(x):\n    ...\n",
    "def odd(x):\n    return numpy.array([object()])\n",
    "def leaves():\n    raise SystemExit(3)\n",
    "nothing = 5\nx = !ls\n",
]
SPINS = """
import time
def spins(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
    return "done"
"""


def test_bubblewrap_works_wherever_it_can_make_name_spaces():
    """With a wrong option it would work nowhere, and all else be skipped."""
    program = isolation.find_bubblewrap()
    plain = [program, "--unshare-all", "--ro-bind", "/", "/", "true"]
    if (
        program is None
        or subprocess.run(plain, capture_output=True).returncode
    ):
        pytest.skip("bubblewrap is missing, or may make no name spaces here")
    assert isolation.why_no_bubblewrap() == ""


def usable(kind):
    """Skip, with the reason, what cannot run on this machine."""
    why = {
        Isolation.BUBBLEWRAP: isolation.why_no_bubblewrap,
        Isolation.LANDLOCK: isolation.why_no_landlock,
        Isolation.NONE: str,
    }[kind]()
    if why:
        pytest.skip(why)
    return kind


@pytest.fixture(scope="module")
def boxes():
    """Children with the cells above, one for each isolation."""
    made = {}

    def give(kind):
        if kind not in made:
            made[kind] = Sandbox(usable(kind))
            made[kind].failed = made[kind].run(CELLS)
        return made[kind]

    yield give
    for one in made.values():
        one.close()


@pytest.fixture(params=list(Isolation), ids=str)
def box(request, boxes):
    return boxes(request.param)


@pytest.fixture
def warm(boxes):
    """The one on the best isolation."""
    return boxes(isolation.best())


def bind(function, *args, **kwargs):
    return inspect.signature(function).bind(*args, **kwargs)


def loose(*args, **kwargs):
    """Arguments for a function of any signature."""
    return bind(lambda *a, **k: None, *args, **kwargs)


# -- what it is for ----------------------------------------------------------
def test_a_cell_that_raises_costs_only_itself(box):
    assert [(f.cell, f.error.kind) for f in box.failed] == [
        (2, "ZeroDivisionError")
    ]
    assert box.failed[0].error.text == "division by zero\nin line 1: 1 / 0"
    for word in ("hello", "careful"):  # a warning costs nothing
        assert comes(lambda word=word: word in box.output), box.output
    failed = box.run(["x = nothing + 1", "oops("])
    assert [f.cell for f in failed] == [box._cells - 1]
    assert failed[0].error.kind == "SyntaxError"


def test_a_call_gives_the_value_and_the_arguments(box):
    def double(x, y=0, *rest, **more):
        return 2 * x + y

    x = torch.randn(3, 4).T
    got = box.call("double", bind(double, x, y=1.5))
    assert got.error is None
    assert torch.equal(got.value, 2 * x + 1.5)
    assert got.value.dtype is x.dtype
    assert list(got.arguments) == ["x", "y"]

    def changes(x, y):
        pass

    x, y = torch.zeros(2), [1]
    got = box.call("changes", bind(changes, x, y))
    assert got.arguments["x"].tolist() == [1.0, 1.0]
    assert got.arguments["y"] == [1, 3] == got.value
    assert (x.tolist(), y) == ([0.0, 0.0], [1])  # ours are untouched


def test_what_a_call_uses_is_told_if_it_is_watched(box):
    def products(x):
        return x @ x.T

    bound = bind(products, torch.randn(3, 4))
    assert box.call("lambda x: x @ x.T", bound).used == {}
    used = box.call("lambda x: x @ x.T", bound, watched=True).used
    assert used["aten.mm"] == 9
    assert used == call(products, bound, watched=True).used


def test_the_same_seed_gives_what_it_gives_in_this_process(box):
    def draws(n):
        return torch.rand(n), random.random(), numpy.random.rand()

    for seed in (0, 5, 2**40 + 1):
        here = call(draws, bind(draws, 4), seed).value
        there = box.call("draws", bind(draws, 4), seed).value
        assert torch.equal(here[0], there[0])
        assert here[1:] == there[1:]
    assert box.call("draws", bind(draws, 4), 1).value[1] != here[1]


def test_an_error_says_its_class_message_and_line(box):
    got = box.call("fails", loose(1))
    assert isinstance(got.error, Raised)
    assert got.error.kind == "KeyError"
    assert got.error.text == (
        "'no such thing'\nin line 3: raise KeyError('no such thing')"
    )
    assert got.value is None
    assert box.call("leaves", loose()).error.kind == "SystemExit"
    assert box.call("missing", loose()).error.kind == "NameError"
    assert box.call("nothing", loose()).error.kind == "TypeError"
    assert box.call("double", loose()).error.kind == "TypeError"


def test_functions_of_the_parent_are_called_there(box):
    asked = []

    def ours(x):
        asked.append(x)
        return x.sin()

    got = box.call("apply", loose(ours, [torch.cos, len], torch.ones(2)))
    assert got.error is None
    assert torch.equal(got.value[0], torch.ones(2).sin())
    assert torch.equal(got.value[1], torch.ones(2).cos())
    assert got.value[2] == 2
    assert len(asked) == 1

    def wrong(x):
        raise ValueError("the rule")

    got = box.call("apply", loose(wrong, [], 1))
    assert got.error.kind == "ValueError"
    assert got.error.text.startswith(SAID[:190])  # not its own words
    assert "in line 2" in got.error.text


LOOKS = """
import inspect
def look(f, *calls):
    said = [repr(f), str(f), f.__name__, f.__qualname__, str(vars(f).keys()),
        str(inspect.signature(f)), str(f.__doc__), type(f).__name__]
    for args, more in calls:
        try:
            said.append(repr(f(*args, **more)))
        except Exception as error:
            said.append(repr(error))
    return said
"""


def test_functions_of_the_parent_cannot_be_told_apart(warm):
    """By anything but what they return for what the exercise gives them."""

    class PeekError(Exception):
        pass

    class Result:
        pass

    def peeking(x):
        if x == 1:
            raise PeekError("I peek")
        return Result()

    def honest(x, fast=True, *, more=0):
        if x == 1:
            raise OursError("I do not")
        return OursError()

    class OursError(Exception):
        pass

    calls = [((), {}), ((1,), {}), ((2,), {}), ((2, True), {})]
    calls += [((2,), {"fast": False}), ((2,), {"more": 1})]
    warm.run([LOOKS])
    first, second = (
        warm.call("look", loose(f, *calls)).value for f in (peeking, honest)
    )
    assert first == second
    assert "peek" not in " ".join(first).lower()
    # What takes anything is the same reference, with mistakes or without.
    got = warm.call("look", loose(lambda *a, **k: k["y"], ((), {"y": 7})))
    assert got.value[-1] == "7"


def test_gradients_go_through_a_function_of_the_parent(box):
    x = torch.randn(5)
    got = box.call("slope", loose(lambda x: (x**3).tanh(), x))
    assert got.error is None
    y = x.clone().requires_grad_()
    right = torch.autograd.grad((y**3).tanh().sum(), y)[0]
    assert torch.allclose(got.value, right)


def test_what_does_not_travel_is_said(box):
    assert isinstance(box.call("odd", loose(1)).value, Opaque)
    with pytest.raises(FrameError, match=r"module cannot be sent.*Linear"):
        box.call("double", loose(torch.nn.Linear(2, 2)))
    assert box.call("double", loose(2)).value == 4  # it is still well

    def module(x):
        return {1: [2**10_000_000]}, torch.zeros(1).expand(10**6, 10**6)

    got = box.call("apply", loose(module, [], 1))
    assert got.error.kind == "ValueError"


def test_it_says_which_isolation_it_has(box):
    assert box.isolation in ("bubblewrap", "landlock", "none")
    assert f"{box.isolation}" == box.isolation.value


def test_look_tells_an_empty_function_from_a_written_one(warm):
    assert warm.look("empty") == (True, True)
    assert warm.look("double") == (True, False)
    assert warm.look("nothing") == (False, False)
    assert warm.look("missing") is None


def test_the_package_is_there_and_its_check_does_nothing(box):
    failed = box.run(
        "import coursekit\n"
        "from coursekit import attend\n"
        "assert coursekit.check('attention/attend', attend) is None\n"
    )
    assert failed == []


FIGURES = [
    "from coursekit import live\n"
    "from coursekit_classroom import figures, glue\n"
    "figures.heatmap([[1]], title='one')\n"
    "glue.glue('n', 3)\n"
    "live.still('attention', 'captions', 'A dog.', layer=1);",
    "from coursekit_classroom import figures, lesson, live\n"
    "left, right = figures.new_figure(4.6, columns=2)[1]\n"
    "left.bar([1], [2], color=figures.COLORS['blue'])\n"
    "for ax, title in zip(figures.mosaic('ab', 3.0), 'ab'):\n"
    "    ax.set_title(title)\n"
    "with figures.plt.style.context('x'):\n"
    "    model = lesson.load(4)",
    "import torch\n"
    "from coursekit_classroom.by_hand import W_Q, WORDS, X\n"
    "q, y = X[1] @ W_Q + 1, torch.softmax(torch.ones(2, 4) @ W_Q / 2, -1)\n"
    "print(f'{q:.2f}', len(WORDS), y > 1)",
    "from coursekit_classroom.check.core import Bug\nBug('a', 'b', read='c')",
    "import coursekit\ncoursekit.start()\nassert not coursekit.step(at=2)",
]


def test_a_figure_beside_an_answer_costs_nothing(box):
    """What the course draws and checks is not there: it does nothing."""
    answer = "\ndef answer_{0}(x):\n    return 2 * x + {0}\n"
    cells = [f + answer.format(n) for n, f in enumerate(FIGURES)]
    assert box.run(cells) == []
    for n in range(len(cells)):
        assert box.call(f"answer_{n}", loose(3)).value == 6 + n


def test_no_stand_in_answers(box):
    """What it gives can't be graded."""
    source = (
        "from coursekit_classroom.check import core\n"
        "def f(x): return core.find('attention/attend').reference(x, x, x)\n"
    )
    assert box.run(source) == []
    value = box.call("f", loose(torch.ones(2, 3))).value
    assert isinstance(value, Opaque)


def test_a_sandbox_from_its_beginning_to_its_end():
    with Sandbox(limits=Limits(output=1000)) as other:
        other.run("kept = 1; print('begin'); print('x' * 5_000_000)")
        assert comes(lambda: len(other.output) == 1000)
        assert other.output.startswith("begin\nxxx")
        other.run("def f(): return kept")
        assert other.call("f", loose()).value == 1
        failed = other.run("kept + 1", fresh=True)
        assert failed[0].error.kind == "NameError"
        assert failed[0].cell == 0
        usage = other.usage
        folder = Path(other._folder)
        assert folder.exists()
        pids = other.pids
    assert 0 <= usage.cpu_s < 5
    if sys.platform == "linux":
        assert usage.memory > 50 << 20
    assert not folder.exists()
    assert len(pids) >= 1
    assert comes(lambda: not any(Path(f"/proc/{p}").exists() for p in pids))
    with pytest.raises(SandboxError, match="closed"):
        other.run("1")


@pytest.mark.parametrize(
    ("source", "plain"),
    [
        ("%matplotlib inline\nx = 1", "pass\nx = 1"),
        ("x = 7\nx %= 3\ny = (x\n% 2)", "x = 7\nx %= 3\ny = (x\n% 2)"),
        ("if 1:\n    !ls -l\n    x = 1", "if 1:\n    pass\n    x = 1"),
        ("files = !ls\nx = 1", "files = None\nx = 1"),
        ("t = %timeit -o f()", "t = None"),
        ("attend?\n?attend\nx = 1", "pass\npass\nx = 1"),
        ("%%time\nx = 1", "pass\nx = 1"),
        ("%%bash\nrm -rf /", ""),
        ("\n%%html\n<b>", ""),
        ("s = '''\n%time\n!ls\n'''", "s = '''\n%time\n!ls\n'''"),
        ("def f(:\n    pass", "def f(:\n    pass"),
    ],
)
def test_magics_do_nothing_and_lines_keep_their_number(source, plain):
    from coursekit_classroom.grading import child

    assert child.plain_python(source).strip("\n") == plain.strip("\n")


# -- limits ------------------------------------------------------------------
def test_cpu_time_is_limited_and_more_of_it_helps():
    """A time-out is not for ever: a larger limit lets the same code pass."""
    with Sandbox(limits=Limits(cpu_s=1.0, wall_s=PATIENCE)) as box:
        box.run(SPINS)
        with pytest.raises(SandboxError, match="CPU time") as caught:
            box.call("spins", loose(PATIENCE))
        assert caught.value.status == "timeout"
        with pytest.raises(SandboxError, match="CPU time"):
            box.call("spins", loose(0))  # it is dead, and says why
    with Sandbox(limits=Limits(cpu_s=100.0, wall_s=PATIENCE)) as box:
        box.run(SPINS)
        assert box.call("spins", loose(1.5)).value == "done"


@pytest.mark.skipif(sys.platform != "linux", reason="memory is not limited")
@pytest.mark.parametrize("kind", list(Isolation), ids=str)
def test_memory_is_limited_beyond_what_torch_takes(kind):
    """A limit that the libraries of no build of torch would leave."""
    with Sandbox(usable(kind), Limits(memory=512 << 20)) as box:
        box.run("import torch\ndef f(n): return len(torch.ones(n, dtype=int))")
        assert box.call("f", loose(40_000_000)).value == 40_000_000  # 320 MB
        error = box.call("f", loose(70_000_000)).error  # 560 MB
        assert error.kind == "RuntimeError"
        assert re.search("(not enough|can't allocate) memory", str(error))


def test_time_on_the_clock_is_limited_too():
    with Sandbox(limits=Limits(wall_s=0.5)) as box:
        with pytest.raises(SandboxError, match="on the clock") as caught:
            box.run("import time\ntime.sleep(10**6)")
        assert caught.value.status == "timeout"


def test_a_stranger_may_ask_only_so_often():
    limits = Limits(asks=20)
    with Sandbox(limits=limits) as box:
        box.run("def f(g):\n    while True: g(1)")
        with pytest.raises(SandboxError, match="21 times") as caught:
            box.call("f", loose(abs))
        assert caught.value.status == "timeout"


@pytest.mark.parametrize(
    "question",
    [
        None,
        "call",
        {},
        {"call": 1, "args": (), "kwargs": {}},
        {"call": -1, "args": (), "kwargs": {}},
        {"call": True, "args": (), "kwargs": {}},
        {"call": 0, "args": [], "kwargs": {}},
        {"call": 0, "args": (), "kwargs": {1: 2}},
        {"call": 0, "args": ()},
        {"backward": 0, "grad": torch.ones(1)},
        {"backward": "x", "grad": None},
    ],
)
def test_questions_of_another_form_are_refused(question):
    with pytest.raises(FrameError):
        Served([abs], Limits()).answer(question, 10, NONCE)


def ask(served, number, *args, size=10):
    """What a function of ours answers."""
    question = {"call": number, "args": args, "kwargs": {}}
    return opened(served.answer(question, size, NONCE))


def opened(data):
    left = io.BytesIO(data)
    return frames.unpack(frames.receive(left.read))


def test_serving_a_stranger_is_bounded():
    served = Served([torch.zeros, spin], Limits(cpu_s=0.3))
    with pytest.raises(FrameError):
        ask(served, 0, 1, size=2 << 20)
    if sys.platform == "linux":
        answer = ask(served, 0, 10**11)
        assert answer["error"][0] in ("RuntimeError", "MemoryError")
    assert ask(served, 1)["error"][0] == "TimeoutError"
    with pytest.raises(TimeoutError, match=r"0\.3 s of CPU time"):
        ask(served, 0, 1)
    assert torch.zeros(2).sum() == 0  # our own limits are as before


def test_reading_what_a_stranger_sends_is_bounded(monkeypatch):
    frame = frames.Frame(NONCE, b"[]", b"")
    served = Served([], Limits(cpu_s=0.2))
    monkeypatch.setattr(frames, "unpack", lambda frame: spin())
    began = time.process_time()
    for _ in range(2):  # it costs what it took, so that the next is refused
        with pytest.raises(TimeoutError):
            served.unpack(frame)
    assert time.process_time() - began > 0.2
    # The next call of the same child begins with what it has cost.
    again = Served([], Limits(cpu_s=0.2), served.cpu_s)
    with pytest.raises(TimeoutError, match=r"0\.2 s of CPU time"):
        again.unpack(frame)


@pytest.mark.skipif(os.name == "nt", reason="there are no such timers")
def test_who_swallows_exceptions_is_ended_all_the_same():
    def stubborn():
        while True:
            with contextlib.suppress(Exception):
                spin()

    with pytest.raises(TimeoutError, match="too long"), guarded(0.2):
        stubborn()


@pytest.mark.skipif(os.name == "nt", reason="there are no such timers")
def test_a_guard_within_a_guard_leaves_the_outer_one_as_it_was():
    def twice():
        with contextlib.suppress(TimeoutError), guarded(0.1):
            spin()
        reached.append(time.process_time() - began)
        spin()

    reached, began = [], time.process_time()
    with pytest.raises(TimeoutError), guarded(1.0):
        twice()
    assert reached[0] > 0.1
    assert time.process_time() - began > 1.0
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is not limited")
def test_what_is_kept_for_gradients_adds_up(monkeypatch):
    """20 questions for 80 MB each, of 400 that answering them may take.

    Above 32 MB each tensor is asked of the system again; below, it may take
    a place that an earlier test left free, and nothing grows.
    """
    monkeypatch.setattr(
        "coursekit_classroom.grading.served.ASK_MEMORY", 400 << 20
    )

    def long(x):
        return x * torch.ones(5_000_000, dtype=torch.float64)

    served = Served([long], Limits())
    x = torch.ones(1, requires_grad=True)
    answers = [ask(served, 0, x) for _ in range(20)]
    refused = [a["error"][0] for a in answers if "error" in a]
    assert {*refused} <= {"MemoryError", "RuntimeError"}
    assert 2 <= len(served.tickets) <= 6
    assert len(refused) == 20 - len(served.tickets)


def test_what_cannot_be_sent_is_not_kept():
    served = Served([lambda x: x.expand(10**9)], Limits())
    answer = ask(served, 0, torch.ones(1, requires_grad=True))
    assert answer["error"] == ["ValueError", SAID]
    assert served.tickets == []


def slow_sin(x):
    """The sine, after an amount of work that every clock sees."""
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    return torch.sin(x)


def test_nothing_is_kept_once_a_call_has_ended(monkeypatch):
    made = []

    class Kept(Served):
        def __init__(self, *args):
            super().__init__(*args)
            made.append(self)

        def answer(self, *args):
            data = super().answer(*args)
            self.most = len(self.tickets)
            return data

    monkeypatch.setattr("coursekit_classroom.grading.sandbox.Served", Kept)
    with Sandbox() as box:
        box.run(CELLS)
        box.run("def stuck(f, x):\n    f(x)\n    import os\n    os._exit(0)")
        x = torch.ones(3, requires_grad=True)
        assert box.call("slope", loose(slow_sin, x)).error is None
        with pytest.raises(SandboxError):
            box.call("stuck", loose(torch.sin, x))
    asked = [served for served in made if served.asks]
    assert [served.most for served in asked] == [1, 1]
    assert [served.tickets for served in asked] == [[], []]
    assert asked[1].cpu_s >= asked[0].cpu_s > 0.04  # one account for the child


FORGER = """
import gc, os, sys
def send(channel, header):
    fr = sys.modules["frames"]
    head = fr.HEAD.pack(fr.MAGIC, channel.nonce, len(header), 0)
    data = memoryview(head + header)
    while data:
        data = data[os.write(channel.answers, data):]
def question(args):
    return (
        '["dict",[["ask",["dict",[["call",0],["args",["tuple",[' + args +
        ']]],["kwargs",["dict",[]]]]]]]]'
    ).encode()
def wide(f, n):
    return f("x" * n)
def impatient(f, n):
    for _ in range(n):
        send(f.channel, question("1"))
    import time
    time.sleep(10**6)
"""


@pytest.mark.parametrize(
    ("function", "n", "said"),
    [
        ("wide", 1_500_000, "too large"),
        ("impatient", 5, "before it took the last answer"),
    ],
)
def test_questions_that_cost_too_much_are_refused(function, n, said):
    with Sandbox() as box:
        assert box.run(FORGER) == []
        assert box.call("wide", loose(len, 900_000)).value == 900_000
        answer = torch.zeros(1 << 20)
        with pytest.raises(SandboxError, match=said) as caught:
            box.call(function, loose(lambda x: answer, n))
        assert caught.value.status == "protocol"


def test_reading_questions_is_paid_for_by_who_asks(monkeypatch):
    unpack = frames.unpack

    def slow(frame):
        end = time.process_time() + 0.2
        while time.process_time() < end:
            pass
        return unpack(frame)

    with Sandbox(limits=Limits(cpu_s=0.7)) as box:
        box.run("def f(g, n): return [g(1) for _ in range(n)]")
        monkeypatch.setattr(frames, "unpack", slow)
        with pytest.raises(SandboxError, match="asked took more than 0") as e:
            box.call("f", loose(abs, 10))
        assert e.value.status == "timeout"


def spin():
    while True:
        pass


# -- broken children ---------------------------------------------------------
@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("import os\nos._exit(0)", "died"),
        ("import ctypes\nctypes.string_at(0)", "died"),
        ("channel().send({'value': 1})\nwhile True: pass", "protocol"),
        ("channel().nonce = bytes(16)", "protocol"),
    ],
)
def test_a_child_that_breaks_says_how(code, status):
    body = code.replace("\n", "\n    ")
    source = (
        "import gc\n"
        "def channel():\n"
        "    return next(o for o in gc.get_objects()\n"
        "                if type(o).__name__ == 'Channel')\n"
        f"def f(x):\n    {body}\n"
    )
    with Sandbox() as box:
        box.run(source)
        with pytest.raises(SandboxError) as caught:  # the first, or the next
            [box.call("f", bind(lambda x: None, 1)) for _ in range(2)]
        assert caught.value.status == status


def test_answers_of_another_form_are_the_protocol_s_fault():
    box = Sandbox.__new__(Sandbox)  # no process: only what it makes of them
    fails = []

    def fail(status, text):
        fails.append(status)
        return SandboxError(status, text)

    box._fail, box._cells = fail, 0
    odd = [
        {},
        {"value": 1, "args": (), "kwargs": {}},
        {"value": 1, "args": (1, 2), "kwargs": {}},
        {"value": 1, "args": [1], "kwargs": {}},
        {"value": 1, "args": (1,), "kwargs": {"x": 1}},
        {"error": 5},
        {"error": [1, 2]},
        {"error": ["a"]},
        {"error": torch.ones(3)},
    ]
    for answer in odd:
        box._exchange = lambda *_, answer=answer: answer
        with pytest.raises(SandboxError):
            box.call("f", bind(lambda x: None, 1))
    runs = [{}, {"value": 3}, {"value": [[1]]}, {"value": [["a", "b", "c"]]}]
    runs += [{"value": [[float("inf"), "b", "c"]]}, {"value": [[0, 1, 2]]}]
    for answer in runs:
        box._exchange = lambda *_, answer=answer: answer
        with pytest.raises(SandboxError):
            box.run("1")
    looks = [{"value": 1}, {"value": [1, 0]}, {"value": [torch.ones(3)] * 2}]
    for answer in looks:
        box._exchange = lambda *_, answer=answer: answer
        with pytest.raises(SandboxError):
            box.look("f")
    assert fails == ["protocol"] * (len(odd) + len(runs) + len(looks))


def test_an_error_s_text_holds_nothing_that_a_terminal_obeys():
    from coursekit_classroom.grading.sandbox import raised

    error = raised("Bad\x1b[31m<b>", "a\x1b[2J\x07b\r\nin line 1: x\x00")
    assert error.kind == "Bad31mb"
    assert error.text == "a�[2J�b�\nin line 1: x�"
    assert len(raised("E" * 10**6, "x" * 10**6).text) <= 2000


def test_bubblewrap_holds_without_the_filter_of_system_calls(monkeypatch):
    """Two walls: where the filter is not known, name spaces and counting."""
    usable(Isolation.BUBBLEWRAP)
    settings = isolation.settings

    def unfiltered(*args, **kwargs):
        given = settings(*args, **kwargs)
        assert given["filter"]
        return given | {"filter": False}

    for module in (isolation, processes):
        monkeypatch.setattr(module, "settings", unfiltered)
    source = """
import ctypes, os, socket, time
def walls(port):
    found = []
    libc = ctypes.CDLL(None)
    for flag in (0x10000000, 0x00020000):
        if libc.unshare(flag) == 0:
            found.append("a name space")
    try:
        socket.create_connection(("127.0.0.1", port), 1)
        found.append("a connection")
    except OSError:
        pass
    if os.fork() == 0:  # it can, here
        os.setsid()
        if os.fork() == 0:
            time.sleep(10**6)
        os._exit(0)
    os.wait()
    return found
def many():
    for _ in range(200):
        if os.fork() == 0:
            time.sleep(10**6)
    time.sleep(10**6)
"""
    with (
        Sandbox(Isolation.BUBBLEWRAP) as box,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        box.run(source)
        port = server.getsockname()[1]
        assert box.call("walls", loose(port)).value == []
        # bwrap, its init, what holds the spaces, the child, the orphan
        assert len(box.pids) == 5
        with pytest.raises(SandboxError, match="more than 32 processes"):
            box.call("many", loose())
    assert box.survivors() == []


# -- forks of one server ------------------------------------------------------
@pytest.fixture
def edited(monkeypatch, tmp_path):
    """``edited(old, new)``: a server of its own, with a line changed."""

    def start(old="", new=""):
        for name in isolation.FILES:
            text = (isolation.HERE / name).read_text()
            (tmp_path / name).write_text(text.replace(old, new, 1))
        own = functools.cache(processes.Server)
        monkeypatch.setattr(processes, "HERE", tmp_path)
        monkeypatch.setattr(processes, "server", own)
        return own()

    return start


FORKED = [Isolation.BUBBLEWRAP, Isolation.LANDLOCK]
UNSEEDED = """
import random, numpy, torch
def draws():
    return random.random(), float(numpy.random.rand()), float(torch.rand(1))
drawn = draws()
"""
SEEDED = '    sys.modules["numpy"].random.seed()\n'  # in forks.py


def drawn(kind):
    """What a new sandbox draws before anybody seeds it."""
    with Sandbox(usable(kind)) as box:
        assert box.run(UNSEEDED) == []
        return box.call("lambda: drawn", loose()).value


@pytest.mark.parametrize("kind", FORKED, ids=str)
def test_a_sandbox_does_not_load_torch_itself(kind, edited):
    """It has torch though nothing more can be imported."""
    edited(SEEDED, SEEDED + "    sys.meta_path.clear()\n")
    with Sandbox(usable(kind)) as box:
        assert box.run("import torch; ones = torch.ones(3)") == []
        assert box.run("import wave")[0].error.kind == "ModuleNotFoundError"
        seen = box._process.pids()
    assert comes(lambda: not any(Path(f"/proc/{p}").exists() for p in seen))


def test_two_forks_draw_other_numbers():
    one, two = drawn(Isolation.BUBBLEWRAP), drawn(Isolation.BUBBLEWRAP)
    assert one[0] != two[0]
    assert one[1] != two[1]
    assert one[2] == two[2]  # so does torch in any two processes


def test_without_a_new_seed_two_forks_would_draw_the_same(edited):
    edited(SEEDED)
    one, two = drawn(Isolation.LANDLOCK), drawn(Isolation.LANDLOCK)
    assert one[0] != two[0]
    assert one[1] == two[1]


def test_a_server_that_was_ended_is_replaced(edited):
    server = edited()
    usable(Isolation.BUBBLEWRAP)
    for _ in range(2):
        with Sandbox(Isolation.BUBBLEWRAP) as box:
            assert box.run("x = 1") == []
        server._popen.kill()
        server._popen.wait()


def test_a_server_ends_with_the_grader():
    code = (
        "from coursekit_classroom.grading import processes\n"
        "from coursekit_classroom.grading.sandbox import Sandbox\n"
        "import os\n"
        "with Sandbox() as box: box.run('x = 1')\n"
        "print(processes.server()._popen.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    usable(Isolation.BUBBLEWRAP)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert comes(lambda: not alive(int(done.stdout)))


def test_where_no_fork_can_join_a_sandbox_is_a_process_of_its_own(monkeypatch):
    usable(Isolation.BUBBLEWRAP)
    monkeypatch.setattr(processes, "can_join", lambda: False)
    with Sandbox(Isolation.BUBBLEWRAP) as box:
        assert isinstance(box._process, processes.Own)
        assert box.run("import torch; x = torch.ones(3)") == []
        assert box.call("lambda: x", loose()).value.tolist() == [1.0] * 3
    assert box.survivors() == []


# -- around it ---------------------------------------------------------------
def test_a_pool_has_the_next_one_ready():
    with Pool(limits=Limits(cpu_s=10.0)) as pool:
        with pool.take() as first:
            first.run("x = 1")
            waiting = pool._next
            assert waiting is not None
        second = pool.take(last=True)
        assert second is waiting
        failed = second.run("x")
        assert failed[0].error.kind == "NameError"
        second.close()
        assert pool._next is None


def test_the_grader_imports_where_unix_modules_are_missing():
    code = (
        "import sys\n"
        "for name in ('fcntl', 'resource', 'pwd', 'grp', 'termios'):\n"
        "    sys.modules[name] = None\n"
        "from coursekit_classroom.grading import doctor, sandbox\n"
        "from coursekit_classroom.grading import confine\n"
        "confine.limit(1, 1, 1)\n"
        "confine.limit_more(1, 1)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def test_what_is_readable_leaves_out_what_is_hidden(tmp_path):
    for name in ("a/x.py", "a/b/y.py", "a/c/z.py", "d/w.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    root = os.path.realpath(tmp_path)
    found = confine.without(root, {f"{root}/a/b"})
    assert sorted(found) == [f"{root}/a/c", f"{root}/a/x.py", f"{root}/d"]
    assert list(confine.without(root, {"/elsewhere"})) == [root]


def test_a_link_shows_nothing_of_what_is_hidden(tmp_path):
    for name in ("a/w.py", "a/b/y.py", "c/z.py", "c/x/v.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "c" / "link").symlink_to(tmp_path / "a")
    root = os.path.realpath(tmp_path)
    found = confine.without(f"{root}/c", {f"{root}/a/b", f"{root}/c/x"})
    assert sorted(found) == [f"{root}/c/link/w.py", f"{root}/c/z.py"]


def test_folders_that_hide_something_are_replaced_by_links(tmp_path):
    for name in ("a/x.py", "a/p/y.py", "a/p/s/own.py", "b/w.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    root, home = os.path.realpath(tmp_path), str(tmp_path / "home")
    a, b, none = f"{root}/a", f"{root}/b", f"{root}/none"
    # As a sandbox has it: a file of what is hidden is readable.
    readable = [a, b, f"{a}/p/s/own.py", f"{a}/p"]
    paths = confine.linked([a, b, none], readable, [f"{a}/p/s"], home)
    assert paths == [f"{home}/library/0", b, none]
    links = {
        path.relative_to(paths[0]).as_posix(): os.path.realpath(path)
        for path in Path(paths[0]).rglob("*")
        if path.is_symlink()
    }
    assert links == {"x.py": f"{a}/x.py", "p/y.py": f"{a}/p/y.py"}


def test_another_copy_of_the_package_is_hidden_whole(tmp_path, monkeypatch):
    """An older release, whose references lie elsewhere; never this one."""
    old, link, bare = (tmp_path / name for name in ("old", "link", "bare"))
    (old / "coursekit" / "exercises").mkdir(parents=True)
    for folder in (link, bare):
        folder.mkdir()
    (link / "coursekit").symlink_to(isolation.PACKAGE)
    known = [str(p) for p in (old, link, bare, isolation.PACKAGE.parent)]
    monkeypatch.setattr(isolation, "library_paths", lambda: known)
    hidden = isolation.hidden_paths()
    assert hidden == sorted(
        [
            str(isolation.PACKAGE.parent / "coursekit_classroom"),
            str(old / "coursekit"),
        ]
    )


def test_a_checkout_shows_its_package_and_not_its_tests():
    here = Path(__file__).resolve().parents[1]
    for path in isolation.readable_paths():
        assert not here.is_relative_to(Path(path).resolve()), path


def test_a_process_that_has_ended_has_no_descendants():
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
        assert processes.descendants(ended.pid) == []
    shell = ["sh", "-c", "sleep 60 & echo; wait"]
    with subprocess.Popen(shell, stdout=subprocess.PIPE) as control:
        control.stdout.readline()
        (sleeping,) = processes.descendants(control.pid)
        os.kill(sleeping, signal.SIGKILL)
