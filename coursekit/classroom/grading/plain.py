"""Chapters as plain Markdown, for readers of notebooks.

Jupyter, Colab and Binder know nothing of MyST's directives and roles: they
would show ``:::{dropdown}`` as it stands. So the notebooks that readers get
say the same in Markdown and a little HTML.
"""

import ast
import builtins
import functools
import hashlib
import posixpath
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from coursekit.classroom.grading.install import published
from coursekit.classroom.grading.program import parse

FENCE = re.compile(r"^( *)(`{3,}|~{3,}|:{3,})(.*)$")
DIRECTIVE = re.compile(r"^\{([\w:.-]+)\}\s*(.*)$")
OPTION = re.compile(r"^:([\w-]+):\s*(.*)$")
LABEL = re.compile(r"^\(([^()\s]+)\)=\s*$")
HEADING = re.compile(r"^#+ +(.*?)\s*$")
INLINE = re.compile(
    r"\{(?P<role>[A-Za-z][\w:.+-]*)\}(?P<t>`+)(?P<text>.+?)(?<!`)(?P=t)(?!`)"
    r"|(?P<c>`+)(?!`).+?(?<!`)(?P=c)(?!`)"
    r"|(?P<comment><!--.*?-->)",
    re.DOTALL,
)
EXPLICIT = re.compile(r"^(.*?)\s*<([^<>]+)>$", re.DOTALL)
EQUATION = re.compile(r"^\$\$ *(?:\(([^()\s]+)\))? *$")

# What has no place in a notebook.
KEY = re.compile(r"([a-z]+)(\d{4})\w*")  # of a source: vaswani2017attention
DROPPED = {"bibliography", "contents", "eval-rst", "here", "index", "live"}
DROPPED |= {"moved", "toctree"}
ADMONITIONS = {
    *("attention", "caution", "danger", "error", "hint", "important"),
    *("note", "seealso", "tip", "warning"),
}
LETTERS = "ABCDEFGH"
# From this chapter on, the file of the lesson is minimal.py as it stands.
FINISHED = 15
# Orders the choices of every question in the book; see `shuffled`.
SEED = 0
CAN = "After this chapter you can"
RUNS = "The code runs in {time} on one core, in {memory}."
REMEMBER = (
    "Still there? Three questions from earlier chapters "
    "(skip them if you like)"
)
# What must not be left in the text of a notebook (the tests look for it).
LEFT = re.compile(
    r"^ *:{3,}|^ *[`~]{3,}\{|\{[a-z][\w:-]*\}`|^\([^()\s]+\)=\s*$|<!--|-->"
    r"|\{\{ *\w+ *\}\}",
    re.MULTILINE,
)


def fence_end(lines: Sequence[str], start: int, mark: str) -> int:
    """The line that closes the fence opened by ``mark`` at ``start``."""
    close = re.compile(rf"^ *{re.escape(mark[0])}{{{len(mark)},}} *$")
    for at in range(start + 1, len(lines)):
        if close.match(lines[at]):
            return at
    return len(lines)


