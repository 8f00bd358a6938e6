"""Exercises of chapter 22: preferences and rewards."""

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

float64 = torch.float64
OURS = [
    "coursekit.preferences.best_policy",
    "coursekit.preferences.dpo_loss",
    "coursekit.preferences.pairwise_loss",
    "coursekit.preferences.group_advantages",
    "coursekit.preferences.policy_gradient_loss",
    "coursekit.preferences.grpo_loss",
]


def draw(g: torch.Generator, *shape: int) -> Tensor:
    """A random tensor in double precision."""
    return torch.randn(shape, generator=g, dtype=float64)


# -- implement: the best policy ----------------------------------------------
def best(
    reference: Tensor, rewards: Tensor, beta: float, *, on: Switches = NONE
) -> Tensor:
    """The probabilities of the best policy, from those of the reference.

    `reference` is `(N,)`, the probabilities of all N answers, and `rewards`
    is `(N,)`. The result, `(N,)` probabilities, maximizes the expected
    reward less beta times the KL divergence from the reference.
    """
    scaled = rewards / beta
    if "times" in on:
        scaled = rewards * beta
    if "no_beta" in on:
        scaled = rewards
    if "penalty" in on:
        scaled = -scaled
    weights = reference * scaled.exp()
    if "no_reference" in on:
        weights = scaled.exp()
    if "added" in on:
        weights = (reference + scaled).exp()
    if "not_normalized" in on:
        return weights
    return weights / weights.sum()


_BEST_BUGS = {
    "times": Bug(
        "rewards times β",
        "A large β keeps the policy close to the reference, so rewards are "
        "divided by it.",
        read="22_preferences#pref-goal",
        at="beta",
    ),
    "no_beta": Bug(
        "rewards that are not divided by β",
        "Without β nothing says how much reward a nat of divergence is worth.",
        read="22_preferences#pref-goal",
        at="beta",
    ),
    "penalty": Bug(
        "a high reward that makes an answer less probable",
        "The exponent is + r / β.",
        read="22_preferences#pref-goal",
        at="sign",
    ),
    "no_reference": Bug(
        "a softmax of the rewards alone",
        "What the reference finds improbable stays so unless its reward is "
        "high: multiply by its probabilities.",
        read="22_preferences#pref-goal",
        at="reference",
    ),
    "added": Bug(
        "probabilities added to r / β in the exponent",
        "In the exponent stand logarithms: multiply exp(r / β) by the "
        "probability, or add its logarithm.",
        read="22_preferences#pref-goal",
        at="reference",
    ),
    "not_normalized": Bug(
        "weights that are not divided by their sum",
        "They are no probabilities yet: their sum is Z.",
        read="22_preferences#pref-goal",
        at="sum",
    ),
}


def _best_cases(seed: int) -> list[Case]:
    g = generator(seed)
    reference = draw(g, 5).softmax(-1)
    return [Case((reference, draw(g, 5), 0.4), name="five answers, β = 0.4")]


# -- implement: DPO ----------------------------------------------------------
def dpo(
    better: Tensor,
    worse: Tensor,
    ref_better: Tensor,
    ref_worse: Tensor,
    beta: float,
    *,
    on: Switches = NONE,
) -> Tensor:
    """The loss of direct preference optimization, in nats.

    Each tensor is `(B,)` and holds log-probabilities of whole answers: the
    policy's for the better and the worse answer of each pair, then the
    reference's for the same. The result is a scalar, the mean over pairs.
    """
    gain_better, gain_worse = better - ref_better, worse - ref_worse
    if "no_reference" in on:
        gain_better, gain_worse = better, worse
    if "probabilities" in on:
        gain_better = better.exp() - ref_better.exp()
        gain_worse = worse.exp() - ref_worse.exp()
    margin = gain_better - gain_worse
    if "swapped" in on:
        margin = -margin
    if "better_alone" in on:
        margin = gain_better
    if "divided" in on:
        margin = margin / beta
    elif "no_beta" not in on:
        margin = beta * margin
    if "no_log" in on:
        nats = -margin.sigmoid()
    elif "positive" in on:
        nats = F.logsigmoid(margin)
    else:
        nats = -F.logsigmoid(margin)
    return nats.sum() if "sum" in on else nats.mean()


