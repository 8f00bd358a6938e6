"""Answers to the exercises of chapter 22."""

import math

import torch
from torch.nn import functional as F

from tests.answers import right, wrong

# -- best --------------------------------------------------------------------


@right("preferences/best")
def softmax_of_logarithms(reference, rewards, beta):
    return torch.softmax(reference.log() + rewards / beta, dim=0)


@right("preferences/best")
def answer_by_answer(reference, rewards, beta):
    top = max(rewards.tolist())
    tilted = [
        chance * math.exp((reward - top) / beta)
        for chance, reward in zip(
            reference.tolist(), rewards.tolist(), strict=True
        )
    ]
    return torch.tensor(
        [t / math.fsum(tilted) for t in tilted], dtype=reference.dtype
    )


@right("preferences/best")
def sum_of_odds(reference, rewards, beta):
    apart = (rewards[None, :] - rewards[:, None]) / beta
    return reference / (apart.exp() @ reference)


@right("preferences/best")
def formula_in_place(reference, rewards, beta):
    out = (rewards / beta).sub_(rewards.max() / beta)
    out.exp_().mul_(reference)
    return out.div_(out.sum())


@right("preferences/best")
def in_a_loop(reference, rewards, beta):
    pairs = zip(reference.tolist(), rewards.tolist(), strict=True)
    weights = [p * math.exp(r / beta) for p, r in pairs]
    total = sum(weights)
    return torch.tensor([w / total for w in weights], dtype=rewards.dtype)


@right("preferences/best")
def from_the_best(reference, rewards, beta):
    gap = (rewards - rewards.max()) / beta
    return F.normalize(reference * torch.exp(gap), p=1, dim=0)


@wrong("preferences/best", "times")
def times_beta(reference, rewards, beta):
    tilted = reference * torch.exp(rewards * beta)
    return tilted / tilted.sum()


@wrong("preferences/best", "not_normalized")
def no_z(reference, rewards, beta):
    return reference * torch.exp(rewards / beta)


@wrong("preferences/best", "no_reference")
def no_reference(reference, rewards, beta):
    return torch.softmax(rewards / beta, dim=0)


@wrong("preferences/best", "added")
def no_logarithm(reference, rewards, beta):
    return torch.softmax(reference + rewards / beta, dim=0)


@wrong("preferences/best", "no_beta")
def beta_left_out(reference, rewards, beta):
    tilted = reference * torch.exp(rewards)
    return tilted / tilted.sum()


@wrong("preferences/best", "both_divided")
def both_divided(reference, rewards, beta):
    return torch.softmax((reference.log() + rewards) / beta, dim=0)


@wrong("preferences/best", "penalty")
def worst_policy(reference, rewards, beta):
    return torch.softmax(reference.log() - rewards / beta, dim=0)


# Only the rewards are made to sum to 1, not the product.
@wrong("preferences/best")
def product_not_normalized(reference, rewards, beta):
    return reference * torch.softmax(rewards / beta, dim=0)


# All goes to the answer with the best reward.
@wrong("preferences/best")
def all_to_one(reference, rewards, beta):
    return F.one_hot(rewards.argmax(), len(rewards)).to(reference.dtype)


# Logarithms of the probabilities.
@wrong("preferences/best")
def their_logarithms(reference, rewards, beta):
    return torch.log_softmax(reference.log() + rewards / beta, dim=0)


# -- dpo ---------------------------------------------------------------------


@right("preferences/dpo")
def two_classes(better, worse, ref_better, ref_worse, beta):
    gained = torch.stack([better - ref_better, worse - ref_worse], dim=1)
    first = torch.zeros(len(better), dtype=torch.long)
    return F.cross_entropy(beta * gained, first)


@right("preferences/dpo")
def softplus_of_gaps(better, worse, ref_better, ref_worse, beta):
    gap, ref_gap = better - worse, ref_better - ref_worse
    return F.softplus(beta * (ref_gap - gap)).sum() / gap.numel()


@right("preferences/dpo")
def pair_at_a_time(better, worse, ref_better, ref_worse, beta):
    total = better.new_zeros(())
    for b, w, rb, rw in zip(better, worse, ref_better, ref_worse, strict=True):
        won, lost = beta * (b - rb), beta * (w - rw)
        total = total + torch.logaddexp(won, lost) - won
    return total / len(better)


