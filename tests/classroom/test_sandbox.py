"""A child runs a stranger's code; whatever it does, the grader goes on."""

import inspect
import os
import random
import re
import socket
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import torch
from patience import PATIENCE, comes

from coursekit_classroom.check.call import SAID, Raised, call
from coursekit_classroom.teach import confine, sandbox
from coursekit_classroom.teach.sandbox import (
    Isolation,
    Limits,
    Pool,
    Sandbox,
    SandboxError,
    survivors,
)
from coursekit_classroom.teach.wire import Opaque, WireError

CELLS = [
    "import random\nimport warnings\nimport numpy\nimport torch\n"
    "warnings.warn('careful')\nprint('hello')",
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
    "nothing = 5\n",
]


def usable(kind):
    """Skip, with the reason, what cannot run on this machine."""
    why = {
        Isolation.BUBBLEWRAP: sandbox.why_no_bubblewrap,
        Isolation.LANDLOCK: sandbox.why_no_landlock,
        Isolation.NONE: str,
    }[kind]()
    if why:
        pytest.skip(why)
    return kind


def test_bubblewrap_works_wherever_it_can_make_name_spaces():
    """With a wrong option it would work nowhere, and all else be skipped."""
    program = sandbox.find_bubblewrap()
    plain = [program, "--unshare-all", "--ro-bind", "/", "/", "true"]
    if (
        program is None
        or subprocess.run(plain, capture_output=True).returncode
    ):
        pytest.skip("bubblewrap is missing, or may make no name spaces here")
    assert sandbox.why_no_bubblewrap() == ""


@pytest.fixture(scope="module", params=list(Isolation), ids=str)
def box(request):
    """A child with the cells above, for each isolation."""
    with Sandbox(usable(request.param), Limits(cpu_s=PATIENCE)) as made:
        yield made


@pytest.fixture
def ran(box):
    """The same, and what its cells raised."""
    return box, box.run(CELLS)


def bind(function, *args, **kwargs):
    return inspect.signature(function).bind(*args, **kwargs)


def loose(*args, **kwargs):
    """Arguments for a function of any signature."""
    return bind(lambda *a, **k: None, *args, **kwargs)


# -- what it is for ----------------------------------------------------------
def test_a_cell_that_raises_costs_only_itself(ran):
    box, failed = ran
    assert {n: e.kind for n, e in failed.items()} == {2: "ZeroDivisionError"}
    assert failed[2].text == "division by zero\nin line 1: 1 / 0"
    failed = box.run(["kept = 1; oops(", "nothing + 1", "import torch"])
    assert [e.kind for e in failed.values()] == ["SyntaxError", "NameError"]
    for word in ("hello", "careful"):  # a warning costs nothing
        assert word in box.output


def test_a_call_gives_the_value_and_the_arguments(ran):
    box, _ = ran

    def double(x, y=0, *rest, **more):
        return 2 * x + y

    x = torch.randn(3, 4).T
    got = box.call("double", bind(double, x, y=1.5))
    assert got.error is None
    assert torch.equal(got.value, 2 * x + 1.5)
    assert list(got.arguments) == ["x", "y"]

    def changes(x, y):
        pass

    x, y = torch.zeros(2), [1]
    got = box.call("changes", bind(changes, x, y))
    assert got.arguments["x"].tolist() == [1.0, 1.0]
    assert got.arguments["y"] == [1, 3] == got.value
    assert (x.tolist(), y) == ([0.0, 0.0], [1])  # ours are untouched


