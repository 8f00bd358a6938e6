"""Exercises of chapter 5: masks."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from coursekit_classroom.check.core import (
    Bug,
    Case,
    Exercise,
    Variant,
    generator,
    randn,
)
from coursekit_classroom.check.families import (
    EXACT,
    MASK_FINITE,
    ZERO_IS_PADDING,
)
from coursekit_classroom.check.forbid import ATTENTION

Model = Callable[[Tensor], Tensor]

INF = float("inf")


def quarters(x: Tensor) -> Tensor:
    """A tensor rounded to quarters.

    Scores that are many thousands lower are then exact in float32, too: a
    right answer in float32 loses nothing.
    """
    return (4 * x).round() / 4


# -- implement: a causality probe --------------------------------------------
def is_causal(model: Model, vocab_size: int, length: int) -> bool:
    """Whether no position of a model sees a later token.

    `model` is a black box: ids `(B, length)`, from 0 to `vocab_size − 1`, to
    logits `(B, length, vocab_size)`, for any B. The result is True if the
    logits at each position t depend on tokens 0 … t alone, its own included.
    Differences by rounding, in the last digits, do not count.
    It is False if there is any leak: from one later token, the next or the
    last or any other, to one position only; if it shows only when that token
    is a certain one; if it moves the logits by a hundredth, and the most
    likely token stays.
    """
    ids = torch.arange(length)[None] % vocab_size
    before = model(ids)
    for t in range(1, length):
        other = ids.repeat(vocab_size, 1)
        other[:, t] = torch.arange(vocab_size)
        rows = slice(0, t)
        after = model(other)[:, rows]
        expected = before[:, rows].expand_as(after)
        if not torch.allclose(expected, after):
            return False
    return True


_IS_CAUSAL_BUGS = {
    "last_token": Bug(
        "range(1, length)",
        "range(length - 1, length)",
        says="a probe that changes only the last token",
        why="A leak may sit anywhere: position 0 may see token 1, and "
        "nothing else. Change every token in turn.",
        read="05_masks#mask-diagnosis",
    ),
    "own_row": Bug(
        ", t)",
        ", t + 1)",
        says="a probe that counts the changed position itself as the past",
        why="A position may see its own token. Compare [:, :t], without t.",
        read="05_masks#mask-diagnosis",
    ),
    "exact": EXACT.by(
        "torch.allclose(expected, after)",
        "torch.equal(expected, after)",
        says="a probe that wants the logits equal to the last bit",
        read="05_masks#mask-diagnosis",
    ),
}


def _causal_model(seed: int, size: int) -> Model:
    """Random vectors, positions, and one head with a mask."""
    g = generator(seed)
    table, *maps = (randn(g, n, 5) for n in (size, 5, 5, 5))
    places = randn(g, 23, 5)

    def logits_of(ids: Tensor) -> Tensor:
        x = table[ids] + places[: ids.size(1)]
        q, k, v = (x @ w for w in maps)
        scores = q @ k.mT / 5**0.5
        later = torch.ones_like(scores, dtype=torch.bool).triu(1)
        y = scores.masked_fill(later, -INF).softmax(-1) @ v
        logits = (x + y) @ table.T
        return logits.round(decimals=6)  # alike in batches of any size

    return logits_of


def _blind_model(
    seed: int, size: int, leak: Callable[[Tensor, Tensor], Tensor]
) -> Model:
    """Logits that know nothing but the position, and then a leak."""
    g = generator(seed)
    order = torch.rand(23, size, generator=g).argsort(dim=1)
    places = order.double() / 3  # no two logits of a row are close

    def logits_of(ids: Tensor) -> Tensor:
        return leak(places[: ids.size(1)].repeat(len(ids), 1, 1), ids)

    return logits_of


def _shouts(p: int, k: int = 1, only: int = -1) -> Callable[..., Tensor]:
    """Position ``p`` shouts the token ``k`` ahead, or turns at one token."""

    def leak(logits: Tensor, ids: Tensor) -> Tensor:
        if p + k >= ids.size(1):
            return logits
        ahead = ids[:, p + k]
        if only >= 0:
            logits[:, p] *= 1 - 2 * (ahead == only)[:, None].double()
        else:
            logits[:, p] += 100 * F.one_hot(ahead, logits.size(-1))
        return logits

    return leak


def _sees_all(logits: Tensor, ids: Tensor) -> Tensor:
    text = ids.sum(dim=1, keepdim=True) % logits.size(-1)
    return logits + 100 * F.one_hot(text, logits.size(-1))


def _first_sees_all(logits: Tensor, ids: Tensor) -> Tensor:
    first = _sees_all(logits[:, :1], ids)
    return torch.cat((first, logits[:, 1:]), dim=1)


def _whispers(logits: Tensor, ids: Tensor) -> Tensor:
    names = F.one_hot(ids[:, 1:], logits.size(-1))
    logits[:, :-1] += 0.01 * names
    return logits


def _scaled(logits: Tensor, ids: Tensor) -> Tensor:
    return logits * (1 + ids.double().mean(dim=1))[:, None, None]


def _rounded(logits: Tensor, ids: Tensor) -> Tensor:
    scale = 1 + ids.double().sqrt().sum(dim=1)[:, None, None]
    return logits * scale / scale


def _is_causal_cases(seed: int) -> list[Case]:
    size, length = 23, 5
    g = generator(seed)
    one, two = (int(n) for n in torch.randint(6, size, (2,), generator=g))
    leaks = {
        "all positions see all tokens": _sees_all,
        "a causal model that is off by rounding": _rounded,
        "position 0 sees all tokens: its row was empty": _first_sees_all,
        "position 0 sees token 1": _shouts(0),
        "position 3 sees token 4, the last": _shouts(3),
        "position 1 sees token 3": _shouts(1, 2),
        f"position 3 sees if token 4 is {one}": _shouts(3, only=one),
        f"position 1 sees if token 2 is {two}": _shouts(1, only=two),
        "all positions see the next token, a little": _whispers,
        "all logits are scaled by the whole text": _scaled,
    }
    models = {"a causal model": _causal_model(seed, size)}
    for number, (name, leak) in enumerate(leaks.items()):
        models[name] = _blind_model(seed + number, size, leak)
    return [
        Case((model, size, length), name=name)
        for name, model in models.items()
    ]


# -- debug: the other mixture ------------------------------------------------
def columns(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Causal attention with keys as rows and queries as columns.

    `q` is `(..., T, Dh)`, `k` `(..., S, Dh)`, `v` `(..., S, Dv)`, with any
    axes in front, or none, and `T ≤ S`. The scores are `k qᵀ / √Dh`,
    `(..., S, T)`. The queries are the last T of S positions: query i may see
    key j if `j ≤ i + (S − T)`, and all other weights are 0.
    Returned is a pair. The weights, `(..., S, T)`: entry j, i is the weight of
    key j for query i, a softmax over the keys that i may see, so each column
    sums to 1. And the output, `(..., T, Dv)`: row i is the sum of the values,
    each times its weight for query i.
    """
    scores = k @ q.mT / q.size(-1) ** 0.5
    ones = torch.ones_like(scores, dtype=torch.bool)
    hide = ones.tril(-1 - (k.size(-2) - q.size(-2)))
    weights = scores.masked_fill(hide, float("-inf")).softmax(dim=-2)
    return weights, weights.mT @ v


