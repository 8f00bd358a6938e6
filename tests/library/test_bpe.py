"""Byte-pair encoding against a plain recount and a plain search."""

import math
import random
from collections import Counter
from itertools import pairwise

import pytest
import regex
from hypothesis import example, given, settings
from hypothesis import strategies as st

from coursekit import bpe
from coursekit.bpe import SPLIT, encode_chunk, learn_merges
from coursekit.data import load_text

BYTES = [bytes([i]) for i in range(256)]


# -- learning ----------------------------------------------------------------


def merge_everywhere(word, pair, new):
    out = []
    for token in word:
        out.append(token)
        if tuple(out[-2:]) == pair:
            out[-2:] = [new]
    return out


def recount(chunks, n_merges, choose=None):
    """Learn merges by counting everything again after each merge."""
    words = [(list(chunk), n) for chunk, n in chunks.items()]
    merges = []
    for new in range(256, 256 + n_merges):
        counts = Counter()
        for word, n in words:
            for pair in pairwise(word):
                counts[pair] += n
        if not counts:
            break
        most = max(counts.values())
        best = min(pair for pair, n in counts.items() if n == most)
        merges.append(choose(counts) if choose else best)
        words = [(merge_everywhere(w, merges[-1], new), n) for w, n in words]
    return merges


def chunks_of(text):
    return Counter(c.encode() for c in regex.findall(SPLIT, text))


def test_trainer_equals_recount_on_text():
    chunks = chunks_of(load_text("shakespeare")[:30_000])
    assert learn_merges(chunks, 101) == recount(chunks, 101)


@given(st.dictionaries(st.text("ab", min_size=1), st.integers(1, 5)))
@settings(max_examples=300, deadline=None)
@example({"aaaa": 1})
@example({"aaaaaaa": 1, "aaa": 3})
@example({"abababa": 2, "baab": 1})
def test_trainer_equals_recount_on_small_texts(counted):
    """Two letters only: overlaps, ties and runs in nearly every case."""
    chunks = {chunk.encode(): n for chunk, n in counted.items()}
    assert learn_merges(chunks, 23) == recount(chunks, 23)


def test_stale_neighbors_are_found(monkeypatch):
    """Control: a trainer that updates the merged pair only is caught."""
    honest = bpe.merge_in_place

    def stale(word, pair, new):
        for changed, change in honest(word, pair, new):
            if changed == pair or change > 0:
                yield changed, change

    chunks = chunks_of("the theme then thaws; he hems, hens and a bathe")
    expected = recount(chunks, 13)
    assert learn_merges(chunks, 13) == expected
    monkeypatch.setattr(bpe, "merge_in_place", stale)
    assert learn_merges(chunks, 13) != expected


def test_ties_do_not_depend_on_the_order_of_the_text():
    """All pairs of "abcd" tie; the smallest ids win in either order."""
    forth = ["ab", "cd", "ef"]
    expected = [tuple(pair.encode()) for pair in forth]
    for words in (forth, forth[::-1]):
        chunks = {word.encode(): 7 for word in words}
        assert learn_merges(chunks, 3) == expected
        # Control: the first of the most frequent depends on the order.
        first = recount(chunks, 3, lambda n: max(n, key=n.__getitem__))
        assert (first == expected) == (words == forth)


# -- encoding ----------------------------------------------------------------


def searched(chunk, ranks):
    """The definition: search all pairs before each merge, the leftmost."""
    pieces = [bytes([byte]) for byte in chunk]
    while len(pieces) > 1:
        unions = [ranks.get(a + b, math.inf) for a, b in pairwise(pieces)]
        i = unions.index(min(unions))
        if unions[i] == math.inf:
            break
        pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]
    return [ranks[piece] for piece in pieces]


def in_passes(chunk, ranks):
    """Until 2026: merge the best pair wherever it stands, then search."""
    pieces = [bytes([byte]) for byte in chunk]
    while len(pieces) > 1:
        unions = [a + b for a, b in pairwise(pieces)]
        best = min(unions, key=lambda union: ranks.get(union, math.inf))
        if best not in ranks:
            break
        merged, i = [], 0
        while i < len(pieces):
            pair = i < len(unions) and unions[i] == best
            merged.append(best if pair else pieces[i])
            i += 1 + pair
        pieces = merged
    return [ranks[piece] for piece in pieces]


def learned_ranks(text, n_merges):
    tokens = list(BYTES)
    for left, right in learn_merges(chunks_of(text), n_merges):
        tokens.append(tokens[left] + tokens[right])
    return {token: i for i, token in enumerate(tokens)}


@given(st.text("abc ", min_size=1), st.text("abc", max_size=40))
@settings(max_examples=300, deadline=None)
@example("aaaa aaa", "aaaaaaaaaaa")
@example("abababa baab", "abaababaabab")
@example("ab bc abc", "cabcabcc")
def test_a_queue_merges_what_a_search_merges(training, text):
    """Three letters: overlaps, runs and equal pairs in nearly every case."""
    ranks = learned_ranks(training, 23)
    chunk = text.encode()
    ids = encode_chunk(chunk, ranks)
    assert ids == searched(chunk, ranks) == in_passes(chunk, ranks)


@given(st.permutations(["aa", "ab", "ba", "aab", "aba", "bab", "abab"]))
@settings(max_examples=100, deadline=None)
def test_tokens_in_any_order(tokens):
    """Also where a merge makes a pair with a lower rank than its own."""
    ranks = {token: i for i, token in enumerate(BYTES)}
    ranks |= {token.encode(): 256 + i for i, token in enumerate(tokens)}
    generator = random.Random(0)
    for _ in range(20):
        chunk = bytes(generator.choices(b"ab", k=19))
        assert encode_chunk(chunk, ranks) == searched(chunk, ranks)


def test_any_order_as_tiktoken_has_it():
    tiktoken = pytest.importorskip("tiktoken")
    generator = random.Random(1)
    for _ in range(20):
        tokens = ["aa", "ab", "ba", "aab", "aba", "bab", "abab", "bb"]
        generator.shuffle(tokens)
        ranks = {token: i for i, token in enumerate(BYTES)}
        ranks |= {token.encode(): 256 + i for i, token in enumerate(tokens)}
        theirs = tiktoken.Encoding(
            "any", pat_str=SPLIT, mergeable_ranks=ranks, special_tokens={}
        )
        text = "".join(generator.choices("ab", k=211))
        assert encode_chunk(text.encode(), ranks) == theirs.encode(text)


class Counted(dict):
    """Ranks that count how often they are asked."""

    looks = 0

    def get(self, *words):
        self.looks += 1
        return super().get(*words)


def looks(encode, chunk, ranks):
    """How often an encoder looks a pair up."""
    counted = Counted(ranks)
    encode(chunk, counted)
    return counted.looks


def test_a_long_word_takes_no_longer_per_letter():
    """Two looks at a pair for each byte, or six; a search has many more."""
    ranks = learned_ranks(load_text("shakespeare")[:30_000], 500)
    letters = random.Random(2).choices(b"etaoinshrdlu", k=100_000)
    for chunk in (b"a" * 100_000, bytes(letters)):
        assert looks(encode_chunk, chunk, ranks) <= 6 * len(chunk)
    # The control: what it replaces.
    few = bytes(letters[:500])
    assert looks(in_passes, few, ranks) > 6 * len(few)
