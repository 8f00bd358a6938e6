"""A fresh half: answers to chapters 0 to 19, written after the others.

Their writer had the text of the exercises alone: no reference, no mistake of
the catalogue for these exercises, none of the other answers. They were marked
and committed before a check saw them. Fourteen that had the name of an earlier
answer were dropped before that, since they would have been no news.
"""

import codecs
import functools
import itertools
import math
from collections import Counter

import torch
from torch import nn
from torch.nn import functional as F

from tests.wild import right, wrong

# Chapter 0


@right("first_model/surprise", "a list of Python floats, summed by fsum")
def surprise_in_plain_floats(logits, target):
    values = logits.tolist()
    above = [value - values[target] for value in values]
    top = max(above)
    return top + math.log(math.fsum(math.exp(a - top) for a in above))


@wrong("first_model/surprise", "the maximum is not put back", classic=True)
def surprise_maximum_not_put_back(logits, target):
    shifted = logits - logits.max()
    return shifted.exp().sum().log() - logits[target]


@wrong("first_model/surprise", "a tiny number inside the log", classic=True)
def surprise_with_an_epsilon(logits, target):
    e = (logits - logits.max()).exp()
    return -torch.log(e[target] / e.sum() + 1e-9)


@right("first_model/evaluate", "sums weighted by the length, split by torch")
def evaluate_by_split(model, ids, batch):
    total = 0.0
    pairs = zip(ids[:-1].split(batch), ids[1:].split(batch), strict=True)
    with torch.no_grad():
        for x, y in pairs:
            total += F.cross_entropy(model(x), y).item() * len(y)
    return total / (len(ids) - 1)


@wrong("first_model/evaluate", "the last batch is dropped", classic=True)
def evaluate_drops_the_last(model, ids, batch):
    losses = []
    for start in range(0, len(ids) - batch, batch):
        x = ids[start : start + batch]
        y = ids[start + 1 : start + 1 + batch]
        with torch.no_grad():
            losses.append(F.cross_entropy(model(x), y).item())
    return sum(losses) / len(losses)


@wrong("first_model/evaluate", "divided by all ids, not targets", classic=True)
def evaluate_by_all_ids(model, ids, batch):
    total = 0.0
    for start in range(0, len(ids) - 1, batch):
        y = ids[start + 1 : start + 1 + batch]
        x = ids[start : start + len(y)]
        with torch.no_grad():
            total += F.cross_entropy(model(x), y, reduction="sum").item()
    return total / len(ids)


@wrong("first_model/deal", "training windows reach past the cut", classic=True)
def deal_starts_before_the_cut(n_text, length):
    cut = int(0.9 * n_text)
    return torch.arange(cut), torch.arange(cut, n_text - length)


@wrong("first_model/deal", "the last target is forgotten", classic=True)
def deal_last_target_forgotten(n_text, length):
    cut = int(0.9 * n_text)
    return torch.arange(cut - length + 1), torch.arange(cut, n_text - length)


@right("first_model/shift", "Python lists, cell by cell")
def shift_cell_by_cell(inputs, targets):
    inputs, targets = inputs.tolist(), targets.tolist()
    for s in (0, 1, -1, 2, -2, 3, -3):
        agree = all(
            y[t] == x[t + s]
            for x, y in zip(inputs, targets, strict=True)
            for t in range(len(y))
            if 0 <= t + s < len(x)
        )
        if agree:
            return s
    return None


@wrong("first_model/shift", "the sign of s is turned", classic=True)
def shift_sign_turned(inputs, targets):
    T = inputs.size(1)
    for s in range(-3, 4):
        if s >= 0:
            same = inputs[:, : T - s] == targets[:, s:]
        else:
            same = inputs[:, -s:] == targets[:, : T + s]
        if same.all():
            return s
    return None


# Chapter 1


@right("tokenizer/vocabulary", "duplicates dropped from a sorted string")
def vocabulary_by_groups(text):
    characters = [c for c, _ in itertools.groupby(sorted(text))]
    return (
        dict(zip(characters, itertools.count(), strict=False)),
        dict(enumerate(characters)),
    )


@wrong("tokenizer/learn", "ties go to the pair that came first", classic=True)
def learn_ties_to_the_first(words, n_merges):
    split = {word: list(word) for word in words}
    merges = []
    for number in range(n_merges):
        counts = Counter()
        for word, n in words.items():
            for pair in itertools.pairwise(split[word]):
                counts[pair] += n
        if not counts:
            break
        best = max(counts, key=counts.get)
        merges.append(best)
        for word, ids in split.items():
            out, i = [], 0
            while i < len(ids):
                if tuple(ids[i : i + 2]) == best:
                    out.append(256 + number)
                    i += 2
                else:
                    out.append(ids[i])
                    i += 1
            split[word] = out
    return merges


@wrong("tokenizer/learn", "each word counts once", classic=True)
def learn_each_word_once(words, n_merges):
    texts = [list(word) for word in words]
    merges = []
    for number in range(n_merges):
        counts = Counter(p for ids in texts for p in itertools.pairwise(ids))
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        merges.append(best)
        for ids in texts:
            i = 0
            while i < len(ids) - 1:
                if (ids[i], ids[i + 1]) == best:
                    ids[i : i + 2] = [256 + number]
                i += 1
    return merges


@right("tokenizer/learn", "pairs replaced in place in one list per word")
def learn_in_place(words, n_merges):
    texts = [(list(word), n) for word, n in words.items()]
    merges = []
    while len(merges) < n_merges:
        counts = {}
        for ids, n in texts:
            for pair in zip(ids, ids[1:], strict=False):
                counts[pair] = counts.get(pair, 0) + n
        if not counts:
            return merges
        (best, _) = sorted(counts.items(), key=lambda c: (-c[1], c[0]))[0]
        for ids, _ in texts:
            i = 0
            while i < len(ids) - 1:
                if (ids[i], ids[i + 1]) == best:
                    ids[i : i + 2] = [256 + len(merges)]
                i += 1
        merges.append(best)
    return merges


@right("tokenizer/replay", "merge after merge, in the order of learning")
def replay_merge_after_merge(word, merges):
    ids = list(word)
    for pair, new in sorted(merges.items(), key=lambda item: item[1]):
        out = []
        while ids:
            if tuple(ids[:2]) == pair:
                out.append(new)
                ids = ids[2:]
            else:
                out.append(ids[0])
                ids = ids[1:]
        ids = out
    return ids


@wrong("tokenizer/replay", "the latest merge goes first", classic=True)
def replay_latest_first(word, merges):
    ids = list(word)
    while True:
        known = [
            (merges[pair], i)
            for i, pair in enumerate(itertools.pairwise(ids))
            if pair in merges
        ]
        if not known:
            return ids
        new, i = max(known)
        ids[i : i + 2] = [new]


