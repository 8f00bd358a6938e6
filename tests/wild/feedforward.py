"""Answers to chapter 8, written from its page alone."""

# ruff: noqa: B905

import torch
from torch import nn

from tests.wild import right, wrong

# feedforward/feed_forward


@right("feedforward/feed_forward", "a memory: one inner unit after the other")
def network_unit_by_unit(x, w_in, b_in, w_out, b_out):
    y = b_out
    for key, bias, value in zip(w_in.T, b_in, w_out):
        z = (x * key).sum(-1, keepdim=True) + bias
        y = y + torch.where(z > 0, z, torch.zeros_like(z)) * value
    return y


@right("feedforward/feed_forward", "the bend as half of z plus its size")
def network_with_abs(x, w_in, b_in, w_out, b_out):
    z = torch.einsum("...d,df->...f", x, w_in) + b_in
    return torch.einsum("...f,fd->...d", 0.5 * (z + abs(z)), w_out) + b_out


@wrong("feedforward/feed_forward", "no bend at all", classic=True)
def network_without_bend(x, w_in, b_in, w_out, b_out):
    return (x @ w_in + b_in) @ w_out + b_out


@wrong("feedforward/feed_forward", "the bend at the end", classic=True)
def network_bent_at_the_end(x, w_in, b_in, w_out, b_out):
    return ((x @ w_in + b_in) @ w_out + b_out).relu()


@wrong("feedforward/feed_forward", "a second bend at the end", classic=True)
def network_bent_twice(x, w_in, b_in, w_out, b_out):
    return ((x @ w_in + b_in).relu() @ w_out + b_out).relu()


@wrong("feedforward/feed_forward", "bends before the bias", classic=True)
def network_bias_late(x, w_in, b_in, w_out, b_out):
    return ((x @ w_in).relu() + b_in) @ w_out + b_out


@wrong("feedforward/feed_forward", "GELU in place of ReLU", classic=False)
def network_gelu(x, w_in, b_in, w_out, b_out):
    return nn.functional.gelu(x @ w_in + b_in) @ w_out + b_out


# feedforward/count


@right("feedforward/count", "makes the layers and lets PyTorch count")
def count_by_making(d_model, d_ff):
    def size(*shapes):
        layers = nn.ModuleList(
            nn.Linear(a, b, device="meta") for a, b in shapes
        )
        return sum(p.numel() for p in layers.parameters())

    square = (d_model, d_model)
    network = size((d_model, d_ff), (d_ff, d_model))
    return size(square, square, square, square), network


@wrong("feedforward/count", "forgets the biases", classic=True)
def count_without_biases(d_model, d_ff):
    return 4 * d_model**2, 2 * d_model * d_ff


@wrong(
    "feedforward/count",
    "both biases of the network have d_ff entries",
    classic=True,
)
def count_wide_biases(d_model, d_ff):
    return 4 * (d_model**2 + d_model), 2 * (d_model * d_ff + d_ff)


@wrong(
    "feedforward/count",
    "takes the network to be four times as wide, whatever d_ff is",
    classic=True,
)
def count_four_times(d_model, d_ff):
    wide = 4 * d_model
    network = 2 * d_model * wide + wide + d_model
    return 4 * d_model**2 + 4 * d_model, network


@wrong("feedforward/count", "one number: the whole block", classic=False)
def count_together(d_model, d_ff):
    attention = 4 * (d_model * d_model + d_model)
    return attention + d_model * d_ff + d_ff + d_ff * d_model + d_model


# feedforward/is_affine


@right("feedforward/is_affine", "reads off matrix and bias, then compares")
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


@wrong(
    "feedforward/is_affine",
    "forgets the value at 0, so a bias is taken for a bend",
    classic=True,
)
def affine_without_bias(function, size):
    for scale in (1, 100, 10_000):
        for _ in range(100):
            a, b = scale * torch.randn(2, size, dtype=torch.float64)
            defect = function(a + b) - function(a) - function(b)
            if defect.abs().max() > 1e-9 * scale * size:
                return False
    return True


@wrong(
    "feedforward/is_affine",
    "one pair of small vectors, which a rare bend escapes",
    classic=True,
)
def affine_one_pair(function, size):
    a, b = 0.1 * torch.randn(2, size, dtype=torch.float64)
    zero = torch.zeros(size, dtype=torch.float64)
    defect = function(a + b) - function(a) - function(b) + function(zero)
    return bool(defect.abs().max() < 1e-9)


@wrong(
    "feedforward/is_affine",
    "asks for a defect of exactly 0, though an affine map is rounded",
    classic=True,
)
def affine_exactly(function, size):
    zero = torch.zeros(size, dtype=torch.float64)
    for scale in (1, 1000):
        for _ in range(100):
            a, b = scale * torch.randn(2, size, dtype=torch.float64)
            defect = function(a + b) - function(a) - function(b)
            if (defect + function(zero) != 0).any():
                return False
    return True


@wrong(
    "feedforward/is_affine",
    "tries small vectors of positive numbers only",
    classic=False,
)
def affine_positive(function, size):
    zero = torch.zeros(size, dtype=torch.float64)
    for _ in range(200):
        a, b = 0.01 * torch.rand(2, size, dtype=torch.float64)
        defect = function(a + b) - function(a) - function(b)
        if (defect + function(zero)).abs().max() > 1e-9:
            return False
    return True


# feedforward/mended


