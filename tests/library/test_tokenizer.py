"""The tokenizers against tiktoken, a plain recount and hand-made cases."""

import base64
import json
import os
import pkgutil
import random
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest
import regex
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from test_bpe import chunks_of, recount

from coursekit import bpe
from coursekit.bpe import (
    SPLIT,
    encode_chunk,
    encode_chunk_with_dropout,
    fast_is_safe,
    learn_merges,
)
from coursekit.data import load_text
from coursekit.datasets import read_asset
from coursekit.tokenizer import (
    TOKENIZERS,
    BPETokenizer,
    CharTokenizer,
    Tokenizer,
    load_tokenizer,
    tokenizer_from_dict,
)
from coursekit_classroom.catalogue import tokenizer as exercises
from coursekit_classroom.check import check

tiktoken = pytest.importorskip("tiktoken")

BYTES = [bytes([i]) for i in range(256)]
PLAIN = 200_000  # characters of Shakespeare for the readable path
END = "<|endoftext|>"
ASSIGNED = st.text(st.characters(exclude_categories=["Cs", "Cn"]))
ANY = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.fixture(scope="module")
def shakespeare():
    return load_text("shakespeare")


@pytest.fixture(scope="module")
def small(shakespeare):
    """1,000 tokens, and one special."""
    return BPETokenizer.train(shakespeare, 1000, [END])


@pytest.fixture(scope="module")
def gpt2():
    return BPETokenizer.gpt2()


@pytest.fixture(scope="module")
def r50k():
    """The oracle, read from the same file by code of its own."""
    lines = read_asset("r50k_base.tiktoken.xz").splitlines()
    pairs = (line.split() for line in lines)
    return tiktoken.Encoding(
        "r50k_base",
        pat_str=r"'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+"
        r"| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        mergeable_ranks={base64.b64decode(t): int(r) for t, r in pairs},
        special_tokens={END: 50256},
    )


# --- training ---------------------------------------------------------------


def test_training_by_hand():
    """In "aaabdaaabac" a+a comes 4 times, then aa+a and a+b tie at 2."""
    tokenizer = BPETokenizer.train("aaabdaaabac", 259)
    assert tokenizer.tokens[256:] == [b"aa", b"ab", b"aaab"]
    # aa+a (ids 256, 97) loses the tie against a+b (97, 98), whose ids are
    # smaller; then aa+ab comes twice.
    assert tokenizer.encode("aaabdaaabac") == [258, 100, 258, 97, 99]


def test_short_text_ends_early():
    assert BPETokenizer.train("abc", 1000).tokens[256:] == [b"ab", b"abc"]
    assert BPETokenizer.train("abc", 256).vocab_size == 256


# --- encoding ---------------------------------------------------------------


def test_equal_to_tiktoken_on_shakespeare(shakespeare, gpt2, r50k):
    expected = r50k.encode_ordinary(shakespeare)
    assert gpt2.encode(shakespeare) == expected
    assert gpt2.decode(expected) == shakespeare
    start = shakespeare[:PLAIN]
    assert gpt2.encode(start, fast=False) == r50k.encode_ordinary(start)


@pytest.mark.parametrize(
    "name", ["argparse", "json.decoder", "turtle", "html.entities"]
)
def test_equal_to_tiktoken_on_code(name, gpt2, r50k):
    code = Path(find_spec(name).origin).read_text(encoding="utf-8")
    expected = r50k.encode_ordinary(code)
    assert gpt2.encode(code, fast=False) == expected
    assert gpt2.encode(code) == expected
    assert gpt2.decode(expected) == code


@given(ASSIGNED)
@settings(max_examples=300, deadline=None)
@example("aaaaaaaaaaaaaaa   \n\n \t x  ")
@example("naïve 🙂 don't DON'T 1234 ½²\u3000\u00a0.")
def test_equal_to_tiktoken_on_unicode(gpt2, r50k, text):
    assume(fast_is_safe(text))
    assert gpt2.encode(text, fast=False) == r50k.encode_ordinary(text)


@given(ANY)
@settings(max_examples=300, deadline=None)
@example("\u088f")  # a letter since Unicode 17
@example("a\u0558 b")
@example("\ufffe\U0010ffff\x00\x1c\x85")
def test_fast_equals_plain_and_round_trips(small, gpt2, text):
    for tokenizer in (small, gpt2):
        ids = tokenizer.encode(text)
        assert ids == tokenizer.encode(text, fast=False)
        assert tokenizer.decode(ids) == text


