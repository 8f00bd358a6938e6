"""Exercises of chapter 10: loss."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from coursekit_classroom.check.core import (
    Bug,
    Case,
    Exercise,
    Variant,
    generator,
    randn,
)
from coursekit_classroom.check.families import (
    EMPTY_NAN,
    MEAN_OF_MEANS,
    ONE_MAXIMUM,
    PADDING_COUNTED,
    SOFTMAX_FIRST,
)
from coursekit_classroom.check.forbid import AUTOGRAD

float64 = torch.float64


def draw(g: torch.Generator, *shape: int) -> tuple[Tensor, Tensor]:
    """Logits of that shape, and a target for each row."""
    logits = 3 * randn(g, *shape)
    return logits, torch.randint(shape[-1], shape[:-1], generator=g)


# -- implement: stable cross-entropy -----------------------------------------
def stable(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean surprise at the targets that count, in nats.

    `logits` is `(N, V)`, a prediction in each row; `targets` is `(N,)`, whole
    numbers. The surprise of a row is `−ln p[target]`, with p the softmax of
    that row. A target of −100 does not count, neither in the sum nor in the
    number that it is divided by, also if V is above 100.
    The result is one number, a tensor without axes. It is finite for logits of
    ±10,000, and 0 if no target counts.
    """
    keep = targets != -100
    z, y = logits[keep], targets[keep]
    if len(y) == 0:
        return logits.new_zeros(())
    z = z - z.amax(dim=-1, keepdim=True)
    log_p = z - z.exp().sum(dim=-1, keepdim=True).log()
    nats = -log_p[torch.arange(len(y)), y]
    return nats.mean()


_STABLE_BUGS = {
    "naive": Bug(
        "    z = z - z.amax(dim=-1, keepdim=True)\n",
        "",
        says="exp of the logits as they are",
        why="To a float, exp(10,000) is infinite. Subtract each row's largest "
        "logit first: no probability changes, and no exp is above 1.",
        read="10_loss#loss-code",
        at="softmax",
    ),
    "softmax_log": Bug(
        "z - z.exp().sum(dim=-1, keepdim=True).log()",
        "z.softmax(dim=-1).log()",
        says="the logarithm of a finished softmax",
        why="A probability of e⁻²⁰⁰⁰⁰ is rounded to 0, and its logarithm is "
        "−∞. Stay with logits: the logarithm of the sum, minus the target's "
        "logit.",
        read="10_loss#loss-code",
        at="softmax",
    ),
    "over_rows": Bug(
        "amax(dim=-1",
        "amax(dim=0",
        "sum(dim=-1",
        "sum(dim=0",
        says="probabilities that sum to 1 over the rows instead of the tokens",
        why="Each row is a prediction of its own: normalize along the last "
        "axis.",
        read="10_loss#loss-formula",
    ),
    "no_ignore": Bug(
        "keep = targets != -100\n    z, y = logits[keep], targets[keep]",
        "z, y = logits, targets",
        says="−100 taken for a token, counted from the end",
        why="Python's index −100 is the hundredth from the end, so with 100 "
        "tokens or more nothing complains. Drop these rows first.",
        read="10_loss#loss-formula",
        at="mean",
    ),
    "all_counted": PADDING_COUNTED.by(
        "nats.mean()", "nats.sum() / len(targets)", at="mean"
    ),
    "empty_nan": EMPTY_NAN.by(
        "    if len(y) == 0:\n        return logits.new_zeros(())\n",
        "",
        at="mean",
    ),
    "sum": Bug(
        "nats.mean()",
        "nats.sum()",
        says="the sum over the targets instead of their mean",
        why="A sum grows with the number of targets, so a larger batch would "
        "take larger steps. Divide by how many count.",
        read="10_loss#loss-formula",
        at="mean",
    ),
    "one_maximum": ONE_MAXIMUM.by(
        "z.amax(dim=-1, keepdim=True)",
        "z.amax()",
        says="the largest logit of the whole batch subtracted from every row",
        read="10_loss#loss-code",
        at="softmax",
    ),
}


