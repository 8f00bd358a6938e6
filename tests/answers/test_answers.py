"""What the checks can see: every classic mistake, and which one it is.

A chapter's mistakes are edits of its references
(``coursekit_classroom/catalogue/<chapter>.py``). The answers beside this file
were written without a look at the reference: right ones, each mistake in
other words, and mistakes that the catalogue does not have.
"""

import itertools
import json
import re
from functools import lru_cache
from pathlib import Path
from weakref import WeakKeyDictionary

import pytest
from patience import PATIENCE
from test_exercises import PAGES, execute, exercises_of

from coursekit_classroom.check import checker, core
from coursekit_classroom.check.call import Outcome, call, randomness
from coursekit_classroom.check.checker import check, verdict
from coursekit_classroom.check.diagnose import (
    References,
    drawn,
    mutants,
    same,
    trace,
)
from coursekit_classroom.teach import judge
from tests.answers import Answer, answers

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True, scope="module")
def drawn_once():
    """An exercise draws its cases once for all answers: they get copies."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checker, "draw", lru_cache(maxsize=8)(core.draw))
        yield


@pytest.fixture(autouse=True)
def seeded():
    """What is nested in it only seeds: see :func:`randomness`."""
    with randomness(0):
        yield


CHAPTERS = core.chapters()


def with_bugs():
    """``(chapter, name)`` of each exercise that knows mistakes."""
    for chapter in CHAPTERS:
        for name, exercise in core.exercises(chapter).items():
            if exercise.bugs:
                yield chapter, name


ALL = list(with_bugs())
EVERY = [
    (chapter, name) for chapter in CHAPTERS for name in core.exercises(chapter)
]
RECORDED = json.loads((ROOT / "results/checks.json").read_text("utf8"))
RECORDED = RECORDED["metrics"]


# -- what must be there ------------------------------------------------------
def tasks():
    """``(chapter, name)`` of each implement and debug exercise."""
    for chapter in PAGES:
        for exercise in exercises_of(chapter):
            if re.search(r"implement|debug", exercise.title, re.I):
                for id in dict.fromkeys(exercise.checks):
                    yield chapter, id.partition("/")[2]


@pytest.mark.parametrize(("chapter", "name"), sorted(set(tasks())))
def test_each_task_knows_its_mistakes(chapter, name):
    assert len(core.exercises(chapter)[name].bugs) >= 2, (
        "an exercise to implement or debug has at least two classic mistakes"
    )


def test_there_are_a_hundred_mistakes_and_forty_tasks():
    assert len(set(tasks())) >= 40
    assert sum(len(core.exercises(c)[n].bugs) for c, n in ALL) >= 100


@pytest.mark.parametrize(("chapter", "name"), ALL)
def test_the_answers_are_there(chapter, name):
    bugs = core.exercises(chapter)[name].bugs
    given = answers(f"{chapter}/{name}")
    missing = {frozenset({bug}) for bug in bugs} - {a.mistakes for a in given}
    assert not missing, "each mistake needs an answer that makes it"
    assert sum(a.right for a in given) >= 3
    assert sum(not (a.right or a.mistakes) for a in given) >= 3


def read_again():
    for chapter, name in ALL:
        for bug in core.exercises(chapter)[name].bugs.values():
            yield bug.read


@pytest.mark.parametrize("place", sorted(set(read_again())))
def test_what_to_read_again_exists(place):
    page, _, label = place.partition("#")
    text = (ROOT / "book" / f"{page}.md").read_text("utf8")
    found = re.search(
        rf"^\({label}\)=|^:(?:label|name): *{label} *$",
        text,
        re.MULTILINE,
    )
    assert found, f"{page} has no label {label!r}"


# -- the mistakes ------------------------------------------------------------
# Verdicts on outcomes; those of the mutants are asked for in three tests.
JUDGED = WeakKeyDictionary()


class Played:
    """An exercise's cases, and what functions come to on them."""

    def __init__(self, exercise, seed=0, variant=core.NONE):
        self.exercise, self.seed, self.variant = exercise, seed, variant
        self.references = drawn(exercise, seed)
        self.cases = self.references.cases
        self.rights = self.mutant(core.NONE)
        self.judged = JUDGED.setdefault(self.references, {})

    def mutant(self, on):
        """What the reference comes to with mistakes."""
        return [
            self.references.outcome(number, on | self.variant)
            for number in range(len(self.cases))
        ]

    def mutants(self):
        """What each mutant comes to."""
        return {on: self.mutant(on) for on in mutants(self.exercise)}

    def function(self, function):
        """What another function comes to."""
        return [
            call(
                function,
                core.bind(self.exercise, case),
                self.seed,
                self.exercise.manner is not None,
            )
            for case in self.cases
        ]

    def rejecting(self, outcomes):
        """Numbers of the cases that reject these outcomes, in order."""
        answers = zip(self.cases, outcomes, self.rights, strict=True)
        for i, (case, got, right) in enumerate(answers):
            key = id(got), id(right)
            if key not in self.judged:
                said = verdict(self.exercise, case, got, right)
                self.judged[key] = got, right, said
            if self.judged[key][-1] is not None:
                yield i

    def traces(self, outcomes):
        """What of these outcomes is compared."""
        return [
            trace(self.exercise, case, outcome)
            for case, outcome in zip(self.cases, outcomes, strict=True)
        ]

    def telling_apart(self, one, other):
        """Numbers of the cases that tell two functions' traces apart."""
        for i, both in enumerate(zip(one, other, strict=True)):
            if not same(self.exercise, *both):
                yield i


