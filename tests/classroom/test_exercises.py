"""Each exercise of the book, played as a learner would, and its cases.

A page's exercises and the entries of
``coursekit_classroom/catalogue/<chapter>.py`` belong together. What these
tests say is written for a chapter's author.
"""

import ast
import contextlib
import copy
import dataclasses
import functools
import inspect
import itertools
import math
import re
from pathlib import Path
from types import SimpleNamespace

import jupytext
import numpy as np
import pytest
import torch
import yaml
from torch.nn import functional as F  # noqa: N812

import coursekit
from coursekit_classroom import glue
from coursekit_classroom.check import check, core
from coursekit_classroom.check.call import Outcome, call
from coursekit_classroom.check.checker import verdict
from coursekit_classroom.check.compare import difference, is_value, stacked

ROOT = Path(__file__).resolve().parents[2]
yaml.SafeLoader = yaml.CSafeLoader  # jupytext reads a thousand cells' options
# The pages of each chapter: its main page, then those in further/.
PAGES: dict[str, list[Path]] = {}
for path in sorted(ROOT.glob("book/**/[0-9][0-9]_*.md")):
    PAGES.setdefault(path.stem[3:], []).append(path)
SEEDS = range(5)

FENCE = re.compile(
    r"^(?P<fence>`{3,}|:{3,})\{(?P<kind>exercise|solution|predict)\}"
    r"[ ]*(?P<title>.*)\n(?P<body>(?:.*\n)*?)(?P=fence)[ ]*$",
    re.MULTILINE,
)
PYTHON = re.compile(r"^```python\n((?:.*\n)*?)```", re.MULTILINE)
CHECK = re.compile(r"\bcheck\(\s*[\"']([^\"']+)[\"']")


def listed():
    """``(chapter, exercise)`` of all; a broken module fails its own tests."""
    for chapter in core.chapters():
        try:
            names = list(core.exercises(chapter))
        except Exception:
            names = ["all"]
        yield from ((chapter, name) for name in names)


ALL = list(listed())


# -- reading a page ----------------------------------------------------------
@functools.cache
def read(text):
    """``(first cell, exercises)``: what the page has, in its order.

    An exercise has its label and title, how many hints it gives, the page's
    first cell, the sources of the cells up to its solution, the solution's
    python blocks, whether that is closed, and whether it predicts.
    """
    first, found, current = None, [], None
    solutions, closed = {}, set()
    for cell in jupytext.reads(text, fmt="md:myst").cells:
        if cell.cell_type == "code":
            first = cell.source if first is None else first
            # What a reader cannot see is the build's business.
            hidden = "remove-cell" in cell.metadata.get("tags", ())
            if current is not None and not hidden:
                current.cells.append(cell.source)
            continue
        blocks = list(FENCE.finditer(cell.source + "\n"))
        for block in blocks:
            body, title = block["body"], block["title"].strip()
            if block["kind"] == "exercise":
                label = re.search(r"^:label: *(\S+)", body, re.MULTILINE)
                current = SimpleNamespace(
                    title=title,
                    label=label[1] if label else None,
                    hints=body.count("{dropdown} Hint"),
                    cells=[],
                    solution=None,
                    predicts="predict" in title.lower(),
                )
                found.append(current)
            elif block["kind"] == "predict" and current is not None:
                current.predicts = current.predicts or not current.cells
                current = None
            elif block["kind"] == "solution":
                solutions[title] = PYTHON.findall(body)
                if body.startswith(":class: dropdown\n"):
                    closed.add(title)
                current = None
        tail = cell.source[blocks[-1].end() if blocks else 0 :]
        if re.search(r"^#+ ", tail, re.MULTILINE):
            current = None  # a new section
    for exercise in found:
        exercise.first = first
        exercise.solution = solutions.get(exercise.label)
        exercise.closed = exercise.label in closed
        exercise.checks = [
            id for source in exercise.cells for id in CHECK.findall(source)
        ]
    return first, found


