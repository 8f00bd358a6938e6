"""Several linear layers as one product, added to what is there."""

import pytest
import torch

from coursekit.packed import packed_linear


@pytest.mark.parametrize("n_rows", [1, 3])
@pytest.mark.parametrize("bias", [True, False])
def test_several_layers_in_one_product(n_rows, bias):
    torch.manual_seed(1)
    layers = [torch.nn.Linear(13, n, bias) for n in (7, 11)]
    quick = packed_linear(n_rows, *layers)
    for shape in [(n_rows, 13), (10, 13)]:
        x = torch.randn(shape)
        expected = torch.cat([layer(x) for layer in layers], dim=-1)
        torch.testing.assert_close(quick(x), expected.detach())
        there = torch.randn(shape[0], 18)
        total = there + expected.detach()
        assert quick(x, there) is there
        torch.testing.assert_close(there, total)
