"""What a chapter carries: goals, lesson lines, a build step, recall.

A small book is built with a lesson of its own (`FAKE`), so that what is
shown and what is new are known here.
"""

import json
import os
import re

import nbformat
import pytest
import test_book
from bs4 import BeautifulSoup
from test_book import notebooks
from test_pages import Visit, axe

from coursekit_classroom.check import core
from coursekit_classroom.check.report import Report
from coursekit_classroom.notebooks.plain import number_of

# Of the workers, one starts the two servers that small books are built with.
pytestmark = pytest.mark.xdist_group("small books")

import chapter_parts  # noqa: E402
import course_pages  # noqa: E402
import lessons  # noqa: E402  test_book has put sphinx_ext on the path
import page_count  # noqa: E402

# Stands for coursekit_classroom.lesson and coursekit.minimal in every process.
FAKE = '''
import sys, types

PARTS = {
    ("scale", 3): "def scale(x):\\n    return x",
    ("scale", 4): "def scale(x):\\n    # by the size\\n    return x / SIZE",
    ("mix", 4): "def mix(x):\\n    return scale(x) @ torch.ones(2)",
    ("Head", 4): """class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = 3

    def forward(self, x):
        return self.gain * mix(x)""",
    ("Head.forward", 4): "def forward(self, x):\\n"
        "    return self.gain * mix(x)",
}
NEW = {("scale", 4): {2, 3}, ("mix", 4): {1, 2}, ("Head.forward", 4): {2}}

def part(name, chapter):
    if (name, chapter) not in PARTS:
        raise ValueError(f"a part is scale or mix: got {name!r}")
    return PARTS[name, chapter]

lesson = types.ModuleType("coursekit_classroom.lesson")
lesson.part = part
lesson.new_lines = lambda name, chapter: NEW.get((name, chapter), set())
lesson.file_of = lambda name, chapter: "minimal.py"
lesson.LAST_CHAPTER = 4
import coursekit
lesson.PACKAGE = coursekit.__path__[0]
lesson.parts = lambda chapter: [n for n, at in PARTS if at <= chapter]
HEAD, OLD, NEWER = "def scale(x):", "    return x", "    return 2 * x"
DIFF = {"doubled": [(" ", HEAD), ("-", OLD), ("+", NEWER)]}
lesson.diff = lambda name, edit: DIFF[edit]
sys.modules["coursekit_classroom.lesson"] = lesson

yourfile = types.ModuleType("coursekit_classroom.yourfile")  # reads the lesson
yourfile.last_lines = lambda chapter: f"chapter = {chapter}"
sys.modules["coursekit_classroom.yourfile"] = yourfile

walk = types.ModuleType("coursekit_classroom.live.walk")
walk.LINES = {}  # it quotes the lesson, which has no such lines here
walk.PLACES = walk.TITLES = {}  # there is no page of the walk
sys.modules["coursekit_classroom.live.walk"] = walk

minimal = types.ModuleType("coursekit.minimal")
def attribute(name):
    if name == "SIZE":
        return 7
    if name == "torch":
        import torch
        return torch
    if name == "nn":
        from torch import nn
        return nn
    raise AttributeError(name)
minimal.__getattr__ = attribute
sys.modules["coursekit.minimal"] = minimal
'''
PAGE = (
    test_book.TINY.split("# Tiny")[0]
    + r"""
# Tiny

:::{goals}
- compute $x$ by hand,
- write it in six lines.
:::

BEFORE.

```{lesson} scale, mix
```

BETWEEN.

```{lesson} Head.forward
```

```{code-cell} ipython3
import torch

torch.set_num_threads(1)
print("SEEN", 5)
```

```{lesson} scale
:chapter: 3
```

```{lesson} scale
:edit: doubled
```

:::::{still-there}
::::{question} What is a row?
:::{choice} A token's vector
:correct:
RIGHT.
:::
:::{choice} A dimension
WRONG-ONE.
:::
:::{choice} A head
WRONG-TWO.
:::
::::
::::{question} What is a column?
The second.

:::{choice} Six
WRONG-THREE.
:::
:::{choice} Seven
:correct:
RIGHT-TOO.
:::
:::{choice} Eight
WRONG-FOUR.
:::
::::
::::{question} What is a bias?
:::{choice} Ten
WRONG-FIVE.
:::
:::{choice} Eleven
:correct:
RIGHT-AGAIN.
:::
:::{choice} Twelve
WRONG-SIX.
:::
::::
:::::

:::{step} 4 Look back
Write `attention` into *your* file.
:::

## Exercises

Not counted.
"""
)
# Pages of four kinds, with the same things to be numbered on each.
NUMBERED = """# {title}

({name}-here)=
## A section

({name}-plain)=
A paragraph has no title.

$$
a = b
$$ (eq-{name})

```{{table}} A caption
:name: tab-{name}

| a | b |
|---|---|
| 1 | 2 |
```

````{{exercise}} ★ Do it
:label: ex-{name}

Do.
````

It is {{eq}}`eq-{name}`, {{numref}}`tab-{name}`, {{numref}}`ex-{name}`; in
chapter 0 it was {{eq}}`eq-zero` and {{numref}}`tab-zero`.
"""
PAGES = {
    "book/00_zero": "Zero",
    "book/further/04_tiny": "More",
    "book/last": "Last",
}
TOC = """format: jb-book
root: book/index
chapters:
  - file: book/00_zero
  - file: book/04_tiny
    sections:
      - file: book/further/04_tiny
  - file: book/last
"""
COSTS = {"metrics": {"pages": {"book/04_tiny": {}}}}
COSTS["metrics"]["pages"]["book/04_tiny"] = {"seconds": 7, "megabytes": 700}


