"""The network at each position, against loops, erf and PyTorch's layers."""

import math

import pytest
import torch
from compare import close, differ, shake
from torch import nn

from coursekit.feedforward import (
    ACTIVATIONS,
    NETWORKS,
    FeedForward,
    SwiGLU,
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


@pytest.mark.parametrize("name", NETWORKS)
def test_each_position_alone(name):
    """Running one position alone gives its row; order does not matter."""
    f = shake(NETWORKS[name](D, DFF).double())
    x = noise(B, T, D)
    close(f(x[:, 1:2]), f(x)[:, 1:2], 1e-13)
    close(f(x.flip(1)), f(x).flip(1), 1e-13)


@pytest.mark.parametrize("name", NETWORKS)
def test_it_bends(name):
    """f(x + y) ≠ f(x) + f(y) − f(0): two linear layers would be equal."""
    f = shake(NETWORKS[name](D, DFF).double())
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
    f = shake(NETWORKS["swiglu"](D, DFF, dropout=0.5).double())
    x = noise(B, T, D)
    differ(f(x), f(x))
    f.eval()
    assert torch.equal(f(x), f(x))
