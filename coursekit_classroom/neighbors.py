"""Files in a learner's folder, which their own program may import."""

import ast
import sys
from importlib.machinery import PathFinder
from pathlib import Path

__all__ = ["check_names"]


def check_names(folder: Path, *sources: str) -> None:
    """Refuse a file that has the name of a module which is found elsewhere.

    Python imports only one of the two: a learner's program would get the
    wrong one, or PyTorch would.

    Args:
        folder: where a program lies.
        sources: its text; files that it imports from the folder are read too.

    Raises:
        ValueError: if the program imports such a file.
    """
    home = folder.resolve()
    elsewhere = [path for path in sys.path if Path(path).resolve() != home]
    to_read, known = list(sources), set[str]()
    while to_read:
        for name in imported(to_read.pop()) - known:
            known.add(name)
            places = home / f"{name}.py", home / name / "__init__.py"
            own = next((place for place in places if place.is_file()), None)
            if own is None:
                continue
            other = PathFinder.find_spec(name, elsewhere)
            if name in sys.stdlib_module_names or (other and other.origin):
                raise ValueError(
                    "a file next to a program must not have the name of a "
                    "module of Python or of an installed package: got "
                    f"{own}. Rename it, also where you import it."
                )
            to_read.append(own.read_text("utf-8", errors="replace"))


def imported(source: str) -> set[str]:
    """The packages and modules that a source imports; none if it is wrong."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return set()
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(node.module or "")
    return {name.partition(".")[0] for name in names}
