"""Dropout: shares, scale and gradient, held against PyTorch's rule."""

import math

import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from coursekit.dropout import Dropout, fast_dropout

N = 100_003  # a prime: the last random number decides for three places


@pytest.mark.parametrize("p", [0.1, 0.5, 0.83])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shares_and_scale(p, dtype):
    torch.manual_seed(1)
    x = torch.ones(N, dtype=dtype)
    y = fast_dropout(x, p)
    assert set(y.unique().tolist()) == {0.0, y.max().item()}
    assert y.max().item() == pytest.approx(1 / (1 - p), rel=1e-4)
    bound = 4 * math.sqrt(p * (1 - p) / N)
    assert (y == 0).double().mean().item() == pytest.approx(p, abs=bound)
    # What is expected stays: with the rounded share, exactly.
    rounded = round(p * 65536) / 65536
    assert y.max().item() == pytest.approx(1 / (1 - rounded), rel=1e-7)


def test_the_places_are_independent():
    torch.manual_seed(2)
    kept = (fast_dropout(torch.ones(N), 0.3) != 0).double() - 0.7
    # Four places share a random number: neighbors must not know it.
    for lag in (1, 2, 3, 4, 5):
        both = (kept[:-lag] * kept[lag:]).mean().item() / (0.3 * 0.7)
        assert abs(both) < 4 / math.sqrt(N), lag
    # And each of the four has the same share.
    for place in range(4):
        share = (kept[place::4] < 0).double().mean().item()
        assert share == pytest.approx(0.3, abs=4 * math.sqrt(0.84 / N))


def test_low_bits_alone_would_be_noticed():
    # The control of the test above: one random number for four places.
    torch.manual_seed(2)
    one = (torch.rand(N // 4 + 1) >= 0.3).repeat_interleave(4)[:N]
    kept = one.double() - 0.7
    assert (kept[:-1] * kept[1:]).mean().item() / (0.3 * 0.7) > 0.5


def test_the_gradient_passes_where_the_value_did():
    torch.manual_seed(3)
    x = torch.randn(7, 11, 13, dtype=torch.float64, requires_grad=True)
    y = fast_dropout(x, 0.4)
    weights = torch.randn_like(y)
    (y * weights).sum().backward()
    kept = y != 0
    expected = torch.where(kept, weights / (1 - 26214 / 65536), 0.0)
    torch.testing.assert_close(x.grad, expected, rtol=1e-12, atol=0)


def test_a_seed_fixes_it():
    x = torch.ones(5, 7)
    drawn = []
    for seed in (4, 4, 5):
        torch.manual_seed(seed)
        drawn.append(fast_dropout(x, 0.5))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


@pytest.mark.parametrize("p", [0.0, 1e-6, 1 - 1e-6, 1.0])
def test_the_ends(p):
    x, drawn = torch.randn(3, 5), []
    for drop in (fast_dropout, F.dropout):
        torch.manual_seed(0)
        drawn.append(drop(x, p))
    assert torch.equal(*drawn)


@pytest.mark.parametrize("p", [-0.1, 1.5])
def test_what_is_no_share_is_refused(p):
    with pytest.raises(ValueError, match=f"got {p}"):
        fast_dropout(torch.ones(3), p)


def test_off_in_evaluation():
    layer, x = Dropout(0.9), torch.randn(3, 5)
    assert layer.eval()(x) is x
    assert (layer.train()(torch.ones(N)) == 0).any()


def test_half_precision_and_odd_shapes():
    torch.manual_seed(6)
    for shape in [(), (1,), (2, 3), (0, 5)]:
        y = fast_dropout(torch.ones(shape, dtype=torch.bfloat16), 0.5)
        assert y.shape == shape
        assert y.dtype == torch.bfloat16
    crossed = torch.ones(17, 19).t()  # not contiguous
    assert fast_dropout(crossed, 0.5).shape == (19, 17)
