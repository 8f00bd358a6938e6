"""A copy of a model for generation: the same logits up to rounding, sooner.

A step that generates one token is little to compute and much to fetch: every
weight is read once.  So each matrix lies as its product reads it, those that
read the same vector lie together, and what only training needs is left out.
"""

import copy
from collections.abc import Callable, Sequence
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from coursekit.attention import fast_attend
from coursekit.checks import check_integers, check_scores
from coursekit.decoder import GPT
from coursekit.devices import evaluating
from coursekit.feedforward import FeedForward, SwiGLU
from coursekit.multihead import MultiHeadAttention
from coursekit.seq2seq import CrossBlock, Transformer


def packed_linear(n_rows: int, *layers: Any) -> Callable[..., Tensor]:
    """Linear layers that read the same vector, as one product.

    Args:
        n_rows: vectors at a time.
        layers: each with a ``weight`` (out, in), and perhaps a ``bias``.

    Returns:
        A function from (rows, in) to (rows, all outputs side by side); given
        a second tensor of that shape, it adds them to that one, in place.
    """
    weight = torch.cat([layer.weight.detach() for layer in layers])
    biases: Any = [getattr(layer, "bias", None) for layer in layers]
    bias = None if biases[0] is None else torch.cat(biases).detach()
    is_known = weight.device.type == "cpu" and weight.dtype == torch.float32
    if n_rows > 1 and is_known and torch.backends.mkl.is_available():
        return _several(weight, bias, n_rows)
    return _single(weight.t().contiguous(), bias)


def _several(
    weight: Tensor, bias: Tensor | None, n_rows: int
) -> Callable[..., Tensor]:
    """In MKL's own order, which other products would make again each time."""
    ordered = torch.ops.mkl._mkl_reorder_linear_weight(weight, n_rows)
    product = torch.ops.mkl._mkl_linear

    def in_order(x: Tensor, onto: Tensor | None = None) -> Tensor:
        # MKL's product knows no autocast.
        if x.size(0) != n_rows or torch.is_autocast_enabled("cpu"):
            y = F.linear(x, weight, bias)
        else:
            y = product(x, ordered, weight, bias, n_rows)
        return y if onto is None else onto.add_(y)

    return in_order


def _single(across: Tensor, bias: Tensor | None) -> Callable[..., Tensor]:
    """One vector runs along the rows of the transposed matrix."""

    def along(x: Tensor, onto: Tensor | None = None) -> Tensor:
        if onto is None or onto.dtype is not x.dtype:
            y = x @ across if bias is None else torch.addmm(bias, x, across)
            return y if onto is None else onto.add_(y)
        # A product can be added to what is there, as well as to zeros.
        onto.addmm_(x, across)
        return onto if bias is None else onto.add_(bias)

    return along


Map = Callable[[Tensor], Tensor]
Model = TypeVar("Model", GPT, Transformer)


def pack(model: Model, n_rows: int = 1) -> Model:
    """A copy of a model that generates sooner, and cannot be trained.

    One new token a text takes the short way; more at once, as in a prompt,
    go through the model's own blocks; so does all where a module has a hook
    or is of another kind.  The copy has matrices of its own: twice the
    memory, and after more training it must be made again.  In float32 its
    logits differ from the model's by less than 1e-5 of the largest one.

    Args:
        model: on its device, in its dtype; left as it is.
        n_rows: rows of a step, texts times beams.  Others work, slower.

    Returns:
        What :class:`coursekit.steppers.GPTStepper` or
        :class:`coursekit.steppers.Seq2SeqStepper` takes, a
        :class:`Packed` model.  It raises a ValueError at the next prompt if
        the model's weights have changed.

    Raises:
        ValueError: if it is not a GPT or a Transformer, or packed already, or
            a weight of its attention is not finite.

    Chapter: 12, generation.
    Test: test_packed.py::test_the_same_logits
    """
    if isinstance(model, Packed) or not isinstance(model, GPT | Transformer):
        raise ValueError(
            "pack takes a GPT or a Transformer as it was built: got "
            f"{type(model).__name__}. Give the model itself, not its packed "
            "or compiled form."
        )
    check_integers(n_rows=n_rows)
    check_scores(model)
    packed = copy.copy(model)
    kind: Any = type(model)
    packed.__class__ = _packed_kind(kind)
    packed._modules = dict(model._modules)
    del packed.blocks, packed.head
    head = model.embedding if model.head is None else model.head
    does_more = _does_more(model)
    with torch.no_grad():
        # In place of modules: plain functions, with nothing around them.
        prepare = _as_it_is if does_more else partial(_block, n_rows)
        blocks = [prepare(block) for block in model.blocks]
        blocks[-1:] = [_as_texts(last) for last in blocks[-1:]]
        if head is model.embedding or not does_more:
            prepare = partial(_head, n_rows)
        vars(packed).update(blocks=blocks, head=prepare(head))
    vars(packed)["check_source"] = _unchanged(list(model.parameters()))
    return packed


