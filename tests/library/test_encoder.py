"""The encoder: every position sees every other, and padding nobody."""

import pytest
import torch
from compare import close, differ, shake

from coursekit.attention import attend
from coursekit.config import EncoderConfig
from coursekit.encoder import Encoder
from coursekit.norm import layer_norm
from coursekit.positions import sinusoidal

B, S, V, D, H, L = 2, 7, 31, 42, 3, 2


def make(seed=0, function=None, **changes):
    torch.manual_seed(seed)
    options = {"vocab_size": V, "d_model": D, "n_heads": H, "n_layers": L}
    config = EncoderConfig(**(options | {"max_len": 11} | changes))
    model = Encoder(config, function) if function else Encoder(config)
    return shake(model.double())


def ids(seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(V, (B, S), generator=generator)


def padding():
    mask = torch.ones(B, 1, 1, S, dtype=torch.bool)
    mask[1, ..., -2:] = False
    return mask


KINDS = pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm_first": True, "final_norm": True},
        {"positions": "sinusoidal", "scale_embedding": True},
        {"positions": "rope", "norm": "rmsnorm"},
        {"positions": "alibi"},
        {"embedding_norm": True},
    ],
    ids=str,
)


@KINDS
def test_everybody_sees_everybody(changes):
    """∂x[t] / ∂token[s] is nonzero for all t and s: no causal mask."""
    model = make(**changes)
    before = model(ids())
    assert before.shape == (B, S, D)
    for s in range(S):
        other = ids()
        other[:, s] = (other[:, s] + 1) % V
        assert (model(other) != before).any(-1).all()


@KINDS
def test_padding_is_not_read(changes):
    """Other tokens in the padding change nothing; neither does its length."""
    model = make(**changes)
    y = model(ids(), padding())
    other = ids()
    other[1, -2:] = (other[1, -2:] + 3) % V
    assert torch.equal(model(other, padding())[1, :-2], y[1, :-2])
    close(y[1:, :-2], model(ids()[1:, :-2]), 1e-12)
    # Control: unmasked, the padding is read.
    differ(model(other)[1, :-2], model(ids())[1, :-2])


def test_without_positions_it_is_a_set():
    """Shuffled tokens, shuffled vectors; with positions not."""
    order = torch.tensor([3, 0, 6, 2, 5, 1, 4])
    model = make(positions="none")
    close(model(ids()[:, order]), model(ids())[:, order], 1e-12)
    for positions in ("learned", "sinusoidal", "rope", "alibi"):
        model = make(positions=positions)
        differ(model(ids()[:, order]), model(ids())[:, order])


def test_by_hand():
    """√D · embedding + sinusoids, norm, blocks; final norm if asked for."""
    model = make(
        positions="sinusoidal",
        scale_embedding=True,
        embedding_norm=True,
        final_norm=True,
    )
    x = model.embedding.weight[ids()] * D**0.5 + sinusoidal(S, D).double()
    n = model.embedding_norm
    x = layer_norm(x, n.weight, n.bias)
    for block in model.blocks:
        x = block(x)
    n = model.final_norm
    close(model(ids()), layer_norm(x, n.weight, n.bias), 1e-12)
    differ(model(ids()), x)


def test_attention_functions_agree():
    close(
        make(function=attend)(ids(), padding()),
        make()(ids(), padding()),
        1e-12,
    )


def test_all_padding_is_finite():
    """A row of padding alone: attention gives zeros, nothing is NaN."""
    model = make()
    mask = padding()
    mask[1] = False
    y = model(ids(), mask)
    assert y.isfinite().all()
    y.sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


@KINDS
def test_every_parameter_learns(changes):
    """Of a loss that no norm makes constant."""
    model = make(**changes)
    y = model(ids(), padding())
    torch.manual_seed(0)
    (y * torch.randn_like(y)).sum().backward()
    for name, p in model.named_parameters():
        assert p.grad is not None, name
        assert p.grad.isfinite().all(), name
        assert p.grad.any(), name


def test_count_by_formula():
    """BERT base without pooler: 108,891,648 with its 2 token types."""
    with torch.device("meta"):
        model = Encoder(
            EncoderConfig(
                vocab_size=30522,
                max_len=512,
                d_model=768,
                n_heads=12,
                n_layers=12,
                embedding_norm=True,
            )
        )
    count = sum(p.numel() for p in model.parameters())
    assert count == 108_891_648 - 2 * 768
