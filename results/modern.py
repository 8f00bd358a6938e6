"""From GPT-2 to Llama, one change at a time: what is each worth here?

The same text, batches, steps and seeds; each model has one part changed from
the one before it.  Then two parts that many newer models have: a window that
slides over the text, and four experts in place of one network.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from coursekit.block import initialize
from coursekit.cache import cache_bytes
from coursekit.config import GPTConfig, TrainConfig
from coursekit.data import (
    Batch,
    random_windows,
    sequential_windows,
    train_val_split,
)
from coursekit.decoder import GPT
from coursekit.experts import Experts, route
from coursekit.feedforward import SwiGLU
from coursekit.masks import window_mask
from coursekit.training import evaluate, train
from results.record import options, record, summary
from results.replacing import corpus

CONTEXT, BATCH = 64, 16
WIDE, NARROW = 170, 85  # inner width of the gated network, and of an expert
N_EXPERTS, N_ACTIVE = 4, 2

# Each step changes the one before it.
STEPS: list[tuple[str, dict[str, Any]]] = [
    ("GPT-2", {}),
    ("RoPE", {"positions": "rope"}),
    ("RMSNorm", {"norm": "rmsnorm"}),
    ("SwiGLU", {"activation": "swiglu", "d_ff": WIDE}),
    ("no biases", {"bias": False}),
    ("grouped heads", {"n_kv_heads": 2}),
]
WINDOWS = [4, 16]


def models(vocab_size: int) -> dict[str, GPTConfig]:
    """Each step's configuration, from GPT-2's choices to Llama's."""
    config = GPTConfig(
        vocab_size=vocab_size,
        max_len=CONTEXT,
        d_model=64,
        n_heads=4,
        n_layers=2,
        activation="gelu_tanh",
    )
    made = {}
    for name, changes in STEPS:
        config = replace(config, **changes)
        made[name] = config
    return made


def with_experts(model: GPT) -> None:
    """Four narrow networks in place of each wide one, two of them active."""
    config = model.config
    for block in model.blocks:
        block.feed_forward = Experts(
            config.d_model, NARROW, N_EXPERTS, N_ACTIVE
        )
    initialize(model, config, n_residual=2 * config.n_layers)


def with_wide(model: GPT) -> None:
    """One network with all the weights of the four: twice the work."""
    config = model.config
    for block in model.blocks:
        block.feed_forward = SwiGLU(config.d_model, N_EXPERTS * NARROW)
    initialize(model, config, n_residual=2 * config.n_layers)


def seen(batch: Batch, window: int | None) -> Batch:
    """The batch, with a mask that hides what is too far back."""
    if window is None:
        return batch
    mask = window_mask(window, batch.inputs["ids"].size(1))
    return Batch(batch.inputs | {"mask": mask}, batch.targets)


def learn(
    config: GPTConfig,
    ids: torch.Tensor,
    seed: int,
    steps: int,
    change: Callable[[GPT], object] = lambda model: None,
    window: int | None = None,
) -> tuple[GPT, float]:
    """Train one model; it, and its loss on the whole validation split."""
    learned, held_out = train_val_split(ids, 0.1)
    torch.manual_seed(seed)
    model = GPT(config)
    change(model)
    budget = TrainConfig(
        steps=steps, learning_rate=3e-3, warmup_steps=50, seed=seed
    )
    train(
        model,
        lambda step: [
            seen(random_windows(learned, BATCH, CONTEXT, seed, step), window)
        ],
        budget,
        progress=False,
    )
    batches = sequential_windows(held_out, 256, CONTEXT)
    return model, evaluate(model, [seen(b, window) for b in batches])


def shares(model: GPT, ids: torch.Tensor) -> list[list[float]]:
    """Share of the validation tokens that each expert of a block gets."""
    counts = torch.zeros(len(model.blocks), N_EXPERTS)
    hooks = []
    for row, block in zip(counts, model.blocks, strict=True):

        def note(module: Any, args: Any, logits: Any, row: Any = row) -> None:
            chosen = route(logits, N_ACTIVE)[0]
            row += chosen.flatten().bincount(minlength=N_EXPERTS)

        router = block.feed_forward.router
        hooks.append(router.register_forward_hook(note))
    held_out = train_val_split(ids, 0.1)[1]
    evaluate(model, sequential_windows(held_out, 256, CONTEXT))
    for hook in hooks:
        hook.remove()
    part = counts / counts.sum(-1, keepdim=True)
    return [[round(p, 3) for p in row] for row in part.tolist()]


