"""Answers to the exercises of chapter 10."""

import math
from fractions import Fraction
from functools import reduce

import numpy as np
import torch
from torch.nn import functional as F

from tests.answers import right, wrong

# -- stable ------------------------------------------------------------------


@right("loss/stable")
def stable_weighted(logits, targets):
    z = logits - logits.amax(1, keepdim=True)
    counted = targets.ne(-100)
    picked = z.gather(1, targets.clamp(min=0)[:, None])[:, 0]
    nats = torch.log(torch.exp(z).sum(1)) - picked
    total = torch.where(counted, nats, 0.0).sum()
    return total / max(int(counted.sum()), 1)


@right("loss/stable")
def folded(logits, targets):
    def join(a, b):
        high, low = torch.maximum(a, b), torch.minimum(a, b)
        return high + torch.log1p(torch.exp(low - high))

    keep = targets != -100
    if not keep.any():
        return logits.new_zeros(())
    rows, answers = logits[keep], targets[keep]
    total = rows[:, 0]
    for column in range(1, rows.shape[1]):
        total = join(total, rows[:, column])
    hit = rows.gather(1, answers.unsqueeze(1)).squeeze(1)
    return (total - hit).mean()


@right("loss/stable")
def row_by_row(logits, targets):
    surprises = []
    for row, answer in zip(logits.double(), targets.tolist(), strict=True):
        if answer == -100:
            continue
        above = row - row[answer]
        top = above.max()
        surprises.append(top + (above - top).exp().sum().log())
    if not surprises:
        return torch.tensor(0.0, dtype=logits.dtype)
    return torch.stack(surprises).mean().to(logits.dtype)


@right("loss/stable")
def stable_row_by_row(logits, targets):
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


@right("loss/stable")
def with_one_hot(logits, targets):
    counts = (targets != -100).to(logits)
    y = F.one_hot(targets.clamp(min=0), logits.shape[-1]) * counts[:, None]
    top = logits.max(-1, keepdim=True)[0]
    total = torch.exp(logits - top).sum(-1).log() + top[:, 0]
    return (counts * total - (y * logits).sum(-1)).sum() / counts.sum().clamp(
        min=1
    )


@right("loss/stable")
def by_margins(logits, targets):
    # ln Σ e^(z - z_y), added up pairwise: no largest logit is looked for.
    rows = [
        reduce(torch.logaddexp, row - row[y])
        for row, y in zip(logits, targets, strict=True)
        if y >= 0
    ]
    return torch.stack(rows).mean() if rows else logits.new_zeros(())


@wrong("loss/stable", "all_counted")
def stable_mean_of_all(logits, targets):
    z = logits - logits.amax(-1, keepdim=True)
    log_p = z - z.exp().sum(-1, keepdim=True).log()
    keep = targets != -100
    picked = log_p[torch.arange(len(z)), targets * keep]
    return -(picked * keep).mean()


@wrong("loss/stable", "empty_nan")
def nothing_is_nan(logits, targets):
    keep = targets != -100
    z, y = logits[keep], targets[keep]
    z = z - z.amax(-1, keepdim=True)
    return (z.exp().sum(-1).log() - z[torch.arange(len(z)), y]).mean()


@wrong("loss/stable", "one_maximum")
def one_maximum(logits, targets):
    keep = targets != -100
    z, y = logits[keep], targets[keep]
    if len(z) == 0:
        return logits.new_zeros(())
    z = z - z.max()
    nats = z.exp().sum(-1).log() - z[torch.arange(len(z)), y]
    return nats.mean()


@wrong("loss/stable", "naive")
def overflows(logits, targets):
    keep = targets != -100
    if keep.sum() == 0:
        return logits.sum() * 0
    z, y = logits[keep], targets[keep]
    e = torch.exp(z)
    p = e[range(len(z)), y] / e.sum(dim=-1)
    return -torch.log(p).mean()


@wrong("loss/stable", "softmax_log")
def softmax_log(logits, targets):
    losses = [
        -torch.log(F.softmax(z, dim=0)[y])
        for z, y in zip(logits, targets, strict=True)
        if y != -100
    ]
    return torch.stack(losses).mean() if losses else torch.zeros(())


