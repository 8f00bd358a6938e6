"""Answers to the exercises of chapter 22, by somebody else."""

import math

import torch
from torch.nn import functional as F  # noqa: N812


# -- best: right -------------------------------------------------------------
def by_softmax(reference, rewards, beta):
    return torch.softmax(reference.log() + rewards / beta, dim=0)


def in_a_loop(reference, rewards, beta):
    pairs = zip(reference.tolist(), rewards.tolist(), strict=True)
    weights = [p * math.exp(r / beta) for p, r in pairs]
    total = sum(weights)
    return torch.tensor([w / total for w in weights], dtype=rewards.dtype)


def from_the_best(reference, rewards, beta):
    gap = (rewards - rewards.max()) / beta
    return F.normalize(reference * torch.exp(gap), p=1, dim=0)


# -- best: wrong -------------------------------------------------------------
def policy(reference, exponent, z=True):
    w = reference * torch.exp(exponent)
    return w / torch.sum(w) if z else w


def times(reference, rewards, beta):
    return policy(reference, beta * rewards)


def best_without_beta(reference, rewards, beta):
    return policy(reference, rewards)


def penalty(reference, rewards, beta):
    return policy(reference, -rewards / beta)


def best_without_reference(reference, rewards, beta):
    return torch.softmax(rewards / beta, 0)


def added(reference, rewards, beta):
    return torch.softmax(reference + rewards / beta, 0)


def not_normalized(reference, rewards, beta):
    return policy(reference, rewards / beta, z=False)


def both_divided(reference, rewards, beta):
    return policy(1, (torch.log(reference) + rewards) / beta)


# -- best: other mistakes ----------------------------------------------------
def the_reference(reference, rewards, beta):
    return reference.clone()


def the_likeliest_alone(reference, rewards, beta):
    return F.one_hot(rewards.argmax(), len(rewards)).to(rewards.dtype)


def squared_reference(reference, rewards, beta):
    return policy(reference**2, rewards / beta)


# -- dpo: right --------------------------------------------------------------
def by_softplus(better, worse, ref_better, ref_worse, beta):
    margin = (better - worse) - (ref_better - ref_worse)
    return F.softplus(-beta * margin).mean()


def by_two_rewards(better, worse, ref_better, ref_worse, beta):
    r1, r2 = beta * (better - ref_better), beta * (worse - ref_worse)
    return -(r1.exp() / (r1.exp() + r2.exp())).log().mean()


def as_classification(better, worse, ref_better, ref_worse, beta):
    rewards = torch.stack([better - ref_better, worse - ref_worse], 1)
    first = torch.zeros(len(better), dtype=torch.long)
    return F.cross_entropy(beta * rewards, first)


# -- dpo: wrong --------------------------------------------------------------
def surprise(margin, reduce=torch.mean):
    return reduce(torch.log1p(torch.exp(-margin)))


def dpo_without_reference(better, worse, ref_better, ref_worse, beta):
    return surprise(beta * (better - worse))


def swapped(better, worse, ref_better, ref_worse, beta):
    return by_softplus(worse, better, ref_worse, ref_better, beta)


def better_alone(better, worse, ref_better, ref_worse, beta):
    return surprise(beta * (better - ref_better))


def dpo_without_beta(better, worse, ref_better, ref_worse, beta):
    return by_softplus(better, worse, ref_better, ref_worse, 1)


def no_log(better, worse, ref_better, ref_worse, beta):
    margin = better - ref_better - worse + ref_worse
    return (-1 / (1 + torch.exp(-beta * margin))).mean()


def positive(better, worse, ref_better, ref_worse, beta):
    return -by_softplus(better, worse, ref_better, ref_worse, beta)


def dpo_sum(better, worse, ref_better, ref_worse, beta):
    margin = better - ref_better - worse + ref_worse
    return surprise(beta * margin, torch.sum)


def quotients(better, worse, ref_better, ref_worse, beta):
    r1, r2 = better / ref_better, worse / ref_worse
    return surprise(beta * r1 - beta * r2)