def misrouted(model: GPT, ids: torch.Tensor) -> float:
    """The loss if tokens go to experts that were chosen for other tokens."""

    def shift(module: Any, args: Any, logits: torch.Tensor) -> torch.Tensor:
        return logits.roll(1, dims=0)

    routers = [block.feed_forward.router for block in model.blocks]
    hooks = [router.register_forward_hook(shift) for router in routers]
    held_out = train_val_split(ids, 0.1)[1]
    nats = evaluate(model, sequential_windows(held_out, 256, CONTEXT))
    for hook in hooks:
        hook.remove()
    return nats


def one_expert_less(model: GPT, ids: torch.Tensor) -> list[float]:
    """The loss if nobody is sent to this expert, for each number."""
    losses = []
    held_out = train_val_split(ids, 0.1)[1]
    for number in range(N_EXPERTS):

        def close(
            module: Any, args: Any, logits: torch.Tensor, number: int = number
        ) -> torch.Tensor:
            logits[:, number] = -torch.inf
            return logits

        routers = [block.feed_forward.router for block in model.blocks]
        hooks = [router.register_forward_hook(close) for router in routers]
        batches = sequential_windows(held_out, 256, CONTEXT)
        losses.append(round(evaluate(model, batches), 4))
        for hook in hooks:
            hook.remove()
    return losses


def parameters(model: torch.nn.Module) -> int:
    """Number of parameters of a model."""
    return sum(p.numel() for p in model.parameters())


def against(ours: list[float], theirs: list[float]) -> dict[str, Any]:
    """The difference seed by seed: mean, interval, values."""
    pairs = zip(ours, theirs, strict=True)
    return summary([round(a - b, 4) for a, b in pairs])


parser = options(__doc__, seeds=[0, 1, 2], steps=200)


def main() -> None:
    """Train everything with every seed."""
    args = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer, ids = corpus()
    made = models(tokenizer.vocab_size)
    with record("modern", args.seeds) as metrics:
        metrics["unit"] = "nats per character, whole validation split"
        metrics["steps"] = []
        before: list[float] = []
        for name, config in made.items():
            losses = []
            for seed in args.seeds:
                model, nats = learn(config, ids, seed, args.steps)
                losses.append(round(nats, 4))
            metrics["steps"].append(
                {
                    "name": name,
                    "loss": summary(losses),
                    "change": against(losses, before or losses),
                    "parameters": parameters(model),
                    "cache_bytes": cache_bytes(
                        config.n_layers, config.kv_heads, 1, config.head_size
                    ),
                }
            )
            before = losses
            print(f"{name:16} {losses}", flush=True)
        first = metrics["steps"][0]["loss"]["values"]
        metrics["all"] = against(losses, first)
        llama = made["grouped heads"]
        metrics["windows"] = {}
        for window in WINDOWS:
            found = [
                round(learn(llama, ids, s, args.steps, window=window)[1], 4)
                for s in args.seeds
            ]
            metrics["windows"][str(window)] = summary(found)
            print(f"window {window:9} {found}", flush=True)
        metrics["windows"][str(CONTEXT)] = summary(losses)
        experts = [
            learn(llama, ids, s, args.steps, with_experts) for s in args.seeds
        ]
        wide = [
            learn(llama, ids, s, args.steps, with_wide) for s in args.seeds
        ]
        metrics["experts"] = {
            "loss": summary([round(nats, 4) for _, nats in experts]),
            "parameters": parameters(experts[0][0]),
            "shares": [shares(model, ids) for model, _ in experts],
            "misrouted": summary(
                [round(misrouted(model, ids), 4) for model, _ in experts]
            ),
            "one_less": [one_expert_less(model, ids) for model, _ in experts],
        }
        metrics["wide"] = {
            "loss": summary([round(nats, 4) for _, nats in wide]),
            "parameters": parameters(wide[0][0]),
        }
        metrics["narrow"] = {
            "loss": summary(losses),
            "parameters": parameters(model),
        }
        print(metrics["experts"], metrics["wide"], flush=True)


if __name__ == "__main__":
    main()
