"""A step of the learner's own file as an assignment.

What counts are the contracts that the file does not hold as it was given
out.  They run here, in the process that examines.  The student's parts run in
the sandbox and are called from here, through ``yourfile/observe.py``: a part,
or an object that it makes, stays there and is a :class:`Remote` here, while
tensors and plain values travel.  So no verdict comes from a process in which
the student's code has run.  The capstones have no such assignment.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from coursekit_classroom import yourfile
from coursekit_classroom.check.call import Raised, marks_a_stub
from coursekit_classroom.check.core import Exercise
from coursekit_classroom.notebooks.answers import Answer
from coursekit_classroom.notebooks.program import needed, parse
from coursekit_classroom.teach.judge import (
    BLANK,
    Session,
    Task,
    absent,
    nothing,
)
from coursekit_classroom.teach.records import Result
from coursekit_classroom.teach.sandbox import SandboxError
from coursekit_classroom.teach.secret import Secret, derived
from coursekit_classroom.teach.wire import WireError
from coursekit_classroom.yourfile import observe
from coursekit_classroom.yourfile.contracts import (
    CONTRACTS,
    Contract,
    base,
    due,
)
from coursekit_classroom.yourfile.contracts.base import ContractError, File
from coursekit_classroom.yourfile.contracts.model import logits

PARTS = "parts"  # what a file's last lines define
POINTS = 10
LOGITS = next(c for c in CONTRACTS if c.check is logits)
MODULE = "coursekit_observe"
CELL = f"""\
import types as _types
{MODULE} = _types.ModuleType("{MODULE}")
exec(
    compile({inspect.getsource(observe)!r}, "<{MODULE}>", "exec"),
    {MODULE}.__dict__,
)
"""
"""Runs after the student's cells, in their namespace."""
UNWRITTEN = "Its lines are still to be written."


def id_of(chapter: int) -> str:
    """The id of a chapter's step: ``yourfile/step_04``."""
    return f"yourfile/step_{chapter:02}"


def title(contract: Contract) -> str:
    """The promise of a contract, as a learner reads it."""
    return f"{base.title(contract.check)}."


def of_step(chapter: int) -> list[Contract]:
    """The contracts that a chapter's file does not hold as it is given out.

    Args:
        chapter: one with a step, 0 to 12.

    Raises:
        ValueError: if the chapter has no step.
    """
    if chapter not in yourfile.STEPS:
        raise ValueError(
            f"a step belongs to a chapter from 0 to {max(yourfile.STEPS)}: "
            f"got {chapter}. Choose one of these."
        )
    space: dict[str, Any] = {"__name__": "given_out"}
    exec(yourfile.text(chapter), space)
    file = File(chapter, space[PARTS])
    parts = set(yourfile.book(chapter).values())
    return [c for c in due(chapter, parts) if not _holds(c, file)]


def _holds(contract: Contract, file: File) -> bool:
    """Tell whether the file that is given out holds a contract."""
    torch.manual_seed(0)
    try:
        contract.check(file)
    except Exception:  # a stub raises; the old model takes other arguments
        return False
    return True


def kept(source: str) -> str:
    """The code on which the parts depend, without the script at the end."""
    program = parse(source)
    return program.keep(needed({0: program}, [PARTS], {}).get(0, []))


def task_of(secret: Secret, step: dict[str, Any]) -> "StepTask":
    """A step of an assignment, the same for all students."""
    id = id_of(step["chapter"])
    return StepTask(
        id,
        PARTS,
        float(step["points"]),
        NO_EXERCISE,
        secret.seed("grade", id),
        secret.seed("secret", id),
        stub=step["stub"],
        chapter=step["chapter"],
        counted=tuple(step["counted"]),
    )


NO_EXERCISE = Exercise(of_step, lambda seed: [])


@dataclass(frozen=True)
class StepTask(Task):
    """A step, as one student is examined in it."""

    chapter: int = 0
    counted: tuple[str, ...] = ()
    """The names of the contracts that give points."""

    @property
    def contracts(self) -> list[Contract]:
        """Those that give points, in their order."""
        return [c for c in CONTRACTS if c.check.__name__ in self.counted]

    def __getstate__(self) -> dict[str, Any]:
        """As it travels to a worker."""
        return {**self.__dict__, "exercise": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, exercise=NO_EXERCISE)

    def examine(
        self, answer: Answer, cells: tuple[str, ...], session: Session
    ) -> Result:
        """Call the student's parts, contract by contract."""
        if "".join(answer.source.split()) == "".join(kept(self.stub).split()):
            return nothing(self, "not attempted", BLANK)
        examined = Examined(self, (*cells, CELL), session)
        try:
            return examined.result()
        except SandboxError as error:
            return examined.ended(error)


