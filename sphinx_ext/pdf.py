"""Print the built book as one PDF: `make pdf`.

    python sphinx_ext/pdf.py [--html FOLDER] [--out FILE] [PAGE ...]

The articles of all pages become one HTML document, in the order of the table
of contents, and Chromium prints it. So the browser itself makes the links
between chapters, the bookmarks, and the tags for screen readers. No script
runs but MathJax: live figures show their stills, and what is folded is open.
``@media print`` in ``book/_static/course.css`` says how any page looks on
paper; ``pdf.css`` adds the title page, the contents and the page numbers.

It is printed twice: the first PDF shows on which page each chapter begins,
the second has these numbers in its contents.
"""

import argparse
import re
import sys
from dataclasses import dataclass
from html import escape, unescape
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import pikepdf
import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from coursekit_classroom.notebooks.install import published  # noqa: E402
from results import live  # noqa: E402

START = "book/index.html"
NAME = "executable-transformer.pdf"

# In the sidebar: the name of a part, or a link to a page.
ENTRY = re.compile(
    r'<span class="caption-text">(?P<part>.*?)</span>'
    r'|<li class="toctree-l(?P<level>\d)[^>]*>\s*'
    r'<a class="reference internal" href="(?P<href>[^"]*)">(?P<title>.*?)</a>',
    re.DOTALL,
)
ARTICLE = re.compile(r'<article class="bd-article">(.*)</article>', re.DOTALL)
TAG = re.compile(r"<[a-zA-Z][^<>]*>")
MARKUP = re.compile(r"<[^<>]*>")
# In a tag: a name, a link, or what a figure is cut off by.
NAMES = re.compile(r'\s(id|href)="([^"]*)"|url\(#([^()]*)\)')
HEADING = re.compile(r"<h([1-6])\b")
STYLE = re.compile(r'<link\b[^>]*\brel="stylesheet"[^>]*>')
HREF = re.compile(r'\bhref="([^"]*)"')
MATHJAX = "mathjax/startup.js"

DOCUMENT = """<!doctype html>
<html lang="en" data-theme="light">
<head>
<meta charset="utf-8">
<title>{title}</title>
{styles}
<style>
{heads}</style>
<script>
window.MathJax = {{
  loader: {{load: ["core", "input/tex", "output/chtml"]}},
  options: {{processHtmlClass: "math"}},
}};
</script>
<script defer src="{mathjax}"></script>
</head>
<body>
<section class="cover">
<h1 class="title">{title}</h1>
<p class="abstract">{abstract}</p>
<p class="authors">{authors}</p>
<p class="version">Version {version}, {date}. {license}.</p>
</section>
<section class="contents" id="contents">
<h1>Contents</h1>
<ol>
{contents}</ol>
</section>
{sections}</body>
</html>
"""
ROW = (
    '<li class="level{level}"><a href="#{path}">{title}'
    '<span class="number" data-of="{path}">000</span></a></li>\n'
)
FILL = """numbers => {
  for (const one of document.querySelectorAll(".number"))
    one.textContent = numbers[one.dataset.of];
}"""


@dataclass(frozen=True)
class Page:
    """A page of the book, and what the contents say of it."""

    path: str
    """From the folder of the built book: ``book/04_attention.html``."""

    title: str
    """With its number, in HTML."""

    level: int
    """1: a chapter; 2: a page that belongs to the chapter before it."""

    part: str
    """The part that it belongs to, in HTML; of the first page, nothing."""


def contents(html):
    """The pages of a built book, in order."""
    text = Path(html, START).read_text("utf8")
    pages, part = [], ""
    for entry in ENTRY.finditer(text):
        if entry["part"]:
            part = entry["part"]
            continue
        path = urldefrag(urljoin(START, entry["href"])).url
        if path not in {page.path for page in pages}:
            title, level = entry["title"].strip(), int(entry["level"])
            pages.append(Page(path, title, level, part))
    return pages


def renamed(article, page, printed, site=""):
    """An article whose names are its own, and whose links stay in the PDF.

    Args:
        article: its HTML.
        page: its path.
        printed: the paths of all pages that are printed. A link to another
            one leads to the site.
        site: its address; if it is empty, such a link becomes plain text.
    """

    def name(match):
        kind, value, cut = match.groups()
        if cut:
            return f"url(#{page}:{cut})"
        if kind == "id":
            return f' id="{page}:{value}"'
        if urlsplit(value).scheme:
            return match[0]
        path, anchor = urldefrag(urljoin(page, value))
        if path in printed:
            return f' href="#{path}{anchor and ":"}{unquote(anchor)}"'
        return f' href="{site}{urljoin(page, value)}"' if site else ""

    return TAG.sub(lambda tag: NAMES.sub(name, tag[0]), article)


