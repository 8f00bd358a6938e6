"""Answers to the exercises of chapter 9, as people write them."""

import math

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from coursekit import probe


# -- count -------------------------------------------------------------------
def layer_by_layer(vocab_size, max_len, d_model, n_layers, tied, small):
    d, total = d_model, vocab_size * d_model
    for _ in range(n_layers):
        for n_in, n_out in [(d, d)] * 4 + [(d, 4 * d), (4 * d, d)]:
            total += n_in * n_out + (n_out if small else 0)
        total += 2 * 2 * d if small else 0
    if not tied:
        total += d * vocab_size
    return total + (max_len * d + 2 * d if small else 0)


def by_shapes(vocab_size, max_len, d_model, n_layers, tied, small):
    # PyTorch's own layer, without numbers in it.
    layer = nn.TransformerEncoderLayer(d_model, 1, 4 * d_model, device="meta")
    shapes = [p.shape for p in layer.parameters()] * n_layers
    shapes += [(vocab_size, d_model)] * (1 if tied else 2)
    norm = [(d_model,), (d_model,)]
    extra = [(max_len, d_model), *norm] if small else []
    return sum(math.prod(s) for s in [*shapes, *extra] if small or len(s) == 2)


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


def untied_has_no_small_things(
    vocab_size, max_len, d_model, n_layers, tied, small
):
    if not tied:
        return 2 * vocab_size * d_model + 12 * n_layers * d_model**2
    return layer_by_layer(vocab_size, max_len, d_model, n_layers, tied, small)


def narrow_network(vocab_size, max_len, d_model, n_layers, tied, small):
    right = one_formula(vocab_size, max_len, d_model, n_layers, tied, small)
    return right - 6 * n_layers * d_model**2


# -- gpt ---------------------------------------------------------------------
def by_embedding(ids, table, places, blocks, final_norm):
    x = F.embedding(ids, table)
    x = x + F.embedding(torch.arange(ids.shape[1]), places)
    for block in blocks:
        x = block(x)
    return F.linear(final_norm(x), table)


def one_hot(ids, table, places, blocks, final_norm):
    x = F.one_hot(ids, len(table)).to(table) @ table
    for t in range(ids.shape[1]):
        x[:, t] += places[t]
    for n in range(len(blocks)):
        x = blocks[n](x)
    return torch.einsum("btd,vd->btv", final_norm(x), table)


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


def no_positions(ids, table, places, blocks, final_norm):
    return final_norm(run(table[ids], blocks)) @ table.T


def positions_by_batch(ids, table, places, blocks, final_norm):
    x = F.embedding(ids, table)
    x = x + places[: x.size(0), :]
    return F.linear(final_norm(run(x, blocks)), table)


def positions_by_token(ids, table, places, blocks, final_norm):
    x = F.embedding(ids, table) + F.embedding(ids, places)
    return F.linear(final_norm(run(x, blocks)), table)


def double_path(ids, table, places, blocks, final_norm):
    x = start(ids, table, places)
    for block in blocks:
        shortcut = x
        x = shortcut + block(x)
    return final_norm(x) @ table.mT


def no_final_norm(ids, table, places, blocks, final_norm):
    return run(start(ids, table, places), blocks) @ table.t()


def softmax(ids, table, places, blocks, final_norm):
    logits = final_norm(run(start(ids, table, places), blocks)) @ table.T
    return F.softmax(logits, -1)


def first_sentence(ids, table, places, blocks, final_norm):
    x = run(start(ids[:1], table, places), blocks)
    return (final_norm(x) @ table.T).expand(len(ids), -1, -1)


def top_down(ids, table, places, blocks, final_norm):
    x = run(start(ids, table, places), blocks[::-1])
    return final_norm(x) @ table.T


def norm_first_of_all(ids, table, places, blocks, final_norm):
    x = final_norm(start(ids, table, places))
    return run(x, blocks) @ table.T


def positions_of_the_end(ids, table, places, blocks, final_norm):
    x = run(table[ids] + places[-ids.shape[1] :], blocks)
    return final_norm(x) @ table.T


# -- mended ------------------------------------------------------------------
def written_out(x, parts, norms, final_norm):
    for i in range(len(parts)):
        branch = norms[i](x)
        branch = parts[i](branch)
        x = torch.add(branch, x)
    return final_norm(x)


