"""The parent's functions that a child may call back, and how much."""

import builtins
import contextlib
import inspect
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from coursekit_classroom.check.call import SAID
from coursekit_classroom.grading import frames
from coursekit_classroom.grading.frames import Frame, FrameError
from coursekit_classroom.grading.isolation import Limits

Function = Callable[..., Any]

ASK_SIZE = 1 << 20  # bytes that a question to a parent's function may have
ASK_MEMORY = 2 << 30  # bytes that answering all of a call's may take
TOO_LONG = "the function that it was given took too long"


class Served:
    """What this process does for a child during one call, and how much.

    Args:
        functions: those that the child may call back.
        limits: the child's.
        cpu_s: what it has cost this process so far; added to here.
    """

    def __init__(
        self, functions: list[Function], limits: Limits, cpu_s: float = 0.0
    ) -> None:
        self.functions = functions
        self.limits = limits
        self.asks = 0
        self.cpu_s = cpu_s
        self.most = limits.cpu_s  # that ``cpu_s`` may come to
        # From here on: what is kept for later questions counts as well.
        self.before = address_space()
        self.tickets: list[tuple[torch.Tensor, list[Any]]] = []

    def unpack(self, frame: Frame) -> Any:
        """What the child has sent: it may be made to take long.

        Raises:
            FrameError: if it is malformed, or takes too much memory.
            TimeoutError: if this child has cost too much time.
        """
        try:
            with self.paid():
                return frames.unpack(frame)
        except TimeoutError:
            raise TimeoutError(self.spent()) from None

    def answer(self, question: Any, size: int, nonce: bytes) -> bytes:
        """Call a function, or go back through one; a frame with the answer.

        Args:
            question: as :meth:`unpack` gives it.
            size: bytes of its frame, header and body.
            nonce: for the answer.

        Raises:
            FrameError: if the question is none, or too large.
            TimeoutError: if this child has asked for too much.
        """
        self.asks += 1
        if self.asks > self.limits.asks:
            raise TimeoutError(
                f"it called the functions it was given {self.asks} times"
            )
        if not isinstance(question, dict) or size > ASK_SIZE:
            raise FrameError("a question of another form, or too large")
        self.left()  # here it ends the call; below it would be an answer
        try:
            with self.paid():
                if "backward" in question:
                    return packed(self.backward(question), nonce)
                return self.forward(question, nonce)
        except FrameError:
            raise
        except (Exception, SystemExit) as error:
            return frames.pack({"error": neutral(error)}, nonce)

    def left(self) -> float:
        """CPU seconds that this process may still spend on the child."""
        if self.cpu_s >= self.most:
            raise TimeoutError(self.spent())
        return self.most - self.cpu_s

    def spent(self) -> str:
        """What is wrong once nothing is left."""
        return (
            "reading what it sent and answering what it asked took more than "
            f"{self.limits.cpu_s:g} s of CPU time"
        )

    @contextlib.contextmanager
    def paid(self) -> Iterator[None]:
        """Bound what is done for the child, and charge it."""
        left, began = self.left(), time.process_time()
        try:
            with guarded(left, ASK_MEMORY, self.before):
                yield
        finally:
            # That clock was seen to go back a little on a virtual machine.
            self.cpu_s += max(0.0, time.process_time() - began)

    def forward(self, question: dict[str, Any], nonce: bytes) -> bytes:
        number, args = question.get("call"), question.get("args")
        kwargs = question.get("kwargs")
        if (
            type(number) is not int
            or not 0 <= number < len(self.functions)
            or not isinstance(args, tuple)
            or not isinstance(kwargs, dict)
            or not all(type(k) is str for k in kwargs)
        ):
            raise FrameError("a question of another form")
        function = self.functions[number]
        bound(function, args, kwargs)
        with torch.enable_grad():
            value = function(*args, **kwargs)
        inputs = [a for a in args if isinstance(a, torch.Tensor)]
        wanted = any(a.requires_grad for a in inputs)
        if wanted and isinstance(value, torch.Tensor) and value.requires_grad:
            answer = {"value": value, "ticket": len(self.tickets)}
            data = packed(answer, nonce)
            self.tickets.append((value, inputs))  # it can be sent
            return data
        return packed({"value": value}, nonce)

    def backward(self, question: dict[str, Any]) -> dict[str, Any]:
        ticket, grad = question["backward"], question.get("grad")
        known = type(ticket) is int and 0 <= ticket < len(self.tickets)
        if not known or not isinstance(grad, torch.Tensor):
            raise FrameError("a question of another form")
        value, inputs = self.tickets[ticket]
        leaves = [a for a in inputs if a.requires_grad]
        found = iter(
            torch.autograd.grad(
                value, leaves, grad, retain_graph=True, allow_unused=True
            )
        )
        grads = [next(found) if a.requires_grad else None for a in inputs]
        return {"value": grads}


