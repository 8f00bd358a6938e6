"""Exercises of chapter 13: the encoder."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from coursekit_classroom.catalogue.masks import quarters
from coursekit_classroom.check.core import (
    Bug,
    Case,
    Exercise,
    generator,
    randn,
)
from coursekit_classroom.check.families import (
    EMPTY_NAN,
    INVERTED,
    MASK_AFTER,
    MASK_FINITE,
    MASK_ZERO,
    MEAN_OF_MEANS,
    NO_SCALE,
    OVER_QUERIES,
    PADDING_READ,
    SOFTMAX_FIRST,
    ZERO_IS_PADDING,
)
from coursekit_classroom.check.forbid import ATTENTION

float64 = torch.float64
Part = Callable[[Tensor, Tensor], Tensor]


# -- implement: from ids to vectors ------------------------------------------
def encode(
    ids: Tensor,
    pad_id: int,
    table: Tensor,
    places: Tensor,
    blocks: Sequence[Part],
) -> Tensor:
    """(B, S) ids to (B, S, D) vectors that know the whole sentence.

    A token's vector is its row of `table`, `(V, D)`, as it stands there. To it
    is added the vector of its place in the sentence: place s, counted from 0,
    has row s of `places`, `(P, D)` with `P ≥ S`, in every sentence.
    `blocks` are functions `block(x, mask)` from `(B, S, D)` to the same shape;
    each takes the result of the one before. `mask` is boolean, the same for
    all blocks, and broadcasts to `(B, H, S, S)`: the last axis are the keys,
    True where a query may look. A query may look at every token of its own
    sentence that is not `pad_id`, before and behind it, whatever its own token
    is. Token 0 is real if `pad_id` is another number.
    """
    mask = (ids != pad_id)[:, None, None, :]
    x = table[ids] + places[: ids.size(1)]
    for block in blocks:
        x = block(x, mask)
    return x


_CAUSAL = Bug(
    says="a causal mask in an encoder",
    why="The whole text is known, so every word may look behind itself as "
    "well. The first vector has to move when the last token changes.",
    read="further/13_encoder#enc-wrong",
    at="causal",
)
_QUERY_AXIS = Bug(
    says="padding hidden as queries, not as keys",
    why="What must not be read are keys, the last axis of the scores. As it "
    "is, real tokens read the padding.",
    read="13_encoder#enc-padding",
    at="axis",
)
_ENCODE_BUGS = {
    "no_positions": Bug(
        " + places[: ids.size(1)]",
        "",
        says="tokens without their places",
        why="Without a causal mask, attention cannot tell any order at all: "
        "add the rows of `places`.",
        read="further/13_encoder#enc-formula",
    ),
    "no_padding": PADDING_READ.by(
        "(ids != pad_id)",
        "torch.ones_like(ids, dtype=torch.bool)",
        read="13_encoder#enc-padding",
    ),
    "zero_is_padding": ZERO_IS_PADDING.by(
        "(ids != pad_id)",
        "(ids != 0)",
        read="13_encoder#enc-padding",
    ),
    "inverted": INVERTED.by(
        "(ids != pad_id)",
        "(ids == pad_id)",
        says="True at the padding and False at the words",
        read="further/13_encoder#enc-formula",
    ),
    "query_axis": _QUERY_AXIS.by("None, None, :", "None, :, None"),
    "causal": _CAUSAL.by(
        "x = table",
        "size = ids.size(1)\n"
        "    mask = mask & torch.ones(size, size, "
        "dtype=torch.bool).tril()\n"
        "    x = table",
    ),
    "first_block_only": Bug(
        "for block in blocks",
        "for number, block in enumerate(blocks)",
        "block(x, mask)",
        "block(x, mask if number == 0 else torch.ones_like(mask))",
        says="a mask for the first block alone",
        why="The vectors at the padding go on existing, in every block. "
        "Each block needs the mask.",
        read="13_encoder#enc-padding",
    ),
    "same_input": Bug(
        "x = block(x, mask)\n    return x",
        "last = block(x, mask)\n    return last",
        says="blocks that all read the embeddings, not what the block "
        "before made",
        why="Each block takes the result of the one before: x = block(x, "
        "mask).",
        read="09_decoder#dec-formula",
        alone=True,
    ),
    "times_root": Bug(
        "table[ids] +",
        "table[ids] * table.size(1) ** 0.5 +",
        says="embeddings multiplied by √D",
        why="The paper's model does so, this one was not asked to.",
        read="further/13_encoder#enc-formula",
        alone=True,
    ),
}


def mixing_block(weight: Tensor) -> Part:
    """A block that can be told by its mask: it mixes what may be seen."""

    def block(x: Tensor, mask: Tensor) -> Tensor:
        size = x.size(1)
        sees = mask.expand(x.size(0), 1, size, size)[:, 0].to(x.dtype)
        share = sees / sees.sum(dim=-1, keepdim=True).clamp(min=1)
        return x + torch.tanh(share @ x @ weight)

    return block


def _encode_cases(seed: int) -> list[Case]:
    g = generator(seed)
    table = randn(g, 19, 6)
    places = randn(g, 11, 6)
    blocks = [mixing_block(randn(g, 6, 6)) for _ in range(2)]
    ids = torch.randint(1, 17, (3, 7), generator=g)
    full = torch.arange(7) < torch.tensor([7, 4, 5])[:, None]
    other = ids.clone()
    other[:, 2] = 0
    rest = (table, places, blocks)
    return [
        Case((ids.where(full, 0), 0, *rest), name="three sentences, padded"),
        Case((other.where(full, 17), 17, *rest), name="17 is the padding"),
    ]


# -- implement: gaps the way BERT makes them ---------------------------------
def corrupt(
    ids: Tensor,
    special: Tensor,
    first: Tensor,
    second: Tensor,
    random_ids: Tensor,
    mask_id: int,
) -> tuple[Tensor, Tensor]:
    """Make gaps; return the inputs and the targets, both `(B, S)`.

    All tensors are `(B, S)`. `first` and `second` hold random numbers from 0
    to 1, `random_ids` random tokens. A token is chosen if its number in
    `first` is below 0.15, unless `special` is True there. Where a token is
    chosen, `second` decides what the input gets: below 0.8 `mask_id`; from 0.8
    up to but not including 0.9 the token of `random_ids`; else the token
    itself. Where none is chosen, the input is the token itself.
    The target is the token of `ids` wherever one is chosen, whatever stands in
    the input, and −100 everywhere else. `ids` itself is not changed.
    """
    chosen = first < 0.15
    chosen = chosen & ~special
    to_mask = chosen & (second < 0.8)
    to_random = chosen & (second >= 0.8) & (second < 0.9)
    inputs = ids.where(~to_mask, mask_id)
    inputs = inputs.where(~to_random, random_ids)
    targets = ids.where(chosen, -100)
    return inputs, targets


_CORRUPT_BUGS = {
    "special_too": Bug(
        "    chosen = chosen & ~special\n",
        "",
        says="gaps in special tokens as well",
        why="Padding and [CLS] say nothing that could be guessed. Take them "
        "out of the choice.",
        read="further/13_encoder#enc-bert",
    ),
    "all_masked": Bug(
        "chosen & (second < 0.8)",
        "chosen",
        "    inputs = inputs.where(~to_random, random_ids)\n",
        "",
        says="[MASK] for every chosen token",
        why="Then only [MASK] is ever asked about, and that token never "
        "occurs in use. A fifth of the chosen gets something else.",
        read="further/13_encoder#enc-bert",
        at="input",
    ),
    "overwrites": Bug(
        "(second >= 0.8) & (second < 0.9)",
        "(second < 0.9)",
        says="random tokens that overwrite [MASK]",
        why="`second < 0.9` is true below 0.8, too. Ask for both bounds, or "
        "write [MASK] last.",
        read="further/13_encoder#enc-bert",
        at="input",
    ),
    "targets_everywhere": Bug(
        "ids.where(chosen, -100)",
        "ids.clone()",
        says="a target at every token",
        why="The visible ones stand in the input: that loss is for copying. "
        "All but the chosen get −100.",
        read="further/13_encoder#enc-predict-all-loss",
    ),
    "only_masked": Bug(
        "chosen,",
        "to_mask,",
        says="a target only where [MASK] stands",
        why="Chosen tokens that were replaced or kept are asked about as "
        "well: that is why they were chosen.",
        read="further/13_encoder#enc-bert",
    ),
    "changed_targets": Bug(
        "ids.where(chosen, -100)",
        "inputs.where(chosen, -100)",
        says="targets taken from the input, after it was changed",
        why="The target is the token that stood there before.",
        read="further/13_encoder#enc-bert",
    ),
    "targets_inverted": Bug(
        "ids.where(chosen, -100)",
        "ids.where(~chosen, -100)",
        says="−100 at the chosen tokens and targets at the others",
        why="−100 means: does not count. The chosen ones are to count.",
        read="further/13_encoder#enc-bert",
    ),
}


def _corrupt_cases(seed: int) -> list[Case]:
    g = generator(seed)
    shape = (5, 41)
    ids = torch.randint(3, 97, shape, generator=g)
    ids[0, 6] = 0  # a token like any other
    first = torch.rand(shape, generator=g, dtype=float64)
    first[:, ::3] *= 0.15  # enough of them are chosen
    second = torch.rand(shape, generator=g, dtype=float64)
    second[0, 3:24:3] = torch.tensor(
        [0.1, 0.4, 0.83, 0.87, 0.93, 0.97, 0.7], dtype=float64
    )
    special = torch.zeros(shape, dtype=torch.bool)
    special[:, 0] = True
    special[2, 30:] = True
    words = torch.randint(3, 97, shape, generator=g)
    return [
        Case((ids, special, first, second, words, 2), name="five sentences")
    ]


# -- implement: the mean of the real ones ------------------------------------
def pooled(x: Tensor, real: Tensor) -> Tensor:
    """One vector for each sentence: the mean over its real tokens.

    `x` is `(B, S, D)`, `real` is `(B, S)`, True at real tokens, which may
    stand anywhere. The result is `(B, D)`: the sum of the vectors at real
    tokens, divided by their number. What stands at the others does not matter.
    A sentence without real tokens gets zeros.
    """
    count = real.sum(dim=1, keepdim=True).clamp(min=1)
    return (x * real[..., None]).sum(dim=1) / count


_POOLED_BUGS = {
    "first_token": Bug(
        "return (x * real[..., None]).sum(dim=1) / count",
        "return x[:, 0]",
        says="the vector of the first token",
        why="That is the way of [CLS]. Asked is the mean.",
        read="further/13_encoder#enc-pool",
        at="mean",
    ),
    "all_counted": Bug(
        "count = real",
        "real = torch.ones_like(real)\n    count = real",
        says="a mean over all positions, padding included",
        why="At the padding stand vectors full of numbers that mean "
        "nothing: leave them out of the sum and of the number divided by.",
        read="13_encoder#enc-padding",
        at="mean",
    ),
    "inverted": Bug(
        "count = real",
        "real = ~real\n    count = real",
        says="the mean of the padding",
        why="True means real here.",
        read="further/13_encoder#enc-pool",
        at="mean",
    ),
    "divided_by_all": Bug(
        "real.sum(dim=1, keepdim=True).clamp(min=1)",
        "x.size(1)",
        says="the sum of the real ones, divided by the number of all "
        "positions",
        why="Then a short sentence has a short vector, and the shorter the "
        "longer its neighbor is.",
        read="further/13_encoder#enc-pool",
        at="mean",
    ),
    "summed": Bug(
        " / count",
        "",
        says="the sum instead of the mean",
        why="A long sentence would have a long vector. Divide.",
        read="further/13_encoder#enc-pool",
        at="mean",
    ),
    "empty_nan": EMPTY_NAN.by(
        ".clamp(min=1)",
        "",
        says="0 / 0 for a sentence without tokens",
        read="further/13_encoder#enc-pool",
        at="mean",
    ),
    "whole_batch": Bug(
        "real.sum(dim=1, keepdim=True)",
        "real.sum()",
        says="a division by the number of real tokens of the whole batch",
        why="A sentence's mean must not depend on what else is in the batch: "
        "count along its own row.",
        read="further/13_encoder#enc-pool",
        alone=True,
    ),
}


def _pooled_cases(seed: int) -> list[Case]:
    g = generator(seed)
    x = randn(g, 3, 7, 5)
    right = torch.arange(7) < torch.tensor([7, 3, 2])[:, None]
    holes = torch.rand(3, 7, generator=g) < 0.5
    holes[:, 2], holes[:, 4] = True, False
    holes[1] = False
    return [
        Case((x, right), name="three sentences, padded"),
        Case((x, holes), name="one of them has no token"),
    ]


# -- debug: a decoder's attention in an encoder ------------------------------
def mended(q: Tensor, k: Tensor, v: Tensor, real: Tensor) -> Tensor:
    """One head of an encoder's attention, for a padded batch.

    `q` and `k` are `(B, S, Dh)`, `v` is `(B, S, Dv)`; `real` is `(B, S)`, True
    at real tokens, of which each sentence has at least one. The scores are
    `q kᵀ / √Dh`. Each query, also one at the padding, spreads its weight over
    all real tokens of its sentence, before and behind it, by the softmax of
    their scores; what is not real gets no weight.
    The result is `(B, S, Dv)`: for each query the sum of values times weights.
    """
    scores = q @ k.mT
    scores = scores / q.size(-1) ** 0.5
    mask = real[:, None, :].expand(scores.shape)
    lowest = torch.finfo(scores.dtype).min
    scores = scores.masked_fill(~mask, lowest)
    weights = scores.softmax(dim=2)
    return weights @ v


_MENDED_BUGS = {
    "causal": _CAUSAL.by(
        "lowest = torch.finfo(scores.dtype).min",
        "mask = mask & torch.ones_like(mask).tril()\n"
        "    lowest = torch.finfo(scores.dtype).min",
    ),
    "query_axis": _QUERY_AXIS.by(":, None, :", ":, :, None", at="axis"),
    "no_padding": PADDING_READ.by(
        "real[:, None, :].expand(scores.shape)",
        "torch.ones_like(scores, dtype=torch.bool)",
        read="13_encoder#enc-padding",
        at="axis",
    ),
    "no_scale": NO_SCALE.by(
        "    scores = scores / q.size(-1) ** 0.5\n",
        "",
    ),
    "zero_fill": MASK_ZERO.by(
        "scores = scores.masked_fill(~mask, lowest)",
        "scores = scores.masked_fill(~mask, 0.0)",
        read="further/05_masks#mask-wrong",
        at="axis",
    ),
    "over_queries": OVER_QUERIES.by(
        "dim=2",
        "dim=1",
        read="04_attention#att-formula",
        at="axis",
    ),
    "inverted": Bug(
        "mask = real[:, None, :].expand(scores.shape)",
        "mask = ~real[:, None, :].expand(scores.shape)",
        says="a mask upside down: padding is read, and real tokens are not",
        why="True means: a real token. Hide where real is *not* true.",
        read="13_encoder#enc-padding",
        alone=True,
    ),
    "inverted_inf": Bug(
        "scores.masked_fill(~mask, lowest)",
        'scores.masked_fill(mask, float("-inf"))',
        says="a mask upside down, filled with −∞, so that a sentence without "
        "padding gets NaN",
        why="True means: a real token. Hide where real is *not* true.",
        read="13_encoder#enc-padding",
        alone=True,
    ),
    "mask_finite": MASK_FINITE.by("torch.finfo(scores.dtype).min", "-100.0"),
    "hidden_after": MASK_AFTER.by(
        "scores = scores.masked_fill(~mask, lowest)\n"
        "    weights = scores.softmax(dim=2)",
        "weights = scores.softmax(dim=2) * mask",
        says="weights of the padding set to 0 after the softmax, so that a "
        "row no longer sums to 1",
        read="further/05_masks#mask-wrong",
        alone=True,
    ),
}


def _mended_cases(seed: int) -> list[Case]:
    g = generator(seed)
    q, k = randn(g, 2, 3, 7, 5)
    v = randn(g, 3, 7, 2)
    right = torch.arange(7) < torch.tensor([7, 3, 5])[:, None]
    # One more term in each sum: all scores are lower by the same 12,000.
    low_q, low_k = quarters(q[..., :4]), quarters(k[..., :4])
    low_q[..., -1], low_k[..., -1] = -155.0, 155.0
    return [
        Case((q, k, v, right), name="three sentences, padded"),
        Case((low_q, low_k, v, right), name="large negative scores"),
    ]


# -- debug: the loss at the gaps ---------------------------------------------
def gap_loss(logits: Tensor, ids: Tensor, chosen: Tensor) -> Tensor:
    """The mean surprise at the chosen tokens, in nats.

    `logits` is `(B, S, V)`, any real numbers, whose softmax over the V tokens
    is p: row s is about token s of the same sentence. `ids` is `(B, S)`, the
    tokens before gaps were made; `chosen` is `(B, S)`, True where the model is
    asked. The surprise at a place is `−ln p[token]`.
    The mean is taken once over all chosen places of all sentences, each with
    the same weight; the others count neither in the sum nor in the number that
    it is divided by. The result is one number, a tensor without axes. It is 0
    if nothing is chosen.
    """
    log_p = logits.log_softmax(dim=-1)
    nats = -log_p.gather(-1, ids[..., None])[..., 0]
    total = (nats * chosen).sum(dim=1)
    return total.sum() / chosen.sum().clamp(min=1)


_GAP_LOSS_BUGS = {
    "zero_ignored": Bug(
        "log_p = logits",
        "chosen = chosen & (ids != 0)\n    log_p = logits",
        says="a loss in which token 0 never counts",
        why="0 is a token like any other. What is not chosen is marked by a "
        "number that is no id, such as −100.",
        read="further/13_encoder#enc-predict-all-loss",
        alone=True,
    ),
    "all_places": Bug(
        "total = (nats * chosen).sum(dim=1)\n"
        "    return total.sum() / chosen.sum().clamp(min=1)",
        "return nats.mean()",
        says="a mean over all places, those that can be copied included",
        why="Visible words stand in the input. Only the chosen places are a "
        "question.",
        read="further/13_encoder#enc-predict-all-loss",
    ),
    "shifted": Bug(
        "log_p = logits",
        "logits, ids, chosen = logits[:, :-1], ids[:, 1:], "
        "chosen[:, 1:]\n"
        "    log_p = logits",
        says="logits compared with the next token, as in a decoder",
        why="A gap is filled where it is: row s is about token s.",
        read="13_encoder#enc-gaps",
    ),
    "all_counted": Bug(
        "chosen.sum().clamp(min=1)",
        "chosen.numel()",
        says="the sum over the gaps, divided by the number of all places",
        why="The loss then looks seven times as small, and changes with the "
        "padding. Divide by the number of gaps.",
        read="further/13_encoder#enc-bert",
    ),
    "mean_of_means": MEAN_OF_MEANS.by(
        "total.sum() / chosen.sum().clamp(min=1)",
        "(total / chosen.sum(dim=1).clamp(min=1)).mean()",
        says="the mean of each sentence's mean",
    ),
    "empty_nan": EMPTY_NAN.by(
        "chosen.sum().clamp(min=1)",
        "chosen.sum()",
    ),
    "softmax_first": SOFTMAX_FIRST.by(
        "logits.log_softmax",
        "logits.softmax(dim=-1).log_softmax",
        read="further/10_loss#loss-wrong",
    ),
}


def _gap_loss_cases(seed: int) -> list[Case]:
    g = generator(seed)
    logits = 3 * randn(g, 3, 7, 11)
    ids = torch.randint(11, (3, 7), generator=g)
    ids[0, 2] = 0  # a token like any other
    chosen = torch.rand(3, 7, generator=g) < 0.2
    chosen[0, 1:5] = True
    chosen[1] = False
    chosen[1, 3] = True
    chosen[2, 0] = True
    return [
        Case((logits, ids, chosen), name="three sentences with gaps"),
        Case((logits, ids, chosen & False), name="no gap at all"),
    ]


EXERCISES = {
    "encode": Exercise(
        encode,
        _encode_cases,
        bugs=_ENCODE_BUGS,
        alike=[
            (
                {"no_padding"},
                {"no_padding", "query_axis"},
                "where nothing is hidden, no axis is the wrong one",
            ),
            (
                {"no_padding"},
                {"no_padding", "first_block_only"},
                "where nothing is hidden, no block can forget it",
            ),
            (
                {"no_padding", "query_axis"},
                {"no_padding", "first_block_only"},
                "where nothing is hidden, neither makes a difference",
            ),
        ],
        forbid=("coursekit.masks.padding_mask", "coursekit.encoder.Encoder"),
    ),
    "corrupt": Exercise(
        corrupt,
        _corrupt_cases,
        bugs=_CORRUPT_BUGS,
        alike=[
            (
                {"all_masked"},
                {"all_masked", "only_masked"},
                "where every chosen token is masked, no other has a target",
            )
        ],
    ),
    "pooled": Exercise(
        pooled,
        _pooled_cases,
        bugs=_POOLED_BUGS,
    ),
    "mended": Exercise(
        mended,
        _mended_cases,
        bugs=_MENDED_BUGS,
        forbid=ATTENTION,
    ),
    "gap_loss": Exercise(
        gap_loss,
        _gap_loss_cases,
        bugs=_GAP_LOSS_BUGS,
    ),
}
