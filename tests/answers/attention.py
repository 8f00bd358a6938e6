"""Answers to the exercises of chapter 4."""

import math

import torch
from torch.nn import functional as F

from tests.answers import right, wrong

# -- attend ------------------------------------------------------------------


@right("attention/attend")
def attend_einsum(q, k, v, mask=None):
    scores = torch.einsum("...td,...sd->...ts", q, k) * q.shape[-1] ** -0.5
    if mask is not None:
        scores = torch.where(mask, scores, -math.inf)
    e = torch.exp(scores - scores.amax(dim=-1, keepdim=True))
    return torch.einsum("...ts,...sv->...tv", e / e.sum(-1, keepdim=True), v)


@right("attention/attend")
def attend_row_by_row(q, k, v, mask=None):
    n_queries, n_keys = q.size(-2), k.size(-2)
    if mask is not None:
        mask = mask.expand(*q.shape[:-2], n_queries, n_keys)
    rows = []
    for t in range(n_queries):
        row = (q[..., t, None, :] * k).sum(-1) / math.sqrt(q.size(-1))
        if mask is not None:
            row = row.masked_fill(mask[..., t, :].logical_not(), -math.inf)
        weights = row.softmax(-1)
        rows.append((weights[..., None] * v).sum(-2))
    return torch.stack(rows, dim=-2)


@right("attention/attend")
def attend_in_double(q, k, v, mask=None):
    kind = v.dtype
    q, k, v = q.double(), k.double(), v.double()
    scores = (q / q.size(-1) ** 0.25) @ (k / k.size(-1) ** 0.25).mT
    if mask is None:
        mask = torch.ones_like(scores, dtype=torch.bool)
    hidden = torch.zeros_like(scores).masked_fill(~mask, float("-inf"))
    return ((scores + hidden).softmax(-1) @ v).to(kind)


inf = float("inf")


@right("attention/attend")
def with_einsum(q, k, v, mask=None):
    scores = torch.einsum("...td,...sd->...ts", q, k) / math.sqrt(k.shape[-1])
    if mask is not None:
        scores = torch.where(mask, scores, torch.tensor(-inf).to(scores))
    return torch.einsum("...ts,...sd->...td", F.softmax(scores, -1), v)


@right("attention/attend")
def renormalized(q, k, v, mask=None):
    # The mask after the softmax is right if one divides again.
    scores = (q / q.shape[-1] ** 0.5) @ k.transpose(-1, -2)
    weights = torch.softmax(scores, dim=-1)
    if mask is not None:
        low = torch.where(mask, scores, torch.full_like(scores, -1e30))
        weights = (low - low.max(-1, keepdim=True).values).exp() * mask
        weights = weights / weights.sum(-1, keepdim=True)
    return weights @ v


@right("attention/attend")
@right("attention/mended")
def query_by_query(q, k, v, mask=None):
    rows = []
    for t in range(q.shape[-2]):
        score = (k * q[..., t : t + 1, :]).sum(-1) * q.shape[-1] ** -0.5
        if mask is not None:
            score = score.masked_fill(~mask[..., t, :], -inf)
        rows.append((score.softmax(-1).unsqueeze(-1) * v).sum(-2))
    return torch.stack(rows, dim=-2)


@wrong("attention/attend", "no_scale")
def attend_no_scale(q, k, v, mask=None):
    scores = q @ k.mT
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1) @ v


@wrong("attention/attend", "by_dk")
def attend_no_root(q, k, v, mask=None):
    scores = q @ k.mT / q.size(-1)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1) @ v


@wrong("attention/attend", "by_keys")
def attend_scale_of_keys(q, k, v, mask=None):
    scores = q @ k.mT / math.sqrt(k.size(-2))
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1) @ v


@wrong("attention/attend", "over_queries")
def over_queries(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask.logical_not(), -inf)
    return F.softmax(scores, dim=scores.dim() - 2) @ v


@wrong("attention/attend", "mask_inverted")
def attend_mask_inverted(q, k, v, mask=None):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(mask, float("-inf"))
    return scores.softmax(-1) @ v


@wrong("attention/attend", "mask_after")
def attend_mask_after(q, k, v, mask=None):
    weights = (q @ k.mT / math.sqrt(q.size(-1))).softmax(-1)
    if mask is not None:
        weights = weights * mask
    return weights @ v


