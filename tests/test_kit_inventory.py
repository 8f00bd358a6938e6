"""Two parallel forms, and an analysis that finds what was put in."""

import io
import math
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

from coursekit import cli
from coursekit.classroom import kit
from coursekit.classroom.kit import analysis, export

ROOT = Path(__file__).resolve().parent.parent
A, B = (kit.inventory(form) for form in kit.FORMS)


# -- the forms ---------------------------------------------------------------
def test_the_forms_ask_for_the_same_concepts_in_other_words():
    assert len(A) == len(B) == 20
    for one, other in zip(A, B, strict=True):
        assert (one.about, one.read) == (other.about, other.read)
        assert one.ask != other.ask
        for item in (one, other):
            assert len({o.text for o in item.options}) == 4
        names = {o.wrong for o in one.options}
        assert names == {o.wrong for o in other.options}
        assert len(names) == 4
        assert all(len(name) > 10 for name in names - {""})


@pytest.mark.parametrize("form", [A, B], ids=kit.FORMS)
def test_neither_length_nor_position_tells_the_right_option(form):
    for better in (lambda a, b: a > b, lambda a, b: a < b):
        ahead = sum(
            all(
                better(len(item.right.text), len(o.text))
                for o in item.options
                if o.wrong
            )
            for item in form
        )
        assert ahead <= 0.3 * len(form)
    keys = [item.key for item in form]
    assert {key: keys.count(key) for key in kit.LETTERS} == dict.fromkeys(
        kit.LETTERS, 5
    )


def test_each_concept_is_explained_in_the_book():
    for item in A:
        name, _, label = item.read.partition("#")
        page = (ROOT / "book" / f"{name}.md").read_text("utf8")
        assert f"\n({label})=\n" in page, item.read


def test_keys_that_can_be_computed_are_right():
    assert [8, 3, 5, 1, 6][2 + 1] == int(A[0].right.text)
    assert "masks"[1 + 1] == B[0].right.text.strip("`")
    assert math.log(10_000) == pytest.approx(2 * math.log(100))
    assert math.log(2500) == pytest.approx(2 * math.log(50))
    assert A[5].right.text == "4"  # a row for each of 4 queries
    assert 64**0.5 / 16**0.5 == 2
    assert f"by {256**0.5:.0f}," in B[7].right.text
    assert A[9].right.text == f"({2 - 1} {3 + 0})"
    roots = [p**0.5 for p in (0.8, 0.2)]
    assert 0.5 < roots[0] / sum(roots) < 0.8
    assert 0.6**2 / (0.6**2 + 0.4**2) > 0.6
    assert 4**4 > 60
    assert 3.0 / 3 < 1.2


# -- the analysis ------------------------------------------------------------
def answers(right, items):
    """Letters for what was right, and other letters for what was not."""
    return [
        item.key if yes else next(k for k in kit.LETTERS if k != item.key)
        for item, yes in zip(items, right, strict=True)
    ]


def written(path, before, after, forms=(A, B)):
    """A file of answers; every second person gets the forms exchanged."""
    numbers = ",".join(f"q{n}" for n in range(1, 21))
    lines = [f"person,when,form,{numbers}"]
    for person, rows in enumerate(zip(before, after, strict=True)):
        for time, right in enumerate(rows):
            which = (time + person) % 2
            chosen = ",".join(answers(right, forms[which]))
            when = ("before", "after")[time]
            lines.append(f"p{person},{when},{kit.FORMS[which]},{chosen}")
    path.write_text("\n".join(lines) + "\n", "utf8")
    return path


def simulated(n, shift, seed):
    """Students of known abilities: a logistic model with known items.

    Returns:
        answers (n, 20), twice, by the same students.
    """
    generator = np.random.default_rng(seed)
    ability = generator.normal(size=n)
    hardness = np.linspace(-1.5, 1.5, 20)
    p = 1 / (1 + np.exp(-(1.5 * (ability + shift)[:, None] - hardness)))
    return generator.random((2, n, 20)) < p


def table(out):
    """The numbers of each item: before, after, and the interval."""
    found = re.findall(
        r"^ +(\d+) +([\d.]+) +([\d.]+) \(([\d.]+) to ([\d.]+)\)",
        out,
        re.MULTILINE,
    )
    return np.array([[float(n) for n in row[1:]] for row in found])


