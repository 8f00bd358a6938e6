"""Answers to chapter 9, written from its page alone."""

# ruff: noqa: B905, N812

import functools
import math

import torch
from torch import nn
from torch.nn import functional as F

from coursekit import GPT, GPTConfig
from coursekit.feedforward import FeedForward
from coursekit.multihead import MultiHeadAttention
from tests.wild import right, wrong

# decoder/count


@right("decoder/count", "a bill of all items, one after the other")
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


@wrong("decoder/count", "forgets the last norm", classic=True)
def count_without_last_norm(
    vocab_size, max_len, d_model, n_layers, tied, small
):
    n = vocab_size * d_model * (1 if tied else 2)
    n += n_layers * 12 * d_model**2
    if small:
        n += max_len * d_model + n_layers * 13 * d_model
    return n


@wrong("decoder/count", "counts the head although it is tied", classic=True)
def count_head_twice(vocab_size, max_len, d_model, n_layers, tied, small):
    n = 2 * vocab_size * d_model + n_layers * 12 * d_model**2
    if small:
        n += max_len * d_model + n_layers * 13 * d_model + 2 * d_model
    return n


@wrong(
    "decoder/count",
    "takes the network's two matrices to be square",
    classic=True,
)
def count_square_network(vocab_size, max_len, d_model, n_layers, tied, small):
    n = vocab_size * d_model * (1 if tied else 2)
    n += n_layers * 6 * d_model**2
    if small:
        n += max_len * d_model + n_layers * 10 * d_model + 2 * d_model
    return n


@wrong(
    "decoder/count",
    "an untied head gets a bias, which this GPT doesn't have",
    classic=True,
)
def count_head_bias(vocab_size, max_len, d_model, n_layers, tied, small):
    n = vocab_size * d_model + n_layers * 12 * d_model**2
    if not tied:
        n += vocab_size * d_model + vocab_size
    if small:
        n += max_len * d_model + n_layers * 13 * d_model + 2 * d_model
    return n


@wrong(
    "decoder/count",
    "positions are counted in any case",
    classic=False,
)
def count_positions_always(
    vocab_size, max_len, d_model, n_layers, tied, small
):
    n = (vocab_size + max_len) * d_model + n_layers * 12 * d_model**2
    n += 0 if tied else vocab_size * d_model
    if small:
        n += n_layers * 13 * d_model + 2 * d_model
    return n


# decoder/gpt


@right("decoder/gpt", "reduce over the blocks, einsum for the logits")
def gpt_by_reduce(ids, table, places, blocks, final_norm):
    start = F.embedding(ids, table) + places.narrow(0, 0, ids.size(1))
    x = functools.reduce(lambda stream, block: block(stream), blocks, start)
    return torch.einsum("btd,vd->btv", final_norm(x), table)


@wrong("decoder/gpt", "no norm before the head", classic=True)
def gpt_without_norm(ids, table, places, blocks, final_norm):
    x = table[ids] + places[: ids.size(1)]
    for block in blocks:
        x = block(x)
    return x @ table.T


@wrong(
    "decoder/gpt",
    "adds the stream once more around blocks that add it already",
    classic=True,
)
def gpt_adds_twice(ids, table, places, blocks, final_norm):
    x = table[ids] + places[: ids.size(1)]
    for block in blocks:
        x = x + block(x)
    return final_norm(x) @ table.T


@wrong(
    "decoder/gpt",
    "adds all P positions, which fits only a text of that length",
    classic=True,
)
def gpt_all_positions(ids, table, places, blocks, final_norm):
    x = table[ids] + places
    for block in blocks:
        x = block(x)
    return final_norm(x) @ table.T


@wrong("decoder/gpt", "looks positions up by token", classic=True)
def gpt_positions_by_token(ids, table, places, blocks, final_norm):
    x = table[ids] + places[ids % len(places)]
    for block in blocks:
        x = block(x)
    return final_norm(x) @ table.T


@wrong("decoder/gpt", "probabilities instead of logits", classic=True)
def gpt_probabilities(ids, table, places, blocks, final_norm):
    x = table[ids] + places[: ids.size(1)]
    for block in blocks:
        x = block(x)
    return (final_norm(x) @ table.T).softmax(-1)


@wrong(
    "decoder/gpt",
    "the norm runs after each block, not once at the end",
    classic=True,
)
def gpt_norm_in_the_loop(ids, table, places, blocks, final_norm):
    x = table[ids] + places[: ids.size(1)]
    for block in blocks:
        x = final_norm(block(x))
    return x @ table.T


@wrong("decoder/gpt", "the last position's logits only", classic=False)
def gpt_last_only(ids, table, places, blocks, final_norm):
    x = table[ids] + places[: ids.size(1)]
    for block in blocks:
        x = block(x)
    return final_norm(x)[:, -1] @ table.T


# decoder/mended


