"""A term's exercises, frozen: what counts as a change, and what does not."""

import json
import re
import subprocess
import sys
from pathlib import Path

import forked
import pytest

from coursekit.__main__ import main
from coursekit.classroom.check import core
from coursekit.classroom.check.core import Bug, Case, Exercise
from coursekit.classroom.grading import freeze


def helper(x):
    return x + 1


def reference(x):
    return helper(x)


def with_comments(x):
    """A docstring."""
    # A comment.
    return helper(
        x,
    )


def other(x):
    return helper(x) * 1


def cases(seed):
    return [Case((seed,))]


def test_a_comment_is_no_change_and_a_helper_is(monkeypatch):
    def as_reference(function):
        found = freeze.program(function)
        return found.replace(function.__name__, "f")

    assert as_reference(reference) == as_reference(with_comments)
    assert as_reference(reference) != as_reference(other)
    before = freeze.program(reference)
    monkeypatch.setitem(globals(), "helper", with_comments)
    assert freeze.program(reference) != before


def test_what_changed_is_said():
    plain = Exercise(reference, cases)
    richer = Exercise(reference, cases, bugs={"a": Bug("a", "b", "c")})
    old = {"x/same": freeze.parts(plain), "x/more": freeze.parts(plain)}
    new = {"x/same": freeze.parts(plain), "x/more": freeze.parts(richer)}
    assert freeze.changes(old, old) == []
    assert freeze.changes(old, new) == ["changed: x/more (mistakes)"]
    assert freeze.changes(old, {"x/same": old["x/same"], "x/z": {}}) == [
        "gone: x/more",
        "new: x/z",
    ]


def test_the_command(tmp_path, capsys):
    term = tmp_path / "term.json"
    assert main(["freeze", str(term)]) == 0
    assert main(["freeze", str(term), "--changed"]) == 0
    kept = json.loads(term.read_text())
    assert len(kept["exercises"]) >= 60
    kept["exercises"]["attention/attend"]["cases"] = "other"
    term.write_text(json.dumps(kept))
    capsys.readouterr()
    assert main(["freeze", str(term), "--changed"]) == 1
    assert "changed: attention/attend (cases)" in capsys.readouterr().out


FROZEN = Path(__file__).parent / "frozen" / "term.json"


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11),
    reason="another Python writes a program's tree in another way",
)
def test_a_term_of_the_first_release_has_not_changed():
    """Written by `coursekit freeze` before the classroom had its folder.

    In a process of its own: here, each call of the package is checked, and
    a program looks different.
    """
    code = """
import sys
from dataclasses import replace
from coursekit.__main__ import main
from coursekit.classroom.catalogue.attention import EXERCISES as known
from coursekit.classroom.check import core

print(main(["freeze", sys.argv[1], "--changed"]))
norms = core.find("norm/fold").reference
known["attend"] = replace(known["attend"], reference=norms)
print(main(["freeze", sys.argv[1], "--changed"]))
"""
    done = subprocess.run(
        [*forked.python(), "-c", code, str(FROZEN)],
        capture_output=True,
        text=True,
        check=True,
    )
    frozen = set(json.loads(FROZEN.read_text())["exercises"])
    known = {f"{c}/{n}" for c in core.chapters() for n in core.exercises(c)}
    new = sorted(known - frozen)
    assert new  # of chapters that were written later
    assert done.stdout.splitlines() == [
        f"since version 0.1.0: {len(new)} of {len(known)} exercises",
        *(f"new: {name}" for name in new),
        "1",
        # The control: another reference.
        f"since version 0.1.0: {len(new) + 1} of {len(known)} exercises",
        "changed: attention/attend (reference)",
        *(f"new: {name}" for name in new),
        "1",
    ]


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", '{"version": "1"}', "[" * 200_000),
        '{"version": "1", "exercises": {"attention/attend": 5}}',
    ],
)
def test_a_damaged_file_is_said(tmp_path, capsys, text):
    term = tmp_path / "term.json"
    term.write_text(text)
    assert main(["freeze", str(term), "--changed"]) == 2
    assert "is written by coursekit freeze" in capsys.readouterr().err
    assert main(["freeze", str(term)]) == 2
    assert "a term is frozen once" in capsys.readouterr().err


