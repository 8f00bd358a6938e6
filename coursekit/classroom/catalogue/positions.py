"""Exercises of chapter 3: positions."""

from collections.abc import Callable
from itertools import combinations

import torch
from torch import Tensor

from coursekit.classroom.check.core import (
    NONE,
    Bug,
    Case,
    Exercise,
    Switches,
    generator,
)

SINGLE = 1e-4
"""What an angle of some hundred radians loses in single precision, at most.

torch.arange(9) / 3 is a float32, and no mistake that we know is as small.
"""
Add = Callable[[Tensor], Tensor]


def speeds(d_model: int, base: float = 10000.0) -> Tensor:
    """Radians a position, for each of the d_model / 2 pairs."""
    pair = torch.arange(d_model // 2, dtype=torch.float64)
    return base ** (-2 * pair / d_model)


def interleaved(angles: Tensor) -> Tensor:
    """(T, P) angles to (T, 2 P): sine and cosine of each side by side."""
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)


_PAIR_TWICE = Bug(
    "speeds 10000^(−4i/D): the exponent counts the pairs twice",
    "The exponent is 2i/D, with i the number of the pair. In a loop over "
    "coordinates, i steps by two and is 2i already.",
    read="03_positions#pos-dead",
    at="speed",
)


# -- implement: codes at any positions ---------------------------------------
def codes(positions: Tensor, d_model: int, *, on: Switches = NONE) -> Tensor:
    """The sinusoidal codes of given positions, (T, D), interleaved.

    `positions` is `(T,)`, whole numbers: any, in any order, with gaps or
    without. Row t of the result is the code of `positions[t]`. `d_model` is D,
    even.
    The code of position p: for each pair i in `0 … D/2 − 1`, coordinate `2i`
    is `sin(p · ω)` and coordinate `2i + 1` is `cos(p · ω)`, both with the
    speed `ω = 10000^(−2i/D)` in radians a position.
    """
    if "counts" in on:
        positions = torch.arange(len(positions))
    elif "counts_on" in on:
        positions = positions[0] + torch.arange(len(positions))
    pair = torch.arange(d_model // 2, dtype=torch.float64)
    if "pair_twice" in on:
        exponent = 4 * pair / d_model
    elif "whole" in on:
        exponent = 2 * pair // d_model
    else:
        exponent = 2 * pair / d_model
    angles = positions[:, None] * 10000**-exponent
    sin = angles.sin()
    if "own_speed" in on:
        cos = (angles * 10000 ** (-1 / d_model)).cos()
    else:
        cos = angles.cos()
    parts = (cos, sin) if "cos_first" in on else (sin, cos)
    if "halves" in on:
        axis = -1 if "other_layout" in on else -2
    else:
        axis = -2 if "other_layout" in on else -1
    return torch.stack(parts, dim=axis).flatten(-2)


_CODE_BUGS = {
    "counts": Bug(
        "positions counted from 0, whatever positions are given",
        "torch.arange(len(positions)) numbers the rows. Use the positions "
        "themselves: a text may be continued in the middle.",
        read="03_positions#pos-formula",
        at="positions",
    ),
    "counts_on": Bug(
        "positions counted on from the first that is given",
        "The positions need not follow one another: take each as it is.",
        read="03_positions#pos-formula",
        at="positions",
    ),
    "pair_twice": _PAIR_TWICE,
    "whole": Bug(
        "a division // that rounds down, so that all speeds are 1",
        "2i is below D, and 2i // D is 0. The exponent is a fraction: use /.",
        read="03_positions#pos-formula",
        at="speed",
    ),
    "own_speed": Bug(
        "a cosine with a speed of its own, 10000^(−(2i+1)/D)",
        "Sine and cosine of a pair have one angle: they are the tip of one "
        "hand. Otherwise lengths and distances no longer fit.",
        read="03_positions#pos-formula",
        at="speed",
    ),
    "cos_first": Bug(
        "the cosine before the sine",
        "Coordinate 2i is the sine, 2i + 1 the cosine: row 0 is 0, 1, 0, 1.",
        read="03_positions#pos-by-hand",
    ),
    "other_layout": Bug(
        "the other layout of the pairs",
        "Interleaved has sine and cosine side by side, halves has all sines "
        "first. It is one code in two orders, but weights fit only one.",
        read="03_positions#pos-code",
    ),
}


def _code_cases(seed: int) -> list[Case]:
    g = generator(seed)
    gaps = 3 + torch.randperm(211, generator=g)[:7]
    start = int(torch.randint(2, 23, (), generator=g))
    return [
        Case((torch.arange(5), 6), name="five in a row"),
        Case((start + torch.arange(11), 26), name=f"counted from {start}"),
        Case((gaps, 38), name="any positions, in any order"),
    ]


# -- debug: length and distance are right ------------------------------------
def table(n_positions: int, d_model: int, *, on: Switches = NONE) -> Tensor:
    """The sinusoidal codes of positions `0 … n_positions − 1`, interleaved.

    The result is `(n_positions, D)`, with D even, `d_model`. Row t is the code
    of position t, and the first row is that of position 0.
    The code of position t: for each pair i in `0 … D/2 − 1`, coordinate `2i`
    is `sin(t · ω)` and coordinate `2i + 1` is `cos(t · ω)`, both with the
    speed `ω = 10000^(−2i/D)` in radians a position.
    """
    code = torch.zeros(n_positions, d_model, dtype=torch.float64)
    first = 1.0 if "from_one" in on else 0.0
    position = first + torch.arange(n_positions, dtype=torch.float64)
    for i in range(0, d_model, 2):
        if "pair_twice" in on:
            speed = 10000 ** (-2 * i / d_model)
        elif "by_hundred" in on:
            speed = 100 ** (-i / 2)
        else:
            speed = 10000 ** (-i / d_model)
        at = i // 2 if "overlap" in on else i
        code[:, at] = (position * speed).sin()
        if "own_speed" in on:
            speed = 10000 ** (-(i + 1) / d_model)
        code[:, at + 1] = (position * speed).cos()
    return code


_TABLE_BUGS = {
    "from_one": Bug(
        "positions counted from 1",
        "Position 0 has the angle 0 in every pair: its code is 0, 1, 0, 1.",
        read="03_positions#pos-by-hand",
    ),
    "pair_twice": _PAIR_TWICE,
    "by_hundred": Bug(
        "each hand a hundred times slower than the one before",
        "That is so for D = 4. The speed of pair i is 10000^(−2i/D): the "
        "more pairs there are, the closer are their speeds.",
        read="03_positions#pos-formula",
        at="speed",
    ),
    "overlap": Bug(
        "pair i written to coordinates i and i + 1",
        "The next pair then overwrites its cosine, and the right half stays "
        "0. Pair i fills coordinates 2i and 2i + 1.",
        read="03_positions#pos-formula",
    ),
    "own_speed": Bug(
        "cosines with a speed of their own, as if the exponent counted "
        "coordinates",
        "A pair is one hand: sine and cosine of the same angle.",
        read="03_positions#pos-by-hand",
        alone=True,
    ),
}


def _table_cases(seed: int) -> list[Case]:
    many = int(torch.randint(50, 150, (), generator=generator(seed)))
    return [
        Case((3, 4), name="the example by hand"),
        Case((many, 22), name=f"{many} positions, eleven pairs"),
    ]


# -- measure: read the speeds off a table ------------------------------------
def read_speeds(code: Tensor, *, on: Switches = NONE) -> Tensor:
    """(D/2,): the speed of each pair of a table of codes, read off it.

    `code` is `(T, D)`, D even and `T ≥ 2`; row t is the code of position t. It
    is interleaved: for each pair i, column `2i` holds `sin(t · ω)` and column
    `2i + 1` holds `cos(t · ω)`, with a speed ω of its own.
    Returned is ω for each pair, in order, in radians a step. The speeds may be
    any numbers from 0 to π, above π/2 too; they need not follow the paper's
    formula. The result is exact but for rounding.
    """
    n_steps = len(code) - 1 if "last_row" in on else 1
    row = code[n_steps]
    if "halves" in on:
        sin, cos = row.chunk(2)
    else:
        sin, cos = row[0::2], row[1::2]
    if "formula" in on:
        pair = torch.arange(len(row) // 2, dtype=torch.float64)
        angle = n_steps * 10000 ** (-2 * pair / len(row))
    elif "asin" in on:
        angle = torch.asin(sin)
    elif "atan" in on:
        angle = torch.atan(sin / cos)
    elif "swapped" in on:
        angle = torch.atan2(cos, sin)
    else:
        angle = torch.atan2(sin, cos)
    return angle / n_steps


_SPEED_BUGS = {
    "last_row": Bug(
        "the angle of the last row, divided by its number",
        "By then fast hands have gone round, and whole rounds leave no "
        "trace. After one step none has turned by more than π.",
        read="03_positions#pos-q-speeds",
        at="row",
    ),
    "halves": Bug(
        "sines read from the left half and cosines from the right one",
        "This table is interleaved: sines are at 0, 2, 4, …, and each is "
        "followed by its cosine.",
        read="03_positions#pos-code",
    ),
    "formula": Bug(
        "the paper's speeds, whatever the table says",
        "Don't compute what the speeds should be: read what they are.",
        read="03_positions#pos-dead",
        at="angle",
    ),
    "asin": Bug(
        "the arc sine of the sines",
        "An angle and π minus it have the same sine. The cosine tells them "
        "apart: torch.atan2(sine, cosine).",
        read="03_positions#pos-q-speeds",
        at="angle",
    ),
    "atan": Bug(
        "the arc tangent of sine / cosine",
        "In a quotient the signs are lost: beyond a quarter turn the angle "
        "is off by π. torch.atan2(sine, cosine) looks at both.",
        read="03_positions#pos-q-speeds",
        at="angle",
    ),
    "swapped": Bug(
        "atan2 with cosine and sine exchanged",
        "It is atan2(sine, cosine): a hand that has not turned, (0, 1), has "
        "the angle 0.",
        read="03_positions#pos-by-hand",
        at="angle",
    ),
}


_NOT_READ = [
    (a, b, "what is not read cannot be read from the wrong place")
    for a, b in combinations(
        ({"formula"}, {"formula", "last_row"}, {"formula", "halves"}), 2
    )
]


def _speed_cases(seed: int) -> list[Case]:
    g = generator(seed)
    base = float(torch.randint(100, 1000, (), generator=g))
    free = 3.1 * torch.rand(7, generator=g, dtype=torch.float64)
    free[[0, -1]] = 3.1 - free[[0, -1]] / 4  # more than a quarter turn
    steps = torch.arange(13)[:, None]
    return [
        Case((interleaved(steps * speeds(14)),), name="the paper's codes"),
        Case((interleaved(steps * speeds(22, base)),), name="another base"),
        Case((interleaved(steps[:6] * free),), name="any speeds"),
    ]


# -- implement: the matrix of k steps ----------------------------------------
def shift(k: int, d_model: int, *, on: Switches = NONE) -> Tensor:
    """The matrix R, (D, D), that moves every code on by k positions.

    With codes as rows, `code[t] R` is `code[t + k]` for every position t. `k`
    is a whole number of either sign, D is `d_model`, even. R is exact for any
    k and D but for rounding.
    The codes are the paper's, interleaved: for each pair i in `0 … D/2 − 1`,
    coordinate `2i` is `sin(t · ω)` and coordinate `2i + 1` is `cos(t · ω)`,
    with `ω = 10000^(−2i/D)`. R turns each pair by itself: between different
    pairs its entries are 0.
    """
    pair = torch.arange(d_model // 2, dtype=torch.float64)
    if "pair_twice" in on:
        speed = 10000 ** (-4 * pair / d_model)
    else:
        speed = 10000 ** (-2 * pair / d_model)
    if "elementwise" in on:
        angles = speed
    elif "forward_only" in on:
        angles = max(k, 0) * speed
    else:
        angles = k * speed
    cos, sin = angles.cos(), angles.sin()
    if "no_minus" in on:
        lower, upper = sin, sin
    elif "columns" in on:
        lower, upper = (sin, -sin) if "back" in on else (-sin, sin)
    else:
        lower, upper = (-sin, sin) if "back" in on else (sin, -sin)
    if "halves" in on:
        top = torch.cat((cos.diag(), upper.diag()), dim=1)
        turn = torch.cat((top, torch.cat((lower.diag(), cos.diag()), dim=1)))
    else:
        blocks = torch.stack((cos, upper, lower, cos), dim=-1)
        turn = torch.block_diag(*blocks.view(-1, 2, 2))
    return turn**k if "elementwise" in on else turn


_SHIFT_BUGS = {
    "back": Bug(
        "the transposed matrix, which goes k steps back",
        "Where codes are rows the product is code @ R, where they are "
        "columns it is R @ code, and one matrix is the other, transposed.",
        read="03_positions#pos-distance",
        at="sign",
    ),
    "no_minus": Bug(
        "blocks without a minus sign",
        "cos(a + b) is cos a cos b − sin a sin b. Without the minus it is "
        "no rotation, and lengths change.",
        read="03_positions#pos-distance",
        at="sign",
    ),
    "pair_twice": _PAIR_TWICE,
    "elementwise": Bug(
        "each entry of the one-step matrix raised to the power k",
        "R ** k works entry by entry. k steps are the matrix product of k "
        "factors, or simply k times the angle.",
        read="03_positions#pos-distance",
        at="steps",
    ),
    "forward_only": Bug(
        "no steps at all where k is negative",
        "A loop over range(k) does nothing for negative k. Back is the turn "
        "by a negative angle.",
        read="03_positions#pos-distance",
        at="steps",
    ),
    "halves": Bug(
        "the matrix for codes in halves",
        "Here sine and cosine of a pair are neighbors, so the 2 × 2 blocks "
        "stand along the diagonal.",
        read="03_positions#pos-code",
    ),
}


def _shift_cases(seed: int) -> list[Case]:
    k = int(torch.randint(2, 50, (), generator=generator(seed)))
    return [
        Case((1, 4), name="one step"),
        Case((k, 14), name=f"{k} steps"),
        Case((-k, 10), name=f"{k} steps back"),
    ]


# -- debug: everybody sits at place b ----------------------------------------
def sees_places(add: Add, *, on: Switches = NONE) -> bool:
    """Whether `add` gives each place of each sequence its own vector.

    `add` takes `x`, `(B, T, 8)` in float64, with `B · T` up to 64, and returns
    `x` with something added to it: B counts sequences, T places. The result is
    True if two things hold. All sequences get the same: what is added at place
    t does not depend on the sequence. And any two places of a sequence,
    neighbors or not, get different vectors.
    Otherwise it is False: if nothing is added, or the same everywhere, if only
    some places share a vector, if what is added goes by the number of the
    sequence. Differences by rounding do not count.
    """
    x = torch.randn(3, 5, 8, dtype=torch.float64)
    added = add(x) - x
    if "axes" in on:
        added = added.transpose(0, 1)
    one = added[0]
    if "one_sentence" in on:
        agree = True
    elif "exact" in on:
        agree = torch.equal(added, one.expand_as(added))
    else:
        agree = torch.allclose(added, one.expand_as(added))
    if "anything" in on:
        differ = not torch.allclose(one, torch.zeros_like(one))
    elif "no_places" in on:
        differ = True
    else:
        gaps = torch.cdist(one, one) + torch.eye(len(one))
        if "first_two" in on:
            gaps = gaps[0, 1]
        elif "neighbors" in on:
            gaps = gaps.diagonal(1)
        differ = bool((gaps > 1e-6).all())
    return agree and differ


_PLACES_BUGS = {
    "one_sentence": Bug(
        "a test that looks at one sentence only",
        "Whether sentences agree cannot be seen on one: take a batch with "
        "B ≠ T, and look at each of its rows.",
        read="03_positions#pos-wrong",
    ),
    "first_two": Bug(
        "a test that compares the first two places only",
        "Other places may share a vector: compare every two.",
        read="03_positions#pos-wrong",
        at="places",
    ),
    "neighbors": Bug(
        "a test that compares each position with the next one only",
        "A vector may come back two positions later: compare every two.",
        read="03_positions#pos-wrong",
        at="places",
    ),
    "no_places": Bug(
        "a test whether sentences agree, and not whether places differ",
        "All agree where nothing is added, too. The places of a sentence "
        "must differ from one another.",
        read="03_positions#pos-wrong",
        at="places",
    ),
    "anything": Bug(
        "a test whether anything is added, not whether places differ",
        "One vector for all places is something, and says nothing about "
        "places. (Without a tolerance, rounding alone makes them differ.)",
        read="03_positions#pos-wrong",
        at="places",
    ),
    "axes": Bug(
        "a test for batches (T, B, D), with the places along axis 0",
        "x is (B, T, D): axis 0 counts sentences, axis 1 places.",
        read="03_positions#pos-wrong",
        at="places",
    ),
    "exact": Bug(
        "a test that never says True, such as one without a tolerance",
        "add(x) − x is rounded, differently in each sentence: compare with "
        "torch.allclose, or take zeros for x.",
        read="03_positions#pos-wrong",
        at="places",
    ),
}


def _adders(g: torch.Generator) -> list[tuple[str, Add]]:
    """Ways to add positions to (B, T, D): two right, six wrong."""
    learned = torch.randn(64, 8, generator=g, dtype=torch.float64)
    sines = table(64, 8)
    fixed = table(64, 8)[:, None]  # (64, 1, D), for batches (T, B, D)

    def counts_on(x: Tensor) -> Tensor:
        n_rows, n_places = x.shape[:2]
        places = torch.arange(n_rows * n_places).view(n_rows, n_places)
        return x + sines[places]

    def same_twice(x: Tensor) -> Tensor:
        return x + sines[(torch.arange(x.size(1)) + 1) // 2]

    def in_turns(x: Tensor) -> Tensor:
        return x + sines[torch.arange(x.size(1)) % 2]

    return [
        ("a sinusoidal table", lambda x: x + sines[: x.size(1)]),
        ("positions along the batch", lambda x: x + fixed[: x.size(0)]),
        ("a learned table", lambda x: x + learned[: x.size(1)]),
        ("no positions at all", lambda x: x.clone()),
        ("counting on from one sequence to the next", counts_on),
        ("one vector for all places", lambda x: x + learned[3]),
        ("places 1 and 2 share a vector", same_twice),
        ("two vectors in turns", in_turns),
    ]


def _adder_cases(seed: int) -> list[Case]:
    cases = []
    for name, add in _adders(generator(seed)):
        add.__name__ = name.replace(" ", "_")  # for the report
        cases.append(Case((add,), name=name))
    return cases


# -- open: clocks of your own ------------------------------------------------
def design() -> Tensor:
    """(200, 8) codes: four clocks at speeds found by a random search."""
    g, best, kept = generator(0), 0.0, None
    for _ in range(200):
        w = torch.pi * torch.rand(4, generator=g, dtype=torch.float64)
        angles = torch.arange(200)[:, None] * w
        code = torch.stack((angles.sin(), angles.cos()), -1).flatten(1) / 2
        closest = float((code[0] - code[1:]).norm(dim=1).min())
        if closest > best:
            best, kept = closest, code
    assert kept is not None
    return kept


def _judge_design(value: object, case: Case) -> str | None:
    if not isinstance(value, Tensor) or value.shape != (200, 8):
        return "the codes must be a tensor of shape (200, 8)"
    code = value.detach().to(torch.float64)
    if not bool(code.isfinite().all()):
        return "some of the numbers are not finite"
    lengths = code.norm(dim=1)
    if float((lengths - 1).abs().max()) > 1e-4:
        return (
            "every code must have length 1: yours go from "
            f"{lengths.min():.3f} to {lengths.max():.3f}"
        )
    gram = code @ code.T
    uneven = float((gram[1:, 1:] - gram[:-1, :-1]).abs().max())
    if uneven > 1e-3:
        return (
            "the dot product must depend on the distance alone: one step "
            f"further along, yours changes by up to {uneven:.2g}"
        )
    gaps = (code[:, None] - code).norm(dim=-1) + 2 * torch.eye(200)
    if float(gaps.min()) < 0.6:
        place = int(gaps.argmin())
        return (
            f"positions {place // 200} and {place % 200} are only "
            f"{gaps.min():.2f} apart, and the goal is 0.6"
        )
    return None


_LIBRARY = (
    "coursekit.sinusoidal",
    "coursekit.positions.sinusoidal",
    "coursekit.positions.frequencies",
    "coursekit.positions.SinusoidalPositions",
)

EXERCISES = {
    "codes": Exercise(
        codes,
        _code_cases,
        atol=SINGLE,
        bugs=_CODE_BUGS,
        variants={
            "halves": "Here all sines stand in the left half of a code, and "
            "all cosines in the right half, in the order of the pairs."
        },
        forbid=_LIBRARY,
    ),
    "slow": Exercise(
        table, _table_cases, atol=SINGLE, bugs=_TABLE_BUGS, forbid=_LIBRARY
    ),
    "speeds": Exercise(
        read_speeds,
        _speed_cases,
        bugs=_SPEED_BUGS,
        alike=_NOT_READ,
        forbid=_LIBRARY,
    ),
    "shift": Exercise(
        shift,
        _shift_cases,
        atol=SINGLE,
        bugs=_SHIFT_BUGS,
        variants={
            "columns": "Here codes stand in columns: your matrix times the "
            "column of position t is the column of position t + k."
        },
        forbid=(*_LIBRARY, "torch.linalg.lstsq", "torch.linalg.pinv"),
    ),
    "sees_places": Exercise(
        sees_places,
        _adder_cases,
        bugs=_PLACES_BUGS,
        alike=[
            (
                {"one_sentence"},
                {"one_sentence", "exact"},
                "one sentence is not compared with any other",
            )
        ],
    ),
    "design": Exercise(design, lambda seed: [Case()], judge=_judge_design),
}
