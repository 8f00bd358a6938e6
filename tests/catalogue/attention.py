"""Answers to the exercises of chapter 4, as people write them."""

import math

import torch
from torch.nn import functional as F  # noqa: N812

inf = float("inf")


# -- attend: right -----------------------------------------------------------
def with_einsum(q, k, v, mask=None):
    scores = torch.einsum("...td,...sd->...ts", q, k) / math.sqrt(k.shape[-1])
    if mask is not None:
        scores = torch.where(mask, scores, torch.tensor(-inf).to(scores))
    return torch.einsum("...ts,...sd->...td", F.softmax(scores, -1), v)


def renormalized(q, k, v, mask=None):
    # The mask after the softmax is right if one divides again.
    scores = (q / q.shape[-1] ** 0.5) @ k.transpose(-1, -2)
    weights = torch.softmax(scores, dim=-1)
    if mask is not None:
        low = torch.where(mask, scores, torch.full_like(scores, -1e30))
        weights = (low - low.max(-1, keepdim=True).values).exp() * mask
        weights = weights / weights.sum(-1, keepdim=True)
    return weights @ v


def query_by_query(q, k, v, mask=None):
    rows = []
    for t in range(q.shape[-2]):
        score = (k * q[..., t : t + 1, :]).sum(-1) * q.shape[-1] ** -0.5
        if mask is not None:
            score = score.masked_fill(~mask[..., t, :], -inf)
        rows.append((score.softmax(-1).unsqueeze(-1) * v).sum(-2))
    return torch.stack(rows, dim=-2)


# -- attend: wrong -----------------------------------------------------------
def no_scale(q, k, v, mask=None):
    scores = torch.einsum("...td,...sd->...ts", q, k)
    if mask is not None:
        scores[~mask.expand_as(scores)] = -inf
    return F.softmax(scores, dim=-1) @ v


def by_dk(q, k, v, mask=None):
    d_k = k.shape[-1]
    scores = torch.matmul(q, k.transpose(-2, -1)) / d_k
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -inf)
    return torch.softmax(scores, -1) @ v


def over_queries(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask.logical_not(), -inf)
    return F.softmax(scores, dim=scores.dim() - 2) @ v


def softmax_axis_1(q, k, v, mask=None):
    scores = torch.einsum("...td,...sd->...ts", q, k) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = torch.where(mask, scores, -inf)
    e = (scores - scores.amax(1, keepdim=True)).exp()
    return e / e.sum(1, keepdim=True) @ v


def naive(q, k, v, mask=None):
    e = torch.exp(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]))
    if mask is not None:
        e = e * mask
    return (e / e.sum(-1, keepdim=True)) @ v


def mask_inverted(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask, -inf)
    return torch.softmax(scores, -1) @ v


def mask_ignored(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores.masked_fill(~mask, -inf)  # returns a new tensor
    return torch.softmax(scores, -1) @ v


def mask_zero(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = torch.where(mask, scores, 1e-12)
    return torch.softmax(scores, -1) @ v


def mask_after(q, k, v, mask=None):
    weights = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0)
    return weights @ v


# -- attend: mistakes that the catalogue does not have -----------------------
def keys_as_values(q, k, v, mask=None):
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -inf)
    return torch.softmax(scores, -1) @ (v - v.mean(-2, keepdim=True))


def root_of_values(q, k, v, mask=None):
    scores = q @ k.mT / math.sqrt(v.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -inf)
    return torch.softmax(scores, -1) @ v


def squared(q, k, v, mask=None):
    weights = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1)
    if mask is not None:
        weights = weights * mask
    return (weights / weights.norm(dim=-1, keepdim=True)) @ v


# -- mended ------------------------------------------------------------------
def stable_softmax(q, k, v):
    z = q @ k.mT * q.shape[-1] ** -0.5
    e = (z - torch.max(z, dim=-1, keepdim=True)[0]).exp()
    return e @ v / e.sum(-1)[..., None]


def log_softmax(q, k, v):
    z = torch.einsum("...td,...sd->...ts", q, k) / q.size(-1) ** 0.5
    return (z - z.logsumexp(-1, keepdim=True)).exp() @ v


def first_size(q, k, v):
    z = q @ k.mT / math.sqrt(q.shape[0])
    return F.softmax(z, -1) @ v


