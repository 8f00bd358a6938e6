"""The network at each position, against loops, erf and PyTorch's layers."""

import math

import pytest
import torch
from compare import close, differ, shake
from torch import nn

from coursekit.feedforward import (
    ACTIVATIONS,
    Experts,
    FeedForward,
    SwiGLU,
    make_feed_forward,
    route,
)

B, T, D, DFF = 2, 3, 5, 13

BY_HAND = {
    "relu": lambda z: max(z, 0.0),
    "gelu": lambda z: z * 0.5 * (1 + math.erf(z / math.sqrt(2))),
    "gelu_tanh": lambda z: (
        0.5
        * z
        * (1 + math.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))
    ),
    "silu": lambda z: z / (1 + math.exp(-z)),
}


def noise(*shape, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_by_hand(name):
    """Against Python's math, and apart from every other activation."""
    points = [-3.0, -1.0, -0.1, 0.0, 0.2, 1.0, 2.5]
    x = torch.tensor(points, dtype=torch.float64)
    exact = torch.tensor(
        [BY_HAND[name](z) for z in points], dtype=torch.float64
    )
    close(ACTIVATIONS[name](x), exact, 1e-14)
    for other in ACTIVATIONS.keys() - {name}:
        differ(ACTIVATIONS[other](x), exact, by=1e-4)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_equal_to_loops(name, bias):
    """Sum by sum in plain Python: values and gradients of x."""
    f = shake(FeedForward(D, DFF, name, bias).double())
    x = noise(B, T, D)
    w1, w2 = f.w_in.weight.tolist(), f.w_out.weight.tolist()
    b1 = f.w_in.bias.tolist() if bias else [0.0] * DFF
    b2 = f.w_out.bias.tolist() if bias else [0.0] * D
    for row, out in zip(
        x.view(-1, D).tolist(), f(x).view(-1, D).tolist(), strict=True
    ):
        inner = [
            BY_HAND[name](sum(w * z for w, z in zip(ws, row, strict=True)) + b)
            for ws, b in zip(w1, b1, strict=True)
        ]
        for ws, b, y in zip(w2, b2, out, strict=True):
            right = sum(w * z for w, z in zip(ws, inner, strict=True)) + b
            assert y == pytest.approx(right, abs=1e-12)


def test_equal_to_torch_layers():
    """nn.Sequential with the same weights: values and all gradients."""
    f = shake(FeedForward(D, DFF, "relu").double())
    g = nn.Sequential(nn.Linear(D, DFF), nn.ReLU(), nn.Linear(DFF, D)).double()
    ours, theirs = list(f.parameters()), list(g.parameters())
    with torch.no_grad():
        for a, b in zip(ours, theirs, strict=True):
            b.copy_(a)
    x, up = noise(B, T, D), noise(B, T, D, seed=2)
    close(f(x), g(x), 1e-12)
    for a, b in zip(
        torch.autograd.grad(f(x), ours, up),
        torch.autograd.grad(g(x), theirs, up),
        strict=True,
    ):
        close(a, b, 1e-12)


def test_swiglu_formula():
    """silu on the gate, and on the gate only."""
    f = shake(SwiGLU(D, DFF, bias=True).double())
    x = noise(B, T, D)
    gate, inner = f.w_gate(x), f.w_in(x)
    close(f(x), f.w_out(gate * torch.sigmoid(gate) * inner), 1e-12)
    differ(f(x), f.w_out(inner * torch.sigmoid(inner) * gate))


@pytest.mark.parametrize("name", [*ACTIVATIONS, "swiglu"])
def test_each_position_alone(name):
    """Running one position alone gives its row; order does not matter."""
    f = shake(make_feed_forward(name, D, DFF).double())
    x = noise(B, T, D)
    close(f(x[:, 1:2]), f(x)[:, 1:2], 1e-13)
    close(f(x.flip(1)), f(x).flip(1), 1e-13)


@pytest.mark.parametrize("name", [*ACTIVATIONS, "swiglu"])
def test_it_bends(name):
    """f(x + y) ≠ f(x) + f(y) − f(0): two linear layers would be equal."""
    f = shake(make_feed_forward(name, D, DFF).double())
    x, y, zero = noise(1, D), noise(1, D, seed=2), torch.zeros(1, D).double()
    differ(f(x + y), f(x) + f(y) - f(zero))
    if name != "swiglu":
        f.activation = nn.Identity()
        close(f(x + y), f(x) + f(y) - f(zero), 1e-12)


def test_parameter_count():
    def count(f):
        return sum(p.numel() for p in f.parameters())

    assert count(FeedForward(D, DFF)) == 2 * D * DFF + DFF + D
    assert count(FeedForward(D, DFF, bias=False)) == 2 * D * DFF
    assert count(SwiGLU(D, DFF)) == 3 * D * DFF
    # At 8D/3 the gated network has as many weights as the plain one at 4D.
    assert count(SwiGLU(12, 32)) == count(FeedForward(12, 48, bias=False))


def test_unknown_activation():
    with pytest.raises(ValueError, match="got 'tanh'"):
        FeedForward(D, DFF, "tanh")


def test_dropout_only_in_training():
    f = shake(make_feed_forward("swiglu", D, DFF, dropout=0.5).double())
    x = noise(B, T, D)
    differ(f(x), f(x))
    f.eval()
    assert torch.equal(f(x), f(x))


# -- experts -----------------------------------------------------------------
def experts(n_active=2, n_experts=5):
    """With weights large enough that the router is not even."""
    return shake(Experts(D, DFF, n_experts, n_active).double(), std=1.0)


@pytest.mark.parametrize("n_active", [1, 2, 5])
def test_experts_token_by_token(n_active):
    """Each vector by itself, sorted in plain Python."""
    f, x = experts(n_active), noise(3, 7, D)
    for row, out in zip(x.view(-1, D), f(x).view(-1, D), strict=True):
        logits = f.router(row).tolist()
        best = sorted(range(5), key=lambda e: -logits[e])[:n_active]
        shares = [math.exp(logits[e]) for e in best]
        right = sum(
            share / sum(shares) * f.experts[e](row)
            for share, e in zip(shares, best, strict=True)
        )
        close(out, right, 1e-12)


def test_routing_by_hand():
    logits = torch.tensor([[0.0, math.log(3.0), -1.0, math.log(9.0)]])
    chosen, weights = route(logits.double(), 2)
    assert chosen.tolist() == [[3, 1]]
    close(weights, torch.tensor([[0.75, 0.25]]).double(), 1e-7)


def test_experts_mind_their_own_tokens():
    """Position by position, in any order; and no two experts are alike."""
    f, x = experts(), noise(B, 7, D)
    close(f(x[:, 1:2]), f(x)[:, 1:2], 1e-12)
    close(f(x.flip(1)), f(x).flip(1), 1e-12)
    right = f(x)
    f.router.weight.data = f.router.weight.flip(0)  # sent elsewhere
    differ(f(x), right)


def test_the_router_learns_from_two_and_not_from_one():
    """One expert's weight is always 1: nothing to learn from."""
    x = noise(B, 7, D)
    for n_active, learns in ((2, True), (1, False)):
        f = experts(n_active)
        f(x).square().sum().backward()
        size = f.router.weight.grad.abs().max()
        assert (size > 1e-3) == learns
        assert size == 0 or learns


def test_an_expert_without_tokens_is_no_error():
    f, x = experts(1), noise(1, D)
    f(x).sum().backward()
    used = [e.w_out.weight.grad.abs().max() > 0 for e in f.experts]
    assert sum(used) == 1
    assert f(x[:0]).shape == (0, D)


def test_experts_count():
    """All have weights; a token meets those of two."""
    f = Experts(D, DFF)
    n = sum(p.numel() for p in f.parameters())
    assert n == 4 * D + 4 * 3 * D * DFF


@pytest.mark.parametrize(("n_experts", "n_active"), [(4, 0), (4, 5)])
def test_more_experts_than_there_are(n_experts, n_active):
    with pytest.raises(ValueError, match=f"n_active={n_active}"):
        Experts(D, DFF, n_experts, n_active)
