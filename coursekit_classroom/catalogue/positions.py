"""Exercises of chapter 3: positions."""

from collections.abc import Callable

import torch
from torch import Tensor

from coursekit_classroom.check.core import (
    Bug,
    Case,
    Exercise,
    Variant,
    generator,
    randn,
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
    says="speeds 10000^(−4i/D): the exponent counts the pairs twice",
    why="The exponent is 2i/D, with i the number of the pair. In a loop over "
    "coordinates, i steps by two and is 2i already.",
    read="further/03_positions#pos-dead",
    at="speed",
)


# -- implement: codes at any positions ---------------------------------------
def codes(positions: Tensor, d_model: int) -> Tensor:
    """The sinusoidal codes of given positions, (T, D), interleaved.

    `positions` is `(T,)`, whole numbers: any, in any order, with gaps or
    without. Row t of the result is the code of `positions[t]`. `d_model` is D,
    even.
    The code of position p: for each pair i in `0 … D/2 − 1`, coordinate `2i`
    is `sin(p · ω)` and coordinate `2i + 1` is `cos(p · ω)`, both with the
    speed `ω = 10000^(−2i/D)` in radians a position.
    """
    pair = torch.arange(d_model // 2, dtype=torch.float64)
    angles = positions[:, None] * 10000 ** (-2 * pair / d_model)
    sin, cos = angles.sin(), angles.cos()
    return torch.stack((sin, cos), dim=-1).flatten(-2)


_CODE_BUGS = {
    "counts": Bug(
        "positions[:, None]",
        "torch.arange(len(positions))[:, None]",
        says="positions counted from 0, whatever positions are given",
        why="torch.arange(len(positions)) numbers the rows. Use the "
        "positions themselves: a text may be continued in the middle.",
        read="03_positions#pos-formula",
    ),
    "pair_twice": _PAIR_TWICE.by("-2 * pair", "-4 * pair", at="speed"),
    "whole": Bug(
        "(-2 * pair / d_model)",
        "-(2 * pair // d_model)",
        says="a division // that rounds down, so that all speeds are 1",
        why="2i is below D, and 2i // D is 0. The exponent is a fraction: "
        "use /.",
        read="03_positions#pos-formula",
        at="speed",
    ),
    "own_speed": Bug(
        "angles.cos()",
        "(angles * 10000 ** (-1 / d_model)).cos()",
        says="a cosine with a speed of its own, 10000^(−(2i+1)/D)",
        why="Sine and cosine of a pair have one angle: they are the tip of "
        "one hand. Otherwise lengths and distances no longer fit.",
        read="03_positions#pos-formula",
        at="speed",
    ),
    "cos_first": Bug(
        "(sin, cos)",
        "(cos, sin)",
        says="the cosine before the sine",
        why="Coordinate 2i is the sine, 2i + 1 the cosine: row 0 is 0, 1, "
        "0, 1.",
        read="03_positions#pos-by-hand",
    ),
    "other_layout": Bug(
        "dim=-1",
        "dim=-2",
        says="the other layout of the pairs",
        why="Interleaved has sine and cosine side by side, halves has all "
        "sines first. It is one code in two orders, but weights fit only one.",
        read="further/03_positions#pos-code",
        otherwise=[("dim=-2", "dim=-1")],
    ),
    "last_speed": Bug(
        "(-2 * pair / d_model)",
        "(-pair / max(d_model // 2 - 1, 1))",
        says="speeds spaced so that the last one is exactly 1/10000",
        why="Some programs do so. The formula has 2i/D, which never reaches "
        "1.",
        read="further/03_positions#pos-dead",
        alone=True,
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
def table(n_positions: int, d_model: int) -> Tensor:
    """The sinusoidal codes of positions `0 … n_positions − 1`, interleaved.

    The result is `(n_positions, D)`, with D even, `d_model`. Row t is the code
    of position t, and the first row is that of position 0.
    The code of position t: for each pair i in `0 … D/2 − 1`, coordinate `2i`
    is `sin(t · ω)` and coordinate `2i + 1` is `cos(t · ω)`, both with the
    speed `ω = 10000^(−2i/D)` in radians a position.
    """
    code = torch.zeros(n_positions, d_model, dtype=torch.float64)
    position = torch.arange(n_positions, dtype=torch.float64)
    for i in range(0, d_model, 2):
        speed = 10000 ** (-i / d_model)
        code[:, i] = (position * speed).sin()
        code[:, i + 1] = (position * speed).cos()
    return code


_TABLE_BUGS = {
    "from_one": Bug(
        "position = torch",
        "position = 1 + torch",
        says="positions counted from 1",
        why="Position 0 has the angle 0 in every pair: its code is 0, 1, 0, "
        "1.",
        read="03_positions#pos-by-hand",
    ),
    "pair_twice": _PAIR_TWICE.by("-i /", "-2 * i /"),
    "own_speed": Bug(
        "(position * speed).cos()",
        "(position * 10000 ** (-(i + 1) / d_model)).cos()",
        says="cosines with a speed of their own, as if the exponent counted "
        "coordinates",
        why="A pair is one hand: sine and cosine of the same angle.",
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
def read_speeds(code: Tensor) -> Tensor:
    """(D/2,): the speed of each pair of a table of codes, read off it.

    `code` is `(T, D)`, D even and `T ≥ 2`; row t is the code of position t. It
    is interleaved: for each pair i, column `2i` holds `sin(t · ω)` and column
    `2i + 1` holds `cos(t · ω)`, with a speed ω of its own.
    Returned is ω for each pair, in order, in radians a step. The speeds may be
    any numbers from 0 to π, above π/2 too; they need not follow the paper's
    formula. The result is exact but for rounding.
    """
    row = code[1]
    sin, cos = row[0::2], row[1::2]
    angles = torch.atan2(sin, cos)
    return angles


_SPEED_BUGS = {
    "last_row": Bug(
        "row = code[1]",
        "row = code[-1]",
        "return angles",
        "return angles / (len(code) - 1)",
        says="the angle of the last row, divided by its number",
        why="By then fast hands have gone round, and whole rounds leave no "
        "trace. After one step none has turned by more than π.",
        read="further/03_positions#pos-q-speeds",
    ),
    "halves": Bug(
        "row[0::2], row[1::2]",
        "row.chunk(2)",
        says="sines read from the left half and cosines from the right one",
        why="This table is interleaved: sines are at 0, 2, 4, …, and each "
        "is followed by its cosine.",
        read="further/03_positions#pos-code",
    ),
    "formula": Bug(
        "row = code[1]\n"
        "    sin, cos = row[0::2], row[1::2]\n"
        "    angles = torch.atan2(sin, cos)",
        "pair = torch.arange(code.size(1) // 2, dtype=torch.float64)\n"
        "    angles = 10000 ** (-2 * pair / code.size(1))",
        says="the paper's speeds, whatever the table says",
        why="Don't compute what the speeds should be: read what they are.",
        read="further/03_positions#pos-dead",
    ),
    "asin": Bug(
        "torch.atan2(sin, cos)",
        "torch.asin(sin)",
        says="the arc sine of the sines",
        why="An angle and π minus it have the same sine. The cosine tells "
        "them apart: torch.atan2(sine, cosine).",
        read="further/03_positions#pos-q-speeds",
    ),
    "atan": Bug(
        "torch.atan2(sin, cos)",
        "torch.atan(sin / cos)",
        says="the arc tangent of sine / cosine",
        why="In a quotient the signs are lost: beyond a quarter turn the "
        "angle is off by π. torch.atan2(sine, cosine) looks at both.",
        read="further/03_positions#pos-q-speeds",
    ),
    "swapped": Bug(
        "torch.atan2(sin, cos)",
        "torch.atan2(cos, sin)",
        says="atan2 with cosine and sine exchanged",
        why="It is atan2(sine, cosine): a hand that has not turned, (0, 1), "
        "has the angle 0.",
        read="03_positions#pos-by-hand",
    ),
}


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
def shift(k: int, d_model: int) -> Tensor:
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
    angles = k * 10000 ** (-2 * pair / d_model)
    cos, sin = angles.cos(), angles.sin()
    blocks = torch.stack((cos, -sin, sin, cos), dim=-1)
    turn = torch.block_diag(*blocks.view(-1, 2, 2))
    return turn


_SHIFT_BUGS = {
    "back": Bug(
        "-sin, sin",
        "sin, -sin",
        says="the transposed matrix, which goes k steps back",
        why="Where codes are rows the product is code @ R, where they are "
        "columns it is R @ code, and one matrix is the other, transposed.",
        read="further/03_positions#pos-distance",
        at="sign",
        otherwise=[("sin, -sin", "-sin, sin")],
    ),
    "no_minus": Bug(
        "-sin",
        "sin",
        says="blocks without a minus sign",
        why="cos(a + b) is cos a cos b − sin a sin b. Without the minus it "
        "is no rotation, and lengths change.",
        read="further/03_positions#pos-distance",
        at="sign",
    ),
    "pair_twice": _PAIR_TWICE.by("-2 * pair", "-4 * pair"),
    "forward_only": Bug(
        "k * 10000",
        "max(k, 0) * 10000",
        says="no steps at all where k is negative",
        why="A loop over range(k) does nothing for negative k. Back is the "
        "turn by a negative angle.",
        read="further/03_positions#pos-distance",
    ),
    "halves": Bug(
        "return turn",
        "order = torch.arange(d_model).view(-1, 2).T.flatten()\n"
        "    return turn[order][:, order]",
        says="the matrix for codes in halves",
        why="Here sine and cosine of a pair are neighbors, so the 2 × 2 "
        "blocks stand along the diagonal.",
        read="further/03_positions#pos-code",
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
def sees_places(add: Add) -> bool:
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
    one = added[0]
    agree = torch.allclose(added, one.expand_as(added))
    gaps = torch.cdist(one, one) + torch.eye(len(one))
    differ = bool((gaps > 1e-6).all())
    return agree and differ


_PLACES_BUGS = {
    "one_sentence": Bug(
        "torch.allclose(added, one.expand_as(added))",
        "True",
        says="a test that looks at one sentence only",
        why="Whether sentences agree cannot be seen on one: take a batch "
        "with B ≠ T, and look at each of its rows.",
        read="03_positions#pos-wrong",
    ),
    "first_two": Bug(
        "(gaps >",
        "(gaps[0, 1] >",
        says="a test that compares the first two places only",
        why="Other places may share a vector: compare every two.",
        read="03_positions#pos-wrong",
        at="places",
    ),
    "neighbors": Bug(
        "(gaps >",
        "(gaps.diagonal(1) >",
        says="a test that compares each position with the next one only",
        why="A vector may come back two positions later: compare every two.",
        read="03_positions#pos-wrong",
        at="places",
    ),
    "no_places": Bug(
        "bool((gaps > 1e-6).all())",
        "True",
        says="a test whether sentences agree, and not whether places differ",
        why="All agree where nothing is added, too. The places of a "
        "sentence must differ from one another.",
        read="03_positions#pos-wrong",
        at="places",
    ),
    "exact": Bug(
        "torch.allclose",
        "torch.equal",
        says="a test that never says True, such as one without a tolerance",
        why="add(x) − x is rounded, differently in each sentence: compare "
        "with torch.allclose, or take zeros for x.",
        read="03_positions#pos-wrong",
        at="places",
    ),
}


def _adders(g: torch.Generator) -> list[tuple[str, Add]]:
    """Ways to add positions to (B, T, D): two right, six wrong."""
    learned = randn(g, 64, 8)
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
    g, best, best_code = generator(0), 0.0, None
    for _ in range(200):
        w = torch.pi * torch.rand(4, generator=g, dtype=torch.float64)
        angles = torch.arange(200)[:, None] * w
        code = torch.stack((angles.sin(), angles.cos()), -1).flatten(1) / 2
        closest = float((code[0] - code[1:]).norm(dim=1).min())
        if closest > best:
            best, best_code = closest, code
    assert best_code is not None
    return best_code


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
            "halves": Variant(
                "dim=-1",
                "dim=-2",
                asks="Here all sines stand in the left half of a code, "
                "and all cosines in the right half, in the order of the "
                "pairs.",
                texts={
                    "cos_first": {
                        "says": "the cosines in front of the sines",
                        "why": "The left half are the sines, the right half "
                        "the cosines: row 0 is 0, 0, …, 1, 1.",
                    },
                },
            ),
        },
        forbid=_LIBRARY,
    ),
    "slow": Exercise(
        table,
        _table_cases,
        atol=SINGLE,
        bugs=_TABLE_BUGS,
        forbid=_LIBRARY,
    ),
    "speeds": Exercise(
        read_speeds,
        _speed_cases,
        bugs=_SPEED_BUGS,
        forbid=_LIBRARY,
    ),
    "shift": Exercise(
        shift,
        _shift_cases,
        atol=SINGLE,
        bugs=_SHIFT_BUGS,
        variants={
            "columns": Variant(
                "-sin, sin",
                "sin, -sin",
                asks="Here codes stand in columns: your matrix times "
                "the column of position t is the column of position t + k.",
            ),
        },
        forbid=(*_LIBRARY, "torch.linalg.lstsq", "torch.linalg.pinv"),
    ),
    "sees_places": Exercise(
        sees_places,
        _adder_cases,
        bugs=_PLACES_BUGS,
    ),
    "design": Exercise(design, lambda seed: [Case()], judge=_judge_design),
}
