"""Answers to the exercises of chapter 7."""

import torch
from torch import nn
from torch.nn import functional as F

from coursekit.block import Block
from coursekit.config import GPTConfig
from tests.answers import right, wrong

# -- norms -------------------------------------------------------------------


@right("norm/norms")
def norms_by_var_mean(x, weight, bias, eps):
    var, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    layer = torch.addcmul(bias, (x - mean) * (var + eps).rsqrt(), weight)
    return layer, weight * x / (length**2 / x.shape[-1] + eps) ** 0.5


@right("norm/norms")
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


@right("norm/norms")
def norms_by_projection(x, weight, bias, eps):
    d = x.size(-1)

    def to_size(y):
        return y * (y.pow(2).mean(-1, True) + eps).pow(-0.5) * weight

    center = torch.eye(d, dtype=x.dtype) - 1 / d
    return to_size(x @ center) + bias, to_size(x)


@right("norm/norms")
def by_variance(x, weight, bias, eps):
    spread, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    layer = weight * (x - mean) * torch.rsqrt(spread + eps) + bias
    return layer, weight * x * torch.rsqrt((x**2).mean(-1, keepdim=True) + eps)


@right("norm/norms")
def token_by_token(x, weight, bias, eps):
    d, layer, rms = x.shape[-1], [], []
    for row in x.reshape(-1, d):
        off = row - row.sum() / d
        layer.append(off / (off @ off / d + eps) ** 0.5 * weight + bias)
        rms.append(row / (row @ row / d + eps) ** 0.5 * weight)
    return torch.stack(layer).view(x.shape), torch.stack(rms).view(x.shape)


@right("norm/norms")
def centering_matrix(x, weight, bias, eps):
    # Layer norm is RMSNorm of the centered vector.
    d = x.shape[-1]
    center = torch.eye(d, dtype=x.dtype) - 1 / d

    def rms(z):
        length = torch.linalg.vector_norm(z, dim=-1, keepdim=True)
        root = torch.tensor(eps, dtype=x.dtype).sqrt()
        return z / torch.hypot(length / d**0.5, root)

    return [torch.addcmul(bias, rms(x @ center), weight), rms(x) * weight]


@wrong("norm/norms", "eps_outside")
def norms_epsilon_outside(x, weight, bias, eps):
    centered = x - x.mean(-1, keepdim=True)
    std = centered.square().mean(-1, keepdim=True).sqrt()
    rms = x.square().mean(-1, keepdim=True).sqrt()
    return centered / (std + eps) * weight + bias, x / (rms + eps) * weight


@wrong("norm/norms", "unbiased")
def norms_unbiased(x, weight, bias, eps):
    centered = x - x.mean(-1, keepdim=True)
    variance = x.var(-1, keepdim=True)
    rms = (x.square().mean(-1, keepdim=True) + eps).sqrt()
    return (
        centered / (variance + eps).sqrt() * weight + bias,
        x / rms * weight,
    )


@wrong("norm/norms", "no_eps")
def norms_without_eps(x, weight, bias, eps):
    centered = x - x.mean(-1, keepdim=True)
    std = centered.square().mean(-1, keepdim=True).sqrt()
    rms = x.square().mean(-1, keepdim=True).sqrt()
    return centered / std * weight + bias, x / rms * weight


def both(x, weight, bias, eps, dim):
    mean = torch.mean(x, dim=dim, keepdim=True)
    variance = torch.mean((x - mean) ** 2, dim=dim, keepdim=True)
    square = torch.mean(x * x, dim=dim, keepdim=True)
    layer = weight * (x - mean) / torch.sqrt(variance + eps) + bias
    return layer, weight * x / torch.sqrt(square + eps)


@wrong("norm/norms", "rms_bias")
def rms_bias(x, weight, bias, eps):
    layer, rms = both(x, weight, bias, eps, -1)
    return layer, torch.add(rms, bias)


@wrong("norm/norms", "rms_variance")
def norms_rms_by_variance(x, weight, bias, eps):
    centered = x - x.mean(-1, keepdim=True)
    root = (centered.square().mean(-1, keepdim=True) + eps).sqrt()
    return centered / root * weight + bias, x / root * weight


@wrong("norm/norms", "over_all")
def norms_over_everything(x, weight, bias, eps):
    centered = x - x.mean()
    root = (centered.square().mean() + eps).sqrt()
    rms = (x.square().mean() + eps).sqrt()
    return centered / root * weight + bias, x / rms * weight


