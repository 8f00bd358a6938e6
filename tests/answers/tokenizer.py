"""Answers to the exercises of chapter 1."""

import codecs
import itertools
import random
import re
from collections import Counter, defaultdict
from itertools import pairwise

from coursekit.tokenizer import BPETokenizer
from tests.answers import right, wrong

# -- vocabulary --------------------------------------------------------------


@right("tokenizer/vocabulary")
def vocabulary_by_groups(text):
    characters = [c for c, _ in itertools.groupby(sorted(text))]
    return (
        dict(zip(characters, itertools.count(), strict=False)),
        dict(enumerate(characters)),
    )


@right("tokenizer/vocabulary")
def vocabulary_by_code_point(text):
    there = set(map(ord, text))
    number_of, character_of = {}, {}
    for point in range(max(there, default=-1) + 1):
        if point in there:
            character_of[len(number_of)] = chr(point)
            number_of[chr(point)] = len(number_of)
    return number_of, character_of


@right("tokenizer/vocabulary")
def vocabulary_by_rank(text):
    each = set(text)
    a = {c: sum(other < c for other in each) for c in each}
    return a, {number: c for c, number in a.items()}


@right("tokenizer/vocabulary")
def one_at_a_time(text):
    to_number, to_char = {}, {}
    for code in range(0x110000):
        char = chr(code)
        if char in text and char not in to_number:
            to_char[len(to_number)] = char
            to_number[char] = len(to_number)
    return to_number, to_char


@right("tokenizer/vocabulary")
def by_insertion(text):
    # Sorted as it is read: no set at all.
    chars = []
    for char in text:
        place = sum(c < char for c in chars)
        if chars[place : place + 1] != [char]:
            chars.insert(place, char)
    return {c: chars.index(c) for c in chars}, {
        chars.index(c): c for c in chars
    }


@right("tokenizer/vocabulary")
def by_utf8(text):
    # The bytes of UTF-8 are in the order of the code points.
    chars = sorted({c.encode() for c in text}, reverse=True)[::-1]
    to_char = {i: c.decode() for i, c in enumerate(chars)}
    return {c: i for i, c in to_char.items()}, to_char


@wrong("tokenizer/vocabulary", "set_order")
def vocabulary_of_a_set(text):
    chars = list(set(text))
    return {c: i for i, c in enumerate(chars)}, dict(enumerate(chars))


@wrong("tokenizer/vocabulary", "first_seen")
def vocabulary_as_they_come(text):
    chars = list(dict.fromkeys(text))
    return {c: i for i, c in enumerate(chars)}, dict(enumerate(chars))


@wrong("tokenizer/vocabulary", "most_common")
def vocabulary_by_frequency(text):
    chars = [c for c, _ in Counter(text).most_common()]
    return {c: i for i, c in enumerate(chars)}, dict(enumerate(chars))


@wrong("tokenizer/vocabulary", "from_one")
def vocabulary_from_one(text):
    chars = sorted(set(text))
    number_of = {c: i for i, c in enumerate(chars, 1)}
    return number_of, {i: c for c, i in number_of.items()}


@wrong("tokenizer/vocabulary", "swapped")
def vocabulary_swapped(text):
    chars = sorted(set(text))
    return dict(enumerate(chars)), {c: i for i, c in enumerate(chars)}


@wrong("tokenizer/vocabulary")
def only_latin(text):
    chars = [chr(code) for code in range(256) if chr(code) in text]
    return {c: i for i, c in enumerate(chars)}, dict(enumerate(chars))


@wrong("tokenizer/vocabulary")
def code_points(text):
    return {c: ord(c) for c in text}, {ord(c): c for c in text}


@wrong("tokenizer/vocabulary")
def ignores_case(text):
    chars = sorted(set(text), key=str.lower)
    return {c: i for i, c in enumerate(chars)}, dict(enumerate(chars))


# -- learn -------------------------------------------------------------------


@right("tokenizer/learn")
def learn_in_place(words, n_merges):
    texts = [(list(word), n) for word, n in words.items()]
    merges = []
    while len(merges) < n_merges:
        counts = {}
        for ids, n in texts:
            for pair in pairwise(ids):
                counts[pair] = counts.get(pair, 0) + n
        if not counts:
            return merges
        (best, _) = sorted(counts.items(), key=lambda c: (-c[1], c[0]))[0]
        for ids, _ in texts:
            i = 0
            while i < len(ids) - 1:
                if (ids[i], ids[i + 1]) == best:
                    ids[i : i + 2] = [256 + len(merges)]
                i += 1
        merges.append(best)
    return merges


