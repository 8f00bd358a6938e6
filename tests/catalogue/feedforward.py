"""Answers to the exercises of chapter 8, as people write them."""

import math

import torch
from torch.nn import functional as F  # noqa: N812


# -- feed_forward: right -----------------------------------------------------
def with_clamp(x, w_in, b_in, w_out, b_out):
    h = torch.clamp(torch.matmul(x, w_in) + b_in, min=0)
    return torch.matmul(h, w_out) + b_out


def unit_by_unit(x, w_in, b_in, w_out, b_out):
    # A memory: each unit writes its row as strongly as it fires.
    y = b_out.expand(x.shape).clone()
    for key, bias, value in zip(w_in.T, b_in, w_out, strict=True):
        fires = (x * key).sum(-1, keepdim=True) + bias
        y = y + fires * (fires > 0) * value
    return y


def with_einsum(x, w_in, b_in, w_out, b_out):
    z = torch.einsum("...i,ij->...j", x, w_in) + b_in
    return torch.einsum("...j,ji->...i", (z + z.abs()) / 2, w_out) + b_out


# -- feed_forward: wrong -----------------------------------------------------
def no_bend(x, w_in, b_in, w_out, b_out):
    return x @ (w_in @ w_out) + b_in @ w_out + b_out


def early_bend(x, w_in, b_in, w_out, b_out):
    h = F.relu(torch.matmul(x, w_in))
    h = h + b_in
    return torch.matmul(h, w_out) + b_out


def gelu(x, w_in, b_in, w_out, b_out):
    z = x @ w_in + b_in
    h = z * 0.5 * (1 + torch.erf(z / math.sqrt(2)))
    return h @ w_out + b_out


def bend_at_the_end(x, w_in, b_in, w_out, b_out):
    return ((x @ w_in + b_in) @ w_out + b_out).clamp(min=0)


def end_bend(x, w_in, b_in, w_out, b_out):
    for w, b in ((w_in, b_in), (w_out, b_out)):
        x = torch.relu(x @ w + b)
    return x


# -- feed_forward: mistakes that the catalogue does not have -----------------
def columns(x, w_in, b_in, w_out, b_out):
    return w_out.T @ (w_in.T @ x + b_in).relu() + b_out


def other_half(x, w_in, b_in, w_out, b_out):
    return torch.clamp(x @ w_in + b_in, max=0) @ w_out + b_out


def absolute_value(x, w_in, b_in, w_out, b_out):
    return (x @ w_in + b_in).abs() @ w_out + b_out


# -- count -------------------------------------------------------------------
def by_layers(d_model, d_ff):
    def layer(a, b):
        return (a + 1) * b  # the bias is a row more

    network = layer(d_model, d_ff) + layer(d_ff, d_model)
    return 4 * layer(d_model, d_model), network


def by_pytorch(d_model, d_ff):
    def size(*layers):
        return sum(p.numel() for layer in layers for p in layer.parameters())

    linear = torch.nn.Linear
    attention = size(*(linear(d_model, d_model) for _ in range(4)))
    return attention, size(linear(d_model, d_ff), linear(d_ff, d_model))


def factored(d_model, d_ff):
    return [4 * d_model * (d_model + 1), d_ff * (2 * d_model + 1) + d_model]


def no_biases(d_model, d_ff):
    return 4 * d_model**2, 2 * d_model * d_ff


def four_d(d_model, d_ff):
    return by_layers(d_model, 4 * d_model)


def d_ff_twice(d_model, d_ff):
    return 4 * d_model * (d_model + 1), 2 * d_model * d_ff + 2 * d_ff


def summed(d_model, d_ff):
    attention, network = by_layers(d_model, d_ff)
    return attention, attention + network


def fused(d_model, d_ff):
    attention, network = by_layers(d_model, d_ff)
    return attention - 3 * d_model, network  # one bias for four matrices


# -- is_affine: right --------------------------------------------------------
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


def one_by_one(function, size):
    def g(x):
        return function(x) - function(torch.zeros(size, dtype=torch.float64))

    for n in range(150):
        a, b = torch.randn(2, size, dtype=torch.float64) * 10 ** (n % 4 - 1)
        gap = torch.linalg.norm(g(a + b) - g(a) - g(b))
        if gap > 1e-8 * (g(a).norm() + g(b).norm()):
            return False
    return True


# -- is_affine: wrong --------------------------------------------------------
def draws(size, scales=(0.1, 1.0, 10.0, 100.0)):
    for scale in scales:
        yield scale * torch.randn(2, 300, size, dtype=torch.float64)


def alike(p, q):
    return torch.allclose(p, q, rtol=1e-6, atol=1e-6 * q.abs().max().item())


def no_offset(function, size):
    return all(
        alike(function(a + b), function(a) + function(b))
        for a, b in draws(size)
    )


