"""Contracts of the schedule, the optimizer and the training loop."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from coursekit_classroom.yourfile.contracts.base import (
    BATCH,
    SMALL,
    ContractError,
    File,
    V,
    kind,
)

RATE = 0.1
LOUDER = 30.0  # times larger logits, so that there is what to clip


def cosine(peak: float, progress: float, lowest: float = 0.1) -> float:
    """A fraction of the peak, from 1 to the lowest, along half a wave."""
    half = (1 + math.cos(math.pi * progress)) / 2
    return peak * (lowest + (1 - lowest) * half)


def schedule(file: File) -> None:
    """Schedule: rises in equal steps, falls to a tenth along a cosine."""
    for steps, peak, warmup in ((50, 0.7, 10), (31, 2e-3, 7)):
        actual = [
            float(file["schedule"](i, steps, peak, warmup))
            for i in range(steps)
        ]
        rise, fall, n = actual[:warmup], actual[warmup:], steps - warmup
        lines = [
            [peak * (i + 1) / width for i in range(warmup)]
            for width in (warmup, warmup + 1)
        ]
        if not any(close(rise, line) for line in lines):
            first, last = rise[0] / peak, rise[-1] / peak
            raise ContractError(
                f"with {warmup} steps of warm-up the rate rises from 1 / "
                f"{warmup} of the peak to all of it, in equal steps: got "
                f"{first:.3f} of it in the first step, {last:.3f} in the "
                f"last. {'A rate of 0 is a lost step. ' * (first == 0)}"
                "Step 0 is the first: take (step + 1) / warmup."
            )
        waves = [
            [(i + 1) / n for i in range(n)],
            [i / n for i in range(n)],
            [i / (n - 1) for i in range(n)],
        ]
        if any(close(fall, [cosine(peak, p) for p in w]) for w in waves):
            continue
        hint = "Progress goes from 0 to 1 in the steps after the warm-up."
        if any(close(fall, [cosine(peak, p, 0) for p in w]) for w in waves):
            hint = "It falls to 0: a tenth of the peak should be left."
        raise ContractError(
            f"from step {warmup} to step {steps - 1} the rate falls from the "
            "peak to a tenth of it along half a cosine: got "
            f"{fall[0] / peak:.3f} of the peak at its beginning, "
            f"{fall[n // 2] / peak:.3f} half way, {fall[-1] / peak:.3f} at "
            f"its end. {hint}"
        )


def close(actual: list[float], wanted: list[float]) -> bool:
    """True if two lists of rates agree."""
    pairs = zip(actual, wanted, strict=True)
    return all(math.isclose(*pair, rel_tol=1e-6) for pair in pairs)


def optimizer(file: File) -> None:
    """Optimizer: AdamW, with weight decay for matrices and no vector."""
    model = file.rough_model()
    may_stay = file.observe.tables(model)
    before = file.observe.weights(model)
    zeros = {name: torch.zeros_like(w) for name, w in before.items()}
    problem, in_groups = file.observe.update(
        file["optimizer"], model, RATE, zeros
    )
    if problem:
        raise ContractError(
            f"an optimizer is one of torch.optim: got {problem}. Return "
            "torch.optim.AdamW of your groups."
        )
    if left := [name for name in before if name not in in_groups]:
        raise ContractError(
            "each parameter is in a group: got none for "
            f"{', '.join(left[:3])}. What is no matrix goes into a group of "
            "its own, without weight decay."
        )
    decayed = file.observe.weights(model)
    for name, w in decayed.items():
        check_decay(name, w / before[name], name in may_stay)
    steep = {name: 100 * torch.randn_like(w) for name, w in before.items()}
    file.observe.update(file["optimizer"], model, RATE, steep)
    for name, w in file.observe.weights(model).items():
        length = (w - decayed[name]).abs().mean().item()
        if w.dim() < 2 and not math.isclose(length, RATE, rel_tol=1e-3):
            raise ContractError(
                "Adam's first step moves each number by the learning rate, "
                f"here {RATE}, however large its gradient is: got "
                f"{length:.3f} for {name}. Use torch.optim.AdamW."
            )


def check_decay(name: str, factor: Tensor, may_stay: bool) -> None:
    """Check the factor of a parameter whose gradient is 0."""
    low, high = factor.min().item(), factor.max().item()
    if factor.dim() < 2:
        if low != 1 or high != 1:
            raise ContractError(
                "weight decay leaves vectors alone, such as the gains of a "
                f"norm: with gradient 0, got {name} times {low:.3f}. Give "
                "vectors a group with weight_decay 0."
            )
    elif not high - low <= 1e-3:  # NaN is no number either
        raise ContractError(
            "weight decay multiplies a matrix by one number: with gradient "
            f"0, got {name} times {low:.3f} to {high:.3f}. Adam adds the "
            "decay to the gradient; use AdamW."
        )
    elif high >= 1 and not may_stay:
        raise ContractError(
            "weight decay pulls matrices toward 0: with gradient 0, got "
            f"{name} unchanged. Give their group a weight_decay, 0.1."
        )


def follows(file: File) -> None:
    """Training: each step follows its own batch's gradient, clipped to 1."""
    steps, model = 4, file.model()
    losses, seen = file.observe.watch_training(
        file["train"],
        model,
        LOUDER,
        torch.arange(301) * 5 % V,
        steps,
        BATCH,
    )
    batches = [check_step(file, model, step) for step in seen]
    wanted = [float(file["schedule"](i, steps)) for i in range(steps)]
    actual = [rate for rate, *_ in (step["rates"] for step in seen)]
    are_alike = all(len(set(step["rates"])) == 1 for step in seen)
    if len(actual) != steps or not are_alike or not close(actual, wanted):
        raise ContractError(
            f"in {steps} steps the rates of all groups are your schedule's, "
            f"{', '.join(f'{x:.1e}' for x in wanted)}: got "
            f"{', '.join(f'{x:.1e}' for x in actual)}. Set lr of each group "
            "before each step."
        )
    if not isinstance(losses, list) or not close_enough(losses, batches):
        raise ContractError(
            "training returns the loss of each batch, here "
            f"{', '.join(f'{x:.3f}' for x in batches)}: got "
            f"{kind(losses)}. Append loss.item() in each step."
        )


