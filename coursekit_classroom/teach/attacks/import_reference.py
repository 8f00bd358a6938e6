"""Import or load the exercises under any name, or read their files."""

import importlib
import importlib.util
import pathlib
import sys

import torch

PROMISE = "secret"
CONTAINED_BY = ("bubblewrap", "landlock")
SHARES = True
PARTS = ("check.core", "catalogue.attention", "grading.sandbox")
NEW = [f"coursekit_classroom.{part}" for part in PARTS]
FILES = ("core.py", "attention.py", "sandbox.py", "__init__.py")


def share(x):
    classroom = pathlib.Path(HOST["package"]).parent / "coursekit_classroom"
    folders = [classroom / part.split(".")[0] for part in PARTS]
    files = [folder / name for folder in folders for name in FILES]
    finders, modules = list(sys.meta_path), dict(sys.modules)
    try:
        got = [
            *imported("a module", NEW),
            *loaded(files),
            *read(files),
            *listed(folders),
        ]
    finally:
        sys.meta_path[:] = finders
        sys.modules.update(modules)
    return ", ".join(got) or torch.zeros_like(x)


def imported(what, names):
    """Without those finders that the sandbox has put before Python's own."""
    for name in [n for n in sys.modules if n.startswith("coursekit")]:
        del sys.modules[name]
    own = "_frozen_importlib", "_frozen_importlib_external"
    sys.meta_path[:] = [f for f in sys.meta_path if f.__module__ in own]
    for name in names:
        try:
            if getattr(importlib.import_module(name), "__file__", None):
                return [f"imported {what}"]
        except (ImportError, OSError):
            pass
    return []


def loaded(files):
    for file in files:
        try:
            spec = importlib.util.spec_from_file_location("loot", file)
            spec.loader.exec_module(importlib.util.module_from_spec(spec))
            return ["loaded a file"]
        except (ImportError, OSError):
            pass
    return []


def read(files):
    for file in files:
        try:
            if file.read_text():
                return ["read a file"]
        except OSError:
            pass
    return []


def listed(folders):
    for folder in folders:
        try:
            if list(folder.iterdir()):
                return ["listed a folder"]
        except OSError:
            pass
    return []
