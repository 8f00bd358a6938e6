"""Answers to the exercises of chapter 10, as people write them."""

import math
from fractions import Fraction
from functools import reduce

import torch
from torch.nn import functional as F  # noqa: N812


# -- stable: right -----------------------------------------------------------
def row_by_row(logits, targets):
    # Plain Python, one row after the other.
    nats = []
    for row, y in zip(logits.tolist(), targets.tolist(), strict=True):
        if y == -100:
            continue
        top = max(row)
        nats.append(
            math.log(sum(math.exp(z - top) for z in row)) + top - row[y]
        )
    return torch.tensor(sum(nats) / max(len(nats), 1))


def with_one_hot(logits, targets):
    counts = (targets != -100).to(logits)
    y = F.one_hot(targets.clamp(min=0), logits.shape[-1]) * counts[:, None]
    top = logits.max(-1, keepdim=True)[0]
    total = torch.exp(logits - top).sum(-1).log() + top[:, 0]
    return (counts * total - (y * logits).sum(-1)).sum() / counts.sum().clamp(
        min=1
    )


def by_margins(logits, targets):
    # ln Σ e^(z - z_y), added up pairwise: no largest logit is looked for.
    rows = [
        reduce(torch.logaddexp, row - row[y])
        for row, y in zip(logits, targets, strict=True)
        if y >= 0
    ]
    return torch.stack(rows).mean() if rows else logits.new_zeros(())


# -- stable: wrong -----------------------------------------------------------
def naive(logits, targets):
    rows = targets != -100
    if not rows.any():
        return torch.tensor(0.0).to(logits)
    e = torch.exp(logits[rows])
    p = e / e.sum(-1, keepdim=True)
    return -p.gather(1, targets[rows][:, None]).log().mean()


def softmax_log(logits, targets):
    losses = [
        -torch.log(F.softmax(z, dim=0)[y])
        for z, y in zip(logits, targets, strict=True)
        if y != -100
    ]
    return torch.stack(losses).mean() if losses else torch.zeros(())


def over_rows(logits, targets):
    seen = targets >= 0
    if seen.sum() == 0:
        return torch.zeros(())
    z, y = logits[seen], targets[seen]
    top = torch.max(z, dim=0).values
    total = torch.exp(z - top).sum(dim=0).log() + top
    return (total[y] - z.gather(1, y[:, None])[:, 0]).mean()


def no_ignore(logits, targets):
    nats = [
        reduce(torch.logaddexp, row) - row[y]
        for row, y in zip(logits, targets, strict=True)
    ]
    return sum(nats) / len(nats)


def all_counted(logits, targets):
    counts = targets != -100
    safe = torch.where(counts, targets, 0)
    top = logits.amax(-1)
    total = (logits - top[:, None]).exp().sum(-1).log() + top
    nats = total - logits.gather(-1, safe[:, None]).squeeze(-1)
    return torch.where(counts, nats, 0.0).mean()


def empty_nan(logits, targets):
    counts = targets != -100
    safe = targets.clamp(min=0)
    top = logits.amax(-1)
    total = (logits - top[:, None]).exp().sum(-1).log() + top
    nats = total - logits[range(len(safe)), safe]
    return (nats * counts).sum() / counts.sum()


def summed(logits, targets):
    return row_by_row(logits, targets) * (targets != -100).sum()


# -- stable: mistakes that the catalogue does not have -----------------------
def clipped(logits, targets):
    return row_by_row(logits.clamp(-50, 50), targets)


def padding_is_token_0(logits, targets):
    return row_by_row(logits, targets.clamp(min=0))


def margin(logits, targets):
    # How far the right one lies below the best one.
    keep = targets != -100
    z, y = logits[keep], targets[keep]
    return (z.amax(-1) - z[torch.arange(len(y)), y]).sum() / max(len(y), 1)


def only_of_the_right_sign(logits, targets):
    keep = targets != -100
    if not keep.any():
        return torch.zeros(())
    z, y = logits[keep], targets[keep]
    z = z - z.max()  # of the whole batch, not of the row
    p = z.exp() / (z.exp().sum(-1, keepdim=True) + 1e-9)
    return -(p[torch.arange(len(y)), y] + 1e-9).log().mean()


