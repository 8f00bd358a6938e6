"""Exercises of chapter 6: references and cases."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from coursekit.attention import attend, attention_weights
from coursekit.config import GPTConfig
from coursekit.decoder import GPT
from coursekit.multihead import merge_heads, split_heads
from coursekit.positions import frequencies, rotate_pairs, sinusoidal
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
    NO_SCALE,
    NOT_SHIFTED,
    OVER_QUERIES,
    SCALE_OF_MODEL,
)
from coursekit_classroom.check.forbid import ATTENTION

Layer = Callable[[Tensor], Tensor]


def multihead(
    x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, n_heads: int
) -> Tensor:
    """Cut the columns into heads, attend in each, join, and mix by W_O.

    `x` is `(B, T, D)`; `w_q` and `w_k` are `(D, H · Dh)`, `w_v` is
    `(D, H · Dv)`, `w_o` is `(H · Dv, D)`, and H is `n_heads`. There is no mask
    and no bias. Neither Dh nor Dv need be `D / H`, nor equal.
    Of `x w_q` and `x w_k`, head h (from 0) has the columns
    `h · Dh … (h + 1) · Dh − 1`; of `x w_v`, `h · Dv … (h + 1) · Dv − 1`. It
    computes `softmax(q kᵀ / √Dh) v` over the tokens of its sentence. The
    heads' outputs are joined side by side, in order, `(B, T, H · Dv)`, and
    multiplied by `w_o`. The result is `(B, T, D)`.
    """
    b, t, _ = x.shape
    size, value_size = w_q.size(1) // n_heads, w_v.size(1) // n_heads
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    q, k = (y.reshape(b, t, n_heads, size).transpose(1, 2) for y in (q, k))
    v = v.reshape(b, t, n_heads, value_size).transpose(1, 2)
    scores = q @ k.mT / size**0.5
    weights = scores.softmax(-1)
    y = (weights @ v).transpose(1, 2).reshape(b, t, -1)
    return y @ w_o


_MULTIHEAD_BUGS = {
    "no_scale": Bug(
        " / size**0.5",
        "",
        says="the scores without 1/√d_head",
        why="Each head's scores grow like √d_head. Divide, as one head does.",
        read="06_multihead#mha-formula",
    ),
    "scale_all": Bug(
        "size**0.5",
        "w_q.size(1) ** 0.5",
        says="the scores divided by the root of all heads' columns together",
        why="A score is a product of two vectors of d_head numbers: the "
        "root of that size, not of all the columns.",
        read="06_multihead#mha-formula",
    ),
    "scale_model": Bug(
        "size**0.5",
        "x.size(-1) ** 0.5",
        says="the scores divided by √d_model",
        why="A score is a product of two vectors of d_head numbers, and the "
        "model's width does not enter.",
        read="06_multihead#mha-formula",
    ),
    "one_head": Bug(
        "q, k = (y.reshape(b, t, n_heads, size).transpose(1, 2) "
        "for y in (q, k))\n"
        "    v = v.reshape(b, t, n_heads, value_size).transpose(1, 2)",
        "q, k, v = q[:, None], k[:, None], v[:, None]",
        says="columns for many heads, compared as one long vector",
        why="You projected for all heads, but never split: cut the columns "
        "into heads first, or there is one pattern instead of many.",
        read="06_multihead#mha-code",
    ),
    "split_view": Bug(
        "reshape(b, t, n_heads, size).transpose(1, 2)",
        "reshape(b, n_heads, t, size)",
        "reshape(b, t, n_heads, value_size).transpose(1, 2)",
        "reshape(b, n_heads, t, value_size)",
        says="heads cut by view(B, H, T, d_head), without a transpose",
        why="These heads are stretches of time. Cut the last axis, view(B, "
        "T, H, d_head), and then swap the axes.",
        read="further/06_multihead#mha-wrong",
    ),
    "merge_view": Bug(
        "(weights @ v).transpose(1, 2)",
        "(weights @ v)",
        says="heads merged without swapping the axes back",
        why="reshape on (B, H, T, d_head) mixes the tokens up: transpose(1, "
        "2) first.",
        read="further/06_multihead#mha-wrong",
    ),
    "over_queries": OVER_QUERIES.by(
        "softmax(-1)",
        "softmax(-2)",
    ),
    "no_output": Bug(
        "y @ w_o",
        "y",
        says="the heads joined, but not mixed by W_O",
        why="Without W_O the heads cannot speak to one another, and their "
        "columns stay where they are.",
        read="06_multihead#mha-concat-or-add",
    ),
    "scale_share": Bug(
        "size**0.5",
        "(x.size(-1) / n_heads) ** 0.5",
        says="the scores divided by √(d_model/H), whatever size the heads "
        "have",
        why="A score is a product of two vectors of d_head numbers. That "
        "d_head is d_model/H is usual, and no law.",
        read="06_multihead#mha-formula",
        alone=True,
    ),
    "dealt": Bug(
        "reshape(b, t, n_heads, size).transpose(1, 2)",
        "reshape(b, t, size, n_heads).permute(0, 3, 1, 2)",
        "reshape(b, t, n_heads, value_size).transpose(1, 2)",
        "reshape(b, t, value_size, n_heads).permute(0, 3, 1, 2)",
        says="heads that get every H-th column, not columns side by side",
        why="The first d_head columns belong to head 1: view(B, T, H, "
        "d_head), not view(B, T, d_head, H).",
        read="further/06_multihead#mha-wrong",
        alone=True,
    ),
}


def _multihead_cases(seed: int) -> list[Case]:
    g = generator(seed)

    def case(
        b: int, t: int, d: int, h: int, size: int, value: int, name: str
    ) -> Case:
        shapes = (b, t, d), (d, h * size), (d, h * size), (d, h * value)
        parts = [randn(g, *shape) for shape in (*shapes, (h * value, d))]
        return Case((*parts, h), name=name)

    return [
        case(1, 5, 6, 1, 6, 6, "one head"),
        case(2, 5, 12, 3, 4, 4, "three heads"),
        case(2, 5, 13, 3, 5, 5, "heads of another size than d_model/H"),
        case(2, 7, 13, 3, 5, 11, "values of another size than keys"),
    ]


def contributions(heads: Tensor, w_o: Tensor) -> Tensor:
    """What each head adds to the output: its own output times its rows of W_O.

    `heads` is `(B, H, T, Dv)`, the outputs of all heads. `w_o` is
    `(H · Dv, D)`; it is made for heads that stand side by side, in order, so
    head h (from 0) has the rows `h · Dv … (h + 1) · Dv − 1`.
    The result is `(B, H, T, D)`. Its sum over the heads is the layer's output:
    the heads joined, `(B, T, H · Dv)`, times `w_o`.
    """
    n_heads = heads.size(1)
    rows = w_o.unflatten(0, (n_heads, -1))
    added = heads @ rows
    return added


_CONTRIBUTIONS_BUGS = {
    "dealt": Bug(
        "(n_heads, -1))",
        "(-1, n_heads)).transpose(0, 1)",
        says="the rows of W_O given to the heads in turns",
        why="The heads stand side by side: the first d_head rows belong to "
        "head 1, the next to head 2. view(H, d_head, D), not view(d_head, H, "
        "D).",
        read="06_multihead#mha-concat-or-add",
    ),
    "summed": Bug(
        "heads @ rows",
        "(heads @ rows).sum(1)",
        says="what all heads add together, already summed",
        why="The sum is the layer's output. What each head adds was asked "
        "for: keep the axis of the heads.",
        read="06_multihead#mha-concat-or-add",
        alone=True,
    ),
}


def _contributions_cases(seed: int) -> list[Case]:
    g = generator(seed)
    return [
        Case((randn(g, 1, 2, 3, 5), randn(g, 10, 7)), name="two heads"),
        Case((randn(g, 2, 3, 5, 4), randn(g, 12, 13)), name="a batch of two"),
    ]


def two_heads(
    d_token: int, d_code: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Matrices for two heads: the token one back minus the one three back.

    Each row of `x` is a token of `d_token` numbers, then its place's code of
    `d_code`: the paper's sinusoids, interleaved. Returned are `w_q` and `w_k`,
    `(D, 2 · d_code)`, `w_v`, `(D, 2 · d_token)`, and `w_o`,
    `(2 · d_token, d_token)`, with `D = d_token + d_code`.
    They are right if causal attention with two heads and no biases, its scores
    over `√d_code`, returns nearly `token[t − 1] − token[t − 3]` at each place
    t from 3 on: among 23 random tokens, with a mean squared error below 2 % of
    the mean square of that. Many matrices are right.
    """
    token = torch.eye(d_token, dtype=torch.float64)
    code = torch.eye(d_code, dtype=torch.float64)
    turns = []
    for k in (1, 3):
        angles = k * frequencies(d_code).expand(d_code, -1)
        turns.append(rotate_pairs(code, angles.cos(), -angles.sin()))
    w_q = F.pad(100 * torch.cat((code, code), 1), (0, 0, d_token, 0))
    w_k = F.pad(torch.cat(turns, 1), (0, 0, d_token, 0))
    w_v = F.pad(torch.cat((token, token), 1), (0, 0, 0, d_code))
    w_o = torch.cat((token, -token))
    return w_q, w_k, w_v, w_o


