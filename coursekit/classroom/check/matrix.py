"""What an exercise's cases can see: mistakes against cases."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from html import escape
from itertools import combinations
from typing import Any

from coursekit.classroom.check.checker import verdict
from coursekit.classroom.check.core import draw, expected, find
from coursekit.classroom.check.diagnose import mutants, same, trace


@dataclass(frozen=True)
class Matrix:
    """Which case rejects which classic mistake."""

    id: str
    cases: tuple[str, ...]
    """What each case tries."""

    bugs: dict[str, tuple[bool, ...]]
    """For each mistake, in words: does the case reject it?"""

    n_pairs: int
    """Number of two mistakes that can be made together."""

    n_rejected: int
    """How many of the mistakes and pairs some case rejects."""

    n_apart: int
    """How many two of these some case tells apart."""

    n_alike: int
    """How many two of these nothing can tell apart, for a known reason."""

    def to_dict(self) -> dict[str, Any]:
        """As ``results/checks.json`` holds it; ``x`` where a case rejects."""
        bugs = {says: marks(row) for says, row in self.bugs.items()}
        fields = asdict(self) | {"cases": list(self.cases), "bugs": bugs}
        return {name: fields[name] for name in fields if name != "id"}

    @classmethod
    def from_dict(cls, id: str, fields: dict[str, Any]) -> "Matrix":
        """What :meth:`to_dict` gave."""
        bugs = {
            says: tuple(mark == "x" for mark in row)
            for says, row in fields["bugs"].items()
        }
        cases = tuple(fields["cases"])
        return cls(id, **fields | {"cases": cases, "bugs": bugs})

    def __str__(self) -> str:
        """Plain text: ``x`` where a case rejects a mistake."""
        lines = [self.id]
        lines += [f"  {marks(row)}  {says}" for says, row in self.bugs.items()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """A table: a row for each mistake, a column for each case."""
        return "".join(self._html())

    def _html(self) -> Iterator[str]:
        yield (
            '<details class="course-matrix"><summary>'
            f"<code>{escape(self.id)}</code>: {len(self.bugs)} mistakes, "
            f"{len(self.cases)} inputs</summary><ol>"
        )
        for case in self.cases:
            yield f"<li>{escape(case)}</li>"
        yield (
            '</ol><div class="course-table-wide" tabindex="0" role="region" '
            f'aria-label="{escape(self.id)}"><table>'
            '<thead><tr><th scope="col">mistake</th>'
        )
        for number in range(1, len(self.cases) + 1):
            yield f'<th scope="col">{number}</th>'
        yield "</tr></thead><tbody>"
        for says, row in self.bugs.items():
            yield f'<tr><th scope="row">{escape(says)}</th>'
            for seen in row:
                word = "rejected" if seen else "passes"
                yield f'<td class="{word}"><span>{word}</span></td>'
            yield "</tr>"
        yield "</tbody></table></div></details>"


def marks(row: tuple[bool, ...]) -> str:
    """``x`` where a case rejects, a point where it does not."""
    return "".join("x" if seen else "." for seen in row)


def matrix(id: str, seed: int = 0) -> Matrix:
    """Play every mistake of an exercise, and every two that go together.

    Args:
        id: ``"chapter/name"``.
        seed: draws the cases.

    Raises:
        ValueError: if there is no such exercise.
    """
    exercise = find(id)
    cases = draw(exercise, seed)
    rights = [expected(exercise, case, seed) for case in cases]
    played = {
        on: [expected(exercise, case, seed, on) for case in cases]
        for on in mutants(exercise)
        if len(on) <= 2
    }
    rows = {
        on: tuple(
            verdict(exercise, case, got, right) is not None
            for case, got, right in zip(cases, found, rights, strict=True)
        )
        for on, found in played.items()
    }
    traces = [
        [trace(exercise, *seen) for seen in zip(cases, found, strict=True)]
        for found in played.values()
    ]
    apart = sum(
        not all(same(exercise, *both) for both in zip(a, b, strict=True))
        for a, b in combinations(traces, 2)
    )
    return Matrix(
        id,
        tuple(case.name or "the only case" for case in cases),
        {
            bug.says: rows[frozenset((name,))]
            for name, bug in exercise.bugs.items()
        },
        n_pairs=len(rows) - len(exercise.bugs),
        n_rejected=sum(any(row) for row in rows.values()),
        n_apart=apart,
        n_alike=len(exercise.alike),
    )
