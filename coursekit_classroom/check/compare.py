"""When are two results the same, and if not: what differs, in words?"""

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from coursekit_classroom.check.call import Outcome, state

NUMBER = (bool, int, float, complex)
EXACT = (str, bytes, type(None), set, frozenset, range)
LONG = 60  # characters of a value that a message quotes


def is_value(value: Any) -> bool:
    """True if :func:`difference` can compare a value."""
    if isinstance(value, (list, tuple)):
        return all(is_value(v) for v in value)
    if isinstance(value, Mapping):
        return all(is_value(v) for v in value.values())
    return isinstance(value, (torch.Tensor, *NUMBER, *EXACT))


def difference(
    got: Any,
    expected: Any,
    rtol: float,
    atol: float,
    label: str = "Result",
    equal_nan: bool = False,
    brief: bool = False,
) -> str | None:
    """None if two results are the same, else how they differ.

    Tensors of decimals, of whole numbers and of booleans differ.

    Args:
        got: the learner's result, in the right one's form where it can be
            (:func:`in_form_of`); a list may stand for a tuple, and a number
            for a tensor without axes.
        expected: the right one: a tensor, number, string or None, or a
            tuple, list or dict of these.
        rtol: how far a number may be off, relative to the right one.
        atol: how far any number may be off.
        label: the name of the part that is being compared.
        equal_nan: whether NaN is the same as NaN.
        brief: whether it is enough to name the part where numbers differ.

    Raises:
        TypeError: if ``expected`` is nothing that can be compared.
    """
    if isinstance(expected, (torch.Tensor, *NUMBER)):
        fits = isinstance(got, (torch.Tensor, *NUMBER))
        if fits:
            return numbers(got, expected, rtol, atol, label, equal_nan, brief)
        parts: Any = ()
    elif isinstance(expected, (list, tuple)):
        fits = isinstance(got, (list, tuple)) and len(got) == len(expected)
        parts = range(len(expected))
    elif isinstance(expected, Mapping):
        fits = isinstance(got, Mapping) and set(got) == set(expected)
        parts = expected
    elif isinstance(expected, EXACT):
        fits = type(got) is type(expected) and got == expected
        parts = ()
    else:
        raise TypeError(
            "results are compared as tensors, numbers, strings or None, or "
            f"tuples, lists or dicts of these: got {type(expected)}"
        )
    if not fits:
        return mismatch(label, describe(expected), describe(got))
    for part in parts:
        inner = f"{label}[{part!r}]"
        message = difference(
            got[part], expected[part], rtol, atol, inner, equal_nan, brief
        )
        if message and isinstance(expected[part], int):  # a list of ids
            message += f" All of it: {describe(expected)} and {describe(got)}."
        if message:
            return message
    return None


def different(got: Outcome, expected: Outcome, models: bool = False) -> str:
    """The first argument that is not alike after two calls, or "".

    Of models the numbers are compared, if they are to be at all.
    """
    for name, right in expected.arguments.items():
        now = got.arguments.get(name, right)
        if models:
            right, now = state(right), state(now)
        if is_value(right) and difference(
            now, right, 0.0, 0.0, equal_nan=True, brief=True
        ):
            return name
    return ""


def in_form_of(expected: Any, got: Any) -> Any:
    """A result in the form of the right one, if that alone is different.

    A single entry stands for a number.  Lists, tuples, arrays and tensors of
    the same shape stand for one another.  All else is returned as it is.
    """
    got = from_numpy(got)
    whole = isinstance(expected, (list, tuple))
    with suppress(RuntimeError, TypeError, ValueError, OverflowError):
        if whole and isinstance(got, torch.Tensor):
            if stacked(expected).shape == got.shape:
                got = list(got)
        elif isinstance(expected, torch.Tensor) and expected.dim():
            tensor = stacked(got, expected.dtype)
            return tensor if tensor.shape == expected.shape else got
        elif not whole and isinstance(got, torch.Tensor) and got.numel() == 1:
            # A judge may need a number; one of float32 is told as such.
            keeps = got.requires_grad or got.dtype == torch.float32
            return got.reshape(()) if keeps else got.item()
    if whole and isinstance(got, (list, tuple)) and len(got) == len(expected):
        parts = [in_form_of(*both) for both in zip(expected, got, strict=True)]
        return parts if isinstance(got, list) else tuple(parts)
    if isinstance(expected, Mapping) and isinstance(got, Mapping):
        return {k: in_form_of(expected.get(k), v) for k, v in got.items()}
    return got


def from_numpy(value: Any) -> Any:
    """A number or tensor for what NumPy has; all else as it is."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in "bifc":
        return torch.as_tensor(value)
    return value


def stacked(value: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Nested lists of numbers as a tensor.

    Args:
        value: lists or tuples of tensors, arrays and numbers.
        dtype: what Python's whole numbers become, as 1 stands for 1.0.

    Raises:
        TypeError: if anything else is in them.
        RuntimeError: if they are of different lengths.
    """
    value = from_numpy(value)
    if isinstance(value, (list, tuple)):
        parts = [stacked(v, dtype) for v in value]
        return torch.stack(parts) if parts else torch.empty(0, dtype=dtype)
    if not isinstance(value, (torch.Tensor, *NUMBER)):
        raise TypeError(f"expected numbers: got {type(value)}")
    if type(value) is int and dtype != torch.bool:
        return torch.tensor(value, dtype=dtype)
    return value if isinstance(value, torch.Tensor) else as_tensor(value)


