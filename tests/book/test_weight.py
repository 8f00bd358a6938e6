"""How much a page of the book makes a browser fetch, compressed.

A server compresses what it sends, so each file counts with its gzipped size;
Chromium says which files a page asks for.
"""

import functools
import gzip
import random
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
import test_pages
from bs4 import BeautifulSoup
from fontTools.ttLib import TTFont
from lxml import html
from test_pages import HTML, Visit

sys.path.insert(0, str(Path(__file__).parents[2] / "sphinx_ext"))
import styles
from weight import restart

base = test_pages.base
xdist_group = pytest.mark.xdist_group

# A tenth more than there is: what makes a page slower shows here first.
EMPTY = 380_000  # bytes of a page without text, with all that it loads
# Six of them are MathJax's: in parts, it holds up no phone (weight.py).
REQUESTS = 26  # of files, for such a page and for the first
PAINTED = 112_000  # of a page and its styles, before it is painted
OWN = 330_000  # bytes that a chapter may add, with ten fonts of formulas
MORE = 14  # files that it may add
FIRST = 315_000  # of the first page, all that it loads but the model
LIVE = "_static/live/"  # models, fetched only when their figure is near
MODEL = 2_700_000
FONTS = 105_000  # of the book's own type, all faces
# The first page begins with a figure, which asks for its model a bit later.
ALIVE = "() => !document.querySelector('live-hero:not([data-state=ready])')"
TEXT = "article section > :not(h1), .bd-sidebar-secondary li"
CHAPTERS = [
    page
    for page in test_pages.PAGES
    if page.startswith("book/") and "/about/" not in page
]


def weight(data):
    """Bytes that a server sends for these."""
    return len(gzip.compress(data, 9, mtime=0))


@functools.cache
def weight_of(path):
    """Bytes that a server sends for a file."""
    return weight(path.read_bytes())


def fetched(browser, base, page, emptied=False, folder=HTML):
    """``{path: bytes}`` of everything that a page loads, to its end."""
    visit = Visit(browser, base, 1280, "light")
    sizes = {}
    if emptied:
        soup = BeautifulSoup((folder / page).read_text("utf8"), "html.parser")
        for part in soup.select(TEXT):
            part.decompose()
        sizes[page] = weight(str(soup).encode())
        visit.page.route(
            base + page,
            lambda route: route.fulfill(
                body=str(soup), content_type="text/html"
            ),
        )
    try:
        visit.open(base + page).page.wait_for_function(ALIVE)
        paths = visit.load_all()
    finally:
        visit.close()
    assert visit.wrong == []
    return {path: weight_of(folder / path) for path in paths} | sizes


@pytest.fixture(scope="session")  # a page's tests stand in several files
def empty(browser, base):
    return fetched(browser, base, CHAPTERS[0], emptied=True)


def test_there_are_chapters():
    assert CHAPTERS, "no pages in _build/html: run `make book` first"


def test_an_empty_page_is_light(empty):
    largest = sorted(empty.items(), key=lambda item: -item[1])[:5]
    assert sum(empty.values()) < EMPTY, largest
    assert len(empty) <= REQUESTS, sorted(empty)
    # Control: it is a page with its maths, its styles and its icons.
    for part in (
        *("mathjax/core.js", "/fa-solid-900.woff", "_static/one-"),
        "fonts/course-sans.woff2",
    ):
        assert any(part in path for path in empty), part


@pytest.mark.parametrize(
    "page", [pytest.param(p, marks=xdist_group(p)) for p in CHAPTERS]
)
def test_a_chapter_adds_little(browser, base, empty, page):
    paths = test_pages.LOADED.get(page)  # the same worker has opened it
    whole = {path: weight_of(HTML / path) for path in paths or ()}
    whole = whole or fetched(browser, base, page)
    own = {p: n for p, n in whole.items() if p == page or p not in empty}
    own = {p: n for p, n in own.items() if not p.startswith(LIVE)}
    largest = sorted(own.items(), key=lambda item: -item[1])[:8]
    assert 0 < sum(own.values()) < OWN, largest
    assert len(own) <= MORE, sorted(own)


def test_the_first_page_is_light(browser, base):
    whole = fetched(browser, base, "book/index.html")
    assert any(path.startswith(LIVE) for path in whole)  # it begins with one
    assert len(whole) <= REQUESTS, sorted(whole)
    own = {p: n for p, n in whole.items() if not p.startswith(LIVE)}
    assert sum(own.values()) <= FIRST, sorted(own.items(), key=lambda x: -x[1])


def test_the_type_is_light_and_free():
    folder = HTML / "_static" / "fonts"
    faces = list(folder.glob("*.woff2"))
    assert len(faces) == 5
    assert sum(face.stat().st_size for face in faces) <= FONTS
    style = (HTML / "_static" / "course.css").read_text("utf8")
    for face in faces:
        assert face.read_bytes()[:4] == b"wOF2"
        assert f'url("fonts/{face.name}")' in style
    # No address but our own, and text at once in a face that is there.
    assert style.count("@font-face") == style.count("font-display: swap") == 5
    assert "SIL Open Font License" in (folder / "OFL.txt").read_text("utf8")