@wrong("norm/norms", "no_root")
def norms_without_root(x, weight, bias, eps):
    centered = x - x.mean(-1, keepdim=True)
    variance = centered.square().mean(-1, keepdim=True)
    square = x.square().mean(-1, keepdim=True)
    return (
        centered / (variance + eps) * weight + bias,
        x / (square + eps) * weight,
    )


@wrong("norm/norms", "over_tokens")
def over_tokens(x, weight, bias, eps):
    return both(x, weight, bias, eps, dim=x.ndim - 2)


@wrong("norm/norms", "over_first")
def over_first(x, weight, bias, eps):
    return both(x, weight, bias, eps, dim=0)


@wrong("norm/norms")
def at_least_eps(x, weight, bias, eps):
    std = x.std(-1, keepdim=True, correction=0)
    layer = (x - x.mean(-1, keepdim=True)) / std.clamp(min=eps)
    rms = x / x.pow(2).mean(-1, keepdim=True).sqrt().clamp(min=eps)
    return layer * weight + bias, rms * weight


# RMSNorm first, layer norm second.
@wrong("norm/norms")
def norms_swapped(x, weight, bias, eps):
    layer, rms = norms_by_projection(x, weight, bias, eps)
    return rms, layer


# No keepdim: the means meet the features, which needs square inputs.
@wrong("norm/norms")
def norms_without_keepdim(x, weight, bias, eps):
    centered = x - x.mean(-1)
    root = (centered.square().mean(-1) + eps).sqrt()
    rms = (x.square().mean(-1) + eps).sqrt()
    return centered / root * weight + bias, x / rms * weight


# -- backward ----------------------------------------------------------------


@right("norm/backward")
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


@right("norm/backward")
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


def forward_parts(x, eps):
    c = x - x.mean(-1, keepdim=True)
    s = torch.sqrt(c.pow(2).mean(-1, keepdim=True) + eps)
    return c, s, c / s


@right("norm/backward")
def step_by_step(dy, x, weight, eps):
    # Through the graph: y = c / s, s = √(mean c² + ε), c = x − mean.
    d = x.shape[-1]
    c, s, y = forward_parts(x, eps)
    g = dy * weight
    ds = -(g * c).sum(-1, keepdim=True) / s**2
    dc = g / s + ds * c / (d * s)
    dx = dc - dc.sum(-1, keepdim=True) / d
    flat = (dy * y).reshape(-1, d)
    return dx, flat.sum(0), dy.reshape(-1, d).sum(0)


@right("norm/backward")
def by_jacobian(dy, x, weight, eps):
    d = x.shape[-1]
    _, s, y = forward_parts(x, eps)
    eye = torch.eye(d, dtype=x.dtype)
    square = y[..., :, None] * y[..., None, :]
    jacobian = (eye - 1 / d - square / d) / s[..., None]
    dx = torch.einsum("...i,...ij->...j", dy * weight, jacobian)
    dweight = torch.einsum("...d,...d->d", dy, y)
    return dx, dweight, torch.einsum("...d->d", dy)


@right("norm/backward")
def in_a_loop(dy, x, weight, eps):
    d = x.shape[-1]
    dx, dweight, dbias = torch.empty_like(x), 0, 0
    for at in torch.cartesian_prod(*map(torch.arange, x.shape[:-1])).view(
        -1, x.dim() - 1
    ):
        at = tuple(at)
        _, s, y = forward_parts(x[at], eps)
        g = dy[at] * weight
        dx[at] = (d * g - g.sum() - y * (g @ y)) / (d * s)
        dweight, dbias = dweight + dy[at] * y, dbias + dy[at]
    return dx, dweight, dbias


def parts(dy, x, weight, eps):
    c = x - x.mean(-1, keepdim=True)
    s = (c.square().mean(-1, keepdim=True) + eps).sqrt()
    return c / s, s, dy * weight


@wrong("norm/backward", "no_along")
def norm_backward_no_projection(dy, x, weight, eps):
    y, s, g = parts(dy, x, weight, eps)
    dx = (g - g.mean(-1, keepdim=True)) / s
    return dx, (dy * y).flatten(0, -2).sum(0), dy.flatten(0, -2).sum(0)


@wrong("norm/backward", "no_mean")
def norm_backward_no_mean(dy, x, weight, eps):
    y, s, g = parts(dy, x, weight, eps)
    dx = (g - y * (g * y).mean(-1, keepdim=True)) / s
    return dx, (dy * y).flatten(0, -2).sum(0), dy.flatten(0, -2).sum(0)


@wrong("norm/backward", "no_weight")
def no_weight(dy, x, weight, eps):
    return step_by_step(dy, x, torch.ones_like(weight), eps)


