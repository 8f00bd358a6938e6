"""What the checks make of answers by readers who saw the pages alone.

The answers, and what their writers said of them before any check ran, are in
``tests/wild``; ``python -m results.wild --list`` shows what the checks say.
"""

from coursekit_classroom.check import core
from coursekit_classroom.glue import result
from results import wild
from tests.wild import Answer

ANSWERS = wild.answers()
FITS = wild.judged()["fits"]


def test_there_are_200_answers_of_all_chapters():
    assert len(ANSWERS) >= 200
    assert sum(answer.right for answer in ANSWERS) >= 80
    assert len({a.name for a in ANSWERS}) == len(ANSWERS)
    chapters = {answer.id.split("/")[0] for answer in ANSWERS}
    assert chapters == set(core.chapters())
    for answer in ANSWERS:
        assert core.find(answer.id), answer.name


def test_the_halves_are_about_equal():
    halves = [wild.half(answer) for answer in ANSWERS]
    first = len(halves) - halves.count("fresh")
    assert 0.4 < halves.count("held out") / first < 0.6


def test_the_fresh_answers_are_of_twenty_chapters():
    fresh = [answer for answer in ANSWERS if wild.half(answer) == "fresh"]
    chapters = {answer.id.split("/")[0] for answer in fresh}
    later = {"tuning", "inference", "preferences"}
    assert chapters == set(core.chapters()) - later
    assert sum(answer.right for answer in fresh) >= 24
    assert sum(answer.classic for answer in fresh) >= 20


def test_the_checks_keep_their_promise():
    """No right answer is refused, no wrong one passes or gets a false name."""
    for counts in result("wild")["last"].values():
        kinds = {word.split(": ")[1] for word in counts}
        assert kinds == {"passed", "named", "not named"}
        classic = [n for word, n in counts.items() if "classic" in word]
        assert counts["classic: named"] >= 0.75 * sum(classic)


def test_what_was_judged_is_there():
    names = {answer.name for answer in ANSWERS}
    assert set(FITS) <= names
    for name, diagnoses in FITS.items():
        exercise = core.find(name.split(":")[0])
        known = {*exercise.bugs, *exercise.variants, *core.EVERYWHERE}
        assert {bug for d in diagnoses for bug in d} <= known, name


def test_the_table_is_what_the_checks_do():
    """If this fails: make results NAME=wild, and see what has changed."""
    assert wild.measure() == result("wild")["last"]


def test_a_wrong_mark_would_be_found():
    """The control: an answer with the other mark fails."""
    right = next(a for a in ANSWERS if a.right)
    wrong = next(a for a in ANSWERS if wild.outcome(a, FITS)[0] == "named")
    turned = [
        Answer(a.id, a.function, not a.right, a.what) for a in (right, wrong)
    ]
    words = [wild.outcome(answer, FITS)[0] for answer in turned]
    assert words == ["accepted", "refused"]
    assert wild.outcome(wrong, {})[0] == "misnamed"