def test_every_exercise_has_a_fingerprint():
    found = freeze.fingerprints()
    assert set(found) == {
        f"{chapter}/{name}"
        for chapter in core.chapters()
        for name in core.exercises(chapter)
    }
    references = [parts["reference"] for parts in found.values()]
    assert len(set(references)) == len(references)


OWN = """
from coursekit.classroom.check.core import Case, Exercise


def twice(x):
    return 2 * x


EXERCISES = {"twice": Exercise(twice, lambda seed: [Case((seed,))])}
"""
PAGE = """# Warm-up

````{exercise} ★ Implement: twice
Double it.
````

```{code-cell} ipython3
:exercise: warmup/twice

def twice(x):
    ...
```
"""
BROKEN = {
    f"{OWN}def thrice(:": r"SyntaxError .*warmup\.py, line 10",
    f"{OWN}EXERCISE": r"NameError .*warmup\.py, line 10",
    f"import nothing\n{OWN}": r"ModuleNotFoundError .*warmup\.py, line 1",
    OWN.replace("EXERCISES", "MINE"): "no attribute 'EXERCISES'",
    OWN.replace("{", "[").replace("}", "]").replace('"twice": ', ""): "list",
    f"{OWN}EXERCISES = {{1: twice}}": "TypeError .*no Exercise",
    f"{OWN}raise SystemExit(3)": r"SystemExit .*warmup\.py, line 10",
}


@pytest.mark.parametrize(("module", "said"), BROKEN.items())
def test_a_broken_module_of_ones_own_is_one_line(
    module, said, tmp_path, monkeypatch, capsys
):
    """In each command that plays exercises."""
    monkeypatch.chdir(tmp_path)
    own = Path("own")
    own.mkdir()
    (own / "warmup.md").write_text(PAGE, "utf8")
    (own / "warmup.py").write_text(OWN)
    overlay = ["--overlay", "own"]
    assert main(["assign", "warmup", *overlay]) == 0
    (own / "warmup.py").write_text(module)
    core.load.cache_clear()  # as in another process
    for options in (
        ["assign", "warmup", "--out", "again", *overlay],
        ["grade", "dist/student", "--out", "g.csv", *overlay],
        ["freeze", "term.json"],
        ["kit", "wrong", "warmup"],
    ):
        if "--overlay" not in options:  # named by the environment
            monkeypatch.setattr(core, "OVERLAYS", [own.resolve()])
        if options[0] == "grade":
            options += ["--key", "key.txt"]
        capsys.readouterr()
        assert main(options) == 2, options
        error = capsys.readouterr().err
        assert re.fullmatch(
            "coursekit: error: a module of an overlay must run .* be a dict "
            f"from names to Exercise: got .*{said}.*Correct it.\n",
            error,
        ), error
    assert not Path("term.json").exists()


def test_cases_that_cannot_be_drawn_are_one_line(tmp_path):
    """Also some that are no calls of the reference, and on which it fails."""
    path = tmp_path / "warmup.py"
    for cases, said in {
        "1 / 0": r"ZeroDivisionError \(.*warmup\.py, line 9\)",
        "[Case((1, 2))]": "TypeError .*too many positional arguments",
        "[Case()]": "TypeError .*missing a required argument",
        "7": "TypeError .*not iterable",
    }.items():
        path.write_text(OWN.replace("[Case((seed,))]", cases))
        core.load.cache_clear()
        exercise = core.load(path).EXERCISES["twice"]
        with pytest.raises(ValueError, match=f"for 3 got {said}.*Correct it"):
            core.draw(exercise, 3)
    path.write_text(OWN.replace("2 * x", "2 / 0 * x"))
    core.load.cache_clear()
    exercise = core.load(path).EXERCISES["twice"]
    said = r"got ZeroDivisionError \(.*warmup\.py, line 6\).*Correct it"
    with pytest.raises(ValueError, match=said):  # a reference that fails
        core.expected(exercise, exercise.cases(3)[0], 3)
