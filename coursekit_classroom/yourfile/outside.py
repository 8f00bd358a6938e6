"""The learner's file in a process that is not trusted.

The contracts run here and the learner's parts there.  What a contract calls
a part or a model is a stand-in: it sends tensors, :mod:`.inside` calls the
part, tensors come back.  A stand-in for a module is a module that holds the
weights, so a contract may change them, optimize them, and ask for gradients.
Nothing that the learner's process prints, patches or claims is a verdict.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from coursekit_classroom.yourfile import inside
from coursekit_classroom.yourfile.learner import ContractError, File

MODULE = "coursekit_inside"
CELL = f"""\
import types as _types
{MODULE} = _types.ModuleType("{MODULE}")
exec(
    compile({inspect.getsource(inside)!r}, "<{MODULE}>", "exec"),
    {MODULE}.__dict__,
)
"""
"""Runs after the learner's cells, in their namespace."""

T = TypeVar("T")
Ask = Callable[[str, Sequence[Any]], tuple[Any, Sequence[Any]]]


class Link:
    """The functions of :mod:`.inside`, called in the learner's process.

    Args:
        ask: calls one of them there, by name; gives what it returned and its
            arguments after the call.
    """

    def __init__(self, ask: Ask) -> None:
        """Nothing is asked yet."""
        self.ask = ask
        self.dicts: list[dict[Any, Any]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """A function of that name."""
        return partial(self.call, name)

    def tables(self, model: "Module") -> list[str]:
        """The names of the parameters that are embeddings."""
        return model.tables

    def file(self, chapter: int) -> File:
        """The learner's file."""
        names, _ = self.ask("names", ())
        parts = {name: Part(self, name) for name in expect(names, list)}
        return File(chapter, parts, inside=self)

    def call(self, name: str, *given: Any) -> Any:
        """Call a function there, with what stands in for arguments."""
        args = [self.packed(value) for value in given]
        models = {x.number: x for x in given if isinstance(x, Module)}
        weights = {
            number: (model.training, model.changed())
            for number, model in models.items()
        }
        said, after = self.ask(
            "serve", (name, args, weights, torch.is_grad_enabled())
        )
        for value, sent, now in zip(given, args, after[1], strict=True):
            if isinstance(value, Tensor) and sent is value:
                restored(value, now)
        said = expect(said, dict)
        leaves = [x for x in given if wants_gradient(x)]
        for number, model in models.items():
            if number in said["weights"]:
                model.take(said["weights"][number])
            leaves += model.parameters()
        return self.value(expect(said["value"], dict), leaves)

    def packed(self, value: Any) -> Any:
        """An argument as it travels."""
        if isinstance(value, Part):
            return {"part": value.name}
        if isinstance(value, Module | Object):
            return {"live": value.number}
        if isinstance(value, nn.Module):  # one of ours
            return lambda ids: value(ids)
        if wants_gradient(value):
            return {"leaf": value.detach()}
        if isinstance(value, dict):
            if all(value is not known for known in self.dicts):
                self.dicts.append(value)
            at = [known is value for known in self.dicts].index(True)
            return {"dict": at}
        return value

    def value(self, said: dict[str, Any], leaves: list[Tensor]) -> Any:
        """What came back: a value, or what stands in for it."""
        if "plain" in said:
            return said["plain"]
        if "live" in said:
            return (Module if "names" in said else Object)(self, said)
        found = expect(said["tensor"], Tensor)
        if "ticket" not in said:
            return found
        if leaves and torch.is_grad_enabled():
            return Through.apply(self, said["ticket"], found, *leaves)
        return found.requires_grad_()

    def back(self, ticket: int, gradient: Tensor) -> list[Tensor | None]:
        """Gradients of what a result was computed from."""
        found, _ = self.ask("backward", (ticket, gradient))
        return list(expect(found, list))


class Part:
    """A class or function of the learner's."""

    def __init__(self, link: Link, name: str) -> None:
        """It is called there."""
        self.link, self.name = link, name

    def __call__(self, *given: Any) -> Any:
        """What it returns, or what stands in for it."""
        return self.link.call("run", self, *given)


class Object:
    """What a part has made and is no module, such as a tokenizer."""

    def __init__(self, link: Link, said: dict[str, Any]) -> None:
        """It stays there, under a number."""
        self.link, self.number = link, said["live"]
        self.says = str(said["says"])

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """A method, which runs there."""
        return partial(self.link.call, "method", self, name)

    def __repr__(self) -> str:
        """As it is shown there."""
        return self.says


class Module(nn.Module):
    """A module of the learner's: its weights are here too."""

    def __init__(self, link: Link, said: dict[str, Any]) -> None:
        """Each parameter has the name that it has there."""
        super().__init__()
        self.link, self.number = link, said["live"]
        self.tables = [str(name) for name in said["tables"]]
        pairs = zip(said["names"], said["weights"], strict=True)
        for name, weight in pairs:
            self._parameters[str(name)] = nn.Parameter(weight)
        self.sent = self.state()

    def forward(self, *given: Any) -> Any:
        """What it returns there."""
        return self.link.call("run", self, *given)

    def state(self) -> list[Any]:
        """Another one after any change of the weights."""
        return [(id(p), p.dtype, p._version) for p in self.parameters()]

    def changed(self) -> list[Tensor]:
        """The weights, if they are not those that are there."""
        if self.sent == self.state():
            return []
        self.sent = self.state()
        return [p.detach() for p in self.parameters()]

    def take(self, weights: Sequence[Tensor]) -> None:
        """Have the weights that are there."""
        with torch.no_grad():
            for p, weight in zip(self.parameters(), weights, strict=True):
                p.copy_(weight)
        self.sent = self.state()


class Through(torch.autograd.Function):
    """A result from there, through which gradients flow back."""

    @staticmethod
    def forward(
        ctx: Any, link: Link, ticket: int, value: Tensor, *leaves: Tensor
    ) -> Tensor:
        """The value, as it came."""
        ctx.link, ctx.ticket = link, ticket
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """Ask for the gradients of what it was computed from."""
        found = ctx.link.back(ctx.ticket, gradients[0])
        return None, None, None, *found


def wants_gradient(value: Any) -> bool:
    """Whether a tensor's gradient may be asked for."""
    return isinstance(value, Tensor) and value.requires_grad


def restored(value: Tensor, now: Any) -> None:
    """Change an argument as it was changed there."""
    like = isinstance(now, Tensor) and now.shape == value.shape
    if like and now.dtype == value.dtype and not torch.equal(now, value):
        value.copy_(now)


def expect(value: Any, kind: type[T]) -> T:
    """What came from there, if it is of a kind.

    Raises:
        ContractError: if not; :mod:`.inside` is not what answered then.
    """
    if not isinstance(value, kind):
        raise ContractError(
            "parts are called one by one, and what they return is read: got "
            "an answer of another form. Leave names that begin with "
            "`coursekit` alone."
        )
    return value
