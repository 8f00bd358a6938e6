"""Contracts of loss, training and generation."""

import math

import torch
from torch import Tensor, nn

from coursekit_classroom.yourfile.contracts.base import (
    SMALL,
    B,
    ContractError,
    File,
    T,
    V,
    check_tensor,
    distance,
    kind,
)


def loss(file: File) -> None:
    """Loss: the mean of −ln p(target), ln V where all logits are equal."""
    targets = torch.randint(V, (B, T))
    for scores in (torch.full((B, T, V), 2.0), 3 * torch.randn(B, T, V)):
        p = scores.double().exp()
        p = p / p.sum(-1, keepdim=True)
        each = [
            -math.log(row[target])
            for row, target in zip(
                p.flatten(0, 1), targets.flatten(), strict=True
            )
        ]
        wanted = sum(each) / len(each)
        actual = check_tensor(
            file["loss"](scores, targets.clone()),
            (),
            "the loss is one number, shape",
        ).item()
        if abs(actual - wanted) > 1e-4:
            n = actual / wanted
            hint = "It is the sum. " if abs(n - len(each)) < 0.01 else ""
            raise ContractError(
                f"the loss is the mean of −ln p(target), here {wanted:.4f}: "
                f"got {actual:.4f}. {hint}Take log-softmax over the "
                "vocabulary, the targets' entries, minus their mean."
            )


def stable(file: File) -> None:
    """Loss: right for logits of ±10,000 too, where exponentials overflow."""
    scores = 1e4 * torch.randn(B, T, V).sign()
    scores[0], scores[1, :, 3] = -1e4, 0.0
    targets = torch.randint(V, (B, T))
    each = []
    for row, target in zip(
        scores.flatten(0, 1).tolist(), targets.flatten().tolist(), strict=True
    ):
        top = max(row)
        total = math.fsum(math.exp(score - top) for score in row)
        each.append(top + math.log(total) - row[target])
    wanted = sum(each) / len(each)
    value, slope = file.observe.gradient(file["loss"], scores, targets)
    if not isinstance(value, Tensor) or not value.isfinite():
        raise ContractError(
            "the loss is finite for logits of ±10,000: got "
            f"{value if isinstance(value, Tensor) else kind(value)}. "
            "Subtract the largest logit of each row before the exponential, "
            "and take the logarithm of no probability."
        )
    if abs(value.item() - wanted) > 1e-4 * wanted:
        raise ContractError(
            f"the loss of logits of ±10,000 is {wanted:.1f} here: got "
            f"{value.item():.1f}. A small number inside the logarithm, or a "
            "clamp, hides the overflow and changes the loss."
        )
    if slope is None or not slope.isfinite().all():
        raise ContractError(
            "the gradient is finite for logits of ±10,000: got NaN or none. "
            "Subtract the largest logit of each row before the exponential."
        )


def learns(file: File) -> None:
    """Training: lowers the loss."""
    ids = torch.arange(201) * 5 % V  # what follows is certain
    model = file.model()
    inputs, targets = ids[None, :10], ids[None, 1:11]

    def value() -> float:
        with torch.no_grad():
            scores = model(inputs.clone()).flatten(0, 1)
        return nn.functional.cross_entropy(scores, targets.flatten()).item()

    before = value()
    file.train(model, ids.clone(), 60)
    if not (after := value()) < before - 0.1:
        raise ContractError(
            "training lowers the loss: in 60 steps it went from "
            f"{before:.3f} to {after:.3f}. In each step: batch, loss, "
            "zero_grad, backward, step."
        )


def generate(file: File) -> None:
    """Generation: continues the ids, by draws from the model's softmax."""
    model, n = file.rough_model(), SMALL.context
    prompt = torch.tensor([[2, 7, 5], [11, 3, 0]])

    heat = [2.0, 1.0] if file.chapter >= 12 else []  # temperature, top_p

    def draw(ids: Tensor, n_new: int) -> Tensor:
        torch.manual_seed(1)
        shape = (len(ids), ids.size(1) + n_new)
        actual = file["generate"](model, ids, n_new, *heat)
        return check_tensor(
            actual, shape, f"{n_new} new tokens make the shape"
        )

    draw(prompt.clone(), n - 3)
    try:
        long = draw(prompt.clone(), n)  # more than the context holds
    except (AssertionError, IndexError, RuntimeError, ValueError) as error:
        remedy = "its last ids, `ids[:, -model.context :]`"
        if file.chapter >= 12:
            remedy = "the last half again, with a new dictionary"
        raise ContractError(
            "with more tokens than the context holds, generation gives the "
            f"model no more than the context, here {SMALL.context}: got "
            f"{type(error).__name__}: {error}. Give it {remedy}."
        ) from error
    if not long[:, :3].equal(prompt):
        raise ContractError(
            f"the prompt stays, here {prompt[0].tolist()}: got "
            f"{long[0, :3].tolist()} at its place. Append the new ids to it."
        )
    if not long.equal(draw(prompt.clone(), n)):
        raise ContractError(
            "the same seed gives the same tokens: got two different "
            "continuations. Draw with torch.multinomial alone."
        )
    many = 2000
    drawn = draw(prompt[:1].clone().expand(many, -1), 1)[:, -1]
    logits = model(prompt[:1].clone())[0, -1].detach()
    p = (logits / heat[0] if heat else logits).softmax(-1)
    if distance(drawn, p) > 50:
        top = int(p.argmax())
        raise ContractError(
            f"tokens are drawn with the model's probabilities: token {top} "
            f"has p = {p[top]:.2f} and was drawn {(drawn == top).sum()} "
            f"times in {many:,}. Take the softmax of the last position's "
            f"logits{', divided by the temperature' * len(heat[:1])}."
        )
