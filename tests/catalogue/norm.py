"""Answers to the exercises of chapter 7, as people write them."""

import torch
from torch.nn import functional as F  # noqa: N812


# -- norms: right ------------------------------------------------------------
def by_variance(x, weight, bias, eps):
    spread, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    layer = weight * (x - mean) * torch.rsqrt(spread + eps) + bias
    return layer, weight * x * torch.rsqrt((x**2).mean(-1, keepdim=True) + eps)


def token_by_token(x, weight, bias, eps):
    d, layer, rms = x.shape[-1], [], []
    for row in x.reshape(-1, d):
        off = row - row.sum() / d
        layer.append(off / (off @ off / d + eps) ** 0.5 * weight + bias)
        rms.append(row / (row @ row / d + eps) ** 0.5 * weight)
    return torch.stack(layer).view(x.shape), torch.stack(rms).view(x.shape)


def centering_matrix(x, weight, bias, eps):
    # Layer norm is RMSNorm of the centered vector.
    d = x.shape[-1]
    center = torch.eye(d, dtype=x.dtype) - 1 / d

    def rms(z):
        length = torch.linalg.vector_norm(z, dim=-1, keepdim=True)
        root = torch.tensor(eps, dtype=x.dtype).sqrt()
        return z / torch.hypot(length / d**0.5, root)

    return [torch.addcmul(bias, rms(x @ center), weight), rms(x) * weight]


# -- norms: wrong ------------------------------------------------------------
def both(x, weight, bias, eps, dim):
    mean = torch.mean(x, dim=dim, keepdim=True)
    variance = torch.mean((x - mean) ** 2, dim=dim, keepdim=True)
    square = torch.mean(x * x, dim=dim, keepdim=True)
    layer = weight * (x - mean) / torch.sqrt(variance + eps) + bias
    return layer, weight * x / torch.sqrt(square + eps)


def over_tokens(x, weight, bias, eps):
    return both(x, weight, bias, eps, dim=x.ndim - 2)


def over_first(x, weight, bias, eps):
    return both(x, weight, bias, eps, dim=0)


def over_all(x, weight, bias, eps):
    c = x - x.mean()
    layer = c / (c.pow(2).mean() + eps).sqrt() * weight + bias
    return layer, x / (x.pow(2).mean() + eps).sqrt() * weight


def unbiased(x, weight, bias, eps):
    c = x - x.mean(dim=-1, keepdim=True)
    variance = torch.var(x, dim=-1, keepdim=True)
    square = x.pow(2).mean(dim=-1, keepdim=True)
    return c / torch.sqrt(variance + eps) * weight + bias, (
        x / torch.sqrt(square + eps) * weight
    )


def eps_outside(x, weight, bias, eps):
    std = x.std(-1, keepdim=True, unbiased=False)
    layer = (x - x.mean(-1, keepdim=True)) / (std + eps)
    rms = x / (x.pow(2).mean(-1, keepdim=True) ** 0.5 + eps)
    return layer * weight + bias, rms * weight


def no_eps(x, weight, bias, eps):
    c = x - x.mean(-1, keepdim=True)
    layer = c / (c * c).mean(-1, keepdim=True).sqrt()
    rms = x / (x * x).mean(-1, keepdim=True).sqrt()
    return layer * weight + bias, rms * weight


def rms_variance(x, weight, bias, eps):
    c = x - x.mean(-1, keepdim=True)
    root = ((c * c).mean(-1, keepdim=True) + eps) ** 0.5
    return c / root * weight + bias, x / root * weight


def rms_bias(x, weight, bias, eps):
    layer, rms = both(x, weight, bias, eps, -1)
    return layer, torch.add(rms, bias)


# -- norms: mistakes that the catalogue does not have ------------------------
def over_time_and_features(x, weight, bias, eps):
    return both(x, weight, bias, eps, dim=(-2, -1))


def at_least_eps(x, weight, bias, eps):
    std = x.std(-1, keepdim=True, correction=0)
    layer = (x - x.mean(-1, keepdim=True)) / std.clamp(min=eps)
    rms = x / x.pow(2).mean(-1, keepdim=True).sqrt().clamp(min=eps)
    return layer * weight + bias, rms * weight


def other_order(x, weight, bias, eps):
    return both(x, weight, bias, eps, -1)[::-1]


# -- backward: right ---------------------------------------------------------
def forward_parts(x, eps):
    c = x - x.mean(-1, keepdim=True)
    s = torch.sqrt(c.pow(2).mean(-1, keepdim=True) + eps)
    return c, s, c / s


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


