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
    for name in ("check.core", "catalogue.attention", "grading.sandbox"):
        try:
            found = importlib.import_module(f"coursekit.classroom.{name}")
            if getattr(found, "__file__", None):
                return f"imported {found}"
        except ImportError:
            pass
    folder = pathlib.Path(HOST["package"])
    for part in ("check", "catalogue", "grading"):
        secret = f"classroom/{part}"
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
