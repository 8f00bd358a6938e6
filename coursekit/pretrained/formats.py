"""The files of published models: how they are read, and their names.

A published model is a file of numbers with names. Here are the formats that
are read (safetensors, GGUF, CTranslate2; pickles are never opened) and what
every loader needs to give the numbers the names of this package's modules.
"""

import importlib
import json
import struct
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from coursekit.models import Loaded, check_vocabulary
from coursekit.weights import put_weights

__all__ = [
    "MissingModelError",
    "Tensors",
    "built",
    "finish",
    "from_printable",
    "per_block",
    "read_ct2",
    "read_gguf",
    "read_json",
    "read_safetensors",
    "rename",
    "require",
    "unfused",
]

Tensors = dict[str, Tensor]
"""Weights by name."""


class MissingModelError(ValueError):
    """A published model, or what its file is read with, is not installed."""


def read_json(path: Path) -> dict[str, Any]:
    """Read a published ``config.json``.

    Raises:
        ValueError: if it is missing, damaged, or not a table.
    """
    try:
        fields = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ValueError(
            "a published model's folder must hold a config.json, whole: got "
            f"{path} ({error}). Check the path, or fetch it again."
        ) from error
    if not isinstance(fields, dict):
        raise ValueError(
            "a configuration must have fields by name: got "
            f"{str(fields)[:40]} in {path}. Fetch it again."
        )
    return fields


def read_safetensors(path: Path) -> Tensors:
    """Read a safetensors file that somebody else wrote.

    Raises:
        ValueError: if it is missing or damaged.
    """
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise ValueError(
            "published weights must be one whole safetensors file: got "
            f"{path} ({error}). Pickles (.bin, .pt) are never opened; ask "
            "for safetensors, or fetch the file again."
        ) from error


def read_gguf(path: str | Path) -> tuple[dict[str, Any], Tensors]:
    """Read a GGUF file: a llama.cpp model, all in one.

    Its matrices are stored in blocks of 32 numbers: 4 or 8 bits each, and
    what the block is multiplied by.

    Args:
        path: the file.

    Returns:
        Its fields by name, and its tensors by name, float32.

    Raises:
        MissingModelError: if the package ``gguf`` is not installed.
        ValueError: if the file is missing or damaged.

    Chapter: 15, modern.
    """
    try:
        gguf: Any = importlib.import_module("gguf")
    except ImportError as error:
        raise MissingModelError(
            "a GGUF file is read with the package gguf: got no such "
            "package. Install it: pip install gguf==0.19.0."
        ) from error
    try:
        reader = gguf.GGUFReader(path)
        fields = {k: field.contents() for k, field in reader.fields.items()}
        tensors = {}
        for stored in reader.tensors:
            whole = gguf.quants.dequantize(stored.data, stored.tensor_type)
            tensors[stored.name] = torch.tensor(whole, dtype=torch.float32)
    except (OSError, ValueError, IndexError, KeyError) as error:
        raise ValueError(
            f"published weights must be a whole GGUF file: got {path} "
            f"({error}). Fetch it again."
        ) from error
    return fields, tensors


CT2_TYPES = (np.float32, np.int8, np.int16, np.int32, np.float16)


def read_ct2(path: str | Path) -> Tensors:
    """Read CTranslate2's ``model.bin``.

    Whole numbers are little-endian: the format's version (4 bytes), the
    model's name, a revision, and how many variables follow.  Each has its
    name, its axes (1 byte, then 4 for each length), its type (1 byte), how
    many bytes it takes, and these.  At the end: second names for some.
    A name is its length in 2 bytes, then letters, the last of them zero.

    Args:
        path: the file.

    Returns:
        The tensors by name, scalars and second names included.

    Raises:
        ValueError: if the file is missing, cut short, or damaged.

    Chapter: 15, modern.
    Test: tests/test_formats.py::test_a_model_bin_is_read_byte_by_byte
    """
    data, at = b"", 0

    def number(code: str) -> int:
        nonlocal at
        (value,) = struct.unpack_from("<" + code, data, at)
        at += struct.calcsize(code)
        return value

    def take(n_bytes: int) -> bytes:
        nonlocal at
        if at + n_bytes > len(data):
            raise ValueError(f"it ends before byte {at + n_bytes}")
        at += n_bytes
        return data[at - n_bytes : at]

    def name() -> str:
        return take(number("H")).rstrip(b"\0").decode()

    tensors = {}
    try:
        data = Path(path).read_bytes()
        if number("I") != 6:
            raise ValueError("only version 6 of the format is known")
        name(), number("I")
        for _ in range(number("I")):
            key, n_axes = name(), number("B")
            shape = [number("I") for _ in range(n_axes)]
            kind = CT2_TYPES[number("B")]
            array = np.frombuffer(take(number("I")), kind).reshape(shape)
            tensors[key] = torch.tensor(array)
        for _ in range(number("I")):
            second = name()
            tensors[second] = tensors[name()]
    except (OSError, ValueError, IndexError, KeyError, struct.error) as error:
        raise ValueError(
            "published weights must be a whole CTranslate2 file: got "
            f"{path} ({error}). Fetch it again."
        ) from error
    return tensors


