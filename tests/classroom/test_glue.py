"""What a page shows and quotes is what the package holds."""

import inspect

import IPython.display
import pytest

from coursekit.attention import attend
from coursekit.checks import check_attention
from coursekit_classroom import glue


@pytest.fixture
def shown(monkeypatch):
    """What was displayed: a list of positional and named arguments."""
    calls = []
    monkeypatch.setattr(
        IPython.display, "display", lambda *a, **k: calls.append((a, k))
    )
    return calls


def code_of(shown, thing):
    glue.show_code(thing)
    ((markdown,), _) = shown[-1]
    assert markdown.data.startswith("```python\n")
    assert markdown.data.endswith("\n```")
    return markdown.data[len("```python\n") : -len("\n```")]


def test_show_code_leaves_out_docstrings_and_nothing_else(shown):
    code = code_of(shown, attend)
    source = inspect.getsource(attend)
    assert "Mix the values" in source
    assert "Mix the values" not in code
    lines = source.splitlines()
    assert [line for line in code.splitlines() if line not in lines] == []
    assert code.splitlines()[0] == "def attend("
    assert code.splitlines()[-1] == lines[-1]


def test_show_code_keeps_strings_that_are_no_docstrings(shown):
    assert "each key needs one value" in code_of(shown, check_attention)


def test_glue_writes_the_record_that_myst_nb_reads(shown):
    glue.glue("share", "0.25")
    ((data,), options) = shown[0]
    mime = "application/papermill.record/text/plain"
    assert data == {mime: "'0.25'"}
    assert options["raw"] is True
    assert options["metadata"]["scrapbook"]["name"] == "share"


def test_a_missing_result_says_how_to_make_it():
    with pytest.raises(ValueError, match="make results NAME=no_such"):
        glue.result("no_such")
