"""What teachers look up: which chapter needs which, and all the exercises.

    ```{prerequisites}
    ```
    ```{exercise-list}
    ```

Both are read from the chapters themselves: the line "You need" in each
chapter's box, and the metadata of the exercises' cells.  An exercise without
a cell says the same in two comments of its text::

    % minutes: 5
    % objective: Tell a leak from a good model.
"""

import re
from html import escape
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from coursekit.classroom.grading.notebooks import declared

PAGE = re.compile(r"^\d\d_\w+$")
NEEDS = re.compile(r"^\*\*You need\*\*(.*?)\n\n", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\{doc\}`[^`<]*<?(\d\d_\w+)>?`")
EXERCISE = re.compile(
    r"^(?P<fence>`{3,}|:{3,})\{exercise\}[ ]*(?P<title>.*)\n"
    r"(?P<body>(?:.*\n)*?)(?P=fence)[ ]*$",
    re.MULTILINE,
)
STARS = {1: "easy", 2: "medium", 3: "hard"}


# -- prerequisites -----------------------------------------------------------
def needs(text):
    """The chapters that a chapter's box names as needed."""
    found = NEEDS.search(text)
    return sorted(set(LINK.findall(found[1]))) if found else []


def direct(graph):
    """Drop a need that is needed by another need anyway."""

    def all_of(page):
        below = set(graph.get(page, ()))
        return below.union(*map(all_of, below)) if below else below

    return {
        page: [n for n in ns if not any(n in all_of(m) for m in ns)]
        for page, ns in graph.items()
    }


def levels(graph):
    """How far each chapter is from the start."""

    def level(page):
        return 1 + max(map(level, graph.get(page, ())), default=-1)

    return {page: level(page) for page in graph}


def drawing(graph, titles):
    """The graph as SVG: a column a level, arrows from what is needed."""
    level = levels(graph)
    rows = {}
    place = {}
    for page in sorted(graph):
        row = rows[level[page]] = rows.get(level[page], -1) + 1
        place[page] = 12 + 150 * row, 12 + 74 * level[page]
    width = 150 * (1 + max(rows.values())) + 12
    height = 74 * (1 + max(level.values())) + 12
    parts = [
        f'<svg class="course-needs" viewBox="0 0 {width} {height}" '
        'role="img" aria-label="Chapters as boxes; an arrow leads from a '
        'chapter to each that needs it. The table below says the same.">'
        '<defs><marker id="needs-tip" viewBox="0 0 8 8" refX="8" refY="4" '
        'markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z"/></marker></defs>'
    ]
    for page, below in graph.items():
        x, y = place[page]
        for other in below:
            a, b = place[other]
            parts.append(
                f'<path class="arrow" d="M{a + 65} {b + 40}C{a + 65} '
                f'{b + 60} {x + 65} {y - 22} {x + 65} {y - 1}" '
                'marker-end="url(#needs-tip)"/>'
            )
    for page, (x, y) in place.items():
        parts.append(
            f'<rect x="{x}" y="{y}" width="130" height="40" rx="6"/>'
            f'<text x="{x + 65}" y="{y + 25}">{escape(titles[page])}</text>'
        )
    return "".join(parts) + "</svg>"


class Prerequisites(SphinxDirective):
    """``{prerequisites}``: a drawing, and the same as a table."""

    def run(self):
        """Return raw HTML."""
        folder = Path(self.env.srcdir, "book")
        texts = {
            path.stem: path.read_text("utf8")
            for path in sorted(folder.glob("[0-9][0-9]_*.md"))
        }
        for name in texts:
            self.env.note_dependency(str(folder / f"{name}.md"))
        graph = direct({name: needs(text) for name, text in texts.items()})
        titles = {name: short(name) for name in texts}
        rows = "".join(
            f'<tr><th scope="row">{link(name, titles[name])}</th><td>'
            + (", ".join(link(n, titles[n]) for n in below) or "nothing")
            + "</td></tr>"
            for name, below in graph.items()
        )
        table = (
            '<table class="table course-needs-list"><thead><tr>'
            '<th scope="col">chapter</th><th scope="col">needs</th>'
            "</tr></thead>"
            f"<tbody>{rows}</tbody></table>"
        )
        return [nodes.raw("", drawing(graph, titles) + table, format="html")]


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