def test_fast_equals_plain_on_shakespeare(small, shakespeare):
    text = shakespeare[-PLAIN:]
    assert small.encode(text) == small.encode(text, fast=False)


@given(st.text("ab", min_size=1, max_size=60), st.text("ab ", min_size=1))
@settings(max_examples=200, deadline=None)
def test_fast_equals_plain_with_any_merges(training, text):
    tokenizer = BPETokenizer.train(training, 275)
    assert tokenizer.encode(text) == tokenizer.encode(text, fast=False)
    # What was one chunk in training is replayed as it was learned.
    assert tokenizer.decode(tokenizer.encode(training)) == training


@pytest.mark.parametrize("end", ["", "x"])
def test_a_long_run_of_spaces(small, end):
    """tiktoken's engine overflows its stack here; ours takes over."""
    text = "x" + " " * 400_000 + end
    assert small.decode(small.encode(text)) == text


def test_without_tiktoken(small, shakespeare, monkeypatch):
    """One switch: the same ids when the extra is not installed."""
    text = shakespeare[:5000]
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    tokenizer = tokenizer_from_dict(small.to_dict())
    assert tokenizer._fast is None
    assert tokenizer.encode(text) == small.encode(text)


def left_to_right(chunk, merges):
    """The mistake: join the first known pair that you meet."""
    word, i = list(chunk), 0
    while i < len(word) - 1:
        if (word[i], word[i + 1]) in merges:
            word[i : i + 2] = [merges[word[i], word[i + 1]]]
            i = 0
        else:
            i += 1
    return word


def test_merges_are_replayed_by_rank():
    """With u+g, h+ug, h+u learned in this order, "thug" is t, hug."""
    tokens = [*BYTES, b"ug", b"hug", b"hu"]
    t, h, u, g = b"thug"
    tokenizer = BPETokenizer(tokens)
    assert encode_chunk(b"thug", tokenizer.ranks) == [t, 257]
    for fast in (True, False):
        assert tokenizer.encode("thug", fast=fast) == [t, 257]
    # Control: from the left, h+u comes first and g stays alone.
    merges = {(u, g): 256, (h, 256): 257, (h, u): 258}
    assert left_to_right(b"thug", merges) == [t, 258, g]


def test_left_to_right_costs_tokens(shakespeare, small):
    """The same mistake on real text: round trips, but is longer."""
    pairs = learn_merges(chunks_of(shakespeare), 1000 - 256)
    merges = {pair: 256 + i for i, pair in enumerate(pairs)}
    chunks = regex.findall(SPLIT, shakespeare[:20_000])
    wrong = [i for c in chunks for i in left_to_right(c.encode(), merges)]
    right = small.encode(shakespeare[:20_000])
    assert small.decode(wrong) == small.decode(right)
    assert len(wrong) > 1.01 * len(right)


def test_gpt2_numbers_bytes_in_its_own_order(gpt2):
    """The 256 single bytes are the first ids, but "!" is id 0."""
    assert sorted(gpt2.tokens[:256]) == BYTES
    assert gpt2.tokens[:2] == [b"!", b'"']
    assert gpt2.vocab_size == 50257
    # Published: the ids of "Hello world".
    assert gpt2.encode("Hello world") == [15496, 995]


def test_special_tokens_never_come_from_text(small, gpt2, r50k):
    text = f"one{END}two"
    for tokenizer in (small, gpt2):
        special = tokenizer.special_tokens[END]
        for fast in (True, False):
            ids = tokenizer.encode(text, fast=fast)
            assert special not in ids
            assert tokenizer.decode(ids) == text
            ids = tokenizer.encode(text, allowed_special=[END], fast=fast)
            assert ids.count(special) == 1
            assert tokenizer.decode(ids) == text
    # Control: encode at will, as tiktoken can, gives the control token.
    assert 50256 in r50k.encode(text, allowed_special="all")
    assert gpt2.encode(text, [END]) == r50k.encode(text, allowed_special="all")
    assert small.vocab_size == 1001
    assert small.special_tokens == {END: 1000}


def test_special_names_are_literal_and_the_longest_wins():
    tokenizer = BPETokenizer(BYTES, ["<a>", "<a>+", "."])
    ids = tokenizer.encode("x<a>+<a>.y", iter(["<a>", "<a>+", "."]))
    assert ids == [120, 257, 256, 258, 121]
    assert tokenizer.encode("<a>", [])[0] == ord("<")
    assert tokenizer.encode("", ["."]) == []


# --- decoding ---------------------------------------------------------------