@wrong("tokenizer/replay", "each merge is made once in a word", classic=False)
def replay_each_once(word, merges):
    ids = list(word)
    for pair in sorted(merges, key=merges.get):
        for i in range(len(ids) - 1):
            if (ids[i], ids[i + 1]) == pair:
                ids[i : i + 2] = [merges[pair]]
                break
    return ids


# Chapter 2


@right("embedding/look_up", "ids compared with all numbers")
def look_up_compared(ids, table):
    hot = ids.unsqueeze(-1).eq(torch.arange(table.size(0)))
    return hot.to(table.dtype) @ table


@wrong("embedding/look_up_backward", "repeated ids count once", classic=True)
def gradient_assigned(dx, ids, vocab_size):
    gradient = torch.zeros(vocab_size, dx.size(-1), dtype=dx.dtype)
    gradient[ids] += dx
    return gradient


@right("embedding/look_up_backward", "the transposed look-up as a product")
def gradient_one_hot_transposed(dx, ids, vocab_size):
    hot = F.one_hot(ids.reshape(-1), vocab_size).to(dx.dtype)
    return hot.T @ dx.reshape(-1, dx.size(-1))


@wrong("embedding/look_up_backward", "the mean of each token", classic=False)
def gradient_averaged(dx, ids, vocab_size):
    hot = F.one_hot(ids.reshape(-1), vocab_size).to(dx.dtype)
    total = hot.T @ dx.reshape(-1, dx.size(-1))
    return total / hot.sum(0)[:, None].clamp(min=1)


@wrong("embedding/is_tied", "equal values are taken for tied", classic=True)
def tied_if_equal(model):
    return torch.equal(model.embedding.weight, model.head.weight)


@wrong("embedding/analogy", "rows are not scaled to length 1", classic=True)
def analogy_unscaled(table, a, b, c, leave_out):
    scores = table @ (table[b] - table[a] + table[c])
    if leave_out:
        scores[[a, b, c]] = -math.inf
    return int(scores.argmax())


@wrong("embedding/analogy", "a and b change places", classic=True)
def analogy_turned(table, a, b, c, leave_out):
    rows = table / table.norm(dim=1, keepdim=True)
    scores = rows @ (rows[a] - rows[b] + rows[c])
    if leave_out:
        scores[torch.tensor([a, b, c])] = -math.inf
    return scores.argmax().item()


# Chapter 3


