"""Values to bytes and back, between two processes that share no trust.

A frame is a fixed head (magic, nonce, two lengths), a header of JSON, and a
body of raw bytes.  The header says what the value is; tensors and bytes lie
in the body, in order, each as long as its declared dtype and shape make it.
Nothing is unpickled and nothing is decompressed, so a frame of n bytes
becomes a value of about n bytes, and anything malformed raises one error.

This file is also loaded inside the sandbox, alone: it imports nothing of
coursekit.
"""

import json
import math
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

Function = Callable[..., Any]

MAGIC = b"CKF1"
HEAD = struct.Struct("<4s16sIQ")  # magic, nonce, header's and body's bytes
NONCE = 16  # bytes
HEADER_LIMIT = 4 << 20  # bytes: a list of 100,000 decimals takes half
BODY_LIMIT = 64 << 20  # bytes
CHUNK = 1 << 20  # bytes asked for at once: a length alone allocates nothing
DEPTH = 64  # lists within lists
HASHED = 10_000  # entries of sets and dicts that are no strings
RANGE = 1 << 20  # numbers in all ranges: they take no bytes, but time
ALIKE = 16  # of these, that one hash may have in a set or dict
INT_BITS = 8192  # more, and Python refuses to print it
SAFE = 2**53  # integers up to here are plain JSON

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.bool,
        torch.uint8,
        torch.uint16,
        torch.uint32,
        torch.uint64,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.bfloat16,
        torch.float16,
        torch.float32,
        torch.float64,
        torch.complex64,
        torch.complex128,
    )
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
STATE = torch.Generator().get_state().numel()  # bytes
COUNTERS = struct.Struct("=8xiiQ")  # after its seed: left, seeded, at
WORDS = 624  # of the Mersenne twister's state


class FrameError(ValueError):
    """A value that cannot be sent, or bytes that are no frame."""


