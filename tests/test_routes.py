"""A route fits into the time that it promises, and skips nothing it needs."""

import functools
import re
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "sphinx_ext"))

import routes  # noqa: E402
import teaching  # noqa: E402
from notebooks import pages  # noqa: E402

BOOK = ROOT / "book"
HTML = ROOT / "_build" / "html" / "book"
LEDGER = yaml.safe_load((BOOK / "routes.yml").read_text("utf8"))
NEEDS = LEDGER["needs"]
ROUTES = routes.routes((BOOK / "about" / "routes.md").read_text("utf8"))
NAMES = ["lecture", "week", "term"]
MAIN = sorted(path.stem for path in BOOK.glob("[0-9][0-9]_*.md"))


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


@pytest.mark.parametrize("page", MAIN)
def test_what_a_page_names_it_needs(page):
    assert unstated(page, NEEDS, LEDGER["mentions"]) == []


def test_a_need_that_is_not_stated_is_found():
    """Without its needs chapter 14 still names these."""
    found = unstated("14_seq2seq", NEEDS | {"14_seq2seq": []}, {})
    assert {4, 11, 12, 13} <= set(found)
    text = "Chapters 2 to 4 and chapter 7.\n\n## Exercises\n\nChapter 9."
    assert named(text) == {2, 3, 4, 7}


def test_needs_name_all_chapters_and_no_later_one():
    assert sorted(NEEDS) == MAIN
    for page, below in NEEDS.items():
        assert all(other < page for other in below)
        # What another need needs is not repeated.
        assert not any(
            other in all_needs(n, NEEDS) for other in below for n in below
        )
    for page, others in LEDGER["mentions"].items():
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
    for part in route["parts"].values():
        for page in part["pages"]:
            if page == "index":
                read |= set(LEDGER["outline"])
            wanted = all_needs(page, needs) if page in needs else set()
            wrong += [f"{page}: {n}" for n in sorted(wanted - read)]
            read.add(page)
    return wrong


def faults(route):
    """Pages, exercises that do not exist, and what comes too early."""
    wrong = missing(route, NEEDS)
    for name, part in route["parts"].items():
        wrong += [
            f"{name}: no page {page}"
            for page in part["pages"]
            if f"book/{page}" not in pages(ROOT)
        ]
        asked = part.get("exercises", [])
        found = [
            e["label"]
            for page in part["pages"]
            if (BOOK / f"{page}.md").exists()
            for e in teaching.exercises(BOOK / f"{page}.md")
        ]
        if asked != "all":
            wrong += [f"{name}: no {e}" for e in asked if e not in found]
    return wrong


@pytest.mark.parametrize("route", ROUTES, ids=NAMES)
def test_a_route_can_be_walked(route):
    assert faults(route) == []


def test_a_wrong_route_is_found():
    parts = {"A": {"pages": ["09_decoder", "09_encoder"], "exercises": ["x"]}}
    found = faults({"parts": parts})
    assert "09_decoder: 04_attention" in found
    assert {"A: no page 09_encoder", "A: no x"} <= set(found)
    # The front page tells what 1 to 3 are, not what chapter 0 is.
    parts = {"A": {"pages": ["index", "04_attention"]}}
    assert faults({"parts": parts}) == ["04_attention: 00_first_model"]


def test_every_exercise_of_a_route_says_how_long_it_takes():
    for route in ROUTES:
        for part in route["parts"].values():
            for _, found in routes.declared_exercises(BOOK, part):
                assert found["minutes"] > 0, found["label"]


# -- times -------------------------------------------------------------------
@functools.cache
def printed(page):
    """The range under a page's title, else the counted one."""
    html = (HTML / f"{page}.html").read_text("utf8")
    found = re.search(r"Reading: (\d+)–(\d+) minutes\.", html)
    if found:
        return int(found[1]), int(found[2])
    return routes.count(html).range


def too_long(route, time):
    """Parts whose reading and exercises take more than was promised."""
    wrong = {}
    for name, part in route["parts"].items():
        found = routes.declared_exercises(BOOK, part)
        minutes = sum(e["minutes"] for _, e in found)
        high = routes.total(part["pages"], minutes, time)[1]
        if high > route["most"]:
            wrong[name] = high
    return wrong


@pytest.mark.parametrize("route", ROUTES, ids=NAMES)
def test_each_part_keeps_its_promise(route):
    assert too_long(route, printed) == {}