# -- gradient ----------------------------------------------------------------
def entry_by_entry(logits, targets):
    n = max(sum(y != -100 for y in targets.tolist()), 1)
    out = torch.zeros_like(logits)
    for i, y in enumerate(targets.tolist()):
        if y == -100:
            continue
        p = (logits[i] - logits[i].logsumexp(0)).exp()
        for j in range(len(p)):
            out[i, j] = (p[j] - float(j == y)) / n
    return out


def by_scatter(logits, targets):
    counts = targets.ge(0)
    ones = torch.ones_like(logits[:, :1])
    p = torch.softmax(logits, 1)
    p = p.scatter_add(1, targets.relu()[:, None], -ones)
    return p.masked_fill(~counts[:, None], 0) / max(counts.sum(), 1)


def by_jacobian(logits, targets):
    # Through the softmax the long way: −1/p at the right one, times dp/dz.
    p = logits.softmax(-1)
    jacobian = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    keep = (targets != -100).double()
    y = F.one_hot(targets.clamp(0), logits.size(1)) * keep[:, None]
    pulls = torch.einsum("nj,njk->nk", -y / p, jacobian)
    return pulls / keep.sum().clamp(min=1)


def pieces(logits, targets):
    counts = targets != -100
    y = torch.eye(logits.size(1), dtype=logits.dtype)[targets.clamp(min=0)]
    return logits.softmax(-1), y, counts[:, None].to(logits)


def swapped(logits, targets):
    p, y, counts = pieces(logits, targets)
    return counts * (y - p) / counts.sum().clamp(min=1)


def by_sum(logits, targets):
    p, y, counts = pieces(logits, targets)
    return torch.where(counts.bool(), p - y, 0.0)


def gradient_all_counted(logits, targets):
    p, y, counts = pieces(logits, targets)
    return (p - y) * counts / logits.shape[0]


def gradient_no_ignore(logits, targets):
    slope = logits.softmax(-1)
    slope[torch.arange(len(targets)), targets] -= 1
    return slope / len(targets)


def softmax_twice(logits, targets):
    return entry_by_entry(logits.softmax(-1), targets)


def pads_pushed_down(logits, targets):
    p, y, counts = pieces(logits, targets)
    return (p - y * counts) / counts.sum().clamp(min=1)


def over_the_vocabulary(logits, targets):
    return entry_by_entry(logits, targets) / logits.size(1)


# -- mended ------------------------------------------------------------------
def transposed(logits, targets):
    return F.cross_entropy(logits.transpose(1, 2), targets)


def picked(logits, targets):
    keep = targets != -100
    z, y = logits[keep], targets[keep]
    return -z.log_softmax(-1).gather(1, y.unsqueeze(1)).mean()


def through_log_probabilities(logits, targets):
    # log_softmax first is harmless.
    log_p = torch.log(torch.softmax(logits, dim=2))
    return F.cross_entropy(log_p.permute(0, 2, 1), targets)


def sentence_by_sentence(logits, targets):
    sums = [
        F.cross_entropy(z, y, reduction="sum")
        for z, y in zip(logits, targets, strict=True)
    ]
    return sum(sums) / (targets != -100).sum()


def softmax_first(logits, targets):
    return transposed(F.softmax(logits, dim=-1), targets)


def nll(logits, targets):
    return F.nll_loss(logits.flatten(0, 1), targets.flatten())


def viewed(logits, targets):
    b, t, v = logits.shape
    return F.cross_entropy(logits.contiguous().view(b, v, t), targets)


def mended_all_counted(logits, targets):
    nats = F.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), reduction="sum"
    )
    return nats / targets.numel()


def mean_of_means(logits, targets):
    return torch.stack(
        [F.cross_entropy(z, y) for z, y in zip(logits, targets, strict=True)]
    ).mean()


def last_only(logits, targets):
    return F.cross_entropy(
        logits[:, -2:].flatten(0, 1), targets[:, -2:].flatten()
    )


def shifted_again(logits, targets):
    return F.cross_entropy(
        logits[:, :-1].flatten(0, 1), targets[:, 1:].flatten()
    )


def over_time(logits, targets):
    log_p = logits.log_softmax(1)
    return F.nll_loss(log_p.flatten(0, 1), targets.flatten())


# -- smooth ------------------------------------------------------------------
def pytorchs(logits, targets, epsilon):
    # Not what the exercise wants to see, but the same number.
    total = logits.logsumexp(-1)
    right = logits.gather(1, targets[:, None])[:, 0]
    return (total - (1 - epsilon) * right - epsilon * logits.mean(-1)).mean()