@wrong("attention/attend", "mask_zero")
def attend_times_mask(q, k, v, mask=None):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores * mask
    return scores.softmax(-1) @ v


@wrong("attention/attend", "mask_ignored")
def attend_mask_dropped(q, k, v, mask=None):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    if mask is not None:
        scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1) @ v


@wrong("attention/attend", "front_axes")
def attend_wrong_transpose(q, k, v, mask=None):
    scores = q @ k.transpose(0, 1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1) @ v


@wrong("attention/attend", "axis_1")
def softmax_axis_1(q, k, v, mask=None):
    scores = torch.einsum("...td,...sd->...ts", q, k) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = torch.where(mask, scores, -inf)
    e = (scores - scores.amax(1, keepdim=True)).exp()
    return e / e.sum(1, keepdim=True) @ v


@wrong("attention/attend", "naive")
def naive(q, k, v, mask=None):
    e = torch.exp(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]))
    if mask is not None:
        e = e * mask
    return (e / e.sum(-1, keepdim=True)) @ v


@wrong("attention/attend", "mask_finite")
def mask_finite(q, k, v, mask=None):
    s = q @ k.mT / math.sqrt(q.shape[-1])
    if mask is not None:
        s = torch.where(mask, s, torch.tensor(-10000.0, dtype=s.dtype))
    return s.softmax(-1) @ v


@wrong("attention/attend", "hidden_maximum")
def hidden_maximum(q, k, v, mask=None):
    weights = F.softmax(q @ k.mT / math.sqrt(q.shape[-1]), dim=-1)
    if mask is not None:
        weights = torch.where(mask, weights, 0.0)
        weights = weights / weights.sum(dim=-1)[..., None]
    return weights @ v


# Crashes if there is no mask: ~None raises.
@wrong("attention/attend")
def attend_needs_a_mask(q, k, v, mask=None):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v


# Hidden scores are only lowered by 5, so hidden keys keep some weight.
@wrong("attention/attend")
def attend_weak_mask(q, k, v, mask=None):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores - 5.0 * (~mask)
    return scores.softmax(-1) @ v


@wrong("attention/attend")
def keys_as_values(q, k, v, mask=None):
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -inf)
    return torch.softmax(scores, -1) @ (v - v.mean(-2, keepdim=True))


# -- mended ------------------------------------------------------------------


@right("attention/mended")
def mended_by_logsumexp(q, k, v):
    scores = torch.einsum("...td,...sd->...ts", q, k) / q.size(-1) ** 0.5
    weights = (scores - scores.logsumexp(-1, keepdim=True)).exp()
    return torch.einsum("...ts,...sd->...td", weights, v)


@right("attention/mended")
def stable_softmax(q, k, v):
    z = q @ k.mT * q.shape[-1] ** -0.5
    e = (z - torch.max(z, dim=-1, keepdim=True)[0]).exp()
    return e @ v / e.sum(-1)[..., None]


@right("attention/mended")
def log_softmax(q, k, v):
    z = torch.einsum("...td,...sd->...ts", q, k) / q.size(-1) ** 0.5
    return (z - z.logsumexp(-1, keepdim=True)).exp() @ v


@wrong("attention/mended", "naive")
def mended_still_overflows(q, k, v):
    scores = torch.einsum("...td,...sd->...ts", q, k) / q.size(-1) ** 0.5
    weights = scores.exp() / scores.exp().sum(dim=-1, keepdim=True)
    return weights @ v


@wrong("attention/mended", "axis_1")
def mended_still_unsqueezed(q, k, v):
    scores = torch.einsum("...td,...sd->...ts", q, k) / q.size(-1) ** 0.5
    e = (scores - scores.amax(-1, keepdim=True)).exp()
    return (e / e.sum(dim=-1).unsqueeze(1)) @ v


@wrong("attention/mended", "first_size")
def mended_still_first_axis(q, k, v):
    scores = torch.einsum("...td,...sd->...ts", q, k) / q.size(0) ** 0.5
    return scores.softmax(-1) @ v


@wrong("attention/mended", "one_maximum")
def mended_global_maximum(q, k, v):
    scores = torch.einsum("...td,...sd->...ts", q, k) / q.size(-1) ** 0.5
    e = (scores - scores.max()).exp()
    return (e / e.sum(-1, keepdim=True)) @ v


