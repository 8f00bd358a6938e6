"""The parent's functions that a child may call back, and how much."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from coursekit.grading.frames import FrameError
from coursekit.grading.isolation import Limits

Function = Callable[..., Any]

ASK_BODY = 1 << 20  # bytes that a question to a parent's function may have
ASK_MEMORY = 2 << 30  # bytes that answering one may take


class Served:
    """The functions that a child may call back, and how much."""

    def __init__(self, functions: list[Function], limits: Limits) -> None:
        self.functions = functions
        self.limits = limits
        self.asks = 0
        self.cpu_s = 0.0
        self.tickets: list[tuple[torch.Tensor, list[Any]]] = []

    def answer(self, question: Any, size: int) -> dict[str, Any]:
        """Call a function, or go back through one.

        Raises:
            FrameError: if the question is none, or too large.
            TimeoutError: if this child has asked for too much.
        """
        self.asks += 1
        if self.asks > self.limits.asks:
            raise TimeoutError(
                f"it called the functions it was given {self.asks} times"
            )
        if self.cpu_s > self.limits.cpu_s:
            raise TimeoutError(
                "the functions it was given took more than "
                f"{self.limits.cpu_s:g} s of CPU time"
            )
        if not isinstance(question, dict) or size > ASK_BODY:
            raise FrameError("a question of another form, or too large")
        began = time.process_time()
        try:
            with guarded(self.limits.cpu_s, ASK_MEMORY):
                if "backward" in question:
                    return self.backward(question)
                return self.forward(question)
        except FrameError:
            raise
        except (Exception, SystemExit) as error:
            said = str(error)[:500]
            return {"error": [type(error).__name__, said]}
        finally:
            self.cpu_s += time.process_time() - began

    def forward(self, question: dict[str, Any]) -> dict[str, Any]:
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
        with torch.enable_grad():
            value = self.functions[number](*args, **kwargs)
        inputs = [a for a in args if isinstance(a, torch.Tensor)]
        answer = {"value": value}
        wanted = any(a.requires_grad for a in inputs)
        if wanted and isinstance(value, torch.Tensor) and value.requires_grad:
            self.tickets.append((value, inputs))
            answer["ticket"] = len(self.tickets) - 1
        return answer

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


@contextlib.contextmanager
def guarded(seconds: float, memory: int) -> Iterator[None]:
    """Bound what a function of ours may use on a stranger's arguments.

    Where the system can: memory on Linux, CPU time in the main thread.
    """
    with contextlib.ExitStack() as stack:
        if sys.platform == "linux":
            import resource

            before = resource.getrlimit(resource.RLIMIT_AS)
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            wanted = pages * os.sysconf("SC_PAGE_SIZE") + memory
            if before[0] in (-1, resource.RLIM_INFINITY):
                resource.setrlimit(resource.RLIMIT_AS, (wanted, before[1]))
                stack.callback(resource.setrlimit, resource.RLIMIT_AS, before)
        main = threading.current_thread() is threading.main_thread()
        if main and hasattr(signal, "SIGVTALRM"):
            handler = signal.signal(signal.SIGVTALRM, _too_long)
            signal.setitimer(signal.ITIMER_VIRTUAL, seconds + 0.1)
            stack.callback(signal.signal, signal.SIGVTALRM, handler)
            stack.callback(signal.setitimer, signal.ITIMER_VIRTUAL, 0)
        yield


def _too_long(*_: object) -> None:
    raise TimeoutError("the function that it was given took too long")
