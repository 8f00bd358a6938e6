"""Answers to the exercises of chapter 9."""

import functools
import math

import torch
from torch import nn
from torch.nn import functional as F

from coursekit import GPT, GPTConfig
from coursekit.feedforward import FeedForward
from coursekit.multihead import MultiHeadAttention
from tests.answers import right, wrong

# -- count -------------------------------------------------------------------


@right("decoder/count")
def count_item_by_item(vocab_size, max_len, d_model, n_layers, tied, small):
    matrices = {
        "embedding": vocab_size * d_model,
        "head": 0 if tied else d_model * vocab_size,
        "attention": n_layers * 4 * d_model * d_model,
        "network": n_layers * 2 * d_model * (4 * d_model),
    }
    rest = {
        "positions": max_len * d_model,
        "attention's biases": n_layers * 4 * d_model,
        "network's biases": n_layers * (4 * d_model + d_model),
        "norms": n_layers * 2 * (2 * d_model),
        "last norm": 2 * d_model,
    }
    bill = matrices | rest if small else matrices
    return sum(bill.values())


@right("decoder/count")
def count_by_parts(vocab_size, max_len, d_model, n_layers, tied, small):
    D = d_model
    large = {
        "embedding": vocab_size * D,
        "attention": n_layers * 4 * D * D,
        "network": n_layers * 2 * D * 4 * D,
        "head": 0 if tied else vocab_size * D,
    }
    little = {
        "positions": max_len * D,
        "biases": n_layers * (4 * D + 4 * D + D),
        "norms": (2 * n_layers + 1) * 2 * D,
    }
    return sum(large.values()) + (sum(little.values()) if small else 0)


@right("decoder/count")
def layer_by_layer(vocab_size, max_len, d_model, n_layers, tied, small):
    d, total = d_model, vocab_size * d_model
    for _ in range(n_layers):
        for n_in, n_out in [(d, d)] * 4 + [(d, 4 * d), (4 * d, d)]:
            total += n_in * n_out + (n_out if small else 0)
        total += 2 * 2 * d if small else 0
    if not tied:
        total += d * vocab_size
    return total + (max_len * d + 2 * d if small else 0)


@right("decoder/count")
def by_shapes(vocab_size, max_len, d_model, n_layers, tied, small):
    # PyTorch's own layer, without numbers in it.
    layer = nn.TransformerEncoderLayer(d_model, 1, 4 * d_model, device="meta")
    shapes = [p.shape for p in layer.parameters()] * n_layers
    shapes += [(vocab_size, d_model)] * (1 if tied else 2)
    norm = [(d_model,), (d_model,)]
    extra = [(max_len, d_model), *norm] if small else []
    return sum(math.prod(s) for s in [*shapes, *extra] if small or len(s) == 2)


@right("decoder/count")
def one_formula(vocab_size, max_len, d_model, n_layers, tied, small):
    rows = vocab_size * (2 - tied) + small * (max_len + 13 * n_layers + 2)
    return d_model * (rows + 12 * n_layers * d_model)


def wrong_count(**change):
    """A count from a list of parts, one of them changed."""

    def count(vocab_size, max_len, d_model, n_layers, tied, small):
        parts = {
            "table": vocab_size * d_model,
            "head": 0 if tied else vocab_size * d_model,
            "q, k, v": 3 * d_model**2,
            "o": d_model**2,
            "network": 8 * d_model**2,
            "biases": 9 * d_model,
            "norms": 4 * d_model,
            "positions": max_len * d_model,
            "last norm": 2 * d_model,
        }
        sizes = {"V": vocab_size, "D": d_model}
        for part, value in change.items():
            name = {"qkv": "q, k, v", "last": "last norm"}.get(part, part)
            parts[name] = eval(value, {}, {**sizes, "was": parts[name]})
        if not small:
            for part in ("biases", "norms", "positions", "last norm"):
                parts[part] = 0
        each = ("q, k, v", "o", "network", "biases", "norms")
        return sum(
            n * (n_layers if part in each else 1) for part, n in parts.items()
        )

    return count