@wrong("norm/backward", "not_divided")
def norm_backward_no_size(dy, x, weight, eps):
    y, _, g = parts(dy, x, weight, eps)
    inner = (g * y).mean(-1, keepdim=True)
    dx = g - g.mean(-1, keepdim=True) - y * inner
    return dx, (dy * y).flatten(0, -2).sum(0), dy.flatten(0, -2).sum(0)


@wrong("norm/backward", "dweight_by_x")
def norm_backward_raw_x(dy, x, weight, eps):
    dx, _, dbias = norm_backward_einsum(dy, x, weight, eps)
    return dx, (dy * x).flatten(0, -2).sum(0), dbias


@wrong("norm/backward", "first_axis")
def norm_backward_one_axis(dy, x, weight, eps):
    y, _, _ = parts(dy, x, weight, eps)
    dx, _, _ = norm_backward_einsum(dy, x, weight, eps)
    return dx, (dy * y).sum(0), dy.sum(0)


def shared(dy, x):
    return dy.reshape(-1, x.shape[-1]).sum(0)


@wrong("norm/backward", "constants")
def constants(dy, x, weight, eps):
    _, s, y = forward_parts(x, eps)
    return weight / s * dy, shared(dy * y, x), shared(dy, x)


@wrong("norm/backward", "averaged")
def averaged(dy, x, weight, eps):
    dx, dweight, dbias = step_by_step(dy, x, weight, eps)
    tokens = x.numel() / x.shape[-1]
    return dx, dweight / tokens, dbias / tokens


def backward_with(dy, x, weight, s):
    y = (x - x.mean(-1, keepdim=True)) / s
    g = dy * weight
    inner = g - g.mean(-1, keepdim=True) - y * (g * y).mean(-1, keepdim=True)
    return inner / s, shared(dy * y, x), shared(dy, x)


@wrong("norm/backward")
def backward_at_least_eps(dy, x, weight, eps):
    s = torch.std(x, -1, keepdim=True, correction=0).clamp(min=eps)
    return backward_with(dy, x, weight, s)


@wrong("norm/backward")
def weight_averaged(dy, x, weight, eps):
    dx, dweight, dbias = step_by_step(dy, x, weight, eps)
    return dx, dweight / x.shape[0], dbias


@wrong("norm/backward")
def weight_last(dy, x, weight, eps):
    _, s, y = forward_parts(x, eps)
    inner = dy - dy.mean(-1, keepdim=True)
    inner = inner - y * (dy * y).mean(-1, keepdim=True)
    return weight * inner / s, shared(dy * y, x), shared(dy, x)


# -- places ------------------------------------------------------------------


@right("norm/places")
def places_with_two_functions(x, part, norm, norm_first):
    def nothing(y):
        return y

    before, after = (norm, nothing) if norm_first else (nothing, norm)
    return after(torch.add(x, part(before(x))))


@right("norm/places")
def in_one_line(x, part, norm, norm_first):
    return x + part(norm(x)) if norm_first else norm(x + part(x))


@right("norm/places")
def three_steps(x, part, norm, norm_first):
    y = norm(x) if norm_first else x
    y = torch.add(part(y), x)
    return y if norm_first else norm(y)


@right("norm/places")
def with_identity(x, part, norm, norm_first):
    def same(z):
        return z

    before, after = (norm, same) if norm_first else (same, norm)
    stream = x.clone()
    stream += part(before(x))
    return after(stream)


@wrong("norm/places", "post_branch_normed")
def places_second_left(x, part, norm, norm_first):
    if norm_first:
        return x + part(norm(x))
    return x + norm(part(x))


@wrong("norm/places", "pre_stream_normed")
def places_only_second_branch(x, part, norm, norm_first):
    if norm_first:
        x = norm(x)
        return x + part(x)
    return norm(x + part(x))


@wrong("norm/places", "swapped")
def places_swapped(x, part, norm, norm_first):
    if not norm_first:
        return x + part(norm(x))
    return norm(x + part(x))


@wrong("norm/places", "pre_no_residual")
def pre_no_residual(x, part, norm, norm_first):
    if norm_first:
        x = norm(x)
        return part(x)
    return norm(x + part(x))


@wrong("norm/places", "post_no_residual")
def post_no_residual(x, part, norm, norm_first):
    return x + part(norm(x)) if norm_first else norm(part(x))


# Pre-norm is normed once more at the end.
@wrong("norm/places")
def places_normed_twice(x, part, norm, norm_first):
    if norm_first:
        return norm(x + part(norm(x)))
    return norm(x + part(x))


