"""A model laid out for writing: the same numbers, sooner.

A step that writes one token is little to compute and much to fetch: every
weight is read once.  So each matrix lies as its product reads it, those that
read the same vector lie together, and what only training needs is left out.
"""

import copy
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from coursekit.attention import Attend, fast_attend
from coursekit.decoder import GPT
from coursekit.feedforward import FeedForward, SwiGLU
from coursekit.multihead import MultiHeadAttention, merge_heads, split_heads
from coursekit.norm import LayerNorm, Residual
from coursekit.seq2seq import CrossBlock, Transformer

__all__ = ["pack", "packed_linear"]

Map = Callable[[Tensor], Tensor]
Model = TypeVar("Model", GPT, Transformer)


def pack(model: Model, n_rows: int = 1) -> Model:
    """A twin of a model that writes sooner, and cannot be trained.

    The twin shares the model's tables and norms, and has copies of its
    matrices: twice the memory, and what training changes later is not seen.

    Args:
        model: on its device, in its dtype; left as it is.
        n_rows: rows of a step, texts times beams.  Others work, slower.

    Returns:
        What :class:`coursekit.cache.CachedStepper` or
        :class:`coursekit.cache.CachedTranslator` takes.

    Chapter: 12, generation.
    Test: tests/test_packed.py::test_the_same_logits
    """
    twin = copy.copy(model)
    own = model._modules
    twin._modules = {k: own[k] for k in own if k not in ("blocks", "head")}
    head = model.embedding if model.head is None else model.head
    with torch.no_grad():
        # In place of modules: plain functions, with nothing around them.
        vars(twin)["blocks"] = [_block(b, n_rows) for b in model.blocks]
        vars(twin)["head"] = _head(n_rows, head)
    return twin


def packed_linear(n_rows: int, *layers: Any) -> Map:
    """Linear layers that read the same vector, as one product.

    Args:
        n_rows: vectors at a time.
        layers: each with a ``weight`` (out, in), and perhaps a ``bias``.

    Returns:
        A function from (rows, in) to (rows, all outputs side by side).
    """
    weight = torch.cat([layer.weight.detach() for layer in layers])
    biases: Any = [getattr(layer, "bias", None) for layer in layers]
    bias = None if biases[0] is None else torch.cat(biases).detach()
    is_known = weight.device.type == "cpu" and weight.dtype == torch.float32
    # One vector: the product runs along the rows of the transpose. Several:
    # MKL's own order, which other products would make anew each time.
    if n_rows > 1 and is_known and torch.backends.mkl.is_available():
        ordered = torch.ops.mkl._mkl_reorder_linear_weight(weight, n_rows)
        product = torch.ops.mkl._mkl_linear

        def in_order(x: Tensor) -> Tensor:
            # MKL's product knows no autocast.
            if x.size(0) != n_rows or torch.is_autocast_enabled("cpu"):
                return F.linear(x, weight, bias)
            y: Tensor = product(x, ordered, weight, bias, n_rows)
            return y

        return in_order

    across = weight.t().contiguous()
    if bias is None:
        return lambda x: x @ across
    return lambda x: torch.addmm(bias, x, across)


def _head(n_rows: int, head: Any) -> Map:
    multiply = packed_linear(n_rows, head)

    def run(x: Tensor) -> Tensor:
        return multiply(x.flatten(0, -2)).view(*x.shape[:-1], -1)

    return run


def _block(block: Any, n_rows: int) -> Callable[..., Tensor]:
    """A block as a function that is called as the block is.

    Inside, vectors are the rows of a matrix, whatever text they are of.
    """
    attend = _attention(block.attention, n_rows)
    around_attention = _residual(block.around_attention)
    feed_forward = _feed_forward(block, n_rows)

    def run(
        x: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        rotate: Map | None = None,
        bias: Tensor | None = None,
        cache: Any = None,
    ) -> Tensor:
        n_texts, y = x.size(0), x.flatten(0, 1)
        how = mask, causal, rotate, bias, cache
        y = around_attention(y, attend, n_texts, *how)
        return feed_forward(y).view(x.shape)

    if not isinstance(block, CrossBlock):
        return run
    look = _cross_attention(block.cross_attention, n_rows)
    around_look = _residual(block.around_cross_attention)

    def run_crossed(
        x: Tensor,
        memory: Tensor,
        memory_mask: Tensor | None = None,
        mask: Tensor | None = None,
        rotate: Map | None = None,
        bias: Tensor | None = None,
        cache: Any = None,
    ) -> Tensor:
        n_texts, y = x.size(0), x.flatten(0, 1)
        how = mask, True, rotate, bias, cache
        y = around_attention(y, attend, n_texts, *how)
        y = around_look(y, look, n_texts, memory, memory_mask, cache)
        return feed_forward(y).view(x.shape)

    return run_crossed