def exercises_of(chapter):
    """The exercises on all pages of a chapter."""
    return [
        exercise
        for path in PAGES[chapter]
        for exercise in read(path.read_text("utf8"))[1]
    ]


def mismatched(chapter, found, names):
    """What page and module lack, as sentences to a chapter's author."""
    wrong, seen = [], []
    for exercise in found:
        at = f"exercise {exercise.label!r} ({exercise.title})"
        if exercise.label is None:
            wrong.append(f"{at} has no :label:")
        if exercise.solution is not None and not exercise.closed:
            wrong.append(f"{at}: its solution is open: :class: dropdown")
        if exercise.predicts and not exercise.checks:
            continue
        if exercise.checks and not exercise.hints:
            wrong.append(f"{at} has no {{dropdown}} Hint 1")
        task = re.search(r"implement|debug|write", exercise.title, re.I)
        if task and not exercise.checks:
            wrong.append(
                f"{at} has no check: add a stub and a cell "
                f'coursekit.check("{chapter}/NAME", f) before its solution'
            )
        if exercise.solution is None:
            wrong.append(f"{at} has no {{solution}} {exercise.label}")
        elif exercise.checks and not exercise.solution:
            wrong.append(f"{at}: its solution has no ```python block")
        seen += exercise.checks
    wrong += [
        f"the page checks {id!r}: no such entry in EXERCISES of "
        f"coursekit_classroom/catalogue/{chapter}.py"
        for id in seen
        if id not in {f"{chapter}/{name}" for name in names}
    ]
    wrong += [
        f"EXERCISES has {name!r}, but no cell between an exercise "
        f'and its solution calls coursekit.check("{chapter}/{name}"'
        for name in names
        if f"{chapter}/{name}" not in seen
    ]
    return wrong


# -- playing a page ----------------------------------------------------------
def execute(source, space, what):
    """Run a page's code; say to whom it belongs if it fails."""
    try:
        exec(compile(source, f"<{what}>", "exec"), space)
    except Exception as error:
        pytest.fail(
            f"{what} raises {type(error).__name__}: {error}\n"
            "(It may use only the page's first code cell and the visible "
            f"cells between exercise and solution.)\n{source}",
            pytrace=False,
        )


@functools.lru_cache(maxsize=1)  # chapter 1's trains a tokenizer
def run_first(first):
    """The names of a page after its first cell, and what it made of chance."""
    space = {"__name__": "page"}
    execute(first, space, "the page's first cell")
    return space, dict(space), torch.get_rng_state()


def begun(first):
    """The same names, as they were after the page's first cell."""
    space, before, chance = run_first(first)
    space.clear()
    space.update(before)
    torch.set_rng_state(chance)
    return space


def play(first, exercise, monkeypatch):
    """Statuses before and after the solution: ``({id: ...}, {id: ...})``."""
    seen = {}

    def recorded(id, function, seed=0):
        reports = [check(id, function, s) for s in seeds]
        bad = [r for r in reports if r.status != "passed"]
        seen[id] = (bad or reports)[0]
        return seen[id]

    monkeypatch.setattr(coursekit, "check", recorded, raising=False)
    monkeypatch.setattr(glue, "glue", lambda name, value: None)
    space, seeds, label = begun(first), [0], exercise.label
    for source in exercise.cells:
        execute(source, space, f"a cell of {label}")
    before, seen, seeds = seen, {}, [1]
    for source in exercise.solution:
        execute(source, space, f"the solution of {label}")
    for source in exercise.cells:
        if CHECK.search(source):
            execute(source, space, f"the check of {label}")
    return before, seen


def misplayed(before, after):
    """Sentences on checks that do not say what they should."""
    wrong = [
        f"before the solution, {id} must say 'not attempted': the stub "
        f"must do nothing but `...`. It says:\n{report}"
        for id, report in before.items()
        if report.status != "not attempted"
    ]
    return wrong + [
        f"the page's solution of {id} must pass:\n{report}"
        for id, report in after.items()
        if report.status != "passed"
    ]