def rays(function, size):
    def g(x):
        return function(x) - function(0 * x)

    return all(alike(g(-a.abs() * 5), 5 * g(-a.abs())) for a, _ in draws(size))


def near_zero(function, size):
    ((a, b),) = draws(size, [1.0])
    return alike(function(a + b) + function(0 * a), function(a) + function(b))


def exact(function, size):
    return all(
        torch.equal(
            function(a + b) + function(0 * a), function(a) + function(b)
        )
        for a, b in draws(size)
    )


def absolute(function, size):
    def defect(a, b):
        g = function
        return (g(a + b) - g(a) - g(b) + g(0 * a)).abs().max().item()

    return all(defect(a, b) < 1e-9 for a, b in draws(size))


# -- is_affine: mistakes that the catalogue does not have --------------------
def close_to_zero(function, size):
    a, b = torch.randn(2, 10, size, dtype=torch.float64) * 1e-5
    return alike(function(a + b) + function(0 * a), function(a) + function(b))


def other_way_round(function, size):
    return not through_a_point(function, size)


def zero_at_zero(function, size):
    return not function(torch.zeros(size, dtype=torch.float64)).any()


# -- mended ------------------------------------------------------------------
def late_bend(x, w_in, b_in, w_out, b_out):
    hidden = x @ w_in + b_in
    return (hidden @ w_out + b_out).relu()


def mended_no_bend(x, w_in, b_in, w_out, b_out):
    hidden = x @ w_in + b_in
    return hidden @ w_out + b_out


def over_units(x, w_in, b_in, w_out, b_out):
    hidden = x @ w_in + b_in
    hidden = F.normalize(hidden, p=float("inf"), dim=-1)
    return F.relu(hidden) @ w_out + b_out


def over_units_after(x, w_in, b_in, w_out, b_out):
    hidden = (x @ w_in + b_in).relu()
    return F.normalize(hidden, dim=-1) @ w_out + b_out


def over_the_sentence(x, w_in, b_in, w_out, b_out):
    hidden = (x @ w_in + b_in).relu()
    return hidden / hidden.amax(dim=(-2, -1), keepdim=True) @ w_out + b_out


# -- backward: right ---------------------------------------------------------
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


# -- backward: wrong ---------------------------------------------------------
def backward_with(dy, x, w_in, b_in, w_out, dz, h):
    return dz @ w_in.T, x.T @ dz, dz.sum(0), h.T @ dy, dy.sum(0)


def slope_forgotten(dy, x, w_in, b_in, w_out, b_out):
    h = F.relu(x @ w_in + b_in)
    return backward_with(dy, x, w_in, b_in, w_out, dy @ w_out.T, h)


def dw_out_from_z(dy, x, w_in, b_in, w_out, b_out):
    dx, dw_in, db_in, _, db_out = slopes(dy, x, w_in, b_in, w_out, b_out)
    return dx, dw_in, db_in, (x @ w_in + b_in).T @ dy, db_out


def averaged(dy, x, w_in, b_in, w_out, b_out):
    dx, dw_in, db_in, dw_out, db_out = indices(dy, x, w_in, b_in, w_out, b_out)
    return dx, dw_in, db_in / len(x), dw_out, db_out / len(x)


def not_summed(dy, x, w_in, b_in, w_out, b_out):
    z = x @ w_in + b_in
    dz = dy @ w_out.T * (z > 0).double()
    return dz @ w_in.T, x.T @ dz, dz, F.relu(z).T @ dy, dy


# -- backward: mistakes that the catalogue does not have ---------------------
def slope_of_x(dy, x, w_in, b_in, w_out, b_out):
    z = x @ w_in + b_in
    dz = dy @ w_out.T * (x @ w_in > 0)
    return backward_with(dy, x, w_in, b_in, w_out, dz, F.relu(z))


def order_of_weights_first(dy, x, w_in, b_in, w_out, b_out):
    dx, dw_in, db_in, dw_out, db_out = slopes(dy, x, w_in, b_in, w_out, b_out)
    return dx, dw_in, dw_out, db_in, db_out


def all_averaged(dy, x, w_in, b_in, w_out, b_out):
    dx, *rest = slopes(dy, x, w_in, b_in, w_out, b_out)
    return dx, *(g / len(x) for g in rest)


# -- edit: right -------------------------------------------------------------
def now(x, w_in, b_in, w_out, b_out):
    h = F.relu(x @ w_in + b_in)
    return h, h @ w_out + b_out


def pseudo_inverse(x, right, w_in, b_in, w_out, b_out):
    h, wrong = now(x, w_in, b_in, w_out, b_out)
    return w_out + torch.linalg.pinv(h[None]) @ (right - wrong)[None]