_COLUMNS_BUGS = {
    "upper_right": Bug(
        "ones.tril(-1 - (k.size(-2) - q.size(-2)))",
        "ones.triu(1)",
        says="the upper right hidden, triu(1), as if queries were rows",
        why="Here rows are keys: the later ones lie below, so the lower "
        "left is hidden. As it is, a query sees only itself and what comes "
        "later.",
        read="further/05_masks#mask-conventions",
    ),
    "main_diagonal": Bug(
        "ones.tril(-1 - (k.size(-2) - q.size(-2)))",
        "ones.tril(-1)",
        says="tril(-1), whatever the number of earlier keys",
        why="If T < S, the queries are the last T positions: move the "
        "diagonal down by S − T.",
        read="05_masks#mask-formula",
    ),
    "over_queries": Bug(
        "dim=-2",
        "dim=-1",
        says="a softmax along the rows (dim=-1), over the queries",
        why="A column is a query here, and it is the query's weights that "
        "must sum to 1: dim=-2.",
        read="further/05_masks#mask-conventions",
    ),
    "no_transpose": Bug(
        "weights.mT",
        "weights",
        says="weights @ v, without the transpose",
        why="The weights are (S, T), keys by queries. Each query's average "
        "needs its column: weights.mT @ v.",
        read="further/05_masks#mask-conventions",
    ),
    "queries_as_rows": Bug(
        "return weights,",
        "return weights.mT,",
        says="weights returned with queries as rows",
        why="Here keys are rows and queries are columns: return the matrix "
        "whose columns sum to 1.",
        read="further/05_masks#mask-conventions",
        alone=True,
    ),
    "not_itself": Bug(
        "ones.tril(-1 - (k.size(-2) - q.size(-2)))",
        "ones.tril(q.size(-2) - k.size(-2))",
        says="a diagonal that is off by one: no query sees its own position",
        why="j ≤ i + (S − T): equal is allowed. Hide what lies beyond, not "
        "the position itself.",
        read="further/05_masks#mask-conventions",
        alone=True,
    ),
    "sees_next": Bug(
        "-1 -",
        "-2 -",
        says="a diagonal that is off by one: each query sees one key too many",
        why="j ≤ i + (S − T), and no further: the next position is hidden.",
        read="further/05_masks#mask-conventions",
        alone=True,
    ),
    "mask_finite": MASK_FINITE.by('float("-inf")', "-100.0"),
}


