"""What published vocabularies need, against the `tokenizers` library."""

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import (
    BertPreTokenizer,
    ByteLevel,
    Digits,
    Sequence,
)

from coursekit.bpe import DIGITS_APART, SPLIT
from coursekit.pretrained.wordpiece import WordPieceTokenizer
from coursekit.tokenizer import BPETokenizer, load_tokenizer


# -- published vocabularies -------------------------------------------------
def test_digits_apart():
    """Each digit alone; the space before a number keeps to itself."""
    split = regex.findall(DIGITS_APART, "In 1984,\n\n12 a's  7")
    expected = ["In", " ", "1", "9", "8", "4", ",", "\n\n", "1", "2"]
    assert split == [*expected, " a", "'s", "  ", "7"]
    assert regex.findall(SPLIT, " 1984") == [" 1984"]
    assert regex.findall(DIGITS_APART, " 1984") != [" 1984"]


def test_digits_apart_as_another_library_does_it():
    theirs = Sequence([Digits(individual_digits=True), ByteLevel(False)])
    texts = [CORPUS_LIKE, "a  7", "\n\n1. x\n 2 . y", "٣٤ ½ 1²", "'s 's's 3's"]
    for text in texts:
        right = [text[a:b] for _, (a, b) in theirs.pre_tokenize_str(text)]
        assert regex.findall(DIGITS_APART, text) == right


CORPUS_LIKE = "On 7 May 2024   it cost $1,234.56 (or 12 %).\r\n\t 3x "


def test_a_vocabulary_without_some_bytes(tmp_path):
    """What it lacks is refused where it stands, fast or not; and saved."""
    tokens = [bytes([i]) for i in range(256) if i not in (7, 0xF1)]
    with pytest.raises(ValueError, match="2 are missing, the first is 7"):
        BPETokenizer(tokens)
    made = BPETokenizer(tokens, ["<s>"], DIGITS_APART, complete=False)
    assert made.decode(made.encode("é 42")) == "é 42"
    for fast in (True, False):
        with pytest.raises(ValueError, match=r"got '\\x07' \(U\+0007\); 2 by"):
            made.encode("é\x07", fast=fast)
        with pytest.raises(ValueError, match=r"\(U\+50000\)"):
            made.encode("é\U00050000", fast=fast)
    made.save(tmp_path / "t.json")
    again = BPETokenizer.load(tmp_path / "t.json")
    assert (again.tokens, again.split) == (made.tokens, DIGITS_APART)
    assert again.missing == [7, 0xF1]


def test_usual_files_did_not_change():
    """What is as GPT-2's is not written, so old files are as new ones."""
    tokenizer = BPETokenizer.train("ab ab", 257)
    assert list(tokenizer.to_dict()) == ["type", "special_tokens", "tokens"]


# -- WordPiece --------------------------------------------------------------
PIECES = """
[PAD] [UNK] [CLS] [SEP] [MASK] the an ##imal did ##n ' t cross em ##bed ##ding
##s 中 国 ! . , ( ) - a b c e o u resume hotel 1 ##9 ##84 ß street $ + < = > ^
` | ~ σ ##ς ##σ i ##i strasse cafe ω
"""
PIECES = PIECES.split()


@pytest.fixture(scope="module")
def wordpiece():
    return WordPieceTokenizer([piece.encode() for piece in PIECES])


@pytest.fixture(scope="module")
def bert_tokenizer():
    ids = {piece: i for i, piece in enumerate(PIECES)}
    theirs = Tokenizer(WordPiece(ids, unk_token="[UNK]"))
    theirs.normalizer = BertNormalizer(lowercase=True)
    theirs.pre_tokenizer = BertPreTokenizer()
    return theirs


def test_wordpiece_by_hand(wordpiece):
    """The longest piece from the left, worked out on paper."""
    names = wordpiece.tokens

    def pieces(text):
        return [names[i].decode() for i in wordpiece.encode(text)]

    assert pieces("embeddings") == ["em", "##bed", "##ding", "##s"]
    assert pieces("The ANIMAL didn't") == [
        *("the", "an", "##imal", "did", "##n", "'", "t")
    ]
    assert pieces("Résumés") == ["resume", "##s"]
    assert pieces("中国!") == ["中", "国", "!"]
    assert pieces("1984") == ["1", "##9", "##84"]
    assert pieces("embeddingz a") == ["[UNK]", "a"]  # whole, not from the z
    assert pieces("a" * 101) == ["[UNK]"]
    assert pieces("[CLS]") == ["[UNK]", "[UNK]", "[UNK]"]  # never from text
    assert pieces(" \t\u200b\n") == []
    text = "the animal didn ' t cross"
    assert (
        wordpiece.decode(wordpiece.encode("The animal didn't cross")) == text
    )


def test_wordpiece_is_that_of_another_library(wordpiece, bert_tokenizer):
    texts = [
        "The animal didn't cross the street: it cost $1,984 (a+b<c)!",
        "Café CAFÉ cafe\u0301 Straße ΣΟΦΟΣ İi ﬁ ½ ² a\u00adb a\u200db",
        "中国 and 中\u3000国, 日本; \U00020000x \uf900 각",
        "a\x00b\x07c\ufffdd\u2028e\u00a0f\x85g\x1ch\r\ni\tj",
        "~`!@#$%^&*()_+-={}[]|\\:;\"'<>,.?/ §¶«»¿¡€™ ‘’“”…–—",
        "[CLS ] a[MASK]b " + "i" * 99 + " " + "i" * 100 + " " + "i" * 101,
        "",
    ]
    for text in texts:
        right = bert_tokenizer.encode(text, add_special_tokens=False).ids
        assert wordpiece.encode(text) == right, text


LETTERS = st.characters(max_codepoint=0x2FF) | st.sampled_from("中国σΣ—。")


@given(st.text(LETTERS))
@settings(max_examples=300, deadline=None)
def test_wordpiece_on_any_letters(wordpiece, bert_tokenizer, text):

    right = bert_tokenizer.encode(text, add_special_tokens=False).ids
    assert wordpiece.encode(text) == right


def test_wordpiece_is_saved(tmp_path, wordpiece):
    wordpiece.save(tmp_path / "t.json")
    again = load_tokenizer(tmp_path / "t.json")
    assert type(again) is WordPieceTokenizer
    assert again.tokens == wordpiece.tokens
    assert again.special_tokens == wordpiece.special_tokens
    assert again.special_tokens["[SEP]"] == 3
    assert again.vocab_size == len(wordpiece.tokens)
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(PIECES) + "\n", "utf8")
    assert WordPieceTokenizer.from_vocab(path).tokens == wordpiece.tokens


def test_wordpiece_streams(wordpiece):
    ids = wordpiece.encode("the embeddings cross the street")
    stream = wordpiece.stream()
    text = "".join([stream.push(i) for i in ids]) + stream.finish()
    assert text == " " + wordpiece.decode(ids)


def test_wordpiece_needs_its_special_tokens():
    with pytest.raises(ValueError, match=r"\['\[UNK\]'\], of which \['\[U"):
        WordPieceTokenizer([b"a"], ["[UNK]"])
    with pytest.raises(ValueError, match=r"got \[\], of which \[\]"):
        WordPieceTokenizer([b"a"], [])
