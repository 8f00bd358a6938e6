"""How far apart open pictures are, and how large their labels on a phone.

Both are measured on the built pages, in Chromium, and held against
``budgets.toml``: on all pages of chapters, on the first page, the primer and
the notation. A page is measured up to its exercises, which are worked on and
not read, or up to the takeaways where these come first. What is folded or
waits for a prediction is no open picture.
"""

import re
import sys
import tomllib
from pathlib import Path

import picture_sizes
import pytest
import test_pages

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "sphinx_ext"))

from notebooks import pages  # noqa: E402

HTML = ROOT / "_build" / "html"
BUDGET = tomllib.loads((ROOT / "tests" / "budgets.toml").read_text("utf8"))[
    "pictures"
]
MEASURED = [
    page for page in pages(ROOT) if re.fullmatch(picture_sizes.PAGES, page)
]
ONE_TAB = pytest.mark.xdist_group("pictures")


@pytest.fixture(scope="module")
def measure(browser):
    """``measure(url)``: the longest stretch, and the labels by figure."""
    tab = browser.new_page()

    def ask(url):
        tab.goto(url)
        return picture_sizes.screens(tab), picture_sizes.labels(tab)

    yield ask
    tab.close()


def over(page, screens, labels):
    """What is beyond its budget, in words."""
    most = BUDGET["further" if "/further/" in page else "main"]["screens"]
    wrong = [f"{screens:.2f} screens without a picture"] * (screens > most)
    return wrong + [
        f"{name}: a label of {size:.1f} px"
        for name, size in labels.items()
        if size < BUDGET["label"]
    ]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(p, marks=pytest.mark.xdist_group(f"{p}.html"))
        for p in MEASURED
    ],
)
def test_pictures_are_near_and_their_labels_legible(page, measure):
    found = test_pages.MEASURED.get(f"{page}.html")  # by the same worker
    found = found or measure((HTML / f"{page}.html").as_uri())
    screens, labels = found
    smallest = min(labels.values(), default=0)
    print(f"{page}: {screens:.2f} screens, labels from {smallest:.1f} px")
    assert labels
    assert over(page, screens, labels) == []


PAGE = """<article class="bd-article" style="display:block;width:327px">
<div style="height:{above}px"></div>
<span class="picture" style="display:block"><svg viewBox="0 0 400 100"
style="display:block;width:100%"><text style="font-size:{size}px">a</text>
</svg></span>
<details><summary>b</summary><span class="picture">folded</span></details>
<div style="height:{below}px"></div><h2>Exercises</h2>
<div style="height:9000px"></div></article>"""


@ONE_TAB
@pytest.mark.parametrize(
    ("above", "below", "size", "wrong"),
    [
        (900, 900, 12, []),
        (1850, 900, 12, ["screens"]),
        (900, 1850, 12, ["screens"]),
        (900, 900, 8, ["label"]),
    ],
)
def test_what_is_too_far_or_too_small_is_found(
    above, below, size, wrong, measure, tmp_path
):
    page = tmp_path / "page.html"
    page.write_text(PAGE.format(above=above, below=below, size=size), "utf8")
    found = over("book/04_a", *measure(page.as_uri()))
    assert len(found) == len(wrong)
    assert all(w in f for w, f in zip(wrong, found, strict=True))


def test_all_chapters_are_measured():
    chapters = list((ROOT / "book").glob("[0-9]*.md"))
    main = [page for page in MEASURED if "further" not in page]
    assert len(main) == 3 + len(chapters) > 20