@wrong("loss/stable", "over_rows")
def over_rows(logits, targets):
    seen = targets >= 0
    if seen.sum() == 0:
        return torch.zeros(())
    z, y = logits[seen], targets[seen]
    top = torch.max(z, dim=0).values
    total = torch.exp(z - top).sum(dim=0).log() + top
    return (total[y] - z.gather(1, y[:, None])[:, 0]).mean()


@wrong("loss/stable", "no_ignore")
def no_ignore(logits, targets):
    nats = [
        reduce(torch.logaddexp, row) - row[y]
        for row, y in zip(logits, targets, strict=True)
    ]
    return sum(nats) / len(nats)


@wrong("loss/stable", "sum")
def summed(logits, targets):
    return stable_row_by_row(logits, targets) * (targets != -100).sum()


@wrong("loss/stable")
def mean_off(logits, targets):
    nats = [
        (z - z.mean()).exp().sum().log() - (z - z.mean())[y]
        for z, y in zip(logits, targets, strict=True)
        if y != -100
    ]
    return torch.stack(nats).mean() if nats else torch.tensor(0.0)


@wrong("loss/stable")
def log_of_softmax_plus(logits, targets):
    keep = targets != -100
    if not keep.any():
        return torch.zeros((), dtype=logits.dtype)
    p = logits[keep].softmax(dim=-1)
    p = p[torch.arange(len(p)), targets[keep]]
    return -(p + 1e-9).log().mean()


# Logits are clamped to 50 instead of shifted, which changes large ones.
@wrong("loss/stable")
def clamped(logits, targets):
    keep = targets != -100
    if not bool(keep.any()):
        return logits.new_tensor(0.0)
    z = logits[keep].clamp(-50, 50)
    y = targets[keep]
    return (z.exp().sum(1).log() - z[torch.arange(len(y)), y]).mean()


# -- gradient ----------------------------------------------------------------


@right("loss/gradient")
def number_by_number(logits, targets):
    z = logits.detach().cpu().numpy().astype(np.float64)
    y = targets.tolist()
    n = sum(1 for answer in y if answer != -100)
    slope = np.zeros(z.shape)
    for i, answer in enumerate(y):
        if answer == -100:
            continue
        e = [math.exp(x - max(z[i])) for x in z[i]]
        for j in range(len(e)):
            slope[i, j] = (e[j] / sum(e) - (1 if j == answer else 0)) / n
    return torch.from_numpy(slope).to(logits.dtype)


@right("loss/gradient")
def minus_one(logits, targets):
    slope = torch.zeros_like(logits)
    (at,) = torch.nonzero(targets != -100, as_tuple=True)
    if at.numel():
        p = torch.softmax(logits[at], -1)
        spot = (torch.arange(at.numel()), targets[at])
        p.index_put_(
            spot, -torch.ones(len(at), dtype=p.dtype), accumulate=True
        )
        slope[at] = p / at.numel()
    return slope


@right("loss/gradient")
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


@right("loss/gradient")
def by_scatter(logits, targets):
    counts = targets.ge(0)
    ones = torch.ones_like(logits[:, :1])
    p = torch.softmax(logits, 1)
    p = p.scatter_add(1, targets.relu()[:, None], -ones)
    return p.masked_fill(~counts[:, None], 0) / max(counts.sum(), 1)


@right("loss/gradient")
def by_jacobian(logits, targets):
    # Through the softmax the long way: −1/p at the right one, times dp/dz.
    p = logits.softmax(-1)
    jacobian = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    keep = (targets != -100).double()
    y = F.one_hot(targets.clamp(0), logits.size(1)) * keep[:, None]
    pulls = torch.einsum("nj,njk->nk", -y / p, jacobian)
    return pulls / keep.sum().clamp(min=1)


@wrong("loss/gradient", "all_counted")
def gradient_over_all_rows(logits, targets):
    keep = targets != -100
    hot = F.one_hot(targets.clamp(min=0), logits.size(1))
    return (logits.softmax(1) - hot) * keep[:, None] / len(targets)


@wrong("loss/gradient", "by_sum")
def of_the_sum(logits, targets):
    keep = targets != -100
    y = F.one_hot(targets.clamp(min=0), logits.size(-1))
    return (logits.softmax(-1) - y) * keep[:, None]


@wrong("loss/gradient", "pads_pushed")
def padding_pulls(logits, targets):
    keep = targets != -100
    one_hot = torch.zeros_like(logits)
    one_hot[keep, targets[keep]] = 1
    return (logits.softmax(-1) - one_hot) / keep.sum().clamp(min=1)