_DPO_BUGS = {
    "no_reference": Bug(
        "the policy's log-probabilities alone",
        "The reward of an answer is β times how much more probable it is "
        "than under the reference.",
        read="22_preferences#pref-dpo",
        at="reference",
    ),
    "probabilities": Bug(
        "differences of probabilities",
        "The reward is β ln(π / π_ref): a difference of logarithms.",
        read="22_preferences#pref-dpo",
        at="reference",
    ),
    "swapped": Bug(
        "the worse answer's reward less the better one's",
        "This loss falls when the worse answers become more probable.",
        read="22_preferences#pref-dpo",
        at="margin",
    ),
    "better_alone": Bug(
        "the reward of the better answer alone",
        "A comparison is about a difference: subtract the other's reward. "
        "Without it, ln Z does not cancel.",
        read="22_preferences#pref-dpo",
        at="margin",
    ),
    "divided": Bug(
        "rewards divided by β",
        "r = β ln(π / π_ref): multiply.",
        read="22_preferences#pref-dpo",
        at="beta",
    ),
    "no_beta": Bug(
        "rewards without β",
        "r = β ln(π / π_ref). β says how far the policy may move for a "
        "comparison.",
        read="22_preferences#pref-dpo",
        at="beta",
    ),
    "no_log": Bug(
        "minus the probability, not minus its logarithm",
        "The loss is the surprise at each comparison, −ln σ.",
        read="22_preferences#pref-compare",
        at="nats",
    ),
    "positive": Bug(
        "a loss without its minus sign",
        "ln σ rises as the comparisons become more probable. A loss must "
        "fall.",
        read="22_preferences#pref-compare",
        at="nats",
    ),
    "sum": Bug(
        "the sum over pairs",
        "The mean, so that the step does not depend on the size of the batch.",
        read="22_preferences#pref-compare",
        at="mean",
    ),
}


def _dpo_cases(seed: int) -> list[Case]:
    g = generator(seed)
    own = [draw(g, 5) - 2 for _ in range(4)]
    return [Case((*own, 0.3), name="five pairs, β = 0.3")]


# -- implement: advantages ---------------------------------------------------
def advantages(rewards: Tensor, *, on: Switches = NONE) -> Tensor:
    """How much better each answer is than others to the same prompt.

    `rewards` is `(P, G)`, a row for each prompt. From each reward its row's
    mean is subtracted, and the rest divided by the row's standard deviation
    (`Tensor.std`, which divides by G − 1) plus 1e-4.
    """
    axis = 0 if "columns" in on else 1
    spread = rewards.std(dim=axis, keepdim=True) + 1e-4
    if "no_std" in on:
        spread = torch.ones_like(spread)
    if "variance" in on:
        spread = rewards.var(dim=axis, keepdim=True) + 1e-4
    if "no_eps" in on:
        spread = rewards.std(dim=axis, keepdim=True)
    base = rewards.mean(dim=axis, keepdim=True)
    if "all_prompts" in on:
        base = rewards.mean()
    if "best_of_row" in on:
        base = rewards.max(dim=axis, keepdim=True).values
    if "no_baseline" in on:
        base = torch.zeros_like(base)
    return (rewards - base) / spread


_ADVANTAGES_BUGS = {
    "columns": Bug(
        "answers compared with those to other prompts",
        "A group is a row. Take mean and standard deviation along dim=1.",
        read="22_preferences#pref-group",
        at="axis",
    ),
    "no_std": Bug(
        "differences that are not divided by the standard deviation",
        "Dividing gives every group the same weight, whatever the size of "
        "its rewards.",
        read="22_preferences#pref-group",
        at="spread",
    ),
    "variance": Bug(
        "differences divided by the variance",
        "Its unit is the reward's, squared. Divide by its root.",
        read="22_preferences#pref-group",
        at="spread",
    ),
    "no_eps": Bug(
        "a division by 0 where all rewards of a group are equal",
        "Add 1e-4 to the standard deviation, so that such a group gives 0.",
        read="22_preferences#pref-group",
        at="spread",
    ),
    "all_prompts": Bug(
        "the mean over all prompts as a baseline",
        "Then every answer to an easy prompt is good, and every one to a "
        "hard prompt is bad. Use the mean of the row.",
        read="22_preferences#pref-group",
        at="base",
    ),
    "best_of_row": Bug(
        "the best answer of a row as its baseline",
        "Then no answer has an advantage above 0. Subtract the mean.",
        read="22_preferences#pref-group",
        at="base",
    ),
    "no_baseline": Bug(
        "rewards from which nothing is subtracted",
        "Then every answer that earns anything becomes more probable, the "
        "worst of the group too.",
        read="22_preferences#pref-group",
        at="base",
    ),
}


