"""Predict, then see: on the page, without JavaScript, and in notebooks.

A small book is built with two predictions; a reader with a keyboard, with a
phone and with JavaScript turned off works through it in Chromium. What the
book remembers of a reader, choices and progress, is tried here as well.
"""

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from types import SimpleNamespace

import nbformat
import pytest
import test_book
from patience import comes
from test_book import ROOT, notebooks
from test_pages import Visit, axe

from coursekit_classroom.notebooks import install

# Of the workers, one starts the two servers that small books are built with.
pytestmark = pytest.mark.xdist_group("small books")
plain = notebooks.plain

FRONT = test_book.TINY.split("# Tiny")[0]
PAGE = (
    FRONT
    + r"""
(ch-tiny)=
# Tiny

Go to {ref}`the question <tiny-mean>`, {ref}`tiny-mean`,
{ref}`the figure <fig-tiny>`, {ref}`the feedback <tiny-feedback>`.

```{code-cell} ipython3
import torch
from coursekit_classroom.glue import glue

torch.set_num_threads(1)
x = torch.arange(7.0)
```

(tiny-mean)=
::::{predict} The mean of $x$
What is the mean, `x.mean()`, of {glue:text}`tiny-n` numbers?

$$
\bar x = \frac1n \sum_i x_i
$$ (eq-mean)

:::{choice} 3.5, for $7 / 2$ is that
FEEDBACK-A. See {ref}`ch-tiny`.

- a list with $x_1^2$
:::
:::{choice} 3
:correct:
FEEDBACK-B. It is {glue:text}`tiny-mean:.3f`, by {eq}`eq-mean`.
:::
:::{choice} 4, the middle
(tiny-feedback)=
FEEDBACK-C.
:::
::::

```{code-cell} ipython3
y = x + 1  # code between a question and its cells
print("BETWEEN")
```

```{code-cell} ipython3
---
tags: [predict, hide-output]
mystnb:
  code_prompt_show: Show the result
  code_prompt_hide: Hide the result
---
print("RESULT", x.mean().item(), "so wide that a phone scrolls it " * 3)
```

```{code-cell} ipython3
---
tags: [predict, remove-input, hide-output]
mystnb:
  code_prompt_show: Show the figure
  code_prompt_hide: Hide the figure
  image:
    alt: A rising line.
  figure:
    name: fig-tiny
    caption: CAPTION
---
import matplotlib.pyplot as plt

plt.plot(x);
```

```{code-cell} ipython3
:tags: [remove-cell]

glue("tiny-mean", x.mean().item())
glue("tiny-n", len(x))
```

:::{answer}
ANSWER: the mean is {glue:text}`tiny-mean:.1f`.
:::

PROSE between.

::::{predict} A second one
And now?

:::{choice} One
FEEDBACK-D.
:::
:::{choice} Two
:correct:
FEEDBACK-E.
:::
:::{choice} Three
FEEDBACK-F.
:::
:::{choice} Four
FEEDBACK-G.
:::
::::

```{code-cell} ipython3
---
tags: [predict, hide-input, hide-output]
mystnb:
  code_prompt_show: Show the result
  code_prompt_hide: Hide the result
---
print("SECOND")
```

The end.
"""
)
LONG = "\n\n".join(f"Paragraph {n}." for n in range(99))
NEXT = f"# Next\n\n{LONG}\n\n(next-takeaway)=\n## Takeaway\n\n{LONG}\n"
PAPER = (
    FRONT
    + """
# On paper

```{code-cell} ipython3
:tags: [hide-output]

print("OUTPUT")
```

```{code-cell} ipython3
:tags: [hide-input]

INPUT = 1
```

```{admonition} A title
:class: dropdown

TOGGLED

- LISTED
```

```{dropdown} A title
DROPPED
```

A paragraph.

:::{note}
:class: toggle

NOTED
:::
"""
)
TOC = test_book.TOC + "  - file: book/paper\n  - file: book/next\n"
SECRETS = ("FEEDBACK", "RESULT", "CAPTION", "ANSWER", "SECOND")


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    book = test_book.Book(tmp_path_factory.mktemp("predict"))
    book.write("book/tiny.md", PAGE)
    book.write("book/next.md", NEXT)
    book.write("book/paper.md", PAPER)
    book.write("_toc.yml", TOC)
    return book.build()


