"""The small Shakespeare model, in which one can follow a token through all.

Two blocks of four heads on the Shakespeare text, in a thousand byte-pair
tokens.  The index and the chapters quote its numbers, so it is frozen.
"""

import torch

from coursekit.config import GPTConfig, TrainConfig
from coursekit.data import (
    load_text,
    random_windows,
    sequential_windows,
    train_val_split,
)
from coursekit.decoder import GPT
from coursekit.saved_models import save_model
from coursekit.tokenizer import BPETokenizer
from coursekit.training import evaluate, train
from results.record import ROOT, options, record

FOLDER = ROOT / "coursekit" / "assets" / "models" / "running"
CONTEXT, BATCH = 64, 32


parser = options(__doc__, seed=0, steps=5000)


def main() -> None:
    """Train it and write it where ``coursekit.load`` looks."""
    args = parser.parse_args()
    torch.set_num_threads(1)
    learned, held_out = train_val_split(load_text("shakespeare"), 0.1)
    # The tokenizer learns from the training part alone, as the model does.
    tokenizer = BPETokenizer.train(learned, 1000)
    ids = torch.tensor(tokenizer.encode(learned))
    held_out_ids = torch.tensor(tokenizer.encode(held_out))
    torch.manual_seed(args.seed)
    model = GPT(
        GPTConfig(
            vocab_size=tokenizer.vocab_size,
            max_len=128,
            d_model=64,
            n_heads=4,
            n_layers=2,
            positions="sinusoidal",
            scale_embedding=True,
            activation="relu",
            dropout=0.1,
        )
    )
    budget = TrainConfig(
        steps=args.steps, learning_rate=3e-3, warmup_steps=100, seed=args.seed
    )
    paths = [FOLDER / n for n in ("model.safetensors", "tokenizer.json")]
    with record("running", [args.seed], paths) as metrics:
        train(
            model,
            lambda step: [
                random_windows(ids, BATCH, CONTEXT, args.seed, step)
            ],
            budget,
        )
        windows = sequential_windows(held_out_ids, 256, CONTEXT)
        nats = evaluate(model, windows)
        metrics["nats_per_token"] = round(nats, 4)
        metrics["nats_per_character"] = round(
            nats * (len(held_out_ids) - 1) / len(held_out), 4
        )
        metrics["parameters"] = sum(p.numel() for p in model.parameters())
        save_model(FOLDER, model, tokenizer)


if __name__ == "__main__":
    main()
