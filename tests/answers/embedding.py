"""Answers to the exercises of chapter 2."""

import copy
import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from tests.answers import right, wrong

# -- look_up -----------------------------------------------------------------


@right("embedding/look_up")
def look_up_by_comparison(ids, table):
    names = torch.arange(table.size(0), device=ids.device)
    one_hot = (ids.unsqueeze(-1) == names).to(table.dtype)
    return torch.einsum("...v,vd->...d", one_hot, table)


@right("embedding/look_up")
def look_up_flat(ids, table):
    n_rows, width = table.shape
    flat = ids.reshape(-1)
    hot = torch.zeros(n_rows, flat.numel(), dtype=table.dtype)
    for column, name in enumerate(flat.tolist()):
        hot[name, column] = 1
    return hot.T.mm(table).reshape(*ids.shape, width)


@right("embedding/look_up")
def look_up_compared(ids, table):
    hot = ids.unsqueeze(-1).eq(torch.arange(table.size(0)))
    return hot.to(table.dtype) @ table


@right("embedding/look_up")
def one_hot_by_hand(ids, table):
    x = torch.zeros(*ids.shape, table.shape[0], dtype=table.dtype)
    x.scatter_(-1, ids.unsqueeze(-1), 1.0)
    return torch.einsum("...v,vd->...d", x, table)


@right("embedding/look_up")
def compared(ids, table):
    names = torch.arange(table.size(0))
    return (ids[..., None] == names).to(table.dtype).matmul(table)


@right("embedding/look_up")
def rows_of_the_identity(ids, table):
    eye = torch.eye(len(table), dtype=table.dtype)
    flat = torch.stack([eye[i] for i in ids.flatten().tolist()])
    return (flat @ table).view(*ids.shape, -1)


@wrong("embedding/look_up", "guessed")
def look_up_guesses_v(ids, table):
    return F.one_hot(ids).to(table.dtype) @ table


@wrong("embedding/look_up", "long")
def look_up_long(ids, table):
    return F.one_hot(ids, table.size(0)) @ table


@wrong("embedding/look_up", "float32")
def look_up_float(ids, table):
    return F.one_hot(ids, table.size(0)).to(torch.float32) @ table


wrong("embedding/look_up", "looked_up")(
    lambda ids, table: table.__getitem__(ids)
)


@wrong("embedding/look_up", "root")
def times_root(ids, table):
    x = F.one_hot(ids, len(table)).double() @ table
    return x * math.sqrt(x.shape[-1])


@wrong("embedding/look_up")
def flat(ids, table):
    hot = F.one_hot(ids.reshape(-1), num_classes=table.shape[0])
    return hot.double().mm(table)


# Ids counted from 1.
@wrong("embedding/look_up")
def look_up_from_one(ids, table):
    names = torch.arange(1, table.size(0) + 1)
    return (ids[..., None] == names).to(table.dtype) @ table


@wrong("embedding/look_up")
def counted_from_one(ids, table):
    return torch.eye(len(table), dtype=table.dtype)[ids - 1] @ table


# -- look_up_backward --------------------------------------------------------


@right("embedding/look_up_backward")
def look_up_backward_bincount(dx, ids, vocab_size):
    flat = ids.flatten()
    columns = [
        torch.bincount(flat, weights=column, minlength=vocab_size)
        for column in dx.reshape(len(flat), -1).unbind(1)
    ]
    return torch.stack(columns, dim=1).to(dx.dtype)


@right("embedding/look_up_backward")
def look_up_backward_dictionary(dx, ids, vocab_size):
    rows = {
        v: torch.zeros_like(dx.flatten(0, -2)[0]) for v in range(vocab_size)
    }
    for token, gradient in zip(ids.flatten().tolist(), dx.flatten(0, -2)):
        rows[token] = rows[token] + gradient
    return torch.stack([rows[v] for v in range(vocab_size)])


@right("embedding/look_up_backward")
def gradient_one_hot_transposed(dx, ids, vocab_size):
    hot = F.one_hot(ids.reshape(-1), vocab_size).to(dx.dtype)
    return hot.T @ dx.reshape(-1, dx.size(-1))


@right("embedding/look_up_backward")
def place_by_place(dx, ids, vocab_size):
    gradient = torch.zeros(vocab_size, dx.shape[-1], dtype=dx.dtype)
    flat = dx.reshape(-1, dx.shape[-1])
    for n, i in enumerate(ids.reshape(-1).tolist()):
        gradient[i] += flat[n]
    return gradient


