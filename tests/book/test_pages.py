"""Every built page, in Chromium, with the network blocked.

Each page is opened from a file, light, on a laptop; then the window becomes as
narrow as a phone, and the page dark, and axe-core looks at all of it; at last
its live figures come alive. What all pages of one kind share, such as their
colors and the bars at their sides, and what differs between a file and a
server, is seen on one page of each kind (``KINDS``), dark and light.
"""

import functools
import http.server
import re
import threading
from collections import Counter
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import picture_sizes
import pytest
from lxml import etree, html
from patience import PATIENCE

from coursekit_classroom.check import core
from coursekit_classroom.notebooks.install import published
from results import live

ROOT = Path(__file__).resolve().parents[2]
HTML = ROOT / "_build" / "html"
AXE = ROOT / "tests" / "vendor" / "axe" / "axe.min.js"
# The pages that redirect or list, and have no text of ours.
MADE_BY_SPHINX = {"index.html", "search.html", "genindex.html", "404.html"}
PAGES = sorted(str(p.relative_to(HTML)) for p in HTML.rglob("*.html"))
PAGES = [p for p in PAGES if "_static" not in p and p != "index.html"]


def each(pages):
    """A test for each page: all of one page on one worker, which parses it."""
    group = pytest.mark.xdist_group
    return pytest.mark.parametrize(
        "page", [pytest.param(page, marks=group(page)) for page in pages]
    )


FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # No name but this machine's own has an address.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]

# axe-core's findings that are the theme's and that we cannot mend: the rule,
# and the elements that may break it. Anything else fails.
ALLOWED = {
    # Icon buttons whose label is not the text that they hold in the markup
    # (a key to press, three hidden icons, a tooltip).
    "label-content-name-mismatch": (
        ".search-button__button, .theme-switch-button, .sd-stretched-link, "
        ".headerbtn, .dropdown-toggle, .copybtn"
    ),
    # The titles above the table of contents stand outside its <nav>: that
    # of the page's contents, and the book's, beside its sign.
    "region": ".sidebar-primary-item, .logo__title",
}
# One page of each kind: what begins them, their bars and their scripts.
KINDS = [
    *("book/index.html", "book/walk.html", "book/04_attention.html"),
    *("book/further/04_attention.html", "book/about/api_pretrained.html"),
    *("search.html", "genindex.html"),
]
# The rules of axe-core whose findings another theme or width can change. What
# a narrow window hides of the frame (region, bypass, page-has-heading-one) is
# the same for all pages of one kind.
LAYOUT_RULES = [
    *("color-contrast", "link-in-text-block", "scrollable-region-focusable"),
    "target-size",
]


def test_there_are_pages():
    assert PAGES, "no pages in _build/html: run `make book` first"


# -- what needs no browser ---------------------------------------------------
@functools.cache
def tree(page):
    """A page, parsed: lxml takes a tenth of Beautiful Soup's time."""
    return html.document_fromstring((HTML / page).read_text("utf8"))


def source(tag):
    """The markup of an element."""
    return etree.tostring(tag, encoding="unicode", with_tail=False)


def of_class(name):
    """The XPath condition that an element is of this class."""
    return f'contains(concat(" ", normalize-space(@class), " "), " {name} ")'


@functools.cache
def anchors(page):
    """The ids that a link may lead to: found as text, which is quicker."""
    text = (HTML / page).read_text("utf8")
    return {unescape(i) for i in re.findall(r'<[^<>]*?\sid="([^"]*)"', text)}


def broken_links(page):
    """Links of a page to files or anchors that are not there."""
    broken = []
    for tag in tree(page).iter("img", "a", "link", "script"):
        url = tag.get("href") or tag.get("src")
        if not url or urlsplit(url).scheme or url.startswith("//"):
            continue
        path, anchor = urldefrag(urljoin(f"/{page}", url))
        target = unquote(urlsplit(path).path).lstrip("/")
        if not (HTML / target).is_file():
            broken.append(url)
        elif anchor and target.endswith(".html"):
            broken += [url] * (unquote(anchor) not in anchors(target))
    return broken