@pytest.mark.parametrize("chapter", PAGES)
def test_page_and_module_belong_together(chapter):
    found = exercises_of(chapter)
    has = chapter in core.chapters()
    names = core.exercises(chapter) if has else {}
    assert mismatched(chapter, found, names) == []


def test_each_module_of_exercises_has_its_page():
    assert set(core.chapters()) <= set(PAGES)


def checked():
    """``(chapter, label)`` of each exercise with a check."""
    for chapter in PAGES:
        for exercise in exercises_of(chapter):
            if exercise.checks:
                yield chapter, exercise.label


@pytest.mark.parametrize(("chapter", "label"), list(checked()))
def test_stub_is_not_attempted_and_solution_passes(
    chapter, label, monkeypatch
):
    exercise = next(e for e in exercises_of(chapter) if e.label == label)
    assert exercise.solution, f"{label} has no solution with python"
    before, after = play(exercise.first, exercise, monkeypatch)
    assert set(before) == set(after) == set(exercise.checks)
    assert misplayed(before, after) == []


PAGE = """# A page

```{code-cell} ipython3
import coursekit
```

````{exercise} ★ Implement: attention
:label: att-one

Text.

```{dropdown} Hint 1
A hint.
```
````

```{code-cell} ipython3
def mine(q, k, v, mask=None):
    ...
```

```{code-cell} ipython3
coursekit.check("attention/attend", mine)
```

````{solution} att-one
:class: dropdown

```python
def mine(q, k, v, mask=None):
    scores = q @ k.mT / q.size(-1) ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1) @ v
```
````
"""


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("attention/attend", "attention/other", "no such entry"),
        ('coursekit.check("attention/attend", mine)', "1", "has no check"),
        ("{solution} att-one", "{solution} att-two", "has no {solution}"),
        ("```python", "```text", "no ```python block"),
        (":label: att-one\n", "", "no :label:"),
        ("{dropdown} Hint 1", "{dropdown} One", "no {dropdown} Hint 1"),
        (":class: dropdown\n", "", "its solution is open"),
    ],
)
def test_a_planted_mismatch_is_found(old, new, says):
    names = {"attend": None}
    assert mismatched("attention", read(PAGE)[1], names) == []
    assert old in PAGE
    wrong = mismatched("attention", read(PAGE.replace(old, new))[1], names)
    assert any(says in sentence for sentence in wrong), wrong
    wrong = mismatched("attention", read(PAGE)[1], {**names, "more": None})
    assert len(wrong) == 1
    assert "EXERCISES has 'more'" in wrong[0]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("    ...", "    return q", "must say 'not attempted'"),
        ("scores.softmax(-1)", "scores", "must pass"),
        ("return scores.softmax", "scores.softmax", "must pass"),
        (") ** 0.5", ")", "must pass"),
    ],
)
def test_a_planted_bad_play_is_found(old, new, says, monkeypatch):
    first, (exercise,) = read(PAGE)
    assert misplayed(*play(first, exercise, monkeypatch)) == []
    first, (exercise,) = read(PAGE.replace(old, new))
    wrong = misplayed(*play(first, exercise, monkeypatch))
    assert [says in sentence for sentence in wrong] == [True]


@pytest.mark.parametrize("new", ["undefined", "1 / 0"])
def test_a_planted_cell_that_raises_is_found(new, monkeypatch):
    first, (exercise,) = read(PAGE.replace("```python", f"```python\n{new}"))
    with pytest.raises(pytest.fail.Exception, match="the solution of att-one"):
        play(first, exercise, monkeypatch)


# -- the cases ---------------------------------------------------------------
def answers(exercise, seed):
    """What the reference returns on each case."""
    found = []
    for case in core.draw(exercise, seed):
        outcome = core.expected(exercise, case, seed)
        assert outcome.error is None, f"the reference raises {outcome.error!r}"
        found.append(outcome.value)
    return found


def mapped(value, change):
    """Change each tensor, number and text of a result."""
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(v, change) for v in value)
    if isinstance(value, dict):
        return {k: mapped(v, change) for k, v in value.items()}
    return value if value is None else change(value)


