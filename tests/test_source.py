"""A reference's source without its switches."""

import itertools

import pytest

from coursekit.classroom.check.source import specialize


def reference(x: int, y: int = 2, *, on=frozenset()) -> int:
    """Words."""
    if "a" in on:
        x = x + 1
    elif "b" in on:
        x = x + 10
    else:
        x = x + 100
    if x > 0 and "c" not in on:
        x = x * y
    if x > 1000 or "d" in on:
        x = -x
    if "e" in on and x > 5:
        x = x * 7
    if not ("a" in on or "e" in on) and y:
        x = x - 1
    return x if "f" not in on else [x, "f" if "a" in on else "g"]


SWITCHES = [
    frozenset(c) for n in range(4) for c in itertools.combinations("abcdef", n)
]


@pytest.mark.parametrize("on", SWITCHES, ids=lambda on: "".join(sorted(on)))
def test_it_does_the_same(on):
    source = specialize(reference, on, "shown")
    space = {}
    exec(source, space)
    for x, y in ((1, 2), (-300, 3), (9, 0)):
        assert space["shown"](x, y) == reference(x, y, on=on)
    assert "on" not in source.split()
    assert '"""' not in source
    assert ": int" not in source


def test_what_it_looks_like():
    assert specialize(reference, frozenset("ac"), "f").splitlines() == [
        "def f(x, y=2):",
        "    x = x + 1",
        "    if x > 1000:",
        "        x = -x",
        "    return x",
    ]


def leaves_early(x, *, on=frozenset()):
    if "a" in on:
        return x
    x = x + 1
    return x


def test_what_is_never_reached_is_left_out():
    assert specialize(leaves_early, frozenset("a"), "f").splitlines() == [
        "def f(x):",
        "    return x",
    ]
    assert "x + 1" in specialize(leaves_early, frozenset(), "f")