wrong("decoder/count", "no_final_norm")(wrong_count(last="0"))


@wrong("decoder/count", "head_counted")
def count_head_twice(vocab_size, max_len, d_model, n_layers, tied, small):
    n = 2 * vocab_size * d_model + n_layers * 12 * d_model**2
    if small:
        n += max_len * d_model + n_layers * 13 * d_model + 2 * d_model
    return n


@wrong("decoder/count", "untied_bias")
def count_head_bias(vocab_size, max_len, d_model, n_layers, tied, small):
    n = vocab_size * d_model + n_layers * 12 * d_model**2
    if not tied:
        n += vocab_size * d_model + vocab_size
    if small:
        n += max_len * d_model + n_layers * 13 * d_model + 2 * d_model
    return n


wrong("decoder/count", "no_positions")(wrong_count(positions="0"))


wrong("decoder/count", "no_biases")(wrong_count(biases="0"))


@wrong("decoder/count")
def untied_has_no_small_things(
    vocab_size, max_len, d_model, n_layers, tied, small
):
    if not tied:
        return 2 * vocab_size * d_model + 12 * n_layers * d_model**2
    return layer_by_layer(vocab_size, max_len, d_model, n_layers, tied, small)


# Takes the network's two matrices to be square.
@wrong("decoder/count")
def count_square_network(vocab_size, max_len, d_model, n_layers, tied, small):
    n = vocab_size * d_model * (1 if tied else 2)
    n += n_layers * 6 * d_model**2
    if small:
        n += max_len * d_model + n_layers * 10 * d_model + 2 * d_model
    return n


# Positions are counted in any case.
@wrong("decoder/count")
def count_positions_always(
    vocab_size, max_len, d_model, n_layers, tied, small
):
    n = (vocab_size + max_len) * d_model + n_layers * 12 * d_model**2
    n += 0 if tied else vocab_size * d_model
    if small:
        n += n_layers * 13 * d_model + 2 * d_model
    return n


# -- gpt ---------------------------------------------------------------------


@right("decoder/gpt")
def gpt_by_reduce(ids, table, places, blocks, final_norm):
    start = F.embedding(ids, table) + places.narrow(0, 0, ids.size(1))
    x = functools.reduce(lambda stream, block: block(stream), blocks, start)
    return torch.einsum("btd,vd->btv", final_norm(x), table)


@right("decoder/gpt")
def gpt_folded(ids, table, places, blocks, final_norm):
    x = F.embedding(ids, table) + places.narrow(0, 0, ids.size(-1))
    x = functools.reduce(lambda x, block: block(x), blocks, x)
    return F.linear(final_norm(x), table)


@right("decoder/gpt")
def by_embedding(ids, table, places, blocks, final_norm):
    x = F.embedding(ids, table)
    x = x + F.embedding(torch.arange(ids.shape[1]), places)
    for block in blocks:
        x = block(x)
    return F.linear(final_norm(x), table)


@right("decoder/gpt")
def one_hot(ids, table, places, blocks, final_norm):
    x = F.one_hot(ids, len(table)).to(table) @ table
    for t in range(ids.shape[1]):
        x[:, t] += places[t]
    for n in range(len(blocks)):
        x = blocks[n](x)
    return torch.einsum("btd,vd->btv", final_norm(x), table)


@right("decoder/gpt")
def recursive(ids, table, places, blocks, final_norm):
    def stream(n):
        if n == 0:
            return table[ids] + places[None, : ids.size(-1)]
        return blocks[n - 1](stream(n - 1))

    # The dot product with each row of the table.
    x = final_norm(stream(len(blocks)))
    return torch.stack([(x * row).sum(-1) for row in table], dim=-1)


def start(ids, table, places):
    return table[ids] + places[: ids.shape[1]]


def run(x, blocks):
    for block in blocks:
        x = block(x)
    return x


@wrong("decoder/gpt", "no_final_norm")
def no_final_norm(ids, table, places, blocks, final_norm):
    return run(start(ids, table, places), blocks) @ table.t()