def test_the_promises_are_those_of_the_text():
    lecture, week, term = ROUTES
    assert len(week["parts"]) == 5
    assert len(term["parts"]) == 14
    assert (week["most"], term["most"]) == (3 * 60, 4 * 60)
    # "90 minutes" is said of the whole, "three hours" of each day.
    every = [p for part in lecture["parts"].values() for p in part["pages"]]
    done = ["first-model-surprise"]
    assert lecture["parts"]["Then"]["exercises"] == done
    assert routes.total(every, 10, printed)[1] <= lecture["most"] == 90


def test_a_route_that_is_too_long_is_found():
    part = {"pages": ["00_first_model"], "exercises": ["first-model-mean"]}
    route = {"most": 20, "parts": {"A": part}}
    assert too_long(route, lambda page: (5, 10)) == {}
    assert too_long(route, lambda page: (5, 11)) == {"A": 21}


def test_times_are_filled_in_once_and_again():
    html = f"<td>{routes.marked(['a', 'b'], 10)}</td>{routes.marked(['a'])}"
    once = routes.fill(html, {"a": (1, 2), "b": (20, 30)}.get)
    text = re.sub("<!--.*?-->", "", once)
    assert text == "<td>31–42 minutes</td>1–2 minutes"
    again = routes.fill(once, {"a": (3, 3), "b": (100, 200)}.get)
    assert ">2–4 hours<" in re.sub("<!--.*?-->", "", again)


def test_the_page_shows_the_sums():
    html = (HTML / "about" / "routes.html").read_text("utf8")
    shown = re.sub("<!--.*?-->", "", html)
    for route in ROUTES:
        parts = route["parts"].values()
        for part in parts:
            for page in part["pages"]:
                low, high = printed(page)
                assert f"</a>, {low}–{high} minutes</li>" in shown
        every = [page for part in parts for page in part["pages"]]
        found = [
            e for p in parts for _, e in routes.declared_exercises(BOOK, p)
        ]
        work = sum(e["minutes"] for e in found)
        low, high = (
            work + sum(end) for end in zip(*map(printed, every), strict=True)
        )
        text = f"{low}–{high} minutes"
        if high > 180:
            text = f"{round(low / 60)}–{round(high / 60)} hours"
        assert f"<td>{text}</td></tr></tfoot>" in shown


# -- one lecture, by the minute ----------------------------------------------
TINY = """
<article><section id="tiny"><h1>Tiny<a class="headerlink">#</a></h1>
<p>{intro}</p>
<section id="one"><h2>One &amp; two</h2><p>{text}</p>
<div class="predict">Which</div></section>
<section id="exercises"><h2>Exercises</h2><p>{text}</p></section>
<section id="takeaways"><h2>Takeaways</h2><p>{intro}</p></section>
</section></article>
""".format(intro="word " * 340, text="word " * 850)
PLAN = ["04_tiny", 75, [["Do it", "do-it", 15]]]


def test_a_lecture_is_planned_from_the_counts_of_its_page():
    """170 words take a minute, a prediction takes 1.3: by hand."""
    rows = routes.timetable(TINY, PLAN)
    spans = re.findall(r'"row">(\d+)–(\d+)<', rows)
    ends = [2.0, 2.0 + 5.0 + 1.3, 10.3, 25.3, 75]  # titles have words too
    assert [int(end) for _, end in spans] == [round(end) for end in ends]
    assert [start for start, _ in spans[1:]] == [end for _, end in spans[:-1]]
    assert ">One &amp; two</a></td><td>1<" in rows
    assert "04_tiny.html#do-it" in rows
    assert "Exercises" not in rows
    parts = [part.minutes for _, _, part in routes.sections(TINY)]
    assert sum(parts) == pytest.approx(routes.count(TINY).minutes)
    longer = TINY.replace("Which", "word " * 170)  # the control
    assert ">2–9<" in routes.timetable(longer, PLAN)


def test_a_plan_is_filled_in_once_and_again():
    said = routes.escape(routes.json.dumps(PLAN))
    html = f"<tbody><!-- lecture {said} --><!-- /lecture --></tbody>"
    once = routes.fill_lectures(html, {"04_tiny": TINY}.get)
    assert once.count("<tr>") == 5
    assert routes.fill_lectures(once, {"04_tiny": TINY}.get) == once


def test_the_lecture_fits_into_its_minutes():
    html = (HTML / "about" / "routes.html").read_text("utf8")
    ((_, said),) = routes.LECTURE.findall(html)
    page, minutes, work = routes.json.loads(routes.unescape(said))
    read = routes.count((HTML / f"{page}.html").read_text("utf8")).minutes
    assert read + sum(took for *_, took in work) <= minutes == 75
