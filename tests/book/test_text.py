"""What a linter can see in the text of the pages.

A number that was measured comes from the run that measured it, by glue. In
the text stand only numbers that were worked by hand, or that a cited paper
gives; both say so in a comment around them.
"""

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
