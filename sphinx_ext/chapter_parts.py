"""Parts of every chapter: its place on the map, goals and time.

```{here}
```

:::{goals}
- compute attention by hand,
- write it in six lines of PyTorch.
:::

:::{step} 4 Look back
What the reader adds to their own file.
:::

Under the goals, a line says how long reading and running take.
"""

import re
from functools import partial
from html import escape
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from page_count import count
from sphinx.util.docutils import SphinxDirective

from coursekit_classroom.live.walk import PLACES
from coursekit_classroom.notebooks.plain import (
    CAN,
    COSTS,
    read_json,
    runs,
    step_end,
    step_title,
)

READING = "<!-- reading time -->"

CHAPTER = re.compile(r"book/(\d\d)_\w+")
IN_BLOCK = range(4, 9)  # chapters whose parts make up one block
WALK = "book/walk"  # a page on which each of PLACES has its anchor


class here(nodes.General, nodes.Element):  # noqa: N801  docutils' custom
    """Stands for the map until the addresses of the pages are known."""


class Here(SphinxDirective):
    """``{here}``: the parts of the model, each a link; this one marked."""

    def run(self):
        """Return a node that :func:`draw_maps` replaces."""
        return [here()]


def draw(chapters, docname, uri):
    """The chapters as an ordered list: numbers to see, names to be read out.

    Args:
        chapters: number, page and name of each, in order.
        docname: the page that it is for.
        uri: gives the address of a page, seen from there.
    """
    before, block, after = [], [], []
    for number, page, name in chapters:
        text = f'{number} <span class="name">{escape(name)}</span>'
        if page == docname:
            item = f'<span aria-current="page">{text}</span>'
        else:
            item = f'<a href="{uri(page)}" title="{escape(name)}">{text}</a>'
        places = (before, block, after)
        which = (number >= IN_BLOCK.start) + (number >= IN_BLOCK.stop)
        places[which].append(f"<li>{item}</li>")
    if block:
        before.append(
            '<li class="block"><span class="name">in each block</span>'
            f"<ol>{''.join(block)}</ol></li>"
        )
    return f"<ol>{''.join(before + after)}</ol>"


def way_to_walk(app, docname):
    """A link to the step of the walk that a chapter is about, or nothing."""
    found = CHAPTER.fullmatch(docname)
    place = PLACES.get(int(found[1])) if found else None
    if place is None or WALK not in app.builder.env.found_docs:
        return ""
    uri = app.builder.get_relative_uri(docname, WALK)
    return (
        f'<a class="to-walk" href="{uri}#walk-{place}">'
        "See this step in the walk</a>"
    )


def draw_maps(app, doctree, docname):
    """Replace each ``{here}`` by the map, with a link into the walk."""
    env = app.builder.env
    chapters = [
        (int(found[1]), page, re.sub(r"^\d+ ", "", env.titles[page].astext()))
        for page in sorted(env.found_docs)
        if (found := CHAPTER.fullmatch(page))
    ]
    for node in list(doctree.findall(here)):
        html = draw(
            chapters, docname, partial(app.builder.get_relative_uri, docname)
        )
        html += way_to_walk(app, docname)
        html = f'<nav class="here" aria-label="Chapters">{html}</nav>'
        node.replace_self(nodes.raw("", html, format="html"))


class goals(nodes.General, nodes.Element):  # noqa: N801  docutils' custom
    """Goals of the chapter, and the time it takes."""


class Goals(SphinxDirective):
    """``{goals}``: what one can do after the chapter."""

    has_content = True

    def run(self):
        """Return the goals; the rendered page says how long it is."""
        self.assert_has_content()
        node = goals()
        self.set_source_info(node)
        node["runs"] = runs(measured(self.env), self.env.docname)
        self.state.nested_parse(self.content, self.content_offset, node)
        return [node]


class Step(SphinxDirective):
    """``{step}``: what the reader adds to their own file."""

    has_content = True
    required_arguments = 1
    final_argument_whitespace = True

    def run(self):
        """Return a box with the number and the name of the step."""
        self.assert_has_content()
        title = step_title(self.arguments[0])
        text, messages = self.state.inline_text(title, self.lineno)
        node = nodes.admonition("", classes=["build-step"])
        self.set_source_info(node)
        self.add_name(node)
        node += nodes.title("", "", *text)
        self.state.nested_parse(self.content, self.content_offset, node)
        end = StringList(step_end(self.arguments[0]).splitlines(), "step")
        self.state.nested_parse(end, self.content_offset, node)
        return [node, *messages]


def visit_goals(self, node):
    """Open the box; its first line leads to the goals."""
    self.body.append(self.starttag(node, "div", CLASS="goals"))
    self.body.append(f'<p class="goals-title">{CAN}</p>\n')


def depart_goals(self, node):
    """Write the line about the time; the number comes when all is known."""
    line = f"Reading: {READING}. {node['runs']}".strip()
    self.body.append(f'<p class="goals-cost">{line}</p>\n</div>\n')


def fill_reading_time(app, pagename, templatename, context, doctree):
    """Count what there is to read, now that the page is HTML."""
    body = context.get("body") or ""
    if READING in body:
        minutes = f"about {count(body).minutes:.0f} minutes"
        context["body"] = body.replace(READING, minutes)


def measured(env):
    """Measurements of ``make results NAME=chapters``."""
    file = Path(env.srcdir, COSTS)
    env.note_dependency(str(file))
    return read_json(file)


def setup(app):
    """Register with Sphinx."""
    app.add_node(here)
    app.add_node(goals, html=(visit_goals, depart_goals))
    app.add_directive("here", Here)
    app.add_directive("goals", Goals)
    # sphinx_design has one, too, and no page of ours uses it.
    app.add_directive("step", Step, override=True)
    app.connect("doctree-resolved", draw_maps)
    app.connect("html-page-context", fill_reading_time)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
