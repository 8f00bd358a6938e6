"""What a student reads: a page of Markdown, and the same as HTML.

Whatever stems from a submission, such as the text of an exception, is
quoted: it is never Markdown, HTML or a terminal's control sequence.
"""

import re
from collections.abc import Iterable, Sequence
from html import escape
from urllib.parse import urljoin

from coursekit_classroom.teach.records import (
    STATUSES,
    Graded,
    Question,
    Result,
)

LONG = 4000  # characters of a message that a page quotes
HIDDEN = (
    "Your functions were called with inputs that are drawn for grading. They "
    "have the shapes that the notebook's own check uses, and other numbers."
)

STYLE = """
:root { color-scheme: light dark; --edge: #767676; --soft: #f3f3f3;
  --ink: #1a1a1a; --paper: #ffffff; --link: #0b57a4; }
@media (prefers-color-scheme: dark) { :root { --edge: #8c8c8c;
  --soft: #2a2a2a; --ink: #ececec; --paper: #161616; --link: #8ab8f0; } }
body { font: 1rem/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--paper); max-width: 46rem; margin: 2rem auto;
  padding: 0 1rem; }
a { color: var(--link); }
table { border-collapse: collapse; margin: 1rem 0; }
caption { text-align: left; padding: .3rem 0; }
th, td { text-align: left; padding: .3rem .8rem; vertical-align: top;
  border-bottom: 1px solid var(--edge); }
td.number { text-align: right; }
pre { background: var(--soft); border-left: .25rem solid var(--edge);
  padding: .7rem; white-space: pre-wrap; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
figure { margin: 1rem 0; } svg { max-width: 100%; height: auto; }
"""


def markdown(student: Graded, book: str = "") -> str:
    """A student's feedback as Markdown.

    Args:
        student: what grading found.
        book: address of the book's folder of pages, for links; without it
            pages are named.
    """
    lines = [f"# Feedback for {plain(student.student)}", "", total(student)]
    lines += ["", "| exercise | points | result |", "|---|---|---|"]
    lines += [
        f"| {plain(r.exercise)} | {score(r)} | {STATUSES[r.status]} |"
        for r in student.results
    ]
    if tried(student):
        lines += ["", HIDDEN]
    for r in student.results:
        lines += ["", f"## {plain(r.exercise)}: {headline(r)}"]
        for text in sentences(r):
            lines += ["", plain(text)]
        if r.message:
            lines += ["", fenced(r.message)]
        for text, address in r.links:
            to = target(address, book)
            named = f"[{text}]({to})" if book else f"{text} (`{to}`)"
            lines += ["", f"Read again: {named}."]
        if r.cases:
            lines += ["", "The cases:", ""]
            lines += [f"- {sign(ok)} {plain(name)}" for name, ok in r.cases]
    return "\n".join(lines) + "\n"


def html(student: Graded, book: str = "") -> str:
    """The same as a page that needs no other file."""
    rows = [
        (r.exercise, score(r), STATUSES[r.status]) for r in student.results
    ]
    parts = [
        f"<p><strong>{escape(total(student, ''))}</strong></p>",
        table(("exercise", "points", "result"), rows, "Points by exercise"),
    ]
    if tried(student):
        parts.append(f"<p>{escape(HIDDEN)}</p>")
    for r in student.results:
        title = escape(f"{r.exercise}: {headline(r)}")
        parts.append(f"<section><h2>{title}</h2>")
        parts += [f"<p>{escape(clean(text))}</p>" for text in sentences(r)]
        if r.message:
            parts.append(f"<pre>{escape(clean(r.message))}</pre>")
        for text, address in r.links:
            to = escape(target(address, book))
            named = f'<a href="{to}">{escape(text)}</a>'
            if not book:
                named = f"{escape(text)} (<code>{to}</code>)"
            parts.append(f"<p>Read again: {named}.</p>")
        if r.cases:
            items = "".join(
                f"<li>{sign(ok)} {escape(name)}</li>" for name, ok in r.cases
            )
            parts.append(f"<p>The cases:</p><ul>{items}</ul>")
        parts.append("</section>")
    return page(f"Feedback for {student.student}", "\n".join(parts))