NO_SCRIPTS = {"java_script_enabled": False}


@pytest.fixture
def visit(browser, book):
    """Open the page, as a phone or as a laptop, with or without scripts."""
    folder = (book.root / "_build/html").as_uri() + "/"
    visits = []

    def open_page(
        width=1280, scheme="light", anchor="", name="tiny", own=None
    ):
        visit = Visit(browser, folder, width, scheme, own)
        visits.append(visit)
        address = f"{folder}book/{name}.html{anchor}"
        if own == NO_SCRIPTS:
            visit.page.goto(address)
            return visit
        return visit.open(address)

    yield open_page
    for each in visits:
        each.close()


# `inner_text` has what is rendered; code holds the word that is printed.
def seen(page):
    """The words among SECRETS that the page shows outside of code."""
    text = "\n".join(
        each.inner_text()
        for each in page.locator(
            "article p, article li, article figure, .cell_output"
        ).all()
        if each.is_visible()
    )
    return {word for word in SECRETS if word in text}


def buttons(page):
    return page.locator(".predict-option > button")


# The choices of the first question, as they stand in the source.
CHOICES = ("3.5, for $7 / 2$ is that", "3", "4, the middle")
ORDER = plain.shuffled("The mean of $x$", CHOICES)
LETTERS = ["ABC"[ORDER.index(n)] for n in range(3)]


def once_loaded_again(page, holds):
    """Whether this holds after a reload, or soon after one.

    What a page has stored is there for the next one soon, not at once.
    """

    def reloaded():
        page.reload()
        return holds()

    return comes(reloaded)


def choice(page, number):
    """The button of a choice, wherever the shuffle has put it."""
    return buttons(page).nth(ORDER.index(number))


# -- the page, with JavaScript -----------------------------------------------
def test_nothing_is_seen_before_a_choice(visit):
    page = visit().page
    assert seen(page) == set()
    assert "PROSE between" in page.locator("article").inner_text()
    assert page.get_by_text("x.mean()").count() >= 2  # its code is there
    page.emulate_media(media="print")  # on paper everything is open
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert seen(page) == set(SECRETS)
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert seen(page) == set()


def test_a_choice_opens_its_feedback_and_is_kept(visit):
    page = visit().page
    choice(page, 0).click()
    shown = {"FEEDBACK", "RESULT", "CAPTION", "ANSWER"}
    assert seen(page) == shown  # the other question is untouched
    text = page.locator("article").inner_text()
    assert "FEEDBACK-A" in text
    assert "FEEDBACK-B" not in text
    # Right and wrong are said in words, and announced.
    assert "your choice: ✗ not this" in choice(page, 0).inner_text()
    assert "✓ right" in choice(page, 1).inner_text()
    status = page.get_by_role("status").first
    told = f"You chose {LETTERS[0]}. Right is {LETTERS[1]}."
    assert status.inner_text().startswith(told)
    choice(page, 2).click()  # the others may be opened, too
    assert "FEEDBACK-C" in page.locator("article").inner_text()
    assert status.inner_text().startswith(f"You chose {LETTERS[0]}")
    mine = choice(page, 0)
    assert once_loaded_again(page, lambda: "your choice" in mine.inner_text())
    assert "RESULT" in seen(page)
    page.get_by_text("Forget my choice").first.click()
    assert seen(page) == set()
    assert once_loaded_again(page, lambda: seen(page) == set())
    choice(page, 1).click()
    told = f"You chose {LETTERS[1]}. That is right."
    assert status.inner_text().startswith(told)
    assert "FEEDBACK-B. It is 3.000, by (1)" in (
        page.locator("article").inner_text()
    )
    page.evaluate("localStorage.clear()")
    # Control: nothing but the storage remembers.
    assert once_loaded_again(page, lambda: seen(page) == set())


def test_a_browser_that_keeps_nothing(visit):
    forbid = (
        "Object.defineProperty(window, 'localStorage',"
        "{get() { throw new DOMException('no', 'SecurityError'); }})"
    )
    opened, thrown = visit(own={}), []
    opened.page.on("pageerror", lambda error: thrown.append(error.stack))
    opened.context.add_init_script(forbid)
    opened.page.reload()
    buttons(opened.page).nth(0).click()
    assert "RESULT" in seen(opened.page)
    ours = ("predict.js", "progress.js")
    assert not [t for t in thrown if any(name in t for name in ours)]
    assert thrown, "control: the theme's own scripts do throw"


