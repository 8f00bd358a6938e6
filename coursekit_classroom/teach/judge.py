"""One submission: what its functions come to in the sandbox, and the marks.

The sandbox only ever sees cells and inputs.  What is right is computed here,
and so is every comparison.
"""

import hashlib
import inspect
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch

from coursekit_classroom.check import core
from coursekit_classroom.check.call import (
    Outcome,
    Raised,
    call,
    explain,
    kind,
    message_of,
    unwritten,
)
from coursekit_classroom.check.checker import (
    AS_IN_THE_BOOK,
    examine,
    headline,
    verdict,
)
from coursekit_classroom.check.compare import describe
from coursekit_classroom.check.core import NONE, Case, Exercise, Switches
from coursekit_classroom.check.diagnose import References, go_together
from coursekit_classroom.check.forbid import LESSON, ForbiddenError, lies_in
from coursekit_classroom.check.report import Report
from coursekit_classroom.notebooks.answers import Answer
from coursekit_classroom.notebooks.cells import NotebookError
from coursekit_classroom.notebooks.program import skeleton
from coursekit_classroom.teach import wire
from coursekit_classroom.teach.pages import LONG
from coursekit_classroom.teach.read import Submission, read_submission
from coursekit_classroom.teach.records import Result
from coursekit_classroom.teach.sandbox import (
    Limits,
    Sandbox,
    SandboxError,
    Usage,
)
from coursekit_classroom.teach.secret import derived

T = TypeVar("T")

GONE = "nothing was left of the time that an exercise may take"
BREAKDOWNS = 2  # sandboxes that one exercise may wear out
STATUS = {"passed": "ok", "wrong": "wrong", "error": "error"}
PROBLEMS = {  # of an answer, as notebooks.py finds them
    "duplicate": "Several cells define {f}: cell {n} of {file} counts, the "
    "last one in which something is written.",
    "elsewhere": "The cell for {f} holds the stub alone, so what counts is "
    "cell {n} of {file}, which defines it, too.",
    "files": "Several files define {f}; {file} counts.",
    "renamed": "The cell defines {f}, which is not the name it should have.",
    "syntax": "The cell is not valid Python.",
}
FORM = re.compile(
    r"^It raised|^The result is right, but|^Expected one of|expected (?:shape "
    r"\(|a number,|(?:decimals|whole numbers|true and false|complex numbers) )"
)
"""What a message may say of a hidden case: nothing about its numbers."""
COUNTED = re.compile(r"\d+ of \d+ numbers (?:differ|are NaN)")
NOT_RIGHT = "What it returned is not right."
TELLS = [  # the cases of a student's own test
    "True for a right function",
    "False for the program that was given",
    "False for programs with its mistakes and another",
]
LOOK_AT = ("duplicate", "elsewhere")  # of these the instructor hears, too
BLANK = "Nothing is written yet."
TOO_MUCH = (
    "What was handed in takes too long or too much memory to be read. Hand in "
    "the cells that answer, without outputs."
)
SAME = "The cell is as it was given out."
STUMBLED = "What it returned made the grader stumble"
TRIES = 4  # of each: whoever guesses is right once in 70 times
BLIND: tuple[Callable[..., Any], ...] = (
    lambda *_, **__: None,
    lambda *_, **__: 0,
    lambda *_, **__: 1,
    lambda first, *_, **__: first,
    lambda first, *_, **__: torch.zeros_like(first),
)
"""Answers that need no look at what is asked."""


