"""Tokens to vectors, and back."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

__all__ = ["TokenEmbedding", "check_batch", "check_ids"]


def check_batch(ids: Tensor) -> None:
    """Refuse what is not a batch of token ids.

    Raises:
        ValueError: if ``ids`` are not whole numbers of shape (B, T), or T
            is 0.
    """
    if ids.dtype not in (torch.int64, torch.int32):
        raise ValueError(
            f"token ids must be whole numbers: got {ids.dtype}. Encode the "
            "text first, or call ids.long()."
        )
    if ids.dim() != 2 or ids.size(1) == 0:
        raise ValueError(
            "token ids must be (B, T) with at least 1 token: got "
            f"{tuple(ids.shape)}. For one sequence write ids[None]."
        )


def check_ids(ids: Int[Tensor, "*shape"], vocab_size: int) -> None:
    """Refuse token ids that the table does not hold.

    On a GPU the check would stall the queue, so there it is left to the
    device's own assertion.

    Raises:
        ValueError: if an id is negative or not below ``vocab_size``.
    """
    if ids.device.type != "cpu" or torch.compiler.is_compiling():
        return
    if ids.numel() == 0:
        return
    low, high = map(int, ids.aminmax())
    if low < 0 or high >= vocab_size:
        raise ValueError(
            f"token ids must lie in 0..{vocab_size - 1}: got {low}..{high}. "
            "Was the text encoded with another model's tokenizer?"
        )


class TokenEmbedding(nn.Module):
    """A table with one row a token, read forward and, if tied, backward.

    Forward, ``x = E[ids]``, times √D if ``scale``.  Backward, a vector is
    compared with every row: ``logits = x Eᵀ``.

    Args:
        vocab_size: number of rows, V.
        d_model: length of a row, D.
        scale: multiply by √D on the way in.

    Chapter: 2, embedding.
    Source: vaswani2017attention, section 3.4; press2017using for the tying.
    Test: tests/test_embedding.py::test_scale_is_the_root_of_d
    """

    def __init__(
        self, vocab_size: int, d_model: int, scale: bool = False
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))
        self.factor = math.sqrt(d_model) if scale else 1.0
        nn.init.normal_(self.weight, std=d_model**-0.5)

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """Look up one row for each token.

        Args:
            ids: (B, T) token ids in 0..V-1.

        Returns:
            (B, T, D) vectors.

        Raises:
            ValueError: if an id is out of range.
        """
        check_ids(ids, self.weight.size(0))
        x = F.embedding(ids, self.weight)
        return x * self.factor if self.factor != 1.0 else x

    def unembed(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B V"]:
        """Compare vectors with every row of the table (weight tying).

        Args:
            x: (..., D) vectors.

        Returns:
            (..., V) logits.
        """
        return F.linear(x, self.weight)
