"""Make forbidden functions raise, as ``coursekit.check`` does in a notebook.

The text of this file runs in a sandbox, behind an answer that names such
functions. So it needs nothing of coursekit, and puts nothing back.
"""

import pkgutil
from collections.abc import Callable
from types import ModuleType
from typing import Any


def refuse(names: list[str], space: dict[str, Any]) -> None:
    """Replace functions, classes and what modules define by what raises.

    Args:
        names: full names, such as ``torch.nn.LayerNorm``.
        space: the names of the cells, which may have imported some of them.
    """
    for name in names:
        path, _, last = name.rpartition(".")
        owner, thing = map(pkgutil.resolve_name, (path, name))
        places = [(owner, last)]
        if isinstance(thing, ModuleType):
            own = {k for k, v in vars(thing).items() if is_of(v, name)}
            places = [(thing, key) for key in sorted(own)]
        for owner, key in places:
            found = getattr(owner, key)
            instead = stand_in(name, found)
            setattr(owner, key, instead)
            space.update({k: instead for k, v in space.items() if v is found})


def is_of(thing: Any, module: str) -> bool:
    """Whether a module defines a function or class."""
    return callable(thing) and getattr(thing, "__module__", "") == module


def stand_in(name: str, thing: Any) -> Callable[..., Any]:
    """What raises when it is called; a class stays a class."""
    text = f"this exercise asks you to write it yourself, without {name}"
    error = type("ForbiddenError", (RuntimeError,), {})

    def refused(*args: Any, **kwargs: Any) -> Any:
        raise error(text)

    if isinstance(thing, type):
        return type(thing.__name__, (), {"__new__": refused})
    return refused
