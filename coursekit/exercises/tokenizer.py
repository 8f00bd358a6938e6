"""Exercises of chapter 1: references and cases."""

import codecs
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import torch

from coursekit.exercises.core import Case, Exercise, generator
from coursekit.tokenizer import BPETokenizer, learn_merges

Pair = tuple[int, int]
Encode = Callable[[str], Sequence[int]]
Decode = Callable[[Sequence[int]], str]


def _pick(g: torch.Generator, things: Sequence[str], n: int) -> list[str]:
    """n things, drawn with replacement."""
    places = torch.randint(len(things), (n,), generator=g).tolist()
    return [things[i] for i in places]


# --- vocabulary -------------------------------------------------------------


def vocabulary(text: str) -> tuple[dict[str, int], dict[int, str]]:
    """Number the characters by code point, in both directions."""
    chars = sorted(set(text))
    return {c: i for i, c in enumerate(chars)}, dict(enumerate(chars))


def _vocabulary_cases(seed: int) -> list[Case]:
    g = generator(seed)
    letters = "the cat\nsat, né 🙂 ÄZz-"
    far = [chr(int(c)) for c in torch.randint(33, 5000, (23,), generator=g)]
    return [
        Case(("".join(_pick(g, letters, 37)),), name="a short text"),
        Case(("".join(_pick(g, far, 101)),), name="letters of many scripts"),
    ]


# --- learning ---------------------------------------------------------------


def learn(words: Mapping[bytes, int], n_merges: int) -> list[Pair]:
    """Count all pairs anew, merge the most frequent, and so on."""
    lists = [(list(word), n) for word, n in words.items()]
    merges: list[Pair] = []
    while len(merges) < n_merges:
        counts: Counter[Pair] = Counter()
        for ids, n in lists:
            for pair in pairwise(ids):
                counts[pair] += n
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        new = 256 + len(merges)
        merges.append(best)
        lists = [(join(ids, best, new), n) for ids, n in lists]
    return merges


def join(ids: Sequence[int], pair: Pair, new: int) -> list[int]:
    """Replace a pair by one id, from left to right."""
    out: list[int] = []
    for i in ids:
        out.append(i)
        if tuple(out[-2:]) == pair:
            out[-2:] = [new]
    return out


def _words(g: torch.Generator, letters: str, n: int) -> dict[bytes, int]:
    """n random words of 2 to 7 letters, each with a count of 1 to 9."""
    words: dict[bytes, int] = {}
    while len(words) < n:
        length = int(torch.randint(2, 8, (), generator=g))
        word = "".join(_pick(g, letters, length)).encode()
        words[word] = int(torch.randint(1, 10, (), generator=g))
    return words


def _learn_cases(seed: int) -> list[Case]:
    g = generator(seed)
    ties = dict.fromkeys((b"ab", b"cd", b"ef", b"gh"), 7)
    back = dict(reversed(ties.items()))
    return [
        Case(({b"aaabdaaabac": 1}, 3), name="aaabdaaabac"),
        Case((_words(g, "abc", 13), 11), name="random words with counts"),
        Case((ties, 3), name="four pairs equally frequent"),
        Case((back, 3), name="the same words in another order"),
        Case(({b"bbbaaaddddcccc": 1}, 4), name="runs of letters"),
        Case(({b"aaa": 5}, 7), name="nothing is left to merge"),
        Case((_words(g, "ab", 17), 19), name="words of two letters"),
    ]


# --- encoding ---------------------------------------------------------------


def replay(word: Sequence[int], merges: Mapping[Pair, int]) -> list[int]:
    """Of the pairs that are there, the one that was learned first."""
    ids = list(word)
    while known := [p for p in pairwise(ids) if p in merges]:
        pair = min(known, key=merges.__getitem__)
        ids = join(ids, pair, merges[pair])
    return ids