def numbers(
    got: Any,
    expected: Any,
    rtol: float,
    atol: float,
    label: str,
    equal_nan: bool,
    brief: bool = False,
) -> str | None:
    """Compare tensors and numbers: shape, then kind, then values."""
    if type(got) is type(expected) in NUMBER and got == expected:
        return None
    if isinstance(expected, float) and getattr(got, "requires_grad", False):
        return (
            f"{label}: expected a number, got a tensor that holds its graph. "
            "Call .item() on it."
        )
    a, b = as_tensor(got), as_tensor(expected)
    if a.shape != b.shape:
        return mismatch(label, f"shape {shape(b)}", shape(a))
    if a.dtype == b.dtype and torch.equal(a, b):  # as most are
        return None
    strict = b.dim() > 0 or torch.bool in (a.dtype, b.dtype)
    if strict and kind(a) != kind(b):
        return mismatch(
            label, f"{kind(b)} ({precision(b)})", f"{kind(a)} ({precision(a)})"
        )
    wide = torch.promote_types(
        torch.promote_types(a.dtype, b.dtype), torch.float64
    )
    x, y = a.to(wide), b.to(wide)
    if a.dtype == torch.float32:  # its own rounding is no mistake
        largest = y[y.isfinite()].abs().amax() if y.isfinite().any() else 0.0
        rtol, atol = max(rtol, 1e-5), max(atol, 1e-5, 1e-5 * float(largest))
    wrong = ~torch.isclose(x, y, rtol, atol, equal_nan)
    if not wrong.any():
        return None
    if brief:
        return label
    gap = torch.where(wrong, (x - y).abs(), -1.0)
    gap = torch.where(gap.isnan(), math.inf, gap)
    # PyTorch's own would import SymPy first, which takes more than a second.
    worst = np.unravel_index(int(gap.argmax()), gap.shape)
    where = f" at {[int(i) for i in worst]}" if worst else ""
    right, left = apart(b[worst].item(), a[worst].item())
    text = mismatch(label + where, right, left)
    return f"{text} {pattern(x, y, wrong)}" if x.numel() > 1 else text


def as_tensor(x: Any) -> torch.Tensor:
    """A tensor without history; a Python number keeps all its digits."""
    if isinstance(x, torch.Tensor):
        return x.detach()
    wide = torch.float64 if isinstance(x, float) else None
    return torch.as_tensor(x, dtype=wide)


def pattern(a: torch.Tensor, b: torch.Tensor, wrong: torch.Tensor) -> str:
    """Describe how many numbers differ, and any pattern in it."""
    if a.isnan().any():
        return f"{int(a.isnan().sum())} of {a.numel()} numbers are NaN."
    text = f"{int(wrong.sum())} of {a.numel()} numbers differ"
    ratio = (a / b)[b != 0]
    if len(ratio) < 2 or a.is_complex() or (a[b == 0] != 0).any():
        return f"{text}."
    mean = ratio.mean()
    share = f"{mean.item():.4g}"
    if share != "1" and (ratio - mean).abs().max() < 1e-4 * mean.abs():
        text += f"; each is {share} times what it should be"
    return f"{text}."


def apart(right: Any, got: Any) -> tuple[str, str]:
    """Two numbers with as many digits as it takes to tell them apart."""
    if not isinstance(right, float) or not isinstance(got, float):
        return describe(right), describe(got)
    for digits in range(4, 17):
        one, other = f"{right:.{digits}g}", f"{got:.{digits}g}"
        if one != other:
            break
    return one, other


def mismatch(label: str, expected: str, got: str) -> str:
    """The sentence that all differences share."""
    return f"{label}: expected {expected}, got {got}."


def describe(value: Any) -> str:
    """A value in a few words: a tensor by its shape, a text in quotes."""
    if isinstance(value, torch.Tensor):
        if value.dim() == 0 and not value.is_meta:
            return describe(value.item())
        usual = value.dtype == torch.float64
        kind_of = "" if usual else f" {precision(value)}"
        return f"a tensor {shape(value)}{kind_of}"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        inner = [describe(v) for v in value]
        text = ", ".join(inner)
        if len(text) > LONG:
            text = ", ".join(inner[:3]) + ", …"
        one = "list" if isinstance(value, list) else "tuple"
        return f"a {one} of {len(value)} ({text})" if inner else f"no {one}"
    if isinstance(value, Mapping):
        return f"a dict with {', '.join(map(repr, list(value)[:5]))}"
    if isinstance(value, (*NUMBER, *EXACT)):
        text = repr(value)
        return text if len(text) <= LONG else f"{text[: LONG - 1]}…"
    return getattr(value, "__name__", type(value).__name__)


def shape(x: torch.Tensor) -> str:
    """``(5, 7)``."""
    return str(tuple(x.shape))


def kind(x: torch.Tensor) -> str:
    """Kind of numbers in a tensor, regardless of precision."""
    if x.dtype == torch.bool:
        return "true and false"
    if x.is_complex():
        return "complex numbers"
    return "decimals" if x.is_floating_point() else "whole numbers"


def precision(x: torch.Tensor) -> str:
    """``float32`` and the like."""
    return str(x.dtype).removeprefix("torch.")
