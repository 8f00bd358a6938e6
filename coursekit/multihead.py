"""Several attentions side by side: split, attend, merge."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

from coursekit.attention import Attend, fast_attend
from coursekit.checks import check_dropout, check_heads

KeysValues = tuple[Tensor, Tensor]
"""(B, G, S, Dh) keys and (B, G, S, Dv) values."""


@runtime_checkable
class KeyValueCache(Protocol):
    """Protocol of a cache: append new keys and values, return all of them."""

    @property
    def length(self) -> int:
        """Number of key positions filled so far."""
        ...

    def update(self, k: Tensor, v: Tensor) -> KeysValues:
        """Append (B, G, T, Dh) keys and values; return all so far."""
        ...


def split_heads(
    x: Float[Tensor, "B T HDh"], n_heads: int
) -> Float[Tensor, "B H T Dh"]:
    """Cut each vector into ``n_heads`` pieces, one a head.

    Args:
        x: (B, T, H·Dh).
        n_heads: H.

    Returns:
        (B, H, T, Dh).

    Raises:
        ValueError: if the last axis cannot be cut into H equal pieces.

    Chapter: 6, multi-head attention.
    """
    if n_heads < 1 or x.size(-1) % n_heads:
        raise ValueError(
            "the width must be divisible by the heads: got "
            f"{x.size(-1)} columns for {n_heads} heads. Choose a multiple."
        )
    return x.unflatten(-1, (n_heads, -1)).transpose(-3, -2)


def merge_heads(x: Float[Tensor, "B H T Dh"]) -> Float[Tensor, "B T HDh"]:
    """Concatenate the heads: the inverse of :func:`split_heads`.

    The transpose comes first: a bare ``view`` would mix positions.

    Args:
        x: (B, H, T, Dh).

    Returns:
        (B, T, H·Dh).

    Chapter: 6, multi-head attention.
    """
    return x.transpose(-3, -2).flatten(-2)


class MultiHeadAttention(nn.Module):
    """H attentions on H projections of the same vectors, mixed by W_O.

    ``MultiHead(x) = [head_1, …, head_H] W_O`` with
    ``head_h = attend(x W_Q^h, m W_K^h, m W_V^h)``, where the memory m is x
    itself (self-attention) or another sequence (cross-attention).

    Args:
        d_model: width of the input and the output, D.
        n_heads: query heads, H.
        n_kv_heads: key/value heads, G; default H. Each serves H/G queries.
        d_head: size of a query and a key, Dh; default D / H.
        d_value: size of a value; default Dh.
        bias: give the four projections a bias.
        dropout: share of attention weights zeroed in training.
        attend: the attention function.

    Differs from the paper: biases by default, as in PyTorch and GPT-2.
    Chapter: 6, multi-head attention.
    Source: vaswani2017attention, section 3.2.2 and Figure 2, right;
        ainslie2023gqa for G < H.
    Test: test_parity_torch.py::test_self_attention
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        n_kv_heads: int | None = None,
        d_head: int | None = None,
        d_value: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        attend: Attend = fast_attend,
    ) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        check_heads(d_model, n_heads, self.n_kv_heads, d_head)
        check_dropout(dropout)
        d_head = d_head or d_model // n_heads
        d_value = d_head if d_value is None else d_value
        self.w_q = nn.Linear(d_model, n_heads * d_head, bias)
        self.w_k = nn.Linear(d_model, self.n_kv_heads * d_head, bias)
        self.w_v = nn.Linear(d_model, self.n_kv_heads * d_value, bias)
        self.w_o = nn.Linear(n_heads * d_value, d_model, bias)
        self.dropout = dropout
        self.attend = attend

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        memory: Float[Tensor, "B S D"] | None = None,
        *,
        keys_values: KeysValues | None = None,
        mask: Tensor | None = None,
        causal: bool = False,
        rotate: Callable[[Tensor], Tensor] | None = None,
        bias: Tensor | None = None,
        cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Attend from ``x`` to ``memory``, or to ``x`` itself.

        Args:
            x: (B, T, D) where the queries come from.
            memory: (B, S, D) where keys and values come from; ``x`` if None.
            keys_values: in place of ``memory``: what the method made of it.
            mask: booleans, broadcast to (B, H, T, S), True = may attend.
            causal: query i sees key j only if j ≤ i + (S − T).
            rotate: turns queries and keys by their positions (RoPE).
            bias: numbers added to the scores (ALiBi).
            cache: keeps keys and values of earlier calls.

        Returns:
            (B, T, D).

        Raises:
            ValueError: if shapes do not fit.
        """
        q = split_heads(self.w_q(x), self.n_heads)
        if keys_values is None:
            keys_values = self.keys_values(x if memory is None else memory)
        k, v = keys_values
        if rotate is not None:
            q, k = rotate(q), rotate(k)
        if cache is not None:
            k, v = cache.update(k, v)
        dropout_p = self.dropout if self.training else 0.0
        heads = self.attend(
            q, k, v, mask=mask, causal=causal, dropout_p=dropout_p, bias=bias
        )
        return self.w_o(merge_heads(heads))

    def keys_values(
        self, memory: Float[Tensor, "B S D"]
    ) -> tuple[Float[Tensor, "B G S Dh"], Float[Tensor, "B G S Dv"]]:
        """Project a sequence to its keys and values.

        Args:
            memory: (B, S, D).

        Returns:
            (B, G, S, Dh) keys and (B, G, S, Dv) values.
        """
        k = split_heads(self.w_k(memory), self.n_kv_heads)
        v = split_heads(self.w_v(memory), self.n_kv_heads)
        return k, v
