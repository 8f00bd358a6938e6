"""Text to token ids, and back: characters and byte-level BPE.

A tokenizer is a list of byte strings: the id of a token is its position in
the list, and decoding joins the bytes.  Only encoding is an art.
"""

import codecs
import importlib
import json
import random
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from coursekit import bpe
from coursekit.checks import check_id_list, is_integer, require
from coursekit.files import parse_json, utf8, write_atomically

TOKENIZERS = {
    "characters": "coursekit.tokenizer:CharTokenizer",
    "byte-level BPE": "coursekit.tokenizer:BPETokenizer",
    "WordPiece": "coursekit.pretrained.wordpiece:WordPieceTokenizer",
}
"""The class of each type that a file names, imported when one is loaded."""
K = TypeVar("K", bound="Tokenizer")
SpecialTokens = Sequence[str] | Mapping[str, int]
"""Names of control tokens, or their ids by name."""


class Tokenizer(ABC):
    """Base of all tokenizers: decoding, streaming and files.

    Args:
        tokens: the byte string of each ordinary id, in the order of ids.
        special_tokens: names of control tokens; their ids follow the
            ordinary ones. Or each name with its id, wherever that is: the
            ordinary tokens then have the ids that are left, in their
            order. Text never becomes one of them by itself.

    Raises:
        ValueError: two tokens are equal, one is empty, the ids of special
            tokens leave gaps, or their names are one string.

    Chapter: 1, the tokenizer.
    """

    kind: ClassVar[str] = ""

    def __init__(
        self,
        tokens: Sequence[bytes],
        special_tokens: SpecialTokens = (),
    ) -> None:
        require(
            not isinstance(special_tokens, str),
            "special_tokens is a list of names",
            f"the text {special_tokens!r}",
            f"Write [{special_tokens!r}].",
        )
        names = list(special_tokens)
        lists = (tokens, names)
        if any(len({*x}) < len(x) or not all(x) for x in lists):
            raise ValueError(
                "tokens must be distinct and not empty: got "
                f"{len(tokens)} tokens, {len({*tokens})} of them distinct, "
                f"and special_tokens={names}. Remove what occurs twice."
            )
        self.tokens = list(tokens)
        size = len(tokens) + len(names)
        ids: Sequence[int] = range(len(tokens), size)
        if isinstance(special_tokens, Mapping):
            ids = [*special_tokens.values()]
            valid = {i for i in ids if type(i) is int and 0 <= i < size}
            require(
                len(valid) == len(ids),
                f"special tokens must have different ids in 0 … {size - 1}",
                f"{ids}",
                "All ids must be in use, so the highest is one less than the "
                "number of tokens.",
            )
        self.special_tokens = dict(zip(names, ids, strict=True))
        special = {
            i: utf8(str(name)) for i, name in zip(ids, names, strict=True)
        }
        self.ordinary_ids = [i for i in range(size) if i not in special]
        by_id = dict(zip(self.ordinary_ids, tokens, strict=True)) | special
        self._bytes = [by_id[i] for i in range(size)]

    @property
    def vocab_size(self) -> int:
        """The number of ids, special tokens included: a model's V."""
        return len(self._bytes)

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Turn text into ids."""

    def can_encode(self, text: str) -> bool:
        """True if the vocabulary covers all of a text."""
        try:
            self.encode(text)
        except ValueError:
            return False
        return True

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
            ValueError: an id is no integer in 0 … vocab_size − 1.
        """
        ids = check_id_list(ids)
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
        fields: dict[str, Any] = {
            "type": self.kind,
            "special_tokens": list(self.special_tokens),
            "tokens": [token.decode("latin-1") for token in self.tokens],
        }
        if self.ordinary_ids != [*range(len(self.tokens))]:
            fields["special_ids"] = list(self.special_tokens.values())
        return fields

    @classmethod
    def from_dict(cls: type[K], fields: dict[str, Any], **options: Any) -> K:
        """Build a tokenizer of this type from what `to_dict` gave."""
        tokens = [token.encode("latin-1") for token in fields["tokens"]]
        return cls(tokens, special_of(fields), **options)

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


def special_of(fields: dict[str, Any]) -> SpecialTokens:
    """The special tokens that a file names, with ids if it has them."""
    names: list[str] = fields["special_tokens"]
    ids = fields.get("special_ids")
    return names if ids is None else dict(zip(names, ids, strict=True))


