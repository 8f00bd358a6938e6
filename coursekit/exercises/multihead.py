"""Exercises of chapter 6: references and cases."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from coursekit.attention import attend
from coursekit.config import GPTConfig
from coursekit.decoder import GPT
from coursekit.exercises.core import Case, Exercise, generator
from coursekit.multihead import merge_heads, split_heads
from coursekit.positions import frequencies, rotate_pairs, sinusoidal

Layer = Callable[[Tensor], Tensor]


def _draw(g: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=g, dtype=torch.float64)


def multihead(
    x: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    w_o: Tensor,
    n_heads: int,
) -> Tensor:
    """Cut the columns into heads, attend in each, join, and mix by W_O."""
    q, k, v = (
        (x @ w).unflatten(-1, (n_heads, -1)).transpose(1, 2)
        for w in (w_q, w_k, w_v)
    )
    weights = (q @ k.mT / q.size(-1) ** 0.5).softmax(-1)
    return (weights @ v).transpose(1, 2).flatten(2) @ w_o


def _multihead_cases(seed: int) -> list[Case]:
    g = generator(seed)

    def case(
        b: int, t: int, d: int, h: int, size: int, value: int, name: str
    ) -> Case:
        shapes = (b, t, d), (d, h * size), (d, h * size), (d, h * value)
        parts = [_draw(g, *shape) for shape in (*shapes, (h * value, d))]
        return Case((*parts, h), name=name)

    return [
        case(1, 5, 6, 1, 6, 6, "one head"),
        case(2, 5, 12, 3, 4, 4, "three heads"),
        case(2, 7, 13, 3, 5, 11, "values of another size than keys"),
    ]


def contributions(heads: Tensor, w_o: Tensor) -> Tensor:
    """What each head adds: its output times its own rows of W_O."""
    return heads @ w_o.unflatten(0, (heads.size(1), -1))


def _contributions_cases(seed: int) -> list[Case]:
    g = generator(seed)
    return [
        Case((_draw(g, 1, 2, 3, 5), _draw(g, 10, 7)), name="two heads"),
        Case((_draw(g, 2, 3, 5, 4), _draw(g, 12, 13)), name="a batch of two"),
    ]


def two_heads(
    d_token: int, d_code: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Head 1 looks one back, head 2 three back; W_O holds the minus."""
    token = torch.eye(d_token, dtype=torch.float64)
    code = torch.eye(d_code, dtype=torch.float64)
    turns = []
    for k in (1, 3):
        angles = k * frequencies(d_code).expand(d_code, -1)
        turns.append(rotate_pairs(code, angles.cos(), -angles.sin()))
    w_q = F.pad(100 * torch.cat((code, code), 1), (0, 0, d_token, 0))
    w_k = F.pad(torch.cat(turns, 1), (0, 0, d_token, 0))
    w_v = F.pad(torch.cat((token, token), 1), (0, 0, 0, d_code))
    return w_q, w_k, w_v, torch.cat((token, -token))


def _two_heads_cases(seed: int) -> list[Case]:
    g = generator(seed)
    d_token = int(torch.randint(3, 10, (), generator=g))
    return [
        Case((d_token, 24), name="codes of 24 numbers"),
        Case((5, 38), name="codes of 38 numbers"),
    ]


def _judge_two_heads(value: Any, case: Case) -> str | None:
    d_token, d_code = case.args
    w_q, w_k, w_v, w_o = (w.double() for w in value)
    g, n_tokens = generator(7), 23
    tokens = _draw(g, 3, n_tokens, d_token)
    codes = sinusoidal(n_tokens, d_code).double()
    x = torch.cat((tokens, codes.expand(3, -1, -1)), dim=-1)
    q, k, v = (split_heads(x @ w, 2) for w in (w_q, w_k, w_v))
    y = (merge_heads(attend(q, k, v, causal=True)) @ w_o)[:, 3:]
    wanted = tokens[:, 2:-1] - tokens[:, :-3]
    if y.shape != wanted.shape:
        return f"Each output has {y.size(-1)} numbers, a token {d_token}."
    left = float((y - wanted).square().mean() / wanted.square().mean())
    if left < 0.02:
        return None
    for name, other in (
        ("the token three back minus the token one back", -wanted),
        ("the sum of both tokens", tokens[:, 2:-1] + tokens[:, :-3]),
        ("the token one back alone", tokens[:, 2:-1]),
        ("minus the token three back alone", -tokens[:, :-3]),
    ):
        if float((y - other).square().mean()) < 0.05:
            return f"The heads return {name}."
    return (
        f"An error of {left:.0%} of the variance is left. Where do the two "
        "heads look, and are their weights sharp?"
    )


