"""Answers to chapter 22, written from its page alone."""

import math

import torch
from torch.nn import functional as F

from tests.wild import right, wrong

# preferences/best


@right("preferences/best", "a softmax of logarithms")
def softmax_of_logarithms(reference, rewards, beta):
    return torch.softmax(reference.log() + rewards / beta, dim=0)


@right("preferences/best", "answer by answer, the best reward taken off")
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


@right("preferences/best", "one row of odds for each answer: 1 / sum of odds")
def sum_of_odds(reference, rewards, beta):
    apart = (rewards[None, :] - rewards[:, None]) / beta
    return reference / (apart.exp() @ reference)


@right("preferences/best", "the formula, in place")
def formula_in_place(reference, rewards, beta):
    out = (rewards / beta).sub_(rewards.max() / beta)
    out.exp_().mul_(reference)
    return out.div_(out.sum())


@wrong("preferences/best", "the reward times beta", classic=True)
def times_beta(reference, rewards, beta):
    tilted = reference * torch.exp(rewards * beta)
    return tilted / tilted.sum()


@wrong("preferences/best", "no Z: does not sum to 1", classic=True)
def no_z(reference, rewards, beta):
    return reference * torch.exp(rewards / beta)


@wrong("preferences/best", "the reference is left out", classic=True)
def no_reference(reference, rewards, beta):
    return torch.softmax(rewards / beta, dim=0)


@wrong(
    "preferences/best",
    "a softmax over the probability plus the reward: no logarithm",
    classic=True,
)
def no_logarithm(reference, rewards, beta):
    return torch.softmax(reference + rewards / beta, dim=0)


@wrong(
    "preferences/best",
    "only the rewards are made to sum to 1, not the product",
    classic=True,
)
def product_not_normalized(reference, rewards, beta):
    return reference * torch.softmax(rewards / beta, dim=0)


@wrong("preferences/best", "beta is left out", classic=True)
def beta_left_out(reference, rewards, beta):
    tilted = reference * torch.exp(rewards)
    return tilted / tilted.sum()


@wrong(
    "preferences/best",
    "all goes to the answer with the best reward",
    classic=True,
)
def all_to_one(reference, rewards, beta):
    return F.one_hot(rewards.argmax(), len(rewards)).to(reference.dtype)


@wrong(
    "preferences/best",
    "beta divides the reference's logarithm too",
    classic=True,
)
def both_divided(reference, rewards, beta):
    return torch.softmax((reference.log() + rewards) / beta, dim=0)


@wrong("preferences/best", "the worst policy: exp(-r / beta)", classic=False)
def worst_policy(reference, rewards, beta):
    return torch.softmax(reference.log() - rewards / beta, dim=0)


@wrong("preferences/best", "logarithms of the probabilities", classic=False)
def their_logarithms(reference, rewards, beta):
    return torch.log_softmax(reference.log() + rewards / beta, dim=0)


# preferences/dpo


@right("preferences/dpo", "a cross-entropy with two classes")
def two_classes(better, worse, ref_better, ref_worse, beta):
    gained = torch.stack([better - ref_better, worse - ref_worse], dim=1)
    first = torch.zeros(len(better), dtype=torch.long)
    return F.cross_entropy(beta * gained, first)


@right("preferences/dpo", "policy and reference apart, and a softplus")
def softplus_of_gaps(better, worse, ref_better, ref_worse, beta):
    gap, ref_gap = better - worse, ref_better - ref_worse
    return F.softplus(beta * (ref_gap - gap)).sum() / gap.numel()


@right("preferences/dpo", "a pair at a time, with logaddexp")
def pair_at_a_time(better, worse, ref_better, ref_worse, beta):
    total = better.new_zeros(())
    for b, w, rb, rw in zip(better, worse, ref_better, ref_worse, strict=True):
        won, lost = beta * (b - rb), beta * (w - rw)
        total = total + torch.logaddexp(won, lost) - won
    return total / len(better)


