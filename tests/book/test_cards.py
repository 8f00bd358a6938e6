"""What a term means, next to its link, and figures large, on a page.

By pointer and keyboard.
"""

import pytest
from bs4 import BeautifulSoup
from test_pages import HTML, Visit, axe

pytestmark = pytest.mark.xdist_group("cards")
PAGE = "book/04_attention.html"
TERM = 'article p a[href="about/glossary.html#term-query"]'
REFERENCE = "article p a.internal[href"
CITED = 'article p a[href*="bibliography.html#"]'


@pytest.fixture(scope="module")
def attention(browser):
    """The page on attention, which tests that leave no trace may share."""
    folder = HTML.as_uri() + "/"
    visit = Visit(browser, folder, 1280, "light").open(folder + PAGE)
    yield visit
    visit.close()


@pytest.fixture
def page(attention):
    """That page without a card, in a window that shows the term."""
    attention.page.mouse.move(5, 5)
    attention.page.evaluate("() => document.activeElement.blur()")
    attention.page.locator("#link-card").wait_for(state="hidden")
    attention.page.locator(TERM).first.scroll_into_view_if_needed()
    yield attention
    assert attention.wrong == []


def point_at(visit, link):
    """Bring the pointer there, once nothing scrolls: that closes a card."""
    link.scroll_into_view_if_needed()
    visit.pass_time()
    link.hover()


def meaning(term):
    """The first words of the glossary's own definition."""
    text = (HTML / "book/about/glossary.html").read_text("utf8")
    name = BeautifulSoup(text, "html.parser").find(id=f"term-{term}")
    return " ".join(name.find_next("dd").get_text().split())[:40]


def test_the_title_is_the_definition():
    """In the page itself, so it needs no JavaScript."""
    soup = BeautifulSoup((HTML / PAGE).read_text("utf8"), "html.parser")
    links = soup.select('article a[href*="glossary.html#term-"]')
    assert len(links) > 5
    for link in links:
        term = link["href"].split("#term-")[1]
        assert link["title"].startswith(meaning(term))
        assert not link["title"].endswith(")")  # nor where it is introduced


def test_the_pointer_opens_a_card_and_may_rest_on_it(page):
    link, card = page.page.locator(TERM).first, page.page.locator("#link-card")
    assert card.is_hidden()
    point_at(page, link)
    card.wait_for()
    assert card.inner_text().startswith(meaning("query"))
    assert link.get_attribute("title") is None  # one of the two is enough
    assert link.get_attribute("aria-describedby") == "link-card"
    assert axe(page) == []
    card.hover()
    page.pass_time(500)
    assert card.is_visible()
    page.page.mouse.move(5, 5)
    card.wait_for(state="hidden")
    assert link.get_attribute("title").startswith(meaning("query"))


def test_the_keyboard_opens_it_and_escape_closes_it(page):
    link, card = page.page.locator(TERM).first, page.page.locator("#link-card")
    page.page.keyboard.press("Tab")  # a reader who uses the keyboard
    link.focus()
    assert card.inner_text().startswith(meaning("query"))
    page.page.keyboard.press("Escape")
    assert card.is_hidden()
    link.evaluate("link => link.blur()")
    link.focus()
    assert card.is_visible()
    page.page.keyboard.press("Tab")  # the next link
    assert link.get_attribute("title").startswith(meaning("query"))


def test_a_citation_says_what_it_cites(page):
    cited = page.page.locator(CITED).first
    title = cited.get_attribute("title")
    point_at(page, cited)
    card = page.page.locator("#link-card")
    card.wait_for()
    assert card.inner_text() == title


@pytest.mark.parametrize("width", [1280, 360])
def test_a_card_is_never_cut_off(browser, width):
    folder = HTML.as_uri() + "/"
    visit = Visit(browser, folder, width, "dark").open(folder + PAGE)
    card = visit.page.locator("#link-card")
    for link in visit.page.locator(TERM).all()[:3]:
        point_at(visit, link)
        card.wait_for()
        box = card.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        visit.page.keyboard.press("Escape")
    assert visit.look() == []
    visit.close()


@pytest.fixture
def opened(browser):
    """``opened(page, width)``: another page of the book."""
    folder, visits = HTML.as_uri() + "/", []

    def open_page(name, width=1280):
        visits.append(Visit(browser, folder, width, "light"))
        return visits[-1].open(f"{folder}book/{name}.html")

    yield open_page
    for visit in visits:
        assert visit.wrong == []
        visit.close()


def repeated(visit):
    """Ids that the page has twice as it is now."""
    ids = visit.page.evaluate(
        "[...document.querySelectorAll('[id]')].map(e=>e.id)"
    )
    return sorted({one for one in ids if ids.count(one) > 1})


def test_a_link_to_a_figure_shows_it_small(opened):
    visit = opened("17_vision")
    before = repeated(visit)
    link = visit.page.locator(f'{REFERENCE}="#fig-vis-shuffled"]').first
    title = link.get_attribute("title")
    point_at(visit, link)
    card = visit.page.locator("#link-card")
    card.wait_for()
    assert " ".join(title.split())[:30] in " ".join(card.inner_text().split())
    drawn = card.locator("svg, img").first.bounding_box()
    assert 50 < drawn["height"] < 300
    box = card.bounding_box()
    assert box["x"] >= 0
    assert box["y"] >= 0
    assert axe(visit) == []
    assert repeated(visit) == before
    # Of another page's figure there is the caption.
    visit = opened("19_debugging")
    link = visit.page.locator(f'{REFERENCE}$="#fig-dbg-zoo"]').first
    assert len(link.get_attribute("title")) > 30
    point_at(visit, link)
    card = visit.page.locator("#link-card")
    card.wait_for()
    assert card.locator("svg").count() == 0


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_a_still_is_enlarged(opened, width, scheme):
    visit = opened("04_attention", width)
    figure = visit.page.locator("#fig-att-qkv")
    small, dialog = figure.locator("svg").first, visit.page.locator(".zoom")
    before, at = repeated(visit), small.bounding_box()["width"]
    button = figure.get_by_role("button", name="Enlarge Fig. 4.")
    button.focus()
    visit.page.keyboard.press("Enter")
    large = dialog.locator("svg").first.bounding_box()
    assert dialog.is_visible()
    assert large["width"] > 1.2 * at
    assert dialog.get_attribute("aria-label").startswith("Fig. 4.")
    assert repeated(visit) == before
    assert visit.look() == []
    visit.theme(scheme)
    assert axe(visit) == []
    visit.page.keyboard.press("Escape")
    dialog.wait_for(state="hidden")
    focused = "document.activeElement.className"
    assert visit.page.evaluate(focused) == "zoom-in"
    small.click()  # the picture does what its button does
    assert dialog.is_visible()
    dialog.get_by_role("button", name="Close").click()
    dialog.wait_for(state="hidden")
    # What is alive has a still that nobody sees; on paper there is no button.
    assert visit.page.locator(".live-figure .zoom-in").count() == 0
    visit.page.emulate_media(media="print")
    assert not button.is_visible()


def test_other_links_have_none(page):
    """The control: only terms, citations and figures."""
    other = page.page.locator('article p a[href^="further/"]:visible').first
    point_at(page, other)
    page.pass_time(500)
    assert page.page.locator("#link-card").is_hidden()
