"""The whole paper: an encoder reads, a decoder writes and looks back."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor, nn

from coursekit.attention import Attend, fast_attend
from coursekit.block import (
    initialize,
    make_attention,
    make_network,
    make_norm,
)
from coursekit.config import EncoderConfig, TransformerConfig
from coursekit.decoder import DecoderStack
from coursekit.dropout import Dropout
from coursekit.embedding import TokenEmbedding
from coursekit.encoder import Encoder
from coursekit.multihead import KeysValues, KeyValueCache


@runtime_checkable
class CrossCache(KeyValueCache, Protocol):
    """A block's cache that also keeps what the memory projects to."""

    memory: KeysValues | None


class CrossBlock(nn.Module):
    """Self-attention, then attention to the encoder's output, then a network.

    Three sums, each as in :class:`Block`.

    Args:
        config: widths, norm, activation, dropout.
        attend: the attention function.

    Chapter: 14, encoder and decoder together.
    Source: vaswani2017attention, section 3.1 and Figure 1, right.
    Test: test_parity_torch.py::test_decoder_layer
    """

    def __init__(
        self, config: TransformerConfig, attend: Attend = fast_attend
    ) -> None:
        super().__init__()
        self.norm_first = config.norm_first
        self.residual = config.residual
        self.dropout = Dropout(config.dropout)
        self.attention = make_attention(config, attend)
        self.attention_norm = make_norm(config)
        self.cross_attention = make_attention(config, attend)
        self.cross_attention_norm = make_norm(config)
        self.feed_forward = make_network(config)
        self.feed_forward_norm = make_norm(config)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        memory: Float[Tensor, "M S D"],
        *,
        memory_mask: Tensor | None = None,
        mask: Tensor | None = None,
        causal: bool = True,
        rotate: Callable[[Tensor], Tensor] | None = None,
        bias: Tensor | None = None,
        cache: CrossCache | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Pass the target's residual stream through one block.

        Args:
            x: (B, T, D) target.
            memory: (M, S, D) the encoder's output; M = B, or as
                :meth:`cross_attend` says.
            memory_mask: which of the memory may be seen, (M, 1, 1, S).
            mask, causal, rotate, bias, cache: as in :class:`Block`.

        Returns:
            (B, T, D).
        """
        options = {"rotate": rotate, "bias": bias, "cache": cache}
        attend = partial(self.attention, mask=mask, causal=causal, **options)
        look_back = partial(
            self.cross_attend, memory=memory, mask=memory_mask, cache=cache
        )
        if self.norm_first:
            y = attend(self.attention_norm(x))
            x = self.skip(x) + self.dropout(y)
            y = look_back(self.cross_attention_norm(x))
            x = self.skip(x) + self.dropout(y)
            y = self.feed_forward(self.feed_forward_norm(x))
            return self.skip(x) + self.dropout(y)
        x = self.attention_norm(self.skip(x) + self.dropout(attend(x)))
        x = self.skip(x) + self.dropout(look_back(x))
        x = self.cross_attention_norm(x)
        x = self.skip(x) + self.dropout(self.feed_forward(x))
        return self.feed_forward_norm(x)

    def skip(self, x: Tensor) -> Tensor | float:
        """The residual path: ``x``, or 0 in a model that has none."""
        return x if self.residual else 0.0

    def cross_attend(
        self,
        y: Float[Tensor, "B T D"],
        memory: Float[Tensor, "M S D"],
        *,
        mask: Tensor | None = None,
        cache: CrossCache | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Attend to the memory.

        With a cache its keys and values are projected once, by the first
        call; each later call must be about the same ``memory``.  If that has
        fewer rows, each is for as many targets, side by side: beams.

        Args:
            y: (B, T, D) where the queries come from.
            memory, mask, cache: as in :meth:`forward`.

        Returns:
            (B, T, D).
        """
        if cache is None:
            return self.cross_attention(y, memory, mask=mask)
        keys_values = self.remembered(memory, cache)
        # Attention to a source has no order: the queries of all its targets
        # stand in one row.
        rows = y.flatten(0, 1).unflatten(0, (len(keys_values[0]), -1))
        mixed = self.cross_attention(rows, keys_values=keys_values, mask=mask)
        return mixed.view_as(y)

    def remembered(
        self, memory: Float[Tensor, "M S D"], cache: CrossCache | None
    ) -> KeysValues:
        """Keys and values of the memory, projected once per cache.

        Args:
            memory, cache: as in :meth:`cross_attend`.

        Returns:
            (M, G, S, Dh) keys and (M, G, S, Dv) values.
        """
        if cache is None:
            return self.cross_attention.keys_values(memory)
        if cache.memory is None:
            cache.memory = self.cross_attention.keys_values(memory)
        return cache.memory


