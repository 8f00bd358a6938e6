"""Runs a stranger's cells and calls their functions: a sandbox's inside.

Started as a file, with nothing of coursekit but its neighbors frames.py and
confine.py.  Reads requests from one pipe and answers on another; both began
as stdin and stdout.  What the stranger prints goes to stderr.  Nothing here
protects anything once their code runs in this process: the parent knows.
"""

import contextlib
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

if TYPE_CHECKING:  # loaded by main(), once this process is confined
    import numpy
    import torch

    from coursekit_classroom.grading import confine, frames, watch

SKIPPED_CELLS = ("time", "timeit", "capture", "prun")  # run, but unmeasured
LONG = 2000  # characters of a message
HERE = str(Path(__file__).parent)


class Silent:
    """Stands in for IPython: anything asked of it does nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


class Channel:
    """The parent, seen from here."""

    def __init__(self, requests: int, answers: int) -> None:
        self.requests = requests
        self.answers = answers
        self.nonce = b""
        self.lock = threading.Lock()

    def receive(self) -> Any:
        """The next request; ends the process when there is none."""
        frame = frames.receive(lambda n: os.read(self.requests, n))
        if frame is None:
            os._exit(0)
        self.nonce = frame.nonce
        return frames.unpack(frame, lambda n: Proxy(self, n))

    def send(self, value: Any) -> None:
        data = memoryview(frames.pack(value, self.nonce))
        while data:
            data = data[os.write(self.answers, data) :]

    def ask(self, question: dict[str, Any]) -> Any:
        """Ask the parent for something in the middle of a call."""
        with self.lock:
            self.send({"ask": question})
            answer = self.receive()
        if "error" in answer:
            raise rebuilt(*answer["error"])
        return answer


class Proxy:
    """A function of the parent's, called over there."""

    def __init__(self, channel: Channel, number: int) -> None:
        self.channel = channel
        self.number = number
        self.__name__ = self.__qualname__ = "given"  # all of them

    def __repr__(self) -> str:
        return "<function given>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        question = {"call": self.number, "args": args, "kwargs": kwargs}
        answer = self.channel.ask(question)
        inputs = [a for a in args if isinstance(a, torch.Tensor)]
        if "ticket" in answer and torch.is_grad_enabled():
            return remote(answer, self.channel, inputs)
        return answer["value"]


