"""Live figures on a built page: each is driven, and each may fail.

A small book with one figure of each kind is built; a reader with a keyboard,
with a phone, without JavaScript and without the models works through it in
Chromium, by http and from a file, where nothing may ask the network.
"""

import functools
import http.server
import re
import threading
from zipfile import ZipFile

import pytest
import test_book
import test_pages
import torch
from patience import comes
from test_pages import Visit, axe

import coursekit
from coursekit.interpret import watch
from coursekit.probe import reach
from coursekit.saved_models import find_model, save_model
from coursekit_classroom import lesson
from coursekit_classroom.edits import EDITS
from coursekit_classroom.figures.hero import others_of
from coursekit_classroom.live import probe

pytestmark = pytest.mark.xdist_group("live figures")

# Each figure's directive, and what its sentence begins with.
HERO = "The dog chased the cat because it was hungry. So the"
FIGURES = {
    "hero": (
        f":model: stories\n:text: {HERO}\n:layer: 1\n:head: 3\n:seed: 1",
        "Of ",
    ),
    "attention": (
        ":model: captions\n:text: A tired dog sleeps, because it is hot.",
        "Block 1, head 1: the query “.”",
    ),
    "scores": (
        ":model: captions\n:text: A dog sleeps\n:layer: 1"
        "\n:examples: Two cats sit | A very long text " + "and more " * 9,
        "The query “␣sleeps” gives",
    ),
    "next-token": (
        ":model: captions\n:text: Two old sailors",
        "The likeliest next token is",
    ),
    "beam": (
        ":model: captions\n:text: An old sailor\n:beams: 3\n:steps: 4",
        "Best of 3 beams after 4 steps",
    ),
    "translator": (
        ":model: translator-de-en\n:text: Ein Hund schläft.",
        "“A” (row 1 of",
    ),
    "positions": (":query: 12\n:key: 7", "Query at 12, key at 7"),
    "bpe": (
        ":model: captions\n:text: streetlights\n:step: 2",
        "Merge 2 of",
    ),
    "checkpoint": ("", ""),
    "temperature": (
        f":model: stories\n:text: {HERO}\n:temperature: 0.5",
        "At temperature 0.50, “␣dog” gets 65%",
    ),
    "calculator": (":preset: GPT-2 small", "124 million parameters and 285"),
    "depth": ("", "After 12 blocks an entry has size 4.8"),
    "probe": (":program: no_mask", "Token 5, “a”, becomes “b”, and the"),
    "walk": (
        ":model: stories\n:text: The dog chased the cat.\n:block: 3",
        "The model never sees a letter. It gets the ids of 6 tokens",
    ),
    "train": (":text: stories", "A recorded run is shown."),
}
STAYS = ("train",)  # its picture goes when a run begins
# Those of which paper shows the picture, whatever was done to them.
ON_PAPER = ("hero", "temperature", "calculator", "depth", "probe", "train")
CELL = """```{{live}} {kind}
{options}
```

```{{code-cell}} ipython3
---
tags: [remove-input]
mystnb:
  image:
    alt: STILL {kind}.
  figure:
    name: fig-{kind}
    caption: CAPTION of {kind}.
---
draw("{kind}")
```
"""
LONG = "\n\n".join(f"Paragraph {n}." for n in range(60))
PAGE = (
    test_book.TINY.split("# Tiny")[0]
    + """# Tiny

```{code-cell} ipython3
import torch
from coursekit_classroom import figures

torch.set_num_threads(1)


def draw(name):
    figure, (ax,) = figures.new_figure(height=1.0)
    ax.set_title(name)
```

"""
    + LONG
    + "\n\n"
    + "\n\n".join(
        CELL.format(kind=kind, options=options)
        for kind, (options, _) in FIGURES.items()
    )
    + "\n\nThe end.\n"
)
RENEW = "(element, markup) => { element.outerHTML = markup }"
STILL = ".picture"  # the figure that is there before
READY = """kind => {
  const state = document.querySelector("live-" + kind).dataset.state;
  return state === "ready" || state === "failed";
}"""


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    book = test_book.Book(tmp_path_factory.mktemp("live"))
    book.write("book/tiny.md", PAGE)
    return book.build()


@pytest.fixture(scope="module")
def served(book):
    """The small book by http."""
    folder = str(book.root / "_build/html")
    handler = functools.partial(test_pages.Quiet, directory=folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


class Reader(Visit):
    """A visit to the page with the figures."""

    fresh = None  # the markup of figures that are to begin again

    def figure(self, kind):
        """The element of a figure, once it is alive or has failed."""
        element = self.page.locator(f"live-{kind}").first
        if self.fresh and kind in self.fresh:
            element.evaluate(RENEW, self.fresh.pop(kind))
        element.scroll_into_view_if_needed()
        self.page.wait_for_function(READY, arg=kind)
        # A font that comes later would move what was measured.
        self.page.evaluate("() => document.fonts.ready.then(() => true)")
        return element

    def sentence(self, kind):
        """What the figure says of itself."""
        return self.page.locator(f"live-{kind} .live-sentence").inner_text()

    def says(self, kind, words, *, inside=False):
        """Wait until its sentence begins with (or has in it) these words."""
        from playwright.sync_api import expect

        said = re.compile(("" if inside else "^") + re.escape(words))
        sentence = self.page.locator(f"live-{kind} .live-sentence")
        expect(sentence).to_have_text(said, use_inner_text=True)

    def spoken(self, kind):
        """What a screen reader is told, after a pause."""
        self.pass_time(600)
        return self.page.locator(f"live-{kind} .live-spoken").text_content()


@pytest.fixture
def visit(browser, book):
    """Open the page as a reader."""
    visits = []

    def open_page(
        width=1280, scheme="light", base=None, broken=None, own=None
    ):
        folder = base or (book.root / "_build/html").as_uri() + "/"
        reader = Reader(browser, folder, width, scheme, own)
        if broken is not None:
            reader.page.route(re.compile("_static/live/"), broken)
        visits.append(reader)
        return reader.open(f"{folder}book/tiny.html")

    yield open_page
    for each in visits:
        each.close()


@pytest.fixture(scope="module")
def opened(browser, book):
    """The page as a file on a laptop, for all tests that may share it."""
    folder = (book.root / "_build/html").as_uri() + "/"
    reader = Reader(browser, folder, 1280, "light")
    yield reader.open(f"{folder}book/tiny.html")
    reader.close()


@pytest.fixture
def reader(opened, book):
    """The shared page; a figure begins again, what it has loaded stays."""
    opened.page.set_viewport_size({"width": 1280, "height": 800})
    opened.page.emulate_media(media="null", reduced_motion="null")
    opened.theme("light")
    opened.page.mouse.move(-1, -1)
    figures = re.findall(r"(<live-([\w-]+).*?</live-\2>)", book.page(), re.S)
    opened.fresh = {kind: markup for markup, kind in figures}
    assert opened.fresh.keys() == FIGURES.keys()
    yield opened
    assert opened.wrong == []


def tokens_in(text):
    """How many tokens the writer of captions sees."""
    return len(coursekit.load("captions").tokenizer.encode(text))


# -- alive -------------------------------------------------------------------
@pytest.mark.parametrize("scheme", ["http", "file"])
def test_every_figure_comes_alive(visit, served, scheme):
    """A model is fetched once, when the reader comes near."""
    reader = visit(base=served if scheme == "http" else None)
    reader.pass_time()
    assert not [url for url in reader.asked if "_static/live/" in url]
    assert reader.page.locator(f"{STILL}:visible").count() >= len(FIGURES)
    for kind, (_, begins) in FIGURES.items():
        element = reader.figure(kind)
        assert element.get_attribute("data-state") == "ready", kind
        reader.says(kind, begins)
        assert element.locator(STILL).is_visible() == (kind in STAYS)
        assert f"CAPTION of {kind}" in element.inner_text()
    models = [url for url in reader.asked if "_static/live/" in url]
    names = sorted(re.sub(r".*/(.*)-\w{8}\.js", r"\1", m) for m in models)
    assert names == [
        *("captions", "captions-tokenizer", "stories", "translator-de-en")
    ]
    assert reader.look() == []


def hero_of(reader):
    """The hero, its text box, and whether it computes what PyTorch does."""
    element = reader.figure("hero")
    box = element.locator("input")
    model, tokenizer = coursekit.load("stories")

    def off():
        """The largest difference from PyTorch's probabilities."""
        shown = torch.tensor(element.evaluate("hero => [...hero.shares]"))
        ids = torch.tensor([tokenizer.encode(box.input_value())])
        with torch.no_grad():
            wanted = model(ids)[0, -1].softmax(-1)
        return float((shown - wanted).abs().max())

    return element, box, off


def begin(element):
    """Swap a word, and back: what else there is to press appears."""
    for _ in range(2):
        element.locator(".hero-swap").click()


def written(element):
    """How many tokens the hero has read."""
    return element.evaluate("hero => hero.ids.length")


def test_the_hero_begins_with_its_sentence_and_a_word_is_swapped(reader):
    element, box, off = hero_of(reader)
    arcs = element.get_by_role("img", name="From the last token")
    bars = element.locator(".hero-bars .hero-share")
    assert box.input_value() == HERO
    reader.says("hero", "“dog” gets", inside=True)
    assert "looks at “dog”" in arcs.get_attribute("aria-label")
    assert off() < 1e-4
    assert element.locator(".hero-track:not(.hero-new)").count() == 1  # others
    shown, width = bars.all_inner_texts(), element.locator(".hero-arc").first
    before = width.get_attribute("d")
    element.get_by_role("button", name="Swap “hungry” for “scared”").click()
    assert box.input_value() == HERO.replace("hungry", "scared")
    reader.says("hero", "With “scared” instead of “hun")
    assert "looks at “cat”" in arcs.get_attribute("aria-label")
    assert width.get_attribute("d") != before
    assert bars.all_inner_texts() != shown
    assert element.locator(".hero-new").count() == 0  # outlines of all five
    names = element.locator(".hero-bars .hero-name").all_inner_texts()
    assert names[0] == "dog"  # what came first keeps its row
    assert "cat" in names
    assert off() < 1e-4
    assert reader.spoken("hero") == reader.sentence("hero")
    # Control: another text's numbers are not these.
    box.evaluate("(box, text) => {box.value = text}", HERO)
    assert off() > 0.1


def test_the_hero_begins_with_one_message_and_two_controls(reader):
    """The rest waits for the first press, out of the keyboard's way, too."""
    element, box, _ = hero_of(reader)
    room = element.bounding_box()["height"]
    lead = element.locator(".hero-lead")
    for begun in (False, True):
        shown = element.locator(":is(button, input, select, a[href]):visible")
        assert lead.is_visible() == (not begun)
        assert box.is_visible() == begun
        assert element.locator(".hero-second").count() == begun
        assert (shown.count() > 5) if begun else (shown.count() == 2)
        assert element.bounding_box()["height"] == room  # nothing moves
        if not begun:
            element.locator(".hero-swap").click()
            reader.says("hero", "Now try your own text.", inside=True)
    element.locator(".hero-swap").click()
    assert "Now try" not in reader.sentence("hero")  # said once


TWICE = """hero => {
  const draw = hero.querySelector(".hero-draw");
  draw.click();
  draw.click();
  return hero.ids.length;
}"""


def landed(reader):
    """Wait until no token falls or flies."""
    reader.page.wait_for_function(
        "!document.querySelector('live-hero').flight"
    )


def test_the_hero_draws(reader):
    element, box, off = hero_of(reader)
    n = written(element)
    draw = element.get_by_role("button", name="Draw")
    for more in (1, 2, 3):
        draw.click()
        reader.page.wait_for_function(
            "n => document.querySelector('live-hero').ids.length === n",
            arg=n + more,
        )
        reader.says("hero", "Drawn: “")
    assert box.input_value().startswith(HERO + " ")
    assert off() < 1e-4
    # A second press does not wait for the first one's flight.
    assert element.evaluate(TWICE) == n + 4
    element.get_by_role("group", name="Prompts").get_by_role(
        "button"
    ).first.click()  # nor does another text get what is still in the air
    landed(reader)
    assert box.input_value() == HERO
    assert written(element) == n
    draw.hover()
    reader.page.mouse.down()
    reader.page.wait_for_function(
        "n => document.querySelector('live-hero').ids.length > n", arg=n + 2
    )
    reader.page.mouse.up()
    landed(reader)
    held = written(element)
    reader.pass_time(500)
    assert written(element) == held


def test_the_hero_by_keyboard_and_without_motion(reader):
    reader.page.emulate_media(reduced_motion="reduce")
    element, box, _ = hero_of(reader)
    keys = reader.page.keyboard
    focused = "document.activeElement.textContent"
    n = written(element)
    element.locator(".hero-swap").focus()
    keys.press("Tab")
    assert reader.page.evaluate(focused) == "Draw"
    keys.press("Enter")  # nothing flies: it is there at once
    assert written(element) == n + 1
    box.focus()
    keys.press("Enter")
    assert written(element) == n + 2
    moving = "hero => hero.getAnimations({subtree: true}).length"
    assert element.evaluate(moving) == 0
    keys.press("Tab")
    first = reader.page.evaluate(focused)
    assert first == "Who was hungry?"
    keys.press("ArrowRight")
    assert reader.page.evaluate(focused) != first
    keys.press("ArrowLeft")
    keys.press("Enter")
    assert box.input_value() == HERO
    for _ in range(4):  # the other prompts, the words, then the swap
        keys.press("Tab")
    assert reader.page.evaluate(focused) == "⇄ scared"
    keys.press("Enter")
    assert "scared" in box.input_value()
    assert reader.page.evaluate(focused) == "⇄ hungry"
    keys.press("Tab")
    assert reader.page.evaluate(focused) == "Draw"
    keys.press("Enter")
    assert written(element) == n + 1
    keys.press("Tab")
    assert reader.page.evaluate(focused) == "Go inside"
    href = element.get_by_role("link").get_attribute("href")
    assert href.startswith(("#", "walk.html"))


def test_a_second_head_looks_at_the_cause(reader):
    """Of an earlier block, the one with most weight on the word to swap."""
    element, box, _ = hero_of(reader)
    model, tokenizer = coursekit.load("stories")
    arcs = element.get_by_role("img", name="From the last token")
    begin(element)
    for word in ("hungry", "scared"):
        ids = tokenizer.encode(box.input_value())
        at = ids.index(*tokenizer.encode(f" {word}"))
        weights = watch(model, torch.tensor([ids])).weights[0, 0, :, -1]
        head = int(weights[:, at].argmax())
        said = f" Block 1, head {head + 1} looks at “{word}” "
        assert said in arcs.get_attribute("aria-label")
        share = f"{weights[head, at]:.0%}"
        assert said + share in arcs.get_attribute("aria-label")
        assert element.locator(".hero-second").count() == 1
        element.locator(".hero-swap").click()
    box.fill("Anna")  # nothing to swap: one head alone
    assert element.locator(".hero-second").count() == 0


def test_words_are_picked_and_lines_end(reader):
    element, box, off = hero_of(reader)
    begin(element)
    words = element.get_by_label("Add a word")
    assert words.locator("optgroup").count() >= 4
    words.select_option("mouse")
    assert box.input_value() == f"{HERO} mouse"
    assert words.input_value() == ""  # ready for the next
    assert off() < 1e-4
    n = written(element)
    element.evaluate("hero => hero.take(10)")  # a drawn end of a line
    assert box.input_value() == f"{HERO} mouse↵"
    boxes = element.locator(".hero-tokens li > span").all_inner_texts()
    assert boxes[-1] == "↵"
    box.press("End")
    box.type(" The")  # it is read again, with the end of the line
    assert written(element) == n + 2
    ids = element.evaluate("hero => [...hero.ids]")
    assert ids[n] == 10
    href = element.locator(".hero-inside").get_attribute("href")
    assert href.startswith("#") or href.endswith("mouse%0A+The")


def test_the_hero_shows_what_falls_to_bytes(reader):
    element, box, off = hero_of(reader)
    begin(element)
    box.fill("The zxqv")
    reader.says("hero", "“zxqv” is not one of the ")
    assert element.locator(".hero-joined").count() >= 3
    box.fill("The €")
    assert "E2 82 AC" in " ".join(
        element.locator(".hero-tokens li > span").all_inner_texts()
    )
    box.fill("The dog " * 200)  # longer than the model reads
    assert written(element) <= 128
    window = element.locator(".hero-window").bounding_box()
    last = element.locator(".hero-last").bounding_box()  # its end is in sight
    end = window["y"] + window["height"]
    assert window["y"] < last["y"] < last["y"] + last["height"] <= end + 1
    box.fill("The dog")
    assert off() < 1e-4


LABEL_AND_ARC = """async (hero) => {
  await document.fonts.ready;
  const label = [...hero.querySelectorAll(".hero-label")].find(
    (each) => /looks at/.test(each.textContent));
  const box = label.getBBox(), arc = hero.querySelector(".hero-arc");
  const points = Array.from({length: 200}, (_, i) =>
    arc.getPointAtLength(i / 199 * arc.getTotalLength()));
  const { x, y, width, height } = box;
  return [label.textContent, points.some((at) =>
    x < at.x && at.x < x + width && y < at.y && at.y < y + height)];
}"""


@pytest.mark.parametrize("width", [1440, 390, 375])
def test_the_hero_takes_the_room_of_its_picture(visit, width):
    """And the label of the block that looks is clear of the arc."""
    reader = visit(width=width)
    still = reader.page.locator(f"live-hero {STILL}")
    room = still.bounding_box()["height"]
    element, _, _ = hero_of(reader)
    live = element.locator(".live").bounding_box()["height"]
    assert abs(live - room) <= 8
    assert live <= 420 or width < 400
    told = element.locator(".hero-weight").all_text_contents()
    if width == 1440:  # where all tokens stand in one line
        assert re.fullmatch(r"attention \d\d(\.\d)?%", told[0])
    assert not any("attention" in text for text in told[1:])
    said, crossed = element.evaluate(LABEL_AND_ARC)
    assert not crossed
    assert said.startswith("block 2, head 4 looks at") == (width == 1440)
    assert reader.look() == []


def test_the_attention_map(reader):
    element = reader.figure("attention")
    page = reader.page
    n = tokens_in("A tired dog sleeps, because it is hot.")
    reader.says("attention", f"(row {n} of {n})", inside=True)
    tokens = element.get_by_role("listbox")
    tokens.focus()
    page.keyboard.press("Home")
    first = reader.sentence("attention")
    assert f"“A” (row 1 of {n}) takes most from “A” 100%" in first
    page.keyboard.press("ArrowRight")
    reader.says("attention", f"(row 2 of {n})", inside=True)
    assert reader.spoken("attention") == reader.sentence("attention")
    label = element.locator("canvas").get_attribute("aria-label")
    assert label == reader.sentence("attention")
    element.get_by_role("checkbox", name="causal mask").uncheck()
    tokens.focus()
    page.keyboard.press("Home")
    assert "100%" not in reader.sentence("attention")
    element.locator("select").first.select_option(label="3")
    element.locator("select").last.select_option(label="mean of all")
    reader.says("attention", "Block 3, mean of all")
    element.locator("canvas").click(position={"x": 200, "y": 400})
    assert "(row 1 of" not in reader.sentence("attention")
    element.get_by_role("textbox").fill("Two cats")
    reader.says("attention", f"of {tokens_in('Two cats')})", inside=True)


def test_texts_to_try(reader):
    """The first is what the figure begins with."""
    reader.resize(360)
    element = reader.figure("scores")
    chips = element.get_by_role("group", name="Texts to try")
    box, first = element.get_by_role("textbox"), reader.sentence("scores")
    chips.get_by_role("button", name="Two cats sit").click()
    assert box.input_value() == "Two cats sit"
    reader.says("scores", "The query “s” gives")
    chips.get_by_role("button").last.click()  # a long one is cut, not wide
    assert reader.look() == []
    chips.get_by_role("button", name="A dog sleeps").click()
    assert reader.sentence("scores") == first
    assert reader.figure("attention").locator(".live-chips").count() == 0


def test_a_score_is_the_sum_of_its_products(reader):
    element = reader.figure("scores")

    def read(selector):
        texts = element.locator(selector).all_inner_texts()
        return [float(text.replace("−", "-")) for text in texts]

    products = set()
    for key in range(3):
        element.locator("tbody button").nth(key).click()
        assert element.locator("[aria-pressed=true]").count() == 1
        q, k, each = (
            read(f".scores-sum li:not(:first-child) .scores-{role}")
            for role in ("query", "key", "weight")
        )
        for a, b, c in zip(q, k, each, strict=True):
            assert abs(a * b - c) < 0.02 * (1 + abs(a) + abs(b))
        (product,) = read(f"tbody tr:nth-child({key + 1}) td:nth-child(2)")
        assert abs(sum(each) - product) < 0.01 * len(each)
        products.add(product)
    assert len(products) == 3  # each key has its own


def test_from_scores_to_weights(reader):
    element = reader.figure("scores")

    def column(number):
        cells = element.locator(f"tbody tr td:nth-of-type({number})")
        return [float(t.replace("−", "-")) for t in cells.all_inner_texts()]

    root = 24**0.5  # 96 columns, 4 heads
    products, scores = column(1), column(2)
    assert scores == pytest.approx([p / root for p in products], abs=0.01)
    assert sum(column(3)) == pytest.approx(1, abs=0.02)
    sharp = max(column(3))
    element.get_by_role("checkbox", name="divide by").uncheck()
    assert column(2) == column(1)
    assert max(column(3)) >= sharp
    element.get_by_role("listbox").focus()
    reader.page.keyboard.press("Home")
    hidden = element.locator("tbody tr td:nth-of-type(2)").all_inner_texts()
    assert hidden[1:] == ["hidden"] * (len(products) - 1)


def test_the_next_token(reader):
    element = reader.figure("next-token")
    written = element.locator(".live-written mark")
    start = reader.sentence("next-token")
    assert "4,000 of 4,000 tokens can be drawn" in start
    press = functools.partial(element.get_by_role, "button")
    first = element.locator(".live-track").first

    def lengths():
        names = ("--own", "--made")
        get = "(e, name) => Number(e.style.getPropertyValue(name))"
        return [first.evaluate(get, name) for name in names]

    assert lengths() == [1, 1]  # all are drawn next to the largest

    def draws(n):
        for _ in range(n):
            press(name="Draw one").click()
        return written.inner_text()

    drawn = draws(5)
    assert drawn
    press(name="Back", exact=True).click()
    assert drawn.startswith(written.inner_text())
    press(name="Start again").click()
    assert written.inner_text() == ""
    assert reader.sentence("next-token") == start
    slider = element.get_by_role("slider", name="Top-k")
    slider.focus()
    reader.page.keyboard.press("Home")  # the likeliest alone
    reader.says("next-token", "100%. 1 of 4,000 tokens", inside=True)
    assert slider.get_attribute("aria-valuetext") == "1"
    own, made = lengths()
    assert own < made == 1
    alone = draws(3)
    press(name="Start again").click()
    for _ in range(3):
        press(name="Take the likeliest").click()
    assert written.inner_text() == alone
    press(name="Let it write").click()  # on, by itself
    more = f"text => text.length > {2 * len(alone)}"
    reader.page.wait_for_function(
        f"() => ({more})(document.querySelector("
        "'live-next-token .live-written mark').textContent)"
    )
    if (stop := press(name="Stop")).count():  # it may have ended by then
        stop.click()
    stopped = written.inner_text()
    reader.pass_time(50)
    assert written.inner_text() == stopped
    assert stopped.startswith(alone)
    slider.focus()
    reader.page.keyboard.press("End")
    beginning = element.get_by_role("textbox")
    beginning.fill("Two old ships")
    assert written.inner_text() == ""
    drawn = draws(3)
    beginning.fill("Two old")
    beginning.fill("Two old ships")
    assert draws(3) == drawn  # the same chance for everybody


def test_the_beams(reader):
    element = reader.figure("beam")
    boxes = element.locator(".live-tree rect")
    many = boxes.count()
    element.get_by_role("slider", name="Steps").focus()
    reader.page.keyboard.press("Home")
    reader.says("beam", "Best of 3 beams after 1 steps")
    assert boxes.count() < many
    element.get_by_role("slider", name="Beams").focus()
    reader.page.keyboard.press("Home")
    assert boxes.count() == 4  # a root and a token, twice
    label = element.locator(".live-tree").get_attribute("aria-label")
    assert label == reader.sentence("beam")
    element.get_by_role("slider", name="Steps").focus()
    reader.page.keyboard.press("End")  # greedy ends, in a row of its own
    assert "(end)" in element.locator(".live-tree").text_content()
    assert boxes.evaluate_all(
        """(rects) => rects.every((rect) => {
          const {y, height} = rect.getBBox();
          return y + height <= rect.ownerSVGElement.height.baseVal.value;
        })"""
    )


def test_the_translator(reader):
    element = reader.figure("translator")
    assert "sleeping" in element.locator(".live-target").inner_text()
    element.get_by_role("textbox").fill("Zwei Katzen spielen im Garten.")
    reader.page.wait_for_function(
        "document.querySelector('.live-target').textContent.includes('cats')"
    )
    element.get_by_role("listbox").focus()
    reader.page.keyboard.press("End")
    sentence = reader.sentence("translator")
    rows = re.match(r"“<end>” \(row (\d+) of (\d+)\) looks", sentence)
    assert rows[1] == rows[2]
    element.locator("select").first.select_option(label="1")
    assert reader.sentence("translator") != sentence


LINES = """figure => {
  const [row, map] = [figure.row, figure.querySelector(".live-lines")];
  const middle = e => {
    const {left, width} = e.getBoundingClientRect();
    return left + width / 2 - map.getBoundingClientRect().left;
  };
  const {above, below, shares} = figure.lines;
  const drawn = [...map.children].map(line => [
    +line.getAttribute("x1"), +line.getAttribute("x2"),
    +line.getAttribute("stroke-width")]);
  const wanted = [...above.children].map((token, i) => [
    middle(below.children[row]), middle(token), 10 * shares[i]]);
  return [drawn, wanted, [...shares]];
}"""


def test_lines_lead_to_what_a_token_of_the_translation_looks_at(reader):
    element = reader.figure("translator")
    element.get_by_role("listbox").focus()
    reader.page.keyboard.press("Home")
    seen = []
    for key in ("ArrowRight", "ArrowRight"):
        drawn, wanted, shares = element.evaluate(LINES)
        kept = [w for w in wanted if w[2] >= 0.4]
        assert drawn == [pytest.approx(w, abs=0.1) for w in kept]
        assert sum(shares) == pytest.approx(1, abs=1e-5)
        sentence = reader.sentence("translator")
        best = re.search(r"looks most at “(.+?)” (\d+)%", sentence)
        above = element.locator(".live-lines + div > *").all_inner_texts()
        widest = shares.index(max(shares))
        assert above[widest] == best[1]
        assert round(100 * max(shares)) == int(best[2])
        seen.append(drawn)
        reader.page.keyboard.press(key)
    assert seen[0] != seen[1]
    reader.resize(360)

    def follow():
        drawn, wanted, _ = element.evaluate(LINES)
        kept = [pytest.approx(w, abs=0.1) for w in wanted if w[2] >= 0.4]
        return drawn == kept

    assert comes(follow)


NOW = "translator => translator.run()"  # without its pause after a key


def test_the_translator_says_that_it_reads_another_language(reader):
    element = reader.figure("translator")
    hint = "This looks like English; the model has learned to read German."
    for text, is_foreign in [
        ("A dog is sleeping on the couch.", True),
        ("Ein Hund schläft in der Sonne.", False),
        ("Hund", False),
    ]:
        element.get_by_role("textbox").fill(text)
        element.evaluate(NOW)
        assert reader.sentence("translator").startswith(hint) == is_foreign
    for name in ("mine.js", "translator-fr-en-1.js"):  # nothing is known of it
        element.evaluate("(e, name) => e.setAttribute('model', name)", name)
        element.get_by_role("textbox").fill("A dog is on the couch." + name)
        element.evaluate(NOW)
        assert reader.sentence("translator").startswith("“")
        assert reader.wrong == []


def trained(reader, least):
    """The figure once it has trained so many steps."""
    reader.page.wait_for_function(
        "n => document.querySelector('live-train').losses.length >= n",
        arg=least,
    )
    return reader.page.evaluate(
        "document.querySelector('live-train').losses.length"
    )


# The worker answers in order: what it was told before, it has done.
ANSWERED = """train => new Promise((done) => {
  train.hand = () => { delete train.hand; done(); };
  train.worker.postMessage({save: true});
})"""


def test_a_model_is_trained(visit, served, tmp_path):
    """By keyboard: train, pause, one step, download, reset.

    As a file, :func:`test_a_text_of_ones_own_is_trained_on`.
    """
    reader = visit(base=served)
    element, keys = reader.figure("train"), reader.page.keyboard
    assert not [url for url in reader.asked if "/train-" in url]
    press = functools.partial(element.get_by_role, "button")
    assert press(name="Download").is_disabled()
    press(name="Train").focus()
    keys.press("Enter")
    trained(reader, 30)
    assert len([url for url in reader.asked if "/train-" in url]) == 1
    assert not element.locator(STILL).is_visible()
    keys.press("Enter")  # the same button pauses
    press(name="Go on").wait_for()
    element.evaluate(ANSWERED)
    n = trained(reader, 30)
    reader.says("train", f"Step {n} of 2,000, ")
    assert reader.spoken("train") == reader.sentence("train")
    label = element.get_by_role("img", name="Loss by training step")
    assert f"after {n} steps" in label.get_attribute("aria-label")
    keys.press("Tab")
    keys.press("Enter")  # one step
    assert trained(reader, n + 1) == n + 1
    heads = element.locator(".train-samples li > p:first-child")
    texts = element.locator(".train-text")
    assert heads.first.inner_text() == "Before training"
    assert f"{n + 1} steps" in heads.last.inner_text()
    prompt = texts.first.locator("b").inner_text()
    assert all(t.startswith(prompt) for t in texts.all_inner_texts())
    with reader.page.expect_download() as download:
        press(name="Download").click()
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    model, tokenizer = coursekit.load(path)
    assert model.config.n_layers == 2
    assert tokenizer.encode(prompt)
    reader.says("train", "Saved. In Python: coursekit")
    press(name="Reset").click()
    assert element.locator(STILL).is_visible()
    assert element.locator(".train-stage").is_hidden()
    assert reader.look() == []


def test_a_text_of_ones_own_is_trained_on(reader):
    reader.resize(360)
    reader.page.emulate_media(reduced_motion="reduce")
    element = reader.figure("train")
    box = element.get_by_role("textbox")
    assert box.count() == 0
    element.get_by_role("combobox").select_option("own")
    train = element.get_by_role("button", name="Train")
    box.fill("Too short.")
    train.click()
    reader.says("train", "A text needs at least 20,000")
    box.fill("".join(map(chr, range(0x4E00, 0x4E00 + 1500))) * 20)
    train.click()
    reader.says("train", "at most 1,000 different characters", inside=True)
    assert element.locator(STILL).is_visible()
    box.fill("Rain in Spain, 🙂 again and again.\n" * 1000)
    train.click()
    trained(reader, 5)
    assert not element.locator(STILL).is_visible()
    assert "Rain in Spain, 🙂" in element.inner_text()
    element.get_by_role("combobox").select_option("python")
    assert element.locator(STILL).is_visible()  # another text, another run
    assert reader.look() == []


def test_a_run_is_told_seldom(reader):
    """A screen reader hears the beginning and pauses, not each report."""
    element = reader.figure("train")
    element.evaluate(
        """(figure) => {
          figure.heard = [];
          figure.begun = performance.now();
          new MutationObserver(() => figure.heard.push(
            figure.spoken.textContent)).observe(figure.spoken,
            {childList: true, characterData: true, subtree: true});
        }"""
    )
    element.get_by_role("button", name="Train").click()
    trained(reader, trained(reader, 60) + 1)  # it is still training
    heard, seconds = element.evaluate(
        "({heard, begun}) => [heard.length, (performance.now() - begun) / 1e3]"
    )
    assert heard <= 4 + seconds / 15
    element.get_by_role("button", name="Pause").click()


def test_a_worker_that_does_not_come_is_told(visit, served):
    reader = visit(
        base=served,
        own={},
        broken=lambda route: route.fulfill(status=404, body=""),
    )
    element = reader.figure("train")
    element.get_by_role("button", name="Train").click()
    reader.page.wait_for_function(
        "document.querySelector('live-train .live-sentence')"
        ".textContent.endsWith('could not be loaded')"
    )
    assert element.locator(STILL).is_visible()
    assert element.get_by_role("button", name="Train").is_enabled()


def test_positions_know_only_their_distance(reader):
    element = reader.figure("positions")

    def product():
        return re.search(r"is (\S+)\. ", reader.sentence("positions"))[1]

    before = product()
    for name in ("query", "key"):
        element.get_by_role("slider", name=f"of the {name}").focus()
        reader.page.keyboard.press("ArrowRight")
        if name == "query":
            assert product() != before
    assert product() == before


def test_a_position_is_dragged(reader):
    element = reader.figure("positions")
    curve = element.locator("svg:has(.live-point)")
    # Nothing moves any more when the point's place is read.
    reader.page.evaluate("() => document.fonts.ready.then(() => {})")
    curve.scroll_into_view_if_needed()
    reader.pass_time()
    point = element.locator(".live-point").bounding_box()
    mouse = reader.page.mouse
    y = point["y"] + point["height"] / 2
    mouse.move(point["x"] + point["width"] / 2, y)
    mouse.down()
    box = curve.bounding_box()
    left, right = 46, 12  # of the axes, as in positions.js
    middle = left + (box["width"] - left - right) / 2
    mouse.move(box["x"] + middle, y)  # distance 0
    reader.says("positions", "Query at 7, key at 7")
    mouse.move(box["x"] + 2 * box["width"], y)  # no place is beyond the last
    reader.says("positions", "Query at 7, key at 7")
    mouse.move(box["x"] + box["width"] - 1, y)
    reader.says("positions", "Query at 40, key at 7")
    mouse.up()
    mouse.move(box["x"] + box["width"] / 2, y)
    reader.says("positions", "Query at 40, key at 7")


def test_temperature_moves_what_pytorch_says(reader):
    """By keys and by dragging; the numbers of another one are not these."""
    element = reader.figure("temperature")
    model, tokenizer = coursekit.load("stories")
    with torch.no_grad():
        logits = model(torch.tensor([tokenizer.encode(HERO)]))[0, -1].double()

    def off(temperature):
        shown = element.evaluate("figure => figure.shares(figure.temperature)")
        best = (logits / temperature).softmax(0).topk(5).values
        wanted = torch.cat([best, 1 - best.sum(0, keepdim=True)])
        return float((torch.tensor(shown) - wanted).abs().max())

    slider = element.get_by_role("slider")
    assert off(10 ** (-6 / 20)) < 1e-5  # the slider's step next to 0.5
    assert off(10 ** (-5 / 20)) > 1e-3  # control
    slider.focus()
    for key, heat in (("Home", 0.1), ("End", 10.0), ("PageDown", None)):
        reader.page.keyboard.press(key)
        heat = heat or element.evaluate("figure => figure.temperature")
        assert off(heat) < 1e-5, key
    rows = element.locator("tbody tr")
    assert rows.count() == 6
    chart = element.locator(".temperature-chart svg")
    chart.scroll_into_view_if_needed()
    box, mouse = chart.bounding_box(), reader.page.mouse
    y = box["y"] + box["height"] / 2
    mouse.move(box["x"] + 60, y)
    mouse.down()
    mouse.move(box["x"] + 2 * box["width"], y)
    reader.says("temperature", "At temperature 10.0, “␣dog” gets 0.3%")
    mouse.up()
    mouse.move(box["x"] + 60, y)  # nothing is held any more
    reader.says("temperature", "At temperature 10.0")
    *shares, _ = element.evaluate("figure => figure.shares(10)")
    assert others_of(shares) in rows.last.inner_text()
    assert reader.spoken("temperature") == reader.sentence("temperature")
    assert chart.get_attribute("aria-label") == reader.sentence("temperature")


def test_a_size_drives_its_costs(reader):
    """The context makes the cache longer, and learned positions more."""
    element = reader.figure("calculator")
    factors = element.locator(".cost-factor")
    assert set(factors.all_inner_texts()) == {""}
    element.get_by_role("slider", name="Context").focus()
    reader.page.keyboard.press("ArrowRight")
    assert factors.all_inner_texts()[1] == "×\xa01.13"  # twice the scores
    element.get_by_role("combobox", name="Begin with").select_option(
        label="SmolLM2-135M"
    )
    reader.says("calculator", "135 million parameters and 835 million FLOPs")
    element.get_by_role("slider", name="heads per KV").focus()
    reader.page.keyboard.press("Home")
    assert factors.all_inner_texts()[0] == "×\xa01.1"
    assert element.evaluate("f => f.config.n_kv_heads") == 9
    assert reader.spoken("calculator") == reader.sentence("calculator")


def test_without_the_sum_all_positions_are_alike(reader):
    element = reader.figure("depth")
    residual = element.get_by_role("checkbox")
    norm = element.get_by_role("combobox")
    residual.focus()
    reader.page.keyboard.press("Space")
    reader.says("depth", "After 12 blocks all positions point the same way")
    reader.page.keyboard.press("Space")
    norm.select_option(label="none")
    reader.says("depth", "After 12 blocks an entry has size 720")
    element.get_by_role("slider").focus()
    reader.page.keyboard.press("Home")
    reader.says("depth", "After 12 blocks an entry has size 0.089")
    assert "0.089" in element.get_by_role("img").last.get_attribute(
        "aria-label"
    )
    assert reader.spoken("depth") == reader.sentence("depth")


def test_a_program_is_probed(reader):
    """The map of each program is that of the lesson's file, so edited."""
    element = reader.figure("probe")
    program = element.get_by_role("combobox")
    vocab, length, width, *rest = probe.SIZES.values()
    fails = probe.recorded()["programs"]
    for name, words in probe.PROGRAMS.items():
        program.select_option(label=words)
        edit = {"next_token": "off_by_one"}.get(name, name)
        file = lesson.load(12, EDITS.get(edit, []))
        wanted = reach(file.GPT(vocab, length, width, *rest), vocab, length)
        assert element.evaluate("f => f.moved") == wanted.tolist(), name
        failed = element.locator(".probe-fails").count()
        assert failed == len(fails[name]["fails"]), name
        leaks = element.locator(".probe-future").count()
        assert leaks == wanted.triu(1).sum(), name
    program.select_option(label="no mask")
    element.get_by_role("listbox").focus()
    reader.page.keyboard.press("End")
    reader.says("probe", "7 of these come before it: a leak", inside=True)
    element.locator(".probe-map svg").click(position={"x": 60, "y": 100})
    reader.says("probe", "Token 1, “p”, becomes “q”")
    assert reader.spoken("probe") == reader.sentence("probe")


HEARD = """figure => {
  figure.heard = [];
  new MutationObserver(() => figure.heard.push(figure.sentence.textContent))
    .observe(figure.sentence, {childList: true});
}"""


def test_merges_play(reader):
    element = reader.figure("bpe")
    slider = element.get_by_role("slider")
    element.get_by_role("textbox").fill("the the")
    last = int(slider.get_attribute("max"))
    merges = element.get_by_role("list", name="Merges").get_by_role("listitem")
    assert merges.count() == last > 2
    slider.focus()
    reader.page.keyboard.press("End")
    element.evaluate(HEARD)  # a busy machine may not see each in time
    element.get_by_role("button", name="Play").click()  # from the beginning
    element.get_by_role("button", name="Play").wait_for()  # to the end
    *said, end = element.evaluate("bpe => bpe.heard")
    assert said[0].startswith("Before the first merge")
    assert [words[:8] for words in said[1:]] == [
        f"Merge {n} " for n in range(1, last)
    ]
    assert end.startswith(f"Merge {last} of")
    current = element.locator("[aria-current]")
    assert current.inner_text() == merges.last.inner_text()
    # It plays and pauses.
    element.evaluate("({player}) => { player.click(); player.click(); }")
    at = slider.input_value()
    reader.pass_time(1200)
    assert slider.input_value() == at < str(last)
    reader.page.emulate_media(reduced_motion="reduce")
    slider.focus()
    reader.page.keyboard.press("Home")
    reader.page.keyboard.press("ArrowRight")
    moving = "bpe => bpe.getAnimations({subtree: true}).length"
    assert element.evaluate(moving) == 0


def test_the_merges(reader):
    element = reader.figure("bpe")
    boxes = element.locator(".live-boxes li")
    slider = element.get_by_role("slider")
    slider.focus()
    reader.page.keyboard.press("Home")
    assert reader.sentence("bpe") == "Before the first merge: 12 bytes."
    assert boxes.count() == 12
    reader.page.keyboard.press("End")
    tokenizer = coursekit.load("captions").tokenizer
    ids = [
        int(i) for i in element.locator(".live-boxes span").all_inner_texts()
    ]
    assert ids == tokenizer.encode("streetlights")
    element.get_by_role("textbox").fill("🙂")
    assert element.locator(".live-boxes").inner_text()


def zipped(folder, path):
    """A zip of the files in a folder."""
    with ZipFile(path, "w") as file:
        for part in folder.glob("*.[js]*"):
            file.write(part, part.name)
    return path


@pytest.mark.parametrize("name", ["captions", "translator-de-en"])
def test_a_model_of_the_readers_own(reader, tmp_path, name):
    element = reader.figure("checkpoint")
    model, tokenizer = coursekit.load(name)
    save_model(tmp_path, model, tokenizer, int8=True)
    chooser = element.locator("input[type=file]")
    chooser.set_input_files(tmp_path / "model.safetensors")
    reader.page.wait_for_selector(".live-weights")
    total = sum(p.numel() for p in model.parameters())
    reader.says("checkpoint", f"{total:,} numbers in all", inside=True)
    element.locator("select").select_option(label="final_norm.weight")
    width = model.config.d_model
    assert f"final_norm.weight: {width}: {width} numbers" in (
        reader.sentence("checkpoint")
    )
    assert element.locator("live-attention").count() == 0
    files = sorted(tmp_path.iterdir())
    if name == "captions":  # as it is taken home
        files = zipped(tmp_path, tmp_path / "mine.zip")
    chooser.set_input_files(files)
    # It begins when the reader comes near.
    element.locator("live-attention").scroll_into_view_if_needed()
    reader.page.wait_for_selector("live-checkpoint live-attention canvas")
    reader.says("checkpoint live-attention", "Block 1, head 1")
    if name == "captions":  # the end of the walk asks for a walk alone
        element.evaluate("figure => figure.setAttribute('shows', 'walk')")
        mine = zipped(find_model("ladder"), tmp_path / "gpt.zip")
        chooser.set_input_files(mine)
        element.locator("live-walk").scroll_into_view_if_needed()
        walk = "live-checkpoint live-walk[data-state=ready]"
        reader.page.wait_for_selector(walk)
        assert element.locator("live-attention").count() == 0
    (tmp_path / "bad.safetensors").write_bytes(b"no tensors at all")
    chooser.set_input_files(tmp_path / "bad.safetensors")
    reader.page.wait_for_function(
        "document.querySelector('live-checkpoint .live-sentence')"
        ".textContent.startsWith('bad.safetensors could not be read')"
    )
    assert reader.wrong == []


# -- what can go wrong -------------------------------------------------------
def test_without_javascript_the_pictures_stay(browser, book):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((book.root / "_build/html/book/tiny.html").as_uri())
    for kind in FIGURES:
        image = page.locator(f"live-{kind} {STILL}")
        assert image.is_visible()
        assert image.get_attribute("aria-label") == f"STILL {kind}."
    context.close()


BROKEN = {
    "missing": lambda route: route.fulfill(status=404, body=""),
    "cut short": lambda route: route.fulfill(
        body="coursekitLive.receive('x', {", content_type="text/javascript"
    ),
    "another": lambda route: route.fulfill(
        body="coursekitLive.receive('x', {});", content_type="text/javascript"
    ),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_model_that_does_not_come(visit, served, how):
    reader = visit(base=served, broken=BROKEN[how], own={})
    element = reader.figure("attention")
    assert element.get_attribute("data-state") == "failed"
    assert element.locator(STILL).is_visible()
    text = element.get_by_role("status").inner_text()
    assert text.startswith("This figure could not come alive: captions-")
    assert reader.figure("positions").get_attribute("data-state") == "ready"


def test_a_model_that_computes_something_else_is_not_shown(
    visit, book, served
):
    folder = book.root / "_build/html/_static/live"
    (path,) = folder.glob("captions-????????.js")
    text = path.read_text("utf8")
    spoiled = re.sub(r'("outputs":\[)', r"\g<1>99,", text, count=1)
    assert spoiled != text
    reader = visit(
        base=served,
        own={},  # what another visit has fetched is not here
        broken=lambda route: route.fulfill(
            body=spoiled, content_type="text/javascript"
        ),
    )
    element = reader.figure("attention")
    assert element.get_attribute("data-state") == "failed"
    assert "does not compute what it should" in element.inner_text()


ODD = ["", " ", "🙂👩‍👩‍👧", "\ufeff\u200b", "a" * 10_000, "die Straße " * 1000]


@pytest.mark.parametrize(
    "kind",
    [
        *("hero", "attention", "scores", "next-token", "bpe", "temperature"),
        "translator",
    ],
)
def test_odd_texts(reader, kind):
    element = reader.figure(kind)
    box = element.locator("input[type=text], textarea")
    # A translation is searched for half a second.
    for text in [*ODD[:: 4 if kind == "translator" else 1], "A dog"]:
        box.evaluate(
            "(box, text) => {box.value = text;"
            "box.dispatchEvent(new Event('input'))}",
            text,
        )
        if kind == "translator":
            element.evaluate(NOW)
    assert reader.sentence(kind)
    assert reader.look() == []


def test_memory_is_flat(visit):
    reader = visit(own={})
    element = reader.figure("attention")
    session = reader.context.new_cdp_session(reader.page)
    session.send("HeapProfiler.enable")

    def used(edits):
        element.locator("input[type=text]").evaluate(
            """(box, edits) => {
              for (let i = 0; i < edits; i++) {
                box.value = `Dog number ${i} and cat number ${i % 7}`;
                box.dispatchEvent(new Event("input"));
              }
            }""",
            edits,
        )
        session.send("HeapProfiler.collectGarbage")
        usage = session.send("Runtime.getHeapUsage")
        return usage["usedSize"] + usage.get("backingStorageSize", 0)

    before = used(20)
    assert used(200) < before + 1_000_000


def test_terms_of_the_weights_lie_beside_them(book):
    folder = book.root / "_build/html/_static/live"
    for name in ("captions", "translator-de-en"):
        terms = (folder / f"{name}.LICENSE").read_text("utf8")
        assert "research and" in terms


# -- for everyone ------------------------------------------------------------
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_for_everyone(visit, width, scheme):
    """All figures alive, and one in the middle of its run."""
    reader = visit(width=width)
    for kind in FIGURES:
        reader.figure(kind)
    element = reader.figure("train")
    element.get_by_role("button", name="Train").click()
    trained(reader, 20)
    element.get_by_role("button", name="Pause").click()
    reader.theme(scheme)
    assert reader.look() == []  # axe asks for files, which is refused
    assert axe(reader) == []
    reader.page.emulate_media(media="print")
    for kind in ON_PAPER:
        element = reader.page.locator(f"live-{kind}")
        assert element.locator(STILL).is_visible(), kind
        assert not element.locator(".live").is_visible(), kind


def test_a_map_turns_dark_with_the_page(reader):
    canvas = reader.figure("attention").locator("canvas")
    reader.theme("light")
    reader.pass_time()
    light = canvas.evaluate("canvas => canvas.toDataURL()")
    reader.theme("dark")
    reader.pass_time()
    assert canvas.evaluate("canvas => canvas.toDataURL()") != light


# -- the source --------------------------------------------------------------
WRONG = {
    "must be one of hero": ("{live} positions", "{live} position"),
    "needs a :model:": (
        ":model: captions\n:text: A dog sl",
        ":text: A dog sl",
    ),
    "takes no :model:": (":query: 12", ":query: 12\n:model: captions"),
    "got 'nobody'": (
        ":model: captions\n:text: streetl",
        ":model: nobody\n:text: streetl",
    ),
    "has no code cell behind it": (
        "{live} checkpoint\n\n```",
        "{live} checkpoint\n\n```\n\nText between.",
    ),
}


def test_a_wrong_source_fails_the_build(tmp_path):
    broken = test_book.Book(tmp_path)
    config = (tmp_path / "_config.yml").read_text("utf8")
    broken.write(
        "_config.yml",
        config.replace("execute_notebooks: cache", 'execute_notebooks: "off"'),
    )
    toc = ["format: jb-book", "root: book/index", "chapters:"]
    for number, (right, wrong) in enumerate(WRONG.values()):
        assert PAGE.count(right) == 1, right
        broken.write(f"book/p{number}.md", PAGE.replace(right, wrong))
        toc.append(f"  - file: book/p{number}")
    broken.write("_toc.yml", "\n".join(toc))
    done = broken.call("jupyter-book", "build", ".", "-W", "--keep-going")
    assert done.returncode != 0
    lines = [line for line in done.stdout.splitlines() if "{live}" in line]
    for number, what in enumerate(WRONG):
        mine = [line for line in lines if f"book/p{number}.md" in line]
        assert len(mine) == 1, (what, mine)
        assert what in mine[0]


def test_notebooks_have_the_still_figures_alone(book):
    notebook = book.notebook("readers")
    text = "\n".join(cell.source for cell in notebook.cells)
    assert "{live}" not in text
    assert text.count("draw(") > len(FIGURES)
    assert "{live}" in "\n".join(c.source for c in book.notebook().cells)
