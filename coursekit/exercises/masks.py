"""Exercises of chapter 5: references and cases."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from coursekit.exercises.core import Case, Exercise, generator

Model = Callable[[Tensor], Tensor]


def is_causal(model: Model, vocab_size: int, length: int) -> bool:
    """Change each token to every other: nothing before it may move."""
    ids = torch.arange(length)[None] % vocab_size
    before = model(ids)
    for t in range(1, length):
        for token in range(vocab_size):
            other = ids.clone()
            other[:, t] = token
            if not torch.allclose(before[:, :t], model(other)[:, :t]):
                return False
    return True


def _attention_model(
    seed: int, size: int, weigh: Callable[[Tensor], Tensor]
) -> Model:
    """One head on random vectors; ``weigh`` makes weights of the scores."""
    g = generator(seed)
    table, *maps = (
        torch.randn(n, 5, generator=g, dtype=torch.float64)
        for n in (size, 5, 5, 5)
    )
    places = torch.randn(23, 5, generator=g, dtype=torch.float64)

    def model(ids: Tensor) -> Tensor:
        x = table[ids] + places[: ids.size(1)]
        q, k, v = (x @ w for w in maps)
        return (x + weigh(q @ k.mT / 5**0.5) @ v) @ table.T

    return model


def _whispering_model(model: Model, position: int, token: int) -> Model:
    """Right, but for one position, which knows if one token comes next."""

    def leaky(ids: Tensor) -> Tensor:
        logits = model(ids).clone()
        logits[:, position, 0] += (ids[:, position + 1] == token).double()
        return logits

    return leaky


def _norm_over_time(model: Model) -> Model:
    def normalized(ids: Tensor) -> Tensor:
        y = model(ids)
        return (y - y.mean(1, keepdim=True)) / y.std(1, keepdim=True)

    return normalized


def _is_causal_cases(seed: int) -> list[Case]:
    size, length = 7, 5
    ones = torch.ones(length, length, dtype=torch.bool)
    inf, see, ahead = float("inf"), ones.tril(), ones.triu(1)

    def right(s: Tensor) -> Tensor:
        hide = torch.ones_like(s, dtype=torch.bool).triu(1)
        return s.masked_fill(hide, -inf).softmax(-1)

    weigh = {
        "a causal model": right,
        "another causal model": lambda s: (
            (a := s.softmax(-1) * see) / a.sum(-1, keepdim=True)
        ),
        "a model without attention": torch.zeros_like,
        "no mask": lambda s: s.softmax(-1),
        "the past hidden": lambda s: s.masked_fill(
            ones.tril(-1), -inf
        ).softmax(-1),
        "one token too far": lambda s: s.masked_fill(
            ones.triu(2), -inf
        ).softmax(-1),
        "scores times 0": lambda s: (s * see).softmax(-1),
        "a fill that is too small": lambda s: s.masked_fill(
            ahead, -1e-9
        ).softmax(-1),
        "the mask after the softmax": lambda s: s.softmax(-1) * see,
        "the softmax over the queries": lambda s: s.masked_fill(
            ahead, -inf
        ).softmax(-2),
        "the diagonal hidden": lambda s: s.masked_fill(
            ones.triu(), -1e9
        ).softmax(-1),
    }
    models = {
        name: _attention_model(seed + i, size, w)
        for i, (name, w) in enumerate(weigh.items())
    }
    good = _attention_model(seed + 50, size, right)
    models["a norm over the positions"] = _norm_over_time(good)
    tokens = torch.randperm(size, generator=generator(seed)).tolist()
    for position in (0, 2, length - 2):
        name = f"a leak at position {position} for one token"
        models[name] = _whispering_model(good, position, tokens[position])
    return [
        Case((model, size, length), name=name)
        for name, model in models.items()
    ]


def columns(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Causal attention with keys as rows and queries as columns."""
    scores = k @ q.mT / q.size(-1) ** 0.5
    ones = torch.ones_like(scores, dtype=torch.bool)
    hide = ones.tril(-1 - (k.size(-2) - q.size(-2)))
    weights = scores.masked_fill(hide, float("-inf")).softmax(dim=-2)
    return weights, weights.mT @ v