def test_by_keyboard_alone(visit):
    page = visit().page
    for _ in range(60):
        page.keyboard.press("Tab")
        focus = "document.activeElement.closest('.predict-option') !== null"
        if page.evaluate(focus):
            break
    else:
        pytest.fail("no choice is reached with the Tab key")
    outline = page.evaluate(
        "getComputedStyle(document.activeElement).outlineWidth"
    )
    assert float(outline.removesuffix("px")) >= 2
    page.keyboard.press("Tab")  # from A to B
    assert seen(page) == set()  # moving is not choosing
    page.keyboard.press("Space")
    assert "You chose B" in page.get_by_role("status").first.inner_text()
    assert "RESULT" in seen(page)
    for _ in range(9):
        page.keyboard.press("Tab")
        if "Forget" in page.evaluate("document.activeElement.textContent"):
            break
    page.keyboard.press("Enter")
    assert seen(page) == set()
    assert page.evaluate("document.activeElement.textContent").startswith("A")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_and_for_everybody(visit, scheme):
    """No overflow, big enough to press, and axe finds nothing."""
    opened = visit(width=360, scheme=scheme)
    opened.theme(scheme)
    assert opened.look() == []
    assert axe(opened) == []
    page = opened.page
    for button in buttons(page).all():
        box = button.bounding_box()
        assert box["height"] >= 44
        assert 0 <= box["x"] <= box["x"] + box["width"] <= 360
    choice(page, 0).click()
    buttons(page).nth(4).click()
    assert opened.look() == []
    assert axe(opened) == []
    page.evaluate(  # control: axe reads the buttons
        "document.querySelectorAll('.predict-option button').forEach("
        "b => { b.style.color = '#888'; b.style.background = '#999'; })"
    )
    assert axe(opened, ["color-contrast"]) != []


def test_a_link_into_what_is_closed_opens_it(visit):
    assert "CAPTION" in seen(visit(anchor="#fig-tiny").page)
    page = visit(anchor="#tiny-feedback").page
    assert "FEEDBACK-C" in page.locator("article").inner_text()
    page = visit(anchor="#tiny-mean").page  # control: the question is open
    assert seen(page) == set()
    page.get_by_role("link", name="the figure").click()
    page.wait_for_function(
        "document.querySelector('#fig-tiny').checkVisibility()"
    )
    assert "CAPTION" in seen(page)


# What a printer would leave blank: opacity is a product over what contains
# the text, and a height can be taken from any of it. In code the words have
# quotation marks.
BLANK = """words => {
  const walk = document.createTreeWalker(
    document.querySelector("article"), NodeFilter.SHOW_TEXT);
  const blank = new Set(words);
  while (walk.nextNode()) {
    const node = walk.currentNode;
    let opacity = 1, height = Infinity;
    for (let at = node.parentElement; at; at = at.parentElement) {
      const style = getComputedStyle(at);
      opacity *= style.opacity;
      if (style.display != "inline" && style.display != "contents")
        height = Math.min(height, at.getBoundingClientRect().height);
    }
    const seen = getComputedStyle(node.parentElement).visibility == "visible"
      && node.parentElement.checkVisibility() && opacity == 1 && height > 5;
    if (seen)
      for (const word of words)
        if (RegExp(`(?<!")${word}`).test(node.data)) blank.delete(word);
  }
  return [...blank].sort();
}"""
PRINTED = {
    "tiny": [*SECRETS, *(f"FEEDBACK-{letter}" for letter in "ABCDEFG")],
    "paper": ["OUTPUT", "INPUT", "TOGGLED", "LISTED", "DROPPED", "NOTED"],
}


@pytest.mark.parametrize("name", PRINTED)
@pytest.mark.parametrize("event", [True, False])
def test_nothing_is_blank_on_paper(browser, book, name, event):
    """Nor while it fades in: paper shows the first moment of that.

    With the event that opens things before printing, and without it.
    """
    words = PRINTED[name]
    page = browser.new_page()  # a Visit's stands still, a reader's does not
    page.goto((book.root / f"_build/html/book/{name}.html").as_uri())
    assert page.evaluate(BLANK, words) == sorted(words)  # on the screen
    page.emulate_media(media="print")
    blank = page.evaluate(
        "([find, words, event]) => {"
        " if (event) dispatchEvent(new Event('beforeprint'));"
        " return eval(find)(words); }",
        [BLANK, words, event],
    )
    page.close()
    assert blank == []