def tokenizer_from_dict(fields: Any) -> Tokenizer:
    """Build a tokenizer from what `Tokenizer.to_dict` gave.

    Raises:
        ValueError: the type is unknown or a field is missing or wrong.
    """
    kind = fields.get("type") if isinstance(fields, dict) else None
    if kind not in [*TOKENIZERS]:  # it may be a list
        raise ValueError(
            f"a tokenizer's type must be one of {list(TOKENIZERS)}: got "
            f"{repr(kind)[:80]}. Save it again with Tokenizer.save."
        )
    module, _, name = TOKENIZERS[kind].partition(":")
    kind = getattr(importlib.import_module(module), name)
    try:
        for key in ("tokens", "special_tokens"):
            if not isinstance(fields[key], list):
                raise TypeError(f"{key} must be a list")
            if not all(isinstance(token, str) for token in fields[key]):
                raise TypeError(f"{key} must be texts")
        return kind.from_dict(fields)
    except (KeyError, TypeError, AttributeError, UnicodeError) as error:
        raise ValueError(
            "a tokenizer needs the lists tokens and special_tokens: got "
            f"{str(sorted(fields))[:200]} ({repr(error)[:200]}). Save it "
            "again with Tokenizer.save."
        ) from None


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
        fields = parse_json(Path(path).read_bytes())
    except ValueError as error:
        raise ValueError(
            f"a tokenizer file must be whole JSON: got {path} ({error}). "
            "Save it again with Tokenizer.save."
        ) from None
    return tokenizer_from_dict(fields)


SHOWN = 20  # characters that a message names


def _check_text(text: str) -> None:
    """Refuse a text with nothing to learn from."""
    if not text:
        raise ValueError(
            "training needs text: got an empty string. Pass the text to "
            "learn from, at least one character."
        )


def _cut_at(text: str, names: Sequence[str]) -> list[str]:
    """Cut a text where names stand: text, name, text, …, text."""
    if not names:
        return [text]
    # The longest name first, so that a name may begin another.
    longest = map(re.escape, sorted(names, key=len, reverse=True))
    return re.split(f"({'|'.join(longest)})", text)


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
        self, chars: Iterable[str], special_tokens: SpecialTokens = ()
    ) -> None:
        self.chars = "".join(sorted({*"".join(chars)}))
        tokens = [utf8(char) for char in self.chars]
        super().__init__(tokens, special_tokens)
        self._ids = dict(zip(self.chars, self.ordinary_ids, strict=True))

    @classmethod
    def from_dict(
        cls, fields: dict[str, Any], **options: Any
    ) -> "CharTokenizer":
        """Build it from what `to_dict` gave: single characters, sorted."""
        tokens = [token.encode("latin-1") for token in fields["tokens"]]
        chars = [token.decode() for token in tokens]
        tokenizer = cls(chars, special_of(fields))
        if tokenizer.tokens != tokens:
            raise ValueError(
                "a character tokenizer's tokens must be single characters, "
                f"sorted: got {chars[:20]}. Save it again with "
                "Tokenizer.save."
            )
        return tokenizer

    @classmethod
    def train(
        cls, text: str, special_tokens: SpecialTokens = ()
    ) -> "CharTokenizer":
        """Take every character that occurs in a text, which is not empty."""
        _check_text(text)
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
            some = "such as " * (len(self.chars) > SHOWN)
            raise ValueError(
                "a character tokenizer knows only the characters it "
                f"was trained on: got {char!r} (U+{ord(char):04X}) at "
                f"index {text.index(char)}; it knows {len(self.chars)}, "
                f"{some}{self.chars[-SHOWN:]!r}. Use only these, or train on "
                "a text that has the other; BPETokenizer takes every text."
            ) from None


