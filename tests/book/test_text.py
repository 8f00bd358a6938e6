"""What a linter can see in the text of the pages.

A number that was measured comes from the run that measured it, by glue. In
the text stand only numbers that were worked by hand, or that a cited paper
gives; both say so in a comment around them.
"""

import posixpath
import re
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "sphinx_ext"))

from notebooks import pages  # noqa: E402

PAGES = [page for page in pages(ROOT) if (ROOT / f"{page}.md").exists()]

# -- numbers -----------------------------------------------------------------
BY_HAND = re.compile(
    r"<!-- numbers: by hand -->.*?<!-- numbers: end -->", re.DOTALL
)
PAPER = re.compile(
    r"<!-- numbers: paper -->(.*?)<!-- numbers: end -->", re.DOTALL
)
FENCE = re.compile(r"^( *)(`{3,}|~{3,})(.*?)\n(.*?)^\1\2 *$", re.M | re.S)
NO_PROSE = [
    r"\A---\n.*?\n---\n",  # front matter
    r"<!--.*?-->",
    r"^%[^\n]*$",  # comments of MyST
    r"\$\$.*?\$\$",
    r"\$[^$\n]+\$",
    r"\{[\w:.-]+\}`[^`]*`",  # roles
    r"`+[^`]*`+",
    r"\]\([^)]*\)|<?https?://\S+",
    r"^\([\w-]+\)=$",
]
# A decimal number; not the number of a section such as 3.2.1.
DECIMAL = r"(?<![\w.])\d+\.\d+(?![\w.]*\d)"
SECTION = (
    r"(?:[Ss]ections?|[Ee]quations?|[Tt]ables?|[Vv]ersion|Python|CC BY|and) "
)
UNITS = (
    r"%(?! interval)|nats?\b|bits?\b|seconds?\b|ms\b|[kMGT]?B\b|times\b"
    r"|percent\b|bytes?\b|FLOPs?\b|points?\b|BLEU\b"
)
MEASURED = re.compile(rf"{DECIMAL}|(?<![\w.])\d[\d,]*(?:\.\d+)? ?(?:{UNITS})")


def cell_words(options):
    """Captions and alt texts: the prose in a cell's metadata."""
    found = re.search(r"\A---\n(.*?)^---$", options, re.M | re.S)
    shown = (yaml.safe_load(found[1]) if found else {}) or {}
    shown = shown.get("mystnb", {}) if isinstance(shown, dict) else {}
    return "\n".join(
        str(part)
        for part in (
            shown.get("image", {}).get("alt", ""),
            shown.get("figure", {}).get("caption", ""),
        )
    )


def unfence(match):
    """A fence's prose: that of a directive, or of a cell's figure."""
    info, body = match[3].strip(), match[4]
    if info.startswith("{code-cell}"):
        return cell_words(body)
    if info.startswith("{") and not info.startswith(
        ("{code-block}", "{math}", "{literalinclude}", "{mermaid}", "{raw}")
    ):
        return FENCE.sub(unfence, body)
    return ""


def prose(text):
    """What a reader reads as text: no code, formulas, roles, addresses."""
    text = FENCE.sub(unfence, text)
    for pattern in NO_PROSE:
        text = re.sub(pattern, " ", text, flags=re.M | re.S)
    return text


def typed_numbers(text):
    """Numbers of a measurement that were typed, each with its neighbors."""
    for found in PAPER.finditer(text):
        if "{cite" not in found[1]:
            return [f"numbers of a paper without its citation: {found[1]}"]
    text = prose(PAPER.sub(" ", BY_HAND.sub(" ", text)))
    typed = []
    for found in MEASURED.finditer(text):
        before = text[max(0, found.start() - 40) : found.start()]
        if re.search(rf"{SECTION}(\d[\d.]*,? (and )?)*$", before):
            continue
        after = text[found.end() : found.end() + 20]
        typed.append(" ".join(f"{before}[{found[0]}]{after}".split()))
    return typed


@pytest.mark.parametrize("page", PAGES)
def test_measured_numbers_are_glued(page):
    assert typed_numbers((ROOT / f"{page}.md").read_text("utf8")) == []


SPOILED = """---
v: 1.5
---
# 2 heads
Section 3.2.1, equations 1.2 and 1.3; $0.5$; `0.7`; {glue:text}`a:.2f`; 3 heads
<!-- numbers: by hand -->
0.75 %
<!-- numbers: end -->
<!-- numbers: paper -->
{cite:t}`x` reach 27.3 BLEU.
<!-- numbers: end -->
```python
x = 0.25
```
% a comment
It falls to 1.31, by 12 %, in 4 seconds.
````{note}
```{code-cell} ipython3
---
mystnb:
  image:
    alt: A bar at 9.25.
---
y = 0.125
```
Some 30 nats.
````
"""


def test_typed_numbers_are_found():
    found = re.findall(r"\[([^]]+)\]", " ".join(typed_numbers(SPOILED)))
    assert sorted(found) == ["1.31", "12 %", "30 nats", "4 seconds", "9.25"]
    cited = "<!-- numbers: paper -->\n28.4\n<!-- numbers: end -->"
    assert "without its citation" in typed_numbers(cited)[0]


