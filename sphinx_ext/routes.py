"""Ways through the book, with the times that the built pages have.

    ```{route}
    most: 180    # minutes that one part may take
    parts:
      Day 1:
        pages: [00_first_model, 01_tokenizer]
        exercises: [first-model-surprise]
    ```

Pages are named as in ``book/``; ``exercises: all`` is every exercise of the
pages but those that are open.  A page's reading time is the one that stands
under its title, or is counted by the function that prints it there; an
exercise's minutes are those that it declares.  The times are filled in when
all pages stand.

    ```{lecture} 04_attention
    minutes: 75
    exercises: [att-implement]
    ```

is the plan of one lecture on a page: when each of its sections begins, from
the same counts, and what is left for votes and questions.
"""

import copy
import functools
import json
import re
from html import escape, unescape
from pathlib import Path

import yaml
from bs4 import BeautifulSoup
from page_count import count, is_exercises
from sphinx.util.docutils import SphinxDirective
from teaching import exercises, link, nodes

from coursekit.classroom.grading.plain import number_of

ROUTE = re.compile(r"^```\{route\}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
PRINTED = re.compile(r'<p class="goals-cost">Reading: (\d+)–(\d+) minutes\.')
MARK = "<!-- minutes {} --><!-- /minutes -->"
MARKED = re.compile(r"(<!-- minutes ([^>]*) -->)[^<]*(?=<!-- /minutes -->)")
LECTURE = re.compile(
    r"(<!-- lecture (.*?) -->).*?(?=<!-- /lecture -->)", re.DOTALL
)
LONG = 180  # minutes; longer times are said in hours


def routes(text):
    """The routes that stand on a page, as they are written there."""
    return [yaml.safe_load(body) for body in ROUTE.findall(text)]


def declared_exercises(folder, part):
    """``(page, exercise)`` for each that a part of a route names."""
    wanted = part.get("exercises", ())
    for page in part["pages"]:
        for found in exercises(Path(folder, f"{page}.md")):
            every = wanted == "all" and found["kind"] != "open"
            if every or found["label"] in wanted:
                yield page, found


def total(pages, minutes, time):
    """What pages and exercises take together, as printed: (low, high).

    Args:
        pages: names of pages.
        minutes: of all exercises together.
        time: gives the range of a page, as it stands under its title.
    """
    low, high = zip((minutes, minutes), *map(time, pages), strict=True)
    return sum(low), sum(high)


def words(low, high):
    """A range of minutes; in hours, if that is shorter to say."""
    unit = "minutes"
    if high > LONG:
        low, high, unit = round(low / 60), round(high / 60), "hours"
    return f"{low}–{high} {unit}" if low < high else f"{low} {unit}"


def marked(pages, minutes=0):
    """A place in the page where a time will stand."""
    return MARK.format(" ".join([str(minutes), *pages]))


def title(folder, page):
    """The title of a page, with its number."""
    if page == "index":
        return "the front page"
    text = TITLE.search(Path(folder, f"{page}.md").read_text("utf8"))[1]
    return f"{number_of(f'book/{page}')} {text}".strip()


class Route(SphinxDirective):
    """``{route}``: a row for each part, and one for all."""

    has_content = True

    def run(self):
        """Return raw HTML; the times come when the book is built."""
        folder = Path(self.env.srcdir, "book")
        route = yaml.safe_load("\n".join(self.content))
        rows, pages, minutes = [], [], 0
        for name, part in route["parts"].items():
            found = list(declared_exercises(folder, part))
            for page in part["pages"]:
                self.env.note_dependency(str(folder / f"{page}.md"))
            work = sum(e["minutes"] for _, e in found)
            rows.append(self.row(folder, name, part["pages"], found, work))
            pages, minutes = [*pages, *part["pages"]], minutes + work
        whole = f"<td>{marked(pages, minutes)}</td>"
        html = (
            '<table class="table course-route"><thead><tr>'
            '<th scope="col">when</th><th scope="col">read</th>'
            '<th scope="col">exercises, minutes</th>'
            '<th scope="col">together</th>'
            f"</tr></thead><tbody>{''.join(rows)}</tbody><tfoot><tr>"
            f'<th scope="row" colspan="3">all</th>{whole}</tr></tfoot></table>'
        )
        return [nodes.raw("", html, format="html")]

    def row(self, folder, name, pages, found, minutes):
        """One part of the route."""
        read = "".join(
            f"<li>{link(page, title(folder, page))}, {marked([page])}</li>"
            for page in pages
        )
        do = "".join(
            f"<li>{link(page, e['title'], e['label'])}, {e['minutes']}</li>"
            for page, e in found
        )
        return (
            f'<tr><th scope="row">{escape(str(name))}</th>'
            f"<td><ul>{read}</ul></td><td>{f'<ul>{do}</ul>' if do else '–'}"
            f"</td><td>{marked(pages, minutes)}</td></tr>"
        )


class Lecture(SphinxDirective):
    """``{lecture} PAGE``: a row for each section, with the minutes."""

    required_arguments = 1
    has_content = True

    def run(self):
        """Return raw HTML; the rows come when the book is built."""
        (page,), folder = self.arguments, Path(self.env.srcdir, "book")
        self.env.note_dependency(str(folder / f"{page}.md"))
        plan = yaml.safe_load("\n".join(self.content))
        part = {"pages": [page], "exercises": plan["exercises"]}
        work = [
            (e["title"], e["label"], e["minutes"])
            for _, e in declared_exercises(folder, part)
        ]
        said = escape(json.dumps([page, plan["minutes"], work]))
        html = (
            '<table class="table course-route"><thead><tr>'
            '<th scope="col">minutes</th><th scope="col">what</th>'
            '<th scope="col">predictions</th></tr></thead>'
            f"<tbody><!-- lecture {said} --><!-- /lecture --></tbody></table>"
        )
        return [nodes.raw("", html, format="html")]


def sections(html):
    """``(title, anchor, count)`` of what a page's first level holds.

    What stands before the first section comes first, under the page's title;
    the exercises are left out.
    """
    page = BeautifulSoup(html, "html.parser")
    top = (page.find("article") or page).find("section")
    inner = top.find_all("section", recursive=False)
    start = copy.copy(top)
    for part in start.find_all("section", recursive=False):
        part.decompose()
    for part in [start, *(p for p in inner if not is_exercises(p))]:
        heading = part.find(["h1", "h2"])
        for link_ in heading.select("a.headerlink"):
            link_.decompose()
        title_ = " ".join(heading.get_text().split())
        yield title_, part.get("id", ""), count(str(part))


def timetable(html, plan):
    """The rows of a lecture: its page's sections, its exercises, the rest.

    Args:
        html: the page.
        plan: its name, the minutes of the lecture, and of each exercise the
            title, the label and the minutes.
    """
    page, minutes, work = plan
    parts = [
        (name, label, part.minutes, part.predictions or "")
        for name, label, part in sections(html)
    ]
    parts += [(name, label, took, "") for name, label, took in work]
    rows, at = [], 0.0
    for name, label, took, asked in parts:
        span = f"{round(at)}–{round(at + took)}"
        at += took
        rows.append(
            f'<tr><th scope="row">{span}</th>'
            f"<td>{link(page, name, label)}</td><td>{asked}</td></tr>"
        )
    rows.append(
        f'<tr><th scope="row">{round(at)}–{minutes}</th>'
        "<td>votes and questions, where they come up</td><td></td></tr>"
    )
    return "".join(rows)


def fill_lectures(html, read):
    """Write the plans of lectures into a page; ``read`` opens another."""

    def say(found):
        plan = json.loads(unescape(found[2]))
        return found[1] + timetable(read(plan[0]), plan)

    return LECTURE.sub(say, html)


def fill(html, time):
    """Write the times into the page; again, if they stand there already."""

    def say(found):
        minutes, *pages = found[2].split()
        return found[1] + words(*total(pages, int(minutes), time))

    return MARKED.sub(say, html)


def fill_routes(app, exception):
    """When all pages are written, count those that a route names."""
    if exception or app.builder.format != "html":
        return
    book = Path(app.outdir, "book")

    def read(page):
        return (book / f"{page}.html").read_text("utf8")

    @functools.cache
    def time(page):
        found = PRINTED.search(html := read(page))
        return (int(found[1]), int(found[2])) if found else count(html).range

    for file in book.glob("about/*.html"):
        html = file.read_text("utf8")
        if (filled := fill_lectures(fill(html, time), read)) != html:
            file.write_text(filled, "utf8")


def setup(app):
    """Register the directive."""
    app.add_directive("route", Route)
    app.add_directive("lecture", Lecture)
    app.connect("build-finished", fill_routes)
    return {"version": "1", "parallel_read_safe": True}