def test_nothing_moves():
    """There is no animation that a reader might want to have less of."""
    style = (ROOT / "book/_static/course.css").read_text("utf8")
    assert not re.search(r"\b(transition|animation)\s*:(?! none)", style)
    for script in ("predict.js", "progress.js"):
        text = (ROOT / "book/_static" / script).read_text("utf8")
        assert "smooth" not in text


# -- the page, without -------------------------------------------------------
def test_without_javascript_everything_can_be_opened(visit):
    page = visit(width=360, own=NO_SCRIPTS).page
    assert buttons(page).count() == 0
    assert seen(page) == set()
    for summary in page.locator("article summary").all():
        summary.click()
    assert seen(page) == set(SECRETS)
    text = page.locator("article").inner_text()
    assert all(f"FEEDBACK-{letter}" in text for letter in "ABCDEFG")


# -- what was read -----------------------------------------------------------
def turn_to(page, name):
    """Open another page of the book in the same window."""
    page.goto(page.url.rsplit("/", 1)[0] + f"/{name}.html")


def offered(page):
    """What the first page offers to continue with."""
    return [link.inner_text() for link in page.locator(".continue a").all()]


def thrown(visit):
    """Errors of scripts (leaving a page early leaves requests unanswered)."""
    return [wrong for wrong in visit.wrong if wrong.startswith("throws")]


def shows(page, offer, marks):
    """Whether it offers and ticks these, when it is loaded again."""
    return once_loaded_again(
        page, lambda: (offered(page), ticked(page)) == (offer, marks)
    )


def ticked(page):
    """The pages that the table of contents shows as read."""
    marks = page.locator(".bd-sidebar-primary a:has(.read-mark)").all()
    return [mark.text_content().strip() for mark in marks]


def test_progress_is_kept(visit):
    opened = visit(name="index")
    page = opened.page
    assert (offered(page), ticked(page)) == ([], [])  # nothing to continue
    turn_to(page, "next")
    page.mouse.wheel(0, 500)
    page.wait_for_function("scrollY > 0")
    opened.pass_time()
    assert ticked(page) == []  # opened, but not to its takeaway
    turn_to(page, "index")
    assert shows(page, ["Continue with Next"], [])
    page.get_by_text("Continue with Next").click()
    page.wait_for_url("**/next.html")
    page.evaluate("document.getElementById('takeaway').scrollIntoView()")
    page.wait_for_selector(".read-mark", state="attached")
    assert ticked(page) == ["Next ✓(read)"]
    turn_to(page, "index")
    assert shows(page, [], ["Next ✓(read)"])
    turn_to(page, "tiny")
    turn_to(page, "index")
    assert shows(page, ["Continue with Tiny"], ["Next ✓(read)"])
    for scheme in ("light", "dark"):
        opened.theme(scheme)
        assert axe(opened) == []
    page.evaluate("localStorage.clear()")
    # Control: nothing but the storage remembers.
    assert shows(page, [], [])
    assert thrown(opened) == []


def test_progress_that_cannot_be_read_is_none(visit):
    opened = visit(name="next")
    page = opened.page
    page.wait_for_function("localStorage.length")  # it is kept
    turn_to(page, "index")
    assert shows(page, ["Continue with Next"], [])
    for junk in ("{", "7", "null", '{"read": 3, "last": []}'):
        page.evaluate(
            "junk => Object.keys(localStorage).forEach(key =>"
            "key.startsWith('progress:') && localStorage.setItem(key, junk))",
            junk,
        )
        assert shows(page, [], [])
    assert thrown(opened) == []


# -- the source --------------------------------------------------------------
def test_a_question_can_be_linked_and_is_no_heading(book):
    html = book.page()
    assert 'href="#tiny-mean"' in html
    assert '<span class="std std-ref">The mean of x</span>' in html
    assert html.count("<h2") == 0
    toc = html[html.index("</article>") :]
    assert "The mean of" not in toc


