"""Answers to chapter 6, written from its page alone."""

# ruff: noqa: B905, N812

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.wild import right, wrong

# multihead/multihead


@right("multihead/multihead", "a loop over heads that adds up their blocks")
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


@right("multihead/multihead", "einsum with the matrices cut into heads")
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


def cut(y, n_heads):
    return y.unflatten(-1, (n_heads, -1)).transpose(1, 2)


@wrong("multihead/multihead", "splits by view alone", classic=True)
def multihead_view_split(x, w_q, w_k, w_v, w_o, n_heads):
    n, t, _ = x.shape
    q, k, v = ((x @ w).view(n, n_heads, t, -1) for w in (w_q, w_k, w_v))
    weights = (q @ k.mT / math.sqrt(q.size(-1))).softmax(-1)
    return (weights @ v).transpose(1, 2).flatten(2) @ w_o


@wrong("multihead/multihead", "merges without the transpose", classic=True)
def multihead_view_merge(x, w_q, w_k, w_v, w_o, n_heads):
    n, t, _ = x.shape
    q, k, v = (cut(x @ w, n_heads) for w in (w_q, w_k, w_v))
    weights = (q @ k.mT / math.sqrt(q.size(-1))).softmax(-1)
    return (weights @ v).reshape(n, t, -1) @ w_o


@wrong(
    "multihead/multihead",
    "scales by the root of D/H, not of the size of a query",
    classic=True,
)
def multihead_scale_of_width(x, w_q, w_k, w_v, w_o, n_heads):
    q, k, v = (cut(x @ w, n_heads) for w in (w_q, w_k, w_v))
    scale = math.sqrt(x.size(-1) / n_heads)
    weights = (q @ k.mT / scale).softmax(-1)
    return (weights @ v).transpose(1, 2).flatten(2) @ w_o


@wrong(
    "multihead/multihead",
    "scales by the root of all heads' width together",
    classic=True,
)
def multihead_scale_of_all(x, w_q, w_k, w_v, w_o, n_heads):
    q, k, v = (cut(x @ w, n_heads) for w in (w_q, w_k, w_v))
    weights = (q @ k.mT / math.sqrt(w_q.size(1))).softmax(-1)
    return (weights @ v).transpose(1, 2).flatten(2) @ w_o


@wrong("multihead/multihead", "leaves out the output matrix", classic=True)
def multihead_without_output(x, w_q, w_k, w_v, w_o, n_heads):
    q, k, v = (cut(x @ w, n_heads) for w in (w_q, w_k, w_v))
    weights = (q @ k.mT / math.sqrt(q.size(-1))).softmax(-1)
    return (weights @ v).transpose(1, 2).flatten(2)


@wrong(
    "multihead/multihead",
    "a head takes every H-th column instead of columns side by side",
    classic=True,
)
def multihead_interleaved(x, w_q, w_k, w_v, w_o, n_heads):
    q, k, v = (
        (x @ w).unflatten(-1, (-1, n_heads)).permute(0, 3, 1, 2)
        for w in (w_q, w_k, w_v)
    )
    weights = (q @ k.mT / math.sqrt(q.size(-1))).softmax(-1)
    return (weights @ v).transpose(1, 2).flatten(2) @ w_o


