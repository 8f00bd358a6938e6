"""Numbers that a chapter's text quotes."""

import ast
import inspect
import json
import statistics
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["glue", "result", "show_code", "summary"]

HERE = Path(__file__).parent

# Student's t for a two-sided 95 % interval, by degrees of freedom; the last
# one holds for more, too: there it is a little too wide.
T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)


def glue(name: str, value: object) -> None:
    """Save a value under a name, so that the text can quote it.

    The text reads it with the role ``{glue:text}``; the cell shows nothing.
    The record is the one that ``myst_nb.glue`` writes, but a reader who
    runs the chapter needs no Sphinx.

    Args:
        name: unique in the chapter.
        value: a number or a string, rounded as it should be printed.
    """
    from IPython.display import display

    prefix = "application/papermill.record/"
    display(
        {prefix + "text/plain": repr(value)},
        raw=True,
        metadata={"scrapbook": {"name": name, "mime_prefix": prefix}},
    )


def show_code(thing: Any) -> None:
    """Show a function or a class as it stands in the package.

    What the page and a notebook show is what runs; only docstrings are left
    out, since the text around explains.

    Args:
        thing: a function or a class.
    """
    from IPython.display import Markdown, display

    source = textwrap.dedent(inspect.getsource(thing))
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            first = node.body[0]
            if ast.get_docstring(node) is not None and len(node.body) > 1:
                end = first.end_lineno or first.lineno
                for i in range(first.lineno - 1, end):
                    lines[i] = "\0"
    code = "\n".join(line for line in lines if line != "\0")
    display(Markdown(f"```python\n{code}\n```"))


def result(name: str) -> dict[str, Any]:
    """Read the numbers of a run that took too long for a page.

    Args:
        name: of a file in ``results/``, without ``.json``.

    Returns:
        The file's ``metrics``.

    Raises:
        ValueError: if there is no such result.
    """
    for folder in (HERE.parent / "results", HERE / "results"):
        path = folder / f"{name}.json"
        if path.is_file():
            metrics: dict[str, Any] = json.loads(path.read_text())["metrics"]
            return metrics
    raise ValueError(
        f"a result is a file in results/: got {name!r}, and there is no "
        f"{name}.json. Make it with `make results NAME={name}`."
    )


def summary(values: Sequence[float | int]) -> dict[str, Any]:
    """Mean and 95 % interval of a few runs, and the runs themselves.

    Args:
        values: one of each run, at least one.

    Returns:
        ``mean``, ``interval`` (half of it, by Student's t; 0 of one run)
        and ``values``.
    """
    mean = statistics.fmean(values)
    half = 0.0
    if len(values) > 1:
        error = statistics.stdev(values) / len(values) ** 0.5
        half = T95[min(len(values) - 2, len(T95) - 1)] * error
    return {"mean": mean, "interval": half, "values": list(values)}