class Book(test_book.Book):
    """A book of one chapter, with the lesson above."""

    def __init__(self, root, text=PAGE):
        super().__init__(root)
        (root / "book/tiny.md").unlink()
        self.write("_toc.yml", TOC)
        for name, title in PAGES.items():
            short = title.lower()
            self.write(f"{name}.md", NUMBERED.format(title=title, name=short))
        self.write("book/04_tiny.md", text)
        self.write("fake/sitecustomize.py", FAKE)
        self.write("results/chapters.json", json.dumps(COSTS))
        path = [str(root / "fake"), self.env["PYTHONPATH"]]
        self.env["PYTHONPATH"] = os.pathsep.join(path)

    def page(self, name="book/04_tiny"):
        return (self.root / f"_build/html/{name}.html").read_text("utf8")

    def notebook(self, kind="notebooks"):
        path = self.root / "_build" / kind / "book/04_tiny.ipynb"
        return nbformat.read(path, as_version=4)


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    return Book(tmp_path_factory.mktemp("parts")).build()


@pytest.fixture(scope="module")
def page(book):
    return BeautifulSoup(book.page(), "html.parser").article


# -- lesson lines ------------------------------------------------------------
def test_a_lesson_shows_its_parts_and_what_is_new(page):
    first, second, third, fourth = page.select(".lesson")
    code = first.select_one("pre").get_text()
    assert code.strip("\n") == (
        "def scale(x):\n    # by the size\n    return x / SIZE\n\n\n"
        "def mix(x):\n    return scale(x) @ torch.ones(2)"
    )
    head = " ".join(first.select_one(".lesson-head").get_text().split())
    assert head == "minimal.py · chapter 4 new in this chapter: lines 2–7"
    assert [mark.get_text().strip("\n") for mark in first.select("ins")] == [
        "    # by the size\n    return x / SIZE",
        "def mix(x):\n    return scale(x) @ torch.ones(2)",
    ]
    assert "new in this chapter: line 2" in second.get_text()
    old = third.select_one(".lesson-head").get_text()
    assert old.strip() == "minimal.py · chapter 3"  # control: nothing is new
    assert third.select("ins, .hll") == []
    head = " ".join(fourth.select_one(".lesson-head").get_text().split())
    assert head == "minimal.py · edited changed: line 3"
    assert fourth.select_one("del").get_text() == "    return x\n"
    assert fourth.select_one("ins").get_text() == "    return 2 * x\n"


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (set(), ""),
        ({2}, "line 2"),
        ({1, 2}, "lines 1–2"),
        ({2, 5}, "lines 2–5"),  # between them there is nothing
        ({1, 5, 7}, "lines 1, 5 and 7"),
        ({1, 2, 5, 6, 7}, "all lines"),
    ],
)
def test_new_lines_in_words(new, words):
    assert lessons.in_words(new, "a\nb\n\n\ne\nf\ng") == words


