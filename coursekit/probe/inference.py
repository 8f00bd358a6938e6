"""Whether a model does at inference what it did in training."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from coursekit.loss import cross_entropy
from coursekit.probe.running import TOLERANCE, Model, Report, above, logits
from coursekit.steppers import Stepper


@dataclass(frozen=True)
class PrefixGap(Report):
    """What :func:`prefix_gap` saw."""

    gaps: tuple[float, ...]
    """Loss with the whole text minus loss with the prefix, by position."""
    largest: float
    """Largest difference for a single token, in nats."""

    def __str__(self) -> str:
        """One sentence."""
        if self.ok:
            return "honest: the text that follows changes no prediction"
        t = max(range(len(self.gaps)), key=lambda i: abs(self.gaps[i]))
        side = "lower" if self.gaps[t] < 0 else "higher"
        return (
            f"not honest: at position {t} the loss is {abs(self.gaps[t]):.2g} "
            f"nats {side} when the model is given the text that follows"
        )


@dataclass(frozen=True)
class SameInUse(Report):
    """What :func:`same_in_use` saw."""

    gaps: tuple[float, ...]
    """Largest difference of a logit: the prompt's, then of each new token."""
    first: int | None
    """Where the two part: 0 at the prompt, n at new token n."""

    def __str__(self) -> str:
        """One sentence."""
        if self.ok:
            return "the same in use: both loops give the same logits"
        where = f"new token {self.first}" if self.first else "the prompt"
        return (
            f"not the same in use: the two loops part at {where}, by up to "
            f"{max(self.gaps):.2g}"
        )


def prefix_gap(
    model: Model, ids: Int[Tensor, "B T"], tolerance: float = 1e-4
) -> PrefixGap:
    """Compare the loss on whole texts with the loss on their prefixes alone.

    In training a model is handed the text that it is asked to predict; in
    use it is not.  For an honest model that makes no difference.

    Args:
        model: from (B, T) ids to (B, T, V) logits.
        ids: (B, T) held-out text, T at least 2.
        tolerance: largest difference that is rounding, in nats.

    Returns:
        A report.

    Raises:
        ValueError: if the text has fewer than 2 tokens.

    Chapter: 19, debugging.
    """
    if ids.size(1) < 2:
        raise ValueError(
            "a text must have at least 2 tokens, one to predict the other: "
            f"got {tuple(ids.shape)}. Give (B, T) ids of held-out text."
        )
    inputs, targets = ids[:, :-1], ids[:, 1:]
    prefixes = [inputs[:, : t + 1] for t in range(inputs.size(1))]
    last = [logits(model, prefix)[:, -1] for prefix in prefixes]
    on_whole, on_prefixes = (
        cross_entropy(scores, targets, reduction="none")
        for scores in (logits(model, inputs), torch.stack(last, dim=1))
    )
    gap = on_whole - on_prefixes
    largest = float(gap.abs().max())
    return PrefixGap(
        largest <= tolerance, tuple(gap.mean(0).tolist()), largest
    )


def same_in_use(
    stepper: Stepper, plain: Stepper, ids: Sequence[int], n_prompt: int = 4
) -> SameInUse:
    """Let two loops read the same text: their logits must agree at each step.

    Args:
        stepper: the fast loop, usually a :class:`CachedStepper`.
        plain: the slow one that is trusted, a :class:`PlainStepper`.
        ids: the text; what follows the prompt is read token by token.
        n_prompt: how many of them are the prompt.

    Returns:
        A report.

    Raises:
        ValueError: if nothing, or everything, is the prompt.

    Chapter: 19, debugging.
    """
    if not 0 < n_prompt < len(ids):
        raise ValueError(
            "the prompt must be a part of the text: got "
            f"n_prompt={n_prompt} of {len(ids)} tokens. Take at least 1, and "
            "leave at least 1."
        )
    a = stepper.prefill([ids[:n_prompt]])
    b = plain.prefill([ids[:n_prompt]])
    limit = 10 * TOLERANCE * float(b.std())
    gaps = [float((a - b).abs().max())]
    for token in ids[n_prompt:]:
        a = stepper.step(torch.tensor([token], device=a.device))
        b = plain.step(torch.tensor([token], device=b.device))
        gaps.append(float((a - b).abs().max()))
    first = min(above(torch.tensor(gaps), limit), default=None)
    return SameInUse(first is None, tuple(gaps), first)