@right("tokenizer/learn")
def learn_with_strings(words, n_merges):
    corpus = [("".join(map(chr, word)), n) for word, n in words.items()]
    merges = []
    for new in range(256, 256 + n_merges):
        counts = Counter()
        for word, n in corpus:
            for left, right_one in pairwise(word):
                counts[ord(left), ord(right_one)] += n
        if not counts:
            break
        most = max(counts.values())
        best = min(pair for pair, n in counts.items() if n == most)
        merges.append(best)
        old = chr(best[0]) + chr(best[1])
        corpus = [(word.replace(old, chr(new)), n) for word, n in corpus]
    return merges


@right("tokenizer/learn")
def learn_recursively(words, n_merges):
    def replace(word, pair, new):
        if len(word) < 2:
            return word
        if (word[0], word[1]) == pair:
            return [new, *replace(word[2:], pair, new)]
        return [word[0], *replace(word[1:], pair, new)]

    def go(corpus, new):
        if new == 256 + n_merges:
            return []
        counts = Counter()
        for word, n in corpus:
            for pair in pairwise(word):
                counts[pair] += n
        if not counts:
            return []
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        smaller = [(replace(word, best, new), n) for word, n in corpus]
        return [best, *go(smaller, new + 1)]

    return go([(list(word), n) for word, n in words.items()], 256)


def join(ids, pair, new):
    out = []
    for i in ids:
        out.append(i)
        if tuple(out[-2:]) == pair:
            out[-2:] = [new]
    return out


@right("tokenizer/learn")
def learn_with(
    words,
    n_merges,
    weight=lambda n: n,
    choose=lambda counts: sorted(counts, key=lambda p: (-counts[p], p))[0],
    replace=join,
    first=256,
):
    """Learning with exchangeable parts, for those below."""
    lists = {word: tuple(word) for word in words}
    merges = []
    for new in range(first, first + n_merges):
        counts = defaultdict(int)
        for word, ids in lists.items():
            for pair in pairwise(ids):
                counts[pair] += weight(words[word])
        if not counts:
            break
        merges.append(choose(counts))
        lists = {w: replace(ids, merges[-1], new) for w, ids in lists.items()}
    return merges


@right("tokenizer/learn")
def as_text(words, n_merges):
    # Each id is a character, so that str.replace merges.
    lines = ["".join(map(chr, w)) for w in words for _ in range(words[w])]
    merges = []
    for m in range(n_merges):
        pairs = Counter(p for line in lines for p in pairwise(line))
        if not pairs:
            break
        top = max(pairs.values())
        a, b = min(p for p, n in pairs.items() if n == top)
        merges.append((ord(a), ord(b)))
        lines = [line.replace(a + b, chr(256 + m)) for line in lines]
    return merges


@right("tokenizer/learn")
def with_regex(words, n_merges):
    text = {w: "".join(f"<{i}>" for i in w) for w in words}
    merges = []
    while len(merges) < n_merges:
        pairs = Counter()
        for w, line in text.items():
            for a, b in re.findall(r"<(\d+)>(?=<(\d+)>)", line):
                pairs[int(a), int(b)] += words[w]
        if not pairs:
            return merges
        ranked = sorted((-n, *pair) for pair, n in pairs.items())
        _, a, b = ranked[0]
        new = f"<{256 + len(merges)}>"
        text = {w: s.replace(f"<{a}><{b}>", new) for w, s in text.items()}
        merges.append((a, b))
    return merges


@wrong("tokenizer/learn", "first_seen")
def ties_first(words, n_merges):
    return learn_with(
        words, n_merges, choose=lambda c: Counter(c).most_common(1)[0][0]
    )


@wrong("tokenizer/learn", "uncounted")
def uncounted(words, n_merges):
    return learn_with(words, n_merges, weight=lambda n: 1)


@wrong("tokenizer/learn", "larger")
def ties_larger(words, n_merges):
    return learn_with(
        words, n_merges, choose=lambda c: max((n, p) for p, n in c.items())[1]
    )


def merged(word, pair, new):
    """The word with the pair merged, from left to right."""
    out, i = [], 0
    while i < len(word):
        if tuple(word[i : i + 2]) == pair:
            out.append(new)
            i += 2
        else:
            out.append(word[i])
            i += 1
    return out