def axis_1(q, k, v):
    z = q @ k.mT / math.sqrt(q.shape[-1])
    e = (z - z.max(-1, keepdim=True).values).exp()
    return e / e.sum(-1)[:, None] @ v


def overflows(q, k, v):
    e = (q @ k.mT / math.sqrt(q.shape[-1])).exp()
    return e @ v / e.sum(-1, keepdim=True)


def largest_of_all_but_10(q, k, v):
    z = q @ k.mT / math.sqrt(q.shape[-1])
    return (z.clamp(max=2.0)).softmax(-1) @ v


def mean_subtracted(q, k, v):
    z = q @ k.mT / math.sqrt(q.shape[-1])
    e = (z - z.mean(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True).clamp(max=1e4) @ v


# -- temperature -------------------------------------------------------------
def gradients(dy, q, k, v, tau, a=None):
    a = torch.softmax(tau * (q @ k.mT), -1)
    da = torch.einsum("...td,...sd->...ts", dy, v)
    dz = a * da - a * (a * da).sum(-1, keepdim=True)
    return a, da, dz


def by_sum(dy, q, k, v, tau):
    a, _, dz = gradients(dy, q, k, v, tau)
    return (
        tau * (dz @ k),
        tau * (dz.mT @ q),
        a.mT @ dy,
        (dz * (q @ k.mT)).sum(),
    )


def by_jacobian(dy, q, k, v, tau):
    a, da, _ = gradients(dy, q, k, v, tau)
    jacobian = torch.diag_embed(a) - a[..., :, None] * a[..., None, :]
    dz = (jacobian @ da[..., None])[..., 0]
    dq = tau * torch.einsum("...ts,...sd->...td", dz, k)
    dk = tau * torch.einsum("...ts,...td->...sd", dz, q)
    dv = torch.einsum("...ts,...td->...sd", a, dy)
    return dq, dk, dv, torch.einsum("...ts,...td,...sd->", dz, q, k)


def tau_from_dq(dy, q, k, v, tau):
    a, _, dz = gradients(dy, q, k, v, tau)
    dq = tau * dz @ k
    return dq, tau * dz.mT @ q, a.mT @ dy, (dq * q).sum() / tau


def elementwise(dy, q, k, v, tau):
    a, da, _ = gradients(dy, q, k, v, tau)
    dz = da * (a - a * a)
    return tau * dz @ k, tau * dz.mT @ q, a.mT @ dy, (dz * (q @ k.mT)).sum()


def sum_axis_1(dy, q, k, v, tau):
    a, da, _ = gradients(dy, q, k, v, tau)
    dz = a * (da - (a * da).sum(1).unsqueeze(1))
    return tau * dz @ k, tau * dz.mT @ q, a.mT @ dy, (dz * (q @ k.mT)).sum()


def no_tau(dy, q, k, v, tau):
    a, _, dz = gradients(dy, q, k, v, tau)
    return dz @ k, dz.mT @ q, a.mT @ dy, (dz * (q @ k.mT)).sum()


def tau_twice(dy, q, k, v, tau):
    a, _, dz = gradients(dy, q, k, v, tau)
    return (
        tau * dz @ k,
        tau * dz.mT @ q,
        a.mT @ dy,
        (dz * tau * (q @ k.mT)).sum(),
    )


def tau_of_one_sentence(dy, q, k, v, tau):
    a, _, dz = gradients(dy, q, k, v, tau)
    return tau * dz @ k, tau * dz.mT @ q, a.mT @ dy, (dz * (q @ k.mT)).mean()


def keys_and_queries_swapped(dy, q, k, v, tau):
    dq, dk, dv, dtau = by_sum(dy, q, k, v, tau)
    return -dq, dk, dv, dtau


def columns_sum(dy, q, k, v, tau):
    a, da, _ = gradients(dy, q, k, v, tau)
    dz = a * (da - (a * da).sum(-2, keepdim=True))
    return tau * dz @ k, tau * dz.mT @ q, a.mT @ dy, (dz * (q @ k.mT)).sum()


# -- blocks ------------------------------------------------------------------
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


def stored(q, k, v, block=4):
    return (q @ k.mT / q.size(-1) ** 0.5).softmax(-1) @ v


def blocks_no_scale(q, k, v, block=4):
    return two_passes(q * q.shape[-1] ** 0.5, k, v, block)


def rest_dropped(q, k, v, block=4):
    n = k.shape[-2] // block * block
    return key_by_key(q, k[..., :n, :], v[..., :n, :])


def blocks_naive(q, k, v, block=4):
    total = mixed = 0.0
    for keys, values in zip(
        k.split(block, -2), v.split(block, -2), strict=True
    ):
        w = torch.exp(q @ keys.mT / q.shape[-1] ** 0.5)
        total, mixed = total + w.sum(-1, keepdim=True), mixed + w @ values
    return mixed / total


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


def mean_of_blocks(q, k, v, block=4):
    parts = [
        (q @ keys.mT / q.shape[-1] ** 0.5).softmax(-1) @ values
        for keys, values in zip(
            k.split(block, -2), v.split(block, -2), strict=True
        )
    ]
    return torch.stack(parts).mean(0)


def only_the_last_block(q, k, v, block=4):
    return (q @ k[..., -block:, :].mT / q.shape[-1] ** 0.5).softmax(-1) @ v[
        ..., -block:, :
    ]


def total_forgets(q, k, v, block=4):
    return 1.001 * key_by_key(q, k, v, block)


def front_axes(q, k, v, mask=None):
    s = torch.matmul(q, k.transpose(1, 0)) / q.shape[-1] ** 0.5
    if mask is not None:
        s = s.masked_fill(~mask, -math.inf)
    return torch.softmax(s, -1) @ v


def mask_finite(q, k, v, mask=None):
    s = q @ k.mT / math.sqrt(q.shape[-1])
    if mask is not None:
        s = torch.where(mask, s, torch.tensor(-10000.0, dtype=s.dtype))
    return s.softmax(-1) @ v


def hidden_maximum(q, k, v, mask=None):
    weights = F.softmax(q @ k.mT / math.sqrt(q.shape[-1]), dim=-1)
    if mask is not None:
        weights = torch.where(mask, weights, 0.0)
        weights = weights / weights.sum(dim=-1)[..., None]
    return weights @ v


def one_maximum(q, k, v):
    scores = torch.einsum("...td,...sd->...ts", q, k) / math.sqrt(q.shape[-1])
    e = torch.exp(scores - torch.max(scores))
    return e / e.sum(-1, keepdim=True) @ v


def turned(q, k, v, block=4):
    top = total = mixed = None
    for start in range(0, k.shape[-2], block):
        keys, values = (
            k[..., start : start + block, :],
            v[..., start : start + block, :],
        )
        s = q @ keys.mT / q.shape[-1] ** 0.5
        here = s.max(-1, keepdim=True).values
        if top is None:
            top, total, mixed = here, 0, 0
        new = top.maximum(here)
        e, factor = (s - new).exp(), (top - new).exp()
        total = total / factor + e.sum(-1, keepdim=True)
        mixed = mixed / factor + e @ values
        top = new
    return mixed / total


def total_only(q, k, v, block=4):
    top = total = mixed = None
    for start in range(0, k.shape[-2], block):
        keys, values = (
            k[..., start : start + block, :],
            v[..., start : start + block, :],
        )
        s = q @ keys.mT / q.shape[-1] ** 0.5
        here = s.max(-1, keepdim=True).values
        if top is None:
            top, total, mixed = here, 0, 0
        new = top.maximum(here)
        e, factor = (s - new).exp(), (top - new).exp()
        total = total * factor + e.sum(-1, keepdim=True)
        mixed = mixed + e @ values
        top = new
    return mixed / total


def share_row_by_row(scores):
    n = 0
    for row in scores:
        p = row.softmax(0)
        n += bool((torch.diag(p) - torch.outer(p, p)).norm() < 0.01)
    return torch.tensor(n / len(scores))


def share_by_formula(scores):
    # |J|² = Σ p² − 2 Σ p³ + (Σ p²)²
    p = scores.softmax(1)
    a, b = p.pow(2).sum(1), p.pow(3).sum(1)
    return ((a - 2 * b + a * a).clamp(min=0) < 1e-4).double().mean()


def share_by_trace(scores):
    p = torch.exp(scores - scores.logsumexp(-1, keepdim=True))
    j = (
        torch.eye(p.shape[1], dtype=p.dtype) * p[:, None]
        - p[:, None] * p[..., None]
    )
    size = torch.einsum("nij,nij->n", j, j).sqrt()
    return torch.mean((size < 0.01).to(p))


def share_spectral(scores):
    p = scores.softmax(1)
    j = torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1)
    return (torch.linalg.svdvals(j)[:, 0] < 0.01).double().mean()