def _columns_cases(seed: int) -> list[Case]:
    g = generator(seed)

    def qkv(*shape: int, t: int, s: int) -> tuple[Tensor, ...]:
        return tuple(
            torch.randn(*shape, n, d, generator=g, dtype=torch.float64)
            for n, d in ((t, 11), (s, 11), (s, 13))
        )

    return [
        Case(qkv(t=5, s=5), name="as many keys as queries"),
        Case(qkv(t=3, s=7), name="three new queries, seven keys"),
        Case(qkv(t=1, s=7), name="one new query"),
        Case(qkv(2, 3, t=5, s=7), name="batch and heads"),
    ]


def visible(ids: Tensor, pad_id: int) -> Tensor:
    """True where the key is a real token and not ahead of the query."""
    real = (ids != pad_id)[:, None, None, :]
    size = ids.size(1)
    return real & torch.ones(size, size, dtype=torch.bool).tril()


def _visible_cases(seed: int) -> list[Case]:
    g = generator(seed)
    ids = torch.randint(1, 11, (3, 7), generator=g)
    place = torch.arange(7)
    left = torch.tensor([2, 0, 5])[:, None]
    right = torch.tensor([3, 7, 1])[:, None]
    return [
        Case((ids, 0), name="no padding"),
        Case((ids.where(place < right, 0), 0), name="padded right"),
        Case((ids.where(place >= left, 0), 0), name="padded left"),
        Case(
            (ids[:2].where(place < right[:2], 17), 17),
            name="token 17 is the padding",
        ),
    ]


def empty_rows(
    scores: Tensor, mask: Tensor, pull: Tensor
) -> tuple[Tensor, Tensor]:
    """Softmax over visible keys, zeros for empty rows; and its gradient."""
    scores = scores.detach().requires_grad_()
    low = torch.finfo(scores.dtype).min
    weights = scores.masked_fill(~mask, low).softmax(-1)
    weights = weights.masked_fill(~mask, 0.0)
    (gradient,) = torch.autograd.grad(weights, scores, pull)
    return weights, gradient


def _empty_rows_cases(seed: int) -> list[Case]:
    g = generator(seed)
    scores, pull = torch.randn(2, 2, 5, 7, generator=g, dtype=torch.float64)
    mask = torch.rand(2, 5, 7, generator=g) > 0.4
    mask[..., 3] = True
    empty = mask.clone()
    empty[0, 1] = empty[1, 4] = False
    return [
        Case((scores, mask, pull), name="no row is empty"),
        Case((scores, empty, pull), name="two empty rows"),
        Case((scores - 1e10, mask, pull), name="very low scores"),
        Case((scores, torch.zeros_like(mask), pull), name="all empty"),
    ]


def true_means(q: Tensor, k: Tensor, v: Tensor, hide: Tensor) -> Tensor:
    """Attention under a mask (B, T, S), True = may not look."""
    look = ~hide[:, None]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=look)


def _true_means_cases(seed: int) -> list[Case]:
    g = generator(seed)

    def draw(b: int, h: int, empty: bool = False) -> tuple[Tensor, ...]:
        q, k, v = (
            torch.randn(b, h, n, d, generator=g, dtype=torch.float64)
            for n, d in ((5, 11), (7, 11), (7, 13))
        )
        hide = torch.rand(b, 5, 7, generator=g) > 0.6
        hide[..., 0] = False
        if empty:
            hide[-1, 2] = True
        return q, k, v, hide

    return [
        Case(draw(1, 3), name="one sentence"),
        Case(draw(2, 3), name="two sentences, three heads"),
        Case(draw(3, 3), name="as many sentences as heads"),
        Case(draw(2, 3, empty=True), name="a row that sees nothing"),
    ]


EXERCISES = {
    "is_causal": Exercise(reference=is_causal, cases=_is_causal_cases),
    "columns": Exercise(reference=columns, cases=_columns_cases),
    "visible": Exercise(reference=visible, cases=_visible_cases),
    "empty_rows": Exercise(reference=empty_rows, cases=_empty_rows_cases),
    "true_means": Exercise(reference=true_means, cases=_true_means_cases),
}
