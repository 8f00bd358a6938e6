"""The attack corpus: each promise holds here, and the tests can fail."""

import argparse
import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import forked
import pytest
import torch
from in_process import InProcess

from coursekit_classroom.teach import doctor, sandbox
from coursekit_classroom.teach.doctor import BROKEN, HELD, UNTRIED, Finding
from coursekit_classroom.teach.judge import Task
from coursekit_classroom.teach.records import Graded, Result
from coursekit_classroom.teach.sandbox import (
    Isolation,
    Pool,
    Sandbox,
    survivors,
)
from coursekit_classroom.teach.secret import derived
from coursekit_classroom.teach.worker import Worker

ATTACKS = {a.name: a for a in doctor.read_attacks()}
SHARING = [a for a in ATTACKS.values() if a.shares]
GRADED = [a for a in ATTACKS.values() if a.exercise]
ALONE = [a for a in ATTACKS.values() if not a.shares and not a.exercise]
# Landlock's own promises; what the parent does alone needs no second run.
LANDLOCK = [
    a
    for a in ATTACKS.values()
    if "landlock" in a.contained_by and "none" not in a.contained_by
]
# What succeeds without any isolation, and does no harm.
HARMLESS = ["host_socket", "import_reference", "key_file", "parent_memory"]
HARMLESS += ["search_files", "signal_the_grader", "tcp", "udp"]
HARMLESS += ["message_queues", "rewritten_sheet", "write_outside"]
HARMLESS += ["file_times", "kernel_settings", "limit_the_grader"]


def bubblewrap():
    if why := sandbox.why_no_bubblewrap():
        pytest.skip(why)
    return Isolation.BUBBLEWRAP


def landlock():
    if why := sandbox.why_no_landlock():
        pytest.skip(why)
    return Isolation.LANDLOCK


@pytest.fixture(scope="module")
def bait():
    with doctor.host() as bait:
        yield bait


@pytest.fixture(scope="module")
def shared():
    """``shared(isolation)``: a child that harmless attacks have in common."""
    boxes = {}

    def give(kind):
        if kind not in boxes or boxes[kind].failure:
            boxes[kind] = Sandbox(kind, doctor.together(doctor.LIMITS))
        return boxes[kind]

    yield give
    for box in boxes.values():
        box.close()


def ids(attack):
    return attack.name


# -- the promises ------------------------------------------------------------
@pytest.mark.parametrize("attack", SHARING, ids=ids)
def test_an_attack_gets_nothing_under_bubblewrap(attack, bait, shared):
    found = doctor.finding(attack, shared(bubblewrap()), bait)
    assert found.verdict == HELD, found.note


@pytest.mark.parametrize("attack", ALONE, ids=ids)
def test_an_attack_on_its_process_gets_nothing(attack, bait):
    with Sandbox(bubblewrap(), doctor.LIMITS) as box:
        found = doctor.finding(attack, box, bait)
    assert found.verdict == HELD, found.note


@pytest.mark.parametrize("attack", LANDLOCK, ids=ids)
def test_an_attack_gets_nothing_under_landlock(attack, bait, shared):
    attack = dataclasses.replace(attack, shares=True)
    found = doctor.finding(attack, shared(landlock()), bait)
    assert found.verdict == HELD, found.note
    box = shared(Isolation.LANDLOCK)
    assert survivors(box.folder) == [box._popen.pid]


@pytest.mark.parametrize(
    "attack", [a for a in SHARING if "none" in a.contained_by], ids=ids
)
def test_an_attack_on_the_score_gets_nothing_anywhere(attack, bait, shared):
    found = doctor.finding(attack, shared(Isolation.NONE), bait)
    (bait.folder / f"started-{attack.name}").unlink(missing_ok=True)
    assert found.verdict == HELD, found.note


ROOM = doctor.roomy(doctor.LIMITS)


@pytest.fixture(scope="module")
def grader():
    """What examines students here, all of it."""
    with Worker(sandbox.best(), ROOM) as found:
        yield found


@pytest.mark.parametrize("attack", GRADED, ids=ids)
def test_an_attack_on_the_grader_gets_nothing(attack, grader):
    found = doctor.examined(attack, grader, ROOM)
    assert found.verdict == HELD, found.note


