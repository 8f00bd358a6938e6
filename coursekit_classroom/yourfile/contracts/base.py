"""The learner's file as the contracts see it, and how they say no."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from coursekit_classroom.yourfile import book, entry, observe

BATCH = 32
RATE, TABLE_RATE = 1e-3, 0.03  # the ladder's; a table takes a higher one
BPE_VOCABULARY = 512
B, T, V = 5, 7, 13


class Sizes(NamedTuple):
    """Arguments of a model, after the size of its vocabulary."""

    context: int
    d_model: int
    n_heads: int
    n_blocks: int


# Sizes differ from each other, so that swapped axes are seen.
SMALL = Sizes(context=11, d_model=28, n_heads=7, n_blocks=2)


class ContractError(Exception):
    """A contract that does not hold, in a sentence."""


def title(check: Callable[..., object]) -> str:
    """The first line of a check's docstring, which follows ✓ or ✗."""
    return (check.__doc__ or "").splitlines()[0].rstrip(".")


@dataclass(frozen=True)
class File:
    """The learner's file: which of its names plays which part."""

    chapter: int
    parts: Mapping[str, Any]
    observe: Any = observe
    """:mod:`.observe`, or what calls it in another process."""

    def __getitem__(self, part: str) -> Any:
        """The learner's class or function."""
        if part not in self.parts:
            self.require(part)
        return self.parts[part]

    def require(self, *more: str) -> None:
        """Say which parts of the chapter are missing, all at once.

        Args:
            more: parts that are needed besides the chapter's.

        Raises:
            ContractError: with the lines to be written, if any is missing.
        """
        names = {part: name for name, part in book(self.chapter).items()}
        lines = [
            entry(name, part, self.chapter)
            for part, name in names.items()
            if part not in self.parts
        ]
        lines += [f'"{part}": {part},' for part in more if part not in names]
        if lines:
            raise ContractError(
                f"`parts` names each part of chapter {self.chapter}: got "
                f"{', '.join(self.parts) or 'none'}. Add, with your own "
                "names after the colons:\n" + "\n".join(lines)
            )

    def model(self, vocab_size: int = V, sizes: Sizes = SMALL) -> nn.Module:
        """A model; chapters 2 and 9 give it more sizes."""
        given = 1 if self.chapter < 2 else 2 if self.chapter < 9 else 4
        model = self["model"](vocab_size, *sizes[:given])
        return self.check_module(model, "a model")

    def rough_model(self, sizes: Sizes = SMALL) -> nn.Module:
        """A model whose logits differ clearly, however it began."""
        return self.rough(self.model(sizes=sizes), "a model")

    def check_module(self, value: Any, part: str) -> nn.Module:
        """The value, if it is a module."""
        if not self.observe.is_module(value):
            raise ContractError(
                f"{part} is an nn.Module: got {kind(value)}. Write "
                "`nn.Module` in the parentheses after the class's name."
            )
        module: nn.Module = value
        return module

    def rough(self, layer: object, part: str) -> nn.Module:
        """A module with other weights, so that none of them is 0 or 1."""
        module = self.check_module(layer, part)
        self.observe.roughen(module)
        return module

    def n_parameters(self, module: nn.Module) -> int:
        """Count the parameters of a module."""
        weights = self.observe.weights(module).values()
        return sum(weight.numel() for weight in weights)

    def tokenizer(self, text: str) -> Any:
        """The tokenizer of a training: chapter 1 shows what its own does."""
        if self.chapter == 1:
            return self["bpe"](text, BPE_VOCABULARY)
        return self["tokenizer"](text)

    def train(self, model: nn.Module, ids: Tensor, steps: int) -> Any:
        """Train as the ladder does; chapter 11 has its own learning rate."""
        rate = TABLE_RATE if self.chapter < 2 else RATE
        given = [rate] if self.chapter < 11 else []
        return self["train"](model, ids, steps, *given, BATCH)


def distance(drawn: Tensor, p: Tensor) -> float:
    """Chi-square of drawn ids, with fewer than V degrees of freedom.

    With V - 1 = 12 of them it is above 50 once in a million.
    """
    counts = torch.bincount(drawn, minlength=len(p))
    there = p > 0
    if counts[~there].any():
        return float("inf")
    expected = len(drawn) * p[there]
    return ((counts[there] - expected).square() / expected).sum().item()


def kind(value: object) -> str:
    """A value as an error shows it."""
    if isinstance(value, Tensor):
        return f"shape {tuple(value.shape)}"
    if value is None:
        return "None (is a `return` missing?)"
    return repr(value)[:60]


def check_tensor(value: object, shape: tuple[int, ...], rule: str) -> Tensor:
    """The value, if it is a tensor of that shape with finite entries."""
    if not isinstance(value, Tensor) or value.shape != shape:
        raise ContractError(
            f"{rule} {shape}: got {kind(value)}. Compare the axes."
        )
    if not value.isfinite().all():
        raise ContractError(
            f"{rule} {shape}, all finite: got {value.flatten()[:3].tolist()}"
            "…. NaN comes from a row without a key to attend to, or from "
            "the logarithm of 0."
        )
    return value
