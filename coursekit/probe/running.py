"""Run a model for a probe, and leave it as it was."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

Model = Callable[[Tensor], Tensor]
"""From (B, T) token ids to (B, T, V) logits."""
TOLERANCE = 1e-5
"""Changes below this fraction of the logits' spread are rounding."""


@dataclass(frozen=True)
class Report:
    """What a probe saw; as a string, one sentence."""

    ok: bool


def random_ids(
    model: Any, vocab_size: int, batch: int, length: int, seed: int
) -> Int[Tensor, "B T"]:
    """Random ids; in a row they differ as long as the vocabulary lasts."""
    if vocab_size < 2 or length < 2:
        raise ValueError(
            "a probe changes tokens and looks at others: got "
            f"vocab_size={vocab_size}, length={length}. Both must be at "
            "least 2."
        )
    generator = torch.Generator().manual_seed(seed)
    n_orders = -(-length // vocab_size)
    orders = [
        torch.randperm(vocab_size, generator=generator, device="cpu")
        for _ in range(batch * n_orders)
    ]
    ids = torch.cat(orders).view(batch, -1)[:, :length].contiguous()
    parameter = next(as_module(model).parameters(), torch.empty(0))
    return ids.to(parameter.device)


def as_module(model: Any) -> nn.Module:
    """The model; an empty module for a function."""
    return model if isinstance(model, nn.Module) else nn.Module()


def modes(model: Model) -> tuple[bool, ...]:
    """Evaluation and training mode; a function has no modes."""
    return (False, True) if isinstance(model, nn.Module) else (False,)


@contextmanager
def undisturbed(model: Model, training: bool, seed: int) -> Iterator[None]:
    """Put everything back: modes, buffers, the random numbers' state."""
    module = as_module(model)
    was_training = {m: m.training for m in module.modules()}
    buffers = {b: b.clone() for b in module.buffers()}
    try:
        with torch.random.fork_rng():
            _set_seed(seed)
            if set(was_training.values()) != {training}:
                module.train(training)
            yield
    finally:
        for m, mode in was_training.items():
            if m.training != mode:  # to set it takes as long as a small layer
                m.training = mode
        with torch.no_grad():
            for buffer, value in buffers.items():
                buffer.copy_(value)


def _set_seed(seed: int) -> None:
    """Seed the random numbers of every device there is."""
    torch.default_generator.manual_seed(seed)
    if torch.accelerator.is_available():  # takes 100 times as long
        torch.manual_seed(seed)


@torch.no_grad()
def logits(
    model: Model,
    ids: Int[Tensor, "B T"],
    training: bool = False,
    seed: int = 0,
) -> Float[Tensor, "B T V"]:
    """Run the model; the same dropout in each call with the same shape."""
    with undisturbed(model, training, seed):
        return model(ids).float()


def change(
    a: Float[Tensor, "B T V"], b: Float[Tensor, "B T V"]
) -> Float[Tensor, "B T"]:
    """Largest change of a logit, row by row; infinite where one is NaN."""
    return (a - b).abs().amax(-1).nan_to_num(nan=math.inf)


def above(values: Float[Tensor, "N"], limit: float) -> set[int]:
    """Indices of the values that are not within the limit."""
    return {i for i, v in enumerate(values.tolist()) if not v <= limit}


def join(numbers: Iterable[int]) -> str:
    """The numbers, with commas between them."""
    return ", ".join(map(str, numbers))