# -- controls ----------------------------------------------------------------
READING = ["import_reference", "search_files", "key_file"]
WAYS = {  # what they come to if nothing of the package is hidden
    "import_reference": {
        *("imported a module", "loaded a file"),
        *("read a file", "listed a folder"),
    },
    "search_files": {"coursekit_classroom", "check", "catalogue", "teach"},
}
READ = """
import json, sys
from coursekit_classroom.teach import doctor, sandbox
from coursekit_classroom.teach.sandbox import Sandbox

attacks = {a.name: a for a in doctor.read_attacks()}
secret, found = sandbox.SECRET, {"package": str(sandbox.PACKAGE)}
readable, course = sandbox.readable_paths(), str(sandbox.COURSE)
cell = "import coursekit, os\\nfrom coursekit import GPT\\n"
cell += "print(os.path.realpath(coursekit.__file__), flush=True)"
with doctor.host() as bait:
    for name, sandbox.SECRET in (("guarded", secret), ("open", ())):
        if name == "open":
            sandbox.readable_paths = lambda: (*readable, course)
        sandbox.hidden_paths.cache_clear()
        limits = doctor.together(doctor.LIMITS)
        with Sandbox(sandbox.Isolation(sys.argv[1]), limits) as box:
            failed = [str(e) for e in box.run([cell]).values()]
            ended = doctor.attempt(box, "right", doctor.RIGHT, bait)
            found[name] = {"failed": failed, "right": ended}
            for one in sys.argv[2:]:
                said = doctor.finding(attacks[one], box, bait)
                found[name][one] = said.verdict, said.note
            found[name]["imported"] = box.output.strip()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder of packages as an installer leaves it: a wheel, and torch."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run(
        [
            *(sys.executable, "-m", "hatchling", "build", "-t", "wheel"),
            *("-d", str(folder)),
        ],
        cwd=sandbox.PACKAGE.parent,
        check=True,
        capture_output=True,
    )
    packages = folder / "site-packages"
    packages.mkdir()
    for path in sandbox.library_paths():
        for entry in (
            Path(path).iterdir() if path.endswith("-packages") else ()
        ):
            ours = ("coursekit", "executable_transformer")
            if entry.suffix != ".pth" and not entry.name.startswith(ours):
                (packages / entry.name).symlink_to(entry)
    [wheel] = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(packages)
    return packages


@pytest.mark.parametrize("kind", [bubblewrap, landlock])
@pytest.mark.parametrize("place", ["checkout", "wheel"])
def test_reading_attacks_fail_for_what_is_hidden(place, kind, request):
    """And succeed, each in all its ways, if only that is not hidden.

    The package is there all the same, beside torch in one folder.
    """
    isolation_here = kind()
    root = sandbox.PACKAGE.parent
    home = request.getfixturevalue("installed") if place == "wheel" else root
    done = subprocess.run(
        [*forked.python(), "-c", READ, isolation_here.value, *READING],
        env=os.environ | {"PYTHONPATH": str(home)},
        cwd=home,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["package"] == str(home / "coursekit")
    for name in ("guarded", "open"):
        assert found[name]["failed"] == []
        assert found[name]["right"] == ["right", []]
        where = found[name]["imported"]
        assert where == str(home / "coursekit" / "__init__.py")
    for name in READING:
        verdict, note = found["guarded"][name]
        assert verdict == HELD, f"{name}: {note}"
    # Beside an installed package, also one that is edited in place.
    inside = {"results"}
    for name, ways in WAYS.items():
        verdict, note = found["open"][name]
        assert verdict == BROKEN
        assert {*note.split("; ")[0].split(", ")} - inside == ways
    if place == "wheel":
        assert inside <= {*found["open"]["search_files"][1].split(", ")}
    # No part of the package: what keeps it is the isolation alone.
    assert found["open"]["key_file"][0] == HELD


@contextlib.contextmanager
def examining(limits):
    """A worker in this process, for what needs no other."""
    with Pool(sandbox.best(), limits) as pool:
        yield InProcess(sandbox.best(), limits, pool.take)


@pytest.fixture
def here():
    with examining(ROOM) as found:
        yield found


def test_a_seed_from_which_the_order_follows_would_give_full_marks(
    here, monkeypatch
):
    """What `borrowed_seed` reads was once the seed of the order as well."""
    same = property(lambda task: derived(task.secret, "cases"))
    monkeypatch.setattr(Task, "call_seed", same)
    attack = ATTACKS["borrowed_seed"]
    found = doctor.examined(attack, here, ROOM)
    assert (found.verdict, found.note) == (BROKEN, "full marks")


def test_a_function_that_names_itself_would_give_full_marks(here, monkeypatch):
    """Without the neutral wrapper its errors say what it is called."""
    attack = ATTACKS["names_itself"]
    own = lambda error: [type(error).__name__, str(error)]  # noqa: E731
    monkeypatch.setattr(sandbox, "neutral", own)
    monkeypatch.setattr(sandbox, "hold", lambda *_: None)
    found = doctor.examined(attack, here, ROOM)
    assert (found.verdict, found.note) == (BROKEN, "full marks")


@pytest.mark.parametrize(
    ("after", "verdict"),
    [
        (["timeout", "ok"], HELD),
        (["timeout", "timeout"], UNTRIED),
        (["wrong", "wrong"], BROKEN),  # the control
    ],
)
def test_a_right_answer_that_is_late_breaks_no_promise(
    after, verdict, monkeypatch
):
    statuses = iter(["wrong", *after])

    def graded(*_):
        status = next(statuses)
        row = Result("", "", 1.0, status, right=int(status == "ok"), total=1)
        return Graded("", "", [row])

    worker = SimpleNamespace(grade=graded)
    found = doctor.examined(ATTACKS["names_itself"], worker, doctor.LIMITS)
    assert found.verdict == verdict
    said = doctor.report([found])
    assert (doctor.BUSY in said) == (verdict == UNTRIED)


def test_empty_files_would_be_made_if_nobody_counted(bait, monkeypatch):
    monkeypatch.setattr(Sandbox, "_made", lambda self: 0)
    with Sandbox(bubblewrap(), doctor.together(doctor.LIMITS)) as box:
        found = doctor.finding(ATTACKS["empty_files"], box, bait)
    assert found.verdict == BROKEN
    assert found.note.startswith("made 40000 files")


@pytest.mark.parametrize("name", HARMLESS)
def test_the_same_attack_succeeds_without_isolation(name, bait, shared):
    """So the attacks do attack, and the doctor would see it."""
    if sys.platform != "linux" and name == "parent_memory":
        pytest.skip("there is no /proc here")
    found = doctor.finding(ATTACKS[name], shared(Isolation.NONE), bait)
    (bait.folder / f"started-{name}").unlink(missing_ok=True)
    assert found.verdict == BROKEN
    assert found.note


def test_an_orphan_is_seen(bait):
    """Without isolation it lives on, and is reported; then we end it."""
    if sys.platform != "linux":
        pytest.skip("processes are looked up in /proc")
    with Sandbox(Isolation.NONE, doctor.together(doctor.LIMITS)) as box:
        found = doctor.finding(ATTACKS["orphan"], box, bait)
    left = survivors(box.folder)
    for pid in left:
        subprocess.run(["kill", "-9", str(pid)], check=True)
    (bait.folder / "started-orphan").unlink()
    assert found.verdict == BROKEN
    assert "left behind" in found.note
    assert len(left) == 2  # one a call


@pytest.mark.parametrize("kind", list(Isolation), ids=str)
def test_a_right_submission_passes_in_the_same_set_up(kind, bait, shared):
    if kind is not Isolation.NONE:
        {"bubblewrap": bubblewrap, "landlock": landlock}[kind.value]()
    box = shared(kind)
    assert doctor.attempt(box, "right", doctor.RIGHT, bait) == ("right", [])
    wrong = doctor.RIGHT.replace("-1", "0")
    ended, loot = doctor.attempt(box, "right", wrong, bait)
    assert ended.startswith("wrong")
    assert loot == []
    (bait.folder / "started-right").unlink(missing_ok=True)


def test_patched_asserts_do_deceive_a_checker_in_their_process():
    code = (
        f"{ATTACKS['patched_assert'].source}\n"
        "x = torch.randn(3, 5)\n"
        "torch.testing.assert_close(share(x), torch.softmax(x, -1))\n"
        "assert torch.allclose(share(x), torch.softmax(x, -1))\n"
        "assert (share(x) == torch.softmax(x, -1)).all()\n"
    )
    done = subprocess.run([*forked.python(), "-c", code], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def test_a_lying_tensor_does_deceive_a_checker_in_its_process():
    space = {}
    exec(ATTACKS["lying_tensor"].source, space)
    x = torch.randn(3, 5)
    assert torch.allclose(space["share"](x), torch.softmax(x, -1))


def test_a_wrong_answer_that_got_full_marks_would_be_broken(bait, shared):
    cheat = dataclasses.replace(
        ATTACKS["nan_answer"], source=doctor.RIGHT, name="cheat"
    )
    found = doctor.finding(cheat, shared(Isolation.NONE), bait)
    (bait.folder / "started-cheat").unlink(missing_ok=True)
    assert (found.verdict, found.note) == (BROKEN, "full marks")


# -- what is not tried -------------------------------------------------------
@pytest.mark.parametrize("kind", [Isolation.LANDLOCK, Isolation.NONE])
def test_what_only_bubblewrap_contains_never_starts_elsewhere(kind, bait):
    """No process is made for it, and so nothing of it is ever executed."""
    only = [a for a in ATTACKS.values() if a.contained_by == ("bubblewrap",)]
    names = {a.name for a in only}
    assert {"memory", "disk", "fork_bomb", "thread_bomb"} <= names
    found = list(doctor.examine(only, kind, bait=bait))
    assert [f.verdict for f in found] == [UNTRIED] * len(only)
    assert not list(bait.folder.glob("started-*"))


def test_what_is_started_leaves_its_mark(bait):
    """The control: an attack that may run is seen to have started."""
    found = list(
        doctor.examine(
            [ATTACKS["nan_answer"], ATTACKS["fork_bomb"], ATTACKS["udp"]],
            Isolation.NONE,
            bait=bait,
        )
    )
    assert sorted(f.verdict for f in found) == [HELD, UNTRIED, UNTRIED]
    marks = list(bait.folder.glob("started-*"))
    assert [m.name for m in marks] == ["started-nan_answer"]
    marks[0].unlink()


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ids)
def test_each_attack_says_what_it_tries(attack):
    assert attack.says.endswith((".", ").")), attack.says
    assert "\n" not in attack.says
    assert attack.promise in doctor.PROMISES
    assert set(attack.contained_by) <= {i.value for i in Isolation}
    assert "bubblewrap" in attack.contained_by
    dangerous = attack.promise in ("memory", "disk", "processes")
    assert dangerous == (attack.contained_by == ("bubblewrap",))


# -- the command -------------------------------------------------------------
def test_the_report_says_held_broken_and_not_tried():
    a, b, c = (ATTACKS[n] for n in ("nan_answer", "tcp", "disk"))
    found = [Finding(a, HELD, "wrong"), Finding(b, BROKEN, "connected")]
    text = doctor.report([*found, Finding(c, UNTRIED)])
    assert "   held  Code changes its score only by" in text
    assert " broken  There is no network. 1 of 1 attacks tried." in text
    assert "Connect to a port of this machine, by TCP. [tcp]" in text
    assert "not tried, not promised  What it writes is limited." in text
    half = doctor.report([Finding(a, HELD), Finding(a, UNTRIED)])
    assert "not tried, not promised  Code changes its score" in half
    bare = doctor.report([Finding(a, HELD)], isolation=Isolation.NONE)
    assert "not promised  Code changes its score only by" in bare
    assert "held" not in bare


def test_the_command_prints_and_fails_if_a_promise_is_broken(
    monkeypatch, capsys
):
    parser = argparse.ArgumentParser()
    doctor.add_options(parser)
    args = parser.parse_args(["--isolation", "none"])
    fake = {"nan_answer": HELD, "fork_bomb": UNTRIED}
    monkeypatch.setattr(doctor, "control", lambda isolation: "right")
    monkeypatch.setattr(
        doctor,
        "examine",
        lambda *_: (Finding(ATTACKS[n], v, "") for n, v in fake.items()),
    )
    assert doctor.run(args) == 0
    said, warned = capsys.readouterr()
    assert "minutes" in warned
    assert "Isolation: none" in said
    assert "A right submission passes." in said
    assert doctor.NO_PROMISES in said
    assert "   held  " not in said
    fake["tcp"] = BROKEN
    assert doctor.run(args) == 1
    monkeypatch.setattr(doctor, "control", lambda isolation: "died")
    assert doctor.run(args) == 1
    assert "does not pass here: died" in capsys.readouterr().out