def reference_added(better, worse, ref_better, ref_worse, beta):
    return by_softplus(better, worse, -ref_better, -ref_worse, beta)


# -- dpo: other mistakes -----------------------------------------------------
def first_pair_alone(better, worse, ref_better, ref_worse, beta):
    return by_softplus(
        better[:1], worse[:1], ref_better[:1], ref_worse[:1], beta
    )


def squared_margin(better, worse, ref_better, ref_worse, beta):
    margin = beta * (better - ref_better - worse + ref_worse)
    return ((margin - 1) ** 2).mean()


def base_two(better, worse, ref_better, ref_worse, beta):
    loss = by_softplus(better, worse, ref_better, ref_worse, beta)
    return loss / math.log(2)


# -- advantages: right -------------------------------------------------------
def row_by_row(rewards):
    rows = [(r - r.mean()) / (r.std() + 1e-4) for r in rewards]
    return torch.stack(rows)


def by_the_sum_of_squares(rewards):
    gap = rewards - rewards.mean(1, keepdim=True)
    variance = (gap**2).sum(1, keepdim=True) / (rewards.shape[1] - 1)
    return gap / (variance**0.5 + 1e-4)


def turned(rewards):
    t = rewards.T
    return ((t - t.mean(0)) / (t.std(0) + 1e-4)).T


# -- advantages: wrong -------------------------------------------------------
def scaled(rewards, base, spread):
    return (rewards - base) / spread


def row_mean(rewards):
    return rewards.sum(1, keepdim=True) / rewards.shape[1]


def row_spread(rewards):
    return torch.sqrt(torch.var(rewards, 1, keepdim=True)) + 1e-4


def columns(rewards):
    return scaled(rewards, rewards.mean(0), rewards.std(0) + 1e-4)


def no_std(rewards):
    return scaled(rewards, row_mean(rewards), 1)


def variance(rewards):
    return scaled(rewards, row_mean(rewards), rewards.var(1)[:, None] + 1e-4)


def no_eps(rewards):
    base = rewards.mean(1)[:, None]
    return scaled(rewards, base, rewards.std(1)[:, None])


def all_prompts(rewards):
    return scaled(rewards, rewards.mean(), row_spread(rewards))


def rewards_alone(rewards):
    return scaled(rewards, 0, row_spread(rewards))


def std_of_all(rewards):
    return scaled(rewards, row_mean(rewards), rewards.flatten().std() + 1e-4)


def brackets(rewards):
    spread = rewards.std(1)[:, None]
    return 1e-4 + scaled(rewards, row_mean(rewards), spread)


# -- advantages: other mistakes ----------------------------------------------
def ranks(rewards):
    return rewards.argsort(1).argsort(1).to(rewards.dtype)


def signs(rewards):
    return (rewards - row_mean(rewards)).sign()


def upside_down(rewards):
    return -scaled(rewards, row_mean(rewards), row_spread(rewards))


# -- learned: right ----------------------------------------------------------
def answer_by_answer(log_probs, is_answer, rewards):
    total = 0.0
    for lp, counts, r in zip(log_probs, is_answer, rewards, strict=True):
        total = total - (r - rewards.mean()) * lp[counts].sum()
    return total / len(rewards)


def by_where(log_probs, is_answer, rewards):
    lp = torch.where(is_answer, log_probs, torch.zeros_like(log_probs))
    return (lp.sum(1) * (rewards.mean() - rewards)).sum() / len(rewards)


def by_einsum(log_probs, is_answer, rewards):
    gains = rewards - rewards.sum() / len(rewards)
    counts = is_answer.double()
    total = torch.einsum("gt,gt,g->", log_probs, counts, gains)
    return total * (-1 / len(rewards))


# -- learned: wrong ----------------------------------------------------------
def program(log_probs, is_answer, gains):
    return -torch.mean(gains * (log_probs * is_answer).sum(1))


def prompt_too(log_probs, is_answer, rewards):
    return -((rewards - rewards.mean()) * log_probs.sum(1)).mean()


