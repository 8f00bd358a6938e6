"""Text to token ids and back: characters, byte-level BPE, WordPiece.

A tokenizer is a list of byte strings: the id of a token is its place in
the list, and decoding joins the bytes. Only encoding is an art.
"""

import base64
import codecs
import gzip
import heapq
import json
import lzma
import os
import random
import re
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from importlib import resources
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any, ClassVar, TypeVar

__all__ = [
    "DIGITS_APART",
    "SPLIT",
    "BPETokenizer",
    "CharTokenizer",
    "StreamDecoder",
    "Tokenizer",
    "WordPieceTokenizer",
    "encode_chunk",
    "encode_chunk_with_dropout",
    "encode_word",
    "from_printable",
    "learn_merges",
    "load_tokenizer",
    "merge_in_place",
    "read_bytes",
    "split_words",
    "tokenizer_from_dict",
    "write_atomically",
]

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
K = TypeVar("K", bound="Tokenizer")


def find_all(pattern: str, text: str) -> list[str]:
    """Everything that a pattern with Unicode classes finds, side by side."""
    # To load it takes longer than all of this package, and a model of
    # characters never asks for it.
    import regex  # type: ignore[import-untyped]

    return regex.findall(pattern, text)


class Tokenizer(ABC):
    """What all tokenizers share: decoding, streaming and the file.

    Args:
        tokens: the byte string of each ordinary id, in the order of ids.
        special_tokens: names of control tokens; their ids follow the
            ordinary ones. Text never becomes one of them by itself.

    Raises:
        ValueError: two tokens are equal, or one is empty.

    Chapter: 1, the tokenizer.
    """

    kind: ClassVar[str] = ""

    def __init__(
        self,
        tokens: Sequence[bytes],
        special_tokens: Sequence[str] = (),
    ) -> None:
        names = list(special_tokens)
        if (
            len({*tokens}) < len(tokens)
            or len({*names}) < len(names)
            or b"" in tokens
            or "" in names
        ):
            raise ValueError(
                "tokens must be distinct and not empty: got "
                f"{len(tokens)} tokens, {len({*tokens})} of them distinct, "
                f"and special_tokens={names}. Remove what occurs twice."
            )
        self.tokens = list(tokens)
        self.special_tokens = {
            name: len(tokens) + i for i, name in enumerate(names)
        }
        self._bytes = self.tokens + [name.encode() for name in names]

    @property
    def vocab_size(self) -> int:
        """The number of ids, special tokens included: a model's V."""
        return len(self._bytes)

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Turn text into ids."""

    def decode(self, ids: Iterable[int]) -> str:
        """Turn ids into text: join the bytes first, then decode once.

        Args:
            ids: token ids, in 0 … vocab_size − 1.

        Returns:
            The text; bytes that are not UTF-8 become U+FFFD (�).

        Raises:
            ValueError: an id is out of range.
        """
        joined = self.decode_bytes(ids)
        return joined.decode("utf-8", errors="replace")

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Return the bytes of the ids; a token may hold half a character.

        Raises:
            ValueError: an id is not in 0 … vocab_size − 1.
        """
        ids = [int(i) for i in ids]
        if ids and (min(ids) < 0 or max(ids) >= self.vocab_size):
            bad = next(i for i in ids if not 0 <= i < self.vocab_size)
            raise ValueError(
                f"token ids must be in 0 … {self.vocab_size - 1}: got "
                f"{bad}. Decode with the tokenizer that encoded."
            )
        return b"".join([self._bytes[i] for i in ids])

    def stream(self) -> "StreamDecoder":
        """Return a decoder that is fed one id at a time."""
        return StreamDecoder(self)

    def to_dict(self) -> dict[str, Any]:
        """Describe the tokenizer by what JSON can hold.

        Latin-1 has one character per byte, so each token can be written
        back exactly, and what is ASCII can be read.
        """
        return {
            "type": self.kind,
            "special_tokens": list(self.special_tokens),
            "tokens": [token.decode("latin-1") for token in self.tokens],
        }

    def save(self, path: str | Path) -> None:
        """Write a JSON file with one token a line, whole or not at all."""
        write_atomically(path, json.dumps(self.to_dict(), indent=0) + "\n")

    @classmethod
    def load(cls: type[K], path: str | Path) -> K:
        """Read what `save` wrote.

        Raises:
            ValueError: the file is damaged or of another type.
        """
        loaded = load_tokenizer(path)
        if not isinstance(loaded, cls):
            raise ValueError(
                f"the file must hold a tokenizer of type {cls.kind!r}: got "
                f"{loaded.kind!r} in {path}. Use load_tokenizer, which "
                "takes every type."
            )
        return loaded