def pairs_of(corpus):
    counts = Counter()
    for word, n in corpus:
        for pair in pairwise(word):
            counts[pair] += n
    return counts


@wrong("tokenizer/learn", "no_stop")
def learn_never_stops(words, n_merges):
    corpus = [(list(word), n) for word, n in words.items()]
    merges = []
    for new in range(256, 256 + n_merges):
        counts = pairs_of(corpus)
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        merges.append(best)
        corpus = [(merged(word, best, new), n) for word, n in corpus]
    return merges


@wrong("tokenizer/learn", "overlapping")
def learn_overlapping(words, n_merges):
    def replace(ids, pair, new):
        hits = {i for i, two in enumerate(pairwise(ids)) if two == pair}
        return tuple(
            new if i in hits else x
            for i, x in enumerate(ids)
            if i in hits or i - 1 not in hits
        )

    return learn_with(words, n_merges, replace=replace)


@wrong("tokenizer/learn", "id_late")
def id_late(words, n_merges):
    return learn_with(words, n_merges, first=257)


@wrong("tokenizer/learn")
def runs_count_once(words, n_merges):
    lists, merges = {w: list(w) for w in words}, []
    while len(merges) < n_merges:
        counts = Counter()
        for word, ids in lists.items():
            end = {}  # of the last place where a pair was counted
            for i, pair in enumerate(pairwise(ids)):
                if end.get(pair) != i:
                    counts[pair] += words[word]
                    end[pair] = i + 1
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        new = 256 + len(merges)
        lists = {w: join(ids, best, new) for w, ids in lists.items()}
        merges.append(best)
    return merges


# A pair that comes twice in a word counts once for it.
@wrong("tokenizer/learn")
def learn_once_per_word(words, n_merges):
    corpus = [(list(word), n) for word, n in words.items()]
    merges = []
    while len(merges) < n_merges:
        counts = Counter()
        for word, n in corpus:
            for pair in set(pairwise(word)):
                counts[pair] += n
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        new = 256 + len(merges)
        merges.append(best)
        corpus = [(merged(word, best, new), n) for word, n in corpus]
    return merges


def overlapping(ids, pair, new):
    # Goes on with the second of the pair, which is used twice.
    out, i = [], 0
    while i < len(ids):
        hit = tuple(ids[i : i + 2]) == pair
        out.append(new if hit else ids[i])
        i += 1
    return out


@wrong("tokenizer/learn")
def used_twice(words, n_merges):
    return learn_with(words, n_merges, replace=overlapping)


# -- replay ------------------------------------------------------------------


@right("tokenizer/replay")
def replay_merge_after_merge(word, merges):
    ids = list(word)
    for pair, new in sorted(merges.items(), key=lambda item: item[1]):
        out = []
        while ids:
            if tuple(ids[:2]) == pair:
                out.append(new)
                ids = ids[2:]
            else:
                out.append(ids[0])
                ids = ids[1:]
        ids = out
    return ids


@right("tokenizer/replay")
def replay_all_in_turn(word, merges):
    ids = tuple(word)
    for pair, new in sorted(merges.items(), key=lambda item: item[1]):
        ids = tuple(merged(ids, pair, new))
    return list(ids)


@right("tokenizer/replay")
def replay_smallest(word, merges):
    ids = list(word)
    while True:
        known = [
            (merges[pair], i)
            for i, pair in enumerate(pairwise(ids))
            if pair in merges
        ]
        if not known:
            return ids
        new, i = min(known)
        ids = [*ids[:i], new, *ids[i + 2 :]]


@right("tokenizer/replay")
def merge_by_merge(word, merges):
    # All merges in the order of learning, each once over the word.
    ids = list(word)
    for pair in sorted(merges, key=merges.get):
        ids = join(ids, pair, merges[pair])
    return ids


@right("tokenizer/replay")
def by_recursion(word, merges):
    known = [
        (merges[p], i) for i, p in enumerate(pairwise(word)) if p in merges
    ]
    if not known:
        return list(word)
    new, i = min(known)
    return by_recursion([*word[:i], new, *word[i + 2 :]], merges)


@right("tokenizer/replay")
def as_characters(word, merges):
    text = "".join(map(chr, word))
    back = {new: chr(a) + chr(b) for (a, b), new in merges.items()}
    for new in sorted(back):
        text = text.replace(back[new], chr(new))
    return [ord(char) for char in text]


def only_the_first_place(ids, pair, new):
    for i, two in enumerate(pairwise(ids)):
        if two == pair:
            return [*ids[:i], new, *ids[i + 2 :]]
    return ids


