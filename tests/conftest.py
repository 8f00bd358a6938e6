"""Shapes are enforced, one thread, which file belongs to which part.

And what to do where a piece is missing.
"""

import gc
import os
from functools import cache

import pytest
import torch
from jaxtyping import install_import_hook

# Before anything imports the package: each call of each of its functions
# has the shapes and dtypes that its signature says, or raises.
install_import_hook("coursekit", "beartype.beartype")
torch.set_num_threads(1)

# The parts of the suite that are run by themselves; every other file is of
# the part `unit`. The Makefile and the workflows name the parts alone.
PARTS = {
    # They need the built book.
    "book": [
        *("book", "pages", "predict", "live_figures", "weight", "corpus"),
        *("chapter_parts", "budgets"),
    ],
    # Each model is loaded once: `--dist loadgroup` gives it to one worker.
    "models": ["pipelines"],
    # A reader has no shape checks: JAXTYPING_DISABLE=1.
    "reader": ["bad_input", "catalogue", "protocol"],
}


def part_of(name):
    """The part that a file belongs to; None if it has no tests."""
    stem, dot, ending = name.partition(".")
    if not stem.startswith("test_") or (dot, ending) != (".", "py"):
        return None
    own = stem.removeprefix("test_")
    return next((p for p, files in PARTS.items() if own in files), "unit")


def pytest_addoption(parser):
    """``--part``: the files of one part alone."""
    parser.addoption("--part", choices=["unit", *PARTS])


def pytest_ignore_collect(collection_path, config):
    """Leave out files of other parts before they are imported."""
    wanted, part = config.getoption("part"), part_of(collection_path.name)
    return True if wanted and part and part != wanted else None


def pytest_collection_finish():
    """What was imported stays: no collection of garbage looks at it again."""
    gc.collect()
    gc.freeze()


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
