"""Hover texts: definitions in links to terms, titles in citations.

So does the caption of a figure. ``cards.js`` shows the title of such a link
next to it, or the figure if the page has it; without JavaScript the browser
shows the title.
"""

import functools
import re

import pybtex.plugin
from docutils import nodes

# Every citation asks pybtex for its style, and it all packages for theirs.
pybtex.plugin.entry_points = functools.cache(pybtex.plugin.entry_points)

GLOSSARY = "book/about/glossary"
ADDRESS = re.compile(r"about/glossary(?:\.html)?#(term-[\w-]+)$")
FIGURE = re.compile(r"#(fig-[\w-]+)$")


def definitions(env):
    """``{id of the term: its definition}``, as plain text."""
    if not hasattr(env, "course_definitions"):
        env.course_definitions = {
            name: plain(item)
            for item in env.get_doctree(GLOSSARY).findall(
                nodes.definition_list_item
            )
            for term in item.findall(nodes.term)
            for name in term["ids"]
        }
    return env.course_definitions


def plain(item):
    """A definition without its link to the chapter, which ends it."""
    [definition] = item.findall(nodes.definition)
    text = " ".join(definition.astext().split())
    return re.sub(r"\s*\([^()]*\)$", "", text)


def add_titles(app, doctree, docname):
    """Write the definition into each link to a term, as captions."""
    has_terms = GLOSSARY in app.env.found_docs and docname != GLOSSARY
    labels = app.env.get_domain("std").labels
    for link in doctree.findall(nodes.reference):
        address = link.get("refuri") or f"#{link.get('refid')}"
        if found := FIGURE.search(address):
            link["reftitle"] = labels[found.group(1)][2]
        elif has_terms and (found := ADDRESS.search(address)):
            link["reftitle"] = definitions(app.env)[found.group(1)]


def setup(app):
    """Register with Sphinx."""
    app.connect("doctree-resolved", add_titles)
    app.add_js_file("cards.js", loading_method="defer")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
