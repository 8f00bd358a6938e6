"""Answers to chapter 19, written from its page alone."""

import math
import statistics

import torch
from torch.nn import functional as F

from tests.wild import right, wrong

# debugging/moves


@right("debugging/moves", "three loops, cell by cell, in lists")
def cell_by_cell(model, ids, vocab_size):
    B, T = ids.shape
    before = model(ids.clone())
    grid = [[False] * T for _ in range(T)]
    for j in range(T):
        other = ids.tolist()
        for row in other:
            row[j] = row[j] + 1 if row[j] + 1 < vocab_size else 0
        after = model(torch.tensor(other, dtype=ids.dtype))
        for i in range(T):
            for b in range(B):
                gap = max((after[b, i] - before[b, i]).abs().tolist())
                grid[i][j] = grid[i][j] or gap > 1e-6
    return torch.tensor(grid)


@right("debugging/moves", "an added column of an identity, one norm")
def columns_of_identity(model, ids, vocab_size):
    T, usual = ids.size(1), model(ids)
    step = torch.eye(T, dtype=ids.dtype)
    moved = torch.stack(
        [
            torch.linalg.vector_norm(
                model((ids + one) % vocab_size) - usual,
                ord=math.inf,
                dim=(0, 2),
            )
            for one in step
        ]
    )
    return (moved >= 1e-6).T


def _moves(
    model,
    ids,
    vocab_size,
    *,
    changed=None,
    size=torch.abs,
    over=lambda gap: gap.any(0),
):
    before, columns = model(ids), []
    for j in range(ids.size(1)):
        other = ids.clone()
        if changed is None:
            other[:, j] = (other[:, j] + 1) % vocab_size
        else:
            changed(other, j)
        gap = size(model(other) - before).amax(-1) > 1e-6
        columns.append(over(gap))
    return torch.stack(columns, 1)


@wrong(
    "debugging/moves",
    "the map is transposed: rows are what was changed",
    classic=True,
)
def map_transposed(model, ids, vocab_size):
    return _moves(model, ids, vocab_size).T


@wrong(
    "debugging/moves",
    "ids are changed in place, so that earlier changes stay",
    classic=True,
)
def changes_pile_up(model, ids, vocab_size):
    before, columns = model(ids), []
    other = ids
    for j in range(ids.size(1)):
        other[:, j] = (other[:, j] + 1) % vocab_size
        gap = (model(other) - before).abs().amax(-1) > 1e-6
        columns.append(gap.any(0))
    return torch.stack(columns, 1)


@wrong(
    "debugging/moves",
    "only the first row of the batch is looked at",
    classic=True,
)
def first_row_only(model, ids, vocab_size):
    return _moves(model, ids, vocab_size, over=lambda gap: gap[0])


@wrong(
    "debugging/moves",
    "the next id after the last one does not exist",
    classic=True,
)
def leaves_the_vocabulary(model, ids, vocab_size):
    def changed(other, j):
        other[:, j] += 1

    return _moves(model, ids, vocab_size, changed=changed)


@wrong(
    "debugging/moves",
    "differences are signed: what only sinks has not moved",
    classic=True,
)
def signed(model, ids, vocab_size):
    return _moves(model, ids, vocab_size, size=lambda gap: gap)


@wrong(
    "debugging/moves", "any difference counts, rounding included", classic=True
)
def rounding_counts(model, ids, vocab_size):
    before, columns = model(ids), []
    for j in range(ids.size(1)):
        other = ids.clone()
        other[:, j] = (other[:, j] + 1) % vocab_size
        columns.append((model(other) != before).any(-1).any(0))
    return torch.stack(columns, 1)


@wrong("debugging/moves", "all rows of the batch have to move", classic=False)
def all_rows_have_to(model, ids, vocab_size):
    return _moves(model, ids, vocab_size, over=lambda gap: gap.all(0))


# debugging/asked


@right("debugging/asked", "counting texts, oracles filled cell by cell")
def counting_texts(loss, vocab_size, length):
    ids = torch.arange(length)[None] + torch.tensor([[0], [2], [5]])
    ids = ids % vocab_size
    for k in (-1, 0, 1, 2):
        logits = torch.zeros(3, length, vocab_size)
        for b in range(3):
            for t in range(length):
                if 0 <= t + k < length:
                    logits[b, t, ids[b, t + k]] = 30.0
        if float(loss(logits, ids)) < 1:
            return k
    return "none"


@right("debugging/asked", "padded by F.pad, cut at both ends, one next()")
def padded_oracles(loss, vocab_size, length):
    rows = [torch.randperm(vocab_size)[:length] for _ in range(4)]
    ids = torch.stack(rows)
    known = 30.0 * F.one_hot(ids, vocab_size)
    wide = F.pad(known, (0, 0, 1, 2))  # one place before, two behind

    def nats(k):
        return float(loss(wide[:, k + 1 : k + 1 + length], ids))

    return next((k for k in (-1, 0, 1, 2) if nats(k) < 1), "none")


