"""Answers to the exercises of the page on measuring."""

import itertools
import math

import torch

from tests.answers import right, wrong

# -- passed ------------------------------------------------------------------


@right("measuring/passed")
def product_as_in_human_eval(counts, n, k):
    found = []
    for c in counts:
        if n - c < k:
            found.append(1.0)
            continue
        miss = 1.0
        for i in range(n - c + 1, n + 1):
            miss *= 1.0 - k / i
        found.append(1.0 - miss)
    return sum(found) / len(found)


@right("measuring/passed")
def every_choice_enumerated(counts, n, k):
    total = 0.0
    for c in counts:
        drawn = [True] * c + [False] * (n - c)
        hits = [any(some) for some in itertools.combinations(drawn, k)]
        total += sum(hits) / len(hits)
    return total / len(counts)


@right("measuring/passed")
def wrong_one_after_another(counts, n, k):
    wrong_ones = n - torch.tensor(counts, dtype=torch.float64)
    miss = torch.ones_like(wrong_ones)
    for i in range(k):
        miss *= (wrong_ones - i).clamp(min=0) / (n - i)
    return (1 - miss).mean().item()


@right("measuring/passed")
def by_log_gamma(counts, n, k):
    def log_comb(a):
        return math.lgamma(a + 1) - math.lgamma(k + 1) - math.lgamma(a - k + 1)

    hits = [
        1.0 if n - c < k else -math.expm1(log_comb(n - c) - log_comb(n))
        for c in counts
    ]
    return math.fsum(hits) / len(hits)


@wrong("measuring/passed", "put_back")
def with_replacement(counts, n, k):
    rates = [c / n for c in counts]
    return sum(1 - (1 - p) ** k for p in rates) / len(rates)


@wrong("measuring/passed", "of_the_right")
def not_all_right(counts, n, k):
    every = math.comb(n, k)
    return sum((every - math.comb(c, k)) / every for c in counts) / len(counts)


@wrong("measuring/passed", "missed")
def fail_at_k(counts, n, k):
    fails = [math.comb(n - c, k) / math.comb(n, k) for c in counts]
    return math.fsum(fails) / len(fails)


@wrong("measuring/passed", "pooled")
def one_big_question(counts, n, k):
    drawn = n * len(counts)
    bad = drawn - sum(counts)
    return 1 - math.comb(bad, k) / math.comb(drawn, k)


@wrong("measuring/passed", "any_of_n")
def ever_solved(counts, n, k):
    return sum(1 for c in counts if c > 0) / len(counts)


@wrong("measuring/passed", "one_draw")
def plain_accuracy(counts, n, k):
    return sum(counts) / (n * len(counts))


@wrong("measuring/passed", "summed")
def sum_of_questions(counts, n, k):
    ways = math.comb(n, k)
    return float(sum(1 - math.comb(n - c, k) / ways for c in counts))


@wrong("measuring/passed")
def first_k_in_sorted_order(counts, n, k):
    return sum(min(c, k) / k for c in counts) / len(counts)


@wrong("measuring/passed")
def expected_hits(counts, n, k):
    return sum(min(1.0, k * c / n) for c in counts) / len(counts)


@wrong("measuring/passed")
def exactly_one(counts, n, k):
    ways = math.comb(n, k)
    return sum(c * math.comb(n - c, k - 1) / ways for c in counts) / len(
        counts
    )


# -- judged ------------------------------------------------------------------


@right("measuring/judged")
def pair_by_pair(first, second):
    won = []
    for ours, theirs in zip(first.tolist(), second.tolist(), strict=True):
        won.append(0.5 if ours == theirs else float(ours > theirs))
    return torch.tensor(won, dtype=torch.float64)


@right("measuring/judged")
def sign_of_the_margin(first, second):
    return (first - second).sign().double() / 2 + 0.5


@right("measuring/judged")
def with_where(first, second):
    half = torch.full_like(first, 0.5)
    ahead = (first > second).to(first.dtype)
    return torch.where(first == second, half, ahead)


@right("measuring/judged")
def heaviside(first, second):
    mean = (first + (-second)) / 2
    return torch.heaviside(mean, torch.tensor(0.5, dtype=mean.dtype))


@wrong("measuring/judged", "added", "ties_lost")
def sum_above_zero(first, second):
    return ((first + second) > 0).double()


@wrong("measuring/judged", "added")
def mean_of_both(first, second):
    both = torch.stack([first, second]).mean(0)
    return (both.sign() + 1).double() / 2


@wrong("measuring/judged", "one_order")
def ours_read_first(first, second):
    return torch.where(first == 0, 0.5, (first > 0).double())


@wrong("measuring/judged", "swapped")
def theirs_wins(first, second):
    gap = second - first
    return (gap.sign().double() + 1) / 2


@wrong("measuring/judged", "signs")
def two_verdicts(first, second):
    points = (first > 0).double() - (first < 0).double()
    points = points - (second > 0).double() + (second < 0).double()
    return (points.sign() + 1) / 2


@wrong("measuring/judged", "ties_won")
def at_least(first, second):
    return torch.ge(first, second).double()


@wrong("measuring/judged", "ties_lost")
def strictly(first, second):
    return torch.gt(first, second).double()


@wrong("measuring/judged", "margin")
def how_far(first, second):
    return torch.sub(first, second)


@wrong("measuring/judged")
def a_fraction_of_all(first, second):
    return ((first - second).sign().double() / 2 + 0.5).mean()


@wrong("measuring/judged")
def must_win_both(first, second):
    return ((first > 0) & (second < 0)).double()


@wrong("measuring/judged")
def mean_sigmoid(first, second):
    return torch.sigmoid(first - second)
