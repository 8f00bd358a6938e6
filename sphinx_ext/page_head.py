"""Metadata of each page for search engines and link previews.

A page is described by its goals or by its first paragraph. Where
pyproject.toml has the address of the site, a page names its own address and
a picture, the first that its code draws. A page that is not found says so in
the book's dress.
"""

import base64
import re
from html import escape, unescape
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
from chapter_parts import goals
from docutils import nodes

from coursekit_classroom.notebooks.plain import CAN

LENGTH = 200  # characters of a description, of which most previews show 150
FORMULA = "\N{OBJECT REPLACEMENT CHARACTER}"
SENTENCE = re.compile(r"(?<=[.!?])\s+")
# What is relative to a page, and what that is relative to in its scripts.
RELATIVE = re.compile(r'\b(href|src|action|data-content_root)="(?![#/]|\w+:)')
# What a page says of itself.
HEAD = re.compile(
    r'<meta (?:name|property)="(?:description|og:|twitter:card)[^>]*>'
    r'|<link rel="canonical"[^>]*>'
)
NOT_FOUND = """\
<h1>Page not found</h1>
<p>There is no page at this address: it may have moved. Begin at
<a href="{start}">the first page</a>, or <a href="search.html">search the
book</a>.</p>"""


def text_of(node):
    """The words of a paragraph in one line; formulas are marked."""
    copy = node.deepcopy()
    for formula in list(copy.findall(nodes.math)):
        formula.replace_self(nodes.Text(FORMULA))
    return " ".join(copy.astext().split())


def shorten(text):
    """The first whole sentences without a formula, or the first words.

    A sentence that announces what comes next is none.
    """
    sentences = [
        sentence
        for sentence in SENTENCE.split(text)
        if FORMULA not in sentence and not sentence.endswith(":")
    ]
    found = ""
    for sentence in sentences:
        longer = f"{found} {sentence}".strip()
        if len(longer) > LENGTH:
            break
        found = longer
    if found or not sentences:
        return found
    return sentences[0][: LENGTH - 2].rpartition(" ")[0] + " …"


def description(doctree):
    """Description of a page: its goals, or its first paragraph."""
    places = [*doctree.findall(goals), *doctree.findall(nodes.section)]
    for place in places:
        if isinstance(place, goals):
            items = map(text_of, place.findall(nodes.list_item))
            plain = [item for item in items if FORMULA not in item]
            return shorten(" ".join([CAN, *plain]))
        for child in place.children:
            if isinstance(child, nodes.paragraph):
                found = shorten(text_of(child))
                if found:
                    return found
    return ""


def tag(key, value, content):
    """A tag for the page's head."""
    return f'<meta {key}="{value}" content="{escape(content)}"/>'


def picture(app, pagename):
    """The first picture that a page's code drew: ``(address, alt text)``.

    It is copied out of the notebook, and ``None`` if there is none.
    """
    file = Path(app.srcdir, "_build", "notebooks", f"{pagename}.ipynb")
    if not file.is_file():
        return None
    for cell in nbformat.read(file, as_version=4).cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {}).get("image/png")
            alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt")
            if data and alt:
                name = f"_images/preview/{pagename.replace('/', '-')}.png"
                target = Path(app.outdir, name)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(base64.b64decode(data))
                return app.config.html_baseurl + name, alt
    return None


def add_head(app, pagename, templatename, context, doctree):
    """Describe a page in its head."""
    if doctree is None:
        return
    site, book = app.config.html_baseurl, app.config.html_title
    title = unescape(re.sub("<[^>]+>", "", context["title"]))
    if title == book:
        context["docstitle"] = ""  # or the page's title names the book twice
    about = description(doctree) or f"{title}: a page of {book}."
    drawn = picture(app, pagename) if site else None
    tags = [
        tag("name", "description", about),
        tag("property", "og:type", "article"),
        tag("property", "og:site_name", book),
        tag("property", "og:title", title),
        tag("property", "og:description", about),
        tag(
            "name",
            "twitter:card",
            "summary_large_image" if drawn else "summary",
        ),
    ]
    if site:
        tags.append(tag("property", "og:url", context["pageurl"]))
    if drawn:
        tags.append(tag("property", "og:image", drawn[0]))
        tags.append(tag("property", "og:image:alt", drawn[1]))
    context["metatags"] = "\n".join([context.get("metatags") or "", *tags])


def not_found(app):
    """The page that a server shows where there is none."""
    start = app.builder.get_target_uri(app.config.root_doc)
    body = NOT_FOUND.format(start=start)
    yield "404", {"title": "Page not found", "body": body}, "page.html"


def root_not_found(app, exception):
    """A server shows the page that says "not found" at any address."""
    site = app.config.html_baseurl
    if exception or app.builder.format != "html" or not site:
        return
    file, path = Path(app.outdir, "404.html"), urlsplit(site).path
    text = RELATIVE.sub(rf'\1="{path}', file.read_text("utf8"))
    file.write_text(text, "utf8")


def describe_redirect(app, exception):
    """The site's own address leads to the first page: describe it there."""
    file = Path(app.outdir, "index.html")
    if exception or not file.is_file():
        return
    first = Path(app.outdir, app.builder.get_target_uri(app.config.root_doc))
    text, tags = file.read_text("utf8"), HEAD.findall(first.read_text("utf8"))
    if "http-equiv" in text and not HEAD.search(text):
        file.write_text("\n".join([text.rstrip(), *tags, ""]), "utf8")


def setup(app):
    """Register with Sphinx."""
    app.connect("html-page-context", add_head)
    app.connect("html-collect-pages", not_found)
    app.connect("build-finished", root_not_found)
    app.connect("build-finished", describe_redirect, priority=950)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