@wrong("tokenizer/replay", "each_once")
def each_merge_once(word, merges):
    ids = list(word)
    for pair, new in sorted(merges.items(), key=lambda item: item[1]):
        ids = only_the_first_place(ids, pair, new)
    return ids


@wrong("tokenizer/replay", "latest_everywhere")
def replay_largest(word, merges):
    ids = list(word)
    while True:
        known = [p for p in pairwise(ids) if p in merges]
        if not known:
            return ids
        best = max(known, key=merges.get)
        ids = merged(ids, best, merges[best])


@wrong("tokenizer/replay", "longest")
def longest_piece(word, merges):
    spelled = {i: bytes([i]) for i in range(256)}
    for (a, b), new in sorted(merges.items(), key=lambda item: item[1]):
        spelled[new] = spelled[a] + spelled[b]
    number = {piece: i for i, piece in spelled.items()}
    rest, out = bytes(word), []
    while rest:
        n = max(n for n in range(1, len(rest) + 1) if rest[:n] in number)
        out.append(number[rest[:n]])
        rest = rest[n:]
    return out


@wrong("tokenizer/replay", "smallest_pair")
def replay_sorted_by_pair(word, merges):
    ids = list(word)
    for pair in sorted(merges):
        ids = merged(ids, pair, merges[pair])
    return ids


@wrong("tokenizer/replay", "leftmost")
def replay_broken(word, merges):
    ids, i = list(word), 0
    while i < len(ids) - 1:
        new = merges.get((ids[i], ids[i + 1]))
        if new is None:
            i += 1
        else:
            ids[i : i + 2] = [new]
            i = 0
    return ids


# The latest merge goes first.
@wrong("tokenizer/replay")
def replay_latest_first(word, merges):
    ids = list(word)
    while True:
        known = [
            (merges[pair], i)
            for i, pair in enumerate(itertools.pairwise(ids))
            if pair in merges
        ]
        if not known:
            return ids
        new, i = max(known)
        ids[i : i + 2] = [new]


@wrong("tokenizer/replay")
def last_byte_lost(word, merges):
    return by_recursion(list(word), merges)[:-1]


@wrong("tokenizer/replay")
def no_merge_at_all(word, merges):
    return list(word)


# -- stream ------------------------------------------------------------------


@right("tokenizer/stream")
def stream_incremental(pieces):
    decoder = codecs.getincrementaldecoder("utf-8")()
    return [decoder.decode(piece) for piece in pieces]


@right("tokenizer/stream")
def stream_by_prefix(pieces):
    shown, results, so_far = "", [], b""
    for piece in pieces:
        so_far += piece
        complete = so_far.decode("utf-8", errors="ignore")
        results.append(complete[len(shown) :])
        shown = complete
    return results


@right("tokenizer/stream")
def stream_by_first_byte(pieces):
    waiting, results = [], []
    for piece in pieces:
        text = ""
        for byte in piece:
            waiting.append(byte)
            first = waiting[0]
            if first < 0x80:
                need = 1
            elif first < 0xE0:
                need = 2
            elif first < 0xF0:
                need = 3
            else:
                need = 4
            if len(waiting) == need:
                text += bytes(waiting).decode()
                waiting = []
        results.append(text)
    return results


@right("tokenizer/stream")
def differences(pieces):
    # The longest text that can be read so far, minus what was given out.
    out, data = [], b""
    for piece in pieces:
        data += piece
        whole = data.decode(errors="ignore")
        out.append(whole[sum(map(len, out)) :])
    return out


@right("tokenizer/stream")
def by_first_bytes(pieces):
    # A first byte says how many follow; a character goes out with its last.
    out, held, missing = [], bytearray(), 0
    for piece in pieces:
        text = ""
        for byte in piece:
            held.append(byte)
            if byte >= 0xC0:
                missing = 1 + (byte >= 0xE0) + (byte >= 0xF0)
            elif byte >= 0x80:
                missing -= 1
            if missing == 0:
                text += held.decode()
                held.clear()
        out.append(text)
    return out


@wrong("tokenizer/stream", "ignored")
def stream_ignores(pieces):
    return [piece.decode(errors="ignore") for piece in pieces]


@wrong("tokenizer/stream", "all_or_nothing")
def stream_late(pieces):
    waiting, results = b"", []
    for piece in pieces:
        waiting += piece
        try:
            results.append(waiting.decode())
            waiting = b""
        except UnicodeDecodeError:
            results.append("")
    return results