def _stable_cases(seed: int) -> list[Case]:
    g = generator(seed)
    logits, targets = draw(g, 7, 11)
    wide, some = draw(g, 7, 103)  # −100 is an index here
    some[[1, 4, 5]] = -100
    sure = 1e4 * logits.sign()
    sure[0, targets[0]] = -1e4
    sure[0, targets[0] - 1] = 1e4
    right = 1e4 * F.one_hot(targets, 11).double()
    # Multiples of 2⁻⁸: 10,000 more of them is exact in float32, too.
    uneven = (256 * logits).round() / 256
    uneven += torch.tensor([1e4, -1e4] * 3 + [1e4])[:, None]
    return [
        Case((logits, targets), name="seven rows"),
        Case((wide, some), name="three targets that do not count"),
        Case((uneven, targets), name="rows around 10,000 and −10,000"),
        Case((sure, targets), name="logits of ±10,000"),
        Case((right, targets), name="the right logit is 10,000, others 0"),
        Case((wide, torch.full((7,), -100)), name="nothing counts"),
    ]


def _finite(value: Tensor | float, case: Case) -> Tensor:
    """An overflow is an overflow, whether it says ∞ or NaN."""
    return torch.as_tensor(value, dtype=float64).nan_to_num(
        nan=math.inf, neginf=math.inf, posinf=math.inf
    )


# -- implement: the gradient -------------------------------------------------
def gradient(logits: Tensor, targets: Tensor) -> Tensor:
    """The gradient of the mean loss with respect to the logits.

    The loss is the mean over the targets that count of `−ln p[target]`, in
    nats, with p the softmax of a row. `logits` is `(N, V)`, `targets` is
    `(N,)`, whole numbers. A target of −100 does not count, neither in the sum
    nor in the number that it is divided by, also if V is above 100.
    The result is `(N, V)`: how fast the loss grows with each logit. Rows whose
    target does not count are 0; if none counts, all are.
    """
    p = logits.softmax(dim=-1)
    y = torch.zeros_like(p)
    keep = targets != -100
    y[torch.arange(len(y)), targets.where(keep, 0)] = 1
    slope = p - y
    slope[~keep] = 0
    return slope / keep.sum().clamp(min=1)


_GRADIENT_BUGS = {
    "swapped": Bug(
        "p - y",
        "y - p",
        says="target minus probability",
        why="That is the push of a training step, which goes against the "
        "gradient. The loss falls where the target's logit rises, so the "
        "gradient is negative there.",
        read="10_loss#loss-by-hand",
    ),
    "by_sum": Bug(
        " / keep.sum().clamp(min=1)",
        "",
        says="the gradient of the sum, not of the mean",
        why="The loss is a mean, so each row's p − y is divided by the number "
        "of targets that count.",
        read="10_loss#loss-formula",
    ),
    "all_counted": PADDING_COUNTED.by(
        "keep.sum().clamp(min=1)", "len(targets)", at="mean"
    ),
    "no_ignore": Bug(
        "targets != -100",
        "torch.ones_like(targets, dtype=torch.bool)",
        says="−100 taken for a token, counted from the end",
        why="Python's index −100 is the hundredth from the end, so with 100 "
        "tokens or more nothing complains. Such a row has a gradient of 0.",
        read="10_loss#loss-formula",
        at="padding",
    ),
    "pads_pushed": Bug(
        "    slope[~keep] = 0\n",
        "",
        "] = 1",
        "] = 1\n    y[~keep] = 0",
        says="rows of padding that keep their probabilities as a slope",
        why="A target of −100 does not count: set its whole row to 0, not "
        "only the target's 1.",
        read="10_loss#loss-formula",
        at="padding",
    ),
    "empty_nan": EMPTY_NAN.by(
        ".clamp(min=1)",
        "",
        says="0 divided by 0 where no target counts",
    ),
}


def _gradient_cases(seed: int) -> list[Case]:
    g = generator(seed)
    logits, targets = draw(g, 5, 13)
    targets[1] = 0  # a token like any other
    wide, some = draw(g, 7, 103)  # −100 is an index here
    some[[0, 3]] = -100
    return [
        Case((logits, targets), name="five rows"),
        Case((wide, some), name="103 tokens, two targets do not count"),
        Case((wide, torch.full((7,), -100)), name="no target counts"),
    ]