def _columns_cases(seed: int) -> list[Case]:
    g = generator(seed)

    def qkv(*shape: int, t: int, s: int) -> tuple[Tensor, ...]:
        sizes = (t, 11), (s, 11), (s, 13)
        return tuple(randn(g, *shape, *size) for size in sizes)

    cases = [
        Case(qkv(t=5, s=5), name="as many keys as queries"),
        Case(qkv(t=3, s=7), name="three new queries, seven keys"),
        Case(qkv(2, 3, t=5, s=7), name="batch and heads"),
    ]
    q, k, v = (
        quarters(randn(g, 5, 16)),
        quarters(randn(g, 7, 16)),
        randn(g, 7, 13),
    )
    # One more term in each sum: all scores are lower by the same 12,000.
    q[:, -1], k[:, -1] = -200.0, 240.0
    return [*cases, Case((q, k, v), name="large negative scores")]


# -- implement: padding on either side ---------------------------------------
def visible(ids: Tensor, pad_id: int) -> Tensor:
    """True where the key is a real token and not ahead of the query.

    `ids` is `(B, T)`, whole numbers. A token is padding if it equals `pad_id`,
    any number, and real otherwise: 0 is real if `pad_id` is another number.
    Padding may stand on the left or on the right, or be absent.
    Returned are booleans, `(B, 1, T, T)`; the axis of size 1 is for the heads.
    Entry b, 0, i, j says whether query i may look at key j: True if token j of
    sentence b is real and `j ≤ i`, its own place included. That holds for
    every row i, also where the query itself is padding; rows may be empty.
    """
    real = ids != pad_id
    size = ids.size(1)
    earlier = torch.ones(size, size, dtype=torch.bool).tril()
    see = real[:, None, None, :] & earlier
    return see


