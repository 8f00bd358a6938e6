"""A cache in fewer bits, and prompts that begin alike.

In fewer bits: what rounding keys and values adds to the loss of the model of
stories on stories that it has not seen, and to that of SmolLM2 on
Shakespeare.  A step is shared by a vector of a head; in one control by all
that a layer stores of a text, in another, for keys, by a dimension.

    make models && python -m results.serving

Alike: the same worked examples stand before each of 60 questions, and their
keys and values are kept.  Tokens that are read with and without them, and
how far the logits are apart.  The control keeps those of other examples, in
which one word differs.
"""

import copy
from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor

import coursekit
from coursekit.cache import LayerCache, make_cache
from coursekit.data import Batch
from coursekit.decoder import GPT
from coursekit.loss import token_loss
from coursekit.pretrained.published import load_published
from coursekit.quantize import dequantize, quantize
from coursekit.tokenizer import Tokenizer
from coursekit.training import evaluate
from results.distill import held_out
from results.record import options, record, summary
from results.story_questions import SIX, questions

BITS = (8, 4)
SHARED = ("a vector", "a layer", "a dimension of the keys")
PARTS, LENGTH = 10, 256  # of each text, for an interval; a window
EXAMPLES, ASKED = (SIX[3], SIX[0]), 60
OTHER_WORD = ("Jack", "Tom")


# -- fewer bits --------------------------------------------------------------
class RoundedCache:
    """A cache that rounds what it stores.

    Args:
        bits: of each number.
        shared: what shares a step, one of ``SHARED``.
    """

    length = 0

    def __init__(self, bits: int, shared: str) -> None:
        self.bits, self.shared = bits, shared

    def update(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and the values as they would be read."""
        if self.shared == SHARED[2]:
            return self.rounded(k.mT.contiguous()).mT, self.rounded(v)
        return self.rounded(k), self.rounded(v)

    def rounded(self, x: Tensor) -> Tensor:
        """What quantization leaves of a tensor, (B, G, ., .)."""
        whole = self.shared == SHARED[1]
        rows = x.flatten(1) if whole else x.flatten(0, 2)
        return dequantize(quantize(rows, self.bits)).view(x.shape)


def added_loss(model: GPT, test: Sequence[Batch]) -> dict[str, Any]:
    """Nats per token that rounding adds, in each part of a text."""
    plain = [evaluate(model, [part]) for part in test]
    found: dict[str, Any] = {
        "tokens": sum(part.n_targets for part in test),
        "loss": summary(plain),
    }
    for shared, bits in product(SHARED, BITS):

        def read(ids: Tensor) -> Tensor:
            """Logits, from rounded keys and values."""
            cache = RoundedCache(bits, shared)  # noqa: B023
            logits: Tensor = model(ids, cache=[cache] * len(model.blocks))
            return logits

        def loss(_: Any, inputs: dict[str, Tensor], targets: Tensor) -> Tensor:
            return token_loss(read, inputs, targets)

        rounded = [evaluate(model, [part], loss=loss) for part in test]
        added = [a - b for a, b in zip(rounded, plain, strict=True)]
        found[f"{bits} bits, a step for {shared}"] = summary(added)
        print(bits, shared, summary(added), flush=True)
    return found


def in_parts(ids: Tensor, targets: Tensor) -> list[Batch]:
    """The same rows, in ten batches."""
    rows = len(ids) // PARTS * PARTS
    pairs = zip(
        ids[:rows].chunk(PARTS), targets[:rows].chunk(PARTS), strict=True
    )
    return [Batch({"ids": part}, wanted) for part, wanted in pairs]


def shakespeare(tokenizer: Tokenizer) -> list[Batch]:
    """Ten windows from the last tenth of the text."""
    text = coursekit.load_text("shakespeare")
    ids = torch.tensor(tokenizer.encode(text[-len(text) // 10 :]))
    rows = ids[: PARTS * LENGTH + 1].unfold(0, LENGTH + 1, LENGTH)
    return in_parts(rows[:, :-1], rows[:, 1:])


def stories(tokenizer: Tokenizer) -> list[Batch]:
    """Stories that no model has learned from."""
    batches = held_out(tokenizer)
    ids = torch.cat([batch.inputs["ids"] for batch in batches])
    return in_parts(ids, torch.cat([batch.targets for batch in batches]))


# -- prompts that begin alike ------------------------------------------------
def read(model: GPT, ids: Sequence[int], cache: list[LayerCache]) -> Tensor:
    """Logits of the next token, (V,)."""
    with torch.no_grad():
        x = model.hidden(torch.tensor([ids]), cache=cache)
        return model.logits(x[0, -1])


def kept(model: GPT, ids: Sequence[int]) -> list[LayerCache]:
    """The keys and values of a beginning."""
    cache = make_cache(model, 1)
    read(model, ids, cache)
    return cache


def alike(model: GPT, tokenizer: Tokenizer) -> dict[str, Any]:
    """Tokens that are read, and differences of logits."""
    shown = " ".join(f"{a.prompt()} {a.answer}" for a in EXAMPLES)
    begin = tokenizer.encode(shown)
    other = tokenizer.encode(shown.replace(*OTHER_WORD))
    asked = [
        tokenizer.encode(f"{shown} {a.prompt()}")
        for a in questions(ASKED, 0, held_out=True)
    ]
    assert {tuple(ids[: len(begin)]) for ids in asked} == {tuple(begin)}
    caches = {"kept": kept(model, begin), "of others": kept(model, other)}
    alone = [read(model, ids, make_cache(model, 1)) for ids in asked]
    found: dict[str, Any] = {
        "asked": len(asked),
        "beginning": len(begin),
        "differs at": [
            a == b for a, b in zip(begin, other, strict=True)
        ].index(False),
        "without": sum(map(len, asked)),
    }
    found["with"] = found["without"] - (len(asked) - 1) * len(begin)
    for name, cache in caches.items():
        logits = [
            read(model, ids[len(begin) :], copy.deepcopy(cache))
            for ids in asked
        ]
        pairs = [*zip(logits, alone, strict=True)]
        found[name] = {
            "logits apart": max((a - b).abs().max().item() for a, b in pairs),
            "other words": sum(
                a.argmax().item() != b.argmax().item() for a, b in pairs
            ),
        }
    return found


parser = options(__doc__)


def main() -> None:
    """Measure both."""
    parser.parse_args()
    torch.set_num_threads(1)
    with record("serving", [0]) as metrics:
        metrics["seed"] = "nothing here is drawn at random"
        model, tokenizer = coursekit.load_tuned("stories-answers")
        metrics["alike"] = alike(model, tokenizer)
        print(metrics["alike"], flush=True)
        model, tokenizer = coursekit.load("stories")
        metrics["stories"] = added_loss(model, stories(tokenizer))
        model, tokenizer = load_published("smollm2")
        metrics["smollm2"] = added_loss(model, shakespeare(tokenizer))


if __name__ == "__main__":
    main()
