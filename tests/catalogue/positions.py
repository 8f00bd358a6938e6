"""Answers to the exercises of chapter 3, as people write them."""

import cmath
import math

import numpy as np
import torch

import coursekit


def in_pairs(angles):
    code = torch.zeros(*angles.shape[:-1], 2 * angles.shape[-1]).double()
    code[..., 0::2] = torch.sin(angles)
    code[..., 1::2] = torch.cos(angles)
    return code


def paper(d_model):
    return 1 / 10000 ** (torch.arange(0, d_model, 2).double() / d_model)


# -- codes: right ------------------------------------------------------------
def by_loops(positions, d_model):
    rows = []
    for t in positions.tolist():
        row = []
        for i in range(d_model // 2):
            angle = t / 10000 ** (2 * i / d_model)
            row += [math.sin(angle), math.cos(angle)]
        rows.append(row)
    return torch.tensor(rows, dtype=torch.float64)


def on_the_circle(positions, d_model):
    turns = positions[:, None] * torch.exp(
        -math.log(10000) / d_model * torch.arange(0, d_model, 2).double()
    )
    points = torch.exp(1j * turns)
    return torch.view_as_real(points).flip(-1).reshape(len(positions), d_model)


def sines_only(positions, d_model):
    # A cosine is a sine a quarter turn ahead.
    j = np.arange(d_model)
    angles = positions.numpy()[:, None] / 10000 ** (2 * (j // 2) / d_model)
    return torch.from_numpy(np.sin(angles + (j % 2) * np.pi / 2))


def in_single_precision(positions, d_model):
    i = torch.arange(0, d_model, 2)
    return in_pairs(positions.float()[:, None] / 10000 ** (i / d_model))


# -- codes: wrong ------------------------------------------------------------
def counts(positions, d_model):
    angles = torch.outer(torch.arange(positions.numel()), paper(d_model))
    return in_pairs(angles)


def counts_on(positions, d_model):
    first = int(positions[0])
    places = torch.arange(first, first + positions.numel())
    return in_pairs(torch.outer(places.double(), paper(d_model)))


def pair_twice(positions, d_model):
    code = torch.zeros(len(positions), d_model, dtype=torch.float64)
    for i in range(0, d_model, 2):
        angle = positions / 10000 ** (2 * i / d_model)
        code[:, i], code[:, i + 1] = angle.sin(), angle.cos()
    return code


def whole(positions, d_model):
    code = torch.zeros(len(positions), d_model, dtype=torch.float64)
    for i in range(d_model // 2):
        angle = positions.double() / 10000 ** (2 * i // d_model)
        code[:, 2 * i], code[:, 2 * i + 1] = angle.sin(), angle.cos()
    return code


def own_speed(positions, d_model):
    j = torch.arange(d_model).double()
    angles = positions[:, None] / 10000 ** (j / d_model)
    even = torch.arange(d_model) % 2 == 0
    return torch.where(even, angles.sin(), angles.cos())


def cos_first(positions, d_model):
    angles = positions[:, None] * paper(d_model)
    return torch.stack([angles.cos(), angles.sin()], -1).view(-1, d_model)


def in_halves(positions, d_model):
    angles = positions[:, None] * paper(d_model)
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def base_1000(positions, d_model):
    return in_pairs(positions[:, None] * paper(d_model) ** 0.75)


def last_is_exact(positions, d_model):
    steps = torch.linspace(0, 1, d_model // 2, dtype=torch.float64)
    return in_pairs(positions[:, None] / 10000**steps)


def degrees(positions, d_model):
    angles = positions[:, None] * paper(d_model)
    return in_pairs(torch.deg2rad(angles))


# -- slow: right -------------------------------------------------------------
def as_on_the_page(n_positions, d_model):
    code = torch.zeros(n_positions, d_model, dtype=torch.float64)
    for t in range(n_positions):
        for i in range(0, d_model, 2):
            angle = t / 10000 ** (i / d_model)
            code[t, i] = math.sin(angle)
            code[t, i + 1] = math.cos(angle)
    return code


def turned_step_by_step(n_positions, d_model):
    hands = [cmath.exp(1j * w) for w in paper(d_model).tolist()]
    tips, rows = [1 + 0j] * len(hands), []
    for _ in range(n_positions):
        rows.append([x for tip in tips for x in (tip.imag, tip.real)])
        tips = [tip * hand for tip, hand in zip(tips, hands, strict=True)]
    return torch.tensor(rows, dtype=torch.float64)


def from_given_positions(n_positions, d_model):
    return sines_only(torch.arange(n_positions), d_model)


# -- slow: wrong -------------------------------------------------------------
def from_one(n_positions, d_model):
    return by_loops(torch.arange(1, n_positions + 1), d_model)


def exponent_mended_too_late(n_positions, d_model):
    return pair_twice(torch.arange(n_positions), d_model)


def half_the_exponent(n_positions, d_model):
    t = torch.arange(n_positions).double()
    return in_pairs(t[:, None] * paper(d_model).sqrt())


def last_is_exact_table(n_positions, d_model):
    return last_is_exact(torch.arange(n_positions), d_model)


def sines_everywhere(n_positions, d_model):
    code = as_on_the_page(n_positions, d_model)
    code[:, 1::2] = code[:, 0::2]
    return code


# -- speeds: right -----------------------------------------------------------
def by_cosine(code):
    # None turns by more than half a round, so the cosine says it all.
    return torch.arccos(code[1, 1::2].clamp(-1, 1))


def by_complex(code):
    points = torch.complex(code[:, 1::2], code[:, 0::2])
    return (points[1] / points[0]).angle()


def by_difference(code):
    # From any row to the next: sin(a − b) and cos(a − b).
    s, c = code[:, 0::2], code[:, 1::2]
    sin = s[3] * c[2] - c[3] * s[2]
    cos = c[3] * c[2] + s[3] * s[2]
    return torch.atan2(sin, cos)


# -- speeds: wrong -----------------------------------------------------------
def last_row(code):
    t = len(code) - 1
    return torch.atan2(code[t, 0::2], code[t, 1::2]).div(t)


def from_halves(code):
    half = code.shape[1] // 2
    return torch.atan2(code[1, :half], code[1, half:])


def formula(code):
    return paper(code.shape[1])


def asin(code):
    return torch.asin(code[1, ::2])


def atan(code):
    return torch.atan(code[1, ::2] / code[1, 1::2])


def swapped(code):
    return torch.atan2(code[1, 1::2], code[1, 0::2])


def slope(code):
    return code[1, 0::2] - code[0, 0::2]


def in_degrees(code):
    return torch.rad2deg(torch.atan2(code[1, 0::2], code[1, 1::2]))


def in_rounds(code):
    return torch.atan2(code[1, 0::2], code[1, 1::2]) / (2 * math.pi)


# -- shift: right ------------------------------------------------------------
def as_a_power(k, d_model):
    return torch.linalg.matrix_power(entry_by_entry(1, d_model), k)


def entry_by_entry(k, d_model):
    turn = torch.zeros(d_model, d_model, dtype=torch.float64)
    for i in range(d_model // 2):
        angle = k / 10000 ** (2 * i / d_model)
        turn[2 * i, 2 * i] = turn[2 * i + 1, 2 * i + 1] = math.cos(angle)
        turn[2 * i + 1, 2 * i] = math.sin(angle)
        turn[2 * i, 2 * i + 1] = -math.sin(angle)
    return turn


def as_an_exponential(k, d_model):
    # A rotation is the exponential of a matrix with a minus sign in it.
    turn = torch.zeros(d_model, d_model, dtype=torch.float64)
    even = torch.arange(0, d_model, 2)
    turn[even + 1, even] = k * paper(d_model)
    return torch.linalg.matrix_exp(turn - turn.T)


# -- shift: wrong ------------------------------------------------------------
def back(k, d_model):
    c, s = (k * paper(d_model)).cos(), (k * paper(d_model)).sin()
    blocks = [
        torch.tensor([[c[i], s[i]], [-s[i], c[i]]]) for i in range(len(c))
    ]
    return torch.block_diag(*blocks)


def no_minus(k, d_model):
    turn = torch.zeros(d_model, d_model, dtype=torch.float64)
    even = torch.arange(0, d_model, 2)
    angle = k * paper(d_model)
    turn[even, even] = turn[even + 1, even + 1] = angle.cos()
    turn[even, even + 1] = turn[even + 1, even] = angle.sin()
    return turn


def shift_pair_twice(k, d_model):
    turn = torch.zeros(d_model, d_model, dtype=torch.float64)
    for i in range(0, d_model, 2):
        angle = torch.tensor(k / 10000 ** (2 * i / d_model)).double()
        c, s = angle.cos(), angle.sin()
        turn[i : i + 2, i : i + 2] = torch.tensor([[c, -s], [s, c]])
    return turn


def forward_only(k, d_model):
    turn, step = torch.eye(d_model).double(), entry_by_entry(1, d_model)
    for _ in range(k):
        turn = turn @ step
    return turn


def for_halves(k, d_model):
    order = [*range(0, d_model, 2), *range(1, d_model, 2)]
    return entry_by_entry(k, d_model)[order][:, order]


def one_step(k, d_model):
    return entry_by_entry(1, d_model)


def always_forward(k, d_model):
    return entry_by_entry(abs(k), d_model)


def times_k(k, d_model):
    return k * entry_by_entry(1, d_model)


# -- sees_places: right ------------------------------------------------------
def with_zeros(add):
    # Nothing is rounded if x is zero.
    y = add(torch.zeros(2, 7, 8, dtype=torch.float64))
    different = len({tuple(row) for row in y[0].tolist()}) == 7
    return torch.equal(y[0], y[1]) and different


def with_distances(add):
    x = torch.randn(4, 6, 8, dtype=torch.float64)
    p = add(x) - x
    gaps = torch.cdist(p, p)  # (4, 6, 6), one table a sentence
    same_row = bool((p.std(dim=0) < 1e-9).all())
    return same_row and int((gaps < 1e-9).sum()) == 4 * 6


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


# -- sees_places: wrong ------------------------------------------------------
def one_sentence(add):
    x = torch.randn(1, 5, 8, dtype=torch.float64)
    p = (add(x) - x)[0].round(decimals=6)
    return len(torch.unique(p, dim=0)) == 5


def sentences_agree(p):
    return all(torch.allclose(p[0], row) for row in p)


def what_is_added(add, n_rows=3, n_places=5):
    x = torch.randn(n_rows, n_places, 8, dtype=torch.float64)
    return add(x) - x


def first_two(add):
    p = what_is_added(add)
    return sentences_agree(p) and not torch.allclose(p[0, 0], p[0, 1])


def neighbors(add):
    p = what_is_added(add, 2, 6)
    steps = (p[0, 1:] - p[0, :-1]).norm(dim=-1)
    return sentences_agree(p) and steps.min().item() > 1e-6


def no_places(add):
    return sentences_agree(what_is_added(add, 4, 3))


def anything(add):
    p = what_is_added(add)
    return sentences_agree(p) and p.abs().max().item() > 1e-6


def exact(add):
    p = what_is_added(add)
    return (
        bool((p == p[:1]).all())
        and len({tuple(r) for r in p[0].tolist()}) == 5
    )


def only_sinusoids(add):
    p = what_is_added(add)
    code = coursekit.sinusoidal(5, 8).double()
    return torch.allclose(p, code.expand_as(p), atol=1e-5)


def first_and_last(add):
    p = what_is_added(add)
    return sentences_agree(p) and not torch.allclose(p[0, 0], p[0, -1])


def lengths_differ(add):
    p = what_is_added(add)
    lengths = p[0].norm(dim=-1).sort().values
    return sentences_agree(p) and lengths.diff().min().item() > 1e-6


def says_whether_wrong(add):
    return not by_loops_over_pairs(add)


def slow_own_speed(n_positions, d_model):
    column = torch.arange(d_model).double()
    angles = torch.arange(n_positions)[:, None] * 10000 ** (-column / d_model)
    return torch.where(column % 2 == 0, angles.sin(), angles.cos())


def hundredfold(positions, d_model):
    pair = torch.arange(d_model // 2, dtype=torch.float64)
    angles = torch.outer(positions.double(), 100 ** (-2 * pair / d_model))
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(-2)


RIGHT = {
    "codes": [by_loops, on_the_circle, sines_only, in_single_precision],
    "slow": [as_on_the_page, turned_step_by_step, from_given_positions],
    "speeds": [by_cosine, by_complex, by_difference],
    "shift": [as_a_power, entry_by_entry, as_an_exponential],
    "sees_places": [with_zeros, with_distances, by_loops_over_pairs],
}
WRONG = {
    "codes": {
        "counts": counts,
        "pair_twice": pair_twice,
        "whole": whole,
        "own_speed": own_speed,
        "cos_first": cos_first,
        "other_layout": in_halves,
        "last_speed": last_is_exact,
    },
    "slow": {
        "from_one": from_one,
        "pair_twice": exponent_mended_too_late,
        "own_speed": slow_own_speed,
    },
    "speeds": {
        "last_row": last_row,
        "halves": from_halves,
        "formula": formula,
        "asin": asin,
        "atan": atan,
        "swapped": swapped,
    },
    "shift": {
        "back": back,
        "no_minus": no_minus,
        "pair_twice": shift_pair_twice,
        "forward_only": forward_only,
        "halves": for_halves,
    },
    "sees_places": {
        "one_sentence": one_sentence,
        "first_two": first_two,
        "neighbors": neighbors,
        "no_places": no_places,
        "exact": exact,
    },
}
OUTSIDE = {
    "codes": [base_1000, degrees, hundredfold, counts_on],
    "slow": [half_the_exponent, last_is_exact_table, sines_everywhere],
    "speeds": [slope, in_degrees, in_rounds],
    "shift": [one_step, always_forward, times_k],
    "sees_places": [
        only_sinusoids,
        first_and_last,
        lengths_differ,
        says_whether_wrong,
        anything,
    ],
}
