"""Exercises of chapter 1: the tokenizer."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise, product
from typing import Any

import torch

from coursekit.bpe import learn_merges, merge_in_place
from coursekit.tokenizer import BPETokenizer
from coursekit_classroom.check.core import (
    Bug,
    Case,
    Exercise,
    Variant,
    generator,
)

Pair = tuple[int, int]
Encode = Callable[[str], Sequence[int]]
Decode = Callable[[Sequence[int]], str]


def pick(g: torch.Generator, things: Sequence[str], n: int) -> list[str]:
    """n things, drawn with replacement."""
    places = torch.randint(len(things), (n,), generator=g).tolist()
    return [things[i] for i in places]


# -- implement: a vocabulary that survives a restart -------------------------
def vocabulary(text: str) -> tuple[dict, dict]:
    """Number the characters of a text by code point, in both directions.

    Returned are two dictionaries: the first from character to number, the
    second from number to character. Each different character of `text` has one
    number, however often it occurs.
    The numbers are 0, 1, 2, … without gaps, in the order of the characters'
    code points (`ord`), smallest first. Any characters may occur: capitals,
    line breaks, letters of any script, emoji. Texts with the same characters
    have the same vocabulary.
    """
    chars = sorted(set(text))
    to_number = {char: i for i, char in enumerate(chars)}
    to_char = dict(enumerate(chars))
    return to_number, to_char


_BY_COUNT = "sorted(set(text), key=lambda char: (-text.count(char), char))"
_VOCABULARY_BUGS = {
    "set_order": Bug(
        "sorted(set(text))",
        "list(set(text))",
        says="characters numbered in an order that is not the text's, such "
        "as the order of a set",
        why="A set of strings has another order each time Python starts, "
        "and then the saved model reads other letters. Sort it.",
        read="further/01_tokenizer#tok-set",
        otherwise=[(_BY_COUNT, "list(set(text))")],
    ),
    "first_seen": Bug(
        "sorted(set(text))",
        "list(dict.fromkeys(text))",
        says="characters numbered in the order in which they first occur",
        why="Then two texts with the same letters give two vocabularies. "
        "Sort by code point.",
        read="01_tokenizer#tok-vocabulary",
        otherwise=[(_BY_COUNT, "list(dict.fromkeys(text))")],
    ),
    "from_one": Bug(
        "in enumerate(chars)",
        "in enumerate(chars, 1)",
        "dict(enumerate(chars))",
        "dict(enumerate(chars, 1))",
        says="numbers that start at 1",
        why="A number is a row of a table with V rows, and rows count from 0.",
        read="01_tokenizer#tok-vocabulary",
    ),
    "swapped": Bug(
        "return to_number, to_char",
        "return to_char, to_number",
        says="the two dictionaries the other way round",
        why="The first takes a character and gives its number; the second "
        "goes back.",
        read="01_tokenizer#tok-vocabulary",
    ),
    "most_common": Bug(
        "sorted(set(text))",
        "[char for char, _ in Counter(text).most_common()]",
        says="numbers by how often a character occurs",
        why="Another text with the same characters would get another "
        "vocabulary. Sort the characters: sorted(set(text)).",
        read="01_tokenizer#tok-proof",
        otherwise=[
            (_BY_COUNT, "[char for char, _ in Counter(text).most_common()]")
        ],
    ),
}


def _view_vocabulary(value: tuple[dict, dict], case: Case) -> Any:
    """The value, but all orders that have no reason in the text are one.

    What the order of a set will be cannot be computed in another process.
    """
    swapped = all(isinstance(key, int) for key in value[0])
    numbers, back = reversed(value) if swapped else value
    (text,), start = case.args, min(back)
    chars = [back.get(start + i) for i in range(len(back))]
    if numbers != {char: start + i for i, char in enumerate(chars)}:
        return value
    if Counter(chars) != Counter(set(text)) or _has_reason(chars, text):
        return value
    return ["an order without a reason", start, swapped]


def _has_reason(chars: list[Any], text: str) -> bool:
    """Whether an order of characters comes from the text, or from Unicode."""
    keys: list[Callable[[str], Any]] = [
        *(ord, str.lower, str.upper, str.swapcase),
        *(text.find, text.rfind, text.count, lambda char: -text.count(char)),
    ]
    orders = [
        sorted(ties, key=key)
        for ties in (sorted(set(text)), dict.fromkeys(text))
        for key in keys
    ]
    return chars in orders or chars[::-1] in orders


def _vocabulary_cases(seed: int) -> list[Case]:
    g = generator(seed)
    letters = "The Cat\nsat, né ÄZz-"
    near = [letters[i] for i in torch.randperm(len(letters), generator=g)]
    far = [chr(int(c)) for c in torch.randint(256, 5000, (23,), generator=g)]
    far += ["🙂", "a"]
    return [
        Case(("".join(near + pick(g, letters, 17)),), name="a short text"),
        Case(("".join(pick(g, far, 101)),), name="letters of many scripts"),
    ]


# -- implement: learn the merges ---------------------------------------------
def learn(words: Mapping[bytes, int], n_merges: int) -> list[tuple[int, ...]]:
    """The first merges of byte pair encoding, at most `n_merges` of them.

    `words` gives each word, as bytes, its count. A word begins as the list of
    its bytes. In each round all pairs of neighbors are counted in all words as
    they are now, each times its word's count; aaa has the pair (a, a) twice.
    The most frequent pair is merged; of equally frequent ones, the smaller
    tuple. In all words it is replaced wherever it stands, from left to right
    (aaa becomes X a), by a new id: 256, then 257, and so on.
    Returned is the list of merged pairs, tuples of two ids, shorter if no pair
    is left. `words` stays as it was.
    """
    lists = [list(word) for word, n in words.items() for _ in range(n)]
    merges: list[tuple[int, ...]] = []
    while len(merges) < n_merges:
        counts = Counter(pair for ids in lists for pair in pairwise(ids))
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        new = 256 + len(merges)
        merges.append(best)
        for ids in lists:
            i = 0
            while i < len(ids) - 1:
                if (ids[i], ids[i + 1]) == best:
                    ids[i : i + 2] = [new]
                i += 1
    return merges


_LEARN_BUGS = {
    "uncounted": Bug(
        "word, n in words.items() for _ in range(n)",
        "word in words",
        says="pairs counted once for each word of the list, without the "
        "words' counts",
        why="A word that comes nine times counts nine times; else a list of "
        "rare words beats one frequent word.",
        read="01_tokenizer#tok-by-hand",
    ),
    "first_seen": Bug(
        "min(counts, key=lambda pair: (-counts[pair], pair))",
        "max(counts, key=counts.get)",
        says="ties that go to the pair that was counted first",
        why="`max(counts, key=counts.get)` leaves ties to the order of the "
        "words. Ties go to the smaller pair.",
        read="further/01_tokenizer#tok-ties",
    ),
    "larger": Bug(
        "min(counts, key=lambda pair: (-counts[pair], pair))",
        "max(counts, key=lambda pair: (counts[pair], pair))",
        says="ties that go to the larger pair",
        why="The largest (count, pair) has the largest count, but also the "
        "largest pair. Take the smallest (−count, pair).",
        read="further/01_tokenizer#tok-ties",
    ),
    "no_stop": Bug(
        "        if not counts:\n            break\n",
        "",
        says="a choice among no pairs at all, once everything is merged",
        why="A word of one piece has no pair. Stop when no pair is left.",
        read="01_tokenizer#tok-learn",
    ),
    "id_late": Bug(
        "256",
        "257",
        says="new ids that begin with 257",
        why="Merge number 0 makes the id 256. If you append to the list "
        "first, its length is one more.",
        read="01_tokenizer#tok-formula",
    ),
    "overlapping": Bug(
        "i = 0",
        "at = {i for i, pair in enumerate(pairwise(ids)) if pair == best}\n"
        "            ids[:] = [\n"
        "                new if i in at else ids[i]\n"
        "                for i in range(len(ids))\n"
        "                if i in at or i - 1 not in at\n"
        "            ]\n"
        "            i = 0",
        says="a merge of overlapping pairs: of aaa both become a piece",
        why="After a replacement go on behind it: the second a is used up, "
        "and aaa becomes X a.",
        read="01_tokenizer#tok-proof",
        alone=True,
    ),
}


def _words(g: torch.Generator, letters: str, n: int) -> dict[bytes, int]:
    """n random words of 2 to 7 letters, each with a count of 1 to 9."""
    words: dict[bytes, int] = {}
    while len(words) < n:
        length = int(torch.randint(2, 8, (), generator=g))
        word = "".join(pick(g, letters, length)).encode()
        words[word] = int(torch.randint(1, 10, (), generator=g))
    return words


def _learn_cases(seed: int) -> list[Case]:
    g = generator(seed)
    ties = dict.fromkeys((b"ab", b"cd", b"ef", b"gh"), 7)
    often = {b"aaa": 3, b"bc": 3, b"abc": 1, b"bcd": 1}
    return [
        Case(({b"aaabdaaabac": 1}, 3), name="aaabdaaabac"),
        Case((ties, 3), name="four pairs equally frequent"),
        Case(({b"aaa": 5}, 7), name="nothing is left to merge"),
        Case((often, 2), name="(a, a) six times, (b, c) five times"),
        Case((_words(g, "abc", 13), 11), name="random words with counts"),
    ]


# -- debug: from the left ----------------------------------------------------
def replay(word: list[int], merges: Mapping[Pair, int]) -> list[int]:
    """The ids of a word after all merges that apply, in the learned order.

    `word` is a list of ids. `merges` gives each known pair of neighboring ids
    the id that replaces it; smaller new ids were learned earlier. Again and
    again, of the known pairs that stand in the word now, the one with the
    smallest new id is replaced by that id; if it stands at several places, the
    one furthest left (with merge a a, aaa becomes X a). New ids can form known
    pairs.
    It ends when no known pair is left. Returned is a list of ids; `word`
    itself stays as it was.
    """
    ids = list(word)
    while True:
        pairs = enumerate(pairwise(ids))
        mergeable = [(merges[pair], i) for i, pair in pairs if pair in merges]
        if not mergeable:
            return ids
        new, place = min(mergeable)
        ids[place : place + 2] = [new]


_REPLAY_BUGS = {
    "leftmost": Bug(
        "min(mergeable)",
        "mergeable[0]",
        says="the first known pair from the left, whatever its id",
        why="The model was trained on texts that were cut by the merges in "
        "the order of learning. Look at all known pairs, take the smallest "
        "id.",
        read="01_tokenizer#tok-predict-then",
    ),
    "latest_everywhere": Bug(
        "new, place = min(mergeable)\n        ids[place : place + 2] = [new]",
        "new, place = max(mergeable)\n"
        "        list(merge_in_place(ids, (ids[place], ids[place + 1]), new))",
        says="the known pair with the largest id, which was learned last, "
        "merged everywhere",
        why="Long pieces are tempting, but they were learned after the "
        "short ones. The smallest id goes first.",
        read="01_tokenizer#tok-predict-then",
        alone=True,
    ),
    "smallest_pair": Bug(
        "min(mergeable)",
        "min(mergeable, key=lambda at: ids[at[1] : at[1] + 2])",
        says="the smallest pair, instead of the one that makes the smallest "
        "id",
        why="`min(known)` compares the pairs themselves. What counts is "
        "when they were learned: `min(known, key=merges.get)`.",
        read="01_tokenizer#tok-formula",
    ),
    "longest": Bug(
        "while True:\n"
        "        pairs = enumerate(pairwise(ids))\n"
        "        mergeable = [(merges[pair], i) for i, pair in pairs "
        "if pair in merges]\n"
        "        if not mergeable:\n"
        "            return ids\n"
        "        new, place = min(mergeable)\n"
        "        ids[place : place + 2] = [new]",
        "known_as = {bytes([i]): i for i in range(256)}\n"
        "    spelled = {i: piece for piece, i in known_as.items()}\n"
        "    for (a, b), new in sorted(merges.items(), key=lambda m: m[1]):\n"
        "        spelled[new] = spelled[a] + spelled[b]\n"
        "        known_as[spelled[new]] = new\n"
        "    rest, ids = bytes(word), []\n"
        "    while rest:\n"
        "        end = max(n for n in range(len(rest) + 1) if "
        "rest[:n] in known_as)\n"
        "        ids.append(known_as[rest[:end]])\n"
        "        rest = rest[end:]\n"
        "    return ids",
        says="the longest known piece taken from the left, whatever was "
        "learned first",
        why="Byte pair encoding replays its merges: of the pairs that stand "
        "in the word, the one that was learned first.",
        read="01_tokenizer#tok-proof",
        alone=True,
    ),
    "each_once": Bug(
        "while True:",
        "new = 0\n    while True:",
        "pair in merges]",
        "merges.get(pair, 0) > new]",
        says="one pass over the merges, with each used at one place only",
        why="A merge may apply at several places: go on until no known pair "
        "is left.",
        read="01_tokenizer#tok-proof",
        alone=True,
    ),
}


def _replay_cases(seed: int) -> list[Case]:
    g = generator(seed)
    t, h, u, g_ = b"thug"
    thug = {(u, g_): 256, (h, 256): 257, (h, u): 258}
    random = _word(g, 29)
    while not _tells(*random):
        random = _word(g, 29)
    return [
        Case(([t, h, u, g_], thug), name="thug"),
        Case(([97] * 7, {(97, 97): 256, (256, 97): 257}), name="a run of a"),
        Case(random, name="29 random letters"),
    ]


def _word(g: torch.Generator, n: int) -> tuple[list[int], dict[Pair, int]]:
    """A word of n letters, and merges that were learned from shorter ones."""
    learned = learn_merges(_words(g, "abc", 23), 17)
    word = list("".join(pick(g, "abcd", n)).encode())
    return word, {pair: 256 + i for i, pair in enumerate(learned)}


def _tells(word: list[int], merges: Mapping[Pair, int]) -> bool:
    """Whether a word shows which known pair comes first, and where.

    By its id, the smallest or the largest; by its own two ids; by its place,
    from either end. Each begins somewhere else, and no two come to the same,
    whether a pair is merged at that place or everywhere.
    """
    orders: tuple[Callable[..., Any], ...] = (
        lambda new, i, pair: (new, i),
        lambda new, i, pair: (-new, i),
        lambda new, i, pair: (pair, i),
        lambda new, i, pair: i,
        lambda new, i, pair: -i,
    )
    firsts: set[int] = set()
    ends: list[set[tuple[int, ...]]] = [set() for _ in orders]
    for (order, end), everywhere in product(
        zip(orders, ends, strict=True), (False, True)
    ):
        ids = list(word)
        while mergeable := [
            (merges[pair], i, pair)
            for i, pair in enumerate(pairwise(ids))
            if pair in merges
        ]:
            new, i, pair = min(mergeable, key=lambda at: order(*at))
            if len(ids) == len(word):
                firsts.add(i)
            if everywhere:
                list(merge_in_place(ids, pair, new))
            else:
                ids[i : i + 2] = [new]
        end.add(tuple(ids))
    apart = len(set().union(*ends)) == sum(map(len, ends))
    return apart and len(firsts) == len(orders)


# -- debug: the eater of smileys ---------------------------------------------
def stream(pieces: Sequence[bytes]) -> list[str]:
    """After each piece, the text that has become complete.

    `pieces` are bytes; joined they are a text in UTF-8. A piece may be empty,
    and may end within a character or consist of inner bytes of one. A
    character is complete once its last byte has arrived.
    Returned is a list of strings, one for each piece: all characters that this
    piece completes, and none that an earlier one did; '' if it completes none.
    Characters that are complete are not held back because of an unfinished one
    behind them. Joined, the strings are the whole text.
    """
    pending, out = b"", []
    for piece in pieces:
        pending += piece
        end = len(pending)
        try:
            text = pending.decode()
        except UnicodeDecodeError as error:
            end = error.start
            text = pending[:end].decode()
        pending = pending[end:]
        out.append(text)
    return out


_STREAM_BUGS = {
    "each_alone": Bug(
        "pending.decode()",
        'pending.decode(errors="replace")',
        says="each piece turned into text at once, with � for what is not a "
        "whole character",
        why="A character may span several pieces. Keep the bytes that are "
        "not complete yet, and put the next piece behind them.",
        read="further/01_tokenizer#tok-stream",
        at="decode",
    ),
    "ignored": Bug(
        "pending.decode()",
        'pending.decode(errors="ignore")',
        says="each piece turned into text at once, with what is not a whole "
        "character left out",
        why="The � are gone, and the characters with them. Keep the bytes "
        "that are not complete yet.",
        read="further/01_tokenizer#tok-stream",
        at="decode",
    ),
    "all_or_nothing": Bug(
        "error.start",
        "0",
        says="nothing given out until all bytes kept are complete",
        why="What stands before an incomplete character is complete: give "
        "it out, and keep only the rest (`error.start` says where it begins).",
        read="further/01_tokenizer#tok-stream",
        at="decode",
    ),
    "empty_left_out": Bug(
        "out.append(text)",
        "if text:\n            out.append(text)",
        says="no string for a piece that completes nothing",
        why="As many strings as pieces: if nothing is complete, it is ''.",
        read="further/01_tokenizer#tok-stream",
    ),
    "kept_if_whole": Bug(
        "pending = pending[end:]",
        "if end < len(pending):\n            pending = pending[end:]",
        says="bytes that are kept although they were given out, where no "
        "character was cut",
        why="What was given out is kept no longer: empty the buffer after a "
        "whole piece, too.",
        read="further/01_tokenizer#tok-stream",
        alone=True,
    ),
}


def _stream_cases(seed: int) -> list[Case]:
    g = generator(seed)

    def cut(text: str, longest: int) -> list[bytes]:
        data, pieces = text.encode(), []
        while data:
            n = int(torch.randint(1, longest + 1, (), generator=g))
            pieces.append(data[:n])
            data = data[n:]
        return pieces

    mixed = "".join(pick(g, "aé 漢🙂ñ\n", 41))
    return [
        Case((cut("plain", 2),), name="only ASCII"),
        Case(([b"", *cut("🙂 naïve!", 1)],), name="byte by byte"),
        Case((cut(mixed, 5),), name="pieces of one to five bytes"),
    ]


# -- measure: choose a vocabulary --------------------------------------------
def tokens_per_character(
    learned: str, held_out: str, vocab_size: int
) -> float:
    """Tokens per character of a text that the tokenizer has not seen.

    A BPE tokenizer is learned from the text `learned`. It has `vocab_size`
    tokens in all, of which 256 are the single bytes; so with 256 nothing is
    merged.
    It then encodes `held_out`, another text. The result is the number of
    tokens of `held_out`, divided by the number of its characters. A letter
    with an accent is one character, though it is two bytes.
    """
    tokenizer = BPETokenizer.train(learned, vocab_size)
    tokens, length = len(tokenizer.encode(held_out)), len(held_out)
    return tokens / length


_MEASURE_BUGS = {
    "merges": Bug(
        "learned, vocab_size)",
        "learned, 256 + vocab_size)",
        says="a list of 256 bytes and vocab_size merges",
        why="vocab_size counts all tokens, the 256 single bytes too.",
        read="01_tokenizer#tok-formula",
    ),
    "on_learned": Bug(
        "encode(held_out)",
        "encode(learned)",
        "len(held_out)",
        "len(learned)",
        says="a measurement on the text that the list was learned from",
        why="On its own text a list looks better than it is. Measure on the "
        "held-out text.",
        read="01_tokenizer#tok-measure",
    ),
    "bytes": Bug(
        "len(held_out)",
        "len(held_out.encode())",
        says="tokens per byte",
        why="é is one character and two bytes. len(text) counts characters.",
        read="01_tokenizer#tok-measure",
        otherwise=[("len(learned)", "len(learned.encode())")],
    ),
    "upside_down": Bug(
        "tokens / length",
        "length / tokens",
        says="characters per token",
        why="Tokens per character: the fewer, the shorter the model's text.",
        read="01_tokenizer#tok-measure",
    ),
    "on_held_out": Bug(
        "BPETokenizer.train(learned,",
        "BPETokenizer.train(held_out,",
        says="a vocabulary that was learned from the text that it is "
        "measured on",
        why="Merges that fit the text itself make it short. Learn from one "
        "text and measure on the other.",
        read="01_tokenizer#tok-measure",
        alone=True,
    ),
}


def _measure_cases(seed: int) -> list[Case]:
    g = generator(seed)
    syllables = ["ba", "né", "to", "ri", "sü", "lan", " ", " de", "."]
    learned = "".join(pick(g, syllables, 499))
    held_out = "".join(pick(g, [*syllables, "qu", "X"], 211))
    return [
        Case((learned, held_out, v), name=f"{v} tokens") for v in (256, 271)
    ]


# -- implement: trust no tokenizer -------------------------------------------
def trust(encode: Encode, decode: Decode, name: str, number: int) -> bool:
    """Whether every text comes back, and none becomes a control token.

    `encode` maps a text to ids and `decode` ids to a text. `name` is the name
    of the control token, such as `<end>`, and `number` its id. The result is
    True if for every text `decode(encode(text)) == text` exactly, and `number`
    is not among the ids of any text, even one in which `name` stands.
    It is False if a text comes back changed, in its capitals, its spaces and
    line breaks, or its characters outside ASCII, of which one may be several
    tokens; or if a text that holds `name` gets the id `number`, though it
    comes back unchanged.
    """
    texts = [
        "would you like a cup of tea?",
        "Tea, please.",
        name,
        f"before{name}after",
        "  two  spaces,\n\ta tab ",
        "naïve 🙂",
    ]
    for text in texts:
        ids = encode(text)
        back = decode(ids)
        if back != text or number in ids:
            return False
    return True


_TRUST_BUGS = {
    "no_spaces": Bug(
        '        "  two  spaces,\\n\\ta tab ",\n',
        "",
        says="a test that overlooks lost spaces and line breaks",
        why="Try two spaces in a row, a line break, a space at the end, and "
        "compare the texts as they are, not word by word.",
        read="further/01_tokenizer#tok-trust",
    ),
    "no_accents": Bug(
        '        "naïve 🙂",\n',
        "",
        says="a test of ASCII texts only",
        why="Try é and 🙂: they are several bytes, and may be several tokens.",
        read="further/01_tokenizer#tok-trust",
        at="loss",
    ),
    "no_control": Bug(
        " or number in ids",
        "",
        says="a test that does not look for the control token's id",
        why="A control token brings its name back, as it should. Only the "
        "id gives it away: is `number` among the ids of the name?",
        read="further/01_tokenizer#tok-control",
    ),
}


def _trust_cases(seed: int) -> list[Case]:
    number = int(torch.randint(257, 270, (), generator=generator(seed)))
    name = "<end>"
    tokenizer = BPETokenizer.train("the theme then thaws; hens", number)
    tokenizer = BPETokenizer(tokenizer.tokens, [name])
    encode, decode = tokenizer.encode, tokenizer.decode

    def lower_case(text: str) -> list[int]:
        return encode(text.lower())

    def single_spaces(text: str) -> list[int]:
        return encode(" ".join(text.split()))

    def no_ends(text: str) -> list[int]:
        return encode(text.strip())

    def only_ascii(text: str) -> list[int]:
        return encode(text.encode("ascii", "replace").decode())

    def control_tokens(text: str) -> list[int]:
        return encode(text, [name])

    number = tokenizer.special_tokens[name]
    pairs: list[tuple[str, Encode, Decode]] = [
        ("a sound tokenizer", encode, decode),
        ("a lower-casing one", lower_case, decode),
        ("one that squeezes spaces", single_spaces, decode),
        ("one that strips the ends", no_ends, decode),
        ("one that knows only ASCII", only_ascii, decode),
        ("one that obeys the user", control_tokens, decode),
    ]
    return [Case((e, d, name, number), name=label) for label, e, d in pairs]


EXERCISES = {
    "vocabulary": Exercise(
        vocabulary,
        _vocabulary_cases,
        bugs=_VOCABULARY_BUGS,
        view=_view_vocabulary,
        variants={
            "by_count": Variant(
                "sorted(set(text))",
                _BY_COUNT,
                asks="Here the most frequent character has number 0, "
                "the next 1, and so on; of equally frequent ones the one "
                "with the smaller code point comes first.",
                texts={
                    "first_seen": {
                        "why": "Where a character first occurs decides "
                        "nothing. Sort by count, then by code point.",
                    },
                    "most_common": {
                        "says": "equally frequent characters numbered in the "
                        "order in which they first occur",
                        "why": "Of these the one with the smaller code point "
                        "comes first. Sort by count, then by code point.",
                    },
                },
            ),
        },
        forbid=(
            "coursekit.CharTokenizer",
            "coursekit.tokenizer.CharTokenizer",
        ),
    ),
    "learn": Exercise(
        learn,
        _learn_cases,
        bugs=_LEARN_BUGS,
        variants={
            "triples": Variant(
                "append(best)",
                "append((*best, new))",
                asks="Here a merge is a triple: the two ids of the "
                "pair, and the new id.",
            ),
        },
        forbid=("coursekit.bpe.learn_merges",),
    ),
    "replay": Exercise(
        replay,
        _replay_cases,
        bugs=_REPLAY_BUGS,
        forbid=("coursekit.bpe.encode_chunk",),
    ),
    "stream": Exercise(
        stream,
        _stream_cases,
        bugs=_STREAM_BUGS,
    ),
    "measure": Exercise(
        tokens_per_character,
        _measure_cases,
        bugs=_MEASURE_BUGS,
    ),
    "trust": Exercise(
        trust,
        _trust_cases,
        bugs=_TRUST_BUGS,
    ),
}
