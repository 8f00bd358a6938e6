"""Costs of a model: parameters, FLOPs and bytes, counted from its modules.

And attention in blocks, whose table of weights never exists: less memory for
the same numbers, as :func:`coursekit.loss.chunked_cross_entropy` needs.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from coursekit.attention import share_heads
from coursekit.checks import check_attention, check_causal
from coursekit.config import EncoderConfig, GPTConfig, StackConfig
from coursekit.saved_models import MODELS, build_model, shapes_only

PARTS = {  # a parameter belongs to the first part whose word is in its name
    "norms": "norm",
    "attention": "attention",
    "network": "feed_forward",
    "positions": "positions",
    "tokens": "embedding",
    "head": "head",
}


# -- parameters --------------------------------------------------------------


def meta_model(config: StackConfig) -> nn.Module:
    """Build the model of a configuration without any memory for its weights.

    It lies on PyTorch's device "meta", where tensors have shapes and no
    numbers: it can be counted, and run on ids that lie there too.

    Args:
        config: of a model that :data:`coursekit.saved_models.MODELS` names.

    Returns:
        The model.

    Raises:
        ValueError: if the configuration belongs to none of the models.

    Chapter: 18, scaling.
    """
    names = {kind: name for name, (_, kind) in MODELS.items()}
    if type(config) not in names:
        raise ValueError(
            "a model on the meta device needs its configuration: got a "
            f"{type(config).__name__}. Use one of "
            f"{', '.join(kind.__name__ for kind in names)}."
        )
    fields = {"model": names[type(config)], "config": config.to_dict()}
    with shapes_only():
        return build_model(fields)


def count_parameters(model: nn.Module) -> dict[str, int]:
    """Count a model's parameters by part; what is shared counts once.

    Args:
        model: a GPT, an encoder, an encoder-decoder, or a piece of one.

    Returns:
        Numbers of ``tokens``, ``positions``, ``attention``, ``network``,
        ``norms`` and ``head``; biases belong to their part.

    Raises:
        ValueError: if a parameter belongs to no part.

    Chapter: 18, scaling.
    Test: test_scaling.py::test_parameters_by_hand
    """
    counts = dict.fromkeys(PARTS, 0)
    for name, parameter in model.named_parameters():
        part = next((p for p, word in PARTS.items() if word in name), None)
        if part is None:
            raise ValueError(
                "each parameter must belong to a part of a transformer: got "
                f"{name!r}. Count other modules with p.numel()."
            )
        counts[part] += parameter.numel()
    return counts


# -- FLOPs -------------------------------------------------------------------


def forward_flops(
    config: GPTConfig | EncoderConfig, length: int
) -> dict[str, int]:
    """Count the FLOPs of the matrix products of one forward pass.

    A multiplication and the addition that follows are two.  Each weight of a
    matrix costs 2 a token; scores and mixing cost ``2 T² H (Dh + Dv)`` a
    block.  Training costs three times as much: backward, each product has
    two more, one for each of its factors' gradients.

    Args:
        config: a GPT's, or an encoder's (which has no head).
        length: T, in tokens.

    Returns:
        FLOPs for one sequence, by part. These are ``projections``, ``scores``
        (with the mixing; all T² of them, though a kernel may skip what a
        causal mask hides), ``network`` and ``head``.

    Chapter: 18, scaling.
    Source: kaplan2020scaling, Table 1, without its approximations.
    Test: test_scaling.py::test_flops_are_pytorchs
    """
    n_heads, d_head = config.n_heads, config.head_size
    d_value = config.d_value or d_head
    each = n_heads * (d_head + d_value) + config.kv_heads * (d_head + d_value)
    matrices = 3 if config.activation == "swiglu" else 2
    blocks = 2 * length * config.n_layers
    head = 0 if isinstance(config, EncoderConfig) else config.vocab_size
    return {
        "projections": blocks * config.d_model * each,
        "scores": blocks * length * n_heads * (d_head + d_value),
        "network": blocks * config.d_model * matrices * config.ff_size,
        "head": 2 * length * config.d_model * head,
    }


# -- bytes -------------------------------------------------------------------


class ByteCounter(TorchDispatchMode):
    """Count the bytes that operations read and write while it is active.

    Each of PyTorch's operations reads its arguments from memory and writes
    its results there; only views are free.  That is what happens where every
    operation is a kernel of its own, and nothing stays in a cache.

    Attributes:
        moved: bytes read and written so far.
        largest: bytes of the largest tensor that was written.

    Chapter: 18, scaling.
    Source: dao2022flashattention, section 2.1.
    Test: test_scaling.py::test_bytes_by_hand
    """

    def __init__(self) -> None:
        super().__init__()
        self.moved, self.largest = 0, 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operation, and count what it moves."""
        out = func(*args, **(kwargs or {}))
        aliases = [r.alias_info for r in func._schema.returns]
        if any(a is not None and not a.is_write for a in aliases):
            return out  # a view
        inputs = _tensors([args, kwargs or {}])
        made = _tensors(out)
        self.moved += sum(
            map(_stored_bytes, {id(x): x for x in inputs}.values())
        )
        self.moved += sum(map(_stored_bytes, made))
        self.largest = max([self.largest, *map(_stored_bytes, made)])
        return out


