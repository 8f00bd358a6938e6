"""Exercises of chapter 21: inference."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from coursekit_classroom.check.compare import difference
from coursekit_classroom.check.core import (
    Bug,
    Case,
    Exercise,
    generator,
    randn,
)

float64 = torch.float64
Model = Callable[[Tensor], Tensor]


# -- implement: quantize in groups -------------------------------------------
def rounded(
    weights: Tensor, bits: int, group_size: int
) -> tuple[Tensor, Tensor]:
    """Quantize a matrix: whole numbers, and a step for each group.

    `weights` is `(N, K)`; `group_size` neighbors in a row are a group, and K
    is a multiple of it. The step of a group is its largest absolute value,
    divided by the largest whole number of `bits` bits, `2^(bits - 1) - 1`. The
    whole numbers are `weights` divided by the steps, rounded to the nearest.
    The result is a pair: the whole numbers, `(N, K)`, in any dtype,
    and the steps, `(N, K / group_size)`. No group is all 0.
    """
    n_rows, width = weights.shape
    groups = weights.reshape(n_rows, -1, group_size)
    size = groups.abs()
    largest = size.amax(dim=-1, keepdim=True)
    steps = largest / (2 ** (bits - 1) - 1)
    whole = groups / steps
    whole = whole.round()
    return whole.reshape(n_rows, width), steps.squeeze(-1)


_ROUNDED_BUGS = {
    "down_the_columns": Bug(
        "groups = weights.reshape(n_rows, -1, group_size)",
        "groups = weights.T.reshape(n_rows, -1, group_size)",
        says="groups taken from the transposed matrix",
        why="The neighbors of a group are in one row of `weights`, so "
        "reshape to (N, K / group_size, group_size) without transposing.",
        read="21_inference#inf-groups",
        alone=True,
    ),
    "signed": Bug(
        "groups.abs()",
        "groups",
        says="a step from the largest value instead of the largest absolute "
        "value",
        why="If the entry farthest from 0 is negative, its whole number "
        "does not fit into the bits. Take the absolute value first.",
        read="21_inference#inf-by-hand",
    ),
    "row": Bug(
        "steps = largest / (2 ** (bits - 1) - 1)",
        "largest = largest.amax(dim=1, "
        "keepdim=True).expand_as(largest)\n"
        "    steps = largest / (2 ** (bits - 1) - 1)",
        says="one step for a whole row",
        why="Each group has its own largest entry, and so its own step. "
        "Look at the axis over which you take the largest.",
        read="21_inference#inf-groups",
        at="share",
    ),
    "matrix": Bug(
        "steps = largest / (2 ** (bits - 1) - 1)",
        "largest = largest.amax().expand_as(largest)\n"
        "    steps = largest / (2 ** (bits - 1) - 1)",
        says="one step for the whole matrix",
        why="Each group has its own largest entry, and so its own step. "
        "Look at the axis over which you take the largest.",
        read="21_inference#inf-groups",
        at="share",
    ),
    "one_more": Bug(
        "(2 ** (bits - 1) - 1)",
        "2 ** (bits - 1)",
        says="2^(bits − 1) as the largest whole number",
        why="Four bits reach from −8 to 7, so the largest positive "
        "number is one less: 2^(bits − 1) − 1.",
        read="21_inference#inf-by-hand",
        at="levels",
    ),
    "no_sign": Bug(
        "2 ** (bits - 1)",
        "2**bits",
        says="2^bits − 1 as the largest whole number, as if none were "
        "negative",
        why="Half of the numbers are negative. The largest is 2^(bits − 1) "
        "− 1.",
        read="21_inference#inf-by-hand",
        at="levels",
    ),
    "cut_off": Bug(
        "whole.round()",
        "whole.trunc()",
        says="digits behind the point cut off instead of rounded",
        why="That moves a weight by up to a whole step toward 0. Round to "
        "the nearest, which moves it by half a step at most.",
        read="21_inference#inf-by-hand",
    ),
    "keeps_axis": Bug(
        "steps.squeeze(-1)",
        "steps",
        says="steps that keep an axis of size 1",
        why="They are (N, K / group_size): squeeze the last axis.",
        read="21_inference#inf-groups",
        alone=True,
    ),
    "restored_again": Bug(
        "whole.round()",
        "whole.round() * steps",
        says="whole numbers that are multiplied by their step again",
        why="Return the whole numbers as they are. They are multiplied by "
        "their steps only when the weights are used.",
        read="21_inference#inf-by-hand",
        alone=True,
    ),
}


def _rounded_cases(seed: int) -> list[Case]:
    g = generator(seed)
    row = torch.tensor([[-0.7, 0.33, -0.08, 0.21]], dtype=float64)
    return [
        Case((row, 4, 4), name="one group, its largest entry below 0"),
        Case((randn(g, 3, 10), 5, 5), name="three rows of two groups"),
    ]


def _rounded_view(value: tuple[Tensor, Tensor], case: Case) -> Any:
    """The pair with its whole numbers as decimals."""
    whole, steps = value
    return torch.as_tensor(whole).to(float64), steps


def _rounded_judge(value: tuple[Tensor, Tensor], case: Case) -> str | None:
    """How the pair differs from the right one, whatever the dtype."""
    view = _rounded_view(value, case)
    return difference(view, rounded(*case.args), 1e-6, 1e-9)


# -- implement: two numbers in a byte ----------------------------------------
def restored(packed: Tensor, steps: Tensor) -> Tensor:
    """The weights of a matrix that is stored in four bits.

    `packed` is `(N, M)`, bytes (`torch.uint8`). Each byte holds two
    neighbors of a row: the lower four bits the first, the upper four the
    second, 8 added to each. `steps` is `(N, G)`: the 2 M numbers of a row fall
    into G groups of equal size, one after the other, and each number is
    multiplied by the step of its group. The result is `(N, 2 M)`, in the dtype
    of `steps`.
    """
    packed = packed.long()
    low, high = packed % 16, packed // 16
    whole = torch.stack([low, high], dim=2).flatten(1)
    whole = whole - 8
    size = whole.size(1) // steps.size(1)
    each = steps.repeat_interleave(size, dim=1)
    return whole * each


_RESTORED_BUGS = {
    "upper_first": Bug(
        "whole = torch.stack([low, high], dim=2).flatten(1)",
        "low, high = high, low\n"
        "    whole = torch.stack([low, high], dim=2).flatten(1)",
        says="the upper four bits taken for the first number",
        why="`packed % 16` is the first of two neighbors, `packed // 16` "
        "the second.",
        read="21_inference#inf-memory",
    ),
    "halves": Bug(
        "whole = torch.stack([low, high], dim=2).flatten(1)",
        "whole = torch.cat([low, high], dim=1)",
        says="all lower halves of a row before all upper ones",
        why="The two numbers of a byte are neighbors: stack them and flatten.",
        read="21_inference#inf-memory",
    ),
    "two_complement": Bug(
        "whole - 8",
        "torch.where(whole > 7, whole - 16, whole)",
        says="four bits read as a two's complement",
        why="Here 8 was added to each number: subtract 8.",
        read="21_inference#inf-memory",
    ),
    "seven": Bug(
        "8",
        "7",
        says="7 subtracted instead of 8",
        why="8 was added when the numbers were packed, so subtract 8.",
        read="21_inference#inf-memory",
    ),
    "not_shifted": Bug(
        "    whole = whole - 8\n",
        "",
        says="numbers from 0 to 15, as they are stored",
        why="Half of the weights are negative. Subtract 8.",
        read="21_inference#inf-memory",
    ),
    "taking_turns": Bug(
        "each = steps.repeat_interleave(size, dim=1)",
        "each = steps.repeat(1, size)",
        says="steps that take turns, as if neighbors were in different groups",
        why="Neighbors share a step. Use repeat_interleave, which repeats "
        "each step on the spot; repeat starts the row of steps again.",
        read="21_inference#inf-groups",
    ),
    "true_division": Bug(
        "packed // 16",
        "packed / 16",
        says="a byte divided by 16 with its remainder",
        why="The lower four bits remain as sixteenths. Divide with //.",
        read="21_inference#inf-memory",
        alone=True,
    ),
}


def _restored_cases(seed: int) -> list[Case]:
    g = generator(seed)
    packed = torch.randint(256, (3, 6), generator=g).to(torch.uint8)
    steps = 0.1 + torch.rand(3, 4, generator=g, dtype=float64)
    return [Case((packed, steps), name="three rows of four groups")]


# -- implement: accept or resample -------------------------------------------
def verified(
    drafted: Sequence[int], p: Tensor, q: Tensor, uniform: Tensor
) -> tuple[int, Tensor]:
    """How many drafted tokens are kept, and what the next one is drawn from.

    `drafted` holds N tokens. `q` is `(N, V)`: the distributions from which
    they were drawn. `p` is `(N + 1, V)`: the target's at the same positions,
    and after the last. `uniform` holds N numbers from 0 to 1.
    Token n, x, is accepted if `uniform[n]` is below `p[n, x] / q[n, x]`. The
    first that is not is rejected with all that follow it, and the next token
    is drawn from `max(0, p[n] - q[n])`, divided by its sum. If all are
    accepted, it is drawn from `p[N]`. The result is a pair: the number of
    accepted tokens, and the distribution `(V,)` of the next.
    """
    n_kept = 0
    for n, token in enumerate(drafted):
        ratio = p[n, token] / q[n, token]
        accepted = bool(uniform[n] < ratio)
        if accepted:
            n_kept += 1
            continue
        left = (p[n] - q[n]).clamp(min=0)
        return n_kept, left / left.sum()
    return n_kept, p[len(drafted)]


_VERIFIED_BUGS = {
    "ratio_turned": Bug(
        "ratio = p[n, token] / q[n, token]",
        "ratio = q[n, token] / p[n, token]",
        says="q / p where p / q belongs",
        why="A token that the target likes more than the draft does must "
        "always be accepted, and for such a token p / q is above 1.",
        read="21_inference#inf-rule",
        at="accept",
    ),
    "likely_enough": Bug(
        "uniform[n] < ratio",
        "ratio >= 1",
        says="a token accepted only if the target likes it at least as much",
        why="A token with p < q is still accepted with probability p / q. "
        "If it never is, it comes out too seldom.",
        read="21_inference#inf-rule",
        at="accept",
    ),
    "p_alone": Bug(
        "bool(uniform[n] < ratio)",
        "bool(uniform[n] < p[n, token])",
        says="a token accepted with probability p",
        why="The token was already drawn with probability q. For it to come "
        "out with probability p, accept it with p / q.",
        read="21_inference#inf-rule",
        at="accept",
    ),
    "from_p": Bug(
        "left = (p[n] - q[n]).clamp(min=0)\n"
        "        return n_kept, left / left.sum()",
        "return n_kept, p[n]",
        says="a rejected token replaced by a draw from p",
        why="Accepted tokens already come out with probability min(p, q). "
        "Only max(0, p − q) is missing.",
        read="21_inference#inf-rule",
    ),
    "turned": Bug(
        "p[n] - q[n]",
        "q[n] - p[n]",
        says="a rejected token replaced by what the draft has too much of",
        why="Draw from where the *target* has more: max(0, p − q).",
        read="21_inference#inf-rule",
        at="left",
    ),
    "not_divided": Bug(
        "left / left.sum()",
        "(p[n] - q[n]).clamp(min=0)",
        says="max(0, p − q) that is not divided by its sum",
        why="It sums to the probability of a rejection, not to 1.",
        read="21_inference#inf-rule",
        at="left",
    ),
    "counts_rejected": Bug(
        "n_kept, left",
        "n_kept + 1, left",
        says="the rejected token counted as well",
        why="Return the number of accepted tokens. The rejected one is not "
        "among them; the next draw replaces it.",
        read="21_inference#inf-rule",
    ),
    "row_before": Bug(
        "len(drafted)",
        "len(drafted) - 1",
        says="a token after all accepted ones drawn from the row before it",
        why="p[N − 1] was for the last drafted token. What follows it is "
        "p[N].",
        read="21_inference#inf-rule",
    ),
    "absolute": Bug(
        "(p[n] - q[n]).clamp(min=0)",
        "(p[n] - q[n]).abs()",
        says="|p − q| where max(0, p − q) belongs",
        why="Tokens that the draft gives too often have been drawn often "
        "enough. Draw only from those that it gives too rarely.",
        read="21_inference#inf-rule",
        alone=True,
    ),
}


def _verified_cases(seed: int) -> list[Case]:
    order = torch.randperm(4, generator=generator(seed))
    own = [[0.4, 0.4, 0.1, 0.1], [0.45, 0.4, 0.05, 0.1], [0.4, 0.4, 0.1, 0.1]]
    q = torch.tensor(own, dtype=float64)[:, order]
    rows = [
        [0.1, 0.2, 0.3, 0.4],
        [0.4, 0.1, 0.2, 0.3],
        [0.3, 0.3, 0.1, 0.3],
        [0.25, 0.35, 0.3, 0.1],
    ]
    p = torch.tensor(rows, dtype=float64)[:, order]
    place = order.argsort().tolist()

    def case(tokens: list[int], numbers: list[float], name: str) -> Case:
        drafted = [place[token] for token in tokens]
        uniform = torch.tensor(numbers, dtype=float64)
        return Case((drafted, p, q, uniform), name=name)

    return [
        case([2, 3, 1], [0.9, 0.6, 0.5], "all accepted"),
        case([3, 1, 3], [0.2, 0.5, 0.1], "the second rejected"),
        case([2, 3, 3], [0.02, 0.03, 0.01], "small numbers"),
    ]


# -- implement: what a draft gains -------------------------------------------
def gain(
    p: Tensor, q: Tensor, n_draft: int, cost: float
) -> tuple[float, float, float]:
    """What speculative decoding should bring: three numbers.

    `p` and `q` are `(T, V)`: the target's and the draft's distributions at T
    positions. First, the acceptance rate: the probability that a token drawn
    from q is accepted, averaged over the positions. Second, the expected
    number of tokens that a run of the target brings, if each of `n_draft`
    tokens is accepted with that probability, independently. Third, the
    speed-up over the target alone. A run of the draft over one token takes
    `cost` times as long as a run of the target; verifying takes as long as
    one run of the target. The two models may agree.
    """
    alpha = float(torch.minimum(p, q).sum(-1).mean())
    tokens = sum(alpha**n for n in range(n_draft + 1))
    time = n_draft * cost + 1
    return alpha, float(tokens), float(tokens / time)


_GAIN_BUGS = {
    "product": Bug(
        "torch.minimum(p, q).sum(-1).mean()",
        "(p * q).sum(-1).mean()",
        says="Σ p q as the acceptance rate",
        why="That is how often two independent draws agree. A token x is "
        "drawn with q(x) and accepted with min(1, p / q): together min(p, q).",
        read="21_inference#inf-how-many",
    ),
    "largest": Bug(
        "torch.minimum(p, q).sum(-1).mean()",
        "(p.argmax(-1) == q.argmax(-1)).double().mean()",
        says="how often the likeliest tokens agree, as the acceptance rate",
        why="Tokens are drawn, so less likely ones come up and may be "
        "accepted too. The rate is the sum of min(p, q).",
        read="21_inference#inf-how-many",
    ),
    "unweighted": Bug(
        "torch.minimum(p, q).sum(-1).mean()",
        "(p / q).clamp(max=1).mean()",
        says="the mean of min(1, p / q) over all tokens alike",
        why="A token is drawn with probability q, so it counts q times: "
        "q min(1, p / q) = min(p, q), summed.",
        read="21_inference#inf-how-many",
    ),
    "no_stop": Bug(
        "tokens = sum(alpha**n for n in range(n_draft + 1))",
        "tokens = 1 + n_draft * alpha",
        says="1 + γ α tokens",
        why="The first rejection ends the run: token n counts only if all "
        "before it were accepted.",
        read="21_inference#inf-how-many",
    ),
    "power": Bug(
        "n_draft + 1",
        "n_draft",
        says="(1 − α^γ) / (1 − α) tokens",
        why="Up to γ accepted tokens and one more: the sum has γ + 1 terms.",
        read="21_inference#inf-how-many",
    ),
    "accepted_alone": Bug(
        "range(n_draft + 1)",
        "range(1, n_draft + 1)",
        says="the accepted tokens alone, without the one that the target adds",
        why="Each run also brings a token of the target's own, whether "
        "something was rejected or not.",
        read="21_inference#inf-how-many",
    ),
    "undefined": Bug(
        "tokens = sum(alpha**n for n in range(n_draft + 1))",
        "odds = torch.tensor(1 - alpha ** (n_draft + 1), "
        "dtype=float64)\n"
        "    tokens = float(odds / (1 - alpha))",
        says="a formula that divides 0 by 0 where the two models agree",
        why="At α = 1 a run brings γ + 1 tokens. Sum the powers instead.",
        read="21_inference#inf-how-many",
        alone=True,
    ),
    "one_draft": Bug(
        "n_draft * cost",
        "cost",
        says="one run of the draft instead of one for each drafted token",
        why="The draft generates its tokens one after the other, each in a "
        "run of its own.",
        read="21_inference#inf-speed",
        at="time",
    ),
    "free_target": Bug(
        "cost + 1",
        "cost",
        says="a time without the run of the target",
        why="Verifying takes a run of the target: add 1.",
        read="21_inference#inf-speed",
        at="time",
    ),
    "over_all": Bug(
        "torch.minimum(p, q).sum(-1).mean()",
        "torch.minimum(p, q).mean()",
        says="a mean over the vocabulary too, where a sum belongs",
        why="A token is accepted with a probability that is the sum of "
        "min(p, q) over the vocabulary. Take the mean over positions only.",
        read="21_inference#inf-how-many",
        alone=True,
    ),
}


def _gain_cases(seed: int) -> list[Case]:
    g = generator(seed)
    p, q = (randn(g, 5, 7).softmax(-1) for _ in range(2))
    exact = torch.tensor([[0.5, 0.25, 0.25]], dtype=float64)
    return [
        Case((p, q, 3, 0.2), name="three drafted tokens"),
        Case((exact, exact, 4, 0.25), name="models that agree"),
    ]


# -- debug: the same text, in fewer runs -------------------------------------
def checked(
    target: Model, draft: Model, ids: Tensor, n_new: int, n_draft: int
) -> tuple[Tensor, int]:
    """Greedy speculative decoding: the text, and the target's runs.

    `target` and `draft` take a `(T,)` tensor of ids to `(T, V)` logits; row t
    is for the token after t. In each round `draft` proposes `n_draft` tokens,
    each its likeliest; then one run of `target` over the text with all of them
    finds the first that is not the target's own likeliest. Those before it are
    kept, and then comes one token of the target's: the right one in its place,
    or, if all were kept, the next. Rounds follow until at least `n_new` tokens
    are new; what is more is cut off. The result is the text, `ids` included,
    and the number of runs of `target`.
    """
    text, runs = ids, 0
    while len(text) < len(ids) + n_new:
        longer = text
        for _ in range(n_draft):
            token = draft(longer)[-1].argmax()
            longer = torch.cat([longer, token[None]])
        first = len(text) - 1
        likeliest = target(longer)[first:].argmax(-1)
        runs += 1
        drafted = longer[len(text) :]
        n = min(len(drafted), len(likeliest))
        n_kept = 0
        while n_kept < n and drafted[n_kept] == likeliest[n_kept]:
            n_kept += 1
        own = likeliest[n_kept : n_kept + 1]
        text = torch.cat([text, drafted[:n_kept], own])
    return text[: len(ids) + n_new], runs


_CHECKED_BUGS = {
    "row_late": Bug(
        "len(text) - 1",
        "len(text)",
        says="each drafted token compared with what comes after it",
        why="Row t says what follows token t: the first drafted token is "
        "judged by the row of the last token before it.",
        read="21_inference#inf-rule",
        alone=True,
    ),
    "all_agreeing": Bug(
        "own = likeliest[n_kept : n_kept + 1]",
        "n_kept = int((drafted[:n] == likeliest[:n]).sum())\n"
        "        own = likeliest[n_kept : n_kept + 1]",
        says="agreements counted after the first rejection, too",
        why="After a wrong token the draft continues a text that does not "
        "exist. Stop at the first disagreement.",
        read="21_inference#inf-rule",
        alone=True,
    ),
    "keeps_rejected": Bug(
        "text = torch.cat([text, drafted[:n_kept], own])",
        "if n_kept < len(drafted):\n"
        "            own = drafted[n_kept : n_kept + 1]\n"
        "        text = torch.cat([text, drafted[:n_kept], own])",
        says="the rejected token kept, in place of the target's",
        why="The row that rejects a token also has the target's own "
        "likeliest. Put that in its place.",
        read="21_inference#inf-rule",
        at="own",
    ),
    "no_extra": Bug(
        "text = torch.cat([text, drafted[:n_kept], own])",
        "if n_kept == len(drafted):\n"
        "            own = own[:0]\n"
        "        text = torch.cat([text, drafted[:n_kept], own])",
        says="no extra token where all drafted ones were kept",
        why="The last row says what follows them, and the target has "
        "computed it in the same run.",
        read="21_inference#inf-how-many",
        at="own",
    ),
    "not_cut": Bug(
        "text[: len(ids) + n_new]",
        "text",
        says="a text that may be longer than was asked for",
        why="The last round may yield more tokens than are missing. Cut "
        "off the surplus.",
        read="21_inference#inf-rule",
    ),
    "last_row": Bug(
        "likeliest[n_kept : n_kept + 1]",
        "likeliest[-1:]",
        says="the token after all drafted ones in place of a rejected one",
        why="That row has read the rejected token. Take the target's token "
        "of the row that rejected it.",
        read="21_inference#inf-rule",
        alone=True,
    ),
    "row_behind": Bug(
        "likeliest[n_kept : n_kept + 1]",
        "likeliest[min(n_kept + 1, len(likeliest) - 1)][None]",
        says="the target's token for the position after the rejected one",
        why="That row has read the rejected token. Take the target's token "
        "of the row that rejected it.",
        read="21_inference#inf-rule",
        alone=True,
    ),
    "prompt_counted": Bug(
        "text[: len(ids) + n_new]",
        "text[:n_new]",
        says="a text of n_new tokens, those of ids included",
        why="n_new are new: the text has len(ids) + n_new tokens.",
        read="21_inference#inf-rule",
        alone=True,
    ),
    "new_alone": Bug(
        "text[: len(ids) + n_new]",
        "text[len(ids) : len(ids) + n_new]",
        says="the new tokens without ids",
        why="The text begins with ids.",
        read="21_inference#inf-rule",
        alone=True,
    ),
}


def _machine(table: Tensor) -> Model:
    """A model whose logits depend on the last two tokens."""

    def logits(ids: Tensor) -> Tensor:
        before = torch.cat([ids[:1], ids[:-1]])
        return table[before, ids]

    return logits


def _checked_cases(seed: int) -> list[Case]:
    g = generator(seed)
    table = randn(g, 7, 7, 7)
    noisy = table + 1.3 * randn(g, 7, 7, 7)
    ids = torch.randint(7, (3,), generator=g)
    agree = _machine(table), _machine(table)
    other = _machine(table), _machine(noisy)
    return [
        Case((*other, ids, 29, 3), name="a draft that is often wrong"),
        Case((*agree, ids, 10, 3), name="a draft that is always right"),
    ]


EXERCISES = {
    "rounded": Exercise(
        rounded,
        _rounded_cases,
        judge=_rounded_judge,
        view=_rounded_view,
        bugs=_ROUNDED_BUGS,
        forbid=(
            "coursekit.quantize.quantize",
            "coursekit.weights.row_steps",
            "torch.fake_quantize_per_channel_affine",
        ),
    ),
    "restored": Exercise(
        restored,
        _restored_cases,
        bugs=_RESTORED_BUGS,
        forbid=(
            "coursekit.quantize.from_int4",
            "coursekit.quantize.dequantize",
        ),
    ),
    "verified": Exercise(
        verified,
        _verified_cases,
        bugs=_VERIFIED_BUGS,
        forbid=(
            "coursekit.speculative.verify",
            "coursekit.speculative.residual",
        ),
    ),
    "gain": Exercise(
        gain,
        _gain_cases,
        bugs=_GAIN_BUGS,
        forbid=(
            "coursekit.speculative.acceptance",
            "coursekit.speculative.expected_tokens",
        ),
    ),
    "checked": Exercise(
        checked,
        _checked_cases,
        bugs=_CHECKED_BUGS,
    ),
}