@wrong("attention/mended")
def largest_of_all_but_10(q, k, v):
    z = q @ k.mT / math.sqrt(q.shape[-1])
    return (z.clamp(max=2.0)).softmax(-1) @ v


@wrong("attention/mended")
def mean_subtracted(q, k, v):
    z = q @ k.mT / math.sqrt(q.shape[-1])
    e = (z - z.mean(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True).clamp(max=1e4) @ v


@wrong("attention/mended")
def root_of_values(q, k, v, mask=None):
    scores = q @ k.mT / math.sqrt(v.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -inf)
    return torch.softmax(scores, -1) @ v


# -- temperature -------------------------------------------------------------


@right("attention/temperature")
def temperature_by_jacobian(dy, q, k, v, tau):
    raw = torch.einsum("...td,...sd->...ts", q, k)
    p = (tau * raw).softmax(-1)
    J = torch.diag_embed(p) - p[..., :, None] * p[..., None, :]
    dp = torch.einsum("...td,...sd->...ts", dy, v)
    dz = torch.einsum("...tsu,...tu->...ts", J, dp)
    return (
        tau * torch.einsum("...ts,...sd->...td", dz, k),
        tau * torch.einsum("...ts,...td->...sd", dz, q),
        torch.einsum("...ts,...td->...sd", p, dy),
        (dz * raw).sum(),
    )


def gradients(dy, q, k, v, tau, a=None):
    a = torch.softmax(tau * (q @ k.mT), -1)
    da = torch.einsum("...td,...sd->...ts", dy, v)
    dz = a * da - a * (a * da).sum(-1, keepdim=True)
    return a, da, dz


@right("attention/temperature")
def by_sum(dy, q, k, v, tau):
    a, _, dz = gradients(dy, q, k, v, tau)
    return (
        tau * (dz @ k),
        tau * (dz.mT @ q),
        a.mT @ dy,
        (dz * (q @ k.mT)).sum(),
    )


@right("attention/temperature")
def by_jacobian(dy, q, k, v, tau):
    a, da, _ = gradients(dy, q, k, v, tau)
    jacobian = torch.diag_embed(a) - a[..., :, None] * a[..., None, :]
    dz = (jacobian @ da[..., None])[..., 0]
    dq = tau * torch.einsum("...ts,...sd->...td", dz, k)
    dk = tau * torch.einsum("...ts,...td->...sd", dz, q)
    dv = torch.einsum("...ts,...td->...sd", a, dy)
    return dq, dk, dv, torch.einsum("...ts,...td,...sd->", dz, q, k)


@right("attention/temperature")
def tau_from_dq(dy, q, k, v, tau):
    a, _, dz = gradients(dy, q, k, v, tau)
    dq = tau * dz @ k
    return dq, tau * dz.mT @ q, a.mT @ dy, (dq * q).sum() / tau


@wrong("attention/temperature", "no_tau")
def no_tau(dy, q, k, v, tau):
    a, _, dz = gradients(dy, q, k, v, tau)
    return dz @ k, dz.mT @ q, a.mT @ dy, (dz * (q @ k.mT)).sum()


@wrong("attention/temperature", "tau_twice")
def temperature_scaled_scores(dy, q, k, v, tau):
    z = tau * (q @ k.mT)
    p = z.softmax(-1)
    dp = dy @ v.mT
    dz = p * (dp - (p * dp).sum(-1, keepdim=True))
    return tau * dz @ k, tau * dz.mT @ q, p.mT @ dy, (dz * z).sum()


@wrong("attention/temperature", "elementwise")
def elementwise(dy, q, k, v, tau):
    a, da, _ = gradients(dy, q, k, v, tau)
    dz = da * (a - a * a)
    return tau * dz @ k, tau * dz.mT @ q, a.mT @ dy, (dz * (q @ k.mT)).sum()


@wrong("attention/temperature", "axis_1")
def sum_axis_1(dy, q, k, v, tau):
    a, da, _ = gradients(dy, q, k, v, tau)
    dz = a * (da - (a * da).sum(1).unsqueeze(1))
    return tau * dz @ k, tau * dz.mT @ q, a.mT @ dy, (dz * (q @ k.mT)).sum()


@wrong("attention/temperature")
def tau_of_one_sentence(dy, q, k, v, tau):
    a, _, dz = gradients(dy, q, k, v, tau)
    return tau * dz @ k, tau * dz.mT @ q, a.mT @ dy, (dz * (q @ k.mT)).mean()


@wrong("attention/temperature")
def keys_and_queries_swapped(dy, q, k, v, tau):
    dq, dk, dv, dtau = by_sum(dy, q, k, v, tau)
    return -dq, dk, dv, dtau


@wrong("attention/temperature")
def columns_sum(dy, q, k, v, tau):
    a, da, _ = gradients(dy, q, k, v, tau)
    dz = a * (da - (a * da).sum(-2, keepdim=True))
    return tau * dz @ k, tau * dz.mT @ q, a.mT @ dy, (dz * (q @ k.mT)).sum()


# -- stuck_share -------------------------------------------------------------


@right("attention/stuck_share")
def stuck_share_closed_form(scores):
    p = scores.double().softmax(-1)
    second, third = p.pow(2).sum(-1), p.pow(3).sum(-1)
    squares = second - 2 * third + second.pow(2)
    return (squares.clamp(min=0).sqrt() < 0.01).double().mean()


@right("attention/stuck_share")
def stuck_share_row_by_row(scores):
    stuck = 0
    for row in scores:
        p = row.softmax(0)
        jacobian = torch.diag(p) - torch.outer(p, p)
        if (jacobian * jacobian).sum().sqrt().item() < 1 / 100:
            stuck += 1
    return torch.tensor(stuck / len(scores))


@right("attention/stuck_share")
def stuck_from_sums(scores):
    p = torch.softmax(scores, dim=-1)
    square = p.square()
    total = square.sum(-1)
    # sum of p_i² - 2 p_i³ + (sum of p_i²)²
    size = (total - 2 * (square * p).sum(-1) + total.square()).clamp(min=0)
    return size.sqrt().lt(0.01).double().mean()


@right("attention/stuck_share")
def share_row_by_row(scores):
    n = 0
    for row in scores:
        p = row.softmax(0)
        n += bool((torch.diag(p) - torch.outer(p, p)).norm() < 0.01)
    return torch.tensor(n / len(scores))


@right("attention/stuck_share")
def share_by_formula(scores):
    # |J|² = Σ p² − 2 Σ p³ + (Σ p²)²
    p = scores.softmax(1)
    a, b = p.pow(2).sum(1), p.pow(3).sum(1)
    return ((a - 2 * b + a * a).clamp(min=0) < 1e-4).double().mean()


@right("attention/stuck_share")
def share_by_trace(scores):
    p = torch.exp(scores - scores.logsumexp(-1, keepdim=True))
    j = (
        torch.eye(p.shape[1], dtype=p.dtype) * p[:, None]
        - p[:, None] * p[..., None]
    )
    size = torch.einsum("nij,nij->n", j, j).sqrt()
    return torch.mean((size < 0.01).to(p))


@wrong("attention/stuck_share", "no_root")
def stuck_share_no_root(scores):
    p = scores.softmax(-1)
    jacobian = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    return (jacobian.square().sum((1, 2)) < 0.01).float().mean()


@wrong("attention/stuck_share", "no_softmax")
def stuck_share_of_scores(scores):
    jacobian = (
        torch.diag_embed(scores) - scores[:, :, None] * (scores[:, None, :])
    )
    return (jacobian.flatten(1).norm(dim=1) < 0.01).float().mean()


@wrong("attention/stuck_share", "over_rows")
def stuck_share_columns(scores):
    p = scores.softmax(0)
    jacobian = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    return (jacobian.flatten(1).norm(dim=1) < 0.01).float().mean()


@wrong("attention/stuck_share", "largest")
def stuck_share_largest_entry(scores):
    p = scores.softmax(-1)
    jacobian = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    return (jacobian.abs().flatten(1).amax(1) < 0.01).float().mean()


@wrong("attention/stuck_share", "counted")
def stuck_counted(scores):
    p = scores.softmax(-1)
    J = torch.diag_embed(p) - torch.einsum("ri,rj->rij", p, p)
    return (J.flatten(1).norm(dim=1) < 0.01).sum()


@wrong("attention/stuck_share", "diagonal")
def share_diagonal(scores):
    n = 0
    for row in scores:
        p = row.softmax(0)
        n += bool((torch.diag(p) - torch.outer(p, p)).diag().norm() < 0.01)
    return torch.tensor(n / len(scores))


@wrong("attention/stuck_share", "naive")
def share_naive(scores):
    p = scores.exp() / scores.exp().sum(-1)[:, None]
    j = torch.diag_embed(p) - p[..., None] * p[:, None]
    return (j.flatten(1).norm(dim=1) < 0.01).double().mean()


@wrong("attention/stuck_share")
def share_spectral(scores):
    p = scores.softmax(1)
    j = torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1)
    return (torch.linalg.svdvals(j)[:, 0] < 0.01).double().mean()


