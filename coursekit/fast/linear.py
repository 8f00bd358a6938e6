"""Linear layers as generation reads them: in the order of the product."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812


def packed_linear(n_rows: int, *layers: Any) -> Callable[..., Tensor]:
    """Linear layers that read the same vector, as one product.

    Args:
        n_rows: vectors at a time.
        layers: each with a ``weight`` (out, in), and perhaps a ``bias``.

    Returns:
        A function from (rows, in) to (rows, all outputs side by side); given
        a second tensor of that shape, it adds them to that one, in place.
    """
    weight = torch.cat([layer.weight.detach() for layer in layers])
    biases: Any = [getattr(layer, "bias", None) for layer in layers]
    bias = None if biases[0] is None else torch.cat(biases).detach()
    is_known = weight.device.type == "cpu" and weight.dtype == torch.float32
    if n_rows > 1 and is_known and torch.backends.mkl.is_available():
        return _several(weight, bias, n_rows)
    return _single(weight.t().contiguous(), bias)


def _several(
    weight: Tensor, bias: Tensor | None, n_rows: int
) -> Callable[..., Tensor]:
    """In MKL's own order, which other products would make again each time."""
    ordered = torch.ops.mkl._mkl_reorder_linear_weight(weight, n_rows)
    product = torch.ops.mkl._mkl_linear

    def in_order(x: Tensor, onto: Tensor | None = None) -> Tensor:
        # MKL's product knows no autocast.
        if x.size(0) != n_rows or torch.is_autocast_enabled("cpu"):
            y = F.linear(x, weight, bias)
        else:
            y = product(x, ordered, weight, bias, n_rows)
        return y if onto is None else onto.add_(y)

    return in_order


def _single(across: Tensor, bias: Tensor | None) -> Callable[..., Tensor]:
    """One vector runs along the rows of the transposed matrix."""

    def along(x: Tensor, onto: Tensor | None = None) -> Tensor:
        if onto is None or onto.dtype is not x.dtype:
            y = x @ across if bias is None else torch.addmm(bias, x, across)
            return y if onto is None else onto.add_(y)
        # A product can be added to what is there, as well as to zeros.
        onto.addmm_(x, across)
        return onto if bias is None else onto.add_(bias)

    return along