def by_jacobian(dy, x, weight, eps):
    d = x.shape[-1]
    _, s, y = forward_parts(x, eps)
    eye = torch.eye(d, dtype=x.dtype)
    square = y[..., :, None] * y[..., None, :]
    jacobian = (eye - 1 / d - square / d) / s[..., None]
    dx = torch.einsum("...i,...ij->...j", dy * weight, jacobian)
    dweight = torch.einsum("...d,...d->d", dy, y)
    return dx, dweight, torch.einsum("...d->d", dy)


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


# -- backward: wrong ---------------------------------------------------------
def shared(dy, x):
    return dy.reshape(-1, x.shape[-1]).sum(0)


def constants(dy, x, weight, eps):
    _, s, y = forward_parts(x, eps)
    return weight / s * dy, shared(dy * y, x), shared(dy, x)


def no_mean(dy, x, weight, eps):
    _, s, y = forward_parts(x, eps)
    g = weight * dy
    dx = g / s - y / s * (g * y).mean(-1, keepdim=True)
    return dx, shared(dy * y, x), shared(dy, x)


def no_along(dy, x, weight, eps):
    _, s, y = forward_parts(x, eps)
    dx = weight * dy / s
    return dx - dx.mean(-1, keepdim=True), shared(dy * y, x), shared(dy, x)


def no_weight(dy, x, weight, eps):
    return step_by_step(dy, x, torch.ones_like(weight), eps)


def dweight_by_x(dy, x, weight, eps):
    dx, _, dbias = by_jacobian(dy, x, weight, eps)
    return dx, shared(dy * x, x), dbias


def averaged(dy, x, weight, eps):
    dx, dweight, dbias = step_by_step(dy, x, weight, eps)
    tokens = x.numel() / x.shape[-1]
    return dx, dweight / tokens, dbias / tokens


def first_axis(dy, x, weight, eps):
    dx, _, _ = step_by_step(dy, x, weight, eps)
    _, _, y = forward_parts(x, eps)
    return dx, torch.sum(dy * y, dim=0), torch.sum(dy, dim=0)


def backward_with(dy, x, weight, s):
    y = (x - x.mean(-1, keepdim=True)) / s
    g = dy * weight
    inner = g - g.mean(-1, keepdim=True) - y * (g * y).mean(-1, keepdim=True)
    return inner / s, shared(dy * y, x), shared(dy, x)


# -- backward: mistakes that the catalogue does not have ---------------------
def weight_averaged(dy, x, weight, eps):
    dx, dweight, dbias = step_by_step(dy, x, weight, eps)
    return dx, dweight / x.shape[0], dbias


def backward_at_least_eps(dy, x, weight, eps):
    s = torch.std(x, -1, keepdim=True, correction=0).clamp(min=eps)
    return backward_with(dy, x, weight, s)


def weight_last(dy, x, weight, eps):
    _, s, y = forward_parts(x, eps)
    inner = dy - dy.mean(-1, keepdim=True)
    inner = inner - y * (dy * y).mean(-1, keepdim=True)
    return weight * inner / s, shared(dy * y, x), shared(dy, x)


# -- places ------------------------------------------------------------------
def in_one_line(x, part, norm, norm_first):
    return x + part(norm(x)) if norm_first else norm(x + part(x))


def three_steps(x, part, norm, norm_first):
    y = norm(x) if norm_first else x
    y = torch.add(part(y), x)
    return y if norm_first else norm(y)


def with_identity(x, part, norm, norm_first):
    def same(z):
        return z

    before, after = (norm, same) if norm_first else (same, norm)
    stream = x.clone()
    stream += part(before(x))
    return after(stream)


def pre_stream_normed(x, part, norm, norm_first):
    if norm_first:
        y = norm(x)
        return y + part(y)
    return norm(part(x) + x)


def pre_no_residual(x, part, norm, norm_first):
    if norm_first:
        x = norm(x)
        return part(x)
    return norm(x + part(x))


def post_branch_normed(x, part, norm, norm_first):
    if norm_first:
        return x + part(norm(x))
    y = part(x)
    y = norm(y)
    return x + y


def post_no_residual(x, part, norm, norm_first):
    return x + part(norm(x)) if norm_first else norm(part(x))


def swapped(x, part, norm, norm_first):
    if norm_first:
        return norm(x + part(x))
    return x + part(norm(x))


def both_ends(x, part, norm, norm_first):
    y = x + part(norm(x))
    return y if norm_first else norm(y)


