"""The same weights in Hugging Face's models: the same numbers.

Small random models built from their config classes; nothing is downloaded.
Which of our switches each model needs, and a control that fails without it:

=======  ==================================================================
GPT-2    ``gelu_tanh``; fused (in, out) matrices are cut and transposed
Llama    ``rope`` with ``position_layout="halves"``, ``rmsnorm``, ``swiglu``,
         no bias, grouped heads (consecutive query heads share one)
Marian   post-norm without final norm, ``silu``, √D on the embedding,
         sinusoids in halves
BERT     post-norm, a norm on the embeddings; token type 0 is added to
         every position
=======  ==================================================================
"""

import pytest
import torch
from compare import Links, close, columns, differ, shake
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MarianConfig,
    MarianMTModel,
)

from coursekit.config import EncoderConfig, GPTConfig, TransformerConfig
from coursekit.decoder import GPT
from coursekit.encoder import Encoder
from coursekit.seq2seq import Transformer

B, T, S, V, MAX, DFF = 2, 5, 7, 31, 17, 29
NO_SPECIAL = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
EAGER = {"attn_implementation": "eager"}


def tokens(length=S, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, V, (B, length), generator=generator)


def padded(left=False):
    """True = a real token; the second sequence has two fewer."""
    mask = torch.ones(B, S, dtype=torch.bool)
    mask[1, slice(0, 2) if left else slice(-2, None)] = False
    return mask


def same_backward(links, ours, theirs, atol):
    """One upstream gradient into both; every copied weight agrees."""
    generator = torch.Generator().manual_seed(8)
    up = torch.randn(ours.shape, generator=generator).to(ours.dtype)
    ours.backward(up)
    theirs.backward(up)
    links.same_gradients(atol)


# -- GPT-2 -------------------------------------------------------------------


def gpt2(activation="gelu_tanh"):
    d = 33
    theirs = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=V,
            n_positions=MAX,
            n_embd=d,
            n_layer=2,
            n_head=3,
            n_inner=DFF,
            layer_norm_epsilon=1e-3,
            **EAGER,
            **NO_SPECIAL,
        )
    )
    shake(theirs.double()).eval()
    config = GPTConfig(
        vocab_size=V,
        max_len=MAX,
        d_model=d,
        n_layers=2,
        n_heads=3,
        d_ff=DFF,
        norm_eps=1e-3,
        activation=activation,
    )
    ours, links = GPT(config).double(), Links()
    base = theirs.transformer
    links.add(ours.embedding.weight, base.wte.weight)
    links.add(ours.positions.weight, base.wpe.weight)
    links.norm(ours.final_norm, base.ln_f)
    for a, b in zip(ours.blocks, base.h, strict=True):
        fused = a.attention.w_q, a.attention.w_k, a.attention.w_v
        for i, linear in enumerate(fused):
            links.add(linear.weight, b.attn.c_attn.weight, columns(i, 3))
            links.add(
                linear.bias, b.attn.c_attn.bias, lambda w, i=i: w.chunk(3)[i]
            )
        for linear, conv in (
            (a.attention.w_o, b.attn.c_proj),
            (a.feed_forward.w_in, b.mlp.c_fc),
            (a.feed_forward.w_out, b.mlp.c_proj),
        ):
            links.add(linear.weight, conv.weight, columns(0, 1))
            links.add(linear.bias, conv.bias)
        links.norm(a.attention_norm, b.ln_1)
        links.norm(a.feed_forward_norm, b.ln_2)
    links.covers(ours)
    return ours, theirs, links


def test_gpt2():
    """Logits and all gradients, float64."""
    ours, theirs, links = gpt2()
    y, z = ours(tokens()), theirs(tokens()).logits
    close(y, z, 1e-10)
    same_backward(links, y, z, 1e-10)


def test_gpt2_left_padding():
    """Padding on the left: a mask, and positions that count real tokens."""
    ours, theirs, _ = gpt2()
    real = padded(left=True)
    at = (real.cumsum(1) - 1).clamp(min=0)
    y = ours(tokens(), at, real[:, None, None])
    z = theirs(tokens(), attention_mask=real.long(), position_ids=at).logits
    close(y[real], z[real], 1e-10)
    alone = ours(tokens()[1:, 2:])
    close(y[1:, 2:], alone, 1e-10)
    # Control: without the positions, or without the mask, it is not.
    differ(ours(tokens(), None, real[:, None, None])[1:, 2:], alone)
    differ(ours(tokens(), at)[1:, 2:], alone)


def test_gpt2_needs_gelu_tanh():
    """Control: the exact GELU is 1e-4 away, not 1e-10."""
    ours, theirs, _ = gpt2("gelu")
    differ(ours(tokens()), theirs(tokens()).logits, by=1e-5)


def test_gpt2_needs_the_transpose():
    """Control: c_proj is square, so an untransposed copy fits and is wrong."""
    ours, theirs, _ = gpt2()
    with torch.no_grad():
        wrong = theirs.transformer.h[0].attn.c_proj.weight
        ours.blocks[0].attention.w_o.weight.copy_(wrong)
    differ(ours(tokens()), theirs(tokens()).logits)


