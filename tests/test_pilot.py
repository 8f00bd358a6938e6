"""The pilot's form has right keys, and its command computes by the book."""

import collections
import math
import re

import numpy as np
import pytest
import torch

from coursekit import minimal
from coursekit.classroom import pilot
from coursekit.classroom.pilot import analysis

ITEMS = pilot.items()


def right(number):
    """The text of the right option of an item, counted from 1."""
    item = ITEMS[number - 1]
    return item.options[pilot.LETTERS.index(item.key)]


def numbers(text):
    """The numbers in a text."""
    return [
        float(n)
        for n in re.findall(r"-?\d+(?:\.\d+)?", text.replace("−", "-"))
    ]


# -- the form ----------------------------------------------------------------
def test_the_form_has_ten_items_with_one_right_option():
    assert len(ITEMS) == 10
    for item in ITEMS:
        assert len(set(item.options)) == len(pilot.LETTERS) == 4
        assert {item.key, *item.wrong} == set(pilot.LETTERS)
        assert all(len(why) > 10 for why in item.wrong.values())
    assert len({why for item in ITEMS for why in item.wrong.values()}) == 30


def longest(items):
    """In how many items the right option is longer than any other."""
    return sum(
        len(item.options[pilot.LETTERS.index(item.key)])
        > max(
            len(text)
            for letter, text in zip(pilot.LETTERS, item.options, strict=True)
            if letter != item.key
        )
        for item in items
    )


def test_neither_length_nor_position_tells_the_right_option():
    assert longest(ITEMS) <= 0.3 * len(ITEMS)
    counts = collections.Counter(item.key for item in ITEMS)
    assert set(counts) == set(pilot.LETTERS)
    assert max(counts.values()) <= 4
    told = pilot.Item("", "", ("no", "no", "right", "no"), "c", {})
    assert longest([told]) == 1


def test_keys_that_can_be_computed_are_right():
    window = [5, 2, 7, 9, 4, 1]
    assert numbers(ITEMS[0].ask.split("is ")[1])[:6] == window
    assert numbers(right(1)) == window[1:5]
    assert float(right(2)) == round(math.log(50), 2)
    weights = torch.rand(5, 3).softmax(-1)  # 5 queries, 3 keys
    assert torch.allclose(weights.sum(1), torch.ones(5))
    assert "row" in right(4)
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 20_000, 64, generator=generator)
    assert float(right(6)) == round((q * k).sum(-1).std().item()) == 8
    x, f = torch.tensor([1.0, -2.0]), torch.tensor([0.5, 0.5])
    assert numbers(right(7)) == (x + f).tolist()
    losses = {1000: 1.9, 2000: 1.7, 3000: 2.1}
    assert f"{min(losses, key=losses.get):,}" in right(9)
    p = (torch.tensor([2.0, 0.0]) / 0.5).softmax(0)[0].item()
    assert float(right(10)) == round(p, 2)


def test_wrong_numbers_are_those_of_their_misconceptions():
    options = [dict(zip(pilot.LETTERS, i.options, strict=True)) for i in ITEMS]
    assert float(options[1]["a"]) == 1 / 50
    assert float(options[1]["c"]) == round(math.log2(50), 2)
    tempered = torch.tensor([2.0, 0.0])
    assert float(options[9]["a"]) == round(
        (tempered * 0.5).softmax(0)[0].item(), 2
    )
    plain = tempered.softmax(0)[0].item()
    assert float(options[9]["b"]) == round(plain, 2)
    assert float(options[9]["d"]) == round(plain / 2, 2)


def test_the_feed_forward_network_has_most_parameters():
    block = minimal.Block(d_model=24, n_heads=3)
    sizes = {
        name: sum(w.numel() for w in part.parameters())
        for name, part in block.named_children()
    }
    largest = max(sizes, key=sizes.get)
    assert sizes[largest] == 8 * 24 * 24
    assert "feed-forward" in right(8)


# -- the analysis ------------------------------------------------------------
def matrix(text):
    """Rows of 0 and 1 as booleans."""
    return np.array([[c == "1" for c in row] for row in text.split()])


def test_kr20_by_hand():
    """p = 3/4, 1/2, 1/4: 0.625; scores 3, 2, 1, 0: variance 5/4."""
    found = analysis.kr20(matrix("111 110 100 000"))
    assert found == pytest.approx(3 / 2 * (1 - 0.625 / 1.25))  # 0.75
    # Two items of which nobody has just one: perfectly reliable.
    assert analysis.kr20(matrix("11 00 11 00")) == pytest.approx(1)
    assert math.isnan(analysis.kr20(matrix("10 01")))


def test_gain_by_hand():
    before, after = matrix("1000 1100"), matrix("1100 1111")
    # 3/8 before, 6/8 after: 3/8 of 5/8.
    assert analysis.gain(before, after) == pytest.approx(0.6)
    assert analysis.gain(after, before) == pytest.approx(-1.5)
    assert math.isnan(analysis.gain(matrix("11"), matrix("11")))