ICONS = """() => {
  const found = [];
  for (const element of document.querySelectorAll("body *"))
    for (const part of ["::before", "::after"]) {
      const style = getComputedStyle(element, part);
      if (style.fontFamily.includes("Font Awesome"))
        found.push(...style.content.replaceAll('"', ""));
    }
  return [...new Set(found)];
}"""


def test_every_icon_is_in_a_font(browser):
    """The fonts of icons hold only what the book shows, but all of that."""
    known = set()
    for path in HTML.glob("_static/vendor/fontawesome/webfonts/*"):
        known |= {chr(code) for code in TTFont(path).getBestCmap()}
    assert len(known) < 60  # Font Awesome has 2,000
    folder, shown = HTML.as_uri() + "/", set()
    for page in ("book/04_attention.html", "book/index.html", "search.html"):
        visit = Visit(browser, folder, 1280, "light").open(folder + page)
        shown |= set(visit.page.evaluate(ICONS)) - {"none", "normal"}
        visit.close()
    signs = {sign for sign in shown if "\ue000" <= sign <= "\uf8ff"}
    assert len(signs) > 10
    assert signs <= known


def test_the_search_index_is_loaded_where_one_searches(browser):
    folder = HTML.as_uri() + "/"
    asks = {}
    for page in ("book/about/routes.html", "search.html"):
        visit = Visit(browser, folder, 1280, "light").open(folder + page)
        asks[page] = "searchindex.js" in visit.load_all()
        visit.close()
    assert asks == {"book/about/routes.html": False, "search.html": True}


@pytest.mark.parametrize("page", test_pages.KINDS)
def test_a_page_waits_for_no_script(page):
    """Only the search, whose scripts build on one another."""
    head = test_pages.tree(page).head
    scripts = head.xpath(".//script[@src][not(@defer)]")
    assert bool(scripts) == (page == "search.html")
    # Of what is needed later nothing comes before the styles.
    preloads = head.xpath('.//link[@rel="preload"]')
    assert bool(preloads) == (page == "search.html")
    # In the page, since others write to it.
    text = " ".join(script.text or "" for script in head.iter("script"))
    assert text.count("const DOCUMENTATION_OPTIONS") == (not scripts)


PLANTED_STYLE = """/* A comment. */ @import url("a.css");
.here, .gone:hover { color: red }
:is(.gone, p:not(.gone)) a[href$=".gone"] { top: 2px }
.here > .gone { color: blue }
#where:not(.gone), p:is(.gone, .here) { content: ",.gone" }
@font-face { font-family: "F"; src: url("fonts/f.woff2") }
@media print { .gone { display: none } a, .by-script { top: 0 } }
@media screen { .gone { display: none } }
@keyframes turn { from { top: 0 } 50.5% { top: 1px } }"""
NEEDED = """@import url("a.css");
.here { color: red }
:is(.gone, p:not(.gone)) a[href$=".gone"] { top: 2px }
#where:not(.gone), p:is(.gone, .here) { content: ",.gone" }
@font-face { font-family: "F"; src: url("fonts/f.woff2") }
@media print { a, .by-script { top: 0 } }
@keyframes turn { from { top: 0 } 50.5% { top: 1px } }"""


def test_of_a_style_sheet_there_is_what_the_book_needs(tmp_path):
    (tmp_path / "_static").mkdir()
    (tmp_path / "_static/a.js").write_text('x.classList.add("by-script")')
    (tmp_path / "a.html").write_text('<p class="b here" id="where">gone</p>')
    words = styles.words(tmp_path)
    assert {"b", "here", "where", "by-script"} <= words
    assert "gone" not in words
    found = styles.needed(PLANTED_STYLE, words)
    assert "".join(found.split()) == "".join(NEEDED.split())
    assert styles.needed(found, words) == found
    theme = HTML / "_static/styles/pydata-sphinx-theme.css"
    assert 10_000 < weight_of(theme) < 21_000  # all of it: 65,000


def test_a_second_build_begins_with_whole_style_sheets(tmp_path):
    """Sphinx 9 overwrites no file that differs, and warns."""
    names = {"sphinx-design.min.css", "course.css"}
    (tmp_path / "_static").mkdir()
    for name in names:
        (tmp_path / "_static" / name).touch()
    restart(SimpleNamespace(outdir=tmp_path))
    assert {file.name for file in tmp_path.rglob("*.css")} == {"course.css"}


def planted_styles(folder):
    """Two pages, and style sheets of which one imports and one draws."""
    (folder / "_static/styles").mkdir(parents=True)
    (folder / "_static/basic.css").write_text("p { top: 1px }")
    (folder / "_static/styles/theme.css").write_text(
        '@import "../basic.css";\na { background: url(../vendor/a.png) }\n'
        'b { background: url("data:image/svg+xml,%3C(") }'
    )
    (folder / "_static/own.css").write_text('i { content: url("fonts/f") }')
    (folder / "further").mkdir()
    for page, up in ("a.html", ""), ("further/b.html", "../"):
        (folder / page).write_text(
            f"<head><title>t</title>\n"
            f'<link href="{up}_static/styles/theme.css?d=1" rel="stylesheet"/>'
            f'<!-- and --><link rel="icon" href="{up}_static/i.svg"/>\n'
            f'<link rel="stylesheet" href="{up}_static/own.css"/></head>'
        )