# -- debug: it runs ----------------------------------------------------------
def mended(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean loss over a batch of sequences, in nats.

    `logits` is `(B, T, V)`, any real numbers, whose softmax over the V tokens
    is p; `targets` is `(B, T)`, whole numbers. The loss at a position
    is `−ln p[target]`. A target of −100 does not count, neither in the sum nor
    in the number that it is divided by.
    The mean is taken once, over all targets of all sequences that count, each
    with the same weight, however long its sequence is. The result is one
    number, a tensor without axes.
    """
    z = logits.transpose(1, 2)
    nats = F.cross_entropy(z, targets, reduction="none")
    keep = targets != -100
    return nats.sum() / keep.sum()


_MENDED_BUGS = {
    "softmax_first": SOFTMAX_FIRST.by(
        "logits.transpose",
        "logits.softmax(dim=-1).transpose",
        says="probabilities fed to a loss that wants logits",
        read="further/10_loss#loss-wrong",
    ),
    "nll": Bug(
        "F.cross_entropy",
        "F.nll_loss",
        says="nll_loss on something that is no log-probability",
        why="nll_loss only picks the target's entry and changes its sign. "
        "Give it log_softmax(logits), or use cross_entropy.",
        read="further/10_loss#loss-wrong",
    ),
    "viewed": Bug(
        "transpose(1, 2)",
        "reshape(len(logits), logits.size(2), -1)",
        says="view(B, V, T) where the axes should be swapped",
        why="view leaves the entries in their order and only cuts them anew, "
        "so one column mixes logits of several positions. Use "
        "transpose(1, 2), or flatten batch and time.",
        read="further/10_loss#loss-wrong",
    ),
    "all_counted": PADDING_COUNTED.by(
        "keep.sum()", "targets.numel()", at="mean"
    ),
    "mean_of_means": MEAN_OF_MEANS.by(
        "nats.sum() / keep.sum()",
        "(nats.sum(dim=1) / keep.sum(dim=1)).mean()",
        says="the mean of each sentence's mean",
    ),
    "shifted_again": Bug(
        "z = logits",
        "logits, targets = logits[:, :-1], targets[:, 1:]\n    z = logits",
        says="targets shifted once more",
        why="targets[t] already is the token that follows position t: the "
        "shift was made where the batch was cut.",
        read="10_loss#loss-every-position",
    ),
}


def _mended_cases(seed: int) -> list[Case]:
    g = generator(seed)
    logits, targets = draw(g, 2, 5, 7)
    padded, some = draw(g, 3, 5, 11)
    some[0, 2:] = some[1, 4:] = -100
    return [
        Case((logits, targets), name="two sentences of five tokens"),
        Case((padded, some), name="three sentences, two of them padded"),
    ]


# -- implement: label smoothing ----------------------------------------------
def smooth(logits: Tensor, targets: Tensor, epsilon: float) -> Tensor:
    """The mean loss with a fraction of the target spread over all tokens.

    `logits` is `(N, V)`, with p the softmax of a row; `targets` is `(N,)`,
    whole numbers from 0 to `V − 1`; `epsilon` lies between 0 and 1. The loss
    of a row is `−Σ y[j] ln p[j]` over all V tokens j, in nats. There y is
    `1 − ε + ε/V` for the target and `ε/V` for every other token, so that it
    sums to 1; ε is `epsilon`.
    The result is the mean over the N rows, a tensor without axes.
    """
    n_tokens = logits.size(-1)
    y = F.one_hot(targets, n_tokens)
    target = (1 - epsilon) * y + epsilon / n_tokens
    nats = -(target * logits.log_softmax(dim=-1)).sum(dim=-1)
    return nats.mean()


_SMOOTH_BUGS = {
    "others_only": Bug(
        "epsilon / n_tokens",
        "epsilon / (n_tokens - 1) * (1 - y)",
        says="ε spread over the V − 1 other tokens",
        why="That is called label smoothing, too; here ε goes to all V "
        "tokens, as in PyTorch, so the right one gets 1 − ε + ε / V.",
        read="further/10_loss#loss-smooth",
        at="spread",
    ),
    "overwritten": Bug(
        "epsilon / n_tokens",
        "epsilon / n_tokens * (1 - y)",
        says="a right token that gets 1 − ε, without its own ε / V",
        why="The target then sums to less than 1. The right token is one of "
        "the V among which ε is shared out.",
        read="further/10_loss#loss-smoothing",
        at="spread",
    ),
    "not_shared": Bug(
        "epsilon / n_tokens",
        "epsilon",
        says="the whole ε for each token instead of ε / V",
        why="ε is shared out among V tokens: each gets ε / V.",
        read="further/10_loss#loss-smoothing",
        at="spread",
    ),
    "smooths_p": Bug(
        "target = (1 - epsilon) * y",
        "p = (1 - epsilon) * logits.softmax(dim=-1)",
        "target * logits.log_softmax(dim=-1)",
        "y * p.log()",
        says="the prediction smoothed instead of the target",
        why="−ln((1 − ε) p + ε / V) lowers the loss of a wrong guess. "
        "Label smoothing leaves p alone and changes the target.",
        read="further/10_loss#loss-smoothing",
        at="spread",
    ),
}


def _smooth_cases(seed: int) -> list[Case]:
    g = generator(seed)
    epsilon = 0.2 + 0.2 * torch.rand(1, generator=g).item()
    return [
        Case((*draw(g, 5, 7), 0.1), name="ε = 0.1, seven tokens"),
        Case((*draw(g, 3, 5), epsilon), name=f"ε = {epsilon:.2f}"),
    ]


# -- implement: one perplexity from many batches -----------------------------
def whole_perplexity(parts: Sequence[tuple[float, int]]) -> float:
    """The perplexity of all targets of all batches together.

    `parts` is a list of pairs, one for each batch: its mean loss in nats, and
    the number of its targets. The perplexity is `e` to the power of the mean
    loss over all these targets, each with the same weight: as if the batches
    had been one.
    Batches may have different numbers of targets. One with 0 targets changes
    nothing. The result is a number.
    """
    n = sum(count for _, count in parts)
    mean = sum(nats * count for nats, count in parts) / n
    return math.e**mean


_PERPLEXITY_BUGS = {
    "mean_of_means": MEAN_OF_MEANS.by(
        "n = sum(count for _, count in parts)\n"
        "    mean = sum(nats * count for nats, count in parts) / n",
        "mean = sum(nats for nats, _ in parts) / len(parts)",
    ),
    "mean_of_perplexities": Bug(
        "n = sum(count for _, count in parts)\n"
        "    mean = sum(nats * count for nats, count in parts) / n\n"
        "    return math.e**mean",
        "return sum(math.e**nats for nats, _ in parts) / len(parts)",
        says="the mean of the batches' perplexities",
        why="eˣ curves upward, so the mean of powers is above the power of "
        "the mean. Average first, then take e to the power of it.",
        read="10_loss#loss-units",
    ),
    "weighted_perplexities": Bug(
        "mean = sum(nats * count for nats, count in parts) / n\n"
        "    return math.e**mean",
        "return sum(math.e**nats * count for nats, count in parts) / n",
        says="the mean of the batches' perplexities, weighted by their counts",
        why="The weights are right, but eˣ curves upward: average the "
        "losses first, then take e to the power of their mean.",
        read="10_loss#loss-units",
    ),
    "base_2": Bug(
        "math.e",
        "2",
        says="2 to the power of nats",
        why="Nats are measured with e: e^nats = 2^bits. 2^nats is too low.",
        read="10_loss#loss-units",
    ),
    "others_mean": Bug(
        "n = sum(count for _, count in parts)\n"
        "    mean = sum(nats * count for nats, count in parts) / n",
        "means = [nats for nats, count in parts if count]\n"
        "    mean = sum(means) / len(means)",
        says="the mean of the means of those batches that have targets",
        why="A batch of two targets would weigh as much as one of a "
        "thousand. Weight each mean by its count.",
        read="00_first_model#first-loss",
        alone=True,
    ),
}


def _perplexity_cases(seed: int) -> list[Case]:
    g = generator(seed)
    nats = (1 + torch.rand(3, generator=g)).tolist()
    return [
        Case(([(2.0, 5)],), name="one batch"),
        Case(
            (list(zip(nats, (64, 64, 7), strict=True)),),
            name="a short last batch",
        ),
        Case(([(1.5, 10), (0.0, 0)],), name="a batch without targets"),
    ]


# -- implement: who reads better? --------------------------------------------
def per_byte(models: Sequence[tuple[float, int]], text: str) -> list[float]:
    """The losses of some models on one text, in nats per byte.

    `models` is a list of pairs, one for each model: its mean loss in bits
    per token, and the number of tokens into which it cuts the text. `text` is
    that text. The whole text's surprise is the mean loss times the number of
    tokens; one bit is ln 2 nats.
    Returned is a list of numbers in the order of the models: the surprise of
    the whole text in nats, divided by the number of its bytes in UTF-8. There
    may be fewer characters than bytes.
    """
    size = len(text.encode("utf-8"))
    return [loss * math.log(2) * tokens / size for loss, tokens in models]


_PER_BYTE_BUGS = {
    "characters": Bug(
        'text.encode("utf-8")',
        "text",
        says="characters counted instead of bytes",
        why="An emoji is one character and four bytes: "
        'len(text.encode("utf-8")).',
        read="01_tokenizer#tok-why",
    ),
    "not_converted": Bug(
        " * math.log(2)",
        "",
        says="the given unit kept, with no conversion to nats",
        why="The answer should be in nats, and one bit is ln 2 nats.",
        read="10_loss#loss-units",
        otherwise=[(" * math.log(10)", "")],
    ),
    "wrong_way": Bug(
        "* math",
        "/ math",
        says="a conversion the wrong way round, by 1 / ln 2 instead of ln 2",
        why="A nat is more than a bit, so there are fewer nats than bits: "
        "multiply by ln 2.",
        read="10_loss#loss-units",
    ),
}


def _per_byte_cases(seed: int) -> list[Case]:
    g = generator(seed)
    a, b = (1 + 4 * torch.rand(2, generator=g)).tolist()
    plain = "She sells sea shells."
    return [
        Case(([(a, 21), (b, 6)], plain), name="one byte a character"),
        Case(([(a, 9), (b, 5)], "naïve 🙂"), name="characters of many bytes"),
    ]


_LOSSES = (
    "torch.nn.functional.cross_entropy",
    "coursekit.cross_entropy",
    "coursekit.loss.cross_entropy",
)
_LOG_SOFTMAX = (
    "torch.nn.functional.log_softmax",
    "torch.log_softmax",
    "torch.Tensor.log_softmax",
    "torch.logsumexp",
    "torch.Tensor.logsumexp",
)

EXERCISES = {
    "stable": Exercise(
        stable,
        _stable_cases,
        bugs=_STABLE_BUGS,
        variants={
            "in_bits": Variant(
                "len(y)), y]",
                "len(y)), y] / math.log(2)",
                asks="Here the loss is wanted in bits, not in nats.",
            ),
        },
        forbid=(*_LOSSES, *_LOG_SOFTMAX),
        view=_finite,
    ),
    "gradient": Exercise(
        gradient,
        _gradient_cases,
        bugs=_GRADIENT_BUGS,
        alike=[
            (
                {"no_ignore"},
                {"no_ignore", "all_counted"},
                "who ignores no target counts them all",
            ),
            (
                {"no_ignore"},
                {"no_ignore", "empty_nan"},
                "who ignores no target always has some",
            ),
            (
                {"no_ignore", "all_counted"},
                {"no_ignore", "empty_nan"},
                "who ignores no target counts them all, and has some",
            ),
        ],
        forbid=AUTOGRAD,
    ),
    "mended": Exercise(
        mended,
        _mended_cases,
        bugs=_MENDED_BUGS,
    ),
    "smooth": Exercise(
        smooth,
        _smooth_cases,
        bugs=_SMOOTH_BUGS,
        variants={
            "summed": Variant(
                "nats.mean()",
                "nats.sum()",
                asks="Here the *sum* over the rows is wanted, not the mean.",
            ),
        },
        forbid=_LOSSES,
    ),
    "whole_perplexity": Exercise(
        whole_perplexity,
        _perplexity_cases,
        bugs=_PERPLEXITY_BUGS,
    ),
    "per_byte": Exercise(
        per_byte,
        _per_byte_cases,
        bugs=_PER_BYTE_BUGS,
        variants={
            "in_digits": Variant(
                "math.log(2)",
                "math.log(10)",
                asks="Here the losses are in decimal digits, that is, "
                "with logarithms to base 10.",
                texts={
                    "not_converted": {
                        "why": "The answer should be in nats, and one digit "
                        "is ln 10 nats.",
                    },
                    "wrong_way": {
                        "says": "a conversion the wrong way round, by 1 / ln "
                        "10 instead of ln 10",
                        "why": "A nat is less than a digit, so there are "
                        "more nats than digits: multiply by ln 10.",
                    },
                },
            ),
        },
    ),
}
