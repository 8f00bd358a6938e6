"""Text to token ids and back: characters, and byte-level BPE.

A tokenizer is a list of byte strings: the id of a token is its place in
the list, and decoding joins the bytes. Only encoding is an art.
"""

import base64
import codecs
import heapq
import json
import lzma
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib import resources
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import Any, ClassVar, Self

import regex

# GPT-2 never merges across these borders: contractions, words and
# numbers with the space before them, other signs, the remaining space.
SPLIT = (
    r"'s|'t|'re|'ve|'m|'ll|'d"
    r"| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+"
    r"|\s+(?!\S)|\s+"
)
Pair = tuple[int, int]


class Tokenizer:
    """What all tokenizers share: decoding, streaming and the file.

    Args:
        tokens: the byte string of each ordinary id, in the order of ids.
        special_tokens: names of control tokens; their ids follow the
            ordinary ones. Text never becomes one of them by itself.

    Raises:
        ValueError: two tokens are equal, or one is empty.

    *Chapter*: 1, Tokenizer.
    """

    type: ClassVar[str] = ""

    def __init__(
        self, tokens: Sequence[bytes], special_tokens: Sequence[str] = ()
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

    def encode(self, text: str) -> list[int]:
        """Turn text into ids."""
        raise NotImplementedError

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes that one id stands for.

        Raises:
            ValueError: the id is not in 0 … vocab_size − 1.
        """
        if not 0 <= token < self.vocab_size:
            raise ValueError(
                f"token ids must be in 0 … {self.vocab_size - 1}: got "
                f"{int(token)}. Decode with the tokenizer that encoded."
            )
        return self._bytes[token]

    def decode(self, ids: Iterable[int]) -> str:
        """Turn ids into text: join the bytes first, then decode once.

        Args:
            ids: token ids, in 0 … vocab_size − 1.

        Returns:
            The text; bytes that are not UTF-8 become U+FFFD (�).
        """
        joined = b"".join(self.token_bytes(i) for i in ids)
        return joined.decode("utf-8", errors="replace")

    def stream(self) -> "StreamDecoder":
        """Return a decoder that is fed one id at a time."""
        return StreamDecoder(self)

    def to_dict(self) -> dict[str, Any]:
        """Describe the tokenizer by what JSON can hold.

        Latin-1 has one character per byte, so each token can be written
        back exactly, and what is ASCII can be read.
        """
        return {
            "type": self.type,
            "special_tokens": list(self.special_tokens),
            "tokens": [token.decode("latin-1") for token in self.tokens],
        }

    def save(self, path: str | Path) -> None:
        """Write a JSON file with one token a line, whole or not at all."""
        write_atomically(path, json.dumps(self.to_dict(), indent=0) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote.

        Raises:
            ValueError: the file is damaged or of another type.
        """
        loaded = load_tokenizer(path)
        if not isinstance(loaded, cls):
            raise ValueError(
                f"the file must hold a tokenizer of type {cls.type!r}: got "
                f"{loaded.type!r} in {path}. Use load_tokenizer, which "
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
        return self._utf8.decode(self._tokenizer.token_bytes(token))

    def finish(self) -> str:
        """Return what is left: "" or � for a character cut short."""
        return self._utf8.decode(b"", final=True)


class CharTokenizer(Tokenizer):
    """One token per character, numbered by code point.

    Args:
        chars: the characters that can be encoded; order and repeats
            don't matter, so ids are the same in every run.
        special_tokens: names of control tokens, see `Tokenizer`.

    *Chapter*: 1, Tokenizer.
    """

    type: ClassVar[str] = "characters"

    def __init__(
        self, chars: Iterable[str], special_tokens: Sequence[str] = ()
    ) -> None:
        self.chars = "".join(sorted({*chars}))
        tokens = [utf8(char) for char in self.chars]
        super().__init__(tokens, special_tokens)
        self._ids = {char: i for i, char in enumerate(self.chars)}

    @classmethod
    def train(cls, text: str, special_tokens: Sequence[str] = ()) -> Self:
        """Take every character that occurs in a text."""
        if not text:
            raise ValueError(
                "training needs text: got an empty string. Pass at least "
                "one character."
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
                "a character tokenizer knows only the characters it was "
                f"trained on: got {char!r} (U+{ord(char):04X}) at index "
                f"{text.index(char)}; it knows {len(self.chars)} others. "
                "Train on a text that has it, or use BPETokenizer, which "
                "falls back to bytes."
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


def learn_merges(chunks: Mapping[bytes, int], n_merges: int) -> list[Pair]:
    """Learn the merges of byte-pair encoding from counted chunks.

    Each step merges the most frequent pair of adjacent tokens. **Tie
    rule**: of equally frequent pairs the one with the smallest ids wins
    (first the left id, then the right). Counts are those of all adjacent
    pairs, so "aaa" holds (a, a) twice. They are kept up to date, never
    counted again: only chunks that hold the pair are touched.

    Args:
        chunks: how often each chunk of the split text occurs.
        n_merges: merges to learn; fewer come back when every chunk has
            become one token.

    Returns:
        The merged pairs in order; merge number i makes the id 256 + i.

    *Chapter*: 1, Tokenizer. *Source*: sennrich2016bpe, algorithm 1.
    """
    words = [list(chunk) for chunk in chunks]
    weights = list(chunks.values())
    counts: dict[Pair, int] = defaultdict(int)
    holders: dict[Pair, set[int]] = defaultdict(set)
    for w, word in enumerate(words):
        for pair in zip(word, word[1:], strict=False):
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
        unions = [a + b for a, b in zip(parts, parts[1:], strict=False)]
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


class BPETokenizer(Tokenizer):
    """Byte-level BPE with GPT-2's split: encodes every text.

    Args:
        tokens: the byte string of each id: the 256 single bytes in any
            order (GPT-2's is not 0 … 255), then the merged tokens in the
            order in which they were learned.
        special_tokens: names of control tokens, see `Tokenizer`.

    Raises:
        ValueError: one of the 256 single bytes is missing.

    *Chapter*: 1, Tokenizer. *Source*: radford2019gpt2, section 2.2.
    """

    type: ClassVar[str] = "byte-level BPE"

    def __init__(
        self, tokens: Sequence[bytes], special_tokens: Sequence[str] = ()
    ) -> None:
        super().__init__(tokens, special_tokens)
        self.ranks = {token: i for i, token in enumerate(tokens)}
        missing = [i for i in range(256) if bytes([i]) not in self.ranks]
        if missing:
            raise ValueError(
                "byte-level BPE needs all 256 single bytes as tokens: "
                f"{len(missing)} are missing, the first is {missing[0]}. "
                "Put them before the merged tokens."
            )

    @classmethod
    def train(
        cls, text: str, vocab_size: int, special_tokens: Sequence[str] = ()
    ) -> Self:
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
                "vocab_size counts the 256 bytes, so it must be at least "
                f"256: got vocab_size={vocab_size}. Add 256 to the number "
                "of merges that you want."
            )
        if not text:
            raise ValueError(
                "training needs text: got an empty string. Pass the text "
                "to learn merges from."
            )
        counted = Counter(regex.findall(SPLIT, text))
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
                from the text. Default none: "<|endoftext|>" typed by a
                user is encoded as ordinary letters.
            fast: use tiktoken's core if it is installed (the extra
                `fast`); the ids are the same.

        Raises:
            ValueError: lone surrogates, or an unknown special token.
        """
        ids: list[int] = []
        for piece in self._cut(text, allowed_special):
            if piece in self.special_tokens and piece in allowed_special:
                ids.append(self.special_tokens[piece])
            elif fast and self._fast and same_classes(piece):
                ids += self._fast.encode_ordinary(piece)
            else:
                ids += self._encode_plainly(piece)
        return ids

    def _encode_plainly(self, text: str) -> list[int]:
        seen: dict[str, list[int]] = {}  # most words come again
        ids: list[int] = []
        for chunk in regex.findall(SPLIT, text):
            if chunk not in seen:
                seen[chunk] = encode_chunk(chunk.encode(), self.ranks)
            ids += seen[chunk]
        return ids
