"""The encoder: the same blocks, and every position sees every other."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from coursekit.attention import Attend, fast_attend
from coursekit.config import EncoderConfig
from coursekit.decoder import (
    Block,
    initialize,
    make_scheme,
    make_stack_norm,
    next_positions,
)
from coursekit.embedding import TokenEmbedding

__all__ = ["Encoder"]


class Encoder(nn.Module):
    """A stack of blocks that reads a whole sequence at once.

    Args:
        config: every choice.
        attend: the attention function.

    Chapter: 13, the encoder.
    Source: vaswani2017attention, section 3.1; devlin2019bert.
    Test: tests/test_parity_torch.py::test_whole_transformer_with_final_norm
    """

    def __init__(
        self, config: EncoderConfig, attend: Attend = fast_attend
    ) -> None:
        super().__init__()
        self.config = config
        self.embedding = TokenEmbedding(
            config.vocab_size, config.d_model, config.scale_embedding
        )
        self.positions = make_scheme(config)
        self.embedding_norm = make_stack_norm(
            config,
            config.embedding_norm,
        )
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(
            Block(config, attend) for _ in range(config.n_layers)
        )
        self.final_norm = make_stack_norm(config, config.final_norm)
        initialize(self, config, n_residual=2 * config.n_layers)

    def forward(
        self, ids: Int[Tensor, "B S"], mask: Tensor | None = None
    ) -> Float[Tensor, "B S D"]:
        """Give each token a vector that knows its context.

        Args:
            ids: (B, S) token ids.
            mask: what may be seen, broadcast to (B, H, S, S); for padding
                (B, 1, 1, S), True = real token.

        Returns:
            (B, S, D).

        Raises:
            ValueError: if an id is out of range, or the sequence is longer
                than ``max_len``.
        """
        positions = next_positions(ids, 0, self.config.max_len)
        return self.read(self.embedding(ids), positions, mask)

    def read(
        self,
        x: Float[Tensor, "B S D"],
        positions: Int[Tensor, "..."],
        mask: Tensor | None = None,
    ) -> Float[Tensor, "B S D"]:
        """Read vectors, whatever they were made of: tokens, or sound.

        Args:
            x: (B, S, D) vectors that know nothing of their places yet.
            positions: (S,) or (B, S) places.
            mask: as in :meth:`forward`.

        Returns:
            (B, S, D).
        """
        x = self.positions(x, positions)
        x = self.dropout(self.embedding_norm(x))
        rotate = self.positions.rotation(positions)
        bias = self.positions.bias(x.size(1), x.size(1))
        for block in self.blocks:
            x = block(x, mask, False, rotate, bias)
        return self.final_norm(x)