class Opaque:
    """Stands for a value that does not travel: an object of some class."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __repr__(self) -> str:
        return f"<{self.__name__}>"


@dataclass(frozen=True)
class Frame:
    """Bytes that came in, not yet looked into."""

    nonce: bytes
    header: bytes
    body: bytes | bytearray


def pack(
    value: Any,
    nonce: bytes,
    functions: list[Function] | None = None,
    named: bool = True,
) -> bytes:
    """A value as one frame.

    Args:
        value: None, a bool, number, string, bytes, range, Ellipsis, tensor
            or generator of random numbers, or lists, tuples, dicts and sets
            of these.  Any other object arrives as an :class:`Opaque`.
        nonce: 16 bytes that the answer has to repeat.
        functions: functions are appended here and travel as their number;
            without it they are opaque.
        named: whether an opaque object arrives with the name of its class.

    Raises:
        FrameError: if it is nested too deep, too large, or a module where
            functions are allowed.
    """
    encoder = Encoder(functions, named)
    try:
        header = json.dumps(encoder.encode(value, 0)).encode()
    except RecursionError:
        raise FrameError("the value is nested too deep") from None
    body = b"".join(encoder.buffers)
    if len(header) > HEADER_LIMIT or len(body) > BODY_LIMIT:
        raise FrameError(
            f"the value is too large: {len(header)} bytes of structure (at "
            f"most {HEADER_LIMIT}) and {len(body)} of numbers (at most "
            f"{BODY_LIMIT})"
        )
    return HEAD.pack(MAGIC, nonce, len(header), len(body)) + header + body


def unpack(frame: Frame, function: Callable[[int], Any] | None = None) -> Any:
    """The value of a frame.

    Args:
        frame: from anyone; nothing in it is trusted.
        function: what a function's number stands for; without it a function
            is an error.

    Raises:
        FrameError: if anything about it is not as :func:`pack` writes it.
    """
    try:
        tree = json.loads(
            frame.header.decode("ascii"), parse_constant=_no_constant
        )
        decoder = Decoder(frame.body, function)
        value = decoder.decode(tree, 0)
        decoder.end()
    except FrameError:
        raise
    except (
        ArithmeticError,
        IndexError,
        KeyError,
        MemoryError,
        RecursionError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        said = str(error).partition("\n")[0][:200]
        raise FrameError(f"{type(error).__name__}: {said}") from None
    return value


def receive(
    read: Callable[[int], bytes], body_limit: int = BODY_LIMIT
) -> Frame | None:
    """The next frame of a stream, or None at its end.

    Args:
        read: ``read(n)`` gives 1 to n bytes, or none at the end.
        body_limit: bytes; a frame that declares more is refused unread.

    Raises:
        FrameError: if what comes is no frame, too large, or half of one.
    """
    head = _exactly(read, HEAD.size, optional=True)
    if not head:
        return None
    magic, nonce, header, body = HEAD.unpack(head)
    if magic != MAGIC:
        raise FrameError("not a frame")
    if header > HEADER_LIMIT or body > body_limit:
        raise FrameError(f"a frame of {header} and {body} bytes is too large")
    return Frame(nonce, bytes(_exactly(read, header)), _exactly(read, body))


def _exactly(
    read: Callable[[int], bytes], n: int, optional: bool = False
) -> bytearray:
    """``n`` bytes; memory grows only as they come."""
    data = bytearray()
    while len(data) < n:
        part = read(min(CHUNK, n - len(data)))
        if not part:
            if optional and not data:
                return data
            raise FrameError(f"the stream ended at {len(data)} of {n} bytes")
        data += part
    return data


def _no_constant(name: str) -> Any:
    raise FrameError(f"{name} is no JSON")


class Encoder:
    """Writes the header as a tree, and collects the body."""

    def __init__(
        self, functions: list[Function] | None, named: bool = True
    ) -> None:
        self.functions = functions
        self.named = named
        self.buffers: list[bytes] = []

    def encode(self, value: Any, depth: int) -> Any:  # noqa: C901 (a table)
        """A tree of JSON; whatever is not plain is a list with a tag."""
        if depth > DEPTH:
            raise FrameError(f"the value is nested more than {DEPTH} deep")
        if isinstance(value, np.generic):
            value = value.item()
        elif isinstance(value, np.ndarray) and value.dtype.kind in "bifc":
            value = torch.as_tensor(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, (int, float, complex)):
            return number(value)
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, (bytes, bytearray)):
            self.buffers.append(bytes(value))
            return ["bytes", len(value)]
        if isinstance(value, dict):
            items = [[k, v] for k, v in dict.items(value)]
            return ["dict", [self.all(pair, depth) for pair in items]]
        kinds: tuple[Any, ...] = (list, tuple, set, frozenset)
        for kind in kinds:
            if isinstance(value, kind):
                return [kind.__name__, self.all(kind.__iter__(value), depth)]
        if isinstance(value, range):
            ends = (value.start, value.stop, value.step)
            return ["range", *map(number, ends)]
        if value is Ellipsis:
            return ["ellipsis"]
        if isinstance(value, torch.Generator):
            self.buffers.append(raw(value.get_state()))
            return ["generator"]
        return self.other(value)

    def all(self, values: Any, depth: int) -> list[Any]:
        return [self.encode(v, depth + 1) for v in values]

    def tensor(self, value: torch.Tensor) -> Any:
        """A tensor's data as they are, whatever a subclass says of itself."""
        with torch._C.DisableTorchFunctionSubclass():
            kind = f"tensor of {value.dtype} {value.layout}"
            usual = value.dtype in NAMES and value.layout is torch.strided
            if not usual or value.is_meta:
                return ["opaque", kind]
            plain = value.detach().as_subclass(torch.Tensor)
            plain = plain.cpu().resolve_conj().resolve_neg()
            if plain.numel() * plain.element_size() > BODY_LIMIT:
                raise FrameError(
                    f"a tensor {tuple(plain.shape)} has more than "
                    f"{BODY_LIMIT} bytes"
                )
            data, strides = layout(plain)
            self.buffers.append(raw(data))
            name, shape = NAMES[plain.dtype], list(plain.shape)
            return ["tensor", name, shape, strides, bool(value.requires_grad)]

    def other(self, value: Any) -> Any:
        if self.functions is not None and callable(value):
            if isinstance(value, torch.nn.Module):
                raise FrameError(
                    "a module cannot be sent into the sandbox: got a "
                    f"{type(value).__name__}. Send a function, or say in the "
                    "exercise's `local` why it is checked without a sandbox."
                )
            for n, known in enumerate(self.functions):
                if known is value:
                    return ["function", n]
            self.functions.append(value)
            return ["function", len(self.functions) - 1]
        name = str(type(value).__name__)[:60] if self.named else "object"
        return ["opaque", name]


def number(value: Any) -> Any:
    """A number as JSON, or with a tag where JSON has none for it."""
    if isinstance(value, int):
        plain = int.__int__(value)
        if plain.bit_length() > INT_BITS:
            return ["opaque", f"int of {plain.bit_length()} bits"]
        return plain if abs(plain) <= SAFE else ["int", hex(plain)]
    if isinstance(value, float):
        real = float.__float__(value)
        return real if math.isfinite(real) else ["float", repr(real)]
    whole = complex.__complex__(value)
    return ["complex", number(whole.real), number(whole.imag)]


