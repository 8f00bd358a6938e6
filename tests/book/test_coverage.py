"""Every row of the content checklist has its place in the book.

``book/coverage.yml`` maps the checklist's rows (what the book's sources name,
show, ask or leave open) to a page and an anchor on it, or to a test.
"""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "book"
# How many rows the checklist's tables have: Q the open questions, 1 to 7.
TABLES = dict(zip("Q1234567", (20, 34, 51, 43, 27, 28, 12, 8), strict=True))


def rows():
    """The map, as a list of entries."""
    return yaml.safe_load((BOOK / "coverage.yml").read_text("utf8"))


def anchors(text):
    """What a link can lead to: labels, figures, exercises, predictions."""
    patterns = (
        r"^\(([\w-]+)\)=$",
        r"^ *:(?:label|name): *([\w-]+) *$",
        r"^ +name: *([\w-]+) *$",
    )
    return {
        found
        for pattern in patterns
        for found in re.findall(pattern, text, re.M)
    }


def uncovered(entry):
    """What is wrong with one entry, or None."""
    row = entry["row"]
    if not entry.get("title"):
        return f"{row} has no title"
    if "test" in entry:
        file, _, name = entry["test"].partition("::")
        path = ROOT / file
        there = path.exists() and f"def {name}(" in path.read_text("utf8")
        return None if there else f"{row}: no test {entry['test']}"
    page = entry["page"]
    path = BOOK / f"{page}.md"
    if not path.exists():
        return f"{row}: no page {page}"
    if entry.get("anchor") not in anchors(path.read_text("utf8")):
        return f"{row}: no anchor {entry.get('anchor')} on {page}"
    return None


def test_every_row_is_in_the_map():
    wanted = {
        f"Q{n}" if table == "Q" else f"{table}.{n}"
        for table, length in TABLES.items()
        for n in range(1, length + 1)
    }
    assert {entry["row"] for entry in rows()} == wanted


def test_every_row_has_its_place():
    assert list(filter(None, map(uncovered, rows()))) == []


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"title": "x", "page": "04_attention"}, "no anchor"),
        ({"title": "x", "page": "04_attention", "anchor": "z"}, "no anchor"),
        ({"title": "x", "page": "99_none", "anchor": "z"}, "no page"),
        ({"title": "x", "test": "tests/book/test_text.py::gone"}, "no test"),
        ({"page": "04_attention", "anchor": "ch-attention"}, "no title"),
    ],
)
def test_a_row_without_its_place_is_found(entry, reason):
    assert reason in uncovered({"row": "9.9", **entry})
