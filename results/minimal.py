"""The book's file and the library: the same weights, batches and settings.

``GPT`` of `coursekit/minimal.py` and ``GPT`` of the library start from the
same weights and are trained on the same batches, each by its own loop and
with the sizes and steps of the file's own script, over three seeds.  In
float64 the two agree to rounding (`tests/library/test_minimal.py`); here, in
float32, rounding has 2,000 steps to grow.
"""

import time
from collections.abc import Sequence
from typing import Any

import torch

from coursekit import minimal, training
from coursekit.config import TrainConfig
from coursekit.data import Batch, load_text
from coursekit_classroom.yourfile.saving import library_name, to_library
from results.record import options, record, summary

CONTEXT, WIDTH, HEADS, BLOCKS, BATCH = 64, 64, 4, 4, 32


def to_minimal(library: Any) -> minimal.GPT:
    """The book's ``GPT`` with the weights of one of the library's.

    Args:
        library: a ``GPT`` whose configuration makes the file's choices.
    """
    config, weights = library.config, library.state_dict()
    sizes = (config.vocab_size, config.max_len, config.d_model)
    model = minimal.GPT(*sizes, config.n_heads, config.n_layers)
    names = model.state_dict().keys()
    model.load_state_dict({k: weights[library_name(k)] for k in names})
    return model.to(weights["head.weight"].dtype)


def settings(steps: int, **changes: Any) -> TrainConfig:
    """The library's settings that are those of the file's ``train``."""
    fields: dict[str, Any] = {
        "steps": steps,
        "learning_rate": 1e-3,
        "schedule": "cosine",
        "warmup_steps": 100,
        "min_lr_ratio": 0.1,
        "optimizer": "adamw",
        "weight_decay": 0.1,
        "beta1": 0.9,
        "beta2": 0.99,
        "max_grad_norm": 1.0,
    }
    return TrainConfig(**fields | changes)


def compare(
    learned: torch.Tensor,
    held_out: torch.Tensor,
    vocab_size: int,
    seed: int,
    steps: int,
) -> dict[str, dict[str, float]]:
    """Held-out loss and CPU time of both, from the same weights."""
    torch.manual_seed(seed)
    model = minimal.GPT(vocab_size, CONTEXT, WIDTH, HEADS, BLOCKS)
    library = to_library(model)
    found = {}

    start = time.process_time()
    torch.manual_seed(seed)
    minimal.train(model, learned, steps, BATCH)
    seconds = time.process_time() - start
    loss = minimal.evaluate(model, held_out)
    found["minimal"] = {"loss": loss, "cpu_seconds": seconds}

    torch.manual_seed(seed)  # the same batches, drawn before the loop
    drawn = [minimal.get_batch(learned, BATCH, CONTEXT) for _ in range(steps)]
    batches = [[Batch({"ids": ids}, targets)] for ids, targets in drawn]
    start = time.process_time()
    training.train(
        library, batches.__getitem__, settings(steps), progress=False
    )
    seconds = time.process_time() - start
    windows = held_out.unfold(0, CONTEXT + 1, CONTEXT)
    loss = training.evaluate(
        library, [Batch({"ids": windows[:, :-1]}, windows[:, 1:])]
    )
    found["library"] = {"loss": loss, "cpu_seconds": seconds}
    return found


parser = options(__doc__, seeds=[0, 1, 2], steps=2000)


def measure(seeds: Sequence[int], steps: int) -> dict[str, Any]:
    """Both models over seeds, and the difference of their losses."""
    text = load_text("shakespeare")
    tokenizer = minimal.CharTokenizer(text)
    ids = torch.tensor(tokenizer.encode(text))
    cut = len(ids) * 9 // 10
    size = len(tokenizer.vocabulary)
    runs = []
    for seed in seeds:
        runs.append(compare(ids[:cut], ids[cut:], size, seed, steps))
        print(seed, runs[-1], flush=True)
    metrics: dict[str, Any] = {"unit": "nats per character, held-out tenth"}
    for name in ("minimal", "library"):
        metrics[name] = {
            "loss": summary([round(run[name]["loss"], 4) for run in runs]),
            "cpu_seconds": round(
                sum(run[name]["cpu_seconds"] for run in runs) / len(runs), 1
            ),
        }
    metrics["difference"] = summary(
        [
            round(run["minimal"]["loss"] - run["library"]["loss"], 4)
            for run in runs
        ]
    )
    return metrics


def main() -> None:
    """Train both with every seed."""
    args = parser.parse_args()
    torch.set_num_threads(1)
    with record("minimal", args.seeds) as metrics:
        metrics |= measure(args.seeds, args.steps)


if __name__ == "__main__":
    main()