class StreamDecoder:
    """Decodes ids one by one and never gives out half a character.

    All the pieces joined equal `decode` of all the ids.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """Take one id; return the text that is complete by now."""
        return self._utf8.decode(self._tokenizer.decode_bytes([token]))

    def finish(self) -> str:
        """Return what is left: "" or � for a character cut short."""
        return self._utf8.decode(b"", final=True)


class CharTokenizer(Tokenizer):
    """One token per character, numbered by code point.

    Args:
        chars: the characters that can be encoded; order and repeats
            don't matter, so ids are the same in every run.
        special_tokens: names of control tokens, see `Tokenizer`.

    Chapter: 1, the tokenizer.
    """

    kind: ClassVar[str] = "characters"

    def __init__(
        self, chars: Iterable[str], special_tokens: Sequence[str] = ()
    ) -> None:
        self.chars = "".join(sorted({*"".join(chars)}))
        tokens = [utf8(char) for char in self.chars]
        super().__init__(tokens, special_tokens)
        self._ids = {char: i for i, char in enumerate(self.chars)}

    @classmethod
    def train(
        cls, text: str, special_tokens: Sequence[str] = ()
    ) -> "CharTokenizer":
        """Take every character that occurs in a text."""
        if not text:
            raise ValueError(
                "training needs text: got an empty string. Pass at "
                "least one character."
            )
        return cls(text, special_tokens)

    def encode(self, text: str) -> list[int]:
        """Turn each character into its id.

        Raises:
            ValueError: a character is not in the vocabulary.
        """
        try:
            return [self._ids[char] for char in text]
        except KeyError as error:
            char = error.args[0]
            raise ValueError(
                "a character tokenizer knows only the characters it "
                f"was trained on: got {char!r} (U+{ord(char):04X}) at "
                f"index {text.index(char)}; it knows {len(self.chars)} "
                "others. Train on a text that has it, or use "
                "BPETokenizer, which falls back to bytes."
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
) -> list[Pair]:
    """Learn the merges of byte-pair encoding from counted chunks.

    Each step merges the most frequent pair of adjacent tokens. **Tie
    rule**: of equally frequent pairs the one with the smallest ids
    wins (first the left id, then the right). All adjacent pairs are
    counted, so "aaa" holds (a, a) twice. Counts are kept up to date,
    never taken again: only chunks that hold the pair are touched.

    Args:
        chunks: how often each chunk of the split text occurs.
        n_merges: merges to learn; fewer come back when every chunk has
            become one token.

    Returns:
        The merged pairs in order; merge number i makes the id 256 + i.

    Chapter: 1, the tokenizer.
    Source: sennrich2016bpe, algorithm 1.
    """
    words = [list(chunk) for chunk in chunks]
    weights = list(chunks.values())
    counts: dict[Pair, int] = defaultdict(int)
    holders: dict[Pair, set[int]] = defaultdict(set)
    for w, word in enumerate(words):
        for pair in pairwise(word):
            counts[pair] += weights[w]
            holders[pair].add(w)
    queue = [(-count, pair) for pair, count in counts.items()]
    heapq.heapify(queue)

    merges: list[Pair] = []
    while queue and len(merges) < n_merges:
        promised, best = heapq.heappop(queue)
        if counts[best] != -promised:
            # Another merge took some of them: back in line.
            if counts[best] > 0:
                heapq.heappush(queue, (-counts[best], best))
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
                heapq.heappush(queue, (-counts[pair], pair))
    return merges


def encode_chunk(chunk: bytes, ranks: Mapping[bytes, int]) -> list[int]:
    """Turn one chunk into ids by replaying the merges in learned order.

    Of all adjacent pairs the one whose union has the lowest rank is
    merged first, wherever it stands, until no union is a token.

    Args:
        chunk: the bytes of one chunk of the split text.
        ranks: the id of each token; a lower id was learned earlier.

    Returns:
        The ids, one or more unless the chunk is empty.
    """
    parts = [bytes([byte]) for byte in chunk]
    while len(parts) > 1:
        unions = [a + b for a, b in pairwise(parts)]
        best = min(unions, key=lambda union: ranks.get(union, inf))
        if best not in ranks:
            break
        merged: list[bytes] = []
        i = 0
        while i < len(parts):
            if i < len(unions) and unions[i] == best:
                merged.append(best)
                i += 2
            else:
                merged.append(parts[i])
                i += 1
        parts = merged
    return [ranks[part] for part in parts]


def encode_chunk_with_dropout(
    chunk: bytes,
    ranks: Mapping[bytes, int],
    dropout: float,
    chance: random.Random,
) -> list[int]:
    """Turn one chunk into ids, overlooking merges by chance.

    Before each merge every pair that could be merged is overlooked with
    probability ``dropout``; of the others the lowest rank wins, leftmost
    first. So one word is seen in many spellings, whole and in pieces.

    Args:
        chunk: the bytes of one chunk of the split text.
        ranks: the id of each token; a lower id was learned earlier.
        dropout: 0 merges as :func:`encode_chunk`, 1 leaves single bytes.
        chance: from which the decisions are drawn.

    Returns:
        The ids, one or more unless the chunk is empty.

    Chapter: 14, encoder and decoder together.
    Source: provilkov2020bpe, algorithm 1.
    Test: tests/test_tokenizer.py::test_dropout_keeps_the_text
    """
    parts = [bytes([byte]) for byte in chunk]
    while True:
        unions = [ranks.get(a + b) for a, b in pairwise(parts)]
        seen = [
            (rank, i)
            for i, rank in enumerate(unions)
            if rank is not None and chance.random() >= dropout
        ]
        if not seen:
            return [ranks[part] for part in parts]
        _, i = min(seen)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


class BPETokenizer(Tokenizer):
    """Byte-level BPE with GPT-2's split: encodes every text.

    Args:
        tokens: the byte string of each id: the 256 single bytes in any
            order (GPT-2's is not 0 … 255), then the merged tokens as
            they were learned.
        special_tokens: names of control tokens, see `Tokenizer`.
        split: the pattern of the chunks that merges never cross.
        complete: refuse tokens that lack one of the 256 single bytes.
            Without, texts that need such a byte are refused; a few
            published vocabularies are like that.

    Raises:
        ValueError: one of the 256 single bytes is missing.

    Differs from the paper: on bytes, so that no text is unknown; its pairs of
        merged pieces came from characters.
    Chapter: 1, the tokenizer.
    Source: radford2019language, section 2.2; vaswani2017attention,
        section 5.1; sennrich2016bpe.
    Test: tests/test_tokenizer.py::test_training_by_hand
    """

    kind: ClassVar[str] = "byte-level BPE"

    def __init__(
        self,
        tokens: Sequence[bytes],
        special_tokens: Sequence[str] = (),
        split: str = SPLIT,
        complete: bool = True,
    ) -> None:
        super().__init__(tokens, special_tokens)
        self.split = split
        self.ranks = {token: i for i, token in enumerate(tokens)}
        singles = [bytes([i]) for i in range(256)]
        self.missing = [one[0] for one in singles if one not in self.ranks]
        if self.missing and complete:
            raise ValueError(
                "byte-level BPE needs all 256 single bytes as tokens: "
                f"{len(self.missing)} are missing, the first is "
                f"{self.missing[0]}. Put them before the merged tokens."
            )

    def to_dict(self) -> dict[str, Any]:
        """Describe the tokenizer; what is as GPT-2's is left out."""
        fields = super().to_dict()
        if self.split != SPLIT:
            fields["split"] = self.split
        if self.missing:
            fields["complete"] = False
        return fields

    @classmethod
    def train(
        cls,
        text: str,
        vocab_size: int,
        special_tokens: Sequence[str] = (),
    ) -> "BPETokenizer":
        """Learn a vocabulary from a text, see `learn_merges`.

        Args:
            text: the text to learn from, not empty.
            vocab_size: tokens to have, the 256 bytes included, special
                tokens not; a short text may yield fewer.
            special_tokens: names of control tokens, see `Tokenizer`.

        Raises:
            ValueError: the text is empty or vocab_size is below 256.
        """
        if vocab_size < 256:
            raise ValueError(
                "vocab_size counts the 256 bytes, so it must be at "
                f"least 256: got vocab_size={vocab_size}. Add 256 to "
                "the number of merges that you want."
            )
        if not text:
            raise ValueError(
                "training needs text: got an empty string. Pass the "
                "text to learn merges from."
            )
        counted = Counter(find_all(SPLIT, text))
        chunks = {utf8(chunk): n for chunk, n in counted.items()}
        tokens = [bytes([i]) for i in range(256)]
        for left, right in learn_merges(chunks, vocab_size - 256):
            tokens.append(tokens[left] + tokens[right])
        return cls(tokens, special_tokens)

    def encode(
        self,
        text: str,
        allowed_special: Iterable[str] = (),
        fast: bool = True,
    ) -> list[int]:
        """Turn text into ids; `decode` gives the text back.

        Args:
            text: any text without lone surrogates.
            allowed_special: names of special tokens that may be read
                from the text. Default none: ``<|endoftext|>`` typed by a
                user is encoded as ordinary letters.
            fast: use tiktoken's core if it is installed (the extra
                `fast`); the ids are the same.

        Raises:
            ValueError: lone surrogates, an unknown special token, or a
                byte that the vocabulary lacks.
        """
        self._check(text)
        ids: list[int] = []
        for piece, special in self._cut(text, tuple(allowed_special)):
            if special is not None:
                ids.append(special)
            elif fast and self._fast and fast_is_safe(piece):
                ids += self._fast.encode_ordinary(piece)
            else:
                ids += self._encode_plainly(piece)
        return ids

    def encode_with_dropout(
        self, text: str, dropout: float, chance: random.Random
    ) -> list[int]:
        """Turn text into ids in one of its many spellings, for training.

        Args:
            text: any text without lone surrogates.
            dropout: the probability of overlooking a possible merge, at
                each look; 0.1 is usual.
            chance: from which the decisions are drawn.

        Returns:
            Ids of which `decode` gives the text back.

        Raises:
            ValueError: lone surrogates, or a dropout outside 0 to 1.

        Chapter: 14, encoder and decoder together.
        Source: provilkov2020bpe.
        """
        self._check(text)
        if not 0 <= dropout <= 1:
            raise ValueError(
                f"dropout must be a probability: got {dropout}. 0 overlooks "
                "no merge, 0.1 is usual."
            )
        return [
            i
            for chunk in find_all(self.split, text)
            for i in encode_chunk_with_dropout(
                chunk.encode(), self.ranks, dropout, chance
            )
        ]

    def _check(self, text: str) -> None:
        """Refuse what has no ids."""
        data = utf8(text)
        if self.missing and (lost := {*self.missing} & {*data}):
            at = min(data.index(byte) for byte in lost)
            char = text[len(data[:at].decode(errors="ignore"))]
            raise ValueError(
                "a text must be made of bytes that the vocabulary has: got "
                f"{char!r} (U+{ord(char):04X}); {len(self.missing)} bytes "
                "are missing in these tokens. Leave it out."
            )

    def _encode_plainly(self, text: str) -> list[int]:
        seen: dict[str, list[int]] = {}  # most words come again
        ids: list[int] = []
        for chunk in find_all(self.split, text):
            if chunk not in seen:
                seen[chunk] = encode_chunk(chunk.encode(), self.ranks)
            ids += seen[chunk]
        return ids

    def _cut(
        self, text: str, allowed: tuple[str, ...]
    ) -> Iterator[tuple[str, int | None]]:
        """Cut at the allowed special tokens; yield (piece, its id)."""
        unknown = [n for n in allowed if n not in self.special_tokens]
        if unknown:
            raise ValueError(
                "allowed_special must name special tokens: got "
                f"{unknown[0]!r}; there are {list(self.special_tokens)}. "
                "Give special_tokens when the tokenizer is made."
            )
        # The longest name first, so that a name may begin another.
        names = sorted(allowed, key=len, reverse=True)
        pattern = "|".join(re.escape(name) for name in names)
        end = 0
        for hit in re.finditer(pattern, text) if names else ():
            yield text[end : hit.start()], None
            yield hit[0], self.special_tokens[hit[0]]
            end = hit.end()
        yield text[end:], None

    @cached_property
    def _fast(self) -> Any:
        """Our ranks in tiktoken's core, or None without tiktoken."""
        return tiktoken_encoding(self.split, self.ranks)

    @classmethod
    def from_ranks(
        cls, path: str | Path, special_tokens: Sequence[str] = ()
    ) -> "BPETokenizer":
        """Read published ranks: a line is a token in base64 and its id.

        Args:
            path: a .tiktoken file, or one compressed to .xz.
            special_tokens: names of control tokens, see `Tokenizer`.

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
        return cls(tokens, special_tokens)

    @classmethod
    def gpt2(cls) -> "BPETokenizer":
        """Return GPT-2's own tokenizer: 50,257 ids, the last one special.

        Source: radford2019language, section 2.2.
        """
        name = "assets/r50k_base.tiktoken.xz"
        with resources.as_file(resources.files("coursekit") / name) as path:
            return cls.from_ranks(path, ["<|endoftext|>"])


def from_printable(token: str) -> bytes:
    """Turn a token as published files write it into its bytes.

    JSON holds no bytes, so GPT-2's files show each byte by a letter: those
    that can be printed by themselves, the other 68 by the letters from
    U+0100 on, in their order.  So ``Ġ`` (U+0120) is the space.

    Args:
        token: one token, in such letters.

    Returns:
        Its bytes.

    Raises:
        ValueError: a letter stands for no byte.

    Chapter: 15, modern.
    Test: tests/test_wordpiece.py::test_printable_letters_are_bytes
    """
    letters = printable_letters()
    try:
        return bytes([letters[letter] for letter in token])
    except KeyError as error:
        raise ValueError(
            "each letter of a published token must stand for a byte: got "
            f"{error.args[0]!r} in {token!r}. Is it a special token?"
        ) from None


@cache
def printable_letters() -> dict[str, int]:
    """Return the byte that each letter stands for."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    letters = {chr(byte): byte for byte in shown}
    return letters | {chr(256 + i): byte for i, byte in enumerate(hidden)}


# The Chinese characters, as BERT counts them: each is a word.
CHINESE = (
    r"\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df"
    r"\U0002a700-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f"
)
SIGNS = r"\p{P}$+<=>^`|~"  # all ASCII signs, and Unicode's punctuation


def split_words(text: str) -> list[str]:
    """Cut text into lower-case words without accents, and single signs.

    Args:
        text: any text.

    Returns:
        Words, signs and Chinese characters; what can't be seen is gone.

    Chapter: 15, modern.
    Source: devlin2019bert, its code; the paper does not describe this.
    """
    text = re.sub(r"[\t\n\r]", " ", text)
    text = "".join(find_all(r"[^\p{C}\ufffd]+", text))
    # é becomes e and its accent, a mark of its own, which then goes.
    bare = find_all(r"\P{Mn}+", unicodedata.normalize("NFD", text))
    text = "".join([char.lower() for char in "".join(bare)])
    words = rf"[{CHINESE}{SIGNS}]|[^\s{CHINESE}{SIGNS}]+"
    return find_all(words, text)


def encode_word(
    word: str, ids: Mapping[bytes, int], unknown: int
) -> list[int]:
    """Cut a word into the longest pieces that are known, from the left.

    A piece that does not begin the word is known by ``##`` before it:
    *embeddings* becomes em ##bed ##ding ##s.

    Args:
        word: without spaces.
        ids: the id of each piece.
        unknown: the id of the whole word if a part of it is unknown, or
            if it has more than 100 letters.

    Returns:
        The ids of its pieces.

    Chapter: 15, modern.
    Source: wu2016google, section 4.1.
    """
    found: list[int] = []
    start = 0
    while start < len(word) <= 100:
        before = "##" if start else ""
        for stop in range(len(word), start, -1):
            piece = (before + word[start:stop]).encode()
            if piece in ids:
                found.append(ids[piece])
                start = stop
                break
        else:
            break
    return found if start == len(word) else [unknown]


class WordPieceTokenizer(Tokenizer):
    """BERT's tokenizer: words, or their longest known pieces.

    What it forgets can't be decoded: capitals, accents, spaces.

    Args:
        tokens: the pieces in the order of their ids, special ones
            included.
        special_tokens: which of them are control tokens; the first is
            given to words that can't be made of pieces.

    Raises:
        ValueError: a special token is not among the tokens, or there is
            none.

    Chapter: 15, modern.
    Source: devlin2019bert; wu2016google, section 4.1.
    Test: tests/test_wordpiece.py::test_wordpiece_is_that_of_another_library
    """

    kind: ClassVar[str] = "WordPiece"

    def __init__(
        self,
        tokens: Sequence[bytes],
        special_tokens: Sequence[str] = (
            "[UNK]",
            "[PAD]",
            "[CLS]",
            "[SEP]",
            "[MASK]",
        ),
    ) -> None:
        super().__init__(tokens)
        self.ids = {token: i for i, token in enumerate(tokens)}
        names = list(special_tokens)
        absent = [name for name in names if name.encode() not in self.ids]
        if absent or not names:
            raise ValueError(
                "WordPiece's special tokens must be among its tokens: got "
                f"{names}, of which {absent} are not. Name the one for "
                "unknown words first."
            )
        self.special_tokens = {name: self.ids[name.encode()] for name in names}
        self._unknown = self.special_tokens[names[0]]
        # Decoded, a word begins with a space, a later piece does not.
        self._bytes = [
            token[2:] if token.startswith(b"##") else b" " + token
            for token in self.tokens
        ]

    def encode(self, text: str) -> list[int]:
        """Turn text into ids, without [CLS] and [SEP] around it.

        Raises:
            ValueError: lone surrogates.
        """
        utf8(text)
        words = split_words(text)
        return [
            i
            for word in words
            for i in encode_word(word, self.ids, self._unknown)
        ]

    def decode(self, ids: Iterable[int]) -> str:
        """Turn ids into text, with a space between words and signs."""
        return super().decode(ids).removeprefix(" ")

    @classmethod
    def from_vocab(cls, path: str | Path) -> "WordPieceTokenizer":
        """Read a published ``vocab.txt``: one piece a line.

        Raises:
            ValueError: it is no such file.
        """
        lines = read_bytes(path).splitlines()
        return cls(lines)


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
def class_probe(pattern: str) -> Any:
    """Return an encoding whose ids are the bytes that a pattern finds."""
    return tiktoken_encoding(pattern, {bytes([i]): i for i in range(256)})


def fast_is_safe(text: str) -> bool:
    """Tell whether tiktoken's regex engine will split as `regex` does.

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
        bytes(class_probe(kind).encode_ordinary(chars))
        == "".join(find_all(kind, chars)).encode()
        for kind in (r"\p{L}", r"\p{N}", r"\s")
    )


def utf8(text: str) -> bytes:
    """Turn text into UTF-8.

    Raises:
        ValueError: the text holds half of a surrogate pair.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            "text must be valid Unicode: got the lone surrogate "
            f"U+{ord(text[error.start]):04X} at index {error.start}. "
            "Read the file with the right encoding."
        ) from None


