"""Common wrong answers come from the catalogue."""

import re

import pytest

from coursekit import cli
from coursekit_classroom.check import core
from coursekit_classroom.kit import wrong


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
