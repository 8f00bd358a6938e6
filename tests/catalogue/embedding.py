"""Answers to the exercises of chapter 2, as people write them."""

import math

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812


# -- look_up: right ----------------------------------------------------------
def one_hot_by_hand(ids, table):
    x = torch.zeros(*ids.shape, table.shape[0], dtype=table.dtype)
    x.scatter_(-1, ids.unsqueeze(-1), 1.0)
    return torch.einsum("...v,vd->...d", x, table)


def compared(ids, table):
    names = torch.arange(table.size(0))
    return (ids[..., None] == names).to(table.dtype).matmul(table)


def rows_of_the_identity(ids, table):
    eye = torch.eye(len(table), dtype=table.dtype)
    flat = torch.stack([eye[i] for i in ids.flatten().tolist()])
    return (flat @ table).view(*ids.shape, -1)


# -- look_up: wrong ----------------------------------------------------------
def guessed(ids, table):
    return torch.matmul(F.one_hot(ids).double(), table)


def flat(ids, table):
    hot = F.one_hot(ids.reshape(-1), num_classes=table.shape[0])
    return hot.double().mm(table)


def times_root(ids, table):
    x = F.one_hot(ids, len(table)).double() @ table
    return x * math.sqrt(x.shape[-1])


def id_as_amount(ids, table):
    hot = F.one_hot(ids, len(table)).double()
    return (hot * ids[..., None]) @ table


def counted_from_one(ids, table):
    return torch.eye(len(table), dtype=table.dtype)[ids - 1] @ table


def unit_rows(ids, table):
    return F.normalize(F.one_hot(ids, len(table)).double() @ table, dim=-1)


# -- look_up_backward: right -------------------------------------------------
def place_by_place(dx, ids, vocab_size):
    gradient = torch.zeros(vocab_size, dx.shape[-1], dtype=dx.dtype)
    flat = dx.reshape(-1, dx.shape[-1])
    for n, i in enumerate(ids.reshape(-1).tolist()):
        gradient[i] += flat[n]
    return gradient


def by_product(dx, ids, vocab_size):
    hot = F.one_hot(ids, vocab_size).double()
    return torch.einsum("...v,...d->vd", hot, dx)


def accumulated(dx, ids, vocab_size):
    gradient = torch.zeros(vocab_size, dx.shape[-1], dtype=dx.dtype)
    return gradient.index_put_((ids,), dx, accumulate=True)


# -- look_up_backward: wrong -------------------------------------------------
def last_wins(dx, ids, vocab_size):
    gradient = torch.zeros(vocab_size, dx.shape[-1], dtype=dx.dtype)
    for i, row in zip(ids.flatten().tolist(), dx.flatten(0, -2), strict=True):
        gradient[i] = row
    return gradient


def mean(dx, ids, vocab_size):
    gradient = torch.zeros(vocab_size, dx.shape[-1], dtype=dx.dtype)
    for v in ids.unique():
        gradient[v] = dx[ids == v].mean(0)
    return gradient


def by_line(dx, ids, vocab_size):
    return F.one_hot(ids, vocab_size).transpose(-1, -2).double() @ dx


def transposed(dx, ids, vocab_size):
    hot = F.one_hot(ids, vocab_size).double()
    return torch.einsum("...d,...v->dv", dx, hot)


def guessed_backward(dx, ids, vocab_size):
    return torch.einsum("...v,...d->vd", F.one_hot(ids).double(), dx)


def first_wins(dx, ids, vocab_size):
    gradient = torch.zeros(vocab_size, dx.shape[-1], dtype=dx.dtype)
    pairs = list(zip(ids.flatten().tolist(), dx.flatten(0, -2), strict=True))
    for i, row in reversed(pairs):
        gradient[i] = row
    return gradient


def mean_over_places(dx, ids, vocab_size):
    return by_product(dx, ids, vocab_size) / ids.numel()


