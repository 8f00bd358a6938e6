"""The files of published models: how they are read, and their names.

A published model is a file of numbers with names. Here are the formats that
are read (safetensors, GGUF, CTranslate2; pickles are never opened) and what
every loader needs to give the numbers the names of this package's modules.
"""

import importlib
import io
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from coursekit.files import parse_json
from coursekit.saved_models import Loaded, check_vocabulary, filled

Tensors = dict[str, Tensor]
"""Weights by name."""


class MissingModelError(ValueError):
    """A published model, or what its file is read with, is not installed."""


@contextmanager
def reading(
    rule: str, path: str | Path, remedy: str = "Fetch it again."
) -> Iterator[None]:
    """Say what is wrong with a published file that can't be read.

    Raises:
        ValueError: for each error of a file, or of what is in it.
    """
    try:
        yield
    except (OSError, ValueError, LookupError, SafetensorError) as error:
        raise ValueError(f"{rule}: got {path} ({error}). {remedy}") from error


def read_json(path: Path) -> dict[str, Any]:
    """Read a published ``config.json``.

    Raises:
        ValueError: if it is missing, damaged, or not a table.
    """
    rule = "a published model's folder must hold a config.json, whole"
    with reading(rule, path, "Check the path, or fetch it again."):
        fields = parse_json(path.read_bytes())
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
    remedy = (
        "Pickles (.bin, .pt) are never opened; ask for safetensors, or "
        "fetch the file again."
    )
    rule = "published weights must be one whole safetensors file"
    with reading(rule, path, remedy):
        return load_file(path)


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
    tensors = {}
    with reading("published weights must be a whole GGUF file", path):
        reader = _bounded(gguf.GGUFReader)(path)
        fields = {k: field.contents() for k, field in reader.fields.items()}
        for stored in reader.tensors:
            array = gguf.quants.dequantize(stored.data, stored.tensor_type)
            tensors[stored.name] = torch.tensor(array, dtype=torch.float32)
    return fields, tensors


def _bounded(reader: Any) -> Any:
    """A reader of GGUF files that stops where the file does.

    Their own goes on: a damaged length of 2⁶⁰ is counted to the end.
    """

    class Bounded(reader):
        def _get(
            self,
            offset: int,
            dtype: Any,
            count: int = 1,
            *rest: Any,
            **by: Any,
        ) -> Any:
            value = super()._get(offset, dtype, count, *rest, **by)
            if len(value) < count:
                raise ValueError(f"it ends at byte {len(self.data)}")
            return value

    return Bounded


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
    Test: test_formats.py::test_a_model_bin_is_read_byte_by_byte
    """
    tensors = {}
    with reading("published weights must be a whole CTranslate2 file", path):
        file = io.BytesIO(Path(path).read_bytes())
        if _read_number(file, "I") != 6:
            raise ValueError("only version 6 of the format is known")
        _read_name(file), _read_number(file, "I")
        for _ in range(_read_number(file, "I")):
            name, n_axes = _read_name(file), _read_number(file, "B")
            shape = [_read_number(file, "I") for _ in range(n_axes)]
            dtype = CT2_TYPES[_read_number(file, "B")]
            data = _read_exactly(file, _read_number(file, "I"))
            array = np.frombuffer(data, dtype).reshape(shape)
            tensors[name] = torch.tensor(array)
        for _ in range(_read_number(file, "I")):
            second = _read_name(file)
            tensors[second] = tensors[_read_name(file)]
    return tensors


def _read_exactly(file: io.BytesIO, n_bytes: int) -> bytes:
    """Read so many bytes, or refuse a file that is cut short."""
    data = file.read(n_bytes)
    if len(data) < n_bytes:
        raise ValueError(f"it ends at byte {file.tell()}")
    return data


def _read_number(file: io.BytesIO, code: str) -> int:
    """Read a whole number, of the type that ``struct`` calls so."""
    return int(
        struct.unpack("<" + code, _read_exactly(file, struct.calcsize(code)))[
            0
        ]
    )


def _read_name(file: io.BytesIO) -> str:
    """Read a length, and as many letters."""
    return _read_exactly(file, _read_number(file, "H")).rstrip(b"\0").decode()


# -- names -------------------------------------------------------------------


def rename(
    tensors: Tensors, names: str, path: Path, n_blocks: int = 0
) -> Tensors:
    """Pick tensors by their published names; give them ours.

    Args:
        tensors: by published name.
        names: lines of our name and theirs, without ``.weight`` or
            ``.bias``, which are the same in both; {} is a block's number,
            and ``w_qkv`` what makes three projections at once.
        path: where they come from, for the message.
        n_blocks: how many blocks there are.

    Raises:
        ValueError: if a weight is missing.
    """
    renamed = {}
    for ours, theirs in _name_pairs(names, n_blocks):
        if f"{theirs}.weight" not in tensors:
            raise ValueError(
                "a published model must have all weights of its kind: got "
                f"no {theirs}.weight in {path}. Is it of another kind?"
            )
        for ending in (".weight", ".bias"):
            if theirs + ending in tensors:
                renamed[ours + ending] = tensors[theirs + ending]
    return _unfused(renamed)


def _name_pairs(names: str, n_blocks: int = 0) -> Iterator[list[str]]:
    """Each line's two names; those of a block, for each of n blocks."""
    for line in names.strip().splitlines():
        for i in range(n_blocks if "{}" in line else 1):
            yield line.replace("{}", str(i)).split()


def settings(
    fields: Mapping[str, Any], names: str, path: Path
) -> dict[str, Any]:
    """Pick fields of a published configuration; give them our names.

    Args:
        fields: by published name.
        names: lines of our name and theirs.
        path: where they come from, for the message.

    Raises:
        ValueError: if one is missing.
    """
    rule = "a published configuration must have all sizes of its model"
    with reading(rule, path, "Is it of another kind?"):
        return {ours: fields[theirs] for ours, theirs in _name_pairs(names)}


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


def finish(
    kind: Callable[[Any], nn.Module],
    config: Any,
    tensors: Tensors,
    tokenizer: Any,
    path: Path,
) -> Loaded:
    """Build a model, fill it, and check its tokenizer.

    Raises:
        ValueError: if the weights or the tokens don't fit.
    """
    model = filled(lambda: kind(config), lambda _: tensors, path)
    if tokenizer is not None:
        check_vocabulary(model, tokenizer, path)
    return Loaded(model.eval(), tokenizer)


def _unfused(tensors: Tensors) -> Tensors:
    """Cut matrices that make several projections at once.

    ``w_qkv`` becomes ``w_q``, ``w_k`` and ``w_v``: as many rows each.
    """
    cut = dict(tensors)
    for name in tensors:
        for letters in ("qkv", "kv"):
            if f"w_{letters}." in name:
                chunks = cut.pop(name).chunk(len(letters))
                for letter, rows in zip(letters, chunks, strict=True):
                    cut[name.replace(f"w_{letters}", f"w_{letter}")] = rows
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
    Test: test_formats.py::test_printable_letters_are_bytes
    """
    letters = _printable_letters()
    try:
        return bytes([letters[letter] for letter in token])
    except KeyError as error:
        raise ValueError(
            "each letter of a published token must stand for a byte: got "
            f"{error.args[0]!r} in {token!r}. Is it a special token?"
        ) from None


@cache
def _printable_letters() -> dict[str, int]:
    """Return the byte that each letter stands for."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    return letters | {chr(256 + i): byte for i, byte in enumerate(others)}
