"""Answers to chapter 1, written from its page alone."""

import codecs
import random
from collections import Counter
from itertools import pairwise

from coursekit.tokenizer import BPETokenizer
from tests.wild import right, wrong

# tokenizer/vocabulary


@right("tokenizer/vocabulary", "goes through all code points up to the top")
def vocabulary_by_code_point(text):
    there = set(map(ord, text))
    number_of, character_of = {}, {}
    for point in range(max(there, default=-1) + 1):
        if point in there:
            character_of[len(number_of)] = chr(point)
            number_of[chr(point)] = len(number_of)
    return number_of, character_of


@right("tokenizer/vocabulary", "counts the smaller characters of each")
def vocabulary_by_rank(text):
    each = set(text)
    a = {c: sum(other < c for other in each) for c in each}
    return a, {number: c for c, number in a.items()}


@wrong("tokenizer/vocabulary", "numbers a set, in its order", classic=True)
def vocabulary_of_a_set(text):
    chars = list(set(text))
    return {c: i for i, c in enumerate(chars)}, dict(enumerate(chars))


@wrong(
    "tokenizer/vocabulary",
    "in the order of first occurrence, not of code points",
    classic=True,
)
def vocabulary_as_they_come(text):
    chars = list(dict.fromkeys(text))
    return {c: i for i, c in enumerate(chars)}, dict(enumerate(chars))


@wrong("tokenizer/vocabulary", "the most frequent come first", classic=True)
def vocabulary_by_frequency(text):
    chars = [c for c, _ in Counter(text).most_common()]
    return {c: i for i, c in enumerate(chars)}, dict(enumerate(chars))


@wrong("tokenizer/vocabulary", "numbers from 1", classic=True)
def vocabulary_from_one(text):
    chars = sorted(set(text))
    number_of = {c: i for i, c in enumerate(chars, 1)}
    return number_of, {i: c for c, i in number_of.items()}


@wrong(
    "tokenizer/vocabulary",
    "the two dictionaries change places",
    classic=False,
)
def vocabulary_swapped(text):
    chars = sorted(set(text))
    return dict(enumerate(chars)), {c: i for i, c in enumerate(chars)}


# tokenizer/learn


@right("tokenizer/learn", "words are strings, and str.replace merges")
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


@right("tokenizer/learn", "recursive in the number of merges")
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


@wrong(
    "tokenizer/learn",
    "a tie goes to the pair that was counted first",
    classic=True,
)
def learn_first_of_a_tie(words, n_merges):
    corpus = [(list(word), n) for word, n in words.items()]
    merges = []
    while len(merges) < n_merges:
        counts = pairs_of(corpus)
        if not counts:
            break
        best = max(counts, key=counts.get)
        new = 256 + len(merges)
        merges.append(best)
        corpus = [(merged(word, best, new), n) for word, n in corpus]
    return merges


@wrong("tokenizer/learn", "a tie goes to the larger pair", classic=True)
def learn_largest_of_a_tie(words, n_merges):
    corpus = [(list(word), n) for word, n in words.items()]
    merges = []
    while len(merges) < n_merges:
        counts = pairs_of(corpus)
        if not counts:
            break
        best = max(counts, key=lambda pair: (counts[pair], pair))
        new = 256 + len(merges)
        merges.append(best)
        corpus = [(merged(word, best, new), n) for word, n in corpus]
    return merges


@wrong(
    "tokenizer/learn",
    "each word counts once, whatever its count",
    classic=True,
)
def learn_without_counts(words, n_merges):
    corpus = [(list(word), 1) for word in words]
    merges = []
    while len(merges) < n_merges:
        counts = pairs_of(corpus)
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        new = 256 + len(merges)
        merges.append(best)
        corpus = [(merged(word, best, new), n) for word, n in corpus]
    return merges


@wrong(
    "tokenizer/learn",
    "does not stop when no pair is left: min of nothing raises",
    classic=True,
)
def learn_never_stops(words, n_merges):
    corpus = [(list(word), n) for word, n in words.items()]
    merges = []
    for new in range(256, 256 + n_merges):
        counts = pairs_of(corpus)
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        merges.append(best)
        corpus = [(merged(word, best, new), n) for word, n in corpus]
    return merges


@wrong(
    "tokenizer/learn",
    "overlapping merges: in aaa both pairs become a piece",
    classic=True,
)
def learn_overlapping(words, n_merges):
    corpus = [(list(word), n) for word, n in words.items()]
    merges = []
    for new in range(256, 256 + n_merges):
        counts = pairs_of(corpus)
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        merges.append(best)
        after = []
        for word, n in corpus:
            out, covered = [], False
            for i, piece in enumerate(word):
                if tuple(word[i : i + 2]) == best:
                    out.append(new)
                    covered = True
                elif covered:
                    covered = False
                else:
                    out.append(piece)
            after.append((out, n))
        corpus = after
    return merges


@wrong(
    "tokenizer/learn",
    "a pair that comes twice in a word counts once for it",
    classic=False,
)
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


@wrong("tokenizer/learn", "the first merge makes 257", classic=True)
def learn_ids_off_by_one(words, n_merges):
    corpus = [(list(word), n) for word, n in words.items()]
    merges = []
    while len(merges) < n_merges:
        counts = pairs_of(corpus)
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        merges.append(best)
        new = 256 + len(merges)
        corpus = [(merged(word, best, new), n) for word, n in corpus]
    return merges


# tokenizer/replay


@right("tokenizer/replay", "each merge in turn over the whole word")
def replay_all_in_turn(word, merges):
    ids = tuple(word)
    for pair, new in sorted(merges.items(), key=lambda item: item[1]):
        ids = tuple(merged(ids, pair, new))
    return list(ids)


@right("tokenizer/replay", "looks for the smallest id again each time")
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


@wrong("tokenizer/replay", "the largest id goes first", classic=True)
def replay_largest(word, merges):
    ids = list(word)
    while True:
        known = [p for p in pairwise(ids) if p in merges]
        if not known:
            return ids
        best = max(known, key=merges.get)
        ids = merged(ids, best, merges[best])


@wrong(
    "tokenizer/replay",
    "takes the longest token that fits at the left, as if from a list",
    classic=True,
)
def replay_longest_match(word, merges):
    spelled = {(i,): i for i in range(256)}
    spelling = {i: (i,) for i in range(256)}
    for (a, b), new in sorted(merges.items(), key=lambda item: item[1]):
        spelling[new] = spelling[a] + spelling[b]
        spelled.setdefault(spelling[new], new)
    ids, at = [], 0
    while at < len(word):
        stop = len(word)
        while tuple(word[at:stop]) not in spelled:
            stop -= 1
        ids.append(spelled[tuple(word[at:stop])])
        at = stop
    return ids


@wrong(
    "tokenizer/replay",
    "goes through the merges once and merges one place for each",
    classic=True,
)
def replay_one_place_each(word, merges):
    ids = list(word)
    for pair, new in sorted(merges.items(), key=lambda item: item[1]):
        for i in range(len(ids) - 1):
            if (ids[i], ids[i + 1]) == pair:
                ids[i : i + 2] = [new]
                break
    return ids


@wrong(
    "tokenizer/replay",
    "sorts the merges by their pairs, not by their ids",
    classic=False,
)
def replay_sorted_by_pair(word, merges):
    ids = list(word)
    for pair in sorted(merges):
        ids = merged(ids, pair, merges[pair])
    return ids


# tokenizer/stream


@right("tokenizer/stream", "Python's own incremental decoder")
def stream_incremental(pieces):
    decoder = codecs.getincrementaldecoder("utf-8")()
    return [decoder.decode(piece) for piece in pieces]


@right("tokenizer/stream", "decodes the whole beginning anew each time")
def stream_by_prefix(pieces):
    shown, results, so_far = "", [], b""
    for piece in pieces:
        so_far += piece
        complete = so_far.decode("utf-8", errors="ignore")
        results.append(complete[len(shown) :])
        shown = complete
    return results


@right("tokenizer/stream", "reads a character's length off its first byte")
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


@wrong(
    "tokenizer/stream",
    "drops the bytes of a character that spans two pieces",
    classic=True,
)
def stream_ignores(pieces):
    return [piece.decode(errors="ignore") for piece in pieces]


@wrong(
    "tokenizer/stream",
    "holds back the complete characters before an incomplete one, too",
    classic=True,
)
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


@wrong(
    "tokenizer/stream",
    "the bytes are kept after they were shown, so text repeats",
    classic=True,
)
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


@wrong(
    "tokenizer/stream",
    "says nothing for a piece that completes nothing: too few strings",
    classic=True,
)
def stream_too_few(pieces):
    waiting, results = b"", []
    for piece in pieces:
        waiting += piece
        try:
            complete, waiting = waiting.decode(), b""
        except UnicodeDecodeError as error:
            complete = waiting[: error.start].decode()
            waiting = waiting[error.start :]
        if complete:
            results.append(complete)
    return results


@wrong(
    "tokenizer/stream",
    "waits for the end and gives the whole text with the last piece",
    classic=False,
)
def stream_all_at_the_end(pieces):
    if not pieces:
        return []
    return [""] * (len(pieces) - 1) + [b"".join(pieces).decode()]


# tokenizer/measure


@right("tokenizer/measure", "a class with one step a method")
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


@wrong("tokenizer/measure", "divides by bytes", classic=True)
def measure_per_byte(learned, held_out, vocab_size):
    tokenizer = BPETokenizer.train(learned, vocab_size)
    return len(tokenizer.encode(held_out)) / len(held_out.encode())


@wrong(
    "tokenizer/measure",
    "upside down: characters per token",
    classic=True,
)
def measure_upside_down(learned, held_out, vocab_size):
    tokenizer = BPETokenizer.train(learned, vocab_size)
    return len(held_out) / len(tokenizer.encode(held_out))


@wrong(
    "tokenizer/measure",
    "learns the list from the text that it measures on",
    classic=True,
)
def measure_on_what_was_learned(learned, held_out, vocab_size):
    tokenizer = BPETokenizer.train(held_out, vocab_size)
    return len(tokenizer.encode(held_out)) / len(held_out)


@wrong(
    "tokenizer/measure",
    "takes vocab_size for the number of merges, so the list is 256 longer",
    classic=False,
)
def measure_merges(learned, held_out, vocab_size):
    tokenizer = BPETokenizer.train(learned, 256 + vocab_size)
    return len(tokenizer.encode(held_out)) / len(held_out)


# tokenizer/trust

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


@right("tokenizer/trust", "a list of nasty texts and many random ones")
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


@right("tokenizer/trust", "one all, with the checks as a generator")
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


@wrong(
    "tokenizer/trust",
    "only plain lower-case ASCII goes there and back",
    classic=True,
)
def trust_plain_text(encode, decode, name, number):
    text = "the quick brown fox jumps over the lazy dog."
    return decode(encode(text)) == text and number not in encode(name)


@wrong(
    "tokenizer/trust",
    "never tries to spell the control token",
    classic=True,
)
def trust_round_trip_only(encode, decode, name, number):
    return all(decode(encode(text)) == text for text in NASTY)


@wrong(
    "tokenizer/trust",
    "asks that ids come back from text, which a sound tokenizer need not do",
    classic=True,
)
def trust_ids_come_back(encode, decode, name, number):
    chance = random.Random(0)
    for _ in range(50):
        ids = [chance.randrange(200) for _ in range(12)]
        if list(encode(decode(ids))) != ids:
            return False
    return number not in encode(name)


@wrong(
    "tokenizer/trust",
    "compares without the spaces at the ends and in lower case",
    classic=False,
)
def trust_forgives(encode, decode, name, number):
    for text in NASTY:
        back = decode(encode(text))
        if back.strip().lower() != text.strip().lower():
            return False
    return number not in encode(f"the end{name}")
