"""The rubric of the capstone, with the evidence from a student's report.

``coursekit capstone`` writes a report of one page.  ``coursekit kit rubric``
prints the criteria and their levels, and from a report the lines on which
each is judged.  The points are the teacher's: no line is worth one by itself.
"""

import argparse
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Criterion", "rubric", "written"]

FILE = Path(__file__).with_name("rubric.toml")


@dataclass(frozen=True)
class Criterion:
    """What is judged."""

    name: str
    evidence: list[str]
    """Patterns of the lines in the report that show it."""

    levels: list[str]
    """What is worth 0, 1 and 2 points."""

    def lines(self, report: str) -> list[str]:
        """The lines of a report that show it, in the report's order."""
        found = {
            match.start(): match[0]
            for pattern in self.evidence
            for match in re.finditer(pattern, report, re.MULTILINE)
        }
        return [found[at] for at in sorted(found)]


def rubric() -> list[Criterion]:
    """The criteria of the capstone."""
    rows = tomllib.loads(FILE.read_text("utf8"))["criterion"]
    return [Criterion(**row) for row in rows]


def written(report: str | None = None) -> str:
    """The rubric as Markdown.

    Args:
        report: what ``coursekit capstone`` wrote, if there is one; its lines
            stand under the criterion that they are evidence of.
    """
    criteria = rubric()
    lines = [
        "# Capstone",
        "",
        "| criterion | 0 | 1 | 2 |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| **{one.name}** | {' | '.join(one.levels)} |" for one in criteria
    ]
    for one in criteria if report is not None else ():
        shown = one.lines(report or "") or ["(nothing in this report)"]
        lines += ["", f"## {one.name}", "", "```text", *shown, "```"]
    return "\n".join(lines) + "\n"


def add_options(parser: argparse.ArgumentParser) -> None:
    """The rubric of the capstone, with the evidence from a report."""
    parser.add_argument(
        "report",
        type=Path,
        nargs="?",
        metavar="REPORT",
        help="FILE.report.md, as coursekit capstone writes it",
    )


def main(args: argparse.Namespace) -> int:
    """Print the rubric."""
    if args.report is not None and not args.report.is_file():
        raise ValueError(
            f"evidence is in a report: got {args.report}, which is not there. "
            "Let the student run coursekit capstone."
        )
    report = args.report.read_text("utf8") if args.report else None
    print(written(report), end="")
    return 0
