"""Answers to chapter 3, written from its page alone."""

# ruff: noqa: B905, N812

import cmath
import math
import random

import torch
from torch.nn import functional as F

from tests.wild import right, wrong

float64 = torch.float64


def speeds(d_model):
    return 10000.0 ** (-torch.arange(0, d_model, 2, dtype=float64) / d_model)


# positions/codes


@right("positions/codes", "lists and math, number by number")
def codes_by_number(positions, d_model):
    rows = []
    for t in positions.tolist():
        row = []
        for pair in range(d_model // 2):
            angle = t * math.exp(-2 * pair / d_model * math.log(10000))
            row += [math.sin(angle), math.cos(angle)]
        rows.append(row)
    return torch.tensor(rows, dtype=float64)


@right("positions/codes", "points on the complex circle")
def codes_by_circle(positions, d_model):
    angles = torch.outer(positions.to(float64), speeds(d_model))
    circle = torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(circle).flip(-1).flatten(-2)


@right("positions/codes", "a cosine is a sine a quarter turn later")
def codes_by_quarter_turns(positions, d_model):
    phase = torch.tensor([0, math.pi / 2] * (d_model // 2), dtype=float64)
    twice = speeds(d_model).repeat_interleave(2)
    return torch.sin(positions.to(float64)[:, None] * twice + phase)


@wrong(
    "positions/codes",
    "takes i for the coordinate: the exponent counts double",
    classic=True,
)
def codes_double_exponent(positions, d_model):
    code = torch.zeros(len(positions), d_model, dtype=float64)
    for i in range(0, d_model, 2):
        angles = positions.to(float64) / 10000 ** (2 * i / d_model)
        code[:, i], code[:, i + 1] = angles.sin(), angles.cos()
    return code


@wrong("positions/codes", "sines in the left half", classic=True)
def codes_halves(positions, d_model):
    angles = positions.to(float64)[:, None] * speeds(d_model)
    return torch.cat((angles.sin(), angles.cos()), dim=-1)


@wrong(
    "positions/codes",
    "the codes of 0, 1, 2, … instead of the positions that are given",
    classic=True,
)
def codes_ignores_positions(positions, d_model):
    steps = torch.arange(len(positions), dtype=float64)
    angles = steps[:, None] * speeds(d_model)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(-2)


@wrong("positions/codes", "cosine before sine", classic=True)
def codes_cosine_first(positions, d_model):
    angles = positions.to(float64)[:, None] * speeds(d_model)
    return torch.stack((angles.cos(), angles.sin()), -1).flatten(-2)


@wrong(
    "positions/codes",
    "speeds spaced so that the last is exactly 1/10000",
    classic=True,
)
def codes_last_speed(positions, d_model):
    n = d_model // 2
    spaced = torch.arange(n, dtype=float64) / max(n - 1, 1)
    angles = positions.to(float64)[:, None] * 10000**-spaced
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(-2)


@wrong(
    "positions/codes",
    "computed in single precision where double is asked for",
    classic=False,
)
def codes_single_precision(positions, d_model):
    angles = positions.float()[:, None] * speeds(d_model).float()
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(-2)


# positions/slow


@right("positions/slow", "turns all hands on by one step, in Python")
def slow_step_by_step(n_positions, d_model):
    turn = [cmath.exp(1j * w) for w in speeds(d_model).tolist()]
    hands, rows = [1 + 0j] * len(turn), []
    for _ in range(n_positions):
        rows.append([n for z in hands for n in (z.imag, z.real)])
        hands = [z * step for z, step in zip(hands, turn)]
    return torch.tensor(rows, dtype=float64).view(n_positions, d_model)


@wrong(
    "positions/slow",
    "still starts with position 1; only the exponent is mended",
    classic=True,
)
def slow_from_one(n_positions, d_model):
    code = torch.zeros(n_positions, d_model, dtype=float64)
    for t in range(n_positions):
        for i in range(0, d_model, 2):
            angle = (t + 1) / 10000 ** (i / d_model)
            code[t, i] = math.sin(angle)
            code[t, i + 1] = math.cos(angle)
    return code


@wrong(
    "positions/slow",
    "the exponent still counts double; only the start is mended",
    classic=True,
)
def slow_double_exponent(n_positions, d_model):
    code = torch.zeros(n_positions, d_model, dtype=float64)
    for t in range(n_positions):
        for i in range(0, d_model, 2):
            angle = t / 10000 ** (2 * i / d_model)
            code[t, i] = math.sin(angle)
            code[t, i + 1] = math.cos(angle)
    return code


@wrong(
    "positions/slow",
    "mends the exponent the other way, to a quarter: the slow hands are "
    "too fast",
    classic=False,
)
def slow_half_exponent(n_positions, d_model):
    code = torch.zeros(n_positions, d_model, dtype=float64)
    for t in range(n_positions):
        for i in range(0, d_model, 2):
            angle = t / 10000 ** (i / 2 / d_model)
            code[t, i] = math.sin(angle)
            code[t, i + 1] = math.cos(angle)
    return code


# positions/speeds


@right("positions/speeds", "the angle between rows 0 and 1, complex")
def speeds_by_complex_quotient(code):
    points = torch.complex(code[:2, 1::2], code[:2, 0::2])
    return (points[1] / points[0]).angle()


@right("positions/speeds", "a loop with math.atan2")
def speeds_in_a_loop(code):
    found = []
    for pair in range(code.shape[1] // 2):
        sine, cosine = code[1, 2 * pair : 2 * pair + 2].tolist()
        found.append(math.atan2(sine, cosine))
    return torch.tensor(found, dtype=code.dtype)


@wrong(
    "positions/speeds",
    "asin, which can't tell an angle from pi minus it",
    classic=True,
)
def speeds_by_asin(code):
    return torch.asin(code[1, 0::2])


@wrong(
    "positions/speeds",
    "the quotient loses the quadrant: atan of sine over cosine",
    classic=True,
)
def speeds_by_atan(code):
    return torch.atan(code[1, 0::2] / code[1, 1::2])


@wrong("positions/speeds", "atan2 with cosine and sine swapped", classic=True)
def speeds_swapped(code):
    return torch.atan2(code[1, 1::2], code[1, 0::2])


@wrong("positions/speeds", "reads the halves layout", classic=True)
def speeds_of_halves(code):
    half = code.size(1) // 2
    return torch.atan2(code[1, :half], code[1, half:])


@wrong(
    "positions/speeds",
    "never looks at the table: what the formula says",
    classic=False,
)
def speeds_by_formula(code):
    return speeds(code.size(1))


@wrong(
    "positions/speeds",
    "the last row's angle over the number of steps: fast hands have gone "
    "round in between",
    classic=False,
)
def speeds_from_the_last_row(code):
    angle = torch.atan2(code[-1, 0::2], code[-1, 1::2])
    return angle / (len(code) - 1)


# positions/shift


@right("positions/shift", "three diagonals")
def shift_by_diagonals(k, d_model):
    angles = k * speeds(d_model)
    sines = torch.zeros(d_model, dtype=float64)
    sines[0::2] = angles.sin()
    matrix = torch.diag(angles.cos().repeat_interleave(2))
    return matrix - torch.diag(sines[:-1], 1) + torch.diag(sines[:-1], -1)


@right("positions/shift", "entry by entry, from the addition theorems")
def shift_entry_by_entry(k, d_model):
    matrix = [[0.0] * d_model for _ in range(d_model)]
    for pair, speed in enumerate(speeds(d_model).tolist()):
        b, s, c = k * speed, 2 * pair, 2 * pair + 1
        # New sine: sin a cos b + cos a sin b. It stands in column s.
        matrix[s][s], matrix[c][s] = math.cos(b), math.sin(b)
        # New cosine: cos a cos b - sin a sin b. It stands in column c.
        matrix[c][c], matrix[s][c] = math.cos(b), -math.sin(b)
    return torch.tensor(matrix, dtype=float64)


@wrong(
    "positions/shift",
    "transposed, for codes that stand in columns: k steps back",
    classic=True,
)
def shift_for_columns(k, d_model):
    angles = k * speeds(d_model)
    cos, sin = angles.cos(), angles.sin()
    blocks = torch.stack((cos, sin, -sin, cos), -1).view(-1, 2, 2)
    return torch.block_diag(*blocks)


@wrong(
    "positions/shift",
    "multiplies k times, so a negative k gives the identity",
    classic=True,
)
def shift_not_back(k, d_model):
    angles = speeds(d_model)
    cos, sin = angles.cos(), angles.sin()
    step = torch.block_diag(
        *torch.stack((cos, -sin, sin, cos), -1).view(-1, 2, 2)
    )
    matrix = torch.eye(d_model, dtype=float64)
    for _ in range(k):
        matrix = matrix @ step
    return matrix


@wrong("positions/shift", "for codes in the halves layout", classic=True)
def shift_of_halves(k, d_model):
    angles = k * speeds(d_model)
    cos, sin = torch.diag(angles.cos()), torch.diag(angles.sin())
    upper = torch.cat((cos, -sin), dim=1)
    return torch.cat((upper, torch.cat((sin, cos), dim=1)))


@wrong(
    "positions/shift",
    "the same angle in every pair, that of the first",
    classic=False,
)
def shift_one_angle(k, d_model):
    block = torch.tensor(
        [[math.cos(k), -math.sin(k)], [math.sin(k), math.cos(k)]],
        dtype=float64,
    )
    return torch.kron(torch.eye(d_model // 2, dtype=float64), block)


# positions/sees_places


@right("positions/sees_places", "loops over all sentences and pairs")
def sees_places_in_loops(add):
    torch.manual_seed(0)
    x = torch.randn(3, 11, 8, dtype=float64)
    try:
        added = add(x.clone()) - x
    except (RuntimeError, IndexError):
        return False
    if added.shape != x.shape:
        return False
    first = added[0]
    for other in added[1:]:
        if (other - first).abs().max() > 1e-5:
            return False
    for s in range(11):
        for t in range(s):
            if (first[s] - first[t]).abs().max() < 1e-4:
                return False
    return True


@wrong(
    "positions/sees_places",
    "asks for equality to the last bit, though the difference is rounded",
    classic=True,
)
def sees_places_exactly(add):
    torch.manual_seed(0)
    x = torch.randn(3, 7, 8, dtype=float64)
    added = add(x.clone()) - x
    if not all(torch.equal(added[0], other) for other in added):
        return False
    return len(added[0].unique(dim=0)) == 7


@wrong(
    "positions/sees_places",
    "compares the first two places only",
    classic=True,
)
def sees_places_first_two(add):
    x = torch.randn(3, 7, 8, dtype=float64)
    added = add(x.clone()) - x
    shared = torch.allclose(added, added[:1].expand_as(added), atol=1e-5)
    return shared and not torch.allclose(added[0, 0], added[0, 1], atol=1e-4)


@wrong(
    "positions/sees_places",
    "only asks whether the sentences agree, not whether places differ",
    classic=True,
)
def sees_places_sentences_only(add):
    x = torch.randn(3, 7, 8, dtype=float64)
    added = add(x.clone()) - x
    return torch.allclose(added, added[:1].expand_as(added), atol=1e-5)


@wrong(
    "positions/sees_places",
    "one sentence alone can't show whether all share their places",
    classic=False,
)
def sees_places_one_sentence(add):
    x = torch.randn(1, 7, 8, dtype=float64)
    added = (add(x.clone()) - x)[0]
    apart = (added[:, None] - added).abs().amax(-1) > 1e-4
    return bool((apart | torch.eye(7, dtype=torch.bool)).all())


# positions/design


@right("positions/design", "searches in plain Python, counts with cosines")
def design_by_search():
    chance = random.Random(1)
    best, widest = None, -1.0
    for _ in range(1000):
        speed = [chance.uniform(0, math.pi) for _ in range(4)]
        nearest = min(
            2 - sum(math.cos(w * k) for w in speed) / 2 for k in range(1, 200)
        )
        if nearest > widest:
            best, widest = speed, nearest
    steps = torch.arange(200, dtype=float64)[:, None]
    angles = steps * torch.tensor(best, dtype=float64)
    return torch.cat((angles.sin(), angles.cos()), dim=1) / 2


@wrong("positions/design", "the paper's speeds: too near", classic=True)
def design_of_the_paper():
    angles = torch.arange(200, dtype=float64)[:, None] * speeds(8)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1) / 2


@wrong(
    "positions/design",
    "random vectors of length 1, whose dot products are not a matter of "
    "distance",
    classic=True,
)
def design_at_random():
    g = torch.Generator().manual_seed(0)
    return F.normalize(torch.randn(200, 8, generator=g, dtype=float64), dim=1)


@wrong("positions/design", "the codes have length 2, not 1", classic=True)
def design_too_long():
    return 2 * design_by_search()