def remote(answer: dict[str, Any], channel: Channel, inputs: Any) -> Any:
    """A result from over there, through which gradients flow back there."""

    class Remote(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            return answer["value"].detach()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            question = {"backward": answer["ticket"], "grad": grad}
            return tuple(channel.ask(question)["value"])

    return Remote.apply(*inputs)


def rebuilt(kind: str, text: str) -> Exception:
    """An exception like the one that the parent's function raised."""
    found = getattr(sys.modules["builtins"], kind, None)
    if isinstance(found, type) and issubclass(found, Exception):
        try:
            return found(text)
        except Exception:  # one that takes other arguments
            pass
    return RuntimeError(f"{kind}: {text}")


class Student:
    """The namespace that a submission's cells share."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.module = types.ModuleType("__main__")
        self.module.__dict__.update(display=print, get_ipython=Silent)
        sys.modules["__main__"] = self.module

    def run(self, cells: Sequence[str], first: int) -> list[Any]:
        """Execute cells; what the failing ones raised, with their number."""
        failed = []
        for number, source in enumerate(cells, first):
            name = f"<cell {number}>"
            text = plain_python(source)
            lines = text.splitlines(keepends=True)
            linecache.cache[name] = (len(text), None, lines, name)
            try:
                code = compile(text, name, "exec", dont_inherit=True)
                exec(code, self.module.__dict__)
            except BaseException as error:  # SystemExit as well
                failed.append([number, *described(error)])
        return failed

    def call(
        self, function: str, args: Any, kwargs: Any, seed: int, watched: bool
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
            ):
                value = found(*args, **kwargs)
        except BaseException as error:
            return {"error": described(error)}
        return {"value": value, "used": seen.used}

    def look(self, function: str) -> dict[str, Any]:
        """Whether a name is there, can be called, and does anything."""
        try:
            found = eval(function, self.module.__dict__)
        except BaseException:
            return {"value": None}
        code = getattr(found, "__code__", None)
        bare = code is not None and is_bare(code)
        return {"value": [callable(found), bare]}


def is_bare(code: types.CodeType) -> bool:
    """Whether a function's body is empty: `...`, `pass` or `return None`."""
    import dis

    nothing = {"RESUME", "NOP", "LOAD_CONST", "RETURN_CONST", "RETURN_VALUE"}
    return {s.opname for s in dis.get_instructions(code)} <= nothing


def described(error: BaseException) -> list[str]:
    """An exception: its class, its message, the line of the cell it is in."""
    try:
        said = str(error).strip().partition("\n")[0][:200]
    except BaseException:  # a message that raises
        said = ""
    text, trace = str(said), traceback.extract_tb(error.__traceback__)
    inner = [f for f in trace if f.filename.startswith("<cell ")]
    if isinstance(error, SyntaxError) and error.text:
        text = str(error.msg)
        text += f"\nin line {error.lineno}: {error.text.strip()}"
    elif inner and inner[-1].line:
        text += f"\nin line {inner[-1].lineno}: {inner[-1].line}"
    return [str(type(error).__name__)[:100], text[:LONG]]


def plain_python(source: str) -> str:
    """A cell without what only IPython understands, line for line.

    A line that is a magic, a `!` command or a `?` question becomes `pass`;
    only lines at which Python stumbles are looked at, so that a `%` within
    an expression stays.
    """
    lines = source.splitlines()
    first = next((i for i, s in enumerate(lines) if s.strip()), 0)
    if lines and lines[first].startswith("%%"):
        words = lines[first][2:].split() or [""]
        if words[0] not in SKIPPED_CELLS:
            return ""  # another language, or a file
        lines[first] = "pass"
    for _ in lines:
        try:
            compile("\n".join(lines), "<cell>", "exec", dont_inherit=True)
            break
        except SyntaxError as error:
            at = (error.lineno or 0) - 1
        except Exception:  # null bytes; too deep
            break
        if not 0 <= at < len(lines):
            break
        quiet = silenced(lines[at])
        if quiet is None:
            break
        lines[at] = quiet
    return "\n".join(lines) + "\n"


def silenced(line: str) -> str | None:
    """What a line of IPython's becomes; None if it is none."""
    body = line.strip()
    indent = line[: len(line) - len(line.lstrip())]
    if body.startswith(("%", "!", "?")) or body.endswith("?"):
        return f"{indent}pass"
    name, equals, value = body.partition("=")
    if equals and value.lstrip().startswith(("%", "!")):
        return f"{indent}{name.strip()} = None"
    return None


class Nothing:
    """What a stand-in offers: whatever is done with it comes to nothing."""

    def __call__(self, *args: Any, **kwargs: Any) -> "Nothing":
        return self

    def __getattr__(self, name: str) -> "Nothing":
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __iter__(self) -> Iterator[Any]:
        """As many as an assignment takes, ``left, right = axes``, or none."""
        import dis

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
    """In a student's cells, whatever `coursekit_classroom` has is inert."""

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


def serve(channel: Channel) -> None:
    """Answer requests until there are no more."""
    student = Student()
    while True:
        request = channel.receive()
        op = request["op"]
        if op == "start":
            answer: dict[str, Any] = {"value": os.getpid()}
        elif op == "run":
            if request["fresh"]:
                student.reset()
            answer = {"value": student.run(request["cells"], request["first"])}
        elif op == "look":
            answer = student.look(request["function"])
        else:
            args, kwargs = request["args"], request["kwargs"]
            answer = student.call(
                request["function"],
                args,
                kwargs,
                request["seed"],
                request["watched"],
            )
            answer |= {"args": args, "kwargs": kwargs}
        reply(channel, answer)


def reply(channel: Channel, answer: dict[str, Any]) -> None:
    """Send an answer, or why it cannot be sent."""
    with contextlib.suppress(BaseException):  # theirs may be anything
        sys.stdout.flush()
    try:
        channel.send(answer)
    except frames.FrameError as error:
        text = f"what the function returned cannot be graded: {error}"
        channel.send({"error": ["ValueError", text]})


def prepare(settings: dict[str, Any]) -> tuple[int, int]:
    """Confine this process; the two pipes to speak through."""
    requests, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    confine.show(settings["name"])
    if settings["landlock"] or settings["tied"]:
        confine.die_with_parent()
    if settings["landlock"] or settings["forked"]:
        confine.drop_capabilities()
    if files := settings["landlock"]:
        seen = files["readable"], files["hidden"], settings["box"]
        own = sys.path[: HERE in sys.path]  # until torch is loaded
        sys.path[:] = own + confine.linked(sys.path[len(own) :], *seen)
        confine.lock_files(**files)
    confine.limit(**settings["limits"])
    if settings["filter"] and confine.machine():
        confine.filter_calls()
    return requests, answers


def load() -> None:
    """Import what a sandbox has; ours cannot be imported after that."""
    for name in ("frames", "numpy", "torch", "watch"):
        globals()[name] = importlib.import_module(name)
    importlib.import_module("numpy.random")  # numpy would wait with it
    sys.path.remove(HERE)  # a student's `import frames` is another
    sys.meta_path.insert(0, StandIns())


def begin(settings: dict[str, Any], loaded: bool = True) -> None:
    """Be a sandbox: confine this process, have torch, and serve."""
    channel = Channel(*prepare(settings))
    if not loaded:
        load()
    confine.limit_more(settings["cpu_s"], settings["memory"])
    serve(channel)


def main() -> None:
    """Be one sandbox, or the server that forks them."""
    settings = json.loads(sys.argv.pop())
    sys.path[:] = [HERE, *sys.path, *settings["paths"]]
    globals()["confine"] = importlib.import_module("confine")
    if "requests" not in settings:
        begin(settings, loaded=False)
        return
    forks = importlib.import_module("forks")
    load()
    steps = begin, confine.die_with_parent, confine.syscall
    forks.serve(settings["requests"], *steps)


if __name__ == "__main__":
    _this = sys.modules["__main__"]  # the student's module takes its place
    main()