_VISIBLE_BUGS = {
    "zero_is_padding": ZERO_IS_PADDING.by(
        "ids != pad_id",
        "ids != 0",
    ),
    "on_the_right": Bug(
        "real = ids != pad_id",
        "lengths = (ids != pad_id).sum(dim=1, keepdim=True)\n"
        "    real = torch.arange(ids.size(1)) < lengths",
        says="real tokens counted, and taken to be the first of the row",
        why="That holds only if the padding stands on the right. Compare "
        "each token with pad_id instead.",
        read="05_masks#mask-padding",
    ),
    "query_axis": Bug(
        "real[:, None, None, :]",
        "real[:, None, :, None]",
        says="padding hidden as queries, [:, None, :, None], not as keys",
        why="It is the key's token that counts, and keys are the last axis: "
        "[:, None, None, :]. As it is, real tokens read padding.",
        read="05_masks#mask-padding",
    ),
    "both_axes": Bug(
        "real[:, None, None, :]",
        "real[:, None, None, :] & real[:, None, :, None]",
        says="padding hidden as keys and as queries",
        why="The rows of the padding follow the same rule as all others. To "
        "empty them gains nothing: nobody reads those outputs, and an empty "
        "row is where NaN comes from.",
        read="05_masks#mask-padding",
    ),
    "upside_down": Bug(
        ".tril()",
        ".triu()",
        says="a triangle that shows what comes later (triu)",
        why="Rows are queries: what a query may see lies on its left, in "
        "the lower left. That is tril.",
        read="05_masks#mask-formula",
    ),
    "not_itself": Bug(
        ".tril()",
        ".tril(-1)",
        says="a triangle without the diagonal, tril(-1)",
        why="A token may see itself. Without that, row 0 is empty.",
        read="further/05_masks#mask-diagonal",
    ),
    "either": Bug(
        "& earlier",
        "| earlier",
        says="either condition is enough (|) instead of both (&)",
        why="Two masks together allow what both allow.",
        read="05_masks#mask-padding",
    ),
    "no_head_axis": Bug(
        "return see",
        "return see[:, 0]",
        says="a mask (B, T, T), without the axis for the heads",
        why="Broadcasting lines up from the right: against (B, H, T, T), "
        "your B would land on H. Leave an axis of size 1 for the heads.",
        read="05_masks#mask-padding",
        otherwise=[("return ~see", "return ~see[:, 0]")],
    ),
    "inverted": Bug(
        "return see",
        "return ~see",
        says="True and False the wrong way round",
        why="A mask is a convention. Say which one it follows, and turn it "
        "round with ~ if yours is the other.",
        read="05_masks#mask-formula",
        otherwise=[("return ~see", "return see")],
    ),
    "sees_next": Bug(
        ".tril()",
        ".tril(1)",
        says="a diagonal that is off by one: each query sees the next token",
        why="j ≤ i: the triangle is tril(), with nothing above the diagonal.",
        read="05_masks#mask-padding",
        alone=True,
    ),
    "triangle_alone": Bug(
        "real[:,",
        "torch.ones_like(real)[:,",
        says="the causal half of the mask alone",
        why="Padding is hidden as well: only real keys with j ≤ i are seen.",
        read="05_masks#mask-padding",
        alone=True,
    ),
    "padding_inverted": Bug(
        "real[:,",
        "~real[:,",
        says="a padding's half upside down: padding is seen, real tokens "
        "are not",
        why="Padding is what is hidden: ids != pad_id are the real tokens.",
        read="05_masks#mask-padding",
        alone=True,
    ),
    "padding_only": Bug(
        "& earlier",
        "& torch.ones_like(earlier)",
        says="the padding's half of the mask alone, for every pair",
        why="No token may look ahead: both conditions count.",
        read="05_masks#mask-padding",
        alone=True,
    ),
}


def _visible_cases(seed: int) -> list[Case]:
    g = generator(seed)
    ids = torch.randint(1, 11, (3, 7), generator=g)
    place = torch.arange(7)
    left = torch.tensor([2, 0, 5])[:, None]
    right = torch.tensor([3, 7, 1])[:, None]
    other = ids[:2].where(place < right[:2], 17)
    other[:, 1] = 0
    return [
        Case((ids, 0), name="no padding"),
        Case((ids.where(place < right, 0), 0), name="padded on the right"),
        Case((ids.where(place >= left, 0), 0), name="padded on the left"),
        Case((other, 17), name="17 is the padding, 0 a real token"),
    ]


# -- implement: rows that see nothing ----------------------------------------
def empty_rows(
    scores: Tensor, mask: Tensor, pull: Tensor
) -> tuple[Tensor, Tensor]:
    """Softmax over the visible keys, zeros for empty rows; and its gradient.

    `scores` and `pull` are `(..., T, S)`. `mask` has the same shape, booleans,
    True = may look. Returned is a pair of that shape: weights, and gradient.
    The weights are the softmax of a row over its visible keys alone; hidden
    keys have weight 0, and a row that sees nothing is all zeros. The gradient
    is that of `(weights · pull).sum()` by the scores: finite everywhere, and 0
    at hidden scores and in empty rows. Both are right for any finite scores,
    also if all are near −10¹⁰. `scores` stays as it was.
    """
    hide = ~mask
    low = torch.finfo(scores.dtype).min
    scores = scores.detach().requires_grad_()
    weights = scores.masked_fill(hide, low).softmax(-1)
    weights = weights.masked_fill(hide, 0.0)
    (gradient,) = torch.autograd.grad(weights, scores, pull)
    return weights, gradient


