"""The same weights in PyTorch's own modules: the same values and gradients.

Each test copies every parameter, compares the outputs, the gradient of the
inputs and the gradient of every parameter, all in float64.  Two switches are
easy to miss, and a test shows parity failing without each:

- ``final_norm``: ``nn.Transformer`` ends both stacks with a LayerNorm, also
  with ``norm_first=False``.  The paper has none.
- masks: PyTorch's modules hide where a mask is True; ours show.
"""

import math

import pytest
import torch
from compare import (
    Links,
    close,
    differ,
    link_attention,
    link_block,
    shake,
)
from torch import nn

from coursekit.block import Block
from coursekit.config import StackConfig, TransformerConfig
from coursekit.masks import causal_mask
from coursekit.multihead import MultiHeadAttention
from coursekit.seq2seq import CrossBlock, Transformer

B, T, S, D, H, DFF, V = 2, 5, 7, 33, 3, 13, 19
EXACT = 1e-12


@pytest.fixture(autouse=True)
def _in_float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def noise(*shape, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).requires_grad_()


def padding():
    """True = a real token; the second sequence has two fewer."""
    mask = torch.ones(B, S, dtype=torch.bool)
    mask[1, -2:] = False
    return mask


def same_backward(links, ours, theirs, inputs):
    """The same upstream gradient into both; inputs and parameters agree."""
    up = noise(*ours.shape, seed=8).detach()
    a = torch.autograd.grad(ours, inputs, up, retain_graph=True)
    b = torch.autograd.grad(theirs, inputs, up, retain_graph=True)
    for left, right in zip(a, b, strict=True):
        close(left, right, EXACT)
    ours.backward(up, retain_graph=True)
    theirs.backward(up, retain_graph=True)
    links.same_gradients(EXACT)


# -- multi-head attention ----------------------------------------------------


def attentions():
    theirs = shake(nn.MultiheadAttention(D, H, batch_first=True))
    ours, links = MultiHeadAttention(D, H), Links()
    link_attention(links, ours, theirs)
    links.covers(ours)
    return ours, theirs, links


@pytest.mark.parametrize("mask", ["none", "causal", "padding", "both"])
def test_self_attention(mask):
    ours, theirs, links = attentions()
    x = noise(B, S, D)
    causal = mask in ("causal", "both")
    pads = padding() if mask in ("padding", "both") else None
    y = ours(
        x, mask=None if pads is None else pads[:, None, None], causal=causal
    )
    z, _ = theirs(
        x,
        x,
        x,
        key_padding_mask=None if pads is None else ~pads,
        attn_mask=~causal_mask(S) if causal else None,
        need_weights=False,
    )
    close(y, z, EXACT)
    same_backward(links, y, z, [x])


def test_cross_attention():
    """T ≠ S, with padded keys."""
    ours, theirs, links = attentions()
    x, memory = noise(B, T, D), noise(B, S, D, seed=2)
    y = ours(x, memory, mask=padding()[:, None, None])
    z, _ = theirs(x, memory, memory, ~padding(), need_weights=False)
    close(y, z, EXACT)
    same_backward(links, y, z, [x, memory])


def test_masks_have_opposite_signs():
    """Control: our mask handed over as it is hides the wrong half."""
    ours, theirs, _ = attentions()
    x = noise(B, S, D)
    z, _ = theirs(x, x, x, attn_mask=causal_mask(S).triu(), need_weights=False)
    differ(ours(x, causal=True), z)


def test_swapped_projections_are_seen():
    """Control: the fused matrix cut in another order."""
    ours, theirs, _ = attentions()
    x = noise(B, S, D)
    with torch.no_grad():
        for i, linear in enumerate((ours.w_k, ours.w_q, ours.w_v)):
            linear.weight.copy_(theirs.in_proj_weight.chunk(3)[i])
    z, _ = theirs(x, x, x, need_weights=False)
    differ(ours(x), z)


# -- blocks ------------------------------------------------------------------

FIRST = pytest.mark.parametrize("norm_first", [True, False])
OPTIONS = {"d_model": D, "n_heads": H, "d_ff": DFF}


def layer(kind, norm_first, activation="relu"):
    return shake(
        kind(
            D,
            H,
            DFF,
            dropout=0.0,
            activation=activation,
            layer_norm_eps=1e-3,
            norm_first=norm_first,
            batch_first=True,
        )
    )


