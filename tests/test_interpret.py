"""Looking inside: what is seen is what happened, and edits go on."""

import pytest
import torch
from torch import nn

from coursekit import interpret
from coursekit.attention import attend, fast_attend
from coursekit.config import EncoderConfig, GPTConfig
from coursekit.decoder import GPT
from coursekit.encoder import Encoder
from coursekit.interpret import (
    head_effects,
    head_writes,
    induction_keys,
    intervene,
    logit_lens,
    mean_heads,
    patch_effects,
    share_on,
    silence,
    watch,
)

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
def test_what_is_seen_adds_up(ids, options):
    model = build(**options)
    seen = watch(model, ids)
    assert seen.stream.shape == (L + 1, B, T, D)
    assert seen.weights.shape == (L, B, H, T, T)
    assert close(seen.weights.sum(-1), torch.ones(L, B, H, T).double())
    assert not seen.weights.triu(1).any()
    added = head_writes(model, seen.heads).sum(2)
    for i, block in enumerate(model.blocks):
        total = seen.stream[i] + added[i]
        if block.attention.w_o.bias is not None:
            assert not close(total, seen.stream[i + 1])
            total = total + block.attention.w_o.bias
        if len(seen.networks):
            assert not close(total, seen.stream[i + 1])
            total = total + seen.networks[i]
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
def test_an_edit_is_what_goes_on(ids):
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


def test_edited_weights_and_heads_and_networks_go_on(ids):
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
    with intervene(model, networks=lambda i, n: torch.zeros_like(n)):
        assert close(model(ids), finish(written, network=False))
    assert not close(model(ids), finish(written, network=False))


def test_only_models_with_blocks_can_be_looked_into(ids):
    with pytest.raises(ValueError, match=r"must have blocks.*got Linear"):
        watch(nn.Linear(3, 5), ids)


# -- the lens ----------------------------------------------------------------
def test_the_lens_on_top_is_the_model(ids):
    model = build().eval()
    lens = logit_lens(model, ids)
    assert lens.shape == (L + 1, B, T, V)
    assert close(lens[-1], model(ids))
    seen = watch(model, ids)
    assert close(lens[1], model.logits(seen.stream[1]))
    without_norm = model.embedding.unembed(seen.stream[-1])
    assert not torch.allclose(without_norm, model(ids), atol=0.1)


# -- where heads look --------------------------------------------------------
def test_induction_keys_by_hand():
    ids = torch.tensor([[7, 3, 5, 7, 3, 7], [1, 1, 1, 0, 2, 0]])
    assert induction_keys(ids).tolist() == [
        [-1, -1, -1, 1, 2, 4],
        [-1, 1, 2, -1, -1, 4],
    ]


def test_shares_of_heads_built_by_hand():
    ids = torch.tensor([[7, 3, 5, 7, 3, 7]])
    keys = induction_keys(ids)
    perfect = torch.zeros(6, 6)
    perfect[3, 1] = perfect[4, 2] = perfect[5, 4] = 1
    at_itself = torch.zeros(6, 6)
    at_itself[3, 0] = at_itself[4, 1] = at_itself[5, 3] = 1
    even = torch.ones(6, 6).tril() / torch.arange(1, 7)[:, None]
    weights = torch.stack([perfect, at_itself, even])[None, None]
    mean = (1 / 4 + 1 / 5 + 1 / 6) / 3
    expected = torch.tensor([[1, 0, mean]])
    assert torch.allclose(share_on(weights, keys), expected)
    # Queries look at keys, not the other way round.
    assert share_on(weights.mT, keys)[0, 0] == 0


def test_shares_keep_batch_block_and_head_apart():
    g = torch.Generator().manual_seed(0)
    weights = torch.rand(3, 2, 5, 7, 7, generator=g)
    keys = torch.randint(-1, 7, (2, 7), generator=g)
    found = share_on(weights, keys)
    for i in range(3):
        for h in range(5):
            values = [
                weights[i, b, h, t, keys[b, t]]
                for b in range(2)
                for t in range(7)
                if keys[b, t] >= 0
            ]
            assert torch.isclose(found[i, h], torch.stack(values).mean())


