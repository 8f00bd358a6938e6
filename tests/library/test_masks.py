"""Masks, cell by cell."""

import pytest
import torch

from coursekit.attention import attend
from coursekit.masks import (
    causal_mask,
    combine_masks,
    padding_mask,
    window_mask,
)
from results.masks import KINDS, masked


@pytest.mark.parametrize(("t", "s"), [(1, 1), (5, 5), (1, 7), (3, 7), (7, 11)])
def test_causal_cell_by_cell(t, s):
    """True where j ≤ i + (S − T), by two loops."""
    mask = causal_mask(t, s)
    assert mask.dtype == torch.bool
    assert mask.tolist() == [
        [j <= i + (s - t) for j in range(s)] for i in range(t)
    ]
    # The last query sees everything, the first all but the T − 1 last keys.
    assert mask[-1].all()
    assert mask[0].sum() == s - t + 1


def test_causal_by_hand():
    assert causal_mask(3).int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert causal_mask(2, 3).int().tolist() == [[1, 1, 0], [1, 1, 1]]
    # Control: aligned top left, as SDPA's is_causal, it is another mask.
    top_left = torch.ones(2, 3, dtype=torch.bool).tril()
    assert not torch.equal(top_left, causal_mask(2, 3))


def test_more_queries_than_keys():
    with pytest.raises(ValueError, match="T=5 queries and S=3 keys"):
        causal_mask(5, 3)


@pytest.mark.parametrize("size", [1, 2, 5, 13])
@pytest.mark.parametrize(("t", "s"), [(1, 1), (5, 5), (1, 7), (3, 7), (7, 11)])
def test_window_cell_by_cell(size, t, s):
    """True where the key is one of the last ``size``, by two loops."""
    mask = window_mask(size, t, s)
    assert mask.dtype == torch.bool
    assert mask.tolist() == [
        [0 <= i + (s - t) - j < size for j in range(s)] for i in range(t)
    ]
    if size >= s:
        assert torch.equal(mask, causal_mask(t, s))


def test_window_by_hand():
    rows = window_mask(2, 4).int().tolist()
    assert rows == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    assert window_mask(2, 1, 4).int().tolist() == [[0, 0, 1, 1]]


@pytest.mark.parametrize(
    ("arguments", "received"), [((0, 3), "size=0"), ((2, 5, 3), "T=5")]
)
def test_a_window_that_makes_no_sense(arguments, received):
    with pytest.raises(ValueError, match=received):
        window_mask(*arguments)


def test_padding_hides_keys():
    """One row a sequence; the query axis stays open."""
    ids = torch.tensor([[5, 3, 0], [7, 0, 0]])
    mask = padding_mask(ids, pad_id=0)
    assert mask.shape == (2, 1, 1, 3)
    assert mask[:, 0, 0].int().tolist() == [[1, 1, 0], [1, 0, 0]]
    assert padding_mask(ids, pad_id=7)[1, 0, 0].int().tolist() == [0, 1, 1]


def test_combine():
    """Only what all allow; None allows everything."""
    causal, padding = (
        causal_mask(3),
        padding_mask(torch.tensor([[1, 1, 0]]), 0),
    )
    both = combine_masks(causal, None, padding)
    assert both.shape == (1, 1, 3, 3)
    assert both[0, 0].int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 0]]
    assert combine_masks(None, causal) is causal
    assert combine_masks(None, None) is None
    assert combine_masks() is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_only_booleans(dtype):
    """A float mask would be added by some, multiplied by others."""
    with pytest.raises(ValueError, match=f"boolean.*got {dtype}"):
        combine_masks(causal_mask(3), torch.zeros(3, 3, dtype=dtype))


def test_the_masks_of_the_result():
    """Only "right" is causal attention; chapter 5 compares the others."""
    torch.manual_seed(0)
    q, k, v = (
        torch.randn(2, 3, 7, d, dtype=torch.float64) for d in (5, 5, 11)
    )
    truth = attend(q, k, v, causal=True)
    for kind in (*KINDS, "zeros"):
        same = torch.allclose(masked(kind, q, k, v), truth)
        assert same == (kind == "right"), kind
    strict = causal_mask(7).tril(-1)
    empty = masked("zeros", q, k, v)
    assert torch.allclose(empty, attend(q, k, v, strict))
    # With a finite fill the empty first row looks everywhere.
    uniform = masked("diagonal", q, k, v)
    assert torch.allclose(uniform[..., 0, :], v.mean(-2))
    assert torch.allclose(uniform[..., 1:, :], empty[..., 1:, :])
    assert torch.allclose(masked("no mask", q, k, v), attend(q, k, v))
