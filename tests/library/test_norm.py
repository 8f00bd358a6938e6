"""Norms against PyTorch's and by hand."""

import os
from types import SimpleNamespace

import pytest
import torch
from compare import close, differ
from jaxtyping import TypeCheckError
from torch import nn
from torch.nn import functional as F  # noqa: N812

from coursekit.config import StackConfig
from coursekit.norm import NORMS, LayerNorm, RMSNorm, layer_norm, rms_norm

B, T, D = 2, 5, 11


def noise(*shape, seed=1, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=dtype)


def made(kind, norm_eps=1e-5, bias=True):
    config = SimpleNamespace(d_model=D, norm_eps=norm_eps, bias=bias)
    return NORMS[kind](config)


def theirs(kind, x, weight, bias, eps):
    if kind == "layernorm":
        return F.layer_norm(x, (D,), weight, bias, eps)
    return F.rms_norm(x, (D,), weight, eps)


def readable(kind, x, weight, bias, eps):
    if kind == "layernorm":
        return layer_norm(x, weight, bias, eps)
    return rms_norm(x, weight, eps)


@pytest.mark.parametrize("eps", [1e-5, 0.3])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("kind", ["layernorm", "rmsnorm"])
def test_equal_to_torch(kind, affine, eps):
    """Readable function = PyTorch's: values, and gradients of all inputs."""
    x = (3 * noise(B, T, D) + 2).requires_grad_()
    inputs, weight, bias = [x], None, None
    if affine:
        weight = noise(D, seed=2).requires_grad_()
        inputs.append(weight)
        if kind == "layernorm":
            bias = noise(D, seed=3).requires_grad_()
            inputs.append(bias)
    up = noise(B, T, D, seed=4)
    a = readable(kind, x, weight, bias, eps)
    b = theirs(kind, x, weight, bias, eps)
    close(a, b, 1e-12)
    for ours, right in zip(
        torch.autograd.grad(a, inputs, up),
        torch.autograd.grad(b, inputs, up),
        strict=True,
    ):
        close(ours, right, 1e-12)


@pytest.mark.parametrize(
    ("dtype", "atol"), [(torch.float64, 1e-12), (torch.float32, 1e-5)]
)
@pytest.mark.parametrize("kind", ["layernorm", "rmsnorm"])
def test_module_equals_readable_function(kind, dtype, atol):
    """The fused module and the function: value and all gradients."""
    norm = made(kind, norm_eps=0.01).to(dtype)
    with torch.no_grad():
        for i, p in enumerate(norm.parameters()):
            p.copy_(noise(D, seed=5 + i))
    x = noise(B, T, D, dtype=dtype).requires_grad_()
    up = noise(B, T, D, seed=4, dtype=dtype)
    inputs = [x, *norm.parameters()]
    bias = getattr(norm, "bias", None)
    a, b = norm(x), readable(kind, x, norm.weight, bias, 0.01)
    close(a, b, atol)
    for ours, right in zip(
        torch.autograd.grad(a, inputs, up),
        torch.autograd.grad(b, inputs, up),
        strict=True,
    ):
        close(ours, right, atol)


def test_by_hand():
    """[1, 2, 6]: mean 3, variance 14/3, mean square 41/3."""
    x = torch.tensor([1.0, 2.0, 6.0], dtype=torch.float64)
    close(layer_norm(x, eps=0.0), (x - 3) / (14 / 3) ** 0.5, 1e-15)
    close(rms_norm(x, eps=0.0), x / (41 / 3) ** 0.5, 1e-15)
    # Controls: the unbiased variance, and eps outside the root.
    differ(layer_norm(x, eps=0.0), (x - x.mean()) / x.std())
    tiny = 1e-3 * x
    outside = (tiny - tiny.mean()) / (tiny.std(correction=0) + 1e-5)
    differ(layer_norm(tiny), outside)


def test_what_layer_norm_cannot_see():
    """A shift and a positive scale of the row; RMSNorm sees the shift."""
    x = noise(B, T, D)
    close(layer_norm(5 * x + 7, eps=0.0), layer_norm(x, eps=0.0), 1e-12)
    close(rms_norm(5 * x, eps=0.0), rms_norm(x, eps=0.0), 1e-12)
    differ(rms_norm(x + 7, eps=0.0), rms_norm(x, eps=0.0))


@pytest.mark.parametrize("kind", ["layernorm", "rmsnorm"])
def test_each_vector_by_itself(kind):
    """Another token's values change nothing, bit for bit."""
    norm = made(kind).double()
    x = noise(B, T, D)
    other = x.clone()
    other[:, 3] += 1
    other[1, 0] -= 2
    moved = (norm(other) != norm(x)).any(-1)
    assert moved.nonzero().tolist() == [[0, 3], [1, 0], [1, 3]]
    # Control: a norm over time moves every token.
    time = (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)
    late = (other - other.mean(1, keepdim=True)) / other.std(1, keepdim=True)
    assert (time != late).any(-1).all()


@pytest.mark.parametrize("f", [layer_norm, rms_norm])
def test_constant_row_has_a_finite_gradient(f):
    """eps under the root; without it the gradient of a zero row is NaN."""
    x = torch.zeros(1, D, dtype=torch.float64, requires_grad=True)
    up = noise(1, D)
    (g,) = torch.autograd.grad(f(x), x, up)
    assert g.isfinite().all()
    (g,) = torch.autograd.grad(f(x, eps=0.0), x, up)
    assert g.isnan().any()


def test_norms():
    """Each is built from a configuration, with what it needs of it."""
    assert isinstance(made("layernorm"), LayerNorm)
    assert isinstance(made("rmsnorm"), RMSNorm)
    assert isinstance(made("none"), nn.Identity)
    assert made("layernorm", bias=False).bias is None
    assert made("rmsnorm", norm_eps=0.5).eps == 0.5
    assert set(NORMS) == set(StackConfig.limits("norm")["choices"])


# -- shapes ------------------------------------------------------------------
def test_the_shapes_of_calls_are_enforced():
    """In every worker; without it, most tests of shapes would see less."""
    if os.environ.get("JAXTYPING_DISABLE") == "1":
        pytest.skip("shapes are not enforced: JAXTYPING_DISABLE=1")
    with pytest.raises(TypeCheckError, match="weight"):
        rms_norm(torch.randn(3, 5), torch.ones(7))