def per_token(log_probs, is_answer, rewards):
    gains = (rewards - rewards.mean()) / is_answer.sum(1)
    return program(log_probs, is_answer, gains)


def probability(log_probs, is_answer, rewards):
    p = (log_probs * is_answer).sum(1).exp()
    return -((rewards - rewards.mean()) * p).mean()


def no_baseline(log_probs, is_answer, rewards):
    return program(log_probs, is_answer, rewards)


def wrong_way(log_probs, is_answer, rewards):
    return program(log_probs, is_answer, rewards.mean() - rewards)


def learned_divided(log_probs, is_answer, rewards):
    std, mean = torch.std_mean(rewards)
    return program(log_probs, is_answer, (rewards - mean) / (1e-4 + std))


# -- learned: other mistakes -------------------------------------------------
def prompts_alone(log_probs, is_answer, rewards):
    return program(log_probs, ~is_answer, rewards - rewards.mean())


def the_sum(log_probs, is_answer, rewards):
    loss = program(log_probs, is_answer, rewards - rewards.mean())
    return loss * len(rewards)


def fine_tuning(log_probs, is_answer, rewards):
    return program(log_probs, is_answer, torch.ones_like(rewards))


def beta_outside(better, worse, ref_better, ref_worse, beta):
    gap = better - worse - (ref_better - ref_worse)
    return beta * F.softplus(-gap).mean()


def mean_inside(better, worse, ref_better, ref_worse, beta):
    gap = (better - ref_better).mean() - (worse - ref_worse).mean()
    return torch.log1p(torch.exp(-beta * gap))


def under_the_root(rewards):
    var, mean = torch.var_mean(rewards, dim=1, keepdim=True)
    return (rewards - mean) * (var + 1e-4).rsqrt()


def population(rewards):
    apart = rewards - rewards.mean(1, keepdim=True)
    return apart / (apart.square().mean(1, keepdim=True).sqrt() + 1e-4)


def of_the_ranks(log_probs, is_answer, rewards):
    ranks = rewards.argsort().argsort().to(log_probs.dtype)
    gains = ranks - ranks.mean()
    return -(gains * (log_probs * is_answer).sum(1)).mean()


RIGHT = {
    "best": [by_softmax, in_a_loop, from_the_best],
    "dpo": [by_softplus, by_two_rewards, as_classification],
    "advantages": [row_by_row, by_the_sum_of_squares, turned],
    "learned": [answer_by_answer, by_where, by_einsum],
}
WRONG = {
    "best": {
        "times": times,
        "no_beta": best_without_beta,
        "penalty": penalty,
        "no_reference": best_without_reference,
        "added": added,
        "both_divided": both_divided,
        "not_normalized": not_normalized,
    },
    "dpo": {
        "no_reference": dpo_without_reference,
        "quotients": quotients,
        "reference_added": reference_added,
        "swapped": swapped,
        "better_alone": better_alone,
        "no_beta": dpo_without_beta,
        "no_log": no_log,
        "positive": positive,
        "sum": dpo_sum,
        "beta_outside": beta_outside,
        "mean_inside": mean_inside,
    },
    "advantages": {
        "columns": columns,
        "no_std": no_std,
        "variance": variance,
        "std_of_all": std_of_all,
        "brackets": brackets,
        "no_eps": no_eps,
        "all_prompts": all_prompts,
        "no_baseline": rewards_alone,
        "under_the_root": under_the_root,
        "population": population,
    },
    "learned": {
        "prompt_too": prompt_too,
        "per_token": per_token,
        "probability": probability,
        "no_baseline": no_baseline,
        "divided": learned_divided,
        "wrong_way": wrong_way,
        "summed": the_sum,
    },
}
OUTSIDE = {
    "best": [the_reference, the_likeliest_alone, squared_reference],
    "dpo": [first_pair_alone, squared_margin, base_two],
    "advantages": [ranks, signs, upside_down],
    "learned": [prompts_alone, fine_tuning, of_the_ranks],
}
