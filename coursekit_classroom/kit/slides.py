"""Slides of a chapter, made from its page: nothing is typed twice.

``coursekit kit slides book/04_attention.md`` writes Markdown that Marp and
Quarto both read: ``---`` between slides, speaker notes as HTML comments.  On
the slides stand the goals, the chapter's step of the walk if ``make figures``
has drawn it, the puzzle, each figure, the lines of code, each
prediction with its answer on the next slide, and the takeaways.  The prose
between them is in the notes, and what to say to each wrong choice.
"""

import argparse
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coursekit_classroom.live.walk import PLACES, TITLES
from coursekit_classroom.notebooks import plain
from coursekit_classroom.notebooks.cells import Cell, myst_cells
from coursekit_classroom.notebooks.convert import (
    converter,
    read_text,
    root_of,
)
from coursekit_classroom.notebooks.readers import library
from coursekit_classroom.notebooks.sources import for_instructors

__all__ = ["Deck", "Slide", "deck", "write"]

PUZZLE = "The puzzle"
# Directives that are for somebody who reads, and those after an answer.
SKIPPED = {"dropdown", "here", "live", "question", "still-there"}
FORMULAS = ("math_block", "math_block_label")
OUTPUT = (14, 96)  # lines and characters of what a slide shows of a cell
STYLE = """\
style: |
  section { font-size: 24px; }
  section img { display: block; max-height: 360px; max-width: 100%; }
  section pre { font-size: 19px; }
"""
IMAGE = re.compile(r"!\[.*?\]\(figures/([\w-]+)\.svg\)", re.DOTALL)


@dataclass
class Slide:
    """A slide with its speaker notes, in Markdown."""

    title: str
    body: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        parts = [f"## {self.title}", *self.body]
        if self.notes:
            notes = "\n\n".join(self.notes).replace("-->", "→")
            parts.append(f"<!--\n{notes}\n-->")
        return "\n\n".join(parts)


@dataclass
class Deck:
    """The slides of one page."""

    title: str
    page: str
    slides: list[Slide]

    @property
    def figures(self) -> list[str]:
        """The names of the figures, in their order."""
        return IMAGE.findall(str(self))

    def __str__(self) -> str:
        title = self.title.replace('"', "'")
        head = (
            f'---\nmarp: true\nmath: mathjax\ntitle: "{title}"\n{STYLE}---\n\n'
        )
        return head + "\n\n---\n\n".join(map(str, self.slides)) + "\n"


def deck(path: Path) -> Deck:
    """The slides of a chapter.

    Args:
        path: its page, ``.md``, in a checkout of the book.

    Returns:
        The deck. What a chapter computes is ``…`` if the book is not built.

    Raises:
        NotebookError, SourceError: if the page cannot be read.
        ValueError: if it has no goals, so that it is no chapter.
    """
    text = for_instructors(read_text(path), path.name)
    cells = myst_cells(text, path.name)
    page = converter(path, cells)
    maker = Maker(page, root_of(path))
    for cell in cells:
        maker.cell(cell)
    if not any("{goals}" in cell.source for cell in cells):
        raise ValueError(
            f"slides are made of a chapter: got {path}, which has no goals. "
            "Name a page such as book/04_attention.md."
        )
    slides = [slide for slide in maker.slides if slide.body]
    slides[-1].notes += maker.notes
    if maker.exercises:
        tasks = "\n".join(f"- {title}" for title in maker.exercises)
        slides.append(Slide("Exercises", [tasks]))
    return Deck(slides[0].title, maker.page.name, slides)


# -- reading -----------------------------------------------------------------
def printed(root: Path, page: str) -> dict[str, str]:
    """Outputs of a page's code cells in the build, by source."""
    ran = root / "_build" / "notebooks" / f"{page}.ipynb"
    cells = library().read(ran, 4).cells if ran.is_file() else []
    return {
        cell.source.strip(): "".join(
            output.get("text", "")
            for output in cell.outputs
            if output.get("name") == "stdout"
        ).rstrip()
        for cell in cells
        if cell.cell_type == "code"
    }


class Maker:
    """Goes through a page from top to bottom and collects its slides."""

    def __init__(self, page: plain.Page, root: Path) -> None:
        self.page = page
        self.root = root
        self.outputs = printed(root, page.name)
        self.section = ""
        self.slides: list[Slide] = []
        self.exercises: list[str] = []
        self.notes: list[str] = []  # for the slide that comes next
        self.first = True  # whether the section has no slide so far
        self.open = False  # whether the puzzle goes on

    def add(self, title: str, *body: str) -> Slide:
        """A new slide, with the notes that were waiting for it."""
        self.slides.append(Slide(title, [*body], self.notes))
        self.notes, self.first = [], False
        return self.slides[-1]

    def cell(self, cell: Cell) -> None:
        """A cell: a figure, or text."""
        if cell.kind == "code":
            made = cell.metadata.get("mystnb", {})
            name = made.get("figure", {}).get("name")
            if name and self.section != "Exercises":
                self.figure(name, made)
            elif self.section != "Exercises":
                self.output(cell)
            return
        for token, text in blocks(cell.source):
            if token.type == "heading_open":
                self.heading(token.tag, text)
            elif said := plain.Directive.of(token):
                self.directive(said)
            elif token.type in FORMULAS and self.section != "Exercises":
                self.add(self.section, self.page.convert(text))
            else:
                self.prose(self.page.convert(text))

    def heading(self, level: str, text: str) -> None:
        """The page's title, or a new section."""
        title = self.page.inline(text.lstrip("# "))
        self.open = level == "h1"
        self.first = True
        if self.slides:
            self.slides[-1].notes += self.notes
            self.notes = []
        if level == "h1":
            number = plain.number_of(self.page.name, self.page.pages.names)
            self.add(f"{number} {title}".strip())
            self.section = PUZZLE
        elif level == "h2":
            self.section = title
            if title == "Takeaways":
                self.add(title)

    def prose(self, text: str) -> None:
        """Text: of the puzzle and the takeaways on a slide, else a note."""
        if not text.strip() or self.section == "Exercises":
            return
        if self.section == "Takeaways":
            self.slides[-1].body.append(text)
        elif self.open:
            if self.slides[-1].title != PUZZLE:
                self.add(PUZZLE)
            self.slides[-1].body.append(text)
            asks = "?" in text and text[0] != ">" and text[-1] != ":"
            self.open = not asks
        else:
            self.note(text)

    def note(self, text: str) -> None:
        """A note: on the slide that is shown, or on one that it introduces."""
        ahead = self.first or self.notes or text.endswith(":")
        (self.notes if ahead else self.slides[-1].notes).append(text)

    def figure(self, name: str, made: dict[str, Any]) -> None:
        """A figure with its caption; its alt text is the image's."""
        alt = " ".join(str(made.get("image", {}).get("alt", "")).split())
        caption = " ".join(made["figure"].get("caption", "").split())
        image = f"![{alt.translate(BRACKETS)}](figures/{name}.svg)"
        self.add(self.section, image, self.page.inline(caption))

    def output(self, cell: Cell) -> None:
        """Output of a cell, below its lines if the page shows them.

        What the page folds is left out, unless it answers a prediction.
        """
        text = self.outputs.get(cell.source.strip(), "")
        lines, code = text.split("\n"), cell.source.strip()
        hidden = {"remove-cell", "remove-output"}
        if "predict" not in cell.tags:
            hidden.add("hide-cell")
        if not text or hidden & cell.tags:
            return
        shown = f"```text\n{text}\n```"
        if len(lines) > OUTPUT[0] or max(map(len, lines)) > OUTPUT[1]:
            self.note(shown)
        elif cell.tags & {"hide-input", "remove-input", "hide-cell"}:
            self.add(self.section, shown)
        else:
            self.add(self.section, f"```python\n{code}\n```", shown)

    def directive(self, said: plain.Directive) -> None:
        """A question, code, a box."""
        if said.name == "exercise":
            anchor = f"#{plain.anchor(said.options.get('label', ''))}"
            title = self.page.inline(said.argument)
            pages = self.page.pages
            self.exercises.append(pages.link(title, self.page.name, anchor))
        elif said.name in SKIPPED or self.section == "Exercises":
            return
        elif said.name == "goals":
            self.slides[-1].body.append(self.page.directive(said))
            self.walk()
        elif said.name == "predict":
            self.question(said)
        elif said.name == "lesson":
            self.add(self.section, self.page.directive(said))
        elif said.name == "step":
            title = self.page.inline(plain.step_title(said.argument))
            self.add(title, self.page.convert(said.body))
        elif said.name == "answer" and self.slides:
            self.slides[-1].notes.append(self.page.convert(said.body))
        else:
            self.note(self.page.directive(said))

    def walk(self) -> None:
        """The chapter's step of the walk, where it has been drawn."""
        number = plain.number_of(self.page.name, self.page.pages.names)
        step = PLACES.get(int(number)) if number.isdecimal() else None
        name = f"walk-{step}"
        if picture(self.root, self.page.name, name).is_file():
            image = f"![The step as the walk shows it.](figures/{name}.svg)"
            title = f"Step {step} of the walk: {TITLES[str(step)]}"
            self.add(title, image)

    def question(self, said: plain.Directive) -> None:
        """A prediction, and on the next slide its answer.

        The letters are those of the page. What to say to somebody who has
        chosen another is in the notes of the answer.
        """
        asked, choices = plain.choices_of(said)
        title = self.page.inline(said.argument)
        options = [
            f"- ({letter}) {self.page.inline(choice.argument)}"
            for letter, choice in choices
        ]
        text = self.page.convert(asked)
        self.add(f"Predict: {title}", text, "\n".join(options))
        answer = self.add(f"Answer: {title}")
        for letter, choice in choices:
            why = self.page.convert(choice.body)
            if "correct" in choice.options:
                right = f"**({letter}) {self.page.inline(choice.argument)}**"
                answer.body += [right, why]
            else:
                answer.notes.append(f"({letter}) {why}")


