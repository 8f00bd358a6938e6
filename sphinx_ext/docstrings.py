"""Docstrings on the API pages, and the index of these pages.

    ```{api-index}
    api_model
    api_training
    ```

Chapter, source, test and difference from the paper stand in a docstring as
lines of their own, ``Chapter: 4, attention.`` Here they become fields, a key
of the bibliography a citation, and a chapter's number a link.  The index has
a line for each module that one of the pages has as a heading.
"""

import importlib
import re
from html import escape
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

LABELS = ("Differs from the paper", "Chapter", "Source", "Test")
FIELD = re.compile(rf"^({'|'.join(LABELS)}): *(.*)$")
KEY = re.compile(r"\b([a-z]+(?:19|20)\d\d[a-z]+)\b")
MODULE = re.compile(r"^## (coursekit\S*)$", re.MULTILINE)
TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
WORDS = {}  # of attributes, while napoleon has them


def split_fields(lines):
    """The docstring without its fields, and the fields in order."""
    rest, fields, last = [], {}, None
    for line in lines:
        found = FIELD.match(line)
        if found:
            last = found[1]
            fields[last] = found[2]
        elif last and line.startswith(" ") and line.strip():
            fields[last] += " " + line.strip()
        else:
            last = None
            rest.append(line)
    return rest, fields


def chapter_link(text, docs):
    """``4, attention.`` as a link to chapter 4, if that is written."""
    number = re.match(r"\d+", text)
    prefix = f"book/{int(number[0]):02}_" if number else None
    for doc in docs:
        if prefix and doc.startswith(prefix):
            return f":doc:`{text.rstrip('.')} </{doc}>`"
    return text


def show_fields(app, what, name, obj, options, lines):
    """Turn the lines into fields, before napoleon reads the rest."""
    if what in ("attribute", "property"):
        # Napoleon takes the words before a colon for the attribute's type.
        WORDS[name] = list(lines)
        return
    rest, fields = split_fields(lines)
    if not fields:
        return
    while rest and not rest[-1].strip():
        rest.pop()
    lines[:] = [*rest, ""]
    for label, text in fields.items():
        if label == "Chapter":
            text = chapter_link(text, sorted(app.env.found_docs))
        elif label == "Source":
            text = KEY.sub(r":cite:t:`\1`", text)
        elif label == "Test":
            text = f"``{text.rstrip('.')}``"
        lines.append(f":{label}: {text}")
    lines.append("")


def restore_attribute(app, what, name, obj, options, lines):
    """Give an attribute its words back, after napoleon."""
    if what in ("attribute", "property"):
        lines[:] = WORDS.pop(name)


def first_sentence(module):
    """First sentence of a module's docstring."""
    text = importlib.import_module(module).__doc__
    return " ".join(text.split("\n\n")[0].split())


class ApiIndex(SphinxDirective):
    """``{api-index}``: the pages that are named, with their modules."""

    has_content = True

    def run(self):
        """Return raw HTML."""
        folder = Path(self.env.srcdir, "book", "about")
        parts = [self.page(folder, page) for page in self.content]
        return [nodes.raw("", "".join(parts), format="html")]

    def page(self, folder, page):
        """One page: its title and a line for each module."""
        file = folder / f"{page}.md"
        self.env.note_dependency(str(file))
        text = file.read_text("utf8")
        lines = "".join(
            f'<li><a href="{page}.html#{nodes.make_id(module)}">'
            f"<code>{module}</code></a>: "
            f"{escape(first_sentence(module))}</li>"
            for module in MODULE.findall(text)
        )
        title = escape(TITLE.search(text)[1])
        return (
            f'<p><a href="{page}.html"><strong>{title}</strong></a></p>'
            f"<ul>{lines}</ul>"
        )


def setup(app):
    """Register with Sphinx; napoleon has the priority 500."""
    app.add_directive("api-index", ApiIndex)
    app.connect("autodoc-process-docstring", show_fields, priority=400)
    app.connect("autodoc-process-docstring", restore_attribute, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
