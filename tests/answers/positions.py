"""Answers to the exercises of chapter 3."""

import cmath
import math
import random

import numpy as np
import torch
from torch.nn import functional as F

import coursekit
from tests.answers import right, wrong

# -- codes -------------------------------------------------------------------


@right("positions/codes")
def codes_complex(positions, d_model):
    pairs = torch.arange(d_model // 2, dtype=torch.float64)
    angles = torch.outer(positions.double(), 10000 ** (-2 * pairs / d_model))
    turned = torch.polar(torch.ones_like(angles), angles)
    return torch.stack((turned.imag, turned.real), dim=2).flatten(1)


float64 = torch.float64


@right("positions/codes")
def codes_by_number(positions, d_model):
    rows = []
    for t in positions.tolist():
        row = []
        for pair in range(d_model // 2):
            angle = t * math.exp(-2 * pair / d_model * math.log(10000))
            row += [math.sin(angle), math.cos(angle)]
        rows.append(row)
    return torch.tensor(rows, dtype=float64)


def speeds(d_model):
    return 10000.0 ** (-torch.arange(0, d_model, 2, dtype=float64) / d_model)


@right("positions/codes")
def codes_by_circle(positions, d_model):
    angles = torch.outer(positions.to(float64), speeds(d_model))
    circle = torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(circle).flip(-1).flatten(-2)


@right("positions/codes")
def codes_by_quarter_turns(positions, d_model):
    phase = torch.tensor([0, math.pi / 2] * (d_model // 2), dtype=float64)
    twice = speeds(d_model).repeat_interleave(2)
    return torch.sin(positions.to(float64)[:, None] * twice + phase)


@right("positions/codes")
def codes_single_precision(positions, d_model):
    angles = positions.float()[:, None] * speeds(d_model).float()
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(-2)


@right("positions/codes")
def by_loops(positions, d_model):
    rows = []
    for t in positions.tolist():
        row = []
        for i in range(d_model // 2):
            angle = t / 10000 ** (2 * i / d_model)
            row += [math.sin(angle), math.cos(angle)]
        rows.append(row)
    return torch.tensor(rows, dtype=torch.float64)


@right("positions/codes")
def on_the_circle(positions, d_model):
    turns = positions[:, None] * torch.exp(
        -math.log(10000) / d_model * torch.arange(0, d_model, 2).double()
    )
    points = torch.exp(1j * turns)
    return torch.view_as_real(points).flip(-1).reshape(len(positions), d_model)


@right("positions/codes")
def sines_only(positions, d_model):
    # A cosine is a sine a quarter turn ahead.
    j = np.arange(d_model)
    angles = positions.numpy()[:, None] / 10000 ** (2 * (j // 2) / d_model)
    return torch.from_numpy(np.sin(angles + (j % 2) * np.pi / 2))


def in_pairs(angles):
    code = torch.zeros(*angles.shape[:-1], 2 * angles.shape[-1]).double()
    code[..., 0::2] = torch.sin(angles)
    code[..., 1::2] = torch.cos(angles)
    return code


@right("positions/codes")
def in_single_precision(positions, d_model):
    i = torch.arange(0, d_model, 2)
    return in_pairs(positions.float()[:, None] / 10000 ** (i / d_model))


@wrong("positions/codes", "pair_twice")
def codes_double_exponent(positions, d_model):
    code = torch.zeros(len(positions), d_model, dtype=float64)
    for i in range(0, d_model, 2):
        angles = positions.to(float64) / 10000 ** (2 * i / d_model)
        code[:, i], code[:, i + 1] = angles.sin(), angles.cos()
    return code


@wrong("positions/codes", "other_layout")
def codes_halves(positions, d_model):
    angles = positions.to(float64)[:, None] * speeds(d_model)
    return torch.cat((angles.sin(), angles.cos()), dim=-1)


@wrong("positions/codes", "counts")
def codes_ignores_positions(positions, d_model):
    steps = torch.arange(len(positions), dtype=float64)
    angles = steps[:, None] * speeds(d_model)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(-2)


@wrong("positions/codes", "cos_first")
def codes_cosine_first(positions, d_model):
    angles = positions.to(float64)[:, None] * speeds(d_model)
    return torch.stack((angles.cos(), angles.sin()), -1).flatten(-2)


@wrong("positions/codes", "last_speed")
def codes_last_speed(positions, d_model):
    n = d_model // 2
    spaced = torch.arange(n, dtype=float64) / max(n - 1, 1)
    angles = positions.to(float64)[:, None] * 10000**-spaced
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(-2)


@wrong("positions/codes", "whole")
def whole(positions, d_model):
    code = torch.zeros(len(positions), d_model, dtype=torch.float64)
    for i in range(d_model // 2):
        angle = positions.double() / 10000 ** (2 * i // d_model)
        code[:, 2 * i], code[:, 2 * i + 1] = angle.sin(), angle.cos()
    return code


@wrong("positions/codes", "own_speed")
def own_speed(positions, d_model):
    j = torch.arange(d_model).double()
    angles = positions[:, None] / 10000 ** (j / d_model)
    even = torch.arange(d_model) % 2 == 0
    return torch.where(even, angles.sin(), angles.cos())


def paper(d_model):
    return 1 / 10000 ** (torch.arange(0, d_model, 2).double() / d_model)


@wrong("positions/codes")
def counts_on(positions, d_model):
    first = int(positions[0])
    places = torch.arange(first, first + positions.numel())
    return in_pairs(torch.outer(places.double(), paper(d_model)))


@wrong("positions/codes")
def base_1000(positions, d_model):
    return in_pairs(positions[:, None] * paper(d_model) ** 0.75)


@wrong("positions/codes")
def degrees(positions, d_model):
    angles = positions[:, None] * paper(d_model)
    return in_pairs(torch.deg2rad(angles))


# -- slow --------------------------------------------------------------------


@right("positions/slow")
def slow_step_by_step(n_positions, d_model):
    turn = [cmath.exp(1j * w) for w in speeds(d_model).tolist()]
    hands, rows = [1 + 0j] * len(turn), []
    for _ in range(n_positions):
        rows.append([n for z in hands for n in (z.imag, z.real)])
        hands = [z * step for z, step in zip(hands, turn)]
    return torch.tensor(rows, dtype=float64).view(n_positions, d_model)


@right("positions/slow")
def as_on_the_page(n_positions, d_model):
    code = torch.zeros(n_positions, d_model, dtype=torch.float64)
    for t in range(n_positions):
        for i in range(0, d_model, 2):
            angle = t / 10000 ** (i / d_model)
            code[t, i] = math.sin(angle)
            code[t, i + 1] = math.cos(angle)
    return code


@right("positions/slow")
def turned_step_by_step(n_positions, d_model):
    hands = [cmath.exp(1j * w) for w in paper(d_model).tolist()]
    tips, rows = [1 + 0j] * len(hands), []
    for _ in range(n_positions):
        rows.append([x for tip in tips for x in (tip.imag, tip.real)])
        tips = [tip * hand for tip, hand in zip(tips, hands, strict=True)]
    return torch.tensor(rows, dtype=torch.float64)


@right("positions/slow")
def from_given_positions(n_positions, d_model):
    return sines_only(torch.arange(n_positions), d_model)


def pair_twice(positions, d_model):
    code = torch.zeros(len(positions), d_model, dtype=torch.float64)
    for i in range(0, d_model, 2):
        angle = positions / 10000 ** (2 * i / d_model)
        code[:, i], code[:, i + 1] = angle.sin(), angle.cos()
    return code


@wrong("positions/slow", "pair_twice")
def exponent_mended_too_late(n_positions, d_model):
    return pair_twice(torch.arange(n_positions), d_model)


@wrong("positions/slow", "from_one")
def from_one(n_positions, d_model):
    return by_loops(torch.arange(1, n_positions + 1), d_model)


@wrong("positions/slow", "own_speed")
def slow_own_speed(n_positions, d_model):
    column = torch.arange(d_model).double()
    angles = torch.arange(n_positions)[:, None] * 10000 ** (-column / d_model)
    return torch.where(column % 2 == 0, angles.sin(), angles.cos())


# Mends the exponent the other way, to a quarter: the slow hands are too fast.
@wrong("positions/slow")
def slow_half_exponent(n_positions, d_model):
    code = torch.zeros(n_positions, d_model, dtype=float64)
    for t in range(n_positions):
        for i in range(0, d_model, 2):
            angle = t / 10000 ** (i / 2 / d_model)
            code[t, i] = math.sin(angle)
            code[t, i + 1] = math.cos(angle)
    return code


def last_is_exact(positions, d_model):
    steps = torch.linspace(0, 1, d_model // 2, dtype=torch.float64)
    return in_pairs(positions[:, None] / 10000**steps)


@wrong("positions/slow")
def last_is_exact_table(n_positions, d_model):
    return last_is_exact(torch.arange(n_positions), d_model)


@wrong("positions/slow")
def half_the_exponent(n_positions, d_model):
    t = torch.arange(n_positions).double()
    return in_pairs(t[:, None] * paper(d_model).sqrt())


# -- speeds ------------------------------------------------------------------


@right("positions/speeds")
def speeds_by_complex_quotient(code):
    points = torch.complex(code[:2, 1::2], code[:2, 0::2])
    return (points[1] / points[0]).angle()


@right("positions/speeds")
def speeds_in_a_loop(code):
    found = []
    for pair in range(code.shape[1] // 2):
        sine, cosine = code[1, 2 * pair : 2 * pair + 2].tolist()
        found.append(math.atan2(sine, cosine))
    return torch.tensor(found, dtype=code.dtype)


@right("positions/speeds")
def by_cosine(code):
    # None turns by more than half a round, so the cosine says it all.
    return torch.arccos(code[1, 1::2].clamp(-1, 1))


@right("positions/speeds")
def by_complex(code):
    points = torch.complex(code[:, 1::2], code[:, 0::2])
    return (points[1] / points[0]).angle()


@right("positions/speeds")
def by_difference(code):
    # From any row to the next: sin(a − b) and cos(a − b).
    s, c = code[:, 0::2], code[:, 1::2]
    sin = s[3] * c[2] - c[3] * s[2]
    cos = c[3] * c[2] + s[3] * s[2]
    return torch.atan2(sin, cos)


@wrong("positions/speeds", "asin")
def speeds_by_asin(code):
    return torch.asin(code[1, 0::2])


@wrong("positions/speeds", "atan")
def speeds_by_atan(code):
    return torch.atan(code[1, 0::2] / code[1, 1::2])


@wrong("positions/speeds", "swapped")
def speeds_swapped(code):
    return torch.atan2(code[1, 1::2], code[1, 0::2])


@wrong("positions/speeds", "halves")
def speeds_of_halves(code):
    half = code.size(1) // 2
    return torch.atan2(code[1, :half], code[1, half:])


@wrong("positions/speeds", "formula")
def speeds_by_formula(code):
    return speeds(code.size(1))


@wrong("positions/speeds", "last_row")
def speeds_from_the_last_row(code):
    angle = torch.atan2(code[-1, 0::2], code[-1, 1::2])
    return angle / (len(code) - 1)


@wrong("positions/speeds")
def slope(code):
    return code[1, 0::2] - code[0, 0::2]


@wrong("positions/speeds")
def in_degrees(code):
    return torch.rad2deg(torch.atan2(code[1, 0::2], code[1, 1::2]))


@wrong("positions/speeds")
def in_rounds(code):
    return torch.atan2(code[1, 0::2], code[1, 1::2]) / (2 * math.pi)


# -- shift -------------------------------------------------------------------


@right("positions/shift")
def shift_by_diagonals(k, d_model):
    angles = k * speeds(d_model)
    sines = torch.zeros(d_model, dtype=float64)
    sines[0::2] = angles.sin()
    matrix = torch.diag(angles.cos().repeat_interleave(2))
    return matrix - torch.diag(sines[:-1], 1) + torch.diag(sines[:-1], -1)


@right("positions/shift")
def shift_entry_by_entry(k, d_model):
    matrix = [[0.0] * d_model for _ in range(d_model)]
    for pair, speed in enumerate(speeds(d_model).tolist()):
        b, s, c = k * speed, 2 * pair, 2 * pair + 1
        # New sine: sin a cos b + cos a sin b. It stands in column s.
        matrix[s][s], matrix[c][s] = math.cos(b), math.sin(b)
        # New cosine: cos a cos b - sin a sin b. It stands in column c.
        matrix[c][c], matrix[s][c] = math.cos(b), -math.sin(b)
    return torch.tensor(matrix, dtype=float64)


@right("positions/shift")
def as_a_power(k, d_model):
    return torch.linalg.matrix_power(entry_by_entry(1, d_model), k)


@right("positions/shift")
def entry_by_entry(k, d_model):
    turn = torch.zeros(d_model, d_model, dtype=torch.float64)
    for i in range(d_model // 2):
        angle = k / 10000 ** (2 * i / d_model)
        turn[2 * i, 2 * i] = turn[2 * i + 1, 2 * i + 1] = math.cos(angle)
        turn[2 * i + 1, 2 * i] = math.sin(angle)
        turn[2 * i, 2 * i + 1] = -math.sin(angle)
    return turn


@right("positions/shift")
def as_an_exponential(k, d_model):
    # A rotation is the exponential of a matrix with a minus sign in it.
    turn = torch.zeros(d_model, d_model, dtype=torch.float64)
    even = torch.arange(0, d_model, 2)
    turn[even + 1, even] = k * paper(d_model)
    return torch.linalg.matrix_exp(turn - turn.T)


@wrong("positions/shift", "back")
def shift_for_columns(k, d_model):
    angles = k * speeds(d_model)
    cos, sin = angles.cos(), angles.sin()
    blocks = torch.stack((cos, sin, -sin, cos), -1).view(-1, 2, 2)
    return torch.block_diag(*blocks)


@wrong("positions/shift", "forward_only")
def forward_only(k, d_model):
    turn, step = torch.eye(d_model).double(), entry_by_entry(1, d_model)
    for _ in range(k):
        turn = turn @ step
    return turn


@wrong("positions/shift", "halves")
def shift_of_halves(k, d_model):
    angles = k * speeds(d_model)
    cos, sin = torch.diag(angles.cos()), torch.diag(angles.sin())
    upper = torch.cat((cos, -sin), dim=1)
    return torch.cat((upper, torch.cat((sin, cos), dim=1)))


@wrong("positions/shift", "no_minus")
def no_minus(k, d_model):
    turn = torch.zeros(d_model, d_model, dtype=torch.float64)
    even = torch.arange(0, d_model, 2)
    angle = k * paper(d_model)
    turn[even, even] = turn[even + 1, even + 1] = angle.cos()
    turn[even, even + 1] = turn[even + 1, even] = angle.sin()
    return turn


@wrong("positions/shift", "pair_twice")
def shift_pair_twice(k, d_model):
    turn = torch.zeros(d_model, d_model, dtype=torch.float64)
    for i in range(0, d_model, 2):
        angle = torch.tensor(k / 10000 ** (2 * i / d_model)).double()
        c, s = angle.cos(), angle.sin()
        turn[i : i + 2, i : i + 2] = torch.tensor([[c, -s], [s, c]])
    return turn


# The same angle in every pair, that of the first.
@wrong("positions/shift")
def shift_one_angle(k, d_model):
    block = torch.tensor(
        [[math.cos(k), -math.sin(k)], [math.sin(k), math.cos(k)]],
        dtype=float64,
    )
    return torch.kron(torch.eye(d_model // 2, dtype=float64), block)


@wrong("positions/shift")
def one_step(k, d_model):
    return entry_by_entry(1, d_model)


@wrong("positions/shift")
def always_forward(k, d_model):
    return entry_by_entry(abs(k), d_model)


# -- sees_places -------------------------------------------------------------


@right("positions/sees_places")
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


@right("positions/sees_places")
def with_zeros(add):
    # Nothing is rounded if x is zero.
    y = add(torch.zeros(2, 7, 8, dtype=torch.float64))
    different = len({tuple(row) for row in y[0].tolist()}) == 7
    return torch.equal(y[0], y[1]) and different


@right("positions/sees_places")
def with_distances(add):
    x = torch.randn(4, 6, 8, dtype=torch.float64)
    p = add(x) - x
    gaps = torch.cdist(p, p)  # (4, 6, 6), one table a sentence
    same_row = bool((p.std(dim=0) < 1e-9).all())
    return same_row and int((gaps < 1e-9).sum()) == 4 * 6


@right("positions/sees_places")
def by_loops_over_pairs(add):
    x = torch.ones(3, 4, 8, dtype=torch.float64)
    p = add(x) - x
    for t in range(4):
        for b in range(3):
            if (p[b, t] - p[0, t]).abs().max() > 1e-8:
                return False
            for s in range(t):
                if (p[b, t] - p[b, s]).abs().max() < 1e-8:
                    return False
    return True


def sentences_agree(p):
    return all(torch.allclose(p[0], row) for row in p)


def what_is_added(add, n_rows=3, n_places=5):
    x = torch.randn(n_rows, n_places, 8, dtype=torch.float64)
    return add(x) - x


@wrong("positions/sees_places", "neighbors")
def neighbors(add):
    p = what_is_added(add, 2, 6)
    steps = (p[0, 1:] - p[0, :-1]).norm(dim=-1)
    return sentences_agree(p) and steps.min().item() > 1e-6


@wrong("positions/sees_places", "exact")
def sees_places_exactly(add):
    torch.manual_seed(0)
    x = torch.randn(3, 7, 8, dtype=float64)
    added = add(x.clone()) - x
    if not all(torch.equal(added[0], other) for other in added):
        return False
    return len(added[0].unique(dim=0)) == 7


@wrong("positions/sees_places", "first_two")
def sees_places_first_two(add):
    x = torch.randn(3, 7, 8, dtype=float64)
    added = add(x.clone()) - x
    shared = torch.allclose(added, added[:1].expand_as(added), atol=1e-5)
    return shared and not torch.allclose(added[0, 0], added[0, 1], atol=1e-4)


@wrong("positions/sees_places", "no_places")
def sees_places_sentences_only(add):
    x = torch.randn(3, 7, 8, dtype=float64)
    added = add(x.clone()) - x
    return torch.allclose(added, added[:1].expand_as(added), atol=1e-5)


@wrong("positions/sees_places", "one_sentence")
def sees_places_one_sentence(add):
    x = torch.randn(1, 7, 8, dtype=float64)
    added = (add(x.clone()) - x)[0]
    apart = (added[:, None] - added).abs().amax(-1) > 1e-4
    return bool((apart | torch.eye(7, dtype=torch.bool)).all())


@wrong("positions/sees_places")
def anything(add):
    p = what_is_added(add)
    return sentences_agree(p) and p.abs().max().item() > 1e-6


@wrong("positions/sees_places")
def only_sinusoids(add):
    p = what_is_added(add)
    code = coursekit.sinusoidal(5, 8).double()
    return torch.allclose(p, code.expand_as(p), atol=1e-5)


@wrong("positions/sees_places")
def says_whether_wrong(add):
    return not by_loops_over_pairs(add)


# -- design ------------------------------------------------------------------


@right("positions/design")
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


# The codes have length 2, not 1.
@wrong("positions/design")
def design_too_long():
    return 2 * design_by_search()


# The paper's speeds: too near.
@wrong("positions/design")
def design_of_the_paper():
    angles = torch.arange(200, dtype=float64)[:, None] * speeds(8)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1) / 2


# Random vectors of length 1, whose dot products are not a matter of distance.
@wrong("positions/design")
def design_at_random():
    g = torch.Generator().manual_seed(0)
    return F.normalize(torch.randn(200, 8, generator=g, dtype=float64), dim=1)
