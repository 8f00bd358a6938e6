"""Call a function so that nothing outside it changes."""

import copy
import dis
import inspect
import linecache
import math
import random
import signal
import sys
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

import coursekit
from coursekit_classroom.check.forbid import callers, is_import
from coursekit_classroom.check.watch import Watch

Function = Callable[..., Any]
HERE = Path(__file__).parent
SAID = (
    "a function that is given is called as the exercise says: this call "
    "raised an error in it. Check the number, types and shapes of what you "
    "give it."
)
"""All that a sandbox reads of an error in a function that it was given."""
LOCK = threading.RLock()
"""Random numbers belong to the process, so one thread checks at a time."""
within = False
"""True while a :func:`randomness` is active, which restores everything."""
NOTHING = {"RESUME", "NOP", "LOAD_CONST", "RETURN_CONST", "RETURN_VALUE"}


@dataclass(frozen=True)
class Outcome:
    """Outcome of one call: its value, changed arguments, or exception."""

    value: Any = None
    """Return value of the function; None if it raised."""

    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Its arguments after the call, by name."""

    error: BaseException | None = None
    """Exception that it raised."""

    used: Mapping[str, int] = field(default_factory=dict)
    """If it was watched: the size of each operation's largest result."""


class Raised(Exception):  # noqa: N818
    """An exception that was raised in another process."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        """The name of the exception's class."""
        self.text = text
        """Its message, and the line that raised it."""


def call(
    function: Function,
    arguments: inspect.BoundArguments,
    seed: int = 0,
    watched: bool = False,
) -> Outcome:
    """Call a function on copies of the arguments, with seeded randomness.

    Whatever it raises is caught, but for an interrupt from the keyboard.

    Args:
        function: what to call.
        arguments: they are copied first.
        seed: of every source of random numbers.
        watched: whether to keep what it uses of PyTorch, too.
    """
    watch = Watch() if watched else None
    args = tuple(duplicate(a) for a in arguments.args)
    kwargs = {name: duplicate(a) for name, a in arguments.kwargs.items()}
    named = arguments.signature.bind(*args, **kwargs).arguments
    try:
        with (
            randomness(seed),
            torch.enable_grad(),
            usual_device(),
            watch or nullcontext(),
        ):
            value = function(*args, **kwargs)
    except (Exception, SystemExit) as error:
        return Outcome(None, named, error)
    return Outcome(value, named, used=watch.used if watch else {})


def state(value: Any) -> Any:
    """Part of an argument that is compared after a call: a model's numbers."""
    if not isinstance(value, torch.nn.Module):
        return value
    return {**dict(value.named_parameters()), **dict(value.named_buffers())}


class TooLong(BaseException):
    """Time is up. No ``Exception``: what catches these must not go on."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Stop what takes longer, by raising :class:`TooLong` in it.

    It works where Python can be interrupted: on the main thread of a system
    that has timers (``signal.setitimer``; Windows has none), and between two
    lines of Python.  Elsewhere, in another thread or during one long
    computation in C++, nothing stops.  0 or ∞ is no limit.
    """
    main = threading.current_thread() is threading.main_thread()
    limited = 0 < seconds < math.inf
    if not (main and limited and hasattr(signal, "setitimer")):
        yield
        return

    def stop(number: int, frame: Any) -> None:
        # A module that is imported in part would stay so for later calls.
        if not any(map(is_import, callers(frame))):
            raise TooLong

    handler = signal.signal(signal.SIGALRM, stop)
    # Once a second from then on: a bare `except:` may swallow the first.
    timer = signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    begin = time.monotonic()
    try:
        yield
    finally:
        left = timer[0] and max(timer[0] - time.monotonic() + begin, 1e-3)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, left, timer[1])


def plain(value: Any) -> bool:
    """True for a contiguous leaf tensor without gradient or attributes."""
    return (
        type(value) is torch.Tensor
        and value.layout is torch.strided
        and value.is_leaf
        and value.grad is None
        and value.is_contiguous()
        and not vars(value)
    )


def duplicate(value: Any) -> Any:
    """A deep copy; a tensor keeps ``requires_grad`` and loses its history."""
    if plain(value):  # what a deep copy does, in a tenth of its time
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, torch.Tensor) and not value.is_leaf:
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(duplicate(v) for v in value)
    if isinstance(value, list):
        return [duplicate(v) for v in value]
    return copy.deepcopy(value, known_copies(value))