def _tensors(x: Any) -> list[Tensor]:
    """The tensors in nested lists, tuples and dictionaries."""
    if isinstance(x, Tensor):
        return [x]
    if isinstance(x, dict):
        x = list(x.values())
    if isinstance(x, (list, tuple)):
        return [tensor for part in x for tensor in _tensors(part)]
    return []


def _stored_bytes(x: Tensor) -> int:
    """Bytes that a tensor takes; broadcast axes take none."""
    return min(x.nbytes, x.untyped_storage().nbytes())


def saved_bytes(compute: Callable[[], Tensor], model: nn.Module) -> int:
    """Count what a forward pass keeps for the backward pass.

    Args:
        compute: the forward pass, to a loss.
        model: whose parameters are not counted.

    Returns:
        Bytes of the activations; each storage counts once.

    Chapter: 18, scaling.
    Test: test_scaling.py::test_saved_bytes_by_hand
    """
    own = {p.untyped_storage()._cdata for p in model.parameters()}
    saved: dict[int, int] = {}

    def keep(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        if storage._cdata not in own:
            saved[storage._cdata] = storage.nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        loss = compute()
    del loss  # until here it kept all of them alive, each in its place
    return sum(saved.values())


# -- attention in blocks -----------------------------------------------------

Tiles = list[tuple[slice, list[slice]]]
ScoresOf = Callable[[Tensor, Tensor, slice, slice], Tensor]


def block_attend(
    q: Float[Tensor, "... T Dh"],
    k: Float[Tensor, "... S Dh"],
    v: Float[Tensor, "... S Dv"],
    mask: Tensor | None = None,
    causal: bool = False,
    dropout_p: float = 0.0,
    bias: Float[Tensor, "..."] | None = None,
    size: int = 128,
) -> Float[Tensor, "... T Dv"]:
    """:func:`coursekit.attention.attend`, whose weights never exist.

    Blocks of queries meet blocks of keys; of each row only its largest
    score, its sum and its mixture so far are kept.  Backward, the weights of
    a block are computed once more.

    Args:
        q, k, v, mask, causal: as in :func:`coursekit.attention.attend`.
        dropout_p: must be 0.
        bias: as there, but without a gradient (ALiBi's has none).
        size: queries, and keys, in a block.

    Returns:
        (..., T, Dv), as there.

    Raises:
        ValueError: if shapes do not fit, the mask is not boolean, there is
            dropout, the bias wants a gradient, or a block is empty.

    Chapter: 18, scaling.
    Source: milakov2018online; dao2022flashattention, algorithm 1;
        dao2024flashattention2 for the order of the loops.
    Test: test_scaling.py::test_blocks_equal_attend
    """
    check_attention(q, k, v, mask)
    if dropout_p or size < 1 or (bias is not None and bias.requires_grad):
        raise ValueError(
            "attention in blocks has no dropout, no gradient for its bias, "
            f"and blocks of at least 1: got dropout_p={dropout_p}, "
            f"size={size}. Use attend or fast_attend for these."
        )
    n_queries, n_keys = q.size(-2), k.size(-2)
    if causal:
        check_causal(n_queries, n_keys)
    scores_of = _scores_of(q, n_keys, mask, causal, bias)
    tiles = list(_tiles(n_queries, n_keys, causal, size))
    wide = torch.promote_types(q.dtype, torch.float32)
    k, v = share_heads(k, q), share_heads(v, q)
    with _full_precision(q.device.type):
        out = _InBlocks.apply(
            q.to(wide), k.to(wide), v.to(wide), scores_of, tiles
        )
    return out.to(q.dtype)


def _scores_of(
    q: Tensor,
    n_keys: int,
    mask: Tensor | None,
    causal: bool,
    bias: Tensor | None,
) -> ScoresOf:
    """Make the function that computes the scores of one block."""
    table = (*q.shape[:-1], n_keys)  # views, which take no memory
    visible = None if mask is None else torch.broadcast_to(mask, table)
    added = None if bias is None else torch.broadcast_to(bias, table)
    shift = n_keys - q.size(-2)

    def scores_of(q: Tensor, k: Tensor, rows: slice, cols: slice) -> Tensor:
        scores = q[..., rows, :] @ k[..., cols, :].mT / math.sqrt(q.size(-1))
        if added is not None:
            scores = scores + added[..., rows, cols]
        if causal and cols.stop > rows.start + shift + 1:
            i = torch.arange(rows.start, rows.stop, device=q.device)
            j = torch.arange(cols.start, cols.stop, device=q.device)
            scores = scores.masked_fill(j > i[:, None] + shift, -math.inf)
        if visible is not None:
            scores = scores.masked_fill(~visible[..., rows, cols], -math.inf)
        return scores

    return scores_of


def _full_precision(device: str) -> AbstractContextManager[Any]:
    """Sums over thousands of keys are kept in float32, as kernels do it."""
    if device == "meta":
        return nullcontext()
    return torch.autocast(device, enabled=False)


def _tiles(
    n_queries: int, n_keys: int, causal: bool, size: int
) -> Iterator[tuple[slice, list[slice]]]:
    """Each block of queries, and the blocks of keys that it may see."""
    for start in range(0, n_queries, size):
        stop = min(start + size, n_queries)
        end = stop + n_keys - n_queries if causal else n_keys
        yield (
            slice(start, stop),
            [slice(j, min(j + size, end)) for j in range(0, end, size)],
        )


def _forward(
    q: Tensor, k: Tensor, v: Tensor, scores_of: ScoresOf, tiles: Tiles
) -> tuple[Tensor, Tensor]:
    """The outputs, and each row's logarithm of its sum of exponentials."""
    out = q.new_zeros(*q.shape[:-1], v.size(-1))
    log_sum = q.new_zeros(*q.shape[:-1], 1)
    lowest = torch.finfo(q.dtype).min  # not -inf: -inf - -inf is NaN
    for rows, blocks in tiles:
        top = torch.full_like(log_sum[..., rows, :], lowest)
        total = torch.zeros_like(top)
        mixed = torch.zeros_like(out[..., rows, :])
        for cols in blocks:
            scores = scores_of(q, k, rows, cols)
            new = torch.maximum(top, scores.amax(-1, keepdim=True))
            shrink, weights = (top - new).exp(), (scores - new).exp()
            total = total * shrink + weights.sum(-1, keepdim=True)
            mixed = mixed * shrink + weights @ v[..., cols, :]
            top = new
        total = total.clamp(min=1)  # below 1 only if nothing was seen
        out[..., rows, :] = mixed / total
        log_sum[..., rows, :] = top + total.log()
    return out, log_sum


def _backward(
    saved: Iterable[Tensor], d_out: Tensor, scores_of: ScoresOf, tiles: Tiles
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v, block by block, without the table."""
    q, k, v, out, log_sum = saved
    dq, dk, dv = (torch.zeros_like(x) for x in (q, k, v))
    root = math.sqrt(q.size(-1))
    in_all = (d_out * out).sum(-1, keepdim=True)
    for rows, blocks in tiles:
        d = d_out[..., rows, :]
        for cols in blocks:
            scores = scores_of(q, k, rows, cols)
            weights = (scores - log_sum[..., rows, :]).exp()
            d_weights = d @ v[..., cols, :].mT
            d_scores = weights * (d_weights - in_all[..., rows, :]) / root
            dq[..., rows, :] += d_scores @ k[..., cols, :]
            dk[..., cols, :] += d_scores.mT @ q[..., rows, :]
            dv[..., cols, :] += weights.mT @ d
    return dq, dk, dv


class _InBlocks(torch.autograd.Function):
    """Both passes; between them five tensors, none of them T by S."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        scores_of: ScoresOf,
        tiles: Tiles,
    ) -> Tensor:
        out, log_sum = _forward(q, k, v, scores_of, tiles)
        ctx.save_for_backward(q, k, v, out, log_sum)
        ctx.plan = scores_of, tiles
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        return (*_backward(ctx.saved_tensors, d_out, *ctx.plan), None, None)
