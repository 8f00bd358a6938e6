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

from coursekit.decoder import GPT
from coursekit.feedforward import FeedForward, SwiGLU
from coursekit.multihead import MultiHeadAttention, merge_heads, split_heads
from coursekit.norm import Residual
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
        vars(twin)["head"] = packed_linear(n_rows, head)
    return twin


def packed_linear(n_rows: int, *layers: Any) -> Map:
    """Linear layers that read the same vector, as one product.

    Args:
        n_rows: vectors at a time.
        layers: each with a ``weight`` (out, in), and perhaps a ``bias``.

    Returns:
        A function from (..., in) to all outputs side by side.
    """
    weight = torch.cat([layer.weight.detach() for layer in layers])
    biases: Any = [getattr(layer, "bias", None) for layer in layers]
    bias = None if biases[0] is None else torch.cat(biases).detach()
    n_out, n_in = weight.shape
    is_known = weight.device.type == "cpu" and weight.dtype == torch.float32
    # One vector: the product runs along the rows of the transpose. Several:
    # oneDNN's own order, which other products would make anew each time.
    if n_rows > 1 and is_known and torch.backends.mkldnn.is_available():
        ordered = torch.ops.mkldnn._reorder_linear_weight(weight, n_rows)
        product = torch.ops.mkldnn._linear_pointwise

        def in_order(x: Tensor) -> Tensor:
            if x.numel() != n_rows * n_in:
                return F.linear(x, weight, bias)
            y: Tensor = product(x, ordered, bias, "none", [], "")
            return y

        return in_order

    across = weight.t().contiguous()

    def multiply(x: Tensor) -> Tensor:
        rows = x.reshape(-1, n_in)
        y = rows @ across if bias is None else bias.addmm(rows, across)
        return y.view(*x.shape[:-1], n_out)

    return multiply


def _block(block: Any, n_rows: int) -> Callable[..., Tensor]:
    """A block as a function that is called as the block is."""
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
        x = around_attention(
            x, lambda y: attend(y, mask, causal, rotate, bias, cache)
        )
        return feed_forward(x)

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
        x = around_attention(
            x, lambda y: attend(y, mask, True, rotate, bias, cache)
        )
        x = around_look(x, lambda y: look(y, memory, memory_mask, cache))
        return feed_forward(x)

    return run_crossed


def _feed_forward(block: Any, n_rows: int) -> Map:
    if block.feed_forward is None:
        return lambda x: x
    around = _residual(block.around_feed_forward)
    network = _network(block.feed_forward, n_rows)
    return lambda x: around(x, network)


def _residual(path: Residual) -> Callable[[Tensor, Map], Tensor]:
    norm: Map = path.norm.forward
    norm_first, residual = path.norm_first, path.residual

    def run(x: Tensor, sublayer: Map) -> Tensor:
        y = sublayer(norm(x) if norm_first else x)
        y = x + y if residual else y
        return y if norm_first else norm(y)

    return run


def _attention(
    attention: MultiHeadAttention, n_rows: int
) -> Callable[..., Tensor]:
    readers = attention.w_q, attention.w_k, attention.w_v
    project = packed_linear(n_rows, *readers)
    mix = packed_linear(n_rows, attention.w_o)
    sizes = [reader.out_features for reader in readers]
    n_heads, n_kv_heads = attention.n_heads, attention.n_kv_heads

    def run(
        x: Tensor,
        mask: Tensor | None,
        causal: bool,
        rotate: Map | None,
        bias: Tensor | None,
        cache: Any,
    ) -> Tensor:
        q, k, v = project(x).split(sizes, dim=-1)
        q = split_heads(q, n_heads)
        k, v = split_heads(k, n_kv_heads), split_heads(v, n_kv_heads)
        if rotate is not None:
            q, k = rotate(q), rotate(k)
        if cache is not None:
            k, v = cache.update(k, v)
        heads = attention.attend(q, k, v, mask, causal, 0.0, bias)
        return mix(merge_heads(heads))

    return run


def _cross_attention(
    cross: MultiHeadAttention, n_rows: int
) -> Callable[..., Tensor]:
    project = packed_linear(n_rows, cross.w_q)
    mix = packed_linear(n_rows, cross.w_o)

    def run(
        y: Tensor, memory: Tensor, mask: Tensor | None, cache: Any
    ) -> Tensor:
        known = None if cache is None else cache.memory
        if known is None:
            known = cross.keys_values(memory)
        if cache is not None:
            cache.memory = known
        q = split_heads(project(y), cross.n_heads)
        return mix(merge_heads(cross.attend(q, *known, mask)))

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
