"""Answers to chapter 10, written from its page alone."""

import math

import numpy as np
import torch
from torch.nn import functional as F

from tests.wild import right, wrong

# loss/stable


@right("loss/stable", "a fold over the columns, two numbers at a time")
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


@right("loss/stable", "a Python loop over the rows, in float64")
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


@wrong(
    "loss/stable",
    "the maximum of the whole batch, not of its row, is "
    "subtracted, so that other rows underflow",
    classic=True,
)
def one_maximum(logits, targets):
    keep = targets != -100
    z, y = logits[keep], targets[keep]
    if len(z) == 0:
        return logits.new_zeros(())
    z = z - z.max()
    nats = z.exp().sum(-1).log() - z[torch.arange(len(z)), y]
    return nats.mean()


@wrong(
    "loss/stable",
    "the logarithm of a softmax, with a small number "
    "added, so that no loss exceeds some 20 nats",
    classic=True,
)
def log_of_softmax_plus(logits, targets):
    keep = targets != -100
    if not keep.any():
        return torch.zeros((), dtype=logits.dtype)
    p = logits[keep].softmax(dim=-1)
    p = p[torch.arange(len(p)), targets[keep]]
    return -(p + 1e-9).log().mean()


@wrong(
    "loss/stable",
    "padding is left out of the sum, but counted in the division",
    classic=True,
)
def divided_by_all(logits, targets):
    counts = targets != -100
    z = logits - logits.max(dim=1, keepdim=True).values
    picked = z.gather(1, targets.clamp(min=0)[:, None])[:, 0]
    nats = z.exp().sum(1).log() - picked
    return (nats * counts).sum() / len(targets)


@wrong("loss/stable", "NaN for a batch in which nothing counts", classic=True)
def nothing_is_nan(logits, targets):
    keep = targets != -100
    z, y = logits[keep], targets[keep]
    z = z - z.amax(-1, keepdim=True)
    return (z.exp().sum(-1).log() - z[torch.arange(len(z)), y]).mean()


@wrong(
    "loss/stable",
    "exponentials of the plain logits, which overflow",
    classic=True,
)
def overflows(logits, targets):
    keep = targets != -100
    if keep.sum() == 0:
        return logits.sum() * 0
    z, y = logits[keep], targets[keep]
    e = torch.exp(z)
    p = e[range(len(z)), y] / e.sum(dim=-1)
    return -torch.log(p).mean()


@wrong(
    "loss/stable",
    "logits are clamped to 50 instead of shifted, which changes large ones",
    classic=False,
)
def clamped(logits, targets):
    keep = targets != -100
    if not bool(keep.any()):
        return logits.new_tensor(0.0)
    z = logits[keep].clamp(-50, 50)
    y = targets[keep]
    return (z.exp().sum(1).log() - z[torch.arange(len(y)), y]).mean()


# loss/gradient


@right("loss/gradient", "numpy inside, one number at a time")
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


@right("loss/gradient", "one is subtracted by index_put_ on the softmax")
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


@wrong("loss/gradient", "the gradient of the sum: not divided", classic=True)
def of_the_sum(logits, targets):
    keep = targets != -100
    y = F.one_hot(targets.clamp(min=0), logits.size(-1))
    return (logits.softmax(-1) - y) * keep[:, None]


@wrong(
    "loss/gradient",
    "divided by the number of all rows, padding included",
    classic=True,
)
def by_all_rows(logits, targets):
    slope = logits.softmax(-1)
    for i, y in enumerate(targets.tolist()):
        if y == -100:
            slope[i] = 0
        else:
            slope[i, y] -= 1
    return slope / len(targets)


@wrong(
    "loss/gradient",
    "padded rows keep their probabilities as a slope",
    classic=True,
)
def padding_pulls(logits, targets):
    keep = targets != -100
    one_hot = torch.zeros_like(logits)
    one_hot[keep, targets[keep]] = 1
    return (logits.softmax(-1) - one_hot) / keep.sum().clamp(min=1)


@wrong(
    "loss/gradient", "target minus probability: the other sign", classic=True
)
def uphill(logits, targets):
    keep = targets != -100
    one_hot = F.one_hot(targets * keep, logits.size(1))
    gap = one_hot - logits.softmax(1)
    return gap * keep[:, None] / keep.sum().clamp(min=1)


