"""Scaled dot-product attention: a readable function and a fast one.

Both have the same signature and, for finite inputs and without dropout, the
same values and gradients.  A module takes either:
``MultiHeadAttention(..., attend=attend)``.
"""

import math
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from coursekit.checks import check_attention, check_bias
from coursekit.dropout import fast_dropout
from coursekit.masks import causal_mask, combine_masks


@runtime_checkable
class Attend(Protocol):
    """The signature that :func:`attend` and :func:`fast_attend` share."""

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        dropout_p: float = 0.0,
        bias: Tensor | None = None,
    ) -> Tensor:
        """Attend from queries to keys; return the mixed values."""
        ...


def attention_weights(
    q: Float[Tensor, "... T Dh"],
    k: Float[Tensor, "... S Dh"],
    mask: Tensor | None = None,
    causal: bool = False,
    bias: Float[Tensor, "..."] | None = None,
) -> Float[Tensor, "... T S"]:
    """Softmax of the scaled scores: the share each query takes of each key.

    ``softmax(q kᵀ / √Dh)``, over the keys.

    Args:
        q: (..., T, Dh) queries.
        k: (..., S, Dh) keys; with fewer heads than ``q``, each is shared by
            a group of query heads.
        mask: booleans that broadcast to (..., T, S), True = may attend.
        causal: query i sees key j only if j ≤ i + (S − T).
        bias: numbers added to the scores, broadcast to (..., T, S).

    Returns:
        (..., T, S) weights.  A row sums to 1, or is all 0 if the query may
        attend to nothing.

    Raises:
        ValueError: if shapes do not fit, the mask is not boolean, or the
            bias is.

    Chapter: 4, attention.
    Source: vaswani2017attention, equation 1.
    Test: test_attention.py::test_weights_are_shares
    """
    check_attention(q, k, k, mask)
    return _weights(q, k, mask, causal, bias)


def _weights(
    q: Tensor,
    k: Tensor,
    mask: Tensor | None,
    causal: bool,
    bias: Tensor | None,
) -> Tensor:
    scores = q @ share_heads(k, q).mT / math.sqrt(q.size(-1))
    if bias is not None:
        check_bias(bias, q, k)
        scores = scores + bias.to(scores.dtype)
    if causal:
        earlier = causal_mask(q.size(-2), k.size(-2), q.device)
        mask = combine_masks(mask, earlier)
    if mask is None:
        return scores.softmax(dim=-1)
    # The smallest finite number, not -inf: a row of -inf is NaN. What a
    # query may not see is then set to 0, which empties empty rows too.
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return scores.softmax(dim=-1).masked_fill(~mask, 0.0)


def attend(
    q: Float[Tensor, "... T Dh"],
    k: Float[Tensor, "... S Dh"],
    v: Float[Tensor, "... S Dv"],
    mask: Tensor | None = None,
    causal: bool = False,
    dropout_p: float = 0.0,
    bias: Float[Tensor, "..."] | None = None,
) -> Float[Tensor, "... T Dv"]:
    """Mix the values, weighted by how well their keys fit the query.

    ``softmax(q kᵀ / √Dh) v``.

    Args:
        q: (..., T, Dh) queries.
        k: (..., S, Dh) keys; with fewer heads than ``q``, each is shared by
            a group of query heads.
        v: (..., S, Dv) values.
        mask: booleans that broadcast to (..., T, S), True = may attend.
        causal: query i sees key j only if j ≤ i + (S − T).
        dropout_p: share of weights zeroed, 0..1; pass 0 outside training.
        bias: numbers added to the scores, broadcast to (..., T, S).

    Returns:
        (..., T, Dv) outputs.  A query that may attend to nothing gets zeros,
        in value and gradient.

    Raises:
        ValueError: if shapes do not fit, the mask is not boolean, or the
            bias is.

    Differs from the paper: dropout on the weights, as in most code since; a
        query that may attend to nothing gets zeros.
    Chapter: 4, attention.
    Source: vaswani2017attention, equation 1 and Figure 2, left.
    Test: test_attention.py::test_equal_to_torch
    """
    check_attention(q, k, v, mask, dropout_p)
    weights = _weights(q, k, mask, causal, bias)
    return F.dropout(weights, dropout_p) @ share_heads(v, q)