class Packed(nn.Module):
    """A copy of a model that only generates.

    Chapter: 12, generation.
    """

    check_source: Callable[[], None]
    """Refuses to go on from a model that was trained meanwhile."""

    def train(self, mode: bool = True) -> Any:
        """Refuse to be trained.

        Raises:
            ValueError: if ``mode`` is True.
        """
        return _refuse("train") if mode else self

    def state_dict(self, *_: Any, **__: Any) -> Any:
        """Refuse to be saved: most weights are no parameters of the copy.

        Raises:
            ValueError: always.
        """
        _refuse("save")

    def _apply(self, *_: Any, **__: Any) -> Any:
        _refuse("move")


class _PackedGPT(Packed):
    """Looks at each prompt whether the model has changed."""

    def hidden(
        self,
        ids: Tensor,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        cache: Sequence[Any] | None = None,
    ) -> Tensor:
        if ids.size(1) > 1 or not cache or not cache[0].length:
            self.check_source()
        model: Any = super()
        return model.hidden(ids, positions, mask, cache)


class _PackedTransformer(Packed):
    """Looks at each source whether the model has changed."""

    def encode(self, *inputs: Any, **named: Any) -> Tensor:
        self.check_source()
        model: Any = super()
        return model.encode(*inputs, **named)


@cache
def _packed_kind(kind: Any) -> Any:
    """A model's class, packed."""
    packed = _PackedGPT if issubclass(kind, GPT) else _PackedTransformer
    return type(f"Packed{kind.__name__}", (packed, kind), {})


def _refuse(wish: str) -> Any:
    raise ValueError(
        f"a packed model only generates: got a request to {wish} it. Do that "
        "with the model itself, then call pack(model) again."
    )


def _unchanged(weights: list[Tensor]) -> Callable[[], None]:
    """A check that these tensors are as they are now.

    A function, since ``copy.deepcopy`` copies none: a copy of the packed
    model watches the weights that it came from, and not copies of them.
    """
    before = _marks(weights)

    def check() -> None:
        if _marks(weights) != before:
            raise ValueError(
                "a packed model is a copy: got a model whose weights have "
                "changed since pack(model). Call pack(model) again."
            )

    return check


def _marks(weights: list[Tensor]) -> list[tuple[int, str]]:
    """PyTorch's count of a weight's changes, and its first number.

    The number is text, since NaN is not equal to itself.  Fused optimizers do
    not count; in inference mode nothing does.
    """
    return [
        (0 if w.is_inference() else w._version, str(w.flatten()[0].item()))
        for w in weights
    ]


def _head(n_rows: int, head: Any) -> Map:
    multiply = packed_linear(n_rows, head)

    def run(x: Tensor) -> Tensor:
        return multiply(x.flatten(0, -2)).view(*x.shape[:-1], -1)

    return run


def _block(n_rows: int, block: Any) -> Callable[..., Tensor]:
    """A block with a short way for one new token a text.

    There the texts' vectors are the rows of a matrix, from the first block
    to the last, and each sublayer adds to them: nobody else needs them.
    """
    whole = _as_it_is(block)
    attention = block.attention
    if attention.w_k.out_features != attention.w_v.out_features:
        return whole
    attend = _attention(attention, n_rows)
    sublayers = [_residual(block, block.attention_norm, attend)]
    if isinstance(block, CrossBlock):
        attend = _cross_attention(block, n_rows)
        norm = block.cross_attention_norm
        sublayers.append(_residual(block, norm, attend))
    feed_forward = _feed_forward(block, n_rows)

    def run(x: Tensor, **options: Any) -> Tensor:
        if x.dim() == 3 and x.size(1) > 1:
            return whole(x, **options)
        x = x.flatten(0, -2)
        for sublayer in sublayers:
            x = sublayer(x, options)
        return feed_forward(x)

    return run