def with_target(logits, targets, epsilon):
    n, size = logits.shape
    y = torch.full((n, size), epsilon / size, dtype=logits.dtype)
    y[range(n), targets] += 1 - epsilon
    return -(y * torch.log_softmax(logits, 1)).sum() / n


def two_losses(logits, targets, epsilon):
    # The usual loss, mixed with the mean loss over every possible target.
    size = logits.size(1)
    every = [
        F.nll_loss(logits.log_softmax(1), torch.full_like(targets, j))
        for j in range(size)
    ]
    usual = F.nll_loss(logits.log_softmax(1), targets)
    return (1 - epsilon) * usual + epsilon * sum(every) / size


def asked(logits, targets, right, other):
    """The loss if each row asks for these two numbers."""
    total = 0.0
    for z, t in zip(logits, targets.tolist(), strict=True):
        nats = z.logsumexp(0) - z
        for j in range(len(z)):
            total = total + nats[j] * (right if j == t else other)
    return total / len(targets)


def others_only(logits, targets, epsilon):
    return asked(logits, targets, 1 - epsilon, epsilon / (logits.size(1) - 1))


def overwritten(logits, targets, epsilon):
    return asked(logits, targets, 1 - epsilon, epsilon / logits.size(1))


def not_shared(logits, targets, epsilon):
    log_p = logits.log_softmax(-1)
    right = log_p[torch.arange(len(targets)), targets]
    return -((1 - epsilon) * right + epsilon * log_p.sum(-1)).mean()


def smooths_p(logits, targets, epsilon):
    p = torch.softmax(logits, -1)
    p = (1 - epsilon) * p + epsilon / p.size(-1)
    return F.nll_loss(torch.log(p), targets)


def always_a_tenth(logits, targets, epsilon):
    return pytorchs(logits, targets, 0.1)


def shares_swapped(logits, targets, epsilon):
    return pytorchs(logits, targets, 1 - epsilon)


def above_the_floor(logits, targets, epsilon):
    size = logits.size(1)
    right = 1 - epsilon + epsilon / size
    other = epsilon / size
    floor = -(right * math.log(right) + (size - 1) * other * math.log(other))
    return pytorchs(logits, targets, epsilon) - floor


def reversed_roles(logits, targets, epsilon):
    # Logits mixed, not their losses.
    return pytorchs((1 - epsilon) * logits, targets, 0.0)


# -- whole_perplexity --------------------------------------------------------
def all_targets(parts):
    # One surprise for each target, written out.
    every = [nats for nats, count in parts for _ in range(count)]
    return math.exp(math.fsum(every) / len(every))


def running_mean(parts):
    mean, n = 0.0, 0
    for nats, count in parts:
        if count:
            n += count
            mean += (nats - mean) * count / n
    return torch.tensor(mean, dtype=torch.float64).exp()


def geometric(parts):
    n = sum(count for _, count in parts)
    return math.prod(
        math.exp(nats) ** float(Fraction(count, n)) for nats, count in parts
    )


def perplexity_of_means(parts):
    means = torch.tensor([nats for nats, _ in parts], dtype=torch.float64)
    return means.mean().exp().item()


def mean_of_perplexities(parts):
    each = [math.exp(nats) for nats, _ in parts]
    return sum(each) / len(each)


def weighted_perplexities(parts):
    n = sum(c for _, c in parts)
    return sum(math.exp(nats) * c / n for nats, c in parts)


def base_2(parts):
    return 2.0 ** math.log(all_targets(parts))


def at_least_one(parts):
    counts = [max(c, 1) for _, c in parts]
    total = sum(nats * c for (nats, _), c in zip(parts, counts, strict=True))
    return math.exp(total / sum(counts))


def last_batch_dropped(parts):
    return all_targets(parts[:-1] or parts)


def total_not_divided(parts):
    return math.exp(min(sum(nats * c for nats, c in parts), 700))


def negative(parts):
    return 1 / all_targets(parts)


# -- per_byte ----------------------------------------------------------------
def encoded_by_characters(models, text):
    size = sum(len(c.encode()) for c in text)
    found = []
    for bits, tokens in models:
        whole = math.log(2**bits) * tokens
        found.append(whole / size)
    return found


def through_probability(models, text):
    # A text's probability, taken to the power of one over its bytes.
    n = len(bytes(text, "utf8"))
    return [-math.log(0.5 ** (bits * tokens / n)) for bits, tokens in models]


