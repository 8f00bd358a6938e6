"""Answers to the exercises of chapter 6."""

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

from coursekit import attend
from coursekit.positions import frequencies, rotate_pairs
from tests.answers import right, wrong

# -- multihead ---------------------------------------------------------------


@right("multihead/multihead")
def multihead_added_up(x, w_q, w_k, w_v, w_o, n_heads):
    out = 0
    for wq, wk, wv, wo in zip(
        w_q.chunk(n_heads, 1),
        w_k.chunk(n_heads, 1),
        w_v.chunk(n_heads, 1),
        w_o.chunk(n_heads, 0),
        strict=True,
    ):
        scores = x @ wq @ (x @ wk).mT
        weights = (scores / math.sqrt(wq.size(1))).softmax(-1)
        out = out + weights @ (x @ wv) @ wo
    return out


@right("multihead/multihead")
def multihead_as_a_sum(x, w_q, w_k, w_v, w_o, n_heads):
    total = 0
    blocks = zip(
        w_q.chunk(n_heads, 1),
        w_k.chunk(n_heads, 1),
        w_v.chunk(n_heads, 1),
        w_o.chunk(n_heads, 0),
    )
    for a, b, c, d in blocks:
        scores = (x @ a) @ (x @ b).mT / math.sqrt(a.size(1))
        total = total + scores.softmax(-1) @ (x @ c) @ d
    return total


@right("multihead/multihead")
def multihead_einsum(x, w_q, w_k, w_v, w_o, n_heads):
    d = x.shape[-1]
    q = torch.einsum("btd,dhe->bhte", x, w_q.reshape(d, n_heads, -1))
    k = torch.einsum("btd,dhe->bhte", x, w_k.reshape(d, n_heads, -1))
    v = torch.einsum("btd,dhe->bhte", x, w_v.reshape(d, n_heads, -1))
    weights = torch.einsum("bhte,bhse->bhts", q, k).div(q.size(-1) ** 0.5)
    heads = torch.einsum("bhts,bhse->bhte", weights.softmax(-1), v)
    return torch.einsum(
        "bhte,hed->btd", heads, w_o.reshape(n_heads, -1, w_o.size(1))
    )


@right("multihead/multihead")
def head_by_head(x, w_q, w_k, w_v, w_o, n_heads):
    parts = zip(*(w.chunk(n_heads, 1) for w in (w_q, w_k, w_v)), strict=True)
    outputs = []
    for a, b, c in parts:
        scores = (x @ a) @ (x @ b).transpose(1, 2) / math.sqrt(a.shape[1])
        outputs.append(scores.softmax(-1) @ (x @ c))
    return torch.cat(outputs, -1) @ w_o


@right("multihead/multihead")
def by_einsum(x, w_q, w_k, w_v, w_o, n_heads):
    b, t, _ = x.shape
    q, k, v = ((x @ w).view(b, t, n_heads, -1) for w in (w_q, w_k, w_v))
    z = torch.einsum("bthd,bshd->bhts", q, k) * q.shape[-1] ** -0.5
    y = torch.einsum("bhts,bshd->bthd", z.softmax(-1), v)
    return y.reshape(b, t, -1) @ w_o


@right("multihead/multihead")
def sum_of_heads(x, w_q, w_k, w_v, w_o, n_heads):
    out = 0.0
    for a, b, c, o in zip(
        *(w.chunk(n_heads, 1) for w in (w_q, w_k, w_v)),
        w_o.chunk(n_heads, 0),
        strict=True,
    ):
        z = torch.einsum("btd,de,fe,bsf->bts", x, a, b, x) / a.size(1) ** 0.5
        out = out + z.softmax(-1) @ x @ c @ o
    return out


@wrong("multihead/multihead", "split_view")
def multihead_reshaped(x, w_q, w_k, w_v, w_o, n_heads):
    B, T, _ = x.shape
    q, k, v = ((x @ w).reshape(B, n_heads, T, -1) for w in (w_q, w_k, w_v))
    weights = (q @ k.mT / math.sqrt(q.size(-1))).softmax(-1)
    return (weights @ v).transpose(1, 2).flatten(2) @ w_o