@right("preferences/dpo", "a binary cross-entropy with ones")
def binary_with_ones(better, worse, ref_better, ref_worse, beta):
    signs = better.new_tensor([1, -1, -1, 1])
    all_four = torch.stack([better, worse, ref_better, ref_worse])
    margin = beta * torch.einsum("k,kb->b", signs, all_four)
    return F.binary_cross_entropy_with_logits(margin, torch.ones_like(margin))


@wrong(
    "preferences/dpo",
    "the worse answer is to win: sign exchanged",
    classic=True,
)
def worse_wins(better, worse, ref_better, ref_worse, beta):
    margin = beta * ((worse - ref_worse) - (better - ref_better))
    return -F.logsigmoid(margin).mean()


@wrong("preferences/dpo", "the reference is left out", classic=True)
def dpo_without_reference(better, worse, ref_better, ref_worse, beta):
    return -F.logsigmoid(beta * (better - worse)).mean()


@wrong(
    "preferences/dpo",
    "quotients of log-probabilities, not differences",
    classic=True,
)
def quotients_of_logs(better, worse, ref_better, ref_worse, beta):
    margin = beta * (better / ref_better - worse / ref_worse)
    return -F.logsigmoid(margin).mean()


@wrong(
    "preferences/dpo", "beta stands before the loss, not inside", classic=True
)
def beta_before_loss(better, worse, ref_better, ref_worse, beta):
    margin = (better - ref_better) - (worse - ref_worse)
    return -beta * F.logsigmoid(margin).mean()


@wrong(
    "preferences/dpo",
    "the mean of the margins first, then one loss",
    classic=True,
)
def mean_inside(better, worse, ref_better, ref_worse, beta):
    margin = beta * ((better - ref_better) - (worse - ref_worse))
    return -F.logsigmoid(margin.mean())


@wrong("preferences/dpo", "a sum over the pairs", classic=True)
def sum_over_pairs(better, worse, ref_better, ref_worse, beta):
    margin = beta * ((better - ref_better) - (worse - ref_worse))
    return -F.logsigmoid(margin).sum()


@wrong("preferences/dpo", "the minus is forgotten", classic=True)
def minus_forgotten(better, worse, ref_better, ref_worse, beta):
    margin = beta * ((better - ref_better) - (worse - ref_worse))
    return F.logsigmoid(margin).mean()


@wrong("preferences/dpo", "the logarithm is forgotten", classic=True)
def logarithm_forgotten(better, worse, ref_better, ref_worse, beta):
    margin = beta * ((better - ref_better) - (worse - ref_worse))
    return -torch.sigmoid(margin).mean()


@wrong("preferences/dpo", "the reference's gap is added", classic=True)
def reference_added(better, worse, ref_better, ref_worse, beta):
    margin = beta * (better - worse + ref_better - ref_worse)
    return -F.logsigmoid(margin).mean()


@wrong(
    "preferences/dpo",
    "quotients of the probabilities, without a logarithm",
    classic=False,
)
def bare_quotients(better, worse, ref_better, ref_worse, beta):
    won, lost = (better - ref_better).exp(), (worse - ref_worse).exp()
    return -F.logsigmoid(beta * (won - lost)).mean()


@wrong("preferences/dpo", "in bits, not nats", classic=False)
def in_bits(better, worse, ref_better, ref_worse, beta):
    margin = beta * ((better - ref_better) - (worse - ref_worse))
    return -F.logsigmoid(margin).mean() / math.log(2)


# preferences/advantages


@right("preferences/advantages", "NumPy, with one degree of freedom less")
def numpy_rows(rewards):
    rows = rewards.numpy()
    spread = rows.std(axis=1, ddof=1, keepdims=True)
    out = (rows - rows.mean(axis=1, keepdims=True)) / (spread + 1e-4)
    return torch.from_numpy(out)


