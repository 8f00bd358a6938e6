"""Exercises of chapter 13: the encoder."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from coursekit.classroom.check.core import (
    NONE,
    Bug,
    Case,
    Exercise,
    Switches,
    generator,
)
from coursekit.classroom.check.forbid import ATTENTION

float64 = torch.float64
Part = Callable[[Tensor, Tensor], Tensor]


def real_tokens(g: torch.Generator, lengths: list[int], size: int) -> Tensor:
    """(B, S) booleans: True at the first tokens of each sentence."""
    return torch.arange(size) < torch.tensor(lengths)[:, None]


# -- implement: from ids to vectors ------------------------------------------
def encode(
    ids: Tensor,
    pad_id: int,
    table: Tensor,
    places: Tensor,
    blocks: Sequence[Part],
    *,
    on: Switches = NONE,
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
    x = table[ids]
    if "positions_times" in on:
        x = x * places[: ids.size(1)]
    elif "one_position" in on:
        x = x + places[ids.size(1) - 1]
    elif "no_positions" not in on:
        x = x + places[: ids.size(1)]
    real = ids != 0 if "zero_is_padding" in on else ids != pad_id
    if "inverted" in on:
        real = ~real
    if "no_padding" in on:
        real = torch.ones_like(real)
    if "query_axis" in on:
        mask = real[:, None, :, None]
    else:
        mask = real[:, None, None, :]
    if "causal" in on:
        size = ids.size(1)
        mask = mask & torch.ones(size, size, dtype=torch.bool).tril()
    for number, block in enumerate(blocks):
        if "first_block_only" in on:
            x = block(x, mask if number == 0 else torch.ones_like(mask))
        elif "same_input" in on:
            last = block(x, mask)
        else:
            x = block(x, mask)
    if "same_input" in on:
        return last
    else:
        return x


_CAUSAL = Bug(
    "a causal mask in an encoder",
    "The whole text is known, so every word may look behind itself as well. "
    "The first vector has to move when the last token changes.",
    read="13_encoder#enc-wrong",
    at="causal",
)
_QUERY_AXIS = Bug(
    "padding hidden as queries, not as keys",
    "What must not be read are keys, the last axis of the scores. As it is, "
    "real tokens read the padding.",
    read="13_encoder#enc-padding",
    at="axis",
)
_ENCODE_BUGS = {
    "no_positions": Bug(
        "tokens without their places",
        "Without a causal mask, attention cannot tell any order at all: add "
        "the rows of `places`.",
        read="13_encoder#enc-formula",
    ),
    "no_padding": Bug(
        "padding that everybody reads",
        "A sentence's vectors then depend on how long its neighbors in the "
        "batch are. Hide the padding.",
        read="13_encoder#enc-padding",
        at="real",
    ),
    "zero_is_padding": Bug(
        "token 0 taken for the padding, whatever pad_id is",
        "Compare with pad_id: elsewhere 0 is a token like any other.",
        read="13_encoder#enc-padding",
        at="real",
    ),
    "inverted": Bug(
        "True at the padding and False at the words",
        "Here True means may be seen. Some libraries mean the opposite; turn "
        "the mask round with ~.",
        read="13_encoder#enc-formula",
        at="real",
    ),
    "query_axis": _QUERY_AXIS,
    "causal": _CAUSAL,
    "first_block_only": Bug(
        "a mask for the first block alone",
        "The vectors at the padding go on existing, in every block. Each "
        "block needs the mask.",
        read="13_encoder#enc-padding",
    ),
    "positions_times": Bug(
        "positions that are multiplied, not added",
        "A token's vector plus the vector of its place: x + places[:S].",
        read="09_decoder#dec-formula",
        alone=True,
    ),
    "one_position": Bug(
        "one row of the table of positions for all places",
        "Place s has row s: add places[:S], (S, D), and not a single row.",
        read="09_decoder#dec-formula",
        alone=True,
    ),
    "same_input": Bug(
        "blocks that all read the embeddings, not what the block before made",
        "Each block takes the result of the one before: x = block(x, mask).",
        read="09_decoder#dec-formula",
        alone=True,
    ),
}


def mixing_block(weight: Tensor, masked_mean: bool = True) -> Part:
    """A block that can be told by its mask: it mixes what may be seen."""

    def block(x: Tensor, mask: Tensor) -> Tensor:
        size = x.size(1)
        sees = mask.expand(x.size(0), 1, size, size)[:, 0].to(x.dtype)
        share = sees / sees.sum(dim=-1, keepdim=True).clamp(min=1)
        return x + torch.tanh(share @ x @ weight)

    return block


def _encode_cases(seed: int) -> list[Case]:
    g = generator(seed)
    table = torch.randn(19, 6, generator=g, dtype=float64)
    places = torch.randn(11, 6, generator=g, dtype=float64)
    blocks = [
        mixing_block(torch.randn(6, 6, generator=g, dtype=float64))
        for _ in range(2)
    ]
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
    *,
    on: Switches = NONE,
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
    if "special_too" not in on:
        chosen = chosen & ~special
    to_mask = chosen & (second < 0.8)
    if "all_masked" in on:
        to_mask = chosen
    if "half_random" in on:
        to_random = chosen & ~to_mask
    elif "overwrites" in on:
        to_random = chosen & (second < 0.9)
    else:
        to_random = chosen & (second >= 0.8) & (second < 0.9)
    inputs = ids.where(~to_mask, mask_id)
    if "all_masked" not in on:
        inputs = inputs.where(~to_random, random_ids)
    if "targets_everywhere" in on:
        targets = ids.clone()
    elif "only_masked" in on:
        targets = ids.where(to_mask, -100)
    elif "changed_targets" in on:
        targets = inputs.where(chosen, -100)
    elif "targets_inverted" in on:
        targets = ids.where(~chosen, -100)
    else:
        targets = ids.where(chosen, -100)
    return inputs, targets


_CORRUPT_BUGS = {
    "special_too": Bug(
        "gaps in special tokens as well",
        "Padding and [CLS] say nothing that could be guessed. Take them out "
        "of the choice.",
        read="13_encoder#enc-bert",
    ),
    "all_masked": Bug(
        "[MASK] for every chosen token",
        "Then only [MASK] is ever asked about, and that token never occurs "
        "in use. A fifth of the chosen gets something else.",
        read="13_encoder#enc-bert",
        at="input",
    ),
    "half_random": Bug(
        "a random token for all that do not become [MASK]",
        "Of the chosen, 10 % get a random token and 10 % stay as they are.",
        read="13_encoder#enc-bert",
        at="input",
    ),
    "overwrites": Bug(
        "random tokens that overwrite [MASK]",
        "`second < 0.9` is true below 0.8, too. Ask for both bounds, or "
        "write [MASK] last.",
        read="13_encoder#enc-bert",
        at="input",
    ),
    "targets_everywhere": Bug(
        "a target at every token",
        "The visible ones stand in the input: that loss is for copying. All "
        "but the chosen get −100.",
        read="13_encoder#enc-predict-all-loss",
        at="target",
    ),
    "only_masked": Bug(
        "a target only where [MASK] stands",
        "Chosen tokens that were replaced or kept are asked about as well: "
        "that is why they were chosen.",
        read="13_encoder#enc-bert",
        at="target",
    ),
    "changed_targets": Bug(
        "targets taken from the input, after it was changed",
        "The target is the token that stood there before.",
        read="13_encoder#enc-bert",
        at="target",
    ),
    "targets_inverted": Bug(
        "−100 at the chosen tokens and targets at the others",
        "−100 means: does not count. The chosen ones are to count.",
        read="13_encoder#enc-bert",
        at="target",
    ),
}


def _corrupt_cases(seed: int) -> list[Case]:
    g = generator(seed)
    shape = (5, 41)
    ids = torch.randint(3, 97, shape, generator=g)
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
def pooled(x: Tensor, real: Tensor, *, on: Switches = NONE) -> Tensor:
    """One vector for each sentence: the mean over its real tokens.

    `x` is `(B, S, D)`, `real` is `(B, S)`, True at real tokens, which may
    stand anywhere. The result is `(B, D)`: the sum of the vectors at real
    tokens, divided by their number. What stands at the others does not matter.
    A sentence without real tokens gets zeros.
    """
    if "first_token" in on:
        return x[:, 0]
    keep = torch.ones_like(real) if "all_counted" in on else real
    if "inverted" in on:
        keep = ~real
    total = (x * keep[..., None]).sum(dim=1)
    if "divided_by_all" in on:
        count = torch.full_like(real[:, :1].to(x.dtype), x.size(1))
    elif "divided_by_batch" in on:
        count = keep.sum().to(x.dtype) / len(x)
    elif "summed" in on:
        count = torch.ones((), dtype=x.dtype)
    else:
        count = keep.sum(dim=1, keepdim=True).to(x.dtype)
    if "empty_nan" not in on:
        count = count.clamp(min=1)
    return total / count


_POOLED_BUGS = {
    "first_token": Bug(
        "the vector of the first token",
        "That is the way of [CLS]. Asked is the mean.",
        read="13_encoder#enc-pool",
        at="mean",
    ),
    "all_counted": Bug(
        "a mean over all positions, padding included",
        "At the padding stand vectors full of numbers that mean nothing: "
        "leave them out of the sum and of the number divided by.",
        read="13_encoder#enc-padding",
        at="mean",
    ),
    "inverted": Bug(
        "the mean of the padding",
        "True means real here.",
        read="13_encoder#enc-pool",
        at="mean",
    ),
    "divided_by_all": Bug(
        "the sum of the real ones, divided by the number of all positions",
        "Then a short sentence has a short vector, and the shorter the "
        "longer its neighbor is.",
        read="13_encoder#enc-pool",
        at="mean",
    ),
    "divided_by_batch": Bug(
        "every sentence divided by the batch's mean length",
        "Each sentence has a number of its own: sum over the positions, "
        "not over the batch.",
        read="13_encoder#enc-pool",
        at="mean",
    ),
    "summed": Bug(
        "the sum instead of the mean",
        "A long sentence would have a long vector. Divide.",
        read="13_encoder#enc-pool",
        at="mean",
    ),
    "empty_nan": Bug(
        "0 / 0 for a sentence without tokens",
        "One such sentence turns the batch's loss into NaN. Divide by at "
        "least 1.",
        read="13_encoder#enc-pool",
        at="mean",
    ),
}


def _pooled_cases(seed: int) -> list[Case]:
    g = generator(seed)
    x = torch.randn(3, 7, 5, generator=g, dtype=float64)
    right = torch.arange(7) < torch.tensor([7, 3, 2])[:, None]
    holes = torch.rand(3, 7, generator=g) < 0.5
    holes[:, 2], holes[:, 4] = True, False
    holes[1] = False
    return [
        Case((x, right), name="three sentences, padded"),
        Case((x, holes), name="one of them has no token"),
    ]


# -- debug: a decoder's attention in an encoder ------------------------------
def mended(
    q: Tensor, k: Tensor, v: Tensor, real: Tensor, *, on: Switches = NONE
) -> Tensor:
    """One head of an encoder's attention, for a padded batch.

    `q` and `k` are `(B, S, Dh)`, `v` is `(B, S, Dv)`; `real` is `(B, S)`, True
    at real tokens, of which each sentence has at least one. The scores are
    `q kᵀ / √Dh`. Each query, also one at the padding, spreads its weight over
    all real tokens of its sentence, before and behind it, by the softmax of
    their scores; what is not real gets no weight.
    The result is `(B, S, Dv)`: for each query the sum of values times weights.
    """
    scores = q @ k.mT
    if "no_scale" not in on:
        scores = scores / q.size(-1) ** 0.5
    if "query_axis" in on:
        mask = real[:, :, None].expand(scores.shape)
    elif "no_padding" in on:
        mask = torch.ones_like(scores, dtype=torch.bool)
    elif "inverted" in on:
        mask = ~real[:, None, :].expand(scores.shape)
    else:
        mask = real[:, None, :].expand(scores.shape)
    if "causal" in on:
        mask = mask & torch.ones_like(mask).tril()
    lowest = torch.finfo(scores.dtype).min
    if "zero_fill" in on:
        scores = scores.masked_fill(~mask, 0.0)
    else:
        scores = scores.masked_fill(~mask, lowest)
    if "over_queries" in on:
        weights = scores.softmax(dim=1)
    else:
        weights = scores.softmax(dim=2)
    return weights @ v


_MENDED_BUGS = {
    "causal": _CAUSAL,
    "query_axis": _QUERY_AXIS,
    "no_padding": Bug(
        "padding that everybody reads",
        "A sentence's vectors then depend on how long its neighbors in the "
        "batch are. Hide the padding.",
        read="13_encoder#enc-padding",
        at="axis",
    ),
    "no_scale": Bug(
        "scores that are not divided by √Dh",
        "Without it the softmax is the sharper the wider a head is.",
        read="04_attention#att-predict-scale",
    ),
    "zero_fill": Bug(
        "hidden scores set to 0",
        "A score of 0 still gets weight: e⁰ = 1. Hidden ones need the "
        "smallest number there is, or −∞.",
        read="05_masks#mask-wrong",
        at="axis",
    ),
    "over_queries": Bug(
        "weights that sum to 1 over the queries, not over the keys",
        "Each query spreads its own weight: softmax along the last axis.",
        read="04_attention#att-formula",
        at="axis",
    ),
    "inverted": Bug(
        "a mask upside down: padding is read, and real tokens are not",
        "True means: a real token. Hide where real is *not* true.",
        read="13_encoder#enc-padding",
        alone=True,
    ),
}


def _mended_cases(seed: int) -> list[Case]:
    g = generator(seed)
    q, k = torch.randn(2, 3, 7, 5, generator=g, dtype=float64)
    v = torch.randn(3, 7, 2, generator=g, dtype=float64)
    right = torch.arange(7) < torch.tensor([7, 3, 5])[:, None]
    return [Case((q, k, v, right), name="three sentences, padded")]


# -- debug: the loss at the gaps ---------------------------------------------
def gap_loss(
    logits: Tensor, ids: Tensor, chosen: Tensor, *, on: Switches = NONE
) -> Tensor:
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
    if "shifted" in on:
        logits, ids, chosen = logits[:, :-1], ids[:, 1:], chosen[:, 1:]
    z = logits.softmax(dim=-1) if "softmax_first" in on else logits
    log_p = z.log_softmax(dim=-1)
    nats = -log_p.gather(-1, ids[..., None])[..., 0]
    if "all_places" in on:
        return nats.mean()
    total = (nats * chosen).sum(dim=1)
    if "all_counted" in on:
        return total.sum() / chosen.numel()
    elif "mean_of_means" in on:
        return (total / chosen.sum(dim=1).clamp(min=1)).mean()
    elif "empty_nan" in on:
        return total.sum() / chosen.sum()
    else:
        return total.sum() / chosen.sum().clamp(min=1)


_GAP_LOSS_BUGS = {
    "all_places": Bug(
        "a mean over all places, those that can be copied included",
        "Visible words stand in the input. Only the chosen places are a "
        "question.",
        read="13_encoder#enc-predict-all-loss",
        at="mean",
    ),
    "shifted": Bug(
        "logits compared with the next token, as in a decoder",
        "A gap is filled where it is: row s is about token s.",
        read="13_encoder#enc-gaps",
    ),
    "all_counted": Bug(
        "the sum over the gaps, divided by the number of all places",
        "The loss then looks seven times as small, and changes with the "
        "padding. Divide by the number of gaps.",
        read="13_encoder#enc-bert",
        at="mean",
    ),
    "mean_of_means": Bug(
        "the mean of each sentence's mean",
        "A sentence with one gap then weighs as much as one with five.",
        read="00_first_model#first-loss",
        at="mean",
    ),
    "empty_nan": Bug(
        "a mean over nothing, which is NaN",
        "By chance a small batch may have no gap at all. Divide by at least "
        "1.",
        read="10_loss#loss-code",
        at="mean",
    ),
    "softmax_first": Bug(
        "a softmax before a loss that wants logits",
        "log_softmax does the softmax itself. Twice is too often.",
        read="10_loss#loss-wrong",
    ),
}


def _gap_loss_cases(seed: int) -> list[Case]:
    g = generator(seed)
    logits = 3 * torch.randn(3, 7, 11, generator=g, dtype=float64)
    ids = torch.randint(11, (3, 7), generator=g)
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
    "pooled": Exercise(pooled, _pooled_cases, bugs=_POOLED_BUGS),
    "mended": Exercise(
        mended, _mended_cases, bugs=_MENDED_BUGS, forbid=ATTENTION
    ),
    "gap_loss": Exercise(gap_loss, _gap_loss_cases, bugs=_GAP_LOSS_BUGS),
}
