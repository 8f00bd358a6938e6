"""Slides hold what their chapter holds, and nothing of their own."""

import re
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest
from markdown_it import MarkdownIt

from coursekit import cli
from coursekit_classroom.kit import slides

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = sorted(ROOT.glob("book/[0-9]*.md"))
PAGE = """\
(ch-tiny)=
# Tiny

:::{goals}
Goal {term}`word`.
:::

(tiny-puzzle)=
> Quote?

Wonder:

Riddle?

Story.

(tiny-one)=
## Section $x$

Intro {glue:text}`n`.

```{code-cell} ipython3
---
mystnb:
  image:
    alt: Picture of [a] thing.
  figure:
    name: fig-tiny
    caption: Caption *c*.
---
draw()
```

Remark --now--> later.

::::{predict} Guess
Which?

:::{choice} Wrong
Because no.
:::
:::{choice} Right
:correct:
Because yes.
:::
::::

:::{answer}
Reason.
:::

$$
a = b
$$ (tiny-eq)

:::{dropdown} Folded
Hidden.
:::

## Exercises

:::{exercise} Task
:label: tiny-task

Do.
:::

## Takeaways

- Lesson.

## Later

Epilogue.
"""
# What the kit adds to a page's own words.
LABELS = {"the", "end", "this", "chapter", "you", "can", "The", "puzzle"}
LABELS |= {"Predict", "Answer", "Exercises"}


@pytest.fixture(scope="module")
def decks():
    return {path.stem: slides.deck(path) for path in CHAPTERS}


def checkout(tmp_path):
    """A book of one page."""
    (tmp_path / "book").mkdir()
    (tmp_path / "_config.yml").write_text("title: T")
    (tmp_path / "pyproject.toml").write_text(
        '[project.urls]\nRepository = "https://github.com/OWNER/x"\n'
        'Documentation = "https://OWNER.github.io/x/"\n'
    )
    page = tmp_path / "book/04_tiny.md"
    page.write_text(PAGE, "utf8")
    return page


def shown(deck):
    """Slides as a parser of Markdown finds them: visible text, and notes."""
    tokens = MarkdownIt().parse(str(deck).split("---\n", 2)[2])
    found = [("", "")]
    for token in tokens:
        text, notes = found[-1]
        if token.type == "hr":
            found.append(("", ""))
        elif token.type == "html_block" and token.content[:4] == "<!--":
            found[-1] = text, notes + token.content
        else:
            found[-1] = f"{text}{token.content}\n", notes
    return found


# -- all chapters ------------------------------------------------------------
def lacking(deck):
    """What a chapter's slides have to have, and these have not."""
    text = "\n".join(visible for visible, _ in shown(deck))
    for what in (
        r"^\*\*By the end of this chapter you can\*\*$",
        "^The puzzle$",
        r"^!\[[^]]{20,}\]\(figures/fig-[\w-]+\.svg\)$",
        r"^\(A\) ",
        r"^\*\*\([A-D]\) .*\*\*$",
        "^Takeaways$",
        "^Exercises$",
    ):
        if not re.search(what, text, re.MULTILINE):
            yield what


def test_each_chapter_has_figures_questions_and_takeaways(decks):
    assert len(decks) == len(CHAPTERS) >= 22
    for name, deck in decks.items():
        assert not list(lacking(deck)), name
        assert len(shown(deck)) == len(deck.slides) > 12, name
    deck = decks["04_attention"]
    bare = [s for s in deck.slides if "figures/" not in str(s)]
    assert len(list(lacking(slides.Deck("", "", bare)))) == 1


def test_slides_show_the_step_of_the_walk_if_it_is_drawn(monkeypatch):
    titles = [slide.title for slide in slides.deck(CHAPTERS[4]).slides]
    monkeypatch.setattr(slides, "picture", lambda *_: Path(__file__))
    made = slides.deck(CHAPTERS[4])
    shown = "Step 5 of the walk: The query meets every key"
    assert [slide.title for slide in made.slides][:2] == [titles[0], shown]
    assert made.figures[0] == "walk-5"


def test_slides_have_each_figure_and_question_of_their_page(decks):
    for path in CHAPTERS:
        text = path.read_text("utf8").split("\n## Exercises")[0]
        deck = decks[path.stem]
        names = re.findall(r"^    name: (fig-\S+)$", text, re.MULTILINE)
        drawn = [name for name in deck.figures if "walk-" not in name]
        assert drawn == names
        asked = re.findall(r"^:{3,}\{predict\}", text, re.MULTILINE)
        titles = [slide.title.split(":")[0] for slide in deck.slides]
        assert titles.count("Predict") == titles.count("Answer") == len(asked)
        for one, other in pairwise(deck.slides):
            if one.title.startswith("Predict"):
                assert other.title == one.title.replace("Predict", "Answer", 1)


def test_nothing_of_myst_is_left(decks):
    for name, deck in decks.items():
        for visible, _ in shown(deck):
            assert not slides.plain.LEFT.search(visible), name


