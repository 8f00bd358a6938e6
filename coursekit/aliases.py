"""Old names of modules, which saved notebooks and overlays still import."""

import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["MOVED", "current", "install"]

MOVED = {
    "coursekit.exercises": "coursekit.classroom.check",
    "coursekit.exercises.core": "coursekit.classroom.check.core",
    "coursekit.lesson": "coursekit.classroom.lesson",
    "coursekit.live": "coursekit.classroom.live",
    "coursekit.prose": "coursekit.classroom.glue",
    "coursekit.visual": "coursekit.classroom.figures",
}


class Moved(MetaPathFinder, Loader):
    """Imports a module under its old name: the same module, not a copy."""

    def find_spec(self, fullname: str, *_: Any) -> ModuleSpec | None:
        """A module that has moved."""
        return ModuleSpec(fullname, self) if fullname in MOVED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module, which keeps the spec of its new name."""
        module = importlib.import_module(MOVED[spec.name])
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is left to run."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def current(path: str) -> str:
    """A dotted name, such as ``coursekit.lesson.load``, as it is today."""
    for old in sorted(MOVED, key=len, reverse=True):
        if f"{path}.".startswith(f"{old}."):
            return MOVED[old] + path[len(old) :]
    return path


def install() -> None:
    """Let the import system find what has moved."""
    if not any(isinstance(finder, Moved) for finder in sys.meta_path):
        sys.meta_path.insert(0, Moved())