def own_norm(x, part, norm, norm_first):
    def ours(z):
        return F.layer_norm(z, z.shape[-1:])

    return x + part(ours(x)) if norm_first else ours(x + part(x))


def always_pre(x, part, norm, norm_first):
    return x + part(norm(x))


# -- probe -------------------------------------------------------------------
def by_prefixes(norm):
    x = torch.randn(2, 6, 4, dtype=torch.float64)
    whole = norm(x)
    return any(
        not torch.allclose(norm(x[:, :t]), whole[:, :t]) for t in range(1, 6)
    )


def rest_replaced(norm):
    x, y = torch.randn(2, 1, 8, 5, dtype=torch.float64)
    for t in range(7):
        mixed = torch.cat([x[:, : t + 1], y[:, t + 1 :]], dim=1)
        if not torch.equal(norm(mixed)[:, t], norm(x)[:, t]):
            return True
    return False


def rest_made_equal(norm):
    # A constant token has another mean and no spread.
    x = torch.rand(4, 5, 9, dtype=torch.float64)
    gaps = []
    for t in range(1, 5):
        y = x.clone()
        y[:, t:] = -3.0
        gaps.append((norm(y) - norm(x))[:, :t].abs().max().item())
    return max(gaps) > 1e-6


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


def last_only(norm):
    x = torch.randn(2, 8, 6, dtype=torch.float64)
    y = x.clone()
    y[:, -1] = torch.randn(2, 6, dtype=torch.float64)
    return not torch.allclose(norm(x)[:, :-1], norm(y)[:, :-1])


def half(norm):
    x = torch.randn(2, 8, 6, dtype=torch.float64)
    y = torch.cat((x[:, :4], torch.randn(2, 4, 6, dtype=torch.float64)), 1)
    return bool((norm(x)[:, :4] != norm(y)[:, :4]).any())


def later_too(norm):
    x = torch.randn(2, 6, 4, dtype=torch.float64)
    for t in range(6):
        y = x.clone()
        y[:, t] = torch.randn(2, 4, dtype=torch.float64)
        rest = [s for s in range(6) if s != t]
        if not torch.allclose(norm(x)[:, rest], norm(y)[:, rest]):
            return True
    return False


def others(norm):
    x = torch.randn(3, 6, 4, dtype=torch.float64)
    for t in range(6):
        y = x.clone()
        y[1, t] = torch.randn(4, dtype=torch.float64)
        moved = (norm(x) != norm(y)).any(-1)
        if moved.sum() > 1:
            return True
    return False


def itself(norm):
    x = torch.randn(2, 6, 4, dtype=torch.float64)
    for t in range(1, 6):
        y = x.clone()
        y[:, t] = torch.randn(2, 4, dtype=torch.float64)
        if not torch.allclose(norm(x)[:, : t + 1], norm(y)[:, : t + 1]):
            return True
    return False


def shift(norm):
    x = torch.randn(2, 6, 4, dtype=torch.float64)
    for t in range(1, 6):
        y = x.clone()
        y[:, t] += 10
        if not torch.equal(norm(x)[:, :t], norm(y)[:, :t]):
            return True
    return False


def not_cloned(norm):
    x = torch.randn(2, 6, 4, dtype=torch.float64)
    for t in range(1, 6):
        y = x  # another name for the same tensor
        y[:, t] = torch.randn(2, 4, dtype=torch.float64)
        if not torch.equal(norm(x)[:, :t], norm(y)[:, :t]):
            return True
    return False


def later_tokens_swapped(norm):
    x = torch.randn(2, 6, 4, dtype=torch.float64)
    for t in range(1, 5):
        y = torch.cat([x[:, :t], x[:, t:].flip(1)], dim=1)
        if not torch.allclose(norm(x)[:, :t], norm(y)[:, :t]):
            return True
    return False


def not_centered_by_token(norm):
    means = norm(torch.randn(2, 6, 4, dtype=torch.float64)).mean(-1)
    return not torch.allclose(means, torch.zeros_like(means), atol=1e-6)


# -- fold --------------------------------------------------------------------
def with_matrices(gamma, beta, w, b):
    d = len(gamma)
    center = torch.eye(d, dtype=w.dtype) - torch.ones_like(w @ w.T) / d
    return center @ torch.diag(gamma) @ w, torch.addmv(b, w.T, beta)


def row_by_row(gamma, beta, w, b):
    rows = [g * row for g, row in zip(gamma, w, strict=True)]
    mean = sum(rows) / len(rows)
    for shift, row in zip(beta, w, strict=True):
        b = b + shift * row
    return torch.stack([row - mean for row in rows]), b


