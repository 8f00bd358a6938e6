"""The block: attention between positions, then a network at each of them."""

from collections.abc import Callable
from functools import partial

from jaxtyping import Float
from torch import Tensor, nn

from coursekit.attention import Attend, fast_attend
from coursekit.config import StackConfig
from coursekit.dropout import Dropout
from coursekit.embedding import ScaledEmbedding, TokenEmbedding
from coursekit.feedforward import NETWORKS
from coursekit.multihead import KeyValueCache, MultiHeadAttention
from coursekit.norm import NORMS


class Block(nn.Module):
    """Attention between positions, then a network at each of them.

    Two sums: ``x + attention(norm(x))``, then ``x + feed_forward(norm(x))``.
    That is pre-norm; post-norm is ``norm(x + attention(x))``, and so on.  The
    same block serves decoders (``causal=True``) and encoders.

    Args:
        config: widths, norm, activation, dropout.
        attend: the attention function.

    Differs from the paper: it has post-norm, here ``norm_first=False``. Most
        models since GPT-2 have pre-norm: a deep stack of it still trains at
        learning rates at which one of post-norm gets stuck.
    Chapter: 9, the decoder.
    Source: vaswani2017attention, sections 3.1 and 5.4; xiong2020layer.
    Test: test_parity_torch.py::test_encoder_layer
    """

    def __init__(
        self, config: StackConfig, attend: Attend = fast_attend
    ) -> None:
        super().__init__()
        self.norm_first = config.norm_first
        self.residual = config.residual
        self.dropout = Dropout(config.dropout)
        self.attention = make_attention(config, attend)
        self.attention_norm = make_norm(config)
        self.feed_forward: nn.Module | None = None
        if config.ff_size:
            self.feed_forward = make_network(config)
            self.feed_forward_norm = make_norm(config)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
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
        attend = partial(
            self.attention,
            mask=mask,
            causal=causal,
            rotate=rotate,
            bias=bias,
            cache=cache,
        )
        network = self.feed_forward
        if self.norm_first:
            y = attend(self.attention_norm(x))
            x = self.skip(x) + self.dropout(y)
            if network is not None:
                y = network(self.feed_forward_norm(x))
                x = self.skip(x) + self.dropout(y)
            return x
        x = self.attention_norm(self.skip(x) + self.dropout(attend(x)))
        if network is not None:
            x = self.skip(x) + self.dropout(network(x))
            x = self.feed_forward_norm(x)
        return x

    def skip(self, x: Tensor) -> Tensor | float:
        """The residual path: ``x``, or 0 in a model that has none."""
        return x if self.residual else 0.0


# -- parts, as a configuration says ------------------------------------------


def make_attention(config: StackConfig, attend: Attend) -> MultiHeadAttention:
    """Build multi-head attention."""
    bias = config.attention_bias
    return MultiHeadAttention(
        d_model=config.d_model,
        n_heads=config.n_heads,
        n_kv_heads=config.n_kv_heads,
        d_head=config.head_size,
        d_value=config.d_value,
        bias=config.bias if bias is None else bias,
        dropout=config.dropout,
        attend=attend,
    )


def make_network(config: StackConfig) -> nn.Module:
    """Build the feed-forward network."""
    return NETWORKS[config.activation](
        d_model=config.d_model,
        d_ff=config.ff_size,
        bias=config.bias,
        dropout=config.dropout,
    )


def make_norm(config: StackConfig, wanted: bool = True) -> nn.Module:
    """Build a norm, or the identity if none is wanted."""
    return NORMS[config.norm if wanted else "none"](config)


def make_embedding(config: StackConfig) -> TokenEmbedding:
    """Build the embedding."""
    kind = ScaledEmbedding if config.scale_embedding else TokenEmbedding
    return kind(config.vocab_size, config.d_model)


# -- weights -----------------------------------------------------------------


def initialize(model: nn.Module, config: StackConfig, n_residual: int) -> None:
    """Draw the weights: small, so that an untrained model is unsure.

    Matrices get N(0, weight_std²); those that write to the residual stream are
    divided by √n_residual, so that the sum of all writes has the same scale
    at any depth.  Tokens that are scaled by √D get N(0, 1/D) instead, and
    learned positions N(0, 0.02²).

    Args:
        model: a model made of this package's modules.
        config: where ``weight_std`` stands.
        n_residual: how many sub-layers write to the residual stream.

    Source: radford2019language, section 2.3.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            std = config.weight_std
            if name.endswith(("w_o", "w_out")):
                std /= n_residual**0.5
            nn.init.normal_(module.weight, std=std)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif type(module) is TokenEmbedding:
            nn.init.normal_(module.weight, std=config.weight_std)