@right("decoder/mended", "recursive in the list of parts")
def mended_recursive(x, parts, norms, final_norm):
    parts, norms = list(parts), list(norms)
    if not parts:
        return final_norm(x)
    x = x + parts[0](norms[0](x))
    return mended_recursive(x, parts[1:], norms[1:], final_norm)


@wrong(
    "decoder/mended",
    "the stack doesn't end with the final norm",
    classic=True,
)
def mended_no_final_norm(x, parts, norms, final_norm):
    for part, norm in zip(parts, norms):
        x = x + part(norm(x))
    return x


@wrong(
    "decoder/mended",
    "the normed vector goes on along the path",
    classic=True,
)
def mended_normed_path(x, parts, norms, final_norm):
    for part, norm in zip(parts, norms):
        x = norm(x)
        x = x + part(x)
    return final_norm(x)


@wrong("decoder/mended", "the stream is still added twice", classic=True)
def mended_added_twice(x, parts, norms, final_norm):
    for part, norm in zip(parts, norms):
        y = x + part(norm(x))
        x = x + y
    return final_norm(x)


@wrong(
    "decoder/mended",
    "one norm serves all parts: the first",
    classic=False,
)
def mended_one_norm(x, parts, norms, final_norm):
    norm = norms[0]
    for part in parts:
        x = x + part(norm(x))
    return final_norm(x)


# decoder/build


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


class PostNormBlock(SomeBlock):
    def forward(self, x):
        x = self.norm_1(x + self.attention(x, causal=True))
        return self.norm_2(x + self.feed_forward(x))


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


@right("decoder/build", "the attention is its own, with one fused matrix")
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


@right("decoder/build", "blocks of library parts in an nn.Sequential")
def build_sequential(vocab_size, max_len, d_model, n_heads, n_layers):
    blocks = nn.Sequential()
    for i in range(n_layers):
        blocks.add_module(f"block_{i}", SomeBlock(d_model, n_heads))
    return SomeGPT(vocab_size, max_len, d_model, blocks)


@wrong("decoder/build", "attention without the causal mask", classic=True)
def build_without_mask(vocab_size, max_len, d_model, n_heads, n_layers):
    blocks = nn.ModuleList(
        SomeBlock(d_model, n_heads, causal=False) for _ in range(n_layers)
    )
    return SomeGPT(vocab_size, max_len, d_model, blocks)


@wrong("decoder/build", "one block, listed several times", classic=True)
def build_one_block(vocab_size, max_len, d_model, n_heads, n_layers):
    blocks = nn.ModuleList([SomeBlock(d_model, n_heads)] * n_layers)
    return SomeGPT(vocab_size, max_len, d_model, blocks)


@wrong("decoder/build", "blocks in a plain list", classic=True)
def build_plain_list(vocab_size, max_len, d_model, n_heads, n_layers):
    blocks = [SomeBlock(d_model, n_heads) for _ in range(n_layers)]
    return SomeGPT(vocab_size, max_len, d_model, blocks)


@wrong("decoder/build", "no final norm", classic=True)
def build_without_final_norm(vocab_size, max_len, d_model, n_heads, n_layers):
    blocks = nn.ModuleList(
        SomeBlock(d_model, n_heads) for _ in range(n_layers)
    )
    return SomeGPT(vocab_size, max_len, d_model, blocks, nn.Identity())


@wrong("decoder/build", "post-norm blocks", classic=True)
def build_post_norm(vocab_size, max_len, d_model, n_heads, n_layers):
    blocks = nn.ModuleList(
        PostNormBlock(d_model, n_heads) for _ in range(n_layers)
    )
    return SomeGPT(vocab_size, max_len, d_model, blocks)


@wrong("decoder/build", "the head is a matrix of its own", classic=True)
def build_untied(vocab_size, max_len, d_model, n_heads, n_layers):
    class Untied(SomeGPT):
        def __init__(self):
            blocks = nn.ModuleList(
                SomeBlock(d_model, n_heads) for _ in range(n_layers)
            )
            super().__init__(vocab_size, max_len, d_model, blocks)
            self.head = nn.Linear(d_model, vocab_size, bias=False)

        def forward(self, ids):
            x = self.embedding(ids)
            x = x + self.positions.weight[: ids.size(1)]
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    return Untied()


@wrong(
    "decoder/build",
    "a tied table with standard deviation 1 starts too sure",
    classic=True,
)
def build_too_sure(vocab_size, max_len, d_model, n_heads, n_layers):
    model = build_sequential(vocab_size, max_len, d_model, n_heads, n_layers)
    nn.init.normal_(model.embedding.weight)
    nn.init.normal_(model.positions.weight)
    return model


@wrong(
    "decoder/build",
    "positions are never added, though the table is there",
    classic=False,
)
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


# decoder/diagnose


