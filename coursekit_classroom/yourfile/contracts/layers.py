"""Contracts of single layers."""

import torch
from torch import Tensor, nn

from coursekit_classroom.yourfile.contracts.base import (
    SMALL,
    B,
    ContractError,
    File,
    T,
    V,
    check_tensor,
    kind,
)

MISTAKES = [
    "the scores without 1/√D_h",
    "mask inverted",
    "mask not used",
    "softmax over the queries",
]


def attended(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *wrong: str
) -> Tensor:
    """Attention in float64, one query at a time; or with a mistake."""
    if "mask inverted" in wrong:
        mask = ~mask
    q, k, v = q.double(), k.double(), v.double()
    scale = 1.0 if "the scores without 1/√D_h" in wrong else q.size(-1) ** 0.5
    scores = torch.einsum("bid,bjd->bij", q, k) / scale
    weights = scores.exp()
    if "mask not used" not in wrong:
        weights = weights * mask
    axis = -2 if "softmax over the queries" in wrong else -1
    weights = weights / weights.sum(axis, keepdim=True)
    return torch.einsum("bij,bjd->bid", weights, v)


def random_mask() -> Tensor:
    """For T queries and B keys: each sees one of them at least, none all."""
    mask = torch.rand(T, B) < 0.5
    mask[range(T), torch.arange(T) % B] = True
    mask[range(T), (torch.arange(T) + 2) % B] = False
    return mask


def attention(file: File) -> None:
    """Attention: softmax(q kᵀ / √D_h) v over the keys that the mask shows."""
    q, k, v = torch.randn(2, T, 3), torch.randn(2, B, 3), torch.randn(2, B, 17)
    mask = random_mask()
    wanted = attended(q, k, v, mask)
    actual = check_tensor(
        file["attention"](*(x.clone() for x in (q, k, v, mask))),
        (2, T, 17),
        "attention has for each query the mean of values, in all",
    )
    error = (actual - wanted).abs().max().item()
    if error > 1e-5:
        same = [
            name
            for name in MISTAKES
            if torch.allclose(
                actual.double(),
                attended(q, k, v, mask, name),
                atol=1e-5,
                equal_nan=True,
            )
        ]
        hint = f"It is exactly: {same[0]}. " if same else ""
        raise ContractError(
            "attention agrees with softmax(q kᵀ / √D_h) v, where the mask "
            "is True: got a maximum difference of "
            f"{error:.3f}. {hint}Compare scale, mask and axis."
        )
    if file.chapter >= 6:
        heads = file["attention"](*(x[:, None] for x in (q, k, v)), mask)
        rule = "with an axis of heads before the tokens' it is in all"
        if (check_tensor(heads, (2, 1, T, 17), rule)[:, 0] != actual).any():
            raise ContractError(
                "with an axis of heads, each head is as it would be alone: "
                "got something else for one head. Count axes from the end: "
                "-1, -2."
            )


def mask(file: File) -> None:
    """Mask: the last query sees every key, the one before it one less."""
    for n_queries, n_keys in ((B, B), (3, T), (1, 4)):
        actual = file["mask"](n_queries, n_keys)
        rows, keys = range(n_queries), range(n_keys)
        late = n_keys - n_queries
        wanted = torch.tensor([[j <= i + late for j in keys] for i in rows])
        if not isinstance(actual, Tensor) or actual.dtype != torch.bool:
            raise ContractError(
                "a mask is a boolean tensor, True where a query may look: "
                f"got {getattr(actual, 'dtype', kind(actual))}. Give "
                "dtype=torch.bool."
            )
        actual = check_tensor(
            actual, (n_queries, n_keys), "a mask has a shape"
        )
        if not actual.equal(wanted):
            hint = "Move the diagonal. " if actual.equal(wanted.tril()) else ""
            if actual.equal(~wanted):
                hint = "It is inverted. "
            raise ContractError(
                f"{n_queries} queries are the last of {n_keys} tokens, and "
                f"see {wanted.sum(1).tolist()} keys, one query after the "
                f"other: got {actual.sum(1).tolist()}. {hint}The last query "
                "sees every key."
            )