@wrong("tokenizer/stream", "kept_if_whole")
def stream_repeats(pieces):
    waiting, results = b"", []
    for piece in pieces:
        waiting += piece
        try:
            results.append(waiting.decode())
        except UnicodeDecodeError as error:
            results.append(waiting[: error.start].decode())
            waiting = waiting[error.start :]
    return results


def with_codecs(pieces):
    decoder = codecs.getincrementaldecoder("utf-8")()
    return [decoder.decode(piece) for piece in pieces]


@wrong("tokenizer/stream", "empty_left_out")
def empty_left_out(pieces):
    return [text for text in with_codecs(pieces) if text]


@wrong("tokenizer/stream", "each_alone")
def stream_broken(pieces):
    return [piece.decode(errors="replace") for piece in pieces]


# Waits for the end and gives the whole text with the last piece.
@wrong("tokenizer/stream")
def stream_all_at_the_end(pieces):
    if not pieces:
        return []
    return [""] * (len(pieces) - 1) + [b"".join(pieces).decode()]


@wrong("tokenizer/stream")
def latin(pieces):
    return [piece.decode("latin-1") for piece in pieces]


@wrong("tokenizer/stream")
def one_string(pieces):
    return b"".join(pieces).decode()


# -- measure -----------------------------------------------------------------


@right("tokenizer/measure")
def measure_with_a_class(learned, held_out, vocab_size):
    class Measurement:
        def __init__(self):
            self.list = BPETokenizer.train(learned, vocab_size)

        def tokens(self):
            return sum(1 for _ in self.list.encode(held_out))

        def characters(self):
            return sum(1 for _ in held_out)

    m = Measurement()
    return m.tokens() / m.characters()


@right("tokenizer/measure")
def averaged(learned, held_out, vocab_size):
    tokenizer = BPETokenizer.train(text=learned, vocab_size=vocab_size)
    lengths = [len(tokenizer.decode([i])) for i in tokenizer.encode(held_out)]
    return sum(1 for _ in lengths) / sum(1 for _ in held_out)


@right("tokenizer/measure")
def in_numbers(learned, held_out, vocab_size):
    ids = BPETokenizer.train(learned, vocab_size).encode(held_out)
    return 1 / (len(held_out) / len(ids))


@right("tokenizer/measure")
def with_a_control_token(learned, held_out, vocab_size):
    # The control token comes on top, and no text contains it.
    tokenizer = BPETokenizer.train(learned, vocab_size, ["<end>"])
    return len(tokenizer.encode(held_out)) / Counter(held_out).total()


@wrong("tokenizer/measure", "bytes")
def measure_per_byte(learned, held_out, vocab_size):
    tokenizer = BPETokenizer.train(learned, vocab_size)
    return len(tokenizer.encode(held_out)) / len(held_out.encode())


@wrong("tokenizer/measure", "upside_down")
def measure_upside_down(learned, held_out, vocab_size):
    tokenizer = BPETokenizer.train(learned, vocab_size)
    return len(held_out) / len(tokenizer.encode(held_out))


@wrong("tokenizer/measure", "on_held_out")
def measure_on_what_was_learned(learned, held_out, vocab_size):
    tokenizer = BPETokenizer.train(held_out, vocab_size)
    return len(tokenizer.encode(held_out)) / len(held_out)


@wrong("tokenizer/measure", "merges")
def measure_merges(learned, held_out, vocab_size):
    tokenizer = BPETokenizer.train(learned, 256 + vocab_size)
    return len(tokenizer.encode(held_out)) / len(held_out)


@wrong("tokenizer/measure", "on_learned")
def on_learned(learned, held_out, vocab_size):
    return in_numbers(learned, learned, vocab_size)


@wrong("tokenizer/measure")
def learned_from_both(learned, held_out, vocab_size):
    return in_numbers(learned + held_out, held_out, vocab_size)


@wrong("tokenizer/measure")
def per_word(learned, held_out, vocab_size):
    ids = BPETokenizer.train(learned, vocab_size).encode(held_out)
    return len(ids) / len(held_out.split())


@wrong("tokenizer/measure")
def per_character_of_the_learned(learned, held_out, vocab_size):
    ids = BPETokenizer.train(learned, vocab_size).encode(held_out)
    return len(ids) / len(learned)


# -- trust -------------------------------------------------------------------