@FIRST
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_layer(norm_first, activation):
    """nn.TransformerEncoderLayer = Block, pre- and post-norm."""
    theirs = layer(nn.TransformerEncoderLayer, norm_first, activation)
    config = StackConfig(
        vocab_size=V,
        norm_first=norm_first,
        norm_eps=1e-3,
        activation=activation,
        **OPTIONS,
    )
    ours, links = Block(config), Links()
    link_block(links, ours, theirs)
    links.covers(ours)
    x = noise(B, S, D)
    y = ours(x, mask=padding()[:, None, None])
    z = theirs(x, src_key_padding_mask=~padding())
    close(y, z, EXACT)
    same_backward(links, y, z, [x])
    # Controls: the other order of norms, the other activation.
    ours.norm_first = not norm_first
    differ(ours(x, mask=padding()[:, None, None]), z)


@FIRST
def test_decoder_layer(norm_first):
    """nn.TransformerDecoderLayer = CrossBlock, pre- and post-norm."""
    theirs = layer(nn.TransformerDecoderLayer, norm_first)
    config = TransformerConfig(
        vocab_size=V,
        norm_first=norm_first,
        norm_eps=1e-3,
        dropout=0.0,
        positions="none",
        **OPTIONS,
    )
    ours, links = CrossBlock(config), Links()
    link_block(links, ours, theirs)
    links.covers(ours)
    x, memory = noise(B, T, D), noise(B, S, D, seed=2)
    y = ours(x, memory, memory_mask=padding()[:, None, None])
    z = theirs(
        x,
        memory,
        tgt_mask=~causal_mask(T),
        memory_key_padding_mask=~padding(),
    )
    close(y, z, EXACT)
    same_backward(links, y, z, [x, memory])
    # Controls: no causal mask over there, no padding here.
    differ(y, theirs(x, memory, memory_key_padding_mask=~padding()))
    differ(ours(x, memory), z)


# -- the whole ---------------------------------------------------------------


def transformers(norm_first, final_norm):
    theirs = shake(
        nn.Transformer(
            D,
            H,
            num_encoder_layers=2,
            num_decoder_layers=3,
            dim_feedforward=DFF,
            dropout=0.0,
            norm_first=norm_first,
            batch_first=True,
        ),
        std=0.2,
    )
    config = TransformerConfig(
        vocab_size=V,
        max_len=S,
        n_encoder_layers=2,
        n_decoder_layers=3,
        norm_first=norm_first,
        final_norm=final_norm,
        dropout=0.0,
        positions="none",
        **OPTIONS,
    )
    ours, links = Transformer(config), Links()
    for a, b in zip(ours.encoder.blocks, theirs.encoder.layers, strict=True):
        link_block(links, a, b)
    for a, b in zip(ours.blocks, theirs.decoder.layers, strict=True):
        link_block(links, a, b)
    if final_norm:
        links.norm(ours.encoder.final_norm, theirs.encoder.norm)
        links.norm(ours.final_norm, theirs.decoder.norm)
    table = nn.Parameter(noise(V, D, seed=5).detach())
    links.add(ours.embedding.weight, table)
    links.covers(ours)

    def run(src, tgt):
        """nn.Transformer between our embedding and our tied head."""
        root = math.sqrt(D)
        x = theirs(
            table[src] * root,
            table[tgt] * root,
            tgt_mask=~causal_mask(T),
            src_key_padding_mask=~padding(),
            memory_key_padding_mask=~padding(),
        )
        return x @ table.T

    return ours, run, links


def tokens():
    generator = torch.Generator().manual_seed(3)
    src = torch.randint(V, (B, S), generator=generator)
    return src, torch.randint(V, (B, T), generator=generator)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@FIRST
def test_whole_transformer_with_final_norm(norm_first):
    """nn.Transformer, ids to logits; one table for source, target, head."""
    ours, run, links = transformers(norm_first, final_norm=True)
    src, tgt = tokens()
    y = ours(src, tgt, padding()[:, None, None])
    z = run(src, tgt)
    close(y, z, EXACT)
    up = noise(*y.shape, seed=8).detach()
    y.backward(up)
    z.backward(up)
    links.same_gradients(EXACT)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@FIRST
def test_without_final_norm_it_is_another_model(norm_first):
    """The paper's stacks end without a norm; nn.Transformer's never do.

    Final norms that change nothing would hide the switch, so they are not
    at their initial value here, and not in the test above.
    """
    ours, run, _ = transformers(norm_first, final_norm=False)
    src, tgt = tokens()
    differ(ours(src, tgt, padding()[:, None, None]), run(src, tgt), by=0.1)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_the_encoder_has_a_final_norm_of_its_own():
    """Control: with the decoder's final norm alone parity fails as well."""
    ours, run, _ = transformers(norm_first=False, final_norm=True)
    src, tgt = tokens()
    right = run(src, tgt)
    ours.encoder.final_norm = nn.Identity()
    differ(ours(src, tgt, padding()[:, None, None]), right)
