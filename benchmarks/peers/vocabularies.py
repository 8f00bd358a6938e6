"""Tokenizers: learning a vocabulary, and encoding with a given one."""

import io
from collections.abc import Callable
from typing import Any

from benchmarks.contest import (
    Missing,
    Settings,
    Task,
    checkout,
    load_module,
    need,
)
from coursekit.bpe import SPLIT, encode_chunk

Learn = Callable[[], Any]
Encode = Callable[[], list[int]]


class Learned:
    """A vocabulary that was learned: its size, and how it encodes."""

    def __init__(
        self, vocab_size: int, encode: Callable[[str], list[int]]
    ) -> None:
        self.vocab_size, self.encode = vocab_size, encode


# -- learning ----------------------------------------------------------------


def learn_tokenizers(task: Task, settings: Settings) -> Learn:
    """The tokenizers library, byte level, GPT-2's split."""
    library = need("tokenizers")

    def learn() -> Learned:
        made = library.Tokenizer(library.models.BPE())
        made.pre_tokenizer = library.pre_tokenizers.ByteLevel(
            add_prefix_space=False
        )
        trainer = library.trainers.BpeTrainer(
            vocab_size=task.size,
            initial_alphabet=library.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        made.train_from_iterator([task.text], trainer)
        return Learned(
            made.get_vocab_size(), lambda text: made.encode(text).ids
        )

    return learn


def learn_rustbpe(task: Task, settings: Settings) -> Learn:
    """rustbpe with GPT-2's split."""
    library = need("rustbpe")

    def learn() -> Learned:
        made = library.Tokenizer()
        made.train_from_iterator([task.text], task.size, pattern=SPLIT)
        return Learned(made.vocab_size, made.encode)

    return learn


def learn_sentencepiece(task: Task, settings: Settings) -> Learn:
    """sentencepiece, which learns from characters, not bytes."""
    library = need("sentencepiece")

    def learn() -> Learned:
        out = io.BytesIO()
        library.SentencePieceTrainer.train(
            sentence_iterator=iter(task.text.splitlines()),
            model_writer=out,
            vocab_size=task.size,
            model_type="bpe",
            byte_fallback=True,
            character_coverage=1.0,
            num_threads=1,
            minloglevel=2,
        )
        made = library.SentencePieceProcessor(model_proto=out.getvalue())
        return Learned(made.get_piece_size(), made.encode)

    return learn


def minbpe(settings: Settings) -> Any:
    """A RegexTokenizer of karpathy/minbpe with GPT-2's split."""
    path = checkout(settings, "minbpe")
    # Its modules import each other by the package's name.
    made = load_module("minbpe", path).RegexTokenizer()
    made.pattern = SPLIT
    made.compiled_pattern = need("regex").compile(SPLIT)
    return made


HOURS = 2e9  # bytes times tokens


def learn_minbpe(task: Task, settings: Settings) -> Learn:
    """minbpe's trainer, which counts all pairs again for each merge."""
    if len(task.text) * task.size > HOURS:
        raise Missing("would take hours: it counts all pairs for each merge")
    made = minbpe(settings)

    def learn() -> Learned:
        made.train(task.text, task.size)
        return Learned(len(made.vocab), made.encode)

    return learn


# -- encoding ----------------------------------------------------------------


def merges(tokens: tuple[bytes, ...]) -> list[tuple[int, int]]:
    """The pair of ids that each token beyond the bytes was made of."""
    known = {token: i for i, token in enumerate(tokens[:256])}
    found = []
    for i, token in enumerate(tokens[256:], 256):
        left, right = encode_chunk(token, known)
        found.append((left, right))
        known[token] = i
    return found


def encode_tiktoken(task: Task, settings: Settings) -> Encode:
    """tiktoken, called directly."""
    made = need("tiktoken").Encoding(
        "benchmark",
        pat_str=SPLIT,
        mergeable_ranks={t: i for i, t in enumerate(task.tokens)},
        special_tokens={},
    )
    return lambda: made.encode_ordinary(task.text)


def encode_tokenizers(task: Task, settings: Settings) -> Encode:
    """The tokenizers library with the same merges."""
    library = need("tokenizers")
    level = library.pre_tokenizers.ByteLevel(
        add_prefix_space=False, use_regex=True
    )
    letters = byte_letters()
    names = ["".join(letters[b] for b in token) for token in task.tokens]
    made = library.Tokenizer(
        library.models.BPE(
            vocab={name: i for i, name in enumerate(names)},
            merges=[(names[a], names[b]) for a, b in merges(task.tokens)],
        )
    )
    made.pre_tokenizer = level
    return lambda: made.encode(task.text).ids


def byte_letters() -> dict[int, str]:
    """GPT-2's visible letter for each byte."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in shown]
    letters = {b: chr(b) for b in shown}
    return letters | {b: chr(256 + i) for i, b in enumerate(hidden)}


def encode_rustbpe(task: Task, settings: Settings) -> Encode:
    """rustbpe; it reads no vocabulary, so it learns the same one first."""
    made = need("rustbpe").Tokenizer()
    made.train_from_iterator([task.text], len(task.tokens), pattern=SPLIT)
    if dict(made.get_mergeable_ranks()) != {
        token: i for i, token in enumerate(task.tokens)
    }:
        raise Missing("it learned another vocabulary, and can read none")
    return lambda: made.encode(task.text)


def encode_minbpe(task: Task, settings: Settings) -> Encode:
    """minbpe with the same merges."""
    made = minbpe(settings)
    made.merges = {pair: 256 + i for i, pair in enumerate(merges(task.tokens))}
    made.vocab = dict(enumerate(task.tokens))
    encode = getattr(made, "encode_ordinary", made.encode)
    return lambda: encode(task.text)
