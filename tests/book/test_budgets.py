"""How much there is to read on a page, held against its budget.

The pages are those that were built. The table of any of them is printed by

    python tests/book/test_budgets.py book/04_attention
"""

import functools
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "sphinx_ext"))

import page_count  # noqa: E402
from notebooks import pages  # noqa: E402

HTML = ROOT / "_build" / "html"
BUDGETS = tomllib.loads((ROOT / "tests" / "budgets.toml").read_text("utf8"))
BUDGET = BUDGETS["page"]
HAVE_ONE = re.compile(r"book/(further/)?\d\d_\w+|book/assistant")
BUDGETED = [page for page in pages(ROOT) if HAVE_ONE.fullmatch(page)]


# Each page is counted once, by one worker.
COUNTED = pytest.mark.xdist_group("counted pages")


@functools.cache
def counted(page):
    """What a built page holds."""
    return page_count.count((HTML / f"{page}.html").read_text("utf8"))


def shows_the_lesson(page):
    """Whether it is the main page of a chapter that works on the file."""
    chapter = re.fullmatch(r"book/(\d\d)_\w+", page)
    return bool(chapter) and int(chapter[1]) <= BUDGET["last_lesson"]


def known_before(page, order, read=counted):
    """The terms that the main pages before it have linked."""
    earlier = [p for p in order[: order.index(page)] if "/further/" not in p]
    return frozenset[str]().union(*(read(p).terms for p in earlier))


def table(page, count, known):
    """Rows of (what, counted, budget); lines of the lesson on a main page."""
    rows = [
        (what, getattr(count, what), BUDGET[what])
        for what in ("words", "sections", "predictions", "code_lines")
    ]
    rows += [
        ("minutes", round(count.minutes), BUDGET["minutes"]),
        ("terms", len(count.terms - known), BUDGET["terms"]),
        ("paragraph", count.longest, BUDGET["paragraph"]),
    ]
    if shows_the_lesson(page):
        other = count.code_lines - count.lesson_lines
        most = 100 - BUDGET["lesson_percent"]
        rows.append(
            ("other_percent", 100 * other / max(count.code_lines, 1), most)
        )
    return rows


def over(rows):
    """What is above its budget, in words."""
    return [f"{what}: {n:g} > {most}" for what, n, most in rows if n > most]


def show(page, rows):
    """Print what was counted."""
    cells = ", ".join(f"{what} {n:g}/{most}" for what, n, most in rows)
    print(f"{page}: {cells}")


@COUNTED
@pytest.mark.parametrize("page", BUDGETED)
def test_a_page_keeps_its_budget(page):
    rows = table(page, counted(page), known_before(page, pages(ROOT)))
    show(page, rows)
    assert over(rows) == []


@COUNTED
@pytest.mark.parametrize("page", BUDGETED)
def test_the_printed_time_is_the_counted_one(page):
    html = (HTML / f"{page}.html").read_text("utf8")
    assert f"Reading: about {counted(page).minutes:.0f} minutes." in html


def test_chapters_and_further_pages_have_a_budget():
    """All that are there: a new one needs no entry anywhere."""
    there = {
        path.relative_to(ROOT).with_suffix("").as_posix()
        for path in ROOT.glob("book/**/[0-9][0-9]_*.md")
    }
    assert set(BUDGETED) == there | {"book/assistant"}


# -- the counting itself -----------------------------------------------------
CODE = '<div class="highlight-python"><div class="highlight"><pre>{}</pre>'
CODE += "</div></div>"
PRINTED = CODE.replace("highlight-python", "output highlight-myst-ansi")
LINK = '<a class="reference internal" href="about/glossary.html#term-{0}">{0}'
LINK += "</a>"


def lines(line, times):
    """A block of code, every second line blank."""
    return CODE.format(f"{line}\n\n" * times)


def html(words=(5,), sections=1, terms=0, lesson=2, other=1, predictions=1):
    """A page with so much of everything, and the same again not to count."""
    prose = "".join(f"<p>{'word ' * n}</p>" for n in words)
    asked = '<div class="predict"><p>asked</p></div>' * predictions
    linked = " ".join(LINK.format(f"t{n}") for n in range(terms))
    folded = lines("c = 3", 200)
    folded = f'<details class="hide"><summary>+</summary>{folded}</details>'
    return f"""<nav><p>not this</p></nav><article><section id="top">
    <h1>Title<a class="headerlink" href="#top">#</a></h1>{prose}{asked}
    <p>{linked}</p>
    <div class="lesson">{lines("a = 1", lesson)}</div>
    {lines("b = 2", other)}
    {folded}
    {PRINTED.format("printed text")}
    <div class="math">x = y</div><p>in <span class="math">z + w</span></p>
    <figure><img><figcaption><p>caption</p></figcaption></figure>
    <details class="still-there"><div class="predict"></div></details>
    {'<section id="s"><h2>H</h2></section>' * sections}
    <section id="exercises"><h2>Exercises</h2><p>{"ex " * 5000}</p>{asked}
    <figure></figure></section>
    <section id="after"><h2>After</h2></section></section></article>"""


def test_a_page_is_counted():
    """By hand: what stands in the page above, and nothing of the rest."""
    found = page_count.count(html())
    # Title, 5, asked, printed text, in + a formula, caption, H, After
    assert found.words == 1 + 5 + 1 + 2 + 2 + 1 + 1 + 1
    assert (found.code_lines, found.lesson_lines) == (3, 2)
    assert found.code_words == 3 * 2
    assert (found.figures, found.formulas, found.predictions) == (1, 1, 1)
    assert (found.sections, found.longest) == (1, 5)
    minutes = 14 / 170 + 6 / 100 + 0.5 + 0.4 + 1.3
    assert found.minutes == pytest.approx(minutes)


FULL = {
    "words": (100,) * 23,
    "sections": 7,
    "terms": 8,
    "lesson": 45,
    "other": 45,
    "predictions": 3,
}


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"words": (100,) * 24 + (20,)}, "words"),
        ({"words": (111,)}, "paragraph"),
        ({"sections": 8}, "sections"),
        ({"terms": 9}, "terms"),
        ({"lesson": 46}, "code_lines"),
        ({"lesson": 44}, "other_percent"),
        ({"predictions": 4}, "predictions"),
        ({"predictions": 20}, "minutes"),
    ],
)
def test_a_page_over_its_budget_is_found(more, what):
    def wrong(**parts):
        count = page_count.count(html(**parts))
        return over(table("book/04_a", count, frozenset()))

    assert wrong(**FULL) == []
    assert any(w.startswith(f"{what}:") for w in wrong(**(FULL | more)))


def test_only_new_terms_count():
    order = ["book/00_a", "book/further/00_a", "book/01_b"]
    counts = {
        page: page_count.count(html(terms=terms))
        for page, terms in zip(order, (2, 5, 7), strict=True)
    }
    known = known_before("book/01_b", order, counts.get)
    assert known == {"term-t0", "term-t1"}  # nobody must have read further
    rows = table("book/01_b", counts["book/01_b"], known)
    assert ("terms", 5, BUDGET["terms"]) in rows


def test_a_further_page_and_a_late_chapter_show_other_code():
    count = page_count.count(html(lesson=0, other=9))
    rows = {"book/04_a": ["other_percent: 100 > 50"]}
    rows |= {"book/further/04_a": [], "book/16_a": [], "book/a": []}
    for page, wrong in rows.items():
        assert over(table(page, count, frozenset())) == wrong


if __name__ == "__main__":
    for name in sys.argv[1:] or BUDGETED:
        show(name, table(name, counted(name), known_before(name, pages(ROOT))))
