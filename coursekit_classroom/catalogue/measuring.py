"""Exercises of the page on measuring a language model."""

import math

import torch
from torch import Tensor

from coursekit_classroom.check.core import (
    Bug,
    Case,
    Exercise,
    generator,
    randn,
)


# -- implement: pass@k -------------------------------------------------------
def passed(counts: list[int], n: int, k: int) -> float:
    """Unbiased pass@k: the mean over questions, a fraction.

    Of the `n` answers that were drawn to question i, `counts[i]` are right.
    For each question it is the fraction of all choices of `k` of its `n`
    answers in which at least one is right.
    """
    missed = [math.comb(n - c, k) / math.comb(n, k) for c in counts]
    return 1 - sum(missed) / len(missed)


_PASSED_BUGS = {
    "put_back": Bug(
        "math.comb(n - c, k) / math.comb(n, k)",
        "(1 - c / n) ** k",
        says="the fraction of wrong answers to the power of k",
        why="That puts each answer back before the next is drawn, and is too "
        "low on average. Count choices of k different answers.",
        read="further/22_measuring#meas-pass",
    ),
    "of_the_right": Bug(
        "math.comb(n - c, k)",
        "math.comb(c, k)",
        says="choices in which every answer is right",
        why="Subtract the choices that miss: k of the n − c wrong answers.",
        read="further/22_measuring#meas-pass",
    ),
    "missed": Bug(
        "return 1 - sum(missed)",
        "return sum(missed)",
        says="the fraction of choices without a right answer",
        why="Pass@k is the fraction of the others: subtract from 1.",
        read="further/22_measuring#meas-pass",
    ),
    "pooled": Bug(
        "for c in counts",
        "for c, n in [(sum(counts), n * len(counts))]",
        says="all questions' answers in one pool",
        why="The k answers belong to one question. Compute pass@k for each "
        "question, then the mean: questions that are never answered count.",
        read="further/22_measuring#meas-pass",
        at="formula",
    ),
    "any_of_n": Bug(
        "math.comb(n - c, k) / math.comb(n, k)",
        "(c == 0)",
        says="pass@n: whether any of all n answers is right",
        why="Only k of the n answers are chosen, in every possible way.",
        read="further/22_measuring#meas-pass",
    ),
    "one_draw": Bug(
        "math.comb(n - c, k) / math.comb(n, k)",
        "(1 - c / n)",
        says="pass@1: the fraction of right answers, whatever k is",
        why="With k draws a question is missed only if all k are wrong.",
        read="further/22_measuring#meas-pass",
        at="formula",
    ),
    "summed": Bug(
        "1 - sum(missed) / len(missed)",
        "len(missed) - sum(missed)",
        says="the sum over questions",
        why="The mean, so that tests of different lengths can be compared.",
        read="further/22_measuring#meas-pass",
        alone=True,
    ),
}


def _passed_cases(seed: int) -> list[Case]:
    g = generator(seed)
    few = torch.randint(1, 5, (3,), generator=g).tolist()
    return [Case(([0, 9, *few], 11, 3), name="one never right, one often")]


# -- debug: a judge with a favorite place ------------------------------------
def judged(first: Tensor, second: Tensor) -> Tensor:
    """For each pair 1 if our answer wins, 0.5 for a tie, 0 if it loses.

    A judge's number is positive if it prefers the answer that it reads first.
    `first`, `(N,)`, has its numbers with our answer read first, and `second`,
    `(N,)`, with our answer read second. The two numbers of a pair are put
    together so that a bonus for the first place cancels.
    """
    margin = first - second
    wins = (margin > 0).double() + 0.5 * (margin == 0)
    return wins


_JUDGED_BUGS = {
    "added": Bug(
        "first - second",
        "first + second",
        says="the numbers of both readings added",
        why="In the second reading a positive number is for theirs. In the "
        "sum the answers cancel, and the bonus for the place is doubled.",
        read="further/22_measuring#meas-judge",
    ),
    "one_order": Bug(
        "first - second",
        "first",
        says="the first reading alone",
        why="It holds the bonus for the first place. Subtract the reading in "
        "the other order.",
        read="further/22_measuring#meas-judge",
    ),
    "swapped": Bug(
        "first - second",
        "second - first",
        says="the pairs that theirs wins",
        why="A positive number prefers what is read first: in `first` that "
        "is ours.",
        read="further/22_measuring#meas-judge",
    ),
    "signs": Bug(
        "first - second",
        "first.sign() - second.sign()",
        says="the two verdicts put together, not the two numbers",
        why="Where the place decides both verdicts, they cancel, and what the "
        "judge thought of the answers is lost. Subtract the numbers.",
        read="further/22_measuring#meas-judge",
    ),
    "ties_won": Bug(
        "0.5 * (margin == 0)",
        "(margin == 0)",
        says="a tie counted as a win",
        why="Then a model beats itself. A tie is half a win.",
        read="further/22_measuring#meas-exercises",
        at="ties",
    ),
    "ties_lost": Bug(
        " + 0.5 * (margin == 0)",
        "",
        says="a tie counted as a loss",
        why="Then a model loses against itself. A tie is half a win.",
        read="further/22_measuring#meas-exercises",
        at="ties",
    ),
    "margin": Bug(
        "return wins",
        "return margin",
        says="the difference of the judge's numbers",
        why="Asked for is which pairs ours wins, whatever the distance.",
        read="further/22_measuring#meas-exercises",
        alone=True,
    ),
}


def _judged_cases(seed: int) -> list[Case]:
    g = generator(seed)
    quality = randn(g, 13)
    quality += quality.sign()  # larger than the bonus, but for three
    quality[4:7] = quality[4:7].abs() / 10 * torch.tensor([1, -1, -1])
    quality[:2] = 0.0
    bonus = torch.full_like(quality, 0.6)
    bonus[2], bonus[3] = 0.0, -quality[3]  # a sum of 0, a first number of 0
    bonus[6] = -0.6
    pair = bonus + quality, bonus - quality
    return [Case(pair, name="a bonus for the first place, two ties")]


EXERCISES = {
    "passed": Exercise(
        passed,
        _passed_cases,
        bugs=_PASSED_BUGS,
    ),
    "judged": Exercise(
        judged,
        _judged_cases,
        bugs=_JUDGED_BUGS,
    ),
}