def test_the_report_finds_what_simulated_students_were_given(tmp_path):
    n = 400
    before, again = simulated(n, -1.0, 1)
    after, _ = simulated(n, 0.5, 2)
    path = written(tmp_path / "a.csv", before, after)
    out = analysis.report(path, discriminate=True)
    found = table(out)
    assert np.allclose(found[:, 0], before.mean(0), atol=0.005)
    assert np.allclose(found[:, 1], after.mean(0), atol=0.005)
    assert (found[:, 2] <= found[:, 1]).all()
    assert (found[:, 3] >= found[:, 1]).all()
    # As wide as theory says: 2 · 1.96 standard errors.
    p = after.mean(0)
    width = 2 * 1.96 * np.sqrt(p * (1 - p) / n)
    assert np.allclose(found[:, 3] - found[:, 2], width, atol=0.02)
    # Reliability is how the scores of a second try go with those of the first.
    known = np.corrcoef(again.sum(1), before.sum(1))[0, 1]
    said = float(re.search(r"KR-20 before: ([\d.]+)", out)[1])
    assert said == pytest.approx(known, abs=0.05)
    assert said > 0.7
    gained = (after.mean() - before.mean()) / (1 - before.mean())
    assert f"normalized gain: {gained:.2f}" in out
    each = re.search(r"discrimination after: (.+)", out)[1].split()
    assert len(each) == 20
    assert min(map(float, each)) > 0.2


def test_random_answers_show_no_reliability(tmp_path):
    generator = np.random.default_rng(3)
    before, after = generator.random((2, 400, 20)) < 0.25
    out = analysis.report(written(tmp_path / "a.csv", before, after))
    for when in ("before", "after"):
        low, high = re.search(
            rf"KR-20 {when}: \S+ \((\S+) to (\S+)\)", out
        ).groups()
        assert float(low) < 0.1
        assert float(high) < 0.3
    low, high = re.search(r"gain: \S+ \((\S+) to (\S+)\)", out).groups()
    assert float(low) < 0 < float(high)


def test_of_one_person_nothing_is_drawn(tmp_path):
    one = np.arange(20)[None] % 2 == 0
    out = analysis.report(written(tmp_path / "a.csv", one, ~one))
    assert "\n1 person\n" in out
    assert out.count("KR-20 before: not defined") == 1
    assert out.count("KR-20 after: not defined") == 1
    assert " to " not in out
    two = np.concatenate([one, ~one])
    out = analysis.report(written(tmp_path / "a.csv", two, ~two))
    assert "\n2 persons\n" in out
    assert " to " in out  # the control


def test_an_interval_by_hand():
    """Of one right and one wrong the mean is 0, 1/2 or 1: 1/4, 1/2, 1/4."""
    right = np.array([[True], [False]])
    ends = analysis.interval(right, lambda r: float(r.mean()))
    assert ends == (0.0, 1.0)
    nothing = analysis.interval(right, lambda r: float("nan"))
    assert all(math.isnan(end) for end in nothing)


# -- the commands ------------------------------------------------------------
def test_each_form_is_scored_by_its_own_key(tmp_path, capsys):
    everything = np.ones((3, 20), dtype=bool)
    path = written(tmp_path / "a.csv", ~everything, everything)
    assert cli.main(["kit", "analyze", str(path)]) == 0
    out = capsys.readouterr().out
    assert "not yet validated" in out
    assert "mean score: 0.00 before, 1.00 after" in out
    # The control: with the forms exchanged the keys no longer fit.
    swapped = written(path, ~everything, everything, forms=(B, A))
    assert cli.main(["kit", "analyze", str(swapped)]) == 0
    assert "1.00 after" not in capsys.readouterr().out


def test_what_cannot_be_used_is_refused(tmp_path, capsys):
    few = np.ones((29, 20), dtype=bool)
    path = written(tmp_path / "a.csv", ~few, few)
    words = ["kit", "analyze", str(path), "--discrimination"]
    assert cli.main(words) == 2
    assert "at least 30 persons: got 29" in capsys.readouterr().err
    path.write_text(path.read_text("utf8").replace(",A,", ",C,", 1), "utf8")
    assert cli.main(words[:-1]) == 2
    assert "one of A, B: got 'C' in line 2" in capsys.readouterr().err


def test_the_forms_are_printed(capsys):
    assert cli.main(["kit", "inventory", "--form", "B"]) == 0
    assert capsys.readouterr().out == export.markdown(B)
    assert cli.main(["kit", "inventory", "--key"]) == 0
    assert capsys.readouterr().out == export.markdown(A, key=True)


def test_every_form_says_that_it_is_not_validated():
    warning = "not yet validated with students"
    for write in (export.markdown, export.text, export.moodle):
        assert warning in write(A)
        assert warning in write(B)
        assert warning not in write(kit.exam([4]))
    assert warning in export.markdown(A, key=True).splitlines()[0]
    with zipfile.ZipFile(io.BytesIO(export.qti(A))) as folder:
        assert warning in folder.read(export.ASSESSMENT).decode()