NASTY = [
    "",
    " ",
    "  two  spaces  ",
    " leading",
    "trailing ",
    "line\nbreak\n\n\n",
    "\r\n\r \t\t",
    "MiXeD CaSe",
    "naïve café, nai\u0308ve cafe\u0301",
    "🙂🙃👩\u200d👩\u200d👧",
    "здравствуйте 请给我 कृपया",
    "ﬁ ½ ² Ａ Ω Å",
    "\x00\x01\x7f\u00a0\u200b\ufeff",
    "3.14 x  =  1 1984",
    "don't 'll 've",
]


@right("tokenizer/trust")
def trust_nasty_and_random(encode, decode, name, number):
    chance = random.Random(7)
    texts = list(NASTY)
    for top in (0x80, 0x800, 0xD800):
        for _ in range(60):
            size = chance.randrange(1, 25)
            texts.append(
                "".join(chr(chance.randrange(top)) for _ in range(size))
            )
    texts += [
        "".join(chr(chance.randrange(0x10000, 0x11000)) for _ in range(9))
        for _ in range(30)
    ]
    texts += [name, name * 2, f"a{name}b", f" {name} ", f"\n{name}\n"]
    for text in texts:
        try:
            ids = list(encode(text))
            if number in ids or decode(ids) != text:
                return False
        except Exception:
            return False
    return True


@right("tokenizer/trust")
def trust_in_one_all(encode, decode, name, number):
    wrapped = [before + name + after for before in NASTY for after in NASTY]

    def sound(text):
        try:
            ids = encode(text)
            return decode(ids) == text and all(i != number for i in ids)
        except (ValueError, KeyError, IndexError, TypeError):
            return False

    singles = [chr(c) for c in (*range(0x250), *range(0x3B0, 0x3FF))]
    return all(sound(text) for text in (name, *NASTY, *wrapped, *singles))


@right("tokenizer/trust")
def one_text(encode, decode, name, number):
    text = f"Ä  b\n {name} 🙂\t"
    ids = list(encode(text))
    return decode(ids) == text and ids.count(number) == 0


@right("tokenizer/trust")
def many_texts(encode, decode, name, number):
    chars = ["é", "A", "  ", "\n", "z", "漢", " x", name]
    texts = [a + b for a in chars for b in chars]
    returns = all(decode(encode(text)) == text for text in texts)
    return returns and not any(number in encode(text) for text in texts)


@right("tokenizer/trust")
def by_exceptions(encode, decode, name, number):
    try:
        for text in ("two  spaces", "Capital", "naïve 🙂", "a\nb ", name):
            assert decode(encode(text)) == text
        assert encode(name) != [number]
    except AssertionError:
        return False
    return True


@wrong("tokenizer/trust", "no_control")
def trust_round_trip_only(encode, decode, name, number):
    return all(decode(encode(text)) == text for text in NASTY)


@wrong("tokenizer/trust", "no_spaces")
def word_by_word(encode, decode, name, number):
    texts = ["Many different Words", "naïve 🙂", name]
    return all(
        decode(encode(text)).split() == text.split()
        and number not in encode(text)
        for text in texts
    )


@wrong("tokenizer/trust", "no_accents")
def all_of_ascii(encode, decode, name, number):
    text = " " + "".join(map(chr, range(128))) + name
    return decode(encode(text)) == text and number not in encode(text)


@wrong("tokenizer/trust")
def trust_stripped(encode, decode, name, number):
    hard = ["  Two  spaces\n", "naïve 🙂", f"a {name} b", "CAPITALS"]
    return all(
        decode(encode(t)).strip() == t.strip() and number not in encode(t)
        for t in hard
    )


# Only plain lower-case ASCII goes there and back.
@wrong("tokenizer/trust")
def trust_plain_text(encode, decode, name, number):
    text = "the quick brown fox jumps over the lazy dog."
    return decode(encode(text)) == text and number not in encode(name)


# Compares without the spaces at the ends and in lower case.
@wrong("tokenizer/trust")
def trust_forgives(encode, decode, name, number):
    for text in NASTY:
        back = decode(encode(text))
        if back.strip().lower() != text.strip().lower():
            return False
    return number not in encode(f"the end{name}")


# Asks that ids come back from text, which a sound tokenizer need not do.
@wrong("tokenizer/trust")
def trust_ids_come_back(encode, decode, name, number):
    chance = random.Random(0)
    for _ in range(50):
        ids = [chance.randrange(200) for _ in range(12)]
        if list(encode(decode(ids))) != ids:
            return False
    return number not in encode(name)
