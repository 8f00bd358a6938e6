"""Exercises of chapter 10: loss."""

import math
from collections.abc import Sequence

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
from coursekit.classroom.check.forbid import AUTOGRAD

float64 = torch.float64


def draw(g: torch.Generator, *shape: int) -> tuple[Tensor, Tensor]:
    """Logits of that shape, and a target for each row."""
    logits = 3 * torch.randn(*shape, generator=g, dtype=float64)
    return logits, torch.randint(shape[-1], shape[:-1], generator=g)


# -- implement: stable cross-entropy -----------------------------------------
def stable(logits: Tensor, targets: Tensor, *, on: Switches = NONE) -> Tensor:
    """The mean surprise at the targets that count, in nats.

    `logits` is `(N, V)`, a prediction in each row; `targets` is `(N,)`, whole
    numbers. The surprise of a row is `−ln p[target]`, with p the softmax of
    that row. A target of −100 does not count, neither in the sum nor in the
    number that it is divided by, also if V is above 100.
    The result is one number, a tensor without axes. It is finite for logits of
    ±10,000, and 0 if no target counts.
    """
    if "no_ignore" in on:
        z, y = logits, targets
    else:
        keep = targets != -100
        z, y = logits[keep], targets[keep]
    if "empty_nan" not in on:  # noqa: SIM102 (a switch is asked alone)
        if len(y) == 0:
            return logits.new_zeros(())
    if "softmax_log" in on:
        log_p = z.softmax(dim=-1).log()
    elif "naive" in on:
        log_p = z - z.exp().sum(dim=-1, keepdim=True).log()
    else:
        axis = 0 if "over_rows" in on else -1
        if "one_maximum" in on:
            z = z - z.amax()
        elif "mean_off" in on:
            z = z - z.mean(dim=-1, keepdim=True)
        else:
            z = z - z.amax(dim=axis, keepdim=True)
        log_p = z - z.exp().sum(dim=axis, keepdim=True).log()
    right = log_p[torch.arange(len(y)), y]
    nats = right if "no_minus" in on else -right
    if "in_bits" in on:
        nats = nats / math.log(2)
    if "all_counted" in on:
        return nats.sum() / len(targets)
    elif "sum" in on:
        return nats.sum()
    else:
        return nats.mean()


