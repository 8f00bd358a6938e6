"""Answers to chapter 7, written from its page alone."""

# ruff: noqa: B905, N812

import torch
from torch import nn
from torch.nn import functional as F

from coursekit.block import Block
from coursekit.config import GPTConfig
from tests.wild import right, wrong

# norm/norms


@right("norm/norms", "row by row, with dot products")
def norms_row_by_row(x, weight, bias, eps):
    layer, rms = [], []
    for row in x.reshape(-1, x.size(-1)):
        centered = row - row.sum() / len(row)
        sigma = (centered @ centered / len(row) + eps) ** 0.5
        layer.append(centered / sigma * weight + bias)
        rms.append(row / (row @ row / len(row) + eps) ** 0.5 * weight)
    return (
        torch.stack(layer).reshape(x.shape),
        torch.stack(rms).reshape(x.shape),
    )


@right("norm/norms", "centers with a matrix, and uses one function twice")
def norms_by_projection(x, weight, bias, eps):
    d = x.size(-1)

    def to_size(y):
        return y * (y.pow(2).mean(-1, True) + eps).pow(-0.5) * weight

    center = torch.eye(d, dtype=x.dtype) - 1 / d
    return to_size(x @ center) + bias, to_size(x)


@wrong("norm/norms", "the variance is divided by D - 1", classic=True)
def norms_unbiased(x, weight, bias, eps):
    centered = x - x.mean(-1, keepdim=True)
    variance = x.var(-1, keepdim=True)
    rms = (x.square().mean(-1, keepdim=True) + eps).sqrt()
    return (
        centered / (variance + eps).sqrt() * weight + bias,
        x / rms * weight,
    )


@wrong("norm/norms", "eps stands outside the root", classic=True)
def norms_eps_outside(x, weight, bias, eps):
    centered = x - x.mean(-1, keepdim=True)
    std = centered.square().mean(-1, keepdim=True).sqrt()
    rms = x.square().mean(-1, keepdim=True).sqrt()
    return centered / (std + eps) * weight + bias, x / (rms + eps) * weight


@wrong("norm/norms", "no eps at all", classic=True)
def norms_without_eps(x, weight, bias, eps):
    centered = x - x.mean(-1, keepdim=True)
    std = centered.square().mean(-1, keepdim=True).sqrt()
    rms = x.square().mean(-1, keepdim=True).sqrt()
    return centered / std * weight + bias, x / rms * weight


@wrong("norm/norms", "RMSNorm gets the bias as well", classic=True)
def norms_rms_with_bias(x, weight, bias, eps):
    centered = x - x.mean(-1, keepdim=True)
    variance = centered.square().mean(-1, keepdim=True)
    rms = (x.square().mean(-1, keepdim=True) + eps).sqrt()
    return (
        centered / (variance + eps).sqrt() * weight + bias,
        x / rms * weight + bias,
    )


@wrong(
    "norm/norms",
    "RMSNorm divides by the standard deviation, so the mean is left out of "
    "the size",
    classic=True,
)
def norms_rms_by_variance(x, weight, bias, eps):
    centered = x - x.mean(-1, keepdim=True)
    root = (centered.square().mean(-1, keepdim=True) + eps).sqrt()
    return centered / root * weight + bias, x / root * weight


@wrong(
    "norm/norms",
    "statistics over all tokens together instead of each by itself",
    classic=True,
)
def norms_over_everything(x, weight, bias, eps):
    centered = x - x.mean()
    root = (centered.square().mean() + eps).sqrt()
    rms = (x.square().mean() + eps).sqrt()
    return centered / root * weight + bias, x / rms * weight


@wrong(
    "norm/norms",
    "divides by the variance, without the root",
    classic=True,
)
def norms_without_root(x, weight, bias, eps):
    centered = x - x.mean(-1, keepdim=True)
    variance = centered.square().mean(-1, keepdim=True)
    square = x.square().mean(-1, keepdim=True)
    return (
        centered / (variance + eps) * weight + bias,
        x / (square + eps) * weight,
    )