# The largest weight is asked.
@wrong("attention/stuck_share")
def stuck_by_the_largest(scores):
    return (scores.softmax(-1).amax(-1) > 0.99).double().mean()


# The fraction of the rows that are not saturated.
@wrong("attention/stuck_share")
def stuck_share_of_the_others(scores):
    p = scores.softmax(-1)
    jacobian = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    return (jacobian.flatten(1).norm(dim=1) >= 0.01).float().mean()


# -- blocks ------------------------------------------------------------------


@right("attention/blocks")
def blocks_divide_and_conquer(q, k, v, block=4):
    def part(k, v):
        n = k.size(-2)
        if n <= block:
            scores = q @ k.mT / math.sqrt(q.size(-1))
            top = scores.amax(-1, keepdim=True)
            e = (scores - top).exp()
            return top, e.sum(-1, keepdim=True), e @ v
        cut = n // 2
        m1, s1, y1 = part(k[..., :cut, :], v[..., :cut, :])
        m2, s2, y2 = part(k[..., cut:, :], v[..., cut:, :])
        m = torch.maximum(m1, m2)
        a, b = (m1 - m).exp(), (m2 - m).exp()
        return m, a * s1 + b * s2, a * y1 + b * y2

    _, total, mixture = part(k, v)
    return mixture / total