def declared(exercise, *both):
    return any(
        set(both) == {frozenset(a), frozenset(b)} for a, b, _ in exercise.alike
    )


def not_seen(exercise, seed, variant):
    """Mutants that pass, and pairs of mutants that cannot be told apart."""
    played = Played(exercise, seed, variant)
    found = played.mutants()
    alive = [
        sorted(on)
        for on, outcomes in found.items()
        if next(played.rejecting(outcomes), None) is None
    ]
    traces = {on: played.traces(outcomes) for on, outcomes in found.items()}
    twins = [
        (sorted(a), sorted(b))
        for a, b in itertools.combinations(found, 2)
        if next(played.telling_apart(traces[a], traces[b]), None) is None
        and not declared(exercise, a, b)
    ]
    return alive, twins


def variants():
    for chapter, name in ALL:
        exercise = core.exercises(chapter)[name]
        for variant in (None, *exercise.variants):
            yield chapter, name, variant


@pytest.mark.parametrize(("chapter", "name", "variant"), list(variants()))
def test_every_mistake_and_pair_is_rejected_and_told_apart(
    chapter, name, variant
):
    exercise = core.exercises(chapter)[name]
    on = frozenset({variant} - {None})
    for seed in (0, 1) if variant is None else (0,):
        alive, twins = not_seen(exercise, seed, on)
        assert alive == [], f"no case rejects {alive}"
        assert twins == [], (
            f"nothing tells apart {twins}: add a case, put both at the same "
            "place, or declare them alike with the reason"
        )


@pytest.mark.parametrize(("chapter", "name"), ALL)
def test_what_the_page_on_checks_shows_is_so(chapter, name):
    id, exercise = f"{chapter}/{name}", core.exercises(chapter)[name]
    assert id in RECORDED, f"{id} is new: make results NAME=checks"
    shown = RECORDED[id]
    played = Played(exercise)
    found = {on: o for on, o in played.mutants().items() if len(on) <= 2}
    rejecting = {
        key: set(played.rejecting(found[frozenset((key,))]))
        for key in exercise.bugs
    }
    assert shown["bugs"] == {
        bug.says: "".join(
            "x" if i in rejecting[key] else "."
            for i in range(len(played.cases))
        )
        for key, bug in exercise.bugs.items()
    }, f"say: make results NAME=checks, since {id} has changed"
    assert len(shown["cases"]) == len(played.cases)
    assert shown["n_pairs"] == len(found) - len(exercise.bugs)
    assert shown["n_rejected"] == sum(
        next(played.rejecting(outcomes), None) is not None
        for outcomes in found.values()
    )
    assert shown["n_alike"] == len(exercise.alike)


def test_the_page_on_checks_shows_every_exercise():
    assert list(RECORDED) == [f"{chapter}/{name}" for chapter, name in ALL]


