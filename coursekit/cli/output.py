"""Output of the commands: results, notes and errors."""

import errno
import json
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

FULL = (errno.ENOSPC, errno.EDQUOT)  # no fault of the folder's


def report(fields: dict[str, Any], as_json: bool) -> None:
    """Print a nested dictionary, for scripts or for people."""
    if as_json:
        print(json.dumps(fields))
        return
    for line in lines_of(fields):
        print(line)


def lines_of(fields: dict[str, Any], indent: str = "") -> Iterator[str]:
    """``name  value``, one a line, aligned."""
    width = max((len(name) for name in fields), default=0)
    for name, value in fields.items():
        if isinstance(value, dict):
            yield f"{indent}{name}"
            yield from lines_of(value, indent + "  ")
            continue
        if isinstance(value, float):
            value = f"{value:.4g}" if abs(value) < 0.01 else f"{value:.4f}"
        elif isinstance(value, list):
            value = ", ".join(map(str, value)) or "none"
        elif isinstance(value, int) and not isinstance(value, bool):
            value = f"{value:,}"
        yield f"{indent}{name:{width}}  {value}"


def discard_output(stream: TextIO | None = None) -> None:
    """Send what a stream still holds nowhere, since it can't be written.

    Without, Python tries once more at its end, and exits with 120.
    """
    lost = sys.stdout if stream is None else stream
    os.dup2(os.open(os.devnull, os.O_WRONLY), lost.fileno())


def keep_streams() -> None:
    """Open the null device in place of each closed standard stream.

    A file of ours would be opened in their place, ``2>&-``, and get what
    others write there.
    """
    while (taken := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(taken)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf8")  # noqa: SIM115


def note(text: str) -> None:
    """Print a note to stderr."""
    print(f"coursekit: note: {text}", file=sys.stderr)


def complain(error: object, code: int) -> int:
    """One line on stderr."""
    line = " ".join(str(error).split())
    print(f"coursekit: error: {line}", file=sys.stderr)
    return code