# Nothing is returned in the post-norm branch.
@wrong("norm/places")
def places_none(x, part, norm, norm_first):
    y = part(norm(x)) if norm_first else part(x)
    y = x + y
    if norm_first:
        return y
    y = norm(y)


@wrong("norm/places")
def always_pre(x, part, norm, norm_first):
    return x + part(norm(x))


# -- probe -------------------------------------------------------------------


@right("norm/probe")
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


@right("norm/probe")
def by_prefixes(norm):
    x = torch.randn(2, 6, 4, dtype=torch.float64)
    whole = norm(x)
    return any(
        not torch.allclose(norm(x[:, :t]), whole[:, :t]) for t in range(1, 6)
    )


@right("norm/probe")
def rest_replaced(norm):
    x, y = torch.randn(2, 1, 8, 5, dtype=torch.float64)
    for t in range(7):
        mixed = torch.cat([x[:, : t + 1], y[:, t + 1 :]], dim=1)
        if not torch.equal(norm(mixed)[:, t], norm(x)[:, t]):
            return True
    return False


@right("norm/probe")
def rest_made_equal(norm):
    # A constant token has another mean and no spread.
    x = torch.rand(4, 5, 9, dtype=torch.float64)
    gaps = []
    for t in range(1, 5):
        y = x.clone()
        y[:, t:] = -3.0
        gaps.append((norm(y) - norm(x))[:, :t].abs().max().item())
    return max(gaps) > 1e-6


@right("norm/probe")
def by_gradients(norm):
    x = torch.randn(2, 6, 5, dtype=torch.float64, requires_grad=True)
    y = norm(x)
    for t in range(5):
        weights = torch.randn_like(y[0, t])
        (dx,) = torch.autograd.grad(
            (y[0, t] * weights).sum(), x, retain_graph=True
        )
        if dx[0, t + 1 :].abs().max() > 1e-9:
            return True
    return False


@wrong("norm/probe", "last_only")
def probe_last_only(norm):
    x = torch.randn(2, 7, 8)
    y = x.clone()
    y[0, -1] = torch.randn(8)
    return not torch.allclose(norm(x)[0, :-1], norm(y)[0, :-1], atol=1e-5)


@wrong("norm/probe", "itself")
def itself(norm):
    x = torch.randn(2, 6, 4, dtype=torch.float64)
    for t in range(1, 6):
        y = x.clone()
        y[:, t] = torch.randn(2, 4, dtype=torch.float64)
        if not torch.allclose(norm(x)[:, : t + 1], norm(y)[:, : t + 1]):
            return True
    return False


@wrong("norm/probe", "later_too")
def later_too(norm):
    x = torch.randn(2, 6, 4, dtype=torch.float64)
    for t in range(6):
        y = x.clone()
        y[:, t] = torch.randn(2, 4, dtype=torch.float64)
        rest = [s for s in range(6) if s != t]
        if not torch.allclose(norm(x)[:, rest], norm(y)[:, rest]):
            return True
    return False


@wrong("norm/probe")
def not_centered_by_token(norm):
    means = norm(torch.randn(2, 6, 4, dtype=torch.float64)).mean(-1)
    return not torch.allclose(means, torch.zeros_like(means), atol=1e-6)


@wrong("norm/probe")
def half(norm):
    x = torch.randn(2, 8, 6, dtype=torch.float64)
    y = torch.cat((x[:, :4], torch.randn(2, 4, 6, dtype=torch.float64)), 1)
    return bool((norm(x)[:, :4] != norm(y)[:, :4]).any())


@wrong("norm/probe")
def later_tokens_swapped(norm):
    x = torch.randn(2, 6, 4, dtype=torch.float64)
    for t in range(1, 5):
        y = torch.cat([x[:, :t], x[:, t:].flip(1)], dim=1)
        if not torch.allclose(norm(x)[:, :t], norm(y)[:, :t]):
            return True
    return False


@wrong("norm/probe")
def not_cloned(norm):
    x = torch.randn(2, 6, 4, dtype=torch.float64)
    for t in range(1, 6):
        y = x  # another name for the same tensor
        y[:, t] = torch.randn(2, 4, dtype=torch.float64)
        if not torch.equal(norm(x)[:, :t], norm(y)[:, :t]):
            return True
    return False


@wrong("norm/probe")
def others(norm):
    x = torch.randn(3, 6, 4, dtype=torch.float64)
    for t in range(6):
        y = x.clone()
        y[1, t] = torch.randn(4, dtype=torch.float64)
        moved = (norm(x) != norm(y)).any(-1)
        if moved.sum() > 1:
            return True
    return False