def zeros(x):
    return torch.zeros_like(x) if torch.is_tensor(x) else type(x)()


def negated(x):
    if torch.is_tensor(x) and x.dtype == torch.bool:
        return ~x
    if isinstance(x, bool):
        return not x
    return x[::-1] if isinstance(x, (str, bytes)) else -x


def wrong_functions(exercise, seed=0):
    """``{name: function}``: wrong whatever the exercise is about."""
    reference = exercise.reference
    constant = answers(exercise, seed)[0]
    return {
        "zeros": lambda *a, **k: mapped(reference(*a, **k), zeros),
        "the negative": lambda *a, **k: mapped(reference(*a, **k), negated),
        "always the same": lambda *a, **k: constant,
    }


@pytest.mark.parametrize(("chapter", "name"), ALL)
def test_reference_passes_and_wrong_answers_do_not(chapter, name):
    id, exercise = f"{chapter}/{name}", core.exercises(chapter)[name]
    for seed in SEEDS[2:]:  # test_answers.py has others' answers for 0 and 1
        report = check(id, exercise.reference, seed)
        assert report.status == "passed", f"the reference fails:\n{report}"
    cases = core.draw(exercise, 0)
    wrong = wrong_functions(exercise)
    passed = [n for n, f in wrong.items() if check(id, f)]
    if len(cases) == 1 or exercise.judge:
        assert len(passed) < len(wrong), "the check accepts everything"
        return
    assert passed == [], (
        f"{id} accepts wrong functions, those that return {passed}: choose "
        "cases whose right answers differ and are not all zero"
    )


def formed(value, change):
    """A result in which all that can be is in another form."""
    changed = change(value)
    if changed is not value:
        return changed
    if isinstance(value, (list, tuple)):
        return type(value)(formed(v, change) for v in value)
    if isinstance(value, dict):
        return {k: formed(v, change) for k, v in value.items()}
    return value


def is_number(value):
    scalar = torch.is_tensor(value) and not value.dim()
    return scalar or isinstance(value, (bool, int, float))


def array(value):
    """A number, tensor or list of lists of numbers in NumPy's form."""
    with contextlib.suppress(TypeError, RuntimeError):
        return stacked(value).detach().numpy()
    return value


def in_parts(value):
    several = torch.is_tensor(value) and value.dim()
    return tuple(value) if several or isinstance(value, list) else value


def tensor(value):
    found = array(value)
    return torch.tensor(found) if isinstance(found, np.ndarray) else value


SAME_FORMS = {
    "0-d array": lambda x: array(x) if is_number(x) else x,
    "one entry": lambda x: array(x)[None] if is_number(x) else x,
    "NumPy's number": lambda x: array(x)[()] if is_number(x) else x,
    "a list": lambda x: x.tolist() if torch.is_tensor(x) else x,
    "a tuple": in_parts,
    "an array": array,
    "a tensor": tensor,
}
OTHER_FORMS = {
    "with an axis more": lambda x: x[None],
    "as a column": lambda x: x.reshape(-1, 1, 1),
}


@pytest.mark.parametrize(("chapter", "name"), ALL)
def test_the_form_of_a_result_does_not_matter(chapter, name):
    exercise = core.exercises(chapter)[name]
    cases = core.draw(exercise, 0)
    for case, value in zip(cases, answers(exercise, 0), strict=True):
        right = Outcome(value)
        for form, change in SAME_FORMS.items():
            got = Outcome(formed(value, change))
            said = verdict(exercise, case, got, right)
            assert said is None, f"{form}: {said}"
        entries = array(value)
        if isinstance(entries, np.ndarray) and entries.size > 1:
            for form, change in OTHER_FORMS.items():
                got = Outcome(change(entries))
                assert verdict(exercise, case, got, right), form


def single(value):
    """The same in float32."""
    if torch.is_tensor(value) and value.dtype == torch.float64:
        return value.float()
    if type(value) in (list, tuple):
        return type(value)(map(single, value))
    return value