def test_a_character_may_span_tokens(small):
    text = "naïve 🙂"
    ids = small.encode(text)
    assert small.decode(ids) == text
    # Control: one token at a time breaks both characters.
    alone = "".join(small.decode([i]) for i in ids)
    assert alone.count("�") == 6
    stream = small.stream()
    pieces = [stream.push(i) for i in ids]
    assert "".join(pieces) + stream.finish() == text
    assert not any("�" in piece for piece in pieces)
    assert pieces[-1] == "🙂"
    assert pieces[-4:-1] == ["", "", ""]


@given(st.lists(st.integers(0, 1000)))
@settings(max_examples=200, deadline=None)
def test_stream_equals_decode_for_any_ids(small, ids):
    """Also for ids that no text gives."""
    stream = small.stream()
    streamed = "".join([stream.push(i) for i in ids]) + stream.finish()
    assert streamed == small.decode(ids)


def test_stream_cut_short(small):
    stream = small.stream()
    assert [stream.push(i) for i in small.encode("🙂")[:3]] == [""] * 3
    assert stream.finish() == "�"


@pytest.mark.parametrize("bad", [-1, 1001])
def test_decode_refuses_unknown_ids(small, bad):
    rule = rf"0 … 1000: got {bad}\. Decode with"
    with pytest.raises(ValueError, match=rule):
        small.decode([5, bad])
    with pytest.raises(ValueError, match=rule):
        small.stream().push(bad)


# --- characters -------------------------------------------------------------


def test_characters_by_hand():
    tokenizer = CharTokenizer.train("banana é", ["<pad>", "<eos>"])
    assert tokenizer.chars == " abné"
    assert tokenizer.encode("né") == [3, 4]
    assert tokenizer.special_tokens == {"<pad>": 5, "<eos>": 6}
    assert tokenizer.vocab_size == 7
    assert tokenizer.decode([2, 1, 4, 6]) == "baé<eos>"
    stream = tokenizer.stream()
    assert [stream.push(i) for i in (4, 0)] == ["é", " "]


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
@settings(deadline=None)
def test_characters_round_trip(text):
    tokenizer = CharTokenizer.train(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert CharTokenizer(text[::-1]).tokens == tokenizer.tokens


def test_characters_survive_a_restart():
    """The ids are the same whatever the hash seed of the process."""
    code = (
        "import json\nfrom coursekit.tokenizer import *\n"
        "print(json.dumps([CharTokenizer.train('hello wörld').to_dict(),"
        "BPETokenizer.train('low lower slow slower', 270).to_dict()]))"
    )
    another = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "1"},
    )
    assert json.loads(another.stdout) == [
        CharTokenizer.train("hello wörld").to_dict(),
        BPETokenizer.train("low lower slow slower", 270).to_dict(),
    ]
    # Control: a set's own order does change with the seed.
    orders = {
        subprocess.run(
            [sys.executable, "-c", "print(''.join(set('hello wörld')))"],
            capture_output=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONUTF8": "1"},
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(orders) > 1


def test_one_string_is_no_list_of_special_tokens():
    for make in (CharTokenizer, BPETokenizer):
        with pytest.raises(
            ValueError, match=r"got the text '<eos>'\. Write \["
        ):
            make([b"a", b"b"] if make is BPETokenizer else "ab", "<eos>")
    assert CharTokenizer("ab", ["<eos>"]).special_tokens == {"<eos>": 2}


def test_unknown_character():
    rule = r"got 'é' \(U\+00E9\) at index 3; it knows 4, 'acef'.*BPETokenizer"
    with pytest.raises(ValueError, match=rule):
        CharTokenizer.train("cafe").encode("café")


# --- files ------------------------------------------------------------------


def test_save_and_load(small, gpt2, tmp_path):
    path = tmp_path / "tokenizer.json"
    text = f"naïve 🙂 don't{END}"
    chars = CharTokenizer(text, ["<eos>"])
    for tokenizer in (chars, small, gpt2):
        tokenizer.save(path)
        for back in (load_tokenizer(path), type(tokenizer).load(path)):
            assert type(back) is type(tokenizer)
            assert back.to_dict() == tokenizer.to_dict()
            assert back.encode(text) == tokenizer.encode(text)
        assert [p.name for p in tmp_path.iterdir()] == ["tokenizer.json"]


def test_file_is_readable(small, tmp_path):
    path = tmp_path / "tokenizer.json"
    small.save(path)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert '"type": "byte-level BPE",' in lines
    assert '" the",' in lines
    assert json.loads(path.read_bytes())["special_tokens"] == [END]


@pytest.mark.parametrize("where", ["write", "replace"])
def test_full_disk_keeps_the_old_file(where, tmp_path, monkeypatch):
    path = tmp_path / "tokenizer.json"
    CharTokenizer("abc").save(path)
    old = path.read_bytes()

    def full(*args):
        raise OSError(28, "No space left on device")

    target = "os.fsync" if where == "write" else "os.replace"
    monkeypatch.setattr(target, full)
    with pytest.raises(OSError, match="No space left"):
        CharTokenizer("abcdef").save(path)
    assert path.read_bytes() == old
    assert [p.name for p in tmp_path.iterdir()] == ["tokenizer.json"]


GOOD = {
    "type": "characters",
    "special_tokens": [],
    "tokens": ["a", "b"],
}


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"", "whole JSON: got .*bad.json"),
        (json.dumps(GOOD).encode()[:-9], "whole JSON: got .*bad.json"),
        (b"\xff\xfe{}", "whole JSON: got .*bad.json"),
        (b"[1, 2]", "type must be one of .*got None"),
        (b'{"type": "unigram"}', "type must be one of .*got 'unigram'"),
        (b'{"type": "characters"}', r"needs the lists .*got \['type'\]"),
        (b'{"type": ["characters"]}', "type must be one of .*got"),
        pytest.param(b'{"type": ["%s"]}' % (b"a" * 5000), "got", id="long"),
        (
            json.dumps({**GOOD, "tokens": ["a", 7]}).encode(),
            "needs the lists .*tokens must be texts",
        ),
        (
            json.dumps({**GOOD, "tokens": "ab"}).encode(),
            "needs the lists .*tokens must be a list",
        ),
        (
            json.dumps({**GOOD, "special_tokens": {}}).encode(),
            "needs the lists .*special_tokens must be a list",
        ),
        (
            json.dumps({**GOOD, "tokens": ["\u00e9"]}).encode(),
            "needs the lists .*UnicodeDecodeError",
        ),
        (
            json.dumps({**GOOD, "tokens": ["b", "a"]}).encode(),
            r"sorted.*got \['b', 'a'\]",
        ),
        (
            json.dumps({**GOOD, "type": "byte-level BPE"}).encode(),
            "all 256 single bytes.*254 are missing, the first is 0",
        ),
    ],
)
def test_damaged_files(content, rule, tmp_path):
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rule) as refused:
        load_tokenizer(path)
    assert len(str(refused.value)) < 1000


def test_each_type_names_its_class():
    for kind, home in TOKENIZERS.items():
        assert pkgutil.resolve_name(home).kind == kind


def test_wrong_type(tmp_path):
    CharTokenizer("abc").save(tmp_path / "t.json")
    rule = "type 'byte-level BPE': got 'characters' in .*t.json"
    with pytest.raises(ValueError, match=rule):
        BPETokenizer.load(tmp_path / "t.json")
    assert Tokenizer.load(tmp_path / "t.json").vocab_size == 3


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        (b"IQ== 1", "got b'IQ== 1' in line 257"),
        (b"IQ==", "got b'IQ==' in line 257"),
        (b"I*Q== 256", "in line 257"),
        (b"IQ== x", "in line 257"),
        (b"IQ== 256", "distinct.*257 tokens, 256 of them"),
    ],
)
def test_damaged_ranks(line, rule, tmp_path):
    lines = [base64.b64encode(t) + b" %d" % i for i, t in enumerate(BYTES)]
    path = tmp_path / "ranks.tiktoken"
    path.write_bytes(b"\n".join(lines))
    assert BPETokenizer(bpe.read_ranks(path)).vocab_size == 256
    path.write_bytes(b"\n".join([*lines, line]))
    with pytest.raises(ValueError, match=rule):
        BPETokenizer(bpe.read_ranks(path))


# --- other bad input --------------------------------------------------------


def test_bad_arguments(small):
    with pytest.raises(ValueError, match="256: got vocab_size=255"):
        BPETokenizer.train("abc", 255)
    with pytest.raises(ValueError, match="got an empty string"):
        BPETokenizer.train("", 300)
    with pytest.raises(ValueError, match="got an empty string"):
        CharTokenizer.train("")
    with pytest.raises(ValueError, match=r"got '<eos>'; there are \['<\|e"):
        small.encode("x", ["<eos>"])
    with pytest.raises(ValueError, match=r"special_tokens=\['<s>', '<s>'\]"):
        CharTokenizer("ab", ["<s>", "<s>"])
    for fast in (True, False):
        with pytest.raises(ValueError, match=r"got .*U\+D83D at index 1"):
            small.encode("x\ud83d", fast=fast)
    with pytest.raises(ValueError, match=r"U\+D83D at index 0"):
        CharTokenizer("x\ud83d")


