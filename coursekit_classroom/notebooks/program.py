"""What a cell's code needs, and where that comes from.

To call one function of a notebook it takes the statements that the function
depends on, not the hour of experiments around them.  Which names a statement
reads and which it sets is read off its symbol table; nothing is run.
"""

import ast
import re
import symtable
import warnings
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

LONGEST = 100_000  # characters of a cell: more is no code
STATEMENTS = 2000  # at the top of a cell
MAGICS = 50  # lines of a cell that only IPython understands
# The quantifiers with a second + don't backtrack: lines can be long.
MAGIC = re.compile(r"\s*+(?:[%!?]|[\w., ]++=\s*+[%!]|[^?]*+\?+\s*+$)")
RUNS_PYTHON = {"%%time", "%%timeit", "%%capture", "%%prun"}
BROKEN = (SyntaxError, ValueError, RecursionError, MemoryError)
NOT_HERE = {"check", "get_ipython"}  # calls of these are not the answer's


@dataclass(frozen=True)
class Statement:
    """One statement at the top of a cell."""

    first: int
    """Its first line, from 1, decorators included."""

    last: int
    """Its last line."""

    sets: frozenset[str]
    """Names that it defines, imports or assigns."""

    changes: frozenset[str]
    """Names of what it changes in place, perhaps: ``x.append(1)``."""

    now: frozenset[str]
    """Names that it reads when it runs."""

    later: frozenset[str]
    """Names that its functions read when they are called."""

    sure: bool
    """Whether it sets what it sets in any case."""

    imports: bool
    """Whether it is an import."""

    star: bool
    """Whether it is ``from … import *``, which may set any name."""

    side: bool
    """Whether it runs a check or talks to IPython: never kept."""

    @property
    def reads(self) -> frozenset[str]:
        """Names that it takes from outside itself."""
        return self.now | self.later


@dataclass(frozen=True)
class Program:
    """A cell as Python: its lines, and what each statement is for."""

    source: str
    statements: tuple[Statement, ...]
    functions: tuple[str, ...]
    """The functions and classes it defines, in order."""

    stub: bool
    """Whether it says nothing but ``...``."""

    def keep(self, chosen: Collection[int]) -> str:
        """The source with the other statements blanked, line by line."""
        lines = self.source.split("\n")
        drop, stay = set[int](), set[int]()
        for number, statement in enumerate(self.statements):
            part = range(statement.first - 1, statement.last)
            (stay if number in chosen else drop).update(part)
        kept = [
            "" if at in drop - stay else line for at, line in enumerate(lines)
        ]
        return "\n".join(kept).rstrip()


def parse(source: str) -> Program:
    """Read a cell; magics and shell lines become nothing.

    Raises:
        SyntaxError: if the rest is not Python.
    """
    source = without_cell_magic(source)
    if len(source) > LONGEST:
        raise SyntaxError(f"a cell of {len(source):,} characters")
    source, tree = without_magics(source)
    if len(tree.body) > STATEMENTS:
        raise SyntaxError(f"a cell of {len(tree.body):,} statements")
    try:
        found = tuple(statement(node) for node in tree.body)
    except BROKEN as error:
        raise SyntaxError(str(error)) from error
    names = tuple(
        node.name
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    )
    return Program(source, found, names, all(map(is_empty, tree.body)))


def skeleton(source: str) -> str:
    """A cell without its names, comments and layout: what copies share."""
    tree = ast.parse(parse(source).source)
    known = dict[str, str]()
    for node in ast.walk(tree):
        for field in ("id", "arg", "name"):
            name = getattr(node, field, None)
            if isinstance(name, str) and not isinstance(node, ast.alias):
                new = known.setdefault(name, f"v{len(known)}")
                setattr(node, field, new)
    return ast.unparse(tree)


def is_empty(node: ast.stmt) -> bool:
    """Whether a statement is a stub, or says nothing."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return all(map(is_empty, node.body))
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, ast.Pass)


def without_cell_magic(source: str) -> str:
    """A cell without its ``%%`` line, or nothing if it is not Python."""
    lines = source.split("\n")
    at = next((i for i, line in enumerate(lines) if line.strip()), 0)
    if not lines[at].startswith("%%"):
        return source
    if lines[at].split()[0] not in RUNS_PYTHON:
        return ""
    lines[at] = ""
    return "\n".join(lines)


def without_magics(source: str) -> tuple[str, ast.Module]:
    """Replace the lines that only IPython understands, one after another.

    Only a line that Python stumbles over is touched, so that a ``%`` at the
    start of a line within brackets stays what it is.
    """
    lines = source.split("\n")
    for _ in range(MAGICS):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # "\d" is no mistake of ours
                return "\n".join(lines), ast.parse("\n".join(lines))
        except BROKEN as error:
            at = getattr(error, "lineno", None) or 0
            near = [n for n in (at - 1, at - 2) if 0 <= n < len(lines)]
            magic = next((n for n in near if MAGIC.match(lines[n])), None)
            if magic is None or not isinstance(error, SyntaxError):
                text = getattr(error, "msg", None) or type(error).__name__
                where = ("cell", at, None, None)
                raise SyntaxError(text, where) from None
            indent = lines[magic][: -len(lines[magic].lstrip())]
            lines[magic] = f"{indent}pass"
    raise SyntaxError(f"a cell with {MAGICS} or more magics")


def statement(node: ast.stmt) -> Statement:
    """What one statement sets and reads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = symtable.symtable(ast.unparse(node), "cell", "exec")
    sets, now, later = set[str](), set[str](), set[str]()
    for symbol in table.get_symbols():
        if symbol.is_assigned() or symbol.is_imported():
            sets.add(symbol.get_name())
        if symbol.is_referenced():
            now.add(symbol.get_name())
    now |= {  # x += 1 reads x, which the table does not say
        n.target.id
        for n in outside_functions(node)
        if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name)
    }
    scopes = [(scope, False) for scope in table.get_children()]
    while scopes:
        scope, waits = scopes.pop()
        waits = waits or not runs_now(scope)
        scopes += [(inner, waits) for inner in scope.get_children()]
        for symbol in scope.get_symbols():
            if symbol.is_global() and symbol.is_declared_global():
                sets.add(symbol.get_name())
            if symbol.is_global() and symbol.is_referenced():
                (later if waits else now).add(symbol.get_name())
    star = isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
    marked = getattr(node, "decorator_list", [])
    return Statement(
        min([node.lineno, *(mark.lineno for mark in marked)]),
        node.end_lineno or node.lineno,
        frozenset(sets),
        frozenset(changed(node)),
        frozenset(now),
        frozenset(later),
        not isinstance(node, (ast.If, ast.Try, ast.For, ast.While)),
        isinstance(node, (ast.Import, ast.ImportFrom)),
        star,
        any(call_name(n) in NOT_HERE for n in outside_functions(node)),
    )