@pytest.mark.parametrize(("chapter", "name"), ALL)
def test_a_right_answer_in_float32_passes(chapter, name):
    """Unless a function that is given takes float64 alone."""
    exercise = core.exercises(chapter)[name]
    if exercise.judge or exercise.local:
        return  # many are right there, or it is given a model
    for seed in range(2):
        for case in core.draw(exercise, seed):
            right = core.expected(exercise, case, seed)
            bound = core.bind(exercise, case)
            bound.arguments.update(
                {k: single(v) for k, v in bound.arguments.items()}
            )
            got = call(exercise.reference, bound, seed)
            if not isinstance(got.error, RuntimeError):
                got = dataclasses.replace(got, arguments=right.arguments)
                assert verdict(exercise, case, got, right) is None, case.name


CONVENTIONS = {  # what an argument mostly is
    **{"base": 10_000.0, "eps": 1e-5, "temperature": 1.0, "epsilon": 0.1},
    **{"pad": 0, "pad_id": 0, "bos": 1, "eos": 2, "stop_id": 0, "mask_id": 0},
    **{"top_k": None, "top_p": None, "decay": 0.0, "floor": 0.0, "warmup": 0},
    **{"alpha": 1.0, "beta": 0.1, "n_kv_heads": 1, "std": 0.02, "head": 0},
}
NEVER_COUNTS = {  # whatever it is, the result is the same
    ("feedforward/backward", "b_out"),
    ("generation/batched", "pad_id"),  # padding is hidden
    ("debugging/moves", "ids"),  # the rows, since a position has one
    ("vision/is_a_set", "patches"),
}


def ignoring(exercise, cases):
    """``(argument, how, cases)`` with an argument that is not looked at."""
    bound = [core.bind(exercise, case).arguments for case in cases]
    known = core.signature(exercise.reference).parameters
    for name in bound[0]:
        values = [arguments.get(name) for arguments in bound]
        others = {}
        if known[name].default is not inspect.Parameter.empty:
            others["its default"] = lambda v, n=name: known[n].default
        if name in CONVENTIONS:
            others["what is usual"] = lambda v, n=name: CONVENTIONS[n]
        tensors = [v for v in values if torch.is_tensor(v)]
        for axis in range(max((v.dim() for v in tensors), default=0)):
            others[f"the first along axis −{axis + 1}"] = functools.partial(
                first_along, axis=-1 - axis
            )
        if any(is_list_of_ids(v) for v in tensors):
            others["0, 1, 2, …"] = lambda v: (
                torch.arange(len(v)) if is_list_of_ids(v) else v
            )
        for how, other in others.items():
            yield name, how, [{name: other(copy.copy(v))} for v in values]


def first_along(value, axis):
    fits = torch.is_tensor(value) and value.dim() >= -axis and value.numel()
    return value.narrow(axis, 0, 1).expand_as(value).clone() if fits else value


def is_list_of_ids(value):
    return (
        torch.is_tensor(value)
        and value.dim() == 1
        and not value.dtype.is_floating_point
        and value.dtype != torch.bool
    )


@pytest.mark.parametrize(("chapter", "name"), ALL)
def test_no_argument_may_be_ignored(chapter, name):
    """Replaced by its default, by what is usual, or by its first row alone."""
    exercise = core.exercises(chapter)[name]
    if exercise.judge or exercise.local:
        return  # many are right there, or it is given a model
    cases = core.draw(exercise, 0)
    rights = [core.expected(exercise, case, 0) for case in cases]
    for argument, how, others in ignoring(exercise, cases):
        if (f"{chapter}/{name}", argument) in NEVER_COUNTS:
            continue
        for case, right, other in zip(cases, rights, others, strict=True):
            bound = core.bind(exercise, case)
            bound.arguments.update(other)
            got = call(exercise.reference, bound, 0)
            got = dataclasses.replace(
                got, arguments={} if got.error else right.arguments
            )
            if verdict(exercise, case, got, right):
                break
        else:
            pytest.fail(f"{argument} may be {how}: choose other cases")