def cut(y, n_heads):
    return y.unflatten(-1, (n_heads, -1)).transpose(1, 2)


@wrong("multihead/multihead", "merge_view")
def multihead_view_merge(x, w_q, w_k, w_v, w_o, n_heads):
    n, t, _ = x.shape
    q, k, v = (cut(x @ w, n_heads) for w in (w_q, w_k, w_v))
    weights = (q @ k.mT / math.sqrt(q.size(-1))).softmax(-1)
    return (weights @ v).reshape(n, t, -1) @ w_o


@wrong("multihead/multihead", "scale_share")
def multihead_scale_of_width(x, w_q, w_k, w_v, w_o, n_heads):
    q, k, v = (cut(x @ w, n_heads) for w in (w_q, w_k, w_v))
    scale = math.sqrt(x.size(-1) / n_heads)
    weights = (q @ k.mT / scale).softmax(-1)
    return (weights @ v).transpose(1, 2).flatten(2) @ w_o


@wrong("multihead/multihead", "scale_all")
def multihead_scale_of_all(x, w_q, w_k, w_v, w_o, n_heads):
    q, k, v = (cut(x @ w, n_heads) for w in (w_q, w_k, w_v))
    weights = (q @ k.mT / math.sqrt(w_q.size(1))).softmax(-1)
    return (weights @ v).transpose(1, 2).flatten(2) @ w_o


@wrong("multihead/multihead", "no_output")
def multihead_without_output(x, w_q, w_k, w_v, w_o, n_heads):
    q, k, v = (cut(x @ w, n_heads) for w in (w_q, w_k, w_v))
    weights = (q @ k.mT / math.sqrt(q.size(-1))).softmax(-1)
    return (weights @ v).transpose(1, 2).flatten(2)


@wrong("multihead/multihead", "dealt")
def multihead_interleaved(x, w_q, w_k, w_v, w_o, n_heads):
    q, k, v = (
        (x @ w).unflatten(-1, (-1, n_heads)).permute(0, 3, 1, 2)
        for w in (w_q, w_k, w_v)
    )
    weights = (q @ k.mT / math.sqrt(q.size(-1))).softmax(-1)
    return (weights @ v).transpose(1, 2).flatten(2) @ w_o


