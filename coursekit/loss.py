"""How surprised the model is by what comes next."""

import math
from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from coursekit.checks import check_ids

__all__ = [
    "backward_in_pieces",
    "cross_entropy",
    "fast_cross_entropy",
    "nats_in_pieces",
    "perplexity",
]


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
    Test: tests/test_loss.py::test_equal_to_torch
    """
    check_targets(logits, targets, ignore_index)
    check_choices(label_smoothing, reduction)
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
    Test: tests/test_loss.py::test_fast_equals_readable
    """
    check_targets(logits, targets, ignore_index)
    check_choices(label_smoothing, reduction)
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    nats = F.cross_entropy(
        logits.reshape(-1, logits.size(-1)),
        targets.reshape(-1),
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


def backward_in_pieces(
    hidden: Float[Tensor, "*B D"],
    logits_of: Callable[[Tensor], Tensor],
    targets: Int[Tensor, "*B"],
    n_rows: int,
    scale: float = 1.0,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """Loss and all gradients, with the logits of a few rows at a time.

    ``Σ nats`` needs each row's logits, and its gradient by the hidden states
    is a row's own too.  So each piece goes forward *and* backward through
    the head before the next one begins; what went before the head gets its
    gradient afterwards, once.  Nothing is computed twice, and what grows
    with V is the logits of one piece.

    Args:
        hidden: (..., D) what the head reads; its graph is used up.
        logits_of: the head, from (n, D) to (n, V), each row by itself.
        targets: (...) ids of the right tokens, or ``ignore_index``.
        n_rows: rows of a piece; the last may be shorter.
        scale: times which the gradients are added to ``.grad``; 1/n for
            those of the mean.
        ignore_index, label_smoothing: as in :func:`cross_entropy`.

    Returns:
        The sum of the nats, without ``scale`` and without a graph.

    Raises:
        ValueError: if shapes do not fit, or ``n_rows`` is not at least 1.

    Chapter: 18, scaling.
    Test: tests/test_loss.py::test_backward_in_pieces_is_backward
    """
    slope = torch.empty_like(hidden).flatten(0, -2)
    exact = torch.promote_types(hidden.dtype, torch.float32)
    total, first = hidden.new_zeros((), dtype=exact), 0
    for rows, right in pieces(hidden, targets, n_rows):
        # A leaf: backward stops here, and the piece's logits are freed.
        rows = rows.detach().requires_grad_()
        nats = fast_cross_entropy(
            logits_of(rows), right, ignore_index, label_smoothing, "sum"
        )
        (nats * scale).backward()
        assert rows.grad is not None
        slope[first : first + len(rows)] = rows.grad
        first += len(rows)
        total += nats.detach()
        # What is small and stays would lie between the large tensors that
        # come and go: the next piece would not fit where this one was.
        del rows, nats
    if hidden.requires_grad:  # else only the head is trained
        hidden.backward(slope.view_as(hidden))
    return total


def nats_in_pieces(
    hidden: Float[Tensor, "*B D"],
    logits_of: Callable[[Tensor], Tensor],
    targets: Int[Tensor, "*B"],
    n_rows: int,
    ignore_index: int = -100,
) -> Float[Tensor, ""]:
    """The loss alone, with the logits of a few rows at a time.

    Args, Raises: as :func:`backward_in_pieces`.

    Returns:
        The sum of the nats; it has no graph.

    Chapter: 18, scaling.
    Test: tests/test_loss.py::test_backward_in_pieces_is_backward
    """
    with torch.no_grad():
        nats = [
            fast_cross_entropy(
                logits_of(rows), right, ignore_index, reduction="sum"
            )
            for rows, right in pieces(hidden, targets, n_rows)
        ]
    return torch.stack(nats).sum()


def pieces(
    hidden: Tensor, targets: Tensor, n_rows: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Cut hidden states and targets, all rows below one another.

    Raises:
        ValueError: if shapes do not fit, or ``n_rows`` is not at least 1.
    """
    if hidden.shape[:-1] != targets.shape:
        raise ValueError(
            "there must be one target for each hidden state: got hidden "
            f"{tuple(hidden.shape)} and targets {tuple(targets.shape)}. "
            "Hidden states are (..., D), targets the same without D."
        )
    if n_rows < 1:
        raise ValueError(
            f"a piece must have at least 1 row: got {n_rows}. Some hundred "
            "rows keep the products large and the memory small."
        )
    cut = hidden.flatten(0, -2).split(n_rows), targets.flatten().split(n_rows)
    yield from zip(*cut, strict=True)


def check_targets(logits: Tensor, targets: Tensor, ignore_index: int) -> None:
    """Refuse targets that do not belong to the logits.

    Raises:
        ValueError: if shapes do not fit, or a target is no token.
    """
    if logits.shape[:-1] != targets.shape:
        raise ValueError(
            "there must be one target for each row of logits: got logits "
            f"{tuple(logits.shape)} and targets {tuple(targets.shape)}. "
            "Logits are (..., V), targets the same without V."
        )
    counted = targets.masked_fill(targets == ignore_index, 0)
    check_ids(counted, logits.size(-1))


def check_choices(label_smoothing: float, reduction: str) -> None:
    """Refuse a loss that is not on offer.

    Raises:
        ValueError: if a value is none of those that :func:`cross_entropy`
            names.
    """
    if not 0 <= label_smoothing < 1:
        raise ValueError(
            f"label_smoothing must lie in [0, 1): got {label_smoothing}. "
            "0 turns it off; 0.1 is the paper's."
        )
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(
            f"reduction must be mean, sum or none: got {reduction!r}. "
            "Use mean to train, sum to weigh batches by their tokens."
        )


def perplexity(nats: float | Tensor) -> float:
    """Among how many equally likely tokens the model hesitates: e^nats.

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