@dataclass(frozen=True)
class Task:
    """One exercise, as one student is examined in it."""

    id: str
    """Of the row."""

    function: str
    points: float
    exercise: Exercise
    seed: int
    """Draws the hidden cases; some of them hold it, as an argument."""

    secret: int
    """What students must not know follows from it, and it from nothing that
    they get: the order of the cases, and that of a test's functions."""

    on: Switches = NONE
    """The variant that is asked for."""

    stub: str = ""
    """The cell as it was given out."""

    mutant: Switches = NONE
    """The mistakes that are in it, if it is a program to fix."""

    tells: bool = False
    """Whether a test is asked for that knows the mutant from the right."""

    mark: str = ""
    """Of the assignment, in the notebooks that were given out for it."""

    setup: tuple[str, ...] = ()
    """Cells that were given out, for notebooks in which they are deleted."""

    @cached_property
    def call_seed(self) -> int:
        """Of the random numbers that functions get.

        The sandbox knows it, so nothing else follows from it.
        """
        return derived(self.secret, "calls")

    @cached_property
    def cases(self) -> Sequence[Case]:
        """The hidden ones, in an order that only the secret knows.

        Where the answers are True and False, the order is all there is to
        know.
        """
        cases = list(core.draw(self.exercise, self.seed))
        random.Random(derived(self.secret, "cases")).shuffle(cases)
        return cases

    def outcomes(self, bugs: Switches = NONE) -> list[Outcome]:
        """What a program with some mistakes comes to on the hidden cases."""
        return [
            core.expected(self.exercise, case, self.call_seed, self.on | bugs)
            for case in self.cases
        ]

    def problems(self, outcomes: Sequence[Outcome]) -> list[str | None]:
        """What is wrong with each outcome on the hidden cases."""
        return [
            verdict(self.exercise, case, got, right)
            for case, got, right in zip(
                self.cases, outcomes, self.outcomes(), strict=True
            )
        ]

    def examine(
        self, answer: Answer, cells: tuple[str, ...], session: "Session"
    ) -> Result:
        """The row of an answer."""
        method = examine_test if self.tells else examine_function
        return method(self, answer, cells, session)

    def __getstate__(self) -> dict[str, Any]:
        """As it travels to a worker: the exercise by its id."""
        state = {f.name: getattr(self, f.name) for f in fields(self)}
        return state | {"exercise": core.id_of(self.exercise)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        exercise = core.find(state["exercise"])
        self.__dict__.update(state, exercise=exercise)

    def plain(self) -> dict[str, Any]:
        """What decides about the marks, as JSON has it."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        del found["exercise"]  # its code is hashed
        return found | {"on": sorted(self.on), "mutant": sorted(self.mutant)}


def prove(task: Task) -> None:
    """Try everything about a task that does not depend on a student.

    Raises:
        ValueError: if the exercise cannot be graded in a sandbox.
    """
    exercise, problem = task.exercise, task.exercise.local
    task.outcomes()
    for case in task.cases:
        bound = core.bind(exercise, case)
        try:
            wire.pack((bound.args, bound.kwargs), [])
        except wire.WireError as error:
            problem = problem or str(error)
    if problem:
        raise ValueError(
            f"a graded exercise runs in a sandbox: got {task.id}, which "
            f"cannot. {problem.rstrip('.')}. Take it out of the assignment."
        )


class StartError(OSError):
    """The sandbox does not start: this machine's fault, not a student's."""


class Session:
    """One student's sandbox, and a new one where that broke.

    An exercise may use the limits once, in all of its sandboxes together.
    """

    def __init__(self, take: Callable[[], Sandbox], limits: Limits) -> None:
        """Start none yet; ``take`` gives one."""
        self.take, self.limits = take, limits
        self.box: Sandbox | None = None
        self.cells: tuple[str, ...] | None = None
        """What runs in the sandbox."""
        self.failed: dict[int, Raised] = {}
        """What some of the cells raised."""
        self.used = Usage(0.0, 0.0, 0)
        """Of the sandboxes that are closed."""
        self.begin()

    def begin(self) -> None:
        """Go on to an exercise."""
        self.left = self.limits.cpu_s, self.limits.wall_s
        if self.box is not None:
            self.box.begin()

    def open(self) -> Sandbox:
        """Have a sandbox in which no cell has run.

        Raises:
            SandboxError: if nothing is left that it may use.
            StartError: if it does not start, which is no student's fault.
        """
        self.close()
        if min(self.left) <= 0:
            raise SandboxError("timeout", GONE)
        for _ in range(2):
            box = self.take()
            try:
                box.run([])
            except SandboxError as error:
                problem = error.text
                continue
            box.begin(*self.left)
            self.box = box
            return box
        raise StartError(f"the sandbox does not start: {problem}")

    def load(self, cells: tuple[str, ...]) -> Sandbox:
        """Run cells, unless they are what ran last."""
        box = self.box or self.open()
        if self.cells != cells:
            self.cells = None
            self.failed = box.run(cells)
            self.cells = cells
        return box

    def do(self, cells: tuple[str, ...], ask: Callable[[Sandbox], T]) -> T:
        """Ask something of a sandbox in which some cells have run.

        Raises:
            SandboxError: if that broke it; the next one is new.
        """
        try:
            return ask(self.load(cells))
        except SandboxError:
            self.close()
            raise

    def close(self) -> None:
        """Give the sandbox up, and add up what it used."""
        if self.box is not None:
            self.box.close()
            used, before = self.box.usage, self.used
            self.left = self.box.left
            self.used = Usage(
                before.cpu_s + used.cpu_s,
                before.wall_s + used.wall_s,
                max(before.memory, used.memory),
            )
        self.box = self.cells = None


@dataclass(frozen=True)
class Tried:
    """What a function came to on every case."""

    outcomes: list[Outcome]
    broken: SandboxError | None = None
    """What happened to the first sandbox that was worn out."""

    at: int = 0
    """On which case."""

    absent: str = ""
    """Why there is nothing to call."""

    bare: bool = False
    """Whether the function's body is empty."""


def examined(
    paths: Sequence[Path],
    tasks: Sequence[Task],
    first: int,
    take: Callable[[], Sandbox],
    limits: Limits,
) -> Iterator[dict[str, Any]]:
    """Examine a student in every task: a row for each, then what it took.

    Nothing that is handed in raises.  It computes with what a student has
    returned, from which only a process that can be killed is safe.

    Args:
        paths: their notebooks; there may be none.
        tasks: what is asked.
        first: with which of the tasks to begin.
        take: gives a sandbox.
        limits: what an answer may use.

    Raises:
        StartError: if no sandbox starts.
    """
    submission, problem = read(paths, tasks)
    yield {"read": True}
    session = Session(take, limits)
    try:
        for task in tasks[first:]:
            if submission is None:
                yield {"result": nothing(task, *problem)}
                continue
            session.begin()
            yield {"result": result(task, submission, session)}
    finally:
        session.close()
    yield {"used": session.used}


def read(
    paths: Sequence[Path], tasks: Sequence[Task]
) -> tuple[Submission | None, tuple[str, str]]:
    """A submission, or a status and the reason why there is none."""
    if not paths:
        return None, ("not attempted", "No notebook was handed in.")
    odd = [p.name for p in paths if p.is_symlink() or not p.is_file()]
    if odd:
        return None, ("unreadable", f"{odd[0]} is a link, not a file.")
    try:
        return read_submission(paths, tasks), ("", "")
    except NotebookError as error:
        return None, ("unreadable", str(error))
    except MemoryError:
        return None, ("unreadable", TOO_MUCH)
    except Exception as error:  # whatever a file can make us stumble over
        reason = f"The notebook cannot be read ({type(error).__name__})."
        return None, ("unreadable", reason)


def nothing(task: Task, status: str, text: str) -> Result:
    """The row of an exercise in which nothing was run."""
    return Result(task.id, task.function, task.points, status, message=text)


def result(task: Task, submission: Submission, session: Session) -> Result:
    """The row of one task."""
    answer = submission.answers[task.id]
    notes = [*submission.problems]
    if answer.problem == "missing":
        text = (
            f"There is no cell that defines {task.function}. Write it where "
            "the notebook that you were given has it."
        )
        found = nothing(task, "not attempted", text)
        return replace(found, notes=notes)
    cells = (*answer.helpers, answer.source)
    if "".join(answer.source.split()) == "".join(task.stub.split()) != "":
        found = nothing(task, "not attempted", SAME if task.mutant else BLANK)
        return replace(found, notes=notes, notebook=answer.file)
    try:
        found = task.examine(answer, cells, session)
    except StartError:
        raise
    except Exception as error:  # an answer that no comparison is ready for
        text = f"{STUMBLED}: {explain(error).splitlines()[0]}"
        found = nothing(task, "protocol", text)
    said = PROBLEMS.get(answer.problem, "").format(
        f=answer.function, file=answer.file, n=answer.cell
    )
    if said:
        notes.append(said)
    return replace(
        found,
        notes=notes,
        look_at=said if answer.problem in LOOK_AT else "",
        code="" if task.mutant else fingerprint(cells),
        notebook=answer.file,
        message=found.message[: LONG + 1],  # a page says where it cuts
    )


def fingerprint(cells: Sequence[str]) -> str:
    """A hash of an answer that other names, comments and layout don't change.

    Empty if the answer is short, no Python, or resists a look.
    """
    try:
        text = "\n".join(map(skeleton, cells))
    except Exception:
        return ""
    short = text.count("\n") < 3
    return "" if short else hashlib.sha256(text.encode()).hexdigest()[:16]


# -- a function, case by case ------------------------------------------------
def examine_function(
    task: Task, answer: Answer, cells: tuple[str, ...], session: Session
) -> Result:
    """Call a function on the hidden cases, and compare."""
    if yes_or_no(task) and not task.mutant:
        # Feedback tells which cases are True: the next answer meets them in
        # another order.
        task = replace(task, secret=derived(task.secret, answer.source))
    cases = task.cases
    calls = [core.bind(task.exercise, case) for case in cases]
    tried = call_all(
        cells,
        answer.function,
        calls,
        task.call_seed,
        session,
        task.exercise,
    )
    if tried.absent:
        return nothing(task, "error", tried.absent)
    return assess(task, cases, tried)


def call_all(
    cells: tuple[str, ...],
    function: str,
    calls: Sequence[inspect.BoundArguments],
    seed: int,
    session: Session,
    exercise: Exercise | None = None,
) -> Tried:
    """Call a function once for each case, in as few sandboxes as it takes.

    If it answers an exercise, what that forbids raises, as in a notebook.
    """
    watched = exercise is not None and exercise.manner is not None
    forbid = forbidden_in(exercise) if exercise else []
    try:
        there = session.do(cells, lambda box: box.look(function))
    except SandboxError as error:  # the cells alone: no call can do better
        return Tried([lost(error.text) for _ in calls], error)
    if there is None or not there[0]:
        last = list(session.failed.values())[-1:]
        return Tried([], absent=absent(function, there, *last))
    outcomes: list[Outcome] = []
    first: SandboxError | None = None
    at = broken = 0
    for number, bound in enumerate(calls):
        if broken == BREAKDOWNS:
            outcomes.append(lost("it was no longer called"))
            continue
        try:
            found = session.do(
                cells,
                lambda box, bound=bound: box.call(  # type: ignore[misc]
                    function, bound, seed, watched, forbid
                ),
            )
            outcomes.append(found)
        except SandboxError as error:
            if first is None:
                first, at = error, number
            broken = BREAKDOWNS if error.status == "timeout" else broken + 1
            outcomes.append(lost(error.text))
    return Tried(outcomes, first, at, bare=there[1])


def forbidden_in(exercise: Exercise) -> list[str]:
    """What raises where an exercise is answered, by its full names.

    The course does nothing in a sandbox, so nobody has to forbid it.
    """
    names = (*exercise.forbid, *LESSON)
    return [n for n in names if not lies_in(n, "coursekit_classroom")]


def lost(text: str) -> Outcome:
    """The outcome of a call that never came back."""
    return Outcome(error=Raised("NoAnswer", text))


def absent(
    function: str,
    there: tuple[bool, bool] | None,
    raised: Raised | None = None,
) -> str:
    """Why there is nothing to call."""
    if raised is not None:
        return f"The cell raised {explain(raised)}"
    if there is None:
        return f"After the cell there is no {function}."
    return f"{function} is no function."


def assess(task: Task, cases: Sequence[Case], tried: Tried) -> Result:
    """Marks and a diagnosis for what a function came to."""
    exercise, outcomes = task.exercise, tried.outcomes
    # The function itself is elsewhere: another one stands in for it.
    stands = blank if tried.bare else assess
    hints = {unwritten(stands, got) for got in outcomes}
    promised = any(right.value is not None for right in task.outcomes())
    if None not in hints and promised:
        text = " ".join(sorted(h for h in hints if h))
        return nothing(task, "not attempted", text)
    problems = task.problems(outcomes)
    right = [text is None for text in problems]
    references = References(exercise, cases, task.call_seed)
    report = examine(task.id, references, cases, outcomes, task.on)
    found = reported(task, report, cases, problems, tried)
    earning = right if report.right else [False] * len(right)
    return credited(task, found, earning)


def credited(task: Task, found: Result, right: Sequence[bool]) -> Result:
    """Points for what is right, and was not before, and is no guess."""
    now, before, notes = share_of(task, right), Fraction(), []
    if task.mutant:
        given = right_given(task)
        before = share_of(task, given)
        notes.append(
            f"The program that you were given is right on {sum(given)} of "
            f"{len(given)} cases: the points are for the others."
        )
    if yes_or_no(task) and not all(right):
        notes.append(
            "The points are for telling the cases where True is right from "
            "those where it is not: always the same answer gets none."
        )
    if 0 < now < 1 and is_blind(task, right):
        now = Fraction()
        notes.append(
            "A function that always returns None, 0, 1, its first argument or "
            "zeros is right on these cases, too, so they earn no points alone."
        )
    gained = max(Fraction(), now - before) / (1 - before)
    return replace(
        found,
        right=gained.numerator,
        total=gained.denominator,
        cause=[*found.cause, *notes],
    )


def is_blind(task: Task, right: Sequence[bool]) -> bool:
    """Whether an answer that needs no look is right wherever this one is."""
    calls = [core.bind(task.exercise, case) for case in task.cases]
    return any(
        all(
            problem is None or not ok
            for problem, ok in zip(
                task.problems([call(f, c, task.call_seed) for c in calls]),
                right,
                strict=True,
            )
        )
        for f in BLIND
    )


def share_of(task: Task, right: Sequence[bool]) -> Fraction:
    """How much of an exercise is solved.

    The fraction of the cases; of True and False the share of the ones and that
    of the others, less 1 (Youden's J), so that no constant gets anything.
    """
    if not (wanted := yes_or_no(task)):
        return Fraction(sum(right), len(right))
    both = [
        [ok for ok, value in zip(right, wanted, strict=True) if value is kind]
        for kind in (True, False)
    ]
    ones, others = (Fraction(sum(oks), len(oks)) for oks in both)
    return max(Fraction(), ones + others - 1)


def yes_or_no(task: Task) -> list[bool]:
    """The right answers, if they are True and False; else nothing."""
    values = [outcome.value for outcome in task.outcomes()]
    plain = all(isinstance(value, bool) for value in values)
    return values if plain and len(set(values)) == 2 else []


def right_given(task: Task) -> list[bool]:
    """Whether the given program is right, case by case."""
    return [p is None for p in task.problems(task.outcomes(task.mutant))]


def blank() -> None:
    """Stands for a stub that nobody has filled."""


def reported(
    task: Task,
    report: Report,
    cases: Sequence[Case],
    problems: Sequence[str | None],
    tried: Tried,
) -> Result:
    """A report as plain data, without a number that was hidden."""
    right = [text is None for text in problems]
    status, cause, n = STATUS[report.status], report.cause(), len(cases)
    at = next((i for i, ok in enumerate(right) if not ok), 0)
    said, manner = problems[at] or "", task.exercise.manner
    if manner is None or said != manner(tried.outcomes[at].used, cases[at]):
        said = without_numbers(said)
    if tried.broken is not None:
        status, cause, at = tried.broken.status, [], tried.at
        said = f"No answer: {tried.broken.text}."
    message = (
        f"{headline(cases[at], at, n)}\n{said}\n"
        f"Right on {sum(right)} of {n} cases."
    )
    if report.message.endswith(AS_IN_THE_BOOK):
        message += f" {AS_IN_THE_BOOK}"
    return Result(
        task.id,
        task.function,
        task.points,
        status,
        right=sum(right),
        total=n,
        cases=[
            [case.name or f"case {number}", ok]
            for number, (case, ok) in enumerate(
                zip(cases, right, strict=True), 1
            )
        ],
        diagnosis=sorted(report.diagnosis),
        says=[bug.says for bug in (report.mistakes or [[]])[0]],
        cause=cause,
        message="" if report else message,
        links=[list(link) for link in report.links()],
        used_library=refused(tried.outcomes, forbidden_in(task.exercise)),
    )


def refused(outcomes: Sequence[Outcome], names: Sequence[str]) -> list[str]:
    """Those of the forbidden names that calls were refused for."""
    said = {
        message_of(got.error).rpartition(" ")[2]
        for got in outcomes
        if got.error and kind(got.error) == ForbiddenError.__name__
    }
    return [n for n in names if any(lies_in(place, n) for place in said)]


def without_numbers(problem: str) -> str:
    """What is wrong, but for what was expected where it is no form.

    Somebody who hands in again would otherwise know hidden results.
    """
    reveals = "expected" in problem.lower() or re.search(r"\d", problem)
    if FORM.search(problem) or not reveals:
        return problem
    counted = COUNTED.search(problem)
    return NOT_RIGHT + (f" {counted[0]}." if counted else "")


# -- a student's own test ----------------------------------------------------
def examine_test(
    task: Task, answer: Answer, cells: tuple[str, ...], session: Session
) -> Result:
    """Give a test a right function and wrong ones, in a drawn order.

    All run here, on inputs of the student's; what they may use is limited.
    """
    programs = [NONE, task.mutant, *worse(task)]
    functions = [
        open_ended(core.mutant(task.exercise, task.on | on)) for on in programs
    ]
    order = [0, 1] * TRIES + list(range(2, len(programs)))
    random.Random(derived(task.secret, "test")).shuffle(order)
    signature = inspect.signature(lambda f: f)
    calls = [signature.bind(functions[kind]) for kind in order]
    session.open()  # an earlier cell may have left something behind
    tried = call_all(cells, answer.function, calls, task.call_seed, session)
    if tried.absent:
        return nothing(task, "error", tried.absent)
    if tried.bare and all(o.value is None for o in tried.outcomes):
        return nothing(task, "not attempted", BLANK)
    said: list[list[Outcome]] = [[], [], []]
    for number, outcome in zip(order, tried.outcomes, strict=True):
        said[min(number, 2)].append(outcome)
    if all(right_on(said)):
        # A test that only compares with the first function it has met is
        # right if that was a right one: so it meets another one first.
        session.open()
        first = 0 if order[0] else 1
        again = call_all(
            cells,
            answer.function,
            [signature.bind(functions[first])],
            task.call_seed,
            session,
        )
        said[first] += again.outcomes
    right = right_on(said)
    if all(right):
        status, message = "ok", ""
    elif tried.broken is not None:
        status = tried.broken.status
        message = f"No answer: {tried.broken.text}."
    else:
        kind = right.index(False)
        odd = next(o for o in said[kind] if truth(o) is not (kind == 0))
        status = "error" if odd.error else "wrong"
        what = (
            "a right function",
            "the program that you were given",
            "a program with the mistakes of yours and another",
        )[kind]
        came = (
            f"raised {explain(odd.error)}"
            if odd.error
            else f"returned {describe(odd.value)}"
        )
        message = f"Given {what}, {answer.function} {came}."
    return Result(
        task.id,
        task.function,
        task.points,
        status,
        right=3 * all(right),  # each can be had without looking
        total=3,
        cases=[[t, ok] for t, ok in zip(TELLS, right, strict=True)],
        message=message,
    )


def worse(task: Task) -> list[Switches]:
    """Programs with the mistakes of the given one and another, two at most.

    A test that only compares with the given program takes them for right.
    None of them raises on the hidden cases, and where the given one is wrong
    they are wrong, too: the other mistake hides nothing.
    """
    found, given = [], right_given(task)
    for name in sorted(set(task.exercise.bugs) - task.mutant):
        on = task.mutant | {name}
        if any(task.exercise.bugs[b].alone for b in on) or not go_together(
            task.exercise, *sorted(on)
        ):
            continue
        outcomes = task.outcomes(on)
        if all(
            outcome.error is None and (ok or problem)
            for outcome, problem, ok in zip(
                outcomes, task.problems(outcomes), given, strict=True
            )
        ):
            found.append(on)
    random.Random(derived(task.secret, "worse")).shuffle(found)
    return found[:2]


def right_on(said: Sequence[Sequence[Outcome]]) -> list[bool]:
    """Whether a test was always right on a right function, and on a wrong."""
    return [
        all(truth(outcome) is (kind == 0) for outcome in outcomes)
        for kind, outcomes in enumerate(said)
    ]


def open_ended(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function with a signature that takes any arguments."""
    return lambda *args, **kwargs: function(*args, **kwargs)


def truth(outcome: Outcome) -> bool | None:
    """True or False, if that is what was returned."""
    value = outcome.value
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    return value if isinstance(value, bool) else None
