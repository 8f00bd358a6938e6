"""Exercises of chapter 19: debugging."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from coursekit import probe
from coursekit.config import GPTConfig
from coursekit.decoder import GPT
from coursekit_classroom.catalogue.decoder import count
from coursekit_classroom.catalogue.masks import quarters
from coursekit_classroom.check.core import (
    Bug,
    Case,
    Exercise,
    Variant,
    generator,
    randn,
)
from coursekit_classroom.check.families import (
    EXACT,
    MASK_FINITE,
    MEAN_OF_MEANS,
    POPULATION,
    SEES_NEXT,
)

float64 = torch.float64
Model = Callable[[Tensor], Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]


# -- implement: who moves whom -----------------------------------------------
def moves(model: Model, ids: Tensor, vocab_size: int) -> Tensor:
    """Which positions move when one token is changed.

    `model` is a black box: ids `(B, T)`, from 0 to `vocab_size − 1`, to logits
    `(B, T, vocab_size)`. `ids` is one such `(B, T)` tensor.
    The result is `(T, T)`, booleans. To find column j, change token j of every
    row of `ids` to the next id, `(id + 1) % vocab_size`, and nothing else.
    Entry i, j is True if any logit at position i, in any row of the batch,
    becomes another number. Differences below 10⁻⁶ are rounding.
    """
    before = model(ids)
    columns = []
    for j in range(ids.size(1)):
        other = ids.clone()
        other[:, j] = (other[:, j] + 1) % vocab_size
        after = model(other)
        moved = (after - before).abs().amax(-1) > 1e-6
        columns.append(moved.any(0))
    return torch.stack(columns, 1)


_MOVES_BUGS = {
    "stays_changed": Bug(
        "columns = []",
        "other = ids.clone()\n    columns = []",
        "        other = ids.clone()\n",
        "",
        says="a token that stays changed when the next one is changed",
        why="Then column j shows what tokens 0 to j do together. Start from "
        "a fresh copy each time.",
        read="19_debugging#dbg-by-hand",
    ),
    "exact": EXACT.by(
        "moved = (after - before).abs().amax(-1) > 1e-6",
        "moved = (after != before).any(-1)",
        read="19_debugging#dbg-reach",
    ),
    "row_0": Bug(
        "moved.any(0)",
        "moved[0]",
        says="a look at the first row of the batch alone",
        why="Rows may be treated differently, and often row 0 is the one "
        "that is spared.",
        read="19_debugging#dbg-wrong",
    ),
    "transposed": Bug(
        "return torch.stack(columns, 1)",
        "return torch.stack(columns, 0)",
        says="the matrix turned over: rows for what was changed",
        why="Row i is who moves, column j what was changed. Then it looks "
        "like the mask: query i, key j.",
        read="19_debugging#dbg-reach",
    ),
    "rises_only": Bug(
        "(after - before).abs().amax(-1)",
        "(after - before).amax(-1)",
        says="differences without absolute values, so that what only sinks "
        "has not moved",
        why="after − before is negative where a logit sinks. Take abs() "
        "before you compare.",
        read="19_debugging#dbg-reach",
        alone=True,
    ),
    "all_rows": Bug(
        "moved.any(0)",
        "moved.all(0)",
        says="a move that counts only if all rows of the batch move",
        why="One row that leaks is a leak: any, not all.",
        read="19_debugging#dbg-reach",
        alone=True,
    ),
    "off_the_end": Bug(
        "(other[:, j] + 1) % vocab_size",
        "other[:, j] + 1",
        says="an id behind the last one of the vocabulary",
        why="The next id after the last is 0: (id + 1) % vocab_size.",
        read="19_debugging#dbg-wrong",
        alone=True,
    ),
}


def _mixer(
    g: torch.Generator, mix: Tensor, noise: float = 0.0, sums: float = 1.0
) -> Model:
    """A model that mixes positions by a matrix, one for each row."""
    table, head = randn(g, 23, 4), randn(g, 4, 23)
    head = head - (1 - sums) * head.mean(-1, keepdim=True)

    def logits_of(ids: Tensor) -> Tensor:
        x = table[ids]
        return (x + mix @ x.tanh()) @ head + noise * ids.sum()

    return logits_of


def _sinking(context: Tensor, mix: Tensor) -> Model:
    """A model whose logits are 0 for known ids and lower for any others."""

    def logits_of(ids: Tensor) -> Tensor:
        news = (ids != context).double()
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
def asked(loss: Loss, vocab_size: int, length: int) -> int | str:
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
    size = 30
    sure = size * F.one_hot(ids, vocab_size).double()
    losses = {}
    for k in (-1, 0, 1, 2):
        step = k
        logits = torch.zeros_like(sure)
        for t in range(length):
            if 0 <= t + step < length:
                logits[:, t] = sure[:, t + step]
        losses[k] = float(loss(logits, ids))
    best = min(losses, key=losses.__getitem__)
    return best if losses[best] < 1 else "none"


_ASKED_BUGS = {
    "constant": Bug(
        "size = 30",
        "ids = torch.zeros_like(ids)\n    size = 30",
        says="texts of one token only",
        why="There every token equals its neighbor, and all oracles know "
        "the same. Draw texts in which neighbors differ.",
        read="19_debugging#dbg-oracle",
        at="oracle",
    ),
    "timid": Bug(
        "30",
        "1",
        says="oracles with logits of 1, who are hardly sure",
        why="After a softmax a logit of 1 among zeros is a small "
        "probability, and the right oracle has a large loss, too. Make it 30.",
        read="19_debugging#dbg-oracle",
        at="oracle",
    ),
    "backwards": Bug(
        "step = k",
        "step = -k",
        says="oracles that look to the other side",
        why="k = 1 is the *next* token: row t of the logits is for ids[t + "
        "1].",
        read="19_debugging#dbg-oracle",
        at="oracle",
    ),
    "lowest": Bug(
        'return best if losses[best] < 1 else "none"',
        "return best",
        says="the oracle with the lowest loss, however high it is",
        why="If none comes near 0, the loss asks for nothing that stands "
        "there: softmax twice, or scrambled axes.",
        read="19_debugging#dbg-oracle",
        at="verdict",
    ),
    "rolled": Bug(
        "logits[:, t] = sure[:, t + step]",
        "logits[:, t] = sure[:, t + step]\n"
        "            else:\n"
        "                logits[:, t] = sure[:, (t + step) % length]",
        says="oracles that are rolled round: what leaves at one end comes "
        "in at the other",
        why="Where there is no token k places on, the oracle knows nothing: "
        "its logits there are all 0.",
        read="19_debugging#dbg-oracle",
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
    right: Sequence[float], wrong: Sequence[float], t: float
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
    gaps = b - a
    half = t * gaps.std() / len(gaps) ** 0.5
    return float(gaps.mean()), float(half)


_DIFFERENCE_BUGS = {
    "unpaired": Bug(
        "gaps.std()",
        "(a.var() + b.var()).sqrt()",
        says="the spreads of both groups added, as if the runs were strangers",
        why="Runs with one seed share their luck, and it cancels in the "
        "difference. Take the differences first, then their spread.",
        read="further/19_debugging#dbg-pairs",
    ),
    "population": POPULATION.by(
        "gaps.std()",
        "gaps.std(correction=0)",
        says="a standard deviation with n in the denominator",
        read="further/19_debugging#dbg-pairs",
    ),
    "no_root": Bug(
        " / len(gaps) ** 0.5",
        "",
        says="the spread of single runs, not divided by √n",
        why="The mean of n runs is less uncertain than one of them, by √n.",
        read="further/19_debugging#dbg-pairs",
    ),
    "normal": Bug(
        "t *",
        "1.96 *",
        says="1.96 instead of Student's t",
        why="1.96 is for many runs. A few know little about their own "
        "spread; t makes up for that.",
        read="further/19_debugging#dbg-pairs",
    ),
    "whole_width": Bug(
        "t * gaps",
        "2 * t * gaps",
        says="the whole width of the interval, not half of it",
        why="What stands behind ± is half the width.",
        read="further/19_debugging#dbg-pairs",
        alone=True,
    ),
}


def _difference_cases(seed: int) -> list[Case]:
    g = generator(seed)
    luck = 2.4 + 0.1 * randn(g, 6)
    bug = 0.05 + 0.02 * randn(g, 6)
    return [
        Case((luck.tolist(), (luck + bug).tolist(), 2.571), name="six seeds")
    ]


# -- debug: twelve suspects --------------------------------------------------
SUSPECTS = (
    "right",
    "one block for all",
    "blocks not registered",
    "stream detached",
    "sees the future",
    "mixes the sentences",
    "ignores its context",
    "starts too sure",
    "dropout never off",
    "blocks start equal",
    "head not tied",
    "no final norm",
)


def diagnose(model: nn.Module, config: GPTConfig) -> str:
    """Which of the suspects it is, by counting and by probes."""
    v, d, n = config.vocab_size, config.d_model, config.n_layers
    view, block = _look(model, v), 12 * d * d + 13 * d
    missing = count(v, config.max_len, d, n, True, True) - view.size
    names = {
        (n - 1) * block: "one block for all",
        n * block: "blocks not registered",
        -v * d: "head not tied",
        2 * d: "no final norm",
    }
    if missing:
        return names[missing]
    if not view.repeats:
        return "dropout never off"
    first, middle, last, other = view.moved
    if last[0, :2].any() or middle[0, 0]:
        return "sees the future"
    if other[0].any() or first[1].any():
        return "mixes the sentences"
    if not (first[0, -1] and middle[0, -1]):
        return "ignores its context"
    if view.report.loss > view.report.uniform + 5:
        return "starts too sure"
    if not view.report.ok:
        return "stream detached"
    if view.equal:
        return "blocks start equal"
    return "right"


@dataclass(frozen=True)
class _Look:
    """All that can be known of a suspect from outside."""

    size: int
    size_by_name: int
    """Shared weights stand in it once for each of their names."""
    repeats: bool
    """Whether two runs agree, in evaluation mode."""
    repeats_training: bool
    moved: Sequence[Tensor]
    """(B, T): which logits move, for each of the changed inputs."""
    report: probe.TrainsEverything
    equal: bool
    """Whether two matrices hold equal numbers."""


class Suspect(GPT):
    """A model whose copies remember of what they are a copy.

    A check copies each model for each mistake that it considers; to look
    once is enough.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> "Suspect":
        """The same as for any module, and a note."""
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        for name, value in vars(self).items():
            vars(copied)[name] = copy.deepcopy(value, memo)
        _ORIGINALS[copied] = _ORIGINALS.get(self, self)
        return copied