@wrong("multihead/multihead", "one big head", classic=False)
def multihead_one_head(x, w_q, w_k, w_v, w_o, n_heads):
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    weights = (q @ k.mT / math.sqrt(q.size(-1) // n_heads)).softmax(-1)
    return weights @ v @ w_o


# multihead/contributions


@right("multihead/contributions", "silences all other heads, one by one")
def contributions_by_silence(heads, w_o):
    parts = []
    for i in range(heads.size(1)):
        alone = torch.zeros_like(heads)
        alone[:, i] = heads[:, i]
        parts.append(alone.transpose(1, 2).flatten(-2) @ w_o)
    return torch.stack(parts, 1)


@wrong(
    "multihead/contributions",
    "gives head i every H-th row of the matrix",
    classic=True,
)
def contributions_interleaved(heads, w_o):
    n_heads, width = heads.size(1), heads.size(-1)
    blocks = w_o.view(width, n_heads, -1).transpose(0, 1)
    return heads @ blocks


@wrong("multihead/contributions", "already summed over heads", classic=True)
def contributions_summed(heads, w_o):
    blocks = w_o.unflatten(0, (heads.size(1), -1))
    return (heads @ blocks).sum(1)


@wrong(
    "multihead/contributions",
    "heads and tokens in the wrong order: (B, T, H, D)",
    classic=True,
)
def contributions_tokens_first(heads, w_o):
    blocks = w_o.unflatten(0, (heads.size(1), -1))
    return torch.einsum("bhtv,hvd->bthd", heads, blocks)


@wrong(
    "multihead/contributions",
    "an equal share of the whole output for each head",
    classic=False,
)
def contributions_equal_shares(heads, w_o):
    n_heads = heads.size(1)
    whole = heads.transpose(1, 2).flatten(-2) @ w_o
    return (whole / n_heads).unsqueeze(1).repeat(1, n_heads, 1, 1)


# multihead/treats_tokens_alike


@right(
    "multihead/treats_tokens_alike",
    "a shuffle, another neighbor in the batch, and each sentence alone",
)
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


@wrong(
    "multihead/treats_tokens_alike",
    "asks for a copy of the input",
    classic=True,
)
def alike_if_it_copies(layer, d_model):
    x = torch.randn(2, 7, d_model, dtype=torch.float64)
    return torch.allclose(layer(x), x, atol=1e-9)


@wrong(
    "multihead/treats_tokens_alike",
    "expects outputs to stay when the tokens are shuffled, not to move along",
    classic=True,
)
def alike_if_invariant(layer, d_model):
    x = torch.randn(2, 7, d_model, dtype=torch.float64)
    order = torch.tensor([4, 0, 6, 1, 3, 5, 2])
    return torch.allclose(layer(x[:, order]), layer(x), atol=1e-9)


@wrong(
    "multihead/treats_tokens_alike",
    "shuffles both sentences alike, and doesn't see that they mix",
    classic=True,
)
def alike_same_shuffle(layer, d_model):
    x = torch.randn(2, 7, d_model, dtype=torch.float64)
    order = torch.tensor([4, 0, 6, 1, 3, 5, 2])
    return torch.allclose(layer(x[:, order]), layer(x)[:, order], atol=1e-9)


@wrong(
    "multihead/treats_tokens_alike",
    "one sentence of one token: nothing to shuffle",
    classic=False,
)
def alike_one_token(layer, d_model):
    x = torch.randn(1, 1, d_model, dtype=torch.float64)
    order = torch.randperm(1)
    return torch.allclose(layer(x[:, order]), layer(x)[:, order], atol=1e-9)


# multihead/registered


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


class PlainHead:
    def __init__(self, d_model, d_head):
        self.w_q = nn.Linear(d_model, d_head, bias=False)
        self.w_k = nn.Linear(d_model, d_head, bias=False)
        self.w_v = nn.Linear(d_model, d_head, bias=False)

    def __call__(self, x):
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


@right("multihead/registered", "the mended classes stand outside")
def registered_outside(d_model, n_heads):
    size = d_model // n_heads
    heads = (RegisteredHead(d_model, size) for _ in range(n_heads))
    return Joined(nn.ModuleList(heads), d_model)


@right("multihead/registered", "heads are attributes with numbered names")
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


@wrong(
    "multihead/registered",
    "heads are modules now, but still in a plain list",
    classic=True,
)
def registered_plain_list(d_model, n_heads):
    size = d_model // n_heads
    heads = [RegisteredHead(d_model, size) for _ in range(n_heads)]
    return Joined(heads, d_model)


@wrong(
    "multihead/registered",
    "a ModuleList of heads that aren't modules, which raises",
    classic=True,
)
def registered_no_modules(d_model, n_heads):
    size = d_model // n_heads
    heads = [PlainHead(d_model, size) for _ in range(n_heads)]
    return Joined(nn.ModuleList(heads), d_model)


@wrong(
    "multihead/registered",
    "one head object, listed several times",
    classic=True,
)
def registered_same_head(d_model, n_heads):
    head = RegisteredHead(d_model, d_model // n_heads)
    return Joined(nn.ModuleList([head] * n_heads), d_model)


@wrong(
    "multihead/registered",
    "the output matrix has a bias, though none was wanted",
    classic=False,
)
def registered_with_bias(d_model, n_heads):
    size = d_model // n_heads
    heads = (RegisteredHead(d_model, size) for _ in range(n_heads))
    return Joined(nn.ModuleList(heads), d_model, bias=True)


# multihead/two_heads


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


@right("multihead/two_heads", "turns the queries back, not the keys on")
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


@right("multihead/two_heads", "the minus sign sits in the values")
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


def two_heads_with(d_token, d_code, first, second, factor, sign):
    here = torch.eye(d_code, dtype=torch.float64)
    token = torch.eye(d_token, dtype=torch.float64)
    return (
        rows_below(d_token, factor * torch.cat((here, here), 1)),
        rows_below(d_token, torch.cat((first, second), 1)),
        rows_above(d_code, torch.cat((token, token), 1)),
        torch.cat((token, sign * token)),
    )


@wrong(
    "multihead/two_heads",
    "keys are turned the wrong way, so the heads look ahead",
    classic=True,
)
def two_heads_ahead(d_token, d_code):
    first, second = turn(-1, d_code), turn(-3, d_code)
    return two_heads_with(d_token, d_code, first, second, 100, -1)


@wrong(
    "multihead/two_heads",
    "queries are not made large: the softmax is nearly uniform",
    classic=True,
)
def two_heads_blunt(d_token, d_code):
    first, second = turn(1, d_code), turn(3, d_code)
    return two_heads_with(d_token, d_code, first, second, 1, -1)


@wrong("multihead/two_heads", "the sum: no minus sign anywhere", classic=True)
def two_heads_sum(d_token, d_code):
    first, second = turn(1, d_code), turn(3, d_code)
    return two_heads_with(d_token, d_code, first, second, 100, 1)


@wrong(
    "multihead/two_heads",
    "three back minus one back: the sign is on the wrong head",
    classic=False,
)
def two_heads_other_sign(d_token, d_code):
    first, second = turn(1, d_code), turn(3, d_code)
    w_q, w_k, w_v, w_o = two_heads_with(
        d_token, d_code, first, second, 100, -1
    )
    return w_q, w_k, w_v, -w_o


# multihead/prune


@right("multihead/prune", "zeros what the heads found, by a hook")
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


@wrong(
    "multihead/prune",
    "zeros rows of the stored weight, where a head's block is columns",
    classic=True,
)
@torch.no_grad()
def prune_rows(model, ids, heads):
    pruned = copy.deepcopy(model)
    for block, head in heads:
        attention = pruned.blocks[block].attention
        width = attention.w_o.in_features // attention.n_heads
        attention.w_o.weight[head * width : (head + 1) * width] = 0
    logits = pruned(ids[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


@wrong(
    "multihead/prune",
    "prunes the model that it was given, and leaves it so",
    classic=True,
)
@torch.no_grad()
def prune_in_place(model, ids, heads):
    for block, head in heads:
        attention = model.blocks[block].attention
        width = attention.w_o.in_features // attention.n_heads
        attention.w_o.weight[:, head * width : (head + 1) * width] = 0
    logits = model(ids[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


@wrong(
    "multihead/prune",
    "a shallow copy, which shares its weights with the model",
    classic=True,
)
@torch.no_grad()
def prune_shallow_copy(model, ids, heads):
    pruned = copy.copy(model)
    for block, head in heads:
        attention = pruned.blocks[block].attention
        width = attention.w_o.in_features // attention.n_heads
        attention.w_o.weight[:, head * width : (head + 1) * width] = 0
    logits = pruned(ids[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


@wrong(
    "multihead/prune",
    "the loss on the tokens themselves, not on the next ones",
    classic=True,
)
@torch.no_grad()
def prune_without_shift(model, ids, heads):
    pruned = copy.deepcopy(model)
    for block, head in heads:
        attention = pruned.blocks[block].attention
        width = attention.w_o.in_features // attention.n_heads
        attention.w_o.weight[:, head * width : (head + 1) * width] = 0
    logits = pruned(ids[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), ids[:, :-1].flatten())


@wrong(
    "multihead/prune",
    "a new copy for each head, so only the last one is pruned",
    classic=False,
)
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
