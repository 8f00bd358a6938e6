"""Shapes are enforced, one thread, and what to do where a piece is missing."""

import os

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
