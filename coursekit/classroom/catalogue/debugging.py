"""Exercises of chapter 19: debugging."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from coursekit.classroom.check.core import (
    NONE,
    Bug,
    Case,
    Exercise,
    Switches,
    generator,
)

float64 = torch.float64
Model = Callable[[Tensor], Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]


def draw(g: torch.Generator, *shape: int) -> Tensor:
    """A random tensor in double precision."""
    return torch.randn(shape, generator=g, dtype=float64)


# -- implement: who moves whom -----------------------------------------------
def moves(
    model: Model, ids: Tensor, vocab_size: int, *, on: Switches = NONE
) -> Tensor:
    """Which positions move when one token is changed.

    `model` is a black box: ids `(B, T)`, from 0 to `vocab_size − 1`, to logits
    `(B, T, vocab_size)`. `ids` is one such `(B, T)` tensor.
    The result is `(T, T)`, booleans. To find column j, change token j of every
    row of `ids` to the next id, `(id + 1) % vocab_size`, and nothing else.
    Entry i, j is True if any logit at position i, in any row of the batch,
    becomes another number. Differences below 10⁻⁶ are rounding.
    """
    before = model(ids)
    if "stays_changed" in on:
        other = ids.clone()
    columns = []
    for j in range(ids.size(1)):
        if "stays_changed" not in on:
            other = ids.clone()
        other[:, j] = (other[:, j] + 1) % vocab_size
        after = model(other)
        if "argmax" in on:
            moved = after.argmax(-1) != before.argmax(-1)
        elif "signed" in on:
            moved = (after - before).sum(-1).abs() > 1e-6
        elif "rises_only" in on:
            moved = (after - before).amax(-1) > 1e-6
        elif "exact" in on:
            moved = (after != before).any(-1)
        elif "loose" in on:
            moved = (after - before).abs().amax(-1) > 0.1
        else:
            moved = (after - before).abs().amax(-1) > 1e-6
        if "all_rows" in on:
            columns.append(moved.all(0))
        else:
            columns.append(moved[0] if "row_0" in on else moved.any(0))
    return torch.stack(columns, 0 if "transposed" in on else 1)


_MOVES_BUGS = {
    "stays_changed": Bug(
        "a token that stays changed when the next one is changed",
        "Then column j shows what tokens 0 to j do together. Start from a "
        "fresh copy each time.",
        read="19_debugging#dbg-by-hand",
        at="copy",
    ),
    "argmax": Bug(
        "a look at the likeliest token only",
        "A leak need not change the winner to be one. Compare all logits.",
        read="19_debugging#dbg-reach",
        at="moved",
    ),
    "signed": Bug(
        "changes that are added up with their signs",
        "Up and down cancel. Take absolute values before anything is "
        "summed, or the largest.",
        read="19_debugging#dbg-reach",
        at="moved",
    ),
    "exact": Bug(
        "a comparison to the last bit",
        "Sums taken in another order differ in the last digits: allow for "
        "rounding, or every model leaks.",
        read="19_debugging#dbg-reach",
        at="moved",
    ),
    "loose": Bug(
        "a tolerance so large that a weak leak passes",
        "An untrained model moves little. Rounding is 10⁻⁶ of a logit, not "
        "a tenth.",
        read="19_debugging#dbg-reach",
        at="moved",
    ),
    "row_0": Bug(
        "a look at the first row of the batch alone",
        "Rows may be treated differently, and often row 0 is the one that "
        "is spared.",
        read="19_debugging#dbg-wrong",
        at="rows",
    ),
    "transposed": Bug(
        "the matrix turned over: rows for what was changed",
        "Row i is who moves, column j what was changed. Then it looks like "
        "the mask: query i, key j.",
        read="19_debugging#dbg-reach",
        at="stack",
    ),
    "rises_only": Bug(
        "differences without absolute values, so that what only sinks has "
        "not moved",
        "after − before is negative where a logit sinks. Take abs() before "
        "you compare.",
        read="19_debugging#dbg-reach",
        at="moved",
        alone=True,
    ),
    "all_rows": Bug(
        "a move that counts only if all rows of the batch move",
        "One row that leaks is a leak: any, not all.",
        read="19_debugging#dbg-reach",
        at="rows",
        alone=True,
    ),
}


def _mixer(
    g: torch.Generator, mix: Tensor, noise: float = 0.0, sums: float = 1.0
) -> Model:
    """A model that mixes positions by a matrix, one for each row."""
    table, head = draw(g, 23, 4), draw(g, 4, 23)
    head = head - (1 - sums) * head.mean(-1, keepdim=True)

    def logits_of(ids: Tensor) -> Tensor:
        x = table[ids]
        return (x + mix @ x.tanh()) @ head + noise * ids.sum()

    return logits_of


def _sinking(known: Tensor, mix: Tensor) -> Model:
    """A model whose logits are 0 for known ids and lower for any others."""

    def logits_of(ids: Tensor) -> Tensor:
        news = (ids != known).double()
        return -(news @ mix.mT)[..., None].expand(*ids.shape, 23)

    return logits_of


def _moves_cases(seed: int) -> list[Case]:
    g = generator(seed)
    one = torch.ones(5, 5, dtype=float64)
    back = one.triu(-1).tril(-1)  # each sees itself and the one before it
    weak = 1e-3 * (one.triu(1).tril(1) + one.triu(-2).tril(-2))
    second = torch.stack((0 * back, back))
    first = torch.stack((back, 0 * back))
    cases = []
    for mix, noise, sums, name in (
        (back, 0.0, 1.0, "each position sees itself and the one before"),
        (back + weak, 0.0, 0.0, "the next and the last but one, a little"),
        (second, 0.0, 1.0, "a model in which only row 1 has a past"),
        (first, 0.0, 1.0, "a model in which only row 0 has a past"),
        (back, 1e-10, 1.0, "a model that is off by rounding"),
    ):
        ids = torch.randint(23, (2, 5), generator=g)
        model = _mixer(g, mix, noise, sums)
        cases.append(Case((model, ids, 23), name=name))
    sinking = _sinking(ids, back)
    cases.append(Case((sinking, ids, 23), name="changes only lower logits"))
    return cases


# -- implement: what does the loss ask for? ----------------------------------
def asked(
    loss: Loss, vocab_size: int, length: int, *, on: Switches = NONE
) -> int | str:
    """Which token a program's loss asks for: how many places on it stands.

    `loss(logits, ids)` takes `(B, T, vocab_size)` logits, those of position t
    in row t, and the `(B, T)` ids of the same texts, in whole. Which logits it
    compares with which ids is its own business; it returns a number of nats,
    a mean. T must be `length`, which is at least 5; B may be any.
    For k = −1, 0, 1 and 2 give it an oracle: logits that are 30 for the token
    k places on, `ids[t + k]`, and 0 for all others; where there is no such
    token, all are 0. The texts are yours to draw; neighbors must differ.
    The result is the k whose oracle has a loss below 1, or the string "none"
    if there is no such k. No loss that is tried has two.
    """
    ids = torch.arange(2 * length).view(2, length) * 7 % vocab_size
    if "constant" in on:
        ids = torch.zeros_like(ids)
    size = 1 if "timid" in on else 30
    sure = size * F.one_hot(ids, vocab_size).double()
    found = {}
    for k in (-1, 0, 1, 2):
        step = -k if "backwards" in on else k
        known = torch.zeros_like(sure)
        for t in range(length):
            if 0 <= t + step < length:
                known[:, t] = sure[:, t + step]
            elif "rolled" in on:
                known[:, t] = sure[:, (t + step) % length]
        found[k] = float(loss(known, ids))
    if "next_only" in on:
        found = {1: found[1]}
    best = min(found, key=found.__getitem__)
    if "lowest" in on:
        return best
    return best if found[best] < 1 else "none"


_ASKED_BUGS = {
    "constant": Bug(
        "texts of one token only",
        "There every token equals its neighbor, and all oracles know the "
        "same. Draw texts in which neighbors differ.",
        read="19_debugging#dbg-oracle",
        at="oracle",
    ),
    "timid": Bug(
        "oracles with logits of 1, who are hardly sure",
        "After a softmax a logit of 1 among zeros is a small probability, "
        "and the right oracle has a large loss, too. Make it 30.",
        read="19_debugging#dbg-oracle",
        at="oracle",
    ),
    "backwards": Bug(
        "oracles that look to the other side",
        "k = 1 is the *next* token: row t of the logits is for ids[t + 1].",
        read="19_debugging#dbg-oracle",
        at="oracle",
    ),
    "next_only": Bug(
        "a look at the next token alone",
        "That says that something is wrong, not what: ask the other oracles, "
        "too.",
        read="19_debugging#dbg-oracle",
        at="verdict",
    ),
    "lowest": Bug(
        "the oracle with the lowest loss, however high it is",
        "If none comes near 0, the loss asks for nothing that stands there: "
        "softmax twice, or scrambled axes.",
        read="19_debugging#dbg-oracle",
        at="verdict",
    ),
    "rolled": Bug(
        "oracles that are rolled round: what leaves at one end comes in at "
        "the other",
        "Where there is no token k places on, the oracle knows nothing: its "
        "logits there are all 0.",
        read="19_debugging#dbg-oracle",
        at="oracle",
        alone=True,
    ),
}


def _cut(k: int, twice: bool = False) -> Loss:
    """A loss that asks for the token k places on."""

    def loss(logits: Tensor, ids: Tensor) -> Tensor:
        n = ids.size(1)
        logits = logits[:, max(-k, 0) : n - max(k, 0)]
        targets = ids[:, max(k, 0) : n - max(-k, 0)]
        if twice:
            logits = logits.softmax(-1)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    return loss


def _round(logits: Tensor, ids: Tensor) -> Tensor:
    """A loss whose targets were rolled: ln V of the last is too much."""
    targets = ids.roll(-1, 1)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def _asked_cases(seed: int) -> list[Case]:
    g = generator(seed)
    (size,) = torch.randint(0, 3, (1,), generator=g).tolist()
    size = (17, 23, 29)[size]
    return [
        Case((_cut(k, twice), size, 5 + seed % 3), name=name)
        for k, twice, name in (
            (1, False, "a right loss"),
            (0, False, "targets that were not shifted"),
            (2, False, "targets that were shifted twice"),
            (-1, False, "targets shifted to the wrong side"),
            (1, True, "a softmax before the loss"),
        )
    ] + [Case((_round, 331, 5), name="the last is asked for the first")]


# -- implement: is it the bug, or the seed? ----------------------------------
def difference(
    right: Sequence[float],
    wrong: Sequence[float],
    t: float,
    *,
    on: Switches = NONE,
) -> tuple[float, float]:
    """How much higher a loss is with a bug, and how sure that is.

    `right[i]` and `wrong[i]` are the losses of two runs with the same seed,
    first weights and batches; there are n ≥ 3 such pairs. Take the difference
    of each pair, wrong minus right. Returned are two numbers: the mean of the
    differences, and half the width of its 95 % interval, `t · s / √n`, where
    s is the standard deviation of the differences with n − 1 in its
    denominator, and `t` is Student's number for n − 1, which is given.
    """
    a = torch.tensor(right, dtype=float64)
    b = torch.tensor(wrong, dtype=float64)
    gaps = a - b if "turned" in on else b - a
    n = len(gaps)
    if "unpaired" in on:
        s = (a.var() + b.var()).sqrt()
    elif "population" in on:
        s = gaps.std(correction=0)
    else:
        s = gaps.std()
    error = s if "no_root" in on else s / n**0.5
    half = (1.96 if "normal" in on else t) * error
    return float(gaps.mean()), float(half)


_DIFFERENCE_BUGS = {
    "unpaired": Bug(
        "the spreads of both groups added, as if the runs were strangers",
        "Runs with one seed share their luck, and it cancels in the "
        "difference. Take the differences first, then their spread.",
        read="19_debugging#dbg-pairs",
        at="spread",
    ),
    "population": Bug(
        "a standard deviation with n in the denominator",
        "A few values lie closer to their own mean than to the true one: "
        "divide by n − 1.",
        read="19_debugging#dbg-pairs",
        at="spread",
    ),
    "no_root": Bug(
        "the spread of single runs, not divided by √n",
        "The mean of n runs is less uncertain than one of them, by √n.",
        read="19_debugging#dbg-pairs",
        at="error",
    ),
    "normal": Bug(
        "1.96 instead of Student's t",
        "1.96 is for many runs. A few know little about their own spread; "
        "t makes up for that.",
        read="19_debugging#dbg-pairs",
        at="t",
    ),
}


def _difference_cases(seed: int) -> list[Case]:
    g = generator(seed)
    luck = 2.4 + 0.1 * draw(g, 6)
    bug = 0.05 + 0.02 * draw(g, 6)
    return [
        Case((luck.tolist(), (luck + bug).tolist(), 2.571), name="six seeds")
    ]


# -- debug: the last program -------------------------------------------------
def mended(
    ids: Tensor,
    table: Tensor,
    places: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    pad: int,
    *,
    on: Switches = NONE,
) -> tuple[Tensor, Tensor]:
    """The logits and the loss of a model with one block of attention.

    `ids` is `(B, T)`; rows that are shorter are filled up with `pad` at their
    end, an id that stands nowhere else. A token's vector is its row of
    `table`, `(V, D)`, plus the row of `places`, `(P, D)` with `P ≥ T`, of its
    place in the text, counted from 0. `w_q`, `w_k` and `w_v` are `(D, D)`:
    queries are `x w_q`, and so on. One head: scores `q kᵀ / √D`, each position
    sees itself and those before it, its weights sum to 1. What attention gives
    is added to the vectors, and the logits are the products with `table`.
    Returned are the `(B, T, V)` logits and the loss: the mean, over all
    targets that are not `pad`, of the nats that the next token costs.
    """
    if "by_batch" in on:
        x = table[ids] + places[: ids.size(0), None]
    elif "no_places" in on:
        x = table[ids]
    else:
        x = table[ids] + places[: ids.size(1)]
    if "root_d" in on:
        x = x + (table.size(1) ** 0.5 - 1) * table[ids]
    q, k = x @ w_q, x @ w_k
    v = k if "values_are_keys" in on else x @ w_v
    scores = q @ k.mT
    if "no_scale" not in on:
        scores = scores / q.size(-1) ** 0.5
    if "no_mask" in on:
        hide = torch.zeros_like(scores).bool()
    elif "sees_next" in on:
        hide = torch.ones_like(scores).triu(2).bool()
    else:
        hide = torch.ones_like(scores).triu(1).bool()
    scores = scores.masked_fill(hide, -torch.inf)
    weights = scores.softmax(-2 if "over_queries" in on else -1)
    logits = (x + weights @ v) @ table.T
    if "not_shifted" in on:
        guesses, targets = logits, ids
    elif "shifted_twice" in on:
        guesses, targets = logits[:, :-2], ids[:, 2:]
    else:
        guesses, targets = logits[:, :-1], ids[:, 1:]
    nats = -guesses.log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    if "padding_counted" in on:
        return logits, nats.mean()
    if "real_inputs" in on:
        real = ids[:, : targets.size(1)] != pad
    else:
        real = targets != pad
    if "mean_of_means" in on:
        by_row = (nats * real).sum(1) / real.sum(1)
        return logits, by_row.mean()
    return logits, nats[real].mean()


_MENDED_BUGS = {
    "by_batch": Bug(
        "positions counted along the batch",
        "All tokens of a row stand in one place then, and which place that "
        "is depends on the row.",
        read="19_debugging#dbg-second",
        at="places",
    ),
    "no_places": Bug(
        "no positions at all",
        "A token's vector is its own row plus that of its place.",
        read="09_decoder#dec-formula",
        at="places",
    ),
    "values_are_keys": Bug(
        "values that are the keys",
        "Then w_v gets no gradient: the probe of everything that trains "
        "says so.",
        read="19_debugging#dbg-probes",
        at="values",
    ),
    "no_scale": Bug(
        "scores that are not divided by √D",
        "No probe shows it, and the loss of a small model hardly. Compare "
        "values with a reference.",
        read="19_debugging#dbg-bisect",
        at="scale",
    ),
    "sees_next": Bug(
        "a mask that is off by one: each position sees the next token",
        "Hide what lies above the diagonal, triu(1).",
        read="19_debugging#dbg-first",
        at="mask",
    ),
    "over_queries": Bug(
        "a softmax over the queries",
        "Its sum runs over later positions, so even a right mask leaks. "
        "Each query's weights sum to 1: the last axis.",
        read="05_masks#mask-predict-axis",
        at="softmax",
    ),
    "not_shifted": Bug(
        "targets that are the inputs",
        "It asks for a token that the model reads. The oracle that knows "
        "the token itself has a loss of 0.",
        read="19_debugging#dbg-oracle",
        at="targets",
    ),
    "shifted_twice": Bug(
        "targets shifted by two",
        "It asks for the token after the next one.",
        read="19_debugging#dbg-oracle",
        at="targets",
    ),
    "padding_counted": Bug(
        "padding that counts as text",
        "Padding is easy to predict, so the mean looks good. Score real "
        "targets only.",
        read="19_debugging#dbg-table",
        at="mean",
    ),
    "mean_of_means": Bug(
        "the mean of the rows' means",
        "A short row's tokens weigh more then. One sum, divided by one count.",
        read="10_loss#loss-wrong",
        at="mean",
    ),
    "no_mask": Bug(
        "attention without a causal mask",
        "Each position may see itself and those before it: hide what lies "
        "above the diagonal.",
        read="19_debugging#dbg-first",
        at="mask",
        alone=True,
    ),
    "real_inputs": Bug(
        "inputs that are padding left out, instead of targets",
        "Where a text ends, its last token is real and its target is "
        "padding. Ask the targets.",
        read="19_debugging#dbg-table",
        at="mean",
        alone=True,
    ),
}


def _mended_cases(seed: int) -> list[Case]:
    g = generator(seed)
    v, d, pad = 19, 6, 18
    ids = torch.randint(pad, (3, 7), generator=g)
    ids[0, 5:] = pad
    ids[2, 3:] = pad
    table, places = draw(g, v, d), draw(g, 11, d)
    w_q, w_k, w_v = (0.7 * draw(g, d, d) for _ in range(3))
    return [
        Case(
            (ids, table, places, w_q, w_k, w_v, pad),
            name="three texts of 5, 7 and 3 tokens",
        )
    ]


EXERCISES = {
    "moves": Exercise(
        moves,
        _moves_cases,
        bugs=_MOVES_BUGS,
        forbid=("coursekit.probe.reach", "coursekit.probe.causality"),
    ),
    "asked": Exercise(
        asked,
        _asked_cases,
        bugs=_ASKED_BUGS,
        alike=[
            (
                {"lowest"},
                {"lowest", "timid"},
                "the right oracle stays the lowest, however timid",
            ),
            (
                {"timid"},
                {"timid", "next_only"},
                "if no oracle is sure, it does not matter which are asked",
            ),
        ],
        forbid=("coursekit.probe.asks_for",),
    ),
    "difference": Exercise(
        difference,
        _difference_cases,
        rtol=1e-4,  # float32 is good enough here
        bugs=_DIFFERENCE_BUGS,
        variants={
            "turned": "Here the differences are right minus wrong: a bug "
            "that does harm gives a negative number."
        },
    ),
    "mended": Exercise(
        mended,
        _mended_cases,
        bugs=_MENDED_BUGS,
        planted={"by_batch", "over_queries", "not_shifted", "padding_counted"},
        variants={
            "root_d": "Here the tokens' vectors are multiplied by √D before "
            "the positions are added, as in the paper."
        },
    ),
}