def test_what_a_call_uses_is_told_if_it_is_watched(ran):
    def products(x):
        return x @ x.T

    box, bound = ran[0], bind(products, torch.randn(3, 4))
    assert box.call("lambda x: x @ x.T", bound).used == {}
    used = box.call("lambda x: x @ x.T", bound, watched=True).used
    assert used["aten.mm"] == 9
    assert used == call(products, bound, watched=True).used


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("torch.bmm", "torch.bmm(x[None], x[None])"),
        (
            "coursekit.minimal",
            "__import__('coursekit.minimal').minimal.causal_mask(3, 3)",
        ),
    ],
)
def test_what_is_forbidden_raises_where_it_is_called(ran, name, source):
    """It does so in the notebook, too; elsewhere it is what it was."""
    box, bound = ran[0], bind(lambda x: x, torch.ones(3, 3))
    for _ in range(2):
        found = box.call(f"lambda x: {source}", bound, forbid=[name])
        assert isinstance(found.error, Raised)
        assert found.error.kind == "ForbiddenError"
        assert f"without {name}" in found.error.text
    free = box.call(f"lambda x: {source}", bound, forbid=["torch.mm"])
    assert getattr(free.error, "kind", "") != "ForbiddenError"


def test_the_same_seed_gives_what_it_gives_in_this_process(ran):
    def draws(n):
        return torch.rand(n), random.random(), numpy.random.rand()

    for seed in (0, 2**40 + 1):
        here = call(draws, bind(draws, 4), seed).value
        there = ran[0].call("draws", bind(draws, 4), seed).value
        assert torch.equal(here[0], there[0])
        assert here[1:] == there[1:]


def test_an_error_says_its_class_message_and_line(ran):
    box, _ = ran
    got = box.call("fails", loose(1))
    assert isinstance(got.error, Raised)
    assert (got.error.kind, got.value) == ("KeyError", None)
    assert got.error.text == (
        "'no such thing'\nin line 3: raise KeyError('no such thing')"
    )
    names = {"leaves": "SystemExit", "missing": "NameError"}
    for name, kind in (names | {"nothing": "TypeError"}).items():
        assert box.call(name, loose()).error.kind == kind
    error = sandbox.raised("Bad\x1b[31m<b>", "a\x1b[2J\x07b\r\nx\x00")
    assert (error.kind, error.text) == ("Bad31mb", "a�[2J�b�\nx�")


def test_look_tells_an_empty_function_from_a_written_one(ran):
    box, _ = ran
    assert box.look("empty") == (True, True)
    assert box.look("double") == (True, False)
    assert box.look("nothing") == (False, False)
    assert box.look("missing") is None


def test_what_does_not_travel_is_said(ran):
    box, _ = ran
    assert isinstance(box.call("odd", loose(1)).value, Opaque)
    with pytest.raises(WireError, match=r"module cannot be sent.*Linear"):
        box.call("double", loose(torch.nn.Linear(2, 2)))
    assert box.call("double", loose(2)).value == 4  # it is still well
    wide = "lambda: torch.zeros(1).expand(10**6, 10**6)"
    assert "cannot be graded" in box.call(wide, loose()).error.text


# -- functions that it is given ----------------------------------------------
def test_functions_of_the_grader_are_called_there(ran):
    box, asked = ran[0], []

    def ours(x):
        asked.append(x)
        return x.sin()

    got = box.call("apply", loose(ours, [torch.cos, len], torch.ones(2)))
    assert torch.equal(got.value[0], torch.ones(2).sin())
    assert got.value[2] == 2
    assert len(asked) == 1

    def wrong(x):
        raise ValueError("the rule")

    got = box.call("apply", loose(wrong, [], 1))
    assert got.error.kind == "ValueError"
    assert got.error.text.startswith(SAID[:190])  # not its own words


def test_gradients_go_through_a_function_of_the_grader(ran):
    x = torch.randn(5)
    got = ran[0].call("slope", loose(lambda x: (x**3).tanh(), x))
    y = x.clone().requires_grad_()
    right = torch.autograd.grad((y**3).tanh().sum(), y)[0]
    assert torch.allclose(got.value, right)


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