_EMPTY_ROWS_BUGS = {
    "infinite": Bug(
        "low = torch.finfo(scores.dtype).min",
        'low = -float("inf")',
        "    weights = weights.masked_fill(hide, 0.0)\n",
        "",
        says="−∞ in the hidden cells, and nothing done about empty rows",
        why="A softmax of nothing but −∞ is 0/0, which is NaN. Fill with "
        "the smallest finite number, then set the hidden weights to 0.",
        read="05_masks#mask-padding",
        at="fill",
    ),
    "repaired": Bug(
        "weights = scores.masked_fill(hide, low).softmax(-1)",
        "added = torch.zeros_like(scores).masked_fill(hide, "
        '-float("inf"))\n'
        "    weights = (scores + added).softmax(-1).nan_to_num()",
        says="−∞ added to the scores, and the NaN repaired by nan_to_num",
        why="The softmax remembers its output, and on the way back "
        "multiplies by it: NaN. Never let one arise.",
        read="05_masks#mask-padding",
        at="fill",
    ),
    "small": Bug(
        "low = torch.finfo(scores.dtype).min",
        "low = -1e9",
        says="hidden scores set to −10⁹, as if no score could be lower",
        why="Ask the number format for its smallest: torch.finfo(dtype).min.",
        read="further/05_masks#mask-wrong",
        at="fill",
    ),
    "uniform": Bug(
        "    weights = weights.masked_fill(hide, 0.0)\n",
        "",
        says="hidden weights that are not set to 0 after the softmax",
        why="In an empty row all scores are equal, so all weights are, and "
        "the row looks everywhere. Set hidden weights to 0 at the end.",
        read="further/05_masks#mask-diagonal",
        otherwise=[('low = -float("inf")', 'low = -float("inf")')],
    ),
    "inverted": Bug(
        "~mask",
        "mask",
        says="True and False of the mask the wrong way round",
        why="masked_fill fills where its mask is True: hand it the cells to "
        "hide.",
        read="05_masks#mask-formula",
        otherwise=[("= mask", "= ~mask")],
    ),
    "zero_after": Bug(
        "scores.masked_fill(hide, low)",
        "scores",
        says="hidden weights set to 0 after a softmax over all keys",
        why="Then the visible weights do not sum to 1. Fill the hidden "
        "scores before the softmax, too.",
        read="05_masks#mask-padding",
        alone=True,
    ),
}


def _empty_rows_cases(seed: int) -> list[Case]:
    g = generator(seed)
    scores, pull = randn(g, 2, 2, 5, 7)
    mask = torch.rand(2, 5, 7, generator=g) > 0.4
    mask[..., 3], mask[..., 5] = True, False
    empty = mask.clone()
    empty[0, 1] = empty[1, 4] = False
    empty[1, 2] = True
    # Exact in float32, too, with two values that are far apart.
    low = -(2.0**33) - 4096.0 * (scores < 0).double()
    return [
        Case((scores, mask, pull), name="no row is empty"),
        Case((scores, empty, pull), name="two rows of False, and one of True"),
        Case((low, mask, pull), name="very low scores"),
    ]


# -- debug: True means what? -------------------------------------------------
def true_means(q: Tensor, k: Tensor, v: Tensor, hide: Tensor) -> Tensor:
    """Attention under a mask, one for each sentence.

    `softmax(q kᵀ / √Dh) v` over the keys that a query may see: `q` is
    `(B, H, T, Dh)`, `k` `(B, H, S, Dh)`, `v` `(B, H, S, Dv)`, the result
    `(B, H, T, Dv)`.
    `hide` is the mask, booleans `(B, T, S)`: True means that the query (row)
    may not look at the key (column). `hide[b]` holds for all heads of sentence
    b, whether B and H are equal or not. A hidden key has weight 0, and the
    other weights sum to 1. A query that may see no key gets zeros.
    """
    look = ~hide[:, None]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=look)


_TRUE_MEANS_BUGS = {
    "inverted": Bug(
        "~hide",
        "hide",
        says="the mask used the wrong way round",
        why="F.scaled_dot_product_attention takes True as: may look. Hand "
        "it the opposite of what hides.",
        read="further/05_masks#mask-wrong",
    ),
    "no_head_axis": Bug(
        "hide[:, None]",
        "hide",
        says="a mask (B, T, S) without an axis for the heads",
        why="Lined up from the right, B lands on H: an error, or silently a "
        "mask for each head if B = H. Insert the axis: mask[:, None].",
        read="05_masks#mask-padding",
    ),
    "tiled": Bug(
        "hide[:, None]",
        "hide.repeat(q.size(1), 1, 1).unflatten(0, q.shape[:2])",
        says="the masks repeated one after another, so that heads mix them up",
        why="repeat gives sentence 0, 1, 0, 1, …, and each sentence needs "
        "its own mask for all heads. Broadcasting does it: mask[:, None].",
        read="05_masks#mask-padding",
    ),
    "added": Bug(
        "attn_mask=look",
        "attn_mask=look.to(q.dtype)",
        says="a mask of decimals, which is added to the scores",
        why="Only a boolean mask hides. Decimals are added: +1 for one key "
        "and 0 for the other is a nudge.",
        read="further/05_masks#mask-wrong",
    ),
    "mask_finite": MASK_FINITE.by(
        "return F.scaled_dot_product_attention(q, k, v, attn_mask=look)",
        "scores = q @ k.mT / q.size(-1) ** 0.5\n"
        "    weights = scores.masked_fill(~look, -100.0).softmax(-1)\n"
        "    return weights.masked_fill(~look, 0.0) @ v",
    ),
}