# -- files -------------------------------------------------------------------
def spoiled(text):
    """Marks of a merge, of a wrong encoding, of a second title."""
    wrong = re.findall(r"^(?:<{7}|>{7}|={7}$).*", text, re.M)
    wrong += re.findall("Ã[\x80-\xbf©¤¶¼]|â€.|ðŸ..", text)
    titles = re.findall(r"^# .+", prose(text), re.M)
    if len(titles) != 1:
        wrong.append(f"{len(titles)} titles, not one: {titles}")
    return wrong


@pytest.mark.parametrize("page", PAGES)
def test_page_is_whole(page):
    assert spoiled((ROOT / f"{page}.md").read_text("utf8")) == []


def test_a_spoiled_page_is_found():
    merge = "# T\n<<<<<<< HEAD\none\n=======\ntwo\n"
    assert len(spoiled(merge)) == 2
    assert len(spoiled("# T\ncafÃ© â€œ\n# U\n")) == 3
    assert spoiled("# T\ncafé “\n```python\n# U\n```\n") == []


# -- glossary ----------------------------------------------------------------
NAMES = re.compile(r"\{doc\}`[^`<]*<([^`>]+)>`")


def not_marked(glossary, marks):
    """Terms that no page marks which their entry names, or that none names.

    ``marks``: for each page below ``book/`` what it marks, in lower case.
    """
    found = []
    for entry in re.split(r"\n\n+(?=\S)", GLOSSARY.search(glossary)[1]):
        terms, _, text = entry.partition("\n  ")
        named = [
            posixpath.normpath(f"about/{page}") for page in NAMES.findall(text)
        ]
        terms = terms.lower().split("\n")
        if not any(marks[page].intersection(terms) for page in named):
            found.append(f"{terms[0]}: {', '.join(named)}")
    return found


def marked_in(text):
    """The terms that a page marks, in lower case."""
    return {" ".join(term.split()).lower() for term in LINKED.findall(text)}


def test_the_page_that_the_glossary_names_marks_the_term():
    pages = {page.removeprefix("book/"): page for page in PAGES}
    marks = {
        name: marked_in((ROOT / f"{page}.md").read_text("utf8"))
        for name, page in pages.items()
    }
    glossary = (ROOT / "book/about/glossary.md").read_text("utf8")
    assert not_marked(glossary, marks) == []


def test_a_term_that_its_page_does_not_mark_is_found():
    entry = "```{{glossary}}\nkey\ntag\n  A. ({{doc}}`Two <../{}>`)\n```"
    marks = {"a": marked_in("{term}`Keys\n<key>`"), "b": marked_in("key")}
    assert not_marked(entry.format("a"), marks) == []
    assert not_marked(entry.format("b"), marks) == ["key: b"]
    assert not_marked("```{glossary}\nkey\n  A.\n```", marks) == ["key: "]


# -- what has been introduced ------------------------------------------------
GLOSSARY = re.compile(r"```+\{glossary\}\n(.*?)\n```+", re.S)
LINKED = re.compile(r"\{term\}`(?:[^`<]*<)?([^`<>]+)>?`")
# Terms that are ordinary words as well, or parts of other terms.
ORDINARY = {"entropy", "memory", "patch", "probe", "rank", "value"}


def terms_of(text):
    """The names in a glossary."""
    return {
        entry.split("\n")[0].lower()
        for entry in re.split(r"\n\n+(?=\S)", GLOSSARY.search(text)[1])
    }


def too_early(texts, terms, overview=()):
    """Terms that a page uses before any page up to it has linked them.

    ``texts``: the main pages in their order, without their exercises.
    ``overview``: pages that may name what is still to come.
    """
    known, found = set(), []
    for page, text in texts.items():
        known |= {" ".join(t.split()).lower() for t in LINKED.findall(text)}
        words = prose(re.sub(r"\{term\}`[^`]*`", " ", text))
        found += [
            f"{page}: {term}"
            for term in sorted(terms - known - ORDINARY)
            if page not in overview
            and re.search(rf"(?<![\w-]){re.escape(term)}s?\b", words, re.I)
        ]
    return found


def test_no_main_page_uses_a_term_before_it_is_introduced():
    """The ledger of prerequisites: a page links what it takes for granted.

    Only the main pages count, as nobody has to read further.
    """
    overview = ("book/index", "book/walk", "book/notation")
    order = [p for p in PAGES if re.fullmatch(r"book/(\w+)", p)]
    first = ["book/index", "book/primer", "book/walk", "book/notation"]
    assert order[:4] == first
    texts = {
        page: (ROOT / f"{page}.md").read_text("utf8").split("\n## Exerc")[0]
        for page in order
    }
    glossary = (ROOT / "book/about/glossary.md").read_text("utf8")
    assert too_early(texts, terms_of(glossary), overview) == []


def test_a_term_that_comes_too_early_is_found():
    glossary = "```{glossary}\nkey\n  A.\n\nvalue head\n  B.\n```"
    texts = {
        "a": "A key, value\nheads.",
        "b": "{term}`Keys <key>`",
        "c": "key",
    }
    found = too_early(texts, terms_of(glossary))
    assert found == ["a: key"]
    texts["a"] = "value heads"
    assert too_early(texts, terms_of(glossary)) == ["a: value head"]