def layout(
    tensor: torch.Tensor,
) -> tuple[torch.Tensor, list[int] | None]:
    """A tensor's numbers in one piece, and strides if it has odd ones.

    What a learner's function is given has the strides that the case drew:
    ``view`` on a transposed tensor has to fail here too.  The gaps of a
    slice are zeros: they are nobody's business.
    """
    if tensor.is_contiguous() or tensor.numel() == 0:
        return tensor.contiguous(), None
    strides = list(tensor.stride())
    kept = tensor  # without the axes along which it is expanded
    for axis, (n, step) in enumerate(zip(tensor.shape, strides, strict=True)):
        if step == 0 and n > 1:
            kept = kept.narrow(axis, 0, 1)
    span = 1 + sum(
        (n - 1) * s for n, s in zip(kept.shape, strides, strict=True)
    )
    if span > 4 * tensor.numel() or _overlaps(kept):
        return tensor.contiguous(), None
    data = tensor.new_zeros(span)
    data.as_strided(kept.shape, kept.stride()).copy_(kept)
    return data, strides


def _overlaps(tensor: torch.Tensor) -> bool:
    """Whether two of its places may share memory."""
    end = 0
    for step, n in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if n > 1 and step <= end:
            return True
        end += (n - 1) * step
    return False


def raw(tensor: torch.Tensor) -> bytes:
    """The bytes of a contiguous tensor."""
    # Where an axis has one entry, its stride may be any, such as 0.
    flat = tensor.detach().as_strided((tensor.numel(),), (1,))
    return flat.view(torch.uint8).numpy().tobytes() if len(flat) else b""


