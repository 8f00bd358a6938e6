"""Answers to the exercises of chapter 6, as people write them."""

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from coursekit import attend
from coursekit.positions import frequencies, rotate_pairs


# -- multihead ---------------------------------------------------------------
def head_by_head(x, w_q, w_k, w_v, w_o, n_heads):
    parts = zip(*(w.chunk(n_heads, 1) for w in (w_q, w_k, w_v)), strict=True)
    outputs = []
    for a, b, c in parts:
        scores = (x @ a) @ (x @ b).transpose(1, 2) / math.sqrt(a.shape[1])
        outputs.append(scores.softmax(-1) @ (x @ c))
    return torch.cat(outputs, -1) @ w_o


def by_einsum(x, w_q, w_k, w_v, w_o, n_heads):
    b, t, _ = x.shape
    q, k, v = ((x @ w).view(b, t, n_heads, -1) for w in (w_q, w_k, w_v))
    z = torch.einsum("bthd,bshd->bhts", q, k) * q.shape[-1] ** -0.5
    y = torch.einsum("bhts,bshd->bthd", z.softmax(-1), v)
    return y.reshape(b, t, -1) @ w_o


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


def per_head(x, w_q, n_heads):
    return math.sqrt(w_q.shape[1] // n_heads)


def size_of_keys(x, w_q, w_k, w_v, w_o, n_heads):
    b, t, _ = x.shape
    d_head = w_q.shape[1] // n_heads
    q, k, v = (x @ w for w in (w_q, w_k, w_v))
    q, k = heads_of(q, n_heads), heads_of(k, n_heads)
    v = v.view(b, t, n_heads, d_head).permute(0, 2, 1, 3)
    y = (q @ k.mT / d_head**0.5).softmax(-1) @ v
    return torch.cat(list(y.transpose(0, 1)), -1) @ w_o


def one_long_vector(x, w_q, w_k, w_v, w_o, n_heads):
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    z = torch.einsum("btd,bsd->bts", q, k)
    return (z / math.sqrt(q.shape[-1] // n_heads)).softmax(-1) @ v @ w_o


def cut_by_view(x, w_q, w_k, w_v, w_o, n_heads):
    b, t, _ = x.shape
    q, k, v = ((x @ w).view(b, n_heads, t, -1) for w in (w_q, w_k, w_v))
    z = torch.einsum("bhtd,bhsd->bhts", q, k) / math.sqrt(q.shape[3])
    y = z.softmax(-1) @ v
    return torch.cat(y.unbind(1), -1) @ w_o


def merged_by_view(x, w_q, w_k, w_v, w_o, n_heads):
    b, t, _ = x.shape
    q, k, v = (heads_of(x @ w, n_heads) for w in (w_q, w_k, w_v))
    z = torch.einsum("bhtd,bhsd->bhts", q, k) / math.sqrt(q.shape[3])
    y = z.softmax(-1) @ v
    return y.contiguous().view(b, t, -1) @ w_o


def only_joined(x, w_q, w_k, w_v, w_o, n_heads):
    eye = torch.eye(w_o.shape[0], dtype=x.dtype)
    return head_by_head(x, w_q, w_k, w_v, eye, n_heads)


def keys_made_of_queries(x, w_q, w_k, w_v, w_o, n_heads):
    return head_by_head(x, w_q, w_q, w_v, w_o, n_heads)


def root_of_values(x, w_q, w_k, w_v, w_o, n_heads):
    root = math.sqrt(w_v.shape[1] // n_heads + 1)
    return with_root(lambda *a: root)(x, w_q, w_k, w_v, w_o, n_heads)


def residual_inside(x, w_q, w_k, w_v, w_o, n_heads):
    return x + head_by_head(x, w_q, w_k, w_v, w_o, n_heads)


# -- contributions -----------------------------------------------------------
def in_a_loop(heads, w_o):
    size = heads.shape[-1]
    parts = [
        heads[:, h] @ w_o[h * size : (h + 1) * size]
        for h in range(heads.shape[1])
    ]
    return torch.stack(parts, 1)


def all_but_one_silent(heads, w_o):
    parts = []
    for h in range(heads.size(1)):
        alone = torch.zeros_like(heads)
        alone[:, h] = heads[:, h]
        parts.append(alone.transpose(1, 2).flatten(2) @ w_o)
    return torch.stack(parts, dim=1)


def by_einsum_too(heads, w_o):
    rows = w_o.reshape(heads.shape[1], heads.shape[3], -1)
    return torch.einsum("bhtd,hdo->bhto", heads, rows)


def dealt(heads, w_o):
    return torch.stack(
        [heads[:, h] @ w_o[h :: heads.size(1)] for h in range(heads.size(1))],
        1,
    )


def everyone_adds_all(heads, w_o):
    total = heads.transpose(1, 2).flatten(2) @ w_o
    return total[:, None].expand(-1, heads.size(1), -1, -1)


def first_sentence_for_all(heads, w_o):
    return in_a_loop(heads[:1], w_o).expand(len(heads), -1, -1, -1)


def from_the_last(heads, w_o):
    return in_a_loop(heads.flip(1), w_o)


# -- two heads ---------------------------------------------------------------
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


def sharper(d_token, d_code):
    return built(d_token, d_code, sharp=300)


def heads_swapped(d_token, d_code):
    return built(d_token, d_code, (3, 1), (-1, 1), 80)


def minus_in_the_values(d_token, d_code):
    w_q, w_k, w_v, w_o = built(d_token, d_code, signs=(1, 1))
    w_v[:, d_token:] *= -1
    return w_q, w_k, w_v, w_o


def no_minus(d_token, d_code):
    return built(d_token, d_code, signs=(1, 1))


def swapped(d_token, d_code):
    return built(d_token, d_code, (3, 1))


def ahead(d_token, d_code):
    return built(d_token, d_code, (-1, -3), sharp=150)


def blurred(d_token, d_code):
    return built(d_token, d_code, sharp=2)


def with_the_code(d_token, d_code):
    w_q, w_k, w_v, w_o = built(d_token, d_code)
    w_v[d_token:] = 0.3  # the values should ignore it
    return w_q, w_k, w_v, w_o


def two_and_three_back(d_token, d_code):
    return built(d_token, d_code, (2, 3))


def for_24_numbers(d_token, d_code):
    if d_code == 24:
        return built(d_token, d_code)
    return built(d_token, d_code, sharp=0)


# -- treats_tokens_alike -----------------------------------------------------
def each_its_own_order(layer, d_model):
    g = torch.Generator().manual_seed(3)
    x = torch.randn(3, 11, d_model, dtype=torch.float64)
    orders = torch.stack([torch.randperm(11, generator=g) for _ in range(3)])
    row = torch.arange(3)[:, None]
    return torch.allclose(layer(x[row, orders]), layer(x)[row, orders])


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


def second_sentence(layer, d_model, x=None, equal=None, rows=slice(None)):
    g = torch.Generator().manual_seed(1)
    if x is None:
        x = torch.randn(2, 7, d_model, dtype=torch.float64, generator=g)
    order = [1, 5, 3, 0, 6, 4, 2]
    other = torch.stack([x[0], x[1, order]])
    y = layer(x)
    a, b = layer(other), torch.stack([y[0], y[1, order]])
    return (equal or torch.allclose)(a[:, rows], b[:, rows])


def to_the_bit(layer, d_model):
    return second_sentence(
        layer, d_model, equal=lambda a, b: bool((a == b).all())
    )


def first_token(layer, d_model):
    return second_sentence(layer, d_model, rows=slice(0, 1))


def all_in_one_order(layer, d_model):
    x = torch.randn(3, 8, d_model, dtype=torch.float64)
    order = torch.tensor([6, 1, 4, 0, 7, 3, 5, 2])
    gap = layer(x.index_select(1, order)) - layer(x).index_select(1, order)
    return gap.norm().item() < 1e-8


def invariant(layer, d_model):
    x = torch.randn(2, 7, d_model, dtype=torch.float64)
    return bool((layer(x.roll(3, 1)) - layer(x)).abs().max() < 1e-9)


def flip(layer, d_model):
    x = torch.randn(2, 9, d_model, dtype=torch.float64)
    y = layer(x)
    other = torch.stack([x[0].roll(1, 0), x[1]])
    return torch.allclose(layer(other), torch.stack([y[0].roll(1, 0), y[1]]))


def one_row(layer, d_model):
    x = torch.randn(1, 7, d_model, dtype=torch.float64)
    order = [4, 2, 0, 6, 1, 5, 3]
    return torch.allclose(layer(x[:, order]), layer(x)[:, order])


def shuffles_the_rows(layer, d_model):
    x = torch.randn(3, 7, d_model, dtype=torch.float64)
    order = torch.tensor([2, 0, 1])
    return torch.allclose(layer(x[order]), layer(x)[order])


def says_the_opposite(layer, d_model):
    return not swaps(layer, d_model)


def copying_is_not_enough(layer, d_model):
    x = torch.randn(2, 7, d_model, dtype=torch.float64)
    copies = torch.allclose(layer(x), x)
    return swaps(layer, d_model) and not copies


# -- registered --------------------------------------------------------------
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


class Raw(nn.Module):
    """Plain parameters."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w = nn.Parameter(torch.randn(4, d_model, d_model))

    def forward(self, x):
        return head_by_head(x, *self.w, self.n_heads)


class OneHead(nn.Module):
    def __init__(self, d_model, d_head, bias=False):
        super().__init__()
        self.w_q = nn.Linear(d_model, d_head, bias=bias)
        self.w_k = nn.Linear(d_model, d_head, bias=bias)
        self.w_v = nn.Linear(d_model, d_head, bias=bias)

    def forward(self, x):
        return attend(self.w_q(x), self.w_k(x), self.w_v(x))


class Many(nn.Module):
    def __init__(self, heads, d_model, bias=False):
        super().__init__()
        self.heads = heads
        self.w_o = nn.Linear(d_model, d_model, bias=bias)

    def forward(self, x):
        return self.w_o(torch.cat([head(x) for head in self.heads], -1))


def some(d_model, n_heads, bias=False):
    return [OneHead(d_model, d_model // n_heads, bias) for _ in range(n_heads)]


def fused(d_model, n_heads):
    return Fused(d_model, n_heads)


def raw(d_model, n_heads):
    return Raw(d_model, n_heads)


def module_list(d_model, n_heads):
    return Many(nn.ModuleList(some(d_model, n_heads)), d_model)


def plain_list(d_model, n_heads):
    return Many(some(d_model, n_heads), d_model)


def one_for_all(d_model, n_heads):
    head = OneHead(d_model, d_model // n_heads)
    return Many(nn.ModuleList([head] * n_heads), d_model)


def no_output(d_model, n_heads):
    model = module_list(d_model, n_heads)
    model.w_o = nn.Identity()
    return model


def with_bias(d_model, n_heads):
    return Many(nn.ModuleList(some(d_model, n_heads, True)), d_model, True)


def detached(d_model, n_heads):
    model = module_list(d_model, n_heads)
    for head in model.heads:
        head.forward = lambda x, h=head: OneHead.forward(h, x).detach()
    return model


def registered_with(mix):
    """Answers whose heads' vectors are mixed in another way."""

    class Mixed(Fused):
        def forward(self, x):
            q, k, v = (heads_of(self.w[n](x), self.n_heads) for n in "qkv")
            y = mix(q, k, v, x.size(-1)).transpose(1, 2).flatten(2)
            return self.w["o"](y)

    return Mixed


registered_no_scale = registered_with(
    lambda q, k, v, d: (q @ k.mT).softmax(-1) @ v
)
registered_by_model = registered_with(
    lambda q, k, v, d: (q @ k.mT / math.sqrt(d)).softmax(-1) @ v
)
queries_cut_off = registered_with(lambda q, k, v, d: attend(q.detach(), k, v))
values_cut_off = registered_with(lambda q, k, v, d: attend(q, k, v.detach()))
values_are_keys = registered_with(lambda q, k, v, d: attend(q, k, k))
normed_over_queries = registered_with(
    lambda q, k, v, d: (q @ k.mT / q.size(-1) ** 0.5).softmax(-2) @ v
)
registered_causal = registered_with(
    lambda q, k, v, d: F.scaled_dot_product_attention(q, k, v, is_causal=True)
)


def output_unused(d_model, n_heads):
    module = Fused(d_model, n_heads)
    module.w["o"].forward = lambda y: y
    return module


def always_two(d_model, n_heads):
    return Many(nn.ModuleList(some(d_model, n_heads)[:2]), d_model)


def a_norm_too_many(d_model, n_heads):
    return nn.Sequential(nn.LayerNorm(d_model), fused(d_model, n_heads))


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


def by_deepcopy(model, ids, heads):
    return next_loss(silent(copy.deepcopy(model), heads), ids)


def by_put_back(model, ids, heads):
    before = copy.deepcopy(model.state_dict())
    loss = next_loss(silent(model, heads), ids)
    model.load_state_dict(before)
    return loss


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


def bits_lost(model, ids, heads):
    return by_deepcopy(model, ids, heads) / math.log(2)


def in_total(model, ids, heads):
    return by_deepcopy(model, ids, heads) * ids[:, 1:].numel()


def first_only_pruned(model, ids, heads):
    return by_deepcopy(model, ids, heads[:1])


def not_shifted(model, ids, heads):
    pruned = silent(copy.deepcopy(model), heads)
    return next_loss(pruned, ids, ids[:, :-1])


def prunes_rows(model, ids, heads):
    return next_loss(silent(copy.deepcopy(model), heads, dim=0), ids)


def copies_alone(layer, d_model):
    x = torch.randn(2, 7, d_model, dtype=torch.float64)
    return bool((layer(x) == x).all())


def scale_share(x, w_q, w_k, w_v, w_o, n_heads):
    out = 0
    parts = (w.chunk(n_heads, 1) for w in (w_q, w_k, w_v))
    for a, b, c, o in zip(*parts, w_o.chunk(n_heads), strict=True):
        scores = x @ a @ (x @ b).mT * (n_heads / x.size(-1)) ** 0.5
        out = out + scores.softmax(-1) @ (x @ c) @ o
    return out


def dealt_columns(x, w_q, w_k, w_v, w_o, n_heads):
    outs = []
    for h in range(n_heads):
        q, k, v = (x @ w[:, h::n_heads] for w in (w_q, w_k, w_v))
        outs.append((q @ k.mT / q.size(-1) ** 0.5).softmax(-1) @ v)
    return torch.cat(outs, -1) @ w_o


def summed_up(heads, w_o):
    return heads.transpose(1, 2).flatten(2) @ w_o


RIGHT = {
    "multihead": [head_by_head, by_einsum, sum_of_heads],
    "contributions": [in_a_loop, all_but_one_silent, by_einsum_too],
    "two_heads": [sharper, heads_swapped, minus_in_the_values],
    "treats_tokens_alike": [each_its_own_order, sentence_alone, swaps],
    "registered": [fused, raw, module_list],
    "prune": [by_deepcopy, by_hook, by_put_back],
}
WRONG = {
    "multihead": {
        "no_scale": with_root(lambda *a: 1.0),
        "scale_all": with_root(lambda x, w, h: math.sqrt(w.shape[1])),
        "scale_model": with_root(lambda x, w, h: math.sqrt(x.shape[2])),
        "one_head": one_long_vector,
        "split_view": cut_by_view,
        "merge_view": merged_by_view,
        "over_queries": with_root(per_head, axis=2),
        "no_output": only_joined,
        "scale_share": scale_share,
        "dealt": dealt_columns,
    },
    "contributions": {
        "dealt": dealt,
        "summed": summed_up,
    },
    "two_heads": {
        "no_minus": no_minus,
        "swapped": swapped,
        "ahead": ahead,
        "blurred": blurred,
    },
    "treats_tokens_alike": {
        "invariant": invariant,
        "exact": to_the_bit,
        "same_shuffle": all_in_one_order,
        "copies": copies_alone,
    },
    "prune": {
        "not_shifted": not_shifted,
        "rows": prunes_rows,
    },
    "registered": {
        "list": plain_list,
        "one_for_all": one_for_all,
        "no_output": no_output,
        "bias": with_bias,
        "no_scale": registered_no_scale,
        "by_model": registered_by_model,
    },
}
OUTSIDE = {
    "multihead": [
        keys_made_of_queries,
        root_of_values,
        residual_inside,
        size_of_keys,
    ],
    "contributions": [
        everyone_adds_all,
        first_sentence_for_all,
        from_the_last,
    ],
    "two_heads": [with_the_code, two_and_three_back, for_24_numbers],
    "treats_tokens_alike": [
        shuffles_the_rows,
        says_the_opposite,
        copying_is_not_enough,
        flip,
        first_token,
        one_row,
    ],
    "registered": [
        *(detached, always_two, a_norm_too_many),
        *(queries_cut_off, values_cut_off, values_are_keys, output_unused),
        *(normed_over_queries, registered_causal),
    ],
    "prune": [bits_lost, in_total, first_only_pruned],
}