class Planted(nn.Module):
    """A model of which it is known which position looks where."""

    def __init__(self, looks: Tensor) -> None:
        """Queries in rows, True where a key is looked at."""
        super().__init__()
        self.looks = looks.double()
        table = torch.randn(V, V, dtype=torch.double)
        # The changes of a row's logits add up to 0.
        self.table = table - table.mean(1, keepdim=True)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits (B, T, V) of ids (B, T)."""
        return self.looks @ self.table[ids]


def causality_check(file: File) -> None:
    """Causality check: finds the positions that one token reaches."""
    causal = torch.ones(T, T, dtype=torch.bool).tril()
    leaking = causal.clone()
    leaking[1, 4] = True
    for looks in (causal, leaking, causal.T, causal.tril(-1)):
        model = Planted(looks)
        for at, token in ((0, 0), (4, V - 1), (4, 5), (T - 1, 0)):
            ids = torch.randint(V, (1, T))
            ids[0, at] = token
            actual, expected = file.observe.probe(
                file["probe"], model, ids, at
            )
            if not expected.equal(ids):
                raise ContractError(
                    "the ids that it is given stay as they are: got "
                    f"{expected[0].tolist()} in the place of "
                    f"{ids[0].tolist()}. Change a clone."
                )
            actual = check_tensor(
                torch.as_tensor(actual), (T,), "a number per position, shape"
            )
            reached, wanted = actual > 1e-6, looks[:, at]
            if not reached.equal(wanted):
                raise ContractError(
                    "above 0 is every position whose logits change with the "
                    f"token at {at}, here {wanted.nonzero()[:, 0].tolist()}: "
                    f"got {reached.nonzero()[:, 0].tolist()}. Take another "
                    f"token there, also for token {token} of {V}, and the "
                    "largest absolute difference of each position's logits."
                )


def norm(file: File) -> None:
    """Norm: each position has mean 0 and variance 1, then its gains."""
    d = SMALL.d_model
    layer = file.check_module(file["norm"](d), "a norm")
    weights = file.observe.weights(layer)
    gains = [name for name, w in weights.items() if w.eq(1).all()]
    if [tuple(weights[name].shape) for name in gains] != [(d,)]:
        raise ContractError(
            f"a norm has {d} gains that begin as ones: got parameters of the "
            f"shapes {[tuple(w.shape) for w in weights.values()]}. Make an "
            "nn.Parameter of ones."
        )
    gain = torch.randn(d)
    file.observe.load(layer, {gains[0]: gain})
    x = 3 * torch.randn(B, T, d) + 5 * torch.randn(B, T, 1)
    actual = layer(x.clone())  # theirs to change, ours to compare with
    actual = check_tensor(actual, (B, T, d), "a norm keeps the shape")
    x, gain = x.double(), gain.double()
    centered = x - x.mean(-1, keepdim=True)
    variance = centered.square().mean(-1, keepdim=True)
    wanted = gain * centered / variance.sqrt()
    if (error := (actual - wanted).abs().max().item()) > 1e-3:
        size = x.square().mean(-1, keepdim=True).sqrt()
        over_all = (x - x.mean()) / x.std(correction=0)
        wrong = {
            "without the gains": wanted / gain,
            "the mean is not subtracted": gain * x / size,
            "divided by the variance, not by its root": wanted
            / variance.sqrt(),
            "the variance with D − 1": wanted * ((d - 1) / d) ** 0.5,
            "one mean and variance for all positions": gain * over_all,
        }
        same = [n for n, y in wrong.items() if (actual - y).abs().max() < 1e-3]
        hint = f"It is exactly: {same[0]}. " if same else ""
        raise ContractError(
            "a position's D numbers, before the gains, have mean 0 and "
            "variance 1, whatever stands at other positions: got a maximum "
            f"difference of {error:.3f}. {hint}Take mean and variance over "
            "the last axis alone."
        )
    _, slope = file.observe.gradient(layer, torch.full((1, 2, d), 2.0))
    if slope is None or not slope.isfinite().all():
        raise ContractError(
            f"a vector of {d} equal numbers has a finite result and a "
            "finite gradient: got NaN. Add a small number, 1e-5, to the "
            "variance before the root."
        )


def feed_forward(file: File) -> str:
    """Feed-forward: 4 D numbers and a nonlinearity, each position alone."""
    d = 6
    layer = file.rough(file["feed_forward"](d), "a feed-forward network")
    layer = layer.double()
    x = torch.randn(B, T, d, dtype=torch.double)
    whole = check_tensor(layer(x.clone()), (B, T, d), "it keeps the shape")
    each = x.clone().split(1, dim=1)
    alone = torch.cat([layer(position) for position in each], dim=1)
    if (error := (whole - alone).abs().max().item()) > 1e-6:
        raise ContractError(
            "each position gets by itself what it gets among others: got a "
            f"maximum difference of {error:.3f}. Let all act on the last "
            "axis."
        )
    # Each hidden number adds one direction to the slopes at many points.
    points = torch.randn(1, 20 * d, d, dtype=torch.double)
    slopes = file.observe.slopes(layer, points)  # (D, 1, 20 D, D)
    slopes = slopes.movedim(2, 0).flatten(1)
    width = int(torch.linalg.matrix_rank(slopes, rtol=1e-8))
    if width == 1:
        raise ContractError(
            "between its two matrices stands a nonlinearity: got the same "
            "slope everywhere, which one matrix could have too. Apply GELU "
            "or ReLU to the hidden numbers."
        )
    if width != 4 * d:
        more = " or more" * (width == d * d)
        raise ContractError(
            f"with D = {d} it has {4 * d} hidden numbers, 4 D, each with its "
            f"nonlinearity: got {width}{more}. The first matrix leads from D "
            "to 4 D, the second back."
        )
    return f"{width} hidden numbers for D = {d}"