def _advantages_cases(seed: int) -> list[Case]:
    g = generator(seed)
    rewards = draw(g, 3, 4)
    rewards[1] = rewards[1, 0]
    return [Case((rewards,), name="three prompts, one with equal rewards")]


# -- debug: a policy gradient ------------------------------------------------
def learned(
    log_probs: Tensor,
    is_answer: Tensor,
    rewards: Tensor,
    *,
    on: Switches = NONE,
) -> Tensor:
    """A loss that makes answers with a high reward more probable.

    Row i of `log_probs`, `(G, T)`, holds the log-probabilities of the tokens
    of a prompt and of its answer i; `is_answer`, `(G, T)`, is True for those
    of the answer. `rewards` is `(G,)`. An answer's advantage is its reward,
    less the mean of all G. The loss is minus the mean over answers of the
    advantage times the log-probability of the answer.
    """
    counts = is_answer.to(log_probs.dtype)
    if "prompt_too" in on:
        counts = torch.ones_like(counts)
    of_answer = (log_probs * counts).sum(1)
    if "per_token" in on:
        of_answer = of_answer / counts.sum(1)
    if "probability" in on:
        of_answer = of_answer.exp()
    gains = rewards - rewards.mean()
    if "no_baseline" in on:
        gains = rewards
    if "sum_as_baseline" in on:
        gains = rewards - rewards.sum()
    loss = -(gains * of_answer).mean()
    return -loss if "wrong_way" in on else loss


_LEARNED_BUGS = {
    "prompt_too": Bug(
        "a prompt whose tokens count",
        "The policy did not choose them. Only the answer's tokens count.",
        read="22_preferences#pref-gradient",
        at="counts",
    ),
    "per_token": Bug(
        "the mean over an answer's tokens",
        "The log-probability of an answer is the sum over its tokens. (GRPO "
        "divides by their number; this loss does not.)",
        read="22_preferences#pref-gradient",
        at="sum",
    ),
    "probability": Bug(
        "probabilities in place of log-probabilities",
        "The gradient of the expected reward is an expectation of r ∇ ln π. "
        "The answers were drawn from π, so its factor is there already.",
        read="22_preferences#pref-gradient",
        at="log",
    ),
    "no_baseline": Bug(
        "rewards from which the mean is not subtracted",
        "The gradient is right on average without it, and varies more. Here "
        "the mean is asked for.",
        read="22_preferences#pref-gradient",
        at="base",
    ),
    "sum_as_baseline": Bug(
        "rewards less the sum of all, not the mean",
        "Then the baseline grows with the number of answers.",
        read="22_preferences#pref-gradient",
        at="base",
    ),
    "wrong_way": Bug(
        "a loss that falls as bad answers become more probable",
        "The optimizer goes down: the loss is minus the expected reward.",
        read="22_preferences#pref-gradient",
        at="sign",
    ),
}


def _learned_cases(seed: int) -> list[Case]:
    g = generator(seed)
    log_probs = -draw(g, 4, 7).abs() / 3
    is_answer = torch.zeros(4, 7, dtype=torch.bool)
    for row, n in enumerate((3, 5, 2, 4)):
        is_answer[row, 2 : 2 + n] = True
    rewards = draw(g, 4).abs()
    return [Case((log_probs, is_answer, rewards), name="four answers")]


EXERCISES = {
    "best": Exercise(best, _best_cases, bugs=_BEST_BUGS, forbid=OURS),
    "dpo": Exercise(dpo, _dpo_cases, bugs=_DPO_BUGS, forbid=OURS),
    "advantages": Exercise(
        advantages, _advantages_cases, bugs=_ADVANTAGES_BUGS, forbid=OURS
    ),
    "learned": Exercise(
        learned, _learned_cases, bugs=_LEARNED_BUGS, forbid=OURS
    ),
}