@pytest.mark.parametrize(("chapter", "name"), ALL)
def test_what_is_declared_alike_is_alike(chapter, name):
    exercise = core.exercises(chapter)[name]
    known, played = mutants(exercise), Played(exercise)
    for a, b, reason in exercise.alike:
        assert frozenset(a) in known, sorted(a)
        assert frozenset(b) in known, sorted(b)
        assert len(reason.split()) >= 3
        both = (played.traces(played.mutant(frozenset(x))) for x in (a, b))
        assert list(played.telling_apart(*both)) == [], (a, b)


def news(played, found):
    """Which cases are the first to see something in these outcomes."""
    traces = [played.traces(outcomes) for outcomes in found]
    firsts = [next(played.rejecting(outcomes), None) for outcomes in found]
    firsts += [
        next(played.telling_apart(a, b), None)
        for a, b in itertools.combinations(traces, 2)
    ]
    return set(firsts) - {None}


@pytest.mark.parametrize(("chapter", "name"), ALL)
def test_every_case_sees_something_new(chapter, name):
    played = Played(core.exercises(chapter)[name])
    found = list(played.mutants().values())
    found += [
        played.function(answer.function)
        for answer in answers(f"{chapter}/{name}")
        if not (answer.right or answer.mistakes)
    ]
    seeing = news(played, found)
    idle = [c.name for i, c in enumerate(played.cases) if i not in seeing]
    assert idle == [], (
        f"{idle}: no mistake is seen first by this case, and no two are told "
        "apart first by it. Drop it, or add the mistake that needs it"
    )


@pytest.mark.parametrize(("chapter", "name"), ALL)
def test_every_mistake_fits_every_variant(chapter, name):
    exercise = core.exercises(chapter)[name]
    for size in range(len(exercise.variants) + 1):
        for asked in itertools.combinations(exercise.variants, size):
            for on in mutants(exercise):
                assert core.source_of(exercise, on.union(asked))


# -- answers written by others -----------------------------------------------
def misjudged(answer, seed):
    """What the check says where it isn't what the mark says; else None."""
    exercise = core.find(answer.id)
    report = check(answer.id, answer.function, seed, limit=PATIENCE)
    marked = [answer.mistakes]
    marked += [frozenset(b) for a, b, _ in exercise.alike if a == marked[0]]
    named = report.diagnosis in marked and all(
        exercise.bugs[bug].says in str(report)
        for bug in answer.mistakes & set(exercise.bugs)
    )
    unknown = "cause not recognized" in str(report)
    if answer.right:
        fits = report.status == "passed"
    elif answer.mistakes:
        fits = not report and named and not unknown
    else:
        sought = bool(exercise.bugs) and report.status == "wrong"
        fits = not report and named and unknown == sought
    return None if fits else f"{answer}\n{report}"


@pytest.mark.parametrize(("chapter", "name"), EVERY)
def test_every_answer_is_judged_as_it_is_marked(chapter, name):
    given = answers(f"{chapter}/{name}")
    # Cases of two seeds, each for half of the answers.
    found = [misjudged(answer, n % 2) for n, answer in enumerate(given)]
    assert list(filter(None, found)) == []


def test_a_wrong_mark_is_found():
    """The control: the same answers, each marked in another way."""
    id = "attention/attend"
    given = {answer.mistakes: answer.function for answer in answers(id)}
    right = next(a.function for a in answers(id) if a.right)
    no_scale, outside = given[frozenset({"no_scale"})], given[core.NONE]
    other = frozenset({"mask_inverted"})
    for marked in (
        Answer(id, right, False),
        Answer(id, no_scale, True),
        Answer(id, no_scale, False),
        Answer(id, no_scale, False, other),
        Answer(id, outside, True),
        Answer(id, outside, False, other),
    ):
        assert misjudged(marked, 0), marked


