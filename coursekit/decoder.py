"""The block, and GPT: a stack of blocks that predicts the next token."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from coursekit.attention import Attend, fast_attend
from coursekit.config import GPTConfig, StackConfig
from coursekit.embedding import TokenEmbedding, check_batch
from coursekit.feedforward import make_feed_forward
from coursekit.multihead import KeyValueCache, MultiHeadAttention
from coursekit.norm import Residual, make_norm
from coursekit.positions import (
    Positions,
    check_positions,
    make_positions,
)

__all__ = [
    "GPT",
    "Block",
    "BlockCache",
    "check_length",
    "initialize",
    "make_attention",
    "make_network",
    "make_residual",
    "make_scheme",
    "make_stack_norm",
    "next_positions",
]


@runtime_checkable
class BlockCache(KeyValueCache, Protocol):
    """One block's cache; it also knows how many positions it holds."""

    @property
    def length(self) -> int:
        """Number of key positions filled so far."""
        ...


class Block(nn.Module):
    """Attention between positions, then a network at each of them.

    The same block serves decoders (``causal=True``) and encoders.

    Args:
        config: widths, norm, activation, dropout.
        attend: the attention function.

    Chapter: 9, the decoder.
    Source: vaswani2017attention, section 3.1.
    Test: tests/test_parity_torch.py::test_encoder_layer
    """

    def __init__(
        self, config: StackConfig, attend: Attend = fast_attend
    ) -> None:
        super().__init__()
        self.attention = make_attention(config, attend)
        self.around_attention = make_residual(config)
        self.feed_forward: nn.Module | None = None
        if config.ff_size:
            self.feed_forward = make_network(config)
            self.around_feed_forward = make_residual(config)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        mask: Tensor | None = None,
        causal: bool = False,
        rotate: Callable[[Tensor], Tensor] | None = None,
        bias: Tensor | None = None,
        cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Pass the residual stream through one block.

        Args:
            x: (B, T, D).
            mask, causal, rotate, bias, cache: as in
                :meth:`MultiHeadAttention.forward`.

        Returns:
            (B, T, D).
        """
        x = self.around_attention(
            x,
            lambda y: self.attention(
                y, None, mask, causal, rotate, bias, cache
            ),
        )
        if self.feed_forward is None:
            return x
        return self.around_feed_forward(x, self.feed_forward)


class GPT(nn.Module):
    """A decoder-only transformer: ids in, logits of each next token out.

    Args:
        config: every choice.
        attend: the attention function.

    Differs from the paper: no encoder, and no attention to one.
    Chapter: 9, the decoder.
    Source: radford2019language; vaswani2017attention, section 3.1.
    Test: tests/test_decoder.py::test_causal_by_perturbation
    """

    def __init__(
        self, config: GPTConfig, attend: Attend = fast_attend
    ) -> None:
        super().__init__()
        self.config = config
        self.embedding = TokenEmbedding(
            config.vocab_size, config.d_model, config.scale_embedding
        )
        self.positions = make_scheme(config)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(
            Block(config, attend) for _ in range(config.n_layers)
        )
        self.final_norm = make_stack_norm(config, config.final_norm)
        self.head: nn.Linear | None = None
        if not config.tie_embeddings:
            d_model, vocab_size = config.d_model, config.vocab_size
            self.head = nn.Linear(d_model, vocab_size, bias=False)
        initialize(self, config, n_residual=2 * config.n_layers)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        positions: Int[Tensor, "..."] | None = None,
        mask: Tensor | None = None,
        cache: Sequence[BlockCache] | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Predict each next token from the tokens up to it.

        Args:
            ids: (B, T) token ids in 0..V-1.
            positions: (T,) or (B, T) positions; by default they go on from
                what the cache holds.  ALiBi counts columns instead, so it
                takes no notice of gaps (see :meth:`Positions.bias`).
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
        cache: Sequence[BlockCache] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """The residual stream after the last block, before the final norm.

        Args, Raises: as :meth:`forward`.

        Returns:
            (B, T, D).
        """
        n_old = cache[0].length if cache else 0
        max_len = self.config.max_len
        positions = next_positions(ids, n_old, max_len, positions)
        x = self.dropout(self.positions(self.embedding(ids), positions))
        rotate = self.positions.rotation(positions)
        bias = self.positions.bias(ids.size(1), n_old + ids.size(1))
        seen: Any = {"mask": mask, "rotate": rotate, "bias": bias}
        for i, block in enumerate(self.blocks):
            layer_cache = cache[i] if cache else None
            x = block(x, **seen, causal=True, cache=layer_cache)
        return x

    def logits(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B V"]:
        """Read the next token's logits off the residual stream.

        Args:
            x: (..., D) as :meth:`hidden` returns it.

        Returns:
            (..., V).
        """
        x = self.final_norm(x)
        if self.head is None:
            return self.embedding.unembed(x)
        return self.head(x)


def make_attention(
    config: StackConfig, attend: Attend = fast_attend
) -> MultiHeadAttention:
    """Build multi-head attention as the configuration says."""
    bias = config.bias
    if config.attention_bias is not None:
        bias = config.attention_bias
    return MultiHeadAttention(
        config.d_model,
        config.n_heads,
        config.n_kv_heads,
        config.head_size,
        config.d_value,
        bias,
        config.dropout,
        attend,
    )


def make_network(config: StackConfig) -> nn.Module:
    """Build the feed-forward network as the configuration says."""
    return make_feed_forward(
        config.activation,
        config.d_model,
        config.ff_size,
        config.bias,
        config.dropout,
    )


def make_residual(config: StackConfig) -> Residual:
    """Build the path around a sub-layer as the configuration says."""
    return Residual(
        make_stack_norm(config),
        config.norm_first,
        config.dropout,
        config.residual,
    )


def make_stack_norm(
    config: StackConfig,
    wanted: bool = True,
) -> nn.Module:
    """Build a norm of the stack's kind, or the identity if not wanted."""
    kind = config.norm if wanted else "none"
    return make_norm(kind, config.d_model, config.norm_eps, config.bias)