@wrong("loss/gradient", "0/0, so NaN, where nothing counts", classic=False)
def nan_if_nothing(logits, targets):
    keep = (targets != -100).to(logits.dtype)
    one_hot = F.one_hot(targets.clamp(min=0), logits.size(1))
    return (logits.softmax(1) - one_hot) * (keep / keep.sum())[:, None]


@wrong(
    "loss/gradient",
    "returns the rows that count only, not (N, V)",
    classic=False,
)
def only_the_counted(logits, targets):
    keep = targets != -100
    p = logits[keep].softmax(-1)
    p[torch.arange(len(p)), targets[keep]] -= 1
    return p / max(len(p), 1)


# loss/mended


@right("loss/mended", "a log-softmax of a log-softmax, then nll_loss")
def twice_is_once(logits, targets):
    flat = logits.log_softmax(-1).log_softmax(-1).flatten(0, 1)
    y = targets.flatten()
    total = F.nll_loss(flat, y, reduction="sum", ignore_index=-100)
    return total / (y != -100).sum().clamp(min=1)


@right("loss/mended", "one text after the other, sums and counts by hand")
def text_by_text(logits, targets):
    total, count = 0.0, 0
    for z, y in zip(logits, targets, strict=True):
        total = total + F.cross_entropy(z, y, reduction="sum")
        count += int((y != -100).sum())
    return total / max(count, 1)


@wrong(
    "loss/mended", "the softmax is gone, the view is still there", classic=True
)
def still_a_view(logits, targets):
    B, T, V = logits.shape
    return F.cross_entropy(logits.view(B, V, T), targets)


@wrong(
    "loss/mended",
    "transposed, but probabilities are still fed to cross_entropy",
    classic=True,
)
def still_a_softmax(logits, targets):
    p = logits.softmax(-1)
    return F.cross_entropy(p.transpose(1, 2), targets)


@wrong(
    "loss/mended",
    "the mean of each text's mean, though texts have unequally many targets",
    classic=True,
)
def mean_of_texts(logits, targets):
    means = [
        F.cross_entropy(z, y)
        for z, y in zip(logits, targets, strict=True)
        if (y != -100).any()
    ]
    return torch.stack(means).mean()


@wrong(
    "loss/mended", "nll_loss on logits, without any logarithm", classic=True
)
def nll_of_logits(logits, targets):
    return F.nll_loss(logits.flatten(0, 1), targets.flatten())


@wrong("loss/mended", "targets are shifted once more", classic=True)
def shifted_again(logits, targets):
    z, y = logits[:, :-1], targets[:, 1:]
    return F.cross_entropy(z.transpose(1, 2), y)


# loss/smooth


@right("loss/smooth", "divergence plus entropy of the smoothed target")
def divergence_plus_entropy(logits, targets, epsilon):
    V = logits.size(-1)
    wanted = torch.full_like(logits, epsilon / V)
    rows = torch.arange(len(targets))
    wanted[rows, targets] = 1 - epsilon + epsilon / V
    entropy = torch.special.entr(wanted).sum(-1)
    log_p = logits.log_softmax(-1)
    kl = (torch.special.xlogy(wanted, wanted) - wanted * log_p).sum(-1)
    return (entropy + kl).mean()


@right("loss/smooth", "a matrix of targets and one einsum")
def by_einsum(logits, targets, epsilon):
    n, v = logits.shape
    eye = torch.eye(v, dtype=logits.dtype)
    y = (1 - epsilon) * eye[targets] + epsilon / v
    return -torch.einsum("nv,nv->", y, logits.log_softmax(1)) / n


@wrong(
    "loss/smooth",
    "the share goes to the V - 1 others, and the right token gets 1 - epsilon",
    classic=True,
)
def to_the_others(logits, targets, epsilon):
    V = logits.size(1)
    y = torch.full_like(logits, epsilon / (V - 1))
    y.scatter_(1, targets[:, None], 1 - epsilon)
    return -(y * logits.log_softmax(1)).sum(1).mean()


