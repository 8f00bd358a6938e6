"""GRPO with and without the standard deviation.

The model of stories learns from exact rewards, as in results/preferences.py:
once with advantages that are divided by the standard deviation of their
group, once with rewards less the group's mean.  The same draws say how much
of all advantage comes from groups in which nearly all answers earned the
same.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import coursekit
from coursekit import preferences as pf
from coursekit.decoder import GPT
from results import preferences
from results.record import options, record, summary

ENOUGH = 0.9  # of the held-out questions
NEARLY = 1 / 8  # right or wrong, of a group that nearly agrees
Advantages = Callable[[Tensor], Tensor]


def less_mean(rewards: Tensor) -> Tensor:
    """Rewards less the mean of their group, (P, G)."""
    return rewards - rewards.mean(dim=1, keepdim=True)


WAYS: dict[str, Advantages] = {
    "divided": pf.group_advantages,
    "mean only": less_mean,
}


def share(groups: list[Tensor], way: Advantages) -> float:
    """The part of all absolute advantage in groups that nearly agree."""
    rewards = torch.cat(groups)
    rate = rewards.mean(1)
    weight = way(rewards).abs().sum(1)
    nearly = (rate - 0.5).abs() >= 0.5 - NEARLY
    return round((weight[nearly].sum() / weight.sum()).item(), 4)


def learn(first: GPT, tokenizer: Any, way: str, seed: int) -> dict[str, Any]:
    """One run: when it has learned, and what it answers then."""
    groups: list[Tensor] = []

    def advantages(rewards: Tensor) -> Tensor:
        groups.append(rewards)
        return WAYS[way](rewards)

    pf.group_advantages = advantages  # type: ignore[assignment]
    found = preferences.rewarded(
        first, tokenizer, preferences.exact, False, seed
    )
    pf.group_advantages = WAYS["divided"]  # type: ignore[assignment]
    curve = found["curve"]
    learned = [at["step"] for at in curve if at["gave, exact"] >= ENOUGH]
    return {
        "seed": seed,
        "learned at step": min(learned, default=None),
        "gave": [at["gave, exact"] for at in curve],
        "has": [at["has, exact"] for at in curve],
        "share": {name: share(groups, WAYS[name]) for name in WAYS},
        "seconds": found["seconds"],
    }


parser = options(__doc__, seeds=[0, 1, 2])


def main() -> None:
    """Learn in both ways, with every seed."""
    args = parser.parse_args()
    torch.set_num_threads(1)
    with record("spread", args.seeds) as metrics:
        first, tokenizer = coursekit.load_tuned("stories-answers")
        metrics["steps"] = preferences.STEPS
        metrics["every"] = preferences.EVERY
        for way in WAYS:
            runs = [learn(first, tokenizer, way, seed) for seed in args.seeds]
            metrics[way] = {
                "runs": runs,
                "gave": summary([run["gave"][-1] for run in runs]),
                "has": summary([run["has"][-1] for run in runs]),
            }
            print(way, metrics[way], flush=True)


if __name__ == "__main__":
    main()
