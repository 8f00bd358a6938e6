"""Exercises of chapter 14: encoder and decoder together."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from coursekit.attention import attend
from coursekit_classroom.catalogue.masks import quarters
from coursekit_classroom.check.core import (
    Bug,
    Case,
    Exercise,
    Variant,
    generator,
    randn,
)
from coursekit_classroom.check.families import (
    INVERTED,
    MASK_AFTER,
    MASK_FINITE,
    MASK_ZERO,
    NO_END,
    NO_SCALE,
    PADDING_READ,
)
from coursekit_classroom.check.forbid import ATTENTION

float64 = torch.float64


# -- implement: cross-attention ----------------------------------------------
def cross(
    y: Tensor,
    memory: Tensor,
    lengths: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
) -> Tensor:
    """Attention from one sequence to another: one head, no output matrix.

    `y` is `(B, T, D)`, the decoder's vectors; `memory` is `(B, S, D)`, the
    encoder's. T and S may differ. Queries are `y w_q`, keys `memory w_k`,
    values `memory w_v`; each matrix is `(D, Dh)`.
    Of row b of the memory, the first `lengths[b]` vectors are real, at least
    one, and the rest is padding, which gets no weight. All real vectors may be
    seen from all places of `y`. The result is `softmax(q kᵀ / √Dh) v`, with
    the softmax over the real vectors; it is `(B, T, Dh)`.
    """
    q, k, v = y @ w_q, memory @ w_k, memory @ w_v
    scores = q @ k.mT / math.sqrt(q.size(-1))
    real = torch.arange(memory.size(1)) < lengths[:, None]
    see = real[:, None]
    scores = scores.masked_fill(~see, -1e30)
    weights = scores.softmax(dim=-1)
    return weights @ v


_CROSS_BUGS = {
    "roles_swapped": Bug(
        "y @ w_q, memory @ w_k, memory @ w_v",
        "memory @ w_q, y @ w_k, y @ w_v",
        "see = real[:, None]",
        "see = torch.ones_like(scores, dtype=torch.bool)",
        says="queries from the memory, keys and values from the decoder",
        why="The side that needs something asks. The output must have a row "
        "for each of the decoder's places, whatever the source's length.",
        read="14_seq2seq#seq-by-hand",
        at="source",
    ),
    "from_itself": Bug(
        "memory @ w_k, memory @ w_v",
        "y @ w_k, y @ w_v",
        "see = real[:, None]",
        "see = torch.ones_like(scores, dtype=torch.bool)",
        says="keys and values from the decoder itself: self-attention",
        why="Nothing of the source arrives. Keys and values have to come "
        "from the memory.",
        read="14_seq2seq#seq-formula",
        at="source",
    ),
    "no_mask": PADDING_READ.by(
        "see = real[:, None]",
        "see = torch.ones_like(scores, dtype=torch.bool)",
        says="the padding of the memory read as if it were words",
        at="source",
    ),
    "causal": Bug(
        "scores = scores",
        "see = see & torch.ones_like(scores, dtype=torch.bool).tril()\n"
        "    scores = scores",
        says="a causal mask on the source",
        why="The source is all there before the first word is written: "
        "every position may look at every real word of it.",
        read="14_seq2seq#seq-masks",
    ),
    "no_scale": NO_SCALE.by(
        " / math.sqrt(q.size(-1))",
        "",
        read="14_seq2seq#seq-formula",
    ),
    "scale_model": Bug(
        "math.sqrt(q",
        "math.sqrt(y",
        says="the scores divided by √D, the width of the model",
        why="A score is a product of two vectors of Dh numbers: take the "
        "root of that.",
        read="14_seq2seq#seq-formula",
    ),
    "hidden_after": MASK_AFTER.by(
        "scores = scores.masked_fill(~see, -1e30)\n"
        "    weights = scores.softmax(dim=-1)",
        "weights = scores.softmax(dim=-1).masked_fill(~see, 0.0)",
        says="padding set to 0 after the softmax",
        read="05_masks#mask-formula",
        at="source",
    ),
    "one_more": Bug(
        "< lengths",
        "<= lengths",
        says="one vector of the padding taken for real",
        why="lengths[b] vectors are real, with the numbers 0 to lengths[b] "
        "− 1: places < lengths, not ≤.",
        read="05_masks#mask-padding",
        alone=True,
        otherwise=[(">= memory", ">= -1 + memory")],
    ),
    "inverted": INVERTED.by(
        "see = real",
        "see = ~real",
        says="a mask upside down: the padding is seen, and the real vectors "
        "are not",
        alone=True,
    ),
    "set_to_zero": MASK_ZERO.by(
        "scores = scores.masked_fill(~see, -1e30)\n"
        "    weights = scores.softmax(dim=-1)",
        "weights = scores.masked_fill(~see, 0.0).softmax(dim=-1)",
        says="scores of the padding set to 0",
        read="05_masks#mask-padding",
        alone=True,
    ),
    "mask_finite": MASK_FINITE.by("-1e30", "-100.0"),
    "over_targets": Bug(
        "softmax(dim=-1)",
        "softmax(dim=1)",
        says="a softmax over the words that ask, not over the memory",
        why="Each word that asks divides its attention among the source's "
        "words: the last axis.",
        read="14_seq2seq#seq-formula",
        alone=True,
    ),
}


def _cross_cases(seed: int) -> list[Case]:
    g = generator(seed)

    def inputs(b: int, t: int, s: int, d: int, d_head: int) -> list[Tensor]:
        w = [randn(g, d, d_head) * 0.7 for _ in range(3)]
        return [randn(g, b, t, d), randn(g, b, s, d), *w]

    y, memory, *w = inputs(3, 5, 11, 7, 2)
    lengths = torch.tensor([4, 10, 7])
    name = "three sources, of eleven words at most"
    # One more term in each sum: all scores are lower by the same 12,000.
    low_y, low_memory, low_q, low_k, w_v = map(
        quarters, inputs(3, 5, 11, 7, 4)
    )
    low_y[..., -1] = low_memory[..., -1] = 1.0
    for matrix, corner in (low_q, -155.0), (low_k, 155.0):
        matrix[-1], matrix[:, -1], matrix[-1, -1] = 0.0, 0.0, corner
    low = low_y, low_memory, lengths, low_q, low_k, w_v
    return [
        Case((y, memory, lengths, *w), name=name),
        Case(low, name="large negative scores"),
    ]


# -- debug: swapped roles ----------------------------------------------------
def mended(
    x: Tensor,
    memory: Tensor,
    real: Tensor,
    w_self: Sequence[Tensor],
    w_cross: Sequence[Tensor],
) -> Tensor:
    """A decoder block of two attentions, each with one head.

    `x` is `(B, T, D)`, the target; `memory` is `(B, S, D)`; `real` is `(B, S)`
    booleans, True for the real vectors of the memory, which are first in their
    row. `w_self` and `w_cross` hold three matrices `(D, D)` each, for queries,
    keys and values. Each head computes `softmax(q kᵀ / √D) v`.
    First `x` attends to itself, with a causal mask: place t sees 0 to t. What
    comes out is added to `x`. The sum then attends to the real vectors of the
    memory, from every place to all of them, and what comes out is added again.
    The result is `(B, T, D)`.
    """

    def one_head(
        y: Tensor, source: Tensor, see: Tensor, w: Sequence[Tensor]
    ) -> Tensor:
        return attend(y @ w[0], source @ w[1], source @ w[2], see)

    n = x.size(1)
    causal = torch.ones(n, n, dtype=torch.bool).tril()
    a = x + one_head(x, x, causal, w_self)
    see = real[:, None]
    b = one_head(a, memory, see, w_cross)
    return a + b


_MENDED_BUGS = {
    "itself": Bug(
        "(a, memory,",
        "(a, a,",
        "see = real[:, None]",
        "see = causal",
        says="a cross-attention that asks the target itself",
        why="Nothing of the source arrives: keys and values have to come "
        "from the memory.",
        read="14_seq2seq#seq-formula",
    ),
    "no_source_mask": Bug(
        "see = real[:, None]",
        "see = torch.ones(1, 1, dtype=torch.bool)",
        says="a source without its mask",
        why="The memory has a vector for each padding token. Hide them with "
        "`real[:, None]`, (B, 1, S).",
        read="14_seq2seq#seq-masks",
    ),
    "no_causal": Bug(
        "causal, w_self",
        "torch.ones_like(causal), w_self",
        says="a target that sees its own future",
        why="The self-attention needs the causal mask: in training the "
        "right answer stands one place further on.",
        read="14_seq2seq#seq-masks",
    ),
    "old_queries": Bug(
        "(a, memory,",
        "(x, memory,",
        says="questions from before the self-attention",
        why="The cross-attention asks with what the self-attention has made "
        "of the target, in the same block.",
        read="14_seq2seq#seq-blocks",
        otherwise=[("(memory, a,", "(memory, x,"), ("(a, a,", "(x, x,")],
    ),
    "not_added": Bug(
        "return a + b",
        "return b",
        says="the last attention's output instead of the sum",
        why="Each part adds to the stream. Without the sum, the target's "
        "own words are lost.",
        read="14_seq2seq#seq-formula",
    ),
    "triangle": Bug(
        "see = real[:, None]",
        "see = real[:, None] & torch.ones(n, real.size(1)).bool().tril()",
        says="a causal triangle on the source, besides its mask",
        why="The whole source is there before the first word is written: "
        "every position may see all its real vectors.",
        read="14_seq2seq#seq-by-hand",
        alone=True,
    ),
    "mask_finite": MASK_FINITE.by(
        "return attend(y @ w[0], source @ w[1], source @ w[2], see)",
        "scores = y @ w[0] @ (source @ w[1]).mT / w[0].size(-1) ** 0.5\n"
        "        scores = scores.masked_fill(~see, -1e4)\n"
        "        return scores.softmax(dim=-1) @ (source @ w[2])",
    ),
}


def _mended_cases(seed: int) -> list[Case]:
    g = generator(seed)

    def case(b: int, t: int, s: int, d: int, name: str) -> Case:
        x, memory = randn(g, b, t, d), randn(g, b, s, d)
        lengths = torch.tensor([s, *(s // 2 + i for i in range(1, b))])
        real = torch.arange(s) < lengths[:, None]
        w = [[randn(g, d, d) * 0.6 for _ in range(3)] for _ in range(2)]
        return Case((x, memory, real, *w), name=name)

    low = case(3, 3, 7, 4, "large negative scores")
    x, memory, _, w_self, w_cross = low.args
    # One more term in each sum: all scores are lower by the same 12,000.
    for y in (x, memory, *w_self[:2], *w_cross[:2]):
        y.copy_(quarters(y))
    x[..., -1] = memory[..., -1] = 1.0
    w_self[2][:, -1] = 0.0  # what is added to x leaves its last number
    for keys_of, corner in ((0, -155.0), (1, 155.0)):
        for w in (w_self[keys_of], w_cross[keys_of]):
            w[-1], w[:, -1], w[-1, -1] = 0.0, 0.0, corner
    w_cross[0][:-1] = 0.0
    w_cross[0][-1, :-1] = 1.0
    return [
        case(3, 3, 7, 5, "seven words, three places"),
        low,
    ]


# -- implement: the whole model ----------------------------------------------
def whole(
    src: Tensor,
    tgt: Tensor,
    real: Tensor,
    embed: Callable[..., Tensor],
    encoder: Sequence[Callable[..., Tensor]],
    decoder: Sequence[Callable[..., Tensor]],
    unembed: Callable[..., Tensor],
) -> Tensor:
    """Encoder and decoder, put together from their blocks.

    `src` is `(B, S)` ids, `tgt` is `(B, T)` ids that are shifted right
    already, and `real` is `(B, S)` booleans, True for real source words.
    `embed(ids)` gives vectors with their positions, `(B, T, D)`, for both
    sides. Each of `encoder` is a function `block(x, real)`, and each of
    `decoder` a function `block(x, memory, real)`, with its causal mask inside;
    both return new `(B, T, D)` vectors, and take None for `real`, which means
    that all is real. `unembed(x)` gives `(B, T, V)` logits.
    The source goes through all encoder blocks, one after the other; what comes
    out of the last is the memory. The target goes through all decoder blocks,
    and each of them is given that memory. The result is the logits.
    """
    memory = embed(src)
    for block in encoder:
        memory = block(memory, real)
    y = embed(tgt)
    for block in decoder:
        y = block(y, memory, real)
    return unembed(y)


_WHOLE_BUGS = {
    "side_by_side": Bug(
        "memory = embed(src)",
        "memory, states = embed(src), []",
        "    y = embed(tgt)",
        "        states.append(memory)\n    y = embed(tgt)",
        "for block in decoder",
        "for memory, block in zip(states, decoder)",
        says="a first decoder block that reads the first encoder block, a "
        "second that reads the second",
        why="The towers do not go side by side. The encoder runs to its "
        "end, and every decoder block reads its last output.",
        read="14_seq2seq#seq-blocks",
        at="memory",
    ),
    "embeddings": Bug(
        "y = embed(tgt)",
        "memory = embed(src)\n    y = embed(tgt)",
        says="a decoder that reads the source's embeddings",
        why="The encoder has run for nothing: no word of the memory knows "
        "about the others. Read what comes out of the last block.",
        read="14_seq2seq#seq-formula",
        at="memory",
    ),
    "encoder_unmasked": Bug(
        "(memory, real)",
        "(memory, None)",
        says="an encoder that reads the padding",
        why="The mask of the source is needed twice: in each encoder block, "
        "and wherever the memory is read.",
        read="14_seq2seq#seq-masks",
    ),
    "decoder_unmasked": Bug(
        ", memory, real",
        ", memory, None",
        says="a decoder that is not told which of the memory is padding",
        why="The encoder gives padding a vector, too, and the decoder reads "
        "it: a text then depends on its neighbors in the batch.",
        read="14_seq2seq#seq-masks",
    ),
    "cut_again": Bug(
        "embed(tgt)",
        "embed(tgt[:, :-1])",
        says="a target whose last word is cut off",
        why="It is shifted already: one row of logits for each word of tgt.",
        read="14_seq2seq#seq-formula",
        alone=True,
    ),
}


def _whole_cases(seed: int) -> list[Case]:
    g = generator(seed)

    def case(b: int, t: int, s: int, n: int, name: str) -> Case:
        d, v = 7, 11
        table = randn(g, v, d)
        codes = 0.5 * randn(g, max(s, t), d)

        def embed(ids: Tensor) -> Tensor:
            return table[ids] + codes[: ids.size(1)]

        def read(w: Tensor) -> Callable[..., Tensor]:
            def block(x: Tensor, real: Tensor | None) -> Tensor:
                see = None if real is None else real[:, None]
                return (x + attend(x @ w, x, x, see)).tanh()

            return block

        def write(w: Tensor) -> Callable[..., Tensor]:
            def block(
                x: Tensor, memory: Tensor, real: Tensor | None
            ) -> Tensor:
                see = None if real is None else real[:, None]
                x = x + attend(x, x, x, causal=True)
                return (x + attend(x @ w, memory, memory, see)).tanh()

            return block

        src = torch.randint(v, (b, s), generator=g)
        tgt = torch.randint(v, (b, t), generator=g)
        lengths = torch.tensor([s, *(s // 2 + i for i in range(1, b))])
        real = torch.arange(s) < lengths[:, None]
        encoder = [read(randn(g, d, d)) for _ in range(n)]
        decoder = [write(randn(g, d, d)) for _ in range(n)]

        def unembed(x: Tensor) -> Tensor:
            return x @ table.T

        parts = embed, encoder, decoder, unembed
        return Case((src, tgt, real, *parts), name=name)

    return [case(3, 3, 5, 2, "two blocks on each side")]


# -- implement: shift right --------------------------------------------------
def shift(
    targets: Sequence[Sequence[int]], pad: int, bos: int, eos: int
) -> tuple[Tensor, Tensor]:
    """What a decoder reads in training, and what it has to answer.

    `targets` is a list of B lists of ids, some of which may be empty; `pad`,
    `bos` and `eos` are ids. With T the longest target's length plus one, the
    result is a pair of `(B, T)` tensors of whole numbers.
    A row of the first is `bos` and the target, filled up on the right with
    `pad`. A row of the second is the target and `eos`, filled up on the right
    with −100. `pad` may be the same number as `eos`, or as one of a target's
    ids.
    """
    size = max(len(row) for row in targets) + 1
    inputs = torch.full((len(targets), size), pad)
    answers = torch.full((len(targets), size), -100)
    for i, row in enumerate(targets):
        read, next_ids = [bos, *row], [*row, eos]
        inputs[i, : len(read)] = torch.tensor(read)
        answers[i, : len(next_ids)] = torch.tensor(next_ids)
    return inputs, answers


_SHIFT_BUGS = {
    "unshifted": Bug(
        "read, next_ids = [bos, *row], [*row, eos]",
        "read = next_ids = [bos, *row, eos]",
        ") + 1",
        ") + 2",
        says="input and answers that are the same",
        why="Each position then reads what it has to answer, and learns to "
        "copy. Fed, it is perfect; free, it repeats what begins the text.",
        read="14_seq2seq#seq-predict-shift",
        at="rows",
    ),
    "no_begin": Bug(
        "[bos, *row]",
        "[*row, eos]",
        says="an input without its begin: the target and the end, as in the "
        "answers",
        why="Each position then reads what it has to answer, and learns to "
        "copy. The input is the target shifted right, after its begin.",
        read="14_seq2seq#seq-predict-shift",
        at="rows",
    ),
    "no_end": NO_END.by(
        "[*row, eos]",
        "list(row)",
        says="answers without the end",
        read="further/14_seq2seq#seq-questions",
        at="rows",
    ),
    "twice": Bug(
        "[*row, eos]",
        "[*row[1:], eos]",
        says="a text that is shifted twice",
        why="The place that reads the begin has to answer the first token, "
        "not the second: the model would learn to skip every other one.",
        read="14_seq2seq#seq-shift",
        at="rows",
    ),
    "pad_asked": Bug(
        "-100",
        "pad",
        says="padding that has to be answered with padding",
        why="It would count in the loss, and be the easiest answer of all. "
        "Fill the answers up with −100.",
        read="10_loss#loss-formula",
        at="fill",
    ),
    "by_id": Bug(
        "return inputs",
        "answers[answers == pad] = -100\n    return inputs",
        says="every answer that looks like padding left out",
        why="If the padding's id is also the end's or a token's, their "
        "answers are lost. Fill up by length.",
        read="14_seq2seq#seq-shift",
        at="fill",
    ),
    "on_the_left": Bug(
        ": len(read)]",
        "size - len(read) :]",
        ": len(next_ids)]",
        "size - len(next_ids) :]",
        says="padding on the left",
        why="Then a text's positions depend on the longest one of its "
        "batch. Targets are filled up on the right, where the causal mask "
        "hides the padding.",
        read="14_seq2seq#seq-shift",
    ),
    "reads_eos": Bug(
        "= torch.tensor(read)",
        "= torch.tensor(read)\n"
        "        inputs[i, len(row) + 1 : len(row) + 2] = eos",
        says="one padded row cut at both ends, so that short rows read "
        "their own eos",
        why="full[:, :-1] drops a column, not each row's end: in a short "
        "row eos stays. Put the begin before the target, then pad.",
        read="14_seq2seq#seq-predict-shift",
        at="rows",
    ),
}


def _shift_cases(seed: int) -> list[Case]:
    g = generator(seed)

    def rows(*lengths: int) -> list[list[int]]:
        # Neighbors differ, so that no shift looks like another.
        steps = torch.randint(1, 7, (sum(lengths) + 1,), generator=g)
        ids = iter((steps.cumsum(0) % 11 + 3).tolist())
        return [[next(ids) for _ in range(n)] for n in lengths]

    words = rows(4, 0, 3)
    return [
        Case((rows(5, 2, 3), 0, 1, 2), name="three targets"),
        Case((rows(2, 5), 15, 14, 15), name="padding is the end's id"),
        Case((words, words[0][1], 2, 1), name="padding is a token's id"),
    ]


# -- debug: the neighbors matter ---------------------------------------------
def translate(
    encode: Callable[..., Tensor],
    decode: Callable[..., Tensor],
    src: Tensor,
    real: Tensor,
    pad: int,
    bos: int,
    eos: int,
    size: int,
) -> Tensor:
    """Write a target for each source, always the likeliest token.

    `src` is `(B, S)` ids and `real` is `(B, S)` booleans, True for real words.
    `encode(src, real)` is the memory. `decode(tgt, memory, real)` gives
    `(B, t, V)` logits for `(B, t)` target ids that begin with `bos`; row t is
    about the token after target token t. Both take None for `real`, which
    means that all is real.
    After each step, the token of the largest logit is appended to its row,
    `size` times in all. Behind its first `eos`, a row has only `pad`. The
    result is `(B, size)` ids, `eos` included, the first `bos` left out.
    """
    memory = encode(src, real)
    tgt = torch.full((len(src), 1), bos)
    done = torch.zeros(len(src), dtype=torch.bool)
    for _ in range(size):
        logits = decode(tgt, memory, real)
        best = logits[:, -1].argmax(-1)
        best = torch.where(done, pad, best)
        done = done | (best == eos)
        tgt = torch.cat([tgt, best[:, None]], dim=1)
    return tgt[:, 1:]


_TRANSLATE_BUGS = {
    "no_mask": PADDING_READ.by(
        "memory, real)",
        "memory, None)",
        says="a decoder that is not told which of the memory is padding",
    ),
    "goes_on": Bug(
        "        best = torch.where(done, pad, best)\n",
        "",
        says="rows that go on behind their end",
        why="The batch goes on until its longest text is done. A row that "
        "has written the end gets padding.",
        read="further/14_seq2seq#seq-questions",
        at="done",
    ),
    "all_stop": Bug(
        "done | (best == eos)",
        "(done | (best == eos)).any().expand(len(src))",
        says="a batch whose rows all end as soon as one of them has ended",
        why="Each row has an end of its own: keep a boolean for each.",
        read="further/14_seq2seq#seq-questions",
        at="done",
    ),
    "last_alone": Bug(
        "decode(tgt",
        "decode(tgt[:, -1:]",
        says="a decoder that is fed the last token alone",
        why="Without a cache it has to read everything written so far, from "
        "the begin on.",
        read="14_seq2seq#seq-when",
        at="done",
    ),
    "begin_kept": Bug(
        "return tgt[:, 1:]",
        "return tgt",
        says="ids that still begin with bos",
        why="The begin was given, not written. Leave it out.",
        read="14_seq2seq#seq-shift",
    ),
    "end_overwritten": Bug(
        "best = torch.where(done, pad, best)\n"
        "        done = done | (best == eos)",
        "done = done | (best == eos)\n"
        "        best = torch.where(done, pad, best)",
        says="an eos that is itself overwritten by pad",
        why="A row is done after its eos: write the token first, then look "
        "whether it was eos.",
        read="further/14_seq2seq#seq-questions",
        alone=True,
    ),
}


def _translate_cases(seed: int) -> list[Case]:
    g = generator(seed)
    table = torch.rand(1009, 7, generator=g, dtype=float64)
    pad, bos, eos = 6, 2, 1

    def encode(src: Tensor, real: Tensor | None) -> Tensor:
        """A memory that knows all that the encoder was shown."""
        shown = src if real is None else src * real
        return 10 * src + shown.sum(dim=1, keepdim=True)

    def decode(tgt: Tensor, memory: Tensor, real: Tensor | None) -> Tensor:
        """Logits from a table: of all that is seen, none like another."""
        read = memory if real is None else memory * real
        mixed = (tgt + 3).cumsum(dim=1) * 37 + read.sum(dim=1, keepdim=True)
        logits = table[(mixed + 101 * torch.arange(tgt.size(1))) % 1009]
        # The end comes once, somewhere on the way.
        ends = (mixed % 5 == 0) & (tgt != bos)
        logits[..., eos] = torch.where(ends, 2.0, logits[..., eos] / 4)
        return logits

    def case(b: int, s: int, size: int, name: str) -> Case:
        src = torch.randint(3, 103, (b, s), generator=g)
        lengths = torch.tensor([s, *(s // 2 + i for i in range(1, b))])
        real = torch.arange(s) < lengths[:, None]
        args = encode, decode, src, real, pad, bos, eos, size
        return Case(args, name=name)

    return [case(5, 11, 13, "five sources, four of them padded")]


# -- measure: exact match ----------------------------------------------------
def exact(
    written: Tensor, answers: Sequence[Sequence[int]], eos: int
) -> float:
    """The share of texts that are right from begin to end.

    `written` is `(B, T)` ids as a loop left them: a row's text is what stands
    before its first `eos`, and what follows is rubbish. A row without `eos`
    was cut off, and is not right, whatever it says. `answers` is a list of B
    lists of ids, without `eos`.
    A row is right if its text is its answer, token for token, no shorter and
    no longer. The result is the number of right rows over B.
    """
    right = 0.0
    for row, answer in zip(written.tolist(), answers, strict=True):
        ended = eos in row
        text = row[: row.index(eos)] if ended else row
        right += ended and text == list(answer)
    return right / len(answers)


_EXACT_BUGS = {
    "tokens": Bug(
        "right += ended and text == list(answer)",
        "hits = sum(map(int.__eq__, text, answer))\n"
        "        right += ended * hits / max(len(text), len(answer), 1)",
        says="the fraction of tokens that are right",
        why="A date with one wrong digit is wrong. Count texts, not tokens.",
        read="further/14_seq2seq#seq-predict-exact",
    ),
    "as_far_as_it_goes": Bug(
        "text == list(answer)",
        "all(map(int.__eq__, text, answer))",
        says="texts compared only as far as both go",
        why="zip stops at the shorter one. Then an empty text is right.",
        read="further/14_seq2seq#seq-measure",
    ),
    "beginning": Bug(
        "text ==",
        "text[: len(answer)] ==",
        says="a right beginning taken for a right text",
        why="A text that goes on behind the answer is wrong, too.",
        read="further/14_seq2seq#seq-measure",
    ),
    "rubbish_counts": Bug(
        "row[: row.index(eos)] if ended else row",
        "[i for i in row if i != eos]",
        says="what stands behind the end read as text",
        why="A row's text is what stands before its first eos; the loop "
        "only went on for the sake of the other rows.",
        read="further/14_seq2seq#seq-measure",
    ),
    "cut_off_counts": Bug(
        "right +=",
        "ended = True\n        right +=",
        says="a text without an end taken for finished",
        why="Without eos nobody knows that the text would have stopped "
        "there: it was cut off.",
        read="further/14_seq2seq#seq-measure",
    ),
}


def _exact_cases(seed: int) -> list[Case]:
    g, eos = generator(seed), 1

    def case(name: str, *kinds: str) -> Case:
        ids = torch.randint(3, 89, (len(kinds), 11), generator=g)
        answers = []
        for row, kind in zip(ids, kinds, strict=True):
            n = int(torch.randint(3, 6, (1,), generator=g))
            answer = row[:n].tolist()
            if kind == "cut off":
                answers.append(row.tolist())
                continue
            row[n] = eos
            if kind == "right":
                row[n + 1 :] = eos
            elif kind == "wrong":
                answer[1] += 1
            elif kind in ("short", "shorter"):
                answer += row[n + 1 : n + 3].tolist()[::-1]
                if kind == "shorter":
                    row[n + 3] = eos
            elif kind == "long":
                answer = answer[:-1]
            elif kind == "two ends":
                row[n + 3] = eos
            elif kind == "goes on":
                answer += row[n + 1 :].tolist()
            elif kind == "further":
                answer += [*row[n + 1 :].tolist(), 3]
            answers.append(answer)
        return Case((ids, answers, eos), name=name)

    return [
        case("a wrong token", "right", "wrong", "right"),
        case("a text too short", "short", "two ends", "shorter"),
        case("a text too long", "long", "right"),
        case("the rest behind the end", "goes on", "right"),
        case("not all the rest behind the end", "further", "right"),
        case("cut off", "cut off", "right", "rubbish"),
    ]


# -- measure: alignment ------------------------------------------------------
def alignment(weights: Tensor, links: Tensor) -> tuple[int, float]:
    """The head that looks most at what belongs to the word being written.

    `weights` is `(H, T, S)`: of each head, a row for each target word, which
    sums to 1 over the source words. `links` is `(T, S)` booleans, True where
    the source word belongs to the target word. A target word may have several
    links, or none.
    The score of a head is the mean, over the target words that have a link, of
    the weight on all its linked source words together. The result is a pair:
    the number of the head with the highest score, from 0, and that score.
    """
    counted = links.any(dim=-1)
    on_links = (weights * links).sum(dim=-1)
    scores = on_links[:, counted].mean(dim=-1)
    head = scores.argmax()
    return int(head), float(scores[head])


_ALIGNMENT_BUGS = {
    "all_words": Bug(
        "[:, counted]",
        "",
        says="a mean over all target words, those without a link included",
        why="A dash or an end comes from nowhere in the source. Leave words "
        "without a link out of the mean.",
        read="further/14_seq2seq#seq-measure",
    ),
    "top_word": Bug(
        "on_links = (",
        "best = weights.argmax(dim=-1, keepdim=True)\n"
        "    weights = torch.zeros_like(weights).scatter(-1, best, 1.0)\n"
        "    on_links = (",
        says="the fraction of words whose largest weight lies on a link",
        why="A head that spreads its weight may have its largest in the "
        "right place. Asked is how much weight lies there.",
        read="further/14_seq2seq#seq-measure",
        at="links",
    ),
    "over_targets": Bug(
        "counted =",
        "weights = weights / weights.sum(dim=1, keepdim=True)\n    counted =",
        says="weights that sum to 1 over the target words",
        why="A row of weights belongs to one target word, and sums to 1 over "
        "the source already.",
        read="14_seq2seq#seq-by-hand",
        at="links",
    ),
    "by_links": Bug(
        "on_links[:, counted].mean(dim=-1)",
        "on_links.sum(dim=-1) / links.sum()",
        says="a division by the number of links, not of target words",
        why="A word with two links still is one word: divide by the number "
        "of target words that have a link.",
        read="further/14_seq2seq#seq-measure",
        alone=True,
    ),
}


def _alignment_cases(seed: int) -> list[Case]:
    g = generator(seed)
    links = torch.rand(7, 11, generator=g) < 0.3
    links[0], links[1, :2] = False, True
    pull = torch.randint(1, 3, (5, 1, 1), generator=g)
    weights = (2 * randn(g, 5, 7, 11) + pull * links).softmax(dim=-1)
    return [Case((weights, links), name="five heads")]


EXERCISES = {
    "cross": Exercise(
        cross,
        _cross_cases,
        bugs=_CROSS_BUGS,
        variants={
            "left": Variant(
                "< lengths",
                ">= memory.size(1) - lengths",
                asks="Here the padding of the memory stands on the "
                "left: the last `lengths[b]` vectors of row b are real.",
                texts={
                    "one_more": {
                        "why": "lengths[b] vectors are real: of S places "
                        "those from S − lengths[b] on, and not the one "
                        "before.",
                    },
                },
            ),
        },
        forbid=ATTENTION,
    ),
    "mended": Exercise(
        mended,
        _mended_cases,
        bugs=_MENDED_BUGS,
    ),
    "whole": Exercise(
        whole,
        _whole_cases,
        bugs=_WHOLE_BUGS,
        alike=[
            (
                {"embeddings"},
                {"embeddings", "encoder_unmasked"},
                "nobody reads what the encoder makes",
            ),
        ],
    ),
    "shift": Exercise(
        shift,
        _shift_cases,
        bugs=_SHIFT_BUGS,
        variants={
            "begins_with_eos": Variant(
                "size = max",
                "bos = eos\n    size = max",
                asks="Here a target begins with `eos`, too: there is "
                "one token for begin and end, and `bos` is not used.",
            ),
        },
        forbid=("coursekit.data.pad_pairs", "coursekit.data.Pairs"),
    ),
    "translate": Exercise(
        translate,
        _translate_cases,
        bugs=_TRANSLATE_BUGS,
    ),
    "exact": Exercise(
        exact,
        _exact_cases,
        bugs=_EXACT_BUGS,
    ),
    "alignment": Exercise(
        alignment,
        _alignment_cases,
        bugs=_ALIGNMENT_BUGS,
    ),
}
