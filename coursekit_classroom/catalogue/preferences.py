"""Exercises of chapter 22: preferences and rewards."""

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from coursekit_classroom.check.core import (
    Bug,
    Case,
    Exercise,
    generator,
    randn,
)
from coursekit_classroom.check.families import POPULATION

float64 = torch.float64
OURS = [
    "coursekit.preferences.best_policy",
    "coursekit.preferences.dpo_loss",
    "coursekit.preferences.pairwise_loss",
    "coursekit.preferences.group_advantages",
    "coursekit.preferences.policy_gradient_loss",
    "coursekit.preferences.grpo_loss",
]


# -- implement: the best policy ----------------------------------------------
def best(reference: Tensor, rewards: Tensor, beta: float) -> Tensor:
    """The probabilities of the best policy, from those of the reference.

    `reference` is `(N,)`, the probabilities of all N answers, and `rewards`
    is `(N,)`. The result, `(N,)` probabilities, maximizes the expected
    reward less beta times the KL divergence from the reference.
    """
    scaled = rewards / beta
    weights = reference * scaled.exp()
    return weights / weights.sum()


_BEST_BUGS = {
    "times": Bug(
        "rewards / beta",
        "rewards * beta",
        says="rewards times β",
        why="A large β keeps the policy close to the reference, so rewards "
        "are divided by it.",
        read="22_preferences#pref-goal",
    ),
    "no_beta": Bug(
        "rewards / beta",
        "rewards",
        says="rewards that are not divided by β",
        why="β says how much reward a nat of divergence is worth: divide the "
        "rewards by it.",
        read="22_preferences#pref-goal",
    ),
    "penalty": Bug(
        "scaled = rewards",
        "scaled = -rewards",
        says="a high reward that makes an answer less probable",
        why="A reward should make its answer more probable: the exponent is "
        "+ r / β.",
        read="22_preferences#pref-goal",
    ),
    "no_reference": Bug(
        "reference * scaled.exp()",
        "scaled.exp()",
        says="a softmax of the rewards alone",
        why="An answer that the reference finds improbable stays improbable "
        "unless its reward is high: multiply by the reference's "
        "probabilities.",
        read="22_preferences#pref-goal",
    ),
    "added": Bug(
        "reference * scaled.exp()",
        "(reference + scaled).exp()",
        says="probabilities added to r / β in the exponent",
        why="Only a logarithm may be added to r / β. Multiply exp(r / β) by "
        "the probability, or add the probability's logarithm.",
        read="22_preferences#pref-goal",
    ),
    "both_divided": Bug(
        "reference * scaled.exp()",
        "reference ** (1 / beta) * scaled.exp()",
        says="the reference's logarithm divided by β as well",
        why="β divides the reward alone. Where all rewards are equal, the "
        "best policy is the reference itself.",
        read="22_preferences#pref-goal",
    ),
    "not_normalized": Bug(
        "weights / weights.sum()",
        "weights",
        says="weights that are not divided by their sum",
        why="They are not probabilities yet, since they sum to Z. Divide by "
        "that sum.",
        read="22_preferences#pref-goal",
    ),
}


def _best_cases(seed: int) -> list[Case]:
    g = generator(seed)
    reference = randn(g, 5).softmax(-1)
    return [Case((reference, randn(g, 5), 0.4), name="five answers, β = 0.4")]


# -- implement: DPO ----------------------------------------------------------
def dpo(
    better: Tensor,
    worse: Tensor,
    ref_better: Tensor,
    ref_worse: Tensor,
    beta: float,
) -> Tensor:
    """The loss of direct preference optimization, in nats.

    Each tensor is `(B,)` and holds log-probabilities of whole answers: the
    policy's for the better and the worse answer of each pair, then the
    reference's for the same. The result is a scalar, the mean over pairs.
    """
    gain_better, gain_worse = better - ref_better, worse - ref_worse
    margin = gain_better - gain_worse
    nats = -F.logsigmoid(beta * margin)
    return nats.mean()