@right("preferences/advantages", "row by row, in place in a copy")
def rows_in_place(rewards):
    out = rewards.clone()
    for row in out:
        row -= row.mean()
        row /= (row @ row / (len(row) - 1)).sqrt() + 1e-4
    return out


@right("preferences/advantages", "a matrix that takes off the mean")
def centering_matrix(rewards):
    n = rewards.size(1)
    off = torch.eye(n, dtype=rewards.dtype) - 1 / n
    centered = torch.einsum("pg,gh->ph", rewards, off)
    length = centered.norm(dim=1, keepdim=True)
    return centered / (length / (n - 1) ** 0.5 + 1e-4)


@right("preferences/advantages", "transposed, so that rows fit by themselves")
def transposed_rows(rewards):
    spread, mean = torch.std_mean(rewards, dim=1)
    return ((rewards.T - mean) / (spread + 1e-4)).T


@wrong(
    "preferences/advantages",
    "mean and deviation over all rewards, not row by row",
    classic=True,
)
def over_all_rewards(rewards):
    return (rewards - rewards.mean()) / (rewards.std() + 1e-4)


@wrong(
    "preferences/advantages",
    "each row's mean, but the deviation of all rewards",
    classic=True,
)
def deviation_of_all(rewards):
    return (rewards - rewards.mean(1, keepdim=True)) / (rewards.std() + 1e-4)


@wrong("preferences/advantages", "columns instead of rows", classic=True)
def columns(rewards):
    return (rewards - rewards.mean(0)) / (rewards.std(0) + 1e-4)


@wrong(
    "preferences/advantages",
    "the deviation with n, not n - 1",
    classic=True,
)
def divided_by_n(rewards):
    spread, mean = torch.std_mean(rewards, 1, correction=0, keepdim=True)
    return (rewards - mean) / (spread + 1e-4)


@wrong("preferences/advantages", "the variance, without a root", classic=True)
def variance(rewards):
    var, mean = torch.var_mean(rewards, 1, keepdim=True)
    return (rewards - mean) / (var + 1e-4)


@wrong(
    "preferences/advantages",
    "no 1e-4: 0 / 0 where all earn the same",
    classic=True,
)
def nothing_added(rewards):
    spread, mean = torch.std_mean(rewards, 1, keepdim=True)
    return (rewards - mean) / spread


@wrong(
    "preferences/advantages",
    "1e-4 is added under the root, as in layer norm",
    classic=True,
)
def under_the_root(rewards):
    var, mean = torch.var_mean(rewards, 1, keepdim=True)
    return (rewards - mean) / (var + 1e-4).sqrt()


@wrong("preferences/advantages", "not divided by the deviation", classic=True)
def mean_alone(rewards):
    return rewards - rewards.mean(dim=1, keepdim=True)


@wrong(
    "preferences/advantages",
    "no keepdim: means and deviations go to columns, if they fit at all",
    classic=True,
)
def no_keepdim(rewards):
    return (rewards - rewards.mean(1)) / (rewards.std(1) + 1e-4)


@wrong(
    "preferences/advantages",
    "brackets forgotten: 1e-4 is added to the quotient",
    classic=True,
)
def brackets_forgotten(rewards):
    spread, mean = torch.std_mean(rewards, 1, keepdim=True)
    return (rewards - mean) / spread + 1e-4


@wrong(
    "preferences/advantages",
    "each compared with the mean of the others, without itself",
    classic=False,
)
def others_alone(rewards):
    n = rewards.size(1)
    others = (rewards.sum(1, keepdim=True) - rewards) / (n - 1)
    return (rewards - others) / (rewards.std(1, keepdim=True) + 1e-4)


# preferences/learned


@right("preferences/learned", "answers cut out, one after the other")
def answers_cut_out(log_probs, is_answer, rewards):
    n = len(rewards)
    total = log_probs.new_zeros(())
    for row, chosen, reward in zip(log_probs, is_answer, rewards):
        total = total + (reward - rewards.mean()) * row[chosen].sum()
    return -total / n