def test_a_lesson_that_does_not_exist_fails_the_build(tmp_path):
    text = PAGE.replace("scale, mix", "scale, blend")
    with pytest.raises(AssertionError, match="blend"):
        Book(tmp_path, text).build()


def test_readers_can_run_the_lines(book):
    theirs = notebooks.code_cells(book.notebook("readers"))
    ours = notebooks.code_cells(book.notebook())
    assert len(ours) == 1
    assert len(theirs) == 1 + 1 + 4  # the installation, and the lessons
    script = "\n\n".join(cell.source for cell in theirs)
    script += "\n\nprint(Head()(torch.full((2,), 7.0)).item())"
    book.write("reader.py", script)
    done = book.call("python", "reader.py")
    # The edited `scale`, the last that was run, doubles and does not divide.
    assert done.stdout.split() == ["SEEN", "5", "84.0"], done.stdout
    first = theirs[1].source
    imports = "import torch\nfrom coursekit.minimal import SIZE\n"
    assert first.startswith(imports)
    assert "import" not in theirs[4].source
    assert "class Head(nn.Module):" in theirs[2].source
    text = markdown(book.notebook("readers"))
    assert text.index("BEFORE") < text.index("BETWEEN")


# -- numbers -----------------------------------------------------------------
def text_of(element):
    return " ".join(element.get_text().replace("#", "").split())


@pytest.mark.parametrize(
    ("name", "number", "first"),
    [
        ("book/00_zero", "0 ", "0.1"),
        ("book/further/04_tiny", "4F ", "4F.1"),
        ("book/last", "", "1"),  # control: a page without a number
    ],
)
def test_numbers_go_by_chapter(book, name, number, first):
    page = BeautifulSoup(book.page(name), "html.parser").article
    assert text_of(page.h1) == f"{number}{PAGES[name]}"
    assert text_of(page.h2) == "A section"
    article = text_of(page)
    assert f"Table {first} A caption" in article
    assert f"Exercise {first} (★ Do it)" in article
    assert f"It is ({first}), Table {first}, Exercise {first}; in" in article
    assert "it was (0.1) and Table 0.1." in article


def test_the_sidebar_has_the_numbers(book):
    page = BeautifulSoup(book.page(), "html.parser")
    links = page.select(".bd-sidebar-primary nav a.internal")
    titles = ["Front", "0 Zero", "4 Tiny", "4F More", "Last"]
    assert [text_of(link) for link in links] == titles
    inner = links[3].find_parent("ul").find_parent("li")  # below its chapter
    assert text_of(inner.find("a")) == "4 Tiny"


def test_two_further_pages_of_a_chapter_have_two_numbers():
    """The one named as the chapter comes first, whatever its name."""
    pages = ["book/04_tiny", "book/further/04_a", "book/further/04_tiny"]
    pages += ["book/05_b", "book/further/05_b", "book/last"]
    found = [number_of(page, pages) for page in reversed(pages)]
    assert found == ["", "5F", "5", "4F1", "4F2", "4"]


def test_a_notebook_has_the_same_numbers():
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_markdown_cell("$$\na\n$$ (eq-a)")]
    )
    names = ("book/00_zero", "book/further/04_tiny", "book/last")
    for name, number in zip(names, ("0.1", "4F.1", "1"), strict=True):
        pages = notebooks.plain.Pages(".", {}, {name: notebook})
        assert pages.equations == {"eq-a": number}


