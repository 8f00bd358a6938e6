"""Text to token ids: characters and byte-level BPE."""

import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar

from coursekit import bpe
from coursekit.checks import is_integer
from coursekit.files import utf8
from coursekit.vocabulary import SpecialTokens, Tokenizer, special_of

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
        allowed = [*allowed_special]
        for piece in self._split_at_special(text, allowed):
            if piece in allowed:
                ids.append(self.special_tokens[piece])
            elif fast and self._fast and bpe.fast_is_safe(piece):
                ids += self._fast.encode_ordinary(piece)
            else:
                ids += bpe.encode_text(piece, self.split, self.ranks)
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

    def _safe_cut(
        self, text: str, allowed_special: Iterable[str] = (), **options: Any
    ) -> int:
        """Before the last chunks, and a name that may not be whole yet.

        What comes next can change the last two chunks, as GPT-2's pattern
        looks one character ahead; twice as many are kept. What is cut off
        must have the same chunks alone: two new lines before a word are two
        chunks, and one at the end of a text.
        """
        allowed, end = [*allowed_special], len(text)
        units = self._units(text, allowed)
        kept = max(map(len, allowed), default=0)
        while units and len(text) - end < kept:
            end -= len(units.pop())
        for n in range(len(units) - 4, 0, -1):
            cut = sum(map(len, units[:n]))
            if self._units(text[:cut], allowed) == units[:n]:
                return cut
        return 0

    def _units(self, text: str, allowed: Sequence[str]) -> list[str]:
        """The chunks of a text, and the special tokens between them."""
        units: list[str] = []
        for i, piece in enumerate(self._split_at_special(text, allowed)):
            units += [piece] if i % 2 else bpe.find_all(self.split, piece)
        return units

    def _split_at_special(
        self, text: str, allowed: Sequence[str]
    ) -> list[str]:
        """The allowed special tokens, and the texts between them."""
        unknown = [n for n in allowed if n not in self.special_tokens]
        if unknown:
            raise ValueError(
                "allowed_special must name special tokens: got "
                f"{unknown[0]!r}; there are {list(self.special_tokens)}. "
                "Give special_tokens when the tokenizer is made."
            )
        return _cut_at(text, allowed)

    @cached_property
    def _fast(self) -> Any:
        """Our ranks in tiktoken's core; None without it, or for other splits.

        Its engine reads some patterns otherwise, and crashes at others.
        """
        if self.split not in (bpe.SPLIT, bpe.DIGITS_APART):
            return None
        return bpe.tiktoken_encoding(self.split, self.ranks)

    @classmethod
    def from_ranks(
        cls, path: str | Path, special_tokens: SpecialTokens = ()
    ) -> "BPETokenizer":
        """Read published ranks: a line is a token in base64 and its id.

        Args:
            path: a .tiktoken file, or one compressed to .xz.
            special_tokens: names of control tokens, see `Tokenizer`.

        Raises:
            ValueError: a line is damaged, or ids are not 0, 1, 2, …
        """
        return cls(bpe.read_ranks(path), special_tokens)

    @classmethod
    def gpt2(cls) -> "BPETokenizer":
        """Return GPT-2's own tokenizer: 50,257 ids, the last one special.

        Source: radford2019language, section 2.2.
        """
        name = "assets/r50k_base.tiktoken.xz"
        with resources.as_file(resources.files("coursekit") / name) as path:
            return cls.from_ranks(path, ["<|endoftext|>"])
