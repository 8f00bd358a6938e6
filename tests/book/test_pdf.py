"""The book as a PDF: three of its pages, printed, and read by PDFium.

What is asked of them is asked of a document with planted mistakes too, which
has to fail each question.
"""

import itertools
import re
import sys
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import pikepdf
import pypdfium2
import pypdfium2.raw as pdfium
import pytest
from bs4 import BeautifulSoup

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "sphinx_ext"))

import pdf  # noqa: E402

HTML = ROOT / "_build" / "html"
ATTENTION, FURTHER, NOTATION = PAGES = [
    "book/04_attention.html",
    "book/further/14_translator.html",
    "book/notation.html",
]
FRONT = 2  # the title page and the contents
# Of the paper, in fractions: where text may stand (pdf.css has millimeters).
TOP, LEFT, RIGHT = 24 / 297, 25 / 210, 1 - 20 / 210

pytestmark = pytest.mark.xdist_group("pdf")


class Book:
    """A PDF, as PDFium reads it."""

    def __init__(self, path):
        self.path = path
        self.pdf = pypdfium2.PdfDocument(path)
        self.pages = list(self.pdf)
        self.heads, self.texts = [], []
        for page in self.pages:
            text, height = page.get_textpage(), page.get_height()
            edge = height * (1 - TOP) + 1
            self.heads.append(squeezed(text.get_text_bounded(bottom=edge)))
            self.texts.append(squeezed(text.get_text_bounded(top=edge)))

    def bookmarks(self):
        """``(level, title, number of the page)`` of each."""
        return [
            (mark.level, mark.get_title(), mark.get_dest().get_index() + 1)
            for mark in self.pdf.get_toc()
        ]

    def ink(self, number, darker=250):
        """Where a page is not white, as an array of rows, without its head."""
        picture = self.pages[number - 1].render(scale=0.5, grayscale=True)
        pixels = picture.to_numpy().squeeze() < darker
        return pixels[int(TOP * len(pixels)) :]

    def images(self):
        """How many bitmaps it has."""
        kind = pdfium.FPDF_PAGEOBJ_IMAGE
        return sum(
            len(list(page.get_objects(filter=[kind], max_depth=15)))
            for page in self.pages
        )

    def links(self):
        """``(names in the PDF that links lead to, addresses)``."""
        inside, outside = set(), set()
        with pikepdf.open(self.path) as book:
            for page in book.pages:
                for one in page.get("/Annots", []):
                    if "/Dest" in one:
                        inside.add(str(one.Dest).removeprefix("/"))
                    else:
                        outside.add(str(one.A.URI))
        return inside, outside


def squeezed(text):
    """Without spaces, which a line that wraps has elsewhere."""
    # PDFium's sign for a hyphen at the end of a line.
    return re.sub(r"\s", "", text.replace("\x02", "-"))


def printed(browser, folder, source):
    """Print an HTML document, and read it."""
    (folder / "book.html").write_text(source, "utf8")
    count = pdf.write(browser, folder / "book.html", folder / "book.pdf")
    book = Book(folder / "book.pdf")
    assert count == len(book.pages)
    return book


@pytest.fixture(scope="module")
def book(browser, tmp_path_factory):
    pages = [page for page in pdf.contents(HTML) if page.path in PAGES]
    assert [page.path for page in pages] == PAGES
    source = pdf.document(HTML, pages, pdf.about(ROOT))
    return printed(browser, tmp_path_factory.mktemp("pdf"), source)


PLANTED = """<!doctype html><html lang="en"><title>t</title>
<link rel="stylesheet" href="{css}">
<style>.new {{ break-before: page }}</style>
<script>MathJax = {{startup: {{promise: Promise.resolve()}}}}</script>
<h1 id="top">Planted</h1><a href="#top">to the top</a>
<p>LOST: <span hidden>this is not shown</span></p>
<p class="new">Contents</p>
<p class="new">A page with a line.</p>
<p class="new">&nbsp;</p>
<div class="new"><pre>x = {wide}</pre>
<img src="data:image/gif;base64,{gif}">
<a href="book/nowhere.html">to a file</a></div>
<div class="new" style="background: #222; height: 200mm">
</div>"""
GIF = "R0lGODlhAQABAIAAAP///wAAACwAAAAAAQABAAACAkQBADs="