@right("preferences/learned", "the sign is turned in the gains")
def sign_in_the_gains(log_probs, is_answer, rewards):
    losses = rewards.mean() - rewards
    of_answer = log_probs.masked_fill(~is_answer, 0).sum(1)
    return torch.dot(losses, of_answer) / len(losses)


@right("preferences/learned", "one einsum over answers and tokens")
def one_einsum(log_probs, is_answer, rewards):
    gains = (rewards - rewards.mean()) / -len(rewards)
    chosen = is_answer.to(log_probs.dtype)
    return torch.einsum("b,bt,bt->", gains, log_probs, chosen)


@right("preferences/learned", "a covariance of rewards and log-probabilities")
def covariance(log_probs, is_answer, rewards):
    zero = torch.zeros_like(log_probs)
    said = torch.where(is_answer, log_probs, zero).sum(dim=1)
    return rewards.mean() * said.mean() - (rewards * said).mean()


@wrong(
    "preferences/learned",
    "the sign is right now, but the prompt still counts",
    classic=True,
)
def prompt_still_counts(log_probs, is_answer, rewards):
    gains = rewards - rewards.mean()
    return -(gains * log_probs.sum(1)).mean()


@wrong(
    "preferences/learned",
    "only the answer counts now, but the sign is still wrong",
    classic=True,
)
def sign_still_wrong(log_probs, is_answer, rewards):
    gains = rewards - rewards.mean()
    return (gains * (log_probs * is_answer).sum(1)).mean()


@wrong(
    "preferences/learned",
    "the mean over an answer's tokens, not their sum",
    classic=True,
)
def mean_over_tokens(log_probs, is_answer, rewards):
    gains = rewards - rewards.mean()
    said = (log_probs * is_answer).sum(1) / is_answer.sum(1)
    return -(gains * said).mean()


@wrong(
    "preferences/learned",
    "the mean of the rewards is not subtracted any more",
    classic=True,
)
def no_baseline(log_probs, is_answer, rewards):
    return -(rewards * (log_probs * is_answer).sum(1)).mean()


@wrong("preferences/learned", "a sum over answers, no mean", classic=True)
def sum_over_answers(log_probs, is_answer, rewards):
    gains = rewards - rewards.mean()
    return -(gains * (log_probs * is_answer).sum(1)).sum()


@wrong(
    "preferences/learned",
    "the index makes one row of all answers: one sum for all of them",
    classic=True,
)
def one_sum_for_all(log_probs, is_answer, rewards):
    gains = rewards - rewards.mean()
    return -(gains * log_probs[is_answer].sum()).mean()


@wrong(
    "preferences/learned",
    "divided by the deviation as well, as GRPO does",
    classic=True,
)
def divided_as_in_grpo(log_probs, is_answer, rewards):
    gains = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
    return -(gains * (log_probs * is_answer).sum(1)).mean()


@wrong(
    "preferences/learned",
    "the sign is turned twice, in the gains and before the mean",
    classic=True,
)
def turned_twice(log_probs, is_answer, rewards):
    gains = rewards.mean() - rewards
    return -(gains * (log_probs * is_answer).sum(1)).mean()


@wrong(
    "preferences/learned",
    "the mask is turned round: only the prompt counts",
    classic=False,
)
def mask_turned_round(log_probs, is_answer, rewards):
    gains = rewards - rewards.mean()
    return -(gains * (log_probs * ~is_answer).sum(1)).mean()


@wrong(
    "preferences/learned",
    "probabilities instead of their logarithms",
    classic=False,
)
def probabilities_of_answers(log_probs, is_answer, rewards):
    gains = rewards - rewards.mean()
    chances = (log_probs * is_answer).sum(1).exp()
    return -(gains * chances).mean()
