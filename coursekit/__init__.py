"""The transformer, whole, readable and tested.

``__init__.pyi`` lists the names that are offered here, each with its module.
They load when they are first asked for, and so do modules:
``coursekit.probe`` needs no import of its own.
"""

# Python has these already: `python -m coursekit` still looks for modules in
# the current folder, until __main__.py ends that.
import functools  # a name of its own: coursekit.cache is a module
import importlib
import importlib.util

CLASSROOM = {  # name: its module, and behind a colon its name there
    "live": "coursekit_classroom.live",
    "check": "coursekit_classroom.check:check",
    "start": "coursekit_classroom.yourfile:start",
    "step": "coursekit_classroom.yourfile:step",
}


@functools.cache
def offered() -> dict[str, str]:
    """Names of ``__init__.pyi``, each with its module, as in CLASSROOM."""
    import ast

    # A loader reads its own files, also in a zip.
    stub = ast.parse(__loader__.get_data(f"{__file__}i"))
    return {
        name.asname or name.name: f"{node.module}:{name.name}"
        for node in stub.body
        if isinstance(node, ast.ImportFrom) and node.module != "typing"
        for name in node.names
    }


def __getattr__(name: str) -> object:
    """Load a name or a module when it is first asked for."""
    if name == "__all__":
        return sorted(offered())
    homes = CLASSROOM | offered()
    home = homes.get(name, f"coursekit.{name}")
    find_spec = importlib.util.find_spec
    if name not in homes and (name[0] == "_" or find_spec(home) is None):
        raise AttributeError(f"module 'coursekit' has no attribute {name!r}")
    module, _, member = home.partition(":")
    thing = importlib.import_module(module)
    globals()[name] = thing = getattr(thing, member) if member else thing
    return thing


def __dir__() -> list[str]:
    return sorted({*globals(), *CLASSROOM, *offered()})
