"""Device, number format and mode of a model."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


def pick_device(name: str = "auto") -> torch.device:
    """The device of that name, or the fastest there is.

    Args:
        name: ``auto``, ``cpu``, ``cuda`` or ``mps``.

    Returns:
        The device.

    Raises:
        ValueError: if there is no such device, here or anywhere.

    Chapter: 11, training.
    """
    there = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    here = [device for device, is_available in there.items() if is_available]
    if name == "auto":
        return torch.device(here[0])
    if name not in here:
        raise ValueError(
            f"the device must be auto or one that this machine has: got "
            f"{name!r}. Choose one of auto, {', '.join(here)}."
        )
    return torch.device(name)


def pick_precision(name: str, device: torch.device) -> str:
    """Resolve ``auto``: bfloat16 where the hardware multiplies in it.

    Elsewhere it would be emulated, and slower than float32.

    Args:
        name: ``float32``, ``bfloat16`` or ``auto``.
        device: where the model will run.

    Returns:
        ``float32`` or ``bfloat16``.

    Chapter: 11, training.
    """
    if name != "auto":
        return name
    fast = False
    if device.type == "cuda":
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    elif device.type == "cpu":
        names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
        checks = [getattr(torch.cpu, name, None) for name in names]
        fast = any(check() for check in checks if check is not None)
    return "bfloat16" if fast else "float32"


def device_of(model: Any) -> torch.device:
    """Device of a model's parameters."""
    return next(model.parameters()).device


@contextmanager
def evaluating(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Switch dropout and gradients off, and back to what they were.

    Args:
        modules: usually ``model.modules()``.

    Chapter: 12, generation.
    """
    training = [module for module in modules if module.training]
    for module in training:
        vars(module)["training"] = False  # nn.Module's own way is slow
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            vars(module)["training"] = True