def _replay_cases(seed: int) -> list[Case]:
    g = generator(seed)
    t, h, u, g_ = b"thug"
    thug = {(u, g_): 256, (h, 256): 257, (h, u): 258}
    learned = learn_merges(_words(g, "abc", 23), 17)
    merges = {pair: 256 + i for i, pair in enumerate(learned)}
    cases = [
        Case(([t, h, u, g_], thug), name="thug"),
        Case(([t], thug), name="a word of one letter"),
        Case(([97] * 7, {(97, 97): 256, (256, 97): 257}), name="a run of a"),
    ]
    for n in (11, 29, 31):
        word = list("".join(_pick(g, "abcd", n)).encode())
        cases.append(Case((word, merges), name=f"{n} random letters"))
    return cases


# --- streaming --------------------------------------------------------------


def stream(pieces: Sequence[bytes]) -> list[str]:
    """After each piece, the text that has become complete."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return [decoder.decode(piece) for piece in pieces]


def _stream_cases(seed: int) -> list[Case]:
    g = generator(seed)

    def cut(text: str, longest: int) -> list[bytes]:
        data, pieces = text.encode(), []
        while data:
            n = int(torch.randint(1, longest + 1, (), generator=g))
            pieces.append(data[:n])
            data = data[n:]
        return pieces

    mixed = "".join(_pick(g, "aé 漢🙂ñ\n", 41))
    return [
        Case((cut("plain", 2),), name="only ASCII"),
        Case((cut("naïve 🙂!", 1),), name="byte by byte"),
        Case((cut(mixed, 5),), name="pieces of one to five bytes"),
    ]


# --- measuring --------------------------------------------------------------


def tokens_per_character(
    learned: str, held_out: str, vocab_size: int
) -> float:
    """How long a text becomes that the tokenizer has not seen."""
    tokenizer = BPETokenizer.train(learned, vocab_size)
    return len(tokenizer.encode(held_out)) / len(held_out)


def _measure_cases(seed: int) -> list[Case]:
    g = generator(seed)
    syllables = ["ba", "né", "to", "ri", "sü", "lan", " ", " de", "."]
    learned = "".join(_pick(g, syllables, 499))
    held_out = "".join(_pick(g, [*syllables, "qu", "X"], 211))
    return [
        Case((learned, held_out, v), name=f"{v} tokens") for v in (256, 271)
    ]


# --- a test of one's own ----------------------------------------------------

NASTY = "  Naïve 🙂\n\tEND  end 42 don't "


def trust(encode: Encode, decode: Decode, name: str, number: int) -> bool:
    """Does every text come back, and does none become a control token?"""
    texts = [NASTY, NASTY[::-1], name, f"a{name}b"]
    return all(
        decode(encode(text)) == text and number not in encode(text)
        for text in texts
    )


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

    def only_ascii(text: str) -> list[int]:
        return encode(text.encode("ascii", "replace").decode())

    def control_tokens(text: str) -> list[int]:
        return encode(text, [name])

    def one_by_one(ids: Sequence[int]) -> str:
        return "".join(decode([i]) for i in ids)

    number = tokenizer.special_tokens[name]
    pairs: list[tuple[str, Encode, Decode]] = [
        ("a sound tokenizer", encode, decode),
        ("a lower-casing one", lower_case, decode),
        ("one that squeezes spaces", single_spaces, decode),
        ("one that knows only ASCII", only_ascii, decode),
        ("one that decodes token by token", encode, one_by_one),
        ("one that obeys the user", control_tokens, decode),
    ]
    return [Case((e, d, name, number), name=said) for said, e, d in pairs]


EXERCISES = {
    "vocabulary": Exercise(vocabulary, _vocabulary_cases),
    "learn": Exercise(learn, _learn_cases),
    "replay": Exercise(replay, _replay_cases),
    "stream": Exercise(stream, _stream_cases),
    "measure": Exercise(tokens_per_character, _measure_cases),
    "trust": Exercise(trust, _trust_cases),
}