@wrong("loss/gradient", "swapped")
def uphill(logits, targets):
    keep = targets != -100
    one_hot = F.one_hot(targets * keep, logits.size(1))
    gap = one_hot - logits.softmax(1)
    return gap * keep[:, None] / keep.sum().clamp(min=1)


@wrong("loss/gradient", "empty_nan")
def nan_if_nothing(logits, targets):
    keep = (targets != -100).to(logits.dtype)
    one_hot = F.one_hot(targets.clamp(min=0), logits.size(1))
    return (logits.softmax(1) - one_hot) * (keep / keep.sum())[:, None]


@wrong("loss/gradient", "no_ignore")
def gradient_no_ignore(logits, targets):
    slope = logits.softmax(-1)
    slope[torch.arange(len(targets)), targets] -= 1
    return slope / len(targets)


# Returns the rows that count only, not (N, V).
@wrong("loss/gradient")
def only_the_counted(logits, targets):
    keep = targets != -100
    p = logits[keep].softmax(-1)
    p[torch.arange(len(p)), targets[keep]] -= 1
    return p / max(len(p), 1)


@wrong("loss/gradient")
def softmax_twice(logits, targets):
    return entry_by_entry(logits.softmax(-1), targets)


@wrong("loss/gradient")
def over_the_vocabulary(logits, targets):
    return entry_by_entry(logits, targets) / logits.size(1)


# -- mended ------------------------------------------------------------------


@right("loss/mended")
def mended_moved_axis(logits, targets):
    return F.cross_entropy(logits.movedim(-1, 1), targets)


@right("loss/mended")
def twice_is_once(logits, targets):
    flat = logits.log_softmax(-1).log_softmax(-1).flatten(0, 1)
    y = targets.flatten()
    total = F.nll_loss(flat, y, reduction="sum", ignore_index=-100)
    return total / (y != -100).sum().clamp(min=1)


@right("loss/mended")
def text_by_text(logits, targets):
    total, count = 0.0, 0
    for z, y in zip(logits, targets, strict=True):
        total = total + F.cross_entropy(z, y, reduction="sum")
        count += int((y != -100).sum())
    return total / max(count, 1)


@right("loss/mended")
def transposed(logits, targets):
    return F.cross_entropy(logits.transpose(1, 2), targets)


@right("loss/mended")
def picked(logits, targets):
    keep = targets != -100
    z, y = logits[keep], targets[keep]
    return -z.log_softmax(-1).gather(1, y.unsqueeze(1)).mean()


@right("loss/mended")
def through_log_probabilities(logits, targets):
    # log_softmax first is harmless.
    log_p = torch.log(torch.softmax(logits, dim=2))
    return F.cross_entropy(log_p.permute(0, 2, 1), targets)


@right("loss/mended")
def sentence_by_sentence(logits, targets):
    sums = [
        F.cross_entropy(z, y, reduction="sum")
        for z, y in zip(logits, targets, strict=True)
    ]
    return sum(sums) / (targets != -100).sum()


@wrong("loss/mended", "softmax_first")
def mended_softmax_twice(logits, targets):
    p = logits.softmax(-1)
    return F.cross_entropy(p.flatten(0, 1), targets.flatten())


@wrong("loss/mended", "viewed")
def mended_still_viewed(logits, targets):
    B, T, V = logits.shape
    return F.cross_entropy(logits.view(B, V, T), targets)


@wrong("loss/mended", "mean_of_means")
def mended_mean_of_means(logits, targets):
    return torch.stack(
        [F.cross_entropy(z, y) for z, y in zip(logits, targets, strict=True)]
    ).mean()


@wrong("loss/mended", "nll")
def nll_of_logits(logits, targets):
    return F.nll_loss(logits.flatten(0, 1), targets.flatten())


@wrong("loss/mended", "shifted_again")
def shifted_again(logits, targets):
    z, y = logits[:, :-1], targets[:, 1:]
    return F.cross_entropy(z.transpose(1, 2), y)


@wrong("loss/mended", "all_counted")
def mended_all_counted(logits, targets):
    nats = F.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), reduction="sum"
    )
    return nats / targets.numel()


