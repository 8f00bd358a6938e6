"""Encoder and decoder together: who sees what, ties, cache."""

import math

import pytest
import torch
from compare import close, differ, shake

from coursekit.attention import attend
from coursekit.config import TransformerConfig
from coursekit.loss import cross_entropy
from coursekit.masks import padding_mask
from coursekit.positions import sinusoidal
from coursekit.seq2seq import Transformer, encoder_config

B, T, S, V, D, H = 2, 5, 7, 31, 42, 3


def make(seed=0, function=None, **changes):
    torch.manual_seed(seed)
    options = {"vocab_size": V, "d_model": D, "n_heads": H, "max_len": 11}
    options |= {"n_encoder_layers": 2, "n_decoder_layers": 3, "dropout": 0.0}
    config = TransformerConfig(**(options | changes))
    return Transformer(config, function) if function else Transformer(config)


def exact(**changes):
    return shake(make(**changes).double(), std=0.2)


def source():
    """Token 0 is padding; the second row has two."""
    generator = torch.Generator().manual_seed(1)
    src = torch.randint(1, V, (B, S), generator=generator)
    src[1, -2:] = 0
    return src


def target():
    generator = torch.Generator().manual_seed(2)
    return torch.randint(1, V, (B, T), generator=generator)


def mask():
    return padding_mask(source(), 0)


KINDS = pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm_first": True, "final_norm": True},
        {"positions": "learned", "tie_embeddings": False},
        {"positions": "rope", "norm": "rmsnorm", "n_kv_heads": 1},
        {"positions": "alibi", "activation": "swiglu"},
        {"attention_bias": False, "d_value": 5},
    ],
    ids=str,
)


@KINDS
def test_target_is_causal_source_is_not(changes):
    """Target token t moves logits from t on; any source token moves all."""
    model = exact(**changes)
    before = model(source(), target(), mask())
    assert before.shape == (B, T, V)
    for t in range(T):
        tgt = target()
        tgt[:, t] = tgt[:, t] % (V - 1) + 1
        after = model(source(), tgt, mask())
        assert torch.equal(after[:, :t], before[:, :t])
        assert (after != before).any(-1)[:, t:].all()
    for s in range(S - 2):
        src = source()
        src[:, s] = src[:, s] % (V - 1) + 1
        after = model(src, target(), mask())
        assert (after != before).any(-1).all()


@KINDS
def test_source_padding_is_not_read(changes):
    """Neither by the encoder nor by the cross-attention."""
    model = exact(**changes)
    y = model(source(), target(), mask())
    alone = model(source()[1:, :-2], target()[1:])
    close(y[1:], alone, 1e-12)
    differ(model(source(), target())[1:], alone)
    # Control: the mask on one side only is not enough.
    memory = model.encode(source(), mask())
    differ(model.decode(target(), memory)[1:], alone)


def test_by_hand():
    """√D E[tgt] + sinusoids; blocks with memory; the same table again."""
    model = exact()
    memory = model.encoder(source(), mask())
    close(model.encode(source(), mask()), memory, 1e-15)
    table = model.embedding.weight
    x = table[target()] * D**0.5 + sinusoidal(T, D).double()
    for block in model.blocks:
        a, c, f = (
            block.attention_norm,
            block.cross_attention_norm,
            block.feed_forward_norm,
        )
        x = a(x + block.attention(x, causal=True))
        x = c(x + block.cross_attention(x, memory, mask=mask()))
        x = f(x + block.feed_forward(x))
    close(model(source(), target(), mask()), x @ table.T, 1e-12)


def test_one_table():
    """Source, target and head: one tensor, and it learns from all three."""
    model = make()
    assert model.head is None
    assert model.embedding is model.encoder.embedding
    tables = [n for n, p in model.named_parameters() if p.size(0) == V]
    assert tables == ["encoder.embedding.weight"]
    untied = make(tie_embeddings=False)
    tables = [n for n, p in untied.named_parameters() if p.size(0) == V]
    assert tables == ["encoder.embedding.weight", "head.weight"]


def test_encoder_gets_its_part_of_the_configuration():
    config = make(norm_first=True, activation="swiglu").config
    part = encoder_config(config)
    assert part.n_layers == 2
    assert part.norm_first
    assert part.activation == "swiglu"
    for name in set(part.to_dict()) & set(config.to_dict()):
        assert getattr(part, name) == getattr(config, name), name


@KINDS
def test_every_parameter_learns(changes):
    model = make(**changes)
    cross_entropy(model(source(), target(), mask()), target()).backward()
    for name, p in model.named_parameters():
        assert p.grad is not None, name
        assert p.grad.isfinite().all(), name
        assert p.grad.any(), name


def test_loss_starts_where_the_recipe_says():
    """The paper's recipe starts above ln V, by a nat or two; not by 5."""
    losses = []
    for seed in range(3):
        logits = make(seed)(source(), target(), mask())
        expected = target().flip(0)  # not what stands in the input
        losses.append(float(cross_entropy(logits, expected).detach()))
    assert 0 < sum(losses) / 3 - math.log(V) < 3


def test_attention_functions_agree():
    fast, plain = exact(), exact(function=attend)
    plain.load_state_dict(fast.state_dict())
    close(
        plain(source(), target(), mask()),
        fast(source(), target(), mask()),
        1e-12,
    )


def test_target_mask_hides_more():
    """A padded target: hidden keys are not read, the causal mask stays."""
    model = exact()
    shown = torch.ones(B, 1, 1, T, dtype=torch.bool)
    shown[0, ..., 1] = False
    y = model(source(), target(), mask(), shown)
    tgt = target()
    tgt[0, 1] = tgt[0, 1] % (V - 1) + 1
    after = model(source(), tgt, mask(), shown)
    moved = (after != y).any(-1)[0].tolist()
    assert moved == [False, True, False, False, False]


class Cache:
    """One block's cache, as simple as the protocol allows."""

    def __init__(self):
        self.kv, self.length, self.memory = None, 0, None

    def update(self, k, v):
        if self.kv is not None:
            k = torch.cat((self.kv[0], k), dim=2)
            v = torch.cat((self.kv[1], v), dim=2)
        self.kv, self.length = (k, v), k.size(2)
        return k, v


@KINDS
def test_cached_equals_whole(changes):
    """Chunks of 2, 1, 1, 1 target tokens; the memory is projected once."""
    model = exact(**changes)
    memory = model.encode(source(), mask())
    whole = model.decode(target(), memory, mask())
    cache = [Cache() for _ in range(3)]
    projected = []
    for block in model.blocks:
        block.cross_attention.w_k.register_forward_hook(
            lambda *_: projected.append(1)
        )
    parts = [
        model.decode(t, memory, mask(), cache=cache)
        for t in target().split([2, 1, 1, 1], 1)
    ]
    close(torch.cat(parts, 1), whole, 1e-12)
    assert len(projected) == 3  # one a block, not one a step
    # Control: a cache that forgets gives something else.
    differ(model.decode(target()[:, 2:], memory, mask()), whole[:, 2:])


def test_explicit_target_positions():
    model = exact()
    memory = model.encode(source(), mask())
    at = torch.arange(T)
    close(
        model.decode(target(), memory, mask(), positions=at),
        model.decode(target(), memory, mask()),
        1e-15,
    )
    differ(
        model.decode(target(), memory, mask(), positions=at + 1),
        model.decode(target(), memory, mask()),
    )