def images_without_text(page):
    """Images with no alt text (``alt=""`` says: decoration).

    A figure in the page, which is never decoration, has a label.
    """
    nameless = r"\.(png|svg|jpe?g|gif|webp)$"
    drawn = [
        tag.get("id") or source(tag)[:60]
        for tag in tree(page).xpath(f"//span[{of_class('picture')}]")
        if not (label := tag.get("aria-label")) or re.search(nameless, label)
    ]
    return drawn + [
        tag.get("src")
        for tag in tree(page).iter("img")
        # MyST-NB's own: the name of the file in the build
        if (alt := tag.get("alt")) is None or re.search(nameless, alt)
    ]


def repeated_ids(page):
    """Ids that more than one element has; figures bring some along."""
    ids = Counter(tree(page).xpath("//@id"))
    return sorted(one for one, times in ids.items() if times > 1)


def lost(places):
    """Of ``04_attention#att-scale`` and the like, those that lead nowhere."""
    found = []
    for place in places:
        page, _, label = place.partition("#")
        name = f"book/{page}.html"
        known = anchors(name) if (HTML / name).is_file() else ()
        if re.sub(r"[^a-z0-9]+", "-", label.lower()) not in known:
            found.append(place)
    return found


def test_what_a_report_tells_to_read_is_there():
    places = {
        bug.read
        for chapter in core.chapters()
        for exercise in core.exercises(chapter).values()
        for bug in exercise.bugs.values()
    }
    assert len(places) > 100
    assert lost(sorted(places)) == []


def launched(page):
    """The notebooks that a page's launch buttons open."""
    found = []
    for href in tree(page).xpath("//a/@href"):
        url = unquote(href)
        if "colab.research.google.com" in url:
            found.append(url.split("/blob/notebooks/")[-1])
        elif "mybinder.org" in url:
            found.append(url.split("/notebooks?urlpath=lab/tree/")[-1])
    return found


def described(page):
    """What a page says of itself to those who have not seen it."""
    text = (HTML / page).read_text("utf8")
    tag = re.search(r'<meta name="description" content="([^"]*)"', text)
    return unescape(tag[1]) if tag else ""


def test_every_page_has_a_description_of_its_own():
    ours = [p for p in PAGES if p not in MADE_BY_SPHINX]
    said = {
        page: described(page) for page in ours if "py-modindex" not in page
    }
    short = [page for page, text in said.items() if not 30 < len(text) <= 200]
    assert short == []
    assert len(set(said.values())) == len(said)
    assert described("search.html") == ""  # the control


def test_every_title_names_the_book_once():
    ours = [p for p in PAGES if p not in MADE_BY_SPHINX]
    texts = [(HTML / page).read_text("utf8") for page in ours]
    titles = [
        re.search("<title>(.*?)</title>", t, re.DOTALL)[1] for t in texts
    ]
    assert all(t.count("The Executable Transformer") == 1 for t in titles)
    assert len(set(titles)) == len(titles)


def stray_dollars(page):
    """Text outside of code and formulas in which a ``$`` is left."""
    inside = "self::pre or self::code or self::script or self::style"
    inside += f" or self::svg or {of_class('math')}"
    found = tree(page).xpath(
        f'//text()[contains(., "$")][not(ancestor::*[{inside}])]'
        "[ancestor::article or not(//article)]"
    )
    return [text.strip() for text in found]


@each(PAGES)
def test_the_markup_of_a_page(page):
    """Its links and images, its figures, and what is left unrendered."""
    assert broken_links(page) == []
    assert images_without_text(page) == []
    # What figures refer to is there, once.
    drawn = tree(page).xpath(f"//*[{of_class('picture')}]")
    own = {name for figure in drawn for name in figure.xpath(".//*/@id")}
    assert not own & set(repeated_ids(page))
    text = "".join(map(source, drawn))
    assert set(re.findall(r"(?:url\(|href=\")#([\w-]+)", text)) <= own
    # As an image, a figure of a cell would not know of the page's colors.
    images = [tag.get("src", "") for tag in tree(page).iter("img")]
    assert [i for i in images if re.search(r"_images/\w{64}\.", i)] == []
    # The deployment copies _build/readers to the branch ``notebooks``;
    # without an address there is no such branch, and no button.
    notebook = page.removesuffix(".html") + ".ipynb"
    exported = (ROOT / "_build" / "readers" / notebook).is_file()
    opens = exported and bool(published(ROOT).repository)
    assert launched(page) == [notebook] * 2 * opens
    # Output in Markdown is rendered without tables, unless it is asked.
    assert re.findall("<p>\\|[^<]{20}", (HTML / page).read_text("utf8")) == []
    if page not in MADE_BY_SPHINX:
        assert stray_dollars(page) == []