@wrong("norm/norms", "RMSNorm first, layer norm second", classic=False)
def norms_swapped(x, weight, bias, eps):
    layer, rms = norms_by_projection(x, weight, bias, eps)
    return rms, layer


@wrong(
    "norm/norms",
    "no keepdim: the means meet the features, which needs square inputs",
    classic=True,
)
def norms_without_keepdim(x, weight, bias, eps):
    centered = x - x.mean(-1)
    root = (centered.square().mean(-1) + eps).sqrt()
    rms = (x.square().mean(-1) + eps).sqrt()
    return centered / root * weight + bias, x / rms * weight


# norm/places


@right("norm/places", "chooses two functions before it adds")
def places_with_two_functions(x, part, norm, norm_first):
    def nothing(y):
        return y

    before, after = (norm, nothing) if norm_first else (nothing, norm)
    return after(torch.add(x, part(before(x))))


@wrong(
    "norm/places",
    "pre-norm is mended, post-norm still norms the part alone",
    classic=True,
)
def places_only_first_branch(x, part, norm, norm_first):
    if norm_first:
        return x + part(norm(x))
    return x + norm(part(x))


@wrong(
    "norm/places",
    "post-norm is mended, pre-norm still adds the normed vector",
    classic=True,
)
def places_only_second_branch(x, part, norm, norm_first):
    if norm_first:
        x = norm(x)
        return x + part(x)
    return norm(x + part(x))


@wrong("norm/places", "the two branches change places", classic=True)
def places_swapped(x, part, norm, norm_first):
    if not norm_first:
        return x + part(norm(x))
    return norm(x + part(x))


@wrong(
    "norm/places",
    "nothing is returned in the post-norm branch",
    classic=False,
)
def places_none(x, part, norm, norm_first):
    y = part(norm(x)) if norm_first else part(x)
    y = x + y
    if norm_first:
        return y
    y = norm(y)


# norm/probe


@right("norm/probe", "replaces the whole rest of the sentence each time")
@torch.no_grad()
def probe_new_endings(norm):
    g = torch.Generator().manual_seed(5)
    for _ in range(5):
        x, other = torch.randn(2, 3, 9, 12, generator=g, dtype=torch.float64)
        before = norm(x.clone())[0]
        for t in range(1, 9):
            changed = x.clone()
            changed[0, t:] = 3 * other[0, t:] + 1
            after = norm(changed)[0]
            if (after[:t] - before[:t]).abs().max() > 1e-9:
                return True
    return False


@wrong("norm/probe", "changes the last token only", classic=True)
@torch.no_grad()
def probe_last_token(norm):
    x = torch.randn(2, 6, 8, dtype=torch.float64)
    other = x.clone()
    other[:, -1] = torch.randn(8, dtype=torch.float64)
    change = (norm(x) - norm(other))[:, :-1].abs().max()
    # A norm in which token 0 peeks at token 1 alone passes.
    return bool(change > 1e-9)


@wrong(
    "norm/probe",
    "the changed token counts as one that knows",
    classic=True,
)
@torch.no_grad()
def probe_with_itself(norm):
    x = torch.randn(2, 6, 8, dtype=torch.float64)
    before = norm(x.clone())
    for t in range(1, 6):
        other = x.clone()
        other[0, t] = torch.randn(8, dtype=torch.float64)
        change = (norm(other) - before)[0, : t + 1]
        if change.abs().max() > 1e-9:
            return True
    return False


@wrong(
    "norm/probe",
    "any other token that moves counts, earlier or later, so a norm that "
    "looks back is accused",
    classic=True,
)
@torch.no_grad()
def probe_any_other(norm):
    x = torch.randn(2, 6, 8, dtype=torch.float64)
    before = norm(x.clone())
    for t in range(6):
        other = x.clone()
        other[0, t] = torch.randn(8, dtype=torch.float64)
        change = (norm(other) - before)[0].abs().amax(-1)
        change[t] = 0
        if change.max() > 1e-9:
            return True
    return False


