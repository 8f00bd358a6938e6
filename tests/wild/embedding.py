"""Answers to chapter 2, written from its page alone."""

# ruff: noqa: B905, N812

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.wild import right, wrong

# embedding/look_up


@right("embedding/look_up", "one-hot by comparison, with einsum")
def look_up_by_comparison(ids, table):
    names = torch.arange(table.size(0), device=ids.device)
    one_hot = (ids.unsqueeze(-1) == names).to(table.dtype)
    return torch.einsum("...v,vd->...d", one_hot, table)


@right("embedding/look_up", "flattens the batch and brings it back")
def look_up_flat(ids, table):
    n_rows, width = table.shape
    flat = ids.reshape(-1)
    hot = torch.zeros(n_rows, flat.numel(), dtype=table.dtype)
    for column, name in enumerate(flat.tolist()):
        hot[name, column] = 1
    return hot.T.mm(table).reshape(*ids.shape, width)


@wrong(
    "embedding/look_up",
    "one_hot without V: too few columns if the last token does not occur",
    classic=True,
)
def look_up_guesses_v(ids, table):
    return F.one_hot(ids).to(table.dtype) @ table


@wrong(
    "embedding/look_up",
    "multiplies whole numbers with a table of floats",
    classic=True,
)
def look_up_long(ids, table):
    return F.one_hot(ids, table.size(0)) @ table


@wrong(
    "embedding/look_up",
    "always float32, which a table in double precision refuses",
    classic=True,
)
def look_up_float(ids, table):
    return F.one_hot(ids, table.size(0)).to(torch.float32) @ table


@wrong("embedding/look_up", "ids counted from 1", classic=False)
def look_up_from_one(ids, table):
    names = torch.arange(1, table.size(0) + 1)
    return (ids[..., None] == names).to(table.dtype) @ table


# embedding/look_up_backward


@right("embedding/look_up_backward", "bincount, one column after the other")
def look_up_backward_bincount(dx, ids, vocab_size):
    flat = ids.flatten()
    columns = [
        torch.bincount(flat, weights=column, minlength=vocab_size)
        for column in dx.reshape(len(flat), -1).unbind(1)
    ]
    return torch.stack(columns, dim=1).to(dx.dtype)


@right("embedding/look_up_backward", "plain loops with a dictionary")
def look_up_backward_dictionary(dx, ids, vocab_size):
    rows = {
        v: torch.zeros_like(dx.flatten(0, -2)[0]) for v in range(vocab_size)
    }
    for token, gradient in zip(ids.flatten().tolist(), dx.flatten(0, -2)):
        rows[token] = rows[token] + gradient
    return torch.stack([rows[v] for v in range(vocab_size)])


@wrong(
    "embedding/look_up_backward",
    "of several places of a token only one counts",
    classic=True,
)
def look_up_backward_last(dx, ids, vocab_size):
    gradient = torch.zeros(vocab_size, dx.size(-1), dtype=dx.dtype)
    gradient[ids] += dx
    return gradient


@wrong(
    "embedding/look_up_backward",
    "the mean over a token's places instead of the sum",
    classic=True,
)
def look_up_backward_mean(dx, ids, vocab_size):
    hot = F.one_hot(ids.flatten(), vocab_size).to(dx.dtype)
    total = hot.T @ dx.flatten(0, -2)
    return total / hot.sum(0).clamp(min=1)[:, None]


@wrong(
    "embedding/look_up_backward",
    "index_add with ids of two axes, which raises",
    classic=True,
)
def look_up_backward_not_flat(dx, ids, vocab_size):
    gradient = torch.zeros(vocab_size, dx.size(-1), dtype=dx.dtype)
    return gradient.index_add(0, ids, dx)


@wrong(
    "embedding/look_up_backward",
    "as many rows as the largest id needs, not vocab_size",
    classic=True,
)
def look_up_backward_short(dx, ids, vocab_size):
    hot = F.one_hot(ids.flatten()).to(dx.dtype)
    return hot.T @ dx.flatten(0, -2)


@wrong("embedding/look_up_backward", "transposed: (D, V)", classic=False)
def look_up_backward_transposed(dx, ids, vocab_size):
    hot = F.one_hot(ids.flatten(), vocab_size).to(dx.dtype)
    return dx.flatten(0, -2).T @ hot


# embedding/rise


def mean_cosine(rows, pairs):
    total = 0.0
    for a, b in pairs:
        a, b = rows[int(a)], rows[int(b)]
        total += (a @ b / (a.norm() * b.norm())).item()
    return total / len(pairs)