def share_entry(scores):
    p = scores.softmax(-1)
    jacobian = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    return (jacobian.abs().amax((1, 2)) < 0.01).double().mean()


def share_mean_entry(scores):
    p = scores.softmax(-1)
    jacobian = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    return (jacobian.abs().mean((1, 2)) < 0.01).double().mean()


def share_above(scores):
    return 1 - share_by_formula(scores)


def share_of_sum(scores):
    p = scores.softmax(-1)
    jacobian = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    return (jacobian.abs().sum((1, 2)) < 0.01).double().mean()


def share_no_softmax(scores):
    j = torch.diag_embed(scores) - scores[..., None] * scores[:, None]
    return (j.flatten(1).norm(dim=1) < 0.01).double().mean()


def share_over_rows(scores):
    p = scores.softmax(0)
    j = torch.diag_embed(p) - p[..., None] * p[:, None]
    return (j.flatten(1).norm(dim=1) < 0.01).double().mean()


def share_no_root(scores):
    n = 0
    for row in scores:
        p = row.softmax(0)
        n += bool((torch.diag(p) - torch.outer(p, p)).square().sum() < 0.01)
    return torch.tensor(n / len(scores))


def share_diagonal(scores):
    n = 0
    for row in scores:
        p = row.softmax(0)
        n += bool((torch.diag(p) - torch.outer(p, p)).diag().norm() < 0.01)
    return torch.tensor(n / len(scores))