_TWO_HEADS_BUGS = {
    "no_minus": Bug(
        "-token",
        "token",
        says="two heads that are added, without the minus",
        why="Weights are positive: the minus has to stand in W_O (or in one "
        "head's W_V).",
        read="06_multihead#mha-two-places",
    ),
    "swapped": Bug(
        "(token, -token)",
        "(-token, token)",
        says="the token three back minus the token one back",
        why="The minus belongs to the head that looks three back.",
        read="06_multihead#mha-two-places",
    ),
    "ahead": Bug(
        "angles = k",
        "angles = -k",
        says="heads that look ahead: the keys turned the wrong way",
        why="Each key has to present itself as if it stood later: turn the "
        "keys by R, or the queries back, not the other way round.",
        read="further/06_multihead#mha-look-back",
    ),
    "blurred": Bug(
        "100 * torch",
        "torch",
        says="queries that are not made large, so that the weights are not "
        "sharp",
        why="The right key has the largest score, but its neighbors' are "
        "close. A larger W_Q makes the softmax sharper.",
        read="further/06_multihead#mha-look-back",
    ),
}


def _two_heads_cases(seed: int) -> list[Case]:
    g = generator(seed)
    d_token = int(torch.randint(3, 10, (), generator=g))
    return [
        Case((d_token, 24), name="codes of 24 numbers"),
        Case((5, 38), name="codes of 38 numbers"),
    ]