def options_of(body: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Split a directive's body into its options and its content."""
    options = {}
    if body and body[0].strip() == "---":
        import yaml  # type: ignore[import-untyped]

        end = body.index("---", 1)
        return yaml.safe_load("\n".join(body[1:end])) or {}, body[end + 1 :]
    while body and (found := OPTION.match(body[0].strip())):
        options[found[1]] = found[2]
        body = body[1:]
    return options, body


def title_after(lines: Sequence[str], start: int) -> str:
    """The heading or title that a label stands before."""
    for line in lines[start + 1 :]:
        if not line.strip() or LABEL.match(line):
            continue
        if heading := HEADING.match(line):
            return heading[1]
        fence = FENCE.match(line)
        directive = fence and DIRECTIVE.match(fence[3])
        return directive[2] if directive else ""
    return ""


def shuffled(question: str, choices: Sequence[str]) -> list[int]:
    """The order in which the choices of a question are shown.

    The place of the right choice must tell nothing, and it must be the same
    on the page, on paper and in a reader's notebook. So the choices are
    sorted by a hash of the book's seed, the question and the choice itself:
    where they stand in the source has no influence.

    Args:
        question: its title, as it stands in the source.
        choices: the words of each, as they stand in the source.

    Returns:
        Indices into ``choices``.
    """

    def draw(index: int) -> bytes:
        text = "\n".join((str(SEED), question.strip(), choices[index].strip()))
        return hashlib.sha256(text.encode()).digest()

    return sorted(range(len(choices)), key=draw)


def step_title(argument: str) -> str:
    """The title of a build step: ``4 Look back`` is its number and name."""
    number, _, name = argument.partition(" ")
    return f"Your file, step {number}: {name.strip()}"


def chapter_of(page: str) -> int | None:
    """The number of a page's chapter, from its name; ``None`` without one."""
    found = re.match(r"(\d\d)_", posixpath.basename(page))
    return int(found[1]) if found else None


def number_of(page: str, pages: Collection[str] = ()) -> str:
    """The number that a page bears, and its figures: ``4``, ``4F`` or none.

    The letter marks a page in ``further/`` that belongs to a chapter.  Where
    the chapter has several of them, they are ``4F1``, ``4F2``, ...: first the
    one with the name of the chapter's file, then the others by their names.

    Args:
        page: as ``_toc.yml`` names it.
        pages: all pages of the book.
    """
    chapter = chapter_of(page)
    if chapter is None:
        return ""
    folder = posixpath.dirname(page)
    if posixpath.basename(folder) != "further":
        return str(chapter)

    def order(other: str) -> tuple[bool, str]:
        own = posixpath.join(
            posixpath.dirname(folder), posixpath.basename(other)
        )
        return own not in pages, other

    family = sorted(
        (
            other
            for other in pages
            if posixpath.dirname(other) == folder
            and chapter_of(other) == chapter
        ),
        key=order,
    )
    which = f"{family.index(page) + 1}" if len(family) > 1 else ""
    return f"{chapter}F{which}"


def names_in(argument: str) -> list[str]:
    """The names in an argument: parts of a ``{lesson}``, or labels."""
    return [name for name in re.split(r"[,\s]+", argument) if name]


def lesson_text(
    names: Iterable[str], chapter: int, edit: str | None = None
) -> str:
    """Parts of the one-file transformer, two blank lines between them.

    Raises:
        ValueError: if a name does not exist in this chapter, or the edit.
    """
    from coursekit.classroom import lesson

    if edit is None:
        parts = [lesson.part(name, chapter) for name in names]
    else:
        parts = [
            "\n".join(
                line for mark, line in lesson.diff(name, edit) if mark != "-"
            )
            for name in names
        ]
    return "\n\n\n".join(parts)


def lesson_cell(
    names: Sequence[str],
    chapter: int,
    known: Collection[str] = (),
    edit: str | None = None,
) -> str:
    """The same parts as a cell that runs by itself.

    A method cannot be defined alone, so its whole class stands in the cell.
    What the lines need and neither they nor ``known`` define is imported
    from the finished file.

    Args:
        names: as the ``{lesson}`` names them.
        chapter: the file is as it stands after this chapter.
        known: names that the notebook has defined before.
        edit: the edit of the file that the lesson shows.
    """
    from coursekit.classroom import lesson

    whole = list(dict.fromkeys(name.split(".")[0] for name in names))
    source = lesson_text(whole, chapter, edit)
    statements = parse(source).statements
    needs = {name for part in statements for name in part.reads}
    defined = {name for part in statements for name in part.sets}
    missing = sorted(needs - defined - set(known) - set(dir(builtins)))
    if not missing:
        return source
    module = "minimal" if edit else lesson.file_of(whole[0], chapter)[:-3]
    names_of_it = ", ".join(missing)
    return f"from coursekit.{module} import {names_of_it}\n\n\n{source}"


class Pages:
    """What the text of one page may say about another."""

    def __init__(
        self,
        root: str | Path,
        config: Mapping[str, Any],
        notebooks: Mapping[str, Any],
    ) -> None:
        """``notebooks``: ``{page: notebook}`` for every page of the book."""
        self.root, self.config = Path(root), config
        address = published(root)
        self.base = address.site.rstrip("/")
        self.repository = address.repository
        self.titles: dict[str, str] = {}
        self.labels: dict[str, tuple[str, str]] = {}
        self.equations: dict[str, str] = {}
        self.names = notebooks.keys()
        for page, notebook in notebooks.items():
            self.scan(page, notebook)

    def scan(self, page: str, notebook: Any) -> None:
        """Note the title, the labels and the numbers of one page."""
        numbered, chapter = 0, number_of(page, self.names)
        for cell in notebook.cells:
            figure = cell.metadata.get("mystnb", {}).get("figure", {})
            if "name" in figure:
                self.labels[figure["name"]] = (page, figure.get("caption", ""))
            if cell.cell_type != "markdown":
                continue
            lines = cell.source.split("\n")
            for at, line in enumerate(lines):
                if found := LABEL.match(line):
                    self.labels[found[1]] = (page, title_after(lines, at))
                elif (found := EQUATION.match(line)) and found[1]:
                    numbered += 1
                    number = f"{chapter}.{numbered}" if chapter else numbered
                    self.equations[found[1]] = str(number)
                    self.labels[found[1]] = (page, "")
                elif found := re.match(r"^:(?:label|name):\s*(\S+)$", line):
                    above = FENCE.match(lines[at - 1])
                    title = DIRECTIVE.match(above[3]) if above else None
                    self.labels[found[1]] = (page, title[2] if title else "")
                elif page not in self.titles and (
                    heading := HEADING.match(line)
                ):
                    self.titles[page] = heading[1]

    @functools.cached_property
    def entries(self) -> Mapping[str, Any]:
        """The bibliography."""
        try:
            from pybtex.database import (  # type: ignore[import-untyped]
                parse_file,
            )
        except ModuleNotFoundError:  # it is part of the extra `book`
            return {}
        file = self.root / "references.bib"
        return parse_file(str(file)).entries if file.exists() else {}

    def link(self, text: str, page: str, anchor: str = "") -> str:
        """A link to the built book, if it has an address, or the text."""
        if not self.base:
            return text
        return f"[{text}]({self.base}/{page}.html{anchor})"

    def author(self, key: str) -> str:
        """The authors of an entry in the text, without the year.

        Where there is no bibliography, the key tells the first of them.
        """
        if key not in self.entries:
            found = KEY.fullmatch(key)
            return found[1].capitalize() if found else key
        people = self.entries[key].persons.get("author", [])
        names = [" ".join(p.last_names).strip("{}") for p in people]
        if len(names) > 2:
            return f"{names[0]} et al."
        return " and ".join(names) or key

    def year(self, key: str, before: str = "") -> str:
        """The year of an entry, linked if it has an address."""
        if key not in self.entries:
            found = KEY.fullmatch(key)
            return before + (found[2] if found else "undated")
        fields = self.entries[key].fields
        text = before + fields.get("year", "undated")
        url = fields.get("url")
        if not url and "doi" in fields:
            url = f"https://doi.org/{fields['doi']}"
        return f"[{text}]({url})" if url else text

    def cost(self, page: str, what: str) -> str:
        """What a page's code takes; only the book's build knows."""
        return "?"

    def citation(self) -> str:
        """How to cite the book, as a BibTeX entry."""
        return f"@misc{{course, url = {{{self.repository}}}}}"


class Page:
    """One page, turned into plain Markdown cell by cell."""

    def __init__(self, pages: Pages, name: str, ran: Any) -> None:
        """``ran``: the page's notebook, with its outputs."""
        self.pages, self.name = pages, name
        self.glued = glued_values(ran)

    def caption(self, text: str, closed: bool) -> str:
        """The caption of a figure, on its own below the cell."""
        text = self.inline(" ".join(text.split()))
        if closed:
            return self.details("What the figure shows", [text])
        return f"**Figure.** {text}"

    # -- blocks --------------------------------------------------------------
    def pieces(
        self, source: str
    ) -> list[tuple[str, list[str], int, str | None]]:
        """Cut a cell at its lessons, which are code in a notebook.

        Returns:
            For each lesson the Markdown before it, its names, its chapter,
            and its edit or ``None``. The last has no names.
        """
        found, lines = [], source.split("\n")
        start = at = 0
        while at < len(lines):
            fence = FENCE.match(lines[at])
            end = fence_end(lines, at, fence[2]) if fence else at
            directive = fence and DIRECTIVE.match(fence[3])
            if directive and directive[1] == "lesson":
                options, _ = options_of(lines[at + 1 : end])
                before = "\n".join(lines[start:at])
                names = names_in(directive[2])
                chapter = self.chapter(options)
                found.append((before, names, chapter, options.get("edit")))
                start = end + 1
            at = end + 1
        found.append(("\n".join(lines[start:]), [], 0, None))
        return found

    def chapter(self, options: Mapping[str, Any]) -> int:
        """The chapter whose file a lesson shows: an option, the page's own,
        or the last that writes into the file.
        """
        own = chapter_of(self.name)
        return int(options.get("chapter", FINISHED if own is None else own))

    def convert(self, source: str) -> str:
        """The Markdown of a cell without MyST's own syntax."""
        text = self.blocks(source.split("\n"))
        return re.sub(r"\n{3,}", "\n\n", text).strip("\n")

    def blocks(self, lines: Sequence[str]) -> str:
        """Convert lines; what is no block of its own is a paragraph."""
        out, paragraph, at = list[str](), list[str](), 0

        def flush() -> None:
            if not paragraph:
                return
            out.extend(self.inline("\n".join(paragraph)).split("\n"))
            paragraph.clear()

        while at < len(lines):
            line, taken = lines[at], None
            fence = FENCE.match(line)
            if fence:
                end = fence_end(lines, at, fence[2])
                taken = self.fence(fence, lines[at : end + 1])
            elif line.lstrip().startswith("<!--"):
                end = next(
                    i for i in range(at, len(lines)) if "-->" in lines[i]
                )
                taken = lines[end].split("-->", 1)[1].strip()
            elif EQUATION.match(line):
                end = next(
                    i
                    for i in range(at + 1, len(lines))
                    if EQUATION.match(lines[i])
                )
                taken = self.equation(lines[at : end + 1])
            elif LABEL.match(line) or line.startswith("%"):
                end, taken = at, ""
            if taken is None:
                paragraph.append(line)
                if not line.strip():
                    flush()
                at += 1
                continue
            flush()
            out += taken.split("\n")
            at = end + 1
        flush()
        return "\n".join(out)

    def equation(self, lines: Sequence[str]) -> str:
        """Display maths: its label becomes its number."""
        found = EQUATION.match(lines[-1])
        if not found or not found[1]:
            return "\n".join(lines)
        number = self.pages.equations[found[1]]
        return "\n".join([*lines[:-1], f"\\tag{{{number}}}", "$$"])

    def fence(self, fence: re.Match[str], lines: Sequence[str]) -> str:
        """Code stays; a directive becomes what it says."""
        indent, mark, rest = fence.groups()
        directive = DIRECTIVE.match(rest)
        if not directive and mark[0] != ":":
            return "\n".join(lines)
        inner = [line.removeprefix(indent) for line in lines[1:]]
        if inner and FENCE.match(inner[-1]):
            inner = inner[:-1]
        options, body = options_of(inner) if directive else ({}, inner)
        name, argument = directive.groups() if directive else ("", "")
        text = self.directive(name, argument, options, body).strip("\n")
        lines = ["", *text.split("\n"), ""]
        return "\n".join(indent + line if line else "" for line in lines)

    def directive(
        self,
        name: str,
        argument: str,
        options: Mapping[str, Any],
        body: list[str],
    ) -> str:
        """What a directive says, in Markdown."""
        classes = str(options.get("class", "")).split()
        title = self.inline(argument)
        if name in DROPPED:
            return ""
        if name == "predict":
            return self.predict(argument, body)
        if name == "question":
            return self.question(argument, body, "", "")
        if name == "still-there":
            return self.details(REMEMBER, body)
        if name == "goals":
            return self.goals(body)
        if name == "step":
            return self.quote(self.inline(step_title(argument)), body)
        if name == "lesson":
            names, chapter = names_in(argument), self.chapter(options)
            text = lesson_text(names, chapter, options.get("edit"))
            return f"```python\n{text}\n```"
        if name == "answer":
            return self.details("The answer, and what follows", body)
        if name == "dropdown":
            return self.details(title, body)
        if name == "solution":
            of = self.pages.labels.get(argument, ("", ""))[1]
            return self.details(f"Solution: {self.inline(of)}", body)
        if name in ("math",):
            return "\n".join(["$$", *body, "$$"])
        if name in ("code", "code-block"):
            return "\n".join([f"```{argument}", *body, "```"])
        if name == "cite-book":
            return f"```bibtex\n{self.pages.citation()}\n```"
        if name in ("figure", "image"):
            return self.figure(argument, options, body)
        if "dropdown" in classes:
            return self.details(title or name.capitalize(), body)
        if name == "exercise":
            return f"**Exercise.** **{title}**\n\n{self.blocks(body)}"
        if name in ADMONITIONS:
            body = [argument, *body] if argument else body
            return self.quote(name.capitalize(), body)
        if name == "admonition":
            return self.quote(title, body)
        text = self.blocks(body)
        return f"**{title}**\n\n{text}" if title else text

    def quote(self, title: str, body: Sequence[str]) -> str:
        """A box: a title in bold, and the text, set off as a quotation."""
        text = re.sub(r"\n{3,}", "\n\n", self.blocks(body)).strip("\n")
        lines = f"**{title}**\n\n{text}".split("\n")
        return "\n".join(f"> {line}".rstrip() for line in lines)

    def details(self, title: str, body: Sequence[str]) -> str:
        """Something closed, with a title to open it by."""
        return (
            f"<details><summary>{to_html(title)}</summary>\n\n"
            f"{self.blocks(body)}\n\n</details>"
        )

    def predict(self, title: str, body: list[str]) -> str:
        """A question whose answer the next cells compute."""
        last = "*Choose one before you open it. Then run what follows.*"
        return self.question(title, body, "Predict: ", last)

    def question(
        self, title: str, body: list[str], before: str, last: str
    ) -> str:
        """A question; each choice opens its feedback."""
        lines, words = list[str](), list[str]()
        feedbacks, at = list[list[str]](), 0
        while at < len(body):
            fence = FENCE.match(body[at])
            directive = fence and DIRECTIVE.match(fence[3])
            if fence and directive and directive[1] == "choice":
                end = fence_end(body, at, fence[2])
                words.append(directive[2])
                feedbacks.append(options_of(body[at + 1 : end])[1])
                at = end + 1
            else:
                lines.append(body[at])
                at += 1
        choices = [
            self.details(
                f"**{letter}.** {self.inline(words[index])}", feedbacks[index]
            )
            for letter, index in zip(
                LETTERS, shuffled(title, words), strict=False
            )
        ]
        asked = f"**{before}{self.inline(title)}**"
        parts = [asked, self.blocks(lines), *choices, last]
        return "\n\n".join(part for part in parts if part.strip())

    def goals(self, body: Sequence[str]) -> str:
        """What one can do after the chapter, and what running it takes."""
        time, memory = (
            self.pages.cost(self.name, what) for what in ("time", "memory")
        )
        text = f"**{CAN}**\n\n{self.blocks(body)}"
        if "?" in (time, memory):
            return text
        return f"{text}\n\n{RUNS.format(time=time, memory=memory)}"

    def figure(
        self, source: str, options: Mapping[str, Any], body: Sequence[str]
    ) -> str:
        """An image, if the book has an address; and its caption."""
        alt = str(options.get("alt", ""))
        caption = self.blocks(body)
        if not self.pages.base or "://" in source:
            image = f"![{alt}]({source})" if "://" in source else f"*{alt}*"
        else:
            here = posixpath.dirname(self.name)
            path = posixpath.normpath(posixpath.join(here, source))
            name = posixpath.basename(path)
            image = f"![{alt}]({self.pages.base}/_images/{name})"
        return f"{image}\n\n{caption}"

    # -- what stands in a line -----------------------------------------------
    def inline(self, text: str) -> str:
        """Replace the roles of a text; leave its code alone."""
        return INLINE.sub(self.replace, text)

    def replace(self, found: re.Match[str]) -> str:
        """One role, one span of code or one comment."""
        if found["comment"]:
            return ""
        if not found["role"]:
            return found[0]
        return self.role(found["role"], found["text"].strip())

    def role(self, role: str, text: str) -> str:
        """What a role shows."""
        family = role.split(":")[0]
        explicit = EXPLICIT.match(text)
        shown, target = explicit.groups() if explicit else ("", text)
        if family == "glue":
            return self.glue(text)
        if family == "cite":
            return self.cite(role, text)
        if role == "doc":
            return self.doc(shown, target)
        if role == "eq":
            return f"({self.pages.equations.get(target, target)})"
        if role in ("ref", "numref", "prf:ref"):
            return self.ref(shown, target)
        if role == "math":
            return f"${text}$"
        if role == "cost":
            return self.pages.cost(self.name, text)
        if role == "repo":
            if not self.pages.repository:
                return shown or target
            return f"[{shown or target}]({self.pages.repository}/{target})"
        if family == "py" or role in ("code", "file", "command"):
            return f"`{shown or target.lstrip('~')}`"
        return shown or target

    def glue(self, text: str) -> str:
        """A number that the code has computed."""
        name, _, form = text.partition(":")
        if name not in self.glued:
            return "…"  # the code has not run
        value = self.glued[name]
        return format(value, form) if form else str(value)

    def cite(self, role: str, text: str) -> str:
        """Authors and year; the year is linked."""
        keys = [key.strip() for key in text.split(",")]
        pages = self.pages
        if role.endswith(":t"):
            return " and ".join(
                f"{pages.author(key)} ({pages.year(key)})" for key in keys
            )
        cited = (pages.year(k, f"{pages.author(k)}, ") for k in keys)
        return f"({'; '.join(cited)})"

    def doc(self, shown: str | None, target: str) -> str:
        """Another page of the book."""
        path = posixpath.join(posixpath.dirname(self.name), target)
        page = posixpath.normpath(path).lstrip("/")
        text = shown or self.pages.titles.get(page, target)
        return self.pages.link(text, page)

    def ref(self, shown: str | None, target: str) -> str:
        """Another place of the book."""
        page, title = self.pages.labels.get(target, (None, ""))
        text = shown or self.inline(title) or target
        if page is None:
            return text
        return self.pages.link(text, page, f"#{anchor(target)}")


def anchor(label: str) -> str:
    """How a label is called in HTML, as docutils would."""
    return re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")


def to_html(text: str) -> str:
    """The Markdown of a line as HTML, its formulas untouched."""
    formulas = re.findall(r"(?<!\\)\$[^$]+\$", text)
    for number, formula in enumerate(formulas):
        text = text.replace(formula, f"FORMULA{number}X", 1)
    from markdown_it import MarkdownIt  # the commands' start is quicker so

    html = MarkdownIt().renderInline(text)
    for number, formula in enumerate(formulas):
        html = html.replace(f"FORMULA{number}X", escape(formula, quote=False))
    return html


def glued_values(notebook: Any) -> dict[str, Any]:
    """The values that a notebook has glued, by name."""
    values = {}
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            mark = output.get("metadata", {}).get("scrapbook")
            if mark:
                data = output["data"]
                text = data.get(mark["mime_prefix"] + "text/plain", "''")
                values[mark["name"]] = ast.literal_eval(text)
    return values