def _as_texts(last: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The last block; each row becomes a text of one token again."""

    def run(*inputs: Any, **named: Any) -> Tensor:
        x = last(*inputs, **named)
        return x.unsqueeze(1) if x.dim() == 2 else x

    return run


def _as_it_is(block: nn.Module) -> Callable[..., Tensor]:
    """A block in evaluation mode: it is no module of the copy."""
    modules = list(block.modules())

    def run(*inputs: Any, **named: Any) -> Tensor:
        with evaluating(modules):
            return block(*inputs, **named)

    return run


def _does_more(model: nn.Module) -> bool:
    """True if a module has a hook or wraps another layer."""
    parts = list(model.named_modules())
    hooks = [
        part._forward_hooks or part._forward_pre_hooks for _, part in parts
    ]
    layers = [p for name, p in parts if ".w_" in name or name == "head"]
    return any(hooks) or any(type(layer) is not nn.Linear for layer in layers)


def _residual(
    block: Any, own: nn.Module, sublayer: Callable[..., Tensor]
) -> Callable[..., Tensor]:
    norm, norm_first = _norm(own), block.norm_first
    residual = block.residual

    def run(x: Tensor, *options: Any) -> Tensor:
        onto = x if residual else None
        y = sublayer(norm(x) if norm_first else x, onto, *options)
        return y if norm_first else norm(y)

    return run


def _norm(norm: Any) -> Map:
    if type(norm) is not nn.LayerNorm:
        return norm.forward
    arguments = norm.weight.shape, norm.weight.detach(), norm.bias, norm.eps
    return lambda x: torch.layer_norm(x, *arguments)


def _attention(
    attention: MultiHeadAttention, n_rows: int
) -> Callable[..., Tensor]:
    readers = attention.w_q, attention.w_k, attention.w_v
    project = packed_linear(n_rows, *readers)
    mix = packed_linear(n_rows, attention.w_o)
    attend = _attend(attention)
    # Side by side as well: the heads of queries, of keys, of values.
    parts = attention.n_heads, attention.n_kv_heads, attention.n_kv_heads
    shape = -1, sum(parts), 1, attention.w_k.out_features // parts[1]
    flat = -1, attention.w_o.in_features

    def run(x: Tensor, onto: Tensor | None, options: dict[str, Any]) -> Tensor:
        q, k, v = project(x).view(shape).split_with_sizes(parts, 1)
        rotate, bias = options["rotate"], options["bias"]
        cache = options["cache"]
        if rotate is not None:
            q, k = rotate(q), rotate(k)
        if cache is not None:
            k, v = cache.update(k, v)
        if bias is None:
            heads = attend(q, k, v, options["mask"])
        else:
            heads = attention.attend(q, k, v, mask=options["mask"], bias=bias)
        return mix(heads.reshape(flat), onto)

    return run


def _attend(attention: MultiHeadAttention) -> Callable[..., Tensor]:
    """Attention of the newest token, which may see all: no causal mask.

    What `fast_attend` calls is called past its checks of shapes.
    """
    if attention.attend is not fast_attend:
        own = attention.attend
        return lambda q, k, v, mask: own(q, k, v, mask=mask)
    if attention.n_heads == attention.n_kv_heads:
        return F.scaled_dot_product_attention
    return partial(F.scaled_dot_product_attention, enable_gqa=True)


def _cross_attention(block: CrossBlock, n_rows: int) -> Callable[..., Tensor]:
    cross = block.cross_attention
    project = packed_linear(n_rows, cross.w_q)
    mix = packed_linear(n_rows, cross.w_o)
    attend, n_heads = _attend(cross), cross.n_heads
    d_head = cross.w_q.out_features // n_heads
    flat = -1, cross.w_o.in_features

    def run(x: Tensor, onto: Tensor | None, options: dict[str, Any]) -> Tensor:
        keys, values = block.remembered(options["memory"], options["cache"])
        # No causal mask here: the queries of all beams stand in one row.
        q = project(x).view(len(keys), -1, n_heads, d_head).transpose(1, 2)
        heads = attend(q, keys, values, options["memory_mask"]).transpose(1, 2)
        return mix(heads.reshape(flat), onto)

    return run


def _feed_forward(block: Any, n_rows: int) -> Map:
    if block.feed_forward is None:
        return lambda x: x
    network = _network(block.feed_forward, n_rows)
    return _residual(block, block.feed_forward_norm, network)


def _network(network: nn.Module, n_rows: int) -> Callable[..., Tensor]:
    if type(network) is FeedForward:
        exact = torch.finfo(network.w_in.weight.dtype).bits >= 32
        if network.activation is F.gelu and exact:
            return _gelu_network(network, n_rows)
        w_in = packed_linear(n_rows, network.w_in)
        w_out = packed_linear(n_rows, network.w_out)
        bend = network.activation
        if bend is F.relu:
            bend = torch.relu_  # what it bends is nobody else's
        return lambda x, onto: w_out(bend(w_in(x)), onto)
    if type(network) is SwiGLU:
        return _gated_network(network, n_rows)

    def as_it_is(x: Tensor, onto: Tensor | None) -> Tensor:
        y: Tensor = network(x)  # experts, say
        return y if onto is None else onto.add_(y)

    return as_it_is


def _gated_network(network: SwiGLU, n_rows: int) -> Callable[..., Tensor]:
    both = packed_linear(n_rows, network.w_gate, network.w_in)
    out = packed_linear(n_rows, network.w_out)

    def run(x: Tensor, onto: Tensor | None) -> Tensor:
        gate, inner = both(x).chunk(2, dim=-1)
        return out(F.silu(gate) * inner, onto)

    return run


def _gelu_network(network: FeedForward, n_rows: int) -> Callable[..., Tensor]:
    """GELU with its constants in the matrices before and after it.

    ``x (1 + erf(x/√2)) / 2 = z (1 + erf z) / √2`` for ``z = x/√2``: two
    short passes, each much shorter than the call that does both.  That call
    rounds once: in half precision it is the better one.
    """
    w_in, w_out, part = network.w_in, network.w_out, 0.5**0.5
    bias = None if w_in.bias is None else part * w_in.bias
    before = SimpleNamespace(weight=part * w_in.weight, bias=bias)
    after = SimpleNamespace(weight=part * w_out.weight, bias=w_out.bias)
    widen = packed_linear(n_rows, before)
    narrow = packed_linear(n_rows, after)

    def run(x: Tensor, onto: Tensor | None) -> Tensor:
        z = widen(x)
        return narrow(torch.addcmul(z, z, z.erf()), onto)

    return run
