"""Chapters as plain Markdown, for readers of notebooks.

Jupyter, Colab and Binder know nothing of MyST's directives and roles: they
would show ``:::{dropdown}`` as it stands. So the notebooks that readers get
say the same in Markdown and a little HTML.
"""

import ast
import builtins
import functools
import hashlib
import json
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coursekit_classroom.notebooks.install import published
from coursekit_classroom.notebooks.program import parse

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

DIRECTIVE = re.compile(r"\{([\w:.-]+)\}\s*(.*)")
OPTION = re.compile(r":([\w-]+):\s*(.*)")
EXPLICIT = re.compile(r"^(.*?)\s*<([^<>]*)>$", re.DOTALL)

# What has no place in a notebook.
KEY = re.compile(r"([a-z]+)(\d{4})\w*")  # of a source: vaswani2017attention
DROPPED = {"bibliography", "contents", "eval-rst", "here", "index", "live"}
DROPPED |= {"toctree"}
ADMONITIONS = {
    *("attention", "caution", "danger", "error", "hint", "important"),
    *("note", "seealso", "tip", "warning"),
}
LETTERS = "ABCDEFGH"
# From this chapter on, the file of the lesson is minimal.py as it stands.
FINISHED = 15
# Orders the choices of every question in the book; see `shuffled`.
SEED = 0
CLOSED = '<details style="margin-bottom: 0.6em">'
CHOOSE = "*Choose one before you open it. Then run what follows.*"
CAN = "By the end of this chapter you can"
COSTS = "results/chapters.json"
NUMBERS = "book/numbers.json"
BIBTEX = """\
@book{{executabletransformer,
  title  = {{{title}}},
  author = {{{{{author}}}}},
  year   = {{{year}}},
{url}}}"""
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


@functools.cache
def parsers() -> tuple["MarkdownIt", "MarkdownIt", "MarkdownIt"]:
    """MyST as far as notebooks do not have it: blocks, spans; and HTML.

    The parser of blocks leaves their text alone. That of spans knows code,
    formulas, roles and comments, so that all else stays as it is written.
    That of HTML leaves formulas as they are.
    """
    from markdown_it import MarkdownIt  # here, so that commands start faster
    from mdit_py_plugins.colon_fence import colon_fence_plugin
    from mdit_py_plugins.dollarmath import dollarmath_plugin
    from mdit_py_plugins.myst_blocks import myst_block_plugin
    from mdit_py_plugins.myst_role import myst_role_plugin

    blocks = MarkdownIt().enable("table").disable("inline")
    blocks.use(colon_fence_plugin).use(dollarmath_plugin)
    blocks.use(myst_block_plugin)
    spans = MarkdownIt("zero", {"html": True})
    spans.use(dollarmath_plugin).use(myst_role_plugin)
    spans.enable(["backticks", "escape", "html_inline"]).disable("text_join")

    def formula(_: Any, tokens: Any, at: int, *__: Any) -> str:
        return f"${escape(tokens[at].content, quote=False)}$"

    html = MarkdownIt().use(dollarmath_plugin)
    html.add_render_rule("math_inline", formula)
    return blocks, spans, html


@dataclass(frozen=True)
class Directive:
    """A directive as it stands on a page."""

    name: str
    """Empty for a box of ``:::`` that has no name."""

    argument: str
    options: Mapping[str, Any]
    body: str

    @classmethod
    def of(cls, token: "Token") -> "Directive | None":
        """The directive that a block is, or ``None``."""
        if token.type not in ("fence", "colon_fence"):
            return None
        found = DIRECTIVE.match(token.info.strip())
        if found:
            return cls(found[1], found[2], *options_of(token.content))
        if token.type == "fence":
            return None
        return cls("", "", {}, token.content)


def options_of(body: str) -> tuple[dict[str, Any], str]:
    """Split a directive's body into its options and its content."""
    options: dict[str, Any] = {}
    lines = body.split("\n")
    if lines[0].strip() == "---":
        import yaml  # type: ignore[import-untyped]

        end = lines.index("---", 1)
        options = yaml.safe_load("\n".join(lines[1:end])) or {}
        return options, "\n".join(lines[end + 1 :])
    while lines and (found := OPTION.match(lines[0].strip())):
        options[found[1]] = found[2]
        lines = lines[1:]
    return options, "\n".join(lines)