class BPETokenizer(Tokenizer):
    """Byte-level BPE with GPT-2's split: encodes every text.

    Args:
        tokens: the byte string of each id: the 256 single bytes in any
            order (GPT-2's is not 0 … 255), then the merged tokens as
            they were learned.
        special_tokens: names of control tokens, see `Tokenizer`.
        split: the pattern of the chunks that merges never cross. Each text
            must be covered by its chunks, or it is refused.
        complete: refuse tokens that lack one of the 256 single bytes.
            Without, texts that need such a byte are refused; a few
            published vocabularies are like that.

    Raises:
        ValueError: one of the 256 single bytes is missing, or ``split`` is
            no regular expression.

    Differs from the paper: on bytes, so that no text is unknown; its pairs of
        merged pieces came from characters.
    Chapter: 1, the tokenizer.
    Source: radford2019language, section 2.2; vaswani2017attention,
        section 5.1; sennrich2016bpe.
    Test: test_tokenizer.py::test_training_by_hand
    """

    kind: ClassVar[str] = "byte-level BPE"

    def __init__(
        self,
        tokens: Sequence[bytes],
        special_tokens: SpecialTokens = (),
        split: str = bpe.SPLIT,
        complete: bool = True,
    ) -> None:
        super().__init__(tokens, special_tokens)
        bpe.check_split(split)
        self.split = split
        # Ids rise in the order of the merges, wherever special ones lie.
        self.ranks = dict(zip(self.tokens, self.ordinary_ids, strict=True))
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
        if self.split != bpe.SPLIT:
            fields["split"] = self.split
        if self.missing:
            fields["complete"] = False
        return fields

    @classmethod
    def from_dict(
        cls, fields: dict[str, Any], **options: Any
    ) -> "BPETokenizer":
        """Build it from what `to_dict` gave, GPT-2's split by default."""
        split = fields.get("split", bpe.SPLIT)
        complete = fields.get("complete", True) is not False
        return super().from_dict(fields, split=split, complete=complete)

    @classmethod
    def train(
        cls,
        text: str,
        vocab_size: int,
        special_tokens: SpecialTokens = (),
        ties: str = "ids",
    ) -> "BPETokenizer":
        """Learn a vocabulary from a text, see `learn_merges`.

        Args:
            text: the text to learn from, not empty.
            vocab_size: tokens to have, the 256 bytes included, special
                tokens not; a short text may yield fewer.
            special_tokens: names of control tokens, see `Tokenizer`. The
                text is cut where one stands, so nothing is learned from
                their letters.
            ties: which of equally frequent pairs is merged first, see
                `learn_merges`.

        Raises:
            ValueError: the text is empty, vocab_size is below 256, or there
                is no such rule for ties.
        """
        if not is_integer(vocab_size, 256):
            raise ValueError(
                "vocab_size counts the 256 bytes, so it must be at "
                f"least 256: got vocab_size={vocab_size}. Add 256 to "
                "the number of merges that you want."
            )
        _check_text(text)
        counted: Counter[str] = Counter()
        for piece in _cut_at(text, [*special_tokens])[::2]:
            counted.update(bpe.find_all(bpe.SPLIT, piece))
        chunks = {utf8(chunk): n for chunk, n in counted.items()}
        tokens = [bytes([i]) for i in range(256)]
        for left, right in bpe.learn_merges(chunks, vocab_size - 256, ties):
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
        encoded: dict[str, list[int]] = {}  # most words come again
        allowed = [*allowed_special]
        unknown = [n for n in allowed if n not in self.special_tokens]
        if unknown:
            raise ValueError(
                "allowed_special must name special tokens: got "
                f"{unknown[0]!r}; there are {list(self.special_tokens)}. "
                "Give special_tokens when the tokenizer is made."
            )
        for piece in _cut_at(text, allowed):
            if piece in allowed:
                ids.append(self.special_tokens[piece])
            elif fast and self._fast and bpe.fast_is_safe(piece):
                ids += self._fast.encode_ordinary(piece)
            else:
                for chunk in bpe.find_all(self.split, piece):
                    if chunk not in encoded:
                        data = chunk.encode()
                        encoded[chunk] = bpe.encode_chunk(data, self.ranks)
                    ids += encoded[chunk]
        self._check_covered(text, ids)
        return ids

    def encode_with_dropout(
        self, text: str, dropout: float, generator: random.Random
    ) -> list[int]:
        """Turn text into ids in one of its many spellings, for training.

        Args:
            text: any text without lone surrogates.
            dropout: the probability of overlooking a possible merge, at
                each look; 0.1 is usual.
            generator: of the random decisions.

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
        ids: list[int] = []
        for chunk in bpe.find_all(self.split, text):
            ids += bpe.encode_chunk_with_dropout(
                chunk.encode(), self.ranks, dropout, generator
            )
        self._check_covered(text, ids)
        return ids

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

    def _check_covered(self, text: str, ids: Sequence[int]) -> None:
        """Refuse a text of which a split of one's own left something out."""
        if self.split in (bpe.SPLIT, bpe.DIGITS_APART):
            return
        n, n_kept = len(text.encode()), len(self.decode_bytes(ids))
        if n_kept < n:
            raise ValueError(
                "the chunks of split must cover each text: got "
                f"{n_kept} bytes of {n} by {self.split!r}. Add |\\s+|. to it, "
                "as the last choices."
            )

    @cached_property
    def _fast(self) -> Any:
        """Our ranks in tiktoken's core; None without it, or for other splits.

        Its engine reads some patterns otherwise, and crashes at others.
        """
        if self.split not in (bpe.SPLIT, bpe.DIGITS_APART):
            return None
        return bpe.tiktoken_encoding(self.split, self.ranks)

    @classmethod
    def gpt2(cls) -> "BPETokenizer":
        """Return GPT-2's own tokenizer: 50,257 ids, the last one special.

        Source: radford2019language, section 2.2.
        """
        name = "assets/r50k_base.tiktoken.xz"
        with resources.as_file(resources.files("coursekit") / name) as path:
            return cls(bpe.read_ranks(path), ["<|endoftext|>"])