@pytest.mark.parametrize(
    ("chapter", "program"),
    [
        ("attention", "suspicious"),
        ("decoder", "theirs"),
        ("feedforward", "theirs"),
        ("encoder", "from_a_decoder"),
        ("generation", "theirs"),
        ("loss", "it_runs"),
    ],
)
def test_a_program_that_nobody_mended_is_recognized(chapter, program):
    (exercise,) = (
        e for e in exercises_of(chapter) if f"{chapter}/mended" in e.checks
    )
    space = {"__name__": "page"}
    execute(exercise.first, space, "the page's first cell")
    for source in exercise.cells:
        execute(source, space, f"a cell of {exercise.label}")
    report = check(f"{chapter}/mended", space[program], limit=PATIENCE)
    assert len(report.diagnosis) >= 2, report


def gradable():
    """``(chapter, name)`` of each exercise that is graded in a sandbox."""
    for chapter in CHAPTERS:
        for name, exercise in core.exercises(chapter).items():
            if not exercise.local:
                yield chapter, name


def refuses(*args, **kwargs):
    raise ValueError("this is not done")


def infinite(*args, **kwargs):
    return float("inf")


@pytest.mark.parametrize(("chapter", "name"), list(gradable()))
def test_no_look_at_the_input_gets_no_points(chapter, name, monkeypatch):
    """Though some cases have None, 0, 1 or zeros as their right answer."""
    exercise = core.exercises(chapter)[name]
    played = Played(exercise)
    rights = dict(zip(map(id, played.cases), played.rights, strict=True))
    monkeypatch.setattr(judge.Task, "cases", played.cases)
    monkeypatch.setattr(judge.Task, "call_seed", 0)
    monkeypatch.setattr(core, "expected", lambda e, case, *_: rights[id(case)])
    task = judge.Task(f"{chapter}/{name}", "f", 9.0, exercise, 0, 0)
    empty = judge.nothing(task, "wrong", "")
    for answer in (*judge.BLIND, refuses, infinite):
        rejecting = set(played.rejecting(played.function(answer)))
        right = [i not in rejecting for i in range(len(played.cases))]
        assert judge.credited(task, empty, right).right == 0, answer


def test_one_case_that_takes_a_look_brings_the_others_points_too():
    """The control: None where nothing fits, and the shift of 1."""
    task = judge.Task("", "f", 9.0, core.find("first_model/shift"), 0, 0)
    rights = [core.expected(task.exercise, case, 0) for case in task.cases]
    for known, points in ({None}, 0), ({1}, 0), ({None, 1}, 5), ({3}, 1):
        right = [outcome.value in known for outcome in rights]
        empty = judge.nothing(task, "wrong", "")
        found = judge.credited(task, empty, right)
        assert 9 * found.right == points * found.total, known


@pytest.mark.parametrize("secret", range(5))
def test_always_none_is_nothing_in_any_order_of_the_cases(secret):
    """None is right on four of nine, and a shift has to be returned too."""
    exercise = core.find("first_model/shift")
    task = judge.Task("", "f", 9.0, exercise, 0, secret)
    tried = judge.Tried([Outcome() for _ in task.cases])
    found = judge.assess(task, task.cases, tried)
    assert found.status == "not attempted"


# -- other conventions than the book's ---------------------------------------
BOOKS_WORDS = {
    "attention/attend": "True hides|is False",
    "debugging/mended": "own row",
    "decoder/count": "this head has none|none of the biases",
    "decoder/gpt": "A token's vector plus",
    "decoder/mended": r"x \+ part",
    "embedding/look_up": "as they are",
    "feedforward/backward": "ReLU",
    "feedforward/count": "first layer|second layer",
    "feedforward/mended": "no division",
    "first_model/evaluate": "nats",
    "first_model/surprise": "ln p",
    "generation/beam": r"by n \*\*|by its length",
    "loss/per_byte": "ln 2|bit",
    "loss/smooth": "not the sum",
    "masks/visible": "tril|condition is enough|means: may look",
    "modern/rope": "All the first numbers",
    "positions/codes": "Coordinate 2i|0, 1, 0, 1",
    "scaling/flops": "two FLOPs",
    "scaling/parameters": "12 D²|both of whose|six",
    "seq2seq/cross": "− 1",
    "seq2seq/shift": "BOS|bos",
    "tokenizer/vocabulary": r"Sort by code point|sorted\(set|how often",
    "training/plan": "number of axes: two",
    "training/rates": "cosine",
}
"""What a mistake's text may not say under the exercise's variant."""