WRONG = {
    "has 2 choices, not 3 or 4": (
        ":::{choice} 4, the middle\n(tiny-feedback)=\nFEEDBACK-C.\n:::\n",
        "",
    ),
    "no choice that is marked :correct:": (
        ":correct:\nFEEDBACK-B",
        "FEEDBACK-B",
    ),
    "has no feedback": ("FEEDBACK-D.", ""),
    "no cell tagged predict follows it": (
        "tags: [predict, hide-input, hide-output]",
        "tags: [hide-output]",
    ),
    "neither hide-output nor hide-cell": (
        "tags: [predict, hide-output]",
        "tags: [predict]",
    ),
    "{answer} that no {predict} stands before": (
        "PROSE between.",
        "PROSE\n\n:::{answer}\nToo late.\n:::",
    ),
    "cell tagged predict that no {predict} stands before": (
        "```{code-cell} ipython3\ny = x + 1",
        "Prose.\n\n```{code-cell} ipython3\ny = x + 1",
    ),
    "{choice} outside of a {predict}": (
        "PROSE between.",
        "PROSE\n\n:::{choice} Lost\nIt is.\n:::",
    ),
}


def test_a_wrong_source_fails_the_build(book, tmp_path):
    """All mistakes at once, each on a page of its own; none is executed."""
    broken = test_book.Book(tmp_path)
    toc = ["format: jb-book", "root: book/index", "chapters:"]
    config = (tmp_path / "_config.yml").read_text("utf8")
    broken.write(
        "_config.yml",
        config.replace("execute_notebooks: cache", 'execute_notebooks: "off"'),
    )
    for number, (right, wrong) in enumerate(WRONG.values()):
        assert PAGE.count(right) == 1, right
        broken.write(f"book/p{number}.md", PAGE.replace(right, wrong))
        toc.append(f"  - file: book/p{number}")
    broken.write("book/good.md", PAGE)
    broken.write("_toc.yml", "\n".join([*toc, "  - file: book/good"]))
    done = broken.call("jupyter-book", "build", ".", "-W", "--keep-going")
    assert done.returncode != 0
    lines = done.stdout.splitlines()
    for number, what in enumerate(WRONG):
        mine = [line for line in lines if f"book/p{number}.md" in line]
        assert any(what in line for line in mine), (what, mine)
    good = [line for line in lines if "book/good.md" in line]
    assert not [g for g in good if "predict" in g or "choice" in g]  # control


# -- the order of the choices ------------------------------------------------
QUESTION = re.compile(
    r"^(:{4,})\{(?:predict|question)\} *(.*?)\n(.*?)^\1 *$", re.M | re.S
)
CHOICE = re.compile(r"^(:{3,})\{choice\} *(.*?)\n(.*?)^\1 *$", re.M | re.S)
# Of chi-square, one and the other with the probability 0.05.
MOST = {3: 5.99, 4: 7.81}


def questions(root=ROOT):
    """``{page: [(title, words, numbers of the right choices), ...]}``."""
    found = {}
    for path in sorted(root.glob("book/**/*.md")):
        if path.parent.name == "about":
            continue  # the example of how to write one
        for _, title, body in QUESTION.findall(path.read_text("utf8")):
            choices = CHOICE.findall(body)
            right = [
                number
                for number, (_, _, text) in enumerate(choices)
                if re.match(r"\s*:correct:", text)
            ]
            words = [words for _, words, _ in choices]
            found.setdefault(path.stem, []).append((title, words, right))
    return found


def concentrated(asked, shuffled):
    """What tells the right choice by its place; an empty list if nothing."""
    wrong = []
    places = {size: [0] * size for size in MOST}
    for page, all_of_it in asked.items():
        here = []
        for title, words, right in all_of_it:
            order = shuffled(title, words)
            here.append(tuple(sorted(order.index(n) for n in right)))
            if len(right) == 1:
                places[len(words)][order.index(right[0])] += 1
        if len(here) >= 3 and len(set(here)) == 1:
            wrong.append(f"{page}: the right choice has always one letter")
    for size, times in places.items():
        mean = max(sum(times), 1) / size
        if sum((n - mean) ** 2 / mean for n in times) > MOST[size]:
            wrong.append(f"of {size} choices the right one stands: {times}")
    return wrong