def read_bytes(path: str | Path) -> bytes:
    """Read a file; what ends in .xz or .gz is decompressed."""
    data = Path(path).read_bytes()
    try:
        if str(path).endswith(".xz"):
            return lzma.decompress(data)
        if str(path).endswith(".gz"):
            return gzip.decompress(data)
    except (lzma.LZMAError, EOFError, OSError) as error:
        raise ValueError(
            f"a compressed file must be whole: got {len(data)} bytes in "
            f"{path} ({error}). Fetch the file again."
        ) from None
    return data


def write_atomically(path: str | Path, content: str | bytes) -> None:
    """Write a file whole or not at all: write beside it, then rename.

    Raises:
        OSError: the disk is full or the folder is missing; an older
            file of that name is then as it was.
    """
    path = Path(path)
    data = content.encode() if isinstance(content, str) else content
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def tokenizer_from_dict(fields: Any) -> Tokenizer:
    """Build a tokenizer from what `Tokenizer.to_dict` gave.

    Raises:
        ValueError: the type is unknown or a field is missing or wrong.
    """
    kinds = [CharTokenizer.kind, BPETokenizer.kind, WordPieceTokenizer.kind]
    kind = fields.get("type") if isinstance(fields, dict) else None
    if kind not in kinds:
        raise ValueError(
            f"a tokenizer's type must be one of {kinds}: got {kind!r}. "
            "Save it again with Tokenizer.save."
        )
    try:
        tokens = [token.encode("latin-1") for token in fields["tokens"]]
        special = [str(name) for name in fields["special_tokens"]]
        chars = [t.decode() for t in tokens if kind == CharTokenizer.kind]
    except (KeyError, TypeError, AttributeError, UnicodeError) as error:
        raise ValueError(
            "a tokenizer needs the lists tokens and special_tokens: got "
            f"{sorted(fields)} ({error!r}). Save it again with "
            "Tokenizer.save."
        ) from None
    if kind == BPETokenizer.kind:
        split = str(fields.get("split", SPLIT))
        complete = fields.get("complete", True) is not False
        return BPETokenizer(tokens, special, split, complete)
    if kind == WordPieceTokenizer.kind:
        return WordPieceTokenizer(tokens, special)
    tokenizer = CharTokenizer(chars, special)
    if tokenizer.tokens != tokens:
        raise ValueError(
            "a character tokenizer's tokens must be single characters, "
            f"sorted: got {chars[:20]}. Save it again with Tokenizer.save."
        )
    return tokenizer


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Read what `Tokenizer.save` wrote, of whichever type.

    Raises:
        ValueError: the file is not JSON or not a tokenizer's.
    """
    if not Path(path).is_file():
        raise ValueError(
            f"a tokenizer must be a file: got {path}, which is none. Check "
            "the path, or save it with Tokenizer.save."
        )
    try:
        fields = json.loads(Path(path).read_bytes())
    except ValueError as error:
        raise ValueError(
            f"a tokenizer file must be whole JSON: got {path} ({error}). "
            "Save it again with Tokenizer.save."
        ) from None
    return tokenizer_from_dict(fields)