@wrong("norm/probe", "True if all is well, False if it leaks", classic=False)
@torch.no_grad()
def probe_inverted(norm):
    return not probe_new_endings(norm)


# norm/fold


@right("norm/fold", "two loops over the matrix")
def fold_in_loops(gamma, beta, w, b):
    n_in, n_out = w.shape
    new_w, new_b = torch.zeros_like(w), torch.zeros_like(b)
    for j in range(n_out):
        column = [gamma[i] * w[i, j] for i in range(n_in)]
        mean = sum(column) / n_in
        for i in range(n_in):
            new_w[i, j] = column[i] - mean
        new_b[j] = b[j] + sum(beta[i] * w[i, j] for i in range(n_in))
    return new_w, new_b


@right("norm/fold", "with the matrices of the hints, written out")
def fold_with_matrices(gamma, beta, w, b):
    d = len(gamma)
    one = torch.ones(d, 1, dtype=w.dtype)
    center = torch.eye(d, dtype=w.dtype) - one @ one.T / d
    return center @ torch.diag(gamma) @ w, torch.mv(w.T, beta) + b


@wrong("norm/fold", "no centering", classic=True)
def fold_uncentered(gamma, beta, w, b):
    return gamma[:, None] * w, beta @ w + b


@wrong(
    "norm/fold",
    "centers the matrix first and scales its rows afterwards",
    classic=True,
)
def fold_wrong_order(gamma, beta, w, b):
    return gamma[:, None] * (w - w.mean(0)), beta @ w + b


@wrong(
    "norm/fold",
    "takes the mean out of each row instead of each column",
    classic=True,
)
def fold_centers_rows(gamma, beta, w, b):
    scaled = gamma[:, None] * w
    return scaled - scaled.mean(1, keepdim=True), beta @ w + b


@wrong("norm/fold", "beta is forgotten", classic=True)
def fold_without_beta(gamma, beta, w, b):
    scaled = gamma[:, None] * w
    return scaled - scaled.mean(0), b


@wrong(
    "norm/fold",
    "beta goes through the new matrix instead of the old one",
    classic=True,
)
def fold_beta_through_the_new(gamma, beta, w, b):
    scaled = gamma[:, None] * w
    new = scaled - scaled.mean(0)
    return new, beta @ new + b


# norm/backward


@right("norm/backward", "each token's Jacobian as a matrix")
def norm_backward_by_jacobian(dy, x, weight, eps):
    d = x.size(-1)
    eye = torch.eye(d, dtype=x.dtype)
    dx, dweight, dbias = [], torch.zeros_like(weight), 0 * weight
    for pull, row in zip(dy.reshape(-1, d), x.reshape(-1, d)):
        c = row - row.mean()
        s = (c @ c / d + eps).sqrt()
        y = c / s
        jacobian = (eye - 1 / d - torch.outer(y, y) / d) / s
        dx.append(jacobian @ (pull * weight))
        dweight = dweight + pull * y
        dbias = dbias + pull
    return torch.stack(dx).reshape(x.shape), dweight, dbias


@right("norm/backward", "sums spelled out with einsum")
def norm_backward_einsum(dy, x, weight, eps):
    d = x.size(-1)
    c = x - x.sum(-1, keepdim=True) / d
    s = torch.sqrt(c.square().sum(-1, keepdim=True) / d + eps)
    y, g = c / s, dy * weight
    along = torch.einsum("...d,...d->...", g, y)[..., None] / d
    dx = (g - g.sum(-1, keepdim=True) / d - along * y) / s
    return (
        dx,
        torch.einsum("nd,nd->d", dy.reshape(-1, d), y.reshape(-1, d)),
        dy.reshape(-1, d).sum(0),
    )


def parts(dy, x, weight, eps):
    c = x - x.mean(-1, keepdim=True)
    s = (c.square().mean(-1, keepdim=True) + eps).sqrt()
    return c / s, s, dy * weight


