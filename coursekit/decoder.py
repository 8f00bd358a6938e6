"""The decoder: a stack of blocks that predicts the next token."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from coursekit.attention import Attend, fast_attend
from coursekit.block import Block, initialize, make_embedding, make_norm
from coursekit.checks import check_ids
from coursekit.config import GPTConfig, StackConfig
from coursekit.dropout import Dropout
from coursekit.embedding import TokenEmbedding
from coursekit.multihead import KeyValueCache
from coursekit.positions import SCHEMES


class DecoderStack(nn.Module):
    """From token ids under a causal mask to logits: GPT's, and the paper's.

    A subclass makes ``embedding``, then calls :meth:`add_blocks`.

    Args:
        config: every choice.

    Chapter: 9, the decoder.
    """

    embedding: TokenEmbedding

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.config = config

    def add_blocks(self, blocks: Iterable[nn.Module]) -> None:
        """Make all that lies behind the embedding.

        Args:
            blocks: from the first to the last.
        """
        config = self.config
        self.positions = SCHEMES[config.positions](config)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(blocks)
        self.final_norm = make_norm(config, config.final_norm)
        self.head: nn.Linear | None = None
        if not config.tie_embeddings:
            d_model, vocab_size = config.d_model, config.vocab_size
            self.head = nn.Linear(d_model, vocab_size, bias=False)

    def stream(
        self,
        ids: Int[Tensor, "B T"],
        positions: Int[Tensor, "..."] | None = None,
        cache: Sequence[KeyValueCache] | None = None,
        **options: Any,
    ) -> Float[Tensor, "B T D"]:
        """The residual stream after the last block, before the final norm.

        Args:
            ids, positions, cache: as in :meth:`GPT.forward`.
            options: other arguments of each block.

        Returns:
            (B, T, D).

        Raises:
            ValueError: as :meth:`GPT.forward`.
        """
        n_old = cache[0].length if cache else 0
        config = self.config
        check_ids(ids, config.vocab_size, config.max_len, n_old, positions)
        n_all = n_old + ids.size(1)
        if positions is None:
            positions = torch.arange(n_old, n_all, device=ids.device)
        x = self.dropout(self.positions(self.embedding(ids), positions))
        rotate, bias = self.positions.in_attention(positions, n_all)
        options |= {"causal": True, "rotate": rotate, "bias": bias}
        for i, block in enumerate(self.blocks):
            x = block(x, **options, cache=cache[i] if cache else None)
        return x

    def logits(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B V"]:
        """Read the next token's logits off the residual stream.

        Args:
            x: (..., D) as ``hidden`` returns it.

        Returns:
            (..., V).
        """
        x = self.final_norm(x)
        if self.head is None:
            return self.embedding.unembed(x)
        return self.head(x)


class GPT(DecoderStack):
    """A decoder-only transformer: ids in, logits of each next token out.

    Args:
        config: every choice.
        attend: the attention function.

    Differs from the paper: no encoder, and no attention to one.
    Chapter: 9, the decoder.
    Source: radford2019language; vaswani2017attention, section 3.1.
    Test: test_decoder.py::test_causal_by_perturbation
    """

    config: GPTConfig

    def __init__(
        self, config: GPTConfig, attend: Attend = fast_attend
    ) -> None:
        super().__init__(config)
        self.embedding = make_embedding(config)
        self.add_blocks(Block(config, attend) for _ in range(config.n_layers))
        initialize(self, config, n_residual=2 * config.n_layers)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        positions: Int[Tensor, "..."] | None = None,
        mask: Tensor | None = None,
        cache: Sequence[KeyValueCache] | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Predict each next token from the tokens up to it.

        Args:
            ids: (B, T) token ids in 0..V-1.
            positions: (T,) or (B, T) positions; by default they go on from
                what the cache holds.  ALiBi counts columns instead, so it
                takes no notice of gaps (see :meth:`Alibi.bias`).
            mask: more to hide, broadcast to (B, H, T, S), True = may attend;
                the causal mask is always there.
            cache: one cache a block, for generation.

        Returns:
            (B, T, V) logits; row t predicts token t + 1.

        Raises:
            ValueError: if an id or a position is out of range, or the
                sequence is longer than ``max_len``.
        """
        return self.logits(self.hidden(ids, positions, mask, cache))

    def hidden(
        self,
        ids: Int[Tensor, "B T"],
        positions: Int[Tensor, "..."] | None = None,
        mask: Tensor | None = None,
        cache: Sequence[KeyValueCache] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """The residual stream after the last block, before the final norm.

        Args, Raises: as :meth:`forward`.

        Returns:
            (B, T, D).
        """
        return self.stream(ids, positions, cache, mask=mask)
