"""Activations: what is recorded is what happened, and edits are used."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from coursekit.attention import attend, fast_attend
from coursekit.config import EncoderConfig, GPTConfig, TransformerConfig
from coursekit.decoder import GPT
from coursekit.encoder import Encoder
from coursekit.interpret import (
    Activations,
    head_contributions,
    intervene,
    record,
    watch,
)
from coursekit.seq2seq import Transformer

L, B, H, T, D, DH, V = 3, 2, 6, 7, 10, 5, 11


def config(**options):
    sizes = {
        "vocab_size": V,
        "max_len": 13,
        "d_model": D,
        "n_heads": H,
        "d_head": DH,
        "n_layers": L,
        "d_ff": 17,
        "init_std": 0.4,
        "dropout": 0.3,
    }
    return GPTConfig(**sizes | options)


def build(seed=0, **options):
    """A model whose biases and norms are not at their start either."""
    torch.manual_seed(seed)
    model = GPT(config(**options)).double()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn_like(p))
    return model


@pytest.fixture
def ids():
    return torch.randint(V, (B, T), generator=torch.Generator().manual_seed(1))


def close(a, b):
    return torch.allclose(a, b, rtol=0, atol=1e-12)


# -- to look -----------------------------------------------------------------
def test_watching_changes_nothing(ids):
    model = build().eval()
    before = model(ids)
    assert close(watch(model, ids).output, before)
    assert close(model(ids), before)
    assert all(b.attention.attend is fast_attend for b in model.blocks)
    assert not any(m._forward_hooks for m in model.modules())
    assert not any(m._forward_pre_hooks for m in model.modules())


def test_nothing_is_left_behind_by_an_error(ids):
    model = build()

    def broken(i, x):
        raise RuntimeError("broken")

    with (
        pytest.raises(RuntimeError, match="broken"),
        intervene(model, broken, broken, broken, broken),
    ):
        model(ids)
    assert model.training
    assert torch.is_grad_enabled()
    assert all(b.attention.attend is fast_attend for b in model.blocks)
    assert not any(m._forward_hooks for m in model.modules())
    assert not any(m._forward_pre_hooks for m in model.modules())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"n_kv_heads": 2, "positions": "rope", "d_head": 4},
        {"positions": "alibi", "bias": False, "norm": "rmsnorm"},
        {"d_ff": 0},
    ],
)
def test_the_parts_add_up(ids, options):
    model = build(**options)
    seen = watch(model, ids)
    assert seen.stream.shape == (L + 1, B, T, D)
    assert seen.weights.shape == (L, B, H, T, T)
    assert close(seen.weights.sum(-1), torch.ones(L, B, H, T).double())
    assert not seen.weights.triu(1).any()
    added = head_contributions(model, seen.heads).sum(2)
    for i, block in enumerate(model.blocks):
        total = seen.stream[i] + added[i]
        if block.attention.w_o.bias is not None:
            assert not close(total, seen.stream[i + 1])
            total = total + block.attention.w_o.bias
        if len(seen.ffn):
            assert not close(total, seen.stream[i + 1])
            total = total + seen.ffn[i]
        assert close(total, seen.stream[i + 1])


def test_an_encoder_can_be_watched(ids):
    torch.manual_seed(0)
    sizes = {"vocab_size": V, "max_len": 13, "d_model": 8, "n_heads": 2}
    encoder = Encoder(EncoderConfig(n_layers=L, d_ff=17, **sizes)).eval()
    real = torch.arange(T) < torch.tensor([[T], [4]])
    seen = watch(encoder, ids, mask=real[:, None, None])
    assert torch.allclose(
        seen.output, encoder(ids, real[:, None, None]), atol=1e-6
    )
    assert not seen.weights[:, 1, :, :, 4:].any()
    assert seen.weights[:, 0].triu(1).any()


# -- to change ---------------------------------------------------------------
def test_an_edit_replaces_the_stream(ids):
    model = build()
    other = torch.randn(B, T, D).double()
    for height in (0, L):
        with intervene(model, lambda i, x, at=height: other if i == at else x):
            changed = model(ids)
        x = other
        if height == 0:
            model.eval()
            for block in model.blocks:
                x = block(x, causal=True)
        assert close(changed, model.logits(x))


def test_edited_weights_heads_and_ffn_are_used(ids):
    model = build(n_layers=1).eval()
    block = model.blocks[0]
    x = watch(model, ids).stream[0]
    y = block.attention_norm(x)

    def finish(written, network=True):
        z = x + written
        if network:
            z = z + block.feed_forward(block.feed_forward_norm(z))
        return model.logits(z)

    own = torch.eye(T).double()
    with intervene(model, weights=lambda i, w: own.expand_as(w)):
        assert close(
            model(ids), finish(block.attention.w_o(block.attention.w_v(y)))
        )
    with intervene(model, heads=lambda i, h: torch.zeros_like(h)):
        assert close(model(ids), finish(block.attention.w_o.bias))
    written = block.attention(y, causal=True)
    with intervene(model, ffn=lambda i, n: torch.zeros_like(n)):
        assert close(model(ids), finish(written, network=False))
    assert not close(model(ids), finish(written, network=False))


def test_only_models_with_blocks_can_be_looked_into(ids):
    with pytest.raises(ValueError, match=r"must have blocks.*got Linear"):
        watch(nn.Linear(3, 5), ids)


def test_readable_attention_may_be_watched_too(ids):
    torch.manual_seed(0)
    model = GPT(config(dropout=0.0), attend).double()
    assert close(watch(model, ids).output, model(ids))
    assert Activations._fields[0] == "output"


# -- an encoder-decoder ------------------------------------------------------
S, D_PAIR = 5, 12


@pytest.fixture
def pairs():
    torch.manual_seed(0)
    sizes = {"d_model": D_PAIR, "n_heads": 3, "d_ff": 17, "dropout": 0.3}
    layers = {"n_encoder_layers": 1, "n_decoder_layers": 2}
    options = {"vocab_size": V, "init_std": 0.4, "norm_first": True}
    model = Transformer(TransformerConfig(**sizes, **layers, **options))
    g = torch.Generator().manual_seed(2)
    src, tgt = (torch.randint(V, (B, n), generator=g) for n in (S, T))
    real = (torch.arange(S) < torch.tensor([[S], [3]]))[:, None, None]
    return model.double(), src, tgt, real


def test_cross_attention_is_recorded(pairs):
    """Bit for bit what the model gives, and weights worked out here."""
    model, src, tgt, real = pairs
    seen = watch(model, src, tgt, src_mask=real)
    model.eval()
    assert torch.equal(seen.output, model(src, tgt, real))
    assert seen.weights.shape == (2, B, 3, T, T)
    assert seen.cross_weights.shape == (2, B, 3, T, S)
    assert not seen.cross_weights[:, 1, :, :, 3:].any()
    block, memory = model.blocks[0], model.encode(src, real)
    x = seen.stream[0]
    x = x + block.attention(block.attention_norm(x), causal=True)
    cross = block.cross_attention
    y = block.cross_attention_norm(x)
    q = cross.w_q(y).unflatten(-1, (3, -1)).transpose(1, 2)
    k = cross.w_k(memory).unflatten(-1, (3, -1)).transpose(1, 2)
    scores = (q @ k.mT / (D_PAIR // 3) ** 0.5).masked_fill(~real, -torch.inf)
    assert close(seen.cross_weights[0], scores.softmax(-1))
    v = cross.w_v(memory).unflatten(-1, (3, -1)).transpose(1, 2)
    assert close(seen.cross_heads[0], scores.softmax(-1) @ v)
    with record(model, "cross_weights") as recorded:
        model.decode(tgt, memory, real)
        model.decode(tgt[:1], memory[:1], real[:1])
    shapes = [len(x) for x in recorded["cross_weights"]]
    assert shapes == [B, B, 1, 1]


def test_an_edit_of_cross_attention_is_used(pairs):
    """One source for all: as if the memory held nothing else."""
    model, src, tgt, _ = pairs
    memory = model.eval().encode(src)
    first = F.one_hot(torch.tensor(0), S).double()
    with intervene(model, cross_weights=lambda i, w: first.expand_as(w)):
        edited = model.decode(tgt, memory)
    assert close(edited, model.decode(tgt, memory[:, :1]))
    assert not close(edited, model.decode(tgt, memory))
    zeros = torch.zeros(B, 1, D_PAIR).double()
    with intervene(model, cross_heads=lambda i, h: torch.zeros_like(h)):
        edited = model.decode(tgt, memory)
    for block in model.blocks:
        nn.init.zeros_(block.cross_attention.w_v.weight)
        if block.cross_attention.w_v.bias is not None:
            nn.init.zeros_(block.cross_attention.w_v.bias)
    assert close(edited, model.decode(tgt, zeros))
    kept = [block.cross_attention.attend for block in model.blocks]
    assert kept == [fast_attend, fast_attend]


def test_what_a_model_lacks_is_empty(ids):
    seen = watch(build(d_ff=0), ids)
    assert len(seen.ffn) == len(seen.cross_weights) == 0
    assert len(seen.cross_heads) == 0
    assert len(seen.weights) == L
