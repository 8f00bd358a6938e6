"""Runs a stranger's cells and calls their functions: a sandbox's inside.

Started as a file, with nothing of coursekit but the files that sandbox.py
names.  Reads requests from one pipe and answers on another;
both began as stdin and stdout.  What the stranger prints goes to stderr.
Nothing here protects anything once their code runs in this process: the
grader knows, and believes no more than values.
"""

import contextlib
import dis
import importlib
import json
import linecache
import os
import random
import sys
import threading
import traceback
import types
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # loaded by main()
    import numpy
    import torch

    from coursekit_classroom.check import forbid, watch
    from coursekit_classroom.teach import wire

LONG = 2000  # characters of a message
NOTHING = {"RESUME", "NOP", "LOAD_CONST", "RETURN_CONST", "RETURN_VALUE"}


class Silent:
    """Stands in for IPython: anything asked of it does nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


class Channel:
    """The grader, seen from here."""

    def __init__(self, requests: int, answers: int) -> None:
        self.requests, self.answers = requests, answers
        self.lock = threading.Lock()

    def read(self, n: int) -> bytes:
        """The next n bytes; ends the process where there are no more."""
        data = bytearray()
        while len(data) < n:
            part = os.read(self.requests, n - len(data))
            if not part:
                os._exit(0)
            data += part
        return bytes(data)

    def receive(self) -> Any:
        """The next request."""
        text, body = wire.sizes(self.read(wire.HEAD.size))
        return wire.unpack(
            self.read(text), self.read(body), lambda n: Given(self, n)
        )

    def send(self, value: Any) -> None:
        data = memoryview(wire.pack(value))
        while data:
            data = data[os.write(self.answers, data) :]

    def ask(self, question: dict[str, Any]) -> Any:
        """Ask the grader for something in the middle of a call."""
        with self.lock:
            self.send(question)
            answer = self.receive()
        if "error" in answer:
            kind, text = answer["error"]
            raise getattr(sys.modules["builtins"], kind)(text)
        return answer


class Given:
    """A function of the grader's, called over there."""

    def __init__(self, channel: Channel, number: int) -> None:
        self.channel, self.number = channel, number
        self.__name__ = self.__qualname__ = "given"  # all of them

    def __repr__(self) -> str:
        return "<function given>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        channel = self.channel
        answer = channel.ask(
            {"ask": self.number, "args": args, "kwargs": kwargs}
        )
        if "ticket" not in answer or not torch.is_grad_enabled():
            return answer["value"]

        class Remote(torch.autograd.Function):
            """Gradients flow back over there."""

            @staticmethod
            def forward(ctx: Any, *inputs: Any) -> Any:
                return answer["value"].detach()

            @staticmethod
            def backward(ctx: Any, grad: Any) -> Any:
                found = channel.ask({"ask": answer["ticket"], "grad": grad})
                return tuple(found["value"])

        return Remote.apply(*[a for a in args if isinstance(a, torch.Tensor)])


class Student:
    """The namespace that an answer's cells share."""

    def __init__(self) -> None:
        self.module = types.ModuleType("__main__")
        self.module.__dict__.update(display=print, get_ipython=Silent)
        sys.modules["__main__"] = self.module

    def run(self, cells: Sequence[str]) -> list[Any]:
        """Execute cells; what the failing ones raised, with their number."""
        failed = []
        for number, text in enumerate(cells):
            name = f"<cell {number}>"
            lines = text.splitlines(keepends=True)
            linecache.cache[name] = (len(text), None, lines, name)
            try:
                code = compile(text, name, "exec", dont_inherit=True)
                exec(code, self.module.__dict__)
            except BaseException as error:  # SystemExit as well
                failed.append([number, *described(error)])
        return failed

    def call(
        self,
        function: str,
        args: Any,
        kwargs: Any,
        seed: int,
        watched: bool,
        forbidden: Sequence[str],
    ) -> dict[str, Any]:
        """Call what an expression names, as coursekit.check does."""
        seen = watch.Watch()
        try:
            found = eval(function, self.module.__dict__)
            torch.manual_seed(seed)
            random.seed(seed)
            numpy.random.seed(seed % 2**32)
            with (
                torch.enable_grad(),
                seen if watched else contextlib.nullcontext(),
                forbid.forbidden(forbidden) as allowed,
            ):
                value = allowed(found)(*args, **kwargs)
        except BaseException as error:
            return {"error": described(error)}
        return {"value": value, "used": seen.used}

    def look(self, function: str) -> list[bool] | None:
        """Whether a name can be called, and has an empty body."""
        try:
            found = eval(function, self.module.__dict__)
        except BaseException:
            return None
        code = getattr(found, "__code__", None)
        steps = dis.get_instructions(code) if code else ()
        bare = code is not None and {s.opname for s in steps} <= NOTHING
        return [callable(found), bare]