def make_scheme(config: StackConfig) -> Positions:
    """Build the positions as the configuration says."""
    return make_positions(
        config.positions,
        config.max_len,
        config.d_model,
        config.n_heads,
        config.head_size,
        config.position_layout,
        config.rope_base,
    )


def next_positions(
    ids: Int[Tensor, "B T"],
    n_old: int,
    max_len: int,
    positions: Int[Tensor, "..."] | None = None,
) -> Int[Tensor, "..."]:
    """Where new tokens stand: after the old ones, unless told otherwise.

    Args:
        ids: (B, T) new tokens.
        n_old: how many tokens a cache holds already.
        max_len: most tokens in all.
        positions: (T,) or (B, T), only checked; by default n_old to
            n_old + T − 1.

    Returns:
        (T,) or (B, T) positions.

    Raises:
        ValueError: if ids, length or positions are not what a model takes.
    """
    check_batch(ids)
    n_all = n_old + ids.size(1)
    check_length(n_all, max_len)
    if positions is None:
        return torch.arange(n_old, n_all, device=ids.device)
    check_positions(positions, ids, max_len)
    return positions


def check_length(length: int, max_len: int) -> None:
    """Refuse a sequence that the model has no positions for.

    Raises:
        ValueError: if ``length`` exceeds ``max_len``.
    """
    if length > max_len:
        raise ValueError(
            f"a sequence may have at most max_len={max_len} tokens: got "
            f"{length}. Keep the last {max_len}, or build the model with a "
            "larger max_len."
        )


def initialize(
    model: nn.Module,
    config: StackConfig,
    n_residual: int,
) -> None:
    """Draw the weights: small, so that an untrained model is unsure.

    Matrices get N(0, weight_std²); those that write to the residual stream are
    divided by √n_residual, so that the sum of all writes has the same scale
    at any depth.  Tokens that are scaled by √D get N(0, 1/D) instead.

    Args:
        model: a model made of this package's modules.
        config: where ``weight_std`` and ``scale_embedding`` stand.
        n_residual: how many sub-layers write to the residual stream.

    Source: radford2019language, section 2.3.
    """
    scaled = config.scale_embedding
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            std = config.weight_std
            if name.endswith(("w_o", "w_out")):
                std /= n_residual**0.5
            nn.init.normal_(module.weight, std=std)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, TokenEmbedding) and not scaled:
            nn.init.normal_(module.weight, std=config.weight_std)
