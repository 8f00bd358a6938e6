"""The shipped translators, German to English and English to German.

One model learns both directions at first: twice the text, and what it learns
of either language as a source helps with it as a target.  Each direction then
goes on alone, with a learning rate that falls to zero.  The mean of the last
states is rounded to int8 and shipped.  Stop it at any time: the same command
goes on.
"""

from dataclasses import replace
from typing import Any

import torch

from coursekit.config import TrainConfig
from coursekit.saved_models import save_model
from coursekit.translate import Translator
from coursekit.weights import put_weights, round_weights
from results.record import ROOT, options, record
from results.translating import (
    Direction,
    average_states,
    bleu,
    count,
    learn,
    learn_vocabulary,
    make_model,
)

PAIRS: list[Direction] = [("de", "en"), ("en", "de")]
MODELS = ROOT / "coursekit" / "assets" / "models"
VOCABULARY, MAX_TOKENS, BPE_DROPOUT = 4000, 2500, 0.1


parser = options(
    __doc__, seed=0, steps=16200, alone=3000, threads=1, runs=ROOT / "runs"
)
parser.add_argument(
    "--only",
    metavar="de-en",
    help="train this direction and write nothing: two such commands may "
    "run side by side, once both are learned together",
)


def main() -> None:
    """Train them and write them where ``coursekit.load`` looks."""
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    tokenizer = learn_vocabulary(VOCABULARY)
    together = TrainConfig(
        steps=args.steps,
        learning_rate=3e-3,
        schedule="constant",
        warmup_steps=1000,
        weight_decay=0.01,
        beta2=0.98,
        label_smoothing=0.1,
        precision="auto",
        seed=args.seed,
    )
    alone = replace(
        together,
        steps=args.alone,
        schedule="cosine",
        min_lr_ratio=0.0,
        warmup_steps=100,
        seed=args.seed + 1,
    )

    def data(*directions: Direction) -> dict[str, Any]:
        return {
            "directions": directions,
            "max_tokens": MAX_TOKENS,
            "bpe_dropout": BPE_DROPOUT,
        }

    both = args.runs / "translator-both"
    model = make_model(
        tokenizer,
        args.seed,
        n_encoder_layers=4,
        n_decoder_layers=4,
        dropout=0.2,
    )

    def learn_alone(pair: Direction) -> dict[str, Any]:
        put_weights(model, average_states(both), both)
        folder = args.runs / f"translator-{'-'.join(pair)}"
        return learn(model, tokenizer, data(pair), alone, folder)

    if args.only:
        learn_alone(tuple(args.only.split("-")))
        return
    folders = [MODELS / f"translator-{a}-{b}" for a, b in PAIRS]
    files = [folder / "model.safetensors" for folder in folders]
    with record("translator", [args.seed], files) as metrics:
        metrics["parameters"] = count(model)
        metrics["together"] = learn(
            model, tokenizer, data(*PAIRS), together, both
        )
        for pair, folder in zip(PAIRS, folders, strict=True):
            spent = learn_alone(pair)
            round_weights(model)
            save_model(folder, model, tokenizer, int8=True)
            score = bleu(Translator(model, tokenizer), pair, "val")
            metrics[folder.name] = spent | {"validation": score}


if __name__ == "__main__":
    main()