@wrong("decoder/gpt", "double_path")
def gpt_adds_twice(ids, table, places, blocks, final_norm):
    x = table[ids] + places[: ids.size(1)]
    for block in blocks:
        x = x + block(x)
    return final_norm(x) @ table.T


@wrong("decoder/gpt", "all_places")
def gpt_all_positions(ids, table, places, blocks, final_norm):
    x = table[ids] + places
    for block in blocks:
        x = block(x)
    return final_norm(x) @ table.T


@wrong("decoder/gpt", "positions_by_token")
def gpt_positions_by_token(ids, table, places, blocks, final_norm):
    x = table[ids] + places[ids % len(places)]
    for block in blocks:
        x = block(x)
    return final_norm(x) @ table.T


@wrong("decoder/gpt", "softmax")
def gpt_probabilities(ids, table, places, blocks, final_norm):
    x = table[ids] + places[: ids.size(1)]
    for block in blocks:
        x = block(x)
    return (final_norm(x) @ table.T).softmax(-1)


@wrong("decoder/gpt", "norm_each")
def gpt_norm_in_the_loop(ids, table, places, blocks, final_norm):
    x = table[ids] + places[: ids.size(1)]
    for block in blocks:
        x = final_norm(block(x))
    return x @ table.T


@wrong("decoder/gpt", "no_positions")
def no_positions(ids, table, places, blocks, final_norm):
    return final_norm(run(table[ids], blocks)) @ table.T


@wrong("decoder/gpt", "positions_by_batch")
def positions_by_batch(ids, table, places, blocks, final_norm):
    x = F.embedding(ids, table)
    x = x + places[: x.size(0), :]
    return F.linear(final_norm(run(x, blocks)), table)


# The last position's logits only.
@wrong("decoder/gpt")
def gpt_last_only(ids, table, places, blocks, final_norm):
    x = table[ids] + places[: ids.size(1)]
    for block in blocks:
        x = block(x)
    return final_norm(x)[:, -1] @ table.T


@wrong("decoder/gpt")
def first_sentence(ids, table, places, blocks, final_norm):
    x = run(start(ids[:1], table, places), blocks)
    return (final_norm(x) @ table.T).expand(len(ids), -1, -1)


@wrong("decoder/gpt")
def top_down(ids, table, places, blocks, final_norm):
    x = run(start(ids, table, places), blocks[::-1])
    return final_norm(x) @ table.T


# -- mended ------------------------------------------------------------------


@right("decoder/mended")
def mended_recursive(x, parts, norms, final_norm):
    parts, norms = list(parts), list(norms)
    if not parts:
        return final_norm(x)
    x = x + parts[0](norms[0](x))
    return mended_recursive(x, parts[1:], norms[1:], final_norm)


@right("decoder/mended")
def written_out(x, parts, norms, final_norm):
    for i in range(len(parts)):
        branch = norms[i](x)
        branch = parts[i](branch)
        x = torch.add(branch, x)
    return final_norm(x)


@right("decoder/mended")
def sum_of_writes(x, parts, norms, final_norm):
    written = [x]
    for part, norm in zip(parts, norms, strict=True):
        written.append(part(norm(torch.stack(written).sum(0))))
    return final_norm(torch.stack(written).sum(0))


@right("decoder/mended")
def block_by_block(x, parts, norms, final_norm):
    pairs = list(zip(parts, norms, strict=True))
    for (attend, one), (think, two) in zip(
        pairs[::2], pairs[1::2], strict=True
    ):
        a = x + attend(one(x))
        x = a + think(two(a))
    return final_norm(x)


@wrong("decoder/mended", "no_final_norm")
def mended_no_final_norm(x, parts, norms, final_norm):
    for part, norm in zip(parts, norms):
        x = x + part(norm(x))
    return x


@wrong("decoder/mended", "normed_path")
def mended_normed_path(x, parts, norms, final_norm):
    for part, norm in zip(parts, norms):
        x = norm(x)
        x = x + part(x)
    return final_norm(x)