@wrong("loss/mended")
def first_only(logits, targets):
    return F.cross_entropy(logits[:, 0], targets[:, 0])


@wrong("loss/mended")
def over_time(logits, targets):
    log_p = logits.log_softmax(1)
    return F.nll_loss(log_p.flatten(0, 1), targets.flatten())


@wrong("loss/mended")
def last_only(logits, targets):
    return F.cross_entropy(
        logits[:, -2:].flatten(0, 1), targets[:, -2:].flatten()
    )


# -- smooth ------------------------------------------------------------------


@right("loss/smooth")
def divergence_plus_entropy(logits, targets, epsilon):
    V = logits.size(-1)
    wanted = torch.full_like(logits, epsilon / V)
    rows = torch.arange(len(targets))
    wanted[rows, targets] = 1 - epsilon + epsilon / V
    entropy = torch.special.entr(wanted).sum(-1)
    log_p = logits.log_softmax(-1)
    kl = (torch.special.xlogy(wanted, wanted) - wanted * log_p).sum(-1)
    return (entropy + kl).mean()


@right("loss/smooth")
def by_einsum(logits, targets, epsilon):
    n, v = logits.shape
    eye = torch.eye(v, dtype=logits.dtype)
    y = (1 - epsilon) * eye[targets] + epsilon / v
    return -torch.einsum("nv,nv->", y, logits.log_softmax(1)) / n


@right("loss/smooth")
def pytorchs(logits, targets, epsilon):
    # Not what the exercise wants to see, but the same number.
    total = logits.logsumexp(-1)
    right = logits.gather(1, targets[:, None])[:, 0]
    return (total - (1 - epsilon) * right - epsilon * logits.mean(-1)).mean()


@right("loss/smooth")
def with_target(logits, targets, epsilon):
    n, size = logits.shape
    y = torch.full((n, size), epsilon / size, dtype=logits.dtype)
    y[range(n), targets] += 1 - epsilon
    return -(y * torch.log_softmax(logits, 1)).sum() / n


@right("loss/smooth")
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


@wrong("loss/smooth", "others_only")
def others_only(logits, targets, epsilon):
    return asked(logits, targets, 1 - epsilon, epsilon / (logits.size(1) - 1))


@wrong("loss/smooth", "overwritten")
def overwritten(logits, targets, epsilon):
    return asked(logits, targets, 1 - epsilon, epsilon / logits.size(1))


@wrong("loss/smooth", "not_shared")
def sum_over_tokens(logits, targets, epsilon):
    log_p = logits.log_softmax(-1)
    usual = F.nll_loss(log_p, targets)
    return (1 - epsilon) * usual - epsilon * log_p.sum(-1).mean()


@wrong("loss/smooth", "smooths_p")
def smoothed_prediction(logits, targets, epsilon):
    p = logits.softmax(-1)
    p = (1 - epsilon) * p + epsilon / logits.size(-1)
    return F.nll_loss(p.log(), targets)


# Epsilon is 0.1 whatever is given.
@wrong("loss/smooth")
def always_a_tenth(logits, targets, epsilon):
    log_p = logits.log_softmax(-1)
    return 0.9 * F.nll_loss(log_p, targets) - 0.1 * log_p.mean()


@wrong("loss/smooth")
def smooth_always_a_tenth(logits, targets, epsilon):
    return pytorchs(logits, targets, 0.1)


@wrong("loss/smooth")
def reversed_roles(logits, targets, epsilon):
    # Logits mixed, not their losses.
    return pytorchs((1 - epsilon) * logits, targets, 0.0)


# -- whole_perplexity --------------------------------------------------------


@right("loss/whole_perplexity")
def product_of_powers(parts):
    counted = [(float(nats), int(n)) for nats, n in parts if n]
    n_all = sum(n for _, n in counted)
    result = 1.0
    for nats, n in counted:
        result *= math.exp(nats * n / n_all)
    return result


@right("loss/whole_perplexity")
def running_mean(parts):
    mean, seen = 0.0, 0
    for loss, count in parts:
        if count == 0:
            continue
        seen += count
        mean += (loss - mean) * count / seen
    return math.exp(mean)


@right("loss/whole_perplexity")
def all_targets(parts):
    # One surprise for each target, written out.
    every = [nats for nats, count in parts for _ in range(count)]
    return math.exp(math.fsum(every) / len(every))