@pytest.fixture(scope="module")
def planted(browser, tmp_path_factory):
    """A document with a mistake of each kind."""
    css = (ROOT / "sphinx_ext" / "pdf.css").as_uri()
    source = PLANTED.format(css=css, gif=GIF, wide=" + wide" * 40)
    return printed(browser, tmp_path_factory.mktemp("planted"), source)


@pytest.fixture(scope="module")
def articles():
    """The articles of the printed pages, parsed."""
    return {
        page: BeautifulSoup(
            (HTML / page).read_text("utf8"), "lxml"
        ).select_one("article.bd-article")
        for page in PAGES
    }


def test_all_pages_are_in_the_contents():
    built = {
        str(path.relative_to(HTML)) for path in (HTML / "book").rglob("*.html")
    }
    pages = pdf.contents(HTML)
    assert {page.path for page in pages} == built
    assert pages[0].path == pdf.START
    parts = list(dict.fromkeys(page.part for page in pages))
    assert parts[:2] == ["", "Before you start"]
    assert parts[-1] == "Back matter"


def test_bookmarks_contents_and_page_numbers_agree(book):
    marks = book.bookmarks()
    begins = {title: number for _, title, number in marks}
    assert [title for level, title, _ in marks if level == 0] == [
        *("The Executable Transformer", "Contents"),
        *(
            "II. Attention",
            "V. Understanding and translating",
            "Back matter",
        ),
    ]
    # A chapter under its part, its sections under it.
    levels = {title: level for level, title, _ in marks}
    assert levels["4 Attention"] == 1
    assert levels["Who was tired?"] == levels["Exercises"] == 2
    for _, title, number in marks:
        assert squeezed(title) in book.texts[number - 1]
    for number, head in enumerate(book.heads[1:], 2):
        assert head.endswith(str(number))
        if number < begins["Notation"]:
            assert not head.startswith("Notation")
    contents = book.texts[1]
    for title in ("Notation", "4 Attention"):
        assert f"{squeezed(title)}{begins[title]}" in contents


def test_a_chapter_begins_on_a_new_page(book):
    marks = {title: number for _, title, number in book.bookmarks()}
    for title, before in (
        ("4 Attention", "II. Attention"),
        ("Notation", "Back matter"),
    ):
        text = book.texts[marks[title] - 1]
        assert text.startswith(squeezed(before + title))


def stands(line, texts):
    """Whether a line is on a page, or begins on one and ends on the next.

    Boxes are painted after the paragraphs of their page, so they may stand
    between the two parts.
    """
    return any(line in text for text in texts) or any(
        line[:n] in here and line[n:] in there
        for here, there in itertools.pairwise(texts)
        for n in range(1, len(line))
    )


def unseen(book, articles):
    """Paragraphs and lines of code that the PDF has not, of all pages."""
    found = []
    for article in articles.values():
        for tag in article.select("p, pre, td, svg text, li > p"):
            if tag.select_one(".math, math") or tag.find_parent(class_="here"):
                continue
            if tag.find_parent("summary"):  # "Show the result"
                continue
            words = tag.get_text()
            for line in words.splitlines() if tag.name == "pre" else [words]:
                line = squeezed(line).removesuffix("#")
                if line and not stands(line, book.texts):
                    found.append(line)
    return found


def test_nothing_is_missing(book, planted, articles):
    assert unseen(book, articles) == []
    lost = BeautifulSoup("<p>LOST: this is not shown</p>", "lxml")
    assert unseen(planted, {"": lost}) == ["LOST:thisisnotshown"]
    # What is closed on the screen: the result behind a prediction, and what
    # each choice is told.
    for part in (".tag_predict .cell_output", ".predict-feedback p"):
        assert articles[ATTENTION].select(part)


def unfilled(book, starts):
    """Pages of which less than a third is filled, but for a chapter's last.

    Args:
        book: what to look at.
        starts: the numbers of the pages on which something begins.
    """
    last = {number - 1 for number in starts} | {len(book.pages)}
    found = []
    for number in range(FRONT + 1, len(book.pages) + 1):
        rows = book.ink(number).any(axis=1)
        filled = rows.nonzero()[0].max(initial=0) / len(rows)
        if filled < (0.01 if number in last else 1 / 3):
            found.append(number)
    return found