@right("attention/blocks")
def blocks_with_logsumexp(q, k, v, block=4):
    mean, log_sum = None, None
    for k_part, v_part in zip(k.split(block, -2), v.split(block, -2)):
        scores = q @ k_part.mT / q.size(-1) ** 0.5
        new = scores.logsumexp(-1, keepdim=True)
        fresh = scores.softmax(-1) @ v_part
        if mean is None:
            mean, log_sum = fresh, new
            continue
        both = torch.logaddexp(log_sum, new)
        mean = mean * (log_sum - both).exp() + fresh * (new - both).exp()
        log_sum = both
    return mean


@right("attention/blocks")
def key_by_key(q, k, v, block=4):
    top = torch.full(q.shape[:-1], -inf, dtype=q.dtype)
    total, mixed = torch.zeros_like(top), 0.0
    for s in range(k.shape[-2]):
        score = (q * k[..., s : s + 1, :]).sum(-1) / q.shape[-1] ** 0.5
        new = torch.maximum(top, score)
        weight, old = (score - new).exp(), (top - new).exp()
        total = total * old + weight
        mixed = (
            mixed * old[..., None] + weight[..., None] * v[..., s : s + 1, :]
        )
        top = new
    return mixed / total[..., None]


@right("attention/blocks")
def by_logsumexp(q, k, v, block=4):
    out = norm = None
    for keys, values in zip(
        k.split(block, -2), v.split(block, -2), strict=True
    ):
        z = q @ keys.mT / q.shape[-1] ** 0.5
        part, here = z.softmax(-1) @ values, z.logsumexp(-1, keepdim=True)
        if out is None:
            out, norm = part, here
            continue
        both = torch.logaddexp(norm, here)
        out = out * (norm - both).exp() + part * (here - both).exp()
        norm = both
    return out


@right("attention/blocks")
def two_passes(q, k, v, block=4):
    q = q / q.shape[-1] ** 0.5
    top = torch.stack([(q @ p.mT).amax(-1) for p in k.split(block, -2)]).amax(
        0
    )
    total = mixed = 0.0
    for keys, values in zip(
        k.split(block, -2), v.split(block, -2), strict=True
    ):
        w = (q @ keys.mT - top[..., None]).exp()
        total, mixed = total + w.sum(-1, keepdim=True), mixed + w @ values
    return mixed / total