def _feed_forward(block: Any, n_rows: int) -> Map:
    if block.feed_forward is None:
        return lambda x: x
    around = _residual(block.around_feed_forward)
    network = _network(block.feed_forward, n_rows)
    return lambda x: around(x, network)


def _residual(path: Residual) -> Callable[..., Tensor]:
    norm, norm_first = _norm(path.norm), path.norm_first
    residual = path.residual

    def run(x: Tensor, sublayer: Callable[..., Tensor], *how: Any) -> Tensor:
        y = sublayer(norm(x) if norm_first else x, *how)
        y = x + y if residual else y
        return y if norm_first else norm(y)

    return run


def _norm(norm: Any) -> Map:
    if type(norm) is not LayerNorm:
        call: Map = norm.forward
        return call
    how = norm.weight.shape, norm.weight.detach(), norm.bias, norm.eps
    return lambda x: torch.layer_norm(x, *how)


def _attention(
    attention: MultiHeadAttention, n_rows: int
) -> Callable[..., Tensor]:
    readers = attention.w_q, attention.w_k, attention.w_v
    n_heads, n_kv_heads = attention.n_heads, attention.n_kv_heads
    d_head = attention.w_k.out_features // n_kv_heads
    if attention.w_v.out_features != attention.w_k.out_features:
        return _as_it_is(attention)
    project = packed_linear(n_rows, *readers)
    mix = packed_linear(n_rows, attention.w_o)
    attend = _quick(attention)
    # Side by side as well: the heads of queries, of keys, of values.
    n_all, parts = n_heads + 2 * n_kv_heads, (n_heads, *2 * (n_kv_heads,))

    def run(
        x: Tensor,
        n_texts: int,
        mask: Tensor | None,
        causal: bool,
        rotate: Map | None,
        bias: Tensor | None,
        cache: Any,
    ) -> Tensor:
        heads = project(x).view(n_texts, -1, n_all, d_head).transpose(1, 2)
        q, k, v = heads.split_with_sizes(parts, 1)
        if rotate is not None:
            q, k = rotate(q), rotate(k)
        if cache is not None:
            k, v = cache.update(k, v)
        found = attend(q, k, v, mask, causal, 0.0, bias)
        return mix(merge_heads(found).flatten(0, 1))

    return run


def _as_it_is(attention: MultiHeadAttention) -> Callable[..., Tensor]:
    """For values of another size than the keys."""

    def run(x: Tensor, n_texts: int, *how: Any) -> Tensor:
        y: Tensor = attention(x.unflatten(0, (n_texts, -1)), None, *how)
        return y.flatten(0, 1)

    return run


def _quick(attention: MultiHeadAttention) -> Attend:
    """Attention that does not look at shapes which are right."""
    attend = attention.attend
    if attend is not fast_attend:
        return attend
    shared = attention.n_heads != attention.n_kv_heads

    def run(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        dropout_p: float = 0.0,
        bias: Tensor | None = None,
    ) -> Tensor:
        if q.size(2) > 1 or bias is not None:
            return attend(q, k, v, mask, causal, dropout_p, bias)
        return F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=shared)

    return run


def _cross_attention(
    cross: MultiHeadAttention, n_rows: int
) -> Callable[..., Tensor]:
    project = packed_linear(n_rows, cross.w_q)
    mix = packed_linear(n_rows, cross.w_o)
    attend, n_heads = _quick(cross), cross.n_heads

    def run(
        x: Tensor,
        n_texts: int,
        memory: Tensor,
        mask: Tensor | None,
        cache: Any,
    ) -> Tensor:
        known = None if cache is None else cache.memory
        if known is None:
            known = cross.keys_values(memory)
        if cache is not None:
            cache.memory = known
        q = project(x)
        q = split_heads(q.view(n_texts, -1, q.size(1)), n_heads)
        return mix(merge_heads(attend(q, *known, mask)).flatten(0, 1))

    return run


def _network(network: nn.Module, n_rows: int) -> Map:
    if type(network) is FeedForward:
        w_in = packed_linear(n_rows, network.w_in)
        w_out = packed_linear(n_rows, network.w_out)
        bend = network.activation
        return lambda x: w_out(bend(w_in(x)))
    if type(network) is SwiGLU:
        both = packed_linear(n_rows, network.w_gate, network.w_in)
        out = packed_linear(n_rows, network.w_out)

        def run(x: Tensor) -> Tensor:
            gate, inner = both(x).chunk(2, dim=-1)
            return out(F.silu(gate) * inner)

        return run
    return network  # experts, say: as they are