def sum_of_writes(x, parts, norms, final_norm):
    written = [x]
    for part, norm in zip(parts, norms, strict=True):
        written.append(part(norm(torch.stack(written).sum(0))))
    return final_norm(torch.stack(written).sum(0))


def block_by_block(x, parts, norms, final_norm):
    pairs = list(zip(parts, norms, strict=True))
    for (attend, one), (think, two) in zip(
        pairs[::2], pairs[1::2], strict=True
    ):
        a = x + attend(one(x))
        x = a + think(two(a))
    return final_norm(x)


def normed_path(x, parts, norms, final_norm):
    for part, norm in zip(parts, norms, strict=True):
        normed = norm(x)
        x = normed + part(normed)
    return final_norm(x)


def post_norm(x, parts, norms, final_norm):
    for i, part in enumerate(parts):
        x = norms[i](part(x) + x)
    return final_norm(x)


def added_twice(x, parts, norms, final_norm):
    for part, norm in zip(parts, norms, strict=True):
        x = 2 * x + part(norm(x))
    return final_norm(x)


def no_path(x, parts, norms, final_norm):
    for part, norm in zip(parts, norms, strict=True):
        x = part(norm(x))
    return final_norm(x)


def mended_no_final_norm(x, parts, norms, final_norm):
    for part, norm in zip(parts, norms, strict=True):
        x = x + part(norm(x))
    return x


def one_norm_for_all(x, parts, norms, final_norm):
    return written_out(x, parts, [norms[0]] * len(parts), final_norm)


def two_norms_for_all(x, parts, norms, final_norm):
    shared = [norms[i % 2] for i in range(len(parts))]
    return written_out(x, parts, shared, final_norm)


def raw_branch(x, parts, norms, final_norm):
    for part in parts:
        x = x + part(x)
    return final_norm(x)


def parts_halved(x, parts, norms, final_norm):
    for part, norm in zip(parts, norms, strict=True):
        x = x + part(norm(x)) / 2
    return final_norm(x)


def from_the_bottom(x, parts, norms, final_norm):
    bottom = x
    for part, norm in zip(parts, norms, strict=True):
        x = bottom + part(norm(x))
    return final_norm(x)


# -- build: right ------------------------------------------------------------
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


class Tied(Net):
    """A head that is a module, with the table as its weight."""

    def __init__(self, v, p, d, h, n):
        super().__init__(v, p, d, h, n)
        self.lm_head = nn.Linear(d, v, bias=False)
        self.lm_head.weight = self.wte.weight

    def head(self, x):
        return self.lm_head(self.ln_f(x))


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


# -- build: wrong ------------------------------------------------------------
class OneBlock(Net):
    def stack(self, d, h, n):
        block = self.layer(d, h)
        self.h = nn.ModuleList([block for _ in range(n)])


class PlainList(Net):
    def stack(self, d, h, n):
        self.h = []
        for _ in range(n):
            self.h.append(self.layer(d, h))


class SeesAll(Layer):
    causal = False


class NoMask(Net):
    layer = SeesAll


class TimeFirst(Layer):
    def mix(self, x):
        # As nn.MultiheadAttention does, which is not batch_first by default.
        return super().mix(x.permute(1, 0, 2)).permute(1, 0, 2)


class AcrossBatch(Net):
    layer = TimeFirst


class NoPositions(Net):
    def __init__(self, v, p, d, h, n):
        super().__init__(v, p, d, h, n)
        del self.wpe

    def start(self, ids):
        return self.wte(ids)


class AddAndNorm(Layer):
    def forward(self, x):
        x = self.ln1(x + self.mix(x))
        return self.ln2(x + self.think(x))


class PostNorm(Net):
    layer = AddAndNorm


class NoFinalNorm(Net):
    def __init__(self, v, p, d, h, n):
        super().__init__(v, p, d, h, n)
        self.ln_f = nn.Identity()


class Untied(Net):
    def __init__(self, v, p, d, h, n):
        super().__init__(v, p, d, h, n)
        self.lm_head = nn.Linear(d, v, bias=False)

    def head(self, x):
        return self.lm_head(self.ln_f(x))


class TooSure(Net):
    std = 1.0


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


MaskFinite = net_with(lowest=-100.0)
NoScale = net_with(size=lambda self, q: 1)
ByModel = net_with(size=lambda self, q: q.size(1) * q.size(-1))
FillsWith5 = net_with(lowest=-5.0)
SeesTwoAhead = net_with(
    hide=lambda self, s: s.masked_fill(
        torch.ones_like(s).triu(2).bool(), -math.inf
    )
)
MaskAdded = net_with(hide=lambda self, s: s + torch.ones_like(s).tril())


class PartsCut(Layer):
    def forward(self, x):
        x = x + self.mix(self.ln1(x)).detach()
        return x + self.think(self.ln2(x)).detach()


class PartsCutOff(Net):
    layer = PartsCut


class NoGradient(Layer):
    def mix(self, x):
        with torch.no_grad():
            return super().mix(x)


class PartsWithoutGradient(Net):
    layer = NoGradient


# -- build: mistakes that the catalogue does not have ------------------------
class Narrow(Layer):
    def __init__(self, d, n_heads):
        super().__init__(d, n_heads)
        self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)


class NarrowNetwork(Net):
    layer = Narrow


class PlacesForgotten(Net):
    def start(self, ids):
        return self.wte(ids)


class Probabilities(Net):
    def head(self, x):
        return super().head(x).softmax(-1)


class HeadCutOff(Net):
    """The table learns as the embedding, and not as the head."""

    def head(self, x):
        return self.ln_f(x) @ self.wte.weight.detach().T


class DeafQueries(Layer):
    """The queries' third of a matrix gets no gradient."""

    def mix(self, x):
        b, t, d = x.shape
        q, k, v = (
            y.view(b, t, self.n_heads, -1).transpose(1, 2)
            for y in self.qkv(x).chunk(3, dim=-1)
        )
        y = F.scaled_dot_product_attention(q.detach(), k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, d))


class QueriesCutOff(Net):
    layer = DeafQueries


# -- diagnose ----------------------------------------------------------------
def by_size(model, config, count=None):
    """The fault that the number of parameters tells, or None."""
    v, p, d, n = (
        config.vocab_size,
        config.max_len,
        config.d_model,
        config.n_layers,
    )
    if count is None:
        count = sum(w.numel() for w in model.parameters())
    block = 12 * d**2 + 13 * d
    rest = count - (v + p + 2) * d
    if rest == block:
        return "one block for all"
    if rest == 0:
        return "blocks not registered"
    if rest == n * block + v * d:
        return "head not tied"
    if rest == n * block - 2 * d:
        return "no final norm"
    return None


def restless(model, v):
    ids = torch.arange(12).view(2, 6) % v
    return not torch.equal(model(ids), model(ids))


def equal_blocks(model):
    seen = []
    for weight in model.parameters():
        if weight.dim() < 2:
            continue
        if any(w.shape == weight.shape and (w == weight).all() for w in seen):
            return True
        seen.append(weight)
    return False


def inside(model, v):
    """Faults that are about gradients, start and blocks, or "right"."""
    report = probe.trains_everything(model, v)
    if report.loss > math.log(v) + 5:
        return "starts too sure"
    if not report.ok:
        return "stream detached"
    return "blocks start equal" if equal_blocks(model) else "right"


def by_probes(model, config):
    v = config.vocab_size
    model.eval()
    if fault := by_size(model, config):
        return fault
    if restless(model, v):
        return "dropout never off"
    if not probe.causality(model, v, 3, 1).ok:
        return "sees the future"
    if not probe.batch_independence(model, v, 2, 2).ok:
        return "mixes the sentences"
    if not probe.uses_context(model, v, 3, 1).ok:
        return "ignores its context"
    return inside(model, v)


def by_prefixes(model, config):
    # What a prefix and a row say alone, they have to say in company.
    if fault := by_size(model, config):
        return fault
    model.eval()
    v = config.vocab_size
    if restless(model, v):
        return "dropout never off"
    ids = torch.arange(6).view(2, 3) + 1
    with torch.no_grad():
        whole = model(ids)
        for t in (1, 2):
            if (model(ids[:, :t])[:, -1] - whole[:, t - 1]).abs().max() > 1e-5:
                return "sees the future"
        for b in range(2):
            if (model(ids[b : b + 1])[0] - whole[b]).abs().max() > 1e-5:
                return "mixes the sentences"
    return by_swap(model, ids, whole) or inside(model, v)