class Transformer(DecoderStack):
    """Encoder and decoder, with one table of tokens for both and the head.

    As in the paper the vocabulary is joint; ``tie_embeddings=False`` gives
    the head a table of its own.

    Args:
        config: every choice.
        attend: the attention function.
        encoder: what reads the source and holds the table of tokens;
            default an :class:`Encoder` of token ids.

    Chapter: 14, encoder and decoder together.
    Source: vaswani2017attention, section 3 and Figure 1.
    Test: test_parity_torch.py::test_whole_transformer_with_final_norm
    """

    config: TransformerConfig

    def __init__(
        self,
        config: TransformerConfig,
        attend: Attend = fast_attend,
        encoder: Encoder | None = None,
    ) -> None:
        super().__init__(config)
        self.encoder = encoder or Encoder(encoder_config(config), attend)
        n_layers = config.n_decoder_layers
        self.add_blocks(CrossBlock(config, attend) for _ in range(n_layers))
        # The encoder has drawn its own weights.
        for part in (self.blocks, self.head):
            if part is not None:
                initialize(part, config, n_residual=3 * n_layers)

    @property
    def embedding(self) -> TokenEmbedding:  # type: ignore[override]
        """The one table of tokens; the encoder holds it."""
        return self.encoder.embedding

    def forward(
        self,
        src: Tensor,
        tgt: Int[Tensor, "B T"],
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Predict each next target token from the source and the prefix.

        Args:
            src: (B, S) source ids, or what another encoder reads.
            tgt: (B, T) target ids, shifted right (they begin with BOS).
            src_mask: (B, 1, 1, S), True = real token.
            tgt_mask: more to hide in the target, True = may attend; the
                causal mask is always there.

        Returns:
            (B, T, V) logits; row t predicts target token t + 1.

        Raises:
            ValueError: if an id is out of range, or a sequence is longer
                than ``max_len``.
        """
        memory = self.encode(src, src_mask)
        return self.decode(tgt, memory, src_mask, tgt_mask)

    def encode(
        self, src: Tensor, src_mask: Tensor | None = None
    ) -> Float[Tensor, "B S D"]:
        """Read the source: (B, S) ids to (B, S, D) memory."""
        return self.encoder(src, src_mask)

    def decode(
        self,
        tgt: Int[Tensor, "B T"],
        memory: Float[Tensor, "M S D"],
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        positions: Int[Tensor, "..."] | None = None,
        cache: Sequence[CrossCache] | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Write: (B, T) target ids to (B, T, V) logits.

        Args:
            tgt: (B, T) target ids.
            memory: (M, S, D) from :meth:`encode`; M = B, or, with a cache,
                as :meth:`CrossBlock.cross_attend` says.
            src_mask, tgt_mask: as in :meth:`forward`.
            positions, cache: as in :meth:`GPT.forward`.

        Returns:
            (B, T, V) logits.

        Raises:
            ValueError: as :meth:`forward`.
        """
        return self.logits(
            self.decode_hidden(
                tgt, memory, src_mask, tgt_mask, positions, cache
            )
        )

    def hidden(
        self,
        src: Tensor,
        tgt: Int[Tensor, "B T"],
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
    ) -> Float[Tensor, "B T D"]:
        """The target's residual stream after the last block, before the norm.

        Args, Raises: as :meth:`forward`.

        Returns:
            (B, T, D); ``logits`` of it is what :meth:`forward` returns.
        """
        memory = self.encode(src, src_mask)
        return self.decode_hidden(tgt, memory, src_mask, tgt_mask)

    def decode_hidden(
        self,
        tgt: Int[Tensor, "B T"],
        memory: Float[Tensor, "M S D"],
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        positions: Int[Tensor, "..."] | None = None,
        cache: Sequence[CrossCache] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Hidden states of the decoder, before the logits.

        Args, Raises: as :meth:`decode`.

        Returns:
            (B, T, D).
        """
        options = {"memory": memory, "memory_mask": src_mask, "mask": tgt_mask}
        return self.stream(tgt, positions, cache, **options)


def encoder_config(config: TransformerConfig) -> EncoderConfig:
    """The encoder's part of an encoder-decoder's configuration."""
    names = {field.name for field in fields(EncoderConfig)}
    shared = {k: v for k, v in config.to_dict().items() if k in names}
    return EncoderConfig(**shared, n_layers=config.n_encoder_layers)
