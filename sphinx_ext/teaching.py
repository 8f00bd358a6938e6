"""``{prerequisites}``: which chapter needs which, from ``book/routes.yml``."""

from html import escape
from pathlib import Path

import yaml
from docutils import nodes
from sphinx.util.docutils import SphinxDirective


class Prerequisites(SphinxDirective):
    """``{prerequisites}``: the chapters with those that each needs."""

    def run(self):
        """Return raw HTML."""
        file = Path(self.env.srcdir, "book", "routes.yml")
        self.env.note_dependency(str(file))
        graph = yaml.safe_load(file.read_text("utf8"))["needs"]
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