def test_functions_of_the_grader_cannot_be_told_apart(box):
    """By anything but what they return for what the exercise gives them."""

    class PeekError(Exception):
        pass

    class OursError(Exception):
        pass

    def peeking(x):
        if x == 1:
            raise PeekError("I peek")
        return PeekError()

    def honest(x, fast=True, *, more=0):
        if x == 1:
            raise OursError("I do not")
        return OursError()

    calls = [((), {}), ((1,), {}), ((2,), {}), ((2, True), {})]
    calls += [((2,), {"fast": False}), ((2,), {"more": 1})]
    box.run([LOOKS])
    first, second = (
        box.call("look", loose(f, *calls)).value for f in (peeking, honest)
    )
    assert first == second
    assert "peek" not in " ".join(first).lower()
    # What takes anything is the same reference, with mistakes or without.
    got = box.call("look", loose(lambda *a, **k: k["y"], ((), {"y": 7})))
    assert got.value[-1] == "7"


# -- the course is not there -------------------------------------------------
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
    "import coursekit\ncoursekit.start()\nassert not coursekit.step(at=2)\n"
    "from coursekit import attend\n"
    "assert coursekit.check('attention/attend', attend) is None\n",
]


def test_a_figure_beside_an_answer_costs_nothing(box):
    """What the course draws and checks is not there: it does nothing."""
    answer = "\ndef answer_{0}(x):\n    return 2 * x + {0}\n"
    cells = [f + answer.format(n) for n, f in enumerate(FIGURES)]
    assert box.run(cells) == {}
    for n in range(len(cells)):
        assert box.call(f"answer_{n}", loose(3)).value == 6 + n


def test_no_stand_in_answers(box):
    source = (
        "from coursekit_classroom.check import core\n"
        "def f(x): return core.find('attention/attend').reference(x, x, x)\n"
    )
    assert box.run([source]) == {}
    value = box.call("f", loose(torch.ones(2, 3))).value
    assert isinstance(value, Opaque)


# -- limits ------------------------------------------------------------------
SPINS = """
import time
def spins(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
    return "done"
"""


def test_cpu_time_is_limited_and_more_of_it_helps():
    with Sandbox(limits=Limits(cpu_s=1.0, wall_s=PATIENCE)) as box:
        box.run([SPINS])
        for _ in range(3):  # from each beginning on it has all again
            box.begin()
            assert box.call("spins", loose(0.5)).value == "done"
        for _ in range(2):  # the second time it is dead, and says why
            with pytest.raises(SandboxError, match="CPU time") as caught:
                box.call("spins", loose(PATIENCE))
        assert caught.value.status == "timeout"
        assert 0.9 < box.usage.cpu_s < 10


@pytest.mark.skipif(sys.platform != "linux", reason="memory is not limited")
@pytest.mark.parametrize("kind", list(Isolation), ids=str)
def test_memory_is_limited_beyond_what_torch_takes(kind):
    """A limit that the libraries of no build of torch would leave."""
    with Sandbox(usable(kind), Limits(memory=512 << 20)) as box:
        box.run(
            ["import torch\ndef f(n): return len(torch.ones(n, dtype=int))"]
        )
        assert box.call("f", loose(40_000_000)).value == 40_000_000  # 320 MB
        error = box.call("f", loose(70_000_000)).error  # 560 MB
        assert re.search("(not enough|can't allocate) memory", str(error))