def blocks_in(source: str) -> Iterator["Token"]:
    """The blocks of a text, with those within its directives."""
    for token in parsers()[0].parse(source):
        yield token
        if said := Directive.of(token):
            yield from blocks_in(said.body)


@functools.cache
def landmarks(source: str) -> list[tuple[str, str, str]]:
    """What other pages refer to: a kind, a label, the title after it.

    The kind is ``heading``, ``equation`` or ``label``.  Cached, since an
    assignment reads every page of the book, and a course has many.
    """
    found, waiting = list[tuple[str, str, str]](), list[str]()
    tokens = list(blocks_in(source))
    for at, token in enumerate(tokens):
        said, title = Directive.of(token), ""
        if token.type == "myst_target":
            waiting.append(token.content)
        elif token.type == "heading_open":
            title = tokens[at + 1].content
            found.append(("heading", "", title))
        elif token.type == "math_block_label":
            found.append(("equation", token.info, ""))
            waiting.append(token.info)
        elif said:
            title = said.argument
            names = map(said.options.get, ("label", "name"))
            waiting += [str(name) for name in names if name]
        found += [("label", label, title) for label in waiting]
        if token.type not in ("myst_target", "myst_line_comment"):
            waiting.clear()
    return found


def cut(source: str, name: str) -> Iterator[tuple[str, Directive | None]]:
    """Each directive of a name with the text before it; last, the rest."""
    lines, at = source.split("\n"), 0
    for token in parsers()[0].parse(source):
        said = Directive.of(token)
        if said and token.map and not token.level and said.name == name:
            first, end = token.map
            yield "\n".join(lines[at:first]), said
            at = end
    yield "\n".join(lines[at:]), None


def put(out: list[str], lines: Sequence[str]) -> None:
    """Add lines; of the blank ones where they meet, one stays."""
    words = [n for n, line in enumerate(lines) if line.strip()]
    first = words[0] if words else len(lines)
    if first and out and out[-1].strip():
        out.append("")
    out += lines[first:]


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


def choices_of(said: Directive) -> tuple[str, list[tuple[str, Directive]]]:
    """What a question asks, and its choices with the letters they have."""
    parts = list(cut(said.body, "choice"))
    found = [choice for _, choice in parts if choice]
    order = shuffled(said.argument, [choice.argument for choice in found])
    ordered = [found[index] for index in order]
    text = "\n".join(text for text, _ in parts)
    return text, list(zip(LETTERS, ordered, strict=False))


def step_title(argument: str) -> str:
    """The title of a build step: ``4 Look back`` is its number and name."""
    number, _, name = argument.partition(" ")
    return f"Your file, step {number}: {name.strip()}"


def step_end(argument: str) -> str:
    """What a build step changes in the last lines of the reader's file."""
    from coursekit_classroom.yourfile import last_lines

    chapter = int(argument.partition(" ")[0])
    if not chapter:  # `coursekit start` has written them
        return ""
    return f"At the file's end:\n\n```python\n{last_lines(chapter)}\n```"


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
    from coursekit_classroom import lesson

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
    edit: str | None = None,
    known: Collection[str] = (),
) -> str:
    """The same parts as a cell that runs by itself.

    A method cannot be defined alone, so its whole class stands in the cell.
    What the lines need and neither they nor ``known`` define is imported, as
    the finished file does it or from there.

    Args:
        names: as the ``{lesson}`` names them.
        chapter: the file is as it stands after this chapter.
        edit: the edit of the file that the lesson shows.
        known: names that the notebook has defined before.
    """
    from coursekit_classroom import lesson

    whole = list(dict.fromkeys(name.split(".")[0] for name in names))
    source = lesson_text(whole, chapter, edit)
    statements = parse(source).statements
    needs = {name for part in statements for name in part.reads}
    defined = {name for part in statements for name in part.sets}
    missing = sorted(needs - defined - set(known) - set(dir(builtins)))
    if not edit:
        # A part that a later chapter takes out: the finished file lacks it.
        finished = lesson.parts(lesson.LAST_CHAPTER)
        gone = set(missing) & set(lesson.parts(chapter)) - set(finished)
        if gone:
            return lesson_cell([*sorted(gone), *names], chapter, None, known)
    if not missing:
        return source
    module = "minimal" if edit else lesson.file_of(whole[0], chapter)[:-3]
    file = Path(lesson.PACKAGE, f"{module}.py").read_text("utf8")
    lines = [  # what the file imports is imported as it does
        ast.unparse(node)
        for node in ast.parse(file).body
        if isinstance(node, (ast.Import, ast.ImportFrom))
        and {alias.name for alias in node.names} & set(missing)
    ]
    given = {name for line in lines for name in parse(line).statements[0].sets}
    if own := ", ".join(sorted(set(missing) - given)):
        lines.append(f"from coursekit.{module} import {own}")
    return "\n".join(lines) + f"\n\n\n{source}"