def test_the_place_of_a_choice_tells_nothing(monkeypatch):
    asked = questions()
    assert sum(map(len, asked.values())) > 50
    wrong = concentrated(asked, plain.shuffled)
    ours = sys.modules[plain.shuffled.__module__]
    for seed in range(1000 if wrong else 0):
        monkeypatch.setattr(ours, "SEED", seed)
        if not concentrated(asked, plain.shuffled):
            wrong.append(f"with SEED = {seed} in {ours.__name__} nothing")
            break
    assert wrong == []


def test_a_place_that_tells_is_found():
    asked = {"a": [(str(n), ["x", "y", "z"], [1]) for n in range(20)]}
    wrong = concentrated(asked, lambda title, words: range(len(words)))
    assert len(wrong) == 2
    assert concentrated(asked, plain.shuffled) == []  # control


def test_a_choice_has_its_place_whatever_the_source_says():
    """Else an edit of the source would move a choice that is stored."""
    words = ["two", "three", "five", "seven"]
    shown = [words[n] for n in plain.shuffled("q", words)]
    back = words[::-1]
    assert [back[n] for n in plain.shuffled("q", back)] == shown
    orders = {tuple(plain.shuffled(str(n), words)) for n in range(300)}
    assert len(orders) == 24


def test_the_page_and_the_notebook_have_one_order(book):
    shown = re.findall(r'data-letter="(\w)"', book.page())
    assert shown == list("ABCABCD")
    feedback = r"FEEDBACK-(\w)"
    ours = re.findall(feedback, book.page().split("<article")[1])
    theirs = re.findall(feedback, markdown(book.notebook("readers")))
    assert ours == theirs
    assert ours != list("ABCDEFG")  # control: the source has this order


# -- the notebook that readers get -------------------------------------------
def markdown(notebook):
    cells = (c for c in notebook.cells if c.cell_type == "markdown")
    return "\n\n".join(cell.source for cell in cells)


def test_readers_get_no_output_of_a_prediction(book):
    ours, theirs = book.notebook(), book.notebook("readers")
    for notebook, has in ((ours, True), (theirs, False)):
        cells = [
            cell
            for cell in notebooks.code_cells(notebook)
            if "predict" in cell.metadata.get("tags", [])
        ]
        assert len(cells) == 3
        for cell in cells:
            assert bool(cell.outputs) is has
            assert (cell.execution_count is not None) is has
    kept = [c for c in notebooks.code_cells(theirs) if c.outputs]
    assert kept, "only the predictions lose their outputs"


def test_readers_get_plain_markdown(book):
    text = markdown(book.notebook("readers"))
    assert plain.LEFT.findall(text) == []
    assert "**Predict: The mean of $x$**" in text
    shown = f"<strong>{LETTERS[0]}.</strong> 3.5, for $7 / 2$ is that"
    assert f"<summary>{shown}</summary>" in text
    assert "It is 3.000, by (1)." in text
    assert "\\tag{1}" in text
    closed = re.sub(r"<details.*?</details>", "", text, flags=re.DOTALL)
    for word in ("FEEDBACK", "ANSWER", "CAPTION", "3.000"):
        assert word in text
        assert word not in closed
    assert "PROSE between." in closed
    ours = markdown(book.notebook())  # control: it has the syntax
    assert len(plain.LEFT.findall(ours)) > 10


def test_the_numbers_that_notebooks_quote_are_those_of_the_build():
    """`coursekit notebooks` quotes them without a run; see `drift`."""
    found = ROOT / "_build/numbers.json"
    assert found.exists(), "run `make book` first"
    recorded = (ROOT / plain.NUMBERS).read_text("utf8")
    now = json.loads(found.read_text("utf8"))
    assert notebooks.drift(json.loads(recorded), now) == []


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({"a": {"x:.2f": "2.47", "n": "1,204"}}, 0),
        ({"a": {"x:.2f": "2.49", "n": "1,204"}}, 0),  # another processor
        ({"a": {"x:.2f": "2.47", "n": "1,304"}}, 1),
        ({"a": {"x:.2f": "2.97", "n": "none"}}, 2),
        ({"a": {"x:.2f": "2.47"}, "b": {"y": "1"}}, 2),
    ],
)
def test_a_number_that_has_changed_is_said(now, said):
    recorded = {"a": {"x:.2f": "2.47", "n": "1,204"}}
    lines = notebooks.drift(recorded, now)
    assert len(lines) == said + bool(said)
    assert notebooks.drift({}, now) == []  # a book that records none