@pytest.mark.parametrize(
    ("limits", "source", "status", "says"),
    [
        (
            {"wall_s": 0.5},
            "import time\ntime.sleep(10**6)",
            "timeout",
            "clock",
        ),
        ({"asks": 20}, "while True: f(1)", "protocol", "too much"),
        ({}, "f('x' * 1_500_000)", "protocol", "too much"),
        ({}, "import os\nos._exit(0)", "died", "ended"),
        ({}, "import ctypes\nctypes.string_at(0)", "died", "ended"),
        ({}, "channel().send({'value': 1})", "protocol", "protocol"),
        ({}, "channel().send([1])\nwhile True: pass", "protocol", "form"),
        ({}, "os.write(channel().answers, b'x' * 99)", "protocol", "large"),
    ],
)
def test_a_child_that_breaks_says_how(limits, source, status, says):
    body = source.replace("\n", "\n    ")
    cell = (
        "import gc, os\n"
        "def channel():\n"
        "    return next(o for o in gc.get_objects()\n"
        "                if type(o).__name__ == 'Channel')\n"
        f"def g(f):\n    {body}\n"
    )
    with Sandbox(limits=Limits(**limits)) as box:
        box.run([cell])
        with pytest.raises(SandboxError, match=says) as caught:
            # The first call, or the next.
            [box.call("g", loose(lambda x: 0)) for _ in range(2)]
        assert caught.value.status == status


ODD = [
    *({}, {"value": 1, "args": (), "kwargs": {}}, {"error": 5}),
    {"value": 1, "args": (1, 2), "kwargs": {}, "used": {}},
    {"value": 1, "args": [1], "kwargs": {}, "used": {}},
    {"value": 1, "args": (1,), "kwargs": {"x": 1}, "used": {}},
    {"value": 1, "args": (1,), "kwargs": {}, "used": {"a": "b"}},
    *({"error": ["a"]}, {"error": [1, 2]}, {"error": torch.ones(3)}),
]
ODD_RUNS = [{}, {"value": 3}, {"value": [[1]]}, {"value": [["a", "b", "c"]]}]
ODD_RUNS += [{"value": [[float("inf"), "b", "c"]]}, {"value": [[0, 1, 2]]}]
ODD_LOOKS = [{"value": 1}, {"value": [1, 0]}, {"value": [torch.ones(3)] * 2}]


def test_answers_of_another_form_are_the_protocols_fault():
    box = Sandbox.__new__(Sandbox)  # no process: only what it makes of them
    box._fail = SandboxError
    bound = bind(lambda x: None, 1)
    for ask, answers in (
        (lambda: box.call("f", bound), ODD),
        (lambda: box.run(["1"]), ODD_RUNS),
        (lambda: box.look("f"), ODD_LOOKS),
    ):
        for answer in answers:
            box._exchange = lambda _, answer=answer: answer
            with pytest.raises(SandboxError, match="protocol"):
                ask()