@wrong(
    "loss/smooth",
    "the right token gets 1 - epsilon, without its share of epsilon / V",
    classic=True,
)
def sums_to_less(logits, targets, epsilon):
    V = logits.size(1)
    y = torch.full_like(logits, epsilon / V)
    y[torch.arange(len(y)), targets] = 1 - epsilon
    return -(y * logits.log_softmax(1)).sum(1).mean()


@wrong(
    "loss/smooth",
    "epsilon times the sum over all tokens, not the mean",
    classic=True,
)
def sum_over_tokens(logits, targets, epsilon):
    log_p = logits.log_softmax(-1)
    usual = F.nll_loss(log_p, targets)
    return (1 - epsilon) * usual - epsilon * log_p.sum(-1).mean()


@wrong(
    "loss/smooth",
    "the predicted probabilities are smoothed instead of the targets",
    classic=True,
)
def smoothed_prediction(logits, targets, epsilon):
    p = logits.softmax(-1)
    p = (1 - epsilon) * p + epsilon / logits.size(-1)
    return F.nll_loss(p.log(), targets)


@wrong("loss/smooth", "epsilon is 0.1 whatever is given", classic=False)
def always_a_tenth(logits, targets, epsilon):
    log_p = logits.log_softmax(-1)
    return 0.9 * F.nll_loss(log_p, targets) - 0.1 * log_p.mean()


# loss/whole_perplexity


@right("loss/whole_perplexity", "a product of powers, weighted by counts")
def product_of_powers(parts):
    counted = [(float(nats), int(n)) for nats, n in parts if n]
    n_all = sum(n for _, n in counted)
    result = 1.0
    for nats, n in counted:
        result *= math.exp(nats * n / n_all)
    return result


@right("loss/whole_perplexity", "a running mean, updated batch by batch")
def running_mean(parts):
    mean, seen = 0.0, 0
    for loss, count in parts:
        if count == 0:
            continue
        seen += count
        mean += (loss - mean) * count / seen
    return math.exp(mean)


@wrong(
    "loss/whole_perplexity",
    "the mean of the batches' means, however many targets each has",
    classic=True,
)
def mean_of_means(parts):
    losses = [loss for loss, n in parts if n > 0]
    return math.exp(sum(losses) / len(losses))


@wrong(
    "loss/whole_perplexity",
    "the weighted mean of the batches' perplexities",
    classic=True,
)
def mean_of_perplexities(parts):
    parts = [part for part in parts if part[1] > 0]
    total = sum(n for _, n in parts)
    return sum(n * math.exp(loss) for loss, n in parts) / total


@wrong(
    "loss/whole_perplexity", "two to the power of a loss in nats", classic=True
)
def power_of_two(parts):
    parts = [(loss, n) for loss, n in parts if n]
    mean = sum(loss * n for loss, n in parts) / sum(n for _, n in parts)
    return 2**mean


@wrong(
    "loss/whole_perplexity",
    "the sum of all surprises is divided by the number of batches",
    classic=False,
)
def by_batches(parts):
    parts = [(loss, n) for loss, n in parts if n]
    return float(np.exp(sum(loss * n for loss, n in parts) / len(parts)))


# loss/per_byte


@right("loss/per_byte", "bytes counted by code point, nats by log2(e)")
def counted_by_code_point(models, text):
    n_bytes = 0
    for sign in text:
        point = ord(sign)
        n_bytes += 1 + (point > 0x7F) + (point > 0x7FF) + (point > 0xFFFF)
    answer = []
    for bits, n_tokens in models:
        answer.append(bits * n_tokens / math.log2(math.e) / n_bytes)
    return answer


@wrong("loss/per_byte", "divided by characters, not by bytes", classic=True)
def by_characters(models, text):
    return [bits * math.log(2) * n / len(text) for bits, n in models]


@wrong("loss/per_byte", "bits are divided by ln 2", classic=True)
def wrong_way_round(models, text):
    size = len(text.encode())
    return [bits / math.log(2) * n / size for bits, n in models]


@wrong("loss/per_byte", "still in bits", classic=True)
def still_bits(models, text):
    size = len(text.encode("utf-8"))
    return [bits * n / size for bits, n in models]


@wrong("loss/per_byte", "a generator, not a list", classic=False)
def lazy(models, text):
    size = len(text.encode("utf-8"))
    return (math.log(2) * bits * n / size for bits, n in models)