def test_a_report_on_a_page_below_leads_up():
    """To the built page, whatever the report said in the kernel."""
    bug = next(iter(core.find("attention/attend").bugs.values()))
    report = Report("a/b", "wrong", "", mistakes=((bug,),))
    for name in ("book/04_attention", "book/further/04_attention"):
        context = {"body": report._repr_html_()}
        assert "Read again: chapter 4, attention: " in context["body"]
        course_pages.repair_roles(None, name, "", context, None)
        up = "../" if "further" in name else ""
        link = f'<a href="{up}04_attention.html#att-'
        assert link in context["body"]


def test_no_point_stands_alone_in_the_line_after_a_formula():
    formula = '<span class="math notranslate nohighlight">\\(x\\)</span>'
    context = {"body": f"With {formula}, then {formula} alone."}
    course_pages.repair_roles(None, "book/04_attention", "", context, None)
    tied = f'<span class="punctuated">{formula},</span>'
    assert context["body"] == f"With {tied} then {formula} alone."


# -- goals, the build step, recall -------------------------------------------
def markdown(notebook):
    cells = (c for c in notebook.cells if c.cell_type == "markdown")
    return "\n\n".join(cell.source for cell in cells)


def test_goals_say_what_reading_and_running_take(book, page):
    box = page.select_one("h1 + .goals")
    lines = [" ".join(p.get_text().split()) for p in box.select("p")]
    assert lines[0] == "By the end of this chapter you can"
    assert len(box.select("ul > li")) == 2
    counted = page_count.count(book.page())
    assert lines[-1] == (
        f"Reading: about {counted.minutes:.0f} minutes. "
        "The code runs in 7 seconds on one core, in 0.7 GB."
    )
    assert "<!-- reading" not in book.page()


def test_a_build_step_is_a_box(page):
    box = page.select_one(".build-step")
    title = box.select_one(".admonition-title").get_text()
    assert title == "Your file, step 4: Look back"
    assert box.select_one("code").get_text() == "attention"
    assert box.select_one("pre").get_text() == "chapter = 4\n"


def test_plain_markdown_for_readers(book):
    text = markdown(book.notebook("readers"))
    assert notebooks.plain.LEFT.findall(text) == []
    assert "**By the end of this chapter you can**" in text
    assert "> **Your file, step 4: Look back**" in text
    assert "\n> ```python\n> chapter = 4\n> ```\n" in text
    assert "**What is a row?**" in text
    closed = re.sub(r"<details.*</details>", "", text, flags=re.DOTALL)
    assert "What is a row?" not in closed
    assert "RIGHT" not in closed


@pytest.fixture
def visit(browser, book):
    """The page, as somebody sees it."""
    folder = (book.root / "_build/html").as_uri() + "/"
    visit = Visit(browser, folder, 1280, "light")
    yield visit.open(f"{folder}book/04_tiny.html")
    visit.close()


def test_recall_is_one_line_that_opens_by_key(visit):
    page = visit.page
    box = page.locator(".still-there")
    assert box.bounding_box()["height"] < 60
    assert not page.get_by_text("What is a row?").is_visible()
    box.locator("> summary").focus()
    page.keyboard.press("Enter")
    assert page.get_by_text("What is a row?").is_visible()
    button = page.locator(".predict-option > button", has_text="A dimension")
    assert "WRONG-ONE" not in box.inner_text()
    button.focus()
    page.keyboard.press("Enter")
    assert "WRONG-ONE" in box.inner_text()
    assert "RIGHT." not in box.inner_text()
    status = page.get_by_role("status").first.inner_text()
    assert re.fullmatch(r"You chose [ABC]\. Right is [ABC]\.", status)


def test_recall_works_without_a_script(browser, book):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((book.root / "_build/html/book/04_tiny.html").as_uri())
    for summary in page.locator(".still-there summary").all():
        summary.click()
    assert "WRONG-SIX" in page.locator(".still-there").inner_text()
    context.close()