def _asked(
    loss,
    vocab_size,
    length,
    *,
    sign=1,
    height=30.0,
    draw=None,
    none="none",
    roll=False,
    lowest=False,
):
    ids = torch.stack([torch.randperm(vocab_size)[:length] for _ in range(4)])
    if draw is not None:
        ids = draw(vocab_size, length)
    known, found = height * F.one_hot(ids, vocab_size), {}
    for k in (-1, 0, 1, 2):
        shift = -k * sign
        logits = known.roll(shift, 1)
        if shift > 0 and not roll:
            logits[:, :shift] = 0
        if shift < 0 and not roll:
            logits[:, shift:] = 0
        found[k] = float(loss(logits, ids))
    best = min(found, key=found.get)
    if lowest:
        return best
    return best if found[best] < 1 else none


@wrong(
    "debugging/asked",
    "oracles look to the other side: k has the wrong sign",
    classic=True,
)
def other_side(loss, vocab_size, length):
    return _asked(loss, vocab_size, length, sign=-1)


@wrong(
    "debugging/asked", "the lowest loss wins, however high it is", classic=True
)
def lowest_wins(loss, vocab_size, length):
    return _asked(loss, vocab_size, length, lowest=True)


@wrong(
    "debugging/asked",
    "logits of 1 instead of 30: no oracle is sure",
    classic=True,
)
def not_sure(loss, vocab_size, length):
    return _asked(loss, vocab_size, length, height=1.0)


@wrong(
    "debugging/asked",
    "texts of one repeated token, for which every k is the same",
    classic=True,
)
def one_token_texts(loss, vocab_size, length):
    return _asked(
        loss,
        vocab_size,
        length,
        draw=lambda v, n: torch.randint(v, (4, 1)).expand(4, n).clone(),
    )


@wrong(
    "debugging/asked",
    "rolled without clearing: what falls out at one end comes in at the other",
    classic=True,
)
def rolled_around(loss, vocab_size, length):
    return _asked(loss, vocab_size, length, roll=True)


@wrong(
    "debugging/asked",
    "None where no oracle fits, not the string",
    classic=False,
)
def nothing_returned(loss, vocab_size, length):
    return _asked(loss, vocab_size, length, none=None)


@wrong(
    "debugging/asked", "always 1, the right program's answer", classic=False
)
def always_the_next(loss, vocab_size, length):
    return 1


# debugging/difference


@right("debugging/difference", "the statistics module")
def by_statistics(right, wrong, t):
    gaps = [float(b) - float(a) for a, b in zip(right, wrong, strict=True)]
    half = t * statistics.stdev(gaps) / len(gaps) ** 0.5
    return statistics.fmean(gaps), half


@right("debugging/difference", "sums of squares in double precision")
def sums_of_squares(right, wrong, t):
    n = len(right)
    gaps = [float(wrong[i]) - float(right[i]) for i in range(n)]
    mean = math.fsum(gaps) / n
    squares = math.fsum((gap - mean) ** 2 for gap in gaps)
    return mean, t * math.sqrt(squares / (n * (n - 1)))


def _gaps(right, wrong):
    return [float(b) - float(a) for a, b in zip(right, wrong, strict=True)]


@wrong("debugging/difference", "right minus wrong", classic=True)
def right_minus_wrong(right, wrong, t):
    gaps = _gaps(wrong, right)
    half = t * statistics.stdev(gaps) / math.sqrt(len(gaps))
    return statistics.fmean(gaps), half


@wrong(
    "debugging/difference",
    "as if the runs were not pairs: variances of both sides are added",
    classic=True,
)
def not_as_pairs(right, wrong, t):
    a, b = ([float(x) for x in side] for side in (right, wrong))
    both = statistics.variance(a) + statistics.variance(b)
    mean = statistics.fmean(b) - statistics.fmean(a)
    return mean, t * math.sqrt(both / len(a))


@wrong(
    "debugging/difference",
    "standard deviation with n, not n - 1",
    classic=True,
)
def deviation_with_n(right, wrong, t):
    gaps = _gaps(right, wrong)
    half = t * statistics.pstdev(gaps) / math.sqrt(len(gaps))
    return statistics.fmean(gaps), half


@wrong("debugging/difference", "the whole width of the interval", classic=True)
def whole_width(right, wrong, t):
    gaps = _gaps(right, wrong)
    half = t * statistics.stdev(gaps) / math.sqrt(len(gaps))
    return statistics.fmean(gaps), 2 * half


@wrong(
    "debugging/difference",
    "not divided by the root of the number of "
    "pairs: the spread of single runs",
    classic=True,
)
def spread_of_runs(right, wrong, t):
    gaps = _gaps(right, wrong)
    return statistics.fmean(gaps), t * statistics.stdev(gaps)


@wrong(
    "debugging/difference",
    "1.96 instead of the t that is given",
    classic=False,
)
def always_196(right, wrong, t):
    gaps = _gaps(right, wrong)
    half = 1.96 * statistics.stdev(gaps) / math.sqrt(len(gaps))
    return statistics.fmean(gaps), half