def _true_means_cases(seed: int) -> list[Case]:
    g = generator(seed)

    def case(
        b: int, h: int, name: str, empty: bool = False, low: bool = False
    ) -> Case:
        size = 16 if low else 11
        q, k, v = (randn(g, b, h, *x) for x in ((5, size), (7, size), (7, 13)))
        hide = torch.rand(b, 5, 7, generator=g) > 0.6
        hide[..., 0] = False
        hide[..., 1] = True
        if empty:
            hide[-1, 2] = True
        if low:  # one more term in each sum: all are lower by the same 12,000
            q, k = quarters(q), quarters(k)
            q[..., -1], k[..., -1] = -200.0, 240.0
        return Case((q, k, v, hide), name=name)

    return [
        case(1, 3, "one sentence"),
        case(3, 3, "as many sentences as heads"),
        case(2, 3, "two sentences, three heads"),
        case(2, 3, "a row that sees nothing", empty=True),
        case(2, 3, "large negative scores", low=True),
    ]


_MASKS = (
    "coursekit.causal_mask",
    "coursekit.padding_mask",
    "coursekit.combine_masks",
)

EXERCISES = {
    "is_causal": Exercise(
        is_causal,
        _is_causal_cases,
        bugs=_IS_CAUSAL_BUGS,
        forbid=("coursekit.probe.causality", "coursekit.probe.prefix_gap"),
    ),
    "columns": Exercise(
        columns,
        _columns_cases,
        bugs=_COLUMNS_BUGS,
        alike=[
            (
                {"no_transpose"},
                {"no_transpose", "main_diagonal"},
                "weights @ v raises unless T = S; there diagonals agree",
            )
        ],
        forbid=(*ATTENTION, *_MASKS),
    ),
    "visible": Exercise(
        visible,
        _visible_cases,
        bugs=_VISIBLE_BUGS,
        alike=[
            (
                {"on_the_right", "query_axis"},
                {"on_the_right", "both_axes"},
                "if real tokens come first, no real query has padding before "
                "it",
            )
        ],
        variants={
            "true_hides": Variant(
                "return see",
                "return ~see",
                asks="Here True in the mask means: may *not* look.",
                texts={
                    "upside_down": {
                        "says": "a triangle that hides what came before",
                        "why": "Rows are queries: what a query may not see "
                        "lies on its right, in the upper right. That is "
                        "triu(1).",
                    },
                    "not_itself": {
                        "says": "a triangle that hides the diagonal, too: "
                        "triu()",
                        "why": "A token may see itself: triu(1). Otherwise "
                        "all of row 0 is hidden.",
                    },
                    "either": {
                        "says": "only what both masks hide is hidden (&), "
                        "not what either hides (|)",
                        "why": "Two masks together allow what both allow, so "
                        "they hide what either hides.",
                    },
                    "sees_next": {
                        "why": "j > i is hidden: the triangle is triu(1), "
                        "with nothing on the diagonal.",
                    },
                },
            ),
        },
        forbid=_MASKS,
    ),
    "empty_rows": Exercise(
        empty_rows,
        _empty_rows_cases,
        bugs=_EMPTY_ROWS_BUGS,
        alike=[
            (
                {"infinite"},
                {"infinite", "uniform"},
                "only an empty row would show it, and that row is NaN",
            ),
            (
                {"repaired"},
                {"repaired", "uniform"},
                "nan_to_num has made the empty rows zero already",
            ),
        ],
        variants={
            "true_hides": Variant(
                "~mask",
                "mask",
                asks="Here True in the mask means: may *not* look.",
            ),
        },
        forbid=ATTENTION,
    ),
    "true_means": Exercise(
        true_means,
        _true_means_cases,
        bugs=_TRUE_MEANS_BUGS,
    ),
}