def projected(x, right, w_in, b_in, w_out, b_out):
    # Forget what is written along h, then write what should be there.
    h, _ = now(x, w_in, b_in, w_out, b_out)
    unit = h / h.norm()
    kept = w_out - unit[:, None] * (unit @ w_out)
    return kept + unit[:, None] * (right - b_out) / h.norm()


def row_by_row(x, right, w_in, b_in, w_out, b_out):
    h, wrong = now(x, w_in, b_in, w_out, b_out)
    new = w_out.clone()
    for i, share in enumerate(h / h.square().sum()):
        new[i] += share * (right - wrong)
    return new


# -- edit: wrong -------------------------------------------------------------
def unbent(x, right, w_in, b_in, w_out, b_out):
    h = x @ w_in + b_in
    wrong = h @ w_out + b_out
    return w_out + h[:, None] * (right - wrong) / h.dot(h)


def length(x, right, w_in, b_in, w_out, b_out):
    h, wrong = now(x, w_in, b_in, w_out, b_out)
    return w_out + F.normalize(h, dim=0)[:, None] * (right - wrong)


def not_divided(x, right, w_in, b_in, w_out, b_out):
    h, wrong = now(x, w_in, b_in, w_out, b_out)
    return w_out + h[:, None] @ (right - wrong)[None, :]


def reversed_(x, right, w_in, b_in, w_out, b_out):
    h, wrong = now(x, w_in, b_in, w_out, b_out)
    return w_out - h[:, None] * (right - wrong) / (h**2).sum()


def no_b_out(x, right, w_in, b_in, w_out, b_out):
    h, _ = now(x, w_in, b_in, w_out, b_out)
    return w_out + torch.outer(h, right - h @ w_out) / torch.sum(h * h)


# -- edit: mistakes that the catalogue does not have -------------------------
def loudest_unit(x, right, w_in, b_in, w_out, b_out):
    # Answers x, but is not the nearest, and others are answered again.
    h, wrong = now(x, w_in, b_in, w_out, b_out)
    new, i = w_out.clone(), h.argmax()
    new[i] += (right - wrong) / h[i]
    return new


def every_unit(x, right, w_in, b_in, w_out, b_out):
    h, wrong = now(x, w_in, b_in, w_out, b_out)
    return w_out + (right - wrong) / h.sum()


def half_of_it(x, right, w_in, b_in, w_out, b_out):
    return (pseudo_inverse(x, right, w_in, b_in, w_out, b_out) + w_out) / 2


def after_bend(x, w_in, b_in, w_out, b_out):
    h = torch.relu(x @ w_in + b_in)
    return h / h.max(-2, keepdim=True).values.clamp(min=1e-9) @ w_out + b_out


def times_h(dy, x, w_in, b_in, w_out, b_out):
    h = (x @ w_in + b_in).clamp(min=0)
    dz = dy @ w_out.mT * h
    return dz @ w_in.mT, x.mT @ dz, dz.sum(0), h.mT @ dy, dy.sum(0)


def second_bias_left_out(d_model, d_ff):
    return 4 * d_model * (d_model + 1), d_ff * (2 * d_model + 1)


RIGHT = {
    "feed_forward": [with_clamp, unit_by_unit, with_einsum],
    "count": [by_layers, by_pytorch, factored],
    "is_affine": [through_a_point, fitted, one_by_one],
    "mended": [with_einsum, with_clamp, unit_by_unit],
    "backward": [token_by_token, slopes, indices],
    "edit": [pseudo_inverse, projected, row_by_row],
}
WRONG = {
    "feed_forward": {
        "no_bend": no_bend,
        "late_bend": bend_at_the_end,
        "early_bend": early_bend,
        "gelu": gelu,
        "end_bend": end_bend,
    },
    "count": {
        "no_biases": no_biases,
        "four_d": four_d,
        "wide_biases": d_ff_twice,
    },
    "is_affine": {
        "no_offset": no_offset,
        "exact": exact,
    },
    "mended": {
        "over_units": over_units,
        "late_bend": late_bend,
        "no_bend": mended_no_bend,
        "after_bend": after_bend,
    },
    "backward": {
        "slope_forgotten": slope_forgotten,
        "dw_out_from_z": dw_out_from_z,
        "averaged": averaged,
        "not_summed": not_summed,
        "times_h": times_h,
    },
    "edit": {
        "length": length,
        "not_divided": not_divided,
        "reversed": reversed_,
        "no_b_out": no_b_out,
    },
}
OUTSIDE = {
    "feed_forward": [columns, other_half, absolute_value],
    "count": [summed, fused, second_bias_left_out],
    "is_affine": [
        close_to_zero,
        other_way_round,
        zero_at_zero,
        absolute,
        rays,
        near_zero,
    ],
    "mended": [over_units_after, over_the_sentence, absolute_value],
    "backward": [slope_of_x, order_of_weights_first, all_averaged],
    "edit": [half_of_it, loudest_unit, every_unit, unbent],
}