def _tokens_and_codes(case: Case) -> tuple[Tensor, Tensor]:
    """Random tokens (3, 23, d_token), and with their codes beside them."""
    d_token, d_code = case.args
    tokens = randn(generator(7), 3, 23, d_token)
    codes = sinusoidal(23, d_code).double().expand(3, -1, -1)
    return tokens, torch.cat((tokens, codes), dim=-1)


def _output(value: Any, x: Tensor) -> Tensor:
    """What two causal heads make of ``x`` with these four matrices."""
    w_q, w_k, w_v, w_o = (w.double() for w in value)
    q, k, v = (split_heads(x @ w, 2) for w in (w_q, w_k, w_v))
    y: Tensor = merge_heads(attend(q, k, v, causal=True)) @ w_o
    return y


def _judge_two_heads(value: Any, case: Case) -> str | None:
    tokens, x = _tokens_and_codes(case)
    y = _output(value, x)[:, 3:]
    wanted = tokens[:, 2:-1] - tokens[:, :-3]
    if y.shape != wanted.shape:
        return (
            f"Each output has {y.size(-1)} numbers, a token {wanted.size(-1)}."
        )
    left = float((y - wanted).square().mean() / wanted.square().mean())
    if left < 0.02:
        return None
    return (
        f"An error of {left:.0%} of the variance is left. Where do the two "
        "heads look, and are their weights sharp?"
    )