@wrong("decoder/mended", "added_twice")
def mended_added_twice(x, parts, norms, final_norm):
    for part, norm in zip(parts, norms):
        y = x + part(norm(x))
        x = x + y
    return final_norm(x)


@wrong("decoder/mended", "post_norm")
def post_norm(x, parts, norms, final_norm):
    for i, part in enumerate(parts):
        x = norms[i](part(x) + x)
    return final_norm(x)


@wrong("decoder/mended", "no_path")
def no_path(x, parts, norms, final_norm):
    for part, norm in zip(parts, norms, strict=True):
        x = part(norm(x))
    return final_norm(x)


@wrong("decoder/mended")
def two_norms_for_all(x, parts, norms, final_norm):
    shared = [norms[i % 2] for i in range(len(parts))]
    return written_out(x, parts, shared, final_norm)


# One norm serves all parts: the first.
@wrong("decoder/mended")
def mended_one_norm(x, parts, norms, final_norm):
    norm = norms[0]
    for part in parts:
        x = x + part(norm(x))
    return final_norm(x)


@wrong("decoder/mended")
def one_norm_for_all(x, parts, norms, final_norm):
    return written_out(x, parts, [norms[0]] * len(parts), final_norm)


# -- build -------------------------------------------------------------------


class SomeGPT(nn.Module):
    """Tables, the blocks that are given, a norm and the tied head."""

    def __init__(self, vocab_size, max_len, d_model, blocks, norm=None):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_len, d_model)
        self.blocks = blocks
        self.norm = nn.LayerNorm(d_model) if norm is None else norm
        std = 0.5 / math.sqrt(d_model)
        nn.init.normal_(self.embedding.weight, std=std)
        nn.init.normal_(self.positions.weight, std=std)

    def forward(self, ids):
        at = torch.arange(ids.size(1), device=ids.device)
        x = self.embedding(ids) + self.positions(at)
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.embedding.weight.T