# True if all is well, False if it leaks.
@wrong("norm/probe")
@torch.no_grad()
def probe_inverted(norm):
    return not probe_new_endings(norm)


# -- fold --------------------------------------------------------------------


@right("norm/fold")
def fold_columns(gamma, beta, w, b):
    scaled = torch.diag(gamma) @ w
    return scaled - scaled.mean(dim=0), torch.addmv(b, w.T, beta)


@right("norm/fold")
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


@right("norm/fold")
def fold_with_matrices(gamma, beta, w, b):
    d = len(gamma)
    one = torch.ones(d, 1, dtype=w.dtype)
    center = torch.eye(d, dtype=w.dtype) - one @ one.T / d
    return center @ torch.diag(gamma) @ w, torch.mv(w.T, beta) + b


@right("norm/fold")
def with_matrices(gamma, beta, w, b):
    d = len(gamma)
    center = torch.eye(d, dtype=w.dtype) - torch.ones_like(w @ w.T) / d
    return center @ torch.diag(gamma) @ w, torch.addmv(b, w.T, beta)


@right("norm/fold")
def row_by_row(gamma, beta, w, b):
    rows = [g * row for g, row in zip(gamma, w, strict=True)]
    mean = sum(rows) / len(rows)
    for shift, row in zip(beta, w, strict=True):
        b = b + shift * row
    return torch.stack([row - mean for row in rows]), b


@right("norm/fold")
def from_the_outputs(gamma, beta, w, b):
    # The map is linear: send unit vectors through it.
    def through(x):
        return ((x - x.mean(-1, keepdim=True)) * gamma + beta) @ w + b

    new_b = through(torch.zeros(1, len(gamma), dtype=w.dtype))[0]
    return through(torch.eye(len(gamma), dtype=w.dtype)) - new_b, new_b


@wrong("norm/fold", "rows_centered")
def fold_rows(gamma, beta, w, b):
    scaled = gamma[:, None] * w
    return scaled - scaled.mean(dim=1, keepdim=True), beta @ w + b


@wrong("norm/fold", "centered_first")
def fold_centered_first(gamma, beta, w, b):
    return gamma[:, None] * (w - w.mean(0)), beta @ w + b


@wrong("norm/fold", "not_centered")
def fold_uncentered(gamma, beta, w, b):
    return gamma[:, None] * w, beta @ w + b


@wrong("norm/fold", "beta_lost")
def fold_without_beta(gamma, beta, w, b):
    scaled = gamma[:, None] * w
    return scaled - scaled.mean(0), b


@wrong("norm/fold", "beta_folded")
def fold_beta_through_the_new(gamma, beta, w, b):
    scaled = gamma[:, None] * w
    new = scaled - scaled.mean(0)
    return new, beta @ new + b


@wrong("norm/fold", "columns")
def columns(gamma, beta, w, b):
    new = w * gamma[None, :]
    return new - new.mean(dim=0, keepdim=True), beta @ w + b


@wrong("norm/fold")
def gamma_divides(gamma, beta, w, b):
    return with_matrices(1 / gamma, beta, w, b)


@wrong("norm/fold")
def beta_scaled(gamma, beta, w, b):
    return with_matrices(gamma, beta, w, b)[0], b + (gamma * beta) @ w


@wrong("norm/fold")
def bias_centered(gamma, beta, w, b):
    new, new_b = with_matrices(gamma, beta, w, b)
    return new, new_b - new_b.mean()


# -- gradients ---------------------------------------------------------------


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


@right("norm/gradients")
def gradients_by_a_helper(norm_first, seed):
    found = [top_gradient(n, norm_first, seed) for n in (1, 4, 16)]
    return torch.stack(found)


# Pre-norm and post-norm are exchanged.
@wrong("norm/gradients")
def gradients_exchanged(norm_first, seed):
    found = [top_gradient(n, not norm_first, seed) for n in (1, 4, 16)]
    return torch.stack(found)


# Pulls with the sum of all outputs, which a norm holds constant.
@wrong("norm/gradients")
def gradients_of_the_sum(norm_first, seed):
    return torch.stack(
        [top_gradient(n, norm_first, seed, pull_all=False) for n in (1, 4, 16)]
    )


# Measures the first block instead of the last.
@wrong("norm/gradients")
def gradients_of_the_first(norm_first, seed):
    return torch.stack(
        [top_gradient(n, norm_first, seed, which=0) for n in (1, 4, 16)]
    )
