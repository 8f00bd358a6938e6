"""Byte-pair encoding: learn merges from a text, and replay them.

These are the functions behind
:class:`coursekit.tokenizer.BPETokenizer`; all of them work on the bytes of
*chunks*, which are words, numbers and other runs that merges never cross.
"""

import base64
import heapq
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from coursekit.checks import check_choice
from coursekit.files import read_bytes

# GPT-2 never merges across these borders: contractions, words and
# numbers with the space before them, other signs, the remaining space.
SPLIT = (
    r"'s|'t|'re|'ve|'m|'ll|'d"
    r"| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+"
    r"|\s+(?!\S)|\s+"
)
# Most models since keep numbers readable: each digit is a chunk of its own,
# and space before it does not join it.
DIGITS_APART = (
    r"'s|'t|'re|'ve|'m|'ll|'d"
    r"| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+"
    r"|\s+(?=\p{N})|\s+(?!\S)|\s+"
)
Pair = tuple[int, int]


def find_all(pattern: str, text: str) -> list[str]:
    """Everything that a pattern with Unicode classes finds, side by side."""
    # To load it takes longer than all of this package, and a model of
    # characters never asks for it.
    import regex  # type: ignore[import-untyped]

    compiled = regex.compile(pattern)
    if compiled.groups:  # findall would return what the groups hold
        chunks = [match.group() for match in compiled.finditer(text)]
    else:
        chunks = compiled.findall(text)
    return [*filter(None, chunks)]  # a pattern may find nothing at a place


def check_split(pattern: Any) -> None:
    """Refuse a pattern of chunks that is none.

    Raises:
        ValueError: it is no text, empty, or no regular expression.
    """
    if pattern in (SPLIT, DIGITS_APART):
        return
    import regex

    try:
        regex.compile(pattern)
        if not pattern:
            raise ValueError("empty")
    except (TypeError, ValueError, regex.error) as error:
        raise ValueError(
            "split must be a regular expression, as a text: got "
            f"{pattern!r} ({error}). Leave it out for GPT-2's."
        ) from None


def merge_in_place(
    word: list[int], pair: Pair, new: int
) -> Iterator[tuple[Pair, int]]:
    """Replace `pair` by `new` from left to right; yield what changes.

    Args:
        word: the ids of one chunk; changed in place.
        pair: two ids that become one.
        new: the id of the merged token.

    Yields:
        (pair, +1 or −1) for each adjacent pair that came or went: not
        only the merged one, its neighbors change partners too.
    """
    left, right = pair
    i = 0
    while i < len(word) - 1:
        if word[i] == left and word[i + 1] == right:
            yield pair, -1
            if i > 0:
                yield (word[i - 1], left), -1
                yield (word[i - 1], new), +1
            if i + 2 < len(word):
                yield (right, word[i + 2]), -1
                yield (new, word[i + 2]), +1
            word[i : i + 2] = [new]
        i += 1


def learn_merges(
    chunks: Mapping[bytes, int],
    n_merges: int,
    ties: str = "ids",
) -> list[Pair]:
    """Learn the merges of byte-pair encoding from counted chunks.

    Each step merges the most frequent pair of adjacent tokens. **Tie
    rule**: of equally frequent pairs the one with the smallest ids
    wins (first the left id, then the right); with ``ties="bytes"`` the
    one with the greatest bytes, compared likewise. All adjacent pairs are
    counted, so "aaa" holds (a, a) twice. Counts are kept up to date,
    never taken again: only chunks that hold the pair are touched.

    Args:
        chunks: how often each chunk of the split text occurs.
        n_merges: merges to learn; fewer come back when every chunk has
            become one token.
        ties: ``"ids"`` or ``"bytes"``, the tie rule.

    Returns:
        The merged pairs in order; merge number i makes the id 256 + i.

    Raises:
        ValueError: there is no such tie rule.

    Chapter: 1, the tokenizer.
    Source: sennrich2016bpe, algorithm 1.
    """
    rank = _tie_rule(ties)
    words = [list(chunk) for chunk in chunks]
    weights = list(chunks.values())
    counts: dict[Pair, int] = defaultdict(int)
    holders: dict[Pair, set[int]] = defaultdict(set)
    for w, word in enumerate(words):
        for pair in pairwise(word):
            counts[pair] += weights[w]
            holders[pair].add(w)
    merges: list[Pair] = []
    queue = [(-n, rank(pair, merges), pair) for pair, n in counts.items()]
    heapq.heapify(queue)

    while queue and len(merges) < n_merges:
        promised, tie, best = heapq.heappop(queue)
        if counts[best] != -promised:
            # Another merge took some of them: back in line.
            if counts[best] > 0:
                heapq.heappush(queue, (-counts[best], tie, best))
            continue
        new = 256 + len(merges)
        merges.append(best)
        born = set()
        for w in holders.pop(best):
            for pair, change in merge_in_place(words[w], best, new):
                counts[pair] += change * weights[w]
                if change > 0:
                    holders[pair].add(w)
                    born.add(pair)
        for pair in born:
            # In aaaa → Xaa → XX the pair (X, a) came and went.
            if counts[pair] > 0:
                entry = -counts[pair], rank(pair, merges), pair
                heapq.heappush(queue, entry)
    return merges


