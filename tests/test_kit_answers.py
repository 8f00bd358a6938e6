"""The rubric finds its evidence, and wrong answers come from the catalogue."""

import re

import pytest

from coursekit import cli
from coursekit.classroom.check import core
from coursekit.classroom.kit import rubric, wrong
from coursekit.classroom.yourfile import capstone


# -- the rubric --------------------------------------------------------------
@pytest.fixture
def report(tmp_path):
    """A report, as the capstone writes it."""
    file = tmp_path / "my_transformer.py"
    file.write_text("gelu\n")
    made = capstone.Prediction("gelu", "relu", 0.01, "0", "2026-01-01")
    found = {
        "text": "my_text.txt",
        "characters": 12345,
        "parameters": 678,
        "steps": 90,
        "loss": 1.5,
        "changed": 1.52,
        "bar": "below 2.4",
        "tokens": 50,
        "fast": 100.0,
        "slow": 20.0,
        "samples": {"temperature 0.5": "To be", "temperature 1": "Xq"},
    }
    return capstone.evidence(file, made, found)


def test_each_criterion_finds_its_evidence_in_a_report(report):
    criteria = rubric.rubric()
    assert len({one.name for one in criteria}) == len(criteria) >= 5
    for one in criteria:
        assert len(one.levels) == 3
        for pattern in one.evidence:
            alone = rubric.Criterion(one.name, [pattern], one.levels)
            assert alone.lines(report), pattern
            assert not alone.lines("# another report\n\nText.\n"), pattern


def test_the_rubric_shows_the_lines_that_are_judged(report, tmp_path, capsys):
    file = tmp_path / "my_transformer.report.md"
    file.write_text(report, "utf8")
    assert cli.main(["kit", "rubric", str(file)]) == 0
    out = capsys.readouterr().out
    learns = out.split("## It learns")[1].split("##")[0]
    assert (
        "| held-out loss, nats per character | 1.500 | below 2.4 |" in learns
    )
    change = out.split("## The change as an experiment")[1].split("##")[0]
    assert "-gelu\n+relu\nOne seed each" in change
    samples = out.split("## The samples")[1].split("##")[0]
    assert "temperature 0.5:\ntemperature 1:" in samples
    assert "changed since then" in out
    assert cli.main(["kit", "rubric"]) == 0
    bare = capsys.readouterr().out
    assert out.startswith(bare)
    assert bare.count("\n| **") == len(rubric.rubric())
    assert "(nothing in this report)" in rubric.written("")
    assert cli.main(["kit", "rubric", str(tmp_path / "none.md")]) == 2
    assert "evidence is in a report" in capsys.readouterr().err


# -- wrong answers -----------------------------------------------------------
@pytest.mark.parametrize("chapter", ["attention", "loss"])
def test_every_mistake_has_its_lines_and_what_to_say(chapter, capsys):
    assert cli.main(["kit", "wrong", chapter]) == 0
    text = capsys.readouterr().out
    bugs = [
        (name, bug)
        for name, exercise in core.exercises(chapter).items()
        for bug in exercise.bugs.values()
    ]
    parts = re.split(r"^(?=\*\*)", text, flags=re.MULTILINE)[1:]
    assert len(parts) == len(bugs) > 30
    for part, (_, bug) in zip(parts, bugs, strict=True):
        assert part.startswith(f"**{bug.says}**\n")
        assert f"{bug.why} (`{bug.read}`, chapter " in part
        lines = part.split("```diff\n")[1].split("\n```")[0].split("\n")
        assert {line[:1] for line in lines} <= {"-", "+"}, part
        assert all(lines)


def test_the_lines_are_those_of_the_mistake():
    text = wrong.wrong("attention")
    part = text.split("**softmax over the queries")[1].split("**")[1]
    assert "-    return scores.softmax(dim=-1) @ v\n" in part
    assert "+    return scores.softmax(dim=-2) @ v\n" in part


def test_an_unknown_chapter_is_refused(capsys):
    assert cli.main(["kit", "wrong", "4"]) == 2
    assert "got '4'. There are attention, " in capsys.readouterr().err