def _view_two_heads(value: Any, case: Case) -> tuple[list[Any], bool]:
    """For each head how far back it looks, how sharply, and its factor.

    Then whether this is all that the heads do.
    """
    tokens, x = _tokens_and_codes(case)
    w_q, w_k, w_v, w_o = (w.double() for w in value)
    q, k = (split_heads(x @ w, 2) for w in (w_q, w_k))
    weights = attention_weights(q, k)[:, :, 8:15].mean(0)
    values = w_v[: tokens.size(-1)].chunk(2, dim=1)
    heads = []
    predicted = torch.zeros_like(tokens[:, 8:15])
    for weight, to, out in zip(weights, values, w_o.chunk(2), strict=True):
        share, key = weight.max(dim=-1)
        back = int((torch.arange(8, 15) - key).median())
        factor = round(float((to @ out).diagonal().mean()), 2)
        heads.append((back, bool(share.mean() > 0.5), factor))
        predicted += factor * tokens[:, 8 - back : 15 - back]
    left = (_output(value, x)[:, 8:15] - predicted).square().mean()
    return sorted(heads), bool(left < 0.05)


def treats_tokens_alike(layer: Layer, d_model: int) -> bool:
    """Whether neither a token's place nor other sentences matter to a layer.

    `layer` maps `(B, T, d_model)` in float64 to the same shape, for any B and
    any T above 2; it is a black box. The result is True if this holds: when
    the tokens of one sentence change places, its outputs change places in the
    same way, and the outputs of the other sentences stay. Differences by
    rounding do not count. For a layer that only copies it holds.
    For every other layer the result is False: if neighbors or earlier tokens
    count differently, if a single place is special, if tokens or heads get
    mixed up when cut or joined, or if a sentence reads another.
    """
    x = torch.randn(2, 7, d_model, dtype=torch.float64)
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    other, wanted = x.clone(), layer(x).clone()
    other[0] = x[0, order]
    wanted[0] = wanted[0, order]
    outputs = layer(other)
    return torch.allclose(outputs, wanted)


_ALIKE_BUGS = {
    "invariant": Bug(
        "wanted[0, order]",
        "wanted[0]",
        says="a test that accepts none: shuffled tokens, the same outputs",
        why="If the tokens change places, so do their outputs: shuffle "
        "those as well before you compare.",
        read="further/06_multihead#mha-wrong",
        at="compare",
    ),
    "exact": EXACT.by(
        "torch.allclose",
        "torch.equal",
        says="a test that wants the outputs equal to the last bit",
        read="further/06_multihead#mha-wrong",
        at="compare",
    ),
    "same_shuffle": Bug(
        "other[0] = x[0, order]",
        "other = x[:, order]",
        "wanted[0] = wanted[0, order]",
        "wanted = wanted[:, order]",
        says="a test that shuffles all sentences in the same way",
        why="A layer that attends over the batch instead of the tokens "
        "shuffles along. Shuffle one sentence, and leave the other as it is.",
        read="further/06_multihead#mha-wrong",
        at="batch",
        otherwise=[("other[0] = x[0, order]", "other = x[:, order]")],
    ),
    "copies": Bug(
        "torch.allclose(outputs, wanted)",
        "torch.equal(layer(x), x)",
        says="a test of whether the layer returns its input",
        why="A layer may compute anything, if it does the same for every "
        "token: shuffle the tokens and compare.",
        read="further/06_multihead#mha-wrong",
        alone=True,
    ),
}