def test_a_share_needs_a_query():
    with pytest.raises(ValueError, match="at least one query"):
        share_on(torch.ones(1, 1, 1, 3, 3), torch.full((1, 3), -1))


# -- without a part ----------------------------------------------------------
def test_a_silent_head_says_zero_or_its_mean(ids):
    model = build()
    means = mean_heads(model, ids)
    seen = watch(model, ids)
    assert means.shape == (L, H, DH)
    by_hand = sum(seen.heads[1, b, 4, t] for b in range(B) for t in range(T))
    assert close(means[1, 4], by_hand / (B * T))
    for given, instead in ((None, torch.zeros(DH)), (means, means[1, 4])):
        edit = silence([(1, 4), (2, 0)], given)
        before = seen.heads[1].clone()
        heads = edit(1, seen.heads[1])
        assert close(heads[:, 4], instead.double().expand(B, T, DH))
        others = [h for h in range(H) if h != 4]
        assert torch.equal(heads[:, others], before[:, others])
        assert torch.equal(seen.heads[1], before), "the input was changed"
        assert torch.equal(edit(0, before), before)


def test_the_head_that_matters_is_found(ids):
    model = build(bias=False)
    with torch.no_grad():
        for i, block in enumerate(model.blocks):
            rows = block.attention.w_o.weight.mT.unflatten(0, (H, DH))
            keep = rows[2].clone()
            rows.zero_()
            if i == 1:
                rows[2] = keep
    target = model.eval()(ids)

    def measure():
        return (model(ids) - target).abs().max().item()

    effects = head_effects(model, measure)
    assert effects.shape == (L, H)
    assert effects[1, 2] > 0.01
    effects[1, 2] = 0
    assert not effects.any()


def test_a_patch_is_traced(ids):
    model = build()
    clean, corrupt = ids, ids.clone()
    corrupt[:, 2] = (clean[:, 2] + 1) % V

    def measure(logits):
        return logits[:, -1, 3] - logits[:, -1, 5]

    shares = patch_effects(model, clean, corrupt, measure)
    assert shares.shape == (L + 1, B, T)
    # The changed token at the bottom, the last place on top: all of it.
    one = torch.ones(B).double()
    assert torch.allclose(shares[0, :, 2], one)
    assert torch.allclose(shares[-1, :, -1], one)
    # What is before the change, or on top of another place: nothing.
    assert shares[:, :, :2].abs().max() < 1e-12
    assert shares[-1, :, :-1].abs().max() < 1e-12
    assert shares[0, :, 3:].abs().max() < 1e-12
    # In between it is spread.
    assert (shares[1:-1, :, 2:].abs() > 1e-6).all()
    assert ((shares[1:-1, :, 2:] - 1).abs() > 1e-6).all()
    # A row of a batch is what it is alone.
    alone = patch_effects(model, clean[1:], corrupt[1:], measure, [1])
    assert torch.allclose(alone[0, 0], shares[1, 1])


def test_a_patch_needs_two_texts_that_differ(ids):
    model = build()
    with pytest.raises(ValueError, match=r"\(2, 7\) and \(2, 5\)"):
        patch_effects(model, ids, ids[:, :5], lambda x: x[:, 0, 0])
    with pytest.raises(ValueError, match=r"got .* Choose another measure"):
        patch_effects(model, ids, ids, lambda x: x[:, 0, 0])


def test_readable_attention_may_be_watched_too(ids):
    torch.manual_seed(0)
    model = GPT(config(dropout=0.0), attend).double()
    assert close(watch(model, ids).output, model(ids))
    assert interpret.Seen._fields[0] == "output"