@right("embedding/look_up_backward")
def by_product(dx, ids, vocab_size):
    hot = F.one_hot(ids, vocab_size).double()
    return torch.einsum("...v,...d->vd", hot, dx)


@right("embedding/look_up_backward")
def accumulated(dx, ids, vocab_size):
    gradient = torch.zeros(vocab_size, dx.shape[-1], dtype=dx.dtype)
    return gradient.index_put_((ids,), dx, accumulate=True)


@wrong("embedding/look_up_backward", "last_wins")
def look_up_backward_last(dx, ids, vocab_size):
    gradient = torch.zeros(vocab_size, dx.size(-1), dtype=dx.dtype)
    gradient[ids] += dx
    return gradient


@wrong("embedding/look_up_backward", "mean")
def look_up_backward_mean(dx, ids, vocab_size):
    hot = F.one_hot(ids.flatten(), vocab_size).to(dx.dtype)
    total = hot.T @ dx.flatten(0, -2)
    return total / hot.sum(0).clamp(min=1)[:, None]


@wrong("embedding/look_up_backward", "guessed")
def look_up_backward_short(dx, ids, vocab_size):
    hot = F.one_hot(ids.flatten()).to(dx.dtype)
    return hot.T @ dx.flatten(0, -2)


@wrong("embedding/look_up_backward", "columns")
def look_up_backward_transposed(dx, ids, vocab_size):
    hot = F.one_hot(ids.flatten(), vocab_size).to(dx.dtype)
    return dx.flatten(0, -2).T @ hot


@wrong("embedding/look_up_backward")
def by_line(dx, ids, vocab_size):
    return F.one_hot(ids, vocab_size).transpose(-1, -2).double() @ dx


# Index_add with ids of two axes, which raises.
@wrong("embedding/look_up_backward")
def look_up_backward_not_flat(dx, ids, vocab_size):
    gradient = torch.zeros(vocab_size, dx.size(-1), dtype=dx.dtype)
    return gradient.index_add(0, ids, dx)


@wrong("embedding/look_up_backward")
def mean_over_places(dx, ids, vocab_size):
    return by_product(dx, ids, vocab_size) / ids.numel()


# -- rise --------------------------------------------------------------------


def mean_cosine(rows, pairs):
    total = 0.0
    for a, b in pairs:
        a, b = rows[int(a)], rows[int(b)]
        total += (a @ b / (a.norm() * b.norm())).item()
    return total / len(pairs)


@right("embedding/rise")
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


# Nothing is trained: a made-up number, also for the shuffled text.
@wrong("embedding/rise")
def rise_made_up(ids, vocab_size, pairs):
    return 0.3


# Only the linear layer is given to the optimizer.
@wrong("embedding/rise")
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


# The table before is not cloned, so nothing ever rises.
@wrong("embedding/rise")
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


# -- recipe ------------------------------------------------------------------


@right("embedding/recipe")
def recipe_short_rows(vocab_size, d_model):
    table = torch.randn(vocab_size, d_model) / d_model
    return table, d_model / math.sqrt(2)


@right("embedding/recipe")
def recipe_equal_rows(vocab_size, d_model):
    length = 1.5 / math.sqrt(d_model)
    rows = torch.empty(vocab_size, d_model).uniform_(-1, 1)
    return length * F.normalize(rows, dim=1), (d_model / 2) ** 0.5 / length


@right("embedding/recipe")
def paper(vocab_size, d_model):
    table = torch.empty(vocab_size, d_model)
    return torch.nn.init.normal_(table, std=d_model**-0.5), math.sqrt(d_model)


@right("embedding/recipe")
def gpt2_and_fifty(vocab_size, d_model):
    return 0.02 * torch.randn(vocab_size, d_model), 50


@right("embedding/recipe")
def unit_rows_exactly(vocab_size, d_model):
    table = F.normalize(torch.randn(vocab_size, d_model), dim=1)
    return table, (d_model / 2) ** 0.5


@right("embedding/recipe")
def uniform(vocab_size, d_model):
    bound = math.sqrt(3 / d_model)
    table = torch.rand(vocab_size, d_model) * 2 * bound - bound
    return table, torch.tensor(float(d_model)).sqrt()