def fast_attend(
    q: Float[Tensor, "... T Dh"],
    k: Float[Tensor, "... S Dh"],
    v: Float[Tensor, "... S Dv"],
    mask: Tensor | None = None,
    causal: bool = False,
    dropout_p: float = 0.0,
    bias: Float[Tensor, "..."] | None = None,
) -> Float[Tensor, "... T Dv"]:
    """:func:`attend` in one fused call, or in two products where quicker.

    Takes, returns and raises what :func:`attend` does, for finite inputs.
    On a CPU the backward pass of PyTorch's kernel is slow in bfloat16, five
    times slower at 64 positions, and with dropout it is not fused at all.

    With NaN or infinity the values may differ.  On a CPU a query with NaN
    gets zeros, where :func:`attend` gives NaN, if the keys are fewer than
    fit into a vector register (16 in float32 and 8 in float64 with AVX-512,
    half as many without it); and NaN in a masked key makes outputs NaN that
    :func:`attend` keeps finite.  A finite output therefore does not prove
    that the weights are finite; they are checked when a model is saved,
    loaded or evaluated, and before it generates.

    Chapter: 4, attention.
    Source: dao2022flashattention, by PyTorch's
        ``scaled_dot_product_attention``.
    Test: test_attention.py::test_nan_is_shown_by_the_readable_function
    """
    check_attention(q, k, v, mask, dropout_p)
    is_plain = mask is None and bias is None
    if is_plain and is_quicker_in_products(q, k, dropout_p):
        return _in_products(q, k, v, causal, dropout_p)
    n_queries, n_keys = q.size(-2), k.size(-2)
    # `is_causal` aligns its mask top left: it is ours only for T = S. A
    # single query is the last position and sees every key.
    is_square = is_plain and n_queries == n_keys
    if causal and not is_square and not 1 == n_queries <= n_keys:
        earlier = causal_mask(n_queries, n_keys, q.device)
        mask = combine_masks(mask, earlier)
    if bias is not None:
        check_bias(bias, q, k)
        bias = bias.to(q.dtype)
        if mask is not None:
            bias = bias.masked_fill(~mask, -math.inf)
    added = mask if bias is None else bias
    return F.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=added if added is None else torch.atleast_2d(added),
        dropout_p=dropout_p,
        is_causal=causal and is_square,
        enable_gqa=q.dim() > 2 and q.size(-3) != k.size(-3),
    )


LONGEST_PRODUCTS = 512  # positions


def is_quicker_in_products(q: Tensor, k: Tensor, dropout_p: float) -> bool:
    """True if two matrix products beat PyTorch's fused call, as measured."""
    is_slow = q.dtype == torch.bfloat16 and q.requires_grad
    return (
        (is_slow or dropout_p > 0)
        and q.device.type == "cpu"
        and q.dim() == 4
        and q.shape[:2] == k.shape[:2]
        and max(q.size(-2), k.size(-2)) <= LONGEST_PRODUCTS
    )


def _in_products(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, dropout_p: float
) -> Tensor:
    added = q.new_zeros(q.size(-2), k.size(-2))
    if causal:
        earlier = causal_mask(q.size(-2), k.size(-2), q.device)
        added.masked_fill_(~earlier, -math.inf)
    rows, scale = q.shape[:2], 1 / math.sqrt(q.size(-1))
    q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    # Autocast would carry the scores to float32 and back.
    with torch.autocast(q.device.type, enabled=False):
        scores = torch.baddbmm(added, q, k.mT, alpha=scale)
        weights = fast_dropout(scores.softmax(dim=-1), dropout_p)
        return (weights @ v).unflatten(0, rows)


def share_heads(
    x: Float[Tensor, "... S Dh"], q: Float[Tensor, "... T Dq"]
) -> Float[Tensor, "... S Dh"]:
    """Repeat each key/value head for the query heads that share it.

    Args:
        x: (B, G, S, Dh) keys or values.
        q: (B, H, T, Dq) queries; H is a multiple of G.

    Returns:
        (B, H, S, Dh); head h of the result is head h // (H/G) of ``x``.

    Chapter: 15, modern.
    Source: ainslie2023gqa.
    """
    if q.dim() < 3 or q.size(-3) == x.size(-3):
        return x
    return x.repeat_interleave(q.size(-3) // x.size(-3), dim=-3)