def _layer(seed: int, split: bool, merge: bool, d: int, h: int) -> Layer:
    """An attention layer; ``split`` and ``merge`` say which half is right."""
    g = generator(seed)
    w_q, w_k, w_v, w_o = (randn(g, d, d) / d**0.5 for _ in range(4))

    def layer(x: Tensor) -> Tensor:
        b, t, _ = x.shape

        def cut(y: Tensor) -> Tensor:
            if split:
                return y.view(b, t, h, -1).transpose(1, 2)
            return y.view(b, h, t, -1)

        q, k, v = cut(x @ w_q), cut(x @ w_k), cut(x @ w_v)
        y = (q @ k.mT / q.size(-1) ** 0.5).softmax(-1) @ v
        y = y.transpose(1, 2) if merge else y
        return y.reshape(b, t, d) @ w_o

    return layer


def _copies(x: Tensor) -> Tensor:
    return x.clone()


def _blurs(x: Tensor) -> Tensor:
    return x + (x.roll(1, 1) + x.roll(-1, 1))


def _marks(x: Tensor) -> Tensor:
    y = x.clone()
    y[:, 2] += 1
    return y


def _over_the_batch(x: Tensor) -> Tensor:
    y = x.transpose(0, 1)
    return ((y @ y.mT / y.size(-1)).softmax(-1) @ y).transpose(0, 1)


def _deals_out(x: Tensor) -> Tensor:
    b, t, d = x.shape
    return x.reshape(t, b, d).transpose(0, 1)


def _doubles(x: Tensor) -> Tensor:
    return 2 * x


def _alike_cases(seed: int) -> list[Case]:
    def layer(split: bool, merge: bool) -> Layer:
        return _layer(seed, split, merge, 12, 3)

    return [
        Case((layer(True, True), 12), name="a right layer"),
        Case((layer(True, False), 12), name="merged without transpose"),
        Case((_copies, 12), name="a layer that only copies"),
        Case((_doubles, 12), name="a layer that doubles every number"),
        Case((_blurs, 12), name="each token mixed with its neighbors"),
        Case((_marks, 12), name="something added at position 2"),
        Case((_deals_out, 12), name="batch and time mixed up"),
        Case((_over_the_batch, 12), name="attention over the batch"),
    ]


