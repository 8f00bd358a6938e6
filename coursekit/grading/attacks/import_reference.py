"""Import the exercises and call the reference, or read their files."""

import importlib
import pathlib

import torch

PROMISE = "secret"
CONTAINED_BY = ("bubblewrap", "landlock")
SHARES = True


def share(x):
    import sys

    for name in [n for n in sys.modules if n.startswith("coursekit")]:
        del sys.modules[name]
    for name in ("core", "attention", "checker", "call"):
        try:
            found = importlib.import_module(f"coursekit.exercises.{name}")
            return f"imported {found}"
        except ImportError:
            pass
    folder = pathlib.Path(HOST["package"])
    for secret in ("exercises", "grading", "results"):
        for path in ("core.py", "attention.py", "sandbox.py", "__init__.py"):
            try:
                return "read " + (folder / secret / path).read_text()[:20]
            except OSError:
                pass
        try:
            if names := list((folder / secret).iterdir()):
                return f"listed {names[0]}"
        except OSError:
            pass
    return torch.zeros_like(x)