# debugging/mended


@right("debugging/mended", "text by text, query by query, sum over count")
def query_by_query(ids, table, places, w_q, w_k, w_v, pad):
    logits, total, count = [], 0.0, 0
    for text in ids:
        x = table[text] + places[: len(text)]
        rows = []
        for t in range(len(text)):
            past = x[: t + 1]
            scores = (past @ w_k) @ (x[t] @ w_q) / w_q.size(1) ** 0.5
            rows.append(table @ (x[t] + scores.softmax(0) @ (past @ w_v)))
        logits.append(torch.stack(rows))
        for row, answer in zip(rows[:-1], text[1:].tolist(), strict=True):
            if answer != pad:
                total = total + torch.logsumexp(row, 0) - row[answer]
                count += 1
    return torch.stack(logits), total / max(count, 1)


@right("debugging/mended", "PyTorch's cross_entropy with pad ignored")
def pad_ignored(ids, table, places, w_q, w_k, w_v, pad):
    T = ids.size(1)
    x = F.embedding(ids, table) + places[:T]
    scores = torch.einsum("btd,de,bse->bts", x, w_q, x @ w_k)
    scores = scores / w_q.shape[-1] ** 0.5
    see = torch.ones(T, T, dtype=torch.bool).tril()
    weights = scores.masked_fill(~see, float("-inf")).softmax(-1)
    logits = F.linear(x + weights @ (x @ w_v), table)
    loss = F.cross_entropy(
        logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), ignore_index=pad
    )
    return logits, loss


def _whole(
    ids,
    table,
    places,
    w_q,
    w_k,
    w_v,
    pad,
    *,
    by_row=False,
    axis=-1,
    shift=1,
    count="targets",
):
    B, T = ids.shape
    at = (
        torch.arange(B)[:, None].expand(B, T)
        if by_row
        else (torch.arange(T).expand(B, T))
    )
    x = table[ids] + places[at]
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    scores = q @ k.mT / q.size(-1) ** 0.5
    hide = torch.ones(T, T, dtype=torch.bool).triu(1)
    weights = scores.masked_fill(hide, -torch.inf).softmax(axis)
    logits = (x + weights @ v) @ table.T
    y = ids[:, shift:]
    log_p = logits[:, : T - shift].log_softmax(-1)
    nats = -log_p.gather(-1, y[..., None])[..., 0]
    if count == "all":
        return logits, nats.mean()
    if count == "sum":
        return logits, (nats * (y != pad)).mean()
    keep = (ids[:, : T - shift] if count == "inputs" else y) != pad
    if count == "texts":
        each = (nats * keep).sum(1) / keep.sum(1).clamp(min=1)
        return logits, each.mean()
    return logits, nats[keep].mean()


@wrong(
    "debugging/mended",
    "positions are still counted along the batch",
    classic=True,
)
def positions_of_the_batch(ids, table, places, w_q, w_k, w_v, pad):
    return _whole(ids, table, places, w_q, w_k, w_v, pad, by_row=True)


@wrong(
    "debugging/mended", "the softmax still runs over the queries", classic=True
)
def still_over_queries(ids, table, places, w_q, w_k, w_v, pad):
    return _whole(ids, table, places, w_q, w_k, w_v, pad, axis=-2)


@wrong("debugging/mended", "targets are still not shifted", classic=True)
def still_not_shifted(ids, table, places, w_q, w_k, w_v, pad):
    return _whole(ids, table, places, w_q, w_k, w_v, pad, shift=0)


@wrong("debugging/mended", "padding still counts as a target", classic=True)
def padding_still_counts(ids, table, places, w_q, w_k, w_v, pad):
    return _whole(ids, table, places, w_q, w_k, w_v, pad, count="all")


@wrong(
    "debugging/mended",
    "padding is left out of the sum, but not of the number divided by",
    classic=True,
)
def divided_by_all_targets(ids, table, places, w_q, w_k, w_v, pad):
    return _whole(ids, table, places, w_q, w_k, w_v, pad, count="sum")


@wrong(
    "debugging/mended",
    "inputs that are padding are left out, instead "
    "of targets: the first padding of a row is still asked for",
    classic=True,
)
def inputs_left_out(ids, table, places, w_q, w_k, w_v, pad):
    return _whole(ids, table, places, w_q, w_k, w_v, pad, count="inputs")


@wrong("debugging/mended", "the mean of each text's mean", classic=True)
def mean_of_each_text(ids, table, places, w_q, w_k, w_v, pad):
    return _whole(ids, table, places, w_q, w_k, w_v, pad, count="texts")


@wrong("debugging/mended", "targets are shifted by two", classic=False)
def shifted_by_two(ids, table, places, w_q, w_k, w_v, pad):
    return _whole(ids, table, places, w_q, w_k, w_v, pad, shift=2)
