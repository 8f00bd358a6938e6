"""Values to bytes and back, between two processes that share no trust.

A message is two lengths, JSON and a safetensors file.  The JSON is a tree of
plain values; what JSON has no word for is an object with one entry, such as
``{"tuple": [1, 2]}``, and ``{"tensor": [0, ...]}`` is the first tensor of the
file.  Nothing is unpickled, and every size has a bound, so a message of n
bytes costs its reader about n bytes.

The sandbox loads this file alone: it imports nothing of coursekit.
"""

import json
import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

HEAD = struct.Struct("<IQ")  # bytes of JSON, and of tensors
JSON_LIMIT = 4 << 20  # bytes: a list of 100,000 decimals takes half
BODY_LIMIT = 64 << 20  # bytes, also of what the shapes of tensors claim
DEPTH = 64  # lists within lists
HASHED = 2000  # keys that are no strings: they can be chosen to collide
AXES = 64
Function = Callable[..., Any]


class WireError(ValueError):
    """A value that cannot be sent, or bytes that are no message."""


class Opaque:
    """Stands for a value that does not travel: an object of some class."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __repr__(self) -> str:
        return f"<{self.__name__}>"


# -- to bytes ----------------------------------------------------------------
def pack(
    value: Any, functions: list[Function] | None = None, named: bool = True
) -> bytes:
    """A value as a message.

    Args:
        value: None, a bool, number, string, bytes, Ellipsis or tensor, or
            lists, tuples, dicts and sets of these; NumPy's count as such, and
            a range as a list.  Other objects arrive as :class:`Opaque`.
        functions: functions are appended here and travel as their number;
            without it they are opaque.
        named: whether an opaque object arrives with its class's name.

    Raises:
        WireError: if it is nested too deep, too large, or a module where
            functions are allowed.
    """
    packer = Packer(functions, named)
    try:
        text = json.dumps(packer.tree(value, 0)).encode()
    except RecursionError:
        raise WireError("the value is nested too deep") from None
    body = save(packer.tensors) if packer.tensors else b""
    if len(text) > JSON_LIMIT or len(body) > BODY_LIMIT:
        raise WireError(
            f"the value is too large: {len(text)} bytes of structure (at most "
            f"{JSON_LIMIT}) and {len(body)} of tensors (at most {BODY_LIMIT})"
        )
    return HEAD.pack(len(text), len(body)) + text + body


class Packer:
    """Builds the tree of a value, and collects its tensors."""

    def __init__(self, functions: list[Function] | None, named: bool) -> None:
        self.functions, self.named = functions, named
        self.tensors: dict[str, torch.Tensor] = {}
        self.size = 0

    def tree(self, value: Any, depth: int) -> Any:  # noqa: C901 (a table)
        """The value as JSON has it."""
        if depth > DEPTH:
            raise WireError(f"the value is nested more than {DEPTH} deep")
        if isinstance(value, np.generic):
            value = value.item()
        elif isinstance(value, np.ndarray) and value.dtype.kind in "bifc":
            value = torch.as_tensor(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, int):
            n = int.__int__(value)
            size = n.bit_length()
            return n if size <= 8192 else {"opaque": f"int of {size} bits"}
        if isinstance(value, float):
            return float.__float__(value)
        if isinstance(value, complex):
            return {"complex": [value.real, value.imag]}
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, (bytes, bytearray)):
            return {"bytes": value.hex()}
        if isinstance(value, dict):
            pairs = dict.items(value)
            return {"dict": [self.all(pair, depth) for pair in pairs]}
        if isinstance(value, (list, range)):
            if len(value) > JSON_LIMIT:
                raise WireError(f"a {type(value).__name__} that is too long")
            return self.all(value, depth)
        kinds: tuple[Any, ...] = (tuple, set, frozenset)
        for kind in kinds:
            if isinstance(value, kind):
                return {kind.__name__: self.all(kind.__iter__(value), depth)}
        if value is Ellipsis:
            return {"ellipsis": None}
        return self.other(value)

    def all(self, values: Any, depth: int) -> list[Any]:
        return [self.tree(value, depth + 1) for value in values]

    def tensor(self, value: torch.Tensor) -> Any:
        """A tensor's numbers as they are, whatever a subclass says."""
        with torch._C.DisableTorchFunctionSubclass():
            if value.is_meta or value.layout is not torch.strided:
                kind = f"tensor of {value.dtype} {value.layout}"
                return {"opaque": kind}
            plain = value.detach().as_subclass(torch.Tensor).cpu()
            plain = plain.resolve_conj().resolve_neg()
            shape = list(plain.shape)
            self.size += max(1, plain.numel()) * plain.element_size()
            if self.size > BODY_LIMIT:
                raise WireError(
                    f"tensors of more than {BODY_LIMIT} bytes, the last of "
                    f"them {tuple(plain.shape)}"
                )
            kind, strides = "plain", None
            if not plain.is_contiguous() and is_permuted(plain):
                # `view` on a transposed tensor has to fail there, too.
                strides = list(plain.stride())
                plain = plain.as_strided((plain.numel(),), (1,))
            elif plain.dtype is torch.bool:  # a byte may be neither 0 nor 1
                kind, plain = "bool", plain.to(torch.uint8)
            elif plain.is_complex():
                kind, plain = "complex", torch.view_as_real(plain)
            number, grad = len(self.tensors), bool(value.requires_grad)
            self.tensors[str(number)] = plain.contiguous().clone()
        return {"tensor": [number, kind, grad, shape, strides]}

    def other(self, value: Any) -> Any:
        if self.functions is None or not callable(value):
            name = str(type(value).__name__)[:60] if self.named else "object"
            return {"opaque": name}
        if isinstance(value, torch.nn.Module):
            raise WireError(
                "a module cannot be sent into the sandbox: got a "
                f"{type(value).__name__}. Send a function, or say in the "
                "exercise's `local` why it is checked without a sandbox."
            )
        for number, known in enumerate(self.functions):
            if known is value:
                return {"function": number}
        self.functions.append(value)
        return {"function": len(self.functions) - 1}