_ORIGINALS: WeakKeyDictionary[nn.Module, nn.Module] = WeakKeyDictionary()
_SEEN: WeakKeyDictionary[nn.Module, _Look] = WeakKeyDictionary()


def _look(model: nn.Module, vocab_size: int) -> _Look:
    """Look at a model from all sides, or remember having done so."""
    original = _ORIGINALS.get(model)
    if original is None:
        return _look_at(model, vocab_size)
    if original not in _SEEN:
        _SEEN[original] = _look_at(model, vocab_size)
    return _SEEN[original]


def _look_at(model: nn.Module, vocab_size: int) -> _Look:
    ids = torch.arange(6).view(2, 3) % vocab_size
    changed = [ids.clone() for _ in range(4)]
    for t in range(3):
        changed[t][0, t] += 9  # each token of row 0
    changed[3][1] += 9  # all of row 1
    with torch.no_grad():
        repeats_training = torch.equal(model.train()(ids), model(ids))
        repeats = torch.equal(model.eval()(ids), model(ids))
    before = _run(model, ids)
    moved = [_run(model, x) - before for x in changed]
    matrices = [w for w in model.parameters() if w.dim() == 2]
    return _Look(
        size=sum(w.numel() for w in model.parameters()),
        size_by_name=sum(w.numel() for w in model.state_dict().values()),
        repeats=repeats,
        repeats_training=repeats_training,
        moved=[x.abs().amax(dim=-1) > 1e-5 for x in moved],
        report=probe.trains_everything(model, vocab_size),
        equal=any(torch.equal(a, b) for a, b in combinations(matrices, 2)),
    )


@torch.no_grad()
def _run(model: nn.Module, ids: Tensor) -> Tensor:
    """Logits, with the same dropout in each run."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return model(ids)


_DIAGNOSE_BUGS = {
    "shared_twice": Bug(
        "view.size",
        "view.size_by_name",
        says="a count in which shared weights stand more than once",
        why="state_dict() lists one block three times under three names. "
        "parameters() has every weight once.",
        read="09_decoder#dec-predict-order",
        at="count",
    ),
    "forgets_eval": Bug(
        "view.repeats",
        "view.repeats_training",
        says="a model that is asked twice in training mode",
        why="There dropout is at work, and any two runs differ. Call "
        "model.eval() first: what is still random then is a fault.",
        read="19_debugging#dbg-checklist",
    ),
    "row_0": Bug(
        "other[0].any() or first[1].any()",
        "other[0].any()",
        says="a look at row 0 of the batch alone",
        why="Rows may see those before them only: then row 0 never moves. "
        "Change each row, and look at all others.",
        read="further/19_debugging#dbg-second",
    ),
    "last_token": Bug(
        "(first[0, -1] and middle[0, -1])",
        "last[0, -1]",
        says="a context that counts as used because the last token matters",
        why="The last token reaches the last logits by the residual path, "
        "with no attention at all. Change the earlier ones.",
        read="further/09_decoder#dec-predict-last",
    ),
}


def _break(model: Suspect, name: str) -> Suspect:  # noqa: C901 (a table)
    """Put one fault into a model."""
    first, middle = model.blocks[0], model.blocks[1]
    config = model.config
    if name == "one block for all":
        model.blocks = nn.ModuleList([first] * config.n_layers)
    elif name == "blocks not registered":
        blocks = list(model.blocks)
        del model.blocks
        model.blocks = blocks  # type: ignore[assignment]
    elif name == "stream detached":
        middle.register_forward_pre_hook(
            lambda module, args: (args[0].detach(), *args[1:])
        )
    elif name == "sees the future":
        middle.get_submodule("attention").register_forward_pre_hook(
            _peek, with_kwargs=True
        )
    elif name == "mixes the sentences":
        middle.register_forward_pre_hook(_mix)
    elif name == "ignores its context":
        for block in model.blocks:
            block.get_submodule("attention").register_forward_hook(
                lambda module, args, output: 0 * output
            )
    elif name == "starts too sure":
        with torch.no_grad():
            model.embedding.weight.mul_(6)
    elif name == "dropout never off":
        model.dropout.register_forward_hook(
            lambda module, args, output: F.dropout(output, 0.3, True)
        )
    elif name == "blocks start equal":
        for block in model.blocks:
            block.load_state_dict(first.state_dict())
    elif name == "head not tied":
        model.head = nn.Linear(config.d_model, config.vocab_size, bias=False)
    elif name == "no final norm":
        model.final_norm = nn.Identity()
    return model


def _peek(module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Each position also sees the next one: a mask that is off by one."""
    length = args[0].size(1)
    mask = torch.ones(length, length, dtype=torch.bool).tril(1)
    return args, kwargs | {"mask": mask, "causal": False}


def _mix(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Each row of the batch sees the one before it; row 0 sees none."""
    x, *rest = args
    before = torch.cat((torch.zeros_like(x[:1]), x[:-1]))
    return (x + 0.5 * before, *rest)


@lru_cache(maxsize=8)  # twelve models take a while
def _diagnose_cases(seed: int) -> list[Case]:
    g = generator(seed)
    order = torch.randperm(len(SUSPECTS), generator=g).tolist()
    config = GPTConfig(
        vocab_size=29,
        max_len=13,
        d_model=22,
        n_heads=2,
        n_layers=2,
        dropout=0.1,
        scale_embedding=True,  # the paper's start: right, and not at ln V
    )
    return [
        Case((_break(Suspect(config), SUSPECTS[i]), config), name=f"model {n}")
        for n, i in enumerate(order, 1)
    ]


_RESTLESS = [
    {"forgets_eval"},
    {"forgets_eval", "row_0"},
    {"forgets_eval", "last_token"},
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
    x = table[ids] + places[: ids.size(1)]
    q, k = x @ w_q, x @ w_k
    v = x @ w_v
    scores = q @ k.mT
    scores = scores / q.size(-1) ** 0.5
    hide = torch.ones_like(scores).triu(1).bool()
    scores = scores.masked_fill(hide, -torch.inf)
    weights = scores.softmax(-1)
    logits = (x + weights @ v) @ table.T
    guesses, targets = logits[:, :-1], ids[:, 1:]
    nats = -guesses.log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    real = targets != pad
    return logits, nats[real].mean()


_MENDED_BUGS = {
    "by_batch": Bug(
        "ids.size(1)",
        "ids.size(0), None",
        says="positions counted along the batch",
        why="All tokens of a row stand in one place then, and which place "
        "that is depends on the row.",
        read="further/19_debugging#dbg-second",
    ),
    "no_scale": Bug(
        "    scores = scores / q.size(-1) ** 0.5\n",
        "",
        says="scores that are not divided by √D",
        why="No probe shows it, and the loss of a small model hardly. "
        "Compare values with a reference.",
        read="further/19_debugging#dbg-bisect",
    ),
    "sees_next": SEES_NEXT.by(
        "hide = torch.ones_like(scores).triu(1).bool()",
        "hide = torch.ones_like(scores).triu(2).bool()",
        read="further/19_debugging#dbg-first",
    ),
    "over_queries": Bug(
        "scores.softmax(-1)",
        "scores.softmax(-2)",
        says="a softmax over the queries",
        why="Its sum runs over later positions, so even a right mask leaks. "
        "Each query's weights sum to 1: the last axis.",
        read="further/05_masks#mask-predict-axis",
    ),
    "not_shifted": Bug(
        "logits[:, :-1], ids[:, 1:]",
        "logits, ids",
        says="targets that are the inputs",
        why="It asks for a token that the model reads. The oracle that "
        "knows the token itself has a loss of 0.",
        read="19_debugging#dbg-oracle",
    ),
    "shifted_twice": Bug(
        "logits[:, :-1], ids[:, 1:]",
        "logits[:, :-2], ids[:, 2:]",
        says="targets shifted by two",
        why="It asks for the token after the next one.",
        read="19_debugging#dbg-oracle",
    ),
    "padding_counted": Bug(
        "real = targets != pad\n    return logits, nats[real].mean()",
        "return logits, nats.mean()",
        says="padding that counts as text",
        why="Padding is easy to predict, so the mean looks good. Score real "
        "targets only.",
        read="further/19_debugging#dbg-table",
    ),
    "mean_of_means": MEAN_OF_MEANS.by(
        "return logits, nats[real].mean()",
        "by_row = (nats * real).sum(1) / real.sum(1)\n"
        "    return logits, by_row.mean()",
        says="the mean of the rows' means",
        read="further/10_loss#loss-wrong",
    ),
    "no_mask": Bug(
        "hide = torch.ones_like(scores).triu(1).bool()",
        "hide = torch.zeros_like(scores).bool()",
        says="attention without a causal mask",
        why="Each position may see itself and those before it: hide what "
        "lies above the diagonal.",
        read="further/19_debugging#dbg-first",
        alone=True,
    ),
    "real_inputs": Bug(
        "real = targets",
        "real = ids[:, : targets.size(1)]",
        says="inputs that are padding left out, instead of targets",
        why="Where a text ends, its last token is real and its target is "
        "padding. Ask the targets.",
        read="further/19_debugging#dbg-table",
        alone=True,
    ),
    "mask_finite": MASK_FINITE.by("-torch.inf", "-100.0"),
    "divided_by_all": Bug(
        "nats[real].mean()",
        "(nats * real).sum() / real.numel()",
        says="padding left out of the sum, and not of the number that it is "
        "divided by",
        why="The mean is over real targets: divide by how many there are.",
        read="further/19_debugging#dbg-table",
        alone=True,
    ),
}


def _mended_cases(seed: int) -> list[Case]:
    g = generator(seed)
    v, d, pad = 19, 6, 18
    ids = torch.randint(pad, (3, 7), generator=g)
    ids[0, 5:] = pad
    ids[2, 3:] = pad
    table, places = randn(g, v, d), randn(g, 11, d)
    w_q, w_k, w_v = (0.7 * randn(g, d, d) for _ in range(3))
    # One more term in each sum: all scores are lower by the same 12,000.
    flat, one = quarters(table[:, :4]), quarters(places[:, :4])
    flat[:, -1], one[:, -1] = 0.0, 1.0
    low = [quarters(w[:4, :4]) for w in (w_q, w_k)]
    for w, corner in zip(low, (-155.0, 155.0), strict=True):
        w[-1], w[:, -1], w[-1, -1] = 0.0, 0.0, corner
    return [
        Case(
            (ids, table, places, w_q, w_k, w_v, pad),
            name="three texts of 5, 7 and 3 tokens",
        ),
        Case(
            (ids, flat, one, *low, w_v[:4, :4].clone(), pad),
            name="large negative scores",
        ),
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
        ],
        forbid=("coursekit.probe.asks_for",),
    ),
    "difference": Exercise(
        difference,
        _difference_cases,
        rtol=1e-4,
        bugs=_DIFFERENCE_BUGS,
        variants={
            "turned": Variant(
                "b - a",
                "a - b",
                asks="Here the differences are right minus wrong: a bug "
                "that does harm gives a negative number.",
            ),
        },
    ),
    "diagnose": Exercise(
        diagnose,
        _diagnose_cases,
        words=SUSPECTS,
        bugs=_DIAGNOSE_BUGS,
        alike=[
            (a, b, "every model of the right size is named before that")
            for a, b in combinations(_RESTLESS, 2)
        ],
        local="its arguments are models, which cannot enter a sandbox",
    ),
    "mended": Exercise(
        mended,
        _mended_cases,
        bugs=_MENDED_BUGS,
        planted={"by_batch", "over_queries", "not_shifted", "padding_counted"},
        variants={
            "root_d": Variant(
                "q, k = x @ w_q, x @ w_k",
                "x = x + (table.size(1) ** 0.5 - 1) * table[ids]\n"
                "    q, k = x @ w_q, x @ w_k",
                asks="Here the tokens' vectors are multiplied by √D "
                "before the positions are added, as in the paper.",
            ),
        },
    ),
}