def only_counts(dx, ids, vocab_size):
    uses = ids.flatten().bincount(minlength=vocab_size)
    return uses[:, None].double().expand(-1, dx.size(-1)).clone()


# -- recipe ------------------------------------------------------------------
def paper(vocab_size, d_model):
    table = torch.empty(vocab_size, d_model)
    return torch.nn.init.normal_(table, std=d_model**-0.5), math.sqrt(d_model)


def gpt2_and_fifty(vocab_size, d_model):
    return 0.02 * torch.randn(vocab_size, d_model), 50


def unit_rows_exactly(vocab_size, d_model):
    table = F.normalize(torch.randn(vocab_size, d_model), dim=1)
    return table, (d_model / 2) ** 0.5


def uniform(vocab_size, d_model):
    bound = math.sqrt(3 / d_model)
    table = torch.rand(vocab_size, d_model) * 2 * bound - bound
    return table, torch.tensor(float(d_model)).sqrt()


def long(vocab_size, d_model):
    table = torch.nn.Embedding(vocab_size, d_model).weight.detach()
    return table, d_model**0.5


def small(vocab_size, d_model):
    table = torch.nn.init.normal_(torch.empty(vocab_size, d_model), std=0.02)
    return table, d_model**0.5


def by_d(vocab_size, d_model):
    return torch.randn(vocab_size, d_model) / d_model, math.sqrt(d_model)


def no_factor(vocab_size, d_model):
    return torch.randn(vocab_size, d_model).div(math.sqrt(d_model)), 1


def divided(vocab_size, d_model):
    table = torch.randn(vocab_size, d_model) / math.sqrt(d_model)
    return table, 1 / math.sqrt(d_model)


def all_zero(vocab_size, d_model):
    return torch.zeros(vocab_size, d_model), d_model**0.5


def all_one(vocab_size, d_model):
    return torch.ones(vocab_size, d_model), 1.0


def columns_of_the_table(vocab_size, d_model):
    table = torch.randn(d_model, vocab_size) * d_model**-0.5
    return table, d_model**0.5


def twice_the_root(vocab_size, d_model):
    return torch.randn(vocab_size, d_model) * d_model**-0.5, float(d_model)


# -- is_tied: right ----------------------------------------------------------
def counted(model):
    return len(list(model.parameters())) == 1


def nudged(model):
    before = model.head.weight.detach().clone()
    with torch.no_grad():
        model.embedding.weight.add_(1.0)
    return bool((model.head.weight != before).any())


def same_place(model):
    return id(model.head.weight) == id(model.embedding.weight)


# -- is_tied: wrong ----------------------------------------------------------
def never(model):
    return model.head == model.embedding


def shapes(model):
    return model.head.weight.numel() == model.embedding.weight.numel()


def values(model):
    return bool((model.head.weight == model.embedding.weight).all())


def one_number(model):
    return (
        model.head.weight[0, 0].item() == model.embedding.weight[0, 0].item()
    )


def not_tied(model):
    return model.head.weight is not model.embedding.weight


def doubled(model):
    before = model.head.weight.detach().clone()
    with torch.no_grad():
        model.embedding.weight.mul_(2.0)
    return not torch.equal(model.head.weight, before)


def same_direction(model):
    fit = F.cosine_similarity(model.head.weight, model.embedding.weight)
    return bool(fit.min() > 0.99)


# -- analogy: right ----------------------------------------------------------
def with_numpy(table, a, b, c, leave_out):
    rows = table.numpy() / np.linalg.norm(table.numpy(), axis=1, keepdims=True)
    order = np.argsort(-(rows @ (rows[c] + rows[b] - rows[a])))
    if leave_out:
        order = [i for i in order if i not in (a, b, c)]
    return int(order[0])


def by_cosine(table, a, b, c, leave_out):
    e = table / table.norm(dim=-1, keepdim=True)
    scores = F.cosine_similarity(e[b] - e[a] + e[c], table, dim=-1)
    if leave_out:
        scores = scores.index_fill(0, torch.tensor([a, b, c]), -2)
    return torch.argmax(scores)


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