def close_enough(actual: list[Any], wanted: list[float]) -> bool:
    """True if losses are those of the batches, up to rounding."""
    if len(actual) != len(wanted):
        return False
    pairs = zip(map(float, actual), wanted, strict=True)
    return all(math.isclose(*pair, rel_tol=1e-3) for pair in pairs)


def check_step(file: File, model: nn.Module, step: dict[str, Any]) -> float:
    """Compare what is there before a step with its batch's gradient.

    Returns:
        The batch's loss.
    """
    if step["ids"] is None:
        raise ContractError(
            "each step follows a loss of the model's logits: got a step "
            "before the model was called. Compute the loss first."
        )
    file.observe.load(model, step["weights"])
    actual = step["gradient"]
    loss, slope = gradient(file, model, step["ids"], shift=1)
    if agree(actual, clipped(slope)):
        return loss
    hint = "Per step: zero_grad, backward, clip_grad_norm_, step."
    if not actual.any():
        hint = "It is 0. Set gradients to zero before `backward`."
    elif agree(actual, slope):
        hint = "It is not clipped yet. Clip after backward, before step."
    elif agree(
        actual, clipped(gradient(file, model, step["ids"], shift=0)[1])
    ):
        hint = "The targets are the inputs. Move them by one."
    raise ContractError(
        "before each step the gradient is the batch's own, with a norm "
        f"of at most 1, here {slope.norm():.1f} before clipping: got a "
        f"norm of {actual.norm():.1f}. {hint}"
    )


def gradient(
    file: File, model: nn.Module, ids: Tensor, shift: int
) -> tuple[float, Tensor]:
    """Loss of a batch, and its gradient with respect to all weights."""
    targets = (ids + 5 * shift) % V
    logits, slope = file.observe.batch_gradient(model, ids, targets, LOUDER)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    return loss.item(), slope


def clipped(slope: Tensor) -> Tensor:
    """The same direction, with a norm of at most 1."""
    return slope / slope.norm().clamp(min=1)


def agree(actual: Tensor, wanted: Tensor) -> bool:
    """True if two gradients agree up to rounding."""
    return bool((actual - wanted).norm() < 1e-3 * wanted.norm())


def evaluation(file: File) -> None:
    """Evaluation: the mean loss over a whole text, and nothing learned."""
    model = file.rough_model()
    ids = torch.randint(V, (70 * SMALL.context + 1,))
    windows = ids.unfold(0, SMALL.context + 1, SMALL.context)
    with torch.no_grad():
        wanted = nn.functional.cross_entropy(
            model(windows[:, :-1].clone()).flatten(0, 1),
            windows[:, 1:].flatten(),
        ).item()
    before = file.observe.weights(model)
    value = file["evaluation"](model, ids.clone())
    if not isinstance(value, float | Tensor):
        raise ContractError(
            f"the loss of a text is one number: got {kind(value)}. Return it."
        )
    if not abs(float(value) - wanted) <= 1e-3:
        raise ContractError(
            f"the loss of a text of {len(ids)} tokens, in windows of "
            f"{SMALL.context} side by side, is the mean over all targets, "
            f"{wanted:.4f}: got {float(value):.4f}. Weight each batch by its "
            "windows: the last one may be smaller."
        )
    after = file.observe.weights(model)
    if not all(before[name].equal(w) for name, w in after.items()) or (
        isinstance(value, Tensor) and value.requires_grad
    ):
        raise ContractError(
            "evaluation learns nothing and builds no graph: got a gradient, "
            "or other weights. Put it under torch.no_grad()."
        )
