"""Counts of a built page: words, code, pictures.

``{goals}`` prints the reading time that follows from it, and
``tests/book/test_budgets.py`` holds it against the budgets.
"""

import re
from dataclasses import dataclass

from bs4 import BeautifulSoup

# Minutes: prose and code by words, the others each.
PROSE, CODE = 1 / 170, 1 / 100
FIGURE, FORMULA, PREDICTION = 0.5, 0.4, 1.3

WORD = re.compile(r"[^\W_][\w'’.,-]*")
# What a reader of the text does not read.
NO_TEXT = (
    "nav, a.headerlink, .tooltip, button, .MathJax, "
    "details.hide > summary, .goals-cost"
)
# Nor this, which is most of a page: it is cut out before the page is parsed.
DRAWN = re.compile(r"<(svg|script|style)\b.*?</\1>", re.DOTALL)
# Half of what is left are the colored pieces of code, which is read whole.
CODE_BLOCK = re.compile(r"<pre>.*?</pre>", re.DOTALL)
PIECE = re.compile(r"</?span\b[^>]*>")
ARTICLE = re.compile(r"<article\b.*</article>", re.DOTALL)
# What a cell has printed, which is read as text.
RESULTS = {"highlight-myst-ansi", "highlight-ipythontb"}
TERM = re.compile(r"glossary\.html#(term-.+)$")


@dataclass(frozen=True)
class Count:
    """Counts of a page without its exercises."""

    words: int
    """Prose, captions, choices, feedback, results, whatever is folded."""

    code_words: int
    """Of the code that is open."""

    code_lines: int
    """Lines of open code that are not blank."""

    lesson_lines: int
    """Those of them that are lines of the one-file transformer."""

    figures: int
    formulas: int
    """On lines of their own."""

    predictions: int
    sections: int
    """Of the second level, before the exercises."""

    terms: frozenset[str]
    """Terms of the glossary that it links."""

    longest: int
    """Words of the longest paragraph."""

    @property
    def minutes(self) -> float:
        """The time that reading takes."""
        return (
            self.words * PROSE
            + self.code_words * CODE
            + self.figures * FIGURE
            + self.formulas * FORMULA
            + self.predictions * PREDICTION
        )


def words(element):
    """Number of visible words in an element."""
    return len(WORD.findall(element.get_text(" ")))


def is_exercises(section):
    """True if a section holds the exercises."""
    heading = section.find(["h2", "h3"], recursive=False)
    return bool(heading) and heading.get_text().strip().startswith("Exercises")


def count(html: str) -> Count:
    """Count a page, or the part of it that Sphinx calls its body."""
    article = ARTICLE.search(html)
    text = DRAWN.sub("", article[0] if article else html)
    text = CODE_BLOCK.sub(lambda block: PIECE.sub("", block[0]), text)
    page = BeautifulSoup(text, "html.parser")
    top = page.find("section") or page
    inner = top.find_all("section", recursive=False)
    before = next(
        (n for n, part in enumerate(inner) if is_exercises(part)), len(inner)
    )
    for part in [
        *filter(is_exercises, inner),
        *page.select("div.exercise, div.solution"),
        *page.select(NO_TEXT),
    ]:
        part.decompose()

    figures = len(page.find_all("figure"))
    formulas = len(page.find_all("div", class_="math"))
    for part in page.find_all(class_="math"):
        part.replace_with("" if part.name == "div" else " x ")
    predictions = [
        box
        for box in page.find_all(class_="predict")
        if not box.find_parent(class_="still-there")
    ]
    lines = code_words = of_lesson = 0
    for block in page.find_all("div", class_="highlight"):
        if set(block.parent.get("class", [])) & RESULTS:
            continue
        if not block.find_parent("details"):
            text = block.get_text()
            n = sum(bool(line.strip()) for line in text.split("\n"))
            lines += n
            of_lesson += n if block.find_parent(class_="lesson") else 0
            code_words += len(WORD.findall(text))
        block.decompose()
    links = (a.get("href", "") for a in page.find_all("a", class_="reference"))
    found = (TERM.search(link) for link in links)
    return Count(
        words=words(page),
        code_words=code_words,
        code_lines=lines,
        lesson_lines=of_lesson,
        figures=figures,
        formulas=formulas,
        predictions=len(predictions),
        sections=before,
        terms=frozenset(hit[1] for hit in found if hit),
        longest=max(map(words, page.find_all("p")), default=0),
    )
