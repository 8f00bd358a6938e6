"""Preferences and rewards: a model learns what is better.

Comparisons of answers train a reward model, or by DPO the language model
itself.  Where a program can check an answer, its verdict is the reward, and
what earned more than other answers to the same prompt becomes more probable.
The loop is that of pretraining: :func:`coursekit.training.train` takes the
losses that are made here.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from coursekit.data import IGNORE, Batch, Pair, pad
from coursekit.decoder import GPT
from coursekit.devices import device_of, evaluating
from coursekit.generation import generate
from coursekit.loss import Loss, cross_entropy
from coursekit.sampling import sampler
from coursekit.steppers import GPTStepper
from coursekit.tuning import answer_batch

Comparison = tuple[Sequence[int], Sequence[int], Sequence[int]]
"""A prompt, the better answer and the worse one, as ids."""


# -- log-probabilities of answers --------------------------------------------
def answer_log_probs(
    model: Any, ids: Int[Tensor, "B T"], targets: Int[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """The log-probability of each token that counts; 0 elsewhere.

    Its sum over a row is ``log π(answer | prompt)``.

    Args:
        model: a GPT.
        ids: (B, T) as :func:`coursekit.tuning.answer_batch` makes them.
        targets: (B, T), −100 where not counted.

    Returns:
        (B, T) in nats, at most 0.

    Chapter: 22, preferences.
    """
    return -cross_entropy(model(ids), targets, reduction="none")


def sample_answers(
    model: GPT,
    prompts: Sequence[Sequence[int]],
    n_answers: int,
    end_id: int,
    max_new_tokens: int,
    generator: torch.Generator | None = None,
) -> list[Pair]:
    """Draw several answers to each prompt, at temperature 1.

    Args:
        model: the policy.
        prompts: P lists of ids.
        n_answers: G, for each prompt.
        end_id: the token that ends an answer; it belongs to the answer.
        max_new_tokens: where an answer without an end is cut off.
        generator: source of the random numbers.

    Returns:
        P · G pairs of a prompt and an answer; those of a prompt are next to
        each other.

    Chapter: 22, preferences.
    """
    rows = [prompt for prompt in prompts for _ in range(n_answers)]
    choose = sampler(generator=generator)
    stepper = GPTStepper(model)
    new = generate(stepper, rows, max_new_tokens, choose, stop_ids=[end_id])
    ended = [
        answer if len(answer) == max_new_tokens else [*answer, end_id]
        for answer in new
    ]
    return list(zip(rows, ended, strict=True))


# -- comparisons: a reward model ---------------------------------------------
def pairwise_loss(
    better: Float[Tensor, "*B"], worse: Float[Tensor, "*B"]
) -> Float[Tensor, ""]:
    """Bradley-Terry loss of a reward model: the mean −ln σ(chosen − rejected).

    ``mean(−ln σ(r₊ − r₋))``: in the model of Bradley and Terry, the first
    answer is preferred with probability ``σ(r₊ − r₋)``.

    Args:
        better: (...) rewards of the answers that were preferred.
        worse: (...) of the others.

    Returns:
        Nats, a scalar; ln 2 if all differences are 0.

    Chapter: 22, preferences.
    Source: bradley1952rank; ouyang2022training, equation 1.
    Test: test_preferences.py::test_equal_to_trl
    """
    return -F.logsigmoid(better - worse).mean()


class RewardModel(nn.Module):
    """A GPT that gives a text one number instead of logits.

    The number is read off the last token's residual stream, which has seen
    all others.

    Args:
        gpt: its embedding, blocks and final norm are taken over, and trained
            further.

    Chapter: 22, preferences.
    Source: ouyang2022training, section 3.5.
    Test: test_preferences.py::test_a_reward_reads_the_last_token
    """

    def __init__(self, gpt: GPT) -> None:
        super().__init__()
        self.gpt = gpt
        like = gpt.embedding.weight
        self.score = nn.Linear(
            gpt.config.d_model, 1, device=like.device, dtype=like.dtype
        )
        nn.init.zeros_(self.score.weight)
        nn.init.zeros_(self.score.bias)

    def forward(
        self, ids: Int[Tensor, "B T"], last: Int[Tensor, "B"]
    ) -> Float[Tensor, "B"]:
        """The reward of each text.

        Args:
            ids: (B, T); what follows the last token is padding.
            last: (B,) the position of each text's last token.

        Returns:
            (B,).
        """
        x = self.gpt.hidden(ids)[torch.arange(len(ids)), last]
        return self.score(self.gpt.final_norm(x))[:, 0]


def reward_batch(comparisons: Sequence[Comparison], pad_id: int) -> Batch:
    """Make comparisons into a batch for a reward model.

    Args:
        comparisons: B triples of ids.
        pad_id: fills up short rows on the right.

    Returns:
        inputs ``ids`` (B, 2, T), the better answer first, and ``last``
        (B, 2); targets (B,), the index of the better one.

    Chapter: 22, preferences.
    """
    texts = [[*prompt, *answer] for prompt, answer in _both(comparisons)]
    last = torch.tensor([len(text) - 1 for text in texts])
    inputs = {"ids": _in_twos(pad(texts, pad_id)), "last": _in_twos(last)}
    return Batch(inputs, torch.zeros(len(comparisons), dtype=torch.long))


def _both(comparisons: Sequence[Comparison]) -> list[Pair]:
    """Pairs of prompt and answer: of each comparison two, the better first."""
    return [
        (prompt, answer)
        for prompt, *answers in comparisons
        for answer in answers
    ]


def _in_twos(rows: Shaped[Tensor, "BB *T"]) -> Shaped[Tensor, "B 2 *T"]:
    return rows.unflatten(0, (-1, 2))


def reward_model_loss(
    model: Any, inputs: dict[str, Tensor], targets: Int[Tensor, "B"]
) -> Float[Tensor, ""]:
    """:func:`pairwise_loss` for ``train``, summed over the comparisons.

    Chapter: 22, preferences.
    """
    texts = {name: x.flatten(0, 1) for name, x in inputs.items()}
    better, worse = _in_twos(model(**texts)).unbind(1)
    return pairwise_loss(better, worse) * (targets != IGNORE).sum()


# -- comparisons without a reward model --------------------------------------
def best_policy(
    reference: Float[Tensor, "*B N"],
    rewards: Float[Tensor, "*B N"],
    beta: float,
) -> Float[Tensor, "*B N"]:
    """The policy with the highest reward, less β times its KL divergence.

    ``π*(y) = π_ref(y) exp(r(y) / β) / Z`` maximizes
    ``E_π[r] − β KL(π ‖ π_ref)``.

    Args:
        reference: (..., N) log-probabilities of all N answers.
        rewards: (..., N).
        beta: β > 0, in units of the reward per nat.

    Returns:
        (..., N) log-probabilities.

    Chapter: 22, preferences.
    Source: rafailov2023direct, equation 4.
    Test: test_preferences.py::test_no_policy_is_better
    """
    return (reference + rewards / beta).log_softmax(dim=-1)


def dpo_loss(
    better: Float[Tensor, "*B"],
    worse: Float[Tensor, "*B"],
    reference_better: Float[Tensor, "*B"],
    reference_worse: Float[Tensor, "*B"],
    beta: float,
) -> Float[Tensor, ""]:
    """Direct preference optimization: the policy is its own reward model.

    :func:`pairwise_loss` of the rewards ``β ln(π(y) / π_ref(y))``.

    Args:
        better: (...) log-probabilities ``ln π`` of preferred answers.
        worse: (...) of the others.
        reference_better: (...) the same of the model at the start.
        reference_worse: (...).
        beta: β > 0.

    Returns:
        Nats, a scalar; ln 2 while the policy is the reference, both without
        dropout.

    Chapter: 22, preferences.
    Source: rafailov2023direct, equation 7.
    Test: test_preferences.py::test_equal_to_trl
    """
    return pairwise_loss(
        beta * (better - reference_better), beta * (worse - reference_worse)
    )


def dpo_batch(
    comparisons: Sequence[Comparison], reference: GPT, pad_id: int
) -> Batch:
    """Make comparisons into a batch for DPO.

    Args:
        comparisons: B triples of ids.
        reference: the model at the start.
        pad_id: fills up short rows on the right.

    Returns:
        inputs ``ids`` and ``answers`` (B, 2, T), the better answer first,
        −100 where a token is not of the answer, and ``reference`` (B, 2),
        log-probabilities; targets (B,), the index of the better one.

    Chapter: 22, preferences.
    """
    rows = answer_batch(_both(comparisons), pad_id).to(device_of(reference))
    ids, answers = rows.inputs["ids"], rows.targets
    with evaluating(reference.modules()):
        log_probs = answer_log_probs(reference, ids, answers).sum(1)
    inputs = {"ids": ids, "answers": answers, "reference": log_probs}
    return Batch(
        {name: _in_twos(x) for name, x in inputs.items()},
        ids.new_zeros(len(comparisons)),
    )


def make_dpo_loss(beta: float) -> Loss:
    """:func:`dpo_loss` for ``train``, summed over the comparisons.

    Args:
        beta: β > 0.

    Returns:
        A loss for batches of :func:`dpo_batch`.

    Chapter: 22, preferences.
    """

    def loss(model: Any, inputs: dict[str, Tensor], targets: Tensor) -> Tensor:
        rows = (inputs[name].flatten(0, 1) for name in ("ids", "answers"))
        own = _in_twos(answer_log_probs(model, *rows).sum(1)).unbind(1)
        before = inputs["reference"].unbind(1)
        nats = dpo_loss(own[0], own[1], before[0], before[1], beta=beta)
        return nats * (targets != IGNORE).sum()

    return loss


# -- rewards -----------------------------------------------------------------
def policy_gradient_loss(
    log_probs: Float[Tensor, "B"], advantages: Float[Tensor, "B"]
) -> Float[Tensor, ""]:
    """A loss whose gradient is an estimate of that of −E[r].

    ``−mean(A ln π(y))`` over answers y that were drawn from π.  Its value
    says nothing; its gradient is right on average, also with a number that
    does not depend on y subtracted from the rewards.

    Args:
        log_probs: (B,) of whole answers.
        advantages: (B,) rewards, less such a baseline.

    Returns:
        A scalar.

    Chapter: 22, preferences.
    Source: williams1992simple.
    Test: test_preferences.py::test_the_estimator_is_right_on_average
    """
    return -(advantages * log_probs).mean()


def group_advantages(
    rewards: Float[Tensor, "P G"], eps: float = 1e-4
) -> Float[Tensor, "P G"]:
    """Advantage of each answer over others to the same prompt.

    ``(r − mean) / (std + ε)`` within the group; 0 if all are equal.

    Args:
        rewards: (P, G), a row for each prompt.
        eps: ε, in units of the reward.

    Returns:
        (P, G).

    Raises:
        ValueError: if a group has a single answer.

    Chapter: 22, preferences.
    Source: shao2024deepseekmath, section 4.1.2.
    Test: test_preferences.py::test_equal_to_trl
    """
    if rewards.size(1) < 2:
        raise ValueError(
            "an advantage compares answers to the same prompt: got groups "
            f"of {rewards.size(1)}. Draw two or more."
        )
    spread = rewards.std(dim=1, keepdim=True)
    return (rewards - rewards.mean(dim=1, keepdim=True)) / (spread + eps)


def kl_estimate(
    log_probs: Float[Tensor, "*B"], reference: Float[Tensor, "*B"]
) -> Float[Tensor, "*B"]:
    """Contribution of each drawn token to an estimate of KL(π ‖ π_ref).

    ``ρ − ln ρ − 1`` with ``ρ = π_ref / π``: never negative, and on average
    over tokens drawn from π it is the divergence.

    Args:
        log_probs: (...) ``ln π`` of tokens that were drawn from π.
        reference: (...) ``ln π_ref`` of the same tokens.

    Returns:
        (...) nats.

    Chapter: 22, preferences.
    Source: shao2024deepseekmath, equation 4.
    Test: test_preferences.py::test_the_estimate_of_kl_is_right
    """
    difference = reference - log_probs
    return difference.exp() - difference - 1


def grpo_loss(
    log_probs: Float[Tensor, "B T"],
    old: Float[Tensor, "B T"],
    advantages: Float[Tensor, "B"],
    counts: Bool[Tensor, "B T"],
    clip: float = 0.2,
    reference: Float[Tensor, "B T"] | None = None,
    beta: float = 0.0,
) -> Float[Tensor, ""]:
    """Group relative policy optimization, for answers that an old π drew.

    With ``ρ = π / π_old`` for each token, the mean over the tokens of an
    answer, then over answers, of
    ``−min(ρ A, clamp(ρ, 1 − ε, 1 + ε) A) + β KL``.  While π is still the old
    one, its gradient is that of :func:`policy_gradient_loss`, with each
    answer divided by its length.

    Args:
        log_probs: (B, T) of each token.
        old: (B, T) of the policy that drew them.
        advantages: (B,).
        counts: (B, T), True where a token belongs to the answer.
        clip: ε.
        reference: (B, T) of the model at the start; needed if β is not 0.
        beta: β ≥ 0, weight of :func:`kl_estimate`.

    Returns:
        A scalar.

    Chapter: 22, preferences.
    Source: shao2024deepseekmath, equation 3; schulman2017proximal.
    Test: test_preferences.py::test_equal_to_trl
    """
    ratio = (log_probs - old).exp()
    gain = advantages[:, None]
    surrogate = torch.minimum(
        ratio * gain, ratio.clamp(1 - clip, 1 + clip) * gain
    )
    loss = -surrogate
    if reference is not None:
        loss = loss + beta * kl_estimate(log_probs, reference)
    return ((loss * counts).sum(1) / counts.sum(1)).mean()


def grpo_batches(
    model: GPT,
    prompts: Callable[[int], Sequence[Sequence[int]]],
    reward: Callable[[int, list[Pair]], Sequence[float]],
    n_answers: int,
    end_id: int,
    max_new_tokens: int,
    seed: int = 0,
) -> Callable[[int], list[Batch]]:
    """Batches for ``train`` that the model itself draws, step by step.

    Args:
        model: the policy that is being trained.
        prompts: from the number of a step to P lists of ids.
        reward: from the number of a step and its P · G pairs to what each
            answer earns.
        n_answers: G, at least 2.
        end_id: the token that ends an answer.
        max_new_tokens: where an answer without an end is cut off.
        seed: fixes what is drawn.

    Returns:
        A function that gives, for the number of a step, one batch with inputs
        ``ids`` and ``answers`` (B, T), −100 where a token is not of the
        answer, and ``advantages`` (B,); targets (B,), one for each answer.

    Chapter: 22, preferences.
    """

    def batches(step: int) -> list[Batch]:
        generator = torch.Generator().manual_seed(2**20 * seed + step)
        pairs = sample_answers(
            model, prompts(step), n_answers, end_id, max_new_tokens, generator
        )
        earned = torch.tensor(reward(step, pairs)).float()  # True counts 1
        rewards = earned.view(-1, n_answers)
        gains = group_advantages(rewards).flatten()
        rows = answer_batch(pairs, end_id)
        inputs = {"answers": rows.targets, "advantages": gains}
        return [Batch(rows.inputs | inputs, torch.arange(len(pairs)))]

    return batches


def make_grpo_loss(reference: GPT | None = None, beta: float = 0.0) -> Loss:
    """:func:`grpo_loss` for ``train``, summed over the answers.

    Each batch is used for one update, so the policy that drew it is the one
    that is trained, and nothing is clipped.

    Args:
        reference: the model at the start; needed if β is not 0.
        beta: weight of the divergence from it.

    Returns:
        A loss for batches of :func:`grpo_batches`.

    Chapter: 22, preferences.
    """

    def loss(model: Any, inputs: dict[str, Tensor], targets: Tensor) -> Tensor:
        ids, answers = inputs["ids"], inputs["answers"]
        own = answer_log_probs(model, ids, answers)
        counts, theirs = answers != IGNORE, None
        if reference is not None:
            with evaluating(reference.modules()):
                theirs = answer_log_probs(reference, ids, answers)
        gains = inputs["advantages"]
        value = grpo_loss(
            own, own.detach(), gains, counts, reference=theirs, beta=beta
        )
        return value * (targets != IGNORE).sum()

    return loss
