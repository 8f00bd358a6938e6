"""How surprised the model is by what comes next."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from coursekit.embedding import check_ids

__all__ = ["cross_entropy", "fast_cross_entropy", "perplexity"]


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
        Perplexity; V for a model that knows nothing, 1 for one that knows.

    Chapter: 10, loss.
    """
    value = nats.item() if isinstance(nats, torch.Tensor) else nats
    return math.exp(value)