def by_swap(model, ids, whole):
    """Another beginning has to change the end."""
    with torch.no_grad():
        other = model(torch.cat((ids[:, 1:2], ids[:, :1], ids[:, 2:]), 1))
    same = torch.allclose(other[:, -1], whole[:, -1], atol=1e-5)
    return "ignores its context" if same else None


def by_slopes(model, config):
    # A gradient shows what depends on what, as well as a change does.
    if fault := by_size(model, config):
        return fault
    model.eval()
    v, seen = config.vocab_size, []

    def keep(module, args, output):
        output.retain_grad()
        seen.append(output)

    hook = next(
        m for m in model.modules() if getattr(m, "weight", None) is not None
    ).register_forward_hook(keep)
    ids = torch.arange(6).view(2, 3)
    one, two = model(ids), model(ids)
    if not torch.equal(one, two):
        return "dropout never off"

    def depends(row, t):
        [slope] = torch.autograd.grad(
            one[row, t].square().sum(),
            seen[0],
            retain_graph=True,
            allow_unused=True,
        )
        return torch.zeros(2, 3) if slope is None else slope.abs().sum(-1)

    slopes = [depends(b, t) for b in range(2) for t in range(3)]
    hook.remove()
    for n, moved in enumerate(slopes):
        b, t = divmod(n, 3)
        if moved[b, t + 1 :].any():
            return "sees the future"
        if moved[1 - b].any():
            return "mixes the sentences"
    return by_swap(model, ids, one) or inside(model, v)


def no_count(model, config):
    v = config.vocab_size
    model.eval()
    if restless(model, v):
        return "dropout never off"
    if not probe.causality(model, v, 3, 1).ok:
        return "sees the future"
    if not probe.batch_independence(model, v, 2, 2).ok:
        return "mixes the sentences"
    if not probe.uses_context(model, v, 3, 1).ok:
        return "ignores its context"
    return inside(model, v)


def shared_twice(model, config):
    named = model.named_parameters(remove_duplicate=False)
    count = sum(w.numel() for _, w in named)
    return by_size(model, config, count) or no_count(model, config)


def forgets_eval(model, config):
    if fault := by_size(model, config):
        return fault
    ids = torch.arange(6)[None]
    if not torch.allclose(model(ids), model(ids)):
        return "dropout never off"
    return no_count(model, config)


def runs_once(model, config):
    if fault := by_size(model, config):
        return fault
    v = config.vocab_size
    for name, look in (
        ("sees the future", probe.causality),
        ("mixes the sentences", probe.batch_independence),
        ("ignores its context", probe.uses_context),
    ):
        if not look(model.eval(), v, 3, 2).ok:
            return name
    return inside(model, v)


def first_only(model, config):
    v = config.vocab_size
    model.eval()
    if fault := by_size(model, config):
        return fault
    if restless(model, v):
        return "dropout never off"
    a, b = torch.tensor([[1, 2, 3, 4], [1, 2, 3, 5]])
    if not torch.allclose(model(a[None])[0, 0], model(b[None])[0, 0]):
        return "sees the future"
    if not probe.batch_independence(model, v, 2, 2).ok:
        return "mixes the sentences"
    if not probe.uses_context(model, v, 3, 1).ok:
        return "ignores its context"
    return inside(model, v)


def row_0(model, config):
    v = config.vocab_size
    model.eval()
    if fault := by_size(model, config):
        return fault
    if restless(model, v):
        return "dropout never off"
    if not probe.causality(model, v, 3, 1).ok:
        return "sees the future"
    ids = torch.tensor([[3, 1, 4], [1, 5, 9]])
    if not torch.allclose(model(ids)[0], model(ids[:1])[0], atol=1e-5):
        return "mixes the sentences"
    if not probe.uses_context(model, v, 3, 1).ok:
        return "ignores its context"
    return inside(model, v)


def last_token(model, config):
    v = config.vocab_size
    found = by_prefixes(model, config)
    if found != "ignores its context":
        return found
    a, b = torch.tensor([[1, 2, 3, 4], [1, 2, 3, 5]])
    if torch.allclose(model(a[None])[0, -1], model(b[None])[0, -1]):
        return found
    return inside(model, v)