@functools.lru_cache(maxsize=2)
def bibliography(text: str) -> Mapping[str, Any]:
    """The entries of a file of BibTeX; the book's take a while to read."""
    try:
        from pybtex.database import parse_string  # type: ignore
    except ModuleNotFoundError:  # it is part of the extra `book`
        return {}
    entries: Mapping[str, Any] = parse_string(text, "bibtex").entries
    return entries


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
        settings = config.get("sphinx", {}).get("config", {})
        self.hide_solutions = settings.get("hide_solutions", False)
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
            for kind, label, title in landmarks(cell.source):
                if kind == "heading":
                    self.titles.setdefault(page, title)
                elif kind == "label":
                    self.labels[label] = (page, title)
                else:
                    numbered += 1
                    number = f"{chapter}.{numbered}" if chapter else numbered
                    self.equations[label] = str(number)

    @functools.cached_property
    def entries(self) -> Mapping[str, Any]:
        """The bibliography."""
        file = self.root / "references.bib"
        return bibliography(file.read_text("utf8")) if file.exists() else {}

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

    @functools.cached_property
    def costs(self) -> Mapping[str, Any]:
        """What the code of each page took when it was measured."""
        return read_json(self.root / COSTS)

    @functools.cached_property
    def numbers(self) -> Mapping[str, Mapping[str, str]]:
        """What each page quotes of a run of its code, as it prints it."""
        return read_json(self.root / NUMBERS)

    def citation(self) -> str:
        """How to cite the book, from what _config.yml says."""
        return bibtex(
            title=self.config.get("title", ""),
            author=self.config.get("author", ""),
            year=self.config.get("copyright", ""),
            url=self.repository,
        )


def read_json(path: Path) -> dict[str, Any]:
    """What a file of JSON holds; nothing if there is no such file."""
    if not path.is_file():
        return {}
    found: dict[str, Any] = json.loads(path.read_text("utf8"))
    return found


def bibtex(title: str, author: str, year: str, url: str) -> str:
    """How to cite the book; without an address, if it has none yet."""
    url = f"  url    = {{{url}}},\n" if url else ""
    return BIBTEX.format(title=title, author=author, year=year, url=url)


def runs(costs: Mapping[str, Any], page: str) -> str:
    """What running a page's code takes, in a sentence; "" if not known."""
    cost = costs.get("metrics", {}).get("pages", {}).get(page)
    if cost is None:
        return ""
    time = f"{max(1, round(cost['seconds']))} seconds"
    return RUNS.format(time=time, memory=f"{cost['megabytes'] / 1000:.1f} GB")