# -- Llama -------------------------------------------------------------------


def llama(layout="halves", groups=2, base=10000.0):
    d, heads, size = 60, 6, 10
    theirs = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=V,
            hidden_size=d,
            intermediate_size=DFF,
            num_hidden_layers=2,
            num_attention_heads=heads,
            num_key_value_heads=groups,
            head_dim=size,
            max_position_embeddings=MAX,
            rms_norm_eps=1e-3,
            rope_parameters={"rope_type": "default", "rope_theta": base},
            tie_word_embeddings=False,
            **EAGER,
            **NO_SPECIAL,
        )
    )
    shake(theirs, std=0.15).eval()
    config = GPTConfig(
        vocab_size=V,
        max_len=MAX,
        d_model=d,
        n_layers=2,
        n_heads=heads,
        n_kv_heads=groups,
        d_head=size,
        d_ff=DFF,
        norm="rmsnorm",
        norm_eps=1e-3,
        activation="swiglu",
        bias=False,
        positions="rope",
        position_layout=layout,
        rope_base=base,
        tie_embeddings=False,
    )
    ours, links = GPT(config), Links()
    links.add(ours.embedding.weight, theirs.model.embed_tokens.weight)
    links.norm(ours.final_norm, theirs.model.norm)
    links.linear(ours.head, theirs.lm_head)
    for a, b in zip(ours.blocks, theirs.model.layers, strict=True):
        for linear, other in (
            (a.attention.w_q, b.self_attn.q_proj),
            (a.attention.w_k, b.self_attn.k_proj),
            (a.attention.w_v, b.self_attn.v_proj),
            (a.attention.w_o, b.self_attn.o_proj),
            (a.feed_forward.w_gate, b.mlp.gate_proj),
            (a.feed_forward.w_in, b.mlp.up_proj),
            (a.feed_forward.w_out, b.mlp.down_proj),
        ):
            links.linear(linear, other)
        links.norm(a.attention_norm, b.input_layernorm)
        links.norm(a.feed_forward_norm, b.post_attention_layernorm)
    links.covers(ours)
    return ours, theirs, links


@pytest.mark.parametrize(
    ("groups", "base"), [(2, 10000.0), (1, 10000.0), (6, 500000.0)]
)
def test_llama_with_rope_in_halves(groups, base):
    """Logits and all gradients; float32, as RMSNorm there rounds to it."""
    ours, theirs, links = llama(groups=groups, base=base)
    y, z = ours(tokens()), theirs(tokens()).logits
    close(y, z, 1e-5)
    same_backward(links, y, z, 1e-5)


def test_llama_fails_with_rope_interleaved():
    """Control: the paper's neighbors make other pairs."""
    ours, theirs, _ = llama("interleaved")
    differ(ours(tokens()), theirs(tokens()).logits, by=0.01)


def test_llama_needs_the_base():
    """Control: another base, other angles."""
    ours, _, _ = llama()
    _, theirs, _ = llama(base=500.0)
    differ(ours(tokens()), theirs(tokens()).logits)


def test_llama_left_padding():
    """Each row with its own positions, as in a batch of prompts."""
    ours, theirs, _ = llama()
    real = padded(left=True)
    at = (real.cumsum(1) - 1).clamp(min=0)
    y = ours(tokens(), at, real[:, None, None])
    z = theirs(tokens(), attention_mask=real.long(), position_ids=at).logits
    close(y[real], z[real], 1e-5)


# -- Marian ------------------------------------------------------------------


def marian(layout="halves", scale=True, final_norm=False):
    d = 42
    theirs = MarianMTModel(
        MarianConfig(
            vocab_size=V,
            d_model=d,
            encoder_layers=2,
            decoder_layers=3,
            encoder_attention_heads=3,
            decoder_attention_heads=3,
            encoder_ffn_dim=DFF,
            decoder_ffn_dim=DFF,
            max_position_embeddings=MAX,
            dropout=0.0,
            scale_embedding=True,
            activation_function="swish",
            decoder_start_token_id=0,
            eos_token_id=1,
            pad_token_id=0,
            **EAGER,
        )
    )
    codes = {
        name: p.detach().clone()
        for name, p in theirs.named_parameters()
        if "embed_positions" in name
    }
    assert len(codes) == 2
    shake(theirs.double(), std=0.2).eval()
    with torch.no_grad():  # these two are the sinusoids: put them back
        for name, code in codes.items():
            theirs.get_parameter(name).copy_(code)
    config = TransformerConfig(
        vocab_size=V,
        max_len=MAX,
        d_model=d,
        n_encoder_layers=2,
        n_decoder_layers=3,
        n_heads=3,
        d_ff=DFF,
        activation="silu",
        position_layout=layout,
        scale_embedding=scale,
        final_norm=final_norm,
        dropout=0.0,
    )
    ours, links = Transformer(config).double(), Links()
    links.add(ours.embedding.weight, theirs.model.shared.weight)
    for a, b in zip(
        ours.encoder.blocks, theirs.model.encoder.layers, strict=True
    ):
        link_marian(links, a, b)
    for a, b in zip(ours.blocks, theirs.model.decoder.layers, strict=True):
        link_marian(links, a, b)
        link_projections(links, a.cross_attention, b.encoder_attn)
        links.norm(a.cross_attention_norm, b.encoder_attn_layer_norm)
    if not final_norm:
        links.covers(ours)
    return ours, theirs, links


