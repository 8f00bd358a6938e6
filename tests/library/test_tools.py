"""The loop around a model, with a model that says what a script says."""

import pytest

from coursekit.tools import use_tools

SHELF = {"kite": "Lily gave Jack the kite.", "ball": "Mia has the ball."}
TOOLS = {"Look": SHELF.__getitem__, "Count": lambda text: str(len(text))}


def scripted(*lines):
    """A model that says one line after another, and notes what it read."""
    read, left = [], list(lines)

    def say(text):
        read.append(text)
        return left.pop(0)

    return say, read


def test_the_loop():
    """Two calls and an answer; each time it reads all that was before."""
    say, read = scripted("Look: kite", "Count: ab: c", "Jack.")
    asked = "Q: Who has the kite? A:"
    once = f"{asked} Look: kite\nLily gave Jack the kite. A:"
    twice = f"{once} Count: ab: c\n5 A:"
    assert use_tools(say, asked, TOOLS) == f"{twice} Jack."
    assert read == [asked, once, twice]


@pytest.mark.parametrize("said", ["Jack.", "Sing: kite", "look: kite", ""])
def test_what_is_no_call_is_the_answer(said):
    say, read = scripted(said)
    assert use_tools(say, "Q", TOOLS) == f"Q {said}"
    assert read == ["Q"]


def test_calls_have_an_end():
    """A model that only calls: after so many, its words are the answer."""
    say, read = scripted(*["Look: kite"] * 9)
    text = use_tools(say, "Q", TOOLS, max_calls=2)
    assert len(read) == 3
    assert text.count(SHELF["kite"]) == 2
    assert text.endswith(" A: Look: kite")
