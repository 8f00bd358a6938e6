"""The paper ledger: complete, and every row leads to something."""

import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "sphinx_ext"))

import ledger  # noqa: E402

PAGE = (ROOT / "book/about/ledger.md").read_text("utf8")
BODY = PAGE.split("```{paper-ledger}\n")[1].split("\n```")[0]
ROWS = ledger.ledger(yaml.safe_load(BODY))

# What the paper numbers, and the sections in which it chooses something.
ITEMS = (
    *("Equation 1", "Equation 2", "Equation 3"),
    *("Figure 1", "Figure 2", "Table 1", "Table 2", "Table 3", "Table 4"),
    *("3.1", "3.2.2", "3.2.3", "3.3", "3.4", "3.5"),
    *("5.1", "5.2", "5.3", "5.4", "6.1", "6.2"),
)


@pytest.mark.parametrize("item", ITEMS)
def test_every_item_of_the_paper_has_a_row(item):
    assert any(item in row["place"] for row in ROWS)


def faults(row):
    """A chapter that is none, a test that does not exist."""
    wrong = []
    if not 1 <= row.get("chapter", 1) <= 19:
        wrong.append(f"chapter {row['chapter']}")
    if row.get("test"):
        file, _, name = row["test"].rstrip(".").partition("::")
        path = ROOT / "tests" / "library" / file
        text = path.read_text("utf8") if path.is_file() else ""
        if not name or f"def {name}(" not in text:
            wrong.append(f"no test {row['test']}")
    return wrong


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["place"])
def test_row_leads_somewhere(row):
    assert faults(row) == []


def test_a_wrong_row_is_found():
    assert len(faults({"chapter": 20, "test": "x.py::test_y"})) == 2
    assert faults({"test": "test_norm.py::test_pre"}) != []


def test_rows_are_in_the_papers_order():
    places = [row["place"] for row in ROWS]
    assert places.index("Section 3.2.3") < places.index("Equation 2")
    assert places.index("Section 5.2") < places.index("Equation 3")
    assert places[-1] == "Table 4"


def test_docstrings_that_cite_the_paper_name_their_test():
    bare = [
        row["symbol"] for row in ledger.rows_of_package() if not row["test"]
    ]
    assert bare == []
