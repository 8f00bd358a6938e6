"""What all tokenizers share: decoding, streaming and the file.

A tokenizer is a list of byte strings: the id of a token is its position in
the list, and decoding joins the bytes. Only encoding is an art; see
:mod:`coursekit.tokenizer`.
"""

import codecs
import importlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from coursekit.checks import check_id_list, require
from coursekit.files import parse_json, utf8, write_atomically

TOKENIZERS = {
    "characters": "coursekit.tokenizer:CharTokenizer",
    "byte-level BPE": "coursekit.tokenizer:BPETokenizer",
    "WordPiece": "coursekit.pretrained.wordpiece:WordPieceTokenizer",
}
"""The type that a file names: its class, imported when one is loaded."""
K = TypeVar("K", bound="Tokenizer")
SpecialTokens = Sequence[str] | Mapping[str, int]
"""Names of control tokens, or their ids by name."""
HELD = 16_384
"""Characters that are read before the first are encoded."""


class Tokenizer(ABC):
    """What all tokenizers share: decoding, streaming and the file.

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
            ids = _check_special_ids([*special_tokens.values()], size)
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
        """Whether all of a text is in the vocabulary."""
        try:
            self.encode(text)
        except ValueError:
            return False
        return True

    def encode_iterable(
        self, texts: Iterable[str], **options: Any
    ) -> Iterator[int]:
        """Yield the ids of a text that comes in parts, such as an open file.

        The ids are those of all parts joined, though at most some ten
        thousand characters are held, or the longest part: a cut is made
        where a token ends whatever comes next. Only a word (a chunk, for
        BPE) that is longer is held whole.

        Args:
            texts: the parts, in order.
            options: as `encode` takes them, such as ``allowed_special``.

        Yields:
            One id after the other.

        Raises:
            ValueError: as `encode`, at the part that it concerns.

        Chapter: 1, the tokenizer.
        Test: test_tokenizer.py::test_parts_have_the_ids_of_the_whole
        """
        held, wanted = "", HELD
        for text in texts:
            held += text
            if len(held) >= wanted:
                cut = self._safe_cut(held, **options)
                yield from self.encode(held[:cut], **options)
                held = held[cut:]
                wanted = max(HELD, 2 * len(held))  # so that time is linear
        yield from self.encode(held, **options)

    def _safe_cut(self, text: str, **options: Any) -> int:
        """Up to where a text's ids don't depend on what comes next."""
        return len(text)

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


def _check_special_ids(ids: list[Any], size: int) -> list[int]:
    """Refuse ids of special tokens that are not among all ids, once each.

    Raises:
        ValueError: one is not in 0 … size − 1, or comes twice.
    """
    whole = [i for i in ids if type(i) is int and 0 <= i < size]
    if len({*whole}) < len(ids):
        raise ValueError(
            f"special tokens must have different ids in 0 … {size - 1}: got "
            f"{ids}. All ids must be in use, so the highest is one less than "
            "the number of tokens."
        )
    return whole


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
