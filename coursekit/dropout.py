"""Dropout that draws a quarter of the random numbers."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

CHANCES = 2**16  # what two random bytes can tell apart


def fast_dropout(
    x: Float[Tensor, "*B"], p: float, training: bool = True
) -> Float[Tensor, "*B"]:
    """Zero a share of the numbers, and scale up the others.

    ``x · keep / (1 − p)``, keep 0 with probability p and else 1: what is
    expected stays the same.  PyTorch draws each of these bits by itself,
    which on a CPU can take a quarter of a training step.  Here one random
    number of 64 bits decides for four places, so p is rounded to a multiple
    of 1/65,536.

    Args:
        x: any shape.
        p: share that is zeroed, 0 to 1.
        training: False returns ``x`` as it is.

    Returns:
        As ``x``.

    Raises:
        ValueError: if ``p`` does not lie in 0 to 1.

    Chapter: 11, training.
    Source: srivastava2014dropout; vaswani2017attention, section 5.4.
    Test: test_dropout.py::test_shares_and_scale
    """
    if not training or p == 0:
        return x
    is_slow = x.device.type == "cpu" and not torch.compiler.is_compiling()
    limit, n = round(p * CHANCES), x.numel()
    if not is_slow or not 0 < limit < CHANCES:
        return F.dropout(x, p)  # it also refuses what is no share
    dice = torch.empty((n + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    # Signed: the lowest of the 65,536 values is -32,768.
    keep = dice.view(torch.int16)[:n] >= limit - CHANCES // 2
    scale = CHANCES / (CHANCES - limit)
    return x * keep.view(x.shape).to(x.dtype).mul_(scale)


class Dropout(nn.Dropout):
    """PyTorch's module, with :func:`fast_dropout`.

    Chapter: 11, training.
    Source: srivastava2014dropout.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Drop in training mode; otherwise return ``x`` as it is."""
        return fast_dropout(x, self.p, self.training)