class Decoder:
    """Reads a header's tree; trusts nothing in it."""

    def __init__(
        self,
        body: bytes | bytearray,
        function: Callable[[int], Any] | None,
    ) -> None:
        self.body = memoryview(body)
        self.at = 0
        self.function = function
        self.hashed = HASHED
        self.logical = BODY_LIMIT  # bytes that tensors may stand for
        self.ranged = RANGE  # numbers that ranges may stand for

    def decode(self, tree: Any, depth: int) -> Any:
        if tree is None or isinstance(tree, (bool, float)):
            return tree
        if isinstance(tree, str):
            return _printable(tree)
        if isinstance(tree, int):
            return _bounded(tree)
        if depth > DEPTH:
            raise FrameError(f"nested more than {DEPTH} deep")
        if not isinstance(tree, list) or not tree:
            raise FrameError("a value is a list with a tag")
        tag, *rest = tree
        read = self.readers.get(tag) if isinstance(tag, str) else None
        if read is None:
            raise FrameError(f"no such tag: {str(tag)[:40]!r}")
        return read(self, *rest, depth=depth + 1)

    def end(self) -> None:
        if self.at != len(self.body):
            left = len(self.body) - self.at
            raise FrameError(f"{left} bytes belong to nothing")

    def take(self, n: int) -> bytearray:
        """The next ``n`` bytes of the body."""
        if not 0 <= n <= len(self.body) - self.at:
            raise FrameError(
                f"a value of {n} bytes, and {len(self.body) - self.at} left"
            )
        self.at += n
        return bytearray(self.body[self.at - n : self.at])

    def read_list(self, items: Any, *, depth: int) -> list[Any]:
        if type(items) is not list:
            raise FrameError("the items of a value are a list")
        return [self.decode(item, depth) for item in items]

    def read_tuple(self, items: Any, *, depth: int) -> Any:
        return tuple(self.read_list(items, depth=depth))

    def read_set(self, items: Any, *, depth: int) -> Any:
        found = self.read_list(items, depth=depth)
        self.count(found)
        return set(found)

    def read_frozenset(self, items: Any, *, depth: int) -> Any:
        return frozenset(self.read_set(items, depth=depth))

    def read_dict(self, items: Any, *, depth: int) -> Any:
        if type(items) is not list:
            raise FrameError("the items of a value are a list")
        pairs = [self.read_list(pair, depth=depth) for pair in items]
        self.count([key for key, _ in pairs])
        return dict(pairs)

    def count(self, keys: Any) -> None:
        """Keys can be chosen to collide: n of them cost n² comparisons.

        Strings cannot: their hashes are another in each process.
        """
        chosen = [k for k in keys if type(k) is not str]
        self.hashed -= len(chosen)
        if self.hashed < 0:
            raise FrameError(f"more than {HASHED} keys that are no strings")
        if any(isinstance(k, torch.Tensor) for k in chosen):
            raise FrameError("a tensor is no key")
        alike = Counter(map(hash, chosen))
        if max(alike.values(), default=0) > ALIKE:
            raise FrameError(f"more than {ALIKE} keys that have one hash")

    def read_int(self, digits: Any, *, depth: int) -> int:
        if len(digits) > INT_BITS // 4 + 3:
            raise FrameError(f"an int of {len(digits)} digits")
        return _bounded(int(digits, 16))

    def read_float(self, name: Any, *, depth: int) -> float:
        return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[name]

    def read_complex(self, real: Any, imag: Any, *, depth: int) -> complex:
        parts = self.decode(real, depth), self.decode(imag, depth)
        if not all(type(p) is float for p in parts):
            raise FrameError("a complex number has two decimals")
        return complex(*parts)

    def read_bytes(self, n: Any, *, depth: int) -> bytes:
        return bytes(self.take(_whole(n)))

    def read_range(self, *ends: Any, depth: int) -> range:
        start, stop, step = (self.decode(end, depth) for end in ends)
        found = range(start, stop, step)
        self.ranged -= len(found)
        if self.ranged < 0:
            raise FrameError(f"ranges of more than {RANGE} numbers")
        return found

    def read_ellipsis(self, *, depth: int) -> Any:
        return Ellipsis

    def read_opaque(self, name: Any, *, depth: int) -> Opaque:
        if type(name) is not str or not name.isprintable():
            raise FrameError("a name is a line of text")
        return Opaque(name[:60])

    def read_function(self, n: Any, *, depth: int) -> Any:
        if self.function is None:
            raise FrameError("a function where none may be")
        return self.function(_whole(n))

    def read_generator(self, *, depth: int) -> torch.Generator:
        """A generator that reads nothing but its own state.

        PyTorch checks each of the two counters, but not their sum: with both
        at the end it draws from the memory behind the state.
        """
        data = self.take(STATE)
        left, _, at = COUNTERS.unpack_from(data)
        if left + at > WORDS + 1:
            raise FrameError("a generator beyond the end of its state")
        state = torch.frombuffer(data, dtype=torch.uint8)
        return torch.Generator().set_state(state.clone())

    def read_tensor(
        self, name: Any, shape: Any, strides: Any, grad: Any, *, depth: int
    ) -> torch.Tensor:
        """A tensor of its declared dtype and shape, out of as many bytes."""
        dtype, sizes = DTYPES[name], [_whole(n) for n in shape]
        size = dtype.itemsize
        if len(sizes) > DEPTH:
            raise FrameError(f"a tensor with {len(sizes)} axes")
        n = math.prod(sizes)
        # Axes of length 0 do not count: a sum over one brings back the rest.
        self.logical -= math.prod(m or 1 for m in sizes) * size
        if self.logical < 0:
            raise FrameError(f"tensors of more than {BODY_LIMIT} bytes")
        steps = None if strides is None else [_whole(s) for s in strides]
        span = n
        if steps is not None and n:
            span = 1 + sum(
                (m - 1) * s for m, s in zip(sizes, steps, strict=True)
            )
        data = self.take(span * size)
        # A byte other than 0 and 1 is no bool, whatever the header says.
        kind = torch.uint8 if dtype is torch.bool else dtype
        flat = (
            torch.frombuffer(data, dtype=kind)
            if span
            else torch.empty(0, dtype=kind)
        )
        if dtype is torch.bool:
            flat = flat != 0
        whole = (
            flat.view(sizes)
            if steps is None or not n
            else flat.as_strided(sizes, steps)
        )
        if type(grad) is not bool:
            raise FrameError("requires_grad is true or false")
        return whole.requires_grad_(grad) if grad else whole

    readers: Mapping[str, Function] = {
        "list": read_list,
        "tuple": read_tuple,
        "set": read_set,
        "frozenset": read_frozenset,
        "dict": read_dict,
        "int": read_int,
        "float": read_float,
        "complex": read_complex,
        "bytes": read_bytes,
        "range": read_range,
        "ellipsis": read_ellipsis,
        "opaque": read_opaque,
        "function": read_function,
        "generator": read_generator,
        "tensor": read_tensor,
    }


def _printable(text: str) -> str:
    """A text that can be written to a file: no halves of surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def _whole(n: Any) -> int:
    """A size: a whole number that is not negative."""
    if type(n) is not int or not 0 <= n <= 2**40:
        raise FrameError(f"a size is a whole number: got {str(n)[:40]}")
    return n


def _bounded(n: int) -> int:
    if n.bit_length() > INT_BITS:
        raise FrameError(f"an int of {n.bit_length()} bits")
    return n