# -- walls -------------------------------------------------------------------
WALLS = """
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
        os.close(1)
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


def test_bubblewrap_holds_without_the_filter_of_system_calls(monkeypatch):
    """Two walls: without the filter, name spaces and counting."""
    usable(Isolation.BUBBLEWRAP)
    dumps = sandbox.json.dumps
    monkeypatch.setattr(
        sandbox.json, "dumps", lambda d: dumps(d | {"filter": False})
    )
    with (
        Sandbox(Isolation.BUBBLEWRAP) as box,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        monkeypatch.undo()
        box.run([WALLS])
        port = server.getsockname()[1]
        assert box.call("walls", loose(port)).value == []
        # bwrap, its init, the child, the orphan
        assert len(sandbox.family(box._popen.pid)) == 4
        with pytest.raises(SandboxError, match="more than 32 processes"):
            box.call("many", loose())
    assert comes(lambda: survivors(box.folder) == [])


def test_the_filter_alone_denies_what_it_names():
    """The other wall, in a process that has nothing else."""
    usable(Isolation.LANDLOCK)
    tries = "import os, socket\nfrom coursekit_classroom.teach import confine"
    tries += "\nlibrary = confine.library()\n{}\nfor f in (socket.socket,"
    tries += " os.fork, lambda: os.kill(1, 0), lambda: os.chmod('/tmp', 0)):\n"
    tries += (
        "    try: f(); print('done')\n    except PermissionError: print(1)"
    )
    free, held = (
        subprocess.run(
            [sys.executable, "-c", tries.format(line)],
            capture_output=True,
            text=True,
        ).stdout.split()
        for line in ("os.chmod = id", "confine.filter_calls(library)")
    )
    assert held == ["1"] * 4
    assert free.count("done") >= 3  # the control


def test_a_sandbox_from_its_beginning_to_its_end():
    with Sandbox(limits=Limits(output=1000)) as box:
        box.run(["kept = 1; print('begin'); print('x' * 5_000_000)"])
        assert box.output.startswith("begin\nxxx")
        assert len(box.output) == 1000
        assert box.run(["kept + 1"])[0].kind == "NameError"
        pids = sandbox.family(box._popen.pid)
        assert Path(box.folder).exists()
    if sys.platform == "linux":
        assert box.usage.memory > 50 << 20
    assert not Path(box.folder).exists()
    assert comes(lambda: not any(Path(f"/proc/{p}").exists() for p in pids))
    with pytest.raises(SandboxError, match="closed"):
        box.run(["1"])


def test_a_pool_has_the_next_one_ready():
    with Pool(sandbox.best(), Limits()) as pool, pool.take() as first:
        waiting = pool.next
        assert first.run(["x = 1"]) == {}
        with pool.take() as second:
            assert second is waiting
            assert second.run(["x"])[0].kind == "NameError"
        last = pool.next
    assert last.failure is not None


def test_the_grader_imports_where_unix_modules_are_missing():
    code = (
        "import sys\n"
        "for name in ('fcntl', 'resource', 'pwd', 'grp', 'termios'):\n"
        "    sys.modules[name] = None\n"
        "from coursekit_classroom.teach import confine, doctor, sandbox\n"
        "confine.limit({'RLIMIT_AS': 1})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


# -- what it may read --------------------------------------------------------
@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Two folders of packages; one of them holds something hidden."""
    for name in ("a/x.py", "a/p/y.py", "a/coursekit/z.py", "b/w.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "b" / "link").symlink_to(tmp_path / "a")
    root = os.path.realpath(tmp_path)
    known = [f"{root}/a", f"{root}/b", str(sandbox.PACKAGE.parent)]
    for function in ("library_paths", "readable_paths"):
        monkeypatch.setattr(sandbox, function, lambda: known)
    sandbox.hidden_paths.cache_clear()
    yield tmp_path
    sandbox.hidden_paths.cache_clear()


def test_what_is_readable_leaves_out_what_is_hidden(tree):
    """Another copy of the package is hidden whole, behind a link too."""
    root = os.path.realpath(tree)
    course = str(sandbox.PACKAGE.parent / "coursekit_classroom")
    assert sandbox.hidden_paths() == sorted([f"{root}/a/coursekit", course])
    found = sorted(sandbox.without(f"{root}/a"))
    assert found == [f"{root}/a/p", f"{root}/a/x.py"]
    (tree / "b" / "coursekit").mkdir()
    sandbox.hidden_paths.cache_clear()
    assert f"{root}/b/link/x.py" in list(sandbox.without(f"{root}/b"))
    assert list(sandbox.without(f"{root}/a/p")) == [f"{root}/a/p"]


def test_folders_are_replaced_by_links_to_what_may_be_read(tree):
    root = os.path.realpath(tree)
    paths = sandbox.linked([f"{root}/a"], str(tree / "home"))
    links = {
        path.name: os.path.realpath(path)
        for path in Path(paths[0]).rglob("*")
        if path.is_symlink()
    }
    assert links == {"x.py": f"{root}/a/x.py", "p": f"{root}/a/p"}


def test_a_checkout_shows_its_package_and_not_its_tests():
    here = Path(__file__).resolve().parents[1]
    for path in sandbox.readable_paths():
        assert not here.is_relative_to(Path(path).resolve()), path


def test_landlock_is_there_where_the_kernel_has_it():
    if Path("/sys/kernel/security/lsm").is_file():
        loaded = Path("/sys/kernel/security/lsm").read_text().split(",")
        assert ("landlock" in loaded) == bool(confine.landlock_version())