# -- names -------------------------------------------------------------------


def rename(tensors: Tensors, pairs: Mapping[str, str], path: Path) -> Tensors:
    """Pick tensors by their published names; give them ours.

    Args:
        tensors: by published name.
        pairs: published name of each of ours, without ``.weight`` or
            ``.bias``, which are the same in both.
        path: where they come from, for the message.

    Raises:
        ValueError: if a weight is missing.
    """
    found = {}
    for ours, theirs in pairs.items():
        if f"{theirs}.weight" not in tensors:
            raise ValueError(
                "a published model must have all weights of its kind: got "
                f"no {theirs}.weight in {path}. Is it of another kind?"
            )
        for part in ("weight", "bias"):
            if f"{theirs}.{part}" in tensors:
                found[f"{ours}.{part}"] = tensors[f"{theirs}.{part}"]
    return found


def per_block(n: int, ours: str, theirs: str, names: str) -> dict[str, str]:
    """Write out the names of n blocks.

    Args:
        n: how many blocks.
        ours, theirs: prefixes, with {} for the block's number.
        names: lines of our name and theirs.
    """
    lines = [line.split() for line in names.splitlines() if line]
    return {
        ours.format(i) + a: theirs.format(i) + b
        for i in range(n)
        for a, b in lines
    }


def finish(
    model: nn.Module, tensors: Tensors, tokenizer: Any, path: Path
) -> Loaded:
    """Fill a model, check its tokenizer, and put it to use.

    Raises:
        ValueError: if the weights or the tokens don't fit.
    """
    put_weights(model, tensors, path)
    if tokenizer is not None:
        check_vocabulary(model, tokenizer, path)
    return Loaded(model.eval(), tokenizer)


def built(kind: Callable[[Any], nn.Module], config: Any) -> nn.Module:
    """Make a model whose weights will all be replaced."""
    with torch.random.fork_rng(devices=[]):  # loading uses no chance
        return kind(config)


def require(
    fields: Mapping[str, Any], rules: dict[str, Any], path: Path
) -> None:
    """Refuse a published configuration that our modules can't follow.

    Raises:
        ValueError: if a field has another value; absent ones have the
            right one.
    """
    for name, right in rules.items():
        if fields.get(name, right) != right:
            raise ValueError(
                f"{name} must be {right!r} for this loader: got "
                f"{fields[name]!r} in {path}. Models of that kind are not "
                "supported."
            )


def unfused(tensors: Tensors) -> Tensors:
    """Cut matrices that make several projections at once.

    ``w_qkv`` becomes ``w_q``, ``w_k`` and ``w_v``: as many rows each.
    """
    cut = {}
    for name, tensor in tensors.items():
        fused = next((w for w in ("w_qkv", "w_kv") if w in name), "w_")
        letters = fused.removeprefix("w_")
        parts = tensor.chunk(len(letters)) if letters else [tensor]
        for letter, rows in zip(letters or [""], parts, strict=True):
            cut[name.replace(fused, f"w_{letter}")] = rows
    return cut


def from_printable(token: str) -> bytes:
    """Turn a token as published files write it into its bytes.

    JSON holds no bytes, so GPT-2's files show each byte by a letter: those
    that can be printed by themselves, the other 68 by the letters from
    U+0100 on, in their order.  So ``Ġ`` (U+0120) is the space.

    Args:
        token: one token, in such letters.

    Returns:
        Its bytes.

    Raises:
        ValueError: a letter stands for no byte.

    Chapter: 15, modern.
    Test: tests/test_formats.py::test_printable_letters_are_bytes
    """
    letters = printable_letters()
    try:
        return bytes([letters[letter] for letter in token])
    except KeyError as error:
        raise ValueError(
            "each letter of a published token must stand for a byte: got "
            f"{error.args[0]!r} in {token!r}. Is it a special token?"
        ) from None


@cache
def printable_letters() -> dict[str, int]:
    """Return the byte that each letter stands for."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    letters = {chr(byte): byte for byte in shown}
    return letters | {chr(256 + i): byte for i, byte in enumerate(hidden)}