def content(value):
    """What two draws of a case can be compared by."""
    if isinstance(value, torch.nn.Module):
        return dict(value.state_dict())
    if isinstance(value, (list, tuple)):
        return [content(v) for v in value]
    if isinstance(value, dict):
        return {k: content(v) for k, v in value.items()}
    return value if is_value(value) else None


def differ(some, others):
    """Whether two lists of cases have other arguments."""
    one, other = (
        content([[case.name, case.args, dict(case.kwargs)] for case in cases])
        for cases in (some, others)
    )
    return difference(one, other, 0.0, 0.0) is not None


@pytest.mark.parametrize(("chapter", "name"), ALL)
def test_cases_come_from_the_seed(chapter, name):
    exercise = core.exercises(chapter)[name]
    first = core.draw(exercise, 0)
    assert not differ(first, core.draw(exercise, 0)), (
        "cases(0) differs from cases(0): draw from generator(seed) only"
    )
    arguments = [case.args or case.kwargs for case in first]
    if any(is_value(list(a)) for a in arguments if a):
        assert differ(first, core.draw(exercise, 1)), (
            "cases(1) equals cases(0): draw the numbers from the seed"
        )


# -- what the page shows is the reference ------------------------------------
AS_SHOWN = ["attention"]
"""Chapters in which it is, word for word."""


def plain(source, name):
    """A function of a source, without name, docstring and types; or None."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            if ast.get_docstring(node) is not None:
                del node.body[0]
            node.name, node.returns = "f", None
            for one in ast.walk(node):
                if isinstance(one, ast.arg):
                    one.annotation = None
            return ast.unparse(node)
    return None


def solved_on_page(chapter):
    """``(name, source)``: what a page's solution gives to a check."""
    for exercise in exercises_of(chapter):
        for cell in exercise.cells:
            for id, function in re.findall(
                r"\bcheck\(\s*[\"']([^\"']+)[\"'],\s*(\w+)", cell
            ):
                for block in exercise.solution or ():
                    if source := plain(block, function):
                        yield id.partition("/")[2], source


@pytest.mark.parametrize("chapter", AS_SHOWN)
def test_the_reference_is_the_solution_that_the_page_shows(chapter):
    shown = list(solved_on_page(chapter))
    known = core.exercises(chapter)
    assert {n for n, e in known.items() if e.bugs} <= {n for n, _ in shown}
    for name, source in shown:
        if known[name].bugs:
            reference = inspect.unwrap(known[name].reference)
            own = inspect.getsource(reference)
            assert plain(own, reference.__name__) == source, name


# -- references against an outside judge -------------------------------------
def cases_of(id):
    chapter, name = id.split("/")
    for seed in SEEDS:
        yield from core.draw(core.exercises(chapter)[name], seed)


@pytest.mark.parametrize("name", ["attend", "mended", "blocks"])
def test_attention_is_pytorchs(name):
    reference = core.exercises("attention")[name].reference
    for case in cases_of(f"attention/{name}"):
        q, k, v, *more = case.args
        mask = more[0] if name == "attend" and more else None
        right = F.scaled_dot_product_attention(q, k, v, mask)
        # Of scores of ten thousands, the last digit is 2e-12.
        limit = 1e-11 if "negative" in case.name else 1e-12
        torch.testing.assert_close(
            reference(*case.args), right, rtol=0, atol=limit
        )