def test_no_page_is_blank_or_nearly(book, planted):
    begins = pdf.begins(book.path)
    assert unfilled(book, [begins[page] for page in PAGES]) == []
    assert unfilled(planted, []) == [3, 4, 5]
    # The last page of a chapter may have a line, but not nothing.
    assert unfilled(planted, [4, 5]) == [4, 5]


def cut_off(book):
    """Pages with text that is too wide: Chromium cuts it at the margin."""
    found = []
    for number, page in enumerate(book.pages, 1):
        text, width = page.get_textpage(), page.get_width()
        boxes = [text.get_rect(i) for i in range(text.count_rects())]
        if any(
            left < LEFT * width - 1 or right > RIGHT * width + 1
            for left, _, right, _ in boxes
        ):
            found.append(number)
    return found


def test_no_line_is_cut_off(book, planted):
    assert cut_off(book) == []
    assert cut_off(planted) == [5]


def dark(book):
    """Pages more than a fifth of which is dark."""
    numbers = range(1, len(book.pages) + 1)
    return [n for n in numbers if book.ink(n, darker=128).mean() > 1 / 5]


def test_paper_is_white(book, planted):
    assert dark(book) == []
    assert dark(planted) == [6]


def test_links_lead_to_pages_of_the_pdf_or_to_the_web(book, planted, articles):
    inside, addresses = book.links()
    wanted, web = set(), set()
    for page, article in articles.items():
        for link in article.select("a[href]:not(.headerlink)"):
            if link.find_parent(class_="here"):
                continue
            if urlsplit(link["href"]).scheme:
                web.add(link["href"])
                continue
            path, anchor = urldefrag(urljoin(page, link["href"]))
            if path in PAGES:
                wanted.add(f"{path}{anchor and ':'}{unquote(anchor)}")
    assert wanted <= inside
    assert {one.rstrip("/") for one in addresses} == {
        one.rstrip("/") for one in web
    }
    assert set(PAGES) <= inside  # from the contents
    begins = pdf.begins(book.path)
    assert inside <= set(begins)
    marks = {title: number for _, title, number in book.bookmarks()}
    assert begins[ATTENTION] == marks["4 Attention"]
    # The control: a link to a file is an address, of this machine.
    (bad,) = planted.links()[1]
    assert bad.startswith("file:")


def test_figures_are_vectors(book, planted, articles):
    bitmaps = sum(len(one.select("svg image")) for one in articles.values())
    assert sum(len(one.select("svg")) for one in articles.values()) > 5
    assert articles[ATTENTION].select("live-attention svg")
    assert book.images() == bitmaps
    assert planted.images() == 1


def test_formulas_are_typeset(book):
    assert r"\sqrt" not in "".join(book.texts)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('<p id="a">', '<p id="book/x.html:a">'),
        ('<a href="#a">', '<a href="#book/x.html:a">'),
        ('<a href="y.html">', '<a href="#book/y.html">'),
        ('<a href="y.html#a%C3%A4">', '<a href="#book/y.html:aä">'),
        ('<a href="https://a.org/#b">', '<a href="https://a.org/#b">'),
        ('<g clip-path="url(#c)">', '<g clip-path="url(#book/x.html:c)">'),
        ('&lt;p id="a"&gt;', '&lt;p id="a"&gt;'),  # what a page quotes
        ('<a href="../genindex.html#A">', "<a>"),
    ],
)
def test_names_and_links_of_a_page(before, after):
    printed = {"book/x.html", "book/y.html"}
    assert pdf.renamed(before, "book/x.html", printed) == after


def test_a_link_to_what_is_not_printed_leads_to_the_site():
    link = '<a href="../genindex.html#A">'
    assert pdf.renamed(link, "book/x.html", set(), "https://a.org/b/") == (
        '<a href="https://a.org/b/genindex.html#A">'
    )


def test_titles_are_quoted():
    head = pdf.running_head(3, r'<em>A</em> &amp; "B" \C')
    assert head == '@page p3 { @top-left { content: "A & \\"B\\" \\\\C" } }\n'


def test_without_a_book_it_says_so(tmp_path):
    with pytest.raises(
        SystemExit, match=r"no built book in .*: run `make book`"
    ):
        pdf.main(["--html", str(tmp_path)])
