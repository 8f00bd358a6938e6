"""A mixture of experts against plain Python, token by token."""

import math

import pytest
import torch
from compare import close, differ, shake

from coursekit.experts import Experts, route

B, D, DFF = 2, 5, 13


def noise(*shape, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


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
