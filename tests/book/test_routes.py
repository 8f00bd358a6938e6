"""A route fits into the time that it promises, and skips nothing it needs."""

import re
import sys
from pathlib import Path

import pytest

from coursekit_classroom.notebooks.declared import declared

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "sphinx_ext"))

from page_count import count  # noqa: E402
from teaching import front_matter  # noqa: E402

BOOK = ROOT / "book"
HTML = ROOT / "_build" / "html" / "book"
FRONT = {path.stem: front_matter(path) for path in BOOK.glob("[0-9]*.md")}
NEEDS = {page: fields["needs"] for page, fields in FRONT.items()}
MENTIONS = {page: fields.get("mentions", []) for page, fields in FRONT.items()}
DOC = re.compile(r"\{doc\}`(?:[^`<]*<)?/book/(\w+)")
ROUTES = [
    [
        (DOC.findall(row), re.findall(r"\{ref\}`.+? <([\w-]+)>`", row))
        for row in section.splitlines()
        if row.startswith("| ") and "{doc}" in row
    ]
    for section in (BOOK / "about/routes.md")
    .read_text("utf8")
    .split("\n## ")[1:]
]
"""For each route of the page its rows: pages, and labels of exercises."""
NAMES = ["lecture", "week", "term"]


# -- which chapter needs which -----------------------------------------------
def all_needs(page, needs):
    """What a chapter needs, and what that needs, and so on."""
    found = set(needs[page])
    return found.union(*(all_needs(n, needs) for n in needs[page]))


def named(text):
    """The numbers of the chapters that a page's own text names."""
    text = text.split("\n## Exercises")[0]
    text = re.sub(r"(?ms)^:{5,}\{still-there\}.*?^:{5,}$", "", text)
    found = set()
    for hit in re.finditer(
        r"\bchapters? (\d+)((?:,? (?:and|to|or) \d+|, \d+)*)", text, re.I
    ):
        numbers = [int(n) for n in re.findall(r"\d+", hit[0])]
        found |= set(numbers)
        if " to " in hit[2]:
            found |= set(range(numbers[0], numbers[-1] + 1))
    return found


def unstated(page, needs, mentions):
    """Earlier chapters that a page names and that it is not said to need."""
    number = int(page[:2])
    text = (BOOK / f"{page}.md").read_text("utf8")
    said = all_needs(page, needs) | set(mentions.get(page, ()))
    known = {int(name[:2]) for name in said}
    return sorted(n for n in named(text) - known if n < number)


@pytest.mark.parametrize("page", sorted(NEEDS))
def test_what_a_page_names_it_needs(page):
    assert unstated(page, NEEDS, MENTIONS) == []


def test_a_need_that_is_not_stated_is_found():
    """Without its needs chapter 14 still names these."""
    found = unstated("14_seq2seq", NEEDS | {"14_seq2seq": []}, {})
    assert {4, 11, 12, 13} <= set(found)
    text = "Chapters 2 to 4 and chapter 7.\n\n## Exercises\n\nChapter 9."
    assert named(text) == {2, 3, 4, 7}


def test_needs_name_no_later_chapter():
    for page, below in NEEDS.items():
        assert all(other < page for other in below)
        # What another need needs is not repeated.
        assert not any(
            other in all_needs(n, NEEDS) for other in below for n in below
        )
    for page, others in MENTIONS.items():
        text = (BOOK / f"{page}.md").read_text("utf8")
        assert {int(other[:2]) for other in others} <= named(text)
        assert not set(others) & all_needs(page, NEEDS)


# -- routes ------------------------------------------------------------------
def missing(route, needs):
    """Chapters of a route that come before something that they need.

    Where the route begins with the front page, that tells in outline what
    ``outline`` lists.
    """
    read, wrong = set(), []
    for page in (page for pages, _ in route for page in pages):
        if page == "index":
            read |= set(front_matter(BOOK / "index.md")["outline"])
        wanted = all_needs(page, needs) if page in needs else set()
        wrong += [f"{page}: {n}" for n in sorted(wanted - read)]
        read.add(page)
    return wrong


def minutes(pages, labels):
    """What pages take with some of their exercises, or with all for None."""
    return sum(
        count((HTML / f"{page}.html").read_text("utf8")).minutes
        + sum(
            one.minutes
            for one in declared(BOOK / f"{page}.md")
            if labels is None or one.label in labels
        )
        for page in pages
    )


@pytest.mark.parametrize("route", ROUTES, ids=NAMES)
def test_a_route_skips_nothing_that_it_needs(route):
    assert missing(route, NEEDS) == []


def test_a_wrong_route_is_found():
    assert "09_decoder: 04_attention" in missing([(["09_decoder"], [])], NEEDS)
    # The front page tells what 1 to 3 are, not what chapter 0 is.
    route = [(["index"], []), (["04_attention"], [])]
    assert missing(route, NEEDS) == ["04_attention: 00_first_model"]


def test_a_route_takes_the_time_that_it_promises():
    lecture, week, term = ROUTES
    assert (len(week), len(term)) == (5, 14)
    assert sum(minutes(*row) for row in lecture) <= 90
    assert max(minutes(*row) for row in week) <= 3 * 60
    every = [minutes(pages, None) for pages, _ in term]
    assert max(every) <= 4 * 60
    assert sum(every) > 90  # the control
