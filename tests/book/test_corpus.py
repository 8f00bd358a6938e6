"""No sentence of a corpus that may not be passed on stands in the project.

Every text in git, and all that the built notebooks print, is compared with all
of Multi30k, where the corpus is at hand: in the folder that COURSEKIT_DATA
names, or beside the checkout.
"""

import gzip
import os
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
import regex

ROOT = Path(__file__).parents[2]
DATA = Path(
    os.environ.get("COURSEKIT_DATA", ROOT.parent / "shared/data/local")
)
CORPUS = sorted(DATA.glob("multi30k/*.gz"))
LEAST, RUN = 5, 9  # words of a sentence, and of a part of one, that count
BINARY = {
    ".safetensors",
    ".npz",
    ".xz",
    ".png",
    ".woff",
    ".woff2",
    ".ttf",
    ".ico",
}

needs_corpus = pytest.mark.skipif(not CORPUS, reason="no Multi30k here")


def words(text):
    """Words in lower case, without signs: "A dog." is "a dog"."""
    return regex.findall(r"\p{L}+", text.lower())


class Corpus:
    """All sentences, found by their first words, and all longer runs."""

    def __init__(self, lines):
        self.whole, self.runs = defaultdict(set), set()
        for line in lines:
            told = tuple(words(line))
            if len(told) >= LEAST:
                self.whole[told[:LEAST]].add(told)
            for i in range(len(told) - RUN + 1):
                self.runs.add(hash(told[i : i + RUN]))

    def found_in(self, text):
        """Sentences, or parts of some, that stand in the text."""
        told = tuple(words(text))
        found = []
        for i in range(len(told)):
            if hash(told[i : i + RUN]) in self.runs:
                found.append(" ".join(told[i : i + RUN]))
            for line in self.whole.get(told[i : i + LEAST], ()):
                if told[i : i + len(line)] == line:
                    found.append(" ".join(line))
        return found


@pytest.fixture(scope="module")
def corpus():
    lines = []
    for path in CORPUS:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            lines += file
    return Corpus(lines)


def committed():
    """The texts in git, or all that would be added."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    paths = [ROOT / name for name in listed.splitlines()]
    return [p for p in paths if p.is_file() and p.suffix not in BINARY]


def built():
    """The notebooks of the built book, with what their cells print."""
    return sorted(ROOT.glob("_build/notebooks/**/*.ipynb"))


@needs_corpus
def test_no_sentence_is_passed_on(corpus):
    assert built(), "run `make build` first"
    found = {}
    for path in [*committed(), *built()]:
        text = path.read_text(encoding="utf-8", errors="replace")
        if hits := corpus.found_in(text):
            found[str(path.relative_to(ROOT))] = hits[:3]
    assert found == {}


@needs_corpus
def test_a_planted_sentence_is_found(corpus):
    with gzip.open(CORPUS[0], "rt", encoding="utf-8") as file:
        line = max((next(file) for _ in range(97)), key=len)
    assert corpus.found_in(f'x = "{line.strip().upper()}"')
    half = words(line)[1 : 1 + RUN]
    assert corpus.found_in("our own words " + ", ".join(half))
    assert corpus.found_in("our own words " + ", ".join(half[:-1])) == []


def test_what_is_found_without_the_corpus():
    made = Corpus(
        ["The owl keeps seven red clocks.", "No.", "A b c d e f g h i j"]
    )
    assert made.found_in("x: the OWL keeps\nseven red clocks!") == [
        "the owl keeps seven red clocks"
    ]
    assert made.found_in("The owl keeps seven blue clocks. No.") == []
    assert made.found_in("b c d e f g h i j") == ["b c d e f g h i j"]