@right("loss/whole_perplexity")
def whole_perplexity_running_mean(parts):
    mean, n = 0.0, 0
    for nats, count in parts:
        if count:
            n += count
            mean += (nats - mean) * count / n
    return torch.tensor(mean, dtype=torch.float64).exp()


@right("loss/whole_perplexity")
def geometric(parts):
    n = sum(count for _, count in parts)
    return math.prod(
        math.exp(nats) ** float(Fraction(count, n)) for nats, count in parts
    )


@wrong("loss/whole_perplexity", "weighted_perplexities")
def perplexities_averaged(parts):
    n = sum(count for _, count in parts)
    return sum(math.exp(loss) * count for loss, count in parts) / n


@wrong("loss/whole_perplexity", "others_mean")
def mean_of_means(parts):
    losses = [loss for loss, n in parts if n > 0]
    return math.exp(sum(losses) / len(losses))


@wrong("loss/whole_perplexity", "base_2")
def power_of_two(parts):
    parts = [(loss, n) for loss, n in parts if n]
    mean = sum(loss * n for loss, n in parts) / sum(n for _, n in parts)
    return 2**mean


@wrong("loss/whole_perplexity", "mean_of_means")
def perplexity_of_means(parts):
    means = torch.tensor([nats for nats, _ in parts], dtype=torch.float64)
    return means.mean().exp().item()


@wrong("loss/whole_perplexity", "mean_of_perplexities")
def mean_of_perplexities(parts):
    each = [math.exp(nats) for nats, _ in parts]
    return sum(each) / len(each)


# The sum of all surprises is divided by the number of batches.
@wrong("loss/whole_perplexity")
def by_batches(parts):
    parts = [(loss, n) for loss, n in parts if n]
    return float(np.exp(sum(loss * n for loss, n in parts) / len(parts)))


@wrong("loss/whole_perplexity")
def last_batch_dropped(parts):
    return all_targets(parts[:-1] or parts)


@wrong("loss/whole_perplexity")
def total_not_divided(parts):
    return math.exp(min(sum(nats * c for nats, c in parts), 700))


# -- per_byte ----------------------------------------------------------------


@right("loss/per_byte")
def counted_by_code_point(models, text):
    n_bytes = 0
    for sign in text:
        point = ord(sign)
        n_bytes += 1 + (point > 0x7F) + (point > 0x7FF) + (point > 0xFFFF)
    answer = []
    for bits, n_tokens in models:
        answer.append(bits * n_tokens / math.log2(math.e) / n_bytes)
    return answer


@right("loss/per_byte")
def encoded_by_characters(models, text):
    size = sum(len(c.encode()) for c in text)
    found = []
    for bits, tokens in models:
        whole = math.log(2**bits) * tokens
        found.append(whole / size)
    return found


@right("loss/per_byte")
def through_probability(models, text):
    # A text's probability, taken to the power of one over its bytes.
    n = len(bytes(text, "utf8"))
    return [-math.log(0.5 ** (bits * tokens / n)) for bits, tokens in models]


@right("loss/per_byte")
def as_tensor(models, text):
    table = torch.tensor(models, dtype=torch.float64)
    nats = table.prod(dim=1) / math.log2(math.e)
    return (nats / len(text.encode("utf-8"))).tolist()


@wrong("loss/per_byte", "characters")
def per_character(models, text):
    return [bits * math.log(2) * n / len(text) for bits, n in models]


@wrong("loss/per_byte", "wrong_way")
def per_byte_divided(models, text):
    size = len(text.encode())
    return [bits / math.log(2) * n / size for bits, n in models]


@wrong("loss/per_byte", "not_converted")
def still_bits(models, text):
    size = len(text.encode("utf-8"))
    return [bits * n / size for bits, n in models]


# A generator, not a list.
@wrong("loss/per_byte")
def lazy(models, text):
    size = len(text.encode("utf-8"))
    return (math.log(2) * bits * n / size for bits, n in models)


@wrong("loss/per_byte")
def times_bytes_per_token(models, text):
    size = len(text.encode())
    return [bits * math.log(2) * size / n for bits, n in models]


@wrong("loss/per_byte")
def tokens_of_the_first(models, text):
    size, n = len(text.encode()), models[0][1]
    return [bits * math.log(2) * n / size for bits, _ in models]
