"""The API has a page for each group, and old addresses lead to it."""

import re
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from test_pages import Visit

ROOT = Path(__file__).resolve().parent.parent
HTML = ROOT / "_build" / "html" / "book" / "about"
GROUPS = ("model", "training", "generation", "pretrained", "tools")
pytestmark = pytest.mark.xdist_group("api")


def described(group):
    """The names of the package that a page describes."""
    page = BeautifulSoup(
        (HTML / f"api_{group}.html").read_text("utf8"), "lxml"
    )
    return {
        tag["id"]
        for tag in page.select("dt[id]")
        if tag["id"].startswith("coursekit.")
    }


def modules():
    """The modules of the index, with the page to which each link leads."""
    page = BeautifulSoup((HTML / "api.html").read_text("utf8"), "html.parser")
    return {
        a["data-module"]: a["href"].partition(".html")[0]
        for a in page.select("a[data-module]")
    }


def page_of(name, known):
    """Where the index leads for a name: to its module with most parts."""
    fitting = [m for m in known if f"{name}.".startswith(f"{m}.")]
    return known[max(fitting, key=len)] if fitting else None


@pytest.mark.parametrize("group", [*GROUPS, "classroom"])
def test_every_name_is_found_by_its_old_address(group):
    known, names = modules(), described(group)
    assert len(names) > 20
    assert [n for n in names if page_of(n, known) != f"api_{group}"] == []


def test_no_name_stands_twice():
    every = [name for group in GROUPS for name in described(group)]
    assert len(every) == len(set(every)) > 500
    assert page_of("coursekit.nothing", {"coursekit.norm": "x"}) is None


def test_each_module_has_its_sentence():
    text = (HTML / "api.html").read_text("utf8")
    for module in modules():
        sentence = rf"<code>{re.escape(module)}</code></a>: [A-Z][^<]{{15,}}\."
        assert re.search(sentence, text), module


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("coursekit.attention.attend", "api_model"),
        ("module-coursekit.training", "api_training"),
        ("coursekit-fast-inference", "api_generation"),
        ("coursekit.classroom.check.core.Bug", "api_classroom"),
        ("nothing.of.ours", "api"),
    ],
)
def test_an_old_address_leads_on(browser, old, new):
    visit = Visit(browser, HTML.parents[1].as_uri(), 1440, "light")
    visit.page.goto(f"{(HTML / 'api.html').as_uri()}#{old}")
    visit.page.wait_for_url(f"**/{new}.html#{old}")
    there = visit.page.evaluate("id => !!document.getElementById(id)", old)
    assert there == (new != "api")
    visit.close()