# -- analogy: wrong ----------------------------------------------------------
def answer(scores, struck):
    scores = scores.tolist()
    open_ = [i for i in range(len(scores)) if i not in struck]
    return max(open_, key=lambda i: scores[i])


def unit(table):
    return table / table.norm(dim=1)[:, None]


def dot(table, a, b, c, leave_out):
    query = table[b] - table[a] + table[c]
    return answer((table * query).sum(1), (a, b, c) if leave_out else ())


def reversed_step(table, a, b, c, leave_out):
    e = unit(table)
    scores = e @ (e[a] - e[b] + e[c])
    return answer(scores, (a, b, c) if leave_out else ())


def only_third(table, a, b, c, leave_out):
    e = unit(table)
    return answer(e @ (e[b] - e[a] + e[c]), (c,) if leave_out else ())


def a_may_answer(table, a, b, c, leave_out):
    e = unit(table)
    scores = e @ (e[b] - e[a] + e[c])
    return answer(scores, [b, c] if leave_out else [])


def never_left_out(table, a, b, c, leave_out):
    e = unit(table)
    return (e @ (e[b] - e[a] + e[c])).argmax().item()


def always_left_out(table, a, b, c, leave_out):
    e = unit(table)
    return answer(e @ (e[b] - e[a] + e[c]), (a, b, c))


def by_distance(table, a, b, c, leave_out):
    query = table[b] - table[a] + table[c]
    gaps = (table - query).norm(dim=1)
    return answer(-gaps, (a, b, c) if leave_out else ())


def unit_columns(table, a, b, c, leave_out):
    e = F.normalize(table, dim=0)
    scores = e @ (e[b] - e[a] + e[c])
    return answer(scores, (a, b, c) if leave_out else ())


def step_alone(table, a, b, c, leave_out):
    e = unit(table)
    return answer(e @ (e[b] - e[a]), (a, b, c) if leave_out else ())


def all_added(table, a, b, c, leave_out):
    e = unit(table)
    return answer(e @ (e[a] + e[b] + e[c]), (a, b, c) if leave_out else ())


def float_rows(ids, table):
    return torch.nn.functional.one_hot(ids, table.shape[0]).float() @ table


def long_rows_asked(ids, table):
    return torch.matmul(torch.nn.functional.one_hot(ids, len(table)), table)


RIGHT = {
    "look_up": [one_hot_by_hand, compared, rows_of_the_identity],
    "look_up_backward": [place_by_place, by_product, accumulated],
    "recipe": [paper, gpt2_and_fifty, unit_rows_exactly, uniform],
    "is_tied": [counted, nudged, same_place],
    "analogy": [with_numpy, by_cosine, nearest_of_all],
}
WRONG = {
    "look_up": {
        "guessed": guessed,
        "looked_up": lambda ids, table: table.__getitem__(ids),
        "root": times_root,
        "float32": float_rows,
        "long": long_rows_asked,
    },
    "look_up_backward": {
        "last_wins": last_wins,
        "mean": mean,
        "columns": transposed,
        "guessed": guessed_backward,
    },
    "recipe": {
        "long": long,
        "small": small,
        "by_d": by_d,
        "no_factor": no_factor,
        "divided": divided,
    },
    "is_tied": {
        "modules": never,
        "shapes": shapes,
        "values": values,
    },
    "analogy": {
        "dot": dot,
        "unit_columns": unit_columns,
        "reversed": reversed_step,
        "only_third": only_third,
        "first_stays": a_may_answer,
        "never": never_left_out,
        "always": always_left_out,
    },
}
OUTSIDE = {
    "look_up": [id_as_amount, counted_from_one, unit_rows, flat],
    "look_up_backward": [first_wins, mean_over_places, only_counts, by_line],
    "recipe": [all_zero, all_one, columns_of_the_table, twice_the_root],
    "is_tied": [not_tied, doubled, same_direction, one_number],
    "analogy": [by_distance, all_added, step_alone],
}
