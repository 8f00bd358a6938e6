"""How large the house is: its lines, its functions, and the way of a call.

The budgets stand in ``budgets.toml``. The whole table is printed by

    python tests/test_house.py
"""

import ast
import statistics
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from lines import lines_of

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "coursekit"
BUDGET = tomllib.loads((ROOT / "tests" / "budgets.toml").read_text("utf8"))
BUDGET = BUDGET["house"]
# Tools that chapters teach: they have the budget of the package alone.
TAUGHT = (
    *("probe", "activations", "interpret", "scaling", "distributed"),
    *("tuning", "quantize", "speculative", "preferences"),
)
LESSON = ("minimal", "minimal_seq2seq")


def size(path):
    """Code lines of a file."""
    return len(lines_of(path.read_text("utf8"))[0])


def functions(path):
    """Code lines of each function of a file, without those inside it."""
    source = path.read_text("utf8")
    numbers, _ = lines_of(source)
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, kinds):
            whole = range(node.lineno, node.end_lineno + 1)
            yield node.name, len(numbers & set(whole))


def library_files(folder=PACKAGE):
    """The flat files of the library and its small packages."""
    found = sorted(folder.rglob("*.py"))
    return [f for f in found if "classroom" not in f.parts]


def flat(name):
    """Whether a file stands in `coursekit` itself and is no tool."""
    path = name.relative_to(PACKAGE)
    return len(path.parts) == 1 and path.stem not in (*TAUGHT, *LESSON)


def imports(path, package=PACKAGE):
    """The modules of the package that a file names in an import."""
    for node in ast.walk(ast.parse(path.read_text("utf8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
            names += [f"{node.module}.{a.name}" for a in node.names]
        elif isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        else:
            continue
        for name in names:
            root, *parts = name.split(".")
            if root == package.name and parts:
                file = package.joinpath(*parts).with_suffix(".py")
                folder = package.joinpath(*parts, "__init__.py")
                yield from (f for f in (file, folder) if f.exists())


def closure(start, package=PACKAGE):
    """All files that importing one loads, by its imports and theirs."""
    found, waiting = set(), [start]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += imports(path, package)
    return found


def entered():
    """``{(file, function)}`` of ours that one forward of a GPT enters."""
    from coursekit.config import GPTConfig
    from coursekit.decoder import GPT

    sizes = {"d_model": 16, "n_heads": 2, "d_ff": 32, "n_layers": 2}
    model = GPT(GPTConfig(vocab_size=11, max_len=8, **sizes)).eval()
    ids = torch.arange(6).view(1, 6)
    found = set()

    def note(frame, event, arg):
        path = Path(frame.f_code.co_filename)
        if event == "call" and PACKAGE in path.parents:
            found.add((path.name, frame.f_code.co_qualname))

    with torch.no_grad():
        model(ids)
        sys.setprofile(note)
        try:
            model(ids)
        finally:
            sys.setprofile(None)
    return found


def switches():
    """How often references of the catalogue ask for a mistake."""
    return sum(
        isinstance(node, ast.Compare)
        and isinstance(node.ops[0], (ast.In, ast.NotIn))
        and getattr(node.comparators[0], "id", "") == "on"
        for path in (PACKAGE / "classroom/catalogue").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf8")))
    )


def measure():
    """Everything that has a budget."""
    files = library_files()
    loaded = closure(PACKAGE / "decoder.py") - {PACKAGE / "tokenizer.py"}
    lengths = [n for f in files for _, n in functions(f)]
    of_files = {f: size(f) for f in files}
    calls = entered()
    catalogue = PACKAGE / "classroom/catalogue"
    return {
        "decoder": sum(map(size, loaded)),
        "flat": sum(n for f, n in of_files.items() if flat(f)),
        "package": sum(of_files.values()),
        "file": max(of_files.values()),
        "function_median": statistics.median(lengths),
        "function_p90": statistics.quantiles(lengths, n=10)[-1],
        "function_max": max(lengths),
        "forward_functions": len(calls),
        "forward_files": len({file for file, _ in calls}),
        "switches": switches(),
        "catalogue": sum(map(size, catalogue.rglob("*.py"))),
    }


@pytest.fixture(scope="module")
def now():
    return measure()


@pytest.mark.parametrize("what", BUDGET)
def test_the_house_keeps_its_budget(now, what):
    most = BUDGET[what]["now"]
    assert now[what] <= most, f"{what}: {now[what]} > {most}"


def test_every_budget_is_measured(now):
    assert set(now) == set(BUDGET)


# -- the counting itself -----------------------------------------------------
PLANTED = '''"""A docstring
of two lines.
"""

import math  # one

# a comment

X = (  # two
    1,
    2,
)  # five


def f(a):  # six
    """What it does."""

    def g():  # seven
        return 1  # eight

    return math.pi, g  # nine
'''


def test_lines_are_counted(tmp_path):
    assert len(lines_of(PLANTED)[0]) == 9
    path = tmp_path / "planted.py"
    path.write_text(PLANTED)
    assert dict(functions(path)) == {"f": 4, "g": 2}


def test_imports_are_followed(tmp_path):
    package = tmp_path / "coursekit"
    package.mkdir()
    for name, line in (
        ("a", "from coursekit.b import x"),
        ("b", "def f():\n    from coursekit import c"),
        ("c", "import coursekit.a"),
        ("d", "import torch"),
    ):
        (package / f"{name}.py").write_text(line + "\n")
    found = closure(package / "a.py", package)
    assert {path.stem for path in found} == {"a", "b", "c"}


def main():
    """Print the table, and the largest files and functions."""
    now = measure()
    for what, n in now.items():
        row = BUDGET[what]
        most, wanted = row["now"], row["wanted"]
        print(f"{what:18} {n:7g}  at most {most:6g}, wanted {wanted}")
    for name, path in sorted(entered()):
        print(f"  forward: {path} in {name}")
    rows = [(n, name, f) for f in library_files() for name, n in functions(f)]
    for n, name, path in sorted(rows, reverse=True)[:25]:
        print(f"  {n:4} {name} in {path.relative_to(ROOT)}")
    rows = [(size(path), path) for path in library_files()]
    for n, path in sorted(rows, reverse=True)[:20]:
        print(f"  {n:4} {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