@wrong("embedding/recipe", "no_factor", "small")
def recipe_small_table(vocab_size, d_model):
    return 0.02 * torch.randn(vocab_size, d_model), 1.0


@wrong("embedding/recipe", "divided", "long")
def recipe_long_rows_shrunk(vocab_size, d_model):
    return torch.randn(vocab_size, d_model), 1 / math.sqrt(d_model)


@wrong("embedding/recipe", "long")
def recipe_factor_on_long_rows(vocab_size, d_model):
    return torch.randn(vocab_size, d_model), math.sqrt(d_model)


@wrong("embedding/recipe", "small")
def small(vocab_size, d_model):
    table = torch.nn.init.normal_(torch.empty(vocab_size, d_model), std=0.02)
    return table, d_model**0.5


@wrong("embedding/recipe", "by_d")
def by_d(vocab_size, d_model):
    return torch.randn(vocab_size, d_model) / d_model, math.sqrt(d_model)


@wrong("embedding/recipe", "no_factor")
def no_factor(vocab_size, d_model):
    return torch.randn(vocab_size, d_model).div(math.sqrt(d_model)), 1


@wrong("embedding/recipe", "divided")
def divided(vocab_size, d_model):
    table = torch.randn(vocab_size, d_model) / math.sqrt(d_model)
    return table, 1 / math.sqrt(d_model)


# A table of zeros: starts at ln V, but the tokens have no length.
@wrong("embedding/recipe")
def recipe_zeros(vocab_size, d_model):
    return torch.zeros(vocab_size, d_model), math.sqrt(d_model)


@wrong("embedding/recipe")
def all_zero(vocab_size, d_model):
    return torch.zeros(vocab_size, d_model), d_model**0.5


@wrong("embedding/recipe")
def all_one(vocab_size, d_model):
    return torch.ones(vocab_size, d_model), 1.0


# -- is_tied -----------------------------------------------------------------


@right("embedding/is_tied")
def is_tied_by_id(model):
    ends = {id(model.embedding.weight), id(model.head.weight)}
    return len(ends) == 1


@right("embedding/is_tied")
def is_tied_by_experiment(model):
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.embedding.weight.add_(1)
        moved = twin.head.weight - model.head.weight
    return bool((moved > 0.5).all())


@right("embedding/is_tied")
def counted(model):
    return len(list(model.parameters())) == 1


@right("embedding/is_tied")
def nudged(model):
    before = model.head.weight.detach().clone()
    with torch.no_grad():
        model.embedding.weight.add_(1.0)
    return bool((model.head.weight != before).any())


@right("embedding/is_tied")
def same_place(model):
    return id(model.head.weight) == id(model.embedding.weight)


@wrong("embedding/is_tied", "values")
def is_tied_if_equal(model):
    return torch.equal(model.embedding.weight, model.head.weight)


@wrong("embedding/is_tied", "shapes")
def is_tied_if_alike(model):
    return model.embedding.weight.shape == model.head.weight.shape


@wrong("embedding/is_tied", "modules")
def is_tied_modules(model):
    return model.embedding is model.head


@wrong("embedding/is_tied")
def not_tied(model):
    return model.head.weight is not model.embedding.weight


@wrong("embedding/is_tied")
def same_direction(model):
    fit = F.cosine_similarity(model.head.weight, model.embedding.weight)
    return bool(fit.min() > 0.99)


@wrong("embedding/is_tied")
def one_number(model):
    return (
        model.head.weight[0, 0].item() == model.embedding.weight[0, 0].item()
    )


@wrong("embedding/is_tied")
def doubled(model):
    before = model.head.weight.detach().clone()
    with torch.no_grad():
        model.embedding.weight.mul_(2.0)
    return not torch.equal(model.head.weight, before)


# Returns None, not False, if they aren't tied.
@wrong("embedding/is_tied")
def is_tied_or_none(model):
    if model.embedding.weight is model.head.weight:
        return True


# -- analogy -----------------------------------------------------------------


@right("embedding/analogy")
def analogy_by_distance(table, a, b, c, leave_out):
    # All rows have length 1: the nearest has the largest cosine.
    rows = F.normalize(table.double(), dim=1)
    query = rows[b] - rows[a] + rows[c]
    order = (rows - query).square().sum(1).argsort().tolist()
    barred = {int(a), int(b), int(c)} if leave_out else set()
    return next(row for row in order if row not in barred)


