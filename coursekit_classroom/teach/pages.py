"""Pages that grading writes: the same blocks as Markdown and as HTML.

Whatever stems from a submission, such as the text of an exception, is
quoted: it is never Markdown, HTML or a terminal's control sequence.
"""

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

LONG = 4000  # characters of a message that a page quotes
Block = tuple[str, Any]
"""A kind, and what is shown:

- ``title``, ``heading``, ``text``, ``strong``, ``code``: a string
- ``list``: strings
- ``link``: words before it, a title, an address, and whether it is followed
- ``table``: rows of strings, the heads first
"""

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
pre { background: var(--soft); border-left: .25rem solid var(--edge);
  padding: .7rem; white-space: pre-wrap; overflow-wrap: anywhere; }
table { display: block; overflow-x: auto; }
"""


# -- Markdown ----------------------------------------------------------------
def markdown(blocks: Iterable[Block]) -> str:
    """The blocks as Markdown."""
    return "\n\n".join(in_markdown(*block) for block in blocks) + "\n"


def in_markdown(kind: str, shown: Any) -> str:
    """One block as Markdown."""
    match kind, shown:
        case "list", items:
            return "\n".join(f"- {plain(item)}" for item in items)
        case "link", (before, title, address, followed):
            named = f"[{title}]({address})" if followed else title
            return f"{before}{named}{'' if followed else f' (`{address}`)'}."
        case "table", (head, *rows):
            lines = [" | ".join(map(plain, line)) for line in (head, *rows)]
            lines = [f"| {line} |" for line in lines]
            return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])
        case "code", _:
            return fenced(shown)
    marks = {"title": "# ", "heading": "## ", "strong": "**"}
    end = "**" if kind == "strong" else ""
    return marks.get(kind, "") + plain(shown) + end


# -- HTML --------------------------------------------------------------------
def html(blocks: Sequence[Block]) -> str:
    """The blocks as a page that needs no other file."""
    return page(blocks[0][1], "\n".join(in_html(*b) for b in blocks[1:]))


def in_html(kind: str, shown: Any) -> str:
    """One block as HTML."""
    match kind, shown:
        case "list", items:
            inner = "".join(
                f"<li>{escape(clean(item))}</li>" for item in items
            )
            return f"<ul>{inner}</ul>"
        case "link", (before, title, address, followed):
            to, title = escape(address), escape(title)
            named = f'<a href="{to}">{title}</a>'
            if not followed:
                named = f"{title} (<code>{to}</code>)"
            return f"<p>{before}{named}.</p>"
        case "table", (head, *rows):
            top = "".join(f'<th scope="col">{escape(h)}</th>' for h in head)
            body = "".join(
                f'<tr><th scope="row">{escape(clean(first))}</th>'
                + "".join(f"<td>{escape(clean(c))}</td>" for c in others)
                + "</tr>"
                for first, *others in rows
            )
            return (
                f"<table><thead><tr>{top}</tr></thead>"
                f"<tbody>{body}</tbody></table>"
            )
    tags = {"heading": "h2", "strong": "strong", "code": "pre"}
    tag = tags.get(kind, "p")
    return f"<{tag}>{escape(clean(shown))}</{tag}>"


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