PLAIN = {
    "{doc}`the other <../other>`": "the other",
    "{doc}`/other`": "Other page",
    "{term}`causal mask`": "causal mask",
    "{term}`masks <causal mask>`": "masks",
    "{cite:t}`ada`": "Lovelace ([1843](https://doi.org/1/2))",
    "{cite}`ada,two`": (
        "([Lovelace, 1843](https://doi.org/1/2); Holmes and Watson, 1887)"
    ),
    "{cite:p}`nobody`": "(nobody, undated)",
    "{repo}`the file <blob/main/a.py>`": "[the file](https://e/blob/main/a.py)",
    "{repo}`the repository <>`": "[the repository](https://e/)",
    "{py:func}`coursekit.attend`": "`coursekit.attend`",
    "{glue:text}`n:.2f` of `{glue:text}`": "3.14 of `{glue:text}`",
    "a {ref}`box <other-label>`": "a box",
    "see {ref}`other-label`": "see A section",
    "(x)=\n% no\n<!-- numbers: by hand -->\nText": "Text",
    "```{note}\nBe *warned*.\n```": "> **Note**\n>\n> Be *warned*.",
    ":::{dropdown} Why $a<b$ and `c`?\nSo.\n:::": (
        f"{plain.CLOSED}<summary>Why $a&lt;b$ and <code>c</code>?"
        "</summary>\n\nSo.\n\n</details>"
    ),
    "- item\n\n  ```{dropdown} In\n  it\n  ```": (
        f"- item\n\n  {plain.CLOSED}<summary>In</summary>\n\n  it\n\n"
        "  </details>"
    ),
    "````{exercise} ★ Do\n:label: e\n\nIt.\n```python\n:::{x}\n```\n````": (
        "**Exercise.** **★ Do**\n\nIt.\n```python\n:::{x}\n```"
    ),
    "```{code-block} sh\nls\n```": "```sh\nls\n```",
    "```{math}\na^2\n```": "$$\na^2\n$$",
    "```{here}\n```": "",
    "A <!-- numbers: by hand -->b<!-- numbers: end -->.": "A b.",
    "$a `b` {x}`c`$ and {term}`d`": "$a `b` {x}`c`$ and d",
    "a \\`{term}`b` `` `c` ``\\\n\\*d*": "a \\`b `` `c` ``\\\n\\*d*",
    "- a {term}`b\n  c`\n- (x)=\n  `d`": "- a b c\n-\n  `d`",
    "> {term}`b`\n> `c`": "> b\n> `c`",
    "- ```{note}\n  It.\n  ```": "- > **Note**\n  >\n  > It.",
    "| {term}`a` | b |\n|---|---|\n| c | `d` |": (
        "| a | b |\n|---|---|\n| c | `d` |"
    ),
    "```python\na\n\n\nb\n```\n\n\n\nc": "```python\na\n\n\nb\n```\n\nc",
    "    {term}`a`": "    {term}`a`",
    "$$\na\n$$ (other-sum)": "$$\na\n\\tag{1}\n$$",
}


def plain_page(tmp_path, base=""):
    """A page of a book of two, with a bibliography and measured costs."""
    (tmp_path / "references.bib").write_text(
        "@book{ada, author={Lovelace, Ada}, year={1843}, doi={1/2}}\n"
        "@book{two, author={Holmes, S. and Watson, J.}, year={1887}}\n"
    )
    (tmp_path / "results").mkdir()
    (tmp_path / "results/chapters.json").write_text(
        '{"metrics": {"pages": {"book/a": {"seconds": 12.3, "megabytes": 9}}}}'
    )
    other = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_markdown_cell(
                "# Other page\n\n(other-label)=\n## A section\n\n"
                "$$\na\n$$ (other-sum)"
            )
        ]
    )
    (tmp_path / "pyproject.toml").write_text(
        "[project.urls]\n"
        f'Repository = "https://e/"\nDocumentation = "{base}"\n'
    )
    ran = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("glue()")])
    prefix = "application/papermill.record/"
    ran.cells[0].outputs = [
        nbformat.v4.new_output(
            "display_data",
            {prefix + "text/plain": "3.14159"},
            metadata={"scrapbook": {"name": "n", "mime_prefix": prefix}},
        )
    ]
    book = plain.Pages(tmp_path, {}, {"other": other, "book/a": ran})
    return plain.Page(book, "book/a", ran)