@right("feedforward/mended", "one token at a time, on purpose")
def mended_token_by_token(x, w_in, b_in, w_out, b_out):
    tokens = x.reshape(-1, x.size(-1))
    rows = [(t @ w_in + b_in).clamp(min=0) @ w_out + b_out for t in tokens]
    return torch.stack(rows).reshape(*x.shape[:-1], w_out.size(1))


@wrong(
    "feedforward/mended",
    "the bend is in its place, but tokens are still divided by the largest",
    classic=True,
)
def mended_tokens_still_meet(x, w_in, b_in, w_out, b_out):
    hidden = (x @ w_in + b_in).relu()
    hidden = hidden / hidden.abs().amax(dim=-2, keepdim=True).clamp(1e-9)
    return hidden @ w_out + b_out


@wrong(
    "feedforward/mended",
    "divides each token by its own largest number instead of not at all",
    classic=True,
)
def mended_other_axis(x, w_in, b_in, w_out, b_out):
    hidden = (x @ w_in + b_in).relu()
    hidden = hidden / hidden.abs().amax(dim=-1, keepdim=True)
    return hidden @ w_out + b_out


@wrong(
    "feedforward/mended",
    "takes the last bend away and puts none between the layers",
    classic=True,
)
def mended_without_bend(x, w_in, b_in, w_out, b_out):
    return (x @ w_in + b_in) @ w_out + b_out


# feedforward/backward


@right("feedforward/backward", "adds up outer products, token by token")
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


@wrong("feedforward/backward", "the bend is forgotten", classic=True)
def backward_without_bend(dy, x, w_in, b_in, w_out, b_out):
    h = (x @ w_in + b_in).relu()
    dz = dy @ w_out.T
    return dz @ w_in.T, x.T @ dz, dz.sum(0), h.T @ dy, dy.sum(0)


@wrong(
    "feedforward/backward",
    "the biases' gradients are means over the rows",
    classic=True,
)
def backward_mean_biases(dy, x, w_in, b_in, w_out, b_out):
    z = x @ w_in + b_in
    dz = (dy @ w_out.T) * (z > 0)
    dw_out = z.relu().T @ dy
    return dz @ w_in.T, x.T @ dz, dz.mean(0), dw_out, dy.mean(0)


@wrong(
    "feedforward/backward",
    "w_out gets its gradient from the numbers before the bend",
    classic=True,
)
def backward_from_before_the_bend(dy, x, w_in, b_in, w_out, b_out):
    z = x @ w_in + b_in
    dz = (dy @ w_out.T) * (z > 0)
    return dz @ w_in.T, x.T @ dz, dz.sum(0), z.T @ dy, dy.sum(0)


@wrong(
    "feedforward/backward",
    "multiplies by the inner units, not by 1 where they are on",
    classic=True,
)
def backward_times_h(dy, x, w_in, b_in, w_out, b_out):
    h = (x @ w_in + b_in).relu()
    dz = (dy @ w_out.T) * h
    return dz @ w_in.T, x.T @ dz, dz.sum(0), h.T @ dy, dy.sum(0)


@wrong(
    "feedforward/backward",
    "the biases stay as rows, one for each token",
    classic=False,
)
def backward_biases_not_summed(dy, x, w_in, b_in, w_out, b_out):
    z = x @ w_in + b_in
    dz = (dy @ w_out.T) * (z > 0)
    return dz @ w_in.T, x.T @ dz, dz, z.relu().T @ dy, dy


# feedforward/edit


@right("feedforward/edit", "the pseudo-inverse of one row")
def edit_by_pinv(x, right, w_in, b_in, w_out, b_out):
    h = (x @ w_in + b_in).relu().reshape(1, -1)
    missing = right.reshape(1, -1) - (h @ w_out + b_out)
    return w_out + torch.linalg.pinv(h) @ missing


@wrong(
    "feedforward/edit",
    "not divided by the square of the inner units' length",
    classic=True,
)
def edit_not_divided(x, right, w_in, b_in, w_out, b_out):
    h = (x @ w_in + b_in).relu()
    return w_out + torch.outer(h, right - (h @ w_out + b_out))


@wrong(
    "feedforward/edit",
    "divided by the length, not by its square",
    classic=True,
)
def edit_by_length(x, right, w_in, b_in, w_out, b_out):
    h = (x @ w_in + b_in).relu()
    return w_out + torch.outer(h, right - h @ w_out - b_out) / h.norm()


@wrong("feedforward/edit", "forgets b_out in the wrong answer", classic=True)
def edit_without_bias(x, right, w_in, b_in, w_out, b_out):
    h = (x @ w_in + b_in).relu()
    return w_out + torch.outer(h, right - h @ w_out) / (h @ h)


@wrong(
    "feedforward/edit",
    "changes the strongest unit's row only: right at x, but not the nearest",
    classic=False,
)
def edit_strongest_unit(x, right, w_in, b_in, w_out, b_out):
    h = (x @ w_in + b_in).relu()
    strongest = int(h.argmax())
    edited = w_out.clone()
    edited[strongest] += (right - (h @ w_out + b_out)) / h[strongest]
    return edited


@wrong(
    "feedforward/edit",
    "uses the units before the bend, so silent ones change too",
    classic=True,
)
def edit_before_the_bend(x, right, w_in, b_in, w_out, b_out):
    z = x @ w_in + b_in
    wrong_answer = z.relu() @ w_out + b_out
    return w_out + torch.outer(z, right - wrong_answer) / (z @ z)