def test_temperature_is_autograds():
    exercise = core.exercises("attention")["temperature"]
    for case in cases_of("attention/temperature"):
        dy, *inputs = [x.clone().requires_grad_() for x in case.args]
        q, k, v, tau = inputs
        y = (tau * q @ k.mT).softmax(-1) @ v
        right = torch.autograd.grad(y, inputs, dy)
        found = exercise.reference(*case.args)
        for a, b in zip(found, right, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def test_surprise_and_evaluation_are_pytorchs():
    found = core.exercises("first_model")
    for case in cases_of("first_model/surprise"):
        logits, target = case.args
        right = F.cross_entropy(logits, torch.tensor(target))
        torch.testing.assert_close(
            found["surprise"].reference(*case.args), right
        )
    for case in cases_of("first_model/evaluate"):
        table, ids, _ = case.args
        right = F.cross_entropy(table(ids[:-1]), ids[1:]).item()
        assert found["evaluate"].reference(*case.args) == pytest.approx(right)


def attend_with(change):
    """Attention with one classic mistake."""

    def wrong(q, k, v, mask=None):
        scale, dim, fill, after = q.size(-1) ** 0.5, -1, float("-inf"), False
        scale = {"no scale": 1, "times": 1 / scale, "Dh": scale**2}.get(
            change, scale
        )
        dim = {"over queries": -2, "over axis 1": 1}.get(change, dim)
        scores = q @ k.mT / scale
        if mask is not None:
            mask = ~mask if change == "True hides" else mask
            fill = 0.0 if change == "zero" else fill
            after = change == "after"
            if not after and change != "no mask":
                scores = scores.masked_fill(~mask, fill)
        if change == "sigmoid":
            a = scores.sigmoid()
        elif change == "naive":
            a = scores.exp() / scores.exp().sum(-1, keepdim=True)
        else:
            a = scores.softmax(dim)
        return (a * mask if after else a) @ v

    return wrong


MISTAKES = [
    "no scale",
    "times",
    "Dh",
    "over queries",
    "over axis 1",
    "True hides",
    "zero",
    "after",
    "no mask",
    "sigmoid",
    "naive",
]


def test_each_classic_mistake_of_attention_is_seen_and_is_another():
    """All are wrong, and no two of them give the same outputs."""
    assert coursekit.check("attention/attend", attend_with("nothing"))
    outputs = {}
    for mistake in MISTAKES:
        report = coursekit.check("attention/attend", attend_with(mistake))
        assert report.status == "wrong", mistake
        outputs[mistake] = [
            attend_with(mistake)(*case.args)
            for case in core.exercises("attention")["attend"].cases(0)
        ]
    for one, other in itertools.combinations(MISTAKES, 2):
        found = difference(outputs[one], outputs[other], 1e-6, 1e-9)
        assert found, f"{one} looks like {other}"


def test_unusual_right_answers_of_attention_pass():
    def large_number(q, k, v, mask=None):
        hide = 0 if mask is None else -1e9 * ~mask
        q = q / q.size(-1) ** 0.25
        k = k / k.size(-1) ** 0.25
        return (q @ k.transpose(-2, -1) + hide).softmax(-1) @ v

    def by_hand(q, k, v, mask=None):
        fit = torch.einsum("...td,...sd->...ts", q, k) / math.sqrt(q.shape[-1])
        seen = fit if mask is None else fit.where(mask, -math.inf)
        e = torch.exp(fit - seen.max(dim=-1, keepdim=True).values)
        e = e if mask is None else e.where(mask, 0)
        return torch.einsum("...ts,...sd->...td", e, v) / e.sum(-1)[..., None]

    for f in (large_number, by_hand):
        report = coursekit.check("attention/attend", f)
        assert report.status == "passed", report


def test_attention_with_a_maximum_over_hidden_keys_is_named():
    """Softmax first, then the mask: right until a hidden score is high."""

    def renormalized(q, k, v, mask=None):
        a = (q @ k.mT / q.size(-1) ** 0.5).softmax(-1)
        if mask is not None:
            a = a * mask
            a = a / a.sum(-1, keepdim=True)
        return a @ v

    report = coursekit.check("attention/attend", renormalized)
    assert "a maximum that is taken over hidden keys too" in str(report)


# -- judges ------------------------------------------------------------------
def loud(weight=3.0, value=None, others=None, key=0):
    """An answer to "a loud key that does nothing", with a flaw or without."""
    q, k, v = torch.randn(1, 8), torch.randn(5, 8), torch.randn(5, 8)
    k[0] = weight * q[0]
    v[1:] = v[1:] if others is None else others
    idle = coursekit.attend(q, k[1:], v[1:])[0]
    v[0] = idle if value is None else value
    return q, k, v, key


@pytest.mark.parametrize(
    ("flaw", "says"),
    [
        ({"weight": 0.0}, "not more than half"),
        ({"value": 0.0}, "is zero, or nearly"),
        ({"others": 1.0}, "all alike"),
        ({"value": 2.0}, "Hiding the key changes the output by"),
        ({"key": 5}, "There are 5 keys"),
    ],
)
def test_the_loud_key_is_judged(flaw, says):
    assert coursekit.check("attention/loud", loud)
    report = coursekit.check("attention/loud", lambda: loud(**flaw))
    assert report.status == "wrong"
    assert says in report.message
    report = coursekit.check("attention/loud", lambda: loud()[:3])
    assert "Expected something like a tuple of 4" in report.message


def dealt(border=0.9, start=None, gap=0, twice=False):
    """A way to deal out windows, right or with a flaw."""

    def deal(n_text, length):
        cut = int(border * n_text)
        learned = torch.arange(cut - length + gap)
        held_out = torch.arange(int((start or border) * n_text), n_text)
        held_out = held_out[: len(held_out) - length]
        return learned, held_out.repeat(2) if twice else held_out

    return deal


@pytest.mark.parametrize(
    ("flaw", "says"),
    [
        ({"gap": 1}, "of the validation text lies in training windows"),
        ({"border": 0.5}, "Validation gets 50% of the text"),
        ({"border": 0.8, "start": 0.9}, "Training gets"),
        ({"twice": True}, "validation window is given out twice"),
    ],
)
def test_the_deal_is_judged(flaw, says):
    assert coursekit.check("first_model/deal", dealt())
    report = coursekit.check("first_model/deal", dealt(**flaw))
    assert report.status == "wrong"
    assert says in report.message


def test_windows_beyond_the_text_are_told():
    report = coursekit.check(
        "first_model/deal",
        lambda n, length: (torch.arange(n), torch.arange(n)),
    )
    assert "reaches beyond the text" in report.message


HIDES = [
    (chapter, name)
    for chapter in core.chapters()
    for name, exercise in core.exercises(chapter).items()
    if "mask_finite" in exercise.bugs
]


@pytest.mark.parametrize(("chapter", "name"), HIDES)
@pytest.mark.parametrize("lowest", ["-5.0", "-50.0", "-1e4", "-1e9"])
def test_hidden_scores_are_filled_with_a_billion_or_more(
    chapter, name, lowest
):
    """−10,000 is what many fill in, as it still is a number in float16.

    −10⁹ is a convention, too, and no real score is as low.
    """
    exercise = core.find(f"{chapter}/{name}")
    source = core.source_of(exercise, frozenset({"mask_finite"}))
    filled, n = re.subn(r"-100\.0|-1e4", lowest, source)
    assert n == 1
    space = dict(exercise.reference.__globals__)
    exec(filled, space)
    answer = space[exercise.reference.__name__]
    for seed in range(3):
        report = check(f"{chapter}/{name}", answer, seed)
        assert bool(report) == (lowest == "-1e9"), report
        if lowest == "-1e4":
            assert report.diagnosis == {"mask_finite"}, f"{report}"


def test_a_model_that_crashes_shows_the_line_that_did(tmp_path):
    source = (
        "class Model(torch.nn.Linear):\n"
        "    def forward(self, ids):\n"
        "        return nonsense(ids)\n"
        "def build(vocab_size, max_len, d_model, n_heads, n_layers):\n"
        "    return Model(3, 5)\n"
    )
    file = tmp_path / "theirs.py"
    file.write_text(source)
    space = {"torch": torch}
    exec(compile(source, str(file), "exec"), space)
    text = str(check("decoder/build", space["build"]))
    assert "it raised NameError: name 'nonsense' is not defined" in text
    assert "in line 3: return nonsense(ids)" in text