def section(page, article, number, part):
    """A page as a section of the book: its article, deeper by its level.

    The bookmarks follow from the headings: parts, then chapters, then pages
    that belong to a chapter, and below each of these its own sections. If the
    page is the first of a part, the part's name comes before it.
    """

    def deeper(match):
        return f'{match[0]} aria-level="{int(match[1]) + page.level}"'

    if part:
        part = f'<p class="part-name" role="heading" aria-level="1">{part}</p>'
    return (
        f'<section class="printed" id="{page.path}" style="page: p{number}">'
        f'{part}<article class="bd-article">'
        f"{HEADING.sub(deeper, article)}</article></section>\n"
    )


def running_head(number, title):
    """The rule that puts a title on top of a section's pages."""
    words = unescape(MARKUP.sub("", title)).replace("\\", r"\\")
    words = words.replace('"', r"\"")
    return f'@page p{number} {{ @top-left {{ content: "{words}" }} }}\n'


def document(html, pages, about, site=""):
    """All pages as one HTML document.

    Args:
        html: the folder of the built book.
        pages: those to print.
        about: what :func:`about` returns.
        site: the book's address, if it has one.
    """
    html = Path(html).resolve()
    start = html / START
    styles = [
        start.parent.joinpath(unquote(urlsplit(HREF.search(tag)[1]).path))
        for tag in STYLE.findall(start.read_text("utf8"))
    ]
    heads, rows, sections, last = "", "", "", ""
    printed = {page.path for page in pages}
    for number, page in enumerate(pages):
        part, last = "" if page.part == last else page.part, page.part
        text = (html / page.path).read_text("utf8")
        article = renamed(ARTICLE.search(text)[1], page.path, printed, site)
        sections += section(page, article, number, part)
        heads += running_head(number, page.title)
        if part:
            rows += f'<li class="part">{part}</li>\n'
        rows += ROW.format(**vars(page))
    return DOCUMENT.format(
        **{key: escape(value) for key, value in about.items()},
        styles="\n".join(
            f'<link rel="stylesheet" href="{style.resolve().as_uri()}">'
            for style in (*styles, Path(__file__).with_suffix(".css"))
        ),
        heads=heads,
        mathjax=(html / MATHJAX).as_uri(),
        contents=rows,
        sections=sections,
    )


def begins(pdf):
    """The number of the page on which each destination lies, by its name."""
    with pikepdf.open(pdf) as book:
        number = {page.objgen: n for n, page in enumerate(book.pages, 1)}
        return {
            name.removeprefix("/"): number[place[0].objgen]
            for name, place in book.Root.Dests.items()
        }


def write(browser, source, out):
    """Print the document with a running Chromium.

    Args:
        browser: Playwright's.
        source: the HTML file.
        out: the PDF.
    """
    tab = browser.new_page()
    tab.set_default_timeout(0)  # it is a long document
    tab.goto(Path(source).resolve().as_uri())
    tab.evaluate("MathJax.startup.promise.then(() => {})")
    for _ in range(2):
        tab.pdf(
            path=out,
            scale=0.8,
            prefer_css_page_size=True,
            print_background=True,
            outline=True,
            tagged=True,
        )
        tab.evaluate(FILL, begins(out))
    tab.close()
    with pikepdf.open(out, allow_overwriting_input=True) as book:
        # Half as large: Chromium leaves the tags uncompressed.
        compressed = pikepdf.ObjectStreamMode.generate
        book.save(out, object_stream_mode=compressed)
        return len(book.pages)


def about(root):
    """Text of the title page, from ``CITATION.cff``."""
    cited = yaml.safe_load(Path(root, "CITATION.cff").read_text("utf8"))
    return {
        "title": cited["title"],
        "abstract": cited["abstract"],
        "authors": ", ".join(author["name"] for author in cited["authors"]),
        "version": str(cited["version"]),
        "date": str(cited["date-released"]),
        "license": " and ".join(cited["license"]),
    }


def main(arguments=None):
    """Print the book, or the pages that were named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--html", type=Path, default=ROOT / "_build/html")
    parser.add_argument("--out", type=Path, default=ROOT / "_build" / NAME)
    parser.add_argument("pages", nargs="*", metavar="PAGE")
    options = parser.parse_args(arguments)
    if not (options.html / START).is_file():
        sys.exit(f"no built book in {options.html}: run `make book` first")
    if live.program() is None:
        sys.exit("Chromium is missing: sudo apt-get install chromium")
    pages = [
        page
        for page in contents(options.html)
        if not options.pages or page.path in options.pages
    ]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    text = document(options.html, pages, about(ROOT), published(ROOT).site)
    with live.chromium() as browser, TemporaryDirectory() as folder:
        source = Path(folder, "book.html")
        source.write_text(text, "utf8")
        count = write(browser, source, options.out)
    size = options.out.stat().st_size / 1e6
    print(f"{options.out}: {count} pages, {size:.1f} MB")


if __name__ == "__main__":
    main()