def test_a_split_that_is_none_or_leaves_something_out():
    for split in ("(", "[a-", ""):
        with pytest.raises(ValueError, match="split must be a regular"):
            BPETokenizer(BYTES, [], split=split)
    also_nothing = BPETokenizer(BYTES, [], split=r"[a-z]*|.")
    assert also_nothing.encode("a1c") == [97, 49, 99]
    letters = BPETokenizer(BYTES, [], split=r"[a-z]+")
    for fast in (True, False):
        assert letters.encode("abc", fast=fast) == [97, 98, 99]
        with pytest.raises(ValueError, match="got 2 bytes of 3"):
            letters.encode("a1c", fast=fast)
    with pytest.raises(ValueError, match="got 2 bytes of 3"):
        letters.encode_with_dropout("a1c", 0.0, random.Random(0))


def test_groups_of_a_split_change_nothing(small, shakespeare):
    grouped = BPETokenizer(small.tokens, [], split=f"({bpe.SPLIT})()")
    text = shakespeare[:2000]
    for fast in (True, False):
        assert grouped.encode(text, fast=fast) == small.encode(text)


def test_a_special_token_that_is_no_text():
    with pytest.raises(ValueError, match=r"lone surrogate U\+D83D"):
        CharTokenizer("ab", ["<\ud83d>"])