def link_projections(links, ours, theirs):
    links.linear(ours.w_q, theirs.q_proj)
    links.linear(ours.w_k, theirs.k_proj)
    links.linear(ours.w_v, theirs.v_proj)
    links.linear(ours.w_o, theirs.out_proj)


def link_marian(links, ours, theirs):
    link_projections(links, ours.attention, theirs.self_attn)
    links.norm(ours.attention_norm, theirs.self_attn_layer_norm)
    links.linear(ours.feed_forward.w_in, theirs.fc1)
    links.linear(ours.feed_forward.w_out, theirs.fc2)
    links.norm(ours.feed_forward_norm, theirs.final_layer_norm)


def run_marian(ours, theirs):
    src, tgt, real = tokens(), tokens(T, seed=4), padded()
    y = ours(src, tgt, real[:, None, None])
    z = theirs(
        input_ids=src, attention_mask=real.long(), decoder_input_ids=tgt
    )
    return y, z.logits


def test_marian_with_sinusoids_in_halves():
    """Encoder and decoder, padded source; logits, all gradients, float64."""
    ours, theirs, links = marian()
    y, z = run_marian(ours, theirs)
    close(y, z, 1e-10)
    same_backward(links, y, z, 1e-10)


@pytest.mark.parametrize(
    "switch",
    [{"layout": "interleaved"}, {"scale": False}, {"final_norm": True}],
    ids=str,
)
def test_marian_fails_with(switch):
    """Control: each switch alone breaks parity."""
    ours, theirs, _ = marian(**switch)
    differ(*run_marian(ours, theirs), by=1e-2)


# -- BERT --------------------------------------------------------------------


def bert(**changes):
    d = 33
    theirs = BertModel(
        BertConfig(
            vocab_size=V,
            hidden_size=d,
            num_hidden_layers=2,
            num_attention_heads=3,
            intermediate_size=DFF,
            max_position_embeddings=MAX,
            layer_norm_eps=1e-3,
            pad_token_id=0,
            **EAGER,
        ),
        add_pooling_layer=False,
    )
    shake(theirs.double()).eval()
    options = {"embedding_norm": True} | changes
    config = EncoderConfig(
        vocab_size=V,
        max_len=MAX,
        d_model=d,
        n_layers=2,
        n_heads=3,
        d_ff=DFF,
        norm_eps=1e-3,
        **options,
    )
    ours, links = Encoder(config).double(), Links()
    e = theirs.embeddings
    links.add(ours.embedding.weight, e.word_embeddings.weight)
    links.add(ours.positions.weight, e.position_embeddings.weight)
    with torch.no_grad():  # type 0 is added everywhere
        ours.positions.weight += e.token_type_embeddings.weight[0]
    if config.embedding_norm:
        links.norm(ours.embedding_norm, e.LayerNorm)
    for a, b in zip(ours.blocks, theirs.encoder.layer, strict=True):
        links.linear(a.attention.w_q, b.attention.self.query)
        links.linear(a.attention.w_k, b.attention.self.key)
        links.linear(a.attention.w_v, b.attention.self.value)
        links.linear(a.attention.w_o, b.attention.output.dense)
        links.norm(a.attention_norm, b.attention.output.LayerNorm)
        links.linear(a.feed_forward.w_in, b.intermediate.dense)
        links.linear(a.feed_forward.w_out, b.output.dense)
        links.norm(a.feed_forward_norm, b.output.LayerNorm)
    links.covers(ours)
    return ours, theirs, links


def run_bert(ours, theirs):
    real = padded()
    y = ours(tokens(), real[:, None, None])
    z = theirs(tokens(), attention_mask=real.long())
    return y, z.last_hidden_state


def test_bert():
    """Hidden states and all gradients, padded, float64."""
    ours, theirs, links = bert()
    y, z = run_bert(ours, theirs)
    close(y, z, 1e-10)
    same_backward(links, y, z, 1e-10)
    # The row of type 0 gets what all positions get together.
    types = theirs.embeddings.token_type_embeddings.weight.grad
    close(ours.positions.weight.grad.sum(0), types[0], 1e-10)


@pytest.mark.parametrize(
    "switch",
    [
        {"embedding_norm": False},
        {"norm_first": True},
        {"activation": "relu"},
    ],
    ids=str,
)
def test_bert_fails_with(switch):
    """Control: each switch alone breaks parity."""
    ours, theirs, _ = bert(**switch)
    differ(*run_bert(ours, theirs), by=1e-2)


def test_bert_fails_without_the_token_type():
    """Control: positions alone are not enough."""
    ours, theirs, _ = bert()
    with torch.no_grad():
        ours.positions.weight.copy_(
            theirs.embeddings.position_embeddings.weight
        )
    differ(*run_bert(ours, theirs), by=1e-2)