def share_counted(scores):
    return share_row_by_row(scores) * len(scores)


def share_naive(scores):
    p = scores.exp() / scores.exp().sum(-1)[:, None]
    j = torch.diag_embed(p) - p[..., None] * p[:, None]
    return (j.flatten(1).norm(dim=1) < 0.01).double().mean()


def by_keys(q, k, v, mask=None):
    scores = torch.matmul(q, k.mT) * k.shape[-2] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(mask.logical_not(), -torch.inf)
    return torch.softmax(scores, -1) @ v


RIGHT = {
    "attend": [with_einsum, renormalized, query_by_query],
    "mended": [stable_softmax, log_softmax, query_by_query],
    "temperature": [by_sum, by_jacobian, tau_from_dq],
    "stuck_share": [share_row_by_row, share_by_formula, share_by_trace],
    "blocks": [key_by_key, by_logsumexp, two_passes],
}
WRONG = {
    "attend": {
        "no_scale": no_scale,
        "by_dk": by_dk,
        "over_queries": over_queries,
        "axis_1": softmax_axis_1,
        "naive": naive,
        "mask_inverted": mask_inverted,
        "mask_ignored": mask_ignored,
        "mask_zero": mask_zero,
        "mask_after": mask_after,
        "front_axes": front_axes,
        "mask_finite": mask_finite,
        "hidden_maximum": hidden_maximum,
        "by_keys": by_keys,
    },
    "mended": {
        "first_size": first_size,
        "axis_1": axis_1,
        "naive": overflows,
        "one_maximum": one_maximum,
    },
    "temperature": {
        "elementwise": elementwise,
        "axis_1": sum_axis_1,
        "no_tau": no_tau,
        "tau_twice": tau_twice,
    },
    "stuck_share": {
        "no_softmax": share_no_softmax,
        "over_rows": share_over_rows,
        "no_root": share_no_root,
        "diagonal": share_diagonal,
        "counted": share_counted,
        "naive": share_naive,
        "largest": share_entry,
    },
    "blocks": {
        "stored": stored,
        "no_scale": blocks_no_scale,
        "rest_dropped": rest_dropped,
        "naive": blocks_naive,
        "no_shrink": no_shrink,
        "top_zero": top_zero,
        "turned": turned,
        "total_only": total_only,
    },
}
OUTSIDE = {
    "attend": [keys_as_values, root_of_values, squared],
    "mended": [largest_of_all_but_10, mean_subtracted, root_of_values],
    "temperature": [
        tau_of_one_sentence,
        keys_and_queries_swapped,
        columns_sum,
    ],
    "stuck_share": [
        share_mean_entry,
        share_above,
        share_of_sum,
        share_spectral,
    ],
    "blocks": [mean_of_blocks, only_the_last_block, total_forgets],
}