def runs_now(scope: symtable.SymbolTable) -> bool:
    """Whether a scope is a class's or a comprehension's."""
    inside = ("listcomp", "setcomp", "dictcomp", "genexpr")
    return scope.get_type() == "class" or scope.get_name() in inside


def outside_functions(node: ast.AST) -> Iterable[ast.AST]:
    """The nodes of a statement that run when it runs."""
    later = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
    todo = [node]
    while todo:
        node = todo.pop()
        if isinstance(node, later):
            continue
        yield node
        todo += ast.iter_child_nodes(node)


def call_name(node: ast.AST) -> str:
    """``check`` for ``coursekit.check(…)``; nothing if it is no call."""
    if not isinstance(node, ast.Call):
        return ""
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def changed(node: ast.AST) -> set[str]:
    """Names of what is changed in place: ``x[0] = 1``, ``x.append(1)``."""
    found = set()
    for part in outside_functions(node):
        target: ast.AST | None = None
        if isinstance(part, (ast.Attribute, ast.Subscript)):
            target = None if isinstance(part.ctx, ast.Load) else part
        elif isinstance(part, ast.Expr) and isinstance(part.value, ast.Call):
            target = part.value.func
        while isinstance(target, (ast.Attribute, ast.Subscript)):
            target = target.value
            if isinstance(target, ast.Name):
                found.add(target.id)
    return found


def needed(
    programs: Mapping[int, Program],
    names: Iterable[str],
    home: Mapping[str, int],
) -> dict[int, list[int]]:
    """The statements that some names depend on, when all cells are run.

    What a statement reads has the value it has there; what a function reads
    has the last one.

    Args:
        programs: the cells, by number, in their order.
        names: what is to be called.
        home: the one cell that counts for a name that several define.

    Returns:
        the numbers of the statements, by the number of their cell.
    """
    places = [
        (cell, at, part)
        for cell, program in programs.items()
        for at, part in enumerate(program.statements)
        if not part.side
    ]
    touching = touched(places, only_imported(programs.values()), home)
    stars = [n for n, (_, _, part) in enumerate(places) if part.star]
    todo = [(name, len(places)) for name in names]
    seen: dict[str, set[int]] = {}
    chosen = set[int]()
    while todo:
        name, before = todo.pop()
        known = seen.setdefault(name, set())
        start = 0  # of the statements that may have set the name
        for number in found_before(touching.get(name, []), before):
            start = number
            if number in known:
                break
            known.add(number)
            _, _, part = places[number]
            if number not in chosen:
                chosen.add(number)
                todo += [(n, number) for n in part.now]
                todo += [(n, len(places)) for n in part.later]
            if name in part.sets and part.sure and name not in part.now:
                break
        else:
            start = 0
        # A star import may set any name, and reads none: it is taken once.
        between = slice(bisect_left(stars, start), bisect_left(stars, before))
        chosen.update(stars[between])
        del stars[between]
    kept: dict[int, list[int]] = {}
    for number in sorted(chosen):
        cell, at, _ = places[number]
        kept.setdefault(cell, []).append(at)
    return kept


def touched(
    places: Sequence[tuple[int, int, Statement]],
    modules: Collection[str],
    home: Mapping[str, int],
) -> dict[str, list[int]]:
    """Which statements give a name a value, or another one, in order.

    Star imports are left out.
    """
    found: dict[str, list[int]] = {}
    for number, (cell, _, part) in enumerate(places):
        for name in part.sets | (part.changes - set(modules)):
            if home.get(name, cell) == cell:
                found.setdefault(name, []).append(number)
    return found


def found_before(numbers: Sequence[int], end: int) -> Iterator[int]:
    """Those below an end, the largest first."""
    for at in range(bisect_left(numbers, end) - 1, -1, -1):
        yield numbers[at]


def only_imported(programs: Iterable[Program]) -> set[str]:
    """Names of modules and the like, which no statement changes.

    ``torch.manual_seed(1)`` looks like ``numbers.append(1)``.
    """
    parts = [part for program in programs for part in program.statements]
    found = {name for part in parts if part.imports for name in part.sets}
    for part in parts:
        if not part.imports:
            found -= part.sets
    return found


def defines(program: Program, name: str) -> bool:
    """Whether a cell defines or assigns a name."""
    return any(name in part.sets for part in program.statements)
