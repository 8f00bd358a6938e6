"""The residual connection, and the norms that keep its scale."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

__all__ = [
    "LayerNorm",
    "RMSNorm",
    "Residual",
    "layer_norm",
    "make_norm",
    "rms_norm",
]


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


class LayerNorm(nn.Module):
    """:func:`layer_norm` with its parameters, in PyTorch's fused form.

    Args:
        d_model: D.
        eps: added to the variance.
        bias: learn a shift too.

    Chapter: 7, residual and norm.
    Source: ba2016layer.
    """

    def __init__(
        self, d_model: int, eps: float = 1e-5, bias: bool = True
    ) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model)) if bias else None

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Normalize each (D,) vector of (..., D)."""
        shape = self.weight.shape
        return F.layer_norm(x, shape, self.weight, self.bias, self.eps)


class RMSNorm(nn.Module):
    """:func:`rms_norm` with its parameter, in PyTorch's fused form.

    Args:
        d_model: D.
        eps: added to the mean square.

    Chapter: 15, modern.
    Source: zhang2019root.
    """

    def __init__(self, d_model: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Normalize each (D,) vector of (..., D)."""
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


def make_norm(
    kind: str, d_model: int, eps: float = 1e-5, bias: bool = True
) -> nn.Module:
    """Build the norm of that name.

    Args:
        kind: layernorm, rmsnorm, or none (which passes ``x`` through).
        d_model: D.
        eps: as in the norms.
        bias: as in :class:`LayerNorm`.

    Returns:
        A module from (..., D) to (..., D).

    Raises:
        ValueError: if the name is unknown.
    """
    if kind == "layernorm":
        return LayerNorm(d_model, eps, bias)
    if kind == "rmsnorm":
        return RMSNorm(d_model, eps)
    if kind == "none":
        return nn.Identity()
    raise ValueError(
        f"norm must be one of layernorm, rmsnorm, none: got {kind!r}. "
        "Choose one of these."
    )


class Residual(nn.Module):
    """A path around a sub-layer, and the norm before or after it.

    Pre-norm: ``x + f(norm(x))``. Post-norm: ``norm(x + f(x))``.

    Args:
        norm: the norm, or ``nn.Identity()``.
        norm_first: pre-norm (True) or post-norm (False).
        dropout: share of the sub-layer's output zeroed in training.
        residual: keep the path; without it only ``f`` remains.

    Differs from the paper: it has post-norm, here ``norm_first=False``. Most
        models since GPT-2 have pre-norm: a deep stack of it still trains at
        learning rates at which one of post-norm gets stuck.
    Chapter: 7, residual and norm.
    Source: vaswani2017attention, sections 3.1 and 5.4; xiong2020layer.
    Test: tests/test_norm.py::test_pre_and_post_norm
    """

    def __init__(
        self,
        norm: nn.Module,
        norm_first: bool = True,
        dropout: float = 0.0,
        residual: bool = True,
    ) -> None:
        super().__init__()
        self.norm = norm
        self.norm_first = norm_first
        self.dropout = nn.Dropout(dropout)
        self.residual = residual

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        sublayer: Callable[[Tensor], Tensor],
    ) -> Float[Tensor, "B T D"]:
        """Run a sub-layer with the path around it.

        Args:
            x: (B, T, D).
            sublayer: a function from (B, T, D) to (B, T, D).

        Returns:
            (B, T, D).
        """
        y = sublayer(self.norm(x) if self.norm_first else x)
        # To one dtype first: a sum of two, as autocast leaves it, is slow
        # on CPUs.
        y = self.dropout(y).to(x.dtype)
        y = x + y if self.residual else y
        return y if self.norm_first else self.norm(y)
