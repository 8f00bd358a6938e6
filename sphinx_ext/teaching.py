"""``{prerequisites}``: which chapter needs which, as their first lines say.

A chapter ``needs`` those whose ideas its main page uses; what these need is
not repeated. Those that it only names in passing are its ``mentions``.
"""

from html import escape
from pathlib import Path

import yaml
from docutils import nodes
from sphinx.util.docutils import SphinxDirective


class Prerequisites(SphinxDirective):
    """``{prerequisites}``: the chapters with those that each needs."""

    def run(self):
        """Return raw HTML."""
        chapters = sorted(Path(self.env.srcdir, "book").glob("[0-9]*.md"))
        for path in chapters:
            self.env.note_dependency(str(path))
        graph = {path.stem: front_matter(path)["needs"] for path in chapters}
        rows = "".join(
            f'<tr><th scope="row">{link(name, short(name))}</th><td>'
            + (", ".join(link(n, short(n)) for n in below) or "nothing")
            + "</td></tr>"
            for name, below in graph.items()
        )
        table = (
            '<table class="table course-needs"><thead><tr>'
            '<th scope="col">chapter</th><th scope="col">needs</th>'
            "</tr></thead>"
            f"<tbody>{rows}</tbody></table>"
        )
        return [nodes.raw("", table, format="html")]


def front_matter(path):
    """The fields between a page's first two lines of dashes."""
    return yaml.safe_load(path.read_text("utf8").split("---\n")[1])


def short(name):
    """``"04_attention"`` as "4 attention"."""
    number, _, words = name.partition("_")
    return f"{int(number)} {words.replace('_', ' ')}"


def link(name, text):
    """A link from a page of about/ to a chapter."""
    return f'<a href="../{name}.html">{escape(text)}</a>'


def setup(app):
    """Register the directive."""
    app.add_directive("prerequisites", Prerequisites)
    return {"version": "1", "parallel_read_safe": True}
