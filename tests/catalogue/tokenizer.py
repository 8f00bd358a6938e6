"""Answers to the exercises of chapter 1, as people write them."""

import codecs
import re
from collections import Counter, defaultdict
from itertools import count, pairwise

from coursekit.tokenizer import BPETokenizer


# -- vocabulary: right -------------------------------------------------------
def one_at_a_time(text):
    to_number, to_char = {}, {}
    for code in range(0x110000):
        char = chr(code)
        if char in text and char not in to_number:
            to_char[len(to_number)] = char
            to_number[char] = len(to_number)
    return to_number, to_char


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


def by_utf8(text):
    # The bytes of UTF-8 are in the order of the code points.
    chars = sorted({c.encode() for c in text}, reverse=True)[::-1]
    to_char = {i: c.decode() for i, c in enumerate(chars)}
    return {c: i for i, c in to_char.items()}, to_char


# -- vocabulary: wrong -------------------------------------------------------
def order_of_a_set(text):
    to_number = {}
    for char in {*text}:
        to_number[char] = len(to_number)
    return to_number, {i: c for c, i in to_number.items()}


def first_seen(text):
    to_number = {}
    for char in text:
        if char not in to_number:
            to_number[char] = len(to_number)
    return to_number, {i: c for c, i in to_number.items()}


def from_one(text):
    numbers = dict(zip(sorted(set(text)), count(1)))
    return numbers, {i: c for c, i in numbers.items()}


def swapped(text):
    to_number, to_char = one_at_a_time(text)
    return to_char, to_number


def only_latin(text):
    chars = [chr(code) for code in range(256) if chr(code) in text]
    return {c: i for i, c in enumerate(chars)}, dict(enumerate(chars))


def code_points(text):
    return {c: ord(c) for c in text}, {ord(c): c for c in text}


def most_frequent_first(text):
    chars = [c for c, _ in Counter(text).most_common()]
    return {c: i for i, c in enumerate(chars)}, dict(enumerate(chars))


def ignores_case(text):
    chars = sorted(set(text), key=str.lower)
    return {c: i for i, c in enumerate(chars)}, dict(enumerate(chars))


def backward(text):
    chars = sorted(set(text), reverse=True)
    return {c: i for i, c in enumerate(chars)}, dict(enumerate(chars))


# -- learn: right ------------------------------------------------------------
def join(ids, pair, new):
    out = []
    for i in ids:
        out.append(i)
        if tuple(out[-2:]) == pair:
            out[-2:] = [new]
    return out


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


# -- learn: wrong ------------------------------------------------------------
def uncounted(words, n_merges):
    return learn_with(words, n_merges, weight=lambda n: 1)


def ties_first(words, n_merges):
    return learn_with(
        words, n_merges, choose=lambda c: Counter(c).most_common(1)[0][0]
    )


def ties_larger(words, n_merges):
    return learn_with(
        words, n_merges, choose=lambda c: max((n, p) for p, n in c.items())[1]
    )


def no_stop(words, n_merges):
    lists, merges = [(list(w), n) for w, n in words.items()], []
    for step in range(n_merges):
        counts = Counter()
        for ids, n in lists:
            for pair in pairwise(ids):
                counts[pair] += n
        best = min(counts.items(), key=lambda item: (-item[1], item[0]))[0]
        lists = [(join(ids, best, 256 + step), n) for ids, n in lists]
        merges.append(best)
    return merges


def id_late(words, n_merges):
    return learn_with(words, n_merges, first=257)


def only_the_first_place(ids, pair, new):
    for i, two in enumerate(pairwise(ids)):
        if two == pair:
            return [*ids[:i], new, *ids[i + 2 :]]
    return ids


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


def overlapping(ids, pair, new):
    # Goes on with the second of the pair, which is used twice.
    out, i = [], 0
    while i < len(ids):
        hit = tuple(ids[i : i + 2]) == pair
        out.append(new if hit else ids[i])
        i += 1
    return out


def used_twice(words, n_merges):
    return learn_with(words, n_merges, replace=overlapping)


def ids_of_pieces(words, n_merges):
    return list(range(256, 256 + len(learn_with(words, n_merges))))


def pieces_of_bytes(words, n_merges):
    names = [bytes([i]) for i in range(256)]
    for a, b in learn_with(words, n_merges):
        names.append(names[a] + names[b])
    return names[256:]


def one_more(words, n_merges):
    return learn_with(words, n_merges + 1)


# -- replay: right -----------------------------------------------------------
def merge_by_merge(word, merges):
    # All merges in the order of learning, each once over the word.
    ids = list(word)
    for pair in sorted(merges, key=merges.get):
        ids = join(ids, pair, merges[pair])
    return ids


def by_recursion(word, merges):
    known = [
        (merges[p], i) for i, p in enumerate(pairwise(word)) if p in merges
    ]
    if not known:
        return list(word)
    new, i = min(known)
    return by_recursion([*word[:i], new, *word[i + 2 :]], merges)


def as_characters(word, merges):
    text = "".join(map(chr, word))
    back = {new: chr(a) + chr(b) for (a, b), new in merges.items()}
    for new in sorted(back):
        text = text.replace(back[new], chr(new))
    return [ord(char) for char in text]


# -- replay: wrong -----------------------------------------------------------
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


def latest_everywhere(word, merges):
    ids = list(word)
    while known := {p for p in pairwise(ids) if p in merges}:
        pair = max(known, key=merges.get)
        ids = join(ids, pair, merges[pair])
    return ids


def smallest_pair(word, merges):
    ids = list(word)
    while True:
        known = {p for p in pairwise(ids) if p in merges}
        if not known:
            return ids
        pair = min(known)
        ids = only_the_first_place(ids, pair, merges[pair])


def never_goes_back(word, merges):
    ids, i = list(word), 0
    while i < len(ids) - 1:
        if (new := merges.get((ids[i], ids[i + 1]))) is not None:
            ids[i : i + 2] = [new]
        i += 1
    return ids


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


def no_merge_at_all(word, merges):
    return list(word)


def each_merge_once(word, merges):
    ids = list(word)
    for pair, new in sorted(merges.items(), key=lambda item: item[1]):
        ids = only_the_first_place(ids, pair, new)
    return ids


# -- stream: right -----------------------------------------------------------
def with_codecs(pieces):
    decoder = codecs.getincrementaldecoder("utf-8")()
    return [decoder.decode(piece) for piece in pieces]


def differences(pieces):
    # The longest text that can be read so far, minus what was given out.
    out, data = [], b""
    for piece in pieces:
        data += piece
        whole = data.decode(errors="ignore")
        out.append(whole[sum(map(len, out)) :])
    return out


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


# -- stream: wrong -----------------------------------------------------------
def stream_broken(pieces):
    return [piece.decode(errors="replace") for piece in pieces]


def ignored(pieces):
    return [str(piece, "utf-8", "ignore") for piece in pieces]


def all_or_nothing(pieces):
    kept, out = b"", []
    for piece in pieces:
        kept += piece
        try:
            out.append(kept.decode())
            kept = b""
        except UnicodeDecodeError:
            out.append("")
    return out


def empty_left_out(pieces):
    return [text for text in with_codecs(pieces) if text]


def latin(pieces):
    return [piece.decode("latin-1") for piece in pieces]


def at_the_end(pieces):
    return [""] * (len(pieces) - 1) + [b"".join(pieces).decode()]


def one_string(pieces):
    return b"".join(pieces).decode()


def one_late(pieces):
    return ["", *with_codecs(pieces)[:-1]]


# -- measure: right ----------------------------------------------------------
def averaged(learned, held_out, vocab_size):
    tokenizer = BPETokenizer.train(text=learned, vocab_size=vocab_size)
    lengths = [len(tokenizer.decode([i])) for i in tokenizer.encode(held_out)]
    return sum(1 for _ in lengths) / sum(1 for _ in held_out)


def in_numbers(learned, held_out, vocab_size):
    ids = BPETokenizer.train(learned, vocab_size).encode(held_out)
    return 1 / (len(held_out) / len(ids))


def with_a_control_token(learned, held_out, vocab_size):
    # The control token comes on top, and no text contains it.
    tokenizer = BPETokenizer.train(learned, vocab_size, ["<end>"])
    return len(tokenizer.encode(held_out)) / Counter(held_out).total()


# -- measure: wrong ----------------------------------------------------------
def merges_on_top(learned, held_out, vocab_size):
    return in_numbers(learned, held_out, vocab_size + 256)


def on_learned(learned, held_out, vocab_size):
    return in_numbers(learned, learned, vocab_size)


def per_byte(learned, held_out, vocab_size):
    ids = BPETokenizer.train(learned, vocab_size).encode(held_out)
    return len(ids) / len(bytes(held_out, "utf-8"))


def characters_per_token(learned, held_out, vocab_size):
    return 1 / in_numbers(learned, held_out, vocab_size)


def learned_from_both(learned, held_out, vocab_size):
    return in_numbers(learned + held_out, held_out, vocab_size)


def per_word(learned, held_out, vocab_size):
    ids = BPETokenizer.train(learned, vocab_size).encode(held_out)
    return len(ids) / len(held_out.split())


def per_character_of_the_learned(learned, held_out, vocab_size):
    ids = BPETokenizer.train(learned, vocab_size).encode(held_out)
    return len(ids) / len(learned)


# -- trust: right ------------------------------------------------------------
def one_text(encode, decode, name, number):
    text = f"Ä  b\n {name} 🙂\t"
    ids = list(encode(text))
    return decode(ids) == text and ids.count(number) == 0


def many_texts(encode, decode, name, number):
    chars = ["é", "A", "  ", "\n", "z", "漢", " x", name]
    texts = [a + b for a in chars for b in chars]
    returns = all(decode(encode(text)) == text for text in texts)
    return returns and not any(number in encode(text) for text in texts)


def by_exceptions(encode, decode, name, number):
    try:
        for text in ("two  spaces", "Capital", "naïve 🙂", "a\nb ", name):
            assert decode(encode(text)) == text
        assert encode(name) != [number]
    except AssertionError:
        return False
    return True


# -- trust: wrong ------------------------------------------------------------
def word_by_word(encode, decode, name, number):
    texts = ["Many different Words", "naïve 🙂", name]
    return all(
        decode(encode(text)).split() == text.split()
        and number not in encode(text)
        for text in texts
    )


def all_of_ascii(encode, decode, name, number):
    text = " " + "".join(map(chr, range(128))) + name
    return decode(encode(text)) == text and number not in encode(text)


def name_comes_back(encode, decode, name, number):
    texts = ["  Two  spaces\n", "naïve 🙂", name, f"a {name} b"]
    return all(decode(encode(text)) == text for text in texts)


def only_the_name(encode, decode, name, number):
    return number not in encode(f"{name} and {name}")


def trusts_nobody(encode, decode, name, number):
    return encode(name) == [number]


def the_number_too(encode, decode, name, number):
    return one_text(encode, decode, name, number) and decode([number]) == ""


def any_will_do(encode, decode, name, number):
    texts = ["  Naïve\n", f"🙂 A{name}"]
    return any(decode(encode(t)) == t for t in texts) and number in encode(
        name
    )


def last_byte_lost(word, merges):
    return by_recursion(list(word), merges)[:-1]


def kept_if_whole(pieces):
    buffer, out = b"", []
    for piece in pieces:
        buffer += piece
        try:
            out.append(buffer.decode("utf-8"))
        except UnicodeDecodeError as cut:
            out.append(buffer[: cut.start].decode("utf-8"))
            buffer = buffer[cut.start :]
    return out


def trust_stripped(encode, decode, name, number):
    hard = ["  Two  spaces\n", "naïve 🙂", f"a {name} b", "CAPITALS"]
    return all(
        decode(encode(t)).strip() == t.strip() and number not in encode(t)
        for t in hard
    )


def learn_overlapping(words, n_merges):
    def replace(ids, pair, new):
        hits = {i for i, two in enumerate(pairwise(ids)) if two == pair}
        return tuple(
            new if i in hits else x
            for i, x in enumerate(ids)
            if i in hits or i - 1 not in hits
        )

    return learn_with(words, n_merges, replace=replace)


def on_held_out(learned, held_out, vocab_size):
    ids = BPETokenizer.train(held_out, vocab_size).encode(held_out)
    return len(ids) / len(held_out)


RIGHT = {
    "vocabulary": [one_at_a_time, by_insertion, by_utf8],
    "learn": [learn_with, as_text, with_regex],
    "replay": [merge_by_merge, by_recursion, as_characters],
    "stream": [with_codecs, differences, by_first_bytes],
    "measure": [averaged, in_numbers, with_a_control_token],
    "trust": [one_text, many_texts, by_exceptions],
}
WRONG = {
    "vocabulary": {
        "set_order": order_of_a_set,
        "first_seen": first_seen,
        "from_one": from_one,
        "swapped": swapped,
        "most_common": most_frequent_first,
    },
    "learn": {
        "uncounted": uncounted,
        "first_seen": ties_first,
        "larger": ties_larger,
        "no_stop": no_stop,
        "id_late": id_late,
        "overlapping": learn_overlapping,
    },
    "replay": {
        "leftmost": replay_broken,
        "latest_everywhere": latest_everywhere,
        "smallest_pair": smallest_pair,
        "longest": longest_piece,
        "each_once": each_merge_once,
    },
    "stream": {
        "each_alone": stream_broken,
        "ignored": ignored,
        "all_or_nothing": all_or_nothing,
        "empty_left_out": empty_left_out,
        "kept_if_whole": kept_if_whole,
    },
    "measure": {
        "merges": merges_on_top,
        "on_learned": on_learned,
        "bytes": per_byte,
        "upside_down": characters_per_token,
        "on_held_out": on_held_out,
    },
    "trust": {
        "no_spaces": word_by_word,
        "no_accents": all_of_ascii,
        "no_control": name_comes_back,
    },
}
OUTSIDE = {
    "vocabulary": [
        only_latin,
        code_points,
        ignores_case,
        backward,
    ],
    "learn": [
        used_twice,
        ids_of_pieces,
        pieces_of_bytes,
        one_more,
        runs_count_once,
    ],
    "replay": [
        last_byte_lost,
        never_goes_back,
        no_merge_at_all,
    ],
    "stream": [latin, at_the_end, one_string, one_late],
    "measure": [learned_from_both, per_word, per_character_of_the_learned],
    "trust": [
        only_the_name,
        trusts_nobody,
        the_number_too,
        any_will_do,
        trust_stripped,
    ],
}
