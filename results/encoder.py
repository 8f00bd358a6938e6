"""Gaps in a sentence, filled by two encoders: one sees what is to the right.

A language of one sentence: the animal did not cross the street because the
animal was too tired, or because the street was too wide, with four words for
each of the animal, the street, and the two kinds of reason.  Of the four words
that vary, one at a time is hidden.  Two encoders are alike but for a causal
mask; their loss at each place is measured on all 128 sentences, over three
seeds.
"""

import itertools
import math

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from coursekit.config import EncoderConfig
from coursekit.encoder import Encoder
from coursekit.masks import causal_mask
from results.record import options, record, summary

MASK = "[MASK]"
ANIMALS = ("animal", "dog", "cat", "goat")
PLACES = ("street", "river", "field", "bridge")
TIRED = ("tired", "scared", "small", "old")
WIDE = ("wide", "busy", "steep", "wet")
GAPS = (1, 6, 9, 12)  # places of the words that vary
RATE = 5e-3
FRAME = "the {} did not cross the {} because the {} was too {}"
WORDS = tuple(
    dict.fromkeys([MASK, *FRAME.split(), *ANIMALS, *PLACES, *TIRED, *WIDE])
)
WORDS = tuple(word for word in WORDS if word != "{}")


def sentences() -> list[str]:
    """All 4 · 4 · 8 sentences of the language, each kind of reason equal."""
    made = []
    for animal, place in itertools.product(ANIMALS, PLACES):
        made += [FRAME.format(animal, place, animal, t) for t in TIRED]
        made += [FRAME.format(animal, place, place, w) for w in WIDE]
    return made


def encode(text: str) -> list[int]:
    """A sentence's words as numbers."""
    return [WORDS.index(word) for word in text.split()]


def floors(causal: bool) -> list[float]:
    """The lowest loss possible at each gap, in nats, by counting."""
    rows = [tuple(text.split()) for text in sentences()]
    lowest = []
    for t in GAPS:
        seen = [row[:t] if causal else row[:t] + row[t + 1 :] for row in rows]
        nats = 0.0
        for row, rest in zip(rows, seen, strict=True):
            same = [r[t] for r, s in zip(rows, seen, strict=True) if s == rest]
            nats -= math.log(same.count(row[t]) / len(same)) / len(rows)
        lowest.append(nats)
    return lowest


def train(
    seed: int, causal: bool, steps: int = 500
) -> tuple[Encoder, Tensor | None]:
    """Learn to fill one gap a sentence; the model and its mask."""
    every = torch.tensor([encode(text) for text in sentences()])
    torch.manual_seed(seed)
    model = Encoder(
        EncoderConfig(
            vocab_size=len(WORDS), max_len=16, d_model=32, n_layers=2
        )
    )
    mask = causal_mask(every.size(1)) if causal else None
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    rows, places = torch.arange(64), torch.tensor(GAPS)
    for step in range(steps):
        rate = RATE * min((step + 1) / 40, 1 - step / steps)
        optimizer.param_groups[0]["lr"] = rate
        ids = every[torch.randint(len(every), (64,))]
        gap = places[torch.randint(len(GAPS), (64,))]
        holed = ids.clone()
        holed[rows, gap] = WORDS.index(MASK)
        x = model(holed, mask)[rows, gap]
        loss = F.cross_entropy(model.embedding.unembed(x), ids[rows, gap])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model, mask


@torch.no_grad()
def by_place(model: Encoder, mask: Tensor | None) -> list[float]:
    """The mean loss over all sentences, with the gap at each of the four."""
    every = torch.tensor([encode(text) for text in sentences()])
    losses = []
    for t in GAPS:
        holed = every.clone()
        holed[:, t] = WORDS.index(MASK)
        logits = model.embedding.unembed(model(holed, mask)[:, t])
        losses.append(F.cross_entropy(logits, every[:, t]).item())
    return losses


parser = options(__doc__, seeds=[0, 1, 2], steps=500)


def main() -> None:
    """Train both encoders with every seed."""
    args = parser.parse_args()
    torch.set_num_threads(1)
    with record("encoder", args.seeds) as metrics:
        metrics["unit"] = "nats at a gap, all 128 sentences"
        metrics["sentences"] = sentences()
        metrics["words"] = list(WORDS)
        metrics["gaps"] = list(GAPS)
        metrics["steps"] = args.steps
        metrics["rate"] = RATE
        metrics["runs"] = []
        for name, causal in (("both sides", False), ("left side", True)):
            runs = [
                by_place(*train(seed, causal, args.steps))
                for seed in args.seeds
            ]
            places = [list(column) for column in zip(*runs, strict=True)]
            metrics["runs"].append(
                {
                    "name": name,
                    "floors": [round(f, 4) for f in floors(causal)],
                    "loss": [
                        summary([round(v, 4) for v in column])
                        for column in places
                    ],
                }
            )
            print(name, places, flush=True)


if __name__ == "__main__":
    main()