_ALL_COUNTED = Bug(
    "a mean over all targets, those of −100 included",
    "Padding is left out of the sum and of the number divided by. Otherwise "
    "long padding looks like skill.",
    read="10_loss#loss-formula",
    at="mean",
)
_STABLE_BUGS = {
    "naive": Bug(
        "exp of the logits as they are",
        "exp(10,000) is infinite. Subtract the row's largest logit first: "
        "no probability changes, and no exp exceeds 1.",
        read="10_loss#loss-code",
        at="softmax",
    ),
    "softmax_log": Bug(
        "the logarithm of a finished softmax",
        "A probability of e⁻²⁰⁰⁰⁰ is rounded to 0, and its logarithm is −∞. "
        "Work with logits: the sum's logarithm minus the right one's logit.",
        read="10_loss#loss-code",
        at="softmax",
    ),
    "over_rows": Bug(
        "probabilities that sum to 1 over the rows instead of the tokens",
        "Each row is a prediction of its own: normalize along the last axis.",
        read="10_loss#loss-formula",
        at="softmax",
    ),
    "no_minus": Bug(
        "the logarithm without its minus",
        "A logarithm of a probability is negative. Surprise is minus that, "
        "and a loss that is pushed down must be the surprise.",
        read="10_loss#loss-by-hand",
    ),
    "no_ignore": Bug(
        "−100 taken for a token, counted from the end",
        "Python's index −100 is the hundredth from the end, so with 100 "
        "tokens or more nothing complains. Drop these rows first.",
        read="10_loss#loss-formula",
        at="mean",
    ),
    "all_counted": _ALL_COUNTED,
    "empty_nan": Bug(
        "a mean over nothing, which is NaN",
        "If no target counts, there are 0 of them to divide by. One such "
        "batch turns every weight into NaN.",
        read="10_loss#loss-code",
        at="mean",
    ),
    "sum": Bug(
        "the sum over the targets instead of their mean",
        "A sum grows with the batch, and the learning rate with it.",
        read="10_loss#loss-formula",
        at="mean",
    ),
    "one_maximum": Bug(
        "the largest logit of the whole batch subtracted from every row",
        "In a row far below it every exp underflows to 0, and the logarithm "
        "is −∞. Each row needs its own maximum: dim=-1, keepdim=True.",
        read="10_loss#loss-code",
        at="softmax",
    ),
    "mean_off": Bug(
        "a row's mean subtracted instead of its maximum",
        "A logit far above the mean still overflows. Subtract the largest: "
        "then no exp exceeds 1.",
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
def gradient(
    logits: Tensor, targets: Tensor, *, on: Switches = NONE
) -> Tensor:
    """The gradient of the mean loss by the logits.

    The loss is the mean over the targets that count of `−ln p[target]`, in
    nats, with p the softmax of a row. `logits` is `(N, V)`, `targets` is
    `(N,)`, whole numbers. A target of −100 does not count, neither in the sum
    nor in the number that it is divided by, also if V is above 100.
    The result is `(N, V)`: how fast the loss grows with each logit. Rows whose
    target does not count are 0; if none counts, all are.
    """
    p = logits.softmax(dim=-1)
    y = torch.zeros_like(p)
    if "no_ignore" in on:
        y[torch.arange(len(y)), targets] = 1
    else:
        keep = targets != -100
        y[torch.arange(len(y)), targets.where(keep, 0)] = 1
        if "pads_pushed" in on:
            y[~keep] = 0
    if "swapped" in on:
        slope = y - p
    elif "right_only" in on:
        slope = (p - y) * y
    elif "by_probability" in on:
        slope = -y / p
    else:
        slope = p - y
    if (
        "no_ignore" not in on
        and "pads_kept" not in on
        and "pads_pushed" not in on
    ):
        slope[~keep] = 0
    if "by_sum" in on:
        return slope
    elif "all_counted" in on or "no_ignore" in on:
        return slope / len(targets)
    elif "empty_nan" in on:
        return slope / keep.sum()
    else:
        return slope / keep.sum().clamp(min=1)


_GRADIENT_BUGS = {
    "swapped": Bug(
        "target minus probability",
        "That is the step, not the slope: training subtracts the slope, so "
        "the right token's must be negative.",
        read="10_loss#loss-by-hand",
        at="slope",
    ),
    "right_only": Bug(
        "a slope for the right token's logit alone",
        "The other logits stand in the softmax's sum: raising one lowers "
        "the right one's probability. Each row sums to 0.",
        read="10_loss#loss-formula",
        at="slope",
    ),
    "by_probability": Bug(
        "the slope by the probabilities, −1/p at the right token",
        "Asked is the slope by the logits. Go on through the softmax: what "
        "comes out is p − y.",
        read="10_loss#loss-formula",
        at="slope",
    ),
    "by_sum": Bug(
        "the gradient of the sum, not of the mean",
        "The loss is a mean: each row's slope is divided by the number of "
        "targets that count.",
        read="10_loss#loss-formula",
        at="mean",
    ),
    "all_counted": _ALL_COUNTED,
    "no_ignore": Bug(
        "−100 taken for a token, counted from the end",
        "Python's index −100 is the hundredth from the end, so with 100 "
        "tokens or more nothing complains. Such a row has slope 0.",
        read="10_loss#loss-formula",
        at="padding",
    ),
    "pads_kept": Bug(
        "rows of padding that keep a slope, as if token 0 were right",
        "A target of −100 does not count: its row's slope is 0.",
        read="10_loss#loss-formula",
        at="padding",
    ),
    "pads_pushed": Bug(
        "rows of padding that keep their probabilities as a slope",
        "A target of −100 does not count: set its whole row to 0, not only "
        "the target's 1.",
        read="10_loss#loss-formula",
        at="padding",
    ),
    "empty_nan": Bug(
        "0 divided by 0 where no target counts",
        "If none counts, all slopes are 0. One NaN in a gradient turns "
        "every weight into NaN.",
        read="10_loss#loss-code",
        at="mean",
    ),
}


def _gradient_cases(seed: int) -> list[Case]:
    g = generator(seed)
    logits, targets = draw(g, 5, 13)
    wide, some = draw(g, 7, 103)  # −100 is an index here
    some[[0, 3]] = -100
    return [
        Case((logits, targets), name="five rows"),
        Case((wide, some), name="103 tokens, two targets do not count"),
        Case((wide, torch.full((7,), -100)), name="no target counts"),
    ]


# -- debug: it runs ----------------------------------------------------------
def mended(logits: Tensor, targets: Tensor, *, on: Switches = NONE) -> Tensor:
    """The mean loss over a batch of sequences, in nats.

    `logits` is `(B, T, V)`, any real numbers, whose softmax over the V tokens
    is p; `targets` is `(B, T)`, whole numbers. The loss at a place is
    `−ln p[target]`. A target of −100 does not count, neither in the sum nor in
    the number that it is divided by.
    The mean is taken once, over all targets of all sequences that count, each
    with the same weight, however long its sequence is. The result is one
    number, a tensor without axes.
    """
    if "shifted_again" in on:
        logits, targets = logits[:, :-1], targets[:, 1:]
    z = logits.softmax(dim=-1) if "softmax_first" in on else logits
    if "viewed" in on:
        batch, length, vocab_size = z.shape
        z = z.reshape(batch, vocab_size, length)
    else:
        z = z.transpose(1, 2)
    if "nll" in on:
        nats = F.nll_loss(z, targets, reduction="none")
    else:
        nats = F.cross_entropy(z, targets, reduction="none")
    keep = targets != -100
    if "mean_of_means" in on:
        return (nats.sum(dim=1) / keep.sum(dim=1)).mean()
    elif "all_counted" in on:
        return nats.sum() / targets.numel()
    else:
        return nats.sum() / keep.sum()


_MENDED_BUGS = {
    "softmax_first": Bug(
        "probabilities fed to a loss that wants logits",
        "cross_entropy does the softmax itself. Twice is too often: even a "
        "perfect prediction costs ln(e + V − 1) − 1 nats then.",
        read="10_loss#loss-wrong",
        at="softmax",
    ),
    "nll": Bug(
        "nll_loss on something that is no log-probability",
        "nll_loss only picks the right number and turns its sign. Give it "
        "log_softmax(logits), or use cross_entropy.",
        read="10_loss#loss-wrong",
    ),
    "viewed": Bug(
        "view(B, V, T) where the axes should be swapped",
        "view cuts the numbers up again, across tokens. Use transpose(1, 2), "
        "or flatten batch and time.",
        read="10_loss#loss-wrong",
    ),
    "all_counted": _ALL_COUNTED,
    "mean_of_means": Bug(
        "the mean of each sentence's mean",
        "A short sentence then weighs as much as a long one. Average over "
        "all tokens at once.",
        read="00_first_model#first-loss",
        at="mean",
    ),
    "shifted_again": Bug(
        "targets shifted once more",
        "targets[t] already is what should follow position t. Where the "
        "batch was cut, it was shifted.",
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
def smooth(
    logits: Tensor,
    targets: Tensor,
    epsilon: float,
    *,
    on: Switches = NONE,
) -> Tensor:
    """The mean loss with a share of the target spread over all tokens.

    `logits` is `(N, V)`, with p the softmax of a row; `targets` is `(N,)`,
    whole numbers from 0 to `V − 1`; `epsilon` lies between 0 and 1. The loss
    of a row is `−Σ y[j] ln p[j]` over all V tokens j, in nats. There y is
    `1 − ε + ε/V` for the target and `ε/V` for every other token, so that it
    sums to 1; ε is `epsilon`.
    The result is the mean over the N rows, a tensor without axes.
    """
    n_tokens = logits.size(-1)
    y = F.one_hot(targets, n_tokens)
    share = 1.0 if "right_whole" in on else 1 - epsilon
    if "others_only" in on:
        even = epsilon / (n_tokens - 1)
    elif "not_shared" in on:
        even = epsilon
    elif "nothing_spread" in on:
        even = 0.0
    else:
        even = epsilon / n_tokens
    if "smooths_p" in on:
        p = share * logits.softmax(dim=-1) + even
        nats = -(y * p.log()).sum(dim=-1)
    else:
        if "others_only" in on or "overwritten" in on:
            target = share * y + even * (1 - y)
        else:
            target = share * y + even
        nats = -(target * logits.log_softmax(dim=-1)).sum(dim=-1)
    return nats.sum() if "summed" in on else nats.mean()


_SMOOTH_BUGS = {
    "others_only": Bug(
        "ε spread over the V − 1 other tokens",
        "That is called label smoothing, too; here ε goes to all V tokens, "
        "as in PyTorch, so the right one gets 1 − ε + ε / V.",
        read="10_loss#loss-smooth",
        at="spread",
    ),
    "overwritten": Bug(
        "a right token that gets 1 − ε, without its own ε / V",
        "The target then sums to less than 1. The right token is one of the "
        "V among which ε is shared out.",
        read="10_loss#loss-smoothing",
        at="spread",
    ),
    "not_shared": Bug(
        "the whole ε for each token instead of ε / V",
        "ε is shared out among V tokens: take the mean of −ln p over all "
        "tokens, not the sum.",
        read="10_loss#loss-smoothing",
        at="spread",
    ),
    "nothing_spread": Bug(
        "1 − ε of the usual loss, and nothing for the other tokens",
        "That is the plain loss with a smaller learning rate. The ε has to "
        "go somewhere: to all tokens alike.",
        read="10_loss#loss-smoothing",
        at="spread",
    ),
    "smooths_p": Bug(
        "the prediction smoothed instead of the target",
        "−ln((1 − ε) p + ε / V) makes a wrong guess cheaper. Label smoothing "
        "leaves p alone and asks for another target.",
        read="10_loss#loss-smoothing",
        at="spread",
    ),
    "right_whole": Bug(
        "a right token that keeps its whole 1",
        "What is spread has to be taken from somewhere: the right token "
        "gives up ε, so that the target still sums to 1.",
        read="10_loss#loss-smoothing",
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
def whole_perplexity(
    parts: Sequence[tuple[float, int]], *, on: Switches = NONE
) -> float:
    """The perplexity of all targets of all batches together.

    `parts` is a list of pairs, one for each batch: its mean loss in nats, and
    the number of its targets. The perplexity is `e` to the power of the mean
    loss over all these targets, each with the same weight: as if the batches
    had been one.
    Batches may have different numbers of targets. One with 0 targets changes
    nothing. The result is a number.
    """
    base = 2 if "base_2" in on else math.e
    if "mean_of_perplexities" in on:
        return sum(base**nats for nats, _ in parts) / len(parts)
    elif "weighted_perplexities" in on:
        n = sum(count for _, count in parts)
        return sum(base**nats * count for nats, count in parts) / n
    else:
        if "mean_of_means" in on:
            mean = sum(nats for nats, _ in parts) / len(parts)
        else:
            n = sum(count for _, count in parts)
            mean = sum(nats * count for nats, count in parts) / n
        return mean if "no_power" in on else base**mean


_PERPLEXITY_BUGS = {
    "mean_of_means": Bug(
        "the mean of the batches' means",
        "A short last batch then counts as much as a full one. Multiply "
        "each mean by its count, add up, divide by all.",
        read="00_first_model#first-loss",
        at="mean",
    ),
    "mean_of_perplexities": Bug(
        "the mean of the batches' perplexities",
        "eˣ curves upward, so the mean of powers is above the power of the "
        "mean. Average first, then take e to the power of it.",
        read="10_loss#loss-units",
        at="mean",
    ),
    "weighted_perplexities": Bug(
        "the mean of the batches' perplexities, weighted by their counts",
        "The weights are right, but eˣ curves upward: average the losses "
        "first, then take e to the power of their mean.",
        read="10_loss#loss-units",
        at="mean",
    ),
    "base_2": Bug(
        "2 to the power of nats",
        "Nats are measured with e: e^nats = 2^bits. 2^nats is too low.",
        read="10_loss#loss-units",
        at="power",
    ),
    "no_power": Bug(
        "the mean loss itself",
        "That is in nats. The perplexity is e to the power of it: among how "
        "many equally likely tokens the model hesitates.",
        read="10_loss#loss-units",
        at="power",
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
def per_byte(
    models: Sequence[tuple[float, int]],
    text: str,
    *,
    on: Switches = NONE,
) -> list[float]:
    """The losses of some models on one text, in nats per byte.

    `models` is a list of pairs, one for each model: its mean loss in bits a
    token, and the number of tokens into which it cuts the text. `text` is that
    text. The whole text's surprise is the mean loss times the number of
    tokens; one bit is ln 2 nats.
    Returned is a list of numbers in the order of the models: the surprise of
    the whole text in nats, divided by the number of its bytes in UTF-8. There
    may be fewer characters than bytes.
    """
    size = len(text) if "characters" in on else len(text.encode("utf-8"))
    nats_each = math.log(10) if "in_digits" in on else math.log(2)
    found = []
    for loss, tokens in models:
        if "not_converted" in on:
            nats = loss
        elif "wrong_way" in on:
            nats = loss / nats_each
        else:
            nats = loss * nats_each
        if "mean_only" in on:
            found.append(nats / size)
        elif "per_token_byte" in on:
            found.append(nats / tokens / size)
        else:
            found.append(nats * tokens / size)
    return found


_PER_BYTE_BUGS = {
    "characters": Bug(
        "characters counted instead of bytes",
        'An emoji is one character and four bytes: len(text.encode("utf-8")).',
        read="01_tokenizer#tok-why",
    ),
    "not_converted": Bug(
        "the given unit kept, with no conversion to nats",
        "Asked is an answer in nats: one bit is ln 2 of them.",
        read="10_loss#loss-units",
        at="unit",
    ),
    "wrong_way": Bug(
        "a conversion the wrong way round, by 1 / ln 2 instead of ln 2",
        "A nat is more than a bit, so there are fewer nats than bits: "
        "multiply by ln 2.",
        read="10_loss#loss-units",
        at="unit",
    ),
    "mean_only": Bug(
        "the loss of one token divided by the bytes of the whole text",
        "The mean times the number of tokens is the surprise of the text: "
        "that is what its bytes share.",
        read="10_loss#loss-running",
        at="tokens",
    ),
    "per_token_byte": Bug(
        "a mean that is divided by the number of tokens once more",
        "It is per token already. Multiply by the tokens, to have the "
        "surprise of the whole text, then divide by its bytes.",
        read="10_loss#loss-running",
        at="tokens",
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
        variants={"in_bits": "Here the loss is wanted in bits, not in nats."},
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
        ]
        + [
            (
                {one},
                {one, "pads_pushed"},
                "a slope at the right token alone is 0 where there is none",
            )
            for one in ("right_only", "by_probability")
        ],
        forbid=AUTOGRAD,
    ),
    "mended": Exercise(mended, _mended_cases, bugs=_MENDED_BUGS),
    "smooth": Exercise(
        smooth,
        _smooth_cases,
        bugs=_SMOOTH_BUGS,
        variants={
            "summed": "Here the *sum* over the rows is wanted, not the mean."
        },
        forbid=_LOSSES,
    ),
    "whole_perplexity": Exercise(
        whole_perplexity,
        _perplexity_cases,
        bugs=_PERPLEXITY_BUGS,
        alike=[
            (
                {one},
                {one, "no_power"},
                "the powers were taken before the mean",
            )
            for one in ("mean_of_perplexities", "weighted_perplexities")
        ],
    ),
    "per_byte": Exercise(
        per_byte,
        _per_byte_cases,
        bugs=_PER_BYTE_BUGS,
        variants={
            "in_digits": "Here the losses are in decimal digits, that is, "
            "with logarithms to base 10."
        },
    ),
}
