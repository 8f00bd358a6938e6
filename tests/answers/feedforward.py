"""Answers to the exercises of chapter 8."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.answers import right, wrong

# -- feed_forward ------------------------------------------------------------


@right("feedforward/feed_forward")
def network_unit_by_unit(x, w_in, b_in, w_out, b_out):
    y = b_out
    for key, bias, value in zip(w_in.T, b_in, w_out):
        z = (x * key).sum(-1, keepdim=True) + bias
        y = y + torch.where(z > 0, z, torch.zeros_like(z)) * value
    return y


@right("feedforward/feed_forward")
def network_with_abs(x, w_in, b_in, w_out, b_out):
    z = torch.einsum("...d,df->...f", x, w_in) + b_in
    return torch.einsum("...f,fd->...d", 0.5 * (z + abs(z)), w_out) + b_out


@right("feedforward/feed_forward")
def feed_forward_absolute(x, w_in, b_in, w_out, b_out):
    hidden = torch.einsum("...d,df->...f", x, w_in) + b_in
    hidden = (hidden + hidden.abs()) / 2
    return torch.einsum("...f,fd->...d", hidden, w_out) + b_out


@right("feedforward/feed_forward")
@right("feedforward/mended")
def with_clamp(x, w_in, b_in, w_out, b_out):
    h = torch.clamp(torch.matmul(x, w_in) + b_in, min=0)
    return torch.matmul(h, w_out) + b_out


@right("feedforward/feed_forward")
@right("feedforward/mended")
def unit_by_unit(x, w_in, b_in, w_out, b_out):
    # A memory: each unit writes its row as strongly as it fires.
    y = b_out.expand(x.shape).clone()
    for key, bias, value in zip(w_in.T, b_in, w_out, strict=True):
        fires = (x * key).sum(-1, keepdim=True) + bias
        y = y + fires * (fires > 0) * value
    return y


@right("feedforward/feed_forward")
@right("feedforward/mended")
def with_einsum(x, w_in, b_in, w_out, b_out):
    z = torch.einsum("...i,ij->...j", x, w_in) + b_in
    return torch.einsum("...j,ji->...i", (z + z.abs()) / 2, w_out) + b_out


@wrong("feedforward/feed_forward", "no_bend")
def network_without_bend(x, w_in, b_in, w_out, b_out):
    return (x @ w_in + b_in) @ w_out + b_out


@wrong("feedforward/feed_forward", "late_bend")
def network_bent_at_the_end(x, w_in, b_in, w_out, b_out):
    return ((x @ w_in + b_in) @ w_out + b_out).relu()


@wrong("feedforward/feed_forward", "end_bend")
def network_bent_twice(x, w_in, b_in, w_out, b_out):
    return ((x @ w_in + b_in).relu() @ w_out + b_out).relu()


@wrong("feedforward/feed_forward", "early_bend")
def network_bias_late(x, w_in, b_in, w_out, b_out):
    return ((x @ w_in).relu() + b_in) @ w_out + b_out


@wrong("feedforward/feed_forward", "gelu")
def network_gelu(x, w_in, b_in, w_out, b_out):
    return nn.functional.gelu(x @ w_in + b_in) @ w_out + b_out


@wrong("feedforward/feed_forward")
def columns(x, w_in, b_in, w_out, b_out):
    return w_out.T @ (w_in.T @ x + b_in).relu() + b_out


@wrong("feedforward/feed_forward")
def other_half(x, w_in, b_in, w_out, b_out):
    return torch.clamp(x @ w_in + b_in, max=0) @ w_out + b_out


@wrong("feedforward/mended")
@wrong("feedforward/feed_forward")
def absolute_value(x, w_in, b_in, w_out, b_out):
    return (x @ w_in + b_in).abs() @ w_out + b_out


# -- count -------------------------------------------------------------------


@right("feedforward/count")
def count_by_making(d_model, d_ff):
    def size(*shapes):
        layers = nn.ModuleList(
            nn.Linear(a, b, device="meta") for a, b in shapes
        )
        return sum(p.numel() for p in layers.parameters())

    square = (d_model, d_model)
    network = size((d_model, d_ff), (d_ff, d_model))
    return size(square, square, square, square), network


@right("feedforward/count")
def count_from_shapes(d_model, d_ff):
    def size(layers):
        return sum(math.prod(pair) + pair[1] for pair in layers)

    return (
        size([(d_model, d_model)] * 4),
        size([(d_model, d_ff), (d_ff, d_model)]),
    )


@right("feedforward/count")
def by_layers(d_model, d_ff):
    def layer(a, b):
        return (a + 1) * b  # the bias is a row more

    network = layer(d_model, d_ff) + layer(d_ff, d_model)
    return 4 * layer(d_model, d_model), network


@right("feedforward/count")
def by_pytorch(d_model, d_ff):
    def size(*layers):
        return sum(p.numel() for layer in layers for p in layer.parameters())

    linear = torch.nn.Linear
    attention = size(*(linear(d_model, d_model) for _ in range(4)))
    return attention, size(linear(d_model, d_ff), linear(d_ff, d_model))


@right("feedforward/count")
def factored(d_model, d_ff):
    return [4 * d_model * (d_model + 1), d_ff * (2 * d_model + 1) + d_model]


@wrong("feedforward/count", "no_biases")
def count_without_biases(d_model, d_ff):
    return 4 * d_model**2, 2 * d_model * d_ff


@wrong("feedforward/count", "wide_biases")
def count_wide_biases(d_model, d_ff):
    return 4 * (d_model**2 + d_model), 2 * (d_model * d_ff + d_ff)


@wrong("feedforward/count", "four_d")
def count_four_times(d_model, d_ff):
    wide = 4 * d_model
    network = 2 * d_model * wide + wide + d_model
    return 4 * d_model**2 + 4 * d_model, network


# One number: the whole block.
@wrong("feedforward/count")
def count_together(d_model, d_ff):
    attention = 4 * (d_model * d_model + d_model)
    return attention + d_model * d_ff + d_ff + d_ff * d_model + d_model


@wrong("feedforward/count")
def second_bias_left_out(d_model, d_ff):
    return 4 * d_model * (d_model + 1), d_ff * (2 * d_model + 1)


@wrong("feedforward/count")
def summed(d_model, d_ff):
    attention, network = by_layers(d_model, d_ff)
    return attention, attention + network


# -- is_affine ---------------------------------------------------------------


@right("feedforward/is_affine")
@torch.no_grad()
def affine_by_reading_off(function, size):
    bias = function(torch.zeros(size, dtype=torch.float64))
    unit = torch.eye(size, dtype=torch.float64)
    matrix = torch.stack([function(row) - bias for row in unit])
    g = torch.Generator().manual_seed(0)
    for scale in (0.01, 1, 10, 100, 1e4):
        for _ in range(100):
            x = scale * torch.randn(size, generator=g, dtype=torch.float64)
            wanted = x @ matrix + bias
            room = 1e-9 * (1 + scale) * (1 + matrix.abs().sum())
            room = room + 1e-9 * bias.abs().max()
            if ((function(x) - wanted).abs() > room).any():
                return False
    return True


@right("feedforward/is_affine")
def through_a_point(function, size):
    # On a line between two points, and beyond, an affine map is a line.
    for scale in (1e-2, 1.0, 30.0, 1e3):
        a, b = torch.randn(2, 500, size, dtype=torch.float64) * scale
        t = torch.rand(500, 1, dtype=torch.float64) * 3 - 1
        there = function(a + t * (b - a))
        here = function(a) + t * (function(b) - function(a))
        worst = (there - here).abs().max() / (1e-30 + there.abs().max())
        if worst > 1e-10:
            return False
    return True


@right("feedforward/is_affine")
def fitted(function, size):
    # The only candidate is known from size + 1 points. Does it hold?
    zero = torch.zeros(1, size, dtype=torch.float64)
    b = function(zero)
    w = function(torch.eye(size, dtype=torch.float64)) - b
    scales = torch.logspace(-2, 4, 2000, dtype=torch.float64)[:, None]
    x = torch.randn(2000, size, dtype=torch.float64) * scales
    y = function(x)
    gap = (y - x @ w - b).abs() / (y.abs() + y.abs().max())
    return bool((gap < 1e-7).all())


@right("feedforward/is_affine")
def one_by_one(function, size):
    def g(x):
        return function(x) - function(torch.zeros(size, dtype=torch.float64))

    for n in range(150):
        a, b = torch.randn(2, size, dtype=torch.float64) * 10 ** (n % 4 - 1)
        gap = torch.linalg.norm(g(a + b) - g(a) - g(b))
        if gap > 1e-8 * (g(a).norm() + g(b).norm()):
            return False
    return True


@wrong("feedforward/is_affine", "exact")
def affine_exactly(function, size):
    zero = torch.zeros(size, dtype=torch.float64)
    for scale in (1, 1000):
        for _ in range(100):
            a, b = scale * torch.randn(2, size, dtype=torch.float64)
            defect = function(a + b) - function(a) - function(b)
            if (defect + function(zero) != 0).any():
                return False
    return True


@wrong("feedforward/is_affine", "no_offset")
def affine_without_zero(function, size):
    for _ in range(200):
        a, b = 10 * torch.randn(2, size, dtype=torch.float64)
        if not torch.allclose(function(a + b), function(a) + function(b)):
            return False
    return True


def alike(p, q):
    return torch.allclose(p, q, rtol=1e-6, atol=1e-6 * q.abs().max().item())


@wrong("feedforward/is_affine")
def close_to_zero(function, size):
    a, b = torch.randn(2, 10, size, dtype=torch.float64) * 1e-5
    return alike(function(a + b) + function(0 * a), function(a) + function(b))


def draws(size, scales=(0.1, 1.0, 10.0, 100.0)):
    for scale in scales:
        yield scale * torch.randn(2, 300, size, dtype=torch.float64)


@wrong("feedforward/is_affine")
def near_zero(function, size):
    ((a, b),) = draws(size, [1.0])
    return alike(function(a + b) + function(0 * a), function(a) + function(b))


@wrong("feedforward/is_affine")
def rays(function, size):
    def g(x):
        return function(x) - function(0 * x)

    return all(alike(g(-a.abs() * 5), 5 * g(-a.abs())) for a, _ in draws(size))


@wrong("feedforward/is_affine")
def absolute(function, size):
    def defect(a, b):
        g = function
        return (g(a + b) - g(a) - g(b) + g(0 * a)).abs().max().item()

    return all(defect(a, b) < 1e-9 for a, b in draws(size))


# One pair of small vectors, which a rare bend escapes.
@wrong("feedforward/is_affine")
def affine_one_pair(function, size):
    a, b = 0.1 * torch.randn(2, size, dtype=torch.float64)
    zero = torch.zeros(size, dtype=torch.float64)
    defect = function(a + b) - function(a) - function(b) + function(zero)
    return bool(defect.abs().max() < 1e-9)


# Forgets the value at 0, so a bias is taken for a bend.
@wrong("feedforward/is_affine")
def affine_without_bias(function, size):
    for scale in (1, 100, 10_000):
        for _ in range(100):
            a, b = scale * torch.randn(2, size, dtype=torch.float64)
            defect = function(a + b) - function(a) - function(b)
            if defect.abs().max() > 1e-9 * scale * size:
                return False
    return True


# Tries small vectors of positive numbers only.
@wrong("feedforward/is_affine")
def affine_positive(function, size):
    zero = torch.zeros(size, dtype=torch.float64)
    for _ in range(200):
        a, b = 0.01 * torch.rand(2, size, dtype=torch.float64)
        defect = function(a + b) - function(a) - function(b)
        if (defect + function(zero)).abs().max() > 1e-9:
            return False
    return True


# -- mended ------------------------------------------------------------------


@right("feedforward/mended")
def mended_token_by_token(x, w_in, b_in, w_out, b_out):
    tokens = x.reshape(-1, x.size(-1))
    rows = [(t @ w_in + b_in).clamp(min=0) @ w_out + b_out for t in tokens]
    return torch.stack(rows).reshape(*x.shape[:-1], w_out.size(1))


@wrong("feedforward/mended", "after_bend")
def mended_tokens_still_meet(x, w_in, b_in, w_out, b_out):
    hidden = (x @ w_in + b_in).relu()
    hidden = hidden / hidden.abs().amax(dim=-2, keepdim=True).clamp(1e-9)
    return hidden @ w_out + b_out


@wrong("feedforward/mended", "no_bend")
def mended_without_bend(x, w_in, b_in, w_out, b_out):
    return (x @ w_in + b_in) @ w_out + b_out


@wrong("feedforward/mended", "late_bend")
def mended_relu_at_the_end(x, w_in, b_in, w_out, b_out):
    hidden = x @ w_in + b_in
    return (hidden @ w_out + b_out).relu()


@wrong("feedforward/mended", "over_positions")
def over_positions(x, w_in, b_in, w_out, b_out):
    hidden = x @ w_in + b_in
    hidden = hidden / hidden.abs().amax(dim=-2, keepdim=True)
    return hidden.relu() @ w_out + b_out


@wrong("feedforward/mended", "over_units")
def over_units(x, w_in, b_in, w_out, b_out):
    hidden = x @ w_in + b_in
    hidden = F.normalize(hidden, p=float("inf"), dim=-1)
    return F.relu(hidden) @ w_out + b_out


# Divides each token by its own largest number instead of not at all.
@wrong("feedforward/mended")
def mended_other_axis(x, w_in, b_in, w_out, b_out):
    hidden = (x @ w_in + b_in).relu()
    hidden = hidden / hidden.abs().amax(dim=-1, keepdim=True)
    return hidden @ w_out + b_out


@wrong("feedforward/mended")
def over_units_after(x, w_in, b_in, w_out, b_out):
    hidden = (x @ w_in + b_in).relu()
    return F.normalize(hidden, dim=-1) @ w_out + b_out


# -- backward ----------------------------------------------------------------


@right("feedforward/backward")
def backward_token_by_token(dy, x, w_in, b_in, w_out, b_out):
    dw_in, dw_out = torch.zeros_like(w_in), torch.zeros_like(w_out)
    db_in, db_out = torch.zeros_like(b_in), torch.zeros_like(b_out)
    dx = []
    for pull, token in zip(dy, x):
        z = token @ w_in + b_in
        on = z > 0
        dz = torch.where(on, w_out @ pull, torch.zeros_like(z))
        dw_out += torch.outer(torch.where(on, z, 0 * z), pull)
        db_out += pull
        dw_in += torch.outer(token, dz)
        db_in += dz
        dx.append(w_in @ dz)
    return torch.stack(dx), dw_in, db_in, dw_out, db_out


@right("feedforward/backward")
def token_by_token(dy, x, w_in, b_in, w_out, b_out):
    dx = torch.zeros_like(x)
    dw_in, db_in = torch.zeros_like(w_in), torch.zeros_like(b_in)
    dw_out, db_out = torch.zeros_like(w_out), torch.zeros_like(b_out)
    for t in range(len(x)):
        z = x[t] @ w_in + b_in
        dz = w_out @ dy[t]
        dz[z <= 0] = 0
        dx[t] = w_in @ dz
        dw_in += torch.outer(x[t], dz)
        db_in += dz
        dw_out += torch.outer(z.clamp(min=0), dy[t])
        db_out += dy[t]
    return dx, dw_in, db_in, dw_out, db_out


@right("feedforward/backward")
def slopes(dy, x, w_in, b_in, w_out, b_out):
    z = torch.addmm(b_in, x, w_in)
    slope = torch.heaviside(z, torch.zeros((), dtype=z.dtype))
    dz = slope * (dy @ w_out.mT)
    ones = torch.ones(1, len(x), dtype=x.dtype)
    return (
        dz @ w_in.mT,
        (dz.mT @ x).mT,
        (ones @ dz)[0],
        (slope * z).mT @ dy,
        (ones @ dy)[0],
    )


@right("feedforward/backward")
def indices(dy, x, w_in, b_in, w_out, b_out):
    z = x @ w_in + b_in
    dz = torch.where(z > 0, torch.einsum("td,fd->tf", dy, w_out), 0.0)
    return [
        torch.einsum("tf,df->td", dz, w_in),
        torch.einsum("td,tf->df", x, dz),
        torch.einsum("tf->f", dz),
        torch.einsum("tf,td->fd", F.relu(z), dy),
        torch.einsum("td->d", dy),
    ]


@wrong("feedforward/backward", "slope_forgotten")
def backward_without_bend(dy, x, w_in, b_in, w_out, b_out):
    h = (x @ w_in + b_in).relu()
    dz = dy @ w_out.T
    return dz @ w_in.T, x.T @ dz, dz.sum(0), h.T @ dy, dy.sum(0)


@wrong("feedforward/backward", "averaged")
def backward_mean_biases(dy, x, w_in, b_in, w_out, b_out):
    z = x @ w_in + b_in
    dz = (dy @ w_out.T) * (z > 0)
    dw_out = z.relu().T @ dy
    return dz @ w_in.T, x.T @ dz, dz.mean(0), dw_out, dy.mean(0)


@wrong("feedforward/backward", "dw_out_from_z")
def backward_from_before_the_bend(dy, x, w_in, b_in, w_out, b_out):
    z = x @ w_in + b_in
    dz = (dy @ w_out.T) * (z > 0)
    return dz @ w_in.T, x.T @ dz, dz.sum(0), z.T @ dy, dy.sum(0)


@wrong("feedforward/backward", "times_h")
def backward_times_h(dy, x, w_in, b_in, w_out, b_out):
    h = (x @ w_in + b_in).relu()
    dz = (dy @ w_out.T) * h
    return dz @ w_in.T, x.T @ dz, dz.sum(0), h.T @ dy, dy.sum(0)


@wrong("feedforward/backward", "not_summed")
def backward_biases_not_summed(dy, x, w_in, b_in, w_out, b_out):
    z = x @ w_in + b_in
    dz = (dy @ w_out.T) * (z > 0)
    return dz @ w_in.T, x.T @ dz, dz, z.relu().T @ dy, dy


@wrong("feedforward/backward")
def order_of_weights_first(dy, x, w_in, b_in, w_out, b_out):
    dx, dw_in, db_in, dw_out, db_out = slopes(dy, x, w_in, b_in, w_out, b_out)
    return dx, dw_in, dw_out, db_in, db_out


@wrong("feedforward/backward")
def all_averaged(dy, x, w_in, b_in, w_out, b_out):
    dx, *rest = slopes(dy, x, w_in, b_in, w_out, b_out)
    return dx, *(g / len(x) for g in rest)


def backward_with(dy, x, w_in, b_in, w_out, dz, h):
    return dz @ w_in.T, x.T @ dz, dz.sum(0), h.T @ dy, dy.sum(0)


@wrong("feedforward/backward")
def slope_of_x(dy, x, w_in, b_in, w_out, b_out):
    z = x @ w_in + b_in
    dz = dy @ w_out.T * (x @ w_in > 0)
    return backward_with(dy, x, w_in, b_in, w_out, dz, F.relu(z))


# -- edit --------------------------------------------------------------------


@right("feedforward/edit")
def edit_by_pinv(x, right, w_in, b_in, w_out, b_out):
    h = (x @ w_in + b_in).relu().reshape(1, -1)
    missing = right.reshape(1, -1) - (h @ w_out + b_out)
    return w_out + torch.linalg.pinv(h) @ missing


def now(x, w_in, b_in, w_out, b_out):
    h = F.relu(x @ w_in + b_in)
    return h, h @ w_out + b_out


@right("feedforward/edit")
def pseudo_inverse(x, right, w_in, b_in, w_out, b_out):
    h, wrong = now(x, w_in, b_in, w_out, b_out)
    return w_out + torch.linalg.pinv(h[None]) @ (right - wrong)[None]


@right("feedforward/edit")
def projected(x, right, w_in, b_in, w_out, b_out):
    # Forget what is written along h, then write what should be there.
    h, _ = now(x, w_in, b_in, w_out, b_out)
    unit = h / h.norm()
    kept = w_out - unit[:, None] * (unit @ w_out)
    return kept + unit[:, None] * (right - b_out) / h.norm()


@right("feedforward/edit")
def row_by_row(x, right, w_in, b_in, w_out, b_out):
    h, wrong = now(x, w_in, b_in, w_out, b_out)
    new = w_out.clone()
    for i, share in enumerate(h / h.square().sum()):
        new[i] += share * (right - wrong)
    return new


@wrong("feedforward/edit", "not_divided")
def edit_not_divided(x, right, w_in, b_in, w_out, b_out):
    h = (x @ w_in + b_in).relu()
    return w_out + torch.outer(h, right - (h @ w_out + b_out))


@wrong("feedforward/edit", "length")
def edit_by_length(x, right, w_in, b_in, w_out, b_out):
    h = (x @ w_in + b_in).relu()
    return w_out + torch.outer(h, right - h @ w_out - b_out) / h.norm()


@wrong("feedforward/edit", "no_b_out")
def edit_without_bias(x, right, w_in, b_in, w_out, b_out):
    h = (x @ w_in + b_in).relu()
    return w_out + torch.outer(h, right - h @ w_out) / (h @ h)


@wrong("feedforward/edit", "reversed")
def reversed_(x, right, w_in, b_in, w_out, b_out):
    h, wrong = now(x, w_in, b_in, w_out, b_out)
    return w_out - h[:, None] * (right - wrong) / (h**2).sum()


@wrong("feedforward/edit")
def unbent(x, right, w_in, b_in, w_out, b_out):
    h = x @ w_in + b_in
    wrong = h @ w_out + b_out
    return w_out + h[:, None] * (right - wrong) / h.dot(h)


# Uses the units before the bend, so silent ones change too.
@wrong("feedforward/edit")
def edit_before_the_bend(x, right, w_in, b_in, w_out, b_out):
    z = x @ w_in + b_in
    wrong_answer = z.relu() @ w_out + b_out
    return w_out + torch.outer(z, right - wrong_answer) / (z @ z)


# Changes the strongest unit's row only: right at x, but not the nearest.
@wrong("feedforward/edit")
def edit_strongest_unit(x, right, w_in, b_in, w_out, b_out):
    h = (x @ w_in + b_in).relu()
    strongest = int(h.argmax())
    edited = w_out.clone()
    edited[strongest] += (right - (h @ w_out + b_out)) / h[strongest]
    return edited
