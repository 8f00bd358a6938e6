"""Quantization: weights as small whole numbers and the steps between them.

A row of a matrix, or a group of its neighbors, shares one step s, chosen so
that the largest entry is the largest whole number: *symmetric absmax*
quantization.  What is stored is ``round(w / s)``; what computes is s times
that.
"""

import copy
from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float, Int8, UInt8
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from coursekit.weights import own_weights, row_steps


class Quantized(NamedTuple):
    """A matrix of whole numbers, with the step of each group."""

    whole: Int8[Tensor, "N K"]
    steps: Float[Tensor, "N G"]


def quantize(
    weights: Float[Tensor, "N K"],
    bits: int = 8,
    group_size: int | None = None,
) -> Quantized:
    """Round each group of a row to whole numbers of so many bits.

    ``n = round(w / s)`` with ``s = max |w| / (2^(bits − 1) − 1)``, the
    maximum over a group: ``group_size`` neighbors in a row.

    Args:
        weights: (N, K) finite numbers; a row makes one output.
        bits: 2..8 for each number; 8 reach from −127 to 127, 4 from −7 to 7.
        group_size: entries that share a step, a divisor of K; by default a
            whole row.

    Returns:
        The whole numbers (N, K), and the steps (N, G) with G = K /
        group_size.

    Raises:
        ValueError: if ``bits`` or ``group_size`` is none of these.

    Chapter: 21, inference.
    Test: test_quantize.py::test_rounding_is_that_of_torch
    """
    n_rows, width = weights.shape
    size = _check_sizes(bits, group_size, width)
    groups = weights.detach().reshape(-1, size)
    steps = row_steps(groups, levels=2 ** (bits - 1) - 1)
    whole = (groups / steps[:, None]).round().to(torch.int8)
    return Quantized(whole.view(n_rows, width), steps.view(n_rows, -1))


def dequantize(quantized: Quantized) -> Float[Tensor, "N K"]:
    """The weights that compute: each whole number times its group's step.

    Args:
        quantized: as :func:`quantize` returns it.

    Returns:
        (N, K) of the steps' dtype, each at most half a step from what was
        quantized.

    Chapter: 21, inference.
    Test: test_quantize.py::test_half_a_step_at_most
    """
    whole, steps = quantized
    groups = whole.view(*steps.shape, -1) * steps[..., None]
    return groups.view(whole.shape)


# -- a model -----------------------------------------------------------------
def matrices(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The weights that are quantized: all with two axes or more.

    Norms and biases, one number per dimension, are few and stay as they are.

    Args:
        model: any module.

    Yields:
        Name and tensor, a shared one once.

    Chapter: 21, inference.
    """
    for name, weights in own_weights(model).items():
        if weights.dim() > 1 and weights.is_floating_point():
            yield name, weights


def quantized_copy(
    model: nn.Module, bits: int = 8, group_size: int | None = None
) -> nn.Module:
    """Copy a model whose matrices are what :func:`quantize` leaves of them.

    The copy computes in floating point, so that any model can be measured;
    what it would take in memory, :func:`quantized_bytes` counts.

    Args:
        model: stays as it is.
        bits, group_size: as in :func:`quantize`.

    Returns:
        The copy.

    Raises:
        ValueError: as :func:`quantize`.

    Chapter: 21, inference.
    Test: test_quantize.py::test_eight_bits_per_row_are_those_of_a_file
    """
    rounded = copy.deepcopy(model)
    with torch.no_grad():
        for _, weights in matrices(rounded):
            rows = quantize(weights.flatten(1), bits, group_size)
            weights.copy_(dequantize(rows).view(weights.shape))
    return rounded


def quantized_bytes(
    model: nn.Module,
    bits: int = 8,
    group_size: int | None = None,
    step_bytes: int = 4,
) -> int:
    """Count the bytes of a model: whole numbers, steps, and the rest.

    ``N · K · bits / 8 + N · G · step_bytes`` for each matrix.

    Args:
        model: whose matrices are quantized.
        bits, group_size: as in :func:`quantize`.
        step_bytes: of each step; 4 is float32, as here, 2 float16.

    Returns:
        Bytes.

    Raises:
        ValueError: as :func:`quantize`.

    Chapter: 21, inference.
    """
    total = sum(weights.nbytes for weights in own_weights(model).values())
    for _, weights in matrices(model):
        width = weights[0].numel()
        n_groups = weights.numel() // _check_sizes(bits, group_size, width)
        whole = weights.numel() * bits // 8
        total += whole + n_groups * step_bytes - weights.nbytes
    return total


# -- stored in four bits -----------------------------------------------------
def to_int4(whole: Int8[Tensor, "N K"]) -> UInt8[Tensor, "N K/2"]:
    """Pack two integers of four bits into each byte.

    ``(n₀ + 8) + 16 (n₁ + 8)`` for neighbors n₀ and n₁ in −8..7.

    Args:
        whole: (N, K), K even.

    Returns:
        (N, K / 2).

    Raises:
        ValueError: if K is odd, or a number needs more than four bits.

    Chapter: 21, inference.
    """
    if whole.size(1) % 2 or bool(((whole < -8) | (whole > 7)).any()):
        raise ValueError(
            "rows must have an even number of entries in −8..7: got "
            f"{whole.size(1)} in {int(whole.min())}..{int(whole.max())}. "
            "Quantize to 4 bits or fewer."
        )
    low, high = (whole + 8).to(torch.uint8).unflatten(1, (-1, 2)).unbind(2)
    return low + 16 * high


def from_int4(packed: UInt8[Tensor, "N M"]) -> Int8[Tensor, "N 2*M"]:
    """Undo :func:`to_int4`.

    Args:
        packed: (N, M) bytes.

    Returns:
        (N, 2 M) whole numbers in −8..7.

    Chapter: 21, inference.
    Test: test_quantize.py::test_two_numbers_share_a_byte
    """
    both = torch.stack((packed % 16, packed // 16), dim=2)
    return both.flatten(1).to(torch.int8) - 8


class Int4Linear(nn.Module):
    """A linear layer stored in four bits, and multiplied out at each call.

    Args:
        linear: whose weight (N, K) is quantized; K is even.
        group_size: as in :func:`quantize`.

    Raises:
        ValueError: as :func:`quantize` and :func:`to_int4`.

    Chapter: 21, inference.
    Test: test_quantize.py::test_a_model_in_four_bits_computes_the_same
    """

    numbers: Tensor
    steps: Tensor

    def __init__(self, linear: nn.Linear, group_size: int | None) -> None:
        super().__init__()
        whole, steps = quantize(linear.weight, 4, group_size)
        self.register_buffer("numbers", to_int4(whole))
        self.register_buffer("steps", steps)
        self.bias = linear.bias

    def forward(self, x: Float[Tensor, "*B K"]) -> Float[Tensor, "*B N"]:
        """Multiply by the dequantized weights.

        Args:
            x: (..., K).

        Returns:
            (..., N).
        """
        weight = dequantize(Quantized(from_int4(self.numbers), self.steps))
        return F.linear(x, weight, self.bias)


def _check_sizes(bits: int, group_size: int | None, width: int) -> int:
    """Return how many entries share a step, or refuse the sizes.

    Raises:
        ValueError: if bits are not 2..8, or groups don't fill a row.
    """
    size = width if group_size is None else group_size
    if bits not in range(2, 9) or size < 1 or width % size:
        raise ValueError(
            "quantization needs bits in 2..8 and a group size that divides "
            f"a row of {width}: got bits={bits}, group_size={group_size}. 8 "
            "bits per row and 4 bits in groups of 32 are usual."
        )
    return size
