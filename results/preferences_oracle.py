"""Losses on preferences and rewards as the library `trl` computes them.

    python -m results.preferences_oracle

It needs `trl`, which the book does not: a virtual environment of its own,
with this package's torch, is enough.  The methods of its trainers that
compute a loss are called, with given log-probabilities in place of a model.
"""

import importlib
from collections import defaultdict
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import torch
from torch import Tensor

from results.record import options, record

PAIRS, ROWS, GROUP, TOKENS = 5, 6, 3, 7
BETA, CLIP = 0.3, 0.2


parser = options(__doc__)


def draw(*shape: int) -> Tensor:
    """A random tensor in double precision."""
    return torch.randn(shape, dtype=torch.float64)


def trainer(**settings: Any) -> Any:
    """Stand-in for a trainer: its settings, one process."""
    made = MagicMock(**settings, aux_loss_enabled=False)
    made._metrics = defaultdict(lambda: defaultdict(list))
    made._total_train_tokens = 0
    made.model.training = False
    for name in ("gather", "gather_for_metrics"):
        setattr(made.accelerator, name, lambda x: x)
    made.accelerator.reduce = lambda x, reduction: x
    return made


def lists(**tensors: Tensor) -> dict[str, Any]:
    """Tensors as lists of numbers."""
    return {name: t.detach().tolist() for name, t in tensors.items()}


def reward_loss() -> dict[str, Any]:
    """The pairwise loss of a reward model."""
    theirs = importlib.import_module("trl.trainer.reward_trainer")
    rewards = draw(2 * PAIRS).requires_grad_()
    made = trainer()
    made.args.center_rewards_coefficient = None
    outputs = SimpleNamespace(logits=rewards[:, None])
    loss = theirs.RewardTrainer.compute_loss(made, lambda **_: outputs, {})
    loss.backward()
    return lists(rewards=rewards, loss=loss, gradient=rewards.grad)


def dpo() -> dict[str, Any]:
    """DPO, of log-probabilities of tokens."""
    theirs = importlib.import_module("trl.trainer.dpo_trainer")
    shape = 2 * PAIRS, TOKENS
    mask = torch.rand(shape) < 0.6
    own = (draw(*shape) * mask).requires_grad_()
    ref = draw(*shape) * mask

    def outputs(log_probs: Tensor) -> Any:
        zero = torch.zeros(shape)
        others = {"entropy": zero, "mean_logits": zero, "is_top1": mask}
        return SimpleNamespace(log_probs=log_probs, **others)

    made = trainer(
        beta=BETA,
        ld_alpha=None,
        precompute_ref_logps=False,
        f_divergence_type="reverse_kl",
        loss_types=["sigmoid"],
        loss_weights=[1.0],
        use_weighting=False,
        ref_model=lambda **_: outputs(ref),
    )
    made.args.gradient_checkpointing_kwargs = None
    ids = torch.zeros(shape[0], TOKENS + 1, dtype=torch.long)
    shown = torch.cat([torch.zeros(shape[0], 1), mask], 1)
    inputs = {"input_ids": ids, "completion_mask": shown}
    loss = theirs.DPOTrainer._compute_loss(
        made, lambda **_: outputs(own), inputs, False
    )
    loss.backward()
    found = lists(own=own, reference=ref, loss=loss, gradient=own.grad)
    return found | {"beta": BETA}


def grpo() -> dict[str, Any]:
    """GRPO with clipped ratios and a divergence, and its advantages."""
    theirs = importlib.import_module("trl.trainer.grpo_trainer")
    rewards = draw(ROWS // GROUP, GROUP)
    spread = importlib.import_module("trl.trainer.utils").nanstd(
        rewards, dim=1
    )
    gains = ((rewards - rewards.mean(1, keepdim=True))
             / (spread[:, None] + 1e-4)).flatten()  # fmt: skip
    mask = (torch.rand(ROWS, TOKENS) < 0.6).long()
    mask[:, 0] = 1
    own = draw(ROWS, TOKENS).requires_grad_()
    old = own.detach() + 0.3 * draw(ROWS, TOKENS)
    ref = own.detach() + 0.3 * draw(ROWS, TOKENS)
    made = trainer(
        beta=BETA,
        epsilon_low=CLIP,
        epsilon_high=CLIP,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        importance_sampling_level="token",
        loss_type="grpo",
        use_vllm=False,
        _entropy_bonus_enabled=False,
    )
    made.args.use_bias_correction_kl = False
    made.args.delta = None
    zero = torch.zeros(ROWS, TOKENS)
    made._get_per_token_logps_and_entropies.return_value = own, zero, None
    inputs = {
        "prompt_ids": torch.zeros(ROWS, 1, dtype=torch.long),
        "prompt_mask": torch.ones(ROWS, 1, dtype=torch.long),
        "completion_ids": torch.zeros(ROWS, TOKENS, dtype=torch.long),
        "completion_mask": mask,
        "advantages": gains,
        "old_per_token_logps": old,
        "ref_per_token_logps": ref,
    }
    loss = theirs.GRPOTrainer._compute_loss(made, made.model, inputs)
    loss.backward()
    found = lists(
        rewards=rewards,
        advantages=gains,
        own=own,
        old=old,
        reference=ref,
        mask=mask,
        loss=loss,
        gradient=own.grad,
    )
    return found | {"beta": BETA, "clip": CLIP}


def main() -> None:
    """Compute all of it once."""
    parser.parse_args()
    torch.set_num_threads(1)
    with record("preferences_oracle", [22]) as metrics:
        trl = importlib.import_module("trl")
        transformers = importlib.import_module("transformers")
        torch.manual_seed(22)
        metrics |= {
            "trl": trl.__version__,
            "transformers": transformers.__version__,
            "reward": reward_loss(),
            "dpo": dpo(),
            "grpo": grpo(),
        }


if __name__ == "__main__":
    main()