def by_identity(model, config):
    found = by_prefixes(model, config)
    if found != "blocks start equal":
        return found
    blocks = list(model.parameters())
    shared = len(blocks) > len({id(w) for w in blocks})
    return "blocks start equal" if shared else "right"


def never_looks_at_the_loss(model, config):
    found = by_prefixes(model, config)
    return "stream detached" if found == "starts too sure" else found


def shared_and_lost_swapped(model, config):
    one, none = "one block for all", "blocks not registered"
    return {one: none, none: one}.get(
        found := by_prefixes(model, config), found
    )


def expects_less_for_a_head(model, config):
    found = by_prefixes(model, config)
    return "right" if found == "head not tied" else found


def norm_without_shift(model, config):
    found = by_prefixes(model, config)
    return "right" if found == "no final norm" else found


def never_looks_at_gradients(model, config):
    found = by_prefixes(model, config)
    return "right" if found == "stream detached" else found


def untied_bias(vocab_size, max_len, d_model, n_layers, tied, small):
    d, n = d_model, 12 * n_layers * d_model**2
    n += vocab_size * d if tied else (2 * d + 1) * vocab_size
    if small:
        n += max_len * d + n_layers * 13 * d + 2 * d
    return n


def gpt_norm_each(ids, table, places, blocks, final_norm):
    x = torch.nn.functional.embedding(ids, table)
    x = x + places[torch.arange(ids.shape[1])]
    for f in blocks:
        x = final_norm(f(x))
    return x @ table.mT


def all_places(ids, table, places, blocks, final_norm):
    x = table[ids] + places
    for block in blocks:
        x = block(x)
    return final_norm(x) @ table.T


RIGHT = {
    "count": [layer_by_layer, by_shapes, one_formula],
    "gpt": [by_embedding, one_hot, recursive],
    "mended": [written_out, sum_of_writes, block_by_block],
    "build": [Net, Paper, Tied, AllLayers, OneTensor],
    "diagnose": [by_prefixes, by_probes, by_slopes],
}
WRONG = {
    "count": {
        "no_positions": wrong_count(positions="0"),
        "head_counted": wrong_count(head="V * D"),
        "no_biases": wrong_count(biases="0"),
        "no_final_norm": wrong_count(last="0"),
        "untied_bias": untied_bias,
    },
    "gpt": {
        "no_positions": no_positions,
        "positions_by_batch": positions_by_batch,
        "positions_by_token": positions_by_token,
        "double_path": double_path,
        "no_final_norm": no_final_norm,
        "softmax": softmax,
        "norm_each": gpt_norm_each,
        "all_places": all_places,
    },
    "mended": {
        "normed_path": normed_path,
        "post_norm": post_norm,
        "added_twice": added_twice,
        "no_path": no_path,
        "no_final_norm": mended_no_final_norm,
    },
    "build": {
        "one_block": OneBlock,
        "plain_list": PlainList,
        "no_mask": NoMask,
        "across_batch": AcrossBatch,
        "no_positions": NoPositions,
        "post_norm": PostNorm,
        "no_final_norm": NoFinalNorm,
        "untied": Untied,
        "too_sure": TooSure,
        "mask_finite": MaskFinite,
        "no_scale": NoScale,
        "by_model": ByModel,
    },
    "diagnose": {
        "shared_twice": shared_twice,
        "forgets_eval": forgets_eval,
        "row_0": row_0,
        "last_token": last_token,
    },
}
OUTSIDE = {
    "count": [
        untied_has_no_small_things,
        narrow_network,
        wrong_count(positions="was // 2"),
    ],
    "gpt": [
        first_sentence,
        top_down,
        norm_first_of_all,
        positions_of_the_end,
    ],
    "mended": [
        two_norms_for_all,
        one_norm_for_all,
        raw_branch,
        parts_halved,
        from_the_bottom,
    ],
    "build": [
        *(NarrowNetwork, PlacesForgotten, Probabilities),
        *(HeadCutOff, QueriesCutOff, PartsCutOff, PartsWithoutGradient),
        *(FillsWith5, SeesTwoAhead, MaskAdded),
    ],
    "diagnose": [
        never_looks_at_the_loss,
        shared_and_lost_swapped,
        expects_less_for_a_head,
        norm_without_shift,
        never_looks_at_gradients,
        runs_once,
        by_identity,
        first_only,
    ],
}