class Remote:
    """A part or an object that stays in the student's process.

    Args:
        call: calls a function of :mod:`.observe` there.
        key: how it is named there.
        text: its repr.
    """

    def __init__(
        self, call: Callable[..., Any], key: dict[str, Any], text: str
    ) -> None:
        self.call, self.key, self.text = call, key, text

    def __call__(self, *given: Any) -> Any:
        """Call it there; its value, or a :class:`Remote` for it."""
        return self.call("run", self, *given)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """A method, which runs there."""
        return partial(self.call, "method", self, name)

    def __repr__(self) -> str:
        return self.text


def argument(value: Any) -> Any:
    """An argument as it travels; a model of ours is called back."""
    if isinstance(value, nn.Module):
        return lambda ids: value(ids)
    return value.key if isinstance(value, Remote) else value


class Observer:
    """The functions of :mod:`.observe`, called in the student's process."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self.call, name)


class Examined:
    """One student's file, and what the contracts said so far."""

    def __init__(
        self, task: StepTask, cells: tuple[str, ...], session: Session
    ) -> None:
        """Nothing has run yet."""
        self.task, self.cells, self.session = task, cells, session
        self.said: list[tuple[str, str]] = []

    def call(self, name: str, *given: Any) -> Any:
        """Call a function of :mod:`.observe` in the student's process.

        Raises:
            ContractError: if something else has answered.
        """
        arguments = list(map(argument, given))
        bound = inspect.signature(observe.serve).bind(name, arguments)
        drawn = str(int(torch.randint(1 << 62, ())))
        seed = derived(self.task.secret, f"call {drawn}")
        outcome = self.session.do(
            self.cells,
            lambda box: box.call(f"{MODULE}.serve", bound, seed),
        )
        if outcome.error is not None:
            raise outcome.error
        match outcome.value:
            case ("value", value):
                return value
            case ("object", int(number), str(text)):
                return Remote(self.call, {"object": number}, text)
        raise ContractError(
            "parts are called one by one, and what they return is read: got "
            "an answer of another form. Leave names that begin with "
            "`coursekit` alone."
        )

    def file(self) -> File:
        """The student's file, as contracts take it."""
        names = self.call("names")
        parts = {
            name: Remote(self.call, {"part": name}, name) for name in names
        }
        return File(self.task.chapter, parts, Observer(self.call))

    def result(self) -> Result:
        """The row.

        Raises:
            SandboxError: if the student's code never comes back.
        """
        self.said.clear()
        self.session.load(self.cells)
        if raised := self.session.failed.get(len(self.cells) - 2):
            text = absent(PARTS, None, raised)
            return nothing(self.task, "error", text)
        broken = ""  # why the model gives no logits: then nothing else counts
        if any(c.part == LOGITS.part for c in self.task.contracts):
            broken = self.judged(LOGITS)
        for contract in self.task.contracts:
            of_model = contract.part == LOGITS.part
            said = (of_model and broken) or self.judged(contract)
            self.said.append((title(contract), said))
        return self.row()

    def judged(self, contract: Contract) -> str:
        """Why a contract does not hold; nothing if it does."""
        name = contract.check.__name__
        torch.manual_seed(derived(self.task.secret, f"contract {name}"))
        try:
            contract.check(self.file())
        except ContractError as error:
            return str(error)
        except SandboxError:
            raise
        except Raised as error:
            if marks_a_stub(error):
                return UNWRITTEN
            return f"it runs without an error: got {error.kind}: {error.text}"
        except WireError as error:
            return f"what it is given and returns can be sent: {error}."
        except Exception as error:  # what it returned is of no use
            kind = type(error).__name__
            return f"what it returned can be used: got {kind}: {error}"
        return ""

    def row(self) -> Result:
        """Points for the contracts that hold, and why the first does not."""
        wrong = [(title, said) for title, said in self.said if said]
        if len(wrong) == len(self.said) and all(
            said == UNWRITTEN for _, said in wrong
        ):
            return nothing(self.task, "not attempted", BLANK)
        total = len(self.task.contracts)
        held = len(self.said) - len(wrong)
        message = ""
        if wrong:
            name, said = wrong[0]
            message = f"{name}\n{said}\n{held} of {total} contracts hold."
        return replace(
            nothing(self.task, "wrong" if wrong else "ok", message),
            right=held,
            total=total,
            cases=[[title, not said] for title, said in self.said],
        )

    def ended(self, error: SandboxError) -> Result:
        """The row of a file with which a contract came to no end."""
        return replace(
            self.row(),
            status=error.status,
            message=f"No answer: {error.text}.",
            right=sum(not said for _, said in self.said),
            total=len(self.task.contracts),
        )
