"""BLEU of the shipped translators on Multi30k's test set of 2016.

Needs only the models, which the package has, and the test set: a few minutes
for anyone who wants to see the numbers again.
"""

import time
from typing import Any

import torch

from coursekit.saved_models import find_model
from coursekit.translate import Translator
from results.record import options, record
from results.translating import TEST, bleu, count
from results.translator import PAIRS

FEW = 100  # pairs that the tests translate again
SEARCH: dict[str, Any] = {"n_beams": 4, "length_penalty": 1.0}


parser = options(__doc__, threads=1)


def main() -> None:
    """Translate the test set both ways, greedily and with a beam."""
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    names = ["-".join(pair) for pair in PAIRS]
    files = [
        find_model(f"translator-{name}") / "model.safetensors"
        for name in names
    ]
    with record("translation", [0], files) as metrics:
        metrics["data"], metrics["search"] = TEST, SEARCH
        metrics["entries"] = []
        for pair, name in zip(PAIRS, names, strict=True):
            translator = Translator.load(f"translator-{name}")
            greedy = bleu(translator, pair, TEST, n_beams=1)
            few = bleu(translator, pair, TEST, FEW, n_beams=1)
            began = time.perf_counter()
            found = bleu(translator, pair, TEST, **SEARCH)
            seconds = round(time.perf_counter() - began, 1)
            metrics["entries"].append(
                {"pair": name, **found}
                | {"greedy": greedy["bleu"], "greedy_few": few["bleu"]}
                | {"seconds": seconds}
                | {"parameters": count(translator.model)}
            )


if __name__ == "__main__":
    main()