@right("preferences/dpo")
def binary_with_ones(better, worse, ref_better, ref_worse, beta):
    signs = better.new_tensor([1, -1, -1, 1])
    all_four = torch.stack([better, worse, ref_better, ref_worse])
    margin = beta * torch.einsum("k,kb->b", signs, all_four)
    return F.binary_cross_entropy_with_logits(margin, torch.ones_like(margin))


@right("preferences/dpo")
def by_softplus(better, worse, ref_better, ref_worse, beta):
    margin = (better - worse) - (ref_better - ref_worse)
    return F.softplus(-beta * margin).mean()


@right("preferences/dpo")
def by_two_rewards(better, worse, ref_better, ref_worse, beta):
    r1, r2 = beta * (better - ref_better), beta * (worse - ref_worse)
    return -(r1.exp() / (r1.exp() + r2.exp())).log().mean()


@right("preferences/dpo")
def as_classification(better, worse, ref_better, ref_worse, beta):
    rewards = torch.stack([better - ref_better, worse - ref_worse], 1)
    first = torch.zeros(len(better), dtype=torch.long)
    return F.cross_entropy(beta * rewards, first)


@wrong("preferences/dpo", "swapped")
def worse_wins(better, worse, ref_better, ref_worse, beta):
    margin = beta * ((worse - ref_worse) - (better - ref_better))
    return -F.logsigmoid(margin).mean()


@wrong("preferences/dpo", "no_reference")
def dpo_without_reference(better, worse, ref_better, ref_worse, beta):
    return -F.logsigmoid(beta * (better - worse)).mean()


@wrong("preferences/dpo", "quotients")
def quotients_of_logs(better, worse, ref_better, ref_worse, beta):
    margin = beta * (better / ref_better - worse / ref_worse)
    return -F.logsigmoid(margin).mean()


@wrong("preferences/dpo", "beta_outside")
def beta_before_loss(better, worse, ref_better, ref_worse, beta):
    margin = (better - ref_better) - (worse - ref_worse)
    return -beta * F.logsigmoid(margin).mean()


@wrong("preferences/dpo", "mean_inside")
def mean_inside(better, worse, ref_better, ref_worse, beta):
    margin = beta * ((better - ref_better) - (worse - ref_worse))
    return -F.logsigmoid(margin.mean())


@wrong("preferences/dpo", "sum")
def sum_over_pairs(better, worse, ref_better, ref_worse, beta):
    margin = beta * ((better - ref_better) - (worse - ref_worse))
    return -F.logsigmoid(margin).sum()


@wrong("preferences/dpo", "positive")
def minus_forgotten(better, worse, ref_better, ref_worse, beta):
    margin = beta * ((better - ref_better) - (worse - ref_worse))
    return F.logsigmoid(margin).mean()


@wrong("preferences/dpo", "no_log")
def logarithm_forgotten(better, worse, ref_better, ref_worse, beta):
    margin = beta * ((better - ref_better) - (worse - ref_worse))
    return -torch.sigmoid(margin).mean()


@wrong("preferences/dpo", "reference_added")
def reference_added(better, worse, ref_better, ref_worse, beta):
    margin = beta * (better - worse + ref_better - ref_worse)
    return -F.logsigmoid(margin).mean()


def surprise(margin, reduce=torch.mean):
    return reduce(torch.log1p(torch.exp(-margin)))


@wrong("preferences/dpo", "better_alone")
def better_alone(better, worse, ref_better, ref_worse, beta):
    return surprise(beta * (better - ref_better))


@wrong("preferences/dpo", "no_beta")
def dpo_without_beta(better, worse, ref_better, ref_worse, beta):
    return by_softplus(better, worse, ref_better, ref_worse, 1)


# Quotients of the probabilities, without a logarithm.
@wrong("preferences/dpo")
def bare_quotients(better, worse, ref_better, ref_worse, beta):
    won, lost = (better - ref_better).exp(), (worse - ref_worse).exp()
    return -F.logsigmoid(beta * (won - lost)).mean()


# In bits, not nats.
@wrong("preferences/dpo")
def in_bits(better, worse, ref_better, ref_worse, beta):
    margin = beta * ((better - ref_better) - (worse - ref_worse))
    return -F.logsigmoid(margin).mean() / math.log(2)


@wrong("preferences/dpo")
def squared_margin(better, worse, ref_better, ref_worse, beta):
    margin = beta * (better - ref_better - worse + ref_worse)
    return ((margin - 1) ** 2).mean()