def test_json_too_deep_for_python(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text("[" * 200_000)
    with pytest.raises(ValueError, match="nested too deeply"):
        load_tokenizer(path)


# --- special tokens anywhere, ties -----------------------------------


def test_special_tokens_anywhere(tmp_path, small):
    text = "The king<e>The"
    plain = BPETokenizer(small.tokens, ["<e>", "<p>"])
    n = plain.vocab_size
    moved = BPETokenizer(small.tokens, {"<p>": 0, "<e>": 300})
    assert moved.vocab_size == n
    where = moved.ordinary_ids
    expected = [
        300 if i == n - 2 else where[i] for i in plain.encode(text, ["<e>"])
    ]
    for fast in (True, False):
        assert moved.encode(text, ["<e>"], fast=fast) == expected
    assert moved.decode([0, *expected]) == "<p>" + text
    moved.save(tmp_path / "t.json")
    again = load_tokenizer(tmp_path / "t.json")
    assert again.encode(text, ["<e>"]) == expected
    assert "special_ids" not in plain.to_dict()  # files as they were
    chars = CharTokenizer("ab", {"<s>": 1})
    assert chars.encode("ab") == [0, 2]
    for ids in ({"<s>": 3}, {"<s>": -1}, {"<s>": True}, {"<s>": 0, "<e>": 0}):
        with pytest.raises(ValueError, match="different ids in 0"):
            CharTokenizer("ab", ids)


def test_training_learns_nothing_from_special_names():
    text = "<|>".join(["ab"] * 50)
    assert BPETokenizer.train(text, 300, ["<|>"]).tokens[256:] == [b"ab"]
    assert b"<|" in BPETokenizer.train(text, 300).tokens  # the control


def test_the_rule_for_ties():
    """All pairs of "ab cd" are as frequent: by hand."""
    by_ids = BPETokenizer.train("ab cd", 257)
    by_bytes = BPETokenizer.train("ab cd", 257, ties="bytes")
    assert (by_ids.tokens[256], by_bytes.tokens[256]) == (b" c", b"cd")
    with pytest.raises(ValueError, match="ids, bytes: got 'x'"):
        BPETokenizer.train("ab", 257, ties="x")


@settings(max_examples=40)
@given(st.text("abc ", min_size=1, max_size=60))
def test_ties_by_bytes_equal_a_recount(text):
    words = [
        [bytes([b]) for b in w.encode()] for w in bpe.find_all(bpe.SPLIT, text)
    ]
    tokens = []
    for _ in range(12):
        counts = Counter(p for w in words for p in pairwise(w))
        if not counts:
            break
        best = max(counts, key=lambda pair: (counts[pair], pair))
        tokens.append(b"".join(best))
        for w in words:
            i = 0
            while i < len(w) - 1:
                if (w[i], w[i + 1]) == best:
                    w[i : i + 2] = [tokens[-1]]
                i += 1
    learned = BPETokenizer.train(text, 268, ties="bytes").tokens[256:]
    assert learned == tokens


# --- exercises --------------------------------------------------------------


def cases(name):
    """The calls of an exercise, over a few seeds."""
    exercise = exercises.EXERCISES[name]
    return [c for seed in range(5) for c in exercise.cases(seed)]


def test_exercises_agree_with_the_package():
    for case in cases("learn"):
        assert exercises.learn(*case.args) == learn_merges(*case.args)
    for case in cases("replay"):
        word, merges = case.args
        tokens = {i: bytes([i]) for i in range(256)}
        for (left, right), new in merges.items():
            tokens[new] = tokens[left] + tokens[right]
        ranks = {token: i for i, token in tokens.items()}
        expected = encode_chunk(bytes(word), ranks)
        assert exercises.replay(word, merges) == expected
    for case in cases("vocabulary"):
        to_number, to_char = exercises.vocabulary(*case.args)
        assert "".join(to_char.values()) == CharTokenizer(*case.args).chars
        assert {i: c for c, i in to_number.items()} == to_char
    for case in cases("stream"):
        (pieces,) = case.args
        assert "".join(exercises.stream(pieces)).encode() == b"".join(pieces)


def first_of_ties(words, n_merges):
    merges = recount(words, n_merges, lambda n: max(n, key=n.__getitem__))
    return [tuple(pair) for pair in merges]


MISTAKES = {
    "ties by the order of the text": ("learn", first_of_ties),
    "words counted once": (
        "learn",
        lambda words, n: exercises.learn(dict.fromkeys(words, 1), n),
    ),
    "from the left": (
        "replay",
        lambda word, merges: left_to_right(bytes(word), merges),
    ),
    "numbered as they come": (
        "vocabulary",
        lambda text: (
            {c: i for i, c in enumerate(dict.fromkeys(text))},
            dict(enumerate(dict.fromkeys(text))),
        ),
    ),
    "piece by piece": (
        "stream",
        lambda pieces: [p.decode(errors="replace") for p in pieces],
    ),
    "swallowed": (
        "stream",
        lambda pieces: [p.decode(errors="ignore") for p in pieces],
    ),
    "measured on the training text": (
        "measure",
        lambda learned, held_out, n: exercises.tokens_per_character(
            learned, learned, n
        ),
    ),
    "per byte": (
        "measure",
        lambda learned, held_out, n: (
            exercises.tokens_per_character(learned, held_out, n)
            * len(held_out)
            / len(held_out.encode())
        ),
    ),
    "only the round trip": (
        "trust",
        lambda encode, decode, name, number: all(
            decode(encode(text)) == text for text in (" naïve\r\n\t🍵", name)
        ),
    ),
    "one polite sentence": (
        "trust",
        lambda encode, decode, name, number: (
            decode(encode("it was too tired.")) == "it was too tired."
        ),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_exercises_see_the_classic_mistakes(mistake):
    name, function = MISTAKES[mistake]
    for seed in range(5):
        report = check(f"tokenizer/{name}", function, seed)
        assert report.status == "wrong", report


# -- BPE-dropout -------------------------------------------------------------


def test_dropout_keeps_the_text(small, shakespeare):
    text = shakespeare[:5003]
    chance = random.Random(0)
    spellings = [small.encode_with_dropout(text, 0.1, chance) for _ in "abc"]
    assert all(small.decode(ids) == text for ids in spellings)
    assert len({tuple(ids) for ids in spellings}) == 3
    assert all(len(ids) > len(small.encode(text)) for ids in spellings)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_dropout_at_its_ends(small, shakespeare, share):
    text = shakespeare[:5003]
    ids = small.encode_with_dropout(text, share, random.Random(0))
    expected = small.encode(text) if share == 0 else list(text.encode())
    assert ids == expected


def test_dropout_overlooks_as_often_as_it_says(small):
    # " a" needs one merge, which is looked at once.
    chance, n, share = random.Random(0), 4001, 0.3
    assert len(small.encode(" a")) == 1
    whole = sum(
        len(encode_chunk_with_dropout(b" a", small.ranks, share, chance)) == 1
        for _ in range(n)
    )
    error = 4 * (share * (1 - share) / n) ** 0.5
    assert abs(whole / n - (1 - share)) < error


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_dropout_that_is_no_probability(small, share):
    with pytest.raises(ValueError, match="probability"):
        small.encode_with_dropout("a", share, random.Random(0))