BRACKETS = str.maketrans("[]", "()")


def blocks(source: str) -> Iterator[tuple[Any, str]]:
    """The blocks of a text that stand in no other, with their lines."""
    lines = source.split("\n")
    for token in plain.parsers()[0].parse(source):
        if token.map and not token.level and token.nesting >= 0:
            yield token, "\n".join(lines[slice(*token.map)])


# -- writing -----------------------------------------------------------------
def picture(root: Path, page: str, name: str) -> Path:
    """Path of a figure, or of a step of the walk, from ``make figures``."""
    folder = "walk" if name.startswith("walk-") else Path(page).name
    return root / "_build" / "figures" / folder / f"{name}.svg"


def write(path: Path, out: Path) -> str:
    """Write the deck of a page, and its figures next to it.

    Args:
        path: the page.
        out: a folder.

    Returns:
        What was written, and what is still missing, in a line each.
    """
    made, root = deck(path), root_of(path)
    drawn = [picture(root, made.page, name) for name in made.figures]
    (out / "figures").mkdir(parents=True, exist_ok=True)
    for file in drawn:
        if file.is_file():
            shutil.copy(file, out / "figures")
    missing = sum(not file.is_file() for file in drawn)
    file = out / path.name
    file.write_text(str(made), "utf8")
    said = [f"{file}: {len(made.slides)} slides, {len(made.figures)} figures"]
    if missing:
        said.append(f"{missing} figures are not drawn yet: run make figures.")
    if not (root / "_build" / "notebooks" / f"{made.page}.ipynb").is_file():
        said.append("Numbers of the page's runs stand as …: run make book.")
    return "\n".join(said)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Slides of a chapter, as Markdown that can be edited."""
    parser.add_argument(
        "pages", type=Path, nargs="+", metavar="PAGE", help="a chapter's .md"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("slides"), help="[default: slides]"
    )


def main(args: argparse.Namespace) -> int:
    """Write a deck for each page."""
    for page in args.pages:
        print(write(page, args.out))
    return 0