# -- one page ----------------------------------------------------------------
def test_a_page_slide_by_slide(tmp_path):
    deck = slides.deck(checkout(tmp_path))
    found = [" ".join(visible.split()) for visible, _ in shown(deck)]
    order = "AB" if "(A) Wrong" in str(deck) else "BA"
    options = " ".join(
        f"({letter}) {word}"
        for letter, word in sorted(zip(order, ("Wrong", "Right"), strict=True))
    )
    assert found == [
        "4 Tiny **By the end of this chapter you can** Goal word.",
        "The puzzle Quote? Wonder: Riddle?",
        "Section $x$ ![Picture of (a) thing.](figures/fig-tiny.svg) "
        "Caption *c*.",
        f"Predict: Guess Which? {options}",
        f"Answer: Guess **({order[1]}) Right** Because yes.",
        "Section $x$ $$ a = b \\tag{4.1} $$",
        "Takeaways Lesson.",
        "Exercises Task",
    ]
    notes = [" ".join(said.split()) for _, said in shown(deck)]
    assert notes[1] == "<!-- Story. -->"
    assert notes[-2] == "<!-- Epilogue. -->"
    assert notes[2] == "<!-- Intro …. Remark --now→ later. -->"
    assert notes[4] == f"<!-- ({order[0]}) Because no. Reason. -->"
    assert "Hidden" not in str(deck)


def test_links_lead_to_the_book_if_it_has_an_address(tmp_path):
    page = checkout(tmp_path)
    settings = tmp_path / "pyproject.toml"
    settings.write_text(settings.read_text().replace("OWNER", "ada"))
    link = "(https://ada.github.io/x/book/04_tiny.html#tiny-task)"
    assert f"- [Task]{link}" in str(slides.deck(page))


def test_no_word_of_a_slide_is_typed_in_the_kit(tmp_path):
    deck = slides.deck(checkout(tmp_path))
    words = set(re.findall(r"[A-Za-z]{3,}", "".join(map(str, deck.slides))))
    here = set(re.findall(r"[A-Za-z]{3,}", PAGE))
    assert words - here <= LABELS | {"figures", "svg", "tag"}
    assert {"Answer"} < words - here  # the control: labels are seen


def test_figures_are_copied_and_what_is_missing_is_said(tmp_path, capsys):
    page, out = checkout(tmp_path), tmp_path / "out"
    words = ["kit", "slides", str(page), "--out", str(out)]
    assert cli.main(words) == 0
    said = capsys.readouterr().out
    assert "8 slides, 1 figures\n1 figures are not drawn yet" in said
    assert "run make book" in said
    drawn = tmp_path / "_build/figures/04_tiny/fig-tiny.svg"
    drawn.parent.mkdir(parents=True)
    drawn.write_text("<svg/>")
    assert cli.main(words) == 0
    assert (out / "figures/fig-tiny.svg").read_text() == "<svg/>"
    assert "figures are not drawn" not in capsys.readouterr().out
    assert "(figures/fig-tiny.svg)" in (out / "04_tiny.md").read_text("utf8")


CELL = """\
```{code-cell} ipython3
---
tags: [TAGS]
---
print("out")
```

Remark"""


@pytest.mark.parametrize(
    ("tags", "text", "slide", "note"),
    [
        ("", "out\n", 'print("out") out', ""),
        ("hide-input", "out\n", "out", ""),
        ("predict, hide-cell", "out\n", "out", ""),
        ("hide-cell", "out\n", "", ""),  # the page folds it
        ("remove-output", "out\n", "", ""),
        ("", "out\n" * 15, "", "```text out out"),  # no room: a note
        ("", "out " * 25, "", "```text out out"),
    ],
)
def test_what_a_cell_prints_is_shown(tmp_path, tags, text, slide, note):
    page = checkout(tmp_path)
    cell = CELL.replace("TAGS", tags)
    page.write_text(PAGE.replace("Remark", cell, 1), "utf8")
    ran = nbformat.v4.new_code_cell('print("out")')
    ran.outputs = [nbformat.v4.new_output("stream", name="stdout", text=text)]
    path = tmp_path / "_build/notebooks/book/04_tiny.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(nbformat.v4.new_notebook(cells=[ran]), path)
    found = [" ".join(body.split()) for body, _ in shown(slides.deck(page))]
    notes = " ".join(
        " ".join(said.split()) for _, said in shown(slides.deck(page))
    )
    assert (f"Section $x$ {slide}" in found) == bool(slide)
    assert bool(note) == ("```text" in notes)
    assert note in notes


def test_a_page_that_is_no_chapter_is_refused(tmp_path, capsys):
    page = checkout(tmp_path)
    page.write_text(PAGE.replace("{goals}", "{note}"), "utf8")
    assert cli.main(["kit", "slides", str(page)]) == 2
    assert "slides are made of a chapter" in capsys.readouterr().err