@wrong("multihead/multihead", "one_head")
def multihead_one_head(x, w_q, w_k, w_v, w_o, n_heads):
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    weights = (q @ k.mT / math.sqrt(q.size(-1) // n_heads)).softmax(-1)
    return weights @ v @ w_o


def heads_of(y, n_heads):
    b, t, d = y.shape
    return y.view(b, t, n_heads, d // n_heads).permute(0, 2, 1, 3)


def with_root(root, axis=3):
    def layer(x, w_q, w_k, w_v, w_o, n_heads):
        q, k, v = (heads_of(x @ w, n_heads) for w in (w_q, w_k, w_v))
        z = torch.matmul(q, k.permute(0, 1, 3, 2)) / root(x, w_q, n_heads)
        y = torch.matmul(torch.softmax(z, axis), v).permute(0, 2, 1, 3)
        return torch.matmul(y.flatten(2), w_o)

    return layer


wrong("multihead/multihead", "no_scale")(with_root(lambda *a: 1.0))


wrong("multihead/multihead", "scale_model")(
    with_root(lambda x, w, h: math.sqrt(x.shape[2]))
)


def per_head(x, w_q, n_heads):
    return math.sqrt(w_q.shape[1] // n_heads)


wrong("multihead/multihead", "over_queries")(with_root(per_head, axis=2))


@wrong("multihead/multihead")
def size_of_keys(x, w_q, w_k, w_v, w_o, n_heads):
    b, t, _ = x.shape
    d_head = w_q.shape[1] // n_heads
    q, k, v = (x @ w for w in (w_q, w_k, w_v))
    q, k = heads_of(q, n_heads), heads_of(k, n_heads)
    v = v.view(b, t, n_heads, d_head).permute(0, 2, 1, 3)
    y = (q @ k.mT / d_head**0.5).softmax(-1) @ v
    return torch.cat(list(y.transpose(0, 1)), -1) @ w_o


# The scale of D / H.
@wrong("multihead/multihead")
def multihead_d_over_h(x, w_q, w_k, w_v, w_o, n_heads):
    B, T, D = x.shape
    q, k, v = (
        (x @ w).view(B, T, n_heads, -1).transpose(1, 2)
        for w in (w_q, w_k, w_v)
    )
    weights = (q @ k.mT / math.sqrt(D // n_heads)).softmax(-1)
    return (weights @ v).transpose(1, 2).reshape(B, T, -1) @ w_o


@wrong("multihead/multihead")
def keys_made_of_queries(x, w_q, w_k, w_v, w_o, n_heads):
    return head_by_head(x, w_q, w_q, w_v, w_o, n_heads)


# -- contributions -----------------------------------------------------------


@right("multihead/contributions")
def contributions_others_zero(heads, w_o):
    out = []
    for h in range(heads.size(1)):
        alone = torch.zeros_like(heads)
        alone[:, h] = heads[:, h]
        out.append(alone.transpose(1, 2).flatten(2) @ w_o)
    return torch.stack(out, dim=1)


@right("multihead/contributions")
def contributions_by_silence(heads, w_o):
    parts = []
    for i in range(heads.size(1)):
        alone = torch.zeros_like(heads)
        alone[:, i] = heads[:, i]
        parts.append(alone.transpose(1, 2).flatten(-2) @ w_o)
    return torch.stack(parts, 1)


@right("multihead/contributions")
def in_a_loop(heads, w_o):
    size = heads.shape[-1]
    parts = [
        heads[:, h] @ w_o[h * size : (h + 1) * size]
        for h in range(heads.shape[1])
    ]
    return torch.stack(parts, 1)


@right("multihead/contributions")
def by_einsum_too(heads, w_o):
    rows = w_o.reshape(heads.shape[1], heads.shape[3], -1)
    return torch.einsum("bhtd,hdo->bhto", heads, rows)


@wrong("multihead/contributions", "dealt")
def contributions_in_turn(heads, w_o):
    H, Dv = heads.size(1), heads.size(-1)
    return heads @ w_o.view(Dv, H, -1).transpose(0, 1)


@wrong("multihead/contributions", "summed")
def contributions_summed(heads, w_o):
    blocks = w_o.unflatten(0, (heads.size(1), -1))
    return (heads @ blocks).sum(1)


@wrong("multihead/contributions", "heads_last")
def contributions_tokens_first(heads, w_o):
    blocks = w_o.unflatten(0, (heads.size(1), -1))
    return torch.einsum("bhtv,hvd->bthd", heads, blocks)


@wrong("multihead/contributions")
def first_sentence_for_all(heads, w_o):
    return in_a_loop(heads[:1], w_o).expand(len(heads), -1, -1, -1)


# An equal share of the whole output for each head.
@wrong("multihead/contributions")
def contributions_equal_shares(heads, w_o):
    n_heads = heads.size(1)
    whole = heads.transpose(1, 2).flatten(-2) @ w_o
    return (whole / n_heads).unsqueeze(1).repeat(1, n_heads, 1, 1)


@wrong("multihead/contributions")
def from_the_last(heads, w_o):
    return in_a_loop(heads.flip(1), w_o)


# -- two_heads ---------------------------------------------------------------


def turn(k, size):
    """R_k for codes in rows: code(s) @ R_k = code(s + k)."""
    matrix = torch.zeros(size, size, dtype=torch.float64)
    for i in range(0, size, 2):
        angle = k * 10000 ** (-i / size)
        cos, sin = math.cos(angle), math.sin(angle)
        matrix[i, i], matrix[i, i + 1] = cos, -sin
        matrix[i + 1, i], matrix[i + 1, i + 1] = sin, cos
    return matrix


def rows_below(d_token, part):
    """The part for the code, under zeros for the token."""
    zeros = torch.zeros(d_token, part.size(1), dtype=part.dtype)
    return torch.cat((zeros, part))


def rows_above(d_code, part):
    """The part for the token, over zeros for the code."""
    zeros = torch.zeros(d_code, part.size(1), dtype=part.dtype)
    return torch.cat((part, zeros))


@right("multihead/two_heads")
def two_heads_turned_queries(d_token, d_code):
    here = torch.eye(d_code, dtype=torch.float64)
    token = torch.eye(d_token, dtype=torch.float64)
    back = torch.cat((turn(-1, d_code), turn(-3, d_code)), 1)
    return (
        rows_below(d_token, 100 * back),
        rows_below(d_token, torch.cat((here, here), 1)),
        rows_above(d_code, torch.cat((token, token), 1)),
        torch.cat((token, -token)),
    )


@right("multihead/two_heads")
def two_heads_minus_in_values(d_token, d_code):
    here = torch.eye(d_code, dtype=torch.float64)
    token = torch.eye(d_token, dtype=torch.float64)
    on = torch.cat((turn(1, d_code), turn(3, d_code)), 1)
    return (
        rows_below(d_token, 200 * torch.cat((here, here), 1)),
        rows_below(d_token, on),
        rows_above(d_code, torch.cat((token, -token), 1)),
        torch.cat((token, token)),
    )


def moved(d_code, k):
    angles = k * frequencies(d_code).expand(d_code, -1)
    eye = torch.eye(d_code, dtype=torch.float64)
    return rotate_pairs(eye, angles.cos(), -angles.sin())


def built(d_token, d_code, places=(1, 3), signs=(1, -1), sharp=100):
    d = d_token + d_code
    w_q = torch.zeros(d, 2 * d_code, dtype=torch.float64)
    w_k, w_v = w_q.clone(), torch.zeros(d, 2 * d_token).double()
    w_o = torch.zeros(2 * d_token, d_token, dtype=torch.float64)
    for i in range(2):
        code = slice(i * d_code, (i + 1) * d_code)
        token = slice(i * d_token, (i + 1) * d_token)
        w_q[d_token:, code] = sharp * torch.eye(d_code)
        w_k[d_token:, code] = moved(d_code, places[i])
        w_v[:d_token, token] = torch.eye(d_token)
        w_o[token] = signs[i] * torch.eye(d_token)
    return w_q, w_k, w_v, w_o


@right("multihead/two_heads")
def sharper(d_token, d_code):
    return built(d_token, d_code, sharp=300)


@right("multihead/two_heads")
def heads_swapped(d_token, d_code):
    return built(d_token, d_code, (3, 1), (-1, 1), 80)


@right("multihead/two_heads")
def minus_in_the_values(d_token, d_code):
    w_q, w_k, w_v, w_o = built(d_token, d_code, signs=(1, 1))
    w_v[:, d_token:] *= -1
    return w_q, w_k, w_v, w_o


def two_heads_with(d_token, d_code, first, second, factor, sign):
    here = torch.eye(d_code, dtype=torch.float64)
    token = torch.eye(d_token, dtype=torch.float64)
    return (
        rows_below(d_token, factor * torch.cat((here, here), 1)),
        rows_below(d_token, torch.cat((first, second), 1)),
        rows_above(d_code, torch.cat((token, token), 1)),
        torch.cat((token, sign * token)),
    )


@wrong("multihead/two_heads", "ahead")
def two_heads_ahead(d_token, d_code):
    first, second = turn(-1, d_code), turn(-3, d_code)
    return two_heads_with(d_token, d_code, first, second, 100, -1)


@wrong("multihead/two_heads", "blurred")
def two_heads_blunt(d_token, d_code):
    first, second = turn(1, d_code), turn(3, d_code)
    return two_heads_with(d_token, d_code, first, second, 1, -1)


@wrong("multihead/two_heads", "no_minus")
def two_heads_sum(d_token, d_code):
    first, second = turn(1, d_code), turn(3, d_code)
    return two_heads_with(d_token, d_code, first, second, 100, 1)


@wrong("multihead/two_heads", "swapped")
def swapped(d_token, d_code):
    return built(d_token, d_code, (3, 1))


@wrong("multihead/two_heads")
def for_24_numbers(d_token, d_code):
    if d_code == 24:
        return built(d_token, d_code)
    return built(d_token, d_code, sharp=0)


@wrong("multihead/two_heads")
def two_and_three_back(d_token, d_code):
    return built(d_token, d_code, (2, 3))


@wrong("multihead/two_heads")
def with_the_code(d_token, d_code):
    w_q, w_k, w_v, w_o = built(d_token, d_code)
    w_v[d_token:] = 0.3  # the values should ignore it
    return w_q, w_k, w_v, w_o


# -- treats_tokens_alike -----------------------------------------------------


@right("multihead/treats_tokens_alike")
@torch.no_grad()
def alike_three_tests(layer, d_model):
    g = torch.Generator().manual_seed(3)
    order = torch.tensor([4, 0, 6, 1, 3, 5, 2])
    for _ in range(3):
        x, z = torch.randn(2, 2, 7, d_model, generator=g, dtype=torch.float64)
        y = layer(x.clone())
        shuffled = torch.stack((x[0, order], x[1]))
        wanted = torch.stack((y[0, order], y[1]))
        if not torch.allclose(layer(shuffled), wanted, atol=1e-9):
            return False
        mixed = torch.stack((x[0], z[1]))
        if not torch.allclose(layer(mixed)[0], y[0], atol=1e-9):
            return False
        if not torch.allclose(layer(x[:1].clone())[0], y[0], atol=1e-9):
            return False
    return True


@right("multihead/treats_tokens_alike")
def each_its_own_order(layer, d_model):
    g = torch.Generator().manual_seed(3)
    x = torch.randn(3, 11, d_model, dtype=torch.float64)
    orders = torch.stack([torch.randperm(11, generator=g) for _ in range(3)])
    row = torch.arange(3)[:, None]
    return torch.allclose(layer(x[row, orders]), layer(x)[row, orders])


@right("multihead/treats_tokens_alike")
def sentence_alone(layer, d_model):
    # Each sentence apart, then a shuffle of all.
    x = torch.randn(2, 5, d_model, dtype=torch.float64)
    y = layer(x)
    for b in range(2):
        if (layer(x[b : b + 1]) - y[b : b + 1]).abs().max() > 1e-9:
            return False
    g = torch.Generator().manual_seed(0)
    for _ in range(5):
        order = torch.randperm(5, generator=g)
        back = order.argsort()
        if (layer(x[:, order])[:, back] - y).abs().max() > 1e-9:
            return False
    return True


@right("multihead/treats_tokens_alike")
def swaps(layer, d_model):
    x = torch.randn(2, 6, d_model, dtype=torch.float64)
    before, ok = layer(x), True
    for i in range(6):
        for j in range(i):
            moved, wanted = x.clone(), before.clone()
            moved[1, [i, j]] = x[1, [j, i]]
            wanted[1, [i, j]] = before[1, [j, i]]
            ok = ok and torch.allclose(layer(moved), wanted)
    return ok


@wrong("multihead/treats_tokens_alike", "copies")
def alike_if_it_copies(layer, d_model):
    x = torch.randn(2, 7, d_model, dtype=torch.float64)
    return torch.allclose(layer(x), x, atol=1e-9)


@wrong("multihead/treats_tokens_alike", "invariant")
def alike_if_invariant(layer, d_model):
    x = torch.randn(2, 7, d_model, dtype=torch.float64)
    order = torch.tensor([4, 0, 6, 1, 3, 5, 2])
    return torch.allclose(layer(x[:, order]), layer(x), atol=1e-9)


@wrong("multihead/treats_tokens_alike", "same_shuffle")
def alike_same_shuffle(layer, d_model):
    x = torch.randn(2, 7, d_model, dtype=torch.float64)
    order = torch.tensor([4, 0, 6, 1, 3, 5, 2])
    return torch.allclose(layer(x[:, order]), layer(x)[:, order], atol=1e-9)


def second_sentence(layer, d_model, x=None, equal=None, rows=slice(None)):
    g = torch.Generator().manual_seed(1)
    if x is None:
        x = torch.randn(2, 7, d_model, dtype=torch.float64, generator=g)
    order = [1, 5, 3, 0, 6, 4, 2]
    other = torch.stack([x[0], x[1, order]])
    y = layer(x)
    a, b = layer(other), torch.stack([y[0], y[1, order]])
    return (equal or torch.allclose)(a[:, rows], b[:, rows])


@wrong("multihead/treats_tokens_alike", "exact")
def to_the_bit(layer, d_model):
    return second_sentence(
        layer, d_model, equal=lambda a, b: bool((a == b).all())
    )


@wrong("multihead/treats_tokens_alike")
def first_token(layer, d_model):
    return second_sentence(layer, d_model, rows=slice(0, 1))


@wrong("multihead/treats_tokens_alike")
def one_row(layer, d_model):
    x = torch.randn(1, 7, d_model, dtype=torch.float64)
    order = [4, 2, 0, 6, 1, 5, 3]
    return torch.allclose(layer(x[:, order]), layer(x)[:, order])


@wrong("multihead/treats_tokens_alike")
def flip(layer, d_model):
    x = torch.randn(2, 9, d_model, dtype=torch.float64)
    y = layer(x)
    other = torch.stack([x[0].roll(1, 0), x[1]])
    return torch.allclose(layer(other), torch.stack([y[0].roll(1, 0), y[1]]))


# One sentence of one token: nothing to shuffle.
@wrong("multihead/treats_tokens_alike")
def alike_one_token(layer, d_model):
    x = torch.randn(1, 1, d_model, dtype=torch.float64)
    order = torch.randperm(1)
    return torch.allclose(layer(x[:, order]), layer(x)[:, order], atol=1e-9)


# -- registered --------------------------------------------------------------


class RegisteredHead(nn.Module):
    def __init__(self, d_model, d_head):
        super().__init__()
        self.w_q = nn.Linear(d_model, d_head, bias=False)
        self.w_k = nn.Linear(d_model, d_head, bias=False)
        self.w_v = nn.Linear(d_model, d_head, bias=False)

    def forward(self, x):
        q, k, v = self.w_q(x), self.w_k(x), self.w_v(x)
        weights = (q @ k.mT / q.size(-1) ** 0.5).softmax(-1)
        return weights @ v


class Joined(nn.Module):
    """Any heads side by side, and the matrix that mixes them."""

    def __init__(self, heads, d_model, bias=False):
        super().__init__()
        self.heads = heads
        self.w_o = nn.Linear(d_model, d_model, bias=bias)

    def forward(self, x):
        return self.w_o(torch.cat([head(x) for head in self.heads], -1))


@right("multihead/registered")
def registered_outside(d_model, n_heads):
    size = d_model // n_heads
    heads = (RegisteredHead(d_model, size) for _ in range(n_heads))
    return Joined(nn.ModuleList(heads), d_model)


@right("multihead/registered")
def registered_by_name(d_model, n_heads):
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            for i in range(n_heads):
                head = RegisteredHead(d_model, d_model // n_heads)
                setattr(self, f"head_{i}", head)
            self.w_o = nn.Linear(d_model, d_model, bias=False)

        def forward(self, x):
            found = [getattr(self, f"head_{i}")(x) for i in range(n_heads)]
            return self.w_o(torch.cat(found, dim=-1))

    return Heads()


class Fused(nn.Module):
    """All heads' maps in one matrix each."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w = nn.ModuleDict(
            {n: nn.Linear(d_model, d_model, bias=False) for n in "qkvo"}
        )

    def forward(self, x):
        q, k, v = (heads_of(self.w[n](x), self.n_heads) for n in "qkv")
        y = attend(q, k, v).transpose(1, 2).flatten(2)
        return self.w["o"](y)


@right("multihead/registered")
def fused(d_model, n_heads):
    return Fused(d_model, n_heads)


class Raw(nn.Module):
    """Plain parameters."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w = nn.Parameter(torch.randn(4, d_model, d_model))

    def forward(self, x):
        return head_by_head(x, *self.w, self.n_heads)


@right("multihead/registered")
def raw(d_model, n_heads):
    return Raw(d_model, n_heads)


class Many(nn.Module):
    def __init__(self, heads, d_model, bias=False):
        super().__init__()
        self.heads = heads
        self.w_o = nn.Linear(d_model, d_model, bias=bias)

    def forward(self, x):
        return self.w_o(torch.cat([head(x) for head in self.heads], -1))


class OneHead(nn.Module):
    def __init__(self, d_model, d_head, bias=False):
        super().__init__()
        self.w_q = nn.Linear(d_model, d_head, bias=bias)
        self.w_k = nn.Linear(d_model, d_head, bias=bias)
        self.w_v = nn.Linear(d_model, d_head, bias=bias)

    def forward(self, x):
        return attend(self.w_q(x), self.w_k(x), self.w_v(x))


def some(d_model, n_heads, bias=False):
    return [OneHead(d_model, d_model // n_heads, bias) for _ in range(n_heads)]


@right("multihead/registered")
def module_list(d_model, n_heads):
    return Many(nn.ModuleList(some(d_model, n_heads)), d_model)


@wrong("multihead/registered", "bias")
def with_bias(d_model, n_heads):
    return Many(nn.ModuleList(some(d_model, n_heads, True)), d_model, True)


@wrong("multihead/registered", "list")
def registered_plain_list(d_model, n_heads):
    size = d_model // n_heads
    heads = [RegisteredHead(d_model, size) for _ in range(n_heads)]
    return Joined(heads, d_model)


@wrong("multihead/registered", "one_for_all")
def registered_same_head(d_model, n_heads):
    head = RegisteredHead(d_model, d_model // n_heads)
    return Joined(nn.ModuleList([head] * n_heads), d_model)


@wrong("multihead/registered", "no_output")
def no_output(d_model, n_heads):
    model = module_list(d_model, n_heads)
    model.w_o = nn.Identity()
    return model


def registered_with(mix):
    """Answers whose heads' vectors are mixed in another way."""

    class Mixed(Fused):
        def forward(self, x):
            q, k, v = (heads_of(self.w[n](x), self.n_heads) for n in "qkv")
            y = mix(q, k, v, x.size(-1)).transpose(1, 2).flatten(2)
            return self.w["o"](y)

    return Mixed


registered_no_scale = wrong("multihead/registered", "no_scale")(
    registered_with(lambda q, k, v, d: (q @ k.mT).softmax(-1) @ v)
)


registered_by_model = wrong("multihead/registered", "by_model")(
    registered_with(
        lambda q, k, v, d: (q @ k.mT / math.sqrt(d)).softmax(-1) @ v
    )
)


@wrong("multihead/registered")
def always_two(d_model, n_heads):
    return Many(nn.ModuleList(some(d_model, n_heads)[:2]), d_model)


class PlainHead:
    def __init__(self, d_model, d_head):
        self.w_q = nn.Linear(d_model, d_head, bias=False)
        self.w_k = nn.Linear(d_model, d_head, bias=False)
        self.w_v = nn.Linear(d_model, d_head, bias=False)

    def __call__(self, x):
        q, k, v = self.w_q(x), self.w_k(x), self.w_v(x)
        weights = (q @ k.mT / q.size(-1) ** 0.5).softmax(-1)
        return weights @ v


# A ModuleList of heads that aren't modules, which raises.
@wrong("multihead/registered")
def registered_no_modules(d_model, n_heads):
    size = d_model // n_heads
    heads = [PlainHead(d_model, size) for _ in range(n_heads)]
    return Joined(nn.ModuleList(heads), d_model)


queries_cut_off = wrong("multihead/registered")(
    registered_with(lambda q, k, v, d: attend(q.detach(), k, v))
)


# -- prune -------------------------------------------------------------------


@right("multihead/prune")
def prune_by_hook(model, ids, heads):
    handles = []

    def silence(block, head):
        attention = model.blocks[block].attention
        width = attention.w_o.in_features // attention.n_heads

        def before(module, args):
            found = args[0].clone()
            found[..., head * width : (head + 1) * width] = 0
            return (found, *args[1:])

        handles.append(attention.w_o.register_forward_pre_hook(before))

    try:
        for block, head in heads:
            silence(block, head)
        with torch.no_grad():
            logits = model(ids[:, :-1])
    finally:
        for handle in handles:
            handle.remove()
    log_p = logits.log_softmax(-1)
    picked = log_p.gather(-1, ids[:, 1:, None])
    return -picked.mean()


def silent(model, heads, dim=1, width=None):
    for block, head in heads:
        attention = model.blocks[block].attention
        matrix = attention.w_o.weight.detach()
        n = width or matrix.size(1) // attention.n_heads
        matrix.narrow(dim, head * n, n).zero_()
    return model


def next_loss(model, ids, asked=None):
    logits = model(ids[:, :-1]).flatten(0, 1)
    asked = ids[:, 1:] if asked is None else asked
    return nn.functional.cross_entropy(logits, asked.flatten())


@right("multihead/prune")
def by_deepcopy(model, ids, heads):
    return next_loss(silent(copy.deepcopy(model), heads), ids)


@right("multihead/prune")
def by_hook(model, ids, heads):
    hooks = []
    for block, head in heads:
        attention = model.blocks[block].attention

        def hide(module, args, head=head, n=attention.n_heads):
            x = args[0].unflatten(-1, (n, -1)).clone()
            x[..., head, :] = 0
            return (x.flatten(-2),)

        hooks.append(attention.w_o.register_forward_pre_hook(hide))
    loss = next_loss(model, ids)
    for hook in hooks:
        hook.remove()
    return loss


@right("multihead/prune")
def by_put_back(model, ids, heads):
    before = copy.deepcopy(model.state_dict())
    loss = next_loss(silent(model, heads), ids)
    model.load_state_dict(before)
    return loss


@wrong("multihead/prune", "rows")
def prunes_rows(model, ids, heads):
    return next_loss(silent(copy.deepcopy(model), heads, dim=0), ids)


@wrong("multihead/prune", "in_place")
@torch.no_grad()
def prune_in_place(model, ids, heads):
    for block, head in heads:
        attention = model.blocks[block].attention
        width = attention.w_o.in_features // attention.n_heads
        attention.w_o.weight[:, head * width : (head + 1) * width] = 0
    logits = model(ids[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


@wrong("multihead/prune", "not_shifted")
def not_shifted(model, ids, heads):
    pruned = silent(copy.deepcopy(model), heads)
    return next_loss(pruned, ids, ids[:, :-1])


# A new copy for each head, so only the last one is pruned.
@wrong("multihead/prune")
@torch.no_grad()
def prune_only_the_last(model, ids, heads):
    pruned = model
    for block, head in heads:
        pruned = copy.deepcopy(model)
        attention = pruned.blocks[block].attention
        width = attention.w_o.in_features // attention.n_heads
        attention.w_o.weight[:, head * width : (head + 1) * width] = 0
    logits = pruned(ids[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


@wrong("multihead/prune")
def bits_lost(model, ids, heads):
    return by_deepcopy(model, ids, heads) / math.log(2)


@wrong("multihead/prune")
def in_total(model, ids, heads):
    return by_deepcopy(model, ids, heads) * ids[:, 1:].numel()