def from_the_outputs(gamma, beta, w, b):
    # The map is linear: send unit vectors through it.
    def through(x):
        return ((x - x.mean(-1, keepdim=True)) * gamma + beta) @ w + b

    new_b = through(torch.zeros(1, len(gamma), dtype=w.dtype))[0]
    return through(torch.eye(len(gamma), dtype=w.dtype)) - new_b, new_b


def columns(gamma, beta, w, b):
    new = w * gamma[None, :]
    return new - new.mean(dim=0, keepdim=True), beta @ w + b


def not_centered(gamma, beta, w, b):
    return torch.diag(gamma) @ w, w.T @ beta + b


def rows_centered(gamma, beta, w, b):
    new = torch.diag(gamma) @ w
    return new - new.mean(-1)[:, None], w.T @ beta + b


def centered_first(gamma, beta, w, b):
    center = torch.eye(len(w), dtype=w.dtype) - 1 / len(w)
    return torch.diag(gamma) @ center @ w, beta @ w + b


def beta_lost(gamma, beta, w, b):
    return with_matrices(gamma, 0 * beta, w, b)


def beta_folded(gamma, beta, w, b):
    new, _ = with_matrices(gamma, beta, w, b)
    return new, torch.einsum("i,ij->j", beta, new) + b


def gamma_divides(gamma, beta, w, b):
    return with_matrices(1 / gamma, beta, w, b)


def beta_scaled(gamma, beta, w, b):
    return with_matrices(gamma, beta, w, b)[0], b + (gamma * beta) @ w


def bias_centered(gamma, beta, w, b):
    new, new_b = with_matrices(gamma, beta, w, b)
    return new, new_b - new_b.mean()


def backward_not_divided(dy, x, weight, eps):
    mean = x.mean(-1, keepdim=True)
    size = ((x - mean).square().mean(-1, keepdim=True) + eps).sqrt()
    y, g = (x - mean) / size, dy * weight
    dx = g - g.mean(-1, keepdim=True) - y * (g * y).mean(-1, keepdim=True)
    n = x.size(-1)
    return dx, (dy * y).view(-1, n).sum(0), dy.view(-1, n).sum(0)


def no_root(x, weight, bias, eps):
    mean = x.mean(dim=-1, keepdim=True)
    var = ((x - mean) ** 2).mean(dim=-1, keepdim=True)
    power = (x**2).mean(dim=-1, keepdim=True)
    layer = (x - mean) * (var + eps) ** -1
    return bias + weight * layer, weight * x * (power + eps) ** -1


RIGHT = {
    "norms": [by_variance, token_by_token, centering_matrix],
    "backward": [step_by_step, by_jacobian, in_a_loop],
    "places": [in_one_line, three_steps, with_identity],
    "probe": [by_prefixes, rest_replaced, rest_made_equal, by_gradients],
    "fold": [with_matrices, row_by_row, from_the_outputs],
}
WRONG = {
    "norms": {
        "over_tokens": over_tokens,
        "over_first": over_first,
        "over_all": over_all,
        "unbiased": unbiased,
        "eps_outside": eps_outside,
        "no_eps": no_eps,
        "rms_variance": rms_variance,
        "rms_bias": rms_bias,
        "no_root": no_root,
    },
    "backward": {
        "constants": constants,
        "no_mean": no_mean,
        "no_along": no_along,
        "no_weight": no_weight,
        "dweight_by_x": dweight_by_x,
        "averaged": averaged,
        "first_axis": first_axis,
        "not_divided": backward_not_divided,
    },
    "places": {
        "pre_stream_normed": pre_stream_normed,
        "pre_no_residual": pre_no_residual,
        "post_branch_normed": post_branch_normed,
        "post_no_residual": post_no_residual,
        "swapped": swapped,
    },
    "probe": {
        "last_only": last_only,
        "later_too": later_too,
        "itself": itself,
    },
    "fold": {
        "columns": columns,
        "not_centered": not_centered,
        "rows_centered": rows_centered,
        "centered_first": centered_first,
        "beta_lost": beta_lost,
        "beta_folded": beta_folded,
    },
}
OUTSIDE = {
    "norms": [over_time_and_features, at_least_eps, other_order],
    "backward": [weight_averaged, backward_at_least_eps, weight_last],
    "places": [both_ends, own_norm, always_pre],
    "probe": [
        not_cloned,
        later_tokens_swapped,
        not_centered_by_token,
        half,
        others,
    ],
    "fold": [gamma_divides, beta_scaled, bias_centered],
}