def packed(answer: dict[str, Any], nonce: bytes) -> bytes:
    """A frame with an answer of ours.

    Raises:
        ValueError: if our function returned what cannot be sent, which is no
            fault of the question's.
    """
    try:
        return frames.pack(answer, nonce, named=False)
    except FrameError as error:
        raise ValueError(str(error)) from None


def neutral(error: BaseException) -> list[str]:
    """An error of our function's: one of Python's classes, and ``SAID``.

    A stranger reads no more of it: a message of its own could name the
    function, and so the answer.
    """
    name = type(error).__name__
    known = getattr(builtins, name, None)
    if not (isinstance(known, type) and issubclass(known, Exception)):
        name = "RuntimeError"
    return [name, SAID]


def bound(
    function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Hold a call to the arguments that the function cannot do without.

    What else one of them would take tells it from the others.  A function
    that takes anything, such as what a student's test is given, has the same
    signature as those beside it.

    Raises:
        TypeError: if there are others.
    """
    try:
        taken = inspect.signature(function).parameters.values()
    except ValueError:  # of a function in C
        return
    open_ends = (
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
    )
    if any(p.kind in open_ends for p in taken):
        return
    needed = [p for p in taken if p.default is inspect.Parameter.empty]
    inspect.Signature(needed).bind(*args, **kwargs)


def address_space() -> int:
    """Bytes that this process has reserved; 0 where it cannot be known."""
    if sys.platform != "linux":
        return 0
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * os.sysconf("SC_PAGE_SIZE")


class OutOfTime(BaseException):
    """No ``Exception``: a judge that catches these must not go on."""


EXPENDABLE = False
"""Whether the kernel may end this process (in a worker, see worker.py)."""

GRACE = 2.0  # CPU seconds between the exception and the end


@contextlib.contextmanager
def guarded(
    seconds: float, memory: int | None = None, size: int | None = None
) -> Iterator[None]:
    """Bound what a function of ours may use on a stranger's arguments.

    Where the system can: memory on Linux, CPU time in the main thread.  A
    signal handler gets no turn while C++ is at work (``torch.as_tensor`` of
    a huge range).  So in a worker a second timer has no handler: a little
    later the kernel ends the process, whatever it does.

    Args:
        seconds: of CPU time; within another guard, its clock stands still.
        memory: bytes of address space, on top of ``size``.
        size: what this process has now, unless another size is given.

    Raises:
        TimeoutError: if it took too long.
    """
    try:
        with contextlib.ExitStack() as stack:
            main = threading.current_thread() is threading.main_thread()
            if main and hasattr(signal, "SIGVTALRM"):
                handler = signal.signal(signal.SIGVTALRM, _too_long)
                stack.callback(signal.signal, signal.SIGVTALRM, handler)
                timed(stack, signal.ITIMER_VIRTUAL, seconds + 0.1)
                if EXPENDABLE:
                    timed(stack, signal.ITIMER_PROF, seconds + GRACE)
            if memory is not None and sys.platform == "linux":
                # Last: nothing of ours shall lack memory.
                import resource

                before = resource.getrlimit(resource.RLIMIT_AS)
                wanted = (address_space() if size is None else size) + memory
                free = before[0] in (-1, resource.RLIM_INFINITY)
                if free or wanted < before[0]:
                    stack.callback(
                        resource.setrlimit, resource.RLIMIT_AS, before
                    )
                    resource.setrlimit(resource.RLIMIT_AS, (wanted, before[1]))
            yield
    except OutOfTime:
        raise TimeoutError(TOO_LONG) from None


def timed(stack: contextlib.ExitStack, timer: int, seconds: float) -> None:
    """Set a timer, and have it back as it was at the end.

    It goes off again and again: what swallows the first is met by the next.
    """
    before = signal.setitimer(timer, seconds, 1.0)
    stack.callback(signal.setitimer, timer, *before)


def _too_long(*_: object) -> None:
    raise OutOfTime