def treats_tokens_alike(layer: Layer, d_model: int) -> bool:
    """Without a mask, shuffled tokens must give shuffled outputs."""
    x = _draw(generator(5), 2, 7, d_model)
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    return torch.allclose(layer(x[:, order]), layer(x)[:, order])


def _layer(seed: int, split: bool, merge: bool, d: int, h: int) -> Layer:
    """An attention layer; ``split`` and ``merge`` say which half is right."""
    g = generator(seed)
    w_q, w_k, w_v, w_o = (_draw(g, d, d) / d**0.5 for _ in range(4))

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
    return x + x.roll(1, 1) + x.roll(-1, 1)


def _deals_out(x: Tensor) -> Tensor:
    b, t, d = x.shape
    return x.reshape(t, b, d).transpose(0, 1)


def _alike_cases(seed: int) -> list[Case]:
    def layer(split: bool, merge: bool) -> Layer:
        return _layer(seed, split, merge, 12, 3)

    return [
        Case((layer(True, True), 12), name="a right layer"),
        Case((layer(True, False), 12), name="merged without transpose"),
        Case((layer(False, False), 12), name="split and merged by view"),
        Case((layer(False, True), 12), name="split by view only"),
        Case((_copies, 12), name="a layer that only copies"),
        Case((_layer(seed, True, True, 10, 5), 10), name="five heads"),
        Case((_blurs, 12), name="each token mixed with its neighbors"),
        Case((_deals_out, 12), name="batch and time mixed up"),
    ]


class _Heads(nn.Module):
    """Small maps for each head, all of them registered."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.w_q, self.w_k, self.w_v = (
            nn.ModuleList(
                nn.Linear(d_model, d_model // n_heads, bias=False)
                for _ in range(n_heads)
            )
            for _ in range(3)
        )
        self.w_o = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        outputs = []
        for maps in zip(self.w_q, self.w_k, self.w_v, strict=True):
            q, k, v = (w(x) for w in maps)
            weights = (q @ k.mT / q.size(-1) ** 0.5).softmax(-1)
            outputs.append(weights @ v)
        mixed: Tensor = self.w_o(torch.cat(outputs, dim=-1))
        return mixed


def registered(d_model: int, n_heads: int) -> nn.Module:
    """A module all of whose parameters are registered."""
    return _Heads(d_model, n_heads)


def _registered_cases(seed: int) -> list[Case]:
    g = generator(seed)
    size, other = (int(n) for n in torch.randint(3, 50, (2,), generator=g))
    return [
        Case((2 * size, 2), name="two heads"),
        Case((3 * other, 3), name="three heads"),
    ]


def _judge_registered(value: Any, case: Case) -> str | None:
    d_model = case.args[0]
    if not isinstance(value, nn.Module):
        return "Return the module, built for these sizes."
    found, due = sum(p.numel() for p in value.parameters()), 4 * d_model**2
    if found != due:
        return (
            f"It registers {found} parameters and should register {due}: "
            "four matrices of d_model² numbers, cut into heads or not."
        )
    x = torch.randn(2, 5, d_model)
    y = value(x)
    if not isinstance(y, Tensor) or y.shape != x.shape:
        return "Its output must have the shape of its input, (B, T, D)."
    y.square().sum().backward()
    idle = sum(p.grad is None for p in value.parameters())
    if idle:
        return f"{idle} of its parameters get no gradient."
    return None


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
        p.data += 0.3 * _draw(g, *p.shape)
    ids = torch.randint(11, (2, 6), generator=g)
    return [
        Case((model, ids, []), name="no head"),
        Case((model, ids, [(0, 1)]), name="head 1 of layer 0"),
        Case((model, ids, [(1, 2)]), name="head 2 of layer 1"),
        Case((model, ids, [(0, 0), (1, 0), (1, 1)]), name="three heads"),
    ]


EXERCISES = {
    "multihead": Exercise(reference=multihead, cases=_multihead_cases),
    "contributions": Exercise(
        reference=contributions, cases=_contributions_cases
    ),
    "two_heads": Exercise(
        reference=two_heads,
        cases=_two_heads_cases,
        judge=_judge_two_heads,
    ),
    "treats_tokens_alike": Exercise(
        reference=treats_tokens_alike, cases=_alike_cases
    ),
    "registered": Exercise(
        reference=registered,
        cases=_registered_cases,
        judge=_judge_registered,
    ),
    "prune": Exercise(reference=prune, cases=_prune_cases),
}