# -- advantages --------------------------------------------------------------


@right("preferences/advantages")
def numpy_rows(rewards):
    rows = rewards.numpy()
    spread = rows.std(axis=1, ddof=1, keepdims=True)
    out = (rows - rows.mean(axis=1, keepdims=True)) / (spread + 1e-4)
    return torch.from_numpy(out)


@right("preferences/advantages")
def rows_in_place(rewards):
    out = rewards.clone()
    for row in out:
        row -= row.mean()
        row /= (row @ row / (len(row) - 1)).sqrt() + 1e-4
    return out


@right("preferences/advantages")
def centering_matrix(rewards):
    n = rewards.size(1)
    off = torch.eye(n, dtype=rewards.dtype) - 1 / n
    centered = torch.einsum("pg,gh->ph", rewards, off)
    length = centered.norm(dim=1, keepdim=True)
    return centered / (length / (n - 1) ** 0.5 + 1e-4)


@right("preferences/advantages")
def transposed_rows(rewards):
    spread, mean = torch.std_mean(rewards, dim=1)
    return ((rewards.T - mean) / (spread + 1e-4)).T


@right("preferences/advantages")
def row_by_row(rewards):
    rows = [(r - r.mean()) / (r.std() + 1e-4) for r in rewards]
    return torch.stack(rows)


@right("preferences/advantages")
def by_the_sum_of_squares(rewards):
    gap = rewards - rewards.mean(1, keepdim=True)
    variance = (gap**2).sum(1, keepdim=True) / (rewards.shape[1] - 1)
    return gap / (variance**0.5 + 1e-4)


@right("preferences/advantages")
def turned(rewards):
    t = rewards.T
    return ((t - t.mean(0)) / (t.std(0) + 1e-4)).T


@wrong("preferences/advantages", "all_prompts", "std_of_all")
def over_all_rewards(rewards):
    return (rewards - rewards.mean()) / (rewards.std() + 1e-4)


@wrong("preferences/advantages", "std_of_all")
def deviation_of_all(rewards):
    return (rewards - rewards.mean(1, keepdim=True)) / (rewards.std() + 1e-4)


@wrong("preferences/advantages", "columns")
def columns(rewards):
    return (rewards - rewards.mean(0)) / (rewards.std(0) + 1e-4)


@wrong("preferences/advantages", "population")
def divided_by_n(rewards):
    spread, mean = torch.std_mean(rewards, 1, correction=0, keepdim=True)
    return (rewards - mean) / (spread + 1e-4)


@wrong("preferences/advantages", "variance")
def variance(rewards):
    var, mean = torch.var_mean(rewards, 1, keepdim=True)
    return (rewards - mean) / (var + 1e-4)


@wrong("preferences/advantages", "no_eps")
def nothing_added(rewards):
    spread, mean = torch.std_mean(rewards, 1, keepdim=True)
    return (rewards - mean) / spread


@wrong("preferences/advantages", "under_the_root")
def under_the_root(rewards):
    var, mean = torch.var_mean(rewards, 1, keepdim=True)
    return (rewards - mean) / (var + 1e-4).sqrt()


@wrong("preferences/advantages", "no_std")
def mean_alone(rewards):
    return rewards - rewards.mean(dim=1, keepdim=True)


@wrong("preferences/advantages", "brackets")
def brackets_forgotten(rewards):
    spread, mean = torch.std_mean(rewards, 1, keepdim=True)
    return (rewards - mean) / spread + 1e-4


def scaled(rewards, base, spread):
    return (rewards - base) / spread


def row_spread(rewards):
    return torch.sqrt(torch.var(rewards, 1, keepdim=True)) + 1e-4


@wrong("preferences/advantages", "all_prompts")
def all_prompts(rewards):
    return scaled(rewards, rewards.mean(), row_spread(rewards))


@wrong("preferences/advantages", "no_baseline")
def rewards_alone(rewards):
    return scaled(rewards, 0, row_spread(rewards))


# No keepdim: means and deviations go to columns, if they fit at all.
@wrong("preferences/advantages")
def no_keepdim(rewards):
    return (rewards - rewards.mean(1)) / (rewards.std(1) + 1e-4)


# Each compared with the mean of the others, without itself.
@wrong("preferences/advantages")
def others_alone(rewards):
    n = rewards.size(1)
    others = (rewards.sum(1, keepdim=True) - rewards) / (n - 1)
    return (rewards - others) / (rewards.std(1, keepdim=True) + 1e-4)