@right("positions/codes", "real and imaginary part of one exponential")
def codes_complex(positions, d_model):
    pairs = torch.arange(d_model // 2, dtype=torch.float64)
    angles = torch.outer(positions.double(), 10000 ** (-2 * pairs / d_model))
    turned = torch.polar(torch.ones_like(angles), angles)
    return torch.stack((turned.imag, turned.real), dim=2).flatten(1)


@wrong("positions/shift", "turns back instead of forward", classic=True)
def shift_by_backward(k, d_model):
    blocks = []
    for i in range(d_model // 2):
        angle = k * 10000 ** (-2 * i / d_model)
        c, s = math.cos(angle), math.sin(angle)
        blocks.append(torch.tensor([[c, s], [-s, c]], dtype=torch.float64))
    return torch.block_diag(*blocks)


@wrong("positions/sees_places", "only neighbors are compared", classic=True)
def places_neighbors_only(add):
    x = torch.randn(3, 5, 8)
    added = add(x) - x
    if not torch.allclose(added[0], added[1], atol=1e-5):
        return False
    if not torch.allclose(added[0], added[2], atol=1e-5):
        return False
    return all(
        not torch.allclose(added[0, t], added[0, t + 1], atol=1e-5)
        for t in range(4)
    )


@wrong("positions/slow", "only the start is mended", classic=True)
def slow_only_the_start(n_positions, d_model):
    code = torch.zeros(n_positions, d_model, dtype=torch.float64)
    for t in range(n_positions):
        for i in range(0, d_model, 2):
            angle = t / 10000 ** (2 * i / d_model)
            code[t, i] = math.sin(angle)
            code[t, i + 1] = math.cos(angle)
    return code


# Chapter 4


@right("attention/stuck_share", "the size of J from sums, without J")
def stuck_from_sums(scores):
    p = torch.softmax(scores, dim=-1)
    square = p.square()
    total = square.sum(-1)
    # sum of p_i² - 2 p_i³ + (sum of p_i²)²
    size = (total - 2 * (square * p).sum(-1) + total.square()).clamp(min=0)
    return size.sqrt().lt(0.01).double().mean()


@wrong("attention/stuck_share", "no root of the sum of squares", classic=True)
def stuck_without_root(scores):
    p = scores.softmax(-1)
    J = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    return ((J**2).sum((1, 2)) < 0.01).float().mean()


@wrong("attention/stuck_share", "the largest weight is asked", classic=True)
def stuck_by_the_largest(scores):
    return (scores.softmax(-1).amax(-1) > 0.99).double().mean()


@wrong("attention/stuck_share", "a number of rows, no fraction", classic=False)
def stuck_counted(scores):
    p = scores.softmax(-1)
    J = torch.diag_embed(p) - torch.einsum("ri,rj->rij", p, p)
    return (J.flatten(1).norm(dim=1) < 0.01).sum()


@right("attention/temperature", "einsum, the softmax's Jacobian written out")
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


@wrong("attention/temperature", "τ is missing in dq and dk", classic=True)
def temperature_without_tau(dy, q, k, v, tau):
    raw = q @ k.mT
    p = (tau * raw).softmax(-1)
    dp = dy @ v.mT
    dz = p * (dp - (p * dp).sum(-1, keepdim=True))
    return dz @ k, dz.mT @ q, p.mT @ dy, (dz * raw).sum()


@wrong("attention/temperature", "dτ with scores that hold τ", classic=True)
def temperature_scaled_scores(dy, q, k, v, tau):
    z = tau * (q @ k.mT)
    p = z.softmax(-1)
    dp = dy @ v.mT
    dz = p * (dp - (p * dp).sum(-1, keepdim=True))
    return tau * dz @ k, tau * dz.mT @ q, p.mT @ dy, (dz * z).sum()


# Chapter 5


@right("masks/is_causal", "all other ids in one batch for each position")
def causal_one_batch_each(model, vocab_size, length):
    for _ in range(3):
        ids = torch.randint(vocab_size, (1, length))
        for t in range(1, length):
            batch = ids.repeat(vocab_size, 1)
            batch[:, t] = torch.arange(vocab_size)
            before = model(batch)[:, :t]
            if not torch.allclose(
                before, before[:1].expand_as(before), atol=1e-5
            ):
                return False
    return True


@wrong("masks/is_causal", "only the last token is changed", classic=True)
def causal_last_only(model, vocab_size, length):
    ids = torch.randint(vocab_size, (1, length))
    before = model(ids)[:, :-1]
    for new in range(vocab_size):
        changed = ids.clone()
        changed[:, -1] = new
        if not torch.allclose(model(changed)[:, :-1], before, atol=1e-5):
            return False
    return True


@wrong("masks/is_causal", "the changed position is compared", classic=True)
def causal_with_the_changed(model, vocab_size, length):
    ids = torch.randint(vocab_size, (1, length))
    before = model(ids)
    for t in range(1, length):
        for new in range(vocab_size):
            changed = ids.clone()
            changed[:, t] = new
            after = model(changed)
            if not torch.allclose(after[:, : t + 1], before[:, : t + 1]):
                return False
    return True


@wrong("masks/empty_rows", "-1e9: an empty row is uniform", classic=True)
def empty_rows_minus_a_billion(scores, mask):
    return scores.masked_fill(~mask, -1e9).softmax(-1)


@right("masks/true_means", "the mask as numbers that are added")
def true_means_added(q, k, v, hide):
    bias = torch.zeros(hide.shape, dtype=q.dtype)
    bias = bias.masked_fill(hide, -math.inf).unsqueeze(1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)


# Chapter 6


@right("multihead/multihead", "head by head, added up without joining")
def multihead_added_up(x, w_q, w_k, w_v, w_o, n_heads):
    out = 0
    for wq, wk, wv, wo in zip(
        w_q.chunk(n_heads, 1),
        w_k.chunk(n_heads, 1),
        w_v.chunk(n_heads, 1),
        w_o.chunk(n_heads, 0),
        strict=True,
    ):
        scores = x @ wq @ (x @ wk).mT
        weights = (scores / math.sqrt(wq.size(1))).softmax(-1)
        out = out + weights @ (x @ wv) @ wo
    return out


@wrong("multihead/multihead", "reshaped into heads, not moved", classic=True)
def multihead_reshaped(x, w_q, w_k, w_v, w_o, n_heads):
    B, T, _ = x.shape
    q, k, v = ((x @ w).reshape(B, n_heads, T, -1) for w in (w_q, w_k, w_v))
    weights = (q @ k.mT / math.sqrt(q.size(-1))).softmax(-1)
    return (weights @ v).transpose(1, 2).flatten(2) @ w_o


@wrong("multihead/multihead", "the scale of D / H", classic=True)
def multihead_d_over_h(x, w_q, w_k, w_v, w_o, n_heads):
    B, T, D = x.shape
    q, k, v = (
        (x @ w).view(B, T, n_heads, -1).transpose(1, 2)
        for w in (w_q, w_k, w_v)
    )
    weights = (q @ k.mT / math.sqrt(D // n_heads)).softmax(-1)
    return (weights @ v).transpose(1, 2).reshape(B, T, -1) @ w_o


@wrong(
    "multihead/contributions", "rows of W_O dealt out in turn", classic=True
)
def contributions_in_turn(heads, w_o):
    H, Dv = heads.size(1), heads.size(-1)
    return heads @ w_o.view(Dv, H, -1).transpose(0, 1)


@right("multihead/contributions", "all other heads set to zero")
def contributions_others_zero(heads, w_o):
    out = []
    for h in range(heads.size(1)):
        alone = torch.zeros_like(heads)
        alone[:, h] = heads[:, h]
        out.append(alone.transpose(1, 2).flatten(2) @ w_o)
    return torch.stack(out, dim=1)


@wrong("multihead/registered", "a ModuleList, but biases remain", classic=True)
def registered_with_biases(d_model, n_heads):
    d_head = d_model // n_heads

    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.w_q = nn.Linear(d_model, d_head)
            self.w_k = nn.Linear(d_model, d_head)
            self.w_v = nn.Linear(d_model, d_head)

        def forward(self, x):
            scores = self.w_q(x) @ self.w_k(x).mT / d_head**0.5
            return scores.softmax(-1) @ self.w_v(x)

    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = nn.ModuleList([Head() for _ in range(n_heads)])
            self.w_o = nn.Linear(d_model, d_model)

        def forward(self, x):
            return self.w_o(torch.cat([head(x) for head in self.heads], -1))

    return Heads()


# Chapter 7


@right("norm/norms", "var_mean, and one vector norm for the second")
def norms_by_var_mean(x, weight, bias, eps):
    var, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    layer = torch.addcmul(bias, (x - mean) * (var + eps).rsqrt(), weight)
    return layer, weight * x / (length**2 / x.shape[-1] + eps) ** 0.5


@wrong("norm/norms", "ε is added outside the root", classic=True)
def norms_epsilon_outside(x, weight, bias, eps):
    centered = x - x.mean(-1, keepdim=True)
    std = centered.square().mean(-1, keepdim=True).sqrt()
    rms = x.square().mean(-1, keepdim=True).sqrt()
    return centered / (std + eps) * weight + bias, x / (rms + eps) * weight


@wrong("norm/places", "post-norm: the norm sees the part alone", classic=True)
def places_second_left(x, part, norm, norm_first):
    if norm_first:
        return x + part(norm(x))
    return x + norm(part(x))


@wrong("norm/places", "pre-norm is normed once more at the end", classic=False)
def places_normed_twice(x, part, norm, norm_first):
    if norm_first:
        return norm(x + part(norm(x)))
    return norm(x + part(x))


@wrong("norm/probe", "only the last token is changed", classic=True)
def probe_last_only(norm):
    x = torch.randn(2, 7, 8)
    y = x.clone()
    y[0, -1] = torch.randn(8)
    return not torch.allclose(norm(x)[0, :-1], norm(y)[0, :-1], atol=1e-5)


@right("norm/fold", "the mean of each column subtracted")
def fold_columns(gamma, beta, w, b):
    scaled = torch.diag(gamma) @ w
    return scaled - scaled.mean(dim=0), torch.addmv(b, w.T, beta)


@wrong("norm/fold", "the mean of each row is taken out", classic=True)
def fold_rows(gamma, beta, w, b):
    scaled = gamma[:, None] * w
    return scaled - scaled.mean(dim=1, keepdim=True), beta @ w + b


@wrong("norm/fold", "centered before γ", classic=True)
def fold_centered_first(gamma, beta, w, b):
    return gamma[:, None] * (w - w.mean(0)), beta @ w + b


# Chapter 8


@right("feedforward/feed_forward", "half of the number plus its size")
def feed_forward_absolute(x, w_in, b_in, w_out, b_out):
    hidden = torch.einsum("...d,df->...f", x, w_in) + b_in
    hidden = (hidden + hidden.abs()) / 2
    return torch.einsum("...f,fd->...d", hidden, w_out) + b_out


@wrong("feedforward/feed_forward", "a ReLU at the end too", classic=True)
def feed_forward_relu_twice(x, w_in, b_in, w_out, b_out):
    return torch.relu(torch.relu(x @ w_in + b_in) @ w_out + b_out)


@wrong("feedforward/count", "the second bias has d_ff numbers", classic=True)
def count_wide_bias(d_model, d_ff):
    return 4 * (d_model**2 + d_model), 2 * (d_model * d_ff + d_ff)


@right("feedforward/count", "sums over lists of shapes")
def count_from_shapes(d_model, d_ff):
    def size(layers):
        return sum(math.prod(pair) + pair[1] for pair in layers)

    return (
        size([(d_model, d_model)] * 4),
        size([(d_model, d_ff), (d_ff, d_model)]),
    )


@wrong("feedforward/is_affine", "without the value at 0", classic=True)
def affine_without_zero(function, size):
    for _ in range(200):
        a, b = 10 * torch.randn(2, size, dtype=torch.float64)
        if not torch.allclose(function(a + b), function(a) + function(b)):
            return False
    return True


@wrong("feedforward/mended", "the ReLU stays at the end", classic=True)
def mended_relu_at_the_end(x, w_in, b_in, w_out, b_out):
    hidden = x @ w_in + b_in
    return (hidden @ w_out + b_out).relu()


# Chapter 9


@right("decoder/count", "a dictionary of all parts, those wanted added")
def count_by_parts(vocab_size, max_len, d_model, n_layers, tied, small):
    D = d_model
    large = {
        "embedding": vocab_size * D,
        "attention": n_layers * 4 * D * D,
        "network": n_layers * 2 * D * 4 * D,
        "head": 0 if tied else vocab_size * D,
    }
    little = {
        "positions": max_len * D,
        "biases": n_layers * (4 * D + 4 * D + D),
        "norms": (2 * n_layers + 1) * 2 * D,
    }
    return sum(large.values()) + (sum(little.values()) if small else 0)


@wrong("decoder/count", "the last norm is forgotten", classic=True)
def count_no_last_norm(vocab_size, max_len, d_model, n_layers, tied, small):
    total = vocab_size * d_model * (1 if tied else 2)
    total += n_layers * 12 * d_model**2
    if small:
        total += max_len * d_model + n_layers * 13 * d_model
    return total


@right("decoder/gpt", "a fold over the blocks")
def gpt_folded(ids, table, places, blocks, final_norm):
    x = F.embedding(ids, table) + places.narrow(0, 0, ids.size(-1))
    x = functools.reduce(lambda x, block: block(x), blocks, x)
    return F.linear(final_norm(x), table)


@wrong("decoder/gpt", "no final norm", classic=True)
def gpt_no_final_norm(ids, table, places, blocks, final_norm):
    x = table[ids] + places[: ids.size(1)]
    for block in blocks:
        x = block(x)
    return x @ table.T


@wrong("decoder/gpt", "a second residual path around blocks", classic=True)
def gpt_residual_twice(ids, table, places, blocks, final_norm):
    x = table[ids] + places[: ids.size(1)]
    for block in blocks:
        x = x + block(x)
    return final_norm(x) @ table.T


@wrong("decoder/mended", "the last norm is still missing", classic=True)
def mended_without_last_norm(x, parts, norms, final_norm):
    for part, norm in zip(parts, norms, strict=True):
        x = x + part(norm(x))
    return x


@wrong("decoder/mended", "the stream is still normed", classic=True)
def mended_stream_still_normed(x, parts, norms, final_norm):
    for part, norm in zip(parts, norms, strict=True):
        x = norm(x)
        x = x + part(x)
    return final_norm(x)


# Chapter 10


@right("loss/stable", "row by row, weights of 0 and 1")
def stable_weighted(logits, targets):
    z = logits - logits.amax(1, keepdim=True)
    counted = targets.ne(-100)
    picked = z.gather(1, targets.clamp(min=0)[:, None])[:, 0]
    nats = torch.log(torch.exp(z).sum(1)) - picked
    total = torch.where(counted, nats, 0.0).sum()
    return total / max(int(counted.sum()), 1)


@wrong("loss/stable", "the mean over padding too", classic=True)
def stable_mean_of_all(logits, targets):
    z = logits - logits.amax(-1, keepdim=True)
    log_p = z - z.exp().sum(-1, keepdim=True).log()
    keep = targets != -100
    picked = log_p[torch.arange(len(z)), targets * keep]
    return -(picked * keep).mean()


@wrong("loss/stable", "NaN when nothing counts", classic=True)
def stable_nothing_counts(logits, targets):
    keep = targets != -100
    z, y = logits[keep], targets[keep]
    z = z - z.max(-1, keepdim=True).values
    log_p = z - z.exp().sum(-1, keepdim=True).log()
    return -log_p[torch.arange(len(y)), y].mean()


@wrong("loss/gradient", "divided by all rows", classic=True)
def gradient_over_all_rows(logits, targets):
    keep = targets != -100
    hot = F.one_hot(targets.clamp(min=0), logits.size(1))
    return (logits.softmax(1) - hot) * keep[:, None] / len(targets)


@wrong("loss/gradient", "a gradient of the sum", classic=True)
def gradient_of_the_sum(logits, targets):
    keep = targets != -100
    gradient = logits.softmax(-1)
    gradient[keep, targets[keep]] -= 1
    gradient[~keep] = 0
    return gradient


@right("loss/mended", "classes moved to axis 1")
def mended_moved_axis(logits, targets):
    return F.cross_entropy(logits.movedim(-1, 1), targets)


@wrong("loss/mended", "flattened, but softmax stays", classic=True)
def mended_softmax_twice(logits, targets):
    p = logits.softmax(-1)
    return F.cross_entropy(p.flatten(0, 1), targets.flatten())


@wrong("loss/mended", "the axes are still viewed, not moved", classic=True)
def mended_still_viewed(logits, targets):
    B, T, V = logits.shape
    return F.cross_entropy(logits.view(B, V, T), targets)


@wrong("loss/whole_perplexity", "perplexities are averaged", classic=True)
def perplexities_averaged(parts):
    n = sum(count for _, count in parts)
    return sum(math.exp(loss) * count for loss, count in parts) / n


@wrong("loss/per_byte", "characters instead of bytes", classic=True)
def per_character(models, text):
    return [bits * math.log(2) * n / len(text) for bits, n in models]


@wrong("loss/per_byte", "divided by ln 2 instead of times", classic=True)
def per_byte_divided(models, text):
    size = len(text.encode())
    return [bits / math.log(2) * n / size for bits, n in models]


# Chapter 11


@right("training/rates", "a half cosine between two numbers by interpolation")
def rates_by_cases(n, peak, total, warmup, floor):
    def rate(step):
        if step <= warmup:
            return peak * step / warmup
        if step >= total:
            return floor
        turn = math.pi * (step - warmup) / (total - warmup)
        return (peak + floor) / 2 + (peak - floor) / 2 * math.cos(turn)

    return list(map(rate, range(1, n + 1)))


@wrong("training/rates", "updates are counted from 0", classic=True)
def rates_from_zero(n, peak, total, warmup, floor):
    out = []
    for step in range(n):
        if step < warmup:
            out.append(peak * step / warmup)
        else:
            done = min((step - warmup) / (total - warmup), 1)
            half = (1 + math.cos(math.pi * done)) / 2
            out.append(floor + (peak - floor) * half)
    return out


@wrong("training/rates", "the rate rises again after the end", classic=True)
def rates_rise_again(n, peak, total, warmup, floor):
    out = []
    for step in range(1, n + 1):
        if step < warmup:
            out.append(peak * step / warmup)
        else:
            done = (step - warmup) / (total - warmup)
            half = (1 + math.cos(math.pi * done)) / 2
            out.append(floor + (peak - floor) * half)
    return out


@wrong("training/update", "decay goes through the gradient", classic=True)
def update_decay_in_gradient(w, g, m, v, step, rate, decay):
    g = g + decay * w
    m = 0.9 * m + 0.1 * g
    v = 0.99 * v + 0.01 * g * g
    m_hat, v_hat = m / (1 - 0.9**step), v / (1 - 0.99**step)
    return w - rate * m_hat / (v_hat.sqrt() + 1e-8), m, v


@wrong("training/update", "corrected m and v are returned", classic=True)
def update_returns_corrected(w, g, m, v, step, rate, decay):
    m = (0.9 * m + 0.1 * g) / (1 - 0.9**step)
    v = (0.99 * v + 0.01 * g**2) / (1 - 0.99**step)
    return w - rate * (m / (v.sqrt() + 1e-8) + decay * w), m, v


@right("training/update", "lerp and addcdiv on copies")
def update_by_lerp(w, g, m, v, step, rate, decay):
    m = torch.lerp(m, g, 0.1)
    v = torch.lerp(v, g.square(), 0.01)
    root = (v / -math.expm1(step * math.log(0.99))).sqrt() + 1e-8
    shrunk = w.mul(1 - rate * decay)
    return shrunk.addcdiv(m / (1 - 0.9**step), root, value=-rate), m, v


@wrong("training/learn", "gradients are never set to zero", classic=True)
def learn_never_zero(weights, batches, epochs, peak, limit):
    w = weights.clone().requires_grad_()
    optimizer = torch.optim.SGD([w], lr=peak)
    losses, done, steps = [], 0, epochs * len(batches)
    for _ in range(epochs):
        for x, y in batches:
            optimizer.param_groups[0]["lr"] = peak * (1 - done / steps)
            loss = F.cross_entropy(x @ w, y)
            loss.backward()
            nn.utils.clip_grad_norm_([w], limit)
            optimizer.step()
            losses.append(loss.item())
            done += 1
    return w.detach(), losses


@wrong("training/learn", "the step to come counts as done", classic=True)
def learn_counts_the_step_to_come(weights, batches, epochs, peak, limit):
    w = weights.clone().requires_grad_()
    losses, done, steps = [], 0, epochs * len(batches)
    for _ in range(epochs):
        for x, y in batches:
            done += 1
            loss = F.cross_entropy(x @ w, y)
            loss.backward()
            nn.utils.clip_grad_norm_([w], limit)
            with torch.no_grad():
                w -= peak * (1 - done / steps) * w.grad
            w.grad = None
            losses.append(loss.item())
    return w.detach(), losses


@wrong("training/plan", "norms and biases decay too", classic=True)
def plan_all_decay(shapes, n_layers, std, decay):
    out = {}
    for name, shape in shapes.items():
        if len(shape) < 2:
            out[name] = (0.0 if name.endswith("bias") else 1.0, 0.0, decay)
        elif name.endswith(("w_o.weight", "w_out.weight")):
            out[name] = (0.0, std / math.sqrt(2 * n_layers), decay)
        else:
            out[name] = (0.0, std, decay)
    return out


@wrong("training/plan", "√L in place of √(2L)", classic=True)
def plan_root_of_layers(shapes, n_layers, std, decay):
    plan = {}
    for name, shape in shapes.items():
        last = name.endswith(("w_o.weight", "w_out.weight"))
        if len(shape) == 1:
            plan[name] = (0 if name.endswith("bias") else 1, 0, 0)
        else:
            plan[name] = (0, std / n_layers**0.5 if last else std, decay)
    return plan


# Chapter 12


@right("generation/chances", "a loop over texts, tokens dropped one by one")
def chances_token_by_token(logits, temperature, top_k, top_p):
    out = torch.zeros_like(logits)
    for row, chances in zip(logits / temperature, out, strict=True):
        order = row.argsort(descending=True).tolist()
        order = order[: top_k or len(order)]
        p = row[order].softmax(0)
        kept, before = [], 0.0
        for token, chance in zip(order, p.tolist(), strict=True):
            if top_p is not None and before >= top_p:
                break
            kept.append(token)
            before += chance
        chances[kept] = row[kept].softmax(0)
    return out


@wrong("generation/chances", "the token that crosses p is lost", classic=True)
def chances_crossing_token_lost(logits, temperature, top_k, top_p):
    logits = logits / temperature
    if top_k is not None:
        least = logits.topk(top_k).values[:, -1:]
        logits = logits.masked_fill(logits < least, -math.inf)
    p = logits.softmax(-1)
    if top_p is not None:
        ordered, ids = p.sort(descending=True)
        drop = ordered.cumsum(-1) > top_p
        drop[:, 0] = False
        p = p.masked_fill(drop.gather(-1, ids.argsort(-1)), 0)
    return p / p.sum(-1, keepdim=True)


@wrong("generation/chances", "not scaled to sum 1 again", classic=True)
def chances_do_not_sum_to_one(logits, temperature, top_k, top_p):
    p = (logits / temperature).softmax(-1)
    if top_k is not None:
        least = p.topk(top_k).values[:, -1:]
        p = p.masked_fill(p < least, 0)
        p = p / p.sum(-1, keepdim=True)
    if top_p is not None:
        ordered, ids = p.sort(descending=True)
        drop = ordered.cumsum(-1) - ordered >= top_p
        p = p.masked_fill(drop.gather(-1, ids.argsort(-1)), 0)
    return p


@wrong("generation/write", "the given tokens are cut off", classic=True)
def write_crops_the_result(model, ids, n_new, max_len):
    for _ in range(n_new):
        ids = ids[:, -max_len:]
        token = model(ids)[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, token], dim=1)
    return ids


@right("generation/write", "a full tensor, filled in")
def write_filled_in(model, ids, n_new, max_len):
    B, T = ids.shape
    out = F.pad(ids, (0, n_new))
    for t in range(T, T + n_new):
        window = out[:, max(t - max_len, 0) : t]
        out[:, t] = model(window)[:, -1].max(dim=-1).indices
    return out


@wrong("generation/mended", "the mask is mended, positions not", classic=True)
def mended_positions_from_zero(chunks, w_q, w_k, w_v, rotate):
    outputs, keys, values = [], [], []
    for x in chunks:
        positions = torch.arange(len(x))
        q = rotate(x @ w_q, positions)
        keys.append(rotate(x @ w_k, positions))
        values.append(x @ w_v)
        k, v = torch.cat(keys), torch.cat(values)
        T, S = len(q), len(k)
        mask = torch.ones(T, S, dtype=torch.bool).tril(S - T)
        out = F.scaled_dot_product_attention(
            q[None], k[None], v[None], attn_mask=mask
        )
        outputs.append(out[0])
    return torch.cat(outputs)


@wrong("generation/cost", "the last new token is read too", classic=True)
def cost_reads_the_last(
    n_layers, n_heads, n_kv_heads, d_head, bytes_per_number,
    n_weights, n_prompt, n_new,
):  # fmt: skip
    read = n_prompt + n_new
    size = 2 * n_layers * n_kv_heads * d_head * bytes_per_number * read
    without = sum(n_prompt + i for i in range(n_new))
    return size, 2 * n_weights * read, 2 * n_weights * without


# Chapter 13


@right("encoder/encode", "padding found by subtracting")
def encode_subtracts(ids, pad_id, table, places, blocks):
    mask = (ids - pad_id).bool().reshape(len(ids), 1, 1, -1)
    x = torch.stack([table[row] + places[: len(row)] for row in ids])
    for block in blocks:
        x = block(x, mask)
    return x


@wrong("encoder/encode", "True where there is padding", classic=True)
def encode_mask_turned(ids, pad_id, table, places, blocks):
    mask = (ids == pad_id)[:, None, None, :]
    x = table[ids] + places[: ids.size(1)]
    for block in blocks:
        x = block(x, mask)
    return x


@wrong("encoder/gap_loss", "rows are still shifted by one", classic=True)
def gap_loss_still_shifted(logits, ids, chosen):
    logits, ids, chosen = logits[:, :-1], ids[:, 1:], chosen[:, 1:]
    if not chosen.any():
        return logits.new_zeros(())
    return F.cross_entropy(logits[chosen], ids[chosen])


@wrong("encoder/gap_loss", "NaN if nothing is chosen", classic=True)
def gap_loss_of_nothing(logits, ids, chosen):
    return F.cross_entropy(logits[chosen], ids[chosen])


@wrong("encoder/gap_loss", "a mean of each sentence first", classic=False)
def gap_loss_by_sentence(logits, ids, chosen):
    losses = [
        F.cross_entropy(z[c], y[c])
        for z, y, c in zip(logits, ids, chosen, strict=True)
        if c.any()
    ]
    return torch.stack(losses).mean() if losses else torch.tensor(0.0)


@wrong("encoder/pooled", "divided by S", classic=True)
def pooled_over_all(x, real):
    return (x * real[..., None]).mean(dim=1)


@right("encoder/pooled", "a product with a row of weights")
def pooled_by_product(x, real):
    weights = real.to(x.dtype)
    weights = weights / weights.sum(1, keepdim=True).clamp(min=1)
    return torch.bmm(weights.unsqueeze(1), x).squeeze(1)


# Chapter 14


@wrong("seq2seq/cross", "the memory asks, the target is asked", classic=True)
def cross_roles_swapped(y, memory, lengths, w_q, w_k, w_v):
    q, k, v = memory @ w_q, y @ w_k, y @ w_v
    scores = q @ k.mT / q.size(-1) ** 0.5
    real = torch.arange(memory.size(1)) < lengths[:, None]
    scores = scores.masked_fill(~real[:, :, None], -math.inf)
    return scores.softmax(-1) @ v


@wrong("seq2seq/cross", "one padding vector too many", classic=True)
def cross_one_too_many(y, memory, lengths, w_q, w_k, w_v):
    scores = (y @ w_q) @ (memory @ w_k).mT / w_q.size(1) ** 0.5
    real = torch.arange(memory.size(1)) <= lengths[:, None]
    scores = scores.masked_fill(~real[:, None], -math.inf)
    return scores.softmax(-1) @ (memory @ w_v)


@right("seq2seq/cross", "each sentence alone, its padding cut off")
def cross_sentence_by_sentence(y, memory, lengths, w_q, w_k, w_v):
    out = []
    for asks, asked, n in zip(y, memory, lengths.tolist(), strict=True):
        asked = asked[:n]
        scores = asks @ w_q @ (asked @ w_k).T
        out.append((scores / w_q.size(1) ** 0.5).softmax(1) @ asked @ w_v)
    return torch.stack(out)


@wrong("seq2seq/shift", "the answers lack their end", classic=True)
def shift_answers_without_end(targets, pad, bos, eos):
    T = max(len(target) for target in targets) + 1
    inputs = torch.full((len(targets), T), pad)
    answers = torch.full((len(targets), T), -100)
    for i, target in enumerate(targets):
        inputs[i, : len(target) + 1] = torch.tensor([bos, *target])
        answers[i, : len(target)] = torch.tensor(target, dtype=torch.long)
    return inputs, answers


@right("seq2seq/shift", "zip_longest fills up, then a transpose")
def shift_zip_longest(targets, pad, bos, eos):
    inputs = itertools.zip_longest(
        *([bos, *t] for t in targets), fillvalue=pad
    )
    answers = itertools.zip_longest(
        *([*t, eos] for t in targets), fillvalue=-100
    )
    return torch.tensor(list(inputs)).T, torch.tensor(list(answers)).T


@wrong("seq2seq/translate", "nothing is padded after the end", classic=True)
def translate_goes_on(encode, decode, src, real, pad, bos, eos, size):
    memory = encode(src, real)
    tgt = torch.full((len(src), 1), bos)
    for _ in range(size):
        best = decode(tgt, memory, real)[:, -1].argmax(-1)
        tgt = torch.cat([tgt, best[:, None]], dim=1)
    return tgt[:, 1:]


@wrong("seq2seq/translate", "eos itself becomes padding", classic=True)
def translate_loses_eos(encode, decode, src, real, pad, bos, eos, size):
    memory = encode(src, real)
    tgt = torch.full((len(src), 1), bos)
    done = torch.zeros(len(src), dtype=torch.bool)
    for _ in range(size):
        best = decode(tgt, memory, real)[:, -1].argmax(-1)
        done = done | (best == eos)
        best = torch.where(done, pad, best)
        tgt = torch.cat([tgt, best[:, None]], dim=1)
    return tgt[:, 1:]


# Chapter 15


@right("modern/gated", "silu written as a product with a sigmoid")
def gated_by_sigmoid(x, w_gate, w_in, w_out):
    gate, linear = torch.split(
        x @ torch.cat((w_gate, w_in), 1), w_in.size(1), dim=1
    )
    return (gate * gate.sigmoid() * linear) @ w_out


@wrong("modern/gated", "the wrong factor goes through silu", classic=True)
def gated_wrong_factor(x, w_gate, w_in, w_out):
    return (x @ w_gate * F.silu(x @ w_in)) @ w_out


@wrong("modern/gated", "a sigmoid in place of silu", classic=True)
def gated_sigmoid(x, w_gate, w_in, w_out):
    return (torch.sigmoid(x @ w_gate) * (x @ w_in)) @ w_out


@wrong("modern/rope", "halves are paired, not neighbors", classic=True)
def rope_halves(x, positions, base):
    half = x.size(-1) // 2
    speeds = base ** (-torch.arange(half, dtype=x.dtype) / half)
    angles = positions[..., None] * speeds
    if positions.dim() == 2:
        angles = angles[:, None]
    a, b = x[..., :half], x[..., half:]
    return torch.cat(
        (
            a * angles.cos() - b * angles.sin(),
            a * angles.sin() + b * angles.cos(),
        ),
        dim=-1,
    )


@right("modern/rope", "pairs as complex numbers")
def rope_complex(x, positions, base):
    Dh = x.size(-1)
    exponent = torch.arange(0, Dh, 2, dtype=torch.float64) / Dh
    angles = positions.double().unsqueeze(-1) * base**-exponent
    if positions.ndim > 1:
        angles = angles.unsqueeze(1)
    z = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())
    z = z * torch.exp(1j * angles)
    return torch.view_as_real(z).flatten(-2).to(x.dtype)


@wrong("modern/converted", "the way back", classic=True)
def converted_way_back(w, n_heads):
    rows = w.unflatten(0, (n_heads, -1, 2)).transpose(1, 2)
    return rows.flatten(0, 2)


@wrong("modern/window", "one key too many", classic=True)
def window_one_too_many(size, n_queries, n_keys):
    i = torch.arange(n_keys - n_queries, n_keys)[:, None]
    back = i - torch.arange(n_keys)
    return (back >= 0) & (back <= size)


@wrong("modern/mixture", "softmax over all experts, then top", classic=True)
def mixture_softmax_first(x, router, experts, n_active):
    p, chosen = (x @ router).softmax(-1).topk(n_active)
    out = torch.zeros_like(x)
    for number, expert in enumerate(experts):
        rows, which = (chosen == number).nonzero(as_tuple=True)
        out[rows] += p[rows, which, None] * expert(x[rows])
    return out


# Chapter 16


@wrong("interpret/induction", "the earlier appearance itself", classic=True)
def induction_appearance_itself(weights, ids):
    found = []
    for t in range(len(ids)):
        for s in reversed(range(t)):
            if ids[s] == ids[t]:
                found.append(weights[:, t, s])
                break
    return torch.stack(found).mean(0)


@wrong(
    "interpret/induction", "the first appearance, not the last", classic=True
)
def induction_first_appearance(weights, ids):
    found = []
    tokens = ids.tolist()
    for t, token in enumerate(tokens):
        s = tokens.index(token)
        if s < t:
            found.append(weights[:, t, s + 1])
    return torch.stack(found).mean(0)


@right("interpret/induction", "a dictionary of last appearances")
def induction_dictionary(weights, ids):
    last, total, n = {}, torch.zeros_like(weights[:, 0, 0]), 0
    for t, token in enumerate(ids.tolist()):
        if token in last:
            total = total + weights[:, t, last[token] + 1]
            n += 1
        last[token] = t
    return total / n


@wrong("interpret/silenced", "heads is changed in place", classic=True)
def silenced_in_place(heads, reference, head):
    heads[:, head] = reference[:, head].mean((0, 1))
    return heads


@wrong("interpret/silenced", "the mean of the same texts", classic=True)
def silenced_own_mean(heads, reference, head):
    out = heads.clone()
    out[:, head] = heads[:, head].mean(dim=(0, 1))
    return out


@wrong("interpret/sharpest", "heads averaged still", classic=True)
def sharpest_still_averaged(weights):
    before = weights.mean(2).diagonal(-1, -2, -1)
    return before.mean((1, 2))


@wrong("interpret/removal", "the other weights stay as they are", classic=True)
def removal_not_scaled(weights, values):
    out = weights @ values
    part = weights[..., None] * values[:, None]
    return part.norm(dim=-1) / out.norm(dim=-1)[..., None]


@right("interpret/removal", "each key hidden in a loop")
def removal_key_by_key(weights, values):
    out = weights @ values
    columns = []
    for s in range(weights.size(-1)):
        w = weights.clone()
        w[..., s] = 0
        w = w / w.sum(-1, keepdim=True)
        columns.append((w @ values - out).norm(dim=-1) / out.norm(dim=-1))
    return torch.stack(columns, dim=-1)


# Chapter 17


@right("vision/patches_of", "slices, patch by patch")
def patches_by_slices(images, size):
    patches = [
        images[:, :, y : y + size, x : x + size].flatten(1)
        for y in range(0, images.size(2), size)
        for x in range(0, images.size(3), size)
    ]
    return torch.stack(patches, dim=1)


@wrong("vision/patches_of", "a reshape that moves nothing", classic=True)
def patches_reshaped(images, size):
    B, C, Y, X = images.shape
    return images.reshape(B, (Y // size) * (X // size), C * size * size)


@wrong("vision/patches_of", "the channels come last in a patch", classic=True)
def patches_channels_last(images, size):
    B, C, Y, X = images.shape
    x = images.reshape(B, C, Y // size, size, X // size, size)
    return x.permute(0, 2, 4, 3, 5, 1).reshape(B, -1, C * size * size)


@wrong(
    "vision/classified", "the token stands in front, read last", classic=True
)
def classified_reads_last(patches, token, places, encode, head):
    token = token.expand(len(patches), 1, -1)
    x = torch.cat([token, patches], dim=1) + places
    return encode(x)[:, -1] @ head.T


@wrong("vision/grid_code", "the two repeats are swapped", classic=True)
def grid_code_swapped(down, across):
    R, C = len(down), len(across)
    return torch.cat(
        [down.repeat(C, 1), across.repeat_interleave(R, dim=0)], dim=1
    )


@right("vision/grid_code", "a Cartesian product of the rows")
def grid_code_product(down, across):
    pairs = itertools.product(down, across)
    return torch.stack([torch.cat(pair) for pair in pairs])


@wrong("vision/resized", "reshaped without a transpose", classic=True)
def resized_only_reshaped(table, old, new):
    grid = table[1:].reshape(1, -1, old, old)
    grid = F.interpolate(grid, size=(new, new), mode="bilinear")
    return torch.cat([table[:1], grid.reshape(new * new, -1)])


@wrong("vision/resized", "corners aligned", classic=False)
def resized_corners(table, old, new):
    grid = table[1:].T.reshape(1, -1, old, old)
    grid = F.interpolate(
        grid, size=(new, new), mode="bilinear", align_corners=True
    )
    return torch.cat([table[:1], grid.flatten(2)[0].T])


@wrong("vision/is_a_set", "the whole order turned round, once", classic=True)
def set_turned_round(read, patches):
    return torch.allclose(read(patches), read(patches.flip(0)), atol=1e-5)


# Chapter 18


@wrong("scaling/parameters", "the norms' biases are left out", classic=True)
def parameters_norms_gain_only(
    vocab_size, max_len, d_model, n_heads, d_ff, n_layers, bias, tied
):
    D = d_model
    block = 4 * D * D + 2 * D * d_ff + 2 * D
    if bias:
        block += 4 * D + d_ff + D
    head = 0 if tied else vocab_size * D
    return (vocab_size + max_len) * D + n_layers * block + D + head


@right("scaling/parameters", "counted on empty tensors")
def parameters_on_the_meta_device(
    vocab_size, max_len, d_model, n_heads, d_ff, n_layers, bias, tied
):
    shapes = [(vocab_size, d_model), (max_len, d_model)]
    square = [(d_model, d_model)] * 4
    network = [(d_model, d_ff), (d_ff, d_model)]
    for _ in range(n_layers):
        shapes += square + network + [(d_model,)] * 2
        if bias:
            shapes += [pair[1:] for pair in square + network]
            shapes += [(d_model,)] * 2
    shapes += [(d_model,)] * (1 + bool(bias))
    if not tied:
        shapes.append((d_model, vocab_size))
    return sum(math.prod(shape) for shape in shapes)


@wrong("scaling/flops", "one FLOP for a multiplication and sum", classic=True)
def flops_once(
    vocab_size, d_model, n_heads, n_kv_heads, d_ff, n_layers, length
):
    kv = d_model // n_heads * n_kv_heads
    block = 2 * d_model**2 + 2 * d_model * kv + 2 * d_model * d_ff
    token = n_layers * block + d_model * vocab_size
    return length * token + n_layers * 2 * length**2 * d_model


@wrong("scaling/flops", "keys and values as wide as queries", classic=True)
def flops_wide_keys(
    vocab_size, d_model, n_heads, n_kv_heads, d_ff, n_layers, length
):
    block = 4 * d_model**2 + 2 * d_model * d_ff + 2 * length * d_model
    return 2 * length * (n_layers * block + d_model * vocab_size)


@wrong("scaling/tiled", "exponentials without a maximum", classic=True)
def tiled_without_maximum(q, k, v, mask, size):
    total = q.new_zeros(len(q))
    mixed = q.new_zeros(len(q), v.size(1))
    for start in range(0, len(k), size):
        part = slice(start, start + size)
        scores = q @ k[part].T / q.size(1) ** 0.5
        e = scores.exp() * mask[:, part]
        total = total + e.sum(1)
        mixed = mixed + e @ v[part]
    return mixed / total.clamp(min=1e-30)[:, None], total.log()


@right("scaling/tiled", "each query by itself, its visible keys picked")
def tiled_query_by_query(q, k, v, mask, size):
    outputs, log_sums = [], []
    for asks, sees in zip(q, mask, strict=True):
        keys, values = k[sees], v[sees]
        log_sum = torch.tensor(-math.inf, dtype=q.dtype)
        out = torch.zeros(v.size(1), dtype=q.dtype)
        for part, mix in zip(
            keys.split(size), values.split(size), strict=True
        ):
            if not len(part):
                continue
            scores = part @ asks / asks.numel() ** 0.5
            new = torch.logaddexp(log_sum, scores.logsumexp(0))
            out = out * (log_sum - new).exp() + (scores - new).exp() @ mix
            log_sum = new
        outputs.append(out)
        log_sums.append(log_sum)
    return torch.stack(outputs), torch.stack(log_sums)


# Chapter 19


@wrong("debugging/moves", "rows and columns are exchanged", classic=True)
def moves_transposed(model, ids, vocab_size):
    before = model(ids)
    rows = []
    for j in range(ids.size(1)):
        other = ids.clone()
        other[:, j] = (other[:, j] + 1) % vocab_size
        gap = (model(other) - before).abs().amax(-1)
        rows.append((gap > 1e-6).any(0))
    return torch.stack(rows)


@wrong("debugging/moves", "only the first text is looked at", classic=False)
def moves_first_text(model, ids, vocab_size):
    before = model(ids)
    columns = []
    for j in range(ids.size(1)):
        other = ids.clone()
        other[:, j] = (other[:, j] + 1) % vocab_size
        gap = (model(other) - before)[0].abs().amax(-1)
        columns.append(gap > 1e-6)
    return torch.stack(columns, dim=1)


@right("debugging/moves", "rows of the identity added to the ids")
def moves_by_the_identity(model, ids, vocab_size):
    B, T = ids.shape
    step = torch.eye(T, dtype=ids.dtype)
    reach = torch.zeros(T, T, dtype=torch.bool)
    before = model(ids)
    for j in range(T):
        after = model((ids + step[j]) % vocab_size)
        reach[:, j] = ((after - before).abs() > 1e-6).any(dim=2).any(dim=0)
    return reach


@wrong("debugging/asked", "oracles are shifted the wrong way", classic=True)
def asked_the_wrong_way(loss, vocab_size, length):
    ids = torch.stack([torch.randperm(vocab_size)[:length] for _ in range(8)])
    hot = 30.0 * F.one_hot(ids, vocab_size)
    for k in (-1, 0, 1, 2):
        logits = torch.zeros_like(hot)
        if k >= 0:
            logits[:, k:] = hot[:, : length - k]
        else:
            logits[:, :k] = hot[:, -k:]
        if loss(logits, ids) < 1:
            return k
    return "none"


@wrong("debugging/difference", "the deviation with n", classic=True)
def difference_population(right, wrong, t):
    d = torch.as_tensor(wrong) - torch.as_tensor(right)
    return d.mean(), t * d.std(correction=0) / len(d) ** 0.5


@wrong("debugging/difference", "seeds are not paired", classic=True)
def difference_unpaired(right, wrong, t):
    right, wrong = torch.as_tensor(right), torch.as_tensor(wrong)
    spread = (right.var() + wrong.var()).sqrt()
    return wrong.mean() - right.mean(), t * spread / len(right) ** 0.5


@wrong("debugging/mended", "targets are not shifted", classic=True)
def last_program_not_shifted(ids, table, places, w_q, w_k, w_v, pad):
    x = table[ids] + places[: ids.size(1)]
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    scores = q @ k.mT / q.size(-1) ** 0.5
    hide = torch.ones_like(scores).triu(1).bool()
    weights = scores.masked_fill(hide, -torch.inf).softmax(-1)
    logits = (x + weights @ v) @ table.T
    nats = -logits.log_softmax(-1).gather(-1, ids[..., None])[..., 0]
    real = ids != pad
    return logits, nats[real].mean()


@wrong("debugging/mended", "padding still counts in the mean", classic=True)
def last_program_padding_counts(ids, table, places, w_q, w_k, w_v, pad):
    x = table[ids] + places[: ids.size(1)]
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    scores = q @ k.mT / q.size(-1) ** 0.5
    hide = torch.ones_like(scores).triu(1).bool()
    weights = scores.masked_fill(hide, -torch.inf).softmax(-1)
    logits = (x + weights @ v) @ table.T
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    return logits, loss