_DPO_BUGS = {
    "no_reference": Bug(
        "better - ref_better, worse - ref_worse",
        "better, worse",
        says="the policy's log-probabilities alone",
        why="An answer's reward is β ln(π / π_ref). It measures how much more "
        "probable the answer has become since the start.",
        read="22_preferences#pref-dpo",
    ),
    "quotients": Bug(
        "better - ref_better, worse - ref_worse",
        "better / ref_better, worse / ref_worse",
        says="log-probabilities divided by the reference's",
        why="You have the logarithms already, and the logarithm of a quotient "
        "is a difference: ln π − ln π_ref.",
        read="22_preferences#pref-dpo",
    ),
    "reference_added": Bug(
        "better - ref_better, worse - ref_worse",
        "better + ref_better, worse + ref_worse",
        says="the reference's log-probabilities added instead of subtracted",
        why="An answer's reward measures how much more probable it has become "
        "since the start, and that is a difference: ln π − ln π_ref.",
        read="22_preferences#pref-dpo",
    ),
    "swapped": Bug(
        "gain_better - gain_worse",
        "gain_worse - gain_better",
        says="the worse answer's reward less the better one's",
        why="This loss falls when the worse answers become more probable.",
        read="22_preferences#pref-dpo",
    ),
    "better_alone": Bug(
        "gain_better - gain_worse",
        "gain_better",
        says="the reward of the better answer alone",
        why="Only the lead counts in a comparison: subtract the worse "
        "answer's reward. Otherwise β ln Z does not cancel.",
        read="22_preferences#pref-dpo",
    ),
    "no_beta": Bug(
        "beta * margin",
        "margin",
        says="rewards without β",
        why="The reward is β ln(π / π_ref). β says how far the policy may "
        "move for a comparison.",
        read="22_preferences#pref-dpo",
    ),
    "no_log": Bug(
        "-F.logsigmoid",
        "-torch.sigmoid",
        says="minus the probability, not minus its logarithm",
        why="The loss is the surprise at each comparison, −ln σ.",
        read="22_preferences#pref-compare",
    ),
    "positive": Bug(
        "-F.logsigmoid",
        "F.logsigmoid",
        says="a loss without its minus sign",
        why="ln σ rises as the comparisons become more probable. A loss "
        "must fall.",
        read="22_preferences#pref-compare",
    ),
    "sum": Bug(
        "nats.mean()",
        "nats.sum()",
        says="the sum over pairs",
        why="Take the mean. Otherwise twice as many pairs would make a step "
        "twice as long.",
        read="22_preferences#pref-compare",
    ),
    "beta_outside": Bug(
        "-F.logsigmoid(beta * margin)",
        "-beta * F.logsigmoid(margin)",
        says="β in front of the loss, not inside",
        why="β scales the rewards, whose difference goes through the sigmoid.",
        read="22_preferences#pref-dpo",
        alone=True,
    ),
    "mean_inside": Bug(
        "gain_better - gain_worse",
        "(gain_better - gain_worse).mean()",
        says="one loss of the mean margin, not the mean of the pairs' losses",
        why="The loss is not linear: a pair that is far wrong must count more "
        "than one that is right. Compute the losses first, then their mean.",
        read="22_preferences#pref-compare",
        alone=True,
    ),
}


def _dpo_cases(seed: int) -> list[Case]:
    g = generator(seed)
    own = [randn(g, 5) - 2 for _ in range(4)]
    return [Case((*own, 0.3), name="five pairs, β = 0.3")]


# -- implement: advantages ---------------------------------------------------
def advantages(rewards: Tensor) -> Tensor:
    """Advantage of each answer over others to the same prompt.

    `rewards` is `(P, G)`, a row for each prompt. From each reward its row's
    mean is subtracted, and the rest divided by the row's standard deviation
    (`Tensor.std`, which divides by G − 1) plus 1e-4.
    """
    mean = rewards.mean(dim=1, keepdim=True)
    std = rewards.std(dim=1, keepdim=True)
    return (rewards - mean) / (std + 1e-4)


_ADVANTAGES_BUGS = {
    "columns": Bug(
        "mean(dim=1",
        "mean(dim=0",
        "std(dim=1",
        "std(dim=0",
        says="answers compared with those to other prompts",
        why="A group is a row. Take mean and standard deviation along dim=1.",
        read="22_preferences#pref-group",
    ),
    "no_std": Bug(
        " / (std + 1e-4)",
        "",
        says="differences that are not divided by the standard deviation",
        why="Dividing puts all groups on one scale, whatever the size of "
        "their rewards.",
        read="22_preferences#pref-group",
        at="spread",
    ),
    "variance": Bug(
        "rewards.std",
        "rewards.var",
        says="differences divided by the variance",
        why="The variance has the unit of the reward, squared. Divide by its "
        "root, the standard deviation.",
        read="22_preferences#pref-group",
        at="spread",
    ),
    "std_of_all": Bug(
        "rewards.std(dim=1, keepdim=True)",
        "rewards.std()",
        says="the standard deviation over all prompts",
        why="Dividing should put all groups on one scale: take the standard "
        "deviation of each row.",
        read="22_preferences#pref-group",
        at="spread",
    ),
    "brackets": Bug(
        "(std + 1e-4)",
        "std + 1e-4",
        says="1e-4 added to the quotient, not to the standard deviation",
        why="Division goes first: put std + 1e-4 in parentheses. Otherwise "
        "a group of equal rewards gives 0/0.",
        read="22_preferences#pref-group",
        at="spread",
    ),
    "no_eps": Bug(
        " + 1e-4",
        "",
        says="a division by 0 where all rewards of a group are equal",
        why="Add 1e-4 to the standard deviation, so that such a group gives "
        "0.",
        read="22_preferences#pref-group",
        at="spread",
    ),
    "all_prompts": Bug(
        "rewards - mean",
        "rewards - rewards.mean()",
        says="the mean over all prompts as a baseline",
        why="Then every answer to an easy prompt is good, and every one to "
        "a hard prompt is bad. Use the mean of the row.",
        read="22_preferences#pref-group",
    ),
    "no_baseline": Bug(
        "(rewards - mean)",
        "rewards",
        says="rewards from which nothing is subtracted",
        why="Then every answer that earns anything becomes more probable, "
        "even the worst of its group.",
        read="22_preferences#pref-group",
        at="base",
    ),
    "under_the_root": Bug(
        "(std + 1e-4)",
        "(std.square() + 1e-4).sqrt()",
        says="1e-4 added under the root, to the variance",
        why="In a layer norm it is under the root. Here it is added to the "
        "standard deviation.",
        read="22_preferences#pref-group",
        alone=True,
    ),
    "population": POPULATION.by(
        "rewards.std(dim=1, keepdim=True)",
        "rewards.std(dim=1, keepdim=True, correction=0)",
        read="22_preferences#pref-group",
        alone=True,
    ),
}