def as_tensor(models, text):
    table = torch.tensor(models, dtype=torch.float64)
    nats = table.prod(dim=1) / math.log2(math.e)
    return (nats / len(text.encode("utf-8"))).tolist()


def characters(models, text):
    return [b * math.log(2) * n / sum(1 for _ in text) for b, n in models]


def not_converted(models, text):
    return [bits * n / len(text.encode()) for bits, n in models]


def wrong_way(models, text):
    return [bits / math.log(2) * n / len(text.encode()) for bits, n in models]


def times_bytes_per_token(models, text):
    size = len(text.encode())
    return [bits * math.log(2) * size / n for bits, n in models]


def words(models, text):
    size = len(text.split())
    return [bits * math.log(2) * n / size for bits, n in models]


def tokens_of_the_first(models, text):
    size, n = len(text.encode()), models[0][1]
    return [bits * math.log(2) * n / size for bits, _ in models]


def one_maximum(logits, targets):
    rows = targets != -100
    if not rows.any():
        return logits.new_zeros(())
    shifted = logits[rows] - logits[rows].max()
    log_p = shifted - shifted.exp().sum(-1, keepdim=True).log()
    return -log_p.gather(-1, targets[rows][:, None]).mean()


def mean_off(logits, targets):
    nats = [
        (z - z.mean()).exp().sum().log() - (z - z.mean())[y]
        for z, y in zip(logits, targets, strict=True)
        if y != -100
    ]
    return torch.stack(nats).mean() if nats else torch.tensor(0.0)


def squared_error(logits, targets):
    p, y, counts = pieces(logits, targets)
    return 2 * (p - y) * p * (1 - p) * counts / counts.sum().clamp(min=1)


def first_only(logits, targets):
    return F.cross_entropy(logits[:, 0], targets[:, 0])


def gradient_empty_nan(logits, targets):
    p, y, counts = pieces(logits, targets)
    return (p - y) * counts / counts.sum()


def others_mean(parts):
    total = n = 0
    for nats, count in parts:
        if count > 0:
            total, n = total + nats, n + 1
    return math.exp(total / n)


RIGHT = {
    "stable": [row_by_row, with_one_hot, by_margins],
    "gradient": [entry_by_entry, by_scatter, by_jacobian],
    "mended": [
        transposed,
        picked,
        through_log_probabilities,
        sentence_by_sentence,
    ],
    "smooth": [pytorchs, with_target, two_losses],
    "whole_perplexity": [all_targets, running_mean, geometric],
    "per_byte": [encoded_by_characters, through_probability, as_tensor],
}
WRONG = {
    "stable": {
        "naive": naive,
        "softmax_log": softmax_log,
        "over_rows": over_rows,
        "no_ignore": no_ignore,
        "all_counted": all_counted,
        "empty_nan": empty_nan,
        "sum": summed,
        "one_maximum": one_maximum,
    },
    "gradient": {
        "swapped": swapped,
        "by_sum": by_sum,
        "all_counted": gradient_all_counted,
        "no_ignore": gradient_no_ignore,
        "pads_pushed": pads_pushed_down,
        "empty_nan": gradient_empty_nan,
    },
    "mended": {
        "softmax_first": softmax_first,
        "nll": nll,
        "viewed": viewed,
        "all_counted": mended_all_counted,
        "mean_of_means": mean_of_means,
        "shifted_again": shifted_again,
    },
    "smooth": {
        "others_only": others_only,
        "overwritten": overwritten,
        "not_shared": not_shared,
        "smooths_p": smooths_p,
    },
    "whole_perplexity": {
        "mean_of_means": perplexity_of_means,
        "mean_of_perplexities": mean_of_perplexities,
        "weighted_perplexities": weighted_perplexities,
        "base_2": base_2,
        "others_mean": others_mean,
    },
    "per_byte": {
        "characters": characters,
        "not_converted": not_converted,
        "wrong_way": wrong_way,
    },
}
OUTSIDE = {
    "stable": [
        clipped,
        padding_is_token_0,
        margin,
        only_of_the_right_sign,
        mean_off,
    ],
    "gradient": [squared_error, softmax_twice, over_the_vocabulary],
    "mended": [first_only, last_only, over_time],
    "smooth": [
        always_a_tenth,
        shares_swapped,
        above_the_floor,
        reversed_roles,
    ],
    "whole_perplexity": [
        at_least_one,
        last_batch_dropped,
        total_not_divided,
        negative,
    ],
    "per_byte": [times_bytes_per_token, words, tokens_of_the_first],
}
