"""Shapes are enforced in the library's tests; all compute with one thread.

And what to do where a piece is missing.
"""

import gc
import os
import shlex
import sys
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from types import SimpleNamespace

import forked
import jaxtyping
import pytest

HERE = Path(__file__).resolve().parent
# Programs that tests start print as they do for most people: buffered.
os.environ.pop("PYTHONUNBUFFERED", None)
gc.disable()  # until the tests are collected: what is imported stays

# Folders whose tests run as a reader has the package, without shape checks, so
# our own errors must come up; those of the book compute nothing.
UNCHECKED = {"classroom", "answers", "input", "book", "web"}
# Half a minute in one test, tests that wait for a limit of time, or a minute
# and more that one worker has to itself.
LONGEST = (
    *("test_assign.py", "test_doctor.py"),
    *("test_transcripts.py", "test_worker.py"),
    *("test_live_figures.py", "test_live.py", "test_walk.py"),
)


def shaped():
    """The modules of the package whose signatures have shapes."""
    root = HERE.parent
    return [
        ".".join(path.relative_to(root).with_suffix("").parts)
        for path in sorted(root.glob("coursekit*/**/*.py"))
        if "jaxtyping" in path.read_text("utf8")
    ]


def pytest_configure(config):
    """Enforce shapes, unless only tests in UNCHECKED are asked for.

    Before anything imports the package: each call of each function of a
    module with shapes has those that its signature says, or raises. The
    tokenizers have none, and take ten times as long with every call looked at.
    """
    paths = (Path(each.partition("::")[0]).resolve() for each in config.args)
    if all(
        UNCHECKED & set(path.relative_to(HERE).parts[:1]) for path in paths
    ):
        os.environ["JAXTYPING_DISABLE"] = "1"  # for child processes
        jaxtyping.config.update("jaxtyping_disable", True)
    if os.environ.get("JAXTYPING_DISABLE") != "1":
        jaxtyping.install_import_hook(shaped(), "beartype.beartype")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(specs):
    """Workers are forks of one process that has the libraries (Linux)."""
    if sys.platform == "linux" and len(specs) > 1:
        os.environ["FORKED"] = forked.server(*forked.LIBRARIES)
        for spec in specs:
            spec.python = shlex.join(forked.python())


def pytest_collectstart():
    """Compute with one thread.

    Only who collects loads torch: who hands the tests to workers does not.
    """
    import torch

    torch.set_num_threads(1)


def pytest_collection_modifyitems(items):
    """All that a file asks of one exercise stands together.

    So the mutants of its reference are played once, not in every test. And
    what takes longest begins first, or it would be waited for in the end.
    """
    first = {}

    def place(item):
        params = getattr(getattr(item, "callspec", None), "params", {})
        key = item.path, params.get("chapter"), params.get("name")
        return first.setdefault(key if all(key) else item, len(first))

    items.sort(key=place)
    items.sort(key=lambda item: item.path.name not in LONGEST)


def pytest_collection_finish():
    """What was imported stays: no collection of garbage looks at it again."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def as_before():
    """Restore the default dtype and the module path after each test.

    A page's code may compute in float64, and a learner's file that is loaded
    here brings its folder along.
    """
    import torch

    path = sys.path[:]
    yield
    sys.path[:] = path
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def trapped(tmp_path):
    """``trapped(folder, spared)``: a file there for each module's name.

    Each leaves its name in the file that is returned when it is imported.
    """
    installed = [d.metadata["Name"] for d in distributions()]
    names = {*sys.stdlib_module_names, *installed, *sys.modules}

    def set_traps(folder, spared=()):
        marks = tmp_path / "marks"
        for name in names - {*spared}:
            if name.isidentifier() and name != "conftest":
                line = f"open({str(marks)!r}, 'a').write({name!r} + ' ')\n"
                (folder / f"{name}.py").write_text(line, "utf8")
        return marks

    return set_traps


@pytest.fixture
def forked_children(monkeypatch):
    """What runs a learner's file is a fork that has the package (Linux)."""
    from coursekit_classroom import yourfile

    started = SimpleNamespace(executable=forked.executable(*forked.COURSEKIT))
    monkeypatch.setattr(yourfile, "sys", started)


@pytest.fixture(scope="session")
def missing():
    """Skip, or fail where ``CI=true``: ``missing(what, command)``."""

    def give_up(what, command):
        text = f"{what} is missing; to run these tests: {command}"
        if os.environ.get("CI") == "true":
            pytest.fail(text)
        pytest.skip(text)

    return give_up


@pytest.fixture(scope="session")
def browser(missing):
    """Chromium: one for all files of a worker."""
    import test_pages

    yield from test_pages.running(missing)


@pytest.fixture(scope="session")
def published():
    """``published(name)``: a published model, loaded once; or skip."""

    @cache
    def give(name):
        from coursekit.pretrained.formats import MissingModelError
        from coursekit.pretrained.published import load_published

        try:
            return load_published(name)
        except MissingModelError as error:
            return error

    def ask(name):
        loaded = give(name)
        if not isinstance(loaded, Exception):
            return loaded
        if os.environ.get("MODELS") == "1":  # asked for, so it must be there
            pytest.fail(str(loaded))
        pytest.skip(f"{loaded} Or: MODELS=1 make test")

    return ask
