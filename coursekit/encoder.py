"""The encoder: the same blocks, and every position sees every other."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from coursekit.attention import Attend, fast_attend
from coursekit.block import Block, initialize, make_embedding, make_norm
from coursekit.checks import check_ids
from coursekit.config import EncoderConfig
from coursekit.dropout import Dropout
from coursekit.positions import SCHEMES


class Encoder(nn.Module):
    """A stack of blocks that reads a whole sequence at once.

    Args:
        config: every choice.
        attend: the attention function.

    Chapter: 13, the encoder.
    Source: vaswani2017attention, section 3.1; devlin2019bert.
    Test: test_parity_torch.py::test_whole_transformer_with_final_norm
    """

    def __init__(
        self, config: EncoderConfig, attend: Attend = fast_attend
    ) -> None:
        super().__init__()
        self.config = config
        self.embedding = make_embedding(config)
        self.positions = SCHEMES[config.positions](config)
        self.embedding_norm = make_norm(config, config.embedding_norm)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(
            Block(config, attend) for _ in range(config.n_layers)
        )
        self.final_norm = make_norm(config, config.final_norm)
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
        check_ids(ids, self.config.vocab_size, self.config.max_len)
        return self.read(self.embedding(ids), mask)

    def read(
        self, x: Float[Tensor, "B S D"], mask: Tensor | None = None
    ) -> Float[Tensor, "B S D"]:
        """Read vectors, whatever they were made of: tokens, or sound.

        Args:
            x: (B, S, D) vectors that know nothing of their positions yet.
            mask: as in :meth:`forward`.

        Returns:
            (B, S, D).
        """
        positions = torch.arange(x.size(1), device=x.device)
        x = self.dropout(self.embedding_norm(self.positions(x, positions)))
        rotate, bias = self.positions.in_attention(positions, x.size(1))
        for block in self.blocks:
            x = block(x, mask=mask, rotate=rotate, bias=bias)
        return self.final_norm(x)