def test_the_interval_of_two_people_by_enumeration():
    """Drawn are AA, AB, BA, BB, each in a quarter of the cases.

    A goes from 0 to 1/2, a gain of 1/2; B from 1/2 to 1, a gain of 1.
    """
    before, after = matrix("00 10"), matrix("10 11")
    assert analysis.gain_interval(before, after) == (0.5, 1.0)
    same = matrix("10 10 10"), matrix("11 11 11")
    assert analysis.gain_interval(*same) == (1.0, 1.0)


def test_the_interval_is_as_wide_as_theory_says():
    """Nobody knows anything before: the gain is a mean of 400 people."""
    generator = np.random.default_rng(1)
    after = generator.random((400, 1)) < 0.5
    before = np.zeros_like(after)
    low, high = analysis.gain_interval(before, after, draws=4000)
    deviation = math.sqrt(after.mean() * (1 - after.mean()) / 400)
    assert high - low == pytest.approx(2 * 1.96 * deviation, rel=0.06)


def test_discrimination_needs_thirty_people():
    generator = np.random.default_rng(0)
    able = generator.random(31)[:, None]
    answers = np.hstack([able > [0.2, 0.4, 0.6, 0.8], able < 0.5])
    found = analysis.discrimination(answers)
    assert (found[:4] > 0).all()
    assert found[4] < 0
    # Outside: the correlation of 0/1 with a score, by means of two groups.
    rest = answers[:, 1:].sum(1)
    yes, no = rest[answers[:, 0]].mean(), rest[~answers[:, 0]].mean()
    p = answers[:, 0].mean()
    wanted = (yes - no) / rest.std() * math.sqrt(p * (1 - p))
    assert found[0] == pytest.approx(wanted)
    analysis.discrimination(answers[:30])
    with pytest.raises(ValueError, match="at least 30 persons: got 29"):
        analysis.discrimination(answers[:29])


# -- files -------------------------------------------------------------------
HEAD = "person,when," + ",".join(f"q{n}" for n in range(1, 11))
KEY = ",".join(item.key for item in ITEMS)


def written(tmp_path, *rows, head=HEAD):
    path = tmp_path / "answers.csv"
    path.write_text("\n".join([head, *rows]) + "\n", "utf8")
    return path


def test_a_file_is_scored(tmp_path, capsys):
    other = "," * 9
    rows = [
        f"1,before,{other}",
        f"2,after,{KEY}",
        f"1,after,{KEY}",
        f"2,before,{KEY[0]}{other}",
    ]
    path = written(tmp_path, *rows)
    before, after = analysis.read(path)
    assert before.sum(1).tolist() == [0, 1]
    assert after.all()
    assert analysis.main([str(path)]) == 0
    out = capsys.readouterr().out
    assert "2 persons" in out
    assert "   1    0.50   1.00  the target of a token" in out
    assert (
        "normalized gain: 1.00 (95 % of draws of persons: 1.00 to 1.00)" in out
    )
    assert "KR-20" in out
    assert analysis.main([str(path), "--discrimination"]) == 2
    assert "needs at least 30 persons: got 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rows", "head", "says"),
    [
        ([], "person,q1", "the first line must be person,when,q1"),
        ([], HEAD, "the file must have answers"),
        (["1,before,a"], HEAD, "a row has 12 cells: got 3 in line 2"),
        ([f"1,during,{KEY}"], HEAD, "got '1' and 'during' in line 2"),
        ([f",after,{KEY}"], HEAD, "got '' and 'after'"),
        ([f"1,after,E{KEY[1:]}"], HEAD, "got 'E' for q1 in line 2"),
        (
            [f"1,after,{KEY}"] * 2,
            HEAD,
            "one row for each time: got '1', after",
        ),
        (
            [f"1,after,{KEY}"],
            HEAD,
            "before and after: got only 'after' of '1'",
        ),
    ],
)
def test_a_malformed_file_is_refused_in_one_line(
    tmp_path, capsys, rows, head, says
):
    assert analysis.main([str(written(tmp_path, *rows, head=head))]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
    assert re.search(r": got .+\. [A-Z]", error)


def test_a_file_that_is_not_there_is_refused(tmp_path, capsys):
    assert analysis.main([str(tmp_path / "none.csv")]) == 2
    assert "none.csv" in capsys.readouterr().err


def test_a_file_that_is_no_text_is_refused(tmp_path, capsys):
    path = tmp_path / "answers.csv"
    path.write_bytes(b"PK\x03\x04\xff\xfe")
    assert analysis.main([str(path)]) == 2
    error = capsys.readouterr().err
    assert "must be a CSV file in UTF-8: got 'answers.csv'" in error
    assert error.count("\n") == 1
