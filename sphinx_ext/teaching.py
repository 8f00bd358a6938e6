"""What teachers look up: which chapter needs which, and all the exercises.

    ```{prerequisites}
    ```
    ```{exercise-list}
    ```

Needs stand in ``book/routes.yml``; exercises are read from the chapters, from
the metadata of their cells.  One without a cell says the same in two comments
of its text::

    % minutes: 5
    % objective: Tell a leak from a good model.
"""

import re
from html import escape
from pathlib import Path

import yaml
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from coursekit.classroom.grading.notebooks import declared

EXERCISE = re.compile(
    r"^(?P<fence>`{3,}|:{3,})\{exercise\}[ ]*(?P<title>.*)\n"
    r"(?P<body>(?:.*\n)*?)(?P=fence)[ ]*$",
    re.MULTILINE,
)
STARS = {1: "easy", 2: "medium", 3: "hard"}


# -- prerequisites -----------------------------------------------------------
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


def link(name, text, label=""):
    """A link from a page of about/ to a chapter."""
    anchor = f"#{label}" if label else ""
    return f'<a href="../{name}.html{anchor}">{escape(text)}</a>'


# -- exercises ---------------------------------------------------------------
def exercises(path):
    """Each exercise of a chapter: what a teacher wants to know of it."""
    cells = {d.label: d for d in declared(path) if d.label}
    for found in EXERCISE.finditer(path.read_text("utf8")):
        body = found["body"]
        label = re.search(r"^:label: *(\S+)", body, re.MULTILINE)[1]
        said = dict(re.findall(r"^% (\w+): (.+)$", body, re.MULTILINE))
        cell = cells.get(label)
        stars, _, title = found["title"].partition(" ")
        kind, _, name = title.partition(": ")
        yield {
            "label": label,
            "title": name,
            "kind": kind.lower(),
            "difficulty": STARS[len(stars)],
            "minutes": cell.minutes if cell else int(said.get("minutes", 0)),
            "objective": cell.objective if cell else said.get("objective", ""),
            "points": cell.points if cell else None,
            "id": cell.id if cell else None,
        }


class ExerciseList(SphinxDirective):
    """``{exercise-list}``: a table for each chapter."""

    def run(self):
        """Return raw HTML."""
        parts = []
        folder = Path(self.env.srcdir, "book")
        # A page in further/ comes after the chapter that it belongs to.
        pages = folder.glob("**/[0-9][0-9]_*.md")
        for path in sorted(pages, key=lambda p: (p.stem, len(p.parts))):
            self.env.note_dependency(str(path))
            parts.append(self.table(path))
        return [nodes.raw("", "".join(parts), format="html")]

    def table(self, path):
        """One chapter's exercises."""
        rows = []
        further = path.parent.name == "further"
        page = f"further/{path.stem}" if further else path.stem
        caption = short(path.stem) + ", further" * further
        for found in exercises(path):
            name = link(page, found["title"], found["label"])
            if found["id"]:
                name += f"<br><code>{found['id']}</code>"
            what = f"{found['kind']}, {found['difficulty']}, "
            rows.append(
                f'<tr><th scope="row">{name}</th>'
                f"<td>{what}{found['minutes']} minutes</td>"
                f"<td>{escape(found['objective'])}</td></tr>"
            )
        return (
            '<table class="table course-list">'
            f"<caption>Chapter {escape(caption)}</caption><thead><tr>"
            '<th scope="col">exercise</th><th scope="col">what it is</th>'
            '<th scope="col">what one can do then</th>'
            f"</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        )


def setup(app):
    """Register the directives."""
    app.add_directive("prerequisites", Prerequisites)
    app.add_directive("exercise-list", ExerciseList)
    return {"version": "1", "parallel_read_safe": True}
