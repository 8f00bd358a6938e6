"""The norms that keep the scale of the residual stream."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn


def layer_norm(
    x: Float[Tensor, "*B D"],
    weight: Float[Tensor, "D"] | None = None,
    bias: Float[Tensor, "D"] | None = None,
    eps: float = 1e-5,
) -> Float[Tensor, "*B D"]:
    """Give each vector mean 0 and variance 1, then a learned scale and shift.

    ``(x − mean) / √(variance + eps) · weight + bias``, over the last axis.

    Args:
        x: (..., D).
        weight: (D,) scale; 1 if not given.
        bias: (D,) shift; 0 if not given.
        eps: added to the variance, under the root.

    Returns:
        (..., D).

    Chapter: 7, residual and norm.
    Source: ba2016layer.
    """
    centered = x - x.mean(dim=-1, keepdim=True)
    variance = centered.square().mean(dim=-1, keepdim=True)
    y = centered * torch.rsqrt(variance + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def rms_norm(
    x: Float[Tensor, "*B D"],
    weight: Float[Tensor, "D"] | None = None,
    eps: float = 1e-5,
) -> Float[Tensor, "*B D"]:
    """Give each vector a mean square of 1, then a learned scale.

    ``x / √(mean(x²) + eps) · weight``: layer norm without the centering.

    Args:
        x: (..., D).
        weight: (D,) scale; 1 if not given.
        eps: added to the mean square, under the root.

    Returns:
        (..., D).

    Chapter: 15, modern.
    Source: zhang2019root, equation 4.
    """
    y = x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps)
    return y if weight is None else y * weight


LayerNorm = nn.LayerNorm
"""PyTorch's fused form of :func:`layer_norm`, with its parameters."""
RMSNorm = nn.RMSNorm
"""PyTorch's fused form of :func:`rms_norm`, with its parameter."""
NORMS: dict[str, Callable[[Any], nn.Module]] = {
    "layernorm": lambda c: LayerNorm(c.d_model, c.norm_eps, bias=c.bias),
    "rmsnorm": lambda c: RMSNorm(c.d_model, c.norm_eps),
    "none": lambda c: nn.Identity(),
}
"""Each norm by its name, built from a configuration."""