@wrong("preferences/advantages")
def ranks(rewards):
    return rewards.argsort(1).argsort(1).to(rewards.dtype)


# -- learned -----------------------------------------------------------------


@right("preferences/learned")
def answers_cut_out(log_probs, is_answer, rewards):
    n = len(rewards)
    total = log_probs.new_zeros(())
    for row, chosen, reward in zip(log_probs, is_answer, rewards):
        total = total + (reward - rewards.mean()) * row[chosen].sum()
    return -total / n


@right("preferences/learned")
def sign_in_the_gains(log_probs, is_answer, rewards):
    losses = rewards.mean() - rewards
    of_answer = log_probs.masked_fill(~is_answer, 0).sum(1)
    return torch.dot(losses, of_answer) / len(losses)


@right("preferences/learned")
def one_einsum(log_probs, is_answer, rewards):
    gains = (rewards - rewards.mean()) / -len(rewards)
    chosen = is_answer.to(log_probs.dtype)
    return torch.einsum("b,bt,bt->", gains, log_probs, chosen)


@right("preferences/learned")
def covariance(log_probs, is_answer, rewards):
    zero = torch.zeros_like(log_probs)
    said = torch.where(is_answer, log_probs, zero).sum(dim=1)
    return rewards.mean() * said.mean() - (rewards * said).mean()


@right("preferences/learned")
def learned_answer_by_answer(log_probs, is_answer, rewards):
    total = 0.0
    for lp, counts, r in zip(log_probs, is_answer, rewards, strict=True):
        total = total - (r - rewards.mean()) * lp[counts].sum()
    return total / len(rewards)


@right("preferences/learned")
def by_where(log_probs, is_answer, rewards):
    lp = torch.where(is_answer, log_probs, torch.zeros_like(log_probs))
    return (lp.sum(1) * (rewards.mean() - rewards)).sum() / len(rewards)


@right("preferences/learned")
def by_einsum(log_probs, is_answer, rewards):
    gains = rewards - rewards.sum() / len(rewards)
    counts = is_answer.double()
    total = torch.einsum("gt,gt,g->", log_probs, counts, gains)
    return total * (-1 / len(rewards))


@wrong("preferences/learned", "prompt_too")
def prompt_still_counts(log_probs, is_answer, rewards):
    gains = rewards - rewards.mean()
    return -(gains * log_probs.sum(1)).mean()


@wrong("preferences/learned", "wrong_way")
def sign_still_wrong(log_probs, is_answer, rewards):
    gains = rewards - rewards.mean()
    return (gains * (log_probs * is_answer).sum(1)).mean()


@wrong("preferences/learned", "per_token")
def mean_over_tokens(log_probs, is_answer, rewards):
    gains = rewards - rewards.mean()
    said = (log_probs * is_answer).sum(1) / is_answer.sum(1)
    return -(gains * said).mean()


@wrong("preferences/learned", "no_baseline")
def no_baseline(log_probs, is_answer, rewards):
    return -(rewards * (log_probs * is_answer).sum(1)).mean()


@wrong("preferences/learned", "summed")
def sum_over_answers(log_probs, is_answer, rewards):
    gains = rewards - rewards.mean()
    return -(gains * (log_probs * is_answer).sum(1)).sum()


@wrong("preferences/learned", "divided")
def divided_as_in_grpo(log_probs, is_answer, rewards):
    gains = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
    return -(gains * (log_probs * is_answer).sum(1)).mean()


@wrong("preferences/learned", "probability")
def probabilities_of_answers(log_probs, is_answer, rewards):
    gains = rewards - rewards.mean()
    chances = (log_probs * is_answer).sum(1).exp()
    return -(gains * chances).mean()


# The index makes one row of all answers: one sum for all of them.
@wrong("preferences/learned")
def one_sum_for_all(log_probs, is_answer, rewards):
    gains = rewards - rewards.mean()
    return -(gains * log_probs[is_answer].sum()).mean()


def program(log_probs, is_answer, gains):
    return -torch.mean(gains * (log_probs * is_answer).sum(1))


@wrong("preferences/learned")
def prompts_alone(log_probs, is_answer, rewards):
    return program(log_probs, ~is_answer, rewards - rewards.mean())


@wrong("preferences/learned")
def fine_tuning(log_probs, is_answer, rewards):
    return program(log_probs, is_answer, torch.ones_like(rewards))