PLANTED = """<article id="here"><p>so $$x$$ <code>$</code></p>
<span class="math">$y$</span><img src="a.png" alt="plot.png"><img src="b.png">
<span class="picture" id="p" aria-label=""><i id="a"></i><i id="a"></i></span>
<a href="#here">ok</a><a href="#gone">x</a><a href="none.html">x</a></article>
"""


def test_the_checks_without_browser_find_what_is_planted(
    tmp_path, monkeypatch
):
    (tmp_path / "planted.html").write_text(PLANTED)
    monkeypatch.setitem(globals(), "HTML", tmp_path)
    broken = broken_links("planted.html")
    assert set(broken) == {"a.png", "b.png", "#gone", "none.html"}
    assert images_without_text("planted.html") == ["p", "a.png", "b.png"]
    assert repeated_ids("planted.html") == ["a"]
    assert stray_dollars("planted.html") == ["so $$x$$"]
    (tmp_path / "book").mkdir()
    (tmp_path / "book/a.html").write_text('<li id="old-one">')
    places = ["a#old_one", "a#gone", "b#old_one"]
    assert lost(places) == ["a#gone", "b#old_one"]


# -- in the browser ----------------------------------------------------------
class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serve files and say nothing."""

    def log_message(self, *args):
        """Nothing."""


@pytest.fixture(scope="session")
def base():
    """The book, served on a free port of this machine."""
    handler = functools.partial(Quiet, directory=str(HTML))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


def running(missing):
    """Yield a browser; ``conftest.py`` makes a fixture of it for all files."""
    program = live.program()
    if program is None:
        missing("Chromium", "sudo apt-get install chromium")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=1000 * PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=FLAGS
        )
        yield browser
        browser.close()


IDLE = []  # tabs that a visit has left


class Visit:
    """A page in a tab, and everything that went wrong on it.

    To open a tab costs a browser more than to show a page, so the next visit
    gets a tab that was left, with nothing stored. With ``own`` it has a tab
    in a context with these options, which nobody else gets.
    """

    def __init__(self, browser, base, width, scheme, own=None):
        self.base, self.wrong, self.asked = base, [], []
        self.own = own is not None
        self.page = (
            self.new(browser, own or {})
            if self.own
            else (IDLE.pop() if IDLE else self.new(browser, {}))
        )
        self.context = self.page.context
        self.page.set_viewport_size({"width": width, "height": 800})
        self.page.emulate_media(
            color_scheme=scheme, media="null", reduced_motion="null"
        )
        self.page.set_default_timeout(1000 * PATIENCE)
        self.listens = {
            "console": self.console,
            "pageerror": self.thrown,
            "request": self.request,
            "requestfailed": self.failed,
            "response": self.answered,
        }
        for event, listener in self.listens.items():
            self.page.on(event, listener)

    @staticmethod
    def new(browser, options):
        """A tab in a context of its own."""
        context = browser.new_context(service_workers="block", **options)
        # axe would measure a color half way through a change of theme.
        context.add_init_script(STILL)
        return context.new_page()

    def thrown(self, error):
        """An error that no script has caught."""
        self.wrong.append(f"throws {error}")

    def request(self, request):
        """Nothing may be asked for but the book itself."""
        self.asked.append(request.url)
        if not request.url.startswith((self.base, "data:", "blob:")):
            self.wrong.append(f"asks the network for {request.url}")

    def console(self, message):
        """Errors and warnings of the console."""
        if message.type == "error":
            self.wrong.append(f"console: {message.text}")

    def failed(self, request):
        """A request that got no answer."""
        self.wrong.append(f"no answer: {request.url}")

    def answered(self, response):
        """An answer that is an error."""
        if response.status >= 400:
            self.wrong.append(f"{response.status}: {response.url}")

    def open(self, url):
        """Load a page and wait for its formulas."""
        self.page.goto(url, wait_until="load")
        self.page.evaluate(
            "() => window.MathJax?.startup?.promise ?? Promise.resolve()"
        )
        return self

    def theme(self, name):
        """Turn the page light or dark, as its button does."""
        self.page.evaluate(
            "name => {document.documentElement.dataset.mode = name;"
            "document.documentElement.dataset.theme = name;}",
            name,
        )

    def resize(self, width):
        """Make the window narrower, or wider."""
        self.page.set_viewport_size({"width": width, "height": 800})
        # The theme waits 0.3 s before it lets the keyboard reach what has
        # become too wide.
        self.pass_time(400)

    def pass_time(self, ms=0):
        """Wait until what the page does by now, or in so many ms, is done.

        Events and observers come before a frame, timers in their order: how
        fast the machine is does not matter.
        """
        self.page.evaluate(PASS_TIME, ms)

    def load_all(self):
        """Open what is closed; the paths of all that the page has loaded."""
        self.page.evaluate(OPEN_ALL)
        self.page.wait_for_function(
            "() => [...document.images].every(image => image.complete)"
        )
        return {
            unquote(url.removeprefix(self.base).split("?")[0].split("#")[0])
            for url in self.asked
            if url.startswith(self.base)
        }

    def look(self):
        """What can be seen to be wrong on the page as it is now."""
        return self.wrong + self.page.evaluate(LOOK)

    def close(self):
        """Leave nothing of this page to the next."""
        for event, listener in self.listens.items():
            self.page.remove_listener(event, listener)
        if self.own or self.page.is_closed():
            self.context.close()
            return
        for page in self.context.pages:
            if page != self.page:
                page.close()
        self.page.unroute_all()
        # A session is the tab's: Chromium 150 leaves it when an origin's
        # storage is cleared. (A page without an origin has none.)
        self.page.evaluate(
            "() => { try { sessionStorage.clear() } catch { /* none */ } }"
        )
        self.page.goto("about:blank")
        self.page.mouse.move(-1, -1)
        self.context.clear_cookies()
        session = self.context.new_cdp_session(self.page)
        asked = [url for url in self.asked if url[:4] in ("http", "file")]
        for origin in {urljoin(url, "/") for url in asked}:
            session.send(
                "Storage.clearDataForOrigin",
                {"origin": origin, "storageTypes": "all"},
            )
        session.detach()
        IDLE.append(self.page)


PASS_TIME = """(ms) => new Promise((done) => requestAnimationFrame(
  () => requestAnimationFrame(() => setTimeout(done, ms))))"""

STILL = """addEventListener("DOMContentLoaded", () => {
  const style = document.createElement("style");
  style.textContent =
    "* {transition: none !important; animation: none !important}";
  document.head.append(style);
});"""

OPEN_ALL = """() => {
  for (const d of document.querySelectorAll("details")) d.open = true;
  for (const i of document.images) i.loading = "eager";
  for (const g of document.querySelectorAll(".predict-closed"))
    g.classList.remove("predict-closed");
}"""

LOOK = """() => {
  const wrong = [];
  const root = document.documentElement;
  if (root.scrollWidth > window.innerWidth + 1) {
    const guilty = [...document.querySelectorAll("main *")].filter(e => {
      if (e.getBoundingClientRect().right <= window.innerWidth + 1)
        return false;
      for (let p = e.parentElement; p && p !== root; p = p.parentElement)
        if (getComputedStyle(p).overflowX !== "visible") return false;
      return true;
    }).slice(0, 3).map(e => e.outerHTML.slice(0, 100));
    wrong.push(`overflows: ${root.scrollWidth} > ${window.innerWidth} px: ` +
               guilty.join(" | "));
  }
  for (const e of document.querySelectorAll("mjx-merror, .MathJax_Error"))
    wrong.push("formula: " + (e.title || e.textContent));
  const raw = [...document.querySelectorAll(".math")].filter(
    e => !e.querySelector("mjx-container"));
  if (raw.length) wrong.push(`not typeset: ${raw[0].textContent}`);
  for (const e of document.querySelectorAll("mjx-container"))
    if (!e.querySelector("mjx-assistive-mml math"))
      wrong.push("formula without its MathML: " + e.textContent);
  for (const e of document.images)
    if (e.complete && e.naturalWidth === 0 && e.offsetParent !== null)
      wrong.push("image not shown: " + e.src);
  return wrong;
}"""

# Most of axe's time goes into contrast, and much of a page looks alike: of
# each look, axe measures the first. Alike are two elements with the same
# attributes and colors in elements that are alike, up to the root. The first
# is one that axe judges: on the screen, not scrolled away, with two letters.
# Where a text is one character, or punctuation, axe never finds anything.
# Plain are the pieces of code in which only contrast can be wrong.
MARK_ALIKE = """() => {
  const OWN = ["id", "href", "title", "aria-label", "data-alike"];
  const seen = {opacityProperty: true, visibilityProperty: true};
  const looks = new Map(), first = new Set(), found = [];
  const mark = (e, above, ground, code) => {
    if (e.matches("svg, mjx-container")) return false;
    const s = getComputedStyle(e);
    const key = [
      above, e.tagName, s.color, s.backgroundColor, s.backgroundImage,
      s.opacity, s.fontSize, s.fontWeight,
      ...[...e.attributes].filter(a => !OWN.includes(a.name)).map(
        a => a.name + a.value),
    ].join(";");
    if (!looks.has(key)) looks.set(key, looks.size);
    const look = looks.get(key);
    const text = [...e.childNodes].map(
      n => n.nodeType === 3 ? n.data : " ").join("").trim();
    const short = text.length < 2 || !/[^\\s!-/:-@[-`{-~]/.test(text);
    const alike = first.has(look)
      || short && !e.matches("input, select, textarea");
    const scrolls = e.clientWidth && (e.scrollWidth > e.clientWidth
                                   || e.scrollHeight > e.clientHeight);
    const box = !alike || scrolls ? e.getBoundingClientRect() : null;
    if (!alike && /\\w\\w/.test(text) && e.checkVisibility(seen) && box.width
        && box.left >= ground.left && box.right <= ground.right
        && box.top >= ground.top && box.bottom <= ground.bottom)
      first.add(look);
    const bare = code && [...e.attributes].every(
      a => ["class", "data-alike"].includes(a.name));
    let plain = alike && bare;
    for (const child of e.children)
      plain = mark(child, look, scrolls ? box : ground,
                   bare || e.matches("pre, .sig")) && plain;
    if (alike) found.push([e, plain ? "plain" : ""]);
    return plain;
  };
  mark(document.body, "", {left: 0, top: 0, right: 1e9, bottom: 1e9}, false);
  // All at the end: a change between two looks would cost a layout.
  for (const e of document.querySelectorAll("[data-alike]"))
    e.removeAttribute("data-alike");
  for (const [e, kind] of found) e.dataset.alike = kind;
  const selector = ":not([data-alike])";
  axe.configure({rules: [
    {id: "color-contrast", selector},
    {id: "color-contrast-enhanced", selector}]});
}"""

AXE_RUN = """async ([allowed, only, every]) => {
  // It would fetch the styles once more, which a browser allows no file.
  const preload = location.protocol !== "file:";
  const options = {resultTypes: ["violations"], elementRef: true, preload};
  if (only) options.runOnly = only;
  // What a picture or a formula consists of is no element of its own, and
  // axe cannot tell the contrast in it; but it would look at every stroke.
  // Of plain pieces of code it sees the text.
  const unseen = new Set(every ? [] : document.querySelectorAll(
    ".picture svg > *, [data-alike=plain], " +
    "mjx-math[aria-hidden]:not(:has([href], [id], [tabindex])) > *"));
  const around = new Set([...unseen].map(e => e.parentNode));
  const texts = n => n.nodeType === 3 ? n : [...n.childNodes].flatMap(texts);
  for (const e of around) {
    const childNodes = [...e.childNodes].flatMap(
      n => !unseen.has(n) ? n : n.dataset.alike ? texts(n) : []);
    const children = childNodes.filter(n => n.nodeType === 1);
    for (const [name, value] of Object.entries({childNodes, children}))
      Object.defineProperty(e, name, {value, configurable: true});
  }
  document.createTreeWalker = (root, what) =>
    Document.prototype.createTreeWalker.call(document, root, what, e =>
      unseen.has(e) ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT);
  const found = await axe.run(document, options);
  delete document.createTreeWalker;
  for (const e of around) {
    delete e.childNodes;
    delete e.children;
  }
  const wrong = [];
  for (const {id, nodes} of found.violations)
    for (const node of nodes)
      if (!node.element?.matches(allowed[id] ?? "not-allowed"))
        wrong.push(`${id}: ${node.html.slice(0, 160)}: ` +
                   node.failureSummary);
  return wrong;
}"""


def axe(visit, only=None, every=False):
    """axe-core's findings that are not allowed above.

    With ``every``, it looks at every element and measures its contrast.
    """
    visit.pass_time()
    if not visit.page.evaluate("() => 'axe' in window"):
        visit.page.add_script_tag(content=AXE.read_text("utf8"))
    if not every:
        visit.page.evaluate(MARK_ALIKE)
    return visit.page.evaluate(AXE_RUN, [ALLOWED, only, every])


def live_figures(page):
    """How many the source of a page has; the back matter quotes some."""
    source = (ROOT / page).with_suffix(".md")
    if "/about/" in page or not source.exists():
        return 0
    return source.read_text("utf8").count("\n```{live} ")


# A figure near the top has begun.
WAITING = """figure => Boolean(figure.dataset.state)
  || figure.querySelector(".picture").checkVisibility()"""


def bring_alive(visit, page):
    """Come near each live figure; press the button that one waits for."""
    from playwright.sync_api import expect

    figures = visit.page.locator(".live-figure").all()
    assert len(figures) == live_figures(page)
    for element in figures:
        still = element.locator(".picture").first
        assert element.evaluate(WAITING)
        element.scroll_into_view_if_needed()
        if element.evaluate("figure => figure.localName") == "live-train":
            element.get_by_role("button", name="Train").click()
        still.wait_for(state="hidden")
        expect(element).to_have_attribute("data-state", "ready")


LOADED = {}  # what pages have loaded: test_weight.py weighs it
MEASURED = {}  # of their pictures: test_pictures.py has the budgets


# Of the pages that are docstrings, one is in KINDS.
@each([page for page in PAGES if "/api_" not in page])
def test_page_light_on_a_laptop_and_dark_on_a_phone(browser, page):
    folder = HTML.as_uri() + "/"
    visit = Visit(browser, folder, 1280, "light").open(folder + page)
    try:
        visit.theme("light")
        assert visit.look() == []
        drawn = re.fullmatch(picture_sizes.PAGES + r"\.html", page)
        screens = drawn and picture_sizes.screens(visit.page)
        visit.resize(360)
        visit.theme("dark")
        assert visit.look() == []
        assert axe(visit) == []
        if drawn:
            MEASURED[page] = screens, picture_sizes.labels(visit.page)
        LOADED[page] = visit.load_all()
        if live_figures(page):
            visit.resize(360)
            bring_alive(visit, page)
            assert visit.look() == []
    finally:
        visit.close()


@pytest.mark.parametrize("page", KINDS)
def test_page_by_http_dark_on_a_phone_and_light_on_a_laptop(
    browser, base, page
):
    visit = Visit(browser, base, 360, "dark").open(base + page)
    try:
        visit.theme("dark")
        assert visit.look() == []
        assert axe(visit) == []
        bring_alive(visit, page)
        visit.resize(1280)
        visit.theme("light")
        assert visit.look() == []
        assert axe(visit, LAYOUT_RULES) == []
    finally:
        visit.close()


@pytest.mark.parametrize("scheme", ["http", "file"])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("causal mask", "5 Masks"),
        ("perplexity", "10 Loss"),
        ("zyzzyva", "did not match any documents"),
    ],
)
def test_search(browser, base, scheme, words, said):
    start = base if scheme == "http" else HTML.as_uri() + "/"
    visit = Visit(browser, start, 1280, "light")
    try:
        visit.open(f"{start}search.html?q={words.replace(' ', '+')}")
        found = visit.page.locator("#search-results")
        found.get_by_text(said).first.wait_for()
        if words == "zyzzyva":
            assert found.locator("li a").count() == 0
        assert visit.look() == []
    finally:
        visit.close()


WRONG = """() => {
  const all = [...document.querySelectorAll("pre .n")].filter(
    e => /\\w\\w/.test(e.textContent) && e.checkVisibility());
  const at = n => all[Math.floor(n * all.length)];
  at(0.1).style.color = "#ccc";  // one token of many
  at(0.5).style.backgroundColor = "#444";
  at(0.3).closest("pre").style.backgroundColor = "#333";  // all of a block
  at(0.7).closest("pre").parentElement.style.opacity = 0.4;
  const own = document.createElement("style");  // one paragraph of many
  own.textContent = "section > p:nth-of-type(2) {color: #aaa}";
  document.head.append(own);
  all[9].setAttribute("aria-sold", "true");
  for (const e of document.querySelectorAll("pre"))
    e.removeAttribute("tabindex");  // what scrolls is out of reach
}"""


@pytest.mark.parametrize(
    ("page", "rules", "plant"),
    [
        (
            "04_attention",
            ["color-contrast", "aria-valid-attr", *LAYOUT_RULES[2:]],
            WRONG,
        ),
        # The stricter rule finds much that the usual one allows.
        ("primer", ["color-contrast-enhanced"], "() => {}"),
    ],
)
def test_what_is_wrong_is_found_in_what_looks_alike(
    browser, page, rules, plant
):
    """What axe finds in what it is left to see is all that is to be found."""
    folder = HTML.as_uri() + "/"
    visit = Visit(browser, folder, 1280, "light")
    visit.open(f"{folder}book/{page}.html").theme("light")
    visit.resize(360)
    visit.page.evaluate(plant)

    def found(**options):
        """Of contrast, colors and sizes; of other rules, where it is."""
        said = [
            re.sub(r' data-alike="\w*"', "", one)
            for one in axe(visit, rules, **options)
        ]
        colors = re.compile(r"foreground color: .*?\)")
        tag = re.compile(r".*?: <.*?>")
        kinds = {(colors.search(one) or tag.match(one))[0] for one in said}
        return kinds, len(said)

    every, most = found(every=True)
    few, fewer = found()
    visit.close()
    assert few == every
    assert len(every) > 4
    assert fewer < most  # the control: it left some out


KEPT = """() => [
  localStorage.a ?? "", sessionStorage.b ?? "", document.cookie,
  matchMedia("print").matches,
  [...document.querySelectorAll(":hover")].map(e => e.className).join(),
]"""


@pytest.mark.parametrize("scheme", ["http", "file"])
def test_a_tab_that_was_left_keeps_nothing(browser, base, scheme):
    start = base if scheme == "http" else HTML.as_uri() + "/"
    new = Visit(browser, start, 1280, "dark", own={})
    new.open(f"{start}404.html")
    untouched = new.page.evaluate(KEPT)
    new.close()
    first = Visit(browser, start, 360, "light").open(f"{start}404.html")
    first.page.evaluate(
        "localStorage.a = sessionStorage.b = 1;"
        "if (location.protocol == 'http:') document.cookie = 'c=1';"
        "console.error('planted')"
    )
    first.page.route("**", lambda route: route.abort())
    first.page.emulate_media(media="print")
    first.page.mouse.move(100, 300)
    kept = first.page.evaluate(KEPT)
    *planted, hovered = kept
    assert planted == ["1", "1", "c=1" if scheme == "http" else "", True]
    assert hovered != untouched[-1]
    first.close()
    second = Visit(browser, start, 1280, "dark").open(f"{start}404.html")
    assert second.page == first.page
    *left, under_pointer = second.page.evaluate(KEPT)
    assert left == untouched[:4] == ["", "", "", False]
    assert under_pointer != hovered  # a corner, or nothing before a frame
    assert second.page.evaluate("innerWidth") == 1280
    assert second.page.evaluate(
        "matchMedia('(prefers-color-scheme: dark)').matches"
    )
    # Scripts that a page asks for late may have got no answer, too.
    assert sum("planted" in one for one in first.wrong) == 1
    assert second.wrong == []
    second.close()


BAD = """<!doctype html><html lang="en"><title>t</title><main>
<div style="width: 2000px">wide</div><img src="none.png">
<span class="math">x</span>
<script src="https://example.org/a.js"></script>
<script>throw Error("planted")</script></main></html>"""


def test_a_bad_page_is_found(browser, tmp_path):
    (tmp_path / "bad.html").write_text(BAD)
    folder = tmp_path.as_uri() + "/"
    visit = Visit(browser, folder, 360, "light").open(folder + "bad.html")
    found = " ".join(visit.look())
    by_axe = axe(visit)
    visit.close()
    for sign in ("overflows", "asks the network", "planted", "not typeset"):
        assert sign in found
    assert "no answer" in found
    assert any(finding.startswith("image-alt") for finding in by_axe)