JOINED = """/* styles/theme.css own.css */
p { top: 1px }
a { background: url(vendor/a.png) }
b { background: url("data:image/svg+xml,%3C(") }
i { content: url("fonts/f") }"""


def test_style_sheets_become_one(tmp_path):
    planted_styles(tmp_path)
    styles.join(tmp_path)
    [one] = tmp_path.glob("_static/one-*.css")
    assert one.read_text() == JOINED
    for page, up in ("a.html", ""), ("further/b.html", "../"):
        assert (tmp_path / page).read_text() == (
            "<head><title>t</title>\n"
            f'<link rel="stylesheet" href="{up}_static/{one.name}">'
            f'<!-- and --><link rel="icon" href="{up}_static/i.svg"/></head>'
        )
    # A build that writes no page again, but has another style.
    (tmp_path / "_static/own.css").write_text("i { top: 2px }")
    styles.join(tmp_path)
    [other] = tmp_path.glob("_static/one-*.css")
    assert other.name != one.name
    assert other.read_text().endswith("\ni { top: 2px }")
    assert (
        f"../_static/{other.name}" in (tmp_path / "further/b.html").read_text()
    )


# Every color that the page is set to, in order.
COLORS = """
  globalThis.colors = [];
  new MutationObserver(() => {
    const {theme} = document.documentElement?.dataset ?? {};
    if (theme && theme !== colors.at(-1)) colors.push(theme);
  }).observe(document, {attributes: true, subtree: true,
    attributeFilter: ["data-theme"]});
"""


def before_the_paint(page, folder=HTML):
    """``{path: bytes}`` of what must have come when a page is painted."""
    path = folder / page
    addresses = html.document_fromstring(path.read_text("utf8")).xpath(
        '//link[contains(@rel, "stylesheet")]/@href'
        " | //head//script[not(@defer)]/@src"
    )
    files = [path]
    files += [path.parent / urlsplit(one).path for one in addresses]
    return {file.name: weight_of(file) for file in files}


def test_a_page_is_painted_soon():
    """It and one style sheet: no other request, nothing that imports."""
    heaviest = {}
    for page in test_pages.PAGES:
        if page == "search.html":  # its scripts build on one another
            continue
        needed = before_the_paint(page)
        assert len(needed) == 2, needed
        heaviest[page] = sum(needed.values())
    page = max(heaviest, key=heaviest.get)
    assert heaviest[page] <= PAINTED, (page, heaviest[page])
    [style] = HTML.glob("_static/one-*.css")
    text = style.read_text("utf8")
    assert "@import" not in text
    # Each as it stands: none was written again after they were joined.
    for name in text.partition("\n")[0].split()[1:-1]:
        assert styles.joined(style.parent, name) in text, name
    for url in re.findall(r"""url\(["']?(?!data:)([^"')]+)""", text):
        assert (style.parent / url).exists(), url


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_script_changes_the_color_of_a_page(browser, scheme):
    """What is painted first has the reader's color, and keeps it."""
    page = "book/about/glossary.html"
    context = browser.new_context(color_scheme=scheme)
    tab = context.new_page()
    tab.add_init_script(COLORS)
    tab.goto((HTML / page).as_uri(), wait_until="load")
    assert tab.evaluate("() => colors") == [scheme]
    # Control: what a script changes later is seen.
    tab.evaluate("() => { document.documentElement.dataset.theme = 'auto'; }")
    assert tab.evaluate("() => colors") == [scheme, "auto"]
    context.close()


def test_what_delays_the_paint_is_found(tmp_path):
    planted_styles(tmp_path)
    needed = before_the_paint("further/b.html", tmp_path)
    assert set(needed) == {"b.html", "theme.css", "own.css"}
    styles.join(tmp_path)
    assert len(before_the_paint("further/b.html", tmp_path)) == 2


def test_models_of_live_figures_are_light():
    sizes = {p.name: weight(p.read_bytes()) for p in HTML.glob(f"{LIVE}*.js")}
    assert max(sizes.values(), default=0) <= MODEL, sizes


def test_what_is_heavy_is_found(browser, tmp_path):
    """An image that does not compress, in something closed, counts whole."""
    noise = random.Random(0).randbytes(123_457)
    (tmp_path / "noise.png").write_bytes(noise)
    (tmp_path / "planted.html").write_text(
        "<!doctype html><title>t</title><article>"
        '<details><img loading="lazy" src="noise.png"></details></article>'
    )
    folder = tmp_path.as_uri() + "/"
    sizes = fetched(browser, folder, "planted.html", folder=tmp_path)
    assert set(sizes) == {"planted.html", "noise.png"}
    assert 123_457 <= sizes["noise.png"] < 124_000