def known_copies(value: Any) -> dict[int, Any]:
    """Copies of what a model's parts hold a dozen of: empty containers.

    A deep copy takes most of its time for them.
    """
    if not isinstance(value, torch.nn.Module):
        return {}
    return {
        id(container): type(container)()
        for part in value.modules()
        for container in vars(part).values()
        if type(container) in (OrderedDict, set) and not container
    }


@contextmanager
def usual_device() -> Iterator[None]:
    """Compute on the CPU, then put PyTorch's default device and type back.

    Random numbers depend on the device: here they do not.
    """
    device, dtype = torch.get_default_device(), torch.get_default_dtype()
    is_cpu = device.type == "cpu"
    try:
        with nullcontext() if is_cpu else torch.device("cpu"):
            yield
    finally:
        torch.set_default_dtype(dtype)
        if torch.get_default_device() != device:
            torch.set_default_device(None if is_cpu else device)


@contextmanager
def randomness(seed: int) -> Iterator[None]:
    """Seed every source of random numbers; put all back afterward.

    Within another it only seeds: the outer one puts all back, since to ask
    NumPy for its state takes longer than most calls.
    """
    global within
    with LOCK:
        if within:
            seed_all(seed)
            yield
            return
        python, numpy = random.getstate(), np.random.get_state()
        with torch.random.fork_rng(devices=[]):
            within = True
            try:
                seed_all(seed)
                yield
            finally:
                within = False
                random.setstate(python)
                np.random.set_state(numpy)


def seed_all(seed: int) -> None:
    """Seed every source of random numbers."""
    # torch.manual_seed also prepares for a GPU: 100 times slower.
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


def unwritten(function: Function, got: Outcome) -> str | None:
    """Why a function counts as not written yet, or None if it is written."""
    nothing = "Nothing is written yet."
    error = got.error
    if error and marks_a_stub(error):
        return nothing
    if got.value is Ellipsis:
        return nothing
    if got.error or got.value is not None:
        return None
    code = getattr(function, "__code__", None)
    if code and {s.opname for s in dis.get_instructions(code)} <= NOTHING:
        return nothing
    return "It returned None. Is there a `return` at its end?"


def kind(error: BaseException) -> str:
    """The name of an exception's class, wherever it was raised."""
    return error.kind if isinstance(error, Raised) else type(error).__name__


def message_of(error: BaseException) -> str:
    """The first line of an exception's message, wherever it was raised."""
    # Where there is no message, the line that raised it comes second, too.
    text = error.text if isinstance(error, Raised) else str(error).strip()
    return text.partition("\n")[0][:200]


def marks_a_stub(error: BaseException) -> bool:
    """True if an exception says that lines are still to be written.

    PyTorch raises this class too, always with a message.
    """
    return kind(error) == "NotImplementedError" and not message_of(error)


def raised_in(error: BaseException, ours: Function) -> str:
    """The learner's line that an exception comes from, or "".

    It is the last that is neither in the file of ``ours``, nor the package's,
    PyTorch's or Python's.
    """
    others = (
        HERE.parent,
        Path(coursekit.__file__).parent,
        Path(torch.__file__).parent,
        sys.base_prefix,
        inspect.getfile(inspect.unwrap(ours)),
    )
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(("<frozen", *map(str, others)))
    ]
    if not own or not own[-1].lineno:
        return ""
    line = linecache.getline(own[-1].filename, own[-1].lineno).strip()
    return f"in line {own[-1].lineno}: {line}" if line else ""


def explain(error: BaseException) -> str:
    """An exception in a line, and the line of the function it came from."""
    if isinstance(error, Raised):
        return f"{error.kind}: {error.text}".rstrip(": ")
    text = f"{type(error).__name__}: {message_of(error)}".rstrip(": ")
    frames = traceback.extract_tb(error.__traceback__)[1:]
    if not frames or Path(frames[0].filename).parent == HERE:
        return text  # it comes from the check itself
    inner = [f for f in frames if f.filename == frames[0].filename]
    if inner and inner[-1].lineno:
        place = inner[-1].filename, inner[-1].lineno
        if line := linecache.getline(*place).strip():
            text += f"\nin line {place[1]}: {line}"
    return text