@right("embedding/analogy")
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


@right("embedding/analogy")
def with_numpy(table, a, b, c, leave_out):
    rows = table.numpy() / np.linalg.norm(table.numpy(), axis=1, keepdims=True)
    order = np.argsort(-(rows @ (rows[c] + rows[b] - rows[a])))
    if leave_out:
        order = [i for i in order if i not in (a, b, c)]
    return int(order[0])


@right("embedding/analogy")
def by_cosine(table, a, b, c, leave_out):
    e = table / table.norm(dim=-1, keepdim=True)
    scores = F.cosine_similarity(e[b] - e[a] + e[c], table, dim=-1)
    if leave_out:
        scores = scores.index_fill(0, torch.tensor([a, b, c]), -2)
    return torch.argmax(scores)


@right("embedding/analogy")
def nearest_of_all(table, a, b, c, leave_out):
    # Among rows of length 1 the nearest is the one with the largest cosine.
    e = F.normalize(table)
    query = F.normalize(e[b] - e[a] + e[c], dim=0)
    best, found = math.inf, -1
    for i, row in enumerate(e):
        if leave_out and i in (a, b, c):
            continue
        if (gap := float((row - query).norm())) < best:
            best, found = gap, i
    return found


@wrong("embedding/analogy", "dot")
def analogy_not_normalized(table, a, b, c, leave_out):
    scores = table @ (table[b] - table[a] + table[c])
    if leave_out:
        scores[[a, b, c]] = -math.inf
    return int(scores.argmax())


@wrong("embedding/analogy", "reversed")
def analogy_wrong_way(table, a, b, c, leave_out):
    rows = table / table.norm(dim=1, keepdim=True)
    scores = rows @ (rows[a] - rows[b] + rows[c])
    if leave_out:
        scores[[a, b, c]] = -math.inf
    return int(scores.argmax())


@wrong("embedding/analogy", "always")
def analogy_always_leaves_out(table, a, b, c, leave_out):
    rows = table / table.norm(dim=1, keepdim=True)
    scores = rows @ (rows[b] - rows[a] + rows[c])
    scores[[a, b, c]] = -math.inf
    return int(scores.argmax())


def answer(scores, struck):
    scores = scores.tolist()
    open_ = [i for i in range(len(scores)) if i not in struck]
    return max(open_, key=lambda i: scores[i])


def unit(table):
    return table / table.norm(dim=1)[:, None]


@wrong("embedding/analogy", "only_third")
def only_third(table, a, b, c, leave_out):
    e = unit(table)
    return answer(e @ (e[b] - e[a] + e[c]), (c,) if leave_out else ())


@wrong("embedding/analogy", "unit_columns")
def unit_columns(table, a, b, c, leave_out):
    e = F.normalize(table, dim=0)
    scores = e @ (e[b] - e[a] + e[c])
    return answer(scores, (a, b, c) if leave_out else ())


@wrong("embedding/analogy", "first_stays")
def a_may_answer(table, a, b, c, leave_out):
    e = unit(table)
    scores = e @ (e[b] - e[a] + e[c])
    return answer(scores, [b, c] if leave_out else [])


@wrong("embedding/analogy", "never")
def never_left_out(table, a, b, c, leave_out):
    e = unit(table)
    return (e @ (e[b] - e[a] + e[c])).argmax().item()


# Takes the three rows out of the table, so the numbers move.
@wrong("embedding/analogy")
def analogy_renumbers(table, a, b, c, leave_out):
    rows = table / table.norm(dim=1, keepdim=True)
    query = rows[b] - rows[a] + rows[c]
    if leave_out:
        keep = [i for i in range(len(rows)) if i not in (a, b, c)]
        rows = rows[keep]
    return int((rows @ query).argmax())


@wrong("embedding/analogy")
def all_added(table, a, b, c, leave_out):
    e = unit(table)
    return answer(e @ (e[a] + e[b] + e[c]), (a, b, c) if leave_out else ())


@wrong("embedding/analogy")
def by_distance(table, a, b, c, leave_out):
    query = table[b] - table[a] + table[c]
    gaps = (table - query).norm(dim=1)
    return answer(-gaps, (a, b, c) if leave_out else ())
