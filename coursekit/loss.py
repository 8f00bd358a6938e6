"""Losses: cross-entropy of the next token, and its perplexity."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from coursekit.checks import check_choice, check_ids, is_integer, is_number

Loss = Callable[[Any, dict[str, Tensor], Tensor], Tensor]
"""From a model, its inputs and the targets to a sum over the targets.

What is to be averaged has one target each: tokens, comparisons or answers.
The mean is taken over all targets of a step or an evaluation, so that it does
not depend on how they are split into batches.
"""


def cross_entropy(
    logits: Float[Tensor, "*B V"],
    targets: Int[Tensor, "*B"],
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Float[Tensor, "..."]:
    """Nats of surprise at the right token, straight from the logits.

    ``logsumexp(z) − (1 − ε) z_y − ε mean(z)``: neither probabilities nor
    one-hot targets are built.

    Args:
        logits: (..., V), any real numbers.
        targets: (...) ids of the right tokens, or ``ignore_index``.
        ignore_index: target that does not count (padding).
        label_smoothing: ε in [0, 1): share of the target's probability that
            is spread over all V tokens; the paper's is 0.1.
        reduction: ``"mean"`` over the targets that count, ``"sum"``, or
            ``"none"`` (ignored targets give 0).

    Returns:
        A loss in nats, a scalar, or (...) for ``"none"``.  The mean over no
        target at all is 0.

    Raises:
        ValueError: if shapes do not fit, a target is no token, or
            ``label_smoothing`` or ``reduction`` is not one of those above.

    Chapter: 10, loss.
    Source: vaswani2017attention, section 5.4; szegedy2016rethinking.
    Test: test_loss.py::test_equal_to_torch
    """
    _check_loss(logits, targets, ignore_index, label_smoothing, reduction)
    counts = targets != ignore_index
    right = targets.masked_fill(~counts, 0)[..., None]
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()  # 8 bits would round the loss to 3 digits
    nats = logits.logsumexp(dim=-1)
    nats = nats - (1 - label_smoothing) * logits.gather(-1, right)[..., 0]
    if label_smoothing:
        nats = nats - label_smoothing * logits.mean(dim=-1)
    nats = nats.masked_fill(~counts, 0.0)
    if reduction == "none":
        return nats
    if reduction == "sum":
        return nats.sum()
    return nats.sum() / counts.sum().clamp(min=1)


def fast_cross_entropy(
    logits: Float[Tensor, "*B V"],
    targets: Int[Tensor, "*B"],
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Float[Tensor, "..."]:
    """:func:`cross_entropy` in one call of PyTorch's, for training.

    The same numbers and gradients, with fewer passes over the logits,
    which are the largest tensor of a small model.

    Args, Returns, Raises: as :func:`cross_entropy`.

    Chapter: 10, loss.
    Source: vaswani2017attention, section 5.4; szegedy2016rethinking.
    Test: test_loss.py::test_fast_equals_readable
    """
    _check_loss(logits, targets, ignore_index, label_smoothing, reduction)
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    nats = F.cross_entropy(
        logits.reshape(-1, logits.size(-1)),
        targets.reshape(-1).long(),
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        # Its own mean over no target at all is NaN.
        reduction="none" if reduction == "none" else "sum",
    )
    if reduction == "none":
        return nats.view(targets.shape)
    if reduction == "sum":
        return nats
    return nats / (targets != ignore_index).sum().clamp(min=1)


def chunked_cross_entropy(
    hidden: Float[Tensor, "*B D"],
    logits_of: Callable[[Tensor], Tensor],
    parameters: Iterable[Tensor],
    targets: Int[Tensor, "*B"],
    chunk_size: int = 1024,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """The sum of :func:`cross_entropy`, a few positions' logits at a time.

    ``Σ nats`` needs each position's logits alone, and so does its gradient.
    So each chunk goes forward *and* backward through the head before the
    next one begins.  Nothing is computed twice, and what grows with V is
    the logits of one chunk.

    Args:
        hidden: (..., D) what the head reads.
        logits_of: the head, from (n, D) to (n, V), each position by itself.
        parameters: of the head; others may be among them.
        targets: (...) ids of the right tokens, or ``ignore_index``.
        chunk_size: positions of a chunk; the last may be shorter.
        ignore_index, label_smoothing: as in :func:`cross_entropy`.

    Returns:
        The sum of the nats, a scalar with a graph.

    Raises:
        ValueError: if shapes do not fit, or ``chunk_size`` is not at least 1.

    Chapter: 18, scaling.
    Test: test_loss.py::test_chunks_are_the_whole
    """
    check_chunks(hidden, targets, chunk_size)

    def nats_of(chunk: Tensor, right: Tensor) -> Tensor:
        return fast_cross_entropy(
            logits_of(chunk), right, ignore_index, label_smoothing, "sum"
        )

    rows, right = hidden.flatten(0, -2), targets.flatten().split(chunk_size)
    if not torch.is_grad_enabled():
        chunks = zip(rows.split(chunk_size), right, strict=True)
        return torch.stack([nats_of(*chunk) for chunk in chunks]).sum()
    trained = [p for p in parameters if p.requires_grad]
    return _Chunks.apply(rows, nats_of, right, *trained)


class _Chunks(torch.autograd.Function):
    """Both passes of each chunk, one chunk after the other."""

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        nats_of: Callable[[Tensor, Tensor], Tensor],
        targets: Sequence[Tensor],
        *parameters: Tensor,
    ) -> Tensor:
        exact = torch.promote_types(rows.dtype, torch.float32)
        total, d_rows = rows.new_zeros((), dtype=exact), torch.empty_like(rows)
        gradients: list[Tensor | None] = [None] * len(parameters)
        size = len(targets[0])
        cut = zip(rows.split(size), d_rows.split(size), targets, strict=True)
        for chunk, d_chunk, right in cut:
            x = chunk.detach().requires_grad_()
            with torch.enable_grad():
                nats = nats_of(x, right)
            with torch.autocast(x.device.type, enabled=False):
                of_chunk = torch.autograd.grad(
                    nats, [x, *parameters], allow_unused=True
                )
            d_chunk.copy_(of_chunk[0])
            for i, gradient in enumerate(of_chunk[1:]):
                if gradient is not None:
                    old = gradients[i]
                    gradients[i] = (
                        gradient.clone() if old is None else old.add_(gradient)
                    )
            total += nats.detach()
            # What is small and stays would lie between the large tensors
            # that come and go: the next chunk would not fit in their place.
            del x, nats, of_chunk
        ctx.gradients = [d_rows, None, None, *gradients]
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, None
        return tuple(
            None if g is None else g.mul_(upstream) for g in gradients
        )


def token_loss(
    model: Any,
    inputs: dict[str, Tensor],
    targets: Int[Tensor, "*B"],
    label_smoothing: float = 0.0,
    chunk_size: int = 0,
) -> Float[Tensor, ""]:
    """The loss that training takes unless it is given another.

    Args:
        model: maps ``**inputs`` to logits (..., V); for chunks, in two
            steps, its methods ``hidden`` and ``logits``.
        inputs: of the model, by name.
        targets: (...) ids of the right tokens, or -100.
        label_smoothing: as in :func:`cross_entropy`.
        chunk_size: positions whose logits exist at a time; 0: all.

    Returns:
        The *sum* of the nats: the mean is over all targets of a step, which
        may have several batches.

    Raises:
        ValueError: if the model can't be called in two steps.

    Chapter: 11, training.
    """
    if not chunk_size:
        return fast_cross_entropy(
            model(**inputs),
            targets,
            label_smoothing=label_smoothing,
            reduction="sum",
        )
    # Of the type: a wrapper (DDP, torch.compile) passes its model's methods
    # on, but they would run without what the wrapper does.
    kind = type(model)
    if not (hasattr(kind, "hidden") and hasattr(kind, "logits")):
        raise ValueError(
            "a loss in chunks needs a model with the methods hidden and "
            f"logits: got {kind.__name__}. Set loss_chunk_size=0, and do not "
            "compile or wrap the model."
        )
    return chunked_cross_entropy(
        model.hidden(**inputs),
        model.logits,
        model.parameters(),
        targets,
        chunk_size,
        label_smoothing=label_smoothing,
    )


def check_chunks(hidden: Tensor, targets: Tensor, chunk_size: int) -> None:
    """Refuse what can't be cut into chunks.

    Raises:
        ValueError: if shapes do not fit, or ``chunk_size`` is not at least 1.
    """
    _check_shapes("hidden states", hidden, targets)
    if not is_integer(chunk_size):
        raise ValueError(
            f"a chunk must have at least 1 position: got {chunk_size}. Some "
            "hundred keep the products large and the memory small."
        )


def _check_shapes(name: str, rows: Tensor, targets: Tensor) -> None:
    """Refuse rows, such as logits, that have not one target each.

    Raises:
        ValueError: if shapes do not fit.
    """
    if rows.shape[:-1] != targets.shape:
        raise ValueError(
            f"there must be one target for each row of {name}: got {name} "
            f"{tuple(rows.shape)} and targets {tuple(targets.shape)}. "
            "Targets have the same shape without the last axis."
        )


def _check_loss(
    logits: Tensor,
    targets: Tensor,
    ignore_index: int,
    label_smoothing: float,
    reduction: str,
) -> None:
    """Refuse targets that don't belong to the logits, or an unknown loss.

    Raises:
        ValueError: as :func:`cross_entropy` says.
    """
    _check_shapes("logits", logits, targets)
    if targets.dtype not in (torch.int64, torch.int32):
        raise ValueError(
            "targets must be token ids, int64 or int32: got "
            f"{targets.dtype}. Call targets.long()."
        )
    counted = targets.masked_fill(targets == ignore_index, 0)
    check_ids(counted, logits.size(-1))
    if not (is_number(label_smoothing) and 0 <= label_smoothing < 1):
        raise ValueError(
            f"label_smoothing must lie in [0, 1): got {label_smoothing}. "
            "0 turns it off; 0.1 is the paper's."
        )
    remedy = "Use mean to train, sum to weigh batches by their tokens."
    check_choice("reduction", reduction, ("mean", "sum", "none"), remedy)


def perplexity(nats: float | Tensor) -> float:
    """Perplexity, e^nats: the effective number of equally likely tokens.

    Args:
        nats: mean cross-entropy, in nats a token.

    Returns:
        Perplexity; V for a model that knows nothing, 1 for one that knows;
        infinity above what a float holds.

    Chapter: 10, loss.
    """
    value = nats.item() if isinstance(nats, torch.Tensor) else nats
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf
