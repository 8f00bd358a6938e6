"""Exercises of chapter 0: the first model."""

import math  # noqa: F401 (edits use it)
from collections.abc import Callable

import torch
from torch import Tensor

from coursekit.loss import cross_entropy
from coursekit_classroom.check.core import (
    Bug,
    Case,
    Exercise,
    Variant,
    generator,
    randn,
)
from coursekit_classroom.check.families import MEAN_OF_MEANS, REST_DROPPED


# -- implement: surprise by hand ---------------------------------------------
def surprise(logits: Tensor, target: int) -> Tensor:
    """The surprise at the target, in nats: −ln of its probability.

    `logits` is `(V,)`, any real numbers; `target` is a token's number, from 0
    to `V − 1`. The probabilities are the softmax of the logits, and the result
    is `−ln p[target]`: one number, 0 or above, and without an upper limit.
    It is finite and right for any size of logits: near 10,000, near −10,000,
    and tens of thousands apart, where a probability is too small to be told
    from 0.
    """
    z = logits - logits.max()
    own = z[target]
    nats = z.exp().sum().log() - own
    return nats


_SURPRISE_BUGS = {
    "naive": Bug(
        "z = logits - logits.max()",
        "z = logits",
        says="exp of the logits as they are",
        why="exp(10000) is infinite, and exp(−10000) is 0, whose logarithm "
        "is −∞. Subtract the largest logit first: softmax stays the same.",
        read="00_first_model#first-model-surprise",
        at="shift",
    ),
    "target_left": Bug(
        "z[target]",
        "logits[target]",
        says="the largest logit subtracted inside the sum, but not from the "
        "target's logit",
        why="Softmax stays the same only if every logit moves by the same "
        "number, the target's too.",
        read="00_first_model#first-model-surprise",
        at="shift",
    ),
    "via_softmax": Bug(
        "nats = z.exp().sum().log() - own",
        "nats = -(own.exp() / z.exp().sum()).log()",
        says="the logarithm of a probability that has become 0",
        why="A softmax rounds a very small probability to 0, and ln 0 is "
        "−∞. Stay with logarithms: ln of the sum, minus the target's logit.",
        read="00_first_model#first-model-surprise",
    ),
    "sign": Bug(
        "return nats",
        "return -nats",
        says="the surprise with the wrong sign, ln p instead of −ln p",
        why="A probability is at most 1, so its logarithm is negative. The "
        "minus makes 0 the best loss, and all others larger.",
        read="00_first_model#first-loss",
    ),
}


def _surprise_cases(seed: int) -> list[Case]:
    g = generator(seed)
    logits = randn(g, 7)
    best, worst = int(logits.argmax()), int(logits.argmin())
    exact = (64 * logits).round() / 64  # near 10,000 in float32, too
    return [
        Case((logits, worst), name="seven logits, an unlikely target"),
        Case((exact + 10_000, best), name="logits near 10,000"),
        Case((exact - 10_000, best), name="logits near −10,000"),
        Case((10_000 * logits, worst), name="logits thousands apart"),
        Case((10_000 * logits, best), name="the same, and the likely target"),
    ]


# -- implement: a detective for loaders --------------------------------------
def find_shift(inputs: Tensor, targets: Tensor) -> int | None:
    """The s in −3 … 3 with `targets[b, t] == inputs[b, t + s]`, or None.

    `inputs` and `targets` are whole numbers, `(B, T)`, from one loader. With
    `s = 1` each target is the next input, with `s = −1` it is the one before;
    0 is a possible answer, as are −3 and 3.
    The equation has to hold in every row b and at every place t for which both
    t and `t + s` lie in the row, `0 … T − 1`; places without such a partner do
    not count. A single target that differs rules s out. At most one s fits; if
    none does, the answer is None.
    """
    length = inputs.size(1)
    for s in range(-3, 4):
        early, late = max(s, 0), max(-s, 0)
        ids = inputs[:, early : length - late]
        wanted = targets[:, late : length - early]
        if torch.equal(ids, wanted):
            return s
    return None


_SHIFT_BUGS = {
    "sign": Bug(
        "length = inputs",
        "inputs, targets = targets, inputs\n    length = inputs",
        says="the shift with the wrong sign",
        why="targets[t] = inputs[t + s]: for s = 1 the target is the next "
        "input, so the inputs lose their first place, the targets their last.",
        read="00_first_model#first-windows",
    ),
    "no_negative": Bug(
        "range(-3, 4)",
        "range(0, 4)",
        says="a search that finds no negative s",
        why="A target that lies behind has been seen by the model. Try −3 "
        "to −1 as well; and mind that place −1 is the last one, not one "
        "before 0.",
        read="00_first_model#first-predict-backward",
        at="search",
    ),
    "last_missed": Bug(
        "range(-3, 4)",
        "range(-3, 3)",
        says="a search that stops before s = 3",
        why="range leaves out its end: range(-3, 4) reaches 3.",
        read="00_first_model#first-model-detective",
        at="search",
    ),
    "wraps": Bug(
        "ids = inputs[:, early : length - late]\n"
        "        wanted = targets[:, late : length - early]",
        "ids, wanted = inputs.roll(-s, dims=1), targets",
        says="rows that are rolled around, so that only s = 0 can fit "
        "everywhere",
        why="roll puts what leaves a row at one end in at the other. Those "
        "places have no partner: cut them off before you compare.",
        read="00_first_model#first-model-detective",
        at="search",
    ),
    "zero_lost": Bug(
        "if torch",
        "if s and torch",
        says="a shift of 0 that is never found",
        why="x[:, :-0] is empty, not the whole row, and 0 counts as false "
        "in `if s` or `s or None`. 0 is a shift like any other.",
        read="00_first_model#first-model-detective",
    ),
    "one_row": Bug(
        "length = inputs",
        "inputs, targets = inputs[:1], targets[:1]\n    length = inputs",
        says="a comparison of the first row only",
        why="A loader may go wrong in a single window. Compare all rows.",
        read="00_first_model#first-windows",
        at="comparison",
    ),
    "best_fit": Bug(
        "for s in",
        "share = {}\n    for s in",
        "if torch.equal(ids, wanted):\n            return s\n    return None",
        "share[s] = (ids == wanted).double().mean().item()\n"
        "    return max(share, key=share.__getitem__)",
        says="the shift that fits best, even if it does not fit everywhere",
        why="One wrong target is a wrong target: if no s fits at all "
        "places, the answer is None.",
        read="00_first_model#first-model-detective",
        alone=True,
    ),
}


def _shift_cases(seed: int) -> list[Case]:
    g = generator(seed)
    text = torch.randint(199, (5, 29), generator=g)
    inputs = text[:, 3:26]
    row = int(torch.randint(1, 5, (), generator=g))
    place = int(torch.randint(3, 19, (), generator=g))

    def shifted(s: int) -> Tensor:
        return text[:, 3 + s : 26 + s]

    def first_row(s: int) -> Tensor:
        return torch.cat([shifted(s)[:1], shifted(s)[1:].flip(0)])

    off = shifted(1).clone()
    off[row, place] = (off[row, place] + 1) % 199
    return [
        *(
            Case((inputs, shifted(s)), name=f"targets shifted by {s}")
            for s in (1, 0, 3, -1, -3)
        ),
        Case((inputs, off), name="one target of 115 is off"),
        *(
            Case((inputs, first_row(s)), name=f"only one row shifted by {s}")
            for s in (1, 0)
        ),
        Case((inputs, inputs.roll(-1, 0)), name="the next row as target"),
    ]


# -- debug: split last -------------------------------------------------------
Starts = tuple[Tensor, Tensor]


def deal(n_text: int, length: int) -> Starts:
    """Starts of the training windows, and of the validation windows.

    A window with start s covers the characters `s … s + length` of a text of
    `n_text` characters: `length` inputs, and the last target behind them. The
    last tenth of the text, rounded up or down, is for validation.
    Returned are two tensors of whole numbers, `(training, validation)`, with
    the starts of windows, none twice, in any order; starts are positions in
    the whole text. All that a training window covers lies before the last
    tenth, and all that a validation window covers within it. The windows need
    not be all that fit: together they cover their part of the text, except for
    less than a window at its end.
    """
    border = int(0.9 * n_text)
    starts = torch.randperm(n_text - length)
    learned = starts[starts + length < border]
    held_out = starts[starts >= border]
    return learned, held_out


_DEAL_BUGS = {
    "windows_dealt": Bug(
        "learned = starts[starts + length < border]\n"
        "    held_out = starts[starts >= border]",
        "cut = int(0.9 * len(starts))\n"
        "    learned, held_out = starts[:cut], starts[cut:]",
        says="windows of the whole text, distributed at random to both parts",
        why="Windows overlap: a character is unseen only if all windows "
        "that hold it go to validation. Cut the text first, then the windows.",
        read="00_first_model#first-split",
    ),
    "starts_cut": Bug(
        "starts + length <",
        "starts <",
        says="training windows that start before the border, and may reach "
        "over it",
        why="A window belongs to training only if all of it lies before the "
        "border, its last target included.",
        read="00_first_model#first-model-split",
        at="border",
    ),
    "target_forgotten": Bug(
        "length < border",
        "length <= border",
        says="a last training window whose inputs end at the border, and "
        "whose last target lies behind it",
        why="A window of length inputs reads length + 1 characters: the "
        "last target is one further on.",
        read="00_first_model#first-windows",
        at="border",
    ),
    "from_zero": Bug(
        "starts[starts >= border]",
        "starts[starts >= border] - border",
        says="validation starts counted from the border, not from the start "
        "of the text",
        why="A start is a place in the whole text: add the border.",
        read="00_first_model#first-split",
        at="border",
    ),
    "beyond": Bug(
        "n_text - length",
        "n_text - length + 1",
        says="a last validation window whose last target lies beyond the text",
        why="A window of length inputs reads length + 1 characters: its "
        "start is at most n_text − length − 1.",
        read="00_first_model#first-windows",
    ),
}


def _judge_deal(starts: Starts, case: Case) -> str | None:
    n_text, length = case.args
    reach = torch.arange(length + 1)  # the inputs, and the last target
    covers = []
    for name, part in zip(("training", "validation"), starts, strict=True):
        start = torch.as_tensor(part)
        places = start[:, None] + reach
        if places.min() < 0 or places.max() >= n_text:
            return f"A {name} window reaches beyond the text."
        if len(start.unique()) < len(start):
            return f"A {name} window is given out twice."
        covered = torch.zeros(n_text, dtype=torch.bool)
        covered[places] = True
        covers.append(covered)
    learned, held_out = covers
    both = (learned & held_out).sum() / held_out.sum()
    if both > 0:
        shown = f"{both.item():.0%}" if both > 0.005 else "A part"
        return f"{shown} of the validation text lies in training windows too."
    share = held_out.sum().item() / n_text
    if not 0.08 < share < 0.12:
        return f"Validation gets {share:.0%} of the text, not a tenth."
    if int(held_out.nonzero()[0]) < 0.88 * n_text:
        return "Validation gets another part of the text, not its end."
    if not learned.sum().item() / n_text > 0.88:
        return (
            f"Training gets {learned.sum().item() / n_text:.0%} of the text."
        )
    return None


def _view_deal(starts: Starts, case: Case) -> list[int | float]:
    """Where the windows lie, whatever chance and the place of the border.

    How many there are, beyond the number of characters; the share of the
    first part; whether each part has no gaps; and how far the last target of
    the earlier part is from the other part (not more than a window back).
    """
    n_text, length = case.args
    parts = [torch.as_tensor(part) for part in starts]
    ends = [(int(part.min()), int(part.max())) for part in parts]
    dense = [
        len(part.unique()) == high - low + 1
        for part, (low, high) in zip(parts, ends, strict=True)
    ]
    (_, high), (low, _) = sorted(ends, key=lambda e: (e[0], -e[1]))
    gap = max(low - high - length, -length - 1) if all(dense) else 0
    share = round(len(starts[0]) / n_text, 1)
    return [sum(map(len, starts)) - n_text, share, *dense, gap]


def _deal_cases(seed: int) -> list[Case]:
    n = int(torch.randint(9_000, 11_000, (), generator=generator(seed)))
    return [
        Case((n // 2, 61), name="windows of 61 characters"),
        Case((n, 97), name="windows of 97 characters"),
    ]


# -- debug: the mean of means ------------------------------------------------
def evaluate(
    model: Callable[[Tensor], Tensor], ids: Tensor, batch: int
) -> float:
    """The mean loss over a text in nats, the same for every batch size.

    `ids` is `(N,)`. `model` takes `(n,)` ids and returns `(n, V)` logits, for
    each id those of the next one, from that id alone. Each id but the first is
    a target once: there are `N − 1` surprises, `−ln p` of the target, and the
    result is their mean, a number.
    The model is asked about `batch` ids at a time, and in the last batch about
    those that are left, perhaps one. What is returned does not depend on
    `batch`.
    """
    nats, answers = [], []
    for start in range(0, len(ids) - 1, batch):
        part = ids[start : start + batch + 1]
        with torch.no_grad():
            loss = cross_entropy(model(part[:-1]), part[1:], reduction="sum")
        nats.append(loss.item())
        answers.append(len(part) - 1)
    return sum(nats) / sum(answers)


_EVALUATE_BUGS = {
    "mean_of_means": MEAN_OF_MEANS.by(
        "return sum(nats) / sum(answers)",
        "means = [x / n for x, n in zip(nats, answers, strict=True)]\n"
        "    return sum(means) / len(means)",
        read="00_first_model#first-model-mean",
    ),
    "all_full": Bug(
        "return sum(nats) / sum(answers)",
        "means = [x / n for x, n in zip(nats, answers, strict=True)]\n"
        "    return batch * sum(means) / (len(ids) - 1)",
        says="each batch's mean times `batch`, as if the last batch were full",
        why="The last batch holds fewer answers: weigh its mean by their "
        "number.",
        read="00_first_model#first-model-mean",
    ),
    "all_ids": Bug(
        "sum(answers)",
        "len(ids)",
        says="the sum of nats divided by the number of characters",
        why="The first character is never asked for: N characters give N − "
        "1 answers.",
        read="00_first_model#first-loss",
    ),
    "rest_dropped": REST_DROPPED.by(
        "range(0, len(ids) - 1",
        "range(0, len(ids) - batch",
        says="a last batch that is left out unless it is full",
        read="00_first_model#first-model-mean",
        at="batch",
    ),
    "border_lost": Bug(
        "start + batch + 1",
        "start + batch",
        says="batches that do not share their border, so that one pair is "
        "lost at each",
        why="The last character of a batch is a question too: its target is "
        "the first of the next. Cut one character more.",
        read="00_first_model#first-windows",
        at="batch",
    ),
    "by_inputs": Bug(
        "return sum(nats) / sum(answers)",
        "means = [x / n for x, n in zip(nats, answers, strict=True)]\n"
        "    weights = [batch] * (len(means) - 1) + [answers[-1] + 1]\n"
        "    weighed = zip(weights, means, strict=True)\n"
        "    return sum(n * x for n, x in weighed) / len(ids)",
        says="means weighed by the number of characters in a batch, and "
        "divided by that of all",
        why="The last character has no answer: weigh by the targets, "
        "len(y), and divide by their number, N − 1.",
        read="00_first_model#first-model-mean",
        alone=True,
    ),
}


def _evaluate_cases(seed: int) -> list[Case]:
    g = generator(seed)
    table = 3 * randn(g, 17, 17)
    ids = torch.randint(17, (102,), generator=g)

    def model(ids: Tensor) -> Tensor:
        return table[ids]

    return [
        Case((model, ids[:80], 23), name="a last batch of ten answers"),
        Case((model, ids, 25), name="a last batch of one answer"),
    ]


_SOFTMAX = (
    *("torch.softmax", "torch.log_softmax", "torch.logsumexp"),
    *("torch.Tensor.softmax", "torch.Tensor.log_softmax"),
    *("torch.Tensor.logsumexp", "torch.special.logsumexp"),
    *("torch.nn.functional.softmax", "torch.nn.functional.log_softmax"),
    *("torch.nn.functional.cross_entropy", "torch.nn.functional.nll_loss"),
    *("torch.nn.CrossEntropyLoss", "coursekit.loss.cross_entropy"),
    "coursekit.cross_entropy",
)

EXERCISES = {
    "surprise": Exercise(
        surprise,
        _surprise_cases,
        bugs=_SURPRISE_BUGS,
        variants={
            "bits": Variant(
                "return nats",
                "return nats / math.log(2)",
                asks="Here the surprise is in *bits*: −log₂ p of the target.",
                texts={
                    "sign": {
                        "says": "the surprise with the wrong sign, log₂ p "
                        "instead of −log₂ p",
                    },
                },
            ),
        },
        forbid=_SOFTMAX,
    ),
    "shift": Exercise(
        find_shift,
        _shift_cases,
        bugs=_SHIFT_BUGS,
        alike=[
            (
                {"wraps"},
                {"wraps", "sign"},
                "it finds nothing but 0, and 0 has no sign",
            )
        ],
    ),
    "deal": Exercise(
        deal,
        _deal_cases,
        bugs=_DEAL_BUGS,
        judge=_judge_deal,
        view=_view_deal,
    ),
    "evaluate": Exercise(
        evaluate,
        _evaluate_cases,
        bugs=_EVALUATE_BUGS,
        alike=[
            (
                {"rest_dropped"},
                {"rest_dropped", "mean_of_means"},
                "batches that are all full weigh the same",
            )
        ],
        variants={
            "bits": Variant(
                "loss.item()",
                "loss.item() / math.log(2)",
                asks="Here the mean loss is in *bits*: base 2, not base e.",
                texts={
                    "all_ids": {
                        "says": "the sum of the losses divided by the number "
                        "of characters",
                    },
                },
            ),
        },
    ),
}
