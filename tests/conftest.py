"""Shapes are enforced, one thread, and what to do where a piece is missing."""

import os
from functools import cache

import pytest
import torch
from jaxtyping import install_import_hook

# Before anything imports the package: each call of each of its functions
# has the shapes and dtypes that its signature says, or raises.
install_import_hook("coursekit", "beartype.beartype")
torch.set_num_threads(1)


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
        from coursekit.published import MissingModelError, load_published

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