def viva_markdown(student: Graded) -> str:
    """Questions about what a student handed in, for the instructor."""
    lines = [
        f"# Questions to {plain(student.student)}",
        "",
        "For the instructor: not to be given to the student.",
    ]
    for exercise, questions in student.viva.items():
        lines += ["", f"## {plain(exercise)}"]
        for number, question in enumerate(questions, 1):
            lines += ["", *asked(number, question)]
    return "\n".join(lines) + "\n"


def asked(number: int, question: Question) -> list[str]:
    """A question and its answer; both quote the submission."""
    return [
        f"### Question {number}",
        "",
        fenced(question.ask),
        "",
        "Answer:",
        "",
        fenced(question.answer),
    ]


def tried(student: Graded) -> bool:
    """Whether any function of theirs was called."""
    return any(r.cases for r in student.results)


def sentences(r: Result) -> list[str]:
    """What there is to say before the example."""
    lines = [*r.notes, *r.cause]
    if r.days_late:
        lines.append(
            f"Handed in {r.days_late} day{'s' * (r.days_late > 1)} late: "
            f"{r.earned:g} points became {r.automatic:g}."
        )
    if r.by_hand is not None:
        lines.append(
            f"Your instructor gives {r.by_hand:g} points instead of "
            f"{r.automatic:g}."
        )
    if r.comment:
        lines.append(f"Your instructor says: {r.comment}")
    if r.used_library:
        lines.append(
            f"The code names {', '.join(r.used_library)}, and this exercise "
            "asks you to write that yourself: a call of it raises an error, "
            "as in the notebook's check."
        )
    return lines


def headline(r: Result) -> str:
    """Points and status."""
    return f"{score(r)} points, {STATUSES[r.status]}"


def score(r: Result) -> str:
    """``4.5 of 6``."""
    return f"{r.points:g} of {r.max_points:g}"


def total(student: Graded, bold: str = "**") -> str:
    """The sum, in a line."""
    got, of = f"{student.points:g}", f"{student.max_points:g}"
    return f"{bold}{got} of {of} points{bold}"


def sign(ok: bool) -> str:
    """A mark that is read out as well."""
    return "✓ right:" if ok else "✗ not right:"


def target(address: str, book: str) -> str:
    """Where a page of the book is."""
    return urljoin(book.rstrip("/") + "/", address) if book else address


# -- quoting -----------------------------------------------------------------
def clean(text: str) -> str:
    """A text without control characters, and not longer than a page."""
    text = "".join(c if c.isprintable() or c == "\n" else "�" for c in text)
    return text if len(text) <= LONG else text[:LONG] + "\n[cut here]"


def plain(text: str) -> str:
    """A line of text in which Markdown and HTML find nothing to do."""
    line = " ".join(clean(text).split())
    line = re.sub(r"([\\`*_\[\]<>|#~&$@])", r"\\\1", line)
    return re.sub(r"(?i)(?<=www)\.|:(?=//)", r"\\\g<0>", line)  # links


def fenced(text: str) -> str:
    """A block that shows a text as it is."""
    text = clean(text)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"


# -- HTML --------------------------------------------------------------------
def page(title: str, body: str) -> str:
    """A whole page: no script, nothing from elsewhere, light and dark."""
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, '
        'initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n<h1>{escape(title)}</h1>\n{body}\n</main>\n</body>\n"
        "</html>\n"
    )


def table(
    head: Sequence[str], rows: Iterable[Sequence[object]], caption: str
) -> str:
    """A table with headings that a screen reader announces."""
    top = "".join(f'<th scope="col">{escape(h)}</th>' for h in head)
    body = []
    for first, *others in rows:
        cells = "".join(
            f'<td class="number">{c}</td>'
            if isinstance(c, (int, float))
            else f"<td>{escape(clean(str(c)))}</td>"
            for c in others
        )
        body.append(
            f'<tr><th scope="row">{escape(clean(str(first)))}</th>{cells}</tr>'
        )
    return (
        f'<div class="scroll" tabindex="0" role="region" '
        f'aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{top}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )
