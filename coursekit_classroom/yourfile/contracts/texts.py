"""Contracts of tokenizers and batches."""

import re
from collections import Counter
from functools import reduce
from itertools import pairwise

import torch

from coursekit_classroom.yourfile.contracts.base import (
    B,
    ContractError,
    File,
    T,
    check_tensor,
    kind,
)

TEXT = "First Citizen:\nBefore we proceed any further, hear me speak."
# Where "st" is in most words, but "he" occurs most often.
WORDS = f"{'he ' * 9}stop, stem the lowest; steer the newest star! {TEXT}"
UNSEEN = "\n\nNaïve café 🙂, the  newer steam-\tengine; he has Been last\n"
N_MERGES = 30


def tokenizer(file: File) -> None:
    """Tokenizer: decode(encode(text)) is the text."""
    made = file["tokenizer"](TEXT)
    ids, n = made.encode(TEXT), len(set(TEXT))
    if not isinstance(ids, list) or set(ids) != set(range(n)):
        raise ContractError(
            f"{n} different characters have the ids 0 to {n - 1}, in a "
            f"list: got {kind(ids)}. Number the sorted set of characters."
        )
    if made.decode(ids[::-1]) != TEXT[::-1]:
        raise ContractError(
            f"decode turns ids back into their text, {TEXT[:-6:-1]!r}…: got "
            f"{kind(made.decode(ids[::-1]))}. Join the characters of the ids."
        )


def merge(file: File) -> None:
    """Merge: each occurrence of a pair becomes one new id, from the left."""
    for pair in ((0, 1), (1, 0), (0, 0)):
        for _ in range(20):
            ids = torch.randint(3, (2 * T,)).tolist()
            text = "".join("abc"[i] for i in ids)
            old = "abc"[pair[0]] + "abc"[pair[1]]
            wanted = ["abcd".index(x) for x in text.replace(old, "d")]
            actual = file["merge"](list(ids), pair, 3)
            if actual != wanted:
                raise ContractError(
                    f"the pair {pair} in {ids} becomes 3: wanted {wanted}, "
                    f"got {actual}. Look at pairs that overlap, and at the "
                    "two ends."
                )


def split(text: str) -> list[bytes]:
    """The bytes of a text; an empty one ends each word."""
    actual = []
    for word in re.findall(r" ?\w+| ?[^\w\s]+|\s", text):
        actual += [bytes([byte]) for byte in word.encode()]
        actual.append(b"")  # no pair crosses this
    return actual


def merged(tokens: list[bytes], pair: tuple[bytes, bytes]) -> list[bytes]:
    """The tokens after a merge, from the left."""
    actual: list[bytes] = []
    for token in tokens:
        if actual and (actual[-1], token) == pair:
            actual[-1] += token
        else:
            actual.append(token)
    return actual


def bpe(file: File) -> str:
    """Byte-pair encoding: merges the most frequent pair; text comes back."""
    size = 256 + N_MERGES
    made = file["bpe"](WORDS, size)
    if (top := max(made.encode(WORDS))) != size - 1:
        raise ContractError(
            f"a vocabulary of {size} tokens has ids up to {size - 1}: got "
            f"{top} as the highest id in the training text. The 256 bytes "
            "count too."
        )
    merges: list[tuple[bytes, bytes]] = []
    tokens = split(WORDS)
    for new_id in range(256, size):
        counts = Counter(pair for pair in pairwise(tokens) if all(pair))
        most = max(counts.values())
        best = {b"".join(p): p for p, n in counts.items() if n == most}
        token = made.decode([new_id]).encode()
        if token not in best:
            raise ContractError(
                f"each merge joins the most frequent pair: token {new_id} "
                f"may be {sorted(best)}, {most} times in the text, got "
                f"{token!r}. Count each word as often as it occurs, and no "
                "pair across the border of two words."
            )
        merges.append(best[token])
        tokens = merged(tokens, best[token])
    ids = {bytes([byte]): byte for byte in range(256)}
    ids |= {b"".join(pair): i for i, pair in enumerate(merges, 256)}
    for text in (WORDS, UNSEEN, ""):
        tokens = reduce(merged, merges, split(text))
        wanted = [ids[token] for token in tokens if token]
        actual = made.encode(text)
        if not isinstance(actual, list):
            raise ContractError(
                f"encode returns ids: got {kind(actual)}. Return a list of "
                "integers."
            )
        if actual != wanted:
            pairs = enumerate(zip(wanted, actual, strict=False))
            differ = (i for i, (ours, theirs) in pairs if ours != theirs)
            same = next(differ, min(len(wanted), len(actual)))
            four = slice(same, same + 4)
            raise ContractError(
                "encode repeats the merges in their order, in each word: "
                f"in {text[:12]!r}… the ids from number {same} on are "
                f"{wanted[four]}, got {actual[four]}. Begin with the word's "
                "bytes."
            )
        if (back := made.decode(actual)) != text:
            raise ContractError(
                f"decode turns ids back into their text, {text[:12]!r}…: "
                f"got {kind(back)}. Join the bytes, then decode them."
            )
    made.decode([195])  # half of a character, as a model may draw it
    file["bpe"]("aa aa", size).encode("aa")  # no pair is left to merge
    return f"the first merges: {', '.join(map(repr, list(ids)[256:261]))}"


def get_batch(file: File) -> None:
    """Batches: windows from random positions, targets one step ahead."""
    ids = torch.arange(100, 141)
    starts = set()
    for _ in range(8):
        batch = file["get_batch"](ids.clone(), B, T)
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise ContractError(
                f"a batch is the pair inputs, targets: got {kind(batch)}. "
                "Return both."
            )
        inputs = check_tensor(batch[0], (B, T), "inputs have the shape")
        targets = check_tensor(batch[1], (B, T), "targets have the shape")
        if not inputs.diff(dim=1).eq(1).all():
            raise ContractError(
                "a row is a stretch of the text: from the text 100, 101, … "
                f"got {inputs[0].tolist()}. Take T tokens in a row."
            )
        if not targets.equal(inputs + 1):
            raise ContractError(
                "the target of a token is the token after it: for the "
                f"inputs {inputs[0].tolist()} got {targets[0].tolist()}. "
                "Move the targets by one."
            )
        starts |= set(inputs[:, 0].tolist())
    if len(starts) < 15:  # 40 draws from 34 positions
        raise ContractError(
            "windows start at random positions: 40 of them began at "
            f"{len(starts)} different ones. Draw one for each row."
        )