def test_what_myst_says_is_said_in_markdown(tmp_path):
    page = plain_page(tmp_path)
    assert {source: page.convert(source) for source in PLAIN} == PLAIN


def test_links_lead_to_the_book_if_it_has_an_address(tmp_path):
    page = plain_page(tmp_path, "https://book.example/")
    link = "[box](https://book.example/other.html#other-label)"
    assert page.convert("{ref}`box <other-label>`") == link
    link = "[Other page](https://book.example/other.html)"
    assert page.convert("{doc}`../other`") == link


def test_what_is_left_is_found():
    for planted in (
        ":::{note}",
        "a\n```{note}",
        "x {glue:text}`n` y",
        "{ref}`x`",
        "(label)=",
        "<!-- numbers -->",
        "{{ repository }}",
    ):
        assert plain.LEFT.findall(planted), planted
    assert plain.LEFT.findall("$\\mathrm{x}$ `a` (b) = c\n```python") == []


# -- the first cell in Colab -------------------------------------------------
def told_pip(monkeypatch, present):
    """Run it where only ``present`` can be imported; what pip was told."""
    calls = []

    def run(command, **options):
        calls.append(command)
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(subprocess, "run", run)
    specs = {name: SimpleNamespace(origin=f"{name}.py") for name in present}
    monkeypatch.setattr(importlib.util, "find_spec", specs.get)
    text = install.install_cell("https://e/x")
    exec(compile(text, "install", "exec"), {"__name__": "__main__"})
    for call in calls:
        assert call[:5] == [sys.executable, "-P", "-m", "pip", "install"]
    return [" ".join(call[7:]) for call in calls]


def test_the_first_cell_never_replaces_torch(monkeypatch):
    colab = {"torch", "numpy", "tqdm", "matplotlib", "regex", "safetensors"}
    told = told_pip(monkeypatch, colab)
    assert told == ["--no-deps git+https://e/x", "jaxtyping"]
    assert "torch" not in " ".join(told)
    bare = told_pip(monkeypatch, set())  # control: without it, it comes
    assert bare == ["--no-deps git+https://e/x", " ".join(install.NEEDS)]
    everything = {*install.NEEDS}
    assert len(told_pip(monkeypatch, everything)) == 1
    assert told_pip(monkeypatch, {"coursekit"}) == []


def said_instead(monkeypatch, address, done):
    """The error of the cell where nothing can be imported, as it is shown."""
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: done)
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None)
    text = install.install_cell(address)
    with pytest.raises(Exception, match="package of the book") as caught:
        exec(compile(text, "install", "exec"), {"__name__": "__main__"})
    [shown] = caught.value._render_traceback_()
    assert str(caught.value) == shown
    assert re.fullmatch(r"[A-Z][^\n]+\.", shown)
    return shown


def test_the_first_cell_fails_in_one_plain_message(monkeypatch):
    """With what pip said last, not with pip's traceback and ours."""
    lines = ["  × git", "      fatal: no network", "note: not pip's fault"]
    failed = SimpleNamespace(returncode=1, stderr="\n".join(lines))
    shown = said_instead(monkeypatch, "https://e/x", failed)
    assert "pip says “no network”. Check" in shown
    assert "https://e/x" in shown
    silent = SimpleNamespace(returncode=7, stderr="")
    shown = said_instead(monkeypatch, "https://e/x", silent)
    assert "“exit code 7”" in shown


def test_without_an_address_the_first_cell_says_what_to_do(monkeypatch):
    shown = said_instead(monkeypatch, "", None)
    assert "`pip install .`" in shown
    assert "subprocess" not in install.install_cell("")
    there = SimpleNamespace(origin="coursekit/__init__.py")
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: there)
    exec(install.install_cell(""), {})  # with the package, it does nothing


def test_the_first_cell_names_what_the_package_needs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))
    needs = project["project"]["dependencies"]
    names = [re.match(r"[\w-]+", need)[0] for need in needs]
    assert list(install.NEEDS) == [*names, "matplotlib"]
