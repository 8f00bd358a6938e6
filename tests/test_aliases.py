"""Old names of modules lead to the same module, and nowhere else."""

import importlib
import subprocess
import sys

import forked
import pytest

import coursekit
from coursekit import aliases


@pytest.mark.parametrize("old", aliases.MOVED)
def test_an_old_name_is_the_same_module(old):
    new = importlib.import_module(aliases.MOVED[old])
    assert importlib.import_module(old) is new
    assert new.__spec__.name == new.__name__ == aliases.MOVED[old]


def test_an_overlay_of_the_first_release_finds_its_parts():
    """Word for word what ``about/checks`` told authors to write."""
    code = (
        "from coursekit.exercises.core import NONE, Bug, Case, Exercise\n"
        "from coursekit.exercises import core\n"
        "from coursekit.prose import glue\n"
        "from coursekit import live, visual, prose, lesson\n"
        "import coursekit.visual\n"
        "assert core.Bug is Bug and coursekit.visual is visual\n"
    )
    subprocess.run([*forked.python(), "-c", code], check=True)


def test_other_old_names_are_unknown():
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("coursekit.exercises.nothing")
    with pytest.raises(AttributeError, match="'nothing'"):
        coursekit.nothing  # noqa: B018


def test_installing_twice_is_installing_once():
    before = list(sys.meta_path)
    aliases.install()
    assert sys.meta_path == before