@wrong(
    "norm/backward",
    "the part along the output is not taken out",
    classic=True,
)
def norm_backward_no_projection(dy, x, weight, eps):
    y, s, g = parts(dy, x, weight, eps)
    dx = (g - g.mean(-1, keepdim=True)) / s
    return dx, (dy * y).flatten(0, -2).sum(0), dy.flatten(0, -2).sum(0)


@wrong("norm/backward", "the mean is not taken out", classic=True)
def norm_backward_no_mean(dy, x, weight, eps):
    y, s, g = parts(dy, x, weight, eps)
    dx = (g - y * (g * y).mean(-1, keepdim=True)) / s
    return dx, (dy * y).flatten(0, -2).sum(0), dy.flatten(0, -2).sum(0)


@wrong("norm/backward", "the weight is left out of dx", classic=True)
def norm_backward_no_weight(dy, x, weight, eps):
    y, s, _ = parts(dy, x, weight, eps)
    inner = (dy * y).mean(-1, keepdim=True)
    dx = (dy - dy.mean(-1, keepdim=True) - y * inner) / s
    return dx, (dy * y).flatten(0, -2).sum(0), dy.flatten(0, -2).sum(0)


@wrong("norm/backward", "dx is not divided by the size", classic=True)
def norm_backward_no_size(dy, x, weight, eps):
    y, _, g = parts(dy, x, weight, eps)
    inner = (g * y).mean(-1, keepdim=True)
    dx = g - g.mean(-1, keepdim=True) - y * inner
    return dx, (dy * y).flatten(0, -2).sum(0), dy.flatten(0, -2).sum(0)


@wrong(
    "norm/backward",
    "the weight's gradient uses x instead of the normalized x",
    classic=True,
)
def norm_backward_raw_x(dy, x, weight, eps):
    dx, _, dbias = norm_backward_einsum(dy, x, weight, eps)
    return dx, (dy * x).flatten(0, -2).sum(0), dbias


@wrong(
    "norm/backward",
    "sums over the first axis only: with a batch, the tokens' axis stays",
    classic=True,
)
def norm_backward_one_axis(dy, x, weight, eps):
    y, _, _ = parts(dy, x, weight, eps)
    dx, _, _ = norm_backward_einsum(dy, x, weight, eps)
    return dx, (dy * y).sum(0), dy.sum(0)


# norm/gradients


def top_gradient(n_blocks, norm_first, seed, *, pull_all=True, which=-1):
    torch.manual_seed(seed)
    config = GPTConfig(vocab_size=1, d_model=32, norm_first=norm_first)
    blocks = nn.ModuleList(Block(config) for _ in range(n_blocks))
    for p in blocks.parameters():
        if p.dim() > 1:
            nn.init.xavier_uniform_(p)
    x, pull = torch.randn(2, 3, 8, 32)
    for block in blocks:
        x = block(x, causal=True)
    if norm_first:
        x = F.layer_norm(x, (32,))
    if pull_all:
        x.backward(pull)
    else:
        x.sum().backward()
    return blocks[which].feed_forward.w_out.weight.grad.norm()


@right("norm/gradients", "one stack for each depth, by a helper")
def gradients_by_a_helper(norm_first, seed):
    found = [top_gradient(n, norm_first, seed) for n in (1, 4, 16)]
    return torch.stack(found)


@wrong(
    "norm/gradients",
    "pulls with the sum of all outputs, which a norm holds constant",
    classic=True,
)
def gradients_of_the_sum(norm_first, seed):
    return torch.stack(
        [top_gradient(n, norm_first, seed, pull_all=False) for n in (1, 4, 16)]
    )


@wrong(
    "norm/gradients",
    "measures the first block instead of the last",
    classic=True,
)
def gradients_of_the_first(norm_first, seed):
    return torch.stack(
        [top_gradient(n, norm_first, seed, which=0) for n in (1, 4, 16)]
    )


@wrong(
    "norm/gradients",
    "pre-norm and post-norm are exchanged",
    classic=False,
)
def gradients_exchanged(norm_first, seed):
    found = [top_gradient(n, not norm_first, seed) for n in (1, 4, 16)]
    return torch.stack(found)
