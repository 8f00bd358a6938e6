"""Chapters as plain Markdown: what only the book's build knows of them."""

import json

from chapter_parts import COSTS, price
from course_pages import bibtex

from coursekit.classroom.grading import plain
from coursekit.classroom.grading.plain import (
    LEFT,
    Page,
    cut,
    lesson_cell,
    parse,
    shuffled,
)

__all__ = ["LEFT", "Page", "Pages", "cut", "lesson_cell", "parse", "shuffled"]


class Pages(plain.Pages):
    """What the text of one page may say about another."""

    def cost(self, page, what):
        """What the page's code took when it was measured."""
        file = self.root / COSTS
        costs = json.loads(file.read_text("utf8")) if file.exists() else {}
        return price(costs, page, what) or "?"

    def citation(self):
        """How to cite the book, from what _config.yml says."""
        return bibtex(
            title=self.config["title"],
            author=self.config["author"],
            year=self.config["copyright"],
            url=self.repository,
        )