def ordered_size(config, **changes):
    with torch.device("meta"):
        model = GPT(GPTConfig(**(config.to_dict() | changes)))
    return sum(p.numel() for p in model.parameters())


@right("decoder/diagnose", "own tests, with the library for counting only")
def diagnose_by_own_tests(model, config):
    n_layers, wanted = config.n_layers, ordered_size(config)
    a_block = ordered_size(config, n_layers=n_layers + 1) - wanted
    missing = wanted - sum(p.numel() for p in model.parameters())
    if missing == n_layers * a_block:
        return "blocks not registered"
    if missing == (n_layers - 1) * a_block != 0:
        return "one block for all"
    if missing < 0:
        return "head not tied"
    if missing > 0:
        return "no final norm"

    model.eval()
    torch.manual_seed(0)
    length = min(8, config.max_len)
    text = torch.randint(config.vocab_size, (4, length + 1))
    ids, targets = text[:, :-1], text[:, 1:]
    with torch.no_grad():
        logits = model(ids)
        if not torch.allclose(logits, model(ids), atol=1e-6):
            return "dropout never off"
        ahead = mixed = looks_back = False
        for t in range(length):
            for step in (1, 2, 3):
                other = ids.clone()
                other[0, t] = (ids[0, t] + step) % config.vocab_size
                moved = (model(other) - logits).abs().amax(-1) > 1e-5
                ahead |= bool(moved[0, :t].any())
                mixed |= bool(moved[1:].any())
                looks_back |= bool(moved[0, t + 1 :].any())
    if mixed:
        return "mixes the sentences"
    if ahead:
        return "sees the future"
    if not looks_back:
        return "ignores its context"

    model.zero_grad()
    loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
    if loss.item() > math.log(config.vocab_size) + 5:
        return "starts too sure"
    loss.backward()
    matrices = [p for p in model.parameters() if p.dim() > 1]
    for p in matrices:
        if p.grad is None or not p.grad.any():
            return "stream detached"
    for i, p in enumerate(matrices):
        for other in matrices[:i]:
            if p.shape == other.shape and torch.equal(p, other):
                return "blocks start equal"
    return "right"


@wrong(
    "decoder/diagnose",
    "counts only: whatever has the right size is right",
    classic=True,
)
def diagnose_by_size(model, config):
    n_layers, wanted = config.n_layers, ordered_size(config)
    a_block = ordered_size(config, n_layers=n_layers + 1) - wanted
    missing = wanted - sum(p.numel() for p in model.parameters())
    if missing == n_layers * a_block:
        return "blocks not registered"
    if missing == (n_layers - 1) * a_block != 0:
        return "one block for all"
    if missing < 0:
        return "head not tied"
    return "no final norm" if missing else "right"


@wrong(
    "decoder/diagnose",
    "takes the model for right without a look",
    classic=False,
)
def diagnose_always_right(model, config):
    return "right"


@wrong(
    "decoder/diagnose",
    "never calls eval, so dropout looks like a view of the future",
    classic=True,
)
def diagnose_while_training(model, config):
    by_size = diagnose_by_size(model, config)
    if by_size != "right":
        return by_size
    model.train()
    ids = torch.randint(config.vocab_size, (2, min(8, config.max_len)))
    other = ids.clone()
    other[0, -1] = (ids[0, -1] + 1) % config.vocab_size
    with torch.no_grad():
        change = (model(ids) - model(other)).abs().amax(-1)
    if change[1].max() > 1e-5:
        return "mixes the sentences"
    if change[0, :-1].max() > 1e-5:
        return "sees the future"
    return "right"


# decoder/shrunk


@right("decoder/shrunk", "the library's GPT in a smaller size")
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


@right("decoder/shrunk", "the model of the exercise before, three blocks")
def shrunk_own_gpt(vocab_size, max_len):
    blocks = nn.ModuleList(SomeBlock(48, 4) for _ in range(3))
    return SomeGPT(vocab_size, max_len, 48, blocks)


@wrong(
    "decoder/shrunk",
    "the ladder's sizes: twice as many parameters as are allowed",
    classic=True,
)
def shrunk_too_large(vocab_size, max_len):
    blocks = nn.ModuleList(SomeBlock(64, 4) for _ in range(4))
    return SomeGPT(vocab_size, max_len, 64, blocks)


@wrong("decoder/shrunk", "sees the future", classic=True)
def shrunk_sees_the_future(vocab_size, max_len):
    blocks = nn.ModuleList(SomeBlock(48, 4, causal=False) for _ in range(3))
    return SomeGPT(vocab_size, max_len, 48, blocks)


@wrong(
    "decoder/shrunk",
    "large blocks hidden from the count in a plain list",
    classic=False,
)
def shrunk_hidden_blocks(vocab_size, max_len):
    blocks = [SomeBlock(128, 4) for _ in range(6)]
    return SomeGPT(vocab_size, max_len, 128, blocks)
