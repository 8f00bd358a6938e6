"""Worth of each choice of a translator, in BLEU.

The translator of half an hour with fewer steps, over three seeds: one choice
is changed at a time, and scored on the validation part beside the same seed's
recipe as it is.  The test part is not looked at.
"""

from typing import Any

import torch

from coursekit.weights import put_weights, read_weights
from results.half_hour import PAIR, train_one
from results.record import ROOT, options, record, summary
from results.translating import bleu, states

RETRAINED: dict[str, dict[str, Any]] = {
    "with BPE-dropout": {"bpe_dropout": 0.1},
    "a head of its own": {"tie_embeddings": False},
}


parser = options(__doc__, seeds=3, steps=1500, threads=1, runs=ROOT / "runs")


def main() -> None:
    """Train three times as many models as there are seeds, and compare."""
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    seeds = range(args.seeds)
    scores: dict[str, list[float]] = {}
    with record("worth", seeds) as metrics:

        def note(what: str, translator: Any, **search: Any) -> None:
            score = bleu(translator, PAIR, "val", **search)["bleu"]
            scores.setdefault(what, []).append(score)
            print(what, score, flush=True)

        for seed in seeds:
            folder = args.runs / f"worth-{seed}"
            translator, _ = train_one(seed, args.steps, folder)
            note("all", translator)
            note("greedy", translator, n_beams=1)
            note("sums, not means, of log p", translator, length_penalty=0.0)
            last = states(folder)[-1]
            put_weights(translator.model, read_weights(last), last)
            note("the last state alone", translator)
            for what, change in RETRAINED.items():
                folder = args.runs / f"worth-{seed}-{what.replace(' ', '-')}"
                note(what, train_one(seed, args.steps, folder, **change)[0])
        whole = scores.pop("all")
        metrics["bleu"] = summary(whole)
        metrics["changes"] = [
            {
                "what": what,
                "bleu": changed,
                "lost": summary(
                    [
                        round(a - b, 2)
                        for a, b in zip(whole, changed, strict=True)
                    ]
                ),
            }
            for what, changed in scores.items()
        ]


if __name__ == "__main__":
    main()