@wrong("attention/blocks", "total_only")
def blocks_mixture_not_corrected(q, k, v, block=4):
    shape = (*q.shape[:-1], 1)
    top, total = q.new_full(shape, -math.inf), q.new_zeros(shape)
    mixture = q.new_zeros(*q.shape[:-1], v.size(-1))
    for start in range(0, k.size(-2), block):
        part = slice(start, start + block)
        scores = q @ k[..., part, :].mT / math.sqrt(q.size(-1))
        new = torch.maximum(top, scores.amax(-1, keepdim=True))
        e = (scores - new).exp()
        total = total * (top - new).exp() + e.sum(-1, keepdim=True)
        mixture = mixture + e @ v[..., part, :]
        top = new
    return mixture / total


@wrong("attention/blocks", "rest_dropped")
def rest_dropped(q, k, v, block=4):
    n = k.shape[-2] // block * block
    return key_by_key(q, k[..., :n, :], v[..., :n, :])


@wrong("attention/blocks", "naive")
def blocks_without_maximum(q, k, v, block=4):
    total, mixture = 0.0, 0.0
    for k_part, v_part in zip(k.split(block, -2), v.split(block, -2)):
        e = (q @ k_part.mT / math.sqrt(q.size(-1))).exp()
        total = total + e.sum(-1, keepdim=True)
        mixture = mixture + e @ v_part
    return mixture / total


@wrong("attention/blocks", "turned")
def blocks_wrong_correction(q, k, v, block=4):
    top = total = mixture = None
    for k_part, v_part in zip(k.split(block, -2), v.split(block, -2)):
        scores = q @ k_part.mT / math.sqrt(q.size(-1))
        here = scores.amax(-1, keepdim=True)
        new = here if top is None else torch.maximum(top, here)
        e = (scores - new).exp()
        s, y = e.sum(-1, keepdim=True), e @ v_part
        if top is None:
            total, mixture = s, y
        else:
            factor = (new - top).exp()
            total, mixture = total * factor + s, mixture * factor + y
        top = new
    return mixture / total


@wrong("attention/blocks", "stored")
def blocks_stores_the_weights(q, k, v, block=4):
    return (q @ k.mT / math.sqrt(q.size(-1))).softmax(-1) @ v


@wrong("attention/blocks", "no_scale")
def blocks_no_scale(q, k, v, block=4):
    return two_passes(q * q.shape[-1] ** 0.5, k, v, block)


@wrong("attention/blocks", "no_shrink")
def no_shrink(q, k, v, block=4):
    top, total, mixed = torch.tensor(-inf), 0.0, 0.0
    for keys, values in zip(
        k.split(block, -2), v.split(block, -2), strict=True
    ):
        z = q @ keys.mT / q.shape[-1] ** 0.5
        top = torch.maximum(top, z.max(-1, keepdim=True).values)
        w = (z - top).exp()
        total, mixed = total + w.sum(-1, keepdim=True), mixed + w @ values
    return mixed / total


@wrong("attention/blocks", "top_zero")
def top_zero(q, k, v, block=4):
    top = torch.zeros(*q.shape[:-1], 1, dtype=q.dtype)
    total, mixed = 0.0, 0.0
    for keys, values in zip(
        k.split(block, -2), v.split(block, -2), strict=True
    ):
        z = q @ keys.mT / q.shape[-1] ** 0.5
        new = torch.maximum(top, z.max(-1, keepdim=True).values)
        w, old = (z - new).exp(), (top - new).exp()
        total = total * old + w.sum(-1, keepdim=True)
        mixed = mixed * old + w @ values
        top = new
    return mixed / total


# Each chunk has its own softmax, and the results are averaged.
@wrong("attention/blocks")
def blocks_averaged(q, k, v, block=4):
    results = []
    for k_part, v_part in zip(k.split(block, -2), v.split(block, -2)):
        scores = q @ k_part.mT / math.sqrt(q.size(-1))
        results.append(scores.softmax(-1) @ v_part)
    return torch.stack(results).mean(0)


@wrong("attention/blocks")
def total_forgets(q, k, v, block=4):
    return 1.001 * key_by_key(q, k, v, block)


@wrong("attention/blocks")
def only_the_last_block(q, k, v, block=4):
    return (q @ k[..., -block:, :].mT / q.shape[-1] ** 0.5).softmax(-1) @ v[
        ..., -block:, :
    ]
