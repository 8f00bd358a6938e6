"""The rungs without a residual stream: each part replaces what it reads.

The parts of :mod:`results.ladder` once more, in the library's configurations
and without the residual path until the norm comes: text, context, batch,
steps and optimizer are the same on every rung, over three seeds.
"""

from collections.abc import Callable
from dataclasses import replace

import torch

from coursekit.config import GPTConfig, TrainConfig
from coursekit.data import (
    load_text,
    random_windows,
    sequential_windows,
    train_val_split,
)
from coursekit.decoder import GPT
from coursekit.generation import generate
from coursekit.sampling import sampler
from coursekit.steppers import GPTStepper
from coursekit.tokenizer import CharTokenizer
from coursekit.training import evaluate, train
from results.record import options, record, summary

CONTEXT, BATCH = 64, 32

# Each rung changes the one before it.
RUNGS = [
    ("bigram", "bigram", {}),
    ("positions", "+ positions", {"positions": "learned"}),
    ("attention", "+ attention, one head", {"n_layers": 1}),
    ("heads", "+ four heads", {"n_heads": 4}),
    (
        "norm",
        "+ residual and norm",
        {"residual": True, "norm": "layernorm", "final_norm": True},
    ),
    ("feedforward", "+ feed-forward", {"d_ff": 256}),
    ("depth", "+ depth: four blocks", {"n_layers": 4}),
]


def rungs(vocab_size: int) -> list[tuple[str, str, GPTConfig]]:
    """Each rung's name, label and configuration."""
    config = GPTConfig(
        vocab_size=vocab_size,
        max_len=CONTEXT,
        d_model=64,
        n_heads=1,
        n_layers=0,
        d_ff=0,
        positions="none",
        norm="none",
        final_norm=False,
        residual=False,
        tie_embeddings=False,
    )
    made = []
    for name, label, changes in RUNGS:
        config = replace(config, **changes)
        made.append((name, label, config))
    return made


def corpus() -> tuple[CharTokenizer, torch.Tensor]:
    """The ladder's text: its characters' tokenizer, and the whole in ids."""
    text = load_text("shakespeare")
    tokenizer = CharTokenizer.train(text)
    return tokenizer, torch.tensor(tokenizer.encode(text))


def plain_adamw(
    steps: int, rate: float, seed: int, warmup: int = 0
) -> TrainConfig:
    """PyTorch's AdamW with its defaults, at a constant learning rate."""
    return TrainConfig(
        steps=steps,
        learning_rate=rate,
        schedule="constant",
        warmup_steps=warmup,
        weight_decay=0.01,
        beta2=0.999,
        max_grad_norm=0.0,
        seed=seed,
    )


def climb(
    config: GPTConfig,
    ids: torch.Tensor,
    seed: int,
    steps: int,
    change: Callable[[GPT], object] = lambda model: None,
) -> tuple[GPT, float]:
    """Train one rung with one seed; the model and its validation loss.

    ``change`` may alter the model before it learns, for a control.
    """
    learned, held_out = train_val_split(ids, 0.1)
    torch.manual_seed(seed)
    model = GPT(config)
    change(model)
    train(
        model,
        lambda step: [random_windows(learned, BATCH, CONTEXT, seed, step)],
        plain_adamw(steps, 1e-3, seed),
    )
    return model, evaluate(model, sequential_windows(held_out, 256, CONTEXT))


def sample(model: GPT, tokenizer: CharTokenizer) -> str:
    """A few lines that the model writes."""
    generator = torch.Generator().manual_seed(0)
    prompt = [tokenizer.encode("\n")]
    rows = generate(
        GPTStepper(model, use_cache=False),
        prompt,
        200,
        sampler(generator=generator),
    )
    return tokenizer.decode(rows[0])


parser = options(__doc__, seeds=[0, 1, 2], steps=2000)


def main() -> None:
    """Climb every rung with every seed."""
    args = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer, ids = corpus()
    with record("replacing", args.seeds) as metrics:
        metrics["unit"] = "nats per character, whole validation split"
        metrics["rungs"] = []
        for name, label, config in rungs(tokenizer.vocab_size):
            losses = []
            for seed in args.seeds:
                model, nats = climb(config, ids, seed, args.steps)
                losses.append(round(nats, 4))
                if seed == args.seeds[0]:
                    written = sample(model, tokenizer)
            metrics["rungs"].append(
                {
                    "name": name,
                    "label": label,
                    "loss": summary(losses),
                    "parameters": sum(p.numel() for p in model.parameters()),
                    "sample": written,
                }
            )
            print(f"{name:12} {losses}", flush=True)


if __name__ == "__main__":
    main()