def test_the_parts_are_for_everybody(visit):
    """The bar is seen, too: 3:1 is what a mark that is no text needs."""
    visit.page.locator(".still-there > summary").click()
    for width, scheme in ((1280, "light"), (360, "dark")):
        visit.resize(width)
        visit.theme(scheme)
        assert visit.look() == []
        assert axe(visit) == []
        bar, ground = visit.page.evaluate(
            """() => {
              const mark = document.querySelector(".lesson ins");
              const pre = getComputedStyle(mark.closest(".highlight"));
              return [getComputedStyle(mark).borderLeftColor,
                      pre.backgroundColor];
            }"""
        )
        assert contrast(bar, ground) >= 3, (scheme, bar, ground)


def contrast(*colors):
    """The ratio that WCAG defines, of two colors as CSS computes them."""
    found = []
    for color in colors:
        values = [int(n) / 255 for n in re.findall(r"\d+", color)[:3]]
        linear = [
            v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4
            for v in values
        ]
        weights = (0.2126, 0.7152, 0.0722)
        found.append(sum(w * v for w, v in zip(weights, linear, strict=True)))
    return (max(found) + 0.05) / (min(found) + 0.05)


def test_contrast_is_that_of_wcag():
    assert contrast("rgb(0, 0, 0)", "rgb(255, 255, 255)") == pytest.approx(21)
    assert contrast("rgb(118, 118, 118)", "rgb(255, 255, 255)") == (
        pytest.approx(4.54, abs=0.01)
    )


class Builder:
    """What of Sphinx a link needs."""

    def __init__(self, *pages):
        self.builder = self
        self.env = self
        self.found_docs = pages

    def get_relative_uri(self, start, page):
        return page.split("/")[-1] + ".html"


def test_a_chapter_leads_to_the_step_that_says_it_is_its_own():
    """The list of the walk's page names the chapters of each step."""
    text = (test_book.ROOT / "book/walk.md").read_text("utf8")
    steps = re.split(r"^\d+\. ", text.split("## The twelve")[1], flags=re.M)
    own = {
        int(chapter): re.findall(r"\(walk-(\w+)\)=", step)
        for step in steps
        for chapter in re.findall(r"book/(\d\d)_", step)
    }
    assert set(own) == set(chapter_parts.PLACES)
    app = Builder("book/walk")
    for chapter, place in chapter_parts.PLACES.items():
        link = chapter_parts.way_to_walk(app, f"book/{chapter:02}_x")
        assert f'href="walk.html#walk-{place}"' in link
        # Chapter 4 has three steps.
        assert str(place) in own[chapter] or chapter == 4
    assert "walk-5" in text
    for page in ("book/13_encoder", "book/index", "book/further/04_attention"):
        assert chapter_parts.way_to_walk(app, page) == ""
    assert chapter_parts.way_to_walk(Builder(), "book/04_x") == ""


def test_the_map_marks_the_page_and_what_makes_up_a_block():
    """Chapters 4 to 8 are one item; every name can be read out."""
    known = [(n, f"book/{n:02}_x", f"Name {n}") for n in (0, 3, 4, 8, 9)]
    drawn = chapter_parts.draw(known, "book/04_x", lambda page: page + ".html")
    found = BeautifulSoup(drawn, "html.parser")
    assert [a["href"] for a in found.find_all("a")] == [
        f"book/{n:02}_x.html" for n in (0, 3, 8, 9)
    ]
    [here] = found.select("[aria-current]")
    assert here.get_text() == "4 Name 4"
    [block] = found.select(".block")
    inner = [li.get_text() for li in block.select("li")]
    assert inner == ["4 Name 4", "8 Name 8"]
    assert len(found.ol.find_all("li", recursive=False)) == 4
    other = chapter_parts.draw(known, "book/index", lambda page: page)
    assert "aria-current" not in other  # the control
