"""BERT's tokenizer: words, or the longest pieces of them that are known."""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from coursekit.bpe import find_all
from coursekit.files import read_bytes, utf8
from coursekit.tokenizer import Tokenizer

# The Chinese characters, as BERT counts them: each is a word.
CHINESE = (
    r"\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df"
    r"\U0002a700-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f"
)
SPECIAL_TOKENS = "[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]"
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
    pieces: list[int] = []
    start = 0
    while start < len(word) <= 100:
        before = "##" if start else ""
        for stop in range(len(word), start, -1):
            piece = (before + word[start:stop]).encode()
            if piece in ids:
                pieces.append(ids[piece])
                start = stop
                break
        else:
            break
    return pieces if start == len(word) else [unknown]


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
    Test: test_wordpiece.py::test_wordpiece_is_that_of_another_library
    """

    kind: ClassVar[str] = "WordPiece"

    def __init__(
        self,
        tokens: Sequence[bytes],
        special_tokens: Sequence[str] = SPECIAL_TOKENS,
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
        ids: list[int] = []
        for word in split_words(text):
            ids += encode_word(word, self.ids, self._unknown)
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Turn ids into text, with a space between words and signs."""
        return super().decode(ids).removeprefix(" ")

    @classmethod
    def from_vocab(cls, path: str | Path) -> "WordPieceTokenizer":
        """Read a published ``vocab.txt``: one piece a line.

        Raises:
            ValueError: it is no such file.
        """
        return cls(read_bytes(path).splitlines())