def is_permuted(tensor: torch.Tensor) -> bool:
    """True if only the order of the axes is odd, and no number is missing."""
    usual = tensor.dtype is not torch.bool and not tensor.is_complex()
    axes = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    return usual and tensor.permute(axes).is_contiguous()


# -- and back ----------------------------------------------------------------
def sizes(head: bytes, most: int = BODY_LIMIT) -> tuple[int, int]:
    """How many bytes of JSON and of tensors follow.

    Raises:
        WireError: if they are too many.
    """
    text, body = HEAD.unpack(head)
    if text > JSON_LIMIT or body > most:
        raise WireError(f"a message of {text} and {body} bytes is too large")
    return text, body


def unpack(text: bytes, body: bytes, function: Function | None = None) -> Any:
    """The value of a message.

    Args:
        text: its JSON, from anyone.
        body: its tensors.
        function: gives what a function's number stands for; without it a
            function is an error.

    Raises:
        WireError: if anything is not as :func:`pack` writes it.
    """
    try:
        unpacker = Unpacker(load(bytes(body)) if body else {}, function)
        return unpacker.value(json.loads(text), 0)
    except WireError:
        raise
    except (
        *(ArithmeticError, AttributeError, LookupError, MemoryError),
        *(RecursionError, RuntimeError, TypeError, ValueError),
        SafetensorError,
    ) as error:
        line = str(error).partition("\n")[0][:200]
        raise WireError(f"{type(error).__name__}: {line}") from None


class Unpacker:
    """Reads a tree; trusts nothing in it."""

    def __init__(
        self, tensors: dict[str, torch.Tensor], function: Function | None
    ) -> None:
        self.tensors, self.function = tensors, function
        self.hashed = 0
        claimed = 0
        for tensor in tensors.values():
            # Axes of length 0 do not count: a sum over one has the others.
            size = math.prod(n or 1 for n in tensor.shape)
            claimed += size * tensor.element_size()
            if tensor.dim() > AXES or claimed > BODY_LIMIT:
                raise WireError(f"tensors of more than {BODY_LIMIT} bytes")

    def value(self, tree: Any, depth: int) -> Any:  # noqa: C901 (a table)
        """The value of a tree."""
        if depth > DEPTH:
            raise WireError(f"nested more than {DEPTH} deep")
        if isinstance(tree, str):
            return printable(tree)
        if isinstance(tree, list):
            return self.all(tree, depth)
        if not isinstance(tree, dict):
            return tree
        [(kind, given)] = tree.items()
        if kind == "tuple":
            return tuple(self.all(given, depth))
        if kind in ("set", "frozenset"):
            items = self.keys(self.all(given, depth))
            return set(items) if kind == "set" else frozenset(items)
        if kind == "dict":
            pairs = [self.all(pair, depth) for pair in given]
            self.keys([key for key, _ in pairs])
            return dict(pairs)
        if kind == "tensor":
            return self.tensor(*given)
        if kind == "bytes":
            return bytes.fromhex(given)
        if kind == "complex":
            return complex(*map(float, given))
        if kind == "ellipsis":
            return Ellipsis
        if kind == "function" and self.function and type(given) is int:
            return self.function(given)
        if kind == "opaque" and given.isprintable():
            return Opaque(given[:60])
        raise WireError(f"no such kind of value: {kind[:40]!r}")

    def all(self, trees: Any, depth: int) -> list[Any]:
        if type(trees) is not list:
            raise WireError("the items of a value are a list")
        return [self.value(tree, depth + 1) for tree in trees]

    def keys(self, keys: list[Any]) -> list[Any]:
        """The keys of a set or dict, if hashing them ends soon."""
        self.hashed += sum(type(key) is not str for key in keys)
        if self.hashed > HASHED:
            raise WireError(f"more than {HASHED} keys that are no strings")
        if any(isinstance(key, torch.Tensor) for key in keys):
            raise WireError("a tensor is no key")
        return keys

    def tensor(
        self, number: int, kind: str, grad: bool, shape: Any, strides: Any
    ) -> torch.Tensor:
        """One tensor of the file, in the form that it had."""
        found = self.tensors[str(number)]
        if found.dtype is torch.bool:  # of bytes that are neither 0 nor 1
            raise WireError("true and false travel as bytes")
        if kind == "bool":
            found = found != 0
        elif kind == "complex":
            found = torch.view_as_complex(found)
        if strides is not None:
            if math.prod(shape) != found.numel() or min(strides) < 1:
                raise WireError("strides that do not fit a tensor")
            found = found.as_strided(shape, strides)
        elif list(found.shape) != shape:
            raise WireError("a tensor of another shape")
        return found.requires_grad_() if grad is True else found


def printable(text: str) -> str:
    """A text that can be written to a file: no halves of surrogates."""
    return text.encode("utf-8", "backslashreplace").decode()