def described(error: BaseException) -> list[str]:
    """An exception: its class, its message, the line of the cell it is in."""
    try:
        text = str(error).strip().partition("\n")[0][:200]
    except BaseException:  # a message that raises
        text = ""
    trace = traceback.extract_tb(error.__traceback__)
    inner = [f for f in trace if f.filename.startswith("<cell ")]
    if isinstance(error, SyntaxError) and error.text:
        text = f"{error.msg}\nin line {error.lineno}: {error.text.strip()}"
    elif inner and inner[-1].line:
        text += f"\nin line {inner[-1].lineno}: {inner[-1].line}"
    return [str(type(error).__name__)[:100], text[:LONG]]


# -- the course, which has nothing to say here -------------------------------
class Nothing:
    """What a stand-in offers: anything done with it comes to nothing."""

    def __call__(self, *args: Any, **kwargs: Any) -> "Nothing":
        return self

    def __getattr__(self, name: str) -> "Nothing":
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __iter__(self) -> Iterator[Any]:
        """As many as an assignment takes, ``left, right = axes``, or none."""
        asks = sys._getframe(1)
        steps = {s.offset: s for s in dis.get_instructions(asks.f_code)}
        step = steps[asks.f_lasti]
        takes = step.argval if step.opname == "UNPACK_SEQUENCE" else 0
        return iter([self] * takes)

    def __len__(self) -> int:
        return 0

    def __format__(self, _: str) -> str:
        return ""

    def __exit__(self, *_: Any) -> None:
        """The end of a ``with``; an exception goes on."""

    @classmethod
    def __torch_function__(cls, *_: Any) -> "Nothing":
        return cls()


for _name in (
    *("enter", "getitem", "setitem", "lt", "le", "gt", "ge", "neg"),
    *("add", "sub", "mul", "truediv", "matmul", "pow"),
    *("radd", "rsub", "rmul", "rtruediv", "rmatmul", "rpow"),
):
    setattr(Nothing, f"__{_name}__", Nothing.__call__)


class StandIn(types.ModuleType):
    """Stands for a module of the course: no check, no figure, no answer."""

    def check(self, *args: Any, **kwargs: Any) -> None:
        """`coursekit.check` in a student's cell does nothing here."""

    def __getattr__(self, name: str) -> Nothing:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()


class StandIns(MetaPathFinder, Loader):
    """In a student's cells, all that `coursekit_classroom` has is inert."""

    def find_spec(self, fullname: str, *_: Any) -> ModuleSpec | None:
        """All of the folder, none of which can be read here."""
        if f"{fullname}.".startswith("coursekit_classroom."):
            return ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> StandIn:
        """A module that offers every name."""
        return StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """There is nothing to run."""


# -- requests ----------------------------------------------------------------
def serve(channel: Channel) -> None:
    """Answer requests until there are no more."""
    student = Student()
    channel.send({"value": "ready"})
    while True:
        request = channel.receive()
        if "cells" in request:
            student = Student()
            answer: dict[str, Any] = {"value": student.run(request["cells"])}
        elif "look" in request:
            answer = {"value": student.look(request["look"])}
        else:
            answer = student.call(**request)
            answer |= {"args": request["args"], "kwargs": request["kwargs"]}
        with contextlib.suppress(BaseException):  # theirs may be anything
            sys.stdout.flush()
        try:
            channel.send(answer)
        except Exception as error:  # theirs may raise anything
            text = f"what the function returned cannot be graded: {error}"
            channel.send({"error": ["ValueError", text]})


def main() -> None:
    """Be a sandbox: load torch, give up what is not needed, and serve."""
    settings = json.loads(sys.argv.pop())
    channel = Channel(os.dup(0), os.dup(1))
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    ours = settings["imports"]
    sys.path[:] = [*ours, *sys.path, *settings["paths"]]
    confine = importlib.import_module("confine")
    confine.die_with_parent()
    library = confine.library() if settings["filter"] else None
    for name in ("numpy", "numpy.random", "torch", "wire", "forbid", "watch"):
        globals()[name] = importlib.import_module(name)
    del sys.path[: len(ours)]  # a student's `import wire` is another
    sys.meta_path.insert(0, StandIns())
    limits = settings["limits"]
    if sys.platform == "linux":  # what loading torch took is not counted
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limits["RLIMIT_AS"] += pages * os.sysconf("SC_PAGE_SIZE")
    confine.limit(limits)
    if settings["readable"]:
        confine.lock_files(settings["readable"], settings["folder"])
    if library:
        confine.filter_calls(library)
    serve(channel)


if __name__ == "__main__":
    _this = sys.modules["__main__"]  # the student's module takes its place
    main()