def _advantages_cases(seed: int) -> list[Case]:
    g = generator(seed)
    rewards = randn(g, 3, 4)
    rewards[1] = rewards[1, 0]
    return [Case((rewards,), name="three prompts, one with equal rewards")]


# -- debug: a policy gradient ------------------------------------------------
def learned(log_probs: Tensor, is_answer: Tensor, rewards: Tensor) -> Tensor:
    """A loss that makes answers with a high reward more probable.

    Each row belongs to another prompt and one answer to it. A row of
    `log_probs`, `(G, T)`, holds the log-probabilities of the prompt's tokens,
    then of the answer's, then of padding; `is_answer`, `(G, T)`, is True at
    the answer's tokens only. `rewards` is `(G,)`. An answer's advantage is
    its reward, less the mean of all G. The loss is minus the mean over
    answers of the advantage times the log-probability of the answer.
    """
    counts = is_answer.to(log_probs.dtype)
    of_answer = (log_probs * counts).sum(1)
    gains = rewards - rewards.mean()
    return -(gains * of_answer).mean()


_LEARNED_BUGS = {
    "prompt_too": Bug(
        "is_answer.to(log_probs.dtype)",
        "torch.ones_like(log_probs)",
        says="a prompt whose tokens count",
        why="The policy did not choose the prompt. Sum over the answer's "
        "tokens only.",
        read="22_preferences#pref-gradient",
    ),
    "per_token": Bug(
        ".sum(1)",
        ".sum(1) / counts.sum(1)",
        says="the mean over an answer's tokens",
        why="The log-probability of an answer is the sum over its tokens. "
        "(GRPO divides by their number; this loss does not.)",
        read="22_preferences#pref-gradient",
    ),
    "probability": Bug(
        "gains * of_answer",
        "gains * of_answer.exp()",
        says="probabilities in place of log-probabilities",
        why="The gradient of the expected reward is the mean of r ∇ ln π over "
        "answers drawn from π. Drawing them has put in the factor π already.",
        read="22_preferences#pref-gradient",
    ),
    "no_baseline": Bug(
        "rewards - rewards.mean()",
        "rewards",
        says="rewards from which the mean is not subtracted",
        why="The gradient is right on average without it, and varies more. "
        "Here the mean is asked for.",
        read="22_preferences#pref-gradient",
    ),
    "divided": Bug(
        "rewards - rewards.mean()",
        "(rewards - rewards.mean()) / (rewards.std() + 1e-4)",
        says="advantages divided by the standard deviation of the rewards",
        why="GRPO does that. Here only the mean is subtracted.",
        read="22_preferences#pref-group",
    ),
    "wrong_way": Bug(
        "return -(",
        "return (",
        says="a loss that falls as bad answers become more probable",
        why="The optimizer makes the loss smaller, so what should grow, the "
        "expected reward, needs a minus sign.",
        read="22_preferences#pref-gradient",
    ),
    "summed": Bug(
        "return -(gains * of_answer).mean()",
        "return -(gains * of_answer).sum()",
        says="the sum over answers instead of their mean",
        why="Twice as many answers would make steps twice as long: take the "
        "mean.",
        read="22_preferences#pref-gradient",
        alone=True,
    ),
}


def _learned_cases(seed: int) -> list[Case]:
    g = generator(seed)
    log_probs = -randn(g, 4, 7).abs() / 3
    is_answer = torch.zeros(4, 7, dtype=torch.bool)
    for row, n in enumerate((3, 5, 2, 4)):
        is_answer[row, 2 : 2 + n] = True
    rewards = randn(g, 4).abs()
    return [Case((log_probs, is_answer, rewards), name="four answers")]


EXERCISES = {
    "best": Exercise(
        best,
        _best_cases,
        bugs=_BEST_BUGS,
        forbid=OURS,
    ),
    "dpo": Exercise(
        dpo,
        _dpo_cases,
        bugs=_DPO_BUGS,
        forbid=OURS,
    ),
    "advantages": Exercise(
        advantages,
        _advantages_cases,
        bugs=_ADVANTAGES_BUGS,
        forbid=OURS,
    ),
    "learned": Exercise(
        learned,
        _learned_cases,
        bugs=_LEARNED_BUGS,
        forbid=OURS,
    ),
}