def _tie_rule(ties: str) -> Callable[[Pair, Sequence[Pair]], Any]:
    """Return what orders equally frequent pairs: the smallest wins.

    Args:
        ties: ``"ids"``, or ``"bytes"``: the greatest left token, as bytes,
            then the greatest right one, as in several other trainers.

    Returns:
        A function of a pair and of the merges so far.

    Raises:
        ValueError: there is no such rule.
    """
    check_choice("ties", ties, ("ids", "bytes"))
    tokens = [bytes([i]) for i in range(256)]

    def by_bytes(pair: Pair, merges: Sequence[Pair]) -> Any:
        for left, right in merges[len(tokens) - 256 :]:
            tokens.append(tokens[left] + tokens[right])
        # Each byte turned around; 256 ends a token, so a longer one wins.
        return [(*(255 - byte for byte in tokens[i]), 256) for i in pair]

    return by_bytes if ties == "bytes" else lambda pair, _: pair


def encode_chunk(chunk: bytes, ranks: Mapping[bytes, int]) -> list[int]:
    """Turn one chunk into ids by replaying the merges in learned order.

    Of all adjacent pairs the one whose union has the lowest rank is merged
    first, wherever it stands, until no union is a token; of equal ones the
    leftmost. A queue holds the pairs and each piece knows its neighbors, so
    n bytes take about n log n steps.

    Args:
        chunk: the bytes of one chunk of the split text.
        ranks: the id of each token; a lower id was learned earlier.

    Returns:
        The ids, one or more unless the chunk is empty.

    Chapter: 1, the tokenizer.
    Source: sennrich2016bpe, algorithm 1.
    Test: test_bpe.py::test_a_queue_merges_what_a_search_merges
    """
    n = len(chunk)
    # Index n, which is also index -1, is no piece: the end on both sides.
    pieces = [*(bytes([byte]) for byte in chunk), b""]
    left, right = list(range(-1, n)), list(range(1, n + 2))
    queue: list[tuple[int, int]] = []

    def offer(i: int) -> None:
        if pieces[i] and pieces[right[i]]:
            rank = ranks.get(pieces[i] + pieces[right[i]])
            if rank is not None:
                heapq.heappush(queue, (rank, i))

    for i in range(n):
        offer(i)
    while queue:
        rank, i = heapq.heappop(queue)
        j = right[i]
        if ranks.get(pieces[i] + pieces[j]) != rank:
            continue  # another merge took one of the two
        pieces[i], pieces[j] = pieces[i] + pieces[j], b""
        right[i] = right[j]
        left[right[i]] = i
        offer(left[i])
        offer(i)
    return [ranks[piece] for piece in pieces if piece]


def encode_chunk_with_dropout(
    chunk: bytes,
    ranks: Mapping[bytes, int],
    dropout: float,
    generator: random.Random,
) -> list[int]:
    """Turn one chunk into ids, overlooking merges at random.

    Before each merge every pair that could be merged is overlooked with
    probability ``dropout``; of the others the lowest rank wins, leftmost
    first. So one word is seen in many spellings, whole and in pieces.

    Args:
        chunk: the bytes of one chunk of the split text.
        ranks: the id of each token; a lower id was learned earlier.
        dropout: 0 merges as :func:`encode_chunk`, 1 leaves single bytes.
        generator: of the random decisions.

    Returns:
        The ids, one or more unless the chunk is empty.

    Chapter: 14, encoder and decoder together.
    Source: provilkov2020bpe, algorithm 1.
    Test: test_tokenizer.py::test_dropout_keeps_the_text
    """
    tokens = [bytes([byte]) for byte in chunk]
    while True:
        unions = [ranks.get(a + b) for a, b in pairwise(tokens)]
        candidates = [
            (rank, i)
            for i, rank in enumerate(unions)
            if rank is not None and generator.random() >= dropout
        ]
        if not candidates:
            return [ranks[token] for token in tokens]
        _, i = min(candidates)
        tokens[i : i + 2] = [tokens[i] + tokens[i + 1]]


def read_ranks(path: str | Path) -> list[bytes]:
    """Read published ranks: a line is a token in base64 and its id.

    Args:
        path: a .tiktoken file, or one compressed to .xz.

    Returns:
        The tokens in the order of their ids.

    Raises:
        ValueError: a line is damaged, or ids are not 0, 1, 2, …
    """
    tokens = []
    for number, line in enumerate(read_bytes(path).splitlines()):
        try:
            token, rank = line.split()
            tokens.append(base64.b64decode(token, validate=True))
            if int(rank) != number:
                raise ValueError
        except ValueError:
            raise ValueError(
                "each line of a ranks file must hold a token in "
                "base64 and the ids 0, 1, 2, …: got "
                f"{line[:40]!r} in line {number + 1} of {path}. "
                "Fetch the file again."
            ) from None
    return tokens


def tiktoken_encoding(pattern: str, ranks: dict[bytes, int]) -> Any:
    """Build a tiktoken encoding, or return None without tiktoken."""
    try:
        import tiktoken
    except ImportError:
        return None
    return tiktoken.Encoding(
        "coursekit",
        pat_str=pattern,
        mergeable_ranks=ranks,
        special_tokens={},
    )


@cache
def _class_probe(pattern: str) -> Any:
    """Return an encoding whose ids are the bytes that a pattern finds."""
    return tiktoken_encoding(pattern, {bytes([i]): i for i in range(256)})


def fast_is_safe(text: str) -> bool:
    """True if tiktoken's regex engine splits the pattern as `regex` does.

    It overflows its stack on a run of several 100,000 spaces. And the
    two know different versions of Unicode: a letter that is new to one
    is "another sign" to the other.
    """
    step = 65_536  # a run of twice that covers a whole block
    blocks = (text[i : i + step] for i in range(0, len(text), step))
    if any(block.isspace() for block in blocks):
        return False
    if text.isascii():
        return True
    chars = "".join({*text})
    return all(
        bytes(_class_probe(kind).encode_ordinary(chars))
        == "".join(find_all(kind, chars)).encode()
        for kind in (r"\p{L}", r"\p{N}", r"\s")
    )