@right("embedding/rise", "trains on the table of counted pairs")
def rise_on_counts(ids, vocab_size, pairs):
    counts = torch.zeros(vocab_size, vocab_size)
    for a, b in zip(ids[:-1].tolist(), ids[1:].tolist()):
        counts[a, b] += 1
    rises = []
    for seed in (11, 12, 13):
        torch.manual_seed(seed)
        table = nn.Embedding(vocab_size, 64)
        head = nn.Linear(64, vocab_size)
        before = mean_cosine(table.weight.detach().clone(), pairs)
        both = list(table.parameters()) + list(head.parameters())
        optimizer = torch.optim.Adam(both, lr=0.02)
        for _ in range(60):
            log_p = head(table.weight).log_softmax(-1)
            loss = -(counts * log_p).sum() / counts.sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        after = mean_cosine(table.weight.detach(), pairs)
        rises.append(after - before)
    return sum(rises) / 3


@wrong(
    "embedding/rise",
    "the table before is not cloned, so nothing ever rises",
    classic=True,
)
def rise_without_clone(ids, vocab_size, pairs):
    rises = []
    for seed in range(3):
        torch.manual_seed(seed)
        model = nn.Sequential(
            nn.Embedding(vocab_size, 64), nn.Linear(64, vocab_size)
        )
        before = model[0].weight.detach()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
        for _ in range(60):
            loss = F.cross_entropy(model(ids[:-1]), ids[1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        after = model[0].weight.detach()
        rises.append(mean_cosine(after, pairs) - mean_cosine(before, pairs))
    return sum(rises) / 3


@wrong(
    "embedding/rise",
    "each token is its own target, not the next one",
    classic=True,
)
def rise_without_shift(ids, vocab_size, pairs):
    rises = []
    for seed in range(3):
        torch.manual_seed(seed)
        model = nn.Sequential(
            nn.Embedding(vocab_size, 64), nn.Linear(64, vocab_size)
        )
        before = mean_cosine(model[0].weight.detach().clone(), pairs)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
        for _ in range(60):
            loss = F.cross_entropy(model(ids), ids)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        after = mean_cosine(model[0].weight.detach(), pairs)
        rises.append(after - before)
    return sum(rises) / 3


@wrong(
    "embedding/rise",
    "only the linear layer is given to the optimizer",
    classic=True,
)
def rise_with_a_frozen_table(ids, vocab_size, pairs):
    rises = []
    for seed in range(3):
        torch.manual_seed(seed)
        table, head = nn.Embedding(vocab_size, 64), nn.Linear(64, vocab_size)
        before = mean_cosine(table.weight.detach().clone(), pairs)
        optimizer = torch.optim.Adam(head.parameters(), lr=0.02)
        for _ in range(60):
            loss = F.cross_entropy(head(table(ids[:-1])), ids[1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        after = mean_cosine(table.weight.detach(), pairs)
        rises.append(after - before)
    return sum(rises) / 3


@wrong(
    "embedding/rise",
    "nothing is trained: a made-up number, also for the shuffled text",
    classic=False,
)
def rise_made_up(ids, vocab_size, pairs):
    return 0.3


# embedding/recipe


@right("embedding/recipe", "short rows, the factor makes up for it")
def recipe_short_rows(vocab_size, d_model):
    table = torch.randn(vocab_size, d_model) / d_model
    return table, d_model / math.sqrt(2)


@right("embedding/recipe", "every row brought to the same length")
def recipe_equal_rows(vocab_size, d_model):
    length = 1.5 / math.sqrt(d_model)
    rows = torch.empty(vocab_size, d_model).uniform_(-1, 1)
    return length * F.normalize(rows, dim=1), (d_model / 2) ** 0.5 / length


@wrong(
    "embedding/recipe",
    "small rows without a factor: the places drown the tokens",
    classic=True,
)
def recipe_small_table(vocab_size, d_model):
    return 0.02 * torch.randn(vocab_size, d_model), 1.0


@wrong(
    "embedding/recipe",
    "only the factor is changed: the rows are as long as before, so the "
    "logits stay too large, and the tokens are drowned",
    classic=True,
)
def recipe_long_rows_shrunk(vocab_size, d_model):
    return torch.randn(vocab_size, d_model), 1 / math.sqrt(d_model)


@wrong(
    "embedding/recipe",
    "the paper's factor on rows that are long already",
    classic=True,
)
def recipe_factor_on_long_rows(vocab_size, d_model):
    return torch.randn(vocab_size, d_model), math.sqrt(d_model)


@wrong(
    "embedding/recipe",
    "a table of zeros: starts at ln V, but the tokens have no length",
    classic=False,
)
def recipe_zeros(vocab_size, d_model):
    return torch.zeros(vocab_size, d_model), math.sqrt(d_model)


# embedding/is_tied


@right("embedding/is_tied", "compares the parameters' ids")
def is_tied_by_id(model):
    ends = {id(model.embedding.weight), id(model.head.weight)}
    return len(ends) == 1


@wrong("embedding/is_tied", "equal numbers today", classic=True)
def is_tied_if_equal(model):
    return torch.equal(model.embedding.weight, model.head.weight)


@wrong("embedding/is_tied", "equal shapes", classic=True)
def is_tied_if_alike(model):
    return model.embedding.weight.shape == model.head.weight.shape


@wrong(
    "embedding/is_tied",
    "asks whether the two modules are one, not their weights",
    classic=False,
)
def is_tied_modules(model):
    return model.embedding is model.head


@wrong(
    "embedding/is_tied",
    "returns None, not False, if they aren't tied",
    classic=False,
)
def is_tied_or_none(model):
    if model.embedding.weight is model.head.weight:
        return True


# embedding/analogy


@right("embedding/analogy", "the row at the smallest distance")
def analogy_by_distance(table, a, b, c, leave_out):
    # All rows have length 1: the nearest has the largest cosine.
    rows = F.normalize(table.double(), dim=1)
    query = rows[b] - rows[a] + rows[c]
    order = (rows - query).square().sum(1).argsort().tolist()
    barred = {int(a), int(b), int(c)} if leave_out else set()
    return next(row for row in order if row not in barred)


@right("embedding/analogy", "lists and loops in plain Python")
def analogy_in_plain_python(table, a, b, c, leave_out):
    rows = []
    for row in table.tolist():
        length = math.sqrt(sum(n * n for n in row))
        rows.append([n / length for n in row])
    query = [y - x + z for x, y, z in zip(rows[a], rows[b], rows[c])]
    best, best_score = None, -math.inf
    for i, row in enumerate(rows):
        if leave_out and i in (a, b, c):
            continue
        score = sum(x * y for x, y in zip(row, query))
        if score > best_score:
            best, best_score = i, score
    return best


@wrong("embedding/analogy", "rows keep their length", classic=True)
def analogy_not_normalized(table, a, b, c, leave_out):
    scores = table @ (table[b] - table[a] + table[c])
    if leave_out:
        scores[[a, b, c]] = -math.inf
    return int(scores.argmax())


@wrong("embedding/analogy", "a minus b instead of b minus a", classic=True)
def analogy_wrong_way(table, a, b, c, leave_out):
    rows = table / table.norm(dim=1, keepdim=True)
    scores = rows @ (rows[a] - rows[b] + rows[c])
    if leave_out:
        scores[[a, b, c]] = -math.inf
    return int(scores.argmax())


@wrong(
    "embedding/analogy",
    "leaves the three rows out whether or not that was asked",
    classic=True,
)
def analogy_always_leaves_out(table, a, b, c, leave_out):
    rows = table / table.norm(dim=1, keepdim=True)
    scores = rows @ (rows[b] - rows[a] + rows[c])
    scores[[a, b, c]] = -math.inf
    return int(scores.argmax())


@wrong("embedding/analogy", "leaves out row c only", classic=True)
def analogy_leaves_out_c(table, a, b, c, leave_out):
    rows = table / table.norm(dim=1, keepdim=True)
    scores = rows @ (rows[b] - rows[a] + rows[c])
    if leave_out:
        scores[c] = -math.inf
    return int(scores.argmax())


@wrong(
    "embedding/analogy",
    "takes the three rows out of the table, so the numbers move",
    classic=False,
)
def analogy_renumbers(table, a, b, c, leave_out):
    rows = table / table.norm(dim=1, keepdim=True)
    query = rows[b] - rows[a] + rows[c]
    if leave_out:
        keep = [i for i in range(len(rows)) if i not in (a, b, c)]
        rows = rows[keep]
    return int((rows @ query).argmax())


@right("embedding/is_tied", "an experiment on a copy of the model")
def is_tied_by_experiment(model):
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.embedding.weight.add_(1)
        moved = twin.head.weight - model.head.weight
    return bool((moved > 0.5).all())