@right("decoder/build")
def build_with_fused_attention(
    vocab_size, max_len, d_model, n_heads, n_layers
):
    class Fused(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm_1 = nn.LayerNorm(d_model)
            self.qkv = nn.Linear(d_model, 3 * d_model)
            self.out = nn.Linear(d_model, d_model)
            self.norm_2 = nn.LayerNorm(d_model)
            self.network = nn.Sequential(
                nn.Linear(d_model, 4 * d_model),
                nn.GELU(),
                nn.Linear(4 * d_model, d_model),
            )

        def forward(self, x):
            q, k, v = (
                y.unflatten(-1, (n_heads, -1)).transpose(1, 2)
                for y in self.qkv(self.norm_1(x)).chunk(3, -1)
            )
            found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(found.transpose(1, 2).flatten(2))
            return x + self.network(self.norm_2(x))

    blocks = nn.ModuleList(Fused() for _ in range(n_layers))
    return SomeGPT(vocab_size, max_len, d_model, blocks)


class SomeBlock(nn.Module):
    """Two sums around parts of the library."""

    def __init__(self, d_model, n_heads, causal=True):
        super().__init__()
        self.norm_1 = nn.LayerNorm(d_model)
        self.attention = MultiHeadAttention(d_model, n_heads)
        self.norm_2 = nn.LayerNorm(d_model)
        self.feed_forward = FeedForward(d_model, 4 * d_model)
        self.causal = causal

    def forward(self, x):
        x = x + self.attention(self.norm_1(x), causal=self.causal)
        return x + self.feed_forward(self.norm_2(x))


@right("decoder/build")
def build_sequential(vocab_size, max_len, d_model, n_heads, n_layers):
    blocks = nn.Sequential()
    for i in range(n_layers):
        blocks.add_module(f"block_{i}", SomeBlock(d_model, n_heads))
    return SomeGPT(vocab_size, max_len, d_model, blocks)


class Layer(nn.Module):
    """A block of bare PyTorch; its slips are made by subclasses."""

    causal = True

    def __init__(self, d, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)

    def mix(self, x):
        b, t, d = x.shape
        q, k, v = (
            y.view(b, t, self.n_heads, -1).transpose(1, 2)
            for y in self.qkv(x).chunk(3, dim=-1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(b, t, d))

    def think(self, x):
        return self.down(F.relu(self.up(x)))

    def forward(self, x):
        x = x + self.mix(self.ln1(x))
        return x + self.think(self.ln2(x))


@right("decoder/build")
class Net(nn.Module):
    """GPT-2 as it is often written; its slips are made by subclasses."""

    layer = Layer
    std = 0.02

    def __init__(self, v, p, d, h, n):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(v, d), nn.Embedding(p, d)
        self.stack(d, h, n)
        self.ln_f = nn.LayerNorm(d)
        for table in (self.wte, self.wpe):
            nn.init.normal_(table.weight, std=self.std)

    def stack(self, d, h, n):
        self.h = nn.Sequential(*[self.layer(d, h) for _ in range(n)])

    def start(self, ids):
        return self.wte(ids) + self.wpe(torch.arange(ids.size(1)))

    def run(self, x):
        for block in self.h:
            x = block(x)
        return x

    def head(self, x):
        return self.ln_f(x) @ self.wte.weight.T

    def forward(self, ids):
        return self.head(self.run(self.start(ids)))


@right("decoder/build")
class Paper(nn.Module):
    """Tables drawn with 1/√D and multiplied by √D: starts near ln V + 2."""

    def __init__(self, v, p, d, h, n):
        super().__init__()
        self.tokens = nn.Parameter(torch.randn(v, d) / d**0.5)
        self.places = nn.Parameter(torch.randn(1, p, d))
        layers = [
            nn.TransformerEncoderLayer(
                d, h, 4 * d, 0.1, "gelu", batch_first=True, norm_first=True
            )
            for _ in range(n)
        ]
        self.layers, self.norm = nn.ModuleList(layers), nn.LayerNorm(d)

    def forward(self, ids):
        t, d = ids.size(1), self.tokens.size(1)
        x = F.embedding(ids, self.tokens) * math.sqrt(d)
        x = x + self.places[:, :t]
        hidden = torch.ones(t, t, dtype=torch.bool).triu(1)
        for layer in self.layers:
            x = layer(x, src_mask=hidden)
        return torch.einsum("btd,vd->btv", self.norm(x), self.tokens)


@right("decoder/build")
class Tied(Net):
    """A head that is a module, with the table as its weight."""

    def __init__(self, v, p, d, h, n):
        super().__init__(v, p, d, h, n)
        self.lm_head = nn.Linear(d, v, bias=False)
        self.lm_head.weight = self.wte.weight

    def head(self, x):
        return self.lm_head(self.ln_f(x))


@right("decoder/build")
class AllLayers(nn.Module):
    """The weights of all layers lie in one tensor of each kind."""

    def __init__(self, v, p, d, h, n):
        super().__init__()
        self.n_heads = h

        def drawn(*shape):
            return nn.Parameter(torch.randn(*shape) / (2 * d**0.5))

        def zeros(*shape):
            return nn.Parameter(torch.zeros(*shape))

        self.wte, self.wpe = drawn(v, d), drawn(p, d)
        self.qkv, self.qkv_bias = drawn(n, d, 3 * d), zeros(n, 3 * d)
        self.out, self.out_bias = drawn(n, d, d), zeros(n, d)
        self.up, self.up_bias = drawn(n, d, 4 * d), zeros(n, 4 * d)
        self.down, self.down_bias = drawn(n, 4 * d, d), zeros(n, d)
        self.scale = nn.Parameter(torch.ones(n, 2, d))
        self.shift = zeros(n, 2, d)
        self.ln_f = nn.LayerNorm(d)

    def layer(self, x, i):
        b, t, d = x.shape
        y = F.layer_norm(x, (d,), self.scale[i, 0], self.shift[i, 0])
        q, k, v = (
            part.view(b, t, self.n_heads, -1).transpose(1, 2)
            for part in (y @ self.qkv[i] + self.qkv_bias[i]).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).reshape(b, t, d)
        x = x + y @ self.out[i] + self.out_bias[i]
        y = F.layer_norm(x, (d,), self.scale[i, 1], self.shift[i, 1])
        y = F.relu(y @ self.up[i] + self.up_bias[i])
        return x + y @ self.down[i] + self.down_bias[i]

    def forward(self, ids):
        x = self.wte[ids] + self.wpe[: ids.size(1)]
        for i in range(len(self.qkv)):
            x = self.layer(x, i)
        return self.ln_f(x) @ self.wte.T


@right("decoder/build")
class OneTensor(AllLayers):
    """The weights of all layers lie in one tensor, their vectors too."""

    def __init__(self, v, p, d, h, n):
        nn.Module.__init__(self)
        self.n_heads, self.shapes = h, self.parts(d)
        self.wte = nn.Parameter(torch.randn(v, d) / (2 * d**0.5))
        self.wpe = nn.Parameter(torch.randn(p, d) / (2 * d**0.5))
        parts = [
            torch.full(shape, float(name == "scale"))
            if name in ("scale", "shift") or name.endswith("bias")
            else torch.randn(shape) / (2 * d**0.5)
            for name, shape in self.shapes.items()
        ]
        row = torch.cat([part.flatten() for part in parts])
        self.all = nn.Parameter(row.repeat(n, 1))
        with torch.no_grad():  # no two layers start alike
            self.all += 0.01 * torch.randn(n, row.numel()) * (row % 1 != 0)
        self.ln_f = nn.LayerNorm(d)

    @staticmethod
    def parts(d):
        return {
            **{"qkv": (d, 3 * d), "qkv_bias": (3 * d,)},
            **{"out": (d, d), "out_bias": (d,)},
            **{"up": (d, 4 * d), "up_bias": (4 * d,)},
            **{"down": (4 * d, d), "down_bias": (d,)},
            **{"scale": (2, d), "shift": (2, d)},
        }

    def forward(self, ids):
        x = self.wte[ids] + self.wpe[: ids.size(1)]
        for row in self.all:
            sizes = [math.prod(shape) for shape in self.shapes.values()]
            for (name, shape), part in zip(
                self.shapes.items(), row.split(sizes), strict=True
            ):
                vars(self)[name] = part.view(1, *shape)
            x = self.layer(x, 0)
        return self.ln_f(x) @ self.wte.T


class SeesAll(Layer):
    causal = False


@wrong("decoder/build", "no_mask")
class NoMask(Net):
    layer = SeesAll


@wrong("decoder/build", "one_block")
def build_one_block(vocab_size, max_len, d_model, n_heads, n_layers):
    blocks = nn.ModuleList([SomeBlock(d_model, n_heads)] * n_layers)
    return SomeGPT(vocab_size, max_len, d_model, blocks)


@wrong("decoder/build", "plain_list")
def build_plain_list(vocab_size, max_len, d_model, n_heads, n_layers):
    blocks = [SomeBlock(d_model, n_heads) for _ in range(n_layers)]
    return SomeGPT(vocab_size, max_len, d_model, blocks)


@wrong("decoder/build", "no_final_norm")
def build_without_final_norm(vocab_size, max_len, d_model, n_heads, n_layers):
    blocks = nn.ModuleList(
        SomeBlock(d_model, n_heads) for _ in range(n_layers)
    )
    return SomeGPT(vocab_size, max_len, d_model, blocks, nn.Identity())


class AddAndNorm(Layer):
    def forward(self, x):
        x = self.ln1(x + self.mix(x))
        return self.ln2(x + self.think(x))


@wrong("decoder/build", "post_norm")
class PostNorm(Net):
    layer = AddAndNorm


@wrong("decoder/build", "untied")
class Untied(Net):
    def __init__(self, v, p, d, h, n):
        super().__init__(v, p, d, h, n)
        self.lm_head = nn.Linear(d, v, bias=False)

    def head(self, x):
        return self.lm_head(self.ln_f(x))


@wrong("decoder/build", "too_sure")
class TooSure(Net):
    std = 1.0


class TimeFirst(Layer):
    def mix(self, x):
        # As nn.MultiheadAttention does, which is not batch_first by default.
        return super().mix(x.permute(1, 0, 2)).permute(1, 0, 2)


@wrong("decoder/build", "across_batch")
class AcrossBatch(Net):
    layer = TimeFirst


@wrong("decoder/build", "no_positions")
class NoPositions(Net):
    def __init__(self, v, p, d, h, n):
        super().__init__(v, p, d, h, n)
        del self.wpe

    def start(self, ids):
        return self.wte(ids)


class ByHand(Layer):
    """Attention whose slips are made by subclasses."""

    lowest = -math.inf

    def mix(self, x):
        b, t, d = x.shape
        q, k, v = (
            y.view(b, t, self.n_heads, -1).transpose(1, 2)
            for y in self.qkv(x).chunk(3, dim=-1)
        )
        s = self.hide(q @ k.transpose(2, 3) / math.sqrt(self.size(q)))
        y = s.softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(b, t, d))

    def size(self, q):
        return q.size(-1)

    def hide(self, s):
        t = s.size(-1)
        return torch.where(torch.ones(t, t).tril() == 0, self.lowest, s)


def net_with(**slips):
    """A model whose attention is written by hand, with a slip."""
    return type("Net", (Net,), {"layer": type("Slip", (ByHand,), slips)})


MaskFinite = wrong("decoder/build", "mask_finite")(net_with(lowest=-100.0))


NoScale = wrong("decoder/build", "no_scale")(net_with(size=lambda self, q: 1))


ByModel = wrong("decoder/build", "by_model")(
    net_with(size=lambda self, q: q.size(1) * q.size(-1))
)


# Positions are never added, though the table is there.
@wrong("decoder/build")
def build_without_positions(vocab_size, max_len, d_model, n_heads, n_layers):
    class Unplaced(SomeGPT):
        def forward(self, ids):
            x = self.embedding(ids)
            for block in self.blocks:
                x = block(x)
            return self.norm(x) @ self.embedding.weight.T

    blocks = nn.ModuleList(
        SomeBlock(d_model, n_heads) for _ in range(n_layers)
    )
    return Unplaced(vocab_size, max_len, d_model, blocks)


FillsWith5 = wrong("decoder/build")(net_with(lowest=-5.0))


MaskAdded = wrong("decoder/build")(
    net_with(hide=lambda self, s: s + torch.ones_like(s).tril())
)


# -- shrunk ------------------------------------------------------------------


@right("decoder/shrunk")
def shrunk_library_gpt(vocab_size, max_len):
    return GPT(
        GPTConfig(
            vocab_size=vocab_size,
            max_len=max_len,
            d_model=48,
            n_heads=3,
            n_layers=3,
        )
    )


@right("decoder/shrunk")
def shrunk_own_gpt(vocab_size, max_len):
    blocks = nn.ModuleList(SomeBlock(48, 4) for _ in range(3))
    return SomeGPT(vocab_size, max_len, 48, blocks)


# The ladder's sizes: twice as many parameters as are allowed.
@wrong("decoder/shrunk")
def shrunk_too_large(vocab_size, max_len):
    blocks = nn.ModuleList(SomeBlock(64, 4) for _ in range(4))
    return SomeGPT(vocab_size, max_len, 64, blocks)


# Large blocks hidden from the count in a plain list.
@wrong("decoder/shrunk")
def shrunk_hidden_blocks(vocab_size, max_len):
    blocks = [SomeBlock(128, 4) for _ in range(6)]
    return SomeGPT(vocab_size, max_len, 128, blocks)


@wrong("decoder/shrunk")
def shrunk_sees_the_future(vocab_size, max_len):
    blocks = nn.ModuleList(SomeBlock(48, 4, causal=False) for _ in range(3))
    return SomeGPT(vocab_size, max_len, 48, blocks)
