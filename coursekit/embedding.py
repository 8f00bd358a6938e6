"""Tokens to vectors, and back."""

import math

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from coursekit.checks import check_integers


class TokenEmbedding(nn.Embedding):
    """A matrix with one row per token, read forward and, if tied, backward.

    Forward, ``x = E[ids]``: PyTorch's look-up.  Backward, a vector is
    compared with every row: ``logits = x Eᵀ``.

    Args:
        vocab_size: number of rows, V.
        d_model: length of a row, D.

    Raises:
        ValueError: if a size is below 1.

    Chapter: 2, embedding.
    Source: vaswani2017attention, section 3.4; press2017using for the tying.
    Test: test_embedding.py::test_unembed_compares_with_every_row
    """

    def __init__(self, vocab_size: int, d_model: int) -> None:
        check_integers(vocab_size=vocab_size, d_model=d_model)
        super().__init__(vocab_size, d_model)

    def reset_parameters(self) -> None:
        """Draw each row with a length near 1."""
        nn.init.normal_(self.weight, std=self.embedding_dim**-0.5)

    def unembed(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B V"]:
        """Compare vectors with every row of the matrix (weight tying).

        Args:
            x: (..., D) vectors.

        Returns:
            (..., V) logits.
        """
        return F.linear(x, self.weight)


class ScaledEmbedding(TokenEmbedding):
    """The paper's embedding: times √D on the way in, not on the way out.

    ``x = E[ids] √D``.

    Args:
        vocab_size, d_model: as in :class:`TokenEmbedding`.

    Chapter: 2, embedding.
    Source: vaswani2017attention, section 3.4.
    Test: test_embedding.py::test_scale_is_the_root_of_d
    """

    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__(vocab_size, d_model)
        self.factor = math.sqrt(d_model)

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """Look up one row for each token, and scale it.

        Args:
            ids: (B, T) token ids in 0..V-1.

        Returns:
            (B, T, D) vectors.
        """
        return super().forward(ids) * self.factor