def registered(d_model: int, n_heads: int) -> nn.Module:
    """A module all of whose parameters are registered."""
    size = d_model // n_heads

    def one() -> nn.Module:
        return nn.Linear(d_model, size, bias=False)

    def maps() -> nn.ModuleList:
        return nn.ModuleList(one() for _ in range(n_heads))

    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w_q, self.w_k, self.w_v = maps(), maps(), maps()
            self.w_o = nn.Linear(d_model, d_model, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            outputs = []
            for maps in zip(self.w_q, self.w_k, self.w_v, strict=True):
                q, k, v = (w(x) for w in maps)
                weights = (q @ k.mT / size**0.5).softmax(-1)
                outputs.append(weights @ v)
            return self.w_o(torch.cat(outputs, dim=-1))

    return Heads()


_REGISTERED_BUGS = {
    "list": Bug(
        "return nn.ModuleList",
        "return list",
        says="modules kept in a plain list, or in a class that is no "
        "nn.Module",
        why="PyTorch finds parameters in attributes that are modules. A "
        "list hides them: take nn.ModuleList, and modules for its items.",
        read="further/06_multihead#mha-wrong",
    ),
    "one_for_all": Bug(
        "one() for _ in range(n_heads)",
        "[one()] * n_heads",
        says="one head, n times the same",
        why="[head] * n holds one head n times. Make a new one for each.",
        read="further/06_multihead#mha-wrong",
    ),
    "no_output": Bug(
        "nn.Linear(d_model, d_model, bias=False)",
        "nn.Identity()",
        says="no W_O",
        why="Three projections for each head, and a fourth matrix for all: "
        "four times d_model².",
        read="further/06_multihead#mha-wrong",
    ),
    "bias": Bug(
        "size, bias=False",
        "size, bias=True",
        "d_model, bias=False",
        "d_model, bias=True",
        says="maps with biases",
        why="Here the maps have none: bias=False.",
        read="further/06_multihead#mha-wrong",
        otherwise=[("size, bias=False", "size, bias=True")],
    ),
    "no_scale": NO_SCALE.by(
        " / size**0.5",
        "",
        alone=True,
    ),
    "by_model": SCALE_OF_MODEL.by(
        "size**0.5",
        "d_model**0.5",
        alone=True,
    ),
}


def _registered_cases(seed: int) -> list[Case]:
    g = generator(seed)
    size, other = (int(n) for n in torch.randint(3, 50, (2,), generator=g))
    return [
        Case((2 * size, 2), name="two heads"),
        Case((3 * other, 3), name="three heads"),
    ]


def _random_input(module: nn.Module, d_model: int) -> Tensor:
    """Vectors in the precision of a module's own numbers."""
    first = next(module.parameters(), torch.empty(0))
    x = torch.randn(2, 5, d_model, generator=generator(d_model))
    return x.to(first.dtype)


@torch.no_grad()
def _with(
    module: nn.Module, x: Tensor, change: Callable[[int, Tensor], Tensor]
) -> Tensor:
    """What a module makes of x while its parameters, numbered, are changed."""
    parameters = list(module.parameters())
    old = [w.clone() for w in parameters]
    for number, w in enumerate(parameters):
        w.copy_(change(number, old[number]))
    try:
        y: Tensor = module(x)
    finally:
        for w, values in zip(parameters, old, strict=True):
            w.copy_(values)
    return y


def _alike_filled(module: nn.Module, case: Case, x: Tensor) -> Tensor:
    """What a module makes of x if all its parameters are the same number.

    Which of them are the queries', and how they are cut, does not matter.
    """
    d_model, n_heads = case.args
    same = (d_model * (d_model / n_heads) ** 0.5) ** -0.5
    return _with(module, x, lambda _, w: torch.full_like(w, same))


def _left_as_it_is(
    module: nn.Module, x: Tensor, change: Callable[[Tensor], Tensor]
) -> int:
    """Size of the parameters that can change without a change of y."""
    size, y = 0, _with(module, x, lambda _, w: 3 * w)
    for at, parameter in enumerate(module.parameters()):

        def one(number: int, w: Tensor, at: int = at) -> Tensor:
            return 3 * (change(w) if number == at else w)

        alike = torch.allclose(_with(module, x, one), y, 1e-3, 1e-3)
        size += parameter.numel() * alike
    return size


def _judge_registered(value: Any, case: Case) -> str | None:
    d_model = case.args[0]
    if not isinstance(value, nn.Module):
        return "Return the module, built for these sizes."
    n_found, due = sum(p.numel() for p in value.parameters()), 4 * d_model**2
    if n_found != due:
        return (
            f"It registers {n_found} parameters and should register {due}: "
            "four matrices of d_model² numbers, cut into heads or not."
        )
    x = _random_input(value, d_model)
    y = value(x)
    if not isinstance(y, Tensor) or y.shape != x.shape:
        return "Its output must have the shape of its input, (B, T, D)."
    y.square().sum().backward()
    idle = sum(p.grad is None for p in value.parameters())
    if idle:
        return f"{idle} of its parameters get no gradient."
    due = _alike_filled(registered(*case.args), case, x)
    if not torch.allclose(_alike_filled(value, case, x), due, 1e-3, 1e-3):
        return (
            "With all its parameters set to the same number, its output is "
            "not that of softmax(q kᵀ / √D_h) v in each head, and a map of "
            "all heads."
        )
    return None


def _view_registered(value: Any, case: Case) -> Any:
    """What is registered, idle, unused or of either sign, and what it does.

    Sizes are compared as texts: they have to be exact.
    """
    x = _random_input(value, case.args[0])
    value(x).square().sum().backward()
    n_found = sum(p.numel() for p in value.parameters())
    idle = sum(p.numel() for p in value.parameters() if p.grad is None)
    if n_found != 4 * case.args[0] ** 2:  # what is not found cannot be changed
        return f"{n_found} {idle}"
    unused = _left_as_it_is(value, x, lambda w: w + 1)
    even = _left_as_it_is(value, x, lambda w: -w)
    return f"{n_found} {idle} {unused} {even}", _alike_filled(value, case, x)


def prune(
    model: nn.Module, ids: Tensor, heads: Sequence[tuple[int, int]]
) -> Tensor:
    """The loss on next tokens without some heads, as (layer, head)."""
    model = copy.deepcopy(model)
    for layer, head in heads:
        attention = model.blocks[layer].attention  # type: ignore
        w_o = attention.w_o.weight.data
        size = w_o.size(1) // attention.n_heads
        w_o[:, head * size : (head + 1) * size] = 0
    logits = model(ids[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


_PRUNE_BUGS = {
    "not_shifted": NOT_SHIFTED.by(
        "ids[:, 1:]",
        "ids[:, :-1]",
        says="a loss on the tokens that the model reads, not on the next ones",
        read="further/06_multihead#mha-prune",
    ),
    "rows": Bug(
        "w_o[:, head * size",
        "w_o[head * size",
        says="a head's rows of w_o.weight set to 0, not its columns",
        why="PyTorch stores a linear map transposed, (D, H · Dh): what "
        "comes from a head stands in its columns.",
        read="further/06_multihead#mha-prune",
        at="slice",
    ),
}


def _prune_cases(seed: int) -> list[Case]:
    g = generator(seed)
    config = GPTConfig(
        vocab_size=11,
        max_len=7,
        d_model=15,
        n_heads=3,
        n_layers=2,
        d_ff=13,
        positions="learned",
        dropout=0.0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = GPT(config).double().eval()
    for p in model.parameters():
        p.data += 0.3 * randn(g, *p.shape)
    ids = torch.randint(11, (2, 6), generator=g)
    return [
        Case((model, ids, []), name="no head"),
        Case((model, ids, [(0, 1)]), name="head 1 of layer 0"),
        Case((model, ids, [(0, 0), (1, 0), (1, 1)]), name="three heads"),
    ]


EXERCISES = {
    "multihead": Exercise(
        multihead,
        _multihead_cases,
        bugs=_MULTIHEAD_BUGS,
        alike=[
            (
                {"one_head"},
                {"one_head", "merge_view"},
                "with one head there is nothing to swap",
            ),
        ],
        variants={
            "causal": Variant(
                "weights = scores.softmax",
                "later = torch.ones(t, t, dtype=torch.bool).triu(1)\n"
                '    scores = scores.masked_fill(later, float("-inf"))\n'
                "    weights = scores.softmax",
                asks="Here attention is causal: a token sees itself and "
                "what came before it.",
            ),
        },
        forbid=(*ATTENTION, "coursekit.MultiHeadAttention"),
    ),
    "contributions": Exercise(
        contributions,
        _contributions_cases,
        bugs=_CONTRIBUTIONS_BUGS,
        variants={
            "heads_last": Variant(
                "return added",
                "return added.transpose(1, 2)",
                asks="Here the result has the shape (B, T, H, D): for "
                "each token, what each head adds.",
            ),
        },
    ),
    "two_heads": Exercise(
        two_heads,
        _two_heads_cases,
        judge=_judge_two_heads,
        bugs=_TWO_HEADS_BUGS,
        view=_view_two_heads,
    ),
    "treats_tokens_alike": Exercise(
        treats_tokens_alike,
        _alike_cases,
        bugs=_ALIKE_BUGS,
        alike=[
            (
                {"invariant"},
                {"invariant", "same_shuffle"},
                "a test that rejects every layer asks nothing else",
            )
        ],
    ),
    "registered": Exercise(
        registered,
        _registered_cases,
        judge=_judge_registered,
        bugs=_REGISTERED_BUGS,
        alike=[
            (
                {"list"},
                {"list", "one_for_all"},
                "what is not registered is in no count and gets no gradient",
            )
        ],
        rtol=1e-3,  # of what a module in float32 makes of numbers like these
        atol=1e-3,
        view=_view_registered,
        local="the answer is a module, and a module cannot leave a sandbox",
    ),
    "prune": Exercise(
        prune,
        _prune_cases,
        bugs=_PRUNE_BUGS,
        keeps_models=True,
        local="the model that is handed over is a module",
    ),
}