@pytest.mark.parametrize(
    ("chapter", "name", "variant"), [one for one in variants() if one[2]]
)
def test_a_variant_is_graded_and_explained_by_its_own_convention(
    chapter, name, variant, monkeypatch
):
    label, exercise = f"{chapter}/{name}", core.exercises(chapter)[name]
    on, asks = frozenset({variant}), exercise.variants[variant].asks
    task = judge.Task(label, "f", 10.0, exercise, 3, 0, on)
    cases, seed = task.cases, task.call_seed
    references = References(exercise, cases, seed)
    rights = {id(c): references.outcome(n, on) for n, c in enumerate(cases)}
    # Computed once for all answers.
    monkeypatch.setattr(judge, "References", lambda *_: references)
    monkeypatch.setattr(judge.Task, "cases", cases)
    monkeypatch.setattr(core, "expected", lambda e, case, *_: rights[id(case)])

    def graded(function):
        bound = [core.bind(exercise, case) for case in cases]
        tried = judge.Tried([call(function, b, seed) for b in bound])
        return judge.assess(task, cases, tried)

    # A page's solution is right, too: see test_exercises.py.
    others = [a.function for a in answers(label) if a.right][:3]
    for answer in (exercise.reference, *others):
        found = graded(answer)
        assert (found.points, found.diagnosis) == (0, ["book"])
        assert asks in found.cause[1]
    assert graded(core.mutant(exercise, on)).points == 10

    words = BOOKS_WORDS.get(label, "(?!)")  # by default what is never found
    known = core.mistakes(exercise, on)
    for bug in exercise.bugs:
        found = graded(core.mutant(exercise, on | {bug}))
        assert {*found.says} <= {mistake.says for mistake in known.values()}
        said = "\n".join([*found.cause, known[bug].says, known[bug].why])
        assert found.says, bug
        assert not re.search(words, said), said
    if exercise.variants[variant].texts:  # the control
        own = [f"{bug.says}\n{bug.why}" for bug in exercise.bugs.values()]
        assert re.search(words, "\n".join(own))


def test_a_mistake_under_a_variant_has_its_part_of_the_points():
    """The control: not everything that is wrong earns nothing."""
    exercise, on = core.find("attention/attend"), frozenset({"true_hides"})
    cases = core.draw(exercise, 0)
    for bug, right in ("mask_finite", 4), ("naive", 3), ("mask_ignored", 0):
        wrong = core.mutant(exercise, on | {bug})
        report = check("attention/attend", wrong, variants=on)
        assert (report.right, report.total) == (right, len(cases)), bug


# -- controls: what these gates would say ------------------------------------
def half(x):
    y = x * 0.5
    return y


def planted(*cases):
    bugs = {
        "double": core.Bug("0.5", "2", says="double"),
        "abs": core.Bug("return y", "return abs(y)", says="abs"),
    }
    return core.Exercise(half, lambda seed: cases, bugs=bugs)


def test_a_planted_mistake_that_passes_is_found():
    weak = planted(core.Case((0,)), core.Case((3,)))
    assert not_seen(weak, 0, core.NONE) == (
        [["abs"]],
        [(["double"], ["abs", "double"])],
    )
    good = planted(core.Case((-3,)))
    assert not_seen(good, 0, core.NONE) == ([], [])


def test_a_planted_case_that_sees_nothing_is_found():
    idle = planted(*(core.Case((x,)) for x in (-3, -5, 0)))
    played = Played(idle)
    assert news(played, list(played.mutants().values())) == {0}


def test_a_planted_lookalike_is_named_and_a_stranger_is_not(monkeypatch):
    exercise = planted(core.Case((-3.0,)))
    monkeypatch.setattr(core, "chapters", lambda: ["planted"])
    monkeypatch.setattr(core, "exercises", lambda chapter: {"it": exercise})
    named = check("planted/it", lambda x: x + x)
    assert named.diagnosis == {"double"}
    both = check("planted/it", lambda x: abs(x) * 2)
    assert both.diagnosis == {"double", "abs"}
    assert "abs, together with double" in str(both)
    other = check("planted/it", lambda x: 0.25 * x)
    assert other.diagnosis == core.NONE
    assert "cause not recognized" in str(other)