class Page:
    """One page, turned into plain Markdown cell by cell."""

    def __init__(
        self, pages: Pages, name: str, ran: Any, near: Collection[str] = ()
    ) -> None:
        """Prepare a page.

        Args:
            pages: the book.
            name: of the page.
            ran: the page's notebook, with outputs if it was run.
            near: pages whose notebooks are in the same folder as this one's,
                so that a link leads to them.
        """
        self.pages, self.name, self.near = pages, name, near
        self.glued = glued_values(ran)
        self.quoted: dict[str, str] = {}
        """The numbers that the text has quoted so far, as it prints them."""

    def caption(self, text: str, closed: bool) -> str:
        """The caption of a figure, on its own below the cell."""
        text = self.inline(" ".join(text.split()))
        if closed:
            return self.details("What the figure shows", text)
        return f"**Figure.** {text}"

    # -- blocks --------------------------------------------------------------
    def lesson(self, said: Directive) -> tuple[list[str], int, str | None]:
        """The parts that a ``{lesson}`` names, its chapter and its edit."""
        # On a page without a chapter it is the last that writes the file.
        own = chapter_of(self.name)
        chapter = said.options.get("chapter", FINISHED if own is None else own)
        names = [name for name in re.split(r"[,\s]+", said.argument) if name]
        return names, int(chapter), said.options.get("edit")

    def convert(self, source: str) -> str:
        """Markdown without MyST's own syntax."""
        lines, out, at = source.split("\n"), list[str](), 0
        for token in parsers()[0].parse(source):
            first, end = token.map or (-1, -1)
            if first < at:
                continue
            taken = self.block(token, lines[first:end])
            if taken is not None:
                put(out, lines[at:first])
                put(out, taken)
                at = end
        put(out, lines[at:])
        return "\n".join(out).strip("\n")

    def block(self, token: "Token", lines: list[str]) -> list[str] | None:
        """What a block becomes; ``None`` to look at the blocks within it."""
        if token.type in ("myst_target", "myst_line_comment"):
            mark = re.split("[(%]", lines[0])[0]  # of the list's item
            return [] if mark.isspace() else [mark.rstrip()]
        head = lines[0][: max(lines[0].find(token.markup), 0)]
        if said := Directive.of(token):
            text = self.directive(said).strip("\n").split("\n")
            rest = re.sub(r"[^>]", " ", head)  # a list's mark stands once
            text = [head + text[0], *(rest + line for line in text[1:])]
            return ["", *map(str.rstrip, text), ""]
        if token.type in ("fence", "code_block"):
            return lines
        if token.type == "math_block_label":
            number = f"\\tag{{{self.pages.equations[token.info]}}}"
            return [*lines[:-1], head + number, head + "$$"]
        if token.type in ("html_block", "table_open"):
            return self.inline("\n".join(lines)).strip("\n").split("\n")
        if token.type != "inline":
            return None
        text = self.inline(token.content).split("\n")
        return [
            line[: max(line.find(words), 0)] + new
            for line, words, new in zip(
                lines, token.content.split("\n"), text, strict=False
            )
        ]

    def directive(self, said: Directive) -> str:  # noqa: C901 (a table)
        """What a directive says, in Markdown."""
        name, argument, options = said.name, said.argument, said.options
        body = said.body.strip("\n")
        classes = str(options.get("class", "")).split()
        title = self.inline(argument)
        if name in DROPPED:
            return ""
        if name == "solution" and self.pages.hide_solutions:
            return ""
        if name in ("predict", "question"):
            return self.question(said)
        if name == "still-there":
            return self.details(REMEMBER, body)
        if name == "goals":
            return self.goals(body)
        if name == "step":
            body = f"{body}\n\n{step_end(argument)}".strip()
            return self.quote(self.inline(step_title(argument)), body)
        if name == "lesson":
            return f"```python\n{lesson_text(*self.lesson(said))}\n```"
        if name == "answer":
            return self.details("The answer, and what follows", body)
        if name == "dropdown":
            return self.details(title, body)
        if name == "solution":
            of = self.pages.labels.get(argument, ("", ""))[1]
            return self.details(f"Solution: {self.inline(of)}", body)
        if name == "math":
            return f"$$\n{body}\n$$"
        if name in ("code", "code-block"):
            return f"```{argument}\n{body}\n```"
        if name == "cite-book":
            return f"```bibtex\n{self.pages.citation()}\n```"
        if name in ("figure", "image"):
            return self.figure(argument, options, body)
        if "dropdown" in classes:
            return self.details(title or name.capitalize(), body)
        if name == "exercise":
            return f"**Exercise.** **{title}**\n\n{self.convert(body)}"
        if name in ADMONITIONS:
            return self.quote(name.capitalize(), f"{argument}\n{body}")
        if name == "admonition":
            return self.quote(title, body)
        text = self.convert(body)
        return f"**{title}**\n\n{text}" if title else text

    def quote(self, title: str, body: str) -> str:
        """A box: a title in bold, and the text, set off as a quotation."""
        lines = f"**{title}**\n\n{self.convert(body)}".split("\n")
        return "\n".join(f"> {line}".rstrip() for line in lines)

    def details(self, title: str, body: str) -> str:
        """Something closed, with a title to open it by."""
        return (
            f"{CLOSED}<summary>{to_html(title)}</summary>\n\n"
            f"{self.convert(body)}\n\n</details>"
        )

    def question(self, said: Directive) -> str:
        """A question; each choice opens its feedback."""
        text, choices = choices_of(said)
        answers = [
            self.details(
                f"**{letter}.** {self.inline(one.argument)}", one.body
            )
            for letter, one in choices
        ]
        predict = said.name == "predict"
        asked = f"**{'Predict: ' * predict}{self.inline(said.argument)}**"
        parts = [asked, self.convert(text), *answers, CHOOSE * predict]
        return "\n\n".join(part for part in parts if part)

    def goals(self, body: str) -> str:
        """What one can do after the chapter, and what running it takes."""
        text = f"**{CAN}**\n\n{self.convert(body)}"
        return f"{text}\n\n{runs(self.pages.costs, self.name)}".strip()

    def figure(
        self, source: str, options: Mapping[str, Any], body: str
    ) -> str:
        """An image, if the book has an address; and its caption."""
        alt = str(options.get("alt", ""))
        caption = self.convert(body)
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
        (whole,) = parsers()[1].parseInline(text)
        return "".join(map(self.span, whole.children or []))

    def span(self, token: "Token") -> str:
        """One role, or what stands between two, as it is written."""
        text = token.content
        if token.type == "myst_role":
            return self.role(token.meta["name"], text.strip())
        if token.type == "code_inline":
            pad = " " if text[:1] == "`" or text[-1:] == "`" else ""
            return f"{token.markup}{pad}{text}{pad}{token.markup}"
        if token.type == "math_inline":
            return f"${text}$"
        if token.type == "html_inline" and text.startswith("<!--"):
            return ""
        if token.type == "hardbreak":
            return "\\\n"
        return token.markup if token.type == "text_special" else text

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
        if role in ("ref", "numref"):
            return self.ref(shown, target)
        if role == "math":
            return f"${text}$"
        if role == "repo":
            if not self.pages.repository:
                return shown or target
            return f"[{shown or target}]({self.pages.repository}/{target})"
        if family == "py" or role in ("code", "file", "command"):
            return f"`{shown or target.lstrip('~')}`"
        return shown or target

    def glue(self, text: str) -> str:
        """A number that the code has computed, here or in the recorded run."""
        name, _, form = text.partition(":")
        if name in self.glued:
            value = self.glued[name]
            shown = format(value, form) if form else str(value)
        else:
            shown = self.pages.numbers.get(self.name, {}).get(text, "…")
        self.quoted[text] = shown
        return shown

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
        return self.link(text, page)

    def ref(self, shown: str | None, target: str) -> str:
        """Another place of the book."""
        page, title = self.pages.labels.get(target, (None, ""))
        text = shown or self.inline(title) or target
        if page is None:
            return text
        return self.link(text, page, f"#{anchor(target)}")

    def link(self, text: str, page: str, anchor: str = "") -> str:
        """A link to the notebook of a page, or to the page in the book."""
        if page in self.near and page != self.name:
            here = posixpath.dirname(self.name)
            return f"[{text}]({posixpath.relpath(page, here)}.ipynb)"
        return self.pages.link(text, page, anchor)


def anchor(label: str) -> str:
    """How a label is called in HTML, as docutils would."""
    return re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")


def to_html(text: str) -> str:
    """The Markdown of a line as HTML, its formulas untouched."""
    return str(parsers()[2].renderInline(text))


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
