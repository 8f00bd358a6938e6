"""Exercises of chapter 16: looking inside."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from coursekit_classroom.check.core import (
    Bug,
    Case,
    Exercise,
    generator,
    randn,
)

float64 = torch.float64
Step = Callable[[Tensor], Tensor]


# -- implement: the logit lens -----------------------------------------------
def lens(
    streams: Tensor, scale: Tensor, shift: Tensor, table: Tensor, eps: float
) -> Tensor:
    """Logits at every height, (L + 1, T, V).

    `streams` is `(L + 1, T, D)`: the stream before the first block and behind
    each. Every vector of it is treated as the model treats those on top. First
    the last LayerNorm: subtract the mean of the vector's D numbers, divide by
    `√(variance + eps)` with the variance of these D numbers (divided by D, not
    D − 1), multiply by `scale` and add `shift`, both `(D,)`. Then the logits:
    dot products with the rows of `table`, `(V, D)`.
    """
    mean = streams.mean(-1, keepdim=True)
    variance = streams.var(-1, keepdim=True, correction=0)
    x = (streams - mean) / (variance + eps).sqrt()
    x = x * scale + shift
    return x @ table.T


_LENS_BUGS = {
    "no_norm": Bug(
        "x = (streams - mean) / (variance + eps).sqrt()\n"
        "    x = x * scale + shift",
        "x = streams",
        says="the table held against the stream, without the last norm",
        why="The head has only ever seen normalized vectors. What a norm "
        "would have divided away stays in; the top row is not the model's "
        "answer.",
        read="further/16_interpret#int-lens",
        at="norm",
    ),
    "over_places": Bug(
        "streams.mean(-1",
        "streams.mean(-2",
        "streams.var(-1",
        "streams.var(-2",
        says="a mean and variance over the text's places",
        why="LayerNorm looks at one vector alone: D numbers, the last axis.",
        read="07_norm#ch-norm",
        at="norm",
    ),
    "unbiased": Bug(
        ", correction=0",
        "",
        says="a variance divided by D − 1",
        why="The norm divides by D; torch's `var` by D − 1, unless "
        "`correction=0` is given.",
        read="07_norm#ch-norm",
        at="norm",
    ),
    "chances": Bug(
        "x @ table.T",
        "(x @ table.T).softmax(-1)",
        says="probabilities in place of logits",
        why="The softmax comes after; here the logits themselves are asked "
        "for.",
        read="further/16_interpret#int-lens",
    ),
    "top_only": Bug(
        "return x",
        "x = torch.cat((streams[:-1], x[-1:]))\n    return x",
        says="a norm for the topmost stream alone",
        why="The lens asks what each depth would say if it were the last: "
        "all of them go through the last norm.",
        read="further/16_interpret#int-lens",
        alone=True,
    ),
}


def _lens_cases(seed: int) -> list[Case]:
    g = generator(seed)
    grows = torch.tensor([0.5, 1.0, 2.0, 5.0], dtype=float64)[:, None, None]
    streams = 0.3 + grows * randn(g, 4, 3, 7)
    rest = (1 + 0.5 * randn(g, 7), randn(g, 7), randn(g, 11, 7), 0.3)
    return [Case((streams, *rest), name="four heights, three places")]


# -- implement: the induction score ------------------------------------------
def induction(weights: Tensor, ids: Tensor) -> Tensor:
    """How much each head looks where induction would look, (H,).

    `weights` is `(H, T, T)`: head, query, key. `ids` is `(T,)`. A query counts
    if its token stands at an earlier place, too. Of several earlier places
    take the last. What is wanted is the query's weight on the place right
    after that one; a head's score is the mean over the queries that count. At
    least one does.
    """
    total, n = torch.zeros_like(weights[:, 0, 0]), 0
    for t in range(len(ids)):
        earlier = [s for s in range(t) if ids[s] == ids[t]]
        counts = bool(earlier)
        n += counts
        earlier = earlier[-1:]
        for s in earlier:
            total = total + weights[:, t, s + 1]
    return total / n


_INDUCTION_BUGS = {
    "at_the_match": Bug(
        "s + 1",
        "s",
        says="the weight on the same token, not on the one after it",
        why="After A B … A, the answer is B. A head that looks at the first "
        "A learns what it knows already.",
        read="16_interpret#int-by-hand",
    ),
    "first_time": Bug(
        "-1:",
        ":1",
        says="the first appearance, where the last was asked for",
        why="If a token has come three times, its followers may differ; "
        "here the last one counts.",
        read="16_interpret#int-by-hand",
    ),
    "all_queries": Bug(
        "bool(earlier)",
        "True",
        says="a mean over all queries, those with nothing to find included",
        why="A token that is new has no place to look for. It can't be held "
        "against the head.",
        read="16_interpret#int-by-hand",
    ),
    "transposed": Bug(
        "total, n = torch.zeros_like(weights[:, 0, 0]), 0",
        "weights = weights.mT\n"
        "    total, n = torch.zeros_like(weights[:, 0, 0]), 0",
        says="queries and keys exchanged",
        why="Rows are queries: `weights[h, t, s]` is what place t takes "
        "from s.",
        read="04_attention#ch-attention",
    ),
    "one_before": Bug(
        "s + 1",
        "s - 1",
        says="the weight on the token before the earlier appearance",
        why="An induction head looks at what came after the token last time: "
        "one further, not one back.",
        read="16_interpret#int-by-hand",
        alone=True,
    ),
}


def _induction_cases(seed: int) -> list[Case]:
    g = generator(seed)
    a, b, c = (1 + torch.randperm(16, generator=g)[:3]).tolist()
    ids = torch.tensor([0, a, a, 0, b, a, c, 0])
    return [
        Case(
            (randn(g, 5, 8, 8).softmax(-1), ids),
            name="tokens that come three times, once twice in a row",
        )
    ]


# -- implement: mean ablation ------------------------------------------------
def silenced(heads: Tensor, reference: Tensor, head: int) -> Tensor:
    """Outputs in which one head says to every text the same, (B, H, T, Dv).

    `heads` is `(B, H, T, Dv)`, the outputs of all heads. Those of head number
    `head` (from 0) are replaced, in every text and at every place, by one
    vector of Dv numbers: the mean of that head's outputs in `reference`,
    `(N, H, S, Dv)`, over its N texts and S places. The other heads stay as
    they are, and so does `heads` itself.
    """
    new = heads.clone()
    new[:, head] = reference[:, head].mean((0, 1))
    return new


_SILENCED_BUGS = {
    "zero": Bug(
        "reference[:, head].mean((0, 1))",
        "0.0",
        says="zeros in place of the mean",
        why="Zero is no neutral output: it may be one that the blocks above "
        "have never met. The mean takes away what the head *tells*, and "
        "leaves what it always says.",
        read="16_interpret#int-ablation",
    ),
    "own_mean": Bug(
        "reference[:, head]",
        "heads[:, head]",
        says="the mean of the texts that are being changed",
        why="It still knows something about them. Take the mean over the "
        "reference.",
        read="16_interpret#int-ablation",
    ),
    "one_number": Bug(
        "reference[:, head].mean((0, 1))",
        "reference[:, head].mean()",
        says="one number for all Dv columns",
        why="The mean is a vector: only texts and places are averaged.",
        read="16_interpret#int-ablation",
    ),
    "a_text": Bug(
        "new[:, head] = reference[:, head]",
        "new[head] = reference[head]",
        says="a text of the batch ablated, not a head",
        why="The axes are (B, H, T, Dv): heads[:, head], not heads[head].",
        read="16_interpret#int-ablation",
        alone=True,
    ),
}


def _silenced_cases(seed: int) -> list[Case]:
    g = generator(seed)
    heads = 1 + randn(g, 2, 5, 7, 3)
    reference = 1 + randn(g, 11, 5, 13, 3)
    return [Case((heads, reference, 1), name="head 1 of five")]


# -- debug: the averaged map -------------------------------------------------
def sharpest(weights: Tensor) -> Tensor:
    """How much the best head of each block looks one back, (L,).

    `weights` is `(L, B, H, T, T)`: block, text, head, query, key. A head's
    share is its weight on the key right before the query, a mean over all
    texts and over all queries but the first, which has none before it. For
    each block return the largest share that any of its heads has.
    """
    before = weights.diagonal(-1, -2, -1)
    return before.mean((1, 3)).amax(-1)


_SHARPEST_BUGS = {
    "averaged": Bug(
        "before = weights",
        "weights = weights.mean(2, keepdim=True)\n    before = weights",
        says="the heads averaged before anything is measured",
        why="One head that looks one back and seven that don't make a map "
        "that shows nothing. Measure each head, then compare.",
        read="16_interpret#int-wrong",
    ),
    "after": Bug(
        "diagonal(-1,",
        "diagonal(1,",
        says="the diagonal above the middle: the key after the query",
        why="`diagonal(1)` has column = row + 1. The key before is "
        "`diagonal(-1)`. In a causal model the other one is empty.",
        read="05_masks#ch-masks",
    ),
    "best_by_text": Bug(
        "before.mean((1, 3)).amax(-1)",
        "before.mean(-1).amax(-1).mean(-1)",
        says="the best head of each text, and then the mean over the texts",
        why="Average over the texts first: a head is sharp if it is so in "
        "all of them, not a different one in each.",
        read="16_interpret#int-wrong",
        alone=True,
    ),
    "first_counted": Bug(
        "before.mean((1, 3))",
        "(before.sum(3) / weights.size(-1)).mean(1)",
        says="a mean over all queries, the first one included",
        why="The first query has no key before it. There are T − 1 that have "
        "one.",
        read="16_interpret#int-wrong",
        alone=True,
    ),
}


def _sharpest_cases(seed: int) -> list[Case]:
    g = generator(seed)
    scores = 2 * randn(g, 3, 2, 5, 7, 7)
    return [Case((scores.softmax(-1),), name="three blocks of five heads")]


# -- debug: causal tracing ---------------------------------------------------
def traced(
    blocks: Sequence[Step],
    clean: Tensor,
    corrupt: Tensor,
    readout: Tensor,
    height: int,
    place: int,
) -> Tensor:
    """How much one vector of the clean run brings back, a share.

    `clean` and `corrupt`, `(T, D)`, are what enters the first of the `blocks`,
    functions from `(T, D)` to `(T, D)`, each of which takes the result of the
    one before. What is measured of a run is the dot product of `readout`,
    `(D,)`, with the vector that leaves the last block at the last place.
    Run the corrupt text; but at `height` put, at `place` alone, the vector
    that the clean run has there. Height 0 is what enters the first block,
    height i what leaves block number i, counted from 1. Return
    `(patched − corrupt) / (clean − corrupt)`. No tensor that was handed over
    is changed.
    """
    streams = [clean]
    for block in blocks:
        streams.append(block(streams[-1]))
    x = without = corrupt
    for block in blocks:
        without = block(without)
    for i in range(len(blocks) + 1):
        if i == height:
            x = x.clone()
            x[place] = streams[i][place]
        if i < len(blocks):
            x = blocks[i](x)
    high, low = streams[-1][-1] @ readout, without[-1] @ readout
    patched = x[-1] @ readout
    share = (patched - low) / (high - low)
    return share


_TRACED_BUGS = {
    "every_place": Bug(
        "x = x.clone()\n            x[place] = streams[i][place]",
        "x = streams[i]",
        says="all places of that height taken from the clean run",
        why="Then everything comes back, whatever is asked about. One place "
        "at a time shows where it is.",
        read="16_interpret#int-patch",
        at="what",
    ),
    "late": Bug(
        "for i in range(len(blocks) + 1):",
        "height = min(height + 1, len(blocks))\n"
        "    for i in range(len(blocks) + 1):",
        says="a patch one block too high",
        why="Height i is what leaves block i: patch before block i + 1 "
        "runs, not after it.",
        read="16_interpret#int-patch",
        at="what",
    ),
    "not_divided": Bug(
        "share = (patched - low) / (high - low)",
        "share = patched - low",
        says="a difference that is not divided by the whole",
        why="Divide by what lies between the two runs: then 1 means all of "
        "it, and texts can be compared.",
        read="16_interpret#int-patch",
        at="share",
    ),
    "what_is_missing": Bug(
        "patched - low",
        "high - patched",
        says="the share that is still missing",
        why="Measured from the corrupt run: 0 is nothing brought back, 1 is "
        "all.",
        read="16_interpret#int-patch",
        at="share",
    ),
    "in_place": Bug(
        "x.clone()",
        "x",
        says="a vector put into the corrupt text itself, at height 0",
        why="No tensor that was handed over is changed: clone it first.",
        read="16_interpret#int-patch",
        alone=True,
    ),
}


def causal_step(mix: Tensor, weight: Tensor) -> Step:
    """A block that reads earlier places, by fixed shares."""

    def step(x: Tensor) -> Tensor:
        return x + torch.tanh(mix @ x @ weight)

    return step


def _traced_cases(seed: int) -> list[Case]:
    g = generator(seed)
    blocks = [
        causal_step(randn(g, 5, 5).tril(), 0.5 * randn(g, 7, 7))
        for _ in range(4)
    ]
    clean = randn(g, 5, 7)
    corrupt = clean.clone()
    corrupt[1] = randn(g, 7)
    rest = (blocks, clean, corrupt, randn(g, 7))
    return [
        Case((*rest, 2, 3), name="height 2, a place behind the change"),
        Case((*rest, 0, 1), name="height 0, the place of the change"),
    ]


# -- measure: what a weight is worth -----------------------------------------
def removal(weights: Tensor, values: Tensor) -> Tensor:
    """How much each key's removal changes each output, (H, T, S).

    `weights` is `(H, T, S)`, every row sums to 1 and no weight is 1; `values`
    is `(H, S, Dv)`. A query's output is the weighted sum of the values. Hide
    one key from one query: its weight becomes 0, and the others of the row are
    divided by what is left, so that they sum to 1 again. Return the length of
    the change of the output, divided by the length of the output as it was.
    """
    out = weights @ values
    part = weights[..., None] * values[:, None]
    new = (out[:, :, None] - part) / (1 - weights[..., None])
    change = (new - out[:, :, None]).norm(dim=-1)
    return change / out.norm(dim=-1, keepdim=True)


_REMOVAL_BUGS = {
    "just_the_weight": Bug(
        "change / out.norm(dim=-1, keepdim=True)",
        "weights",
        says="the weight itself",
        why="What a key brings is weight times value. A weight of 0.9 on a "
        "value near zero brings next to nothing.",
        read="16_interpret#int-weight",
        at="share",
    ),
    "not_made_whole": Bug(
        " / (1 - weights[..., None])",
        "",
        says="weights that no longer sum to 1",
        why="Without the key the softmax would have shared everything among "
        "the others: divide by what is left.",
        read="16_interpret#int-weight",
        at="share",
    ),
    "not_relative": Bug(
        "change / out.norm(dim=-1, keepdim=True)",
        "change",
        says="the length of the change, not divided by the output's",
        why="A change of 1 is a lot for an output of length 1, and little "
        "for one of 100.",
        read="16_interpret#int-weight",
        at="share",
    ),
    "of_lengths": Bug(
        "(new - out[:, :, None]).norm(dim=-1)",
        "(new.norm(dim=-1) - out.norm(dim=-1)[..., None]).abs()",
        says="the difference of two lengths, not the length of the difference",
        why="An output may turn without growing. Subtract the vectors "
        "first, then take the length.",
        read="16_interpret#int-weight",
        alone=True,
    ),
    "by_the_rest": Bug(
        "out.norm(dim=-1, keepdim=True)",
        "new.norm(dim=-1)",
        says="a change divided by the length of the new output, not of the "
        "old one",
        why="The question is what part of the output changes: divide by the "
        "output as it was.",
        read="16_interpret#int-weight",
        alone=True,
    ),
}


def _removal_cases(seed: int) -> list[Case]:
    g = generator(seed)
    weights = randn(g, 3, 5, 7).softmax(-1)
    return [Case((weights, randn(g, 3, 7, 2)), name="three heads")]


EXERCISES = {
    "lens": Exercise(
        lens,
        _lens_cases,
        bugs=_LENS_BUGS,
    ),
    "induction": Exercise(
        induction,
        _induction_cases,
        bugs=_INDUCTION_BUGS,
    ),
    "silenced": Exercise(
        silenced,
        _silenced_cases,
        bugs=_SILENCED_BUGS,
    ),
    "sharpest": Exercise(
        sharpest,
        _sharpest_cases,
        bugs=_SHARPEST_BUGS,
    ),
    "traced": Exercise(
        traced,
        _traced_cases,
        bugs=_TRACED_BUGS,
    ),
    "removal": Exercise(
        removal,
        _removal_cases,
        bugs=_REMOVAL_BUGS,
    ),
}
