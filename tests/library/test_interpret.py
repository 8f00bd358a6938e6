"""Looking inside: what is seen is what happened, and edits go on."""

import pytest
import torch
from test_activations import DH, B, H, L, T, V, build, close

from coursekit.interpret import (
    ablate,
    head_effects,
    induction_keys,
    logit_lens,
    mean_heads,
    mean_weight_on,
    patch_effects,
    watch,
)


@pytest.fixture
def ids():
    return torch.randint(V, (B, T), generator=torch.Generator().manual_seed(1))


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
    assert torch.allclose(mean_weight_on(weights, keys), expected)
    # Queries look at keys, not the other way round.
    assert mean_weight_on(weights.mT, keys)[0, 0] == 0


def test_shares_keep_batch_block_and_head_apart():
    g = torch.Generator().manual_seed(0)
    weights = torch.rand(3, 2, 5, 7, 7, generator=g)
    keys = torch.randint(-1, 7, (2, 7), generator=g)
    found = mean_weight_on(weights, keys)
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
        mean_weight_on(torch.ones(1, 1, 1, 3, 3), torch.full((1, 3), -1))


# -- without a part ----------------------------------------------------------
def test_a_silent_head_says_zero_or_its_mean(ids):
    model = build()
    means = mean_heads(model, ids)
    seen = watch(model, ids)
    assert means.shape == (L, H, DH)
    by_hand = sum(seen.heads[1, b, 4, t] for b in range(B) for t in range(T))
    assert close(means[1, 4], by_hand / (B * T))
    for given, instead in ((None, torch.zeros(DH)), (means, means[1, 4])):
        edit = ablate([(1, 4), (2, 0)], given)
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


def test_effects_are_measured_without_dropout(ids):
    """Of heads that say nothing each is 0, also in training mode."""
    model = build(dropout=0.5).train()
    with torch.no_grad():
        for block in model.blocks:
            block.attention.w_o.weight.zero_()

    def measure():
        return model(ids).abs().max().item()

    assert measure() != measure()  # the control
    assert not head_effects(model, measure).any()
    assert model.training


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
